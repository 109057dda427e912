"""No execution of any two operators in a row leaves what is claimed of it: linear bounds, replays of certificates."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from pairs import KINDS, Findings, hunt
from specgrad.bounds.linear.intermediate import forward_pass as forward
from specgrad.proof.exact import replay

pytest.importorskip("torch")
pytest.importorskip("flint")

PAIRS = list(itertools.product(KINDS, repeat=2))


def found(several: list[tuple[str, ...]], seeds: range, executions: int = 40) -> Findings:
    findings = Findings()
    for kinds, seed in itertools.product(several, seeds):
        hunt(kinds, seed, findings, executions)
    assert findings.networks > len(several) // 2
    return findings


@pytest.mark.parametrize("part", range(2))
def test_pairs_drawn_at_random(part: int) -> None:
    findings = found(Random(part).sample(PAIRS, 10), range(1))
    assert not findings.escapes, str(findings)


@pytest.mark.slow
@pytest.mark.parametrize("first", KINDS)
def test_every_pair(first: str) -> None:
    findings = found([pair for pair in PAIRS if pair[0] == first], range(1, 9))
    assert not findings.escapes, str(findings)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_triples_drawn_at_random(part: int) -> None:
    names, rng = list(KINDS), Random(f"triples {part}")
    triples = [tuple(rng.choice(names) for _ in range(3)) for _ in range(100)]
    findings = found(triples, range(2))
    assert not findings.escapes, str(findings)


# --- planted mistakes -------------------------------------------------------------------------------------------------


def _one_cell(patch: pytest.MonkeyPatch) -> None:
    _one_node(patch)
    patch.setattr(forward, "most_readers", lambda graph, i: 1)
    patch.setattr(replay, "fan_out", lambda node, size: 1)


def _one_node(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(forward, "recomputed_per_reader", lambda graph, rules: frozenset())
    patch.setattr(replay, "recomputed_per_reader", lambda graph: set())


def _one_value(patch: pytest.MonkeyPatch) -> None:
    """Functions of values that are apart are taken for one value."""
    patch.setattr(forward, "output_deviation", lambda rules, node, *_: np.zeros(node.shape))
    patch.setattr(replay.Replay, "_deviation_of", lambda self, r: replay.zeros(r.low.shape))


@pytest.mark.parametrize(
    ("kinds", "mistake"),
    [
        (("dense", "dense"), _one_cell),
        (("conv", "heads"), _one_node),
        (("dense", "concat"), _one_node),
        (("relu", "dense"), _one_value),
    ],
)
def test_planted_mistakes_are_caught(
    kinds: tuple[str, ...], mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    escapes = found([kinds], range(8)).escapes
    assert any(e.startswith("crown") for e in escapes)
    assert any(e.startswith("replay") for e in escapes)
