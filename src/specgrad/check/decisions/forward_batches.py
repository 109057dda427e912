"""Forward margins of many samples in one pass of balls: those that they settle never reach crown.

The graph of one sample is stacked (`specgrad.partition.stacked_graph`), and `radius` is asked for the stacked graph as
for any other: the rounding rules are those of one sample, and no formula is added. What they prove holds for every
execution of the stacked graph, and the single samples, each executed in whatever way, are one of those. A radius may be
wider than that of the sample alone, since rules that look at all cells look at other samples too (the largest number
that a product may meet, the cells that a sum may read). It may be narrower, where another sample's large numbers have a
bound kept cell by cell that is otherwise one for all cells. Both hold. So a decision that is proven here is proven; one
that is not is judged again alone, and none is lost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...graph.graph import Graph
from ...partition.stacked_graph import StackedGraph, stack_samples
from ...rounding import radius
from ...scalar import Array
from .margins import DecisionProblem, forward_margins
from .sample_verdict import Sample, sample_verdicts
from .samples import Samples

MAX_SAMPLES = 256
MAX_CELLS = 1 << 19  # of the largest node, over all samples of a batch: about a dozen arrays of 4 MB are held


def samples_at_once(graph: Graph) -> int:
    """Return how many samples are stacked, by the cells of the largest node of the graph of one."""
    largest = max(math.prod(n.shape) for n in graph.nodes)
    return max(1, min(MAX_SAMPLES, MAX_CELLS // max(1, largest)))


@dataclass(eq=False)
class ForwardBatches:
    """Verdicts by forward balls for the decision of `question`, batch by batch of `samples`.

    stacked   number of samples -> their graph; None where they cannot be stacked
    kept      the first sample of the last batch, and the verdicts on that batch

    A batch is always the same samples, whichever of them are asked for: what a run that goes on finds is what a run
    without a stop finds.
    """

    question: DecisionProblem
    samples: Samples
    stacked: dict[int, StackedGraph | None] = field(default_factory=dict)
    kept: tuple[int, list[Sample | None]] = (-1, [])

    def settled(self, number: int) -> Sample | None:
        """Return the verdict on a sample if forward balls prove its decisions; None: it must be judged alone.

        Of a sample that is not finite nothing is known here.
        """
        each = samples_at_once(self.question.graph)
        first = number // each * each
        if self.kept[0] != first:
            self.kept = first, self._verdicts(first, min(first + each, len(self.samples)))
        sample = self.kept[1][number - first] if self.kept[1] else None
        return sample if sample is not None and sample.verdict == "proven" else None

    def _verdicts(self, first: int, stop: int) -> list[Sample | None]:
        """Return the verdicts on samples first ... stop - 1, None where outputs are not finite; [] where samples cannot
        be stacked.
        """
        start, stacked = time.monotonic(), self._stacked(stop - first)
        if stacked is None:
            return []
        q = self.question
        options: dict[str, Any] = {"stored": q.stored, "formats": q.formats}
        inputs = finite_samples(self.samples.stacked_numbers(first, stop))
        report = radius(stacked.graph, *inputs, arithmetic=q.arithmetic, backend="torch", **options)
        ball = q.decided_output(report.outputs)
        margins = forward_margins(q, ball.value, ball.low, ball.high)
        verdicts = sample_verdicts(q, margins, first, stop - first, time.monotonic() - start)
        finite = np.isfinite(ball.value).reshape(len(verdicts), -1).all(1)
        return [verdict if known else None for verdict, known in zip(verdicts, finite, strict=True)]

    def _stacked(self, count: int) -> StackedGraph | None:
        """Return the graph of so many samples; None for a single one, and where samples or decisions do not stay
        apart.
        """
        if count not in self.stacked:
            self.stacked[count] = self._stack(count) if count > 1 and all(self.samples.batched) else None
        return self.stacked[count]

    def _stack(self, count: int) -> StackedGraph | None:
        """Return the graph of so many samples; None where these, or their decisions, do not stay apart."""
        q = self.question
        try:
            stacked = stack_samples(q.graph, count)
        except UnsupportedError:
            return None
        shape = stacked.graph.nodes[stacked.graph.output_positions[q.output]].shape
        apart = stacked.outputs[q.output].axis == 0 and q.decision.keeps_rows_apart(shape)
        return stacked if apart else None


def finite_samples(inputs: Sequence[Array]) -> list[Array]:
    """Return the inputs with zeros for every sample that is not finite in one of them: others share sums with it.

    >>> finite_samples([np.array([[1.0], [np.nan]]), np.array([[2.0], [3.0]])])
    [array([[1.],
           [0.]]), array([[2.],
           [0.]])]
    """
    lost = np.zeros(len(inputs[0]), bool)
    for x in inputs:
        lost |= ~np.isfinite(x).reshape(len(x), -1).all(1)
    return [np.where(lost.reshape(-1, *[1] * (x.ndim - 1)), 0, x) for x in inputs] if lost.any() else list(inputs)
