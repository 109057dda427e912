"""The checker that is extracted from its proof: it accepts what ours accepts, and nothing that is false.

make -C verified && python -m pytest tests/proof/test_proven.py
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")
pytest.importorskip("safetensors")
pytest.importorskip("torch")

from safetensors.numpy import load, save

import certificate_mutants
import specgrad as sg
import tree_mutants
import tree_subjects
from certificate_mutants import Subject, contradicted
from proven_program import needed
from slices import slices
from specgrad.bounds.search.certificates.prove import prove
from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.batched import activations
from specgrad.proof.exact.replay import Replay
from specgrad.proof.extracted import encode, run_checker
from specgrad.proof.extracted.scalar_network import ScalarNetwork
from specgrad.proof.files.certificate import (
    Checked,
    ExcludedAlternative,
    OutOfTimeError,
    Proven,
    check,
    network_digest,
    read_certificate,
    sealed,
)
from specgrad.properties.property import Alternative, Case, Property


def checked(text: bytes, packed: bytes, graph: sg.Graph, statement: Any = None, *, seconds: float = 60.0) -> Checked:
    """As `check`, by the proven checker; it grants no margins, so they are 1."""
    run_checker.check_proven(text, packed, graph, statement, seconds=seconds)
    arithmetic, cases = read_certificate(text, packed, graph, statement)
    found = []
    for case in cases:
        each = [
            ExcludedAlternative(tuple(map(tuple, r.tolist())), limits, Fraction(1))
            for r, limits, _ in case.alternatives
        ]
        found.append(Proven(case.low, case.high, tuple(each)))
    return Checked(network_digest(graph), tuple(found), arithmetic)


def accepted(*args: Any, **named: Any) -> bool:
    try:
        checked(*args, **named)
    except ReplayError:
        return False
    return True


# --- what it accepts --------------------------------------------------------------------------------------------------


@needed
@pytest.mark.parametrize("seed", range(2))
def test_it_accepts_trees_that_certify_found(seed: int) -> None:
    graph, statement, proof = tree_subjects.proven(seed)
    assert accepted(proof.text, proof.packed, graph, statement)


def pooled(x: Any) -> Any:
    """A residual sum, windows with padding, a mean, and a second layer."""
    rng = np.random.default_rng(3)
    w, v = (np.float32(rng.integers(-8, 9, (2, c, 3)) / 8) for c in (1, 2))
    r = sg.relu(sg.conv(w, np.float32([0.25, -0.5]), x, padding=1))
    z = sg.relu(sg.conv(v, None, r, padding=1) + r)
    m = sg.avg_pool(sg.max_pool(z, (2,), stride=(1,)), (2,), stride=(1,))
    return sg.linear(np.float32(rng.integers(-8, 9, (2, 8)) / 8), np.float32([2, -1]), sg.reshape(m, (8,)))


@needed
def test_it_accepts_and_refuses_by_the_limit() -> None:
    """Sums of layers, windows and means: a limit that the network reaches is refused, one far below is accepted."""
    graph = deployed_graph(sg.trace(pooled, (1, 1, 6)))
    x = np.float32([0.5, -0.25, 0.75, 0, 1, -1]).reshape(1, 1, 6)
    reached = Fraction(float(np.asarray(graph(x)).ravel()[0]))
    ends = [tuple(Fraction(float(v)) + d for v in x.ravel()) for d in (Fraction(-1, 64), Fraction(1, 64))]
    alternative = Alternative(np.array([[1.0, 0.0]]), (reached - 3,))
    proof = prove(graph, Property(6, 2, (Case(*ends, (alternative,)),)))
    assert accepted(proof.text, proof.packed, graph)
    data = json.loads(proof.text)
    data["cases"][0]["alternatives"][0]["limits"] = [str(reached)]
    data.pop("digest")
    assert not accepted(sealed(data, proof.packed), proof.packed, graph)


@needed
@pytest.mark.parametrize("kinds", ["w", "iw"])
def test_it_has_cuts_by_winners(kinds: str) -> None:
    """Of windows with padding, with multipliers of taps that lose; a limit that is reached is refused."""
    found = (tree_mutants.subject(seed, kinds) for seed in range(20))
    subject = next(s for s in found if s.arrays.get("0.tree.0.pulls", np.zeros(1)).any())
    packed = save(subject.arrays)
    assert accepted(sealed(subject.data, packed), packed, subject.graph)
    middle = subject.run([Fraction(0)] * 2, Fraction)
    subject.data["cases"][0]["alternatives"][1]["limits"] = [str(middle[0])]
    assert not accepted(sealed(subject.data, packed), packed, subject.graph)


KINKED = {  # with the least and the greatest value for x from -1 to 8
    "clamp": (lambda x: sg.clamp(x, -0.4, 0.75), Fraction(-0.4), Fraction(3, 4)),
    "relu6": (sg.relu6, Fraction(0), Fraction(6)),
    "leaky_relu": (lambda x: sg.leaky_relu(x, 0.1), Fraction(-0.1), Fraction(8)),
    "abs": (lambda x: sg.abs(x), Fraction(0), Fraction(8)),
}


@needed
@pytest.mark.parametrize("name", KINKED)
@pytest.mark.parametrize("row", [1, -1])
def test_it_has_functions_with_kinks(name: str, row: int) -> None:
    """A limit that some execution reaches is refused, whatever the slopes; one below is accepted."""
    f, least, most = KINKED[name]
    graph = deployed_graph(sg.trace(lambda x: f(x * np.float32([1])), (1,)))
    reached = least if row > 0 else -most
    alternative = Alternative(np.array([[float(row)]]), (reached - Fraction(1, 10**5),))
    proof = prove(graph, Property(1, 1, (Case((Fraction(-1),), (Fraction(8),), (alternative,)),)))
    assert accepted(proof.text, proof.packed, graph)
    data, arrays = json.loads(proof.text), load(proof.packed)
    data["cases"][0]["alternatives"][0]["limits"] = [str(reached)]
    data.pop("digest")
    assert not accepted(sealed(data, proof.packed), proof.packed, graph)
    for number in (-2048, -1, 0, 1024, 4096):
        packed = save({key: np.full_like(a, number) if "slopes" in key else a for key, a in arrays.items()})
        assert not accepted(sealed(data, packed), packed, graph)


@pytest.mark.parametrize("name", KINKED)
def test_functions_with_kinks_are_the_operators(name: str) -> None:
    """Over rationals, at kinks and beside them, by an implementation of our own."""
    graph = deployed_graph(sg.trace(KINKED[name][0], (1,)))
    own = {
        "clamp": lambda x: min(max(x, Fraction(-0.4)), Fraction(3, 4)),
        "relu6": lambda x: min(max(x, Fraction(0)), Fraction(6)),
        "leaky_relu": lambda x: x if x > 0 else x * Fraction(0.1),
        "abs": abs,
    }[name]
    net = ScalarNetwork(graph, np.float32([-9]), np.float32([9]))
    for x in (Fraction(-0.4), Fraction(0), Fraction(3, 4), Fraction(6), *(Fraction(k, 7) for k in range(-50, 51))):
        assert evaluated(net, [x])[-1] == own(x)


def test_a_steep_slope_multiplies_what_is_flushed() -> None:
    """Of -2^-130 a leaky_relu of slope 2^100 is -2^-30, and 0 where subnormal numbers are flushed."""
    graph = deployed_graph(sg.trace(lambda x: sg.leaky_relu(x, 2.0**100), (1,)))
    x = np.float32([-(2.0**-130)])
    r = Replay(graph, x, x, {}).ranges[-1]
    assert r.low[0] <= 0 <= r.high[0]
    f = ScalarNetwork(graph, x, x).cells[-1].function
    assert f is not None
    assert f.relative * Fraction(2) ** -130 + f.absolute >= Fraction(2) ** -30


# --- mutants ----------------------------------------------------------------------------------------------------------


def compared(subjects: list[Subject], mutant: Any, seeds: range) -> tuple[Counter[tuple[str, str]], list[str]]:
    """How both checkers end, and why the proven one refuses what ours accepts; what it accepts is true."""
    ends: Counter[tuple[str, str]] = Counter()
    alone, reasons = [], []  # type: list[str], list[str]
    for seed in seeds:
        rng, subject = Random(seed), subjects[seed % len(subjects)]
        text, packed = mutant(rng, subject)
        said = []
        for checker in (check, checked):
            try:
                found = checker(text, packed, subject.graph, seconds=60.0)
            except ReplayError as error:
                said.append("refused")
                reasons.append(str(error))
                continue
            said.append("valid")
            assert not contradicted(found, subject.run, Random(seed)), seed
        ends[said[0], said[1]] += 1
        if said == ["valid", "refused"]:
            alone.append(reasons[-1])
    return ends, alone


@needed
@pytest.mark.parametrize("seeds", slices(40, 60))
def test_mutants_are_refused_or_true(seeds: range) -> None:
    ends, _ = compared(certificate_mutants.subjects(), certificate_mutants.mutant, seeds)
    assert ends["refused", "refused"] > len(seeds) // 4
    assert ends["valid", "valid"] > len(seeds) // 30


@needed
@pytest.mark.parametrize("seeds", slices(24, 40))
def test_mutants_of_trees_are_refused_or_true(seeds: range) -> None:
    """Multipliers count as much as in ours: these mutants state all that ours grants, less 1e-9."""
    ends, alone = compared(tree_mutants.subjects(), tree_mutants.mutant, seeds)
    assert ends["refused", "refused"] > len(seeds) // 5
    assert ends["valid", "valid"] > len(seeds) // 5
    assert len(alone) <= 1  # of a clamp: seed 97, below


@needed
def test_the_grid_is_what_differs_on_seed_97(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours takes the chord above a clamp on a range widened to a grid, the proven one on the range: both are sound."""
    subject = tree_mutants.subjects()[7]
    text, packed = tree_mutants.mutant(Random(97), subject)
    found = check(text, packed, subject.graph, seconds=60.0)
    assert not contradicted(found, subject.run, Random(97))
    assert not accepted(text, packed, subject.graph)
    monkeypatch.setattr(activations, "GRID_FRAC_BITS", 24)
    with pytest.raises(ReplayError, match=r"margin is -3\.91e-05"):
        check(text, packed, subject.graph, seconds=60.0)
    for less, holds in ((Fraction(390, 10**7), False), (Fraction(392, 10**7), True)):
        data = json.loads(text)
        data.pop("digest")
        for alternative in data["cases"][0]["alternatives"]:
            alternative["limits"] = [str(Fraction(v) - less) for v in alternative["limits"]]
        assert accepted(sealed(data, packed), packed, subject.graph) == holds


HOLLOW = """-24 4 0 0 1 0 1 -4 1 -5
2
1 0 1 1 1 0
1 0 1 1 1 2 1 1 1 2 0 0
1 0 1 0 1 0
1 1 1 1 2 1 3 0 1 1 0 0 0 0
"""
"""A sum of no products, y = it + 1/16, and "y <= 1/32 never happens"; tables, vectors and sets are empty."""


@needed
@pytest.mark.parametrize(
    ("cell", "holds"),
    [
        ("1 0 1 1 1 0", False),  # a sum of nothing: no tree computes it, so there is no execution
        ("1 0 1 1 1 1 0 0 0", True),  # the constant 0
        ("0 0 1", True),  # an input from 0 to 1
        ("0 1 0", False),  # from 1 to 0
        ("1 0 1 0 1 1 0 0 0", False),  # whose constants may spread by less than 1
    ],
)
def test_what_has_no_execution_is_not_accepted(cell: str, holds: bool) -> None:
    """Of such a network everything is true, and nothing is said."""
    text = HOLLOW.replace("1 0 1 1 1 0\n", f"{cell}\n")
    done = subprocess.run([run_checker.program()], input=text, text=True, capture_output=True, check=True)
    assert done.stdout == ("yes\n" if holds else "no\n")


@needed
@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_mutants_are_refused_or_true(part: int) -> None:
    seeds = range(1000 * (part + 1), 1000 * (part + 2))
    for maker in (certificate_mutants, tree_mutants):
        assert compared(maker.subjects(), maker.mutant, seeds)[0]["valid", "valid"] > 20


# --- without the program ----------------------------------------------------------------------------------------------


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(run_checker.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(run_checker.NoCheckerError, match="make -C verified"):
        run_checker.program()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", "code 3"),
        ("kill -9 $$", "code -9"),
        ("echo maybe", "maybe"),
        ("echo yes; echo yes", "code 0"),
        ("sleep 9", "did not end"),
    ],
)
def test_a_program_that_answers_otherwise_proves_nothing(
    script: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "check"
    program.write_text(f"#!/bin/sh\ncat > /dev/null\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv(run_checker.VARIABLE, str(program))
    graph, statement, proof = tree_subjects.proven(0)
    with pytest.raises(OutOfTimeError if script == "sleep 9" else run_checker.NoCheckerAnswerError, match=words):
        run_checker.check_proven(proof.text, proof.packed, graph, statement, seconds=1)


# --- the cells --------------------------------------------------------------------------------------------------------


def evaluated(net: ScalarNetwork, x: list[Fraction]) -> list[Fraction]:
    """Every cell over rationals, by loops of our own."""
    values: list[Fraction] = []
    inputs = iter(x)
    for cell in net.cells:
        if cell.kind == "input":
            values.append(next(inputs))
        elif cell.kind == "sum":
            total = Fraction(0)
            for (m, e), source, _ in cell.products:
                total += m * Fraction(2) ** e * (values[source - 1] if source else 1)
            values.append(total)
        elif cell.function is not None:
            f, v = cell.function, values[cell.sources[0] - 1]
            values.append(f.start + f.rise * v + sum(w * max(Fraction(0), v - kink) for kink, w in f.turns))
        else:
            values.append(max([Fraction(0)] * (cell.kind == "relu") + [values[c - 1] for c in cell.sources]))
    return values


@pytest.mark.parametrize("seed", range(3))
def test_cells_are_the_network(seed: int) -> None:
    """Multiplied out, they compute what float64 computes on numbers that it adds exactly."""
    graph = deployed_graph(sg.trace(pooled, (1, 1, 6)))
    x = np.random.default_rng(seed).integers(-16, 17, (1, 1, 6)) / 16
    net = ScalarNetwork(graph, np.float32(x), np.float32(x))
    values = evaluated(net, [Fraction(v) for v in x.ravel().tolist()])
    outputs = [values[c - 1] for c in net.output.ravel().tolist()]
    exact = np.asarray(sg.trace(pooled, (1, 1, 6))(x.astype(np.float64))).ravel()
    assert outputs == [Fraction(v) for v in exact.tolist()]


def test_divisors_in_a_row_are_refused() -> None:
    """A runtime may multiply them beforehand, which is outside of what is proven; one divisor is inside."""
    box = np.float32([0, 0]), np.float32([1, 1])
    three, five = np.float32([3, 3]), np.float32([5, 5])
    assert ScalarNetwork(deployed_graph(sg.trace(lambda x: x / three * five, (2,))), *box).cells[-1].blurred
    with pytest.raises(ReplayError, match="combined divisors"):
        ScalarNetwork(deployed_graph(sg.trace(lambda x: x / three * five / five, (2,))), *box)


def test_what_bends_otherwise_is_refused() -> None:
    graph = deployed_graph(sg.trace(lambda x: sg.tanh(x), (2,)))
    with pytest.raises(ReplayError, match="no rule for node"):
        ScalarNetwork(graph, np.float32([0, 0]), np.float32([1, 1]))
    assert encode.MULTIPLIER_SCALE == 1 << 20


def thirds(x: Any) -> Any:
    """A mean of three between two layers: coefficients that are no number over a power of two."""
    y = sg.avg_pool(sg.relu(x), (3,), stride=(1,))
    return sg.linear(np.float32([[1, -0.5], [-1, 0.25]]), None, sg.reshape(y, (2,)))


@needed
@pytest.mark.parametrize(("below", "holds"), [(Fraction(1, 100), True), (Fraction(0), False)])
def test_means_of_three(below: Fraction, holds: bool) -> None:
    """On one point the least output is known: 1/3 - 1/6."""
    graph = deployed_graph(sg.trace(thirds, (1, 1, 4)))
    point = tuple(map(Fraction, (0, 0, 1, -1)))
    alternative = Alternative(np.array([[1.0, 0.0]]), (Fraction(1, 6) - Fraction(1, 100),))
    proof = prove(graph, Property(4, 2, (Case(point, point, (alternative,)),)))
    data = json.loads(proof.text)
    data["cases"][0]["alternatives"][0]["limits"] = [str(Fraction(1, 6) - below)]
    data.pop("digest")
    assert accepted(sealed(data, proof.packed), proof.packed, graph) == holds
