"""Sums over so many cells that they are computed block by block: a loss over a batch, the norm of a whole array.

A sample of the output cannot make them smaller, since each of its cells depends on all terms. The reference is cropped
to blocks of the sum's argument, whose inputs are read one after the other; the rest of the graph reads the sum's ball.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specgrad.errors import UnsupportedError
from specgrad.graph.graph import Graph
from specgrad.ops.layout import SUM
from specgrad.partition.cell_lines import cell_line
from specgrad.partition.cropped_graph import CroppedGraph, crop_to_boxes
from specgrad.rounding import Arithmetic, Ball
from specgrad.rounding.layers.whole_sums import (
    GraphBlock,
    KnownSum,
    add_up_blocks,
    ball_behind_sums,
    blocks_context,
    can_be_added_up,
)
from specgrad.scalar import Array
from specgrad.window.footprint import Box, BoxRule, lengths, whole

from .cropped_reference import MUCH_MORE, CroppedReference, read_cells

MANY = 2**24  # cells of all nodes for one cell of a sum: so many take seconds, and half a GB
BLOCK = 2**20  # cells of all nodes that are computed at once
MAX_BLOCK = 2**26  # where one cell along the axis of blocks reads more, blocks do not fit into memory


@dataclass(frozen=True)
class WholeSum:
    """A sum that is computed block by block.

    at     its position
    axis   of its argument, along which blocks lie
    """

    at: int
    axis: int


def whole_sums(graph: Graph, rules: Mapping[int, BoxRule], output: int) -> list[WholeSum]:
    """Return the sums that a cell of the output needs whole, each with terms that go cell by cell along some axis.

    >>> import specgrad as sg
    >>> from .error_boxes import error_boxes
    >>> graph = sg.trace(lambda x, t: sg.sum((x - t) ** 2) / 3, (5000, 5000), (5000, 5000))
    >>> whole_sums(graph, error_boxes(graph), graph.output_positions[0])
    [WholeSum(at=4, axis=0)]
    """
    sums: list[WholeSum] = []
    seen: set[int] = set()
    waiting = [output]
    while waiting:
        p = waiting.pop()
        if p in seen:
            continue
        seen.add(p)
        axis = _axis_of_blocks(graph, rules, p) if graph.nodes[p].op is SUM and p in rules else None
        if axis is None:
            waiting += graph.nodes[p].operands()
        else:
            sums.append(WholeSum(p, axis))
    return sorted(sums, key=lambda s: s.at)


def _axis_of_blocks(graph: Graph, rules: Mapping[int, BoxRule], at: int) -> int | None:
    """Return the axis along which blocks of a sum lie: the first that gives small ones; None for a sum of few cells, or
    whose terms read each other's.
    """
    node = graph.nodes[at]
    (source,) = node.operands()
    shape = graph.nodes[source].shape
    if not all(shape) or _cost(crop_to_boxes(graph, rules, {at: tuple((0, 1) for _ in node.shape)})) < MANY:
        return None
    if not can_be_added_up(graph, at):
        return None
    axes = [k for k in node.params["axes"] if shape[k] > 1 and cell_line(graph, rules, source, k) is not None]
    costs = {k: _cost(crop_to_boxes(graph, rules, {source: _slice_of(whole(shape), k, 0, 1)})) for k in axes}
    small = [k for k in axes if costs[k] <= BLOCK]
    return small[0] if small else min(axes, key=costs.__getitem__, default=None)


def is_whole_numbers(given: Mapping[int, Any]) -> bool:
    """Return whether all arrays hold finite whole numbers; the first cells mostly say no.

    >>> [is_whole_numbers({0: np.array(x)}) for x in ([1.0, -3.0], [1.0, 0.5])]
    [True, False]
    """
    return all(_is_whole(array[:1] if np.ndim(array) else array) for array in given.values()) and all(
        _is_whole(rows) for array in given.values() for rows in _parts(array)
    )


def _parts(array: Any) -> Iterator[Any]:
    """Yield an array in parts of about 2^20 cells."""
    shape = np.shape(array)
    if not shape:
        yield array
        return
    step = max(1, 2**20 // max(1, math.prod(shape[1:])))
    for start in range(0, shape[0], step):
        yield array[start : start + step]


def _is_whole(array: Any) -> bool:
    cells = read_cells(array, tuple(np.arange(n) for n in np.shape(array)))
    return cells.dtype.kind in "iub" or bool((np.isfinite(cells) & (np.rint(cells) == cells)).all())


def _cost(cut: CroppedGraph) -> int:
    """Return how many cells of nodes a cropped graph has."""
    return sum(math.prod(lengths(box)) for box in cut.needs.values())


def _slice_of(box: Box, axis: int, first: int, stop: int) -> Box:
    return (*box[:axis], (first, stop), *box[axis + 1 :])


class BlockedReference:
    """A reference some of whose sums are computed block by block.

    graph       the reference
    rules       per computed node, which boxes its value and error depend on
    sums        what is computed block by block
    arithmetic, backend   the executions that are meant, and what computes
    """

    def __init__(
        self, graph: Graph, rules: Mapping[int, BoxRule], sums: list[WholeSum], arithmetic: Arithmetic, backend: str
    ) -> None:
        self.graph, self.rules, self.sums = graph, rules, {s.at: s for s in sums}
        self.context = blocks_context(graph, arithmetic, backend)
        self.known: dict[tuple[int, Box], KnownSum] = {}

    def ball(self, cropped: CroppedReference, given: Mapping[int, Any]) -> Ball:
        """Return the ball of the one output of a cropped reference that ends at the sums.

        given   inputs and constants, by position, whole
        """
        leaves = cropped.positions
        read = {p: read_cells(given[p], leaves[p]) for p in leaves if p not in self.sums}
        known = {p: self._sum(p, leaves[p], given) for p in leaves if p in self.sums}
        (output,) = cropped.cut.boxes
        return ball_behind_sums(self.graph, _block(cropped.cut, read), self.context, known, output)

    def _sum(self, at: int, positions: tuple[Array, ...], given: Mapping[int, Any]) -> KnownSum:
        """Return what is known of a sum at all combinations of these positions."""
        box = tuple((int(p[0]), int(p[-1]) + 1) for p in positions)
        everything = whole(self.graph.nodes[at].shape)
        few, many = (_cost(crop_to_boxes(self.graph, self.rules, {at: b})) for b in (box, everything))
        if many <= MUCH_MORE * few:  # once for all selections
            box = everything
        if (at, box) not in self.known:
            axis = self.sums[at].axis
            blocks = self._blocks(at, box, axis, given)
            self.known[at, box] = add_up_blocks(self.graph, at, axis, blocks, self.context)
        return self.known[at, box].at([p - first for p, (first, _) in zip(positions, box, strict=True)])

    def _blocks(self, at: int, box: Box, axis: int, given: Mapping[int, Any]) -> Iterator[GraphBlock]:
        """Yield the argument of a sum in blocks along an axis; UnsupportedError where one would not fit into memory.

        What all blocks read (weights) is read by each: they are so long that it is about half of what they cost.
        """
        (source,) = self.graph.nodes[at].operands()
        (reach,) = self.rules[at].on(box).args
        first, stop = reach[axis]
        one, two = (
            _cost(crop_to_boxes(self.graph, self.rules, {source: _slice_of(reach, axis, first, min(first + n, stop))}))
            for n in (1, 2)
        )
        if one > MAX_BLOCK:
            text = f"one block of its terms needs {one:,} cells of the reference; at most {MAX_BLOCK:,} fit"
            raise UnsupportedError(self.graph.nodes[at].name, text)
        each = max(1, two - one)
        step = max(1, max(BLOCK, 2 * (one - each)) // each - (one - each) // each)
        for start in range(first, stop, step):
            part = _slice_of(reach, axis, start, min(start + step, stop))
            cut = crop_to_boxes(self.graph, self.rules, {source: part})
            boxes = {p: tuple(np.arange(a, b) for a, b in box) for p, box in cut.needs.items() if p not in cut.cuts}
            yield _block(cut, {p: read_cells(given[p], positions) for p, positions in boxes.items()})


def _block(cut: CroppedGraph, read: Mapping[int, Any]) -> GraphBlock:
    """Return a cropped graph with what it reads; UnsupportedError for NaN and infinities, and where several parts of a
    node are needed.
    """
    nodes = {}
    for p, footprint in cut.cuts.items():
        node = cut.source.nodes[p]
        pairs = zip(node.args, footprint.args, strict=True)
        if footprint.gives != cut.needs[p] or any(isinstance(a, int) and cut.needs[a] != box for a, box in pairs):
            raise UnsupportedError(node.name, "several parts of it are needed for one part of a sum's terms")
        nodes[p] = replace(node, params=footprint.params, shape=lengths(cut.needs[p]))
    for p, array in read.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UnsupportedError(cut.source.nodes[p].name, "holds NaN or infinities, of which blocks say nothing")
    return GraphBlock(nodes, read)
