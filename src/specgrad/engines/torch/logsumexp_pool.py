"""Smooth maxima on PyTorch.

With one shift M per plane, E = exp(beta*(x - M)) and S = window sums of E: y = M + log(S)/beta. Sums of E cost what an
average costs, whatever the window. That is accurate while no window lies far below its plane's maximum; where S falls
under TINY, or anything is not finite, pairs are merged by logaddexp instead, which is stable for every input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specgrad.op import REGISTRY
from specgrad.scalar import Number
from specgrad.window import Shape, Window

from ..base import Kernel
from .autograd_rules import eager, ours, rounded_once
from .log_step_pool import DOUBLING_TYPES, accumulate, cells, dense_sum, padded
from .modes import dual_level_open

TINY = 1e-28  # float32 keeps its precision in sums and reciprocals down to here
DEEPEST = math.log(TINY)


def slices(x: Tensor, win: Window, axis: int) -> list[Tensor]:
    """The taps of one spatial axis of an unpadded window, each as a view with the output's size on that axis."""
    dim = x.ndim - win.rank + axis
    part = Window((win.axes[axis],))
    return [x[(slice(None),) * dim + tap.slices()[1]] for tap in part.taps()]


def merged(x: Tensor, win: Window, beta: float, ignore: bool, outside: float) -> Tensor:
    """log(sum exp(beta*x)) / beta by logaddexp over taps, one axis after the other: stable for every input.

    A padded tap is 0, or (ignore) `outside`: -inf, or where gradients must pass a number so low that it counts nothing.
    """
    bare = win.unpadded()
    z = padded(x * beta, win, outside if ignore else 0.0)
    for axis in reversed(range(win.rank)):
        first, *rest = slices(z, bare, axis)
        for part in rest:
            first = torch.logaddexp(first, part)
        z = first
    return z / beta


def _shift(x: Tensor, rank: int, beta: float) -> Tensor:
    """The largest beta*x of every plane, as a value of x."""
    dims = tuple(range(x.ndim - rank, x.ndim))
    return x.amax(dims, keepdim=True) if beta > 0 else x.amin(dims, keepdim=True)


def shifted(x: Tensor, win: Window, beta: float, ignore: bool) -> Tensor | None:
    """The fast way; None where it would lose precision."""
    m = _shift(x, win.rank, beta)
    if not ignore and win.pads_anything:  # the padded taps, x = 0, belong to the plane
        m = m.clamp(min=0) if beta > 0 else m.clamp(max=0)
        p = padded(x, win, 0.0)
        s = dense_sum(torch.sub(p, m).mul_(beta).exp_(), win.unpadded())
    else:
        s = dense_sum(torch.sub(x, m).mul_(beta).exp_(), win)
    if not bool(s.amin() >= TINY):  # written so that NaN fails
        return None
    return s.log_().mul_(1 / beta).add_(m)


def smooth(x: Tensor, win: Window, beta: float, rule: str, fast: bool) -> Tensor:
    """`fast` in plain eager mode; otherwise traceable operators only."""
    ignore = rule == "ignore"
    y = shifted(x, win, beta, ignore) if fast and x.numel() else None
    if y is None:
        y = merged(x, win, beta, ignore, -math.inf if fast else torch.finfo(x.dtype).min / 4)
    if ignore and win.has_empty:
        empty = torch.from_numpy((win.inside() == 0).astype(bool)).to(x.device)
        y = torch.where(empty, torch.zeros((), dtype=x.dtype, device=x.device), y)
    return y


# --- pull and push ----------------------------------------------------------------------------------------------


def pull_by_taps(x: Tensor, y: Tensor, v: Tensor, win: Window, beta: float) -> Tensor:
    """sum_t exp(beta*(x_t - y)) * v_t, tap by tap."""
    total = torch.zeros_like(y)
    for tap in win.taps():
        outs, ins = tap.slices()
        part = torch.exp((cells(x, ins) - cells(y, outs)) * beta) * cells(v, ins)
        total = accumulate(total, outs, part)
    return total


def push_by_taps(x: Tensor, y: Tensor, g: Tensor, win: Window, beta: float) -> Tensor:
    total = torch.zeros_like(x)
    for tap in win.taps():
        outs, ins = tap.slices()
        part = torch.exp((cells(x, ins) - cells(y, outs)) * beta) * cells(g, outs)
        total = accumulate(total, ins, part)
    return total


def _scales(x: Tensor, y: Tensor, win: Window, beta: float) -> tuple[Tensor, Tensor] | None:
    """E = exp(beta*(x - M)) and 1/S = exp(-beta*(y - M)); None where the latter would be too large."""
    m = _shift(x, win.rank, beta)
    depth = torch.sub(y, m).mul_(beta)
    if not bool((depth.amin() >= DEEPEST) & (depth.amax() <= -DEEPEST)):
        return None
    return torch.sub(x, m).mul_(beta).exp_(), depth.neg_().exp_()


def pull(x: Tensor, y: Tensor, v: Tensor, win: Window, beta: float, fast: bool) -> Tensor:
    scales = _scales(x, y, win, beta) if fast and x.numel() and y.numel() else None
    if scales is None:
        return pull_by_taps(x, y, v, win, beta)
    e, inverse = scales
    return dense_sum(e.mul_(v), win).mul_(inverse)


def push(x: Tensor, y: Tensor, g: Tensor, win: Window, beta: float, back: Window | None) -> Tensor:
    """`back` is the window's adjoint, whose sum is the adjoint of the window sum; None: tap by tap."""
    scales = _scales(x, y, win, beta) if back is not None and x.numel() and y.numel() else None
    if back is None or scales is None:
        return push_by_taps(x, y, g, win, beta)
    e, inverse = scales
    return e.mul_(dense_sum(inverse.mul_(g), back))


# --- first derivatives of smooth_max_pool itself ----------------------------------------------------------------------

FAR = 64.0  # beyond this abs(beta*y), the rounding of y spoils exp(beta*(x - y)); weights then come from x alone


def near(y: Tensor, beta: float) -> bool:
    return not y.numel() or bool(y.abs().amax() * abs(beta) <= FAR)


def _weights(x: Tensor, win: Window, beta: float, rule: str) -> tuple[Tensor, Tensor, Tensor]:
    """beta*x, the largest of every window, and the sum of exp above it; a padded tap counts by the rule."""
    z = x * beta
    m = _window_max(z, win, 0.0 if rule == "zero" else -math.inf)
    total = torch.zeros_like(m)
    if rule == "zero":
        outside = torch.from_numpy((win.taps_count - win.inside()).astype(float)).to(m)
        total = torch.where(outside > 0, torch.exp(-m) * outside, total)
    for tap in win.taps():
        tap.add_to_outputs(total, torch.exp(tap.read_inputs(z) - tap.read_outputs(m)))
    return z, m, total


def _window_max(z: Tensor, win: Window, outside: float) -> Tensor:
    bare, z = win.unpadded(), padded(z, win, outside)
    for axis in reversed(range(win.rank)):
        first, *rest = slices(z, bare, axis)
        for part in rest:
            first = torch.maximum(first, part)
        z = first
    return z


def tangent(x: Tensor, dx: Tensor, win: Window, beta: float, rule: str, like: Tensor) -> Tensor:
    """Softmax-weighted sum of tangents, stable for every finite x; in memory as `like`, for PyTorch asks that."""
    z, m, s = _weights(x, win, beta, rule)
    total = torch.zeros_like(like)
    for tap in win.taps():
        share = torch.exp(tap.read_inputs(z) - tap.read_outputs(m)) / tap.read_outputs(s)
        tap.add_to_outputs(total, share * tap.read_inputs(dx))
    return total


def cotangent(x: Tensor, gy: Tensor, win: Window, beta: float, rule: str) -> Tensor:
    """The cotangent spread by the same weights."""
    z, m, s = _weights(x, win, beta, rule)
    total = torch.zeros_like(x)
    for tap in win.taps():
        outs, ins = tap.slices()
        share = torch.exp(tap.read_inputs(z) - tap.read_outputs(m)) / tap.read_outputs(s)
        total = accumulate(total, ins, share * cells(gy, outs))
    return total


# --- the lines ------------------------------------------------------------------------------------------------------


class _Smooth(torch.autograd.Function):
    """smooth_max_pool; its derivatives follow the record's rules, or for large beta*y weights taken from x alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, params: dict[str, Any]) -> Any:
        y = smooth(x, params["window"], float(params["beta"]), params["padded"], x.dtype in DOUBLING_TYPES)
        ctx.params = params
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        return y

    @staticmethod
    def _derivative(ctx: Any, t: Tensor, stable: Kernel, rule: Kernel) -> Any:
        x, y = ctx.saved_tensors
        window, beta, padded = ctx.params["window"], float(ctx.params["beta"]), ctx.params["padded"]
        if (torch.is_grad_enabled() and (t.requires_grad or x.requires_grad)) or near(y, beta):
            return rule(x, y, t)
        return stable(x, t, window, beta, padded)

    @staticmethod
    def backward(ctx: Any, gy: Any) -> Any:
        op, params = REGISTRY["smooth_max_pool"], ctx.params
        rule = lambda x, y, g: op.cotangents(g, y, (x,), params)[0]
        return _Smooth._derivative(ctx, gy, cotangent, rule), None

    @staticmethod
    def jvp(ctx: Any, dx: Any, _: Any) -> Any:
        op, params = REGISTRY["smooth_max_pool"], ctx.params
        stable = lambda x, d, win, beta, padded: tangent(x, d, win, beta, padded, like=ctx.saved_tensors[1])
        return _Smooth._derivative(ctx, dx, stable, lambda x, y, d: op.tangent(y, (x,), (d,), params))


_smooth_on_tape: Callable[..., Tensor] = _Smooth.apply


def lower_smooth_max_pool(x: Shape, *, window: Window, beta: Number, padded: str) -> Kernel:
    window.check_walk()
    params = {"window": window, "beta": beta, "padded": padded}

    def compute(t: Tensor) -> Tensor:
        on_cpu = eager(t) and t.device.type == "cpu"
        if on_cpu and ((torch.is_grad_enabled() and t.requires_grad) or dual_level_open()):
            return _smooth_on_tape(t, params)
        return smooth(t, window, float(beta), padded, on_cpu and t.dtype in DOUBLING_TYPES)

    return rounded_once(compute)


def lower_smooth_pull(x: Shape, y: Shape, v: Shape, *, window: Window, beta: Number) -> Kernel:
    b = float(beta)
    fast = lambda t, u, v: pull(t, u, v, window, b, t.dtype in DOUBLING_TYPES)
    slow = lambda t, u, v: pull_by_taps(t, u, v, window, b)
    return rounded_once(ours("smooth_pull", {"window": window, "beta": beta}, fast, slow))


def lower_smooth_push(x: Shape, y: Shape, g: Shape, *, window: Window, beta: Number) -> Kernel:
    b, back = float(beta), window.adjoint()
    fast = lambda t, u, g: push(t, u, g, window, b, back if t.dtype in DOUBLING_TYPES else None)
    slow = lambda t, u, g: push_by_taps(t, u, g, window, b)
    return rounded_once(ours("smooth_push", {"window": window, "beta": beta}, fast, slow))
