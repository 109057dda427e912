"""quantize: what passes at the ends of its range, by hand."""

from __future__ import annotations

import numpy as np

import specgrad as sg


def test_the_zero_point_passes_at_both_ends() -> None:
    """[K1] q = round(x/scale) + zero at low and at high passes, as clamp's ends do; beyond them nothing does."""
    x = np.array([-3.0, -2.0, 0.0, 2.0, 3.0])
    graph = sg.trace(lambda zero: sg.quantize(x, 1.0, zero, low=-2, high=2), (5,))
    assert graph(np.zeros(5)).tolist() == [-2, -2, 0, 2, 2]
    passed = sg.vjp(graph)(np.zeros(5), np.ones(5))[-1]
    assert np.asarray(passed).tolist() == [0, 1, 1, 1, 0]
    tangent = sg.jvp(graph)(np.zeros(5), np.ones(5))[-1]
    assert np.asarray(tangent).tolist() == [0, 1, 1, 1, 0]
