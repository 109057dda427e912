"""Attention: the average of values, weighted by the softmax of products of queries and keys."""

from __future__ import annotations

import math

import numpy as np

from ..errors import ParameterError, ShapeError
from ..op import Value, composite, shape_of
from ..scalar import Array, Number
from .activation import tanh
from .composites import softmax
from .contract import matmul
from .elementwise import add, div, exp, mul, select, stop_gradient, sub
from .layout import broadcast, permute, reshape, sum_
from .max_pool import amax


def causal_mask(queries: int, keys: int) -> Array:
    """Return the boolean mask (queries, keys) in which query i sees the keys 0..i."""
    return np.tri(queries, keys, dtype=bool)


def _masked_softmax(x: Value, mask: Array) -> Value:
    """Return the softmax over the keys that the mask admits, 0 for the others; no infinity is needed.

    ParameterError if it admits no key of some query.
    """
    if not mask.any(axis=-1).all():
        raise ParameterError("attention", "a query whose mask admits no key has no weights", rule="P5")
    seen = mask.astype(np.float32)
    e = select(seen, exp(mul(sub(x, stop_gradient(_largest(x, seen))), seen)), 0)
    return div(e, sum_(e, -1, keepdims=True))


def _largest(x: Value, seen: Array) -> Value:
    """Return the largest cell of every row that `seen` (1 or 0) admits, axis kept; others are lowered to the row's
    smallest first.
    """
    smallest = mul(amax(mul(x, -1), -1, keepdims=True), -1)
    return amax(select(seen, x, smallest), -1, keepdims=True)


def _for_each_query(q: Value, a: Value) -> Value:
    """Return keys or values `a` with each head (axis -3) as often as heads of q read it.

    ShapeError unless the number of heads of q is a multiple of theirs.
    """
    heads, shape = shape_of(q)[-3:-2], shape_of(a)
    if not heads or len(shape) < 3 or not shape[-3] or heads[0] % shape[-3]:
        raise ShapeError(
            "attention", f"grouped: heads of q {shape_of(q)} are no multiple of those of {shape}", rule="C1"
        )
    lead, times = shape[:-2], heads[0] // shape[-3]
    spread = broadcast(reshape(a, (*lead, 1, *shape[-2:])), (*lead, times, *shape[-2:]))
    return reshape(spread, (*lead[:-1], heads[0], *shape[-2:]))


@composite
def attention(
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    *,
    causal: bool = False,
    scale: Number | None = None,
    grouped: bool = False,
    softcap: Number | None = None,
) -> Value:
    """softmax(scale * q k^T + mask) v over the last two axes; leading axes broadcast.

    q is (..., L, E), k (..., S, E), v (..., S, Ev); scale is 1/sqrt(E) unless said. A mask of numbers is added to the
    products; one of booleans, which must be known, admits the keys where it is true. causal: query i sees keys 0..i.
    grouped: k and v have fewer heads (axis -3) than q, and each serves several heads of q that stand side by side.
    softcap: products x, scaled, become softcap * tanh(x / softcap). ShapeError if these sizes contradict each other,
    ParameterError for causal with a mask.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> attention(x, x, x, causal=True, scale=1)[0]
    array([1., 0.])
    """
    if grouped:
        k, v = (_for_each_query(q, a) for a in (k, v))
    (queries, e), keys = shape_of(q)[-2:], shape_of(k)[-2]
    if shape_of(k)[-1] != e or shape_of(v)[-2] != keys:
        text = f"needs q (..., L, E), k (..., S, E), v (..., S, Ev); got {shape_of(q)}, {shape_of(k)}, {shape_of(v)}"
        raise ShapeError("attention", text, rule="C1")
    if causal and mask is not None:
        raise ParameterError("attention", "causal=True with a mask is not supported; give one of both", rule="P5")
    rank = len(shape_of(k))
    turned = permute(k, [*range(rank - 2), rank - 1, rank - 2])
    logits = mul(matmul(q, turned), 1 / math.sqrt(e) if scale is None else scale)
    logits = logits if softcap is None else mul(tanh(div(logits, softcap)), softcap)
    known = causal_mask(queries, keys) if causal else mask
    if isinstance(known, np.ndarray) and known.dtype == bool:
        weights = _masked_softmax(logits, np.broadcast_to(known, shape_of(logits)))
    else:
        weights = softmax(logits if known is None else add(logits, known), -1)
    return matmul(weights, v)
