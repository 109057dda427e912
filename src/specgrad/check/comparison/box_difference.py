"""Bound the difference of two networks over a box of inputs, of exact outputs and of executions.

What holds at once is intersected, cell by cell: the bounds of each network by itself, linear bounds of the one graph
that subtracts them, and the difference carried from layer to layer (specgrad.check.comparison.difference_network).
An execution is not farther from exact values than executions of its network deviate
(specgrad.check.comparison.execution_deviation), so two are not farther apart than the exact outputs and both
deviations. The class is named by the arithmetic; both get the same input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.bounds import Bounds, crown
from specgrad.bounds.box import numpy_of
from specgrad.equivalence.normal_form import NormalForm
from specgrad.equivalence.term_table import TermTable
from specgrad.errors import SpecgradError, TimeLimitError
from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves
from specgrad.rounding import Arithmetic
from specgrad.scalar import Array, upward

from .difference_bounds import DifferenceBounds, difference_over_box, nan_to_unbounded
from .difference_network import build_difference
from .execution_deviation import bound_executions, execution_deviation
from .search import search_witness

SUM_SLACK = 1 + 2.0**-48  # a few sums of ours


@dataclass(frozen=True, eq=False)
class BoxDifference:
    """Bounds of the difference of two networks over a box.

    max_difference             no input of the box sets their exact outputs farther apart; inf: nothing is known
    max_execution_difference   no two executions of the class, one of each network, at one input of the box, are
                               farther apart
    witness_difference         so far apart, at least, the exact outputs are at `inputs`; 0: no input that was tried
                               shows a difference
    how                        what `max_difference` was found by
    independent_bound          what bounds of each network by itself would say
    """

    max_difference: float
    max_execution_difference: float
    witness_difference: float = 0.0
    inputs: tuple[Array, ...] = ()
    how: str = ""
    independent_bound: float = math.inf

    def sentences(self, words: str, excluded: str = "") -> list[str]:
        """Return the bounds as lines of text; `words` names the class of executions, `excluded` is appended to it."""
        lines = [f"in the box: exact outputs are at most {upward(self.max_difference)} apart ({self.how})"]
        if self.witness_difference > 0:
            lines[0] += f", and {self.witness_difference:.4g} at some input"
        if math.isfinite(self.max_execution_difference):
            far = f"{upward(self.max_execution_difference)} apart{excluded}"
            lines.append(f"in the box: executions ({words}) of both are at most {far}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: max_difference, max_execution_difference, independent_bound, witness_difference, and `how`
        they were found; null stands for what is not known.
        """
        known = {"max_difference": self.max_difference, "max_execution_difference": self.max_execution_difference}
        known["independent_bound"] = self.independent_bound
        finite = {k: v if math.isfinite(v) else None for k, v in known.items()}
        return {**finite, "witness_difference": self.witness_difference, "how": self.how}


def bound_difference(
    a: NormalForm,
    b: NormalForm,
    table: TermTable,
    boxes: tuple[Any, ...],
    arithmetic: Arithmetic | None,
    same: bool,
    clock: Any,
) -> BoxDifference:
    """Return bounds of the difference of two networks over the boxes, one per input (an array: a fixed input).

    TimeLimitError if the time is over before both networks are bounded.

    arithmetic   the class of executions; None: executions are not bounded
    same         the exact outputs are known to be equal
    clock        returns how many seconds remain; None: any number
    """
    alone = [_bound_network(form.graph, boxes, arithmetic or Arithmetic(), clock) for form in (a, b)]
    each = _independent_difference(*(bounds for bounds, _ in alone))
    gaps = [] if each is None else [each]
    if same:
        nothing = tuple(np.zeros(a.graph.nodes[p].shape) for p in a.graph.real_outputs)
        gaps.append(DifferenceBounds(nothing, nothing, "one function"))
    else:
        gaps += _joint_differences(a, b, table, boxes, [bounds for bounds, _ in alone], clock)
    most = _intersection([gap.most for gap in gaps])
    largest, how = _largest_cell(most), min(gaps, key=lambda gap: gap.largest).how
    apart = math.inf if arithmetic is None else _execution_difference(a.graph, b.graph, boxes, alone, most, each, clock)
    least, inputs = search_witness(a.graph, b.graph, boxes, clock) if largest else (0.0, ())
    return BoxDifference(largest, apart, least, inputs, how, math.inf if each is None else each.largest)


def _largest_cell(ends: tuple[Array, ...]) -> float:
    """Return the largest cell of all arrays `ends`."""
    return max((float(e.max(initial=0.0)) for e in ends), default=0.0)


def _intersection(ends: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Return the smallest of several upper bounds `ends`, each a tuple of one array per output, cell by cell."""
    return tuple(np.min(np.stack(cells), axis=0) for cells in zip(*ends, strict=True))


# --- exact outputs ----------------------------------------------------------------------------------------------------


def _bound_network(
    graph: Graph, boxes: tuple[Any, ...], arithmetic: Arithmetic, clock: Any
) -> tuple[Bounds | None, Any]:
    """Return bounds of all executions of one network, exact arithmetic included, and its forward pass; or Nones.

    `boxes` has one per input; `clock` returns how many seconds remain. TimeLimitError if they are over before the end.
    """
    try:
        return bound_executions(graph, boxes, arithmetic, clock())
    except TimeLimitError:
        raise
    except SpecgradError:
        return None, None


def _independent_difference(a: Bounds | None, b: Bounds | None) -> DifferenceBounds | None:
    """Return the bounds of both networks, subtracted; they hold for executions as well. None if unknown."""
    if a is None or b is None:
        return None
    pairs = list(zip(_output_bounds(a), _output_bounds(b), strict=True))
    with np.errstate(invalid="ignore"):
        low = tuple(np.nextafter(p[0] - q[1], -np.inf) for p, q in pairs)
        high = tuple(np.nextafter(p[1] - q[0], np.inf) for p, q in pairs)
    return DifferenceBounds(*nan_to_unbounded(low, high), "each network by itself")


def _output_bounds(bounds: Bounds) -> list[tuple[Array, Array]]:
    """Return NumPy arrays (low, high) of every real output of `bounds`."""
    return [(numpy_of(box.low), numpy_of(box.high)) for box in leaves(bounds.outputs) if box is not None]


def _joint_differences(
    a: NormalForm, b: NormalForm, table: TermTable, boxes: tuple[Any, ...], alone: list[Bounds | None], clock: Any
) -> Iterator[DifferenceBounds]:
    """Yield bounds of the exact difference: from layer to layer, and of the graph that subtracts the outputs.

    `alone` are the bounds of each network over the boxes; `table` is that of both normal forms. `clock` returns how
    many seconds remain.
    """
    known = [{} if bounds is None else bounds.layers for bounds in alone]
    made = build_difference(a, b, table, (known[0], known[1]))
    try:
        bounds = crown(made.graph, *boxes, *made.boxes, deployed=False, seconds=clock())
    except SpecgradError:
        pass
    else:
        ends = _output_bounds(bounds)
        yield DifferenceBounds(
            tuple(low for low, _ in ends), tuple(high for _, high in ends), "carried from layer to layer"
        )
    yield difference_over_box(a.graph, b.graph, boxes, clock())


# --- executions -------------------------------------------------------------------------------------------------------


def _execution_difference(
    a: Graph, b: Graph, boxes: tuple[Any, ...], alone: list[Any], most: tuple[Array, ...], each: Any, clock: Any
) -> float:
    """Return an upper bound of the difference of two executions over all cells; inf if unknown.

    `clock` returns how many seconds remain.

    alone   of each graph: its bounds over the boxes, and its forward pass (`_bound_network`)
    most    per output, how far the exact values of the two are apart
    each    the difference of the two ranges, which holds for executions too; None if unknown
    """
    ends = [] if each is None else [each.most]
    one, other = (_deviation_or_none(g, boxes, walked, clock) for g, (_, walked) in zip((a, b), alone, strict=True))
    if one is not None and other is not None:
        ends.append(tuple((m + p + q) * SUM_SLACK for m, p, q in zip(most, one, other, strict=True)))
    return _largest_cell(_intersection(ends)) if ends else math.inf


def _deviation_or_none(graph: Graph, boxes: tuple[Any, ...], walked: Any, clock: Any) -> tuple[Array, ...] | None:
    """Return the deviation of executions from exact values, per output; None if unknown.

    `walked` is the forward pass over `boxes` (`bound_executions`); `clock` returns how many seconds remain.
    """
    try:
        return None if walked is None else execution_deviation(graph, boxes, walked, clock())
    except SpecgradError:
        return None
