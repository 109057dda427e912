"""The PyTorch engine: one line per operator.

A line turns shapes and parameters into a function of tensors. Native operators are called directly wherever they are
best, and PyTorch's own autograd runs through them. Where an algorithm of ours is faster or PyTorch has no operator,
`_ours` attaches the derivative rules of the operator's record, so they hold to any order. Inside torch.func transforms
and torch.compile only plain, traceable PyTorch operators are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specgrad.ops.sorting import running
from specgrad.scalar import Number
from specgrad.window import OPEN_SIZES, Shape

from ..base import Engine, Plan, number
from . import log_step_pool
from .autograd_rules import MOST_ADDED, NOT_NUMBERS, eager, ours, rounded_once
from .avg_pool import avg_pool_line, avg_spread_line
from .conv import contract_line, conv_line, conv_transpose_line, conv_weight_line
from .log_step_pool import on_tape
from .logsumexp_pool import smooth_max_pool_line, smooth_pull_line, smooth_push_line
from .max_pool import last_writer_line, max_pool_line, put_line, take_line, winner_line
from .reductions import amax_line
from .resize import resize_line, resize_spread_line
from .topk import top_index_line, top_line


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
    index = tuple(slice(None) if r == (0, n, 1) else slice(*r) for r, n in zip(ranges, x, strict=True))
    return lambda t: t[index]


def _pad(x: Shape, *, widths: tuple[tuple[int, int, int], ...]) -> Plan:
    if any(gap for _, _, gap in widths):
        return lambda t: log_step_pool.embed(t, widths)
    pads = log_step_pool.spatial_pads(tuple((lo, hi) for lo, hi, _ in widths))
    return lambda t: torch.constant_pad_nd(t, pads)


def _softplus(x: Shape, *, beta: Number) -> Plan:
    """PyTorch returns x above a threshold: here one from which on that is the rounded value, and 1 its slope."""
    b = float(beta)
    return lambda t: F.softplus(t, b, 40.0 if t.dtype == torch.float64 else 20.0)


def _sign(t: Tensor) -> Tensor:
    """torch.sign gives 0 for NaN; a sum that is none shows that there is none."""
    t = t.detach() if t.requires_grad else t
    if t.is_cpu and eager(t) and not math.isnan(t.sum().item()):
        return torch.sign(t)
    return torch.where(t.isnan(), t.detach(), torch.sign(t))  # no tangent from where it is NaN


def _clamp(x: Shape, *, low: Any, high: Any) -> Plan:
    ends = [None if end is None else number(end) for end in (low, high)]
    return (lambda t: t) if ends == [None, None] else lambda t: torch.clamp(t, *ends)


def _quantize(x: Shape, scale: Shape, zero: Shape, *, low: int | None, high: int | None) -> Plan:
    def plan(t: Any, s: Any, z: Any) -> Tensor:
        if not isinstance(t, Tensor):
            t = _tensor_like(t, s if isinstance(s, Tensor) else z)
        return quantized(t, s, z, low, high)

    return plan


def quantized(t: Tensor, s: Any, z: Any, low: int | None, high: int | None) -> Tensor:
    q: Tensor = (t / s).detach().round_()
    q = q + z if isinstance(z, Tensor) else q.add_(z)  # a zero too: it makes +0 of -0
    if low is None and high is None:
        return q
    return torch.clamp(q, low, high) if isinstance(z, Tensor) else torch.clamp_(q, low, high)


def _root(x: Shape, *, exponent: Number) -> Plan:
    e = number(exponent)

    def traceable(t: Tensor) -> Tensor:
        flat = t.detach() == 0
        return torch.where(flat, 0, torch.pow(torch.where(flat, 1, t), e))

    plan = ours("root", {"exponent": exponent}, lambda t: torch.pow(t, e), traceable)

    def native_above_zero(t: Tensor) -> Tensor:
        """PyTorch's own slope is infinite at 0, and right above it; written so that NaN fails."""
        above = eager(t) and t.device.type == "cpu" and t.numel() and on_tape(t) and t.detach().amin().item() > 0
        y: Tensor = torch.pow(t, e) if above else plan(t)
        return y

    return native_above_zero


def _cumsum(x: Shape, *, axis: int, exclusive: bool, reverse: bool) -> Plan:
    flip: Plan = lambda t, a: t.flip(a)
    return lambda t: running(t, axis, exclusive, reverse, torch.cumsum, flip, torch.cat, torch.zeros_like)


def _sum(x: Shape, *, axes: Shape) -> Plan:
    """Of all axes without their names: the gradient is then one step."""
    if not axes:
        return lambda t: t
    return torch.sum if len(axes) == len(x) else lambda t: t.sum(axes)


def _gather(x: Shape, i: Shape, *, axis: int) -> Plan:
    shape, cells, line = (*x[:axis], *i, *x[axis + 1 :]), x[axis], len(i) == 1

    def plan(t: Tensor, index: Tensor) -> Tensor:
        if line and t.is_cpu and eager(t, index):
            try:
                return t.index_select(axis, index)
            except (IndexError, RuntimeError):
                pass  # positions from the end, or outside
        return t.index_select(axis, _from_start(index, cells)).reshape(shape)

    often = _meets_often(cells)
    return rounded_once(plan, lambda t, index: on_tape(t) and often(t, index))


def _scatter(gy: Shape, i: Shape, *, axis: int, size: int) -> Plan:
    lead, tail, line = gy[:axis], gy[axis + len(i) :], len(i) == 1
    shape = (*lead, size, *tail)

    def plan(g: Tensor, index: Tensor) -> Tensor:
        if line and g.is_cpu and g.numel() and eager(g, index):
            try:
                return g.new_zeros(shape).index_add_(axis, index, g)
            except (IndexError, RuntimeError):
                pass  # positions from the end, or outside
        at = _from_start(index, size)
        return g.new_zeros(shape).index_add(axis, at, g.reshape((*lead, at.shape[0], *tail)))

    return rounded_once(plan, _meets_often(size))


def _meets_often(cells: int) -> Callable[[Tensor, Tensor], bool]:
    """Whether index_add on a CPU adds many half types as they are: not in tables of rows, which may be large."""

    def often(t: Tensor, index: Tensor) -> bool:
        if t.ndim == 2 or not cells or index.numel() <= MOST_ADDED:
            return False
        known = t.is_cpu and eager(t, index)
        return not known or int(torch.bincount(index.reshape(-1) % cells).amax()) > MOST_ADDED

    return often


def _from_start(index: Tensor, cells: int) -> Tensor:
    flat = index.reshape(-1)
    return torch.where(flat < 0, flat + cells, flat)


def _normal_pdf(t: Tensor) -> Tensor:
    return torch.exp(-t * t / 2) / math.sqrt(2 * math.pi)


TABLE: dict[str, Any] = {
    # layout
    "fill": lambda x, *, value: lambda t: torch.full_like(t, number(value), requires_grad=False),
    "reshape": lambda x, *, shape: lambda t: t.reshape(shape),
    "permute": lambda x, *, order: lambda t: t.permute(order),
    "slice": _slice,
    "pad": _pad,
    "concat": lambda *shapes, axis: lambda *ts: torch.cat(ts, axis),
    "broadcast": lambda x, *, shape: lambda t: t.expand(shape),
    "sum": _sum,
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
    "root": _root,
    "maximum": _pairwise(torch.maximum),
    "minimum": _pairwise(torch.minimum),
    # masks
    "greater": _mask(lambda a, b: a > b),
    "greater_equal": _mask(lambda a, b: a >= b),
    "less": _mask(lambda a, b: a < b),
    "equal": _mask(lambda a, b: a == b),
    "sign": _always(_sign),
    "quantize": _quantize,
    "cast": lambda x, *, dtype: lambda t: t,
    "floor": _always(torch.floor),
    "ceil": _always(torch.ceil),
    "round": _always(torch.round),
    "fmod": _pairwise(torch.fmod),
    "select": _select,
    "stop_gradient": _always(torch.Tensor.detach),
    # activations
    "relu": _always(torch.relu),
    "relu6": _always(F.relu6),
    "leaky_relu": lambda x, *, slope: lambda t: F.leaky_relu(t, number(slope)),
    "clamp": _clamp,
    "hardswish": _always(F.hardswish),
    "tanh": _always(torch.tanh),
    "sin": _always(torch.sin),
    "cos": _always(torch.cos),
    "sigmoid": _always(torch.sigmoid),
    "silu": _always(F.silu),
    "softplus": _softplus,
    "normal_pdf": _always(_normal_pdf),
    "normal_cdf": _always(torch.special.ndtr),
    "gelu": _always(F.gelu),
    # contraction and convolution
    "contract": contract_line,
    "conv": conv_line,
    "conv_transpose": conv_transpose_line,
    "conv_weight": conv_weight_line,
    # pooling
    "avg_pool": avg_pool_line,
    "avg_spread": avg_spread_line,
    "max_pool": max_pool_line,
    "winner": winner_line,
    "take": take_line,
    "put": put_line,
    "last_writer": last_writer_line,
    "top": top_line,
    "top_index": top_index_line,
    "cumsum": _cumsum,
    "resize": resize_line,
    "resize_spread": resize_spread_line,
    "gather": _gather,
    "scatter": _scatter,
    "amax": amax_line,
    "smooth_max_pool": smooth_max_pool_line,
    "smooth_pull": smooth_pull_line,
    "smooth_push": smooth_push_line,
}

ENGINE = Engine("torch", Tensor, TABLE, NOT_NUMBERS, lambda i, x: torch.from_numpy(i.astype("int64")).to(x.device))
OPEN_SIZES.add(torch.SymInt)
run = ENGINE.run
