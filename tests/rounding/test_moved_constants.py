"""Constants that are moved before they are read: exact ones stay exact, rounded ones keep their radius."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import specgrad as sg
from specgrad.rounding import radius

MOVES = {
    "transposed": lambda c: sg.permute(c, [1, 0]),
    "in another shape": lambda c: sg.reshape(c, (3, 2)),
    "negated": lambda c: sg.neg(c),
}


def allowed(cells: np.ndarray, move: str) -> tuple[np.ndarray, np.ndarray]:
    """The value and radius of the moved constant times 1."""
    report = radius(sg.trace(lambda x: MOVES[move](x.builder.constant(cells)) * x, ()), 1.0)
    return report.outputs.value, report.outputs.radius


@pytest.mark.parametrize("move", MOVES)
def test_numbers_that_no_float_holds_keep_their_radius(move: str) -> None:
    cells = np.array([[Fraction(k + j, 3) for k in range(3)] for j in (1, 4)], dtype=object)
    value, most = allowed(cells, move)
    exact = {"transposed": cells.T, "in another shape": cells.reshape(3, 2), "negated": -cells}[move]
    off = np.abs(exact - np.vectorize(Fraction, otypes=[object])(np.float32(value).astype(float)))
    assert (off <= most).all()
    assert (most[off > 0] > 0).all()
    assert (off > 0).any()


@pytest.mark.parametrize("move", MOVES)
def test_numbers_that_float32_holds_stay_exact(move: str) -> None:
    cells = np.array([[np.inf, -0.0, 2.5], [1e-30, 3e38, -1]], np.float32)
    report = radius(sg.trace(lambda x: (MOVES[move](x.builder.constant(cells)), x), ()), 1.0)
    assert not report.outputs[0].radius.any()
