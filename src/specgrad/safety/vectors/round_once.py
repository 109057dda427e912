"""Rounds exact numbers to a float type, once and correctly."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.errors import ScalarError
from specgrad.rounding import FORMATS, Format

MAX_EXPONENT = 20_000  # binary exponents beyond every format
PRECISIONS = (256, 1024, 8192)  # bits of balls, until both ends round to the same number


def form_of(dtype: np.dtype[Any]) -> Format:
    """Return the format of a float type."""
    return FORMATS[dtype.name]


def nearest(q: Fraction, form: Format) -> float:
    """Return the number of the format nearest to q, ties to even; infinite beyond the largest.

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


def interval_of(ball: Any) -> tuple[Fraction, Fraction] | None:
    """Return (least, largest) number of a ball, or None if it is not finite."""
    if not ball.is_finite():
        return None
    middle, far = (Fraction(*_ratio_of_point(part)) for part in (ball.mid(), ball.rad()))
    return middle - far, middle + far


def _ratio_of_point(point: Any) -> tuple[int, int]:
    """Return a point ball as (numerator, denominator); exponents are limited far beyond every format."""
    mantissa, exponent = (int(part) for part in point.man_exp())
    exponent = min(
        max(exponent, -MAX_EXPONENT - mantissa.bit_length()), MAX_EXPONENT
    )  # e**(2**100) rounds as e**(2**20) does
    return (mantissa << exponent, 1) if exponent >= 0 else (mantissa, 1 << -exponent)


def nearest_if_unique(low: Fraction, high: Fraction, form: Format) -> float | None:
    """Return what every number between `low` and `high` rounds to in the format `form`, or None if they differ."""
    first, last = nearest(low, form), nearest(high, form)
    return first if first == last else None


def undecided_error(operator: str) -> ScalarError:
    """Return the error for a result whose rounding the largest precision does not decide."""
    return ScalarError(operator, f"{PRECISIONS[-1]} bits do not decide to which number a result rounds")
