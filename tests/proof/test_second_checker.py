"""Two checkers, one format: what ours calls valid, the one that was written from the page alone calls valid too.

Where limits are such that ours grants barely 0, the second may be short by what its more cautious count of roundings
costs: OWN. More than that is an alarm. What only ours refuses is fine: it rounds outward to whole numbers.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

import leaves
import second_checker as second
import specgrad as sg
import tree_mutants as mutants
import tree_subjects
from second_network import Network, RefusedError
from specgrad.bounds import certify
from specgrad.bounds.search.prove import prove
from specgrad.proof.certificate import check, sealed
from specgrad.proof.numbers import ReplayError
from specgrad.proof.read import read_arrays, read_json
from specgrad.properties.property import Alternative, Case, Property

OWN = Fraction(1, 10**4)  # of networks whose outputs are some tens
KNOWN = {"input", "constant", "contract", "add", "relu", "max_pool", "conv", "reshape"}


def network(graph: sg.Graph, folder: Path) -> Network:
    sg.save(graph, folder / "net.json")
    return Network(*second.load(folder / "net.json"))


def margins(net: Network, text: bytes, packed: bytes, less: Fraction = Fraction(0)) -> Any:
    """Of the second checker, with limits that are less; or why it refuses."""
    data = read_json(text)
    for case in data["cases"]:
        for each in case["alternatives"]:
            each["limits"] = [str(Fraction(v) - less) for v in each["limits"]]
    try:
        return second.checked(net, sealed(data, packed), packed)
    except RefusedError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(3))
def test_both_accept_trees_that_certify_found(seed: int, tmp_path: Path) -> None:
    graph, statement, proof = tree_subjects.proven(seed)
    ours = check(proof.text, proof.packed, graph, statement).margins
    theirs = margins(network(graph, tmp_path), proof.text, proof.packed)
    assert [len(case) for case in theirs] == [len(case) for case in ours]
    for a, b in zip(ours[0], theirs[0], strict=True):
        assert abs(a - b) < OWN


def test_both_bound_parts_anew_alike(tmp_path: Path) -> None:
    graph, _, proof = tree_subjects.proven(1)
    data, arrays = read_json(proof.text), dict(read_arrays(proof.packed))
    (tree,) = data["cases"][0]["trees"]
    arrays["anew"], tree["anew"] = np.arange(1, len(arrays[tree["nodes"]]), 2, np.int32), "anew"
    packed = save(arrays)
    text, net = sealed(data, packed), network(graph, tmp_path)
    ours = check(text, packed, graph).margins[0]
    (theirs,), (before,) = margins(net, text, packed), margins(net, proof.text, proof.packed)
    assert theirs != before
    for a, b in zip(ours, theirs, strict=True):
        assert abs(a - b) < OWN


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 6])
def test_both_accept_proofs_on_whole_boxes_through_windows(seed: int, tmp_path: Path) -> None:
    """Convolutions, pools of each kind, residual sums: limits a little below what crown proves."""
    given = leaves.case(seed, width=0.1)
    low, high = ([Fraction(float(v)) for v in end.ravel()] for end in (given.low, given.high))
    (bound,) = sg.bounds.crown(given.graph, sg.bounds.Box(given.low, given.high), given.row[None].astype(float)).low
    away = Alternative(given.row[None].astype(float), (Fraction(float(bound)) - Fraction(1, 10),))
    statement = Property(len(low), 2, (Case(tuple(low), tuple(high), (away,)),))
    assert certify(given.graph, statement, seconds=60).verdict == "holds"
    proof = prove(given.graph, statement, seconds=60)
    check(proof.text, proof.packed, given.graph, statement)
    theirs = margins(network(given.graph, tmp_path), proof.text, proof.packed)
    assert isinstance(theirs, list) or "pieces" in theirs


def by_winners(subject: Any) -> bool:
    """Whether a tree cuts by winners of windows, which the second checker does not know."""
    return any("taps" in tree for case in subject.data["cases"] for tree in case["trees"])


def compared(seeds: range, folder: Path) -> Counter[str]:
    """How mutants end: for ours, and for the second checker."""
    known = [s for s in mutants.subjects() if {n.op.name for n in s.graph.nodes} <= KNOWN and not by_winners(s)]
    networks = [network(subject.graph, folder) for subject in known]
    ends: Counter[str] = Counter()
    for seed in seeds:
        subject, net = known[seed % len(known)], networks[seed % len(known)]
        text, packed = mutants.mutant(Random(seed), subject)
        try:
            check(text, packed, subject.graph, seconds=60)
            ours = "valid"
        except ReplayError:
            ours = "refused"
        said = margins(net, text, packed, OWN) if ours == "valid" else ""
        if ours == "valid" and isinstance(said, str) and "the entries" not in said:  # it has no winners
            ends[f"alarm: {seed}: {said}"] += 1
        ends[ours] += 1
    return ends


def test_no_forged_tree_is_valid_for_ours_alone(tmp_path: Path) -> None:
    ends = compared(range(60), tmp_path)
    assert not [end for end in ends if end.startswith("alarm")]
    assert ends["valid"] > 10 < ends["refused"]


@pytest.mark.slow
def test_no_forged_tree_of_many_is_valid_for_ours_alone(tmp_path: Path) -> None:
    ends = compared(range(60, 3000), tmp_path)
    assert not [end for end in ends if end.startswith("alarm")]


def test_a_checker_that_takes_the_wrong_side_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in ours: cells of nodes that are cut are taken for the other side."""
    from specgrad.proof import splits

    usual = splits.Leaf.sides
    monkeypatch.setattr(splits.Leaf, "sides", lambda self, graph: [(c, 1 - s) for c, s in usual(self, graph)])
    known = mutants.subject(1, "n")
    net = network(known.graph, tmp_path)
    alarms = 0
    for seed in range(40):
        text, packed = mutants.mutant(Random(seed), known)
        try:
            check(text, packed, known.graph, seconds=60)
        except ReplayError:
            continue
        alarms += isinstance(margins(net, text, packed, OWN), str)
    assert alarms


def test_one_value_for_all_readers_is_refused_by_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The false proof of ERRATA.md, planted again in ours: matrix products that are multiplied out."""
    import test_multiplied_out as out

    graph, claim = sg.trace(out.NETWORKS["two products"][1], (1,)), out.stays_above(1, Fraction(-1, 1000))
    out.one_cell(monkeypatch)
    proof = prove(graph, claim, seconds=60)
    check(proof.text, proof.packed, graph, claim)
    assert "not positive" in margins(network(graph, tmp_path), proof.text, proof.packed)
