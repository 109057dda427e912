"""Bounds hold for attacked float32 executions and exact samples, in every layer; and the hunt can find a mistake."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from hunt import Drawn, attacks, boxed, exact_points, layers_of, outputs_outside, outside, with_constants
from specgrad.bounds import Bounds, Box, crown, ibp, relax
from specgrad.graph.graph import Graph
from specgrad.op import REGISTRY, Op, apply
from specgrad.scalar import Array

OPERATORS = sorted(REGISTRY)


def problems_of(graph: Graph, deployed: list[Bounds], real: list[Bounds], single: Any, exact: Any) -> list[str]:
    """Layers and outputs that leave their boxes, on float32 points and on exact ones."""
    problems = []
    for kind, bounds, run, points in (("deployed", deployed, *single), ("real", real, *exact)):
        for x in points:
            layers, outputs = layers_of(run, *x), run(*x)
            problems += [f"{kind} {name}" for b in bounds for name in outside(b, layers)]
            problems += [f"{kind} output"] * any(outputs_outside(b, outputs) for b in bounds)
    return problems


# --- random networks ------------------------------------------------------------------------------------------------


def hunted(seed: int, count: int = 3, steps: int = 4) -> list[str]:
    """What is outside its box, for one random network."""
    drawn = Drawn(seed)
    graph = drawn.graph()
    box = boxed(drawn, graph)
    deployed, real = [[f(graph, box, deployed=d) for f in (crown, ibp)] for d in (True, False)]
    lift = sg.balls if drawn.transcendental else sg.exact
    single, exact = with_constants(graph, torch.tensor), with_constants(graph, lift)
    attacked = ((x,) for x in attacks(single, box, seed, count, steps))
    return problems_of(
        graph, deployed, real, (single, attacked), (exact, ((lift(x),) for x in exact_points(box, seed, 2)))
    )


def hunted_gradient(seed: int) -> list[str]:
    """The same for the derivative graph of a random network, with a fixed cotangent."""
    drawn = Drawn(seed)
    graph = sg.vjp(drawn.graph())
    box = boxed(drawn, graph)
    g = drawn.draw.integers(-2, 3, graph.nodes[graph.input_positions[1]].shape).astype(np.float32)
    deployed, real = [[crown(graph, (box, g), deployed=d), ibp(graph, box, g, deployed=d)] for d in (True, False)]
    lift = sg.balls if drawn.transcendental else sg.exact
    single, exact = with_constants(graph, torch.tensor), with_constants(graph, lift)
    points = [x for (x,) in corners([box], seed, 6)]
    attacked = [(torch.tensor(x), torch.tensor(g)) for x in points]
    sampled = [] if drawn.transcendental else [(lift(x.astype(float)), lift(g.astype(float))) for x in points[:2]]
    return problems_of(graph, deployed, real, (single, attacked), (exact, sampled))


@pytest.mark.parametrize("seed", range(20))
def test_derivatives_of_random_networks(seed: int) -> None:
    assert not hunted_gradient(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 1100, 10))
def test_hunt_derivatives(start: int) -> None:
    assert not [(seed, found) for seed in range(start, start + 10) if (found := hunted_gradient(seed))]


@pytest.mark.parametrize("seed", range(40))
def test_random_networks(seed: int) -> None:
    assert not hunted(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 1400, 10))
def test_hunt_networks(start: int) -> None:
    assert not [(seed, found) for seed in range(start, start + 10) if (found := hunted(seed, 8, 8))]


# --- every operator ---------------------------------------------------------------------------------------------------


def operator_case(op: Op, seed: int) -> tuple[Graph, list[Any]]:
    """One call as a graph: indices are constants; of the other arguments one varies in a box, or all do."""
    rng = Random(f"bounds/{op.name}/{seed}")
    args, params = op.cases(rng)
    real = [k for k in range(len(args)) if k not in op.index_args]
    chosen = real if seed % 2 else [rng.choice(real)] if real else []
    fixed = {k: a if k in op.index_args else a.astype(np.float32) for k, a in enumerate(args) if k not in chosen}
    boxes = [_around(args[k].astype(np.float32), rng.choice((0.0, 0.0625, 0.25)), rng) for k in chosen]

    def call(*given: Any) -> Any:
        values = dict(zip(chosen, given, strict=True)) | fixed
        return apply(op, *(values[k] for k in range(len(args))), **params)

    return sg.trace(call, *(b.shape for b in boxes)), boxes


def _around(x: Array, reach: float, rng: Random) -> Box:
    sides = np.array([rng.choice((0.0, 1.0)) for _ in range(x.size)]).reshape(x.shape)
    return Box(x - np.float32(reach) * sides.astype(np.float32), x + np.float32(reach))


def corners(boxes: list[Box], seed: int, count: int) -> list[tuple[Array, ...]]:
    rng = np.random.default_rng(seed)
    pick = lambda b: np.where(rng.integers(0, 2, b.shape) == 1, b.high, b.low).astype(np.float32)
    return [tuple(np.asarray(pick(b)) for b in boxes) for _ in range(count)]


def operator_problems(name: str, seed: int) -> list[str]:
    op = REGISTRY[name]
    if name == "last_writer":
        return []  # positions alone: nothing to bound
    graph, boxes = operator_case(op, seed)
    if not boxes:
        return []
    deployed, real = [[crown(graph, tuple(boxes), deployed=d), ibp(graph, *boxes, deployed=d)] for d in (True, False)]
    lift = sg.balls if op.transcendental or name in ("sqrt", "power", "div") else sg.exact
    points = corners(boxes, seed, 4)
    single = with_constants(graph, torch.tensor), [tuple(map(torch.tensor, x)) for x in points]
    exact = with_constants(graph, lift), [tuple(lift(a.astype(float)) for a in x) for x in points]
    if graph.nodes[graph.output_positions[0]].kind == "index":
        return []
    return problems_of(graph, deployed, real, single, exact)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator(name: str) -> None:
    assert not [(seed, found) for seed in range(4) if (found := operator_problems(name, seed))]


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_hunt_operators(name: str) -> None:
    assert not [(seed, found) for seed in range(100, 200) if (found := operator_problems(name, seed))]


# --- cancellation -----------------------------------------------------------------------------------------------------

CANCELLING = [np.float32([2**24, 1, -(2**24)]), np.float32([2**27, 9, -(2**27), -8])]


def sums_in_any_order(w: Array) -> set[float]:
    """float32 sums of the weights in every order, from left to right."""
    return {float(np.add.accumulate(np.array(order, dtype=np.float32))[-1]) for order in itertools.permutations(w)}


@pytest.mark.parametrize("w", CANCELLING, ids=["0 or 1", "0 to 8"])
def test_cancelling_networks_are_not_certified(w: Array) -> None:
    """Exactly 1 in real arithmetic; anything from 0 to 8 in float32, depending on the order of summation."""
    assert sum(map(int, w)) == 1
    n = len(w)
    layers = lambda x: sg.relu(sg.conv(w.reshape(1, 1, n), None, x))
    graph = sg.trace(layers, (1, n))
    box = Box(np.ones((1, n)), np.ones((1, n)))
    for bounds in (ibp(graph, box, deployed=False), crown(graph, box, deployed=False)):
        np.testing.assert_allclose((bounds.outputs.low, bounds.outputs.high), 1, atol=1e-6)
    for bounds in (ibp(graph, box), crown(graph, box)):
        assert bounds.outputs.low <= 0
        assert all(bounds.outputs.contains(max(s, 0.0)).all() for s in sums_in_any_order(w))
    assert max(sums_in_any_order(w)) - min(sums_in_any_order(w)) >= 1
    assert 0 in sums_in_any_order(w)


# --- the hunt can fail ------------------------------------------------------------------------------------------------


def lower_intercepts(lines: relax.Lines) -> relax.Lines:
    return lines._replace(upper=lines.upper - 0.05 * lines.upper.abs())


PLANTED = {
    "relu": lambda f: lambda low, high: lower_intercepts(f(low, high)),
    "largest": lambda f: lambda low, high, inside: lower_intercepts(f(low, high, inside)),
    "hull": lambda f: lambda *args: lower_intercepts(f(*args)),
    "smooth_largest": lambda f: lambda *args: lower_intercepts(f(*args)),
    "intercept": lambda f: lambda low, high, inside, slope: f(low, low, inside, slope),
}


@pytest.mark.parametrize("name", list(PLANTED))
def test_a_planted_wrong_relaxation_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relax, name, PLANTED[name](getattr(relax, name)))
    assert any(hunted(seed, 8, 8) for seed in range(60))
