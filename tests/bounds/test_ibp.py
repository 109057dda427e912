"""Interval bounds: exact where intervals are, sound everywhere, on every kind of array."""

from __future__ import annotations

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.bounds import Box, ibp
from specgrad.rounding import Arithmetic


def test_box_around_contains_its_ends_exactly() -> None:
    x = np.float32([0.1, 1e8, -3.0])
    box = Box.around(x, 0.1)
    for low, high, v in zip(box.low, box.high, x, strict=True):
        assert Fraction(float(low)) <= Fraction(float(v)) - Fraction(0.1)
        assert Fraction(float(high)) >= Fraction(float(v)) + Fraction(0.1)


def test_box_refuses_by_name() -> None:
    with pytest.raises(sg.ShapeError, match=r"low must not exceed high, nor be NaN; got 2.0 and 1.0 at \(1,\)"):
        Box([0.0, 2.0], [1.0, 1.0])
    with pytest.raises(sg.ShapeError, match="one shape"):
        Box([0.0], [1.0, 1.0])


def test_intervals_of_a_layer_are_exact() -> None:
    """One linear layer: the interval ends are attained, so they are known in exact arithmetic."""
    w, b = np.array([[1.0, -2.0, 0.5]]), np.array([0.25])
    graph = sg.trace(lambda x: sg.linear(w, b, x), (3,))
    found = ibp(graph, Box([0.0, 1.0, -1.0], [1.0, 2.0, 3.0]), deployed=False).outputs
    np.testing.assert_allclose((found.low, found.high), ([-4.25], [0.75]), rtol=1e-10)
    assert found.low <= -4.25
    assert found.high >= 0.75


def test_relu_and_masks_are_centred() -> None:
    graph = sg.trace(lambda x: (sg.relu(x), sg.greater(x, 0), sg.abs(x), sg.sign(x)), (1,))
    relu, mask, size, sign = ibp(graph, Box([-1.0], [2.0])).outputs
    assert [(float(b.low[0]), float(b.high[0])) for b in (relu, mask, size, sign)] == [(0, 2), (0, 1), (0, 2), (-1, 1)]


def test_put_receives_between_nothing_and_everything() -> None:
    """The gradient of a maximum of two overlapping cells: each may receive 0 or 1."""
    graph = sg.grad(sg.trace(lambda x: sg.sum(sg.max_pool(x, (2,))), (2,)))
    found = ibp(graph, Box([0.0, 0.5], [1.0, 2.0])).outputs
    np.testing.assert_allclose((found.low, found.high), ([0, 0], [1, 1]), atol=1e-6)
    found = ibp(graph, Box([0.0, 1.5], [1.0, 2.0])).outputs
    np.testing.assert_array_equal((found.low, found.high), ([0, 1], [0, 1]))


def test_cells_beside_an_unbounded_one_keep_their_values() -> None:
    """x*c*c: the second cell overflows, the first is c. Found by the hunt of tolerances."""
    c = np.float32([2.0**95] * 2)
    graph = sg.trace(lambda x: x * c * c, (2,))
    x = np.float32([2.0**-95, 1.0])
    found = ibp(graph, Box(x, x), arithmetic=Arithmetic(execution="node")).outputs
    assert found.low[0] <= 2.0**95 <= found.high[0]
    assert found.high[0] - found.low[0] < 2.0**76
    assert found.high[1] == np.inf


def test_same_kind_out() -> None:
    graph = sg.trace(lambda x: sg.relu(x) / 3, (2,))
    low, high = np.float32([-1, 1]), np.float32([1, 2])
    reference = ibp(graph, Box(low, high)).outputs
    for make, kind in ((torch.tensor, torch.Tensor), (jnp.asarray, jnp.ndarray)):
        found = ibp(graph, Box(make(low), make(high))).outputs
        assert isinstance(found.low, kind)
        assert (np.asarray(found.low) <= reference.low).all()
        assert (np.asarray(found.high) >= reference.high).all()
        np.testing.assert_allclose(np.asarray(found.high), reference.high, rtol=1e-6)


def test_layers_by_name_and_poison() -> None:
    graph = sg.trace(lambda x: sg.clamp(sg.log(x), 0, 1), (1,))
    found = ibp(graph, Box([-1.0], [1.0]))
    assert found.unbounded == ("log", "clamp")
    assert set(found.layers) == {"x", "log", "clamp"}
    assert found.outputs.high[0] == np.inf


def test_deployed_is_wider_than_real() -> None:
    w = np.random.default_rng(0).normal(size=(4, 50)).astype(np.float32)
    graph = sg.trace(lambda x: sg.linear(w, None, x), (50,))
    box = Box.around(np.ones(50), 0.1)
    real, deployed = (ibp(graph, box, deployed=d).outputs for d in (False, True))
    assert (deployed.low < real.low).all()
    assert (deployed.high > real.high).all()
    assert (deployed.width - real.width).max() < 1e-3
