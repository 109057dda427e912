"""Random networks in which slices stand anywhere: behind convolutions, groups, pools, sums, layouts, joined parts."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

import specgrad as sg
from specgrad.graph.graph import Graph
from spellings import numbers

MOST_CELLS = 400


def cut(v: Any, rng: Random) -> Any:
    """A slice along some axes, with steps at times."""
    ranges = []
    for n in v.shape:
        start = rng.randint(0, n - 1) if rng.random() < 0.4 else 0
        stop = rng.randint(start + 1, n) if rng.random() < 0.4 else n
        ranges.append(slice(start, stop, rng.choice((1, 1, 1, 2))))
    return sg.slice(v, *ranges)


def convolved(v: Any, rng: Random) -> Any:
    """Groups of channels, and last channels that no weight reads."""
    c, rank = v.shape[1], len(v.shape) - 2
    groups = rng.choice([g for g in (1, 1, 2, 3, 4, c) if c % g == 0])
    w = numbers(rng, groups * rng.randint(1, 4), c // groups, *(rng.randint(1, min(2, n)) for n in v.shape[2:]))
    if rng.random() < 0.5:
        w[:, rng.randint(1, max(1, c // groups)) :] = 0
    bias = numbers(rng, w.shape[0]) if rng.random() < 0.5 else None
    return sg.conv(w, bias, v, padding=rng.choice((0, 1)), groups=groups) if rank else v


def stretched(v: Any, rng: Random) -> Any:
    """A gate per channel, or the value added to a row of itself."""
    axes = tuple(a for a in range(len(v.shape)) if rng.random() < 0.5)
    return v * sg.tanh(sg.sum(v, axes, keepdims=True)) if rng.random() < 0.5 else sg.maximum(v, numbers(rng, *v.shape))


def turned(v: Any, rng: Random) -> Any:
    if rng.random() < 0.5:
        return sg.permute(v, tuple(rng.sample(range(len(v.shape)), len(v.shape))))
    sizes = list(v.shape)
    k = rng.randrange(len(sizes))
    if rng.random() < 0.5 and k + 1 < len(sizes):
        return sg.reshape(v, (*sizes[:k], sizes[k] * sizes[k + 1], *sizes[k + 2 :]))
    factor = rng.choice([f for f in (1, 2, 3) if sizes[k] % f == 0])
    return sg.reshape(v, (*sizes[:k], factor, sizes[k] // factor, *sizes[k + 1 :]))


def joined(v: Any, rng: Random) -> Any:
    return sg.concat([v, sg.relu(v), v * 2][: rng.randint(1, 3)], rng.randrange(len(v.shape)))


def pooled(v: Any, rng: Random) -> Any:
    if len(v.shape) < 3 or min(v.shape[2:]) < 2:
        return sg.sum(v, (rng.randrange(len(v.shape)),)) if len(v.shape) > 2 else v
    size = (2,) * (len(v.shape) - 2)
    return sg.max_pool(v, size, stride=1) if rng.random() < 0.5 else sg.avg_pool(v, size, stride=1)


def mixed(v: Any, rng: Random) -> Any:
    w = numbers(rng, rng.randint(1, 4), v.shape[-1])
    return sg.linear(w, numbers(rng, w.shape[0]), v) if rng.random() < 0.7 else sg.pad(v, [(rng.randint(0, 1), 1)])


KINDS = (cut, cut, cut, cut, convolved, convolved, stretched, turned, turned, joined, pooled, mixed)


def network(seed: int) -> Graph:
    """A network of 3 to 8 layers, kept small."""
    rng = Random(f"cuts {seed}")

    def net(x: Any) -> Any:
        for _ in range(rng.randint(3, 8)):
            y = rng.choice(KINDS)(x, rng)
            x = y if 0 < int(np.prod(y.shape)) <= MOST_CELLS and 2 <= len(y.shape) <= 5 else x
        return cut(x, rng)

    return sg.trace(net, (rng.randint(1, 2), rng.randint(1, 6), *(rng.randint(2, 4) for _ in range(rng.randint(1, 2)))))
