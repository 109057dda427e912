"""The difference of two networks as one graph, in which it is carried from layer to layer.

Two networks that are much alike, bounded one by one, are as far apart as both bounds are wide. So every value of the
second network b is written as a value of the first one, a, and what it lags behind: y_b = y + lag, exactly.

    equal       what both compute, by their normal forms (specgrad.equivalence), is one node, and nothing lags
    linear      f(y + lag) = f(y) + f'(lag): f with the weights of b, on a value of a
    bent        functions of one cell and maxima: specgrad.check.comparison.delta_rules
    other       the value of b, computed by b's own layers: nothing lags any more

Before something bent a value is taken onto a value of a of the same place in the network: s + lag = y + (lag + s - y).
Which one is a guess that costs nothing but width: the sum is the same for every y.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.bounds import Box
from specgrad.bounds.box import numpy_of
from specgrad.equivalence.matching import Skeleton
from specgrad.equivalence.normal_form import NormalForm
from specgrad.equivalence.term_table import TermTable
from specgrad.graph.builder import GraphBuilder, Var
from specgrad.graph.graph import INPUT, Graph, Node, NumberArg
from specgrad.op import scope
from specgrad.ops.elementwise import add, neg, sub
from specgrad.scalar import Array

from .copy_nodes import Constants, entered, plain, record
from .delta_rules import DeltaBuilder, is_bent, slopes, total

Ranges = Mapping[str, Box]


@dataclass(frozen=True, eq=False)
class DifferenceNetwork:
    """The graph of a - b: it takes the inputs of a, and then others, of which the boxes hold every possible one."""

    graph: Graph
    boxes: tuple[Box, ...]


@dataclass(frozen=True, eq=False)
class BasePlusDelta:
    """A value of b: base + lag; no lag: the base itself."""

    base: Any
    lag: Any = None


def carried(a: NormalForm, b: NormalForm, table: TermTable, ranges: tuple[Ranges, Ranges]) -> DifferenceNetwork:
    """The difference of two networks.

    a, b     their normal forms, both in the table
    ranges   of each network: boxes that hold what its nodes are, by name; what is missing may be anything

    >>> import specgrad as sg
    >>> from specgrad.equivalence.normal_form import normal_form
    >>> table, nets = TermTable(), [sg.trace(lambda x: sg.relu(3 * x + k), (1,)) for k in (0.5, 0.75)]
    >>> made = carried(*(normal_form(net, table) for net in nets), table, ({}, {}))
    >>> made.graph(np.array([1.0]), np.array([1.0]))  # of the slopes from 0 to 1 that a relu may have, 1
    (array([-0.25]),)
    """
    return _Carrier(a, b, table, ranges).run()


# --- which value of a stands for which of b ---------------------------------------------------------------------------


def partners(a: NormalForm, b: NormalForm, table: TermTable) -> dict[int, int]:
    """For what b bends, a value of a: of the same structure, else the one that is as many-eth of its kind."""
    skeleton = Skeleton(table)
    stands_for: dict[int, int] = {}
    kinds = [lambda f, n, p: ("form", skeleton.of_value(f.values[p])), lambda f, n, p: (n.op.name, n.shape)]
    for kind in kinds:
        mine, others = _by_kind(a, kind), _by_kind(b, kind)
        for key in mine.keys() & others.keys():
            for p, q in zip(others[key], mine[key], strict=False):
                stands_for.setdefault(p, q)
    return {p: q for p, q in stands_for.items() if b.graph.nodes[p].shape == a.graph.nodes[q].shape}


def _by_kind(form: NormalForm, kind: Any) -> dict[Any, list[int]]:
    positions: dict[Any, list[int]] = defaultdict(list)
    moving = _moving(form.graph)
    for node in form.graph.nodes:
        for p in node.operands() if is_bent(node) else ():
            if p in moving and p not in positions[kind(form, node, p)]:
                positions[kind(form, node, p)].append(p)
    return positions


def _moving(graph: Graph) -> set[int]:
    """What depends on an input; the rest are numbers, however they are written."""
    moving: set[int] = set()
    for i, node in enumerate(graph.nodes):
        if node.op is INPUT or moving.intersection(node.operands()):
            moving.add(i)
    return moving


# --- the walk ---------------------------------------------------------------------------------------------------------


class _Carrier:
    def __init__(self, a: NormalForm, b: NormalForm, table: TermTable, ranges: tuple[Ranges, Ranges]) -> None:
        self.a, self.b, self.ranges = a, b, ranges
        self.builder = GraphBuilder(share=True)
        self.lags = DeltaBuilder(self.builder)
        self.constants: Constants = {}
        graph = a.graph
        self.inputs = entered(self.builder, graph)
        self.partners = partners(a, b, table)
        self.mine: list[Var] = []
        self.places: dict[int, int] = {}  # of the graph's nodes: the value of a that it is
        self.twins: dict[int, int] = {}  # of normal forms: the value of a that has it
        for i, node in enumerate(graph.nodes):
            self.mine.append(self.plain(graph, i, self.mine))
            self.places.setdefault(self.mine[i].id, i)
            if node.kind == "real":
                self.twins.setdefault(a.values[i], i)

    def plain(self, graph: Graph, i: int, values: Sequence[Var]) -> Var:
        return plain(self.builder, self.constants, graph, i, self.inputs, values)

    def run(self) -> DifferenceNetwork:
        graph = self.b.graph
        moving, own, values = _moving(graph), list[Var](), list[BasePlusDelta]()
        for i, node in enumerate(graph.nodes):
            twin = self.twins.get(self.b.values[i]) if i in moving else None
            own.append(self.plain(graph, i, own) if twin is None else self.mine[twin])
            carried = self._apply(node, values) if i in moving and own[i].id not in self.places else None
            values.append(carried or BasePlusDelta(own[i]))
        ends = zip(self.a.graph.output_positions, graph.output_positions, strict=True)
        outputs = [self._gap(self.mine[p], values[q]) for p, q in ends if graph.nodes[q].kind == "real"]
        return DifferenceNetwork(self.builder.build(tuple(outputs)), tuple(self.lags.boxes))

    # --- nodes of b that depend on an input, and that a has not -------------------------------------------------------

    def _apply(self, node: Node, values: list[BasePlusDelta]) -> BasePlusDelta | None:
        args = [BasePlusDelta(x.value) if isinstance(x, NumberArg) else values[x] for x in node.args]
        if is_bent(node):
            return self._bent(node, [self._onto(p, x) for p, x in zip(node.args, args, strict=True)])
        moved = {k for k, x in enumerate(args) if x.lag is not None}
        if not moved:
            return BasePlusDelta(record(self.builder, node, [x.base for x in args]))
        if not any(moved <= set(g) for g in node.op.linear_groups(len(args))):
            return None
        base, lags = record(self.builder, node, [x.base for x in args]), [x.lag for x in args]
        with scope("lag"):
            return BasePlusDelta(base, node.op.tangent(base, [x.base for x in args], lags, node.params))

    def _onto(self, p: Any, x: BasePlusDelta) -> BasePlusDelta | None:
        """The same value on a value of a; numbers are on none."""
        if isinstance(p, NumberArg) or x.base.id in self.places:
            return x
        partner = self.partners.get(p)
        if partner is None:
            return None
        base = self.mine[partner]
        with scope("lag"):
            behind = sub(x.base, base)
            return BasePlusDelta(base, behind if x.lag is None else add(x.lag, behind))

    def _bent(self, node: Node, args: Sequence[BasePlusDelta | None]) -> BasePlusDelta | None:
        known = [x for x in args if x is not None]
        if len(known) < len(args):
            return None
        base = record(self.builder, node, [x.base for x in known])
        if all(x.lag is None for x in known):
            return BasePlusDelta(base)
        with scope("lag"):
            ends = self._range(node, known[0]) if len(known) == 1 else (np.empty(0), np.empty(0))
            if node.op.curve is None:
                return BasePlusDelta(base, self.lags.among(node, [0 if x.lag is None else x.lag for x in known], *ends))
            steepness = slopes(node.op, node.params, *ends)
            return None if steepness is None else BasePlusDelta(base, self.lags.steep(known[0].lag, *steepness))

    def _range(self, node: Node, x: BasePlusDelta) -> tuple[Array, Array]:
        """What both networks may have there."""
        shape, (p,) = x.base.shape, node.operands()
        names = self.a.graph.nodes[self.places[x.base.id]].name, self.b.graph.nodes[p].name
        boxes = [known.get(name) for known, name in zip(self.ranges, names, strict=True)]
        low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
        for box in boxes:
            ends = (-np.inf, np.inf) if box is None else (numpy_of(box.low), numpy_of(box.high))
            low, high = np.minimum(low, ends[0]), np.maximum(high, ends[1])
        return low, high

    def _gap(self, mine: Var, other: BasePlusDelta) -> Any:
        """a - b."""
        with scope("gap"):
            parts = [] if other.base.id == mine.id else [sub(mine, other.base)]
            parts += [] if other.lag is None else [neg(other.lag)]
            return total(parts) if parts else np.zeros(mine.shape)
