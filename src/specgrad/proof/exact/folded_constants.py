"""Constants that a runtime computes while it loads, such as gamma/sqrt(var + eps) of a batch normalisation.

A computed constant is v times at most `constant_roundings` factors (1 + d) or 1/(1 + d) with abs(d) <= u, v being the
number that the replay has for it: no sum here cancels, and every number is far from underflow. Each of these factors
counts as a rounding of whatever the constant is multiplied with or added to, so executions that use parts of it in
another order, (x*gamma)/sqrt(...), are the same to the count. Quotients and roots are rounded to KEPT_BITS bits, which
costs one factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.graph.graph import Node
from specgrad.op import run_spec
from specgrad.scalar import Array

from ..base.executions import Functions
from ..base.rationals import ReplayError, cells, objects, rational
from .relu_max import NodeRange, constant_range
from .rounding_counts import LAYOUT

KEPT_BITS = 48  # of quotients and roots: an error of 2**-48 is less than a rounding
MAX_MAGNITUDE = 1 << 100  # numbers of float32 that no partial result can make subnormal or infinite


def literal_range(value: Any, name: str) -> NodeRange:
    """Return the range of a number in the program's text: itself if float32 holds it, else rounded once."""
    meant = Fraction(value)
    exact = objects([rational(meant.numerator, meant.denominator)], ())
    with np.errstate(over="ignore"):
        near = float(np.float32(float(value)))
    held = math.isfinite(near) and Fraction(near) == meant
    if not held:
        _far_from_limits(name, exact)
    return replace(constant_range(exact), constant_roundings=0 if held else 1)


def is_folded(node: Node, args: Sequence[NodeRange]) -> bool:
    """Return whether `node` computes with constants alone, by an operator that has a rule here."""
    return bool(args) and all(a.constant for a in args) and (node.op.name in RULES or node.op.name in LAYOUT)


def folded_range(node: Node, args: Sequence[NodeRange], functions: Functions) -> NodeRange:
    """Return the value of a node of constants, with its count of roundings and its bound of partial results."""
    values = [a.low for a in args]
    if node.op.name in LAYOUT:
        roundings, magnitude_bound = max(a.constant_roundings for a in args), max(a.magnitude_bound for a in args)
        return replace(
            constant_range(run_spec(node.op, values, node.params)),
            constant_roundings=roundings,
            magnitude_bound=magnitude_bound,
        )
    for v in values:
        _far_from_limits(node.name, v)
    value, roundings, magnitude_bound = RULES[node.op.name](node, args, functions)
    _far_from_limits(node.name, value)
    if magnitude_bound >= MAX_MAGNITUDE:
        raise ReplayError(f"node {node.name} may overflow in float32 while constants are computed")
    return replace(constant_range(value), constant_roundings=roundings, magnitude_bound=magnitude_bound)


def _far_from_limits(name: str, x: Array) -> None:
    """Raise ReplayError if some number could become subnormal or infinite in float32."""
    if any(v != 0 and not rational(1, MAX_MAGNITUDE) < abs(v) < MAX_MAGNITUDE for v in cells(x).flat):
        raise ReplayError(f"node {name} computes with constants that are too large or small; fold them first")


Rule = Callable[[Node, Sequence[NodeRange], Functions], tuple[Array, int, int]]


def _sum(node: Node, args: Sequence[NodeRange], _: Functions) -> tuple[Array, int, int]:
    """Return (value, roundings, magnitude bound) of add or sub of terms with one sign: no factor grows."""
    a, b = args[0].low, args[1].low if node.op.name == "add" else -args[1].low
    if any(v < 0 for v in cells(a * b).flat):
        raise ReplayError(f"node {node.name} subtracts constants; fold them before certifying")
    return (
        cells(a + b),
        max(args[0].constant_roundings, args[1].constant_roundings) + 1,
        args[0].largest_factor + args[1].largest_factor,
    )


def _product(node: Node, args: Sequence[NodeRange], _: Functions) -> tuple[Array, int, int]:
    """Return (value, roundings, magnitude bound) of a product of constants."""
    magnitude_bound = args[0].largest_factor * args[1].largest_factor
    return (
        _short(args[0].low * args[1].low),
        args[0].constant_roundings + args[1].constant_roundings + 2,
        magnitude_bound,
    )


def _quotient(node: Node, args: Sequence[NodeRange], _: Functions) -> tuple[Array, int, int]:
    """Return (value, roundings, magnitude bound) of a quotient of constants."""
    a, b = args
    if any(v == 0 for v in b.low.flat):
        raise ReplayError(f"node {node.name} divides by 0")
    inverse = max(-(-int(v.q) // abs(int(v.p))) for v in b.low.flat)
    return (
        _short(a.low / b.low),
        a.constant_roundings + b.constant_roundings + 3,
        a.largest_factor * max(b.largest_factor, inverse),
    )


def _root(node: Node, args: Sequence[NodeRange], functions: Functions) -> tuple[Array, int, int]:
    """Return (value, roundings, magnitude bound) of a square root: that of v*(1 + d) is sqrt(v)*(1 + d)**(1/2)."""
    if "sqrt" not in functions or functions["sqrt"][1] != "y":
        raise ReplayError(f"the arithmetic declares no error of sqrt, which node {node.name} computes")
    x = args[0]
    if any(v < 0 for v in x.low.flat):
        raise ReplayError(f"node {node.name} takes the root of a negative number")
    roundings = x.constant_roundings + math.ceil(functions["sqrt"][0]) + 1
    return objects([_sqrt(v) for v in x.low.flat], x.low.shape), roundings, x.largest_factor


def _sqrt(v: Any) -> Any:
    """Return the square root of a rational to more than KEPT_BITS bits, rounded down."""
    shift = KEPT_BITS + 128
    return _short_number(rational(math.isqrt((int(v.p) << 2 * shift) // int(v.q)), 1 << shift))


def _short(x: Array) -> Array:
    """Return an array of rationals, each cut to more than KEPT_BITS significant bits."""
    return objects([_short_number(v) for v in cells(x).flat], np.shape(x))


def _short_number(v: Any) -> Any:
    """Return a rational cut to more than KEPT_BITS significant bits; short dyadic numbers stay as they are."""
    p, q = int(v.p), int(v.q)
    shift = KEPT_BITS + 2 + q.bit_length() - abs(p).bit_length()
    if q & (q - 1) == 0 and abs(p).bit_length() <= KEPT_BITS:
        return v
    return rational((p << shift) // q, 1 << shift) if shift >= 0 else rational((p >> -shift) // q << -shift)


RULES: dict[str, Rule] = {"add": _sum, "sub": _sum, "mul": _product, "div": _quotient, "sqrt": _root}
