"""What a search records of its cuts: a verdict's trees divide the box, and each part of them is excluded by itself."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import specgrad as sg  # noqa: E402
from slices import each  # noqa: E402
from specgrad.bounds import certify  # noqa: E402
from specgrad.bounds.search.neuron_split.branch_and_bound import branch  # noqa: E402
from specgrad.bounds.search.neuron_split.subproblems import Bounder, root_forward  # noqa: E402
from specgrad.proof.base.deployed_graph import deployed_graph  # noqa: E402
from specgrad.properties.property import Alternative, Case, Property  # noqa: E402


def question(inputs: int, layers: int, seed: int, share: float) -> tuple[Any, Property]:
    """A chain of relus, and two limits below the least values that were seen, by a share of what their rows move."""
    rng = np.random.default_rng(seed)
    w = [rng.normal(size=(12, inputs)).astype(np.float32), *(rng.normal(size=(12, 12)) / 3 for _ in range(layers - 1))]
    last, rows = rng.normal(size=(2, 12)).astype(np.float32), np.eye(2)

    def function(x):
        for m in w:
            x = sg.relu(sg.linear(m.astype(np.float32), None, x))
        return sg.linear(last, None, x)

    graph = deployed_graph(sg.trace(function, (inputs,)))
    seen = np.array([graph(rng.uniform(-1, 1, inputs)) for _ in range(300)])
    limits = seen.min(0) - share * (seen.max(0) - seen.min(0))
    ends = tuple((Fraction(s),) * inputs for s in (-1, 1))
    case = Case(*ends, tuple(Alternative(r[None], (Fraction(float(v)),)) for r, v in zip(rows, limits, strict=True)))
    return graph, Property(inputs, 2, (case,))


def boxes_of(tree: Any, case: Case) -> list[tuple[Any, Any]]:
    """The boxes of all leaves of a tree of input cuts, from its cuts alone."""
    boxes = []
    for leaf in tree.leaves():
        low, high = (np.ravel(end).astype(np.float32) for end in case.outer())
        for cut, side in tree.path(leaf):
            assert low[cut.cell] <= np.float32(cut.at) < high[cut.cell]
            if side:
                low[cut.cell] = np.nextafter(np.float32(cut.at), np.float32(np.inf))
            else:
                high[cut.cell] = np.float32(cut.at)
        boxes.append((low, high))
    return boxes


@pytest.mark.parametrize("seed", each(2, 4))
def test_parts_of_input_splits_cover_the_box_and_hold_by_themselves(seed: int) -> None:
    graph, asked = question(3, 3, seed, 0.3)
    verdict = certify(graph, asked, seconds=100)
    assert verdict.verdict == "holds"
    for alternatives, tree in verdict.trees[0]:
        boxes = boxes_of(tree, asked.cases[0])
        points = np.random.default_rng(seed).uniform(-1, 1, (500, 3)).astype(np.float32)
        assert all(sum(bool(((a <= x) & (x <= b)).all()) for a, b in boxes) == 1 for x in points)
        for low, high in boxes[:: len(boxes) // 5 + 1]:
            ends = (tuple(Fraction(float(v)) for v in end) for end in (low, high))
            part = Case(*ends, tuple(asked.cases[0].alternatives[k] for k in alternatives))
            alone = certify(graph, Property(3, 2, (part,)), seconds=100)
            assert alone.verdict == "holds"  # by more cuts where the part has known more from those above it


@pytest.mark.parametrize("seed", [1, 2])
def test_relu_splits_are_recorded_row_by_row(seed: int) -> None:
    graph, asked = question(20, 2, seed, 1.0)
    verdict = certify(graph, asked, seconds=100)
    assert verdict.verdict == "holds"
    nodes = [node.op.name for node in graph.nodes]
    inputs = [graph.nodes[i].operands()[0] for i, name in enumerate(nodes) if name == "relu"]
    for _, tree in verdict.trees[0]:
        for leaf in tree.leaves():
            cuts = [cut for cut, _ in tree.path(leaf)]
            assert len({(c.node, c.cell) for c in cuts}) == len(cuts)
            assert all(c.node in inputs and c.at == 0 and 0 <= c.cell < 12 for c in cuts)
    assert sum(len(t.cuts) for _, t in verdict.trees[0]) == verdict.problems


def test_an_open_search_names_its_worst_part() -> None:
    graph, asked = question(3, 3, 0, -1e-3)
    verdict = certify(graph, asked, seconds=100)
    assert verdict.verdict == "violated"
    row = np.array([[1.0]])
    graph = deployed_graph(sg.trace(lambda x: sg.relu(x) - sg.relu(x), (1,)))  # 0, and no bound reaches 0
    case = Case((Fraction(-1),), (Fraction(1),), (Alternative(row, (Fraction(-1, 10**9),)),))
    verdict = certify(graph, Property(1, 1, (case,)), seconds=0.3)
    assert verdict.verdict == "unknown"
    part = verdict.open_part
    assert part is not None
    assert part.margin <= 0
    tree = verdict.trees[0][0][1]
    low, high = boxes_of(tree, case)[[tree.path(k) for k in tree.leaves()].index(list(part.cuts))]
    assert (low.tolist(), high.tolist()) == (part.low, part.high)


def test_a_bound_that_is_no_number_settles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two rows, one is bounded by NaN: it stays open, and the other one is met."""
    graph = deployed_graph(sg.trace(lambda x: sg.relu(sg.linear(np.eye(2, dtype=np.float32), None, x)), (2,)))
    bounder = Bounder(root_forward(graph, -np.ones(2), np.ones(2)))
    bounds = torch.tensor([np.nan, 1.0], dtype=torch.float64)
    monkeypatch.setattr(bounder, "optimised", lambda problems, *_: (problems, bounds))
    rows, targets = torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    found = branch(bounder, rows, targets, seconds=0)
    assert not found.settled
    assert [w is None for w in found.worst] == [False, True]
