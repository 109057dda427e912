"""Two normal forms beside each other: identical node for node, equal in form, or alike up to the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph.graph import CONSTANT, INPUT, Graph, NumberArg
from .normal_form import NormalForm
from .term_table import TermTable


def fingerprints(graph: Graph, numbers: dict[Any, int]) -> list[int]:
    """A number per node, equal for nodes that are the same up to names, order and sharing; weights by their bits."""
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
            args = tuple(("number", signed(a.value)) if isinstance(a, NumberArg) else each[a] for a in node.args)
            params = tuple((name, signed(node.params[name])) for name in sorted(node.params))
            key = (node.op.name, params, args, formats.get(node.name, "float32"))
        each.append(numbers.setdefault((key, node.shape), len(numbers)))
    return each


def signed(value: Any) -> Any:
    """A parameter as something to look up: -0.0 is another number than 0.0, though they are equal."""
    if isinstance(value, tuple):
        return tuple(signed(v) for v in value)
    return ("zero", "-") if isinstance(value, float | np.floating) and value == 0 and np.signbit(value) else value


def same_node_for_node(a: Graph, b: Graph) -> bool:
    """One graph, up to the names of its nodes, their order and what is shared; weights bit for bit.

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
    """The pair of constants, of two networks of one structure, that differ the most: by `max_difference`, at most.

    largest   the largest absolute value of the constant of the first network
    layers    the layers of both
    """

    max_difference: float
    largest: float
    layers: tuple[str, str]

    @property
    def relative(self) -> float:
        return self.max_difference / self.largest if self.largest else float("inf")


class Skeleton:
    """Terms without their constants: equal for networks of one structure, whatever their weights are."""

    def __init__(self, table: TermTable) -> None:
        self.table = table
        self._numbers: dict[Any, int] = {}
        self._atoms: list[int] = []
        for atom in table.atoms:  # what an atom is applied to was written before it
            weights = None if atom.weights is None else table.constants[atom.weights].shape
            key = (atom.op, atom.params, tuple(self.of_value(a) for a in atom.args), atom.shape, weights)
            self._atoms.append(self._numbers.setdefault(key, len(self._numbers)))

    def of_value(self, number: int) -> int:
        """Shifts and scales are constants; only atoms count."""
        value = self.table.values[number]
        key = ("value", value.shape, tuple(sorted(self._atoms[a] for a, _ in value.terms)))
        return self._numbers.setdefault(key, len(self._numbers))

    def pairs(self, a: int, b: int) -> Iterator[tuple[Any, Any, int, int]]:
        """Pairs of constants of two values of one structure, with the atoms that they belong to; None stands for zeros.

        Atoms that only their weights tell apart are paired in the order in which they were written: the distance is
        then that of this pairing.
        """
        todo, seen = [(a, b)], set()
        while todo:
            pair = todo.pop()
            if pair in seen or pair[0] == pair[1]:
                continue
            seen.add(pair)
            mine, others = (self.table.values[n] for n in pair)
            ordered = [sorted(v.terms, key=lambda t: (self._atoms[t[0]], t[0])) for v in (mine, others)]
            first = [terms[0][0] if terms else -1 for terms in ordered]
            if mine.shift != others.shift:
                yield _known(self.table, mine.shift), _known(self.table, others.shift), *first
            for (p, s), (q, t) in zip(*ordered, strict=True):
                if s != t:
                    yield self.table.constants[s], self.table.constants[t], p, q
                x, y = self.table.atoms[p], self.table.atoms[q]
                if x.weights is not None and y.weights is not None and x.weights != y.weights:
                    yield self.table.constants[x.weights], self.table.constants[y.weights], p, q
                todo += list(zip(x.args, y.args, strict=True))


def _known(table: TermTable, number: int | None) -> Any:
    return None if number is None else table.constants[number]


def weights_apart(table: TermTable, a: NormalForm, b: NormalForm) -> Weights | None:
    """The largest distance between corresponding constants; None where the structures differ."""
    skeleton = Skeleton(table)
    if [skeleton.of_value(v) for v in a.outputs] != [skeleton.of_value(v) for v in b.outputs]:
        return None
    worst = Weights(0.0, 0.0, ("", ""))
    for x, y in zip(a.outputs, b.outputs, strict=True):
        for p, q, atom, other in skeleton.pairs(x, y):
            low, high = _ends(p)
            below, above = _ends(q)
            distance = float(np.nextafter(np.maximum(high - below, above - low).max(initial=0), np.inf))
            size = float(np.maximum(abs(low), abs(high)).max(initial=0))
            if distance > worst.max_difference:
                worst = Weights(distance, size, (layer_of(a, atom), layer_of(b, other)))
    return worst


def _ends(constant: Any) -> tuple[Any, Any]:
    return (np.zeros(()), np.zeros(())) if constant is None else constant.ends()


def layer_of(form: NormalForm, atom: int) -> str:
    """The layer in which an atom first stands."""
    position = form.atoms.get(atom)
    return "" if position is None else form.graph.nodes[position].group


def first_apart(table: TermTable, a: NormalForm, b: NormalForm) -> tuple[str, str]:
    """The first layer of each network that computes what the other computes nowhere, neither it nor what needs it."""
    return _missing(table, a, set(b.values)), _missing(table, b, set(a.values))


def _missing(table: TermTable, form: NormalForm, others: set[int]) -> str:
    """Layers that were folded into others, or moved, are passed over: something behind them is there again."""
    nodes, reached = form.graph.nodes, [False] * len(form.values)
    for i in range(len(nodes) - 1, -1, -1):
        reached[i] |= form.values[i] in others
        for k in nodes[i].operands():
            reached[k] |= reached[i]
    for i, node in enumerate(nodes):
        if not reached[i] and table.values[form.values[i]].terms and node.op not in (CONSTANT, INPUT):
            return node.group
    return ""
