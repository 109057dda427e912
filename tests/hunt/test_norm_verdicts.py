"""Judging normalisations by shared unknowns: no kernel of a class is refused by its class, and small faults are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from norm_kernels import FORMS, NormKernel, rounding_up, rows, swallowed_squares
from specgrad.check.verdicts import shared_unknowns as judging
from specgrad.check.verdicts.shared_unknowns import shared_unknowns
from specgrad.graph.graph import Graph
from specgrad.rounding.layers import normalisation
from test_norms import EPS, MEANS, SIZES, layer, rms


def explains(graph: Graph, given: list[np.ndarray], y: np.ndarray, passes: Any = ("two passes",)) -> bool:
    found = shared_unknowns(graph, given, y, passes)
    assert found
    return bool(found[-1].explained.all())


def judged(seed: int, one_pass: bool = False) -> bool:
    """Whether a drawn kernel on drawn rows is explained by its own class."""
    rng = np.random.default_rng(seed)
    n, k = SIZES[seed % 5], MEANS[seed // 5 % 5]
    kernel, x = NormKernel(seed), rows(rng, n, k)
    g, b = (rng.normal(size=n).astype(np.float32) * (rng.random(n) < 0.9) for _ in range(2))
    affine, centred = rng.random() < 0.6, one_pass or rng.random() < 0.75
    graph = (layer if centred else rms)(n, len(x), affine)
    s = kernel.one_pass(x) if one_pass else kernel.two_pass(x) if centred else kernel.mean_square(x)
    g, b = g.astype(np.float32), b.astype(np.float32)
    y = kernel.row(lambda _: s, x, EPS, g if affine else None, b if affine and centred else None)
    return explains(graph, [x, g, b][: len(graph.input_positions)], y, ("one pass",) if one_pass else ("two passes",))


def test_no_kernel_is_refused_by_its_class() -> None:
    assert all(judged(seed) for seed in range(75))
    assert all(judged(seed, one_pass=True) for seed in range(25))


@pytest.mark.slow
def test_long_hunt_of_norm_verdicts() -> None:
    assert all(judged(seed) for seed in range(1000, 5000))
    assert all(judged(seed, one_pass=True) for seed in range(5000, 6000))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "make", [lambda: rounding_up(np.random.default_rng(0), 768, 300.0), lambda: swallowed_squares(4096)]
)
def test_rows_made_against_the_bound_are_explained(make: Callable[[], np.ndarray], form: str) -> None:
    x, kernel = make(), NormKernel(0)
    kernel.tree, kernel.order, kernel.fma, kernel.reciprocal = "chain", "given", False, False
    y = kernel.cells(x, kernel.two_pass(x), EPS, None, None, form)
    assert explains(layer(x.shape[1], 1, False), [x], y)


# --- faults -----------------------------------------------------------------------------------------------------------


def exact(x: np.ndarray, eps: float = EPS, less: int = 0) -> np.ndarray:
    """In float64, by NumPy."""
    w = x.astype(float)
    c = w - w.mean(1, keepdims=True)
    return np.asarray(c / np.sqrt((c * c).sum(1, keepdims=True) / (x.shape[1] - less) + eps))


def one_cell(y: np.ndarray, by: float) -> np.ndarray:
    y = y.copy()
    y[0, 3] *= 1 + by
    return y


FAULTS: dict[str, tuple[int, float, Callable[[np.ndarray], np.ndarray]]] = {
    "gain 3e-5 at mean/std 0": (768, 0.0, lambda x: exact(x) * (1 + 3e-5)),
    "gain 3e-5 at mean/std 30": (768, 30.0, lambda x: exact(x) * (1 + 3e-5)),
    "gain 1e-4 at mean/std 300": (768, 300.0, lambda x: exact(x) * (1 + 1e-4)),
    "gain 1e-5 of 64": (64, 30.0, lambda x: exact(x) * (1 + 1e-5)),
    "shift 1e-3": (768, 30.0, lambda x: exact(x) + 1e-3),
    "ddof 1 of 64": (64, 30.0, lambda x: exact(x, less=1)),
    "ddof 1 of 768": (768, 300.0, lambda x: exact(x, less=1)),
    "ddof 1 of 4,096": (4096, 30.0, lambda x: exact(x, less=1)),
    "one cell by 1e-4": (768, 30.0, lambda x: one_cell(exact(x), 1e-4)),
    "stored as float16": (768, 30.0, lambda x: exact(x).astype(np.float16)),
    "no eps": (768, 0.0, lambda x: exact(x * 2.0**-4, eps=0.0)),
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_faults_are_refused(name: str) -> None:
    n, k, fault = FAULTS[name]
    x = (np.random.default_rng(3).normal(size=(4, n)) + k).astype(np.float32)
    given = [x * np.float32(2.0**-4)] if name == "no eps" else [x]
    assert explains(layer(n, 4, False), given, exact(given[0]).astype(np.float32))
    assert not explains(layer(n, 4, False), given, fault(x).astype(np.float32))


def test_what_cannot_be_told_apart_is_not_refused() -> None:
    """A gain inside the variance's interval is an error of the variance; docs/reference/rounding.md says so."""
    x = np.random.default_rng(3).normal(size=(4, 4096)).astype(np.float32)
    assert explains(layer(4096, 4, False), [x], (exact(x) * (1 + 5e-5)).astype(np.float32))


# --- what is recognised -----------------------------------------------------------------------------------------------


def spellings() -> dict[str, Graph]:
    def by_hand(x: Any, divide: Callable[[Any, Any], Any]) -> Any:
        c = x - x.mean(1, keepdims=True)
        return divide(c, (c**2).mean(1, keepdims=True) + EPS)

    return {
        "quotient": sg.trace(lambda x: by_hand(x, lambda c, v: c / sg.sqrt(v)), (3, 16)),
        "reciprocal": sg.trace(lambda x: by_hand(x, lambda c, v: c * (1 / sg.sqrt(v))), (3, 16)),
        "power": sg.trace(lambda x: by_hand(x, lambda c, v: v**-0.5 * c), (3, 16)),
        "groups": sg.trace(lambda x: sg.group_norm(x.reshape((1, 3, 16)), 3), (3, 16)),
        "batch": sg.trace(
            lambda x: sg.permute(by_batch(sg.permute(x.reshape((3, 2, 8)), (1, 0, 2))), (1, 0, 2)), (3, 16)
        ),
    }


def by_batch(x: Any) -> Any:
    """Batch normalisation in training: statistics of every channel over the batch and its cells."""
    c = x - x.mean((0, 2), keepdims=True)
    return c / sg.sqrt((c * c).mean((0, 2), keepdims=True) + EPS)


@pytest.mark.parametrize("name", list(spellings()))
def test_spellings_are_recognised(name: str) -> None:
    x = (np.random.default_rng(4).normal(size=(3, 16)) + 3).astype(np.float32)
    graph = spellings()[name]
    y = exact(x).astype(np.float32).reshape(graph.nodes[-1].shape)
    assert explains(graph, [x], y)
    assert not explains(graph, [x], y * np.float32(1.00001))


def test_what_is_no_normalisation_is_left_alone() -> None:
    x = np.ones((3, 16), np.float32)
    others = (
        lambda x: x - x.mean(1, keepdims=True),
        lambda x: (x - x.mean(0, keepdims=True)) / sg.sqrt((x * x).mean(1, keepdims=True) + EPS),
        lambda x: sg.relu(sg.layer_norm(x, (16,))),
        lambda x: sg.layer_norm(x * 2.0, (16,)),
        lambda x: x / sg.sqrt((x * x).mean(1, keepdims=True) - 1e-5),
    )
    for net in others:
        assert shared_unknowns(sg.trace(net, (3, 16)), [x], x) == []


# --- planted mistakes -------------------------------------------------------------------------------------------------


def test_too_narrow_a_bound_of_sums_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = normalisation.tree_error
    monkeypatch.setattr(normalisation, "tree_error", lambda *given: right(*given) * 0.5)
    with pytest.raises(AssertionError):
        test_rows_made_against_the_bound_are_explained(lambda: swallowed_squares(4096), "centred")


@pytest.mark.parametrize(("name", "wrong"), [("growth", lambda *_: 0.0), ("OWN", -1.0)])
def test_cells_without_roundings_of_their_own_are_caught(
    name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, name, wrong)
    assert not all(judged(seed) for seed in range(25))


def test_a_cut_that_goes_too_far_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "STEP", 1.5)
    assert not all(judged(seed) for seed in range(75))
