"""Numbers of a format, and whether cells lie in their balls."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import torch

import specgrad as sg
from specgrad.rounding import Ball
from specgrad.scalar import Array


def rounded(x: Array, dtype: str) -> Array:
    """float64 numbers brought into a format; bfloat16 is held in float32."""
    if dtype != "bfloat16":
        return x.astype(dtype)
    return torch.from_numpy(np.asarray(x, dtype=np.float64)).to(torch.bfloat16).to(torch.float32).numpy()


def distance(a: Any, b: float) -> Fraction:
    """An upper bound of abs(a - b), a being exact or a ball of python-flint."""
    if not hasattr(a, "mid"):
        return abs(Fraction(a) - Fraction(b))
    mantissa, exponent = abs(a - sg.balls(b).item()).upper().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** max(-4000, min(4000, int(exponent)))  # exp(-2**100) is no number


def check(ball: Ball, cells: Array, what: str) -> int:
    """Every cell in its ball; the number of cells that could have been outside."""
    assert ball.shape == cells.shape
    tested = 0
    for cell, value, radius in zip(cells.flat, ball.value.flat, ball.radius.flat, strict=True):
        if np.isinf(radius):
            continue
        tested += 1
        cell = cell.item() if isinstance(cell, np.generic) else cell
        if isinstance(cell, float) and not np.isfinite(cell):
            assert cell == value, (what, cell, value, radius)
        else:
            assert distance(cell, value.item()) <= Fraction(float(radius)), (what, cell, value, radius)
    return tested
