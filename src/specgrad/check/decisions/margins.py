"""Lower bounds of every comparison of a decision, over all executions of a class: cheap ones first.

The forward radius of the outputs decides most samples in milliseconds: low(y_c) - high(y_j). What it leaves open is
bounded as one linear objective each, e_c - e_j, carried backwards (specgrad.bounds.crown_bounds): errors that both
outputs share cancel there. Both hold for exact arithmetic too, and include the error of their own float64.

`question` is what is asked: the model, its decision and the executions (`DecisionProblem`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specgrad.graph.ir.tree import leaves

from ...bounds import Box, crown
from ...bounds.box import numpy_of
from ...graph.graph import CONSTANT, INPUT, Graph
from ...rounding import Arithmetic, Ball, radius
from ...scalar import Array
from .decision import THRESHOLD, Comparisons, Decision

MAX_ROW_ENTRIES = 1 << 24  # of the rows of one backward pass: 128 MB


@dataclass(frozen=True)
class DecisionProblem:
    """The graph, the decision and the class of executions for which every sample is judged.

    output       the position of the decided output among the graph's outputs
    stored       names of nodes whose results the runtime is known to round and store
    formats      node's name -> the format that the file declares for it, if another one: bytes, integers
    seconds      what linear bounds of one sample may take; what they leave is by intervals. None: no limit
    arithmetic   the class of executions
    """

    graph: Graph
    decision: Decision
    arithmetic: Arithmetic
    stored: tuple[str, ...] = ()
    output: int = 0
    formats: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None

    @property
    def is_uniform(self) -> bool:
        """Whether all arithmetic is in one format; bytes that are cropped, transposed and cast merely move."""
        return all(n.op.exact or n.op is INPUT or n.op is CONSTANT for n in self.graph.nodes if n.name in self.formats)

    @property
    def rows_at_once(self) -> int:
        """Return how many rows one backward pass may have, by memory: each is as large as a layer there."""
        cells = max(math.prod(n.shape) for n in self.graph.nodes)
        return max(1, MAX_ROW_ENTRIES // max(1, cells))

    def decided_output(self, values: Any) -> Any:
        """Return the output that is decided, of `values`, a structure of all outputs."""
        return leaves(values)[self.output]

    def offset(self) -> tuple[int, int]:
        """Return where the decided output begins among all real outputs, flattened, and their number of cells."""
        positions = self.graph.real_outputs
        sizes = [int(np.prod(self.graph.nodes[p].shape)) for p in positions]
        decided = positions.index(self.graph.output_positions[self.output])
        return sum(sizes[:decided]), sum(sizes)


@dataclass(frozen=True, eq=False)
class DecisionMargins:
    """What is known of the comparisons of one sample.

    value         the reference outputs, flat
    comparisons   what must hold
    low           a proven lower bound of every comparison's row, for every execution; -inf: none
    high          an upper bound, where one was computed; inf otherwise
    shape         of the outputs before they were flattened
    """

    value: Array
    comparisons: Comparisons
    low: Array
    high: Array
    shape: tuple[int, ...]

    @property
    def proven(self) -> Array:
        """The mask of comparisons that are proven."""
        return self.comparisons.hold(self.low)

    @property
    def margin(self) -> Array:
        """The reference value of each comparison: how far it is on the right side."""
        return self.comparisons.margins(self.value)

    @property
    def tolerance(self) -> Array:
        """How far executions may be below the margin, rounded up: margin - tolerance is proven."""
        demand, margin = self.comparisons.demand(), self.margin
        with np.errstate(invalid="ignore", over="ignore"):
            size = np.abs(margin) + np.abs(self.low) + np.abs(demand)
            short = margin - (self.low - demand) + 8 * np.spacing(size)
        return np.asarray(np.where(np.isfinite(short), np.maximum(short, 0.0), np.inf))

    def worst(self) -> int:
        """Return the comparison nearest to flipping: the smallest margin over tolerance, open ones first."""
        return int(self.worst_of(np.zeros(len(self.comparisons), int))[0])

    def worst_of(self, group: Array) -> Array:
        """Return the comparison nearest to flipping of each group; `group` has its number, 0, 1, ..., per
        comparison.
        """
        tolerance = self.tolerance
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(tolerance > 0, self.margin / tolerance, np.inf)
        order = np.lexsort((np.nan_to_num(ratio, nan=-np.inf), self.proven, group))
        return np.asarray(order[np.searchsorted(group[order], np.arange(group[order[-1]] + 1))])


def margins_at(question: DecisionProblem, inputs: Sequence[Array]) -> DecisionMargins:
    """Return the margins of the decision at one sample, `inputs`, by forward balls, then by crown where those leave
    something open.
    """
    ball = output_ball(question, inputs)
    margins = forward_margins(question, ball.value, ball.low, ball.high)
    points = [Box(x, x) if x.dtype.kind == "f" else x for x in inputs]
    return margins if margins.proven.all() or not question.is_uniform else tighten_by_crown(question, margins, points)


def forward_margins(question: DecisionProblem, value: Array, low: Array, high: Array) -> DecisionMargins:
    """Return the margins of the decision at one sample from its outputs: reference, and range over all executions."""
    comparisons = question.decision.comparisons(value, question.arithmetic.dtype)
    ends = row_bounds(comparisons, low.ravel(), high.ravel())
    return DecisionMargins(value.ravel(), comparisons, *ends, value.shape)


def output_ball(question: DecisionProblem, inputs: Sequence[Array]) -> Ball:
    """Return the forward ball of the output that `question` decides, at one sample: exact value and radius of all
    executions.

    UnsupportedError where an operator has no radius.
    """
    options: dict[str, Any] = {"stored": question.stored, "formats": question.formats}
    report = radius(question.graph, *inputs, arithmetic=question.arithmetic, backend="torch", **options)
    ball: Ball = question.decided_output(report.outputs)
    return ball


def row_bounds(c: Comparisons, low: Array, high: Array) -> tuple[Array, Array]:
    """Return (low, high) of every comparison's sign*y[larger] - y[smaller], from the ranges low..high of flat cells.

    A threshold is not subtracted: `c.demand()` is what a row must exceed. A difference of 0 stays 0; others are rounded
    outward.
    """
    ends = np.where(c.sign > 0, (low[c.larger], high[c.larger]), (-high[c.larger], -low[c.larger]))
    second = (np.where(c.smaller == THRESHOLD, 0.0, end[np.maximum(c.smaller, 0)]) for end in (high, low))
    with np.errstate(invalid="ignore"):
        below, above = (first - other for first, other in zip(ends, second, strict=True))
    moved = (below != 0) & (c.smaller != THRESHOLD)
    below = np.where(moved, np.nextafter(below, -np.inf), below)
    above = np.where(moved, np.nextafter(above, np.inf), above)
    return np.where(np.isnan(below), -np.inf, below), np.where(np.isnan(above), np.inf, above)


def tighten_by_crown(question: DecisionProblem, margins: DecisionMargins, boxes: Sequence[Any]) -> DecisionMargins:
    """Return the margins with open comparisons bounded backwards over these boxes; the better bound stays.

    `question` is the model and its decision.
    """
    low, high = margins.low.copy(), margins.high.copy()
    start, outputs = question.offset()
    open_ = np.flatnonzero(~margins.proven)
    back = RowBounder(question, boxes)
    for which in np.array_split(open_, math.ceil(len(open_) / question.rows_at_once)):
        rows = np.zeros((len(which), outputs))
        rows[:, start : start + margins.value.size] = margins.comparisons.only(which).rows(margins.value.size)
        ends = back.bounds(rows)
        low[which] = np.fmax(low[which], ends[0])
        high[which] = np.fmin(high[which], ends[1])
    return DecisionMargins(margins.value, margins.comparisons, low, high, margins.shape)


class RowBounder:
    """CROWN bounds of rows of the model in `question` over boxes, one per input; the forward pass is done once, at the
    first rows.
    """

    def __init__(self, question: DecisionProblem, boxes: Sequence[Any]) -> None:
        self.question, self.boxes = question, tuple(boxes)
        self.walked: list[Any] = []

    def bounds(self, rows: Array) -> tuple[Array, Array]:
        """Return (low, high), one per row, of the linear objectives `rows` (rows, outputs)."""
        q = self.question
        if self.walked:
            from specgrad.bounds.linear.intermediate.tighten import output_bounds

            low, high = output_bounds(self.walked[0], rows)
        else:
            options: dict[str, Any] = {"arithmetic": q.arithmetic, "stored": q.stored, "on_forward": self.walked.append}
            options["seconds"] = q.seconds
            bounds = crown(q.graph, *self.boxes, objective=rows, **options)
            low, high = numpy_of(bounds.low), numpy_of(bounds.high)
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
