"""A cast down and up that a compiler may leave out: kept or dropped, for each reader, executions stay in the radius.

Where casts are stores the class is narrower: an execution that drops one leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from claims import leaves_ball
from floats import FORMATS, round_float
from specgrad.rounding import Arithmetic, Ball, radius, rules

FORMS = ("bfloat16", "float16")
Draw = Callable[[np.random.Generator, str], tuple[sg.Graph, list[Any], list[np.ndarray], list[np.ndarray]]]


def held(x: np.ndarray, form: str) -> np.ndarray:
    """x in the format, to nearest."""
    return np.vectorize(lambda v: round_float(float(v), FORMATS[form]), otypes=[np.float32])(x)


def added(first: Any, terms: np.ndarray) -> np.ndarray:
    """first + the terms over the last axis, one after the other in float32."""
    total = np.asarray(first, np.float32)
    for k in range(terms.shape[-1]):
        total = total + terms[..., k].astype(np.float32)
    return total


def factors(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = int(rng.integers(1, 40))
    x, w = (rng.normal(size=size).astype(np.float32) for size in ((6, n), (5, n)))
    return x, w, (rng.normal(size=5) * 4.0 ** int(rng.integers(-2, 8))).astype(np.float32)


def biased(rng: np.random.Generator, form: str) -> Any:
    """A product that is cast, and a bias: the bias first, where the cast is dropped."""
    x, w, b = factors(rng)
    graph = sg.trace(lambda x, w, b: sg.cast(sg.linear(w, None, x), form) + b, x.shape, w.shape, b.shape)
    terms = rng.permuted(x[:, None] * w, axis=-1)
    kept = held(added(np.zeros((6, 5)), terms), form) + b
    return graph, [x, w, b], [kept], [added(np.broadcast_to(b, (6, 5)), terms)]


def shared(rng: np.random.Generator, form: str) -> Any:
    """Two readers of one cast: each keeps it or not."""
    x, w, b = factors(rng)
    c = np.float32(rng.normal())

    def function(x: Any, w: Any, b: Any) -> Any:
        short = sg.cast(sg.linear(w, None, x), form)
        return (short + b) - short * c

    graph = sg.trace(function, x.shape, w.shape, b.shape)
    terms = x[:, None] * w
    wide = added(np.zeros((6, 5)), terms)
    short = held(wide, form)
    kept = [(short + b) - short * c]
    dropped = [(one + b) - other * c for one, other in ((wide, short), (short, wide), (wide, wide))]
    return graph, [x, w, b], kept, [*dropped, added(np.broadcast_to(b, (6, 5)), terms) - short * c]


def twice(rng: np.random.Generator, form: str) -> Any:
    """Two casts behind each other: all four ways."""
    x, w, b = factors(rng)
    s = np.float32(rng.normal() * 3)
    graph = sg.trace(
        lambda x, w, b: sg.cast(sg.cast(sg.linear(w, None, x), form) * s, form) + b, x.shape, w.shape, b.shape
    )
    wide = added(np.zeros((6, 5)), x[:, None] * w)
    ways = [inner(outer(wide, form) * s, form) + b for inner in (held, _left) for outer in (held, _left)]
    return graph, [x, w, b], ways[:1], ways[1:]


def _left(x: np.ndarray, form: str) -> np.ndarray:
    return x


DRAWS: tuple[Draw, ...] = (biased, shared, twice)


def outcomes(draw: Draw, form: str, casts: str, seeds: range, dropped: bool) -> Iterator[tuple[bool, float]]:
    for seed in seeds:
        graph, given, kept, left = draw(np.random.default_rng(seed), form)
        ball = radius(graph, *given, arithmetic=Arithmetic(casts=casts, flush=False)).outputs
        yield from (leaves_ball(ball, y.astype(float)) for y in (left if dropped else kept))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("draw", DRAWS)
def test_kept_or_dropped_they_stay(draw: Draw, form: str) -> None:
    found = [o for dropped in (False, True) for o in outcomes(draw, form, "dropped", range(60), dropped)]
    assert not any(out for out, _ in found)
    assert max(ratio for _, ratio in found) > 0.4


@pytest.mark.parametrize("draw", DRAWS)
def test_casts_that_are_stores_stay_in_the_narrower_class(draw: Draw) -> None:
    assert not any(out for out, _ in outcomes(draw, "bfloat16", "stored", range(60), dropped=False))


def test_where_casts_are_stores_dropping_one_is_another_class() -> None:
    """A bias that comes first meets every addition of the sum."""
    assert any(out for out, _ in outcomes(biased, "bfloat16", "stored", range(60), dropped=True))


def test_a_store_that_is_not_carried_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rules.RULES["cast"]

    def wrong(context: Any, op: Any, args: Any, params: Any) -> Ball:
        ball = right(context, op, args, params)
        return replace(ball, expansion=args[0].expansion)

    monkeypatch.setitem(rules.RULES, "cast", wrong)
    assert any(out for out, _ in outcomes(biased, "bfloat16", "dropped", range(60), dropped=False))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("draw", DRAWS)
def test_long_hunt_of_dropped_casts(draw: Draw, form: str) -> None:
    for dropped in (False, True):
        assert not any(out for out, _ in outcomes(draw, form, "dropped", range(1000, 4000), dropped))
