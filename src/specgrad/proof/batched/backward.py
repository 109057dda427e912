"""The way back of many objectives at once, in whole numbers: specgrad.proof.exact.replay.Replay.lower, row by row.

Each row belongs to a leaf, whose ranges say how what bends is bounded. Coefficients of a node are those of
its reference (outer), or by node of a layer's exact map inside that layer (inner).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specgrad.graph.graph import INPUT, Node
from specgrad.scalar import Array

from ..base.fixed_point import Bound, Coefficients, joined, moved, nearest, products, taken, upward
from ..base.rationals import cells, larger, rational, rationals, total, zeros
from ..exact.activations import CURVES
from ..exact.logsumexp_pool import SMOOTH, SmoothLines
from ..exact.replay import Replay
from .activations import CurveLines, FunctionTable, curve_lines
from .affine import Affine, places_for
from .relu_max import NOWHERE, MaxLines, ReluLines, contested, read

CHOSEN = ("relu", "max_pool")
BENT = (*CHOSEN, *CURVES, SMOOTH)
SUM = 33  # bits of the sum of a node's numbers, of 36 that are allowed: some are added to others


@dataclass(frozen=True, eq=False)
class FixedPointNode:
    """One node on the whole box, as whole numbers over 2**places, (cells) or (1, cells); see
    proof.exact.relu_max.NodeRange.

    low, high   ends of its reference
    error       of the reference, with what whole numbers in place of weights add; off: the latter alone
    apart       how far values are from the reference
    offset      b of a linear node y = J x + b
    span        the sum of all absolute values that a coefficient of this node may meet: of references and exact maps
    """

    node: Node
    places: int
    low: Array
    high: Array
    error: Array
    off: Array
    apart: Array
    offset: Array
    span: int
    affine: Affine | None
    sources: tuple[tuple[int, bool], ...]  # positions of varying arguments, and whether inside the same layer

    @property
    def size(self) -> int:
        return int(self.low.shape[1])


class Layers:
    """The nodes of a replay over rationals in whole numbers, made when they are asked for."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self._cells: dict[int, FixedPointNode] = {}
        self._affine: dict[int, Affine] = {}
        self._tables: dict[tuple[int, int, int], FunctionTable] = {}
        self.planes: dict[tuple[int, int], dict[Any, Any]] = {}  # of smooth maxima, by node and places of what is read

    def __getitem__(self, i: int) -> FixedPointNode:
        if i not in self._cells:
            self._cells[i] = self._made(i)
        return self._cells[i]

    def forget(self, i: int) -> None:
        """Node i has another range now."""
        self._cells.pop(i, None)

    def table(self, i: int) -> FunctionTable:
        """What is known of the function that node i computes."""
        ((source, _),) = self[i].sources
        key = i, self[source].places, self[i].places
        if key not in self._tables:
            ends = self[source].low, self[source].high
            self._tables[key] = FunctionTable.on(self[i].node, *ends, self[source].places, self[i].places)
        return self._tables[key]

    def readers(self, i: int) -> list[int]:
        """What bends and reads node i."""
        nodes = self.replay.graph.nodes
        return [k for k, node in enumerate(nodes) if node.op.name in BENT and i in node.operands()]

    @property
    def widest(self) -> int:
        """The most cells of a node that varies."""
        replay = self.replay
        return max(
            math.prod(n.shape) for n, r in zip(replay.graph.nodes, replay.ranges, strict=False) if not r.constant
        )

    def magnitude(self, i: int) -> Array:
        """Numbers not below abs of the reference and, by node, of the exact map, over rationals."""
        r = self.replay.ranges[i]
        largest = larger(r.ends[1], -r.ends[0])
        return largest if r.error is None else cells(largest + r.error)

    def _made(self, i: int) -> FixedPointNode:
        node, r = self.replay.graph.nodes[i], self.replay.ranges[i]
        affine = self._linear(i, node) if node.op is not INPUT and not r.constant and node.op.name not in BENT else None
        nothing = zeros(node.shape)
        error, apart = (nothing if v is None else v for v in (r.error, r.apart))
        off, offset = (nothing, nothing) if affine is None else (affine.off, affine.offset)
        magnitude = self.magnitude(i)
        places = places_for(total(magnitude + error + apart + off + np.abs(offset)), SUM)
        rounded = nearest(offset, places)
        changed = upward(np.abs(offset - _exact(rounded, places)), places)
        own = (upward(off, places) + changed).ravel()
        return FixedPointNode(
            node,
            places,
            -upward(-r.ends[0], places).reshape(1, -1),
            upward(r.ends[1], places).reshape(1, -1),
            upward(error, places).ravel() + own,
            own,
            upward(apart, places).ravel(),
            rounded.ravel(),
            int(upward(magnitude, places).sum()),
            affine,
            self._sources(node, affine),
        )

    def _linear(self, i: int, node: Node) -> Affine:
        if i not in self._affine:
            args = [self.replay._argument(node, g) for g in node.args]
            varying, _ = self.replay._linear_in(node, args)
            fixed = [zeros(a.low.shape) if k in varying else a.low for k, a in enumerate(args)]
            positions = [g for k in varying if isinstance(g := node.args[k], int)]
            self._affine[i] = Affine(node, fixed, varying, [self.magnitude(p) for p in positions])
        return self._affine[i]

    def _sources(self, node: Node, affine: Affine | None) -> tuple[tuple[int, bool], ...]:
        if affine is None:
            return tuple((a, False) for a in node.operands())
        given = [node.args[k] for k in affine.varying]
        return tuple((g, self.replay._inside(node, g)) for g in given if isinstance(g, int))


def _exact(x: Array, places: int) -> Array:
    return cells(rationals(x) * rational(2) ** -places)


class Ranges:
    """Ranges of nodes on every leaf, (leaves, cells); those of the whole box, (1, cells), where none are narrower."""

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
        self._ends[i] = low, high

    def ends(self, i: int) -> tuple[Array, Array]:
        """Of the reference."""
        if i in self._ends:
            return self._ends[i]
        return self.layers[i].low, self.layers[i].high

    def values(self, i: int) -> tuple[Array, Array]:
        """Of the reference too; of what bends by what it reads, which may be narrower."""
        here = self.layers[i]
        if here.node.op.name not in BENT or i in self._ends:
            return self.ends(i)
        if i not in self._values:
            ((source, _),) = here.sources
            if here.node.op.name in CURVES:
                low, high = self.curve(i).least, self.curve(i).most
            elif here.node.op.name == SMOOTH:
                low, high = self.smooth(i).least, self.smooth(i).most
            else:
                down = self.layers[source].places - here.places
                low, high = self.values(source)
                low, high = self._chosen(here.node, low), self._chosen(here.node, high, self.winners.get(i))
                low, high = moved(low, down), -moved(-high, down)
            self._values[i] = np.maximum(low - here.error, here.low), np.minimum(high + here.error, here.high)
        return self._values[i]

    def _chosen(self, node: Node, x: Array, may_win: Array | None = None) -> Array:
        if node.op.name == "relu":
            return np.maximum(x, 0)
        (source,) = node.operands()
        shape = self.layers[source].node.shape
        every = read(x.reshape(-1, *shape), node.params["window"])
        largest = (every if may_win is None else np.where(may_win, every, NOWHERE)).max(0)
        return np.asarray(largest.reshape(len(largest), -1))

    def won(self, i: int) -> tuple[Array, Array]:
        """Ends of what max_pool i reads, given which taps may win: none is above the largest of these, and a tap that
        wins alone is at least every lower end."""
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

    def is_open(self, i: int, low: Array, high: Array) -> Array:
        """Cells (leaves, cells) of node i whose ranges matter to what bends and reads it, or reads a relu of it."""
        either = np.zeros(low.shape, dtype=bool)
        for k in self.layers.readers(i):
            node = self.layers.replay.graph.nodes[k]
            if node.op.name == "relu":
                either |= (low < 0) & (high > 0)
                either |= self.is_open(k, np.maximum(low, 0), np.maximum(high, 0))
            elif node.op.name in CURVES or node.op.name == SMOOTH:
                either |= low < high
            else:
                shape = (-1, *self.layers.replay.graph.nodes[i].shape)
                several = contested(node.params["window"], low.reshape(shape), high.reshape(shape))
                either |= several.reshape(low.shape)
        return either

    def span(self, i: int) -> Array:
        """Not below the sum of the absolute values of a node, per leaf or for all."""
        low, high = self.values(i)
        here = self.layers[i]
        return np.asarray(np.minimum(np.maximum(high, -low).sum(1) + here.error.sum(), here.span))

    def relu(self, i: int) -> ReluLines:
        """Lines of a relu on every leaf; their constants are over 2**places of what it reads."""
        if i not in self._relus:
            ((source, _),) = self.layers[i].sources
            self._relus[i] = ReluLines.on(*self.values(source))
        return self._relus[i]

    def max_pool(self, i: int) -> MaxLines:
        """Lines of a max_pool on every leaf; their constants are over 2**places of its own."""
        if i not in self._pools:
            here = self.layers[i]
            ((source, _),) = here.sources
            low, high = (end.reshape(-1, *self.layers[source].node.shape) for end in self.values(source))
            lines = MaxLines.on(here.node.params["window"], low, high, self.winners.get(i))
            down = self.layers[source].places - here.places
            least, most = (
                (end + side).reshape(1, *here.node.shape)
                for end, side in zip((here.low, here.high), (-here.error, here.error), strict=True)
            )
            top = -moved(-lines.top, down)
            slope = np.where(top < most, lines.slope, 0)  # no maximum is above `most`
            self._pools[i] = replace(lines, slope=slope, top=np.clip(top, least, most))
        return self._pools[i]

    def curve(self, i: int) -> CurveLines:
        """Lines of another function on every leaf."""
        if i not in self._curves:
            here, ((source, _),) = self.layers[i], self.layers[i].sources
            ends, read = self.values(source), self.layers[source].places
            outer = here.low[0] - here.error, here.high[0] + here.error
            self._curves[i] = curve_lines(self.layers.table(i), *ends, read, *outer)
        return self._curves[i]

    def smooth(self, i: int) -> SmoothLines:
        """Planes of a smooth maximum on every leaf."""
        if i not in self._smooth:
            here, ((source, _),) = self.layers[i], self.layers[i].sources
            read = self.layers[source].places
            known = self.layers.planes.setdefault((i, read), {})
            outer = here.low[0] - here.error, here.high[0] + here.error
            self._smooth[i] = SmoothLines.on(here.node, *self.values(source), read, here.places, outer, known)
        return self._smooth[i]


class BackwardPass:
    """Objectives on their way back, and what is proven of them so far.

    leaf     the leaf of every row
    slopes   relu -> (rows, cells): slopes of lower lines, over 2**bends.PLACES, in place of the usual
    """

    def __init__(self, layers: Layers, ranges: Ranges, leaf: Array, bound: Bound) -> None:
        self.layers, self.ranges, self.leaf, self.bound = layers, ranges, leaf, bound
        self.slopes: Mapping[int, Array] = {}
        self.outer: dict[int, list[Coefficients]] = {}
        self.inner: dict[int, list[Coefficients]] = {}

    @property
    def count(self) -> int:
        return len(self.leaf)

    def put(self, i: int, coefficients: Coefficients, inside: bool = False) -> None:
        (self.inner if inside else self.outer).setdefault(i, []).append(coefficients)

    def on(self, rows: Array, leaf: Array, ranges: Ranges) -> BackwardPass:
        """Some of the rows, perhaps several times, each on a leaf."""
        walk = BackwardPass(self.layers, ranges, leaf, self.bound.of(rows))
        for given, kept in ((self.outer, walk.outer), (self.inner, walk.inner)):
            kept.update({i: [p.of(rows) for p in parts] for i, parts in given.items()})
        return walk

    def lower(self, start: int | None = None) -> Bound:
        """Go back to the inputs."""
        self.back(max([*self.outer, *self.inner], default=0) if start is None else start)
        return self.bound

    def settled(self) -> Bound:
        """Stop here: whatever the nodes' values are, in their ranges."""
        for i in list(self.outer):
            self._end(i, self._arrived(i, self.outer.pop(i)))
        return self.bound

    def back(self, start: int, until_bends: bool = False) -> None:
        for i in range(start, -1, -1):
            if not (i in self.outer or i in self.inner) or (until_bends and self._is_bent(i)):
                continue
            here = self.layers[i]
            parts = []
            for pending, error in ((self.outer, here.error), (self.inner, here.off)):
                if i in pending:
                    parts.append(self._arrived(i, pending.pop(i)))
                    if error.any():
                        Coefficients(-np.abs(parts[-1].a), parts[-1].places).into(self.bound, error, here.places)
            self._step(i, here, parts[0] if len(parts) == 1 else self._arrived(i, parts))

    def _is_bent(self, i: int) -> bool:
        return self.layers[i].node.op.name in BENT or self.layers[i].node.op is INPUT

    def _arrived(self, i: int, parts: list[Coefficients]) -> Coefficients:
        return joined(parts, self.bound, taken(self.ranges.span(i), self.leaf), self.layers[i].places)

    def _end(self, i: int, y: Coefficients) -> None:
        low, high = (taken(end, self.leaf) for end in self.ranges.values(i))
        self.bound.add(products(y.a, np.where(y.a > 0, low, high)), y.places + self.layers[i].places)

    def _step(self, i: int, here: FixedPointNode, y: Coefficients) -> None:
        """Replace a node by its arguments."""
        if here.affine is None and here.node.op.name not in BENT:
            self._end(i, y)
        elif here.affine is not None:
            if here.offset.any():
                y.into(self.bound, here.offset, here.places)
            for (source, inside), a in zip(here.sources, here.affine.back(y.a), strict=True):
                self.put(source, y.scaled(a, here.affine.places), inside)
        else:
            ((source, _),) = here.sources
            for coefficients in self._bend(i, here, source, y):
                self.put(source, coefficients)

    def _bend(self, i: int, here: FixedPointNode, source: int, y: Coefficients) -> Sequence[Coefficients]:
        size, read = taken(self.ranges.span(source), self.leaf), self.layers[source].places
        if here.node.op.name == "max_pool":
            return self.ranges.max_pool(i).of(self.leaf).through(here.node, y, self.bound, size, read, here.places)
        if here.node.op.name in CURVES:
            return (self.ranges.curve(i).of(self.leaf).through(y, self.bound, size, read, here.places),)
        if here.node.op.name == SMOOTH:
            return (self.ranges.smooth(i).of(self.leaf).through(y, self.bound, size, read, here.places),)
        lines = self.ranges.relu(i).of(self.leaf)
        if i in self.slopes:
            lines = lines.with_slopes(self.slopes[i])
        return (lines.through(y, self.bound, read),)
