"""Maxima over windows and over axes, their winners, and reading and writing along them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import ShapeError
from ...window import Adaptive, Shape, Window
from ..base import Kernel
from . import log_step_pool, logsumexp_pool, planes_as_channels
from .autograd_rules import MOST_ADDED, eager, rounded_once
from .log_step_pool import DOUBLING_TYPES
from .modes import batched, needs_grad
from .strided_pool import FEW_TAPS, Slices, fits

Unary = Callable[[Tensor], Tensor]

MAX_POOL = {1: torch.max_pool1d, 2: torch.max_pool2d, 3: torch.max_pool3d}
ADAPTIVE_MAX: dict[int, Kernel] = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
ADAPTIVE_AVG: dict[int, Callable[..., Tensor]] = {
    1: F.adaptive_avg_pool1d,
    2: F.adaptive_avg_pool2d,
    3: F.adaptive_avg_pool3d,
}

# Where doubling beats the native maximum on the CPU (benchmarks/torch_ops.py): every axis at stride 1, a window of at
# least two cells. Rank 1 without a gradient is fast natively up to here.
DOUBLING_FROM_1D = 9
# The native operator at strides above 1, and from which total a winner by planes as channels is worth its copies: by
# itself, and as a function on the tape.
NATIVE_STRIDED, NATIVE_AVG_STRIDED = (18.0, 2.6), (10.0, 1.0)
WORTH_INDEX, WORTH_INDEX_GRAD = 3e5, 1e6
MOST_RELABELLED = 36  # taps of a window, beyond which the native gradient is faster
# The native operators at stride 1 on channels_last, and what doubling takes per cell.
CHANNELS_MAX, CHANNELS_AVG, CHANNELS_DOUBLED = (2.0, 0.3), (1.0, 0.14), 9.0
# Nanoseconds that the native operator takes, per output cell and per tap of it, and from which total ours is worth its
# set-up: maximum without and with a gradient, average.
NATIVE_MAX, NATIVE_AVG = (25.0, 0.65), (10.0, 0.42)
WORTH_MAX, WORTH_MAX_GRAD, WORTH_AVG = 2.5e5, 8e5, 2.5e5


def planes(x: Tensor, rank: int) -> Tensor:
    """(*lead, *spatial) as (planes, 1, *spatial), which the native operators take, an empty batch included."""
    return x.reshape((math.prod(x.shape[: x.ndim - rank]), 1, *x.shape[x.ndim - rank :]))


def on_planes(shape: Shape, rank: int, f: Unary) -> Unary:
    """f takes a batch of channels; give it that whatever the leading axes are."""
    lead = shape[: len(shape) - rank]
    if len(lead) == 2 and 0 not in lead:
        return f

    def compute(x: Tensor) -> Tensor:
        y = f(planes(x, rank))
        return y.view(lead + y.shape[2:])

    return compute


def _native_max(window: Window) -> tuple[Shape, Shape, Shape, Shape, bool] | None:
    """The arguments of PyTorch's own max_pool, where it takes this window."""
    native = window.native()
    if native is None or window.rank > 3 or native.padding is None or window.has_empty:
        return None
    if any(2 * p > k for p, k in zip(native.padding, window.kernel, strict=True)):
        return None
    return window.kernel, native.stride, native.padding, native.dilation, native.ceil


def is_adaptive(window: Window) -> bool:
    """Every axis is one that PyTorch's adaptive pools have, and at least one is uneven."""
    whole = all(isinstance(a, Adaptive) or a.is_even_cut for a in window.axes)
    return window.rank <= 3 and whole and any(isinstance(a, Adaptive) for a in window.axes)


# The native maximum along a line takes several outputs at once: of so few, with so many taps, it is the slower one.
FEW_ON_A_LINE, MANY_TAPS = 2, 64


def _by_adaptive(window: Window) -> bool:
    """One window of everything, or few large ones that cut a line into parts: PyTorch's adaptive maximum is faster."""
    if window.reads_all:
        return window.taps_count > 1
    if window.rank > 1 or window.out[0] > FEW_ON_A_LINE or window.kernel[0] <= MANY_TAPS:
        return False
    steps = window.steps()
    return steps.stride == window.kernel and steps.dilation == (1,) and not window.pads_anything


def _winner_by_taps(x: Tensor, window: Window) -> Tensor:
    """First winner by pairs of value and position, axis by axis from the last: for any window and type."""
    bare = window.unpadded()
    size = x.shape[x.ndim - window.rank :]
    position = torch.arange(math.prod(size), device=x.device).view(size)
    v = log_step_pool.pad_or_crop(x.detach(), window.pads, -math.inf)
    i = log_step_pool.pad_or_crop(position, window.pads, -1).expand(v.shape)
    for axis in reversed(range(window.rank)):
        (best, where), *rest = zip(*(_axis_taps(t, bare, axis) for t in (v, i)), strict=True)
        for value, index in rest:
            wins = (index >= 0) & ((where < 0) | (value > best) | (value.isnan() & ~best.isnan()))
            best, where = torch.where(wins, value, best), torch.where(wins, index, where)
        v, i = best, where
    return i


def _axis_taps(x: Tensor, window: Window, axis: int) -> list[Tensor]:
    part = window.axes[axis]
    if not isinstance(part, Adaptive):
        return logsumexp_pool.slices(x, window, axis)
    dim = x.ndim - window.rank + axis
    return [x.index_select(dim, torch.tensor(part.clamped(t), device=x.device)) for t in range(part.kernel)]


def lower_winner(x: Shape, *, window: Window) -> Kernel:
    general: Unary
    rank, native = window.rank, _native_max(window)
    if native is not None and not _by_adaptive(window):
        nd = planes_as_channels.WITH_INDEX[rank]
        general = on_planes(x, rank, lambda t: nd(t, *native)[1])
    elif is_adaptive(window) or native is not None:
        adaptive, out = ADAPTIVE_MAX[rank], window.out
        general = on_planes(x, rank, lambda t: adaptive(t, out, True)[1])
    else:
        window.check_walk()
        general = lambda t: _winner_by_taps(t, window)
    if not doubles(window):
        pair = _relabelled(x, window, native)
        return lambda t: pair(t.detach())[1] if pair is not None and _at_hand(t) else general(t.detach())

    def compute(t: Tensor) -> Tensor:
        t = t.detach()
        if eager(t) and t.device.type == "cpu" and t.dtype == torch.float32 and t.numel() and not t.sum().isnan():
            return log_step_pool.packed_winner(t, window)[1]
        return general(t)

    return compute


def doubles(window: Window) -> bool:
    native = window.native()
    return (
        native is not None
        and set(native.stride) == {1}
        and window.taps_count > 1
        and math.prod(window.unpadded().size) < 2**31
    )


def native_time(x: Shape, window: Window, cost: tuple[float, float]) -> float:
    """An estimate, in nanoseconds on one thread; 0 where a size is open, for a tracer takes the native operator."""
    lead = x[: len(x) - window.rank]
    if any(type(n) is not int for n in lead):
        return 0.0
    return math.prod(lead) * math.prod(window.out) * (cost[0] + cost[1] * window.taps_count)


def is_channels_last(t: Tensor, rank: int) -> bool:
    """A layout that the native operators know and keep; what is contiguous too counts as that, and so does a batch."""
    layout = planes_as_channels.LAYOUT.get(rank)
    if layout is None or t.ndim != rank + 2 or batched():
        return False
    return not t.is_contiguous() and t.is_contiguous(memory_format=layout)


def by_channels(t: Tensor, window: Window, f: Callable[[Tensor, Window], Tensor]) -> Tensor:
    """f of a channels_last tensor as it lies in memory: channels are one more axis, with windows of one cell."""
    wide = Window((*window.axes, Window.single(t.shape[1])))
    return f(t.movedim(1, -1), wide).movedim(-1, 1)


def _at_hand(t: Tensor) -> bool:
    """Contiguous memory of the CPU: channels_last is fast natively, and stays what it is."""
    return eager(t) and t.device.type == "cpu" and t.is_contiguous()


def _relabelled(x: Shape, window: Window, native: tuple[Any, ...] | None) -> Kernel | None:
    """Maximum and winner of a strided window, where planes as channels are worth the copies."""
    planes = math.prod(x[: len(x) - window.rank])
    if native is None or type(planes) is not int or not planes_as_channels.enough(planes, window):
        return None
    if native_time(x, window, NATIVE_STRIDED) < WORTH_INDEX:
        return None
    return lambda t: planes_as_channels.max_and_index(t, window, native)


def lower_max_pool(x: Shape, *, window: Window) -> Kernel:
    """On the tape half types go by float32 where a cell may win in many windows; the values are the same."""
    compute = _max_pool(x, window)
    return (
        compute
        if window.overlap <= MOST_ADDED
        else rounded_once(compute, lambda t: t.device.type == "cpu" and needs_grad(t))
    )


def _max_pool(x: Shape, window: Window) -> Kernel:
    traceable: Unary
    rank, native = window.rank, _native_max(window)
    adaptive, out = ADAPTIVE_MAX.get(rank), window.out
    if native is not None and adaptive is not None and _by_adaptive(window):
        return on_planes(x, rank, lambda t: adaptive(t, out))
    if native is not None:
        nd, (kernel, stride, padding, dilation, ceil) = MAX_POOL[rank], native
        traceable = on_planes(x, rank, lambda t: nd(t, kernel, stride, padding, dilation, ceil))
    elif adaptive is not None and is_adaptive(window):
        traceable = on_planes(x, rank, lambda t: adaptive(t, out))
    else:
        index = lower_winner(x, window=window)
        read = lower_take(x, (), rank=rank, empty=window.has_empty)
        traceable = lambda t: read(t, index(t))
    if rank == 1 and native is not None and window.kernel[0] < DOUBLING_FROM_1D:
        return traceable
    if not doubles(window):
        return _sliced_max(x, window, traceable, native)
    time = native_time(x, window, NATIVE_MAX) if native is not None else math.inf
    if time < WORTH_MAX:
        return traceable
    compute = _doubled_max(window, traceable, time >= WORTH_MAX_GRAD)
    return (
        compute if native is None else kept_layout(x, window, compute, traceable, log_step_pool.dense_max, CHANNELS_MAX)
    )


def kept_layout(
    x: Shape,
    window: Window,
    compute: Kernel,
    native: Kernel,
    dense: Callable[[Tensor, Window], Tensor],
    cost: tuple[float, float],
) -> Kernel:
    """channels_last to the native operator, or where that is slow and no gradient is asked for to doubling."""
    doubled = cost[0] + cost[1] * window.taps_count > CHANNELS_DOUBLED and native_time(x, window, cost) > WORTH_MAX

    def kept(t: Tensor) -> Any:
        if not is_channels_last(t, window.rank):
            return compute(t)
        taped = needs_grad(t)
        if doubled and not taped and eager(t) and t.device.type == "cpu" and t.dtype in DOUBLING_TYPES and t.numel():
            return by_channels(t, window, dense)
        return native(t)

    return kept


def _sliced_max(x: Shape, window: Window, traceable: Unary, native: tuple[Any, ...] | None) -> Kernel:
    """Values by slices, with a gradient by planes as channels, each from where it wins."""
    few = native is None or max(window.kernel) <= FEW_TAPS
    slices = Slices(window) if few and fits(window) else None
    planes = math.prod(x[: len(x) - window.rank])
    if type(planes) is not int:
        return traceable
    time = native_time(x, window, NATIVE_STRIDED) if native is not None else math.inf
    if slices is not None and slices.time(planes) > time:
        slices = None
    worth = time >= WORTH_INDEX_GRAD and (native is None or window.taps_count <= MOST_RELABELLED)
    pair = _relabelled(x, window, native) if worth else None
    if slices is None and pair is None:
        return traceable

    def compute(t: Tensor) -> Tensor:
        if not _at_hand(t) or not t.numel():
            return traceable(t)
        if needs_grad(t):
            return traceable(t) if pair is None else _indexed_on_tape(t, window, pair)
        return traceable(t) if slices is None or t.dtype not in DOUBLING_TYPES else slices.maximum(t)

    return compute


def _doubled_max(window: Window, traceable: Unary, with_gradient: bool) -> Kernel:
    empty = (window.inside() == 0).astype(bool) if window.has_empty else None

    def values(t: Tensor) -> Tensor:
        y = log_step_pool.dense_max(t, window)
        return y if empty is None else torch.where(torch.from_numpy(empty), torch.zeros((), dtype=t.dtype), y)

    def compute(t: Tensor) -> Tensor:
        if not eager(t) or t.device.type != "cpu" or t.dtype not in DOUBLING_TYPES or not t.numel():
            return traceable(t)
        if needs_grad(t):
            if with_gradient and t.dtype is torch.float32 and not t.detach().sum().isnan():
                return _indexed_on_tape(t, window, lambda v: log_step_pool.packed_winner(v, window))
            return traceable(t)
        return values(t)

    return compute


class _IndexedMax(torch.autograd.Function):
    """max_pool that keeps the winner's position for both derivative modes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: Window, pair: Kernel) -> Any:
        y, index = pair(x)
        ctx.window = window
        ctx.save_for_backward(index)
        ctx.save_for_forward(index)
        return y

    @staticmethod
    def backward(ctx: Any, gy: Any) -> Any:
        (index,) = ctx.saved_tensors
        put = lower_put(gy.shape, index.shape, size=ctx.window.size, empty=ctx.window.has_empty, known=True)
        return put(gy, index), None, None

    @staticmethod
    def jvp(ctx: Any, dx: Any, *_: Any) -> Any:
        (index,) = ctx.saved_tensors
        return lower_take(dx.shape, index.shape, rank=ctx.window.rank, empty=ctx.window.has_empty)(dx, index)


_indexed_on_tape: Callable[..., Tensor] = _IndexedMax.apply


def _check_range(name: str, index: Tensor, cells: int, empty: bool) -> None:
    """Positions that somebody gave, where they can be read; elsewhere PyTorch's own gather and scatter refuse."""
    if eager(index) and index.device.type == "cpu" and index.numel():
        low, (least, most) = -1 if empty else 0, (int(end) for end in torch.aminmax(index))
        if least < low or most >= cells:
            raise ShapeError(name, f"indices must lie in {low}..{cells - 1}; got {least}..{most}")


def lower_take(x: Shape, i: Shape, *, rank: int, empty: bool) -> Kernel:
    def compute(t: Tensor, index: Tensor) -> Tensor:
        flat, where = t.flatten(t.ndim - rank), index.flatten(index.ndim - rank)
        if not empty:
            return flat.gather(-1, where).view(index.shape)
        _check_range("take", where, flat.shape[-1], empty)
        if not flat.shape[-1]:
            return t.new_zeros(index.shape)
        return torch.where(where < 0, 0, flat.gather(-1, where.clamp(min=0))).view(index.shape)

    return compute


FEW_WRITTEN = 1 << 12  # cells, for which scatter_add_ is sooner there than the kernel that needs a look at positions


def lower_put(gy: Shape, i: Shape, *, size: Shape, empty: bool, known: bool = False) -> Kernel:
    """`known`: the positions are winners that we have computed. The native kernel writes wherever it is told."""
    rank, cells = len(size), math.prod(size)
    lead = gy[: len(gy) - rank]

    def compute(g: Tensor, index: Tensor) -> Tensor:
        at_hand = not empty and g.is_cpu and g.numel() and eager(g, index)
        many = at_hand and g.numel() > FEW_WRITTEN
        if many and 1 <= rank <= 3 and g.dtype in DOUBLING_TYPES and not needs_grad(g):
            if not known:
                _check_range("put", index, cells, empty)
            return planes_as_channels.put(g, index, size)
        values, where = (t.reshape(*lead, math.prod(i[len(lead) :])) for t in (g, index))  # flatten has no old vmap
        if at_hand:
            try:
                return values.new_zeros((*lead, cells)).scatter_add_(-1, where, values).view(lead + size)
            except RuntimeError:
                pass  # positions outside
        if not known:
            _check_range("put", index, cells, empty)
        if empty:
            values, where = torch.where(where < 0, 0, values), where.clamp(min=0)
        out = values.new_zeros((*lead, cells))
        return out.scatter_add(-1, where, values).view(lead + size)

    return compute


def lower_last_writer(i: Shape, *, rank: int, cells: int) -> Kernel:
    def compute(index: Tensor) -> Tensor:
        _check_range("last_writer", index, cells, True)
        flat = index.flatten(index.ndim - rank)
        order = torch.arange(flat.shape[-1], device=index.device).expand(flat.shape)
        last = torch.full((*flat.shape[:-1], cells + 1), -1, device=index.device)
        last = last.scatter_reduce(-1, torch.where(flat < 0, cells, flat), order, "amax")
        stays = last.gather(-1, torch.where(flat < 0, cells, flat)) == order
        return torch.where(stays, flat, -1).view(index.shape)

    return compute
