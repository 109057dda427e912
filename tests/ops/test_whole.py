"""floor, ceil, round, fmod, mod against Python's own exact arithmetic; what rounding and boxes say at their jumps."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import Box, gradient_box, ibp
from specgrad.rounding import Arithmetic, local_radius, radius

STEPS = {"floor": (sg.floor, math.floor), "ceil": (sg.ceil, math.ceil), "round": (sg.round, round)}
STEPS["trunc"] = (sg.trunc, math.trunc)
HALVES = [Fraction(n, 4) for n in range(-14, 15)]


def python_fmod(a: Fraction, b: Fraction) -> Fraction:
    return a - b * math.trunc(a / b)


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_pythons(name: str) -> None:
    ours, python = STEPS[name]
    assert ours(sg.exact(HALVES)).tolist() == [python(x) for x in HALVES]
    assert ours(np.array(HALVES, dtype=float)).tolist() == [float(python(x)) for x in HALVES]
    assert ours(sg.exact(Fraction(10**30 + 1, 2))).item() == python(Fraction(10**30 + 1, 2))


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_what_is_no_number(name: str) -> None:
    special = np.array([np.nan, np.inf, -np.inf, -0.0])
    assert np.array_equal(STEPS[name][0](special), special, equal_nan=True)
    assert STEPS[name][0](np.array(2.5)).shape == ()
    assert STEPS[name][0](np.zeros((2, 0))).shape == (2, 0)


def test_balls_that_may_be_a_tie_are_both_neighbours() -> None:
    flint = pytest.importorskip("flint")
    half, near = flint.arb("0.5"), flint.arb("0.6", "0.1")  # the second reaches down to a tie
    found = sg.round(np.array([half, half + 1, half + 2, near, -half], dtype=object))
    assert [v.contains(w) for v, w in zip(found, (0, 2, 2, 1, 0), strict=True)] == [True] * 5
    assert found[3].contains(0)
    assert [v.is_exact() for v in found] == [True, True, True, False, True]


@pytest.mark.parametrize(("ours", "python"), [(sg.fmod, python_fmod), (sg.mod, lambda a, b: a % b)])
def test_remainders_are_pythons(ours, python) -> None:
    pairs = [(a, b) for a in HALVES for b in (Fraction(1), Fraction(-1), Fraction(3, 4), Fraction(-5, 3))]
    a, b = (sg.exact(np.array(side, dtype=object)) for side in zip(*pairs, strict=True))
    assert ours(a, b).tolist() == [python(p, q) for p, q in pairs]
    assert ours(a, Fraction(-3, 2)).tolist() == [python(p, Fraction(-3, 2)) for p, _ in pairs]


def test_float_remainders_are_exact_however_far() -> None:
    rng = np.random.default_rng(0)
    a = (rng.normal(size=400) * 10.0 ** rng.integers(-30, 38, 400)).astype(np.float32)
    b = (rng.normal(size=400) * 10.0 ** rng.integers(-30, 38, 400)).astype(np.float32)
    wanted = [python_fmod(Fraction(p.item()), Fraction(q.item())) for p, q in zip(a, b, strict=True)]
    assert [Fraction(v.item()) for v in sg.fmod(a, b)] == wanted
    assert np.isnan(sg.fmod(np.array([1.0, np.inf]), np.array([0.0, 2.0]))).all()
    assert sg.fmod(np.array([1.5]), np.array([np.inf])) == 1.5


# --- rounding at a jump -----------------------------------------------------------------------------------------------


def test_rounding_at_a_jump_is_open() -> None:
    """0.1*10 is 1 in float32, and a little more or less as the product is made; floor may be 0 or 1."""
    graph = sg.trace(lambda x: sg.floor(x * 10), (2,))
    report = radius(graph, np.float32([0.1, 0.14]))
    assert report.undecided == ("floor",)
    low, high = report.outputs.low, report.outputs.high
    assert (low[0], high[0]) == (0.0, 1.0) or (low[0] <= 0 and high[0] >= 1)
    assert report.outputs.radius[1] == 0


@pytest.mark.parametrize("operator", ["floor", "ceil", "round"])
def test_flushed_numbers_may_step(operator: str) -> None:
    """floor(-1e-40) is -1, and 0 where subnormal numbers count as zero."""
    x = np.float32([-1e-40, 1e-40])
    ball = local_radius(operator, x, arithmetic=Arithmetic(flush=True))
    for got in ([0.0, 0.0], [float(STEPS[operator][1](Fraction(v.item()))) for v in x]):
        assert ball.contains(got).all()
    assert local_radius(operator, x, arithmetic=Arithmetic(flush=False)).is_exact


def test_balls_of_remainders_hold_every_pair() -> None:
    """Over balls around both arguments: exact remainders of sampled pairs, jumps among them."""
    rng = Random(0)
    decided = 0
    for _ in range(400):
        a, b = Fraction(rng.randint(-40, 40), 8), Fraction(rng.choice([-1, 1]) * rng.randint(1, 12), 8)
        ra, rb = (Fraction(rng.choice((0, 0, 1, 8)), rng.choice((32, 1024))) for _ in range(2))
        boxes = [Box([float(m - r)], [float(m + r)]) for m, r in ((a, ra), (b, rb))]
        found = ibp(sg.trace(sg.fmod, (1,), (1,)), *boxes, deployed=False).outputs
        if rb >= abs(b):
            assert np.isinf(found.high).all()
            continue
        decided += bool(found.high - found.low < 2 * float(ra + rb * 10) + 1e-9)
        for _ in range(20):
            p, q = (m + r * Fraction(rng.randint(-8, 8), 8) for m, r in ((a, ra), (b, rb)))
            value = python_fmod(p, q)
            assert Fraction(found.low.item()) <= value <= Fraction(found.high.item())
    assert decided > 150


# --- bounds of gradients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        sg.floor,
        sg.ceil,
        sg.round,
        lambda x: sg.fmod(x, 1),
        lambda x: sg.select(sg.fmod(x, 2), x, 2 * x),  # a remainder of constants is no comparison with one
    ],
)
def test_a_jump_has_no_gradient_bound(f) -> None:
    (found,) = gradient_box(sg.trace(f, (1,)), Box([0.25], [3.5]), cotangent=1.0)
    assert np.isinf(found.low).all()


def test_a_step_that_is_not_met_has_one() -> None:
    (found,) = gradient_box(sg.trace(lambda x: sg.floor(x) * x, (1,)), Box([2.25], [2.5]), cotangent=1.0)
    assert (found.low.item(), found.high.item()) == pytest.approx((2, 2), abs=1e-6)


# --- words of Python and NumPy ----------------------------------------------------------------------------------------


def test_python_and_numpy_words_record() -> None:
    graph = sg.trace(lambda x: (x % 2, 7 % x, np.floor(x), np.ceil(x), np.rint(x), np.trunc(x), np.fmod(x, 2)), (3,))
    x = np.array([-2.5, 1.5, 3.0])
    wanted = (x % 2, 7 % x, np.floor(x), np.ceil(x), np.rint(x), np.trunc(x), np.fmod(x, 2))
    for found, want in zip(graph(x), wanted, strict=True):
        assert (found == want).all()
