"""Nodes without axes, inside a network and at its end: NumPy makes bare numbers of them, and PyTorch no second axis."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import certify
from specgrad.bounds.search.certificates.prove import prove
from specgrad.proof.files.certificate import check
from specgrad.properties.property import Alternative, Case, Property

pytest.importorskip("torch")
pytest.importorskip("flint")

FEW, MANY = 4, 20  # inputs: those of few are cut


def total(x: Any) -> Any:
    return sg.sum(x) / x.shape[0]


NETWORKS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "a relu of a sum, twice": (lambda x: sg.relu(total(x)) - total(x) * 0.5, 0),
    "a relu behind an axis that was added": (lambda x: sg.relu(sg.reshape(total(x), (1,))) - total(x), 0),
    "a size": (lambda x: sg.abs(total(x)), 0),
    "both signs": (lambda x: sg.relu(total(x)) - sg.relu(-total(x)), -1),
    "limits": (lambda x: sg.clamp(total(x), -0.5, 0.5), -1),
    "a curve": (lambda x: sg.tanh(total(x)), -1),
}
"""With a number that the least value on -1..1 is not below."""
STEPS: dict[str, Callable[[Any], Any]] = {
    "floor": sg.floor,
    "sign": sg.sign,
    "product": lambda z: sg.mul(z, sg.relu(z)),
    "maximum": lambda z: sg.maximum(z, -z),
}


def stays_above(cells: int, limit: Fraction) -> Property:
    ends = (Fraction(-1),) * cells, (Fraction(1),) * cells
    return Property(cells, 1, (Case(*ends, (Alternative(np.ones((1, 1)), (limit,)),)),))


@pytest.mark.parametrize("cells", [FEW, MANY])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_has_no_axes_is_bounded_cut_and_certified(name: str, cells: int) -> None:
    network, least = NETWORKS[name]
    graph = sg.trace(network, (cells,))
    assert any(node.shape == () for node in graph.nodes)
    least = least if cells == FEW else -1  # which needs no slopes but the usual ones
    claim = stays_above(cells, Fraction(least) - Fraction(1, 20))
    answer = certify(graph, claim, seconds=60)
    assert answer.verdict == "holds"
    proof = prove(graph, claim, seconds=60, trees=answer.trees)
    assert 0 < check(proof.text, proof.packed, graph, claim).margin <= Fraction(21, 20)
    assert certify(graph, stays_above(cells, Fraction(2)), seconds=60).verdict == "violated"


@pytest.mark.parametrize("cells", [FEW, MANY])
@pytest.mark.parametrize("name", STEPS)
def test_what_has_no_rule_in_certificates_is_bounded(name: str, cells: int) -> None:
    graph = sg.trace(lambda x: STEPS[name](total(x)), (cells,))
    assert certify(graph, stays_above(cells, Fraction(-3)), seconds=60).verdict == "holds"


def test_a_network_of_steps_alone_has_no_gradient_to_follow() -> None:
    """Only attacks that start at random find what breaks it; PyTorch says that nothing requires a gradient."""
    graph = sg.trace(lambda x: sg.linear(np.float32([[1, 2, 1]]), None, sg.sign(x)), (3,))
    assert certify(graph, stays_above(3, Fraction(-5)), seconds=60).verdict == "holds"
    assert certify(graph, stays_above(3, Fraction(-3)), seconds=60).verdict == "violated"
