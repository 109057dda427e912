"""Random networks of which every layer has several spellings, some of them subtly wrong, and mutations of graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

import specgrad as sg
from specgrad.errors import SpecgradError
from specgrad.graph.graph import CONSTANT, INPUT, Graph, NumberArg
from specgrad.window import Window

Layer = Callable[[Any, Random, bool], Any]  # the value, the draw of the spelling, whether it is to be wrong


def numbers(rng: Random, *shape: int) -> np.ndarray:
    """Few and small numbers, so that accidents (zeros, equal channels) happen."""
    return np.array([rng.randint(-6, 6) / 4 for _ in range(int(np.prod(shape)))], dtype=np.float32).reshape(shape)


def positive(rng: Random, *shape: int) -> np.ndarray:
    return np.array([rng.choice((0.25, 0.5, 1, 2, 3)) for _ in range(int(np.prod(shape)))], dtype=np.float32)


def per_channel(v: np.ndarray, rank: int) -> np.ndarray:
    return v.reshape(v.shape + (1,) * rank)


def affine(rng: Random, x: tuple[int, ...]) -> Layer:
    """A convolution with a batch normalisation behind it."""
    rank, c = len(x) - 2, x[1]
    groups = rng.choice([g for g in (1, 2, 3, 4) if c % g == 0])
    out, kernel = groups * rng.randint(1, 2), tuple(rng.randint(1, 3) for _ in range(rank))
    w, b = numbers(rng, out, c // groups, *kernel), numbers(rng, out)
    mean, gamma, beta = (numbers(rng, out) for _ in range(3))
    var, eps = positive(rng, out), rng.choice((0.0, 0.25))
    pads = [(rng.randint(0, 1), rng.randint(0, 1)) for _ in range(rank)]
    stride, before = rng.choice((1, 1, 2)), numbers(rng, c)
    before[before == 0] = 2

    def spell(v: Any, how: Random, wrong: bool) -> Any:
        fault = how.choice(("pads", "roll", "bias", "flip", "eps", "in")) if wrong else ""
        weights, padding, e, g = w, pads, eps, gamma
        if fault == "pads":
            padding = [(hi, lo) for lo, hi in pads]
        weights = weights[..., ::-1] if fault == "flip" else weights
        e = eps + 0.125 if fault == "eps" else e
        g = np.roll(gamma, 1) if fault == "roll" else g
        bias = None if fault == "bias" else b
        first = np.roll(before, 1) if fault == "in" else before
        exact_root = np.sqrt(var + e) == [0.5] * out
        if how.random() < 0.5:
            v = v * per_channel(first, rank)
        else:
            rows = np.repeat(first.reshape(groups, 1, -1), out // groups, 1).reshape(out, -1)
            weights = weights * rows.reshape(rows.shape + (1,) * rank)
        if how.random() < 0.5:
            v, padding = sg.pad(v, padding), 0
        late = bias is not None and how.random() < 0.5
        if exact_root.all() and how.random() < 0.5:  # the fold is exact in float32
            scale = g / np.float32(0.5)
            folded = (np.zeros(out, np.float32) if bias is None else bias) * scale + beta - mean * scale
            weights = weights * scale.reshape((-1,) + (1,) * (rank + 1))
            return sg.conv(weights, folded, v, stride=stride, padding=padding, groups=groups)
        y = sg.conv(weights, None if late else bias, v, stride=stride, padding=padding, groups=groups)
        y = y + per_channel(bias, rank) if late else y
        if how.random() < 0.5:
            return sg.batch_norm(y, *map(y.builder.constant, (mean, var, g, beta)), eps=e)
        scale = per_channel(g, rank) / sg.sqrt(v.builder.constant(per_channel(var, rank)) + e)
        return (y * scale + per_channel(beta, rank)) - per_channel(mean, rank) * scale

    return spell


def transposed(rng: Random, x: tuple[int, ...]) -> Layer:
    rank, c = len(x) - 2, x[1]
    groups = rng.choice([g for g in (1, 2) if c % g == 0])
    w = numbers(rng, c, 2, *(2,) * rank)
    s, b = numbers(rng, 2 * groups), numbers(rng, 2 * groups)
    options: Any = {"stride": rng.choice((1, 2)), "groups": groups}

    def spell(v: Any, how: Random, wrong: bool) -> Any:
        weights = np.swapaxes(w, 0, 1).copy() if wrong and c == 2 else w
        scale = np.roll(s, 1) if wrong and c != 2 else s
        if how.random() < 0.5:
            return sg.conv_transpose(weights, None, v, **options) * per_channel(scale, rank) + per_channel(b, rank)
        rows = np.repeat(scale.reshape(groups, 2), c // groups, axis=0)
        return sg.conv_transpose(weights * rows.reshape((c, 2) + (1,) * rank), b, v, **options)

    return spell


def bend(rng: Random, x: tuple[int, ...]) -> Layer:
    low, high = rng.choice(((0, None), (0, 6), (-1, 2)))

    def spell(v: Any, how: Random, wrong: bool) -> Any:
        a, z = (low, high) if not wrong else how.choice(((low + 0.5, high), (None, high), (low, 3)))
        if (a, z) == (None, None):
            return v
        way = how.randrange(4)
        if way == 0 or a is None or (way == 3 and z is None and a != 0):
            return sg.clamp(v, a, z)
        if way == 1:
            y = sg.maximum(v, a)
            return y if z is None else sg.minimum(z, y)
        if way == 2:
            y = sg.clamp(sg.clamp(v, a - 1, None if z is None else z + 1), a, None)
            return y if z is None else sg.clamp(y, a - 7, z)
        if (a, z) == (0, 6):
            return sg.relu6(v)
        return sg.relu(sg.relu(v)) if z is None else sg.clamp(v, a, z)

    return spell


def pool(rng: Random, x: tuple[int, ...]) -> Layer:
    """Maxima before or after a relu; averages by windows, by sums, by global means."""
    rank = len(x) - 2
    kind, pad = rng.choice(("max", "avg", "all")), rng.choice((0, 1))
    inside = rng.random() < 0.5

    def spell(v: Any, how: Random, wrong: bool) -> Any:
        if kind == "max":
            step = 1 if wrong else 2
            y = (lambda t: sg.max_pool(t, (2,) * rank, stride=step, padding=pad)) if not wrong else sg.abs
            return sg.relu(y(v)) if how.random() < 0.5 else y(sg.relu(v))
        if kind == "all":
            axes = tuple(range(2, 2 + rank))
            count = int(np.prod(v.shape[2:]))
            ways = (
                lambda: sg.mean(v, axes, keepdims=True),
                lambda: sg.avg_pool(v, tuple(v.shape[2:])),
                lambda: sg.sum(v, axes, keepdims=True) / (count + wrong),
                lambda: sg.reshape(sg.sum(v, axes), (*v.shape[:2], *(1,) * rank)) * Fraction(1, count + wrong),
            )
            return how.choice(ways[2:] if wrong else ways)()
        options: Any = {"stride": 1, "padding": pad, "count_include_pad": not (inside ^ (wrong and pad == 1))}
        y = sg.avg_pool(v, (2,) * rank, **options)
        if how.random() < 0.5 and not (inside and pad):
            y = sg.avg_pool(sg.pad(v, [(pad, pad)] * rank) if pad else v, (2,) * rank, stride=1)
        return y * (2 if wrong and not pad else 1)

    return spell


def layout(rng: Random, x: tuple[int, ...]) -> Layer:
    """A function of one cell under a permutation or a reshape."""
    order = list(range(len(x)))
    rng.shuffle(order)
    c = numbers(rng, *x)

    def spell(v: Any, how: Random, wrong: bool) -> Any:
        back = np.argsort(order)
        back = back[::-1] if wrong and tuple(np.array(v.shape)[order][back[::-1]]) == v.shape else back
        way = how.randrange(3)
        if way == 0:
            return sg.tanh(v * c) + v
        if way == 1:
            first = how.sample(order, len(order))
            turned = sg.permute(sg.permute(v, first), [first.index(a) for a in order])
            held = np.transpose(c, order)
            return sg.permute(sg.tanh(turned * held) + turned, back)
        flat, held = sg.reshape(v, (-1,)), c.reshape(-1)
        held = np.roll(held, 1) if wrong else held
        return sg.reshape(sg.tanh(flat * held) + flat, v.shape)

    return spell


def residual(rng: Random, x: tuple[int, ...]) -> Layer:
    s, t = rng.choice((0.5, 2, 3)), numbers(rng, x[1])

    def spell(v: Any, how: Random, wrong: bool) -> Any:
        inner = sg.relu(v + per_channel(t, len(x) - 2))
        scale = -s if wrong else s
        ways = (
            lambda: v * scale + inner,
            lambda: inner - (-v) * scale,
            lambda: (v + inner / s) * s if not wrong else v - inner,
            lambda: inner + v * scale + v - v,
        )
        return how.choice(ways)()

    return spell


def framed(rng: Random, x: tuple[int, ...]) -> Layer:
    """A crop of a padding, of a concatenation."""
    last = x[-1]
    start, stop = rng.randint(0, 2), last + rng.randint(1, 3)

    def spell(v: Any, how: Random, wrong: bool) -> Any:
        lead = [slice(None)] * (len(x) - 1)
        sides = (0 if wrong else 1, 3)
        if how.random() < 0.5:
            wide = sg.pad(sg.pad(v, [(sides[0], 1)]), [(0, 2)])
        else:
            wide = sg.pad(v, [sides])
        cut = sg.slice(wide, *lead, slice(start, min(stop, wide.shape[-1])))
        return sg.concat([cut, cut, v], -1) if how.random() < 0.5 else sg.concat([cut, sg.concat([cut, v], -1)], -1)

    return spell


def head(rng: Random, x: tuple[int, ...]) -> Layer:
    n, out = int(np.prod(x[1:])), rng.randint(2, 3)
    out = n if n <= 4 else out
    w, b = numbers(rng, out, n), numbers(rng, out)

    def spell(v: Any, how: Random, wrong: bool) -> Any:
        weights = w.T.copy() if wrong and n == out else w[:, ::-1] if wrong else w
        flat = sg.flatten(v, 1) if how.random() < 0.5 else sg.reshape(v, (v.shape[0], -1))
        ways = (
            lambda: sg.linear(weights, b, flat),
            lambda: sg.matmul(flat, weights.T.copy()) + b,
            lambda: sg.permute(sg.matmul(weights, sg.permute(flat, (1, 0))), (1, 0)) + b,
            lambda: sg.linear(weights * np.float32(2), b * 2, flat) / 2,
            lambda: sg.matmul(flat, sg.permute(flat.builder.constant(weights), (1, 0))) + b,
        )
        return how.choice(ways)()

    return spell


KINDS = (affine, affine, transposed, bend, bend, pool, layout, residual, framed)


def spelled(seed: int, spelling: int, faults: int = 0) -> Graph:
    """The network of a seed in one of its spellings; `faults` layers are spelled wrongly."""
    rng, how = Random(f"network {seed}"), Random(f"spelling {seed} {spelling}")
    rank = rng.randint(1, 2)
    shape = (rng.randint(1, 2), rng.randint(1, 4), *(rng.randint(2, 4) for _ in range(rank)))
    kinds = [rng.choice(KINDS) for _ in range(rng.randint(1, 4))] + [head] * (rng.random() < 0.5)
    wrong = {how.randrange(len(kinds)) for _ in range(faults)}
    draws = [rng.random() for _ in kinds]

    def net(x: Any) -> Any:
        for k, kind in enumerate(kinds):
            layer = kind(Random(draws[k]), x.shape)
            x = layer(x, how, k in wrong)
        return x

    return sg.trace(net, shape)


# --- mutations of graphs ----------------------------------------------------------------------------------------------

SWAPS = {"relu": "neg", "add": "sub", "sub": "add", "mul": "add", "maximum": "minimum", "minimum": "maximum"}


def mutated(graph: Graph, seed: int) -> Graph | None:
    """One attribute, one weight, one operator or one edge changed; None where the change makes no graph."""
    rng = Random(seed)
    nodes, constants = list(graph.nodes), dict(graph.constants)
    computed = [i for i, n in enumerate(nodes) if n.op not in (INPUT, CONSTANT)]
    kind = rng.choice(("weight", "swap cells", "edge", "order", "operator", "attribute", "attribute"))
    if kind in ("weight", "swap cells"):
        i = rng.choice(sorted(constants) or [-1])
        if i < 0 or constants[i].size < 1:
            return None
        array = constants[i] = np.array(constants[i])
        if array.dtype.kind != "f":
            return None
        p, q = rng.randrange(array.size), rng.randrange(array.size)
        if kind == "weight":
            array.flat[p] = np.nextafter(array.flat[p], np.float32(9), dtype=array.dtype)
        else:
            array.flat[p], array.flat[q] = array.flat[q], array.flat[p]
        return dataclasses.replace(graph, constants=constants)
    i = rng.choice(computed)
    node = nodes[i]
    changed = _changed(node, kind, nodes, i, rng)
    if changed is None:
        return None
    nodes[i] = changed
    try:
        shape = changed.op.shape(*(_shape(a, nodes) for a in changed.args), **changed.params)
    except SpecgradError:
        return None
    return dataclasses.replace(graph, nodes=tuple(nodes)) if shape == node.shape else None


def _shape(a: Any, nodes: Any) -> tuple[int, ...]:
    return () if isinstance(a, NumberArg) else nodes[a].shape


def _changed(node: Any, kind: str, nodes: Any, i: int, rng: Random) -> Any:
    if kind == "order":
        return dataclasses.replace(node, args=tuple(reversed(node.args))) if len(node.args) == 2 else None
    if kind == "operator":
        other = SWAPS.get(node.op.name)
        return dataclasses.replace(node, op=sg.REGISTRY[other]) if other else None
    if kind == "edge":
        k = rng.randrange(len(node.args))
        if isinstance(node.args[k], NumberArg):
            args = (*node.args[:k], NumberArg(node.args[k].value + Fraction(1, 8)), *node.args[k + 1 :])
            return dataclasses.replace(node, args=args)
        old = nodes[node.args[k]]
        like = [j for j in range(i) if nodes[j].shape == old.shape and nodes[j].kind == old.kind]
        return dataclasses.replace(node, args=(*node.args[:k], rng.choice(like), *node.args[k + 1 :]))
    if not node.params:
        return None
    name = rng.choice(sorted(node.params))
    value = _other(node.params[name], rng)
    return None if value is None else dataclasses.replace(node, params={**node.params, name: value})


def _other(value: Any, rng: Random) -> Any:
    """Another value of an attribute."""
    if isinstance(value, Window):
        return rng.choice(value.moved() or [None])
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float | Fraction):
        return value + rng.choice((1, -1))
    if isinstance(value, str):
        return {"padded": "inside", "inside": "padded"}.get(value)
    if isinstance(value, tuple) and value and all(isinstance(v, int) for v in value):
        return tuple(rng.sample(value, len(value)))
    if isinstance(value, tuple) and value and all(isinstance(v, tuple) for v in value):
        k = rng.randrange(len(value))
        shifted = (value[k][0] + 1, value[k][1] + rng.choice((1, -1)), *value[k][2:])
        return (*value[:k], shifted, *value[k + 1 :])
    return None
