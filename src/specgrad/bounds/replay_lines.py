"""relu and max_pool in a replay: their ranges, their lines for given slopes, and objectives that pass through them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph.graph import Node
from ..scalar import Array
from ..window import Window, scatter_add
from .replay_numbers import ReplayError, larger, objects, rational, total, zeros

LOST = 60  # 2**-60 stands for 2**-126, the most that underflow or flushing costs one operation: generous, and short


@dataclass(frozen=True, eq=False)
class Range:
    """What is proven of one node.

    low, high     the ends of the node's value in every float32 execution
    constant      one known value
    exact_ends    the ends of its layer's exact map of what the layer reads, for the rest of the layer
    error         how far float32 can be from that map
    count, plain, size   roundings met in the layer; its expression on absolute values, without and with underflow
    """

    low: Array
    high: Array
    constant: bool = False
    exact_ends: tuple[Array, Array] | None = None
    error: Array | None = None
    count: int = 0
    plain: Any = None
    size: Any = None

    @property
    def largest(self) -> Array:
        return larger(self.high, -self.low)


def chosen(low: Array, high: Array) -> Range:
    """The result of a choice: exact, but a runtime may flush it to zero."""
    lost = rational(1, 1 << LOST)
    error = objects([lost] * low.size, low.shape)
    return Range(low - error, high + error, False, None, error)


def window_max(x: Array, window: Window) -> Array:
    found: Array = np.full((*x.shape[: x.ndim - window.rank], *window.out), None, dtype=object)
    for tap in window.taps():
        here, read = (..., *tap.outs), x[(..., *tap.ins)]
        seen = found[here]
        found[here] = objects(
            [v if s is None or v > s else s for s, v in zip(seen.flat, read.flat, strict=True)], seen.shape
        )
    if any(v is None for v in found.flat):
        raise ReplayError("a max_pool window holds padding alone; its maximum is no number")
    return found


def relu_lines(node: Node, x: Range, lower: Array, upper: Array) -> tuple[Array, tuple[Array, Array]]:
    if (lower > 1).any():
        raise ReplayError(f"the lower slopes of node {node.name} must not be above 1")
    zero, one = rational(0), rational(1)
    on, off = x.low >= 0, x.high <= 0
    lower, upper = (np.where(on, one, np.where(off, zero, s)) for s in (lower, upper))
    intercept = np.where(on | off, zero, larger(-upper * x.low, x.high - upper * x.high))
    return lower, (upper, intercept)


def through_relu(node: Node, a: Array, below: Array, above: tuple[Array, Array]) -> tuple[Array, Any]:
    slope, intercept = above
    return np.where(a > 0, a * below, a * slope), total(np.where(a < 0, a * intercept, rational(0)))


def max_lines(node: Node, x: Range, lower: Array, upper: Array) -> tuple[Array, tuple[Array, Array]]:
    window: Window = node.params["window"]
    taps = list(window.taps())
    simplex, lowest = zeros(node.shape), zeros(node.shape)
    for t, tap in enumerate(taps):
        here, low = (..., *tap.outs), x.low[(..., *tap.ins)]
        simplex[here] = simplex[here] + lower[t][here]
        lowest[here] = lowest[here] + upper[t][here] * low
    if (simplex != 1).any():
        raise ReplayError(f"the lower slopes of node {node.name} must add up to 1 in every window")
    intercept: Array = np.full(node.shape, None, dtype=object)
    for t, tap in enumerate(taps):
        here, low, high = (..., *tap.outs), x.low[(..., *tap.ins)], x.high[(..., *tap.ins)]
        s = upper[t][here]
        reached = larger((1 - s) * high, (1 - s) * low) - (lowest[here] - s * low)
        seen = intercept[here]
        cells = [v if w is None or v > w else w for w, v in zip(seen.flat, reached.flat, strict=True)]
        intercept[here] = objects(cells, seen.shape)
    return lower, (upper, intercept)


def through_max(node: Node, a: Array, below: Array, above: tuple[Array, Array]) -> tuple[Array, Any]:
    slope, intercept = above
    window: Window = node.params["window"]
    found = zeros((*node.shape[: len(node.shape) - window.rank], *window.size))
    for t, tap in enumerate(window.taps()):
        here = (..., *tap.outs)
        scatter_add(found, tap.ins, np.where(a[here] > 0, a[here] * below[t][here], a[here] * slope[t][here]))
    return found, total(np.where(a < 0, a * intercept, rational(0)))
