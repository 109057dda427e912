"""The cases of benchmarks/law.py: every public function that a framework also has, at three sizes.

A case is our call and what it is given; `law_torch.py` and `law_jax.py` hold the bare call of the same name. A function
without a case stands in NOT_TIMED with the reason; tests/engines/test_law.py holds that none is forgotten.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import specgrad as sg
from specgrad import functional as sf

SIZES = ("tiny", "medium", "large")
PLANES = {"tiny": (1, 4, 8, 8), "medium": (2, 32, 28, 28), "large": (4, 64, 56, 56)}
LINES = {"tiny": (1, 4, 16), "medium": (4, 32, 256), "large": (8, 64, 1024)}
SPACES = {"tiny": (1, 4, 4, 4, 4), "medium": (1, 16, 12, 12, 12), "large": (2, 32, 24, 24, 24)}
MATRICES = {"tiny": (4, 8), "medium": (64, 256), "large": (256, 1024)}

Shape = tuple[int, ...]
Call = Callable[..., Any]


class Given(NamedTuple):
    """What kind of numbers, and their shape.

    real, positive     take a gradient           fixed, spread    numbers that take none (spread: positive)
    distinct           no two alike on a line    whole            0..199, float, no gradient
    index:n            integers below n          corner:n         of n axes, the last cell of each window of 2
    """

    kind: str
    shape: Shape


@dataclass(frozen=True)
class Case:
    """name is "sg.conv 3x3": module, function, and what is special; flat cases have no gradient to speak of."""

    name: str
    given: dict[str, tuple[Given, ...]]
    ours: Call
    flat: bool = False

    @property
    def function(self) -> str:
        return self.name.split(" ")[0]


# --- what calls are given -----------------------------------------------------------------------------------------


def _given(shapes: dict[str, Shape], *makers: Callable[[Shape], Given]) -> dict[str, tuple[Given, ...]]:
    return {size: tuple(make(shapes[size]) for make in makers) for size in SIZES}


def _kind(kind: str) -> Callable[[Shape], Given]:
    return lambda shape: Given(kind, shape)


x, plus, fixed, distinct, whole = (_kind(k) for k in ("real", "positive", "fixed", "distinct", "whole"))


def of(kind: str, shape: Callable[[Shape], Shape]) -> Callable[[Shape], Given]:
    return lambda s: Given(kind, shape(s))


channel = of("real", lambda s: (s[1],))
mean_of_channel, spread_of_channel = of("fixed", lambda s: (s[1],)), of("spread", lambda s: (s[1],))
per_channel = of("real", lambda s: (s[1], *(1,) * (len(s) - 2)))


def kernel(k: int, *, out: int = 1, groups: bool = False, transposed: bool = False) -> Callable[[Shape], Given]:
    def shape(s: Shape) -> Shape:
        pair = (s[1], 1) if groups else (s[1], s[1] * out) if transposed else (s[1] * out, s[1])
        return (*pair, *(k,) * (len(s) - 2))

    return of("real", shape)


def _case(name: str, shapes: dict[str, Shape], makers: Iterable[Any], ours: Call, flat: bool = False) -> Case:
    return Case(name, _given(shapes, *makers), ours, flat)


# --- the cases ----------------------------------------------------------------------------------------------------

PAIRS = ("add", "sub", "mul", "div", "maximum", "minimum")
COMPARISONS = ("equal", "greater", "greater_equal")
POSITIVE = ("log", "sqrt", "power", "root")
CURVES = ("neg", *(op.name for op in sg.REGISTRY.values() if op.curve is not None and op.name not in POSITIVE))
STEPS = ("ceil", "floor", "round", "sign", "trunc", "stop_gradient")


def _elementwise() -> Iterable[Case]:
    for name in PAIRS:
        f = getattr(sg, name)
        yield _case(f"sg.{name}", PLANES, (x, plus), f)
        yield _case(f"sg.{name} per channel", PLANES, (x, of("positive", lambda s: (s[1], 1, 1))), f)
        yield _case(f"sg.{name} number", PLANES, (x,), lambda a, f=f: f(a, 0.5))
    for name in COMPARISONS:
        f = getattr(sg, name)
        yield _case(f"sg.{name}", PLANES, (x, x), f, flat=True)
        yield _case(f"sg.{name} number", PLANES, (x,), lambda a, f=f: f(a, 0.5), flat=True)
    for name in CURVES:
        f = getattr(sg, name)
        yield _case(f"sg.{name}", PLANES, (x,), (lambda a: sg.clamp(a, -0.5, 0.5)) if name == "clamp" else f)
    for name in STEPS:
        yield _case(f"sg.{name}", PLANES, (x,), getattr(sg, name), flat=True)
    yield _case("sg.gelu tanh", PLANES, (x,), lambda a: sg.gelu(a, "tanh"))
    yield _case("sg.log", PLANES, (plus,), sg.log)
    yield _case("sg.sqrt", PLANES, (plus,), sg.sqrt)
    yield _case("sg.power", PLANES, (plus,), lambda a: sg.power(a, 3))
    yield _case("sg.fmod", PLANES, (x, plus), sg.fmod, flat=True)
    yield _case("sg.mod", PLANES, (x, plus), sg.mod, flat=True)
    yield _case("sg.select", PLANES, (whole, x, x), sg.select)
    scale = of("spread", lambda s: (1,))
    yield _case("sg.quantize", PLANES, (x, scale), sg.quantize, flat=True)
    yield _case("sg.dequantize", PLANES, (whole, scale), lambda q, s: sg.dequantize(q, s, 100), flat=True)


def _layout() -> Iterable[Case]:
    yield _case("sg.broadcast", PLANES, (per_channel,), lambda a: sg.broadcast(a, (2, *a.shape)))
    yield _case("sg.concat", PLANES, (x, x), lambda a, b: sg.concat([a, b], 1))
    yield _case("sg.fill", PLANES, (x,), lambda a: sg.fill(a, 0.5), flat=True)
    yield _case("sg.flatten", PLANES, (x,), lambda a: sg.flatten(a, 1))
    yield _case("sg.pad", PLANES, (x,), lambda a: sg.pad(a, ((1, 1), (1, 1))))
    yield _case("sg.pad reflect", PLANES, (x,), lambda a: sg.pad(a, ((1, 1), (1, 1)), mode="reflect"))
    yield _case("sg.permute", PLANES, (x,), lambda a: sg.permute(a, (0, 2, 3, 1)))
    yield _case("sg.reshape", PLANES, (x,), lambda a: sg.reshape(a, (a.shape[0], a.shape[1], -1)))
    yield _case("sg.roll", PLANES, (x,), lambda a: sg.roll(a, 1, axis=3))
    yield _case("sg.slice", PLANES, (x,), lambda a: sg.slice(a, None, None, slice(1, -1), slice(1, -1)))
    yield _case("sg.unpad", PLANES, (x,), lambda a: sg.unpad(a, 1, rank=2))
    yield _case("sg.upsample_nearest", PLANES, (x,), lambda a: sg.upsample_nearest(a, 2, rank=2))
    double = lambda a: (2 * a.shape[2], 2 * a.shape[3])
    yield _case("sg.resize", PLANES, (x,), lambda a: sg.resize(a, double(a), axes=(2, 3)))
    rows = of("index:4", lambda s: (s[1] // 2,))
    yield _case("sg.gather", PLANES, (x, rows), lambda a, i: sg.gather(a, i, axis=1))
    yield _case("sg.scatter", PLANES, (x, of("index:4", lambda s: (s[1],))), _scatter)
    yield _case("sg.take_along", PLANES, (x, of("index:4", lambda s: s)), lambda a, i: sg.take_along(a, i, axis=3))
    cells = of("index:16", lambda s: (*s[:2], s[2] // 2, s[3] // 2))
    yield _case("sg.take", PLANES, (x, cells), lambda a, i: sg.take(a, i, rank=2, empty=False))
    yield _case("sg.put", PLANES, (x, of("index:16", lambda s: s)), _put)


def _scatter(a: Any, i: Any) -> Any:
    return sg.scatter(a, i, axis=1, size=a.shape[1])


def _put(a: Any, i: Any) -> Any:
    return sg.put(a, i, size=tuple(a.shape[2:]), empty=False)


def _reductions() -> Iterable[Case]:
    for name in ("sum", "mean"):
        f = getattr(sg, name)
        yield _case(f"sg.{name}", PLANES, (x,), f)
        yield _case(f"sg.{name} planes", PLANES, (x,), lambda a, f=f: f(a, (2, 3)))
        yield _case(f"sg.{name} channels", PLANES, (x,), lambda a, f=f: f(a, 1, keepdims=True))
    for name in ("amax", "amin"):
        f = getattr(sg, name)
        yield _case(f"sg.{name} planes", PLANES, (distinct,), lambda a, f=f: f(a, (2, 3)))
        yield _case(f"sg.{name} channels", PLANES, (distinct,), lambda a, f=f: f(a, 1))
    for name in ("argmax", "argmin"):
        f = getattr(sg, name)
        yield _case(f"sg.{name}", PLANES, (distinct,), f, flat=True)
        yield _case(f"sg.{name} channels", PLANES, (distinct,), lambda a, f=f: f(a, 1), flat=True)
    yield _case("sg.cumprod", PLANES, (x,), lambda a: sg.cumprod(a, 3))
    yield _case("sg.cumsum", PLANES, (x,), lambda a: sg.cumsum(a, 3))
    yield _case("sg.prod", PLANES, (x,), lambda a: sg.prod(a, 3))
    yield _case("sg.topk", MATRICES, (distinct,), lambda a: sg.topk(a, 3)[0])
    yield _case("sg.softmax", MATRICES, (x,), sg.softmax)
    yield _case("sg.softmax channels", PLANES, (x,), lambda a: sg.softmax(a, 1))
    yield _case("sg.log_softmax", MATRICES, (x,), sg.log_softmax)
    yield _case("sg.log_softmax channels", PLANES, (x,), lambda a: sg.log_softmax(a, 1))
    labels = of("index:4", lambda s: s[:1])
    yield _case("sg.cross_entropy", MATRICES, (x, labels), sg.cross_entropy)
    yield _case("sg.cross_entropy planes", PLANES, (x, of("index:4", lambda s: (s[0], *s[2:]))), sg.cross_entropy)
    yield _case("sg.mse_loss", PLANES, (x, x), sg.mse_loss)
    stored = (x, mean_of_channel, spread_of_channel, channel, channel)
    yield _case("sg.batch_norm", PLANES, stored, sg.batch_norm)
    yield _case("sg.layer_norm", MATRICES, (x, channel, channel), lambda a, w, b: sg.layer_norm(a, w.shape, w, b))
    yield _case("sg.group_norm", PLANES, (x, channel, channel), lambda a, w, b: sg.group_norm(a, 2, w, b))


def _products() -> Iterable[Case]:
    square, bias = of("real", lambda s: (s[1], s[1])), of("real", lambda s: (s[1],))
    yield _case("sg.linear", MATRICES, (x, square, bias), lambda a, w, b: sg.linear(w, b, a))
    yield _case("sg.matmul", MATRICES, (x, square), sg.matmul)
    yield _case("sg.matmul batched", SPACES, (x, x), sg.matmul)
    yield _case("sg.contract", MATRICES, (x, square), lambda a, w: sg.contract(a, w, "ij,kj->ik"))
    yield _case("sg.conv 3x3", PLANES, (x, kernel(3), channel), lambda a, w, b: sg.conv(w, b, a, padding=1))
    yield _case("sg.conv 3x3 s2", PLANES, (x, kernel(3)), lambda a, w: sg.conv(w, None, a, padding=1, stride=2))
    yield _case("sg.conv 1x1", PLANES, (x, kernel(1)), lambda a, w: sg.conv(w, None, a))
    deep = lambda a, w: sg.conv(w, None, a, padding=1, groups=a.shape[1])
    yield _case("sg.conv depthwise", PLANES, (x, kernel(3, groups=True)), deep)
    up = lambda a, w: sg.conv_transpose(w, None, a, stride=2)
    yield _case("sg.conv_transpose 2x2 s2", PLANES, (x, kernel(2, transposed=True)), up)
    four = lambda a, w: sg.conv_transpose(w, None, a, stride=2, padding=1)
    yield _case("sg.conv_transpose 4x4 s2", PLANES, (x, kernel(4, transposed=True)), four)


WINDOWS = ((2, 2, 0), (3, 2, 1), (3, 1, 1))


def _pools() -> Iterable[Case]:
    for k, s, p in WINDOWS:
        how: Any = {"stride": s, "padding": p}
        yield _case(f"sg.max_pool k{k} s{s}", PLANES, (x,), lambda a, k=k, how=how: sg.max_pool(a, (k, k), **how))
        yield _case(f"sg.avg_pool k{k} s{s}", PLANES, (x,), lambda a, k=k, how=how: sg.avg_pool(a, (k, k), **how))
    yield _case("sg.lp_pool k2 s2", PLANES, (plus,), lambda a: sg.lp_pool(a, (2, 2), p=2))
    yield _case("sg.adaptive_avg_pool 4", PLANES, (x,), lambda a: sg.adaptive_avg_pool(a, (4, 4)))
    yield _case("sg.adaptive_avg_pool 5", PLANES, (x,), lambda a: sg.adaptive_avg_pool(a, (5, 5)))
    yield _case("sg.adaptive_max_pool 4", PLANES, (x,), lambda a: sg.adaptive_max_pool(a, (4, 4)))
    yield _case("sg.adaptive_max_pool 5", PLANES, (x,), lambda a: sg.adaptive_max_pool(a, (5, 5)))
    yield _case("sg.global_avg_pool", PLANES, (x,), lambda a: sg.global_avg_pool(a, rank=2))
    yield _case("sg.global_max_pool", PLANES, (distinct,), lambda a: sg.global_max_pool(a, rank=2))
    yield _case("sg.max_unpool k2 s2", PLANES, _unpooled(2), lambda a, i: sg.max_unpool(a, i, (2, 2)))


def _unpooled(rank: int) -> tuple[Any, Any]:
    """Values, and for each the last cell of its own window of 2."""
    return x, of(f"corner:{rank}", lambda s: s)


BY_RANK = {1: LINES, 2: PLANES, 3: SPACES}


def _functional() -> Iterable[Case]:
    """Called as PyTorch's own: the same arguments in the same order."""
    for rank, shapes in BY_RANK.items():
        for name, makers, how in _of_rank(rank):
            yield _alike(f"{name}{rank}d", shapes, makers, *how)
    for name in ("relu", "relu6", "leaky_relu", "hardswish", "silu", "gelu", "softplus", "sigmoid", "tanh"):
        yield _alike(name, PLANES, (x,))
    for name in ("softmax", "log_softmax"):
        yield _alike(name, MATRICES, (x,), 1)
    yield _alike("linear", MATRICES, (x, of("real", lambda s: (s[1], s[1])), channel))
    yield _alike("batch_norm", PLANES, (x, mean_of_channel, spread_of_channel, channel, channel))
    f = sf.layer_norm
    yield _case("functional.layer_norm", MATRICES, (x, channel, channel), lambda a, w, b: f(a, w.shape, w, b))
    yield _case("functional.group_norm", PLANES, (x, channel, channel), lambda a, w, b: sf.group_norm(a, 2, w, b))
    yield _alike("cross_entropy", MATRICES, (x, of("index:4", lambda s: s[:1])))
    yield _alike("mse_loss", PLANES, (x, x))
    yield _alike("pad", PLANES, (x,), (1, 1, 1, 1))
    yield _alike("interpolate", PLANES, (x,), None, 2)
    bilinear = lambda a: sf.interpolate(a, scale_factor=2, mode="bilinear", align_corners=False)
    yield _case("functional.interpolate bilinear", PLANES, (x,), bilinear)


def _of_rank(rank: int) -> Iterable[tuple[str, tuple[Any, ...], tuple[Any, ...]]]:
    yield "conv", (x, kernel(3), channel), (1, 1)
    yield "conv_transpose", (x, kernel(2, transposed=True), channel), (2,)
    yield "max_pool", (x,), (2,)
    yield "avg_pool", (x,), (2,)
    yield "lp_pool", (plus,), (2, 2)
    yield "adaptive_avg_pool", (x,), (2,)
    yield "adaptive_max_pool", (x,), (2,)
    yield "max_unpool", _unpooled(rank), (2,)


def _alike(name: str, shapes: dict[str, Shape], makers: Iterable[Any], *how: Any) -> Case:
    f = getattr(sf, name)
    return _case(f"functional.{name}", shapes, makers, lambda *given: f(*given, *how))


CASES = {c.name: c for make in (_elementwise, _layout, _reductions, _products, _pools, _functional) for c in make()}

# --- what has no case ---------------------------------------------------------------------------------------------

_SPELLED = "no framework has it; benchmarks/torch_ops.py measures it against unfold and logsumexp"
NOT_TIMED = {
    "sg.median_pool": "no framework has it",
    **dict.fromkeys(("sg.balls", "sg.exact"), "makes exact numbers, which frameworks do not have"),
    **dict.fromkeys(("sg.channels_last", "sg.composite", "sg.scope"), "wraps a function; it computes nothing"),
    **dict.fromkeys(("sg.grad", "sg.jvp", "sg.vjp", "sg.trace", "sg.compile"), "makes graphs: law_networks.py"),
    **dict.fromkeys(("sg.load", "sg.load_params", "sg.save", "sg.save_params"), "files"),
    **dict.fromkeys(("sg.prove_adjoint", "sg.rule", "sg.rule_graphs", "sg.table", "sg.show_window"), "about operators"),
    **dict.fromkeys(("sg.apply", "sg.register"), "the door through which every other row here goes"),
    **dict.fromkeys(("sg.fold", "sg.global_pool"), "calls a function of the user for every cell or image"),
    "sg.cast": "rounds to a float format in the specification; on tensors the dtype does that, and it is x itself",
    **dict.fromkeys(("sg.smooth_max_pool", *(f"functional.smooth_max_pool{r}d" for r in (1, 2, 3))), _SPELLED),
}  # fmt: skip


def public_functions() -> list[str]:
    """Every function that users call, with its module in front."""
    top = [f"sg.{n}" for n in sg.__all__ if inspect.isfunction(getattr(sg, n))]
    mine = ("specgrad.functional", "specgrad.ops.activation")
    names = [n for n, f in vars(sf).items() if inspect.isfunction(f) and f.__module__ in mine and n[0] != "_"]
    return top + [f"functional.{n}" for n in names]


def numbers(given: Given, seed: int) -> np.ndarray[Any, Any]:
    """The numbers themselves: float32, each exact in bfloat16 too, or int64."""
    kind, _, limit = given.kind.partition(":")
    rng, shape = np.random.default_rng(seed), given.shape
    if kind == "index":
        return rng.integers(0, int(limit), shape)
    if kind == "corner":
        return _corners(shape, int(limit))
    if kind == "distinct":  # bit patterns of bfloat16: 30011 is prime, so neighbours on every axis differ
        bits = 256 + np.arange(math.prod(shape)) * 7919 % 30011
        return (bits.astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if kind == "whole":
        return rng.integers(0, 200, shape).astype(np.float32)
    drawn = rng.standard_normal(shape) if kind in ("real", "fixed") else rng.uniform(0.5, 2.0, shape)
    return (drawn.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def _corners(shape: Shape, rank: int) -> np.ndarray[Any, Any]:
    large = [2 * n for n in shape[-rank:]]
    flat = np.arange(math.prod(large)).reshape(large)
    return np.ascontiguousarray(np.broadcast_to(flat[(slice(1, None, 2),) * rank], shape))
