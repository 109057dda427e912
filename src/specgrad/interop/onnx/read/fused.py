"""Converters of com.microsoft operators that ONNX Runtime's optimiser writes in place of several nodes. They refuse
what they do not honour, and raise ShapeError where shapes do not fit.
"""

from __future__ import annotations

from typing import Any

from specgrad.ops.composites import layer_norm

from ....errors import ShapeError
from ....op import Value
from ....ops.activation import gelu, sigmoid
from ....ops.contract import matmul
from ....ops.elementwise import add, div, mean, mul, sqrt
from ....ops.layout import axis_of, broadcast, permute
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
