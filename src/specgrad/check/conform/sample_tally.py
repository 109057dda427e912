"""What a sample of one output's cells has shown so far: the worst verdict, how many were judged, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from specgrad.errors import UnsupportedError
from specgrad.graph.graph import Graph
from specgrad.rounding import Ball
from specgrad.rounding.usual_error import UsualError, usual_error
from specgrad.scalar import Array

from ..verdicts.judge import Verdict, judge_array, mismatches, worst
from ..verdicts.usual import Usual, compare, is_estimated
from .cell_sample import Selection

MAX_USUAL = 2**20  # cells of one output that are held beside what is usual


@dataclass(frozen=True)
class ErrorSample:
    """Errors e of the judged cells of one output with exact values y: estimates of those of all its cells.

    cells   how many were judged and have a finite value and error
    mean    of e
    slope   sum of e*y over the sum of y*y: a common factor of 1 + slope
    usual   e beside what is usual (specgrad.check.verdicts.usual); None where nothing is estimated
    """

    cells: int
    mean: float
    slope: float
    usual: Usual | None = None


@dataclass(frozen=True, eq=False)
class JudgedPart:
    """A selection of cells that was judged.

    selection   which cells of the output
    got, ball   what the kernel wrote there, and what is allowed
    graph, arrays   the reference cropped to them, and its inputs; None where sums were computed block by block
    """

    selection: Selection
    got: Array
    ball: Ball
    graph: Graph | None
    arrays: Sequence[Array]


@dataclass(eq=False)
class SampleTally:
    """The findings on one output, called `name`, that has so many `cells`.

    verdict     the worst so far; `index` is a cell of the whole output
    judged      cells that were judged; where selections overlap, each time
    open_cells  of these, cells of which nothing is proven
    draws       of these, cells that were drawn independently
    left_out    selections of borders and tile edges that cost too much
    seen, allowed   error and allowance of the cell whose error is the largest part of its allowance
    complete    whether all cells were judged
    wrong       cells, of those judged, that nothing explains
    part        the selection in which the worst verdict was found
    sums        number of cells, sum of errors, of errors times values, and of squared values
    beside      per selection, got, value, deviation, and which cells count; while there is room
    alike       whether terms of some sum come in runs of equal ones (specgrad.rounding.usual_error)
    """

    name: str
    cells: int
    verdict: Verdict = field(default_factory=lambda: Verdict("exact"))
    judged: int = 0
    open_cells: int = 0
    draws: int = 0
    left_out: int = 0
    seen: float = 0.0
    allowed: float = 0.0
    complete: bool = False
    wrong: int = 0
    part: JudgedPart | None = None
    sums: Array = field(default_factory=lambda: np.zeros(4))
    beside: list[tuple[Array, ...]] = field(default_factory=list)
    alike: bool = False

    def restart(self) -> None:
        """Forget what was found: cells that are judged again are no further draws."""
        vars(self).update(vars(SampleTally(self.name, self.cells)))

    def add(self, part: JudgedPart) -> None:
        """Add to counts and worst verdict those of a selection of cells."""
        selection, got, ball = part.selection, part.got, part.ball
        verdict = judge_array(self.name, got, ball)
        here = tuple(int(p[i]) for p, i in zip(selection.positions, verdict.index, strict=False))
        verdict = replace(verdict, index=here) if verdict.index else verdict
        if verdict.ratio > self.verdict.ratio or not self.judged:
            self.seen, self.allowed = abs(verdict.actual - verdict.expected), verdict.allowed
        before, self.verdict = self.verdict, worst([self.verdict, verdict])
        if self.part is None or self.verdict is not before:
            self.part = part
        if verdict.kind == "differs":
            self.wrong += int(np.count_nonzero(mismatches(got, ball)))
        self.judged += selection.count
        self.draws += selection.draws
        self.complete = self.complete or selection.count == self.cells
        self.open_cells += int(np.isinf(ball.radius).sum())
        if ball.value.dtype.kind == "f":
            self._add_errors(got.astype(np.float64), ball.value)

    def _add_errors(self, got: Array, value: Array) -> None:
        """Add the errors of `got` with exact values to the sums, where both are finite."""
        known = np.isfinite(got) & np.isfinite(value)
        y = np.where(known, value, 0.0)
        with np.errstate(all="ignore"):
            e = np.where(known, got - y, 0.0)
            self.sums += [known.sum(), e.sum(), (e * y).sum(), (y * y).sum()]

    def add_usual(self, graph: Graph, arrays: Sequence[Any], got: Array, backend: str) -> None:
        """Add what errors of the cells `got`, computed by `graph` from `arrays`, usually are, if there is room and that
        is known.

        `backend` ("numpy" or "torch") computes the estimate; only float32 has one.
        """
        room = MAX_USUAL - sum(part[0].size for part in self.beside)
        if got.dtype != np.float32 or got.size > room or not is_estimated(graph):
            return
        try:
            estimate = usual_error(graph, arrays, backend)
        except UnsupportedError:
            return
        known = np.isfinite(got) & ~estimate.unsure[0]
        self.beside.append((got, estimate.values[0], estimate.deviations[0], known))
        self.alike = self.alike or estimate.alike[0]

    def errors(self) -> ErrorSample:
        """Return statistics of the errors so far."""
        count, total, product, squares = map(float, self.sums)
        mean, slope = total / count if count else 0.0, product / squares if squares else 0.0
        return ErrorSample(int(count), mean, slope, self._usual())

    def _usual(self) -> Usual | None:
        """Return how the errors in `beside` compare with their estimated deviations; None if none was estimated."""
        if not self.beside:
            return None
        got, value, deviation, known = (np.concatenate([p[k].ravel() for p in self.beside]) for k in range(4))
        estimate = UsualError([value], [deviation], [~known], [self.alike])
        return compare(got, estimate, known, -1)
