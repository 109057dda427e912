"""Lines of relu and max_pool on the ranges of every leaf, in fixed point, and the way back through them.

For a coefficient a of relu(z), l <= z <= u, l < 0 < u, any c in these limits gives a line below a*relu(z):

    a >= 0    c*z            where 0 <= c <= a
    a < 0     c*z - c*l      where c <= a*u/(u - l): what is left, a*relu(z) - c*z + c*l, is concave in z; at l it is 0,
                             at u it is a*u - c*(u - l) >= 0

so rounding c down is all that whole numbers ask for. Let x be several cells of which the largest is one of W (all, or
those that cuts let win), w the cell of W with the largest middle, k the one with the largest upper end, and T the
largest of the upper ends of W but k's, and of its lower ends. For a coefficient a of max x

    a >= 0    a*x_w
    a < 0     c*x_k - c*l_k + a*T    where c <= a*(u_k - T)/(u_k - l_k): max x <= max(x_k, T), and what is left,
                                     a*max(x_k, T) - c*x_k + c*l_k - a*T, is concave in x_k; at l_k it is 0, at u_k
                                     a*(u_k - T) - c*(u_k - l_k) >= 0
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specgrad.graph.graph import Node
from specgrad.scalar import Array
from specgrad.window import Window

from ..base.rationals import Bound, Coefficients, rows_of_leaves, shortened

SLOPE_FRAC_BITS = 20  # of slopes
ONE = 1 << SLOPE_FRAC_BITS
NOWHERE = -(1 << 60)  # stands for cells that padding has


@dataclass(frozen=True, eq=False)
class ReluLines:
    """Lines of relu on every leaf, int64 (leaves, cells).

    below   slopes over ONE for coefficients >= 0
    above   slopes over ONE for coefficients < 0
    foot    the lower end l if z has either sign, else 0
    """

    below: Array
    above: Array
    foot: Array

    @staticmethod
    def on(low: Array, high: Array) -> ReluLines:
        """Return the lines below and above relu(z) for ranges low..high of z, int64 (leaves, cells).

        >>> lines = ReluLines.on(np.array([[-1, -3, 1, -2]]), np.array([[3, 1, 2, -1]]))
        >>> (lines.below / ONE).tolist(), (lines.above / ONE).round(2).tolist(), lines.foot.tolist()
        ([[1.0, 0.0, 1.0, 0.0]], [[0.75, 0.25, 1.0, 0.0]], [[-1, -3, 0, 0]])
        """
        is_open = (low < 0) & (high > 0)
        settled = np.where(low >= 0, ONE, 0)
        steepness = -((-high * ONE) // np.where(is_open, high - low, 1))  # rounded up
        above = np.where(is_open, steepness, settled)
        below = np.where(is_open, np.where(high > -low, ONE, 0), settled)
        return ReluLines(below, above, np.where(is_open, low, 0))

    def for_rows(self, leaf: Array) -> ReluLines:
        """Return the lines per row, given the leaf of each row."""
        return ReluLines(*(rows_of_leaves(v, leaf) for v in (self.below, self.above, self.foot)))

    def with_slopes(self, given: Array) -> ReluLines:
        """Return the lines with slopes `given`, over ONE, for coefficients >= 0 of cells with either sign."""
        return ReluLines(np.where(self.foot < 0, given, self.below), self.above, self.foot)

    def through(self, y: Coefficients, bound: Bound, frac_bits: int) -> Coefficients:
        """Return coefficients of z from those of relu(z); constants go to `bound`. `foot` is over 2**frac_bits."""
        c = (y.a * np.where(y.a < 0, self.above, self.below)) >> SLOPE_FRAC_BITS
        Coefficients(np.minimum(c, 0), y.frac_bits).into(bound, -self.foot, frac_bits)
        return Coefficients(c, y.frac_bits)


@dataclass(frozen=True, eq=False)
class MaxLines:
    """Lines of max_pool on every leaf, (leaves, *shape).

    winner   the tap w, whose x bounds the maximum from below
    other    the tap k with the largest upper end
    slope    over ONE: slope of x_k for coefficients < 0
    top      T: no other tap is above it
    feet     lower ends l of all x, (leaves, *shape of x)
    """

    winner: Array
    other: Array
    slope: Array
    top: Array
    feet: Array

    @staticmethod
    def on(window: Window, low: Array, high: Array, may_win: Array | None = None) -> MaxLines:
        """Return the lines for ranges low..high, (leaves, *shape of x).

        may_win   (taps, leaves, *shape) of bool, at least one in every window; None: all
        """
        lows, highs = (read(end, window) for end in (low, high))
        if may_win is not None:
            lows, highs = (np.where(may_win, end, NOWHERE) for end in (lows, highs))
        other = highs.argmax(0)
        is_other = np.arange(len(lows)).reshape(-1, *(1,) * other.ndim) == other
        most, least = highs.max(0), np.where(is_other, lows, NOWHERE).max(0)
        top = np.maximum(np.where(is_other, NOWHERE, highs).max(0), lows.max(0))
        slope = -((top - most) * ONE // np.maximum(most - least, 1))  # rounded up
        return MaxLines((lows + highs).argmax(0), other, slope, top, low)

    def for_rows(self, leaf: Array) -> MaxLines:
        """Return the lines per row, given the leaf of each row."""
        return MaxLines(*(rows_of_leaves(v, leaf) for v in (self.winner, self.other, self.slope, self.top, self.feet)))

    def through(
        self, node: Node, y: Coefficients, bound: Bound, size: Array, read: int, frac_bits: int
    ) -> tuple[Coefficients, Coefficients]:
        """Return two coefficients of x, by lines below and above, from those of max_pool(x); constants go to `bound`.

        size   not below the sum of the absolute values of x, over 2**read; `top` is over 2**frac_bits
        y    the coefficients of max_pool(x), the node
        """
        window: Window = node.params["window"]
        a = y.a.reshape(-1, *node.shape)
        Coefficients(np.minimum(y.a, 0), y.frac_bits).into(bound, self.top.reshape(len(self.top), -1), frac_bits)
        lead = node.shape[: len(node.shape) - window.rank]
        x = np.zeros((2, len(a), *lead, *window.size), dtype=np.int64)
        up, steep = np.maximum(a, 0), (np.minimum(a, 0) * self.slope) >> SLOPE_FRAC_BITS
        for t, tap in enumerate(window.taps()):
            wins, is_other = tap.read_outputs(self.winner) == t, tap.read_outputs(self.other) == t
            tap.add_to_inputs(x[0], np.where(wins, tap.read_outputs(up), 0))
            tap.add_to_inputs(x[1], np.where(is_other, tap.read_outputs(steep), 0))
        below, above = (y.scaled(part.reshape(len(a), -1), 0) for part in x)
        above = shortened(above, bound, 2 * size, read)  # times x - l
        above.into(bound, -self.feet.reshape(len(self.feet), -1), read)
        return below, above


def contested(window: Window, low: Array, high: Array) -> Array:
    """Return which cells (leaves, *shape of x), with ranges low..high, may be the largest of a window in which another
    may be, too.
    """
    lows, highs = (read(end, window) for end in (low, high))
    may_win = highs > lows.max(0)
    may_win &= np.where(
        np.arange(len(lows)).reshape(-1, *(1,) * (lows.ndim - 1)) == lows.argmax(0), False, may_win
    ).any(0)
    counts = np.zeros(low.shape, dtype=np.int64)
    for t, tap in enumerate(window.taps()):
        tap.add_to_inputs(counts, tap.read_outputs(may_win[t]).astype(np.int64))
    return np.asarray(counts > 0)


def read(x: Array, window: Window) -> Array:
    """Return (taps, *lead, *out): the cells that every window reads; NOWHERE in the padding."""
    taps = list(window.taps())
    cells = np.full((len(taps), *x.shape[: x.ndim - window.rank], *window.out), NOWHERE, dtype=np.int64)
    for t, tap in enumerate(taps):
        tap.write_outputs(cells[t], tap.read_inputs(x))
    return cells
