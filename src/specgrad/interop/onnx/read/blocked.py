"""Converters of com.microsoft.nchwc: tensors whose channels ONNX Runtime stores in blocks of 8 or 16. They refuse what
they do not honour, and raise UnsupportedError where the block's size is not known.

A blocked tensor is declared as (N, C, H, W), with C a whole number of blocks, and stored as (N, C/block, H, W, block).
Here it is the tensor (N, C, H, W) in the order of its axes, the channels that fill up a block included. Weights are
taken out of their blocks. What reads such a tensor other than cell by cell gets it as it is stored (`as_stored`).

The block is the processor's, and a file does not say it; it follows from channels that were filled up (`block_size`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import onnx
from onnx import NodeProto

from specgrad.ops.composites import pad, upsample_nearest

from ....errors import ParameterError, ShapeError, UnsupportedError
from ....op import Value, apply
from ....ops.avg_pool import AVG_POOL, global_avg_pool
from ....ops.layout import permute, reshape, slice_
from ....ops.max_pool import MAX_POOL, max_pool
from ....ops.resize import resize
from ....scalar import Array
from .activations import convolution_activation
from .fused import SUMMED, add_summand
from .importer import Importer
from .node import BLOCKED, OnnxNode, contributed
from .windows import convolve, pool_window

SIZES = (8, 16)
CELLWISE = ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "LeakyRelu", "Elu", "Gelu", "QuickGelu", "Identity")
SAME_SHAPES = ("Add", "Sum", "Mul", *CELLWISE)
UNDECIDED = "the file does not say whether blocks have 8 or 16 channels: no channels were filled up"


# --- which values are blocked -----------------------------------------------------------------------------------------


def block_size(graph: onnx.GraphProto) -> int | None:
    """Return the channels of a block, 8 or 16; None where a file does not say it, or contradicts itself."""
    seen = set(_shown_block_sizes(graph))
    return seen.pop() if len(seen) == 1 else None


def chosen_block_size(graph: onnx.GraphProto, asked: int | None) -> int | None:
    """Return the channels of a block: what the graph shows, else what was `asked` for.

    ParameterError for other than 8 and 16, and where the graph shows another number.
    """
    shown = block_size(graph)
    if asked is not None and (asked not in SIZES or shown not in (None, asked)):
        text = f"block_channels={asked!r} must be one of {SIZES}" + (f"; the file shows {shown}" if shown else "")
        raise ParameterError("from_onnx", text)
    return asked if shown is None else shown


def _shown_block_sizes(graph: onnx.GraphProto) -> Iterator[int]:
    """Yield the block sizes that single nodes show.

    An odd number of eights is no whole number of blocks of 16; 8 channels or more would have been blocked by 8, and
    filled up by 8 or more would be a block of 8 too many.
    """
    dims = {t.name: tuple(t.dims) for t in graph.initializer}
    plain = {i.name for i in graph.input} | {""}  # surely in the order of axes
    channels: dict[str, int] = {}  # of values that are surely blocked, where they are known
    for node in graph.node:
        first = node.input[0] if node.input else ""
        if node.domain != BLOCKED:
            if node.op_type in SAME_SHAPES and first in channels:
                channels[node.output[0]] = channels[first]
            if node.op_type != "Reshape" and all(name in plain or name in dims for name in node.input):
                plain.update(node.output)
            continue
        w = dims.get(node.input[1], ()) if node.op_type == "Conv" and len(node.input) > 1 else ()
        if node.op_type == "ReorderOutput":
            wanted = sum(a.i for a in node.attribute if a.name == "channels")
            yield from (SIZES[1],) if channels.get(first, 0) - wanted >= SIZES[0] else ()
            plain.update(node.output)
        elif len(w) == 4:
            yield from (SIZES[1],) if first in plain and w[1] >= SIZES[0] else ()
            yield from (SIZES[0],) if w[0] % SIZES[1] else ()
            channels[node.output[0]] = w[0]
        elif first in channels:
            channels[node.output[0]] = channels[first]


def stays_blocked(importer: Importer, node: NodeProto) -> bool:
    """Return whether a node of another domain computes blocked values from blocked values, cell by cell."""
    if any(name not in importer.blocks for name in node.input):
        return False
    shapes = {tuple(importer.values[name].shape) for name in node.input}
    along = node.op_type == "Concat" and next((a.i for a in node.attribute if a.name == "axis"), 0) == 1
    return along or (node.op_type in SAME_SHAPES and len(shapes) == 1)


@contextmanager
def layout_of(importer: Importer, node: NodeProto) -> Iterator[None]:
    """Context manager in which a node is converted: cell by cell on blocked values, else on values as they are stored.

    Results of the former are marked as blocked.
    """
    blocked = {name: importer.values[name] for name in node.input if name in importer.blocks}
    if not blocked or node.domain == BLOCKED:
        yield
    elif stays_blocked(importer, node):
        importer.blocks.update(dict.fromkeys(node.output, importer.blocks[node.input[0]]))
        yield
    else:
        importer.values.update({name: as_stored(x, importer.blocks[name]) for name, x in blocked.items()})
        try:
            yield
        finally:
            importer.values.update(blocked)


def as_stored(x: Value, block: int) -> Value:
    """Return a tensor (N, C, H, W) with its cells in the order in which blocks of channels are stored."""
    n, c, *sizes = x.shape
    return reshape(permute(reshape(x, (n, c // block, block, *sizes)), (0, 1, 3, 4, 2)), x.shape)


def _from_stored(x: Value, block: int) -> Value:
    """Return the tensor (N, C, H, W) in the order of its axes whose blocks are stored as x."""
    n, c, *sizes = x.shape
    return reshape(permute(reshape(x, (n, c // block, *sizes, block)), (0, 1, 4, 2, 3)), x.shape)


def in_axis_order(stored: Array, block: int) -> Array:
    """Return a tensor whose channels are stored in blocks with its cells in the order of the axes N, C, H, W.

    >>> in_axis_order(np.arange(8).reshape(1, 4, 1, 2), 2)[0, :, 0].tolist()
    [[0, 2], [1, 3], [4, 6], [5, 7]]
    """
    n, c, *sizes = stored.shape
    return np.moveaxis(stored.reshape(n, c // block, *sizes, block), -1, 2).reshape(stored.shape)


# --- converters -------------------------------------------------------------------------------------------------------


def _block_of_result(c: OnnxNode) -> int:
    """Return the channels of a block, and mark the node's result as blocked.

    UnsupportedError if the block is not known yet.
    """
    block = c.importer.block
    if block is None:
        c.refuse(UNDECIDED, None, UnsupportedError)
    c.importer.blocks[c.node.output[0]] = block
    return block


def _in_axis_order_input(c: OnnxNode, i: int = 0) -> Value:
    """Return input i in the order of its axes; one that no other operator blocked is stored in blocks all the same.

    Refused: other than four axes, and channels that are no whole number of blocks; UnsupportedError if the block is
    unknown.
    """
    x, block = c.real(i), c.importer.block
    if block is None:
        c.refuse(UNDECIDED, None, UnsupportedError)
    if len(x.shape) != 4 or x.shape[1] % block:
        c.refuse(f"input {i} of shape {tuple(x.shape)} must be (N, C, H, W) in blocks of {block}", "C1", ShapeError)
    return x if c.input_name(i) in c.importer.blocks else _from_stored(x, block)


def _as_stored_input(c: OnnxNode) -> Value:
    """Return input 0 as it is stored, with four axes. ShapeError for other numbers of axes."""
    x = c.real(0)
    if len(x.shape) != 4:
        c.refuse(f"input 0 of shape {tuple(x.shape)} must have four axes", "C1", ShapeError)
    return as_stored(x, c.importer.blocks[c.input_name(0)]) if c.input_name(0) in c.importer.blocks else x


@contributed("ReorderInput", 1, 1, note="fills up the last block with zeros", domain=BLOCKED)
def _reorder_input(c: OnnxNode) -> Value:
    """Convert ReorderInput: a plain tensor as a blocked one, channels filled up with zeros."""
    x = permute(_as_stored_input(c), (0, 3, 1, 2)) if c.flag("channels_last") else _as_stored_input(c)
    block = _block_of_result(c)
    return pad(x, [(0, -x.shape[1] % block), (0, 0), (0, 0)])


@contributed("ReorderOutput", 1, 1, note="the first `channels` of them", domain=BLOCKED)
def _reorder_output(c: OnnxNode) -> Value:
    """Convert ReorderOutput: the first `channels` channels of a blocked tensor, plain; refused if it has fewer."""
    x, channels, last = _in_axis_order_input(c), c.integer("channels"), c.flag("channels_last")
    if not 0 < channels <= x.shape[1]:
        c.refuse(f"channels={channels} must lie in 1..{x.shape[1]}", "C1", ShapeError)
    y = slice_(x, None, slice(0, channels), None, None)
    return permute(y, (0, 2, 3, 1)) if last else y


def _unblocked_weights(c: OnnxNode, blocked_input: bool, block: int) -> Value:
    """Return the weights (M, C/group, kH, kW) of a convolution, taken out of their blocks.

    blocked_input   stored as (M/block, C/block, kH, kW, block of C, block of M); else (M/block, C, kH, kW, block of M)
    block           channels per block

    Refused: weights that are no constant with four axes, and sizes that are no whole number of blocks.
    """
    importer, name = c.importer, c.input_name(1)
    stored = importer.values[name]
    if not isinstance(stored, np.ndarray) or stored.ndim != 4:
        return c.refuse("the weights must be a constant with four axes", None, UnsupportedError)
    m, channels, *kernel = stored.shape
    if m % block or (blocked_input and channels % block):
        c.refuse(f"weights of shape {stored.shape} are no whole number of blocks of {block}", "C1", ShapeError)
    key = f"{name} ({'OIHWBiBo' if blocked_input else 'OIHWBo'})"
    if key not in importer.recorded:
        parts = (channels // block, *kernel, block) if blocked_input else (channels, *kernel)
        cells = stored.reshape(m // block, *parts, block)
        order = (0, 5, 1, 4, 2, 3) if blocked_input else (0, 4, 1, 2, 3)
        importer.recorded[key] = importer.trace.constant(cells.transpose(order).reshape(stored.shape), name)
    return importer.recorded[key]


@contributed("Conv", 2, 4, note=f"weights are constants, in blocks; {SUMMED}", domain=BLOCKED)
def _conv(c: OnnxNode) -> Value:
    """Convert Conv of blocked channels; few channels, less than a block, are read as they are."""
    few = len(c.shape(0)) == 4 and c.importer.block is not None and c.shape(0)[1] < c.importer.block
    x, block = c.real(0) if few else _in_axis_order_input(c), _block_of_result(c)
    is_depthwise = c.shape(1)[1:2] == (1,) and tuple(x.shape[1:2]) == c.shape(1)[:1]
    y = convolve(c, x, _unblocked_weights(c, not few and not is_depthwise, block), c.optional(2))
    return convolution_activation(c, add_summand(c, y, _in_axis_order_input(c, 3) if c.has(3) else None))


@contributed("MaxPool", 1, 1, note="as MaxPool, without Indices", domain=BLOCKED)
def _max_pool(c: OnnxNode) -> Value:
    """Convert MaxPool of blocked channels."""
    c.without_effect("storage_order", "int")  # of Indices
    x = _in_axis_order_input(c)
    _block_of_result(c)
    return apply(MAX_POOL, x, window=pool_window(c, "MaxPool", 12))


@contributed("AveragePool", 1, 1, note="refused: dilations, count_include_pad=1 with ceil_mode=1", domain=BLOCKED)
def _average_pool(c: OnnxNode) -> Value:
    """Convert AveragePool of blocked channels. Refused: dilations, and ceil_mode with count_include_pad."""
    include, x = c.flag("count_include_pad"), _in_axis_order_input(c)
    c.require("ceil_mode", "int", *((0,) if include else (0, 1)))
    c.require("dilations", "ints", [1, 1])
    _block_of_result(c)
    return apply(AVG_POOL, x, window=pool_window(c, "AveragePool", 7), divisor="padded" if include else "inside")


@contributed("GlobalMaxPool", 1, 1, domain=BLOCKED)
def _global_max_pool(c: OnnxNode) -> Value:
    """Convert GlobalMaxPool of blocked channels."""
    x = _in_axis_order_input(c)
    _block_of_result(c)
    return max_pool(x, tuple(x.shape[2:]))


@contributed("GlobalAveragePool", 1, 1, domain=BLOCKED)
def _global_average_pool(c: OnnxNode) -> Value:
    """Convert GlobalAveragePool of blocked channels."""
    x = _in_axis_order_input(c)
    _block_of_result(c)
    return global_avg_pool(x, rank=2)


@contributed("Upsample", 1, 1, note="by whole numbers; nearest, or linear", domain=BLOCKED)
def _upsample(c: OnnxNode) -> Value:
    """Convert Upsample of blocked channels.

    Refused: scales that are not whole or move batch or channels, and unknown modes.
    """
    x, scales, mode = _in_axis_order_input(c), c.ints("scales", [1, 1, 1, 1]), c.string("mode", "nearest")
    where = c.string("coordinate_transformation_mode", "asymmetric")
    if len(scales) != 4 or scales[:2] != [1, 1] or min(scales) < 1 or math.prod(scales) > 2**16:
        c.refuse(f"scales={scales} must be [1, 1, m, n] with m, n from 1 on")
    if where not in ("asymmetric", "align_corners", "half_pixel"):
        c.refuse(f"coordinate_transformation_mode={where[:50]!r} is not supported")
    if mode not in ("nearest", "linear"):
        c.refuse(f"mode={mode[:50]!r} must be nearest or linear")
    _block_of_result(c)
    if mode == "nearest":
        return upsample_nearest(x, tuple(scales[2:]))
    sizes = [n * s for n, s in zip(x.shape[2:], scales[2:], strict=True)]
    axes = [a for a in (2, 3) if scales[a] > 1]
    return resize(x, [sizes[a - 2] for a in axes], axes=axes, where=where) if axes else x
