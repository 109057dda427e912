"""Constants that a runtime computes while it loads, such as gamma/sqrt(var + eps) of a batch normalisation.

A computed constant is v times at most `formed` factors (1 + d) or 1/(1 + d) with abs(d) <= u, v being the number that
the replay has for it: no sum here cancels, and every number is far from underflow. Each of these factors counts as a
rounding of whatever the constant is multiplied with or added to, so executions that use parts of it in another order,
(x*gamma)/sqrt(...), are the same to the count. Quotients and roots are rounded to BITS bits, which costs one factor.
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
from .relu_max import NodeRange, known
from .rounding_counts import LAYOUT

BITS = 48  # of quotients and roots: an error of 2**-48 is less than a rounding
FAR = 1 << 100  # numbers of float32 that no partial result can make subnormal or infinite


def number(value: Any, name: str) -> NodeRange:
    """A number of the program's text: itself where float32 holds it, else rounded once."""
    meant = Fraction(value)
    exact = objects([rational(meant.numerator, meant.denominator)], ())
    with np.errstate(over="ignore"):
        near = float(np.float32(float(value)))
    held = math.isfinite(near) and Fraction(near) == meant
    if not held:
        _far_from_limits(name, exact)
    return replace(known(exact), formed=0 if held else 1)


def is_computed(node: Node, args: Sequence[NodeRange]) -> bool:
    return bool(args) and all(a.constant for a in args) and (node.op.name in RULES or node.op.name in LAYOUT)


def computed(node: Node, args: Sequence[NodeRange], functions: Functions) -> NodeRange:
    """What a node makes of constants."""
    values = [a.low for a in args]
    if node.op.name in LAYOUT:
        formed, most = max(a.formed for a in args), max(a.most for a in args)
        return replace(known(run_spec(node.op, values, node.params)), formed=formed, most=most)
    for v in values:
        _far_from_limits(node.name, v)
    value, formed, most = RULES[node.op.name](node, args, functions)
    _far_from_limits(node.name, value)
    if most >= FAR:
        raise ReplayError(f"node {node.name} may overflow in float32 while constants are computed")
    return replace(known(value), formed=formed, most=most)


def _far_from_limits(name: str, x: Array) -> None:
    if any(v != 0 and not rational(1, FAR) < abs(v) < FAR for v in cells(x).flat):
        raise ReplayError(f"node {name} computes with constants that are too large or small; fold them first")


Rule = Callable[[Node, Sequence[NodeRange], Functions], tuple[Array, int, int]]


def _sum(node: Node, args: Sequence[NodeRange], _: Functions) -> tuple[Array, int, int]:
    """Of numbers of one sign, so that no factor grows."""
    a, b = args[0].low, args[1].low if node.op.name == "add" else -args[1].low
    if any(v < 0 for v in cells(a * b).flat):
        raise ReplayError(f"node {node.name} subtracts constants; fold them before certifying")
    return cells(a + b), max(args[0].formed, args[1].formed) + 1, args[0].largest_factor + args[1].largest_factor


def _product(node: Node, args: Sequence[NodeRange], _: Functions) -> tuple[Array, int, int]:
    most = args[0].largest_factor * args[1].largest_factor
    return _short(args[0].low * args[1].low), args[0].formed + args[1].formed + 2, most


def _quotient(node: Node, args: Sequence[NodeRange], _: Functions) -> tuple[Array, int, int]:
    a, b = args
    if any(v == 0 for v in b.low.flat):
        raise ReplayError(f"node {node.name} divides by 0")
    inverse = max(-(-int(v.q) // abs(int(v.p))) for v in b.low.flat)
    return _short(a.low / b.low), a.formed + b.formed + 3, a.largest_factor * max(b.largest_factor, inverse)


def _root(node: Node, args: Sequence[NodeRange], functions: Functions) -> tuple[Array, int, int]:
    """The square root of v*(1 + d) is that of v times (1 + d)**(1/2)."""
    if "sqrt" not in functions or functions["sqrt"][1] != "y":
        raise ReplayError(f"the arithmetic declares no error of sqrt, which node {node.name} computes")
    x = args[0]
    if any(v < 0 for v in x.low.flat):
        raise ReplayError(f"node {node.name} takes the root of a negative number")
    formed = x.formed + math.ceil(functions["sqrt"][0]) + 1
    return objects([_sqrt(v) for v in x.low.flat], x.low.shape), formed, x.largest_factor


def _sqrt(v: Any) -> Any:
    """To more than BITS bits, rounded down."""
    shift = BITS + 128
    return _short_number(rational(math.isqrt((int(v.p) << 2 * shift) // int(v.q)), 1 << shift))


def _short(x: Array) -> Array:
    return objects([_short_number(v) for v in cells(x).flat], np.shape(x))


def _short_number(v: Any) -> Any:
    """The number with more than BITS significant bits, the rest cut off."""
    p, q = int(v.p), int(v.q)
    shift = BITS + 2 + q.bit_length() - abs(p).bit_length()
    if q & (q - 1) == 0 and abs(p).bit_length() <= BITS:
        return v
    return rational((p << shift) // q, 1 << shift) if shift >= 0 else rational((p >> -shift) // q << -shift)


RULES: dict[str, Rule] = {"add": _sum, "sub": _sum, "mul": _product, "div": _quotient, "sqrt": _root}
