"""Estimate a tolerance where no proof is in reach: what correct executions usually differ by, times a factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.errors import UnsupportedError, printable
from specgrad.graph.graph import Graph
from specgrad.graph.ir.node import bind_inputs
from specgrad.rounding import Arithmetic
from specgrad.rounding.usual_error import usual_error
from specgrad.scalar import Array, upward

from ..models.load import ModelAtPoints, at_points
from ..verdicts.usual import RUN_FACTOR
from .point_bounds import spread_of

PAIR = 2.0**0.5  # two executions that err independently are so much farther apart than one from the exact outputs


@dataclass(frozen=True, eq=False)
class EstimatedTolerance:
    """What correct executions usually differ by at given inputs; an estimate, nothing of it is proven.

    names        of the outputs that hold numbers
    deviations   per output, the largest estimated standard deviation of a cell; inf: not known
    spreads      per output, how much its cells differ: a tolerance beside which that is small says nothing
    factor       how many deviations the tolerance is
    """

    names: tuple[str, ...]
    deviations: tuple[float, ...]
    spreads: tuple[float, ...]
    factor: float = RUN_FACTOR

    @property
    def tolerance(self) -> float:
        """The estimated distance of a correct execution from the exact outputs, over all outputs."""
        return self.factor * max(self.deviations, default=0.0)

    @property
    def pairwise_tolerance(self) -> float:
        """The estimated distance of two correct executions."""
        return PAIR * self.tolerance

    @property
    def is_useful(self) -> bool:
        """Whether two correct executions are less apart in every output than its cells are."""
        pairs = zip(self.deviations, self.spreads, strict=True)
        return all(np.isfinite(d) and PAIR * self.factor * d <= spread for d, spread in pairs)

    @property
    def is_one_for_all(self) -> bool:
        """Whether the largest tolerance says something of every output; of outputs of other sizes it does not."""
        return self.is_useful and self.pairwise_tolerance <= min(self.spreads, default=np.inf)

    @property
    def assert_lines(self) -> list[str]:
        """Return lines to paste into a test, one per output where one number is not for all; each says "estimated"."""
        if self.is_one_for_all:
            return [_assert_line(self.pairwise_tolerance, "estimated, not proven")]
        pairs = zip(self.names, self.deviations, strict=True)
        return [
            _assert_line(PAIR * self.factor * d, f"output {printable(name)}: estimated, not proven")
            for name, d in pairs
        ]

    def sentences(self) -> list[str]:
        """Return what is estimated in words, and lines to paste into a test."""
        within = f"within {upward(self.tolerance, 2)} of the exact outputs, " if self.is_one_for_all else "within "
        return [
            f"Estimated, not proven: correct executions are {within}{self.factor:g} times their usual deviation"
            f"{', and' if self.is_one_for_all else ' of the exact outputs, and'} pass",
            *(f"    {line}" for line in self.assert_lines),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data, marked as `estimated`: tolerance, pairwise_tolerance, atol, factor, and `outputs` with
        name, deviation and spread.

        The first three are null where one tolerance does not suit all outputs.
        """
        said = self.is_one_for_all
        return {
            "estimated": True,
            "tolerance": self.tolerance if said else None,
            "pairwise_tolerance": self.pairwise_tolerance if said else None,
            "atol": float(upward(self.pairwise_tolerance, 2)) if said else None,
            "factor": self.factor,
            "outputs": [
                {"name": name, "deviation": deviation, "spread": spread}
                for name, deviation, spread in zip(self.names, self.deviations, self.spreads, strict=True)
            ],
        }


def _assert_line(atol: float, words: str) -> str:
    """Return the line to paste into a test for the tolerance `atol`, with `words` as its comment."""
    return f"numpy.testing.assert_allclose(a, b, rtol=0, atol={upward(atol, 2)})  # {words}"


def estimate_tolerance(
    model: Any, *inputs: Any, arithmetic: Arithmetic | None = None, points: bool = False
) -> EstimatedTolerance:
    """Return the estimated tolerance of a model at the given inputs, of all points together; arguments as `tolerance`.

    UnsupportedError where an operator stands in the way of which no usual error is known. `arithmetic` has no operands
    or accumulators of its own, else UnsupportedError; None: float32, fused.

    >>> import specgrad as sg
    >>> mean = sg.trace(lambda x: sg.sum(x) / 3, (3,))
    >>> usual = estimate_tolerance(mean, np.float32([1, 2, 4]))
    >>> bool(1e-7 < usual.tolerance < 1e-5), usual.is_useful
    (True, True)
    """
    wanted = arithmetic or Arithmetic()
    return estimate_at(at_points(model, inputs, "tolerance", wanted, points), wanted)


def estimate_at(at: ModelAtPoints, arithmetic: Arithmetic) -> EstimatedTolerance:
    """Return the estimated tolerance, in `arithmetic`, of a model that was read already, at its points.

    UnsupportedError for operands or sums in another format.
    """
    arithmetic.check_plain("tolerance")
    if arithmetic.operands or arithmetic.accumulate:
        raise UnsupportedError("tolerance", "usual errors are known of sums in the format itself, or in float32")
    graph = at.graph
    per_point = [_usual_at_point(graph, one, at.formats, arithmetic) for one in at.points]
    outputs = [graph.output_positions.index(p) for p in graph.real_outputs]
    return EstimatedTolerance(
        tuple(graph.nodes[graph.output_positions[k]].name for k in outputs),
        tuple(max(deviations[k] for deviations, _ in per_point) for k in outputs),
        tuple(max(spreads[k] for _, spreads in per_point) for k in outputs),
    )


def _usual_at_point(
    graph: Graph, inputs: Sequence[Any], formats: Any, arithmetic: Arithmetic
) -> tuple[list[float], list[float]]:
    """Return the largest usual deviation and the spread of every output at one input.

    `formats` are of nodes in other formats than that of `arithmetic`. ShapeError for inputs that do not fit;
    UnsupportedError where an operator has no estimate.
    """
    arrays = bind_inputs(graph, tuple(inputs))
    estimate = usual_error(graph, [arrays[p] for p in graph.input_positions], "torch", formats, arithmetic.dtype)
    largest = [float(d.max(initial=0.0)) for d in estimate.deviations]
    return largest, [spread_of(np.asarray(v, np.float64)) if v.size else 0.0 for v in estimate.values]


def is_useful(tolerances: Sequence[Array], exact: Sequence[Array], share: float) -> bool:
    """Return whether every output's proven tolerance is at most `share` of its spread.

    `exact` are the outputs' values, `tolerances` those of their cells.
    """
    pairs = zip(tolerances, exact, strict=True)
    return all(not t.size or float(t.max()) <= share * spread_of(v) for t, v in pairs)
