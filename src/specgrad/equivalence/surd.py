"""Exact numbers with square roots: sums of r * sqrt(q), so that a folded batch normalisation stays exact.

A number is a Fraction, or a Surd where a root remains. Equal expressions compare equal; two Surds that are equal but
written with different roots (sqrt(18) and 3*sqrt(2) are met; larger squares may not be) compare unequal, so "equal" is
always true and "unequal" need not be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import ScalarError
from ..scalar import Array

ROOT_BITS = 256  # of the root in an enclosure
SMALL_PRIMES = (2, 3, 5, 7, 11, 13)  # whose squares are taken out of a root
MAX_TERMS = 16  # of one number; more is refused
Exact = Any  # Fraction | Surd


class Surd:
    """An exact number: sum of r * sqrt(q) over `parts` {q: r}, q a positive integer that is no square (1: rational).

    >>> root = square_root(Fraction(1, 2))
    >>> root * root, (root + 1) * (root - 1)
    (Fraction(1, 2), Fraction(-1, 2))
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Mapping[int, Fraction]) -> None:
        self.parts = dict(parts)

    def __add__(self, other: Any) -> Exact:
        total = dict(self.parts)
        for q, r in _root_coefficients(other).items():
            total[q] = total.get(q, Fraction(0)) + r
        return _from_coefficients(total)

    def __mul__(self, other: Any) -> Exact:
        total: dict[int, Fraction] = {}
        for p, a in self.parts.items():
            for q, b in _root_coefficients(other).items():
                whole, root = _extract_squares(p * q)
                total[root] = total.get(root, Fraction(0)) + a * b * whole
        return _from_coefficients(total)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Exact:
        return self * -1

    def __sub__(self, other: Any) -> Exact:
        return self + -other

    def __rsub__(self, other: Any) -> Exact:
        return -self + other

    def __truediv__(self, other: Any) -> Exact:
        return self * reciprocal(other)

    def __rtruediv__(self, other: Any) -> Exact:
        return reciprocal(self) * other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Surd) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(frozenset(self.parts.items()))

    def __repr__(self) -> str:
        return " + ".join(f"{r}*sqrt({q})" if q > 1 else f"{r}" for q, r in sorted(self.parts.items()))

    def _no_order(self, *_: Any) -> Any:
        """Raise ScalarError: surds are not ordered."""
        raise ScalarError("surd", "has no order here: what compares it is not computed")

    __gt__ = __lt__ = __ge__ = __le__ = __bool__ = __abs__ = _no_order

    def sqrt(self) -> Any:
        """Raise ScalarError: nested roots are not represented."""
        raise ScalarError("sqrt", "a root of a root is not kept exactly")


def _root_coefficients(x: Any) -> Mapping[int, Fraction]:
    """Return {q: r} of a Surd, int or Fraction, {} for 0; raise ScalarError for anything else, such as a float."""
    if isinstance(x, Surd):
        return x.parts
    if isinstance(x, bool) or not isinstance(x, int | Fraction | np.integer):
        raise ScalarError("surd", f"meets exact numbers alone; got {type(x).__name__}")
    return {1: Fraction(int(x)) if isinstance(x, np.integer) else Fraction(x)} if x else {}


def _from_coefficients(parts: Mapping[int, Fraction]) -> Exact:
    """Return the number sum of r * sqrt(q): a Fraction if no root remains, else a Surd. `parts` is {q: r}.

    ScalarError for more than MAX_TERMS roots.
    """
    kept = {q: r for q, r in parts.items() if r}
    if len(kept) > MAX_TERMS:
        raise ScalarError("surd", f"more than {MAX_TERMS} roots in one number are not kept")
    return kept.get(1, Fraction(0)) if kept.keys() <= {1} else Surd(kept)


def _extract_squares(n: int) -> tuple[int, int]:
    """Return (whole, rest) with n = whole**2 * rest; only squares of small primes, and n itself, are extracted.

    >>> _extract_squares(18), _extract_squares(10403**2)
    ((3, 2), (10403, 1))
    """
    whole = 1
    for p in SMALL_PRIMES:
        while n % (p * p) == 0:
            n //= p * p
            whole *= p
    root = math.isqrt(n)
    return (whole * root, 1) if root * root == n else (whole, n)


def square_root(x: Exact) -> Exact:
    """Return the exact square root of a rational that is not negative; ScalarError for others."""
    if not isinstance(x, int | Fraction) or x < 0:
        raise ScalarError("sqrt", f"only roots of rationals that are not negative are kept; got {x!r:.40}")
    if x == 0:
        return Fraction(0)
    x = Fraction(x)
    whole, root = _extract_squares(x.numerator * x.denominator)  # sqrt(n/d) = sqrt(n*d)/d
    return _from_coefficients({root: Fraction(whole, x.denominator)})


def reciprocal(x: Exact) -> Exact:
    """Return 1/x exactly, of a rational or a single root: 1/(r*sqrt(q)) = sqrt(q)/(r*q). ScalarError for a sum of
    roots.
    """
    if not isinstance(x, Surd):
        return 1 / Fraction(x)
    if len(x.parts) > 1:
        raise ScalarError("surd", "a quotient by a sum of roots is not kept")
    ((q, r),) = x.parts.items()
    return Surd({q: 1 / (r * q)})


def enclose(x: Exact) -> tuple[Fraction, Fraction]:
    """Return rationals (low, high) around x, at most 2**-200 of the largest term apart.

    >>> low, high = enclose(square_root(Fraction(2)))
    >>> low * low < 2 < high * high, float(high - low) < 1e-60
    (True, True)
    """
    if not isinstance(x, Surd):
        return Fraction(x), Fraction(x)
    low = high = Fraction(0)
    for q, r in x.parts.items():
        root = math.isqrt(q << 2 * ROOT_BITS)  # root <= sqrt(q) * 2**BITS <= root + 1
        ends = (r * root / 2**ROOT_BITS, r * (root + 1) / 2**ROOT_BITS) if q > 1 else (r, r)
        low, high = low + min(ends), high + max(ends)
    return low, high


def interval(numbers: Array) -> tuple[Array, Array]:
    """Return float64 arrays (low, high) around every exact number of an array, two or three ulps apart."""
    ends = [enclose(v) for v in numbers.flat]
    low = np.array([_nearest_float(a) for a, _ in ends], dtype=float).reshape(numbers.shape)
    high = np.array([_nearest_float(b) for _, b in ends], dtype=float).reshape(numbers.shape)
    return np.nextafter(low, -np.inf), np.nextafter(high, np.inf)


def approximate(x: Exact) -> float:
    """Return a float near x, a few ulps of its largest term off; beyond the largest float an infinity.

    >>> approximate(square_root(Fraction(2))), approximate(Fraction(1, 4))
    (1.4142135623730951, 0.25)
    """
    if not isinstance(x, Surd):
        return _nearest_float(Fraction(x))
    try:
        return sum(_nearest_float(r) * math.sqrt(q) for q, r in x.parts.items())
    except OverflowError:  # of a root's integer
        return _nearest_float(enclose(x)[0])


def _nearest_float(x: Fraction) -> float:
    """Return the nearest float; beyond the largest one an infinity."""
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf
