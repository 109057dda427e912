"""Executions by chosen trees (tests/hunt) against `specgrad tolerance accuracy`: none leaves the total of an output.

Merged and folded, copied, flushed, in any order, half of them steered towards one output's largest error; the exact
outputs over rationals or balls. The box is wider than the input at which they run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("flint")

import tolerances
from claims import arithmetic
from executor import Setting
from slices import slices
from specgrad.bounds import Box, crown
from specgrad.safety.accuracy import per_layer
from tolerances import Hunt, Sighting, mixed_network

WIDTHS = (0.0, 1e-3, 0.1)
SETTINGS = (Setting(), Setting(model="node"))


def totals(found: Any, setting: Setting, width: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per output: what no execution may be farther from the exact value by, flat; inf where nothing is proven."""
    boxes = tuple(_around(np.asarray(x, dtype=float), width) for x in found.inputs)
    seen: list[Any] = []
    crown(found.graph, *boxes, arithmetic=arithmetic(setting), on_forward=seen.append, seconds=20)
    total = per_layer.ErrorPropagation(found.graph, seen[0]).total
    shapes = {p: found.graph.nodes[p].shape for p in found.graph.output_positions}
    return [(np.zeros(0), np.ravel(total.get(p, np.full(s, np.inf)))) for p, s in shapes.items()]


def _around(x: np.ndarray, width: float) -> Box:
    return Box(x - width * np.abs(x), x + width * np.abs(x))


def hunted(seed: int, monkeypatch: pytest.MonkeyPatch, executions: int = 6) -> Sighting:
    setting, width = SETTINGS[seed % 2], WIDTHS[seed % 3]
    monkeypatch.setattr(tolerances, "claimed", lambda found, claim: totals(found, claim, width))
    hunt = Hunt(mixed_network(seed), setting, f"{seed} {setting.model} {width}")
    hunt.run(executions)
    return hunt.sighting


@pytest.mark.parametrize("seeds", slices(10, 16))
def test_nothing_leaves_the_total(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    sightings = [hunted(seed, monkeypatch) for seed in seeds]
    assert [e for s in sightings for e in s.escapes] == []
    assert max(s.ratio for s in sightings) > 0.05  # 0.072: what is proven is not far from what happens
    assert sum(s.unbounded for s in sightings) < 0.7 * sum(s.values for s in sightings)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 480, 24))
def test_nothing_leaves_the_total_at_length(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sightings = [hunted(seed, monkeypatch, 20) for seed in range(start, start + 24)]
    assert [e for s in sightings for e in s.escapes] == []


def _half_own(patch: pytest.MonkeyPatch) -> None:
    right = per_layer.ErrorPropagation._propagate_node

    def visit(self: Any, i: int, node: Any) -> None:
        right(self, i, node)
        self.total[i] = self.before[i] + (self.total[i] - self.before[i]) / 64

    patch.setattr(per_layer.ErrorPropagation, "_propagate_node", visit)


def _nothing_carried(patch: pytest.MonkeyPatch) -> None:
    right = per_layer.ErrorPropagation._carried
    patch.setattr(per_layer.ErrorPropagation, "_carried", lambda self, *args: right(self, *args) / 64)


@pytest.mark.parametrize("mistake", [_half_own, _nothing_carried])
def test_planted_mistakes_are_caught(mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sixty-fourth of what a layer introduces, or of what comes in."""
    mistake(monkeypatch)
    assert any(hunted(seed, monkeypatch, 12).escapes for seed in range(0, 48, 3))
