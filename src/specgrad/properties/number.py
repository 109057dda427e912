"""Numbers from callers, converted to exact rationals."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import ParameterError, quoted


def exactly(operator: str, name: str, value: Any) -> Fraction:
    """Return a finite number as an exact Fraction: Python's, NumPy's, or a text such as "0.1", which is a tenth.

    >>> exactly("certify", "eps", 0.5), exactly("certify", "eps", "0.1"), exactly("certify", "eps", np.float32(2))
    (Fraction(1, 2), Fraction(1, 10), Fraction(2, 1))
    >>> exactly("certify", "eps", float("nan"))
    Traceback (most recent call last):
    specgrad.errors.ParameterError: certify: eps must be one finite number; got nan [P5]
    """
    one = value.item() if isinstance(value, np.ndarray | np.generic) and value.size == 1 else value
    try:
        return Fraction(one)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        text = f"{name} must be one finite number; got {quoted(str(value))}"
        raise ParameterError(operator, text, rule="P5") from None


def limit(operator: str, name: str, value: Any, direction: int) -> Fraction | None:
    """Return a limit as an exact Fraction; None if there is none: `value` is None or infinite in `direction` (-1 or 1).

    >>> limit("certify", "low", None, -1), limit("certify", "low", -math.inf, -1), limit("certify", "high", 1, 1)
    (None, None, Fraction(1, 1))
    """
    if value is None or (isinstance(value, float | np.floating) and value == direction * math.inf):
        return None
    return exactly(operator, name, value)
