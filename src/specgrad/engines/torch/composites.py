"""Compositions for which PyTorch has one operator: it is called where it means the same.

A line looks at shapes, types and settings, and gives the function to call; what only one call knows (whether a
derivative is wanted, what the labels are, whether autocast is on) that function looks at, each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specgrad.ops import composites, contract

from ...errors import ShapeError
from ..base import Kernel
from .autograd_rules import (
    HALF_TYPES,
    NOT_NUMBERS,
    flatten_spatial,
    is_eager,
    packed,
    rounded_once,
    unflatten_spatial,
    unwrapped,
)
from .lowerings import TABLE
from .max_pool import is_channels_last
from .modes import in_dual_level, needs_grad
from .native_functions import NATIVE_FUNCTIONS, nearest_is_exact, reduced_axes
from .planes_as_channels import LAYOUT
from .reductions import global_avg_pool, global_max_pool

IGNORED_LABEL = -(2**62)  # F.cross_entropy passes over one label, always; every other that is outside is its error
MAX_MEAN_OVER_DEVIATION = 4.0  # abs(mean) / deviation up to which E[x*x] - E[x]**2 keeps its digits


_batch_norm, _cross_entropy = unwrapped(composites.batch_norm), unwrapped(composites.cross_entropy)
_matmul = unwrapped(contract.matmul)


def _same_float_type(x: Any, *others: Any) -> bool:
    """Return whether x and all `others` are plain tensors of one floating type, outside of tracers; None is skipped."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or not is_eager(x):
        return False
    dtype = x.dtype
    return all(o is None or (isinstance(o, Tensor) and o.dtype == dtype) for o in others)


def batch_norm(
    x: Any, mean_: Any, var: Any, weight: Any = None, bias: Any = None, *, eps: Any = 1e-5, channel: int = 1
) -> Kernel | None:
    """Return F.batch_norm as a kernel, which has no derivative in mean and var, needs eps >= 0 and channels on axis 1;
    else None.

    `weight` and `bias` have one number per channel or are None.
    """
    if channel != 1 or mean_ is None or var is None or not eps >= 0:
        return None
    if not _same_float_type(x, mean_, var, weight, bias) or x.ndim < 2 or not x.numel():
        return None
    channels, small = x.shape[1:2], float(eps)
    if any(t.shape != channels for t in (mean_, var, weight, bias) if t is not None):
        return None

    def compute(
        x: Tensor,
        mean_: Tensor,
        var: Tensor,
        weight: Any = None,
        bias: Any = None,
        *,
        eps: Any = 1e-5,
        channel: int = 1,
    ) -> Tensor:
        if mean_.requires_grad or var.requires_grad or in_dual_level():
            return _batch_norm(x, mean_, var, weight, bias, eps=eps)
        weight, bias, mean_, var = packed(weight, bias, mean_, var)
        (lines,) = flatten_spatial(x) if needs_grad(*(v for v in (x, weight, bias) if v is not None)) else (x,)
        y = torch.batch_norm(lines, weight, bias, mean_, var, False, 0.0, small, torch.backends.cudnn.enabled)
        return unflatten_spatial(y, x.shape)

    return compute


def cross_entropy(x: Any, labels: Any, *, reduction: Any = "mean") -> Kernel | None:
    """Return F.cross_entropy of scores x and integer labels as a kernel; under autocast in float32, as PyTorch does for
    its own.

    `reduction` is "mean", "sum" or "none"; None if x is no tensor.
    """
    if not isinstance(x, Tensor):
        return None
    axis = min(x.ndim - 1, 1)
    fits = _same_float_type(x) and isinstance(labels, Tensor) and labels.dtype == torch.int64 and x.ndim and x.numel()
    fits = fits and labels.shape == (*x.shape[:axis], *x.shape[axis + 1 :]) and reduction in ("mean", "sum", "none")
    loss = _native_cross_entropy if fits else _cross_entropy
    return _in_float32_under_autocast(loss) if x.dtype in HALF_TYPES else loss


def _in_float32_under_autocast(loss: Kernel) -> Kernel:
    """Return the kernel `loss`, computed in float32 while autocast is on."""

    def compute(x: Tensor, labels: Any, *, reduction: Any = "mean") -> Any:
        if not torch.is_autocast_enabled(x.device.type):
            return loss(x, labels, reduction=reduction)
        with torch.autocast(x.device.type, enabled=False):
            return composites.cross_entropy(x.float(), labels, reduction=reduction)

    return compute


def _native_cross_entropy(x: Tensor, labels: Tensor, *, reduction: str = "mean") -> Tensor:
    """Return F.cross_entropy of scores x and labels by `reduction`; raise ShapeError for IGNORED_LABEL, which PyTorch
    would skip.
    """
    _refuse_ignored(labels)
    return F.cross_entropy(x, labels, None, None, IGNORED_LABEL, None, reduction)


MAX_CELLS_READ_BY_PYTHON = 16  # numbers, which Python reads faster than PyTorch


def _refuse_ignored(labels: Tensor) -> None:
    """Raise ShapeError if some label is IGNORED_LABEL; on a device, assert it asynchronously."""
    if not labels.is_cpu:
        torch._assert_async((labels != IGNORED_LABEL).all())  # no wait for the device
    elif (
        min(labels.flatten().tolist()) if labels.numel() <= MAX_CELLS_READ_BY_PYTHON else labels.min().item()
    ) == IGNORED_LABEL:
        raise ShapeError("cross_entropy", f"label {IGNORED_LABEL} is no class")


def mse_loss(x: Any, target: Any, *, reduction: Any = "mean") -> Kernel | None:
    """Return F.mse_loss of x and `target` as a kernel; None if shapes or types differ, or for an unknown reduction."""
    fits = _same_float_type(x, target) and target is not None and x.shape == target.shape and x.numel()
    if fits and reduction in ("mean", "sum", "none"):
        return lambda x, target, *, reduction="mean": F.mse_loss(x, target, reduction=reduction)
    return None


def gelu(x: Any, approximate: str = "none") -> Kernel | None:
    """Return F.gelu as a kernel.

    None for types that it does not know, and words in `approximate` but "none" and "tanh".
    """
    known = approximate in ("none", "tanh") and _same_float_type(x)
    return (lambda x, approximate="none": F.gelu(x, approximate=approximate)) if known else None


def upsample_nearest(x: Any, factor: int | Sequence[int], *, rank: int | None = None) -> Kernel | None:
    """Return F.interpolate by `factor` as a kernel if its float positions, multiplied by 1/factor, give the right
    cells; else None.
    """
    factors = (factor,) * (rank or 0) if isinstance(factor, int) else tuple(factor)
    known = len(factors) in (1, 2, 3) and all(type(f) is int and f > 0 for f in factors)
    if known and _same_float_type(x) and rank in (None, len(factors)) and x.ndim == len(factors) + 2 and x.numel():
        pairs = list(zip(x.shape[2:], factors, strict=True))
        if all(nearest_is_exact(n, f) for n, f in pairs):
            sizes = [n * f for n, f in pairs]
            return lambda x, *_, **__: F.interpolate(x, sizes, mode="nearest")
    return None


def linear(w: Any, b: Any, x: Any) -> Kernel | None:
    """Return F.linear as a kernel for a matrix w and a vector b (or None), else None; F.linear itself would take
    more.
    """
    fits = isinstance(x, Tensor) and x.is_floating_point() and x.ndim and isinstance(w, Tensor) and w.ndim == 2
    return (lambda w, b, x: F.linear(x, w, b)) if fits and (b is None or b.shape == w.shape[:1]) else None


def softmax(x: Any, axis: int = -1) -> Kernel | None:
    """Return torch.softmax along `axis` as a kernel; None if x is not floating or the axis is invalid."""
    return (lambda x, axis=-1: torch.softmax(x, axis)) if _has_cells(x, axis) else None


def log_softmax(x: Any, axis: int = -1) -> Kernel | None:
    """Return torch.log_softmax along `axis` as a kernel; None if x is not floating or the axis is invalid."""
    return (lambda x, axis=-1: torch.log_softmax(x, axis)) if _has_cells(x, axis) else None


def _has_cells(x: Any, axis: Any) -> bool:
    """Return whether x is floating and `axis` one of its axes with at least one cell."""
    return x.is_floating_point() and type(axis) is int and -x.ndim <= axis < x.ndim and x.shape[axis] > 0


def _takes_affine(x: Any, eps: Any, wanted: Sequence[int], *vectors: Any) -> bool:
    """Return whether PyTorch's normalisations take this eps and these vectors, of shape `wanted` and x's type.

    Of half types they take vectors of float32 too.
    """
    given = [v for v in vectors if v is not None]
    if type(eps) not in (int, float) or not all(isinstance(v, Tensor) and v.shape == tuple(wanted) for v in given):
        return False
    types = {v.dtype for v in given}
    return types <= {x.dtype} or (x.dtype in HALF_TYPES and types == {torch.float32})


def layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, *, eps: Any = 1e-5) -> Kernel | None:
    """Return F.layer_norm over the last axes `shape` as a kernel; None if shapes or types of x, weight and bias do not
    fit.

    `eps` is added to the variance.
    """
    tail = tuple(shape)
    fits = isinstance(x, Tensor) and x.is_floating_point() and tail and x.shape[max(0, x.ndim - len(tail)) :] == tail
    return _layer_norm if fits and x.numel() and _takes_affine(x, eps, tail, weight, bias) else None


def _layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, *, eps: Any = 1e-5) -> Tensor:
    """Return F.layer_norm.

    For half types in float32 if weight or bias need a gradient, since PyTorch would sum that in half. The last axes of
    x have `shape`; `eps` is added to the variance.
    """
    if x.dtype in HALF_TYPES and needs_grad(*(v for v in (weight, bias) if v is not None)):
        wide: Tensor = _layer_norm_in_float32(x, shape, weight, bias, eps)
        return wide
    return F.layer_norm(x, shape, weight, bias, eps)


_layer_norm_in_float32: Kernel = rounded_once(F.layer_norm)


def group_norm(x: Any, groups: Any, weight: Any = None, bias: Any = None, *, eps: Any = 1e-5) -> Kernel | None:
    """Return F.group_norm as a kernel; None if shapes or types of x, weight and bias do not fit.

    `eps` is added to the variance.
    """
    fits = isinstance(x, Tensor) and x.is_floating_point() and x.ndim >= 2 and type(groups) is int and groups >= 1
    fits = fits and x.numel() and x.shape[1] % groups == 0 and _takes_affine(x, eps, x.shape[1:2], weight, bias)
    return _group_norm if fits and x.numel() > x.shape[0] * groups else None  # F.group_norm takes no groups of one


def _group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, *, eps: Any = 1e-5) -> Tensor:
    """Return F.group_norm; for channels_last its kernel's variance E[x*x] - E[x]**2 may lose all digits.

    The means and deviations that it found decide: where digits were lost, or values cannot be read, x is copied to
    contiguous memory, whose kernel subtracts the mean first. `eps` is added to the variance; weight and bias are per
    channel or None.
    """
    if not is_channels_last(x, x.ndim - 2):
        return F.group_norm(x.contiguous(), groups, weight, bias, eps)
    if 1 in x.shape:  # whose stride may be any, in gy too: PyTorch then refuses its own layout
        return _with_standard_strides(_group_norm_by_channels(_with_standard_strides(x), groups, weight, bias, eps))
    return _group_norm_by_channels(x, groups, weight, bias, eps)


def _with_standard_strides(x: Tensor) -> Tensor:
    """Return x in channels_last, and its cotangent, with the strides that PyTorch would give it."""
    return unflatten_spatial(flatten_spatial(x)[0], x.shape)


def _group_norm_by_channels(x: Tensor, groups: int, weight: Any, bias: Any, eps: float) -> Tensor:
    """Return F.group_norm of x on channels_last if its variance is accurate, else computed on a contiguous copy.

    `weight` and `bias` are per channel or None, `eps` is added to the variance.
    """
    weight, bias = packed(weight, bias)
    if is_eager(x) and x.device.type == "cpu" and x.numel() and not torch.is_autocast_enabled("cpu"):
        n, c, *sizes = x.shape
        y, mean, inverse = torch.native_group_norm(x, weight, bias, n, c, math.prod(sizes), groups, eps)
        if _variance_is_accurate((mean.detach() * inverse.detach()).view(-1)):
            return y
    return F.group_norm(x.contiguous(), groups, weight, bias, eps).contiguous(memory_format=LAYOUT[x.ndim - 2])


def _variance_is_accurate(ratios: Tensor) -> bool:
    """Return whether all `ratios`, mean / deviation, are at most MAX_MEAN_OVER_DEVIATION in size; False for NaN."""
    if ratios.numel() <= MAX_CELLS_READ_BY_PYTHON:
        return all(abs(r) <= MAX_MEAN_OVER_DEVIATION for r in ratios.tolist())
    return bool(ratios.abs_().amax().item() <= MAX_MEAN_OVER_DEVIATION)


def mean(x: Any, axes: Any = None, *, keepdims: bool = False) -> Kernel | None:
    """Return torch.mean over `axes` (None: all), kept if `keepdims`, as a kernel if there are cells and the axes are
    valid and distinct; else None.
    """
    at = reduced_axes(x, axes) if _same_float_type(x) and x.numel() else None
    keep = bool(keepdims)
    if at is None:
        return None
    if len(at) == x.ndim and not keep:  # of all axes without their names: the gradient is then one step
        return lambda x, *_, **__: torch.mean(x)
    return lambda x, axes=None, **_: torch.mean(x, at, keep)


def matmul(x: Any, z: Any) -> Kernel | None:
    """Return torch.matmul as a kernel for two floating tensors x and z of one type; else None."""
    return _native_matmul if z is not None and _same_float_type(x, z) else None


def _native_matmul(x: Tensor, z: Tensor) -> Tensor:
    """Return torch.matmul of x and z, which broadcasts as NumPy; where it refuses, the formula raises our error."""
    try:
        return torch.matmul(x, z)
    except RuntimeError:
        return _matmul(x, z)


def _binary_selector(native: Kernel) -> Callable[[Any, Any], Kernel | None]:
    """Return a selector for a native binary operator: a function of two tensors that gives its kernel or None.

    That kernel returns None where PyTorch refuses the arguments.
    """

    def call(a: Any, b: Any) -> Tensor | None:
        try:
            result: Tensor = native(a, b)
        except RuntimeError:
            return None
        return result

    def line(a: Any, b: Any) -> Kernel | None:
        wrong = getattr(a, "dtype", None) in NOT_NUMBERS or getattr(b, "dtype", None) in NOT_NUMBERS
        return None if wrong else call

    return line


_BINARY_OPERATORS = ("add", "sub", "mul", "div", "maximum", "minimum", "greater", "greater_equal", "equal", "fmod")
PAIRS = {name: _binary_selector(TABLE[name]((), ())) for name in _BINARY_OPERATORS}
COMPOSITES: dict[str, Callable[..., Any]] = {
    **PAIRS,
    **NATIVE_FUNCTIONS,
    "batch_norm": batch_norm,
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
    "layer_norm": layer_norm,
    "group_norm": group_norm,
}
"""Compositions, operators of two, and what our functions ask for by name: (*args, **kwargs) -> a function of the same
arguments, settled by their shapes and types, or None: the general way."""
