"""Proofs with splits, from a tree that a search found: weights per leaf, the exact margin of each, more cuts if needed.

What the float search called excluded by a hair may be open in exact arithmetic, whose lines are coarser: such a leaf is
cut again across the input that promises most. Nothing here needs to be right: the checker's own code says what a leaf
proves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from ...graph.graph import INPUT, Graph
from ...proof.certificate import OpenLeafError, proven_leaves
from ...proof.curves import CURVES
from ...proof.execution import executions
from ...proof.splits import Leaf, TreeProof, arrays_of, leaves
from ...proof.tree import Cut, Tree
from ...properties.property import Case
from ...scalar import Array
from ..linear.network import Forward
from .inputs import Boxes, Open

WEIGHTS = 1 << 10  # weights of several rows are whole numbers that add up to about this
Step = Callable[[str, int, int], None]


class TreeProver:
    """Proofs of some alternatives of a case by one tree.

    boxes     float bounds of all their rows on boxes of inputs
    numbers   the alternatives
    """

    def __init__(self, forward: Forward, case: Case, numbers: Sequence[int], boxes: Boxes, arithmetic: Any) -> None:
        self.graph, self.boxes, self.numbers, self.arithmetic = forward.graph, boxes, numbers, executions(arithmetic)
        shape = self.graph.nodes[self.graph.input_positions[0]].shape
        low, high = (end.reshape(shape).astype(np.float32) for end in case.outer())
        self.box = low, high
        self.rows = [(case.alternatives[k].rows.astype(int), case.alternatives[k].limits) for k in numbers]
        self.tighten = tuple(i for i in bent_inputs(self.graph) if forward.depth.get(i, 0) > 1)

    def proof(
        self, tree: Tree, deadline: Callable[[], None], step: Step | None = None, refine: bool = True
    ) -> TreeProof:
        """A proof whose leaves the checker's code accepts; an OpenLeafError names one that it does not.

        refine   cut leaves further that the tree leaves open
        """
        weights: dict[int, Array] = {}
        tree, proven = deepcopy(tree), set[int]()
        while True:
            parts = [part for part, cut in tree.preorder() if cut is None]
            fresh = [part for part in parts if part not in weights]
            whole = self._whole(tree, fresh, weights, parts)
            order = {n: part for n, (part, _) in enumerate(tree.preorder())}
            asked = {n for n, part in order.items() if part in weights and part not in proven}
            open_: list[tuple[int, Leaf]] = []
            given = self.graph, self.box, whole, self.rows, self.arithmetic, deadline, asked
            for each in proven_leaves(*given):
                worst = min(each.margins or (Fraction(1),))
                if worst > 0:
                    proven.add(order[each.leaf.part])
                elif not refine or not self._can_be_cut(each.leaf):
                    assert each.margins is not None
                    raise OpenLeafError(self.graph, each.leaf, self.numbers[each.margins.index(worst)], worst)
                else:
                    open_.append((order[each.leaf.part], each.leaf))
                if step is not None:
                    step("leaves of the proof", len(proven), len(parts))
            if not open_:
                return whole
            self._refine(tree, open_)

    def _can_be_cut(self, leaf: Leaf) -> bool:
        return bool((leaf.low < leaf.high).any())

    def _whole(self, tree: Tree, fresh: Sequence[int], weights: dict[int, Array], parts: Sequence[int]) -> TreeProof:
        """The tree with what is known of its leaves; enters the weights of fresh ones."""
        arrays = arrays_of(tree)
        count = sum(len(limits) for _, limits in self.rows)
        hollow = TreeProof(*arrays, np.zeros((0, count), np.int32), self.tighten)
        every = dict(zip(parts, leaves(self.graph, *self.box, hollow), strict=True))
        for k in range(0, len(fresh), self.boxes.batch):
            some = fresh[k : k + self.boxes.batch]
            for part, row in zip(some, self._weights([every[part] for part in some]), strict=True):
                weights[part] = row
        return TreeProof(*arrays, np.stack([weights[part] for part in parts]).astype(np.int32), self.tighten)

    def _weights(self, some: Sequence[Leaf]) -> Array:
        """Per leaf and row: one row where that excludes its alternative, several together elsewhere."""
        if all(len(limits) == 1 for _, limits in self.rows):
            return np.ones((len(some), len(self.rows)), np.int64)
        low, high = _tensors(some)
        margins, a, _, _ = self.boxes.bounds(low, high)
        mixed = (self.boxes.weights(low, high, margins, a) * WEIGHTS).round().sum(1)
        weights = np.zeros(margins.shape, np.int64)
        for k in range(self.boxes.count):
            mine = torch.nonzero(self.boxes.owner == k)[:, 0]
            best, at = margins[:, mine].max(1)
            alone = torch.nn.functional.one_hot(at, len(mine)).double()
            several = mixed[:, mine]
            chosen = torch.where(((best > 0) | (several.sum(1) == 0))[:, None], alone, several)
            weights[:, mine.numpy()] = chosen.numpy().astype(np.int64)
        return weights

    def _refine(self, tree: Tree, open_: Sequence[tuple[int, Leaf]]) -> None:
        """Cut every open leaf across the input that promises most."""
        for k in range(0, len(open_), self.boxes.batch):
            some = open_[k : k + self.boxes.batch]
            low, high = _tensors([leaf for _, leaf in some])
            best, margins, a, _ = self.boxes.excluded(low, high)
            cut = Open(low, high, best, margins, a, self.boxes.owner).cut()
            assert cut is not None
            for (part, _), cell, point in zip(some, cut[2].flatten().tolist(), cut[3].flatten().tolist(), strict=True):
                tree.divide(part, Cut(self.boxes.input, cell, point))


def _tensors(some: Sequence[Leaf]) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = (
        np.stack([end.ravel() for end in ends]).astype(np.float64)
        for ends in zip(*((x.low, x.high) for x in some), strict=True)
    )
    return torch.from_numpy(low), torch.from_numpy(high)


def bent_inputs(graph: Graph) -> list[int]:
    """What relus read, and functions of one cell."""
    read = (n.operands()[0] for n in graph.nodes if n.op.name == "relu" or n.op.name in CURVES)
    return sorted({i for i in read if graph.nodes[i].op is not INPUT})
