"""Compare two normal forms: identical node for node, equal as terms, or equal up to the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import repeat
from typing import Any

import numpy as np

from ..deadline import check_time
from ..graph.graph import CONSTANT, INPUT, Graph, NumberArg
from .constants import plain_numbers
from .folded import Folded, plain
from .normal_form import NormalForm
from .structures import structures_of
from .surd import Surd
from .term_table import TermTable

UNIT_ROUNDOFF = 2.0**-24
SECOND_ORDER = 1 + 1e-6  # of products of roundings, and of sizes that are floats
CELLS_PER_LOOK = 2**12  # at the clock


def fingerprints(graph: Graph, numbers: dict[Any, int]) -> list[int]:
    """Return a number per node, equal for equal nodes up to names, order and sharing; weights by their bits.

    `numbers` holds those given so far, and is extended: graphs with one such dict are compared by their numbers.
    """
    inputs = {p: k for k, p in enumerate(graph.input_positions)}
    formats: Mapping[str, str] = getattr(graph, "formats", {})
    each: list[int] = []
    for i, node in enumerate(graph.nodes):
        if node.op is INPUT:
            key: Any = ("input", inputs[i], node.kind)
        elif node.op is CONSTANT:
            array = graph.constants[i]
            bits = tuple(array.flat) if array.dtype == object else array.tobytes()
            key = ("constant", str(array.dtype), bits)
        else:
            args = tuple(
                ("number", signed_zero_key(a.value)) if isinstance(a, NumberArg) else each[a] for a in node.args
            )
            params = tuple((name, signed_zero_key(node.params[name])) for name in sorted(node.params))
            key = (node.op.name, params, args, formats.get(node.name, "float32"))
        each.append(numbers.setdefault((key, node.shape), len(numbers)))
    return each


def signed_zero_key(value: Any) -> Any:
    """Return a parameter as a hashable key in which -0.0 and 0.0 differ."""
    if isinstance(value, tuple):
        return tuple(signed_zero_key(v) for v in value)
    return ("zero", "-") if isinstance(value, float | np.floating) and value == 0 and np.signbit(value) else value


def same_node_for_node(a: Graph, b: Graph) -> bool:
    """Return whether two graphs are identical up to names, order and sharing of nodes; weights bit for bit.

    >>> import specgrad as sg
    >>> first = sg.trace(lambda x: sg.relu(x) + sg.relu(x), (2,))
    >>> second = sg.trace(lambda image: (lambda y: y + y)(sg.relu(image)), (2,))
    >>> same_node_for_node(first, second)
    True
    """
    numbers: dict[Any, int] = {}
    mine, others = (fingerprints(g, numbers) for g in (a, b))
    return [mine[p] for p in a.output_positions] == [others[p] for p in b.output_positions]


@dataclass(frozen=True)
class Weights:
    """How corresponding constants of two networks of one structure differ.

    max_difference  the most that a constant differs from its counterpart, at most
    largest         the largest absolute value of that constant of the first network
    layers          the layers of both that hold it
    units           the most that a constant differs, in 2**-24 of its size: what it was folded from, absolutely
    roundings       how often a float32 program rounds one of them that folds in one network what the other has folded
                    already; 0: neither leaves more to fold than the other
    within_rounding no constant differs by more than such foldings of its own explain
    """

    max_difference: float
    largest: float
    layers: tuple[str, str]
    units: float = 0.0
    roundings: int = 0
    within_rounding: bool = True

    @property
    def relative(self) -> float:
        """The difference relative to the largest absolute value; inf if that is 0."""
        return self.max_difference / self.largest if self.largest else float("inf")


def paired_constants(table: TermTable, a: int, b: int) -> Iterator[tuple[Any, Any, int, int]]:
    """Yield (constant, constant, atom, atom) of two values of one structure; None stands for a constant of zeros.

    Atoms and arguments that only their weights tell apart are paired in the order in which they were written: the
    distance is then that of this pairing.
    """
    structures = structures_of(table)
    todo, seen = [(a, b)], set()
    while todo:
        pair = todo.pop()
        if pair in seen or pair[0] == pair[1]:
            continue
        seen.add(pair)
        mine, others = (table.values[n] for n in pair)
        ordered = [sorted(v.terms, key=lambda t: (structures.of_atom(t[0]), t[0])) for v in (mine, others)]
        first = [terms[0][0] if terms else -1 for terms in ordered]
        if mine.shift != others.shift:
            yield _constant_or_none(table, mine.shift), _constant_or_none(table, others.shift), *first
        for (p, s), (q, t) in zip(*ordered, strict=True):
            if s != t:
                yield table.constants[s], table.constants[t], p, q
            x, y = table.atoms[p], table.atoms[q]
            if x.weights is not None and y.weights is not None and x.weights != y.weights:
                yield table.constants[x.weights], table.constants[y.weights], p, q
            todo += list(zip(structures.ordered_args(x), structures.ordered_args(y), strict=True))


def _constant_or_none(table: TermTable, number: int | None) -> Any:
    """Return a constant by its number; None for None."""
    return None if number is None else table.constants[number]


def constant_pairs(table: TermTable, a: NormalForm, b: NormalForm) -> list[tuple[Any, Any, int, int]] | None:
    """Return corresponding constants that are not known to be equal, with their atoms; None if the structures differ.

    If all of them are equal, the networks are one function.
    """
    structure = structures_of(table).of_value
    if [structure(v) for v in a.outputs] != [structure(v) for v in b.outputs]:
        return None
    return [pair for x, y in zip(a.outputs, b.outputs, strict=True) for pair in paired_constants(table, x, y)]


def weight_difference(pairs: list[tuple[Any, Any, int, int]], a: NormalForm, b: NormalForm) -> Weights:
    """Return how far corresponding constants (`pairs` of `constant_pairs`) are apart, and whether folding in float32
    explains it.

    TimeLimitError when the time is over.
    """
    worst, units, most, within = Weights(0.0, 0.0, ("", "")), 0.0, 0, True
    for p, q, atom, other in pairs:
        check_time("constants")
        low, high = _float_bounds(p)
        below, above = _float_bounds(q)
        with np.errstate(invalid="ignore"):  # infinities
            gap = np.nextafter(np.maximum(high - below, above - low), np.inf)
        gap = np.where((low == high) & (below == above) & (low == below), 0.0, gap)
        unit, roundings = _unit_and_roundings(p, q)
        unsure = (high - low) + (above - below)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            explained = roundings * unit * SECOND_ORDER + 2 * unsure
            apart = ~((gap == 0) | (roundings > 0) & (gap <= explained) & np.isfinite(explained))
            alike = (gap == 0) | (unit == 0) & (gap <= 2 * unsure)  # zeros, up to their own bounds
            rate = np.where(alike, 0.0, np.where(np.isfinite(unit), gap / unit, np.inf))
        within = within and not (apart & (roundings > 0)).any() and _equal_constants(p, q, apart)
        units, most = max(units, float(rate.max(initial=0))), max(most, int(np.max(roundings, initial=0)))
        distance = float(gap.max(initial=0))
        if distance > worst.max_difference:
            size = float(np.maximum(abs(low), abs(high)).max(initial=0))
            worst = Weights(distance, size, (layer_of(a, atom), layer_of(b, other)))
    return replace(worst, units=units, roundings=most, within_rounding=within)


def _unit_and_roundings(p: Any, q: Any) -> tuple[Any, Any]:
    """Return, per cell, 2**-24 of the larger size of two constants p and q (None: zeros), and how many roundings
    folding adds to one of them.

    Where both are made of as many operations nobody has folded one of them: what differs was given so. The one with
    fewer was folded already: below 2**-126 its cells were rounded to the numbers that float32 has there. Numbers that
    stand elsewhere too, folded differently, explain no more than every way to fold them does.
    """
    none = np.zeros(()), np.zeros((), int), np.zeros((), int)
    size, most, least = none if p is None else p.foldings()
    other, others_most, others_least = none if q is None else q.foldings()
    stored = [0.0 if each is None else each.underflow_unit() for each in (p, q)]
    unit = np.maximum(np.maximum(size, other) * UNIT_ROUNDOFF, np.where(least > others_most, stored[1], stored[0]))
    mixed = any(each is not None and each.mixed for each in (p, q))
    return unit, np.maximum(np.maximum(least - others_most, others_least - most), 0) * (not mixed)


def all_equal(pairs: list[tuple[Any, Any, int, int]]) -> bool:
    """Return whether corresponding constants (`pairs` of `constant_pairs`) are equal numbers, cell by cell over exact
    ones; False: not shown.
    """
    return all(_equal_constants(p, q) for p, q, _, _ in pairs)


def _equal_constants(p: Any, q: Any, at: Any = True) -> bool:
    """Return whether two constants p and q (None: zeros) are equal; each cell's floats first, since most differ there.

    TimeLimitError when the time is over.

    at   the cells that are looked at; True: all of them
    """
    (low, high), (below, above) = _float_bounds(p), _float_bounds(q)
    near = (low <= above) & (below <= high) & np.isfinite(low + high + below + above)
    if not bool((near | ~np.asarray(at)).all()):
        return False
    if not np.any(at):
        return True  # no cell is asked for, and exact numbers cost microseconds each
    looked_at = np.broadcast_to(at, near.shape).flat
    first, second = (_cells(x, near.shape) for x in (p, q))
    for k, (x, y) in enumerate(zip(first, second, strict=True)):
        if k % CELLS_PER_LOOK == 0:
            check_time("exact constants")
        if looked_at[k] and x != y:
            return False
    return True


def _cells(constant: Any, shape: Any) -> Iterator[Any]:
    """Yield the exact numbers of a constant (None: zeros), broadcast to a shape, one by one."""
    if constant is None:
        yield from repeat(Fraction(0), math.prod(shape))
        return
    factors = repeat(None) if constant.factors is None else np.broadcast_to(constant.factors, shape).flat
    for x, s in zip(np.broadcast_to(constant.array, shape).flat, factors, strict=False):
        cell = plain_numbers(np.asarray(x))[()] if not isinstance(x, Folded | Fraction | Surd) else plain(x)
        yield cell if s is None else cell * plain(s)


def _float_bounds(constant: Any) -> tuple[Any, Any]:
    """Return float64 bounds (low, high) of a constant; zeros for None."""
    return (np.zeros(()), np.zeros(())) if constant is None else constant.float_bounds


def layer_of(form: NormalForm, atom: int) -> str:
    """Return the name of the layer in which an atom first appears; "" if unknown."""
    position = form.atoms.get(atom)
    return "" if position is None else form.graph.nodes[position].group


def first_divergent_layers(table: TermTable, a: NormalForm, b: NormalForm) -> tuple[str, str]:
    """Return, per network, the first layer with neither its value nor a value that needs it in the other network."""
    return _first_unmatched_layer(table, a, set(b.values)), _first_unmatched_layer(table, b, set(a.values))


def _first_unmatched_layer(table: TermTable, form: NormalForm, others: set[int]) -> str:
    """Return the first layer of `form` from which no value of `others`, by number in `table`, is reached; "" if there
    is none.
    """
    nodes, reached = form.graph.nodes, [False] * len(form.values)
    for i in range(len(nodes) - 1, -1, -1):
        reached[i] |= form.values[i] in others
        for k in nodes[i].operands():
            reached[k] |= reached[i]
    for i, node in enumerate(nodes):
        if not reached[i] and table.values[form.values[i]].terms and node.op not in (CONSTANT, INPUT):
            return node.group
    return ""
