"""Relus that the proven checker bounds together: whatever vectors, relus and cells a question gives, no limit that an
execution reaches is accepted. Mistakes that are planted in the extracted program are caught.

make -C verified && python -m pytest tests/proof/test_proven_pieces.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")

import specgrad as sg
from proven_program import compiled, needed, planted
from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.proof.base.executions import executions
from specgrad.proof.base.rationals import ReplayError, rationals
from specgrad.proof.exact import multi_neuron
from specgrad.proof.exact.replay import Replay
from specgrad.proof.extracted import run_checker
from specgrad.proof.extracted.encode import CheckerInput
from specgrad.proof.files.certificate import CaseProof, Proof
from specgrad.rounding.arithmetic import Arithmetic

# --- networks ---------------------------------------------------------------------------------------------------------


class Net:
    """conv of 4 channels and 2 taps - relu - a row, on a box of 3 cells; as a graph, and as loops over any numbers.

    rough   the convolution cancels large products, so that float32 rounds much of it away
    """

    def __init__(self, seed: int, rough: bool = False) -> None:
        self.seed, rng = seed, Random(seed)
        self.rng = rng
        self.padding, self.stride = rng.randint(0, 1), rng.randint(1, 2)
        self.w = [[rng.randint(-8, 8) / 8 for _ in range(2)] for _ in range(4)]
        self.b = [rng.randint(-4, 4) / 8 for _ in range(4)]
        self.low = [rng.randint(-8, 4) / 8 for _ in range(3)]
        self.high = [v + rng.randint(0, 8) / 8 for v in self.low]
        if rough:
            self.padding = 0
            self.w = [[2**20 + a, -(2**20) - b] for a, b in self.w]
            self.low = self.high = [1 + rng.randrange(1 << 10) / (1 << 20) for _ in range(3)]
        self.reads = [[p * self.stride - self.padding + t for t in range(2)] for p in range(self._positions())]
        self.row = [rng.randint(-3, 3) for _ in range(4 * len(self.reads))]
        w, b, row = np.float32(self.w)[:, None], np.float32(self.b), np.float32(self.row)[None]
        conv = lambda x: sg.conv(w, b, x, stride=self.stride, padding=self.padding)
        self.graph = deployed_graph(
            sg.trace(lambda x: sg.linear(row, None, sg.flatten(sg.relu(conv(x)), 1)), (1, 1, 3))
        )
        self.relu = next(i for i, n in enumerate(self.graph.nodes) if n.op.name == "relu")
        self.reached = self.least()

    def _positions(self) -> int:
        return (3 + 2 * self.padding - 2) // self.stride + 1

    def at(self, position: int, x: list[Any], lift: Callable[[Any], Any]) -> Any:
        """What the relus of a position add to the output."""
        total = lift(0)
        for c, (taps, b) in enumerate(zip(self.w, self.b, strict=True)):
            z = lift(0)
            for w, i in zip(taps, self.reads[position], strict=True):
                z = z + lift(w) * (x[i] if 0 <= i < 3 else lift(0))
            total = total + lift(self.row[c * len(self.reads) + position]) * max(lift(0), z + lift(b))
        return total

    def output(self, x: Sequence[float], lift: Callable[[Any], Any]) -> float:
        cells = [lift(v) for v in x]
        return float(sum((self.at(p, cells, lift) for p in range(len(self.reads))), lift(0)))

    def least(self) -> Fraction:
        """The least output that is found at corners and middles, in float32 and in float64, which is exact here."""
        ends = [sorted({a, (a + b) / 2, b}) for a, b in zip(self.low, self.high, strict=True)]
        return Fraction(min(self.output(x, lift) for x in itertools.product(*ends) for lift in (float, np.float32)))

    def vectors(self) -> Any:
        """Near the mean slopes of what a position adds, or anywhere."""
        self.rng.seed(self.seed)
        found = np.zeros((len(self.reads), 2), np.int64)
        for p, t in np.ndindex(found.shape):
            i, middle = self.reads[p][t], [(a + b) / 2 for a, b in zip(self.low, self.high, strict=True)]
            ends = [[v if j == i else m for j, m in enumerate(middle)] for v in (self.low[i % 3], self.high[i % 3])]
            steps = [self.at(p, x, float) for x in ends]
            width = self.high[i % 3] - self.low[i % 3]
            found[p, t] = 0 if width == 0 else (steps[1] - steps[0]) / width * (1 << multi_neuron.VECTOR_FRAC_BITS)
        if self.rng.random() < 0.3:
            found += np.array([self.rng.choice([0, 0, 1, -(2**18), 2**21]) for _ in found.flat]).reshape(found.shape)
        if self.rng.random() < 0.1:
            found[...] = self.rng.choice([2**31 - 1, -(2**31), 0])
        return found.astype(np.int32)

    def question(self, limit: Fraction, vectors: Any) -> CheckerInput:
        low, high = (np.float32(end).reshape(1, 1, 3) for end in (self.low, self.high))
        proof = Proof((1,), {}, (), {self.relu: vectors})
        return CheckerInput(self.graph, CaseProof(low, high, ((np.ones((1, 1)), (limit,), proof),)), EXECUTIONS)

    def replayed(self, vectors: Any) -> Fraction:
        """The bound of the checker in Python."""
        low, high = (np.float32(end).reshape(1, 1, 3) for end in (self.low, self.high))
        found = Replay(self.graph, low, high, {}).lower(rationals([1]), vectors={self.relu: vectors})
        return Fraction(int(found.p), int(found.q))


EXECUTIONS = executions(Arithmetic())
network = cache(Net)
MANY, FEW = range(100), range(30)


# --- what it accepts --------------------------------------------------------------------------------------------------


@needed
def test_it_accepts_what_python_grants() -> None:
    """Less a little: its slopes have 20 places."""
    questions = []
    for seed in range(60):
        net = network(seed)
        vectors = net.vectors()
        bound = net.replayed(vectors)
        questions.append(net.question(bound - Fraction(1, 1000) - abs(bound) / 1000, vectors))
    assert all(run_checker.ask(questions))


@needed
def test_it_uses_the_vectors() -> None:
    """The same limits with a vector far off are refused."""
    nets = [network(seed) for seed in range(60)]
    far = [np.full((len(n.reads), 2), 2**30, np.int32) for n in nets]
    asked = [n.question(n.replayed(n.vectors()) - Fraction(1, 100), m) for n, m in zip(nets, far, strict=True)]
    assert sum(run_checker.ask(asked)) < 6  # a box may be a point


# --- forgeries --------------------------------------------------------------------------------------------------------


def false_yes(seeds: range, rough: bool = False) -> int:
    """How many limits that are reached are accepted."""
    return sum(run_checker.ask([n.question(n.reached, n.vectors()) for n in (network(seed, rough) for seed in seeds)]))


def forged(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Cells that relus read are left out or exchanged, and relus stand in other groups, or twice in one."""
    rng, read, positions = Random(seed), multi_neuron.input_patches, multi_neuron.by_position

    def forged_read(*args: Any) -> Any:
        found = np.array(read(*args))
        for _ in range(rng.randint(0, 2)):
            found.reshape(-1)[rng.randrange(found.size)] = rng.choice([0, 0, 1, 2, 3])
        return found

    def forged_positions(a: Any) -> Any:
        found = np.array(positions(a))
        for _ in range(rng.randint(0, 2)):
            flat = found.reshape(-1)
            flat[rng.randrange(found.size)] = flat[rng.randrange(found.size)]
        return found

    monkeypatch.setattr(multi_neuron, "input_patches", forged_read)
    monkeypatch.setattr(multi_neuron, "by_position", forged_positions)


@needed
def test_forged_vectors_prove_nothing_false() -> None:
    assert not false_yes(MANY)
    assert not false_yes(FEW, rough=True)


@needed
def test_forged_groups_prove_nothing_false(monkeypatch: pytest.MonkeyPatch) -> None:
    forged(monkeypatch, 0)
    assert not false_yes(MANY)


MISTAKES = {
    "one piece of each cell is forgotten": ("((l, p0) :: b1) :: (((p0, h) :: b1) :: [])", "((l, p0) :: b1) :: []"),
    "the best piece counts": ("| Some u -> Some (smaller v u)", "| Some u -> Some (larger v u)"),
    "the vector is for nothing": ("least_of ms (map neg m)", "least_of ms (map (fun _ -> zero) m)"),
    "the line above is the line below": (
        "(match relu_line a (sub0 (add0 p o)",
        "(match relu_line one (sub0 (add0 p o)",
    ),
}


@compiled
@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_caught(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planted(*MISTAKES[name], monkeypatch, tmp_path)
    assert false_yes(MANY)


@compiled
def test_errors_that_are_not_charged_are_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    line = "let { pull = a; error = e; bias = o; inner = ws } = m in"
    planted(line, f"{line} let e = zero in", monkeypatch, tmp_path)
    assert false_yes(FEW, rough=True)


@compiled
def test_cells_that_are_left_out_are_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planted("let (ws, f0) = taken xs t in", "let (ws, _) = taken xs t in let f0 = Empty in", monkeypatch, tmp_path)
    forged(monkeypatch, 0)
    assert false_yes(MANY)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_vectors_that_do_not_fit_are_refused() -> None:
    net = Net(0)
    for vectors in (np.zeros((7, 2), np.int32), np.zeros((len(net.reads), 2), np.float32)):
        with pytest.raises(ReplayError, match="must be whole, of"):
            net.question(Fraction(0), vectors)
    net.relu = len(net.graph.nodes) - 1
    with pytest.raises(ReplayError, match="no relu of a convolution"):
        net.question(Fraction(0), np.zeros((len(net.reads), 2), np.int32))
