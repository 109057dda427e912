"""Prove the decision of a sample for every input of a box around it, on every execution, by `certify`.

`question` is what is asked: the model, its decision and the executions (`DecisionProblem`).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.bounds import Box, certify
from specgrad.bounds.search.network.pgd_attack import DeployedNetwork
from specgrad.bounds.search.network.witnesses import held_run
from specgrad.properties.property import Alternative, Case, Property
from specgrad.scalar import Array, float_above, float_below

from .margins import DecisionMargins, DecisionProblem, output_ball, tighten_by_crown


def margins_over_box(
    question: DecisionProblem,
    inputs: Sequence[Array],
    eps: Fraction,
    limits: tuple[Any, Any],
    seconds: float,
    whole: bool,
    source: Any = None,
) -> tuple[DecisionMargins, list[dict[str, Any]]]:
    """Return the margins over the box, and executions of an input in it that is decided differently, if found.

    question  the model and its decision
    seconds   for `certify`

    The box is `inputs` +- eps, cut at `limits`: (least, most), each may be None.

    Linear bounds of every comparison first; what they leave open is a property for `certify`, with one alternative
    per comparison.
    whole    inputs are bytes or other integers: only such an input can be shown
    source   the ONNX file or PyTorch module that the graph was read from: who is asked at the other input
    """
    ball = output_ball(question, inputs)
    comparisons = question.decision.comparisons(ball.value, question.arithmetic.dtype)
    unknown = np.full(len(comparisons), np.inf)
    margins = DecisionMargins(ball.value.ravel(), comparisons, -unknown, unknown, ball.shape)
    if not np.isfinite(ball.value).all():
        return margins, []
    cells = [_exact_box(x, eps, limits) for x in inputs]
    boxes = [_float_box(x, *ends) for x, ends in zip(inputs, cells, strict=True)]
    margins = tighten_by_crown(question, margins, boxes)
    if margins.proven.all() or len(inputs) > 1 or len(question.graph.output_positions) > 1:
        return margins, []
    return _certify_open(question, margins, inputs[0], cells[0], seconds, whole, source)


def _exact_box(x: Array, eps: Fraction, limits: tuple[Any, Any]) -> tuple[list[Fraction], list[Fraction]]:
    """Return exact (low, high) of the box x +- eps, within the limits (least, most), each of which may be None."""
    middle = [Fraction(float(v)) for v in x.ravel()]
    low, high = (None if e is None else Fraction(e) for e in limits)
    lows = [v - eps if low is None else max(v - eps, low) for v in middle]
    highs = [v + eps if high is None else min(v + eps, high) for v in middle]
    return lows, highs


def _float_box(x: Array, low: list[Fraction], high: list[Fraction]) -> Box:
    """Return the box low..high of exact numbers in the shape of x, in float64 and rounded outward."""
    ends = [float_below(v) for v in low], [float_above(v) for v in high]
    return Box(*(np.array(end).reshape(x.shape) for end in ends))


def _certify_open(
    question: DecisionProblem,
    margins: DecisionMargins,
    x: Array,
    cells: tuple[list[Fraction], list[Fraction]],
    seconds: float,
    whole: bool,
    source: Any,
) -> tuple[DecisionMargins, list[dict[str, Any]]]:
    """Return the margins after `certify`, for `seconds`, on the open comparisons of `margins`, and executions that it
    shows to differ.

    `cells` is the exact box of the sample x, low and high; `whole` and `source` as in `margins_over_box`. `question` is
    the model and its decision. ContradictionError if a proof and a counterexample meet.
    """
    open_ = np.flatnonzero(~margins.proven)
    some = margins.comparisons.only(open_)
    pairs = zip(some.rows(margins.value.size), some.demand().tolist(), strict=True)
    alternatives = tuple(Alternative(row[None], (Fraction(limit),)) for row, limit in pairs)
    case = Case(tuple(cells[0]), tuple(cells[1]), alternatives)
    stated = Property(x.size, margins.value.size, (case,))
    asked = None if whole else source  # of a file that takes whole numbers certify would ask what is between them
    verdict = certify(question.graph, stated, seconds=seconds, arithmetic=question.arithmetic, source=asked)
    if verdict.verdict == "holds":
        low = margins.low.copy()
        proven = np.nextafter(some.demand(), np.inf)  # float32 outputs that are larger are at least this
        low[open_] = np.fmax(low[open_], np.fmax(proven, some.demand() + np.array(verdict.margins[0])))
        return DecisionMargins(margins.value, margins.comparisons, low, margins.high, margins.shape), []
    if verdict.counterexample is None:
        return margins, []
    point = verdict.counterexample
    other = np.rint(point.x) if whole else point.x
    shown = _differing_executions(question, margins, x, other) if case.has(other) else []
    if shown and not whole:
        shown[-1]["asked"] = [{"who": run.who, "outcome": run.outcome} for run in point.runs]
    return margins, shown


def _differing_executions(
    question: DecisionProblem, margins: DecisionMargins, x: Array, other: Array
) -> list[dict[str, Any]]:
    """Return the executions at the sample x and at the `other` input as JSON, if they decide differently; else [].

    The shape of the output is taken from `margins`. `question` is the model and its decision.
    """
    network, decision = DeployedNetwork(question.graph), question.decision
    runs: dict[str, tuple[Array, Array | None]] = {"torch at the sample": (held_run(network, x), None)}
    runs["torch at an input within eps"] = held_run(network, other), other
    decided = [decision.of(np.asarray(y, float).reshape(margins.shape)) for y, _ in runs.values()]
    differs = (decided[0] != decided[1]).reshape(len(decided[0]), -1).any(1)
    if not differs.any():
        return []
    place = int(np.flatnonzero(differs)[0])
    shown = []
    for (name, (y, at)), one in zip(runs.items(), decided, strict=True):
        outputs = {str(k): float(v) for k, v in enumerate(np.ravel(y).tolist())}
        shown.append({"name": name, "decision": one[place].tolist(), "outputs": outputs})
        shown[-1] |= {} if at is None else {"input": np.ravel(at).tolist()}
    return shown
