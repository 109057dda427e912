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
