"""The hunt can find a mistake, of every kind; and its networks have every feature that bounds must hold for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from hunt import Drawn, features, hunted, hunted_gradient, hunted_two_sided
from specgrad.bounds.linear.intermediate import argmax_candidates as winners
from specgrad.bounds.linear.intermediate import tighten as walk
from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass
from specgrad.bounds.linear.relaxation import bound_layers, multi_input
from specgrad.bounds.linear.relaxation import formulas as relax
from specgrad.bounds.linear.relaxation.formulas import Gaps, LinearRelaxation

# --- planted mistakes -------------------------------------------------------------------------------------------------


def lower_intercepts(f: Callable[..., LinearRelaxation]) -> Callable[..., LinearRelaxation]:
    """Upper lines 5 % too low."""

    def planted(*args: Any) -> LinearRelaxation:
        lines = f(*args)
        return lines._replace(upper=lines.upper - 0.05 * lines.upper.abs())

    return planted


def without_rest(f: Callable[..., Any]) -> Callable[..., Any]:
    """A product taken for its linear part: the radii are forgotten."""
    return lambda ends: (f(ends)[0], 0 * f(ends)[1])


def first_candidate(f: Callable[..., Any]) -> Callable[..., Any]:
    """A value that may go to several cells is sent to one of them."""
    return lambda self, a: (f(self, a)[0],) * 2


def narrow_gaps(f: Callable[..., Gaps | None]) -> Callable[..., Gaps | None]:
    """Differences between taps that are said to vary half as much as they do."""

    def planted(*args: Any) -> Gaps | None:
        found = f(*args)
        if found is None:
            return None
        quarter = (found.high - found.low) / 4
        return Gaps(found.reference, found.low + quarter, found.high - quarter)

    return planted


def no_error(f: Callable[..., Any]) -> Callable[..., Any]:
    """Deployed bounds without what a layer's own roundings add."""
    return lambda *args: (0 * f(*args)[0], f(*args)[1])


def high_as_low(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda low, high, inside, slope: f(low, low, inside, slope)


def bare(f: Callable[..., LinearRelaxation]) -> Callable[..., LinearRelaxation]:
    """The lower line for both: nothing is left between them."""

    def planted(*args: Any) -> LinearRelaxation:
        lines = f(*args)
        return lines._replace(upper=lines.lower)

    return planted


POOLED = [Drawn.conv, Drawn.max_pool, Drawn.relu_max_pool]
PLANTED = {
    "relu": (hunted, [Drawn.conv, Drawn.residual, Drawn.activation], relax, "relu", lower_intercepts),
    "taps": (hunted, POOLED, relax, "largest", lower_intercepts),
    "intercept": (hunted, POOLED, relax, "intercept", high_as_low),
    "parallel relu": (
        hunted_two_sided,
        [Drawn.conv, Drawn.residual, Drawn.activation],
        bound_layers.BoundUnary,
        "parallel",
        bare,
    ),
    "parallel taps": (hunted_two_sided, POOLED, relax, "parallel", bare),
    "parallel cell": (hunted_two_sided, [Drawn.conv, Drawn.bent], relax, "parallel", lower_intercepts),
    "gaps": (hunted, POOLED, walk, "find_gaps", narrow_gaps),
    "smooth cell": (hunted, [Drawn.conv, Drawn.bent], relax, "hull", lower_intercepts),
    "smooth taps": (hunted, [Drawn.conv, Drawn.smooth], relax, "smooth_largest", lower_intercepts),
    "gate": (hunted_gradient, [Drawn.conv, Drawn.activation], relax, "gate", lower_intercepts),
    "product": (hunted_gradient, [Drawn.conv, Drawn.bent], multi_input, "middle_and_radius", without_rest),
    "routed": (hunted_gradient, POOLED, multi_input.BoundScatter, "_extreme_coefficients", first_candidate),
    "winners": (hunted_gradient, POOLED, winners, "find_gaps", narrow_gaps),
    "rounding": (hunted, [Drawn.conv], ForwardPass, "_linear_error", no_error),
}
# Seeds that are known to catch these; tried before all others.
SOONEST = {"taps": 1, "intercept": 1, "parallel taps": 7, "parallel cell": 2, "gaps": 11, "smooth cell": 2}
SOONEST |= {"gate": 9, "routed": 3, "winners": 20, "rounding": 5}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of the layers in question are fine as they are, and not with the mistake."""
    hunt, kinds, owner, attribute, wrong = PLANTED[name]
    monkeypatch.setattr(owner, attribute, wrong(getattr(owner, attribute)))
    caught = next(seed for seed in (SOONEST.get(name, 0), *range(40)) if hunt(seed, 3, 3, kinds))
    monkeypatch.undo()
    assert not hunt(caught, 8, 8, kinds)


@pytest.mark.parametrize(("gap", "wins"), [(-1.0, True), (-1.9, True), (-4.5, False)])
def test_a_tap_that_deviations_make_the_winner_is_kept(gap: float, wins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second cell lies below the first by the gap, and either may be 1 off."""
    node = next(n for n in sg.trace(lambda x: sg.max_pool(x, (2,)), (1, 1, 2)).nodes if n.op.name == "max_pool")
    taps = bound_layers.BoundMaxPool(1, node, 0, node.params["window"], with_zero=False)
    values = torch.tensor([[[[5.0, 5.0 + gap]]]], dtype=torch.float64)
    gaps = torch.tensor([0.0, gap], dtype=torch.float64).view(2, 1, 1, 1, 1)
    reference = torch.zeros((1, 1, 1, 1, 1), dtype=torch.int64)
    monkeypatch.setattr(winners, "find_gaps", lambda *_: Gaps(reference, gaps, gaps))
    state = SimpleNamespace(intervals={0: (values, values)})
    forward: Any = SimpleNamespace(state=state, deviation={0: np.ones((1, 1, 2))})
    possible = winners._possible_taps(forward, taps)
    assert possible is not None
    assert possible.ravel().tolist() == [True, wins]


# --- what is drawn ----------------------------------------------------------------------------------------------------

WINDOWS = {
    "conv": ("rank 1", "rank 2", "rank 3", "overlap", "padding", "dilation", "groups"),
    "conv_transpose": ("rank 1", "rank 2", "rank 3", "dilation"),
    "max_pool": ("rank 1", "rank 2", "rank 3", "overlap", "padding", "dilation", "ceil", "cells"),
    "avg_pool": ("rank 1", "rank 2", "rank 3", "overlap", "padding", "ceil", "cells", "divisor inside",
                 "divisor padded", "divisor 3", "divisor -2"),
    "smooth_max_pool": ("rank 1", "rank 2", "rank 3", "overlap", "padding", "padded zero", "padded ignore",
                        "negative beta"),
}  # fmt: skip
OTHERS = {
    "relu", "relu6", "leaky_relu", "abs", "clamp", "sigmoid", "tanh", "silu", "gelu", "softplus", "hardswish", "sin",
    "cos", "add", "concat", "mul", "maximum", "minimum", "broadcast", "contract",
}  # fmt: skip


def test_hunted_networks_have_every_feature() -> None:
    """Of the networks of the long hunt (test_hunt_networks), at least five have each; 40 % have ties everywhere."""
    counts: dict[str, int] = {}
    drawn = [Drawn(seed) for seed in range(1000, 1400)]
    for network in drawn:
        for feature in features(network.graph()):
            counts[feature] = counts.get(feature, 0) + 1
    wanted = OTHERS | {f"{op} {word}" for op, words in WINDOWS.items() for word in words}
    assert not {feature: counts.get(feature, 0) for feature in sorted(wanted) if counts.get(feature, 0) < 5}
    assert sum(d.integer for d in drawn) > 120
