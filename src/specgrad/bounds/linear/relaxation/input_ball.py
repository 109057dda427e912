"""An input that lies in a ball and in a box at once.

For an objective A split into A = A1 + A2 in any way, of an input x within `radius` of the centre c and between ends,

    A.x >= A1.c - radius*dual(A1) + A2.middle - abs(A2).half the width          dual: of "2" itself, of "1" the largest

and A.x is at most the same with + in place of -. A1 = A is the ball alone, A1 = 0 the box alone. The best split has
for "2" A1 = (c - x)/t, where x is c - t*A moved into the box, t such that x lies on the sphere; for "1" A1 = A cut off
at plus and minus the size above which the box allows to move as far as the ball does. Every split holds, so they need
not be exact; what our own sums may lose is charged: n terms lose less than n*2**-53 of their sizes' sum, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specgrad.graph.graph import Node
from specgrad.rounding import slack_constants

from .bound_layers import BackwardBound, BoundContext, BoundOpaque

SPHERE_ITERATIONS = 6  # of the search for t


@dataclass(frozen=True, eq=False)
class InputBall:
    """A norm ball that the input lies in: its norm ("1" or "2"), `center` (flat, float64) and radius, rounding
    included.
    """

    norm: str
    center: Tensor
    radius: float


class BoundInputBall(BoundOpaque):
    """Bound layer of an input that lies in a ball and in a box.

    The input is the `node` at `position` of the graph.
    """

    cellwise = False

    def __init__(self, position: int, node: Node, ball: InputBall) -> None:
        super().__init__(position, node, ())
        self.ball = ball

    def bound_backward(self, a: Tensor, context: BoundContext) -> BackwardBound:
        """Return the bound of a.x for coefficients `a` (boxes, rows, *shape) over ball and box: the best of box alone,
        ball alone and a split of `a` between both.
        """
        low, high = (end.flatten(1).unsqueeze(1) for end in context.interval(self.position))
        rows = a.flatten(2)
        splits = [torch.zeros_like(rows), rows, self._ball_share(rows, low, high)]
        best = [self._split_bound(rows, first, low, high) for first in splits]
        constant, lost = best[0]
        for other, less in best[1:]:
            better = other - less > constant - lost
            if getattr(context, "parallel", False):  # the upper end is asked for too
                better &= less <= lost
            constant, lost = torch.where(better, other, constant), torch.where(better, less, lost)
        return BackwardBound([], constant, lost)

    def _split_bound(self, rows: Tensor, first: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Return (constant, lost), each (boxes, rows), of the split rows = first + second: `first` bounded by the ball,
        the rest by the box low..high; all our roundings are in `lost`.
        """
        second = rows - first
        middle, reach = low / 2 + high / 2, (high / 2 - low / 2) * slack_constants.MIDDLE
        own = (4 * rows.shape[-1] + slack_constants.OWN) * slack_constants.U
        center, size = self.ball.center, torch.maximum(low.abs(), high.abs())
        lost = (self.ball.radius * self._dual_norm(first) + (second.abs() * reach).sum(-1)) * (1 + own)
        sizes = (first.abs() * center.abs()).sum(-1) + ((second.abs() + rows.abs()) * size).sum(-1)
        return (first * center).sum(-1) + (second * middle).sum(-1), lost + own * sizes

    def _dual_norm(self, a: Tensor) -> Tensor:
        """Dual norm of every row of a, (boxes, rows): the 2-norm for "2", the largest absolute value for "1"."""
        largest = a.abs().amax(-1, keepdim=True)
        if self.ball.norm == "1":
            return largest.squeeze(-1)
        share = torch.where(largest > 0, a / largest, 0.0)  # so that no square underflows that counts
        return largest.squeeze(-1) * share.square().sum(-1).sqrt()

    def _ball_share(self, rows: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return the part A1 of the coefficients `rows` that is bounded by the ball; the rest, rows - A1, is bounded by
        the box low..high.
        """
        return self._ball_share_1(rows, low, high) if self.ball.norm == "1" else self._ball_share_2(rows, low, high)

    def _ball_share_2(self, rows: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return the part of `rows` to bound by the ball of the 2-norm: (c - x)/t for the point x = c - t*rows clamped
        to the box low..high, c being the centre and t found by iteration.
        """
        center, square = self.ball.center, self.ball.radius**2
        t = self.ball.radius / self._dual_norm(rows).clamp(min=torch.finfo(rows.dtype).tiny).unsqueeze(-1)
        x = center - t * rows
        for _ in range(SPHERE_ITERATIONS):
            at = torch.minimum(torch.maximum(center - t * rows, low), high)
            free = (at > low) & (at < high)
            fixed = torch.where(free, 0.0, (at - center).square()).sum(-1, keepdim=True)
            slope = torch.where(free, rows.square(), 0.0).sum(-1, keepdim=True)
            next_t = ((square - fixed).clamp(min=0) / slope).sqrt()
            t = torch.where(next_t.isfinite() & (next_t > 0), next_t, t)
            x = at
        first = torch.where((x > low) & (x < high), rows, (center - x) / t)
        return torch.where(first.isfinite(), first, 0.0)

    def _ball_share_1(self, rows: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return the part of `rows` to bound by the ball of the 1-norm: `rows` clamped to plus and minus the size from
        which on the box low..high alone uses up the radius.
        """
        reach = torch.where(rows > 0, self.ball.center - low, high - self.ball.center).clamp(min=0)
        size, order = rows.abs().expand_as(reach).sort(-1, descending=True)
        spent = reach.gather(-1, order).cumsum(-1)
        first = (spent < self.ball.radius).sum(-1, keepdim=True)
        last = size.shape[-1] - 1
        most = torch.where(first > last, 0.0, size.gather(-1, first.clamp(max=last)))
        return torch.minimum(torch.maximum(rows, -most), most)
