"""Enclosure of the outputs at one input, which runs are compared with.

Every execution of a class lies between `low` and `high`: the specification in float64 with every rounding counted
(specgrad.rounding.radius), met with linear bounds at the point, of the outputs and of rows of them. The exact outputs
lie between `near` and `far`: the specification over balls where the network is small, else float64 with no rounding but
its own. No engine takes part: where one computes something else, it is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.bounds.box import Box, box_of, numpy_of
from specgrad.bounds.crown_bounds import crown
from specgrad.bounds.exact_outputs import BITS, WORK, ball_outputs, outward, work
from specgrad.errors import ContradictionError, MissingPackageError, ScalarError, SpecgradError, need
from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves
from specgrad.properties.property import Alternative, Case
from specgrad.rounding import Arithmetic, radius
from specgrad.scalar import Array

REAL = Arithmetic("real", execution="node")
IN_NUMPY = 2**26  # multiply-adds and cells up to which the specification itself is the float64 reference
MAX_ROWS = 1000  # outputs, or rows of them, that are bounded one by one
SECONDS = 5.0  # for linear bounds; when they are over, intervals are left


@dataclass(frozen=True, eq=False)
class Enclosure:
    """Bounds at one input, flat: low..high of every execution, near..far of exact outputs, least..most of rows."""

    low: Array
    high: Array
    near: Array
    far: Array
    rows: Array
    least: Array
    most: Array

    @property
    def is_bounded(self) -> bool:
        """Whether every output has finite bounds."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())

    def excludes(self, y: Array) -> str:
        """Describe the first output, or row, of y that no execution computes; "" if there is none."""
        flat = np.ravel(y).astype(np.float64)
        outside = ~((flat >= self.low) & (flat <= self.high)) & ~(np.isinf(self.low) & np.isinf(self.high))
        for k in np.flatnonzero(outside)[:1]:
            return f"{flat[k]:.9g} at output {k}, where {self.low[k]:.9g} to {self.high[k]:.9g} is proven"
        values = [Fraction(v) for v in flat.tolist()] if np.isfinite(flat).all() else []
        for row, least, most in zip(self.rows, self.least.tolist(), self.most.tolist(), strict=True) if values else ():
            total = Alternative.total(row, values)
            if total < least or total > most:  # Python compares a fraction with a float exactly
                return f"{float(total):.9g} at {_row_text(row)}, where {least:.9g} to {most:.9g} is proven"
        return ""

    def decides(self, case: Case, point: Sequence[Fraction]) -> bool | None:
        """Whether the exact outputs break the property, `case`; None if the enclosure does not tell.

        `point` is the exact input, for rows that name inputs.
        """
        low, high = ([Fraction(v) if np.isfinite(v) else None for v in end.tolist()] for end in (self.near, self.far))
        return case.decided(low, high, point)


def _row_text(row: Array) -> str:
    """Text of a row of coefficients, its first 4 terms."""
    terms = [f"{row[k]:+g}*Y_{k}" for k in np.flatnonzero(row)[:4]]
    return " ".join([*terms, "..."] if np.count_nonzero(row) > 4 else terms)


def enclosed(graph: Graph, x: Array, arithmetic: Arithmetic | None = None, rows: Array | None = None) -> Enclosure:
    """Return the enclosure at one input of a graph with one input and one output; ContradictionError if bounds exclude
    each other.

    rows   linear objectives of the outputs, which are bounded besides
    arithmetic   the executions meant; None: float32, fused
    """
    meant = arithmetic or Arithmetic()
    given = np.asarray(x, np.float32).reshape(graph.nodes[graph.input_positions[0]].shape)
    backend = "numpy" if work(graph) <= IN_NUMPY else "torch"
    (ball,) = leaves(radius(graph, given, arithmetic=meant, backend=backend).outputs)
    with np.errstate(invalid="ignore"):  # infinite values with infinite radii
        box = box_of(ball)
    low, high = (np.ravel(end).astype(np.float64) for end in (box.low, box.high))
    some = np.zeros((0, low.size)) if rows is None or len(rows) > MAX_ROWS else rows
    if not graph.real_outputs:  # positions: radii alone bound them
        return Enclosure(low, high, low, high, some[:0], np.zeros(0), np.zeros(0))
    cells = np.eye(low.size) if low.size <= MAX_ROWS else np.zeros((0, low.size))
    least, most = _linear_row_bounds(graph, given, meant, np.concatenate([cells, some]))
    n = len(cells)
    if n:
        low, high = np.fmax(low, least[:n]), np.fmin(high, most[:n])
    near, far = _exact_output_bounds(graph, given, backend)
    apart = (low > high) | (near > high) | (far < low)
    for k in np.flatnonzero(apart)[:1]:
        ends = f"{near[k]:.9g} to {far[k]:.9g} and, for executions, {low[k]:.9g} to {high[k]:.9g}"
        raise ContradictionError(f"bounds of output {k} at one input exclude each other: {ends}")
    return Enclosure(low, high, near, far, some, least[n:], most[n:])


def _linear_row_bounds(graph: Graph, x: Array, arithmetic: Arithmetic, rows: Array) -> tuple[Array, Array]:
    """Return (lower, upper) of `rows` times the outputs at the point x, by linear bounds; infinite if they fail."""
    nothing = np.full(len(rows), np.inf)
    if not len(rows):
        return -nothing, nothing
    try:
        point = x.astype(np.float64)
        bounds = crown(graph, Box(point, point), objective=rows, arithmetic=arithmetic, seconds=SECONDS)
    except SpecgradError:  # too large for the memory, or an operator without bounds: radii are left
        return -nothing, nothing
    if bounds.unbounded:
        return -nothing, nothing
    low, high = numpy_of(bounds.low), numpy_of(bounds.high)
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


def _exact_output_bounds(graph: Graph, x: Array, backend: str) -> tuple[Array, Array]:
    """(lower, upper) of the exact outputs, flat: by ball arithmetic if small enough, else by float64 radii.

    `backend` computes those radii. UnsupportedError where an operator has no radius.
    """
    if work(graph) <= WORK:
        try:
            need("flint", "balls need")
            return _ball_output_bounds(graph, x)
        except (MissingPackageError, ScalarError, ZeroDivisionError, OverflowError, ValueError):
            pass  # a comparison that balls do not decide, a constant that is no number
    (ball,) = leaves(radius(graph, x, arithmetic=REAL, backend=backend).outputs)
    with np.errstate(invalid="ignore"):
        box = box_of(ball)
    return np.ravel(box.low), np.ravel(box.high)


def _ball_output_bounds(graph: Graph, x: Array) -> tuple[Array, Array]:
    """Return float64 (lower, upper) of the exact outputs at x, flat, by ball arithmetic; infinite where they are
    NaN.
    """
    import flint

    before, flint.ctx.prec = flint.ctx.prec, BITS
    try:
        (y,) = ball_outputs(graph, (x,))
        ends: tuple[list[Any], list[Any]] = [v.lower() for v in y.flat], [v.upper() for v in y.flat]
        low, high = (outward(end, (y.size,), side) for end, side in zip(ends, (-np.inf, np.inf), strict=True))
    finally:
        flint.ctx.prec = before
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


def rows_of(case: Case) -> Array:
    """Distinct rows of all alternatives of a case."""
    return np.unique(np.concatenate([a.rows for a in case.alternatives]), axis=0)
