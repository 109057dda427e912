"""The rules of an operator as graphs: values by hand, and the names that they record."""

from __future__ import annotations

import numpy as np
import pytest

import specgrad as sg
from specgrad.window import strided

pytestmark = pytest.mark.quick


def test_the_rules_of_max_pool() -> None:
    """Both follow the first winner of [1, 3, 3, 2]: cell 1 of windows 0 and 1, cell 2 of window 2."""
    op, window = sg.REGISTRY["max_pool"], strided("max_pool", (4,), (2,), stride=1)
    tangent, cotangent = sg.rule_graphs(op, (4,), window=window)
    assert (tangent.names, cotangent.names) == (("x0", "y", "dx0"), ("x0", "y", "gy"))
    assert [n.op.name for n in tangent.nodes[3:]] == ["winner", "take"]
    assert [n.op.name for n in cotangent.nodes[3:]] == ["winner", "put"]
    x, y = np.array([1.0, 3.0, 3.0, 2.0]), np.array([3.0, 3.0, 3.0])
    assert tangent(x, y, np.array([1.0, 10.0, 100.0, 1000.0])).tolist() == [10.0, 10.0, 100.0]
    assert cotangent(x, y, np.array([1.0, 2.0, 4.0])).tolist() == [0.0, 3.0, 4.0, 0.0]


def test_numbers_and_indices_have_no_tangent_and_zero_is_a_value() -> None:
    tangent, cotangent = sg.rule_graphs(sg.REGISTRY["take"], (3,), sg.Index((2,)), rank=1, empty=False)
    assert (tangent.names, cotangent.names) == (("x0", "x1", "y", "dx0"), ("x0", "x1", "y", "gy"))
    tangent, cotangent = sg.rule_graphs(sg.REGISTRY["div"], (2,), 4)
    assert tangent(np.ones(2), np.ones(2), np.array([8.0, 4.0])).tolist() == [2.0, 1.0]
    tangent, cotangent = sg.rule_graphs(sg.REGISTRY["greater"], (2,), (2,))
    assert tangent(*np.ones((5, 2))).tolist() == [0.0, 0.0]
    assert [g.tolist() for g in cotangent(*np.ones((4, 2)))] == [[0.0, 0.0]] * 2


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(sg.ShapeError, match="add: shapes must be equal"):
        sg.rule_graphs(sg.REGISTRY["add"], (2,), (3,))
