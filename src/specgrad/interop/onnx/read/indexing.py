"""Converters of ONNX operators that read or write cells at positions (one gather each), and of masks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from ....errors import ShapeError, UnsupportedError
from ....graph.builder import Var
from ....op import Value, apply
from ....ops.elementwise import equal, maximum, mul, select
from ....ops.gather import gather
from ....ops.layout import axis_of, concat, permute, reshape
from ....ops.max_pool import WINNER, put
from ....scalar import Array
from ....window import Window
from ..file import extent
from .importer import MAX_FOLDED_CELLS
from .node import OnnxNode, operator


def _flat_positions(c: OnnxNode, shape: tuple[int, ...], where: Array) -> tuple[Array, int]:
    """Return row-major positions in the first axes of `shape`, from the last axis of `where`; and how many axes."""
    depth = where.shape[-1] if where.ndim else 0
    if where.dtype.kind != "i" or not 1 <= depth <= len(shape):
        c.refuse(f"indices of shape {where.shape} must name 1 to {len(shape)} axes of shape {shape}", None, ShapeError)
    sizes = np.array(shape[:depth], dtype=np.int64)
    if where.size and not ((-sizes <= where).all() and (where < sizes).all()):
        c.refuse(f"indices must lie inside shape {shape}", None, ShapeError)
    steps = np.array([math.prod(shape[a + 1 : depth]) for a in range(depth)], dtype=np.int64)
    return np.asarray((np.where(where < 0, where + sizes, where) * steps).sum(axis=-1)), depth


@operator("GatherND", 11, 12, 13, note="known positions; batch_dims=0")
def _gather_nd(c: OnnxNode) -> Value:
    """Convert ONNX GatherND: y[p] = x[where[p]]: the named axes as one, then a gather along it."""
    if c.version >= 12:
        c.require("batch_dims", "int", 0)
    shape = c.shape(0)
    flat, depth = _flat_positions(c, shape, c.known(1, "indices"))
    c.importer.budget.check(c.title, extent((*flat.shape, *shape[depth:])))
    x = c.value(0)
    rows = (math.prod(shape[:depth]), *shape[depth:])
    if isinstance(x, np.ndarray):
        return c.folded(x.reshape(rows)[flat])
    return gather(reshape(x, rows), flat, axis=0)


@operator("ScatterND", 11, 13, 16, 18, note="known positions, each once; reduction=none")
def _scatter_nd(c: OnnxNode) -> Value:
    """Convert ONNX ScatterND.

    The data with other cells at some positions: one gather from both, put behind each other.
    """
    if c.version >= 16:
        c.require("reduction", "string", "none")
    shape = c.shape(0)
    flat, depth = _flat_positions(c, shape, c.known(1, "indices"))
    if c.shape(2) != (*flat.shape, *shape[depth:]):
        c.refuse(f"updates of shape {c.shape(2)} must have shape {(*flat.shape, *shape[depth:])}", None, ShapeError)
    if len(np.unique(flat)) != flat.size:
        c.refuse("a position that is written twice has no meaning", None, UnsupportedError)
    rows, rest = math.prod(shape[:depth]), shape[depth:]
    c.importer.budget.check(c.title, extent((rows + flat.size, *rest)))
    source = np.arange(rows)
    source[flat.reshape(-1)] = rows + np.arange(flat.size)
    data, updates = c.value(0), c.value(2)
    if isinstance(data, np.ndarray) and isinstance(updates, np.ndarray):
        both = np.concatenate([data.reshape(rows, *rest), updates.reshape(flat.size, *rest)])
        return c.folded(both[source].reshape(shape))
    both = concat([reshape(c.any_variable(0), (rows, *rest)), reshape(c.any_variable(2), (flat.size, *rest))], 0)
    return reshape(gather(both, source, axis=0), shape)


@operator("ScatterElements", 11, 13, 16, 18, note="reduction=add; along other axes indices as long as the data")
def _scatter_elements(c: OnnxNode) -> Value:
    """Convert ONNX ScatterElements.

    The data, and the sum of the updates at each position along one axis; computed positions count from 0 on.
    """
    axis = axis_of(c.title, c.integer("axis", 0), len(c.shape(0)))
    if (c.string("reduction", "none") if c.version >= 16 else "none") != "add":
        c.refuse("only reduction='add' is supported: what is written twice has no meaning", None, UnsupportedError)
    shape, where = c.shape(0), c.shape(1)
    if c.shape(2) != where or where[:axis] != shape[:axis] or where[axis + 1 :] != shape[axis + 1 :]:
        text = f"indices {where} and updates {c.shape(2)} must have the shape of the data {shape} but for axis {axis}"
        c.refuse(text, None, UnsupportedError)
    order = (*(a for a in range(len(shape)) if a != axis), axis)
    back = tuple(order.index(a) for a in range(len(shape)))
    updates, index = permute(c.real(2), order), _permuted_positions(c, shape[axis], order)
    data = c.importer.constant_value(c.input_name(0))
    if data is None or np.any(data):  # one sum, which may begin with the data: no sum of updates is ever stored
        kept = permute(c.real(0), order)
        own = np.broadcast_to(np.arange(shape[axis]), kept.shape)
        updates, index = concat([kept, updates], -1), concat([np.ascontiguousarray(own), index], -1)
    return permute(put(updates, index, size=(shape[axis],), empty=False), back)


def _permuted_positions(c: OnnxNode, cells: int, order: tuple[int, ...]) -> Value:
    """Return the positions of input 1 with axes permuted; known ones are checked and made non-negative."""
    known = c.importer.constant_value(c.input_name(1))
    if known is None:
        return permute(c.positions(1), order)
    where = np.asarray(known, np.int64)
    if where.size and not -cells <= where.min() <= where.max() < cells:
        c.refuse(f"indices must lie in {-cells}..{cells - 1}", None, ShapeError)
    return np.ascontiguousarray(np.transpose(np.where(where < 0, where + cells, where), order))


def plane_indices(c: OnnxNode) -> Value:
    """Convert a Sub that takes plane offsets off MaxPool's Indices: the winner's position in its own plane.

    Integers that are computed are positions, and nothing else is known of how far they may be moved.
    """
    var = c.positions(0)
    node, before = c.importer.trace.nodes[var.id], c.known(1, "what is taken off positions")
    shape = var.shape
    if node.op is WINNER and node.params["window"].rank == len(shape) >= 2:
        window = Window(node.params["window"].axes[2:])
        planes = np.arange(math.prod(shape[:2])).reshape(*shape[:2], *(1,) * (len(shape) - 2))
        broadcasts = np.broadcast_shapes(before.shape, shape) == shape
        if broadcasts and np.array_equal(
            np.broadcast_to(before, shape), np.broadcast_to(planes * math.prod(window.size), shape)
        ):
            return apply(WINNER, Var(c.importer.trace, node.operands()[0]), window=window)
    text = "computed positions less numbers are supported only for Indices of MaxPool, plane by plane"
    return c.refuse(text, None, UnsupportedError)


@operator("Trilu", 14, note="a known k")
def _trilu(c: OnnxNode) -> Value:
    """Convert ONNX Trilu.

    The cells on and above (upper=1) or below (0) the k-th diagonal of the last two axes; 0 elsewhere.
    """
    upper, k = c.flag("upper", 1), c.known_number(1, "k") if c.has(1) else 0
    if len(c.shape(0)) < 2:
        c.refuse(f"needs two axes; got shape {c.shape(0)}", None, ShapeError)
    rows, columns = c.shape(0)[-2:]
    mask = ~np.tri(rows, columns, k - 1, dtype=bool) if upper else np.tri(rows, columns, k, dtype=bool)
    x = c.value(0)
    if isinstance(x, np.ndarray):
        return c.folded(np.where(mask, x, 0))
    return select(mask.astype(np.float32), c.real(0), 0)


# --- masks --------------------------------------------------------------------------------------------------------


def _register_logic(name: str, versions: tuple[int, ...], fn: Callable[..., Value], fold: Callable[..., Array]) -> None:
    """Register the converter of the logical operator `name`; true is the number 1.

    `fn` converts variables, `fold` computes arrays that are known.
    """

    def convert(c: OnnxNode) -> Value:
        for i in range(len(c.node.input)):
            if c.elem_type(i) != TensorProto.BOOL:
                c.refuse(f"input {i} must be boolean", None)
        masks = [c.importer.values[c.input_name(i)] for i in range(len(c.node.input))]
        if all(isinstance(m, np.ndarray) and m.size <= MAX_FOLDED_CELLS for m in masks):
            return c.folded(fold(*masks))
        return fn(*(m.astype(np.float32) if isinstance(m, np.ndarray) else m for m in masks))

    operator(name, *versions)(convert)


_register_logic("Not", (1,), lambda x: equal(x, 0), np.logical_not)
_register_logic("And", (7,), mul, np.logical_and)
_register_logic("Or", (7,), maximum, np.logical_or)
