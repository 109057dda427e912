"""Random questions for two judges: the reference extracted from Coq, as a line of text, and ours, as a call.

Sizes, attributes and numbers are drawn raw, so some windows do not fit: then both must refuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple

import numpy as np

import specgrad as sg

Array = Any
Parts = list[tuple[tuple[int, ...], list[Fraction]]]
"""Shapes, their leading axes as one, and cells in row-major order."""


class Question(NamedTuple):
    line: str  # as verified/programs/reference/main.ml reads it
    parts: Parts | None  # what we answer; None: refused


def numbers(rng: Random, shape: tuple[int, ...]) -> Array:
    """Few values, so that ties are common."""
    cells = [Fraction(rng.randint(-3, 3), rng.choice((1, 1, 1, 2, 3))) for _ in range(math.prod(shape))]
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array.reshape(shape)


def text(x: Array) -> str:
    return ",".join(map(str, np.ravel(x)))


def lead(rng: Random) -> tuple[int, ...]:
    return rng.choice(((), (), (1,), (2,), (2,), (3,), (2, 2), (0,)))


class Axes(NamedTuple):
    """Spatial axes of one call: its sizes and attributes, and the same as the reference reads them."""

    sizes: tuple[int, ...]
    options: dict[str, Any]
    line: str


def _shared(rng: Random, values: list[int]) -> Any:
    """One int for all axes, where they agree, half of the time."""
    return values[0] if len(set(values)) == 1 and rng.random() < 0.5 else tuple(values)


def _sizes(rng: Random) -> tuple[int, ...]:
    rank = rng.randint(1, 4)
    return tuple(rng.randint(1, (8, 5, 4, 3)[rank - 1]) for _ in range(rank))


def _drawn(rng: Random, rank: int, of: tuple[int, ...]) -> list[int]:
    """One number per axis, or one for all."""
    return [rng.choice(of)] * rank if rng.random() < 0.3 else [rng.choice(of) for _ in range(rank)]


def windows(rng: Random, *, dilated: bool, ceil: bool, sizes: tuple[int, ...] | None = None) -> Axes:
    sizes = sizes or _sizes(rng)
    rank = len(sizes)
    k = _drawn(rng, rank, (1, 2, 2, 3) if rank < 4 else (1, 2))
    s = _drawn(rng, rank, (1, 1, 2, 3) if rng.random() < 0.95 else (0, 1))
    e = _drawn(rng, rank, (1, 1, 2, 3)) if dilated else [1] * rank
    options: dict[str, Any] = {"kernel": tuple(k), "stride": _shared(rng, s)}
    options |= {"dilation": _shared(rng, e)} if dilated else {}
    if rng.random() < 0.2:
        word = rng.choice(("same_upper", "same_lower"))
        axes = [":".join(map(str, (word[5], *a))) for a in zip(sizes, k, s, e, strict=True)]
        return Axes(sizes, options | {"padding": word}, ",".join(axes))
    lo, hi = _drawn(rng, rank, (0, 0, 1, 2, 4)), _drawn(rng, rank, (0, 0, 1, 2, 4))
    padding = _shared(rng, lo) if lo == hi else tuple(zip(lo, hi, strict=True))
    up = ceil and rng.random() < 0.5
    options |= {"padding": padding} | ({"ceil": up} if ceil else {})
    axes = [":".join(map(str, ("w", *a, int(up)))) for a in zip(sizes, k, s, e, lo, hi, strict=True)]
    return Axes(sizes, options, ",".join(axes))


def answered(function: Callable[..., Any], args: list[Array], rng: Random) -> tuple[Array, list[Array], list[Array]]:
    """Tangents of the arguments and a cotangent of the result; the value, its tangent, and the cotangents."""
    graph = sg.trace(function, *(a.shape for a in args))
    dargs = [numbers(rng, a.shape) for a in args]
    y, dy = sg.jvp(graph)(*args, *dargs)
    gy = numbers(rng, y.shape)
    same, *cotangents = sg.vjp(graph)(*args, gy)
    assert np.array_equal(same, y)
    return gy, dargs, [y, dy, *cotangents]


WHOLE = 100  # a tail that is the whole shape: weights, biases


def parts(results: list[Array], tails: list[int]) -> Parts:
    """Leading axes, all but `tails` many, as one; a result that is all tail keeps its shape."""
    folded = []
    for y, tail in zip(results, tails, strict=True):
        kept = y.shape[y.ndim - tail :]
        shape = y.shape if tail == WHOLE else (math.prod(y.shape[: y.ndim - tail]), *kept)
        folded.append((shape, list(np.ravel(y))))
    return folded


def _line(operator: str, **fields: Any) -> str:
    return " ".join([operator, *(f"{k}={text(v) if isinstance(v, np.ndarray) else v}" for k, v in fields.items())])


def _refused(operator: str, **fields: Any) -> Question:
    empty = dict.fromkeys(("x", "w", "b", "dx", "dw", "db", "gy"), "")
    return Question(_line(operator, **fields, **empty), None)


def transposed(rng: Random, sizes: tuple[int, ...] | None = None) -> Axes:
    sizes = sizes or _sizes(rng)
    rank = len(sizes)
    k = _drawn(rng, rank, (1, 2, 2, 3) if rank < 4 else (1, 2))
    s, e = _drawn(rng, rank, (1, 1, 2, 3)), _drawn(rng, rank, (1, 1, 2, 3))
    lo, hi, more = _drawn(rng, rank, (0, 0, 1, 2)), _drawn(rng, rank, (0, 0, 1, 2)), _drawn(rng, rank, (0, 0, 0, 1, 2))
    padding = _shared(rng, lo) if lo == hi else tuple(zip(lo, hi, strict=True))
    options = {"kernel": tuple(k), "stride": _shared(rng, s), "dilation": _shared(rng, e), "padding": padding}
    axes = [":".join(map(str, ("t", *a))) for a in zip(sizes, k, s, e, lo, hi, more, strict=True)]
    return Axes(sizes, options | {"output_padding": _shared(rng, more)}, ",".join(axes))


def convolution(rng: Random, operator: str) -> Question:
    axes = transposed(rng) if operator == "conv_transpose" else windows(rng, dilated=True, ceil=False)
    rank, options = len(axes.sizes), dict(axes.options)
    kernel, groups, batch = options.pop("kernel"), rng.choice((1, 1, 2, 3)), lead(rng)
    cin, cout = groups * rng.randint(1, 2), groups * rng.randint(1, 2)
    fields = {"batch": math.prod(batch), "groups": groups, "cin": cin, "cout": cout, "axes": axes.line}
    first, second = (cin, cout // groups) if operator == "conv_transpose" else (cout, cin // groups)
    x, w = numbers(rng, (*batch, cin, *axes.sizes)), numbers(rng, (first, second, *kernel))
    biased = rng.random() < 0.6
    b = numbers(rng, (cout,)) if biased else np.array([Fraction(0)] * cout, dtype=object)
    call = getattr(sg, operator)

    def function(x: Any, w: Any, *b: Any) -> Any:
        return call(w, b[0] if b else None, x, groups=groups, **options)

    try:
        gy, (dx, dw, *db), results = answered(function, [x, w, *([b] if biased else [])], rng)
    except sg.ShapeError:
        return _refused(operator, **fields)
    line = _line(operator, **fields, x=x, w=w, b=b, dx=dx, dw=dw, db=db[0] if db else b, gy=gy)
    tails = [rank + 1, rank + 1, rank + 1, WHOLE, *([WHOLE] if biased else [])]
    return Question(line, parts(results, tails))


def pooled(rng: Random, operator: str) -> Question:
    """avg_pool and max_pool, strided or adaptive."""
    fields: dict[str, Any] = {}
    if rng.random() < 0.25:
        sizes = _sizes(rng)
        outs = tuple(rng.randint(1, n + 1) for n in sizes)
        axes = Axes(sizes, {}, ",".join(f"a:{n}:{m}" for n, m in zip(sizes, outs, strict=True)))
        call, options = getattr(sg, f"adaptive_{operator}"), {"output": outs}
        fields = {"divisor": "inside"}
    else:
        axes = windows(rng, dilated=operator == "max_pool", ceil=True)
        call, options = getattr(sg, operator), dict(axes.options)
        if options["stride"] == options["kernel"] and rng.random() < 0.5:
            del options["stride"]
        if operator == "avg_pool":
            kind = rng.choice(("padded", "inside", "number"))
            number = rng.choice((Fraction(3), Fraction(-2), Fraction(5, 7)))
            options |= {"divisor": number} if kind == "number" else {"count_include_pad": kind == "padded"}
            fields = {"divisor": number if kind == "number" else kind}
    rank, front = len(axes.sizes), lead(rng)
    fields |= {"lead": math.prod(front), "axes": axes.line}
    x = numbers(rng, front + axes.sizes)
    try:
        gy, (dx,), results = answered(lambda x: call(x, **options), [x], rng)
    except sg.ShapeError:
        return _refused(operator, **fields)
    if operator == "max_pool":
        results.insert(1, call(x, **options, return_indices=True)[1])
    return Question(_line(operator, **fields, x=x, dx=dx, gy=gy), parts(results, [rank] * len(results)))


def global_pooled(rng: Random, operator: str) -> Question:
    sizes, front = _sizes(rng), lead(rng)
    keep, ties = rng.random() < 0.5, rng.choice(("all", "split", "first"))
    options = {"ties": ties} if operator == "global_max" else {}
    x = numbers(rng, front + sizes)
    call = getattr(sg, f"{operator}_pool")
    gy, (dx,), (y, dy, gx) = answered(lambda x: call(x, rank=len(sizes), keepdims=keep, **options), [x], rng)
    fields = {"lead": math.prod(front), "sizes": ",".join(map(str, sizes)), **options}
    small = [a.reshape(front) for a in (y, dy)]
    return Question(_line(operator, **fields, x=x, dx=dx, gy=gy), parts([*small, gx], [0, 0, len(sizes)]))


KINDS: dict[str, Callable[[Random, str], Question]] = {
    "conv": convolution,
    "conv_transpose": convolution,
    "avg_pool": pooled,
    "max_pool": pooled,
    "global_avg": global_pooled,
    "global_max": global_pooled,
}


def question(seed: int) -> Question:
    rng = Random(f"reference/{seed}")
    operator = list(KINDS)[seed % len(KINDS)]
    return KINDS[operator](rng, operator)


def read(answer: str) -> Parts | None:
    """What the reference says."""
    if answer == "refused":
        return None
    assert not answer.startswith("error"), answer
    pieces = [part.split("|") for part in answer.split(";")]
    return [
        (tuple(map(int, shape.split(","))), [Fraction(c) for c in cells.split(",") if c]) for shape, cells in pieces
    ]


def differs(asked: Question, answer: str) -> str | None:
    """What differs; the reference also answers the bias's cotangent where we have no bias."""
    if answer.startswith("error"):
        return answer
    theirs = read(answer)
    if asked.parts is None or theirs is None:
        return None if asked.parts is theirs else f"refused by {'us' if asked.parts is None else 'the reference'} alone"
    bias = "conv" in asked.line and len(asked.parts) == 4
    if len(theirs) != len(asked.parts) + bias:
        return f"{len(asked.parts)} and {len(theirs)} parts"
    for k, (our_part, their_part) in enumerate(zip(asked.parts, theirs, strict=False)):
        if our_part[0] != their_part[0]:
            return f"part {k}: shapes {our_part[0]} and {their_part[0]}"
        if our_part[1] != their_part[1]:
            return f"part {k}: {text(our_part[1])} and {text(their_part[1])}"
    return None
