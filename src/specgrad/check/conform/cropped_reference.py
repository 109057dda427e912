"""The reference of a kernel cropped to some cells of one output, and what of the arguments it reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.graph.drawing.summary import multiply_adds
from specgrad.graph.graph import CONSTANT, Graph
from specgrad.partition.cell_lines import CellLine, cell_line
from specgrad.partition.cropped_graph import CroppedGraph, crop_to_boxes
from specgrad.rounding.formats.number_format import SHORT
from specgrad.scalar import Array
from specgrad.window.footprint import Box, BoxRule, lengths, whole

from .cell_sample import CellSampler, Selection, Sort

MAX_COST = 2**25  # cells of all nodes that a sample computes: a few seconds; edges leave half as many to what is drawn
MAX_WHOLE = 2**21  # beyond so many cells of all nodes, a sample is judged
MUCH_MORE = 8  # times the cost of a cell: axes that take less together are taken whole
MULTIPLY_ADDS = 16  # that count as one cell
MAX_WIDTH = 1024  # drawn positions along an axis, of one selection
MAX_DRAWN = 64  # drawn selections of one output
CHEAP = MAX_COST // (2 * MAX_DRAWN)  # a selection's cost of which so many fit, beside those of edges


@dataclass(frozen=True, eq=False)
class CroppedReference:
    """The reference on a selection of cells: the graph, what is read of each input, and what it costs.

    cut         the reference cropped to boxes in which free positions stand side by side
    positions   per needed input or constant, the positions that are read along each axis
    """

    cut: CroppedGraph
    positions: Mapping[int, tuple[Array, ...]]

    @property
    def inputs(self) -> list[int]:
        """Return the positions of the inputs that are read, in order."""
        return [p for p in self.cut.source.input_positions if p in self.positions]

    @property
    def constants(self) -> list[int]:
        """Return the positions of the constants that are read."""
        return [p for p in self.positions if self.cut.source.nodes[p].op is CONSTANT]

    @property
    def cost(self) -> int:
        """Return how many cells of nodes are computed; multiply-adds count as part of one."""
        return sum(math.prod(lengths(b)) for b in self.cut.needs.values()) + self.cut.multiply_adds // MULTIPLY_ADDS


class OutputReference:
    """One output of the reference, and how its axes may be cut.

    graph   the reference
    rules   per computed node, which boxes its value and error depend on
    output  position of the output
    """

    def __init__(self, graph: Graph, rules: Mapping[int, BoxRule], output: int) -> None:
        self.graph, self.rules, self.output = graph, rules, output
        self.shape = graph.nodes[output].shape
        lines = (cell_line(graph, rules, output, axis) for axis in range(len(self.shape)))
        self.lines: list[CellLine | None] = list(lines)
        self.sorts: list[Sort] = ["interval" if line is None else "free" for line in self.lines]
        for axis, line in enumerate(self.lines):
            if line is None and self._reads_axis_whole(axis):
                self.sorts[axis] = "whole"

    def _reads_axis_whole(self, axis: int) -> bool:
        """Return whether an axis may be taken whole, beside those that are: some layer reads it whole anyway, and all
        together cost little more than one cell does.
        """
        cell = [(n // 2, n // 2 + 1) if n else (0, 0) for n in self.shape]
        wide = [(0, n) if k == axis or self.sorts[k] == "whole" else cell[k] for k, n in enumerate(self.shape)]
        few, many = (self.crop_box(tuple(box)) for box in (cell, wide))
        return self.shape[axis] <= 1 or many.cost <= MUCH_MORE * few.cost

    def crop_box(self, box: Box) -> CroppedReference:
        """Return the reference cropped to a box of this output."""
        cut = crop_to_boxes(self.graph, self.rules, {self.output: box})
        leaves = (p for p in cut.needs if p not in cut.cuts)
        return CroppedReference(cut, {p: tuple(np.arange(a, b) for a, b in cut.needs[p]) for p in leaves})

    def crop(self, selection: Selection) -> CroppedReference:
        """Return the reference cropped to what a selection of output cells needs, with the cells of each input that it
        reads.
        """
        free = [sort == "free" for sort in self.sorts]
        ends = [
            (0, len(p)) if f else (int(p[0]), int(p[-1]) + 1) for f, p in zip(free, selection.positions, strict=True)
        ]
        cropped = self.crop_box(tuple(ends))
        read = {p: list(axes) for p, axes in cropped.positions.items()}
        for line, positions in zip(self.lines, selection.positions, strict=True):
            for p, axis in (line or {}).items():
                if axis is not None and p in read:
                    read[p][axis] = positions
        return CroppedReference(cropped.cut, {p: tuple(axes) for p, axes in read.items()})

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return math.prod(self.shape)

    def selections(self, cells: int | None, seed: int) -> Iterator[tuple[Selection, CroppedReference | None]]:
        """Yield selections to judge with about `cells` drawn cells (None: all), and the reference cropped to each; None
        for one that is left out because of its cost.
        """
        everything = self.crop_box(whole(self.shape))
        if cells is None or everything.cost <= MAX_WHOLE:
            yield Selection(tuple(np.arange(n) for n in self.shape)), everything
            return
        sampler = CellSampler(self.shape, self.sorts, seed)
        width = self._width(cells)
        drawn = sampler.drawn(width)
        cropped = self.crop(drawn)
        yield drawn, cropped
        spent, of_drawn, placed, count = cropped.cost, cropped.cost, drawn.placed, 1
        for selection in sampler.always():
            cropped = self.crop(selection)
            fits = spent + cropped.cost <= MAX_COST
            spent += cropped.cost if fits else 0
            yield selection, cropped if fits else None
        while placed < cells and count < MAX_DRAWN:
            drawn = sampler.drawn(width)
            cropped = self.crop(drawn)
            spent, of_drawn = spent + cropped.cost, of_drawn + cropped.cost
            if spent > MAX_COST and of_drawn > MAX_COST // 2:
                return
            placed, count = placed + drawn.placed, count + 1
            yield drawn, cropped

    def _width(self, cells: int) -> int:
        """Return how many positions are drawn along each free axis: twice as many as long as cost and cells allow.

        A selection with an interval is one independent draw, however wide: then it is cheap, so that many fit.
        """
        if "free" not in self.sorts:
            return 1
        width, share = 1, MAX_DRAWN if "interval" in self.sorts else 2
        most = CHEAP if "interval" in self.sorts else MAX_COST // 4
        while width < min(MAX_WIDTH, max(self.shape)):
            more = CellSampler(self.shape, self.sorts, 0).drawn(2 * width)
            if more.placed > cells // share or self.crop(more).cost > most:
                break
            width *= 2
        return width


def is_judged_whole(graph: Graph) -> bool:
    """Return whether a graph is so small that all cells of its outputs are judged."""
    work = sum(multiply_adds(n, graph.nodes) for n in graph.nodes)
    return sum(math.prod(n.shape) for n in graph.nodes) + work // MULTIPLY_ADDS <= MAX_WHOLE


def read_cells(array: Any, positions: tuple[Array, ...]) -> Array:
    """Return the cells of an array at all combinations of positions, one sorted list per axis.

    Of a memory-mapped array only those are read. A PyTorch tensor is not copied whole; bfloat16 and 8-bit floats become
    float32, which holds them.
    """
    given = array
    if hasattr(array, "detach"):
        array = array.detach()
        array = (array.view(_torch_integers(array)) if _is_short(array) else array).numpy()
    array = np.asanyarray(array)
    boxes = tuple(slice(int(p[0]), int(p[-1]) + 1) if len(p) else slice(0, 0) for p in positions)
    inside = array[boxes]
    apart = [k for k, p in enumerate(positions) if len(p) < inside.shape[k]]
    if len(apart) == 1:
        inside = np.take(inside, positions[apart[0]] - positions[apart[0]][0], axis=apart[0])
    elif apart:
        inside = inside[np.ix_(*(p - p[0] if len(p) else p for p in positions))]
    return _as_float32(np.asarray(inside), given) if _is_short(given) else np.asarray(inside)


def _is_short(array: Any) -> bool:
    """Return whether an array or tensor is of a float type that NumPy lacks."""
    return str(getattr(array, "dtype", "")).removeprefix("torch.") in SHORT


def _torch_integers(tensor: Any) -> Any:
    """Return PyTorch's type of integers of the same size as a tensor's cells."""
    import torch

    return torch.int16 if tensor.element_size() == 2 else torch.uint8


def _as_float32(cells: Array, like: Any) -> Array:
    """Return short floats as float32: cells of NumPy's, or the integers that stand for those of the tensor `like`."""
    if not hasattr(like, "detach"):
        return cells.astype(np.float32)
    import torch

    numbers: Array = torch.from_numpy(np.ascontiguousarray(cells)).view(like.dtype).float().numpy()
    return numbers.reshape(cells.shape)  # a number came back as one cell
