"""The PyTorch engine: the table of lowerings, one per operator.

A line turns shapes and parameters into a function of tensors. Native operators are called directly wherever they are
best, and PyTorch's own autograd runs through them. Where an algorithm of ours is faster or PyTorch has no operator,
`ours` attaches the derivative rules of the operator's record, so they hold to any order. Inside torch.func transforms
and torch.compile only plain, traceable PyTorch operators are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specgrad.op import Op
from specgrad.ops.sorting import running_sum
from specgrad.scalar import Array, Number
from specgrad.window import OPEN_SIZES, Shape

from ..base import Engine, Kernel, function_named, named_lowerings, number
from . import log_step_pool
from .autograd_rules import MAX_HALF_ADDENDS, NOT_NUMBERS, is_eager, ours, rounded_once
from .avg_pool import lower_avg_pool, lower_avg_spread
from .conv import lower_contract, lower_conv, lower_conv_transpose, lower_conv_weight
from .logsumexp_pool import lower_smooth_max_pool, lower_smooth_pull, lower_smooth_push
from .max_pool import lower_last_writer, lower_max_pool, lower_put, lower_take, lower_winner
from .modes import needs_grad
from .reductions import lower_amax
from .resize import lower_resize, lower_resize_spread
from .topk import lower_median_index, lower_median_pool, lower_top, lower_top_index


def for_any_shape(f: Kernel) -> Any:
    """Return a lowering that gives f whatever the shapes and parameters are."""
    return lambda *shapes, **params: f


def _tensor_like(value: Any, other: Any) -> Tensor:
    """Return `value` itself if it is a tensor, else as a 0-d tensor with the type and device of `other`."""
    return value if isinstance(value, Tensor) else torch.full((), value, dtype=other.dtype, device=other.device)


def _binary_on_tensors(f: Kernel) -> Any:
    """Return a lowering to a binary function f that takes tensors only: Python numbers become 0-d tensors."""
    return for_any_shape(lambda a, b: f(_tensor_like(a, b), _tensor_like(b, a)))


def _comparison(f: Kernel) -> Any:
    """Return a lowering to a comparison f whose result is 0 or 1 in the type of its arguments."""
    return for_any_shape(lambda a, b: f(a, b).to(a.dtype if isinstance(a, Tensor) else b.dtype))


def _select(c: Shape, a: Shape, b: Shape) -> Kernel:
    """Return the kernel of select: a where c is not 0, else b."""

    def compute(m: Tensor, p: Any, q: Any) -> Tensor:
        like = p if isinstance(p, Tensor) else q if isinstance(q, Tensor) else m  # a mask of bools has no numbers
        return torch.where(m != 0, _tensor_like(p, like), _tensor_like(q, like))

    return compute


def _slice(x: Shape, *, ranges: tuple[tuple[int, int, int], ...]) -> Kernel:
    """Return the kernel of slice for a shape x by `ranges`: (start, stop, step) per axis."""
    index = tuple(slice(None) if r == (0, n, 1) else slice(*r) for r, n in zip(ranges, x, strict=True))
    return lambda t: t[index]


def _pad(x: Shape, *, widths: tuple[tuple[int, int, int], ...]) -> Kernel:
    """Return the kernel of pad for a shape x by `widths`: (low, high, gap) zeros per axis, before, behind and between
    cells.
    """
    if any(gap for _, _, gap in widths):
        return lambda t: log_step_pool.embed(t, widths)
    pads = log_step_pool.spatial_pads(tuple((lo, hi) for lo, hi, _ in widths))
    return lambda t: torch.constant_pad_nd(t, pads)


def _softplus(x: Shape, *, beta: Number) -> Kernel:
    """Return the kernel of softplus, log(1 + exp(beta*x)) / beta: F.softplus, with a threshold above which x is the
    correctly rounded value and 1 its slope.
    """
    b = float(beta)
    return lambda t: F.softplus(t, b, 40.0 if t.dtype == torch.float64 else 20.0)


def _sign(t: Tensor) -> Tensor:
    """Return the sign of t, NaN where t is NaN (torch.sign gives 0); a sum that is no NaN shows there is none."""
    t = t.detach() if t.requires_grad else t
    if t.is_cpu and is_eager(t) and not math.isnan(t.sum().item()):
        return torch.sign(t)
    return torch.where(t.isnan(), t.detach(), torch.sign(t))  # no tangent from where it is NaN


def _clamp(x: Shape, *, low: Any, high: Any) -> Kernel:
    """Return the kernel of clamp to low..high: torch.clamp; an end that is None does not limit."""
    ends = [None if end is None else number(end) for end in (low, high)]
    return (lambda t: t) if ends == [None, None] else lambda t: torch.clamp(t, *ends)


def _quantize(x: Shape, scale: Shape, zero: Shape, *, low: int | None, high: int | None) -> Kernel:
    """Return the kernel of quantize: clamp(round(x / scale) + zero, low, high)."""

    def compute(t: Any, s: Any, z: Any) -> Tensor:
        if not isinstance(t, Tensor):
            t = _tensor_like(t, s if isinstance(s, Tensor) else z)
        return quantized(t, s, z, low, high)

    return compute


def quantized(t: Tensor, s: Any, z: Any, low: int | None, high: int | None) -> Tensor:
    """Return clamp(round(t / s) + z, low, high), as floats without a gradient; None means no limit."""
    q: Tensor = (t / s).detach().round_()
    q = q + z if isinstance(z, Tensor) else q.add_(z)  # a zero too: it makes +0 of -0
    if low is None and high is None:
        return q
    return torch.clamp(q, low, high) if isinstance(z, Tensor) else torch.clamp_(q, low, high)


def _power_with_finite_slope(x: Shape, *, exponent: Number) -> Kernel:
    """Return the kernel of x**exponent with slope 0 at 0, where PyTorch's own is infinite."""
    e = number(exponent)

    def traceable(t: Tensor) -> Tensor:
        flat = t.detach() == 0
        return torch.where(flat, 0, torch.pow(torch.where(flat, 1, t), e))

    compute = ours("root", {"exponent": exponent}, lambda t: torch.pow(t, e), traceable)

    def native_above_zero(t: Tensor) -> Tensor:
        """Use PyTorch's own power and slope if all cells are above 0; written so that NaN fails."""
        above = is_eager(t) and t.device.type == "cpu" and t.numel() and needs_grad(t) and t.detach().amin().item() > 0
        y: Tensor = torch.pow(t, e) if above else compute(t)
        return y

    return native_above_zero


def _cumsum(x: Shape, *, axis: int, exclusive: bool, reverse: bool) -> Kernel:
    """Return the kernel of the cumulative sum along `axis`, without the cell itself if `exclusive`, from the end if
    `reverse`.
    """
    flip: Kernel = lambda t, a: t.flip(a)
    return lambda t: running_sum(t, axis, exclusive, reverse, torch.cumsum, flip, torch.cat, torch.zeros_like)


def _cumprod(x: Shape, *, axis: int, exclusive: bool, reverse: bool) -> Kernel:
    """Return the kernel of cumprod: the product of the cells so far along `axis`, from the end if `reverse`, without
    its own cell if `exclusive`.
    """
    flip: Kernel = lambda t, a: t.flip(a)
    return lambda t: running_sum(t, axis, exclusive, reverse, torch.cumprod, flip, torch.cat, torch.ones_like)


def _sum(x: Shape, *, axes: Shape) -> Kernel:
    """Return the kernel of the sum over `axes`; all axes are not named, since then the gradient is one step."""
    if not axes:
        return lambda t: t
    return torch.sum if len(axes) == len(x) else lambda t: t.sum(axes)


def _gather(x: Shape, i: Shape, *, axis: int) -> Kernel:
    """Return the kernel of gather along `axis` by an index of any shape; negative positions count from the end."""
    shape, cells, line = (*x[:axis], *i, *x[axis + 1 :]), x[axis], len(i) == 1

    def compute(t: Tensor, index: Tensor) -> Tensor:
        if line and t.is_cpu and is_eager(t, index):
            try:
                return t.index_select(axis, index)
            except (IndexError, RuntimeError):
                pass  # positions from the end, or outside
        return t.index_select(axis, _from_axis_start(index, cells)).reshape(shape)

    often = _adds_many_halves(cells)
    return rounded_once(compute, lambda t, index: needs_grad(t) and often(t, index))


def _scatter(gy: Shape, i: Shape, *, axis: int, size: int) -> Kernel:
    """Return the kernel of scatter-add along `axis` at an index of shape i into `size` cells, the adjoint of gather."""
    lead, tail, line = gy[:axis], gy[axis + len(i) :], len(i) == 1
    shape = (*lead, size, *tail)

    def compute(g: Tensor, index: Tensor) -> Tensor:
        if line and g.is_cpu and g.numel() and is_eager(g, index):
            try:
                return g.new_zeros(shape).index_add_(axis, index, g)
            except (IndexError, RuntimeError):
                pass  # positions from the end, or outside
        at = _from_axis_start(index, size)
        return g.new_zeros(shape).index_add(axis, at, g.reshape((*lead, at.shape[0], *tail)))

    return rounded_once(compute, _adds_many_halves(size))


def _adds_many_halves(cells: int) -> Callable[[Tensor, Tensor], bool]:
    """Return a test whether index_add on a CPU would add many half-type numbers in one cell.

    Tables of rows (2 axes) are exempt: they may be large.
    """

    def often(t: Tensor, index: Tensor) -> bool:
        if t.ndim == 2 or not cells or index.numel() <= MAX_HALF_ADDENDS:
            return False
        known = t.is_cpu and is_eager(t, index)
        return not known or int(torch.bincount(index.reshape(-1) % cells).amax()) > MAX_HALF_ADDENDS

    return often


def _from_axis_start(index: Tensor, cells: int) -> Tensor:
    """Return the index, flattened, with positions counted from the start of an axis of `cells` cells."""
    flat = index.reshape(-1)
    return torch.where(flat < 0, flat + cells, flat)


def _normal_pdf(t: Tensor) -> Tensor:
    """Return the density of the standard normal distribution at each cell of t."""
    return torch.exp(-t * t / 2) / math.sqrt(2 * math.pi)


def _lower_named(op: Op) -> Any:
    """Return the lowering to PyTorch's own function; None without a name, or with parameters."""
    plain = op.names.torch and not op.param_names
    return for_any_shape(function_named(op.names.torch, torch=torch, F=F)) if plain else None


TABLE: dict[str, Any] = {
    **named_lowerings(_lower_named),
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
    "add": for_any_shape(lambda a, b: a + b),
    "sub": for_any_shape(lambda a, b: a - b),
    "mul": for_any_shape(lambda a, b: a * b),
    "div": for_any_shape(lambda a, b: a / b),
    "power": lambda x, *, exponent: lambda t: torch.pow(t, number(exponent)),
    "root": _power_with_finite_slope,
    "maximum": _binary_on_tensors(torch.maximum),
    "minimum": _binary_on_tensors(torch.minimum),
    # masks
    "greater": _comparison(lambda a, b: a > b),
    "greater_equal": _comparison(lambda a, b: a >= b),
    "less": _comparison(lambda a, b: a < b),
    "equal": _comparison(lambda a, b: a == b),
    "sign": for_any_shape(_sign),
    "quantize": _quantize,
    "cast": lambda x, *, dtype: lambda t: t,
    "fmod": _binary_on_tensors(torch.fmod),
    "select": _select,
    "stop_gradient": for_any_shape(torch.Tensor.detach),
    # activations
    "relu": for_any_shape(torch.relu),
    "leaky_relu": lambda x, *, slope: lambda t: F.leaky_relu(t, number(slope)),
    "clamp": _clamp,
    "softplus": _softplus,
    "normal_pdf": for_any_shape(_normal_pdf),
    # contraction and convolution
    "contract": lower_contract,
    "conv": lower_conv,
    "conv_transpose": lower_conv_transpose,
    "conv_weight": lower_conv_weight,
    # pooling
    "avg_pool": lower_avg_pool,
    "avg_spread": lower_avg_spread,
    "max_pool": lower_max_pool,
    "winner": lower_winner,
    "take": lower_take,
    "put": lower_put,
    "last_writer": lower_last_writer,
    "median_pool": lower_median_pool,
    "median_index": lower_median_index,
    "top": lower_top,
    "top_index": lower_top_index,
    "cumsum": _cumsum,
    "cumprod": _cumprod,
    "resize": lower_resize,
    "resize_spread": lower_resize_spread,
    "gather": _gather,
    "scatter": _scatter,
    "amax": lower_amax,
    "smooth_max_pool": lower_smooth_max_pool,
    "smooth_pull": lower_smooth_pull,
    "smooth_push": lower_smooth_push,
}


def _index_tensor(i: Array, x: Tensor) -> Tensor:
    """Return a NumPy index i as a tensor on the device of `x`."""
    return torch.from_numpy(i.astype("int64")).to(x.device)


ENGINE = Engine("torch", Tensor, TABLE, NOT_NUMBERS, _index_tensor, _lower_named)
OPEN_SIZES.add(torch.SymInt)
run = ENGINE.run
