"""Balls of inputs: everything within a radius of a centre, by the sum of the cells' distances or of their squares.

A property with a ball is about the inputs that lie in its box and in the ball, compared exactly. The box holds the
ball's hull, so whoever looks at boxes alone (intervals, certificates) proves more than is asked, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Norm = Literal["inf", "2", "1"]
NORMS = ("inf", "2", "1")
PLACES = 64  # binary, of square roots that are rounded up


@dataclass(frozen=True)
class NormBall:
    """norm "2": sum of (x - centre)**2 <= radius**2; norm "1": sum of abs(x - centre) <= radius."""

    norm: str
    center: tuple[Fraction, ...]
    radius: Fraction

    def has(self, cells: Sequence[Fraction]) -> bool:
        """Whether a point lies in it, exactly.

        >>> ball = NormBall("2", (Fraction(0), Fraction(0)), Fraction(5))
        >>> ball.has([Fraction(3), Fraction(4)]), ball.has([Fraction(3), Fraction(4) + Fraction(1, 10**30)])
        (True, False)
        """
        away = [x - c for x, c in zip(cells, self.center, strict=True)]
        if self.norm == "2":
            return sum((d * d for d in away), Fraction(0)) <= self.radius**2
        return sum(map(abs, away), Fraction(0)) <= self.radius


def size_above(away: Sequence[Fraction], norm: str) -> Fraction:
    """The norm, or for "2" a number that is not below it, by less than 2**-PLACES of it.

    >>> size_above([Fraction(3), Fraction(-4)], "1"), size_above([Fraction(3), Fraction(-4)], "2")
    (Fraction(7, 1), Fraction(5, 1))
    """
    if norm == "inf":
        return max(map(abs, away), default=Fraction(0))
    if norm == "1":
        return sum(map(abs, away), Fraction(0))
    square = sum((d * d for d in away), Fraction(0))
    if not square:
        return square
    scale = max(0, PLACES - (square.numerator.bit_length() - square.denominator.bit_length()) // 2)
    scaled = square * 4**scale
    root = math.isqrt(math.ceil(scaled))
    return Fraction(root + (root * root < scaled), 2**scale)
