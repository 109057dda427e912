"""Leaves of a tree of cuts, replayed many at once: a lower bound of every alternative's margin on every leaf.

A leaf is a set of executions: a box of float32 inputs, and intervals that confine references of nodes (a reference is
the one number per execution that backward bounds speak of: specgrad.bounds.linear.network). For any multipliers b >= 0

    min C.y  >=  min (C.y - sum_k b_k * (z_k - least_k) - sum_k d_k * (most_k - z_k))      over the leaf's executions

where least <= z <= most is what the leaf's cuts say. Roundings of the deployed network are those of the whole box,
which hold on each of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from ..graph.graph import INPUT, Graph, Node
from ..scalar import Array
from .curves import CURVES
from .lines import Range
from .numbers import ReplayError, larger, rational, rationals, total
from .replay import Model, Replay, Slopes

SLOPES = 1 << 10  # slopes of lower lines are whole numbers over this
MULTIPLIERS = 1 << 20  # multipliers of cuts are whole numbers over this
BENT = ("relu", "max_pool")  # what they read is worth narrowing
Alternative = tuple[Array, Sequence[Fraction]]  # whole rows (rows, outputs) and limits: rows.y <= limits is excluded


@dataclass(frozen=True, eq=False)
class Leaves:
    """Parts of one box, each with its hints. Nodes go by position; nothing of the hints needs to be right.

    low, high     (leaves, *input) float32: the box of inputs, inside the root's
    confined      node -> (least, most), each (leaves, *shape) float64: where cuts say that its reference lies; -inf and
                  inf where there is no cut
    weights       alternative -> (leaves, rows) whole numbers >= 0, not all 0 on any leaf; for alternatives of one row
                  they may be left out
    slopes        relu -> (leaves, alternatives, *shape) whole numbers from 0 to SLOPES: of the lower line, for margins
                  alone; without them, and for what narrows, it is 1 where high > -low and else 0, on the leaf's ranges
    multipliers   node -> (of least, of most), each (leaves, alternatives, *shape) whole >= 0 over MULTIPLIERS; 0 where
                  there is no cut
    """

    low: Array
    high: Array
    confined: Mapping[int, tuple[Array, Array]] = field(default_factory=dict)
    weights: Mapping[int, Array] = field(default_factory=dict)
    slopes: Mapping[int, Array] = field(default_factory=dict)
    multipliers: Mapping[int, tuple[Array, Array]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.low)


@dataclass(frozen=True, eq=False)
class Margins:
    """Lower bounds of weights.(rows.y - limits) per leaf and alternative: numerators over 2**places.

    empty   leaves that hold no execution: some range is empty on them
    """

    numerators: Array
    places: int
    empty: Array

    @property
    def proven(self) -> Array:
        """Leaves on which every alternative is excluded."""
        return np.asarray(self.empty | (self.numerators > 0).all(1))

    def fraction(self, leaf: int, alternative: int) -> Fraction:
        return Fraction(int(self.numerators[leaf, alternative]), 1 << self.places)


class Root:
    """A network on the box of a case: ranges and roundings that every leaf inherits.

    tighten   nodes whose ranges backward bounds narrow, on the box and again on every leaf; without it, all that relus
              and max_pools read
    on_step   called in every loop; raises when the time is over
    """

    def __init__(
        self,
        graph: Graph,
        low: Array,
        high: Array,
        model: Model | None = None,
        tighten: Collection[int] | None = None,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.graph, self.low, self.high, self.model, self.on_step = graph, low, high, model, on_step
        self.tighten = bent(graph) if tighten is None else tuple(tighten)

    def margins(self, leaves: Leaves, alternatives: Sequence[Alternative], narrow: bool = True) -> Margins:
        """A lower bound of every alternative's margin on every leaf.

        narrow   all ranges of `tighten` are narrowed again on each leaf: right for small boxes; else only the cuts
                 narrow the root's
        """
        numerators = np.zeros((len(leaves), len(alternatives)), dtype=np.int64)
        places = 40
        for n in range(len(leaves)):
            for k, (rows, limits) in enumerate(alternatives):
                bound = _Leaf(self, leaves, n, k, narrow).margin(rows, limits)
                numerators[n, k] = (int(bound.p) << places) // int(bound.q)
        return Margins(numerators, places, np.zeros(len(leaves), dtype=bool))


def bent(graph: Graph) -> tuple[int, ...]:
    """Nodes that are read by what bends."""
    read = {a for node in graph.nodes if node.op.name in BENT for a in node.operands()}
    return tuple(sorted(i for i in read if graph.nodes[i].op is not INPUT))


class _Leaf(Replay):
    """One leaf and one alternative over rationals."""

    def __init__(self, root: Root, leaves: Leaves, leaf: int, alternative: int, narrow: bool) -> None:
        self.leaf, self.alternative, self.leaves = leaf, alternative, leaves
        self.narrowing = True
        tighten = root.tighten if narrow else ()
        super().__init__(root.graph, leaves.low[leaf], leaves.high[leaf], {}, tighten, root.model, root.on_step)
        self.narrowing = False
        self._known_lines.clear()

    def _range(self, i: int, node: Node, low: Array, high: Array) -> Range:
        return self._confined(i, super()._range(i, node, low, high))

    def _tightened(self, i: int) -> Range:
        return self._confined(i, super()._tightened(i))

    def _confined(self, i: int, r: Range) -> Range:
        if i not in self.leaves.confined:
            return r
        least, most = (end[self.leaf] for end in self.leaves.confined[i])
        low = np.where(np.isfinite(least), larger(r.ends[0], rationals(np.nan_to_num(least))), r.ends[0])
        high = np.where(np.isfinite(most), -larger(-r.ends[1], -rationals(np.nan_to_num(most))), r.ends[1])
        return replace(r, ends=(low, high))

    def _lines(self, i: int, node: Node, x: Range) -> Any:
        low, high = x.ends
        if node.op.name in CURVES:
            return super()._lines(i, node, x)
        if node.op.name != "relu":
            raise ReplayError(f"node {node.name}: max_pool is to come")
        lower = (high > -low).astype(np.int64) * SLOPES
        if not self.narrowing and i in self.leaves.slopes:
            lower = self.leaves.slopes[i][self.leaf, self.alternative]
        share = [int(h * SLOPES / (h - v)) if v < 0 < h else 0 for v, h in zip(low.flat, high.flat, strict=True)]
        self.slopes = {**self.slopes, i: Slopes(lower, np.array(share).reshape(low.shape), SLOPES)}
        return super()._lines(i, node, x)

    def margin(self, rows: Array, limits: Sequence[Fraction]) -> Any:
        weights = self.leaves.weights[self.alternative][self.leaf] if self.alternative in self.leaves.weights else [1]
        row = sum((rationals(r) * int(w) for r, w in zip(rows, weights, strict=True)), start=rational(0))
        limit = sum((Fraction(int(w)) * v for w, v in zip(weights, limits, strict=True)), Fraction(0))
        return self.lower(row) - rational(limit.numerator, limit.denominator)

    def _step(self, i: int, node: Node, a: Array, outer: dict[int, Array], inner: dict[int, Array]) -> Any:
        constant = super()._step(i, node, a, outer, inner)
        if not self.narrowing:
            for arg in node.operands():
                if arg in self.leaves.multipliers and node.op.name in BENT:
                    constant += self._cut(arg, outer)
        return constant

    def _cut(self, z: int, outer: dict[int, Array]) -> Any:
        constant = rational(0)
        for end, pushed, side in zip(self.leaves.confined[z], self.leaves.multipliers[z], (1, -1), strict=True):
            b = rationals(pushed[self.leaf, self.alternative]) * rational(side, MULTIPLIERS)
            outer[z] = outer[z] - b
            constant += total(b * rationals(np.nan_to_num(end[self.leaf], posinf=0, neginf=0)))
        return constant
