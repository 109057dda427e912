"""How far executions are from the exact outputs, beside how far `check.tolerance` says that any may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

import specgrad as sg
from claims import arithmetic
from deep import deep_network
from executor import Setting, execute
from floats import FORMATS, Format
from hunt import with_constants
from networks import Network, network
from program import Program
from specgrad.check import tolerance
from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves
from steered import aims


def mixed_network(seed: int, form: Format = FORMATS["float32"]) -> Network:
    """Three of four are deep; the fourth is of the kinds that runtimes merge, copy and reorder."""
    return network(seed // 4, form) if seed % 4 == 3 else deep_network(seed - seed // 4, form)


# --- exact values -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exact:
    """Numbers between two fractions each, flat: the exact outputs, one by one."""

    low: list[Fraction]
    high: list[Fraction]

    def distance(self, k: int, value: float) -> Fraction:
        """How far a value surely is from the exact one."""
        v = Fraction(value)
        return max(self.low[k] - v, v - self.high[k], Fraction(0))


def exact_outputs(graph: Graph, inputs: Sequence[np.ndarray]) -> list[Exact]:
    """Over Fractions, or over balls where there is a square root or an exponential."""
    rational = not any(n.op.name == "sqrt" or n.op.transcendental for n in graph.nodes)
    lift = sg.exact if rational else sg.balls
    found = leaves(with_constants(graph, lift)(*(lift(np.asarray(x, dtype=float)) for x in inputs)))
    cells = [[_ends(v) for v in np.asarray(y, dtype=object).flat] for y in found]
    return [Exact([a for a, _ in y], [b for _, b in y]) for y in cells]


def _ends(v: Any) -> tuple[Fraction, Fraction]:
    if not hasattr(v, "mid"):
        return Fraction(v), Fraction(v)
    (m, e), (r, s) = v.mid().man_exp(), v.rad().man_exp()
    mid, rad = Fraction(int(m)) * Fraction(2) ** int(e), Fraction(int(r)) * Fraction(2) ** int(s)
    return mid - rad, mid + rad


# --- what is claimed --------------------------------------------------------------------------------------------------


def claimed(found: Network, setting: Setting) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per output: the reference value and the proven distance, flat."""
    claim = tolerance(found.graph, *found.inputs, arithmetic=arithmetic(setting))
    return [(v.ravel(), d.ravel()) for v, d in zip(claim.exact, claim.tolerances, strict=True)]


# --- the hunt ---------------------------------------------------------------------------------------------------------


@dataclass
class Sighting:
    """One network: the largest proven distance, the largest seen, the largest seen over proven, cell by cell."""

    where: str
    proven: float = 0.0
    seen: float = 0.0
    ratio: float = 0.0
    values: int = 0
    unbounded: int = 0
    escapes: list[str] = field(default_factory=list)
    closest: str = ""

    def judge(self, who: str, exact: Exact, distance: np.ndarray, values: Iterable[float]) -> None:
        """Hold the values of one output against what is proven of it."""
        for k, v in enumerate(values):
            self.values += 1
            if not np.isfinite(distance[k]):
                self.unbounded += 1
            elif not np.isfinite(v):
                self.escapes.append(f"{self.where} {who} cell {k}: {v}")
            else:
                self._finite(who, exact.distance(k, float(v)), float(distance[k]), k)

    def _finite(self, who: str, apart: Fraction, proven: float, k: int) -> None:
        if apart > Fraction(proven):
            self.escapes.append(f"{self.where} {who} cell {k}: {float(apart):.3g} of {proven:.3g}")
        ratio = float(apart / Fraction(proven)) if proven else 0.0
        if ratio > self.ratio:
            self.ratio, self.closest = ratio, who
        self.seen = max(self.seen, float(apart))


class Hunt:
    """A network with its exact outputs and what is claimed of it; executions are held against both."""

    def __init__(self, found: Network, setting: Setting, where: str, claim: Setting | None = None) -> None:
        self.network, self.setting, self.rng = found, setting, Random(where)
        self.claims = claimed(found, claim or setting)
        self.exact = exact_outputs(found.graph, found.inputs)
        self.sighting = Sighting(where)
        finite = [d[np.isfinite(d)] for _, d in self.claims]
        self.sighting.proven = max((float(d.max(initial=0.0)) for d in finite), default=0.0)
        for k, (value, distance) in enumerate(self.claims):
            self.sighting.judge("reference", self.exact[k], distance, value)
        self.sighting.ratio = self.sighting.seen = 0.0  # a reference is no execution

    def run(self, executions: int) -> None:
        """Half of them at random, half aimed at one cell of an output."""
        program, positions = Program(self.network.graph, self.network.fixed), self.network.graph.output_positions
        for k in range(executions):
            aim = self._aim() if k % 2 else None
            run = execute(program, self.network.inputs, self.setting, self.rng, aim)
            who = f"{'aimed' if k % 2 else 'random'} execution {k}"
            for output, p in enumerate(positions):
                for version in run.values[p]:
                    self.sighting.judge(who, self.exact[output], self.claims[output][1], version)

    def _aim(self) -> dict[int, np.ndarray] | None:
        positions = self.network.graph.output_positions
        sizes = [(p, len(e.low)) for p, e in zip(positions, self.exact, strict=True) if e.low]
        if not sizes:
            return None
        position, size = self.rng.choice(sizes)
        sign, cell = self.rng.choice((1, -1)), self.rng.randrange(size)
        return aims(self.network.graph, self.network.inputs, position, cell, sign)

    def against(self, who: str, outputs: Sequence[Any]) -> None:
        """What a runtime computed."""
        for exact, (_, distance), y in zip(self.exact, self.claims, outputs, strict=True):
            self.sighting.judge(who, exact, distance, np.asarray(y, dtype=float).ravel().tolist())


def hunts(
    networks: Iterable[tuple[int, Network]], setting: Setting, executions: int, claim: Setting | None = None
) -> Iterator[Sighting]:
    for seed, found in networks:
        hunt = Hunt(found, setting, f"{found.kind}/{seed}/{setting.form.name}/{setting.model}", claim)
        hunt.run(executions)
        yield hunt.sighting
