"""Smooth maxima (log-sum-exp pooling) in a replay: ranges, planes above and below, and the error of float32.
ReplayError where an enclosure is infinite.

y = log(zeros + sum exp(beta*x_t)) / beta over the taps t of a window, `zeros` being its padded taps that count as 0.
Let beta > 0; for beta < 0 it is the mirror image -y(-x) with -beta. On a box l <= x <= h

    below   for any p_t, q >= 0 that add up to 1, q = 0 where nothing is padded, by Jensen's inequality
                y >= p.x + H/beta,    H = -sum p_t*log(p_t) - q*log(q/zeros)
    above   y - s.x is convex, so it is largest at a corner; and raising a tap adds no more to y where others are higher
            (y's mixed second derivatives are -beta*share_t*share_j). So for any s, at every corner,
                y - s.x <= y(h) - s.h + sum max(0, s_t*(h_t - l_t) - d_t),    d_t = y(h) - y(h with l_t in place of h_t)
                y - s.x <= y(l) - s.l + sum max(0, c_t - s_t*(h_t - l_t)),    c_t = y(l with h_t in place of l_t) - y(l)

so slopes may be rounded as one likes. A file gives none: the checker takes p as the taps' shares at the middle of the
box, s as d or c over the width, and of the latter two the plane that is lower at the middle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from specgrad.errors import need
from specgrad.graph.graph import Node
from specgrad.scalar import Array
from specgrad.window import Window

from ..base.executions import Functions
from ..base.rationals import (
    LARGEST,
    Bound,
    Coefficients,
    ReplayError,
    floor_scaled,
    larger,
    objects,
    outward,
    rational,
    rows_of_leaves,
    shortened,
    total,
    zeros,
)
from .activations import BALL_PRECISION_BITS, checked_constant, ends
from .node_ranges import FLUSH_LOSS_BITS, NodeRange

need("flint", "certificates need")

from flint import arb, ctx  # noqa: E402 - the line above says what to install

SLOPE_FRAC_BITS = 20  # binary places of slopes
ONE = 1 << SLOPE_FRAC_BITS
MAX_SHIFT_DEPTH = 65  # how far above a window, times beta, its shift may lie: exp(-65) is far from underflow
SMALLEST = 126
SATURATED = 1 << 60  # stands for what lies beyond it, where a plane without slopes is taken


# --- which taps a window reads ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Windows:
    """The cells that windows read, as edges from a window to a cell of its input, window after window.

    window, cell   per edge: flat indices
    first          per window: its first edge; one more at the end
    padded         per window: taps that count as 0
    """

    window: Array
    cell: Array
    first: Array
    padded: Array

    @staticmethod
    def of(node: Node) -> Windows:
        """Return the pairs (window, cell that it reads) of a smooth_max_pool node, with the padded cells that count."""
        win: Window = node.params["window"]
        lead = node.shape[: len(node.shape) - win.rank]
        source = np.arange(math.prod((*lead, *win.size))).reshape(*lead, *win.size)
        taps = list(win.taps())
        read = np.full((len(taps), *node.shape), -1)
        for t, tap in enumerate(taps):
            tap.write_outputs(read[t], tap.read_inputs(source))
        flat = read.reshape(len(taps), -1).T
        window, tap_number = np.nonzero(flat >= 0)
        counts = (flat >= 0).sum(1)
        counted = node.params["padded"] == "zero"
        padded = math.prod(win.kernel) - counts if counted else np.zeros_like(counts)
        return Windows(window, flat[window, tap_number], np.concatenate([[0], np.cumsum(counts)]), padded)

    def taps(self, k: int) -> Array:
        """Return the flat indices of the cells that window k reads."""
        return self.cell[self.first[k] : self.first[k + 1]]

    def spread(self, a: Array, shape: tuple[int, ...]) -> Array:
        """Return the sum per input cell, in an array of `shape`, of numbers `a` per edge, (..., edges)."""
        x = np.zeros(shape, dtype=np.int64) if a.dtype != object else zeros(shape)
        for e, cell in enumerate(self.cell.tolist()):
            x[..., cell] += a[..., e]
        return x


# --- one window -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planes:
    """Planes slope.(x - middle) + height below and above y of one window, slopes integers over ONE, and the ends of y.

    lower, floor   slopes and height of the plane below
    upper, roof    slopes and height of the plane above
    least, most    bounds of y
    """

    lower: tuple[int, ...]
    floor: Any
    upper: tuple[int, ...]
    roof: Any
    least: Any
    most: Any


def value(x: Sequence[Any], padded: int, beta: Any) -> Any:
    """Return a ball that holds y, for rational taps and beta > 0; 0 for a window without taps.

    y = log(padded + sum exp(beta*x)) / beta over the taps x, `padded` counting padded zeros.

    >>> ends(value([rational(0), rational(0)], 2, rational(1, 2)))[0] <= rational(2772588723, 10**9)  # 2*log(4)
    True
    """
    if not x and not padded:
        return arb(0)
    top = max([*x, rational(0)] if padded else x)
    terms = [(arb(beta * (v - top))).exp() for v in x]
    if padded:
        terms.append(padded * arb(-beta * top).exp())
    return arb(top) + sum(terms, arb(0)).log() / arb(beta)


def planes(low: Sequence[Any], high: Sequence[Any], middle: Sequence[Any], padded: int, beta: Any) -> Planes:
    """Return a plane below and one above y = log(padded + sum exp(beta*x_t)) / beta on a box of taps, and bounds of y.

    low, high   rational ends of every tap
    middle      the point, a rational per tap, at which the planes' heights are stated
    padded      how many padded taps count, each as value 0
    beta        rational, not 0, of either sign

    Of the result `lower` and `upper` are slopes per tap, integers over ONE; `floor` and `roof` heights at `middle`;
    least <= y <= most. All are rounded outward.

    >>> zero, one = rational(0), rational(1)
    >>> both = planes([zero, zero], [one, one], [one / 2, one / 2], 0, one)
    >>> sum(both.lower) == ONE, round(float(both.floor), 6), round(math.log(2) + 0.5, 6)
    (True, 1.193147, 1.193147)
    """
    if beta < 0:
        turned = planes([-v for v in high], [-v for v in low], [-v for v in middle], padded, -beta)
        return Planes(turned.upper, -turned.roof, turned.lower, -turned.floor, -turned.most, -turned.least)
    before, ctx.prec = ctx.prec, BALL_PRECISION_BITS
    try:
        lower, floor = _below(middle, padded, beta)
        bottom, top = value(low, padded, beta), value(high, padded, beta)
        upper, roof = min(_above(low, high, middle, padded, beta, bottom, top), key=lambda plane: plane[1])
        return Planes(lower, floor, upper, roof, ends(bottom)[0], ends(top)[1])
    finally:
        ctx.prec = before


def _below(middle: Sequence[Any], padded: int, beta: Any) -> tuple[tuple[int, ...], Any]:
    """Return slopes (the taps' shares at the middle, rounded; with the padding's they add up to 1) and height of the
    plane below.

    `padded` is the number of padded zeros, `beta` the factor in the exponent.
    """
    if not middle:
        return (), ends(value(middle, padded, beta))[0]
    y = value(middle, padded, beta)
    shares = [max(0, floor_scaled(ends((arb(beta) * (arb(v) - y)).exp())[0], SLOPE_FRAC_BITS)) for v in middle]
    rest = ONE - sum(shares)  # >= 0: lower ends of shares add up to no more than 1
    if not padded:
        shares[shares.index(max(shares))] += rest
        rest = 0
    each = [(rational(n, ONE), 1) for n in shares] + [(rational(rest, ONE), padded)]
    entropy = sum((-arb(p) * (arb(p) / count).log() for p, count in each if p > 0), arb(0))
    mean = sum((rational(n, ONE) * v for n, v in zip(shares, middle, strict=True)), rational(0))
    return tuple(shares), mean + ends(entropy / arb(beta))[0]


def _above(
    low: Sequence[Any], high: Sequence[Any], middle: Sequence[Any], padded: int, beta: Any, bottom: Any, top: Any
) -> list[tuple[tuple[int, ...], Any]]:
    """Return two planes above the function, from its upper corner and from its lower one: slopes, and heights at the
    middle.

    `padded` is the number of padded taps; `bottom` and `top` are the values at low and at high. `beta` is the factor in
    the exponent.
    """
    both = []
    for start, other, base, sign in ((high, low, top, 1), (low, high, bottom, -1)):
        slopes, height = [], ends(base)[1]
        for t, (a, b, m) in enumerate(zip(start, other, middle, strict=True)):
            moved = value([*start[:t], b, *start[t + 1 :]], padded, beta)
            change = ends(sign * (base - moved))[0 if sign > 0 else 1]  # d from below, c from above
            width = sign * (a - b)
            s = min(max(floor_scaled(change / width, SLOPE_FRAC_BITS), 0), ONE) if width > 0 else 0
            slopes.append(s)
            height += rational(s, ONE) * (m - a) + max(sign * (rational(s, ONE) * width - change), rational(0))
        both.append((tuple(slopes), height))
    return both


# --- a node over rationals --------------------------------------------------------------------------------------------


def exact_beta(node: Node) -> Any:
    """Return the node's beta as a rational."""
    return checked_constant(node, node.params["beta"])


def logsumexp_range(node: Node, x: NodeRange, deviation: Array | None, functions: Functions, digits: int) -> NodeRange:
    """Return the range of a smooth maximum, given the range and deviation (None: none) of what it reads.

    y changes by no more than its inputs do: the deviation of a window is the largest of its taps. `functions` are the
    errors of exp and log, 2**-digits is the unit roundoff.
    """
    windows, beta = Windows.of(node), exact_beta(node)
    low, high = (_values_at(node, windows, end, beta, side) for side, end in ((-1, x.low), (1, x.high)))
    off = outward(_error(node, windows, beta, x, larger(high, -low), functions, digits), 1)
    values = outward(low - off, -1), outward(high + off, 1)
    if deviation is None:
        return NodeRange(*values, values, error=off)
    least, most = (_values_at(node, windows, end, beta, side) for side, end in zip((-1, 1), x.ends, strict=True))
    moved = _per_window(node, windows, lambda taps: max((deviation.flat[c] for c in taps), default=rational(0)))
    return NodeRange(*values, (outward(least, -1), outward(most, 1)), deviation=outward(moved + off, 1))


def _per_window(node: Node, windows: Windows, of: Callable[[Array], Any]) -> Array:
    """Return `of(cells that the window reads)` for every window, in the node's shape."""
    return objects([of(windows.taps(k)) for k in range(math.prod(node.shape))], node.shape)


def _values_at(node: Node, windows: Windows, x: Array, beta: Any, side: int) -> Array:
    """Return y at inputs x in the node's shape, rounded down (side -1) or up (side 1), for the factor `beta`; y rises
    with every tap.
    """
    sign = 1 if beta > 0 else -1
    before, ctx.prec = ctx.prec, BALL_PRECISION_BITS
    try:
        each = []
        for k in range(math.prod(node.shape)):
            ball = sign * value([sign * x.flat[c] for c in windows.taps(k)], int(windows.padded[k]), sign * beta)
            each.append(ends(ball)[(side + 1) // 2])
        return objects(each, node.shape)
    finally:
        ctx.prec = before


def _error(
    node: Node, windows: Windows, beta: Any, x: NodeRange, size: Array, functions: Functions, digits: int
) -> Array:
    """Return a bound of the float32 error per window; docs/reference/rounding.md, smooth maxima, derives it.

    The shift may be a maximum of the window, or anything up to that of its plane; `size` bounds abs(y). `beta` is the
    factor in the exponent, `functions` are the errors of exp and log, 2**-digits is the unit roundoff.
    """
    e_exp, e_log = (_declared_units(node, functions, name) for name in ("exp", "log"))
    window: Window = node.params["window"]
    taps, b, unit = math.prod(window.kernel), abs(beta), rational(1, 1 << digits)
    v = unit / (1 - max(rational(8), e_exp, e_log) * unit)
    few, largest, tops = _log_above(taps), x.largest.ravel(), _plane_tops(node, x, beta)

    def off(k: int) -> Any:
        """Return the bound for window k."""
        cells = windows.taps(k)
        lowest = [x.low.flat[c] if beta > 0 else -x.high.flat[c] for c in cells] + [rational(0)] * (
            int(windows.padded[k] > 0)
        )
        z = b * max((largest[c] for c in cells), default=rational(0))
        deep = min(max(b * (tops[k] - max(lowest)), rational(0)), rational(MAX_SHIFT_DEPTH)) if lowest else rational(0)
        far = deep + few
        units = 2 * z + 2 * far + window.rank * (e_exp + 1) + taps - 1 + (e_log + 2) * far
        units += (taps - 1) * (z + few + 1 + e_exp + e_log) + 4 * b * size.flat[k]
        if 2 * z > LARGEST or 2 * size.flat[k] > LARGEST or units * v > LARGEST:
            raise ReplayError(f"node {node.name} may overflow in float32")
        worst = v * (units + 4 * z + 2 * deep) * (1 + (e_log + 6) * v)
        first = v * (units + e_log + 2)
        error = min(worst, first * _exp_above(4 * first)) if first < 1 else worst
        return (error + taps * _exp_above(deep) / (1 << SMALLEST)) / b + rational(1, 1 << FLUSH_LOSS_BITS)

    return objects([off(k) for k in range(math.prod(node.shape))], node.shape)


def _declared_units(node: Node, functions: Functions, name: str) -> Any:
    """Return the declared relative error of function `name` in units of u; raise ReplayError if none is declared."""
    if name not in functions:
        raise ReplayError(f"the arithmetic declares no error of {name}, which node {node.name} computes")
    units, kind = functions[name]
    if kind != "y":
        raise ReplayError(f"node {node.name} needs an error of {name} that is relative to its result")
    return rational(units.numerator, units.denominator)


def _plane_tops(node: Node, x: NodeRange, beta: Any) -> list[Any]:
    """Return, per window, the largest sign(beta)*x of its plane (the axes that windows run over); 0 counts if anything
    is padded.
    """
    window: Window = node.params["window"]
    cells = x.high if beta > 0 else -x.low
    lead = cells.shape[: cells.ndim - window.rank]
    none = [rational(0)] if node.params["padded"] == "zero" and window.pads_anything else []
    planes = [max([*plane, *none], default=rational(0)) for plane in cells.reshape(math.prod(lead), -1)]
    each = math.prod(window.out)
    return [planes[k // each] for k in range(math.prod(node.shape))]


@lru_cache(maxsize=64)
def _log_above(n: int) -> Any:
    """Return an upper bound of log(max(1, n))."""
    return ends(arb(max(1, n)).log())[1]


def _exp_above(x: Any) -> Any:
    """Return an upper bound of exp(x)."""
    return ends(arb(x).exp())[1]


def smooth_lines(node: Node, x: NodeRange) -> tuple[Any, Any]:
    """Return (slopes per edge, intercepts per window) of the planes below a smooth maximum on the range x, and above
    it.
    """
    windows, beta, half = Windows.of(node), exact_beta(node), rational(1, 2)
    low, high = (end.ravel() for end in x.ends)
    sides: tuple[tuple[list[Any], list[Any]], ...] = (([], []), ([], []))
    for k in range(math.prod(node.shape)):
        cells = windows.taps(k)
        a, b = ([end[c] for c in cells] for end in (low, high))
        middle = [(p + q) * half for p, q in zip(a, b, strict=True)]
        both = planes(a, b, middle, int(windows.padded[k]), beta)
        for (slopes, heights), s, h in zip(sides, (both.lower, both.upper), (both.floor, both.roof), strict=True):
            mine = [rational(n, ONE) for n in s]
            slopes += mine
            heights.append(h - sum((n * m for n, m in zip(mine, middle, strict=True)), rational(0)))
    below, above = (
        (objects(s, (len(s),)), outward(objects(h, node.shape), side))
        for (s, h), side in zip(sides, (-1, 1), strict=True)
    )
    return below, above


def through_smooth(node: Node, a: Array, below: Any, above: Any) -> tuple[Array, Any]:
    """Return (coefficients of the input, constant): a lower bound of sum(a * y) by planes (slopes, heights) below and
    above.
    """
    windows, flat = Windows.of(node), a.ravel()
    at = flat[windows.window]
    window: Window = node.params["window"]
    shape = (*node.shape[: len(node.shape) - window.rank], *window.size)
    coefficients = windows.spread(np.where(at > 0, at * below[0], at * above[0]), (math.prod(shape),))
    return coefficients.reshape(shape), total(np.where(a > 0, a * below[1], a * above[1]))


# --- leaves, in whole numbers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SmoothLines:
    """Planes and bounds of a smooth maximum on every leaf, in fixed point.

    lower, upper   (leaves, edges): slopes of the planes below and above, over ONE
    floor, roof    (leaves, windows): their heights at `point`, over the node's 2**frac_bits
    point          (leaves, cells): middles of the input ranges, over 2**frac_bits of the input
    least, most    (leaves, windows): bounds of y
    """

    windows: Windows
    lower: Array
    floor: Array
    upper: Array
    roof: Array
    point: Array
    least: Array
    most: Array

    @staticmethod
    def on(
        node: Node,
        low: Array,
        high: Array,
        read: int,
        frac_bits: int,
        outer: tuple[Array, Array],
        cache: dict[Any, Any],
    ) -> SmoothLines:
        """Return the planes for input ranges low..high, (leaves, cells) over 2**read.

        outer   (windows), over 2**frac_bits: bounds (low, high) that y has in any case
        cache   planes of windows that were computed before
        """
        windows, beta = Windows.of(node), exact_beta(node)
        low, high = np.minimum(low, high), np.maximum(low, high)
        point = (low + high) >> 1
        each = [
            _leaf_planes(windows, *ends_, read, frac_bits, beta, cache) for ends_ in zip(low, high, point, strict=True)
        ]
        lower, floor, upper, roof, least, most = (np.array(part, dtype=np.int64) for part in zip(*each, strict=True))
        worse, better = floor < outer[0], roof > outer[1]  # then a plane without slopes does more
        lower, upper = np.where(worse[:, windows.window], 0, lower), np.where(better[:, windows.window], 0, upper)
        return SmoothLines(
            windows,
            lower,
            np.clip(floor, *outer),
            upper,
            np.clip(roof, *outer),
            point,
            np.maximum(least, outer[0]),
            np.minimum(most, outer[1]),
        )

    def for_rows(self, leaf: Array) -> SmoothLines:
        """Return the planes per row, given the leaf of each row."""
        lower, floor, upper, roof, point = (
            rows_of_leaves(v, leaf) for v in (self.lower, self.floor, self.upper, self.roof, self.point)
        )
        return replace(self, lower=lower, floor=floor, upper=upper, roof=roof, point=point)

    def through(self, y: Coefficients, bound: Bound, size: Array, read: int, frac_bits: int) -> Coefficients:
        """Return coefficients of the input from those of y; constants go to `bound`. `size`: see
        specgrad.proof.batched.activations.

        Inputs are over 2**read, heights over 2**frac_bits.
        """
        at = y.a[:, self.windows.window]
        a = self.windows.spread(np.where(at > 0, at * self.lower, at * self.upper), (len(at), self.point.shape[1]))
        y.into(bound, np.where(y.a > 0, self.floor, self.roof), frac_bits)
        c = shortened(y.scaled(a, SLOPE_FRAC_BITS), bound, size + np.abs(self.point).sum(1), read)
        c.into(bound, -self.point, read)
        return c


def _leaf_planes(
    windows: Windows, low: Array, high: Array, point: Array, read: int, frac_bits: int, beta: Any, cache: dict[Any, Any]
) -> tuple[list[int], ...]:
    """Return slopes, heights and bounds of all windows of one leaf: lower, floor, upper, roof, least, most.

    low, high and point (the middles) are over 2**read, heights and bounds over 2**frac_bits; `cache` keeps the planes
    of equal windows, over all leaves. `beta` is the factor in the exponent.
    """
    lower, floor, upper, roof, least, most = parts = tuple[list[int], ...]([] for _ in range(6))
    for k, padded in enumerate(windows.padded.tolist()):
        cells = windows.taps(k)
        key = padded, low[cells].tobytes(), high[cells].tobytes()
        if key not in cache:
            scale = rational(2) ** -read
            box = [[int(v) * scale for v in end[cells]] for end in (low, high, point)]
            cache[key] = planes(box[0], box[1], box[2], padded, beta)
        both = cache[key]
        lower += both.lower
        upper += both.upper
        for numbers, number, side in (
            (floor, both.floor, 1),
            (roof, both.roof, -1),
            (least, both.least, 1),
            (most, both.most, -1),
        ):
            numbers.append(max(-SATURATED, min(SATURATED, side * floor_scaled(side * number, frac_bits))))
    return parts
