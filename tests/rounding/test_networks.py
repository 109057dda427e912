"""Whole networks and their derivatives: executions in other orders and formats stay within the radius."""

from __future__ import annotations

import numpy as np
import torch

import specgrad as sg
from specgrad.rounding import ULPS, Arithmetic, radius

SHAPES = {"w": (6, 2, 3, 3), "b": (6,), "v": (4, 6, 3, 3), "fc": (5, 4 * 2 * 2), "fb": (5,)}


def network(p, x):
    x = sg.max_pool(sg.relu(sg.conv(p["w"], p["b"], x, padding=1)), (2, 2))
    x = sg.avg_pool(sg.tanh(sg.conv(p["v"], None, x, padding=1)), (3, 3), stride=3)
    return sg.log_softmax(sg.linear(p["fc"], p["fb"], sg.flatten(x, 1)), 1)


def drawn(seed: int):
    draw = np.random.default_rng(seed).normal
    params = {k: draw(size=s).astype(np.float32) / 3 for k, s in SHAPES.items()}
    return params, draw(size=(2, 2, 12, 12)).astype(np.float32), draw(size=(2, 5)).astype(np.float32)


def tensors(tree):
    return sg.tree.transform(lambda _, a: torch.from_numpy(np.array(a)), tree)


def test_network_and_gradient_on_torch_and_numpy() -> None:
    params, x, gy = drawn(0)
    graph = sg.vjp(sg.trace(network, SHAPES, x.shape))
    for name, run in (("numpy", graph), ("torch", lambda *a: sg.compile(graph, "torch")(*tensors(a)))):
        report = radius(graph, params, x, gy, arithmetic=Arithmetic(ulps=ULPS[name]))
        assert not report.unbounded
        got = sg.tree.leaves(run(params, x, gy))
        for ball, y in zip(sg.tree.leaves(report.outputs), got, strict=True):
            error = np.abs(ball.value - np.asarray(y, dtype=float))
            assert (error <= ball.radius).all(), name
            assert ball.radius.max() < 1e-2 * (1 + np.abs(ball.value).max())


def test_backends_agree() -> None:
    params, x, gy = drawn(1)
    graph = sg.vjp(sg.trace(network, SHAPES, x.shape))
    reports = [radius(graph, params, x, gy, backend=b, keep=True) for b in ("numpy", "torch")]
    for name, ball in reports[0].nodes.items():
        np.testing.assert_allclose(ball.radius, reports[1].nodes[name].radius, rtol=1e-6, atol=1e-40)
    assert reports[0].undecided == reports[1].undecided
