"""Cuts by winners of windows: bounds of both sides, of several taps that do not win, ties, and wrong cuts refused."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import drawn_windows
import specgrad as sg

pytest.importorskip("flint")
pytest.importorskip("safetensors")
pytest.importorskip("torch")

from leaves import Case
from leaves import least as least_of
from specgrad.bounds import certify
from specgrad.bounds.search.certificates.prove import prove
from specgrad.proof import check
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.base.split_tree import Split, Tree
from specgrad.proof.batched import backward as walk
from specgrad.proof.batched import leaves as batch
from specgrad.proof.batched import tree_replay
from specgrad.proof.batched.leaves import Leaves, Root
from specgrad.proof.batched.tree_replay import TreeProof, leaves, replay_tree, taps_of
from specgrad.proof.exact.replay import ExecutionModel
from specgrad.window import Adaptive
from steered import values_of

WINDOWED = range(100_000, 100_012)  # windows of every kind, from here on


def pooled(seed: int) -> tuple[sg.Graph, int, int]:
    """A convolution or matrix product, perhaps a relu, a max_pool of overlapping windows, a matrix product."""
    rng = np.random.default_rng(seed)
    w, last = rng.normal(size=(2, 1, 2, 2)).astype(np.float32), rng.normal(size=(2, 12)).astype(np.float32)
    bias = rng.normal(size=2).astype(np.float32)

    def net(x: Any) -> Any:
        y = sg.conv(w, bias, x)
        y = sg.relu(y) if seed % 2 else y
        if seed >= WINDOWED.start:
            y = drawn_windows.pooled(Random(seed), y, 1 + seed % 3, largest=True)
        else:
            y = sg.max_pool(y, (2, 2), stride=1, padding=((1, 0), (0, 0)))
        return sg.linear(np.resize(last, (2, int(np.prod(y.shape)))), None, sg.flatten(y, 1))

    graph = sg.trace(net, (1, 1, 3, 4))
    pool = next(i for i, n in enumerate(graph.nodes) if n.op.name == "max_pool")
    return graph, pool, graph.nodes[pool].operands()[0]


def tree_of(seed: int, graph: sg.Graph, pool: int, cuts: int) -> Tree:
    """Winners at random; often several taps of one window."""
    rng, tree = np.random.default_rng(seed), Tree()
    window = int(rng.integers(np.prod(graph.nodes[pool].shape)))
    for _ in range(cuts):
        part = int(rng.choice(list(tree.leaves())))
        cell = window if rng.random() < 0.7 else int(rng.integers(np.prod(graph.nodes[pool].shape)))
        tap = int(rng.choice(list(tree_replay.taps_inside(graph.nodes[pool], cell))))
        tree.divide(part, Split(pool, cell, 0.0, tap))
    return tree


def bounds_of(seed: int, cuts: int = 5) -> tuple[Any, ...]:
    """Every leaf with a bound of an objective, of a tree of winners over a box; None where it holds no execution."""
    rng = np.random.default_rng(seed)
    graph, pool, read = pooled(seed)
    low = rng.normal(size=(1, 1, 3, 4)).astype(np.float32)
    high = low + np.float32(rng.choice((0.1, 1.0, 3.0)))
    row, tree = rng.integers(-3, 4, 2), tree_of(seed, graph, pool, cuts)
    arrays = tree_replay.arrays_of(tree)
    count = len(list(tree.leaves()))
    bare = TreeProof(*arrays, np.ones((count, 1), np.int32), (read,), bool(seed % 3), taps=taps_of(tree))
    lost = sum(len(leaf.losers(graph)) for leaf in leaves(graph, low, high, bare))
    proof = replace(bare, pulls=(rng.integers(0, 1 << 20, lost) * rng.integers(0, 2, lost)).astype(np.int32))
    found = replay_tree(graph, ExecutionModel(fused=bool(seed % 2)), (low, high), proof, [(row[None], (Fraction(0),))])
    return graph, read, low, high, row, list(found)


def reads(axis: Any, p: int) -> list[tuple[int, int]]:
    """(tap, cell) of an output, by the definition."""
    if isinstance(axis, Adaptive):
        first, stop = p * axis.size // axis.out, math.ceil((p + 1) * axis.size / axis.out)
        return list(enumerate(range(first, stop)))
    return [(t, p * axis.stride + t * axis.dilation - axis.lo) for t in range(axis.kernel)]


def winner(node: Any, z: np.ndarray, cell: int) -> tuple[int, float]:
    """The place in the kernel of the first largest tap, by loops; how much larger it is than the next."""
    window = node.params["window"]
    place, lead = np.unravel_index(cell, node.shape), len(node.shape) - window.rank
    seen = []
    for steps in itertools.product(*(reads(a, p) for a, p in zip(window.axes, place[lead:], strict=True))):
        offset, at = zip(*steps, strict=True)
        if all(0 <= v < n for v, n in zip(at, z.shape[lead:], strict=True)):
            seen.append((float(z[(*place[:lead], *at)]), int(np.ravel_multi_index(offset, window.kernel))))
    most = max(v for v, _ in seen)
    rest = sorted(v for v, _ in seen)[-2] if len(seen) > 1 else -np.inf
    return next(t for v, t in seen if v == most), most - rest


def escapes(seed: int, count: int = 60) -> int:
    """Points whose exact value lies below the bound of the leaf that they are on."""
    graph, read, low, high, row, found = bounds_of(seed)
    rng, escaped = np.random.default_rng(seed), 0
    for _ in range(count):
        x = low + np.clip(rng.uniform(-0.5, 1.5, low.shape), 0, 1) * (high - low).astype(float)
        values = values_of(graph, [x])
        y = float(row @ values[graph.output_positions[0]].ravel())
        mine = [e for e in found if _holds(graph, e.leaf, values[read])]
        assert len(mine) <= 1
        escaped += any(e.margins is None or y < e.margins[0] - Fraction(1, 10**9) for e in mine)
    return escaped


def _holds(graph: sg.Graph, leaf: Any, z: np.ndarray) -> bool:
    """Whether a point lies on a leaf, and not near a tie."""
    for cut, side in leaf.winners():
        tap, gap = winner(graph.nodes[cut.node], z, cut.cell)
        if (tap == cut.tap) == bool(side) or 0 < gap < 1e-3:
            return False
    return True


@pytest.mark.parametrize("seed", [*range(12), *WINDOWED])
def test_no_point_lies_below_the_bound_of_its_leaf(seed: int) -> None:
    assert escapes(seed) == 0


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_long_hunt(start: int) -> None:
    for seed in (*range(3000 + start, 3100 + start), *range(103_000 + start, 103_100 + start)):
        assert escapes(seed) == 0, seed


def test_windows_of_every_kind_are_hunted() -> None:
    graphs = [pooled(seed)[0] for seed in WINDOWED]
    assert drawn_windows.kinds(graphs) >= drawn_windows.KINDS | drawn_windows.RANKS


def test_winners_help() -> None:
    """A side of a cut is bounded better than the whole."""
    better = 0
    for seed in range(12):
        *_, found = bounds_of(seed)
        *_, (whole,) = bounds_of(seed, 0)
        better += any(e.margins is None or e.margins[0] > whole.margins[0] + Fraction(1, 1000) for e in found)
    assert better >= 3


def test_executions_stay_above() -> None:
    """Whatever the order of sums, every execution lies above the least of all leaves' bounds."""
    for seed in range(5):
        graph, _, low, high, row, found = bounds_of(seed)
        given = Case(graph, ExecutionModel(fused=bool(seed % 2)), low, high, Leaves(low[None], high[None]), row, True)
        bound = min(e.margins[0] for e in found if e.margins is not None)
        assert least_of(given, 0, 6)[0] >= bound


def test_ties_lie_on_some_leaf() -> None:
    """Of equal taps the first wins, so that a window from which all others are excluded has it left."""
    graph = sg.trace(lambda x: sg.reshape(sg.max_pool(sg.reshape(x, (1, 3)), (3,)), (1,)), (3,))
    pool = next(i for i, n in enumerate(graph.nodes) if n.op.name == "max_pool")
    tree, part = Tree(), 0
    for tap in range(3):
        _, part = tree.divide(part, Split(pool, 0, 0.0, tap))
    box = np.float32([1, 1, 0]), np.float32([1, 1, 0])
    pulls = np.int32([5, 0, 7, 1 << 20, 0, 0])  # of two losers on each of three leaves
    proof = TreeProof(*tree_replay.arrays_of(tree), np.ones((4, 1), np.int32), taps=taps_of(tree), pulls=pulls)
    found = list(replay_tree(graph, ExecutionModel(), box, proof, [(np.array([[1]]), (Fraction(0),))]))
    assert found[0].margins is not None
    assert abs(found[0].margins[0] - 1) < Fraction(1, 10**6)
    assert found[3].margins is None  # none of three wins: there is no such execution


# --- planted mistakes -------------------------------------------------------------------------------------------------


def losers_only(m: pytest.MonkeyPatch) -> None:
    """The largest of the taps that do not win."""
    right = walk.MaxLines.on

    def wrong(window: Any, low: Any, high: Any, may_win: Any = None) -> Any:
        return right(window, low, high, None if may_win is None else ~may_win | may_win.all(0))

    m.setattr(walk.MaxLines, "on", staticmethod(wrong))


def all_are_lowered(m: pytest.MonkeyPatch) -> None:
    """Ends of what is read are cut to the lower end of the winner."""
    right = walk.Ranges.ranges_given_winners

    def wrong(self: Any, i: int) -> Any:
        low, high = right(self, i)
        return low, np.minimum(high, low + (high - low) // 2)

    m.setattr(walk.Ranges, "ranges_given_winners", wrong)


def padding_wins(m: pytest.MonkeyPatch) -> None:
    """Places in the kernel are taken for places among the taps that a window reads."""
    right = tree_replay._taps_inside_cached
    m.setattr(
        tree_replay, "_taps_inside_cached", lambda window, cell: {k: n for n, k in enumerate(right(window, cell))}
    )


def pulls_turned(m: pytest.MonkeyPatch) -> None:
    """Multipliers of the other sign."""
    right = batch.Batch._subtract_tap_multipliers
    m.setattr(batch.Batch, "_subtract_tap_multipliers", lambda self, walk, i, b: right(self, walk, i, -b))


@pytest.mark.parametrize("plant", [losers_only, all_are_lowered, padding_wins, pulls_turned])
def test_planted_mistakes_are_caught(monkeypatch: pytest.MonkeyPatch, plant: Any) -> None:
    plant(monkeypatch)
    assert any(escapes(seed) for seed in range(30))


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        (Split(0, 0, 0.0, 0), "a max_pool has winners"),
        (Split(1, 0, 0.5, 1), "the point of such a cut is 0"),
        (Split(1, 0, 0.0, 0), "no such tap, or padding"),
        (Split(1, 0, 0.0, 7), "no such tap, or padding"),
        (Split(1, 9, 0.0, 1), "no such number"),
    ],
)
def test_a_wrong_winner_is_refused(cut: Split, why: str) -> None:
    graph = sg.trace(lambda x: sg.max_pool(x, (3,), stride=1, padding=1), (1, 4))
    tree = Tree()
    tree.divide(0, cut)
    proof = TreeProof(*tree_replay.arrays_of(tree), np.ones((2, 1), np.int32), taps=taps_of(tree))
    with pytest.raises(ReplayError, match=why):
        list(leaves(graph, np.zeros((1, 4), np.float32), np.ones((1, 4), np.float32), proof))


def test_winners_of_the_wrong_kind_are_refused() -> None:
    graph = sg.trace(lambda x: sg.reshape(sg.max_pool(x, (3,), stride=1, padding=1), (4,)), (1, 4))
    root = Root(graph, np.zeros((1, 4), np.float32), np.ones((1, 4), np.float32))
    box = root.box[0][None], root.box[1][None]
    for winners, why in (
        ({0: np.ones((3, 1, 1, 4), dtype=bool)}, "is no max_pool"),
        ({1: np.ones((2, 1, 1, 4), dtype=bool)}, "must be true or false"),
        ({1: np.ones((3, 1, 1, 4), dtype=int)}, "must be true or false"),
    ):
        with pytest.raises(ReplayError, match=why):
            root.margins(Leaves(*box, winners=winners), [(np.ones((1, 4), int), (Fraction(0),))])
    good = {1: np.ones((3, 1, 1, 4), dtype=bool)}
    for pulls, why in (
        ({1: -np.ones((3, 1, 1, 1, 4), int)}, "whole, not negative"),
        ({1: np.ones((3, 1, 1, 4), int)}, "whole, not negative"),
        ({0: np.ones((3, 1, 1, 1, 4), int)}, "has no winners"),
    ):
        with pytest.raises(ReplayError, match=why):
            root.margins(Leaves(*box, winners=good, pulls=pulls), [(np.ones((1, 4), int), (Fraction(0),))])


def test_what_a_search_divides_by_winners_has_a_certificate() -> None:
    rng = np.random.default_rng(0)
    w, b = rng.normal(size=(3, 1, 3, 3)).astype(np.float32) / 3, rng.normal(size=3).astype(np.float32) / 3
    v = rng.normal(size=(3, 27)).astype(np.float32) / 3
    pool = lambda x: sg.max_pool(sg.conv(w, b, x), (2, 2), stride=2)
    graph = sg.trace(lambda x: sg.linear(v, None, sg.flatten(pool(x), 1)), (1, 1, 8, 8))
    x = np.random.default_rng(0).normal(size=(1, 1, 8, 8)).astype(np.float32)
    asked = x, int(np.argmax(graph(x.astype(float)))), 0.0837
    verdict = certify(graph, asked, seconds=1e9)
    cuts = [cut for case in verdict.trees for _, tree in case for cut in tree.cuts if cut is not None]
    assert any(cut.tap is not None for cut in cuts)
    certificate = prove(graph, asked, trees=verdict.trees, seconds=1e9)
    assert "taps" in json.loads(certificate.text)["cases"][0]["trees"][0]
    assert check(certificate, graph, asked).margin > 0
