"""Patches: boxes of cells that a position of a later layer depends on, and that move with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..scalar import Array
from .axis import Strided
from .axis_maps import Interval, Transposed, Windowed
from .sizes import Shape
from .window import Window


@dataclass(frozen=True, slots=True)
class Patch:
    """Per axis the cells speed*p + start .. speed*p + start + size - 1 that belong to a position p.

    >>> from specgrad.window import strided
    >>> w = strided("max_pool", (8,), (3,), stride=(2,), padding=((1, 1),))
    >>> cell = Patch((1,), (0,), (1,))
    >>> cell.read_through(w)
    Patch(speed=(2,), start=(-1,), size=(3,))
    >>> cell.read_through(w).cells(np.array([[0], [2]]), (8,))
    array([[8, 0, 1],
           [3, 4, 5]])
    """

    speed: Shape
    start: Shape
    size: Shape

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """Return, per axis, the interval of cells that the patch at position 0 covers."""
        return tuple((s, s + n) for s, n in zip(self.start, self.size, strict=True))

    def read_through(self, window: Window) -> Patch | None:
        """Return the patch that the window reads, this patch being its outputs; None for adaptive axes."""
        axes = [a for a in window.axes if isinstance(a, Strided)]
        if len(axes) != len(self.size):
            return None
        speed = tuple(a.stride * s for a, s in zip(axes, self.speed, strict=True))
        read = [Windowed(a).free(*outputs) for a, outputs in zip(axes, self.intervals, strict=True)]
        return Patch(speed, tuple(m for m, _ in read), tuple(n - m for m, n in read))

    def read_back(self, window: Window) -> Patch | None:
        """Return the patch of outputs that read a cell of this patch, this patch being the window's inputs.

        The relation backwards moves with p where `speed` is a multiple of the stride; None elsewhere, and where strides
        leave cells that no output reads.

        >>> from specgrad.window import strided
        >>> w = strided("conv_transpose", (8,), (2,), stride=(2,), padding=((0, 0),))
        >>> Patch((2,), (1,), (1,)).read_back(w)
        Patch(speed=(1,), start=(0,), size=(1,))
        """
        axes = [a for a in window.axes if isinstance(a, Strided)]
        fits = len(axes) == len(self.size)
        if not fits or any(s % a.stride or a.span < a.stride for a, s in zip(axes, self.speed, strict=True)):
            return None
        read = [Transposed(a).free(*cells) for a, cells in zip(axes, self.intervals, strict=True)]
        speed = tuple(s // a.stride for a, s in zip(axes, self.speed, strict=True))
        return Patch(speed, tuple(m for m, _ in read), tuple(n - m for m, n in read))

    def back_window(self, window: Window) -> Window:
        """Return the window between this patch, as its inputs, and what reads it (`read_back`)."""
        below = self.read_back(window)
        assert below is not None
        axes = [a for a in window.axes if isinstance(a, Strided)]
        given = zip(axes, self.intervals, below.intervals, strict=True)
        return Window(tuple(Transposed(a).between(cells, outputs) for a, cells, outputs in given))

    def window(self, window: Window) -> Window:
        """Return the window between this patch, as its outputs, and what it reads."""
        axes = [a for a in window.axes if isinstance(a, Strided)]
        return Window(tuple(a.over(n) for a, n in zip(axes, self.size, strict=True)))

    def cells(self, positions: Array, sizes: Shape) -> Array:
        """Return flat indices (positions, *size) of the cells in an array of `sizes`; one past the last for outside
        ones."""
        flat, outside = np.zeros((len(positions), *self.size), dtype=np.int64), np.zeros((), dtype=bool)
        for axis, n in enumerate(sizes):
            shape = (len(positions), *(1,) * axis, self.size[axis], *(1,) * (len(sizes) - axis - 1))
            first = self.speed[axis] * positions[:, axis] + self.start[axis]
            cell = (first[:, None] + np.arange(self.size[axis])).reshape(shape)
            flat, outside = flat * n + cell, outside | (cell < 0) | (cell >= n)
        return np.where(outside, math.prod(sizes), flat)

    def union(self, other: Patch) -> Patch | None:
        """Return the smallest patch around this and `other`; None if they move at different speeds."""
        if self.speed != other.speed:
            return None
        start = tuple(map(min, self.start, other.start))
        ends = (max(s + n, t + m) for s, n, t, m in zip(self.start, self.size, other.start, other.size, strict=True))
        return Patch(self.speed, start, tuple(end - s for end, s in zip(ends, start, strict=True)))

    def margins(self, within: Patch) -> tuple[tuple[int, int], ...]:
        """Return the cells before and after this patch in `within`, a larger one, per axis."""
        before = [s - t for s, t in zip(self.start, within.start, strict=True)]
        return tuple((b, m - n - b) for b, n, m in zip(before, self.size, within.size, strict=True))
