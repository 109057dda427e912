"""Ball: a value with a radius, which holds the exact value and every execution of an arithmetic.

After a possible overflow nothing is known, since inf - inf and 0*inf are NaN, which passes every bound. A cell whose
radius is infinite may be anything, NaN included. So may every cell computed from it, tanh and clamp not excepted: the
ranges of functions hold for numbers. Only what is no number stays known: a comparison gives 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..scalar import Array
from . import slack_constants
from .fusion_region import RoundingCount

SLACK = slack_constants.SLACK  # covers the roundings of our own float64 arithmetic on radii, which are never negative


@dataclass(frozen=True, eq=False)
class Candidates:
    """Alternatives for positions that rounding leaves undecided: output cells, `outs`, and a flat position, in `cells`,
    that each may hold.
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
                 with every factor f replaced by max(1, abs(f)). One number for all cells where that is enough
    count        roundings that a term may have met in the region
    group        name of the layer in which it was computed
    stores       stores that it may have met, and what they are relative to
    """

    group: str
    carried: Array
    size: Array
    least_size: Array
    most: Array
    count: RoundingCount
    stores: Stores = Stores()


@dataclass(frozen=True, eq=False)
class Ball:
    """abs(any computed value - value) <= radius, cell by cell; the exact value lies there too.

    radius is inf where nothing is proven. For positions (the winner of a maximum) value holds integers, radius is inf
    where rounding may choose another one, and `candidates` says which (None: any). `ends`, where given, are a lower and
    an upper bound that hold besides: 0 for a relu, which value - radius may miss by a rounding. `whole`: every computed
    value is a whole number between the ends. `expansion` is the value as an expression of its fusion region, for layers
    that a runtime may merge with this one.
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
        low = _outward(self.value - self.radius, self.radius, -1)
        return low if self.ends is None else np.fmax(low, self.ends[0])

    @cached_property
    def high(self) -> Array:
        """Return an upper bound of every value, cell by cell."""
        high = _outward(self.value + self.radius, self.radius, 1)
        return high if self.ends is None else np.fmin(high, self.ends[1])

    @cached_property
    def size(self) -> Array:
        """Return an upper bound of the absolute value, cell by cell."""
        size = _outward(np.abs(self.value) + self.radius, self.radius, 1)
        return size if self.ends is None else np.fmin(size, np.maximum(np.abs(self.low), np.abs(self.high)))

    @property
    def least(self) -> Array:
        """Return a lower bound of the absolute value, cell by cell."""
        with np.errstate(invalid="ignore"):  # an infinite value with an infinite radius may be anything: 0
            least = np.fmax(0.0, _outward(np.abs(self.value) - self.radius, self.radius, -1))
            return least if self.ends is None else np.fmax(least, np.fmax(self.ends[0], -self.ends[1]))

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
        got = np.asarray(computed).astype(float)
        with np.errstate(all="ignore"):
            near = np.abs(got - self.value) <= self.radius
            if self.whole:
                near = near & (got == np.rint(got)) & (got >= self.low) & (got <= self.high)
        same = (got == self.value) | (np.isnan(got) & np.isnan(self.value))
        return np.asarray(near | same | np.isinf(self.radius))


def _outward(x: Array, radius: Array, direction: int) -> Array:
    """Return x where the radius is 0, elsewhere x moved up (`direction` > 0) or down by at least one float64 step
    (faster than np.nextafter).
    """
    with np.errstate(invalid="ignore"):
        step = np.abs(x) * slack_constants.OUTWARD + slack_constants.LEAST
        return np.where(radius == 0, x, x + step if direction > 0 else x - step)


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
