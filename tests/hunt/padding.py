"""Executions that multiply what is no cell: padding, zeros stuffed between cells, zeros of a matrix. Written apart.

A network is c2 * op(c1 * x, w) along one axis. A runtime may fold c1 and c2 into the weights, and then multiplies every
tap, those at zeros too: 0 times a weight that overflowed is NaN. Constants are drawn near and beyond the largest number
of the format, and infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import specgrad as sg
from specgrad.graph.graph import Graph
from specgrad.op import REGISTRY, apply
from specgrad.window import strided

Sums = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass
class Padded:
    """A graph of x, and its sums of products over all taps (x, w) -> y; constants c1, w, c2, in any format."""

    graph: Graph
    x: np.ndarray
    w: np.ndarray
    c1: float
    c2: float
    sums: Sums

    def executions(self, kind: Any) -> Iterator[np.ndarray]:
        """By node; and with either scale, or both, folded into the weights beforehand."""
        with np.errstate(all="ignore"):
            x, w, c1, c2 = (np.asarray(v).astype(kind) for v in (self.x, self.w, self.c1, self.c2))
            yield self.sums(x * c1, w) * c2
            yield self.sums(x, w * c1) * c2
            yield self.sums(x * c1, w * c2)
            yield self.sums(x, w * c1 * c2)


def drawn(seed: Any, largest: float) -> Padded:
    """Any of conv, conv_transpose, conv_weight, and an average by a matrix; often with a number too large."""
    rng = Random(f"padding {seed}")
    name = rng.choice(("conv", "conv", "conv_transpose", "conv_weight", "average"))
    n, k, s, e = rng.randint(1, 5), rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 2)
    pads = rng.randint(0, 3), rng.randint(0, 3)
    short = max(0, (k - 1) * e + 1 - n - sum(pads))
    pads = pads[0], pads[1] + short
    window = strided("conv", (n,), (k,), stride=s, padding=(pads,), dilation=e)
    out = window.out[0]
    reads = [[s * p + e * t - pads[0] for t in range(k)] for p in range(out)]
    sizes = {"conv": (n, k), "conv_transpose": (out, k), "conv_weight": (n, out), "average": (n, 0)}[name]
    x, w = (_numbers(rng, size, largest) for size in sizes)
    far = 2.0 ** round(np.log2(largest) / 2)
    alone = rng.random() < 0.4  # a layer without scales
    c1, c2 = (1.0 if alone else rng.choice((1.0, 2.0, 0.5, far, 1 / far)) for _ in range(2))
    params: dict[str, Any] = {"window": window, "groups": 1}
    sums: dict[str, Sums] = {
        "conv": lambda x, w: _total([[w[t] * _at(x, i) for t, i in enumerate(row)] for row in reads]),
        "conv_transpose": lambda x, w: _total([[w[t] * _from(x, reads, t, i) for t in range(k)] for i in range(n)]),
        "conv_weight": lambda x, w: _total([[w[p] * _at(x, reads[p][t]) for p in range(out)] for t in range(k)]),
        "average": lambda x, w: _averages(x, w, min(n, 3)),
    }

    def net(v: Any) -> Any:
        y = layer(v if c1 == 1 else v * c1)
        return y if c2 == 1 else y * c2

    def layer(v: Any) -> Any:
        if name == "average":
            return sg.adaptive_avg_pool(v, (min(n, 3),))
        row, weights = sg.reshape(v, (1, 1, len(x))), w.reshape((1, 1, len(w)))
        return sg.reshape(apply(REGISTRY[name], row, weights, **params), (-1,))

    return Padded(sg.trace(net, (len(x),)), x, w if len(w) else np.ones(1), c1, c2, sums[name])


def _numbers(rng: Random, size: int, largest: float) -> np.ndarray:
    numbers = [rng.choice((0.0, 1.0, -1.5, 0.25, 3.0)) for _ in range(size)]
    for k in range(size):
        if rng.random() < 0.15:
            numbers[k] = rng.choice((-1, 1)) * rng.choice((largest * 2, largest / 4, largest**0.75, np.inf))
    return np.array(numbers)


def _at(x: np.ndarray, i: int) -> Any:
    return x[i] if 0 <= i < len(x) else x.dtype.type(0)


def _from(x: np.ndarray, reads: list[list[int]], t: int, i: int) -> Any:
    """What stands at tap t of cell i in an input stuffed with zeros."""
    return next((x[p] for p, row in enumerate(reads) if row[t] == i), x.dtype.type(0))


def _averages(x: np.ndarray, w: np.ndarray, out: int) -> np.ndarray:
    """A product with a matrix, which holds the folded scale."""
    n = len(x)
    ends = [(p * n // out, -(-(p + 1) * n // out)) for p in range(out)]
    kind = x.dtype.type
    rows = [[w[0] / kind(b - a) if a <= i < b else kind(0) for i in range(n)] for a, b in ends]
    return _total([[m * v for m, v in zip(row, x, strict=True)] for row in rows])


def _total(rows: list[list[Any]]) -> np.ndarray:
    """Every row added up from left to right, in the numbers' own format."""
    totals = []
    for row in rows:
        total = row[0]
        for v in row[1:]:
            total = total + v
        totals.append(total)
    return np.array(totals)
