"""Operands of float16, whose range is short, and roundings to a format, against NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest

import specgrad as sg
from specgrad.rounding import FORMATS, Arithmetic, radius
from specgrad.rounding.arithmetic import OPERANDS
from specgrad.rounding.arithmetic_variants import ReducedOperands, ball_in_format, round_to_format
from specgrad.rounding.ball import Ball


def float16(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(np.float64)


def test_rounding_is_that_of_numpy() -> None:
    """Every exponent of float16 and beyond; ties, which NumPy gives to the even one, lie between both of ours."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000).astype(np.float32) * np.exp2(rng.integers(-30, 18, 4000))
    x = np.concatenate([x, np.arange(2049, 4097, 2), [0.0, 65504.0, 65519.9, 65520.0, -1e9, 2.0**-25, 2.0**-24]])
    with np.errstate(over="ignore"):
        wanted = float16(x)
    low, high = (round_to_format(x, FORMATS["float16"], "nearest", ties) for ties in (-1, 1))
    assert ((wanted == low) | (wanted == high)).all()
    ties = low != high
    assert (low < high)[ties].all()
    assert set(x[ties & (x > 2048) & (x < 4097)]) == set(np.arange(2049, 4097, 2))
    cut = round_to_format(x, FORMATS["float16"], "zero")
    assert (np.abs(cut) <= np.minimum(np.abs(x), 65504.0)).all()
    assert FORMATS["float16"].holds(cut).all()


def test_a_ball_in_a_format_holds_every_rounded_value() -> None:
    rng = np.random.default_rng(1)
    ball = Ball(rng.normal(size=500), np.exp2(rng.uniform(-20, -4, 500)))
    short = ball_in_format(ball, FORMATS["float16"], "nearest")
    for share in np.linspace(-1, 1, 41):
        assert short.contains(float16(ball.value + share * ball.radius)).all()


PRODUCT = {"x": np.float32([[1.3 * 2.0**-22, 0.75]]), "w": np.float32([[0.9, 1.1 * 2.0**-20]])}


@pytest.mark.parametrize("execution", ["node", "fused"])
def test_subnormal_operands_are_counted(execution: str) -> None:
    """The product of float16 factors leaves a bound that gives float16 the range of TF32."""
    graph = sg.trace(lambda x: sg.linear(PRODUCT["w"], None, x), PRODUCT["x"])
    got = float16(PRODUCT["x"]) @ float16(PRODUCT["w"]).T
    balls = {
        name: radius(
            graph, PRODUCT["x"], arithmetic=Arithmetic(operands=name, execution=execution, flush=False)
        ).outputs
        for name in ("tf32", "float16")
    }
    assert balls["float16"].contains(got).all()
    assert not balls["tf32"].contains(got).all()


def test_operands_beyond_the_largest_prove_nothing_and_become_infinite() -> None:
    x, w = np.float32([[7e4, 1.0], [1.0, 2.0]]), np.float32([[1.0, 3.0]])
    graph = sg.trace(lambda x: sg.linear(w, None, x), x)
    assert np.isinf(radius(graph, x, arithmetic=Arithmetic(operands="float16")).outputs.radius).all()
    assert np.isfinite(
        radius(graph, x[1:].repeat(2, 0), arithmetic=Arithmetic(operands="float16")).outputs.radius
    ).all()
    known = radius(graph, x, way=ReducedOperands(OPERANDS["float16"])).outputs
    assert known.value.tolist() == [[np.inf], [7.0]]
    assert known.radius[0] == 0
