"""Sums of so many terms that (1 + u)^R - 1 passes 1: what is not negative keeps a part of itself in any order."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.graph.graph import Graph
from specgrad.rounding import Arithmetic, radius
from specgrad.scalar import Array

SHORT = Arithmetic("bfloat16")  # u = 2^-8: 600 terms are enough
TERMS = 600


def bfloat16(x: float) -> float:
    """Round to nearest, ties to even, in exact arithmetic of the digits."""
    if x == 0:
        return 0.0
    _, e = np.frexp(x)
    step = 2.0 ** (float(e) - 8)
    return float(np.rint(x / step) * step)  # both exact


def one_by_one(terms: Array) -> float:
    total = 0.0
    for term in terms:
        total = bfloat16(total + bfloat16(float(term) * float(term)))
    return total


def root(x: Any) -> Any:
    return np.sqrt(sg.sum(x * x))


def normed(x: Any) -> Any:
    return x / sg.broadcast(sg.reshape(root(x), (1,)), (TERMS,))


def graphs() -> tuple[Graph, Graph]:
    return sg.trace(root, (TERMS,)), sg.trace(normed, (TERMS,))


@pytest.mark.quick
def test_a_sum_that_stagnates_lies_above_its_least() -> None:
    """A 1 and 599 terms below half a step of it: added one by one they are all lost, more than by any formula in u."""
    terms = np.full(TERMS, 2.0**-5)  # squares of 2^-10; a step of 1 is 2^-7
    terms[0] = 1.0
    terms[1:] = np.sqrt(2.0**-9)
    terms = np.array([bfloat16(t) for t in terms])
    exact = sum(Fraction(t) ** 2 for t in terms)
    found = one_by_one(terms)
    assert found == 1.0
    assert exact > 2
    ball = radius(graphs()[0], terms, arithmetic=SHORT).outputs
    assert 0 < ball.low <= bfloat16(np.sqrt(found)) <= ball.high
    assert ball.low < 0.99 * np.sqrt(float(exact))


@pytest.mark.quick
def test_a_norm_of_many_terms_divides() -> None:
    """By the root of a sum of which (1 + u)^R - 1 is 9: nothing was proven of the quotient."""
    assert (1 + SHORT.u) ** TERMS - 1 > 9
    random = np.random.default_rng(1)
    x = np.array([bfloat16(v) for v in random.normal(size=TERMS)])
    ball = radius(graphs()[1], x, arithmetic=SHORT).outputs
    assert np.isfinite(ball.radius).all()
    for order in (np.argsort(abs(x)), np.argsort(-abs(x)), np.arange(TERMS)):
        norm = bfloat16(np.sqrt(one_by_one(x[order])))
        assert ball.contains(np.array([bfloat16(v / norm) for v in x])).all()
