"""What is proven of one node, over rationals: of relu and max_pool, with their lines, and of constants.

A constant that a runtime computes while it loads, such as gamma/sqrt(var + eps) of a batch normalisation, is v times at
most `constant_roundings` factors (1 + d) or 1/(1 + d) with abs(d) <= u, v being the number that the replay has for it:
no sum here cancels, and every number is far from underflow. Each of these factors counts as a rounding of whatever the
constant is multiplied with or added to, so executions that use parts of it in another order, (x*gamma)/sqrt(...), are
the same to the count. Quotients and roots are rounded to KEPT_BITS bits, which costs one factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.graph.graph import Node
from specgrad.op import run_spec
from specgrad.scalar import Array
from specgrad.window import Window

from ..base.executions import Functions
from ..base.rationals import ReplayError, cells, larger, objects, rational, total, zeros
from .rounding_counts import LAYOUT, RoundingCount

CURVED = ("exp", "tanh", "sigmoid", "leaky_relu", "abs", "relu6", "clamp", "hardswish")
"""Functions of one cell that `activations` has rules of; it is loaded for networks with one of them. What is not named
here is refused as a node that is not linear."""
SMOOTH = "smooth_max_pool"
"""Its rules, in `logsumexp_pool`, are loaded alike."""
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
    constant_roundings   of constants: roundings while they were formed (specgrad.proof.exact.node_ranges)
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
    """Return the range of relu or max_pool with values in low..high: exact, but a runtime may flush results to zero.

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
    """Return (coefficients of the input, constant): a lower bound of sum(a * relu(x)) by slopes below and lines
    (slopes, intercepts) above.
    """
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
    """Return (coefficients of the input, constant): a lower bound of sum(a * max_pool(x)) by slopes below and planes
    (slopes, intercepts) above.

    Slopes are (taps, *shape).
    """
    slope, intercept = above
    window: Window = node.params["window"]
    coefficients = zeros((*node.shape[: len(node.shape) - window.rank], *window.size))
    for t, tap in enumerate(window.taps()):
        here, down, up = (tap.read_outputs(v) for v in (a, below[t], slope[t]))
        tap.add_to_inputs(coefficients, np.where(here > 0, here * down, here * up))
    return coefficients, total(np.where(a < 0, a * intercept, rational(0)))


# --- computed constants -----------------------------------------------------------------------------------------------

KEPT_BITS = 48  # of quotients and roots: an error of 2**-48 is less than a rounding
MAX_MAGNITUDE = 1 << 100  # numbers of float32 that no partial result can make subnormal or infinite


def literal_range(value: Any, name: str) -> NodeRange:
    """Return the range of a number in the program's text, `value` in node `name`: itself if float32 holds it, else
    rounded once.

    ReplayError if rounding could make it subnormal or infinite.
    """
    meant = Fraction(value)
    exact = objects([rational(meant.numerator, meant.denominator)], ())
    with np.errstate(over="ignore"):
        near = float(np.float32(float(value)))
    held = math.isfinite(near) and Fraction(near) == meant
    if not held:
        _refuse_near_limits(name, exact)
    return replace(constant_range(exact), constant_roundings=0 if held else 1)


def is_folded(node: Node, args: Sequence[NodeRange]) -> bool:
    """Return whether `node` computes with constants alone, by an operator that has a rule here."""
    return bool(args) and all(a.constant for a in args) and (node.op.name in RULES or node.op.name in LAYOUT)


def folded_range(node: Node, args: Sequence[NodeRange], functions: Functions) -> NodeRange:
    """Return the range of a node whose arguments are constants: value, count of roundings, bound of partial results.

    `functions` has the assumed error of functions by name. ReplayError if one may overflow or underflow in float32.
    """
    values = [a.low for a in args]
    if node.op.name in LAYOUT:
        roundings, magnitude_bound = max(a.constant_roundings for a in args), max(a.magnitude_bound for a in args)
        return replace(
            constant_range(run_spec(node.op, values, node.params)),
            constant_roundings=roundings,
            magnitude_bound=magnitude_bound,
        )
    for v in values:
        _refuse_near_limits(node.name, v)
    value, roundings, magnitude_bound = RULES[node.op.name](node, args, functions)
    _refuse_near_limits(node.name, value)
    if magnitude_bound >= MAX_MAGNITUDE:
        raise ReplayError(f"node {node.name} may overflow in float32 while constants are computed")
    return replace(constant_range(value), constant_roundings=roundings, magnitude_bound=magnitude_bound)


def _refuse_near_limits(name: str, x: Array) -> None:
    """Raise ReplayError, which names node `name`, if some number of x could become subnormal or infinite in float32."""
    if any(v != 0 and not rational(1, MAX_MAGNITUDE) < abs(v) < MAX_MAGNITUDE for v in cells(x).flat):
        raise ReplayError(f"node {name} computes with constants that are too large or small; fold them first")


Rule = Callable[[Node, Sequence[NodeRange], Functions], tuple[Array, int, int]]


def _folded_sum(node: Node, args: Sequence[NodeRange], _: Functions) -> tuple[Array, int, int]:
    """Return (value, roundings, magnitude bound) of add or sub of terms with one sign: no factor grows.

    ReplayError for terms of both signs.
    """
    a, b = args[0].low, args[1].low if node.op.name == "add" else -args[1].low
    if any(v < 0 for v in cells(a * b).flat):
        raise ReplayError(f"node {node.name} subtracts constants; fold them before certifying")
    return (
        cells(a + b),
        args[0].constant_roundings + args[1].constant_roundings + 1,  # as many as one sum of all terms
        args[0].largest_factor + args[1].largest_factor,
    )


def _folded_product(node: Node, args: Sequence[NodeRange], _: Functions) -> tuple[Array, int, int]:
    """Return (value, roundings, magnitude bound) of a product of constants."""
    magnitude_bound = args[0].largest_factor * args[1].largest_factor
    return (
        _shorten(args[0].low * args[1].low),
        args[0].constant_roundings + args[1].constant_roundings + 2,
        magnitude_bound,
    )


def _folded_quotient(node: Node, args: Sequence[NodeRange], _: Functions) -> tuple[Array, int, int]:
    """Return (value, roundings, magnitude bound) of a quotient of constants; ReplayError by 0."""
    a, b = args
    if any(v == 0 for v in b.low.flat):
        raise ReplayError(f"node {node.name} divides by 0")
    inverse = max(-(-int(v.q) // abs(int(v.p))) for v in b.low.flat)
    return (
        _shorten(a.low / b.low),
        a.constant_roundings + b.constant_roundings + 3,
        a.largest_factor * max(b.largest_factor, inverse),
    )


def _folded_root(node: Node, args: Sequence[NodeRange], functions: Functions) -> tuple[Array, int, int]:
    """Return (value, roundings, magnitude bound) of a square root: that of v*(1 + d) is sqrt(v)*(1 + d)**(1/2).

    ReplayError if `functions` declares no error of sqrt, or for a negative number.
    """
    if "sqrt" not in functions or functions["sqrt"][1] != "y":
        raise ReplayError(f"the arithmetic declares no error of sqrt, which node {node.name} computes")
    x = args[0]
    if any(v < 0 for v in x.low.flat):
        raise ReplayError(f"node {node.name} takes the root of a negative number")
    roundings = x.constant_roundings + math.ceil(functions["sqrt"][0]) + 1
    return objects([_sqrt(v) for v in x.low.flat], x.low.shape), roundings, x.largest_factor


def _sqrt(v: Any) -> Any:
    """Return a rational not above the square root of the rational v >= 0, right to more than KEPT_BITS bits."""
    shift = KEPT_BITS + 128
    return _shorten_number(rational(math.isqrt((int(v.p) << 2 * shift) // int(v.q)), 1 << shift))


def _shorten(x: Array) -> Array:
    """Return the array x of rationals, each shortened to little more than KEPT_BITS significant bits."""
    return objects([_shorten_number(v) for v in cells(x).flat], np.shape(x))


def _shorten_number(v: Any) -> Any:
    """Return the rational v cut to more than KEPT_BITS significant bits; short dyadic numbers stay as they are."""
    p, q = int(v.p), int(v.q)
    shift = KEPT_BITS + 2 + q.bit_length() - abs(p).bit_length()
    if q & (q - 1) == 0 and abs(p).bit_length() <= KEPT_BITS:
        return v
    return rational((p << shift) // q, 1 << shift) if shift >= 0 else rational((p >> -shift) // q << -shift)


RULES: dict[str, Rule] = {
    "add": _folded_sum,
    "sub": _folded_sum,
    "mul": _folded_product,
    "div": _folded_quotient,
    "sqrt": _folded_root,
}
