"""Cuts of every kind, part by part: each execution lies in a part, and what is proven of the part holds for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cut_parts  # noqa: E402
from cut_parts import BENDS, hunt  # noqa: E402
from specgrad.bounds.search.neuron_split.maxima import Maximum  # noqa: E402
from specgrad.bounds.search.neuron_split.subproblems import Bounder, Problems  # noqa: E402


def test_parts_cover_executions_and_their_bounds_hold() -> None:
    found = hunt(range(10))
    assert (found.escapes, found.uncovered) == (0, 0)
    assert found.winners > 12
    assert found.axes > 12
    assert found.cuts - found.winners - found.axes > 12


@pytest.mark.parametrize("kind", BENDS)
def test_every_kind_alone(kind: str) -> None:
    found = hunt(range(100, 102), kind=kind)
    assert (found.escapes, found.uncovered) == (0, 0)
    assert found.cuts > found.axes > 0


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(10))
def test_a_thousand_networks(hundred: int) -> None:
    found = hunt(range(1000 + 100 * hundred, 1100 + 100 * hundred), inputs=24)
    assert (found.escapes, found.uncovered) == (0, 0)


# --- planted mistakes -------------------------------------------------------------------------------------------------


def is_caught(kind: str) -> bool:
    return any(hunt([seed], kind=kind).escapes for seed in range(60))


def test_a_wrong_side_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Problems.cut
    monkeypatch.setattr(Problems, "cut", lambda self, z, b, c, point, side: original(self, z, b, c, point, 1 - side))
    assert is_caught("abs")


def test_a_wrong_half_of_an_input_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Problems.split_input
    monkeypatch.setattr(
        Problems, "split_input", lambda self, x, b, c, points, side: original(self, x, b, c, points, 1 - side)
    )
    assert is_caught("relu")


def test_layers_that_are_bounded_again_on_another_box_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows of one part is taken for what follows of another."""
    original = Bounder.rebound_layers

    def wrong(self: Bounder, problems: Problems) -> Any:
        new, alive = original(self, problems)
        x = self.renewed[0]
        return replace(new, known={z: v if z == x else v.flip(0) for z, v in new.known.items()}), alive

    monkeypatch.setattr(Bounder, "rebound_layers", wrong)
    assert is_caught("relu")


def test_a_multiplier_of_the_wrong_sign_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_sign(self: Problems, z: int) -> Any:
        whole = torch.full_like(self.multipliers[z], torch.inf)
        return -whole, whole

    monkeypatch.setattr(Problems, "multiplier_range", any_sign)
    assert is_caught("relu")


def test_a_kink_at_the_wrong_point_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Problems.cut
    monkeypatch.setattr(Problems, "cut", lambda self, z, b, c, point, side: original(self, z, b, c, point + 0.25, side))
    assert is_caught("clamp")


def test_an_offset_that_is_forgotten_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: Problems, z: int) -> Any:
        return torch.zeros_like(self.multipliers[z]), torch.zeros_like(self.multipliers[z])

    monkeypatch.setattr(Problems, "offsets", nothing)
    assert is_caught("clamp")


def test_a_winner_on_the_wrong_side_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Problems.without
    monkeypatch.setattr(Problems, "without", lambda self, i, b, w, lost: original(self, i, b, w, ~lost))
    assert is_caught("maximum")


def test_a_loser_that_is_said_to_be_larger_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Maximum.multiplier_objectives

    def wrong(self: Maximum, left: Any, b: Any) -> Any:
        seeds, constant, size = original(self, left, b)
        return {s: -v for s, v in seeds.items()}, -constant, size

    monkeypatch.setattr(Maximum, "multiplier_objectives", wrong)
    assert is_caught("max_pool")


def test_equal_taps_that_exclude_each_other_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "Does not win" as "another is at least as large": of two equal taps both are left out, and the value is lost."""
    original = cut_parts.lies_in

    def closed(graph: Any, path: Any, values: Any) -> bool:
        def loses(cut: Any) -> bool:
            taps = dict(cut_parts.taps_of(graph, cut))
            mine = cut_parts._value(values, taps.pop(cut.tap))
            return any(cut_parts._value(values, where) >= mine for where in taps.values())

        kinks = [(cut, side) for cut, side in path if cut.tap is None]
        taps = [(cut, side) for cut, side in path if cut.tap is not None]
        return original(graph, kinks, values) and all(loses(cut) if side else True for cut, side in taps)

    monkeypatch.setattr(cut_parts, "lies_in", closed)
    assert is_caught("amax")
