"""Bounds hold for attacked float32 executions and exact samples, in every layer."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import specgrad as sg
from hunt import (
    Drawn,
    attacks,
    both,
    boxed,
    escaped,
    escapes,
    features,
    hunted,
    hunted_gradient,
    hunted_two_sided,
    on_torch,
    operator_case,
    with_constants,
)
from slices import each
from specgrad.bounds import Box, certify, crown, ibp
from specgrad.op import REGISTRY
from specgrad.properties.property import Alternative, Case, Property
from specgrad.rounding import Arithmetic
from specgrad.scalar import Array

OPERATORS = sorted(REGISTRY)


BRAIN, HALF = Arithmetic("bfloat16"), Arithmetic("float16")
FORMATS = {torch.bfloat16: BRAIN, torch.float16: HALF}


# --- random networks ------------------------------------------------------------------------------------------------


def hunted_format(seed: int, dtype: torch.dtype, count: int = 2, steps: int = 3) -> list[str]:
    """The same for a network that runs in a narrow format."""
    drawn = Drawn(seed)
    graph = drawn.graph()
    if "avg_pool rank 3" in features(graph):
        return []  # PyTorch has none in these formats
    box = boxed(drawn, graph, dtype)
    bounds, run = both(graph, (box,), arithmetic=FORMATS[dtype]), on_torch(graph, dtype)
    return escaped(str(dtype), bounds, run, attacks(run, [box], seed, count, steps, dtype))


def hunted_engine(seed: int, convert: Any, arithmetic: Arithmetic) -> list[str]:
    """The same for the specification in NumPy's float32, or JAX."""
    drawn = Drawn(seed)
    graph = drawn.graph()
    box = boxed(drawn, graph)
    corners = [(convert(x.numpy()),) for (x,) in attacks(on_torch(graph), [box], seed, 2, 3)]
    return escaped("engine", both(graph, (box,), arithmetic=arithmetic), with_constants(graph, convert), corners)


ENGINES = {"numpy": (np.asarray, Arithmetic()), "jax": (jnp.asarray, Arithmetic(flush=True))}


@pytest.mark.parametrize("seed", each(3, 10))
def test_random_networks_in_numpy(seed: int) -> None:
    assert not hunted_engine(seed, *ENGINES["numpy"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("start", range(1000, 1050, 10))
def test_hunt_other_engines(name: str, start: int) -> None:
    assert not [(seed, found) for seed in range(start, start + 10) if (found := hunted_engine(seed, *ENGINES[name]))]


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_random_networks_in_narrow_formats(dtype: torch.dtype) -> None:
    assert not [(seed, found) for seed in range(10) if (found := hunted_format(seed, dtype))]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("start", range(1000, 1100, 20))
def test_hunt_narrow_formats(dtype: torch.dtype, start: int) -> None:
    assert not [(seed, found) for seed in range(start, start + 20) if (found := hunted_format(seed, dtype))]


@pytest.mark.parametrize("seed", each(6, 20))
def test_derivatives_of_random_networks(seed: int) -> None:
    assert not hunted_gradient(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 1100, 10))
def test_hunt_derivatives(start: int) -> None:
    assert not [(seed, found) for seed in range(start, start + 10) if (found := hunted_gradient(seed))]


@pytest.mark.parametrize("seed", each(12, 40))
def test_random_networks(seed: int) -> None:
    assert not hunted(seed)


@pytest.mark.parametrize("seed", each(5, 15))
def test_random_networks_between_parallel_lines(seed: int) -> None:
    assert not hunted_two_sided(seed)


@pytest.mark.slow
@pytest.mark.parametrize("hunt", [hunted, hunted_two_sided])
@pytest.mark.parametrize("start", range(1000, 1400, 10))
def test_hunt_networks(start: int, hunt: Any) -> None:
    assert not [(seed, found) for seed in range(start, start + 10) if (found := hunt(seed, 8, 8))]


# --- every operator ---------------------------------------------------------------------------------------------------


def operator_problems(name: str, seed: int, count: int = 2, steps: int = 3) -> list[str]:
    op = REGISTRY[name]
    graph, boxes = operator_case(op, seed)
    if not boxes:
        return []  # positions alone: nothing to bound
    lift = sg.balls if op.transcendental or name in ("sqrt", "power", "div") else sg.exact
    return escapes(graph, tuple(boxes), seed, count, steps, lift)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator(name: str) -> None:
    assert not [(seed, found) for seed in range(2) if (found := operator_problems(name, seed))]


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
    assert {0, 1} <= sums_in_any_order(w) or {0, 8} <= sums_in_any_order(w)
    at_most_half = Case((Fraction(1),) * n, (Fraction(1),) * n, (Alternative(np.ones((1, 1)), (Fraction(1, 2),)),))
    assert certify(graph, Property(n, 1, (at_most_half,)), seconds=1).verdict != "holds"
