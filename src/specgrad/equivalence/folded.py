"""Exact numbers that remember how a float32 program would have folded them.

A tool that folds constants rounds once per operation. After `roundings` of them its number is within
roundings * 2**-24 * size of the exact one, to first order, where `size` is the same expression with every term taken
absolutely: what cancels is counted. Equality, hashes and order are those of the exact numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ..errors import ScalarError
from .surd import Surd, approximate, reciprocal, square_root


class Folded:
    """An exact number `value` (Fraction or Surd), its `size` and the `roundings` of a float32 folder: at most, and at
    `least` where the number was made in several ways.

    >>> third = Folded(Fraction(1, 3), 1 / 3, 1)
    >>> six = third * 2 + 1 - Fraction(1, 3)
    >>> six == Fraction(4, 3), six.roundings, round(six.size, 3)
    (True, 3, 2.0)
    """

    __slots__ = ("least", "roundings", "size", "value")

    def __init__(self, value: Any, size: float | None = None, roundings: int = 0, least: int | None = None) -> None:
        self.value = value
        self.size = abs(approximate(value)) if size is None else size
        self.roundings = roundings
        self.least = roundings if least is None else least

    def __add__(self, other: Any) -> Any:
        other = folded(other)
        if self.value == 0 or other.value == 0:
            return other if self.value == 0 else self
        most, least = max(self.roundings, other.roundings), max(self.least, other.least)
        return Folded(self.value + other.value, self.size + other.size, 1 + most, 1 + least)

    def __mul__(self, other: Any) -> Any:
        other = folded(other)
        for one, rest in ((self, other), (other, self)):
            if one.value == 1:
                return rest
        if self.value == 0 or other.value == 0:
            return Folded(Fraction(0), 0.0)
        once = 0 if is_power_of_2(self.value) or is_power_of_2(other.value) else 1
        most, least = self.roundings + other.roundings, self.least + other.least
        return Folded(self.value * other.value, self.size * other.size, once + most, once + least)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Folded:
        return Folded(-self.value, self.size, self.roundings, self.least)

    def __sub__(self, other: Any) -> Any:
        return self + -folded(other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __truediv__(self, other: Any) -> Any:
        inverse = folded(other).reciprocal()
        if self.value == 1 or inverse.value == 1:
            return inverse if self.value == 1 else self
        if self.value == 0:
            return Folded(Fraction(0), 0.0)
        most, least = self.roundings + inverse.roundings, self.least + inverse.least
        return Folded(self.value * inverse.value, self.size * inverse.size, most, least)

    def __rtruediv__(self, other: Any) -> Any:
        return folded(other) / self

    def reciprocal(self) -> Folded:
        """Return 1/x exactly, with the record of one more rounding, or none of a power of 2.

        ScalarError for a sum of roots.
        """
        value = reciprocal(self.value)
        near = abs(approximate(self.value))
        once = 0 if is_power_of_2(self.value) else 1
        size = _safe_quotient(self.size, near * near)
        return Folded(value, size, once + self.roundings, once + self.least)

    def sqrt(self) -> Folded:
        """Return the exact square root of a rational that is not negative, with its record; ScalarError for others."""
        value = square_root(self.value)
        size = _safe_quotient(self.size, math.sqrt(abs(approximate(self.value))))
        return Folded(value, size, 1 + self.roundings, 1 + self.least)

    def __abs__(self) -> Folded:
        return Folded(abs(self.value), self.size, self.roundings, self.least)

    def __pow__(self, exponent: Any) -> Any:
        if not isinstance(exponent, int) or not 1 <= exponent <= 8:
            raise ScalarError("power", f"of a folded constant: 1 to 8, got {exponent!r}")
        return self if exponent == 1 else self * self ** (exponent - 1)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, Folded) else other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"Folded({self.value!r}, {self.size!r}, {self.roundings})"

    def _ordered(test: Callable[[Any, Any], bool]) -> Any:  # type: ignore[misc]  # noqa: N805 - makes methods
        """Return a comparison method that applies `test` to the exact values of both numbers."""
        return lambda self, other: test(self.value, other.value if isinstance(other, Folded) else other)

    __gt__, __lt__ = _ordered(lambda a, b: a > b), _ordered(lambda a, b: a < b)
    __ge__, __le__ = _ordered(lambda a, b: a >= b), _ordered(lambda a, b: a <= b)

    def __bool__(self) -> bool:
        return bool(self.value != 0)


def folded(x: Any) -> Folded:
    """Return an exact number with its record; one that has none is a number as it was given."""
    if isinstance(x, Folded):
        return x
    if isinstance(x, Surd | Fraction):
        return Folded(x)
    return Folded(Fraction(x))


def unexplained(x: Any) -> Folded:
    """Return an exact number, folded in a way that is not known: its size is infinite, and so is that of what is
    made of it, which then explains no difference.
    """
    return Folded(plain(x), math.inf, folded(x).roundings)


def folded_either_way(x: Any, y: Any) -> Folded:
    """Return a number that was folded as x or as y, which are equal: of what it explains, what both do."""
    x, y = folded(x), folded(y)
    return Folded(x.value, min(x.size, y.size), max(x.roundings, y.roundings), min(x.least, y.least))


def plain(x: Any) -> Any:
    """Return the exact number without its record."""
    return x.value if isinstance(x, Folded) else x


def _safe_quotient(size: float, divisor: float) -> float:
    """Return size / divisor; inf where the divisor is too small for a float."""
    return size / divisor if divisor else math.inf


def is_power_of_2(x: Any) -> bool:
    """Return whether a number is 2**n or -2**n, by which a product is not rounded.

    >>> [is_power_of_2(Fraction(*x)) for x in ((-1, 8), (4, 1), (3, 1), (2, 3))]
    [True, True, False, False]
    """
    if isinstance(x, Surd):
        return False
    top, bottom = abs(x.numerator), x.denominator
    return bool(top & (top - 1) == 0 and bottom & (bottom - 1) == 0)
