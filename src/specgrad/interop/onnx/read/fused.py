"""Converters of com.microsoft operators that ONNX Runtime's optimiser writes in place of several nodes. They refuse
what they do not honour, and raise ShapeError where shapes do not fit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto

from specgrad.ops.composites import layer_norm

from ....errors import ShapeError
from ....op import Value
from ....ops.activation import gelu, sigmoid
from ....ops.contract import matmul
from ....ops.elementwise import add, div, mean, mul, sqrt, sub
from ....ops.layout import axis_of, broadcast, permute, reshape, slice_
from ....scalar import Array
from .activations import convolution_activation, product_activation
from .math import general_product
from .node import OnnxNode, contributed
from .windows import convolve

INFERENCE = "refused: the outputs mean and inv_std_var"
SUMMED = "conv(W, B, X) + Z, then the activation; Z has the shape of the result"


def add_summand(c: OnnxNode, y: Value, z: Value | None) -> Value:
    """Return y + z, y if z is None; ShapeError unless both have one shape."""
    if z is not None and tuple(z.shape) != tuple(y.shape):
        c.refuse(
            f"the summand must have the shape of the result, {tuple(y.shape)}; got {tuple(z.shape)}", "C1", ShapeError
        )
    return y if z is None else add(y, z)


@contributed("FusedConv", 2, 4, note=SUMMED)
def _fused_conv(c: OnnxNode) -> Value:
    """Convert FusedConv: a Conv, plus the optional fourth input, then the activation that the node names."""
    y = convolve(c, c.real(0), c.real(1), c.optional(2))
    return convolution_activation(c, add_summand(c, y, c.optional(3)))


@contributed("NhwcFusedConv", 2, 4, note=f"X, Z and the result have their channels last; {SUMMED}")
def _nhwc_fused_conv(c: OnnxNode) -> Value:
    """Convert NhwcFusedConv: a FusedConv of (N, *spatial, C) with weights as of Conv; refused below rank 3."""
    rank = len(c.shape(0))
    if rank < 3:
        c.refuse(f"needs (N, *spatial, C); got shape {c.shape(0)}", "W1", ShapeError)
    first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    x = permute(c.real(0), first)
    y = permute(convolve(c, x, c.real(1), c.optional(2)), last)
    return convolution_activation(c, add_summand(c, y, c.optional(3)))


@contributed("FusedGemm", 2, 3, note="as Gemm, then the activation; its parameters are written")
def _fused_gemm(c: OnnxNode) -> Value:
    """Convert FusedGemm: a Gemm, then the activation that the node names."""
    return product_activation(c, general_product(c))


def _transposed_factor(c: OnnxNode, i: int, letter: str) -> Value:
    """Return factor i of a FusedMatMul, called `letter` ("A" or "B"), after transBatch and trans.

    transBatch moves the first axis behind the other batch axes; trans swaps the last two after that. ShapeError for
    transBatch with fewer than three axes.
    """
    x, swap, turn = c.real(i), c.flag(f"trans{letter}"), c.flag(f"transBatch{letter}")
    rank = len(x.shape)
    if turn and rank < 3:
        c.refuse(f"transBatch{letter}=1 needs 3 axes or more; got shape {x.shape}", "C1", ShapeError)
    order = [*range(1, rank - 1), 0, rank - 1] if turn else list(range(rank))
    if swap and rank > 1:  # a vector stays one
        order[-2:] = reversed(order[-2:])
    return permute(x, order)


@contributed("FusedMatMul", 2, 2, note="alpha times a product as of MatMul")
def _fused_matmul(c: OnnxNode) -> Value:
    """Convert FusedMatMul: alpha times the product of A and B, each transposed as the node says."""
    alpha = c.floating("alpha", 1.0)
    y = matmul(_transposed_factor(c, 0, "A"), _transposed_factor(c, 1, "B"))
    return y if alpha == 1 else mul(y, alpha)


def _with_bias(c: OnnxNode) -> Value:
    """Return input 0 plus the bias, input 1, if it is given: one number per entry of the last axis.

    ShapeError for a bias of another shape.
    """
    x = c.real(0)
    if not c.has(1):
        return x
    if c.shape(1) != tuple(x.shape[-1:]):
        c.refuse(f"the bias must have shape {tuple(x.shape[-1:])}; got {c.shape(1)}", "C1", ShapeError)
    return add(x, c.real(1))


contributed("Gelu", 1, 1)(lambda c: gelu(c.real(0)))
contributed("BiasGelu", 2, 2, note="gelu(A + B)")(lambda c: gelu(_with_bias(c)))
contributed("FastGelu", 1, 2, note="the approximation by tanh, of X + bias")(lambda c: gelu(_with_bias(c), "tanh"))


@contributed("QuickGelu", 1, 1, note="x*sigmoid(alpha*x)")
def _quick_gelu(c: OnnxNode) -> Value:
    """Convert QuickGelu: x * sigmoid(alpha*x)."""
    x, alpha = c.real(0), c.floating("alpha", 1.702)
    return mul(x, sigmoid(mul(x, alpha)))


@contributed("SkipLayerNormalization", 3, 5, note=INFERENCE, outputs=4)
def _skip_layer_normalization(c: OnnxNode) -> Any:
    """Convert SkipLayerNormalization: the layer norm of input + skip + bias, and that sum.

    Refused: the outputs of training, and shapes that do not fit.
    """
    total, eps = _skipped_sum(c, (2, 3, 4)), c.floating("epsilon", 1e-12)
    y = layer_norm(total, tuple(total.shape[-1:]), c.real(2), c.optional(3), eps=eps)
    return (y, y, y, total) if c.outputs == 4 else y


@contributed("SkipSimplifiedLayerNormalization", 3, 4, note=INFERENCE, outputs=4)
def _skip_simplified_layer_normalization(c: OnnxNode) -> Any:
    """Convert SkipSimplifiedLayerNormalization: input + skip + bias over its root mean square, and that sum.

    Refused: the outputs of training, and shapes that do not fit.
    """
    total, eps = _skipped_sum(c, (2, 3)), c.floating("epsilon", 1e-12)
    y = mul(_over_root_mean_square(total, len(total.shape) - 1, eps), c.real(2))
    return (y, y, y, total) if c.outputs == 4 else y


def _skipped_sum(c: OnnxNode, rows_at: tuple[int, ...]) -> Value:
    """Return input + skip + bias, the bias being the last of the inputs `rows_at`, which hold one row each.

    Refused: the outputs of training, and shapes that do not fit.
    """
    for i in (1, 2):
        if i < c.outputs and c.node.output[i] in c.importer.used:
            c.refuse(
                f"output {i} ({('mean', 'inv_std_var')[i - 1]}) is of training, and not computed in inference", None
            )
    x, bias = c.real(0), rows_at[-1]
    hidden = tuple(x.shape[-1:])
    rows = {i: c.shape(i) for i in rows_at if c.has(i)}
    if len(x.shape) not in (2, 3) or any(row != hidden for row in rows.values()):
        c.refuse(f"needs (batch, sequence, hidden) and rows of {hidden}; got {c.shape(0)} and {rows}", "C1", ShapeError)
    skip = c.real(1)
    if tuple(skip.shape) not in (tuple(x.shape), tuple(x.shape[1:]), (1, *x.shape[1:])):
        c.refuse(f"skip of shape {c.shape(1)} does not fit the input of shape {c.shape(0)}", "C1", ShapeError)
    total = add(x, broadcast(skip, x.shape))
    return add(total, c.real(bias)) if c.has(bias) else total


# --- of language models -----------------------------------------------------------------------------------------------


@contributed("MatMulNBits", 3, 6, note="A by the transposed weights (q - zero)*scale, bits 4 or 8; g_idx is refused")
def _product_of_few_bits(c: OnnxNode) -> Value:
    """Convert MatMulNBits: A by the transpose of weights of 4 or 8 bits, which share a scale and a zero per block of a
    row, plus the bias.

    Refused: an accuracy_level at which A is rounded to int8, columns in another order (g_idx), other bits. ShapeError
    for shapes that do not fit.
    """
    columns, rows, size = c.integer("K"), c.integer("N"), c.integer("block_size")
    bits = c.integer("bits", 4)
    c.require("accuracy_level", "int", 0, 1)
    if bits not in (4, 8) or size < 16 or size & (size - 1):
        c.refuse(f"needs 4 or 8 bits in blocks of a power of 2 from 16 on; got {bits} bits, blocks of {size}")
    if c.has(4):
        c.refuse("g_idx, columns in another order, is not honoured")
    blocks = -(-columns // size)
    q = _unpacked(c, 1, bits, (rows, blocks * size)).reshape(rows, blocks, size)
    if not c.has(3) or c.elem_type(3) == TensorProto.UINT8:
        zero = _unpacked(c, 3, bits, (rows, blocks)) if c.has(3) else np.full((rows, blocks), 1 << (bits - 1))
        whole = c.importer.trace.constant((q - zero[:, :, None]).astype(np.float32), f"{c.name}.whole")
    else:
        whole = sub(
            c.importer.trace.constant(q.astype(np.float32), f"{c.name}.whole"), _per_block(c, 3, rows, blocks, size)
        )
    weights = reshape(mul(whole, _per_block(c, 2, rows, blocks, size)), (rows, blocks * size))
    y = matmul(c.real(0), permute(slice_(weights, None, slice(0, columns)), (1, 0)))
    if c.has(5) and c.shape(5) != (rows,):
        c.refuse(f"the bias must have shape {(rows,)}; got {c.shape(5)}", "C1", ShapeError)
    return add(y, c.real(5)) if c.has(5) else y


def _unpacked(c: OnnxNode, i: int, bits: int, shape: tuple[int, int]) -> Array:
    """Return the numbers that input i packs into bytes, the low half first, each row from a byte of its own on.

    ShapeError if it has another number of bytes; refused if it is computed.
    """
    packed = c.known(i, "packed numbers")
    rows, count = shape
    width = -(-count * bits // 8)
    if c.elem_type(i) != TensorProto.UINT8 or packed.size != rows * width:
        c.refuse(f"input {i} must be {rows} x {width} bytes; got shape {packed.shape}", "C1", ShapeError)
    cells = packed.reshape(rows, width)
    if bits == 4:
        cells = np.stack((cells & 15, cells >> 4), -1).reshape(rows, -1)[:, :count]
    return cells.astype(np.int64)


def _per_block(c: OnnxNode, i: int, rows: int, blocks: int, size: int) -> Value:
    """Return input i, a number per block of a row, at every weight of the block; ShapeError for another count."""
    if math.prod(c.shape(i)) != rows * blocks:
        c.refuse(f"input {i} must have {rows} x {blocks} numbers; got shape {c.shape(i)}", "C1", ShapeError)
    return broadcast(reshape(c.real(i), (rows, blocks, 1)), (rows, blocks, size))


# --- in ONNX's own domain at every opset ------------------------------------------------------------------------------


@contributed(
    "LayerNormalization", 2, 3, note="below opset 17: ONNX Runtime's; the first output only", outputs=3, domain=""
)
def _early_layer_normalization(c: OnnxNode) -> Value:
    """Convert LayerNormalization of an opset that does not have it, its first output; stash_type must be 1."""
    c.require("stash_type", "int", 1)
    x = c.real(0)
    axis = axis_of("axis", c.integer("axis", -1), len(x.shape))
    return layer_norm(x, x.shape[axis:], c.real(1), c.optional(2), eps=c.floating("epsilon", 1e-5))


@contributed("SimplifiedLayerNormalization", 2, 2, note="ONNX Runtime's; the first output only", outputs=2, domain="")
def _simplified_layer_normalization(c: OnnxNode) -> Value:
    """Convert SimplifiedLayerNormalization: X over its root mean square from `axis` on, times the scale.

    Refused unless stash_type is 1 and the scale has the shape of those axes.
    """
    c.require("stash_type", "int", 1)
    x = c.real(0)
    axis = axis_of("axis", c.integer("axis", -1), len(x.shape))
    if c.shape(1) != tuple(x.shape[axis:]):
        c.refuse(f"the scale must have shape {tuple(x.shape[axis:])}; got {c.shape(1)}", "C1", ShapeError)
    return mul(_over_root_mean_square(x, axis, c.floating("epsilon", 1e-5)), c.real(1))


def _over_root_mean_square(x: Value, axis: int, eps: float) -> Value:
    """Return x / sqrt(mean of x*x over the axes from `axis` on, plus eps)."""
    squares = mean(mul(x, x), range(axis, len(x.shape)), keepdims=True)
    return div(x, sqrt(add(squares, eps)))
