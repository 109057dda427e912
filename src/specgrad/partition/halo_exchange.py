"""Halo exchange of one value along one axis, for devices that run one program: equal shapes, and no cell too many.

Every device holds a block of the same length: the cells that it owns, then zeros. To read what others own, it is sent
pieces: a piece moves as many cells between devices that are as many steps apart, so it is one collective permutation.
Cells that fewer devices need are pieces of their own: nothing is sent to fill a shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from ..window.axis_maps import Interval

UNREAD, ZERO = -1, -2


class Piece(NamedTuple):
    """One collective permutation: `cells` cells from each source device to the device `hop` further.

    starts   source -> where they begin in its block
    firsts   target -> the first of them, counted in the value
    """

    hop: int
    cells: int
    starts: dict[int, int]
    firsts: dict[int, int]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Return (source, target) of every transfer."""
        return [(source, source + self.hop) for source in self.starts]


def runs_of(cells: set[int]) -> list[Interval]:
    """Return a set of cells as sorted intervals.

    >>> runs_of({1, 2, 5})
    [(1, 3), (5, 6)]
    """
    numbered = enumerate(sorted(cells))
    runs = [[cell for _, cell in group] for _, group in groupby(numbered, lambda pair: pair[1] - pair[0])]
    return [(run[0], run[-1] + 1) for run in runs]


class AxisExchange:
    """The exchange of one value along one axis of a mesh: what each device owns of it, and the intervals that it reads.

    Cells beyond the ends, which no device owns, are zero.

    block    the most cells that a device owns
    starts   per device, the first cell of what it has in the end
    length   how many cells that are
    owned    per device, its interval of cells
    reads    per device, the cells that it needs

    >>> e = AxisExchange([(0, 4), (4, 8), (8, 12)], [[(-1, 5)], [(3, 9)], [(7, 13)]])
    >>> e.pieces[0]
    Piece(hop=-1, cells=1, starts={1: 0, 2: 0}, firsts={0: 4, 1: 8})
    >>> e.cells_moved, e.starts, e.length, e.runs
    (4, [-1, 3, 7], 6, [(5, 6), (0, 4), (4, 5)])
    """

    def __init__(self, owned: Sequence[Interval], reads: Sequence[Sequence[Interval]]) -> None:
        self.owned = list(owned)
        self.reads: list[set[int]] = [set().union(*(range(*i) for i in intervals)) for intervals in reads]
        self.block = max(stop - first for first, stop in owned)
        self.pieces = list(self._pieces())
        self.starts, self.length = self._common_layout()

    @property
    def needed(self) -> bool:
        """Return whether some device reads a cell that it does not own."""
        return any(cells - set(range(*own)) for cells, own in zip(self.reads, self.owned, strict=True))

    # --- what is sent -------------------------------------------------------------------------------------------------

    def _pieces(self) -> Iterator[Piece]:
        """Yield all pieces to be sent, in the order of the distance between sender and receiver."""
        devices = range(len(self.owned))
        for hop in (h for h in range(1 - len(self.owned), len(self.owned)) if h):
            runs = {k: self._runs_between(k - hop, k) for k in devices if k - hop in devices}
            for i in range(max(map(len, runs.values()), default=0)):
                yield from self._pieces_of_run(hop, {k: rs[i] for k, rs in runs.items() if i < len(rs)})

    def _runs_between(self, source: int, target: int) -> list[Interval]:
        """Return the intervals that `target` reads of what `source` owns."""
        return runs_of(self.reads[target] & set(range(*self.owned[source])))

    def _pieces_of_run(self, hop: int, runs: dict[int, Interval]) -> Iterator[Piece]:
        """Yield pieces for one interval (`runs`) per target, `hop` devices from its source: cells next to the target
        first, then those that fewer need.
        """
        done = 0
        for count in sorted({stop - first for first, stop in runs.values()}):
            some = {k: run for k, run in runs.items() if run[1] - run[0] >= count}
            firsts = {k: stop - count if hop > 0 else first + done for k, (first, stop) in some.items()}
            yield Piece(hop, count - done, {k - hop: c - self.owned[k - hop][0] for k, c in firsts.items()}, firsts)
            done = count

    @property
    def cells_moved(self) -> int:
        """Return how many cells are sent between all devices."""
        return sum(piece.cells * len(piece.starts) for piece in self.pieces)

    # --- where it stands then -----------------------------------------------------------------------------------------

    def _common_layout(self) -> tuple[list[int], int]:
        """Return the first cell that each device has in the end, and how many cells: equal offsets if that is not much
        longer."""
        busy = [k for k, cells in enumerate(self.reads) if cells]
        firsts = [min(cells, default=own[0]) for cells, own in zip(self.reads, self.owned, strict=True)]
        before = max((self.owned[k][0] - firsts[k] for k in busy), default=0)
        starts = [first - before for first, _ in self.owned]
        length = max((max(self.reads[k]) + 1 - starts[k] for k in busy), default=0)
        least = max((max(self.reads[k]) + 1 - firsts[k] for k in busy), default=0)
        return (starts, length) if length <= least + least // 4 else (firsts, least)

    @cached_property
    def table(self) -> np.ndarray[Any, Any]:
        """Return (devices, length): where each cell is in the block followed by all pieces; or UNREAD, or ZERO beyond
        the ends."""
        table = np.full((len(self.owned), self.length), UNREAD)
        for k, start in enumerate(self.starts):
            places = self._cell_positions(k)
            for cell in self.reads[k]:
                table[k, cell - start] = places.get(cell, ZERO)
        return table

    def _cell_positions(self, k: int) -> dict[int, int]:
        """Return, for device k, cell -> its place in the block followed by all pieces."""
        places, offset = {cell: i for i, cell in enumerate(range(*self.owned[k]))}, self.block
        for piece in self.pieces:
            if k in piece.firsts:
                places |= {piece.firsts[k] + i: offset + i for i in range(piece.cells)}
            offset += piece.cells
        return places

    @cached_property
    def runs(self) -> list[Interval] | None:
        """Return intervals of the block and pieces to concatenate if they are the same on all devices; else None."""
        line: list[int] = []
        for column in self.table.T.tolist():
            places = set(column) - {UNREAD, ZERO}
            if len(places) != 1:
                return None
            line.extend(places)
        filled = [set(self._cell_positions(k).values()) for k in range(len(self.owned))]
        if any(place in filled[k] for k, j in np.argwhere(self.table == ZERO) for place in (line[j],)):
            return None
        runs: list[Interval] = []
        for place in line:
            if runs and runs[-1][1] == place and place != self.block:
                runs[-1] = runs[-1][0], place + 1
            else:
                runs.append((place, place + 1))
        return runs
