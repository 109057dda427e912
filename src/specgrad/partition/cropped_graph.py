"""A graph cropped to boxes of its outputs: the box of every node that is needed, and the graph that computes it.

Backwards: the hull of what its readers need, per node. Forwards: every node again, on its box, with the parameters that
it has there. The result is an ordinary graph: it runs on every engine, over every scalar, and has derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..graph.builder import GraphBuilder, Var
from ..graph.graph import INPUT, Graph, NumberArg
from ..graph.ir.node import Node
from ..ops.layout import slice_
from ..scalar import Array
from ..window import Shape
from ..window.footprint import Box, BoxRule, Footprint, hull, inside, lengths
from .spatial_axes import data_positions


def crop_to_boxes(graph: Graph, rules: Mapping[int, BoxRule], boxes: Mapping[int, Box]) -> CroppedGraph:
    """Return `graph` cropped to what is needed for `boxes` (by node); `rules` give the box of each argument."""
    needs, cuts = dict(boxes), {}
    for p in range(max(needs, default=-1), -1, -1):
        if p not in needs or p not in rules:
            continue
        cuts[p] = rules[p].on(needs[p])
        for a, box in zip(graph.nodes[p].args, cuts[p].args, strict=True):
            if isinstance(a, int):
                needs[a] = hull(needs[a], box) if a in needs else box
    return CroppedGraph(graph, dict(boxes), needs, cuts)


@dataclass(frozen=True, eq=False)
class CroppedGraph:
    """The graph `source` restricted to `boxes` of some nodes: `needs` has the box needed of each node, `cuts` each
    computed node on its box.
    """

    source: Graph
    boxes: dict[int, Box]
    needs: dict[int, Box]
    cuts: dict[int, Footprint]

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """A hashable key; croppings with equal keys have equal graphs (sizes, parameters, relative offsets)."""
        outputs = tuple((p, str(inside(box, self.needs[p]))) for p, box in self.boxes.items())
        return tuple(self._node_key(p) for p in sorted(self.needs)), outputs

    def _node_key(self, p: int) -> tuple[Any, ...]:
        """Return the part of `key` of node p: its number, its sizes, and if it is computed the offsets and sizes of its
        arguments, what it gives, its parameters.
        """
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
        """The positions of the needed data, parameters and constants, each in order.

        A computed node without a cut is a constant too: it is known from a pass before.
        """
        data, nodes = set(data_positions(self.source)), self.source.nodes
        given = [p for p in self.source.input_positions if p in self.needs]
        constants = sorted(p for p in self.needs if nodes[p].op is not INPUT and p not in self.cuts)
        return [p for p in given if p in data], [p for p in given if p not in data], constants

    @property
    def leaves(self) -> list[int]:
        """Positions of all inputs of the cropped graph: data, then parameters, then constants."""
        return [p for group in self.inputs for p in group]

    def graph(self) -> Graph:
        """Return the cropped graph: (data, parameters, constants) -> values on `boxes`, in the order of their nodes.

        Parameters and constants are inputs: all tiles share one set of them.
        """
        t, values, nodes = GraphBuilder(), dict[int, Var](), self.source.nodes
        arguments = [
            [(p, t.leaf(nodes[p].name, lengths(self.needs[p]), nodes[p].kind)) for p in g] for g in self.inputs
        ]
        for group in arguments:
            values.update(group)
        outputs = self._record_nodes(t, values)
        trees = tuple(tuple(v for _, v in group) for group in arguments)
        return t.freeze(("data", "parameters", "constants"), trees, outputs, False)

    def graph_with_constants(self, constants: Mapping[int, Array]) -> Graph:
        """Return the cropped graph as a graph of its own: one argument per needed input, in order, and `constants` as
        constants, by position and on what is needed of them.

        A constant stays one, so that what is proven of a network with fixed weights is proven here too.
        """
        t, values, nodes = GraphBuilder(), dict[int, Var](), self.source.nodes
        given = [p for p in self.source.input_positions if p in self.needs]
        arguments = [t.leaf(nodes[p].name, lengths(self.needs[p]), nodes[p].kind) for p in given]
        values.update(zip(given, arguments, strict=True))
        for p, array in constants.items():
            values[p] = t.constant(array, nodes[p].name, real=nodes[p].kind == "real", owned=True)
        outputs = self._record_nodes(t, values)
        return t.freeze(tuple(nodes[p].name for p in given), tuple(arguments), outputs, False)

    def _record_nodes(self, t: GraphBuilder, values: dict[int, Var]) -> tuple[Var, ...]:
        """Record every cut node in the builder t, add it to `values`, which has what they read, and return the
        outputs.
        """
        nodes = self.source.nodes
        for p in sorted(self.cuts):
            node, cut = nodes[p], self.cuts[p]
            pairs = zip(node.args, cut.args, strict=True)
            args = [a.value if isinstance(a, NumberArg) else self._values_on(values, a, box) for a, box in pairs]
            v = t.record(node.op, args, cut.params, name=node.name, group=node.group)
            values[p] = slice_(v, *inside(self.needs[p], cut.gives)) if cut.gives != self.needs[p] else v
        return tuple(self._values_on(values, p, box) for p, box in self.boxes.items())

    def _values_on(self, values: dict[int, Var], p: int, box: Box) -> Any:
        """Return the value of node p in `values` on `box`, sliced if more of it was computed."""
        return values[p] if box == self.needs[p] else slice_(values[p], *inside(box, self.needs[p]))

    # --- what it costs ------------------------------------------------------------------------------------------------

    @cached_property
    def multiply_adds(self) -> int:
        """Number of multiply-adds of the cropped graph."""
        total = 0
        for p, cut in self.cuts.items():
            op = self.source.nodes[p].op
            total += op.multiply_adds(*(lengths(box) for box in cut.args), **cut.params)
        return total

    @cached_property
    def peak_cells(self) -> int:
        """Largest number of data cells held at once, if each value is freed after its last use.

        Parameters are not counted, nor what an engine's kernels need for themselves. A value that only moves the cells
        of one argument is a view of it.
        """
        return self.peak_cells_beside(lambda node, cut: 0)

    def peak_cells_beside(self, workspace: Callable[[Node, Footprint], int]) -> int:
        """Return `peak_cells`, with what `workspace` says that the kernel of a cut node takes while it runs."""
        nodes, owner = self.source.nodes, self._storage_owner
        last = {owner[a]: p for p in sorted(self.cuts) for a in nodes[p].operands() if a in owner}
        live = peak = 0
        for p in sorted(owner):
            if owner[p] == p:
                live += math.prod(self._computed_shape(p))
            peak = max(peak, live + (workspace(nodes[p], self.cuts[p]) if p in self.cuts else 0))
            for a in {owner[a] for a in nodes[p].operands() if a in owner}:
                if last[a] == p and a not in self.boxes:
                    live -= math.prod(self._computed_shape(a))
        return peak

    def _computed_shape(self, p: int) -> Shape:
        """Return the shape that node p is computed in, before it is sliced to its box.

        Of an input or constant, the sizes of its box.
        """
        return lengths(self.cuts[p].gives if p in self.cuts else self.needs[p])

    @cached_property
    def _storage_owner(self) -> dict[int, int]:
        """Map each node that depends on the data to the node that stores its cells; a view shares its argument's."""
        nodes, data = self.source.nodes, set(data_positions(self.source))
        owner: dict[int, int] = {}
        for p in sorted(self.needs):
            operands = [a for a in nodes[p].operands() if a in owner]
            if p in data or (operands and p in self.cuts):
                view = nodes[p].op.kind == "same" and len(nodes[p].args) == 1
                owner[p] = owner[operands[0]] if view and operands else p
        return owner
