"""Cells of one node that are of very different sizes: whole numbers of 64 bits must not lose the small ones."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import specgrad as sg

pytest.importorskip("flint")
pytest.importorskip("safetensors")

from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.batched.leaves import Leaves, Root
from specgrad.proof.batched.tree_replay import TreeProof
from specgrad.proof.exact.replay import ExecutionModel
from specgrad.proof.files.certificate import CaseProof, check, encode
from specgrad.properties.property import Alternative, Case, Property
from specgrad.rounding import Arithmetic

LOW, HIGH = np.float32([-1]), np.float32([1])
NEVER = (np.array([[-1]], dtype=object), (Fraction(-1, 4),))  # y >= 1/4


def one_far_cell(far: float) -> Any:
    """y = relu(relu(x) - 1/2), beside a cell that is always off: y = 1/2 at x = 1."""
    w, b = np.float32([[0.0], [1.0]]), np.float32([-far, 0.0])
    v, c = np.float32([[0.0, 1.0]]), np.float32([-0.5])
    one = np.float32([[1.0]])
    return deployed_graph(
        sg.trace(lambda x: sg.linear(one, None, sg.relu(sg.linear(v, c, sg.relu(sg.linear(w, b, x))))), (1,))
    )


def a_far_cell_unread(far: float) -> Any:
    """y = max(x, -x) - 1/2, where a window of one cell less leaves the far one alone: y = 1/2 at x = 1."""
    w, b = np.float32([[1.0], [-1.0], [0.0]]), np.float32([0.0, 0.0, far])
    one, c = np.float32([[1.0]]), np.float32([-0.5])

    def net(x: Any) -> Any:
        return sg.linear(one, c, sg.reshape(sg.max_pool(sg.reshape(sg.linear(w, b, x), (1, 3)), (2,)), (1,)))

    return deployed_graph(sg.trace(net, (1,)))


@pytest.mark.parametrize("made", [one_far_cell, a_far_cell_unread])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("step", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_no_margin_is_above_what_an_input_attains(made: Any, fused: bool, step: int) -> None:
    """Shifts by 64 places and more give 0 in NumPy: relus beside a far cell were once proven to be off."""
    for power in range(0, 124, step):
        graph = made(2.0**power)
        attained = Fraction(float(graph(HIGH)[0]))
        assert attained == Fraction(1, 2)
        for narrow in (True, False):
            root = Root(graph, LOW, HIGH, ExecutionModel(fused))
            proven = root.margins(Leaves(LOW[None], HIGH[None]), [NEVER], narrow)
            assert not proven.empty[0]
            assert proven.fraction(0, 0) <= -attained + Fraction(1, 4), (power, narrow)


@pytest.mark.parametrize("power", [64, 80, 100])
def test_such_a_certificate_is_refused(power: int) -> None:
    graph = one_far_cell(2.0**power)
    leaf = TreeProof(np.int32([-1]), np.zeros(0, np.int32), np.zeros(0, np.float32), np.ones((1, 1), np.int32), (4, 9))
    files = encode(graph, [CaseProof(LOW, HIGH, ((*NEVER, 0),), (leaf,))], Arithmetic(execution="node"))
    stated = Alternative(NEVER[0].astype(float), NEVER[1])
    with pytest.raises(ReplayError, match="not excluded"):
        check(*files, graph, Property(1, 1, (Case((Fraction(-1),), (Fraction(1),), (stated,)),)))
