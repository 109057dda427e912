"""Softmax where numerators and the sum read their own roundings of x and of the maximum: none leaves its bounds."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import Box, crown
from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass

BIG, U, UNITS = np.float32(1e5), 2.0**-24, 4  # of exp, fewer than declared
F = np.float32


class Drawn:
    """softmax((W x + BIG) - BIG), or of W x alone, on a box."""

    def __init__(self, seed: int) -> None:
        self.rng, self.random = np.random.default_rng(seed), Random(seed)
        rng, cells, inputs = self.rng, seed % 3 + 2, seed % 2 + 1
        self.weights = F(rng.normal(size=(cells, inputs)) * rng.choice([0.1, 1, 5]))
        self.shifted, shift = seed % 3 > 0, np.full(cells, BIG)

        def net(x: Any) -> Any:
            y = sg.linear(self.weights, None, x)
            return sg.softmax(sg.sub(sg.add(y, shift), shift) if self.shifted else y, 0)

        self.graph, self.low = sg.trace(net, (inputs,)), F(rng.normal(size=inputs))
        self.high = F(self.low + rng.choice([0, 1e-6, 1e-3, 0.1], size=inputs))
        one = np.eye(cells)
        self.rows = np.concatenate([one, one[:1] - one[1:2], np.ones((1, cells)), rng.integers(-2, 3, (2, cells))])

    def copy(self, c: Any) -> list[float]:
        """Each cell with or without the rounding of the sum; constants may be folded to 0."""
        return [float(F(F(v + BIG) - BIG)) if self.shifted and self.random.random() < 0.5 else float(v) for v in c]

    def exp(self, t: float) -> float:
        return math.exp(float(F(t))) * (1 + self.random.choice((-1, 0, 1)) * UNITS * U)

    def outputs(self) -> list[float]:
        share = np.where(self.rng.random(len(self.low)) < 0.5, np.round(s := self.rng.random(len(self.low))), s)
        x = np.clip(F(self.low + share * (self.high - self.low)), self.low, self.high)
        c = [sum((F(w * v) for w, v in zip(row, x, strict=True)), F(0)) for row in self.weights]
        most = max(self.copy(c))
        total = float(F(sum(self.exp(v - most) for v in self.copy(c))))
        found = []
        for k in range(len(c)):
            e = self.exp(self.copy(c)[k] - max(self.copy(c)))
            found.append(float(F(F(e) * F(1 / total))) if self.random.random() < 0.5 else float(F(e / total)))
        return found


def escapes(seeds: range, runs: int = 40) -> list[int]:
    """The seeds of which some row of outputs leaves its bounds by more than float64 loses."""
    bad = []
    for seed in seeds:
        drawn = Drawn(seed)
        bounds = crown(drawn.graph, Box(drawn.low, drawn.high), objective=drawn.rows)
        seen = [drawn.rows @ np.array(drawn.outputs()) for _ in range(runs)]
        if (np.min(seen, 0) < bounds.low - 1e-13).any() or (np.max(seen, 0) > bounds.high + 1e-13).any():
            bad.append(seed)
    return bad


def test_no_softmax_of_copies_leaves_its_bounds() -> None:
    assert escapes(range(24)) == []


@pytest.mark.slow
def test_no_softmax_of_many_leaves_its_bounds() -> None:
    assert escapes(range(24, 600)) == []


def test_a_softmax_that_reads_one_value_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForwardPass, "_softmax_error", lambda self, layer: np.zeros(layer.node.shape))
    assert escapes(range(24))
