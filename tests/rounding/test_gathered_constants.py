"""Constants that a gather reads by exact positions: only the entries that are read play a part."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import specgrad as sg
from specgrad.graph.graph import Graph
from specgrad.rounding import radius

THIRDS = np.array([[Fraction(k + j, 3) for k in range(3)] for j in range(7)], dtype=object)
"""Numbers that no float holds: their balls have a radius."""


def gathered(table: np.ndarray, axis: int) -> Graph:
    def read(i: sg.Var, y: sg.Var) -> sg.Var:
        return sg.gather(i.builder.constant(table), i, axis=axis) * y

    return sg.trace(read, sg.Index((2, 2)), ())


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("positions", [[[2, 0], [2, 2]], [[1, 2], [2, 1]], [[1, -1], [0, -3]]])
def test_the_values_and_radii_are_those_of_the_whole_table(axis: int, positions: list[list[int]]) -> None:
    i = np.array(positions)
    report = radius(gathered(THIRDS, axis), i, 1.5)
    exact = np.take(THIRDS, i, axis) * Fraction(3, 2)
    value, allowed = report.outputs.value, report.outputs.radius
    assert (np.abs(exact - np.vectorize(Fraction, otypes=[object])(value)) <= allowed).all()
    assert (allowed > 0).any()
    assert (allowed <= 1e-6).all()


def test_an_entry_that_is_not_read_widens_nothing() -> None:
    table = np.full((5, 2), 0.5)
    table[3] = 3e38
    i = np.array([[0, 1], [4, 2]])
    wide, narrow = (radius(gathered(t, 0), i, 1 / 3).outputs.radius for t in (table, np.full((5, 2), 0.5)))
    assert (wide == narrow).all()
