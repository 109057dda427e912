"""Compositions for which PyTorch has one operator: it is called where it means the same, else the composition runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import ShapeError
from ...ops import activation, compose, contract, elementwise
from ...ops.conv import CONV, conv_window
from ...window import are_ints
from ..base import MOST_PLANS, Plan
from .doubling import dual_level_open
from .max_pool import is_channels_last
from .natives import NATIVES, nearest_is_exact
from .relabel import LAYOUT
from .rules import NOT_NUMBERS, PLAIN, eager
from .table import ENGINE, TABLE
from .whole import global_avg_pool, global_max_pool

SHORT = (torch.bfloat16, torch.float16)
NO_LABEL = -(2**62)  # F.cross_entropy passes over one label, always; every other that is outside is its error
NOTHING_LOST = 4.0  # abs(mean) / deviation up to which E[x*x] - E[x]**2 keeps its digits


def _formula(f: Callable[..., Any]) -> Callable[..., Tensor]:
    plain: Callable[..., Tensor] = inspect.unwrap(f)
    return plain


_batch_norm, _cross_entropy = _formula(compose.batch_norm), _formula(compose.cross_entropy)
_linear, _softmax, _log_softmax = (_formula(f) for f in (contract.linear, compose.softmax, compose.log_softmax))
_matmul, _mean = _formula(contract.matmul), _formula(elementwise.mean)
_mse_loss, _gelu, _upsample = _formula(compose.mse_loss), _formula(activation.gelu), _formula(compose.upsample_nearest)


def _alike(x: Any, *others: Any) -> bool:
    """Plain tensors of one floating type, outside of tracers; None is none."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or not eager(x):
        return False
    dtype = x.dtype
    return all(o is None or (isinstance(o, Tensor) and o.dtype == dtype) for o in others)


def batch_norm(
    x: Any, mean_: Any, var: Any, weight: Any = None, bias: Any = None, *, eps: Any = 1e-5, channel: int = 1
) -> Tensor:
    """F.batch_norm, which has no derivative in mean and var, takes no eps below 0 and channels on axis 1."""
    fits = channel == 1 and _alike(x, mean_, var, weight, bias) and x.ndim > 1 and x.numel() and eps >= 0
    if fits and not (mean_.requires_grad or var.requires_grad or dual_level_open()):
        channels = x.shape[1:2]
        stored = mean_.shape == channels and var.shape == channels
        if stored and (weight is None or weight.shape == channels) and (bias is None or bias.shape == channels):
            return F.batch_norm(x, mean_, var, weight, bias, False, 0.0, float(eps))
    return _batch_norm(x, mean_, var, weight, bias, eps=eps, channel=channel)


def cross_entropy(x: Any, labels: Any, *, reduction: Any = "mean") -> Tensor:
    """F.cross_entropy; under autocast in float32, as PyTorch does for its own."""
    if isinstance(x, Tensor) and x.dtype in SHORT and torch.is_autocast_enabled(x.device.type):
        with torch.autocast(x.device.type, enabled=False):
            return cross_entropy(x.float(), labels, reduction=reduction)
    if _alike(x) and isinstance(labels, Tensor) and labels.dtype == torch.int64 and x.ndim and x.numel():
        axis = min(x.ndim - 1, 1)
        if labels.shape == (*x.shape[:axis], *x.shape[axis + 1 :]) and reduction in ("mean", "sum", "none"):
            _refuse_ignored(labels)
            return F.cross_entropy(x, labels, reduction=reduction, ignore_index=NO_LABEL)
    return _cross_entropy(x, labels, reduction=reduction)


def _refuse_ignored(labels: Tensor) -> None:
    if labels.device.type != "cpu":
        torch._assert_async((labels != NO_LABEL).all())  # no wait for the device
    elif int(labels.min()) == NO_LABEL:
        raise ShapeError("cross_entropy", f"label {NO_LABEL} is no class")


def mse_loss(x: Any, target: Any, *, reduction: Any = "mean") -> Tensor:
    fits = _alike(x, target) and target is not None and x.shape == target.shape and x.numel()
    if fits and reduction in ("mean", "sum", "none"):
        return F.mse_loss(x, target, reduction=reduction)
    return _mse_loss(x, target, reduction=reduction)


def gelu(x: Any, approximate: str = "none") -> Tensor:
    known = approximate in ("none", "tanh")
    return F.gelu(x, approximate=approximate) if known and _alike(x) else _gelu(x, approximate)


def upsample_nearest(x: Any, factor: int | Sequence[int], *, rank: int | None = None) -> Tensor:
    """F.interpolate, which multiplies positions by 1/factor in floats, where that gives the right cells."""
    factors = (factor,) * (rank or 0) if isinstance(factor, int) else tuple(factor)
    known = len(factors) in (1, 2, 3) and all(type(f) is int and f > 0 for f in factors)
    if known and _alike(x) and rank in (None, len(factors)) and x.ndim == len(factors) + 2 and x.numel():
        pairs = list(zip(x.shape[2:], factors, strict=True))
        if all(nearest_is_exact(n, f) for n, f in pairs):
            return F.interpolate(x, [n * f for n, f in pairs], mode="nearest")
    return _upsample(x, factor, rank=rank)


def linear(w: Any, b: Any, x: Any) -> Tensor:
    """F.linear, which takes vectors for w and whatever broadcasts for b."""
    fits = isinstance(x, Tensor) and x.is_floating_point() and x.ndim and isinstance(w, Tensor) and w.ndim == 2
    if fits and (b is None or b.shape == w.shape[:1]):
        return F.linear(x, w, b)
    return _linear(w, b, x)


def softmax(x: Any, axis: int = -1) -> Tensor:
    return F.softmax(x, axis) if _has_cells(x, axis) else _softmax(x, axis)


def log_softmax(x: Any, axis: int = -1) -> Tensor:
    return F.log_softmax(x, axis) if _has_cells(x, axis) else _log_softmax(x, axis)


def _has_cells(x: Any, axis: Any) -> bool:
    return x.is_floating_point() and type(axis) is int and -x.ndim <= axis < x.ndim and x.shape[axis] > 0


def group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, *, eps: Any = 1e-5) -> Tensor:
    """F.group_norm; on channels_last its kernel takes E[x*x] - E[x]**2 for the variance, of which nothing may be left.

    So the means and deviations that it found decide: where digits were lost, or where nobody can look, x is copied
    to contiguous memory, whose kernel subtracts the mean first.
    """
    if not is_channels_last(x, x.ndim - 2):
        return F.group_norm(x.contiguous(), groups, weight, bias, eps)
    if eager(x) and x.device.type == "cpu" and x.numel() and not torch.is_autocast_enabled("cpu"):
        n, c, *sizes = x.shape
        y, mean, inverse = torch.native_group_norm(x, weight, bias, n, c, math.prod(sizes), groups, eps)
        if bool((mean * inverse).detach().abs().amax() <= NOTHING_LOST):  # written so that NaN fails
            return y
    return F.group_norm(x.contiguous(), groups, weight, bias, eps).contiguous(memory_format=LAYOUT[x.ndim - 2])


_settled: dict[tuple[Any, ...], Plan] = {}


def conv(w: Any, b: Any, x: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> Tensor | None:
    """The plan of an earlier call with these shapes, types and settings; None where the general way must look."""
    plain = type(x) in PLAIN and type(w) in PLAIN and (b is None or type(b) in PLAIN)
    if not plain or torch.compiler.is_compiling() or torch._C._is_tracing():
        return None
    if type(groups) is not int or not (are_ints(stride) and are_ints(padding) and are_ints(dilation)):
        return None  # 2.0 and True are refused, and would find what stands under 2 and 1
    shapes = (x.shape, w.shape) if b is None else (x.shape, w.shape, b.shape)
    key = (shapes, x.dtype, w.dtype, b if b is None else b.dtype, stride, padding, dilation, groups)
    try:
        plan = _settled.get(key)
    except TypeError:  # a tracer's open sizes
        return None
    if plan is None:
        if any(t.dtype in NOT_NUMBERS for t in (x, w, b) if t is not None):
            return None
        win = conv_window(*shapes[:2], stride, padding, dilation, groups)
        plan = ENGINE.plan(CONV, shapes, {"window": win, "groups": groups})
        if len(_settled) >= MOST_PLANS:
            _settled.clear()
        _settled[key] = plan
    y: Tensor = plan(x, w) if b is None else plan(x, w, b)
    return y


def mean(x: Any, axes: Any = None, *, keepdims: bool = False) -> Tensor:
    """torch.mean, where there are cells to average and the axes are plain and not named twice."""
    if _alike(x) and x.ndim and x.numel():
        n = x.ndim
        at = tuple(range(n)) if axes is None else (axes,) if type(axes) is int else axes
        plain = type(at) in (tuple, list) and at and all(type(a) is int and -n <= a < n for a in at)
        if plain and len({a % n for a in at}) == len(at):
            return torch.mean(x, at, keepdim=bool(keepdims))
    return _mean(x, axes, keepdims=keepdims)


def matmul(x: Any, z: Any) -> Tensor:
    """torch.matmul, whose broadcasting is NumPy's; the formula says what is wrong where it refuses."""
    if z is not None and _alike(x, z):
        try:
            return torch.matmul(x, z)
        except RuntimeError:
            pass
    return _matmul(x, z)


def _pair(line: Plan) -> Callable[[Any, Any], Tensor | None]:
    """PyTorch's own broadcasting, of numbers too; None where the general way must say what is wrong."""

    def call(a: Any, b: Any) -> Tensor | None:
        if getattr(a, "dtype", None) in NOT_NUMBERS or getattr(b, "dtype", None) in NOT_NUMBERS:
            return None
        try:
            result: Tensor = line(a, b)
        except RuntimeError:
            return None
        return result

    return call


_OF_TWO = ("add", "sub", "mul", "div", "maximum", "minimum", "greater", "greater_equal", "equal", "fmod")
PAIRS: dict[str, Plan] = {name: _pair(TABLE[name]((), ())) for name in _OF_TWO}
COMPOSITES: dict[str, Plan] = {
    **PAIRS,
    **NATIVES,
    "batch_norm": batch_norm,
    "conv": conv,
    "cross_entropy": cross_entropy,
    "matmul": matmul,
    "mean": mean,
    "mse_loss": mse_loss,
    "gelu": gelu,
    "upsample_nearest": upsample_nearest,
    "global_max_pool": global_max_pool,
    "global_avg_pool": global_avg_pool,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "linear": linear,
    "layer_norm": lambda x, shape, weight=None, bias=None, *, eps=1e-5: F.layer_norm(x, shape, weight, bias, eps),
    "group_norm": group_norm,
}
