"""False certificates about uneven adaptive windows, as reviewers wrote them: both checkers refuse them.

Channels are as many as cells, so that a checker that exchanges them ends in no error. Each false statement has a point
of the box that contradicts it; the same certificate with a limit that is true is accepted.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")
pytest.importorskip("safetensors")

import proven_program
import specgrad as sg
from specgrad.graph.graph import Node
from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.proof.base.executions import Executions
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.batched.tree_replay import TreeProof
from specgrad.proof.exact.replay import Slopes
from specgrad.proof.extracted import run_checker
from specgrad.proof.extracted.encode import CheckerInput
from specgrad.proof.extracted.scalar_network import CellNumbers
from specgrad.proof.files.certificate import SCALE, CaseProof, Proof, check, encode

BOTH = [check, pytest.param(run_checker.check_proven, marks=proven_program.needed)]
LARGEST = 100


def largest_of_each(cells: np.ndarray, out: int) -> list[float]:
    """adaptive_max_pool of one row, by its definition."""
    n = len(cells)
    return [max(cells[o * n // out : -(-(o + 1) * n // out)]) for o in range(out)]


def row(cells: int, output: int) -> Any:
    rows = np.zeros((1, cells), dtype=object)
    rows[0, output] = -1
    return rows


def whole_box(limit: int) -> tuple[sg.Graph, CaseProof]:
    """Y_3 >= limit never happens, where only the last column of the first of four channels may be large."""
    graph = deployed_graph(sg.trace(lambda x: sg.adaptive_max_pool(x, (1, 4)), (1, 4, 5, 9)))
    (at,) = (i for i, n in enumerate(graph.nodes) if n.op.name == "max_pool")
    low, high = np.zeros((1, 4, 5, 9), np.float32), np.ones((1, 4, 5, 9), np.float32)
    high[0, 0, :, 8] = LARGEST
    taps = len(list(graph.nodes[at].params["window"].taps()))
    lower = np.zeros((taps, *graph.nodes[at].shape), np.int16)
    lower[0] = SCALE
    slopes = Slopes(lower, np.zeros_like(lower), SCALE)
    assert largest_of_each(high[0, 0, 0], 4)[3] == LARGEST
    return graph, CaseProof(low, high, ((row(16, 3), (Fraction(-limit),), Proof((1,), {at: slopes})),))


def in_a_tree(limit: int) -> tuple[sg.Graph, CaseProof]:
    """Y_1 >= limit never happens, where X_2, which Y_1 reads, may be large; the box is cut once."""
    graph = deployed_graph(sg.trace(lambda x: sg.adaptive_max_pool(x, (2,)), (2, 3)))
    low, high = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    high[0, 2] = LARGEST
    tree = TreeProof(np.int32([0, -1, -1]), np.int32([0]), np.float32([0.5]), np.ones((2, 1), np.int32), (), False)
    assert largest_of_each(high[0], 2)[1] == LARGEST
    return graph, CaseProof(low, high, ((row(4, 1), (Fraction(-limit),), 0),), (tree,))


@pytest.mark.parametrize("checker", BOTH)
@pytest.mark.parametrize("forged", [whole_box, in_a_tree])
def test_forged_certificates_of_uneven_windows_are_refused(forged: Any, checker: Any) -> None:
    graph, case = forged(LARGEST + 2)
    checker(*encode(graph, [case]), graph)
    graph, case = forged(2)
    with pytest.raises(ReplayError, match=r"not excluded|does not accept"):
        checker(*encode(graph, [case]), graph)


@pytest.mark.parametrize("checker", BOTH)
def test_every_cell_of_an_uneven_window_counts(checker: Any) -> None:
    """Whichever cell is large, exactly the outputs that read it by the definition may be."""
    graph, case = in_a_tree(3)
    ((_, limits, number),) = case.alternatives
    for cell in range(6):
        high = np.ones((2, 3), np.float32)
        high.flat[cell] = LARGEST
        large = np.array([largest_of_each(channel, 2) for channel in high]) > 1
        for output in range(4):
            asked = replace(case, high=high, alternatives=((row(4, output), limits, number),))
            text = encode(graph, [asked])
            if large.flat[output]:
                with pytest.raises(ReplayError, match=r"not excluded|does not accept"):
                    checker(*text, graph)
            else:
                checker(*text, graph)


def exchanged(self: CellNumbers, i: int, node: Node) -> None:
    """The old numbering of windows: an integer and index arrays with an Ellipsis between them put the indexed axes
    first, so channels and cells are exchanged where there are as many.
    """
    read, window = self.cells_of(node.operands()[0]), node.params["window"]
    taps = list(window.taps())
    each = np.zeros((len(taps), *node.shape), dtype=np.int64)
    cells = read.shape[-window.rank :]

    def numbered(shape: tuple[int, ...]) -> np.ndarray:
        return np.arange(np.prod(shape)).reshape(shape)

    for t, tap in enumerate(taps):
        wrong = (t, ..., *np.unravel_index(tap.read_outputs(numbered(window.out)), window.out))
        each[wrong] = read[(..., *np.unravel_index(tap.read_inputs(numbered(cells)), cells))]
    self.taps[i] = each > 0
    for cell, column in zip(self.numbers[i].ravel(), each.reshape(len(taps), -1).T.tolist(), strict=True):
        self.windows[int(cell)] = tuple(c for c in column if c)


@proven_program.needed
@pytest.mark.parametrize("forged", [whole_box, in_a_tree])
def test_a_wrong_index_of_ours_is_in_no_question_about_a_graph(forged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted again, it makes a false statement about cells true; the program compiles the graph's cells itself."""
    graph, case = forged(2)
    assert run_checker.ask([CheckerInput(graph, case, Executions(), compiled=False)]) == [False]
    monkeypatch.setattr(CellNumbers, "_number_windows", exchanged)
    assert run_checker.ask([CheckerInput(graph, case, Executions(), compiled=False)]) == [True]
    assert run_checker.answers([CheckerInput(graph, case, Executions())]) == [(False, True)]
