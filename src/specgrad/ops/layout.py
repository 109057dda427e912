"""Layout: operators that move, repeat, drop or add up cells. All linear, each the transpose of another.

reshape <-> reshape    permute <-> permute    slice <-> pad    broadcast <-> sum    concat -> slices
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from .. import scalar
from ..call_cache import cached_call
from ..errors import ParameterError, ShapeError
from ..op import Case, Op, Value, apply, by_engine, is_literal, number_of, register, shape_of
from ..scalar import Array, Number
from ..window import Repeated, Shape, any_open, identical, indices, int_of, is_one, resolve_padding, size_of
from ..window.axis_maps import GlobalMap, IdentityMap
from ..window.footprint import BoxRule, linked, padded, reduced, repeated, reshaped, same_cell, sliced
from ..window.receptive_field import CELL, ReceptiveField, backwards, strided
from . import sample_inputs

Triple = tuple[int, int, int]


def axis_of(operator: str, axis: int, ndim: int) -> int:
    """Return a possibly negative axis of `ndim` as a position; raise ShapeError if it does not exist."""
    axis = int_of(operator, "axis", axis)
    if not -ndim <= axis < ndim:
        raise ShapeError(operator, f"axis {axis} does not exist; the value has {ndim} axes")
    return axis % ndim


def axes_of(operator: str, axes: int | Sequence[int] | None, ndim: int) -> Shape:
    """Return axes (None: all) of `ndim` as sorted positions; raise ShapeError for repeated ones and those that do not
    exist.
    """
    if axes is None:
        return tuple(range(ndim))
    listed = tuple(axes) if hasattr(axes, "__iter__") else (axes,)
    positions = tuple(sorted(axis_of(operator, a, ndim) for a in listed))
    if len(set(positions)) != len(positions):
        raise ShapeError(operator, f"an axis is named twice; got axes={listed}")
    return positions


# --- fill -------------------------------------------------------------------------------------------------------


def _fill_shape(x: Shape, *, value: Number) -> Shape:
    """Return the output shape of fill by `value`: that of x."""
    return x


def one_reader(*_: Shape, **__: Any) -> int:
    """Return 1: no cell of an argument is read by two cells of the result."""
    return 1


def no_tangent(y: Value, args: Any, dargs: Any, **_: Any) -> None:
    """Return None whatever the arguments `args`, their tangents `dargs` and the output `y` are: the operator's
    derivative is zero.
    """


def no_cotangent(gy: Value, y: Value, args: Any, **_: Any) -> tuple[None, ...]:
    """Return a None per argument in `args`: the operator's derivative is zero."""
    return (None,) * len(args)


FILL = register(
    Op(
        name="fill",
        shape=_fill_shape,
        spec=lambda x, *, value: scalar.full(x.shape, value, x),
        jvp=no_tangent,
        vjp=no_cotangent,
        cases=lambda rng: ((sample_inputs.numbers(rng, sample_inputs.lead(rng)),), {"value": rng.randint(-2, 2)}),
        footprint=same_cell,
        monotone=(0,),
        exact=True,
    )
)


@cached_call
def fill(x: Value, value: Number) -> Value:
    """`value` in every cell, with the shape and the scalar type of x.

    Parameters
    ----------
    x : array_like
        Gives shape and scalar type.
    value : number
        What stands in every cell.

    Returns
    -------
    array
        Of the shape of x.

    Examples
    --------
    >>> fill(np.zeros(2), 3)
    array([3., 3.])
    """
    return apply(FILL, x, value=number_of(value))


# --- reshape ----------------------------------------------------------------------------------------------------


def _reshape_shape(x: Shape, *, shape: Shape) -> Shape:
    """Return the output shape of reshape; raise ShapeError for arguments that do not fit."""
    if math.prod(x) != math.prod(shape):
        raise ShapeError("reshape", f"{math.prod(x)} cells do not fill shape {shape}; got input shape {x}")
    return shape


def _reshape_case(rng: Random) -> Case:
    """Return random arguments and parameters of reshape, drawn by `rng`, for the law tests."""
    x = sample_inputs.numbers(rng, sample_inputs.lead(rng) + sample_inputs.sizes(rng, 2))
    shape = list(x.shape)
    rng.shuffle(shape)
    return (x,), {"shape": (1, *shape)}


def _reshape_vjp(gy: Value, y: Value, args: Any, **_: Any) -> tuple[Value]:
    """Return the cotangent of reshape's only argument, in `args`: `gy`, the output's, in the shape of x."""
    return (reshape(gy, shape_of(args[0])),)


RESHAPE = register(
    Op(
        name="reshape",
        shape=_reshape_shape,
        spec=lambda x, *, shape: np.reshape(x, shape),
        vjp=_reshape_vjp,
        cases=_reshape_case,
        footprint=reshaped,
        linear="all",
        readers=one_reader,
        exact=True,
        kind="same",
        idle=lambda x, *, shape: identical(x, shape),
    )
)


@cached_call
def reshape(x: Value, shape: Sequence[int]) -> Value:
    """Reshape to another shape, cells in row-major order; one entry may be -1.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    shape : sequence of int
        The new sizes; one entry may be -1 and is computed.

    Returns
    -------
    array, of that shape
        The same cells.

    Raises
    ------
    ShapeError
        If the number of cells is another.

    Examples
    --------
    >>> reshape(np.arange(6.0), (2, -1)).shape
    (2, 3)
    """
    old, new = shape_of(x), tuple(size_of("reshape", n) for n in shape)
    if new.count(-1) == 1:
        known = math.prod(n for n in new if n != -1)
        if known == 0 or math.prod(old) % known:
            raise ShapeError("reshape", f"no size for -1 in {new}; got input shape {old}")
        new = tuple(math.prod(old) // known if n == -1 else n for n in new)
    if any(n < 0 for n in new):
        raise ShapeError("reshape", f"sizes must not be negative; got {new}")
    return x if identical(new, old) else apply(RESHAPE, x, shape=new)


@cached_call
def flatten(x: Value, start: int = 0, end: int = -1) -> Value:
    """Axes start..end (both included) merged into one, cells in row-major order.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    start : int, default 0
        First axis that is merged; negative ones count from the end.
    end : int, default -1
        Last axis that is merged.

    Returns
    -------
    array
        With one axis in place of these.

    Raises
    ------
    ShapeError
        If start lies after end, or one does not exist.

    Examples
    --------
    >>> flatten(np.zeros((2, 3, 4)), 1).shape
    (2, 12)
    """
    shape = shape_of(x)
    if not shape:
        return reshape(x, (1,))
    first, last = axis_of("flatten", start, len(shape)), axis_of("flatten", end, len(shape))
    if first > last:
        raise ShapeError("flatten", f"start={start} lies after end={end}; got input shape {shape}")
    return reshape(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


# --- permute ----------------------------------------------------------------------------------------------------


def _permute_shape(x: Shape, *, order: Shape) -> Shape:
    """Return the output shape of permute; raise ShapeError unless `order` names each axis of x once."""
    if sorted(order) != list(range(len(x))):
        raise ShapeError("permute", f"order must name each of {len(x)} axes once; got order={order}")
    return tuple(x[a] for a in order)


def _permute_case(rng: Random) -> Case:
    """Return random arguments and parameters of permute, drawn by `rng`, for the law tests."""
    x = sample_inputs.numbers(rng, sample_inputs.sizes(rng, rng.randint(1, 4)))
    order = list(range(x.ndim))
    rng.shuffle(order)
    return (x,), {"order": tuple(order)}


def _permute_footprint(x: Shape, *, order: Shape) -> BoxRule:
    """Return the rule from boxes of x with its axes in `order` to the boxes of x that they need."""
    return linked([IdentityMap()] * len(x), [[order.index(a) for a in range(len(x))]], [x], {"order": order})


def _permute_vjp(gy: Value, y: Value, args: Any, *, order: Shape) -> tuple[Value]:
    """Return the cotangent of permute's only argument, in `args`, from `gy`, that of its output: axes in the inverse of
    `order`.
    """
    return (permute(gy, tuple(np.argsort(order).tolist())),)


PERMUTE = register(
    Op(
        name="permute",
        shape=_permute_shape,
        spec=lambda x, *, order: np.transpose(x, order),
        vjp=_permute_vjp,
        cases=_permute_case,
        footprint=_permute_footprint,
        linear="all",
        readers=one_reader,
        exact=True,
        kind="same",
    )
)


@cached_call
def permute(x: Value, order: Sequence[int]) -> Value:
    """Axes in another order: output axis a is input axis order[a].

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    order : sequence of int
        Every axis once, by its number in x.

    Returns
    -------
    array
        The same cells.

    Raises
    ------
    ShapeError
        Unless `order` names every axis once.

    Examples
    --------
    >>> permute(np.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    ndim = len(shape_of(x))
    positions = tuple(axis_of("permute", a, ndim) for a in order)
    return x if positions == tuple(range(ndim)) else apply(PERMUTE, x, order=positions)


# --- slice and pad ----------------------------------------------------------------------------------------------


def _slice_shape(x: Shape, *, ranges: tuple[Triple, ...]) -> Shape:
    """Return the output shape of slice by `ranges`, (start, stop, step) per axis; raise ShapeError for ranges that do
    not fit.
    """
    if len(ranges) != len(x):
        raise ShapeError("slice", f"{len(ranges)} ranges for {len(x)} axes; got input shape {x}")
    for axis, (n, (start, stop, step)) in enumerate(zip(x, ranges, strict=True)):
        if not (0 <= start <= stop <= n and step >= 1):
            raise ShapeError("slice", f"range {start}:{stop}:{step} does not fit axis {axis}; got input shape {x}")
    return tuple((stop - start + step - 1) // step for start, stop, step in ranges)


def _is_all(x: Shape, ranges: Sequence[Triple]) -> bool:
    """Return whether the ranges, one per axis, select every cell of an array of shape x."""
    return all(identical(r, (0, n, 1)) for n, r in zip(x, ranges, strict=True))


def _slice_vjp(gy: Value, y: Value, args: Any, *, ranges: tuple[Triple, ...]) -> tuple[Value]:
    """Return the cotangent of slice's only argument, in `args`: gy padded by what `ranges` leave out, with `step-1`
    gaps between its cells.
    """
    widths = []
    for n, m, (start, _, step) in zip(shape_of(args[0]), shape_of(gy), ranges, strict=True):
        covered = (m - 1) * step + 1 if m else 0
        widths.append((start, n - start - covered, step - 1))
    return (apply(PAD, gy, widths=tuple(widths)),)


def _slice_case(rng: Random) -> Case:
    """Return random arguments and parameters of slice, drawn by `rng`, for the law tests."""
    x = sample_inputs.numbers(rng, sample_inputs.lead(rng) + sample_inputs.sizes(rng, 2))
    ranges = []
    for n in x.shape:
        start = rng.randint(0, n)
        ranges.append((start, rng.randint(start, n), rng.randint(1, 3)))
    return (x,), {"ranges": tuple(ranges)}


def _slice_reach(x: Shape, *, ranges: tuple[Triple, ...]) -> tuple[ReceptiveField, ...]:
    """Return, per axis, which cells of x its slice by `ranges` reads."""
    return tuple(strided(step, start, start) for start, _, step in ranges)


SLICE = register(
    Op(
        name="slice",
        shape=_slice_shape,
        spec=lambda x, *, ranges: x[tuple(slice(*r) for r in ranges)],
        vjp=_slice_vjp,
        cases=_slice_case,
        footprint=sliced,
        linear="all",
        readers=one_reader,
        exact=True,
        kind="same",
        idle=lambda x, *, ranges: _is_all(x, ranges),
        receptive_field=_slice_reach,
    )
)


@cached_call
def slice_(x: Value, *ranges: Any) -> Value:
    """Return x sliced along its first axes.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    *ranges : slice or None
        Python's slices, or None for a whole axis, one per axis from the first; steps are positive.

    Returns
    -------
    array
        The cells in the ranges; no axis is dropped.

    Raises
    ------
    ShapeError
        For more slices than axes.
    ParameterError
        For steps that are not positive ([P5]).

    Examples
    --------
    >>> slice_(np.arange(10.0), slice(1, 8, 3))
    array([1., 4., 7.])
    """
    shape = shape_of(x)
    if len(ranges) > len(shape):
        raise ShapeError("slice", f"{len(ranges)} ranges for {len(shape)} axes; got input shape {shape}")
    listed = [r if r is not None else slice(None) for r in ranges] + [slice(None)] * (len(shape) - len(ranges))
    triples = []
    for n, r in zip(shape, listed, strict=True):
        start, stop, step = (0, n, 1) if r == slice(None) else indices(r, n)
        if step < 1:
            raise ParameterError("slice", f"step must be positive; got {r}", rule="P5")
        triples.append((start, max(start, stop), step))
    return x if _is_all(shape, triples) else apply(SLICE, x, ranges=tuple(triples))


def _pad_shape(x: Shape, *, widths: tuple[Triple, ...]) -> Shape:
    """Return the output shape of pad by `widths`, (lo, hi, gap) per axis; raise ShapeError for negative ones or another
    number.
    """
    if len(widths) != len(x) or any(min(w) < 0 for w in widths):
        raise ShapeError("pad", f"needs widths >= 0 for {len(x)} axes; got widths={widths}")
    return tuple(lo + (n + (n - 1) * gap if n else 0) + hi for n, (lo, hi, gap) in zip(x, widths, strict=True))


def _pad_inside(shape: Shape, widths: tuple[Triple, ...]) -> tuple[slice, ...]:
    """Return the slices of an array of `shape` padded by `widths` that hold the original cells."""
    return tuple(
        slice(lo, lo + (n - 1) * (gap + 1) + 1 if n else lo, gap + 1)
        for n, (lo, _, gap) in zip(shape, widths, strict=True)
    )


def _pad_spec(x: Array, *, widths: tuple[Triple, ...]) -> Array:
    """Return pad of x by `widths`, (lo, hi, gap) zeros per axis before, behind and between cells, over any scalar
    type.
    """
    y = scalar.zeros(_pad_shape(x.shape, widths=widths), x)
    y[_pad_inside(x.shape, widths)] = x
    return y


def _pad_vjp(gy: Value, y: Value, args: Any, *, widths: tuple[Triple, ...]) -> tuple[Value]:
    """Return the cotangent of pad's only argument, in `args`: the cells of `gy`, its output's, inside `widths`."""
    return (slice_(gy, *_pad_inside(shape_of(args[0]), widths)),)


def _pad_reach(x: Shape, *, widths: tuple[Triple, ...]) -> tuple[ReceptiveField | None, ...]:
    """Return, per axis, which cells of x its padding by `widths` reads."""
    return tuple(backwards(gap + 1, lo, lo) for lo, _, gap in widths)


def _pad_case(rng: Random) -> Case:
    """Return random arguments and parameters of pad, drawn by `rng`, for the law tests."""
    x = sample_inputs.numbers(rng, sample_inputs.lead(rng) + sample_inputs.sizes(rng, 2))
    return (x,), {"widths": tuple((rng.randint(0, 2), rng.randint(0, 2), rng.choice((0, 0, 1, 2))) for _ in x.shape)}


PAD = register(
    Op(
        name="pad",
        shape=_pad_shape,
        spec=_pad_spec,
        vjp=_pad_vjp,
        cases=_pad_case,
        footprint=padded,
        linear="all",
        readers=one_reader,
        monotone=(0,),
        exact=True,
        receptive_field=_pad_reach,
    )
)


@cached_call
def unpad(x: Value, padding: Any, *, rank: int | None = None) -> Value:
    """Remove lo/hi cells from the last axes: y[p] = x[p + lo]; the transpose is zero padding.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    padding : int or sequence
        An int (with `rank`), or per axis an int or a (lo, hi) pair.
    rank : int, optional
        Number of axes, where padding is one int for all of them.

    Returns
    -------
    array
        Every such axis is lo + hi cells shorter.

    Raises
    ------
    ShapeError
        If padding does not fit, or leaves no cell ([W1]).
    ParameterError
        For an int without `rank` ([P5]).

    Examples
    --------
    >>> unpad(np.arange(5.0), ((1, 2),))
    array([1., 2.])
    """
    shape = shape_of(x)
    if not hasattr(padding, "__len__") and rank is None:
        raise ParameterError("unpad", f"an int padding needs rank=; got padding={padding}", rule="P5")
    rank = len(padding) if rank is None else int_of("unpad", "rank", rank)
    if rank > len(shape):
        raise ShapeError("unpad", f"padding={padding} needs {rank} axes; got input shape {shape}")
    sizes = shape[len(shape) - rank :]
    pairs = resolve_padding("unpad", padding, sizes, sizes, sizes, sizes)
    for axis, (n, (lo, hi)) in enumerate(zip(sizes, pairs, strict=True)):
        if lo < 0 or hi < 0 or lo + hi >= n:
            text = f"removing {lo} + {hi} of {n} cells leaves none on axis {axis}; got input shape {shape}"
            raise ShapeError("unpad", text, rule="W1")
    return slice_(
        x, *[None] * (len(shape) - rank), *(slice(lo, n - hi) for n, (lo, hi) in zip(sizes, pairs, strict=True))
    )


# --- concat -----------------------------------------------------------------------------------------------------


def _concat_shape(*shapes: Shape, axis: int) -> Shape:
    """Return the output shape of concat; raise ShapeError unless the axis exists and `shapes` agree on all others."""
    first = shapes[0]
    if not 0 <= axis < len(first):
        raise ShapeError("concat", f"axis {axis} does not exist; got input shapes {shapes}")
    for s in shapes:
        if len(s) != len(first) or any(a != b for i, (a, b) in enumerate(zip(s, first, strict=True)) if i != axis):
            raise ShapeError("concat", f"shapes must agree except on axis {axis}; got {shapes}")
    return (*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :])


def _concat_jvp(y: Value, args: Any, dargs: Any, *, axis: int) -> Value:
    """Return the tangent of concat: the tangents `dargs` of all arguments `args`, concatenated; zeros for None."""
    return apply(CONCAT, *(fill(x, 0) if dx is None else dx for x, dx in zip(args, dargs, strict=True)), axis=axis)


def _concat_vjp(gy: Value, y: Value, args: Any, *, axis: int) -> tuple[Value, ...]:
    """Return the cotangents of concat's arguments `args`: the slices of `gy`, the output's, that each was copied to."""
    pieces, start = [], 0
    for x in args:
        stop = start + shape_of(x)[axis]
        pieces.append(slice_(gy, *[None] * axis, slice(start, stop)))
        start = stop
    return tuple(pieces)


def _concat_case(rng: Random) -> Case:
    """Return random arguments and parameters of concat, drawn by `rng`, for the law tests."""
    shape = sample_inputs.sizes(rng, rng.randint(1, 3))
    axis = rng.randrange(len(shape))
    parts = [(*shape[:axis], rng.randint(0, 3), *shape[axis + 1 :]) for _ in range(rng.randint(1, 3))]
    return tuple(sample_inputs.numbers(rng, s) for s in parts), {"axis": axis}


def _concat_reach(*shapes: Shape, axis: int) -> tuple[ReceptiveField | None, ...]:
    """Return, per axis, which cells of arguments of these shapes concat reads (None along `axis`: all)."""
    return tuple(None if i == axis else CELL for i in range(len(shapes[0])))


def _concat_footprint(*shapes: Shape, axis: int) -> BoxRule:
    """Return the footprint rule of concat of these shapes; its axis cannot be split, since arguments would differ from
    box to box.
    """
    axes = [GlobalMap(sum(s[axis] for s in shapes)) if a == axis else IdentityMap() for a in range(len(shapes[0]))]
    return linked(axes, [range(len(s)) for s in shapes], shapes, {"axis": axis})


CONCAT = register(
    Op(
        name="concat",
        shape=_concat_shape,
        spec=lambda *xs, axis: np.concatenate(xs, axis),
        jvp=_concat_jvp,
        vjp=_concat_vjp,
        cases=_concat_case,
        footprint=_concat_footprint,
        linear="all",
        readers=one_reader,
        exact=True,
        kind="same",
        receptive_field=_concat_reach,
    )
)


def concat(xs: Sequence[Value], axis: int) -> Value:
    """Values one after the other along an axis.

    Parameters
    ----------
    xs : sequence of array_like
        Values whose shapes agree except on `axis`.
    axis : int
        The axis; negative ones count from the end.

    Returns
    -------
    array
        As long along the axis as all of them together.

    Raises
    ------
    ShapeError
        Without any value, for shapes that differ elsewhere, and for an axis that does not exist.

    Examples
    --------
    >>> concat([np.zeros((1, 2)), np.ones((1, 3))], axis=1)
    array([[0., 0., 1., 1., 1.]])
    """
    return _concat(axis, *xs)


@cached_call
def _concat(axis: int, *xs: Value) -> Value:
    """Concatenate values `xs`; the axis comes first, so that calls can be cached. ShapeError without any."""
    if not xs:
        raise ShapeError("concat", "needs at least one value")
    return apply(CONCAT, *xs, axis=axis_of("concat", axis, len(shape_of(xs[0]))))


# --- broadcast and sum ------------------------------------------------------------------------------------------


def _broadcast_shape(x: Shape, *, shape: Shape) -> Shape:
    """Return the output shape of broadcast; raise ShapeError for arguments that do not fit."""
    if len(x) != len(shape) or any(n not in (1, m) for n, m in zip(x, shape, strict=True)):
        raise ShapeError("broadcast", f"shape {x} does not broadcast to {shape}")
    return shape


def _broadcast_vjp(gy: Value, y: Value, args: Any, *, shape: Shape) -> tuple[Value]:
    """Return the cotangent of broadcast's only argument, in `args`: `gy`, the output's, summed over the repeated
    axes.
    """
    old = shape_of(args[0])
    grown = tuple(a for a, (n, m) in enumerate(zip(old, shape, strict=True)) if n != m)
    return (reshape(apply(SUM, gy, axes=grown), old),)


def _broadcast_case(rng: Random) -> Case:
    """Return random arguments and parameters of broadcast, drawn by `rng`, for the law tests."""
    shape = sample_inputs.lead(rng) + sample_inputs.sizes(rng, 2)
    return (sample_inputs.numbers(rng, tuple(rng.choice((1, n)) for n in shape)),), {"shape": shape}


BROADCAST = register(
    Op(
        name="broadcast",
        shape=_broadcast_shape,
        spec=lambda x, *, shape: np.broadcast_to(x, shape),
        vjp=_broadcast_vjp,
        cases=_broadcast_case,
        footprint=repeated,
        linear="all",
        exact=True,
        kind="same",
        idle=lambda x, *, shape: identical(x, shape),
    )
)


@cached_call
def broadcast(x: Value, shape: Sequence[int]) -> Value:
    """Numbers repeated to another shape by NumPy's rule: axes align at the end, size 1 and missing axes repeat.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    shape : sequence of int
        The new shape; axes align at the end.

    Returns
    -------
    array, of that shape
        Axes of size 1 and missing axes are repeated.

    Raises
    ------
    ShapeError
        If shapes do not fit.

    Examples
    --------
    >>> broadcast(np.array([1.0, 2.0]), (2, 2))
    array([[1., 2.],
           [1., 2.]])
    """
    old, new = shape_of(x), tuple(size_of("broadcast", n) for n in shape)
    if len(old) > len(new):
        raise ShapeError("broadcast", f"shape {old} does not broadcast to {new}")
    if (y := by_engine("broadcast", x, shape=new)) is not None:
        return y
    aligned = reshape(x, (1,) * (len(new) - len(old)) + old)
    if any_open(new) and not hasattr(type(x), "__specgrad_apply__"):
        return Repeated(aligned, new)
    return aligned if identical(shape_of(aligned), new) else apply(BROADCAST, aligned, shape=new)


def broadcast_together(operator: str, *xs: Value) -> tuple[Value, ...]:
    """Return the values `xs` broadcast to their common shape, else ShapeError; Python numbers stay as they are."""
    shapes = [shape_of(x) for x in xs if not is_literal(x)]
    if all(identical(s, shapes[0]) for s in shapes):
        return xs
    common = common_shape(operator, *shapes)
    return tuple(x if is_literal(x) else broadcast(x, common) for x in xs)


def common_shape(operator: str, *shapes: Shape) -> Shape:
    """Return the shape to which all `shapes` broadcast by NumPy's rule; raise ShapeError, in the name of the operator,
    if there is none.

    >>> common_shape("add", (2, 1), (3,))
    (2, 3)
    """
    rank, common = max(map(len, shapes)), []
    for axis in range(-rank, 0):
        sizes = [s[axis] for s in shapes if len(s) >= -axis and not is_one(s[axis])]
        if any(n != sizes[0] for n in sizes):
            raise ShapeError(operator, f"shapes {' and '.join(map(str, shapes))} do not broadcast")
        common.append(sizes[0] if sizes else 1)
    return tuple(common)


def _sum_shape(x: Shape, *, axes: Shape) -> Shape:
    """Return the output shape of sum; raise ShapeError for arguments that do not fit."""
    if list(axes) != sorted(set(axes)) or any(not 0 <= a < len(x) for a in axes):
        raise ShapeError("sum", f"axes must be sorted positions below {len(x)}; got axes={axes}")
    return tuple(n for a, n in enumerate(x) if a not in axes)


def _sum_vjp(gy: Value, y: Value, args: Any, *, axes: Shape) -> tuple[Value]:
    """Return the cotangent of sum's only argument, in `args`: `gy`, the output's, repeated along the summed axes."""
    shape = shape_of(args[0])
    return (broadcast(reshape(gy, tuple(1 if a in axes else n for a, n in enumerate(shape))), shape),)


def _sum_spec(x: Array, *, axes: Shape) -> Array:
    """Return the sum of x over `axes`, in the scalar type of x."""
    if x.dtype == object and x.size == 0:
        return scalar.zeros(_sum_shape(x.shape, axes=axes), x)  # NumPy would answer with the integer 0
    return np.asarray(np.sum(x, axis=axes), dtype=x.dtype)


def _sum_case(rng: Random) -> Case:
    """Return random arguments and parameters of sum, drawn by `rng`, for the law tests."""
    x = sample_inputs.numbers(rng, sample_inputs.lead(rng) + sample_inputs.sizes(rng, 2))
    return (x,), {"axes": tuple(a for a in range(x.ndim) if rng.random() < 0.5)}


SUM = register(
    Op(
        name="sum",
        shape=_sum_shape,
        spec=_sum_spec,
        vjp=_sum_vjp,
        cases=_sum_case,
        footprint=reduced,
        linear="all",
        readers=one_reader,
        monotone=(0,),
        roundings=lambda x, *, axes: max(0, math.prod(x[a] for a in axes) - 1),
    )
)


@cached_call
def sum_(x: Value, axes: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Value:
    """The sum over axes.

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
        Without the axes, or with one cell in each.

    Raises
    ------
    ShapeError
        For axes that do not exist, or are named twice.

    Examples
    --------
    >>> sum_(np.ones((2, 3)), 1)
    array([3., 3.])
    """
    shape = shape_of(x)
    positions = axes_of("sum", axes, len(shape))
    if keepdims and positions and (y := by_engine("sum", x, axes=positions)) is not None:
        return y
    y = apply(SUM, x, axes=positions) if positions else x
    return keep_axes(y, shape, positions) if keepdims else y


def keep_axes(y: Value, shape: Shape, axes: Shape) -> Value:
    """Return a reduced y reshaped so that the reduced axes of `shape` are back, with size 1."""
    return reshape(y, tuple(1 if a in axes else n for a, n in enumerate(shape)))
