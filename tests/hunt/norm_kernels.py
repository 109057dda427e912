"""Normalisations as kernels compute them, in float32: sums along any tree, with FMA or without, in named classes.

Rows are groups. A kernel draws how it adds, how it squares, how it finds its statistics and how it writes its cells;
it shares no code with the bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

F = np.float32
FORMS = ("quotient", "centred", "centred, scaled before", "affine", "affine, scaled after")


@dataclass
class Statistics:
    """Of every row: the mean m and the variance v (of RMS norms the mean square, and m is 0), both in float32."""

    m: np.ndarray
    v: np.ndarray


class NormKernel:
    """One way to compute normalisations, drawn by a seed."""

    def __init__(self, seed: Any) -> None:
        self.rng = Random(str(seed))
        self.numbers = np.random.default_rng([self.rng.getrandbits(32)])
        self.tree = self.rng.choice(("chain", "pairs", "lanes", "blocks"))
        self.order = self.rng.choice(("given", "random", "rising", "falling"))
        self.fma, self.reciprocal = self.rng.random() < 0.5, self.rng.random() < 0.5

    # --- sums

    def _ordered(self, t: np.ndarray) -> np.ndarray:
        if self.order == "given":
            return t
        if self.order == "random":
            return t[:, self.numbers.permutation(t.shape[1])]
        rank = np.argsort(np.abs(t), axis=1)
        return np.take_along_axis(t, rank if self.order == "rising" else rank[:, ::-1], axis=1)

    def total(self, t: np.ndarray) -> np.ndarray:
        """The sum of every row, as a column."""
        return self._added(self._ordered(t.astype(F)))

    def _added(self, t: np.ndarray) -> np.ndarray:
        if self.tree == "chain":
            return np.add.accumulate(t, axis=1, dtype=F)[:, -1:]
        if self.tree == "lanes":
            lanes = self.rng.choice((2, 4, 8, 16))
            padded = np.zeros((t.shape[0], -(-t.shape[1] // lanes) * lanes), F)
            padded[:, : t.shape[1]] = t
            t = np.add.accumulate(padded.reshape(t.shape[0], -1, lanes), axis=1, dtype=F)[:, -1]
        while t.shape[1] > 1:
            size = 2 if self.tree != "blocks" else self.rng.randint(2, 5)
            head = t[:, : t.shape[1] // size * size].reshape(t.shape[0], -1, size)
            t = np.concatenate([np.add.accumulate(head, axis=2, dtype=F)[:, :, -1], t[:, head.size // len(t) :]], 1)
            if t.shape[1] < size:
                t = np.add.accumulate(t, axis=1, dtype=F)[:, -1:]
        return t

    def squares(self, c: np.ndarray) -> np.ndarray:
        """The sum of squares of every row; with FMA one after the other."""
        if not self.fma:
            return self.total(c * c)
        total = np.zeros((len(c), 1))
        for column in self._ordered(c).astype(float).T[:, :, None]:
            total = (total + column * column).astype(F).astype(float)  # exact but for 53 digits: one rounding
        return total.astype(F)

    def over(self, t: np.ndarray, n: int) -> np.ndarray:
        return t * (F(1) / F(n)) if self.reciprocal else t / F(n)

    # --- statistics

    def two_pass(self, x: np.ndarray) -> Statistics:
        m = self.over(self.total(x), x.shape[1])
        return Statistics(m, self.over(self.squares(x - m), x.shape[1]))

    def mean_square(self, x: np.ndarray) -> Statistics:
        return Statistics(np.zeros((len(x), 1), F), self.over(self.squares(x), x.shape[1]))

    def one_pass(self, x: np.ndarray) -> Statistics:
        m = self.over(self.total(x), x.shape[1])
        return Statistics(m, np.maximum(self.over(self.squares(x), x.shape[1]) - m * m, F(0)))

    def welford(self, x: np.ndarray) -> Statistics:
        """Running moments of each of some lanes, merged one after the other."""
        lanes = self.rng.choice([n for n in (1, 4, 16) if n <= x.shape[1]])
        parts = [self._running(part) for part in np.array_split(self._ordered(x), lanes, axis=1)]
        m, q, n = parts[0]
        for m2, q2, n2 in parts[1:]:
            apart, both = m2 - m, n + n2
            share = F(n2) / F(both)
            m, q, n = m + apart * share, q + q2 + apart * apart * (F(n) * share), both
        return Statistics(m, self.over(q, x.shape[1]))

    def _running(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        m, q = x[:, :1], np.zeros((len(x), 1), F)
        for k in range(1, x.shape[1]):
            apart = x[:, k : k + 1] - m
            m = m + (apart * (F(1) / F(k + 1)) if self.reciprocal else apart / F(k + 1))
            q = q + apart * (x[:, k : k + 1] - m)
        return m, q, x.shape[1]

    # --- cells

    def cells(self, x: np.ndarray, s: Statistics, eps: float, g: Any, b: Any, form: str) -> np.ndarray:
        """The normalised cells, times g, plus b, which are arrays that fit, or None."""
        root = np.sqrt(s.v + F(eps))
        r = F(1) / root
        scale = (lambda y: y) if g is None else lambda y: y * g
        shift = (lambda y: y) if b is None else lambda y: y + b
        if form == "quotient":
            return np.asarray(shift(scale((x - s.m) / root)))
        if form == "centred":
            return np.asarray(shift(scale((x - s.m) * r)))
        if form == "centred, scaled before":
            return np.asarray(shift((x - s.m) * scale(r)))
        if form == "affine":
            factor = scale(r)
            return np.asarray(x * factor + shift(-(s.m * factor)))
        return np.asarray(shift(scale(x * r + -(s.m * r))))

    def row(self, make: Callable[[np.ndarray], Statistics], x: np.ndarray, eps: float, g: Any, b: Any) -> np.ndarray:
        return self.cells(x, make(x), eps, g, b, self.rng.choice(FORMS))


# --- data -------------------------------------------------------------------------------------------------------------


def rows(rng: np.random.Generator, n: int, k: float, count: int = 3) -> np.ndarray:
    """Rows with a mean of about k deviations: normal numbers, heavy tails, spikes, few values, one sign."""
    kind = rng.integers(5)
    x = (
        rng.normal(size=(count, n)),
        rng.standard_t(2, size=(count, n)),
        np.where(rng.random((count, n)) < 2 / n, 30.0, 0.0) + 0.01 * rng.normal(size=(count, n)),
        rng.integers(-2, 3, size=(count, n)).astype(float),
        rng.exponential(size=(count, n)),
    )[kind]
    deviation = np.maximum(x.std(1, keepdims=True), 1e-3)
    return np.asarray(((x + k * deviation) * 2.0 ** rng.integers(-4, 5)).astype(F))


def rounding_up(rng: np.random.Generator, n: int, k: float) -> np.ndarray:
    """A row that looks normal, and whose sum from left to right is rounded up at every step by nearly half a unit."""
    x = (rng.normal(size=n) + k).astype(F)
    total = float(x[0])
    for i in range(1, n):
        step = float(np.spacing(F(total + float(x[i]))))
        x[i] = F((np.floor((total + float(x[i])) / step) + 0.51) * step - total)
        total = float(F(total) + x[i])
    return x[None]


def swallowed_squares(n: int) -> np.ndarray:
    """1 and -1, then cells whose squares are lost beside the sum, each of them, from left to right."""
    x = np.full(n, np.sqrt(0.49 * 2.0**-23 * 2))
    x[::2] *= -1
    x[:2] = 1, -1
    return x.astype(F)[None]
