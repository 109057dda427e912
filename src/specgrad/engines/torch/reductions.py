"""Maxima and means over entire axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specgrad.window import Shape

from ..base import Kernel
from .autograd_rules import is_eager
from .modes import is_tracing, needs_grad


class _AmaxToAllTies(torch.autograd.Function):
    """autograd.Function of amax that gives every maximiser the full cotangent; the tangent is their sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axes: Shape) -> Any:
        """Return the maximum of x over `axes`, kept with size 1, and save both, and the axes, in `ctx`."""
        y = torch.amax(x, axes, keepdim=True)
        ctx.axes = axes
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, gy: Any) -> Any:
        """Return gy at every cell, of the x saved in `ctx`, that is a maximum, 0 elsewhere."""
        return torch.where(_is_maximum(*ctx.saved_tensors), gy, 0), None

    @staticmethod
    def jvp(ctx: Any, dx: Any, _: Any) -> Any:
        """Return the sum of the tangents dx of all cells, of the x saved in `ctx`, that are a maximum."""
        return torch.where(_is_maximum(*ctx.saved_tensors), dx, 0).sum(ctx.axes, keepdim=True)


def _is_maximum(x: Tensor, y: Tensor) -> Tensor:
    """Return the mask of cells that equal their maximum y; if y is NaN, also of cells that are NaN ([P1])."""
    x, y = x.detach(), y.detach()
    return (x == y) | (x != x) if bool(y.isnan().any()) else x == y


_amax_to_all_ties: Callable[..., Tensor] = _AmaxToAllTies.apply


def _traceable_amax(t: Tensor, axes: Shape) -> Tensor:
    """Return amax of t over `axes` with the derivative of `_AmaxToAllTies`, in traceable operators, axes kept."""
    y = t.detach().amax(axes, keepdim=True)
    wins = (t.detach() == y) | t.detach().isnan()
    # The value is y; the derivative that of a sum of the winners. Each is made 0 before they are added: finite ones may
    # have an infinite sum. Infinities and NaN cannot be made 0, and have no derivative here.
    winners = torch.where(wins & t.detach().isfinite(), t, 0)
    return y - (winners.detach() - winners).sum(axes, keepdim=True)


def _amax(t: Tensor, axes: Shape, ties: str) -> Tensor:
    """Return the maximum of t over `axes`, kept with size 1; `ties` ("split" or "all") selects the derivative at equal
    maxima.
    """
    if ties == "split" or not (is_tracing() or needs_grad(t)):
        return torch.amax(t, axes, keepdim=True)
    if not t.is_cpu or not is_eager(t):
        return _traceable_amax(t, axes)
    y = torch.amax(t, axes, keepdim=True) if t.numel() <= MAX_CELLS_TIES_COUNTED else None
    return _amax_to_all_ties(t, axes) if y is None or not _has_no_ties(t.detach(), y.detach()) else y


MAX_CELLS_TIES_COUNTED = 1 << 12  # of which winners are counted sooner than a function of ours is on the tape


def _has_no_ties(x: Tensor, y: Tensor) -> bool:
    """Return whether each maximum is reached by one cell and none is NaN: then PyTorch's derivative is ours.

    A NaN equals nothing, and would hide one of two that tie elsewhere: a sum that is a number shows that there is none.
    """
    return torch.count_nonzero(x == y).item() == y.numel() and not math.isnan(y.sum().item())


def lower_amax(x: Shape, *, axes: Shape, ties: str) -> Kernel:
    """Return the kernel of amax over `axes`; ties="split" divides the derivative among maximisers, "all" gives it to
    each in full.
    """
    if not axes:
        return lambda t: t
    if ties == "split":
        return lambda t: torch.amax(t, axes)
    return lambda t: _amax(t, axes, ties).squeeze(axes)


def _spatial_axes(x: Any, rank: Any) -> Shape | None:
    """Return the last `rank` axes of a plain float tensor as negative numbers; None for invalid arguments."""
    if type(rank) is not int or not isinstance(x, Tensor) or not x.is_floating_point() or not 1 <= rank <= x.ndim:
        return None
    return None if 0 in x.shape[x.ndim - rank :] or not is_eager(x) else tuple(range(-rank, 0))


def global_max_pool(x: Any, *, rank: int, keepdims: bool = True, ties: str = "all") -> Kernel | None:
    """Return amax over the last `rank` axes, kept if `keepdims`, as a kernel; `ties` ("all" or "split") says who gets
    the derivative.

    None for invalid arguments.
    """
    axes = _spatial_axes(x, rank)
    if axes is None or ties not in ("all", "split"):
        return None
    if keepdims:
        return lambda x, **_: _amax(x, axes, ties)
    return lambda x, **_: _amax(x, axes, ties).squeeze(axes)


def global_avg_pool(x: Any, *, rank: int, keepdims: bool = True) -> Kernel | None:
    """Return torch.mean over the last `rank` axes as a kernel, which stay with size 1 if `keepdims`; None for invalid
    arguments.
    """
    axes, keep = _spatial_axes(x, rank), bool(keepdims)
    return None if axes is None or not x.numel() else lambda x, **_: torch.mean(x, axes, keep)
