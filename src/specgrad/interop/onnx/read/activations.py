"""Activation functions that other ONNX operators name in an attribute: fused products, recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....op import Value
from ....ops.activation import clamp, hardswish, leaky_relu, relu, sigmoid, softplus, tanh
from ....ops.elementwise import abs_, add, div, exp, greater, minimum, mul, select, sub
from .node import OnnxNode


def _below_zero(x: Value, y: Callable[[Value], Value]) -> Value:
    """Return y(x) below 0 and x elsewhere; y never gets a positive argument, so nothing overflows."""
    return select(greater(0, x), y(minimum(x, 0)), x)


def elu(x: Value, alpha: float) -> Value:
    """Return alpha*(exp(x) - 1) below 0, x elsewhere."""
    return _below_zero(x, lambda low: mul(sub(exp(low), 1), alpha))


def celu(x: Value, alpha: float) -> Value:
    """Return alpha*(exp(x/alpha) - 1) below 0, x elsewhere."""
    return _below_zero(x, lambda low: mul(sub(exp(div(low, alpha)), 1), alpha))


def selu(x: Value, alpha: float, gamma: float) -> Value:
    """Return gamma times elu(x, alpha)."""
    return mul(elu(x, alpha), gamma)


def thresholded_relu(x: Value, alpha: float) -> Value:
    """Return x above alpha, 0 elsewhere."""
    return select(greater(x, alpha), x, 0)


def hard_sigmoid(x: Value, alpha: float, beta: float) -> Value:
    """Return alpha*x + beta, clipped to 0..1."""
    return clamp(add(mul(x, alpha), beta), 0, 1)


def softsign(x: Value) -> Value:
    """Return x/(abs(x) + 1)."""
    return div(x, add(abs_(x), 1))


@dataclass(frozen=True)
class Activation:
    """A function of one cell: `apply` computes it; `defaults` are its parameters' names and ONNX's defaults (None: ONNX
    has none).
    """

    apply: Callable[..., Value]
    defaults: dict[str, float | None]


ACTIVATIONS: dict[str, Activation] = {
    "Relu": Activation(relu, {}),
    "Tanh": Activation(tanh, {}),
    "Sigmoid": Activation(sigmoid, {}),
    "Softsign": Activation(softsign, {}),
    "Softplus": Activation(softplus, {}),
    "HardSwish": Activation(hardswish, {}),
    "LeakyRelu": Activation(leaky_relu, {"alpha": 0.01}),
    "Elu": Activation(elu, {"alpha": 1.0}),
    "ThresholdedRelu": Activation(thresholded_relu, {"alpha": None}),  # 1 in ONNX's operator, 0 in ONNX Runtime's LSTM
    "HardSigmoid": Activation(hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "Affine": Activation(lambda x, alpha, beta: add(mul(x, alpha), beta), {"alpha": None, "beta": None}),
    "ScaledTanh": Activation(lambda x, alpha, beta: mul(tanh(mul(x, beta)), alpha), {"alpha": None, "beta": None}),
    "Selu": Activation(selu, {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "Clip": Activation(clamp, {"min": None, "max": None}),
}
CONVOLVED = ("Relu", "Tanh", "Sigmoid", "HardSwish", "LeakyRelu", "HardSigmoid", "Clip")
MULTIPLIED = (
    *("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "LeakyRelu", "Elu", "ThresholdedRelu", "HardSigmoid"),
    "Selu",
)


def activation_named(c: OnnxNode, name: str, known: Sequence[str]) -> Activation:
    """Return an activation by its name, refused if it is not one of `known`."""
    return (
        ACTIVATIONS[name] if name in known else c.refuse(f"activation={name[:50]!r} must be one of {', '.join(known)}")
    )


def convolution_activation(c: OnnxNode, y: Value) -> Value:
    """Return y after the attribute activation of a fused convolution; activation_params has its parameters in order.

    Refused: an unknown activation, and another number of parameters than it has.
    """
    name, params = c.string("activation", ""), c.attribute("activation_params", "floats", [])
    if not name:
        return y if not params else c.refuse("activation_params without an activation")
    activation = activation_named(c, name, CONVOLVED)
    if len(params) != len(activation.defaults):
        c.refuse(f"activation {name} needs {len(activation.defaults)} activation_params; got {params}")
    return activation.apply(y, *params)


def product_activation(c: OnnxNode, y: Value) -> Value:
    """Return y after the attribute activation of a fused matrix product, with activation_alpha and the others."""
    name = c.string("activation", "")
    if not name:
        return y
    activation = activation_named(c, name, MULTIPLIED)
    return activation.apply(y, *(c.floating(f"activation_{p}") for p in activation.defaults))
