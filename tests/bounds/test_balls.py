"""Balls of inputs by the norms 1 and 2: membership, bounds and verdicts against exact numbers; attacks stay inside."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

import specgrad as sg
from slices import each
from specgrad.bounds.linear.relaxation.input_ball import BoundInputBall, InputBall
from specgrad.bounds.search.certificates.prove import NoCertificateError, prove
from specgrad.bounds.search.certify import certify
from specgrad.bounds.search.network.pgd_attack import DeployedNetwork, Effort, attack
from specgrad.bounds.search.neuron_split.subproblems import input_ball, root_forward
from specgrad.errors import ParameterError
from specgrad.properties.ball import NormBall, norm_upper_bound
from specgrad.properties.property import PropertyError, robustness
from specgrad.properties.vnnlib import read_text

SUM = sg.trace(
    lambda x: sg.relu(sg.linear(np.float32([[1, 1], [-1, -1]]), np.float32([1, 1]), x)), (2,)
)  # y_0 - y_1 = relu(1 + s) - relu(1 - s), s = x_0 + x_1: above 0 where s is
NORMS = ("inf", "2", "1")


def test_sizes_of_vectors() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 3, 50):
        for scale in (1e-30, 1.0, 1e20):
            away = [Fraction(float(v)) for v in rng.normal(size=n) * scale]
            square = sum(d * d for d in away)
            above = norm_upper_bound(away, "2")
            assert square <= above**2 <= square * (1 + Fraction(1, 2**60))
            assert norm_upper_bound(away, "1") == sum(map(abs, away))
            assert norm_upper_bound(away, "inf") == max(map(abs, away))
    assert norm_upper_bound([Fraction(0)], "2") == 0


def test_a_point_is_in_the_ball_or_not() -> None:
    """(3, 4)/8 has size 5/8 and sum 7/8, exactly; the next float32 is outside."""
    x, beyond = np.float32([0.375, 0.5]), np.float32([0.375, np.nextafter(np.float32(0.5), np.float32(1))])
    for norm, eps in (("2", Fraction(5, 8)), ("1", Fraction(7, 8))):
        (case,) = robustness([0.0, 0.0], 0, eps, 2, norm=norm).cases
        assert case.has(x)
        assert not case.has(beyond)
        assert case.low == (-eps, -eps)
    (case,) = robustness([0.0, 0.0], 0, Fraction(5, 8), 2, norm="2", low=-0.25, high=0.5).cases
    assert (case.low, case.high) == ((Fraction(-1, 4),) * 2, (Fraction(1, 2),) * 2)
    assert case.has(x)
    with pytest.raises(PropertyError, match="norm must be one of inf, 2, 1; got '3'"):
        robustness([0.0], 0, 1, 2, norm="3")


def test_the_ball_of_a_proof_holds_what_rounding_makes_of_its_points() -> None:
    rng = np.random.default_rng(1)
    for norm in ("2", "1"):
        for _ in range(50):
            middle = rng.normal(size=4).astype(np.float32)
            (case,) = robustness(middle, 0, Fraction(1, 3), 2, norm=norm).cases
            outer = case.outer_ball()
            assert outer is not None
            center, radius = outer
            away = [Fraction(int(v), 1000) for v in rng.integers(-500, 501, 4)]
            share = Fraction(1, 3) / norm_upper_bound(away, norm)
            point = [Fraction(float(m)) + share * d for m, d in zip(middle, away, strict=True)]
            moved = [_rounded(v, int(s)) for v, s in zip(point, rng.choice([-1, 1], 4), strict=True)]
            off = [v - Fraction(float(c)) for v, c in zip(moved, center, strict=True)]
            assert NormBall(norm, (Fraction(0),) * 4, Fraction(radius)).has(off)


def _rounded(v: Fraction, direction: int) -> Fraction:
    near = np.float32(float(v))
    if (Fraction(float(near)) - v) * direction < 0:
        near = np.nextafter(near, np.float32(direction * np.inf))
    return Fraction(float(near))


# --- bounds -----------------------------------------------------------------------------------------------------------


class Known:
    """A layer's view of one box."""

    parallel = False

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        self.ends = torch.from_numpy(low)[None], torch.from_numpy(high)[None]

    def interval(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.ends


def least(a: np.ndarray, ball: InputBall, low: np.ndarray, high: np.ndarray) -> float:
    layer = BoundInputBall(0, sg.trace(sg.relu, (len(a),)).nodes[0], ball)
    back = layer.bound_backward(torch.from_numpy(a)[None, None], Known(low, high))
    return float(back.constant - back.lost)


@pytest.mark.parametrize("norm", ["2", "1"])
def test_a_linear_function_over_a_ball_and_a_box(norm: str) -> None:
    """Never above exact points of both; without a box that cuts, the value of the formula; better than either alone."""
    rng, gained = np.random.default_rng(2), 0
    for _ in range(60):
        n = int(rng.integers(1, 6))
        a, c = rng.normal(size=n), rng.normal(size=n)
        ball = InputBall(norm, torch.from_numpy(c), 1.0)
        wide = least(a, ball, c - 1, c + 1)
        dual = math.sqrt(sum(v * v for v in a)) if norm == "2" else max(abs(a))
        assert wide == pytest.approx(float(a @ c) - dual, abs=1e-12)
        low, high = c - rng.uniform(0, 1, n), c + rng.uniform(0, 1, n)
        both = least(a, ball, low, high)
        alone = float(a @ (low + high) / 2 - abs(a) @ (high - low) / 2)
        assert both >= max(wide, alone) - 1e-12
        gained += both > max(wide, alone) + 1e-3
        points = c + _in_the_ball(rng, n, norm)
        points = points[((points >= low) & (points <= high)).all(1)]
        assert both <= min((float(p @ a) for p in points), default=np.inf) + 1e-12
    assert gained > 10


def _in_the_ball(rng: np.random.Generator, n: int, norm: str) -> np.ndarray:
    away = rng.normal(size=(400, n)) * rng.choice([0.01, 1], (400, n))
    size = np.sqrt((away**2).sum(1)) if norm == "2" else np.abs(away).sum(1)
    return away / size[:, None]


@pytest.mark.parametrize("norm", ["2", "1"])
def test_bounds_of_layers_hold_and_are_narrower_than_the_hull(norm: str) -> None:
    rng = np.random.default_rng(3)
    w, v = (rng.normal(size=s).astype(np.float32) for s in ((8, 10), (2, 8)))
    graph = sg.trace(lambda x: sg.linear(v, None, sg.relu(sg.linear(w, None, x))), (10,))
    middle = rng.normal(size=10).astype(np.float32)
    (case,) = robustness(middle, 0, Fraction(1, 2), 2, norm=norm).cases
    ends = case.outer()
    whole, inside = (root_forward(graph, *ends, ball=b) for b in (None, input_ball(case)))
    points = middle + 0.5 * _in_the_ball(rng, 10, norm)
    for i, node in enumerate(graph.nodes):
        if node.op.name == "contract" and node.shape == (8,):
            (low, high), (lowest, highest) = inside.interval(i), whole.interval(i)
            values = points @ w.T.astype(float)
            assert (values >= low).all()
            assert (values <= high).all()
            assert ((high - low) < 0.8 * (highest - lowest)).all()


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("norm", "below", "above"), [("inf", "0.499", "0.501"), ("2", "0.707", "0.7075"),
                                                      ("1", "0.999", "1.001")])  # fmt: skip
def test_the_distance_of_a_line(norm: str, below: str, above: str) -> None:
    """From (1/2, 1/2) to x_0 + x_1 = 0: 1/2 cell by cell, 1/sqrt(2) straight, 1 along the axes."""
    assert certify(SUM, ([0.5, 0.5], 0, Fraction(below)), norm=norm).verdict == "holds"
    verdict = certify(SUM, ([0.5, 0.5], 0, Fraction(above)), norm=norm)
    assert verdict.verdict == "violated"
    assert verdict.counterexample is not None
    away = [Fraction(float(v)) - Fraction(1, 2) for v in verdict.counterexample.x]
    assert norm_upper_bound(away, norm) <= Fraction(above)


def test_a_smaller_ball_is_caught() -> None:
    """The planted mistake: a radius of 0.7 where 0.75 is asked "proves" what a counterexample breaks."""
    (case,) = robustness([0.5, 0.5], 0, Fraction(3, 4), 2, norm="2").cases
    assert case.ball is not None
    point = attack(DeployedNetwork(SUM), case)
    assert point is not None
    assert case.has(point.x)
    ball = input_ball(case)
    assert ball is not None
    from specgrad.bounds.linear.intermediate.tighten import output_bounds

    def margin(radius: float) -> float:
        root = root_forward(SUM, *case.outer(), ball=replace(ball, radius=radius))
        return float(output_bounds(root, case.alternatives[0].rows)[0][0])

    assert margin(0.7) > 0 >= margin(ball.radius)


@pytest.mark.parametrize("norm", ["2", "1"])
@pytest.mark.parametrize("seed", each(1, 3))
def test_no_attack_breaks_what_holds(norm: str, seed: int) -> None:
    """Bisected: the largest eps that is proven has no counterexample that attacks find, and they stay in the ball."""
    rng = np.random.default_rng(seed)
    w, v = (rng.normal(size=s).astype(np.float32) for s in ((6, 4), (2, 6)))
    graph = sg.trace(lambda x: sg.linear(v, None, sg.relu(sg.linear(w, None, x))), (4,))
    x = rng.normal(size=4).astype(np.float32)
    label = int(np.argmax(graph(x)))
    network = DeployedNetwork(graph)
    for eps in (Fraction(1, 16), Fraction(1, 4), Fraction(1)):
        verdict = certify(graph, (x, label, eps), norm=norm, seconds=5)
        (case,) = robustness(x, label, eps, 2, norm=norm).cases
        point = attack(network, case, Effort(starts=6, steps=40, seed=9))
        assert verdict.verdict != "holds" or point is None
        for found in (point, verdict.counterexample):
            if found is not None:
                away = [Fraction(float(a)) - Fraction(float(b)) for a, b in zip(found.x, x, strict=True)]
                assert NormBall(norm, (Fraction(0),) * 4, eps).has(away)


def test_what_does_not_know_balls_says_so() -> None:
    with pytest.raises(NoCertificateError, match="certificates are about boxes; this property is about a ball"):
        prove(SUM, ([0.5, 0.5], 0, 0.1), norm="2")
    text = "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
    text += "".join(f"(assert (>= X_{i} 0))(assert (<= X_{i} 1))" for i in range(2)) + "(assert (<= Y_0 Y_1))"
    with pytest.raises(ParameterError, match=r"norm goes with \(x, label, eps\)"):
        certify(SUM, read_text(text), norm="2")
