"""Activations: elementwise operators with a name of their own, so that engines and bounds see one node each.

At kinks they follow PyTorch ([K1]); every docstring says what that means.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from .. import scalar
from ..call_cache import cached_call
from ..curve import Curve, always, at_most
from ..errors import ParameterError, ShapeError
from ..facts import DeclaredErrors, Names, SheetText
from ..op import Case, Value, apply, composite, number_of
from ..scalar import Array, Number
from .elementwise import add, div, greater, greater_equal, mul, neg, number_cases, power, select, sub, unary


def _with_params(**makers: Callable[[Random], Any]) -> Callable[[Random], Case]:
    """Return a drawer of cases for the law tests: one random array, and each parameter drawn by its function in
    `makers`.
    """

    def case(rng: Random) -> Case:
        return number_cases(1)(rng)[0], {name: make(rng) for name, make in makers.items()}

    return case


# --- piecewise linear -------------------------------------------------------------------------------------------


def _clamped(x: Array, low: Number | None, high: Number | None) -> Array:
    """Return min(max(x, low), high); None means no limit."""
    y = x if low is None else scalar.maximum(x, scalar.full(x.shape, low, x))
    return y if high is None else -scalar.maximum(-y, scalar.full(x.shape, -high, x))


RELU = unary(
    "relu",
    lambda x: _clamped(x, 0, None),
    lambda x, y, t: select(greater_equal(0, x), 0, t),
    monotone=(0,),
    exact=True,
    curve=Curve(steepest=at_most(1.0), kinks=always((0,))),
    names=Names(torch="F.relu", jax="jax.nn.relu", aten="relu.default", onnx="Relu", opsets=(6, 13, 14)),
)


@cached_call
def relu(x: Value) -> Value:
    """max(x, 0); relu'(0) = 0 ([K1]), and a NaN passes its cotangent, as in PyTorch.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Examples
    --------
    >>> relu(np.array([-1.0, 0.0, 2.0]))
    array([0., 0., 2.])
    """
    return apply(RELU, x)


def _leaky_spec(x: Array, *, slope: Number) -> Array:
    """Return leaky_relu: x where x > 0, else slope*x, over any scalar type."""
    above = scalar.compare("leaky_relu", operator.gt, x, scalar.zeros(x.shape, x))
    return np.where(above, x, x * scalar.literal(slope, x))


LEAKY_RELU = unary(
    "leaky_relu",
    _leaky_spec,
    lambda x, y, t, *, slope: select(greater(x, 0), t, mul(t, slope)),
    shape=lambda x, *, slope: x,
    cases=_with_params(slope=lambda rng: rng.choice((-1, 0, 2, 0.25))),
    roundings=lambda *_, **__: 1,
    curve=Curve(
        steepest=lambda xp, low, high, p: max(1.0, abs(float(p["slope"]))), kinks=always((0,)), turning=always(0.0)
    ),
)


@cached_call
def leaky_relu(x: Value, slope: Number = 0.01) -> Value:
    """x where x > 0, else slope*x; the derivative at 0 is `slope` ([K1]).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    slope : number, default 0.01
        Factor of the cells that are not above 0.

    Returns
    -------
    array
        Of the shape of x.

    Examples
    --------
    >>> leaky_relu(np.array([-2.0, 3.0]), 0.5)
    array([-1.,  3.])
    """
    return apply(LEAKY_RELU, x, slope=number_of(slope))


RELU6 = unary(
    "relu6",
    lambda x: _clamped(x, 0, 6),
    lambda x, y, t: select(greater_equal(0, x), 0, select(greater_equal(x, 6), 0, t)),
    monotone=(0,),
    exact=True,
    curve=Curve(steepest=at_most(1.0), kinks=always((0, 6))),
    names=Names(torch="F.relu6", jax="jax.nn.relu6", aten="relu6.default"),
)


@cached_call
def relu6(x: Value) -> Value:
    """min(max(x, 0), 6); the derivative is 0 at both kinks ([K1]).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Examples
    --------
    >>> relu6(np.array([-1.0, 3.0, 9.0]))
    array([0., 3., 6.])
    """
    return apply(RELU6, x)


def _clamp_slope(x: Value, y: Value, t: Value, *, low: Number | None, high: Number | None) -> Value:
    """Return the slope of clamp at x times t: t between low and high, limits included, else 0."""
    inside = t if low is None else select(greater(low, x), 0, t)
    return inside if high is None else select(greater(x, high), 0, inside)


CLAMP = unary(
    "clamp",
    lambda x, *, low, high: _clamped(x, low, high),
    _clamp_slope,
    shape=lambda x, *, low, high: x,
    cases=_with_params(low=lambda rng: rng.choice((None, -1, 0)), high=lambda rng: rng.choice((None, 1, 2))),
    monotone=(0,),
    exact=True,
    curve=Curve(steepest=at_most(1.0), kinks=lambda p: [k for k in (p["low"], p["high"]) if k is not None]),
)


@cached_call
def clamp(x: Value, low: Number | None = None, high: Number | None = None) -> Value:
    """min(max(x, low), high); the derivative passes at both ends ([K1]).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    low : number, optional
        The least result; no limit if not given.
    high : number, optional
        The largest result; no limit if not given.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ShapeError
        If low lies above high.

    Examples
    --------
    >>> clamp(np.array([-2.0, 0.5, 2.0]), -1, 1)
    array([-1. ,  0.5,  1. ])
    """
    if low is not None and high is not None and low > high:
        raise ShapeError("clamp", f"low={low} lies above high={high}")
    return apply(CLAMP, x, low=number_of(low), high=number_of(high))


def _hardswish_slope(x: Value, y: Value, t: Value) -> Value:
    """Return the slope of hardswish at x, times t: 0 up to -3, t from 3 on, else t*(2x + 3)/6."""
    middle = mul(t, div(add(mul(x, 2), 3), 6))
    return select(greater_equal(-3, x), 0, select(greater_equal(x, 3), t, middle))


HARDSWISH = unary(
    "hardswish",
    lambda x: x * _clamped(np.asarray(x + scalar.literal(3, x)), 0, 6) / scalar.literal(6, x),
    _hardswish_slope,
    cases=lambda rng: ((number_cases(1)(rng)[0][0] * 2,), {}),
    curve=Curve(
        steepest=at_most(1.51), curvature=at_most(0.334), kinks=always((-3, 3)), turning=always(-1.5), room=6.0
    ),
    names=Names(
        torch="F.hardswish", jax="jax.nn.hard_swish", aten="hardswish.default", onnx="HardSwish", opsets=(14, 22)
    ),
    errors=DeclaredErrors(
        "x",
        {"torch": 3.0, "jax": 3.5, "numpy": 3.0, "onnxruntime": 2.0, "openvino-f32": 2.0, "onnx-reference": 2.0}
        | {"iree": 2.5, "tract": 3.0, "mnn": 2.5, "ncnn": 2.0},
    ),
    sheet=SheetText("X*min(max(X/6 + 1/2, 0), 1)", turning="-1.5"),
)


@cached_call
def hardswish(x: Value) -> Value:
    """x * relu6(x + 3) / 6; the derivative is 0 at -3 and 1 at 3 ([K1]).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Examples
    --------
    >>> hardswish(np.array([-3.0, 0.0, 3.0]))
    array([-0.,  0.,  3.])
    """
    return apply(HARDSWISH, x)


# --- smooth -----------------------------------------------------------------------------------------------------

TANH = unary(
    "tanh",
    lambda x: scalar.apply("tanh", x),
    lambda x, y, t: mul(t, sub(1, mul(y, y))),
    monotone=(0,),
    transcendental=True,
    curve=Curve(steepest=at_most(1.0), curvature=at_most(0.77)),
    names=Names(torch="torch.tanh", jax="jnp.tanh", numpy="tanh", aten="tanh.default", onnx="Tanh", opsets=(6, 13)),
    errors=DeclaredErrors(
        "y",
        {"torch": 1.5, "jax": 8.0, "numpy": 2.5, "onnxruntime": 6.0, "openvino-f32": 1.5, "onnx-reference": 2.5}
        | {"iree": 5.5, "tract": 11.0},
        wrong={
            "tract": "0 below 2.5e-36 in size",
            "mnn": "every digit is lost near 0: tanh(1e-9) = 0",
            "ncnn": "every digit is lost near 0: tanh(1e-9) = 0",
        },
    ),
    sheet=SheetText(
        "tanh(X)",
        conditions=(
            ("near 0", "the scale is abs(Y): an algorithm that loses relative accuracy near 0 does not meet it"),
        ),
    ),
)


@cached_call
def tanh(x: Value) -> Value:
    """The hyperbolic tangent of every cell.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ScalarError
        For exact numbers, which have no tanh; floats and balls have.

    Examples
    --------
    >>> tanh(np.array([0.0, 1.0]))
    array([0.        , 0.76159416])
    """
    return apply(TANH, x)


def _sigmoid_spec(x: Array) -> Array:
    """Return exp(-m) / (exp(-m) + exp(-x-m)) with m = max(0, -x): no exponent is positive, nothing overflows."""
    m = scalar.maximum(scalar.zeros(x.shape, x), -x)
    a, b = scalar.apply("exp", -m), scalar.apply("exp", -x - m)
    return a / (a + b) if x.dtype == object else np.where(np.isposinf(m), scalar.zeros((), x), a / (a + b))


SIGMOID = unary(
    "sigmoid",
    _sigmoid_spec,
    lambda x, y, t: mul(t, mul(y, sub(1, y))),
    monotone=(0,),
    transcendental=True,
    curve=Curve(steepest=at_most(0.2501), curvature=at_most(0.0963)),
    names=Names(torch="torch.sigmoid", jax="jax.nn.sigmoid", aten="sigmoid.default", onnx="Sigmoid", opsets=(6, 13)),
    errors=DeclaredErrors(
        "1",
        {"torch": 2.0, "jax": 2.0, "numpy": 2.0, "onnxruntime": 3.5, "openvino-f32": 2.0, "onnx-reference": 2.0}
        | {"iree": 2.0, "tract": 9.0, "mnn": 3.0, "ncnn": 3.0},
    ),
    sheet=SheetText("1/(1 + exp(-X))"),
)


@cached_call
def sigmoid(x: Value) -> Value:
    """The logistic function 1 / (1 + exp(-x)), stable for every x.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ScalarError
        For exact numbers, which have no exp; floats and balls have.

    Examples
    --------
    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    return apply(SIGMOID, x)


def _silu_slope(x: Value, y: Value, t: Value) -> Value:
    """Return the slope of silu at x, times t: t * s*(1 + x*(1 - s)), s = sigmoid(x)."""
    s = sigmoid(x)
    return mul(t, mul(s, add(mul(x, sub(1, s)), 1)))


SILU = unary(
    "silu",
    lambda x: x * _sigmoid_spec(x),
    _silu_slope,
    transcendental=True,
    curve=Curve(steepest=at_most(1.1), curvature=at_most(0.5001), turning=always(-1.2784645427610738)),
    names=Names(torch="F.silu", jax="jax.nn.silu", aten="silu.default"),
    errors=DeclaredErrors("x", {"torch": 2.5, "jax": 3.0, "numpy": 3.0}),
)


@cached_call
def silu(x: Value) -> Value:
    """x * sigmoid(x), cell by cell.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ScalarError
        For exact numbers, which have no exp; floats and balls have.

    Examples
    --------
    >>> silu(np.array([0.0, 1.0]))
    array([0.        , 0.73105858])
    """
    return apply(SILU, x)


def _softplus_spec(x: Array, *, beta: Number) -> Array:
    """Return log(1 + exp(z)) / beta as (m + log(exp(-m) + exp(z-m))) / beta, z = beta*x, m = max(z, 0)."""
    b = scalar.literal(beta, x)
    z = x * b
    m = scalar.maximum(z, scalar.zeros(x.shape, x))
    y: Array = (m + scalar.apply("log", scalar.apply("exp", -m) + scalar.apply("exp", z - m))) / b
    return y if x.dtype == object else np.where(np.isposinf(m), m / b, y)


SOFTPLUS = unary(
    "softplus",
    _softplus_spec,
    lambda x, y, t, *, beta: mul(t, sigmoid(mul(x, beta))),
    shape=lambda x, *, beta: x,
    cases=_with_params(beta=lambda rng: rng.choice((1, 2, 0.5))),
    monotone=(0,),
    transcendental=True,
    curve=Curve(steepest=at_most(1.0), curvature=lambda xp, low, high, p: 0.2501 * float(p["beta"]), room=1.0),
    names=Names(torch="F.softplus", jax="jax.nn.softplus", onnx="Softplus"),
    errors=DeclaredErrors(
        "1+y",
        {"torch": 1.5, "jax": 2.0, "numpy": 2.5, "onnxruntime": 1.5, "openvino-f32": 7.5, "onnx-reference": 1.0}
        | {"iree": 1.5, "tract": 1.5, "ncnn": 2.5},
        wrong={
            "openvino-f32": "128 units of 1 below -6: softplus(-18) < 0",
            "tract": "infinite above 88.72",
            "mnn": "87 above 87",
            "ncnn": "infinite above 88.72",
        },
    ),
    sheet=SheetText("log(1 + exp(X))"),
)


@cached_call
def softplus(x: Value, beta: Number = 1) -> Value:
    """log(1 + exp(beta*x)) / beta, beta > 0. PyTorch switches to x above beta*x = 20; we never do.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    beta : number, default 1
        Sharpness, above 0: the larger, the closer to relu.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ParameterError
        Unless beta > 0 ([P5]).
    ScalarError
        For exact numbers, which have no exp; floats and balls have.

    Examples
    --------
    >>> softplus(np.array([-1000.0, 0.0, 1000.0]))
    array([0.00000000e+00, 6.93147181e-01, 1.00000000e+03])
    """
    if not beta > 0:
        raise ParameterError("softplus", f"beta must be positive; got beta={beta}", rule="P5")
    return apply(SOFTPLUS, x, beta=number_of(beta))


def _pi(x: Array) -> Any:
    """Return pi in the scalar type of x.

    ScalarError for rationals, which have none.
    """
    pi: Any = scalar.pi_like(x.flat[0]) if x.dtype == object and x.size else math.pi
    return pi


def _pdf_spec(x: Array) -> Array:
    """Return the density of the standard normal distribution, exp(-x*x/2) / sqrt(2*pi), over any scalar type."""
    two = scalar.literal(2, x)
    root = scalar.apply("sqrt", np.asarray(_pi(x) * two, dtype=x.dtype)) if x.size else x
    return np.asarray(scalar.apply("exp", -(x * x) / two) / root)


def _cdf_spec(x: Array) -> Array:
    """Return (1 + erf(x / sqrt(2))) / 2, floats by erfc, which is accurate in the lower tail."""
    two = scalar.literal(2, x)
    if x.dtype == object:
        return np.asarray((scalar.apply("erf", x / scalar.call("sqrt", two)) + 1) / two) if x.size else x
    erfc = np.frompyfunc(lambda v: math.erfc(-v / math.sqrt(2)) / 2, 1, 1)  # accurate in the lower tail
    return np.asarray(erfc(x.astype(float)), dtype=x.dtype)


def _cdf_slope(x: Value, y: Value, t: Value) -> Value:
    """Return the slope of normal_cdf at x, times t: t * normal_pdf(x)."""
    return mul(t, normal_pdf(x))


def _gelu_slope(x: Value, y: Value, t: Value) -> Value:
    """Return the slope of gelu at x, times t: t * (normal_cdf(x) + x*normal_pdf(x))."""
    return mul(t, add(normal_cdf(x), mul(x, normal_pdf(x))))


NORMAL_PDF = unary(
    "normal_pdf",
    _pdf_spec,
    lambda x, y, t: neg(mul(t, mul(x, y))),
    transcendental=True,
    curve=Curve(steepest=at_most(0.243), curvature=at_most(0.399), turning=always(0.0)),
    errors=DeclaredErrors("1", {"torch": 1.5, "jax": 1.5, "numpy": 1.5}),
)
NORMAL_CDF = unary(
    "normal_cdf",
    _cdf_spec,
    _cdf_slope,
    monotone=(0,),
    transcendental=True,
    curve=Curve(steepest=at_most(0.399), curvature=at_most(0.242)),
    names=Names(torch="torch.special.ndtr"),
    errors=DeclaredErrors(
        "1",
        {"torch": 1.5, "jax": 2.5, "numpy": 1.5, "onnxruntime": 1.0, "openvino-f32": 5.0, "onnx-reference": 0.5}
        | {"iree": 2.5, "tract": 17.0, "mnn": 0.5, "ncnn": 1.0},
    ),
)
GELU = unary(
    "gelu",
    lambda x: x * _cdf_spec(x),
    _gelu_slope,
    transcendental=True,
    curve=Curve(steepest=at_most(1.13), curvature=at_most(0.798), turning=always(-0.7517915246935645), room=2.0),
    names=Names(torch="F.gelu", onnx="Gelu"),
    errors=DeclaredErrors(
        "x",
        {"torch": 7.0, "jax": 3.0, "numpy": 2.0, "onnxruntime": 2.0, "openvino-f32": 6.5, "onnx-reference": 2.0}
        | {"iree": 3.5, "tract": 18.0, "ncnn": 2.0},
        wrong={"mnn": "near the tanh formula where erf is asked for: up to 3,007 units of x"},
    ),
    sheet=SheetText("X*Phi(X), approximate=none", turning="-0.7517915246935645"),
)  # room: x * (1 + erf(...)) may be halved last


@cached_call
def normal_pdf(x: Value) -> Value:
    """The standard normal density exp(-x*x/2) / sqrt(2*pi): the slope of `normal_cdf`.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ScalarError
        For exact numbers: the result is not rational; floats and balls have it.

    Examples
    --------
    >>> normal_pdf(np.array([0.0]))
    array([0.39894228])
    """
    return apply(NORMAL_PDF, x)


@cached_call
def normal_cdf(x: Value) -> Value:
    """The standard normal distribution function, (1 + erf(x / sqrt(2))) / 2, cell by cell.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ScalarError
        For exact numbers: the result is not rational; floats and balls have it.

    Examples
    --------
    >>> normal_cdf(np.array([0.0, 1.0]))
    array([0.5       , 0.84134475])
    """
    return apply(NORMAL_CDF, x)


@composite
def gelu(x: Value, approximate: str = "none") -> Value:
    """x * normal_cdf(x) for approximate="none"; "tanh" gives the tanh formula, with PyTorch's constants.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    approximate : str, default "none"
        "none", or "tanh" for the formula that many networks were trained with.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ParameterError
        For another word ([P5]).
    ScalarError
        For exact numbers: the result is not rational; floats and balls have it.

    Examples
    --------
    >>> gelu(np.array([0.0, 1.0]))
    array([0.        , 0.84134475])
    """
    if approximate == "none":
        return apply(GELU, x)
    if approximate != "tanh":
        raise ParameterError("gelu", f'approximate must be "none" or "tanh"; got {approximate!r}', rule="P5")
    inner = mul(add(x, mul(power(x, 3), 0.044715)), math.sqrt(2 / math.pi))
    return mul(mul(x, 0.5), add(tanh(inner), 1))
