"""Judging softmax by the total that its cells share: no kernel is refused, and small faults are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from norm_kernels import NormKernel
from specgrad.check.verdicts.shared_total import shared_total
from specgrad.graph.graph import Graph
from specgrad.rounding import Arithmetic, radius
from specgrad.rounding.layers import softmax as layer
from specgrad.rounding.layers import statistics

F, U = np.float32, 2.0**-24
NODE = Arithmetic(execution="node")
SIZES, SPREADS = (1, 2, 7, 64, 768, 4096), (0.0, 1.0, 4.0, 20.0, 200.0)
LOW = (0.0, -np.inf, np.finfo(F).min, F(-1e9))


class SoftmaxKernel:
    """One way to compute softmax in float32, drawn by a seed: sums along a tree, exponentials off by up to 11 u."""

    def __init__(self, seed: int) -> None:
        self.sums, self.rng = NormKernel(seed), np.random.default_rng([seed, 1])
        self.flush = bool(self.rng.integers(2))
        self.off = self.rng.choice((0.0, 11.0, -11.0, np.nan))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            z = self._flushed(x - x.max(1, keepdims=True))
            drawn = self.rng.uniform(-11, 11, x.shape) if np.isnan(self.off) else self.off
            e = self._flushed((np.exp(z.astype(float)) * (1 + drawn * U)).astype(F))
            total = self.sums.total(e)
            return self._flushed(e * (F(1) / total) if self.sums.reciprocal else e / total)

    def _flushed(self, a: np.ndarray) -> np.ndarray:
        return np.where(np.abs(a) < 2.0**-126, F(0), a) if self.flush else a


def rows(rng: np.random.Generator, n: int, spread: float, count: int = 3) -> np.ndarray:
    """Rows with masks or without; not all of a row is shut out."""
    x = (rng.normal(size=(count, n)) * spread + rng.normal() * 10).astype(F)
    shut = rng.random((count, n)) < 0.4
    shut[np.arange(count), rng.integers(n, size=count)] = False
    with np.errstate(over="ignore"):
        return np.asarray(x + np.where(shut, F(LOW[rng.integers(4)]), F(0)))


def graph_of(x: np.ndarray) -> Graph:
    return sg.trace(sg.softmax, x.shape)


def explains(x: np.ndarray, y: np.ndarray) -> bool:
    found = shared_total(graph_of(x), [x], y, NODE)
    assert found is not None
    return bool(found.explained.all())


def judged(seed: int) -> bool:
    """Whether a drawn kernel on drawn rows is explained, and within its radius."""
    rng = np.random.default_rng(seed)
    x = rows(rng, SIZES[seed % 6], SPREADS[seed // 6 % 5])
    y = SoftmaxKernel(seed)(x)
    return explains(x, y) and bool(radius(graph_of(x), x, arithmetic=NODE).outputs.contains(y).all())


def test_no_kernel_is_refused() -> None:
    assert all(judged(seed) for seed in range(150))


@pytest.mark.slow
def test_long_hunt_of_totals() -> None:
    assert all(judged(seed) for seed in range(1000, 9000))


def swallowed(n: int = 4096) -> np.ndarray:
    """1 and cells that are lost beside it, each of them, from left to right."""
    x = np.full((1, n), np.log(0.49 * 2.0**-23), F)
    x[0, 0] = 0
    return x


def against_the_bound() -> tuple[bool, float]:
    """Whether a chain from left to right on such a row is explained, and its share of the total's interval."""
    x, kernel = swallowed(), SoftmaxKernel(0)
    kernel.sums.tree, kernel.sums.order, kernel.sums.reciprocal, kernel.off = "chain", "given", False, 0.0
    y = kernel(x)
    found = shared_total(graph_of(x), [x], y, NODE)
    assert found is not None
    return bool(found.explained.all()), float(abs(found.low[0]) / found.allowed[0])


def test_a_row_made_against_the_bound_uses_most_of_it() -> None:
    fine, share = against_the_bound()
    assert fine
    assert share > 0.9


# --- faults -----------------------------------------------------------------------------------------------------------


def exact(x: np.ndarray) -> np.ndarray:
    """In float64, by NumPy."""
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def short_exp(x: np.ndarray) -> np.ndarray:
    e = np.exp((x - x.max(1, keepdims=True)).astype(np.float16)).astype(float)
    return np.asarray(e / e.sum(1, keepdims=True))


def one_cell(x: np.ndarray) -> np.ndarray:
    y = exact(x)
    y[0, np.argmax(y[0])] *= 1 + 5e-6
    return y


def lost_mask(x: np.ndarray) -> np.ndarray:
    shown = x.copy()
    shown[0, 3] = 0.0
    return exact(shown)


FAULTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp in float16": short_exp,
    "one cell by 5e-6": one_cell,
    "a lost mask": lost_mask,
    "a scale of 1 + 1e-5": lambda x: exact(x * (1 + 1e-5)),
    "stored as float16": lambda x: exact(x).astype(np.float16),
    "a total off by twice n roundings": lambda x: exact(x) * (1 + 2 * x.shape[1] * U + 3e-6),
    "the row's maximum left out of the total": lambda x: exact(x) / (1 - exact(x).max(1, keepdims=True)),
}


@pytest.mark.parametrize("n", [32, 1024, 32768])
@pytest.mark.parametrize("name", list(FAULTS))
def test_faults_are_refused(name: str, n: int) -> None:
    x = (np.random.default_rng(n).normal(size=(3, n)) * 4).astype(F)
    x[:, 3] = -np.inf
    assert explains(x, exact(x).astype(F))
    assert not explains(x, FAULTS[name](x).astype(F))


def test_what_cannot_be_told_apart_is_not_refused() -> None:
    """A gain inside the total's interval is an error of the total; docs/reference/rounding.md says so."""
    x = np.random.default_rng(0).normal(size=(3, 4096)).astype(F)
    assert explains(x, (exact(x) * (1 + 1e-4)).astype(F))


def test_other_layouts_are_recognised() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, 6, 5)).astype(F)
    nets: tuple[Any, ...] = (
        lambda x: sg.softmax(x, 1),
        lambda x: sg.softmax(x, 0),
        lambda x: sg.permute(sg.softmax(x, 2), (2, 0, 1)),
        lambda x: sg.softmax(x.reshape((4, 30)), 1).reshape((4, 6, 5)),
    )
    for net in nets:
        graph = sg.trace(net, x.shape)
        y = graph(x.astype(float)).astype(F)
        for given, fine in ((y, True), ((y * (1 + 1e-5 * rng.random(y.shape))).astype(F), False)):
            found = shared_total(graph, [x], given, NODE)
            assert found is not None
            assert bool(found.explained.all()) == fine


def test_what_is_no_softmax_is_left_alone() -> None:
    x = np.ones((3, 4), F)
    nets: tuple[Any, ...] = (
        lambda x: sg.exp(x),
        lambda x: sg.softmax(x * 2.0),
        lambda x: sg.exp(x) / sg.sum(sg.exp(x), -1, keepdims=True),
        lambda x: sg.softmax(x) * 2.0,
        lambda x: (lambda e: e / sg.sum(e, 0, keepdims=True))(sg.exp(x - sg.amax(x, -1, keepdims=True))),
    )
    assert [shared_total(sg.trace(net, x.shape), [x], x, NODE) for net in nets] == [None] * len(nets)


def test_of_a_row_that_is_shut_out_nothing_is_said() -> None:
    """[M1]: NaN in most kernels, 0 in some."""
    x = np.array([[-np.inf, -np.inf], [0.0, 0.0]], F)
    for of_first in (np.nan, 0.0):
        assert explains(x, np.array([[of_first] * 2, [0.5, 0.5]], F))
        assert not explains(x, np.array([[of_first] * 2, [0.5, 0.50001]], F))


# --- planted mistakes -------------------------------------------------------------------------------------------------


def test_too_narrow_a_bound_of_sums_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "tree_error", lambda *given: statistics.tree_error(*given) * 0.8)
    assert not against_the_bound()[0]


@pytest.mark.parametrize(("name", "wrong"), [("FAR", -1e30), ("FAINT", 2.0**-30)])
def test_limits_that_are_too_wide_are_caught(name: str, wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where exponentials underflow shares are not compared: flushed ones are 0."""
    monkeypatch.setattr(layer, name, wrong)
    monkeypatch.setattr(layer, "FAINT", 0.0)
    assert not all(judged(seed) for seed in range(150))


def test_cells_without_an_error_of_exp_are_caught() -> None:
    meant = Arithmetic(execution="node", ulps={**NODE.ulps, "exp": 2.0})
    x = np.random.default_rng(0).normal(size=(3, 64)).astype(F)
    kernel = SoftmaxKernel(1)
    kernel.off = np.nan
    found = shared_total(graph_of(x), [x], kernel(x), meant)
    assert found is not None
    assert not found.explained.all()
