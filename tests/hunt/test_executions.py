"""No execution of an execution model leaves what is proven for it: random networks, run by trees of our own choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from claims import MODELS, SETTINGS, arithmetic, hunt, hunt_replay, replayed
from executor import Setting
from networks import KINDS, network
from specgrad.rounding import radius

pytest.importorskip("torch")  # crown

CASES = [(name, model) for name in SETTINGS for model in MODELS]


def setting_of(name: str, model: str) -> Setting:
    return replace(SETTINGS[name], model=model)


@pytest.mark.parametrize(("name", "model"), CASES)
def test_no_execution_leaves_a_bound(name: str, model: str) -> None:
    """28 networks over all cases, of every kind: radius, ibp and crown, deployed; exact values in the real bounds."""
    setting, start = setting_of(name, model), 2 * CASES.index((name, model))
    found = hunt(((seed, network(seed, setting.form)) for seed in range(start, start + 2)), setting, executions=3)
    assert not found.escapes, str(found)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "model"), CASES)
def test_long_hunt(name: str, model: str) -> None:
    """2,040 networks over all cases; the worst ratio is printed with -s."""
    setting, start = setting_of(name, model), 10_000 + 170 * CASES.index((name, model))
    found = hunt(((seed, network(seed, setting.form)) for seed in range(start, start + 170)), setting, executions=8)
    print(name, model, found)
    assert not found.escapes, str(found)


@pytest.mark.parametrize("model", MODELS)
def test_no_execution_leaves_a_replay(model: str) -> None:
    """A network of every kind; of weights as inputs and of several outputs there is no replay."""
    pytest.importorskip("flint")
    found = hunt_replay(((k, network(k)) for k in range(len(KINDS))), setting_of("float32", model), executions=3)
    assert not found.escapes, str(found)
    assert found.networks >= 15


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_long_hunt_of_replays(model: str) -> None:
    """At least 500 networks over both models."""
    pytest.importorskip("flint")
    networks = ((seed, network(seed)) for seed in range(5000, 5600))
    found = hunt_replay(networks, setting_of("float32", model), executions=6)
    print(model, found)
    assert not found.escapes, str(found)
    assert found.networks >= 250


FUNCTIONS = [(name, model) for name in ("float32", "float32 either way") for model in MODELS]


def ways(kind: str, in_bounds: int, in_replays: int) -> tuple[tuple[Any, str, int], ...]:
    """How many networks of a kind are hunted, by which hunt."""
    return (hunt, kind, in_bounds), (hunt_replay, kind, in_replays)


@pytest.mark.parametrize(("name", "model"), FUNCTIONS)
def test_no_execution_of_functions_leaves_a_bound(name: str, model: str) -> None:
    """tanh, exp and their kin, as far off as is declared: 16 networks over all cases in float bounds, 24 in replays."""
    pytest.importorskip("flint")
    setting, place = setting_of(name, model), FUNCTIONS.index((name, model))
    for hunted, kind, count in (*ways("curved", 2, 3), *ways("smoothed", 2, 3)):
        seeds = range(place * count, (place + 1) * count)
        found = hunted(((seed, network(seed, kind=kind)) for seed in seeds), setting, executions=3)
        assert not found.escapes, str(found)
        assert found.networks >= count // 2


WINDOWED = (*range(6), 11, 21, 46, 51)


@pytest.mark.parametrize("hunted", [hunt, hunt_replay])
@pytest.mark.parametrize("kind", ["max_pooled", "pooled_head"])
def test_no_execution_leaves_a_bound_through_windows(kind: str, hunted: Any) -> None:
    """Of every kind, in float bounds and in replays."""
    pytest.importorskip("flint")
    networks = ((seed, network(seed, kind=kind)) for seed in WINDOWED)
    found = hunted(networks, setting_of("float32", "fused"), executions=1)
    assert not found.escapes, str(found)
    assert found.networks >= 3


@pytest.mark.slow
@pytest.mark.parametrize(("name", "model"), FUNCTIONS)
def test_long_hunt_of_functions(name: str, model: str) -> None:
    """1,000 networks over both models and roundings, and as many with smooth maxima, in float bounds and replays."""
    pytest.importorskip("flint")
    setting = setting_of(name, model)
    for hunted, kind, count in (*ways("curved", 250, 250), *ways("smoothed", 250, 250)):
        found = hunted(((1000 + n, network(1000 + n, kind=kind)) for n in range(count)), setting, executions=6)
        print(name, model, found)
        assert not found.escapes, str(found)


@pytest.mark.parametrize("model", MODELS)
def test_a_replay_takes_values_of_rank_0(model: str) -> None:
    """NumPy's arithmetic on object arrays of rank 0 gives bare numbers."""
    pytest.importorskip("flint")
    x = np.float32([1.0, 2.0])
    graph = sg.trace(lambda x: x + sg.sum(x * 0.5) / 3.0, (2,))
    last = replayed(graph, x, x, Setting(model=model)).ranges[-1]
    assert all(float(a) <= v <= float(b) for a, b, v in zip(last.low, last.high, (1.5, 2.5), strict=True))


def test_every_kind_is_run() -> None:
    assert {network(seed).kind for seed in range(len(KINDS))} == set(KINDS)


# --- long sums --------------------------------------------------------------------------------------------------------


def long_sums(x: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    """float32 sums of many terms, sequential in several orders, and in lanes."""
    last = lambda v: float(np.add.accumulate(v)[-1])  # one after the other, each rounded
    lanes = np.add.accumulate(x[: len(x) // 16 * 16].reshape(-1, 16))[-1]
    rest = last(np.concatenate([lanes, x[len(x) // 16 * 16 :]]))
    orders = {"as is": x, "backwards": x[::-1], "shuffled": rng.permutation(x)}
    orders |= {"descending": np.sort(x)[::-1], "ascending": np.sort(x)}
    return {name: last(v) for name, v in orders.items()} | {"lanes": rest}


@pytest.mark.parametrize("count", [100_000, 1_000_000])
@pytest.mark.parametrize("taste", ["normal", "absorbed", "spread"])
def test_sums_of_many_terms(count: int, taste: str) -> None:
    """10^5 and 10^6 terms; a large one that swallows all others comes within 1 % of the bound at 10^5."""
    rng = np.random.default_rng(count)
    x = {
        "normal": lambda: rng.normal(size=count),
        "absorbed": lambda: np.where(np.arange(count) == 0, 2.0**24, 1.0),
        "spread": lambda: rng.normal(size=count) * 2.0 ** rng.integers(-20, 20, count),
    }[taste]().astype(np.float32)
    ball = radius(sg.trace(lambda x: sg.sum(x), (count,)), x, arithmetic=arithmetic(Setting(model="node"))).outputs
    ratios = {name: abs(y - float(ball.value)) / float(ball.radius) for name, y in long_sums(x, rng).items()}
    assert max(ratios.values()) <= 1, ratios
    assert taste != "absorbed" or max(ratios.values()) > (0.98 if count == 100_000 else 0.9)


def test_fused_is_never_narrower_where_nothing_cancels() -> None:
    """One node alone is the same in both models."""
    x = np.float32([0.1, 0.7, 1.9])
    graph = sg.trace(lambda x: sg.sum(x), (3,))
    balls = [radius(graph, x, arithmetic=arithmetic(Setting(model=m))).outputs for m in MODELS]
    assert balls[0].radius == pytest.approx(balls[1].radius, rel=1e-6)
