"""Two networks, and linear constraints on inputs: no execution inside a property's set breaks what is said to hold.

Each network is executed by itself, in a way of its own (tests/hunt/executor.py), on points that keep the constraints
exactly. The least objective that was seen is asked for: "holds" would be a false proof.
"""

from __future__ import annotations

import itertools
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from executor import Setting, execute
from program import Program
from slices import slices

pytest.importorskip("torch")
pytest.importorskip("vnnlib")

from specgrad.bounds.interval_bounds import REAL
from specgrad.bounds.search.certify import _Certifier
from specgrad.bounds.search.network import merged_network as joining
from specgrad.bounds.search.neuron_split.subproblems import root_forward
from specgrad.bounds.search.query import certify_query
from specgrad.properties import vnnlib

HEAD = """(vnnlib-version <2.0>)
(declare-network f (declare-input X float32 [3]) (declare-output Y float32 [2]))
(declare-network g (isomorphic-to f) (declare-input V float32 [3]) (declare-output Z float32 [2]))
"""
CELLS, SECONDS = 3, 2.0
BENDS = ("relu", "abs", "leaky_relu")


class Drawn:
    """Two networks, a box, constraints row.(x, v) <= k, an objective over both networks' outputs.

    same   both read one input; else v may be up to 1/4 away from x in every cell, as constraints say
    """

    def __init__(self, seed: int) -> None:
        self.rng, numbers = Random(f"joined/{seed}"), np.random.default_rng(seed)
        level = np.float32([self.rng.choice((0, 0, 2**12, 2**16))])
        first = [numbers.integers(-8, 9, s).astype(np.float32) / 6 for s in ((4, CELLS), (2, 4))]
        step = self.rng.choice((0, 2**-9, 1))  # the same weights, near ones, others
        changed = [w + numbers.choice((0, step), w.shape).astype(np.float32) for w in first]
        bend = self.rng.choice((sg.relu, sg.abs, lambda v: sg.leaky_relu(v, 0.125), lambda v: v))

        def made(w: Any, v: Any) -> sg.Graph:
            hidden = lambda x: bend(sg.sub(sg.add(sg.linear(w, None, x), level), level))
            return sg.trace(lambda x: sg.linear(v, None, hidden(x)), (CELLS,))

        self.networks = made(*first), made(*changed)
        self.programs = [Program(graph) for graph in self.networks]
        self.same = self.rng.random() < 0.6
        self.rows = [([self.rng.randint(-2, 2) for _ in range(CELLS)], self.rng.randint(0, 2)) for _ in range(2)]
        self.rows = [(row, k) for row, k in self.rows if sum(map(bool, row)) > 1]
        plus = [self.rng.choice((1, 2, -1)), self.rng.choice((0, 1))]
        self.objective = [*plus, *(-c for c in plus)]

    def inside(self, x: Any, v: Any) -> bool:
        exact = [[Fraction(float(c)) for c in end] for end in (x, v)]
        near = all(abs(a - b) <= Fraction(1, 4) for a, b in zip(*exact, strict=True))
        kept = (sum(c * cell for c, cell in zip(row, exact[0], strict=True)) <= k for row, k in self.rows)
        return near and all(0 <= c <= 1 for end in exact for c in end) and all(kept)

    def point(self) -> tuple[Any, Any] | None:
        """One of the set: corners, cells at its border, and others."""
        for _ in range(40):
            x = np.float32([self.rng.choice((0, 1, 0.5, self.rng.random())) for _ in range(CELLS)])
            shift = np.float32([0 if self.same else self.rng.choice((0, 0.25, -0.25)) for _ in range(CELLS)])
            v = np.clip(x + shift, 0, 1).astype(np.float32)
            if self.inside(x, v):
                return x, v
        return None

    def least(self, runs: int) -> Fraction | None:
        """The least objective of some executions; None: no point was found."""
        seen = []
        for _ in range(runs):
            given = self.point()
            if given is None:
                return None
            values: list[Fraction] = []
            for program, x in zip(self.programs, given, strict=True):
                run = execute(program, [x], Setting(), self.rng)
                values += [Fraction(c) for c in self.rng.choice(run.values[program.graph.output_positions[0]])]
            seen.append(sum(c * y for c, y in zip(self.objective, values, strict=True)))
        return min(seen)

    def text(self, limit: Fraction) -> str:
        """What never happens: an objective of at most the limit, in the set."""
        low = " ".join(f"(>= {n}[{i}] 0.0) (<= {n}[{i}] 1.0)" for n in "XV" for i in range(CELLS))
        said = [f"(assert (and {low}))"]
        for i in range(CELLS):
            if self.same:
                said.append(f"(assert (== V[{i}] X[{i}]))")
            else:
                said.append(f"(assert (<= (- V[{i}] X[{i}]) 0.25))(assert (<= (- X[{i}] V[{i}]) 0.25))")
        for row, k in self.rows:
            terms = " ".join(f"(* {c}.0 X[{i}])" for i, c in enumerate(row))
            said.append(f"(assert (<= (+ {terms}) {k}.0))")
        names = ("Y[0]", "Y[1]", "Z[0]", "Z[1]")
        total = " ".join(f"(* {c}.0 {n})" for c, n in zip(self.objective, names, strict=True))
        return HEAD + "\n".join(said) + f"\n(assert (<= (+ {total}) {_decimal(limit)}))"

    def verdict(self, limit: Fraction, folder: Path, **options: Any) -> str:
        (stated := folder / "q.vnnlib").write_text(self.text(limit))
        return certify_query(stated, dict(zip("fg", self.networks, strict=True)), seconds=SECONDS, **options).verdict


def _decimal(x: Fraction) -> str:
    """Not below, to 12 places."""
    exact = Decimal(x.numerator) / Decimal(x.denominator)
    return f"{exact.quantize(Decimal(10) ** -12, ROUND_CEILING):f}"


def false_proofs(seeds: range, folder: Path, runs: int = 40, **options: Any) -> tuple[list[int], int]:
    """Seeds whose least execution is said never to happen; and how many hold far below it."""
    wrong, held = [], 0
    for seed in seeds:
        drawn = Drawn(seed)
        seen = drawn.least(runs)
        if seen is not None:
            wrong += [seed] * (drawn.verdict(seen, folder, **options) == "holds")
            held += drawn.verdict(seen - 100, folder, **options) == "holds"
    return wrong, held


@pytest.mark.parametrize("seeds", slices(3, 9))
def test_no_execution_of_two_networks_breaks_what_holds(seeds: range, tmp_path: Path) -> None:
    wrong, held = false_proofs(seeds, tmp_path)
    assert wrong == []
    assert held > len(seeds) // 2  # and not everything is unknown


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 1100, 100))
def test_long_hunt(start: int, tmp_path: Path) -> None:
    """1,000 pairs of networks."""
    wrong, held = false_proofs(range(start, start + 100), tmp_path, runs=80)
    print(start, held)
    assert wrong == []


# --- planted mistakes -------------------------------------------------------------------------------------------------


def _one_network(patch: pytest.MonkeyPatch) -> None:
    """The second network is taken for the first."""
    right = joining.joined
    wrong = lambda networks, interface: right([networks[0], *(networks[:1] * (len(networks) - 1))], interface)
    for module in ("network.merged_network", "statement.problem"):
        patch.setattr(f"specgrad.bounds.search.{module}.joined", wrong)


def _no_rounding(patch: pytest.MonkeyPatch) -> None:
    """Nothing is rounded, and there are no copies."""
    wrong = lambda self, case, low, high: root_forward(self.graph, low, high, arithmetic=REAL)
    patch.setattr(_Certifier, "_forward_pass", wrong)


def _tighter(patch: pytest.MonkeyPatch) -> None:
    """Constraints on inputs are tighter by 1/2 than stated."""
    right = vnnlib.spacing
    patch.setattr(vnnlib, "spacing", lambda low, high: right(low, high) - Fraction(1, 2))


@pytest.mark.parametrize("mistake", [_one_network, _tighter], ids=lambda f: f.__name__)
def test_planted_mistakes_are_caught(mistake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    assert any(false_proofs(range(seed, seed + 1), tmp_path)[0] for seed in range(40))


def test_forgotten_roundings_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one linear network, twice, at one input: exact values are the same, and every bound is as good as can be."""
    equal = [Drawn(seed) for seed in range(60)]
    equal = [d for d in equal if d.same and {n.op.name for n in d.networks[0].nodes}.isdisjoint(BENDS)]
    twice = [d for d in equal if all(map(np.array_equal, *(g.constants.values() for g in d.networks)))]
    assert len(twice) > 1
    seen = [d.least(40) for d in twice[:3]]
    assert not any(v is not None and d.verdict(v, tmp_path) == "holds" for d, v in zip(twice, seen, strict=False))
    _no_rounding(monkeypatch)
    lows = itertools.chain(seen, (d.least(40) for d in twice[3:]))  # one after the other, until it shows
    assert any(v is not None and v < 0 and d.verdict(v, tmp_path) == "holds" for d, v in zip(twice, lows, strict=True))
