"""Functions that PyTorch has under another name, or only for some arguments: called where they mean the same.

None, or the composition, where the general way must run: in tracers, for arguments that PyTorch's operator does not
take, where its result is not decided by the contract (equal cells, positions that come twice), and for errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specgrad.ops import integer_rounding, max_pool
from specgrad.window import Shape
from specgrad.window.resize import LARGEST_EXACT

from ..base import Kernel
from .autograd_rules import HALF_TYPES, MAX_HALF_ADDENDS, is_eager, ours, rounded_once, unwrapped
from .lowerings import quantized
from .max_pool import is_channels_last
from .modes import needs_grad
from .planes_as_channels import LAYOUT
from .topk import topk

_mod, _max_unpool = unwrapped(integer_rounding.mod), unwrapped(max_pool.max_unpool)


def _is_eager_float(x: Any) -> bool:
    """Return whether x is a plain, non-empty tensor of floats outside of tracers."""
    return isinstance(x, Tensor) and x.is_floating_point() and is_eager(x) and x.numel() > 0


def _is_cpu_float(x: Any) -> bool:
    """Return whether `_is_eager_float` holds and x is on the CPU, so that its values can be read at once."""
    return _is_eager_float(x) and x.device.type == "cpu"


def _is_cpu_index(i: Any) -> bool:
    """Return whether i is a plain int64 tensor on the CPU, outside of tracers."""
    return isinstance(i, Tensor) and i.dtype == torch.int64 and i.device.type == "cpu" and is_eager(i)


def _is_axis(axis: Any, x: Tensor) -> bool:
    """Return whether `axis` is an int that names an axis of x."""
    return type(axis) is int and -x.ndim <= axis < x.ndim


# --- cells ---------------------------------------------------------------------------------------------------------


def trunc(x: Any) -> Kernel | None:
    """Return torch.trunc as a kernel for plain float tensors; else None."""
    return torch.trunc if _is_eager_float(x) else None


def mod(x: Any, y: Any) -> Kernel | None:
    """Return torch.remainder(x, y) as a kernel, or our composition where y needs a gradient; None for other types."""
    if not _is_eager_float(x):
        return None
    if type(y) is float or (type(y) is int and abs(y) < 2**31):
        return torch.remainder
    return _remainder if isinstance(y, Tensor) and y.dtype == x.dtype else None


def _remainder(x: Tensor, y: Tensor) -> Tensor:
    """Return torch.remainder(x, y); the composition where y needs a gradient or shapes do not broadcast."""
    if y.requires_grad:
        return _mod(x, y)
    try:
        return torch.remainder(x, y)
    except RuntimeError:  # shapes that do not broadcast
        return _mod(x, y)


MAX_SOFTPLUS_THRESHOLD = 40  # the exp of more may overflow


def softplus(x: Any, beta: Any, *, threshold: Any) -> Kernel | None:
    """Return F.softplus as a kernel, which takes exp of everything below the threshold; None for thresholds that
    overflow, and beta <= 0.
    """
    known = isinstance(x, Tensor) and x.is_floating_point() and all(type(v) in (int, float) for v in (beta, threshold))
    fits = known and 0 < beta < math.inf and threshold <= MAX_SOFTPLUS_THRESHOLD
    return (lambda x, beta, *, threshold: F.softplus(x, beta, threshold)) if fits else None


# --- along an axis -------------------------------------------------------------------------------------------------


def reduced_axes(x: Any, axes: Any) -> tuple[int, ...] | None:
    """Return the axes as a non-empty tuple for PyTorch's reductions; None if invalid or repeated."""
    if type(axes) not in (type(None), int, tuple, list):
        return None
    at = tuple(range(x.ndim)) if axes is None else (axes,) if type(axes) is int else tuple(axes)
    known = at and all(_is_axis(a, x) for a in at) and len({a % x.ndim for a in at}) == len(at)
    return at if known else None


def _reduction_selector(native: Callable[..., Tensor]) -> Callable[..., Kernel | None]:
    """Return a selector for a PyTorch reduction `native` (amax, amin); it applies to ties="split" alone."""

    def line(x: Any, axes: Any = None, *, keepdims: bool = False, ties: str = "split") -> Kernel | None:
        at = reduced_axes(x, axes) if ties == "split" and _is_eager_float(x) else None
        keep = bool(keepdims)
        return None if at is None else lambda x, axes=None, **_: native(x, at, keepdim=keep)

    return line


def sum_keepdims(x: Any, *, axes: Shape) -> Kernel | None:
    """Return torch.sum over `axes` with keepdim as a kernel, one call for sum and reshape; None for other types."""
    return (lambda x, *, axes: torch.sum(x, axes, True)) if _is_eager_float(x) else None


def _argmax_selector(native: Callable[..., Tensor]) -> Callable[..., Kernel | None]:
    """Return a selector for `native`, torch.argmax or argmin: both give the first of equal cells, NaN before all
    others.
    """

    def line(x: Any, *, axis: Any, keepdims: Any) -> Kernel | None:
        keep = bool(keepdims)
        return (lambda x, **_: native(x, axis, keep)) if _is_cpu_float(x) and _is_axis(axis, x) else None

    return line


def take_along(x: Any, i: Any, *, axis: Any) -> Kernel | None:
    """Return torch.gather as a kernel, if the index i has x's shape but for `axis`; its kernel gives None for bad
    positions.
    """
    if not _is_cpu_float(x) or not _is_cpu_index(i) or not _is_axis(axis, x) or i.ndim != x.ndim:
        return None
    if any(a != axis % x.ndim and n != m for a, (n, m) in enumerate(zip(x.shape, i.shape, strict=True))):
        return None

    def compute(x: Tensor, i: Tensor, *, axis: int) -> Tensor | None:
        try:
            return torch.gather(x, axis, i)
        except RuntimeError:
            return None

    return compute


def roll(x: Any, shift: Any, *, axis: Any) -> Kernel | None:
    """Return torch.roll by `shift` along `axis` as a kernel; None for invalid arguments or a shift that changes
    nothing.
    """
    fits = _is_eager_float(x) and type(shift) is int and _is_axis(axis, x) and shift % x.shape[axis]
    return (lambda x, shift, *, axis: torch.roll(x, shift, axis)) if fits else None


def broadcast(x: Any, *, shape: Shape) -> Kernel | None:
    """Return Tensor.expand as a kernel if x broadcasts to `shape`, new leading axes included; else None."""
    known = _is_eager_float(x) and all(type(n) is int for n in shape) and tuple(x.shape) != shape
    ends = zip(reversed(x.shape), reversed(shape), strict=False)
    return (lambda x, *, shape: x.expand(shape)) if known and all(n in (1, m) for n, m in ends) else None


def quantize(x: Any, scale: Any, *, zero_point: Any, low: Any, high: Any) -> Kernel | None:
    """Return a kernel that quantises natively to low..high by one scale, which PyTorch broadcasts, and a whole
    zero_point; None for other settings.
    """
    one = not isinstance(scale, Tensor) or (scale.dtype == x.dtype and scale.numel() == 1 and scale.ndim <= x.ndim)
    ends = all(type(end) in (int, type(None)) for end in (low, high)) and (None in (low, high) or low <= high)
    if not _is_eager_float(x) or not one or not ends or type(zero_point) is not int or abs(zero_point) >= 2**31:
        return None
    return lambda x, scale, *, zero_point, low, high: quantized(x, scale, zero_point, low, high)


# --- around and between cells --------------------------------------------------------------------------------------

MODES = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def pad(x: Any, widths: Any, *, value: Any = 0, mode: str = "constant") -> Kernel | None:
    """Return F.pad for reflect, edge and wrap as a kernel; half types by float32 if many padded cells read one.

    `widths` are (low, high) per axis.

    None for another mode or value than 0, and where F.pad cannot pad so (`_native_widths`).
    """
    flat = _native_widths(x, widths, mode) if mode in MODES and type(value) is int and not value else None
    if flat is None:
        return None
    padded: Kernel = lambda x: F.pad(x, flat, MODES[mode])
    ends = zip(reversed(x.shape), flat[::2], flat[1::2], strict=False)
    if math.prod(_max_readers(n, lo, hi, mode) for n, lo, hi in ends) > MAX_HALF_ADDENDS:
        padded = rounded_once(padded, needs_grad)
    return lambda x, *_, **__: padded(x)


def _max_readers(n: int, lo: int, hi: int, mode: str) -> int:
    """Return an upper bound of how many padded cells read one of n cells, for widths lo and hi; `mode` is "edge",
    "reflect" or "wrap".
    """
    if mode == "edge":
        return 1 + (lo + hi if n == 1 else max(lo, hi))
    return 1 + (lo + hi > 0) + (lo + hi >= n - 1)


def _native_widths(x: Any, widths: Any, mode: str) -> list[int] | None:
    """Return the widths, (low, high) per axis, in F.pad's order; None if F.pad cannot pad x so in this mode.

    F.pad takes 1 to 3 spatial axes after one or two others, and reads no cell a second time around.
    """
    if not _is_eager_float(x) or not all(type(end) is int and end >= 0 for pair in widths for end in pair):
        return None
    pairs = [tuple(pair) for pair in widths]
    while pairs and pairs[0] == (0, 0):
        del pairs[0]
    rank = max(len(pairs), x.ndim - 2)
    if not pairs or not 1 <= rank <= 3 or not rank < x.ndim <= rank + 2:
        return None
    pairs = [(0, 0)] * (rank - len(pairs)) + pairs
    most = {"reflect": -1, "wrap": 0}.get(mode)
    if most is not None and any(max(pair) > n + most for pair, n in zip(pairs, x.shape[-rank:], strict=True)):
        return None
    return [end for pair in reversed(pairs) for end in pair]


@lru_cache(maxsize=1024)
def nearest_is_exact(n: int, factor: int) -> bool:
    """Return whether PyTorch's floor(p * (1/factor)) is floor(p / factor) for all p < n*factor.

    That is for float32 and float64. Powers of two have exact reciprocals; of the others, every position is tried.
    """
    if factor & (factor - 1) == 0:
        return n * factor < 2**24
    if n * factor > LARGEST_EXACT:
        return False
    p = np.arange(n * factor)
    types: list[Any] = [np.float32, np.float64]
    return all(np.array_equal(np.floor(p.astype(t) * (t(n) / t(n * factor))), p // factor) for t in types)


# --- back to windows -----------------------------------------------------------------------------------------------


def max_unpool(
    x: Any, indices: Any, kernel: Any, *, stride: Any = None, padding: Any = 0, output: Any = None, rank: Any = None
) -> Kernel | None:
    """Return native unpooling of x at `indices` as a kernel; it falls back to the composition where a position is
    repeated.

    `output` is the output's shape, None: it follows from kernel, stride and padding.

    Of repeated positions the last one is written, and alone has a gradient.
    """
    if not _is_eager_float(x) or not _is_cpu_index(indices) or indices.shape != x.shape:
        return None
    known = _unpooled_size(x, kernel, stride, padding, rank)
    size = known if known is None or output is None else tuple(output)
    if known is None or size is None or len(size) != len(known) or not all(type(n) is int and n > 0 for n in size):
        return None
    how = {"stride": stride, "padding": padding, "output": output, "rank": rank}
    d, layout, cells = len(size), LAYOUT.get(len(size)), math.prod(size)
    move, written = _scatter_distinct(size), _native_unpool(size) if x.ndim == d + 2 else None
    few = x.numel() <= MAX_MARKS_COUNTED

    def compute(x: Tensor, indices: Tensor, *_: Any, **__: Any) -> Tensor:
        where = indices.flatten(-d)
        if not x.is_cpu or not indices.is_cpu or not _all_distinct(where, cells):
            return _max_unpool(x, indices, kernel, **how)
        by_channels = is_channels_last(x, d)
        y: Tensor
        if written is not None and (by_channels or few or x.dtype not in HALF_TYPES):
            y = written(x, indices)
            return y
        y = move(x, where)
        return y.contiguous(memory_format=layout) if layout and by_channels else y

    return compute


MAX_BYTES_PER_SUM = 128  # of bytes that are added up: no more than a byte can count
MAX_MARKS_COUNTED = 1 << 12  # which are counted as they are


def _all_distinct(where: Tensor, cells: int) -> bool:
    """Return whether all positions `where` lie in 0..cells-1 and none occurs twice in a row (the last axis).

    Marks are bytes, added up eight in a word: PyTorch counts them one by one, and compares floats no faster.
    """
    count = where.shape[:-1].numel() * cells
    words = -(-count // (8 * MAX_BYTES_PER_SUM)) * MAX_BYTES_PER_SUM
    try:
        if count <= MAX_MARKS_COUNTED:
            marks = torch.zeros((*where.shape[:-1], cells), dtype=torch.uint8).scatter_(-1, where, 1)
            return torch.count_nonzero(marks).item() == where.numel()
        marks = torch.zeros(8 * words, dtype=torch.uint8)
        marks[:count].view(*where.shape[:-1], cells).scatter_(-1, where, torch.ones_like(where, dtype=torch.uint8))
    except RuntimeError:
        return False
    return int(marks.view(torch.int64).view(MAX_BYTES_PER_SUM, -1).sum(0).view(torch.uint8).sum()) == where.numel()


def _native_unpool(size: Shape) -> Kernel | None:
    """Return PyTorch's own max_unpool to `size`, of rank 2 or 3, as a function (x, indices); None for other ranks.

    In three dimensions it asks for a stride that it does not use.
    """
    if len(size) == 2:
        return lambda x, at: torch.ops.aten.max_unpool2d(x, at, size)
    if len(size) == 3:
        return lambda x, at: torch.ops.aten.max_unpool3d(x, at, size, (1, 1, 1), (0, 0, 0))
    return None


def _scatter_distinct(size: Shape) -> Kernel:
    """Return a function (x, positions) that writes x at distinct flat positions of a plane of `size` and zeros
    elsewhere.
    """
    d, cells = len(size), math.prod(size)
    written: Kernel = lambda v, at: v.new_zeros((*v.shape[:-1], cells)).scatter_(-1, at, v)
    by_bits: Kernel = lambda v, at: written(v.view(torch.int16), at).view(
        v.dtype
    )  # PyTorch moves half types one by one
    short = ours("put", {"size": (cells,), "empty": False}, by_bits, written)

    def compute(x: Tensor, where: Tensor) -> Tensor:
        y: Tensor = (short if x.dtype in HALF_TYPES else written)(x.flatten(-d), where)
        return y.view(*x.shape[: x.ndim - d], *size)

    return compute


def _unpooled_size(x: Tensor, kernel: Any, stride: Any, padding: Any, rank: Any) -> tuple[int, ...] | None:
    """Return the default output sizes of max_unpool, (n-1)*s - 2*p + k per axis; None for invalid settings."""
    d = len(kernel) if type(kernel) is tuple else rank
    if type(d) is not int or rank not in (None, d) or not 1 <= d <= x.ndim:
        return None
    given = [(v,) * d if type(v) is int else v for v in (kernel, kernel if stride is None else stride, padding)]
    if not all(type(v) is tuple and len(v) == d and all(type(n) is int for n in v) for v in given):
        return None
    if min(*given[0], *given[1]) < 1 or min(given[2]) < 0:
        return None
    return tuple((n - 1) * s - 2 * p + k for n, k, s, p in zip(x.shape[x.ndim - d :], *given, strict=True))


NATIVE_FUNCTIONS: dict[str, Callable[..., Kernel | None]] = {
    "softplus": softplus,
    "sum": sum_keepdims,
    "argmax": _argmax_selector(torch.argmax),
    "argmin": _argmax_selector(torch.argmin),
    "topk": topk,
    "take_along": take_along,
    "roll": roll,
    "broadcast": broadcast,
    "quantize": quantize,
    "trunc": trunc,
    "mod": mod,
    "amax": _reduction_selector(torch.amax),
    "amin": _reduction_selector(torch.amin),
    "pad": pad,
    "max_unpool": max_unpool,
}
