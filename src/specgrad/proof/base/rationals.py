"""Numbers of a replay: rationals, and for many leaves fixed point in their place; and why nothing overflows.

Rationals are python-flint's, in object arrays, rounded outward to FRAC_BITS binary places.

In fixed point, a row of coefficients is int64 over 2**frac_bits, with frac_bits of its own such that no coefficient is
above 2**26. Ranges, offsets and errors of a node are int64 over 2**frac_bits with absolute values that add up to at
most 2**36, weights such that those of one column add up to at most 2**34. Then

    coefficients . ranges     is at most 2**26 * 2**36 = 2**62
    coefficients @ weights    is at most 2**26 * 2**34 = 2**60

for every partial sum, so int64 holds both exactly. Whatever rounding removes is subtracted from the bound, which is
rounded down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specgrad.errors import SpecgradError, need
from specgrad.scalar import Array

need("flint", "certificates need")

from flint import fmpq  # noqa: E402 - the line above says what to install

rational: Any = fmpq
DIGITS = 24  # of float32: its unit roundoff is 2**-24
LARGEST = ((1 << DIGITS) - 1) << (128 - DIGITS)  # float32's largest number
FRAC_BITS = 64  # binary places after the point of ranges and errors, which are rounded outward


class ReplayError(SpecgradError, ValueError):
    """Raised for a certificate that proves nothing; the text says why."""

    def __init__(self, text: str) -> None:
        super().__init__("certificate", text)


def rationals(x: Any) -> Array:
    """Return integers, or floats at their exact values, as an object array of python-flint rationals.

    >>> rationals(np.float32([0.5, 3]))
    array([1/2, 3], dtype=object)
    """
    given = np.asarray(x)
    return objects([rational(*v.as_integer_ratio()) for v in given.ravel().tolist()], given.shape)


def objects(cells: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """Return a list of cells as an object array of the given shape."""
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array.reshape(shape)


def zeros(shape: tuple[int, ...]) -> Array:
    """Return an object array of this shape whose cells are the rational 0."""
    array = np.empty(shape, dtype=object)
    array[...] = rational(0)
    return array


def cells(x: Any) -> Array:
    """Return `x` as an object array: NumPy returns a bare number where an array of rank 0 is meant."""
    return np.asarray(x, dtype=object)


def larger(a: Array, b: Array) -> Array:
    """Return the elementwise maximum of a and b, two arrays of rationals."""
    return cells(np.where(a > b, a, b))


def positive(x: Array) -> Array:
    """Return max(x, 0) of every cell, over rationals."""
    return cells(np.where(x > 0, x, rational(0)))


def outward(x: Array, direction: int) -> Array:
    """Return rationals rounded to FRAC_BITS binary places: up for direction 1, down for direction -1."""

    def cell(v: Any) -> Any:
        """Return one rational, rounded."""
        scaled = (int(v.p) << FRAC_BITS) * direction
        return rational(-(-scaled // int(v.q)) * direction, 1 << FRAC_BITS)

    given = cells(x)
    return objects([cell(v) for v in given.flat], given.shape)


def total(x: Array) -> Any:
    """Return the sum of all cells, as a rational."""
    return sum(cells(x).flat, rational(0))


# --- fixed point ------------------------------------------------------------------------------------------------------

COEFFICIENT_BITS, COLUMN_BITS = 26, 34  # bits: see above
MAX_BOUND_BITS = 60  # bits of a bound
POWERS = 1 << np.arange(63, dtype=np.int64)


def bits(x: Array) -> Array:
    """Return the bit length of integers >= 0, elementwise.

    >>> bits(np.array([0, 1, 4, 7, 8])).tolist()
    [0, 1, 3, 3, 4]
    """
    return np.searchsorted(POWERS, x, side="right")


def round_shift(a: Array, times: Array) -> Array:
    """Return a / 2**times rounded to the nearest integer, off by at most 1/2; times >= 0.

    >>> round_shift(np.array([5, 6, -6, 7]), np.array(2)).tolist()
    [1, 2, -1, 2]
    """
    return np.asarray((a + ((1 << times) >> 1)) >> times)


def round_scaled(x: Array, frac_bits: int) -> Array:
    """Return rationals times 2**frac_bits, rounded to the nearest integer, as int64; ReplayError beyond 62 bits."""
    return _int64([(floor_scaled(v, frac_bits + 1) + 1) // 2 for v in cells(x).flat], np.shape(x))


def ceil_scaled(x: Array, frac_bits: int) -> Array:
    """Return rationals times 2**frac_bits, rounded up, as int64; ReplayError beyond 62 bits."""
    return _int64([-floor_scaled(-v, frac_bits) for v in cells(x).flat], np.shape(x))


def floor_scaled(v: Any, frac_bits: int) -> int:
    """Return the rational v times 2**frac_bits, rounded down, as a Python integer."""
    return (int(v.p) << max(0, frac_bits)) // (int(v.q) << max(0, -frac_bits))


def _int64(cells: list[int], shape: tuple[int, ...]) -> Array:
    """Return Python integers `cells` as an int64 array of a shape; raise ReplayError if one has over 62 bits."""
    if any(abs(v) >= 1 << 62 for v in cells):
        raise ReplayError("a number does not fit into 62 bits")
    return np.array(cells, dtype=np.int64).reshape(shape)


def from_floats(x: Array, frac_bits: int, up: bool) -> Array:
    """Return finite floats times 2**frac_bits as int64, rounded up or down; values beyond +-2**60 become +-2**60.

    frexp takes a float apart and rounds nothing; all else is done on its digits.

    >>> from_floats(np.array([0.3, -0.3, 1e300]), 3, True).tolist() == [3, -2, 1 << 60]
    True
    """
    fraction, exponent = np.frexp(x.astype(np.float64))
    digits = np.ldexp(fraction, 53).astype(np.int64)
    down = 53 - frac_bits - exponent.astype(np.int64)
    sign = -1 if up else 1
    small = sign * ((sign * digits) >> np.clip(down, 0, 62))
    fits = bits(np.abs(digits)) - down <= MAX_BOUND_BITS
    large = np.where(fits, digits, 0) << np.clip(-down, 0, 62)
    return np.where(down >= 0, small, np.where(fits, large, np.sign(digits) << MAX_BOUND_BITS))


def shift_right_saturating(x: Array, down: int) -> Array:
    """Return x / 2**down rounded down; beyond 2**MAX_BOUND_BITS it is cut off there, with its sign.

    >>> shift_right_saturating(np.array([5, -5, 0]), 1).tolist()
    [2, -3, 0]
    >>> (shift_right_saturating(np.array([1, -1, 0]), -64) >> MAX_BOUND_BITS).tolist()
    [1, -1, 0]
    """
    if down >= 0:
        return np.asarray(x >> min(down, 63))
    fits = bits(np.abs(x)) - down <= MAX_BOUND_BITS
    return np.where(fits, x << min(-down, MAX_BOUND_BITS), np.sign(x) << MAX_BOUND_BITS)


def shift_left(x: Array, up: Array) -> Array:
    """Return x * 2**up, rounded down; the result must fit into 60 bits."""
    return np.asarray(np.where(up > 0, x << np.clip(up, 0, MAX_BOUND_BITS), x >> np.clip(-up, 0, 63)))


class Bound:
    """Lower bounds, one per row: int64 numerators over 2**frac_bits. Whatever is added is rounded down.

    Each row has frac_bits of its own, and loses some where a number would have over 60 bits.
    """

    def __init__(self, frac_bits: Array) -> None:
        self.frac_bits = np.asarray(frac_bits)
        self.numerators = np.zeros(self.frac_bits.shape, np.int64)

    def add(self, x: Array, frac_bits: Array | int) -> None:
        """Add x / 2**frac_bits, a number per row rounded down, to the bounds, in place; x are integers below 2**63 in
        size.

        >>> bound = Bound(np.array([1, 1]))
        >>> bound.add(np.array([-5, 1 << 62]), np.array([3, -1]))
        >>> bound.numerators.tolist(), bound.frac_bits.tolist()
        ([-2, 576460752303423488], [1, -4])
        """
        at = np.where(x == 0, self.frac_bits, np.minimum(self.frac_bits, frac_bits + MAX_BOUND_BITS - bits(np.abs(x))))
        added = shift_left(self.numerators, at - self.frac_bits) + shift_left(x, at - frac_bits)
        tall = (np.abs(added) >= 1 << MAX_BOUND_BITS).astype(np.int64)
        self.numerators, self.frac_bits = added >> tall, at - tall

    def over(self, frac_bits: int) -> Array:
        """Return the bounds times 2**frac_bits, rounded down; values beyond +-2**60 become +-2**60."""
        up = frac_bits - self.frac_bits
        fits = bits(np.abs(self.numerators)) + up <= MAX_BOUND_BITS
        return np.where(
            fits, shift_left(np.where(fits, self.numerators, 0), up), np.sign(self.numerators) << MAX_BOUND_BITS
        )

    def select_rows(self, rows: Array) -> Bound:
        """Return a new Bound of the rows that the index `rows` selects."""
        taken = Bound(self.frac_bits[rows])
        taken.numerators = self.numerators[rows]
        return taken


class Coefficients:
    """Coefficients (rows, cells) of one node's cells: int64 `a`, each row over 2**frac_bits of its own."""

    def __init__(self, a: Array, frac_bits: Array) -> None:
        self.a, self.frac_bits = a, np.broadcast_to(frac_bits, a.shape[:1])

    def select_rows(self, rows: Array) -> Coefficients:
        """Return new Coefficients of the rows that the index `rows` selects."""
        return Coefficients(self.a[rows], self.frac_bits[rows])

    def scaled(self, a: Array, frac_bits: int) -> Coefficients:
        """Return coefficients `a` over 2**(own frac_bits + frac_bits)."""
        return Coefficients(a, self.frac_bits + frac_bits)

    def into(self, bound: Bound, x: Array, frac_bits: int) -> None:
        """Add the products with x / 2**frac_bits, x of (cells) or (rows, cells), to a bound."""
        bound.add(products(self.a, x), self.frac_bits + frac_bits)


def products(a: Array, x: Array) -> Array:
    """Return sum(a * x) per row, for x of (cells) or (rows, cells)."""
    return np.asarray(a @ x if x.ndim == 1 else np.einsum("rc,rc->r", a, np.broadcast_to(x, a.shape)))


def sum_coefficients(parts: list[Coefficients], bound: Bound, size: Array, frac_bits: int) -> Coefficients:
    """Return the sum of `parts`, several coefficients of one node, shortened to 26 bits.

    size / 2**frac_bits, one number or one per row, is not below the sum of the node's absolute values. A shortened
    coefficient is off by at most 1/2 of its last digit; that times `size` is subtracted from the bound.

    >>> bound = Bound(np.array([20]))
    >>> whole = sum_coefficients([Coefficients(np.array([[3 << 26, 5]]), np.array([8]))], bound, np.array([1]), 0)
    >>> whole.a.tolist(), whole.frac_bits.tolist(), bound.numerators.tolist()
    ([[50331648, 1]], [6], [-8192])
    """
    if len(parts) == 1:
        return shortened(parts[0], bound, size, frac_bits)
    parts = [shortened(p, bound, size, frac_bits) for p in parts]  # so that many of them can be added
    sizes = [np.abs(p.a).max(1, initial=0) for p in parts]
    room = [
        np.where(m > 0, p.frac_bits + COEFFICIENT_BITS - bits(m), 1 << 40) for p, m in zip(parts, sizes, strict=True)
    ]
    at = np.minimum(np.minimum.reduce(room), np.maximum.reduce([p.frac_bits for p in parts]))  # as many as all can have
    a = np.zeros_like(parts[0].a)
    for p, m in zip(parts, sizes, strict=True):
        bound.add(np.where((p.frac_bits > at) & (m > 0), -size, 0), at + 1 + frac_bits)
        down = np.where(m > 0, p.frac_bits - at, 0)[:, None]
        a += np.where(down > 0, round_shift(p.a, np.clip(down, 0, 62)), p.a << np.clip(-down, 0, COEFFICIENT_BITS))
    return shortened(Coefficients(a, at), bound, size, frac_bits)


def shortened(given: Coefficients, bound: Bound, size: Array, frac_bits: int) -> Coefficients:
    """Return coefficients rounded to 26 bits, `given` itself if they have no more.

    Their error times size / 2**frac_bits is subtracted from the bound.
    """
    extra = np.maximum(bits(np.abs(given.a).max(1, initial=0)) - COEFFICIENT_BITS, 0)
    if not extra.any():
        return given
    at = given.frac_bits - extra
    bound.add(np.where(extra > 0, -size, 0), at + 1 + frac_bits)
    return Coefficients(round_shift(given.a, extra[:, None]), at)


def rows_of_leaves(x: Array, leaf: Array) -> Array:
    """Return the rows of `x` (leaves or 1, ...) that belong to the leaves with numbers `leaf`; one row serves all."""
    return x[leaf] if len(x) > 1 else x
