"""Build the difference of two networks as one graph, in which it is carried from layer to layer.

Two networks that are much alike, bounded one by one, are as far apart as both bounds are wide. So every value of the
second network b is written as a value of the first one, a, and a delta: y_b = y + delta, exactly.

    equal       what both compute, by their normal forms (specgrad.equivalence), is one node, and the delta is 0
    linear      f(y + delta) = f(y) + f'(delta): f with the weights of b, on a value of a
    nonlinear   functions of one cell and maxima: specgrad.check.comparison.delta_rules
    other       the value of b, computed by b's own layers: there is no delta any more

Before a nonlinear node a value is rebased onto a value of a of the same position in the network:
s + delta = y + (delta + s - y). Which one is a guess that costs nothing but width: the sum is the same for every y.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.bounds import Box
from specgrad.bounds.box import numpy_of
from specgrad.equivalence.normal_form import NormalForm
from specgrad.equivalence.structures import structures_of
from specgrad.equivalence.term_table import TermTable
from specgrad.graph.builder import GraphBuilder, Var
from specgrad.graph.graph import INPUT, Graph, Node, NumberArg
from specgrad.op import scope
from specgrad.ops.elementwise import add, neg, sub
from specgrad.scalar import Array

from .copy_nodes import Constants, copy_node, record_inputs, record_node
from .delta_rules import DeltaBuilder, is_nonlinear, slopes, sum_or_none

Ranges = Mapping[str, Box]


@dataclass(frozen=True, eq=False)
class DifferenceNetwork:
    """A graph that encloses a - b: it takes the inputs of a, then added inputs that lie in `boxes`."""

    graph: Graph
    boxes: tuple[Box, ...]


@dataclass(frozen=True, eq=False)
class BasePlusDelta:
    """A value of b, as base + delta; without delta, the base itself."""

    base: Any
    delta: Any = None


def build_difference(
    a: NormalForm, b: NormalForm, table: TermTable, ranges: tuple[Ranges, Ranges]
) -> DifferenceNetwork:
    """Return a graph that encloses a - b, one output per real output, and the boxes of the inputs that it adds to a's.

    Most of them are gates, in 0..1 per cell: they stand for what a nonlinear node makes of a difference. Bounds over
    all of these boxes hold for a - b; the graph's value at one choice of gates says nothing of it.

    a, b     their normal forms, both in the table
    ranges   per network: boxes of its nodes' values, by name; what is missing may be anything

    >>> import specgrad as sg
    >>> from specgrad.equivalence.normal_form import normal_form
    >>> table, nets = TermTable(), [sg.trace(lambda x: sg.relu(3 * x + k), (1,)) for k in (0.5, 0.75)]
    >>> made = build_difference(*(normal_form(net, table) for net in nets), table, ({}, {}))
    >>> made.graph(np.array([1.0]), np.array([1.0]))  # with its gate at 1, relu passes the whole difference
    (array([-0.25]),)
    """
    return _DifferenceBuilder(a, b, table, ranges).run()


# --- which value of a stands for which of b ---------------------------------------------------------------------------


def matching_values(a: NormalForm, b: NormalForm, table: TermTable) -> dict[int, int]:
    """Return {value of b: value of a} for inputs of nonlinear nodes: of one structure, else by order in its kind."""
    stands_for: dict[int, int] = {}
    kinds = [lambda f, n, p: ("form", structures_of(table).of_value(f.values[p])), lambda f, n, p: (n.op.name, n.shape)]
    for kind in kinds:
        mine, others = _nonlinear_inputs(a, kind), _nonlinear_inputs(b, kind)
        for key in mine.keys() & others.keys():
            for p, q in zip(others[key], mine[key], strict=False):
                stands_for.setdefault(p, q)
    return {p: q for p, q in stands_for.items() if b.graph.nodes[p].shape == a.graph.nodes[q].shape}


def _nonlinear_inputs(form: NormalForm, kind: Any) -> dict[Any, list[int]]:
    """Return {kind: positions of inputs of nonlinear nodes}, in order; `kind(form, node, position)` gives the key.
    Inputs that are constant are left out.
    """
    positions: dict[Any, list[int]] = defaultdict(list)
    moving = _input_dependent(form.graph)
    for node in form.graph.nodes:
        for p in node.operands() if is_nonlinear(node) else ():
            if p in moving and p not in positions[kind(form, node, p)]:
                positions[kind(form, node, p)].append(p)
    return positions


def _input_dependent(graph: Graph) -> set[int]:
    """Return the nodes that depend on an input; all others are constant."""
    moving: set[int] = set()
    for i, node in enumerate(graph.nodes):
        if node.op is INPUT or moving.intersection(node.operands()):
            moving.add(i)
    return moving


# --- the walk ---------------------------------------------------------------------------------------------------------


class _DifferenceBuilder:
    """Walks network b, writing each of its values as a value of a plus a delta.

    a and b are normal forms in one `table`; `ranges` are those of the values of either.
    """

    def __init__(self, a: NormalForm, b: NormalForm, table: TermTable, ranges: tuple[Ranges, Ranges]) -> None:
        self.a, self.b, self.ranges = a, b, ranges
        self.builder = GraphBuilder(share=True)
        self.deltas = DeltaBuilder(self.builder)
        self.constants: Constants = {}
        graph = a.graph
        self.inputs = record_inputs(self.builder, graph)
        self.matching = matching_values(a, b, table)
        self.mine: list[Var] = []
        self.node_of: dict[int, int] = {}  # of the graph's nodes: the value of a that it is
        self.node_with_form: dict[int, int] = {}  # of normal forms: the value of a that has it
        for i, node in enumerate(graph.nodes):
            self.mine.append(self.plain(graph, i, self.mine))
            self.node_of.setdefault(self.mine[i].id, i)
            if node.kind == "real":
                self.node_with_form.setdefault(a.values[i], i)

    def plain(self, graph: Graph, i: int, values: Sequence[Var]) -> Var:
        """Return node i of `graph` recorded as it is, on `values`, the copies of the nodes before it."""
        return copy_node(self.builder, self.constants, graph, i, self.inputs, values)

    def run(self) -> DifferenceNetwork:
        """Return the graph that encloses a - b, with the boxes of its added inputs; call it once."""
        graph = self.b.graph
        moving, own, values = _input_dependent(graph), list[Var](), list[BasePlusDelta]()
        for i, node in enumerate(graph.nodes):
            twin = self.node_with_form.get(self.b.values[i]) if i in moving else None
            own.append(self.plain(graph, i, own) if twin is None else self.mine[twin])
            carried = self._value_of_node(node, values) if i in moving and own[i].id not in self.node_of else None
            values.append(carried or BasePlusDelta(own[i]))
        ends = zip(self.a.graph.output_positions, graph.output_positions, strict=True)
        outputs = [self._output_difference(self.mine[p], values[q]) for p, q in ends if graph.nodes[q].kind == "real"]
        return DifferenceNetwork(self.builder.build(tuple(outputs)), tuple(self.deltas.boxes))

    # --- nodes of b that depend on an input, and that a has not -------------------------------------------------------

    def _value_of_node(self, node: Node, values: list[BasePlusDelta]) -> BasePlusDelta | None:
        """Return the value of a node of b that a does not have; None if it must be computed by b's layers."""
        args = [BasePlusDelta(x.value) if isinstance(x, NumberArg) else values[x] for x in node.args]
        if is_nonlinear(node):
            return self._apply_nonlinear(node, [self._rebase(p, x) for p, x in zip(node.args, args, strict=True)])
        moved = {k for k, x in enumerate(args) if x.delta is not None}
        if not moved:
            return BasePlusDelta(record_node(self.builder, node, [x.base for x in args]))
        if not any(moved <= set(g) for g in node.op.linear_groups(len(args))):
            return None
        base, deltas = record_node(self.builder, node, [x.base for x in args]), [x.delta for x in args]
        with scope("lag"):
            return BasePlusDelta(base, node.op.tangent(base, [x.base for x in args], deltas, node.params))

    def _rebase(self, p: Any, x: BasePlusDelta) -> BasePlusDelta | None:
        """Return x, the value of node p of b, as a value of a plus a delta; None if no value of a matches. A number p
        stays.
        """
        if isinstance(p, NumberArg) or x.base.id in self.node_of:
            return x
        partner = self.matching.get(p)
        if partner is None:
            return None
        base = self.mine[partner]
        with scope("lag"):
            behind = sub(x.base, base)
            return BasePlusDelta(base, behind if x.delta is None else add(x.delta, behind))

    def _apply_nonlinear(self, node: Node, args: Sequence[BasePlusDelta | None]) -> BasePlusDelta | None:
        """Return base and delta of a nonlinear node of b, given those of its arguments.

        None if one or its slopes are unknown.
        """
        known = [x for x in args if x is not None]
        if len(known) < len(args):
            return None
        base = record_node(self.builder, node, [x.base for x in known])
        if all(x.delta is None for x in known):
            return BasePlusDelta(base)
        with scope("lag"):
            ends = self._range_of_both(node, known[0]) if len(known) == 1 else (np.empty(0), np.empty(0))
            if node.op.curve is None:
                return BasePlusDelta(
                    base, self.deltas.through_maximum(node, [0 if x.delta is None else x.delta for x in known], *ends)
                )
            steepness = slopes(node.op, node.params, *ends)
            return (
                None
                if steepness is None
                else BasePlusDelta(base, self.deltas.through_unary(known[0].delta, *steepness))
            )

    def _range_of_both(self, node: Node, x: BasePlusDelta) -> tuple[Array, Array]:
        """Return (low, high) per cell that holds what both networks may have as the only argument x of `node`."""
        shape, (p,) = x.base.shape, node.operands()
        names = self.a.graph.nodes[self.node_of[x.base.id]].name, self.b.graph.nodes[p].name
        boxes = [known.get(name) for known, name in zip(self.ranges, names, strict=True)]
        low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
        for box in boxes:
            ends = (-np.inf, np.inf) if box is None else (numpy_of(box.low), numpy_of(box.high))
            low, high = np.minimum(low, ends[0]), np.maximum(high, ends[1])
        return low, high

    def _output_difference(self, mine: Var, other: BasePlusDelta) -> Any:
        """Return a - b of one output: a's is `mine`, b's is `other`; zeros if they are one value."""
        with scope("gap"):
            parts = [] if other.base.id == mine.id else [sub(mine, other.base)]
            parts += [] if other.delta is None else [neg(other.delta)]
            return sum_or_none(parts) if parts else np.zeros(mine.shape)
