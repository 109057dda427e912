"""Random valid cases for the law tests: small, full of ties, padding, dilation and empty windows."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

from ..scalar import Array, exact
from ..window import Shape, Window, adaptive, strided


def sizes(rng: Random, rank: int, low: int = 1) -> Shape:
    """Return `rank` random axis sizes of at least `low`, which keep the number of cells small at every rank."""
    high = {0: 1, 1: 9, 2: 6, 3: 4}.get(rank, 3)
    return tuple(rng.randint(low, max(low, high)) for _ in range(rank))


def lead(rng: Random) -> Shape:
    """Return zero to two leading axes, now and then an empty one ([P4]), drawn by `rng`."""
    return tuple(rng.choice((1, 2, 2, 3, 0)) for _ in range(rng.choice((0, 0, 1, 1, 2))))


def numbers(rng: Random, shape: Shape, *, low: int = -3, denominators: tuple[int, ...] = (1, 1, 1, 2, 3)) -> Array:
    """Return an object array of random Fractions, of this shape, from a small range, so that ties are common.

    Numerators lie in low..3, denominators are chosen from `denominators`.
    """
    count = int(np.prod(shape, dtype=int))
    cells = [Fraction(rng.randint(low, 3), rng.choice(denominators)) for _ in range(count)]
    return exact(np.array(cells, dtype=object).reshape(shape)) if count else np.empty(shape, dtype=object)


def positive(rng: Random, shape: Shape) -> Array:
    """Return an object array of random positive Fractions, of this shape."""
    return numbers(rng, shape, low=1)


def like(rng: Random, x: Any) -> Array:
    """Return exact numbers in the shape of x, drawn by `rng`."""
    return numbers(rng, np.shape(x))


def window(rng: Random, rank: int | None = None, *, ceil: bool = False, any_axis: bool = False) -> Window:
    """Return a window of rank 1 to 4, drawn by `rng`; padding may exceed the kernel, so some windows are empty.

    `ceil` allows sizes rounded up, `any_axis` adaptive windows.
    """
    rank = rank or rng.randint(1, 4)
    size = sizes(rng, rank)
    if any_axis and rng.random() < 0.25:
        return adaptive("case", size, tuple(rng.randint(1, n + 1) for n in size))
    kernel = tuple(rng.randint(1, 3 if rank < 4 else 2) for _ in range(rank))
    dilation = tuple(rng.choice((1, 1, 2)) for _ in range(rank))
    stride = tuple(rng.choice((1, 1, 2, 3)) for _ in range(rank))
    padding = []
    for n, k, e in zip(size, kernel, dilation, strict=True):
        span = e * (k - 1) + 1
        lo = rng.choice((0, 0, 1, span))
        missing = max(0, span - n - lo)
        padding.append((lo, missing + rng.choice((0, 0, 1, 2))))
    return strided(
        "case", size, kernel, stride=stride, padding=tuple(padding), dilation=dilation, ceil=ceil and rng.random() < 0.5
    )
