"""Rounding rules of masks: sums in which one summand m swallows all others, and what exp makes of them.

A mask adds -inf, or the most negative number, to what must not count. Let m be one summand, S the sum of the absolute
values of all others with their roundings, R the roundings of the region, and step the distance of numbers at m.

    m infinite   every partial sum with m is m, the others being finite: the result is m, in any order
    m finite     to nearest, where (R + 1)*S < step/4: a partial sum with m is rounded only if it is half a step of its
                 format away from m, so by at most S each time. It stays within (R + 1)*S of m, and what is stored is m:
                 nothing overflows, though m is the largest number that there is

exp(-inf) is 0 in every execution, and so is its share of a sum, and of a quotient by one. Of a row with no other cell
softmax is NaN in most kernels and 0 in some: nothing is claimed of it ([M1]).

`context` (specgrad.rounding.context) is what rules read besides their arguments, and add to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...op import Op, Params
from ...scalar import Array
from ..arithmetic import REFERENCE, Format, growth
from ..ball import SLACK, Ball
from ..context import Context
from ..elementwise import function_rule
from ..linear import linear_rule
from ..slack_constants import FAR_BELOW

NEAR_LARGEST = 0.25
"""Summands from this share of the largest number on are looked at: a sum with one of them may seem to overflow."""
SWALLOWED = 0.25
"""What is swallowed, and what moves the result, is at most this share of the step at the summand that swallows it."""


def is_exact_infinity(ball: Ball) -> Array:
    """Return, elementwise, whether a cell is the same infinity in every execution."""
    return np.asarray(np.isinf(ball.value) & (ball.radius == 0))


def sum_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of a sum or difference of two values; where one summand swallows the rest, that of its own."""
    with np.errstate(all="ignore"):
        ball = linear_rule(context, op, args, params)
        least = NEAR_LARGEST * context.arithmetic.largest
        if context.centred or _by_cores(ball) or not any(np.max(np.abs(a.value), initial=0.0) >= least for a in args):
            return ball
        sizes = [_size_with_roundings(context, ball, a, k) for k, a in enumerate(args)]
        if not context.arithmetic.inner.directed:
            ball = _swallowed_by(context, ball, args[0], sizes[1])
            ball = _swallowed_by(context, ball, args[1], sizes[0])
        return _with_infinities(context, ball, args, sizes)


def _size_with_roundings(context: Context, ball: Ball, arg: Ball, k: int) -> Array:
    """Return the sum of absolute values of the terms of argument k, the ball `arg`, with all roundings of the node's
    `ball`.
    """
    part, a = context.expansion_of(arg, k, context.arithmetic.fused), context.arithmetic
    grown = 1 + growth(_roundings(ball), a.inner.u)
    if ball.expansion is not None:
        met = ball.expansion.count
        grown *= (1 + growth(met.stores, a.u)) * (1 + growth(met.operands, a.factor.u if a.factor else 0.0))
    return np.asarray((part.size + part.carried) * grown * SLACK)


def _by_cores(ball: Ball) -> bool:
    """Return whether a tensor core may have added the mask to give `ball`: it cuts a summand that swallows the others,
    too.
    """
    return ball.expansion is not None and ball.expansion.count.cores > 0


def _roundings(ball: Ball) -> int:
    """Return R, the roundings of a term of the region that the node of this ball ends."""
    return 1 if ball.expansion is None else ball.expansion.count.total


def _swallowed_by(context: Context, ball: Ball, large: Ball, others: Array) -> Ball:
    """Return the ball of a sum with a finite radius where the argument `large` is finite and swallows the other one,
    whose terms have the sizes `others`.
    """
    arithmetic = context.arithmetic
    m = _nearest(large.value, arithmetic.format)
    moved = (_roundings(ball) + 1) * (large.radius + np.abs(large.value - m) + others) * SLACK
    held = (np.abs(m) <= arithmetic.largest) & (moved < SWALLOWED * _step(m, arithmetic.inner)) & np.isinf(ball.radius)
    radius = 2 * moved + 2 * REFERENCE.u * np.abs(m)  # from the sum to m, and from m to what is computed
    return replace(ball, radius=np.where(held, radius, ball.radius)) if held.any() else ball


def _step(m: Array, form: Format) -> Array:
    """Return the distance of numbers of the format at m; 0 where m is not finite."""
    exponent = np.maximum(np.frexp(np.where(np.isfinite(m), m, 0.0))[1] - 1, form.lowest)
    return np.where(np.isfinite(m), np.ldexp(1.0, exponent - form.digits + 1), 0.0)


def _nearest(m: Array, form: Format) -> Array:
    """Return the number of the format that is nearest to m, if m is finite; beyond its largest, as if it went on."""
    step = _step(m, form)
    return np.where(step > 0, np.rint(m / step) * step, m)


def _with_infinities(context: Context, ball: Ball, args: Sequence[Ball], sizes: Sequence[Array]) -> Ball:
    """Return the ball with radius 0 where a summand is an infinity, and the other one the same or far from overflow.

    `sizes` are those of the arguments. Nothing is said where infinities cannot be stored.
    """
    far = FAR_BELOW * context.arithmetic.largest
    known = np.isinf(ball.value) & context.arithmetic.keeps_infinities
    for a, size in zip(args, sizes, strict=True):
        known = known & (is_exact_infinity(a) | (size <= far))
    return replace(ball, radius=np.where(known, 0.0, ball.radius)) if known.any() else ball


def moved_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of a layout operator, by `linear_rule`, but radius 0 where it moves an infinity that every
    execution has.
    """
    ball = linear_rule(context, op, args, params)
    if context.centred or not any(is_exact_infinity(a).any() for a in args):
        return ball
    given = [a.value if i in op.index_args else a.radius for i, a in enumerate(args)]
    with np.errstate(all="ignore"):
        radius = context.evaluate(op, given, params)
    return replace(ball, radius=np.where(np.isinf(ball.value) & (radius == 0), 0.0, ball.radius))


def exp_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of exp, which is 0 in every execution where its argument is -inf in every execution."""
    ball, (x,) = function_rule(context, op, args, params), args
    shut = is_exact_infinity(x) & (x.value < 0)
    if not shut.any() or context.centred:
        return ball
    return replace(ball, value=np.where(shut, 0.0, ball.value), radius=np.where(shut, 0.0, ball.radius))
