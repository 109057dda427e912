"""Norm balls of inputs: all inputs within a radius of a centre, in the 1-norm or the 2-norm.

A property with a ball is about the inputs that lie in its box and in the ball, compared exactly. The box contains the
ball's bounding box. So methods that read boxes alone (intervals, certificates) prove a stronger statement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Norm = Literal["inf", "2", "1"]
NORMS = ("inf", "2", "1")
ROOT_BITS = 64  # of square roots that are rounded up


@dataclass(frozen=True)
class NormBall:
    """A set of flat input vectors x.

    norm "2": sum of (x - center)**2 <= radius**2
    norm "1": sum of abs(x - center) <= radius
    """

    norm: str
    center: tuple[Fraction, ...]
    radius: Fraction

    def has(self, cells: Sequence[Fraction]) -> bool:
        """Return whether the point `cells` lies in the ball, compared exactly.

        >>> ball = NormBall("2", (Fraction(0), Fraction(0)), Fraction(5))
        >>> ball.has([Fraction(3), Fraction(4)]), ball.has([Fraction(3), Fraction(4) + Fraction(1, 10**30)])
        (True, False)
        """
        differences = [x - c for x, c in zip(cells, self.center, strict=True)]
        if self.norm == "2":
            return sum((d * d for d in differences), Fraction(0)) <= self.radius**2
        return sum(map(abs, differences), Fraction(0)) <= self.radius


def norm_upper_bound(vector: Sequence[Fraction], norm: str) -> Fraction:
    """Return the norm of `vector`: exact for "inf" and "1", rounded up by less than 2**-ROOT_BITS of it for "2".

    >>> norm_upper_bound([Fraction(3), Fraction(-4)], "1"), norm_upper_bound([Fraction(3), Fraction(-4)], "2")
    (Fraction(7, 1), Fraction(5, 1))
    """
    if norm == "inf":
        return max(map(abs, vector), default=Fraction(0))
    if norm == "1":
        return sum(map(abs, vector), Fraction(0))
    square = sum((d * d for d in vector), Fraction(0))
    if not square:
        return square
    scale = max(0, ROOT_BITS - (square.numerator.bit_length() - square.denominator.bit_length()) // 2)
    scaled = square * 4**scale
    root = math.isqrt(math.ceil(scaled))
    return Fraction(root + (root * root < scaled), 2**scale)
