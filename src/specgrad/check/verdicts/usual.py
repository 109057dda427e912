"""Is a layer's error usual? An estimate beside the proof: what correct float32 executions of this layer show.

With e the error of a cell and s its estimated deviation (specgrad.rounding.usual_error), z = e/s. A layer within its
proven allowance is unusual if one of these is far beyond what correct executions reached (benchmarks/usual.txt):

    rms      root mean square of z                            above 2
    channel  of one output channel, of 8 cells or more        above 4
    peak     the largest abs(z)                               above 16
    gain     slope of e over y, abs above 4u, and its t       above 8

Systematic faults (a gain, an offset, a lost term, rounded weights) show in the means long before one cell does. Cells
that hold the same number often have the same operands, and round alike: in means they count as one. Where terms come
in runs of equal ones, errors of all cells may have one sign, and no slope is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specgrad.errors import UnsupportedError
from specgrad.graph.graph import CONSTANT, INPUT, Graph
from specgrad.rounding import FORMATS
from specgrad.rounding.usual_error import UsualError, usual_error
from specgrad.scalar import Array
from specgrad.window.footprint import same_cell

MAX_RMS, MAX_CHANNEL, MAX_PEAK = 2.0, 4.0, 16.0  # of z
MAX_GAIN, MIN_T = 4 * FORMATS["float32"].u, 8.0
MIN_CHANNEL_CELLS, MIN_CELLS = 8, 32  # of a channel, and of a layer, for a mean
RUN_FACTOR = 10.0  # times the estimated deviation; docs/guide/usual.md says which runs it covered
ESTIMATED = "an estimate, not a proof"


@dataclass(frozen=True)
class Usual:
    """How one layer's errors e compare with their estimated deviations s, by statistics of z = e/s.

    rms       root mean square of z
    channel   the largest root mean square of z over one output channel
    peak      the largest abs(z)
    gain, t   slope of e over the value, and its t statistic
    scale     root mean square of s: what is usual here, in the units of the layer
    seen      root mean square of e
    cells     how many cells were compared; of fewer than 32 the peak alone counts. Where something is unusual, cells
              that hold the same number were counted as one
    """

    rms: float
    channel: float
    peak: float
    gain: float
    t: float
    scale: float
    seen: float
    cells: int

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return what is unusual, in words, one text each; () if nothing is."""
        enough = self.cells >= MIN_CELLS
        texts = []
        if enough and self.rms > MAX_RMS:
            texts.append(f"errors are {self.rms:.2g} times what float32 usually shows here")
        elif self.channel > MAX_CHANNEL:
            texts.append(f"errors of one channel are {self.channel:.2g} times what float32 usually shows here")
        elif self.peak > MAX_PEAK:
            texts.append(f"one cell is off by {self.peak:.2g} times what float32 usually shows here")
        if enough and abs(self.gain) > MAX_GAIN and self.t > MIN_T:
            size, sign = ("large", "+") if self.gain > 0 else ("small", "-")
            texts.append(f"all values are too {size}, by a factor of 1 {sign} {abs(self.gain):.1e}")
        return tuple(texts)

    @property
    def times(self) -> float:
        """How many times the usual size the errors have: their root mean square from MIN_CELLS (32) cells on, below
        that the largest error over a usual peak, which is 4.
        """
        return self.rms if self.cells >= MIN_CELLS else self.peak / 4

    def to_json(self) -> dict[str, Any]:
        """Return all statistics as JSON data by name, `unusual` being the reasons, marked as `estimated`."""
        return {
            "estimated": True,
            "scale": self.scale,
            "seen": self.seen,
            "rms": self.rms,
            "channel": self.channel,
            "peak": self.peak,
            "gain": self.gain,
            "cells": self.cells,
            "unusual": list(self.reasons),
        }


@dataclass(frozen=True)
class RunEstimate:
    """How far the outputs of a run were off, beside the estimated deviation of a correct one.

    difference   the largest difference from the exact outputs, of the output where it is largest beside what is usual
    usual        the largest estimated deviation of that output
    """

    difference: float
    usual: float

    @property
    def times(self) -> float:
        """How many times the usual deviation the difference is."""
        return self.difference / self.usual if self.usual else (0.0 if not self.difference else np.inf)

    @property
    def is_unusual(self) -> bool:
        """Whether the difference is more than RUN_FACTOR deviations."""
        return self.times > RUN_FACTOR

    def __str__(self) -> str:
        than = "more than" if self.is_unusual else "within"
        text = (
            f"off by {self.difference:.2g}, {than} {RUN_FACTOR:g} times {self.usual:.2g}, the deviation that is usual"
        )
        return f"{text} ({ESTIMATED})"

    def to_json(self) -> dict[str, Any]:
        """Return JSON data, marked as `estimated`: the `difference`, what is `usual`, the `factor` beyond which it is
        `unusual`, and whether it is.
        """
        return {
            "estimated": True,
            "difference": self.difference,
            "usual": self.usual,
            "factor": RUN_FACTOR,
            "unusual": self.is_unusual,
        }


def compare_run(outputs: Sequence[Array], estimate: UsualError) -> RunEstimate | None:
    """Return how far the outputs of a run are off, beside what is usual by `estimate`, of the worst output.

    None where nothing is estimated. Cells of which nothing is estimated, and outputs that hold positions, are left out.
    """
    each = []
    for got, y, s in zip(outputs, estimate.values, estimate.deviations, strict=False):
        if got.shape != y.shape or got.dtype.kind != "f":
            continue
        known = np.isfinite(s) & np.isfinite(y)
        if not known.any():
            continue
        apart = np.abs(np.where(known, got, 0).astype(np.float64) - np.where(known, y, 0))
        apart = np.where(np.isnan(apart), np.inf, apart)  # a NaN is no number that a correct run gives there
        each.append(RunEstimate(float(apart.max()), float(s[known].max())))
    return max(each, key=lambda e: e.times) if each else None


def usual_of(part: Graph, given: Sequence[Array], got: Array, known: Array, backend: str) -> Usual | None:
    """Return how the errors of one layer compare with what is usual; None where nothing is estimated.

    part    the layer, from the runtime's own inputs `given` to its output `got`
    known   the cells whose proven allowance is finite
    backend   "numpy" or "torch", computes the estimate
    """
    if got.dtype != np.float32 or not is_estimated(part):
        return None
    try:
        estimate = usual_error(part, given, backend)
    except UnsupportedError:
        return None
    return compare(got, estimate, known, channel_axis(part))


def is_estimated(part: Graph) -> bool:
    """Return whether the layer `part` has a sum and no function such as exp, whose errors are each runtime's own."""
    return sums(part) and not any(n.op.transcendental for n in part.nodes)


def sums(part: Graph) -> bool:
    """Return whether the layer `part` has a sum; elsewhere the proof leaves no room that an estimate could narrow."""
    return any(n.op.roundings is not None and n.op.footprint is not same_cell for n in part.nodes)


def channel_axis(part: Graph) -> int:
    """Return the axis of output channels of a layer, the graph `part`, from the end: before a window's axes, else the
    last.
    """
    windows = (n.params["window"].rank for n in part.nodes if n.op not in (INPUT, CONSTANT) and "window" in n.params)
    return -1 - next(windows, 0)


def compare(got: Array, estimate: UsualError, known: Array, axis: int) -> Usual | None:
    """Return the statistics of z = (got - value)/deviation over the `known` cells; None if there are none.

    Values and deviations come from `estimate`; `axis` numbers channels.
    """
    y, s = estimate.values[0], estimate.deviations[0]
    known = known & np.isfinite(s) & (s > 0) & np.isfinite(got) & np.isfinite(y) & ~estimate.unsure[0]
    if not known.any():
        return None
    s = np.where(known, s, 1.0)
    errors = _Errors(np.where(known, got.astype(np.float64) - y, 0.0), np.where(known, y, 0.0), s, known * 1.0, axis)
    usual = errors.usual(estimate.alike[0])
    if not usual.reasons:
        return usual
    return replace(errors.counted_once().usual(estimate.alike[0]), peak=usual.peak)


@dataclass(frozen=True, eq=False)
class _Errors:
    """Errors e of cells with values y and usual sizes s, and how much each cell counts in a mean (`weight`, 0: not at
    all); `axis` numbers channels.
    """

    e: Array
    y: Array
    s: Array
    weight: Array
    axis: int

    def counted_once(self) -> _Errors:
        """Return the errors with cells that hold the same float32 counted as one, together."""
        _, group = np.unique(self.y.astype(np.float32), return_inverse=True)
        group = group.reshape(self.y.shape)
        return replace(self, weight=self.weight / np.maximum(np.bincount(group.ravel(), self.weight.ravel()), 1)[group])

    def usual(self, alike: bool) -> Usual:
        """Return the statistics of the errors over their usual size; the slope does not count where the sums' terms are
        alike.
        """
        z, w, count = self.e / self.s, self.y / self.s, float(self.weight.sum())
        size = float((self.weight * w**2).sum())
        gain = float((self.weight * z * w).sum()) / size if size else 0.0
        return Usual(
            rms=self._root_mean_square(z),
            channel=self._largest_channel(z),
            peak=float(np.abs(z).max()),
            gain=gain,
            t=0.0 if alike else abs(gain) * size**0.5,
            scale=self._root_mean_square(self.s),
            seen=self._root_mean_square(self.e),
            cells=round(count),
        )

    def _root_mean_square(self, x: Array) -> float:
        """Return the root mean square of x."""
        return float(np.sqrt((self.weight * x**2).sum() / self.weight.sum()))

    def _largest_channel(self, z: Array) -> float:
        """Return the largest root mean square of z over one channel that has cells enough; 0 if none has."""
        if z.ndim < -self.axis:
            return 0.0
        others = tuple(i for i in range(z.ndim) if i != z.ndim + self.axis)
        cells = self.weight.sum(others)
        enough = cells >= MIN_CHANNEL_CELLS
        return float(np.sqrt(((self.weight * z**2).sum(others)[enough] / cells[enough]).max(initial=0.0)))
