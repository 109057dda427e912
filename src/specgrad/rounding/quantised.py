"""Whole numbers: sums that are exact, quantised cells, and values stored in another format.

A node that a runtime computes in integers loses nothing as long as no sum leaves int32; that is proven by the sum of
absolute values. A quantised cell is saturate(round(v) + zero) for some v inside the ball of x/scale: a set of whole
numbers, nearly always of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..op import Op, Params
from ..ops.elementwise import DIV
from ..scalar import Array
from .arithmetic import FORMATS, REFERENCE
from .ball import SLACK, Ball, between
from .context import Context
from .elementwise import div_rule
from .linear import linear_rule, magnitude
from .poison import lose, unknown

INT32 = 2.0**31  # sums of integers are wrapped from here on
FACTORS = 3  # as many powers of two may be multiplied in any order: each is small enough that nothing leaves the format


def integer_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Sums and products of whole numbers in int32: exact, or nothing is known, for what overflows is wrapped.

    Value and results are whole, so their distance is: what remains of a radius below 1 is 0.
    """
    ball = linear_rule(run, op, [replace(a, expansion=None) for a in args], params)
    fits = magnitude(run, op, [a.size for a in args], params) < INT32
    fits = fits & all((a.value == np.rint(a.value)).all() for a in args)
    return Ball(np.rint(ball.value), np.where(fits, np.floor(ball.radius), np.inf), whole=True)


def no_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Integers are added and multiplied; of anything else in their format nothing is claimed."""
    value = run.evaluate(op, [a.value for a in args], params)
    return Ball(value, np.full(value.shape, np.inf))


def quantize_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """The whole numbers that rounding any point of the ball of x/scale gives, moved by the zero point and saturated."""
    x, scale, zero = args
    quotient = _quotient(run, x, scale)
    value = run.evaluate(op, [a.value for a in args], params)
    low, high = (np.rint(q) + z for q, z in ((quotient.low, zero.low), (quotient.high, zero.high)))
    low, high = (np.clip(end, params["low"], params["high"]) for end in (low, high))
    holds = 2.0 ** min(
        run.arithmetic.format.digits, REFERENCE.digits
    )  # every whole number up to here, so the sum is exact
    lost = unknown(quotient) | unknown(zero) | (zero.value != np.rint(zero.value))
    lost = lost | (np.maximum(np.abs(low), np.abs(high)) > holds)
    run.leave_open(np.asarray(low != high))
    ball = replace(between(value, low, high), ends=(low, high), whole=True)
    return lose(ball, np.broadcast_to(lost, value.shape))


def _quotient(run: Context, x: Ball, scale: Ball) -> Ball:
    """x/scale, or x times the rounded 1/scale; a power of two only shifts, in whichever order factors are taken."""
    ball = div_rule(run, DIV, [x, scale], {})
    form = run.arithmetic.format
    size = np.abs(ball.value)
    kept = (size == 0) | ((size >= form.tiny) & (size <= form.largest))
    exact = shifts(run, scale) & _is_short(x, scale) & (x.radius == 0) & kept
    return replace(ball, radius=np.where(exact, 0.0, ball.radius))


def shifts(run: Context, x: Ball) -> Array:
    """Where x is a power of two, and not a far one: up to 2**42 either way in float32."""
    mantissa, exponent = np.frexp(x.value)
    near = np.abs(exponent - 1) * FACTORS <= -run.arithmetic.format.lowest
    return np.asarray((x.radius == 0) & (np.abs(mantissa) == 0.5) & near)


def _is_short(*args: Ball) -> bool:
    """Whether these and one more factor are few: constants of a region may be multiplied first, and underflow."""
    return sum(a.expansion.count.longest for a in args if a.expansion is not None) < FACTORS


def mul_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """A product; by a power of two, of a number that is known, it is exact."""
    ball = linear_rule(run, op, args, params)
    form, size = run.arithmetic.format, np.abs(ball.value)
    exact = (shifts(run, args[0]) & (args[1].radius == 0)) | (shifts(run, args[1]) & (args[0].radius == 0))
    exact = exact & _is_short(*args)
    exact = exact & ((size == 0) | (size >= form.tiny)) & (size <= form.largest) & ~np.isinf(ball.radius)
    return replace(ball, radius=np.where(exact, 0.0, ball.radius)) if exact.any() else ball


def cast_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """One store in the format; a number that it holds stays. No sum is merged across it."""
    (x,), form = args, replace(run.arithmetic.format, **_bits(params["dtype"]))
    held = form.holds(x.value) & (x.radius == 0)
    lost = np.where(held, 0.0, x.size * form.u + form.smallest)
    if run.arithmetic.flush:
        lost = np.where(x.least < form.tiny, np.maximum(lost, np.minimum(x.size, form.tiny)), lost)
    radius = np.where(lost == 0, x.radius, (x.radius + lost) * SLACK)
    return lose(Ball(x.value, np.where(x.size + lost <= form.largest, radius, np.inf)), unknown(x))


def _bits(dtype: str) -> dict[str, Any]:
    form = FORMATS[dtype]
    return {"name": form.name, "digits": form.digits, "lowest": form.lowest, "highest": form.highest}
