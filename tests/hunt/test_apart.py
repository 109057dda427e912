"""Two networks on a box: no exact difference and no two executions leave what is proven; mistakes in it are caught."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from apart_pairs import hunt, judge, proven
from executor import Setting
from false_sames import pairs
from slices import slices
from specgrad.bounds import Box
from specgrad.check.comparison import box_difference, delta_rules
from specgrad.check.comparison import difference_network as carried
from specgrad.check.comparison import execution_deviation as strayed
from specgrad.equivalence import constants
from specgrad.window import strided
from tolerances import mixed_network

pytest.importorskip("torch")
pytest.importorskip("flint")

FUSED = Setting()


def escapes(seeds: range, setting: Setting = FUSED, inputs: int = 3) -> list[str]:
    found = [hunt(mixed_network(seed), seed, setting, inputs) for seed in seeds]
    assert sum(r.checked for r in found if r is not None) > len(seeds)
    return [e for r in found if r is not None for e in r.escapes]


@pytest.mark.parametrize("seeds", slices(3, 16))
def test_nothing_leaves_what_is_proven(seeds: range) -> None:
    assert not escapes(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 500, 20))
def test_nothing_leaves_what_is_proven_at_length(start: int) -> None:
    assert not escapes(range(start, start + 20), replace(FUSED, model=("fused", "node")[start // 20 % 2]), 8)


def spelled(seeds: range) -> list[str]:
    """Networks in several spellings, with faults and mutations: structures that differ."""
    found = []
    for seed in seeds:
        for kind, a, b in pairs(seed):
            x = [np.random.default_rng(seed).normal(size=a.nodes[p].shape) for p in a.input_positions]
            boxes = tuple(Box.around(v, 0.25) for v in x)
            result = proven(a, b, boxes)
            for k, share in enumerate((0, 0.5, 1)):
                given = tuple(box.low + (box.high - box.low) * share for box in boxes)
                judge(result, a, b, given, f"{kind} of network {seed}, input {k}")
            found += result.escapes
    return found


@pytest.mark.parametrize("seeds", slices(2, 60))
def test_other_spellings_and_structures(seeds: range) -> None:
    assert not spelled(seeds)


# --- narrow -----------------------------------------------------------------------------------------------------------


def two_layers(change: float) -> tuple[sg.Graph, sg.Graph]:
    """Two of a kind, but for one weight of the first layer."""
    rng = np.random.default_rng(3)
    w, v = rng.normal(size=(6, 5)).astype(np.float32), rng.normal(size=(3, 6)).astype(np.float32)
    w[2], other = abs(w[2]), w.copy()  # that relu passes what is positive
    other[2] = abs(w[2])
    other[2, 1] += np.float32(change)
    nets = (lambda x, m=m: sg.linear(v, None, sg.relu(sg.linear(m, None, x))) for m in (w, other))
    first, second = (sg.trace(lambda x, net=net: net(x), (1, 5)) for net in nets)
    return first, second


def test_what_is_proven_shrinks_with_the_difference() -> None:
    """Bounds of both alone are as wide as the box makes them, however small the difference is."""
    box = (Box.around(abs(np.random.default_rng(0).normal(size=(1, 5))), 0.5),)
    for change in (1e-2, 1e-6):
        far = proven(*two_layers(change), box, FUSED).far
        assert far.max_difference < 4 * change
        assert far.witness_difference > far.max_difference / 4
        assert far.how == "carried from layer to layer"
        assert far.max_execution_difference < far.max_difference + 2e-4


def test_a_winner_alone_is_the_largest_wherever_the_cells_lie() -> None:
    """Three cells with whole ends from 0 to 2, at all of their corners: points, and ends that meet, included."""
    window, ranges, alone = strided("max_pool", (3,), (3,)), [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)], 0
    for cells in product(ranges, repeat=3):
        low, high = np.array(cells, float).T
        (sure,), (winner,) = delta_rules.certain_argmax(window, low, high)
        assert not sure or all(corner[winner] == max(corner) for corner in product(*cells)), cells
        assert sure or not any(cells[k][0] > max(cells[k - 1][1], cells[k - 2][1]) for k in range(3)), cells
        alone += sure
    assert alone


# --- planted mistakes -------------------------------------------------------------------------------------------------


def at_a_point(a: sg.Graph, b: sg.Graph) -> list[str]:
    x = abs(np.random.default_rng(1).normal(size=a.nodes[a.input_positions[0]].shape))
    result = proven(a, b, (Box(x, x),))
    judge(result, a, b, (x,), "point")
    return result.escapes


def test_layers_that_differ_in_one_weight_must_not_be_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = two_layers(2.0**-22)
    scaled = sg.trace(lambda x: b(x) * 2, (1, 5))  # so that the outputs differ anyway
    assert not at_a_point(a, scaled)
    plain = constants._cells_key
    coarse = lambda array: plain(array.astype(np.float16)) if array.dtype.kind == "f" else plain(array)
    monkeypatch.setattr(constants, "_cells_key", coarse)
    assert at_a_point(a, scaled)


def product_pair() -> tuple[sg.Graph, sg.Graph, np.ndarray]:
    """x*v > x*w just above 1, the first rounded up, the second down, both by nearly half a unit in the last place."""
    rng = np.random.default_rng(0)
    up = lambda x, c: float(Fraction(float(x * c)) - Fraction(float(x)) * Fraction(float(c)))
    drawn = [
        (np.float32(1 + rng.random() * 2.0**-10), np.float32(1 + (1 + rng.random()) * 2.0**-10)) for _ in range(4000)
    ]
    x, v = max(drawn, key=lambda pair: up(*pair))
    w = min((np.float32(v - k * 2.0**-23) for k in range(1, 4000)), key=lambda c: up(x, c))
    net = lambda c: lambda x: sg.linear(np.array([[c]]), None, x)
    a, b = (sg.trace(net(c), (1, 1)) for c in (v, w))
    return a, b, np.array([[x]])


def both_run(monkeypatch: pytest.MonkeyPatch | None = None, mistake: Any = None) -> bool:
    """Whether float32 products of both are within what is proven of executions."""
    a, b, x = product_pair()
    if mistake is not None and monkeypatch is not None:
        mistake(monkeypatch)
    far = proven(a, b, (Box(x.astype(float), x.astype(float)),), FUSED).far
    one, other = (Fraction(float(x[0, 0] * next(iter(g.constants.values()))[0, 0])) for g in (a, b))
    return abs(one - other) <= Fraction(far.max_execution_difference)


def _one_only(patch: pytest.MonkeyPatch) -> None:
    """The rounding of the second network is dropped, by both ways."""
    real, calls = strayed.execution_deviation, []

    def wrong(*args: Any) -> Any:
        calls.append(1)
        found = real(*args)
        return found if len(calls) == 1 else tuple(0 * f for f in found)

    patch.setattr(box_difference, "execution_deviation", wrong)
    patch.setattr(box_difference, "_independent_difference", lambda *_: None)


def _half_errors(patch: pytest.MonkeyPatch) -> None:
    plain = delta_rules.DeltaBuilder.unconstrained
    patch.setattr(
        delta_rules.DeltaBuilder,
        "unconstrained",
        lambda self, low, high: plain(self, low / 2, high / 2 if low.any() else high),
    )
    patch.setattr(box_difference, "_independent_difference", lambda *_: None)


@pytest.mark.parametrize("mistake", [_one_only, _half_errors])
def test_rounding_of_both_counts(mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert both_run()
    assert not both_run(monkeypatch, mistake)


def _flat(patch: pytest.MonkeyPatch) -> None:
    """Slopes of half their size."""
    real = delta_rules.slopes
    wrong = lambda *args: tuple(s / 2 for s in real(*args)) if real(*args) else None
    patch.setattr(carried, "slopes", wrong)


def _sure(patch: pytest.MonkeyPatch) -> None:
    """The tap with the largest upper end always wins."""
    real = delta_rules.certain_argmax
    patch.setattr(delta_rules, "certain_argmax", lambda *args: (np.ones_like(real(*args)[0]), real(*args)[1]))


def _own_range(patch: pytest.MonkeyPatch) -> None:
    """Slopes on the range of the first network alone."""
    real = carried.build_difference
    patch.setattr(
        box_difference, "build_difference", lambda a, b, table, ranges: real(a, b, table, (ranges[0], ranges[0]))
    )


def _unmoved(patch: pytest.MonkeyPatch) -> None:
    """Before something bent the base is replaced, and the lag is not."""
    patch.setattr(carried, "sub", lambda p, q: sg.sub(p, p) if p.shape == q.shape else sg.sub(p, q))


@pytest.mark.parametrize("mistake", [_flat, _sure, _own_range, _unmoved])
def test_planted_mistakes_are_caught(mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [e for pair in nets() for e in at_a_point(*pair)]
    mistake(monkeypatch)
    assert [e for pair in nets() for e in at_a_point(*pair)]


def nets() -> list[tuple[sg.Graph, sg.Graph]]:
    """Relus and maxima; in the last one another cell is the largest."""
    turned = [sg.trace(lambda x, c=c: sg.max_pool(x * np.array([c]), (2,)), (1, 2)) for c in ((30.0, 1.0), (0.0, 20.0))]
    return [*map(pooled, (1e-3, 0.5, 2.0)), (turned[0], turned[1])]


def pooled(change: float) -> tuple[sg.Graph, sg.Graph]:
    rng = np.random.default_rng(5)
    w, v = rng.normal(size=(4, 1, 3)).astype(np.float32), rng.normal(size=(3, 16)).astype(np.float32)
    other = (w + change * rng.normal(size=w.shape)).astype(np.float32)
    net = lambda m: lambda x: sg.linear(v, None, sg.flatten(sg.max_pool(sg.relu(sg.conv(m, None, x)), (2,)), 1))
    first, second = (sg.trace(net(m), (1, 1, 10)) for m in (w, other))
    return first, second
