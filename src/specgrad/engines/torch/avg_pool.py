"""Averages over windows, and their adjoint."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...window import Adaptive, Shape, Window
from ..base import Kernel, number
from . import log_step_pool
from .autograd_rules import HALF_TYPES, MAX_HALF_ADDENDS, ours, rounded_once
from .log_step_pool import DOUBLING_TYPES
from .max_pool import (
    ADAPTIVE_AVG,
    CHANNELS_AVG_NS,
    NATIVE_AVG_NS,
    NATIVE_AVG_STRIDED_NS,
    WORTH_AVG_NS,
    Unary,
    can_double,
    is_adaptive,
    is_channels_last,
    keep_channels_last,
    native_time,
    on_planes,
)
from .modes import needs_grad
from .strided_pool import MAX_TAPS_BY_SLICES, SlicedPool, can_slice

# Nanoseconds that a function of ours on the tape takes more than a native one, there and back.
TAPE_OVERHEAD_NS = 100e3


def _window_counts(window: Window, divisor: Any) -> Any:
    """Return the divisor of every window: one number if all are equal, else an array of shape `out`."""
    if divisor not in ("padded", "inside"):
        return number(divisor)
    axes = window.counts(divisor == "padded")
    low, high = (math.prod(int(of(n)) for n in axes) for of in (np.min, np.max))
    return low if low == high and low else functools.reduce(np.multiply.outer, axes)


def _division_by(counts: Any) -> Callable[[Tensor], Tensor]:
    """Return a function that divides by the counts; a window of count 0 gives 0."""
    if not hasattr(counts, "shape"):
        return (lambda t: t) if counts == 1 else lambda t: t / counts
    any_empty = not counts.all()
    empty, safe = (counts == 0, counts.clip(min=1)) if any_empty else (counts, counts)

    def divide(t: Tensor) -> Tensor:  # tensors are made per call: a kernel may outlive the tracer that asked for it
        y = t / torch.from_numpy(safe).to(t)
        return torch.where(torch.from_numpy(empty).to(t.device), 0, y) if any_empty else y

    return divide


def _native_avg(window: Window, divisor: Any) -> Unary | None:
    """Return PyTorch's own avg_pool for this window and divisor; None if it does not support them."""
    native = window.native()
    if native is None or window.rank > 3 or native.padding is None or set(native.dilation) != {1}:
        return None
    if any(2 * p > k for p, k in zip(native.padding, window.kernel, strict=True)) or window.has_empty:
        return None
    if window.rank == 3 and any(n < k for n, k in zip(window.size, window.kernel, strict=True)):
        return None  # avg_pool3d counts no padding when it checks the kernel
    nd, kernel, stride, padding, ceil = AVG_POOL[window.rank], window.kernel, native.stride, native.padding, native.ceil
    if divisor in ("padded", "inside"):
        include = divisor == "padded"
        return lambda t: nd(t, kernel, stride, padding, ceil, include)
    if not isinstance(divisor, int):
        return None
    if window.rank > 1:
        return lambda t: nd(t, kernel, stride, padding, ceil, True, divisor)
    # A line as one row: avg_pool1d takes no divisor.
    row = (1, *kernel), (1, *stride), (0, *padding), ceil, True, divisor
    return lambda t: F.avg_pool2d(t.unsqueeze(-2), *row).squeeze(-2)


def _avg_pool3d(t: Tensor, *how: Any) -> Tensor:
    """Return F.avg_pool3d(t, *how), half types on a CPU by float32, for which it has no kernel."""
    if t.dtype in HALF_TYPES and t.device.type == "cpu":
        return F.avg_pool3d(t.float(), *how).to(t.dtype)
    return F.avg_pool3d(t, *how)


AVG_POOL: dict[int, Callable[..., Tensor]] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: _avg_pool3d}


def _matrix_products(t: Tensor, window: Window, transpose: bool) -> Tensor:
    """Return window sums of t, or their adjoint (`transpose`): adaptive axes by 0-1 matrices, others by taps."""
    for axis, part in enumerate(window.axes):
        dim = t.ndim - window.rank + axis
        if isinstance(part, Adaptive):
            m = torch.from_numpy(part.matrix()).to(t)
            t = torch.tensordot(t, m.T if transpose else m, ((dim,), (1,))).movedim(-1, dim)
        else:
            t = _sum_of_taps(t, Window((part,)), dim, transpose)
    return t


def _sum_of_taps(t: Tensor, window: Window, dim: int, transpose: bool) -> Tensor:
    """Return window sums of t along the axis `dim`, or their adjoint (`transpose`), tap by tap."""
    lead = (slice(None),) * dim
    size = window.size if transpose else window.out
    shape = (*t.shape[:dim], *size, *t.shape[dim + 1 :])
    if not any(True for _ in window.taps()):
        return log_step_pool.attached_zeros(t, shape)
    total = t.new_zeros(shape)
    rest = tuple(slice(0, n) for n in t.shape[dim + 1 :])
    for tap in window.taps():
        to, read = (tap.transposed() if transpose else tap).slices()
        total = log_step_pool.accumulate(total, to + rest, t[lead + read])
    return total


def _summed_in_float32(window: Window, compute: Kernel) -> Kernel:
    """Return `compute`, half types on a CPU by way of float32 if many windows read a cell."""
    if window.overlap <= MAX_HALF_ADDENDS:
        return compute
    return rounded_once(compute, lambda t: t.device.type == "cpu" and (needs_grad(t) or t.is_contiguous()))


def lower_avg_pool(x: Shape, *, window: Window, divisor: Any) -> Kernel:
    """Return the kernel of avg_pool, sums over `divisor` ("padded", "inside" or a number).

    Half types by float32 if many windows read a cell.
    """
    return _summed_in_float32(window, _avg_pool(x, window, divisor))


def lower_avg_spread(gy: Shape, *, window: Window, divisor: Any) -> Kernel:
    """Return the kernel of avg_spread, the adjoint of avg_pool with this divisor.

    Half types by float32 if many windows read a cell.
    """
    return _summed_in_float32(window, _avg_spread(gy, window, divisor))


def _avg_pool(x: Shape, window: Window, divisor: Any) -> Kernel:
    """Return the fastest kernel for avg_pool on this shape and window; `divisor` is "padded", "inside" or a number."""
    counts = _window_counts(window, divisor)
    if window.reads_all:  # a mean, which PyTorch computes far faster than a pool
        axes = tuple(range(-window.rank, 0))
        if counts == math.prod(window.size):
            return lambda t: t.mean(axes, keepdim=True)
        return lambda t: t.sum(axes, keepdim=True) / counts
    divide = _division_by(counts)
    native = _native_avg(window, divisor)
    if native is not None:
        traceable = on_planes(x, window.rank, native)
    elif is_adaptive(window) and divisor == "inside":
        adaptive, out = ADAPTIVE_AVG[window.rank], window.out
        traceable = on_planes(x, window.rank, lambda t: adaptive(t, out))
    else:
        traceable = lambda t: divide(_matrix_products(t, window, transpose=False))
    params = {"window": window, "divisor": divisor}
    if not can_double(window):
        return _faster_by_slices("avg_pool", params, x, native is not None, counts, traceable)
    if native is not None and native_time(x, window, NATIVE_AVG_NS) < WORTH_AVG_NS:
        return traceable
    fast = lambda t: divide(log_step_pool.dense_sum(t, window))
    if not hasattr(counts, "shape"):
        fast = lambda t: log_step_pool.dense_sum(t, window, 1 / counts)
    compute = _fast_for_float32_64("avg_pool", params, fast, traceable)

    def dense(t: Tensor, wide: Window) -> Tensor:
        return divide(log_step_pool.dense_sum(t, wide).movedim(-1, 1)).movedim(1, -1)

    return compute if native is None else keep_channels_last(x, window, compute, traceable, dense, CHANNELS_AVG_NS)


def _avg_spread(gy: Shape, window: Window, divisor: Any) -> Kernel:
    """Return the fastest kernel for the adjoint of avg_pool with this divisor, on this shape of gy and window."""
    counts = _window_counts(window, divisor)
    if window.reads_all:
        return lambda t: t.expand(*t.shape[: t.ndim - window.rank], *window.size) / counts
    divide = _division_by(counts)
    traceable: Kernel = lambda t: _matrix_products(divide(t), window, transpose=True)
    native = window.native()
    if window.rank == 2 and native is not None and _native_avg(window, divisor) is not None:
        rule = None if divisor in ("padded", "inside") else divisor
        args = (window.kernel, native.stride, native.padding, native.ceil, divisor != "inside", rule)

        def backward(t: Tensor) -> Tensor:
            like = t.new_empty(1).expand(*t.shape[:2], *window.size)
            gx: Tensor = torch.ops.aten.avg_pool2d_backward(t, like, *args)
            return gx

        traceable = on_planes(gy, 2, backward)
    params = {"window": window, "divisor": divisor}
    if not can_double(window):
        return _faster_by_slices("avg_spread", params, gy, window.rank == 2, counts, traceable)
    back = window.adjoint()
    if back is None or (window.rank == 2 and native_time(gy, window, NATIVE_AVG_NS) < WORTH_AVG_NS):
        return traceable
    if hasattr(counts, "shape"):
        fast = lambda t: log_step_pool.dense_sum(divide(t), back)
    else:
        fast = lambda t: log_step_pool.dense_sum(t, back, 1 / counts)
    compute = _fast_for_float32_64("avg_spread", params, fast, traceable)
    return lambda t: traceable(t) if window.rank == 2 and is_channels_last(t, 2) else compute(t)


def _fast_for_float32_64(name: str, params: dict[str, Any], fast: Kernel, traceable: Kernel) -> Kernel:
    """Return `fast` with the derivative rules of the operator `name` for float32 and float64, `traceable` for other
    types.
    """
    doubled = ours(name, params, fast, traceable)
    return lambda t: doubled(t) if t.dtype in DOUBLING_TYPES and t.numel() else traceable(t)


def _faster_by_slices(
    name: str, params: dict[str, Any], x: Shape, native: bool, counts: Any, traceable: Kernel
) -> Kernel:
    """Return avg_pool or avg_spread (`name`) by slices for contiguous CPU memory, if estimated faster; else
    `traceable`.

    `native`: PyTorch has an operator for it; `counts` are the divisors.
    """
    window = params["window"]
    time = native_time(x, window, NATIVE_AVG_STRIDED_NS) if native else math.inf
    planes = math.prod(x[: len(x) - window.rank])
    if type(planes) is not int or not can_slice(window) or (native and max(window.kernel) > MAX_TAPS_BY_SLICES):
        return traceable
    slices = SlicedPool(window)
    gain = time - slices.time(planes, back=name == "avg_spread")
    if gain < 0:
        return traceable
    divide = _division_by(counts)
    if name == "avg_pool":
        fast = (
            (lambda t: divide(slices.window_sums(t)))
            if hasattr(counts, "shape")
            else lambda t: slices.window_sums(t, counts)
        )
    else:
        fast = (
            (lambda t: slices.spread_sums(divide(t)))
            if hasattr(counts, "shape")
            else lambda t: slices.spread_sums(t, counts)
        )
    compute = _fast_for_float32_64(name, params, fast, traceable)
    if gain >= TAPE_OVERHEAD_NS:
        return lambda t: compute(t) if t.is_contiguous() else traceable(t)
    return lambda t: compute(t) if t.is_contiguous() and not needs_grad(t) else traceable(t)
