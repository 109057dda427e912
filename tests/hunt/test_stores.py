"""Results stored in a shorter format than their sums stay within their bound; planted mistakes do not.

Executions are float32 sums in random orders, rounded to the format by this room's own arithmetic, and PyTorch's.
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
from specgrad.rounding import Arithmetic, Ball, linear, radius, stores

HALVES = ("bfloat16", "float16")
CLASSES = ("node", "fused")
Run = Callable[[np.random.Generator, str], tuple[sg.Graph, list[Any], list[np.ndarray]]]


def held(x: np.ndarray, form: str) -> np.ndarray:
    """x in the format, to nearest."""
    return np.vectorize(lambda v: round_float(float(v), FORMATS[form]), otypes=[float])(x)


def added(terms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The sum over the last axis in float32: in a random order, one after the other or in lanes."""
    terms = rng.permuted(terms, axis=-1).astype(np.float32)
    lanes = int(rng.choice((1, 1, 4)))
    parts = [np.add.accumulate(terms[..., k::lanes], axis=-1)[..., -1] for k in range(min(lanes, terms.shape[-1]))]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def numbers(rng: np.random.Generator, shape: tuple[int, ...], form: str) -> np.ndarray:
    """Normal numbers; few large ones; such as cancel; such as are subnormal in float16."""
    x = rng.normal(size=shape)
    kind = rng.integers(5)
    if kind == 1:
        x = np.where(rng.random(shape) < 0.1, x * 64, x)
    if kind == 2:
        x = np.concatenate([x, -x], axis=-1)[..., : shape[-1]]
    if kind == 3:
        x = x * 2.0**-11
    if kind == 4:
        x = np.rint(x * 4)
    return held(x, form)


# --- executions: a graph, what it reads, and results ------------------------------------------------------------------


def products(rng: np.random.Generator, form: str) -> tuple[sg.Graph, list[Any], list[np.ndarray]]:
    """A matrix product, with or without a bias that is added before or after the store."""
    k, bias = int(rng.integers(1, 40)), rng.random() < 0.6
    x, w, b = (numbers(rng, shape, form) for shape in ((6, k), (5, k), (5,)))
    graph = sg.trace(lambda x, w, b: sg.linear(w, b if bias else None, x), x.shape, w.shape, b.shape)
    terms = (x[:, None] * w).astype(np.float32).astype(float)
    shift = np.broadcast_to(b, (6, 5)) if bias else np.zeros((6, 5))
    whole = held(added(np.concatenate([terms, shift[..., None]], axis=-1), rng), form)
    twice = held(held(added(terms, rng), form).astype(np.float32) + shift.astype(np.float32), form)
    return graph, [x, w, b], [whole, twice]


def averages(rng: np.random.Generator, form: str) -> tuple[sg.Graph, list[Any], list[np.ndarray]]:
    """A mean: its sum stored or not, divided, or multiplied by a reciprocal that is stored or not."""
    k = int(rng.integers(2, 40))
    x = numbers(rng, (20, k), form)
    graph = sg.trace(lambda x: sg.sum(x, 1) / k, x.shape)
    if rng.random() < 0.5:
        graph = sg.trace(lambda x: sg.avg_pool(x[:, None], (k,))[:, 0, 0], x.shape)
    total = added(x, rng)
    inverse = np.float32(1) / np.float32(k)
    short = held(held(total, form) * np.float32(inverse), form)
    return graph, [x], [held(total / np.float32(k), form), held(held(total, form) / np.float32(k), form), short]


def folded(rng: np.random.Generator, form: str) -> tuple[sg.Graph, list[Any], list[np.ndarray]]:
    """A product whose weights took in a scale, and were stored, before it was computed."""
    k = int(rng.integers(1, 40))
    x, w, c, b = (numbers(rng, shape, form) for shape in ((6, k), (5, k), (5,), (5,)))
    graph = sg.trace(lambda x: sg.linear(w, None, x) * c.astype(np.float32) + b.astype(np.float32), x)
    kept = held(w * c[:, None], form)
    terms = np.concatenate([x[:, None] * kept, np.broadcast_to(b, (6, 5))[..., None]], axis=-1)
    after = held(held(held(added(x[:, None] * w, rng), form) * c, form) + b, form)
    return graph, [x], [held(added(terms, rng), form), after]


def from_balls(rng: np.random.Generator, form: str) -> tuple[sg.Graph, list[Any], list[np.ndarray]]:
    """A product of numbers that are anywhere in balls around small ones: what is carried in is stored too."""
    k = int(rng.integers(1, 12))
    r, w = np.abs(held(rng.normal(size=(6, k)), form)), held(rng.normal(size=(5, k)), form)
    middle = held(rng.normal(size=(6, k)) * 2.0**-9, form)
    graph = sg.trace(lambda x: sg.linear(w, None, x), (6, k))
    ways = [np.where(w > 0, 1, -1)[None] * r[:, None] * s + middle[:, None] for s in (1, -1)]
    return graph, [Ball(middle, r)], [held(added(x * w, rng), form) for x in ways]


RUNS: dict[Run, float] = {products: 0.9, averages: 0.6, folded: 0.3, from_balls: 0.9}
"""With the share of the radius that an execution reaches at least."""


def escapes(run: Run, form: str, seeds: range) -> Iterator[tuple[bool, float]]:
    """Of each execution: whether it left the ball, and the largest error over the radius."""
    for seed in seeds:
        graph, given, results = run(np.random.default_rng(seed), form)
        for execution in CLASSES if run is not folded else ("fused",):
            meant = Arithmetic(form, accumulate="float32", execution=execution, flush=False)
            ball = radius(graph, *given, arithmetic=meant).outputs
            yield from (leaves_ball(ball, got) for got in results)


@pytest.mark.parametrize("form", HALVES)
@pytest.mark.parametrize("run", list(RUNS))
def test_no_stored_result_leaves_its_radius(run: Run, form: str) -> None:
    """0 outside, and the bound is nearly reached."""
    with np.errstate(over="ignore"):
        outcome = list(escapes(run, form, range(25)))
    assert not any(out for out, _ in outcome)
    assert max(ratio for _, ratio in outcome) > RUNS[run]


@pytest.mark.slow
@pytest.mark.parametrize("form", HALVES)
@pytest.mark.parametrize("run", list(RUNS))
def test_long_hunt_of_stored_results(run: Run, form: str) -> None:
    with np.errstate(over="ignore"):
        assert not any(out for out, _ in escapes(run, form, range(1000, 6000)))


# --- planted mistakes -------------------------------------------------------------------------------------------------


def _only_of_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """u*abs(y), without the error that is stored with it."""
    right = linear.store_error

    def wrong(arithmetic: Arithmetic, size: np.ndarray, count: int) -> Any:
        return right(arithmetic, np.zeros_like(size), count)

    monkeypatch.setattr(linear, "store_error", wrong)


def _without_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    right = linear.underflow
    monkeypatch.setattr(linear, "underflow", lambda arithmetic, count, _, *more: right(arithmetic, count, 0, *more))


def _changed(monkeypatch: pytest.MonkeyPatch, change: Callable[[linear.Stores], linear.Stores]) -> None:
    right = stores.stores_after
    monkeypatch.setattr(linear, "stores_after", lambda *args: change(right(*args)))


MISTAKES: dict[str, tuple[Run, str, Callable[[pytest.MonkeyPatch], None]]] = {
    "the error that is stored too": (from_balls, "bfloat16", _only_of_the_value),
    "the smallest number": (products, "float16", _without_the_smallest),
    "a store before the bias": (products, "bfloat16", lambda m: _changed(m, lambda s: replace(s, before=0.0))),
    "coefficients that are stored": (
        folded,
        "bfloat16",
        lambda m: _changed(m, lambda s: replace(s, terms=0, value=s.value + s.terms)),
    ),
    "one of two stores": (averages, "bfloat16", lambda m: _changed(m, lambda s: replace(s, value=min(s.value, 1)))),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_store_that_is_forgotten_is_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, form, planted = MISTAKES[mistake]
    planted(monkeypatch)
    with np.errstate(over="ignore"):
        assert any(out for out, _ in escapes(run, form, range(200)))


# --- PyTorch ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("execution", CLASSES)
@pytest.mark.parametrize("dtype", HALVES)
def test_pytorch_stores_within_the_radius(dtype: str, execution: str) -> None:
    """Products and convolutions, with a bias and without; a product comes near its bound."""
    torch = pytest.importorskip("torch")
    kind, functional = getattr(torch, dtype), torch.nn.functional
    torch.manual_seed(0)
    meant, seen = Arithmetic(dtype, accumulate="float32", execution=execution), []
    for k in (1, 8, 64, 300):
        x, w, b = (torch.randn(s).to(kind) for s in ((9, k), (20, k), (20,)))
        seen += [_distance(lambda x, w, b: sg.linear(w, b, x), functional.linear(x, w, b), (x, w, b), meant)]
        seen += [_distance(lambda x, w: sg.linear(w, None, x), x @ w.T, (x, w), meant)]
    x, w, b = (torch.randn(s).to(kind) for s in ((1, 3, 9, 9), (4, 3, 3, 3), (4,)))
    seen += [_distance(lambda x, w, b: sg.conv(w, b, x), functional.conv2d(x, w, b), (x, w, b), meant)]
    seen += [_distance(lambda x: sg.avg_pool(x, (3, 3)), functional.avg_pool2d(x, 3), (x,), meant)]
    assert 0.9 < max(seen) <= 1


def _distance(function: Any, got: Any, given: Any, meant: Arithmetic) -> float:
    arrays = [t.float().numpy() for t in given]
    ball = radius(sg.trace(function, *(a.shape for a in arrays)), *arrays, arithmetic=meant).outputs
    return float((np.abs(got.double().numpy() - ball.value) / ball.radius).max())
