"""The hunter catches what it is there for: bounds of another arithmetic than the executions', and wrong constants."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from claims import SETTINGS, hunt, hunt_replay
from executor import Setting
from networks import network
from specgrad.rounding import arithmetic as formats
from specgrad.rounding import linear
from specgrad.rounding.context import Context

pytest.importorskip("torch")

FUSED = Setting()
NODE = replace(FUSED, model="node")


def caught(
    kind: str, setting: Setting, claimed: Setting | None, replayed: bool = False, seeds: int = 40, soon: int = 0
) -> int | None:
    """The first seed whose network shows an escape, after one that is known to."""
    search = hunt_replay if replayed else hunt
    for seed in (soon, *range(seeds)):
        if search([(seed, network(seed, setting.form, kind))], setting, 10, claimed).escapes:
            return seed
    return None


def is_clean(kind: str, setting: Setting, seed: int | None, replayed: bool = False) -> bool:
    """Whether the right bounds of that network hold all the same executions."""
    assert seed is not None, "the mistake was not caught"
    search = hunt_replay if replayed else hunt
    return not search([(seed, network(seed, setting.form, kind))], setting, 10).escapes


# Seeds that are known to catch these; tried before all others.
SOONEST = {
    "borders of nodes: products": 1,
    "one value per node": 10,
    "no flushing": 7,
    "float32 operands": 2,
    "half the roundings": 1,
    "no underflow": 9,
    "no overflow": 1,
}


# --- bounds for something else than what runs -------------------------------------------------------------------------

OTHER: dict[str, tuple[str, Setting, Setting]] = {  # kind of network, what runs, what is claimed
    "borders of nodes: constants": ("two_levels", FUSED, NODE),
    "borders of nodes: bias": ("matmul_level", FUSED, NODE),
    "borders of nodes: residual": ("conv_level", FUSED, NODE),
    "borders of nodes: products": ("far_products", FUSED, NODE),
    "one value per node": ("copied", FUSED, NODE),
    "no flushing": ("mul_chain", FUSED, replace(FUSED, flush=False)),
    "wider accumulators": ("perceptron", SETTINGS["bfloat16"], SETTINGS["bfloat16 in float32"]),
    "rounding to nearest": ("div_chain", SETTINGS["float32 either way"], FUSED),
    "float32 operands": ("perceptron", SETTINGS["tf32"], FUSED),
    "more digits": ("div_chain", SETTINGS["bfloat16"], SETTINGS["float16"]),
}


@pytest.mark.parametrize("name", list(OTHER))
def test_bounds_for_something_else_are_left(name: str) -> None:
    """And the bounds for what runs are not."""
    kind, runs, claimed = OTHER[name]
    assert is_clean(kind, runs, caught(kind, runs, claimed, soon=SOONEST.get(name, 0)))


def test_crown_sees_copies() -> None:
    """relu(v) - relu(v) is 0 for crown by node, and not in executions that copy."""
    networks = [(seed, network(seed, kind="copied")) for seed in range(12)]
    claims = {e.split()[0] for e in hunt(networks, FUSED, 10, NODE).escapes}
    assert "crown" in claims
    assert "radius" not in claims


# --- wrong constants --------------------------------------------------------------------------------------------------


def plant(monkeypatch: pytest.MonkeyPatch, right: Any, wrong: Any) -> None:
    """Wherever a function of the library stands, another one."""
    for module in [m for name, m in sys.modules.items() if name.startswith("specgrad")]:
        for name, value in list(vars(module).items()):
            if value is right:
                monkeypatch.setattr(module, name, wrong)


def halved(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda count, *rest: f(np.multiply(count, 0.5), *rest)


def one_less(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda count, *rest: f(np.maximum(np.subtract(count, 1), 0), *rest)


def nothing(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: 0 * np.asarray(f(*args), dtype=float)


def never(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: np.zeros_like(np.asarray(f(*args)), dtype=bool)


CONSTANTS: dict[str, tuple[str, Setting, Any, Callable[..., Any]]] = {
    "half the roundings": ("matmul_level", FUSED, formats.growth, halved),
    "half the roundings, by node": ("conv_residual", NODE, formats.growth, halved),
    "no reciprocal": ("div_chain", NODE, formats.growth, one_less),
    "no reciprocal, fused": ("div_chain", FUSED, formats.growth, one_less),
    "no underflow": ("far_products", FUSED, linear.underflow_loss, nothing),
    "no overflow": ("far_products", FUSED, linear._may_overflow, never),
}


@pytest.mark.parametrize("name", list(CONSTANTS))
def test_wrong_constants_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, setting, right, wrong = CONSTANTS[name]
    plant(monkeypatch, right, wrong(right))
    seed = caught(kind, setting, None, soon=SOONEST.get(name, 0))
    monkeypatch.undo()
    assert is_clean(kind, setting, seed)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_numbers_that_are_not_rounded_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of clamp, slopes, maxima with a number: the format makes something else of them."""
    right = Context.stored

    def wrong(self: Context, x: Any, index: bool = False) -> Any:
        ball = right(self, x, index)
        return ball if isinstance(x, type(ball)) else replace(ball, radius=0 * ball.radius)

    monkeypatch.setattr(Context, "stored", wrong)
    seed = caught("bent", SETTINGS[name], None)
    monkeypatch.undo()
    assert is_clean("bent", SETTINGS[name], seed)


# --- the exact replay -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["matmul_level", "conv_level"])
def test_a_replay_by_node_is_left(kind: str) -> None:
    pytest.importorskip("flint")
    assert is_clean(kind, FUSED, caught(kind, FUSED, NODE, replayed=True), replayed=True)


@pytest.mark.parametrize(("kind", "wrong"), [("matmul_level", lambda n: n // 2), ("div_chain", lambda n: n - 1)])
def test_wrong_constants_of_a_replay_are_caught(kind: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flint")
    from specgrad.proof.exact import replay

    right = replay.growth
    plant(monkeypatch, right, lambda count, *rest: right(max(0, wrong(count)), *rest))
    seed = caught(kind, FUSED, None, replayed=True)
    monkeypatch.undo()
    assert is_clean(kind, FUSED, seed, replayed=True)


def _curves() -> Any:
    """The module itself: the replay asks it for a function at each node, so that a mistake in it is met."""
    pytest.importorskip("flint")
    from specgrad.proof.exact import activations as curves
    from specgrad.proof.exact import replay

    assert not hasattr(replay, "runtime_error_bound"), "a name imported before would not have the mistake"
    return curves


WRONG_CURVES: dict[str, Callable[[Any], tuple[str, Any]]] = {
    "no error of functions": lambda curves: ("runtime_error_bound", lambda *_: lambda size: size * 0),
    "copies no further apart than what they read": lambda curves: ("steepest", lambda *_: curves.rational(0)),
    "lines without their intercepts": lambda curves: (
        "_lines_of_cells",
        lambda f, x, given, scale, side, right=curves._lines_of_cells: (right(f, x, given, scale, side)[0], given * 0),
    ),
}


@pytest.mark.parametrize("name", list(WRONG_CURVES))
def test_wrong_rules_of_functions_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    curves = _curves()
    which, wrong = WRONG_CURVES[name](curves)
    plant(monkeypatch, getattr(curves, which), wrong)
    seed = caught("curved", FUSED, None, replayed=True)
    monkeypatch.undo()
    assert is_clean("curved", FUSED, seed, replayed=True)


def test_computed_constants_without_their_roundings_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """gamma/sqrt(var + eps) taken for a number that every runtime has."""
    _curves()
    from specgrad.proof.exact import node_ranges

    right = node_ranges.folded_range
    plant(monkeypatch, right, lambda *given: replace(right(*given), constant_roundings=0))
    seed = caught("conv_bn", FUSED, None, replayed=True, soon=6)
    monkeypatch.undo()
    assert is_clean("conv_bn", FUSED, seed, replayed=True)
