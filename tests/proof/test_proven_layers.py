"""Sums that the proven checker multiplies out together, and leaves that it halves: no limit that an execution reaches
is accepted. Mistakes that are planted in the extracted program are caught.

make -C verified && python -m pytest tests/proof/test_proven_layers.py
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest

pytest.importorskip("flint")

import specgrad as sg
from proven_program import compiled, needed, planted
from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.proof.base.executions import executions
from specgrad.proof.batched.tree_replay import LEAF, TreeProof
from specgrad.proof.extracted import encode, run_checker
from specgrad.proof.extracted.encode import CheckerInput
from specgrad.proof.files.certificate import CaseProof, Proof
from specgrad.rounding.arithmetic import Arithmetic

EXECUTIONS, SEEDS = executions(Arithmetic()), range(60)


def reached(seed: int) -> CheckerInput:
    """Two layers of 4 relus on a box of 3 cells, one of them fixed: a limit that is reached where float64 is exact."""
    rng = Random(seed)
    shapes = ((4, 3), (4, 4), (1, 4))
    weights = [np.array([[rng.randint(-8, 8) / 8 for _ in range(n)] for _ in range(m)]) for m, n in shapes]
    biases = [np.array([rng.randint(-4, 4) / 8 for _ in range(m)]) for m, _ in shapes]
    low = np.array([rng.randint(-8, 4) / 8 for _ in range(3)])
    high = low + np.array([0, rng.randint(0, 8) / 8, rng.randint(0, 8) / 8])

    def run(x: object) -> object:
        for w, b in zip(weights[:2], biases[:2], strict=True):
            x = sg.relu(sg.linear(np.float32(w), np.float32(b), x))
        return sg.linear(np.float32(weights[2]), np.float32(biases[2]), x)

    def output(x: np.ndarray) -> float:
        for w, b in zip(weights[:2], biases[:2], strict=True):
            x = np.maximum(w @ x + b, 0)
        return float((weights[2] @ x + biases[2])[0])

    points = itertools.product(*({a, (a + b) / 2, b} for a, b in zip(low, high, strict=True)))
    limit = Fraction(min(output(np.array(x)) for x in points))
    graph = deployed_graph(sg.trace(run, (3,)))
    tighten = tuple(n.operands()[0] for n in graph.nodes if n.op.name == "relu")
    proof = Proof((1,), {}, tighten)
    case = CaseProof(np.float32(low), np.float32(high), ((np.ones((1, 1)), (limit,), proof),))
    return CheckerInput(graph, case, EXECUTIONS)


def false_yes() -> int:
    return sum(run_checker.ask([reached(seed) for seed in SEEDS]))


@needed
def test_what_is_reached_is_refused() -> None:
    assert not false_yes()


MISTAKES = {
    "slots are cut off and not rounded": ("Z.shiftr (Z.add x (Z.shiftl Big.one (Z.sub w Big.one))) w", "Z.shiftr x w"),
    "what is fixed counts for nothing": ("else add0 c1 (mul0 w l)", "else c1"),
    "a sum has no constant": ("(mul0 short b)) (Z.add x", "zero) (Z.add x"),
    "a sum is not taken away": ("else gather facts0 ms0 (put k None f)", "else gather facts0 ms0 f"),
}


@compiled
@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_caught(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planted(*MISTAKES[name], monkeypatch, tmp_path)
    assert false_yes()


@needed
@pytest.mark.parametrize("depth", [0, 1])
def test_a_leaf_that_is_not_proven_is_halved(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """relu(x) - relu(x) is 0, of which lines on [-1, 1] know that it is at least -1, and on its halves all."""
    w, v = np.float32([[1], [1]]), np.float32([[1, -1]])
    graph = deployed_graph(sg.trace(lambda x: sg.linear(v, None, sg.relu(sg.linear(w, None, x))), (1,)))
    node = next(n.operands()[0] for n in graph.nodes if n.op.name == "relu")
    nothing = np.zeros(0, np.int32)
    tree = TreeProof(np.int32([LEAF]), nothing, np.zeros(0, np.float32), np.int32([[1]]), (node,))
    ends = np.float32([-1]), np.float32([1])
    asked = [CaseProof(*ends, ((np.ones((1, 1)), (Fraction(limit),), 0),), (tree,)) for limit in (-0.5, 0)]
    monkeypatch.setattr(encode, "MAX_HALVINGS", depth)
    assert run_checker.ask([CheckerInput(graph, case, EXECUTIONS) for case in asked]) == [depth == 1, False]
