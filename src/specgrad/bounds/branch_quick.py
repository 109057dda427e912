"""Backward bounds in float32 and without rounding errors: to look for slopes and splits, never to prove anything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .backward import State
from .layers import Ends, Joint, Layer, Linear, Opaque, Relaxed, split
from .relax import Lines

LARGEST_MATRIX = 1 << 23  # cells of a linear layer that is kept as one matrix


@dataclass(frozen=True, eq=False)
class QuickLines:
    """Of relus: where they are open, the lower slope elsewhere, the upper line. Of other layers: their lines."""

    relus: Mapping[int, tuple[Tensor, Tensor, Tensor, Tensor]]
    others: Mapping[int, Lines]

    def settled(self, relus: Sequence[int], number: Tensor, cell: Tensor, sign: int) -> QuickLines:
        """The lines after cell[b] of relu number[b] has got a sign in box b."""
        found = dict(self.relus)
        slope = 1.0 if sign > 0 else 0.0
        for k, i in enumerate(relus):
            boxes = torch.nonzero(number == k)[:, 0]
            if len(boxes) and i in found:
                parts = [part.expand(len(number), *part.shape[1:]).clone() for part in found[i]]
                for part, value in zip(parts, (0.0, slope, slope, 0.0), strict=True):
                    part.view(len(number), -1)[boxes, cell[boxes]] = value
                found[i] = parts[0], parts[1], parts[2], parts[3]
        return QuickLines(found, self.others)


class Quick:
    """The layers of one box in float32. Objectives have one row per box: (boxes, *shape)."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.order = sorted(state.layers, reverse=True)
        self.linear = {i: _linear(layer) for i, layer in state.layers.items() if isinstance(layer, Linear)}
        self.inputs: dict[int, Ends] = {}
        for i, layer in state.layers.items():
            if isinstance(layer, Opaque):
                low, high = state.ends[i]
                self.inputs[i] = (low / 2 + high / 2).float().flatten(), (high / 2 - low / 2).float().flatten()

    def lines(self, split_ends: Mapping[int, Ends], relus: Mapping[int, int]) -> QuickLines:
        """The parts of all lines that slopes and multipliers do not change."""
        found: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}
        others: dict[int, Lines] = {}
        for i, layer in self.state.layers.items():
            if not isinstance(layer, Relaxed):
                continue
            source = layer.sources[0]
            low, high = split_ends.get(source, self.state.ends[source])
            lines = layer.lines((low, high))
            if i in relus and source in split_ends:
                open_ = ((low < 0) & (high > 0)).float()
                found[i] = (
                    open_,
                    lines.lower_slope.float() * (1 - open_),
                    lines.upper_slope.float(),
                    lines.upper.float(),
                )
            else:
                others[i] = Lines(*(t.float() for t in lines))
        return QuickLines(found, others)

    def lower(
        self,
        at: int,
        rows: Tensor,
        lines: QuickLines,
        slopes: Mapping[int, Tensor],
        pushed: Mapping[int, Tensor],
        seen: dict[int, Tensor] | None = None,
    ) -> Tensor:
        """An estimate per box; `seen` collects the coefficients of relus, maxima and inputs."""
        parts: dict[int, Tensor] = {z: -p for z, p in pushed.items()}
        parts[at] = rows.reshape(len(rows), *self.state.layers[at].node.shape)
        total = rows.new_zeros(len(rows))
        for i in self.order:
            if i not in parts:
                continue
            a = parts.pop(i)
            if seen is not None and i not in self.linear:
                seen[i] = a.detach()
            if i in self.inputs:
                middle, reach = self.inputs[i]
                total = total + a.flatten(1) @ middle - a.flatten(1).abs() @ reach
                continue
            pulled, constant = self._step(i, a, lines, slopes)
            total = total + constant
            for s, part in zip(self.state.layers[i].sources, pulled, strict=True):
                parts[s] = parts[s] + part if s in parts else part
        return total

    def _step(self, i: int, a: Tensor, lines: QuickLines, slopes: Mapping[int, Tensor]) -> tuple[list[Tensor], Any]:
        if i in self.linear:
            found: tuple[list[Tensor], Any] = self.linear[i](a)
            return found
        positive, negative = split(a)
        if i in lines.relus:
            open_, fixed, up, offset = lines.relus[i]
            down = torch.addcmul(fixed, open_, slopes[i])
            return [torch.addcmul(positive * down, negative, up)], (negative * offset).flatten(1).sum(1)
        layer = self.state.layers[i]
        if isinstance(layer, Joint):
            ends = [self.state.ends[s] for s in layer.sources]
            several, constant = layer.back(a.unsqueeze(1).double(), ends)
            return [part.squeeze(1).float() for part in several], constant.squeeze(1).float()
        assert isinstance(layer, Relaxed)
        pulled, constant = layer.back(a.unsqueeze(1), lines.others[i])
        return [pulled.squeeze(1)], constant.squeeze(1)


def _linear(layer: Linear) -> Any:
    """(boxes, *shape) -> objectives of the sources, and a constant per box."""
    constant = None if layer.constant is None else layer.constant.float().flatten()
    pull = _matrix(layer) or _mapped(layer)

    def back(a: Tensor) -> tuple[list[Tensor], Any]:
        return pull(a), 0.0 if constant is None else a.flatten(1) @ constant

    return back


def _mapped(layer: Layer) -> Any:
    assert isinstance(layer, Linear)
    args = [a.float() if isinstance(a, Tensor) and a.is_floating_point() else a for a in layer.args]
    single = Linear(layer.position, layer.node, layer.sources, args)
    return lambda a: list(torch.func.vmap(single.pull)(a))


def _matrix(layer: Linear) -> Any:
    """A contraction as one matrix product for all boxes: mapped over boxes it would read its weights for each."""
    cells = math.prod(layer.node.shape)
    shapes = [a for a in layer.args if isinstance(a, tuple)]
    if layer.node.op.name != "contract" or len(shapes) != 1 or cells * math.prod(shapes[0]) > LARGEST_MATRIX:
        return None
    unit = torch.eye(cells, dtype=torch.float64).reshape(1, cells, *layer.node.shape)
    matrix = layer.back(unit)[0].reshape(cells, -1).float()
    return lambda a: [(a.flatten(1) @ matrix).reshape(len(a), *shapes[0])]
