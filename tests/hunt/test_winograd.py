"""Winograd's convolutions stay within their bound, in any order, wherever tiles begin; planted mistakes do not."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import specgrad as sg
import tiles
from slices import counts
from specgrad.rounding import Arithmetic, Ball, radius, winograd
from specgrad.rounding.arithmetic_variants import Winograd
from specgrad.rounding.winograd import TILES, WinogradTiles

EVERY = [t for ts in TILES.values() for t in ts]
NODE = Arithmetic(execution="node")


def data(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    x = rng.normal(size=shape)
    if kind == "spikes":
        x.reshape(-1)[rng.choice(x.size, max(1, x.size // 40), replace=False)] *= 2.0**20
    if kind == "alone":
        x = np.where(rng.random(shape) < 1.5 / shape[-1] ** 2, x, 0.0)
    if kind == "wide":
        x = np.sign(x) * np.exp2(rng.uniform(-12, 12, shape))
    if kind == "positive":
        x = np.abs(x)
    if kind == "signs":
        x = np.where(np.indices(shape).sum(0) % 2 == 0, 1.0, -1.0) * rng.uniform(1, 2, shape)
    return x.astype(np.float32)


KINDS = ("gaussian", "spikes", "alone", "wide", "positive", "signs")


def ball_of(x: np.ndarray, w: np.ndarray, pads, form: WinogradTiles) -> Ball:
    graph = sg.trace(lambda w, x: sg.conv(w, None, x, padding=pads), w, x)
    return radius(graph, w, x, arithmetic=NODE, way=Winograd(form)).outputs


def ratio(seed: int, form: WinogradTiles) -> float:
    """The largest error over its bound in one run."""
    rng = np.random.default_rng(seed)
    channels, size = int(rng.integers(1, 5)), [int(n) for n in rng.integers(3, 12, 2)]
    pads = tuple((int(a), int(b)) for a, b in rng.integers(0, 2, (2, 2)))
    x, w = data(rng, rng.choice(KINDS), (channels, *size)), data(rng, rng.choice(KINDS), (2, channels, 3, 3))
    begin = tuple(int(n) for n in rng.integers(0, form.outputs, 2))
    got = tiles.winograd(x, w, pads, form.outputs, form.points, begin, rng)
    ball = ball_of(x, w, pads, form)
    assert got.dtype == np.float32
    np.testing.assert_allclose(
        ball.value, tiles.exact(x, w, pads), rtol=1e-12, atol=1e-9 * np.abs(w).max() * np.abs(x).max()
    )
    with np.errstate(all="ignore"):
        return float(np.nan_to_num(np.abs(got - tiles.exact(x, w, pads)) / ball.radius).max())


@pytest.mark.parametrize("form", EVERY, ids=lambda t: f"F({t.outputs},3) {t.name}")
def test_the_matrices_are_exact(form: WinogradTiles) -> None:
    """Against the hunter's own, and the algorithm with them against the sum of products, in rationals."""
    a, g, b = tiles.matrices(form.outputs, form.points)
    assert [list(r) for r in form.result] == a
    assert [list(r) for r in form.weights] == g
    assert [list(r) for r in form.data] == b
    for i, k in itertools.product(range(form.cells), range(3)):  # every unit vector: the algorithm is bilinear
        y = [sum(a[p][o] * g[p][k] * b[p][i] for p in range(form.cells)) for o in range(form.outputs)]
        assert y == [Fraction(i == o + k) for o in range(form.outputs)]


@pytest.mark.parametrize("form", EVERY, ids=lambda t: f"F({t.outputs},3) {t.name}")
def test_no_execution_leaves_the_bound(form: WinogradTiles) -> None:
    assert max(ratio(seed, form) for seed in range(12)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("form", EVERY, ids=lambda t: f"F({t.outputs},3) {t.name}")
def test_no_execution_of_hundreds_leaves_the_bound(form: WinogradTiles) -> None:
    assert max(ratio(seed, form) for seed in range(100, 400)) <= 1


@pytest.mark.parametrize("form", EVERY, ids=lambda t: f"F({t.outputs},3) {t.name}")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("count", counts(20, 400))
def test_no_term_meets_more_roundings(form: WinogradTiles, channels: int, count: int) -> None:
    """Counted in random orders; some order comes close, so that a smaller R would be caught."""
    rng = np.random.default_rng(0)
    met = max(tiles.counted(form.outputs, form.points, channels, rng) for _ in range(count))
    assert form.roundings(channels) - 6 <= met <= form.roundings(channels)


def test_too_few_roundings_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: coefficients such as 1/6 rounded for nothing."""
    monkeypatch.setattr(winograd, "_roundings", lambda row: len([a for a in row if a]) - 1)
    caught = []
    for form in EVERY[1:]:
        rng = np.random.default_rng(0)
        met = max(tiles.counted(form.outputs, form.points, 1, rng) for _ in range(40))
        caught.append(met > form.roundings(1))
    assert all(caught)


def test_tiles_that_begin_at_every_output_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: the bound of a cell at the beginning of its tile, for all cells."""
    largest = winograd._largest_over_places

    def first_place(a: np.ndarray, m: np.ndarray, high: int, wide: int) -> np.ndarray:
        beyond = a.shape[1] - 1
        return largest(a[:, :1], m[:, :, :, beyond:, beyond:], high, wide)

    monkeypatch.setattr(winograd, "_largest_over_places", first_place)
    assert max(ratio(seed, form) for form in EVERY[1:2] for seed in range(12)) > 1
