"""Rules of reshapes and permutations: they are merged, moved outwards, and dropped where nothing moves.

reshape(reshape(x)) = reshape(x)    permute(permute(x)) = permute(x)    f(L(x)) = L(f(x)) for a function of one cell
a chain of both is one move of cells (`layout_chain`), spelled as at most a reshape, a permutation and a reshape

`table` holds the terms of both networks; values and atoms are given and returned by their numbers in it.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

import numpy as np

from ..window import Shape
from .layout_chain import CellMove
from .linear_combinations import (
    LAYOUT,
    affine_value,
    apply_layout,
    canonical_spec,
    constant_moved,
    split_spec,
    with_layout,
)
from .term_table import AffineTerm, Atom, TermTable

Layout = tuple[str, tuple[Any, ...], Shape]  # permute or reshape, its attributes, and the shape of its argument


def reshape_to(table: TermTable, x: int, shape: Shape) -> int:
    """Return the value number of x reshaped to `shape`, merged with the reshapes and permutations inside."""
    old = table.values[x].shape
    if old == shape:
        return x
    if 0 in old:
        return with_layout(table, "reshape", (shape,), x, shape)
    base, move = _base_and_move(table, x)
    return _spelled(table, base, move.reshaped(shape))


def permute_to(table: TermTable, x: int, order: tuple[int, ...]) -> int:
    """Return the value number of x with its axes in `order`, merged with the reshapes and permutations inside."""
    shape = table.values[x].shape
    if order == tuple(range(len(order))):
        return x
    if 0 in shape:
        return with_layout(table, "permute", (order,), x, _permuted_shape(shape, order))
    base, move = _base_and_move(table, x)
    turned = move.permuted(order)
    if turned is None:
        base, turned = x, CellMove.none(shape).permuted(order)
    assert turned is not None  # axes of x are never cut
    return _spelled(table, base, turned)


def _base_and_move(table: TermTable, x: int) -> tuple[int, CellMove]:
    """Return the value below the reshapes and permutations of x, by number, and the move that they make together.

    Where they are no single move, the value is one between them.
    """
    layers, atom = list[Atom](), table.single_atom(x)
    while atom is not None and atom.op in LAYOUT and atom.ruled:
        layers.append(atom)
        atom = table.single_atom(atom.args[0])
    base = layers[-1].args[0] if layers else x
    move = CellMove.none(table.values[base].shape)
    for layer in reversed(layers):
        inside = layer.args[0]
        next_move = move.permuted(layer.params[0]) if layer.op == "permute" else move.reshaped(layer.shape)
        if next_move is None:
            base, next_move = inside, CellMove.none(table.values[inside].shape).permuted(layer.params[0])
            assert next_move is not None  # axes of a value are never cut
        move = next_move
    return base, move


def _spelled(table: TermTable, base: int, move: CellMove) -> int:
    """Return the value number of `move` of the value `base`, as at most a reshape, a permutation and a reshape; of a
    broadcast, as the broadcast of what moves.
    """
    stretched = _stretched_factors(table, base, move)
    if stretched is not None and move.order != tuple(range(len(move.order))):
        return _moved_broadcast(table, base, move, stretched)
    move = move.joined()
    if len(move.order) > 1:
        order = move.axes_order(table.values[base].shape)
        if order is None:
            base, order = with_layout(table, "reshape", (move.sizes,), base, move.sizes), move.order
        base = _axes_permuted(table, base, order)
    if table.values[base].shape == move.shape:
        return base
    atom = table.single_atom(base)
    if atom is not None and atom.op == "reshape" and atom.ruled:
        base = atom.args[0]
        if table.values[base].shape == move.shape:
            return base
    return with_layout(table, "reshape", (move.shape,), base, move.shape)


def _axes_permuted(table: TermTable, x: int, order: tuple[int, ...]) -> int:
    """Return the value number of x with its axes in `order`; the axes of a contraction are those of its letters."""
    value = table.values[x]
    if order == tuple(range(len(order))):
        return x
    if len(value.terms) == 1 and table.atoms[value.terms[0][0]].op == "contract":
        turned = _permuted_contract(table, value, order)
        if turned is not None:
            return turned
    return with_layout(table, "permute", (order,), x, _permuted_shape(value.shape, order))


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


# --- broadcasts -------------------------------------------------------------------------------------------------------

Factors = list[tuple[int, bool]]  # of the cells of a value in the order of its axes: (size, whether it repeats cells)


def broadcast_to(table: TermTable, x: int, shape: Shape) -> int:
    """Return the value number of x, which is not constant, broadcast to `shape`: reshapes and permutations of a
    broadcast are below it, up to a reshape.
    """
    old = table.values[x].shape
    if old == shape:
        return x
    if 0 in shape:
        return table.value_of_atom(Atom("broadcast", (shape,), (x,), shape))
    full = (1,) * (len(shape) - len(old)) + old
    return _stretched(table, x, [(n, full[a] == 1) for a, n in enumerate(shape) if n != 1], shape)


def _stretched(table: TermTable, x: int, factors: Factors, shape: Shape) -> int:
    """Return the value number of x, whose cells are the `factors` that repeat none, repeated along the others and read
    as `shape`; a broadcast inside is merged.
    """
    base, move = _base_and_move(table, x)
    inside = _stretched_factors(table, base, move)
    if inside is not None and move.order == tuple(range(len(move.order))):
        both = _merged_factors(factors, list(zip(move.sizes, inside, strict=True)))
        x, factors = (x, factors) if both is None else (_only_atom(table, base).args[0], both)
    runs = [(repeats, math.prod(n for n, _ in run)) for repeats, run in groupby(factors, lambda factor: factor[1])]
    own, target = tuple(1 if repeats else n for repeats, n in runs), tuple(n for _, n in runs)
    x = reshape_to(table, x, own)
    if own != target:
        x = table.value_of_atom(Atom("broadcast", (target,), (x,), target))
    return reshape_to(table, x, shape)


def _only_atom(table: TermTable, number: int) -> Atom:
    """Return the atom that the value `number` is."""
    atom = table.single_atom(number)
    assert atom is not None
    return atom


def _merged_factors(factors: Factors, inside: Factors) -> Factors | None:
    """Return `factors` with those that repeat nothing written as the factors `inside` of their cells; None where one
    cuts another unevenly.

    >>> _merged_factors([(2, True), (12, False)], [(3, False), (4, True)])
    [(2, True), (3, False), (4, True)]
    >>> _merged_factors([(4, False), (2, True), (3, False)], [(3, False), (4, True)])
    """
    merged, rest = Factors(), list(inside)
    for n, repeats in factors:
        if repeats:
            merged.append((n, True))
            continue
        while n > 1:
            size, below = rest.pop(0)
            if n % size and size % n:
                return None
            merged.append((min(n, size), below))
            if size > n:
                rest.insert(0, (size // n, below))
            n = n // size if size < n else 1
    return merged


def _stretched_factors(table: TermTable, base: int, move: CellMove) -> list[bool] | None:
    """Return, per factor of a move of the value `base`, whether it repeats cells; None if the value is no broadcast."""
    atom = table.single_atom(base)
    if atom is None or atom.op != "broadcast" or not atom.ruled or 0 in atom.shape:
        return None
    flags, todo = list[bool](), list(move.sizes)
    for n, own in zip(atom.shape, table.values[atom.args[0]].shape, strict=True):
        while n > 1:
            n //= todo.pop(0)
            flags.append(own == 1)
    return flags


def _moved_broadcast(table: TermTable, base: int, move: CellMove, stretched: list[bool]) -> int:
    """Return the value number of `move` of the broadcast `base`, as the broadcast of what moves of its argument."""
    kept, moved = ([f for f in each if not stretched[f]] for each in (range(len(move.sizes)), move.order))
    x = reshape_to(table, _only_atom(table, base).args[0], tuple(move.sizes[f] for f in kept))
    x = permute_to(table, x, tuple(kept.index(f) for f in moved))
    return _stretched(table, x, [(move.sizes[f], stretched[f]) for f in move.order], move.shape)


def is_broadcast(table: TermTable, number: int) -> bool:
    """Return whether the value `number` is a broadcast, reshaped or not: below any layout it is one again."""
    atom = table.single_atom(number)
    while atom is not None and atom.op in LAYOUT and atom.ruled:
        atom = table.single_atom(atom.args[0])
    return atom is not None and atom.op == "broadcast" and atom.ruled


# --- of functions of one cell -----------------------------------------------------------------------------------------


def common_layout(table: TermTable, args: tuple[int, ...]) -> Layout | None:
    """Return the layout L if every argument that is not constant is L of something of one shape; else None.

    Broadcasts are asked only where nothing else is an argument.
    """
    kinds = set()
    moving = [number for number in args if table.values[number].terms]
    for number in [n for n in moving if not is_broadcast(table, n)] or moving:
        atom = table.single_atom(number)
        if atom is None or atom.op not in LAYOUT or not atom.ruled:
            return None
        kinds.add((atom.op, atom.params, table.values[atom.args[0]].shape))
    return kinds.pop() if len(kinds) == 1 else None


def under_layout(table: TermTable, layout: Layout, number: int, shape: Shape) -> int:
    """Return the number of L(value), of this shape, for the layout L, merged with what lies inside."""
    op, params, _ = layout
    return permute_to(table, number, params[0]) if op == "permute" else reshape_to(table, number, shape)


def without_layout(table: TermTable, number: int, layout: Layout) -> int:
    """Return the number of L'(value), for the value `number`: the value under the layout, or a constant or broadcast
    with the inverse layout applied.
    """
    op, params, inner = layout
    if table.values[number].terms:
        atom = _only_atom(table, number)
        if (atom.op, atom.params, table.values[atom.args[0]].shape) == layout:
            return atom.args[0]
        return inverse_moved(table, number, layout)
    if op == "permute":
        return constant_moved(table, number, lambda cells: cells.transpose(np.argsort(params[0])), inner)
    old = table.values[number].shape
    return constant_moved(table, number, lambda cells: apply_layout("reshape", (inner,), cells, old, inner), inner)


def inverse_moved(table: TermTable, number: int, layout: Layout) -> int:
    """Return the number of L'(value) for the inverse L' of the layout L."""
    op, params, inner = layout
    if op == "permute":
        return permute_to(table, number, tuple(np.argsort(params[0]).tolist()))
    return reshape_to(table, number, inner)
