"""Searches by cuts of every kind: what linear bounds leave open, and a few cuts settle."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from pace import ENDS
from specgrad.properties.property import Alternative, Case, Property

torch = pytest.importorskip("torch")

from specgrad.bounds.search.certify import certify  # noqa: E402
from specgrad.bounds.search.neuron_split.branch_and_bound import branch  # noqa: E402
from specgrad.bounds.search.neuron_split.subproblems import Bounder, root_forward  # noqa: E402

INPUTS = 20  # more than are split by themselves


def _maps(seed: int, rows: int) -> Callable[[Any], Any]:
    w = np.random.default_rng(seed).integers(-2, 3, (rows, INPUTS)).astype(np.float32)
    return lambda x: sg.linear(w, None, x)


def _pooled(z: Any) -> Any:
    return sg.reshape(sg.max_pool(sg.reshape(z, (1, -1)), (3,), stride=3), (-1,))


NEVER_NEGATIVE: dict[str, Callable[[Any], Any]] = {
    "leaky_relu": lambda z: sg.leaky_relu(z, 0.25) - 0.25 * z - 0.75 * sg.relu(z),
    "abs": lambda z: sg.relu(z) + sg.relu(-z) - sg.abs(z),
    "clamp": lambda z: sg.abs(z) - sg.clamp(z, -1, 1),
    "maximum": lambda z: sg.maximum(z[:3], z[3:]) - 0.5 * z[:3] - 0.5 * z[3:],
    "minimum": lambda z: 0.5 * z - sg.minimum(z, 0) - 0.5 * sg.abs(z) + 0.0,
    "max_pool": lambda z: sg.sum(_pooled(z)) - 0.25 * sg.sum(z) - 0.25 * (z[1] + z[4]),
    "amax": lambda z: sg.amax(z, (0,)) - 0.5 * z[2] - 0.5 * z[4],
}
"""Functions of six cells that are at least 0 everywhere, by algebra: margins are what bounds lose."""


@pytest.mark.parametrize("kind", NEVER_NEGATIVE)
def test_a_few_cuts_settle_what_linear_bounds_leave_open(kind: str) -> None:
    """Also where the inputs are too many to be split: each row y_k >= 0, so y_k > -1/100."""
    maps = _maps(3, 6)
    graph = sg.trace(lambda x: sg.reshape(NEVER_NEGATIVE[kind](maps(x)), (-1,)), (INPUTS,))
    outputs = graph.nodes[graph.output_positions[0]].shape[0]
    regions = tuple(Alternative(row[None], (Fraction(-1, 100),)) for row in np.eye(outputs))
    case = Case((Fraction(-1),) * INPUTS, (Fraction(1),) * INPUTS, regions)
    verdict = certify(graph, Property(INPUTS, outputs, (case,)), seconds=ENDS)
    assert verdict.verdict == "holds"
    assert verdict.problems > 0


def test_a_part_that_cannot_be_cut_does_not_end_the_search() -> None:
    """The first row breaks at one input alone, y = 0 at x = 0, and stays open; the second is settled beside it."""
    maps = _maps(1, 2)
    w = np.float32([[1, 1, 0, 0], [0, 0, 1, 1]])
    graph = sg.trace(lambda x: sg.linear(w, None, sg.relu(_both(maps(x)))), (INPUTS,))
    bounder = Bounder(root_forward(graph, -np.ones(INPUTS), np.ones(INPUTS)))
    outcome = branch(bounder, torch.eye(2, dtype=torch.float64), torch.tensor([1e-3, -1e-2]), seconds=ENDS, most=400)
    assert not outcome.settled
    assert outcome.worst[0] is not None
    assert outcome.worst[1] is None
    assert float(outcome.bounds[1]) >= -1e-2


def _both(z: Any) -> Any:
    """(z0, -z0, z1, -z1)."""
    return sg.linear(np.float32([[1, 0], [-1, 0], [0, 1], [0, -1]]), None, z)


def test_outputs_that_do_not_vary_are_not_cut() -> None:
    """relu(x - 10) is 0 on 0..1: a search has its bounds at once; certify says that rounding decides, not the box."""
    w, b = np.ones((1, 1), np.float32), np.full(1, -10.0, np.float32)
    graph = sg.trace(lambda x: sg.linear(w, None, sg.relu(sg.linear(w, b, x))), (1, 1))
    bounder = Bounder(root_forward(graph, np.zeros((1, 1)), np.ones((1, 1))))
    rows = torch.ones((2, 1), dtype=torch.float64)
    outcome = branch(bounder, rows, torch.tensor([-1.0, 1.0], dtype=torch.float64), seconds=1)
    assert not outcome.settled
    assert (outcome.bounds.abs() < 1e-6).all()
    assert branch(bounder, rows[:1], torch.tensor([-1.0], dtype=torch.float64), seconds=1).settled
    never = Alternative(np.array([[1.0]]), (Fraction(-1, 10**40),))  # y <= -1e-40: flushed numbers decide
    verdict = certify(graph, Property(1, 1, (Case((Fraction(0),), (Fraction(1),), (never,)),)), seconds=2)
    assert (verdict.verdict, "outputs vary by rounding alone" in verdict.reason) == ("unknown", True), verdict


def test_searches_say_their_rate() -> None:
    """Where kinks are cut, as where inputs are."""
    graph = sg.trace(lambda x: sg.abs(_maps(3, 4)(x)), (INPUTS,))
    bounder, said = Bounder(root_forward(graph, -np.ones(INPUTS), np.ones(INPUTS))), list[str]()
    row = torch.tensor([[1.0, 1.0, -1.0, -1.0]], dtype=torch.float64)
    branch(
        bounder, row, torch.zeros(1, dtype=torch.float64), seconds=1e9, most=9, progress=lambda s, *_: said.append(s)
    )
    assert said
    assert all(s.startswith("branch and bound, worst -") and s.endswith("/s") for s in said), said
