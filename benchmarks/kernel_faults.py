"""Faults planted in results of kernels, each beside the cells in which it differs from the right result.

Most are made from the right result, in place where they are local, so that no further copy is held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

import torch
import torch.nn.functional as F
from torch import Tensor

from kernel_operations import Conv, Operation

TILE = 64
CHUNK = 2**24  # cells that are compared at once
TERMS = 32  # summed in float32 before the sum is rounded to bfloat16
GAIN = 1 + 2.0**-12
TRANSPOSED = {16: (0, 0), 17: (-1, -1), 18: (0, -1)}  # axes that are summed, of both factors; else the inner ones


@dataclass(frozen=True)
class Planted:
    """A wrong result.

    name     of the fault
    wrong    the whole result
    cells    of it those that may differ; right: what belongs there
    """

    name: str
    wrong: Tensor
    cells: Tensor
    right: Tensor


def close(got: Tensor, right: Tensor, rtol: float, atol: float) -> bool:
    """Return whether all of `got` is within atol + rtol * |right|, as torch.allclose says, chunk by chunk."""
    if got.ndim == 0 or got.numel() <= CHUNK:
        a, b = got.double(), right.double()
        return bool(((a - b).abs() <= atol + rtol * b.abs()).logical_or(a == b).all())
    if got.shape[0] == 1:
        return close(got[0], right[0], rtol, atol)
    step = max(1, CHUNK * got.shape[0] // got.numel())
    return all(close(got[i : i + step], right[i : i + step], rtol, atol) for i in range(0, got.shape[0], step))


# --- from the right result --------------------------------------------------------------------------------------------


def _lines(y: Tensor) -> Tensor:
    """Return the result with its last axis of several cells at the end: a view."""
    return y.movedim(max(k for k, n in enumerate(y.shape) if n > 1), -1)


def _in_place(name: str, y: Tensor, cells: Tensor, wrong: Tensor) -> Iterator[Planted]:
    right, wrong = cells.clone(), wrong.clone()
    cells.copy_(wrong)
    yield Planted(name, y, cells, right)
    cells.copy_(right)


def _tile_cells(lines: Tensor, start: int) -> Tensor:
    """Return the tile that starts there on the last axis, and is the last along the axis before."""
    cells = lines[..., start : start + TILE]
    if cells.ndim < 2:
        return cells
    return cells[..., (cells.shape[-2] - 1) // TILE * TILE :, :]


def _drawn_tile(y: Tensor, lines: Tensor, random: torch.Generator) -> Iterator[Planted]:
    """Yield one tile, somewhere, that holds the numbers of the tile before it."""
    pick = lambda n: int(torch.randint(0, n, (), generator=random))
    tile = lines
    while tile.ndim > 2:
        tile = tile[pick(tile.shape[0])]
    if tile.ndim == 2:
        tile = tile[(row := pick(-(-tile.shape[0] // TILE)) * TILE) : row + TILE]
    column = (1 + pick(tile.shape[-1] // TILE - 1)) * TILE
    cells = tile[..., column : column + TILE]
    yield from _in_place("one stale tile", y, cells, tile[..., column - TILE : column])


def local_faults(y: Tensor, random: torch.Generator) -> Iterator[Planted]:
    """Yield results that are wrong in their last tile, at their edge, or in one tile."""
    if y.numel() < 2:
        return
    lines = _lines(y)
    n = lines.shape[-1]
    start = (n - 1) // TILE * TILE
    first = max(start, 1)
    yield from _in_place("off by one in the last tile", y, lines[..., first:], lines[..., first - 1 : -1])
    if start:
        cells = _tile_cells(lines, start)
        before = _tile_cells(lines, start - TILE)[..., : cells.shape[-1]]
        yield from _in_place("stale last tile", y, cells, before)
    if start > TILE:
        yield from _drawn_tile(y, lines, random)
    yield from _in_place("mask one cell short", y, lines[..., -1:], torch.zeros_like(lines[..., -1:]))


def whole_faults(y: Tensor) -> Iterator[Planted]:
    """Yield results that are wrong everywhere: zeros, axes that are swapped, a gain."""
    zeros = torch.zeros((), dtype=y.dtype).expand(y.shape)
    yield Planted("zeros", zeros, zeros, y)
    pairs = [(i, j) for j in range(y.ndim) for i in range(j) if y.shape[i] == y.shape[j] > 1]
    if pairs:
        turned = y.transpose(*pairs[-1])
        yield Planted("axes swapped", turned, turned, y)
    if y.is_floating_point():
        gain = y * GAIN
        yield Planted("gain of 1 + 2^-12", gain, gain, y)


# --- from the inputs --------------------------------------------------------------------------------------------------


def _last_term(op: Operation, given: list[Tensor], y: Tensor) -> Tensor | None:
    """Return the result without its last term, tap or row of terms; None where there is no sum."""
    makers: dict[str, Callable[[Operation, list[Tensor], Tensor], Tensor | None]] = {
        "product": _without_last_product, "norm": _without_last_square, "pool": _without_last_taps,
        "reduction": _without_last_row, "conv": _without_last_tap, "scan": _without_last_step,
        "loss": _without_last_row,
    }  # fmt: skip
    make = makers.get(op.family)
    return None if make is None else make(op, given, y)


def _without_last_product(op: Operation, given: list[Tensor], y: Tensor) -> Tensor | None:
    if op.name == "attention":
        q, k, v = given
        return op.function(q, k[..., :-1, :], v[..., :-1, :])
    if len(given) < 2 or op.name == "diagonal matrix":
        return None
    a, b = (t.narrow(axis, t.shape[axis] - 1, 1) for t, axis in zip(given, _summed(op), strict=True))
    return y - op.function(a, b)


def _summed(op: Operation) -> tuple[int, int]:
    return TRANSPOSED.get(op.number, (-1, -2))


def _without_last_tap(op: Operation, given: list[Tensor], y: Tensor) -> Tensor | None:
    x, w, *others = given
    taps = op.taps
    assert taps is not None
    last = torch.zeros_like(w)
    edge = (slice(None), slice(None), *([-1] * (w.ndim - 2)))
    last[edge] = w[edge]
    if len(others) and op.name.startswith("separable"):
        return op.function(x, w - last, *others)
    f = taps.function()
    if taps.groups == 1:
        c = x.shape[1] - 1
        return y - f(x[:, c:], last[c:] if taps.transposed else last[:, c:])
    return y - f(x, last)


def _without_last_taps(op: Operation, given: list[Tensor], y: Tensor) -> Tensor:
    """Return a pool whose windows lack their last tap along the last axis."""
    (x,), (kernel, stride, padding, apart) = given, POOLS[op.number]
    n, mean = x.ndim - 2, op.name.startswith("mean")
    x = F.pad(x, (padding,) * (2 * n), value=0.0 if mean else -math.inf)
    less = (*(kernel,) * (n - 1), kernel - 1)
    if mean:
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1](x, less, stride) * ((kernel - 1) / kernel)
    else:
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1](x, less, stride, 0, apart)
    return pool[tuple(slice(0, k) for k in y.shape)]


POOLS = {41: (8, 1, 4, 3), 42: (4, 1, 1, 1), 43: (3, 2, 1, 3), 44: (8, 1, 4, 1), 45: (11, 11, 0, 1), 46: (3, 2, 1, 1)}


def _without_last_row(op: Operation, given: list[Tensor], y: Tensor) -> Tensor:
    """Return a reduction without the last numbers that it adds up, divided as before."""
    if op.family == "reduction":
        n = given[0].shape[1]
        less = op.function(given[0][:, :-1])
        return less * ((n - 1) / n) if op.name == "mean" else less
    rows = given[0].shape[0]
    less = op.function(*(t[:-1] if d.batch == 0 else t for t, d in zip(given, op.inputs, strict=True)))
    return less * ((rows - 1) / rows)


def _without_last_step(op: Operation, given: list[Tensor], y: Tensor) -> Tensor:
    """Return a scan in which each cell lacks the number that it adds last."""
    empty = torch.ones_like(y[:, :1]) if op.name == "cumprod" else torch.zeros_like(y[:, :1])
    return torch.cat((y[:, 1:], empty) if op.name.endswith("reversed") else (empty, y[:, :-1]), 1)


# --- normalisations: from z, what their result is before factors and summands -----------------------------------------


@dataclass(frozen=True)
class Groups:
    """A normalisation's result as groups of one statistic.

    z      the result before factors and summands, [..., cells of a group]
    back   makes the result of z
    """

    z: Tensor
    back: Callable[[Tensor], Tensor]


def _groups(op: Operation, given: list[Tensor], y: Tensor) -> Groups:
    if op.name == "Frobenius norm":
        return Groups(y.flatten(), lambda z: z.view(y.shape))
    if op.name == "rms norm":
        return Groups(y.movedim(1, -1), lambda z: z.movedim(-1, 1))
    if op.name == "instance norm":
        return Groups(y.flatten(2), lambda z: z.view(y.shape))
    if op.family != "norm" or len(given) == 1:
        return Groups(y, lambda z: z)
    _, g, b = given
    g, b = (g, b) if op.name == "layer norm" else (t[:, None, None] for t in (g, b))
    z = (y - b) / g
    if op.name == "batch norm":
        moved = z.movedim(1, 0)
        return Groups(moved.flatten(1), lambda v: v.view(moved.shape).movedim(0, 1) * g + b)
    flat = z.flatten(1) if op.name == "layer norm" else z.view(z.shape[0], 8, -1)
    return Groups(flat, lambda v: v.view(y.shape) * g + b)


def _with_sum(op: Operation, groups: Groups, added: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a normalisation whose sums of terms `added` makes, instead of what they are."""
    z, n = groups.z, groups.z.shape[-1]
    if op.name == "softmax":
        return groups.back(z / added(z))
    if op.name == "log_softmax":
        return groups.back(z - torch.log(added(z.exp())))
    if op.name == "l1 norm":
        return groups.back(z / (added(z.abs()) / n))
    count = 1 if op.name in ("l2 norm", "Frobenius norm") else n
    return groups.back(z / torch.sqrt(added(z * z) / count))


def _without_last_square(op: Operation, given: list[Tensor], y: Tensor) -> Tensor:
    groups = _groups(op, given, y)
    whole = 1.0 if op.name in ("softmax", "log_softmax", "l2 norm", "Frobenius norm") else groups.z.shape[-1]
    return _with_sum(op, groups, lambda terms: whole - terms[..., -1:])


# --- sums in bfloat16 -------------------------------------------------------------------------------------------------


def _short(t: Tensor) -> Tensor:
    return t.bfloat16().float()


def _short_sum(terms: Tensor, axis: int = -1) -> Tensor:
    """Return sums along an axis, rounded to bfloat16 after every so many terms, at most 1,024 times."""
    n = terms.shape[axis]
    step = max(TERMS, n // 1024)
    total = torch.zeros_like(terms.narrow(axis, 0, 1), dtype=torch.float32)
    for start in range(0, n, step):
        total = _short(
            total + terms.narrow(axis, start, min(step, n - start)).sum(axis, keepdim=True, dtype=torch.float32)
        )
    return total


def _short_sums(op: Operation, given: list[Tensor], y: Tensor) -> Tensor | None:
    """Return the result with sums that are rounded to bfloat16; None where there are none."""
    if op.family == "norm":
        return _with_sum(op, _groups(op, given, y), _short_sum)
    if op.family == "product" and len(given) == 2 and op.name != "diagonal matrix":
        return _short_products(op, given, y)
    if op.name in ("sum", "mean"):
        total = _short_sum(given[0], 1) / (given[0].shape[1] if op.name == "mean" else 1)
        return total.view(y.shape)
    if op.family == "conv" and not op.name.startswith("separable"):
        return _short_taps(op, given, y)
    return None


def _short_products(op: Operation, given: list[Tensor], y: Tensor) -> Tensor:
    (a, b), (i, j) = given, _summed(op)
    n, total = a.shape[i], torch.zeros(y.shape)
    step = max(TERMS, n // 32)
    for start in range(0, n, step):
        count = min(step, n - start)
        total = _short(total.add_(op.function(a.narrow(i, start, count), b.narrow(j, start, count))))
    return total


def _short_taps(op: Operation, given: list[Tensor], y: Tensor) -> Tensor:
    """Return a convolution whose sums over taps are rounded, in the first item of the batch alone."""
    x, w, *bias = given
    assert op.taps is not None
    total = torch.zeros((1, *y.shape[1:]))
    for tap in product(*map(range, op.taps.kernel)):
        total = _short(total.add_(_of_one_tap(op.taps, x[:1], w, tap, y.shape[2:])))
    for b in bias:
        total = _short(total + b.view(-1, *[1] * (y.ndim - 2)))
    answer = y.clone()
    answer[:1] = total
    return answer


def _of_one_tap(taps: Conv, x: Tensor, w: Tensor, tap: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Return what one tap adds to a convolution of these output sizes: a convolution with a single tap."""
    alone = w[(..., *(slice(t, t + 1) for t in tap))].contiguous()
    one = replace(taps, stride=1, padding=0, dilation=1, extra=0).function()
    ways = (taps.stride, taps.padding, taps.dilation)
    stride, padding, apart = ([k] * len(tap) if isinstance(k, int) else k for k in ways)
    first = [t * d for t, d in zip(tap, apart, strict=True)]
    reads = x.shape[2:] if taps.transposed else sizes
    places = (..., *(slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(first, reads, stride, strict=True)))
    if not taps.transposed:
        return one(F.pad(x, [p for p in reversed(padding) for _ in range(2)])[places], alone)
    total = torch.zeros((1, taps.cout, *(n + 2 * p for n, p in zip(sizes, padding, strict=True))))
    total[places] = one(x, alone)
    return total[(..., *(slice(p, p + n) for n, p in zip(sizes, padding, strict=True)))]


def faults(
    op: Operation, given: list[Tensor], y: Tensor, seed: int, names: Collection[str] | None = None
) -> Iterator[Planted]:
    """Yield the faults that this operation can have, or those of these names, planted into its result y.

    y is changed while a fault that is local is looked at, and right again afterwards.
    """
    for fault in chain(local_faults(y, torch.Generator().manual_seed(seed)), whole_faults(y)):
        if names is None or fault.name in names:
            yield fault
    for name, make in (("last term dropped", _last_term), ("sums in bfloat16", _short_sums)):
        wrong = make(op, given, y) if names is None or name in names else None
        if wrong is not None:
            wrong = wrong.to(y.dtype)
            yield Planted(name, wrong, wrong, y)
        del wrong
