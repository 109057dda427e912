"""The facts that a record states of a function of one cell hold for its own derivative rules, in float64.

What is bounded (slope, curvature) is compared on random ranges with the values of the first and second derivative
graphs inside them; the laws in test_laws.py hold these graphs against exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import specgrad as sg
from functions import EVERYWHERE
from specgrad.curve import Curve, always, at_most
from specgrad.op import Op, apply

CURVES = [op for op in sg.REGISTRY.values() if op.curve is not None]
PARAMS = {
    "leaky_relu": [{"slope": 0.25}, {"slope": -2.0}],
    "clamp": [{"low": -1.0, "high": 2.0}, {"low": None, "high": 0.5}],
    "softplus": [{"beta": 1.0}, {"beta": 3.0}],
    "power": [{"exponent": e} for e in (0, 1, 2, 3, -1, -2, 0.5, 2.5)],
    "root": [{"exponent": e} for e in (0.5, 0.3, 2)],
}
POSITIVE = {"log", "sqrt", "power", "root"}
CALLS = [(op, params) for op in CURVES for params in PARAMS.get(op.name, [{}])]
BENT = [(op, p) for op, p in CALLS if op.curve.curvature is not None and p.get("exponent") not in (0, 1)]
SLACK = 1 + 1e-9


def ranges(op: Op, count: int = 40) -> list[tuple[float, float]]:
    """Short and long ones, around every kink and turning point among them."""
    draw = np.random.default_rng(0)
    middle, reach = draw.normal(size=count) * 3, 10 ** draw.uniform(-3, 0.7, size=count)
    found = list(zip(middle - reach, middle + reach, strict=True))
    return [(abs(a) + 0.01, abs(a) + abs(b) + 0.02) for a, b in found] if op.name in POSITIVE else found


def derivatives(op: Op, params: dict, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    graph = sg.trace(lambda v: apply(op, v, **params), x.shape)
    first = sg.trace(lambda v: sg.jvp(graph)(v, np.ones(x.shape))[1], x.shape)
    second = sg.trace(lambda v: sg.jvp(first)(v, np.ones(x.shape))[1], x.shape)
    return graph(x), first(x), second(x)


def broken(op: Op, curve: Curve, params: dict) -> Iterator[str]:
    """Which of the facts are false somewhere, as they are found."""
    for low, high in ranges(op):
        x = np.linspace(low, high, 201)
        kinks = np.array([float(k) for k in curve.kinks(params)])
        x = x[np.all(np.abs(x[:, None] - kinks) > 1e-9, axis=1)] if len(kinks) else x
        y, first, second = derivatives(op, params, x)
        ends = np.float64(low), np.float64(high)
        if curve.steepest is not None and (np.abs(first) > curve.steepest(np, *ends, params) * SLACK).any():
            yield "steepest"
        most = 0.0 if curve.curvature is None else curve.curvature(np, *ends, params)
        if (np.abs(second) > most * SLACK + 1e-12).any():
            yield "curvature"
        turning = curve.turning(params)
        parts = [x > -np.inf] if turning is None else [x <= turning, x >= turning]
        if curve.peak is not None:
            turn = np.floor((x - curve.peak) / np.pi)
            parts = [turn == k for k in np.unique(turn)]
            if (np.abs(y - np.cos(x - curve.peak)) > 1e-12).any():
                yield "peak"
        steps = [np.diff(y[part]) for part in parts]
        if any((s > 1e-13).any() and (s < -1e-13).any() for s in steps):
            yield "turning"


@pytest.mark.parametrize(("op", "params"), CALLS, ids=[f"{op.name} {p}" for op, p in CALLS])
def test_the_facts_hold(op: Op, params: dict) -> None:
    assert list(broken(op, op.curve, params)) == []


@pytest.mark.parametrize(("op", "params"), BENT, ids=[f"{op.name} {p}" for op, p in BENT])
def test_a_curvature_that_is_too_small_is_seen(op: Op, params: dict) -> None:
    stated = op.curve.curvature
    small = replace(op.curve, curvature=lambda xp, low, high, p: 0.9 * stated(xp, low, high, p))
    assert "curvature" in broken(op, small, params)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_single_number_is_an_array_of_rank_0(name: str) -> None:
    """Arithmetic on an object array of rank 0 gives its bare cell, which has no shape."""
    one, several = (apply(sg.REGISTRY[name], sg.balls(x)) for x in (0.5, [0.5]))
    assert (one.shape, str(one)) == ((), str(several[0]))


def test_other_planted_mistakes_are_seen() -> None:
    silu, relu = sg.REGISTRY["silu"], sg.REGISTRY["relu"]
    assert "turning" in broken(silu, replace(silu.curve, turning=always(None)), {})
    assert "turning" in broken(silu, replace(silu.curve, turning=always(-1.0)), {})
    sin, cos = sg.REGISTRY["sin"], sg.REGISTRY["cos"]
    assert "turning" in broken(cos, replace(cos.curve, peak=None), {})
    assert {"turning", "peak"} <= set(broken(sin, replace(sin.curve, peak=0.0), {}))
    assert "steepest" in broken(relu, replace(relu.curve, steepest=at_most(0.9)), {})
    assert "curvature" in broken(sg.REGISTRY["hardswish"], Curve(kinks=always((-3, 3))), {})


def test_who_is_made_of_lines() -> None:
    lines = {op.name for op, params in CALLS if op.curve.pieces(params) is not None}
    assert lines >= {"relu", "abs", "leaky_relu", "relu6"}
    assert lines.isdisjoint({"silu", "tanh", "sigmoid", "exp", "hardswish"})
