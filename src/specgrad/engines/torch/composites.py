"""Compositions for which PyTorch has one operator: it is called where it means the same, else the composition runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops import activation, compose
from ..base import Plan
from .conv import linear
from .doubling import dual_level_open
from .rules import INTEGERS, eager

SHORT = (torch.bfloat16, torch.float16)
NO_LABEL = -(2**62)  # F.cross_entropy passes over one label; -100 and every other that is outside is an error


def _formula(f: Callable[..., Any]) -> Callable[..., Tensor]:
    plain: Callable[..., Tensor] = inspect.unwrap(f)
    return plain


_batch_norm, _cross_entropy = _formula(compose.batch_norm), _formula(compose.cross_entropy)
_mse_loss, _gelu, _upsample = _formula(compose.mse_loss), _formula(activation.gelu), _formula(compose.upsample_nearest)


def _alike(x: Any, *others: Any) -> bool:
    """Plain tensors of one floating type, outside of tracers; None is none."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or not eager(x):
        return False
    return all(o is None or (isinstance(o, Tensor) and o.dtype == x.dtype) for o in others)


def batch_norm(
    x: Any, mean_: Any, var: Any, weight: Any = None, bias: Any = None, *, eps: Any = 1e-5, channel: int = 1
) -> Tensor:
    """F.batch_norm, which has no derivative in mean and var, takes no eps below 0 and channels on axis 1."""
    rest = (mean_, var, weight, bias)
    fits = channel == 1 and _alike(x, *rest) and x.ndim > 1 and x.numel() and eps >= 0 and not dual_level_open()
    if fits and not (mean_.requires_grad or var.requires_grad):
        channels = (x.shape[1],)
        if all(v is None or v.shape == channels for v in rest):
            return F.batch_norm(x, mean_, var, weight, bias, False, 0.0, float(eps))
    return _batch_norm(x, mean_, var, weight, bias, eps=eps, channel=channel)


def cross_entropy(x: Any, labels: Any, *, reduction: Any = "mean") -> Tensor:
    """F.cross_entropy; under autocast in float32, as PyTorch does for its own."""
    if isinstance(x, Tensor) and torch.is_autocast_enabled(x.device.type) and x.dtype in SHORT:
        with torch.autocast(x.device.type, enabled=False):
            return cross_entropy(x.float(), labels, reduction=reduction)
    if _alike(x) and isinstance(labels, Tensor) and labels.dtype == torch.int64 and x.ndim and x.numel():
        axis = min(x.ndim - 1, 1)
        if labels.shape == (*x.shape[:axis], *x.shape[axis + 1 :]) and reduction in ("mean", "sum", "none"):
            return F.cross_entropy(x, labels, reduction=reduction, ignore_index=NO_LABEL)
    return _cross_entropy(x, labels, reduction=reduction)


def mse_loss(x: Any, target: Any, *, reduction: Any = "mean") -> Tensor:
    if _alike(x, target) and target is not None and x.shape == target.shape and reduction in ("mean", "sum", "none"):
        return F.mse_loss(x, target, reduction=reduction)
    return _mse_loss(x, target, reduction=reduction)


def gelu(x: Any, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate="tanh") if approximate == "tanh" and _alike(x) else _gelu(x, approximate)


def upsample_nearest(x: Any, factor: int | Sequence[int], *, rank: int | None = None) -> Tensor:
    """F.interpolate for factors that are powers of two: it multiplies positions by 1/factor in floats."""
    factors = (factor,) * (rank or 0) if isinstance(factor, int) else tuple(factor)
    exact = len(factors) in (1, 2, 3) and all(type(f) is int and f > 0 and f & (f - 1) == 0 for f in factors)
    if exact and _alike(x) and rank in (None, len(factors)) and x.ndim == len(factors) + 2 and x.numel():
        sizes = [n * f for n, f in zip(x.shape[2:], factors, strict=True)]
        if math.prod(sizes) < 2**24:
            return F.interpolate(x, sizes, mode="nearest")
    return _upsample(x, factor, rank=rank)


def _pair(f: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor | None]:
    """PyTorch's own broadcasting; None where the general way must say what is wrong."""

    def call(a: Tensor, b: Tensor) -> Tensor | None:
        if a.dtype in INTEGERS or b.dtype in INTEGERS:
            return None
        try:
            return f(a, b)
        except RuntimeError:
            return None

    return call


PAIRS: dict[str, Plan] = {
    "add": _pair(lambda a, b: a + b),
    "sub": _pair(lambda a, b: a - b),
    "mul": _pair(lambda a, b: a * b),
    "div": _pair(lambda a, b: a / b),
}
COMPOSITES: dict[str, Plan] = {
    **PAIRS,
    "batch_norm": batch_norm,
    "cross_entropy": cross_entropy,
    "mse_loss": mse_loss,
    "gelu": gelu,
    "upsample_nearest": upsample_nearest,
    "softmax": lambda x, axis=-1: F.softmax(x, axis),
    "log_softmax": lambda x, axis=-1: F.log_softmax(x, axis),
    "linear": linear,
    "layer_norm": lambda x, shape, weight=None, bias=None, *, eps=1e-5: F.layer_norm(x, shape, weight, bias, eps),
    "group_norm": lambda x, groups, weight=None, bias=None, *, eps=1e-5: F.group_norm(x, groups, weight, bias, eps),
}
