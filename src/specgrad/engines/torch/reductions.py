"""Maxima and means over whole axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specgrad.window import Shape

from ..base import Kernel
from .autograd_rules import eager
from .modes import is_tracing, needs_grad


class _EveryWinner(torch.autograd.Function):
    """amax that gives every maximiser the whole cotangent; the tangent is the sum over them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axes: Shape) -> Any:
        y = torch.amax(x, axes, keepdim=True)
        ctx.axes = axes
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, gy: Any) -> Any:
        return torch.where(_wins(*ctx.saved_tensors), gy, 0), None

    @staticmethod
    def jvp(ctx: Any, dx: Any, _: Any) -> Any:
        return torch.where(_wins(*ctx.saved_tensors), dx, 0).sum(ctx.axes, keepdim=True)


def _wins(x: Tensor, y: Tensor) -> Tensor:
    """[P1] A NaN is the maximum wherever it is, and equal to nothing; there are few y to look through."""
    x, y = x.detach(), y.detach()
    return (x == y) | (x != x) if bool(y.isnan().any()) else x == y


_every_winner: Callable[..., Tensor] = _EveryWinner.apply


def _traceable(t: Tensor, axes: Shape) -> Tensor:
    """The same in traceable operators, axes kept."""
    y = t.detach().amax(axes, keepdim=True)
    wins = (t.detach() == y) | t.detach().isnan()
    # The value is y; the derivative that of a sum of the winners. Each is made 0 before they are added: finite ones may
    # have an infinite sum. Infinities and NaN cannot be made 0, and have no derivative here.
    winners = torch.where(wins & t.detach().isfinite(), t, 0)
    return y - (winners.detach() - winners).sum(axes, keepdim=True)


def _amax(t: Tensor, axes: Shape, ties: str) -> Tensor:
    """Axes kept."""
    if ties == "split" or not (is_tracing() or needs_grad(t)):
        return torch.amax(t, axes, keepdim=True)
    if not t.is_cpu or not eager(t):
        return _traceable(t, axes)
    y = torch.amax(t, axes, keepdim=True) if t.numel() <= FEW_CELLS else None
    return _every_winner(t, axes) if y is None or not _all_alone(t.detach(), y.detach()) else y


FEW_CELLS = 1 << 12  # of which winners are counted sooner than a function of ours is on the tape


def _all_alone(x: Tensor, y: Tensor) -> bool:
    """Whether no two cells are the largest together, nor a NaN: then PyTorch's derivative is ours.

    A NaN equals nothing, and would hide one of two that tie elsewhere: a sum that is a number shows that there is none.
    """
    return torch.count_nonzero(x == y).item() == y.numel() and not math.isnan(y.sum().item())


def lower_amax(x: Shape, *, axes: Shape, ties: str) -> Kernel:
    if not axes:
        return lambda t: t
    if ties == "split":
        return lambda t: torch.amax(t, axes)
    return lambda t: _amax(t, axes, ties).squeeze(axes)


def _spatial(x: Any, rank: Any) -> Shape | None:
    """The last axes of a plain tensor of floats; None where the composition must say what is wrong."""
    if type(rank) is not int or not isinstance(x, Tensor) or not x.is_floating_point() or not 1 <= rank <= x.ndim:
        return None
    return None if 0 in x.shape[x.ndim - rank :] or not eager(x) else tuple(range(-rank, 0))


def global_max_pool(x: Any, *, rank: int, keepdims: bool = True, ties: str = "all") -> Kernel | None:
    axes = _spatial(x, rank)
    if axes is None or ties not in ("all", "split"):
        return None
    if keepdims:
        return lambda x, **_: _amax(x, axes, ties)
    return lambda x, **_: _amax(x, axes, ties).squeeze(axes)


def global_avg_pool(x: Any, *, rank: int, keepdims: bool = True) -> Kernel | None:
    axes, keep = _spatial(x, rank), bool(keepdims)
    return None if axes is None or not x.numel() else lambda x, **_: torch.mean(x, axes, keep)
