"""Whole numbers in place of rationals: what a replay of many leaves computes with, and why nothing overflows.

A row of coefficients is int64 with a number of binary places of its own, so that no coefficient is above 2**26. Ranges,
offsets and errors of a node are int64 over 2**places with absolute values that add up to at most 2**36, weights such
that those of one column add up to at most 2**34. Then

    coefficients . ranges     is at most 2**26 * 2**36 = 2**62
    coefficients @ weights    is at most 2**26 * 2**34 = 2**60

whatever part of the sum is taken, so int64 holds both exactly. What is shortened is charged to the bound, which is
rounded down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specgrad.scalar import Array

from .rationals import ReplayError, cells

COEFFICIENT, COLUMN, CELLS = 26, 34, 36  # bits: see above
MOST = 60  # bits of a bound
POWERS = 1 << np.arange(63, dtype=np.int64)


def bits(x: Array) -> Array:
    """How many binary digits whole numbers >= 0 have.

    >>> bits(np.array([0, 1, 4, 7, 8])).tolist()
    [0, 1, 3, 3, 4]
    """
    return np.searchsorted(POWERS, x, side="right")


def halved(a: Array, times: Array) -> Array:
    """a / 2**times to the nearest whole number, off by at most 1/2; times >= 0.

    >>> halved(np.array([5, 6, -6, 7]), np.array(2)).tolist()
    [1, 2, -1, 2]
    """
    return np.asarray((a + ((1 << times) >> 1)) >> times)


def nearest(x: Array, places: int) -> Array:
    """Rationals times 2**places, to the nearest whole number; 62 bits must hold them."""
    return _int64([(down(v, places + 1) + 1) // 2 for v in cells(x).flat], np.shape(x))


def upward(x: Array, places: int) -> Array:
    """Rationals times 2**places, to the next whole number not below."""
    return _int64([-down(-v, places) for v in cells(x).flat], np.shape(x))


def down(v: Any, places: int) -> int:
    """A rational times 2**places, to the next whole number not above."""
    return (int(v.p) << max(0, places)) // (int(v.q) << max(0, -places))


def _int64(cells: list[int], shape: tuple[int, ...]) -> Array:
    if any(abs(v) >= 1 << 62 for v in cells):
        raise ReplayError("a number does not fit into 62 bits")
    return np.array(cells, dtype=np.int64).reshape(shape)


def from_floats(x: Array, places: int, up: bool) -> Array:
    """Finite floats times 2**places, to the next whole number not above, or not below; 2**60 stands for what is larger.

    frexp takes a float apart and rounds nothing; all else is done on its digits.

    >>> from_floats(np.array([0.3, -0.3, 1e300]), 3, True).tolist() == [3, -2, 1 << 60]
    True
    """
    fraction, exponent = np.frexp(x.astype(np.float64))
    digits = np.ldexp(fraction, 53).astype(np.int64)
    down = 53 - places - exponent.astype(np.int64)
    sign = -1 if up else 1
    small = sign * ((sign * digits) >> np.clip(down, 0, 62))
    fits = bits(np.abs(digits)) - down <= MOST
    large = np.where(fits, digits, 0) << np.clip(-down, 0, 62)
    return np.where(down >= 0, small, np.where(fits, large, np.sign(digits) << MOST))


def moved(x: Array, down: int) -> Array:
    """x / 2**down, rounded down; 2**MOST and -2**MOST stand for what lies beyond them.

    >>> moved(np.array([5, -5, 0]), 1).tolist(), (moved(np.array([1, -1, 0]), -64) >> MOST).tolist()
    ([2, -3, 0], [1, -1, 0])
    """
    if down >= 0:
        return np.asarray(x >> min(down, 63))
    fits = bits(np.abs(x)) - down <= MOST
    return np.where(fits, x << min(-down, MOST), np.sign(x) << MOST)


def shifted(x: Array, up: Array) -> Array:
    """x * 2**up, rounded down; 60 bits must hold it."""
    return np.asarray(np.where(up > 0, x << np.clip(up, 0, MOST), x >> np.clip(-up, 0, 63)))


class Bound:
    """Lower bounds, one per row: numerators over 2**places. What is added is rounded down.

    Each row has places of its own, and loses some where a number would have over 60 bits.
    """

    def __init__(self, places: Array) -> None:
        self.places = np.asarray(places)
        self.numerators = np.zeros(self.places.shape, np.int64)

    def add(self, x: Array, places: Array | int) -> None:
        """Add x / 2**places, for whole x below 2**63.

        >>> bound = Bound(np.array([1, 1]))
        >>> bound.add(np.array([-5, 1 << 62]), np.array([3, -1]))
        >>> bound.numerators.tolist(), bound.places.tolist()
        ([-2, 576460752303423488], [1, -4])
        """
        at = np.where(x == 0, self.places, np.minimum(self.places, places + MOST - bits(np.abs(x))))
        added = shifted(self.numerators, at - self.places) + shifted(x, at - places)
        tall = (np.abs(added) >= 1 << MOST).astype(np.int64)
        self.numerators, self.places = added >> tall, at - tall

    def over(self, places: int) -> Array:
        """The numerators over other places, rounded down; 2**60 and -2**60 stand for what lies beyond them."""
        up = places - self.places
        fits = bits(np.abs(self.numerators)) + up <= MOST
        return np.where(fits, shifted(np.where(fits, self.numerators, 0), up), np.sign(self.numerators) << MOST)

    def of(self, rows: Array) -> Bound:
        """Some of the rows, as a bound of its own."""
        taken = Bound(self.places[rows])
        taken.numerators = self.numerators[rows]
        return taken


class Coefficients:
    """Rows (rows, cells) of whole numbers a, each row over 2**places of its own."""

    def __init__(self, a: Array, places: Array) -> None:
        self.a, self.places = a, np.broadcast_to(places, a.shape[:1])

    def of(self, rows: Array) -> Coefficients:
        return Coefficients(self.a[rows], self.places[rows])

    def scaled(self, a: Array, places: int) -> Coefficients:
        """Other coefficients, with so many places more."""
        return Coefficients(a, self.places + places)

    def into(self, bound: Bound, x: Array, places: int) -> None:
        """Add the products with x, (cells) or (rows, cells), over 2**places, to a bound."""
        bound.add(products(self.a, x), self.places + places)


def products(a: Array, x: Array) -> Array:
    return np.asarray(a @ x if x.ndim == 1 else np.einsum("rc,rc->r", a, np.broadcast_to(x, a.shape)))


def joined(parts: list[Coefficients], bound: Bound, size: Array, places: int) -> Coefficients:
    """The sum of coefficients of one node, shortened to 26 bits.

    size / 2**places, one number or one per row, is not below the sum of the node's absolute values; each coefficient
    is off by at most 1/2 of its last digit wherever it was shortened, which is charged.

    >>> bound = Bound(np.array([20]))
    >>> whole = joined([Coefficients(np.array([[3 << 26, 5]]), np.array([8]))], bound, np.array([1]), 0)
    >>> whole.a.tolist(), whole.places.tolist(), bound.numerators.tolist()
    ([[50331648, 1]], [6], [-8192])
    """
    if len(parts) == 1:
        return shortened(parts[0], bound, size, places)
    parts = [shortened(p, bound, size, places) for p in parts]  # so that many of them can be added
    sizes = [np.abs(p.a).max(1, initial=0) for p in parts]
    room = [np.where(m > 0, p.places + COEFFICIENT - bits(m), 1 << 40) for p, m in zip(parts, sizes, strict=True)]
    at = np.minimum(np.minimum.reduce(room), np.maximum.reduce([p.places for p in parts]))  # as many as all can have
    a = np.zeros_like(parts[0].a)
    for p, m in zip(parts, sizes, strict=True):
        bound.add(np.where((p.places > at) & (m > 0), -size, 0), at + 1 + places)
        down = np.where(m > 0, p.places - at, 0)[:, None]
        a += np.where(down > 0, halved(p.a, np.clip(down, 0, 62)), p.a << np.clip(-down, 0, COEFFICIENT))
    return shortened(Coefficients(a, at), bound, size, places)


def shortened(given: Coefficients, bound: Bound, size: Array, places: int) -> Coefficients:
    """Coefficients of 26 bits; what they are off by, times size / 2**places, is charged."""
    extra = np.maximum(bits(np.abs(given.a).max(1, initial=0)) - COEFFICIENT, 0)
    if not extra.any():
        return given
    at = given.places - extra
    bound.add(np.where(extra > 0, -size, 0), at + 1 + places)
    return Coefficients(halved(given.a, extra[:, None]), at)


def taken(x: Array, leaf: Array) -> Array:
    """Rows of what every leaf has: its own, or the one that all share."""
    return x[leaf] if len(x) > 1 else x
