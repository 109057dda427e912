"""Converters of ONNX operators that read or write cells at positions (one gather each), and of masks. They refuse what
they do not honour, and raise ShapeError where shapes do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from ....errors import ShapeError, UnsupportedError
from ....graph.builder import Var
from ....op import Value, apply
from ....ops.elementwise import equal, maximum, minimum, select
from ....ops.gather import gather, scatter
from ....ops.integer_rounding import trunc
from ....ops.layout import axis_of, concat, fill, permute, reshape
from ....ops.max_pool import WINNER, put
from ....scalar import Array
from ....window import Window
from ..file import FLOATS, extent, shown, type_name
from .importer import MAX_FOLDED_CELLS, WHOLE
from .node import OnnxNode, operator


def _flat_positions(c: OnnxNode, shape: tuple[int, ...], where: Array) -> tuple[Array, int]:
    """Return row-major positions in the first axes of `shape`, from the last axis of `where`; and how many axes that
    are.

    Refuses (through `c`) positions that are no integers, name too many axes, or lie outside.
    """
    depth = where.shape[-1] if where.ndim else 0
    if where.dtype.kind != "i" or not 1 <= depth <= len(shape):
        c.refuse(f"indices of shape {where.shape} must name 1 to {len(shape)} axes of shape {shape}", None, ShapeError)
    sizes = np.array(shape[:depth], dtype=np.int64)
    if where.size and not ((-sizes <= where).all() and (where < sizes).all()):
        c.refuse(f"indices must lie inside shape {shape}", None, ShapeError)
    steps = np.array([math.prod(shape[a + 1 : depth]) for a in range(depth)], dtype=np.int64)
    return np.asarray((np.where(where < 0, where + sizes, where) * steps).sum(axis=-1)), depth


@operator("GatherND", 11, 12, 13, note="known positions")
def _gather_nd(c: OnnxNode) -> Value:
    """Convert ONNX GatherND: y[p] = x[where[p]] with constant positions `where`, whose last axis addresses the leading
    axes of x: these as one axis, then a gather along it.

    ModelError for a result beyond the budget.
    """
    batch = c.integer("batch_dims", 0) if c.version >= 12 else 0
    shape = c.shape(0)
    flat, depth = _flat_positions(c, shape, _with_batch(c, shape, c.known(1, "indices"), batch))
    c.importer.budget.check(c.title, extent((*flat.shape, *shape[depth:])))
    x = c.value(0)
    rows = (math.prod(shape[:depth]), *shape[depth:])
    if isinstance(x, np.ndarray):
        return c.folded(x.reshape(rows)[flat])
    return gather(reshape(x, rows), flat, axis=0)


def _with_batch(c: OnnxNode, shape: tuple[int, ...], where: Array, batch: int) -> Array:
    """Return the positions `where` with those of the first `batch` axes before them: there each cell reads its own.
    Refuses (through `c`) shapes that do not fit.
    """
    if not 0 <= batch < min(len(shape), max(where.ndim, 1)) or where.shape[:batch] != shape[:batch]:
        c.refuse(f"batch_dims={batch} does not fit data {shape} and indices {where.shape}", None, ShapeError)
    if not batch:
        return where
    lead = np.indices(where.shape[:-1])[:batch]
    return np.concatenate([np.moveaxis(lead, 0, -1), where], axis=-1)


SCATTERED = "known positions, each once; reduction none, or add"


@operator("ScatterND", 11, 13, 16, 18, note=SCATTERED)
def _scatter_nd(c: OnnxNode) -> Value:
    """Convert ONNX ScatterND: updates written into x at constant `indices`, whose last axis addresses the leading axes
    of x, as one axis.

    Refuses `indices` that are computed, and updates whose shape does not fit.
    """
    reduction = c.string("reduction", "none") if c.version >= 16 else "none"
    shape = c.shape(0)
    flat, depth = _flat_positions(c, shape, c.known(1, "indices"))
    if c.shape(2) != (*flat.shape, *shape[depth:]):
        c.refuse(f"updates of shape {c.shape(2)} must have shape {(*flat.shape, *shape[depth:])}", None, ShapeError)
    return _write_rows(c, flat.reshape(-1), (math.prod(shape[:depth]), *shape[depth:]), reduction)


def _write_rows(c: OnnxNode, at: Array, rows: tuple[int, ...], reduction: str) -> Value:
    """Return the data, as `rows`, with updates written to the rows `at`, or added there.

    Written: one gather from both, put behind each other; a row that is written twice has no meaning. Added: one sum,
    which may begin with the data. `reduction` is "none" (written) or "add". Refused: another word in `reduction`, and a
    row that is written twice.
    """
    if reduction not in ("none", "add"):
        c.refuse(f"reduction={shown(reduction)} is not supported; only 'none' or 'add'")
    if reduction == "none" and len(np.unique(at)) != at.size:
        c.refuse("a position that is written twice has no meaning", None, UnsupportedError)
    count, rest = rows[0], rows[1:]
    c.importer.budget.check(c.title, extent((count + at.size, *rest)))
    source = np.arange(count)
    if reduction == "add":
        both = concat([reshape(c.real(0), rows), reshape(c.real(2), (at.size, *rest))], 0)
        return reshape(scatter(both, np.concatenate([source, at]), axis=0, size=count), c.shape(0))
    source[at] = count + np.arange(at.size)
    data, updates = c.value(0), c.value(2)
    if isinstance(data, np.ndarray) and isinstance(updates, np.ndarray):
        known = np.concatenate([data.reshape(rows), updates.reshape(at.size, *rest)])
        return c.folded(known[source].reshape(c.shape(0)))
    both = concat([reshape(c.any_variable(0), rows), reshape(c.any_variable(2), (at.size, *rest))], 0)
    return reshape(gather(both, source, axis=0), c.shape(0))


@operator("Scatter", 9, 11, note="as ScatterElements, which replaced it")
@operator("ScatterElements", 11, 13, 16, 18, note=f"{SCATTERED}; computed positions: see docs/reference/onnx.md")
def _scatter_elements(c: OnnxNode) -> Value:
    """Convert ONNX ScatterElements: updates written or added at positions along one axis.

    Positions that the model computes count from 0 on; written, they must be known to differ: one per line, or those of
    a TopK along that axis. Refused: other positions, shapes that do not fit, and other words than "none" and "add" in
    reduction.
    """
    shape, where = c.shape(0), c.shape(1)
    axis = axis_of(c.title, c.integer("axis", 0), len(shape))
    reduction = c.string("reduction", "none") if c.version >= 16 else "none"
    besides = [(m, n) for a, (m, n) in enumerate(zip(where, shape, strict=False)) if a != axis]
    if c.shape(2) != where or len(where) != len(shape) or any(m > n for m, n in besides):
        text = f"indices {where} and updates {c.shape(2)} must lie in the data {shape} but for axis {axis}"
        c.refuse(text, None, ShapeError)
    known = c.importer.constant_value(c.input_name(1))
    whole = where[:axis] + where[axis + 1 :] == shape[:axis] + shape[axis + 1 :]
    if known is not None and (reduction == "none" or not whole):
        line = _counted_from_start(c, np.asarray(known, np.int64), shape[axis])
        cells = [line if a == axis else i for a, i in enumerate(np.indices(where))]
        return _write_rows(c, np.ravel_multi_index(cells, shape).reshape(-1), (math.prod(shape),), reduction)
    if reduction not in ("none", "add"):
        c.refuse(f"reduction={shown(reduction)} is not supported; only 'none' or 'add'")
    if not whole:
        c.refuse(f"computed indices {where} must have the shape of the data {shape} but for axis {axis}", None)
    if reduction == "none" and not _positions_differ(c, where[axis], axis):
        c.refuse("computed positions may be equal, and what is written twice has no meaning", None, UnsupportedError)
    return _put_updates(c, axis, reduction)


def _positions_differ(c: OnnxNode, count: int, axis: int) -> bool:
    """Return whether the `count` computed positions of input 1 differ along an axis: there is one, or they are of a
    TopK.
    """
    node = c.importer.trace.nodes[c.positions(1).id]
    return count <= 1 or (node.op.name == "top_index" and node.params["axis"] == axis)


def _put_updates(c: OnnxNode, axis: int, reduction: str) -> Value:
    """Write the updates at computed positions along an axis, or add them (`reduction` "add", else "none") at computed
    or known ones.
    """
    shape = c.shape(0)
    order = (*(a for a in range(len(shape)) if a != axis), axis)
    back = tuple(order.index(a) for a in range(len(shape)))
    updates, index = permute(c.real(2), order), _permuted_positions(c, shape[axis], order)
    if reduction == "none":
        taken = put(fill(updates, 1), index, size=(shape[axis],), empty=False)
        values = put(updates, index, size=(shape[axis],), empty=False)
        return select(permute(taken, back), permute(values, back), c.real(0))
    data = c.importer.constant_value(c.input_name(0))
    if data is None or np.any(data):  # one sum, which may begin with the data: no sum of updates is ever stored
        kept = permute(c.real(0), order)
        own = np.broadcast_to(np.arange(shape[axis]), kept.shape)
        updates, index = concat([kept, updates], -1), concat([np.ascontiguousarray(own), index], -1)
    return permute(put(updates, index, size=(shape[axis],), empty=False), back)


def _counted_from_start(c: OnnxNode, where: Array, cells: int) -> Array:
    """Return known positions `where` on an axis of `cells` as numbers from 0 on; negative ones count from the end.
    ShapeError outside.
    """
    if where.size and not -cells <= where.min() <= where.max() < cells:
        c.refuse(f"indices must lie in {-cells}..{cells - 1}", None, ShapeError)
    return np.where(where < 0, where + cells, where)


def _permuted_positions(c: OnnxNode, cells: int, order: tuple[int, ...]) -> Value:
    """Return the positions of input 1, on an axis of `cells`, with their axes in `order`; known ones are checked and
    made non-negative.
    """
    known = c.importer.constant_value(c.input_name(1))
    if known is None:
        return permute(c.positions(1), order)
    return np.ascontiguousarray(np.transpose(_counted_from_start(c, np.asarray(known, np.int64), cells), order))


def plane_indices(c: OnnxNode) -> Value:
    """Convert a Sub that takes plane offsets off MaxPool's Indices: the winner's position in its own plane.

    Integers that are computed are positions, and nothing else is known of how far they may be moved. Refused: all other
    numbers taken off positions.
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

    The cells on and above (upper=1) or below (0) the k-th diagonal of the last two axes; 0 elsewhere. ShapeError for
    fewer than two axes.
    """
    upper, k = c.flag("upper", 1), c.known_number(1, "k") if c.has(1) else 0
    if len(c.shape(0)) < 2:
        c.refuse(f"needs two axes; got shape {c.shape(0)}", None, ShapeError)
    rows, columns = c.shape(0)[-2:]
    mask = ~np.tri(rows, columns, k - 1, dtype=bool) if upper else np.tri(rows, columns, k, dtype=bool)
    x = c.value(0)
    if isinstance(x, np.ndarray):
        return c.folded(np.where(mask, x, 0))
    return select(mask.astype(np.float32), c.number(0), 0)


@operator("OneHot", 9, 11, 28, note="known depth and values; computed positions must lie in -depth..depth-1")
def _one_hot(c: OnnxNode) -> Value:
    """Convert ONNX OneHot: rows of an identity matrix; of floats, which are cut off to integers, comparisons.

    Refused: a depth below 1, and at computed positions values that are no floats.
    """
    depth, (off, on) = int(c.known_number(1, "depth")), _off_and_on(c)
    axis = axis_of("axis", c.integer("axis", -1), len(c.shape(0)) + 1)
    if depth < 1:
        c.refuse(f"depth={depth} must be positive", None, ShapeError)
    c.importer.budget.check(c.title, extent((*c.shape(0), depth)))
    c.result_type = c.elem_type(2)
    where = c.importer.constant_value(c.input_name(0))
    if where is not None and math.prod(c.shape(0)) * depth <= MAX_FOLDED_CELLS:
        whole = np.trunc(where).astype(np.int64)[..., None]
        hot = (whole == np.arange(depth)) | (whole == np.arange(-depth, 0))
        return np.moveaxis(c.folded(np.where(hot, on, off)), -1, axis)
    if c.result_type not in (*FLOATS, *WHOLE):
        c.refuse(f"values of type {type_name(c.result_type)} at computed positions are not supported", None)
    if c.elem_type(0) in FLOATS:
        whole = reshape(trunc(c.real(0)), (*c.shape(0), 1))
        hot = maximum(*(equal(whole, np.arange(n, n + depth).astype(np.float32)) for n in (0, -depth)))
        y = select(hot, float(on), float(off))
    else:
        c.importer.budget.check(c.title, depth * depth)
        y = gather(np.where(np.eye(depth, dtype=bool), on, off), c.positions(0), axis=0)
    rank = len(c.shape(0))
    return permute(y, [*range(axis), rank, *range(axis, rank)])


def _off_and_on(c: OnnxNode) -> tuple[Any, Any]:
    """Return the values off and on of OneHot. ShapeError for other than two."""
    values = c.known(2, "values")
    if values.shape != (2,):
        c.refuse(f"values must be two numbers, off and on; got shape {values.shape}", None, ShapeError)
    return values[0], values[1]


# --- masks --------------------------------------------------------------------------------------------------------


def _register_logic(name: str, versions: tuple[int, ...], fn: Callable[..., Value], fold: Callable[..., Array]) -> None:
    """Register the converter of the logical operator `name`; true is the number 1, and nothing is rounded.

    `fn` converts variables, `fold` computes arrays that are known. `versions` are those of the operator's schema.
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
_register_logic("And", (7,), minimum, np.logical_and)
_register_logic("Or", (7,), maximum, np.logical_or)
_register_logic("Xor", (7,), lambda x, y: equal(equal(x, y), 0), np.logical_xor)


@operator("IsNaN", 9, 13, 20, note="a value that is never NaN gives false; of one that may be NaN nothing is claimed")
def _is_nan(c: OnnxNode) -> Value:
    """Convert ONNX IsNaN: 1 where X is not equal to itself, else 0."""
    x, c.result_type = c.real(0), TensorProto.BOOL
    return equal(equal(x, x), 0)
