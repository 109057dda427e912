"""Networks written once, run twice: recorded as a graph, and executed in float32 along chosen expression trees.

A network is a function of `ops` and x. `Recorder` makes specgrad's graph of it. `Execution` computes it with NumPy's
float32 numbers (correctly rounded, one operation at a time) along the trees that it is given: nothing of specgrad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

import specgrad as sg

Array = Any
FLOAT = np.float32


def tf32(x: Array) -> Array:
    """x to nearest with 11 significant bits, ties to even: the operands of a tensor core.

    >>> float(tf32(FLOAT(2**11 + 1))), float(tf32(FLOAT(2**11 + 3))), float(tf32(FLOAT(-5)))
    (2048.0, 2052.0, -5.0)
    """
    bits = np.asarray(x, FLOAT).view(np.uint32).astype(np.uint64)
    even = bits + 0xFFF + ((bits >> 13) & 1)
    return (even & 0xFFFFE000).astype(np.uint32).view(FLOAT)


@dataclass(frozen=True)
class Sum:
    """One expression tree for a sum of products: left to right, unless said otherwise.

    order         numbers of the terms, first to last; terms that are left out follow in their own order
    block         sums of so many terms each, then the sum of those
    accumulator   the format of products and partial sums
    result        what the sum is rounded to once: float32, unless values in float64 are asked for
    operand       what happens to both factors first
    """

    order: Sequence[int] = ()
    block: int | None = None
    accumulator: Any = FLOAT
    result: Any = FLOAT
    operand: Callable[[Array], Array] | None = None

    def __call__(self, pairs: Sequence[tuple[Array, Array]]) -> Array:
        """The sum of w * x over pairs (w, x).

        >>> ones = [(FLOAT(v), FLOAT(1)) for v in (2**24, 1, -(2**24))]
        >>> float(Sum()(ones)), float(Sum(order=(0, 2))(ones)), float(Sum(accumulator=np.float64)(ones))
        (0.0, 1.0, 1.0)
        """
        terms = [self._factor(w) * self._factor(x) for w, x in pairs]
        chosen = set(self.order)
        terms = [terms[i] for i in self.order] + [t for i, t in enumerate(terms) if i not in chosen]
        size = self.block or len(terms)
        blocks = [reduce(np.add, terms[k : k + size]) for k in range(0, len(terms), size)]
        return np.asarray(reduce(np.add, blocks), self.result)

    def _factor(self, x: Array) -> Array:
        return np.asarray(self.operand(x) if self.operand else x, self.accumulator)


LEFT = Sum()
DOUBLE = Sum(accumulator=np.float64)


@dataclass(frozen=True)
class Execution:
    """One way to compute a network in float32.

    sums      the tree of each layer, by its name; `default` for the others
    fold      convolutions and the normalisations after them: False: one after the other; True: folded weights
    onto      convolutions and the sums after them: False: one after the other; True: terms are added onto the other
    expand    two convolutions, the first 1x1: False: one after the other; True: one sum of products of three factors
    fused     which copies of a value contract x * c + d to one operation (fused multiply-add)
    """

    name: str
    sums: Mapping[str, Sum] = field(default_factory=dict)
    default: Sum = LEFT
    fold: bool = False
    onto: bool = False
    expand: bool = False
    fused: Sequence[int] = ()
    copy: int = 0

    def __call__(self, network: Callable[[Any, Any], Any], x: Array) -> Array:
        with np.errstate(all="raise", under="ignore"):
            return np.ravel(network(self, np.asarray(x, FLOAT)))

    def _add_up(self, name: str, pairs: Sequence[tuple[Array, Array]]) -> Array:
        return self.sums.get(name, self.default)(pairs)

    def conv(self, name: str, w: Array, b: Array | None, x: Array, padding: int = 0) -> Array:
        return self._add_up(name, [*_products(w, x, padding), *_bias(b)])

    def linear(self, name: str, w: Array, b: Array | None, x: Array) -> Array:
        pairs = [(w[:, i], x[:, i : i + 1]) for i in range(w.shape[1])]
        return self._add_up(name, [*pairs, *([] if b is None else [(b, FLOAT(1))])])

    def conv_plus(self, name: str, w: Array, x: Array, residual: Array) -> Array:
        """conv(w, x) + residual, or the residual with the terms of the convolution added onto it."""
        if self.onto:
            return self._add_up(name, [(residual, FLOAT(1)), *_products(w, x, 0)])
        return self.conv(name, w, None, x) + residual

    def conv_norm(self, name: str, w: Array, x: Array, mean: Array, scale: Array) -> Array:
        """(conv(w, x) - mean) * scale, or a convolution with weights w*scale and bias -mean*scale."""
        per_channel = lambda v: v.reshape(1, -1, 1, 1)
        if self.fold:
            return self.conv(name, w * scale.reshape(-1, 1, 1, 1), -mean * scale, x)
        return (self.conv(name, w, None, x) - per_channel(mean)) * per_channel(scale)

    def norm_in_steps(self, name: str, w: Array, x: Array, mean: Array, scale: Array) -> Array:
        return self.conv_norm(name, w, x, mean, scale)

    def conv_conv(self, name: str, first: Array, second: Array, x: Array) -> Array:
        """conv(second, conv(first, x)), or one sum with weights second*first, one channel of x after the other."""
        if not self.expand:
            return self.conv(name, second, None, self.conv(name + "_first", first, None, x))
        weights = [(second * first[:, c].reshape(1, -1, 1, 1), x[:, c : c + 1]) for c in range(first.shape[1])]
        parts = [_products(w[:, k : k + 1], v, 0) for w, v in weights for k in range(w.shape[1])]
        return self._add_up(name, [pair for part in parts for pair in part])

    def mul_add(self, x: Array, c: Array, d: Array) -> Array:
        """x * c + d, with one rounding (the product of two float32 numbers is exact in float64) or two."""
        if self.copy in self.fused:
            return np.asarray(np.float64(x) * np.float64(c) + np.float64(d), FLOAT)
        return x * c + d

    def readers(self, count: int, make: Callable[[Any], Any]) -> list[Array]:
        """A value as each of its readers sees it: computed once per reader."""
        return [make(Execution(**{**self.__dict__, "copy": k})) for k in range(count)]

    def relu(self, x: Array) -> Array:
        return np.maximum(x, FLOAT(0))

    def max_pool(self, x: Array, size: int) -> Array:
        n, c, h, w = x.shape
        return x.reshape(n, c, h // size, size, w // size, size).max((3, 5))

    def add(self, x: Array, y: Array) -> Array:
        return x + y

    def part(self, x: Array, *ranges: slice) -> Array:
        return x[ranges]

    def flatten(self, x: Array) -> Array:
        return x.reshape(1, -1)

    def join(self, *xs: Array) -> Array:
        return np.concatenate(xs, 1)


def _products(w: Array, x: Array, padding: int) -> list[tuple[Array, Array]]:
    """Per input channel and tap the pair (weight, shifted input), for all output cells at once."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    rows, columns = x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1
    taps = [(c, i, j) for c in range(w.shape[1]) for i in range(w.shape[2]) for j in range(w.shape[3])]
    return [(w[:, c, i, j].reshape(1, -1, 1, 1), x[:, c : c + 1, i : i + rows, j : j + columns]) for c, i, j in taps]


def _bias(b: Array | None) -> list[tuple[Array, Array]]:
    return [] if b is None else [(b.reshape(1, -1, 1, 1), FLOAT(1))]


class Recorder:
    """The same layers as nodes of a specgrad graph, under the same names."""

    def conv(self, name: str, w: Array, b: Array | None, x: Any, padding: int = 0) -> Any:
        with sg.scope(name):
            return sg.conv(w, b, x, padding=padding)

    def linear(self, name: str, w: Array, b: Array | None, x: Any) -> Any:
        with sg.scope(name):
            return sg.linear(w, b, x)

    def conv_plus(self, name: str, w: Array, x: Any, residual: Any) -> Any:
        return sg.add(self.conv(name, w, None, x), residual)

    def conv_norm(self, name: str, w: Array, x: Any, mean: Array, scale: Array) -> Any:
        """One batch_norm layer, of variance 1."""
        return sg.batch_norm(self.conv(name, w, None, x), mean, np.ones_like(mean), scale, eps=0)

    def norm_in_steps(self, name: str, w: Array, x: Any, mean: Array, scale: Array) -> Any:
        """Two nodes, as files of other frameworks often have them: a subtraction, a product."""
        per_channel = lambda v: v.reshape(1, -1, 1, 1)
        return sg.mul(sg.sub(self.conv(name, w, None, x), per_channel(mean)), per_channel(scale))

    def conv_conv(self, name: str, first: Array, second: Array, x: Any) -> Any:
        return self.conv(name, second, None, self.conv(name + "_first", first, None, x))

    def mul_add(self, x: Any, c: Array, d: Array) -> Any:
        return sg.add(sg.mul(x, c), d)

    def readers(self, count: int, make: Callable[[Any], Any]) -> list[Any]:
        """One node, read several times."""
        return [make(self)] * count

    def relu(self, x: Any) -> Any:
        return sg.relu(x)

    def max_pool(self, x: Any, size: int) -> Any:
        return sg.max_pool(x, (size, size))

    def add(self, x: Any, y: Any) -> Any:
        return sg.add(x, y)

    def part(self, x: Any, *ranges: slice) -> Any:
        return sg.slice(x, *ranges)

    def flatten(self, x: Any) -> Any:
        return sg.flatten(x, 1)

    def join(self, *xs: Any) -> Any:
        return sg.concat(xs, 1)
