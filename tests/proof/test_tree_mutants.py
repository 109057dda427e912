"""Mutants of certificates with splits prove nothing false; a checker with a mistake is seen to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")
pytest.importorskip("safetensors")
pytest.importorskip("torch")

from safetensors.numpy import save

from certificate_mutants import dense, pooled
from slices import slices
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.batched import leaves, tree_replay
from specgrad.proof.batched.tree_replay import Leaf
from specgrad.proof.files.certificate import check, sealed
from test_tangents import kinks_ignored
from tree_mutants import hunt, subjects

known = subjects


def harmless(seeds: range) -> None:
    ends = hunt(known(), seeds)
    assert not ends.wrong, ends.wrong[:5]
    assert ends.ends["valid"] > len(seeds) // 10  # or nothing was tested but refusals
    assert ends.ends["refused"] > len(seeds) // 4


def test_mutants_are_refused_or_true() -> None:
    harmless(range(50))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_mutants_are_refused_or_true(part: int) -> None:
    harmless(range(1000 + 1000 * part, 2000 + 1000 * part))


def test_another_network_is_refused() -> None:
    """Also one that differs in a single bit of a weight."""
    chosen = known()[0]
    packed = save(chosen.arrays)
    text = sealed(chosen.data, packed)
    assert check(text, packed, chosen.graph).cases
    (at, weights), *_ = ((i, a) for i, a in chosen.graph.constants.items() if a.size > 2)
    other = weights.copy()
    other.flat[0] = np.nextafter(other.flat[0], np.float32(9))
    near = replace(chosen.graph, constants={**chosen.graph.constants, at: other})
    for graph in (near, pooled()[0]):
        with pytest.raises(ReplayError, match="the network is not the one"):
            check(text, packed, graph)
    assert check(text, packed, dense()[0]).cases


# --- mistakes that the hunt sees --------------------------------------------------------------------------------------

LEAVES, SIDES = tree_replay.leaves, tree_replay._sides


def careless(*args: Any) -> Iterator[Leaf]:
    """A tree may lack leaves."""
    try:
        yield from LEAVES(*args)
    except ReplayError as error:
        if "lacks parts" not in str(error):
            raise


def late(graph: Any, here: Leaf, cut: Any) -> tuple[Leaf, Leaf]:
    """What lies above a cut of an input begins at its upper end."""
    below, above = SIDES(graph, here, cut)
    low = above.low.copy()
    if not np.array_equal(low, here.low):
        low.reshape(-1)[cut.cell] = above.high.reshape(-1)[cut.cell]
    return below, replace(above, low=low)


def same_side(graph: Any, here: Leaf, cut: Any) -> tuple[Leaf, Leaf]:
    """Both sides of a cut are the one below."""
    below, _ = SIDES(graph, here, cut)
    return below, below


def turned(graph: Any, here: Leaf, cut: Any) -> tuple[Leaf, Leaf]:
    """Sides of nodes are swapped, but not the multipliers' signs: harmless, as hints may be anything."""
    below, above = SIDES(graph, here, cut)
    return (above, below) if np.array_equal(below.high, above.high) else (below, above)


RELUS, KINKS, MAXIMA = slice(0, 6), slice(6, 8), slice(8, 10)  # of `subjects`


def seen(which: slice = RELUS, first: int = 0, most: int = 1500) -> bool:
    """first   where the mistake is known to show not long after, so that what comes before is not hunted every day"""
    return any("false" in how for how, _ in hunt(known()[which], range(first, most), until="false").wrong)


def test_a_missing_leaf_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    known()
    monkeypatch.setattr(tree_replay, "leaves", careless)
    assert seen()


@pytest.mark.parametrize(
    ("sides", "first"), [(late, 860), (same_side, 0), pytest.param(late, 0, marks=pytest.mark.slow)]
)
def test_wrong_sides_are_seen(monkeypatch: pytest.MonkeyPatch, sides: Any, first: int) -> None:
    known()
    monkeypatch.setattr(tree_replay, "_sides", sides)
    assert seen(first=first)


@pytest.mark.parametrize("seeds", slices(40, 60))
def test_turned_sides_prove_nothing_false(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    known()
    monkeypatch.setattr(tree_replay, "_sides", turned)
    assert not hunt(known(), seeds).wrong


def test_another_part_of_the_box_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves that are charged with the ranges and roundings of a part beside them."""
    known()
    monkeypatch.setattr(tree_replay, "_batch_key", lambda leaf: leaf.changed < 0)
    assert not hunt(known(), range(60)).wrong  # a leaf's box lies in its root's, or is refused
    monkeypatch.setattr(leaves, "_check_hints", lambda *_: None)
    assert seen(first=96)


@pytest.mark.parametrize("first", [960, pytest.param(0, marks=pytest.mark.slow)])
def test_signs_of_multipliers_and_weights_are_seen(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    known()
    monkeypatch.setattr(tree_replay, "_check_signs", lambda _: None)
    if hasattr(leaves, "_check_hints"):
        monkeypatch.setattr(leaves, "_check_hints", lambda *_: None)
    assert seen(first=first)


def winners_of_both_sides(graph: Any, some: Any) -> Any:
    """A tap that does not win is taken for one that does."""
    ways = [[(cut, 0) for cut, _ in leaf.winners()] for leaf in some]
    return WINNERS(graph, [SimpleNamespace(winners=lambda way=way: way) for way in ways])


def winners_turned(graph: Any, some: Any) -> Any:
    ways = [[(cut, 1 - side) for cut, side in leaf.winners()] for leaf in some]
    return WINNERS(graph, [SimpleNamespace(winners=lambda way=way: way) for way in ways])


WINNERS = tree_replay._winners


def test_winners_of_both_sides_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    known()
    monkeypatch.setattr(tree_replay, "_winners", winners_of_both_sides)
    assert seen(MAXIMA)


def test_winners_turned_prove_nothing_false(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides of every cut are proven, whichever is said to be which."""
    known()
    monkeypatch.setattr(tree_replay, "_winners", winners_turned)
    assert not hunt(known(), range(60)).wrong


def test_kinks_that_lines_ignore_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    known()
    kinks_ignored(monkeypatch)
    assert seen(KINKS)
