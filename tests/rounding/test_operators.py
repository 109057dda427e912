"""Every operator: what an engine computes, and the exact value, lie in the ball."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

import specgrad as sg
from specgrad.op import REGISTRY, Op, run_spec
from specgrad.rounding import ULPS, Arithmetic, Ball, local_radius

OPERATORS = sorted(REGISTRY)
TYPES = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


def drawn(op: Op, label: str, dtype: type) -> tuple[list[np.ndarray], dict]:
    args, params = op.cases(Random(f"{label}/{op.name}"))
    return [a.astype(dtype) if a.dtype == object else a for a in args], params


def exact_value(op: Op, args: list[np.ndarray], params: dict) -> np.ndarray:
    """The specification over rationals, or over balls far narrower than any radius."""
    lift = sg.balls if op.transcendental or op.name == "sqrt" else sg.exact
    return run_spec(op, [a if i in op.index_args else lift(a) for i, a in enumerate(args)], params)


def distance(a: object, b: float) -> Fraction:
    """An upper bound of abs(a - b), a being exact or a ball of python-flint."""
    if not hasattr(a, "mid"):
        return abs(Fraction(a) - Fraction(b))
    difference = abs(a - sg.balls(b).item())
    mantissa, exponent = difference.upper().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def check(ball: Ball, cells: np.ndarray) -> None:
    assert ball.shape == cells.shape
    for cell, value, radius in zip(cells.flat, ball.value.flat, ball.radius.flat, strict=True):
        cell = cell.item() if isinstance(cell, np.generic) else cell
        assert np.isinf(radius) or distance(cell, value.item()) <= Fraction(float(radius)), (cell, value, radius)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", list(TYPES))
def test_specification(name: str, dtype: str) -> None:
    op = REGISTRY[name]
    for seed in range(30):
        args, params = drawn(op, f"rounding/{seed}", TYPES[dtype])
        ball = local_radius(op, *args, arithmetic=Arithmetic(dtype, ulps=ULPS["numpy"]), **params)
        check(ball, run_spec(op, args, params))
        check(ball, exact_value(op, args, params))
