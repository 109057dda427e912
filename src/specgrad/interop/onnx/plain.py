"""A plain ONNX file of the same meaning: functions inlined, nodes in order, inputs fixed where a value is given.

The package onnx inlines (`onnx.inliner`); here the nodes that it would write are counted before it writes them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

from ...errors import ParameterError
from .file import DTYPES, MAX_NODES, ModelError, declared_size, one_line, shown, type_name
from .read.importer import in_order, needed_before, subgraphs

SORTED = "the file's nodes are not in order; they were sorted"


def plain_model(
    model: onnx.ModelProto, fixed: Mapping[str, Any] | None = None
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Return the model with functions inlined, nodes in order and inputs fixed; and a note for each that was done.

    ParameterError for a fixed input that there is not, ModelError for functions that call each other in a circle.
    """
    notes = []
    if fixed:
        model = with_fixed_inputs(model, fixed)
    if len(model.functions):
        model = _inline_functions(model)
        notes.append("functions of the file were inlined by onnx")
    order = sorted_nodes(model.graph.node)
    if order is not None:
        ordered = onnx.ModelProto()
        ordered.CopyFrom(model)
        ordered.graph.ClearField("node")
        ordered.graph.node.extend(order)
        model = ordered
        notes.append(SORTED)
    return model, tuple(notes)


# --- order ------------------------------------------------------------------------------------------------------------


def sorted_nodes(nodes: Sequence[NodeProto]) -> list[NodeProto] | None:
    """Return the nodes with each behind those that it reads, else in their order; None if they are so already.

    Those of a cycle are left as they are, behind the others.
    """
    before = needed_before(nodes)
    if in_order(before):
        return None
    readers: dict[int, list[int]] = {}
    for i, needed in enumerate(before):
        for j in needed:
            readers.setdefault(j, []).append(i)
    left = [len(needed) for needed in before]
    ready, order = [i for i, count in enumerate(left) if not count], []
    while ready:
        order.append(heapq.heappop(ready))
        for i in readers.get(order[-1], ()):
            left[i] -= 1
            if not left[i]:
                heapq.heappush(ready, i)
    order += [i for i, count in enumerate(left) if count]
    return [nodes[i] for i in order]


# --- functions --------------------------------------------------------------------------------------------------------


def _inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without functions; ModelError if they call each other in a circle, or grow too large."""
    import onnx.inliner

    bodies = {(f.domain, f.name, f.overload): f for f in model.functions}
    if len(bodies) != len(model.functions):
        raise ModelError("a function is defined twice")
    for domain, name, _ in bodies:
        if onnx.defs.has(name, "" if domain == "ai.onnx" else domain) or domain.startswith("com.microsoft"):
            text = f"function {shown(name)} has the name of an operator: which of the two is meant, runtimes decide"
            raise ModelError(text, rule="P5")
    sizes: dict[tuple[str, str, str], int | None] = {}

    def size_of(nodes: Sequence[NodeProto]) -> int:
        count = 0
        for node in nodes:
            called = (node.domain, node.op_type, node.overload)
            count += size_of_function(called) if called in bodies else 1
            count += sum(size_of(inner.node) for inner in subgraphs(node))
            if count > MAX_NODES:
                raise ModelError(f"with its functions inlined the graph has more than {MAX_NODES} nodes")
        return count

    def size_of_function(called: tuple[str, str, str]) -> int:
        if called not in sizes:
            sizes[called] = None
            sizes[called] = size_of(bodies[called].node)
        known = sizes[called]
        if known is None:
            raise ModelError(f"function {shown(called[1])} calls itself")
        return known

    size_of(model.graph.node)
    try:
        whole = onnx.inliner.inline_local_functions(_with_written_defaults(model))
    except Exception as error:  # what it raises is not documented
        raise ModelError(f"onnx does not inline the functions of the model: {one_line(str(error))}") from error
    if len(whole.functions):
        name = shown(whole.functions[0].name)
        raise ModelError(f"onnx does not inline function {name}: its opset is not the model's", rule="P5")
    return whole


def write_defaults(call: NodeProto, defaults: Iterable[onnx.AttributeProto]) -> None:
    """Write into a call of a function those attributes that it leaves to their `defaults`; the package onnx forgets
    them.
    """
    written = {a.name for a in call.attribute}
    call.attribute.extend(a for a in defaults if a.name not in written)


def _with_written_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with defaults of functions' attributes written into all calls."""
    defaults = {(f.domain, f.name, f.overload): list(f.attribute_proto) for f in model.functions}
    if not any(defaults.values()):
        return model
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    todo = [whole.graph.node, *(f.node for f in whole.functions)]
    while todo:
        for node in todo.pop():
            write_defaults(node, defaults.get((node.domain, node.op_type, node.overload), ()))
            todo += [inner.node for inner in subgraphs(node)]
    return whole


# --- inputs at a value ------------------------------------------------------------------------------------------------


def with_fixed_inputs(model: onnx.ModelProto, values: Mapping[str, Any]) -> onnx.ModelProto:
    """Return the model with these inputs as constants, in their declared types.

    ParameterError if there is no such input, or if its declaration does not hold the value.
    """
    initial = {t.name for t in model.graph.initializer}
    inputs = {i.name: i for i in model.graph.input if i.name not in initial}
    arrays = {name: _declared_array(name, inputs, value) for name, value in values.items()}
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    fixed.graph.ClearField("input")
    fixed.graph.input.extend(i for i in model.graph.input if i.name not in arrays)
    fixed.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in arrays.items())
    return fixed


def _declared_array(name: str, inputs: Mapping[str, onnx.ValueInfoProto], value: Any) -> Any:
    """Return a value as an array of the type and shape that input `name` declares; ParameterError if it changes."""
    if name not in inputs:
        raise ParameterError("fix", f"there is no input {name!r:.80}; the model takes {', '.join(inputs)}")
    kind = inputs[name].type.tensor_type
    dtype = DTYPES.get(kind.elem_type)
    given = np.asarray(value)
    if dtype is None or kind.elem_type == onnx.TensorProto.BFLOAT16 or given.dtype.kind not in "fiub":
        raise ParameterError(
            "fix", f"input {name} of type {type_name(kind.elem_type)} cannot be fixed at {value!r:.80}"
        )
    dims = [declared_size(d) for d in kind.shape.dim] if kind.HasField("shape") else None
    if dims is not None and given.shape == () and all(n == 1 for n in dims):
        given = given.reshape([1] * len(dims))
    if dims is not None and (
        len(dims) != given.ndim or any(d not in (None, n) for d, n in zip(dims, given.shape, strict=True))
    ):
        raise ParameterError("fix", f"input {name} is declared as {tuple(dims)}; its value has shape {given.shape}")
    with np.errstate(all="ignore"):
        held = given.astype(dtype)
    if not np.array_equal(held.astype(object), given.astype(object)):
        raise ParameterError("fix", f"input {name} of type {dtype} does not hold {value!r:.80}")
    return held
