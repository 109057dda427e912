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

import drawn_windows
import leaves
import second_checker as second
import specgrad as sg
import test_forged_windows
import tree_mutants as mutants
import tree_subjects
from networks import network as random_network
from second_network import Network, RefusedError
from specgrad.bounds import certify
from specgrad.bounds.search.certificates.prove import prove
from specgrad.proof.api import Certificate
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.base.split_tree import Split, Tree
from specgrad.proof.exact.replay import ExecutionModel, Replay, Slopes
from specgrad.proof.exact.rounding_counts import RegionPart
from specgrad.proof.files.certificate import SCALE, CaseProof, Proof, check, encode, sealed
from specgrad.proof.files.entries import read_arrays, read_json
from specgrad.properties.property import Alternative, Case, Property

OWN = Fraction(1, 10**4)  # of networks whose outputs are some tens
KNOWN = {"input", "constant", "contract", "add", "relu", "max_pool", "conv", "reshape", "clamp"}


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
    (bound,) = sg.bounds.crown(
        given.graph, sg.bounds.Box(given.low, given.high), objective=given.row[None].astype(float)
    ).low
    away = Alternative(given.row[None].astype(float), (Fraction(float(bound)) - Fraction(1, 10),))
    statement = Property(len(low), 2, (Case(tuple(low), tuple(high), (away,)),))
    assert certify(given.graph, statement, seconds=60).verdict == "holds"
    proof = prove(given.graph, statement, seconds=60)
    check(proof.text, proof.packed, given.graph, statement)
    theirs = margins(network(given.graph, tmp_path), proof.text, proof.packed)
    assert isinstance(theirs, list), theirs


WINDOWED = range(12)


def test_both_have_windows_of_every_kind() -> None:
    graphs = [leaves.windowed(seed) for seed in WINDOWED]
    assert drawn_windows.kinds(graphs, ("max_pool",)) >= drawn_windows.KINDS | drawn_windows.RANKS


@pytest.mark.parametrize("seed", WINDOWED)
def test_both_accept_windows_of_every_kind(seed: int, tmp_path: Path) -> None:
    """On the whole box with slopes of a file, or on the halves of one input; margins are the same but for roundings."""
    given = leaves.case(seed, width=0.1, of=leaves.windowed)
    statement = question(given, Fraction(1, 10))
    proof = by_halves(given.graph, statement) if seed % 2 else on_the_box(given.graph, statement)
    ours = check(proof.text, proof.packed, given.graph, statement).margins[0][0]
    theirs = margins(network(given.graph, tmp_path), proof.text, proof.packed)
    assert isinstance(theirs, list), theirs
    assert abs(theirs[0][0] - ours) < OWN


@pytest.mark.parametrize("forged", [test_forged_windows.whole_box, test_forged_windows.in_a_tree])
def test_the_second_refuses_forged_windows(forged: Any, tmp_path: Path) -> None:
    graph, case = forged(test_forged_windows.LARGEST + 2)
    net = network(graph, tmp_path)
    assert isinstance(margins(net, *encode(graph, [case])), list)
    graph, case = forged(2)
    assert "not positive" in margins(net, *encode(graph, [case]))


def question(given: leaves.Case, away: Fraction) -> Property:
    """That the objective of a case stays above what crown proves, less something."""
    low, high = ([Fraction(float(v)) for v in end.ravel()] for end in (given.low, given.high))
    (bound,) = sg.bounds.crown(
        given.graph, sg.bounds.Box(given.low, given.high), objective=given.row[None].astype(float)
    ).low
    never = Alternative(given.row[None].astype(float), (Fraction(float(bound)) - away,))
    return Property(len(low), 2, (Case(tuple(low), tuple(high), (never,)),))


@pytest.mark.parametrize(("seed", "by_tree"), [*((seed, False) for seed in range(8)), (0, True), (1, True)])
def test_both_accept_functions(seed: int, by_tree: bool, tmp_path: Path) -> None:
    """tanh, sigmoid, exp and others with lines of a file, and with a checker's own on leaves of cuts of inputs."""
    given = leaves.case(seed, width=0.1, of=leaves.curved)
    statement = question(given, Fraction(1, 100) * (1 + sum(abs(int(v)) for v in given.row)))
    proof = by_halves(given.graph, statement) if by_tree else on_the_box(given.graph, statement)
    check(proof.text, proof.packed, given.graph, statement)
    theirs = margins(network(given.graph, tmp_path), proof.text, proof.packed)
    assert isinstance(theirs, list), theirs


@pytest.mark.parametrize(("seed", "by_tree"), [(1, False), (6, True)])
def test_both_accept_smooth_maxima(seed: int, by_tree: bool, tmp_path: Path) -> None:
    """Planes are the checkers' own, the same by the page: margins differ by what roundings are counted."""
    given = leaves.case(seed, width=0.2, of=leaves.smoothed)
    statement = question(given, Fraction(1, 100))
    proof = by_halves(given.graph, statement) if by_tree else on_the_box(given.graph, statement)
    ours = check(proof.text, proof.packed, given.graph, statement).margins[0][0]
    theirs = margins(network(given.graph, tmp_path), proof.text, proof.packed)
    assert isinstance(theirs, list), theirs
    assert abs(theirs[0][0] - ours) < 10 * OWN


def on_the_box(graph: sg.Graph, statement: Property) -> Any:
    """Without a tree, with the slopes of a file."""
    from specgrad.bounds.search.certificates.find_slopes import certificate

    return Certificate(*certificate(graph, statement))


def by_halves(graph: sg.Graph, statement: Property) -> Any:
    """The widest input in two."""
    case = statement.cases[0]
    tree, widths = Tree(), [b - a for a, b in zip(case.low, case.high, strict=True)]
    cell = widths.index(max(widths))
    tree.divide(0, Split(0, cell, float(np.float32(float(case.low[cell] + case.high[cell]) / 2))))
    return prove(graph, statement, trees=[[([0], tree)]], seconds=60)


def test_a_wrong_plane_is_refused_by_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in ours: a padded tap that is not there, which bounds y from below by more than y."""
    import test_smooth

    test_smooth.entropy_of_other_taps(monkeypatch)
    graph = sg.trace(lambda x: sg.reshape(sg.smooth_max_pool(x, (4,), beta=1.0), (1, 1)), (1, 1, 4))
    low, high = [Fraction(0)] * 4, [Fraction(1, 2)] * 4
    never = Alternative(np.array([[1.0]]), (Fraction(3, 2),))  # y is log(4) = 1.386 where all taps are 0
    statement = Property(4, 1, (Case(tuple(low), tuple(high), (never,)),))
    proof = on_the_box(graph, statement)
    check(proof.text, proof.packed, graph, statement)
    assert "not positive" in margins(network(graph, tmp_path), proof.text, proof.packed)


def test_both_accept_relus_bounded_together(tmp_path: Path) -> None:
    """Vectors of pieces, whatever they are: both bound the same sum."""
    from certificate_mutants import subjects

    for subject in subjects()[2::3]:
        packed = save(subject.arrays)
        text = sealed(subject.data, packed)
        assert subject.data["cases"][0]["alternatives"][1]["pieces"]
        ours = check(text, packed, subject.graph).margins
        theirs = margins(network(subject.graph, tmp_path), text, packed)
        assert isinstance(theirs, list), theirs
        for a, b in zip(ours[0], theirs[0], strict=True):
            assert abs(a - b) < OWN


def counts(graph: sg.Graph, folder: Path) -> list[tuple[int, int]]:
    """R of every linear node, by ours and by the second; nothing where one of them refuses."""
    units = {"exp": ("6", "y"), "log": ("5", "y"), "tanh": ("8", "y"), "sigmoid": ("2", "1"), "hardswish": ("7/2", "x")}
    x = np.zeros(graph.nodes[graph.input_positions[0]].shape, np.float32)
    arithmetic = {"execution": "fused", "rounding": "nearest", "functions": units}
    try:
        ours = Replay(
            graph, x, x, {}, (), ExecutionModel(functions={k: (Fraction(n), of) for k, (n, of) in units.items()})
        )
        theirs = second.Box(network(graph, folder), [(Fraction(0), Fraction(0))] * x.size, arithmetic, [])
    except (ReplayError, RefusedError, sg.UnsupportedError):
        return []
    return [(r.sum.roundings.total, theirs.met[i]) for i, r in enumerate(ours.ranges) if r.sum is not None]


def test_both_count_the_same_roundings(tmp_path: Path) -> None:
    """By what the page says of merged parts, on networks of the hunts."""
    graphs = [make(seed) for seed in range(4) for make in (leaves.network, leaves.curved, leaves.smoothed)]
    drawn = (random_network(seed).graph for seed in range(60))
    graphs += [g for g in drawn if len(g.input_positions) == len(g.output_positions) == 1]
    pooled = lambda g: any(n.op.name == "avg_pool" for n in g.nodes)  # more windows may read a cell for us than do
    pairs = [(*pair, pooled(graph)) for graph in graphs for pair in counts(graph, tmp_path)]
    assert len(pairs) > 100
    assert [pair for pair in pairs if pair[0] < pair[1] or (pair[0] != pair[1] and not pair[2])] == []
    assert sum(a != b for a, b, _ in pairs) < 3


def side_by_side(seed: int) -> sg.Graph:
    """Values of one layer laid side by side, constants and copies among them, and summed: all linear but a few."""
    rng = np.random.default_rng(seed)

    def numbers(*shape: int) -> Any:
        return rng.integers(1, 4, shape).astype(np.float32)

    def steps(x: Any) -> Any:
        values = [x, sg.relu(x[:9]), sg.relu(x[3:])]
        for _ in range(rng.integers(3, 9)):
            y, z = (values[-1 - rng.integers(min(4, len(values)))] for _ in range(2))
            n = y.shape[0]
            kinds = [
                lambda y, z, n: sg.linear(numbers(n // 2 + 1, n), numbers(n // 2 + 1) if rng.integers(2) else None, y),
                lambda y, z, n: sg.sum(y, (0,), keepdims=True),
                lambda y, z, n: y + (z if z.shape == y.shape else numbers(n)),
                lambda y, z, n: y[: 1 + n // 2] * np.float32(3),
                lambda y, z, n: sg.broadcast(y[:1], (3,)),
                lambda y, z, n: sg.relu(y) if rng.integers(3) == 0 else sg.neg(y),
                *[lambda y, z, n: sg.concat([(y, z, numbers(2))[k] for k in rng.integers(0, 3, 3)] + [y], 0)] * 4,
            ]
            values.append(kinds[rng.integers(len(kinds))](y, z, n))
        return sg.linear(numbers(1, values[-1].shape[0]), None, values[-1])

    return sg.trace(steps, (12,))


def test_both_count_what_lies_side_by_side(tmp_path: Path) -> None:
    pairs = [pair for seed in range(30, 70) for pair in counts(side_by_side(seed), tmp_path)]
    assert len(pairs) > 200
    assert [pair for pair in pairs if pair[0] != pair[1]] == []


def added(*values: Any) -> Any:
    return sg.sum(sg.concat(list(values), 0), (0,), keepdims=True)


def dense(x: Any, out: int = 1) -> Any:
    return sg.linear(np.ones((out, x.shape[0]), np.float32), None, x)


ASIDE: dict[str, tuple[Any, int]] = {
    "a stored branch": (lambda x: added(dense(x), dense(x)), 21),
    "two sums": (lambda x: added(dense(sg.relu(x[:5])), dense(sg.relu(x[5:]))), 11),
    "sums of sums": (
        lambda x: added(added(*map(dense, (sg.relu(x), sg.relu(x[1:])))), dense(dense(dense(x, 10), 10))),
        239,
    ),
    "numbers": (lambda x: dense(dense(x, 10)) + dense(sg.concat([x, np.ones(10, np.float32)], 0)), 51),
}
"""Networks of 10 inputs, and R of the output. A stored branch: 10, and 10 terms and a coefficient beside it."""


@pytest.mark.parametrize("name", ASIDE)
def test_both_count_terms_from_beside(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second counted fewer where a part had the terms of one argument of a concatenation alone, planted again."""
    net, most = ASIDE[name]
    graph = sg.trace(net, (10,))
    pairs = counts(graph, tmp_path)
    assert pairs[-1] == (most, most)
    assert all(a == b for a, b in pairs)
    monkeypatch.setattr(second.Part, "foreign", lambda part, n: n * part.others)
    ours, fewer = counts(graph, tmp_path)[-1]
    assert fewer < ours == most


def test_one_branch_alone_is_refused_by_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in ours: of two sums side by side that are added up, terms of one. 199 of 200 may be lost, one after
    the other onto a 1; that they are not was certified.
    """
    n, lost = 100, Fraction(2**10 - 1, 2**34)
    graph = sg.trace(lambda x: added(dense(sg.relu(x[:n])), dense(sg.relu(x[n:]))), (2 * n,))
    x, stored = np.float32([1, *[lost] * (2 * n - 1)]), np.float32(0)
    for v in x:
        stored += v
    assert stored == 1
    ones = {i: np.full(v.shape, SCALE, np.int16) for i, v in enumerate(graph.nodes) if v.op.name == "relu"}
    proof = Proof((1,), {i: Slopes(v, v, SCALE) for i, v in ones.items()})
    text, packed = encode(graph, [CaseProof(x, x, ((np.array([[1]], dtype=object), (Fraction(1),), proof),))])
    with monkeypatch.context() as planted:
        planted.setattr(RegionPart, "foreign", lambda part, often: often * part.others)
        check(text, packed, graph)
    assert "not positive" in margins(network(graph, tmp_path), text, packed)
    with pytest.raises(ReplayError, match="not excluded"):
        check(text, packed, graph)


def test_ours_counts_no_roundings_less_through_windows(tmp_path: Path) -> None:
    """It takes the taps of a window for the windows that read one cell, which are no more."""
    pairs = [pair for seed in WINDOWED for pair in counts(leaves.windowed(seed), tmp_path)]
    assert len(pairs) > 20
    assert [pair for pair in pairs if pair[0] < pair[1]] == []
    assert sum(a > b for a, b in pairs) < 5


def compared(seeds: range, folder: Path) -> Counter[str]:
    """How mutants end: for ours, and for the second checker."""
    known = [s for s in mutants.subjects() if {n.op.name for n in s.graph.nodes} <= KNOWN]
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
        if ours == "valid" and isinstance(said, str):
            ends[f"alarm: {seed}: {said}"] += 1
        ends[ours] += 1
    return ends


def test_no_forged_tree_is_valid_for_ours_alone(tmp_path: Path) -> None:
    ends = compared(range(20), tmp_path)
    assert not [end for end in ends if end.startswith("alarm")]
    assert ends["valid"] > 3 < ends["refused"]


@pytest.mark.slow
def test_no_forged_tree_of_many_is_valid_for_ours_alone(tmp_path: Path) -> None:
    ends = compared(range(20, 3000), tmp_path)
    assert not [end for end in ends if end.startswith("alarm")]


def test_a_checker_that_takes_the_wrong_side_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in ours: cells of nodes that are cut are taken for the other side."""
    from specgrad.proof.batched import tree_replay

    usual = tree_replay.Leaf.sides
    monkeypatch.setattr(tree_replay.Leaf, "sides", lambda self, graph: [(c, 1 - s) for c, s in usual(self, graph)])
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


@pytest.mark.parametrize("case", range(3))
def test_one_value_for_all_readers_is_refused_by_the_second(
    case: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The false proofs of ERRATA.md, planted again in ours: matrix products that are multiplied out."""
    import test_multiplied_out as out

    name, mistake = out.MISTAKES[case]
    graph, claim = sg.trace(out.NETWORKS[name][1], (1,)), out.stays_above(1, Fraction(-1, 1000))
    mistake(monkeypatch)
    proof = prove(graph, claim, seconds=60)
    check(proof.text, proof.packed, graph, claim)
    assert "not positive" in margins(network(graph, tmp_path), proof.text, proof.packed)
