"""Our derivative rules as torch.autograd.Functions, and the float32 detour of half types."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specgrad.op import REGISTRY

from ..base import Kernel
from .modes import is_tracing, needs_grad

PLAIN_TENSORS = (Tensor, torch.nn.Parameter)
HALF_TYPES = (torch.bfloat16, torch.float16)


def unwrapped(f: Callable[..., Any]) -> Callable[..., Tensor]:
    """Return a composition f without its cache and dispatch: it never looks for a native operator of the engine."""
    plain: Callable[..., Tensor] = inspect.unwrap(f)
    return plain


def is_eager(*ts: Tensor) -> bool:
    """Return whether all of `ts` are plain tensors outside of tracers, so that our algorithms may run.

    Derivatives may be recorded. A tensor subclass (FakeTensor, one of another library) has no memory to read.
    """
    for t in ts:
        if type(t) not in PLAIN_TENSORS:
            return False
    return not is_tracing()


MAX_HALF_ADDENDS = 16  # numbers of a half type that PyTorch may add as they are: off by 15 roundings at most


def rounded_once(compute: Kernel, when: Callable[..., bool] = lambda *_: True) -> Kernel:
    """Return `compute` with half types computed in float32 and rounded at the end, where `when` holds.

    Cotangents then are added in float32 too: PyTorch's CPU kernels add those of bfloat16 in bfloat16, where 256 + 1 =
    256.
    """

    def run(*args: Any) -> Any:
        first = args[0]
        if first.dtype not in HALF_TYPES or not when(*args):
            return compute(*args)
        wide = [a.float() if isinstance(a, Tensor) and a.dtype in HALF_TYPES else a for a in args]
        return compute(*wide).to(first.dtype)

    return run


def packed(*vectors: Any) -> list[Any]:
    """Return the vectors in contiguous memory; None stays None.

    PyTorch's kernels for the gradient of batch_norm on rows and on channels_last, and for group_norm on channels_last,
    read a mean or a weight as if they did, whatever the strides: other cells, or what lies behind the tensor's memory.
    """
    return [v if v is None else v.contiguous() for v in vectors]


def flatten_spatial(x: Tensor, *others: Tensor) -> list[Tensor]:
    """Return x and others of its shape, flattened if an axis of size 1 makes their memory layout ambiguous.

    The stride of such an axis may be any: PyTorch's gradient of batch_norm then takes one of x and gy for contiguous
    and the other for channels_last, and pairs cells that do not belong together. Rows, where x lies in memory as such,
    and (N, C, cells) have one layout each.
    """
    if x.ndim <= 3 or 1 not in x.shape:
        return [x, *others]
    if not x.is_contiguous() and x.movedim(1, -1).is_contiguous():
        return [t.movedim(1, -1).flatten(0, -2) for t in (x, *others)]
    return [t.flatten(2) for t in (x, *others)]


def unflatten_spatial(lines: Tensor, shape: torch.Size) -> Tensor:
    """Return `lines`, a result of `flatten_spatial`, in the image shape again."""
    if lines.shape == shape:
        return lines
    if lines.ndim == 2:
        return lines.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
    return lines.reshape(shape)


class _OperatorRules(torch.autograd.Function):
    """autograd.Function of an operator: values by `compute`, derivatives by the rules of its record."""

    @staticmethod
    def forward(ctx: Any, name: str, params: Any, compute: Kernel, *args: Any) -> Any:
        """Return the result of the operator `name` by `compute`, and save in `ctx` what its own derivative rules
        read.
        """
        y = compute(*args)
        ctx.name, ctx.params = name, params
        if REGISTRY[name].linear != "all":  # the rules of a linear map read no values
            ctx.save_for_backward(y, *args)
            ctx.save_for_forward(y, *args)
        return y

    @staticmethod
    def backward(ctx: Any, gy: Any) -> Any:
        """Return the cotangents of the arguments saved in `ctx` by the operator's rule; None for the three settings."""
        y, *args = ctx.saved_tensors or (None, None)
        return (None, None, None, *REGISTRY[ctx.name].cotangents(gy, y, args, ctx.params))

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, ___: Any, *dargs: Any) -> Any:
        """Return the tangent of the result from `dargs`, those of the arguments saved in `ctx`, by the operator's
        rule.
        """
        y, *args = ctx.saved_tensors or (None, None)
        return REGISTRY[ctx.name].tangent(y, args, dargs, ctx.params)


_with_operator_rules: Kernel = _OperatorRules.apply


def ours(name: str, params: dict[str, Any], fast: Kernel, traceable: Kernel) -> Kernel:
    """Return a kernel of the operator `name`: `fast` on eager CPU tensors, with our derivative rules if needed; else
    `traceable`.
    """

    def compute(*args: Tensor) -> Any:
        if not is_eager(args[0]) or args[0].device.type != "cpu":
            return traceable(*args)
        if needs_grad(*args):
            return _with_operator_rules(name, params, fast, *args)
        return fast(*args)

    return compute


INTEGERS = frozenset(
    {torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64}
    | {torch.int8, torch.int16, torch.int32, torch.int64}
)
NOT_NUMBERS = INTEGERS | {torch.complex32, torch.complex64, torch.complex128}
