"""What a page of `certify` shows beside the verdict, in numbers.

`question` is the property that was asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.proof.base.split_tree import Tree

from ...errors import SpecgradError
from ...graph.graph import INPUT, Graph
from ..box import Bounds, Box
from ..crown_bounds import crown
from ..search.certify import CertifyResult
from ..search.network.pgd_attack import DeployedNetwork
from ..search.network.witnesses import held_run
from ..search.statement.argmax_property import of_scores
from .image import Pair
from .layer_widths import LayerBounds, layers_of
from .split_tree import Worst, figures, part_of, worst_of

SECONDS = 20.0  # for the boxes of a page


@dataclass(frozen=True, eq=False)
class Figures:
    """Numbers and pictures that a page of `certify` shows beside the verdict; `--json` has the same.

    question   what they are about; cases of it have one list of trees each
    layers     over the first case's inputs; empty where `without` says why
    trees      per case, the trees of its search
    worst      of what is unknown: the part that is farthest from proven
    pair       the counterexample beside the input that it was moved from
    graph      the network
    bounds     of all nodes over the first case's inputs; None without
    """

    graph: Graph
    question: Any
    bounds: Bounds | None
    layers: Sequence[LayerBounds]
    without: str
    trees: Sequence[Sequence[Tree]]
    worst: Worst | None
    pair: Pair | None

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `layers`, one object each, and where there are any `trees` (a list per case), `open_part`
        and `original`.
        """
        data: dict[str, Any] = {"layers": [r.to_json() for r in self.layers]}
        if any(self.trees):
            data["trees"] = [[figures(self.graph, tree).to_json() for tree in case] for case in self.trees]
        if self.worst is not None:
            data["open_part"] = self.worst.to_json()
        if self.pair is not None:
            data["original"] = self.pair.to_json()
        return data


def figures_of(
    verdict: CertifyResult,
    graph: Graph,
    question: Any,
    *,
    original: Any = None,
    arithmetic: Any = None,
    seconds: float = SECONDS,
) -> Figures:
    """Return the figures of a verdict; layer bounds are recomputed over the first case's box. original: the input x.

    Seconds: for these bounds. UnsupportedError for a property of positions that no position satisfies.

    question    the Property that was certified
    arithmetic  the executions that bounds hold for; None: float32, fused
    """
    shape = graph.nodes[next(p for p in graph.input_positions if graph.nodes[p].op is INPUT)].shape
    pair = _counterexample_pair(verdict, graph, question, original, shape)
    graph, _ = of_scores(graph, question)  # what was searched: nodes of trees go by their positions in it
    ends = question.cases[0].outer()
    bounds, rows, without = None, [], ""
    try:
        bounds = crown(graph, Box(*(np.reshape(end, shape) for end in ends)), arithmetic=arithmetic, seconds=seconds)
        rows = layers_of(graph, bounds)
    except SpecgradError as error:
        without = str(error)
    trees = tuple(tuple(tree for _, tree in case) for case in verdict.trees)
    worst = _worst_part(verdict, graph, question, trees)
    return Figures(graph, question, bounds, rows, without, trees, worst, pair)


def _worst_part(verdict: CertifyResult, graph: Graph, question: Any, trees: Sequence[Sequence[Tree]]) -> Worst | None:
    """Return the verdict's open part with its box, in the case whose search made it; None if there is none.

    The case is the first of `question` one of whose `trees` has the part.
    """
    part = verdict.open_part
    if part is None:
        return None
    mine = (c for c, case in enumerate(trees) if any(part_of(tree, part.cuts) is not None for tree in case))
    return worst_of(graph, part.cuts, part.margin, question.cases[next(mine, 0)].outer())


def _counterexample_pair(
    verdict: CertifyResult, graph: Graph, question: Any, original: Any, shape: Sequence[int]
) -> Pair | None:
    """Return the counterexample beside the given input, or the middle of its box; None if there is none.

    `original` is the given input or None, `shape` the input's; the verdict holds the counterexample, `question` the
    boxes.
    """
    point = verdict.counterexample
    if point is None:
        return None
    called = "the given input"
    if original is None:
        called = "the middle of the box"
        case = next((c for c in question.cases if c.has(point.point)), question.cases[0])
        original = sum(case.outer()) / 2
    first, second = (np.reshape(np.asarray(a, np.float32), shape) for a in (original, point.x))
    return Pair(called, first, second, held_run(DeployedNetwork(graph), first), np.ravel(point.y))
