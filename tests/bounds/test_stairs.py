"""Lines of floor, ceil, round and sign, against rationals; bounds of networks with them, against float32 executions in
which every reader computes its own copy of what stands before a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from slices import slices
from specgrad.bounds import Box, crown
from specgrad.bounds.search.certify import certify
from specgrad.op import REGISTRY
from specgrad.rounding import Arithmetic

torch = pytest.importorskip("torch")

from specgrad.bounds.linear.intermediate import deviation  # noqa: E402
from specgrad.bounds.linear.relaxation import step_functions as stairs  # noqa: E402

EXACT: dict[str, Callable[[Fraction], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,  # Python's is to even too
    "sign": lambda x: (x > 0) - (x < 0),
}
TINY = Fraction(2) ** -126


# --- lines ------------------------------------------------------------------------------------------------------------


def boxes(rng: Random, count: int) -> list[tuple[float, float]]:
    """Of any width, at whole and half numbers, at zero, and among subnormal numbers of float32."""
    pairs = []
    for _ in range(count):
        start = rng.choice([0.0, 1.0, -2.0, 0.5, -0.5, 1.5, 7.0, 2.0**52, 1e-40, -1e-40, 1e-46, rng.uniform(-9, 9)])
        width = rng.choice([0.0, 1e-40, 1e-9, 0.3, 1.0, 2.5, 40.0, 10.0 ** rng.uniform(-12, 3)])
        pairs.append((start, start + width) if rng.random() < 0.5 else (start - width, start))
    return pairs


def places(low: float, high: float) -> list[float]:
    """Both ends, the jumps between them and what stands beside these, and some more."""
    near = {low, high, 0.0, 1e-40, -1e-40, float(TINY), -float(TINY), low / 2 + high / 2, low + 0.3 * (high - low)}
    for k in range(int(2 * low) - 2, min(int(2 * high) + 3, int(2 * low) + 200)):
        near |= {k / 2, np.nextafter(k / 2, -np.inf), np.nextafter(k / 2, np.inf)}
    return [float(x) for x in near if low <= x <= high]


def escapes(name: str, count: int = 300, flush: bool = True) -> int:
    """Places where a line is on the wrong side of a step."""
    pairs, wrong = boxes(Random(1), count), 0
    low, high = (torch.tensor(ends, dtype=torch.float64) for ends in zip(*pairs, strict=True))
    lines = stairs.step_relaxation(REGISTRY[name], low, high, float(TINY) if flush else 0.0)
    for (a, b), *line in zip(pairs, *(t.tolist() for t in lines), strict=True):
        down, lower, up, upper = map(Fraction, line)
        for x in map(Fraction, places(a, b)):
            values = {EXACT[name](x), *([EXACT[name](Fraction(0))] if flush and abs(x) < TINY else [])}
            wrong += not all(down * x + lower <= y <= up * x + upper for y in values)
    return wrong


@pytest.mark.parametrize("flush", [True, False])
@pytest.mark.parametrize("name", EXACT)
def test_lines_hold(name: str, flush: bool) -> None:
    assert escapes(name, flush=flush) == 0


@pytest.mark.parametrize("name", EXACT)
def test_steps_elsewhere_are_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stairs.STEP_OFFSET, REGISTRY[name], stairs.STEP_OFFSET[REGISTRY[name]] + 0.25)
    assert escapes(name) > 0


def test_subnormal_numbers_that_never_count_as_zero_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stairs, "_flushed_to_zero", lambda end, side, tiny: end)
    assert min(escapes(name) for name in ("floor", "ceil", "sign")) > 0


def test_lines_are_the_best_at_the_middle() -> None:
    """floor on 0.2..1.1: above through (0.2, 0) and (1, 1), below 0; a part of one step is a number."""
    low, high = (torch.tensor(ends, dtype=torch.float64) for ends in ([0.2, 0.25, 0.0], [1.1, 0.75, 10.0]))
    lines = [[round(v, 9) for v in t.tolist()] for t in stairs.step_relaxation(REGISTRY["floor"], low, high)]
    assert lines == [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0], [1.25, 0.0, 1.0], [-0.25, 0.0, 0.0]]


# --- networks ---------------------------------------------------------------------------------------------------------


class Drawn:
    """out = V stair(s*(W x + b) + c), weights of few bits, so that exact jumps are met."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rng, self.name = Random(seed), str(rng.choice(list(EXACT)))
        self.w = np.float32(rng.integers(-8, 9, (3, 2)) / 8)
        self.b = np.float32(rng.integers(-8, 9, 3) / 16)
        self.s, self.c = np.float32(rng.choice([1.0, 0.1, 3.3], 3)), np.float32(rng.choice([0.0, 0.7], 3))
        self.v = np.float32(rng.integers(-3, 4, (2, 3)))
        self.v = [self.v, self.v[[0, 0]], np.float32([[1, 0, 0], [0, -1, 0]])][seed % 3]  # equal rows read copies
        center = np.float32(rng.integers(-8, 9, 2) / 4)
        width = np.float32(rng.choice([0.01, 0.3, 2.0]))
        self.low, self.high = center - width, center + width

    def graph(self) -> sg.Graph:
        step = getattr(sg, self.name if self.name != "round" else "round_", None) or (
            lambda x: sg.op.apply(REGISTRY[self.name], x)
        )
        return sg.trace(
            lambda x: sg.linear(self.v, None, step(sg.add(sg.mul(sg.linear(self.w, self.b, x), self.s), self.c))), (2,)
        )

    def inputs(self) -> np.ndarray:
        """At random, at corners, and moved along an axis until some cell stands at a jump or beside it."""
        rng = self.rng
        x = np.float32([rng.choice([a, b, rng.uniform(a, b)]) for a, b in zip(self.low, self.high, strict=True)])
        j, k = rng.randrange(3), rng.randrange(2)
        if self.w[j, k] and self.s[j]:
            t = self._exact(x)[j]
            to = Fraction(round(2 * t), 2)
            x[k] += np.float32(float((to - t) / Fraction(float(self.s[j])) / Fraction(float(self.w[j, k]))))
            for _ in range(rng.randrange(3)):
                x[k] = np.nextafter(x[k], np.float32(rng.choice([-9, 9])))
        return np.clip(x, self.low, self.high)

    def _exact(self, x: np.ndarray) -> list[Fraction]:
        w, b, s, c = ([Fraction(float(v)) for v in np.ravel(a)] for a in (self.w, self.b, self.s, self.c))
        at = [Fraction(float(v)) for v in x]
        return [(w[2 * j] * at[0] + w[2 * j + 1] * at[1] + b[j]) * s[j] + c[j] for j in range(3)]

    def _copy(self, j: int, z: np.float32, x: np.ndarray, merged: bool) -> Fraction:
        """One computation of what stands before the step: merged, or after z with two roundings or fewer."""
        if merged:
            return self._exact(x)[j]
        if self.rng.random() < 0.5:
            return Fraction(float(np.float32(np.float32(z * self.s[j]) + self.c[j])))
        exact = Fraction(float(z)) * Fraction(float(self.s[j])) + Fraction(float(self.c[j]))
        return exact if self.rng.random() < 0.5 else Fraction(float(np.float32(float(exact))))

    def run(self, x: np.ndarray) -> list[Fraction]:
        """Every output reads a copy of its own; sums of small whole numbers are exact."""
        order = self.rng.sample([0, 1, 2], 3)
        terms = [[self.w[j, 0] * x[0], self.w[j, 1] * x[1], self.b[j]] for j in range(3)]
        z = [np.float32(np.float32(t[order[0]] + t[order[1]]) + t[order[2]]) for t in terms]
        merged = self.rng.random() < 0.3
        step = EXACT[self.name]
        return [
            sum((Fraction(float(row[j])) * step(self._copy(j, z[j], x, merged)) for j in range(3)), Fraction(0))
            for row in self.v
        ]


def strayed(seeds: range, samples: int = 60, **options: Any) -> list[int]:
    """Seeds of networks with an execution outside its bounds."""
    wrong = []
    for seed in seeds:
        drawn = Drawn(seed)
        bounds = crown(drawn.graph(), Box(drawn.low, drawn.high), objective=ROWS, **options).objective
        for _ in range(samples):
            y = drawn.run(drawn.inputs())
            values = [y[0], y[1], y[0] - y[1], y[0] + y[1]]
            if not all(
                Fraction(a) <= v <= Fraction(b) for a, v, b in zip(bounds.low, values, bounds.high, strict=True)
            ):
                wrong.append(seed)
                break
    return wrong


ROWS = np.array([[1.0, 0], [0, 1], [1, -1], [1, 1]])


@pytest.mark.parametrize("seeds", slices(30, 45))
def test_no_execution_leaves_its_bounds(seeds: range) -> None:
    assert strayed(seeds) == []


@pytest.mark.slow
def test_no_execution_of_many_networks_leaves_its_bounds() -> None:
    assert strayed(range(1000, 2000), 200) == []


def test_copies_on_one_step_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: values that are a rounding apart would always stand on one step."""
    monkeypatch.setattr(deviation, "_deviation_by_steps", lambda run, node, x, apart: np.zeros(node.shape))
    assert any(strayed(range(seed, seed + 1)) for seed in range(45))


def test_lines_that_are_too_low_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    original = stairs.step_relaxation
    monkeypatch.setattr(
        stairs, "step_relaxation", lambda *args: (lines := original(*args))._replace(upper=lines.upper - 0.6)
    )
    assert any(strayed(range(seed, seed + 1)) for seed in range(45))


# --- what they are for ------------------------------------------------------------------------------------------------


def test_a_staircase_that_is_subtracted_from_its_source() -> None:
    """x - floor(x) lies in 0..1: intervals alone say -10..10."""
    graph = sg.trace(lambda x: x - sg.floor(x), (1,))
    bounds = crown(graph, Box([0.0], [10.0]), arithmetic=Arithmetic(execution="node")).outputs
    assert bounds.low[0] > -0.01
    assert bounds.high[0] < 1.01


@pytest.mark.parametrize(("limit", "verdict"), [("2.1", "holds"), ("1.9", "violated")])
def test_input_splits_follow_the_steps(limit: str, verdict: str) -> None:
    """3/2 floor(x) - x/2 is 2 at 2, and that is the most on 0..2.9."""
    graph = sg.trace(lambda x: sg.linear(np.float32([[1.5, -0.5], [0, 0]]), None, sg.concat([sg.floor(x), x], 0)), (1,))
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
    text += f"(assert (>= X_0 0.0))(assert (<= X_0 2.9))(assert (>= Y_0 {limit}))"
    from specgrad.properties.vnnlib import read_text

    assert certify(graph, read_text(text)).verdict == verdict
