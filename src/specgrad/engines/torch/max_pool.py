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
from .autograd_rules import MAX_HALF_ADDENDS, is_eager, rounded_once
from .log_step_pool import DOUBLING_TYPES
from .modes import may_be_vmapped, needs_grad
from .strided_pool import MAX_TAPS_BY_SLICES, SlicedPool, can_slice

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
MIN_KERNEL_DOUBLED_1D = 9
# The native operator at strides above 1, and from which total a winner by planes as channels is worth its copies: by
# itself, and as a function on the tape.
NATIVE_STRIDED_NS, NATIVE_AVG_STRIDED_NS = (18.0, 2.6), (10.0, 1.0)
WORTH_INDEX_NS, WORTH_INDEX_GRAD_NS = 3e5, 1e6
MAX_TAPS_BY_CHANNELS = 36  # taps of a window, beyond which the native gradient is faster
# The native operators at stride 1 on channels_last, and what doubling takes per cell.
CHANNELS_MAX_NS, CHANNELS_AVG_NS, CHANNELS_DOUBLED_NS = (2.0, 0.3), (1.0, 0.14), 9.0
# Nanoseconds that the native operator takes, per output cell and per tap of it, and from which total ours is worth its
# set-up: maximum without and with a gradient, average.
NATIVE_MAX_NS, NATIVE_AVG_NS = (25.0, 0.65), (10.0, 0.42)
WORTH_MAX_NS, WORTH_MAX_GRAD_NS, WORTH_AVG_NS = 2.5e5, 8e5, 2.5e5


def planes(x: Tensor, rank: int) -> Tensor:
    """Return (*lead, *spatial) reshaped to (planes, 1, *spatial), which the native operators take, empty batches
    included.
    """
    return x.reshape((math.prod(x.shape[: x.ndim - rank]), 1, *x.shape[x.ndim - rank :]))


def on_planes(shape: Shape, rank: int, f: Unary) -> Unary:
    """Return f, a function of (N, C, *spatial), as one of tensors with the leading axes of `shape`, before `rank`
    spatial ones.
    """
    lead = shape[: len(shape) - rank]
    if len(lead) == 2 and 0 not in lead:
        return f

    def compute(x: Tensor) -> Tensor:
        y = f(planes(x, rank))
        return y.view(lead + y.shape[2:])

    return compute


def _native_max(window: Window) -> tuple[Shape, Shape, Shape, Shape, bool] | None:
    """Return the arguments of PyTorch's own max_pool for this window; None if it does not support the window."""
    native = window.native()
    if native is None or window.rank > 3 or native.padding is None or window.has_empty:
        return None
    if any(2 * p > k for p, k in zip(native.padding, window.kernel, strict=True)):
        return None
    return window.kernel, native.stride, native.padding, native.dilation, native.ceil


def is_adaptive(window: Window) -> bool:
    """Return whether PyTorch's adaptive pools can express this window, with at least one axis of uneven parts."""
    whole = all(isinstance(a, Adaptive) or a.is_even_cut for a in window.axes)
    return window.rank <= 3 and whole and any(isinstance(a, Adaptive) for a in window.axes)


# The native maximum along a line takes several outputs at once: of so few, with so many taps, it is the slower one.
MAX_OUTPUTS_ADAPTIVE, MIN_TAPS_ADAPTIVE = 2, 64


def _adaptive_is_faster(window: Window) -> bool:
    """Return whether PyTorch's adaptive maximum is the fastest: global windows, or few large disjoint ones."""
    if window.reads_all:
        return window.taps_count > 1
    if window.rank > 1 or window.out[0] > MAX_OUTPUTS_ADAPTIVE or window.kernel[0] <= MIN_TAPS_ADAPTIVE:
        return False
    steps = window.steps()
    return steps.stride == window.kernel and steps.dilation == (1,) and not window.pads_anything


def _winner_by_taps(x: Tensor, window: Window) -> Tensor:
    """Return the first argmax (flat position, -1 for an empty window) of any window and type, axis by axis."""
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
    """Return, for each tap of one axis, the cells that all outputs read with it; their size there is the output's."""
    part = window.axes[axis]
    if not isinstance(part, Adaptive):
        return logsumexp_pool.tap_views(x, window, axis)
    dim = x.ndim - window.rank + axis
    return [x.index_select(dim, torch.tensor(part.clamped(t), device=x.device)) for t in range(part.kernel)]


def lower_winner(x: Shape, *, window: Window) -> Kernel:
    """Return the kernel of the argmax of every window: flat position of the first largest cell, -1 for an empty window.

    ShapeError for so many taps, if none of PyTorch's kernels fits, that it would take minutes.
    """
    general: Unary
    rank, native = window.rank, _native_max(window)
    if native is not None and not _adaptive_is_faster(window):
        nd = planes_as_channels.WITH_INDEX[rank]
        general = on_planes(x, rank, lambda t: nd(t, *native)[1])
    elif is_adaptive(window) or native is not None:
        adaptive, out = ADAPTIVE_MAX[rank], window.out
        general = on_planes(x, rank, lambda t: adaptive(t, out, True)[1])
    else:
        window.check_walk()
        general = lambda t: _winner_by_taps(t, window)
    if not can_double(window):
        pair = _max_by_channels(x, window, native)
        return lambda t: pair(t.detach())[1] if pair is not None and _is_contiguous_cpu(t) else general(t.detach())

    def compute(t: Tensor) -> Tensor:
        t = t.detach()
        if is_eager(t) and t.device.type == "cpu" and t.dtype == torch.float32 and t.numel() and not t.sum().isnan():
            return log_step_pool.packed_winner(t, window)[1]
        return general(t)

    return compute


def can_double(window: Window) -> bool:
    """Return whether log-step pooling applies: stride 1 on every axis, more than one tap, int32 positions."""
    native = window.native()
    return (
        native is not None
        and set(native.stride) == {1}
        and window.taps_count > 1
        and math.prod(window.unpadded().size) < 2**31
    )


def native_time(x: Shape, window: Window, cost: tuple[float, float]) -> float:
    """Estimate the native operator's time in nanoseconds on one thread; 0 if a size is symbolic.

    `cost` is nanoseconds per output cell, and per tap of it. Of x the leading sizes count; with a symbolic one a tracer
    takes the native operator.
    """
    lead = x[: len(x) - window.rank]
    if any(type(n) is not int for n in lead):
        return 0.0
    return math.prod(lead) * math.prod(window.out) * (cost[0] + cost[1] * window.taps_count)


def is_channels_last(t: Tensor, rank: int) -> bool:
    """Return whether t is channels_last and not also contiguous; False inside vmap."""
    layout = planes_as_channels.LAYOUT.get(rank)
    if layout is None or t.ndim != rank + 2 or may_be_vmapped():
        return False
    return not t.is_contiguous() and t.is_contiguous(memory_format=layout)


def by_channels(t: Tensor, window: Window, f: Callable[[Tensor, Window], Tensor]) -> Tensor:
    """Apply f to a channels_last tensor t as it lies in memory: channels become a last axis of one-cell windows."""
    wide = Window((*window.axes, Window.single(t.shape[1])))
    return f(t.movedim(1, -1), wide).movedim(-1, 1)


def _is_contiguous_cpu(t: Tensor) -> bool:
    """Return whether t is eager, contiguous and on the CPU; channels_last is fast natively."""
    return is_eager(t) and t.device.type == "cpu" and t.is_contiguous()


def _max_by_channels(x: Shape, window: Window, native: tuple[Any, ...] | None) -> Kernel | None:
    """Return a kernel for maximum and argmax that treats planes as channels; None if not worth its copies.

    `native` are the arguments of PyTorch's own operator; None: it has none for this window.
    """
    planes = math.prod(x[: len(x) - window.rank])
    if native is None or type(planes) is not int or not planes_as_channels.is_applicable(planes, window):
        return None
    if native_time(x, window, NATIVE_STRIDED_NS) < WORTH_INDEX_NS:
        return None
    return lambda t: planes_as_channels.max_and_index(t, window, native)


def lower_max_pool(x: Shape, *, window: Window) -> Kernel:
    """Return the kernel of max_pool; half types with a gradient go by float32 if a cell may win in many windows."""
    compute = _max_pool(x, window)
    return (
        compute
        if window.overlap <= MAX_HALF_ADDENDS
        else rounded_once(compute, lambda t: t.device.type == "cpu" and needs_grad(t))
    )


def _max_pool(x: Shape, window: Window) -> Kernel:
    """Return the fastest kernel for max_pool on this shape and window."""
    traceable: Unary
    rank, native = window.rank, _native_max(window)
    adaptive, out = ADAPTIVE_MAX.get(rank), window.out
    if native is not None and adaptive is not None and _adaptive_is_faster(window):
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
    if rank == 1 and native is not None and window.kernel[0] < MIN_KERNEL_DOUBLED_1D:
        return traceable
    if not can_double(window):
        return _sliced_max(x, window, traceable, native)
    time = native_time(x, window, NATIVE_MAX_NS) if native is not None else math.inf
    if time < WORTH_MAX_NS:
        return traceable
    compute = _doubled_max(window, traceable, time >= WORTH_MAX_GRAD_NS)
    return (
        compute
        if native is None
        else keep_channels_last(x, window, compute, traceable, log_step_pool.dense_max, CHANNELS_MAX_NS)
    )


def keep_channels_last(
    x: Shape,
    window: Window,
    compute: Kernel,
    native: Kernel,
    dense: Callable[[Tensor, Window], Tensor],
    cost: tuple[float, float],
) -> Kernel:
    """Return a kernel that keeps channels_last: `native` for it, `compute` for other layouts.

    Where the native operator is slow and no gradient is needed, `dense` runs on the channels_last memory. `cost` is the
    native operator's time: nanoseconds per output, and per tap of it.
    """
    doubled = (
        cost[0] + cost[1] * window.taps_count > CHANNELS_DOUBLED_NS and native_time(x, window, cost) > WORTH_MAX_NS
    )

    def kept(t: Tensor) -> Any:
        if not is_channels_last(t, window.rank):
            return compute(t)
        taped = needs_grad(t)
        if doubled and not taped and is_eager(t) and t.device.type == "cpu" and t.dtype in DOUBLING_TYPES and t.numel():
            return by_channels(t, window, dense)
        return native(t)

    return kept


def _sliced_max(x: Shape, window: Window, traceable: Unary, native: tuple[Any, ...] | None) -> Kernel:
    """Return the kernel of a strided max_pool: by slices without a gradient, by planes as channels with one.

    Each is used only where its estimated time beats `traceable`. `native` are the native operator's settings, None if
    it has none.
    """
    few = native is None or max(window.kernel) <= MAX_TAPS_BY_SLICES
    slices = SlicedPool(window) if few and can_slice(window) else None
    planes = math.prod(x[: len(x) - window.rank])
    if type(planes) is not int:
        return traceable
    time = native_time(x, window, NATIVE_STRIDED_NS) if native is not None else math.inf
    if slices is not None and slices.time(planes) > time:
        slices = None
    worth = time >= WORTH_INDEX_GRAD_NS and (native is None or window.taps_count <= MAX_TAPS_BY_CHANNELS)
    pair = _max_by_channels(x, window, native) if worth else None
    if slices is None and pair is None:
        return traceable

    def compute(t: Tensor) -> Tensor:
        if not _is_contiguous_cpu(t) or not t.numel():
            return traceable(t)
        if needs_grad(t):
            return traceable(t) if pair is None else _max_with_index(t, window, pair)
        return traceable(t) if slices is None or t.dtype not in DOUBLING_TYPES else slices.maximum(t)

    return compute


def _doubled_max(window: Window, traceable: Unary, with_gradient: bool) -> Kernel:
    """Return the kernel of a stride-1 max_pool by log-step passes; `traceable` outside plain CPU floats.

    `with_gradient` allows the pass that also finds winners.
    """
    empty = (window.inside() == 0).astype(bool) if window.has_empty else None

    def values(t: Tensor) -> Tensor:
        y = log_step_pool.dense_max(t, window)
        return y if empty is None else torch.where(torch.from_numpy(empty), torch.zeros((), dtype=t.dtype), y)

    def compute(t: Tensor) -> Tensor:
        if not is_eager(t) or t.device.type != "cpu" or t.dtype not in DOUBLING_TYPES or not t.numel():
            return traceable(t)
        if needs_grad(t):
            if with_gradient and t.dtype is torch.float32 and not t.detach().sum().isnan():
                return _max_with_index(t, window, lambda v: log_step_pool.packed_winner(v, window))
            return traceable(t)
        return values(t)

    return compute


class _IndexedMax(torch.autograd.Function):
    """autograd.Function of max_pool that saves the argmax of every window for both derivative modes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: Window, pair: Kernel) -> Any:
        """Return the maxima of x, and save the winners and the window in `ctx`; `pair` computes both."""
        y, index = pair(x)
        ctx.window = window
        ctx.save_for_backward(index)
        ctx.save_for_forward(index)
        return y

    @staticmethod
    def backward(ctx: Any, gy: Any) -> Any:
        """Return gy scatter-added at the winners saved in `ctx`."""
        (index,) = ctx.saved_tensors
        put = lower_put(gy.shape, index.shape, size=ctx.window.size, empty=ctx.window.has_empty, known=True)
        return put(gy, index), None, None

    @staticmethod
    def jvp(ctx: Any, dx: Any, *_: Any) -> Any:
        """Return the tangents dx at the winners saved in `ctx`."""
        (index,) = ctx.saved_tensors
        return lower_take(dx.shape, index.shape, rank=ctx.window.rank, empty=ctx.window.has_empty)(dx, index)


_max_with_index: Callable[..., Tensor] = _IndexedMax.apply


def _check_range(name: str, index: Tensor, cells: int, empty: bool) -> None:
    """Raise ShapeError in the name of the operator `name` if a position of `index` lies outside 0..cells-1 (-1 is
    allowed if `empty`).

    Plain CPU tensors alone are checked. On other devices and in tracers PyTorch refuses most of what lies outside;
    positions below -1 count as -1 there, if `empty`.
    """
    if is_eager(index) and index.device.type == "cpu" and index.numel():
        low, (least, most) = -1 if empty else 0, (int(end) for end in torch.aminmax(index))
        if least < low or most >= cells:
            raise ShapeError(name, f"indices must lie in {low}..{cells - 1}; got {least}..{most}")


def lower_take(x: Shape, i: Shape, *, rank: int, empty: bool) -> Kernel:
    """Return the kernel of take: cells of the last `rank` axes of x at flat positions of shape i.

    -1 gives 0 if `empty`. The kernel raises ShapeError for positions outside, on the CPU.
    """

    def compute(t: Tensor, index: Tensor) -> Tensor:
        flat, where = t.flatten(t.ndim - rank), index.flatten(index.ndim - rank)
        if not empty:
            return flat.gather(-1, where).view(index.shape)
        _check_range("take", where, flat.shape[-1], empty)
        if not flat.shape[-1]:
            return t.new_zeros(index.shape)
        return torch.where(where < 0, 0, flat.gather(-1, where.clamp(min=0))).view(index.shape)

    return compute


MAX_CELLS_SCATTERED = (
    1 << 12
)  # cells, for which scatter_add_ is sooner there than the kernel that needs a look at positions


def lower_put(gy: Shape, i: Shape, *, size: Shape, empty: bool, known: bool = False) -> Kernel:
    """Return the kernel of put: scatter-add gy at flat positions of shape i into zeros of `size`, the adjoint of take.

    -1 is dropped if `empty`. `known`: the positions are winners that we computed, so they are not checked; the native
    kernel writes anywhere. The kernel raises ShapeError for positions outside, on the CPU.
    """
    rank, cells = len(size), math.prod(size)
    lead = gy[: len(gy) - rank]

    def compute(g: Tensor, index: Tensor) -> Tensor:
        at_hand = not empty and g.is_cpu and g.numel() and is_eager(g, index)
        many = at_hand and g.numel() > MAX_CELLS_SCATTERED
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
    """Return the kernel of last_writer: keep each position, of planes of `cells`, that no later one repeats, replace
    the others by -1.

    Positions have the shape i and lie in the last `rank` axes. The kernel raises ShapeError for positions outside, on
    the CPU.
    """

    def compute(index: Tensor) -> Tensor:
        _check_range("last_writer", index, cells, True)
        flat = index.flatten(index.ndim - rank)
        order = torch.arange(flat.shape[-1], device=index.device).expand(flat.shape)
        last = torch.full((*flat.shape[:-1], cells + 1), -1, device=index.device)
        last = last.scatter_reduce(-1, torch.where(flat < 0, cells, flat), order, "amax")
        stays = last.gather(-1, torch.where(flat < 0, cells, flat)) == order
        return torch.where(stays, flat, -1).view(index.shape)

    return compute
