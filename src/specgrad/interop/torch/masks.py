"""Converters of aten operators that keep some cells: triangles, diagonals, repeated cells; and of booleans. They raise
ShapeError where shapes do not fit.

True is the number 1, false 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...op import Value, shape_of
from ...ops.elementwise import equal, maximum, minimum, select
from ...ops.gather import gather
from ...ops.layout import axis_of, broadcast, permute, reshape


def _triangle(upper: bool) -> Callable[..., Value]:
    """Return the converter of triu (`upper`) or tril: the cells on one side of a diagonal, 0 elsewhere."""

    def convert(self: Value, diagonal: int) -> Value:
        rows, columns = shape_of(self)[-2:]
        below = np.tri(rows, columns, diagonal - 1 if upper else diagonal, dtype=bool)
        return select((~below if upper else below).astype(np.float32), self, 0)

    return convert


def _diagonal(self: Value, offset: int, dim1: int, dim2: int) -> Value:
    """Convert aten.diagonal: the cells [i, i + offset] of the axes dim1 and dim2, as the last axis."""
    rank = len(shape_of(self))
    a, b = axis_of("diagonal", dim1, rank), axis_of("diagonal", dim2, rank)
    rest = [k for k in range(rank) if k not in (a, b)]
    x = permute(self, [*rest, a, b])
    *lead, rows, columns = shape_of(x)
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    first = offset if offset >= 0 else -offset * columns
    flat = first + np.arange(count) * (columns + 1)
    return gather(reshape(x, (*lead, rows * columns)), flat, axis=len(lead))


def _diag_embed(self: Value, offset: int, dim1: int, dim2: int) -> Value:
    """Convert aten.diag_embed: the last axis on the diagonal `offset` of two new axes, dim1 and dim2, 0 elsewhere."""
    *lead, n = shape_of(self)
    size = n + abs(offset)
    row, column = np.indices((size, size))
    at = np.clip(np.minimum(row, column), 0, n - 1)
    matrix = select((column - row == offset).astype(np.float32), gather(self, at, axis=len(lead)), 0)
    rank = len(lead) + 2
    a, b = axis_of("diag_embed", dim1, rank), axis_of("diag_embed", dim2, rank)
    order: list[int] = [-1] * rank
    order[a], order[b] = rank - 2, rank - 1
    rest = iter(range(rank - 2))
    return permute(matrix, [next(rest) if k < 0 else k for k in order])


def _diag(self: Value, diagonal: int) -> Value:
    """Convert aten.diag: a matrix of a vector, or the diagonal of a matrix."""
    if len(shape_of(self)) == 1:
        return _diag_embed(self, diagonal, 0, 1)
    return _diagonal(self, diagonal, 0, 1)


def _repeat_cells(self: Value, counts: Any, dim: int | None) -> Value:
    """Return every cell along the axis `dim` as often as `counts` says; without `dim`, every cell of the flattened
    value.
    """
    x = reshape(self, (math.prod(shape_of(self)),)) if dim is None else self
    axis = axis_of("repeat_interleave", 0 if dim is None else dim, len(shape_of(x)))
    return gather(x, np.repeat(np.arange(shape_of(x)[axis]), counts), axis=axis)


def _repeat_interleave(self: Value, repeats: int, dim: int | None, output_size: Any) -> Value:
    """Convert aten.repeat_interleave with one count: every cell `repeats` times along `dim` (None: flattened);
    output_size is not read.
    """
    return _repeat_cells(self, repeats, dim)


def _repeat_interleave_each(self: Value, repeats: Any, dim: int | None, output_size: Any) -> Value:
    """Convert aten.repeat_interleave with a count per cell of the axis `dim`, `repeats`.

    UnsupportedError unless these are known; output_size is not read.
    """
    if not isinstance(repeats, np.ndarray):
        raise UnsupportedError("aten.repeat_interleave", "counts that depend on an input decide the shape")
    return _repeat_cells(self, repeats, dim)


def _broadcast_tensors(tensors: Sequence[Value]) -> tuple[Value, ...]:
    """Convert aten.broadcast_tensors: all `tensors` in their common shape."""
    shape = np.broadcast_shapes(*map(shape_of, tensors))
    return tuple(broadcast(x, shape) for x in tensors)


# --- booleans -------------------------------------------------------------------------------------------------------


def _is_true(x: Value) -> Value:
    """Return 1 where x is not 0, without a rounding: what a boolean is, rounding does not decide."""
    return equal(equal(x, 0), 0)


def _both(self: Value, other: Value) -> Value:
    """Convert aten.logical_and, and bitwise_and of booleans: 1 where the value and `other` are both true, else 0."""
    return minimum(_is_true(self), _is_true(other))


def _either(self: Value, other: Value) -> Value:
    """Convert aten.logical_or, and bitwise_or of booleans: 1 where the value or `other` is true, else 0."""
    return maximum(_is_true(self), _is_true(other))


def _exclusive_or(self: Value, other: Value) -> Value:
    """Convert aten.logical_xor, and bitwise_xor of booleans: 1 where exactly one of the value and `other` is true, else
    0.
    """
    return equal(equal(_is_true(self), _is_true(other)), 0)


def _not_true(self: Value) -> Value:
    """Convert aten.logical_not and bitwise_not of booleans: 1 where the value is 0, else 0."""
    return equal(self, 0)


BOOLEANS: dict[str, Callable[..., Value]] = {
    "logical_and.default": _both,
    "logical_or.default": _either,
    "logical_xor.default": _exclusive_or,
    "logical_not.default": _not_true,
    "bitwise_and.Tensor": _both,
    "bitwise_or.Tensor": _either,
    "bitwise_xor.Tensor": _exclusive_or,
    "bitwise_not.default": _not_true,
    "__and__.Tensor": _both,
    "__or__.Tensor": _either,
    "__xor__.Tensor": _exclusive_or,
}
"""Their results are booleans; of integers the importer refuses the bitwise ones, by the type of the result."""

CONVERTERS: dict[str, Callable[..., Any]] = {
    "triu.default": _triangle(True),
    "tril.default": _triangle(False),
    "diagonal.default": _diagonal,
    "diag_embed.default": _diag_embed,
    "diag.default": _diag,
    "repeat_interleave.self_int": _repeat_interleave,
    "repeat_interleave.self_Tensor": _repeat_interleave_each,
    "broadcast_tensors.default": _broadcast_tensors,
    **BOOLEANS,
}
