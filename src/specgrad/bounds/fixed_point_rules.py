"""What every operator is in fixed point: sums and products of digits by its own specification, which is exact on whole
floats; choices by exact order; whole numbers by exact comparison; everything else over balls, cell by cell.
UnsupportedError where a result has too many digits, RadiusError where the digits leave a choice open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..deadline import check_time
from ..errors import ScalarError, UnsupportedError, need
from ..late_tables import fill
from ..op import Op, Params, apply, operator_named
from ..ops.elementwise import cellwise
from ..scalar import Array
from ..window import Shape
from . import fixed_point_products as products
from .fixed_point import (
    DigitFormat,
    FixedPoint,
    RadiusError,
    added,
    divided,
    fixed_number,
    fixed_point,
    floats,
    is_decided,
    level,
    minus,
    plus,
    round_up,
    signs,
    spread_to,
)
from .fixed_point_products import chosen, larger, multiplied, nearest_multiples, negative, smaller, times

Rule = Callable[[DigitFormat, Op, Sequence[Any], Params], FixedPoint]
"""(form, operator, arguments: numbers in fixed point, and positions as arrays, parameters) -> what it gives."""
MOST_OVER_BALLS = 2**23  # cells and multiply-adds of an operator that is evaluated over balls
MOST_TAPPED = 2**25  # cells that the taps of a convolution read, which are held at once
CHUNK = 4096  # cells over balls between two looks at the clock
MOST_DIVISOR = 2.0**25
MOST_POWER = 16

RULES: dict[Op, Rule] = {}
"""The rule of each operator that has one; others are evaluated over balls."""


def value_of(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return what an operator gives, for arguments in fixed point, positions as arrays and Python numbers.

    RadiusError where more digits are needed, UnsupportedError for what is too large.
    """
    given = [
        a
        if isinstance(a, FixedPoint) or i in op.index_args
        else (fixed_point if isinstance(a, np.ndarray) else fixed_number)(form, a)
        for i, a in enumerate(args)
    ]
    return RULES.get(op, value_over_balls)(form, op, given, params)


def positions_of(op: Op, args: Sequence[Any], params: Params) -> Array:
    """Return positions that an operator finds: winners among numbers that are exact; RadiusError among others."""
    given = []
    for a in args:
        if isinstance(a, FixedPoint):
            if not a.is_exact:
                raise RadiusError(op.name, "which cell wins is not decided among numbers that are not exact")
            a = products.ranks(a)[0]
        given.append(a)
    return np.asarray(apply(op, *given, **params))


def value_over_balls(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return what the operator's specification gives over balls that hold the arguments (python-flint).

    UnsupportedError for more than MOST_OVER_BALLS cells.
    """
    need("flint", "balls need")
    import flint

    shapes = [np.shape(a) if isinstance(a, np.ndarray) else a.shape for a in args]
    shape = op.shape(*shapes, **params)
    each = op.receptive_field is cellwise
    args = _without_repeats(args) if each else args
    work = max((a.radius.size for a in args if isinstance(a, FixedPoint)), default=0)
    if work + (0 if each else op.multiply_adds(*shapes, **params)) > MOST_OVER_BALLS:
        raise UnsupportedError(op.name, f"{work} cells are too many to be evaluated over balls")
    before, flint.ctx.prec = flint.ctx.prec, form.bits + products.SPARE_BITS
    try:
        return spread_to(_cell_by_cell(form, op, args, params) if each else _at_once(form, op, args, params), shape)
    except (ScalarError, ZeroDivisionError) as error:
        raise error if isinstance(error, RadiusError) else RadiusError(op.name, "balls overlap") from error
    finally:
        flint.ctx.prec = before


def _without_repeats(args: Sequence[FixedPoint]) -> list[FixedPoint]:
    """Return the arguments with size 1 along the axes on which all of them repeat one cell, as `spread_to` does."""
    rank = max(len(a.shape) for a in args)
    whole = [a for a in args if len(a.shape) == rank]
    same = [all(a.digits.strides[k + 1] == 0 == a.radius.strides[k] for a in whole) for k in range(rank)]
    at = tuple(slice(0, 1) if s else slice(None) for s in same)
    return [FixedPoint(a.form, a.digits[(slice(None), *at)], a.radius[at]) if len(a.shape) == rank else a for a in args]


def _at_once(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return the specification on balls."""
    check_time(op.name)
    given = [products.to_balls(a) if isinstance(a, FixedPoint) else a for a in args]
    return products.from_balls(form, np.asarray(op.spec(*given, **params), dtype=object))


def _cell_by_cell(form: DigitFormat, op: Op, args: Sequence[FixedPoint], params: Params) -> FixedPoint:
    """Return the specification on balls, a few thousand cells at a time."""
    shape = np.broadcast_shapes(*(a.shape for a in args))
    flat = [_flattened(spread_to(a, shape)) for a in args]
    size = flat[0].radius.size
    parts = []
    for start in range(0, max(size, 1), CHUNK):
        at = slice(start, start + CHUNK)
        parts.append(_at_once(form, op, [FixedPoint(form, a.digits[:, at], a.radius[at]) for a in flat], params))
    digits = np.concatenate(level(parts), axis=1)
    radius = np.concatenate([p.radius for p in parts])
    return FixedPoint(form, digits.reshape(len(digits), *shape), radius.reshape(shape))


def _flattened(x: FixedPoint) -> FixedPoint:
    """Return x as one row of cells."""
    return FixedPoint(x.form, x.digits.reshape(len(x.digits), -1), x.radius.reshape(-1))


# --- cells that move, and sums ----------------------------------------------------------------------------------------


def _moved(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return an operator that moves, repeats or drops cells: of every digit, and of the radii."""
    numbers = [a for a in args if isinstance(a, FixedPoint)]
    leveled = iter(level(numbers))
    each = [next(leveled) if isinstance(a, FixedPoint) else a for a in args]
    rows = [
        op.spec(*(a[k, ...] if isinstance(b, FixedPoint) else a for a, b in zip(each, args, strict=True)), **params)
        for k in range(max(len(a.digits) for a in numbers))
    ]
    radius = op.spec(*(np.asarray(a.radius) if isinstance(a, FixedPoint) else a for a in args), **params)
    return FixedPoint(form, np.stack(rows), np.asarray(radius))


def _broadcast(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return x repeated, without a copy."""
    return spread_to(args[0], tuple(params["shape"]))


def _same(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return x: a cast is x in meaning."""
    return args[0]  # type: ignore[no-any-return]


def _filled(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return one number in every cell."""
    return spread_to(fixed_number(form, params["value"]), args[0].shape)


def _summed(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return sums of cells of the first argument; positions beside it say which."""
    return added(lambda x: op.spec(x, *args[1:], **params), args[0])


def _averaged(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return averages over windows: sums, then divided by counts."""
    window, divisor = params["window"], params["divisor"]
    total = added(lambda x: op.spec(x, window=window, divisor=1), args[0])
    return _over_counts(total, window, divisor)


def _spread(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return the adjoint of averages: divided by counts, then summed."""
    window, divisor = params["window"], params["divisor"]
    return added(lambda x: op.spec(x, window=window, divisor=1), _over_counts(args[0], window, divisor))


def _over_counts(x: FixedPoint, window: Any, divisor: Any) -> FixedPoint:
    """Return x over the divisor of each window: its cells inside the extent ("padded") or the input ("inside"), or a
    number.
    """
    if isinstance(divisor, str):
        counts = np.asarray(window.counted() if divisor == "padded" else window.inside()).astype(float)
        nothing = np.broadcast_to(counts == 0, x.shape)
        y = divided(x, np.maximum(counts, 1.0))
        return chosen(~nothing, y, fixed_point(x.form, 0)) if nothing.any() else y
    if divisor == int(divisor) and 0 < divisor < MOST_DIVISOR:
        return divided(x, np.array(float(divisor)))
    return times(x, fixed_point(x.form, 1 / Fraction(divisor)))


# --- products ---------------------------------------------------------------------------------------------------------


class ConvProduct:
    """conv of float64 arrays x and w without a bias, by one matrix product.

    window, groups   as the operator has them. What its taps read of x is kept for the next w
    """

    def __init__(self, window: Any, groups: int) -> None:
        self.window, self.groups = window, groups
        self.last: tuple[Array, Array] | None = None

    def __call__(self, x: Array, w: Array) -> Array:
        """Return conv of x with w, of the shape (*batch, Cout, *out)."""
        if self.last is None or self.last[0] is not x:
            self.last = x, self._taps(x)
        taps = self.last[1]
        rows = w.reshape(self.groups, len(w) // self.groups, w.shape[1], self.window.taps_count)
        y = np.moveaxis(rows, 3, 2).reshape(*rows.shape[:2], taps.shape[2]) @ taps
        return np.asarray(y.reshape(*x.shape[: x.ndim - self.window.rank - 1], len(w), *self.window.out))

    def _taps(self, x: Array) -> Array:
        """Return what every tap reads, 0 outside of x: (batch, groups, taps * channels of a group, outputs)."""
        rank, window = self.window.rank, self.window
        batch, channels = math.prod(x.shape[: x.ndim - rank - 1]), x.shape[x.ndim - rank - 1] // self.groups
        cells = x.reshape(batch, self.groups, channels, *x.shape[x.ndim - rank :])
        taps = np.zeros((window.taps_count, *cells.shape[:3], *window.out))
        for tap in window.taps():
            tap.write_outputs(taps[window.number(tap.position)], tap.read_inputs(cells))
        shape = (batch, self.groups, window.taps_count * channels, math.prod(window.out))
        return np.moveaxis(taps, 0, 2).reshape(shape)


def _convolved(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return conv of x with w, and a bias: by one matrix product for each pair of digits where that fits the memory."""
    x, w = args[:2]
    window = params["window"]
    if window.taps_count * x.radius.size > MOST_TAPPED:
        return _product(form, op, args, params)
    return _biased(multiplied(ConvProduct(window, params["groups"]), x, w), args, params)


def _biased(y: FixedPoint, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return y plus the third argument, a bias per channel, if there is one."""
    if len(args) < 3:
        return y
    shape = args[2].shape + (1,) * params["window"].rank
    bias = FixedPoint(y.form, args[2].digits.reshape(len(args[2].digits), *shape), args[2].radius.reshape(shape))
    return plus(y, bias)


def _product(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return sums of products of two arguments, by the specification on digits; a third is a bias per channel."""
    return _biased(multiplied(lambda p, q: op.spec(p, q, **params), args[0], args[1]), args, params)


def _ratio(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return x/y: x times the reciprocal, which is computed over balls."""
    one = fixed_point(form, 1)
    return times(args[0], value_over_balls(form, op, (one, args[1]), {}))


def _power(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return x to a number: small whole ones by products, others over balls."""
    exponent = params["exponent"]
    if exponent != int(exponent) or not 1 <= exponent <= MOST_POWER:
        return value_over_balls(form, op, args, params)
    y = args[0]
    for _ in range(int(exponent) - 1):
        y = times(y, args[0])
    return y  # type: ignore[no-any-return]


# --- choices ----------------------------------------------------------------------------------------------------------


def _limited(x: FixedPoint, low: Any, high: Any) -> FixedPoint:
    """Return min(max(x, low), high); None, and an infinity on its own side: no limit."""
    x = x if low is None or low == -math.inf else larger(x, fixed_number(x.form, low))
    return x if high is None or high == math.inf else smaller(x, fixed_number(x.form, high))


def _leaky(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return x where it is positive, else slope*x; where the sign is open, with both radii."""
    x = args[0]
    steep = times(x, fixed_number(form, params["slope"]))
    y = chosen(floats(x) > 0, x, steep)
    return FixedPoint(form, y.digits, np.where(is_decided(x), y.radius, round_up(x.radius + steep.radius)))


def _hardswish(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return x*clamp(x + 3, 0, 6)/6."""
    x = args[0]
    return divided(times(x, _limited(plus(x, fixed_point(form, 3)), 0, 6)), np.array(6.0))


def _absolute(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return |x|, which moves by no more than x."""
    return chosen(floats(args[0]) < 0, negative(args[0]), args[0])


def _in_order(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return cells that an operator picks by their order, such as maxima over windows: of the cells' ranks.

    The k-th largest of some cells moves by no more than the farthest of them: the radius is the largest of all.
    """
    x = args[0]
    rank, cells = products.ranks(x)
    picked = np.asarray(op.spec(rank, **params))
    radius = np.full(picked.shape, x.radius.max(initial=0.0))
    return products.selected(x, (picked, cells), np.where(picked == 0, 0.0, radius))


def _maxima(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return maxima: the radius is the largest of the cells that they are taken of."""
    y = _in_order(form, op, args, params)
    return FixedPoint(form, y.digits, np.asarray(op.spec(np.array(args[0].radius), **params)))


def _compared(test: Callable[[Array], Array]) -> Rule:
    """Return the rule of a comparison: `test` of the sign of the difference of two numbers."""

    def rule(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
        return fixed_point(form, test(signs(minus(*args))).astype(float))

    return rule


def _sign(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return -1, 0 or 1."""
    return fixed_point(form, signs(args[0]))


def _select(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return the second argument where the first is not 0, else the third."""
    return chosen(signs(args[0]) != 0, *args[1:])


# --- whole numbers ----------------------------------------------------------------------------------------------------


def _rounded(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return the nearest whole numbers, ties to even."""
    return fixed_point(form, nearest_multiples(args[0], fixed_point(form, 1)))


def _floor(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return the largest whole numbers that are not above x."""
    return fixed_point(form, products.floors(args[0]))


def _ceiling(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return the smallest whole numbers that are not below x."""
    return fixed_point(form, -products.floors(negative(args[0])))


def _quantized(form: DigitFormat, op: Op, args: Sequence[Any], params: Params) -> FixedPoint:
    """Return round(x/scale) + zero, limited to low..high; UnsupportedError for a zero point that is not whole."""
    x, scale, zero = args
    offset = np.ldexp(floats(zero), -form.bits)
    if not (
        zero.is_exact and (offset == np.rint(offset)).all() and not floats(minus(zero, fixed_point(form, offset))).any()
    ):
        raise UnsupportedError("quantize", "a zero point that is no whole number")
    limits = (None if end is None else end - offset for end in (params["low"], params["high"]))
    shape: Shape = np.broadcast_shapes(x.shape, scale.shape, zero.shape)
    return fixed_point(form, nearest_multiples(spread_to(x, shape), scale, *limits) + offset)


def _enter() -> None:
    """Fill the table, by names of records."""
    fill("operators")
    named: dict[str, Rule] = dict.fromkeys(("reshape", "permute", "slice", "pad", "concat", "gather", "take"), _moved)
    named |= dict.fromkeys(("sum", "cumsum", "scatter", "put"), _summed)
    named |= dict.fromkeys(("mul", "conv_transpose", "conv_weight", "contract"), _product) | {"conv": _convolved}
    named |= dict.fromkeys(("top", "median_pool"), _in_order) | dict.fromkeys(("max_pool", "amax"), _maxima)
    named |= dict.fromkeys(("cast", "stop_gradient"), _same) | dict.fromkeys(("power", "root"), _power)
    named |= {"broadcast": _broadcast, "fill": _filled, "avg_pool": _averaged, "avg_spread": _spread, "div": _ratio}
    named |= {"add": lambda form, op, args, params: plus(*args), "sub": lambda form, op, args, params: minus(*args)}
    named |= {"neg": lambda form, op, args, params: negative(args[0]), "abs": _absolute, "sign": _sign}
    named |= {"maximum": lambda form, op, args, params: larger(*args), "select": _select, "leaky_relu": _leaky}
    named |= {"minimum": lambda form, op, args, params: smaller(*args), "hardswish": _hardswish}
    named |= {"relu": lambda form, op, args, params: _limited(args[0], 0, None), "round": _rounded, "floor": _floor}
    named |= {"relu6": lambda form, op, args, params: _limited(args[0], 0, 6), "ceil": _ceiling, "quantize": _quantized}
    named |= {"clamp": lambda form, op, args, params: _limited(args[0], **params)}
    named |= {"greater": _compared(lambda s: s > 0), "greater_equal": _compared(lambda s: s >= 0)}
    named |= {"equal": _compared(lambda s: s == 0), "less": _compared(lambda s: s < 0)}
    RULES.update({operator_named(name): rule for name, rule in named.items()})


_enter()
