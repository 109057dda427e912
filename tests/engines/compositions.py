"""Compositions of operators on an engine against the specification in float64: what a rewrite of a graph may get wrong.

A rewrite says that two graphs are one function, and is wrong where it takes one node for another: a second tanh behind
a tanh, a constant that is nearly the same, a product of other factors. So every operator stands before every other and
before itself, in chains and beside what they read, and so do forms that look like the patterns of rewrites, and forms
that nearly do. Weights are inputs: their cotangents have rewrites of their own.

Each composition is four graphs: itself, its jvp, its vjp and the jvp of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any
from zlib import crc32

import numpy as np

import specgrad as sg
from functions import EVERYWHERE
from specgrad.graph.graph import Graph
from specgrad.rounding import Arithmetic, radius

Value = Any
Array = np.ndarray
SHAPES = ((2, 2, 3, 3), (1, 2, 3, 3), (2, 2, 3), (2, 3))
USUAL = SHAPES[0]  # where windows have two axes; JAX compiles its operators anew for every shape
MODES = ("forward", "jvp", "vjp", "jvp of vjp")


# --- what is composed -------------------------------------------------------------------------------------------------


class Weights:
    """Arrays by name, made where they are asked for first; the same name and shape is the same array."""

    def __init__(self, seed: int, given: dict[str, Any] | None = None) -> None:
        self.seed, self.arrays = seed, given if given is not None else {}
        self.fixed = given is not None

    def __call__(self, name: str, *shape: int, positive: bool = False) -> Value:
        key = f"{name}{'x'.join(map(str, shape))}"
        if key not in self.arrays:
            assert not self.fixed, f"a function that asks for {key} once and not another time"
            draw = np.random.default_rng([self.seed, *key.encode()])
            self.arrays[key] = draw.uniform(0.5, 2, shape) if positive else draw.normal(size=shape) * 0.7
        return self.arrays[key]


Kind = Callable[[Value, Value, Weights], Value]  # of the value so far, of another one of its shape, of weights


def _space(x: Value) -> tuple[int, ...]:
    return tuple(range(2, len(x.shape)))


def _rank(x: Value) -> int:
    """Axes of windows: those behind the channels, or the last where there are none."""
    return max(1, len(x.shape) - 2)


def _images(f: Callable[..., Value]) -> Kind:
    """f of x with at least one axis behind the channels."""

    def run(x: Value, z: Value, w: Weights) -> Value:
        if len(x.shape) > 2:
            return f(x, z, w)
        wide = tuple(sg.reshape(v, (*v.shape, 1)) for v in (x, z))
        return sg.reshape(f(*wide, w), x.shape)

    return run


def _kernel(x: Value, w: Weights, name: str = "kernel", groups: int = 1) -> Value:
    c = x.shape[1]
    return w(name, c, c // groups, *(3,) * _rank(x))


def _vector(x: Value, w: Weights, name: str, **options: Any) -> Value:
    return w(name, x.shape[1], **options)


def _beside(v: Value, x: Value) -> Value:
    """A vector by channels in the shape in which it is broadcast beside x, as batch_norm does."""
    return sg.reshape(v, (x.shape[1], *(1,) * (len(x.shape) - 2)))


def _twins(x: Value) -> tuple[int, int]:
    """Two axes of one size."""
    pairs = [(a, b) for b in range(len(x.shape)) for a in range(b) if x.shape[a] == x.shape[b]]
    return pairs[-1] if pairs else (0, 0)


def _turned(x: Value) -> Value:
    order = list(range(len(x.shape)))
    a, b = _twins(x)
    order[a], order[b] = order[b], order[a]
    return sg.permute(x, order)


def _norm(x: Value, w: Weights, *, centre: Any = None, scale: Any = None, shift: Any = None, eps: Any = 1e-5) -> Value:
    """Batch normalisation in parts, each of which may be another."""
    centre = _beside(_vector(x, w, "mean"), x) if centre is None else centre
    root = sg.sqrt(_vector(x, w, "variance", positive=True) + eps)
    scale = _beside(_vector(x, w, "scale") / root, x) if scale is None else scale
    shift = _beside(_vector(x, w, "shift"), x) if shift is None else shift
    return (x - centre) * scale + shift


def _strided(x: Value, z: Value, w: Weights) -> Value:
    """Down and up again; what is left over is filled by output padding."""
    kernel = _kernel(x, w)
    down = sg.conv(kernel, None, x, stride=2, padding=1)
    left = tuple(n - 1 - 2 * (m - 1) for n, m in zip(x.shape[2:], down.shape[2:], strict=True))
    return sg.conv_transpose(kernel, _vector(x, w, "bias"), down, stride=2, padding=1, output_padding=left)


def _own_kernel(x: Value, z: Value, w: Weights) -> Value:
    """A convolution by weights that are made of the data."""
    middle = sg.sum(z, (0, *_space(z)))
    kernel = _kernel(x, w) * sg.reshape(sg.tanh(middle), (-1, 1, *(1,) * _rank(x)))
    return sg.conv(kernel, middle, x, padding=1)


def _unpooled(x: Value, z: Value, w: Weights) -> Value:
    y, i = sg.max_pool(x, (2,) * _rank(x), stride=1, padding=[(1, 0)] * _rank(x), return_indices=True)
    return y * 0.5 + sg.put(z * y, i, size=tuple(x.shape[2:]), empty=False)


def _taken(x: Value, z: Value, w: Weights) -> Value:
    """What another value has where x is largest, in windows some of which are empty."""
    options: Any = {"stride": 1, "padding": [(3, 1)] * _rank(x)}
    y, i = sg.max_pool(x, (2,) * _rank(x), **options, return_indices=True)
    both = y + sg.take(z, i, rank=_rank(x))
    return both[(slice(None), slice(None), *(slice(1, 1 + n) for n in x.shape[2:]))]


def _adaptive(pool: Callable[..., Value]) -> Kind:
    """Uneven windows: n cells to n - 1, and back to n by another resizing."""

    def run(x: Value, z: Value, w: Weights) -> Value:
        small = pool(x, tuple(max(1, n - 1) for n in x.shape[2:]))
        return sg.resize(small, x.shape[2:], axes=_space(x), how="linear")

    return _images(run)


def _gathered(x: Value, z: Value, w: Weights) -> Value:
    last = np.arange(x.shape[-1])[::-1].copy()
    return sg.gather(x, last, axis=-1) * 0.5 + sg.scatter(z, last // 2, axis=len(x.shape) - 1, size=x.shape[-1])


def _sorted(x: Value, z: Value, w: Weights) -> Value:
    values, i = sg.topk(x, x.shape[-1], axis=-1)
    return values * 0.5 + sg.take_along(z, i, axis=-1)


def _entropy(x: Value, z: Value, w: Weights) -> Value:
    labels = np.arange(int(np.prod((x.shape[0], *x.shape[2:])))).reshape(x.shape[0], *x.shape[2:]) % x.shape[1]
    return x * 0.5 + sg.cross_entropy(x, labels, reduction="sum") * 0.1


def _where_above(x: Value, limit: Any, inside: Value, outside: Value) -> Value:
    return sg.select(sg.greater(x, limit), inside, outside)


FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    **{name: getattr(sg, name) for name in EVERYWHERE},
    "relu6": lambda x: sg.relu6(x * 3),
    "clamp": lambda x: sg.clamp(x, -0.5, 0.5),
    "hardswish": lambda x: sg.hardswish(x * 2),
    "gelu by tanh": lambda x: sg.gelu(x, approximate="tanh"),
    "leaky_relu": lambda x: sg.leaky_relu(x, 0.1),
    "leaky_relu, steep": lambda x: sg.leaky_relu(x, -2),
    "softplus": sg.softplus,
    "softplus, steep": lambda x: sg.softplus(x, 2.5),
    "exp": lambda x: sg.exp(sg.clamp(x, -3, 2)),
    "log": lambda x: sg.log(x * x + 1),
    "sqrt": lambda x: sg.sqrt(x * x + 0.1),
    "sign": lambda x: sg.sign(x) * 0.5 + x,
    "neg": sg.neg,
    "square": lambda x: sg.power(x, 2) * 0.5,
    "power": lambda x: sg.power(x, 3) * 0.3,
    "root": lambda x: sg.power(x * x + 0.2, 1.5) * 0.3,
    "reciprocal": lambda x: 1 / (x * x + 1),
    "floor": lambda x: x + sg.floor(x * 2.7),
    "ceil": lambda x: x + sg.ceil(x * 1.3),
    "round": lambda x: x - sg.round(x),
    "trunc": lambda x: x - sg.trunc(x * 1.7) * 0.5,
    "fmod": lambda x: sg.fmod(x, 1.3),
    "mod": lambda x: sg.mod(x, 1.3),
    "quantize": lambda x: x + sg.dequantize(sg.quantize(x, 0.25, 3), 0.25, 3),
    "cast": lambda x: sg.cast(x, "float64") * 0.5,
    "stop_gradient": lambda x: x * sg.stop_gradient(sg.tanh(x)),
    "fill": lambda x: x + sg.fill(x, 0.25),
    "x (1 - x)": lambda x: x * (1 - x),
    "1 - x x": lambda x: 1 - x * x,
    "mask": lambda x: sg.greater_equal(x, 0.1) * x + sg.equal(x, 1) - sg.greater(x, -0.3) * 0.5,
    "permute": _turned,
    "slice and pad": lambda x: sg.pad(x[..., 1:], [*((0, 0),) * (len(x.shape) - 1), (0, 1)]) + x * 0.5,
    "reflected": lambda x: sg.pad(x, [*((0, 0),) * (len(x.shape) - 1), (1, 1)], mode="reflect")[..., :-2],
    "concat": lambda x: sg.concat([x[..., 1:], x[..., :1]], len(x.shape) - 1),
    "roll": lambda x: sg.roll(x, 1, axis=-1),
    "reshapes": lambda x: sg.reshape(sg.reshape(sg.reshape(x, (-1,)), (*x.shape, 1)), x.shape),
    "sum": lambda x: x * 0.5 + sg.sum(x, (0, *_space(x)), keepdims=True) * 0.2,
    "mean": lambda x: sg.mean(x, _space(x) or 1, keepdims=True) * x,
    "mean of all": lambda x: x - sg.mean(x),
    "amax": lambda x: x - sg.amax(x, 1, keepdims=True),
    "amax, all ties": lambda x: x * sg.amax(x, -1, keepdims=True, ties="all"),
    "amin": lambda x: x - sg.amin(x, (0, 1), keepdims=True),
    "softmax": lambda x: sg.softmax(x, 1) * 3,
    "log_softmax": lambda x: sg.log_softmax(x, -1),
    "cumprod": lambda x: sg.cumprod(sg.tanh(x), 1, exclusive=True) * 0.5,
    "prod": lambda x: x + sg.prod(sg.tanh(x), -1, keepdims=True),
    "cumsum": lambda x: sg.cumsum(x, 1, reverse=True) * 0.5,
    "matmul": lambda x: (
        sg.matmul(x, sg.permute(x, (*range(len(x.shape) - 2), -1 % len(x.shape), -2 % len(x.shape))))
        if x.shape[-1] == x.shape[-2]
        else x * x
    ),
    "mse_loss": lambda x: x + sg.mse_loss(x, sg.tanh(x)),
}
LAYERS: dict[str, Kind] = {
    "add": lambda x, z, w: x + z,
    "sub": lambda x, z, w: x - z,
    "mul": lambda x, z, w: x * z,
    "div": lambda x, z, w: x / (z * z + 0.5),
    "maximum": lambda x, z, w: sg.maximum(x, z),
    "minimum": lambda x, z, w: sg.minimum(x * 2, z),
    "select": lambda x, z, w: sg.select(sg.greater(z, 0.1), x, z),
    "linear": lambda x, z, w: sg.linear(w("matrix", x.shape[-1], x.shape[-1]), w("row", x.shape[-1]), x),
    "contract": lambda x, z, w: sg.contract(
        x, w("mix", x.shape[1], x.shape[1]), "nc...,cd->nd...".replace("...", "abe"[: len(x.shape) - 2])
    ),
    "layer_norm": lambda x, z, w: sg.layer_norm(x, x.shape[-1:], w("last", x.shape[-1]), w("row", x.shape[-1])),
    "group_norm": lambda x, z, w: sg.group_norm(x, 1, _vector(x, w, "scale"), _vector(x, w, "shift")),
    "batch_norm": lambda x, z, w: sg.batch_norm(
        x,
        _vector(x, w, "mean"),
        _vector(x, w, "variance", positive=True),
        _vector(x, w, "scale"),
        _vector(x, w, "shift"),
    ),
    "batch_norm, bare": lambda x, z, w: sg.batch_norm(
        x, _vector(x, w, "mean"), _vector(x, w, "variance", positive=True)
    ),
    "conv": _images(lambda x, z, w: sg.conv(_kernel(x, w), _vector(x, w, "bias"), x, padding=1)),
    "conv without bias": _images(lambda x, z, w: sg.conv(_kernel(x, w), None, x, padding=1)),
    "depthwise": _images(
        lambda x, z, w: sg.conv(_kernel(x, w, "depth", x.shape[1]), None, x, padding=1, groups=x.shape[1])
    ),
    "dilated": _images(lambda x, z, w: sg.conv(_kernel(x, w), None, x, padding=2, dilation=2)),
    "conv_transpose": _images(lambda x, z, w: sg.conv_transpose(_kernel(x, w), _vector(x, w, "bias"), x, padding=1)),
    "strided": _images(_strided),
    "own kernel": _images(_own_kernel),
    "max_pool": _images(lambda x, z, w: sg.max_pool(x, (2,) * _rank(x), stride=1, padding=[(0, 1)] * _rank(x))),
    "avg_pool": _images(lambda x, z, w: sg.avg_pool(x, (3,) * _rank(x), stride=1, padding=1)),
    "avg_pool inside": _images(
        lambda x, z, w: sg.avg_pool(x, (2,) * _rank(x), stride=1, padding=[(1, 0)] * _rank(x), count_include_pad=False)
    ),
    "median_pool": _images(lambda x, z, w: sg.median_pool(x, (3,) * _rank(x), stride=1, padding=1)),
    "smooth_max_pool": _images(
        lambda x, z, w: sg.smooth_max_pool(x, (2,) * _rank(x), beta=2.0, stride=1, padding=[(0, 1)] * _rank(x))
    ),
    "lp_pool": _images(
        lambda x, z, w: sg.lp_pool(x * x + 0.1, (2,) * _rank(x), stride=1, padding=[(1, 0)] * _rank(x)) * 0.5
    ),
    "adaptive_max_pool": _adaptive(sg.adaptive_max_pool),
    "adaptive_avg_pool": _adaptive(sg.adaptive_avg_pool),
    "upsample": _images(lambda x, z, w: sg.avg_pool(sg.upsample_nearest(x, (2,) * _rank(x)), (2,) * _rank(x)) * x),
    "global pools": _images(
        lambda x, z, w: x * sg.global_avg_pool(x, rank=_rank(x)) - sg.global_max_pool(x, rank=_rank(x))
    ),
    "unpooled": _images(_unpooled),
    "taken": _images(_taken),
    "gathered": _gathered,
    "sorted": _sorted,
    "entropy": _entropy,
}

# --- forms that rewrites look for, and forms that are nearly those ----------------------------------------------------

NEARLY = 1 + 2**-20  # a number that somebody might take for 1


def _slopes(one: Any = 1) -> dict[str, Kind]:
    """Slopes of activations written out, beside the activation of what they read, and of the other value."""
    s = sg.sigmoid
    return {
        "tanh slope": lambda x, z, w: z * (one - x * x) + sg.tanh(x),
        "tanh slope of two": lambda x, z, w: z * (one - x * sg.tanh(x)) + sg.tanh(z),
        "sigmoid slope": lambda x, z, w: z * (x * (one - x)) + s(x),
        "sigmoid slope of two": lambda x, z, w: z * (x * (one - z)) + s(x),
        "silu slope": lambda x, z, w: z * (s(x) * (x * (one - s(x)) + one)) + sg.silu(x),
        "silu slope of two": lambda x, z, w: z * (s(x) * (x * (one - s(z)) + one)) + sg.silu(x),
        "gelu slope": lambda x, z, w: z * (sg.normal_cdf(x) + x * sg.normal_pdf(x)) + sg.gelu(x) * one,
        "gelu slope of two": lambda x, z, w: z * (sg.normal_cdf(x) + z * sg.normal_pdf(x)) + sg.gelu(x) * one,
    }


def _steps(zero: Any = 0, six: Any = 6, slope: Any = 0.1) -> dict[str, Kind]:
    """Cotangents of activations with kinks, as their rules write them."""
    ge, gt, pick = sg.greater_equal, sg.greater, sg.select
    middle = lambda x, g: g * ((x * 2 + 3) / six)
    return {
        "relu slope": lambda x, z, w: pick(ge(zero, x), 0, z) + sg.relu(x),
        "relu slope of two": lambda x, z, w: pick(ge(zero, x), 0, x) + sg.relu(z),
        "relu6 slope": lambda x, z, w: pick(ge(zero, x), 0, pick(ge(x, six), 0, z)) + sg.relu6(x),
        "relu6 slope of two": lambda x, z, w: pick(ge(zero, x), 0, pick(ge(z, six), 0, z)) + sg.relu6(x),
        "leaky slope": lambda x, z, w: pick(gt(x, zero), z, z * slope) + sg.leaky_relu(x, 0.1),
        "leaky slope of two": lambda x, z, w: pick(gt(x, zero), z, x * slope) + sg.leaky_relu(x, 0.1),
        "hardswish slope": lambda x, z, w: pick(ge(-3, x), zero, pick(ge(x, 3), z, middle(x, z))) + sg.hardswish(x),
    }


def _norms() -> dict[str, Kind]:
    beside = lambda x, w, name: _beside(_vector(x, w, name), x)
    channels = lambda v: _beside(sg.sum(v, (0, *_space(v))), v)
    dots = lambda x, z, w: channels(z * (x - beside(x, w, "mean")))
    return {
        "norm": lambda x, z, w: _norm(x, w),
        "norm by data": lambda x, z, w: _norm(x, w, centre=_beside(sg.mean(z, (0, *_space(z))), x)),
        "norm of a plane": lambda x, z, w: _norm(x, w, centre=z),
        "norm, other scale": lambda x, z, w: _norm(x, w, scale=beside(x, w, "scale")),
        "norm, other shift": lambda x, z, w: _norm(x, w, shift=z),
        "norm, large eps": lambda x, z, w: _norm(x, w, eps=1),
        "norm, negative eps": lambda x, z, w: _norm(x, w, eps=-0.25),
        "norm cotangents": lambda x, z, w: z * beside(x, w, "scale") + dots(x, z, w) * 0.2 + channels(z) * 0.3,
        "norm cotangents, others": lambda x, z, w: (
            x * beside(x, w, "scale") + dots(x, z, w) * 0.2 + sg.sum(z, (0,), keepdims=True) * 0.3
        ),
    }


def _maxima() -> dict[str, Kind]:
    pool = lambda x, lo, **o: sg.max_pool(x, (2,) * _rank(x), stride=1, padding=[(lo, 1 - lo)] * _rank(x), **o)

    def crossed(x: Value, z: Value, w: Weights) -> Value:
        """Winners of one value at the windows of another."""
        i = pool(z, 1, return_indices=True)[1]
        return pool(x, 0) + sg.take(x, i, rank=_rank(x)) + sg.put(z, i, size=tuple(x.shape[2:]))

    return {
        "two windows": _images(lambda x, z, w: pool(x, 0) * pool(x, 1) + pool(z, 0)),
        "winners of another": _images(crossed),
        "below a maximum": lambda x, z, w: (
            (x - sg.amax(x, -1, keepdims=True)) * 0.5 + (x - sg.amax(z, -1, keepdims=True))
        ),
        "softmax in parts": lambda x, z, w: sg.exp(sg.clamp(x - sg.amax(x, 1, keepdims=True), -9, 2)) / (1 + z * z),
    }


def _convolutions() -> dict[str, Kind]:
    conv, back = partial(sg.conv, padding=1), partial(sg.conv_transpose, padding=1)
    first, second = (lambda x, w, n=n: _kernel(x, w, n) for n in ("kernel", "other"))
    return {
        "one kernel twice": _images(lambda x, z, w: conv(first(x, w), None, conv(first(x, w), None, x))),
        "one kernel, two values": _images(lambda x, z, w: conv(first(x, w), None, x) * conv(first(x, w), None, z)),
        "two kernels": _images(lambda x, z, w: conv(first(x, w), None, x) + conv(second(x, w), None, x)),
        "there and back": _images(lambda x, z, w: conv(first(x, w), None, x) + back(first(x, w), None, x)),
        "two widths": _images(
            lambda x, z, w: conv(first(x, w), None, x) + sg.conv(first(x, w), None, x, padding=2, dilation=2)
        ),
    }


NEAR: dict[str, Kind] = {
    **_norms(),
    **_convolutions(),
    **_maxima(),
    **_slopes(),
    **{f"{name}, nearly": f for name, f in _slopes(NEARLY).items() if "of two" not in name},
    **_steps(),
    **{f"{name}, nearly": f for name, f in _steps(2**-20, 6 + 2**-18, 0.1 + 2**-24).items() if "of two" not in name},
}
"""What rewrites look for, and what is nearly that."""

KINDS: dict[str, Kind] = {**{name: lambda x, z, w, f=f: f(x) for name, f in FUNCTIONS.items()}, **LAYERS, **NEAR}
OPERATORS = [*FUNCTIONS, *LAYERS]


# --- compositions -----------------------------------------------------------------------------------------------------

JOINS: dict[str, Callable[[Value, Value, Value], Value]] = {
    "behind": lambda y, x, z: y,
    "beside": lambda y, x, z: y + x,
    "times": lambda y, x, z: y * x,
    "less": lambda y, x, z: x - y * z,
}


@dataclass(frozen=True)
class Composition:
    """Kinds in a row; each reads the last value or an earlier one, and is joined with what it read."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    seed: int

    def __call__(self, x: Value, z: Value, weights: Weights) -> Value:
        draw = np.random.default_rng([self.seed, 1])
        values = [x, z]
        for name in self.names:
            here = values[-1] if len(values) > 2 else x
            other = values[int(draw.integers(len(values)))]
            y = KINDS[name](here, other, weights)
            join = list(JOINS)[int(draw.choice(len(JOINS), p=(0.55, 0.2, 0.15, 0.1)))]
            values.append(JOINS[join](y, here, other))
        return values[-1]

    @property
    def text(self) -> str:
        return f"{' > '.join(self.names)} of {self.shape}, seed {self.seed}"


def pairs(names: Sequence[str], seed: int = 0) -> Iterator[Composition]:
    """All ordered pairs, each kind with itself included."""
    for k, two in enumerate(product(names, repeat=2)):
        yield Composition(two, USUAL, 100_000 * seed + k)


def drawn(seed: int, count: int, *, names: Sequence[str] = tuple(KINDS), length: int = 3) -> Iterator[Composition]:
    """Rows of kinds, of one or a few of them, so that repetitions are common; of all shapes."""
    draw = np.random.default_rng([seed, length])
    for k in range(count):
        few = [names[i] for i in draw.integers(len(names), size=int(draw.integers(1, length + 1)))]
        row = tuple(few[i] for i in draw.integers(len(few), size=length))
        shape = SHAPES[int(draw.choice(len(SHAPES), p=(0.7, 0.1, 0.1, 0.1)))]
        yield Composition(row, shape, 10_000_000 * (1 + seed) + k)


# --- one composition, on engines --------------------------------------------------------------------------------------

Run = Callable[[Graph, list[Array]], list[Array]]  # a compiled graph on arrays
CLOSE = 1e-9  # of the largest number: float64 keeps 16 digits, of which compositions of three lose few
ARITHMETIC = Arithmetic("float64")


def _numbers(draw: np.random.Generator, shape: tuple[int, ...], whole: bool) -> Array:
    """Normal numbers, or whole ones, which meet kinks and ties."""
    return draw.integers(-3, 7, shape).astype(float) if whole else draw.normal(size=shape)


class Case:
    """A composition with numbers, and its graphs."""

    def __init__(self, of: Composition) -> None:
        self.of = of
        draw = np.random.default_rng([self.of.seed, 2])
        whole = draw.random() < 0.25
        x, z = (_numbers(draw, self.of.shape, whole) for _ in range(2))
        weights = Weights(self.of.seed)
        with np.errstate(all="ignore"):
            self.direct = np.asarray(self.of(x, z, weights), float)
        names = list(weights.arrays)

        def f(x: Value, z: Value, *arrays: Value) -> Value:
            return self.of(x, z, Weights(self.of.seed, dict(zip(names, arrays, strict=True))))

        self.f, self.inputs = f, [x, z, *weights.arrays.values()]
        self.graph = sg.trace(f, *self.inputs)
        self.steps = [draw.normal(size=a.shape) for a in self.inputs]
        self.gy = draw.normal(size=self.direct.shape)

    def graphs(self) -> Iterator[tuple[str, Graph, list[Array]]]:
        """Each mode's graph, and its arguments."""
        back = sg.vjp(self.graph)
        yield "forward", self.graph, self.inputs
        yield "jvp", sg.jvp(self.graph), [*self.inputs, *self.steps]
        yield "vjp", back, [*self.inputs, self.gy]
        yield "jvp of vjp", sg.jvp(back), [*self.inputs, self.gy, *self.steps, self.gy[..., ::-1] + 1]

    def adjoint(self, forward: list[Array], back: list[Array]) -> bool:
        """Whether gy . dy = gx . dx, of the values that the specification has for both."""
        with np.errstate(all="ignore"):
            left = self.gy * forward[1]
            right = np.concatenate([(g * d).ravel() for g, d in zip(back[1:], self.steps, strict=True)])
            size = np.abs(left).sum() + np.abs(right).sum()
            return not np.isfinite(size) or bool(abs(left.sum() - right.sum()) <= CLOSE * (1 + size))


@dataclass
class Count:
    """What was run, and what came of it."""

    graphs: dict[str, int] = field(default_factory=dict)
    compositions: int = 0
    undefined: int = 0
    undecided: int = 0
    differences: list[str] = field(default_factory=list)


def specified(graph: Graph, args: list[Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return [np.asarray(y, float) for y in sg.tree.leaves(graph(*args))]


def differ(got: list[Array], want: list[Array]) -> str | None:
    """How two results differ; None where every cell is close."""
    if len(got) != len(want):
        return f"{len(got)} results for {len(want)}"
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape:
            return f"result {k} has shape {a.shape} for {b.shape}"
        if not np.isfinite(b).all():
            continue
        distance = np.abs(a - b).max(initial=0)
        if not distance <= CLOSE * (1 + np.abs(b).max(initial=0)):
            return f"result {k} is off by {distance:.3g} of {np.abs(b).max(initial=0):.3g}"
    return None


def rounding_explains(graph: Graph, args: list[Array], got: list[Array]) -> bool:
    """Whether a difference is within the proven radius of float64, or nothing is proven there (a jump is near)."""
    balls = sg.tree.leaves(radius(graph, *args, arithmetic=ARITHMETIC).outputs)
    return all(bool((np.abs(a - ball.value) <= 2 * ball.radius).all()) for a, ball in zip(got, balls, strict=True))


def hunt(
    compositions: Iterable[Composition], engines: dict[str, Run], *, modes: tuple[str, ...] = MODES, most: int = 100
) -> Count:
    """Every composition in every mode on every engine against the specification, until `most` differences are found."""
    count = Count(dict.fromkeys(engines, 0))
    for of in compositions:
        _compare(Case(of), engines, modes, count)
        if len(count.differences) >= most:
            break
    return count


def _compare(case: Case, engines: dict[str, Run], modes: tuple[str, ...], count: Count) -> None:
    count.compositions += 1
    text, said = case.of.text, {}
    for mode, graph, args in case.graphs():
        if mode not in modes:
            continue
        want = said[mode] = specified(graph, args)
        count.undefined += not all(np.isfinite(w).all() for w in want)
        if mode == "forward" and (how := differ([case.direct], want)) is not None:
            count.differences.append(f"{text}: traced, {how}")
        for name, run in engines.items():
            count.graphs[name] += 1
            got = run(graph, args)
            how = differ(got, want)
            if how is not None and rounding_explains(graph, args, got):
                count.undecided += 1
            elif how is not None:
                count.differences.append(f"{text}: {mode} on {name}, {how}")
    if {"jvp", "vjp"} <= said.keys() and not case.adjoint(said["jvp"], said["vjp"]):
        count.differences.append(f"{text}: jvp and vjp are not adjoint")


def laid_out(t: Any, by_channels: bool) -> Any:
    """The tensor in another layout: vectors with gaps, images in channels_last if asked for.

    The stride of an axis of size 1 may be any; it is then 1.
    """
    import torch

    if t.ndim == 4 and by_channels:
        last = t.contiguous(memory_format=torch.channels_last)
        return last.as_strided(t.shape, [1 if n == 1 else s for n, s in zip(t.shape, last.stride(), strict=True)])
    return torch.stack([t, t + 77], -1)[..., 0] if t.ndim == 1 else t


def on_torch(graph: Graph, args: list[Array]) -> list[Array]:
    """Layouts are drawn, by the numbers."""
    import torch

    draw = np.random.default_rng(crc32(np.array(args[0]).tobytes()))
    tensors = [laid_out(torch.from_numpy(np.array(a)), bool(draw.integers(2))) for a in args]
    with torch.no_grad():
        results = sg.compile(graph, "torch")(*tensors)
    return [np.asarray(y, float) for y in sg.tree.leaves(results)]


def on_jax(graph: Graph, args: list[Array]) -> list[Array]:
    """Operator by operator: jax.jit would compile every graph for longer than it runs."""
    import jax

    with jax.enable_x64(True):
        results = sg.compile(graph, "jax", jit=False)(*(jax.numpy.asarray(a) for a in args))
        return [np.asarray(y, float) for y in sg.tree.leaves(results)]


def called_on_torch(compositions: Iterable[Composition]) -> Count:
    """The functions themselves on tensors, call by call, and PyTorch's own gradient: what graphs are not asked."""
    import torch

    count = Count({"torch": 0})
    for case in map(Case, compositions):
        tensors = [torch.tensor(a, requires_grad=True) for a in case.inputs]
        y = case.f(*tensors)
        grads = torch.autograd.grad(y, tensors, torch.tensor(case.gy), allow_unused=True, materialize_grads=True)
        graph, args = sg.vjp(case.graph), [*case.inputs, case.gy]
        got = [v.detach().numpy() for v in (y, *grads)]
        how = differ(got, specified(graph, args))
        count.compositions, count.graphs["torch"] = count.compositions + 1, count.graphs["torch"] + 1
        if how is not None and not rounding_explains(graph, args, got):
            count.differences.append(f"{case.of.text}: called on tensors, {how}")
    return count


ENGINES: dict[str, Run] = {"torch": on_torch, "jax": on_jax}
