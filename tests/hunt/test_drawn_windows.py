"""What hunters draw: every kind of window, in what runs by default."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import drawn_windows
from drawn_windows import KINDS, RANKS, kinds, sizes, under_axes, window
from specgrad.op import REGISTRY
from specgrad.window import Window

pytest.importorskip("torch")


def as_graphs(windows: Iterable[Window]) -> list[Any]:
    node = lambda w: SimpleNamespace(op=SimpleNamespace(name="max_pool"), params={"window": w})
    return [SimpleNamespace(nodes=[node(w)]) for w in windows]


def test_every_kind_is_drawn() -> None:
    rng = Random(0)
    assert kinds(as_graphs(window(rng, sizes(rng), empty=True) for _ in range(60))) == KINDS | RANKS | {"empty"}
    assert "empty" not in kinds(as_graphs(window(rng, sizes(rng)) for _ in range(300)))
    alike = [under_axes(rng, alike=True) for _ in range(20)]
    assert all(lead == w.out and len(set(w.inside().ravel())) == 1 for lead, w in alike)


def test_networks_of_executions_have_windows_of_every_kind() -> None:
    """Of radius, ibp, crown and replay."""
    from networks import network
    from test_executions import WINDOWED

    assert kinds([network(seed, kind="max_pooled").graph for seed in WINDOWED]) >= KINDS | RANKS
    assert kinds([network(seed, kind="pooled_head").graph for seed in WINDOWED]) >= KINDS | {"empty"}


def test_networks_of_bounds_have_windows_of_every_kind() -> None:
    from hunt import Drawn

    graphs = [Drawn(seed).graph() for seed in range(100)]
    for operator in ("max_pool", "avg_pool"):
        assert kinds(graphs, (operator,)) >= KINDS | RANKS | {"empty"}


@pytest.mark.parametrize("operator", ["max_pool", "winner", "avg_pool", "avg_spread"])
def test_cases_of_operators_have_windows_of_every_kind(operator: str) -> None:
    """Of the laws, of radii and of bounds of one operator."""
    drawn = [REGISTRY[operator].cases(Random(f"rounding/{operator}/{seed}"))[1]["window"] for seed in range(100)]
    assert kinds(as_graphs(drawn)) >= KINDS | RANKS | {"empty"}


@pytest.mark.parametrize(("module", "hunt"), [("test_smooth", "wrong_windows"), ("test_chosen_orders", "wrong_sums")])
def test_planes_and_sums_have_windows_of_every_kind(module: str, hunt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of smooth maxima in certificates, and of the terms that decisions are searched by: as their tests call them."""
    pytest.importorskip("flint")
    drawn: list[Window] = []
    recorded = lambda *args, **options: drawn.append(one := window(*args, **options)) or one
    monkeypatch.setattr(drawn_windows, "window", recorded)
    assert getattr(importlib.import_module(module), hunt)(range(60)) == []
    assert kinds(as_graphs(drawn)) >= KINDS | RANKS | {"empty"}
