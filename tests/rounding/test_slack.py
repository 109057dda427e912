"""Executions, in exact numbers, that a constant of the rounding rules must cover (see docs/reference/rounding.md)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import Box, crown, ibp
from specgrad.rounding import FORMATS, Arithmetic, local_radius, radius
from specgrad.window import strided

TINY = Fraction(1, 2**126)  # the smallest normal number of float32


def flushed(v: Fraction) -> Fraction:
    """What is left of a result of few digits in float32, where subnormal numbers count as zero."""
    return v if abs(v) >= TINY else Fraction(0)


def holds(ball, v: Fraction) -> bool:
    value, reach = ball.value.item(), ball.radius.item()
    return reach == np.inf or abs(v - Fraction(value)) <= Fraction(reach)


DIVISORS = {  # (divisor, cells): what the sum loses is magnified; the reciprocal is subnormal
    "small": (Fraction(1, 2**100), [Fraction(3, 2**127), -TINY]),
    "large": (Fraction(2**127), [Fraction(2**127), Fraction(0)]),
}


@pytest.mark.parametrize("execution", ["node", "fused"])
@pytest.mark.parametrize("name", DIVISORS)
def test_a_divisor_after_a_flushed_sum_or_with_a_flushed_reciprocal(name: str, execution: str) -> None:
    """sum/d and sum*(1/d), every result flushed; the same as the cotangent of the average."""
    d, cells = DIVISORS[name]
    pool = sg.trace(lambda x: sg.avg_pool(x, (2,), stride=1, divisor=float(d)), (2,))
    x, arithmetic = np.float32([float(v) for v in cells]), Arithmetic(execution=execution)
    total = flushed(sum(cells))
    runs = [sum(cells) / d, flushed(total / d), flushed(total * flushed(1 / d))]
    ball = radius(pool, x, arithmetic=arithmetic).outputs
    spread = sg.trace(lambda x: sg.avg_pool(x, (2,), stride=1, divisor=float(d)), (3,))
    back = radius(sg.vjp(spread), np.zeros(3, np.float32), x, arithmetic=arithmetic).outputs[1]
    middle = type(back)(back.value[1], back.radius[1])  # the cell that both windows read
    for run in runs:
        assert holds(ball, run)
        assert holds(middle, run)
        for bounds in (ibp(pool, Box(x, x), arithmetic=arithmetic), crown(pool, Box(x, x), arithmetic=arithmetic)):
            low, high = bounds.outputs.low.item(), bounds.outputs.high.item()
            assert not np.isfinite(low) or Fraction(low) <= run <= Fraction(high)


@pytest.mark.parametrize("given", [Fraction(2**200 + 1, 2**200), 2**53 + 1])
def test_a_number_next_to_one_of_the_format(given) -> None:
    """float64 rounds it to a float32 number. The exact one is next to that; rounded up it is the next float32."""
    constant = sg.trace(lambda x: sg.maximum(x, given), (1,))
    exact, near = Fraction(given), float(given)
    above = Fraction(float(np.nextafter(np.float32(near), np.float32(np.inf))))
    assert holds(radius(constant, np.float32([0])).outputs, exact)
    up = Arithmetic(rounding="any")
    balls = [radius(constant, np.float32([0]), arithmetic=up).outputs]
    balls.append(radius(sg.trace(sg.relu, (1,)), np.array([given], dtype=object), arithmetic=up).outputs)
    for ball in balls:
        assert holds(ball, exact)
        assert holds(ball, above)


def test_what_float64_and_the_format_hold_has_no_radius() -> None:
    for given in (np.float32([0.1]), np.array([3]), np.array([2**60]), sg.exact([Fraction(1, 4)]), np.array([np.inf])):
        assert not radius(sg.trace(sg.relu, (1,)), given, arithmetic=Arithmetic(rounding="any")).outputs.radius.any()


def test_linear_bounds_claim_nothing_of_values_that_float32_lacks() -> None:
    large = sg.trace(lambda x: sg.relu(sg.relu(x) * 1e70), (1,))
    found = crown(large, Box([-1.0], [1.0]), objective=[[1.0]], deployed=False)
    assert (found.low, found.high) == (-np.inf, np.inf)
    assert found.outputs.high == ibp(large, Box([-1.0], [1.0]), deployed=False).outputs.high  # intervals need no lines


def to_bfloat16(x: float) -> float:
    """The nearest number with 8 digits; none of these is a tie."""
    step = 2.0 ** (math.frexp(x)[1] - 8)
    return round(x / step) * step


def test_an_exponent_whose_roundings_are_not_small() -> None:
    """exp(beta*(x - y)) in bfloat16: two roundings move t = 81.4 up to 82, so the result is 1.74 times too large.

    A bound of first order in u, 2*abs(t)*u + ..., is 0.71.
    """
    x, y, beta = 65.0, 255 / 1024, 1 + 33 / 128
    assert FORMATS["bfloat16"].holds(np.array([x, y, beta])).all()
    t = to_bfloat16(beta * to_bfloat16(x - y))
    assert t == 82
    window, a = strided("pull", (1,), (1,)), Arithmetic("bfloat16")
    one = np.float32([1])
    ball = local_radius("smooth_pull", x * one, y * one, one, window=window, beta=beta, arithmetic=a)
    assert ball.contains([to_bfloat16(math.exp(t))]).all()
    assert ball.radius < 2 * ball.value  # and it says something


def test_the_gradient_of_an_average_that_repeats_cells() -> None:
    """adaptive_avg_pool of 1 cell to 64 sums 64 cotangents into it: as many roundings, in whichever order."""
    graph = sg.vjp(sg.trace(lambda x: sg.adaptive_avg_pool(x, (64,)), (1, 1)))
    u = np.float32(2.0**-24)
    gy = np.full((1, 64), u, np.float32)
    gy[0, 0] = 1.0
    computed = np.float32(0)
    for g in gy[0]:
        computed = np.float32(computed + g)
    assert computed == 1  # every 2**-24 is a tie, and rounded away
    ball = radius(graph, np.zeros((1, 1), np.float32), gy).outputs[1]
    assert ball.contains(np.full((1, 1), computed)).all()
