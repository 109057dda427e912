"""What a value lags behind another: through functions of one cell and maxima, by numbers t that lie between 0 and 1.

    one cell    g(y + lag) = g(y) + s*lag, s between the least and the greatest slope of g on the range of both
    largest     max(y + lag) - max(y) lies between the least and the greatest lag of the cells; where one cell is the
                largest for certain, before and after, it is the lag of that cell

The t of every cell are inputs of the graph ("gates"), and boxes hold all of them. select(gate, lag, 0) stands for
t*lag. That t = 0 and t = 1 are enough: let V be the largest that a linear objective of the outputs can become, by the
choice of the t above, as a function of the lags somewhere. V is convex: it is linear at the outputs, and stays convex
through linear maps, through lag -> t*lag (a maximum over the corners t of convex functions) and through a maximum (its
lags lie in a box whose corners are lags of single cells). A convex function of t is largest at a corner. So a lag may
meet nothing but linear maps, gates and maxima; what else there is takes no lag.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from specgrad.bounds import Box
from specgrad.graph.builder import GraphBuilder, Var
from specgrad.graph.graph import Node
from specgrad.op import Op, Params, apply
from specgrad.ops.activation import clamp, relu
from specgrad.ops.elementwise import MAXIMUM, MINIMUM, add, maximum, minimum, mul, neg, select, sub
from specgrad.ops.max_pool import AMAX, MAX_POOL, WINNER, take
from specgrad.scalar import Array, exact
from specgrad.window import Window

STEEPER = 1 + 2.0**-40  # a slope that was computed in float64
LARGEST = (MAX_POOL, AMAX, MAXIMUM, MINIMUM)


def is_bent(node: Node) -> bool:
    return node.op.curve is not None or node.op in LARGEST


@dataclass(eq=False)
class DeltaBuilder:
    """Lags in a graph under construction, and the boxes of the inputs that they have brought along."""

    builder: GraphBuilder
    boxes: list[Box] = field(default_factory=list)

    def steep(self, lag: Var, least: Array, most: Array) -> Any:
        """s*lag = least*lag + t*(most - least)*lag; relu and its mirror are there so that bounds look at the range."""
        parts = [times(lag, least)] if least.any() else []
        room = np.where(most > least, np.nextafter(most - least, np.inf), 0.0)
        room = np.where((least == 0) | ((least == -1) & (most == 1)), most - least, room)  # which are exact
        if room.any():
            wide, gate = times(lag, room), self.gate(lag.shape)
            parts += [select(gate, relu(wide), 0), select(gate, clamp(wide, high=0), 0)]
        return total(parts)

    def among(self, node: Node, lags: list[Any], low: Array, high: Array) -> Any:
        """From the least to the greatest lag of the cells that a maximum, or a minimum, is taken of.

        low, high   the range of what a maximum over windows is taken of, with and without lag
        """
        if node.op in (MAXIMUM, MINIMUM):
            return self._from(minimum(*lags), maximum(*lags))
        (lag,) = lags
        up, down = apply(node.op, lag, **node.params), neg(apply(node.op, neg(lag), **node.params))
        if node.op is not MAX_POOL:
            return self._from(down, up)
        alone, winner = only_winner(node.params["window"], low, high)
        if not alone.any():
            return self._from(down, up)
        taken = take(lag, self.builder.constant(winner, "winner"), rank=node.params["window"].rank)
        if alone.all():
            return taken
        sure, rest = alone.astype(float), (~alone).astype(float)
        return add(mul(taken, sure), self._from(mul(down, rest), mul(up, rest)))

    def _from(self, down: Any, up: Any) -> Any:
        return add(down, select(self.gate(down.shape), sub(up, down), 0))

    def gate(self, shape: tuple[int, ...]) -> Var:
        return self.any(np.zeros(shape), np.ones(shape))

    def any(self, low: Array, high: Array) -> Var:
        """An input that may be anything between the ends."""
        made: Var = self.builder.input(f"any_{len(self.boxes)}", low.shape)
        self.boxes.append(Box(low, high))
        return made


def times(x: Var, factor: Array) -> Var:
    return x if (factor == 1).all() else mul(x, factor)


def total(parts: list[Any]) -> Any:
    """Their sum; None of none."""
    whole = None
    for part in parts:
        whole = part if whole is None else add(whole, part)
    return whole


# --- slopes -----------------------------------------------------------------------------------------------------------


def slopes(op: Op, params: Params, low: Array, high: Array) -> tuple[Array, Array] | None:
    """The least and the greatest slope of a function of one cell on the ranges; None: not known.

    >>> import specgrad as sg
    >>> least, most = slopes(sg.REGISTRY["relu"], {}, np.array([-2.0, -1.0, 0.0]), np.array([-1.0, 1.0, 3.0]))
    >>> least, most
    (array([0., 0., 1.]), array([0., 1., 1.]))
    """
    curve = op.curve
    assert curve is not None  # what is asked for
    kinks = curve.pieces(params)
    if kinks is not None:
        return _pieces(op, params, sorted({Fraction(k) for k in kinks}), low, high)
    if curve.steepest is None:
        return None
    with np.errstate(all="ignore"):
        most = np.broadcast_to(curve.steepest(np, low, high, params), low.shape) * STEEPER
    if not np.isfinite(most).all():
        return None
    return (np.zeros(low.shape) if op.monotone == (0,) else -most), most


def _pieces(op: Op, params: Params, kinks: list[Fraction], low: Array, high: Array) -> tuple[Array, Array]:
    """Slopes of the pieces that a range has more than a point of; of a single point any will do."""
    least, most = np.full(low.shape, np.inf), np.full(low.shape, -np.inf)
    ends = [None, *kinks, None]
    for left, right in pairwise(ends):
        slope = _slope(op, params, left, right)
        inside = np.ones(low.shape, bool)
        if left is not None:
            inside &= high > float(left)
        if right is not None:
            inside &= low < float(right)
        inside |= low == high
        down, up = _outward(slope)
        least, most = np.where(inside, np.minimum(least, down), least), np.where(inside, np.maximum(most, up), most)
    return least, most


def _slope(op: Op, params: Params, left: Fraction | None, right: Fraction | None) -> Fraction:
    """Of one piece, exactly, by two points of it."""
    if left is None:
        first = Fraction(0) if right is None else right - 1
        second = first + 1
    else:
        first, second = left, left + 1 if right is None else right
    values = op.spec(exact(np.array([first, second], dtype=object)), **params)
    return Fraction(values[1] - values[0]) / (second - first)


def _outward(x: Fraction) -> tuple[float, float]:
    near = float(x)
    down = near if Fraction(near) <= x else float(np.nextafter(near, -np.inf))
    return down, near if Fraction(near) >= x else float(np.nextafter(near, np.inf))


def only_winner(window: Window, low: Array, high: Array) -> tuple[Array, Array]:
    """Which windows have one tap that can be the largest; the tap with the largest upper end of every window."""
    most = apply(MAX_POOL, low, window=window)
    possible = np.zeros(most.shape, int)
    for tap in window.taps():
        tap.add_to_outputs(possible, tap.read_inputs(high) >= tap.read_outputs(most))
    return possible == 1, apply(WINNER, high, window=window)
