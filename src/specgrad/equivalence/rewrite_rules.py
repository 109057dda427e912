"""One rule per operator: from the normal forms of its arguments to its own. No rule: the operator as it stands.

Every rule is an identity of real functions, wherever both sides are defined, on constants that are exact numbers. A
rule that cannot be applied returns None: then two spellings of one function may not be seen as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import ScalarError
from ..scalar import Array
from . import linear_maps
from .constants import root_cells
from .layout import permute_to, reshape_to
from .linear_combinations import combined, inverses
from .linear_maps import TermApplication
from .pad_crop import padded, sliced
from .term_table import Atom, TermTable

Rule = Callable[[TermApplication], int | None]
COMMUTES = frozenset(("mul", "maximum", "minimum", "equal"))
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def enter(fn: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, fn))
        return fn

    return enter


# --- affine -----------------------------------------------------------------------------------------------------------


@rule("add")
def _add(c: TermApplication) -> int:
    return combined(c.table, c.shape, [(1, _spread(c, 0)), (1, _spread(c, 1))])


@rule("sub")
def _sub(c: TermApplication) -> int:
    return combined(c.table, c.shape, [(1, _spread(c, 0)), (-1, _spread(c, 1))])


@rule("neg")
def _neg(c: TermApplication) -> int:
    return combined(c.table, c.shape, [(-1, c.args[0])])


def _spread(c: TermApplication, k: int) -> int:
    """A number among arrays, as a constant of their shape."""
    number = c.args[k]
    cells = c.table.constant_of(number)
    return number if cells is None or c.table.values[number].shape == c.shape else c.table.of_cells(c.shape, cells)


@rule("mul")
def _mul(c: TermApplication) -> int | None:
    for k in (1, 0):
        cells = c.table.constant_of(c.args[k])
        if cells is not None:
            return combined(c.table, c.shape, [(cells, _spread(c, 1 - k))])
    return None


@rule("div")
def _div(c: TermApplication) -> int | None:
    cells = c.table.constant_of(c.args[1])
    if cells is None or any(v == 0 for v in cells.flat):
        return None
    return combined(c.table, c.shape, [(inverses(cells), _spread(c, 0))])


@rule("stop_gradient", "cast")
def _itself(c: TermApplication) -> int:
    """A cast is its argument in meaning; that it rounds is a matter of formats, which are compared apart."""
    return c.args[0]


@rule("sqrt")
def _sqrt(c: TermApplication) -> int | None:
    cells = c.table.constant_of(c.args[0])
    return None if cells is None else c.table.of_cells(c.shape, root_cells(cells))


@rule("power")
def _power(c: TermApplication) -> int | None:
    return c.args[0] if c.params["exponent"] == 1 else None


# --- layout -----------------------------------------------------------------------------------------------------------


@rule("reshape")
def _reshape(c: TermApplication) -> int:
    return reshape_to(c.table, c.args[0], c.shape)


@rule("permute")
def _permute(c: TermApplication) -> int:
    return permute_to(c.table, c.args[0], tuple(c.params["order"]))


@rule("broadcast")
def _broadcast(c: TermApplication) -> int | None:
    if c.shapes[0] == c.shape:
        return c.args[0]
    cells = c.table.constant_of(c.args[0])
    return None if cells is None else c.table.of_cells(c.shape, cells)


@rule("pad")
def _pad(c: TermApplication) -> int | None:
    if not c.table.values[c.args[0]].terms:
        return None
    return padded(c.table, c.args[0], tuple(tuple(w) for w in c.params["widths"]))


@rule("slice")
def _slice(c: TermApplication) -> int | None:
    if not c.table.values[c.args[0]].terms:
        return None
    return sliced(c.table, c.args[0], tuple(tuple(r) for r in c.params["ranges"]))


@rule("concat")
def _concat(c: TermApplication) -> int:
    """concat(concat(a, b), c) = concat(a, b, c) along one axis."""
    axis = c.params["axis"] % len(c.shape)
    args: list[int] = []
    for number in c.args:
        atom = c.table.alone(number)
        args += atom.args if atom is not None and (atom.op, atom.params) == ("concat", (axis,)) else (number,)
    return args[0] if len(args) == 1 else c.table.of_atom(Atom("concat", (axis,), tuple(args), c.shape))


# --- linear maps ------------------------------------------------------------------------------------------------------

rule("conv", "conv_transpose")(linear_maps.conv)
rule("contract")(linear_maps.contract)
rule("avg_pool")(linear_maps.avg_pool)


@rule("sum")
def _sum(c: TermApplication) -> int:
    return linear_maps.total(c.table, c.args[0], tuple(c.params["axes"]))


# --- piecewise linear -------------------------------------------------------------------------------------------------


def clamped(table: TermTable, x: int, low: Any, high: Any) -> int:
    """min(max(x, low), high), joined with a clamp inside: its ends, clamped."""
    if low is None and high is None:
        return x
    inner = table.alone(x)
    if inner is not None and inner.op == "clamp":
        ends = [_clamp_end(inner.params[0], low, high, low), _clamp_end(inner.params[1], low, high, high)]
        return clamped(table, inner.args[0], *ends)
    return table.of_atom(Atom("clamp", (low, high), (x,), table.values[x].shape))


def _clamp_end(end: Any, low: Any, high: Any, without: Any) -> Any:
    """clamp(end); of an end that is infinite, the outer end on that side."""
    if end is None:
        return without
    end = end if low is None else max(end, low)
    return end if high is None else min(end, high)


@rule("relu")
def _relu(c: TermApplication) -> int:
    return clamped(c.table, c.args[0], Fraction(0), None)


@rule("relu6")
def _relu6(c: TermApplication) -> int:
    return clamped(c.table, c.args[0], Fraction(0), Fraction(6))


@rule("clamp")
def _clamp(c: TermApplication) -> int | None:
    low = _end(c.params["low"], -math.inf)
    high = _end(c.params["high"], math.inf)
    if low is not None and high is not None and low > high:
        return None
    return clamped(c.table, c.args[0], low, high)


def _end(x: Any, none: float) -> Fraction | None:
    """An end of a clamp; an infinite one on its own side is none at all, and any other is refused."""
    if x is None or x == none:
        return None
    if not math.isfinite(x):
        raise ScalarError("clamp", f"the end {x} is no number")
    return Fraction(x)


@rule("maximum")
def _maximum(c: TermApplication) -> int | None:
    return _with_number(c, lambda x, v: clamped(c.table, x, v, None))


@rule("minimum")
def _minimum(c: TermApplication) -> int | None:
    return _with_number(c, lambda x, v: clamped(c.table, x, None, v))


def _with_number(c: TermApplication, make: Callable[[int, Fraction], int]) -> int | None:
    """One argument is the same rational in every cell."""
    for k in (1, 0):
        cells = c.table.constant_of(c.args[k])
        other = _spread(c, 1 - k)
        if cells is not None and cells.size == 1 and isinstance(cells.flat[0], Fraction):
            return make(other, cells.flat[0]) if c.table.values[other].terms else None
    return None


@rule("leaky_relu")
def _leaky_relu(c: TermApplication) -> int | None:
    """Slope 1 is x, slope 0 is relu."""
    slope = Fraction(c.params["slope"])
    return c.args[0] if slope == 1 else clamped(c.table, c.args[0], Fraction(0), None) if slope == 0 else None


@rule("max_pool")
def _max_pool(c: TermApplication) -> int:
    """max over taps of clamp(x) = clamp(max over taps of x), where every window has a tap: a clamp never decreases."""
    window, inner = c.params["window"], c.table.alone(c.args[0])
    if inner is None or inner.op != "clamp" or window.has_empty:
        return c.table.of_atom(Atom("max_pool", (window,), c.args, c.shape))
    pooled = c.table.of_atom(Atom("max_pool", (window,), inner.args, c.shape))
    return clamped(c.table, pooled, *inner.params)


def folded(c: TermApplication, constants: list[Array]) -> Array:
    """The specification on exact numbers; what they cannot do is refused by themselves."""
    with np.errstate(all="ignore"):
        y = np.asarray(c.op.spec(*constants, **c.params))
    if y.dtype != object and y.dtype.kind not in "iu":
        raise ScalarError(c.op.name, "does not stay exact")
    return y
