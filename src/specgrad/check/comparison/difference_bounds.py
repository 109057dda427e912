"""Interval bounds of a(x) - b(x) for two networks over real numbers, at one input or over a box.

Small networks are evaluated over balls, which enclose every real result; others in fixed point with radii, or by
balls of float64, each by itself; boxes by linear bounds of one graph that holds both and subtracts their outputs
(specgrad.bounds.crown).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.bounds import crown, ibp
from specgrad.bounds.exact_outputs import BITS, WORK, ball_outputs, outward, work
from specgrad.bounds.fixed_point_outputs import fixed_point_difference
from specgrad.deadline import check_time, time_left, time_limit
from specgrad.errors import MissingPackageError, ScalarError, SpecgradError, need
from specgrad.graph.builder import trace
from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves, transform
from specgrad.op import scope
from specgrad.ops.elementwise import sub
from specgrad.rounding import radius
from specgrad.scalar import Array

from ..tolerances.point_bounds import REAL
from .copy_nodes import example_of

FIXED_POINT_SHARE = 0.6  # of the time that is left


@dataclass(frozen=True, eq=False)
class DifferenceBounds:
    """Bounds of a - b: per real output and cell, it lies between low and high.

    values   what the first network gives at the input, next to its exact values; nothing for a box
    how      what was computed with
    """

    low: tuple[Array, ...]
    high: tuple[Array, ...]
    how: str
    values: tuple[Array, ...] = ()

    @property
    def most(self) -> tuple[Array, ...]:
        """Upper bounds of abs(a - b), per output and cell."""
        return tuple(np.maximum(abs(p), abs(q)) for p, q in zip(self.low, self.high, strict=True))

    @property
    def least(self) -> tuple[Array, ...]:
        """Lower bounds of abs(a - b), per output and cell; 0 where no difference is proven."""
        return tuple(np.maximum(0.0, np.maximum(p, -q)) for p, q in zip(self.low, self.high, strict=True))

    @property
    def farthest(self) -> tuple[int, tuple[int, ...]]:
        """(output, index) of the largest proven difference; if none is proven, of the largest upper bound."""
        for ends in (self.least, self.most):
            sizes = [e.max(initial=0.0) for e in ends]
            k = int(np.argmax(sizes))
            if sizes[k] > 0:
                break
        place = np.unravel_index(int(np.argmax(ends[k])), ends[k].shape) if ends[k].size else ()
        return k, tuple(int(i) for i in place)

    @property
    def differs(self) -> bool:
        """Whether a difference is proven in some cell."""
        return any((e > 0).any() for e in self.least)

    @property
    def largest(self) -> float:
        """The largest upper bound of abs(a - b) over all cells."""
        return max((float(e.max(initial=0.0)) for e in self.most), default=0.0)


def difference(a: Graph, b: Graph) -> Graph:
    """Return one graph with the inputs of a whose outputs are the real outputs of a minus those of b.

    >>> import specgrad as sg
    >>> both = difference(sg.trace(lambda x: 2 * x, (1,)), sg.trace(lambda x: x + x, (1,)))
    >>> both(np.array([3.0]))
    (array([0.]),)
    """
    examples = [transform(lambda _, p: example_of(a.nodes[p]), tree) for tree in a.inputs]

    def both(*xs: Any) -> Any:
        with scope("a"):
            first = leaves(a(*xs) if not a.single else (a(*xs),))
        with scope("b"):
            second = leaves(b(*xs) if not b.single else (b(*xs),))
        return tuple(sub(p, q) for p, q in zip(first, second, strict=True) if getattr(p, "kind", "real") == "real")

    return trace(both, *examples)


def difference_at(a: Graph, b: Graph, inputs: tuple[Array, ...]) -> DifferenceBounds:
    """Return bounds of a(x) - b(x) at one input x, one array per input, whose floats are taken as exact numbers.

    By balls where these decide and the networks are small; else in fixed point, and in float64, each network by itself,
    where that refuses an operator or takes more than its share of the time.
    """
    if work(a) + work(b) <= WORK:
        try:
            need("flint", "balls need")
            return _difference_over_balls(a, b, inputs)
        except (MissingPackageError, ScalarError, ZeroDivisionError, OverflowError, ValueError, TypeError):
            pass  # a comparison that balls do not decide, a constant that is no number, zeros of no cell, which are
            # Fractions: bounds hold for either answer
    try:
        with time_limit(FIXED_POINT_SHARE * time_left()):
            return _difference_in_fixed_point(a, b, inputs)
    except SpecgradError:  # also of its share of the time
        check_time("inputs to try")
        return _difference_in_float64(a, b, inputs)


def _difference_in_float64(a: Graph, b: Graph, inputs: tuple[Array, ...]) -> DifferenceBounds:
    """Return bounds of a(x) - b(x) at one input x, from balls of float64 of each network by itself."""
    first, second = (_exact_bounds(g, inputs) for g in (a, b))
    low = tuple(np.nextafter(p[0] - q[1], -np.inf) for p, q in zip(first, second, strict=True))
    high = tuple(np.nextafter(p[1] - q[0], np.inf) for p, q in zip(first, second, strict=True))
    values = tuple(p[0] / 2 + p[1] / 2 for p in first)
    return DifferenceBounds(*nan_to_unbounded(low, high), "float64, each network by itself", values)


def _difference_in_fixed_point(a: Graph, b: Graph, inputs: tuple[Array, ...]) -> DifferenceBounds:
    """Return bounds of a(x) - b(x) at one input x, from both networks in fixed point with radii.

    RadiusError if the digits decide too little.
    """
    apart = fixed_point_difference(a, b, inputs)
    return DifferenceBounds(apart.low, apart.high, f"fixed point of {apart.bits} bits", apart.values)


def _difference_over_balls(a: Graph, b: Graph, inputs: tuple[Array, ...]) -> DifferenceBounds:
    """Return bounds of a(x) - b(x) at one input x, from both networks evaluated over balls of BITS bits (python-flint).

    `inputs` has an array per input: a point, whose floats are exact numbers. ScalarError where a comparison of balls is
    open; errors of the arithmetic itself come through.
    """
    import flint

    before, flint.ctx.prec = flint.ctx.prec, BITS
    try:
        first, second = (ball_outputs(g, inputs) for g in (a, b))
        cells = [[p - q for p, q in zip(x.flat, y.flat, strict=True)] for x, y in zip(first, second, strict=True)]
        low = tuple(outward([v.lower() for v in row], x.shape, -np.inf) for row, x in zip(cells, first, strict=True))
        high = tuple(outward([v.upper() for v in row], x.shape, np.inf) for row, x in zip(cells, first, strict=True))
        values = tuple(np.array([float(v.mid()) for v in x.flat]).reshape(x.shape) for x in first)
    finally:
        flint.ctx.prec = before
    return DifferenceBounds(*nan_to_unbounded(low, high), f"balls of {BITS} bits", values)


def nan_to_unbounded(low: tuple[Array, ...], high: tuple[Array, ...]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Return the bounds with NaN replaced by -inf (low) and inf (high)."""
    return tuple(np.where(np.isnan(x), -np.inf, x) for x in low), tuple(np.where(np.isnan(x), np.inf, x) for x in high)


def _exact_bounds(graph: Graph, inputs: tuple[Array, ...]) -> list[tuple[Array, Array]]:
    """Return float64 arrays low <= y <= high of every real output y, in exact arithmetic, at `inputs`.

    UnsupportedError where an operator has no radius.
    """
    given = iter(inputs)
    args = tuple(transform(lambda _, p: next(given), tree) for tree in graph.inputs)
    report = radius(graph, *args, arithmetic=REAL, backend="torch")
    outputs = [ball for ball in leaves(report.outputs) if ball.value.dtype.kind == "f"]
    with np.errstate(invalid="ignore"):
        return [(np.nextafter(v.value - v.radius, -np.inf), np.nextafter(v.value + v.radius, np.inf)) for v in outputs]


def difference_over_box(a: Graph, b: Graph, boxes: tuple[Any, ...], seconds: float | None = None) -> DifferenceBounds:
    """Return bounds of a(x) - b(x) in exact arithmetic for all inputs x in `boxes`, one per input (an array: a fixed
    input).
    """
    both = difference(a, b)
    given = iter(boxes)
    args = tuple(transform(lambda _, p: next(given), tree) for tree in both.inputs)
    try:
        bounds, how = crown(both, *args, deployed=False, seconds=seconds), "linear bounds of the difference"
    except SpecgradError:
        bounds, how = ibp(both, *args, deployed=False), "interval bounds of the difference"
    outputs = [box for box in leaves(bounds.outputs) if box is not None]
    return DifferenceBounds(
        *nan_to_unbounded(tuple(box.low for box in outputs), tuple(box.high for box in outputs)), how
    )
