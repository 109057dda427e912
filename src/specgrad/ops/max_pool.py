"""Maxima over windows.

    winner    the flat position of the first largest tap of every window; -1 for a window with no tap inside
    take      y[p] = x[i[p]], 0 where i[p] = -1          linear in x
    put       its adjoint: cell c collects every gy[p] with i[p] = c
    max_pool  = take(x, winner(x)); the winner is an ordinary value of the graph

Forward and reverse mode follow the same winner. [first] the first largest tap wins, [P1] a NaN wins, [P2] -inf is an
ordinary value.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import reduce
from random import Random
from typing import Any, Literal

import numpy as np

from .. import scalar, window
from ..call_cache import cached_call
from ..errors import ParameterError, ShapeError
from ..op import Case, Op, Value, apply, composite, register, shape_of
from ..scalar import Array
from ..window import Padding, PerAxis, Shape, Window, mapped
from ..window.axis_maps import CELL
from ..window.footprint import BoxRule, linked, pooled, reduced
from . import sample_inputs
from .avg_pool import adaptive_output, spatial_axes
from .elementwise import div, equal, neg, select
from .layout import axes_of, broadcast, keep_axes, no_cotangent, no_tangent, reshape, sum_


def _window_shape(name: str) -> Callable[..., Shape]:
    """Return the shape rule of the operator `name` over windows: leading axes of x, then window.out."""
    return lambda x, *, window: mapped(name, x, window.size) + window.out


def _case(rng: Random) -> Case:
    """Return a random array and window, drawn by `rng`, for the law tests."""
    win = sample_inputs.window(rng, ceil=True, any_axis=True)
    return (sample_inputs.numbers(rng, sample_inputs.lead(rng) + win.size, denominators=(1,)),), {"window": win}


# --- winner -----------------------------------------------------------------------------------------------------


def _beats(v: Array, best: Array) -> Array:
    """Return where v is strictly larger than `best`, or a NaN where that is none ([P1])."""
    larger = scalar.compare("winner", operator.gt, v, best)
    return larger if v.dtype == object else larger | ((v != v) & (best == best))


def _winner_spec(x: Array, *, window: Window) -> Array:
    """Return winner of x: the flat position of the first largest cell of every window, -1 if it is empty.

    Over any scalar type.
    """
    lead = x.shape[: x.ndim - window.rank]
    position = np.arange(math.prod(window.size)).reshape(window.size)
    index = np.full(lead + window.out, -1, dtype=np.int64)
    best = scalar.zeros(lead + window.out, x)
    for tap in window.taps():
        v, so_far, cell = tap.read_inputs(x), tap.read_outputs(best), tap.read_outputs(index)
        wins = (cell < 0) | _beats(v, so_far)
        tap.write_outputs(best, np.where(wins, v, so_far))
        tap.write_outputs(index, np.where(wins, tap.read_inputs(position), cell))
    return index


WINNER = register(
    Op(
        name="winner",
        shape=_window_shape("winner"),
        spec=_winner_spec,
        jvp=no_tangent,
        vjp=no_cotangent,
        cases=_case,
        exact=True,
        jumps=True,
        kind="index",
        receptive_field=lambda x, *, window: window.reach(),
    )
)


# --- take and put -----------------------------------------------------------------------------------------------


def _take_shape(x: Shape, i: Shape, *, rank: int, empty: bool) -> Shape:
    """Return the output shape of take, that of the positions i; raise ShapeError unless x has its leading axes. `empty`
    decides values alone.
    """
    if len(x) < rank or len(i) < rank or x[: len(x) - rank] != i[: len(i) - rank]:
        raise ShapeError("take", f"x and i must have the same leading axes before the last {rank}; got {x} and {i}")
    return i


def _flatten_last(x: Array, rank: int) -> Array:
    """Return x reshaped so that its last `rank` axes are one."""
    return x.reshape((*x.shape[: x.ndim - rank], math.prod(x.shape[x.ndim - rank :])))


def _check_range(name: str, i: Array, cells: int, *, empty: bool = True) -> None:
    """Raise ShapeError in the name of the operator `name` if a position of i lies outside 0..cells-1 (-1 is allowed if
    `empty`).
    """
    low = -1 if empty else 0
    if i.size and not (low <= i.min() and i.max() < cells):
        raise ShapeError(name, f"indices must lie in {low}..{cells - 1}; got {i.min()}..{i.max()}")


def _take_spec(x: Array, i: Array, *, rank: int, empty: bool) -> Array:
    """Return y of i's shape: the cells of x at the flat positions i of its last `rank` axes, over any scalar type.

    i has the leading axes of x, then `rank` axes of any sizes. With `empty` a position -1 gives 0. ShapeError if
    another position lies outside x.
    """
    flat, where = _flatten_last(x, rank), _flatten_last(i, rank)
    _check_range("take", i, flat.shape[-1], empty=empty)
    if not flat.shape[-1]:
        return scalar.zeros(i.shape, x)
    y = np.take_along_axis(flat, np.maximum(where, 0), axis=-1)
    return np.where(where < 0, scalar.zeros((), x), y).reshape(i.shape)


def _take_footprint(x: Shape, i: Shape, **params: Any) -> BoxRule:
    """Return the footprint rule of take by an index of shape i: the last `rank` axes of x are read entirely."""
    lead = range(len(x) - params["rank"])
    return linked([CELL] * len(i), [[*lead, *[None] * params["rank"]], range(len(i))], [x, i], params)


def _put_shape(gy: Shape, i: Shape, *, size: Shape, empty: bool) -> Shape:
    """Return the output shape of put: leading axes, then `size`; raise ShapeError unless gy and i have one shape.
    `empty` decides values alone.
    """
    if gy != i or len(gy) < len(size):
        raise ShapeError("put", f"values and indices must have one shape with {len(size)} last axes; got {gy} and {i}")
    return gy[: len(gy) - len(size)] + size


def _put_spec(gy: Array, i: Array, *, size: Shape, empty: bool) -> Array:
    """Return zeros of gy's leading axes and `size`, to which gy is added at the flat positions i, over any scalar type.

    i has gy's shape. With `empty` cells at -1 are dropped. ShapeError if another position lies outside `size`.
    """
    _check_range("put", i, math.prod(size), empty=empty)
    lead = gy.shape[: gy.ndim - len(size)]
    values, where = _flatten_last(gy, len(size)), _flatten_last(i, len(size))
    flat = scalar.zeros((*lead, math.prod(size)), gy)
    kept = np.nonzero(where >= 0)
    np.add.at(flat, (*kept[:-1], where[kept]), values[kept])
    return flat.reshape(lead + size)


def _index_case(rng: Random, transpose: bool) -> Case:
    """Return a random array and winners in it, as arguments of take or (`transpose`) of put, drawn by `rng`."""
    (x,), params = _case(rng)
    win = params["window"]
    i = _winner_spec(x, window=win)
    if transpose:
        return (sample_inputs.numbers(rng, i.shape), i), {"size": win.size, "empty": True}
    return (x, i), {"rank": win.rank, "empty": True}


def _take_jvp(y: Value, args: Any, dargs: Any, **params: Any) -> Value | None:
    """Return the tangent of take(x, i), `args`: the tangent of x, dargs[0], at the positions i; None if it is zero."""
    return None if dargs[0] is None else apply(TAKE, dargs[0], args[1], **params)


def _take_vjp(gy: Value, y: Value, args: Any, *, rank: int, empty: bool) -> tuple[Value, None]:
    """Return the cotangents of take's arguments `args` from `gy`, that of its output: put at the positions; None for
    those.

    -1 is dropped if `empty`.
    """
    shape = shape_of(args[0])
    return put(gy, args[1], size=shape[len(shape) - rank :], empty=empty), None


TAKE: Op = register(
    Op(
        name="take",
        shape=_take_shape,
        spec=_take_spec,
        jvp=_take_jvp,
        vjp=_take_vjp,
        cases=lambda rng: _index_case(rng, transpose=False),
        footprint=_take_footprint,
        linear=((0,),),
        monotone=(0,),
        exact=True,
        index_args=(1,),
        picks=True,
    )
)


def _put_jvp(y: Value, args: Any, dargs: Any, **params: Any) -> Value | None:
    """Return the tangent of put(g, i), `args`: the tangent of g, dargs[0], added at the positions i; None if it is
    zero.
    """
    return None if dargs[0] is None else apply(PUT, dargs[0], args[1], **params)


def _put_vjp(gy: Value, y: Value, args: Any, *, size: Shape, empty: bool) -> tuple[Value, None]:
    """Return the cotangents of put's arguments `args` from `gy`, that of its output of `size`: taken at the positions;
    None for those.

    -1 gives 0 if `empty`.
    """
    return take(gy, args[1], rank=len(size), empty=empty), None


PUT: Op = register(
    Op(
        name="put",
        shape=_put_shape,
        spec=_put_spec,
        jvp=_put_jvp,
        vjp=_put_vjp,
        cases=lambda rng: _index_case(rng, transpose=True),
        linear=((0,),),
        monotone=(0,),
        roundings=lambda gy, i, *, size, empty: math.prod(i[len(i) - len(size) :]),
        index_args=(1,),
        picks=True,
    )
)


@cached_call
def take(x: Value, i: Value, *, rank: int, empty: bool = True) -> Value:
    """Gather at flat indices: y[p] = x[i[p]], the last `rank` axes of x counted flat; 0 where i[p] = -1.

    Parameters
    ----------
    x : array_like, shape (*lead, *size)
        The numbers that are gathered.
    i : array_like of int, shape (*lead, *positions)
        Positions, flat over the last `rank` axes of x; -1 gives 0.
    rank : int
        Number of axes that are counted flat; i has as many, of any sizes.
    empty : bool, default True
        Whether -1 is allowed.

    Returns
    -------
    array, shape (*lead, *positions)
        Of the shape of i.

    Raises
    ------
    ShapeError
        For a position outside x, with empty=False also for -1, and for other leading axes.

    Examples
    --------
    >>> take(np.array([5.0, 6.0, 7.0]), np.array([2, -1]), rank=1)
    array([7., 0.])
    """
    return apply(TAKE, x, i, rank=rank, empty=empty)


@cached_call
def put(gy: Value, i: Value, *, size: Shape, empty: bool = True) -> Value:
    """Scatter-add at flat indices, the adjoint of take: cell c of an array of `size` is the sum of gy[p] over i[p] = c.

    Parameters
    ----------
    gy : array_like, shape (*lead, *positions)
        The numbers that are added.
    i : array_like of int, shape (*lead, *positions)
        Positions, flat over the axes of `size`.
    size : tuple of int
        Sizes of the axes of the result, without the leading ones.
    empty : bool, default True
        Whether -1 is allowed; it is dropped.

    Returns
    -------
    array, shape (*lead, *size)
        Zero in every cell that no position names.

    Raises
    ------
    ShapeError
        For a position outside `size`, with empty=False also for -1.

    Examples
    --------
    >>> put(np.array([1.0, 2.0, 4.0]), np.array([1, 1, -1]), size=(3,))
    array([0., 3., 0.])
    """
    return apply(PUT, gy, i, size=tuple(size), empty=empty)


# --- max_pool ---------------------------------------------------------------------------------------------------


def _max_spec(x: Array, *, window: Window) -> Array:
    """Return the maximum of every window, 0 for an empty one; for balls an enclosure, though no winner is decided."""
    y = scalar.zeros(x.shape[: x.ndim - window.rank] + window.out, x)
    seen = np.zeros(window.out, dtype=bool)
    for tap in window.taps():
        v = tap.read_inputs(x)
        tap.write_outputs(y, np.where(tap.read_outputs(seen), scalar.maximum(tap.read_outputs(y), v), v))
        tap.write_outputs(seen, True)
    return y


def _max_jvp(y: Value, args: Any, dargs: Any, *, window: Window) -> Value:
    """Return the tangent of max_pool of x = args[0]: the tangent of x, dargs[0], at the winner of every window."""
    return take(dargs[0], apply(WINNER, args[0], window=window), rank=window.rank, empty=window.has_empty)


def _max_vjp(gy: Value, y: Value, args: Any, *, window: Window) -> tuple[Value]:
    """Return the cotangent of max_pool's only argument, in `args`: `gy`, the output's, added at the winner of every
    window.
    """
    return (put(gy, apply(WINNER, args[0], window=window), size=window.size, empty=window.has_empty),)


MAX_POOL = register(
    Op(
        name="max_pool",
        shape=_window_shape("max_pool"),
        spec=_max_spec,
        jvp=_max_jvp,
        vjp=_max_vjp,
        cases=_case,
        monotone=(0,),
        exact=True,
        largest=True,
        receptive_field=lambda x, *, window: window.reach(),
        footprint=pooled,
    )
)


@cached_call
def max_pool(
    x: Value,
    kernel: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil: bool = False,
    return_indices: bool = False,
    rank: int | None = None,
) -> Value:
    """The maximum over windows of the last axes: y[p] = max_t x[s*p + e*t - lo] over the taps inside x.

    Padded taps are ignored (-inf without an infinity); a window with no tap inside gives 0. Rules: [W1] [W2] [W3] [P1]
    [P2] [P3]. Tangent and cotangent follow the first winner in row-major order; an empty window has neither. Indices
    are those of PyTorch, which refuses padding over half the kernel; JAX has no gradient for dilated windows.

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
    return_indices : bool, default False
        Also return where the winners stand.
    rank : int, optional
        Number of spatial axes, where the kernel is one int for all of them.

    Returns
    -------
    array, shape (..., *windows)
        One cell per window, out = floor((n + lo + hi - e*(k-1) - 1) / s) + 1 along an axis; e is the dilation.
    array of int64, same shape
        With `return_indices`: the winner's position, flat over the spatial axes; -1 for an empty window.

    Raises
    ------
    ShapeError
        For sizes that are not positive ([W1]), and for a window that does not fit its padded input ([W2]).
    ParameterError
        For an int kernel without `rank`, and for arguments that are no such numbers or words ([P5]).

    Examples
    --------
    >>> max_pool(np.array([3.0, 1.0, 4.0, 1.0, 5.0]), (2,), padding=1)
    array([3., 4., 5.])
    """
    win = window.pooling(
        "max_pool", shape_of(x), kernel, rank=rank, stride=stride, padding=padding, dilation=dilation, ceil=ceil
    )
    return _max_and_index(x, win, True) if return_indices else apply(MAX_POOL, x, window=win)


def _max_and_index(x: Value, win: Window, return_indices: bool) -> Value:
    """Return max_pool of x over the window `win`, and with `return_indices` also the flat position of each winner."""
    y = apply(MAX_POOL, x, window=win)
    return (y, apply(WINNER, x, window=win)) if return_indices else y


@cached_call
def adaptive_max_pool(x: Value, output: PerAxis, *, return_indices: bool = False, rank: int | None = None) -> Value:
    """The maximum over `output` cells: cell o is [floor(o*n/out), ceil((o+1)*n/out)) per axis.

    Parameters
    ----------
    x : array_like, shape (..., *spatial)
        Axes before the spatial ones are mapped.
    output : int or tuple of int
        Cells of the result per spatial axis, the last ones of x. An int needs `rank`.
    return_indices : bool, default False
        Also return where the winners stand.
    rank : int, optional
        Number of spatial axes, where `output` is one int for all of them.

    Returns
    -------
    array, shape (..., *output)
        One maximum per cell.
    array of int64, same shape
        With `return_indices`: the winner's position, flat over the spatial axes.

    Raises
    ------
    ShapeError
        For empty axes, and for more entries than x has axes ([W1]).
    ParameterError
        For an int `output` without `rank` ([P5]).

    Examples
    --------
    >>> adaptive_max_pool(np.array([1.0, 5.0, 3.0, 4.0, 2.0]), (2,))
    array([5., 4.])
    """
    sizes = adaptive_output("adaptive_max_pool", shape_of(x), output, rank)
    return _max_and_index(x, window.adaptive("adaptive_max_pool", shape_of(x), sizes), return_indices)


# --- max_unpool -------------------------------------------------------------------------------------------------


def _last_shape(i: Shape, *, rank: int, cells: int) -> Shape:
    """Return the output shape of last_writer, that of the positions i in planes of `cells`."""
    return i


def _last_spec(i: Array, *, rank: int, cells: int) -> Array:
    """Return indices `i` in planes of `cells` with -1 for each one that a later position of the same plane repeats.

    ShapeError for a position outside -1..cells-1.
    """
    _check_range("last_writer", i, cells)
    flat = _flatten_last(i, rank)
    kept = np.full(flat.shape, -1, dtype=np.int64)
    for plane in np.ndindex(flat.shape[:-1]):
        last = {int(c): p for p, c in enumerate(flat[plane])}
        for c, p in last.items():
            kept[(*plane, p)] = c
    return kept.reshape(i.shape)


def _last_case(rng: Random) -> Case:
    """Return random arguments and parameters of last_writer, drawn by `rng`, for the law tests."""
    shape = sample_inputs.lead(rng) + sample_inputs.sizes(rng, 2)
    cells = [rng.randint(-1, 3) for _ in range(math.prod(shape))]
    return (np.array(cells, dtype=np.int64).reshape(shape),), {"rank": 2, "cells": 4}


LAST_WRITER = register(
    Op(
        name="last_writer",
        shape=_last_shape,
        spec=_last_spec,
        jvp=no_tangent,
        vjp=no_cotangent,
        cases=_last_case,
        exact=True,
        index_args=(0,),
        kind="index",
    )
)


@composite
def max_unpool(
    x: Value,
    indices: Value,
    kernel: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    output: Shape | None = None,
    rank: int | None = None,
) -> Value:
    """Put every x[p] back at indices[p], zeros elsewhere; where an index comes twice the last one stays.

    PyTorch's max_unpool1d/2d/3d; its cotangent for an overwritten value is not zero (it is not the adjoint of what it
    computes), ours is.

    Parameters
    ----------
    x : array_like, shape (..., *windows)
        The values to put back.
    indices : array_like of int, same shape
        Positions in the result, flat over the spatial axes; -1 puts a value nowhere.
    kernel : int or tuple of int
        Cells of a window per spatial axis; the spatial axes are the last ones of x. An int needs `rank`.
    stride : int or tuple of int, optional
        Step from a window to the next, per axis. By default windows do not overlap: the step is the kernel.
    padding : int, tuple or str, default 0
        That of the pooling: an int, or per axis an int or a (lo, hi) pair; "valid" is 0.
    output : tuple of int, optional
        Spatial sizes of the result; (n-1)*s - lo - hi + k if not given.
    rank : int, optional
        Number of spatial axes, where the kernel is one int for all of them.

    Returns
    -------
    array, shape (..., *output)
        Zero in every cell that no index names.

    Raises
    ------
    ShapeError
        If the kernel has more axes than x, for an index outside the result, and a result without cells ([C2]).
    ParameterError
        For an int kernel without `rank`, and for arguments that are no such numbers or words ([P5]).

    Examples
    --------
    >>> y, i = max_pool(np.array([1.0, 9.0, 3.0, 4.0]), (2,), return_indices=True)
    >>> max_unpool(y, i, (2,))
    array([0., 9., 0., 4.])
    """
    sizes = window.kernel_of("max_unpool", kernel, rank)
    shape = shape_of(x)
    if len(shape) < len(sizes):
        raise ShapeError("max_unpool", f"kernel={sizes} needs {len(sizes)} spatial axes; got input shape {shape}")
    if output is None:
        output = window.transposed(
            "max_unpool",
            shape[len(shape) - len(sizes) :],
            sizes,
            stride=sizes if stride is None else stride,
            padding=padding,
            output_padding=0,
            dilation=1,
        ).size
    last = apply(LAST_WRITER, indices, rank=len(sizes), cells=math.prod(output))
    return put(x, last, size=tuple(output))


# --- over whole axes --------------------------------------------------------------------------------------------

Ties = Literal["all", "split", "first"]


def _amax_shape(x: Shape, *, axes: Shape, ties: str) -> Shape:
    """Return the output shape of amax over `axes`; raise ShapeError for an empty one. `ties` decides derivatives
    alone.
    """
    if any(x[a] == 0 for a in axes):
        raise ShapeError("amax", f"an axis is empty; got axes={axes}, input shape {x}", rule="W1")
    return tuple(n for a, n in enumerate(x) if a not in axes)


def _amax_spec(x: Array, *, axes: Shape, ties: str) -> Array:
    """Return amax: the maximum of x over `axes`, over any scalar type. `ties` decides derivatives alone."""
    moved = _flatten_last(np.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim)), len(axes))
    if x.dtype != object:
        return np.asarray(np.max(moved, axis=-1))
    return reduce(scalar.maximum, np.moveaxis(moved, -1, 0))


def _winners(x: Value, y: Value, axes: Shape) -> Value:
    """Return 1 at every cell of x that equals y, the maximum over `axes`, and 0 elsewhere; a NaN is one, since it is
    the maximum ([P1]).
    """
    largest = broadcast(keep_axes(y, shape_of(x), axes), shape_of(x))
    return select(equal(x, x), equal(x, largest), 1)


def _amax_jvp(y: Value, args: Any, dargs: Any, *, axes: Shape, ties: str) -> Value:
    """Return the tangent of amax from `dargs`, the tangent of x in `args`: the sum over all winners, or if `ties` is
    "split" their mean.
    """
    wins = _winners(args[0], y, axes)
    total = sum_(select(wins, dargs[0], 0), axes)
    return total if ties == "all" else div(total, sum_(wins, axes))


def _amax_vjp(gy: Value, y: Value, args: Any, *, axes: Shape, ties: str) -> tuple[Value]:
    """Return the cotangent of amax's only argument, in `args`: gy at all winners, or if `ties` is "split" shared
    evenly.
    """
    wins = _winners(args[0], y, axes)
    share = gy if ties == "all" else div(gy, sum_(wins, axes))
    shape = shape_of(args[0])
    return (select(wins, broadcast(keep_axes(share, shape, axes), shape), 0),)


def _amax_case(rng: Random) -> Case:
    """Return random arguments and parameters of amax, drawn by `rng`, for the law tests."""
    x = sample_inputs.numbers(
        rng, sample_inputs.lead(rng) + sample_inputs.sizes(rng, rng.randint(1, 3)), denominators=(1,)
    )
    axes = tuple(a for a in range(x.ndim) if x.shape[a] and rng.random() < 0.7)
    return (x,), {"axes": axes, "ties": rng.choice(("all", "split"))}


AMAX = register(
    Op(
        name="amax",
        shape=_amax_shape,
        spec=_amax_spec,
        jvp=_amax_jvp,
        vjp=_amax_vjp,
        cases=_amax_case,
        footprint=reduced,
        monotone=(0,),
        exact=True,
        largest=True,
    )
)


@composite
def amax(x: Value, axes: Any = None, *, keepdims: bool = False, ties: Literal["all", "split"] = "split") -> Value:
    """The maximum over axes; by default torch.amax.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    axes : int or sequence of int, optional
        Axes that are reduced, from 0 or, negative, from the end; all if not given.
    keepdims : bool, default False
        Leave the reduced axes in place, with one cell each.
    ties : {"all", "split"}, default "split"
        Who receives the derivative of equal cells: "split" shares it evenly, "all" gives each the whole.

    Returns
    -------
    array
        Without the axes, or with one cell in each.

    Raises
    ------
    ShapeError
        For axes that do not exist or have no cells ([W1]).
    ParameterError
        For another word in `ties` ([P5]).

    Examples
    --------
    >>> amax(np.array([[1.0, 3.0], [4.0, 2.0]]), 1)
    array([3., 4.])
    """
    if ties not in ("all", "split"):
        raise ParameterError("amax", f'ties must be "all" or "split"; got {ties!r}', rule="P5")
    shape = shape_of(x)
    positions = axes_of("amax", axes, len(shape))
    y = apply(AMAX, x, axes=positions, ties=ties) if positions else x
    return keep_axes(y, shape, positions) if keepdims else y


@composite
def amin(x: Value, axes: Any = None, *, keepdims: bool = False, ties: Literal["all", "split"] = "split") -> Value:
    """The minimum over axes, as -amax(-x); by default torch.amin.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    axes : int or sequence of int, optional
        Axes that are reduced, from 0 or, negative, from the end; all if not given.
    keepdims : bool, default False
        Leave the reduced axes in place, with one cell each.
    ties : {"all", "split"}, default "split"
        Who receives the derivative of equal cells: "split" shares it evenly, "all" gives each the whole.

    Returns
    -------
    array
        Without the axes, or with one cell in each.

    Raises
    ------
    ShapeError
        For axes that do not exist or have no cells ([W1]).
    ParameterError
        For another word in `ties` ([P5]).

    Examples
    --------
    >>> amin(np.array([[1.0, 3.0], [4.0, 2.0]]), 1)
    array([1., 2.])
    """
    return neg(amax(neg(x), axes, keepdims=keepdims, ties=ties))


@composite
def global_max_pool(x: Value, *, rank: int, keepdims: bool = True, ties: Ties = "all") -> Value:
    """The maximum over the last `rank` axes: (C, *spatial) to (C, 1, ..) or, with keepdims=False, to (C).

    ties: "all" gives every maximiser the full cotangent (the tangent is the sum over maximisers), "split" shares it
    evenly (the tangent is their mean), "first" follows the first winner, as max_pool does ([first]).

    Parameters
    ----------
    x : array_like, shape (..., *spatial)
        The last `rank` axes are reduced.
    rank : int
        Number of spatial axes.
    keepdims : bool, default True
        Leave the spatial axes in place, with one cell each.
    ties : {"all", "split", "first"}, default "all"
        Who receives the derivative of equal maxima.

    Returns
    -------
    array, shape (..., 1, 1) or (...)
        One maximum per image and channel.

    Raises
    ------
    ShapeError
        For fewer axes than `rank`, and without cells ([W1]).
    ParameterError
        For another word in `ties` ([P5]).

    Examples
    --------
    >>> global_max_pool(np.array([[1.0, 3.0, 3.0]]), rank=1, keepdims=False)
    array([3.])
    """
    shape = shape_of(x)
    axes = spatial_axes("global_max_pool", shape, rank)
    if ties == "first":
        y = apply(MAX_POOL, x, window=window.adaptive("global_max_pool", shape, (1,) * rank))  # one cell: all of them
        return y if keepdims else reshape(y, shape[: len(shape) - rank])
    if ties not in ("all", "split"):
        raise ParameterError("global_max_pool", f'ties must be "all", "split" or "first"; got {ties!r}', rule="P5")
    return amax(x, axes, keepdims=keepdims, ties=ties)
