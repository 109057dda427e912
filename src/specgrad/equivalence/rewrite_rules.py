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

from ..errors import ScalarError, SpecgradError
from ..scalar import Array
from . import linear_maps
from .constants import plain_numbers, square_roots
from .folded import Folded, plain
from .layout import broadcast_to, permute_to, reshape_to
from .linear_combinations import linear_combination, product, reciprocals
from .linear_maps import TermApplication
from .pad_crop import pad_value
from .slices import parts_of, slice_value
from .sum_layout import sum_value
from .term_table import Atom, TermTable

Rule = Callable[[TermApplication], int | None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Return a decorator that enters a function into RULES as the rewrite rule of the operators `names`."""

    def enter(fn: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, fn))
        return fn

    return enter


# --- affine -----------------------------------------------------------------------------------------------------------


@rule("add")
def _add(c: TermApplication) -> int:
    """Return the value number of x + y in the call's table: terms and shifts of both are added."""
    return sum_value(c.table, c.shape, [(1, _broadcast_constant(c, 0)), (1, _broadcast_constant(c, 1))])


@rule("sub")
def _sub(c: TermApplication) -> int:
    """Return the value number of x - y in the call's table: terms and shifts of y are subtracted."""
    return sum_value(c.table, c.shape, [(1, _broadcast_constant(c, 0)), (-1, _broadcast_constant(c, 1))])


@rule("neg")
def _neg(c: TermApplication) -> int:
    """Return the value number of -x in the call's table: all scales and the shift are negated."""
    return linear_combination(c.table, c.shape, [(-1, c.args[0])])


def _broadcast_constant(c: TermApplication, k: int) -> int:
    """Return the value number of argument k; a constant of another shape is broadcast to the result's shape."""
    number = c.args[k]
    cells = c.table.constant_of(number)
    return (
        number
        if cells is None or c.table.values[number].shape == c.shape
        else c.table.value_of_constant(c.shape, cells)
    )


@rule("mul")
def _mul(c: TermApplication) -> int:
    """Return the value number of a product: a constant factor becomes a scale, scales of both factors are outside."""
    for k in (1, 0):
        cells = c.table.constant_of(c.args[k])
        if cells is not None:
            return linear_combination(c.table, c.shape, [(cells, _broadcast_constant(c, 1 - k))])
    return product(c.table, c.shape, *c.args)


@rule("div")
def _div(c: TermApplication) -> int | None:
    """Return the value number of x/c for a constant c without zeros, as x with the scale 1/c; else None."""
    cells = c.table.constant_of(c.args[1])
    if cells is None or any(v == 0 for v in cells.flat):
        return None
    return linear_combination(c.table, c.shape, [(reciprocals(cells), _broadcast_constant(c, 0))])


@rule("stop_gradient", "cast")
def _identity(c: TermApplication) -> int:
    """Return the value number of the argument itself: a cast changes rounding alone, and formats are compared
    separately.
    """
    return c.args[0]


@rule("sqrt")
def _sqrt(c: TermApplication) -> int | None:
    """Return the value number of the exact square roots of a constant; None if the argument is not constant."""
    cells = c.table.constant_of(c.args[0])
    return None if cells is None else c.table.value_of_constant(c.shape, square_roots(cells))


@rule("power")
def _power(c: TermApplication) -> int | None:
    """Return the value number of x for x**1, of the product x*x for x**2; None for other exponents."""
    if c.params["exponent"] == 2 and c.table.values[c.args[0]].terms:
        return product(c.table, c.shape, *c.args * 2)
    return c.args[0] if c.params["exponent"] == 1 else None


# --- layout -----------------------------------------------------------------------------------------------------------


@rule("reshape")
def _reshape(c: TermApplication) -> int:
    """Return the value number of a reshape, merged with a reshape inside."""
    return reshape_to(c.table, c.args[0], c.shape)


@rule("permute")
def _permute(c: TermApplication) -> int:
    """Return the value number of a permutation of axes, merged with a permutation inside."""
    return permute_to(c.table, c.args[0], tuple(c.params["order"]))


@rule("broadcast")
def _broadcast(c: TermApplication) -> int:
    """Return the value number of a broadcast: of a constant, the constant; of others with all axes written, and merged
    with a broadcast inside.
    """
    cells = c.table.constant_of(c.args[0])
    return broadcast_to(c.table, c.args[0], c.shape) if cells is None else c.table.value_of_constant(c.shape, cells)


@rule("pad")
def _pad(c: TermApplication) -> int | None:
    """Return the value number of an argument padded with zeros, merged with a padding inside.

    None (the operator stays as it stands) if the argument is a constant.
    """
    if not c.table.values[c.args[0]].terms:
        return None
    return pad_value(c.table, c.args[0], tuple(tuple(w) for w in c.params["widths"]))


@rule("slice")
def _slice(c: TermApplication) -> int | None:
    """Return the value number of a slice of an argument, merged with a slice or padding inside.

    None (the operator stays as it stands) if the argument is a constant.
    """
    if not c.table.values[c.args[0]].terms:
        return None
    return slice_value(c.table, c.args[0], tuple(tuple(r) for r in c.params["ranges"]))


@rule("concat")
def _concat(c: TermApplication) -> int:
    """Return the value number of a concatenation, with concatenations inside it along its own axis written out."""
    axis = c.params["axis"] % len(c.shape)
    args: list[int] = []
    for number in c.args:
        args += parts_of(c.table, number, c.op.name, axis)
    return args[0] if len(args) == 1 else c.table.value_of_atom(Atom("concat", (axis,), tuple(args), c.shape))


# --- linear maps ------------------------------------------------------------------------------------------------------

rule("conv", "conv_transpose")(linear_maps.conv)
rule("contract")(linear_maps.contract)
rule("avg_pool")(linear_maps.avg_pool)


@rule("sum")
def _sum(c: TermApplication) -> int:
    """Return the value number of a sum over axes, with scales that are constant along them factored out."""
    return linear_maps.sum_over_axes(c.table, c.args[0], tuple(c.params["axes"]))


# --- piecewise linear -------------------------------------------------------------------------------------------------


def clamp_value(table: TermTable, x: int, low: Any, high: Any) -> int:
    """Return the value number of min(max(x, low), high) in `table`, merged with a clamp inside: its limits, clamped."""
    if low is None and high is None:
        return x
    inner = table.single_atom(x)
    if inner is not None and inner.op == "clamp":
        ends = [_clamp_limit(inner.params[0], low, high, low), _clamp_limit(inner.params[1], low, high, high)]
        return clamp_value(table, inner.args[0], *ends)
    return table.value_of_atom(Atom("clamp", (low, high), (x,), table.values[x].shape))


def _clamp_limit(end: Any, low: Any, high: Any, without: Any) -> Any:
    """Return the limit `end` of an inner clamp, clamped to low..high; `without` if it is None (no limit)."""
    if end is None:
        return without
    end = end if low is None else max(end, low)
    return end if high is None else min(end, high)


@rule("relu")
def _relu(c: TermApplication) -> int:
    """Return the value number of relu(x), as a clamp from 0 on."""
    return clamp_value(c.table, c.args[0], Fraction(0), None)


@rule("relu6")
def _relu6(c: TermApplication) -> int:
    """Return the value number of relu6(x), as a clamp to 0..6."""
    return clamp_value(c.table, c.args[0], Fraction(0), Fraction(6))


@rule("hardswish")
def _hardswish(c: TermApplication) -> int | None:
    """Return the value number of x * clamp(x/6 + 1/2, 0, 1), where float32 rounds 1/6 once; None for a constant."""
    (x,), sixth = c.args, Folded(Fraction(1, 6), 1 / 6, 1)
    if not c.table.values[x].terms:
        return None
    half = c.table.value_of_constant(c.shape, np.full((1,) * len(c.shape), Fraction(1, 2), dtype=object))
    gate = clamp_value(c.table, linear_combination(c.table, c.shape, [(sixth, x), (1, half)]), Fraction(0), Fraction(1))
    return product(c.table, c.shape, x, gate)


@rule("gelu", "silu")
def _gated(c: TermApplication) -> int | None:
    """Return the value number of x times a gate of x, normal_cdf(x) of gelu, sigmoid(x) of silu; None for constants."""
    if not c.table.values[c.args[0]].terms:
        return None
    gate = {"gelu": "normal_cdf", "silu": "sigmoid"}[c.op.name]
    return product(c.table, c.shape, c.args[0], c.table.value_of_atom(Atom(gate, (), c.args, c.shape)))


@rule("clamp")
def _clamp(c: TermApplication) -> int | None:
    """Return the value number of a clamp, merged with a clamp inside; None if low > high.

    ScalarError for a limit that is NaN, or infinite on the other side.
    """
    low = _finite_limit(c.params["low"], -math.inf)
    high = _finite_limit(c.params["high"], math.inf)
    if low is not None and high is not None and low > high:
        return None
    return clamp_value(c.table, c.args[0], low, high)


def _finite_limit(x: Any, none: float) -> Fraction | None:
    """Return a clamp's limit as a Fraction; None if it equals `none`; raise ScalarError for NaN and infinities."""
    if x is None or x == none:
        return None
    if not math.isfinite(x):
        raise ScalarError("clamp", f"the end {x} is no number")
    return Fraction(x)


@rule("maximum")
def _maximum(c: TermApplication) -> int | None:
    """Return the value number of max(x, v) for a constant v, as a clamp from v on; else None."""
    return _with_constant_operand(c, lambda x, v: clamp_value(c.table, x, v, None))


@rule("minimum")
def _minimum(c: TermApplication) -> int | None:
    """Return the value number of min(x, v) for a constant v, as a clamp up to v; else None."""
    return _with_constant_operand(c, lambda x, v: clamp_value(c.table, x, None, v))


def _with_constant_operand(c: TermApplication, make: Callable[[int, Fraction], int]) -> int | None:
    """Return the value make(x, v) if one operand of the binary term `c` is the rational v in every cell; `x` is the
    other operand, broadcast; values are numbers in the term's table.

    None if neither operand is such a constant, or both are.
    """
    for k in (1, 0):
        cells = c.table.constant_of(c.args[k])
        other = _broadcast_constant(c, 1 - k)
        if cells is not None and cells.size == 1 and isinstance(plain(cells.flat[0]), Fraction):
            return make(other, plain(cells.flat[0])) if c.table.values[other].terms else None
    return None


@rule("leaky_relu")
def _leaky_relu(c: TermApplication) -> int | None:
    """Return the value number of x for slope 1, of relu(x) for slope 0; None for other slopes."""
    slope = Fraction(c.params["slope"])
    return c.args[0] if slope == 1 else clamp_value(c.table, c.args[0], Fraction(0), None) if slope == 0 else None


@rule("max_pool")
def _max_pool(c: TermApplication) -> int:
    """Return the value number of a max pool; a clamp inside moves outside if every window has a tap, since a clamp is
    monotone.
    """
    window, inner = c.params["window"], c.table.single_atom(c.args[0])
    if inner is None or inner.op != "clamp" or window.has_empty:
        return c.table.value_of_atom(Atom("max_pool", (window,), c.args, c.shape))
    pooled = c.table.value_of_atom(Atom("max_pool", (window,), inner.args, c.shape))
    return clamp_value(c.table, pooled, *inner.params)


def evaluate_exactly(c: TermApplication, constants: list[Array]) -> Array:
    """Return the operator's specification on exact constants; raise ScalarError if the result is not exact."""
    with np.errstate(all="ignore"):
        try:
            y = np.asarray(
                c.op.spec(*constants, **c.params)
            )  # sums, products and quotients keep the record of foldings
        except (SpecgradError, ArithmeticError, TypeError, AttributeError):
            y = np.asarray(c.op.spec(*map(plain_numbers, constants), **c.params))
    if y.dtype != object and y.dtype.kind not in "iu":
        raise ScalarError(c.op.name, "does not stay exact")
    return y
