"""Split candidates of a subproblem and their scores: kinks of functions, winners of maxima, inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specgrad.bounds.linear.relaxation.bound_layers import (
    BoundJoint,
    BoundMaxPool,
    BoundUnary,
    Interval,
    positive_negative,
)
from specgrad.bounds.linear.relaxation.formulas import LinearRelaxation, largest
from specgrad.op import apply
from specgrad.proof.base.split_tree import Split

from ..shared.float32_bounds import QuickLines, flat
from .maxima import Maximum
from .subproblems import Bounder, Problems, kinks

FAR = 2.0**-10  # of what a line gives away at one end alone: a cut to be made if nothing better is there


class SplitCandidates(Protocol):
    """Splits of one kind at the cells of one node; boxes[k] and cells[k] say which."""

    def scores(self, problems: Problems, lines: QuickLines, seen: Mapping[int, Tensor]) -> Tensor:
        """Scores (boxes, cells): how much of the bound the relaxation may lose there; 0 where nothing can be split.

        `lines` are the relaxations, `seen` the coefficients of nodes that the bound had.
        """

    def lines_after(self, problems: Problems, lines: QuickLines, boxes: Tensor, cells: Tensor, side: int) -> QuickLines:
        """Return the relaxations `lines` as they are on one side of splits: subproblem boxes[k] at cells[k]."""

    def divided(self, problems: Problems, boxes: Tensor, cells: Tensor, side: int) -> Problems:
        """Return all subproblems; subproblem boxes[k] is split at cells[k] too, others are as they were.

        side   0: z <= point, the lower half, or the chosen tap wins; 1: the other side
        """

    def cut(self, problems: Problems, box: int, cell: int) -> Split:
        """Return the split of subproblem `box` at `cell` as an entry of a split tree."""


@dataclass(frozen=True, eq=False)
class Kink:
    """Split of input z of function i at its kink: z <= point, or z >= point.

    bounder   bounds subproblems; holds the graph and what is known of its nodes
    """

    bounder: Bounder
    i: int
    z: int
    point: float

    def scores(self, problems: Problems, lines: QuickLines, seen: Mapping[int, Tensor]) -> Tensor:
        """Scores by how far the lines are from the function at the kink and at the ends of the interval, times what
        `seen` has as the node's coefficients.
        """
        ends = self.bounder.ends(problems, self.z)
        inside = (ends[0] < self.point) & (ends[1] > self.point)
        low, high = (end.float() for end in ends)
        if self.i not in seen:
            room = torch.minimum(self.point - low, high - self.point)
            return flat(torch.where(inside, self._pooled_coefficients(seen) * room, 0.0))
        positive, negative = positive_negative(seen[self.i])
        down, below, up, above = lines.of(self.i, problems.slopes)
        node = self.bounder.graph.nodes[self.i]
        points = torch.full_like(low, self.point), low, high
        values = [apply(node.op, x, **node.params) for x in points]
        under = [f - (down * x + below) for f, x in zip(values, points, strict=True)]
        over = [up * x + above - f for f, x in zip(values, points, strict=True)]
        lost = [torch.maximum(kink, torch.minimum(*far)) + FAR * torch.maximum(*far) for kink, *far in (under, over)]
        return flat(torch.where(inside, positive * lost[0] - negative * lost[1], 0.0))

    def _pooled_coefficients(self, seen: Mapping[int, Tensor]) -> Tensor:
        """For a relu merged into a max pool: summed absolute coefficients, from `seen`, of the windows that read each
        cell.
        """
        total = torch.zeros_like(self.bounder.state.intervals[self.z][0].float())
        for i, layer in self.bounder.state.layers.items():
            if isinstance(layer, BoundMaxPool) and layer.sources == (self.z,) and i in seen:
                ones = torch.ones((layer.window.taps_count, 1, *layer.node.shape))
                each = seen[i].abs().unsqueeze(1)
                total = total + layer.source_coefficients(
                    each, 0 * each, LinearRelaxation(ones, ones[0], ones, ones[0])
                ).squeeze(1)
        return total

    def lines_after(self, problems: Problems, lines: QuickLines, boxes: Tensor, cells: Tensor, side: int) -> QuickLines:
        """Return `lines` with those of the function below (side 0) or above (1) the kink, for cells[k] of subproblem
        boxes[k].
        """
        layer = self.bounder.state.layers[self.i]
        assert isinstance(layer, BoundUnary)
        low, high = (flat(end)[boxes, cells] for end in self.bounder.ends(problems, self.z))
        half = (low.clamp(min=self.point), high) if side else (low, high.clamp(max=self.point))
        return lines.changed(self.i, boxes, cells, layer.relaxation(half), len(problems))

    def divided(self, problems: Problems, boxes: Tensor, cells: Tensor, side: int) -> Problems:
        """Return all subproblems; boxes[k] is cut at the kink of cells[k]: z <= point on side 0, z >= point on side
        1.
        """
        return problems.cut(self.z, boxes, cells, self.point, side)

    def cut(self, problems: Problems, box: int, cell: int) -> Split:
        """Return the split of `cell` at the kink as an entry of a split tree; it does not depend on `box`."""
        return Split(self.z, cell, self.point)


@dataclass(frozen=True, eq=False)
class Winner:
    """Split of a window of maximum i by its tap with the largest middle: that tap wins, or another one does. `bounder`
    has the maximum's rules.
    """

    bounder: Bounder
    i: int

    def scores(self, problems: Problems, lines: QuickLines, seen: Mapping[int, Tensor]) -> Tensor:
        """Scores by the distance of both lines at the middle, times the absolute coefficient of the window.

        `seen` are the coefficients of nodes that the bound had; 0 where one tap surely wins.
        """
        low, high = self._ends(problems)
        room = self.maximum.room(low, high, problems.candidate_taps[self.i]).float()
        if self.i not in seen:
            return 0 * room
        apart = self._line_distance(lines, low / 2 + high / 2) if self.i in lines.others else room
        return torch.where(room > 0, apart, 0.0) * flat(seen[self.i]).abs()

    def _line_distance(self, lines: QuickLines, middle: Tensor) -> Tensor:
        """Distance between the upper and the lower line of the maximum at the middle, (boxes, windows)."""
        down, below, up, above = lines.others[self.i]
        slope = flat(up - down, 2).movedim(0, 1)
        return (slope * middle.float()).sum(1) + flat(above - below)

    @property
    def maximum(self) -> Maximum:
        """Return the maximum i of the bounder, whose winners are split."""
        return self.bounder.maxima[self.i]

    def _ends(self, problems: Problems) -> Interval:
        """(lower, upper) of every tap, each (boxes, taps, windows)."""
        read = [z for z in self.maximum.reads if isinstance(z, int) and z in problems.limits]
        ends = {z: self.bounder.ends(problems, z) for z in read}
        low, high = self.maximum.ends({**self.bounder.state.intervals, **ends})
        return low.expand(len(problems), *low.shape[1:]), high.expand(len(problems), *high.shape[1:])

    def _tap_intervals_after(
        self, problems: Problems, boxes: Tensor, windows: Tensor, side: int
    ) -> tuple[Interval, Tensor]:
        """Intervals (k, taps) of the windows' taps, and a mask of the taps that lose on one side.

        Window windows[k] of subproblem boxes[k]; side 0: the tap with the largest middle wins, 1: it loses.
        """
        low, high = (end[boxes, :, windows] for end in self._ends(problems))
        tap = self._largest_tap(low, high, problems.candidate_taps[self.i][boxes, :, windows])
        others = torch.ones_like(low, dtype=torch.bool).scatter(1, tap[:, None], False)
        return (low, high), ~others if side else others

    def _largest_tap(self, low: Tensor, high: Tensor, left: Tensor) -> Tensor:
        """Return, per window, the tap with the largest middle of low..high among those that `left` marks."""
        return torch.where(left, low / 2 + high / 2, -torch.inf).argmax(1)

    def lines_after(self, problems: Problems, lines: QuickLines, boxes: Tensor, cells: Tensor, side: int) -> QuickLines:
        """Return `lines` with those of window cells[k] of subproblem boxes[k] where the tap with the largest middle
        wins (side 0) or loses (1).
        """
        (low, high), lost = self._tap_intervals_after(problems, boxes, cells, side)
        after = problems.without(self.i, boxes, cells, lost).candidate_taps[self.i]
        left = after[boxes, :, cells]
        if isinstance(self.maximum.layer, BoundJoint):
            return lines.decided(self.i, boxes, cells, None, self.maximum.shaped(after))
        if self.maximum.floor == 0:  # a relu's 0 is one more tap
            low, high, left = (torch.cat([t, torch.zeros_like(t[:, :1])], 1) for t in (low, high, left))
            left[:, -1] = True
        new = largest(low.T, high.T, left.T)
        taps = self.maximum.taps
        new = new._replace(lower_slope=new.lower_slope[:taps], upper_slope=new.upper_slope[:taps])
        return lines.decided(self.i, boxes, cells, new, self.maximum.shaped(after))

    def divided(self, problems: Problems, boxes: Tensor, cells: Tensor, side: int) -> Problems:
        """Return new subproblems, as many as `problems`: in number boxes[k], the window of cell cells[k] is without the
        taps that cannot win on `side`.
        """
        return problems.without(self.i, boxes, cells, self._tap_intervals_after(problems, boxes, cells, side)[1])

    def cut(self, problems: Problems, box: int, cell: int) -> Split:
        """Return the split of a window, `cell` of subproblem `box`, by its tap with the largest middle, as an entry of
        a split tree.
        """
        lost = self._tap_intervals_after(problems, torch.tensor([box]), torch.tensor([cell]), 1)[1]
        return Split(self.i, cell, tap=int(lost[0].float().argmax()))


@dataclass(frozen=True, eq=False)
class Axis:
    """Split of an input, node x of the graph of `bounder`, at its middle; half a box gains about abs(A_j)*w_j/2 once
    its layers are bounded again.
    """

    bounder: Bounder
    x: int

    def scores(self, problems: Problems, lines: QuickLines, seen: Mapping[int, Tensor]) -> Tensor:
        """Scores abs(A_j)*w_j/2 of the inputs, 0 where an input is a single number.

        A is what `seen` has of the input, by node; `lines` are not needed here.
        """
        first, last = self._ends(problems)
        a = flat(seen[self.x]).abs() if self.x in seen else torch.zeros_like(first)
        return torch.where(first < last, a * (last - first) / 2, 0.0)

    def _ends(self, problems: Problems) -> Interval:
        """First and last float32 number of every input, (boxes, inputs)."""
        first, last = flat(problems.known[self.x], 2).unbind(1)
        return first, last

    def _split_points(self, problems: Problems, boxes: Tensor, cells: Tensor) -> Tensor:
        """Return the points where inputs cells[k] of subproblems boxes[k] are split: middles, below the last float32
        number.
        """
        first, last = (end[boxes, cells] for end in self._ends(problems))
        before = torch.nextafter(last, torch.full_like(last, -torch.inf))
        return torch.minimum(torch.maximum(first / 2 + last / 2, first), before)

    def lines_after(self, problems: Problems, lines: QuickLines, boxes: Tensor, cells: Tensor, side: int) -> QuickLines:
        """Return `lines` unchanged, whatever `boxes`, `cells` and `side` are split: inputs are compared with inputs
        alone, by their scores.
        """
        return lines  # inputs are compared with inputs alone, by their scores

    def divided(self, problems: Problems, boxes: Tensor, cells: Tensor, side: int) -> Problems:
        """Return all subproblems; in boxes[k], input cells[k] keeps its lower (side 0) or upper half."""
        return problems.split_input(self.x, boxes, cells, self._split_points(problems, boxes, cells), side)

    def cut(self, problems: Problems, box: int, cell: int) -> Split:
        """Return the split of input `cell` at the middle of its interval in subproblem `box`."""
        return Split(self.x, cell, float(self._split_points(problems, torch.tensor([box]), torch.tensor([cell]))))


def choices(bounder: Bounder) -> list[SplitCandidates]:
    """Return all split candidates of a network: undecided maxima, kinks inside intervals, and inputs if there are any
    of these.
    """
    every: list[SplitCandidates] = [Winner(bounder, i) for i in bounder.maxima]
    for i, z in bounder.kinked.items():
        layer = bounder.state.layers[i]
        assert isinstance(layer, BoundUnary)
        every += [Kink(bounder, i, z, point) for point in kinks(layer)]
    return every + [Axis(bounder, x) for x in bounder.renewed[:1] if every]
