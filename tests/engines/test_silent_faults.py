"""Faults that were silent: each test is named after what was wrong."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import specgrad as sg

# --- powers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [np.zeros(1), np.array([Fraction(0)], dtype=object)], ids=["float", "exact"])
def test_third_derivative_of_a_square_at_zero(x: Any) -> None:
    g = sg.trace(lambda x: sg.sum(sg.power(x, 2)), (1,))
    values = []
    for _ in range(3):
        derivative = sg.grad(g, "x")
        values.append(derivative(x)[0])
        g = sg.trace(lambda x, f=derivative: sg.sum(f(x)), (1,))
    assert values == [0, 2, 0]


@pytest.mark.parametrize("p", [2, 2.5, 3, 4])
def test_lp_pool_gradient_of_an_all_zero_window(p: Any) -> None:
    data = np.array([[[0.0, 0.0, 1.0, 2.0]]])
    x = torch.tensor(data, requires_grad=True)
    F.lp_pool1d(x, float(p), 2).sum().backward()
    expected, x.grad = x.grad.numpy(), None
    assert expected[0, 0, 0] == 0
    sg.lp_pool(x, (2,), p=p).sum().backward()
    g = sg.vjp(sg.trace(lambda x: sg.lp_pool(x, (2,), p=p), data.shape), "x")
    found = [x.grad.numpy(), g(data, np.ones((1, 1, 2)))[1], jax.grad(lambda x: sg.lp_pool(x, (2,), p=p).sum())(data)]
    for gradient in found:
        assert np.allclose(gradient, expected, rtol=1e-5)


def test_lp_pool_of_a_negative_sum_stays_nan() -> None:
    assert np.isnan(sg.lp_pool(np.array([-1.0, -2.0]), (2,), p=3)).all()


# --- integers -----------------------------------------------------------------------------------------------------

MAKERS = {
    "torch": lambda values, kind: torch.tensor(values, dtype=getattr(torch, kind)),
    "jax": lambda values, kind: jax.numpy.asarray(values, dtype=kind),
}
CALLS = {
    "avg_pool": lambda x: sg.avg_pool(x, (3,)),
    "max_pool": lambda x: sg.max_pool(x, (3,)),
    "add": lambda x: sg.add(x, x),
    "add one": lambda x: sg.add(x, 1),
    "sum": sg.sum,
    "mean": sg.mean,
    "relu": sg.relu,
    "linear": lambda x: sg.linear(sg.reshape(x, (1, 3)), None, x),
    "conv": lambda x: sg.conv(sg.reshape(x, (1, 1, 3)), None, sg.reshape(x, (1, 3))),
}


@pytest.mark.parametrize("kind", ["uint8", "int32", "bool"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("engine", MAKERS)
def test_integers_are_exact_or_refused(engine: str, call: str, kind: str) -> None:
    values = np.array([1, 0, 1] if kind == "bool" else [100, 200, 201])
    text = rf"\[P6\]: .* has dtype .*{kind}, which wraps and truncates on {engine}; pass floats, or NumPy integers"
    with pytest.raises(sg.errors.ScalarError, match=text):
        CALLS[call](MAKERS[engine](values, kind))
    exact = CALLS[call](values.astype(kind))
    assert (exact == CALLS[call](sg.exact(values))).all()


@pytest.mark.parametrize("engine", MAKERS)
def test_compiled_graphs_refuse_integers(engine: str) -> None:
    f = sg.compile(sg.trace(lambda x: sg.avg_pool(x, (3,)), (3,)), engine)
    with pytest.raises(sg.errors.ScalarError, match=r"graph \[P6\]: input x has dtype"):
        f(MAKERS[engine]([1, 2, 4], "int32"))
    assert float(f(MAKERS[engine]([1, 2, 4], "float32"))[0]) == pytest.approx(7 / 3)


@pytest.mark.parametrize("engine", MAKERS)
def test_positions_labels_and_masks_stay_integers(engine: str) -> None:
    make = MAKERS[engine]
    x, labels = make([[1.0, 3.0, 2.0]], "float32"), make([1], "int32" if engine == "jax" else "int64")
    _, index = sg.max_pool(x, (2,), stride=1, return_indices=True)
    assert np.array_equal(np.asarray(sg.reshape(index, (2,))), [1, 1])
    assert np.array_equal(np.asarray(sg.select(make([[True, False, True]], "bool"), x, 7.0)), [[1, 7, 2]])
    assert float(sg.cross_entropy(x, labels)) == pytest.approx(np.log(np.exp([-2, 0, -1]).sum()), rel=1e-6)
