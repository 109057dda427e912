"""Resized axes: the exact coordinate that output cell o reads at, and how far computed ones may be from it.

An axis of n cells becomes one of `out` cells. Cell o looks at src(o) = slope*o + offset, in input cells:

    half_pixel            (o + 1/2)*step - 1/2          step: input cells per output cell, n/out or 1/scale
    pytorch_half_pixel    the same; 0 where out = 1
    half_pixel_symmetric  the same, moved by n/2*(1 - out*step/n): the middle stays the middle
    asymmetric            o*step
    align_corners         o*(n - 1)/(out - 1); 0 where out = 1
    tf_half_pixel_for_nn  (o + 1/2)*step

`linear` reads the cells floor(src) and floor(src) + 1, with weights 1 - l and l for l = src - floor(src); the other
ways of reading take one cell. Beyond the ends the last cell is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import ParameterError, ShapeError

Whole = NDArray[np.int64]
Real = NDArray[np.float64]
HALF = Fraction(1, 2)
NEAREST: dict[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda v: math.ceil(v - HALF),
    "round_prefer_ceil": lambda v: math.floor(v + HALF),
    "floor": math.floor,
    "ceil": math.ceil,
}
WHERE = (
    "half_pixel",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "asymmetric",
    "align_corners",
    "tf_half_pixel_for_nn",
)
LARGEST_EXACT = 2**20
MAX_OUT = 2**22  # beyond, float32 coordinates say nothing


@dataclass(frozen=True)
class Resized:
    """One axis resized from `n` to `out` cells: coordinates by the formula `where`, with `step` input cells per output
    cell, read by `how` (linear, or a rounding).

    ParameterError for words that are not in WHERE, or neither "linear" nor in NEAREST; ShapeError for sizes that are
    not positive or over MAX_OUT.
    """

    n: int
    out: int
    step: Fraction
    where: str
    how: str

    def __post_init__(self) -> None:
        if self.where not in WHERE:
            raise ParameterError("resize", f"where must be one of {', '.join(WHERE)}; got {self.where!r}", rule="P5")
        if self.how != "linear" and self.how not in NEAREST:
            known = ", ".join(("linear", *NEAREST))
            raise ParameterError("resize", f"how must be one of {known}; got {self.how!r}", rule="P5")
        if self.n < 1 or not 1 <= self.out <= MAX_OUT or not self.step > 0:
            text = (
                f"needs cells, 1 to {MAX_OUT} output cells and a positive step; got {self.n}, {self.out}, {self.step}"
            )
            raise ShapeError("resize", text, rule="W1")

    @cached_property
    def line(self) -> tuple[Fraction, Fraction]:
        """Return slope and offset of the coordinate src(o) = slope*o + offset."""
        if self.where == "align_corners":
            return (Fraction(self.n - 1, self.out - 1) if self.out > 1 else Fraction(0)), Fraction(0)
        if self.where == "asymmetric":
            return self.step, Fraction(0)
        if self.where == "tf_half_pixel_for_nn":
            return self.step, self.step / 2
        if self.where == "pytorch_half_pixel" and self.out == 1:
            return Fraction(0), Fraction(0)
        moved = Fraction(self.n) / 2 - self.out * self.step / 2 if self.where == "half_pixel_symmetric" else 0
        return self.step, (self.step - 1) / 2 + moved

    def source(self, o: int) -> Fraction:
        """Return the exact coordinate of output o, in input cells."""
        slope, offset = self.line
        return slope * o + offset

    @property
    def floats_are_exact(self) -> bool:
        """Return whether every formula gives src itself in float32: a step that is a power of two, and few cells."""
        slope, few = self.line[0], self.n * self.out <= LARGEST_EXACT
        power = (
            slope == 0 or (slope.numerator & (slope.numerator - 1)) + (slope.denominator & (slope.denominator - 1)) == 0
        )
        return few and power and self.where != "half_pixel_symmetric"

    def misses(self, unit: float) -> Real:
        """Return (out,): how far a computed src may be from the exact one; `unit` is relative to its terms."""
        if self.floats_are_exact:
            return np.zeros(self.out)
        slope, offset = map(float, self.line)
        moved = float(self.n) if self.where == "half_pixel_symmetric" else 0.0
        terms = slope * (np.arange(self.out) + 1.0) + (abs(offset) + 1.0 + moved)
        return np.asarray(terms * unit, dtype=np.float64)

    @cached_property
    def taps(self) -> tuple[Whole, list[list[Fraction]]]:
        """Return the cells that are read, (taps, out), and their exact weights."""
        if self.how != "linear":
            near = [NEAREST[self.how](self.source(o)) for o in range(self.out)]
            return np.clip([near], 0, self.n - 1), [[Fraction(1)] * self.out]
        sources = [min(max(self.source(o), Fraction(0)), Fraction(self.n - 1)) for o in range(self.out)]
        first = [math.floor(s) for s in sources]
        high = [s - i for s, i in zip(sources, first, strict=True)]
        cells = np.array([first, [i + 1 for i in first]])
        return np.clip(cells, 0, self.n - 1), [[1 - h for h in high], high]

    @cached_property
    def cells(self) -> Whole:
        """Return the input cells that every output reads, as integers (taps, out)."""
        return np.asarray(self.taps[0], dtype=np.int64)

    @cached_property
    def weights(self) -> Real:
        """Return the weights, (taps, out), each the nearest float64."""
        return np.array([[float(w) for w in row] for row in self.taps[1]])

    def reached(self, unit: float) -> tuple[Whole, Whole, Real]:
        """Return, (out,) each: the first and last cell that a computed src may lead to, and how far it may be off.

        Read linearly, the cells of its piece count, and those of the pieces beside it where src may lie there. `unit`
        is the unit roundoff of the runtime's coordinates.
        """
        off = self.misses(unit)
        first, last = np.zeros(self.out, dtype=np.int64), np.zeros(self.out, dtype=np.int64)
        how, more = (math.floor, 1) if self.how == "linear" else (NEAREST[self.how], 0)
        for o in range(self.out):
            source, miss = self.source(o), Fraction(float(off[o]))
            first[o], last[o] = how(source - miss), how(source + miss) + more
        return np.clip(first, 0, self.n - 1), np.clip(last, 0, self.n - 1), off


@lru_cache(maxsize=256)
def resized(n: int, out: int, step: Fraction, where: str, how: str) -> Resized:
    """Return an axis of n cells resized to `out`, `step` input cells apart, cached with its taps.

    `where` is the formula of the coordinate, `how` linear or a rounding to a cell.

    >>> axis = resized(2, 3, Fraction(2, 3), "half_pixel", "linear")
    >>> axis.cells.tolist(), axis.weights.round(3).tolist()
    ([[0, 0, 1], [1, 1, 1]], [[1.0, 0.5, 1.0], [0.0, 0.5, 0.0]])
    """
    return Resized(n, out, step, where, how)
