"""Converters of ONNX operators on numbers: arithmetic, activations, reductions, products, normalisation. They refuse
what they do not honour, and raise ShapeError where shapes do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from onnx import TensorProto

from specgrad.ops.composites import batch_norm, exponential, group_norm, layer_norm, log_softmax, softmax
from specgrad.ops.integer_rounding import ceil, floor, fmod, mod, round_, trunc
from specgrad.ops.sorting import TOP_INDEX, argmax, argmin, cumprod, cumsum, prod, topk

from ....errors import ShapeError
from ....op import REGISTRY, Value, apply
from ....ops.activation import clamp, gelu, leaky_relu, normal_cdf, sigmoid, silu, softplus, tanh
from ....ops.avg_pool import avg_pool
from ....ops.contract import contract, linear, matmul
from ....ops.elementwise import (
    abs_,
    add,
    div,
    equal,
    exp,
    greater,
    greater_equal,
    log,
    maximum,
    mean,
    minimum,
    mul,
    neg,
    power,
    select,
    sqrt,
    sub,
)
from ....ops.layout import axes_of, axis_of, broadcast, permute, reshape, sum_
from ....ops.max_pool import amax
from ....scalar import Array
from ..file import FLOATS, shown
from .activations import celu, elu, hard_sigmoid, selu, softsign, thresholded_relu
from .importer import MAX_FOLDED_CELLS
from .node import OnnxNode, operator, register_unary

MAX_EXPONENT = 64  # the largest exponent of Pow


def known_integers(c: OnnxNode) -> list[Array] | None:
    """Return the inputs if all are known integers (a shape computation), else None."""
    values = [c.value(i) for i in range(len(c.node.input))]
    known = all(isinstance(v, np.ndarray) and v.dtype.kind == "i" for v in values)
    return values if known and values else None


# --- arithmetic -------------------------------------------------------------------------------------------------


def _truncating_divide(a: Array, b: Array) -> Array:
    """Divide integers towards zero, as ONNX does; ShapeError by 0."""
    if (b == 0).any():
        raise ShapeError("Div", "a shape is divided by zero")
    return np.sign(a) * np.sign(b) * (abs(a) // abs(b))


def _inputs_as_numbers(c: OnnxNode) -> list[Any]:
    """Return all inputs as numbers: floats, or integers."""
    return [c.number(i) for i in range(len(c.node.input))]


def _check_folded_range(c: OnnxNode, approximate: Array) -> None:
    """Refuse int32 inputs whose result, `approximate` in floats, leaves the type: it would wrap around."""
    if c.elem_type(0) == TensorProto.INT32 and approximate.size:
        least, most = approximate.min(), approximate.max()
        if least < -(2.0**31) or most >= 2.0**31:
            c.refuse("known numbers leave INT32, and wrap around", None)


def _register_arithmetic(
    name: str, versions: tuple[int, ...], fn: Callable[..., Value], fold: Callable[..., Array]
) -> None:
    """Register the converter of the ONNX operator `name`, in these schema versions, of one or more inputs. `fn`
    converts variables, `fold` computes known integers.
    """

    def convert(c: OnnxNode) -> Value:
        known = known_integers(c)
        if known is None and name == "Sub" and c.are_positions(0):
            from .indexing import plane_indices

            return plane_indices(c)
        if known is None and name == "Div" and c.elem_type(0) not in FLOATS:
            return trunc(div(*_inputs_as_numbers(c)))
        if known is None:
            return reduce(fn, _inputs_as_numbers(c))
        shape = np.broadcast_shapes(*(k.shape for k in known))
        c.folded(np.broadcast_to(0, shape))
        with np.errstate(all="ignore"):
            _check_folded_range(c, reduce(fold, [k.astype(np.float64) for k in known]))
            return c.folded(reduce(fold, known))

    operator(name, *versions)(convert)


_register_arithmetic("Add", (7, 13, 14), add, np.add)
_register_arithmetic("Sub", (7, 13, 14), sub, np.subtract)
_register_arithmetic("Mul", (7, 13, 14), mul, np.multiply)
_register_arithmetic("Div", (7, 13, 14), div, _truncating_divide)
_register_arithmetic("Max", (6, 8, 12, 13), maximum, np.maximum)
_register_arithmetic("Min", (6, 8, 12, 13), minimum, np.minimum)
_register_arithmetic("Sum", (6, 8, 13), add, np.add)


@operator("Mean", 6, 8, 13)
def _mean(c: OnnxNode) -> Value:
    """Convert ONNX Mean: the sum of all inputs over their number, after broadcasting."""
    return div(reduce(add, c.reals()), len(c.node.input))


@operator(
    "Pow",
    7,
    12,
    13,
    15,
    note=f"the exponent is one known number, maybe repeated, at most {MAX_EXPONENT} in size; or the base is one",
)
def _pow(c: OnnxNode) -> Value:
    """Convert ONNX Pow.

    x ** number; an exponent that is one number repeated may only grow the shape by axes of size 1. A computed exponent
    needs one known number as base. Refused: other exponents that are computed, differ, or lie beyond MAX_EXPONENT.
    """
    base = c.importer.constant_value(c.input_name(0))
    if base is not None and base.size == 1 and c.importer.constant_value(c.input_name(1)) is None:
        return _exponential(c, base)
    exponent = c.repeated_number(1, "the exponent")
    if not abs(exponent) <= MAX_EXPONENT:
        c.refuse(f"exponent {exponent} must lie in -{MAX_EXPONENT}..{MAX_EXPONENT}", None)
    x = c.number(0)
    if c.elem_type(0) not in FLOATS and (exponent < 0 or exponent != int(exponent)):
        c.refuse(f"exponent {exponent} of integers must be a whole number from 0 on", None)
    y = power(x, int(exponent) if exponent == int(exponent) else exponent)
    return broadcast(y, np.broadcast_shapes(c.shape(0), c.shape(1)))


def _exponential(c: OnnxNode, base: Array) -> Value:
    """Return the Pow of one known number and a computed exponent. Refused: two types, and bases that make no
    exponential.
    """
    if c.elem_type(0) != c.elem_type(1):
        c.refuse("a known base must have the type of the exponent", None)
    x = c.real(1)
    return broadcast(exponential(base.item(), x), np.broadcast_shapes(base.shape, x.shape))


# --- one argument -----------------------------------------------------------------------------------------------


def _register_unary(name: str, versions: tuple[int, ...], fn: Callable[[Value], Value]) -> None:
    """Register the converter of the ONNX operator `name`, in these schema versions, by `fn`, a function of one cell.

    Erf gets a note.
    """
    note = "as 2*normal_cdf(sqrt(2)*x) - 1" if name == "Erf" else ""
    operator(name, *versions, note=note)(lambda c: fn(c.real(0)))


def _erf(x: Value) -> Value:
    """Return erf(x) as 2*normal_cdf(sqrt(2)*x) - 1, sqrt(2) being the nearest float64."""
    return sub(mul(normal_cdf(mul(x, math.sqrt(2))), 2), 1)


for _record in REGISTRY.values():
    if _record.names.opsets:
        register_unary(_record)

for _name, _versions, _fn in (
    ("Softplus", (1, 22), softplus),
    ("Softsign", (1, 22), softsign),
    ("Mish", (18, 22), lambda x: mul(x, tanh(softplus(x)))),
    ("Erf", (9, 13), _erf),
    ("Reciprocal", (6, 13), lambda x: div(1, x)),
):
    _register_unary(_name, _versions, _fn)


@operator("Swish", 24)
def _swish(c: OnnxNode) -> Value:
    """Convert ONNX Swish: x * sigmoid(alpha*x)."""
    alpha, x = c.floating("alpha", 1.0), c.real(0)
    return silu(x) if alpha == 1 else mul(x, sigmoid(mul(x, alpha)))


def _register_rounding(name: str, versions: tuple[int, ...], fn: Callable[[Value], Value]) -> None:
    """Register the converter of the ONNX operator `name`, in these schema versions, by the rounding function `fn`;
    known values are folded, since shapes may be rounded products.
    """

    def convert(c: OnnxNode) -> Value:
        known = c.importer.constant_value(c.input_name(0))
        return fn(c.real(0)) if known is None or known.size > MAX_FOLDED_CELLS else c.folded(fn(known))

    operator(name, *versions)(convert)


_register_rounding("Floor", (6, 13), floor)
_register_rounding("Ceil", (6, 13), ceil)
_register_rounding("Round", (11, 22), round_)


@operator("Mod", 10, 13, 28, note="of floats with fmod=1, as ONNX demands before version 28; of integers")
def _mod(c: OnnxNode) -> Value:
    """Convert ONNX Mod: the sign of the dividend with fmod=1, of the divisor else.

    Refused: computed floats with fmod=0, before version 28; ShapeError for known integers over 0.
    """
    like_c, known = c.flag("fmod"), known_integers(c)
    if known is None and not like_c and c.elem_type(0) in FLOATS and c.version < 28:
        c.refuse("fmod=0 is for integers; floats need fmod=1")
    if known is None:
        return (fmod if like_c else mod)(*_inputs_as_numbers(c))
    if (known[1] == 0).any():
        c.refuse("a shape is divided by zero", None, ShapeError)
    return c.folded((np.fmod if like_c else np.mod)(*known))


@operator("LeakyRelu", 6, 16)
def _leaky_relu(c: OnnxNode) -> Value:
    """Convert ONNX LeakyRelu: x where x > 0, else alpha*x."""
    return leaky_relu(c.real(0), c.floating("alpha", 0.01))


@operator("PRelu", 7, 9, 16)
def _prelu(c: OnnxNode) -> Value:
    """Convert ONNX PRelu: slope*x below 0, else x; the slope broadcasts to x and never the other way."""
    x = c.real(0)
    slope = broadcast(c.real(1), c.shape(0))
    return select(greater(0, x), mul(slope, x), x)


@operator("Elu", 6, 22)
def _elu(c: OnnxNode) -> Value:
    """Convert ONNX Elu: x where x > 0, else alpha*(exp(x) - 1)."""
    return elu(c.real(0), c.floating("alpha", 1.0))


@operator("Celu", 12, 28, note="alpha > 0")
def _celu(c: OnnxNode) -> Value:
    """Convert ONNX Celu; refused unless alpha > 0."""
    alpha = c.floating("alpha", 1.0)
    if not alpha > 0:
        c.refuse(f"alpha={alpha} must be positive")
    return celu(c.real(0), alpha)


@operator("Selu", 6, 22)
def _selu(c: OnnxNode) -> Value:
    """Convert ONNX Selu: gamma*x where x > 0, else gamma*alpha*(exp(x) - 1)."""
    alpha, gamma = c.floating("alpha", 1.67326319217681884765625), c.floating("gamma", 1.05070102214813232421875)
    return selu(c.real(0), alpha, gamma)


@operator("Shrink", 9)
def _shrink(c: OnnxNode) -> Value:
    """Convert ONNX Shrink: x + bias below -lambd, x - bias above lambd, else 0."""
    lambd, bias, x = c.floating("lambd", 0.5), c.floating("bias", 0.0), c.real(0)
    return select(greater(-lambd, x), add(x, bias), select(greater(x, lambd), sub(x, bias), 0))


@operator("ThresholdedRelu", 10, 22)
def _thresholded_relu(c: OnnxNode) -> Value:
    """Convert ONNX ThresholdedRelu: x where x > alpha, else 0."""
    return thresholded_relu(c.real(0), c.floating("alpha", 1.0))


@operator("HardSigmoid", 6, 22)
def _hard_sigmoid(c: OnnxNode) -> Value:
    """Convert ONNX HardSigmoid: alpha*x + beta, clamped to 0..1."""
    alpha, beta = c.floating("alpha", 0.2), c.floating("beta", 0.5)
    return hard_sigmoid(c.real(0), alpha, beta)


@operator("Gelu", 20, note="approximate none or tanh")
def _gelu(c: OnnxNode) -> Value:
    """Convert ONNX Gelu: x * normal_cdf(x), or its tanh formula where approximate says so."""
    return gelu(c.real(0), c.string("approximate", "none"))


@operator(
    "Clip",
    6,
    11,
    12,
    13,
    note="known min and max with min <= max, before version 13; from 11 on an end that is left out keeps infinities",
)
def _clip(c: OnnxNode) -> Value:
    """Convert ONNX Clip: the least of max and of the largest of min and x, each optional; a known NaN is refused."""
    if c.version == 6:
        largest = float(np.finfo(np.float32).max)
        return clamp(c.real(0), c.floating("min", -largest), c.floating("max", largest))
    ends = {i: c.importer.constant_value(c.input_name(i)) for i in (1, 2) if c.has(i)}
    if any(end is None for end in ends.values()):
        y = maximum(c.number(0), c.number(1)) if 1 in ends else c.number(0)
        return minimum(y, c.number(2)) if 2 in ends else y
    low, high = (c.known_number(i, w) if i in ends else None for i, w in ((1, "min"), (2, "max")))
    if any(v is not None and math.isnan(v) for v in (low, high)):
        c.refuse("min and max must not be NaN", None)
    if c.version >= 13 and low is not None and high is not None and low > high:
        low = high  # all cells are max, as the text of this version says
    return clamp(c.number(0), low, high)


def _softmax_converter(fn: Callable[[Value, int], Value]) -> Callable[[OnnxNode], Value]:
    """Return the converter of Softmax or LogSoftmax by `fn` (value, axis); before version 13 over all axes from `axis`
    on.
    """

    def convert(c: OnnxNode) -> Value:
        x, shape = c.real(0), c.shape(0)
        axis = c.integer("axis", 1 if c.version < 13 else -1)
        if c.version >= 13:
            return fn(x, axis)
        first = axis_of("axis", axis, len(shape))
        rows = reshape(x, (math.prod(shape[:first]), math.prod(shape[first:])))  # all axes from `axis` on are one
        return reshape(fn(rows, 1), shape)

    return convert


operator("Softmax", 1, 11, 13, note="before 13 over all axes from `axis` on")(_softmax_converter(softmax))
operator("LogSoftmax", 1, 11, 13, note="before 13 over all axes from `axis` on")(_softmax_converter(log_softmax))


# --- products ---------------------------------------------------------------------------------------------------


@operator("MatMul", 1, 9, 13)
def _matmul(c: OnnxNode) -> Value:
    """Convert ONNX MatMul: the matrix product over the last two axes; leading axes broadcast."""
    return matmul(c.number(0), c.number(1))


@operator("Gemm", 7, 9, 11, 13)
def _gemm(c: OnnxNode) -> Value:
    """Convert ONNX Gemm: alpha * A' B' + beta * C, A' and B' transposed as transA and transB say."""
    return general_product(c)


def general_product(c: OnnxNode) -> Value:
    """Return alpha * A' B' + beta * C by the attributes of Gemm; the plain layer x W^T + b is `linear`.

    ShapeError unless A and B are matrices.
    """
    alpha, beta = c.floating("alpha", 1.0), c.floating("beta", 1.0)
    first, second = c.flag("transA"), c.flag("transB")
    a, b, bias = c.real(0), c.real(1), c.optional(2)
    if len(a.shape) != 2 or len(b.shape) != 2:
        c.refuse(f"needs two matrices; got shapes {a.shape} and {b.shape}", "C1", ShapeError)
    plain = not first and second and alpha == 1 and beta == 1
    if plain and bias is not None and (row := c.importer.repeated_row(c.input_name(2))) is not None:
        bias = row  # an Expand wrote out what linear repeats by itself
    if plain and (bias is None or bias.shape == b.shape[:1]):
        return linear(b, bias, a)
    y = contract(a, b, f"{'ba' if first else 'ab'},{'cb' if second else 'bc'}->ac")
    y = y if alpha == 1 else mul(y, alpha)
    if bias is None:
        return y
    bias = broadcast(bias, y.shape)
    return add(y, bias if beta == 1 else mul(bias, beta))


@operator(
    "Einsum", 12, 28, note="one or two inputs; refused: sizes of 1 that would be stretched, except of an ellipsis"
)
def _einsum(c: OnnxNode) -> Value:
    """Convert ONNX Einsum: the sum of products that the attribute equation states."""
    from ....ops.einsum import einsum

    return einsum(c.string("equation"), *c.reals())


# --- reductions -------------------------------------------------------------------------------------------------


UNCHANGED = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")  # without axes the input itself, where that is asked


def _register_reduction(
    name: str, versions: tuple[int, ...], fn: Callable[..., Value], since: int, whole: bool = False
) -> None:
    """Register the converter of the ONNX operator `name`, a reduction by `fn`; axes are an input from version `since`
    on, else an attribute.

    `whole` says whether integers are reduced alike.
    """

    def convert(c: OnnxNode) -> Value:
        keep = c.flag("keepdims", 1)
        axes = c.axes(None if c.version < since else 1)
        empty = c.version >= since and c.flag("noop_with_empty_axes")
        x = c.number(0) if whole else c.real(0)
        if not axes:
            if empty:
                return x if name in UNCHANGED else c.refuse("noop_with_empty_axes=1 without axes is not supported")
            axes = list(range(len(x.shape)))
        axes = axes_of("axes", axes, len(x.shape))
        if name == "ReduceMin" and c.elem_type(0) not in FLOATS:
            return _least_integers(x, axes, keep)
        if fn is _log_sum_exp:
            return fn(x, axes, keepdims=keep, dtype=np.float64 if c.elem_type(0) == TensorProto.DOUBLE else np.float32)
        return fn(x, axes, keepdims=keep)

    note = "" if name in UNCHANGED else "refused: noop_with_empty_axes=1 without axes"
    operator(name, *versions, note=note)(convert)


def _least_integers(x: Value, axes: Any, keepdims: bool) -> Value:
    """Return the least cells over `axes`, none of them negative, without negatives: an integer type may not hold them.

    With `keepdims` these axes stay with size 1.
    """
    y = reduce(lambda value, axis: topk(value, 1, axis=axis, largest=False)[0], axes, x)
    return y if keepdims else reshape(y, tuple(n for a, n in enumerate(x.shape) if a not in axes))


def _log_sum_exp(x: Value, axes: Any, keepdims: bool, dtype: type[np.floating[Any]]) -> Value:
    """Return log(sum(exp(x))) over `axes`, none of them negative, shifted by the largest cell, or the largest finite
    number of `dtype`.

    With `keepdims` these axes stay with size 1.
    """
    end = float(np.finfo(dtype).max)
    largest = clamp(amax(x, axes, keepdims=True), -end, end)
    y = add(log(sum_(exp(sub(x, largest)), axes, keepdims=True)), largest)
    return y if keepdims else reshape(y, tuple(n for a, n in enumerate(x.shape) if a not in axes))


_register_reduction("ReduceMean", (1, 11, 13, 18), mean, 18)
_register_reduction("ReduceSum", (1, 11, 13), sum_, 13, whole=True)
_register_reduction("ReduceMax", (1, 11, 12, 13, 18, 20), amax, 18, whole=True)
_register_reduction(
    "ReduceMin",
    (1, 11, 12, 13, 18, 20),
    lambda x, axes, keepdims: neg(amax(neg(x), axes, keepdims=keepdims)),
    18,
    whole=True,
)
_register_reduction(
    "ReduceL1", (1, 11, 13, 18), lambda x, axes, keepdims: sum_(abs_(x), axes, keepdims=keepdims), 18, whole=True
)
_register_reduction(
    "ReduceL2", (1, 11, 13, 18), lambda x, axes, keepdims: sqrt(sum_(mul(x, x), axes, keepdims=keepdims)), 18
)
_register_reduction(
    "ReduceSumSquare",
    (1, 11, 13, 18),
    lambda x, axes, keepdims: sum_(mul(x, x), axes, keepdims=keepdims),
    18,
    whole=True,
)
_register_reduction(
    "ReduceLogSum", (1, 11, 13, 18, 28), lambda x, axes, keepdims: log(sum_(x, axes, keepdims=keepdims)), 18
)
_register_reduction("ReduceLogSumExp", (1, 11, 13, 18, 28), _log_sum_exp, 18)


def _register_arg_extreme(name: str, fn: Callable[..., Value]) -> None:
    """Register the converter of ArgMax or ArgMin (`name`) by the function `fn`."""

    def convert(c: OnnxNode) -> Value:
        keep, axis, x = c.flag("keepdims", 1), c.integer("axis", 0), c.number(0)
        last = c.version >= 12 and c.flag("select_last_index")
        if fn is argmin and c.elem_type(0) not in FLOATS:  # without negatives, which an integer type may not hold
            at = axis_of("axis", axis, len(x.shape))
            y = apply(TOP_INDEX, x, axis=at, k=1, largest=False, last=last)
            return y if keep else reshape(y, x.shape[:at] + x.shape[at + 1 :])
        return fn(x, axis, keepdims=keep, last=last)

    operator(name, 1, 11, 12, 13)(convert)


_register_arg_extreme("ArgMax", argmax)
_register_arg_extreme("ArgMin", argmin)


@operator("TopK", 1, 10, 11, 24, note="k is known; sorted=1")
def _topk(c: OnnxNode) -> tuple[Value, Value]:
    """Convert ONNX TopK: (values, positions) of the known k largest or smallest cells along an axis; refused unless
    sorted.
    """
    k = c.integer("k") if c.version == 1 else c.known_number(1, "k")
    largest = True
    if c.version >= 11:
        largest = c.flag("largest", 1)
        c.require("sorted", "int", 1)
    return topk(c.number(0), k, axis=c.integer("axis", -1), largest=largest)


@operator("CumSum", 11, 14, note="the axis is known")
def _cumsum(c: OnnxNode) -> Value:
    """Convert ONNX CumSum: running sums along a known axis, without the cell itself if exclusive, from the end if
    reverse.
    """
    axis = c.known_number(1, "axis")
    return cumsum(c.number(0), axis, exclusive=c.flag("exclusive"), reverse=c.flag("reverse"))


@operator("CumProd", 26, note="the axis is known")
def _cumprod(c: OnnxNode) -> Value:
    """Convert ONNX CumProd: running products along a known axis, without the cell itself if exclusive, from the end if
    reverse.
    """
    axis = c.known_number(1, "axis")
    return cumprod(c.real(0), axis, exclusive=c.flag("exclusive"), reverse=c.flag("reverse"))


@operator("ReduceProd", 1, 11, 13, 18, note="of floats, and of known integers; noop_with_empty_axes=0")
def _reduce_prod(c: OnnxNode) -> Value:
    """Convert ONNX ReduceProd; one of known integers is folded into a constant. Refused: noop_with_empty_axes=1."""
    keep = c.flag("keepdims", 1)
    axes = c.axes(None if c.version < 18 else 1)
    if c.version >= 18:
        c.require("noop_with_empty_axes", "int", 0)
    factors = c.value(0)
    gone = axes_of("axes", axes or None, len(c.shape(0)))
    if isinstance(factors, np.ndarray):
        return c.folded(np.prod(factors, axis=gone, keepdims=keep))
    return prod(c.real(0), gone, keepdims=keep)


# --- normalisation ----------------------------------------------------------------------------------------------


@operator(
    "BatchNormalization", 7, 9, 14, 15, note="inference: one output, training_mode=0, spatial=1; momentum has no effect"
)
def _batch_normalization(c: OnnxNode) -> Value:
    """Convert ONNX BatchNormalization by the given mean and variance; training, and further outputs, are refused."""
    c.without_effect("momentum", "float")  # of the running statistics, in training
    if c.outputs > 1:  # before version 14 this is how training is asked for
        c.refuse(f"output {shown(c.node.output[c.outputs - 1])} is not supported in inference", None)
    if c.version == 7:
        c.require("spatial", "int", 1)
    if c.version >= 14:
        c.require("training_mode", "int", 0)
    eps = c.floating("epsilon", 1e-5)
    x, scale, bias, mean_, var = c.reals()
    if len(x.shape) < 2:
        c.refuse(f"needs (N, C, ...); got shape {x.shape}", "C1", ShapeError)
    return batch_norm(x, mean_, var, scale, bias, eps=eps)


@operator("InstanceNormalization", 6, 22)
def _instance_normalization(c: OnnxNode) -> Value:
    """Convert ONNX InstanceNormalization of (N, C, *spatial): every channel by its own mean and variance; refused below
    rank 3.
    """
    x, scale, bias = c.reals()
    if len(x.shape) < 3:
        c.refuse(f"needs (N, C, *spatial); got shape {x.shape}", "C1", ShapeError)
    return group_norm(x, x.shape[1], scale, bias, eps=c.floating("epsilon", 1e-5))


@operator("GroupNormalization", 21, note="stash_type=1; version 18 (scale per group) was withdrawn by ONNX itself")
def _group_normalization(c: OnnxNode) -> Value:
    """Convert ONNX GroupNormalization: channels in num_groups groups, each by its own mean and variance; stash_type
    must be 1.
    """
    c.require("stash_type", "int", 1)
    x, scale, bias = c.reals()
    return group_norm(x, c.integer("num_groups"), scale, bias, eps=c.floating("epsilon", 1e-5))


@operator("LayerNormalization", 17, note="the first output only; stash_type=1")
def _layer_normalization(c: OnnxNode) -> Value:
    """Convert ONNX LayerNormalization over the axes from `axis` on, its first output; stash_type must be 1."""
    c.require("stash_type", "int", 1)
    x = c.real(0)
    axis = axis_of("axis", c.integer("axis", -1), len(x.shape))
    return layer_norm(x, x.shape[axis:], c.real(1), c.optional(2), eps=c.floating("epsilon", 1e-5))


@operator("LRN", 1, 13)
def _lrn(c: OnnxNode) -> Value:
    """Convert ONNX LRN: x / (bias + alpha/size * sum of squares over `size` neighbouring channels) ** beta.

    ShapeError without an axis of channels, or with a size below 1.
    """
    alpha, beta, bias = c.floating("alpha", 1e-4), c.floating("beta", 0.75), c.floating("bias", 1.0)
    size, x = c.integer("size"), c.real(0)
    if len(x.shape) < 2 or size < 1:
        c.refuse(f"needs channels and size >= 1; got shape {x.shape}, size={size}", "W1", ShapeError)
    last = [a for a in range(len(x.shape)) if a != 1] + [1]
    squares = permute(mul(x, x), last)
    around = ((size - 1) // 2, size - 1 - (size - 1) // 2)
    total = avg_pool(squares, (size,), stride=1, padding=(around,), divisor=size)
    scale = power(add(mul(total, alpha), bias), beta)
    back = [0, len(last) - 1, *range(1, len(last) - 1)]
    return div(x, permute(scale, back))


# --- comparison -------------------------------------------------------------------------------------------------


def _register_comparison(
    name: str, versions: tuple[int, ...], fn: Callable[..., Value], fold: Callable[..., Array]
) -> None:
    """Register the converter of the comparison `name`: 1 where it holds, else 0.

    `fn` converts variables, `fold` computes arrays that are known. `versions` are those of the operator's schema.
    """

    def convert(c: OnnxNode) -> Value:
        values = [c.value(i) for i in (0, 1)]
        c.result_type = TensorProto.BOOL
        if not all(isinstance(v, np.ndarray) for v in values):
            return fn(c.number(0), c.number(1))
        c.folded(np.broadcast_to(0, np.broadcast_shapes(*(v.shape for v in values))))
        return fold(*values)

    operator(name, *versions)(convert)


_register_comparison("Equal", (7, 11, 13, 19), equal, np.equal)
_register_comparison("Greater", (7, 9, 13), greater, np.greater)
_register_comparison("GreaterOrEqual", (12, 16), greater_equal, np.greater_equal)
_register_comparison("Less", (7, 9, 13), lambda x, y: greater(y, x), np.less)
_register_comparison("LessOrEqual", (12, 16), lambda x, y: greater_equal(y, x), np.less_equal)
