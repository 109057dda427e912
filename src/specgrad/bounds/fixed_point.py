"""Real numbers in fixed point with proven radii: arrays of whole digits in float64, so that large layers are exact.
Numbers of more than MAX_DIGITS digits raise UnsupportedError, radii that are no numbers any more RadiusError.

A number is a whole multiple of one unit, 2^-bits, split into digits of `width` bits: d[0] + d[1]*B + d[2]*B^2 + ...
with -B/2 <= d[k] < B/2. Digits are floats that hold whole numbers. Products of digits and sums of products stay below
2^53, so a convolution of digits by NumPy is exact in whatever order it adds. What is cut off, and what is not exact
to begin with, is counted by a radius per cell, in whole units, rounded up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import ScalarError, UnsupportedError
from ..rounding.slack_constants import NEAR, SLACK, long_slack
from ..scalar import Array
from ..window import Shape

WHOLE = 2.0**52  # sums of digits stay below: with a carry added they are whole numbers of float64
LARGEST = 2.0**128  # inputs and constants are smaller: every float32 is
MAX_DIGITS = 200


class RadiusError(ScalarError):
    """What must be decided is within the radius: more digits are needed."""


@dataclass(frozen=True)
class DigitFormat:
    """How numbers are split: the bits of a digit (`width`), and how many digits stand behind the point (`places`).

    >>> DigitFormat(20, 3).bits
    60
    """

    width: int
    places: int

    @property
    def bits(self) -> int:
        """The unit is 2 to the minus `bits`."""
        return self.width * self.places

    @property
    def base(self) -> float:
        """The base of the digits, 2 to the `width`."""
        return 2.0**self.width

    @property
    def half(self) -> float:
        """Half of the base: no digit is larger."""
        return self.base / 2


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """An array of real numbers, each within `radius` units of what its digits say.

    form     how the numbers are split into digits
    digits   (count, *shape), the lowest first
    radius   of the shape: whole numbers, 0 where the number is exact
    """

    form: DigitFormat
    digits: Array
    radius: Array

    @property
    def shape(self) -> Shape:
        """The shape of the numbers."""
        return self.radius.shape

    @property
    def is_exact(self) -> bool:
        """Whether every number is exactly what its digits say."""
        return not self.radius.any()


def round_up(radius: Array, terms: float = 0.0) -> Array:
    """Return whole numbers that are not below `radius`, a float64 sum of so many terms (none of them negative).

    RadiusError if they are no numbers any more.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        least = np.ceil(np.asarray(radius) * long_slack(terms))
    if not (least < 2.0**900).all():
        raise RadiusError("fixed point", "radii are beyond all floats")
    return np.asarray(least)


def carried(form: DigitFormat, sums: Sequence[Array] | Array) -> Array:
    """Return digits of the same numbers, each in -B/2 <= d < B/2, without leading zeros; `sums` are whole and at most
    WHOLE.

    UnsupportedError for more than MAX_DIGITS digits.

    >>> carried(DigitFormat(4, 1), [np.array([100.0]), np.array([0.0])])[:, 0]
    array([4., 6.])
    """
    shape = np.shape(sums[0])
    done = np.empty((len(sums) + 2, *shape))
    carry: Any = np.zeros(shape)
    count = 0
    while count < len(sums) or carry.any():
        if count == len(done):
            done = np.concatenate([done, np.empty((8, *shape))])
        whole = np.add(sums[count], carry, out=done[count, ...]) if count < len(sums) else carry
        carry = np.asarray(whole + form.half)
        carry *= 1 / form.base
        np.floor(carry, out=carry)
        done[count] = whole - carry * form.base
        count += 1
    while count > 1 and not done[count - 1].any():
        count -= 1
    if count > MAX_DIGITS:
        raise UnsupportedError("fixed point", f"numbers of more than {MAX_DIGITS} digits")
    return done[:count]


# --- from and to other numbers ----------------------------------------------------------------------------------------


def fixed_point(form: DigitFormat, x: Any) -> FixedPoint:
    """Return floats, whole numbers or Fractions in fixed point; what is behind the last digit is cut and counted.

    UnsupportedError for what is no number, or is 2^128 or more.

    >>> y = fixed_point(DigitFormat(8, 1), [0.5, 2.0**-9, -3.0])
    >>> y.digits[0], y.radius
    (array([-128.,    0.,    0.]), array([0., 1., 0.]))
    """
    given = np.asarray(x)
    if given.dtype == object or (given.dtype.kind in "iu" and not _are_floats(given)):
        parts = [divmod(Fraction(int(v) if isinstance(v, np.integer) else v) * 2**form.bits, 1) for v in given.flat]
        cut = np.array([rest != 0 for _, rest in parts], dtype=float).reshape(given.shape)
        return from_integers(form, [whole for whole, _ in parts], cut)
    rest = given.astype(np.float64)
    if not (abs(rest) < LARGEST).all():
        raise UnsupportedError("fixed point", "a constant or an input is no number, or is beyond 2^128")
    rest = np.asarray(np.ldexp(rest, form.bits))
    top = int(np.frexp(abs(rest).max(initial=1.0))[1]) // form.width + 1
    digits: list[Array] = []
    for k in range(top, -1, -1):  # each step leaves a part of the float's bits: nothing is rounded
        power = 2.0 ** (form.width * k)
        digit = np.rint(rest * (1 / power))
        rest -= digit * power
        digits.append(digit)
    return FixedPoint(form, carried(form, digits[::-1]), np.asarray((rest != 0).astype(float)))


def fixed_number(form: DigitFormat, number: Any) -> FixedPoint:
    """Return one Python number in fixed point; UnsupportedError for an infinity and NaN."""
    if isinstance(number, float | np.floating) and not np.isfinite(number):
        raise UnsupportedError("fixed point", f"{number} is no number")
    return fixed_point(form, Fraction(number))


def _are_floats(given: Array) -> bool:
    """Return whether all of these integers lie within -2**53..2**53, so that float64 holds each of them; True if there
    is none.
    """
    return not given.size or -(2**53) <= int(given.min()) <= int(given.max()) <= 2**53


def from_integers(form: DigitFormat, units: Sequence[int], radius: Array) -> FixedPoint:
    """Return numbers given in whole units, in row-major order; `radius` has their shape."""
    left = np.empty(len(units), dtype=object)
    left[:] = [int(u) for u in units]
    digits: list[Array] = []
    half, base = int(form.half), int(form.base)
    while not digits or left.any():
        low = (left + half) % base - half
        digits.append(low.astype(np.float64).reshape(radius.shape))
        left = (left - low) // base
    return FixedPoint(form, carried(form, digits), np.asarray(radius, dtype=np.float64))


def integers(x: FixedPoint) -> list[int]:
    """Return what the digits say, in units, in row-major order.

    >>> integers(fixed_point(DigitFormat(8, 1), [0.5, -3.0]))
    [128, -768]
    """
    total = np.zeros(x.radius.size, dtype=object)
    for digit in x.digits[::-1]:
        total = total * int(x.form.base) + digit.reshape(-1).astype(np.int64).astype(object)
    return [int(v) for v in total]


def floats(x: FixedPoint) -> Array:
    """Return what the digits say as floats, in units: relatively nearer than NEAR, and 0 for 0 only.

    An infinity beyond the largest float.
    """
    total = np.zeros(x.shape)
    with np.errstate(over="ignore"):
        for digit in x.digits[::-1]:
            total = total * x.form.base + digit
    return np.asarray(total)


def magnitudes(x: FixedPoint) -> Array:
    """Return upper bounds of the absolute numbers, radii not counted; not in units."""
    return np.asarray(np.ldexp(abs(floats(x)) * (1 + NEAR), -x.form.bits))


def ends(x: FixedPoint) -> tuple[Array, Array]:
    """Return floats that no number is below, and none is above; an exact 0 stays 0. Beyond all floats: -inf and inf.

    >>> low, high = ends(fixed_point(DigitFormat(20, 3), [0.1, 0.0]))
    >>> bool(low[0] < 0.1 < high[0]), bool(low[1] == high[1] == 0)
    (True, True)
    """
    value = floats(x)
    beyond = np.isinf(value)
    value = np.where(beyond, 0.0, value)
    spread = np.where(beyond, np.inf, (abs(value) * NEAR + x.radius) * SLACK)
    down, up = np.nextafter(value - spread, -np.inf), np.nextafter(value + spread, np.inf)
    low, high = (np.nextafter(np.ldexp(v, -x.form.bits), side) for v, side in ((down, -np.inf), (up, np.inf)))
    return np.where(spread == 0, 0.0, low), np.where(spread == 0, 0.0, high)


# --- signs ------------------------------------------------------------------------------------------------------------


def is_decided(x: FixedPoint) -> Array:
    """Return where every number within the radius has one sign, 0 if it is exactly 0."""
    return np.asarray((x.radius == 0) | (abs(floats(x)) * (1 - NEAR) > x.radius))


def signs(x: FixedPoint) -> Array:
    """Return the sign of every number, -1, 0 or 1; RadiusError where it is open."""
    if not is_decided(x).all():
        raise RadiusError("fixed point", "a comparison is within the radius")
    return np.asarray(np.sign(floats(x)))


# --- sums -------------------------------------------------------------------------------------------------------------


def spread_to(x: FixedPoint, shape: Shape) -> FixedPoint:
    """Return x repeated to a shape by NumPy's rule, without a copy."""
    if x.shape == shape:
        return x
    digits = x.digits.reshape((len(x.digits),) + (1,) * (len(shape) - len(x.shape)) + x.shape)
    return FixedPoint(x.form, np.broadcast_to(digits, (len(digits), *shape)), np.broadcast_to(x.radius, shape))


def level(xs: Sequence[FixedPoint]) -> list[Array]:
    """Return the digits of every number, as many for each: zeros are set before the shorter ones."""
    count = max(len(x.digits) for x in xs)
    return [np.concatenate([x.digits, np.zeros((count - len(x.digits), *x.shape))]) if len(x.digits) < count
            else x.digits for x in xs]  # fmt: skip


def plus(x: FixedPoint, y: FixedPoint, sign: float = 1.0) -> FixedPoint:
    """Return x + sign*y, for a sign of 1 or -1, of one shape by NumPy's rule: exact but for both radii."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    p, q = level([spread_to(x, shape), spread_to(y, shape)])
    return FixedPoint(x.form, carried(x.form, p + sign * q), round_up(x.radius + y.radius))


def minus(x: FixedPoint, y: FixedPoint) -> FixedPoint:
    """Return x - y, of one shape by NumPy's rule: exact but for both radii."""
    return plus(x, y, -1.0)


def added(total: Callable[[Array], Array], x: FixedPoint) -> FixedPoint:
    """Return sums of cells of x; `total` computes them from an array of float64, and adds only.

    UnsupportedError for sums of too many cells.
    """
    terms = float(np.max(total(np.ones(x.shape)), initial=0.0))
    if terms * x.form.half > WHOLE:
        raise UnsupportedError("fixed point", f"sums of {terms:g} cells")
    sums = [np.asarray(total(np.asarray(digit, order="C"))) for digit in x.digits]
    return FixedPoint(x.form, carried(x.form, sums), round_up(total(np.array(x.radius)), terms))


def times_whole(x: FixedPoint, factors: Array) -> FixedPoint:
    """Return x times whole numbers below 2^25 in size, one per cell: exact but for the radius."""
    return FixedPoint(x.form, carried(x.form, x.digits * factors), round_up(x.radius * abs(factors)))


def divided(x: FixedPoint, counts: Array) -> FixedPoint:
    """Return x over positive whole numbers below 2^25, one per cell; a rest is cut, and counted as a unit."""
    shape = np.broadcast_shapes(x.shape, np.shape(counts))
    x, rest, digits = spread_to(x, shape), np.zeros(shape), []
    for digit in x.digits[::-1]:
        whole = rest * x.form.base + digit
        quotient = np.rint(whole / counts)
        rest = whole - quotient * counts
        digits.append(quotient)
    return FixedPoint(x.form, carried(x.form, digits[::-1]), round_up(x.radius / counts) + (rest != 0))
