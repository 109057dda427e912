"""Equivalence classes of quantised operators: QuantizeLinear, DequantizeLinear and ConvInteger.

A class has a draw(rng, dtype) that yields its cases; one whose type is fixed reads only what it needs of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...scalar import Array
from .case import Draw, OperatorClasses, VectorCase, zone
from .sample_values import Type, numbers

NARROW = ("UINT8", "INT8", "INT16", "UINT16")
BYTES = ("UINT8", "INT8")
FLOAT, DOUBLE, HALF, INT32 = (np.dtype(n) for n in ("float32", "float64", "float16", "int32"))
SPECIAL = "infinities saturate, by ONNX's formula; the profile leaves them, and NaN, to the implementation"
PADDED = (
    "padding is the zero point, as in ONNX Runtime and the ONNX reference; the profile's text pads with 0 before it"
)


def random_integers(rng: Draw, dtype: Type, shape: tuple[int, ...] = ()) -> Array:
    """Return random numbers of this shape over the whole range of the integer type `dtype`."""
    return np.asarray(numbers(rng, "gaussian", shape, dtype), dtype)


# --- to integers ------------------------------------------------------------------------------------------------


def _quantize_case(x: Array, scale: Any, zero: Array | None, axis: int | None = None, note: str = "") -> VectorCase:
    """Return a case of QuantizeLinear to the type of `zero`, uint8 if that is None.

    The scale has x's type; an axis is given as the attribute; `note` as in `VectorCase`.
    """
    attributes = {} if axis is None else {"axis": axis}
    dtype = np.dtype(np.uint8) if zero is None else zero.dtype
    arguments = {"x": x, "scale": np.asarray(scale, x.dtype), "zero": zero}
    return VectorCase("QuantizeLinear", arguments, attributes, outputs={"y": dtype}, note=note)


def _quantize_random(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield QuantizeLinear cases of random numbers. Their quantised data are of the integer type `dtype`."""
    for scale, zero in ((0.03, random_integers(rng, dtype)), (0.5, np.zeros((), dtype))):
        yield _quantize_case(rng.normal(size=(3, 5)).astype(FLOAT), scale, zero)


def _quantize_ties(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield cases in which x/scale is exactly a half: it rounds to even, before the zero point is added.

    Their quantised data are of the integer type `dtype`.
    """
    halves = (np.arange(-6, 7) + 0.5).astype(FLOAT)
    for zero in (0, 3):
        yield _quantize_case(np.abs(halves) if dtype.kind == "u" else halves, 1.0, np.array(zero, dtype))
        yield _quantize_case(halves * np.float32(0.25), 0.25, np.array(zero + 8, dtype))


def _quantize_saturating(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield cases next to both limits of the type, and far beyond them.

    Their quantised data are of the integer type `dtype`.
    """
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    near = np.array([low - 1.25, low - 0.75, low - 0.25, low, high, high + 0.25, high + 0.75, high + 1.25])
    yield _quantize_case(near.astype(FLOAT), 1.0, np.zeros((), dtype))
    yield _quantize_case(np.array([-1e30, -1e6, 1e6, 1e30], FLOAT), 0.5, np.array(7, dtype))


def _quantize_per_axis(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield cases with scales and zero points per entry of each axis.

    Their quantised data are of the integer type `dtype`.
    """
    for axis in (0, 1, 2, -1):
        count = (2, 3, 4)[axis]
        scales, zeros = rng.uniform(0.01, 0.1, count), random_integers(rng, dtype, (count,))
        yield _quantize_case(rng.normal(size=(2, 3, 4)).astype(FLOAT), scales, zeros, axis)


def _quantize_subnormal(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield QuantizeLinear cases with subnormal numbers, or scales next to them.

    Their quantised data are of the integer type `dtype`.
    """
    yield _quantize_case(np.array([1e-40, -1e-40, 3e-39, 0.0, -0.0], FLOAT), 1.0, np.array(1, dtype))
    yield _quantize_case(np.array([2e-38, -5e-38, 1e-37, 0.0], FLOAT), 2.0**-126, np.array(1, dtype))


def _quantize_special(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield QuantizeLinear cases with NaN and infinities. Their quantised data are of the integer type `dtype`."""
    for form in (FLOAT, HALF):
        yield _quantize_case(np.array([np.nan, np.inf, -np.inf, 0.5], form), 0.25, np.array(3, dtype), note=SPECIAL)


def _quantize_half(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield a QuantizeLinear case with float16 data and scale. Its quantised data are of the integer type `dtype`."""
    yield _quantize_case(rng.normal(size=(3, 5)).astype(HALF), 0.03, random_integers(rng, dtype))


def _quantize_default(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield one QuantizeLinear case of float32 numbers without a zero point, so to uint8; `dtype` is not read."""
    yield _quantize_case(rng.uniform(0, 9, size=(3, 5)).astype(FLOAT), 0.05, None)


QUANTIZE = OperatorClasses(
    "QuantizeLinear",
    (
        zone("FUNC", "numbers of everyday size", "function", _quantize_random, NARROW),
        zone("TIES", "quotients of exactly a half: to even, then the zero point", "function", _quantize_ties, NARROW),
        zone("SATURATE", "next to the ends of the type and far beyond", "function", _quantize_saturating, NARROW),
        zone("AXIS", "a scale and a zero point per entry of each axis", "constraint", _quantize_per_axis, NARROW),
        zone("SUBNORMAL", "subnormal numbers; scales next to them", "type", _quantize_subnormal, BYTES),
        zone("SPECIAL", "infinities, which saturate, and NaN, which are open", "type", _quantize_special, NARROW),
        zone("HALF", "float16 data and scales", "type", _quantize_half, BYTES),
        zone("DEFAULT", "no zero point: uint8", "function", _quantize_default, ("UINT8",)),
    ),
    {
        "block_size": "refused: scales per block",
        "precision, saturate, 4-bit and 8-bit float results": "refused, or without effect on integers",
    },
)


# --- and back ---------------------------------------------------------------------------------------------------


def _dequantize_case(
    q: Array, scale: Any, zero: Array | None, axis: int | None = None, form: Type = FLOAT, note: str = ""
) -> VectorCase:
    """Return a case of DequantizeLinear with integers `q`; scale and result have the float type `form`, `note` as in
    `VectorCase`.

    `zero` is the zero point, None if it is left out.
    """
    attributes = {} if axis is None else {"axis": axis}
    arguments = {"q": q, "scale": np.asarray(scale, form), "zero": zero}
    return VectorCase("DequantizeLinear", arguments, attributes, outputs={"y": form}, note=note)


def _dequantize_random(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield DequantizeLinear cases of random numbers. Their quantised data are of the integer type `dtype`."""
    zero = None if dtype == INT32 else random_integers(rng, dtype)
    for scale in (0.03, 0.5):
        yield _dequantize_case(random_integers(rng, dtype, (3, 5)), scale, zero)


def _dequantize_limits(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield cases at the limits of the type, with zero points there.

    Their quantised data are of the integer type `dtype`.
    """
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    row = np.array([low, low + 1, 0, high - 1, high], dtype)
    for zero in (None,) if dtype == INT32 else (None, low, high):
        yield _dequantize_case(row, 0.1, None if zero is None else np.array(zero, dtype))


def _dequantize_per_axis(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield cases with scales and zero points per entry of each axis.

    Their quantised data are of the integer type `dtype`.
    """
    for axis in (0, 1, 2, -1):
        count = (2, 3, 4)[axis]
        yield _dequantize_case(
            random_integers(rng, dtype, (2, 3, 4)),
            rng.uniform(0.01, 0.1, count),
            random_integers(rng, dtype, (count,)),
            axis,
        )


def _dequantize_long(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield cases of int32 beyond 2^24, which are rounded to float32 first.

    Their quantised data are of the integer type `dtype`.
    """
    row = np.array([2**24, 2**24 + 1, 2**24 + 3, 2**31 - 1, -(2**31) + 1, 7], dtype)
    for scale in (1.0, 0.5, 0.1):
        yield _dequantize_case(row, scale, None)


def _dequantize_scales(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield cases with a subnormal scale, and one next to the largest number.

    Their quantised data are of the integer type `dtype`.
    """
    yield _dequantize_case(np.arange(5).astype(dtype), 1e-40, None)
    yield _dequantize_case(np.array([0, 1, 100], dtype), 3e38, None, note="products beyond the largest number overflow")


def _dequantize_half(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield a DequantizeLinear case with a float16 scale. Its quantised data are of the integer type `dtype`."""
    yield _dequantize_case(random_integers(rng, dtype, (3, 5)), 0.03, random_integers(rng, dtype), form=HALF)


DEQUANTIZE = OperatorClasses(
    "DequantizeLinear",
    (
        zone("FUNC", "numbers of the whole type", "function", _dequantize_random, (*NARROW, "INT32")),
        zone(
            "BOUND", "the ends of the type with zero points at its ends", "type", _dequantize_limits, (*NARROW, "INT32")
        ),
        zone("AXIS", "a scale and a zero point per entry of each axis", "constraint", _dequantize_per_axis, NARROW),
        zone("LONG", "int32 that no float32 holds", "type", _dequantize_long, ("INT32",)),
        zone("SCALE", "subnormal scales, and one next to the largest number", "type", _dequantize_scales, BYTES),
        zone("HALF", "float16 scales", "type", _dequantize_half, BYTES),
    ),
    {
        "block_size": "refused: scales per block",
        "zero points of int32": "ONNX demands 0; the profile's text lets the difference wrap",
        "4-bit and 8-bit float data": "refused",
    },
)


# --- convolution of integers ------------------------------------------------------------------------------------


def _conv_case(
    x: Array, w: Array, x_zero: Array | None, w_zero: Array | None, note: str = "", **attributes: Any
) -> VectorCase:
    """Return a case of ConvInteger, with a note, of bytes x and w with their zero points, None if left out;
    `attributes` are ONNX's.
    """
    arguments = {"x": x, "w": w, "x_zero": x_zero, "w_zero": w_zero}
    given = {"kernel_shape": w.shape[2:], "strides": [1] * (x.ndim - 2), **attributes}
    return VectorCase("ConvInteger", arguments, given, outputs={"y": INT32}, note=note)


def _conv_random(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield ConvInteger cases of random numbers, with weights of both types.

    Their quantised data are of the integer type `dtype`.
    """
    for other in (np.dtype(np.uint8), np.dtype(np.int8)):
        yield _conv_case(
            random_integers(rng, dtype, (1, 2, 4, 4)), random_integers(rng, other, (3, 2, 2, 2)), None, None
        )
        yield _conv_case(
            random_integers(rng, dtype, (2, 1, 5)),
            random_integers(rng, other, (2, 1, 3)),
            random_integers(rng, dtype),
            random_integers(rng, other),
        )


def _conv_padded(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield padded ConvInteger cases; padding is the zero point. Their quantised data are of the integer type
    `dtype`.
    """
    five, ones = np.full((1, 1, 1, 1), 5, dtype), np.ones((1, 1, 3, 3), dtype)
    yield _conv_case(five, ones, np.array(3, dtype), None, PADDED, pads=[1, 1, 1, 1])
    for pads in ([1, 1, 1, 1], [2, 0, 1, 1], [0, 2, 0, 0]):
        x, w = random_integers(rng, dtype, (1, 1, 3, 4)), random_integers(rng, dtype, (2, 1, 2, 3))
        yield _conv_case(x, w, random_integers(rng, dtype), random_integers(rng, dtype), PADDED, pads=pads)


def _conv_dilated(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield ConvInteger cases with dilation 2 and more. Their quantised data are of the integer type `dtype`."""
    note = "holes between taps are no taps; the profile's text counts them as 0 - w_zero_point"
    x, w = np.arange(25).astype(dtype).reshape(1, 1, 5, 5), np.full((1, 1, 2, 2), 2, dtype)
    yield _conv_case(x, w, None, np.array(1, dtype), note, dilations=[2, 2])
    w_zero = random_integers(rng, dtype)
    yield _conv_case(
        random_integers(rng, dtype, (1, 1, 6, 6)),
        random_integers(rng, dtype, (2, 1, 2, 3)),
        None,
        w_zero,
        note,
        dilations=[3, 2],
    )


def _conv_strided(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield a ConvInteger case with strides 2 and 3. Its quantised data are of the integer type `dtype`."""
    yield _conv_case(
        random_integers(rng, dtype, (1, 2, 5, 6)),
        random_integers(rng, dtype, (2, 2, 2, 2)),
        random_integers(rng, dtype),
        None,
        strides=[2, 3],
    )


def _conv_grouped(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield a ConvInteger case with two groups. Its quantised data are of the integer type `dtype`."""
    x, w = random_integers(rng, dtype, (1, 4, 4, 4)), random_integers(rng, dtype, (4, 2, 2, 2))
    yield _conv_case(x, w, random_integers(rng, dtype), random_integers(rng, dtype), group=2)


def _conv_channels(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield a ConvInteger case with a zero point per output channel.

    Its quantised data are of the integer type `dtype`.
    """
    x, w = random_integers(rng, dtype, (1, 2, 4, 4)), random_integers(rng, dtype, (3, 2, 2, 2))
    yield _conv_case(
        x, w, random_integers(rng, dtype), random_integers(rng, dtype, (3,)), "a zero point per output channel of w"
    )


def _conv_limits(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield a ConvInteger case at the limits of the type. Its quantised data are of the integer type `dtype`."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x, w = np.full((1, 4, 3, 3), high, dtype), np.full((1, 4, 3, 3), low, dtype)
    yield _conv_case(x, w, np.array(low, dtype), np.array(high, dtype), "no sum of this size leaves int32")


CONV_INTEGER = OperatorClasses(
    "ConvInteger",
    (
        zone("FUNC", "all numbers of the type, weights of both types", "function", _conv_random, BYTES),
        zone("PADZERO", "padding is the zero point", "constraint", _conv_padded, BYTES),
        zone("DILATION", "taps that are not neighbours, with a zero point of w", "constraint", _conv_dilated, BYTES),
        zone("STRIDE", "steps larger than 1", "constraint", _conv_strided, BYTES),
        zone("GROUP", "groups of channels", "constraint", _conv_grouped, BYTES),
        zone("CHANNEL", "a zero point per output channel", "function", _conv_channels, BYTES),
        zone("BOUND", "the ends of the type against its other end", "type", _conv_limits, BYTES),
    ),
    {"sums that leave int32": "no text says what then; they need more than 33,000 products"},
)

QUANTISED = (QUANTIZE, DEQUANTIZE, CONV_INTEGER)
