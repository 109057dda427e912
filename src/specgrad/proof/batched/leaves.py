"""Leaves of a tree of splits, replayed many at once in fixed point: lower bounds of their alternatives' margins.

A leaf is a set of executions: a box of float32 inputs, and intervals that confine references of nodes (a reference is
the one number per execution that backward bounds are about: specgrad.bounds.linear.intermediate.forward_pass). Its
ranges, low <= z <= high, begin with the whole box's; splits narrow them, and backward bounds of single cells. For any
multipliers b, d >= 0

    min C.y  >=  min (C.y - sum b * (z - low) - sum d * (high - z))      over the leaf's executions.

Roundings of the deployed network are those of the whole box, found by specgrad.proof.exact.replay over rationals:
they hold on each of its parts, and are subtracted where coefficients of a node's reference arrive. So are the roundings
of our own numbers (specgrad.proof.base.rationals). No floating point decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from operator import mul
from typing import Any

import numpy as np

from specgrad.graph.graph import INPUT, Graph
from specgrad.scalar import Array
from specgrad.window import Window

from ..base.rationals import COEFFICIENT_BITS, Bound, Coefficients, ReplayError, bits, from_floats, rational, rationals
from ..exact.node_ranges import NodeRange
from ..exact.replay import ExecutionModel, Replay
from .backward import NONLINEAR, BackwardPass, Layers, Ranges
from .relu_max import NOWHERE, ONE, read

SLOPE_SCALE = 1 << 10  # slopes of lower lines are whole numbers over this
MULTIPLIER_FRAC_BITS = 20  # multipliers of cuts are whole numbers over 2**20
GUARD_BITS = 10  # places that bounds have beyond those of their node
MAX_BATCH_LEAVES = 256  # that are replayed at once
MAX_CACHED_COEFFICIENTS = 1 << 22  # coefficients of the first steps back that are kept, per node
MAX_BATCH_COEFFICIENTS = 1 << 20  # coefficients of a node that are computed at once
Alternative = tuple[Any, Sequence[Fraction]]  # whole rows (rows, outputs) and limits: rows.y <= limits is excluded


@dataclass(frozen=True, eq=False)
class Leaves:
    """Several parts of one box, each with hints that make its bound good; any hints give a sound bound. Nodes go by
    position.

    low, high     (leaves, *input) float32: the box of inputs, inside the root's
    confined      node -> (least, most), each (leaves, *shape) float64: where splits say that its reference lies;
                  infinite where there is no split
    weights       alternative -> (leaves, rows) integers >= 0, not all 0 on any leaf; for alternatives of one row they
                  may be left out
    slopes        relu -> (leaves, alternatives, *shape) integers from 0 to SLOPE_SCALE: of the lower line, for margins
                  alone; without them, and for what narrows, it is 1 where high > -low and else 0, on the leaf's ranges
    multipliers   node -> (of low, of high), each (leaves, alternatives, *shape), integers >= 0 over
                  2**MULTIPLIER_FRAC_BITS
    winners       max_pool -> (taps, leaves, *shape) of bool: which taps of its windows splits let win, in the order of
                  the window's relation (specgrad.proof.base.split_tree says what the winner is)
    pulls         max_pool -> (taps, leaves, alternatives, *shape), integers >= 0 over 2**MULTIPLIER_FRAC_BITS:
                  multipliers b of x_t - x_j >= 0 for every other tap j of a window that only t may win
    """

    low: Array
    high: Array
    confined: Mapping[int, tuple[Array, Array]] = field(default_factory=dict)
    weights: Mapping[int, Array] = field(default_factory=dict)
    slopes: Mapping[int, Array] = field(default_factory=dict)
    multipliers: Mapping[int, tuple[Array, Array]] = field(default_factory=dict)
    winners: Mapping[int, Array] = field(default_factory=dict)
    pulls: Mapping[int, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of leaves."""
        return len(self.low)

    def some(self, which: slice) -> Leaves:
        """Return the leaves of the slice `which`, with their hints."""
        pairs = ({i: (a[which], b[which]) for i, (a, b) in d.items()} for d in (self.confined, self.multipliers))
        confined, multipliers = pairs
        weights, slopes = ({i: a[which] for i, a in d.items()} for d in (self.weights, self.slopes))
        winners, pulls = ({i: a[:, which] for i, a in d.items()} for d in (self.winners, self.pulls))
        return Leaves(self.low[which], self.high[which], confined, weights, slopes, multipliers, winners, pulls)


@dataclass(frozen=True, eq=False)
class LeafMargins:
    """Lower bounds of weights.(rows.y - limits), `values[leaf][alternative]`.

    empty   leaves that hold no execution: some range is empty on them
    """

    values: tuple[tuple[Fraction, ...], ...]
    empty: Array

    @property
    def proven(self) -> Array:
        """Return, per leaf, whether every alternative is excluded."""
        return np.asarray(self.empty | np.array([all(v > 0 for v in row) for row in self.values], dtype=bool))

    def fraction(self, leaf: int, alternative: int) -> Fraction:
        """Return the bound of one alternative on one leaf."""
        return self.values[leaf][alternative]


class Root(Replay):
    """A network on the box of a case: ranges and roundings that every leaf inherits.

    tighten     nodes whose ranges backward bounds narrow, on the box and again on every leaf; None: all inputs of
                nonlinear nodes
    on_step     called in every loop; raises when the time is over
    low, high   the box, rational, in the input's shape
    model       how executions round; None: float32, nodes merged or not
    """

    def __init__(
        self,
        graph: Graph,
        low: Array,
        high: Array,
        model: ExecutionModel | None = None,
        tighten: Collection[int] | None = None,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.tighten = inputs_of_nonlinear(graph) if tighten is None else tuple(sorted(tighten))
        self.layers = Layers(self)
        self.starts: dict[tuple[int, int], BackwardPass] = {}
        self.box = low, high
        super().__init__(graph, low, high, {}, self.tighten, model, on_step)

    def _tightened(self, i: int) -> NodeRange:
        """Return the range of node `i` narrowed by backward bounds, the whole box being treated as one leaf.

        What is cached of the node, which rests on its old range, is dropped.
        """
        leaf = Batch(self, 1)
        leaf.narrow(i)
        low, high = (rationals(end.reshape(self.graph.nodes[i].shape)) for end in leaf.ranges.ends(i))
        scale = rational(2) ** -self.layers[i].frac_bits
        self.layers.forget(i)
        for sign in (1, -1):
            self.starts.pop((i, sign), None)
        return self._with_reference_in(i, low * scale, high * scale)

    def margins(self, leaves: Leaves, alternatives: Sequence[Alternative], narrow: bool = True) -> LeafMargins:
        """Return a lower bound of every alternative's margin on every leaf.

        ReplayError unless the leaves lie in the box, with hints of the right shapes and signs.

        narrow   whether all ranges of `tighten` are narrowed again on each leaf, good for small boxes; else only splits
                 narrow
        alternatives   (rows, limits) each
        """
        alternatives = [([[int(v) for v in row] for row in rows], limits) for rows, limits in alternatives]
        _check_hints(self, leaves, alternatives)
        size = max(1, min(MAX_BATCH_LEAVES, (1 << 24) // self.layers.widest))
        parts = [
            self._margins_of_batch(leaves.some(slice(k, k + size)), alternatives, narrow)
            for k in range(0, len(leaves), size)
        ]
        empty = np.concatenate([p.empty for p in parts]) if parts else np.zeros(0, dtype=bool)
        return LeafMargins(tuple(row for p in parts for row in p.values), empty)

    def _margins_of_batch(self, leaves: Leaves, alternatives: Sequence[Alternative], narrow: bool) -> LeafMargins:
        """Return the margins of all `alternatives` on one batch of leaves; `narrow` bounds nodes again on each leaf."""
        batch = self.ranged(leaves, narrow)
        columns = [batch.margins(leaves, k, *given) for k, given in enumerate(alternatives)]
        return LeafMargins(tuple(zip(*columns, strict=True)), batch.empty)

    def ranged(self, leaves: Leaves, narrow: bool = True) -> Batch:
        """Return the leaves as a batch with its ranges narrowed: by splits, and if `narrow` those of `tighten` too."""
        batch = Batch(self, len(leaves))
        batch.set_input_box(leaves)
        pools = {i: self.graph.nodes[i].operands()[0] for i in leaves.winners}
        for i in sorted({*(self.tighten if narrow else ()), *leaves.confined, *pools.values()}):
            if i in leaves.confined:
                batch.confine(i, leaves.confined[i])
            if narrow and i in self.tighten:
                batch.narrow(i)
            for pool in (k for k, source in pools.items() if source == i):
                batch.restrict_winners(pool, leaves.winners[pool])
        return batch


def inputs_of_nonlinear(graph: Graph) -> tuple[int, ...]:
    """Return the positions of nodes that a nonlinear node reads, and that are neither nonlinear nor inputs."""
    read = {a for node in graph.nodes if node.op.name in NONLINEAR for a in node.operands()}
    return tuple(sorted(i for i in read if graph.nodes[i].op is not INPUT and graph.nodes[i].op.name not in NONLINEAR))


def _check_hints(root: Root, leaves: Leaves, alternatives: Sequence[Alternative]) -> None:
    """Raise ReplayError unless the boxes lie in the root's and all hints have the right shape, type and sign.

    `alternatives` are (rows, limits).
    """
    low, high = root.box
    count, ends = len(leaves), (leaves.low, leaves.high)
    outputs = int(np.prod(root.graph.nodes[root.output].shape))
    if any(e.dtype != np.float32 or e.shape != (count, *low.shape) for e in ends):
        raise ReplayError(f"boxes of leaves must be float32 of shape {low.shape}")
    if not ((low <= leaves.low) & (leaves.low <= leaves.high) & (leaves.high <= high)).all():
        raise ReplayError("a leaf's box must lie in the whole box, the lower end first")
    for k, (rows, limits) in enumerate(alternatives):
        weights = leaves.weights.get(k, np.ones((count, 1), dtype=np.int64))
        if any(len(row) != outputs for row in rows):
            raise ReplayError(f"rows of alternative {k} need {outputs} numbers, one per output")
        if len(rows) != len(limits) or weights.shape != (count, len(rows)):
            raise ReplayError(f"alternative {k} needs a limit and a weight per row")
        if not _are_counts(weights) or not (weights.any(1)).all():
            raise ReplayError(f"the weights of alternative {k} must be whole, not negative, and not all 0")
    for i in (*leaves.slopes, *leaves.multipliers, *leaves.confined):
        if not 0 <= i < len(root.ranges) or root.ranges[i].constant:
            raise ReplayError(f"node {i} is none that varies")
    for i, given in leaves.slopes.items():
        shape = (count, len(alternatives), *root.graph.nodes[i].shape)
        if not _are_counts(given) or given.shape != shape or (given > SLOPE_SCALE).any():
            raise ReplayError(f"slopes of node {i} must be whole numbers from 0 to {SLOPE_SCALE}, of {shape}")
    for i, pair in leaves.multipliers.items():
        shape = (count, len(alternatives), *root.graph.nodes[i].shape)
        if any(not _are_counts(b) or b.shape != shape for b in pair):
            raise ReplayError(f"multipliers of node {i} must be whole, not negative, of {shape}")
    for i, may_win in leaves.winners.items():
        _check_winners(root, i, may_win, count)
    for i, b in leaves.pulls.items():
        if i not in leaves.winners:
            raise ReplayError(f"node {i} has no winners")
        taps, _, *sizes = leaves.winners[i].shape
        if not _are_counts(b) or b.shape != (taps, count, len(alternatives), *sizes):
            raise ReplayError(f"multipliers of taps of node {i} must be whole, not negative, one per tap and window")
    for i, pair in leaves.confined.items():
        if any(e.shape != (count, *root.graph.nodes[i].shape) or np.isnan(e).any() for e in pair):
            raise ReplayError(f"cuts of node {i} must be numbers, of {(count, *root.graph.nodes[i].shape)}")


def _check_winners(root: Root, i: int, may_win: Array, count: int) -> None:
    """Raise ReplayError unless node `i` is a max_pool and `may_win` a bool mask of (taps, count, *shape), `count`
    leaves.
    """
    if not 0 <= i < len(root.ranges) or root.graph.nodes[i].op.name != "max_pool" or root.ranges[i].constant:
        raise ReplayError(f"node {i} is no max_pool")
    node = root.graph.nodes[i]
    shape = sum(1 for _ in node.params["window"].taps()), count, *node.shape
    if may_win.dtype != bool or may_win.shape != shape:
        raise ReplayError(f"winners of node {i} must be true or false, of {shape}")


def _are_counts(x: Array) -> bool:
    """Return whether an array holds integers from 0 to 2**53 - 1."""
    return bool(x.dtype.kind in "iu" and (x >= 0).all() and (x < 1 << 53).all())


# --- one batch ----------------------------------------------------------------------------------------------------


class Batch:
    """`count` leaves of `root`, their ranges so far, and which of them hold no execution."""

    def __init__(self, root: Root, count: int) -> None:
        self.root, self.count, self.layers = root, count, root.layers
        self.ranges = Ranges(root.layers)
        self.empty = np.zeros(count, dtype=bool)

    def set_input_box(self, leaves: Leaves) -> None:
        """Set the ranges of the input to the leaves' boxes."""
        (i,) = self.root.graph.input_positions
        ends = zip((leaves.low, leaves.high), (False, True), strict=True)
        low, high = (from_floats(end.reshape(self.count, -1), self.layers[i].frac_bits, up) for end, up in ends)
        self._intersect_range(i, low, high)

    def confine(self, i: int, cuts: tuple[Array, Array]) -> None:
        """Intersect the range of node `i` with `cuts`, the (low, high) from splits of each leaf; infinite ends change
        nothing.
        """
        sides = []
        for end, cut, up in zip(self.ranges.ends(i), cuts, (False, True), strict=True):
            cut = cut.reshape(self.count, -1)
            at = from_floats(np.where(np.isfinite(cut), cut, 0.0), self.layers[i].frac_bits, up)
            sides.append(np.where(np.isfinite(cut), at, end))
        self._intersect_range(i, *sides)

    def restrict_winners(self, i: int, may_win: Array) -> None:
        """Narrow what max_pool `i` reads, given which taps may win; a leaf with a window that none may win is empty.

        `may_win` is a bool mask (taps, leaves, *shape).
        """
        inside = self._taps_inside(i)
        may_win = may_win & inside
        none = ~may_win.any(0)
        self.empty = self.empty | none.reshape(self.count, -1).any(1)
        self.ranges.winners[i] = may_win | (none & inside)  # an empty leaf needs lines all the same
        self._intersect_range(self.layers[i].sources[0][0], *self.ranges.ranges_given_winners(i))

    def _taps_inside(self, i: int) -> Array:
        """Return (taps, 1, *shape) of max_pool `i`: whether the tap of a window reads a cell, and not padding."""
        ((source, _),) = self.layers[i].sources
        nothing = np.zeros((1, *self.layers[source].node.shape), np.int64)
        return np.asarray(read(nothing, self._window_of(i)) > NOWHERE)

    def _window_of(self, i: int) -> Window:
        """Return the window of node `i`."""
        window: Window = self.layers[i].node.params["window"]
        return window

    def _intersect_range(self, i: int, low: Array, high: Array) -> None:
        """Intersect the range of node `i` with low..high; leaves on which nothing is left are marked empty."""
        least, most = self.ranges.ends(i)
        low, high = np.maximum(least, low), np.minimum(most, high)
        self.empty = self.empty | (low > high).any(1)
        self.ranges.narrowed(i, np.minimum(low, most), np.maximum(high, least))

    # --- ranges -----------------------------------------------------------------------------------------------

    def narrow(self, i: int) -> None:
        """Narrow node `i` by backward bounds of every cell that needs it: first to the next nonlinear nodes, then to
        the box."""
        ends = [np.broadcast_to(end, (self.count, end.shape[1])) for end in self.ranges.ends(i)]
        for finish in (BackwardPass.bound_by_ranges, BackwardPass.lower):
            leaf, cell = np.nonzero(self.ranges.needs_narrowing(i, *ends))
            ends = self._improve_ends(i, ends, leaf, cell, finish)
        self._intersect_range(i, *ends)

    def _improve_ends(
        self, i: int, ends: Sequence[Array], leaf: Array, cell: Array, finish: Callable[[BackwardPass], Bound]
    ) -> list[Array]:
        """Return the `ends` of node `i` after backward bounds of the cells `cell` on the leaves `leaf`, pairwise;
        `finish` ends each pass.
        """
        sides = [np.array(end) for end in ends]
        step = max(1, MAX_BATCH_COEFFICIENTS // self.layers.widest)
        for k in range(0, len(leaf), step):
            self.root.on_step()
            rows, at = leaf[k : k + step], cell[k : k + step]
            for side, sign in ((0, 1), (1, -1)):
                bound = finish(self._cell_objectives(i, at, sign, rows))
                pick = np.maximum if sign > 0 else np.minimum  # old ends are far inside 2**60
                sides[side][rows, at] = pick(sides[side][rows, at], sign * bound.over(self.layers[i].frac_bits))
        return sides

    def _cell_objectives(self, i: int, cell: Array, sign: int, leaf: Array) -> BackwardPass:
        """Return one objective per row k, sign*z of cell cell[k] of node `i` on leaf leaf[k], propagated to the next
        nonlinear nodes.

        `cell` and `leaf` are equally long. Results for all cells of a node are kept for all leaves, unless they have
        over MAX_CACHED_COEFFICIENTS.
        """
        size = self.layers[i].size
        if size * self.layers.widest > MAX_CACHED_COEFFICIENTS:
            return self._cell_objectives_on_box(i, cell, sign).on(np.arange(len(cell)), leaf, self.ranges)
        if (i, sign) not in self.root.starts:
            self.root.starts[i, sign] = self._cell_objectives_on_box(i, np.arange(size), sign)
        return self.root.starts[i, sign].on(cell, leaf, self.ranges)

    def _cell_objectives_on_box(self, i: int, cell: Array, sign: int) -> BackwardPass:
        """Return objectives sign*z of cells of node `i`, propagated to the next nonlinear nodes on the whole box."""
        here, none = self.layers[i], np.zeros(len(cell), np.int64)
        rows = np.zeros((len(cell), here.size), np.int64)
        rows[np.arange(len(cell)), cell] = sign
        walk = BackwardPass(self.layers, Ranges(self.layers), none, Bound(none + here.frac_bits + GUARD_BITS))
        walk.put(i, Coefficients(rows, none))
        walk.back(i, until_nonlinear=True)
        return walk

    # --- margins ----------------------------------------------------------------------------------------------

    def margins(self, leaves: Leaves, k: int, rows: Any, limits: Sequence[Fraction]) -> list[Fraction]:
        """Return, per leaf, by how much the weighted rows of alternative k exceed their limits at least.

        `rows` and `limits` are the alternative's; `leaves`, those of this batch, have weights, slopes and multipliers
        of their own.
        """
        weights = leaves.weights.get(k, np.ones((self.count, 1), dtype=np.int64)).tolist()
        walk = self._output_objectives(
            [[sum(map(mul, w, column)) for column in zip(*rows, strict=True)] for w in weights]
        )
        walk.slopes = {
            i: s[:, k].reshape(self.count, -1).astype(np.int64) * ONE // SLOPE_SCALE for i, s in leaves.slopes.items()
        }
        for i, pair in leaves.multipliers.items():
            self._subtract_cut_multipliers(walk, i, [b[:, k].reshape(self.count, -1) for b in pair])
        for i, given in leaves.pulls.items():
            self._subtract_tap_multipliers(walk, i, given[:, :, k])
        bound = walk.lower()
        limit = [sum((w * v for w, v in zip(each, limits, strict=True)), Fraction(0)) for each in weights]
        least = [int(n) * Fraction(2) ** -int(p) for n, p in zip(bound.numerators, bound.frac_bits, strict=True)]
        return [n - v for n, v in zip(least, limit, strict=True)]

    def _output_objectives(self, rows: Sequence[Sequence[int]]) -> BackwardPass:
        """Return one objective per leaf over the outputs' values, rows[leaf] being its coefficients, shortened to 26
        bits.

        Values lie within `deviation` of references.
        """
        here, leaf = self.layers[self.root.output], np.arange(self.count)
        sizes = [sum(map(abs, row)).bit_length() for row in rows]
        extra = np.array([max(0, size - COEFFICIENT_BITS) for size in sizes])
        a = [[((v << 1) + (1 << k)) >> (k + 1) for v in row] for row, k in zip(rows, extra.tolist(), strict=True)]
        objective = Coefficients(np.array(a, dtype=np.int64), -extra)
        bound = Bound(here.frac_bits + GUARD_BITS - np.array(sizes))
        bound.add(np.where(extra > 0, -here.span - here.deviation.sum(), 0), here.frac_bits - extra + 1)
        Coefficients(-np.abs(objective.a), objective.frac_bits).into(bound, here.deviation, here.frac_bits)
        walk = BackwardPass(self.layers, self.ranges, leaf, bound)
        walk.put(self.root.output, objective)
        return walk

    def _subtract_cut_multipliers(self, walk: BackwardPass, i: int, pair: Sequence[Array]) -> None:
        """Subtract b*(z - low) and d*(high - z) of node `i`, which are >= 0, from the objectives of `walk`; (b, d) is
        `pair`, rounded down to 26 bits.
        """
        for b, end, side in zip(pair, self.ranges.ends(i), (-1, 1), strict=True):
            extra = np.maximum(bits(b.max(1, initial=0)) - COEFFICIENT_BITS, 0)
            pushed = Coefficients(b.astype(np.int64) >> extra[:, None], MULTIPLIER_FRAC_BITS - extra)
            pushed.into(walk.bound, -side * np.broadcast_to(end, b.shape), self.layers[i].frac_bits)
            walk.put(i, Coefficients(side * pushed.a, pushed.frac_bits))

    def _subtract_tap_multipliers(self, walk: BackwardPass, i: int, b: Array) -> None:
        """Subtract b*(x_t - x_j), which is >= 0, from the objectives of `walk`, for the winner t of a window of
        max_pool `i` and its other taps j.
        """
        may_win, ((source, _),) = self.ranges.winners[i], self.layers[i].sources
        alone = may_win & (may_win.sum(0) == 1)
        others = np.where(alone.any(0) & self._taps_inside(i) & ~alone, b, 0)
        x = np.zeros((self.count, *self.layers[source].node.shape), np.int64)
        for t, tap in enumerate(self._window_of(i).taps()):
            tap.add_to_inputs(x, tap.read_outputs(others[t] - np.where(alone[t], others.sum(0), 0)))
        walk.put(source, Coefficients(x.reshape(self.count, -1), np.full(self.count, MULTIPLIER_FRAC_BITS)))
