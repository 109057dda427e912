"""The lines of a smooth maximum hold on boxes of any size, against balls of python-flint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import flint
import numpy as np
import pytest
import torch
from flint import arb
from torch import Tensor

import specgrad as sg
from specgrad.bounds import Box, crown
from specgrad.bounds.linear.relaxation import formulas as relax
from specgrad.bounds.linear.relaxation.formulas import LinearRelaxation

Make = Callable[[Tensor, Tensor, Tensor, Tensor, float], LinearRelaxation]


@pytest.fixture(autouse=True)
def _narrow_balls() -> Iterator[None]:
    with flint.ctx.workprec(400):
        yield


def smooth_maximum(x: list[float], zeros: int, beta: float) -> arb:
    """log(zeros + sum exp(beta*x))/beta, shifted by the largest exponent."""
    z = [arb(beta) * arb(v) for v in x] + [arb(0)] * zeros
    top = max(z, key=lambda v: float(v.mid()))
    return (top + sum(((v - top).exp() for v in z), arb(0)).log()) / arb(beta)


def drawn(rng: Random) -> tuple[list[float], list[float], list[bool], int, float]:
    """A box of some taps, its size from 1e-3 to 1e14, narrow or wide; a few taps are padding."""
    taps, size = rng.randint(1, 6), 10 ** rng.uniform(-3, 14)
    beta = rng.choice((-1, 1)) * 10 ** rng.uniform(-2, 2)
    spread = size * 10 ** rng.choice((0.0, -3.0, -8.0, -14.0))
    middle = rng.choice((0.0, size, -size))
    ends = [sorted(middle + rng.uniform(-spread, spread) for _ in range(2)) for _ in range(taps)]
    if rng.random() < 0.3:
        ends = [ends[0]] * taps  # equal taps: the shares are all the same
    inside = [rng.random() < 0.8 for _ in range(taps)]
    return [e[0] for e in ends], [e[1] for e in ends], inside, rng.choice((0, inside.count(False))), beta


def escapes(make: Make, seed: int, points: int = 6) -> list[str]:
    """Points of a random box where a line is on the wrong side."""
    rng = Random(f"smooth/{seed}")
    low, high, inside, zeros, beta = drawn(rng)
    if not any(inside):
        return []
    box = [torch.tensor(end, dtype=torch.float64)[:, None] for end in (low, high)]
    lines = make(*box, torch.tensor(inside)[:, None], torch.tensor([zeros]), beta)
    found = []
    for k in range(points):
        corner = [
            rng.choice(e) if k % 2 else min(max(rng.uniform(*e), e[0]), e[1]) for e in zip(low, high, strict=True)
        ]
        value = smooth_maximum([v for v, here in zip(corner, inside, strict=True) if here], zeros, beta)
        for slope, offset, sign in ((lines.lower_slope, lines.lower, 1), (lines.upper_slope, lines.upper, -1)):
            line = sum((arb(s) * arb(v) for s, v in zip(slope[:, 0].tolist(), corner, strict=True)), arb(offset.item()))
            if not sign * (value - line) >= 0:
                found.append(f"seed {seed}: {'lower' if sign > 0 else 'upper'} line {line} of {value} at {corner}")
    return found


def hunted(make: Make, seeds: range) -> list[str]:
    return [text for seed in seeds for text in escapes(make, seed)]


def test_lines_hold_on_boxes_of_any_size() -> None:
    assert not hunted(relax.smooth_largest, range(300))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 21000, 2000))
def test_hunt(start: int) -> None:
    assert not hunted(relax.smooth_largest, range(start, start + 2000))


def tangent(low: Tensor, high: Tensor, inside: Tensor, zeros: Tensor, beta: float) -> LinearRelaxation:
    """The tangent whose weights exp(beta*(x - y)) rest on a rounded y: what stood here once."""
    if beta < 0:
        up = tangent(-high, -low, inside, zeros, -beta)
        return LinearRelaxation(up.upper_slope, -up.upper, up.lower_slope, -up.lower)
    found, middle = relax.smooth_largest(low, high, inside, zeros, beta), low / 2 + high / 2
    y = relax._log_sum(middle, inside, zeros, beta)
    weights = torch.where(inside, torch.exp(beta * (middle - y)), 0.0)
    return found._replace(lower_slope=weights, lower=y - (weights * middle).sum(0) - 1e-12 * y.abs())


def without_slack(low: Tensor, high: Tensor, inside: Tensor, zeros: Tensor, beta: float) -> LinearRelaxation:
    found = relax.smooth_largest(low, high, inside, zeros, beta)
    size = torch.maximum(low.abs(), high.abs()).amax(0)
    return found._replace(upper=found.upper - 2.0**-44 * size)


@pytest.mark.parametrize("mistake", [tangent, without_slack])
def test_planted_mistakes_are_caught(mistake: Make) -> None:
    assert any(escapes(mistake, seed) for seed in range(600))


@pytest.mark.parametrize("deployed", [False, True])
@pytest.mark.parametrize(("beta", "low", "high"), [(30, -1e6, 3e6), (1, 1e9, 3e9), (3, 1e12, 3e12), (0.01, 6e14, 8e14)])
def test_crown_on_wide_boxes(beta: float, low: float, high: float, deployed: bool) -> None:
    """Three equal taps: x + log(3)/beta, exactly."""
    graph = sg.trace(lambda x: sg.smooth_max_pool(sg.broadcast(x, (1, 1, 3)), (3,), beta=beta), (1, 1, 1))
    found = crown(graph, Box(np.full((1, 1, 1), low), np.full((1, 1, 1), high)), deployed=deployed).outputs
    assert arb(found.low.item()) <= smooth_maximum([low] * 3, 0, beta)
    assert smooth_maximum([high] * 3, 0, beta) <= arb(found.high.item())
    assert found.low.item() > low - 1e-5 * abs(low)
