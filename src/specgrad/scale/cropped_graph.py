"""A graph on boxes of its outputs: what every node must provide, and the graph that computes just that.

Backwards: the hull of what its readers need, per node. Forwards: every node again, on its box, with the parameters that
it has there. The result is an ordinary graph: it runs on every engine, over every scalar, and has derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..graph.builder import GraphBuilder, Var
from ..graph.graph import INPUT, Graph, NumberArg
from ..ops.layout import slice_
from ..partition.spatial_axes import data_positions
from ..window import Shape
from ..window.footprint import Box, BoxRule, Footprint, hull, inside, lengths


def needs_of(graph: Graph, rules: Mapping[int, BoxRule], boxes: Mapping[int, Box]) -> CutGraph:
    """What each node must provide for boxes of some nodes."""
    needs, cuts = dict(boxes), {}
    for p in range(max(needs, default=-1), -1, -1):
        if p not in needs or p not in rules:
            continue
        cuts[p] = rules[p].on(needs[p])
        for a, box in zip(graph.nodes[p].args, cuts[p].args, strict=True):
            if isinstance(a, int):
                needs[a] = hull(needs[a], box) if a in needs else box
    return CutGraph(graph, dict(boxes), needs, cuts)


@dataclass(frozen=True, eq=False)
class CutGraph:
    """`needs`: the box of each node; `cuts`: each computed node on its box."""

    source: Graph
    boxes: dict[int, Box]
    needs: dict[int, Box]
    cuts: dict[int, Footprint]

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal where the graphs are: sizes, parameters, and where arguments and outputs stand in what was computed."""
        outputs = tuple((p, str(inside(box, self.needs[p]))) for p, box in self.boxes.items())
        return tuple(self._key(p) for p in sorted(self.needs)), outputs

    def _key(self, p: int) -> tuple[Any, ...]:
        if p not in self.cuts:
            return p, lengths(self.needs[p])
        cut, here = self.cuts[p], tuple(a for a, _ in self.needs[p])
        args = [(a, b) for a, b in zip(self.source.nodes[p].args, cut.args, strict=True) if isinstance(a, int)]
        offsets = tuple(b[0] - n[0] for a, box in args for b, n in zip(box, self.needs[a], strict=True))
        sizes = tuple(b - a for _, box in args for a, b in box)
        gives = tuple(a - n for (a, _), n in zip(cut.gives, here, strict=True))
        return p, lengths(self.needs[p]), offsets, sizes, gives, tuple(cut.params.values())

    @cached_property
    def inputs(self) -> tuple[list[int], list[int], list[int]]:
        """The positions of the data, the parameters and the constants that are needed, in order.

        A computed node without a cut is a constant too: it is known from a pass before.
        """
        data, nodes = set(data_positions(self.source)), self.source.nodes
        given = [p for p in self.source.input_positions if p in self.needs]
        constants = sorted(p for p in self.needs if nodes[p].op is not INPUT and p not in self.cuts)
        return [p for p in given if p in data], [p for p in given if p not in data], constants

    @property
    def leaves(self) -> list[int]:
        """What is given: data, parameters and constants."""
        return [p for group in self.inputs for p in group]

    def graph(self) -> Graph:
        """The graph on these boxes: (data, parameters, constants) -> the boxes, in the order of their nodes.

        Parameters and constants are inputs: all tiles share one set of them.
        """
        t, values, nodes = GraphBuilder(), dict[int, Var](), self.source.nodes
        arguments = [
            [(p, t.leaf(nodes[p].name, lengths(self.needs[p]), nodes[p].kind)) for p in g] for g in self.inputs
        ]
        for group in arguments:
            values.update(group)
        for p in sorted(self.cuts):
            node, cut = nodes[p], self.cuts[p]
            pairs = zip(node.args, cut.args, strict=True)
            args = [a.value if isinstance(a, NumberArg) else self._part(values, a, box) for a, box in pairs]
            v = t.record(node.op, args, cut.params, name=node.name, group=node.group)
            values[p] = slice_(v, *inside(self.needs[p], cut.gives)) if cut.gives != self.needs[p] else v
        outputs = tuple(self._part(values, p, box) for p, box in self.boxes.items())
        trees = tuple(tuple(v for _, v in group) for group in arguments)
        return t.freeze(("data", "parameters", "constants"), trees, outputs, False)

    def _part(self, values: dict[int, Var], p: int, box: Box) -> Any:
        return values[p] if box == self.needs[p] else slice_(values[p], *inside(box, self.needs[p]))

    # --- what it costs ------------------------------------------------------------------------------------------------

    @cached_property
    def multiply_adds(self) -> int:
        total = 0
        for p, cut in self.cuts.items():
            op = self.source.nodes[p].op
            total += op.macs(*(lengths(box) for box in cut.args), **cut.params)
        return total

    @cached_property
    def peak_cells(self) -> int:
        """The most cells of data at once, where each value is let go after its last use.

        Parameters are not counted, nor what an engine's kernels need for themselves. A value that only moves the cells
        of one argument is a view of it.
        """
        nodes, held = self.source.nodes, self._held
        last = {held[a]: p for p in sorted(self.cuts) for a in nodes[p].operands() if a in held}
        live = most = 0
        for p in sorted(held):
            if held[p] == p:
                live += math.prod(self._shape(p))
            most = max(most, live)
            for a in {held[a] for a in nodes[p].operands() if a in held}:
                if last[a] == p and a not in self.boxes:
                    live -= math.prod(self._shape(a))
        return most

    def _shape(self, p: int) -> Shape:
        return lengths(self.cuts[p].gives if p in self.cuts else self.needs[p])

    @cached_property
    def _held(self) -> dict[int, int]:
        """Who owns the cells of each value that depends on the data."""
        nodes, data = self.source.nodes, set(data_positions(self.source))
        held: dict[int, int] = {}
        for p in sorted(self.needs):
            known = [a for a in nodes[p].operands() if a in held]
            if p in data or (known and p in self.cuts):
                view = nodes[p].op.kind == "same" and len(nodes[p].args) == 1
                held[p] = held[known[0]] if view and known else p
        return held
