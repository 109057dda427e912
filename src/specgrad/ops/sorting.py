"""Top-k cells along an axis, their positions, running sums and products, and medians over windows.

top            values, the largest first
top_index      their positions; of equal cells the first one comes first, or with last=True the last one
median_pool    the lower median of the taps inside the input, 0 for a window with none
median_index   the flat position of the first tap that equals it, -1 for a window with none

argmax, argmin, topk and sort are the first two. NaN counts as larger than every number ([P1]); which of several NaNs
comes first is left open. A NaN inside a window is its median. Forward and reverse mode of median_pool read and write at
median_index, as those of max_pool do at its winner.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from .. import scalar
from ..call_cache import cached_call
from ..errors import ShapeError
from ..op import Case, Op, Value, apply, by_engine, composite, register, run_spec, shape_of
from ..scalar import Array
from ..window import Padding, PerAxis, Shape, Window, int_of, mapped, pooling
from ..window.footprint import BoxRule, others, pooled
from ..window.receptive_field import CELL, ReceptiveField
from . import sample_inputs
from .composites import pad as pad_with
from .elementwise import add, mul, neg
from .gather import take_along
from .layout import axes_of, axis_of, keep_axes, no_cotangent, no_tangent, permute, reshape, slice_
from .max_pool import MAX_POOL, put, take


def _top_shape(name: str, x: Shape, axis: int, k: int) -> Shape:
    """Return the output shape of the operator `name` that keeps k cells of an axis; raise ShapeError if k does not
    fit.
    """
    if not 0 <= axis < len(x):
        raise ShapeError(name, f"axis {axis} does not exist; got shape {x}")
    if not 0 <= k <= x[axis]:
        raise ShapeError(name, f"k={k} must lie in 0..{x[axis]}, the cells of axis {axis}; got shape {x}")
    return (*x[:axis], k, *x[axis + 1 :])


def _sorted_positions(row: Array, largest: bool) -> list[int]:
    """Return positions of the exact numbers `row` from the smallest up, or if `largest` down; raise ScalarError for
    balls that overlap.
    """
    order = sorted(range(len(row)), key=row.__getitem__, reverse=largest)
    for i, j in pairwise(order):
        a, b = row[i], row[j]
        if not (a > b) and not (a <= b):
            scalar.compare("top", lambda p, q: p > q, np.array(a, dtype=object), np.array(b, dtype=object))
    return order


def ranking(x: Array, axis: int, largest: bool) -> Array:
    """Return positions along an axis in sorted order, equal cells by position; NaN is the largest.

    ScalarError for balls that overlap.
    """
    if x.dtype != object:
        keys = (-x, ~np.isnan(x)) if largest else (x, np.isnan(x))
        return np.lexsort(keys, axis=axis)
    lines = np.moveaxis(x, axis, -1)
    rows = [_sorted_positions(row, largest) for row in lines.reshape(-1, x.shape[axis])] if x.size else []
    return np.moveaxis(np.array(rows, dtype=np.int64).reshape(lines.shape), -1, axis)


def _top_index_spec(x: Array, *, axis: int, k: int, largest: bool, last: bool) -> Array:
    """Return top_index by its definition, over any scalar type: positions of the k largest (or smallest) cells.

    Of equal ones the first, or the last.
    """
    order = ranking(np.flip(x, axis) if last else x, axis, largest)
    order = x.shape[axis] - 1 - order if last else order
    return np.asarray(np.take(order, np.arange(k), axis=axis), dtype=np.int64)


def _top_spec(x: Array, *, axis: int, k: int, largest: bool) -> Array:
    """Return top: the k largest (or smallest) cells of x along `axis`, in order, over any scalar type."""
    return np.take_along_axis(x, _top_index_spec(x, axis=axis, k=k, largest=largest, last=False), axis=axis)


def _case(rng: Random) -> Case:
    """Return random arguments and parameters of top, drawn by `rng`, for the law tests."""
    x = sample_inputs.numbers(rng, sample_inputs.lead(rng) + sample_inputs.sizes(rng, rng.randint(1, 2)))
    axis = rng.randrange(x.ndim)
    return (x,), {"axis": axis, "k": rng.randint(0, x.shape[axis]), "largest": rng.random() < 0.5}


def _index_case(rng: Random) -> Case:
    """Return random arguments and parameters of top_index, drawn by `rng`, for the law tests."""
    args, params = _case(rng)
    return args, {**params, "last": rng.random() < 0.5}


def _others(x: Shape, *, axis: int, **_: Any) -> tuple[ReceptiveField | None, ...]:
    """Return the receptive field, per axis of x, of an operator that reads all of `axis`, and one cell of the
    others.
    """
    return tuple(None if a == axis else CELL for a in range(len(x)))


def _others_footprint(x: Shape, *, axis: int, **params: Any) -> BoxRule:
    """Return the footprint rule of an operator that reads all of `axis`, and one cell of the others."""
    return others(x, axis=axis, out=params.get("k", x[axis]), **params)


def _top_jvp(y: Value, args: Any, dargs: Any, *, axis: int, k: int, largest: bool) -> Value:
    """Return the tangent of top from `dargs`: that of x at the positions of its k largest (or smallest) cells."""
    return take_along(dargs[0], apply(TOP_INDEX, args[0], axis=axis, k=k, largest=largest, last=False), axis=axis)


def _top_vjp(gy: Value, y: Value, args: Any, *, axis: int, k: int, largest: bool) -> tuple[Value]:
    """Return the cotangent of top's only argument, in `args`: gy put back at the positions of the k largest (or
    smallest) cells along the axis.
    """
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

    The derivative follows the positions. PyTorch leaves the order of equal cells open; ONNX and we do not.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    k : int
        How many.
    axis : int, default -1
        The axis; negative ones count from the end.
    largest : bool, default True
        False: the smallest, the smallest first.

    Returns
    -------
    array
        The k values, along the axis.
    array of int64
        Where they stand, along the axis.

    Raises
    ------
    ShapeError
        For an axis that does not exist or has fewer cells.
    ParameterError
        For a k that is no int ([P5]).

    Examples
    --------
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
    """Return the position of the largest cell along an axis: the first of equal ones; NaN comes first ([P1]).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    axis : int, default -1
        The axis; negative ones count from the end.
    keepdims : bool, default False
        Leave the axis in place, with one cell.
    last : bool, default False
        Of equal cells take the last one.

    Returns
    -------
    array of int64
        Positions along the axis, from 0 on.

    Raises
    ------
    ShapeError
        For an axis that does not exist or has no cells ([W1]).

    Examples
    --------
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
    """Return the position of the smallest cell along an axis: the first of equal ones; NaN comes first ([P1]).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    axis : int, default -1
        The axis; negative ones count from the end.
    keepdims : bool, default False
        Leave the axis in place, with one cell.
    last : bool, default False
        Of equal cells take the last one.

    Returns
    -------
    array of int64
        Positions along the axis, from 0 on.

    Raises
    ------
    ShapeError
        For an axis that does not exist or has no cells ([W1]).

    Examples
    --------
    >>> argmin(np.array([1.0, 0.0, 0.0]))
    array(1)
    """
    if not last and (y := by_engine("argmin", x, axis=axis, keepdims=keepdims)) is not None:
        return y
    return argmax(neg(x), axis, keepdims=keepdims, last=last)


# --- running sums -------------------------------------------------------------------------------------------------


def _running_shape(name: str) -> Callable[..., Shape]:
    """Return the shape rule of the running sum or product `name`, which has the shape of x; ShapeError for an axis
    outside.
    """

    def shape(x: Shape, *, axis: int, exclusive: bool, reverse: bool) -> Shape:
        if not 0 <= axis < len(x):
            raise ShapeError(name, f"axis {axis} does not exist; got shape {x}")
        return x

    return shape


def running_sum(
    x: Any, axis: int, exclusive: bool, reverse: bool, add: Callable[..., Any], flip: Any, join: Any, zeros: Any
) -> Any:
    """Return a running sum of x along an axis, without the cell itself if `exclusive`, from the end if `reverse`.

    `add`, `flip`, `join` and `zeros` are the engine's cumulative sum, flip, concatenate and zeros of a shape. Nothing
    is subtracted. With a cumulative product and ones it is a running product.
    """
    x = flip(x, axis) if reverse else x
    if exclusive and x.shape[axis]:
        kept = (*[slice(None)] * axis, slice(0, x.shape[axis] - 1))
        first = (*[slice(None)] * axis, slice(0, 1))
        x = join([zeros(x[first]), x[kept]], axis)
    y = add(x, axis)
    return flip(y, axis) if reverse else y


def _cumsum_spec(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Return cumsum: the running sum of x along `axis`, without the cell itself if `exclusive`, from the end if
    `reverse`, over any scalar type.
    """
    zeros: Callable[[Array], Array] = lambda part: scalar.zeros(part.shape, x)
    add: Callable[[Array, int], Array] = lambda v, a: np.cumsum(v, axis=a, dtype=v.dtype)
    return np.asarray(running_sum(x, axis, exclusive, reverse, add, np.flip, np.concatenate, zeros))


def _cumsum_case(rng: Random) -> Case:
    """Return random arguments and parameters of cumsum, drawn by `rng`, for the law tests."""
    x = sample_inputs.numbers(rng, sample_inputs.lead(rng) + sample_inputs.sizes(rng, rng.randint(1, 2)))
    return (x,), {
        "axis": rng.randrange(x.ndim),
        "exclusive": rng.random() < 0.5,
        "reverse": rng.random() < 0.5,
    }


CUMSUM: Op = register(
    Op(
        name="cumsum",
        shape=_running_shape("cumsum"),
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
    """The running sum along an axis: y[p] = sum of x[q] over q <= p.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    axis : int
        The axis; negative ones count from the end.
    exclusive : bool, default False
        Leave x[p] itself out: y[p] is over q < p.
    reverse : bool, default False
        From the other end.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ShapeError
        For an axis that does not exist.

    Examples
    --------
    >>> cumsum(np.array([1.0, 2.0, 3.0]), 0)
    array([1., 3., 6.])
    """
    at = axis_of("cumsum", axis, len(shape_of(x)))
    return apply(CUMSUM, x, axis=at, exclusive=bool(exclusive), reverse=bool(reverse))


# --- running products ---------------------------------------------------------------------------------------------


def _cumprod_spec(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Return cumprod: products of the cells of x so far along `axis`, from the end if `reverse`, without its own cell
    if `exclusive`.
    """
    ones: Callable[[Array], Array] = lambda part: scalar.zeros(part.shape, x) + scalar.literal(1, x)
    multiply: Callable[[Array, int], Array] = lambda v, a: np.cumprod(v, axis=a, dtype=v.dtype)
    return np.asarray(running_sum(x, axis, exclusive, reverse, multiply, np.flip, np.concatenate, ones))


def _shifted(x: Value, axis: int, by: int, number: int) -> Value:
    """Return every cell `by` positions further along an axis (back, if negative), `number` where none comes from."""
    n = shape_of(x)[axis]
    kept = slice_(x, *[None] * axis, slice(max(0, -by), max(0, n - max(0, by))))
    widths = [(0, 0)] * axis + [(min(n, max(0, by)), min(n, max(0, -by)))] + [(0, 0)] * (len(shape_of(x)) - axis - 1)
    return pad_with(kept, widths, value=number)


def _recurrence(a: Value, b: Value, axis: int, reverse: bool) -> Value:
    """Return s[p] = a[p]*s[p-1] + b[p] along an axis, s[-1] = 0, from the end if `reverse`, in log2(n) steps."""
    step = 1
    while step < shape_of(a)[axis]:
        by = -step if reverse else step
        b = add(mul(a, _shifted(b, axis, by, 0)), b)
        a = mul(a, _shifted(a, axis, by, 1))
        step *= 2
    return b


def _cumprod_jvp(y: Value, args: Any, dargs: Any, *, axis: int, exclusive: bool, reverse: bool) -> Value:
    """Return the tangent of cumprod from `dargs`, that of x: y'[p] = x[p]*y'[p-1] + x'[p]*y[p-1]; nothing is divided.

    `exclusive` and `reverse` are its parameters.
    """
    (x,), (dx,) = args, dargs
    by = -1 if reverse else 1
    before = apply(CUMPROD, x, axis=axis, exclusive=True, reverse=reverse)
    dy = _recurrence(x, mul(dx, before), axis, reverse)
    return _shifted(dy, axis, by, 0) if exclusive else dy


def _cumprod_vjp(gy: Value, y: Value, args: Any, *, axis: int, exclusive: bool, reverse: bool) -> tuple[Value]:
    """Return the cotangent of cumprod's x, in `args`: the product of the cells before, times s[p] = gy[p] +
    x[p+1]*s[p+1], where `gy` is that of the output.

    `exclusive` and `reverse` are its parameters.
    """
    (x,) = args
    by = -1 if reverse else 1
    before = apply(CUMPROD, x, axis=axis, exclusive=True, reverse=reverse)
    gy = _shifted(gy, axis, -by, 0) if exclusive else gy
    return (mul(before, _recurrence(_shifted(x, axis, -by, 1), gy, axis, not reverse)),)


CUMPROD: Op = register(
    Op(
        name="cumprod",
        shape=_running_shape("cumprod"),
        spec=_cumprod_spec,
        jvp=_cumprod_jvp,
        vjp=_cumprod_vjp,
        cases=_cumsum_case,
        receptive_field=_others,
        footprint=_others_footprint,
    )
)


@cached_call
def cumprod(x: Value, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Value:
    """The running product along an axis: y[p] = product of x[q] over q <= p.

    The derivative divides by nothing, so that it holds at zeros. torch.cumprod, numpy.cumprod, ONNX CumProd.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    axis : int
        The axis; negative ones count from the end.
    exclusive : bool, default False
        Leave x[p] itself out: y[p] is over q < p.
    reverse : bool, default False
        From the other end.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ShapeError
        For an axis that does not exist.

    Examples
    --------
    >>> cumprod(np.array([2.0, 0.0, 3.0]), 0, reverse=True)
    array([0., 0., 3.])
    """
    at = axis_of("cumprod", axis, len(shape_of(x)))
    return apply(CUMPROD, x, axis=at, exclusive=bool(exclusive), reverse=bool(reverse))


@composite
def prod(x: Value, axes: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Value:
    """The product over axes.

    It is the last cell of a running product in row-major order.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    axes : int or sequence of int, optional
        Axes that are reduced, from 0 or, negative, from the end; all if not given.
    keepdims : bool, default False
        Leave the reduced axes in place, with one cell each.

    Returns
    -------
    array
        Without the axes, or with one cell in each; 1 over no cells.

    Raises
    ------
    ShapeError
        For axes that do not exist, or are named twice.

    Examples
    --------
    >>> prod(np.array([[1.0, 2.0], [3.0, 4.0]]), 1)
    array([ 2., 12.])
    """
    shape = shape_of(x)
    gone = axes_of("prod", axes, len(shape))
    kept = [a for a in range(len(shape)) if a not in gone]
    rows, cells = [shape[a] for a in kept], math.prod(shape[a] for a in gone)
    if not gone:
        return x
    flat = reshape(permute(x, [*kept, *gone]), (*rows, cells))
    flat = flat if cells else pad_with(flat, [*[(0, 0)] * len(rows), (0, 1)], value=1)
    y = reshape(slice_(cumprod(flat, -1), *[None] * len(rows), slice(max(cells, 1) - 1, None)), rows)
    return keep_axes(y, shape, gone) if keepdims else y


# --- medians over windows -------------------------------------------------------------------------------------------


def tap_cells(window: Window) -> tuple[Array, Array]:
    """Return the flat positions that the taps of every output read, (taps, *out), -1 outside; and the median's rank."""
    position = np.arange(math.prod(window.size)).reshape(window.size)
    taps = list(window.taps())
    cells = np.full((max(1, len(taps)), *window.out), -1)
    for row, tap in zip(cells, taps, strict=False):
        tap.write_outputs(row, tap.read_inputs(position))
    return cells, np.maximum(0, (cells >= 0).sum(axis=0) - 1) // 2


def _taps(x: Array, window: Window, cells: Array) -> tuple[Array, Array]:
    """Return the values of all taps, (taps, *lead, *out), and the maximum of every window, which padded taps have.

    It is at the end of every order, so that ranks below the number of taps inside are those of the taps inside. `cells`
    (taps, *out) are the flat positions that taps read, -1 for padding.
    """
    lead = x.shape[: x.ndim - window.rank]
    most = run_spec(MAX_POOL, [x], {"window": window})
    if not x.size:
        return np.broadcast_to(most, (len(cells), *most.shape)), most
    values = np.take(x.reshape((*lead, -1)), np.maximum(cells, 0), axis=-1)
    return np.where(_beside(cells, lead) >= 0, np.moveaxis(values, len(lead), 0), most), most


def _beside(cells: Array, lead: Shape) -> Array:
    """Return the positions `cells` (taps, *out) with an axis of length 1 for each of `lead`, after that of the taps."""
    return cells.reshape((len(cells), *[1] * len(lead), *cells.shape[1:]))


def _in_order(values: Array) -> Array:
    """Return the values sorted along the first axis; of overlapping balls enclosures of what stands there."""
    if values.dtype != object or not values.size or not hasattr(values.flat[0], "union"):
        return np.sort(values, axis=0)
    rows = list(values)
    for end in range(len(rows) - 1, 0, -1):
        for k in range(end):
            a, b = rows[k], rows[k + 1]
            rows[k], rows[k + 1] = -scalar.maximum(-a, -b), scalar.maximum(a, b)
    return np.stack(rows)


def _median_shape(name: str, x: Shape, window: Window) -> Shape:
    """Return the output shape of the operator `name`: leading axes of x, then window.out."""
    return mapped(name, x, window.size) + window.out


def _median_spec(x: Array, *, window: Window) -> Array:
    """Return median_pool: the lower median of the cells of x in every window, over any scalar type; NaN if one is."""
    cells, rank = tap_cells(window)
    values, most = _taps(x, window, cells)
    y = np.take_along_axis(_in_order(values), np.broadcast_to(rank, (1, *most.shape)), axis=0)[0]
    return y if x.dtype == object else np.where(np.isnan(most), most, y)


def _median_index_spec(x: Array, *, window: Window) -> Array:
    """Return median_index: the flat position of the first cell of every window of x that equals its median, over any
    scalar type.
    """
    cells, _ = tap_cells(window)
    (values, _), y = _taps(x, window, cells), _median_spec(x, window=window)
    equal = scalar.compare("median_index", operator.eq, values, y)
    equal = equal if x.dtype == object else equal | (np.isnan(values) & np.isnan(y))
    where = np.broadcast_to(_beside(cells, y.shape[: y.ndim - window.rank]), values.shape)
    first = np.argmax(equal & (where >= 0), axis=0)
    return np.asarray(np.take_along_axis(where, first[None], axis=0)[0])


def _median_case(rng: Random) -> Case:
    """Return a random array and window, drawn by `rng`, for the law tests."""
    win = sample_inputs.window(rng, ceil=True, any_axis=True)
    return (sample_inputs.numbers(rng, sample_inputs.lead(rng) + win.size, denominators=(1,)),), {"window": win}


def _median_jvp(y: Value, args: Any, dargs: Any, *, window: Window) -> Value:
    """Return the tangent of median_pool's output `y` from `dargs`, the tangents of its arguments `args`."""
    return take(dargs[0], apply(MEDIAN_INDEX, args[0], window=window), rank=window.rank, empty=window.has_empty)


def _median_vjp(gy: Value, y: Value, args: Any, *, window: Window) -> tuple[Value]:
    """Return the cotangent of median_pool's only argument, in `args`, from `gy`, that of its output `y`."""
    return (put(gy, apply(MEDIAN_INDEX, args[0], window=window), size=window.size, empty=window.has_empty),)


MEDIAN_INDEX = register(
    Op(
        name="median_index",
        shape=lambda x, *, window: _median_shape("median_index", x, window),
        spec=_median_index_spec,
        jvp=no_tangent,
        vjp=no_cotangent,
        cases=_median_case,
        exact=True,
        jumps=True,
        kind="index",
        receptive_field=lambda x, *, window: window.reach(),
    )
)
MEDIAN_POOL = register(
    Op(
        name="median_pool",
        shape=lambda x, *, window: _median_shape("median_pool", x, window),
        spec=_median_spec,
        jvp=_median_jvp,
        vjp=_median_vjp,
        cases=_median_case,
        monotone=(0,),
        exact=True,
        receptive_field=lambda x, *, window: window.reach(),
        footprint=pooled,
    )
)


@cached_call
def median_pool(
    x: Value,
    kernel: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil: bool = False,
    rank: int | None = None,
) -> Value:
    """The median over windows of the last axes: y[p] = the lower median of x[s*p + e*t - lo] over the taps inside x.

    Of n taps in order it is the one at (n - 1) // 2, counted from 0; a padded tap is left out, and a window with no tap
    inside gives 0. A median filter has stride=1. Rules: [W1] [W2] [W3] [P1] [P2] [P3]. Tangent and cotangent follow the
    first tap, in row-major order, that equals the median; an empty window has neither. Neither PyTorch, JAX nor ONNX
    has it. torch.median takes the lower of two as well; SciPy's median_filter takes the upper, and pads.

    Parameters
    ----------
    x : array_like, shape (..., *spatial)
        Axes before the spatial ones are mapped.
    kernel : int or tuple of int
        Cells of a window per spatial axis; the spatial axes are the last ones of x. An int needs `rank`.
    stride : int or tuple of int, optional
        Step from a window to the next, per axis. By default windows do not overlap: the step is the kernel.
    padding : int, tuple or str, default 0
        Cells added at the ends of every axis: an int, per axis an int or a (lo, hi) pair, or "valid", "same_upper",
        "same_lower" ([same]).
    dilation : int or tuple of int, default 1
        Step from a tap to the next inside a window, per axis.
    ceil : bool, default False
        Round the number of windows up; the last one may hang over the end ([W3]).
    rank : int, optional
        Number of spatial axes, where the kernel is one int for all of them.

    Returns
    -------
    array, shape (..., *windows)
        One cell per window, out = floor((n + lo + hi - e*(k-1) - 1) / s) + 1 along an axis; e is the dilation.

    Raises
    ------
    ShapeError
        For sizes that are not positive ([W1]), and for a window that does not fit its padded input ([W2]).
    ParameterError
        For an int kernel without `rank`, and for arguments that are no such numbers or words ([P5]).

    Examples
    --------
    >>> median_pool(np.array([3.0, 1.0, 4.0, 1.0, 5.0]), (3,), stride=1, padding=1)
    array([1., 3., 1., 4., 1.])
    """
    win = pooling(
        "median_pool", shape_of(x), kernel, rank=rank, stride=stride, padding=padding, dilation=dilation, ceil=ceil
    )
    return apply(MEDIAN_POOL, x, window=win)
