"""Lines of activations (functions of one cell) on the ranges of every leaf, in fixed point, and the way back through
them.

f is one of specgrad.proof.exact.activations, known at the points j/2**grid of a grid by enclosures of f and f'. A
range l..u of a leaf is widened to points L <= l, u <= U of the grid, and a line is s*(x - m) + h with a point m. For
any slope s and any point m the line lies below f on L..U if h is no more than

    f(e) - s*(e - m)                                           for both ends e of every piece that is not convex
    f(t) - s*(t - m) - max((s - f'(t))*(q - t), (f'(t) - s)*(t - p), 0)      for a point t of a convex piece p..q

(f lies above its tangent at t; none of our functions has two convex pieces, nor has its negative). Lines above f are
lines below -f, negated. So slopes and points may be chosen in any way: the best at the middle of L..U, of

    the chord; where f is piecewise linear its own slopes; the tangent through the far end of a piece that bends the
    other way, or at the middle if that one passes beyond that end; no slope at all
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.graph.graph import Node
from specgrad.scalar import Array

from ..base.rationals import (
    MAX_BOUND_BITS,
    Bound,
    Coefficients,
    ReplayError,
    floor_scaled,
    rational,
    rows_of_leaves,
    shift_right_saturating,
    shortened,
)
from ..exact.activations import EnclosedFunction, function_of, steepest

GRID_FRAC_BITS = 12  # binary places of the grid's points, or as many as cells and numbers ask for
POINT_BITS = 26  # bits of a point's number
SLOPE_BITS = 31  # bits of slopes: with 28 of a distance and 2 of sums they stay below 2**62
MAX_SLOPE_FRAC_BITS = 24  # binary places of slopes, at most
BISECTIONS = 8
CONVEX_MINIMUM = {"hardswish": rational(-3, 2)}  # where a convex piece that does not rise or fall throughout is least


@dataclass(frozen=True, eq=False)
class TangentLines:
    """Lines slope*(x - point) + height per leaf and cell, int64 (leaves, cells).

    slope    over 2**(frac_bits of slopes)
    point    over 2**frac_bits of the input
    height   over 2**frac_bits of the node
    """

    slope: Array
    point: Array
    height: Array

    def for_rows(self, leaf: Array) -> TangentLines:
        """Return the lines per row, given the leaf of each row."""
        return TangentLines(*(rows_of_leaves(v, leaf) for v in (self.slope, self.point, self.height)))


@dataclass(frozen=True, eq=False)
class CurveLines:
    """Lines below and above one activation on every leaf, and bounds (least, most) of its values.

    slopes   frac_bits of slopes
    """

    below: TangentLines
    above: TangentLines
    least: Array
    most: Array
    slopes: int

    def for_rows(self, leaf: Array) -> CurveLines:
        """Return the lines per row, given the leaf of each row; bounds stay as they are."""
        return CurveLines(self.below.for_rows(leaf), self.above.for_rows(leaf), self.least, self.most, self.slopes)

    def through(self, y: Coefficients, bound: Bound, size: Array, read: int, frac_bits: int) -> Coefficients:
        """Return coefficients of the input from those of f; constants are added to `bound`.

        The lines must be per row of y: call `for_rows` first.

        size        not below the sum of the input's absolute values, over 2**read, one number or one per row
        frac_bits   of the heights
        """
        pairs = ((self.below.slope, self.above.slope), (self.below.point, self.above.point))
        slope, point = (np.where(y.a > 0, *pair) for pair in pairs)
        y.into(bound, np.where(y.a > 0, self.below.height, self.above.height), frac_bits)
        c = shortened(y.scaled(y.a * slope, self.slopes), bound, size + np.abs(point).sum(1), read)
        c.into(bound, -point, read)
        return c


# --- f on a grid ------------------------------------------------------------------------------------------------------


class FunctionTable:
    """Enclosures of f and f' at points of a grid, computed on first use.

    grid        x = j / 2**grid
    frac_bits   of values: those of the node
    slopes      frac_bits of slopes
    """

    def __init__(self, node: Node, grid: int, frac_bits: int, slopes: int) -> None:
        self.f: EnclosedFunction = function_of(node)
        self.grid, self.frac_bits, self.slopes = grid, frac_bits, slopes
        self.lowest = CONVEX_MINIMUM.get(node.op.name)
        self._values: dict[int, tuple[int, int]] = {}
        self._slopes: list[dict[int, tuple[int, int]]] = [{} for _ in self.f.signs]
        self.breakpoints = [
            (floor_scaled(b, grid), -floor_scaled(-b, grid), _ends_outward(self.f.value(b), frac_bits))
            for b in self.f.breakpoints
        ]

    @staticmethod
    def on(node: Node, low: Array, high: Array, read: int, frac_bits: int) -> FunctionTable:
        """Return the table for a node whose input lies in low..high, over 2**read, on the whole box.

        ReplayError if those numbers are too large. Values are over 2**frac_bits.
        """
        largest = max(int(high.max()), -int(low.min()), 1)
        grid = min(
            read, max(GRID_FRAC_BITS, read - 27 + low.size.bit_length()), POINT_BITS - largest.bit_length() + read
        )
        if grid < 0:
            raise ReplayError(f"node {node.name} reads numbers that are too large for lines on leaves")
        step = rational(1, 1 << grid)
        ends = (rational(int(end), 1 << read) for end in (low.min(), high.max()))
        steep = steepest(function_of(node), next(ends) - step, next(ends) + step)
        return FunctionTable(
            node, grid, frac_bits, min(MAX_SLOPE_FRAC_BITS, SLOPE_BITS - 1 - int(steep.p // steep.q).bit_length())
        )

    def values(self, j: Array) -> tuple[Array, Array]:
        """Return lower and upper bounds of f at x = j / 2**grid, integers over 2**frac_bits, in the shape of j."""
        return _enclosures_at(j, self._values, lambda x: _ends_outward(self.f.value(x), self.frac_bits), self.grid)

    def derivatives(self, j: Array, piece: int) -> tuple[Array, Array]:
        """Return lower and upper bounds of f' at grid points `j` of the piece `piece` of f, over 2**slopes."""
        return _enclosures_at(
            j, self._slopes[piece], lambda x: _ends_outward(self.f.slope(x, piece), self.slopes), self.grid
        )


def _enclosures_at(
    j: Array, known: dict[int, tuple[int, int]], made: Callable[[Any], tuple[int, int]], grid: int
) -> tuple[Array, Array]:
    """Return the two ends at grid points j from the cache `known`; missing ones are made by `made` and entered there.

    Grid point k is k / 2**grid.
    """
    some, at = np.unique(j, return_inverse=True)
    for k in some.tolist():
        if k not in known:
            known[k] = made(rational(k, 1 << grid))
    ends = np.array([known[k] for k in some.tolist()], dtype=np.int64).reshape(-1, 2)[at.reshape(j.shape)]
    return ends[..., 0], ends[..., 1]


def _ends_outward(given: tuple[Any, Any], frac_bits: int) -> tuple[int, int]:
    """Return the rationals `given`, (low, high), times 2**frac_bits, rounded outward; raise ReplayError beyond 60
    bits.
    """
    low, high = floor_scaled(given[0], frac_bits), -floor_scaled(-given[1], frac_bits)
    if low <= -(1 << MAX_BOUND_BITS) or high >= 1 << MAX_BOUND_BITS:
        raise ReplayError("a function is too large for lines on leaves")
    return low, high


# --- lines ------------------------------------------------------------------------------------------------------------


def curve_lines(table: FunctionTable, low: Array, high: Array, read: int, least: Array, most: Array) -> CurveLines:
    """Return the lines of an activation whose input lies in low..high (leaves, cells), over 2**read.

    least, most   (cells), over 2**frac_bits of the node: bounds that f has in any case
    """
    shift = read - table.grid
    first, last = np.minimum(low, high) >> shift, -(-np.maximum(low, high) >> shift)
    below, flat = _LinesBelow(table, 1, first, last).best(shift, least, most)
    above, roof = _LinesBelow(table, -1, first, last).best(shift, -most, -least)
    above = TangentLines(-above.slope, above.point, -above.height)
    return CurveLines(below, above, flat, -roof, table.slopes)


class _LinesBelow:
    """Lines below sign*f, f being that of `table`, on first..last, points of the grid."""

    def __init__(self, table: FunctionTable, sign: int, first: Array, last: Array) -> None:
        self.table, self.sign, self.first, self.last = table, sign, first, last
        self.middle = (first + last) >> 1
        self.at_first, self.at_last = self._values(first), self._values(last)
        self.convex = next((k for k, bend in enumerate(table.f.signs) if bend * sign > 0), None)
        if self.convex is not None:
            borders = [None, *(b for b, _, _ in table.breakpoints), None]  # whole numbers: points of any grid
            left, right = borders[self.convex], borders[self.convex + 1]
            self.p = first if left is None else np.maximum(first, left)
            self.q = last if right is None else np.minimum(last, right)

    def _values(self, j: Array) -> Array:
        """Return lower bounds of sign*f at grid points j."""
        low, high = self.table.values(j)
        return low if self.sign > 0 else -high

    def _derivatives(self, j: Array) -> tuple[Array, Array]:
        """Return lower and upper bounds of the slope of sign*f at grid points j of the convex piece."""
        assert self.convex is not None
        low, high = self.table.derivatives(j, self.convex)
        return (low, high) if self.sign > 0 else (-high, -low)

    def best(self, shift: int, least: Array, most: Array) -> tuple[TangentLines, Array]:
        """Return the line that is highest at the middle, and the height of the highest one without a slope.

        Heights are kept between `least` and `most`, bounds of the function; `shift` scales the middle to the grid of
        what is read.
        """
        slope = np.zeros_like(self.first)
        flat = height = np.maximum(self.height(slope, self._convex_minimum()), least)
        for s, t in self._candidate_slopes():
            h = self.height(s, t)
            slope, height = np.where(h > height, s, slope), np.maximum(h, height)
        return TangentLines(slope, self.middle << shift, np.minimum(height, most)), flat

    def height(self, s: Array, t: Array | None) -> Array:
        """Return h, per cell, with s*(x - middle) + h <= sign*f(x) from first to last.

        It is the least of f(e) - s*(e - middle) over the ends e of pieces that are not convex and, for a point t of the
        convex piece, of its tangent's height there; t None: there is no such piece.
        """
        h = np.minimum(
            self._height_at_middle(self.at_first, self.first, s), self._height_at_middle(self.at_last, self.last, s)
        )
        for near, far, ends in self.table.breakpoints:
            value = np.int64(ends[0] if self.sign > 0 else -ends[1])
            inside = (near < self.last) & (far > self.first)
            either = np.minimum(self._height_at_middle(value, near, s), self._height_at_middle(value, far, s))
            h = np.where(inside, np.minimum(h, either), h)
        if self.convex is None or t is None:
            return h
        low, high = self._derivatives(t)
        sunk = np.maximum(np.maximum((s - low) * (self.q - t), (high - s) * (t - self.p)), 0)
        return np.where(self.p <= self.q, np.minimum(h, self._height_at_middle(self._values(t), t, s, sunk)), h)

    def _height_at_middle(self, value: Array | np.int64, j: Array | int, s: Array, sunk: Array | int = 0) -> Array:
        """Return the height at the middle of a line of slope s that is `value` at grid point j, lowered by `sunk`;
        rounded down.
        """
        table = self.table
        return value + shift_right_saturating(
            -s * (j - self.middle) - sunk, table.slopes + table.grid - table.frac_bits
        )

    # --- slopes that may be good, and points of the convex piece for them ---------------------------------------------

    def _convex_minimum(self) -> Array | None:
        """Return where the convex piece is least, as grid points in first..last; None without a convex piece."""
        if self.convex is None:
            return None
        if self.table.lowest is not None:
            return self._clip_to_convex(np.full_like(self.first, floor_scaled(self.table.lowest, self.table.grid)))
        return self._clip_to_convex(self.first if self.sign > 0 else self.last)

    def _clip_to_convex(self, t: Array) -> Array:
        """Return grid points t moved into the convex piece p..q."""
        return np.maximum(np.minimum(t, self.q), np.minimum(self.p, self.q))

    def _candidate_slopes(self) -> Iterator[tuple[Array, Array | None]]:
        """Yield slopes that may be good, each with a point of the convex piece to bound it at (None: there is none)."""
        table, wide = self.table, np.maximum(self.last - self.first, 1)
        rise = shift_right_saturating(self.at_last - self.at_first, table.frac_bits - table.slopes - table.grid)
        yield np.clip(rise // wide, -(1 << SLOPE_BITS), 1 << SLOPE_BITS), self._convex_minimum()
        if table.f.is_piecewise_linear:
            for k in range(len(table.f.signs)):
                own, _ = _ends_outward(table.f.slope(rational(0), k), table.slopes)
                yield np.full_like(self.first, self.sign * own), None
        elif self.convex is not None:
            t = self._tangent_point()
            yield self._derivatives(t)[0], t

    def _tangent_point(self) -> Array:
        """Return the point of the convex piece whose tangent passes just below f at the far end, or the middle if that
        does."""
        middle = self._clip_to_convex(self.middle)
        left = self.q < self.last  # of the far end, which is the last point, or else the first
        near, far = (np.where(left, a, b) for a, b in ((self.p, self.q), (self.q, self.p)))
        for _ in range(BISECTIONS):
            t = (near + far) >> 1
            passes = self._is_tangent_below_end(t, left)
            near, far = np.where(passes, t, near), np.where(passes, far, t)
        both = np.where(left, np.minimum(near, middle), np.maximum(near, middle))
        return np.where((self.p == self.first) & (self.q == self.last), middle, both)

    def _is_tangent_below_end(self, t: Array, left: Array) -> Array:
        """Return whether the tangent at t is below f at the far end: the last point if `left`, else the first."""
        end = np.where(left, self.last, self.first)
        reached = shift_right_saturating(
            self._derivatives(t)[0] * (end - t), self.table.slopes + self.table.grid - self.table.frac_bits
        )
        return np.asarray(self._values(t) + reached <= np.where(left, self.at_last, self.at_first))
