"""Ball: a value with a radius, which holds the exact value and every execution of an arithmetic.

After a possible overflow nothing is known, since inf - inf and 0*inf are NaN, which passes every bound. A cell whose
radius is infinite may be anything, NaN included. So may every cell computed from it, tanh and clamp not excepted: the
ranges of functions hold for numbers. Only what is no number stays known: a comparison gives 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ..scalar import Array
from . import slack_constants
from .fusion_region import RoundingCount

SLACK = slack_constants.SLACK  # covers the roundings of our own float64 arithmetic on radii, which are never negative


BLOCK = 2**14  # cells: a dozen arrays of them in float64 fit into a cache of 2 MB


@dataclass(frozen=True, eq=False)
class Candidates:
    """Alternatives for positions that rounding leaves undecided.

    Parameters
    ----------
    outs : tuple of array of int
        Output cells, an array of indices per axis.
    cells : array of int
        The flat position that each may hold.

    Examples
    --------
    >>> either = Candidates((np.array([0, 0]),), np.array([1, 3]))     # cell 0 holds 1 or 3
    >>> either.cells.tolist()
    [1, 3]
    """

    outs: tuple[Array, ...]
    cells: Array


@dataclass(frozen=True, eq=False)
class Stores:
    """The stores that a value of a region may have met.

    terms    of terms or coefficients: relative to the sum of absolute values
    value    of the whole cell: relative to its value
    before   what a store of one summand may have cost, as a number
    reads    what the region's first node reads, of a node that adds no constant; None of others, and behind them
    common   whether any constant factor is that of all terms of a cell, so that its store is one of the cell
    """

    terms: int = 0
    value: int = 0
    before: Array | float = 0.0
    reads: frozenset[int] | None = None
    common: bool = False


@dataclass(frozen=True, eq=False)
class Expansion:
    """A value as an expression of its fusion region's inputs, multiplied out; arrays in its shape.

    carried      how far the inputs' own radii can move it
    size         the sum of the absolute values of its terms
    least_size   what a radius of another factor is multiplied by: abs(value), or over a box its largest size
    most         an upper bound of every partial result, in whichever order factors and terms are taken: the expression
                 with every factor f replaced by max(1, abs(f)), and every product of divisors. One number for all
                 cells where that is enough
    count        roundings that a term may have met in the region
    group        name of the layer in which it was computed
    stores       stores that it may have met, and what they are relative to
    divided      what the divisors b of a term come to, as a product of max(1, abs(b)), in cells that are known; None:
                 unknown
    """

    group: str
    carried: Array
    size: Array
    least_size: Array
    most: Array
    count: RoundingCount
    stores: Stores = Stores()
    divided: Array | None = None

    @property
    def divisors(self) -> Array:
        """Return an upper bound of every product of divisors of one term, at least 1: one number, or one per cell."""
        return self.most if self.divided is None else self.divided


@dataclass(frozen=True, eq=False)
class Ball:
    """A proven enclosure: abs(any computed value - value) <= radius, cell by cell; the exact value lies there too.

    Parameters
    ----------
    value : array
        The value; integers for positions (the winner of a maximum).
    radius : array
        Of its shape; inf where nothing is proven, and for positions where rounding may choose another one.
    candidates : Candidates, optional
        Which positions rounding may choose; None: any.
    expansion : Expansion, optional
        The value as an expression of its fusion region, for layers that a runtime may merge with this one.
    ends : (array, array), optional
        A lower and an upper bound that hold besides: 0 for a relu, which value - radius may miss by a rounding.
    whole : bool, default False
        Whether every computed value is a whole number between the ends.

    Examples
    --------
    >>> ball = Ball(np.array([1.0]), np.array([0.25]))
    >>> bool(ball.low <= 0.75), bool(ball.high >= 1.25)
    (True, True)
    """

    value: Array
    radius: Array
    candidates: Candidates | None = None
    expansion: Expansion | None = field(default=None, repr=False)
    ends: tuple[Array, Array] | None = field(default=None, repr=False)
    whole: bool = field(default=False, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the value."""
        return self.value.shape

    @cached_property
    def low(self) -> Array:
        """Return a lower bound of every value, cell by cell."""
        return np.asarray(in_blocks(_low, *self._numbers))

    @cached_property
    def high(self) -> Array:
        """Return an upper bound of every value, cell by cell."""
        return np.asarray(in_blocks(_high, *self._numbers))

    @cached_property
    def size(self) -> Array:
        """Return an upper bound of the absolute value, cell by cell."""
        return np.asarray(in_blocks(_size, *self._numbers))

    @property
    def least(self) -> Array:
        """Return a lower bound of the absolute value, cell by cell."""
        return np.asarray(in_blocks(_least, *self._numbers))

    @property
    def _numbers(self) -> tuple[Array | None, ...]:
        """Return value, radius, and the ends or None."""
        return self.value, self.radius, *(self.ends or (None, None))

    def flushed(self, tiny: float) -> Ball:
        """Return the ball after numbers below `tiny` may have become zero.

        >>> Ball(np.array([1.0, 1e-40, 9e-39]), np.zeros(3)).flushed(1e-38).radius
        array([0.e+00, 1.e-40, 9.e-39])
        """
        near = np.asarray(in_blocks(lambda *numbers: _may_be_below(2 * tiny, *numbers), self.value, self.radius))
        if not near.any():  # few cells are: the others are not looked at again
            return self
        lost = _lost(tiny, *(a if a is None else np.broadcast_to(a, near.shape)[near] for a in self._numbers))
        if not lost.any():
            return self
        radius = np.array(np.broadcast_to(self.radius, near.shape))
        radius[near] += lost
        near[near] = lost > 0
        ends = self.ends and (
            np.where(near, np.fmin(self.low, 0), self.low),
            np.where(near, np.fmax(self.high, 0), self.high),
        )
        return replace(self, radius=radius, ends=ends)

    @property
    def is_exact(self) -> bool:
        """Return whether all radii are 0."""
        return not self.radius.any()

    def contains(self, computed: Any) -> Array:
        """Return, cell by cell, whether a computed array lies in the ball; NaN and infinities only if the value is the
        same.

        >>> Ball(np.array([1.0, 2.0]), np.array([0.5, 0.0])).contains([1.25, 2.5])
        array([ True, False])
        """
        if self.value.dtype.kind == "i":
            return are_equal_integers(np.asarray(computed), self.value) | np.isinf(self.radius)
        got = np.asarray(computed).astype(float)
        with np.errstate(all="ignore"):
            near = np.abs(got - self.value) <= self.radius
            if self.whole:
                near = near & (got == np.rint(got)) & (got >= self.low) & (got <= self.high)
        same = (got == self.value) | (np.isnan(got) & np.isnan(self.value))
        return np.asarray(near | same | np.isinf(self.radius))


def are_equal_integers(got: Array, value: Array) -> Array:
    """Return, cell by cell, whether numbers of any type are these int64 numbers, all of whose digits count.

    >>> are_equal_integers(np.array([2.0**53, 2.5]), np.array([2**53 + 1, 2])).tolist()
    [False, False]
    """
    if got.dtype.kind != "f":
        return np.asarray(got == value)
    whole = (np.rint(got) == got) & (np.abs(got) < 2.0**63)
    return np.asarray(whole & (np.where(whole, got, 0).astype(np.int64) == value))


def _outward(x: Array, radius: Array, direction: int) -> Array:
    """Return x where the radius is 0, elsewhere x moved up (`direction` > 0) or down by at least one float64 step
    (faster than np.nextafter).
    """
    with np.errstate(invalid="ignore", over="ignore"):
        step = np.abs(x) * slack_constants.OUTWARD
        step += slack_constants.LEAST
        return np.where(radius == 0, x, x + step if direction > 0 else x - step)


def _low(value: Array, radius: Array, bottom: Array | None, top: Array | None) -> Array:
    """Return a lower bound of the values within `radius` of `value`, and between `bottom` and `top` (None: no such
    end).
    """
    low = _outward(value - radius, radius, -1)
    return low if bottom is None else np.fmax(low, bottom)


def _high(value: Array, radius: Array, bottom: Array | None, top: Array | None) -> Array:
    """Return an upper bound of the values within `radius` of `value`, and between `bottom` and `top` (None: no such
    end).
    """
    high = _outward(value + radius, radius, 1)
    return high if top is None else np.fmin(high, top)


def _size(value: Array, radius: Array, bottom: Array | None, top: Array | None) -> Array:
    """Return an upper bound of the absolute values within `radius` of `value`, and between `bottom` and `top` if
    known.
    """
    size = _outward(np.abs(value) + radius, radius, 1)
    if bottom is None:
        return size
    ends = _low(value, radius, bottom, top), _high(value, radius, bottom, top)
    return np.fmin(size, np.maximum(*map(np.abs, ends)))


def _least(value: Array, radius: Array, bottom: Array | None, top: Array | None) -> Array:
    """Return a lower bound of abs of all numbers within `radius` of `value`, and in `bottom`..`top` if both are
    known.
    """
    with np.errstate(invalid="ignore"):  # an infinite value with an infinite radius may be anything: 0
        least = np.fmax(0.0, _outward(np.abs(value) - radius, radius, -1))
        return least if bottom is None or top is None else np.fmax(least, np.fmax(bottom, -top))


def _may_be_below(limit: float, value: Array, radius: Array) -> Array:
    """Return a mask of all cells that are not exactly 0 and may hold a number whose absolute value is below limit/2."""
    with np.errstate(invalid="ignore"):  # an infinite value with an infinite radius: NaN, which is not >= limit
        return np.asarray(~(np.abs(value) - radius >= limit) & ((value != 0) | (radius != 0)))


def _lost(tiny: float, *numbers: Any) -> Array:
    """Return what a ball of these numbers, see `_low`, loses where a number below `tiny` becomes zero."""
    near = np.isfinite(numbers[0]) & (_least(*numbers) < tiny)
    return np.where(near, np.minimum(_size(*numbers), tiny), 0.0)


def exact_ball(value: Array) -> Ball:
    """Return the ball of a value with radius 0."""
    return Ball(value, np.zeros(value.shape))


def between(value: Array, low: Array, high: Array) -> Ball:
    """Return the ball around `value` that reaches to low and high; radius inf where an end is NaN."""
    with np.errstate(all="ignore"):
        reach = np.maximum(np.where(high == value, 0.0, high - value), np.where(low == value, 0.0, value - low))
    known = (low == high) & (low == value)
    reach = np.where(known, 0.0, np.where(np.isnan(reach), np.inf, np.maximum(reach, 0.0) * SLACK))
    return Ball(value, reach)


def hull(low: Array, high: Array, value: Array | float = 0.0) -> Ball:
    """Return the ball with ends low and high; around `value` where one of them is infinite or NaN.

    >>> ball = hull(np.array([0.0]), np.array([0.1]))
    >>> ball.low, ball.high, bool(ball.radius > 0.05)
    (array([0.]), array([0.1]), True)
    """
    with np.errstate(all="ignore"):
        middle = np.where(np.isfinite(low) & np.isfinite(high), low / 2 + high / 2, value)
    ball = between(middle, low, high)
    return Ball(middle, ball.radius, ends=(low, high))


# --- unknown cells ----------------------------------------------------------------------------------------------------


def unknown(ball: Ball) -> Array:
    """Return a mask of cells about which nothing is proven; undecided positions are not among them."""
    return np.isinf(ball.radius) if ball.value.dtype.kind == "f" else np.zeros(ball.shape, dtype=bool)


def propagate_unknown(ball: Ball, args: Sequence[Ball]) -> Ball:
    """Return the ball of a function of cells, unknown and without ends where an argument is unknown."""
    lost = unknown(ball)
    for a in args:
        if a.shape in ((), ball.shape):
            lost = lost | unknown(a)
    return mark_unknown_cells(ball, lost)


def mark_unknown_cells(ball: Ball, lost: Array) -> Ball:
    """Return the ball with radius inf and no ends in the cells `lost`."""
    if not lost.any():
        return ball
    ends = ball.ends and (np.where(lost, -np.inf, ball.ends[0]), np.where(lost, np.inf, ball.ends[1]))
    return replace(ball, radius=np.where(lost, np.inf, ball.radius), ends=ends)


def open_ends(ball: Ball) -> tuple[Array, Array]:
    """Return (low, high), infinite in unknown cells."""
    lost = unknown(ball)
    return np.where(lost, -np.inf, ball.low), np.where(lost, np.inf, ball.high)


# --- blocks of cells --------------------------------------------------------------------------------------------------


def in_blocks(function: Callable[..., Any], *arrays: Any) -> Any:
    """Return function(*arrays), an array or a tuple of arrays of the arrays' common shape, computed block by block.

    The numbers are those of one call. Arrays of millions of cells are slow to make and to fill, and blocks stay in a
    processor's cache: an expression of twenty operations need not wait for memory twenty times.

    function   goes cell by cell; arrays may be numbers, or None, which it gets as they are

    >>> x = np.arange(100_000.0)
    >>> bool((in_blocks(lambda x, y: np.sqrt(x) + y, x, 1.0) == np.sqrt(x) + 1).all())
    True
    """
    shapes = {np.shape(a) for a in arrays if a is not None}
    shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    count = math.prod(shape)
    if count <= 2 * BLOCK:
        return function(*arrays)
    order = _common_order([np.asarray(a) for a in arrays if np.shape(a) == shape])
    flat = [a if a is None else _flattened(np.asarray(a), shape, order) for a in arrays]
    whole: list[Array] = []
    single = True
    for first in range(0, count, BLOCK):
        block = slice(first, first + BLOCK)
        result = function(*(a if a is None or a.ndim == 0 else a[block] for a in flat))
        single = not isinstance(result, tuple)
        parts = (result,) if single else result
        whole = whole or [np.empty(count, np.asarray(part).dtype) for part in parts]
        for out, part in zip(whole, parts, strict=True):
            out[block] = part
    results = tuple(out.reshape(shape, order=order) for out in whole)
    return results[0] if single else results


def _common_order(arrays: Sequence[Array]) -> Literal["C", "F"]:
    """Return the order in which the cells of most of these arrays lie: flattening those needs no copy."""
    columns = sum(a.flags.f_contiguous for a in arrays)
    return "F" if columns > sum(a.flags.c_contiguous for a in arrays) else "C"


def _flattened(a: Array, shape: tuple[int, ...], order: Literal["C", "F"]) -> Array:
    """Return the array, broadcast to a shape, with one axis, in `order` "C" or "F".

    Rank 0 where one number is repeated.
    """
    if a.ndim == 0 or not any(a.strides):
        return np.asarray(a.flat[0])
    return np.broadcast_to(a, shape).reshape(-1, order=order)
