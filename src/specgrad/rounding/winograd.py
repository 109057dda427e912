"""Rounding rule of Winograd convolutions F(m,3), which need a bound of their own, for they cancel.

From m + 2 points, infinity among them, matrices A, G, B with exact rational entries give m outputs of a correlation of
three taps with m + 2 products, and in two dimensions m*m outputs with (m + 2)**2:

    y = A^T [ sum_c (G w_c G^T) * (B^T d_c B) ] A

Multiplied out, y is a sum of monomials A*A*G*G*B*B*w*d, most of which cancel; an execution rounds each of them at most
R times. So its error is at most ((1 + u)**R - 1) * S, with S the same expression on absolute values of every factor.
S depends on where in its tile a cell stands. Tiles may begin anywhere, so the largest S of all m*m places is taken: it
reads cells that the output itself does not read, and that is where the error of a neighbour's large cell comes from.
docs/reference/rounding.md derives R.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..op import Op, Params
from ..scalar import Array
from ..window import Window
from .arithmetic import growth
from .ball import Ball
from .context import Context
from .linear import magnitude, make_ball, reference_error, spread
from .slack_constants import long_slack

Matrix = tuple[tuple[Fraction, ...], ...]
TAPS = 3
CHUNK_NUMBERS = 2**25  # numbers held at a time
MAX_ROW_SCALE = 2.0**10  # rows of G or B may be larger by a power of two, those of A smaller: no rounding, but range


@dataclass(frozen=True)
class WinogradTiles:
    """The Winograd algorithm F(m,3): m outputs per tile and axis, and its points; infinity is one more point.

    >>> f2 = WinogradTiles(2, (Fraction(0), Fraction(1), Fraction(-1)))
    >>> f2.cells, [[int(a) for a in row] for row in f2.data]
    (4, [[-1, 0, 1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, -1, 0, 1]])
    """

    outputs: int
    points: tuple[Fraction, ...]

    @property
    def cells(self) -> int:
        """Return the cells that a tile reads along one axis: m + 2."""
        return self.outputs + TAPS - 1

    @property
    def name(self) -> str:
        """Return the tiles' points as text, infinity last."""
        return f"points {', '.join(map(str, self.points))}, infinity"

    @cached_property
    def data(self) -> Matrix:
        """Return B^T: row p has the coefficients of the product of (t - a) over all other points a."""
        rows = [(*_polynomial(a for a in self.points if a != p), Fraction(0)) for p in self.points]
        return (*rows, _polynomial(self.points))

    @cached_property
    def weights(self) -> Matrix:
        """Return G: row p has 1, p, p**2, over the product of p - a over all other points a."""
        rows = []
        for p in self.points:
            divisor = Fraction(1)
            for a in self.points:
                divisor *= p - a if a != p else 1
            rows.append(tuple(p**k / divisor for k in range(TAPS)))
        return (*rows, (Fraction(0),) * (TAPS - 1) + (Fraction(1),))

    @cached_property
    def result(self) -> Matrix:
        """Return A: row p has 1, p, p**2, ...; that of infinity only the last."""
        rows = [tuple(p**k for k in range(self.outputs)) for p in self.points]
        return (*rows, (Fraction(0),) * (self.outputs - 1) + (Fraction(1),))

    def roundings(self, channels: int) -> int:
        """Return R: both passes of each transform, one product, the sum over channels, and a bias."""
        columns = tuple(zip(*self.result, strict=True))
        passes = sum(max(map(_roundings, rows)) for rows in (self.data, self.weights, columns))
        return 2 * passes + channels + 1


def _polynomial(points: Iterable[Fraction]) -> tuple[Fraction, ...]:
    """Return the coefficients of the product of (t - a) over all points a, from the constant on."""
    product = [Fraction(1)]
    for a in points:
        product = [up - a * same for up, same in zip([Fraction(0), *product], [*product, Fraction(0)], strict=True)]
    return tuple(product)


def _roundings(row: Sequence[Fraction]) -> int:
    """Return the roundings of a sum of k terms with the coefficients `row`: k - 1, and two more if some coefficient is
    no power of two.
    """
    sizes = [abs(a) for a in row if a]
    plain = all((a.numerator & (a.numerator - 1)) == 0 == (a.denominator & (a.denominator - 1)) for a in sizes)
    return len(sizes) - 1 + (0 if plain else 2)


def _points(*texts: str) -> tuple[Fraction, ...]:
    """Return points, exact fractions, from texts such as "1/2"."""
    return tuple(map(Fraction, texts))


TILES = {
    "F(2,3)": (WinogradTiles(2, _points("0", "1", "-1")),),
    "F(4,3)": (
        WinogradTiles(4, _points("0", "1", "-1", "2", "-2")),
        WinogradTiles(4, _points("0", "1", "-1", "1/2", "-1/2")),
        WinogradTiles(4, _points("0", "1", "-1", "1/2", "-2")),
        WinogradTiles(4, _points("0", "5/8", "-5/8", "3/2", "-3/2")),
    ),
    "F(6,3)": (WinogradTiles(6, _points("0", "1", "-1", "2", "-2", "1/2", "-1/2")),),
}
"""Points as libraries have them. F(4,3): Lavin and Gray's, halves for twos, TVM's, oneDNN's; F(6,3): NNPACK's."""


def fits(op: Op, window: Window | None, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether a call on arguments of these shapes is a plain convolution of 3 x 3 taps whose windows end with
    the padded input.
    """
    if op.name != "conv" or window is None or window.kernel != (TAPS, TAPS):
        return False
    native = window.native()
    plain = native is not None and {*native.stride, *native.dilation} == {1}
    return plain and min(itertools.chain(*window.pads)) >= 0 and len(shapes[0]) >= window.rank + 1


def winograd_rule(tiles: WinogradTiles, context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of a convolution computed by Winograd's `tiles`, whose transformed factors and result are stored
    in the format.
    """
    window, groups = params["window"], params["groups"]
    x, w, *b = args
    count = tiles.roundings(w.shape[1])
    value = context.evaluate(op, [a.value for a in args], params)
    given = [Ball(a.value, a.radius, ends=a.ends) for a in args]
    parts = [context.expansion_of(a, k, region=False) for k, a in enumerate(given)]
    plain = magnitude(context, op, [p.size for p in parts], params)
    size = sizes(tiles, x.size, w.size, window, groups)
    if b:
        size = size + b[0].size.reshape(-1, 1, 1)
    slack = long_slack(w.shape[1] * tiles.cells**2 + count)
    grown = growth(count, context.arithmetic.u)
    most = _magnitude_bound(tiles, x.size, w.size, [a.size for a in b], w.shape[1]) * slack * (1 + grown)
    error = grown * size + (2 * count + 1) * context.arithmetic.tiny * most
    error = error if most <= context.arithmetic.largest else np.full(value.shape, np.inf)
    own = reference_error(plain, w.shape[1] * window.taps_count + 1)
    return make_ball(context, value, (spread(context, op, parts, params) + error + own) * slack)


def sizes(tiles: WinogradTiles, x: Array, w: Array, window: Window, groups: int, power: int = 1) -> Array:
    """Return S for each output cell, at the place in its tile where it is largest. x: (*batch, C, H, W), w: (O,
    C/groups, 3, 3).

    power   of the matrices' entries: with x and w squared too, 2 gives the sum of the squares of all monomials
    """
    a, g, b = (_absolute_matrix(m) ** power for m in (tiles.result, tiles.weights, tiles.data))
    batch, (high, wide) = x.shape[:-3], window.out
    beyond = tiles.outputs - 1
    widths = [
        (0, 0),
        (0, 0),
        *(tuple(p + beyond for p in axis) for axis in zip(*_low_and_high_pads(window), strict=True)),
    ]
    cells = np.pad(x.reshape(-1, *x.shape[-3:]), widths)
    u = np.einsum("pa,ocab,qb->pqoc", g, w, g)
    rows, columns = high + beyond, wide + beyond
    outs = w.shape[0] // groups
    step = max(1, CHUNK_NUMBERS // (tiles.cells**2 * rows * columns))
    largest = np.empty((cells.shape[0], w.shape[0], high, wide))
    for n, k in itertools.product(range(cells.shape[0]), range(groups)):
        part = cells[n, k * w.shape[1] : (k + 1) * w.shape[1]]
        for first in range(k * outs, (k + 1) * outs, step):
            chosen = slice(first, min(first + step, (k + 1) * outs))
            m = _tile_products(b, u[:, :, chosen], part, rows, columns)
            largest[n, chosen] = _largest_over_places(a, m, high, wide)
    return largest.reshape(*batch, *largest.shape[1:])


def _low_and_high_pads(window: Window) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the low pads and the high pads of the axes."""
    low, high = zip(*window.pads, strict=True)
    return low, high


def _tile_products(b: Array, u: Array, part: Array, rows: int, columns: int) -> Array:
    """Return sum_c U_c * (B^T d_c B) for every tile that may begin somewhere, as (p, q, O, rows, columns).

    b and u are B and U, the transformed weights; `part` are the cells d, padded.
    """
    n = b.shape[0]
    m = np.empty((n, n, u.shape[2], rows, columns))
    for p in range(n):
        down = sum(b[p, e] * part[:, e : e + rows] for e in range(n))
        for q in range(n):
            both = sum(b[q, f] * down[:, :, f : f + columns] for f in range(n))
            m[p, q] = np.tensordot(u[p, q], both, 1)
    return m


def _largest_over_places(a: Array, m: Array, high: int, wide: int) -> Array:
    """Return, per output cell, the largest of A^T M A over all places that it may have in a tile; at place i the tile
    began i cells before.

    `m` is M of every tile that may begin somewhere (`_tile_products`); the result is (O, high, wide).
    """
    beyond = a.shape[1] - 1
    best = np.zeros((m.shape[2], high, wide))
    for i in range(a.shape[1]):
        down = np.tensordot(a[:, i], m[:, :, :, beyond - i : beyond - i + high], 1)
        for j in range(a.shape[1]):
            here = np.tensordot(a[:, j], down[:, :, :, beyond - j : beyond - j + wide], 1)
            best = np.maximum(best, here)
    return best


def _absolute_matrix(matrix: Matrix) -> Array:
    """Return a matrix as floats, with absolute values."""
    return np.array([[float(abs(a)) for a in row] for row in matrix])


def _magnitude_bound(tiles: WinogradTiles, x: Array, w: Array, b: Sequence[Array], channels: int) -> float:
    """Return an upper bound of every partial result: S with every factor f replaced by max(1, abs(f)).

    x, w and b are sizes of data, weights and bias; `channels` are summed.
    """
    total = 1.0
    for matrix in (tiles.data, tiles.weights, tuple(zip(*tiles.result, strict=True))):
        total *= max(sum(max(1.0, float(abs(a))) for a in row if a) for row in matrix) ** 2
    largest = [max(1.0, float(np.max(v, initial=0.0))) for v in (x, w, *b)]
    return total * MAX_ROW_SCALE * channels * largest[0] * largest[1] + sum(largest[2:])
