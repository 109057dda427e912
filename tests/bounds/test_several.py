"""Answers of the kind of array that is asked with, at every layer by its name, for one box or for several."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import specgrad as sg
from hunt import layers_of
from specgrad.bounds import Box, crown, ibp, lipschitz

KINDS = {"numpy": (np.asarray, np.ndarray), "torch": (torch.tensor, torch.Tensor), "jax": (jnp.asarray, jnp.ndarray)}
METHODS = {"crown": crown, "ibp": ibp}


def network(x):
    w = np.float32([[[1, -1]], [[0.5, 2]]])
    return sg.linear(
        np.float32([[1, -2, 1, 0.5]]), None, sg.flatten(sg.max_pool(sg.relu(sg.conv(w, None, x)), (2,)), 1)
    )


GRAPH = sg.trace(network, (1, 1, 5))
LOW = np.random.default_rng(0).integers(-2, 3, (3, 1, 1, 5)).astype(np.float32)
HIGH = LOW + np.float32([0.5, 0, 1])[:, None, None, None]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_of_the_kind_that_is_given(method: str, kind: str) -> None:
    """float64 NumPy and PyTorch arrays, and JAX arrays that are never narrower than these."""
    make, array = KINDS[kind]
    reference = METHODS[method](GRAPH, Box(LOW[0], HIGH[0]))
    found = METHODS[method](GRAPH, Box(make(LOW[0]), make(HIGH[0])))
    assert all(isinstance(end, array) for b in found.layers.values() for end in (b.low, b.high))
    assert list(found.layers) == list(reference.layers)
    for name, box in found.layers.items():
        low, high = np.asarray(box.low), np.asarray(box.high)
        assert (low <= reference.layers[name].low + 1e-12 * (kind == "torch")).all()  # another order of summation
        assert (high >= reference.layers[name].high - 1e-12 * (kind == "torch")).all()
        np.testing.assert_allclose((low, high), (reference.layers[name].low, reference.layers[name].high), atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_every_layer_has_a_box_of_its_own_that_holds(method: str) -> None:
    """Names are the graph's; boxes have the layers' shapes, and hold what is computed there."""
    found = METHODS[method](GRAPH, Box(LOW[0], HIGH[0]))
    values = layers_of(GRAPH, HIGH[0])
    assert set(found.layers) == {n.name for n in GRAPH.nodes}
    for name in ("conv", "relu", "max_pool", "linear.contract"):
        assert found.layers[name].contains(values[name]).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_several_boxes_are_bounded_as_single_ones(method: str, kind: str) -> None:
    make, array = KINDS[kind]
    found = METHODS[method](GRAPH, Box(make(LOW), make(HIGH)))
    assert isinstance(found.outputs.low, array)
    assert found.outputs.shape == (3, 1, 1)
    for k in range(3):
        one = METHODS[method](GRAPH, Box(make(LOW[k]), make(HIGH[k])))
        np.testing.assert_array_equal(found.low[k], one.low)
        for name, box in one.layers.items():
            np.testing.assert_array_equal(found.layers[name].high[k], box.high)


def test_several_boxes_with_shared_arrays_and_rows() -> None:
    graph = sg.trace(lambda w, x: sg.linear(w, None, x), (2, 5), (5,))
    w, low = np.random.default_rng(1).normal(size=(2, 5)).astype(np.float32), np.zeros((3, 5))
    box = Box(low, low + np.array([[0.0], [1.0], [2.0]]))
    shared = crown(graph, w, box, objective=np.array([[1.0, -1.0]])).objective
    own = crown(graph, w, box, objective=np.array([[[1.0, -1.0]], [[2.0, -2.0]], [[0.0, 1.0]]])).objective
    assert shared.shape == own.shape == (3, 1)
    np.testing.assert_allclose(own.high[1], 2 * shared.high[1], rtol=1e-6)
    for k in range(3):
        np.testing.assert_allclose(shared.high[k], k * np.maximum(w[0] - w[1], 0).sum(), rtol=1e-5, atol=1e-5)


def test_lipschitz_constants_of_several_boxes() -> None:
    graph = sg.trace(lambda x: sg.sum(sg.relu(x)), (2,))
    found = lipschitz(graph, Box([[-2.0, -2.0], [-1.0, 1.0], [1.0, 1.0]], [[-1.0, -1.0], [1.0, 2.0], [2.0, 2.0]]))
    np.testing.assert_allclose(found, [0, 2**0.5, 2**0.5], atol=1e-6)


def test_boxes_of_different_numbers_are_refused() -> None:
    graph = sg.trace(lambda x, y: x + y, (2,), (2,))
    with pytest.raises(sg.ShapeError, match="either every Box or none has an axis of boxes in front, of one length"):
        ibp(graph, Box(np.zeros((3, 2)), np.ones((3, 2))), Box(np.zeros(2), np.ones(2)))
    with pytest.raises(sg.ShapeError, match=r"objective must have rows \(S, n\), or \(boxes, S, n\) of 3; got 2"):
        crown(sg.trace(lambda x: x + 1, (2,)), Box(np.zeros((3, 2)), np.ones((3, 2))), objective=np.ones((2, 1, 2)))
