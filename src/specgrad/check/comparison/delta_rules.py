"""Rules that pass a delta through activations and maxima, by numbers t between 0 and 1 (differential bounds).

    one cell    g(y + delta) = g(y) + s*delta, s between the least and the greatest slope of g on the range of both
    largest     max(y + delta) - max(y) lies between the least and the greatest delta of the cells; where one cell is
                the largest for certain, before and after, it is the delta of that cell

The t of every cell are inputs of the graph ("gates"), and boxes hold all of them. select(gate, delta, 0) stands for
t*delta. That t = 0 and t = 1 are enough: let V be the largest that a linear objective of the outputs can become, by
the choice of the t above, as a function of the deltas somewhere. V is convex: it is linear at the outputs, and stays
convex through linear maps, through delta -> t*delta (a maximum over the corners t of convex functions) and through a
maximum (its deltas lie in a box whose corners are deltas of single cells). A convex function of t is largest at a
corner. So a delta may meet nothing but linear maps, gates and maxima; other operators take no delta.
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
from specgrad.scalar import Array, exact, float_above, float_below
from specgrad.window import Window

SLOPE_SLACK = 1 + 2.0**-40  # a slope that was computed in float64
MAXIMA = (MAX_POOL, AMAX, MAXIMUM, MINIMUM)


def is_nonlinear(node: Node) -> bool:
    """Return whether a node is an activation (a function of one cell) or a maximum or minimum."""
    return node.op.curve is not None or node.op in MAXIMA


@dataclass(eq=False)
class DeltaBuilder:
    """Builds deltas in the graph that `builder` constructs; `boxes` bound the inputs that this adds."""

    builder: GraphBuilder
    boxes: list[Box] = field(default_factory=list)

    def through_unary(self, delta: Var, least: Array, most: Array) -> Any:
        """Return s*delta = least*delta + t*(most - least)*delta, slopes s of a unary function in least..most."""
        parts = [scaled(delta, least)] if least.any() else []
        room = np.where(most > least, np.nextafter(most - least, np.inf), 0.0)
        room = np.where((least == 0) | ((least == -1) & (most == 1)), most - least, room)  # which are exact
        if room.any():
            wide, gate = scaled(delta, room), self.gate(delta.shape)
            parts += [select(gate, relu(wide), 0), select(gate, clamp(wide, high=0), 0)]
        return sum_or_none(parts)

    def through_maximum(self, node: Node, deltas: list[Any], low: Array, high: Array) -> Any:
        """Return any value between the least and the greatest delta of the cells of a maximum or minimum.

        low, high   the range of what a maximum over windows is taken of, with and without delta
        """
        if node.op in (MAXIMUM, MINIMUM):
            return self._interpolated(minimum(*deltas), maximum(*deltas))
        (delta,) = deltas
        up, down = apply(node.op, delta, **node.params), neg(apply(node.op, neg(delta), **node.params))
        if node.op is not MAX_POOL:
            return self._interpolated(down, up)
        alone, winner = certain_argmax(node.params["window"], low, high)
        if not alone.any():
            return self._interpolated(down, up)
        taken = take(delta, self.builder.constant(winner, "winner"), rank=node.params["window"].rank)
        if alone.all():
            return taken
        sure, rest = alone.astype(float), (~alone).astype(float)
        return add(mul(taken, sure), self._interpolated(mul(down, rest), mul(up, rest)))

    def _interpolated(self, down: Any, up: Any) -> Any:
        """Return down + t*(up - down) with a new gate t."""
        return add(down, select(self.gate(down.shape), sub(up, down), 0))

    def gate(self, shape: tuple[int, ...]) -> Var:
        """Return a new input t of the graph, of this shape, in 0..1 per cell; its box is added to `boxes`."""
        return self.unconstrained(np.zeros(shape), np.ones(shape))

    def unconstrained(self, low: Array, high: Array) -> Var:
        """Return a new input of the graph that may be anything between low and high; its box is added to `boxes`."""
        made: Var = self.builder.input(f"any_{len(self.boxes)}", low.shape)
        self.boxes.append(Box(low, high))
        return made


def scaled(x: Var, factor: Array) -> Var:
    """Return x times a constant array `factor`; x itself if it is all ones."""
    return x if (factor == 1).all() else mul(x, factor)


def sum_or_none(parts: list[Any]) -> Any:
    """Return the sum of the parts; None for none."""
    whole = None
    for part in parts:
        whole = part if whole is None else add(whole, part)
    return whole


# --- slopes -----------------------------------------------------------------------------------------------------------


def slopes(op: Op, params: Params, low: Array, high: Array) -> tuple[Array, Array] | None:
    """Return the least and the greatest slope, per cell, of the unary function `op` on low..high; None if unknown.

    >>> import specgrad as sg
    >>> least, most = slopes(sg.REGISTRY["relu"], {}, np.array([-2.0, -1.0, 0.0]), np.array([-1.0, 1.0, 3.0]))
    >>> least, most
    (array([0., 0., 1.]), array([0., 1., 1.]))
    """
    curve = op.curve
    assert curve is not None  # what is asked for
    kinks = curve.pieces(params)
    if kinks is not None:
        return _piecewise_slopes(op, params, sorted({Fraction(k) for k in kinks}), low, high)
    if curve.steepest is None:
        return None
    with np.errstate(all="ignore"):
        most = np.broadcast_to(curve.steepest(np, low, high, params), low.shape) * SLOPE_SLACK
    if not np.isfinite(most).all():
        return None
    return (np.zeros(low.shape) if op.monotone == (0,) else -most), most


def _piecewise_slopes(op: Op, params: Params, kinks: list[Fraction], low: Array, high: Array) -> tuple[Array, Array]:
    """Return the least and the greatest slope, per cell, of the linear pieces between `kinks` that the range low..high
    overlaps.
    """
    least, most = np.full(low.shape, np.inf), np.full(low.shape, -np.inf)
    ends = [None, *kinks, None]
    for left, right in pairwise(ends):
        slope = _piece_slope(op, params, left, right)
        inside = np.ones(low.shape, bool)
        if left is not None:
            inside &= high > float(left)
        if right is not None:
            inside &= low < float(right)
        inside |= low == high
        down, up = float_below(slope), float_above(slope)
        least, most = np.where(inside, np.minimum(least, down), least), np.where(inside, np.maximum(most, up), most)
    return least, most


def _piece_slope(op: Op, params: Params, left: Fraction | None, right: Fraction | None) -> Fraction:
    """Return the exact slope of the linear piece between the breakpoints `left` and `right` (None: unbounded), from two
    points of it.
    """
    if left is None:
        first = Fraction(0) if right is None else right - 1
        second = first + 1
    else:
        first, second = left, left + 1 if right is None else right
    values = op.spec(exact(np.array([first, second], dtype=object)), **params)
    return Fraction(values[1] - values[0]) / (second - first)


def certain_argmax(window: Window, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the mask of windows with one possible maximum, and the tap of the largest upper bound of each window, for
    cells in low..high.
    """
    most = apply(MAX_POOL, low, window=window)
    possible = np.zeros(most.shape, int)
    for tap in window.taps():
        tap.add_to_outputs(possible, tap.read_inputs(high) >= tap.read_outputs(most))
    return possible == 1, apply(WINNER, high, window=window)
