"""A model that breaks no rule of the profile, and one violation per rule: hand-made, by onnx.helper alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Model = onnx.ModelProto
FLOAT = TensorProto.FLOAT
CONV = {"auto_pad": "NOTSET", "dilations": [1, 1], "group": 1, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
CONV |= {"strides": [1, 1]}
POOL = {"auto_pad": "NOTSET", "ceil_mode": 0, "dilations": [1, 1], "kernel_shape": [2, 2], "pads": [0, 0, 0, 0]}
POOL |= {"storage_order": 0, "strides": [2, 2]}
NORM = {"epsilon": 1e-3, "momentum": 0.5, "training_mode": 0}
AVERAGE = {"auto_pad": "NOTSET", "ceil_mode": 0, "count_include_pad": 0, "dilations": [1], "kernel_shape": [2]}
AVERAGE |= {"pads": [0, 0], "strides": [2]}
KEYS = ("execution_order", "target", "requirements", "training", "environment")


def info(name: str, shape: Any, kind: int = FLOAT) -> onnx.ValueInfoProto:
    """Documented, as S21 asks."""
    made = helper.make_tensor_value_info(name, kind, shape, doc_string=f"what {name} is")
    made.type.denotation = "TENSOR"
    for dim in made.type.tensor_type.shape.dim:
        dim.denotation = "DATA_FEATURE"
    return made


def numbers(name: str, *shape: int, kind: Any = np.float32) -> TensorProto:
    rng = np.random.default_rng(len(name) + sum(shape))
    return numpy_helper.from_array((rng.integers(-8, 9, shape) / 8).astype(kind), name)


def whole(name: str, *values: int) -> TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model(nodes: Any, inputs: Any, outputs: Any, initializers: Any = (), values: Any = (), opset: int = 25) -> Model:
    graph = helper.make_graph(
        list(nodes), "net", list(inputs), list(outputs), list(initializers), value_info=list(values)
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=13)
    helper.set_model_props(made, dict.fromkeys(KEYS, "stated"))
    return made


def base(**conv: Any) -> Model:
    """Conv with bias, Relu, Flatten, MatMul, Add of one shape: no rule has a finding."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", **{**CONV, **conv}),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Flatten", ["r"], ["f"], "flat", axis=1),
        helper.make_node("MatMul", ["f", "m"], ["p"], "product"),
        helper.make_node("Add", ["p", "a"], ["y"], "sum"),
    ]
    weights = [numbers("w", 2, 1, 3, 3), numbers("b", 2), numbers("m", 32, 3), numbers("a", 1, 3)]
    values = [info("c", [1, 2, 4, 4]), info("r", [1, 2, 4, 4]), info("f", [1, 32]), info("p", [1, 3])]
    return model(nodes, [info("x", [1, 1, 4, 4])], [info("y", [1, 3])], weights, values)


def single(op: str, shape: Any, result: Any, *more: TensorProto, kind: int = FLOAT, **attributes: Any) -> Model:
    """One node on x, with constants as its further inputs."""
    node = helper.make_node(op, ["x", *(t.name for t in more)], ["y"], op.lower(), **attributes)
    return model([node], [info("x", shape, kind)], [info("y", result, kind)], more)


def unpadded() -> Model:
    more = [numbers("w", 2, 1, 3, 3), numbers("b", 2)]
    return single("Conv", [1, 1, 4, 4], [1, 2, 2, 2], *more, **{**CONV, "pads": [0, 0, 0, 0]})


def pool(shape: Any = (1, 1, 4, 4), result: Any = (1, 1, 2, 2), **attributes: Any) -> Model:
    return single("MaxPool", shape, result, **{**POOL, **attributes})


def sliced(start: int = 1, end: int = 3, step: int = 1, result: int = 2) -> Model:
    more = [whole("starts", start), whole("ends", end), whole("axes", 0), whole("steps", step)]
    return single("Slice", [4], [result], *more)


def norm(variance: float = 1.0, **attributes: Any) -> Model:
    more = [numbers(n, 2) for n in ("scale", "shift", "mean")]
    more.append(numpy_helper.from_array(np.float32([variance, 1]), "var"))
    return single("BatchNormalization", [1, 2, 4], [1, 2, 4], *more, **{**NORM, **attributes})


def changed(change: Callable[[Model], Any], start: Callable[[], Model] = base) -> Model:
    made = copy.deepcopy(start())
    change(made)
    return made


def without(name: str, node: int = 0, start: Callable[[], Model] = base) -> Model:
    """The model without one attribute of a node."""

    def drop(m: Model) -> None:
        kept = [a for a in m.graph.node[node].attribute if a.name != name]
        del m.graph.node[node].attribute[:]
        m.graph.node[node].attribute.extend(kept)

    return changed(drop, start)


def _batch(m: Model) -> None:
    for value in (*m.graph.input, *m.graph.output, *m.graph.value_info):
        value.type.tensor_type.shape.dim[0].dim_param = "N"


def _relus() -> Model:
    """Two nodes, so that a batch of any size is no broadcast."""
    nodes = [helper.make_node("Relu", ["x"], ["h"], "one"), helper.make_node("Relu", ["h"], ["y"], "two")]
    return model(nodes, [info("x", [2, 3])], [info("y", [2, 3])], values=[info("h", [2, 3])])


def _function(recursive: bool = False, overload: str = "") -> Model:
    body = (
        helper.make_node("F", ["p"], ["q"], domain="my")
        if recursive
        else helper.make_node("Relu", ["p"], ["q"], "relu")
    )
    opsets = [helper.make_opsetid("", 25), helper.make_opsetid("my", 1)]
    function = helper.make_function("my", "F", ["p"], ["q"], [body], opsets, overload=overload)
    node = helper.make_node("F", ["x"], ["y"], "call", domain="my", overload=overload or None)
    made = model([node], [info("x", [2])], [info("y", [2])])
    made.functions.append(function)
    made.opset_import.append(helper.make_opsetid("my", 1))
    return made


def function() -> Model:
    return _function()


def recursion() -> Model:
    return _function(recursive=True)


def _if() -> Model:
    bodies = {
        f"{word}_branch": helper.make_graph(
            [helper.make_node("Relu", ["x"], [word], word)], word, [], [info(word, [2])]
        )
        for word in ("then", "else")
    }
    node = helper.make_node("If", ["c"], ["y"], "if", **bodies)
    return model([node], [info("x", [2]), info("c", [], TensorProto.BOOL)], [info("y", [2])])


def _dropout() -> Model:
    more = [numpy_helper.from_array(np.float32(0.5), "ratio"), numpy_helper.from_array(np.array(True), "training")]
    made = single("Dropout", [2], [2], *more)
    made.graph.node[0].output.append("mask")
    made.graph.output.append(info("mask", [2], TensorProto.BOOL))
    return made


def _nonzero() -> Model:
    made = single("NonZero", [2, 3], ["N"])
    made.graph.output[0].CopyFrom(info("y", [2, "count"], TensorProto.INT64))
    return made


def _duplicate(m: Model) -> None:
    m.graph.node[1].output[0] = "c"
    m.graph.node[2].input[0] = "c"


def _dead(m: Model) -> None:
    m.graph.node.append(helper.make_node("Relu", ["x"], ["dead"], "dead"))
    m.graph.value_info.append(info("dead", [1, 1, 4, 4]))


def _typed_zero(m: Model) -> None:
    m.graph.value_info[1].type.tensor_type.elem_type = 0


def _short(m: Model) -> None:
    m.graph.initializer[0].raw_data = m.graph.initializer[0].raw_data[:-4]


def _sparse(m: Model) -> None:
    values, places = numbers("s", 1), whole("i", 0)
    m.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4]))


def _pow() -> Model:
    return single("Pow", [3], [3], whole("n", 1, 2, 3))


def _subnormal(m: Model) -> None:
    m.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.float32([1e-40, 1]), "b"))


def _grouped(group: int, channels: int) -> Model:
    more = [numbers("w", 4, channels // group, 3, 3), numbers("b", 4)]
    return single("Conv", [1, channels, 4, 4], [1, 4, 4, 4], *more, **{**CONV, "group": group})


def _conv1d() -> Model:
    attributes = {"auto_pad": "NOTSET", "dilations": [1], "group": 1, "kernel_shape": [3], "pads": [1, 1]}
    return single("Conv", [1, 1, 4], [1, 2, 4], numbers("w", 2, 1, 3), numbers("b", 2), **attributes, strides=[1])


def _auto_pad(start: Model) -> Model:
    node = start.graph.node[0]
    kept = [a for a in node.attribute if a.name not in ("auto_pad", "pads")]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("auto_pad", "SAME_UPPER")])
    return start


VIOLATIONS: dict[str, dict[str, Callable[[], Model]]] = {
    "S1": {"a graph without a name": lambda: changed(lambda m: setattr(m.graph, "name", ""))},
    "S2": {
        "neither": lambda: single("AveragePool", [1, 1, 4], [1, 1, 2], **AVERAGE),
        "listed only": lambda: single("Abs", [2], [2]),
        "text only": lambda: single("Acos", [2], [2]),
    },
    "S3": {
        "random": lambda: single("Bernoulli", [2], [2], dtype=1),
        "dropout in training": _dropout,
    },
    "S4": {"training_info": lambda: changed(lambda m: m.training_info.add())},
    "S5": {
        **{name: (lambda name=name: without(name)) for name in CONV if name != "pads"},
        "pads": lambda: without("pads", start=unpadded),
        "Flatten axis": lambda: without("axis", 2),
        "LeakyRelu alpha": lambda: single("LeakyRelu", [2], [2]),
        "Softmax axis": lambda: single("Softmax", [2], [2]),
    },
    "S6": {
        "Slice steps": lambda: changed(lambda m: (m.graph.node[0].input.pop(), m.graph.initializer.pop()), sliced),
        "Clip max": lambda: single("Clip", [2], [2], numpy_helper.from_array(np.float32(0), "least")),
    },
    "S7": {"Conv without bias": lambda: changed(lambda m: (m.graph.node[0].input.pop(), m.graph.initializer.pop(1)))},
    "S8": {"sparse initializer": lambda: changed(_sparse)},
    "S9": {"no type": lambda: changed(_typed_zero)},
    "S10": {
        "no shape": lambda: changed(lambda m: m.graph.value_info[1].type.tensor_type.ClearField("shape")),
        "a name inside": lambda: changed(
            lambda m: setattr(m.graph.value_info[1].type.tensor_type.shape.dim[2], "dim_param", "H")
        ),
    },
    "S11": {"batch": lambda: changed(_batch, _relus)},
    "S12": {"Pow of float and int64": _pow},
    "S13": {
        "Add": lambda: single("Add", [2, 3], [2, 3], numbers("b", 3)),
        "Gemm": lambda: single(
            "Gemm", [2, 3], [2, 4], numbers("b", 3, 4), numbers("c", 4), alpha=1.0, beta=1.0, transA=0, transB=0
        ),
    },
    "S14": {"bfloat16": lambda: single("Relu", [2], [2], kind=TensorProto.BFLOAT16)},
    "S15": {"dead node": lambda: changed(_dead)},
    "S16": {
        "unused input": lambda: changed(lambda m: m.graph.input.append(info("unused", [1]))),
        "unused initializer": lambda: changed(lambda m: m.graph.initializer.append(numbers("unused", 2))),
    },
    "S17": {"overload": lambda: _function(overload="one")},
    "S18": {"If": _if},
    "S19": {
        "old opset": lambda: changed(lambda m: setattr(m.opset_import[0], "version", 22)),
        "another domain": lambda: changed(lambda m: m.opset_import.append(helper.make_opsetid("my", 1))),
    },
    "S20": {"subnormal": lambda: changed(_subnormal)},
    "S21": {"no doc_string": lambda: changed(lambda m: m.graph.input[0].ClearField("doc_string"))},
    "S22": {"no order": lambda: changed(lambda m: m.metadata_props.pop(0))},
    "S23": {
        "no requirements": lambda: changed(lambda m: m.metadata_props.pop(2)),
        "no name": lambda: changed(lambda m: setattr(m.graph.node[1], "name", "")),
        "a name twice": lambda: changed(lambda m: setattr(m.graph.node[1], "name", "conv")),
    },
    "S25": {"NonZero": _nonzero},
    "S26": {"overflow": lambda: single("Mul", [1], [1], numpy_helper.from_array(np.float32([3e38]), "large"))},
    "S27": {
        "Softmax": lambda: single("Softmax", [2, 3], [2, 3], axis=-1),
        "Concat": lambda: single("Concat", [2, 3], [2, 5], numbers("b", 2, 2), axis=-1),
    },
    "S28": {
        "one axis": _conv1d,
        "auto_pad": lambda: _auto_pad(base()),
        "group": lambda: _grouped(2, 4),
        "depthwise": lambda: _grouped(4, 4),
    },
    "S29": {
        "auto_pad": lambda: _auto_pad(pool()),
        "ceil_mode": lambda: pool(ceil_mode=1),
        "storage_order": lambda: pool(storage_order=1),
        "one axis": lambda: single(
            "MaxPool",
            [1, 1, 4],
            [1, 1, 2],
            **{k: v if isinstance(v, int | str) else v[: len(v) // 2] for k, v in POOL.items()},
        ),
        "empty window that passes all guards": lambda: pool(
            (1, 1, 1, 1), (1, 1, 1, 1), dilations=[2, 2], pads=[1, 1, 1, 1], strides=[1, 1]
        ),
        "pads of the kernel": lambda: pool(result=(1, 1, 3, 3), pads=[2, 2, 0, 0]),
        "pads below the dilated kernel": lambda: pool(
            (1, 1, 6, 6), (1, 1, 7, 7), dilations=[4, 4], pads=[3, 3, 2, 2], strides=[1, 1]
        ),
    },
    "S30": {"epsilon": lambda: norm(epsilon=0.0), "variance": lambda: norm(-1.0)},
    "S31": {
        "start": lambda: sliced(4, 4, result=0),
        "end": lambda: sliced(1, 9, result=3),
        "empty": lambda: sliced(2, 1, result=0),
    },
}
START: dict[str, Callable[[], Model]] = {"S29": pool, "S30": norm}
"""What a violation is a violation of, where it is not `base`. These have findings themselves: the texts contradict each
other about MaxPool's Indices (S7), and BatchNormalization has a text and is in no list (S2)."""

COUPLED = {
    ("S3", "dropout in training"): ({"S2"}, "Dropout is in no list"),
    ("S6", "Slice steps"): ({"S7"}, "an input that is left out is no match one to one"),
    ("S6", "Clip max"): ({"S7"}, "an input that is left out is no match one to one"),
    ("S25", "NonZero"): ({"S2", "S10"}, "it is in no list, and no size of its result can be written"),
    ("S30", "variance"): ({"S26"}, "the root of a negative number has no bound"),
    ("S31", "start"): ({"S10"}, "an empty result has a size of 0"),
    ("S31", "empty"): ({"S10"}, "an empty result has a size of 0"),
}
"""Rules that another rule's violation breaks too, with the reason."""
