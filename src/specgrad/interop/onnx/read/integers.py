"""Integers that a model computes with: whole numbers of the graph, exact as long as none leaves its type.

A node that computes in int32 or int64 is marked so, and radii hold its results to be unknown from 2**31 on; what boxes
say of numbers would not see them wrap, so `OnnxGraph.integer_layers` names such layers, and certify refuses them.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

from ....op import Value
from ....ops.elementwise import equal
from ....ops.integer_rounding import trunc
from ....ops.quantize import cast
from ..file import DTYPES, FLOATS
from .importer import FORMATS, WHOLE, WIDE, reads
from .node import OnnxNode, depends_on_inputs, kept_in_type


def cast_integers(c: OnnxNode, target: int) -> Value | None:
    """Return a cast to the ONNX type `target`, from or to an integer type or to bool, of a value that the model
    computes; None for other casts.

    To integers numbers lose their fraction; beyond the type's range radii claim nothing.
    """
    source = c.elem_type(0)
    if not c.is_mask(0) or source not in (*FLOATS, TensorProto.BOOL, *WHOLE):
        return None
    if target in WHOLE:
        return _cast_to_whole(c, target)
    if target == TensorProto.BOOL:
        return equal(equal(c.number(0), 0), 0)
    return cast(c.number(0), FORMATS[target]) if target in FLOATS and source in WIDE else None


def _cast_to_whole(c: OnnxNode, target: int) -> Value:
    """Return a computed value cast to the integer type `target`: truncated, if it is no integer, and unknown where the
    type does not hold it.

    The layer is named in `integer_layers` unless its type holds whatever the source's does.
    """
    source = c.elem_type(0)
    if source == TensorProto.BOOL:
        return c.any_variable(0)
    if source in WHOLE:
        value = c.any_variable(0)
        ends, own = np.iinfo(DTYPES[target]), np.iinfo(DTYPES[source])
        if ends.min <= own.min and own.max <= ends.max:
            return value
        if value.kind == "index" and target in WIDE:
            if depends_on_inputs(c, value, kinds=("index",)):  # one that a caller gives may be beyond int32
                c.importer.integer_layers.append(c.name)
            return value
        number = c.number(0)
    else:
        c.importer.integer_layers.append(c.name)
        with c.computing(c.format_of(0)):
            number = trunc(c.real(0))
    return kept_in_type(c, number, target)


# --- inputs -----------------------------------------------------------------------------------------------------------

_MOVES = {"Identity", "Reshape", "Expand", "Unsqueeze", "Squeeze", "Transpose", "Flatten", "Slice", "Tile", "Split"}
_MOVES |= {"Concat", "Gather", "Dropout"}
_COMPUTES = {"Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Sum", "Pow", "MatMul", "Clip", "Abs", "Neg", "Sign"}
_COMPUTES |= {"Relu", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "DequantizeLinear", "Where"}
_OF_FIRST = {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare"}
_OF_FIRST |= {"CumSum", "TopK", "ArgMax", "ArgMin", "Pad"}
"""Operators that compute with their first input alone; others are axes or counts."""


def number_inputs(graph: onnx.GraphProto) -> set[str]:
    """Return the inputs that nodes compute with, compare or convert, and that none takes for positions or a shape.

    Cells that are only moved are followed to where they are read.
    """
    readers: dict[str, list[tuple[NodeProto, int]]] = {}
    for node in graph.node:
        for i, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, i))
        for name in set(reads(node)) - set(node.input):
            readers.setdefault(name, []).append((node, -1))
    ends = {o.name for o in graph.output}
    return {i.name for i in graph.input if _are_read_as_numbers(i.name, readers, ends)}


def _are_read_as_numbers(name: str, readers: dict[str, list[tuple[NodeProto, int]]], ends: set[str]) -> bool:
    """Return whether the cells of the value `name` are read as numbers, and only so; not those of a graph's outputs,
    `ends`.

    `readers` has, by value, the nodes that read it and as which input.
    """
    todo, seen, computed = [name], {name}, False
    while todo:
        at = todo.pop()
        if at in ends:
            return False
        for node, i in readers.get(at, ()):
            moved = _outputs_with_cells(node, i)
            if moved is None:
                return False
            computed = computed or node.op_type in _COMPUTES | _OF_FIRST | {"Cast"}
            todo += [n for n in moved if n not in seen]
            seen |= set(moved)
    return computed


def _outputs_with_cells(node: NodeProto, i: int) -> list[str] | None:
    """Return the outputs that hold the same cells as input i, none where they are computed with; None: other uses."""
    if node.op_type in ("Shape", "Size"):
        return []
    if node.op_type in _MOVES and (i == 0 or (node.op_type == "Concat" and i > 0)):
        return list(node.output)
    if node.op_type == "Cast" and i == 0:
        to = next((a.i for a in node.attribute if a.name == "to"), 0)
        return list(node.output) if to in DTYPES and to in WIDE else []
    return [] if (node.op_type in _COMPUTES and i >= 0) or (node.op_type in _OF_FIRST and i == 0) else None
