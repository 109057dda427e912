"""Converters of ONNX operators with windows: convolutions and pools. They refuse what they do not honour, and raise
ShapeError where shapes do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from specgrad.ops.composites import pad

from .... import window
from ....errors import ShapeError, UnsupportedError
from ....op import Value, apply
from ....ops.avg_pool import AVG_POOL, global_avg_pool
from ....ops.conv import conv, conv_transpose
from ....ops.elementwise import abs_, add, power
from ....ops.layout import permute, reshape, sum_
from ....ops.max_pool import MAX_POOL, WINNER, max_pool, max_unpool
from ....window import Padding, Shape, Window
from .node import MAX_STEP, OnnxNode, operator

TRANSPOSED = (
    "output_shape overrides pads, cells beyond reach hold the bias; refused: an odd cell of padding in version 1, "
    "auto_pad=SAME beyond reach (ONNX contradicts itself)"
)
MAXIMA = (
    "Indices (from 8) are flat over N and C, ties go to the first; storage_order from 8, ceil_mode and dilations from "
    "10; refused: auto_pad=VALID with ceil_mode where ONNX contradicts itself, auto_pad=SAME of less than 0 cells"
)
AUTO_PADS = {"NOTSET": None, "VALID": "valid", "SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower"}


def spatial(c: OnnxNode, shape: Shape | None = None) -> Shape:
    """Return the sizes behind batch and channel of a shape; None: that of the first input.

    ShapeError for fewer than three axes.
    """
    shape = c.shape(0) if shape is None else shape
    if len(shape) < 3:
        c.refuse(f"needs (N, C, *spatial); got shape {shape}", "W1", ShapeError)
    return shape[2:]


def _steps(c: OnnxNode, name: str, rank: int) -> Shape:
    """Return the attribute `name`, strides or dilations, one for each of `rank` axes; 1 if they are left out.

    ShapeError for another number of them, and outside 1..MAX_STEP.
    """
    values = c.ints(name, [1] * rank)
    if len(values) != rank:
        c.refuse(f"{name}={values} has {len(values)} entries for {rank} spatial axes", "W1", ShapeError)
    if any(not 1 <= v <= MAX_STEP for v in values):
        c.refuse(f"{name}={values} must lie in 1..{MAX_STEP}", "W1", ShapeError)
    return tuple(values)


def _pairs(c: OnnxNode, pads: list[int], rank: int) -> tuple[tuple[int, int], ...]:
    """Return pads (all begins, then all ends) as one (low, high) per axis. ShapeError for another number of them."""
    if len(pads) != 2 * rank:
        c.refuse(f"pads={pads} must have {2 * rank} entries, all begins then all ends", "W1", ShapeError)
    return tuple(zip(pads[:rank], pads[rank:], strict=True))


def _padding(c: OnnxNode, rank: int) -> Padding:
    """Return the padding over `rank` axes: (low, high) pairs of pads, or a word of auto_pad; refused if both are
    given.
    """
    auto = c.string("auto_pad", "NOTSET")
    pads = c.ints("pads", None)
    if auto not in AUTO_PADS:
        c.refuse(f"auto_pad={auto[:50]!r} must be one of {', '.join(AUTO_PADS)}")
    word = AUTO_PADS[auto]
    if word is None:
        return ((0, 0),) * rank if pads is None else _pairs(c, pads, rank)
    if pads is not None and any(pads):
        c.refuse(f"pads={pads} cannot be used together with auto_pad={auto}")
    return word


LEAST_AGREED_PADDING = -2  # Conv pads by 0 in all runtimes down to this; from -3 on ONNX Runtime crops


def _refuse_negative_same_padding(
    c: OnnxNode, sizes: Shape, kernel: Shape, given: Mapping[str, Any], least: int
) -> None:
    """Refuse the node if SAME would pad by less than `least` cells in all, where runtimes disagree.

    `sizes` are spatial, `given` holds padding, stride and dilation. Down to `least` all runtimes pad by 0.
    """
    if given["padding"] not in ("same_upper", "same_lower"):
        return
    total = min(map(window.same_total, sizes, kernel, given["stride"], given["dilation"]))
    if total < least:
        text = (
            f"auto_pad=SAME pads by {total} cells in all, which ONNX does not explain: runtimes pad by 0, crop or fail"
        )
        c.refuse(f"{text}; write pads instead")


def pool_window(c: OnnxNode, like: str = "", version: int = 0) -> Window:
    """Return the window of a pooling node; attributes that its version lacks are left for `finish` to refuse.

    like, version    what to read it as, where the node is of another domain
    """
    like, version = like or c.node.op_type, version or c.version
    sizes = spatial(c)
    rank = len(sizes)
    kernel = tuple(c.ints("kernel_shape"))
    if len(kernel) != rank:
        c.refuse(f"kernel_shape={kernel} has {len(kernel)} entries for {rank} spatial axes", "W1", ShapeError)
    dilations = _steps(c, "dilations", rank) if version >= DILATION_SINCE[like] else (1,) * rank
    ceil = c.flag("ceil_mode") if version >= CEIL_SINCE[like] else False
    given: dict[str, Any] = {"stride": _steps(c, "strides", rank), "padding": _padding(c, rank), "dilation": dilations}
    win = window.strided(c.node.op_type, sizes, kernel, ceil=ceil, **given)
    if ceil and given["padding"] == "valid" and win != window.strided(c.node.op_type, sizes, kernel, **given):
        text = "auto_pad=VALID with ceil_mode=1: ONNX's text and its shape inference give different sizes here"
        c.refuse(text + f" (input {sizes}, kernel {kernel}); write pads of 0 instead")
    _refuse_negative_same_padding(c, sizes, kernel, given, 0)
    return win


DILATION_SINCE = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}  # the version that brought the attribute
CEIL_SINCE = {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}


# --- convolution ------------------------------------------------------------------------------------------------


def _conv_parts(c: OnnxNode, x: Value, weight: int = 1) -> tuple[Shape, Shape, int]:
    """Return kernel, dilations and groups of a convolution of x; kernel_shape must agree with the weights.

    ShapeError if they contradict each other or the weights.
    """
    sizes, w = spatial(c, tuple(x.shape)), c.shape(weight)
    if len(w) != len(sizes) + 2:
        c.refuse(f"weights of shape {w} do not fit an input of shape {tuple(x.shape)}", "C1", ShapeError)
    kernel = tuple(c.ints("kernel_shape", list(w[2:])))
    if kernel != w[2:]:
        c.refuse(f"kernel_shape={kernel} contradicts weights of shape {w}", "C1", ShapeError)
    return kernel, _steps(c, "dilations", len(sizes)), c.integer("group", 1)


def convolve(c: OnnxNode, x: Value, w: Value, b: Value | None, weight: int = 1) -> Value:
    """Return the convolution of x with w by the node's attributes; `weight` is the number of the weight input.

    Refused: attributes and shapes that do not fit.
    """
    kernel, dilations, groups = _conv_parts(c, x, weight)
    given: dict[str, Any] = {"stride": _steps(c, "strides", len(kernel)), "padding": _padding(c, len(kernel))}
    given["dilation"] = dilations
    _refuse_negative_same_padding(c, spatial(c, tuple(x.shape)), kernel, given, LEAST_AGREED_PADDING)
    return conv(w, b, x, groups=groups, **given)


@operator("Conv", 1, 11, 22, note="kernel_shape must agree with the weights; auto_pad and pads not together")
def _conv(c: OnnxNode) -> Value:
    """Convert ONNX Conv."""
    return convolve(c, c.real(0), c.real(1), c.optional(2))


def _transpose_padding(c: OnnxNode, sizes: Shape, kernel: Shape, given: dict[str, Shape]) -> tuple[Any, Shape]:
    """Return (low, high) padding per axis, and the cells that lack at the high end; output_shape overrides pads.

    `given` holds stride, dilation and output_padding. Refused: words and numbers that do not fit, and sizes on whose
    padding ONNX's texts differ.
    """
    rank = len(sizes)
    auto, pads, output = c.string("auto_pad", "NOTSET"), c.ints("pads", None), c.ints("output_shape", None)
    if auto not in AUTO_PADS:
        c.refuse(f"auto_pad={auto[:50]!r} must be one of {', '.join(AUTO_PADS)}")
    if auto != "NOTSET" and pads is not None and any(pads):
        c.refuse(f"pads={pads} cannot be used together with auto_pad={auto}")
    if output is None and auto in ("NOTSET", "VALID"):
        return (((0, 0),) * rank if pads is None else _pairs(c, pads, rank)), (0,) * rank
    same = output is None
    if same:
        output = [n * s for n, s in zip(sizes, given["stride"], strict=True)]
    if len(output) == rank + 2:  # older exporters wrote batch and channels too
        output = output[2:]
    if len(output) != rank or min(output) < 1:
        c.refuse(f"output_shape={output} must have {rank} positive entries", "C2", ShapeError)
    pairs, lacking = window.transposed_padding(sizes, kernel, tuple(output), upper=auto == "SAME_UPPER", **given)
    if c.version == 1 and any(lo != hi for lo, hi in pairs):
        c.refuse("version 1 says two different things about where an odd cell of padding goes; write pads")
    if same and any(lacking):
        text = f"auto_pad={auto} cannot reach {output} cells: ONNX's text, its shape inference and its reference differ"
        c.refuse(text + "; write output_shape or pads")
    return pairs, lacking


@operator("ConvTranspose", 1, 11, 22, note=TRANSPOSED)
def _conv_transpose(c: OnnxNode) -> Value:
    """Convert ONNX ConvTranspose. Refused: attributes and shapes that do not fit."""
    kernel, dilations, groups = _conv_parts(c, c.real(0))
    rank = len(kernel)
    extra = tuple(c.ints("output_padding", [0] * rank))
    if len(extra) != rank:
        c.refuse(f"output_padding={extra} has {len(extra)} entries for {rank} spatial axes", "C2", ShapeError)
    given: dict[str, Any] = {"stride": _steps(c, "strides", rank), "output_padding": extra, "dilation": dilations}
    padding, lacking = _transpose_padding(c, spatial(c), kernel, given)
    bias = c.optional(2)
    y = conv_transpose(c.real(1), None if any(lacking) else bias, c.real(0), padding=padding, groups=groups, **given)
    if not any(lacking):
        return y
    y = pad(y, [(0, n) for n in lacking])
    return y if bias is None else add(y, reshape(bias, (-1,) + (1,) * rank))


@operator("DeformConv", 19, 22, note="refused: it reads between cells, at positions that depend on the data")
def _deform_conv(c: OnnxNode) -> Value:
    """Refuse ONNX DeformConv: it reads at positions that depend on the data."""
    return c.refuse("reads at positions that depend on the data: no window relation", None, UnsupportedError)


# --- pooling ----------------------------------------------------------------------------------------------------


@operator("MaxPool", 1, 8, 10, 11, 12, 22, note=MAXIMA)
def _max_pool(c: OnnxNode) -> Any:
    """Convert ONNX MaxPool.

    Values by max_pool; Indices count batch and channel too, so those are two more axes of the winner's window.
    """
    column_major = c.flag("storage_order") if c.version >= 8 else False
    win = pool_window(c)
    x = c.any_variable(0)
    y = apply(MAX_POOL, x, window=win)
    return (y, _flat_winners(x, win, column_major)) if c.outputs > 1 else y


def _flat_winners(x: Value, win: Window, column_major: bool) -> Value:
    """Return the winner's index, flat over the whole tensor; column-major counts the first spatial axis fastest."""
    order = (0, 1, *reversed(range(2, 2 + win.rank))) if column_major else tuple(range(2 + win.rank))
    flipped = Window(tuple(reversed(win.axes))) if column_major else win
    singles = tuple(window.strided("MaxPool", x.shape[:2], (1, 1)).axes)
    return permute(apply(WINNER, permute(x, order), window=Window(singles + flipped.axes)), order)


@operator("AveragePool", 7, 10, 11, 19, 22, note="dilations from version 19, ceil_mode from 10; [A1], [W3]")
def _average_pool(c: OnnxNode) -> Value:
    """Convert ONNX AveragePool; the divisor counts padding if count_include_pad says so."""
    include = c.flag("count_include_pad")
    return apply(AVG_POOL, c.real(0), window=pool_window(c), divisor="padded" if include else "inside")


def _root_of_power(total: Value, p: int) -> Value:
    """Return total**(1/p)."""
    return total if p == 1 else power(total, Fraction(1, p))


def _power_of_abs(c: OnnxNode, p: int) -> Value:
    """Return abs(x)**p of input 0. Refused: p outside 1..64."""
    if not 1 <= p <= 64:
        c.refuse(f"p={p} must lie in 1..64")
    x = abs_(c.real(0))
    return x if p == 1 else power(x, p)


@operator(
    "LpPool",
    2,
    11,
    18,
    22,
    note="of absolute values, padding counts 0; p in 1..64; ceil_mode and dilations from version 18",
)
def _lp_pool(c: OnnxNode) -> Value:
    """Convert ONNX LpPool: (sum of abs(x)**p)**(1/p) of every window; padding counts 0."""
    p = c.integer("p", 2)
    return _root_of_power(apply(AVG_POOL, _power_of_abs(c, p), window=pool_window(c), divisor=1), p)


@operator("GlobalMaxPool", 1, 22)
def _global_max_pool(c: OnnxNode) -> Value:
    """Convert ONNX GlobalMaxPool: the maximum of every plane; spatial axes stay with size 1."""
    return max_pool(c.real(0), spatial(c))


@operator("GlobalAveragePool", 1, 22)
def _global_average_pool(c: OnnxNode) -> Value:
    """Convert ONNX GlobalAveragePool: the mean of every plane; spatial axes stay with size 1."""
    return global_avg_pool(c.real(0), rank=len(spatial(c)))


@operator("GlobalLpPool", 2, 22, note="p in 1..64")
def _global_lp_pool(c: OnnxNode) -> Value:
    """Convert ONNX GlobalLpPool: (sum of abs(x)**p)**(1/p) of every plane."""
    p, sizes = c.integer("p", 2), spatial(c)
    return _root_of_power(sum_(_power_of_abs(c, p), range(2, 2 + len(sizes)), keepdims=True), p)


@operator("MaxUnpool", 9, 11, 22, note="indices refer to the size that kernel, strides and pads give; the rest is 0")
def _max_unpool(c: OnnxNode) -> Value:
    """Convert ONNX MaxUnpool. ShapeError for a kernel of another rank, and an output_shape that is too small."""
    sizes = spatial(c)
    rank = len(sizes)
    kernel = tuple(c.ints("kernel_shape"))
    if len(kernel) != rank:
        c.refuse(f"kernel_shape={kernel} has {len(kernel)} entries for {rank} spatial axes", "W1", ShapeError)
    padding = ((0, 0), (0, 0), *_pairs(c, c.ints("pads", [0] * 2 * rank), rank))
    strides = (1, 1, *_steps(c, "strides", rank))
    indices = c.value(1)
    y = max_unpool(c.real(0), indices, (1, 1, *kernel), stride=strides, padding=padding)
    if not c.has(2):
        return y
    wanted = tuple(c.known_ints(2, "output_shape"))
    if len(wanted) != rank + 2 or any(m < n for n, m in zip(y.shape, wanted, strict=True)):
        c.refuse(f"output_shape={wanted} must be at least {y.shape}", "C2", ShapeError)
    return pad(y, [(0, m - n) for n, m in zip(y.shape, wanted, strict=True)])
