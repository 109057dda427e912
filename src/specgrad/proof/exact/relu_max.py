"""Relaxations of relu and max_pool over rationals: ranges, lines for given slopes, and the way back through them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.graph.graph import Node
from specgrad.scalar import Array
from specgrad.window import Window

from ..base.rationals import ReplayError, cells, larger, objects, rational, total, zeros
from .rounding_counts import RoundingCount

FLUSH_LOSS_BITS = 60  # 2**-60 stands for 2**-126, the most that underflow or flushing costs one operation


@dataclass(frozen=True, eq=False)
class RegionSum:
    """The exact linear map of a node from what its fusion region reads, with its size and roundings.

    low, high         ends of that map
    size              the map on absolute values
    magnitude_bound   an upper bound of every partial result: the map with every factor f replaced by max(1, abs(f))
    roundings         roundings that a term may have met
    deviation         how far a change of the values that the region reads, from reference to value, may move the map;
                      a kernel is computed once, so what it read counts no more
    merged_deviation  that deviation for sums that a kernel is multiplied out into: each of their cells reads values of
                      its own
    """

    low: Array
    high: Array
    size: Array
    magnitude_bound: int
    roundings: RoundingCount
    deviation: Array
    merged_deviation: Array


@dataclass(frozen=True, eq=False)
class NodeRange:
    """What is proven of one node; arrays have the node's shape.

    low, high            ends of every value that it has in any execution
    ends                 ends of its reference, which backward bounds are about
                         (specgrad.bounds.linear.intermediate.forward_pass)
    constant             whether it has one known value, up to roundings if it is computed
    error                how far the reference can be from the exact map of what the node reads; None: 0
    deviation            how far any value can be from the reference; None: the reference is the only value
    sum                  of linear nodes, else None
    constant_roundings   of constants: roundings while they were formed (specgrad.proof.exact.folded_constants)
    magnitude_bound      of constants: an integer that no partial result exceeded
    """

    low: Array
    high: Array
    ends: tuple[Array, Array]
    constant: bool = False
    error: Array | None = None
    deviation: Array | None = None
    sum: RegionSum | None = None
    constant_roundings: int = 0
    magnitude_bound: int = 1

    @property
    def largest(self) -> Array:
        """Return the largest absolute value of each cell."""
        return larger(self.high, -self.low)

    @property
    def largest_factor(self) -> int:
        """Return an integer >= 1 that no cell and no partial result exceeds in absolute value."""
        return max(1, self.magnitude_bound, *(-(-int(v.p) // int(v.q)) for v in cells(self.largest).flat))


def constant_range(value: Array) -> NodeRange:
    """Return the range of a constant: one value per cell."""
    return NodeRange(value, value, (value, value), constant=True)


def selection_range(low: Array, high: Array, deviation: Array | None) -> NodeRange:
    """Return the range of relu or max_pool: exact, but a runtime may flush results to zero.

    deviation   of the result; None if it has only one value
    """
    lost = objects([rational(1, 1 << FLUSH_LOSS_BITS)] * low.size, low.shape)
    low, high = cells(low - lost), cells(high + lost)
    return NodeRange(
        low,
        high,
        (low, high),
        error=lost if deviation is None else None,
        deviation=None if deviation is None else deviation + lost,
    )


def window_max(x: Array, window: Window) -> Array:
    """Return the maximum of every window, over rationals; raise ReplayError if a window holds padding alone."""
    largest: Array = np.full((*x.shape[: x.ndim - window.rank], *window.out), None, dtype=object)
    for tap in window.taps():
        seen, read = tap.read_outputs(largest), tap.read_inputs(x)
        each = [v if s is None or v > s else s for s, v in zip(seen.flat, read.flat, strict=True)]
        tap.write_outputs(largest, objects(each, seen.shape))
    if any(v is None for v in largest.flat):
        raise ReplayError("a max_pool window holds padding alone; its maximum is no number")
    return largest


def relu_lines(node: Node, x: NodeRange, lower: Array, upper: Array) -> tuple[Array, tuple[Array, Array]]:
    """Return (lower slopes, (upper slopes, upper intercepts)) of relu on its input range, for given slopes.

    Stable relus get their exact slope; ReplayError if a lower slope is above 1.
    """
    if any(s > 1 for s in lower.flat):
        raise ReplayError(f"the lower slopes of node {node.name} must not be above 1")
    zero, one = rational(0), rational(1)
    low, high = x.ends
    on, off = low >= 0, high <= 0
    lower, upper = (np.where(on, one, np.where(off, zero, s)) for s in (lower, upper))
    intercept = np.where(on | off, zero, larger(-upper * low, high - upper * high))
    return lower, (upper, intercept)


def through_relu(node: Node, a: Array, below: Array, above: tuple[Array, Array]) -> tuple[Array, Any]:
    """Return (coefficients of the input, constant): a lower bound of sum(a * relu(x)) by the given lines."""
    slope, intercept = above
    return np.where(a > 0, a * below, a * slope), total(np.where(a < 0, a * intercept, rational(0)))


def max_lines(node: Node, x: NodeRange, lower: Array, upper: Array) -> tuple[Array, tuple[Array, Array]]:
    """Return (lower slopes, (upper slopes, upper intercepts)) of max_pool, slopes per tap; see the formulas of
    `replay`.

    ReplayError unless the lower slopes of every window add up to 1.
    """
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
    """Return (coefficients of the input, constant): a lower bound of sum(a * max_pool(x)) by the given lines."""
    slope, intercept = above
    window: Window = node.params["window"]
    coefficients = zeros((*node.shape[: len(node.shape) - window.rank], *window.size))
    for t, tap in enumerate(window.taps()):
        here, down, up = (tap.read_outputs(v) for v in (a, below[t], slope[t]))
        tap.add_to_inputs(coefficients, np.where(here > 0, here * down, here * up))
    return coefficients, total(np.where(a < 0, a * intercept, rational(0)))
