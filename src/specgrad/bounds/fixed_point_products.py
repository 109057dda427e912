"""Products, quotients and choices of numbers in fixed point. Numbers of more than MAX_DIGITS digits raise
UnsupportedError, radii that are no numbers any more RadiusError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..deadline import check_time
from ..errors import UnsupportedError, need
from ..rounding.slack_constants import NEAR, SUMS
from ..scalar import Array
from ..window import Shape
from .fixed_point import (
    MAX_DIGITS,
    WHOLE,
    DigitFormat,
    FixedPoint,
    RadiusError,
    carried,
    fixed_point,
    floats,
    from_integers,
    integers,
    is_decided,
    magnitudes,
    minus,
    round_up,
    spread_to,
    times_whole,
)

Product = Callable[[Array, Array], Array]
MOST_MULTIPLE = 2.0**24  # of a step, where no limits are given
SPARE_BITS = 64  # of balls, beside those of the fixed point


class Products:
    """Sums of products of digits, by position, from one below the unit upwards; none is ever rounded.

    form    how numbers are split; `lowest` is the position of the digit below the unit
    terms   the most products that one call adds in a cell; UnsupportedError for more than digits so wide allow
    """

    def __init__(self, form: DigitFormat, terms: float) -> None:
        self.form, self.lowest = form, form.places - 1
        self.share = terms * form.half**2
        self.room = WHOLE // self.share if self.share else WHOLE
        if self.room < 2:
            raise UnsupportedError("fixed point", f"{terms:g} products in a sum are too many for digits so wide")
        self.sums: list[Array] = []
        self.used = 0
        self.lost = 0.0  # of what was left out, in units

    def add(self, position: int, products: Array) -> None:
        """Add an array of sums of products of digits whose positions add up to `position`."""
        if self.used + 1 > self.room:  # carried digits are smaller than one more product
            self.sums, self.used = list(carried(self.form, self.sums)), 1
        while len(self.sums) <= position - self.lowest:
            self.sums.append(np.zeros(products.shape))
        self.sums[position - self.lowest] += products
        self.used += 1

    def leave_out(self, position: int) -> None:
        """Count the products of two digits that are not both zeros, below `lowest`, as lost."""
        self.lost += self.share * 2.0 ** (self.form.width * (position - self.form.places))

    def result(self, shape: Shape, radius: Array) -> FixedPoint:
        """Return the sum: what stands below the unit is cut, and counted with what was left out beside `radius`."""
        digits = carried(self.form, self.sums or [np.zeros(shape)])
        kept = digits[1:] if len(digits) > 1 else np.zeros((1, *shape))
        cut = (digits[0] != 0) + self.lost * SUMS
        return FixedPoint(self.form, kept, round_up(radius + cut))


def multiplied(product: Product, x: FixedPoint, y: FixedPoint) -> FixedPoint:
    """Return sums of products of x and y; `product` computes them from two arrays of float64, and is linear in each.

    It only multiplies cells of both and adds, with no other factor: its result on ones counts the terms.
    """
    counts = np.asarray(product(np.ones(x.shape), np.ones(y.shape)))
    terms = float(counts.max(initial=0.0))
    sums = Products(x.form, terms)
    ours, theirs = ([(i, np.asarray(d, order="C")) for i, d in enumerate(z.digits) if d.any()] for z in (x, y))
    for i, p in ours:
        check_time("products in fixed point")
        for j, q in theirs:
            if i + j < sums.lowest:
                sums.leave_out(i + j)
            else:
                sums.add(i + j, np.asarray(product(p, q)))
    return sums.result(counts.shape, _product_radius(product, x, y, terms, counts.shape))


def _product_radius(product: Product, x: FixedPoint, y: FixedPoint, terms: float, shape: Shape) -> Array:
    """Return how far the products are from those of the digits, in units: |x|*s + r*(|y| + s) for the radii r of x, s
    of y.
    """
    radius, (r, s) = np.zeros(shape), (np.array(z.radius) for z in (x, y))
    if s.any():
        radius = radius + product(magnitudes(x), s)
    if r.any():
        radius = radius + product(r, (magnitudes(y) + np.ldexp(s, -y.form.bits)) * (1 + NEAR))
    return round_up(radius, 2 * terms)


def times(x: FixedPoint, y: FixedPoint) -> FixedPoint:
    """Return x*y cell by cell, of one shape by NumPy's rule."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    return multiplied(np.multiply, spread_to(x, shape), spread_to(y, shape))


# --- choices ----------------------------------------------------------------------------------------------------------


def chosen(where: Array, x: FixedPoint, y: FixedPoint) -> FixedPoint:
    """Return x where `where` is true, else y."""
    count = max(len(x.digits), len(y.digits))
    shape = np.broadcast_shapes(x.shape, y.shape, where.shape)
    digits = np.zeros((count, *shape))
    for z, here in ((y, ~where), (x, where)):
        for k, digit in enumerate(z.digits):
            np.copyto(digits[k, ...], digit, where=here)
    return FixedPoint(x.form, carried(x.form, digits), np.where(where, x.radius, y.radius))


def larger(x: FixedPoint, y: FixedPoint) -> FixedPoint:
    """Return the larger of every two cells; where the radii leave it open, one of both with the larger radius.

    That is enough: a maximum moves by no more than its arguments do.
    """
    apart = minus(x, y)
    z = chosen(floats(apart) > 0, x, y)
    radius = np.where(is_decided(apart), z.radius, np.maximum(x.radius, y.radius))
    return FixedPoint(x.form, z.digits, radius)


def negative(x: FixedPoint) -> FixedPoint:
    """Return -x, exactly."""
    return FixedPoint(x.form, carried(x.form, -x.digits), x.radius)


def smaller(x: FixedPoint, y: FixedPoint) -> FixedPoint:
    """Return the smaller of every two cells, as `larger` does."""
    return negative(larger(negative(x), negative(y)))


def ranks(x: FixedPoint) -> tuple[Array, Array]:
    """Return a whole number per cell that orders cells as what their digits say, equal ones alike, from 1; and, by
    rank, a cell in row-major order.

    >>> ranks(fixed_point(DigitFormat(8, 1), [0.5, -3.0, 0.5, 0.25]))[0]
    array([3., 1., 3., 2.])
    """
    flat = x.digits.reshape(len(x.digits), -1)
    order = np.lexsort(flat)  # the last row, the highest digit, decides first
    new = np.zeros(len(order), dtype=bool)
    new[:1] = True
    for digit in flat:
        new[1:] |= digit[order][1:] != digit[order][:-1]
    rank = np.empty(len(order))
    rank[order] = np.cumsum(new)
    return rank.reshape(x.shape), order[new]


def selected(x: FixedPoint, places: tuple[Array, Array], radius: Array) -> FixedPoint:
    """Return the cells of x that `places` names: ranks, 0 for the number 0, and cells by rank; with this radius."""
    rank, cells = places
    flat = x.digits.reshape(len(x.digits), -1)
    if not flat.shape[1]:
        return FixedPoint(x.form, np.zeros((1, *rank.shape)), radius)
    at = cells[np.maximum(rank.astype(np.int64) - 1, 0)]
    return FixedPoint(x.form, carried(x.form, np.where(rank == 0, 0.0, flat[:, at])), radius)


# --- whole numbers ----------------------------------------------------------------------------------------------------


def nearest_multiples(x: FixedPoint, step: FixedPoint, low: Any = None, high: Any = None) -> Array:
    """Return x/step rounded to whole numbers, ties to even, limited to low..high: arrays of whole numbers, or None.

    Exactly what it is for every x and step within the radii. RadiusError where that is open; UnsupportedError for steps
    that are not positive, and multiples beyond 2^24.
    """
    step = spread_to(step, x.shape)
    size = floats(step)
    if not (size * (1 - NEAR) > step.radius).all():
        raise UnsupportedError("fixed point", "a step that is not shown to be positive")
    low = np.broadcast_to(-MOST_MULTIPLE if low is None else low, x.shape)
    high = np.broadcast_to(MOST_MULTIPLE if high is None else high, x.shape)
    near = np.clip(np.rint(floats(x) / size), low, high)
    if (abs(near) >= MOST_MULTIPLE).any():
        raise UnsupportedError("fixed point", "a multiple beyond 2^24")
    for _ in range(4):
        better = _nearer(x, step, near, low, high)
        if (better == near).all():
            return near
        near = better
    raise RadiusError("fixed point", "the nearest multiple was not found")


def _nearer(x: FixedPoint, step: FixedPoint, near: Array, low: Array, high: Array) -> Array:
    """Return `near` where it is the multiple that is sought, else the next one towards x; RadiusError where that is
    open.
    """
    rest = minus(x, times_whole(step, near))
    side = np.where(floats(rest) < 0, -1.0, 1.0)  # 1 for 0 too: what is 0 within a radius may be on either side
    twice = minus(times_whole(rest, 2 * side), step)  # above 0: farther than half a step
    far = floats(twice)
    limited = ((near == high) & (side > 0)) | ((near == low) & (side < 0))
    outside = is_decided(rest) & limited
    if not (is_decided(twice) | outside).all():
        raise RadiusError("fixed point", "a number to round is within the radius of a tie")
    tie_to_other = (far == 0) & (near % 2 != 0)
    return np.where(outside | ~((far > 0) | tie_to_other), near, np.clip(near + side, low, high))


def floors(x: FixedPoint) -> Array:
    """Return the largest whole numbers that are not above x; RadiusError where that is open."""
    near = _near_whole(x)
    rest = minus(x, fixed_point(x.form, near))
    if not is_decided(rest).all():
        raise RadiusError("fixed point", "a number to round is within the radius of a whole one")
    return near - (floats(rest) < 0)


def _near_whole(x: FixedPoint) -> Array:
    """Return whole numbers less than 1 away from x, whose side tells the floor; UnsupportedError beyond 2^24."""
    near = np.rint(np.ldexp(floats(x), -x.form.bits))
    if (abs(near) >= MOST_MULTIPLE).any():
        raise UnsupportedError("fixed point", "a whole number beyond 2^24")
    return near


# --- balls ------------------------------------------------------------------------------------------------------------


def to_balls(x: FixedPoint) -> Array:
    """Return the numbers as an object array of balls that hold all within the radii (python-flint)."""
    need("flint", "balls need")
    import flint

    unit = flint.arb(2) ** -x.form.bits
    out = np.empty(x.radius.size, dtype=object)
    cells = zip(integers(x), x.radius.flat, strict=True)
    out[:] = [(flint.arb(v, float(r)) if r else flint.arb(v)) * unit for v, r in cells]
    return out.reshape(x.shape)


def _shifted(whole: int, power: int) -> tuple[int, bool]:
    """Return whole * 2**power rounded down, and whether that cut anything; any power below 0 costs no more than one
    step beyond the last digit.

    >>> _shifted(-3, 2), _shifted(-3, -1), _shifted(-3, -(10**18)), _shifted(0, -9)
    ((-12, False), (-2, True), (-1, True), (0, False))
    """
    if power >= 0:
        return whole << power, False
    steps = min(-power, whole.bit_length() + 1)
    return whole >> steps, whole != whole >> steps << steps


def from_balls(form: DigitFormat, cells: Array) -> FixedPoint:
    """Return an object array of balls in fixed point; RadiusError for balls without an end."""
    import flint

    scale, whole, radius = flint.arb(2) ** form.bits, [], []
    for ball in cells.flat:
        if not ball.is_finite():
            raise RadiusError("fixed point", "a ball without an end")
        middle, power = (int(v) for v in ball.mid().man_exp())
        power += form.bits
        if power > MAX_DIGITS * form.width:  # before such a number is written out
            raise UnsupportedError("fixed point", f"numbers of more than {MAX_DIGITS} digits")
        units, inexact = _shifted(middle, power)
        rad = float((ball.rad() * scale).upper())
        whole.append(units)
        radius.append((np.ceil(np.nextafter(rad, np.inf)) if ball.rad() > 0 else 0.0) + inexact)
    return from_integers(form, whole, round_up(np.array(radius, dtype=float).reshape(cells.shape)))
