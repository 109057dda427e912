"""No execution leaves what is proven where all cells of a group read one number: a divisor, a total, a mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from claims import MODELS, SETTINGS, hunt
from networks import network
from shared_numbers import SHARED
from specgrad.rounding.ball import exact_ball
from specgrad.rounding.layers import masks
from specgrad.rounding.rules import RULES
from test_planted import caught, is_clean

pytest.importorskip("torch")  # crown

CASES = [(kind, name, model) for kind in SHARED for name in SETTINGS for model in MODELS]


@pytest.mark.parametrize(("kind", "name", "model"), CASES)
def test_no_execution_leaves_a_shared_number(kind: str, name: str, model: str) -> None:
    """Radius, ibp and crown of 2 networks each; 60 with `-m slow`."""
    start = 2 * CASES.index((kind, name, model))
    assert_none_escapes(kind, name, model, range(start, start + 2), 3)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "model"), CASES)
def test_long_hunt_of_shared_numbers(kind: str, name: str, model: str) -> None:
    start = 1000 + 60 * CASES.index((kind, name, model))
    assert_none_escapes(kind, name, model, range(start, start + 60), 8)


def assert_none_escapes(kind: str, name: str, model: str, seeds: range, executions: int) -> None:
    setting = replace(SETTINGS[name], model=model)
    found = hunt(((seed, network(seed, setting.form, kind)) for seed in seeds), setting, executions)
    assert not found.escapes, str(found)


# --- planted mistakes -------------------------------------------------------------------------------------------------


def without_its_error(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of quotients for which the divisor is exact."""
    return lambda context, op, args, params: rule(context, op, [args[0], exact_ball(args[1].value)], params)


MISTAKES: dict[str, tuple[str, str, Callable[[pytest.MonkeyPatch], None], int]] = {
    "a divisor without an error": (
        "divided",
        "float32",
        lambda patch: patch.setitem(RULES, "div", without_its_error(RULES["div"])),
        1,
    ),
    "a mask that swallows whatever it is added to": (
        "masked",
        "float16",
        lambda patch: patch.setattr(masks, "SWALLOWED", np.inf),
        13,
    ),
    "a summand that is what is left of a sum": (
        "masked",
        "float32",
        lambda patch: patch.setattr(masks, "_size_with_roundings", lambda *_: np.zeros(())),
        11,
    ),
}
"""What is wrong, by name: the kind of network, the format, how it is planted, and a seed that is known to show it."""


@pytest.mark.parametrize("name", list(MISTAKES))
def test_wrong_rules_of_shared_numbers_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, form, plant, soon = MISTAKES[name]
    setting = SETTINGS[form]
    plant(monkeypatch)
    seed = caught(kind, setting, None, soon=soon)
    monkeypatch.undo()
    assert is_clean(kind, setting, seed)
