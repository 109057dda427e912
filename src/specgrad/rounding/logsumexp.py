"""Rounding rules of smooth maxima (log-sum-exp pooling), for every algorithm that shifts its exponents or merges pairs.

With b = abs(beta), k taps and z = b*x (mirrored for beta < 0), y = log(sum exp(z))/b is computed as m + log(S)/b with
S = sum exp(z - m), where the shift m lies anywhere from the window's maximum to the plane's, or tap by tap as
max + log(1 + exp(-difference)). With t = z - m + depth and weights p = exp(t)/sum, sum p*abs(t) + log(sum) <= log k, so

    b*abs(error)/u <= 2Z + 2(D + L) + d*(e_exp + 1) + (k - 1) + (e_log + 2)(D + L) + 4b*abs(y)      shifted
                      + (k - 1)(Z + L + 1 + e_exp + e_log)                                           merged

L = log k, Z = the largest abs(z) of the window, d = the number of axes, D = how far the window lies under its plane.
That is the first order; docs/reference/rounding.md shows what covers all of them.

`context` (specgrad.rounding.context) is what rules read besides their arguments, and add to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..op import Op, Params
from ..ops.max_pool import MAX_POOL
from ..scalar import Array
from ..window import Window
from .arithmetic import REFERENCE, Arithmetic
from .ball import SLACK, Ball, unknown
from .context import Context
from .linear import make_ball
from .slack_constants import ALL_ORDERS, DEEPEST, REFERENCE_ULPS, SPREAD


def _log_unit(arithmetic: Arithmetic) -> float:
    """Return v with abs(log(1 + d)) <= e*v for every error abs(d) <= e*u that occurs here, our own
    float64's included."""
    most = max(REFERENCE_ULPS, arithmetic.ulp_bound("exp")[0], arithmetic.ulp_bound("log")[0]) * arithmetic.u
    return (arithmetic.u + REFERENCE_ULPS * REFERENCE.u) / (1 - most) if most < 1 else math.inf


def _max_depth(arithmetic: Arithmetic) -> float:
    """Return how far a plane's shift may lie above a window before exp(-depth) loses its digits: 1e-28 for float32."""
    return DEEPEST if arithmetic.inner.digits >= 24 else 0.0


def _negated_if(x: Ball, beta: float) -> Ball:
    """Return the ball x, or that of -x for beta < 0."""
    return x if beta > 0 else Ball(-x.value, x.radius)


def _plane_top(x: Ball, window: Window, floor: float) -> Array:
    """Return the largest value of every plane and `floor`, broadcastable against its windows."""
    axes = tuple(range(len(x.shape) - window.rank, len(x.shape)))
    return np.asarray(np.max(x.high, axis=axes, keepdims=True, initial=floor))


def _plane_size(x: Ball, window: Window) -> Array:
    """Return the largest absolute value of every plane."""
    return _plane_top(Ball(x.size, np.zeros(x.shape)), window, 0.0)


def _window_top(context: Context, x: Array, window: Window) -> Array:
    """Return the maximum of x over every window."""
    return context.evaluate(MAX_POOL, [x], {"window": window})


def smooth_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of smooth_max_pool: incoming radii, and the error of every algorithm that shifts its exponents by
    a maximum or merges taps in pairs.
    """
    (x,), window, beta = args, params["window"], float(params["beta"])
    b, mirrored, arithmetic = abs(beta), _negated_if(args[0], beta), context.arithmetic
    value = context.evaluate(op, [x.value], params)
    carried = np.zeros(value.shape) if x.is_exact else _window_top(context, x.radius, window)  # 1-Lipschitz
    if context.centred:
        ball = context.spanned(value, *(context.evaluate(op, [end], params) for end in (x.low, x.high)))
        value, carried = ball.value, ball.radius
    z = b * _window_top(context, x.size, window)
    low = _window_top(context, mirrored.low, window)
    zero = params["padded"] == "zero" and window.pads_anything
    top = _plane_top(mirrored, window, 0.0 if zero else -np.inf)
    holds_zero = zero & (window.inside() < window.taps_count)  # windows inside the plane have no padded tap
    depth = np.clip(b * (top - np.where(holds_zero, np.maximum(low, 0.0), low)), 0.0, _max_depth(arithmetic))
    units = _first_order_units(arithmetic, window, z, depth) + 4 * b * (np.abs(value) + carried)
    lost = window.taps_count * arithmetic.inner.tiny * np.exp(depth)
    error = (_error_all_orders(arithmetic, units, z, depth) + lost) / b + arithmetic.tiny
    fits = (z <= arithmetic.largest) & (np.abs(value) + carried + error <= arithmetic.largest)
    size = _plane_size(x, window)  # a difference of two cells, or of a cell and a result, that overflows is no shift
    fits = fits & (size + np.maximum(size, np.abs(value) + carried) <= arithmetic.largest)
    fits = (
        fits & (window.taps_count <= arithmetic.largest) & ~_unknown_planes(x, window) & context.divides(params["beta"])
    )
    return make_ball(context, value, np.where(fits, (carried + error) * SLACK, np.inf))


def _unknown_planes(x: Ball, window: Window) -> Array:
    """Return which planes have an unknown cell: the shift may be the plane's maximum, and that may be NaN."""
    axes = tuple(range(len(x.shape) - window.rank, len(x.shape)))
    return np.asarray(np.any(unknown(x), axis=axes, keepdims=True))


def _first_order_units(arithmetic: Arithmetic, window: Window, z: Array, depth: Array) -> Array:
    """Return a first-order bound of b*abs(error)/u of a smooth maximum, b = abs(beta), without its term 4*b*abs(y).

    z is b times the largest size in a window, `depth` how far its taps lie below the shift.
    """
    (e_exp, _), (e_log, _) = arithmetic.ulp_bound("exp"), arithmetic.ulp_bound("log")
    taps = max(1, window.taps_count)
    deep = depth + math.log(taps)
    shifted = 2 * z + 2 * deep + window.rank * (e_exp + 1) + (taps - 1) + (e_log + 2) * deep
    return np.asarray(shifted + (taps - 1) * (z + math.log(taps) + 1 + e_exp + e_log))


def _error_all_orders(arithmetic: Arithmetic, units: Array, z: Array, depth: Array) -> Array:
    """Return a bound of b*abs(error) of a smooth maximum, higher-order terms included: by the taps' weights, or by the
    worst tap, whichever is smaller.

    `units` is the first order, z and `depth` are as in `_first_order_units`.
    """
    unit, e_log = _log_unit(arithmetic), arithmetic.ulp_bound("log")[0]
    weighted = unit * (units + e_log + 2)
    worst = unit * (units + 4 * z + 2 * depth) * (1 + (e_log + 6) * unit)
    return np.asarray(np.fmin(weighted * np.exp(ALL_ORDERS * weighted), worst))


def weighted_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of smooth_pull and smooth_push: sums of exp(t)*v with t = beta*(x - y).

    Incoming radii move exp(t)*v at most to exp(t + b*(rx + ry))*(abs(v) + rv). Each term costs 2*abs(t) for its
    exponent, 4*depth more if exp(t) is the product of two exponentials, and e_exp and a rounding per axis.
    """
    x, y, v = args
    beta = float(params["beta"])
    x, y = _negated_if(x, beta), _negated_if(y, beta)
    value = context.evaluate(op, [a.value for a in args], params)
    pull = op.name == "smooth_pull"
    plain, widest, units, lost = _exponential_sums(context, x, y, v, params["window"], abs(beta), pull)
    error = _log_unit(context.arithmetic) * units + lost
    apart = sum(_plane_size(a, params["window"]) for a in (x, y))  # x - y is computed before beta*(x - y)
    error = np.where(
        (widest + error <= context.arithmetic.largest) & (apart <= context.arithmetic.largest), error, np.inf
    )
    error = np.where(_unknown_planes(x, params["window"]) | (not context.normal(params["beta"])), np.inf, error)
    carried = np.zeros(value.shape) if all(a.is_exact for a in args) else widest - plain + SPREAD * REFERENCE.u * units
    return make_ball(context, value, (np.maximum(carried, 0.0) + error) * SLACK)


def _exponential_sums(context: Context, x: Ball, y: Ball, v: Ball, window: Window, b: float, pull: bool) -> list[Array]:
    """Return four sums over taps for the error of sum exp(t)*v, t = b*(x - y), a derivative of log-sum-exp pooling.

    They are: exp(t)*abs(v) at the middles; its largest value over the balls; the largest value of every term times the
    unit roundoffs that it may be off; what underflow may lose.

    context   the arithmetic
    x, y      balls of the pooling's input and output, both negated by the caller if beta < 0
    v         ball of what is weighted: of x's shape if `pull`, else of y's
    window    of the pooling
    b         abs(beta)
    pull      sums are per window (forward mode); else per cell of x (reverse mode)
    """
    e_exp, unit = context.arithmetic.ulp_bound("exp")[0], _log_unit(context.arithmetic)
    top = np.maximum(_plane_top(x, window, -np.inf), -np.inf)
    deep = np.minimum(np.abs(b * (top - y.low)) + b * y.radius, _max_depth(context.arithmetic))
    above = np.maximum(deep, b * (_window_top(context, x.high, window) - y.low))
    terms = window.taps_count if pull else window.covers
    constant = terms + (window.rank + 1) * (e_exp + 1) + 3
    totals = [np.zeros(y.shape if pull else x.shape) for _ in range(4)]
    for tap in window.taps():
        t = b * (tap.read_inputs(x.value) - tap.read_outputs(y.value))
        far = b * (tap.read_inputs(x.high) - tap.read_outputs(y.low))
        read = tap.read_inputs if pull else tap.read_outputs
        size = read(v.size)
        wide = np.exp(far) * size
        count = (
            constant
            + 2 * np.maximum(np.abs(t), np.abs(far))
            + 2 * b * tap.read_inputs(x.radius)
            + 4 * tap.read_outputs(deep)
        )
        grown = np.exp(far + unit * count)  # exp(s) - 1 <= s*exp(s) for the sum s of all relative errors
        units = np.where(grown <= context.arithmetic.largest, grown * size * count, np.inf)
        lost = context.arithmetic.inner.tiny * (1 + np.exp(np.maximum(tap.read_outputs(above), 0.0))) * (size + 1)
        for total, part in zip(totals, (np.exp(t) * np.abs(read(v.value)), wide, units, lost), strict=True):
            (tap.add_to_outputs if pull else tap.add_to_inputs)(total, part)
    return totals
