"""The checker's table of functions against the registered operators: none is forgotten, every fact of an entry holds.

An entry says how a function bends, what it and its slope are, and where pieces end: a proof rests on each. Here they
are compared, on a grid of points and intervals, with the operator's own specification over balls of 600 bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.declared_errors import WORST_ULPS
from specgrad.op import run_spec
from specgrad.scalar import balls

flint = pytest.importorskip("flint")

from second_functions import Curve as SecondCurve  # noqa: E402
from specgrad.errors import UnsupportedError  # noqa: E402
from specgrad.proof.base import executions  # noqa: E402
from specgrad.proof.base.executions import REFUSED  # noqa: E402
from specgrad.proof.base.rationals import ReplayError, rational  # noqa: E402
from specgrad.proof.exact import activations  # noqa: E402
from specgrad.proof.exact.activations import CURVES, HANDLED_ELSEWHERE, EnclosedFunction  # noqa: E402
from specgrad.proof.exact.node_ranges import CURVED  # noqa: E402
from specgrad.proof.exact.replay import Replay  # noqa: E402

BITS = 600
TINY = Fraction(1, 2**200)  # between two points whose chord is as good as a derivative
OFF = Fraction(1, 2**60)  # enclosures of the checker have 64 places
PARAMS: dict[str, list[dict[str, Any]]] = {
    "leaky_relu": [{"slope": s} for s in (0.01, 0, 1, -0.5, 3.0, Fraction(1, 3))],
    "clamp": [{"low": a, "high": b} for a, b in ((-0.7, 1), (None, 0.5), (-2, None), (1, 1), (None, None))],
}
CALLS = [(name, params) for name in CURVES for params in PARAMS.get(name, [{}])]
Ends = tuple[Fraction, Fraction]
Value = Callable[[Fraction], Ends]


def fraction(x: Any) -> Fraction:
    return x if isinstance(x, Fraction) else Fraction(int(x.p), int(x.q))


# --- no function is forgotten -----------------------------------------------------------------------------------------


def test_functions_with_rules_are_those_that_load_them() -> None:
    assert tuple(CURVES) == CURVED


def unlisted() -> set[str]:
    """Registered functions of one cell that a certificate neither knows nor refuses by name, or both."""
    registered = [name for name, op in sg.REGISTRY.items() if op.curve is not None]
    listed = [*CURVES, *HANDLED_ELSEWHERE, *REFUSED]
    return set(registered) ^ set(listed) | {name for name in listed if listed.count(name) > 1}


def undeclared() -> set[str]:
    """Functions with a declared error that a certificate neither states nor refuses, and the other way round."""
    inexact = {name for name in CURVES if sg.REGISTRY[name].transcendental or name in WORST_ULPS}
    computed = {f for names in executions.COMPUTES.values() for f in names}
    missing = (set(WORST_ULPS) - set(executions.FUNCTIONS) - set(REFUSED)) | (inexact - set(executions.FUNCTIONS))
    idle = (
        set(executions.FUNCTIONS) - inexact - computed - {"sqrt"}
    )  # of constants alone: specgrad.proof.exact.node_ranges
    return (
        missing
        | idle
        | (set(executions.FUNCTIONS) ^ set(executions.MEASURED))
        | set(executions.FUNCTIONS) - set(WORST_ULPS)
    )


def test_every_function_is_known_or_refused_by_name() -> None:
    assert unlisted() == set()
    assert undeclared() == set()
    assert all(REFUSED.values())


@pytest.mark.parametrize("table", [CURVES, REFUSED])
def test_a_function_that_is_forgotten_is_seen(table: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(table))
    monkeypatch.delitem(table, name)
    assert name in unlisted()


def test_an_error_that_nobody_declares_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executions, "FUNCTIONS", tuple(n for n in executions.FUNCTIONS if n != "tanh"))
    assert undeclared() == {"tanh"}
    monkeypatch.setattr(executions, "FUNCTIONS", (*executions.FUNCTIONS, "tanh", "silu"))
    assert undeclared() == {"silu"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_with_its_reason(name: str) -> None:
    params = {"power": {"exponent": 3}, "root": {"exponent": 0.5}, "softplus": {"beta": 1}}.get(name, {})
    graph = sg.trace(lambda x: sg.op.apply(sg.REGISTRY[name], x, **params), (1,))
    low, high = np.float32([1]), np.float32([2])
    with pytest.raises(UnsupportedError) as error:
        Replay(graph, low, high, {})
    assert f"({name}: {REFUSED[name]})" in str(error.value)


# --- every fact holds -------------------------------------------------------------------------------------------------


def reference(name: str, params: dict[str, Any]) -> Value:
    """Ends of the registered operator's own value."""

    @cache
    def value(x: Fraction) -> Ends:
        before, flint.ctx.prec = flint.ctx.prec, BITS
        try:
            (y,) = run_spec(sg.REGISTRY[name], [balls(np.array([x], dtype=object))], params)
            ends = y.lower().man_exp(), y.upper().man_exp()
        finally:
            flint.ctx.prec = before
        low, high = (Fraction(int(m)) * Fraction(2) ** int(e) for m, e in ends)
        return low, high

    return value


def grid(breakpoints: list[Fraction]) -> list[Fraction]:
    """Around every end of a piece, as near as 2**-40, and far from it."""
    away = [Fraction(0), *(Fraction(2) ** k for k in (-40, -9, -3, -1, 1, 5))]
    around = {b + side * a for b in (*breakpoints, Fraction(0)) for a in away for side in (-1, 1)}
    return sorted(around | {Fraction(n, 3) for n in range(-16, 17, 8)})


def pieces(breakpoints: list[Fraction]) -> Iterator[tuple[int, list[Fraction]]]:
    """Points of every piece, ends included."""
    borders = [-math.inf, *breakpoints, math.inf]
    for k, (left, right) in enumerate(itertools.pairwise(borders)):
        yield k, [x for x in grid(breakpoints) if left <= x <= right]


def faults(name: str, params: dict[str, Any], curve: Any, number: Callable[[Fraction], Any] = lambda x: x) -> set[str]:
    """Facts of an entry that are false somewhere."""
    f, breakpoints = reference(name, params), [fraction(b) for b in curve.breakpoints]
    value = lambda x: tuple(map(fraction, curve.value(number(x))))
    slope = lambda x, k: tuple(map(fraction, curve.slope(number(x), k)))
    wrong = set()
    for k, points in pieces(breakpoints):
        for x in points:
            (least, most), (low, high) = value(x), f(x)
            if least > high or low > most or most - least > max(OFF, abs(high) * OFF):
                wrong.add("value")
        inside = [(x, 1 if x != points[-1] else -1) for x in points] if len(points) > 1 else []
        for x, way in inside:
            low, high = chord(f, *sorted((x, x + way * TINY)))
            least, most = slope(x, k)
            if least > high + OFF or low > most + OFF:
                wrong.add("slope")
        for p, q in itertools.combinations(points, 2):
            low, high = bulge(f, p, q)
            if (high < 0 and curve.signs[k] >= 0) or (low > 0 and curve.signs[k] <= 0):
                wrong.add("breakpoints")
    return wrong | drawn(curve, f, breakpoints, number)


def chord(f: Value, p: Fraction, q: Fraction) -> Ends:
    a, b = f(p), f(q)
    return (b[0] - a[1]) / (q - p), (b[1] - a[0]) / (q - p)


def bulge(f: Value, p: Fraction, q: Fraction) -> Ends:
    """f(p) + f(q) - 2*f((p + q)/2): not negative where f is convex, not positive where it is concave."""
    a, b, m = f(p), f(q), f((p + q) / 2)
    return a[0] + b[0] - 2 * m[1], a[1] + b[1] - 2 * m[0]


def drawn(curve: Any, f: Value, breakpoints: list[Fraction], number: Callable[[Fraction], Any]) -> set[str]:
    """Ranges and the largest slope on intervals between points of the grid, held against points inside."""
    wrong, points = set(), grid(breakpoints)[::4]
    image, steepest = getattr(curve, "image", None), getattr(curve, "steepest", None)
    image = image or (lambda a, b: activations.image(curve, a, b))
    steepest = steepest or (lambda a, b: activations.steepest(curve, a, b))
    for low, high in itertools.combinations(points, 2):
        least, most = map(fraction, image(number(low), number(high)))
        steep = fraction(steepest(number(low), number(high)))
        some = [low, *(x for x in breakpoints if low < x < high), (low + high) / 2, high]
        if any(f(x)[0] > most + OFF or f(x)[1] < least - OFF for x in some):
            wrong.add("range")
        if any(max(abs(d) for d in chord(f, p, q)) > steep + OFF for p, q in itertools.pairwise(sorted(set(some)))):
            wrong.add("steepest")
    return wrong


def ours(x: Fraction) -> Any:
    return rational(x.numerator, x.denominator)


@pytest.mark.parametrize(("name", "params"), CALLS, ids=str)
def test_every_fact_of_an_entry_holds(name: str, params: dict[str, Any]) -> None:
    assert faults(name, params, CURVES[name](params), ours) == set()


@pytest.mark.parametrize(("name", "params"), CALLS, ids=str)
def test_every_fact_of_the_second_checker_holds(name: str, params: dict[str, Any]) -> None:
    node: Any = SimpleNamespace(op=name, params=params)
    assert faults(name, params, SecondCurve(node)) == set()


# --- planted mistakes -------------------------------------------------------------------------------------------------


def _softplus(x: Any) -> Any:
    return (1 + x.exp()).log()


SOFTPLUS = EnclosedFunction(
    activations._enclose_by_balls(_softplus), activations._enclose_by_balls(activations._sigmoid), (), (1,)
)
ADDED = {  # functions that a certificate does not have, added with one fact wrong
    "softplus, concave": ("softplus", {"beta": 1}, replace(SOFTPLUS, signs=(-1,))),
    "softplus, straight": ("softplus", {"beta": 1}, replace(SOFTPLUS, signs=(0,))),
    "silu, concave": (
        "silu",
        {},
        EnclosedFunction(
            activations._enclose_by_balls(lambda x: x * activations._sigmoid(x)),
            activations._enclose_by_balls(lambda x: activations._sigmoid(x) + x * activations._sigmoid_slope(x)),
            (),
            (-1,),
        ),
    ),
}


@pytest.mark.parametrize("added", ADDED)
def test_a_function_added_with_a_wrong_curvature_is_caught(added: str) -> None:
    name, params, curve = ADDED[added]
    assert "breakpoints" in faults(name, params, curve, ours)


def test_a_function_added_with_the_right_curvature_is_not() -> None:
    assert faults("softplus", {"beta": 1}, SOFTPLUS, ours) == set()


CHANGED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "exp is concave": ("exp", "breakpoints", {"signs": (-1,)}),
    "exp is straight": ("exp", "breakpoints", {"signs": (0,)}),
    "tanh bends the other way": ("tanh", "breakpoints", {"signs": (-1, 1)}),
    "sigmoid bends elsewhere": ("sigmoid", "breakpoints", {"breakpoints": (rational(1),)}),
    "hardswish is straight": ("hardswish", "breakpoints", {"signs": (0, 0, 0)}),
    "hardswish ends at 2": ("hardswish", "breakpoints", {"breakpoints": (rational(-3), rational(2))}),
    "relu6 ends at 5": ("relu6", "breakpoints", {"breakpoints": (rational(0), rational(5))}),
    "the slope of tanh is that of sigmoid": (
        "tanh",
        "slope",
        {"slope": activations._enclose_by_balls(activations._sigmoid_slope)},
    ),
    "the value of sigmoid is that of tanh": (
        "sigmoid",
        "value",
        {"value": activations._enclose_by_balls(lambda x: x.tanh())},
    ),
    "abs rises": ("abs", "slope", {"slope": lambda x, k: (activations.ONE, activations.ONE)}),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_wrong_fact_is_caught(change: str) -> None:
    name, fact, wrong = CHANGED[change]
    assert fact in faults(name, {}, replace(CURVES[name]({}), **wrong), ours)


@pytest.mark.parametrize(
    ("breakpoints", "signs"),
    [((0,), (1,)), ((1, 0), (0, 1, 0)), ((Fraction(1, 2),), (1, -1)), ((-1, 1), (1, -1, 1)), ((0,), (-1, -1))],
)
def test_pieces_that_lines_are_not_drawn_by_are_refused(breakpoints: tuple[Any, ...], signs: tuple[int, ...]) -> None:
    """Two convex pieces, pieces that end between whole numbers, ends out of order: the rule on leaves forgets some."""
    one = CURVES["exp"]({})
    with pytest.raises(ReplayError, match="not what lines are drawn by"):
        replace(one, breakpoints=tuple(ours(Fraction(b)) for b in breakpoints), signs=signs)
