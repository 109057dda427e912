"""Maps of one axis: which input cells an interval of outputs needs, and the axis parameters that relate just those.

    part(o, p)   for outputs [o, p): the cells they need, clipped to the axis; the outputs that the operator on these
                 cells has, [o, p) among them; and the parameters of the axis there, where
                 padding is padding here, too
    free(o, p)   the cells they need on an axis without ends
    open(o, p)   the part on an axis without ends, never padded: where padding is zeros, and zeros stand beyond the ends
    rate         input cells per output cell: outputs moved by its denominator need cells moved by its numerator

A map may compute more outputs than were requested, if its parameters cannot say less; those are cut off, and need not
be right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from .axis import Adaptive, Axis, Strided
from .resize import NEAREST, Resized

Interval = tuple[int, int]
ONE = Fraction(1)


class AxisPart(NamedTuple):
    """Some outputs of an axis: the cells they `need`, the outputs `gives` computed from those, and the axis parameters
    `local` there.
    """

    need: Interval
    gives: Interval
    local: Any = None


class Relation(Protocol):
    """Protocol of the maps of one axis: which input cells an interval of outputs needs. `rate` is None if the axis
    cannot be divided.
    """

    @property
    def rate(self) -> Fraction | None:
        """Return input cells per output cell; None if the axis has no parts."""

    def part(self, o: int, p: int) -> AxisPart:
        """Return what outputs [o, p) need, clipped to the axis, with the outputs and parameters of that."""

    def free(self, o: int, p: int) -> Interval:
        """Return the input cells that outputs [o, p) need, on an axis without ends."""


@dataclass(frozen=True, slots=True)
class IdentityMap:
    """Map of an axis on which every output reads the cell at its own position."""

    rate = ONE

    def part(self, o: int, p: int) -> AxisPart:
        """Return the cells [o, p) themselves."""
        return AxisPart((o, p), (o, p))

    def free(self, o: int, p: int) -> Interval:
        """Return the cells [o, p) themselves."""
        return o, p


CELL = IdentityMap()


@dataclass(frozen=True, slots=True)
class GlobalMap:
    """Map of an axis of `out` cells along which the operator has no parts: all outputs or none. `local`: its parameter
    there.
    """

    out: int
    local: Any = None
    rate = None

    def part(self, o: int, p: int) -> AxisPart:
        """Return the whole axis, whichever outputs [o, p) are requested."""
        return AxisPart((0, self.out), (0, self.out), self.local)

    def free(self, o: int, p: int) -> Interval:
        """Return the whole axis, whichever outputs [o, p) are requested."""
        return 0, self.out


@dataclass(frozen=True, slots=True)
class Windowed:
    """Map of a strided window, `axis`: output o reads the cells s*o - lo .. s*o - lo + span - 1."""

    axis: Strided

    @property
    def rate(self) -> Fraction:
        """Return input cells per output cell: the stride."""
        return Fraction(self.axis.stride)

    def free(self, o: int, p: int) -> Interval:
        """Return the input cells that outputs [o, p) need, on an axis without ends."""
        a = self.axis
        return a.stride * o - a.lo, a.stride * (p - 1) - a.lo + a.span

    def part(self, o: int, p: int) -> AxisPart:
        """Return the part for outputs [o, p); windows behind the last cell are counted from one that has it.

        Windows that end before the first cell, and those that begin behind the last, need none.
        """
        a = self.axis
        last = (a.size - 1 + a.lo) // a.stride  # window that begins before the end
        o = min(o, last)
        first, stop = self.free(o, p)
        low = self.free(max(o, -((a.span - 1 - a.lo) // a.stride)), p)[0]
        low = min(max(low, 0), a.size - 1)
        high = max(low + 1, min(self.free(o, min(p, last + 1))[1], a.size))
        hi = max(0, min(stop, a.size + a.hi) - high)  # [A1] cells beyond the padded extent are not counted
        return AxisPart(
            (low, high), (o, p), Strided(high - low, a.kernel, a.stride, a.dilation, low - first, hi, p - o)
        )

    def open(self, o: int, p: int) -> AxisPart:
        """Return the part of outputs [o, p) on an axis without ends: nothing is padded."""
        a, (first, stop) = self.axis, self.free(o, p)
        return AxisPart((first, stop), (o, p), Strided(stop - first, a.kernel, a.stride, a.dilation, 0, 0, p - o))


@dataclass(frozen=True, slots=True)
class Transposed:
    """Map of a transposed window, `axis`: output i reads the positions p whose window has cell i; `Windowed`
    backwards.
    """

    axis: Strided

    @property
    def rate(self) -> Fraction:
        """Return input cells per output cell: 1/stride."""
        return Fraction(1, self.axis.stride)

    def free(self, o: int, p: int) -> Interval:
        """Return the positions [first, stop), at least one, that outputs [o, p) need on an axis without ends.

        An output between two windows needs none; it is counted from the window before it.
        """
        a = self.axis
        first, stop = -((a.span - 1 - a.lo - o) // a.stride), (p - 1 + a.lo) // a.stride + 1
        first -= a.stride * first > o + a.lo
        return first, max(first + 1, stop)

    def part(self, o: int, p: int) -> AxisPart:
        """Return what outputs [o, p) need, clipped to the axis, with the axis between both."""
        a, (first, stop) = self.axis, self.free(o, p)
        first = max(0, min(first, a.out - 1))
        stop = max(first + 1, min(stop, a.out))
        return AxisPart((first, stop), (o, p), self.between((o, p), (first, stop)))

    def open(self, o: int, p: int) -> AxisPart:
        """Return the part of outputs [o, p) on an axis without ends: nothing is padded."""
        return AxisPart(self.free(o, p), (o, p), self.between((o, p), self.free(o, p)))

    def between(self, cells: Interval, outputs: Interval) -> Strided:
        """Return the axis between some cells and the outputs that read them."""
        a, (o, p), (first, stop) = self.axis, cells, outputs
        lo = a.lo + o - a.stride * first
        hi = max(0, a.stride * (stop - first - 1) + a.span - (p - o) - lo)
        return Strided(p - o, a.kernel, a.stride, a.dilation, lo, hi, stop - first)


@dataclass(frozen=True, slots=True)
class Sliced:
    """Map of a slice: output o reads cell start + step*o."""

    start: int
    step: int

    @property
    def rate(self) -> Fraction:
        """Return input cells per output cell: the step."""
        return Fraction(self.step)

    def free(self, o: int, p: int) -> Interval:
        """Return the input cells from the first to the last that outputs [o, p) read."""
        return self.start + self.step * o, self.start + self.step * (p - 1) + 1

    def part(self, o: int, p: int) -> AxisPart:
        """Return what outputs [o, p) need, with the range (start, stop, step) there."""
        first, stop = self.free(o, p) if o < p else (0, 0)
        return AxisPart((first, stop), (o, p), (0, stop - first, self.step))


@dataclass(frozen=True, slots=True)
class Padded:
    """Map of padding `size` cells: cell i stands at lo + (gap + 1)*i, zeros elsewhere; `Sliced` backwards."""

    size: int
    lo: int
    gap: int

    @property
    def rate(self) -> Fraction:
        """Return input cells per output cell: 1/(gap + 1)."""
        return Fraction(1, self.gap + 1)

    def free(self, o: int, p: int) -> Interval:
        """Return the cells that outputs [o, p) need; at least one, that behind them where they are all padding."""
        first = -((self.lo - o) // (self.gap + 1))
        return first, max(first, (p - 1 - self.lo) // (self.gap + 1)) + 1

    def part(self, o: int, p: int) -> AxisPart:
        """Return what outputs [o, p) need, at least one cell if there is any, with the widths (lo, hi, gap) there."""
        if not self.size:
            return AxisPart((0, 0), (o, p), (p - o, 0, self.gap))
        first, stop = self.free(o, p)
        first = max(0, min(first, self.size - 1))
        stop = max(first + 1, min(stop, self.size))
        at, end = (self.lo + (self.gap + 1) * i for i in (first, stop - 1))
        o, p = min(o, at), max(p, end + 1)
        return AxisPart((first, stop), (o, p), (at - o, p - end - 1, self.gap))


@dataclass(frozen=True, slots=True)
class JoinMap:
    """Map of an axis joined with those behind it: `count` outputs in place of each cell."""

    count: int

    @property
    def rate(self) -> Fraction:
        """Return input cells per output cell: 1/`count`, as each cell becomes so many."""
        return Fraction(1, self.count)

    def free(self, o: int, p: int) -> Interval:
        """Return the input cells that outputs [o, p) come from."""
        return o // self.count, -(-p // self.count)

    def part(self, o: int, p: int) -> AxisPart:
        """Return the input cells that outputs [o, p) come from, and all outputs of those."""
        first, stop = self.free(o, p)
        return AxisPart((first, stop), (first * self.count, stop * self.count))


@dataclass(frozen=True, slots=True)
class SplitMap:
    """Map of an axis cut into rows: `count` cells in place of each output; `JoinMap` backwards."""

    count: int

    @property
    def rate(self) -> Fraction:
        """Return input cells per output cell: `count`, the length of a row."""
        return Fraction(self.count)

    def free(self, o: int, p: int) -> Interval:
        """Return the input cells of rows [o, p)."""
        return o * self.count, p * self.count

    def part(self, o: int, p: int) -> AxisPart:
        """Return the input cells of rows [o, p), and those rows."""
        return AxisPart(self.free(o, p), (o, p))


@dataclass(frozen=True, slots=True)
class Interpolated:
    """Map of a resized axis: output o reads between the cells at step*o + offset.

    Outputs are counted from one that stands a whole number of cells further, so that the formula there is the same.
    """

    axis: Resized

    @property
    def rate(self) -> Fraction:
        """Return input cells per output cell: the step."""
        return self.axis.step

    def _pattern_start(self, o: int, first: int) -> tuple[int, int]:
        """Return (output, cell): the last pair at which the step's pattern of cells starts again, not beyond output `o`
        and cell `first`.

        What a part reads is counted from there.
        """
        cells, outs = self.axis.step.as_integer_ratio()
        turns = min(first // cells, o // outs)
        return turns * outs, turns * cells

    def free(self, o: int, p: int) -> Interval:
        """Return the input cells that outputs [o, p) need, on an axis without ends."""
        first, stop = self._cells_read(o, p)
        return self._pattern_start(o, first)[1], stop

    def _cells_read(self, o: int, p: int) -> Interval:
        """Return the interval [first, stop) of cells that outputs [o, p) read, on an axis without ends."""
        how, more = (math.floor, 1) if self.axis.how == "linear" else (NEAREST[self.axis.how], 0)
        return how(self.axis.source(o)), how(self.axis.source(p - 1)) + more + 1

    def part(self, o: int, p: int) -> AxisPart:
        """Return what outputs [o, p) need, clipped to the axis, with how many outputs that gives."""
        first, last = (
            min(max(i, 0), self.axis.n - 1) for i in (self._cells_read(o, p)[0], self._cells_read(o, p)[1] - 1)
        )
        o, low = self._pattern_start(o, first)
        return AxisPart((low, last + 1), (o, p), p - o)


def windowed(axis: Axis) -> Relation:
    """Return the map of a window's axis; a GlobalMap for adaptive cells of several sizes, which have no parts."""
    if isinstance(axis, Adaptive):
        each = axis.size // axis.out
        return (
            GlobalMap(axis.out, axis)
            if axis.size % axis.out
            else Windowed(Strided(axis.size, each, each, 1, 0, 0, axis.out))
        )
    return Windowed(axis)


def transposed(axis: Axis) -> Relation:
    """Return the map of a transposed window's axis; a GlobalMap for adaptive cells, which have no parts here."""
    return Transposed(axis) if isinstance(axis, Strided) else GlobalMap(axis.size, axis)
