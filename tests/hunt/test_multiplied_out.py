"""A convolution or matrix product that is multiplied out into several cells is computed by nobody.

Each of these cells, of one node or of two, may read other copies of what it reads: y0 - y1 of two equal cells is then
not 0.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from pairs import executed
from program import Program
from specgrad.bounds import certify
from specgrad.bounds.linear.intermediate import forward_pass as forward
from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass
from specgrad.bounds.search.certificates.prove import prove
from specgrad.bounds.search.neuron_split.subproblems import root_forward
from specgrad.proof.exact import replay
from specgrad.proof.files.certificate import check
from specgrad.properties.property import Alternative, Case, Property

ONE, TWO, BIG = np.ones((1, 1), np.float32), np.ones((2, 1), np.float32), np.float32([1e6])


def copied(x: Any) -> Any:
    """A value that two readers see in two roundings: as (x + 1e6) - 1e6, or with the constants folded to 0."""
    return sg.relu(sg.sub(sg.add(sg.linear(ONE, None, x), BIG), BIG))


def once(x: Any) -> Any:
    return sg.linear(ONE, None, x)


NETWORKS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "two products": (1, lambda x: sg.linear(TWO, None, once(copied(x)))),
    "a sum between": (1, lambda x: sg.linear(TWO, None, sg.add(once(copied(x)), np.float32([0.5])))),
    "three products": (1, lambda x: sg.linear(TWO, None, once(once(copied(x))))),
    "windows that overlap": (
        1,
        lambda x: sg.avg_pool(sg.linear(np.ones((3, 1), np.float32), None, copied(x)), (2,), stride=1),
    ),
    "two readers": (1, lambda x: (lambda a: sg.concat([once(a), once(a)], 0))(once(copied(x)))),
    "side by side": (1, lambda x: (lambda a: sg.concat([a, a], 0))(once(copied(x)))),
    "through a sum": (1, lambda x: (lambda a: sg.concat([once(a), once(a)], 0))(sg.add(once(copied(x)), BIG / BIG))),
    "repeated": (3, lambda x: sg.broadcast(sg.linear(np.float32([[1, 1e6, -1e6]]), None, x), (2,))),
}


def traced(name: str) -> tuple[int, sg.Graph]:
    cells, network = NETWORKS[name]
    return cells, sg.trace(network, (cells,))


def stays_above(cells: int, limit: Fraction) -> Property:
    """y0 - y1 > limit for x from 1/2 to 1."""
    ends = (Fraction(1, 2),) * cells, (Fraction(1),) * cells
    return Property(cells, 2, (Case(*ends, (Alternative(np.array([[1.0, -1.0]]), (limit,)),)),))


@cache
def least(name: str, runs: int = 300) -> Fraction:
    """The least y0 - y1 of some executions."""
    cells, graph = traced(name)
    program, rng, found = Program(graph), Random(1), []
    for _ in range(runs):
        x = np.float32([rng.uniform(0.5, 1) for _ in range(cells)])
        versions = executed(program, x, rng).values[graph.output_positions[0]]
        found += [Fraction(y[0]) - Fraction(y[1]) for y in versions]
    return min(found)


@pytest.mark.parametrize("name", NETWORKS)
def test_no_execution_that_multiplies_out_is_below_what_holds(name: str) -> None:
    (cells, graph), seen = traced(name), least(name)
    assert seen < Fraction(-1, 1000)
    assert certify(graph, stays_above(cells, seen), seconds=0.2).verdict != "holds"
    far = stays_above(cells, Fraction(-20))  # and not everything is refused
    assert certify(graph, far, seconds=60).verdict == "holds"
    proof = prove(graph, far, seconds=60)
    assert check(proof.text, proof.packed, graph, far).margin < 20 + seen


def one_node(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(forward, "recomputed_per_reader", lambda graph, rules: frozenset())
    patch.setattr(replay, "recomputed_per_reader", lambda graph: set())


def one_cell(patch: pytest.MonkeyPatch) -> None:
    one_node(patch)
    patch.setattr(forward, "most_readers", lambda graph, i: 1)
    patch.setattr(replay, "fan_out", lambda node, size: 1)


MISTAKES = [("two products", one_cell), ("two readers", one_node), ("side by side", one_node)]


@pytest.mark.parametrize(("name", "mistake"), MISTAKES)
def test_one_value_for_all_cells_is_a_mistake_that_is_caught(
    name: str, mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, graph = traced(name)
    claim = stays_above(cells, least(name))
    mistake(monkeypatch)
    assert certify(graph, claim, seconds=60).verdict == "holds"
    proof = prove(graph, claim, seconds=60)
    assert check(proof.text, proof.packed, graph, claim).margin > 0


def test_what_nobody_carries_is_a_mistake_that_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kernel read is no error of it where one that follows carries it: so that one must."""
    cells, graph = traced("two products")
    claim = stays_above(cells, least("two products"))
    monkeypatch.setattr(
        ForwardPass, "_argument_deviations", lambda self, sources, inside, read: [None for _ in sources]
    )
    assert certify(graph, claim, seconds=60).verdict == "holds"


def test_what_was_read_is_charged_once() -> None:
    """Two products in a row are off by what the first one read, not by twice that."""
    networks = (lambda x: once(copied(x))), NETWORKS["two products"][1]
    roots = [root_forward(sg.trace(network, (1,)), np.array([0.5]), np.array([1.0])) for network in networks]
    one, two = (sum(float(error.max()) for error in root.state.errors.values()) for root in roots)
    assert 0.1 < two < 1.1 * one
