"""Rules of linear maps with constant weights, averages and sums: padding apart, scales inside the weights.

conv(x, w, b; window with pads) = conv(pad(x), w; window without pads) + b     sums of windows alike
conv(s*x, w) = conv(x, s*w)           for a scale per channel
avg_pool(x) = (1/count) * (sum of windows of x)                       a window that is everything is a sum over axes
contract(x, w; "...b,ab->...a") = contract(x, w'; "...b,bc->...c")     one spelling for linear, Gemm and MatMul

`table` holds the terms of both networks; values and atoms are given and returned by their numbers in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from ..scalar import Array, divide
from ..window import Shape, Window
from .constants import MAX_EXACT_CELLS, Constant, TooManyError, drop_repeats
from .layout import permute_to, reshape_to
from .linear_combinations import (
    LAYOUT,
    affine_value,
    canonical_spec,
    common_blocks,
    factor_out_scale,
    linear_combination,
    second_axis_factors,
    split_spec,
    terms_of,
)
from .slices import drop_unread_channels, pad_for_window
from .term_table import Atom, TermTable

MAX_EXACT_PRODUCTS = 2**16  # exact products of one constant that goes through weights


@dataclass(frozen=True)
class TermApplication:
    """One node to rewrite: `args` are value numbers, `weights` the arguments that are constants (or None).

    table        where values, atoms and constants are numbered
    op, params   the node's operator and its parameters
    shape        of the node's value
    """

    table: TermTable
    op: Any
    params: dict[str, Any]
    args: tuple[int, ...]
    weights: tuple[Constant | None, ...]
    shape: Shape

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of the arguments."""
        return [self.table.values[a].shape for a in self.args]


def conv(c: TermApplication) -> int | None:
    """Return the value number of a convolution or its transpose with constant weights, the bias as shift; None if
    weights are not constant.
    """
    window, groups, weights = c.params["window"], c.params["groups"], c.weights[1]
    if weights is None or any(g is None for g in c.weights[2:]):
        return None
    x, w = c.args[0], weights
    if c.op.name == "conv":
        x, window = pad_for_window(c.table, x, window), window.unpadded()
        x, w = drop_unread_channels(c.table, x, w, len(c.shape) - window.rank - 1, groups)
        x, w = _absorb_channel_scale(c.table, x, w, window.rank, groups)
    y = _apply_linear_map(c, Atom(c.op.name, (window, groups), (x,), c.shape, c.table.constant(w)))
    if len(c.args) < 3:
        return y
    bias = c.table.constant_of(c.args[2])
    if bias is None:
        return None
    bias = np.broadcast_to(bias, c.shapes[2])
    return linear_combination(
        c.table, c.shape, [(1, y), (1, c.table.value_of_constant(c.shape, bias.reshape(-1, *(1,) * window.rank)))]
    )


def _absorb_channel_scale(table: TermTable, x: int, w: Constant, rank: int, groups: int) -> tuple[int, Constant]:
    """Return (t, s*w) for conv(s*t, w) = conv(t, s*w) if s is one number per channel; else (x, w).

    x has `rank` spatial axes; the convolution has `groups`.
    """
    ndim = len(table.values[x].shape)
    parts = factor_out_scale(table, x, [a for a in range(ndim) if a != ndim - rank - 1])
    if parts is None:
        return x, w
    return parts[1], w.times(second_axis_factors(parts[0].reshape(-1), w.shape, groups))


def _apply_linear_map(c: TermApplication, atom: Atom) -> int:
    """Return the value number of W(x + c) as W x + W c if W c is small enough to be computed; else of the atom as it
    is.
    """
    table, x = c.table, c.table.values[atom.args[0]]
    if x.shift is None or not x.terms:
        return table.value_of_atom(atom) if x.terms else _map_constant_value(c, atom)
    try:
        shift = _map_constant(c, atom, table.shift_of(x), x.shape)
    except TooManyError:
        return table.value_of_atom(atom)
    rest = affine_value(table, x.shape, terms_of(table, atom.args[0]), _zero(len(x.shape)))
    return linear_combination(
        table, c.shape, [(1, _apply_without_shift(c, atom, rest)), (1, table.value_of_constant(c.shape, shift))]
    )


def _apply_without_shift(c: TermApplication, atom: Atom, x: int) -> int:
    """Return the value number of `atom` applied to x, a value without shift, whose scale may now go into the weights of
    a conv.
    """
    assert atom.weights is not None
    if atom.op != "conv":
        return c.table.value_of_atom(Atom(atom.op, atom.params, (x,), atom.shape, atom.weights))
    window, groups = atom.params
    x, w = _absorb_channel_scale(c.table, x, c.table.constants[atom.weights], window.rank, groups)
    return c.table.value_of_atom(Atom(atom.op, atom.params, (x,), atom.shape, c.table.constant(w)))


def _zero(rank: int) -> Array:
    """Return the exact number 0 as an object array of one cell with `rank` axes."""
    return np.full((1,) * rank, Fraction(0), dtype=object)


def _map_constant_value(c: TermApplication, atom: Atom) -> int:
    """Return the value number of W on a constant argument; of the atom as it is if that is too large."""
    try:
        cells = _map_constant(
            c, atom, c.table.shift_of(c.table.values[atom.args[0]]), c.table.values[atom.args[0]].shape
        )
    except TooManyError:
        return c.table.value_of_atom(atom)
    return c.table.value_of_constant(c.shape, cells)


def _map_constant(c: TermApplication, atom: Atom, cells: Array, shape: Shape) -> Array:
    """Return what `atom`, a linear operator with weights W, makes of a constant, `cells` broadcast to `shape`, by the
    operator's specification over exact numbers; raise TooManyError if too large.
    """
    assert atom.weights is not None
    w = c.table.constants[atom.weights]
    params: dict[str, Any] = {"spec": atom.params[0]} if atom.op == "contract" else {}
    if atom.op != "contract":
        params = {"window": atom.params[0], "groups": atom.params[1]}
    if c.op.multiply_adds(shape, w.shape, **params) > MAX_EXACT_PRODUCTS or math.prod(shape) > MAX_EXACT_CELLS:
        raise TooManyError(atom.op, "the constant part is too large")
    whole = np.broadcast_to(cells, shape)
    return drop_repeats(np.asarray(c.op.spec(np.array(whole), w.numbers(), **params), dtype=object))


# --- contractions -----------------------------------------------------------------------------------------------------


def contract(c: TermApplication) -> int | None:
    """Return the value number of a contraction with one constant factor, which comes second; else None."""
    x, w, out = split_spec(c.params["spec"])
    if c.weights[1] is None and c.weights[0] is not None:
        x, w, number, weights = w, x, c.args[1], c.weights[0]
    elif c.weights[1] is not None and c.weights[0] is None:
        number, weights = c.args[0], c.weights[1]
    else:
        return None
    turned = sorted(range(len(x)), key=lambda a: (out.index(x[a]) if x[a] in out else len(out), a))
    x, number = "".join(x[a] for a in turned), permute_to(c.table, number, tuple(turned))
    spec, order = canonical_spec(x, w, out)
    whole, c = c.shape, _flatten_leading(c, x, w, out)
    if c.shape != whole:
        number, spec = _flatten_argument(c.table, number, x, w), _flat_spec(x, w, out)
    constant = weights.rearranged(lambda array: np.transpose(array, order))
    number, constant = _absorb_letter_scale(c.table, number, constant, spec)
    atom = Atom("contract", (spec,), (number,), c.shape, c.table.constant(constant))
    return reshape_to(c.table, _apply_linear_map(c, atom), whole)


def _flatten_leading(c: TermApplication, x: str, w: str, out: str) -> TermApplication:
    """Return the call of x,w->`out` (letters of axes) with its leading axes that the weights do not have merged into
    one; as it is if there are not several.
    """
    batch = [a for a in x if a not in w]
    if len(batch) < 2 or not x.startswith("".join(batch)) or not out.startswith("".join(batch)) or 0 in c.shape:
        return c
    return replace(c, shape=(math.prod(c.shape[: len(batch)]), *c.shape[len(batch) :]))


def _flatten_argument(table: TermTable, number: int, x: str, w: str) -> int:
    """Return the number of the value `number` with its leading axes that the weights do not have merged into one."""
    shape, count = table.values[number].shape, sum(a not in w for a in x)
    return reshape_to(table, number, (math.prod(shape[:count]), *shape[count:]))


def _flat_spec(x: str, w: str, out: str) -> str:
    """Return the contraction "x,w->out" with one letter for all letters that the weights do not have."""
    batch = [a for a in x if a not in w]
    return canonical_spec(x[len(batch) - 1 :], w, out[len(batch) - 1 :])[0]


def _absorb_letter_scale(table: TermTable, x: int, w: Constant, spec: str) -> tuple[int, Constant]:
    """Return (t, s*w) for contract(s*t, w) = contract(t, s*w), `spec` its letters, if s varies along letters of w
    alone; else (x, w).
    """
    letters, weights, _ = split_spec(spec)
    parts = factor_out_scale(table, x, [a for a, letter in enumerate(letters) if letter not in weights])
    if parts is None:
        return x, w
    cells = parts[0]
    order = [letters.index(a) for a in weights if a in letters]
    rest = [a for a in range(cells.ndim) if a not in order]
    sizes = dict(zip(letters, cells.shape, strict=True))
    factors = cells.transpose(order + rest).reshape([sizes.get(a, 1) for a in weights])
    return parts[1], w.times(factors)


# --- averages and sums ------------------------------------------------------------------------------------------------


def avg_pool(c: TermApplication) -> int:
    """Return the value number of (1/count) * (sum of windows), with the count of each window; 0 where no tap counts."""
    window, divisor, lead = c.params["window"], c.params["divisor"], len(c.shape) - c.params["window"].rank
    ones = np.full(window.out, Fraction(1), dtype=object)
    counts = {"padded": window.counted, "inside": window.inside}
    share = divide(ones, counts[divisor]()) if isinstance(divisor, str) else ones / Fraction(divisor)
    total = _window_sum(c.table, c.args[0], window, c.shape)
    return linear_combination(c.table, c.shape, [(drop_repeats(share.reshape((1,) * lead + window.out)), total)])


def _window_sum(table: TermTable, x: int, window: Window, shape: Shape) -> int:
    """Return the value number, of this shape, of the sum over each window of x, with padding as a node of its own; a
    window that covers everything is a sum over axes.
    """
    x = pad_for_window(table, x, window)
    window = window.unpadded()
    if set(window.out) == {1} and window.inside_at((0,) * window.rank) == math.prod(window.size):
        rank = len(table.values[x].shape)
        summed_up = sum_over_axes(table, x, tuple(range(rank - window.rank, rank)))
        return reshape_to(table, summed_up, shape)
    return _pull_out_scale(table, x, lambda inner: Atom("window_sum", (window,), (inner,), shape), window.rank)


def _pull_out_scale(table: TermTable, x: int, atom: Any, rank: int) -> int:
    """Return the value number of `atom` applied to x = s*t, as s * atom(t) if s is constant along the last `rank`
    axes.
    """
    ndim = len(table.values[x].shape)
    parts = factor_out_scale(table, x, range(ndim - rank, ndim))
    if parts is None:
        return table.value_of_atom(atom(x))
    one = atom(parts[1])
    return linear_combination(table, one.shape, [(parts[0], table.value_of_atom(one))])


def sum_over_axes(table: TermTable, x: int, axes: tuple[int, ...]) -> int:
    """Return the value number of the sum of x over axes: constants are summed, a scale that is constant along them is
    factored out.
    """
    value = table.values[x]
    shape = tuple(n for a, n in enumerate(value.shape) if a not in axes)
    if all(value.shape[a] == 1 for a in axes):
        return reshape_to(table, x, shape)
    parts: list[tuple[Any, int]] = []
    shift = table.shift_of(value)
    count = math.prod(value.shape[a] for a in axes if shift.shape[a] == 1)
    parts.append((1, table.value_of_constant(shape, np.asarray(shift.sum(axis=axes) * count, dtype=object))))
    rest = affine_value(table, value.shape, terms_of(table, x), _zero(len(value.shape)))
    pulled = factor_out_scale(table, rest, axes)
    if pulled is not None:
        scale = pulled[0].reshape([n for a, n in enumerate(pulled[0].shape) if a not in axes])
        parts.append((scale, _sum_below_layout(table, pulled[1], axes, shape)))
    elif table.values[rest].terms:
        parts.append((1, _sum_below_layout(table, rest, axes, shape)))
    return linear_combination(table, shape, parts)


def _sum_below_layout(table: TermTable, x: int, axes: tuple[int, ...], shape: Shape) -> int:
    """Return the value number, of this shape, of the sum of x over axes: of a reshape or permutation as that of the sum
    of what is below, over the same cells.
    """
    atom = table.single_atom(x)
    if atom is not None and atom.op in LAYOUT and atom.ruled and 0 not in atom.shape:
        inner = table.values[atom.args[0]].shape
        below = _axes_below(atom, inner, axes)
        if below is not None:
            total = sum_over_axes(table, atom.args[0], below)
            if atom.op == "reshape":
                return reshape_to(table, total, shape)
            left = [a for a in atom.params[0] if a not in below]
            return permute_to(table, total, tuple(sorted(left).index(a) for a in left))
    return table.value_of_atom(Atom("sum", (axes,), (x,), shape))


def _axes_below(atom: Atom, inner: Shape, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the axes of the argument of a permutation or reshape, of shape `inner`, whose cells are those of `axes` of
    its result; None if these are no whole axes.
    """
    if atom.op == "permute":
        return tuple(sorted(atom.params[0][a] for a in axes))
    below = list[int]()
    for first, second in common_blocks(inner, atom.shape):
        summed = {a in axes for a in second if atom.shape[a] > 1}
        if len(summed) > 1:
            return None
        below += first if summed == {True} else ()
    return tuple(below)
