"""Quotients by a varying divisor: the plane over rationals, its rounding on executions, norms that it makes narrow."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from executor import Setting, execute
from program import Program
from specgrad.bounds import Box, crown
from specgrad.bounds.linear.relaxation import multi_input
from specgrad.bounds.linear.relaxation.multi_input import BoundQuotient
from specgrad.check import tolerance
from specgrad.rounding import Arithmetic

NODE = Arithmetic(execution="node")
CELLS = 200


# --- the plane --------------------------------------------------------------------------------------------------------


class Ends:
    """What a layer asks of the backward pass: intervals by position."""

    def __init__(self, *ends: tuple[np.ndarray, np.ndarray]) -> None:
        self.ends = [tuple(torch.from_numpy(end)[None] for end in pair) for pair in ends]

    def interval(self, i: int) -> Any:
        return self.ends[i]


def intervals(rng: np.random.Generator, away: bool) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of many widths, down to a point; `away` from 0, or some that nearly reach it."""
    low = rng.choice((-1, 1), CELLS) * 10.0 ** rng.uniform(-3, 3, CELLS)
    width = np.abs(low) * 10.0 ** rng.uniform(-12, 0.5, CELLS) * (rng.random(CELLS) < 0.9)
    high = low + width
    if away:
        shut = low * high <= 0
        high = np.where(shut, low * (1 - 2.0 ** -rng.integers(2, 12, CELLS)), high)
        low, high = np.minimum(low, high), np.maximum(low, high)
    return low, high


def escapes(boxes: int = 60) -> int:
    """Points of boxes where the plane less its loss is above the quotient, or the negative one above its negative."""
    rng, wrong = np.random.default_rng(0), 0
    node = sg.trace(lambda x, y: x / y, (CELLS,), (CELLS,)).nodes[-1]
    layer = BoundQuotient(2, node, (0, 1), ((CELLS,), (CELLS,)))
    for _ in range(boxes):
        x, y = intervals(rng, False), intervals(rng, True)
        corners = np.array([a / b for a in x for b in y])
        spare = np.abs(corners).max(0)
        context = Ends(x, y, (corners.min(0) - spare, corners.max(0) + spare))
        rows = torch.cat([torch.eye(CELLS), -torch.eye(CELLS)])[None].double()
        pulled, constant, _ = layer.bound_backward(rows, context)  # type: ignore[arg-type]
        for u, v in ((0, 0), (0, 1), (1, 0), (1, 1), *rng.random((4, 2))):
            at = [np.clip(e[0] + s * (e[1] - e[0]), *e) for e, s in ((x, u), (y, v))]
            for k in range(CELLS):
                p, q = (Fraction(float(a[k])) for a in at)
                own = (
                    Fraction(2.0**-46)
                    * Fraction(float(max(map(abs, (x[0][k], x[1][k])))))
                    * abs(q)
                    / min(Fraction(float(abs(e[k]))) for e in y) ** 2
                )  # what the pass charges for its own float64
                for row, sign in ((k, 1), (k + CELLS, -1)):
                    below = sum(Fraction(float(c[0, row, k])) * a for c, a in zip(pulled, (p, q), strict=True))
                    wrong += sign * p / q < below + Fraction(float(torch.as_tensor(constant)[0, row])) - own
    return wrong


def test_the_plane_holds() -> None:
    """A hundred thousand corners and inner points, in rationals."""
    assert escapes() == 0


REMAINDER = multi_input.quotient_remainder
PLANTED = {
    "no curvature in the divisor": lambda mx, rx, my, ry: REMAINDER(0 * mx, rx, my, ry),
    "no product of both radii": lambda mx, rx, my, ry: REMAINDER(mx, 0 * rx, my, ry),
    "the divisor is never nearer to 0 than its middle": lambda mx, rx, my, ry: (
        REMAINDER(mx, rx, my, ry) * (my.abs() - ry) / my.abs()
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_planes_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_input, "quotient_remainder", PLANTED[name])
    assert escapes(2) > 0


@pytest.mark.parametrize("width", [0.2, 1e-3, 1e-15, 0.0])
@pytest.mark.parametrize("sizes", [(1e-200, 1e-140), (1e-170, 1e-150), (1e-300, 1e-100), (1e-40, 1e-20), (1e20, 1e-30)])
def test_quotients_of_small_numbers_hold(sizes: tuple[float, float], width: float) -> None:
    """The product of both radii is below all float64 numbers; the quotient is none of that."""
    rng = np.random.default_rng(4)
    low = [s * rng.uniform(1, 2, CELLS) for s in sizes]
    x, y = (Box(a, a * (1 + width * rng.random(CELLS))) for a in low)
    graph = sg.trace(lambda x, y: x / y, (CELLS,), (CELLS,))
    bounds = crown(graph, x, y, deployed=False).outputs
    for k in range(CELLS):
        ends = [[Fraction(float(e[k])) for e in (box.low, box.high)] for box in (x, y)]
        for a, b in ((a, b) for a in ends[0] for b in ends[1]):
            assert Fraction(float(bounds.low[k])) <= a / b <= Fraction(float(bounds.high[k]))


# --- networks ---------------------------------------------------------------------------------------------------------


def norms(blocks: int, width: int = 16) -> sg.Graph:
    """Blocks of a norm by the root of the mean square and a matrix, behind a residual."""
    rng = np.random.default_rng(1)
    weights = [(rng.normal(size=(width, width)) / 4).astype(np.float32) for _ in range(blocks)]

    def net(x: Any) -> Any:
        for w in weights:
            x = x + sg.linear(w, None, x / sg.sqrt(sg.mean(x * x, -1, keepdims=True) + np.float32(1e-6)))
        return x

    return sg.trace(net, (1, width))


QUOTIENTS = {
    "layer norm": sg.trace(lambda x: sg.layer_norm(x, (8,)), (2, 8)),
    "rms norms": norms(2, 8),
    "reciprocal": sg.trace(lambda x: 1 / (x * x + 0.5), (2, 8)),
    "a constant over": sg.trace(lambda x: np.linspace(-1, 1, 8) / (sg.relu(x) + 0.25), (2, 8)),
    "of sums": sg.trace(lambda x: sg.linear(np.ones((3, 8), np.float32), None, x) / (2 + sg.sum(x * x)), (2, 8)),
}


@pytest.mark.parametrize("execution", ["fused", "node"])
@pytest.mark.parametrize("name", QUOTIENTS)
def test_executions_stay_within(name: str, execution: str) -> None:
    """Random executions at a point, and at corners of boxes, lie inside; so does a run in float64."""
    graph, arithmetic = QUOTIENTS[name], Arithmetic(execution=execution)
    rng = np.random.default_rng(2)
    (shape,) = (graph.nodes[p].shape for p in graph.input_positions)
    for trial in range(6):
        x = rng.normal(size=shape).astype(np.float32).astype(float)
        eps = (0.0, 0.0, 1e-4, 1e-2, 0.1, 0.5)[trial]
        bounds = crown(graph, Box.around(x, eps), arithmetic=arithmetic)
        for k in range(4):
            at = (x + eps * rng.choice((-1, 0, 1), shape)).astype(np.float32).astype(float)
            at = np.clip(at, x - eps, x + eps)
            run = execute(Program(graph), [at.astype(np.float32).astype(float)], Setting(model=execution), Random(k))
            y = run.array(graph.output_positions[0]) if k else graph(at)
            if eps == 0 or k == 0:
                assert (bounds.outputs.low <= y).all()
                assert (y <= bounds.outputs.high).all()


@pytest.mark.parametrize("execution", ["fused", "node"])
def test_a_divisor_of_the_same_layer_rounds(execution: str) -> None:
    """A layer that divides by a sum of its own: what the sum loses in some order is in what is proven."""
    share = sg.composite(lambda x: x / sg.sum(x, -1, keepdims=True))
    x = np.random.default_rng(0).uniform(1, 2, (1, 256)).astype(np.float32)
    graph = sg.trace(share, x.shape)
    assert len({n.group for n in graph.nodes if n.args}) == 1
    box = crown(graph, Box(x, x), arithmetic=Arithmetic(execution=execution)).outputs
    total = np.float32(0)
    for term in x[0]:
        total += term
    assert abs(float(total) - x.astype(float).sum()) > 1e-5
    assert (box.low <= x / total).all()
    assert (x / total <= box.high).all()


def test_norms_do_not_widen_with_depth() -> None:
    """What is proven of eight norms is within ten times of what is proven of two; of intervals it was 250 times."""
    x = np.random.default_rng(3).normal(size=(1, 16)).astype(np.float32)
    two, eight = (tolerance(norms(n), x, arithmetic=NODE).tolerance for n in (2, 8))
    assert eight < 10 * two
