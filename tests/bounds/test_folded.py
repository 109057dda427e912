"""A folded network gives the bounds of the network that it stands for, and its search proves what is true alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pace import ENDS

torch = pytest.importorskip("torch")

import specgrad as sg  # noqa: E402
from slices import each, slices  # noqa: E402
from specgrad.bounds.search.neuron_split.reduced_network import ReducedNetwork, can_fold  # noqa: E402
from specgrad.bounds.search.neuron_split.reduced_search import OpenReduced, Stack, _ReducedSearch, search  # noqa: E402
from specgrad.bounds.search.neuron_split.subproblems import Bounder, Problems, root_forward  # noqa: E402
from specgrad.proof.base.deployed_graph import deployed_graph  # noqa: E402


def residual_network(rng: np.random.Generator) -> sg.Graph:
    """Two convolutions, one of them skipped by what the other reads, and a dense end."""
    w = [rng.normal(size=s).astype(np.float32) / 2 for s in ((3, 2, 3, 3), (3, 3, 3, 3), (6, 3 * 4 * 4), (2, 6))]
    bias = rng.normal(size=3).astype(np.float32)

    def function(x: Any) -> Any:
        x = sg.relu(sg.conv(w[0], bias, x, padding=1))
        x = sg.relu(sg.add(sg.conv(w[1], None, x, padding=1), x))
        x = sg.relu(sg.linear(w[2], None, sg.flatten(x, 1)))
        return sg.linear(w[3], None, x)

    return deployed_graph(sg.trace(function, (1, 2, 4, 4)))


def dense_network(rng: np.random.Generator) -> sg.Graph:
    w = [rng.normal(size=s).astype(np.float32) for s in ((10, 4), (8, 10), (2, 8))]
    b = rng.normal(size=10).astype(np.float32)

    def function(x: Any) -> Any:
        return sg.linear(w[2], None, sg.relu(sg.linear(w[1], None, sg.relu(sg.linear(w[0], b, x)))))

    return deployed_graph(sg.trace(function, (4,)))


def searching(seed: int, radius: float = 0.3) -> tuple[Bounder, _ReducedSearch, np.random.Generator]:
    rng = np.random.default_rng(seed)
    graph = (residual_network, dense_network)[seed % 2](rng)
    shape = graph.nodes[graph.input_positions[0]].shape
    middle = rng.normal(size=shape).astype(np.float32).astype(float)
    bounder = Bounder(root_forward(graph, middle - radius, middle + radius))
    assert can_fold(bounder.state)
    rows = torch.from_numpy(rng.normal(size=(3, 2)))
    return bounder, _ReducedSearch(bounder, rows, torch.zeros(3, dtype=torch.float64)), rng


def whole(at: _ReducedSearch, these: OpenReduced) -> Problems:
    """The same problems over all cells."""
    problems = at.bounder.start(at.rows[these.row])
    for (i, z, cells), span in zip(at.folded.relus, at.folded.spans, strict=True):
        if len(cells):
            sign, chosen = these.sign[:, span], these.chosen[:, span]
            below, above = (torch.where(sign == s, 0.0, -s * torch.inf) for s in (1, -1))
            problems.limits[z].flatten(2)[:, :, cells] = torch.stack([below, above], 1)
            problems.slopes[i].flatten(1)[:, cells] = torch.where(sign == 0, chosen, 0.0)
            problems.multipliers[z].flatten(1)[:, cells] = sign * chosen
    return problems


def problems(at: _ReducedSearch, rng: np.random.Generator) -> OpenReduced:
    """Random signs, slopes and multipliers, one problem per row."""
    shape = (3, at.folded.count)
    sign = torch.from_numpy(rng.choice([-1, 0, 0, 1], size=shape)).to(torch.int8)
    chosen = torch.from_numpy(rng.uniform(size=shape)).float()
    number, zeros = torch.arange(3), torch.zeros(shape)
    return OpenReduced(number, 0 * number, sign, chosen, zeros, zeros[:, 0])


@pytest.mark.parametrize("seed", each(3, 6))
def test_bounds_are_those_of_the_layers(seed: int) -> None:
    """The other way: layer by layer over all cells, its gradient by autograd."""
    bounder, at, rng = searching(seed)
    these = problems(at, rng)
    same = whole(at, these)
    slopes = {i: v.requires_grad_(True) for i, v in same.slopes.items()}
    multipliers = {z: v.requires_grad_(True) for z, v in same.multipliers.items()}
    expected = bounder.estimate(same, bounder.lines(same), (slopes, multipliers, {}))
    taken = at.folded.bound(at._objectives(these), these.sign.float(), these.chosen)
    np.testing.assert_allclose(taken.bound, expected.detach(), rtol=1e-4, atol=1e-4)
    expected.sum().backward()
    gradient = at.folded.gradient(taken, these.sign.float(), these.chosen)
    for (i, z, cells), span in zip(at.folded.relus, at.folded.spans, strict=True):
        if len(cells):
            of_slopes, of_multipliers = (v.grad.flatten(1)[:, cells] for v in (slopes[i], multipliers[z]))
            sign = these.sign[:, span]
            both = torch.where(sign == 0, of_slopes, sign * of_multipliers)
            np.testing.assert_allclose(gradient[:, span], both, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seed", each(2, 4))
def test_rigorous_bounds_are_those_of_the_whole_network(seed: int) -> None:
    bounder, at, rng = searching(seed)
    these = problems(at, rng)
    np.testing.assert_allclose(at._rigorous_lower(these), bounder.lower(whole(at, these)), rtol=1e-9, atol=1e-9)
    taken = at.folded.bound(at._objectives(these), these.sign.float(), these.chosen)
    difference = taken.bound - at._rigorous_lower(these)
    assert (difference > -1e-4).all()
    assert (difference < 1e-2).all()


def outcome(seed: int, share: float) -> tuple[Any, np.ndarray, np.ndarray]:
    """A search whose targets lie below (share < 0) or above the least values seen, and those values and targets."""
    bounder, at, rng = searching(seed)
    graph = bounder.graph
    low, high = (end.flatten() for end in bounder.state.intervals[graph.input_positions[0]])
    corners = rng.choice([0.0, 0.5, 1.0], size=(1000, len(low)))
    x = (low.numpy() + (high - low).numpy() * corners).reshape(-1, *graph.nodes[graph.input_positions[0]].shape)
    run = torch.func.vmap(sg.compile(graph, "torch"))(torch.from_numpy(x.astype(np.float32)))
    values = run.double().numpy().reshape(len(x), -1) @ at.rows.numpy().T
    targets = values.min(0) + share * (values.max(0) - values.min(0))
    return search(bounder, at.rows, torch.from_numpy(targets), seconds=ENDS, most=1000), values, targets


def wrong(seeds: range) -> int:
    """How many bounds lie above a value that was computed."""
    return sum(int((o.bounds.numpy() > v.min(0)).sum()) for o, v, _ in (outcome(s, -0.1) for s in seeds))


@pytest.mark.parametrize("seeds", slices(5, 40))
def test_nothing_false_is_proven(seeds: range) -> None:
    assert wrong(seeds) == 0
    for seed in seeds[:2]:
        result, values, targets = outcome(seed, 0.02)
        assert not result.settled
        assert (result.bounds.numpy() <= values.min(0)).all()
        assert all(w is not None and w[1] < 0 for w in result.worst)
        assert (result.bounds.numpy() < targets).all()


def test_what_is_true_is_settled_and_every_leaf_is_excluded_by_itself() -> None:
    settled = 0
    for seed in range(1, 8, 2):
        result, _, targets = outcome(seed, -0.15)
        settled += result.settled
        bounder, at, _ = searching(seed)
        assert sum(len(t.cuts) for t in result.trees) == result.problems
        assert not result.settled or (result.bounds.numpy() >= targets).all()
        for row, tree in enumerate(result.trees):
            for leaf in list(tree.leaves())[:3] * result.settled:
                start = bounder.start(at.rows[row : row + 1])
                for cut, side in tree.path(leaf):
                    start = start.cut(cut.node, torch.tensor([0]), torch.tensor([cut.cell]), cut.at, side)
                goal = torch.tensor([targets[row]])
                assert float(bounder.optimised(start, 200, goal)[1]) > targets[row] - 0.05
    assert settled >= 3


@pytest.mark.parametrize("mistake", ["sides", "lost", "closed"])
def test_a_planted_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one side of each split is kept; what is open is dropped; float32 alone closes, with a goal too low."""
    original = _ReducedSearch._close_proven
    if mistake == "sides":
        monkeypatch.setattr(
            _ReducedSearch, "_close_proven", lambda self, p: original(self, p.take(slice(len(p) // 2, None)))
        )
    elif mistake == "lost":
        monkeypatch.setattr(Stack, "push", lambda self, p: None)
    else:
        monkeypatch.setattr(_ReducedSearch, "_rigorous_lower", lambda self, p: p.bound.double() + 5.0)
    assert wrong(range(8)) or any(outcome(seed, 0.02)[0].settled for seed in range(4))


def test_a_stack_gives_the_last_problems_first_and_each_once() -> None:
    stack, zeros = Stack(), torch.zeros((5, 1))
    for k in range(3):
        number = torch.arange(5) + 5 * k
        stack.push(OpenReduced(number, number, zeros, zeros, zeros, zeros[:, 0]))
    seen = [stack.pop(4).row.tolist() for _ in range(4)]
    assert seen[0] == [11, 12, 13, 14]
    assert sorted(k for each in seen for k in each) == list(range(15))
    assert len(stack) == 0


def test_networks_with_other_bends_are_not_folded() -> None:
    graph = deployed_graph(sg.trace(lambda x: sg.sigmoid(sg.relu(x)), (2,)))
    assert not can_fold(root_forward(graph, -np.ones(2), np.ones(2)).state)
    decided = deployed_graph(sg.trace(lambda x: sg.relu(x), (2,)))
    assert not can_fold(root_forward(decided, np.ones(2), 2 * np.ones(2)).state)


def test_a_folded_network_names_the_cells_of_the_whole() -> None:
    bounder, at, _ = searching(0)
    folded: ReducedNetwork = at.folded
    for k in range(folded.count):
        z, cell = folded.position(k)
        assert bool(bounder.unstable(z).flatten()[cell])
        assert float(bounder.state.intervals[z][0].flatten()[cell]) == pytest.approx(float(folded.low[k]), rel=1e-6)


def least_and_proven(seed: int) -> tuple[float, float]:
    """The least value of a row at some inputs and what its search proves, with a relu after the output."""
    rng = np.random.default_rng(seed)
    w, v = (rng.normal(size=s).astype(np.float32) for s in ((6, 4), (2, 6)))

    def function(x: Any) -> Any:
        y = sg.linear(v, None, sg.relu(sg.linear(w, None, x)))
        return y, sg.relu(y)

    graph = sg.trace(function, (4,))
    graph = replace(graph, outputs=graph.outputs[:1], single=True)
    bounder, row = Bounder(root_forward(graph, -np.ones(4), np.ones(4))), np.array([[1.0, -1.0]])
    seen = min(float(row[0] @ graph(x)) for x in rng.uniform(-1, 1, (200, 4)).astype(np.float32).astype(float))
    targets = torch.full((1,), seen + 0.1, dtype=torch.float64)
    return seen, float(search(bounder, torch.from_numpy(row), targets, seconds=5.0, most=40).bounds[0])


def test_a_relu_after_the_output_takes_nothing_from_its_objective() -> None:
    assert all(proven <= seen for seen, proven in map(least_and_proven, range(3)))
