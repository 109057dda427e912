"""The backward pass of many objectives at once, in fixed point: specgrad.proof.exact.replay.Replay.lower, row by row.

Each row belongs to a leaf, whose ranges determine the relaxation of nonlinear nodes. Coefficients of a node are those
of its reference (outer), or by node of a layer's exact map inside that layer (inner).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from specgrad.graph.graph import INPUT, Node
from specgrad.scalar import Array

from ..base.rationals import (
    Bound,
    Coefficients,
    ceil_scaled,
    cells,
    larger,
    products,
    rational,
    rationals,
    round_scaled,
    rows_of_leaves,
    shift_right_saturating,
    sum_coefficients,
    total,
    zeros,
)
from ..exact.node_ranges import CURVED, SMOOTH
from ..exact.replay import ALWAYS_NONLINEAR, Replay
from .affine import Affine, frac_bits_for
from .relu_max import NOWHERE, MaxLines, ReluLines, contested, read

if TYPE_CHECKING:
    from ..exact.logsumexp_pool import SmoothLines
    from .activations import CurveLines, FunctionTable

SELECTIONS = ("relu", "max_pool")
NONLINEAR = (*SELECTIONS, *ALWAYS_NONLINEAR)
SUM_BITS = 33  # bits of the sum of a node's numbers, of 36 that are allowed: some are added to others


@dataclass(frozen=True, eq=False)
class FixedPointNode:
    """One node on the whole box as integers over 2**frac_bits, (cells) or (1, cells); see
    proof.exact.node_ranges.NodeRange.

    low, high   ends of its reference
    error       of the reference, with what integers in place of weights add; off: the latter alone
    deviation   how far values are from the reference
    offset      b of a linear node y = J x + b
    span        the sum of all absolute values that a coefficient of this node may meet: of references and exact maps
    affine      the linear map of the node, weights as integers; None for inputs, constants and nonlinear nodes
    """

    node: Node
    frac_bits: int
    low: Array
    high: Array
    error: Array
    off: Array
    deviation: Array
    offset: Array
    span: int
    affine: Affine | None
    sources: tuple[tuple[int, bool], ...]  # positions of varying arguments, and whether inside the same layer

    @property
    def size(self) -> int:
        """Return the number of cells of the node."""
        return int(self.low.shape[1])


class Layers:
    """The nodes of a replay over rationals in fixed point, converted on first use."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self._cells: dict[int, FixedPointNode] = {}
        self._affine: dict[int, Affine] = {}
        self._tables: dict[tuple[int, int, int], FunctionTable] = {}
        self.planes: dict[tuple[int, int], dict[Any, Any]] = {}  # of smooth maxima, by node and places of what is read

    def __getitem__(self, i: int) -> FixedPointNode:
        """Return node `i` in fixed point, cached."""
        if i not in self._cells:
            self._cells[i] = self._convert(i)
        return self._cells[i]

    def forget(self, i: int) -> None:
        """Drop node `i` from the cache, as its range has changed; it is converted again when it is asked for."""
        self._cells.pop(i, None)

    def table(self, i: int) -> FunctionTable:
        """Return the table of the function that node `i` computes, cached."""
        from .activations import FunctionTable

        ((source, _),) = self[i].sources
        key = i, self[source].frac_bits, self[i].frac_bits
        if key not in self._tables:
            ends = self[source].low, self[source].high
            self._tables[key] = FunctionTable.on(self[i].node, *ends, self[source].frac_bits, self[i].frac_bits)
        return self._tables[key]

    def readers(self, i: int) -> list[int]:
        """Return the positions of nonlinear nodes that read node `i`."""
        nodes = self.replay.graph.nodes
        return [k for k, node in enumerate(nodes) if node.op.name in NONLINEAR and i in node.operands()]

    @property
    def widest(self) -> int:
        """Return the most cells of a node that varies."""
        replay = self.replay
        return max(
            math.prod(n.shape) for n, r in zip(replay.graph.nodes, replay.ranges, strict=False) if not r.constant
        )

    def magnitude(self, i: int) -> Array:
        """Return rationals not below abs of the reference and, by node, of the exact map of node `i`."""
        r = self.replay.ranges[i]
        largest = larger(r.ends[1], -r.ends[0])
        return largest if r.error is None else cells(largest + r.error)

    def _convert(self, i: int) -> FixedPointNode:
        """Return node `i` in fixed point, its ranges, errors and linear map as integers, rounded outward."""
        node, r = self.replay.graph.nodes[i], self.replay.ranges[i]
        affine = (
            self._affine_map(i, node)
            if node.op is not INPUT and not r.constant and node.op.name not in NONLINEAR
            else None
        )
        nothing = zeros(node.shape)
        error, deviation = (nothing if v is None else v for v in (r.error, r.deviation))
        off, offset = (nothing, nothing) if affine is None else (affine.off, affine.offset)
        magnitude = self.magnitude(i)
        frac_bits = frac_bits_for(total(magnitude + error + deviation + off + np.abs(offset)), SUM_BITS)
        rounded = round_scaled(offset, frac_bits)
        changed = ceil_scaled(np.abs(offset - _to_rationals(rounded, frac_bits)), frac_bits)
        own = (ceil_scaled(off, frac_bits) + changed).ravel()
        return FixedPointNode(
            node,
            frac_bits,
            -ceil_scaled(-r.ends[0], frac_bits).reshape(1, -1),
            ceil_scaled(r.ends[1], frac_bits).reshape(1, -1),
            ceil_scaled(error, frac_bits).ravel() + own,
            own,
            ceil_scaled(deviation, frac_bits).ravel(),
            rounded.ravel(),
            int(ceil_scaled(magnitude, frac_bits).sum()),
            affine,
            self._sources(node, affine),
        )

    def _affine_map(self, i: int, node: Node) -> Affine:
        """Return the linear map of node `i`, cached."""
        if i not in self._affine:
            args = [self.replay._argument(node, g) for g in node.args]
            varying, _ = self.replay._linear_in(node, args)
            fixed = [zeros(a.low.shape) if k in varying else a.low for k, a in enumerate(args)]
            positions = [g for k in varying if isinstance(g := node.args[k], int)]
            self._affine[i] = Affine(node, fixed, varying, [self.magnitude(p) for p in positions])
        return self._affine[i]

    def _sources(self, node: Node, affine: Affine | None) -> tuple[tuple[int, bool], ...]:
        """Return the positions of varying arguments, each with whether it is inside the same layer; `affine` says which
        vary, None: all.
        """
        if affine is None:
            return tuple((a, False) for a in node.operands())
        given = [node.args[k] for k in affine.varying]
        return tuple((g, self.replay._is_inside_layer(node, g)) for g in given if isinstance(g, int))


def _to_rationals(x: Array, frac_bits: int) -> Array:
    """Return integers over 2**frac_bits as rationals."""
    return cells(rationals(x) * rational(2) ** -frac_bits)


class Ranges:
    """Ranges of the nodes of `layers` on every leaf, int64 (leaves, cells); those of the whole box, (1, cells), if none
    are narrower.
    """

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self._ends: dict[int, tuple[Array, Array]] = {}
        self._relus: dict[int, ReluLines] = {}
        self._pools: dict[int, MaxLines] = {}
        self._curves: dict[int, CurveLines] = {}
        self._smooth: dict[int, SmoothLines] = {}
        self._values: dict[int, tuple[Array, Array]] = {}
        self.winners: dict[int, Array] = {}  # max_pool -> (taps, leaves, *shape): which may win

    def narrowed(self, i: int, low: Array, high: Array) -> None:
        """Set the range of node `i`'s reference on every leaf to low..high."""
        self._ends[i] = low, high

    def ends(self, i: int) -> tuple[Array, Array]:
        """Return (low, high) of node `i`'s reference, (leaves or 1, cells), over the node's 2**frac_bits."""
        if i in self._ends:
            return self._ends[i]
        return self.layers[i].low, self.layers[i].high

    def values(self, i: int) -> tuple[Array, Array]:
        """Return (low, high) of node `i`'s reference, (leaves, cells) over the node's 2**frac_bits, cached.

        For nonlinear nodes computed from their input, which may be narrower.
        """
        here = self.layers[i]
        if here.node.op.name not in NONLINEAR or i in self._ends:
            return self.ends(i)
        if i not in self._values:
            ((source, _),) = here.sources
            if here.node.op.name in CURVED:
                low, high = self.curve(i).least, self.curve(i).most
            elif here.node.op.name == SMOOTH:
                low, high = self.smooth(i).least, self.smooth(i).most
            else:
                down = self.layers[source].frac_bits - here.frac_bits
                low, high = self.values(source)
                low, high = (
                    self._apply_selection(here.node, low),
                    self._apply_selection(here.node, high, self.winners.get(i)),
                )
                low, high = shift_right_saturating(low, down), -shift_right_saturating(-high, down)
            self._values[i] = np.maximum(low - here.error, here.low), np.minimum(high + here.error, here.high)
        return self._values[i]

    def _apply_selection(self, node: Node, x: Array, may_win: Array | None = None) -> Array:
        """Return relu or max_pool (`node`) of x, (leaves, cells); `may_win`: the taps that count, None: all."""
        if node.op.name == "relu":
            return np.maximum(x, 0)
        (source,) = node.operands()
        shape = self.layers[source].node.shape
        every = read(x.reshape(-1, *shape), node.params["window"])
        largest = (every if may_win is None else np.where(may_win, every, NOWHERE)).max(0)
        return np.asarray(largest.reshape(len(largest), -1))

    def ranges_given_winners(self, i: int) -> tuple[Array, Array]:
        """Return the range (low, high) of what max_pool `i` reads, given which taps may win.

        No tap is above the largest of those that may win; one that wins for certain is at least every lower end.
        """
        here, may_win = self.layers[i], self.winners[i]
        ((source, _),) = here.sources
        low, high = (
            np.array(np.broadcast_to(end, (may_win.shape[1], end.shape[1]))).reshape(
                -1, *self.layers[source].node.shape
            )
            for end in self.values(source)
        )
        window, shape = here.node.params["window"], (may_win.shape[1], self.layers[source].size)
        floor, roof = read(low, window).max(0), np.where(may_win, read(high, window), NOWHERE).max(0)
        alone = may_win & (may_win.sum(0) == 1)
        for t, tap in enumerate(window.taps()):
            tap.join_inputs(np.minimum, high, tap.read_outputs(roof))
            tap.join_inputs(np.maximum, low, tap.read_outputs(np.where(alone[t], floor, NOWHERE)))
        return low.reshape(shape), high.reshape(shape)

    def needs_narrowing(self, i: int, low: Array, high: Array) -> Array:
        """Return which cells (leaves, cells) of node `i`, with ranges low..high, matter to a nonlinear reader, or to
        one of its relu.
        """
        either = np.zeros(low.shape, dtype=bool)
        for k in self.layers.readers(i):
            node = self.layers.replay.graph.nodes[k]
            if node.op.name == "relu":
                either |= (low < 0) & (high > 0)
                either |= self.needs_narrowing(k, np.maximum(low, 0), np.maximum(high, 0))
            elif node.op.name in ALWAYS_NONLINEAR:
                either |= low < high
            else:
                shape = (-1, *self.layers.replay.graph.nodes[i].shape)
                several = contested(node.params["window"], low.reshape(shape), high.reshape(shape))
                either |= several.reshape(low.shape)
        return either

    def span(self, i: int) -> Array:
        """Return an upper bound of the sum of node `i`'s absolute values, per leaf or one for all."""
        low, high = self.values(i)
        here = self.layers[i]
        return np.asarray(np.minimum(np.maximum(high, -low).sum(1) + here.error.sum(), here.span))

    def relu(self, i: int) -> ReluLines:
        """Return the lines of relu `i` on every leaf, cached; their constants are over 2**frac_bits of its input."""
        if i not in self._relus:
            ((source, _),) = self.layers[i].sources
            self._relus[i] = ReluLines.on(*self.values(source))
        return self._relus[i]

    def max_pool(self, i: int) -> MaxLines:
        """Return the lines of max_pool `i` on every leaf, cached; their constants are over its own 2**frac_bits."""
        if i not in self._pools:
            here = self.layers[i]
            ((source, _),) = here.sources
            low, high = (end.reshape(-1, *self.layers[source].node.shape) for end in self.values(source))
            lines = MaxLines.on(here.node.params["window"], low, high, self.winners.get(i))
            down = self.layers[source].frac_bits - here.frac_bits
            least, most = (
                (end + side).reshape(1, *here.node.shape)
                for end, side in zip((here.low, here.high), (-here.error, here.error), strict=True)
            )
            top = -shift_right_saturating(-lines.top, down)
            slope = np.where(top < most, lines.slope, 0)  # no maximum is above `most`
            self._pools[i] = replace(lines, slope=slope, top=np.clip(top, least, most))
        return self._pools[i]

    def curve(self, i: int) -> CurveLines:
        """Return the lines of activation `i` on every leaf, cached."""
        from .activations import curve_lines

        if i not in self._curves:
            here, ((source, _),) = self.layers[i], self.layers[i].sources
            ends, read = self.values(source), self.layers[source].frac_bits
            outer = here.low[0] - here.error, here.high[0] + here.error
            self._curves[i] = curve_lines(self.layers.table(i), *ends, read, *outer)
        return self._curves[i]

    def smooth(self, i: int) -> SmoothLines:
        """Return the planes of smooth maximum `i` on every leaf, cached."""
        from ..exact.logsumexp_pool import SmoothLines

        if i not in self._smooth:
            here, ((source, _),) = self.layers[i], self.layers[i].sources
            read = self.layers[source].frac_bits
            known = self.layers.planes.setdefault((i, read), {})
            outer = here.low[0] - here.error, here.high[0] + here.error
            self._smooth[i] = SmoothLines.on(here.node, *self.values(source), read, here.frac_bits, outer, known)
        return self._smooth[i]


class BackwardPass:
    """Objectives on their way back, one per row, and the bounds proven so far.

    leaf     the leaf of every row
    slopes   relu -> (rows, cells): slopes of lower lines, over 2**SLOPE_FRAC_BITS, in place of the usual
    outer    pending coefficients of nodes' references; inner: of exact maps inside a layer
    layers   the network in fixed point
    ranges   those of its nodes on every leaf
    bound    a lower bound per row, to which constants are added on the way
    """

    def __init__(self, layers: Layers, ranges: Ranges, leaf: Array, bound: Bound) -> None:
        self.layers, self.ranges, self.leaf, self.bound = layers, ranges, leaf, bound
        self.slopes: Mapping[int, Array] = {}
        self.outer: dict[int, list[Coefficients]] = {}
        self.inner: dict[int, list[Coefficients]] = {}

    @property
    def count(self) -> int:
        """Return the number of objectives that are propagated."""
        return len(self.leaf)

    def put(self, i: int, coefficients: Coefficients, inside: bool = False) -> None:
        """Add pending coefficients of node `i`: of its reference, or if `inside` of its exact map inside a layer."""
        (self.inner if inside else self.outer).setdefault(i, []).append(coefficients)

    def on(self, rows: Array, leaf: Array, ranges: Ranges) -> BackwardPass:
        """Return a new pass over the rows that the index `rows` selects (also repeatedly), with what is pending.

        Row k is bounded on leaf leaf[k] of `ranges`. This pass stays as it is.
        """
        walk = BackwardPass(self.layers, ranges, leaf, self.bound.select_rows(rows))
        for given, kept in ((self.outer, walk.outer), (self.inner, walk.inner)):
            kept.update({i: [p.select_rows(rows) for p in parts] for i, parts in given.items()})
        return walk

    def lower(self, start: int | None = None) -> Bound:
        """Propagate from node `start` (None: the last pending one) to the inputs and return the lower bounds."""
        self.back(max([*self.outer, *self.inner], default=0) if start is None else start)
        return self.bound

    def bound_by_ranges(self) -> Bound:
        """Stop here: bound the pending nodes by their ranges and return the lower bounds."""
        for i in list(self.outer):
            self._bound_node_by_range(i, self._summed_coefficients(i, self.outer.pop(i)))
        return self.bound

    def back(self, start: int, until_nonlinear: bool = False) -> None:
        """Propagate from node `start` to the inputs, or until all that is pending are inputs and nonlinear nodes."""
        for i in range(start, -1, -1):
            if not (i in self.outer or i in self.inner) or (until_nonlinear and self._is_nonlinear_or_input(i)):
                continue
            here = self.layers[i]
            parts = []
            for pending, error in ((self.outer, here.error), (self.inner, here.off)):
                if i in pending:
                    parts.append(self._summed_coefficients(i, pending.pop(i)))
                    if error.any():
                        Coefficients(-np.abs(parts[-1].a), parts[-1].frac_bits).into(self.bound, error, here.frac_bits)
            self._through_node(i, here, parts[0] if len(parts) == 1 else self._summed_coefficients(i, parts))

    def _is_nonlinear_or_input(self, i: int) -> bool:
        """Return whether node `i` is nonlinear or an input."""
        return self.layers[i].node.op.name in NONLINEAR or self.layers[i].node.op is INPUT

    def _summed_coefficients(self, i: int, parts: list[Coefficients]) -> Coefficients:
        """Return the sum of `parts`, pending coefficients of node `i`, shortened to 26 bits.

        What shortening can change is subtracted from `bound`.
        """
        return sum_coefficients(
            parts, self.bound, rows_of_leaves(self.ranges.span(i), self.leaf), self.layers[i].frac_bits
        )

    def _bound_node_by_range(self, i: int, y: Coefficients) -> None:
        """Add to the bound the least that coefficients y of node `i` can give on its range."""
        low, high = (rows_of_leaves(end, self.leaf) for end in self.ranges.values(i))
        self.bound.add(products(y.a, np.where(y.a > 0, low, high)), y.frac_bits + self.layers[i].frac_bits)

    def _through_node(self, i: int, here: FixedPointNode, y: Coefficients) -> None:
        """Replace node `i`, with coefficients y, by its arguments, whose coefficients become pending.

        `here` is node `i`. Inputs and constants are bounded by their ranges. What is constant goes into `bound`.
        """
        if here.affine is None and here.node.op.name not in NONLINEAR:
            self._bound_node_by_range(i, y)
        elif here.affine is not None:
            if here.offset.any():
                y.into(self.bound, here.offset, here.frac_bits)
            for (source, inside), a in zip(here.sources, here.affine.back(y.a), strict=True):
                self.put(source, y.scaled(a, here.affine.frac_bits), inside)
        else:
            ((source, _),) = here.sources
            for coefficients in self._through_nonlinear(i, here, source, y):
                self.put(source, coefficients)

    def _through_nonlinear(self, i: int, here: FixedPointNode, source: int, y: Coefficients) -> Sequence[Coefficients]:
        """Return coefficients of `source`, which nonlinear node `i` reads, from coefficients y of its own.

        `here` is node `i`. Constants, and what shortening may change, go into `bound`.
        """
        size, read = rows_of_leaves(self.ranges.span(source), self.leaf), self.layers[source].frac_bits
        if here.node.op.name == "max_pool":
            return (
                self.ranges.max_pool(i)
                .for_rows(self.leaf)
                .through(here.node, y, self.bound, size, read, here.frac_bits)
            )
        if here.node.op.name in CURVED:
            return (self.ranges.curve(i).for_rows(self.leaf).through(y, self.bound, size, read, here.frac_bits),)
        if here.node.op.name == SMOOTH:
            return (self.ranges.smooth(i).for_rows(self.leaf).through(y, self.bound, size, read, here.frac_bits),)
        lines = self.ranges.relu(i).for_rows(self.leaf)
        if i in self.slopes:
            lines = lines.with_slopes(self.slopes[i])
        return (lines.through(y, self.bound, read),)
