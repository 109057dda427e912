"""Certificates with splits, from the search to the check; what trees prove beside what is true."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest
from safetensors.numpy import save

import second_checker as second
import specgrad as sg
from second_network import Network
from specgrad.bounds import certify
from specgrad.bounds.search.certificates.prove import NoCertificateError, prove
from specgrad.proof import check
from specgrad.proof.api import Certificate
from specgrad.proof.base.executions import executions
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.base.split_tree import Split, Tree
from specgrad.proof.batched.tree_replay import TreeProof, arrays_of
from specgrad.proof.files.certificate import proven_leaves, sealed
from specgrad.proof.files.entries import read_arrays, read_json
from specgrad.properties.property import Alternative, Case, Property
from tree_subjects import executed, network, proven, stated

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_needs_splits_has_a_certificate(seed: int) -> None:
    graph, statement, certificate = proven(seed)
    checked = check(certificate, graph, statement)
    assert json.loads(certificate.text)["version"] == 4
    assert any(a.leaves > 1 for a in checked.cases[0].alternatives)
    rng = Random(seed)
    for a in checked.cases[0].alternatives:
        (row,), (limit,) = a.rows, a.limits
        for _ in range(200):
            y = executed(seed, [Fraction(float(np.float32(rng.uniform(-1, 1)))) for _ in range(2)], Fraction)
            assert sum(c * v for c, v in zip(row, y, strict=True)) - limit >= a.margin > 0


def test_an_output_without_axes_has_a_certificate() -> None:
    """NumPy makes a bare number of an array of rank 0."""
    weights = [[1, 1], [1, -1], [-1, 2]]
    graph = sg.trace(lambda x: sg.sum(sg.max_pool(sg.linear(np.float32(weights), None, x), (2,), stride=1)), (2,))
    assert graph.nodes[-1].shape == ()
    limit = Fraction(-7, 10)
    box = (Fraction(-1),) * 2, (Fraction(1),) * 2
    statement = Property(2, 1, (Case(*box, (Alternative(np.array([[1.0]]), (limit,)),)),))
    (proof,) = check(prove(graph, statement), graph, statement).cases[0].alternatives
    assert proof.leaves > 1
    rng = Random(0)
    for _ in range(500):
        x = [Fraction(rng.uniform(-1, 1)) for _ in range(2)]
        a, b, c = (sum(w * v for w, v in zip(row, x, strict=True)) for row in weights)
        assert max(a, b) + max(b, c) - limit >= proof.margin > 0


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
    tree.divide(0, Split(graph.input_positions[0], 0, 7.0))
    with pytest.raises(NoCertificateError, match=r"part 0 is cut at 7.0 of input 0, where it has -1.0 to 1.0"):
        prove(graph, statement, trees=((((0, 1), tree),),))


def test_alternatives_of_several_rows() -> None:
    graph, statement = network(1), stated(1, Fraction(1, 8), several=True)
    verdict = certify(graph, statement, seconds=1e9)
    if verdict.verdict == "holds":
        certificate = prove(graph, statement, trees=verdict.trees, seconds=1e9)
        assert check(certificate, graph, statement).margin > 0


# --- roundings of a part ----------------------------------------------------------------------------------------------


def far() -> tuple[sg.Graph, Property]:
    """y = relu(x) through a sum, from 0 to 2**20: y > -1/1000, and roundings of large numbers are 1/8."""
    one = np.float32([[1]])
    graph = sg.trace(lambda x: sg.linear(one, np.float32([0]), sg.relu(sg.linear(one, np.float32([0]), x))), (1,))
    never = Alternative(np.array([[1.0]]), (Fraction(-1, 1000),))
    return graph, Property(1, 1, (Case((Fraction(0),), (Fraction(2**20),), (never,)),))


def test_roundings_are_counted_on_the_box_of_a_part() -> None:
    graph, statement = far()
    with pytest.raises(NoCertificateError, match="not excluded at the leaf the whole box"):
        prove(graph, statement, trees=((((0,), Tree()),),), refine=False)
    certificate = prove(graph, statement, trees=((((0,), Tree()),),), seconds=1e9)
    (entry,) = json.loads(certificate.text)["cases"][0]["trees"]
    parts = read_arrays(certificate.packed)[entry["anew"]]
    leaves = check(certificate, graph, statement).cases[0].alternatives[0].leaves
    assert 0 < len(parts) < leaves < 60
    data, arrays = read_json(certificate.text), read_arrays(certificate.packed)
    data["cases"][0]["trees"][0]["anew"] = None
    packed = save({name: a for name, a in arrays.items() if name != entry["anew"]})
    with pytest.raises(ReplayError, match=r"not excluded at the leaf X_0 <= .* the proven margin is -0\.[1-5]"):
        check(Certificate(sealed(data, packed), packed), graph, statement)


def test_the_margin_of_a_part_is_that_of_its_own_roundings() -> None:
    """From 0 to 1 each of two sums is off by at most (1 + u)**3 - 1 of 1, u = 2**-24, and a little more."""
    graph, _ = far()
    tree = Tree()
    tree.divide(0, Split(graph.input_positions[0], 0, 1.0))
    read = next(i for i, node in enumerate(graph.nodes) if node.op.name == "relu")
    weights = np.ones((2, 1), np.int32)
    rows = [(np.array([[1]]), (Fraction(-1, 1000),))]
    for anew, least, most in (([], -1 / 2, -1 / 16), ([1], 0.001 - 8 * 2.0**-24, 0.001)):
        proof = TreeProof(*arrays_of(tree), weights, (graph.nodes[read].operands()[0],), anew=np.int32(anew))
        box = np.float32([0]), np.float32([2**20])
        first, second = proven_leaves(graph, box, proof, rows, executions(None), lambda: None)
        assert least < min(first.margins or ()) < most
        assert -1 / 2 < min(second.margins or ()) < 1  # as before: what is anew is the other part


@pytest.mark.parametrize("parts", [[3], [-1], [2, 1], [1, 1]])
def test_parts_that_are_none_are_refused(parts: list[int]) -> None:
    graph, _ = far()
    tree = Tree()
    tree.divide(0, Split(graph.input_positions[0], 0, 1.0))
    proof = TreeProof(*arrays_of(tree), np.ones((2, 1), np.int32), anew=np.int32(parts))
    given = graph, (np.float32([0]), np.float32([2])), proof, [(np.array([[1]]), (Fraction(0),))], executions(None)
    with pytest.raises(ReplayError, match="parts that are bounded again must be parts of the tree, in order"):
        list(proven_leaves(*given, lambda: None))


def test_a_second_checker_bounds_the_same_parts_anew(tmp_path: Path) -> None:
    graph, statement = far()
    certificate = prove(graph, statement, trees=((((0,), Tree()),),), seconds=1e9)
    sg.save(graph, tmp_path / "net.json")
    ((theirs,),) = second.checked(Network(*second.load(tmp_path / "net.json")), certificate.text, certificate.packed)
    assert 0 < theirs < Fraction(1, 1000)


# --- outputs that do not vary -----------------------------------------------------------------------------------------


def hard_sigmoid() -> sg.Graph:
    """clamp(x + 3, 0, 6)/6, of which nothing varies from 3 on but its rounding."""
    one, three = np.float32([[1]]), np.float32([3])
    return sg.trace(lambda x: sg.clamp(sg.relu(sg.linear(one, three, x)), 0, 6) * np.float32(1 / 6), (1,))


def not_above(limit: Fraction, low: int, high: int) -> Property:
    """Never y <= limit on a box."""
    return Property(1, 1, (Case((Fraction(low),), (Fraction(high),), (Alternative(np.ones((1, 1)), (limit,)),)),))


def cut_at_4(graph: sg.Graph) -> Tree:
    """Beyond 4 the output is a constant, and there a relu is cut that nothing depends on."""
    tree = Tree()
    _, beyond = tree.divide(0, Split(graph.input_positions[0], 0, 4.0))
    tree.divide(beyond, Split(next(n.operands()[0] for n in graph.nodes if n.op.name == "relu"), 0, 0.0))
    return tree


@pytest.mark.parametrize("given", [False, True])
def test_an_output_that_does_not_vary_is_proven_by_its_ball(given: bool) -> None:
    """float32(1/6)*6 is 1 + 2**-25, and one rounding makes 1 of it."""
    graph, statement = hard_sigmoid(), not_above(Fraction(1) - Fraction(1, 2**20), 4, 5)
    tree = Tree()
    tree.divide(0, Split(graph.input_positions[0], 0, 4.5))
    certificate = prove(graph, statement, trees=((((0,), tree),),) if given else None)
    assert 0 < check(certificate, graph, statement).margin < Fraction(1, 2**19)


def test_an_output_that_does_not_vary_at_a_leaf_needs_no_slopes() -> None:
    graph, statement = hard_sigmoid(), not_above(Fraction(-1, 8), -1, 5)
    certificate = prove(graph, statement, trees=((((0,), cut_at_4(graph)),),), refine=False)
    assert check(certificate, graph, statement).cases[0].alternatives[0].leaves == 3


def test_an_output_that_does_not_vary_and_is_open_is_said_to_be() -> None:
    graph, statement = hard_sigmoid(), not_above(1 - Fraction(1, 2**26), 4, 5)
    for trees in (None, ((((0,), Tree()),),)):
        with pytest.raises(NoCertificateError, match=r"not excluded|does not prove"):
            prove(graph, statement, trees=trees, seconds=5)
