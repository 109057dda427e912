"""Resizing on PyTorch: cells and weights of exact coordinates, one axis after the other."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops.resize import Axes, axes_resized, max_readers
from ...window import Resized, Shape
from ..base import Kernel
from .autograd_rules import HALF_TYPES, MAX_HALF_ADDENDS, is_eager, rounded_once
from .modes import needs_grad

LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def _resized_taps(t: Tensor, axis: int, line: Resized) -> list[tuple[Tensor, Tensor | None]]:
    """Return, for each tap of the resized axis `line`, the cells read of t along `axis` and their weights, None for
    nearest cells.
    """
    cells = [torch.from_numpy(row.copy()).to(t.device) for row in line.cells]
    if line.how != "linear":
        return [(cells[0], None)]
    shape = (line.out, *(1,) * (t.ndim - axis - 1))
    weights = [torch.from_numpy(row.copy()).to(t.device, t.dtype).reshape(shape) for row in line.weights]
    return list(zip(cells, weights, strict=True))


def lower_resize(x: Shape, **params: Any) -> Kernel:
    """Return the kernel of resize: F.interpolate where it is exact, else gathers and weights, axis by axis."""
    lines = axes_resized([x[a] for a in params["axes"]], **params)
    axes, native = [a for a, _ in lines], _exact_interpolate(x, lines)

    def general(t: Tensor) -> Tensor:
        for axis, line in lines:
            parts = [(t.index_select(axis, i), w) for i, w in _resized_taps(t, axis, line)]
            products = [part if w is None else part * w for part, w in parts]
            t = products[0] if len(products) == 1 else products[0] + products[1]
        return t

    def compute(t: Tensor) -> Tensor:
        if native is None or not t.numel() or not t.is_cpu or not is_eager(t):
            return general(t)
        if t.dtype in HALF_TYPES and torch.is_autocast_enabled("cpu"):  # it would give float32
            return general(t)
        return native(t) if _finite_at_the_ends(t.detach() if t.requires_grad else t, axes) else general(t)

    if native is None:
        return rounded_once(general)
    many = math.prod(max_readers(line) for _, line in lines) > MAX_HALF_ADDENDS
    return rounded_once(compute, lambda t: (many and needs_grad(t)) or not is_eager(t))


MAX_CELLS_SUMMED = 1 << 12  # which are summed sooner than their ends are found


def _finite_at_the_ends(t: Tensor, axes: list[int]) -> bool:
    """Return whether the last cells of t along each axis (all cells, if few) have a finite sum.

    A sum that overflows says no, which is slower and right.
    """
    if t.numel() <= MAX_CELLS_SUMMED:
        return math.isfinite(t.sum().item())
    return all(math.isfinite(t.select(a, -1).sum().item()) for a in axes)


def _exact_interpolate(x: Shape, lines: Axes) -> Kernel | None:
    """Return F.interpolate of the resized axes `lines` if its coordinates are exact in floats (scales that are powers
    of two); else None.

    Half types are summed in float32 there, and rounded once. The caller checks that the last cell is finite: beyond it
    our weight of 0 makes NaN of an infinity, where PyTorch's kernel reads the cell twice, with weights that are not 0.
    """
    rank = len(x) - 2
    axes, kinds = [a for a, _ in lines], {(line.where, line.how) for _, line in lines}
    if rank not in LINEAR or axes != [*range(2, len(x))] or kinds != {("half_pixel", "linear")}:
        return None
    if not all(line.step * line.out == line.n and line.floats_are_exact for _, line in lines):
        return None
    sizes, mode = tuple(line.out for _, line in lines), LINEAR[rank]
    return lambda t: F.interpolate(t, sizes, mode=mode)


def lower_resize_spread(gy: Shape, *, cells: Shape, **params: Any) -> Kernel:
    """Return the kernel of the adjoint of resize for inputs of `cells` cells: index_add, axis by axis."""
    lines = axes_resized(cells, **params)

    def compute(g: Tensor) -> Tensor:
        for axis, line in reversed(lines):
            y = g.new_zeros((*g.shape[:axis], line.n, *g.shape[axis + 1 :]))
            for i, w in _resized_taps(g, axis, line):
                y = y.index_add(axis, i, g if w is None else g * w)
            g = y
        return g

    return rounded_once(compute)
