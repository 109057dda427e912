"""Layout: reshapes and permutations are joined, moved outwards, and dropped where nothing moves.

reshape(reshape(x)) = reshape(x)    permute(permute(x)) = permute(x)    f(L(x)) = L(f(x)) for a function of one cell
a permutation that keeps the order of all axes longer than 1 is a reshape
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..window import Shape
from .linear_combinations import canonical_spec, laid_out, moved, split_spec, summed
from .term_table import AffineTerm, Atom, TermTable

Layout = tuple[str, tuple[Any, ...], Shape]  # permute or reshape, its attributes, and the shape of its argument


def reshape_to(table: TermTable, x: int, shape: Shape) -> int:
    """Reshape, of a reshape's own argument where x is one."""
    if table.values[x].shape == shape:
        return x
    inner = table.alone(x)
    if inner is not None and inner.op == "reshape":
        return reshape_to(table, inner.args[0], shape)
    return laid_out(table, "reshape", (shape,), x, shape)


def permute_to(table: TermTable, x: int, order: tuple[int, ...]) -> int:
    """Permute, of a permutation's own argument where x is one."""
    shape = table.values[x].shape
    inner = table.alone(x)
    if inner is not None and inner.op == "permute":
        return permute_to(table, inner.args[0], tuple(inner.params[0][a] for a in order))
    value = table.values[x]
    if len(value.terms) == 1 and table.atoms[value.terms[0][0]].op == "contract":
        return _permuted_contract(table, value, order) or laid_out(table, "permute", (order,), x, _picked(shape, order))
    moving = [a for a in order if shape[a] != 1]
    if order == tuple(range(len(order))):
        return x
    if moving == sorted(moving) and 0 not in shape:
        return reshape_to(table, x, _picked(shape, order))
    return laid_out(table, "permute", (order,), x, _picked(shape, order))


def _picked(shape: Shape, order: tuple[int, ...]) -> Shape:
    return tuple(shape[a] for a in order)


def _permuted_contract(table: TermTable, value: AffineTerm, order: tuple[int, ...]) -> int | None:
    """permute(s*contract(x, w) + c): a contraction whose result has its letters in another order, and so has x."""
    (number, scale), shape = value.terms[0], _picked(value.shape, order)
    atom = table.atoms[number]
    if atom.weights is None:
        return None
    x, w, out = split_spec(atom.params[0])
    out = "".join(out[a] for a in order)
    turned = sorted(range(len(x)), key=lambda a: (out.index(x[a]) if x[a] in out else len(out), a))
    spec, axes = canonical_spec("".join(x[a] for a in turned), w, out)
    argument = permute_to(table, atom.args[0], tuple(turned))
    weights = table.constants[atom.weights].moved(lambda array: np.transpose(array, axes))
    new = table.atom(Atom("contract", (spec,), (argument,), shape, table.constant(weights)))
    return summed(table, shape, {new: table.scale(scale).transpose(order)}, table.shift_of(value).transpose(order))


def common_layout(table: TermTable, args: tuple[int, ...]) -> Layout | None:
    """The layout L and the inner shape, if every argument that is not constant is L of something of that shape."""
    kinds = set()
    for number in args:
        if table.values[number].terms:
            atom = table.alone(number)
            if atom is None or atom.op not in ("permute", "reshape"):
                return None
            kinds.add((atom.op, atom.params, table.values[atom.args[0]].shape))
    return kinds.pop() if len(kinds) == 1 else None


def without_layout(table: TermTable, number: int, layout: Layout) -> int:
    """L'(value): what stands under the layout, or a constant moved back."""
    op, params, inner = layout
    atom = table.alone(number)
    if table.values[number].terms:
        assert atom is not None
        return atom.args[0]
    cells = table.shift_of(table.values[number])
    if op == "permute":
        return table.of_cells(inner, cells.transpose(np.argsort(params[0])))
    return table.of_cells(inner, moved("reshape", (inner,), cells, table.values[number].shape, inner))
