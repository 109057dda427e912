"""Random networks for tiles: ranks 1 to 3, every window option, skips, two outputs; integers in, exact float64 out."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np

import specgrad as sg

EXACT = 2.0**45  # sums below this are exact in float64, with room for quarters
MOST_CELLS = 20_000


def whole_numbers(rng: Random, *shape: int) -> np.ndarray:
    count = math.prod(shape)
    return np.array([rng.randint(-2, 2) for _ in range(count)], dtype=float).reshape(shape)


class Options:
    """Random attributes of one layer."""

    def __init__(self, rng: Random, rank: int) -> None:
        each = lambda low, high: tuple(rng.randint(low, high) for _ in range(rank))
        self.kernel, self.stride, self.dilation, self.factor = each(1, 4), each(1, 3), each(1, 3), each(1, 3)
        self.padding = tuple(zip(each(0, 4), each(0, 4), strict=True))
        self.ceil, self.inside = rng.random() < 0.5, rng.random() < 0.5


def conv(rng: Random, x: Any, o: Options) -> Any:
    groups = rng.choice((1, 1, 2)) if x.shape[1] % 2 == 0 else 1
    out = rng.choice((2, 4))
    b = whole_numbers(rng, out) if rng.random() < 0.5 else None
    w = whole_numbers(rng, out, x.shape[1] // groups, *o.kernel)
    return sg.conv(w, b, x, stride=o.stride, padding=o.padding, dilation=o.dilation, groups=groups)


def conv_transpose(rng: Random, x: Any, o: Options) -> Any:
    more = tuple(rng.randrange(max(pair)) for pair in zip(o.stride, o.dilation, strict=True))
    w = whole_numbers(rng, x.shape[1], 2, *o.kernel)
    less = tuple((lo // 2, hi // 2) for lo, hi in o.padding)
    b = whole_numbers(rng, 2) if rng.random() < 0.5 else None
    return sg.conv_transpose(w, b, x, stride=o.stride, padding=less, dilation=o.dilation, output_padding=more)


def max_pool(rng: Random, x: Any, o: Options) -> Any:
    return sg.max_pool(x, o.kernel, stride=o.stride, padding=o.padding, dilation=o.dilation, ceil=o.ceil)


def avg_pool(rng: Random, x: Any, o: Options) -> Any:
    """Counts are products of 1 to 4 per axis: 12 times as much per axis has whole means."""
    options: Any = {"divisor": 2} if rng.random() < 0.3 else {"count_include_pad": not o.inside}
    x = x * float(12 ** len(o.kernel))
    return sg.avg_pool(x, o.kernel, stride=o.stride, padding=o.padding, ceil=o.ceil, **options)


def pad(rng: Random, x: Any, o: Options) -> Any:
    return sg.pad(x, o.padding, value=rng.choice((0, 3)))


def crop(rng: Random, x: Any, o: Options) -> Any:
    ranges = []
    for n in x.shape[2:]:
        first = rng.randint(0, n - 1)
        ranges.append(slice(first, rng.randint(first + 1, n), rng.randint(1, 2)))
    return sg.slice(x, None, None, *ranges)


def normalise(rng: Random, x: Any, o: Options) -> Any:
    c = x.shape[1]
    var = np.array([rng.choice((1.0, 4.0, 16.0)) for _ in range(c)])
    return sg.batch_norm(x, whole_numbers(rng, c), var, whole_numbers(rng, c), whole_numbers(rng, c), eps=0.0)


def shuffle(rng: Random, x: Any, o: Options) -> Any:
    """Channels to cells: reshape, permute, reshape."""
    n, c, *sizes = x.shape
    rank = len(sizes)
    if c % 2**rank:
        return sg.relu(x)
    x = sg.reshape(x, (n, c // 2**rank, *(2,) * rank, *sizes))
    x = sg.permute(x, (0, 1, *(a for k in range(rank) for a in (2 + rank + k, 2 + k))))
    return sg.reshape(x, (n, c // 2**rank, *(2 * m for m in sizes)))


def skip(rng: Random, x: Any, o: Options) -> Any:
    rank = len(x.shape) - 2
    y = sg.relu(sg.conv(whole_numbers(rng, 2, x.shape[1], *(3,) * rank), None, x, padding=1))
    return sg.concat([x, y], 1)


def down_and_up(rng: Random, x: Any, o: Options) -> Any:
    """A U of one level, cropped to what it joins."""
    y = sg.upsample_nearest(sg.max_pool(x, o.factor, ceil=True), o.factor)
    return x + sg.slice(y, None, None, *(slice(0, n) for n in x.shape[2:]))


def resized(rng: Random, x: Any, o: Options) -> Any:
    """Twice as many cells: weights are quarters. Nearest: any factor."""
    linear = rng.random() < 0.5
    factors = (2,) * len(o.factor) if linear else o.factor
    where = rng.choice(("half_pixel", "asymmetric", "pytorch_half_pixel"))
    how = "linear" if linear else rng.choice(("floor", "round_prefer_ceil", "round_prefer_floor"))
    return sg.resize(x, scales=factors, where=where, how=how)


def positions(rng: Random, x: Any, o: Options) -> Any:
    """A constant that differs from cell to cell."""
    return x + np.arange(math.prod(x.shape[2:]), dtype=float).reshape(x.shape[2:]) % 5


LAYERS = [conv, conv, conv_transpose, max_pool, avg_pool, pad, crop, normalise, shuffle, skip, down_and_up, resized]
LAYERS += [positions, lambda rng, x, o: sg.relu(x), lambda rng, x, o: sg.upsample_nearest(x, o.factor)]


def network(rng: Random) -> sg.Graph:
    """A random chain; now and then a second output from the middle."""
    rank = rng.choice((1, 2, 2, 2, 3))
    depth, two = rng.randint(1, 6), rng.random() < 0.4

    def net(x: Any) -> Any:
        middle = x
        for k in range(depth):
            try:
                y = rng.choice(LAYERS)(rng, x, Options(rng, rank))
            except sg.ShapeError:
                continue
            if min(y.shape) > 0 and math.prod(y.shape) <= MOST_CELLS:
                x = y
            middle = x if k == depth // 2 else middle
        return (x, sg.relu(middle)) if two else x

    sizes = tuple(rng.randint(3, {1: 60, 2: 24, 3: 8}[rank]) for _ in range(rank))
    return sg.trace(net, (rng.choice((1, 2)), rng.choice((1, 2, 4)), *sizes))
