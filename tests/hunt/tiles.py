"""Winograd's convolutions written out: from points to matrices, in float32 or in counts, in any order, from anywhere.

Nothing here is the library's but the points: matrices by Lagrange, in exact numbers; tiles that begin where they like.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

F32 = np.float32


def matrices(m: int, points: tuple[Fraction, ...]) -> tuple[list, list, list]:
    """A (m + 2, m), G (m + 2, 3) and B^T (m + 2, m + 2)."""
    a = [[p**k for k in range(m)] for p in points] + [[Fraction(k == m - 1) for k in range(m)]]
    g = [[p**k / math.prod((p - q for q in points if q != p), start=Fraction(1)) for k in range(3)] for p in points]
    g.append([Fraction(0), Fraction(0), Fraction(1)])
    return a, g, [coefficients([q for q in points if q != p], m + 2) for p in points] + [coefficients(points, m + 2)]


def coefficients(roots, length: int) -> list[Fraction]:
    """Of the product of (t - root), by elementary symmetric sums."""
    n = len(roots)
    found = []
    for k in range(n + 1):
        sums = sum((math.prod(c, start=Fraction(1)) for c in itertools.combinations(roots, n - k)), Fraction(0))
        found.append((-1) ** (n - k) * sums)
    return found + [Fraction(0)] * (length - n - 1)


@dataclass(frozen=True)
class Counted:
    """How many roundings the most rounded term of a value has met; None: no term."""

    met: int

    def __add__(self, other: Counted) -> Counted:
        return Counted(max(self.met, other.met) + 1)

    def times(self, coefficient: Fraction) -> Counted:
        """A power of two costs nothing, another number its own rounding and the product's."""
        n, d = abs(coefficient.numerator), coefficient.denominator
        return self if n & (n - 1) == 0 == d & (d - 1) else Counted(self.met + 2)

    def product(self, other: Counted) -> Counted:
        return Counted(self.met + other.met + 1)


def scaled32(x: np.ndarray, coefficient: Fraction) -> np.ndarray:
    return x * F32(float(coefficient))


def row(coefficients: list[Fraction], cells: list, scaled: Callable, rng: np.random.Generator):
    """One row of a transform: a sum in any order, or its even and its odd part first."""
    terms = [scaled(c, a) for a, c in zip(coefficients, cells, strict=True) if a]
    if rng.random() < 0.3 and len(terms) > 3:
        cut = int(rng.integers(1, len(terms)))
        return total(terms[:cut], rng) + total(terms[cut:], rng)
    return total(terms, rng)


def total(terms: list, rng: np.random.Generator):
    order = rng.permutation(len(terms))
    y = terms[order[0]]
    for k in order[1:]:
        y = y + terms[k]
    return y


def transformed(matrix: list, grid: list[list], scaled: Callable, rng: np.random.Generator) -> list[list]:
    """matrix @ grid @ matrix^T, one axis after the other."""
    columns = [[row(r, list(c), scaled, rng) for r in matrix] for c in zip(*grid, strict=True)]
    return [[row(r, list(c), scaled, rng) for r in matrix] for c in zip(*columns, strict=True)]


def winograd(x, w, pads, m: int, points, begin: tuple[int, int], rng) -> np.ndarray:
    """(C, H, W) and (O, C, 3, 3) in float32; the first tile begins `begin` cells before the first output."""
    a, g, b = matrices(m, points)
    columns = [list(c) for c in zip(*a, strict=True)]
    padded = np.pad(x, [(0, 0), *pads])
    high, wide = padded.shape[1] - 2, padded.shape[2] - 2
    tall, broad = (-(-(n + s) // m) for n, s in zip((high, wide), begin, strict=True))
    room = [(0, 0)] + [(s, k * m + 2 - n - s) for s, k, n in zip(begin, (tall, broad), padded.shape[1:], strict=True)]
    cells = np.pad(padded, room)
    u = transformed(g, [[w[:, :, i, j] for j in range(3)] for i in range(3)], scaled32, rng)
    y = np.zeros((w.shape[0], tall * m, broad * m), F32)
    for i, j in itertools.product(range(tall), range(broad)):
        tile = cells[:, i * m : i * m + m + 2, j * m : j * m + m + 2]
        v = transformed(b, [[tile[:, e, f] for f in range(m + 2)] for e in range(m + 2)], scaled32, rng)
        products = [
            [total(list((p * q).T), rng) for p, q in zip(us, vs, strict=True)] for us, vs in zip(u, v, strict=True)
        ]
        out = transformed(columns, products, scaled32, rng)
        for k, n in itertools.product(range(m), range(m)):
            y[:, i * m + k, j * m + n] = out[k][n]
    top, left = begin
    return y[:, top : top + high, left : left + wide]


def counted(m: int, points, channels: int, rng) -> int:
    """The most roundings of a term in one run, a bias at the end."""
    a, g, b = matrices(m, points)
    columns = [list(c) for c in zip(*a, strict=True)]
    scaled = Counted.times
    sums = []
    fresh = [[Counted(0)] * (m + 2) for _ in range(m + 2)]
    for _ in range(channels):
        u, v = transformed(g, [f[:3] for f in fresh[:3]], scaled, rng), transformed(b, fresh, scaled, rng)
        sums.append([[p.product(q) for p, q in zip(us, vs, strict=True)] for us, vs in zip(u, v, strict=True)])
    products = [[total([s[p][q] for s in sums], rng) for q in range(m + 2)] for p in range(m + 2)]
    out = transformed(columns, products, scaled, rng)
    return max((cell + Counted(0)).met for line in out for cell in line)


def exact(x, w, pads) -> np.ndarray:
    """The convolution, each cell correctly rounded to float64: products of float32 are exact there."""
    padded = np.pad(x.astype(float), [(0, 0), *pads])
    high, wide = padded.shape[1] - 2, padded.shape[2] - 2
    return np.array(
        [
            [[math.fsum((o * padded[:, i : i + 3, j : j + 3]).ravel()) for j in range(wide)] for i in range(high)]
            for o in w.astype(float)
        ]
    )
