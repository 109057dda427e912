"""Networks whose outputs are positions (ArgMax, ArgMin): a property of positions as inequalities of the scores.

Position k wins over scores s if s_k >= s_j for every j, and of equal scores the first one counts, or the last one
(ONNX's select_last_index). So "Y_0 is one of 0, 1, 2" is three alternatives, each with a winner:

    a counterexample   obeys the rule exactly, ties included: `Winners.contains`
    a proof            excludes more: every s with s_j - s_k <= 2**-125 for all j. Without the slack an execution that
                       counts subnormal scores as zero (each below 2**-126) could find a tie where there is none
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from specgrad.errors import ContradictionError, UnsupportedError
from specgrad.graph.graph import INPUT, Graph, section
from specgrad.ops.sorting import TOP_INDEX
from specgrad.properties.property import Alternative, Case, Property, refuse_too_many_entries, robustness
from specgrad.scalar import Array

from ..network.pgd_attack import Counterexample, DeployedNetwork, Run
from ..network.witnesses import witnessed

FLUSHED = Fraction(1, 2**125)
MAX_WINNER_COMBINATIONS = 4096  # ways in which the positions that an alternative names may fall


@dataclass(frozen=True, eq=False, kw_only=True)
class Winners(Alternative):
    """Alternative of a property: the region of scores in which given cells win.

    lines    the flat cells of each choice in order, (choices, cells)
    winners  which of them wins, per choice
    sign     1: the largest wins; -1: the smallest
    last     of equal cells the last one wins, not the first
    """

    lines: Array
    winners: tuple[int, ...]
    sign: int
    last: bool

    def contains(self, y: Array) -> bool:
        """Whether the given cells win at scores y, by the exact rule of ties; False beside a NaN or infinity.

        >>> tie = np.float32([2, 2])
        >>> [winner_of(np.array([[0, 1]]), (k,), 1, last).contains(tie) for last in (False, True) for k in (0, 1)]
        [True, False, False, True]
        """
        scores = self.sign * np.ravel(y)
        if not np.isfinite(scores).all():
            return False
        return all(_argmax(scores[line], self.last) == k for line, k in zip(self.lines, self.winners, strict=True))

    def decided(self, low: Sequence[Fraction | None], high: Sequence[Fraction | None]) -> bool | None:
        """Whether the cells win for all scores in low..high (True), for none (False); None if undecided or by ties."""
        nothing = (Fraction(0),) * len(self.rows)
        if Alternative(self.rows, nothing, strict=frozenset(range(len(nothing)))).decided(low, high):
            return True
        return None if Alternative(self.rows, nothing).decided(low, high) is not False else False


def _argmax(scores: Array, last: bool) -> int:
    """Return the position of the largest of `scores`; of equal ones the first, or the last if `last`."""
    return len(scores) - 1 - int(np.argmax(scores[::-1])) if last else int(np.argmax(scores))


def winner_of(lines: Array, winners: tuple[int, ...], sign: int, last: bool, outputs: int | None = None) -> Winners:
    """Return the alternative in which these cells win: sign*(s_j - s_k) <= FLUSHED for every other cell j of a line.

    lines, winners, sign, last: see `Winners`. `outputs` is the number of all cells; None: those up to the last in
    `lines`.
    """
    count = int(lines.max(initial=-1)) + 1 if outputs is None else outputs
    rows = np.zeros((len(winners) * (lines.shape[1] - 1), count))
    at = iter(rows)
    for line, k in zip(lines, winners, strict=True):
        for j in np.delete(line, k):
            row = next(at)
            row[j], row[line[k]] = sign, -sign
    return Winners(rows, (FLUSHED,) * len(rows), lines=lines, winners=winners, sign=sign, last=last)


@dataclass(frozen=True, eq=False)
class ArgmaxSource:
    """Source of ArgMax or ArgMin outputs: `scores` is a node; lines[c] are its cells that output c chooses from.

    `sign` is -1 for ArgMin, else 1; of equal scores the last wins if `last`, else the first.
    """

    scores: int
    lines: Array
    sign: int
    last: bool


def choice_of(graph: Graph) -> ArgmaxSource | None:
    """Return the ArgMax or ArgMin behind a graph's only output; None if the output is real. Other indices are refused.

    >>> import specgrad as sg
    >>> choice_of(sg.trace(lambda x: sg.argmax(sg.relu(x), 1), (2, 3))).lines.tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    (out,) = graph.output_positions
    if graph.nodes[out].kind != "index":
        return None
    behind = [i for i, node in enumerate(graph.nodes[: out + 1]) if node.op is TOP_INDEX and node.params["k"] == 1]
    part, inputs = section(graph, out, behind) if out not in behind else (None, [out])
    if len(inputs) != 1 or graph.nodes[inputs[0]].op is INPUT:
        text = "its output is positions that no single ArgMax or ArgMin gives, and a property is about numbers"
        raise UnsupportedError("certify", f"{graph.nodes[out].name!r}: {text}")
    (at,) = inputs
    top = graph.nodes[at]
    (source,) = top.operands()
    shape, axis = graph.nodes[source].shape, top.params["axis"]
    cells = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), axis, -1).reshape(-1, shape[axis])
    number = np.arange(len(cells)).reshape(top.shape)
    order = np.ravel(number if part is None else np.asarray(part(number)))
    return ArgmaxSource(source, cells[order], 1 if top.params["largest"] else -1, top.params["last"])


def of_scores(graph: Graph, question: Property) -> tuple[Graph, Property]:
    """Return the graph up to the scores, and the property of scores that is equivalent to that of positions.

    UnsupportedError if no position satisfies the property: it would say nothing of the network.
    """
    choice = choice_of(graph)
    if choice is None:
        return graph, question
    scores, _ = section(graph, choice.scores, graph.input_positions)
    outputs = math.prod(graph.nodes[choice.scores].shape)
    cases = tuple(replace(c, alternatives=tuple(_winner_alternatives(c, choice, outputs))) for c in question.cases)
    some = tuple(case for case in cases if case.alternatives)
    if not some:
        text = "no position satisfies the property: it holds of every network, and says nothing of this one"
        raise UnsupportedError("certify", text)
    return scores, replace(question, outputs=outputs, cases=some)


def _winner_alternatives(case: Case, choice: ArgmaxSource, outputs: int) -> Iterator[Alternative]:
    """Yield an alternative for every combination of winners that satisfies the case; UnsupportedError if there are too
    many combinations.

    `choice` says which scores each of the `outputs` positions is the argmax of.
    """
    for alternative in case.alternatives:
        spoken = np.flatnonzero(np.any(alternative.rows != 0, axis=0))
        ways = choice.lines.shape[1] ** len(spoken)
        if ways > MAX_WINNER_COMBINATIONS:
            most = MAX_WINNER_COMBINATIONS
            text = f"the property is about {len(spoken)} positions at once: {ways} ways, more than {most}"
            raise UnsupportedError("certify", text)
        refuse_too_many_entries(ways * len(spoken) * choice.lines.shape[1], outputs)
        for fallen in product(range(choice.lines.shape[1]), repeat=len(spoken)):
            if _satisfies(alternative, spoken, fallen):
                yield winner_of(choice.lines[spoken], fallen, choice.sign, choice.last, outputs)


def _satisfies(alternative: Alternative, spoken: Array, fallen: Sequence[int]) -> bool:
    """Return whether outputs satisfy all rows of the alternative: those in `spoken` are `fallen`, all others 0."""
    positions: list[Any] = [0] * alternative.rows.shape[1]
    for c, k in zip(spoken, fallen, strict=True):
        positions[c] = k
    sums = (sum(int(a) * k for a, k in zip(row, positions, strict=True)) for row in alternative.rows)
    pairs = enumerate(zip(sums, alternative.limits, strict=True))
    return all(total < limit if k in alternative.strict else total <= limit for k, (total, limit) in pairs)


def at_positions(question: Any, point: Counterexample, arithmetic: Any) -> Counterexample:
    """Return `point`, a counterexample of the scores, as one of the positions, run by every runtime.

    ContradictionError if the positions do not break the property.

    question   a specgrad.bounds.search.statement.problem.VerificationProblem
    arithmetic  the executions meant
    """
    y = DeployedNetwork(question.graph).run(point.x)
    mine = [c for c in question.stated.cases if c.has(point.point) and c.contains(y, point.point)]
    whole = replace(point, y=y, runs=(Run("torch", y, True),))
    counterexample = witnessed(question, whole, mine[0], arithmetic) if mine else None
    if counterexample is None:
        raise ContradictionError("the scores break the property at an input, and the positions that they give do not")
    return replace(counterexample, exactly=point.exactly)


def another_position(x: Any, label: int, eps: Any, graph: Graph, **limits: Any) -> Property | None:
    """Property: no input within eps of x has another position than `label`; None if the output is not one position.

    `limits` are low, high and norm, as for `robustness`. PropertyError if eps is negative, or x lies too far outside
    low..high.
    """
    choice = choice_of(graph)
    if choice is None or len(choice.lines) != 1:
        return None
    stated = robustness(x, label, eps, choice.lines.shape[1], **limits)
    others = (
        Alternative(np.ones((1, 1)), (Fraction(label - 1),)),
        Alternative(-np.ones((1, 1)), (Fraction(-label - 1),)),
    )
    return replace(stated, outputs=1, cases=tuple(replace(c, alternatives=others) for c in stated.cases))
