"""Constants that are folded before a sum begins: reciprocals, and sums of copies and of additive constants.

Every execution here is float32 of our own, each of whose roundings goes up by almost u; exact values are Fractions.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.proof.exact.replay import Replay
from specgrad.proof.exact.rounding_counts import count_after_node, region_input
from specgrad.rounding import Arithmetic, Ball, radius

f32, U = np.float32, 2.0**-24


def rounds_up(a: Any) -> Any:
    """Return b for which a*b, in float32, is a little above 1 and as far above the exact product as it can be."""
    b = (f32(1) / a * (1 + np.random.default_rng(0).uniform(0, 0.01, 100_000))).astype(f32)
    product = a * b
    return b[np.argmax(np.where(product > 1.003, product / (b.astype(float) * float(a)), 0))]


def a_little(a: Any, factor: Any = 1) -> Any:
    """Return b for which adding factor*b rounds a up, by almost half a step."""
    return f32(np.spacing(a) / 2 * 1.001 / factor)


def used(net: Callable[[Any], Any], x: Any, y: Any, exact: Fraction, **arithmetic: Any) -> tuple[Ball, float]:
    """Return the ball of the network's only output at x, and how far in u the execution's y is off."""
    report = radius(sg.trace(net, x.shape), x, arithmetic=Arithmetic(**arithmetic))
    return report.outputs, float(abs(Fraction(float(y)) - exact)) / U


def fractions(x: Any) -> list[Fraction]:
    return [Fraction(float(v)) for v in np.ravel(x)]


def test_the_reciprocal_of_an_average_is_folded_into_the_weights_behind_it() -> None:
    """Two windows share a cell: 1/d, times a weight, plus the other's, times the cell, plus two more terms: 6."""
    d = 255
    share = f32(1) / f32(d)
    w = np.array([[rounds_up(share), 0]], f32)
    p = w[0, 0] * share
    w[0, 1] = a_little(p, share)
    q = w[0, 1] * share
    both = p + q
    x = np.array([[0, rounds_up(both), 0]], f32)
    y = both * x[0, 1]
    x[0, 0], x[0, 2] = a_little(y, p), a_little(y, q)
    y = (y + p * x[0, 0]) + q * x[0, 2]
    (u, v), (a, b, c) = fractions(w), fractions(x)
    exact = (u * (a + b) + v * (b + c)) / d

    def net(x: Any) -> Any:
        return sg.linear(w, None, sg.reshape(sg.avg_pool(x, (2,), stride=1, divisor=d), (2,)))

    ball, off = used(net, x, y, exact)
    assert 5.9 < off <= float(ball.radius[0]) / U < 6.1


def test_checkers_count_the_reciprocal_of_the_first_node() -> None:
    """The same region, as certificates count it: 3 terms, 1/d, a product and a sum."""
    x = region_input(0, 3)
    mean = count_after_node({0: x}, 3, False, 1, 2, 2, 1)
    assert mean.total == 3
    assert count_after_node({1: mean}, 2, False, 2, 1, 1).total == 6


def test_copies_are_added_up_before_a_sum_of_a_stated_depth() -> None:
    """A cell that a layer reads twice: the weights' sum, the product and one more term, where a sum has depth 2."""
    w = np.array([[1.003, a_little(f32(1.003)), 1]], f32)
    weight = w[0, 0] + w[0, 1]
    x = np.array([rounds_up(weight), 0], f32)
    y = weight * x[0]
    x[1] = a_little(y)
    y = y + x[1]
    (u, v, _), (a, b) = fractions(w), fractions(x)

    def net(x: Any) -> Any:
        return sg.linear(w, None, sg.concat([x[:1], x[:1], x[1:]], 0))

    ball, off = used(net, x, y, (u + v) * a + b, depth=2)
    assert 2.9 < off <= float(ball.radius[0]) / U


def roundings(net: Callable[[Any], Any], cells: int, depth: int) -> int:
    return radius(sg.trace(net, (cells,)), np.ones(cells, f32), arithmetic=Arithmetic(depth=depth)).roundings


def test_constants_and_coefficients_are_summed_before_a_sum_of_a_stated_depth() -> None:
    """Each line: roundings of a constant's sum, of what it is multiplied by or added to, and of the sum behind."""
    one, w, b = np.ones(1, f32), np.ones((1, 8), f32), np.ones((4, 4), f32)
    assert roundings(lambda x: sg.linear(w, None, x + np.ones(8, f32)) * one, 8, 4) >= 4 + 1 + 4
    assert roundings(lambda x: sg.linear(w, None, sg.concat([sg.linear(b, None, x), x], 0)), 4, 2) >= 2 + 1 + 2


def test_a_bias_that_constants_are_added_up_to_begins_the_sum_behind() -> None:
    """100 constants are one bias, to which a matrix product adds 100 terms: 199 roundings of the first constant."""
    w, x, c = np.ones((1, 100), f32), np.zeros(100, f32), np.zeros(100, f32)
    y = c[0] = f32(1)
    for numbers in (c[1:], x):
        for k in range(len(numbers)):
            numbers[k] = a_little(y)
            y = y + numbers[k]

    def net(x: Any) -> Any:
        return sg.linear(w, None, x) + sg.sum(x.builder.constant(c))

    ball, off = used(net, x, y, sum(fractions(c) + fractions(x)))
    assert 195 < off <= float(ball.radius[0]) / U < 202


def test_what_constants_met_while_they_were_computed_is_in_every_coefficient() -> None:
    """Weights 1/a/a/a, folded into one sum of 100 products: 100 roundings of the sum and 2 of each quotient, at least.
    Checkers count no fewer than radii do.
    """
    ones = np.ones((1, 1, 10), f32)

    def net(x: Any) -> Any:
        weights, divisor = x.builder.constant(ones), x.builder.constant(ones * f32(1.3))
        for _ in range(3):
            weights = weights / divisor
        return sg.sum(sg.conv(weights, None, x, stride=10))

    graph, x = sg.trace(net, (1, 1, 100)), np.ones((1, 1, 100), f32)
    counts = [r.sum.roundings.total for r in Replay(graph, x, x, {}).ranges if r.sum is not None]
    assert counts[-1] >= radius(graph, x).roundings >= 106


@pytest.mark.parametrize("first", [True, False], ids=["C*x", "x*C"])
def test_a_constant_factor_of_an_input_may_stand_first(first: bool) -> None:
    """One sum adds both products' cells, 200 terms: 199 roundings of its first."""
    ones, x = np.ones(100, f32), np.zeros((2, 100), f32)
    y = x[0, 0] = f32(1)
    for k in range(1, x.size):
        x.flat[k] = a_little(y)
        y = y + x.flat[k]
    scaled = lambda v: sg.sum(v.builder.constant(ones) * v if first else v * v.builder.constant(ones))
    graph = sg.trace(lambda a, b: scaled(a) + scaled(b), (100,), (100,))
    off = float(abs(Fraction(float(y)) - sum(fractions(x)))) / U
    assert 195 < off <= float(radius(graph, *x).outputs.radius) / U < 205
