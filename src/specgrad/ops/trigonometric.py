"""sin and cos, whose curves declare one peak since they turn at every multiple of pi/2; the inverses atan and asinh."""

from __future__ import annotations

import math
from typing import Any

from .. import scalar
from ..call_cache import cached_call
from ..curve import Curve, at_most
from ..facts import DeclaredErrors, Names, SheetText
from ..op import Value, apply
from .elementwise import add, div, mul, neg, sqrt, unary


def _sine_at_most(xp: Any, low: Any, high: Any, _: Any) -> Any:
    """Return a bound of abs(sin(x)) on low..high: min(1, abs(x)), with room for its own float64 rounding. `xp` is the
    array module.
    """
    return 1.001 * xp.maximum(abs(low), abs(high)).clip(max=1.0)


def _sine_slope(x: Value, y: Value, t: Value) -> Value:
    """Return the derivative of sin(x) times t: cos(x) * t."""
    return mul(t, cos(x))


def _cosine_slope(x: Value, y: Value, t: Value) -> Value:
    """Return the derivative of cos(x) times t: -sin(x) * t."""
    return neg(mul(t, sin(x)))


_REDUCED = "beyond 8 in size the error grows by half a unit per radian, as if the argument were reduced in float32"
_FAR = "beyond 8192 in size the error grows, and beyond 1.7e9 there is no number"

SIN = unary(
    "sin",
    lambda x: scalar.apply("sin", x),
    _sine_slope,
    transcendental=True,
    curve=Curve(steepest=at_most(1.0), curvature=_sine_at_most, peak=math.pi / 2),
    names=Names(torch="torch.sin", jax="jnp.sin", numpy="sin", aten="sin.default", onnx="Sin", opsets=(7, 22)),
    errors=DeclaredErrors(
        "1",
        {"torch": 1.0, "jax": 1.0, "numpy": 2.0, "onnxruntime": 2.0, "openvino-f32": 1.0, "onnx-reference": 1.5}
        | {"iree": 5.5, "tract": 1.0, "mnn": 1.0, "ncnn": 1.5},
        wrong={"iree": _REDUCED, "ncnn": _FAR},
    ),
    sheet=SheetText("sin(X)", turning="pi/2 + k*pi, k whole"),
)
COS = unary(
    "cos",
    lambda x: scalar.apply("cos", x),
    _cosine_slope,
    transcendental=True,
    curve=Curve(steepest=_sine_at_most, curvature=at_most(1.0), peak=0.0),
    names=Names(torch="torch.cos", jax="jnp.cos", numpy="cos", aten="cos.default", onnx="Cos", opsets=(7, 22)),
    errors=DeclaredErrors(
        "1",
        {"torch": 1.0, "jax": 1.0, "numpy": 2.0, "onnxruntime": 2.0, "openvino-f32": 1.0, "onnx-reference": 1.5}
        | {"iree": 6.5, "tract": 1.0, "mnn": 1.0, "ncnn": 1.5},
        wrong={"iree": _REDUCED, "ncnn": _FAR},
    ),
    sheet=SheetText("cos(X)", turning="k*pi, k whole"),
)
ATAN = unary(
    "atan",
    lambda x: scalar.apply("atan", x),
    lambda x, y, t: div(t, add(mul(x, x), 1)),
    monotone=(0,),
    transcendental=True,
    curve=Curve(steepest=at_most(1.0), curvature=at_most(0.65)),  # abs(f'') is 9/(8*sqrt(3)) at 1/sqrt(3)
    names=Names(torch="torch.atan", jax="jnp.arctan", numpy="arctan", aten="atan.default", onnx="Atan", opsets=(7, 22)),
    errors=DeclaredErrors(
        "y",
        {"torch": 1.5, "jax": 5.5, "numpy": 3.5, "onnxruntime": 5.0, "openvino-f32": 2.0, "onnx-reference": 3.5},
    ),
    sheet=SheetText("atan(X)"),
)
ASINH = unary(
    "asinh",
    lambda x: scalar.apply("asinh", x),
    lambda x, y, t: div(t, sqrt(add(mul(x, x), 1))),
    monotone=(0,),
    transcendental=True,
    curve=Curve(steepest=at_most(1.0), curvature=at_most(0.385)),  # abs(f'') is 2/(3*sqrt(3)) at 1/sqrt(2)
    names=Names(
        torch="torch.asinh", jax="jnp.arcsinh", numpy="arcsinh", aten="asinh.default", onnx="Asinh", opsets=(9, 22)
    ),
    errors=DeclaredErrors(
        "y",
        {"torch": 3.0, "jax": 4.5, "numpy": 1.5, "onnxruntime": 2.5, "openvino-f32": 2.5, "onnx-reference": 1.5},
    ),
    sheet=SheetText("asinh(X)"),
)


@cached_call
def sin(x: Value) -> Value:
    """The sine of x in radians; NaN for infinities. The derivative is cos(x).

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
        For exact numbers, which have no sin; floats and balls have.

    Examples
    --------
    >>> import numpy as np
    >>> sin(np.array([0.0, np.pi / 2]))
    array([0., 1.])
    """
    return apply(SIN, x)


@cached_call
def cos(x: Value) -> Value:
    """The cosine of x in radians; NaN for infinities. The derivative is -sin(x).

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
        For exact numbers, which have no cos; floats and balls have.

    Examples
    --------
    >>> import numpy as np
    >>> cos(np.array([0.0, np.pi]))
    array([ 1., -1.])
    """
    return apply(COS, x)


@cached_call
def atan(x: Value) -> Value:
    """The angle in radians whose tangent is x, between -pi/2 and pi/2. The derivative is 1 / (1 + x*x).

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
        For exact numbers, which have no atan; floats and balls have.

    Examples
    --------
    >>> import numpy as np
    >>> atan(np.array([0.0, 1.0, -np.inf])) / np.pi
    array([ 0.  ,  0.25, -0.5 ])
    """
    return apply(ATAN, x)


@cached_call
def asinh(x: Value) -> Value:
    """The number whose hyperbolic sine is x: log(x + sqrt(1 + x*x)). The derivative is 1 / sqrt(1 + x*x).

    In floats the derivative is 0 where x*x overflows, as in PyTorch and JAX.

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
        For exact numbers, which have no asinh; floats and balls have.

    Examples
    --------
    >>> import numpy as np
    >>> asinh(np.array([0.0, 0.75, -np.inf])) / np.log(2)
    array([  0.,   1., -inf])
    """
    return apply(ASINH, x)
