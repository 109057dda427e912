"""x[i, :, j] with tensors in the brackets, as `gather` along one axis. Positions are known, or are one input's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ParameterError, UnsupportedError
from ...op import Value, shape_of
from ...ops.gather import gather
from ...ops.layout import permute, reshape
from ...scalar import Array


def index(self: Value, indices: Sequence[Any]) -> Value:
    """Convert aten.index.Tensor: the axes with `indices` (None: not indexed) become one, replaced by the axes of the
    positions.

    ParameterError for a mask, UnsupportedError for several positions that are not known.

    They come first if the indexed axes are not adjacent.
    """
    places = [a for a, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    if any(i.dtype.kind == "b" if isinstance(i, np.ndarray) else i.kind != "index" for i in given):
        raise ParameterError("index", "a mask is not supported: its cells decide the shape of the result", rule="P5")
    if len(given) > 1 and not all(isinstance(i, np.ndarray) for i in given):
        raise UnsupportedError("aten.index.Tensor", "several positions that depend on an input are not supported")
    rank = len(shape_of(self))
    adjacent = places == list(range(places[0], places[0] + len(places)))
    order = list(range(rank)) if adjacent else places + [a for a in range(rank) if a not in places]
    x, axis = permute(self, order), places[0] if adjacent else 0
    if len(given) == 1:
        return gather(x, given[0], axis=axis)
    shape, sizes = shape_of(x), shape_of(x)[axis : axis + len(places)]
    x = reshape(x, (*shape[:axis], int(np.prod(sizes)), *shape[axis + len(places) :]))
    return gather(x, _flat_positions(given, sizes), axis=axis)


def _flat_positions(positions: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Return row-major positions in several axes of these sizes as positions in their product.

    UnsupportedError for positions outside.
    """
    spread = np.broadcast_arrays(*positions)
    for i, n in zip(spread, sizes, strict=True):
        if i.size and not (-n <= i.min() and i.max() < n):
            raise UnsupportedError("aten.index.Tensor", f"positions must lie in -{n}..{n - 1}")
    return np.asarray(np.ravel_multi_index([i % n for i, n in zip(spread, sizes, strict=True)], tuple(sizes)))
