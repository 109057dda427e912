"""The largest cells along an axis and where they stand, by PyTorch's own operators where they decide it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specgrad.window import Shape

from ..base import Kernel
from .autograd_rules import eager


def lower_top_index(x: Shape, *, axis: int, k: int, largest: bool, last: bool) -> Kernel:
    """torch.argmax returns the first of equal cells, and a NaN before all others; so does torch.argmin."""
    native = torch.argmax if largest else torch.argmin

    def compute(t: Tensor) -> Tensor:
        t = t.detach() if t.requires_grad else t
        if last or not k or not t.is_cpu or not t.numel() or not eager(t):
            return _stable(t, axis, k, largest, last)
        if k == 1:
            return (
                native(t, axis, keepdim=True)
                if largest or not bool(t.sum().isnan())
                else _stable(t, axis, k, largest, last)
            )
        i = _decided(t, axis, k, largest)
        return _stable(t, axis, k, largest, last) if i is None else i

    return compute


def lower_top(x: Shape, *, axis: int, k: int, largest: bool) -> Kernel:
    index = lower_top_index(x, axis=axis, k=k, largest=largest, last=False)
    return lambda t: t.gather(axis, index(t))


def topk(x: Any, k: Any, *, axis: int, largest: bool) -> Kernel | None:
    """Values and positions at once; None where the operators say what is wrong."""
    if not x.is_floating_point() or not 0 <= k <= x.shape[axis]:
        return None
    index = lower_top_index(x.shape, axis=axis, k=k, largest=largest, last=False)

    def compute(t: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        i: Tensor = index(t)
        return t.gather(axis, i), i

    return compute


def _stable(t: Tensor, axis: int, k: int, largest: bool, last: bool) -> Tensor:
    t = t.flip(axis) if last else t
    order = t.sort(dim=axis, descending=largest, stable=True).indices.narrow(axis, 0, k)
    return t.shape[axis] - 1 - order if last else order


def _decided(t: Tensor, axis: int, k: int, largest: bool) -> Tensor | None:
    """torch.topk leaves the order of equal cells open: one cell more than asked for shows whether there are any."""
    more = min(k + 1, t.shape[axis])
    values, i = torch.topk(t, more, axis, largest)
    if (values.narrow(axis, 1, more - 1) == values.narrow(axis, 0, more - 1)).any().item():
        return None  # NaNs are never equal, and their order is open
    return i if more == k else torch.narrow_copy(i, axis, 0, k)
