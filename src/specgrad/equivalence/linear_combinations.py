"""Sums: the rules of addition and of multiplication by constants, over exact numbers.

a*x + b*x + c = (a + b)*x + c        0*x = 0        s*(a*x + c) = (s*a)*x + s*c
s * (W x) = (s*W) x                  for a scale s that is constant along every axis that W does not write
s * L(x) + c = L(L'(s)*x + L'(c))    for a permutation or a reshape L with inverse L'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from ..scalar import Array
from ..window import Shape
from .constants import CELLS, TooManyError, smallest
from .surd import reciprocal
from .term_table import AffineTerm, Atom, TermTable

LAYOUT = ("permute", "reshape")
WEIGHTED = ("conv", "conv_transpose", "contract")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
Terms = Mapping[int, Array]  # by the number of an atom: its scale


def terms_of(table: TermTable, number: int) -> dict[int, Array]:
    return {atom: table.scale(scale) for atom, scale in table.values[number].terms}


def summed(table: TermTable, shape: Shape, terms: Terms, shift: Array) -> int:
    """The value sum of scale * atom + shift, in normal form."""
    kept = {a: s for a, s in terms.items() if not all(v == 0 for v in s.flat)}
    if not kept:
        return table.of_cells(shape, shift)
    inside = _under_layout(table, shape, kept, shift)
    if inside is not None:
        return inside
    written: dict[int, Array] = {}
    for a, s in kept.items():
        atom, rest = _into_weights(table, a, smallest(s))
        written[atom] = cells(written[atom] + rest) if atom in written else rest
    written = {a: smallest(s) for a, s in written.items() if not all(v == 0 for v in s.flat)}
    ordered = tuple(sorted((a, table.cells(s)) for a, s in written.items()))
    none = all(v == 0 for v in shift.flat)
    return table.value(AffineTerm(shape, ordered, None if none else table.cells(shift)))


def combined(table: TermTable, shape: Shape, parts: Iterable[tuple[Any, int]]) -> int:
    """sum of factor * value, each factor exact numbers that broadcast to the shape."""
    terms: dict[int, Array] = {}
    shift = np.full((1,) * len(shape), Fraction(0), dtype=object)
    for factor, number in parts:
        factor = _ranked(np.asarray(factor, dtype=object), len(shape))
        for atom, scale in terms_of(table, number).items():
            part = cells(scale * factor)
            terms[atom] = cells(terms[atom] + part) if atom in terms else part
        shift = cells(shift + cells(table.shift_of(table.values[number]) * factor))
    return summed(table, shape, terms, shift)


def cells(x: Any) -> Array:
    """NumPy turns arrays of rank 0 into bare numbers."""
    return np.asarray(x, dtype=object)


def factored(table: TermTable, number: int, axes: Iterable[int]) -> tuple[Array, int] | None:
    """s and t + c/s for a value s*t + c of one atom, where s is never 0 and constant along the axes."""
    value = table.values[number]
    if len(value.terms) != 1 or table.is_one(value.terms[0][1]):
        return None
    atom, scale = value.terms[0][0], table.scale(value.terms[0][1])
    if any(scale.shape[a] > 1 for a in axes) or any(v == 0 for v in scale.flat):
        return None
    shift = table.shift_of(value) if value.shift is None else cells(table.shift_of(value) * inverses(scale))
    one = np.full((1,) * scale.ndim, Fraction(1), dtype=object)
    return scale, summed(table, value.shape, {atom: one}, shift)


def inverses(numbers: Array) -> Array:
    """1/v of every number, exactly."""
    made = np.empty(numbers.shape, dtype=object)
    for place, v in np.ndenumerate(numbers):
        made[place] = reciprocal(v)
    return made


def _ranked(array: Array, rank: int) -> Array:
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


# --- weights ----------------------------------------------------------------------------------------------------------


def _into_weights(table: TermTable, number: int, scale: Array) -> tuple[int, Array]:
    """scale * (W x) = (scale*W) x, and what is left of the scale: ones, or all of it."""
    atom = table.atoms[number]
    if atom.weights is None or all(v == 1 for v in scale.flat):
        return number, scale
    factors = output_factors(table, atom, scale)
    if factors is None:
        return number, scale
    weights = table.constant(table.constants[atom.weights].times(factors))
    one = np.full((1,) * scale.ndim, Fraction(1), dtype=object)
    return table.atom(replace(atom, weights=weights)), one


def output_factors(table: TermTable, atom: Atom, scale: Array) -> Array | None:
    """A scale of the output of an atom as factors of its weights; None where the weights cannot carry it."""
    if atom.op not in WEIGHTED:
        return None
    varying = [a for a, n in enumerate(scale.shape) if n > 1]
    shape = table.constants[atom.weights].shape if atom.weights is not None else ()
    if atom.op == "contract":
        (spec,) = atom.params
        _, letters, out = split_spec(spec)
        if any(out[a] not in letters for a in varying):
            return None
        sizes = {c: scale.shape[a] for a, c in enumerate(out)}
        order = [out.index(c) for c in letters if c in out]
        rest = [a for a in range(scale.ndim) if a not in order]
        return scale.transpose(order + rest).reshape([sizes.get(c, 1) for c in letters])
    window, groups = atom.params
    channel = len(atom.shape) - window.rank - 1
    if any(a != channel for a in varying):
        return None
    per_channel = scale.reshape(-1)
    if atom.op == "conv":  # weights (out, in/groups, *kernel)
        return per_channel.reshape((-1,) + (1,) * (len(shape) - 1))
    return second_axis_factors(per_channel, shape, groups)  # conv_transpose: (in, out/groups, *kernel)


def second_axis_factors(per_channel: Array, weights: Shape, groups: int) -> Array:
    """Factors of the channels (group, k) of weights whose rows (group, j) hold k on the second axis."""
    if per_channel.size == 1:
        return per_channel.reshape((1,) * len(weights))
    spread = np.repeat(per_channel.reshape(groups, 1, weights[1]), weights[0] // groups, axis=1)
    return spread.reshape((weights[0], weights[1]) + (1,) * (len(weights) - 2))


def canonical_spec(x: str, w: str, out: str) -> tuple[str, list[int]]:
    """One spelling of a contraction, and the order of the axes of w in it: the letters of x, then those of the result.

    >>> canonical_spec("db", "ab", "da"), canonical_spec("db", "bc", "dc")
    (('ab,bc->ac', [1, 0]), ('ab,bc->ac', [0, 1]))
    """
    letters = sorted(w, key=(x + out).index)
    new = dict(zip(dict.fromkeys(x + "".join(letters)), LETTERS, strict=False))
    parts = ("".join(new[a] for a in part) for part in (x, letters, out))
    return "{},{}->{}".format(*parts), [w.index(a) for a in letters]


def split_spec(spec: str) -> tuple[str, str, str]:
    ins, _, out = spec.partition("->")
    x, _, w = ins.partition(",")
    return x, w, out


# --- layout -----------------------------------------------------------------------------------------------------------


def _under_layout(table: TermTable, shape: Shape, terms: Terms, shift: Array) -> int | None:
    """sum of s * L(x) + c = L(sum of L'(s) * x + L'(c)), where every atom is the same L."""
    atoms = [table.atoms[a] for a in terms]
    first = atoms[0]
    inner = table.values[first.args[0]].shape if first.op in LAYOUT else ()
    if any((a.op, a.params) != (first.op, first.params) or a.op not in LAYOUT for a in atoms):
        return None
    if any(table.values[a.args[0]].shape != inner for a in atoms):
        return None
    try:
        parts = [(inverse_layout(first, inner, s), table.atoms[a].args[0]) for a, s in terms.items()]
        constant = table.of_cells(inner, inverse_layout(first, inner, shift))
    except TooManyError:
        return None
    total = combined(table, inner, [*parts, (Fraction(1), constant)])
    return laid_out(table, first.op, first.params, total, shape)


def laid_out(table: TermTable, op: str, params: tuple[Any, ...], number: int, shape: Shape) -> int:
    """L(value); a constant is moved at once."""
    known = table.constant_of(number)
    if known is None:
        return table.of_atom(Atom(op, params, (number,), shape))
    return table.of_cells(shape, moved(op, params, known, table.values[number].shape, shape))


def moved(op: str, params: tuple[Any, ...], cells: Array, old: Shape, new: Shape) -> Array:
    """L on an array that repeats along axes of one cell."""
    if op == "permute":
        return cells.transpose(params[0])
    return _spread_out(cells, old).reshape(new) if cells.size > 1 else cells.reshape((1,) * len(new))


def inverse_layout(atom: Atom, inner: Shape, cells: Array) -> Array:
    """The inverse of a permutation or of a reshape, on an array that repeats along axes of one cell."""
    if atom.op == "permute":
        return cells.transpose(np.argsort(atom.params[0]))
    return _spread_out(cells, atom.shape).reshape(inner) if cells.size > 1 else cells.reshape((1,) * len(inner))


def _spread_out(cells: Array, shape: Shape) -> Array:
    if int(np.prod(shape, dtype=object)) > CELLS:
        raise TooManyError("constant", f"shape {shape} has more than {CELLS} cells")
    return np.broadcast_to(cells, shape)
