"""Strided pools for PyTorch on the CPU, by slices: the native operators walk every window, cell by cell.

One axis after the other, a tap of all windows is a strided view of the input, and one call joins two of them. A chunk
of planes stays in the cache, and so does the scratch: fresh pages cost more than the arithmetic on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...window import Window, passes
from ...window.axis import Strided
from .doubling import first_maximum, has_negative_zero

CHUNK_BYTES = 1 << 21
MOST_TAPS = 64  # of an axis: planning walks them, and beyond a few the native kernel is faster
# Nanoseconds of a call, and per tap and cell that a pass leaves: where rows are joined and where neighbours are; and
# how much longer the way back takes. On the safe side: the native operator is never slower than itself.
SET_UP, ROW, COLUMN, BACK = 300e3, 0.6, 1.7, 1.6
Index = tuple[Any, ...]
Join = Callable[..., Tensor]


class Scratch:
    """The memory of one call, by slot."""

    def __init__(self) -> None:
        self.slots: dict[Any, Tensor] = {}

    def __call__(self, slot: Any, shape: Any, dtype: torch.dtype) -> Tensor:
        count, key = math.prod(shape), (slot, dtype)
        if key not in self.slots or self.slots[key].numel() < count:
            self.slots[key] = torch.empty(count, dtype=dtype)
        return self.slots[key][:count].view(shape)


class Tap(NamedTuple):
    """The outputs that read it inside, all of them or not; what they read, and where among the cells of its residue."""

    outs: Index
    whole: bool
    ins: Index
    places: Index


class Line:
    """One axis of the windows; `behind` axes follow it."""

    def __init__(self, axis: Strided, behind: int) -> None:
        at: Callable[[slice], Index] = lambda where: (..., where, *(slice(None),) * behind)
        first = passes.whole_tap(axis)
        assert first is not None  # `fits` has asked
        self.cells = [(at(c.where), c.cells, c.writes) for c in passes.written(axis)]
        places = {w.tap: at(w.places) for _, _, writes in self.cells for w in writes}
        pairs = {t: axis.tap(t) for t in range(axis.kernel) if t in places}
        self.taps = {
            t: Tap(at(outs), outs == slice(0, axis.out), at(ins), places[t]) for t, (outs, ins) in pairs.items()
        }
        # From the first that all outputs read on, then those before it, the nearest first: ties are for the earlier.
        self.first, self.rest = first, [t for t in self.taps if t > first] + [t for t in self.taps if t < first][::-1]
        self.axis = -1 - behind
        self.pairs = behind == 0 and len(self.cells) == 2 and self.cells[0][1] == self.cells[1][1]

    def reduced(self, x: Tensor, out: Tensor, join: Join) -> Tensor:
        """The taps joined two by two, the earlier as the first argument."""
        so_far = x[self.taps[self.first].ins]
        if not self.rest:
            return out.copy_(so_far)
        for t in self.rest:
            tap = self.taps[t]
            if not tap.whole and so_far is not out:
                so_far = out.copy_(so_far)
            pair = (so_far[tap.outs], x[tap.ins])
            join(*(pair if t > self.first else pair[::-1]), out=out[tap.outs])
            so_far = out
        return out

    def spread(self, g: Tensor, out: Tensor, scratch: Scratch) -> Tensor:
        """g added to every cell that a window reads; each cell is written once."""
        totals = (self._received(g, n, scratch) for n in range(len(self.cells)))
        if self.pairs and out.is_contiguous():
            torch.complex(*totals, out=torch.view_as_complex(out.unflatten(-1, (-1, 2))))  # both in one pass
            return out
        for (where, _, _), total in zip(self.cells, totals, strict=True):
            out[where].copy_(total)
        return out

    def _received(self, g: Tensor, residue: int, scratch: Scratch) -> Tensor:
        _, count, writes = self.cells[residue]
        here = g.ndim + self.axis
        if len(writes) == 1 and count == g.shape[here] and self.taps[writes[0].tap].whole:
            return g
        shape = (*g.shape[:here], count, *g.shape[here + 1 :])
        total = scratch(("total", residue), shape, g.dtype).zero_()
        for write in writes:
            tap = self.taps[write.tap]
            total[tap.places] += g[tap.outs]
        return total


def fits(window: Window) -> bool:
    """Every axis is strided with few taps (a slice each), and all windows read one of them inside the input."""
    few = all(isinstance(a, Strided) and a.kernel <= MOST_TAPS for a in window.axes)
    return few and all(passes.whole_tap(a) is not None for a in window.axes if isinstance(a, Strided))


class Slices:
    """A window that `fits`, ready to run: shapes after every pass and indices are counted once."""

    def __init__(self, window: Window) -> None:
        self.window, self.rank = window, window.rank
        axes = [a for a in window.axes if isinstance(a, Strided)]
        self.lines = [Line(a, window.rank - 1 - i) for i, a in enumerate(axes)]
        size, out = window.size, window.out
        self.rows_first = [out[: i + 1] + size[i + 1 :] for i in range(self.rank)]
        self.last_first = [size[:i] + out[i:] for i in reversed(range(self.rank))]

    def time(self, planes: int, back: bool = False) -> float:
        """An estimate of a pass over all windows, in nanoseconds on one thread."""
        passes = zip(self.lines, self.rows_first, strict=True)
        cells = (math.prod(shape) * len(line.taps) * (ROW, COLUMN)[line.axis == -1] for line, shape in passes)
        return SET_UP + planes * sum(cells) * (BACK if back else 1)

    def _chunks(self, planes: int, x: Tensor) -> Iterator[tuple[int, int]]:
        count = max(1, CHUNK_BYTES // (math.prod(self.window.size) * x.element_size()))
        return ((start, min(start + count, planes)) for start in range(0, planes, count))

    def _output(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x.new_empty((*x.shape[: x.ndim - self.rank], *self.window.out))
        return x.contiguous().view(-1, *self.window.size), y.view(-1, *self.window.out), y

    def _passes(self, x: Tensor, out: Tensor, rows_first: bool, join: Join, scratch: Scratch) -> None:
        lines = self.lines if rows_first else self.lines[::-1]
        shapes = self.rows_first if rows_first else self.last_first
        for line, shape in zip(lines[:-1], shapes, strict=False):
            x = line.reduced(x, scratch((line.axis, "to"), (x.shape[0], *shape), x.dtype), join)
        lines[-1].reduced(x, out, join)

    def maximum(self, x: Tensor) -> Tensor:
        """NaN propagates; of +0 and -0, either of which torch.maximum returns, the first in its window is."""
        (planes, out, y), scratch = self._output(x), Scratch()
        for start, stop in self._chunks(len(planes), x):
            part, to = planes[start:stop], out[start:stop]
            self._passes(part, to, True, torch.maximum, scratch)
            if not _lowest(to, scratch) > 0 and has_negative_zero(part):
                self._passes(part, to, False, first_maximum, scratch)
        return y

    def total(self, x: Tensor, divisor: float | None = None) -> Tensor:
        """The sum over every window, divided."""
        (planes, out, y), scratch = self._output(x), Scratch()
        for start, stop in self._chunks(len(planes), x):
            self._passes(planes[start:stop], out[start:stop], True, torch.add, scratch)
            if divisor is not None:
                out[start:stop].div_(divisor)  # while it is in the cache
        return y

    def evenly(self, g: Tensor, divisor: float | None = None) -> Tensor:
        """g, divided, added to every cell of its window: the adjoint of `total`."""
        gx = g.new_empty((*g.shape[: g.ndim - self.rank], *self.window.size))
        planes, out, scratch = g.contiguous().view(-1, *self.window.out), gx.view(-1, *self.window.size), Scratch()
        for start, stop in self._chunks(len(planes), gx):
            part = planes[start:stop]
            if divisor is not None:
                part = torch.div(part, divisor, out=scratch("part", part.shape, g.dtype))
            for i, line in enumerate(self.lines):
                shape = (stop - start, *self.window.size[: i + 1], *self.window.out[i + 1 :])
                to = out[start:stop] if i == self.rank - 1 else scratch((line.axis, "to"), shape, g.dtype)
                part = line.spread(part, to, scratch)
        return gx


def _lowest(y: Tensor, scratch: Scratch) -> float:
    """The lowest abs(y), or NaN: only a maximum that is 0 may have the wrong sign."""
    return float(torch.abs(y, out=scratch("low", y.shape, y.dtype)).amin())
