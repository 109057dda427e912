"""Piecewise linear activations as the checker that is proven in verified/ reads them.

    f(x) = start + rise*x + the sum of turn*max(0, x - kink)

A runtime that reads v computes f(v) up to relative*abs(v) + absolute: specgrad.proof.exact.activations says why
(`runtime_error_bound`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.graph.graph import Node

from ..base.rationals import ReplayError

FLUSH_LOSS = Fraction(1, 1 << 126)  # what flushing costs
MAX_MAGNITUDE = 1 << 120  # numbers beyond, or below 1/FAR, float32 may round to none of its own
ZERO, ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True)
class PiecewiseLinear:
    """The function f(x) = start + rise*x + the sum of turn*max(0, x - kink), and a runtime's error: it reads v and is
    off by at most relative*abs(v) + absolute.

    turns                (kink, turn) pairs, kinks in order
    start, rise          constant and slope left of all kinks
    relative, absolute   of the error
    """

    start: Fraction
    rise: Fraction
    turns: tuple[tuple[Fraction, Fraction], ...]
    relative: Fraction
    absolute: Fraction


def _leaky_relu(node: Node, unit: Fraction) -> PiecewiseLinear:
    """Return the function of a leaky_relu node. Its error: the slope is rounded once (unit roundoff `unit`), so is the
    product, and a flushed argument counts times the slope.
    """
    slope = _parameter(node, node.params["slope"])
    off = ZERO if abs(slope) in (0, 1) else abs(slope) * unit * (2 + unit)
    return PiecewiseLinear(ZERO, slope, ((ZERO, ONE - slope),), off, FLUSH_LOSS * _power_above(1 + abs(slope)))


def _clamp(node: Node, unit: Fraction) -> PiecewiseLinear:
    """Return a clamp or relu6 node: limits that float32 lacks are rounded (unit roundoff `unit`).

    ReplayError if the lower one is above the upper one.
    """
    low, high = (node.params.get(end, default) for end, default in (("low", 0), ("high", 6)))
    least, most = (None if v is None else _parameter(node, v) for v in (low, high))
    if least is not None and most is not None and least > most:
        raise ReplayError(f"node {node.name} has its lower limit above the upper one")
    turns = tuple((kink, turn) for kink, turn in ((least, ONE), (most, -ONE)) if kink is not None)
    off = max((abs(v) * unit for v in (least, most) if v is not None and not _is_float32(v)), default=ZERO)
    start, rise = (ZERO, ONE) if least is None else (least, ZERO)
    return PiecewiseLinear(start, rise, turns, ZERO, off + FLUSH_LOSS)


PIECEWISE_LINEAR: Mapping[str, Callable[[Node, Fraction], PiecewiseLinear]] = {
    "leaky_relu": _leaky_relu,
    "abs": lambda node, unit: PiecewiseLinear(ZERO, -ONE, ((ZERO, Fraction(2)),), ZERO, FLUSH_LOSS),
    "relu6": _clamp,
    "clamp": _clamp,
}
"""By the operator's name, given the node and the unit roundoff."""


def piecewise_linear(node: Node, unit: Fraction) -> PiecewiseLinear | None:
    """Return the function of a node; None if it is not one of PIECEWISE_LINEAR. `unit`: the unit roundoff."""
    rule = PIECEWISE_LINEAR.get(node.op.name)
    return None if rule is None else rule(node, unit)


def _parameter(node: Node, number: Any) -> Fraction:
    """Return `number`, a parameter of a node, as a fraction; raise ReplayError if float32 could make it subnormal or
    infinite.
    """
    exact = Fraction(number)
    if exact and not Fraction(1, MAX_MAGNITUDE) < abs(exact) < MAX_MAGNITUDE:
        raise ReplayError(f"the number {number} in node {node.name} is too large or small for float32")
    return exact


def _power_above(x: Fraction) -> int:
    """Return the least power of two that is at least x and 1."""
    return 1 << max(0, (-(-x.numerator // x.denominator) - 1).bit_length())


def _is_float32(number: Fraction) -> bool:
    """Return whether float32 holds the number exactly."""
    return Fraction(float(np.float32(float(number)))) == number
