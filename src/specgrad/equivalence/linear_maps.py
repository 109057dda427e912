"""Linear maps with constant weights, averages and sums: padding apart, constants inside, scales in the weights.

conv(x, w, b; window with pads) = conv(pad(x), w; window without pads) + b     sums of windows alike
conv(s*x, w) = conv(x, s*w)           for a scale per channel
avg_pool(x) = (1/count) * (sum of windows of x)                       a window that is everything is a sum over axes
contract(x, w; "...b,ab->...a") = contract(x, w'; "...b,bc->...c")     one spelling for linear, Gemm and MatMul
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..scalar import Array, divide
from ..window import Shape, Window
from .constants import CELLS, Constant, TooManyError, smallest
from .layout import permute_to, reshape_to
from .linear_combinations import canonical_spec, combined, factored, second_axis_factors, split_spec, summed, terms_of
from .pad_crop import framed
from .term_table import Atom, TermTable

WORK = 2**21  # exact products of one constant that goes through weights


@dataclass(frozen=True)
class TermApplication:
    """One node: the numbers of its arguments' values, or constants as they were given (weights)."""

    table: TermTable
    op: Any
    params: dict[str, Any]
    args: tuple[int, ...]
    given: tuple[Array | None, ...]
    shape: Shape

    @property
    def shapes(self) -> list[Shape]:
        return [self.table.values[a].shape for a in self.args]


def conv(c: TermApplication) -> int | None:
    """Weights must be constant; a bias becomes the shift."""
    window, groups, weights = c.params["window"], c.params["groups"], c.given[1]
    if weights is None or any(g is None for g in c.given[2:]):
        return None
    x, w = c.args[0], Constant(weights)
    if c.op.name == "conv":
        x, window = framed(c.table, x, window), window.unpadded()
        x, w = _scale_of_channels(c.table, x, w, window.rank, groups)
    y = _applied(c, Atom(c.op.name, (window, groups), (x,), c.shape, c.table.constant(w)))
    if len(c.args) < 3:
        return y
    bias = c.table.constant_of(c.args[2])
    if bias is None:
        return None
    bias = np.broadcast_to(bias, c.shapes[2])
    return combined(c.table, c.shape, [(1, y), (1, c.table.of_cells(c.shape, bias.reshape(-1, *(1,) * window.rank)))])


def _scale_of_channels(table: TermTable, x: int, w: Constant, rank: int, groups: int) -> tuple[int, Constant]:
    """conv(s*t, w) = conv(t, s*w), where s is one number per channel."""
    ndim = len(table.values[x].shape)
    parts = factored(table, x, [a for a in range(ndim) if a != ndim - rank - 1])
    if parts is None:
        return x, w
    return parts[1], w.times(second_axis_factors(parts[0].reshape(-1), w.shape, groups))


def _applied(c: TermApplication, atom: Atom) -> int:
    """W(x + c) = W x + W c, where the constant part is small enough to be computed."""
    table, x = c.table, c.table.values[atom.args[0]]
    if x.shift is None or not x.terms:
        return table.of_atom(atom) if x.terms else _constant_through(c, atom)
    try:
        shift = _through(c, atom, table.shift_of(x), x.shape)
    except TooManyError:
        return table.of_atom(atom)
    rest = summed(table, x.shape, terms_of(table, atom.args[0]), _zero(len(x.shape)))
    return combined(table, c.shape, [(1, _again(c, atom, rest)), (1, table.of_cells(c.shape, shift))])


def _again(c: TermApplication, atom: Atom, x: int) -> int:
    """The same map on the value without its shift, whose only scale may now go into the weights."""
    assert atom.weights is not None
    if atom.op != "conv":
        return c.table.of_atom(Atom(atom.op, atom.params, (x,), atom.shape, atom.weights))
    window, groups = atom.params
    x, w = _scale_of_channels(c.table, x, c.table.constants[atom.weights], window.rank, groups)
    return c.table.of_atom(Atom(atom.op, atom.params, (x,), atom.shape, c.table.constant(w)))


def _zero(rank: int) -> Array:
    return np.full((1,) * rank, Fraction(0), dtype=object)


def _constant_through(c: TermApplication, atom: Atom) -> int:
    try:
        cells = _through(c, atom, c.table.shift_of(c.table.values[atom.args[0]]), c.table.values[atom.args[0]].shape)
    except TooManyError:
        return c.table.of_atom(atom)
    return c.table.of_cells(c.shape, cells)


def _through(c: TermApplication, atom: Atom, cells: Array, shape: Shape) -> Array:
    """W on a constant, by the operator's own specification over exact numbers."""
    assert atom.weights is not None
    w = c.table.constants[atom.weights]
    params: dict[str, Any] = {"spec": atom.params[0]} if atom.op == "contract" else {}
    if atom.op != "contract":
        params = {"window": atom.params[0], "groups": atom.params[1]}
    if c.op.multiply_adds(shape, w.shape, **params) > WORK or math.prod(shape) > CELLS:
        raise TooManyError(atom.op, "the constant part is too large")
    whole = np.broadcast_to(cells, shape)
    return smallest(np.asarray(c.op.spec(np.array(whole), w.numbers(), **params), dtype=object))


# --- contractions -----------------------------------------------------------------------------------------------------


def contract(c: TermApplication) -> int | None:
    """The factor that is constant stands second; the axes of the other are those of the result, then those summed."""
    x, w, out = split_spec(c.params["spec"])
    if c.given[1] is None and c.given[0] is not None:
        x, w, number, weights = w, x, c.args[1], c.given[0]
    elif c.given[1] is not None and c.given[0] is None:
        number, weights = c.args[0], c.given[1]
    else:
        return None
    turned = sorted(range(len(x)), key=lambda a: (out.index(x[a]) if x[a] in out else len(out), a))
    x, number = "".join(x[a] for a in turned), permute_to(c.table, number, tuple(turned))
    spec, order = canonical_spec(x, w, out)
    constant = Constant(np.transpose(weights, order))
    number, constant = _scale_of_letters(c.table, number, constant, spec)
    atom = Atom("contract", (spec,), (number,), c.shape, c.table.constant(constant))
    return _applied(c, atom)


def _scale_of_letters(table: TermTable, x: int, w: Constant, spec: str) -> tuple[int, Constant]:
    """contract(s*t, w) = contract(t, s*w), where s varies along letters of w alone."""
    letters, weights, _ = split_spec(spec)
    parts = factored(table, x, [a for a, letter in enumerate(letters) if letter not in weights])
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
    """(1/count) * (sum of windows), the count being that of each window; no tap counts: 0."""
    window, divisor, lead = c.params["window"], c.params["divisor"], len(c.shape) - c.params["window"].rank
    ones = np.full(window.out, Fraction(1), dtype=object)
    counts = {"padded": window.counted, "inside": window.inside}
    share = divide(ones, counts[divisor]()) if isinstance(divisor, str) else ones / Fraction(divisor)
    total = _window_sum(c.table, c.args[0], window, c.shape)
    return combined(c.table, c.shape, [(smallest(share.reshape((1,) * lead + window.out)), total)])


def _window_sum(table: TermTable, x: int, window: Window, shape: Shape) -> int:
    x = framed(table, x, window)
    window = window.unpadded()
    if set(window.out) == {1} and window.inside_at((0,) * window.rank) == math.prod(window.size):
        rank = len(table.values[x].shape)
        summed_up = total(table, x, tuple(range(rank - window.rank, rank)))
        return reshape_to(table, summed_up, shape)
    return _linear(table, x, lambda inner: Atom("window_sum", (window,), (inner,), shape), window.rank)


def _linear(table: TermTable, x: int, atom: Any, rank: int) -> int:
    """s*t goes through a map of the last axes where s is constant along them."""
    ndim = len(table.values[x].shape)
    parts = factored(table, x, range(ndim - rank, ndim))
    if parts is None:
        return table.of_atom(atom(x))
    one = atom(parts[1])
    return combined(table, one.shape, [(parts[0], table.of_atom(one))])


def total(table: TermTable, x: int, axes: tuple[int, ...]) -> int:
    """The sum over axes: constants are summed at once, a scale that is constant along the axes goes in front."""
    value = table.values[x]
    shape = tuple(n for a, n in enumerate(value.shape) if a not in axes)
    if not axes:
        return x
    parts: list[tuple[Any, int]] = []
    shift = table.shift_of(value)
    count = math.prod(value.shape[a] for a in axes if shift.shape[a] == 1)
    parts.append((1, table.of_cells(shape, np.asarray(shift.sum(axis=axes) * count, dtype=object))))
    rest = summed(table, value.shape, terms_of(table, x), _zero(len(value.shape)))
    pulled = factored(table, rest, axes)
    if pulled is not None:
        scale = pulled[0].reshape([n for a, n in enumerate(pulled[0].shape) if a not in axes])
        parts.append((scale, table.of_atom(Atom("sum", (axes,), (pulled[1],), shape))))
    elif table.values[rest].terms:
        parts.append((1, table.of_atom(Atom("sum", (axes,), (rest,), shape))))
    return combined(table, shape, parts)
