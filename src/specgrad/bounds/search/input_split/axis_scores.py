"""Scores for the input to split: what half a box gains, from a bound's slopes and the layers that lose most of it.

Of a row's bound a.x + c over a box, half the box across input j has abs(a_j)*w_j/2 more, in one of its halves. That is
not all: where a cell c of a hidden layer lies between two lines, the bound loses abs(A_c)*g_c there, g_c being what is
between the lines at the middle of the cell's box, and that box is as wide as the inputs make it:

    gain_j = abs(a_j)*w_j/2 + sum over c of abs(A_c)*g_c*s_cj,   s_cj = abs(S_cj)*w_j / sum over k of abs(S_ck)*w_k,

S being the slopes of the lines that bound the cell. A line may be flat where the network is not: then the second part
decides, and no box is cut across one input again and again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from specgrad.bounds.linear.propagation.backward import ObjectiveParts, State
from specgrad.bounds.linear.relaxation.bound_layers import BoundUnary

from ..shared.float32_bounds import flat


@dataclass
class Losses:
    """What rows lose to relaxations of hidden cells on N boxes, attributed to the inputs that make those cells wide.

    low, high   ends of the boxes, (N, inputs)
    rows        how many rows are bounded
    is_kept     whether slopes are asked for: relus that are bounded together lose less than their cells say
    slopes      node -> slopes of its cells over the inputs, (N, cells, inputs); filled on the way
    """

    low: Tensor
    high: Tensor
    rows: int
    is_kept: bool = True
    slopes: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_input = self.low.new_zeros((len(self.low), self.rows, self.low.shape[1]))

    def enter(self, node: int, cells: int, some: Tensor, where: Tensor, slopes: Tensor | None) -> None:
        """Store slopes (boxes, 2 * some cells, *inputs) of both bounds of cells `where` (boxes, some cells) of
        a node.
        """
        if slopes is None or not self.is_kept:
            return
        shape = (len(self.low), cells, self.low.shape[1])
        known = self.slopes.setdefault(node, torch.zeros(shape))  # float32: nothing is proven by them
        lower, upper = flat(slopes, 2).abs().expand(len(some), -1, -1).chunk(2, 1)
        known[some[:, None], where] = (lower + upper).float()

    def lose(self, i: int, part: ObjectiveParts, state: State) -> None:
        """Add to `by_input` what the relaxation of node i costs each row.

        `part` are the coefficients of the node, `state` has its interval.
        """
        layer = state.layers[i]
        if not isinstance(layer, BoundUnary) or layer.sources[0] not in self.slopes:
            return
        low, high = state.intervals[layer.sources[0]]
        lines = state.relaxation(i)
        gap = (lines.upper_slope - lines.lower_slope) * (low / 2 + high / 2) + lines.upper - lines.lower
        width = self.slopes[layer.sources[0]] * (self.high - self.low)[:, None].float()
        share = (width / width.sum(2, keepdim=True)).nan_to_num(0.0, 0.0, 0.0).to(gap)
        lost = flat(part.total, 2).abs() * flat(gap.clamp(min=0))[:, None]
        self.by_input += lost @ share
