"""Functions that PyTorch has under another name, or only for some arguments: called where they mean the same.

None, or the composition, where the general way must run: in tracers, for arguments that PyTorch's operator does not
take, where its result is not decided by the contract (equal cells, positions that come twice), and for errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops import compose, max_pool, whole
from ...window.resize import LARGEST_EXACT
from ..base import Plan
from .order import topk
from .rules import eager, formula

_trunc, _mod, _pad = formula(whole.trunc), formula(whole.mod), formula(compose.pad)
_amax, _amin, _max_unpool = (formula(f) for f in (max_pool.amax, max_pool.amin, max_pool.max_unpool))


def _numbers(x: Any) -> bool:
    """A plain tensor of floats, not empty, outside of tracers."""
    return isinstance(x, Tensor) and x.is_floating_point() and eager(x) and x.numel() > 0


def _at_hand(x: Any) -> bool:
    """One whose values may be looked at without waiting for a device."""
    return _numbers(x) and x.device.type == "cpu"


def _positions(i: Any) -> bool:
    return isinstance(i, Tensor) and i.dtype == torch.int64 and i.device.type == "cpu" and eager(i)


def _is_axis(axis: Any, x: Tensor) -> bool:
    return type(axis) is int and -x.ndim <= axis < x.ndim


# --- cells ---------------------------------------------------------------------------------------------------------


def trunc(x: Any) -> Tensor:
    return torch.trunc(x) if _numbers(x) else _trunc(x)


def mod(x: Any, y: Any) -> Tensor:
    """torch.remainder; for its derivative in y, floor(x/y), the composition asks fmod."""
    number = type(y) is float or (type(y) is int and abs(y) < 2**31)
    alike = isinstance(y, Tensor) and not y.requires_grad and isinstance(x, Tensor) and y.dtype == x.dtype
    if _numbers(x) and (number or alike):
        try:
            return torch.remainder(x, y)
        except RuntimeError:
            pass  # shapes that do not broadcast
    return _mod(x, y)


# --- along an axis -------------------------------------------------------------------------------------------------


def _axes(x: Any, axes: Any) -> tuple[int, ...] | None:
    """Axes as PyTorch's reductions take them, at least one, none named twice."""
    at = tuple(range(x.ndim)) if axes is None else (axes,) if type(axes) is int else tuple(axes)
    known = at and all(_is_axis(a, x) for a in at) and len({a % x.ndim for a in at}) == len(at)
    return at if known else None


def _reduced(native: Callable[..., Tensor], formula: Callable[..., Tensor]) -> Plan:
    def plan(x: Any, axes: Any = None, *, keepdims: bool = False, ties: str = "split") -> Tensor:
        if ties == "split" and _numbers(x) and type(axes) in (type(None), int, tuple, list):
            at = _axes(x, axes)
            if at is not None:
                return native(x, at, keepdim=bool(keepdims))
        return formula(x, axes, keepdims=keepdims, ties=ties)

    return plan


def take_along(x: Any, i: Any, *, axis: Any) -> Tensor | None:
    """torch.gather, which takes indices of fewer cells on other axes too."""
    if not _at_hand(x) or not _positions(i) or not _is_axis(axis, x) or i.ndim != x.ndim:
        return None
    if any(a != axis % x.ndim and n != m for a, (n, m) in enumerate(zip(x.shape, i.shape, strict=True))):
        return None
    try:
        return torch.gather(x, axis, i)
    except RuntimeError:
        return None


def roll(x: Any, shift: Any, *, axis: Any) -> Tensor | None:
    fits = _numbers(x) and type(shift) is int and _is_axis(axis, x) and shift % x.shape[axis]
    return torch.roll(x, shift, axis) if fits else None


# --- around and between cells --------------------------------------------------------------------------------------

MODES = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def pad(x: Any, widths: Any, *, value: Any = 0, mode: str = "constant") -> Tensor:
    flat = _native_widths(x, widths, mode) if mode in MODES and type(value) is int and not value else None
    return _pad(x, widths, value=value, mode=mode) if flat is None else F.pad(x, flat, MODES[mode])


def _native_widths(x: Any, widths: Any, mode: str) -> list[int] | None:
    """The pairs from the last axis backwards, if F.pad takes them: 1 to 3 axes after one or two, no second round."""
    if not _numbers(x) or not all(type(end) is int and end >= 0 for pair in widths for end in pair):
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
    """Whether PyTorch's floor(p * (1/factor)), in float32 and in float64, is floor(p / factor) for all of n*factor p.

    Powers of two have exact reciprocals; of the others, every position is tried.
    """
    if factor & (factor - 1) == 0:
        return n * factor < 2**24
    if n * factor > LARGEST_EXACT:
        return False
    p = np.arange(n * factor)
    types: list[Any] = [np.float32, np.float64]
    return all(np.array_equal(np.floor(p.astype(t) * (t(n) / t(n * factor))), p // factor) for t in types)


# --- back to windows -----------------------------------------------------------------------------------------------

WIDE = (torch.float32, torch.float64)
UNPOOL: dict[int, Plan] = {2: torch._C._nn.max_unpool2d, 3: torch._C._nn.max_unpool3d}


def max_unpool(
    x: Any, indices: Any, kernel: Any, *, stride: Any = None, padding: Any = 0, output: Any = None, rank: Any = None
) -> Tensor:
    y = _unpooled(x, indices, kernel, stride, padding, output, rank)
    if y is not None:
        return y
    return _max_unpool(x, indices, kernel, stride=stride, padding=padding, output=output, rank=rank)


def _unpooled(x: Any, i: Any, kernel: Any, stride: Any, padding: Any, output: Any, rank: Any) -> Tensor | None:
    """PyTorch's own, unless a position comes twice: which value stays is open there, and the other has a gradient."""
    if not _at_hand(x) or not _positions(i) or i.shape != x.shape:
        return None
    size = _unpooled_size(x, kernel, stride, padding, rank) if output is None else output
    if size is None or not all(type(n) is int and n > 0 for n in size) or not len(size) < x.ndim <= len(size) + 2:
        return None
    d = len(size)
    try:
        if d == 1:
            y = UNPOOL[2](x.unsqueeze(-1), i.unsqueeze(-1), (*size, 1)).squeeze(-1)
        elif d == 2:
            y = UNPOOL[2](x, i, size)
        else:
            y = UNPOOL[3](x, i, size, (1,) * d, (0,) * d)
    except RuntimeError:  # positions outside, and those of empty windows
        return None
    return y if _all_apart(y.detach(), i, d) else None


def _all_apart(y: Tensor, i: Tensor, rank: int) -> bool:
    """Whether no position of a plane comes twice: as many cells are written as there are positions.

    If no value is 0, signs tell it, and add up exactly; torch.count_nonzero takes ten times as long.
    """
    if y.dtype in WIDE and y.numel() < 2**24 and int(torch.sign(y).square_().sum()) == i.numel():
        return True
    marks = torch.zeros(y.shape, dtype=torch.uint8).flatten(-rank)
    marks.scatter_(-1, i.flatten(-rank), 1)
    return int(torch.count_nonzero(marks)) == i.numel()


def _unpooled_size(x: Tensor, kernel: Any, stride: Any, padding: Any, rank: Any) -> tuple[int, ...] | None:
    d = len(kernel) if type(kernel) is tuple else rank
    if type(d) is not int or d not in (1, 2, 3) or rank not in (None, d) or x.ndim < d:
        return None
    given = [(v,) * d if type(v) is int else v for v in (kernel, kernel if stride is None else stride, padding)]
    if not all(type(v) is tuple and len(v) == d and all(type(n) is int for n in v) for v in given):
        return None
    if min(*given[0], *given[1]) < 1 or min(given[2]) < 0:
        return None
    return tuple((n - 1) * s - 2 * p + k for n, k, s, p in zip(x.shape[x.ndim - d :], *given, strict=True))


NATIVES: dict[str, Plan] = {
    "trunc": trunc,
    "mod": mod,
    "amax": _reduced(torch.amax, _amax),
    "amin": _reduced(torch.amin, _amin),
    "topk": topk,
    "take_along": take_along,
    "roll": roll,
    "pad": pad,
    "max_unpool": max_unpool,
}
