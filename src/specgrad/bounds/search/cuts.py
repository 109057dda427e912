"""Where a subproblem may be cut, what a cut promises, and the two problems that it makes: kinks of functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ...op import apply
from ...proof.tree import Cut
from ..linear.layers import Cell, Taps, split
from ..linear.relaxations import Lines
from .estimate import QuickLines
from .subproblems import Bounder, Problems, kinks


class Choice(Protocol):
    """Cuts of one kind at the cells of one node; boxes[k] and cells[k] say where."""

    def scores(self, problems: Problems, lines: QuickLines, seen: Mapping[int, Tensor]) -> Tensor:
        """(boxes, cells): how much of the bound the lines may give away there; 0 where there is nothing to cut."""

    def lines_after(self, problems: Problems, lines: QuickLines, boxes: Tensor, cells: Tensor, side: int) -> QuickLines:
        """The lines on one side."""

    def divided(self, problems: Problems, boxes: Tensor, cells: Tensor, side: int) -> Problems:
        """The problems with one more cut."""

    def cut(self, problems: Problems, box: int, cell: int) -> Cut:
        """As a tree has it."""


@dataclass(frozen=True, eq=False)
class Kink:
    """A point of the input z of function i, where it has a kink: z <= point, or z >= point."""

    bounder: Bounder
    i: int
    z: int
    point: float

    def scores(self, problems: Problems, lines: QuickLines, seen: Mapping[int, Tensor]) -> Tensor:
        """A line is off by what it is off at the kink, or at the nearer end of the range."""
        ends = self.bounder.ends(problems, self.z)
        inside = (ends[0] < self.point) & (ends[1] > self.point)
        low, high = (end.float() for end in ends)
        if self.i not in seen:
            room = torch.minimum(self.point - low, high - self.point)
            return torch.where(inside, self._pooled(seen) * room, 0.0).flatten(1)
        positive, negative = split(seen[self.i])
        down, below, up, above = lines.of(self.i, problems.slopes)
        node = self.bounder.graph.nodes[self.i]
        points = torch.full_like(low, self.point), low, high
        values = [apply(node.op, x, **node.params) for x in points]
        under = [f - (down * x + below) for f, x in zip(values, points, strict=True)]
        over = [up * x + above - f for f, x in zip(values, points, strict=True)]
        lost = [torch.maximum(kink, torch.minimum(*far)) for kink, *far in (under, over)]
        return torch.where(inside, positive * lost[0] - negative * lost[1], 0.0).flatten(1)

    def _pooled(self, seen: Mapping[int, Tensor]) -> Tensor:
        """Of a relu that max_pool has taken over: how much the objective sees of the windows that read a cell."""
        total = torch.zeros_like(self.bounder.state.ends[self.z][0].float())
        for i, layer in self.bounder.state.layers.items():
            if isinstance(layer, Taps) and layer.sources == (self.z,) and i in seen:
                ones = torch.ones((layer.window.taps_count, 1, *layer.node.shape))
                each = seen[i].abs().unsqueeze(1)
                total = total + layer.spread(each, 0 * each, Lines(ones, ones[0], ones, ones[0])).squeeze(1)
        return total

    def lines_after(self, problems: Problems, lines: QuickLines, boxes: Tensor, cells: Tensor, side: int) -> QuickLines:
        layer = self.bounder.state.layers[self.i]
        assert isinstance(layer, Cell)
        low, high = (end.flatten(1)[boxes, cells] for end in self.bounder.ends(problems, self.z))
        half = (low.clamp(min=self.point), high) if side else (low, high.clamp(max=self.point))
        return lines.changed(self.i, boxes, cells, layer.lines(half), len(problems))

    def divided(self, problems: Problems, boxes: Tensor, cells: Tensor, side: int) -> Problems:
        return problems.cut(self.z, boxes, cells, self.point, side)

    def cut(self, problems: Problems, box: int, cell: int) -> Cut:
        return Cut(self.z, cell, self.point)


def choices(bounder: Bounder) -> list[Choice]:
    """Every kink of every function that has one inside a range."""
    every: list[Choice] = []
    for i, z in bounder.kinked.items():
        layer = bounder.state.layers[i]
        assert isinstance(layer, Cell)
        every += [Kink(bounder, i, z, point) for point in kinks(layer)]
    return every
