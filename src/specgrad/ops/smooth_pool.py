"""Smooth maxima over windows: y = log(sum_t exp(beta*x_t)) / beta, and the two maps its derivatives are made of.

    smooth_max_pool   y
    smooth_pull       pull(x, y, v)[p] = sum_t exp(beta*(x_t - y_p)) * v_t        tangent of y for v = dx
    smooth_push       its adjoint in v: push(x, y, g)[i] = sum over windows p that read i of exp(beta*(x_i - y_p)) * g_p

For beta > 0 no tap exceeds y, so no exponent is positive: nothing overflows. The family is closed:
d pull = pull(x, y, dv) + beta*pull(x, y, v*dx) - beta*dy*pull(x, y, v), and likewise for push.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any, Literal

import numpy as np

from .. import scalar, window
from ..call_cache import cached_call
from ..errors import ParameterError, ShapeError
from ..op import Case, Op, Value, apply, is_literal, number_of, register, shape_of
from ..scalar import Array, Number
from ..window import Padding, PerAxis, Shape, Window, mapped, refuse_adaptive
from ..window.footprint import pooled
from . import sample_inputs
from .elementwise import add_tangents, mul

Padded = Literal["zero", "ignore"]


def _smooth_shape(x: Shape, *, window: Window, beta: Number, padded: Padded) -> Shape:
    """Return the output shape of smooth_max_pool; ParameterError if padding would count in adaptive cells. `beta`
    decides values alone.
    """
    if padded == "zero":
        refuse_adaptive("smooth_max_pool", window, 'have no padding that could count: padded must be "ignore"')
    return mapped("smooth_max_pool", x, window.size) + window.out


def _pivot(z: Array, win: Window, padded: Padded) -> Array:
    """Return the largest z = beta*x of every window, 0 among them if `padded` is "zero": the shift that keeps floats
    finite (any is right in exact numbers).
    """
    m = scalar.zeros(z.shape[: z.ndim - win.rank] + win.out, z)
    seen = np.zeros(win.out, dtype=bool) if padded == "ignore" else (win.inside() != math.prod(win.kernel))
    for tap in win.taps():
        v = tap.read_inputs(z)
        tap.write_outputs(m, np.where(tap.read_outputs(seen), scalar.maximum(tap.read_outputs(m), v), v))
        tap.write_outputs(seen, True)
    return m if z.dtype == object else np.where(np.isfinite(m), m, 0)


def _smooth_spec(x: Array, *, window: Window, beta: Number, padded: Padded) -> Array:
    """Return smooth_max_pool: log(sum over taps of exp(beta*x)) / beta, over any scalar type.

    A padded tap is x = 0 (`padded` "zero"), or left out ("ignore"; then 0 for a window without a tap inside).
    """
    b = scalar.literal(beta, x)
    z = x * b
    m = _pivot(z, window, padded)
    total = scalar.zeros(m.shape, x)
    if padded == "zero":  # every padded tap is x = 0 and counts
        outside = math.prod(window.kernel) - window.inside()
        weight = scalar.apply("exp", np.where(outside == 0, scalar.zeros((), x), -m))  # never inf * 0
        total = total + weight * (outside if x.dtype == object else outside.astype(x.dtype))
    for tap in window.taps():
        tap.add_to_outputs(total, scalar.apply("exp", tap.read_inputs(z) - tap.read_outputs(m)))
    empty = np.broadcast_to((window.inside() == 0) & (padded == "ignore"), m.shape)
    safe = np.where(empty, scalar.full((), 1, x), total)
    return np.where(empty, scalar.zeros((), x), (m + scalar.apply("log", safe)) / b)


def _pull_shape(x: Shape, y: Shape, v: Shape, *, window: Window, beta: Number) -> Shape:
    """Return the output shape of smooth_pull, that of y; raise ShapeError unless v has x's shape and y the output's.
    `beta` decides values alone.
    """
    lead = mapped("smooth_pull", x, window.size)
    if v != x or y != lead + window.out:
        raise ShapeError("smooth_pull", f"v must have x's shape and y the output's; got x {x}, y {y}, v {v}")
    return y


def _pull_spec(x: Array, y: Array, v: Array, *, window: Window, beta: Number) -> Array:
    """Return smooth_pull of x, y and v: the sum over taps of exp(beta*(x_t - y)) * v_t, over any scalar type."""
    b = scalar.literal(beta, x)
    total = scalar.zeros(y.shape, x)
    for tap in window.taps():
        share = scalar.apply("exp", (tap.read_inputs(x) - tap.read_outputs(y)) * b)
        tap.add_to_outputs(total, share * tap.read_inputs(v))
    return total


def _push_shape(x: Shape, y: Shape, g: Shape, *, window: Window, beta: Number) -> Shape:
    """Return the output shape of smooth_push, that of x; raise ShapeError unless g and y have the output's. `beta`
    decides values alone.
    """
    lead = mapped("smooth_push", x, window.size)
    if g != y or y != lead + window.out:
        raise ShapeError("smooth_push", f"g and y must have the output's shape; got x {x}, y {y}, g {g}")
    return x


def _push_spec(x: Array, y: Array, g: Array, *, window: Window, beta: Number) -> Array:
    """Return smooth_push: exp(beta*(x_t - y)) * g added at every cell x_t, over any scalar type."""
    b = scalar.literal(beta, x)
    gx = scalar.zeros(x.shape, x)
    for tap in window.taps():
        share = scalar.apply("exp", (tap.read_inputs(x) - tap.read_outputs(y)) * b)
        tap.add_to_inputs(gx, share * tap.read_outputs(g))
    return gx


def _pull(x: Value, y: Value, v: Value, params: Any) -> Value:
    """Return smooth_pull of x, y and v: sum_t exp(beta*(x_t - y_p)) * v_t, with parameters window and beta."""
    return apply(PULL, x, y, v, **params)


def _push(x: Value, y: Value, g: Value, params: Any) -> Value:
    """Return smooth_push, the adjoint of smooth_pull in v, of x, y and g, with parameters window and beta."""
    return apply(PUSH, x, y, g, **params)


def _pull_push_params(params: Any) -> Any:
    """Return the parameters of smooth_pull and smooth_push among those of smooth_max_pool."""
    return {"window": params["window"], "beta": params["beta"]}


def _pull_jvp(y_: Value, args: Any, dargs: Any, **params: Any) -> Value | None:
    """Return the tangent of smooth_pull's output (None: zero) from `dargs`, the tangents of its arguments `args`."""
    (x, y, v), (dx, dy, dv), beta = args, dargs, params["beta"]
    return add_tangents(
        None if dv is None else _pull(x, y, dv, params),
        None if dx is None else mul(_pull(x, y, mul(v, dx), params), beta),
        None if dy is None else mul(mul(dy, y_), -beta),
    )


def _pull_vjp(g: Value, y_: Value, args: Any, **params: Any) -> tuple[Value, ...]:
    """Return the cotangents of smooth_pull's arguments `args` from `g`, that of its output `y_`."""
    (x, y, v), beta = args, params["beta"]
    gv = _push(x, y, g, params)
    return mul(mul(v, gv), beta), mul(mul(g, y_), -beta), gv


def _push_jvp(gx: Value, args: Any, dargs: Any, **params: Any) -> Value | None:
    """Return the tangent of smooth_push's output (None: zero) from `dargs`, the tangents of its arguments `args`."""
    (x, y, g), (dx, dy, dg), beta = args, dargs, params["beta"]
    return add_tangents(
        None if dg is None else _push(x, y, dg, params),
        None if dx is None else mul(mul(dx, gx), beta),
        None if dy is None else mul(_push(x, y, mul(g, dy), params), -beta),
    )


def _push_vjp(h: Value, gx: Value, args: Any, **params: Any) -> tuple[Value, ...]:
    """Return the cotangents of smooth_push's arguments `args` from `h`, that of its output `gx`."""
    (x, y, g), beta = args, params["beta"]
    gg = _pull(x, y, h, params)
    return mul(mul(h, gx), beta), mul(mul(g, gg), -beta), gg


def _case(rng: Random) -> Case:
    """Return a random array, window and beta, drawn by `rng`, for the law tests."""
    win = sample_inputs.window(rng)
    x = sample_inputs.numbers(rng, sample_inputs.lead(rng) + win.size)
    return (x,), {"window": win, "beta": rng.choice((1, 2, -1, 0.5))}


def _smooth_case(rng: Random) -> Case:
    """Return random arguments and parameters of smooth_max_pool, drawn by `rng`, for the law tests."""
    args, params = _case(rng)
    return args, {**params, "padded": rng.choice(("zero", "ignore"))}


def _family_case(rng: Random, third: str) -> Case:
    """Return random arguments of smooth_pull (third="v") or smooth_push (third="g"), drawn by `rng`, for the law
    tests.
    """
    (x,), params = _case(rng)
    y = sample_inputs.numbers(rng, x.shape[: x.ndim - params["window"].rank] + params["window"].out)
    return (x, y, sample_inputs.like(rng, x if third == "v" else y)), params


SMOOTH_MAX_POOL = register(
    Op(
        name="smooth_max_pool",
        shape=_smooth_shape,
        spec=_smooth_spec,
        jvp=lambda y, args, dargs, **params: _pull(args[0], y, dargs[0], _pull_push_params(params)),
        vjp=lambda gy, y, args, **params: (_push(args[0], y, gy, _pull_push_params(params)),),
        cases=_smooth_case,
        monotone=(0,),
        largest=True,
        transcendental=True,
        receptive_field=lambda x, *, window, **_: window.reach(),
        footprint=pooled,
    )
)

PULL = register(
    Op(
        name="smooth_pull",
        shape=_pull_shape,
        spec=_pull_spec,
        jvp=_pull_jvp,
        vjp=_pull_vjp,
        cases=lambda rng: _family_case(rng, "v"),
        linear=((2,),),
        transcendental=True,
    )
)

PUSH = register(
    Op(
        name="smooth_push",
        shape=_push_shape,
        spec=_push_spec,
        jvp=_push_jvp,
        vjp=_push_vjp,
        cases=lambda rng: _family_case(rng, "g"),
        linear=((2,),),
        reads="transpose",
        transcendental=True,
    )
)


@cached_call
def smooth_max_pool(
    x: Value,
    kernel: PerAxis,
    *,
    beta: Number,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    padded: Padded = "zero",
    rank: int | None = None,
) -> Value:
    """A smooth maximum over windows: y[p] = log(sum_t exp(beta * x[s*p + t - lo])) / beta; beta < 0 gives a minimum.

    With padded="ignore" a window with no tap inside gives 0. For beta > 0 the result lies in [max, max +
    log(taps)/beta]. Derivatives: weights softmax(beta*x) over the window, for the tangent and for the cotangent. Rules:
    [W1] [W2] [P3]. No framework has it; unfold + logsumexp is the usual stand-in.

    Parameters
    ----------
    x : array_like, shape (..., *spatial)
        Axes before the spatial ones are mapped.
    kernel : int or tuple of int
        Cells of a window per spatial axis; the spatial axes are the last ones of x. An int needs `rank`.
    beta : number
        Sharpness: a finite number other than 0. The larger, the closer to the maximum; below 0, to the minimum.
    stride : int or tuple of int, optional
        Step from a window to the next, per axis. By default windows do not overlap: the step is the kernel.
    padding : int, tuple or str, default 0
        Cells added at the ends of every axis: an int, per axis an int or a (lo, hi) pair, or "valid", "same_upper",
        "same_lower" ([same]).
    padded : {"zero", "ignore"}, default "zero"
        What a padded tap is: "zero" counts it as x = 0, "ignore" leaves it out.
    rank : int, optional
        Number of spatial axes, where the kernel is one int for all of them.

    Returns
    -------
    array, shape (..., *windows)
        One cell per window.

    Raises
    ------
    ShapeError
        For sizes that are not positive ([W1]), and for a window that does not fit its padded input ([W2]).
    ParameterError
        Unless beta is a finite number other than 0, for another word in `padded`, and for an int kernel without `rank`
        ([P5]).
    ScalarError
        For exact numbers, which have no exp; floats and balls have.

    Examples
    --------
    >>> smooth_max_pool(np.array([0.0, 0.0, 5.0, 1.0]), (2,), beta=100.0).round(3)
    array([0.007, 5.   ])
    """
    beta = number_of(beta)
    if not is_literal(beta) or beta == 0 or not math.isfinite(beta):
        raise ParameterError("smooth_max_pool", f"beta must be a finite number other than 0; got {beta!r}", rule="P5")
    if padded not in ("zero", "ignore"):
        raise ParameterError("smooth_max_pool", f'padded must be "zero" or "ignore"; got {padded!r}', rule="P5")
    win = window.pooling("smooth_max_pool", shape_of(x), kernel, rank=rank, stride=stride, padding=padding)
    return apply(SMOOTH_MAX_POOL, x, window=win, beta=beta, padded=padded)
