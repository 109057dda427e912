"""Tensor cores in software, written from published descriptions of V100 to B200 and MI300 (Khattak and Mikaitis,
arXiv 2512.07004; Xie et al., arXiv 2511.10909), apart from the library.

All numbers are float64. A product of two short factors is exact there, and so is a sum of terms that were cut to a
common step, as long as it has fewer than 53 digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

SMALLEST_EXPONENT = -126


def exponent(x: np.ndarray, lowest: int) -> np.ndarray:
    """The exponent that stands for x in a format whose normal numbers begin at 2**lowest; that one for zero."""
    return np.where(x == 0, lowest, np.maximum(np.frexp(x)[1] - 1, lowest))


def cut(x: np.ndarray, last: np.ndarray, how: str) -> np.ndarray:
    """x to multiples of 2**last: "zero", "down" or "nearest" (ties to even)."""
    steps = np.ldexp(x, -last)
    return np.ldexp({"zero": np.trunc, "down": np.floor, "nearest": np.rint}[how](steps), last)


@dataclass(frozen=True)
class Unit:
    """One matrix unit.

    fraction   binary places kept below the largest exponent of a step
    digits     of the accumulator
    align      what becomes of bits below `fraction`: "zero", "down" or "nearest"
    keep       what becomes of bits below `digits`: the same words
    lowest     exponent of the smallest normal factor
    raw        a product has the sum of its factors' exponents; else its own exponent
    late       the products are added first, and their sum and the accumulator are aligned then
    range      exponent of the accumulator's smallest normal number
    """

    fraction: int
    digits: int
    align: str = "zero"
    keep: str = "zero"
    lowest: int = -126
    raw: bool = True
    late: bool = False
    range: int = SMALLEST_EXPONENT

    def step(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """c + the sum of a*b over the last axis, as one step of the unit."""
        terms = a * b
        powers = exponent(a, self.lowest) + exponent(b, self.lowest) if self.raw else exponent(terms, -1000)
        powers = np.where(terms == 0, self.range, powers)
        own, top = exponent(c, self.range), powers.max(-1, initial=self.range)
        if self.late:
            total = cut(terms, top[..., None] - self.fraction, self.align).sum(-1)
            top = np.maximum(top, own)
            total = cut(total, top - self.fraction, self.align) + cut(c, top - self.fraction, self.align)
        else:
            top = np.maximum(top, own)
            total = cut(terms, top[..., None] - self.fraction, self.align).sum(-1)
            total = total + cut(c, top - self.fraction, self.align)
        return self.kept(total)

    def kept(self, x: np.ndarray) -> np.ndarray:
        """x as the accumulator holds it."""
        return cut(x, exponent(x, self.range) - self.digits + 1, self.keep)


def blocks(n: int, terms: int, rng: np.random.Generator) -> Iterator[slice]:
    """A cut of n products into steps of `terms` or more, the last apart."""
    start = 0
    while start < n:
        size = int(rng.integers(terms, 2 * terms + 1))
        yield slice(start, start + size)
        start += size


def dot(
    unit: Unit, a: np.ndarray, b: np.ndarray, first: np.ndarray, terms: int, chain: int | None, rng: np.random.Generator
) -> np.ndarray:
    """first + the sum of a*b over the last axis, in steps of `terms` or more; `chain` products per accumulator, which
    is added to a float32 sum then.
    """
    n = a.shape[-1]
    if chain is None:
        total = first
        for part in blocks(n, terms, rng):
            total = unit.step(a[..., part], b[..., part], total)
        return total
    outside = first.astype(np.float32)
    for start in range(0, n, chain):
        part = slice(start, start + chain)
        piece = dot(unit, a[..., part], b[..., part], np.zeros_like(first), terms, None, rng)
        outside = outside + piece.astype(np.float32)
    return outside.astype(float)


def splits(
    unit: Unit, a: np.ndarray, b: np.ndarray, first: np.ndarray, terms: int, rng: np.random.Generator
) -> np.ndarray:
    """Several accumulators, whose sums are added in float32."""
    n = a.shape[-1]
    count = int(rng.integers(1, min(4, n) + 1))
    size = -(-n // count)
    parts = [slice(k, k + size) for k in range(0, n, size)]
    sums = [dot(unit, a[..., p], b[..., p], first * (k == 0), terms, None, rng) for k, p in enumerate(parts)]
    total = sums[0].astype(np.float32)
    for other in sums[1:]:
        total = total + other.astype(np.float32)
    return total.astype(float)
