"""Relaxations of step functions: floor, ceil, round and sign.

Above a staircase lie the points where a step begins, below it those where one ends; all steps of a whole-number
staircase begin on one line of slope 1. So four points say everything, for example of floor on 0.25..3.5:

    above   (0.25, 0)  (1, 1)  (3, 3)  (3.5, 3)     lines of slope 1/0.75, 1 and 0
    below   (0.25, 0)  (1, 0)  (3, 2)  (3.5, 3)     lines of slope 0, 1 and 1/0.5

The lines are about the number that is read. Where values of one source are apart, some of them may stand on another
step: that is a deviation of the result, of whole steps (specgrad.bounds.linear.intermediate.deviation). A subnormal
number may count as zero, so from `tiny` before 0 on the step at 0 counts for lines above, and until `tiny` behind it
for those below.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specgrad.graph.ir.node import Node
from specgrad.op import Op, apply
from specgrad.ops.elementwise import SIGN
from specgrad.ops.integer_rounding import CEIL, FLOOR, ROUND
from specgrad.rounding import slack_constants

from .bound_layers import BoundUnary, Interval
from .formulas import LinearRelaxation, best_line

STEP_OFFSET = {FLOOR: 0.0, CEIL: -1.0, ROUND: -0.5, SIGN: 0.0}
"""The value v begins at v + FIRST; of sign, all values begin at 0."""
MAX_SLOPE = 2.0**30  # of a line: beyond, its offset would be all rounding


def step_relaxation(op: Op, low: Tensor, high: Tensor, tiny: float = 0.0) -> LinearRelaxation:
    """Relaxation of a step function on low..high: the lines nearest to it at the middle of the box.

    `tiny`: smaller numbers may be flushed to 0.

    >>> lines = step_relaxation(FLOOR, torch.tensor([0.25]).double(), torch.tensor([3.5]).double())
    >>> [round(float(t), 9) for t in lines]
    [1.0, -1.0, 1.0, 0.0]
    """
    slack = slack_constants.LINE * (torch.maximum(low.abs(), high.abs()) + 1)
    sides: list[Tensor] = []
    for side in (-1, 1):
        points, values = _step_corners(op, low, high, side, tiny)
        k = 0 if side > 0 else 2  # the first step up, or the last one
        run, rise = points[k + 1] - points[k], values[k + 1] - values[k]
        steep = torch.where(run > 0, rise / torch.where(run > 0, run, 1.0), 0.0).clamp(max=MAX_SLOPE)
        slopes = torch.stack([torch.zeros_like(low), torch.ones_like(low), steep])
        sides += best_line(points, values, slopes, side, 0.0, slack)
    return LinearRelaxation(*sides)


def _step_corners(op: Op, low: Tensor, high: Tensor, side: int, tiny: float) -> tuple[Tensor, Tensor]:
    """Return (points, values), each (4, ...), of the ends of the box low..high and of the first and last step's corners
    on one side.

    `tiny`: smaller numbers may be flushed to 0.
    """
    first, last = (apply(op, _flushed_to_zero(end, side, tiny)) for end in (low, high))
    value = (first + 1, last) if side > 0 else (first, last - 1)
    if op is SIGN:
        value = (last, last) if side > 0 else (first, first)
    at = [(v + (side < 0)) * (op is not SIGN) + STEP_OFFSET[op] - side * tiny for v in value]
    jumps = last > first
    points = [
        torch.where(jumps, torch.minimum(torch.maximum(p, low), high), e) for p, e in zip(at, (low, high), strict=True)
    ]
    values = [torch.where(jumps, v, first) for v in value]
    return torch.stack([low, *points, high]), torch.stack([first, *values, last])


def _flushed_to_zero(end: Tensor, side: int, tiny: float) -> Tensor:
    """Return `end` with 0 in place of numbers below `tiny` in size, where that is farther out: up (side 1) or down
    (-1).
    """
    inside = (end < 0) & (end > -tiny) if side > 0 else (end > 0) & (end < tiny)
    return torch.where(inside, 0.0, end)


class BoundStep(BoundUnary):
    """The layer of a node floor, ceil, round or sign, of one source; numbers below `tiny` in size may be read as zero.

    position and sources are as in `BoundLayer`.
    """

    def __init__(self, position: int, node: Node, sources: tuple[int, ...], tiny: float) -> None:
        super().__init__(position, node, sources)
        self.tiny = tiny

    def relaxation(self, ends: Interval, candidate_taps: Tensor | None = None) -> LinearRelaxation:
        """Return two lines around the step function on the box `ends`, its source's (lower, upper) bounds;
        `candidate_taps` is not used.
        """
        return step_relaxation(self.node.op, *ends, self.tiny)
