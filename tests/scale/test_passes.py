"""Layers that read everything, in passes: sums and maxima over tiles first, then tiles; exact on integers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.scale import Plan, tiles

pytestmark = pytest.mark.usefixtures("little_optimised")

RNG = np.random.default_rng(0)
X = RNG.integers(-3, 4, (1, 4, 16, 8)).astype(float)  # 128 cells: their mean is exact
PARAMS = {"w": RNG.integers(-1, 2, (4, 4, 3, 3)).astype(float), "gate": np.ones((4, 4, 1, 1)), "fc": np.ones((3, 4))}


def conv(p: Any, x: Any) -> Any:
    return sg.conv(p["w"], None, x, padding=1)


def normalise(x: Any, axes: tuple[int, ...]) -> Any:
    """Without roots, so that exact numbers do: x less its mean, over its variance and 1."""
    centred = x - sg.mean(x, axes, keepdims=True)
    return centred / (sg.mean(centred * centred, axes, keepdims=True) + 1)


def gated(p: Any, x: Any) -> Any:
    """Squeeze and excite: a global average decides about channels."""
    return x * sg.relu(sg.conv(p["gate"], None, sg.global_avg_pool(x, rank=2)))


NETS = {
    "instance": (lambda p, x: conv(p, normalise(conv(p, x), (2, 3))), 2),
    "twice": (lambda p, x: normalise(conv(p, normalise(conv(p, x), (2, 3))), (1, 2, 3)), 4),
    "gate": (lambda p, x: conv(p, gated(p, conv(p, x))), 1),
    "maximum": (lambda p, x: conv(p, x) - sg.amax(x, (2, 3), keepdims=True), 1),
    "a column": (
        lambda p, x: conv(p, x) - sg.mean(sg.reshape(x[..., 0:1], (1, 4, 16)), 2, keepdims=True)[..., None],
        1,
    ),
    "few cells": (lambda p, x: conv(p, x) - sg.amax(sg.max_pool(conv(p, x), (8, 4)), (2, 3), keepdims=True), 1),
    "one column": (lambda p, x: x - sg.mean(x[..., 0:1], (2, 3), keepdims=True), 1),
    "classifier": (lambda p, x: sg.linear(p["fc"], None, sg.global_avg_pool(conv(p, x), rank=2, keepdims=False)), 1),
}


def graph_of(net: Any) -> sg.Graph:
    return sg.trace(net, {name: a.shape for name, a in PARAMS.items()}, X.shape)


@pytest.mark.parametrize("name", NETS)
def test_passes_are_exact_over_rationals(name: str) -> None:
    net, count = NETS[name]
    graph, x, p = graph_of(net), sg.exact(X), {name: sg.exact(a) for name, a in PARAMS.items()}
    with pytest.raises(sg.UnsupportedError, match="passes=True"):
        tiles(graph, 5)
    plan = tiles(graph, (7, 1) if name == "few cells" else (7, 5), passes=True)
    assert len(plan.passes) == count
    assert f"after {count} passes: " in repr(plan)
    expected = graph(p, x)
    out = np.full(expected.shape, None)
    for t in plan.measure(p, x):
        out[t.box] = t(p, x[t.reads])
    assert [Fraction(v) for v in out.flat] == [Fraction(v) for v in expected.flat]


@pytest.mark.parametrize("to", [torch.from_numpy, jnp.asarray])
def test_engines(to: Any) -> None:
    graph = graph_of(NETS["gate"][0])
    with jax.enable_x64(True):
        x, p, out = to(X), {name: to(a) for name, a in PARAMS.items()}, np.empty(X.shape)
        for t in tiles(graph, (8, 5), passes=True).measure(p, x):
            out[t.box] = t(p, x[t.reads])
        assert np.array_equal(out, graph(PARAMS, X))


def test_group_norm_in_float32() -> None:
    graph = graph_of(lambda p, x: conv(p, sg.group_norm(conv(p, x), 2)))
    x, p = torch.from_numpy(X).float(), {name: torch.from_numpy(a).float() for name, a in PARAMS.items()}
    out, plan = torch.empty(X.shape), tiles(graph, 6, passes=True)
    for t in plan.measure(p, x):
        out[t.box] = t(p, x[t.reads])
    assert len(plan.passes) == 2
    assert np.allclose(out.numpy(), graph(PARAMS, X), atol=1e-4)


def test_what_passes_cost() -> None:
    graph = graph_of(lambda p, x: normalise(conv(p, x), (2, 3)))
    plan = tiles(graph, (16, 8), passes=True)
    assert plan.multiply_adds == 3 * plan.multiply_adds_at_once  # two passes, then the tiles
    assert tiles(graph, memory=plan.worker_bytes(), passes=True).size == (16, 8)


def test_what_passes_cannot_do() -> None:
    graph = sg.trace(lambda x: sg.cumsum(x, 2), X.shape)
    with pytest.raises(sg.UnsupportedError, match="cumsum: cumsum reads everything, and is no sum or maximum over it"):
        tiles(graph, 4, passes=True)
    rows = sg.trace(lambda x: x - sg.mean(x, 3, keepdims=True), X.shape)  # along one of two axes
    with pytest.raises(sg.UnsupportedError, match="no pass has it"):
        tiles(rows, 4, passes=True)
    plan = tiles(graph_of(NETS["gate"][0]), 4, passes=True)
    with pytest.raises(sg.UnsupportedError, match=r"call plan\.measure with the same arguments first"):
        plan[0](PARAMS, X[plan[0].reads])
    with pytest.raises(sg.UnsupportedError, match="no gradients through passes"):
        plan.vjp(PARAMS, X, X)


def test_a_pass_that_forgets_a_tile_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(NETS["instance"][0])
    plan, out = tiles(graph, 8, passes=True), np.empty(X.shape)
    monkeypatch.setattr(Plan, "__iter__", lambda self: (self[k] for k in range(len(self) - self.is_pass)))
    for t in plan.measure(PARAMS, X):
        out[t.box] = t(PARAMS, X[t.reads])
    assert not np.allclose(out, graph(PARAMS, X))


def test_the_first_tile_alone_has_an_output_of_one_cell() -> None:
    """Nothing is clipped anywhere: but for that output all tiles are alike."""
    graph = sg.trace(lambda x: (x - sg.mean(x, (2, 3), keepdims=True), sg.mean(x, (2, 3))), X.shape)
    plan, results = tiles(graph, (4, 4), passes=True), graph(X)
    assert [count for _, count in plan.kinds] == [1, 1, 1, 1, 2, 2]
    for k, t in enumerate(plan.measure(X)):
        values, boxes = t(X[t.reads]), t.box
        assert np.array_equal(values[0], results[0][boxes[0]])
        assert np.array_equal(values[1], results[1] if k == 0 else results[1][:0, :0])
