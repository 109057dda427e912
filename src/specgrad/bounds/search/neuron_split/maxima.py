"""Maxima as a search sees them: which cells windows read, which of them may still win, and multipliers of winners.

The winner of a window is the first of its largest taps (specgrad.proof.base.split_tree), so a window keeps it when
others are left out, and its value is the largest of those that are left. Where one tap t is left, x_t >= x_j for
every tap j, and

    min C.y  >=  min (C.y - sum_j b_j * (x_t - x_j))        for any b >= 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specgrad.bounds.linear.propagation.backward import State
from specgrad.bounds.linear.relaxation.bound_layers import BoundLayer, BoundMaxPool, BoundReduceMax, Interval
from specgrad.bounds.linear.relaxation.multi_input import BoundMaximum

from ..shared.float32_bounds import flat

MULTIPLIER_BITS = 24  # of multipliers, below the largest: sums of many of them are exact in float64


@dataclass(frozen=True, eq=False)
class Maximum:
    """One node that is the largest of several cells; a minimum is negated.

    reads    per tap, or one for all taps: the node that has its cells in a layer's lines, or a constant (1, cells)
    operands the same nodes as the graph has them: a relu that is part of a max_pool's lines is one of them
    index    (taps, windows): the cell of that node, flat; 0 where there is none
    cells    of a node that is read
    inside   (taps, windows): whether there is one
    sign     -1 for a minimum
    floor    0 where a relu is part of it, else -inf: the least value of the maximum, whichever cell wins
    """

    layer: BoundLayer
    reads: tuple[int | Tensor, ...]
    operands: tuple[int | Tensor, ...]
    index: Tensor
    cells: int
    inside: Tensor
    sign: int = 1
    floor: float = -math.inf

    @property
    def taps(self) -> int:
        """Return the number of taps of a window."""
        return len(self.index)

    def ends(self, ends: Mapping[int, Interval]) -> Interval:
        """(lower, upper) of every tap, each (boxes, taps, windows), from the `ends` of nodes; of -x for a minimum."""
        low, high = (
            self._gather_taps([r if isinstance(r, Tensor) else ends[r][k] for r in self.reads]) for k in (0, 1)
        )
        return (low, high) if self.sign > 0 else (-high, -low)

    def _gather_taps(self, values: Sequence[Tensor]) -> Tensor:
        """Return the values of the nodes that are read, by tap: (boxes, taps, windows)."""
        if len(values) == 1:
            return flat(values[0])[:, self.index]
        boxes = max(len(v) for v in values)
        return torch.stack([flat(v).expand(boxes, -1) for v in values], 1)

    def alone(self, left: Tensor) -> Tensor:
        """Bool (boxes, taps, windows): the winner of windows of which one tap out of several is left."""
        decided = (left.sum(1, keepdim=True) == 1) & (self.inside.sum(0) > 1)
        return left & decided

    def multiplier_objectives(self, left: Tensor, b: Tensor) -> tuple[dict[int, Tensor], Tensor, Tensor]:
        """-sum b*(x_t - x_j) as objectives of the operands (boxes, cells), a constant per box, and the sum of its
        terms' sizes.

        `left` (boxes, taps, windows) marks taps that may win, b the multipliers; j is the only tap left, and a window
        with more adds nothing.
        """
        winner = self.alone(left)
        others = b * (winner.any(1, keepdim=True) & self.inside & ~winner).to(b)
        each = self.sign * (others - winner.to(b) * others.sum(1, keepdim=True))
        constant, size, seeds = b.new_zeros(len(b)), b.new_zeros(len(b)), dict[int, Tensor]()
        for k, operand in enumerate(self.operands):
            mine = each if len(self.operands) == 1 else each[:, k : k + 1]
            if isinstance(operand, Tensor):
                terms = mine[:, 0] * operand.to(b)
                constant, size = constant + terms.sum(1), size + terms.abs().sum(1)
                continue
            index = self.index if len(self.operands) == 1 else self.index[k : k + 1]
            seed = b.new_zeros(len(b), self.cells).index_add(1, index.flatten(), mine.flatten(1))
            seeds[operand] = seeds[operand] + seed if operand in seeds else seed
        return seeds, constant, size

    def room(self, low: Tensor, high: Tensor, left: Tensor) -> Tensor:
        """(boxes, windows): overlap of the tap with the largest lower bound with the others; 0 where one surely wins.

        low, high and `left`, which marks taps that may win, are (boxes, taps, windows).
        """
        lows, highs = (torch.where(left, end, -torch.inf) for end in (low, high))
        least, at = lows.max(1, keepdim=True)
        others_low, others_high = (end.scatter(1, at, -torch.inf).amax(1) for end in (lows, highs))
        room = torch.minimum(others_high - least[:, 0].clamp(min=self.floor), highs.gather(1, at)[:, 0] - others_low)
        return torch.where(left.sum(1) > 1, room.clamp(min=0), 0.0)

    def shaped(self, left: Tensor) -> Tensor:
        """Return an array `left` of (boxes, taps, windows) reshaped to the layout of layers, (taps, boxes, *shape of
        the maximum).
        """
        return left.movedim(1, 0).reshape(self.taps, len(left), *self.layer.node.shape)


def quantised(pulls: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """Return multipliers `pulls`, by node, rounded to nonnegative integer multiples of one power of two, so that sums
    are exact in float64.
    """
    known = {i: b.double().nan_to_num(0.0, 0.0, 0.0).clamp(min=0) for i, b in pulls.items()}
    most = max((float(b.max()) for b in known.values() if b.numel()), default=0.0)
    unit = 2.0 ** (math.frexp(most)[1] - MULTIPLIER_BITS)
    return {i: (b / unit).round() * unit for i, b in known.items()}


def maxima(state: State) -> dict[int, Maximum]:
    """Return every maximum with a window that more than one tap may win by the state's intervals, by position."""
    every = {i: _as_maximum(layer) for i, layer in state.layers.items()}
    known = {i: m for i, m in every.items() if m is not None and m.index.numel()}
    return {i: m for i, m in known.items() if bool((m.room(*m.ends(state.intervals), m.inside[None]) > 0).any())}


def _as_maximum(layer: BoundLayer) -> Maximum | None:
    """Return the layer as a Maximum; None if it is none, or has constants that float64 does not hold."""
    if isinstance(layer, BoundMaximum):
        cells = math.prod(layer.node.shape)
        rest = iter(layer.sources)
        reads = tuple(next(rest) if isinstance(a, tuple) else _constant_tensor(a, layer) for a in layer.args)
        if any(r is None for r in reads) or any(isinstance(a, tuple) and a != layer.node.shape for a in layer.args):
            return None
        known = tuple(r for r in reads if r is not None)
        index = torch.arange(cells).repeat(len(reads), 1)
        return Maximum(layer, known, known, index, cells, torch.ones_like(index) > 0, layer.sign)
    if not isinstance(layer, BoundMaxPool | BoundReduceMax) or layer.node.op.name == "smooth_max_pool":
        return None
    shape = layer.shape if isinstance(layer, BoundReduceMax) else (*_leading_axes(layer), *layer.window.size)
    cells = math.prod(shape)
    index = layer.read(torch.arange(cells, dtype=torch.float64).reshape(1, *shape))  # whole numbers, exact
    inside = layer.inside(index) if isinstance(layer, BoundMaxPool) else torch.ones_like(index) > 0
    both = [t.reshape(len(t), -1) for t in (index.long(), inside)]
    (operand,) = layer.node.operands()
    floor = 0.0 if isinstance(layer, BoundMaxPool) and layer.with_zero else -math.inf
    return Maximum(layer, layer.sources, (operand,), both[0], cells, both[1], floor=floor)


def _leading_axes(layer: BoundMaxPool) -> tuple[int, ...]:
    """Return the leading axes of the layer's node, before those of its window."""
    return tuple(layer.node.shape[: len(layer.node.shape) - layer.window.rank])


def _constant_tensor(a: object, layer: BoundLayer) -> Tensor | None:
    """Return a constant argument `a` of the layer, broadcast, as float64 (1, cells); None if float64 does not hold
    it.
    """
    value = a.double() if isinstance(a, Tensor) else torch.tensor(float(a), dtype=torch.float64)  # type: ignore[arg-type]
    if not isinstance(a, Tensor) and float(value) != a:
        return None
    return value.expand(layer.node.shape).reshape(1, -1)
