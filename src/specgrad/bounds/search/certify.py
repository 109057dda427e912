"""Does a property hold for the deployed network? An attack, linear bounds, then branch and bound, within a time limit.

holds            proven for every execution that `CertifyResult.deployment` describes, on every input of the property:
                 every float32 number of the smallest float32 box that holds the property's
violated         a point of the property's box, compared exactly, and the nearest float32 numbers, which the deployed
                 float32 network was run on, and which break the property; what is proven of every execution there does
                 not exclude it, and everybody who could be asked was (specgrad.bounds.search.network.witnesses)
unknown          neither, within the time
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from specgrad.proof.base.executions import INPUTS
from specgrad.proof.base.split_tree import OpenPart, Tree

from ...deadline import time_limit
from ...errors import ParameterError, TimeLimitError, need
from ...graph.graph import Graph
from ...properties.property import Alternative, Case
from ...rounding.stated import deployment_of
from ...scalar import Array, float_below, nearest_float
from .network.pgd_attack import Counterexample, DeployedNetwork, Effort, attack
from .network.witnesses import held_run, witnessed
from .shared.open_report import OpenReport
from .statement.argmax_property import at_positions, of_scores
from .statement.problem import VerificationProblem, cells_of, graph_and_property, question_of

__all__ = ["CertifyResult", "certify", "graph_and_property", "target"]

Kind = Literal["holds", "violated", "unknown"]
Progress = Callable[[str, int, int], None]
_Row = tuple[Array, Fraction]  # row.y > limit excludes an alternative
STAGES = ("attack", "crown", "pieces", "branch")
QUICK = Effort(starts=1, steps=20)
FEW_INPUTS = 16  # splitting inputs pays where there are this few
ONE_INPUT = "the box holds one input alone, and rounding decides there"
NO_WITNESS = "at the input that was found only specgrad's engine breaks it, and nothing that is proven vouches for that"
LEAST_SECONDS = 4.0  # what linear bounds may take, however little time is left: of small networks they end at once
OUT_OF_TIME = "the time was over before the linear bounds were done"
NOTHING_VARIES = "the outputs vary by rounding alone, whatever the input, and that decides"


@dataclass(frozen=True, eq=False)
class CertifyResult:
    """Verdict of `certify`, and what it rests on.

    deployment the executions that the verdict is about, in sentences

    Attributes
    ----------
    verdict : {"holds", "violated", "unknown"}
        Whether the property holds for every execution of the class.
    counterexample : Counterexample or None
        An input that violates it, with what the models answer there.
    margins : tuple of tuple of float
        Per case and alternative: a proven lower bound of (row.y - limit) for the row that excludes it best; none of a
        case that was not reached, and a counterexample ends the list.
    stages : mapping of str to float
        Seconds spent on "attack", "crown", "pieces" (specgrad.bounds.search.neuron_split.multi_neuron) and "branch".
    problems : int
        Subproblems of the branch and bound.
    reason : str
        In words: why it is unknown, or what a violation shows at the input x itself; may be "".
    deployment : dict of str to str
        The executions that the verdict is about, in sentences.
    notes : tuple of str
        What else a reader should know: constants or inputs that were rounded, parts of the property that say nothing.
    trees : tuple
        Per case: numbers of alternatives, and how the executions were divided until each part excludes them; no tree
        has an alternative that the whole box excludes. Of what is unknown, how far the search came.
    open_part : OpenPart or None
        Of what is unknown: the part of a search whose margin is least.
    unknown : OpenReport or None
        Where a search ended, and what would help (specgrad.bounds.search.shared.open_report).

    Examples
    --------
    >>> import specgrad as sg
    >>> from specgrad.bounds import certify
    >>> graph = sg.trace(lambda x: sg.linear(np.float32([[1, 1], [1, -1]]), None, x), (2,))
    >>> result = certify(graph, ([1.0, 0.5], 0, 0.25))
    >>> result.verdict, result.counterexample, result.reason
    ('holds', None, '')
    """

    verdict: Kind
    counterexample: Counterexample | None
    margins: tuple[tuple[float, ...], ...]
    stages: dict[str, float]
    problems: int
    reason: str = ""
    deployment: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trees: tuple[tuple[tuple[tuple[int, ...], Tree], ...], ...] = ((),)
    open_part: OpenPart | None = None
    unknown: OpenReport | None = None

    @property
    def seconds(self) -> float:
        """Return the seconds of all stages together, attack to search."""
        return sum(self.stages.values())

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object, without the verdict: `margins`, `seconds` by stage, `problems` (how many
        subproblems), `deployment`.

        Where there are any also `notes`, `reason`, `unknown` (what stayed open) and `counterexample`.
        """
        data: dict[str, Any] = {"margins": self.margins, "seconds": self.stages, "problems": self.problems}
        data["deployment"] = self.deployment
        if self.notes:
            data["notes"] = list(self.notes)
        if self.reason:
            data["reason"] = self.reason
        if self.unknown is not None:
            data["unknown"] = self.unknown.to_json()
        if self.counterexample is not None:
            point = self.counterexample
            data["counterexample"] = point.to_json()
        return data


def certify(
    model: Any,
    statement: Any,
    *,
    seconds: float = 60.0,
    low: Any = None,
    high: Any = None,
    norm: str = "inf",
    shape: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    arithmetic: Any = None,
    source: Any = None,
    progress: Progress | None = None,
) -> CertifyResult:
    """Try to prove or refute a property of a network, for the network that float32 executes.

    A counterexample carries everybody's answer: our engine's, the module's that was given, ONNX Runtime's.

    Weights that a graph holds as float64 or exact numbers are rounded to float32 first, and the verdict says so; a
    model that declares another format is refused.

    Parameters
    ----------
    model : Graph, path, bytes, ModelProto or nn.Module
        A Graph (its weights are constants), an ONNX file, or a PyTorch module (with a property file, give its input's
        shape); of a property about several networks, one per name: {"f": "f.onnx", "g": "g.onnx"}.
    statement : Property, path or tuple
        A Property, the path of a VNN-LIB file, or (x, label, eps): no input within eps of x, cell by cell, has another
        output as large as the label's. Of a network with several inputs, x holds an array for each, by name or in
        order; outputs are counted one after the other.
    seconds : float, default 60.0
        Counted from when the files are read. When they are over no step begins or goes on, but for the quick attack and
        4 s of linear bounds of the first case, and the proof that a counterexample is one; the reason says what was not
        reached.
    low : number or array_like, optional
        Lower limit of any input, for (x, label, eps).
    high : number or array_like, optional
        Upper limit of any input, for (x, label, eps).
    norm : str, default "inf"
        How far an input is from x: "inf" is cell by cell, "2" the root of the sum of squares, "1" the sum.
    shape : sequence of int, or mapping, optional
        Shape of the input, where the model leaves sizes open; else that of x, or what the property's inputs fill, a
        batch being 1. Of several inputs: a shape per name.
    arithmetic : Arithmetic, optional
        The executions to prove it for; float32, fused, if not given.
    source : path, bytes, ModelProto or nn.Module, optional
        The model that a Graph was read from: counterexamples are run on it too.
    progress : callable, optional
        Called along the way with (what, done, total).

    Returns
    -------
    CertifyResult
        Its verdict is "holds", "violated" or "unknown".

    Raises
    ------
    ParameterError
        For arguments that do not go together ([P5]).
    PropertyError
        For a property that is malformed or not supported.
    ContradictionError
        If a counterexample is proven to be none, or a run is one that no execution can give: a fault of ours, not a
        verdict.

    Examples
    --------
    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(sg.linear(np.float32([[1, 1], [1, -1]]), None, x)), (2,))
    >>> certify(graph, ([1.0, 0.5], 0, 0.25)).verdict
    'holds'
    >>> verdict = certify(graph, ([1.0, 0.5], 0, 0.75))
    >>> verdict.verdict, bool(verdict.counterexample.y[1] >= verdict.counterexample.y[0])
    ('violated', True)
    """
    need("torch", "certify needs")
    _check_arithmetic(arithmetic)
    question = question_of(model, statement, low=low, high=high, norm=norm, shape=shape, source=source)
    searched, asked = of_scores(question.graph, question.stated)
    plain = searched is question.graph
    part = question if plain else VerificationProblem((), searched, asked)  # whose scores nobody else is asked for
    run = _Certifier(part, time.monotonic() + seconds, progress, arithmetic)
    verdict = run.answer(asked.cases)
    if verdict.verdict == "unknown" and run.no_witness:
        verdict = replace(verdict, reason="; ".join(filter(None, (NO_WITNESS, verdict.reason))))
    if not plain and verdict.counterexample is not None:
        verdict = replace(verdict, counterexample=at_positions(question, verdict.counterexample, arithmetic))
    notes = (*question.notes, *_rounding_note(verdict.counterexample), *_disagreement_note(verdict.counterexample))
    said = deployment_of(arithmetic, question.graph) | {"inputs": INPUTS}
    verdict = replace(verdict, deployment=said, notes=notes)
    if verdict.verdict == "violated" and isinstance(statement, tuple):
        x = cells_of(statement[0], question.networks[0].graph)
        return replace(verdict, reason=_at_the_input(run.network if plain else question.graph, x, statement[1]))
    return verdict


def _check_arithmetic(arithmetic: Any) -> None:
    """Raise ParameterError unless the arithmetic is float32: counterexamples are run in float32; UnsupportedError where
    bounds do not know it.
    """
    if arithmetic is None:
        return
    arithmetic.check_plain("certify")
    if arithmetic.dtype != "float32":
        text = f"certify answers for dtype='float32'; got {arithmetic.dtype!r}. crown bounds other formats"
        raise ParameterError("certify", text, rule="P5")


def _rounding_note(point: Counterexample | None) -> tuple[str, ...]:
    """Note if the counterexample's point had to be rounded to float32; else empty."""
    if point is None or not point.rounded:
        return ()
    text = f"{point.rounded} of {len(point.point)} input cells of the counterexample are no float32 numbers"
    return (f"{text}: the network was run on the nearest ones",)


def _disagreement_note(point: Counterexample | None) -> tuple[str, ...]:
    """Note if some runtime does not violate the property at the counterexample `point`; else empty, as for None."""
    if point is None or not point.disagree:
        return ()
    whose = ", ".join(run.who for run in point.disagree)
    return (f"at the counterexample rounding decides: {whose} does not break the property there",)


def _at_the_input(network: DeployedNetwork | Graph, x: Any, label: int) -> str:
    """Text if x itself has another label than was stated; else "". A graph's output is an index."""
    if isinstance(network, Graph):
        position = int(held_run(DeployedNetwork(network), x).item())
        return "" if position == label else f"at the input itself the position is {position}, not {label}"
    largest = int(np.argmax(held_run(network, x)))
    return "" if largest == label else f"at the input itself output {largest} is the largest, not {label}"


def _merge_results(answers: list[CertifyResult]) -> CertifyResult:
    """Return the result of all cases, whose results are `answers`: the worst verdict, all margins and trees."""
    order = {"violated": 0, "unknown": 1, "holds": 2}
    worst = min(answers, key=lambda a: order[a.verdict])
    margins = tuple(m for a in answers for m in a.margins)
    trees = tuple(t for a in answers for t in a.trees)
    return replace(worst, margins=margins, problems=sum(a.problems for a in answers), trees=trees)


def target(limit: Fraction) -> float:
    """Least float64 number above a limit: a bound that reaches it excludes row.y <= limit.

    >>> target(Fraction(0)), target(Fraction(1, 3)) > 1 / 3
    (5e-324, True)
    """
    return math.nextafter(float_below(limit), math.inf)


class _Certifier:
    """Runs the stages of `certify` for one network, several cases and one deadline.

    question     the networks and the property, as a `VerificationProblem`
    deadline     when it ends, by time.monotonic
    progress     is told what is at work; None: nobody is
    arithmetic   the executions meant; None: float32, fused
    """

    def __init__(
        self, question: VerificationProblem, deadline: float, progress: Progress | None, arithmetic: Any = None
    ) -> None:
        self.question, self.deadline, self.progress = question, deadline, progress
        self.graph = graph = question.graph
        self.options = {} if arithmetic is None else {"arithmetic": arithmetic}
        self.no_witness = False
        self.network = DeployedNetwork(graph)
        self.stages = dict.fromkeys(STAGES, 0.0)

    def _seconds_left(self) -> float:
        """Return the seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    def _report_progress(self, text: str, done: int = 0, total: int = 0) -> None:
        """Report progress, if somebody listens: what is done (`text`), and `done` of `total` steps of it."""
        if self.progress is not None:
            self.progress(text, done, total)

    def answer(self, cases: Sequence[Case]) -> CertifyResult:
        """Return the result for all cases: quick attacks first, then proofs in turn.

        A case that the time does not reach is unknown, and so is the whole.
        """
        for case in self._in_time(cases):
            counterexample = self._attack(case, QUICK)
            if counterexample is not None:
                return self._violated_result(counterexample)
        answers: list[CertifyResult] = []
        for case in self._in_time(cases):
            answers.append(self._certify_case(case))
            if answers[-1].verdict == "violated":
                return _merge_results(answers)
        missing = len(cases) - len(answers)
        if not missing:
            return _merge_results(answers)
        reason = f"the time was over before case {len(answers) + 1:,} of {len(cases):,}"
        verdict = _merge_results([*answers, *[CertifyResult("unknown", None, ((),), self.stages, 0)] * missing])
        return replace(verdict, reason="; ".join(filter(None, (verdict.reason, reason))))

    def _in_time(self, cases: Sequence[Case]) -> Iterator[Case]:
        """Yield the first of the cases, and others until the deadline."""
        for k, case in enumerate(cases):
            if k and not self._seconds_left():
                return
            yield case

    def _certify_case(self, case: Case) -> CertifyResult:
        """Return the result for one case after the quick attack: linear bounds first, then more attacks and
        splitting.
        """
        if not all(len(a.limits) for a in case.alternatives):
            reason = "an alternative says nothing of the outputs, so no bound excludes it"
            return CertifyResult("unknown", None, ((),), self.stages, 0, reason)
        case, margins, nearest, root, reason = self._linear_bounds(case)
        open_ = [k for k, margin in enumerate(margins) if not margin > 0]
        if open_ and root is not None and self._seconds_left():
            open_ = self._multi_neuron_margins(root, nearest, margins, open_)
        if not open_:
            return CertifyResult("holds", None, (tuple(margins),), self.stages, 0)
        rest = replace(case, alternatives=tuple(case.alternatives[k] for k in open_))
        if self._seconds_left():
            counterexample = self._attack(rest, Effort(starts=8, steps=50, seconds=self._seconds_left() / 6, seed=1))
            if counterexample is not None:
                return self._violated_result(counterexample)
        if root is None:
            return CertifyResult("unknown", None, (tuple(margins),), self.stages, 0, reason)
        return self._search_splits(rest, root, [nearest[k] for k in open_], margins, open_)

    def _attack(self, case: Case, effort: Effort) -> Counterexample | None:
        """Return a counterexample of the case, found by gradients and confirmed by runtimes; None if there is none.

        `effort` says how long. The time is added to `stages`.
        """
        self._report_progress("attack")
        start = time.monotonic()
        seconds = min(effort.seconds, self._seconds_left())
        counterexample = self._confirmed_by_runtimes(attack(self.network, case, replace(effort, seconds=seconds)), case)
        self.stages["attack"] += time.monotonic() - start
        return counterexample

    def _confirmed_by_runtimes(self, candidate: Counterexample | None, case: Case) -> Counterexample | None:
        """Ask every runtime about a candidate; return it with their answers, or None if it does not stand.

        Sets `no_witness` if it does not. No candidate (None) gives None, and asks and sets nothing.
        """
        if candidate is None:
            return None
        counterexample = witnessed(self.question, candidate, case, self.options.get("arithmetic"))
        self.no_witness |= counterexample is None
        return counterexample

    def _violated_result(self, counterexample: Counterexample) -> CertifyResult:
        """Return the result "violated" with this counterexample."""
        return CertifyResult("violated", counterexample, ((),), self.stages, 0)

    def _linear_bounds(self, case: Case) -> tuple[Case, list[float], list[_Row], Any, str]:
        """Linear bounds of a case: (case, margins, nearest rows, forward pass or None, reason), weighted rows added if
        useful.
        """
        margins, nearest, root, reason = self._crown(case)
        several = [len(a.limits) > 1 for a in case.alternatives]
        open_ = any(s and not m > 0 for s, m in zip(several, margins, strict=True))
        if root is None or not open_ or not self._seconds_left():
            return case, margins, nearest, root, reason
        from .neuron_split.row_weights import add_weighted_rows

        case = add_weighted_rows(root, case)
        return case, *self._margins(case, root), root, reason

    def _crown(self, case: Case) -> tuple[list[float], list[_Row], Any, str]:
        """Margins and nearest rows per alternative by linear bounds, the forward pass (None: cannot be split), and the
        reason.
        """
        self._report_progress("linear bounds")
        start = time.monotonic()
        try:
            with time_limit(max(self._seconds_left(), LEAST_SECONDS)):
                root = self._forward_pass(case, *case.outer())
                margins, nearest = self._margins(case, root)
        except TimeLimitError:
            nothing = [(a.rows[0], a.limits[0]) for a in case.alternatives]
            return [-math.inf] * len(nothing), nothing, None, OUT_OF_TIME
        finally:
            self.stages["crown"] += time.monotonic() - start
        if root.unbounded:
            reason = f"nothing is proven of layers {', '.join(root.unbounded[:3])}: overflow is possible"
            return margins, nearest, None, reason
        if not root.varies:  # so nothing can be split
            low, high = case.outer()
            return margins, nearest, None, ONE_INPUT if (low == high).all() else NOTHING_VARIES
        return margins, nearest, root, ""

    def _margins(self, case: Case, root: Any) -> tuple[list[float], list[_Row]]:
        """Per alternative of `case` the margin of its nearest row, and that row, by the bounds `root` over the box."""
        from ..linear.intermediate.tighten import output_bounds

        rows = np.concatenate([a.rows for a in case.alternatives])
        bounds = iter(output_bounds(root, rows)[0].tolist())
        closest = [_nearest_row(a, [_margin(next(bounds), limit) for limit in a.limits]) for a in case.alternatives]
        return [margin for margin, _ in closest], [row for _, row in closest]

    def _multi_neuron_margins(
        self, root: Any, nearest: list[_Row], margins: list[float], open_: list[int]
    ) -> list[int]:
        """Improve `margins` in place by multi-neuron bounds, on top of the bounds `root`; return the alternatives that
        stay open.

        `nearest` has the nearest row of every alternative, `open_` the numbers of the open ones.
        """
        from .neuron_split.multi_neuron import piecewise

        self._report_progress("pieces")
        start = time.monotonic()
        bounds = piecewise(root, *_tensors([nearest[k] for k in open_]), self.deadline).tolist()
        for k, bound in zip(open_, bounds, strict=True):
            margins[k] = max(margins[k], _margin(bound, nearest[k][1]))
        self.stages["pieces"] += time.monotonic() - start
        return [k for k in open_ if not margins[k] > 0]

    def _search_splits(
        self, case: Case, root: Any, rows: list[_Row], margins: list[float], open_: list[int]
    ) -> CertifyResult:
        """Return the result of a search by splits: of inputs if these are few, else of neurons first, then of inputs.

        `case` holds the open alternatives only: `open_` are their numbers in `margins`, which is improved in place, and
        `rows` their nearest rows. `root` are the bounds over the whole box.
        """
        start, count, settled, alone = time.monotonic(), 0, False, False
        share: float | None = None  # halves of a box are halves; sides of a kink are as large as they are
        worst: OpenPart | None = None
        trees: list[tuple[tuple[int, ...], Tree]] = []
        counterexample: Counterexample | None = None
        if len(case.low) > FEW_INPUTS and self._seconds_left():
            outcome = self._search_neuron_splits(root, rows)
            count, settled = outcome.problems, outcome.settled
            worst = _open_part(case, outcome, self.graph.input_positions[0])
            trees = [((k,), tree) for k, tree in zip(open_, outcome.trees, strict=True)]
            for k, bound, (_, limit) in zip(open_, outcome.bounds.tolist(), rows, strict=True):
                margins[k] = max(margins[k], _margin(bound, limit))
        if not settled and self._seconds_left():
            outcome = self._search_input_splits(case, root)
            counterexample = self._confirmed_by_runtimes(outcome.counterexample, case)
            settled, worst = outcome.settled, outcome.worst
            share, alone = outcome.share, outcome.stuck
            count, trees = count + outcome.problems, [(tuple(open_), outcome.tree)]
        spent = time.monotonic() - start
        self.stages["branch"] += spent
        if counterexample is not None:
            return replace(self._violated_result(counterexample), problems=count)
        verdict = CertifyResult("unknown", None, (tuple(margins),), self.stages, count, trees=(tuple(trees),))
        if settled:
            return replace(verdict, verdict="holds")
        low, high = case.outer()
        inside = self.graph.input_positions[0]
        why = OpenReport(count, spent, share, worst, inside, alone)
        why = self._with_worst_layer(case, root, worst, why)
        reason = ONE_INPUT if (low == high).all() else why.said()
        return replace(verdict, reason=reason, open_part=worst, unknown=why)

    def _with_worst_layer(self, case: Case, root: Any, worst: OpenPart | None, why: OpenReport) -> OpenReport:
        """Return the report `why` with the layer that loses most in the worst open part; unchanged if there is none.

        `root` is the forward pass over the case's box.
        """
        if worst is None:
            return why
        from .input_split.explain_open import explained

        rounding, layer = explained(self._batched_bounds(case, root), worst)
        return replace(why, rounding=why.rounding or rounding, layer=layer)

    def _search_input_splits(self, case: Case, root: Any) -> Any:
        """Search by input splits for all rows of the case, from the bounds `root` on; return how that ended. Small
        parts get bounds of their own.
        """
        from .input_split.search import split_inputs

        def rooted(low: Any, high: Any) -> Any:
            try:
                with time_limit(max(self._seconds_left(), LEAST_SECONDS)):
                    smaller = self._forward_pass(case, low.numpy(), high.numpy())
            except TimeLimitError:
                return None
            return self._batched_bounds(case, smaller) if smaller.varies else None

        return split_inputs(self.network, case, self._batched_bounds(case, root), self.deadline, self.progress, rooted)

    def _forward_pass(self, case: Case, low: Array, high: Array) -> Any:
        """Return crown's forward pass over the input box low..high, and the case's ball if it has one."""
        from .neuron_split.subproblems import input_ball, root_forward

        shape = self.graph.nodes[self.graph.input_positions[0]].shape
        ends = low.reshape(shape), high.reshape(shape)
        return root_forward(self.graph, *ends, ball=input_ball(case), **self.options)

    def _batched_bounds(self, case: Case, root: Any) -> Any:
        """Return the object that bounds all rows of the case on many parts of its box at once; `root` is the forward
        pass over the whole box.
        """
        from .input_split.search import Boxes

        rows = [(row, limit) for a in case.alternatives for row, limit in zip(a.rows, a.limits, strict=True)]
        owner = [k for k, a in enumerate(case.alternatives) for _ in a.limits]
        return Boxes(root, *_tensors(rows), owner)

    def _search_neuron_splits(self, root: Any, rows: list[_Row]) -> Any:
        """Return the Outcome of a search by neuron splits for the nearest row of each alternative, from the bounds
        `root` on.
        """
        from .neuron_split.branch_and_bound import narrowed
        from .neuron_split.reduced_search import search

        bounder = narrowed(root, time.monotonic() + self._seconds_left() / 4, progress=self.progress)
        stacked, targets = _tensors(rows)
        return search(bounder, stacked, targets, seconds=self._seconds_left(), progress=self.progress)


def _open_part(case: Case, outcome: Any, x: int) -> OpenPart | None:
    """Return the open part with the least margin of a neuron-split search, or None; x is the input's position.

    `outcome` is the search's, with its trees and the worst open part of each.
    """
    parts = [(w[1], tree.path(w[0])) for w, tree in zip(outcome.worst, outcome.trees, strict=True) if w is not None]
    if not parts:
        return None
    margin, path = min(parts, key=lambda part: part[0])
    low, high = (np.ravel(end).astype(np.float32) for end in case.outer())
    for cut, side in path:
        if cut.node == x and side:
            low[cut.cell] = max(low[cut.cell], np.nextafter(np.float32(cut.at), np.float32(np.inf)))
        elif cut.node == x:
            high[cut.cell] = min(high[cut.cell], np.float32(cut.at))
    return OpenPart(low.tolist(), high.tolist(), path, margin)


def _margin(bound: float, limit: Fraction) -> float:
    """Return bound - limit as a float, with the right sign even where it rounds to 0."""
    if not np.isfinite(bound):
        return bound
    exact = Fraction(bound) - limit
    return nearest_float(exact) or (5e-324 if exact > 0 else -5e-324 if exact < 0 else 0.0)


def _nearest_row(alternative: Alternative, margins: list[float]) -> tuple[float, _Row]:
    """Largest margin of an alternative's rows, and that row with its limit.

    An alternative without rows holds every output: nothing excludes it, least of all 0.y > 0.
    """
    if not margins:
        return -np.inf, (np.zeros(alternative.rows.shape[1]), Fraction(0))
    best = max(range(len(margins)), key=lambda k: margins[k])
    return margins[best], (alternative.rows[best], alternative.limits[best])


def _tensors(rows: Sequence[_Row]) -> tuple[Any, Any]:
    """Rows as one tensor, and the target of each: the least bound of row.y that excludes its alternative."""
    import torch

    targets = [target(limit) for _, limit in rows]
    return torch.from_numpy(np.stack([row for row, _ in rows])), torch.tensor(targets, dtype=torch.float64)
