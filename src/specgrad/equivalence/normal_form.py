"""A graph in normal form: every node through its rule, into a table that both networks share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import SpecgradError
from ..graph.graph import CONSTANT, INPUT, Arg, Graph, Node, NumberArg
from ..ops.elementwise import SQRT, cellwise
from ..scalar import Array
from .constants import CELLS, Constant, exact_cells
from .layout import Layout, common_layout, without_layout
from .linear_combinations import laid_out
from .linear_maps import WORK, TermApplication
from .rewrite_rules import COMMUTES, RULES, folded
from .term_table import Atom, TermTable


@dataclass(frozen=True, eq=False)
class NormalForm:
    """values of the nodes by position, as numbers of the table; atoms: the first node whose form an atom is part of."""

    graph: Graph
    values: list[int]
    atoms: Mapping[int, int] = field(default_factory=dict)

    @property
    def outputs(self) -> list[int]:
        return [self.values[p] for p in self.graph.output_positions]


def normal_form(graph: Graph, table: TermTable, rules: Mapping[str, Any] = RULES) -> NormalForm:
    """Every node's value in the table; inputs are known by their place among the arguments."""
    inputs = {p: k for k, p in enumerate(graph.input_positions)}
    given: dict[int, Array] = dict(graph.constants)
    values: list[int] = []
    atoms: dict[int, int] = {}
    for i, node in enumerate(graph.nodes):
        if node.op is INPUT:
            number = table.of_atom(Atom("input", (inputs[i], node.kind), (), node.shape))
        elif node.op is CONSTANT:
            number = _constant(table, node, np.asarray(given[i]))
        else:
            number = _applied(table, graph, node, values, given, i, rules)
        values.append(number)
        for atom, _ in table.values[number].terms:
            atoms.setdefault(atom, i)
    return NormalForm(graph, values, atoms)


def _constant(table: TermTable, node: Node, array: Array) -> int:
    """Floats as they are, each the number that it is; an index, and what is not finite, as an atom with the array."""
    if node.kind == "real":
        whole = np.broadcast_to(array, node.shape)
        try:
            floats = array.dtype.kind == "f" and bool(np.isfinite(array).all())
            return table.of_cells(node.shape, whole if floats else exact_cells(whole))
        except SpecgradError:
            if array.dtype == object:
                raise
    number = table.constant(Constant(array))
    return table.of_atom(Atom(f"{node.kind} constant", (str(array.dtype),), (), node.shape, number))


def _applied(
    table: TermTable,
    graph: Graph,
    node: Node,
    values: list[int],
    given: dict[int, Array],
    position: int,
    rules: Mapping[str, Any],
) -> int:
    numbers = tuple(_argument(table, a, values) for a in node.args)
    weights = tuple(_weights(table, graph, a, values, given) for a in node.args)
    call = TermApplication(table, node.op, node.params, numbers, weights, node.shape)
    _hand_on(node, given, position)
    try:
        known = _folded(call, node)
        if known is not None:
            return known
        layout = common_layout(table, numbers) if node.op.receptive_field is cellwise and node.shape else None
        if layout is not None and all(s == node.shape for s in call.shapes):
            return _under(call, node, layout, rules)
        return _by_rule(call, node, rules)
    except (SpecgradError, ArithmeticError, ValueError):  # what exact numbers cannot do stays as it stands
        return _as_it_stands(call)


def _argument(table: TermTable, a: Arg, values: list[int]) -> int:
    if not isinstance(a, NumberArg):
        return values[a]
    return table.of_cells((), exact_cells(np.asarray(a.value, dtype=object)))


def _weights(table: TermTable, graph: Graph, a: Any, values: list[int], given: dict[int, Array]) -> Array | None:
    """A constant argument as it was given, or as exact numbers of its whole shape."""
    if isinstance(a, NumberArg):
        return exact_cells(np.asarray(a.value, dtype=object))
    if a in given:
        array = np.asarray(given[a])
        finite = array.dtype.kind != "f" or bool(np.isfinite(array).all())
        return np.broadcast_to(array, graph.nodes[a].shape) if finite else None
    cells = table.constant_of(values[a])
    shape = graph.nodes[a].shape
    if cells is None or (cells.size > 1 and math.prod(shape) > CELLS):
        return None
    return np.broadcast_to(cells, shape)


def _hand_on(node: Node, given: dict[int, Array], position: int) -> None:
    """Large weights stay what they are when they are only moved."""
    source = node.args[0] if node.args else None
    if isinstance(source, int) and source in given and len(node.args) == 1:
        array = given[source]
        if node.op.name == "permute":
            given[position] = np.transpose(array, node.params["order"])
        elif node.op.name == "reshape":
            given[position] = np.reshape(array, node.shape)


def _folded(call: TermApplication, node: Node) -> int | None:
    """Constants alone: the value itself, where exact numbers can say it."""
    if any(g is None for g in call.given) or node.kind != "real" or node.op.index_args or node.op is SQRT:
        return None
    if math.prod(node.shape) > CELLS or node.op.multiply_adds(*call.shapes, **call.params) > WORK:
        return None
    try:
        cells = [exact_cells(np.asarray(g)) for g in call.given]
        whole = [np.array(np.broadcast_to(x, s)) for x, s in zip(cells, call.shapes, strict=True)]
        return call.table.of_cells(node.shape, folded(call, whole))
    except (SpecgradError, ArithmeticError, TypeError, AttributeError):
        return None


def _by_rule(call: TermApplication, node: Node, rules: Mapping[str, Any]) -> int:
    made: int | None = rules[node.op.name](call) if node.op.name in rules and node.kind == "real" else None
    return _as_it_stands(call) if made is None else made


def _as_it_stands(call: TermApplication) -> int:
    args = tuple(sorted(call.args)) if call.op.name in COMMUTES else call.args
    params = tuple(sorted(call.params.items()))
    return call.table.of_atom(Atom(call.op.name, params, args, call.shape))


def _under(call: TermApplication, node: Node, layout: Layout, rules: Mapping[str, Any]) -> int:
    """f(L(x), ..., c) = L(f(x, ..., L'(c))) for a function of one cell."""
    inner = tuple(without_layout(call.table, a, layout) for a in call.args)
    given = tuple(None if call.table.values[a].terms else call.table.constant_of(a) for a in inner)
    below = TermApplication(call.table, call.op, call.params, inner, given, layout[2])
    number = _by_rule(below, node, rules)
    return laid_out(call.table, layout[0], layout[1], number, node.shape)
