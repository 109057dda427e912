"""The PyTorch engine: one line per operator.

A line turns shapes and parameters into a function of tensors. Native operators are called directly wherever they are
best, and PyTorch's own autograd runs through them. Where an algorithm of ours is faster or PyTorch has no operator,
`_ours` attaches the derivative rules of the operator's record, so they hold to any order. Inside torch.func transforms
and torch.compile only plain, traceable PyTorch operators are used.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..op import REGISTRY
from ..ops.compose import cross_entropy
from ..scalar import Number
from ..window import Adaptive, Shape, Window
from . import torch_conv, torch_pool, torch_smooth
from .base import Engine, Plan, refuse_integers
from .torch_pool import dual_level_open


def number(value: Any) -> Any:
    return value if isinstance(value, int) else float(value)


# --- our derivative rules on PyTorch's tape -------------------------------------------------------------------------


PLAIN = (Tensor, torch.nn.Parameter)


def eager(t: Tensor) -> bool:
    """Not inside torch.func, torch.compile or another tracer: our algorithms may run, on PyTorch's tape or on duals.

    A tensor of a type of its own (FakeTensor, one of another library) has no memory to read: not for them.
    """
    return not (
        torch.compiler.is_compiling()  # first: torch.compile reads it as a constant and cannot trace the others
        or type(t) not in PLAIN
        or torch._C._is_tracing()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack()
    )


def enable_torch_compile() -> None:
    """Let torch.compile take the public calls as single operators: no graph breaks, so fullgraph=True works.

    Without it torch.compile traces into our Python: right, but it breaks the graph at some calls and warns of caches.
    Once, before the first compiled call. It loads torch._dynamo (1.6 s of CPU), so it happens by itself only if that
    is loaded (by torch.compile, by an optimizer) when this engine meets its first tensor.
    """
    import specgrad

    specgrad.relu(torch.zeros(1))  # the first call imports this engine, which a tracer cannot follow
    for name in PUBLIC.split():
        torch.compiler.allow_in_graph(getattr(specgrad, name))


class _Recorded(torch.autograd.Function):
    """An operator computed by `plan`, differentiated by the rules of its record."""

    @staticmethod
    def forward(ctx: Any, name: str, params: Any, plan: Plan, *args: Any) -> Any:
        y = plan(*args)
        ctx.name, ctx.params = name, params
        if REGISTRY[name].linear != "all":  # the rules of a linear map read no values
            ctx.save_for_backward(y, *args)
            ctx.save_for_forward(y, *args)
        return y

    @staticmethod
    def backward(ctx: Any, gy: Any) -> Any:
        y, *args = ctx.saved_tensors or (None, None)
        return (None, None, None, *REGISTRY[ctx.name].cotangents(gy, y, args, ctx.params))

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, ___: Any, *dargs: Any) -> Any:
        y, *args = ctx.saved_tensors or (None, None)
        return REGISTRY[ctx.name].tangent(y, args, dargs, ctx.params)


def _ours(name: str, params: dict[str, Any], fast: Plan, traceable: Plan) -> Plan:
    """`fast` in plain eager mode on the CPU, with our derivative rules where one is needed; else `traceable`."""

    def plan(*args: Tensor) -> Any:
        if not eager(args[0]) or args[0].device.type != "cpu":
            return traceable(*args)
        if (torch.is_grad_enabled() and any(a.requires_grad for a in args)) or dual_level_open():
            return _Recorded.apply(name, params, fast, *args)
        return fast(*args)

    return plan


# --- pooling --------------------------------------------------------------------------------------------------------

MAX_POOL = {1: torch.max_pool1d, 2: torch.max_pool2d, 3: torch.max_pool3d}
MAX_WITH_INDEX = {
    1: torch.max_pool1d_with_indices,
    2: torch.ops.aten.max_pool2d_with_indices,
    3: torch.ops.aten.max_pool3d_with_indices,
}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
ADAPTIVE_AVG = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}

# Where doubling beats the native maximum on the CPU (benchmarks/torch_ops.py): every axis at stride 1, a window of at
# least two cells. Rank 1 without a gradient is fast natively up to here.
DOUBLING_FROM_1D = 9
# Nanoseconds that the native operator takes, per output cell and per tap of it, and from which total ours is worth its
# set-up: maximum without and with a gradient, average.
NATIVE_MAX, NATIVE_AVG = (25.0, 0.65), (10.0, 0.42)
WORTH_MAX, WORTH_MAX_GRAD, WORTH_AVG = 2.5e5, 8e5, 2.5e5
DOUBLING_TYPES = (torch.float32, torch.float64)


def planes(x: Tensor, rank: int) -> Tensor:
    """(*lead, *spatial) as (planes, 1, *spatial), which the native operators take, an empty batch included."""
    return x.reshape((math.prod(x.shape[: x.ndim - rank]), 1, *x.shape[x.ndim - rank :]))


def _on_planes(shape: Shape, rank: int, f: Callable[[Tensor], Tensor]) -> Plan:
    """f takes a batch of channels; give it that whatever the leading axes are."""
    lead = shape[: len(shape) - rank]
    if len(lead) == 2 and 0 not in lead:
        return f

    def plan(x: Tensor) -> Tensor:
        y = f(planes(x, rank))
        return y.view(lead + y.shape[2:])

    return plan


def _native_max(window: Window) -> tuple | None:
    """The arguments of PyTorch's own max_pool, where it takes this window."""
    native = window.native()
    if native is None or window.rank > 3 or native.padding is None or window.has_empty:
        return None
    if any(2 * p > k for p, k in zip(native.padding, window.kernel, strict=True)):
        return None
    return window.kernel, native.stride, native.padding, native.dilation, native.ceil


def _is_adaptive(window: Window) -> bool:
    """Every axis is one that PyTorch's adaptive pools have, and at least one is uneven."""
    whole = all(isinstance(a, Adaptive) or a.kernel * a.out == a.size for a in window.axes)
    return window.rank <= 3 and whole and any(isinstance(a, Adaptive) for a in window.axes)


def _winner_by_taps(x: Tensor, window: Window) -> Tensor:
    """First winner by pairs of value and position, axis by axis from the last: for any window and type."""
    bare = window.unpadded()
    size = x.shape[x.ndim - window.rank :]
    position = torch.arange(math.prod(size), device=x.device).view(size)
    v = torch_pool.pad_or_crop(x.detach(), window.pads, -math.inf)
    i = torch_pool.pad_or_crop(position, window.pads, -1).expand(v.shape)
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
        return torch_smooth.slices(x, window, axis)
    dim = x.ndim - window.rank + axis
    return [x.index_select(dim, torch.tensor(part.clamped(t), device=x.device)) for t in range(part.kernel)]


def _winner(x: Shape, *, window: Window) -> Plan:
    rank, native = window.rank, _native_max(window)
    if native is not None:
        nd = MAX_WITH_INDEX[rank]
        general = _on_planes(x, rank, lambda t: nd(t, *native)[1])
    elif _is_adaptive(window):
        general = _on_planes(x, rank, lambda t: ADAPTIVE_MAX[rank](t, window.out, True)[1])
    else:
        window.check_walk()
        general = lambda t: _winner_by_taps(t, window)
    if not _doubles(window):
        return lambda t: general(t.detach())

    def plan(t: Tensor) -> Tensor:
        t = t.detach()
        if eager(t) and t.device.type == "cpu" and t.dtype == torch.float32 and t.numel() and not t.sum().isnan():
            return torch_pool.packed_winner(t, window)[1]
        return general(t)

    return plan


def _doubles(window: Window) -> bool:
    native = window.native()
    return (
        native is not None
        and set(native.stride) == {1}
        and window.taps_count > 1
        and math.prod(window.unpadded().size) < 2**31
    )


def _native_time(x: Shape, window: Window, cost: tuple[float, float]) -> float:
    """An estimate, in nanoseconds on one thread."""
    outs = math.prod(x[: len(x) - window.rank]) * math.prod(window.out)
    return outs * (cost[0] + cost[1] * window.taps_count)


def _max_pool(x: Shape, *, window: Window) -> Plan:
    rank, native = window.rank, _native_max(window)
    if native is not None:
        nd, (kernel, stride, padding, dilation, ceil) = MAX_POOL[rank], native
        traceable = _on_planes(x, rank, lambda t: nd(t, kernel, stride, padding, dilation, ceil))
    elif _is_adaptive(window):
        traceable = _on_planes(x, rank, lambda t: ADAPTIVE_MAX[rank](t, window.out))
    else:
        index = _winner(x, window=window)
        read = _take(x, (), rank=rank, empty=window.has_empty)
        traceable = lambda t: read(t, index(t))
    if not _doubles(window) or (rank == 1 and native is not None and window.kernel[0] < DOUBLING_FROM_1D):
        return traceable
    time = _native_time(x, window, NATIVE_MAX) if native is not None else math.inf
    return traceable if time < WORTH_MAX else _doubled_max(window, traceable, time >= WORTH_MAX_GRAD)


def _doubled_max(window: Window, traceable: Plan, with_gradient: bool) -> Plan:
    empty = (window.inside() == 0).astype(bool) if window.has_empty else None

    def values(t: Tensor) -> Tensor:
        y = torch_pool.dense_max(t, window)
        return y if empty is None else torch.where(torch.from_numpy(empty), torch.zeros((), dtype=t.dtype), y)

    def plan(t: Tensor) -> Tensor:
        if not eager(t) or t.device.type != "cpu" or t.dtype not in DOUBLING_TYPES or not t.numel():
            return traceable(t)
        if (torch.is_grad_enabled() and t.requires_grad) or dual_level_open():
            if with_gradient and t.dtype is torch.float32 and not t.detach().sum().isnan():
                return _PackedMax.apply(t, window)
            return traceable(t)
        return traceable(t) if torch_pool.has_negative_zero(t) else values(t)  # which zero wins: the first, as always

    return plan


class _PackedMax(torch.autograd.Function):
    """max_pool that keeps the winner's position for both derivative modes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: Window) -> Any:
        y, index = torch_pool.packed_winner(x, window)
        ctx.window, ctx.shape = window, x.shape
        ctx.save_for_backward(index)
        ctx.save_for_forward(index)
        return y

    @staticmethod
    def backward(ctx: Any, gy: Any) -> Any:
        (index,) = ctx.saved_tensors
        window = ctx.window
        native = _native_max(window)
        if window.rank == 2 and native is not None and not gy.requires_grad:
            g, i = (planes(t, 2) for t in (gy, index))
            like = gy.new_empty(1).expand(g.shape[0], 1, *window.size)
            gx = torch.ops.aten.max_pool2d_with_indices_backward(g, like, *native, i)
            return gx.view(ctx.shape), None
        return _put(gy.shape, index.shape, size=window.size, empty=window.has_empty)(gy, index), None

    @staticmethod
    def jvp(ctx: Any, dx: Any, _: Any) -> Any:
        (index,) = ctx.saved_tensors
        return _take(dx.shape, index.shape, rank=ctx.window.rank, empty=ctx.window.has_empty)(dx, index)


def max_and_winner(x: Shape, *, window: Window) -> Plan:
    """Both at once, for graphs that use both."""
    values, index = _max_pool(x, window=window), _winner(x, window=window)

    def plan(t: Tensor) -> tuple[Tensor, Tensor]:
        packs = _doubles(window) and eager(t) and t.device.type == "cpu" and t.dtype == torch.float32 and t.numel()
        if packs and not t.requires_grad and not t.sum().isnan():
            return torch_pool.packed_winner(t, window)
        i = index(t)
        return (_take(x, (), rank=window.rank, empty=window.has_empty)(t, i) if not _doubles(window) else values(t)), i

    return plan


def _take(x: Shape, i: Shape, *, rank: int, empty: bool) -> Plan:
    def plan(t: Tensor, index: Tensor) -> Tensor:
        flat, where = t.flatten(t.ndim - rank), index.flatten(index.ndim - rank)
        if not empty:
            return flat.gather(-1, where).view(index.shape)
        if not flat.shape[-1]:
            return t.new_zeros(index.shape)
        return torch.where(where < 0, 0, flat.gather(-1, where.clamp(min=0))).view(index.shape)

    return plan


def _put(gy: Shape, i: Shape, *, size: Shape, empty: bool) -> Plan:
    rank, cells = len(size), math.prod(size)
    lead = gy[: len(gy) - rank]

    def plan(g: Tensor, index: Tensor) -> Tensor:
        values, where = g.flatten(g.ndim - rank), index.flatten(index.ndim - rank)
        if empty:
            values, where = torch.where(where < 0, 0, values), where.clamp(min=0)
        out = values.new_zeros((*lead, cells))
        return out.scatter_add(-1, where, values).view(lead + size)

    return plan


def _last_writer(i: Shape, *, rank: int, cells: int) -> Plan:
    def plan(index: Tensor) -> Tensor:
        flat = index.flatten(index.ndim - rank)
        order = torch.arange(flat.shape[-1], device=index.device).expand(flat.shape)
        last = torch.full((*flat.shape[:-1], cells + 1), -1, device=index.device)
        last = last.scatter_reduce(-1, torch.where(flat < 0, cells, flat), order, "amax")
        stays = last.gather(-1, torch.where(flat < 0, cells, flat)) == order
        return torch.where(stays, flat, -1).view(index.shape)

    return plan


# --- averages -------------------------------------------------------------------------------------------------------


def _counts(window: Window, divisor: Any) -> Any:
    """One number where every window has the same divisor, else an array of shape `out`."""
    if divisor not in ("padded", "inside"):
        return number(divisor)
    counts = (window.counted() if divisor == "padded" else window.inside()).astype(int)
    low, high = int(counts.min()), int(counts.max())
    return low if low == high and low else counts


def _divider(window: Window, divisor: Any) -> Plan:
    counts = _counts(window, divisor)
    if not hasattr(counts, "shape"):
        return (lambda t: t) if counts == 1 else lambda t: t / counts
    empty, safe = counts == 0, counts.clip(min=1)
    any_empty = bool(empty.any())

    def divide(t: Tensor) -> Tensor:  # tensors are made per call: a plan may outlive the tracer that asked for it
        y = t / torch.from_numpy(safe).to(t)
        return torch.where(torch.from_numpy(empty).to(t.device), 0, y) if any_empty else y

    return divide


def _native_avg(window: Window, divisor: Any) -> Callable[[Tensor], Tensor] | None:
    """PyTorch's own avg_pool, where it takes this window and this divisor."""
    native = window.native()
    if native is None or window.rank > 3 or native.padding is None or set(native.dilation) != {1}:
        return None
    if any(2 * p > k for p, k in zip(native.padding, window.kernel, strict=True)) or window.has_empty:
        return None
    if window.rank == 3 and any(n < k for n, k in zip(window.size, window.kernel, strict=True)):
        return None  # avg_pool3d counts no padding when it checks the kernel
    nd, kernel, (stride, _, padding, ceil) = AVG_POOL[window.rank], window.kernel, native
    if divisor in ("padded", "inside"):
        include = divisor == "padded"
        return lambda t: nd(t, kernel, stride, padding, ceil, include)
    if window.rank == 1 or not isinstance(divisor, int):
        return None
    return lambda t: nd(t, kernel, stride, padding, ceil, True, divisor)


AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _matrix_products(t: Tensor, window: Window, transpose: bool) -> Tensor:
    """Window sums (or their adjoint) over adaptive axes as products with 0-1 matrices; other axes tap by tap."""
    for axis, part in enumerate(window.axes):
        dim = t.ndim - window.rank + axis
        if isinstance(part, Adaptive):
            m = torch.from_numpy(part.matrix()).to(t)
            t = torch.tensordot(t, m.T if transpose else m, ((dim,), (1,))).movedim(-1, dim)
        else:
            t = _sum_of_taps(t, Window((part,)), dim, transpose)
    return t


def _sum_of_taps(t: Tensor, window: Window, dim: int, transpose: bool) -> Tensor:
    lead = (slice(None),) * dim
    size = window.size if transpose else window.out
    shape = (*t.shape[:dim], *size, *t.shape[dim + 1 :])
    if not any(True for _ in window.taps()):
        return torch_pool.nothing_of(t, shape)
    total = t.new_zeros(shape)
    rest = tuple(slice(0, n) for n in t.shape[dim + 1 :])
    for tap in window.taps():
        to, read = (tap.ins, tap.outs) if transpose else (tap.outs, tap.ins)
        total = torch_pool.accumulate(total, to + rest, t[lead + read])
    return total


def _avg_pool(x: Shape, *, window: Window, divisor: Any) -> Plan:
    divide = _divider(window, divisor)
    native = _native_avg(window, divisor)
    if native is not None:
        traceable = _on_planes(x, window.rank, native)
    elif _is_adaptive(window) and divisor == "inside":
        traceable = _on_planes(x, window.rank, lambda t: ADAPTIVE_AVG[window.rank](t, window.out))
    else:
        traceable = lambda t: divide(_matrix_products(t, window, transpose=False))
    if not _doubles(window) or (native is not None and _native_time(x, window, NATIVE_AVG) < WORTH_AVG):
        return traceable
    fast = lambda t: divide(torch_pool.dense_sum(t, window))
    counts = _counts(window, divisor)
    if not hasattr(counts, "shape"):
        fast = lambda t: torch_pool.dense_sum(t, window, 1 / counts)
    return _where_doubling("avg_pool", {"window": window, "divisor": divisor}, fast, traceable)


def _avg_spread(gy: Shape, *, window: Window, divisor: Any) -> Plan:
    divide = _divider(window, divisor)
    traceable = lambda t: _matrix_products(divide(t), window, transpose=True)
    native = window.native()
    if window.rank == 2 and _native_avg(window, divisor) is not None:
        rule = None if divisor in ("padded", "inside") else divisor
        args = (window.kernel, native.stride, native.padding, native.ceil, divisor != "inside", rule)

        def backward(t: Tensor) -> Tensor:
            like = t.new_empty(1).expand(*t.shape[:2], *window.size)
            return torch.ops.aten.avg_pool2d_backward(t, like, *args)

        traceable = _on_planes(gy, 2, backward)
    back = window.adjoint() if _doubles(window) else None
    if back is None or (window.rank == 2 and _native_time(gy, window, NATIVE_AVG) < WORTH_AVG):
        return traceable
    counts = _counts(window, divisor)
    if hasattr(counts, "shape"):
        fast = lambda t: torch_pool.dense_sum(divide(t), back)
    else:
        fast = lambda t: torch_pool.dense_sum(t, back, 1 / counts)
    return _where_doubling("avg_spread", {"window": window, "divisor": divisor}, fast, traceable)


def _where_doubling(name: str, params: dict[str, Any], fast: Plan, traceable: Plan) -> Plan:
    ours = _ours(name, params, fast, traceable)
    return lambda t: ours(t) if t.dtype in DOUBLING_TYPES and t.numel() else traceable(t)


# --- smooth maxima --------------------------------------------------------------------------------------------------


class _Smooth(torch.autograd.Function):
    """smooth_max_pool; its derivatives follow the record's rules, or for large beta*y weights taken from x alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, params: dict[str, Any]) -> Any:
        y = torch_smooth.smooth(x, params["window"], float(params["beta"]), params["padded"], x.dtype in DOUBLING_TYPES)
        ctx.params = params
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        return y

    @staticmethod
    def _derivative(ctx: Any, t: Tensor, stable: Plan, rule: Plan) -> Any:
        x, y = ctx.saved_tensors
        window, beta, padded = ctx.params["window"], float(ctx.params["beta"]), ctx.params["padded"]
        if (torch.is_grad_enabled() and (t.requires_grad or x.requires_grad)) or torch_smooth.near(y, beta):
            return rule(x, y, t)
        return stable(x, t, window, beta, padded)

    @staticmethod
    def backward(ctx: Any, gy: Any) -> Any:
        op, params = REGISTRY["smooth_max_pool"], ctx.params
        rule = lambda x, y, g: op.cotangents(g, y, (x,), params)[0]
        return _Smooth._derivative(ctx, gy, torch_smooth.cotangent, rule), None

    @staticmethod
    def jvp(ctx: Any, dx: Any, _: Any) -> Any:
        op, params = REGISTRY["smooth_max_pool"], ctx.params
        return _Smooth._derivative(ctx, dx, torch_smooth.tangent, lambda x, y, d: op.tangent(y, (x,), (d,), params))


def _smooth_max_pool(x: Shape, *, window: Window, beta: Number, padded: str) -> Plan:
    window.check_walk()
    params = {"window": window, "beta": beta, "padded": padded}

    def plan(t: Tensor) -> Tensor:
        on_cpu = eager(t) and t.device.type == "cpu"
        if on_cpu and ((torch.is_grad_enabled() and t.requires_grad) or dual_level_open()):
            return _Smooth.apply(t, params)
        return torch_smooth.smooth(t, window, float(beta), padded, on_cpu and t.dtype in DOUBLING_TYPES)

    return plan


def _smooth_pull(x: Shape, y: Shape, v: Shape, *, window: Window, beta: Number) -> Plan:
    b = float(beta)
    fast = lambda *a: torch_smooth.pull(*a, window, b, a[0].dtype in DOUBLING_TYPES)
    slow = lambda *a: torch_smooth.pull_by_taps(*a, window, b)
    return _ours("smooth_pull", {"window": window, "beta": beta}, fast, slow)


def _smooth_push(x: Shape, y: Shape, g: Shape, *, window: Window, beta: Number) -> Plan:
    b, dense = float(beta), window.adjoint() is not None
    fast = lambda *a: torch_smooth.push(*a, window, b, dense and a[0].dtype in DOUBLING_TYPES)
    slow = lambda *a: torch_smooth.push_by_taps(*a, window, b)
    return _ours("smooth_push", {"window": window, "beta": beta}, fast, slow)


# --- maxima over axes -----------------------------------------------------------------------------------------------


def _amax(x: Shape, *, axes: Shape, ties: str) -> Plan:
    if not axes:
        return lambda t: t
    if ties == "split":
        return lambda t: torch.amax(t, axes)
    params = {"axes": axes, "ties": ties}
    return _ours("amax", params, lambda t: torch.amax(t, axes), lambda t: _all_winners(t, axes))


def _all_winners(t: Tensor, axes: Shape) -> Tensor:
    """amax whose derivative is the sum over the maximisers, in traceable operators."""
    y = t.detach().amax(axes, keepdim=True)
    wins = (t.detach() == y) | t.detach().isnan()
    count = wins.sum(axes).to(t)
    split = torch.where(wins, t, 0).sum(axes)
    # The value is y; the derivative that of the sum. Infinities cancel to NaN, so they take the value alone.
    moved = split - split.detach()
    return y.squeeze(axes) + torch.where(count.isfinite() & split.isfinite(), moved, 0)


# --- convolution ----------------------------------------------------------------------------------------------------


def _conv(x: Shape, w: Shape, *b: Shape, window: Window, groups: int) -> Plan:
    native = torch_conv.native_conv(window, groups)
    if native is not None and len(x) == window.rank + 2:
        return native
    return _one_batch_axis(torch_conv.conv, x, window, groups)


def _conv_transpose(x: Shape, w: Shape, *b: Shape, window: Window, groups: int) -> Plan:
    native = torch_conv.native_transpose(window, groups)
    if native is not None and len(x) == window.rank + 2:
        return native
    return _one_batch_axis(torch_conv.conv_transpose, x, window, groups)


def _one_batch_axis(compute: Callable[..., Tensor], x: Shape, window: Window, groups: int) -> Plan:
    """`compute` takes (N, C, *spatial); give it that whatever the batch axes are."""
    rank = window.rank
    if len(x) == rank + 2:
        return lambda t, v, u=None: compute(t, v, u, window, groups)
    lead = x[: len(x) - rank - 1]

    def plan(t: Tensor, v: Tensor, u: Tensor | None = None) -> Tensor:
        y = compute(torch_conv.one_batch_axis(t, rank), v, u, window, groups)
        return y.view(lead + y.shape[1:])

    return plan


def _conv_weight(x: Shape, gy: Shape, *, window: Window, groups: int) -> Plan:
    def plan(t: Tensor, g: Tensor) -> Tensor:
        if t.dtype != g.dtype:  # under autocast: the product has no cast of its own
            t, g = (v.to(torch.promote_types(t.dtype, g.dtype)) for v in (t, g))
        flat = (torch_conv.one_batch_axis(v, window.rank) for v in (t, g))
        return torch_conv.conv_weight(*flat, window, groups)

    return plan


def _contract(x: Shape, z: Shape, *, spec: str) -> Plan:
    ins, _, out = spec.partition("->")
    a, _, b = ins.partition(",")
    if len(b) == 2 and b[1] == a[-1] and out == a[:-1] + b[0]:
        return F.linear
    return lambda t, u: torch.einsum(spec, t, u)


def _linear(w: Tensor, b: Tensor | None, x: Tensor) -> Tensor:
    for t in (x, w):
        if getattr(t, "dtype", None) in INTEGERS:
            refuse_integers("linear", "torch", t.dtype)
    return F.linear(x, w, b)


# --- the table ------------------------------------------------------------------------------------------------------


def _always(f: Plan) -> Any:
    return lambda *shapes, **params: f


def _tensor_like(value: Any, other: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.full((), value, dtype=other.dtype, device=other.device)


def _pairwise(f: Plan) -> Any:
    """For functions that take no Python numbers."""
    return _always(lambda a, b: f(_tensor_like(a, b), _tensor_like(b, a)))


def _mask(f: Plan) -> Any:
    return _always(lambda a, b: f(a, b).to(a.dtype if isinstance(a, Tensor) else b.dtype))


def _select(c: Shape, a: Shape, b: Shape) -> Plan:
    def plan(m: Tensor, p: Any, q: Any) -> Tensor:
        like = p if isinstance(p, Tensor) else q if isinstance(q, Tensor) else m  # a mask of bools has no numbers
        return torch.where(m != 0, _tensor_like(p, like), _tensor_like(q, like))

    return plan


def _slice(x: Shape, *, ranges: tuple[tuple[int, int, int], ...]) -> Plan:
    index = tuple(slice(*r) for r in ranges)
    return lambda t: t[index]


def _softplus(x: Shape, *, beta: Number) -> Plan:
    b = float(beta)
    return lambda t: torch.logaddexp(t * b, t.new_zeros(())) / b


def _sign(t: Tensor) -> Tensor:
    return torch.where(t.isnan(), t.detach(), torch.sign(t.detach()))


def _clamp(x: Shape, *, low: Any, high: Any) -> Plan:
    return (lambda t: t) if low is None and high is None else lambda t: torch.clamp(t, low, high)


def _normal_pdf(t: Tensor) -> Tensor:
    return torch.exp(-t * t / 2) / math.sqrt(2 * math.pi)


PUBLIC = """
    adaptive_avg_pool adaptive_max_pool amax avg_pool batch_norm conv conv_transpose cross_entropy gelu global_avg_pool
    global_max_pool group_norm layer_norm linear log_softmax lp_pool matmul max_pool max_unpool mse_loss
    smooth_max_pool softmax upsample_nearest
    abs add broadcast clamp concat div equal exp fill flatten greater greater_equal hardswish leaky_relu log maximum
    mean minimum mul neg normal_cdf normal_pdf pad permute power relu relu6 reshape select sigmoid sign silu slice
    softplus sqrt stop_gradient sub sum tanh unpad
"""

TABLE: dict[str, Any] = {
    # layout
    "fill": lambda x, *, value: lambda t: torch.full_like(t, number(value), requires_grad=False),
    "reshape": lambda x, *, shape: lambda t: t.reshape(shape),
    "permute": lambda x, *, order: lambda t: t.permute(order),
    "slice": _slice,
    "pad": lambda x, *, widths: lambda t: torch_pool.embed(t, widths),
    "concat": lambda *shapes, axis: lambda *ts: torch.cat(ts, axis),
    "broadcast": lambda x, *, shape: lambda t: t.expand(shape),
    "sum": lambda x, *, axes: (lambda t: t.sum(axes)) if axes else (lambda t: t),
    # arithmetic
    "add": _always(lambda a, b: a + b),
    "sub": _always(lambda a, b: a - b),
    "mul": _always(lambda a, b: a * b),
    "div": _always(lambda a, b: a / b),
    "neg": _always(torch.neg),
    "abs": _always(torch.abs),
    "exp": _always(torch.exp),
    "log": _always(torch.log),
    "sqrt": _always(torch.sqrt),
    "power": lambda x, *, exponent: lambda t: torch.pow(t, number(exponent)),
    "maximum": _pairwise(torch.maximum),
    "minimum": _pairwise(torch.minimum),
    # masks
    "greater": _mask(lambda a, b: a > b),
    "greater_equal": _mask(lambda a, b: a >= b),
    "less": _mask(lambda a, b: a < b),
    "equal": _mask(lambda a, b: a == b),
    "sign": _always(_sign),
    "select": _select,
    "stop_gradient": _always(torch.Tensor.detach),
    # activations
    "relu": _always(torch.relu),
    "relu6": _always(F.relu6),
    "leaky_relu": lambda x, *, slope: lambda t: F.leaky_relu(t, number(slope)),
    "clamp": _clamp,
    "hardswish": _always(F.hardswish),
    "tanh": _always(torch.tanh),
    "sigmoid": _always(torch.sigmoid),
    "silu": _always(F.silu),
    "softplus": _softplus,
    "normal_pdf": _always(_normal_pdf),
    "normal_cdf": _always(torch.special.ndtr),
    "gelu": _always(F.gelu),
    # contraction and convolution
    "contract": _contract,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "conv_weight": _conv_weight,
    # pooling
    "avg_pool": _avg_pool,
    "avg_spread": _avg_spread,
    "max_pool": _max_pool,
    "winner": _winner,
    "take": _take,
    "put": _put,
    "last_writer": _last_writer,
    "amax": _amax,
    "smooth_max_pool": _smooth_max_pool,
    "smooth_pull": _smooth_pull,
    "smooth_push": _smooth_push,
}


def _cross_entropy(x: Tensor, labels: Tensor, *, reduction: Any = "mean") -> Tensor:
    """The composition; under autocast in float32, as PyTorch does for its own."""
    if not (isinstance(x, Tensor) and torch.is_autocast_enabled(x.device.type) and x.dtype in SHORT):
        return cross_entropy.__wrapped__(x, labels, reduction=reduction)
    with torch.autocast(x.device.type, enabled=False):
        return cross_entropy.__wrapped__(x.float(), labels, reduction=reduction)


SHORT = (torch.bfloat16, torch.float16)

# Compositions for which PyTorch has one operator.
COMPOSITES: dict[str, Plan] = {
    "cross_entropy": _cross_entropy,
    "softmax": lambda x, axis=-1: F.softmax(x, axis),
    "log_softmax": lambda x, axis=-1: F.log_softmax(x, axis),
    "linear": _linear,
    "layer_norm": lambda x, shape, weight=None, bias=None, *, eps=1e-5: F.layer_norm(x, shape, weight, bias, eps),
    "group_norm": lambda x, groups, weight=None, bias=None, *, eps=1e-5: F.group_norm(x, groups, weight, bias, eps),
}

INTEGERS = frozenset(
    {torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64}
    | {torch.int8, torch.int16, torch.int32, torch.int64}
)
ENGINE = Engine("torch", Tensor, TABLE, INTEGERS)
run = ENGINE.run

if "torch._dynamo" in sys.modules:
    enable_torch_compile()
