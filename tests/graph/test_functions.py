"""jvp, vjp and grad of plain functions: traced on the shapes of each call."""

from __future__ import annotations

import numpy as np
import pytest

import specgrad as sg

pytestmark = pytest.mark.quick

X, DX = np.array([2.0, 3.0]), np.array([1.0, 10.0])


def product(x, y):
    return x[0] * x[1] * y


def test_values_by_hand() -> None:
    """x0*x1*y at (2, 3), y = 5."""
    y = np.array(5.0)
    assert [float(v) for v in sg.jvp(product)(X, y, DX, np.array(0.0))] == [30.0, 115.0]  # 3*5 + 2*5*10
    value, gx, gy = sg.vjp(product)(X, y, np.array(1.0))
    assert (value, gx.tolist(), gy) == (30.0, [15.0, 10.0], 6.0)
    assert sg.grad(product, "x")(X, y).tolist() == [15.0, 10.0]
    value, gradient = sg.grad(product, 1, value=True)(X, 5.0)
    assert (value, gradient) == (30.0, 6.0)


def test_structures_and_other_shapes() -> None:
    loss = sg.grad(lambda p, x: sg.sum(p["w"] * x), "p")
    for n in (2, 3):
        assert loss({"w": np.ones(n)}, np.arange(float(n)))["w"].tolist() == list(range(n))


def test_they_compose() -> None:
    """d/dx (3 x^2) = 6x: a derivative of a function is a function of the graph's own arguments."""
    cube = sg.trace(lambda x: sg.sum(x * x * x), (2,))
    assert sg.jvp(sg.grad(cube))(X, DX)[1].tolist() == [12.0, 180.0]
    assert sg.jvp(sg.grad(lambda x: sg.sum(x * x * x)))(X, DX)[1].tolist() == [12.0, 180.0]
    chosen = sg.grad(lambda x, i: sg.sum(sg.take(x * x, i, rank=1)), "x")
    assert sg.jvp(chosen, "x")(X, np.array([1, 1]), DX)[1].tolist() == [0.0, 40.0]  # 2 * x1^2


@pytest.mark.parametrize("transform", [sg.jvp, sg.vjp, sg.grad], ids=["jvp", "vjp", "grad"])
def test_what_cannot_be_counted_says_what_to_write(transform) -> None:
    name = transform.__name__
    for thing in (3, lambda *x: x[0], lambda x, y=1: x, lambda: 1, lambda x, *, y: x):
        with pytest.raises(sg.SpecgradError, match=rf"{name}: needs a graph, or .*; write {name}\(trace\(f, "):
            transform(thing)
