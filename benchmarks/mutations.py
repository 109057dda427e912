"""One thing changed in an ONNX file: a weight, an attribute, a node, an index. Some changes change nothing.

name, other = mutated(model, Random("a seed"))
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

Array = np.ndarray
Change = Callable[[ModelProto, Random], bool]
"""Changes a model in place; False where it has nothing to change."""

# --- weights ----------------------------------------------------------------------------------------------------------


def tensors(model: ModelProto, kind: str) -> list[Any]:
    """The constants of a type ("f" floats, "i" integers), wherever they stand, that are not empty."""
    values = [a.t for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"]
    floats = (1, 10, 11)
    found = [t for t in (*model.graph.initializer, *values) if (t.data_type in floats) == (kind == "f")]
    return [t for t in found if 0 not in t.dims]


def on_array(kind: str, change: Callable[[Array, Random], Array | None]) -> Change:
    def run(model: ModelProto, rng: Random) -> bool:
        found = tensors(model, kind)
        if not found:
            return False
        tensor = rng.choice(found)
        before = numpy_helper.to_array(tensor)
        after = change(before.copy(), rng)
        if after is None or after.tobytes() == before.tobytes():
            return False
        tensor.CopyFrom(numpy_helper.from_array(after.astype(before.dtype, order="C"), tensor.name))
        return True

    return run


def at_one_cell(change: Callable[[Any, Random], Any]) -> Callable[[Array, Random], Array]:
    def run(array: Array, rng: Random) -> Array:
        place = tuple(rng.randrange(n) for n in array.shape)
        array[place] = change(array[place], rng)
        return array

    return run


def moved_by_ulps(count: int) -> Callable[[Any, Random], Any]:
    def run(x: Any, rng: Random) -> Any:
        end = np.asarray(rng.choice((-np.inf, np.inf)), x.dtype)
        for _ in range(count):
            x = np.nextafter(x, end)
        return x

    return run


def exchanged(axis: int) -> Callable[[Array, Random], Array | None]:
    """Two channels in each other's place."""

    def run(array: Array, rng: Random) -> Array | None:
        if array.ndim <= axis or array.shape[axis] < 2:
            return None
        i, j = rng.sample(range(array.shape[axis]), 2)
        order = list(range(array.shape[axis]))
        order[i], order[j] = j, i
        return np.take(array, order, axis)

    return run


def transposed(array: Array, rng: Random) -> Array | None:
    square = array.ndim >= 2 and array.shape[-1] == array.shape[-2]
    return np.swapaxes(array, -1, -2) if square else None


WEIGHTS: dict[str, Change] = {
    "weight 1 ulp": on_array("f", at_one_cell(moved_by_ulps(1))),
    "weight 8 ulps": on_array("f", at_one_cell(moved_by_ulps(8))),
    "weight 1e-3": on_array("f", at_one_cell(lambda x, rng: x * (1 + rng.choice((-1e-3, 1e-3))))),
    "weight + 1e-5": on_array("f", at_one_cell(lambda x, rng: x + x.dtype.type(1e-5))),
    "weight negated": on_array("f", at_one_cell(lambda x, rng: -x)),
    "weight zero": on_array("f", at_one_cell(lambda x, rng: 0 * x)),
    "array scaled": on_array("f", lambda a, rng: a * a.dtype.type(1 + 2.0 ** -rng.randint(8, 22))),
    "array in float16": on_array("f", lambda a, rng: a.astype(np.float16)),
    "array of 8 bits": on_array("f", lambda a, rng: np.rint(a * 127 / abs(a).max()) * abs(a).max() / 127),
    "channels of axis 0": on_array("f", exchanged(0)),
    "channels of axis 1": on_array("f", exchanged(1)),
    "array transposed": on_array("f", transposed),
    "integer": on_array("i", at_one_cell(lambda x, rng: x + rng.choice((-1, 1)))),
    "integers exchanged": on_array("i", exchanged(0)),
}

# --- attributes -------------------------------------------------------------------------------------------------------


def set_attribute(node: Any, name: str, value: Any) -> None:
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def attribute(node: Any, name: str, default: Any = None) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def on_attribute(operators: str, name: str, change: Callable[[Any, Random], Any], default: Any = None) -> Change:
    """Another value of an attribute of one node of these operators; left out, it is the `default` of them all."""

    def run(model: ModelProto, rng: Random) -> bool:
        nodes = [n for n in model.graph.node if n.op_type in operators.split()]
        nodes = [n for n in nodes if attribute(n, name, default) is not None]
        if not nodes:
            return False
        node = rng.choice(nodes)
        before = attribute(node, name, default)
        after = change(list(before) if isinstance(before, list | tuple) else before, rng)
        set_attribute(node, name, after)
        return bool(after != before)

    return run


def one_more_or_less(values: Any, rng: Random) -> Any:
    if not isinstance(values, list):
        return values + rng.choice((-1, 1))
    k = rng.randrange(len(values))
    values[k] = max(0, values[k] + rng.choice((-1, 1)))
    return values


def pads_moved(values: list[int], rng: Random) -> list[int]:
    """A cell of padding on the other side: shapes stay."""
    half = len(values) // 2
    k = rng.randrange(half)
    one, two = (k, k + half) if rng.random() < 0.5 else (k + half, k)
    values[one], values[two] = values[one] + 1, values[two] - 1
    return values if values[two] >= 0 else values[half:] + values[:half]


def one_of(*choices: Any) -> Callable[[Any, Random], Any]:
    return lambda value, rng: rng.choice([c for c in choices if c not in (value, getattr(value, "decode", str)())])


def exchanged_entries(values: list[int], rng: Random) -> list[int]:
    i, j = rng.sample(range(len(values)), 2) if len(values) > 1 else (0, 0)
    values[i], values[j] = values[j], values[i]
    return values


WINDOWS = "Conv ConvTranspose MaxPool AveragePool"
NORMS = "BatchNormalization LayerNormalization InstanceNormalization"
AT = one_of("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
ATTRIBUTES: dict[str, Change] = {
    "pads moved": on_attribute(WINDOWS, "pads", pads_moved),
    "pads": on_attribute(WINDOWS, "pads", one_more_or_less),
    "stride": on_attribute(WINDOWS, "strides", one_more_or_less),
    "dilation": on_attribute("Conv MaxPool", "dilations", one_more_or_less),
    "side of auto_pad": on_attribute(WINDOWS, "auto_pad", one_of("SAME_UPPER", "SAME_LOWER")),
    "padding counted": on_attribute("AveragePool", "count_include_pad", one_of(0, 1), 0),
    "ceil_mode": on_attribute("MaxPool AveragePool", "ceil_mode", one_of(0, 1), 0),
    "epsilon": on_attribute(NORMS, "epsilon", lambda v, rng: v * rng.choice((0.1, 1.001, 10)), 1e-5),
    "momentum": on_attribute("BatchNormalization", "momentum", lambda v, rng: v / 2, 0.9),
    "alpha": on_attribute("LeakyRelu Elu HardSigmoid", "alpha", lambda v, rng: v * rng.choice((0.9, 1.0001)), 0.2),
    "axis": on_attribute("Softmax Concat Gather Flatten LayerNormalization DequantizeLinear", "axis", one_more_or_less),
    "axes": on_attribute("ReduceMean", "axes", one_more_or_less),
    "order of axes": on_attribute("Transpose", "perm", exchanged_entries),
    "transB": on_attribute("Gemm", "transB", one_of(0, 1), 0),
    "gemm's alpha": on_attribute("Gemm", "alpha", lambda v, rng: v * rng.choice((0.5, 1.0001)), 1.0),
    "mode of Resize": on_attribute("Resize", "mode", one_of("nearest", "linear")),
    "grid of Resize": on_attribute("Resize", "coordinate_transformation_mode", AT),
    "rounding of Resize": on_attribute("Resize", "nearest_mode", one_of("floor", "ceil", "round_prefer_ceil")),
    "mode of Pad": on_attribute("Pad", "mode", one_of("constant", "reflect", "edge"), "constant"),
    "formula of Gelu": on_attribute("Gelu", "approximate", one_of("none", "tanh")),
}

# --- nodes ------------------------------------------------------------------------------------------------------------

ACTIVATIONS = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "HardSigmoid", "Softplus", "Erf", "Identity", "Abs")
OTHERS = {
    "another function": dict.fromkeys(ACTIVATIONS, ACTIVATIONS),
    "sum for difference": {"Add": ("Sub",), "Sub": ("Add",)},
    "product for quotient": {"Mul": ("Div",), "Div": ("Mul",)},
    "sum for product": {"Add": ("Mul",), "Mul": ("Add",)},
    "maximum for mean": {
        "GlobalAveragePool": ("GlobalMaxPool",), "MaxPool": ("AveragePool",), "AveragePool": ("MaxPool",),
        "ReduceMean": ("ReduceMax", "ReduceSum"),
    },
}  # fmt: skip


def as_other(table: dict[str, tuple[str, ...]]) -> Change:
    def run(model: ModelProto, rng: Random) -> bool:
        nodes = [n for n in model.graph.node if n.op_type in table and not n.domain]
        if not nodes:
            return False
        node = rng.choice(nodes)
        node.op_type = rng.choice([name for name in table[node.op_type] if name != node.op_type])
        kept = [a for a in node.attribute if a.name in onnx.defs.get_schema(node.op_type).attributes]
        del node.attribute[:]
        node.attribute.extend(kept)
        return True

    return run


def dropped(model: ModelProto, rng: Random) -> bool:
    """Readers of one node's result read its first input instead."""
    results = {o.name for o in model.graph.output}
    fed = {name for n in model.graph.node for name in n.output} | {i.name for i in model.graph.input}
    nodes = [n for n in model.graph.node if n.input and n.input[0] in fed and not results & set(n.output)]
    if not nodes:
        return False
    gone = rng.choice(nodes)
    for node in model.graph.node:
        node.input[:] = [gone.input[0] if name == gone.output[0] else name for name in node.input]
    model.graph.node.remove(gone)
    return True


def operands_exchanged(model: ModelProto, rng: Random) -> bool:
    nodes = [n for n in model.graph.node if n.op_type in ("Sub", "Div", "MatMul", "Concat", "Add", "Mul")]
    nodes = [n for n in nodes if len(n.input) > 1]
    if not nodes:
        return False
    node = rng.choice(nodes)
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return True


def other_source(model: ModelProto, rng: Random) -> bool:
    """One node reads an earlier result than it did."""
    known = [model.graph.input[0].name]
    places = []
    for node in model.graph.node:
        places += [(node, k, list(known)) for k, name in enumerate(node.input) if name in known[1:]]
        known += [name for name in node.output if node.op_type != "Constant"]
    if not places:
        return False
    node, k, earlier = rng.choice(places)
    node.input[k] = rng.choice([name for name in earlier if name != node.input[k]])
    return True


def without_bias(model: ModelProto, rng: Random) -> bool:
    nodes = [n for n in model.graph.node if n.op_type in ("Conv", "Gemm", "ConvTranspose", "LayerNormalization")]
    nodes = [n for n in nodes if len(n.input) > 2 and n.input[2]]
    if not nodes:
        return False
    del rng.choice(nodes).input[2]
    return True


def clamp_opened(model: ModelProto, rng: Random) -> bool:
    nodes = [n for n in model.graph.node if n.op_type == "Clip" and len(n.input) > 2]
    if not nodes:
        return False
    rng.choice(nodes).input[rng.choice((1, 2))] = ""
    return True


def neighbours_exchanged(model: ModelProto, rng: Random) -> bool:
    """Two operators of one input, one behind the other, in the other order."""
    by_result = {n.output[0]: n for n in model.graph.node}
    pairs = [(by_result[n.input[0]], n) for n in model.graph.node if n.input and n.input[0] in by_result]
    pairs = [(p, q) for p, q in pairs if p.op_type != q.op_type and len(p.input) * len(q.input) == 1]
    if not pairs:
        return False
    first, second = rng.choice(pairs)
    kinds = [(n.op_type, list(n.attribute)) for n in (second, first)]
    for node, (kind, given) in zip((first, second), kinds, strict=True):
        copies = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in given]
        node.op_type = kind
        del node.attribute[:]
        node.attribute.extend(copies)
    return True


NODES: dict[str, Change] = {
    **{name: as_other(table) for name, table in OTHERS.items()},
    "layer dropped": dropped,
    "operands exchanged": operands_exchanged,
    "another source": other_source,
    "no bias": without_bias,
    "no end of a clamp": clamp_opened,
    "neighbours exchanged": neighbours_exchanged,
}
MUTATIONS = {**WEIGHTS, **ATTRIBUTES, **NODES}
FAMILIES = (WEIGHTS, ATTRIBUTES, NODES)


def mutated(model: ModelProto, rng: Random, tries: int = 60) -> tuple[str, ModelProto] | None:
    """(what was changed, the model with it), one of the mutations that apply; None where none was found."""
    for _ in range(tries):
        name = rng.choice(list(rng.choice(FAMILIES)))
        other = ModelProto.FromString(model.SerializeToString())
        if MUTATIONS[name](other, rng):
            del other.graph.value_info[:]
            return name, other
    return None
