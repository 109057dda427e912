"""Compute the normal form of a graph: every node through its rule, into a table that both networks share.

`table` holds the terms of both networks; values and atoms are given and returned by their numbers in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..deadline import check_time
from ..errors import SpecgradError
from ..graph.graph import CONSTANT, INPUT, Arg, Graph, Node, NumberArg
from ..ops.elementwise import DIV, MUL, SQRT, cellwise
from ..ops.quantize import CAST
from ..scalar import Array
from .constants import MAX_EXACT_CELLS, MAX_MULTIPLIED_CELLS, Constant, TooManyError, exact_constant, holds
from .known_arrays import fold_arrays, known_constant
from .layout import Layout, common_layout, under_layout, without_layout
from .linear_combinations import reciprocals
from .linear_maps import MAX_EXACT_PRODUCTS, TermApplication
from .rewrite_rules import RULES, evaluate_exactly
from .term_table import AffineTerm, Atom, TermTable


@dataclass(frozen=True, eq=False)
class NormalForm:
    """Normal form of a graph: the value number of every node, and of every atom the first node that has it.

    values   value number per node, by position
    atoms    atom number -> position of the first node that has it
    """

    graph: Graph
    values: list[int]
    atoms: Mapping[int, int] = field(default_factory=dict)

    @property
    def outputs(self) -> list[int]:
        """The value numbers of the outputs."""
        return [self.values[p] for p in self.graph.output_positions]


@np.errstate(over="ignore", invalid="ignore")  # of sizes beyond the largest float: they explain nothing
def normal_form(graph: Graph, table: TermTable, rules: Mapping[str, Any] = RULES) -> NormalForm:
    """Return the normal form of a graph: a value number per node in `table`, made by the operators' rewrite `rules`.

    TimeLimitError when the time is over.
    """
    inputs = {p: k for k, p in enumerate(graph.input_positions)}
    given = {i: Constant(np.asarray(array)) for i, array in graph.constants.items()}
    values: list[int] = []
    atoms: dict[int, int] = {}
    for i, node in enumerate(graph.nodes):
        check_time("normal forms")
        if node.op is INPUT:
            number = table.value_of_atom(Atom("input", (inputs[i], node.kind), (), node.shape))
        elif node.op is CONSTANT:
            number = _constant_value(table, node, given[i].array)
        else:
            number = _value_of_node(table, graph, node, values, given, i, rules)
        values.append(number)
        for atom, _ in table.values[number].terms:
            atoms.setdefault(atom, i)
    return NormalForm(graph, values, atoms)


def _constant_value(table: TermTable, node: Node, array: Array) -> int:
    """Return the value number of a constant node: finite floats as exact numbers; indices and non-finite arrays as an
    atom.
    """
    if node.kind == "real":
        whole = np.broadcast_to(array, node.shape)
        try:
            floats = array.dtype.kind == "f" and bool(np.isfinite(array).all())
            return table.value_of_constant(node.shape, whole if floats else exact_constant(whole))
        except SpecgradError:
            if array.dtype == object:
                raise
    number = table.constant(Constant(array))
    return table.value_of_atom(Atom(f"{node.kind} constant", (str(array.dtype),), (), node.shape, number))


def _value_of_node(
    table: TermTable,
    graph: Graph,
    node: Node,
    values: list[int],
    given: dict[int, Constant],
    position: int,
    rules: Mapping[str, Any],
) -> int:
    """Return the value number of one node: folded, under a common layout, by its rule, or uninterpreted.

    `values` are the numbers of the nodes before `position`; `given` the known constants by position, to which one that
    only moves, or is multiplied by few numbers, is added. `rules` are the operators' rewrite rules.
    """
    numbers = tuple(_value_of_argument(table, a, values) for a in node.args)
    weights = tuple(_constant_argument(table, graph, a, values, given) for a in node.args)
    call = TermApplication(table, node.op, node.params, numbers, weights, node.shape)
    _track_constant(call, node, given, position)
    if node.op is CAST and weights[0] is not None and not holds(node.params["dtype"], weights[0]):
        return _value_as_atom(call)  # a computed value would be rounded, but this number is another one
    try:
        known = _value_with_factors(call, given.get(position))
        known = _fold_constants(call, node) if known is None else known
        known = _fold_as_arrays(call, node) if known is None else known
        if known is not None:
            return known
        layout = common_layout(table, numbers) if node.op.receptive_field is cellwise and node.shape else None
        if layout is not None and all(s == node.shape for s in call.shapes):
            return _apply_under_layout(call, node, layout, rules)
        return _value_by_rule(call, node, rules)
    except (SpecgradError, ArithmeticError, ValueError):  # what exact numbers cannot do stays as it stands
        return _value_as_atom(call)


def _value_of_argument(table: TermTable, a: Arg, values: list[int]) -> int:
    """Return the value number of an argument, a bare number or a node, whose number stands in `values`.

    ScalarError for NaN and infinities, TooManyError for too many cells.
    """
    if not isinstance(a, NumberArg):
        return values[a]
    return table.value_of_constant((), exact_constant(np.asarray(a.value, dtype=object)))


def _constant_argument(
    table: TermTable, graph: Graph, a: Any, values: list[int], given: dict[int, Constant]
) -> Constant | None:
    """Return the constant argument `a`, of its full shape; None if it is not constant, not finite or too large.

    `given` are the known constants by position, `values` the value numbers.
    """
    if isinstance(a, NumberArg):
        return Constant(exact_constant(np.asarray(a.value, dtype=object)))
    shape = graph.nodes[a].shape
    if a in given:
        known = given[a]
        finite = known.array.dtype.kind != "f" or bool(np.isfinite(known.array).all())
        return replace(known, array=np.broadcast_to(known.array, shape)) if finite else None
    if table.values[values[a]].terms:
        return None
    if math.prod(shape) > MAX_EXACT_CELLS and (array := known_constant(table, values[a])) is not None:
        return array
    try:
        cells = table.constant_of(values[a])
    except TooManyError:
        return None
    if cells is None or (cells.size > 1 and math.prod(shape) > MAX_EXACT_CELLS):
        return None
    return Constant(np.broadcast_to(cells, shape))


def _track_constant(call: TermApplication, node: Node, given: dict[int, Constant], position: int) -> None:
    """Record in `given` the constant that `node`, which is `call`, makes at `position` if it is one permuted, reshaped,
    cast to a format that holds it, or multiplied by few numbers: large weights stay as they are.
    """
    large = [k for k, a in enumerate(node.args) if isinstance(a, int) and a in given]
    if not large:
        return
    k, name = large[0], node.op.name
    known = given[node.args[k]]  # type: ignore[index]
    if name == "permute":
        given[position] = known.rearranged(lambda array: np.transpose(array, node.params["order"]))
    elif node.op is CAST and holds(node.params["dtype"], known):
        given[position] = known
    elif name == "reshape":
        given[position] = known.rearranged(lambda array: np.reshape(array, node.shape))
    elif node.op is MUL or (node.op is DIV and k == 0):
        _track_product(call, node, given, position)


def _track_product(call: TermApplication, node: Node, given: dict[int, Constant], position: int) -> None:
    """Record in `given`, at `position`, the product or quotient that `node` makes of a large constant and one of few
    numbers.

    Nothing is recorded for others.
    """
    if math.prod(node.shape) <= MAX_MULTIPLIED_CELLS:
        return  # a constant as any other
    for k in (0, 1) if node.op is MUL else (0,):
        whole = call.weights[k]
        if whole is None or whole.shape != node.shape or whole.array.dtype == object:
            continue
        try:
            cells = call.table.constant_of(call.args[1 - k])
            if cells is None or cells.size >= whole.array.size:
                continue
            cells = cells.reshape((1,) * (len(node.shape) - cells.ndim) + cells.shape)
            given[position] = whole.times(cells if node.op is MUL else reciprocals(cells))
        except (SpecgradError, ArithmeticError):
            continue
        return


def _value_with_factors(call: TermApplication, known: Constant | None) -> int | None:
    """Return the number of the constant value `known`, an array times factors, without multiplying its cells.

    None for a constant that has no factors, has one of 0, or is 0 in every cell.
    """
    if known is None or known.factors is None or not known.array.any() or any(v == 0 for v in known.factors.flat):
        return None
    return call.table.value(AffineTerm(call.shape, (), call.table.constant(known)))


def _fold_constants(call: TermApplication, node: Node) -> int | None:
    """Return the number of the constant value of a node whose arguments are all constant.

    None if it is not exact or too large.
    """
    if any(g is None for g in call.weights) or node.kind != "real" or node.op.index_args or node.op is SQRT:
        return None
    if (
        math.prod(node.shape) > MAX_EXACT_CELLS
        or node.op.multiply_adds(*call.shapes, **call.params) > MAX_EXACT_PRODUCTS
    ):
        return None
    try:
        given = [w for w in call.weights if w is not None]
        cells = [exact_constant(w.array) if w.factors is None and not w.mixed else w.numbers() for w in given]
        whole = [np.array(np.broadcast_to(x, s)) for x, s in zip(cells, call.shapes, strict=True)]
        return call.table.value_of_constant(node.shape, evaluate_exactly(call, whole))
    except (SpecgradError, ArithmeticError, TypeError, AttributeError):
        return None


def _fold_as_arrays(call: TermApplication, node: Node) -> int | None:
    """Return the number of the constant value of a node whose arguments are constants of floats or positions.

    None if one is not, if `fold_arrays` does not know the operator, or if the result is not finite.
    """
    if any(call.table.values[number].terms for number in call.args) and not node.op.index_args and node.kind == "real":
        return None
    known = [known_constant(call.table, number) for number in call.args]
    if any(k is None for k in known):
        return None
    made = fold_arrays(node.op, call.params, [k for k in known if k is not None], node.shape)
    if made is None:
        return None
    if node.kind != "real":
        return call.table.value_of_atom(Atom("index constant", ("int64",), (), node.shape, call.table.constant(made)))
    return call.table.value_of_constant(node.shape, made.array, mixed=made.mixed)


def _value_by_rule(call: TermApplication, node: Node, rules: Mapping[str, Any]) -> int:
    """Return the value number of a node by its operator's rule in `rules`; as an atom if there is none or it does not
    apply.
    """
    made: int | None = rules[node.op.name](call) if node.op.name in rules and node.kind == "real" else None
    return _value_as_atom(call) if made is None else made


def _value_as_atom(call: TermApplication) -> int:
    """Return the value number of the operator applied to its arguments as an atom; arguments of commutative operators
    are sorted.
    """
    args = tuple(sorted(call.args)) if call.op.commutative else call.args
    params = tuple(sorted(call.params.items()))
    return call.table.value_of_atom(Atom(call.op.name, params, args, call.shape))


def _apply_under_layout(call: TermApplication, node: Node, layout: Layout, rules: Mapping[str, Any]) -> int:
    """Return the value number of f(L(x), ..., c), written as L(f(x, ..., L'(c))), for an elementwise f, a reshape or
    permutation L and its inverse L'.

    `rules` are the operators' rewrite rules.
    """
    inner = tuple(without_layout(call.table, a, layout) for a in call.args)
    below = TermApplication(call.table, call.op, call.params, inner, (None,) * len(inner), layout[2])
    deeper = common_layout(call.table, inner)
    if deeper is not None and all(s == layout[2] for s in below.shapes):
        number = _apply_under_layout(below, node, deeper, rules)
    else:
        try:
            number = _value_by_rule(below, node, rules)
        except (SpecgradError, ArithmeticError, ValueError):
            number = _value_as_atom(below)
    return under_layout(call.table, layout, number, call.shape)
