"""Certificates with splits, from the search to the check; what trees prove beside what is true."""

from __future__ import annotations

import json
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from specgrad.bounds import certify
from specgrad.bounds.search.prove import NoCertificateError, prove
from specgrad.proof import check
from specgrad.proof.tree import Cut, Tree
from tree_subjects import executed, network, proven, stated

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_needs_splits_has_a_certificate(seed: int) -> None:
    graph, statement, certificate = proven(seed)
    checked = check(certificate, graph, statement)
    assert json.loads(certificate.text)["version"] == 3
    assert any(a.leaves > 1 for a in checked.cases[0].alternatives)
    rng = Random(seed)
    for a in checked.cases[0].alternatives:
        (row,), (limit,) = a.rows, a.limits
        for _ in range(200):
            y = executed(seed, [Fraction(float(np.float32(rng.uniform(-1, 1)))) for _ in range(2)], Fraction)
            assert sum(c * v for c, v in zip(row, y, strict=True)) - limit >= a.margin > 0


def test_a_tree_may_be_cut_further_by_the_prover() -> None:
    graph, statement, _ = proven(0)
    whole = ((((0, 1), Tree()),),)  # one leaf, which is not enough
    with pytest.raises(NoCertificateError, match="not excluded at the leaf the whole box"):
        prove(graph, statement, trees=whole, refine=False)
    certificate = prove(graph, statement, trees=whole, seconds=1e9)
    assert check(certificate, graph, statement).cases[0].alternatives[0].leaves > 1


def test_what_does_not_hold_has_none() -> None:
    graph = network(0)
    false = stated(0, Fraction(-1, 4))
    with pytest.raises(NoCertificateError):
        prove(graph, false, trees=((((0, 1), Tree()),),), seconds=2)
    with pytest.raises(NoCertificateError, match="counterexample"):
        prove(graph, false)


def test_a_wrong_tree_is_an_error_with_its_part() -> None:
    graph, statement, _ = proven(0)
    tree = Tree()
    tree.divide(0, Cut(graph.input_positions[0], 0, 7.0))
    with pytest.raises(NoCertificateError, match=r"part 0 is cut at 7.0 of input 0, where it has -1.0 to 1.0"):
        prove(graph, statement, trees=((((0, 1), tree),),))


def test_alternatives_of_several_rows() -> None:
    graph, statement = network(1), stated(1, Fraction(1, 8), several=True)
    verdict = certify(graph, statement, seconds=1e9)
    if verdict.verdict == "holds":
        certificate = prove(graph, statement, trees=verdict.trees, seconds=1e9)
        assert check(certificate, graph, statement).margin > 0
