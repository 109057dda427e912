"""Bounds on gradients and Lipschitz constants, against gradients that are known or sampled."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.bounds import Box, crown, gradient_box, ibp, lipschitz

SHAPES = {"w": (3, 1, 3, 3), "v": (4, 3, 3, 3), "f": (2, 4 * 9)}


def network(p, x):
    x = sg.max_pool(sg.conv(p["w"], None, x), (2, 2))
    return sg.linear(p["f"], None, sg.flatten(sg.conv(p["v"], None, x, padding=1), 1))


def drawn():
    draw = np.random.default_rng(0).normal
    return {k: (draw(size=s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for k, s in SHAPES.items()}, draw(
        size=(1, 1, 8, 8)
    )


def test_gradient_of_a_maximum_by_hand() -> None:
    """max(3a, b): the gradient is (3, 0) or (0, 1), and known where one of them wins for certain."""
    graph = sg.trace(lambda x: sg.sum(sg.max_pool(x * np.array([3.0, 1.0]), (2,))), (2,))
    (found,) = gradient_box(graph, Box([0.0, 0.0], [1.0, 1.0]), cotangent=1.0)
    np.testing.assert_allclose((found.low, found.high), ([0, 0], [3, 1]), atol=1e-9)
    (found,) = gradient_box(graph, Box([0.5, 0.0], [1.0, 1.0]), cotangent=1.0)
    np.testing.assert_allclose((found.low, found.high), ([3, 0], [3, 0]), atol=1e-9)


@pytest.mark.parametrize(("relu", "bias", "decided"), [(False, 0, True), (True, 10, True), (True, 0, False)])
def test_gaps_decide_a_winner(relu: bool, bias: float, decided: bool) -> None:
    """max(a + b, b + c) with a > c: the ranges overlap, yet the first wins; behind a relu only where it is positive."""
    w, b = np.ones((1, 1, 2)), np.array([bias])
    cells = lambda x: sg.relu(sg.conv(w, b, x)) if relu else sg.conv(w, b, x)
    graph = sg.trace(lambda x: sg.sum(sg.max_pool(cells(x), (2,))), (1, 1, 3))
    (found,) = gradient_box(graph, Box([[[2.0, -5.0, 0.0]]], [[[2.5, 5.0, 1.0]]]), cotangent=1.0)
    if decided:
        np.testing.assert_allclose((found.low, found.high), [[[[1, 1, 0]]]] * 2, atol=1e-9)
    else:
        np.testing.assert_allclose((found.low[0, 0, 0], found.high[0, 0, 2]), (0, 1), atol=1e-9)


def test_monotonicity_is_certified() -> None:
    """A gradient box without a negative number proves that the network never decreases."""
    w = np.array([[1.0, 2.0], [0.5, 1.0]])
    graph = sg.trace(lambda x: sg.sum(sg.sigmoid(sg.linear(w, None, sg.tanh(sg.linear(w, None, x))))), (2,))
    (found,) = gradient_box(graph, Box([-1.0, -1.0], [1.0, 1.0]), cotangent=1.0)
    assert (found.low >= 0).all()


@pytest.mark.parametrize("method", ["crown", "ibp"])
def test_gradients_of_a_network_lie_in_the_box(method: str) -> None:
    p, x = drawn()
    graph = sg.trace(network, SHAPES, x.shape)
    box = Box.around(x, 0.1)
    (found,) = gradient_box(graph, p, box, cotangent=[1.0, 0.0], method=method)
    assert all(found.contains(g).all() for g in sampled_gradients(graph, p, box, 100))


def sampled_gradients(graph, p, box, count):
    rng = np.random.default_rng(1)
    weights = {k: torch.from_numpy(v).double() for k, v in p.items()}
    for _ in range(count):
        z = torch.tensor(box.low + rng.integers(0, 2, box.shape) * (box.high - box.low), requires_grad=True)
        (g,) = torch.autograd.grad(graph(weights, z)[0, 0], z)
        yield g.numpy()


def test_lipschitz_constant() -> None:
    p, x = drawn()
    graph = sg.trace(network, SHAPES, x.shape)
    box = Box.around(x, 0.05)
    for norm, dual in ((2, 2), (np.inf, 1), (1, np.inf)):
        constant = lipschitz(graph, p, box, norm=norm)[0, 0]
        largest = max(np.linalg.norm(g.ravel(), dual) for g in sampled_gradients(graph, p, box, 30))
        assert largest <= constant <= 4 * largest
    with pytest.raises(sg.ParameterError, match="norm must be 1, 2 or inf; got 3"):
        lipschitz(graph, p, box, norm=3)


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e-310])
def test_a_norm_of_small_gradients_is_not_short(scale: float) -> None:
    """The gradient is (3c, 4c): its norm is 5c, however small the squares are."""
    slopes = np.array([3 * scale, 4 * scale])
    constant = lipschitz(sg.trace(lambda x: sg.sum(x * slopes), (2,)), Box([0.0, 0.0], [1.0, 1.0])).item()
    exact = sum(Fraction(s) ** 2 for s in slopes.tolist())
    assert exact <= Fraction(constant) ** 2 <= exact * (1 + Fraction(1, 2**38)) + Fraction(1, 2**1000) ** 2


def test_crown_is_narrower_than_intervals_on_gradients() -> None:
    p, x = drawn()
    graph = sg.vjp(sg.trace(network, SHAPES, x.shape), "x")
    args = (p, Box.around(x, 0.1), np.array([[1.0, 0.0]]))
    wide, narrow = ibp(graph, *args, deployed=False).outputs[1], crown(graph, *args, deployed=False).outputs[1]
    assert narrow.width.sum() < 0.9 * wide.width.sum()
