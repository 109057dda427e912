"""Exact numbers rounded to a type, once and correctly."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.errors import ScalarError
from specgrad.rounding import FORMATS, Format

FAR = 20_000  # binary exponents beyond every format
PRECISIONS = (256, 1024, 8192)  # bits of balls, until both ends round to the same number


def form_of(dtype: np.dtype[Any]) -> Format:
    """The format of a float type."""
    return FORMATS[dtype.name]


def nearest(q: Fraction, form: Format) -> float:
    """The number of the format that is nearest to q, the even one of two; infinite beyond the largest.

    >>> nearest(Fraction(1) + Fraction(1, 2**24), FORMATS["float32"])
    1.0
    >>> nearest(Fraction(2) ** 128, FORMATS["float32"]), nearest(Fraction(1, 2**150), FORMATS["float32"])
    (inf, 0.0)
    """
    if q == 0:
        return 0.0
    n, d = abs(q.numerator), q.denominator
    exponent = n.bit_length() - d.bit_length()  # of the leading bit, or one too large
    if Fraction(n, d) < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, form.lowest) - form.digits + 1)
    result = round(Fraction(n, d) / step) * step
    size = math.inf if result > Fraction(form.largest) else float(result)
    return size if q > 0 else -size


def ends(ball: Any) -> tuple[Fraction, Fraction] | None:
    """The least and the largest number of a ball; None where it is not finite."""
    if not ball.is_finite():
        return None
    middle, far = (Fraction(*_ratio(part)) for part in (ball.mid(), ball.rad()))
    return middle - far, middle + far


def _ratio(point: Any) -> tuple[int, int]:
    """A ball of radius 0 as an exact ratio."""
    mantissa, exponent = (int(part) for part in point.man_exp())
    exponent = min(max(exponent, -FAR - mantissa.bit_length()), FAR)  # e**(2**100) rounds as e**(2**20) does
    return (mantissa << exponent, 1) if exponent >= 0 else (mantissa, 1 << -exponent)


def nearest_of(low: Fraction, high: Fraction, form: Format) -> float | None:
    """What every number between two rounds to; None where they do not agree."""
    first, last = nearest(low, form), nearest(high, form)
    return first if first == last else None


def undecided(operator: str) -> ScalarError:
    return ScalarError(operator, f"{PRECISIONS[-1]} bits do not decide to which number a result rounds")
