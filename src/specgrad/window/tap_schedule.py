"""Schedules of passes over a window: taps as slices of the padded input, residues of a stride, doublings.

Engines compute with these numbers; where a cell stands is decided here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .axis import Strided, doubling
from .sizes import Shape
from .window import Window


class AxisStep(NamedTuple):
    """One axis of a correlation: tap t of output o reads cell stride*o + dilation*t - before; `after` may be < 0."""

    stride: int
    dilation: int
    before: int
    after: int

    def out(self, size: int, kernel: int) -> int:
        """Return the output size of an axis of `size` cells with a kernel of so many taps."""
        return (size + self.before + self.after - self.dilation * (kernel - 1) - 1) // self.stride + 1

    def slice(self, tap: int, out: int) -> tuple[int, int, int]:
        """Return start, stop and step of what a tap reads of the padded input for `out` outputs.

        >>> AxisStep(2, 3, 1, 0).slice(1, 4)
        (3, 10, 2)
        """
        start = self.dilation * tap
        return start, start + self.stride * (out - 1) + 1, self.stride


def step(axis: Strided) -> AxisStep:
    """Return a strided axis as one step of a correlation: stride, dilation and padding."""
    return AxisStep(axis.stride, axis.dilation, *axis.pads)


def steps(window: Window) -> tuple[AxisStep, ...]:
    """Return the strided axes of a window as steps of a correlation, adaptive ones left out."""
    return tuple(step(a) for a in window.axes if isinstance(a, Strided))


# --- residues of a stride ---------------------------------------------------------------------------------------------


class Phase(NamedTuple):
    """The cells with one residue of the stride: the taps that reach them, last first, and `step`, which reads them as a
    correlation.
    """

    taps: list[int]
    step: AxisStep


def phase(axis: Strided, residue: int) -> Phase | None:
    """Return how cells u = s*q + r (r is `residue`, u counts from -lo) gather x[q - c - m*e'] over the taps with e*t =
    r + s*(c + m*e').

    None if no tap reaches them.
    """
    s, e = axis.stride, axis.dilation
    taps = [t for t in range(axis.kernel) if e * t % s == residue]
    if not taps:
        return None
    dilation = e // math.gcd(s, e)
    lo = e * taps[-1] // s
    hi = axis.phase_count() - 1 + dilation * (len(taps) - 1) + 1 - axis.out - lo
    return Phase(taps[::-1], AxisStep(1, dilation, lo, hi))


def residues(axis: Strided) -> list[tuple[int, int]]:
    """Return (start, residue) of every tap of the axis in the padded input, split by the residues of the stride.

    >>> residues(Strided(9, 3, 2, 1, 0, 0, 4))
    [(0, 0), (0, 1), (1, 0)]
    """
    return [divmod(axis.dilation * t, axis.stride) for t in range(axis.kernel)]


def folded(axis: Strided, cells: int) -> tuple[int, int]:
    """Return how many cells to add to `cells` so that the axis' stride divides them, and how many strides they are
    then.
    """
    more = -cells % axis.stride
    return more, (cells + more) // axis.stride


# --- doublings --------------------------------------------------------------------------------------------------------


def flat_strides(size: Shape) -> list[int]:
    """Return how far apart neighbours along every axis stand in a flattened plane of `size`."""
    return [math.prod(size[axis + 1 :]) for axis in range(len(size))]


def doubling_shifts(window: Window) -> list[int]:
    """Return the flat shifts of all doubling passes, axis by axis from the last, so that ties keep row-major order."""
    axes = zip(window.kernel, window.steps().dilation, flat_strides(window.size), strict=True)
    return [shift * e * apart for k, e, apart in reversed(list(axes)) for shift in doubling(k)]


class Add(NamedTuple):
    """One pass of a sum: adds to the sums so far either themselves (`doubles`) or the cells that these began with,
    `shift` away; `first` of an axis: the sums so far are its cells.
    """

    first: bool
    doubles: bool
    shift: int


def additions(window: Window) -> list[Add]:
    """Return passes that sum windows of k cells by the bits of k, the highest first: double, and add one cell per set
    bit."""
    passes = []
    for k, e, apart in zip(window.kernel, window.steps().dilation, flat_strides(window.size), strict=True):
        width = 1
        for bit in f"{k:b}"[1:]:
            passes.append(Add(width == 1, True, width * e * apart))
            width *= 2
            if bit == "1":
                passes.append(Add(False, False, width * e * apart))
                width += 1
    return passes


def anchor_strides(window: Window) -> list[int]:
    """Return how far apart the first cells of neighbouring windows stand in a flattened plane, per axis."""
    return [apart * s for apart, s in zip(flat_strides(window.size), window.steps().stride, strict=True)]


# --- taps as slices of the bare input ---------------------------------------------------------------------------------


class Write(NamedTuple):
    """What a tap writes to the cells of one residue: the outputs `outs`, and their `places` among those cells."""

    tap: int
    outs: slice
    places: slice


class ResidueClass(NamedTuple):
    """The cells `where` of one residue of the stride, how many they are, and the taps (`writes`) that write there;
    residues do not overlap.
    """

    where: slice
    cells: int
    writes: list[Write]


def whole_tap(axis: Strided) -> int | None:
    """Return the first tap of the axis that every output reads inside the input; None if there is none."""
    return next((t for t in range(axis.kernel) if axis.tap(t)[0] == slice(0, axis.out)), None)


def written(axis: Strided) -> list[ResidueClass]:
    """Return the adjoint of reading taps of the axis: where outputs add to cells, one residue class of the stride after
    the other.

    >>> [(c.where, [w.tap for w in c.writes]) for c in written(Strided(8, 3, 2, 1, 1, 1, 4))]
    [(slice(0, 8, 2), [1]), (slice(1, 8, 2), [0, 2])]
    """
    groups = []
    for residue in range(min(axis.stride, axis.size)):
        cells = len(range(residue, axis.size, axis.stride))
        writes = []
        for tap in range(axis.kernel):
            outs, ins = axis.tap(tap)
            if outs.stop > outs.start and ins.start % axis.stride == residue:
                first = ins.start // axis.stride
                writes.append(Write(tap, outs, slice(first, first + outs.stop - outs.start)))
        groups.append(ResidueClass(slice(residue, axis.size, axis.stride), cells, writes))
    return groups
