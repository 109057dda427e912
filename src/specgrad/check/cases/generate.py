"""Generate operator test cases: random shapes and attributes per operator, data by kind; no runtime is known here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any
from zlib import crc32

import numpy as np

from specgrad import window
from specgrad.errors import ParameterError, SpecgradError
from specgrad.scalar import Array
from specgrad.window import Shape, Window

from .op_case import OPERATORS, OpCase, check_operator

Accept = Callable[[Mapping[str, Any], Mapping[str, Shape]], bool]
MAX_DRAWS = 20_000
Shapes = tuple[dict[str, Any], dict[str, Shape]]  # attributes, and the shape of every array

# --- attributes and shapes --------------------------------------------------------------------------------------


def _sizes(rng: Random, rank: int, high: int = 9) -> Shape:
    """Return the sizes of `rank` spatial axes, drawn by `rng`: 1 to `high`, from three axes on 1 to 5."""
    return tuple(rng.randint(1, high if rank < 3 else 5) for _ in range(rank))


def _per_axis(rng: Random, rank: int, choices: tuple[int, ...]) -> Shape:
    """Return one of `choices` for each of `rank` axes, drawn by `rng`.

    Half of the time the same on all, for which runtimes have paths of their own.
    """
    same = rng.random() < 0.5
    return (rng.choice(choices),) * rank if same else tuple(rng.choice(choices) for _ in range(rank))


def _padding(rng: Random, rank: int, kernel: Shape, strings: tuple[str, ...] = ()) -> Any:
    """Return padding, drawn by `rng`: none, the same on both sides, different per side, or one of the names `strings`.

    It is 0, a pair per axis of the `kernel`, smaller than it, or the name.
    """
    style = rng.choice(("none", "both", "both", "sides", *strings))
    if style == "none":
        return 0
    if style == "both":
        return tuple((p, p) for p in (rng.randint(0, k // 2) for k in kernel))
    if style == "sides":
        return tuple((rng.randint(0, k - 1), rng.randint(0, k - 1)) for k in kernel)
    return style


SAME = ("same_upper", "same_lower", "valid")


def _pool(rng: Random, *options: str) -> Shapes:
    """Return attributes and shape of a pooling, drawn by `rng`; `options` may allow "dilation" and "ceil"."""
    rank = rng.choice((1, 1, 2, 2, 2, 3))
    kernel = _per_axis(rng, rank, (1, 2, 2, 3, 3, 4))
    a: dict[str, Any] = {"kernel": kernel, "stride": _per_axis(rng, rank, (1, 1, 2, 2, 3, 4))}
    a["padding"] = _padding(rng, rank, kernel, SAME)
    if "dilation" in options and rng.random() < 0.4:
        a["dilation"] = _per_axis(rng, rank, (1, 2, 2, 3))
    if "ceil" in options and rng.random() < 0.5:
        a["ceil"] = True
    lead = (rng.choice((1, 1, 2)), rng.choice((1, 2, 3)))
    return a, {"x": (*lead, *_sizes(rng, rank))}


def _max_pool(rng: Random) -> Shapes:
    """Return attributes and array shapes of a max pooling, drawn by `rng`."""
    return _pool(rng, "dilation", "ceil")


def _avg_pool(rng: Random) -> Shapes:
    """Return attributes and array shapes of an average pooling, drawn by `rng`."""
    a, shapes = _pool(rng, "ceil")
    rule = rng.choice(("", "", "", "inside", "inside", "divisor"))
    if rule:
        a |= {"count_include_pad": False} if rule == "inside" else {"divisor": rng.choice((1, 2, 3, 7))}
    return a, shapes


def _lp_pool(rng: Random) -> Shapes:
    """Return attributes and array shapes of an Lp pooling, drawn by `rng`."""
    a, shapes = _pool(rng, "dilation", "ceil")
    return a | {"p": rng.choice((1, 2, 3))}, shapes


def _smooth_max_pool(rng: Random) -> Shapes:
    """Return attributes and array shapes of a smooth maximum pooling, drawn by `rng`."""
    a, shapes = _pool(rng)
    return a | {"beta": rng.choice((0.5, 1.0, 4.0, -2.0)), "padded": rng.choice(("zero", "ignore"))}, shapes


def _channels(rng: Random) -> tuple[int, int, int]:
    """Return (groups, input channels, output channels), drawn by `rng`."""
    groups = rng.choice((1, 1, 1, 2, 3))
    return groups, groups * rng.choice((1, 2, 3)), groups * rng.choice((1, 2, 3))


def _winograd_conv(rng: Random) -> Shapes:
    """Return a 3 x 3 convolution of stride 1 and padding 1, drawn by `rng`, for which runtimes have algorithms such as
    Winograd's.
    """
    cin, cout, size = rng.choice((4, 8, 16)), rng.choice((4, 8, 16)), rng.choice((6, 8, 12))
    a = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    return a, {"x": (rng.choice((1, 2)), cin, size, size), "w": (cout, cin, 3, 3)}


def _conv(rng: Random) -> Shapes:
    """Return attributes and array shapes of a convolution, drawn by `rng`."""
    if rng.random() < 0.2:
        return _winograd_conv(rng)
    rank = rng.choice((1, 2, 2, 2, 3))
    groups, cin, cout = _channels(rng)
    kernel = _per_axis(rng, rank, (1, 2, 3, 3, 5))
    a = {
        "stride": _per_axis(rng, rank, (1, 1, 2, 3)),
        "padding": _padding(rng, rank, kernel, SAME),
        "dilation": _per_axis(rng, rank, (1, 1, 2, 3)),
        "groups": groups,
    }
    shapes = {"x": (rng.choice((1, 2)), cin, *_sizes(rng, rank)), "w": (cout, cin // groups, *kernel)}
    return a, shapes | ({"b": (cout,)} if rng.random() < 0.6 else {})


def _conv_transpose(rng: Random) -> Shapes:
    """Return attributes and array shapes of a transposed convolution, drawn by `rng`."""
    rank = rng.choice((1, 2, 2, 2, 3))
    groups, cin, cout = _channels(rng)
    kernel = _per_axis(rng, rank, (1, 2, 3, 3, 4))
    stride, dilation = _per_axis(rng, rank, (1, 2, 2, 3)), _per_axis(rng, rank, (1, 1, 1, 2))
    steps = zip(stride, dilation, strict=True)
    extra = tuple(rng.randint(0, max(s, e) - 1) if rng.random() < 0.4 else 0 for s, e in steps)
    a = {
        "stride": stride,
        "padding": _padding(rng, rank, kernel),
        "dilation": dilation,
        "groups": groups,
        "output_padding": extra,
    }
    shapes = {"x": (rng.choice((1, 2)), cin, *_sizes(rng, rank, 6)), "w": (cin, cout // groups, *kernel)}
    return a, shapes | ({"b": (cout,)} if rng.random() < 0.6 else {})


def _adaptive(rng: Random) -> Shapes:
    """Return attributes and array shapes of an adaptive pooling, drawn by `rng`."""
    rank = rng.choice((1, 2, 2, 3))
    return {"output": _per_axis(rng, rank, (1, 2, 3, 4, 5))}, {"x": (1, rng.choice((1, 2)), *_sizes(rng, rank))}


def _global(rng: Random) -> Shapes:
    """Return attributes and array shapes of a global pooling, drawn by `rng`."""
    rank = rng.choice((1, 2, 2, 3))
    return {"rank": rank}, {"x": (rng.choice((1, 2)), rng.choice((1, 2, 3)), *_sizes(rng, rank))}


def _linear(rng: Random) -> Shapes:
    """Return attributes and array shapes of a linear layer, drawn by `rng`."""
    n, cin, cout = rng.choice((1, 2, 5)), rng.choice((1, 7, 64)), rng.choice((1, 3, 10))
    return {}, {"x": (n, cin), "w": (cout, cin)} | ({"b": (cout,)} if rng.random() < 0.6 else {})


def _batch_norm(rng: Random) -> Shapes:
    """Return attributes and array shapes of a batch normalisation, drawn by `rng`."""
    rank, c = rng.choice((1, 2, 3)), rng.choice((1, 2, 3))
    per_channel = dict.fromkeys(("mean", "var", "weight", "bias"), (c,))
    return {"eps": rng.choice((1e-5, 1e-3, 0.125))}, {"x": (rng.choice((1, 2)), c, *_sizes(rng, rank)), **per_channel}


def _upsample(rng: Random) -> Shapes:
    """Return attributes and array shapes of a nearest upsampling, drawn by `rng`."""
    rank = rng.choice((1, 2, 2, 3))
    return {"factor": _per_axis(rng, rank, (1, 2, 3))}, {"x": (1, rng.choice((1, 2)), *_sizes(rng, rank, 5))}


def _resize(rng: Random) -> Shapes:
    """Return a resize that changes the size of every axis, drawn by `rng`: runtimes copy an axis that keeps its
    size.
    """
    rank = rng.choice((1, 2, 2, 3))
    cells = _sizes(rng, rank)
    sizes = tuple(rng.choice([m for m in range(1, 12) if m != n]) for n in cells)
    where = rng.choice(("half_pixel", "asymmetric", "align_corners"))
    how = rng.choice(("linear", "linear", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
    return {"sizes": sizes, "where": where, "how": how}, {"x": (1, rng.choice((1, 2)), *cells)}


def _cells(rng: Random) -> Shape:
    """Return the shape of an array for an elementwise operator, drawn by `rng`."""
    return (rng.choice((1, 2)), rng.choice((1, 3)), *_sizes(rng, rng.choice((1, 2))))


def _elementwise(*names: str, **attributes: Callable[[Random], Any]) -> Callable[[Random], Shapes]:
    """Return a generator of cases of an elementwise operator: `names` of its arrays, and how to draw each of its
    `attributes`.
    """

    def make(rng: Random) -> Shapes:
        shape = _cells(rng)
        return {name: draw(rng) for name, draw in attributes.items()}, dict.fromkeys(names, shape)

    return make


_one = _elementwise("x")
_two = _elementwise("x", "z")
_along = _elementwise("x", axis=lambda rng: rng.choice((1, -1)))

_OWN: dict[str, Callable[[Random], Shapes]] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "linear": _linear,
    "max_pool": _max_pool,
    "max_pool_indices": _max_pool,
    "avg_pool": _avg_pool,
    "lp_pool": _lp_pool,
    "smooth_max_pool": _smooth_max_pool,
    "adaptive_avg_pool": _adaptive,
    "adaptive_max_pool": _adaptive,
    "global_avg_pool": _global,
    "global_max_pool": _global,
    "batch_norm": _batch_norm,
    "upsample_nearest": _upsample,
    "resize": _resize,
    "cumsum": _elementwise(
        "x",
        axis=lambda rng: rng.choice((1, -1)),
        exclusive=lambda rng: rng.random() < 0.5,
        reverse=lambda rng: rng.random() < 0.5,
    ),
    "add": _two,
    "mul": _two,
    "leaky_relu": _elementwise("x", slope=lambda rng: rng.choice((0.01, 0.25, 0.3))),
    "clamp": _elementwise("x", low=lambda rng: rng.choice((-1.0, 0.0)), high=lambda rng: rng.choice((1.0, 6.0))),
    "softmax": _along,
    "log_softmax": _along,
}
SHAPES: dict[str, Callable[[Random], Shapes]] = {name: _OWN.get(name, _one) for name in OPERATORS}
"""Per operator; a function of one cell has one array and no attributes."""

# --- data -------------------------------------------------------------------------------------------------------

Draw = np.random.Generator


def _spikes(rng: Draw, shape: Shape) -> Array:
    """Return normal numbers, 1 % of them (at least one) times 2**20, drawn by `rng`: shows cancellation in Winograd
    transforms.
    """
    x = rng.normal(size=shape)
    flat = x.reshape(-1)
    flat[rng.choice(flat.size, max(1, flat.size // 100), replace=False)] *= 2.0**20
    return x


def _wide(rng: Draw, shape: Shape) -> Array:
    """Return numbers of sizes 2**-20 to 2**7, log-uniform, drawn by `rng`: shows wrong tails of functions and sums that
    lose terms.
    """
    return rng.choice((-1.0, 1.0), size=shape) * np.exp2(rng.uniform(-20, 7, size=shape))


def _one_hot(rng: Draw, shape: Shape) -> Array:
    """Draw normal numbers; `draw` gives weights one 1 per filter instead, which shows operands rounded to fewer
    bits.
    """
    return rng.normal(size=shape)


def _normal_with(value: float) -> Callable[[Draw, Shape], Array]:
    """Return a generator (rng, shape) of normal numbers of which 30 % are `value`, such as NaN."""

    def make(rng: Draw, shape: Shape) -> Array:
        x = rng.normal(size=shape)
        x.reshape(-1)[rng.random(x.size) < 0.3] = value
        return x

    return make


DATA: dict[str, Callable[[Draw, Shape], Array]] = {
    "gaussian": lambda rng, shape: rng.normal(size=shape),
    "spikes": _spikes,
    "integers": lambda rng, shape: rng.integers(-8, 9, size=shape),
    "one-hot": _one_hot,
    "ties": lambda rng, shape: rng.integers(0, 2, size=shape),
    "nan": _normal_with(float("nan")),
    "-inf": _normal_with(float("-inf")),
    "subnormal": lambda rng, shape: rng.normal(size=shape) * 2.0**-133,
    "wide": _wide,
}
FINITE = tuple(kind for kind in DATA if kind not in ("nan", "-inf"))


def _one_hot_weight(rng: Draw, shape: Shape) -> Array:
    """Return weights of this shape, filters first, with a single 1 per filter and 0 elsewhere, drawn by `rng`."""
    w = np.zeros((shape[0], int(np.prod(shape[1:]))))
    w[np.arange(shape[0]), rng.integers(0, w.shape[1], shape[0])] = 1
    return w.reshape(shape)


def draw(rng: Draw, kind: str, name: str, shape: Shape) -> Array:
    """Return one float32 array of a shape and a `kind` of data, a key of DATA, drawn by `rng`.

    Its `name` in the case decides: only data (x, z, g) hold NaN and -inf, a variance (var) is positive, and a weight
    (w) of kind "one-hot" has a single 1 per filter.
    """
    if name not in ("x", "z", "g") and kind in ("nan", "-inf"):
        kind = "gaussian"
    if name == "var":
        return np.abs(rng.normal(size=shape)).astype(np.float32) + np.float32(0.1)
    if kind == "one-hot" and name == "w":
        return _one_hot_weight(rng, shape).astype(np.float32)
    return DATA[kind](rng, shape).astype(np.float32)


# --- questions --------------------------------------------------------------------------------------------------


def pooling_window(question: OpCase) -> Window:
    """Return the window of a pooling case, from its attributes and the shape of x.

    ShapeError for a window that does not fit x.
    """
    names = ("stride", "padding", "dilation", "ceil")
    given = {"stride": None} | {k: v for k, v in question.attributes.items() if k in names}
    return window.pooling(
        question.operator, question.arrays["x"].shape, question.attributes["kernel"], rank=None, **given
    )


def has_empty_window(question: OpCase) -> bool:
    """Return whether a pooling window of the case has no cell inside: our 0 there is a convention that no runtime
    shares.
    """
    return "kernel" in question.attributes and pooling_window(question).has_empty


def _is_usable(question: OpCase) -> bool:
    """Return whether the case is valid, has an output cell, and no empty window."""
    try:
        cells = int(np.prod(question.output_shape()))
        return cells > 0 and not has_empty_window(question)
    except SpecgradError:
        return False


def _draw_spelling(rng: Random, operator: str, attributes: dict[str, Any], arrays: Mapping[str, Shape]) -> str:
    """Draw how the case of an operator is written: "constant weights", "output_shape" (of conv_transpose, where padding
    follows from it), or "".

    `attributes` and shapes of `arrays` say what is possible.
    """
    padding = attributes.get("padding", ())
    derived = isinstance(padding, tuple) and all(lo - hi in (0, 1) for lo, hi in padding)
    choices = ["", *(["constant weights"] if "w" in arrays else [])]
    choices += ["output_shape"] if operator == "conv_transpose" and derived else []
    return rng.choice(choices)


def draw_case(operator: str, kind: str, seed: int, accept: Accept | None = None) -> OpCase:
    """Return the test case of an operator and seed with data of a kind; `accept` says which attributes and shapes may
    be drawn.

    ParameterError if it accepts none of MAX_DRAWS.

    >>> print(draw_case("max_pool", "ties", 1))  # doctest: +ELLIPSIS
    max_pool(x(..., kernel=..., stride=..., padding=...)
    """
    check_operator(operator)
    shapes = Random(crc32(f"{operator} {seed}".encode()))  # the same shapes under every kind of data
    rng = np.random.default_rng([crc32(f"{operator} {kind}".encode()), seed])
    for _ in range(MAX_DRAWS):
        attributes, arrays = SHAPES[operator](shapes)
        if accept is not None and not accept(attributes, arrays):
            continue
        data = {name: draw(rng, kind, name, shape) for name, shape in arrays.items()}
        spelling = _draw_spelling(Random(seed), operator, attributes, arrays)
        drawn = OpCase(operator, attributes, data, data=kind, spelling=spelling)
        if _is_usable(drawn):
            return drawn
    text = f"none of {MAX_DRAWS} generated questions is of this kind (ranks=, where=)"
    raise ParameterError(
        "check", f"{operator}: {text}; specgrad conformance --operator {operator} --describe lists them"
    )


def kinds_for(operator: str) -> tuple[str, ...]:
    """Return the kinds of data for an operator; indices get no NaN: which NaN wins is left open ([P1])."""
    return tuple(kind for kind in DATA if (operator, kind) != ("max_pool_indices", "nan"))


def draw_cases(operator: str, count: int, seed: int = 0, accept: Accept | None = None) -> Iterator[OpCase]:
    """Yield `count` test cases of an operator, the kinds of data in turn; another `seed` gives others.

    `accept`, if given, decides by attributes and shapes which cases are drawn at all. ParameterError if `accept` takes
    none of many draws.
    """
    kinds = kinds_for(operator)
    for i in range(count):
        yield draw_case(operator, kinds[i % len(kinds)], seed * 1_000_003 + i, accept)
