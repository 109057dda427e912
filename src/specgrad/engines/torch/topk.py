"""Top-k cells along an axis and their positions, by PyTorch's own operators where their result is unique; medians."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from specgrad.ops.sorting import tap_cells
from specgrad.window import Shape, Window

from ..base import Kernel
from .autograd_rules import is_eager, ours
from .max_pool import lower_take


def lower_top_index(x: Shape, *, axis: int, k: int, largest: bool, last: bool) -> Kernel:
    """Return the kernel of top_index: positions of the k largest (or smallest) cells along `axis`.

    Of equal cells the first, or with `last` the last, comes first.
    """
    native = torch.argmax if largest else torch.argmin

    def compute(t: Tensor) -> Tensor:
        t = t.detach() if t.requires_grad else t
        if last or not k or not t.is_cpu or not t.numel() or not is_eager(t):
            return _by_stable_sort(t, axis, k, largest, last)
        if k == 1:
            return (
                native(t, axis, keepdim=True)
                if largest or not bool(t.sum().isnan())
                else _by_stable_sort(t, axis, k, largest, last)
            )
        i = _by_topk_if_distinct(t, axis, k, largest)
        return _by_stable_sort(t, axis, k, largest, last) if i is None else i

    return compute


def lower_top(x: Shape, *, axis: int, k: int, largest: bool) -> Kernel:
    """Return the kernel of top: the k largest (or smallest) cells along `axis`, sorted."""
    index = lower_top_index(x, axis=axis, k=k, largest=largest, last=False)
    return lambda t: t.gather(axis, index(t))


def topk(x: Any, k: Any, *, axis: int, largest: bool) -> Kernel | None:
    """Return a kernel for (values, positions) of the k largest (or smallest) cells along `axis`.

    None for invalid k or types, so that the operators raise their error.
    """
    if not x.is_floating_point() or not 0 <= k <= x.shape[axis]:
        return None
    index = lower_top_index(x.shape, axis=axis, k=k, largest=largest, last=False)

    def compute(t: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        i: Tensor = index(t)
        return t.gather(axis, i), i

    return compute


def _by_stable_sort(t: Tensor, axis: int, k: int, largest: bool, last: bool) -> Tensor:
    """Return positions of the k largest (or smallest) cells of t along `axis` by a stable sort.

    Of equal cells the first, or with `last` the last.
    """
    t = t.flip(axis) if last else t
    order = t.sort(dim=axis, descending=largest, stable=True).indices.narrow(axis, 0, k)
    return t.shape[axis] - 1 - order if last else order


def _by_topk_if_distinct(t: Tensor, axis: int, k: int, largest: bool) -> Tensor | None:
    """Return positions of the k largest (or smallest) cells of t along `axis` by torch.topk.

    None if two of the first k+1 cells are equal. torch.topk leaves the order of equal cells open.
    """
    more = min(k + 1, t.shape[axis])
    values, i = torch.topk(t, more, axis, largest)
    if (values.narrow(axis, 1, more - 1) == values.narrow(axis, 0, more - 1)).any().item():
        return None  # NaNs are never equal, and their order is open
    return i if more == k else torch.narrow_copy(i, axis, 0, k)


def lower_median_index(x: Shape, *, window: Window) -> Kernel:
    """Return the kernel of median_index: the first tap of every window that equals its median, as a flat position, -1
    for none.
    """
    cells, rank = tap_cells(window)

    def compute(t: Tensor) -> Tensor:
        t = t.detach()
        at, middle = (torch.from_numpy(a).to(t.device) for a in (cells.reshape(len(cells), -1), rank.reshape(1, -1)))
        flat = t.reshape((*t.shape[: t.ndim - window.rank], math.prod(window.size)))
        values = torch.where(at < 0, math.inf, flat[..., at.clamp(min=0)])
        median = values.sort(dim=-2).values.gather(-2, middle.expand(*values.shape[:-2], *middle.shape))
        lost = values.isnan()
        hit = (at >= 0) & torch.where(lost.any(-2, keepdim=True), lost, values == median)
        first = hit.to(torch.uint8).argmax(-2, keepdim=True)
        return at.expand(values.shape).gather(-2, first).reshape((*flat.shape[:-1], *window.out))

    return compute


def lower_median_pool(x: Shape, *, window: Window) -> Kernel:
    """Return the kernel of median_pool: find the positions of medians, as median_index does, and take the cells
    there.
    """
    index = lower_median_index(x, window=window)
    shape = x[: len(x) - window.rank] + window.out
    take = lower_take(x, shape, rank=window.rank, empty=window.has_empty)
    compute = lambda t: take(t, index(t))
    return ours("median_pool", {"window": window}, compute, compute)
