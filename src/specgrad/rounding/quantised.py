"""Rounding rules of integers: exact sums, quantised cells, and values stored in another format.

A node that a runtime computes in integers loses nothing as long as no sum leaves int32; that is proven by the sum of
absolute values. A quantised cell is saturate(round(v) + zero) for some v inside the ball of x/scale: a set of integers,
nearly always of one.

`context` (specgrad.rounding.context) is what rules read besides their arguments, and add to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..op import Op, Params
from ..ops.elementwise import DIV
from ..scalar import Array
from .arithmetic import FORMATS, REFERENCE
from .ball import SLACK, Ball, between, mark_unknown_cells, unknown
from .context import Context
from .elementwise import div_rule
from .linear import linear_rule, magnitude

INT32_LIMIT = 2.0**31  # sums of integers are wrapped from here on
MAX_FACTORS = 3  # so many powers of two may be multiplied in any order: each is small enough to stay in the format


def integer_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of sums and products of integers in an integer type: exact, or unknown where they may wrap.

    Value and results are integers, so their distance is: what remains of a radius below 1 is 0. In a narrow type
    partial sums may wrap, since they come back where the whole does not.
    """
    ball = linear_rule(context, op, [replace(a, expansion=None) for a in args], params)
    value, radius = np.rint(ball.value), np.floor(ball.radius)
    low, high = context.call.integers or (-INT32_LIMIT, INT32_LIMIT)
    fits = magnitude(context, op, [a.size for a in args], params) < INT32_LIMIT
    fits = fits & (value - radius >= low) & (value + radius <= high)
    fits = fits & all((a.value == np.rint(a.value)).all() for a in args)
    return Ball(value, np.where(fits, radius, np.inf), whole=True)


NEGATING = ("neg", "abs")
"""Operators that round nothing, and give other numbers than their arguments hold."""


def kept_in_integers(op: Op, args: Sequence[Ball], ball: Ball, low: int, high: int) -> Ball:
    """Return the ball of a call of `op`, unknown where a number of it leaves the integer type from `low` to `high`.

    The negative of the least number does, and so may a number that is written. What else rounds nothing gives numbers
    of its arguments, which are in the type, though the ball around them may reach further.

    >>> from specgrad.ops.elementwise import NEG
    >>> numbers = Ball(np.array([127.0, 128.0]), np.zeros(2))
    >>> kept_in_integers(NEG, [Ball(-numbers.value, numbers.radius)], numbers, -128, 127).radius
    array([ 0., inf])
    """
    if ball.value.dtype.kind != "f" or (op.linear and op.name not in NEGATING):  # what moves cells leaves no type
        return ball
    outside = (ball.value < low) | (ball.value > high) | np.isnan(ball.value)
    if op.name in NEGATING:
        outside = outside | (ball.value - ball.radius < low) | (ball.value + ball.radius > high)
    elif any((a.value < low).any() or (a.value > high).any() for a in args):
        outside = outside | (ball.radius > 0)
    return mark_unknown_cells(ball, np.asarray(outside))


def no_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return a ball of radius inf: nothing is claimed of other operators in integers."""
    value = context.evaluate(op, [a.value for a in args], params)
    return Ball(value, np.full(value.shape, np.inf))


def quantize_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of the integers that rounding any point of x/scale gives, plus the zero point, saturated."""
    x, scale, zero = args
    quotient = _quotient_by_scale(context, x, scale)
    value = context.evaluate(op, [a.value for a in args], params)
    low, high = (np.rint(q) + z for q, z in ((quotient.low, zero.low), (quotient.high, zero.high)))
    low, high = (np.clip(end, params["low"], params["high"]) for end in (low, high))
    holds = 2.0 ** min(
        context.arithmetic.format.digits, REFERENCE.digits
    )  # every whole number up to here, so the sum is exact
    lost = unknown(quotient) | unknown(zero) | (zero.value != np.rint(zero.value))
    lost = lost | (np.maximum(np.abs(low), np.abs(high)) > holds)
    context.mark_undecided(np.asarray(low != high))
    ball = replace(between(value, low, high), ends=(low, high), whole=True)
    return mark_unknown_cells(ball, np.broadcast_to(lost, value.shape))


def _quotient_by_scale(context: Context, x: Ball, scale: Ball) -> Ball:
    """Return the ball of x/scale, or x times the rounded 1/scale; exact for powers of two, in any order of factors."""
    ball = div_rule(context, DIV, [x, scale], {})
    form = context.arithmetic.format
    size = np.abs(ball.value)
    kept = (size == 0) | ((size >= form.tiny) & (size <= form.largest))
    exact = is_near_power_of_two(context, scale) & _has_few_factors(x, scale) & (x.radius == 0) & kept
    return replace(ball, radius=np.where(exact, 0.0, ball.radius))


def is_near_power_of_two(context: Context, x: Ball) -> Array:
    """Return, elementwise, whether x is a power of two of small exponent: up to 2**42 either way in float32."""
    mantissa, exponent = np.frexp(x.value)
    near = np.abs(exponent - 1) * MAX_FACTORS <= -context.arithmetic.format.lowest
    return np.asarray((x.radius == 0) & (np.abs(mantissa) == 0.5) & near)


def _has_few_factors(*args: Ball) -> bool:
    """Return whether these and one more factor are few: constants of a region may be multiplied first,
    and underflow."""
    return sum(a.expansion.count.longest for a in args if a.expansion is not None) < MAX_FACTORS


def mul_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of a product.

    In cells where one factor is a power of two and the other known exactly, the radius is 0, unless the product is
    subnormal or too large, or of many factors that a runtime may reorder.
    """
    ball = linear_rule(context, op, args, params)
    form, size = context.arithmetic.format, np.abs(ball.value)
    exact = (is_near_power_of_two(context, args[0]) & (args[1].radius == 0)) | (
        is_near_power_of_two(context, args[1]) & (args[0].radius == 0)
    )
    exact = exact & _has_few_factors(*args)
    exact = exact & ((size == 0) | (size >= form.tiny)) & (size <= form.largest) & ~np.isinf(ball.radius)
    return replace(ball, radius=np.where(exact, 0.0, ball.radius)) if exact.any() else ball


def cast_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of one store in another format; numbers that it holds stay.

    No sum is merged across it; or, where casts may be dropped, the sum goes on, and what the store costs is carried.
    """
    (x,), a = args, context.arithmetic
    form = replace(FORMATS[params["dtype"]], directed=a.format.directed)
    held = form.holds(x.value) & (x.radius == 0)
    lost = np.where(held, 0.0, x.size * form.u + form.smallest)
    if a.flush:
        lost = np.where(x.least < form.tiny, np.maximum(lost, np.minimum(x.size, form.tiny)), lost)
    beyond = np.maximum(lost, x.size - form.largest) if a.overflow == "saturate" else np.inf
    lost = np.where(x.size + lost <= form.largest, lost, beyond) * SLACK
    radius = np.where(lost == 0, x.radius, (x.radius + lost) * SLACK)
    through = None
    if a.casts == "dropped" and x.expansion is not None:
        e = x.expansion
        most = e.most + np.max(lost, initial=0.0)
        through = replace(e, carried=e.carried + lost, size=e.size + lost, least_size=e.least_size + lost, most=most)
    return mark_unknown_cells(Ball(x.value, radius, expansion=through), unknown(x))
