"""Rules of sums whose terms stand in different layouts: x + L(y) = L(L'(x) + y), L'(x) moved back.

A residual sum may be computed before a turn of the axes or behind it. Sums below a layout are written out, and all
terms are put into the layout in which one of them needs no move, which then stands outside: the one whose value below
all moves has the structure that was written first, whatever its weights are. Contractions and broadcasts are not asked:
their letters are turned, and what they repeat.

`table` holds the terms of both networks; values and atoms are given and returned by their numbers in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from ..scalar import Array
from ..window import Shape
from .constants import TooManyError
from .layout import inverse_moved, is_broadcast, permute_to, reshape_to
from .linear_combinations import LAYOUT, apply_layout, inverse_layout, linear_combination
from .structures import structures_of
from .term_table import Atom, TermTable

Parts = list[tuple[Array, int]]  # (scale, number of a value)


def sum_value(table: TermTable, shape: Shape, parts: Iterable[tuple[Any, int]]) -> int:
    """Return the number of the sum of factor * value over `parts`, of this shape, in the layout of one of its terms."""
    number = linear_combination(table, shape, parts)
    if 0 in shape:
        return number
    try:
        return _in_one_layout(table, number)
    except TooManyError:  # of a scale or shift that varies along axes which a reshape cuts
        return number


def _in_one_layout(table: TermTable, number: int) -> int:
    """Return the number of the value `number` in the layout of one of its terms; of a value of one term, as it is.

    TooManyError if a scale or shift would have too many cells.
    """
    written = _written_out(table, number)
    chains = [_chain(table, n) for _, n in written if table.values[n].terms]
    asked = [(base, layers) for layers, base in chains if _stays(table, base)]
    if len(chains) < 2 or not asked:
        return number
    _, outside = min(asked, key=lambda pair: (structures_of(table).of_value(pair[0]), pair[0]))
    inner = table.values[number].shape
    for layer in outside:
        inner = table.values[layer.args[0]].shape
        written = [
            (inverse_layout(layer, inner, s), inverse_moved(table, n, (layer.op, layer.params, inner)))
            for s, n in written
        ]
    total = linear_combination(table, inner, written)
    for layer in reversed(outside):
        total = _moved(table, total, layer)
    return total


def _written_out(table: TermTable, number: int) -> Parts:
    """Return a value as (scale, number) of terms of one atom each, and of its shift; sums below moves are written
    out.

    TooManyError if a scale or shift would have too many cells.
    """
    value, parts = table.values[number], Parts()
    for atom, scale in value.terms:
        term = table.value_of_atom(table.atoms[atom])
        layers, base = _chain(table, term)
        if not layers or table.single_atom(base) is not None:
            parts.append((table.numbers_of(scale), term))
            continue
        inside = _written_out(table, base)
        for layer in reversed(layers):
            old = table.values[layer.args[0]].shape
            inside = [
                (apply_layout(layer.op, layer.params, s, old, layer.shape), _moved(table, n, layer)) for s, n in inside
            ]
        parts += [(np.asarray(s * table.numbers_of(scale), dtype=object), n) for s, n in inside]
    if value.shift is not None:
        one = np.full((1,) * len(value.shape), Fraction(1), dtype=object)
        parts.append((one, table.value_of_constant(value.shape, table.shift_of(value))))
    return parts


def _chain(table: TermTable, number: int) -> tuple[list[Atom], int]:
    """Return the reshapes and permutations that a value consists of, the outermost first, and the value below them."""
    layers, atom = list[Atom](), table.single_atom(number)
    while atom is not None and atom.op in LAYOUT and atom.ruled:
        layers.append(atom)
        number = atom.args[0]
        atom = table.single_atom(number)
    return layers, number


def _stays(table: TermTable, number: int) -> bool:
    """Return whether a move of the value `number` stands outside it: it does of all but contractions and broadcasts."""
    atom = table.single_atom(number)
    return atom is None or (atom.op != "contract" and not is_broadcast(table, number))


def _moved(table: TermTable, number: int, layer: Atom) -> int:
    """Return the number of the value `number` after `layer`, a reshape or permutation."""
    if layer.op == "permute":
        return permute_to(table, number, layer.params[0])
    return reshape_to(table, number, layer.shape)
