"""Rules of addition and of multiplication by constants, over exact numbers.

a*x + b*x + c = (a + b)*x + c        0*x = 0        s*(a*x + c) = (s*a)*x + s*c
s * (W x) = (s*W) x                  for a scale s that is constant along every axis that W does not write
s * L(x) + c = L(L'(s)*x + L'(c))    for a permutation or a reshape L with inverse L'

`table` holds the terms of both networks; values and atoms are given and returned by their numbers in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from ..op import REGISTRY
from ..scalar import Array
from ..window import Shape
from .constants import MAX_EXACT_CELLS, TooManyError, drop_repeats
from .folded import folded
from .term_table import AffineTerm, Atom, TermTable

LAYOUT = ("permute", "reshape")
WEIGHTED = ("conv", "conv_transpose", "contract")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
Terms = Mapping[int, Array]  # by the number of an atom: its scale


def is_commutative(name: str) -> bool:
    """Return whether the operator of this name may have its two arguments exchanged; of "input" and of rules' own: no.

    >>> is_commutative("add"), is_commutative("sub"), is_commutative("input")
    (True, False, False)
    """
    return name in REGISTRY and REGISTRY[name].commutative


def terms_of(table: TermTable, number: int) -> dict[int, Array]:
    """Return {atom number: exact scale} of a value."""
    return {atom: table.numbers_of(scale) for atom, scale in table.values[number].terms}


def affine_value(table: TermTable, shape: Shape, terms: Terms, shift: Array) -> int:
    """Return the number of the value sum of scale * atom + shift, of this shape, in normal form.

    `terms` are {atom number: scale}; scales and shift are exact and have one cell along axes on which they repeat.
    """
    kept = {a: s for a, s in terms.items() if not all(v == 0 for v in s.flat)}
    if not kept:
        return table.value_of_constant(shape, shift)
    inside = _under_layout(table, shape, kept, shift)
    if inside is not None:
        return inside
    written: dict[int, Array] = {}
    for a, s in kept.items():
        atom, rest = _absorb_scale(table, a, drop_repeats(s))
        written[atom] = as_object_array(written[atom] + rest) if atom in written else rest
    written = {a: drop_repeats(s) for a, s in written.items() if not all(v == 0 for v in s.flat)}
    ordered = tuple(sorted((a, table.constant_number(s)) for a, s in written.items()))
    none = all(v == 0 for v in shift.flat)
    return table.value(AffineTerm(shape, ordered, None if none else table.constant_number(shift)))


def linear_combination(table: TermTable, shape: Shape, parts: Iterable[tuple[Any, int]]) -> int:
    """Return the number of the sum of factor * value over `parts`, (factor, number of the value) in `table`.

    Each factor is exact numbers that broadcast to `shape`.
    """
    terms: dict[int, Array] = {}
    shift: Array | None = None
    for factor, number in parts:
        is_one = isinstance(factor, int) and factor == 1
        factor = _prepend_axes(np.asarray(factor, dtype=object), len(shape))
        for atom, scale in terms_of(table, number).items():
            part = scale if is_one else as_object_array(scale * factor)
            terms[atom] = as_object_array(terms[atom] + part) if atom in terms else part
        if table.values[number].shift is not None:
            more = table.shift_of(table.values[number])
            more = more if is_one else as_object_array(more * factor)
            shift = more if shift is None else as_object_array(shift + more)
    none = np.full((1,) * len(shape), Fraction(0), dtype=object)
    return affine_value(table, shape, terms, none if shift is None else shift)


def product(table: TermTable, shape: Shape, x: int, y: int) -> int:
    """Return the number of the value x*y, cell by cell, of this shape; scales of values of one term are outside."""
    factors, inside = list[Array](), list[int]()
    for number in (x, y):
        value = table.values[number]
        if (
            value.shape == shape
            and len(value.terms) == 1
            and value.shift is None
            and not table.is_one(value.terms[0][1])
        ):
            factors.append(table.numbers_of(value.terms[0][1]))
            number = table.value_of_atom(table.atoms[value.terms[0][0]])
        inside.append(number)
    made = table.value_of_atom(Atom("mul", (), tuple(sorted(inside)), shape))
    for factor in factors:
        made = linear_combination(table, shape, [(factor, made)])
    return made


def as_object_array(x: Any) -> Array:
    """Return x as an object array; NumPy turns results of rank 0 into bare numbers."""
    return np.asarray(x, dtype=object)


def factor_out_scale(table: TermTable, number: int, axes: Iterable[int]) -> tuple[Array, int] | None:
    """Return s and the number of t + c/s of a value s*t + c of one atom, if s is never 0 and constant along `axes`;
    else None.

    `number` is the value's in `table`.
    """
    value = table.values[number]
    if len(value.terms) != 1 or table.is_one(value.terms[0][1]):
        return None
    atom, scale = value.terms[0][0], table.numbers_of(value.terms[0][1])
    if any(scale.shape[a] > 1 for a in axes) or any(v == 0 for v in scale.flat):
        return None
    shift = (
        table.shift_of(value) if value.shift is None else as_object_array(table.shift_of(value) * reciprocals(scale))
    )
    one = np.full((1,) * scale.ndim, Fraction(1), dtype=object)
    return scale, affine_value(table, value.shape, {atom: one}, shift)


def reciprocals(numbers: Array) -> Array:
    """Return 1/v of every number, exactly."""
    made = np.empty(numbers.shape, dtype=object)
    for place, v in np.ndenumerate(numbers):
        made[place] = folded(v).reciprocal()
    return made


def _prepend_axes(array: Array, rank: int) -> Array:
    """Return the array with axes of one cell in front, up to `rank`."""
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


# --- weights ----------------------------------------------------------------------------------------------------------


def _absorb_scale(table: TermTable, number: int, scale: Array) -> tuple[int, Array]:
    """Return (atom, rest) for scale * (W x) = (scale*W) x: rest is 1, or the scale if W cannot absorb it.

    `number` is the atom's in `table`, W x; atoms are given and returned by number.
    """
    atom = table.atoms[number]
    if atom.weights is None or all(v == 1 for v in scale.flat):
        return number, scale
    factors = scale_as_weight_factors(table, atom, scale)
    if factors is None:
        return number, scale
    weights = table.constant(table.constants[atom.weights].times(factors))
    one = np.full((1,) * scale.ndim, Fraction(1), dtype=object)
    return table.atom(replace(atom, weights=weights)), one


def scale_as_weight_factors(table: TermTable, atom: Atom, scale: Array) -> Array | None:
    """Return a scale of an atom's output as factors of its weights; None if weights cannot absorb it."""
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
    """Return one factor per output channel, arranged for weights (group * in, out per group, *kernel)."""
    if per_channel.size == 1:
        return per_channel.reshape((1,) * len(weights))
    spread = np.repeat(per_channel.reshape(groups, 1, weights[1]), weights[0] // groups, axis=1)
    return spread.reshape((weights[0], weights[1]) + (1,) * (len(weights) - 2))


def canonical_spec(x: str, w: str, out: str) -> tuple[str, list[int]]:
    """Return the contraction of letters x and w to `out` in canonical letters, and the order of w's axes: letters of x,
    then of the result.

    >>> canonical_spec("db", "ab", "da"), canonical_spec("db", "bc", "dc")
    (('ab,bc->ac', [1, 0]), ('ab,bc->ac', [0, 1]))
    """
    letters = sorted(w, key=(x + out).index)
    new = dict(zip(dict.fromkeys(x + "".join(letters)), LETTERS, strict=False))
    parts = ("".join(new[a] for a in part) for part in (x, letters, out))
    return "{},{}->{}".format(*parts), [w.index(a) for a in letters]


def split_spec(spec: str) -> tuple[str, str, str]:
    """Return the letters (x, w, out) of the contraction `spec`, "x,w->out"."""
    ins, _, out = spec.partition("->")
    x, _, w = ins.partition(",")
    return x, w, out


# --- layout -----------------------------------------------------------------------------------------------------------


def _under_layout(table: TermTable, shape: Shape, terms: Terms, shift: Array) -> int | None:
    """Return the value number of the sum of s * L(x) + c as L(sum of L'(s) * x + L'(c)), if every atom is the same
    layout L; else None.

    `terms` are {atom number: scale s}, `shift` is c.
    """
    atoms = [table.atoms[a] for a in terms]
    first = atoms[0]
    inner = table.values[first.args[0]].shape if first.op in LAYOUT else ()
    if first.op not in LAYOUT or not first.ruled or any((a.op, a.params) != (first.op, first.params) for a in atoms):
        return None
    if any(table.values[a.args[0]].shape != inner for a in atoms):
        return None
    try:
        parts = [(inverse_layout(first, inner, s), table.atoms[a].args[0]) for a, s in terms.items()]
        constant = table.value_of_constant(inner, inverse_layout(first, inner, shift))
    except TooManyError:
        return None
    total = linear_combination(table, inner, [*parts, (Fraction(1), constant)])
    return with_layout(table, first.op, first.params, total, shape)


def with_layout(table: TermTable, op: str, params: tuple[Any, ...], number: int, shape: Shape) -> int:
    """Return the number of L(value), L the layout operator `op` to `shape`; of a constant, the constant with L applied.

    `number` is the value's in `table`.
    """
    if table.values[number].terms:
        return table.value_of_atom(Atom(op, params, (number,), shape))
    old = table.values[number].shape
    return constant_moved(table, number, lambda cells: apply_layout(op, params, cells, old, shape), shape)


def constant_moved(table: TermTable, number: int, move: Callable[[Array], Array], shape: Shape) -> int:
    """Return the number of the constant value `number` after `move`, of this shape; no number is computed with, so that
    there may be any count of them.

    TooManyError where a constant that repeats along an axis must be written out, and is too large for that.
    """
    shift = table.values[number].shift
    if shift is None:
        return table.value(AffineTerm(shape, (), None))
    moved = table.constants[shift].rearranged(move)
    if moved.factors is None:
        moved = replace(moved, array=drop_repeats(moved.array))
    return table.value(AffineTerm(shape, (), table.constant(moved)))


def apply_layout(op: str, params: tuple[Any, ...], cells: Array, old: Shape, new: Shape) -> Array:
    """Return `cells`, which repeat along axes of one cell, after the operator `op` from shape `old` to `new`.

    `op` is "permute", with (axes,) in `params`, or "reshape".
    """
    if op == "permute":
        return cells.transpose(params[0])
    return _reshape_repeated(cells, old, new)


def inverse_layout(atom: Atom, inner: Shape, cells: Array) -> Array:
    """Return `cells`, which repeat along axes of one cell, after the inverse of `atom`, a permutation or reshape.

    `inner` is the shape before it.
    """
    if atom.op == "permute":
        return cells.transpose(np.argsort(atom.params[0]))
    return _reshape_repeated(cells, atom.shape, inner)


def _reshape_repeated(cells: Array, old: Shape, new: Shape) -> Array:
    """Return an array of shape `old`, which repeats along its axes of one cell, reshaped to `new`; those stay so."""
    if cells.size <= 1 or 0 in old:
        return cells.reshape((1,) * len(new)) if cells.size == 1 else _broadcast_if_small(cells, old).reshape(new)
    full, target = list[int](), list[int]()
    for first, second in common_blocks(old, new):
        varies = any(cells.shape[a] > 1 for a in first)
        full += [old[a] if varies else 1 for a in first]
        target += [new[a] if varies else 1 for a in second]
    return _broadcast_if_small(cells, tuple(full)).reshape(target)


def common_blocks(old: Shape, new: Shape) -> list[tuple[range, range]]:
    """Return axes of `old` and `new`, two shapes of as many cells, in the smallest blocks that have as many cells as
    each other.

    >>> common_blocks((2, 3, 4), (6, 1, 4))
    [(range(0, 2), range(0, 1)), (range(2, 2), range(1, 2)), (range(2, 3), range(2, 3))]
    """
    blocks, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        first, second, cells, others = i, j, 1, 1
        while (i, j) == (first, second) or cells != others:
            if j == len(new) or (i < len(old) and cells <= others and not (cells == others and new[j] == 1)):
                cells, i = cells * old[i], i + 1
            else:
                others, j = others * new[j], j + 1
        blocks.append((range(first, i), range(second, j)))
    return blocks


def _broadcast_if_small(cells: Array, shape: Shape) -> Array:
    """Return `cells` broadcast to `shape`; raise TooManyError above MAX_EXACT_CELLS if they are not that many."""
    if cells.shape == shape:
        return cells
    if int(np.prod(shape, dtype=object)) > MAX_EXACT_CELLS:
        raise TooManyError("constant", f"shape {shape} has more than {MAX_EXACT_CELLS} cells")
    return np.broadcast_to(cells, shape)
