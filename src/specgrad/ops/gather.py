"""Cells at positions along one axis, and their adjoint, which adds values up at positions.

An embedding, an index in brackets, a table, and every padding or resizing that copies cells is `gather`.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np

from .. import scalar
from ..call_cache import cached_call
from ..errors import ShapeError
from ..op import Case, Op, Value, apply, by_engine, register, shape_of
from ..scalar import Array
from ..window import Shape
from ..window.axis_maps import IdentityMap
from ..window.footprint import BoxRule, linked
from ..window.receptive_field import CELL, ReceptiveField
from . import sample_inputs
from .layout import axis_of, permute
from .max_pool import take


def _check_axis(name: str, axis: int, shape: Shape) -> None:
    """Raise ShapeError in the name of the operator `name` if the axis does not exist."""
    if not 0 <= axis < len(shape):
        raise ShapeError(name, f"axis {axis} does not exist; got shape {shape}")


def _gather_shape(x: Shape, i: Shape, *, axis: int) -> Shape:
    """Return the output shape of gather. ShapeError if x has no such axis."""
    _check_axis("gather", axis, x)
    return x[:axis] + i + x[axis + 1 :]


def _scatter_shape(gy: Shape, i: Shape, *, axis: int, size: int) -> Shape:
    """Return the output shape of scatter, `size` cells along `axis`; raise ShapeError for shapes that do not fit."""
    if not 0 <= axis <= len(gy) - len(i) or gy[axis : axis + len(i)] != i or size < 0:
        raise ShapeError("scatter", f"values of shape {gy} do not have the indices' shape {i} at axis {axis}")
    return (*gy[:axis], size, *gy[axis + len(i) :])


def positions(name: str, i: Array, cells: int) -> Array:
    """Return positions `i` on an axis of `cells` from 0 on, negative ones counted from the end.

    Raise ShapeError, in the name of operator `name`, outside.
    """
    if i.size and not (-cells <= i.min() and i.max() < cells):
        raise ShapeError(name, f"indices must lie in -{cells}..{cells - 1}; got {i.min()}..{i.max()}")
    return np.where(i < 0, i + cells, i)


def _gather_spec(x: Array, i: Array, *, axis: int) -> Array:
    """Return gather: the cells of x at positions i along `axis`, over any scalar type."""
    return np.take(x, positions("gather", i, x.shape[axis]), axis=axis)


def _scatter_spec(gy: Array, i: Array, *, axis: int, size: int) -> Array:
    """Return scatter by its definition, over any scalar type: cells i of an axis of `size` collect gy."""
    at = positions("scatter", i, size).reshape(-1)
    y = scalar.zeros(_scatter_shape(gy.shape, i.shape, axis=axis, size=size), gy)
    values = gy.reshape(*gy.shape[:axis], at.size, *gy.shape[axis + i.ndim :])
    np.add.at(np.moveaxis(y, axis, 0), at, np.moveaxis(values, axis, 0))
    return y


def _index(rng: Random, cells: int) -> Array:
    """Return positions among so many cells, of rank 0 to 2, some repeated, some from the end, now and then none, drawn
    by `rng`.
    """
    shape = tuple(rng.choice((1, 2, 3, 0)) for _ in range(rng.randint(0, 2))) if cells else (0,)
    count = math.prod(shape)
    return np.array([rng.randint(-cells, cells - 1) for _ in range(count)], dtype=np.int64).reshape(shape)


def _gather_case(rng: Random) -> Case:
    """Return random arguments and parameters of gather, drawn by `rng`, for the law tests."""
    x = sample_inputs.numbers(rng, sample_inputs.lead(rng) + sample_inputs.sizes(rng, 2))
    axis = rng.randrange(x.ndim)
    return (x, _index(rng, x.shape[axis])), {"axis": axis}


def _scatter_case(rng: Random) -> Case:
    """Return random arguments and parameters of scatter, drawn by `rng`, for the law tests."""
    (x, i), params = _gather_case(rng)
    axis = params["axis"]
    gy = sample_inputs.numbers(rng, x.shape[:axis] + i.shape + x.shape[axis + 1 :])
    return (gy, i), {"axis": axis, "size": x.shape[axis]}


def _gather_reach(x: Shape, i: Shape, *, axis: int) -> tuple[ReceptiveField | None, ...]:
    """Return, per trailing output axis, which cells of x gather reads (None: all); i is the index's shape."""
    return tuple(None if a == axis else CELL for a in range(len(x))) if len(i) == 1 else ()


def _gather_footprint(x: Shape, i: Shape, *, axis: int) -> BoxRule:
    """Return the footprint rule of gather of x by an index of shape i: its axis is read entirely, since indices may
    point anywhere.
    """
    after = range(axis + len(i), len(x) + len(i) - 1)
    links = [[*range(axis), None, *after], list(range(axis, axis + len(i)))]
    return linked([IdentityMap()] * (len(x) + len(i) - 1), links, [x, i], {"axis": axis})


def _gather_vjp(gy: Value, y: Value, args: Any, *, axis: int) -> tuple[Value, None]:
    """Return the cotangents of gather(x, i), `args`: `gy`, the output's, scatter-added at the positions i; None for
    i.
    """
    return scatter(gy, args[1], axis=axis, size=shape_of(args[0])[axis]), None


def _scatter_vjp(gy: Value, y: Value, args: Any, *, axis: int, size: int) -> tuple[Value, None]:
    """Return the cotangents of scatter's arguments `args` from `gy`, that of its output of `size` cells: gathered back;
    None for the index.
    """
    return gather(gy, args[1], axis=axis), None


GATHER: Op = register(
    Op(
        name="gather",
        shape=_gather_shape,
        spec=_gather_spec,
        jvp=lambda y, args, dargs, *, axis: None if dargs[0] is None else apply(GATHER, dargs[0], args[1], axis=axis),
        vjp=_gather_vjp,
        cases=_gather_case,
        footprint=_gather_footprint,
        linear=((0,),),
        monotone=(0,),
        exact=True,
        index_args=(1,),
        picks=True,
        receptive_field=_gather_reach,
    )
)
SCATTER: Op = register(
    Op(
        name="scatter",
        shape=_scatter_shape,
        spec=_scatter_spec,
        jvp=lambda y, args, dargs, **p: None if dargs[0] is None else apply(SCATTER, dargs[0], args[1], **p),
        vjp=_scatter_vjp,
        cases=_scatter_case,
        linear=((0,),),
        monotone=(0,),
        roundings=lambda gy, i, *, axis, size: math.prod(i),
        index_args=(1,),
        picks=True,
    )
)


@cached_call
def gather(x: Value, i: Value, *, axis: int = 0) -> Value:
    """y[a, p, b] = x[a, i[p], b]: the axes of i stand where `axis` was.

    ONNX Gather, torch.index_select; an embedding, with x the table and axis 0. The cotangent is added up at the
    positions; an index has none.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    i : array_like of int
        Positions, -n..n-1; negative ones count from the end.
    axis : int, default 0
        The axis; negative ones count from the end.

    Returns
    -------
    array
        Of the shape of x, with the axes of i in place of `axis`.

    Raises
    ------
    ShapeError
        For an axis that does not exist, positions outside it, and positions that are no integers.

    Examples
    --------
    >>> gather(np.array([5.0, 6.0, 7.0]), np.array([[2, 0], [-1, 1]]))
    array([[7., 5.],
           [7., 6.]])
    """
    return apply(GATHER, x, i, axis=axis_of("gather", axis, len(shape_of(x))))


@cached_call
def scatter(gy: Value, i: Value, *, axis: int = 0, size: int) -> Value:
    """The adjoint of gather: cell c of an axis of `size` cells receives the sum of gy[a, p, b] over i[p] = c.

    Parameters
    ----------
    gy : array_like
        Numbers, with the axes of i where `axis` is to be.
    i : array_like of int
        Positions, -size..size-1.
    axis : int, default 0
        The axis, from 0 on.
    size : int
        Cells of the axis in the result.

    Returns
    -------
    array
        Zero in every cell that no position names.

    Raises
    ------
    ShapeError
        For an axis that does not exist, positions outside it, and positions that are no integers.

    Examples
    --------
    >>> scatter(np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), size=3)
    array([4., 3., 0.])
    """
    return apply(SCATTER, gy, i, axis=axis, size=size)


@cached_call
def take_along(x: Value, i: Value, *, axis: int) -> Value:
    """y[a, p, b] = x[a, i[a, p, b], b]: one position per output cell, from 0 on (numpy.take_along_axis).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    i : array_like of int
        Positions along the axis, from 0 on; of the sizes of x on all other axes.
    axis : int
        The axis; negative ones count from the end.

    Returns
    -------
    array
        Of the shape of i.

    Raises
    ------
    ShapeError
        For another shape of i, and positions outside.

    Examples
    --------
    >>> take_along(np.array([[5.0, 6.0], [7.0, 8.0]]), np.array([[1], [0]]), axis=1)
    array([[6.],
           [7.]])
    """
    rank = len(shape_of(x))
    at = axis_of("take_along", axis, rank)
    if (y := by_engine("take_along", x, i, axis=at)) is not None:
        return y
    order = [a for a in range(rank) if a != at] + [at]
    back = [*range(at), rank - 1, *range(at, rank - 1)]
    return permute(take(permute(x, order), permute(i, order), rank=1, empty=False), back)


@cached_call
def roll(x: Value, shift: int, *, axis: int) -> Value:
    """Every cell `shift` positions further along an axis, around its end: y[p] = x[(p - shift) mod n].

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    shift : int
        How many positions further; negative: back.
    axis : int
        The axis; negative ones count from the end.

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
    >>> roll(np.array([1.0, 2.0, 3.0]), 1, axis=0)
    array([3., 1., 2.])
    """
    at = axis_of("roll", axis, len(shape_of(x)))
    n = shape_of(x)[at]
    if (y := by_engine("roll", x, shift, axis=at)) is not None:
        return y
    return x if n < 2 or shift % n == 0 else gather(x, (np.arange(n) - shift) % n, axis=at)
