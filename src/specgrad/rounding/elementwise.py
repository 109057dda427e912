"""Rounding rules of functions of one cell: the range over the ball, and the declared error at any point of it.

Every function here is monotone on either side of at most one turning point, so its range over [low, high] is spanned
by its values at both ends and at the turning point if that lies between; waves turn at 1 and -1, at every pi.

`context` (specgrad.rounding.context) is what rules read besides their arguments, and add to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..curve import Curve
from ..op import Op, Params
from ..scalar import Array
from .arithmetic import REFERENCE, growth
from .ball import SLACK, Ball, between, propagate_unknown
from .context import Context, at_least_1
from .fusion_region import RoundingCount
from .linear import (
    count_roundings,
    divided_by,
    make_ball,
    mark_unknown,
    reference_error,
    rounded,
    stored_error,
    underflow,
)
from .slack_constants import PHASE, REFERENCE_ULPS
from .stores import stores_after


def _declared_curve(op: Op) -> Curve:
    """Return the operator's declared curve; rules.py has checked that it has one."""
    assert op.curve is not None  # what rules.py looks at
    return op.curve


def image(context: Context, op: Op, x: Ball, params: Params) -> tuple[Array, Array, Array]:
    """Return (value, low, high): the function's value at the ball's middle, and bounds of it over the ball x."""
    turning = _declared_curve(op).turning(params)
    value = context.evaluate(op, [x.value], params)
    if x.is_exact:
        return value, value, value
    points = [x.low, x.high] if turning is None else [x.low, x.high, np.clip(turning, x.low, x.high)]
    values = [context.evaluate(op, [p], params) for p in points]
    low, high = np.minimum.reduce([value, *values]), np.maximum.reduce([value, *values])
    if (peak := _declared_curve(op).peak) is not None:
        low, high = np.where(reaches(x, peak + math.pi), -1.0, low), np.where(reaches(x, peak), 1.0, high)
    return context.spanned(value, low, high).value, low, high


def reaches(x: Ball, point: float) -> Array:
    """Return, elementwise, whether point + 2*pi*k lies in the ball for some integer k; true if our own rounding leaves
    it open.

    >>> reaches(Ball(np.array([0.0, 3.0]), np.array([1.0, 1.0])), 2 * math.pi).tolist()
    [True, False]
    """
    low, high = ((end - point) / (2 * math.pi) for end in (x.low, x.high))
    slack = PHASE * (1 + np.maximum(np.abs(low), np.abs(high)))
    return ~(np.floor(high + slack) < np.ceil(low - slack))  # NaN, of an unknown end, is no answer


def monotone_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of an exact, nondecreasing operator, from its values at both ends."""
    value = context.evaluate(op, [a.value for a in args], params)
    if all(a.is_exact for a in args):
        return make_ball(context, value, np.zeros(value.shape))
    low, high = (context.evaluate(op, ends, params) for ends in ([a.low for a in args], [a.high for a in args]))
    return propagate_unknown(mark_unknown(context, context.spanned(value, low, high)), args)


def abs_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of abs: the range of absolute values over the argument's ball."""
    return propagate_unknown(mark_unknown(context, context.spanned(*image(context, op, args[0], params))), args)


def clamp_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of clamp; its limits may have to be rounded to the format, and it is nondecreasing in them
    too.
    """
    (x,) = args
    value = context.evaluate(op, [x.value], params)
    limits = {k: None if v is None else context.stored(v) for k, v in params.items()}
    low = context.evaluate(op, [x.low], {k: b if b is None else float(b.low) for k, b in limits.items()})
    high = context.evaluate(op, [x.high], {k: b if b is None else float(b.high) for k, b in limits.items()})
    return propagate_unknown(mark_unknown(context, context.spanned(value, low, high)), args)


def fill_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of fill: params["value"] as it is stored in the format, in every cell."""
    number = context.stored(params["value"])
    return Ball(np.full(args[0].shape, float(number.value)), np.full(args[0].shape, float(number.radius)))


def _error_scale(kind: str, x: Ball, size: Array, params: Params) -> Array:
    """Return, per cell, the number that a function's declared error is a multiple of.

    kind     "y": the largest abs(y); "1"; "x": the largest abs(x) in the ball; "1+y": the sum of both
    x        ball of the argument
    size     largest abs(y) per cell
    params   parameters of the node: with beta, the 1 in "1" and "1+y" is 1/abs(beta), since softplus(x, beta) is
             softplus(beta*x) / beta
    """
    unit = 1 / abs(float(params.get("beta", 1)))
    return {"y": size, "1": np.full(size.shape, unit), "x": x.size, "1+y": unit + size}[kind]


def function_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of exp, log, tanh, gelu, ...: a declared error in units of u, and a store from a wider format."""
    (x,), arithmetic = args, context.arithmetic
    units, kind = arithmetic.ulp_bound(op.name, _declared_curve(op).ulps)
    value, low, high = image(context, op, x, params)
    size = np.maximum(np.abs(low), np.abs(high))
    scale = _error_scale(kind, x, size, params)
    beta = params.get("beta", 1)
    room = _declared_curve(op).room * float(beta)  # an intermediate result of this many x
    units_here = (units + _beta_units(context.stored(beta))) * scale
    units_here = units_here + (size if arithmetic.stores else 0.0)
    units_here = np.where((room * x.size <= arithmetic.largest) & context.divides(beta), units_here, np.inf)
    return propagate_unknown(_ball_with_declared_error(context, value, low, high, units_here, scale), args)


def _beta_units(beta: Ball) -> float:
    """Return the units of u that softplus(beta*x)/beta costs: beta is stored, used twice, and both products are
    rounded.

    With z = beta*x, two roundings of z cost 2u*abs(z)*sigmoid(z)/beta <= 2u*(y + 0.28/beta); two of the quotient 2u*y.
    """
    return 0.0 if beta.is_exact and math.frexp(float(beta.value))[0] == 0.5 else 4.0  # a power of two only shifts


def _ball_with_declared_error(
    context: Context, value: Array, low: Array, high: Array, units: Array, scale: Array
) -> Ball:
    """Return the range low..high as a ball around `value`, widened by the errors of the runtime and of our float64
    evaluation.

    `units` is the runtime's error in its u; `scale` is what ours is relative to.
    """
    own = REFERENCE_ULPS * REFERENCE.u * scale + REFERENCE.smallest
    ball = between(value, low, high)
    form = context.arithmetic.format
    error = units * form.u * SLACK + form.tiny  # no library promises more than that below the normal numbers
    error = np.where(np.maximum(np.abs(low), np.abs(high)) + error <= form.largest, error, np.inf)
    return make_ball(context, value, (ball.radius + error + 2 * own) * SLACK)


def leaky_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of leaky_relu: one product, with a slope that may have to be rounded, and its store.

    A slope that the format cannot hold proves nothing of any cell: runtimes multiply it by 0, as x or as min(x, 0).
    """
    slope, (x,), arithmetic = context.stored(params["slope"]), args, context.arithmetic
    value, low, high = image(context, op, x, params)
    bent = np.where(x.low < 0, x.size * float(slope.radius), 0.0)
    size = np.maximum(np.abs(low), np.abs(high)) + bent
    stores = int(arithmetic.stores)
    error = stored_error(arithmetic, size, 1, stores) + underflow(arithmetic, 1, 1) + reference_error(size, 2)
    error = np.where(size + error <= arithmetic.largest, error + bent, np.inf)
    multiplied = (x.low < 0) & (not slope.is_exact or float(slope.value) not in (0.0, 1.0, -1.0))
    radius = (between(value, low, high).radius + np.where(multiplied, error, 0.0)) * SLACK
    radius = radius if np.isfinite(slope.size) else np.full(value.shape, np.inf)
    return propagate_unknown(make_ball(context, value, radius), args)


def power_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of x**e: a chain of products for integer and half exponents, else the declared error of `power`.

    Whether a rounded exponent is odd, or 0, is unknown, so that x must be positive then.
    """
    (x,), e, exponent = args, float(params["exponent"]), context.stored(params["exponent"])
    whole = exponent.is_exact and e == int(e)
    value, low, high = image(context, op, x, params)
    size = np.maximum(np.abs(low), np.abs(high))
    bound, root = (context.arithmetic.ulp_bound(name)[0] for name in ("power", "sqrt"))
    units: Array = np.full(size.shape, max(bound, _power_roundings(e, root)))
    if not exponent.is_exact:  # x**(e + d) = x**e * exp(d*log(x))
        steep = np.maximum(np.abs(np.log(x.low)), np.abs(np.log(x.high)))
        off = float(exponent.radius) / max(context.arithmetic.u, REFERENCE.u)
        units = units + off * steep * (1 + context.arithmetic.u)  # u <= (1 + u)*log(1 + u)
    error = growth(units, context.arithmetic.u) / context.arithmetic.u if context.arithmetic.u else units
    ball = _ball_with_declared_error(context, value, low, high, error * size, size * (1 + units))
    domain = (x.low > 0) | whole if e >= 0 else (x.least > 0)
    safe = domain & ((e >= 0) | (size <= context.arithmetic.format.largest_divisor))  # 1 / x**n with a normal x**n
    radius = np.where(safe | ((exponent.low > 0) & (x.value == 0) & (x.radius == 0)), ball.radius, np.inf)
    return propagate_unknown(make_ball(context, ball.value, radius), args)


def _power_roundings(e: float, root: float) -> float:
    """Return how many roundings x**e takes by products and one quotient; half exponents take a root first, which is off
    by `root` units.
    """
    return abs(e) + 2 if e == int(e) else 2 * abs(e) * (1 + root) + 2


def div_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of a / b, or a * (1 / b): two roundings. With b given it belongs to the region of a.

    b is a number that is computed once for the quotient, so what it is off by is its radius, and nothing besides: its
    roundings are not counted a second time. 0 / b is 0.
    """
    group = context.call.linear_group(op, 2)
    b, form = args[1], context.arithmetic.format
    part = context.expansion_of(args[0], 0, context.arithmetic.fused and group is not None)
    value = context.evaluate(op, [args[0].value, b.value], params)
    size = part.size / b.least * SLACK
    carried = np.where(part.carried == 0, 0.0, part.carried / b.least)
    carried = carried + np.where(b.radius == 0, 0.0, part.least_size / np.abs(b.value) * b.radius / b.least)
    carried = carried + np.where(b.size > form.largest_divisor, part.size * form.tiny, 0.0)  # a subnormal reciprocal
    finite = b.least * form.largest >= 1  # 0 times a reciprocal that overflows is NaN
    known_size = np.where(np.isfinite(b.size), b.size, 1.0)  # other cells are unknown
    divisors = part.divisors * at_least_1(known_size, form.largest)  # x/b/c may be x/(b*c), and nothing is x*b
    most = np.maximum(part.most * at_least_1(1 / b.least, form.largest), divisors)
    folded = (part.count.total > 0) & (b.least < 1) & (most * form.tiny > 1)  # x/b/c may be x/(b*c), and b*c subnormal
    known = ((b.least >= form.tiny) & ~folded) | ((part.size == 0) & finite)
    met = count_roundings(context, op, [part.count, RoundingCount()], group, 2, context.call.cells(value), quotients=1)
    alone = None if part.count.total else np.maximum(part.size, size)
    carried = np.broadcast_to(np.where(known, carried * SLACK, np.inf), value.shape)
    stores = stores_after(context, op, args[:1], [part], met, 2, params)
    ball = rounded(context, value, carried, size, met, most, None, alone, stores)
    nothing = (part.size == 0) & finite & np.isfinite(ball.radius)
    ball = replace(ball, radius=np.where(nothing, 0.0, ball.radius)) if nothing.any() else ball
    return propagate_unknown(divided_by(ball, divisors), args)
