"""Resizing on PyTorch: cells and weights of exact coordinates, one axis after the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...ops.resize import axes_resized
from ...window import Resized, Shape
from ..base import Plan


def _taps(t: Tensor, axis: int, line: Resized) -> list[tuple[Tensor, Tensor | None]]:
    """Per tap the cells that are read, and their weights along the axis; None for cells as they are."""
    cells = [torch.from_numpy(row.copy()).to(t.device) for row in line.cells]
    if line.how != "linear":
        return [(cells[0], None)]
    shape = (line.out, *(1,) * (t.ndim - axis - 1))
    weights = [torch.from_numpy(row.copy()).to(t.device, t.dtype).reshape(shape) for row in line.weights]
    return list(zip(cells, weights, strict=True))


def resize_line(x: Shape, **params: Any) -> Plan:
    lines = axes_resized([x[a] for a in params["axes"]], **params)

    def plan(t: Tensor) -> Tensor:
        for axis, line in lines:
            parts = [(t.index_select(axis, i), w) for i, w in _taps(t, axis, line)]
            products = [part if w is None else part * w for part, w in parts]
            t = products[0] if len(products) == 1 else products[0] + products[1]
        return t

    return plan


def resize_spread_line(gy: Shape, *, cells: Shape, **params: Any) -> Plan:
    lines = axes_resized(cells, **params)

    def plan(g: Tensor) -> Tensor:
        for axis, line in reversed(lines):
            y = g.new_zeros((*g.shape[:axis], line.n, *g.shape[axis + 1 :]))
            for i, w in _taps(g, axis, line):
                y = y.index_add(axis, i, g if w is None else g * w)
            g = y
        return g

    return plan
