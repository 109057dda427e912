"""Strided pools for PyTorch on the CPU, by slices: the native operators walk every window, cell by cell.

One axis after the other, a tap of all windows is a strided view of the input, and one call joins two of them. A chunk
of planes stays in the cache, and so does the scratch: fresh pages cost more than the arithmetic on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specgrad.window import Window
from specgrad.window import tap_schedule as passes
from specgrad.window.axis import Strided

from .log_step_pool import first_maximum, has_negative_zero

CHUNK_BYTES = 1 << 21
MAX_TAPS_PER_AXIS = 64  # of an axis: planning walks them
# Of an axis, up to which slices beat a native operator: in large windows few of its branches are surprises.
MAX_TAPS_BY_SLICES = 8
# Nanoseconds of a call, and per tap and cell that a pass leaves: where rows are joined and where neighbours are; and
# how much longer the way back takes. On the safe side: the native operator is never slower than itself.
SET_UP_NS, ROW_NS, COLUMN_NS, BACKWARD_FACTOR = 300e3, 0.6, 1.7, 1.6
Index = tuple[Any, ...]
Join = Callable[..., Tensor]


class Scratch:
    """Buffers of one call by slot; each grows to the largest size asked for and is reused."""

    def __init__(self) -> None:
        self.slots: dict[Any, Tensor] = {}

    def __call__(self, slot: Any, shape: Any, dtype: torch.dtype) -> Tensor:
        """Return the buffer of this slot as a tensor of this shape and type, uninitialised.

        One that is too small is replaced.
        """
        count, key = math.prod(shape), (slot, dtype)
        if key not in self.slots or self.slots[key].numel() < count:
            self.slots[key] = torch.empty(count, dtype=dtype)
        return self.slots[key][:count].view(shape)


class TapSlice(NamedTuple):
    """Indices of one tap of one axis: the outputs that it serves and the cells that they read.

    `written` indexes the outputs whose tap lies inside, `whole` says that these are all outputs, `read` indexes the
    input cells, `places` these cells among those of their residue modulo the stride.
    """

    written: Index
    whole: bool
    read: Index
    places: Index


class StridedAxis:
    """Precomputed tap indices of one strided axis of a window; `behind` axes follow it."""

    def __init__(self, axis: Strided, behind: int) -> None:
        at: Callable[[slice], Index] = lambda where: (..., where, *(slice(None),) * behind)
        first = passes.whole_tap(axis)
        assert first is not None  # `can_slice` has asked
        self.cells = [(at(c.where), c.cells, c.writes) for c in passes.written(axis)]
        places = {w.tap: at(w.places) for _, _, writes in self.cells for w in writes}
        pairs = {t: axis.tap(t) for t in range(axis.kernel) if t in places}
        self.taps = {
            t: TapSlice(at(outs), outs == slice(0, axis.out), at(ins), places[t]) for t, (outs, ins) in pairs.items()
        }
        # From the first that all outputs read on, then those before it, the nearest first: ties are for the earlier.
        self.first, self.rest = first, [t for t in self.taps if t > first] + [t for t in self.taps if t < first][::-1]
        self.axis = -1 - behind
        self.pairs = behind == 0 and len(self.cells) == 2 and self.cells[0][1] == self.cells[1][1]

    def views(self, x: Tensor) -> list[Tensor]:
        """Return the cells that each tap reads, as views, in the order in which `reduce_taps` takes them."""
        return [x[self.taps[t].read] for t in (self.first, *self.rest)]

    def reduce_taps(self, views: Sequence[Tensor], out: Tensor, join: Join) -> Tensor:
        """Write the tap views, joined by the binary function `join`, to `out` and return it.

        The earlier tap is the first argument.
        """
        so_far = views[0]
        if not self.rest:
            return out.copy_(so_far)
        for t, part in zip(self.rest, views[1:], strict=True):
            tap = self.taps[t]
            if not tap.whole and so_far is not out:
                so_far = out.copy_(so_far)
            before, to = (so_far, out) if tap.whole else (so_far[tap.written], out[tap.written])
            join(*((before, part) if t > self.first else (part, before)), out=to)
            so_far = out
        return out

    def spread(self, g: Tensor, out: Tensor, scratch: Scratch) -> Tensor:
        """Write to `out`, for every input cell, the sum of g over the windows that read it, and return `out`.

        `scratch` lends buffers.
        """
        totals = (self._sum_of_readers(g, n, scratch) for n in range(len(self.cells)))
        if self.pairs and out.is_contiguous():
            torch.complex(*totals, out=torch.view_as_complex(out.unflatten(-1, (-1, 2))))  # both in one pass
            return out
        for (where, _, _), total in zip(self.cells, totals, strict=True):
            out[where].copy_(total)
        return out

    def _sum_of_readers(self, g: Tensor, residue: int, scratch: Scratch) -> Tensor:
        """Return the sum of g over the windows that read the cells of one residue modulo the stride: g itself, or a
        buffer.

        The buffer is one of `scratch`, overwritten by the next call.
        """
        _, count, writes = self.cells[residue]
        here = g.ndim + self.axis
        if len(writes) == 1 and count == g.shape[here] and self.taps[writes[0].tap].whole:
            return g
        shape = (*g.shape[:here], count, *g.shape[here + 1 :])
        total = scratch(("total", residue), shape, g.dtype).zero_()
        for write in writes:
            tap = self.taps[write.tap]
            total[tap.places] += g[tap.written]
        return total


def can_slice(window: Window) -> bool:
    """Return whether `SlicedPool` applies: strided axes of few taps, one of which lies inside for every output."""
    few = all(isinstance(a, Strided) and a.kernel <= MAX_TAPS_PER_AXIS for a in window.axes)
    return few and all(passes.whole_tap(a) is not None for a in window.axes if isinstance(a, Strided))


class SlicedPool:
    """Maximum, sum and adjoint of the sum over a strided window by slices; indices are computed once."""

    def __init__(self, window: Window) -> None:
        self.window, self.rank = window, window.rank
        axes = [a for a in window.axes if isinstance(a, Strided)]
        self.lines = [StridedAxis(a, window.rank - 1 - i) for i, a in enumerate(axes)]
        size, out = window.size, window.out
        self.rows_first = [out[: i + 1] + size[i + 1 :] for i in range(self.rank)]
        self.last_first = [size[:i] + out[i:] for i in reversed(range(self.rank))]

    def time(self, planes: int, back: bool = False) -> float:
        """Estimate one pass over all windows of so many planes, or its adjoint (`back`), in nanoseconds on one
        thread.
        """
        passes = zip(self.lines, self.rows_first, strict=True)
        cells = (math.prod(shape) * len(line.taps) * (ROW_NS, COLUMN_NS)[line.axis == -1] for line, shape in passes)
        return SET_UP_NS + planes * sum(cells) * (BACKWARD_FACTOR if back else 1)

    def _planes_per_chunk(self, x: Tensor) -> int:
        """Return how many padded planes of the type of x fit in CHUNK_BYTES, at least 1."""
        return max(1, CHUNK_BYTES // (math.prod(self.window.size) * x.element_size()))

    def _planes_and_result(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return x and a new result tensor, both as (planes, *spatial), and the result in its own shape."""
        y = x.new_empty((*x.shape[: x.ndim - self.rank], *self.window.out))
        return x.contiguous().view(-1, *self.window.size), y.view(-1, *self.window.out), y

    def _reduce_chunks(self, planes: Tensor, out: Tensor, join: Join) -> Iterator[tuple[Tensor, Tensor]]:
        """Reduce planes into `out`, first axis first, chunk by chunk; yield each chunk's (input, output).

        A view costs what joining a few thousand cells does: few are made.
        """
        count, first, last = self._planes_per_chunk(planes), self.lines[0], self.lines[-1]
        scratch: dict[int, list[tuple[Tensor, list[Tensor]]]] = {}  # by planes: what a pass writes, the next one reads
        reads: Iterator[Sequence[Tensor]] = zip(*(view.split(count) for view in first.views(planes)), strict=True)
        for part, to, views in zip(planes.split(count), out.split(count), reads, strict=True):
            if len(part) not in scratch:
                empty = [part.new_empty((len(part), *shape)) for shape in self.rows_first[:-1]]
                scratch[len(part)] = [(e, line.views(e)) for e, line in zip(empty, self.lines[1:], strict=True)]
            for line, (between, following) in zip(self.lines, scratch[len(part)], strict=False):
                line.reduce_taps(views, between, join)
                views = following
            last.reduce_taps(views, to, join)
            yield part, to

    def maximum(self, x: Tensor) -> Tensor:
        """Return the maximum of every window; NaN propagates, and of +0 and -0 the first in its window is returned."""
        (planes, out, y), scratch = self._planes_and_result(x), Scratch()
        for part, to in self._reduce_chunks(planes, out, torch.maximum):
            if int(torch.count_nonzero(to)) < to.numel() and has_negative_zero(part):
                self._first_maximum(part, to, scratch)
        return y

    def _first_maximum(self, x: Tensor, out: Tensor, scratch: Scratch) -> None:
        """Write the maximum of every window of x to `out`, by buffers of `scratch`, last axis first.

        Of equal zeros the first in its window.
        """
        for line, shape in zip(self.lines[:0:-1], self.last_first, strict=False):
            to = scratch(line.axis, (len(x), *shape), x.dtype)
            x = line.reduce_taps(line.views(x), to, first_maximum)
        self.lines[0].reduce_taps(self.lines[0].views(x), out, first_maximum)

    def window_sums(self, x: Tensor, divisor: float | None = None) -> Tensor:
        """Return the sum of x over every window, divided by `divisor` (None: not divided), with the window's output
        sizes in place of x's last axes.
        """
        planes, out, y = self._planes_and_result(x)
        for _, to in self._reduce_chunks(planes, out, torch.add):
            if divisor is not None:
                to.div_(divisor)  # while it is in the cache
        return y

    def spread_sums(self, g: Tensor, divisor: float | None = None) -> Tensor:
        """Return the adjoint of `window_sums`: g / divisor added to every cell of its window."""
        gx = g.new_empty((*g.shape[: g.ndim - self.rank], *self.window.size))
        planes, out, scratch = g.contiguous().view(-1, *self.window.out), gx.view(-1, *self.window.size), Scratch()
        count = self._planes_per_chunk(gx)
        for part, whole in zip(planes.split(count), out.split(count), strict=True):
            if divisor is not None:
                part = torch.div(part, divisor, out=scratch("part", part.shape, g.dtype))
            for i, line in enumerate(self.lines):
                shape = (len(whole), *self.window.size[: i + 1], *self.window.out[i + 1 :])
                to = whole if i == self.rank - 1 else scratch(line.axis, shape, g.dtype)
                part = line.spread(part, to, scratch)
        return gx
