"""relu and max_pool in a replay: their ranges, their lines for given slopes, and objectives that pass through them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.graph.graph import Node
from specgrad.scalar import Array
from specgrad.window import Window

from ..base.rationals import ReplayError, cells, larger, objects, rational, total, zeros
from .rounding_counts import RoundingCount

LOST = 60  # 2**-60 stands for 2**-126, the most that underflow or flushing costs one operation: generous, and short


@dataclass(frozen=True, eq=False)
class RegionSum:
    """What a linear node is to the rest of its region: its exact map of what the region reads.

    low, high   the ends of that map
    size        the map on absolute values
    most        an upper bound of every partial result: the map with every factor f replaced by max(1, abs(f))
    met         roundings that a term may have met
    apart       how far values that the region reads may move it, from value to value; what a kernel read, it has read
    merged      the same, for sums that a kernel is multiplied out into: each of their cells reads values of its own
    """

    low: Array
    high: Array
    size: Array
    most: int
    met: RoundingCount
    apart: Array
    merged: Array


@dataclass(frozen=True, eq=False)
class NodeRange:
    """What is proven of one node.

    low, high     the ends of every value that it has in any execution
    ends          the ends of its reference (specgrad.bounds.linear.intermediate.forward_pass): the one that backward
    bounds speak of
    constant      one known value, up to roundings if it is computed
    formed        of constants: roundings while they were formed (specgrad.proof.exact.folded_constants)
    most          of constants: a whole number that no partial result exceeded
    error         how far the reference can be from the exact map of what the node reads
    apart         how far any value can be from the reference
    sum           of linear nodes
    """

    low: Array
    high: Array
    ends: tuple[Array, Array]
    constant: bool = False
    error: Array | None = None
    apart: Array | None = None
    sum: RegionSum | None = None
    formed: int = 0
    most: int = 1

    @property
    def largest(self) -> Array:
        return larger(self.high, -self.low)

    @property
    def largest_factor(self) -> int:
        """A whole number from 1 on that nothing of it exceeds."""
        return max(1, self.most, *(-(-int(v.p) // int(v.q)) for v in cells(self.largest).flat))


def known(value: Array) -> NodeRange:
    return NodeRange(value, value, (value, value), constant=True)


def chosen(low: Array, high: Array, apart: Array | None) -> NodeRange:
    """The result of a choice: exact, but a runtime may flush it to zero. apart: None where it has one value."""
    lost = objects([rational(1, 1 << LOST)] * low.size, low.shape)
    low, high = cells(low - lost), cells(high + lost)
    return NodeRange(
        low, high, (low, high), error=lost if apart is None else None, apart=None if apart is None else apart + lost
    )


def window_max(x: Array, window: Window) -> Array:
    largest: Array = np.full((*x.shape[: x.ndim - window.rank], *window.out), None, dtype=object)
    for tap in window.taps():
        seen, read = tap.read_outputs(largest), tap.read_inputs(x)
        each = [v if s is None or v > s else s for s, v in zip(seen.flat, read.flat, strict=True)]
        tap.write_outputs(largest, objects(each, seen.shape))
    if any(v is None for v in largest.flat):
        raise ReplayError("a max_pool window holds padding alone; its maximum is no number")
    return largest


def relu_lines(node: Node, x: NodeRange, lower: Array, upper: Array) -> tuple[Array, tuple[Array, Array]]:
    if any(s > 1 for s in lower.flat):
        raise ReplayError(f"the lower slopes of node {node.name} must not be above 1")
    zero, one = rational(0), rational(1)
    low, high = x.ends
    on, off = low >= 0, high <= 0
    lower, upper = (np.where(on, one, np.where(off, zero, s)) for s in (lower, upper))
    intercept = np.where(on | off, zero, larger(-upper * low, high - upper * high))
    return lower, (upper, intercept)


def through_relu(node: Node, a: Array, below: Array, above: tuple[Array, Array]) -> tuple[Array, Any]:
    slope, intercept = above
    return np.where(a > 0, a * below, a * slope), total(np.where(a < 0, a * intercept, rational(0)))


def max_lines(node: Node, x: NodeRange, lower: Array, upper: Array) -> tuple[Array, tuple[Array, Array]]:
    window: Window = node.params["window"]
    taps = list(window.taps())
    simplex, lowest = zeros(node.shape), zeros(node.shape)
    for t, tap in enumerate(taps):
        tap.add_to_outputs(simplex, tap.read_outputs(lower[t]))
        tap.add_to_outputs(lowest, tap.read_outputs(upper[t]) * tap.read_inputs(x.ends[0]))
    if (simplex != 1).any():
        raise ReplayError(f"the lower slopes of node {node.name} must add up to 1 in every window")
    intercept: Array = np.full(node.shape, None, dtype=object)
    for t, tap in enumerate(taps):
        (low, high), s = map(tap.read_inputs, x.ends), tap.read_outputs(upper[t])
        reached = larger((1 - s) * high, (1 - s) * low) - (tap.read_outputs(lowest) - s * low)
        seen = tap.read_outputs(intercept)
        cells = [v if w is None or v > w else w for w, v in zip(seen.flat, reached.flat, strict=True)]
        tap.write_outputs(intercept, objects(cells, seen.shape))
    return lower, (upper, intercept)


def through_max(node: Node, a: Array, below: Array, above: tuple[Array, Array]) -> tuple[Array, Any]:
    slope, intercept = above
    window: Window = node.params["window"]
    coefficients = zeros((*node.shape[: len(node.shape) - window.rank], *window.size))
    for t, tap in enumerate(window.taps()):
        here, down, up = (tap.read_outputs(v) for v in (a, below[t], slope[t]))
        tap.add_to_inputs(coefficients, np.where(here > 0, here * down, here * up))
    return coefficients, total(np.where(a < 0, a * intercept, rational(0)))
