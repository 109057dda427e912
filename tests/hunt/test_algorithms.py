"""Algorithms that are no tree of sums: Kahan's keeps to the bound by a theorem of its own, Winograd's does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

import specgrad as sg
from claims import MODELS, arithmetic
from executor import Setting
from specgrad.rounding import Ball, radius


def radius_of(graph: sg.Graph, x: np.ndarray, model: str) -> Ball:
    return radius(graph, x, arithmetic=arithmetic(Setting(model=model))).outputs


# --- Kahan ------------------------------------------------------------------------------------------------------------


def kahan(x: np.ndarray) -> np.ndarray:
    """Compensated sums along the first axis, in x's format."""
    total, lost = x[0].copy(), np.zeros_like(x[0])
    for row in x[1:]:
        y = row - lost
        t = total + y
        lost = (t - total) - y
        total = t
    return total


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("count", [2, 3, 10, 1000, 20_000])
def test_kahan_sums_stay_within_the_bound(count: int, model: str) -> None:
    """abs(error) <= (2u + O(n u^2)) * sum abs(x) (Kahan; Knuth, volume 2, 4.2.2 C): less than any order of n terms."""
    rng, u = np.random.default_rng(count), 2.0**-24
    tastes = [rng.normal(size=(count, 8)), rng.choice([1.0, u, -u, 2.0**20, -(2.0**20)], (count, 8))]
    for x in (t.astype(np.float32) for t in tastes):
        y = kahan(x).astype(float)
        error = np.array([abs(math.fsum([*column, -total])) for column, total in zip(x.T, y, strict=True)])
        size = np.abs(x.astype(float)).sum(0)
        assert (error <= (2 * u + 4 * count * u * u) * size).all()
        assert radius_of(sg.trace(lambda x: sg.sum(x, 0), x.shape), x, model).contains(y).all()


# --- Winograd ---------------------------------------------------------------------------------------------------------


def winograd(g: np.ndarray, d: np.ndarray) -> np.ndarray:
    """F(2,3): two outputs of a convolution of three taps from four inputs, with four products, in float32."""
    half = np.float32(0.5)
    m1 = (d[0] - d[2]) * g[0]
    m2 = (d[1] + d[2]) * ((g[0] + g[1] + g[2]) * half)
    m3 = (d[2] - d[1]) * ((g[0] - g[1] + g[2]) * half)
    m4 = (d[1] - d[3]) * g[2]
    return np.array([m1 + m2 + m3, m2 - m3 - m4])


@pytest.mark.parametrize("model", MODELS)
def test_winograd_leaves_the_bound(model: str) -> None:
    """One large input that the kernel multiplies by 0: products with it cancel, and their roundings stay."""
    g, d = np.float32([0.7, 0.0, 0.9]), np.float32([0.3, 0.6, 2.0**20, 0.1])
    graph = sg.trace(lambda x: sg.conv(g.reshape(1, 1, 3), None, x), (1, 1, 4))
    ball = radius_of(graph, d.reshape(1, 1, 4), model)
    direct = np.array([[g[0] * d[k] + g[1] * d[k + 1] + g[2] * d[k + 2] for k in range(2)]])
    assert ball.contains(direct[None]).all()
    outside = np.abs(winograd(g, d) - ball.value.ravel()) / ball.radius.ravel()
    assert outside[1] > 1000


@pytest.mark.parametrize("model", MODELS)
def test_winograd_is_excluded_by_name(model: str) -> None:
    setting = Setting(model=model)
    assert "Winograd" in arithmetic(setting).deployment["algorithms"]
