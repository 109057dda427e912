"""Converters of com.microsoft operators of language models: weights of few bits, rotary positions, heads that share
keys and values with a cache of past ones. They refuse what they do not honour, and raise ShapeError where shapes do not
fit.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from onnx import TensorProto

from ....errors import ShapeError, UnsupportedError
from ....op import Value
from ....ops.attention import attention
from ....ops.contract import matmul
from ....ops.elementwise import add, mul, sub
from ....ops.gather import gather
from ....ops.layout import broadcast, concat, permute, reshape, slice_
from ....scalar import Array
from ....window import Shape
from .node import OnnxNode, contributed

# --- weights of few bits ----------------------------------------------------------------------------------------------


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


# --- rotary positions -------------------------------------------------------------------------------------------------


def _rotated(x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """Return x (batch, heads, sequence, size) with the pairs of its first cells turned: (a, b) becomes
    (a*cos - b*sin, b*cos + a*sin); cells behind them stay.

    cos, sin      (batch or 1, 1, sequence, pairs)
    interleaved   whether pairs are neighbours; else the first half is paired with the second
    """
    pairs, size = cos.shape[-1], x.shape[-1]
    ends = ((0, 2 * pairs, 2), (1, 2 * pairs, 2)) if interleaved else ((0, pairs), (pairs, 2 * pairs))
    a, b = (slice_(x, None, None, None, slice(*end)) for end in ends)
    turned = [sub(mul(a, cos), mul(b, sin)), add(mul(b, cos), mul(a, sin))]
    if interleaved:
        turned = [reshape(concat([reshape(t, (*a.shape, 1)) for t in turned], -1), (*x.shape[:3], 2 * pairs))]
    rest = [slice_(x, None, None, None, slice(2 * pairs, size))] if size > 2 * pairs else []
    return concat([*turned, *rest], -1)


def _angles(c: OnnxNode, i: int, at: Value) -> tuple[Value, Value]:
    """Return cosines and sines, inputs i and i + 1, at the positions `at` (batch or 1, sequence), for `_rotated`.

    ShapeError unless both are tables of one shape, and for known positions outside of them.
    """
    rows = c.shape(i)[:1]
    if len(c.shape(i)) != 2 or c.shape(i) != c.shape(i + 1):
        c.refuse(f"tables of shapes {c.shape(i)} and {c.shape(i + 1)} must be matrices of one shape", "C1", ShapeError)
    if isinstance(at, np.ndarray) and at.size and not 0 <= at.min() <= at.max() < rows[0]:
        c.refuse(f"positions must lie in 0..{rows[0] - 1}; got {at.min()}..{at.max()}", "C1", ShapeError)
    tables = (gather(c.real(i + k), at, axis=0) for k in (0, 1))
    cos, sin = (reshape(t, (at.shape[0], 1, *t.shape[1:])) for t in tables)
    return cos, sin


def _heads_apart(x: Value, heads: int) -> Value:
    """Return x (batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    return permute(reshape(x, (*x.shape[:2], heads, x.shape[2] // heads)), (0, 2, 1, 3))


def _heads_joined(x: Value) -> Value:
    """Return x (batch, heads, sequence, size) as (batch, sequence, heads * size)."""
    batch, heads, cells, size = x.shape
    return reshape(permute(x, (0, 2, 1, 3)), (batch, cells, heads * size))


@contributed("RotaryEmbedding", 4, 4, note="refused: a scale, ragged batches, one position that is computed")
def _rotary_embedding(c: OnnxNode) -> Value:
    """Convert RotaryEmbedding: pairs of cells of every head, turned by the angles that the tables have at a position.

    Refused: a scale other than 1, ragged batches, and a first position that is computed.
    """
    c.require("scale", "float", 1.0)
    c.require("is_packed_batching", "int", 0)
    interleaved, x = c.flag("interleaved"), c.real(0)
    heads = _rotary_heads(c)
    y = x if len(x.shape) == 4 else _heads_apart(x, heads)
    y = _rotated(y, *_angles(c, 2, _positions(c, y.shape[0], y.shape[2])), interleaved)
    return y if len(x.shape) == 4 else _heads_joined(y)


def _rotary_heads(c: OnnxNode) -> int:
    """Return how many heads input 0 of a RotaryEmbedding has. ShapeError where attributes and tables do not fit it.

    Without rotary_embedding_dim all of a head is turned, and the tables say how large one is.
    """
    heads, part, shape, turned = (
        c.integer("num_heads", 0),
        c.integer("rotary_embedding_dim", 0),
        c.shape(0),
        2 * c.shape(2)[-1],
    )
    cells = math.prod(shape[1::2]) if len(shape) == 4 else shape[-1]
    count = heads or cells // max(turned, 1)
    whole = len(shape) in (3, 4) and count > 0 and cells % count == 0 and (len(shape) == 3 or shape[1] == count)
    if not whole or turned != (part or cells // count) or turned > cells // count or (part and not heads):
        text = f"num_heads={heads}, rotary_embedding_dim={part} and tables {c.shape(2)} do not fit input {shape}"
        c.refuse(text, "C1", ShapeError)
    return int(count)


def _positions(c: OnnxNode, batch: int, cells: int) -> Value:
    """Return the positions of a RotaryEmbedding, (batch or 1, cells): input 1 has all, or the first alone.

    ShapeError for another shape; UnsupportedError for a first one that is computed.
    """
    known = c.importer.constant_value(c.input_name(1))
    if c.shape(1) == (batch, cells):
        return c.positions(1) if known is None else np.asarray(known, np.int64)
    if math.prod(c.shape(1)) != 1:
        c.refuse(f"position_ids {c.shape(1)} must have shape (1,) or {(batch, cells)}", "C1", ShapeError)
    if known is None and cells == 1:
        return reshape(c.positions(1), (1, 1))
    if known is None:
        c.refuse("a first position that depends on the input is not supported; it can be fixed", None, UnsupportedError)
    return int(known.reshape(-1)[0]) + np.arange(cells)[None]


# --- attention with a cache -------------------------------------------------------------------------------------------

UNREAD = {
    9: "position_ids", 10: "attention_bias", 11: "head_sink", 12: "k_scale", 13: "v_scale", 14: "q_norm_weight",
    15: "k_norm_weight",
}  # fmt: skip
REQUIRED = (
    ("causal", 1),
    ("smooth_softmax", -1, 0),
    ("qk_output", 0),
    ("sliding_window_cache", 0),
    ("kv_cache_bit_width", 0),
    ("k_quant_type", "NONE"),
    ("v_quant_type", "NONE"),
)
CACHED = "seqlens_k and total_sequence_length are known, and count past and new keys: no padding, no longer buffers"
CACHED += "; local_window_size counts the query's own key, as in ONNX Runtime from 1.24 on"


@contributed("GroupQueryAttention", 7, 16, note=CACHED, outputs=4)
def _group_query_attention(c: OnnxNode) -> tuple[Value, Value, Value]:
    """Convert GroupQueryAttention: attention of queries to past keys and values and to new ones up to themselves; and
    all keys and values.

    Refused: inputs of UNREAD, quantised caches, a smoothed softmax, attention to later keys, lengths that are computed,
    keys that are padded, buffers longer than what they hold.
    """
    for name in (UNREAD[i] for i in UNREAD if c.has(i)):
        c.refuse(f"input {name} is not honoured")
    for name, *honoured in REQUIRED:
        c.require(name, "int" if isinstance(honoured[0], int) else "string", *honoured)
    c.without_effect("qk_norm_epsilon", "float")  # of weights that are refused
    shared, turns, interleaved = c.integer("kv_num_heads"), c.flag("do_rotary"), c.flag("rotary_interleaved")
    q, k, v = _projections(c, c.integer("num_heads"), shared)
    cells = q.shape[2]
    total = _total_cells(c, k.shape)
    if turns:
        angles = _angles(c, 7, np.arange(total - cells, total)[None])
        q, k = (_rotated(x, *angles, interleaved) for x in (q, k))
    keys, values = (concat([c.real(i), x], 2) if total > cells else x for i, x in ((3, k), (4, v)))
    scale, softcap = (c.floating(name, 0.0) or None for name in ("scale", "softcap"))
    if softcap is not None and softcap < 0:
        c.refuse(f"softcap={softcap} must not be negative")
    grouped = q.shape[1] != shared
    y = attention(q, keys, values, _seen(c, cells, total), scale=scale, grouped=grouped, softcap=softcap)
    return _heads_joined(y), keys, values


def _projections(c: OnnxNode, heads: int, shared: int) -> list[Value]:
    """Return queries (batch, heads, sequence, size), keys and values (batch, shared, sequence, size) of inputs 0 to 2,
    or of input 0 alone, which has them behind each other. ShapeError for shapes that do not fit.
    """
    shape, packed = c.shape(0), not c.has(1) and not c.has(2)
    count = heads + 2 * shared if packed else heads
    if len(shape) != 3 or min(heads, shared) < 1 or heads % shared or shape[2] % count:
        c.refuse(f"query {shape} does not fit {heads} heads, {shared} of keys and values", "C1", ShapeError)
    if packed:
        x, ends = _heads_apart(c.real(0), count), (0, heads, heads + shared, count)
        return [slice_(x, None, slice(*end)) for end in itertools.pairwise(ends)]
    wanted = (*shape[:2], shape[2] // heads * shared)
    if (c.shape(1), c.shape(2)) != (wanted, wanted):
        c.refuse(f"key {c.shape(1)} and value {c.shape(2)} must have shape {wanted}", "C1", ShapeError)
    return [_heads_apart(c.real(i), n) for i, n in enumerate((heads, shared, shared))]


def _total_cells(c: OnnxNode, shape: Shape) -> int:
    """Return how many keys there are, past and new; `shape` is that of the new ones.

    Refused: lengths that are computed, or say that some keys are padding; ShapeError for pasts of other lengths.
    """
    total, lengths = c.known_number(6, "total_sequence_length"), c.known_ints(5, "seqlens_k")
    if lengths != [total - 1] * shape[0]:
        c.refuse(f"seqlens_k={lengths} is not total_sequence_length - 1 = {total - 1} everywhere: keys are padded")
    past = (*shape[:2], total - shape[2], shape[3])
    held = [c.shape(i) if c.has(i) else (*shape[:2], 0, shape[3]) for i in (3, 4)]
    if held != [past, past]:
        text = f"past_key {held[0]} and past_value {held[1]} must have shape {past}: longer buffers are not honoured"
        c.refuse(text, "C1", ShapeError)
    return int(total)


def _seen(c: OnnxNode, cells: int, total: int) -> Array | None:
    """Return which of `total` keys each of the last `cells` sees: itself and those before it, or so many of them as
    local_window_size says. None: all see all. Refused: a window of no key.
    """
    window = c.integer("local_window_size", -1)
    if window < 1 and window != -1:
        c.refuse(f"local_window_size={window} must be -1 or positive")
    seen = np.tri(cells, total, total - cells, dtype=bool)
    seen &= ~np.tri(cells, total, total - cells - (window if window > 0 else total), dtype=bool)
    return None if seen.all() else seen
