"""Counterexamples are found where there are some, lie in the box, and are what the deployed network computes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import specgrad as sg
from competition import VERIVITAL, needs_shared
from specgrad.properties.property import Alternative, Case, robustness
from specgrad.properties.vnnlib import read

torch = pytest.importorskip("torch")

from specgrad.bounds.search.network.pgd_attack import DeployedNetwork, Effort, attack  # noqa: E402


def region(rows: list[list[int]], limits: list[Fraction | int]) -> Alternative:
    return Alternative(np.array(rows, dtype=float), tuple(map(Fraction, limits)))


def absolute_value() -> sg.Graph:
    """y = (abs(x0 - 3/4) + abs(x1), x0): smallest at a point inside the box, where corners do not help."""
    w = np.float32([[1, 0], [-1, 0], [0, 1], [0, -1]])
    b = np.float32([-0.75, 0.75, 0, 0])
    v = np.float32([[1, 1, 1, 1], [0, 0, 0, 0]])
    return sg.trace(lambda x: sg.linear(v, None, sg.relu(sg.linear(w, b, x))), (2,))


@pytest.mark.parametrize(("limit", "exists"), [(Fraction(1, 100), True), (0, True), (Fraction(-1, 10**9), False)])
def test_search_inside_the_box(limit: Fraction, exists: bool) -> None:
    case = Case((Fraction(-1), Fraction(-1)), (Fraction(1), Fraction(2)), (region([[1, 0]], [limit]),))
    network = DeployedNetwork(absolute_value())
    found = attack(network, case, Effort(starts=8, steps=200))
    assert (found is not None) <= exists
    if limit > 0:
        assert found is not None
        x = [Fraction(float(v)) for v in found.x]
        assert abs(x[0] - Fraction(3, 4)) + abs(x[1]) <= limit + Fraction(1, 10**6)


def test_all_inequalities_of_an_alternative_must_hold() -> None:
    network = DeployedNetwork(sg.trace(lambda x: sg.concat([x, -x], axis=0), (1,)))
    box = (Fraction(-1),), (Fraction(1),)
    half = Fraction(1, 2)
    both = region([[-1, 0], [0, -1]], [-half, -half])  # x >= 1/2 and -x >= 1/2
    assert attack(network, Case(*box, (both,))) is None
    found = attack(network, Case(*box, (both, region([[-1, 0]], [-half]))))
    assert found is not None
    assert found.x[0] >= 0.5


def test_the_deployed_network_decides() -> None:
    """x + 2**24 - 2**24 is 0 in float32 for small x, though it is x: what counts is what float32 gives."""
    network = DeployedNetwork(sg.trace(lambda x: sg.sub(sg.add(x, 2.0**24), 2.0**24), (1,)))
    box = (Fraction(1, 8),), (Fraction(1, 4),)
    assert attack(network, Case(*box, (region([[-1]], [Fraction(-1, 10)]),))) is None  # y >= 0.1
    found = attack(network, Case(*box, (region([[1]], [0]),)))  # y <= 0
    assert found is not None
    assert found.y.tolist() == [0]


@needs_shared
def test_competition_counterexamples() -> None:
    """Known answers: complete verifiers find a counterexample to the first two and none to the third."""
    pytest.importorskip("onnx")
    from specgrad.interop import from_onnx

    graph = from_onnx(VERIVITAL / "Convnet_maxpool.onnx")
    network = DeployedNetwork(graph)
    for number, exists in ((14, True), (0, False)):
        (case,) = read(VERIVITAL / f"specs/maxpool_specs/prop_{number}_0.004.vnnlib").cases
        found = attack(network, case, Effort(starts=2, steps=20))
        assert (found is not None) == exists
        if found is not None:
            low, high = case.outer()
            assert ((low <= np.ravel(found.x)) & (np.ravel(found.x) <= high)).all()
            y = np.ravel(graph(found.x.astype(float)))  # the specification, in float64
            assert case.contains(y)


def test_robustness_of_a_linear_classifier() -> None:
    """w.x = x0 - x1 at (1, 0): the label changes first at eps = 1/2, in a corner."""
    network = DeployedNetwork(sg.trace(lambda x: sg.linear(np.float32([[1, 0], [0, 1]]), None, x), (2,)))
    for eps, exists in ((Fraction(1, 2), True), (Fraction(49, 100), False)):
        (case,) = robustness([1.0, 0.0], 0, eps, 2).cases
        assert (attack(network, case) is not None) == exists
