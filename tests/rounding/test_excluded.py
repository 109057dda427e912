"""Executions that are excluded by name: they leave the radius, so no statement may be read as if it held of them."""

from __future__ import annotations

import numpy as np

import specgrad as sg
from specgrad.rounding import radius

f32, U = np.float32, 2.0**-24


def test_products_of_one_value_are_not_added_one_by_one() -> None:
    """sum(W x) in one accumulator: 1,000 products of 10 values, of which all but the first are lost."""
    w, x = np.ones((100, 10), f32), np.full(10, U, f32)
    w[1:, 0], x[0] = U, 1
    report = radius(sg.trace(lambda v: sg.sum(sg.linear(w, None, v)), (10,)), x)
    total = f32(0)
    for product in (w * x).ravel():
        total = f32(total + product)
    assert abs(float(total) - float(report.outputs.value)) > 9 * float(report.outputs.radius)
    assert "each value counts once" in report.deployment["merged"]
