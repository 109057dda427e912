"""Integers that a model computes with: whole numbers of the graph, exact as long as none leaves its type.

A node that computes in int32 or int64 is marked so, and radii hold its results to be unknown from 2**31 on; what boxes
say of numbers would not see them wrap, so `OnnxGraph.integer_layers` names such layers, and certify refuses them.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

from ....graph.builder import Var
from ....graph.graph import INPUT
from ....op import Value
from ....ops.elementwise import add, equal
from ....ops.gather import gather
from ....ops.integer_rounding import trunc
from ....ops.quantize import cast
from ..file import DTYPES, FLOATS, type_name
from .importer import FORMATS, WIDE, reads
from .node import OnnxNode

COMPARED = (*WIDE, *(TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16))


def whole_numbers(c: OnnxNode, i: int, types: tuple[int, ...] = WIDE) -> Var:
    """Return input i of an integer type as whole numbers of the graph; other types than `types` are refused.

    A layer whose input is no constant index is added to `integer_layers`.
    """
    if c.elem_type(i) not in types:
        c.refuse(f"input {i} of type {type_name(c.elem_type(i))} is not supported", None)
    var = c.importer.integer_variable(c.input_name(i))
    if var.kind != "index" or _depends_on_inputs(c, var):
        c.importer.integer_layers.append(c.name)
    return _numbers_of_positions(c, i, var) if var.kind == "index" else var


def _depends_on_inputs(c: OnnxNode, var: Var) -> bool:
    """Return whether a value is computed from inputs of the model, not from its constants alone."""
    nodes, todo, seen = c.importer.trace.nodes, [var.id], set()
    while todo:
        i = todo.pop()
        if nodes[i].op is INPUT:
            return True
        if i not in seen:
            seen.add(i)
            todo += nodes[i].operands()
    return False


def _numbers_of_positions(c: OnnxNode, i: int, var: Var) -> Var:
    """Return `var`, input i, which holds computed positions, as numbers: each reads its own number from a row of all of
    them.

    Refused: positions other than those of a top_index, of which it is not known how far they go.
    """
    nodes = c.importer.trace.nodes
    node = nodes[var.id]
    while node.op.kind == "same" and len(node.operands()) == 1:
        node = nodes[node.operands()[0]]
    if node.op.name != "top_index":
        c.refuse(f"input {i} holds positions, of which it is not known how far they go", None)
    cells = nodes[node.operands()[0]].shape[node.params["axis"]]
    numbers: Var = gather(c.importer.trace.constant(np.arange(cells, dtype=np.float64)), var, axis=0)
    return numbers


def cast_integers(c: OnnxNode, target: int) -> Value | None:
    """Return a cast to the ONNX type `target`, from or to an integer type or to bool, of a value that the model
    computes; None for other casts.

    To int32 and int64 numbers lose their fraction; beyond the type's range ONNX says nothing, and radii claim nothing.
    """
    source = c.elem_type(0)
    if not c.is_mask(0) or source not in (*FLOATS, TensorProto.BOOL, *COMPARED):
        return None
    if target in WIDE:
        return _cast_to_wide(c)
    if target == TensorProto.BOOL:
        number = c.real(0) if source in FLOATS else whole_numbers(c, 0, COMPARED)
        return equal(equal(number, 0), 0)
    return cast(whole_numbers(c, 0), FORMATS[target]) if target in FLOATS and source in WIDE else None


def _cast_to_wide(c: OnnxNode) -> Value:
    """Return a computed value cast to int32 or int64; the layer may leave the type, unless it comes from a narrower.

    Such a layer is added to `integer_layers`.
    """
    value, source = c.any_variable(0), c.elem_type(0)
    if value.kind == "index" or (source not in FLOATS and source != TensorProto.INT64):
        return value
    c.importer.integer_layers.append(c.name)
    with c.computing(c.format_of(0)):
        number = trunc(value) if source in FLOATS else value
    with c.computing("int32"):
        return add(number, 0)  # a sum of integers: unknown where it leaves int32


# --- inputs -----------------------------------------------------------------------------------------------------------

_MOVES = {"Identity", "Reshape", "Expand", "Unsqueeze", "Squeeze", "Transpose", "Flatten", "Slice", "Tile", "Split"}
_MOVES |= {"Concat", "Gather", "Dropout"}
_COMPUTES = {"Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Sum", "ReduceSum", "ReduceMax", "ReduceMin"}
_COMPUTES |= {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "DequantizeLinear", "Where"}


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
            computed = computed or node.op_type in _COMPUTES | {"Cast"}
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
    return [] if node.op_type in _COMPUTES and i >= 0 else None
