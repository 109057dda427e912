"""Small random networks, each of a kind that runtimes merge, copy or reorder; the numbers make roundings add up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import drawn_windows
import specgrad as sg
from draw import Draw
from floats import FORMATS, Format
from shared_numbers import SHARED
from specgrad.graph.graph import Graph


class Network(NamedTuple):
    """A graph with its inputs; `fixed` names inputs that are weights."""

    kind: str
    graph: Graph
    inputs: tuple[np.ndarray, ...]
    fixed: tuple[str, ...] = ()


def constant(x: Any, array: np.ndarray) -> Any:
    """A weight as a node of the graph, as imported models have it."""
    return x.builder.constant(array)


# --- kinds ----------------------------------------------------------------------------------------------------------


def add_chain(d: Draw) -> Any:
    c = d.large()
    consts = [d.held([c]), d.held([d.rng.choice((c, 1.0, -c)) * d.rng.choice((1, 0.75))]), d.held([-c])]
    chosen = [d.rng.choice(consts) for _ in range(d.rng.randint(2, 4))]

    def net(x: Any) -> Any:
        for v in chosen:
            x = x + v if d.rng.random() < 0.7 else x - v
        return x

    near = d.held(-chosen[0] + d.numbers.integers(-20, 20, 8)) if d.rng.random() < 0.7 else d.array(8)
    return net, (near,)


def two_levels(d: Draw) -> Any:
    """(x + c1) + c2 with x near -c1: what is left of x + c1 is lost where the constants are added first."""
    c1, c2 = d.held([d.large()] * 16), d.held([d.large()] * 16)
    return lambda x: x + c1 + c2, (d.held(-c1 + d.numbers.integers(-20, 20, 16)),)


def mul_chain(d: Draw) -> Any:
    consts = [d.array(6) for _ in range(d.rng.randint(2, 3))]

    def net(x: Any) -> Any:
        for c in consts:
            x = x * c
        return x

    return net, (d.array(6),)


def div_chain(d: Draw) -> Any:
    consts = [d.divisor() for _ in range(d.rng.randint(1, 3))]

    def net(x: Any) -> Any:
        for c in consts:
            x = x / c
        return x + d.array(1) if d.rng.random() < 0.3 else x

    return net, (d.array(24),)


def far_products(d: Draw) -> Any:
    """x*c1*c2 whose constants multiply out of range though no partial result from the left does."""
    p = d.form.highest * d.rng.choice((2, 3)) // 4
    up = d.rng.random() < 0.5
    c, x = d.held([2.0**p if up else 2.0**-p]), d.held([2.0 ** (-p if up else p), 1.0])
    return lambda t: t * c * c, (x,)


def far_quotients(d: Draw) -> Any:
    """Divisors whose product, or whose reciprocal, is out of range."""
    p = d.form.highest * d.rng.choice((2, 3, 4, -3, -4)) // 4
    c, e = d.held([2.0**p]), d.held([2.0 ** d.rng.choice((p, -p // 2, 0))])
    x = d.held([2.0**d.form.highest, 1.0, 2.0**d.form.lowest, 2.0 ** (d.form.lowest - 5)])
    return lambda t: t / c / e if d.rng.random() < 0.7 else t / c, (x,)


def far_averages(d: Draw) -> Any:
    """A sum of normal numbers that is not normal, before a small divisor; a divisor whose reciprocal is not."""
    small = d.rng.random() < 0.7
    x = d.numbers.choice([1.0, -1.0, 1.5, -1.25, 1.75], 5) * 2.0 ** (d.form.lowest if small else d.form.highest - 2)
    power = -d.rng.randint(1, d.form.highest // 2) if small else d.form.highest
    divisor = float(2.0**power * d.rng.choice((1.0, 1.5)))
    return lambda x: sg.avg_pool(x, (2,), stride=1, divisor=divisor) + d.rng.choice((0.0, 1.0)), (d.held(x),)


def flushed(d: Draw) -> Any:
    """Products that are ordinary numbers, with a factor that is not normal."""
    c = d.held(d.numbers.uniform(1, 2, 6) * 2.0 ** (d.form.lowest - d.rng.randint(1, 6)))
    big = d.held(d.numbers.uniform(1, 2, 6) * 2.0 ** (-d.form.lowest - 2))
    x = d.rng.choice((c, big))
    return (lambda t: t * (big if x is c else c) + 1.0), (x,)


def summed_huge(d: Draw) -> Any:
    big = 2.0**d.form.highest
    signs = d.held(d.numbers.choice([1.0, -1.0, 0.5], 6) * big)
    w = d.held(d.numbers.choice([1.0, -1.0], (2, 6)))
    return (lambda x: sg.linear(w, None, x) * 0.25) if d.rng.random() < 0.5 else (lambda x: sg.mean(x)), (signs,)


def doubled(d: Draw) -> Any:
    times = d.rng.randint(2, 6)
    c = d.array(5)

    def net(x: Any) -> Any:
        for _ in range(times):
            x = x + x
        return x + c

    return net, (d.array(5),)


def matmul_add(d: Draw) -> Any:
    n, m = d.rng.randint(4, 24), d.rng.randint(1, 3)
    w, b = d.array(n, m), d.held([d.large()] * m) if d.rng.random() < 0.6 else d.array(m)
    return lambda x: sg.matmul(x, w) + b, (d.array(1, n),)


def _lost(d: Draw, level: float, *shape: int) -> np.ndarray:
    """Weights of which each is lost beside the level, and all together are not."""
    unit = 2.0 ** (np.floor(np.log2(level)) + 1 - d.form.digits)
    return d.held(d.numbers.uniform(0.3, 0.49, shape) * unit)


def matmul_level(d: Draw) -> Any:
    n, level = d.rng.choice((16, 64)), d.large()
    w, b = _lost(d, level, n, 2), d.held([level] * 2)
    return lambda x: sg.matmul(x, w) + b, (d.held(np.ones((1, n))),)


def conv_level(d: Draw) -> Any:
    """A residual that swallows every term of the convolution, as an accumulator that starts with it."""
    c, level = d.rng.choice((4, 8)), d.large()
    w, wz = _lost(d, level, c, c, 3), d.held(np.full((c, 1, 1), level))
    return lambda x: sg.conv(w, None, x, padding=1) + sg.conv(wz, None, x, groups=c), (d.held(np.ones((1, c, 3))),)


def linear_sub_linear(d: Draw) -> Any:
    """Two layers of one input whose difference is small."""
    n = d.rng.randint(3, 16)
    w = d.array(2, n)
    v = w if d.rng.random() < 0.5 else d.held(w * d.numbers.choice([1.0, 1.0 + 2.0 ** (3 - d.form.digits)], w.shape))
    b = d.array(2)
    return lambda x: sg.linear(w, b, x) - sg.linear(v, b, x), (d.array(n),)


def dense_pair(d: Draw) -> Any:
    n, m = d.rng.randint(3, 8), d.rng.randint(3, 6)
    w1, b1, w2, b2 = d.array(m, n), d.array(m), d.array(2, m), d.array(2)
    return lambda x: sg.linear(w2, b2, sg.linear(w1, b1, x)), (d.array(n),)


def perceptron(d: Draw) -> Any:
    n, m = d.rng.randint(3, 10), d.rng.randint(3, 8)
    w1, b1, w2, b2 = d.array(m, n), d.array(m), d.array(3, m), d.array(3)
    return lambda x: sg.linear(w2, b2, sg.relu(sg.linear(w1, b1, x))), (d.array(2, n),)


def mirrored(d: Draw) -> Any:
    """Relus of a number, its negative and itself again, which sums take together: maxima of two are written so."""
    n, count = d.rng.randint(2, 8), d.rng.randint(1, 3)

    def layer(n: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        w, b = d.array(count, n), d.array(count) if d.rng.random() < 0.5 else None
        w, b = np.concatenate([w, -w, w]), None if b is None else np.concatenate([b, -b, b])
        signs = d.rng.choice(([1, -1, 0], [1, 1, 0], [1, 0, -1], [0.5, -1, -1], [1, -2, 1]))
        v = np.concatenate([s * np.eye(count) for s in signs], 1).astype(np.float32)
        return w, b, v if d.rng.random() < 0.7 else d.array(count, 3 * count)

    first, second = layer(n), layer(count)
    deep = d.rng.random() < 0.5

    def net(x: Any) -> Any:
        y = x
        for w, b, v in (first, second)[: 1 + deep]:
            y = sg.linear(v, None, sg.relu(sg.linear(w, b, y)))
        return y

    return net, (d.array(2, n) if d.rng.random() < 0.3 else d.array(n),)


def _conv(d: Draw, c_in: int, c_out: int, rank: int, groups: int = 1) -> tuple[np.ndarray, np.ndarray | None]:
    w = d.array(c_out, c_in // groups, *(d.rng.choice((1, 2, 3)),) * rank)
    return w, d.array(c_out) if d.rng.random() < 0.6 else None


def _plane(d: Draw, channels: int, rank: int) -> np.ndarray:
    return d.array(1, channels, *(d.rng.randint(3, 5),) * rank)


def conv_bn(d: Draw) -> Any:
    """conv, batch_norm, perhaps a residual and relu; statistics as constants, or as nodes as importers have them."""
    rank, c = d.rng.randint(1, 2), d.rng.randint(1, 3)
    w = d.array(c, c, *(3,) * rank)
    b = d.array(c) if d.rng.random() < 0.5 else None
    mean, var, weight, bias = d.array(c), d.positive(c), d.array(c), d.array(c)
    nodes, residual, relu = (d.rng.random() < 0.5 for _ in range(3))

    def net(x: Any) -> Any:
        stats = [constant(x, v) for v in (mean, var, weight, bias)] if nodes else [mean, var, weight, bias]
        y = sg.batch_norm(sg.conv(w, b, x, padding=1), *stats)
        y = y + x if residual else y
        return sg.relu(y) if relu else y

    return net, (_plane(d, c, rank),)


def conv_residual(d: Draw) -> Any:
    rank, c = d.rng.randint(1, 2), d.rng.randint(1, 3)
    (w, level) = d.array(c, c, *(3,) * rank), d.held([d.large()] * c)

    def net(x: Any) -> Any:
        y = sg.conv(w, None, x, padding=1)
        z = sg.conv(level.reshape((c, 1) + (1,) * rank), None, x, groups=c)
        return sg.relu(y + z) if d.rng.random() < 0.5 else y + z

    return net, (_plane(d, c, rank),)


def conv_chain(d: Draw) -> Any:
    rank = d.rng.randint(1, 2)
    groups = d.rng.choice((1, 2))
    (w1, b1), (w2, b2) = _conv(d, 2, 2, rank, groups), _conv(d, 2, 1, rank)

    def net(x: Any) -> Any:
        y = sg.conv(w1, b1, x, padding=1, groups=groups)
        y = sg.relu(y) if d.rng.random() < 0.3 else y
        return sg.conv(w2, b2, y, stride=d.rng.choice((1, 2)), padding=d.rng.choice((0, 1)))

    return net, (_plane(d, 2, rank),)


def transposed(d: Draw) -> Any:
    rank = d.rng.randint(1, 2)
    w, b, v = d.array(2, 2, *(2,) * rank), d.array(2), d.array(2, 2, *(1,) * rank)

    def net(x: Any) -> Any:
        y = sg.conv_transpose(w, b, x, stride=d.rng.choice((1, 2)))
        return sg.conv(v, None, y) if d.rng.random() < 0.5 else sg.relu(y)

    return net, (d.array(1, 2, *(3,) * rank),)


def pooled_head(d: Draw) -> Any:
    c = d.rng.randint(1, 3)
    w, b = d.array(2, c), d.array(2)
    pool = d.rng.choice((lambda x: sg.global_avg_pool(x, rank=2, keepdims=False), lambda x: sg.mean(x, (2, 3))))

    def net(x: Any) -> Any:
        x = sg.relu(x) if d.rng.random() < 0.5 else x
        if d.rng.random() < 0.75:
            x = drawn_windows.pooled(d.rng, x, 2, largest=False, empty=True)
        return sg.linear(w, b, pool(x))

    return net, (_plane(d, c, 2),)


def two_heads(d: Draw) -> Any:
    c = d.array(6)

    def net(x: Any) -> Any:
        v = x * c + d.divisor()
        r = sg.relu(v) if d.rng.random() < 0.7 else v
        return r - c, r * 3.0 + v

    return net, (d.array(6),)


def copied(d: Draw) -> Any:
    """relu(v) - relu(v): two readers of one value, which need not have seen the same rounding of it."""
    c, e = d.held(d.array(6)), d.large()
    bend = d.rng.choice((sg.relu, sg.abs, lambda v: sg.leaky_relu(v, 0.25), lambda v: sg.maximum(v, v * 0.5), sg.neg))

    def net(x: Any) -> Any:
        v = d.rng.choice((lambda: x * c + e, lambda: x + e + c, lambda: x + e - e, lambda: x * c - e + e))()
        return bend(v) - bend(v) if d.rng.random() < 0.5 else (lambda r: r * e - r * e)(bend(v))

    return net, (d.array(6),)


def copied_conv(d: Draw) -> Any:
    """The same after a convolution, with batch normalisation between."""
    w, scale, shift = d.array(2, 2, 3), d.array(2, 1), d.held([[d.large()], [1.0]])

    def net(x: Any) -> Any:
        v = sg.conv(w, None, x, padding=1) * scale + shift
        r = sg.relu(v)
        head = sg.conv(w, None, r, padding=1)
        return r - sg.relu(v), head + r

    return net, (d.array(1, 2, 5),)


def curved(d: Draw) -> Any:
    """Functions that bend, of values that copies may have rounded differently; sums of them, and differences."""
    low, slope = d.rng.uniform(-1, 0), d.rng.choice((0.01, 0.1, -0.3))
    straight = (sg.abs, sg.relu6, lambda v: sg.clamp(v, low, 0.3), lambda v: sg.leaky_relu(v, slope))
    f = d.rng.choice((sg.tanh, sg.sigmoid, sg.exp, sg.hardswish, *straight))
    g = d.rng.choice((sg.tanh, sg.sigmoid, sg.hardswish, *straight))
    w, c, e = d.array(5, 4) / 4, d.array(5), d.large() if d.rng.random() < 0.3 else 1.0
    e = e if e < 2.0**40 else 2.0**20

    def net(x: Any) -> Any:
        v = d.rng.choice((lambda: w @ x, lambda: w @ x + e - e, lambda: (w @ x) * c))()
        y = f(g(v)) if d.rng.random() < 0.5 else g(v) + c
        return d.rng.choice((lambda: y - g(v), lambda: g(y) * e - y * e, lambda: w.T @ y, lambda: w.T @ g(y * 2.0)))()

    return net, (d.array(4) / 4,)


def smoothed(d: Draw) -> Any:
    """Smooth maxima of values that copies may have rounded differently, near each other and far apart."""
    beta, stride = d.rng.choice((1, 2.5, -1, 0.1, 20, -0.3)), d.rng.choice((1, 2))
    padded, padding = d.rng.choice(("zero", "ignore")), d.rng.choice((0, 1))
    w, v = d.array(2, 1, 2) / 2, d.array(2, 2, 2) / 2
    level = np.float32(d.rng.choice((0, 0, 1, 30, -1000)))

    smooth = sg.REGISTRY["smooth_max_pool"]
    any_window = d.rng.random() < 0.5

    def net(x: Any) -> Any:
        y = sg.conv(w, None, x, padding=1) + level
        if any_window:
            window = drawn_windows.window(d.rng, y.shape[2:], empty=True, adaptive=False)  # PyTorch has no others
            y = sg.apply(smooth, y, window=window, beta=beta, padded=padded)
        else:
            y = sg.smooth_max_pool(y, (2,), beta=beta, stride=stride, padding=padding, padded=padded)
        z = sg.relu(y) if d.rng.random() < 0.3 else y * 0.5
        z = sg.conv(v, None, z - level, padding=1)
        return d.rng.choice((lambda: z, lambda: sg.smooth_max_pool(z, (3,), beta=beta, stride=1), lambda: sg.tanh(z)))()

    return net, (d.array(1, 1, 5) / 2,)


def bent(d: Draw) -> Any:
    low, high, slope = d.rng.uniform(-1, 0), d.rng.uniform(0.1, 1), d.rng.choice((0.01, 0.1, -0.3))

    def net(x: Any) -> Any:
        y = sg.clamp(x * 2.0, low, high) + sg.leaky_relu(x, slope)
        return sg.maximum(y, d.rng.uniform(0, 1)) - sg.minimum(x, 0.1)

    return net, (d.array(12),)


def max_pooled(d: Draw) -> Any:
    """Over windows of every kind."""
    rank = d.rng.randint(1, 3)
    w, b, c = d.array(2, 2, *(d.rng.choice((1, 2)),) * rank), d.array(2), d.large()

    def net(x: Any) -> Any:
        y = sg.conv(w, b, x, padding=1) + d.rng.choice((c, 0.1))
        y = sg.relu(y) if d.rng.random() < 0.5 else y
        return drawn_windows.pooled(d.rng, y, rank, largest=True) - c

    return net, (d.array(1, 2, *(2,) * rank),)


def laid_out(d: Draw) -> Any:
    """Layout between sums: nothing is stored because something moved."""
    w = d.array(2, 4)

    def net(x: Any) -> Any:
        y = sg.upsample_nearest(x + d.array(1), (2,))
        y = sg.concat([y, sg.neg(y)], 0)
        y = sg.permute(sg.reshape(y, (4, -1)), (1, 0))
        y = sg.linear(w, None, y)
        return sg.pad(y, [(1, 1), (0, 0)]) + sg.sum(y) / 3.0

    return net, (d.array(2, 2),)


def detector(d: Draw) -> Any:
    """(w*x + 1*x - w*x): what is left of the 1 tells in which order a runtime adds (arXiv 2506.01054)."""
    w = 2.0**d.form.digits / d.rng.choice((1, 2, 4))
    count = d.rng.randint(1, 4)

    def net(x: Any) -> Any:
        y = x
        for _ in range(count):
            y = y * w + x - y * w
        return sg.relu(y - 0.5)

    return net, (d.held(np.ones(3)),)


def weights_as_inputs(d: Draw) -> Any:
    c = d.rng.randint(1, 2)
    level = d.held([[d.large()]] * c)

    def net(w: Any, b: Any, x: Any) -> Any:
        y = sg.conv(w, b, x, padding=1) + level
        return sg.relu(y) - level

    return net, (d.array(c, c, 3), d.array(c), d.array(1, c, 5)), ("w", "b")


KINDS: dict[str, Callable[[Draw], Any]] = {
    f.__name__: f
    for f in (
        add_chain, two_levels, mul_chain, div_chain, far_products, far_quotients, far_averages, flushed, summed_huge,
        doubled, matmul_add, matmul_level, conv_level, linear_sub_linear, dense_pair, perceptron, conv_bn,
        conv_residual, conv_chain, transposed, pooled_head, two_heads, copied, copied_conv, bent, max_pooled, laid_out,
        detector, weights_as_inputs,
    )
}  # fmt: skip


CURVED = {"curved": curved, "smoothed": smoothed}
"""What rationals have no functions for."""


MIRRORED = {"mirrored": mirrored}
"""Hunted by tests/hunt/test_twins.py."""


def network(seed: int, form: Format = FORMATS["float32"], kind: str | None = None) -> Network:
    """The network of a seed; kinds take turns."""
    names = list(KINDS)
    name = kind or names[seed % len(names)]
    net, inputs, *fixed = {**KINDS, **CURVED, **SHARED, **MIRRORED}[name](Draw(f"{name}/{form.name}/{seed}", form))
    return Network(name, sg.trace(net, *(x.shape for x in inputs)), inputs, *fixed)
