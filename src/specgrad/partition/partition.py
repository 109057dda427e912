"""Partition: one spatial axis cut into parts, layer by layer; who owns which cells of every value, and what must move.

Every value that goes along the cut axis is owned in parts, each cell by one; parts have their share of the cells of
every layer, so that all are busy, and may be empty where a layer has few. A part computes a layer on the cells that it
owns, by the box rule of the operator. What it reads and does not own, it is sent: each cell once, however many layers
read it there. No method that computes each cell at its owner alone moves less, as far as boxes say what is read.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from itertools import pairwise
from typing import NamedTuple

from ..errors import ParameterError, UnsupportedError
from ..graph.graph import CONSTANT, INPUT, Graph
from ..window import Shape
from ..window.axis_maps import Interval
from ..window.footprint import Box, Footprint, hull, lengths, whole
from .spatial_axes import GlobalRead, SpatialAxes, data_positions

REDUCED = ("sum", "amax")
"""What parts can compute of their own cells, and then join."""


class Move(NamedTuple):
    """Cells, `box`, of one value that the owner `source` sends to part `target`."""

    source: int
    target: int
    box: Box

    @property
    def cells(self) -> int:
        """Return how many cells are sent."""
        return math.prod(lengths(self.box))


def overlap(a: Box, b: Box) -> Box | None:
    """Return the box of cells that both boxes have; None if there are none.

    >>> overlap(((0, 4), (2, 5)), ((3, 6), (0, 9))), overlap(((0, 3),), ((3, 4),))
    (((3, 4), (2, 5)), None)
    """
    box = tuple((max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b, strict=True))
    return box if all(first < stop for first, stop in box) else None


def disjoint(boxes: Sequence[Box]) -> list[Box]:
    """Return boxes that do not overlap, and have exactly the cells of the given boxes.

    >>> disjoint([((0, 3), (0, 9)), ((2, 4), (5, 7)), ((4, 5), (5, 7))])
    [((0, 3), (0, 9)), ((3, 5), (5, 7))]
    """
    if not boxes or not boxes[0]:
        return list(boxes[:1])
    rows: list[tuple[Interval, list[Box]]] = []
    for first, stop in pairwise(sorted({end for box in boxes for end in box[0]})):
        across = disjoint([box[1:] for box in boxes if box[0][0] <= first and stop <= box[0][1]])
        if rows and rows[-1][0][1] == first and rows[-1][1] == across:
            rows[-1] = (rows[-1][0][0], stop), across
        else:
            rows.append(((first, stop), across))
    return [(interval, *rest) for interval, across in rows for rest in across]


class Partition:
    """The parts of a graph whose first data input is cut along an axis.

    Cells of a layer with n of them are cut where the N of the first input are, in proportion: at round(n * cut / N).

    Parameters
    ----------
    graph : Graph
        The network.
    axis : int
        The axis of the first data input.
    count : int, optional
        Number of parts.
    sizes : sequence of int, optional
        In place of `count`: the cells of the first data input that each part owns.
    allow_whole : bool, default False
        Layers that read all of the cut axis are refused by name, but for sums and maxima over it, which are joined from
        those of all parts; with True, what such layers read is sent to all parts.

    Attributes
    ----------
    axes : dict of int to int
        Position -> the axis along which that value is cut; every other value is whole on all parts.
    reduced : set of int
        The sums and maxima over the cut axis: of the cells of each part first, then of all parts.
    gathered : list of str
        The layers that read all of the cut axis, by name.

    Raises
    ------
    ParameterError
        Unless one of `count` and `sizes` is given, and fits the axis ([P5]).
    UnsupportedError
        For a layer that reads all of the cut axis, unless `allow_whole`, and one that goes along it twice.

    Examples
    --------
    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.max_pool(x, (3,), stride=2, padding=1), (1, 10))
    >>> parts = Partition(graph, 1, count=2)
    >>> parts.cuts, parts.owned(1, 0), parts.owned(1, 1), parts.cut(1, 1).args
    ((0, 5, 10), ((0, 1), (0, 3)), ((0, 1), (3, 5)), (((0, 1), (5, 10)),))
    >>> parts.moves(0), parts.cells_moved
    ([Move(source=1, target=0, box=((0, 1), (5, 6)))], 1)
    """

    def __init__(
        self,
        graph: Graph,
        axis: int,
        *,
        count: int | None = None,
        sizes: Sequence[int] | None = None,
        allow_whole: bool = False,
    ) -> None:
        lines = SpatialAxes(graph.at(), [axis], who="parts")
        self.graph, self.rules = lines.graph, lines.rules
        self.allow_whole = allow_whole
        first, self.axis = next(v for v, place in lines.places.items() if place.line == 0)
        self.cells = self.graph.nodes[first].shape[self.axis]
        self.cuts = self._cut_points(count, sizes)
        self.count = len(self.cuts) - 1
        self.axes: dict[int, int] = {}
        for p in data_positions(self.graph):
            self._set_axis(p, list(lines.of(p)))
        self.reduced: set[int] = set()
        self._gathered: dict[str, GlobalRead] = {}
        for p in self.rules:
            self._find_cut_axis(p)
        self._cache: dict[tuple[int, int], Footprint] = {}

    @property
    def gathered(self) -> tuple[GlobalRead, ...]:
        """Return the layers that read all of the cut axis."""
        return tuple(self._gathered.values())

    def _cut_points(self, count: int | None, sizes: Sequence[int] | None) -> Shape:
        """Return where the first input is cut, both ends included: into `count` equal parts, or by sizes;
        ParameterError if that is impossible.
        """
        if self.cells == 0:
            raise ParameterError("parts", f"axis {self.axis} has no cells to cut", rule="P5")
        if (count is None) == (sizes is None) or (count is not None and count < 1):
            raise ParameterError("parts", f"give count= or sizes=; got count={count}, sizes={sizes}", rule="P5")
        if sizes is None:
            assert count is not None
            return tuple(_rounded_share(self.cells, d, count) for d in range(count + 1))
        if sum(sizes) != self.cells or min(sizes, default=0) < 0:
            text = f"sizes must be {self.cells} cells together, the length of axis {self.axis}; got {tuple(sizes)}"
            raise ParameterError("parts", text, rule="P5")
        return tuple(sum(sizes[:d]) for d in range(len(sizes) + 1))

    # --- which values are cut, and along which axis -------------------------------------------------------------------

    def _set_axis(self, p: int, along: Sequence[int]) -> None:
        """Record the axis of value p that is cut, the only one of `along`; raise UnsupportedError if there are
        several.
        """
        if len(along) > 1:
            node = self.graph.nodes[p]
            text = f"{node.name} {node.shape} goes along the cut axis twice, as its axes {tuple(along)}"
            raise UnsupportedError("parts", text)
        self.axes.update((p, axis) for axis in along)

    def _find_cut_axis(self, p: int) -> None:
        """Find the cut axis of node p from those of its arguments; a cut axis along which no output axis goes is read
        completely.

        UnsupportedError in that case, unless `allow_whole`.
        """
        node, rule = self.graph.nodes[p], self.rules[p]
        along, lost = set[int](), list[int]()
        for a, links in zip(node.args, rule.args, strict=True):
            if isinstance(a, int) and a in self.axes:
                j = links[self.axes[a]]
                if isinstance(j, int):
                    along.add(j)
                elif self.graph.nodes[a].shape[self.axes[a]] > 1:  # one cell is sent to all its readers
                    lost.append(a)
        self._set_axis(p, sorted(along))
        if not lost:
            return
        if node.op.name in REDUCED:
            self.reduced.add(p)
            return
        reads = GlobalRead(node.group, node.op.name, (self.axes[lost[0]],), self.graph.nodes[lost[0]].shape)
        if not self.allow_whole:
            text = f"{reads}, and is no sum or maximum over it; end the graph before it, or give allow_whole=True"
            raise UnsupportedError("parts", text)
        self._gathered.setdefault(node.group, reads)

    # --- who owns what, and computes it from what ---------------------------------------------------------------------

    def interval(self, cells: int, d: int) -> Interval:
        """Return the cells that part d owns of an axis with `cells` cells."""
        first, stop = (_rounded_share(cells, cut, self.cells) for cut in self.cuts[d : d + 2])
        return first, stop

    def owned(self, p: int, d: int) -> Box:
        """Return the cells of value p that part d has before anything moves: its own, or all if p is not cut."""
        shape, axis = self.graph.nodes[p].shape, self.axes.get(p)
        box = whole(shape)
        return box if axis is None else (*box[:axis], self.interval(shape[axis], d), *box[axis + 1 :])

    def cut(self, p: int, d: int) -> Footprint:
        """Return the footprint of value p on what part d owns: the boxes of its arguments, and the parameters there.

        Footprints are cached.
        """
        if (p, d) not in self._cache:
            self._cache[p, d] = self.rules[p].on(self.owned(p, d))
        return self._cache[p, d]

    def computes(self, p: int, d: int) -> bool:
        """Return whether part d owns any cell of value p along the cut axis."""
        axis = self.axes.get(p)
        return axis is None or len(range(*self.owned(p, d)[axis])) > 0

    @cached_property
    def readers(self) -> dict[int, list[tuple[int, int]]]:
        """Return, for every value, the nodes that read it: (position, which argument)."""
        readers: dict[int, list[tuple[int, int]]] = {}
        for p in self.rules:
            for k, a in enumerate(self.graph.nodes[p].args):
                if isinstance(a, int):
                    readers.setdefault(a, []).append((p, k))
        return readers

    def reads(self, a: int, d: int) -> list[Box]:
        """Return the boxes of value a that the layers on part d read; a part without cells of a layer reads nothing."""
        boxes = [self.argument(p, k, d) for p, k in self.readers.get(a, ()) if self.computes(p, d)]
        return [box for box in boxes if all(first < stop for first, stop in box)]

    def argument(self, p: int, k: int, d: int) -> Box:
        """Return the box of argument k that part d reads to compute value p; its own cells if those are
        reduced later."""
        a = self.graph.nodes[p].args[k]
        assert isinstance(a, int)
        return self.owned(a, d) if p in self.reduced else self.cut(p, d).args[k]

    def window(self, a: int, d: int) -> Box:
        """Return the smallest box around all that part d reads of value a."""
        reads = self.reads(a, d)
        return reduce(hull, reads) if reads else tuple((0, 0) for _ in self.graph.nodes[a].shape)

    # --- what moves ---------------------------------------------------------------------------------------------------

    def moves(self, a: int) -> list[Move]:
        """Return what parts read of value a and do not own, from its owners: each cell once, in one order for all
        parts."""
        if a not in self.axes:
            return []
        starts = [self.owned(a, d)[self.axes[a]][0] for d in range(self.count)]
        return [move for target in range(self.count) for move in self._moves_to(a, target, starts)]

    def _moves_to(self, a: int, target: int, starts: list[int]) -> Iterator[Move]:
        """Yield the moves of value a to part `target`; `starts`: the first cell of every part."""
        for piece in disjoint(self.reads(a, target)):
            first, stop = piece[self.axes[a]]
            for source in range(bisect_right(starts, first) - 1, bisect_left(starts, stop)):
                box = overlap(piece, self.owned(a, source))
                if box is not None and source != target:
                    yield Move(source, target, box)

    @cached_property
    def exchanges(self) -> dict[int, list[Move]]:
        """Return the moves of every value of which cells move, in the order in which all parts compute."""
        moves = {a: self.moves(a) for a in sorted(self.axes)}
        return {a: ms for a, ms in moves.items() if ms}

    @property
    def cells_moved(self) -> int:
        """Return how many cells move in one forward run; a backward run moves as many cotangents, the other way."""
        return sum(move.cells for moves in self.exchanges.values() for move in moves)

    @property
    def given(self) -> tuple[list[int], list[int]]:
        """Return the positions of the graph's inputs: those given in parts, and those given whole."""
        positions = self.graph.input_positions
        return [p for p in positions if p in self.axes], [p for p in positions if p not in self.axes]

    def __repr__(self) -> str:
        sizes = "+".join(str(len(range(*self.interval(self.cells, d)))) for d in range(self.count))
        layers = sum(self.graph.nodes[p].op not in (INPUT, CONSTANT) for p in self.axes)
        return (
            f"Partition({sizes} cells of axis {self.axis}, {layers} values cut, {len(self.exchanges)} exchanged, "
            f"{self.cells_moved:,} cells moved)"
        )


def _rounded_share(cells: int, part: int, parts: int) -> int:
    """Return cells * part / parts, rounded to the nearest integer; halves up."""
    return (2 * cells * part + parts) // (2 * parts)
