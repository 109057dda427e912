"""Converters of ONNX operators on quantised numbers, and of com.microsoft's static quantisation. They refuse what they
do not honour, and raise ShapeError where shapes do not fit.

Integers are whole numbers of the graph. What a runtime computes in int32 is marked so, and exact; scales are float32,
and the last step, `quantize`, rounds to nearest even, adds the zero point and saturates.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ....errors import ShapeError, UnsupportedError
from ....op import Value, apply
from ....ops.activation import leaky_relu, sigmoid
from ....ops.avg_pool import AVG_POOL
from ....ops.contract import matmul
from ....ops.elementwise import add, div, equal, maximum, minimum, mul, neg, select, sub
from ....ops.layout import axis_of, broadcast, concat, permute, reshape, sum_
from ....ops.max_pool import amax
from ....ops.quantize import cast, quantize
from ....window import Shape
from ..file import DTYPES, FLOATS, type_name
from .node import OnnxNode, contributed, operator
from .recurrent import Direction, Function, Sizes, check_shape, lstm_step, part_of, read_sizes, recurrent
from .windows import convolve, pool_window, spatial

INTEGERS: dict[int, tuple[int, int]] = {
    t: (int(np.iinfo(DTYPES[t]).min), int(np.iinfo(DTYPES[t]).max))
    for t in (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16, TensorProto.INT32)
}
"""Types of quantised numbers, with their least and largest."""
SCALES = "scales and zero points: one number each, or one per entry of `axis`"
REQUANTISED = "scales are float32, sums int32; rounded to nearest even, then the zero point, then saturated"


# --- inputs -----------------------------------------------------------------------------------------------------


def _whole_numbers(c: OnnxNode, i: int) -> Value:
    """Return input i of an integer type as whole numbers of the graph. Refused: types that are not in INTEGERS."""
    if c.elem_type(i) not in INTEGERS:
        c.refuse(f"input {i} of type {type_name(c.elem_type(i))} is not a quantised number", None)
    return c.importer.variable(c.input_name(i))


def _broadcast_parameter(c: OnnxNode, i: int, value: Value, shape: Shape, axis: int) -> Value:
    """Return `value`, a scale or zero point, which is input i, broadcast to `shape`: one number, or one per entry of
    `axis`.

    ShapeError for other shapes.
    """
    given = tuple(value.shape)
    if np.prod(given, dtype=int) == 1:
        return broadcast(reshape(value, ()), shape)
    at = axis_of(c.title, axis, len(shape)) if shape else 0
    if len(given) != 1 or given[0] != shape[at]:
        c.refuse(
            f"input {i} of shape {given} must be one number or {shape[at]}, one per entry of axis {at}",
            "C1",
            ShapeError,
        )
    return broadcast(reshape(value, given + (1,) * (len(shape) - 1 - at)), shape)


def _minus_zero_point(c: OnnxNode, i: int, zero: int, axis: int = 0) -> Value:
    """Return input i minus its zero point, input `zero` (one number, or one per entry of `axis`), exact in integers.

    Without a zero point it is input i.
    """
    q = _whole_numbers(c, i)
    if not c.has(zero):
        return q
    with c.computing("int32"):
        return sub(q, _broadcast_parameter(c, zero, _whole_numbers(c, zero), tuple(q.shape), axis))


def _times_scales(c: OnnxNode, q: Value, *scales: tuple[int, int]) -> Value:
    """Return an int32 sum as float32, times the scales, each (input, axis)."""
    with c.computing("float32"):
        y = cast(q, "float32")
        for i, axis in scales:
            y = mul(y, _broadcast_parameter(c, i, c.real(i), tuple(y.shape), axis))
        return y


def _requantize(c: OnnxNode, y: Value, scale: int, zero: int, axis: int = 0) -> Value:
    """Return quantize(y) with scale and zero point from the inputs of these numbers, one each or one per entry of
    `axis`.

    The result has the type of the zero point, to which the node's `result_type` is set; one that is not in INTEGERS is
    refused.
    """
    c.result_type = c.elem_type(zero)
    low, high = INTEGERS.get(c.result_type) or c.refuse(
        f"result of type {type_name(c.result_type)} is not supported", None
    )
    shape = tuple(y.shape)
    s, z = (
        _broadcast_parameter(c, scale, c.real(scale), shape, axis),
        _broadcast_parameter(c, zero, _whole_numbers(c, zero), shape, axis),
    )
    with c.computing("float32"):
        return quantize(y, s, z, low=low, high=high)


def _requantize_zero_first(c: OnnxNode, y: Value, scale: int, zero: int) -> Value:
    """Return round(y/scale + zero) saturated, for runtimes that add the zero point before rounding.

    Ties may go either way. The result has the type of the zero point, to which the node's `result_type` is set.
    """
    c.result_type = c.elem_type(zero)
    low, high = INTEGERS[c.result_type]
    shape = tuple(y.shape)
    with c.computing("float32"):
        moved = div(y, _broadcast_parameter(c, scale, c.real(scale), shape, 0))
        moved = add(moved, _broadcast_parameter(c, zero, _whole_numbers(c, zero), shape, 0))
        return quantize(moved, 1, 0, low=low, high=high)


def _dequantize_float(c: OnnxNode, i: int, scale: int, zero: int) -> Value:
    """Return (q - zero)*scale as one float32 expression, multiplied out or not."""
    q = _whole_numbers(c, i)
    with c.computing("float32"):
        q = sub(q, _broadcast_parameter(c, zero, _whole_numbers(c, zero), tuple(q.shape), 0)) if c.has(zero) else q
        return mul(q, _broadcast_parameter(c, scale, c.real(scale), tuple(q.shape), 0))


# --- to integers and back ---------------------------------------------------------------------------------------


def _quantization_axis(c: OnnxNode) -> int:
    """Return the attribute axis; 0 before version 13. Refused: blocks, from version 21 on."""
    if c.version >= 21:
        c.require("block_size", "int", 0)
    return int(c.integer("axis", 1)) if c.version >= 13 else 0


def _check_scale(c: OnnxNode, x: int) -> None:
    """Refuse the node if the scale's type is not a float type that fits input x."""
    if c.elem_type(1) not in FLOATS or (c.elem_type(x) in FLOATS and c.elem_type(x) != c.elem_type(1)):
        c.refuse(f"a scale of type {type_name(c.elem_type(1))} is not supported here", None)


@operator(
    "QuantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28, note=f"to (u)int8, (u)int16; {SCALES}; block_size=0, precision=0"
)
def _quantize_linear(c: OnnxNode) -> Value:
    """Convert ONNX QuantizeLinear: saturate(round(x/scale) + zero), the quotient in the type of x.

    Refused: results that are not in INTEGERS, blocks, another precision, and a scale of no float type or another than x
    has.
    """
    axis = _quantization_axis(c)
    if c.version >= 19:
        c.without_effect("saturate", "int")  # of 8-bit floats
    if c.version >= 23:
        c.require("precision", "int", 0)
    _check_scale(c, 0)
    wanted = c.integer("output_dtype", 0) if c.version >= 21 else 0
    kind = c.elem_type(2) if c.has(2) else wanted or TensorProto.UINT8
    if kind not in INTEGERS or wanted not in (0, kind):
        c.refuse(f"output type {type_name(wanted or kind)} is not supported")
    x = c.real(0)
    shape, (low, high) = tuple(x.shape), INTEGERS[kind]
    scale = _broadcast_parameter(c, 1, c.real(1), shape, axis)
    zero = _broadcast_parameter(c, 2, _whole_numbers(c, 2), shape, axis) if c.has(2) else 0
    c.result_type = kind
    with c.computing(c.format_of(0)):
        return quantize(x, scale, zero, low=low, high=high)


@operator(
    "DequantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28, note=f"of (u)int8, (u)int16, int32; {SCALES}; block_size=0"
)
def _dequantize_linear(c: OnnxNode) -> Value:
    """Convert ONNX DequantizeLinear.

    (q - zero)*scale: the difference in integers, as a number of the type of the scale, the product in that type.
    Refused: another output_dtype than the type of the scale.
    """
    axis = _quantization_axis(c)
    _check_scale(c, 0)
    if c.version >= 23 and c.integer("output_dtype", 0) not in (0, c.elem_type(1)):
        c.refuse("output_dtype must be the type of the scale")
    q = _minus_zero_point(c, 0, 2, axis)
    if c.elem_type(0) == TensorProto.INT32:  # narrower types fit a float32, these are rounded to it
        with c.computing(c.format_of(1)):
            q = cast(q, c.format_of(1))
    c.result_type = c.elem_type(1)
    return mul(q, _broadcast_parameter(c, 1, c.real(1), tuple(q.shape), axis))


@operator(
    "DynamicQuantizeLinear", 11, note="scale and zero point from the range of x with 0; an x of zeros alone has scale 1"
)
def _dynamic_quantize_linear(c: OnnxNode) -> tuple[Value, ...]:
    """Convert ONNX DynamicQuantizeLinear: (x in uint8, scale, zero point), these from the range of x and 0."""
    c.result_types = (TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8)
    return _quantize_by_range(c.real(0))


def _quantize_by_range(x: Value) -> tuple[Value, Value, Value]:
    """Return x as uint8, with the scale and zero point (one number each) at which 0..255 spans the range of x and 0."""
    high, low = maximum(amax(x), 0), minimum(neg(amax(neg(x))), 0)
    span = div(sub(high, low), 255)
    scale = select(equal(span, 0), 1, span)  # then x is 0 throughout
    zero = quantize(neg(low), scale, 0, low=0, high=255)
    return quantize(x, broadcast(scale, x.shape), broadcast(zero, x.shape), low=0, high=255), scale, zero


# --- sums of products -------------------------------------------------------------------------------------------


@operator("ConvInteger", 10, note="zero points: one number each, or one per output channel of w")
def _conv_integer(c: OnnxNode) -> Value:
    """Convert ONNX ConvInteger: exact integers: conv(w - w_zero, x - x_zero)."""
    x, w = _minus_zero_point(c, 0, 2), _minus_zero_point(c, 1, 3)
    c.result_type = TensorProto.INT32
    with c.computing("int32"):
        return convolve(c, x, w, None)


@operator("MatMulInteger", 10, note="zero points: one number each, one per row of A, one per column of B")
def _matmul_integer(c: OnnxNode) -> Value:
    """Convert ONNX MatMulInteger: the int32 product of A and B, each minus its zero point."""
    a, b = _minus_zero_point(c, 0, 2, -2), _minus_zero_point(c, 1, 3, -1)
    c.result_type = TensorProto.INT32
    with c.computing("int32"):
        return matmul(a, b)


@operator("QLinearConv", 10, note=f"w_scale and w_zero_point also per output channel; {REQUANTISED}")
def _qlinear_conv(c: OnnxNode) -> Value:
    """Convert ONNX QLinearConv.

    saturate(round((conv(w - w_zero, x - x_zero) + B)*x_scale*w_scale/y_scale) + y_zero).
    """
    x, w = _minus_zero_point(c, 0, 2), _minus_zero_point(c, 3, 5)
    bias = _whole_numbers(c, 8) if c.has(8) else None
    with c.computing("int32"):
        total = convolve(c, x, w, bias, weight=3)
    return _requantize(c, _times_scales(c, total, (1, 1), (4, 1)), 6, 7, 1)


@operator("QLinearMatMul", 10, 21, note=f"a per row, b per column; {REQUANTISED}")
def _qlinear_matmul(c: OnnxNode) -> Value:
    """Convert ONNX QLinearMatMul: the int32 product of a and b without zero points, times their scales, quantised for
    y.
    """
    a, b = _minus_zero_point(c, 0, 2, -2), _minus_zero_point(c, 3, 5, -1)
    with c.computing("int32"):
        total = matmul(a, b)
    return _requantize(c, _times_scales(c, total, (1, -2), (4, -1)), 6, 7, -2)


@contributed("QGemm", 6, 9, note=f"alpha=1, transA=0; {REQUANTISED}; without y_scale the result is float32")
def _qgemm(c: OnnxNode) -> Value:
    """Convert ONNX QGemm: A times B (transposed if transB) plus C in int32, times the scales.

    Quantised again if y has a scale. Refused: alpha other than 1, and transA.
    """
    c.require("alpha", "float", 1.0)
    c.require("transA", "int", 0)
    transposed = c.flag("transB")
    a, b = _minus_zero_point(c, 0, 2), _minus_zero_point(c, 3, 5, 0 if transposed else 1)
    b = permute(b, (1, 0)) if transposed else b
    with c.computing("int32"):
        total = matmul(a, b)
        total = add(total, broadcast(_whole_numbers(c, 6), total.shape)) if c.has(6) else total
    y = _times_scales(c, total, (1, 0), (4, 1))
    if c.has(7):
        return _requantize(c, y, 7, 8)
    c.result_type = TensorProto.FLOAT
    return y


# --- com.microsoft ----------------------------------------------------------------------------------------------


@contributed("QLinearAdd", 7, 8, note="the zero point may be added before rounding: ties may go either way")
def _qlinear_add(c: OnnxNode) -> Value:
    """Convert ONNX QLinearAdd: both inputs dequantised to float32, added, and quantised again."""
    a, b = _dequantize_float(c, 0, 1, 2), _dequantize_float(c, 3, 4, 5)
    with c.computing("float32"):
        y = add(a, b)
    return _requantize_zero_first(c, y, 6, 7)


@contributed("QLinearMul", 7, 8, note="the zero point may be added before rounding: ties may go either way")
def _qlinear_mul(c: OnnxNode) -> Value:
    """Convert ONNX QLinearMul: both inputs without zero points, multiplied in int32, times the scales, and quantised
    again.
    """
    a, b = _minus_zero_point(c, 0, 2), _minus_zero_point(c, 3, 5)
    with c.computing("int32"):
        total = mul(a, b)
    return _requantize_zero_first(c, _times_scales(c, total, (1, 0), (4, 0)), 6, 7)


def _require_channels_first(c: OnnxNode) -> None:
    """Refuse the node unless channels_last is 0."""
    c.require("channels_last", "int", 0)


@contributed("QLinearGlobalAveragePool", 5, 5, note=f"channels_last=0; {REQUANTISED}")
def _qlinear_global_average_pool(c: OnnxNode) -> Value:
    """Convert ONNX QLinearGlobalAveragePool. Refused: channels last."""
    _require_channels_first(c)
    x, sizes = _minus_zero_point(c, 0, 2), spatial(c)
    with c.computing("int32"):
        total = sum_(x, range(2, 2 + len(sizes)), keepdims=True)
    with c.computing("float32"):
        y = div(_times_scales(c, total, (1, 0)), int(np.prod(sizes)))
    return _requantize(c, y, 3, 4)


@contributed("QLinearAveragePool", 5, 5, note="channels_last=0; averages in float32")
def _qlinear_average_pool(c: OnnxNode) -> Value:
    """Convert ONNX QLinearAveragePool: the float32 mean of the dequantised window, quantised by inputs 3 and 4.

    Refused: channels last.
    """
    _require_channels_first(c)
    divisor = "padded" if c.flag("count_include_pad") else "inside"
    x = _dequantize_float(c, 0, 1, 2)
    with c.computing("float32"):
        y = apply(AVG_POOL, x, window=pool_window(c, "AveragePool", 10), divisor=divisor)
    return _requantize(c, y, 3, 4)


@contributed("QLinearConcat", 5, 2**16, note="each part in its own scale and zero point")
def _qlinear_concat(c: OnnxNode) -> Value:
    """Convert QLinearConcat: each part by its own scale and zero point, quantised again for y, along `axis`.

    ShapeError unless inputs are scale, zero point and three per part.
    """
    axis = c.integer("axis")
    if len(c.node.input) % 3 != 2:
        c.refuse(f"needs two inputs and three per part; got {len(c.node.input)}", "C1", ShapeError)
    parts = [_requantize(c, _dequantize_float(c, i, i + 1, i + 2), 0, 1) for i in range(2, len(c.node.input), 3)]
    return concat(parts, axis)


@contributed("QLinearSigmoid", 5, 5)
def _qlinear_sigmoid(c: OnnxNode) -> Value:
    """Convert ONNX QLinearSigmoid: the input dequantised to float32, its sigmoid quantised again."""
    x = _dequantize_float(c, 0, 1, 2)
    with c.computing("float32"):
        y = sigmoid(x)
    return _requantize(c, y, 3, 4)


@contributed("QLinearLeakyRelu", 5, 5)
def _qlinear_leaky_relu(c: OnnxNode) -> Value:
    """Convert ONNX QLinearLeakyRelu."""
    x, alpha = _dequantize_float(c, 0, 1, 2), c.floating("alpha", 0.01)
    with c.computing("float32"):
        y = leaky_relu(x, alpha)
    return _requantize(c, y, 3, 4)


@contributed(
    "DynamicQuantizeLSTM",
    12,
    12,
    outputs=3,
    note="as LSTM, batches of 1 sequence; X, and the hidden state at each step, as DynamicQuantizeLinear makes them",
)
def _dynamic_quantize_lstm(c: OnnxNode) -> tuple[Value, ...]:
    """Convert DynamicQuantizeLSTM; refused are several sequences: their states are quantised together, or apart, as
    threads are many.
    """
    shape = c.shape(2)
    if len(shape) != 3 or len(c.shape(1)) != 3:
        c.refuse(f"W and R need three axes; got {c.shape(1)} and {shape}", "C1", ShapeError)
    sizes = read_sizes(c, False, 4, shape[1])
    if sizes.batch != 1 or c.has(4):
        c.refuse("several sequences, and sequence_lens, are not supported", None, UnsupportedError)
    d, rows = sizes.directions, 4 * sizes.hidden
    wanted = {1: (d, sizes.inputs, rows), 2: (d, sizes.hidden, rows), 3: (d, 2 * rows), 7: (d, 3 * sizes.hidden)}
    for i, name in ((1, "W"), (2, "R"), (3, "B"), (7, "P")):
        check_shape(c, i, name, wanted[i])
    for i in range(8, 12):
        if c.shape(i) not in ((d,), (d, rows)):
            c.refuse(f"input {i} must have shape {(d,)} or {(d, rows)}; got {c.shape(i)}", "C1", ShapeError)
    c.result_type = c.elem_type(0)
    names, step = ("Sigmoid", "Tanh", "Tanh"), lstm_step(c.flag("input_forget"))
    return recurrent(c, sizes, names, step, 2, lambda *given: _quantised_direction(c, sizes, *given))


def _quantised_direction(c: OnnxNode, sizes: Sizes, d: int, x: Value, functions: tuple[Function, ...]) -> Direction:
    """Return direction d of a layer whose products with x and with the state are of integers, with these activations
    (`functions`).
    """
    hidden = sizes.hidden
    with c.computing("int32"):
        weights = [
            sub(w, broadcast(part_of(_whole_numbers(c, zero), d), w.shape))
            for w, zero in ((part_of(_whole_numbers(c, i), d), zero) for i, zero in ((1, 9), (2, 11)))
        ]

    def product(value: Value, of: int) -> Value:
        q, scale, zero = _quantize_by_range(value)
        with c.computing("int32"):
            total = matmul(sub(q, broadcast(zero, q.shape)), weights[of])
        with c.computing("float32"):
            y = cast(total, "float32")
            y = mul(y, broadcast(scale, y.shape))
            return mul(y, broadcast(part_of(c.real((8, 10)[of]), d), y.shape))

    products = product(x, 0)
    if c.has(3):
        for k in (0, 4):
            products = add(products, part_of(c.real(3), d, slice(k * hidden, (k + 4) * hidden)))
    peepholes: tuple[Value, ...] = ()
    if c.has(7):
        peepholes = tuple(part_of(c.real(7), d, slice(k * hidden, (k + 1) * hidden)) for k in range(3))
    return Direction(sizes, functions, products, lambda h, first, last: product(h, 1), peepholes)
