"""Chains of reshapes and permutations as one move of cells, and the one chain that spells it.

Cells of a value, in the order of its axes, are an array of `sizes`; the move puts these factors in another order and
reads the result as `shape`. Two chains are the same move if factors that stay side by side are joined.

>>> move = CellMove((6, 4), (0, 1), (6, 4)).reshaped((2, 3, 4)).permuted((2, 0, 1))
>>> move.joined(), move.permuted((1, 2, 0)).joined()
(CellMove(sizes=(6, 4), order=(1, 0), shape=(4, 2, 3)), CellMove(sizes=(24,), order=(0,), shape=(2, 3, 4)))
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from ..window import Shape


@dataclass(frozen=True)
class CellMove:
    """Cells as an array of `sizes` (none is 1), its axes in `order`, read as an array of `shape`."""

    sizes: Shape
    order: tuple[int, ...]
    shape: Shape

    @classmethod
    def none(cls, shape: Shape) -> CellMove:
        """Return the move that leaves an array of `shape`, which has cells, as it is."""
        sizes = tuple(n for n in shape if n != 1)
        return cls(sizes, tuple(range(len(sizes))), shape)

    def reshaped(self, shape: Shape) -> CellMove:
        """Return the move with its result read as `shape`."""
        return replace(self, shape=shape)

    def permuted(self, order: tuple[int, ...]) -> CellMove | None:
        """Return the move with the axes of its result in `order`; None where an axis cuts a factor unevenly."""
        fine = self._refined()
        if fine is None:
            return None
        groups, rest = list[tuple[int, ...]](), list(fine.order)
        for n in self.shape:
            group = list[int]()
            while math.prod(fine.sizes[f] for f in group) < n:
                group.append(rest.pop(0))
            groups.append(tuple(group))
        turned = tuple(f for a in order for f in groups[a])
        return CellMove(fine.sizes, turned, tuple(self.shape[a] for a in order))

    def _refined(self) -> CellMove | None:
        """Return the move with factors cut so that every axis of the shape is a product of whole ones; None if one
        cannot be.
        """
        cuts, place = set[int](), 1  # cells behind a boundary between axes of the shape
        for n in reversed(self.shape):
            place *= n
            cuts.add(place)
        pieces, place = dict[int, tuple[int, ...]](), 1
        for f in reversed(self.order):
            inside = sorted(c for c in cuts if place < c < place * self.sizes[f])
            steps = [place, *inside, place * self.sizes[f]]
            if any(high % low for low, high in pairwise(steps)):
                return None
            pieces[f] = tuple(high // low for low, high in pairwise(steps))[::-1]
            place *= self.sizes[f]
        first, count = dict[int, int](), 0
        for f in range(len(self.sizes)):
            first[f], count = count, count + len(pieces[f])
        sizes = tuple(n for f in range(len(self.sizes)) for n in pieces[f])
        return CellMove(sizes, tuple(first[f] + k for f in self.order for k in range(len(pieces[f]))), self.shape)

    def joined(self) -> CellMove:
        """Return the move with factors joined that stay side by side, in their order."""
        runs = list[list[int]]()
        for f in self.order:
            if runs and runs[-1][-1] + 1 == f:
                runs[-1].append(f)
            else:
                runs.append([f])
        ranked = sorted(runs)
        sizes = tuple(math.prod(self.sizes[f] for f in run) for run in ranked)
        return CellMove(sizes, tuple(ranked.index(run) for run in runs), self.shape)

    def axes_order(self, shape: Shape) -> tuple[int, ...] | None:
        """Return the order of the axes of an array of `shape` that makes the move, up to a reshape; None if a factor is
        no product of whole axes.

        Axes of one cell come first, or stand where the result has such axes, if it has as many.
        """
        long, ones = ([a for a, n in enumerate(shape) if (n == 1) is short] for short in (False, True))
        groups = list[list[int]]()
        for size in self.sizes:
            group = list[int]()
            while math.prod(shape[a] for a in group) < size:
                group.append(long.pop(0))
            if math.prod(shape[a] for a in group) != size:
                return None
            groups.append(group)
        turned = [a for f in self.order for a in groups[f]]
        if [shape[a] for a in turned] != [n for n in self.shape if n != 1] or self.shape.count(1) != len(ones):
            return (*ones, *turned)
        return tuple((ones if n == 1 else turned).pop(0) for n in self.shape)
