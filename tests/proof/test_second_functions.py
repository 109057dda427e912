"""The series of the second checker enclose what mpmath computes, narrowly."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest

import second_functions as functions

mpmath = pytest.importorskip("mpmath")


@pytest.mark.parametrize("name", ["exp", "log", "sigmoid", "tanh", "sigmoid_slope", "tanh_slope"])
def test_series_enclose(name: str) -> None:
    rng, f = Random(name), getattr(functions, name)
    sigmoid = lambda v: 1 / (1 + mpmath.exp(-v))
    slope = lambda v: sigmoid(v) * sigmoid(-v)
    right = {"exp": mpmath.exp, "log": mpmath.log, "sigmoid": sigmoid, "tanh": mpmath.tanh, "sigmoid_slope": slope,
             "tanh_slope": lambda v: 4 * slope(2 * v)}[name]  # fmt: skip
    with mpmath.workdps(300):
        number: Any = lambda q: mpmath.mpf(q.numerator) / q.denominator
        for _ in range(200):
            x = Fraction(rng.uniform(-1, 1)) * Fraction(rng.choice((1e-6, 1.0, 30.0, 80.0)))
            x = abs(x) + Fraction(1, 10**9) if name == "log" else x
            low, high = f(x)
            y = right(number(x))
            assert number(low) <= y <= number(high), x
            assert number(high - low) < mpmath.mpf(2) ** -60 * (1 + abs(y)), x
