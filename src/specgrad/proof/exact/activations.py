"""Relaxations of activations (functions of one cell) over rationals: ranges, and lines above and below.

One rule for all of them. A function is split at its inflection points and kinks; each piece of it is convex, concave or
linear. Let g(x) = f(x) - s*x on a piece [p, q], for whatever slope s is requested:

    concave   g >= min(g(p), g(q))
    convex    g >= g(t) - max(g'(t)*(t - a), -g'(t)*(b - t), 0) for any t of [a, b], a part of the piece such that
              a = p or g'(a) <= 0, and b = q or g'(b) >= 0: outside of it g is no less than at its end, and inside g
              lies above its tangent at t

and upper bounds are lower bounds of -f. So a line needs f at the ends of the pieces, and f and f' at some points t.
Points are found by bisecting [a, b]; the rule holds wherever they lie. The range of f is what s = 0 gives, and f is
steepest at an end of a piece. f and f' are enclosed by python-flint's balls, rounded outward to FRAC_BITS places, or
are rational.

A certificate names no slope but a point, which fits narrower boxes too: k from 0 to `scale` is the tangent's at the
share k/scale of the range, CHORD the chord's. Piecewise linear functions have slopes k/scale. What the slope is then
rounded to does not matter: the intercept is computed for the slope as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.errors import need
from specgrad.graph.graph import Node
from specgrad.scalar import Array

from ..base.executions import Functions
from ..base.rationals import FRAC_BITS, LARGEST, ReplayError, cells, larger, objects, outward, rational, total
from .node_ranges import FLUSH_LOSS_BITS, NodeRange

need("flint", "certificates need")

from flint import arb, ctx  # noqa: E402 - the line above says what to install

BALL_PRECISION_BITS = 192  # bits of a ball; whatever it is, balls enclose
SLOPE_FRAC_BITS = 48  # binary places of slopes that are derived
MAX_BISECTIONS = 40  # halvings of a piece
TANGENT_SLACK = rational(1, 1 << 44)  # what a tangent may be below its function
CHORD = -1
Params = Mapping[str, Any]
Ends = tuple[Any, Any]


@dataclass(frozen=True)
class EnclosedFunction:
    """A function with enclosures of its value and slope, and its convex, concave and linear pieces.

    value         an enclosure (low, high) of f(x), x being rational
    slope         an enclosure of f'(x), x lying in piece k: at a kink f has two
    breakpoints   where a piece ends and the next begins, in order
    signs         of the pieces: 1 convex, -1 concave, 0 linear; one more than breakpoints

    Lines on leaves (specgrad.proof.batched.activations) ask for one convex and one concave piece at most, between
    whole numbers. tests/proof/test_curve_table.py holds every entry of CURVES against the registered operator.
    """

    value: Callable[[Any], Ends]
    slope: Callable[[Any, int], Ends]
    breakpoints: tuple[Any, ...]
    signs: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raise ReplayError for pieces that `batched.activations` cannot draw lines of."""
        bent = [b for k, sign in enumerate(self.signs) if sign for b in self.breakpoints[max(k - 1, 0) : k + 1]]
        in_order = len(self.signs) == len(self.breakpoints) + 1 and list(self.breakpoints) == sorted(self.breakpoints)
        if not in_order or any(b.q != 1 for b in bent) or max(map(self.signs.count, (1, -1))) > 1:
            raise ReplayError(f"pieces {self.signs} with ends {self.breakpoints} are not what lines are drawn by")

    @property
    def is_piecewise_linear(self) -> bool:
        """Return whether all pieces are linear."""
        return not any(self.signs)

    def pieces(self, low: Any, high: Any) -> Iterator[tuple[Any, Any, int]]:
        """Yield (p, q, k) for every piece k that meets low..high, p..q being the common part; the ends may
        be swapped."""
        low, high = min(low, high), max(low, high)
        borders = [None, *self.breakpoints, None]
        for k in range(len(self.signs)):
            left, right = borders[k], borders[k + 1]
            p = low if left is None or left < low else left
            q = high if right is None or right > high else right
            if p < q or (p == q and (low < high or k == self.piece(p))):
                yield p, q, k

    def piece(self, x: Any) -> int:
        """Return the number of a piece that holds x."""
        return sum(1 for b in self.breakpoints if b < x)


# --- enclosures -------------------------------------------------------------------------------------------------------


def ends(ball: Any) -> Ends:
    """Return the ends of a ball as rationals, rounded outward to FRAC_BITS places; raise ReplayError if it is infinite.

    >>> low, high = ends(arb(1) / 3)
    >>> low < rational(1, 3) < high, high - low < rational(1, 2**50)
    (True, True)
    """
    if not ball.is_finite():
        raise ReplayError("a function may overflow")
    return _round_down(ball.lower()), -_round_down((-ball).lower())


def _round_down(x: Any) -> Any:
    """Return an exact ball rounded down to FRAC_BITS places; ReplayError if its exponent is too large
    to write it out."""
    mantissa, exponent = (int(part) for part in x.man_exp())
    shift = exponent + FRAC_BITS
    if shift > 1 << 12:
        raise ReplayError("a function may overflow")
    scaled = mantissa << shift if shift >= 0 else mantissa >> min(-shift, mantissa.bit_length() + 1)
    return rational(scaled, 1 << FRAC_BITS)


def _enclose_by_balls(f: Callable[[Any], Any]) -> Callable[..., Ends]:
    """Return a function that encloses f at a rational, with BALL_PRECISION_BITS bits; its second
    argument is ignored."""

    def enclosed(x: Any, _: int = 0) -> Ends:
        """Return the ends of f at x."""
        before, ctx.prec = ctx.prec, BALL_PRECISION_BITS
        try:
            return ends(f(arb(x)))
        finally:
            ctx.prec = before

    return enclosed


def _sigmoid(x: Any) -> Any:
    """Return 1/(1 + exp(-x)) of a ball."""
    return 1 / (1 + (-x).exp())


def _sigmoid_slope(x: Any) -> Any:
    """Return y*(1 - y), y = sigmoid(x), of a ball; it is even, and with z = exp(-abs(x)) nothing is large."""
    z = (-abs(x)).exp()
    return z / ((1 + z) * (1 + z))


def _tanh_slope(x: Any) -> Any:
    """Return tanh'(x) = 4*sigmoid'(2*x) of a ball."""
    return 4 * _sigmoid_slope(2 * x)


def _parameter(x: Any) -> Any:
    """Return a parameter as a rational, at its exact value."""
    exact = Fraction(x)
    return rational(exact.numerator, exact.denominator)


def _piecewise_linear_function(
    f: Callable[[Any], Any], breakpoints: Sequence[Any], slopes: Sequence[Any]
) -> EnclosedFunction:
    """Return f as a function that is linear between breakpoints, with the given slopes."""
    return EnclosedFunction(
        lambda x: (f(x), f(x)), lambda x, k: (slopes[k], slopes[k]), tuple(breakpoints), (0,) * len(slopes)
    )


def _leaky_relu(slope: Any) -> EnclosedFunction:
    """Return leaky_relu with the given slope for x < 0."""
    return _piecewise_linear_function(lambda x: x if x > 0 else x * slope, [ZERO], [slope, ONE])


def _clamp(low: Any, high: Any) -> EnclosedFunction:
    """Return clamp to low..high; None: no limit on that side.

    ReplayError if low is above high.
    """
    limits = [_parameter(end) for end in (low, high) if end is not None]
    if limits and limits[0] > limits[-1]:
        raise ReplayError("a clamp has its lower limit above the upper one")

    def f(x: Any) -> Any:
        """Return the clamped x."""
        x = x if low is None else max(x, limits[0])
        return x if high is None else min(x, limits[-1])

    return _piecewise_linear_function(f, limits, [ZERO] * (low is not None) + [ONE] + [ZERO] * (high is not None))


def _hardswish(x: Any) -> Ends:
    """Return an enclosure (low, high) of hardswish at the rational x; both ends are its exact value."""
    y = x * min(max(x + 3, ZERO), rational(6)) / 6
    return y, y


def _hardswish_slope(x: Any, k: int) -> Ends:
    """Return an enclosure (low, high) of the slope of hardswish at the rational x in piece k; both ends are its exact
    value.
    """
    d = (ZERO, (2 * x + 3) / 6, ONE)[k]
    return d, d


ZERO, ONE = rational(0), rational(1)
CURVES: dict[str, Callable[[Params], EnclosedFunction]] = {
    "exp": lambda p: EnclosedFunction(
        _enclose_by_balls(lambda x: x.exp()), _enclose_by_balls(lambda x: x.exp()), (), (1,)
    ),
    "tanh": lambda p: EnclosedFunction(
        _enclose_by_balls(lambda x: x.tanh()), _enclose_by_balls(_tanh_slope), (ZERO,), (1, -1)
    ),
    "sigmoid": lambda p: EnclosedFunction(
        _enclose_by_balls(_sigmoid), _enclose_by_balls(_sigmoid_slope), (ZERO,), (1, -1)
    ),
    "leaky_relu": lambda p: _leaky_relu(_parameter(p["slope"])),
    "abs": lambda p: _leaky_relu(-ONE),
    "relu6": lambda p: _clamp(0, 6),
    "clamp": lambda p: _clamp(p["low"], p["high"]),
    "hardswish": lambda p: EnclosedFunction(_hardswish, _hardswish_slope, (rational(-3), rational(3)), (0, 1, 0)),
}
"""By the operator's name, given the node's parameters."""
HANDLED_ELSEWHERE = ("relu",)  # whose lines a certificate names: specgrad.proof.exact.node_ranges


# --- the rule ---------------------------------------------------------------------------------------------------------


def lower_bound(f: EnclosedFunction, low: Any, high: Any, s: Any, sign: int = 1, first: Any = None) -> Any:
    """Return a lower bound of sign*f(x) - s*x for low <= x <= high.

    first   a point where a tangent is tried first; None: no such point
    """
    return min(_piece_lower_bound(f, p, q, k, s, sign, first) for p, q, k in f.pieces(low, high))


def _piece_lower_bound(f: EnclosedFunction, p: Any, q: Any, k: int, s: Any, sign: int, first: Any) -> Any:
    """Return a rational lower bound of sign*f(x) - s*x for all x in p..q, a part of piece k of f.

    `first` is the point of the first tangent to try.
    """
    if f.signs[k] * sign <= 0:
        return min(_value_below(f, x, s, sign) for x in (p, q))
    a, b, best = p, q, None
    for t in _trial_points(p, q, first):
        if t is None:
            t = (a + b) / 2
        down, up = (sign * d - s for d in _sorted_after_sign(f.slope(t, k), sign))
        lost = _tangent_drop(down, up, t, a, b)
        bound = _value_below(f, t, s, sign) - lost
        best = bound if best is None or bound > best else best
        if lost <= TANGENT_SLACK or not (down >= 0 or up <= 0):
            break
        a, b = (a, min(b, t)) if down >= 0 else (max(a, t), b)
    return best


def _tangent_drop(down: Any, up: Any, t: Any, a: Any, b: Any) -> Any:
    """Return how far the tangent at t, whose slope lies between down and up, falls below its value at t on a..b."""
    return max(up * (t - a), -down * (b - t), ZERO)


def _trial_points(p: Any, q: Any, first: Any) -> Iterator[Any]:
    """Yield points of p..q where tangents are tried: `first`, both ends, then None for the middle of what remains."""
    if first is not None and p < first < q:
        yield first
    yield p
    yield q
    for _ in range(MAX_BISECTIONS):
        yield None


def _sorted_after_sign(given: Ends, sign: int) -> Ends:
    """Return the interval `given` (low, high) in the order that it has after multiplication by sign."""
    return given if sign > 0 else (given[1], given[0])


def _value_below(f: EnclosedFunction, x: Any, s: Any, sign: int) -> Any:
    """Return a rational lower bound of sign*f(x) - s*x at the rational x, from the enclosure of f; `sign` is 1 or
    -1.
    """
    return sign * _sorted_after_sign(f.value(x), sign)[0] - s * x


def image(f: EnclosedFunction, low: Any, high: Any) -> Ends:
    """Return bounds (low, high) of f's values over arguments low..high."""
    return lower_bound(f, low, high, ZERO), -lower_bound(f, low, high, ZERO, -1)


def steepest(f: EnclosedFunction, low: Any, high: Any) -> Any:
    """Return an upper bound of abs(f') on low..high: f' is monotone on every piece."""
    slopes = [f.slope(x, k) for p, q, k in f.pieces(low, high) for x in (p, q)]
    return max(max(abs(d) for d in pair) for pair in slopes)


def line(f: EnclosedFunction, low: Any, high: Any, k: int, scale: int, side: int) -> Ends:
    """Return (slope, intercept) of a line above (side 1) or below (side -1) f on low..high, for a certificate's number
    k.

    For piecewise linear f, k/scale is the slope; else the tangent at low + (high - low)*k/scale, or the chord.

    >>> low, high = rational(-1), rational(2)
    >>> slope, above = line(CURVES["exp"]({}), low, high, CHORD, 1024, 1)
    >>> round(float(slope), 6), round(float(slope * high + above), 6)  # exp(2) = 7.389056
    (2.340392, 7.389056)
    """
    first = None
    if f.is_piecewise_linear:
        slope = rational(k, scale)
    elif k == CHORD:
        slope = ZERO if low == high else _round_slope_down((f.value(high)[0] - f.value(low)[0]) / (high - low))
    else:
        first = low + (high - low) * rational(k, scale)
        slope = _round_slope_down(f.slope(first, f.piece(first))[0])
    return slope, -side * lower_bound(f, low, high, -side * slope, -side, first)


def default_point(f: EnclosedFunction, low: Any, high: Any, scale: int, side: int) -> int:
    """Return the number k of a good line above (side 1) or below (side -1) f on low..high, for certificates that give
    none.

    Numbers are over `scale`.

    It is the line that is best at the middle of the range. That is a tangent of a piece which bends away from the line:
    the one through the far end of the range, or the one at the middle if it passes beyond that end; without such a
    tangent, the chord. Piecewise linear functions take the best of their own slopes and of the chord's.
    """
    if low >= high:
        return 0
    middle = (low + high) / 2
    if f.is_piecewise_linear:
        slopes = [f.slope(p, k)[0] for p, _, k in f.pieces(low, high)]
        each = [_floor_int(s * scale) for s in (*slopes, (f.value(high)[0] - f.value(low)[0]) / (high - low))]
        lines = [line(f, low, high, k, scale, side) for k in each]
        return min(zip(each, lines, strict=True), key=lambda pair: side * (pair[1][0] * middle + pair[1][1]))[0]
    bent = [(p, q, k) for p, q, k in f.pieces(low, high) if f.signs[k] == -side and p < q]
    if not bent:
        return CHORD
    p, q, k = bent[0]
    far, near, end = (p, q, low) if q == high else (q, p, high)

    def passes(t: Any) -> bool:
        """Return whether the tangent at t passes f at the far end on the right side."""
        return bool(side * (f.value(t)[0] + f.slope(t, k)[0] * (end - t) - f.value(end)[0]) >= 0)

    if not passes(near):
        return CHORD
    for _ in range(12):
        t = (far + near) / 2
        far, near = (far, t) if passes(t) else (t, near)
    t = max(near, middle) if end == low else min(near, middle)
    share = (t - low) / (high - low) * scale
    return -_floor_int(-share) if end == low else _floor_int(share)


def _floor_int(x: Any) -> int:
    """Return a rational rounded down, as an integer."""
    return int(x.p) // int(x.q)


def _round_slope_down(x: Any) -> Any:
    """Return a slope rounded down to SLOPE_FRAC_BITS binary places."""
    return rational((int(x.p) << SLOPE_FRAC_BITS) // int(x.q), 1 << SLOPE_FRAC_BITS)


# --- nodes ------------------------------------------------------------------------------------------------------------


def function_of(node: Node) -> EnclosedFunction:
    """Return the function of one cell that a node computes, with its enclosures (CURVES)."""
    return CURVES[node.op.name](node.params)


def activation_range(node: Node, x: NodeRange, deviation: Array | None, error: Callable[[Array], Array]) -> NodeRange:
    """Return the range of an activation's node, given the range and deviation (None: none) of what it reads.

    error   bound of the runtime's error, given the largest absolute values that occur
    """
    f = function_of(node)
    low, high = _image_bounds(f, x.low, x.high)
    off = outward(error(larger(high, -low)), 1)
    if deviation is None:
        values = outward(low - off, -1), outward(high + off, 1)
        return NodeRange(*values, values, error=off)
    widest = zip(larger(-x.low, -x.ends[0]).flat, larger(x.high, x.ends[1]).flat, strict=True)
    steep = objects([steepest(f, -a, b) for a, b in widest], x.low.shape)
    moved = outward(steep * deviation + off, 1)
    least_reference, most_reference = _image_bounds(f, *x.ends)
    reference = outward(least_reference, -1), outward(most_reference, 1)
    return NodeRange(outward(low - off, -1), outward(high + off, 1), reference, deviation=moved)


def _image_bounds(f: EnclosedFunction, low: Array, high: Array) -> tuple[Array, Array]:
    """Return rational lower and upper bounds of f on low..high, cell by cell, object arrays of low's shape."""
    both = [image(f, a, b) for a, b in zip(low.flat, high.flat, strict=True)]
    return objects([a for a, _ in both], low.shape), objects([b for _, b in both], low.shape)


def runtime_error_bound(node: Node, functions: Functions, x: NodeRange, digits: int) -> Callable[[Array], Array]:
    """Return a function that bounds the error of a runtime's values of an activation, per cell, from the largest
    abs(f(x)) per cell.

    node        the activation
    functions   declared error of each function by name: units, and what they are relative to ("y", "1", "x", "1+y")
    x           range of the node's input
    digits      the unit roundoff is 2**-digits

    exp, tanh, ...: the declared units times 2**-digits of what they are relative to. leaky_relu: a rounded slope, a
    product. clamp: rounded limits. abs, relu6: nothing. To each is added what flushing to zero may cost. ReplayError: a
    function without a declared error, or a constant or partial result that may leave the normal numbers.
    """
    name, unit = node.op.name, rational(1, 1 << digits)
    if name == "leaky_relu":
        slope = abs(checked_constant(node, node.params["slope"]))
        off = ZERO if slope in (0, 1) else slope * unit * (2 + unit)
        lost = rational(1, 1 << FLUSH_LOSS_BITS) * max(slope, ONE)  # it multiplies what is flushed
        return lambda size: cells(x.largest * off + lost)
    if name in ("clamp", "relu6", "abs"):
        limits = [
            abs(checked_constant(node, v)) * unit for v in node.params.values() if v is not None and not _is_float32(v)
        ]
        return lambda size: cells(size * 0 + max(limits, default=ZERO) + rational(1, 1 << FLUSH_LOSS_BITS))
    if name not in functions:
        raise ReplayError(f"the arithmetic declares no error of {name}, which node {node.name} computes")
    units, kind = functions[name]
    if name == "hardswish" and (x.largest * 6 > LARGEST).any():
        raise ReplayError(f"node {node.name} may overflow in float32")

    def error(size: Array) -> Array:
        """Return the declared units times what they are relative to, and what flushing to zero may cost."""
        relative = {"y": size, "1": size * 0 + 1, "x": x.largest, "1+y": size + 1}[kind]
        return cells(relative * unit * rational(units.numerator, units.denominator) + rational(1, 1 << FLUSH_LOSS_BITS))

    return error


def checked_constant(node: Node, number: Any) -> Any:
    """Return `number`, a parameter of `node`, as a rational; raise ReplayError if float32 could make it subnormal or
    infinite.
    """
    exact = _parameter(number)
    if exact != 0 and not rational(1, 1 << 120) < abs(exact) < 1 << 120:
        raise ReplayError(f"the number {number} in node {node.name} is too large or small for float32")
    return exact


def _is_float32(number: Any) -> bool:
    """Return whether float32 holds the number exactly."""
    return Fraction(float(np.float32(float(number)))) == Fraction(number)


def default_points(node: Node, x: NodeRange, scale: int) -> tuple[Array, Array]:
    """Return integer arrays, over `scale`, for lines below and above `node` on the range x, for certificates that give
    none.
    """
    f = function_of(node)
    each = [
        [default_point(f, a, b, scale, side) for side in (-1, 1)]
        for a, b in zip(*(e.flat for e in x.ends), strict=True)
    ]
    lower, upper = np.array(each, dtype=np.int64).reshape(-1, 2).T
    return lower.reshape(node.shape), upper.reshape(node.shape)


def curve_lines(node: Node, x: NodeRange, lower: Array, upper: Array, scale: int) -> tuple[Any, Any]:
    """Return (slopes, intercepts) of the lines below, and of those above, for the integers of a certificate.

    ReplayError if one is out of range. They are `lower` and `upper`, over `scale`: see `line`.
    """
    f = function_of(node)
    if not f.is_piecewise_linear and not all(((s >= CHORD) & (s <= scale)).all() for s in (lower, upper)):
        raise ReplayError(f"the points of node {node.name} must lie between {CHORD} and {scale}")
    return _lines_of_cells(f, x, lower, scale, -1), _lines_of_cells(f, x, upper, scale, 1)


def _lines_of_cells(f: EnclosedFunction, x: NodeRange, given: Array, scale: int, side: int) -> tuple[Array, Array]:
    """Return slopes and intercepts of lines of f on one side, cell by cell on the range x; intercepts are rounded
    outward.

    `given` are the certificate's numbers over `scale`, one per cell: see `line`.
    """
    each = [
        line(f, low, high, int(k), scale, side)
        for low, high, k in zip(x.ends[0].flat, x.ends[1].flat, given.flat, strict=True)
    ]
    slopes, intercepts = (objects([pair[j] for pair in each], given.shape) for j in (0, 1))
    return slopes, outward(intercepts, side)


def through_curve(node: Node, a: Array, below: Any, above: Any) -> tuple[Array, Any]:
    """Return (coefficients of the input, constant): a lower bound of sum(a * f(x)) by lines (slopes, intercepts) below
    and above.
    """
    up = a > 0
    return np.where(up, a * below[0], a * above[0]), total(np.where(up, a * below[1], a * above[1]))
