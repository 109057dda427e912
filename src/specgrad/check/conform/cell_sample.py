"""Which cells of a large output are judged: corners, borders and the edges of tiles always, the others drawn by a seed.

A selection has, per axis, the positions that it takes; its cells are all combinations. Along an axis on which the
reference goes cell by cell the positions may lie anywhere, along others they are one interval, and an axis that is
read completely anyway is taken whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from specgrad.scalar import Array
from specgrad.window import Shape

TILES = (16, 32, 64, 128)  # sizes of tiles that kernels use
BLOCK = 2  # positions along an axis with neighbours, of a drawn selection
BESIDE = 3  # drawn positions along other axes, where one axis has its edges

Sort = Literal["free", "interval", "whole"]
"""How positions along an axis may be chosen."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Some cells of an array.

    positions   per axis, sorted positions without repetition
    draws       how many cells among them were drawn independently, each as likely as any other
    placed      how many cells were placed: without what is read whole anyway
    """

    positions: tuple[Array, ...]
    draws: int = 0
    placed: int = 0

    @property
    def count(self) -> int:
        """Return the number of cells."""
        return math.prod(len(p) for p in self.positions)


def edges(n: int) -> Array:
    """Return the positions that are always judged along an axis of n cells: both ends and their neighbours, the first
    and the last multiple of each tile size and their neighbours.

    >>> edges(40).tolist()
    [0, 1, 15, 16, 17, 31, 32, 33, 38, 39]
    """
    positions = {0, 1, n - 2, n - 1}
    for tile in TILES:
        positions |= {m + k for m in (tile, (n - 1) // tile * tile) for k in (-1, 0, 1) if m}
    return np.array(sorted(i for i in positions if 0 <= i < n))


class CellSampler:
    """Draws selections of one output.

    shape   of the output
    sorts   per axis, how its positions may be chosen
    seed    two samplers with one seed draw the same cells
    """

    def __init__(self, shape: Shape, sorts: Sequence[Sort], seed: int) -> None:
        self.shape, self.sorts = shape, tuple(sorts)
        self.random = np.random.default_rng(seed)

    def always(self) -> Iterator[Selection]:
        """Yield selections with every corner, border and tile edge, the last cell of all axes first; none twice."""
        seen = set()
        for selection in self._edge_selections():
            key = tuple(p.tobytes() for p in selection.positions)
            if key not in seen:
                yield selection
            seen.add(key)

    def _edge_selections(self) -> Iterator[Selection]:
        """Yield what `always` does; where all other axes are whole, the same for their first, last and drawn cells."""
        ends = [self._ends(n, sort) for n, sort in zip(self.shape, self.sorts, strict=True)]
        for corner in product(*(reversed(e) for e in ends)):
            yield Selection(tuple(corner))
        free = [k for k, sort in enumerate(self.sorts) if sort == "free"]
        if len(free) == 2:  # where edges of tiles cross
            parts = [edges(n) if k in free else self._beside(k, "drawn") for k, n in enumerate(self.shape)]
            yield Selection(tuple(parts))
        for axis, n in enumerate(self.shape):
            for part in self._edge_parts(n, self.sorts[axis]):
                for how in ("first", "last", "drawn"):
                    others = (self._beside(k, how) for k in range(len(self.shape)))
                    yield Selection(tuple(part if k == axis else other for k, other in enumerate(others)))

    def drawn(self, width: int) -> Selection:
        """Return a drawn selection: `width` positions along each free axis, one block along each interval.

        Positions along free axes are drawn independently, so the k-th ones of all axes together are a cell that is
        drawn independently of the others.
        """
        neighbours = "interval" in self.sorts
        positions = tuple(self._drawn_positions(n, sort, width) for n, sort in zip(self.shape, self.sorts, strict=True))
        placed = math.prod(len(p) for p, sort in zip(positions, self.sorts, strict=True) if sort != "whole")
        return Selection(positions, 1 if neighbours or "free" not in self.sorts else width, placed)

    def _drawn_positions(self, n: int, sort: Sort, width: int) -> Array:
        """Return positions along an axis of n cells: all (`sort` "whole"), a block ("interval"), or at most `width`
        independent ones ("free").
        """
        if sort == "whole":
            return np.arange(n)
        if sort == "free":
            return np.unique(self.random.integers(0, n, width))
        at = int(self.random.integers(0, n))  # each position as likely as any other: blocks are cut at the end
        return np.arange(at, min(at + BLOCK, n))

    def _ends(self, n: int, sort: Sort) -> list[Array]:
        """Return the parts of an axis of n cells that hold its first and its last cell, as the `sort` of axis allows
        parts.
        """
        if sort == "whole":
            return [np.arange(n)]
        if sort == "free":
            return [np.array(sorted({0, n - 1}))]
        return [np.arange(min(BLOCK, n)), np.arange(max(0, n - BLOCK), n)] if n > BLOCK else [np.arange(n)]

    def _edge_parts(self, n: int, sort: Sort) -> list[Array]:
        """Return parts of an axis of n cells that hold its edges: one ("free"), several intervals, or none
        ("whole").
        """
        if sort == "whole" or n == 1:
            return []
        if sort == "free":
            return [edges(n)]
        at = edges(n)
        return np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)

    def _beside(self, axis: int, how: str) -> Array:
        """Return positions along an axis beside one that has its edges, `how`: "first", "last" or "drawn".

        They are single cells, blocks, or the whole axis, as its sort allows.
        """
        n, sort = self.shape[axis], self.sorts[axis]
        if sort == "whole" or how == "drawn":
            return self._drawn_positions(n, sort, BESIDE)
        return (
            self._ends(n, sort)[0 if how == "first" else -1]
            if sort == "interval"
            else np.array([0 if how == "first" else n - 1])
        )
