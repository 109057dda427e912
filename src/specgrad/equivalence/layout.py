"""Rules of reshapes and permutations: they are merged, moved outwards, and dropped where nothing moves.

reshape(reshape(x)) = reshape(x)    permute(permute(x)) = permute(x)    f(L(x)) = L(f(x)) for a function of one cell
a permutation that keeps the order of all axes longer than 1 is a reshape, and goes below a reshape that moves others

`table` holds the terms of both networks; values and atoms are given and returned by their numbers in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..window import Shape
from .linear_combinations import affine_value, apply_layout, canonical_spec, split_spec, with_layout
from .term_table import AffineTerm, Atom, TermTable

Layout = tuple[str, tuple[Any, ...], Shape]  # permute or reshape, its attributes, and the shape of its argument


def reshape_to(table: TermTable, x: int, shape: Shape) -> int:
    """Return the value number of x reshaped to `shape`, merged with a reshape inside."""
    if table.values[x].shape == shape:
        return x
    inner = table.single_atom(x)
    if inner is not None and inner.op == "reshape":
        return reshape_to(table, inner.args[0], shape)
    return with_layout(table, "reshape", (shape,), x, shape)


def permute_to(table: TermTable, x: int, order: tuple[int, ...]) -> int:
    """Return the value number of x with its axes in `order`, merged with a permutation inside."""
    shape = table.values[x].shape
    inner = table.single_atom(x)
    if inner is not None and inner.op == "permute":
        return permute_to(table, inner.args[0], tuple(inner.params[0][a] for a in order))
    if inner is not None and inner.op == "reshape":
        below = _permuted_below_reshape(table, inner, order)
        if below is not None:
            return below
    value = table.values[x]
    if len(value.terms) == 1 and table.atoms[value.terms[0][0]].op == "contract":
        return _permuted_contract(table, value, order) or with_layout(
            table, "permute", (order,), x, _permuted_shape(shape, order)
        )
    moving = [a for a in order if shape[a] != 1]
    if order == tuple(range(len(order))):
        return x
    if moving == sorted(moving) and 0 not in shape:
        return reshape_to(table, x, _permuted_shape(shape, order))
    return with_layout(table, "permute", (order,), x, _permuted_shape(shape, order))


def _permuted_below_reshape(table: TermTable, reshape: Atom, order: tuple[int, ...]) -> int | None:
    """Return the value number of permute(reshape(y)) as reshape(permute(y)), if the reshape moves axes of one cell
    alone; else None.

    `order` is that of the axes.
    """
    (y,), shape = reshape.args, reshape.shape
    old = table.values[y].shape
    long, axes = ([a for a, n in enumerate(s) if n != 1] for s in (old, shape))
    if [old[a] for a in long] != [shape[a] for a in axes] or 0 in shape:
        return None
    moved = iter([long[axes.index(a)] for a in order if shape[a] != 1])
    inside = permute_to(table, y, tuple(next(moved) if n != 1 else a for a, n in enumerate(old)))
    return reshape_to(table, inside, _permuted_shape(shape, order))


def _permuted_shape(shape: Shape, order: tuple[int, ...]) -> Shape:
    """Return the shape with its axes in `order`."""
    return tuple(shape[a] for a in order)


def _permuted_contract(table: TermTable, value: AffineTerm, order: tuple[int, ...]) -> int | None:
    """Return the value number of permute(s*contract(x, w) + c) as a contraction whose result and x have permuted
    letters; else None.

    `value` is the term, `order` that of the axes.
    """
    (number, scale), shape = value.terms[0], _permuted_shape(value.shape, order)
    atom = table.atoms[number]
    if atom.weights is None:
        return None
    x, w, out = split_spec(atom.params[0])
    out = "".join(out[a] for a in order)
    turned = sorted(range(len(x)), key=lambda a: (out.index(x[a]) if x[a] in out else len(out), a))
    spec, axes = canonical_spec("".join(x[a] for a in turned), w, out)
    argument = permute_to(table, atom.args[0], tuple(turned))
    weights = table.constants[atom.weights].rearranged(lambda array: np.transpose(array, axes))
    new = table.atom(Atom("contract", (spec,), (argument,), shape, table.constant(weights)))
    return affine_value(
        table, shape, {new: table.numbers_of(scale).transpose(order)}, table.shift_of(value).transpose(order)
    )


def common_layout(table: TermTable, args: tuple[int, ...]) -> Layout | None:
    """Return the layout L if every argument that is not constant is L of something of one shape; else None."""
    kinds = set()
    for number in args:
        if table.values[number].terms:
            atom = table.single_atom(number)
            if atom is None or atom.op not in ("permute", "reshape"):
                return None
            kinds.add((atom.op, atom.params, table.values[atom.args[0]].shape))
    return kinds.pop() if len(kinds) == 1 else None


def without_layout(table: TermTable, number: int, layout: Layout) -> int:
    """Return the number of L'(value), for the value `number`: the value under the layout, or a constant with the
    inverse layout applied.
    """
    op, params, inner = layout
    atom = table.single_atom(number)
    if table.values[number].terms:
        assert atom is not None
        return atom.args[0]
    cells = table.shift_of(table.values[number])
    if op == "permute":
        return table.value_of_constant(inner, cells.transpose(np.argsort(params[0])))
    return table.value_of_constant(inner, apply_layout("reshape", (inner,), cells, table.values[number].shape, inner))
