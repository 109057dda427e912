"""A stored branch beside one that is multiplied out, in a concatenation: within the radius."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.rounding import radius

f32, U = np.float32, 2.0**-24


@pytest.mark.parametrize("n", [10, 100])
def test_terms_are_added_onto_a_stored_branch(n: int) -> None:
    """A.x is stored; the terms of B.x are added onto it one by one, each losing half a digit."""
    a, b, c = np.ones((1, n), f32), np.ones((1, n), f32), np.ones((1, 2), f32)
    b[0, 0] = U
    x = np.full(n, U, f32)
    x[0] = 1

    def net(v: Any) -> Any:
        return sg.linear(c, None, sg.concat([sg.linear(a, None, v), sg.linear(b, None, v)], 0))

    report = radius(sg.trace(net, (n,)), x)
    stored = f32(0)
    for term in a[0] * x:
        stored = f32(stored + term)
    y = stored
    for term in b[0] * x:
        y = f32(y + term)
    off = abs(float(y) - float(report.outputs.value[0]))
    assert n * U < off <= float(report.outputs.radius[0])
