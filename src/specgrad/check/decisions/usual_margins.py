"""Estimate which comparisons correct executions usually do not turn (specgrad.rounding.usual_error); nothing is proven.

The deviation of a difference of two outputs is at most the sum of theirs, whatever they share. A comparison counts as
kept where its margin is more than RUN_FACTOR times that sum, the factor that estimated tolerances take.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import UnsupportedError
from ...rounding.usual_error import usual_error
from ...scalar import Array
from ..verdicts.usual import RUN_FACTOR
from .flip_search import Execution
from .margins import DecisionMargins, DecisionProblem


def count_estimated(
    question: DecisionProblem, inputs: Sequence[Array], margins: DecisionMargins, pair: Sequence[Execution]
) -> int:
    """Return how many decisions of one sample, `inputs`, are not proven, and estimated to stay in all their open
    comparisons; those are not counted that the `pair` of executions, if there is one, makes differently.
    """
    place, open_ = margins.comparisons.place, ~margins.proven
    turning = open_ & ~_usually_kept(question, inputs, margins)
    if pair:
        differs = pair[0].decision != pair[1].decision
        turning |= open_ & differs.reshape(len(differs), -1).any(1)[place]
    return len(np.unique(place[open_])) - len(np.unique(place[turning]))


def _usually_kept(question: DecisionProblem, inputs: Sequence[Array], margins: DecisionMargins) -> Array:
    """Return the mask of comparisons of one sample, `inputs`, that correct executions are estimated to keep: none
    where no usual error is known: of an operator, of factors or sums in formats of their own, of a cell.
    """
    c, a = margins.comparisons, question.arithmetic
    if a.operands or a.accumulate:
        return np.zeros(len(c), bool)
    try:
        usual = usual_error(question.graph, inputs, "torch", question.formats, a.dtype)
    except UnsupportedError:
        return np.zeros(len(c), bool)
    known = ~usual.unsure[question.output].ravel()
    off = np.where(known, usual.deviations[question.output].ravel(), np.inf)
    return margins.margin > RUN_FACTOR * (off[c.larger] + np.where(c.smaller >= 0, off[np.maximum(c.smaller, 0)], 0.0))
