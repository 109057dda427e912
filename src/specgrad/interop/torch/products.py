"""Converters of aten operators for products over several axes: attention, einsum, batched sums. They refuse what they
do not honour, and raise ShapeError where shapes do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ParameterError
from ...op import Value, shape_of
from ...ops.attention import attention
from ...ops.contract import matmul
from ...ops.einsum import einsum
from ...ops.elementwise import add, mul, select

ATTENTION = "scaled_dot_product_attention.default"


def _attention(
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Any,
    dropout_p: float,
    is_causal: bool,
    scale: Any,
    enable_gqa: bool,
) -> Value:
    """Convert aten.scaled_dot_product_attention of query, key and value, with a mask or causal, and a scale (None:
    1/sqrt of the last axis).

    With enable_gqa key and value may have fewer heads. ParameterError for dropout.
    """
    if dropout_p:
        raise ParameterError("scaled_dot_product_attention", f"dropout_p={dropout_p} draws random numbers", rule="P5")
    grouped = enable_gqa and shape_of(query)[-3] != shape_of(key)[-3]
    return attention(query, key, value, attn_mask, causal=is_causal, scale=scale, grouped=grouped)


def added_mask(mask: Value) -> Value:
    """Return what a mask of booleans that an input decides adds to scores: 0 where it is true, -inf elsewhere."""
    return select(mask, 0, -math.inf)


def _einsum(equation: str, tensors: Sequence[Value], path: Any) -> Value:
    """Convert aten.einsum of tensors by an equation; `path`, an order of products, has no effect on two values."""
    return einsum(equation, *tensors)


def _baddbmm(self: Value, batch1: Value, batch2: Value, beta: Any, alpha: Any) -> Value:
    """Convert aten.baddbmm: beta*self + alpha * the matrix products of batch1 and batch2."""
    product = matmul(batch1, batch2)
    product = product if alpha == 1 else mul(product, alpha)
    return product if beta == 0 else add(product, self if beta == 1 else mul(self, beta))


CONVERTERS: dict[str, Callable[..., Value]] = {
    ATTENTION: _attention,
    "einsum.default": _einsum,
    "baddbmm.default": _baddbmm,
}
