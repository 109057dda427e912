"""Trees of cuts: leaves cover the box, each float32 number once, or the tree is refused."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import specgrad as sg
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.base.split_tree import Split, Tree
from specgrad.proof.batched.tree_replay import LEAF, TreeProof, arrays_of, leaves

GRAPH = sg.trace(lambda x: sg.relu(sg.linear(np.float32([[1, -1]]), None, x)), (2,))
RELU = next(i for i, n in enumerate(GRAPH.nodes) if n.op.name == "relu")
READ = GRAPH.nodes[RELU].operands()[0]
INPUT = GRAPH.input_positions[0]
LOW, HIGH = np.float32([-1, 0]), np.float32([1, 2**-148])  # the second: 0, 1, 2 times the smallest number


def proof_of(tree: Tree) -> TreeProof:
    return TreeProof(*arrays_of(tree), np.ones((len(list(tree.leaves())), 1), np.int32))


def random_tree(rng: Random, cuts: int) -> Tree:
    """Input cuts inside their boxes, chosen here and not by the code under test."""
    tree, boxes = Tree(), {0: (LOW.astype(float).tolist(), HIGH.astype(float).tolist())}
    for _ in range(cuts):
        part = rng.choice(list(boxes))
        low, high = boxes[part]
        cell = rng.randrange(2)
        if low[cell] >= high[cell]:
            continue
        point = float(np.float32(rng.uniform(low[cell], high[cell])))
        point = rng.choice([low[cell], point if low[cell] <= point < high[cell] else low[cell]])
        below, above = tree.divide(part, Split(INPUT, cell, point))
        del boxes[part]
        boxes[below] = low, [point if k == cell else v for k, v in enumerate(high)]
        after = float(np.nextafter(np.float32(point), np.float32(np.inf)))
        boxes[above] = [after if k == cell else v for k, v in enumerate(low)], high
    return tree


def test_every_number_lies_in_one_leaf() -> None:
    rng = Random(0)
    for _ in range(20):
        proof = proof_of(random_tree(rng, 12))
        every = list(leaves(GRAPH, LOW, HIGH, proof))
        points = {float(v) for leaf in every for v in (leaf.low[0], leaf.high[0])}
        points |= {float(np.nextafter(np.float32(p), np.float32(s))) for p in points for s in (-2, 2)} & {
            p for p in points if -1 <= p <= 1
        }
        for x in points | {rng.uniform(-1, 1) for _ in range(20)}:
            for y in np.float32([0, 2**-149, 2**-148]):
                at = np.float32([x, y])
                assert sum(bool((leaf.low <= at).all() and (at <= leaf.high).all()) for leaf in every) == 1


def test_the_way_to_a_leaf_is_said() -> None:
    tree = Tree()
    below, _ = tree.divide(0, Split(INPUT, 0, 0.25))
    tree.divide(below, Split(READ, 0, 0.0))
    words = [leaf.words(GRAPH) for leaf in leaves(GRAPH, LOW, HIGH, proof_of(tree))]
    name = GRAPH.nodes[READ].name
    assert words == [
        f"X_0 <= 0.25 and node {READ} ({name}), cell 0 <= 0.0",
        f"X_0 <= 0.25 and node {READ} ({name}), cell 0 >= 0.0",
        "X_0 > 0.25",
    ]


@pytest.mark.parametrize(
    ("nodes", "cells", "points", "why"),
    [
        ([INPUT, LEAF], [0], [0], "lacks parts: 1"),
        ([INPUT], [0], [0], "lacks parts: 2"),
        ([], [], [], "lacks parts: 1"),
        ([LEAF, LEAF], [], [], "more parts follow"),
        ([INPUT, LEAF, LEAF, LEAF], [0], [0], "more parts follow"),
        ([INPUT, LEAF, LEAF], [], [], "has 0 cuts, and more parts"),
        ([INPUT, LEAF, LEAF], [0, 0], [0, 0], "has 2 cuts, and only 1"),
        ([INPUT, LEAF, LEAF], [2], [0], "no such number"),
        ([INPUT, LEAF, LEAF], [-1], [0], "no such number"),
        ([INPUT, LEAF, LEAF], [0], [1], "numbers on both sides"),
        ([INPUT, LEAF, LEAF], [0], [1.5], "numbers on both sides"),
        ([INPUT, LEAF, LEAF], [0], [-1.5], "numbers on both sides"),
        ([INPUT, LEAF, LEAF], [0], [np.nan], "no number"),
        ([INPUT, LEAF, LEAF], [0], [np.inf], "no number"),
        ([READ, LEAF, LEAF], [0], [-np.inf], "no number"),
        ([INPUT, INPUT, LEAF, LEAF, LEAF], [0, 0], [0, 0], "numbers on both sides"),
        ([INPUT, LEAF, INPUT, LEAF, LEAF], [0, 0], [0, 0], "numbers on both sides"),
        ([99, LEAF, LEAF], [0], [0], "no input and no computed node"),
        ([-2, LEAF, LEAF], [0], [0], "no input and no computed node"),
        ([READ, LEAF, LEAF], [1], [0], "no such number"),
    ],
)
def test_a_tree_that_leaves_something_out_is_refused(nodes: list, cells: list, points: list, why: str) -> None:
    proof = TreeProof(np.int32(nodes), np.int32(cells), np.float32(points), np.ones((1, 1), np.int32))
    with pytest.raises(ReplayError, match=why):
        list(leaves(GRAPH, LOW, HIGH, proof))


def test_constants_are_not_cut() -> None:
    constant = next(i for i, n in enumerate(GRAPH.nodes) if i in GRAPH.constants)
    proof = TreeProof(np.int32([constant, LEAF, LEAF]), np.int32([0]), np.float32([0]), np.ones((2, 1), np.int32))
    with pytest.raises(ReplayError, match="no computed node"):
        list(leaves(GRAPH, LOW, HIGH, proof))
