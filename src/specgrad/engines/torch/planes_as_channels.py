"""Strided maxima with their winners on the CPU: planes become channels, which the native operator takes in vectors.

Its kernel for channels_last compares sixteen channels at once; that for contiguous planes compares cell by cell.
Copying a chunk of planes there and the result back costs less than that. Values, ties and NaN are the native ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specgrad.window import Shape, Window

CHANNELS_PER_VECTOR = 16  # float32 in a vector; more do not fit the cache
CHUNK_BYTES = 1 << 20
MAX_SCRATCH_CELLS = 1 << 24  # of scratch

WITH_INDEX: dict[int, Callable[..., tuple[Tensor, Tensor]]] = {
    1: torch.max_pool1d_with_indices,
    2: torch.ops.aten.max_pool2d_with_indices,
    3: torch.ops.aten.max_pool3d_with_indices,
}
LAYOUT = {2: torch.channels_last, 3: torch.channels_last_3d}
SCATTER_ADD: dict[int, Callable[..., Tensor]] = {
    2: torch.ops.aten.adaptive_max_pool2d_backward,
    3: torch.ops.aten.adaptive_max_pool3d_backward,
}


def is_applicable(planes: int, window: Window) -> bool:
    """Return whether there are enough planes for one vector of channels and the planes of one vector fit the scratch
    memory.
    """
    return planes >= CHANNELS_PER_VECTOR and CHANNELS_PER_VECTOR * math.prod(window.size) <= MAX_SCRATCH_CELLS


def max_and_index(x: Tensor, window: Window, native: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """Return maximum and argmax of every window of contiguous x by the native operator, planes as channels.

    `native` are its arguments. Planes that fill no vector are not copied.
    """
    lead = x.shape[: x.ndim - window.rank]
    y = x.new_empty((*lead, *window.out))
    index = torch.empty_like(y, dtype=torch.int64)
    rank, size, out, args = _as_rank_2(window, native)
    planes = math.prod(lead)
    groups = planes // CHANNELS_PER_VECTOR
    whole = groups * CHANNELS_PER_VECTOR
    sides = [t.view(planes, *of) for t, of in ((x, size), (y, out), (index, out))]
    if groups:
        _fill_by_channels(rank, args, *(t[:whole].unflatten(0, (groups, CHANNELS_PER_VECTOR)) for t in sides))
    if whole < planes:
        rest = WITH_INDEX[rank](sides[0][whole:], *args)
        for side, part in zip(sides[1:], rest, strict=True):
            side[whole:] = part
    return y, index


def _as_rank_2(window: Window, native: tuple[Any, ...]) -> tuple[int, Shape, Shape, tuple[Any, ...]]:
    """Return (rank, size, out, arguments) of the native operator, a window of rank 1 as one row of rank 2."""
    if window.rank > 1:
        return window.rank, window.size, window.out, native
    (k, s, p, e), ceil = (value for (value,) in native[:4]), native[4]
    return 2, (1, *window.size), (1, *window.out), ((1, k), (1, s), (0, p), (1, e), ceil)


def _fill_by_channels(rank: int, args: tuple[Any, ...], x: Tensor, y: Tensor, index: Tensor) -> None:
    """Write maximum and argmax of x, (groups, channels, *spatial), to y and index, chunk by chunk.

    `args` are those of the native operator over `rank` axes.
    """
    step = min(len(x), max(1, CHUNK_BYTES // (x[0].numel() * x.element_size())))
    scratch = x.new_empty((step, *x.shape[1:])).contiguous(memory_format=LAYOUT[rank])
    for start in range(0, len(x), step):
        part = x[start : start + step]
        both = WITH_INDEX[rank](scratch[: len(part)].copy_(part), *args)
        for side, result in zip((y, index), both, strict=True):
            side[start : start + step] = result


def put(g: Tensor, index: Tensor, size: Shape) -> Tensor:
    """Return g scatter-added at flat positions `index` into zeros of `size`; rank 1 to 3, every position >= 0."""
    rank = len(size)
    wide, row = max(rank, 2), (1,) * (rank == 1)
    planes = [t.reshape(1, -1, *row, *t.shape[t.ndim - rank :]) for t in (g, index)]
    like = g.new_empty(1).expand(*planes[0].shape[:2], *row, *size)
    return SCATTER_ADD[wide](planes[0].contiguous(), like, planes[1].contiguous()).view(
        *g.shape[: g.ndim - rank], *size
    )
