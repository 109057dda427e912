"""Spatial axes of a graph: which axes of which values belong to one spatial axis of the input, and how they are scaled.

A line is a spatial axis of the first data input. If a box rule lets an axis of a result go along an axis of an
argument, both belong to one line, and `cells` says how many cells of the first input one cell there stands for. An axis
of a line that a layer reads completely ends there: no tile can avoid what such a layer reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from ..errors import ShapeError
from ..graph.drawing.summary import data_inputs
from ..graph.graph import CONSTANT, INPUT, Graph, NumberArg
from ..ops.layout import axes_of
from ..window import Shape
from ..window.axis_maps import Interval, Relation
from ..window.footprint import BoxRule

Vertex = tuple[int, int]  # a node's position, and one of its axes


class Edge(NamedTuple):
    """An axis of a result (node, axis) that goes along an axis of an argument, and the relation between both."""

    result: Vertex
    argument: Vertex
    relation: Relation


class AxisScale(NamedTuple):
    """The line that an axis of a value belongs to, and the cells of the first input that one of its
    cells stands for."""

    line: int
    cells: Fraction


@dataclass(frozen=True, slots=True)
class GlobalRead:
    """A layer, with the name of its operator, that reads some `axes` of a value of that shape from end to end."""

    layer: str
    operator: str
    axes: Shape
    shape: Shape

    def __str__(self) -> str:
        axes = " and ".join(map(str, self.axes))
        return f"{self.layer}: {self.operator} reads all of axis {axes} of {'x'.join(map(str, self.shape))}"


def data_positions(graph: Graph) -> list[int]:
    """Return the positions of inputs that are data: arguments that are no structures."""
    return sorted(data_inputs(graph))


def box_rules(graph: Graph) -> dict[int, BoxRule]:
    """Return the box rule of every computed node, by position."""
    rules = {}
    for p, node in enumerate(graph.nodes):
        if node.op not in (INPUT, CONSTANT):
            shapes = [() if isinstance(a, NumberArg) else graph.nodes[a].shape for a in node.args]
            rules[p] = node.op.boxes(shapes, node.params)
    return rules


class SpatialAxes:
    """The lines of a graph, from axes of its first data input; default: those after the second, or the last.

    ShapeError if the first data input has no axes; `who` is who asks, for errors.

    axes     those of the first data input
    places   (node, axis) -> its line, and the cells of the first input that one of its cells stands for
    whole    the layers at which a line ends, by name
    ends     the nodes at which one does, and the axes of the argument

    who: whom errors are to name
    """

    def __init__(self, graph: Graph, axes: Sequence[int] | None = None, *, who: str = "tiles") -> None:
        self.graph, self.rules = graph, box_rules(graph)
        data = [p for p in data_positions(graph) if graph.nodes[p].kind == "real"]
        if not data or not graph.nodes[data[0]].shape:
            text = "needs a data input with axes, an argument that is no structure"
            raise ShapeError(who, f"{text}; the graph takes {', '.join(graph.names) or 'nothing'}")
        first, rank = data[0], len(graph.nodes[data[0]].shape)
        chosen = range(min(2, rank - 1), rank) if axes is None else axes_of(who, axes, rank)
        self.axes: Shape = tuple(chosen)
        starts = [(first, axis) for axis in chosen]
        self.edges = {p: list(self._axis_edges(p)) for p in self.rules}
        self.places: dict[Vertex, AxisScale] = {v: AxisScale(line, Fraction(1)) for line, v in enumerate(starts)}
        self._whole: dict[str, GlobalRead] = {}
        self.ends: dict[int, set[int]] = {}
        self._connect_axes(starts)
        for p in self.rules:
            self._record_line_ends(p)

    @property
    def whole(self) -> tuple[GlobalRead, ...]:
        """Return the layers at which a line ends."""
        return tuple(self._whole.values())

    def _axis_edges(self, p: int) -> Iterator[Edge]:
        """Yield an Edge per axis of node p that goes along an axis of an argument, except one that has shrunk to a
        single cell which reads them all.
        """
        node, rule = self.graph.nodes[p], self.rules[p]
        for a, links in zip(node.args, rule.args, strict=True):
            for axis, j in enumerate(links):
                if not isinstance(j, int) or not isinstance(a, int) or rule.axes[j].rate is None:
                    continue
                n = self.graph.nodes[a].shape[axis]
                if node.shape[j] > 1 or n == 1 or rule.axes[j].part(0, 1).need != (0, n):
                    yield Edge((p, j), (a, axis), rule.axes[j])

    def _connect_axes(self, stack: list[Vertex]) -> None:
        """Find the line and scale of every axis that is connected to those in `stack`, against the edges and along
        them.
        """
        beside: dict[Vertex, list[tuple[Vertex, Fraction, int]]] = {}
        for p, edges in self.edges.items():
            for edge in edges:
                rate = edge.relation.rate or Fraction(1)
                beside.setdefault(edge.argument, []).append((edge.result, rate, p))
                beside.setdefault(edge.result, []).append((edge.argument, 1 / rate, p))
        stack = list(stack)
        while stack:
            vertex = stack.pop()
            line, cells = self.places[vertex]
            for other, rate, p in beside.get(vertex, ()):
                place = AxisScale(line, cells * rate)
                if other not in self.places:
                    self.places[other] = place
                    stack.append(other)
                elif self.places[other] != place:  # it moves at two speeds, or along two axes at once
                    self._record_global_read(p, other[0], (other[1],))

    def _record_line_ends(self, p: int) -> None:
        """Record where lines end at node p: axes of its arguments along which no axis of the result goes."""
        kept = {edge.argument for edge in self.edges[p]}
        for a in self.graph.nodes[p].operands():
            shape = self.graph.nodes[a].shape
            lost = [k for k, n in enumerate(shape) if n > 1 and (a, k) in self.places and (a, k) not in kept]
            if lost:
                self._record_global_read(p, a, tuple(lost))

    def _record_global_read(self, p: int, argument: int, axes: Shape) -> None:
        """Record that lines end at axes of node p, which reads all of its operand `argument`; its layer is listed
        once.
        """
        node = self.graph.nodes[p]
        self.ends.setdefault(p, set()).update(axes)
        self._whole.setdefault(node.group, GlobalRead(node.group, node.op.name, axes, self.graph.nodes[argument].shape))

    def of(self, position: int) -> dict[int, AxisScale]:
        """Return {axis: scale} of the axes of the node at `position` that belong to a line."""
        axes = range(len(self.graph.nodes[position].shape))
        return {axis: self.places[position, axis] for axis in axes if (position, axis) in self.places}

    @cached_property
    def steps(self) -> dict[int, int]:
        """Return {line: cells of the first input after which every layer repeats, moved by a whole number of cells}."""
        steps: dict[int, int] = {}
        for line, cells in self.places.values():
            steps[line] = math.lcm(steps.get(line, 1), cells.numerator)
        return steps

    def spans(self, ends: dict[Vertex, Interval]) -> dict[Vertex, Interval]:
        """Return the intervals that given intervals of the outputs need on every axis, on lines without ends."""
        spans = dict(ends)
        for p in sorted(self.edges, reverse=True):
            for edge in self.edges[p]:
                if edge.result not in spans:
                    continue
                a, b = edge.relation.free(*spans[edge.result])
                c, d = spans.get(edge.argument, (a, b))
                spans[edge.argument] = min(a, c), max(b, d)
        return spans
