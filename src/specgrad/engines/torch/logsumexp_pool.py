"""Smooth maxima on PyTorch.

With one shift M per plane, E = exp(beta*(x - M)) and S = window sums of E: y = M + log(S)/beta. Sums of E cost what an
average costs, whatever the window. That is accurate while no window lies far below its plane's maximum; where S falls
under MIN_WINDOW_SUM, or anything is not finite, pairs are merged by logaddexp instead, which is stable for every input.
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
from .autograd_rules import is_eager, ours, rounded_once
from .log_step_pool import DOUBLING_TYPES, accumulate, cells, dense_sum, padded
from .modes import in_dual_level

MIN_WINDOW_SUM = 1e-28  # float32 keeps its precision in sums and reciprocals down to here
MIN_LOG_SUM = math.log(MIN_WINDOW_SUM)


def tap_views(x: Tensor, win: Window, axis: int) -> list[Tensor]:
    """Return, for each tap of one axis of an unpadded window, the view that all outputs read with it."""
    dim = x.ndim - win.rank + axis
    part = Window((win.axes[axis],))
    return [x[(slice(None),) * dim + tap.slices()[1]] for tap in part.taps()]


def by_logaddexp(x: Tensor, win: Window, beta: float, ignore: bool, outside: float) -> Tensor:
    """Return log(sum exp(beta*x)) / beta of every window by logaddexp over taps: stable for every input.

    A padded tap is 0, or (ignore) `outside`: -inf, or where gradients must pass a number so low that it counts nothing.
    """
    bare = win.unpadded()
    z = padded(x * beta, win, outside if ignore else 0.0)
    for axis in reversed(range(win.rank)):
        first, *rest = tap_views(z, bare, axis)
        for part in rest:
            first = torch.logaddexp(first, part)
        z = first
    return z / beta


def _plane_maximum(x: Tensor, rank: int, beta: float) -> Tensor:
    """Return the largest beta*x of every plane, as a value of x; shape (*lead, 1, ..., 1)."""
    dims = tuple(range(x.ndim - rank, x.ndim))
    return x.amax(dims, keepdim=True) if beta > 0 else x.amin(dims, keepdim=True)


def by_shifted_sums(x: Tensor, win: Window, beta: float, ignore: bool) -> Tensor | None:
    """Return the smooth maximum from window sums of exp(beta*(x - M)); None where that loses precision.

    `ignore` leaves padded taps out; else they are 0.
    """
    m = _plane_maximum(x, win.rank, beta)
    if not ignore and win.pads_anything:  # the padded taps, x = 0, belong to the plane
        m = m.clamp(min=0) if beta > 0 else m.clamp(max=0)
        p = padded(x, win, 0.0)
        s = dense_sum(torch.sub(p, m).mul_(beta).exp_(), win.unpadded())
    else:
        s = dense_sum(torch.sub(x, m).mul_(beta).exp_(), win)
    if not bool(s.amin() >= MIN_WINDOW_SUM):  # written so that NaN fails
        return None
    return s.log_().mul_(1 / beta).add_(m)


def smooth(x: Tensor, win: Window, beta: float, rule: str, fast: bool) -> Tensor:
    """Return the smooth maximum of every window, 0 for an empty one; `fast` needs plain eager mode on the CPU.

    beta scales the exponent; `rule` is "ignore" to leave padded taps out, else they are 0.
    """
    ignore = rule == "ignore"
    y = by_shifted_sums(x, win, beta, ignore) if fast and x.numel() else None
    if y is None:
        y = by_logaddexp(x, win, beta, ignore, -math.inf if fast else torch.finfo(x.dtype).min / 4)
    if ignore and win.has_empty:
        empty = torch.from_numpy((win.inside() == 0).astype(bool)).to(x.device)
        y = torch.where(empty, torch.zeros((), dtype=x.dtype, device=x.device), y)
    return y


# --- pull and push ----------------------------------------------------------------------------------------------


def pull_by_taps(x: Tensor, y: Tensor, v: Tensor, win: Window, beta: float) -> Tensor:
    """Return sum_t exp(beta*(x_t - y)) * v_t of every window of `win`, tap by tap; v has the shape of x, y that of the
    result.
    """
    total = torch.zeros_like(y)
    for tap in win.taps():
        outs, ins = tap.slices()
        part = torch.exp((cells(x, ins) - cells(y, outs)) * beta) * cells(v, ins)
        total = accumulate(total, outs, part)
    return total


def push_by_taps(x: Tensor, y: Tensor, g: Tensor, win: Window, beta: float) -> Tensor:
    """Return the adjoint of `pull_by_taps` in v: exp(beta*(x_t - y)) * g added to each cell x_t of the window, tap by
    tap.

    y and g have the output's shape, the result has that of x.
    """
    total = torch.zeros_like(x)
    for tap in win.taps():
        outs, ins = tap.slices()
        part = torch.exp((cells(x, ins) - cells(y, outs)) * beta) * cells(g, outs)
        total = accumulate(total, ins, part)
    return total


def _exponent_scales(x: Tensor, y: Tensor, win: Window, beta: float) -> tuple[Tensor, Tensor] | None:
    """Return E = exp(beta*(x - M)) and 1/S = exp(-beta*(y - M)), M being x's shift over `win`; None where the latter
    would be too large.
    """
    m = _plane_maximum(x, win.rank, beta)
    depth = torch.sub(y, m).mul_(beta)
    if not bool((depth.amin() >= MIN_LOG_SUM) & (depth.amax() <= -MIN_LOG_SUM)):
        return None
    return torch.sub(x, m).mul_(beta).exp_(), depth.neg_().exp_()


def pull(x: Tensor, y: Tensor, v: Tensor, win: Window, beta: float, fast: bool) -> Tensor:
    """Return sum_t exp(beta*(x_t - y)) * v_t of every window; `fast` by window sums, else tap by tap.

    v has the shape of x.
    """
    scales = _exponent_scales(x, y, win, beta) if fast and x.numel() and y.numel() else None
    if scales is None:
        return pull_by_taps(x, y, v, win, beta)
    e, inverse = scales
    return dense_sum(e.mul_(v), win).mul_(inverse)


def push(x: Tensor, y: Tensor, g: Tensor, win: Window, beta: float, back: Window | None) -> Tensor:
    """Return the adjoint of `pull` in v at g, of the shape of x; by window sums of `back`, or tap by tap if it is None.

    `back` is the window's adjoint, whose sum is the adjoint of the window sum. beta scales the exponent.
    """
    scales = _exponent_scales(x, y, win, beta) if back is not None and x.numel() and y.numel() else None
    if back is None or scales is None:
        return push_by_taps(x, y, g, win, beta)
    e, inverse = scales
    return e.mul_(dense_sum(inverse.mul_(g), back))


# --- first derivatives of smooth_max_pool itself ----------------------------------------------------------------------

MAX_SCALED_OUTPUT = (
    64.0  # beyond this abs(beta*y), the rounding of y spoils exp(beta*(x - y)); weights then come from x alone
)


def is_accurate_from_output(y: Tensor, beta: float) -> bool:
    """Return whether abs(beta*y) is small enough that exp(beta*(x - y)) is accurate."""
    return not y.numel() or bool(y.abs().amax() * abs(beta) <= MAX_SCALED_OUTPUT)


def _window_exponentials(x: Tensor, win: Window, beta: float, rule: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return beta*x, the largest of every window, and the sum of exp(beta*x - largest).

    Padding counts x = 0 if `rule` is "zero", else nothing.
    """
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
    """Return the maximum of z over every window; a padded cell is `outside`."""
    bare, z = win.unpadded(), padded(z, win, outside)
    for axis in reversed(range(win.rank)):
        first, *rest = tap_views(z, bare, axis)
        for part in rest:
            first = torch.maximum(first, part)
        z = first
    return z


def tangent(x: Tensor, dx: Tensor, win: Window, beta: float, rule: str, like: Tensor) -> Tensor:
    """Return the softmax-weighted sum of tangents `dx` of every window, stable for every finite x; in memory as `like`,
    for PyTorch asks that.

    beta scales the exponent; `rule` says whether padded taps count.
    """
    z, m, s = _window_exponentials(x, win, beta, rule)
    total = torch.zeros_like(like)
    for tap in win.taps():
        share = torch.exp(tap.read_inputs(z) - tap.read_outputs(m)) / tap.read_outputs(s)
        tap.add_to_outputs(total, share * tap.read_inputs(dx))
    return total


def cotangent(x: Tensor, gy: Tensor, win: Window, beta: float, rule: str) -> Tensor:
    """Return the cotangent of x: gy spread over its window by the softmax weights, stable for every finite x.

    beta scales the exponent; `rule` says whether padded taps count.
    """
    z, m, s = _window_exponentials(x, win, beta, rule)
    total = torch.zeros_like(x)
    for tap in win.taps():
        outs, ins = tap.slices()
        share = torch.exp(tap.read_inputs(z) - tap.read_outputs(m)) / tap.read_outputs(s)
        total = accumulate(total, ins, share * cells(gy, outs))
    return total


# --- the lines ------------------------------------------------------------------------------------------------------


class _SmoothMaxPool(torch.autograd.Function):
    """autograd.Function of smooth_max_pool; its derivative reads x and y by the operator's rules, or for large beta*y
    weights made from x alone.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, params: dict[str, Any]) -> Any:
        """Return the smooth maxima of x, and save both, and `params`, in `ctx` for the derivatives."""
        y = smooth(x, params["window"], float(params["beta"]), params["padded"], x.dtype in DOUBLING_TYPES)
        ctx.params = params
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        return y

    @staticmethod
    def _derivative(ctx: Any, t: Tensor, stable: Kernel, rule: Kernel) -> Any:
        """Return `rule`(x, y, t), or where that is inaccurate and no higher derivative is needed `stable`(x, t, ...).

        x and y were saved in `ctx`.
        """
        x, y = ctx.saved_tensors
        window, beta, padded = ctx.params["window"], float(ctx.params["beta"]), ctx.params["padded"]
        if (torch.is_grad_enabled() and (t.requires_grad or x.requires_grad)) or is_accurate_from_output(y, beta):
            return rule(x, y, t)
        return stable(x, t, window, beta, padded)

    @staticmethod
    def backward(ctx: Any, gy: Any) -> Any:
        """Return the cotangent of the x saved in `ctx`, by the operator's rule or the stable formula."""
        op, params = REGISTRY["smooth_max_pool"], ctx.params
        rule = lambda x, y, g: op.cotangents(g, y, (x,), params)[0]
        return _SmoothMaxPool._derivative(ctx, gy, cotangent, rule), None

    @staticmethod
    def jvp(ctx: Any, dx: Any, _: Any) -> Any:
        """Return the tangent of the smooth maxima saved in `ctx` for the tangent `dx` of x, by the operator's rule or
        the stable formula.
        """
        op, params = REGISTRY["smooth_max_pool"], ctx.params
        stable = lambda x, d, win, beta, padded: tangent(x, d, win, beta, padded, like=ctx.saved_tensors[1])
        return _SmoothMaxPool._derivative(ctx, dx, stable, lambda x, y, d: op.tangent(y, (x,), (d,), params))


_smooth_max_pool_with_rules: Callable[..., Tensor] = _SmoothMaxPool.apply


def lower_smooth_max_pool(x: Shape, *, window: Window, beta: Number, padded: str) -> Kernel:
    """Return the kernel of smooth_max_pool, the log-sum-exp of every window; half types by float32.

    beta scales the exponent; `padded` is "ignore" or "zero". ShapeError for so many taps that it would take minutes.
    """
    window.check_walk()
    params = {"window": window, "beta": beta, "padded": padded}

    def compute(t: Tensor) -> Tensor:
        on_cpu = is_eager(t) and t.device.type == "cpu"
        if on_cpu and ((torch.is_grad_enabled() and t.requires_grad) or in_dual_level()):
            return _smooth_max_pool_with_rules(t, params)
        return smooth(t, window, float(beta), padded, on_cpu and t.dtype in DOUBLING_TYPES)

    return rounded_once(compute)


def lower_smooth_pull(x: Shape, y: Shape, v: Shape, *, window: Window, beta: Number) -> Kernel:
    """Return the kernel of smooth_pull: for every window the sum over its taps of exp(beta*(x - y)) * v.

    x and v have the input's shape; y, the smooth maximum, and the result have the output's.
    """
    b = float(beta)
    fast = lambda t, u, v: pull(t, u, v, window, b, t.dtype in DOUBLING_TYPES)
    slow = lambda t, u, v: pull_by_taps(t, u, v, window, b)
    return rounded_once(ours("smooth_pull", {"window": window, "beta": beta}, fast, slow))


def lower_smooth_push(x: Shape, y: Shape, g: Shape, *, window: Window, beta: Number) -> Kernel:
    """Return the kernel of smooth_push: the adjoint of smooth_pull with the factor beta, in v at g."""
    b, back = float(beta), window.adjoint()
    fast = lambda t, u, g: push(t, u, g, window, b, back if t.dtype in DOUBLING_TYPES else None)
    slow = lambda t, u, g: push_by_taps(t, u, g, window, b)
    return rounded_once(ours("smooth_push", {"window": window, "beta": beta}, fast, slow))
