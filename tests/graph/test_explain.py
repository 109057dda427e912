"""What one cell is computed from, in whichever direction its operator reads: against a search over all pairs."""

from __future__ import annotations

import numpy as np
import pytest

import specgrad as sg
from specgrad.graph.explain import explain

PAIRS = {(o, t, 2 * o + t - 1) for o in range(3) for t in range(3) if 0 <= 2 * o + t - 1 < 5}
"""Output, tap, input of windows of 3 at stride 2 over 5 cells with padding 1."""


def pool(x):
    return sg.avg_pool(x, (3,), stride=2, padding=1, count_include_pad=False)


@pytest.mark.parametrize("cell", range(5))
def test_the_gradient_of_an_average_reads_the_windows_that_read_the_cell(cell: int) -> None:
    graph = sg.vjp(sg.trace(pool, (1, 5)))
    found = explain(graph, (0, cell), layer="vjp(avg_pool)")
    assert {(t[0], o[0]) for t, o in found.reads} == {(t, o) for o, t, i in PAIRS if i == cell}
    inside = {o: sum(p[0] == o for p in PAIRS) for o in range(3)}
    numbers = sorted({inside[o] for o, _, i in PAIRS if i == cell})
    assert found.divisor == f"{', '.join(map(str, numbers))} (cells inside the input)"


def test_windows_that_do_not_overlap() -> None:
    """Cell 2 of 6 lies in the second window of 2, at its first tap."""
    graph = sg.vjp(sg.trace(lambda x: sg.avg_pool(x, (2,)), (1, 6)))
    assert explain(graph, (0, 2), layer="vjp(avg_pool)").reads == (((0,), (1,)),)


def test_what_is_read_is_what_moves_the_value() -> None:
    """By the operator itself: an input moves the cell exactly where it is named."""
    graph = sg.trace(lambda w, x: sg.conv_transpose(w, None, x, stride=2, padding=1), (1, 1, 3), (1, 4))
    w = np.ones((1, 1, 3))
    for cell in range(graph.nodes[graph.output_positions[0]].shape[1]):
        moved = [i for i in range(4) if graph(w, np.eye(4)[i : i + 1])[0, cell]]
        assert sorted(i[0] for _, i in explain(graph, (0, cell)).reads) == moved
