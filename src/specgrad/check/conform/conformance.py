"""Run a runtime against the contract: generated test cases of every operator and kind of data, verdicts counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from specgrad.process import Process

from ..cases.generate import FINITE, SHAPES, draw_cases
from ..cases.op_case import OpCase, check_operator
from ..cases.shrink import complexity, shrink
from ..runtimes import Runtime
from ..runtimes import runtime as runtime_named
from ..verdicts.judge import Verdict
from ..verdicts.run_case import CaseRunner, RuntimeExaminer, arithmetic_of, with_gradient
from .broken_rule import TEXT, failure_kind, rule
from .repro_script import reproduction

# Whose gradient is computed by one canonical formula, so that the radius of our vjp graph bounds it.
GRADIENTS = ("conv", "conv_transpose", "linear", "max_pool", "avg_pool", "adaptive_avg_pool", "add", "mul", "relu")
BAD = ("differs", "other arithmetic", "crashes", "times out")
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Finding:
    """One fault of a runtime, shrunk to a small case.

    Attributes
    ----------
    operator : str
        Name of the tested operator.
    rule : str
        Label of the rule that is broken.
    question : OpCase
        The smallest case that shows it.
    verdict : Verdict
        The verdict on that case.
    script : str
        A program that shows it with the runtime and NumPy alone.

    Examples
    --------
    >>> from specgrad.check import OpCase
    >>> case = OpCase("relu", {}, {"x": np.float32([np.nan])})
    >>> Finding("relu", "P1", case, Verdict("differs"), "...").row()["about"]
    'NaN propagates'
    """

    operator: str
    rule: str
    question: OpCase
    verdict: Verdict
    script: str

    def sort(self) -> tuple[Any, ...]:
        """Return a key that is equal for findings of one operator, rule and fault, of which one is shown."""
        return self.operator, *failure_kind(self.question, self.verdict)

    def row(self) -> dict[str, Any]:
        """Return the finding as a row of tables and of --json: operator, gradient, rule, about (the rule in words),
        question, verdict, detail, script.
        """
        return {
            "operator": self.operator,
            "gradient": self.question.gradient is not None,
            "rule": self.rule,
            "about": TEXT[self.rule],
            "question": str(self.question),
            "verdict": self.verdict.kind,
            "detail": str(self.verdict),
            "script": self.script,
        }


@dataclass
class Conformance:
    """Verdicts on one runtime: counts and worst ratio per operator, refusals with their reasons, findings.

    Attributes
    ----------
    runtime : str
        Name of the runtime.
    versions : dict of str to str
        Of the runtime's packages, by name.
    seed : int
        From which all cases were drawn.
    counts : dict of str to Counter
        Operator -> how many cases had each verdict.
    ratios : dict of str to float
        Operator -> the largest error over its allowance.
    refusals : dict of str to Counter
        Operator -> how many cases were refused for which reason.
    findings : list of Finding
        Faults, each shrunk to a small case.
    deployment : dict of str to str
        What a correct execution is, in sentences by topic.

    Examples
    --------
    >>> found = Conformance("onnxruntime", {"onnxruntime": "1.25"}, 0, {"relu": Counter(exact=64)})
    >>> found.verdict, found.findings
    ('ok', [])
    """

    runtime: str
    versions: dict[str, str]
    seed: int
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    deployment: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """ "differs" if anything does, else "times out" if anything did, "cannot tell" if nothing answered, or "ok"."""
        total: Counter[str] = sum(self.counts.values(), Counter())
        if any(total[kind] for kind in BAD if kind != "times out"):
            return "differs"
        if total["times out"]:
            return "times out"
        return "ok" if total["exact"] + total["rounding"] else "cannot tell"

    def scripts(self) -> dict[str, str]:
        """Return {file name: script} of the findings, in order."""
        scripts: dict[str, str] = {}
        for f in self.findings:
            words = [self.runtime, f.operator, *(["gradient"] if f.question.gradient is not None else []), f.rule]
            name = "-".join(words).replace(" ", "_")
            while f"{name}.py" in scripts:
                name += f"-{f.verdict.fault}"
            scripts[f"{name}.py"] = f.script
        return scripts

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: verdict, runtime, versions, seed, operators (counts of verdicts and the ratio), refusals,
        findings, deployment.
        """
        return {
            "verdict": self.verdict,
            "runtime": self.runtime,
            "versions": self.versions,
            "seed": self.seed,
            "operators": {op: dict(c) | {"ratio": self.ratios[op]} for op, c in self.counts.items()},
            "refusals": {op: dict(c) for op, c in self.refusals.items()},
            "findings": [f.row() for f in self.findings],
            "deployment": self.deployment,
        }


def cases_for(operator: str, target: Runtime, count: int, seed: int, gradients: bool) -> Iterator[OpCase]:
    """Yield test cases of an operator: every value, and the gradient if data are finite and the runtime `target` has
    gradients.

    There are `count` values, fewer where each must be compiled. `seed` decides which; `gradients` asks for gradients at
    all.
    """
    for i, question in enumerate(draw_cases(operator, max(4, count // target.cost), seed)):
        yield question
        if gradients and target.gradients and operator in GRADIENTS and question.data in FINITE:
            yield with_gradient(question, i)


class _OperatorTally:
    """Collects the verdicts of one operator, and shrinks at most a few failures of each kind.

    They go to `result`; `examiner` asks the runtime `target`.
    """

    def __init__(self, result: Conformance, examiner: CaseRunner, target: Runtime, operator: str) -> None:
        self.result, self.examiner, self.target, self.operator = result, examiner, target, operator
        self.seen: Counter[Any] = Counter()
        result.counts[operator], result.ratios[operator] = Counter(), 0.0
        result.refusals[operator] = Counter()

    def add(self, question: OpCase, verdict: Verdict, shrinks: int) -> None:
        """Count a verdict in `result`.

        Shrink the case, and keep the finding, if it is among the first `shrinks` of its kind.
        """
        kind = verdict.kind
        self.result.counts[self.operator][kind] += 1
        if kind == "rounding":
            self.result.ratios[self.operator] = max(self.result.ratios[self.operator], verdict.ratio)
        elif kind == "refuses":
            self.result.refusals[self.operator][verdict.detail] += 1
        elif kind in BAD:
            self.seen[failure_kind(question, verdict)] += 1
            if self.seen[failure_kind(question, verdict)] <= shrinks:
                self._shrink_and_keep(question, verdict)

    def _shrink_and_keep(self, question: OpCase, verdict: Verdict) -> None:
        """Shrink a failing case with its verdict, and keep the smallest of its kind."""
        keep_smallest(self.result.findings, shrink_to_finding(question, verdict, self.examiner, self.target))


def shrink_to_finding(question: OpCase, verdict: Verdict, examiner: CaseRunner, target: Runtime) -> Finding:
    """Return the smallest case found that shows the fault of `verdict`, with its script for the runtime `target`.

    `examiner` asks smaller cases.
    """
    small = shrink(question, lambda q: examiner.ask(q).same_sort(verdict))
    again = examiner.ask(small)
    return Finding(question.operator, rule(small, again), small, again, reproduction(small, target, again))


def keep_smallest(findings: list[Finding], finding: Finding) -> None:
    """Add `finding` to the list `findings`, or replace a larger one of the same kind."""
    for i, other in enumerate(findings):
        if other.sort() == finding.sort():
            if complexity(finding.question) < complexity(other.question):
                findings[i] = finding
            return
    findings.append(finding)


def conformance(
    runtime: str,
    *,
    operators: Sequence[str] | None = None,
    count: int = 64,
    seed: int = 0,
    gradients: bool = True,
    shrinks: int = 2,
    seconds: float = 60,
    progress: Progress | None = None,
) -> Conformance:
    """Run generated test cases of every operator on a runtime, and count verdicts.

    Verdicts: exact, rounding, differs, other arithmetic, refuses, crashes, times out, cannot tell, not offered. Cases
    are drawn without a look at the runtime.

    Parameters
    ----------
    runtime : str
        Of an installed runtime, "onnxruntime", or with a device, "onnxruntime:CUDAExecutionProvider".
    operators : sequence of str, optional
        Which operators; all if not given.
    count : int, default 64
        Cases per operator; fewer where each must be compiled, never below 4.
    seed : int, default 0
        Decides which cases.
    gradients : bool, default True
        Ask for gradients where the runtime has them.
    shrinks : int, default 2
        How many failures per operator and kind are made small.
    seconds : float, default 60
        Time limit of one case.
    progress : callable, optional
        Called as it goes with (operator, done, total).

    Returns
    -------
    Conformance
        Counts of verdicts per operator, and findings.

    Raises
    ------
    ParameterError
        For a runtime or operator that is not known.
    MissingPackageError
        If the runtime is not installed.

    Examples
    --------
    >>> conformance("onnxruntime", operators=["relu"], count=8).verdict
    'ok'
    """
    target = runtime_named(runtime)
    chosen = [check_operator(o) for o in operators or SHAPES]
    result = Conformance(runtime, target.versions(), seed, deployment=arithmetic_of(target).deployment)
    with Process(seconds=seconds, environment=target.environment) as process:
        examiner = RuntimeExaminer(target, process)
        for i, operator in enumerate(chosen):
            if progress is not None:
                progress(operator, i, len(chosen))
            record = _OperatorTally(result, examiner, target, operator)
            for question in cases_for(operator, target, count, seed, gradients):
                record.add(question, examiner.ask(question), shrinks)
    return result
