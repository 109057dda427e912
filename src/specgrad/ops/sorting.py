"""Top-k cells along an axis, their positions, and running sums.

top           values, the largest first
top_index     their positions; of equal cells the first one comes first, or with last=True the last one

argmax, argmin, topk and sort are these two. NaN counts as larger than every number ([P1]); which of several NaNs comes
first is left open.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from .. import scalar
from ..call_cache import cached_call
from ..errors import ShapeError
from ..op import Case, Op, Value, apply, by_engine, register, shape_of
from ..scalar import Array
from ..window import Shape, int_of
from ..window.footprint import BoxRule, others
from ..window.receptive_field import CELL, ReceptiveField
from . import sample_inputs
from .elementwise import neg
from .gather import take_along
from .layout import axis_of, no_cotangent, no_tangent, permute, reshape
from .max_pool import put


def _top_shape(name: str, x: Shape, axis: int, k: int) -> Shape:
    """Return the output shape of an operator that keeps k cells of an axis; raise ShapeError if k does not fit."""
    if not 0 <= axis < len(x):
        raise ShapeError(name, f"axis {axis} does not exist; got shape {x}")
    if not 0 <= k <= x[axis]:
        raise ShapeError(name, f"k={k} must lie in 0..{x[axis]}, the cells of axis {axis}; got shape {x}")
    return (*x[:axis], k, *x[axis + 1 :])


def _sorted_positions(row: Array, largest: bool) -> list[int]:
    """Return positions of exact numbers in order; raise ScalarError for balls that overlap."""
    order = sorted(range(len(row)), key=row.__getitem__, reverse=largest)
    for i, j in pairwise(order):
        a, b = row[i], row[j]
        if not (a > b) and not (a <= b):
            scalar.compare("top", lambda p, q: p > q, np.array(a, dtype=object), np.array(b, dtype=object))
    return order


def ranking(x: Array, axis: int, largest: bool) -> Array:
    """Return positions along an axis in sorted order, equal cells by position; NaN is the largest."""
    if x.dtype != object:
        keys = (-x, ~np.isnan(x)) if largest else (x, np.isnan(x))
        return np.lexsort(keys, axis=axis)
    lines = np.moveaxis(x, axis, -1)
    rows = [_sorted_positions(row, largest) for row in lines.reshape(-1, x.shape[axis])] if x.size else []
    return np.moveaxis(np.array(rows, dtype=np.int64).reshape(lines.shape), -1, axis)


def _top_index_spec(x: Array, *, axis: int, k: int, largest: bool, last: bool) -> Array:
    """Compute top_index by its definition, over any scalar type: positions of the k largest (or smallest) cells.

    Of equal ones the first, or the last.
    """
    order = ranking(np.flip(x, axis) if last else x, axis, largest)
    order = x.shape[axis] - 1 - order if last else order
    return np.asarray(np.take(order, np.arange(k), axis=axis), dtype=np.int64)


def _top_spec(x: Array, *, axis: int, k: int, largest: bool) -> Array:
    """Compute top by its definition, over any scalar type."""
    return np.take_along_axis(x, _top_index_spec(x, axis=axis, k=k, largest=largest, last=False), axis=axis)


def _case(rng: Random) -> Case:
    """Draw random arguments and parameters of top for the law tests."""
    x = sample_inputs.numbers(rng, sample_inputs.lead(rng) + sample_inputs.sizes(rng, rng.randint(1, 2)))
    axis = rng.randrange(x.ndim)
    return (x,), {"axis": axis, "k": rng.randint(0, x.shape[axis]), "largest": rng.random() < 0.5}


def _index_case(rng: Random) -> Case:
    """Draw random arguments and parameters of top_index for the law tests."""
    args, params = _case(rng)
    return args, {**params, "last": rng.random() < 0.5}


def _others(x: Shape, *, axis: int, **_: Any) -> tuple[ReceptiveField | None, ...]:
    """Return the receptive field of an operator that reads all of `axis`, and one cell of the others."""
    return tuple(None if a == axis else CELL for a in range(len(x)))


def _others_footprint(x: Shape, *, axis: int, **params: Any) -> BoxRule:
    """Return the footprint rule of an operator that reads all of `axis`, and one cell of the others."""
    return others(x, axis=axis, out=params.get("k", x[axis]), **params)


def _top_jvp(y: Value, args: Any, dargs: Any, *, axis: int, k: int, largest: bool) -> Value:
    """Return the tangent of the output of top."""
    return take_along(dargs[0], apply(TOP_INDEX, args[0], axis=axis, k=k, largest=largest, last=False), axis=axis)


def _top_vjp(gy: Value, y: Value, args: Any, *, axis: int, k: int, largest: bool) -> tuple[Value]:
    """Return the cotangent of top's argument: gy put back at its positions along the axis."""
    shape = shape_of(args[0])
    order = [a for a in range(len(shape)) if a != axis] + [axis]
    back = [*range(axis), len(shape) - 1, *range(axis, len(shape) - 1)]
    index = apply(TOP_INDEX, args[0], axis=axis, k=k, largest=largest, last=False)
    return (permute(put(permute(gy, order), permute(index, order), size=(shape[axis],), empty=False), back),)


TOP_INDEX: Op = register(
    Op(
        name="top_index",
        shape=lambda x, *, axis, k, largest, last: _top_shape("top_index", x, axis, k),
        spec=_top_index_spec,
        jvp=no_tangent,
        vjp=no_cotangent,
        cases=_index_case,
        exact=True,
        jumps=True,
        kind="index",
        receptive_field=_others,
        footprint=_others_footprint,
    )
)
TOP: Op = register(
    Op(
        name="top",
        shape=lambda x, *, axis, k, largest: _top_shape("top", x, axis, k),
        spec=_top_spec,
        jvp=_top_jvp,
        vjp=_top_vjp,
        cases=_case,
        monotone=(0,),
        exact=True,
        receptive_field=_others,
        footprint=_others_footprint,
    )
)


@cached_call
def topk(x: Value, k: int, *, axis: int = -1, largest: bool = True) -> tuple[Value, Value]:
    """The k largest cells along an axis, the largest first, and where they stand; of equal ones the first comes first.

    largest=False: the smallest, the smallest first. The derivative follows the positions. PyTorch leaves the order of
    equal cells open; ONNX and we do not.

    >>> topk(np.array([3.0, 1.0, 3.0]), 2)
    (array([3., 3.]), array([0, 2]))
    """
    at, k = axis_of("topk", axis, len(shape_of(x))), int_of("topk", "k", k)
    if (both := by_engine("topk", x, k, axis=at, largest=bool(largest))) is not None:
        values, index = both
        return values, index
    values = apply(TOP, x, axis=at, k=k, largest=bool(largest))
    return values, apply(TOP_INDEX, x, axis=at, k=k, largest=bool(largest), last=False)


@cached_call
def argmax(x: Value, axis: int = -1, *, keepdims: bool = False, last: bool = False) -> Value:
    """Return the position of the largest cell along an axis: the first of equal ones, or the last; NaN first ([P1]).

    >>> argmax(np.array([[1.0, 5.0, 5.0], [2.0, 0.0, 1.0]]))
    array([1, 0])
    """
    if not last and (y := by_engine("argmax", x, axis=axis, keepdims=keepdims)) is not None:
        return y
    shape = shape_of(x)
    at = axis_of("argmax", axis, len(shape))
    if not shape[at]:
        raise ShapeError("argmax", f"no cells on axis {at}; got shape {shape}", rule="W1")
    y = apply(TOP_INDEX, x, axis=at, k=1, largest=True, last=bool(last))
    return y if keepdims else reshape(y, shape[:at] + shape[at + 1 :])


@cached_call
def argmin(x: Value, axis: int = -1, *, keepdims: bool = False, last: bool = False) -> Value:
    """Return the position of the smallest cell along an axis: the first of equal ones, or the last; NaN before all.

    >>> argmin(np.array([1.0, 0.0, 0.0]))
    array(1)
    """
    if not last and (y := by_engine("argmin", x, axis=axis, keepdims=keepdims)) is not None:
        return y
    return argmax(neg(x), axis, keepdims=keepdims, last=last)


# --- running sums -------------------------------------------------------------------------------------------------


def _cumsum_shape(x: Shape, *, axis: int, exclusive: bool, reverse: bool) -> Shape:
    """Return the output shape of cumsum; raise ShapeError for arguments that do not fit."""
    if not 0 <= axis < len(x):
        raise ShapeError("cumsum", f"axis {axis} does not exist; got shape {x}")
    return x


def running_sum(
    x: Any, axis: int, exclusive: bool, reverse: bool, add: Callable[..., Any], flip: Any, join: Any, zeros: Any
) -> Any:
    """Return a running sum by an engine's functions, from either end, with or without the cell itself.

    Nothing is subtracted.
    """
    x = flip(x, axis) if reverse else x
    if exclusive and x.shape[axis]:
        kept = (*[slice(None)] * axis, slice(0, x.shape[axis] - 1))
        first = (*[slice(None)] * axis, slice(0, 1))
        x = join([zeros(x[first]), x[kept]], axis)
    y = add(x, axis)
    return flip(y, axis) if reverse else y


def _cumsum_spec(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Compute cumsum by its definition, over any scalar type."""
    zeros: Callable[[Array], Array] = lambda part: scalar.zeros(part.shape, x)
    add: Callable[[Array, int], Array] = lambda v, a: np.cumsum(v, axis=a, dtype=v.dtype)
    return np.asarray(running_sum(x, axis, exclusive, reverse, add, np.flip, np.concatenate, zeros))


def _cumsum_case(rng: Random) -> Case:
    """Draw random arguments and parameters of cumsum for the law tests."""
    x = sample_inputs.numbers(rng, sample_inputs.lead(rng) + sample_inputs.sizes(rng, rng.randint(1, 2)))
    return (x,), {
        "axis": rng.randrange(x.ndim),
        "exclusive": rng.random() < 0.5,
        "reverse": rng.random() < 0.5,
    }


CUMSUM: Op = register(
    Op(
        name="cumsum",
        shape=_cumsum_shape,
        spec=_cumsum_spec,
        vjp=lambda gy, y, args, *, axis, exclusive, reverse: (
            apply(CUMSUM, gy, axis=axis, exclusive=exclusive, reverse=not reverse),
        ),
        cases=_cumsum_case,
        linear="all",
        monotone=(0,),
        roundings=lambda x, *, axis, exclusive, reverse: max(0, x[axis] - 1),
        receptive_field=_others,
        footprint=_others_footprint,
    )
)


@cached_call
def cumsum(x: Value, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Value:
    """y[p] = sum of x[q] over q <= p along an axis; exclusive: q < p; reverse: from the other end.

    >>> cumsum(np.array([1.0, 2.0, 3.0]), 0)
    array([1., 3., 6.])
    """
    at = axis_of("cumsum", axis, len(shape_of(x)))
    return apply(CUMSUM, x, axis=at, exclusive=bool(exclusive), reverse=bool(reverse))
