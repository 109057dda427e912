"""A kernel of one operator of the contract: asked on generated shapes, attributes and data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from specgrad.errors import ParameterError
from specgrad.process import ProcessResult
from specgrad.rounding import Arithmetic
from specgrad.rounding.formats.number_format import SHORT

from ..cases.generate import FINITE, Accept, draw_cases
from ..cases.op_case import OpCase
from ..cases.shrink import shrink
from ..cases.signature import normalise_attributes
from ..conform.broken_rule import TEXT, rule
from ..conform.conformance import GRADIENTS
from ..conform.repro_script import literal
from ..runtimes import NotOffered
from ..verdicts.judge import Verdict, expected
from ..verdicts.run_case import CaseRunner, with_gradient
from .arrays import giver, to_numpy
from .draw_inputs import to_format
from .examine import Kernel
from .result import ConformanceError, ConformanceSummary


class KernelExaminer(CaseRunner):
    """Runs test cases on a kernel in this process; NotImplementedError and NotOffered count as refusals.

    gradient     the kernel of the derivative, None: none
    arrays       the library whose arrays both get: "numpy", "torch" or "jax"
    arithmetic   the executions that are right
    """

    def __init__(self, kernel: Kernel, gradient: Kernel | None, arrays: str, arithmetic: Arithmetic) -> None:
        self.kernel, self.gradient, self.give, self.arithmetic = kernel, gradient, giver(arrays), arithmetic
        self.error: Exception | None = None
        """What the kernel raised at its last question."""

    def ask(self, question: OpCase) -> Verdict:
        """Return the verdict on a case whose data are rounded to the kernel's format."""
        return super().ask(self.rounded(question))

    def rounded(self, question: OpCase) -> OpCase:
        """Return the case in numbers of the kernel's own format, so that it gets exactly what is judged."""
        form, g = self.arithmetic.dtype, question.gradient
        arrays = {name: to_format(a, form) for name, a in question.arrays.items()}
        g = None if g is None else to_format(g, form)
        return replace(question, arrays=arrays, gradient=g)

    def answer(self, question: OpCase) -> ProcessResult:
        """Call the kernel, or its gradient, on a case and return its results, refusal or exception."""
        self.error = None
        given = [*([] if question.gradient is None else [question.gradient]), *question.arrays.values()]
        args = [self.give(a.copy(), self.arithmetic.dtype) for a in given]
        function = self.kernel if question.gradient is None else self.gradient or self.kernel
        try:
            with np.errstate(all="ignore"):  # the data hold NaN and infinities on purpose
                returned = function(*args, **attributes_of(question))
            results = returned if isinstance(returned, tuple | list) else [returned]
            return ProcessResult("answers", tuple(to_numpy(r) for r in results))
        except (NotImplementedError, NotOffered) as error:
            return ProcessResult("refuses", reason=str(error))
        except Exception as error:
            self.error = error
            return ProcessResult("crashes", reason=f"{type(error).__name__}: {error}")


def attributes_of(question: OpCase) -> dict[str, Any]:
    """Return the attributes of a case as a kernel gets them: all of them, one number or pair per axis."""
    return normalise_attributes(
        question.operator, question.attributes, {k: a.shape for k, a in question.arrays.items()}
    )


def _failure_text(question: OpCase, verdict: Verdict, answer: ProcessResult, examiner: KernelExaminer) -> str:
    """Return the error text: what went wrong, on which case, and what must come out.

    `answer` is what the kernel gave, `verdict` what `examiner` says of it.
    """
    if verdict.kind == "crashes":
        head, must = f"{question.operator}: the kernel raises {answer.reason}", []
    else:
        balls = expected(question, examiner.arithmetic)
        label = rule(question, verdict)
        number = question.answers().index(verdict.result) if verdict.result in question.answers() else 0
        got = answer.arrays[number] if number < len(answer.arrays) else None
        head = f"{question.operator}: {verdict.kind}, rule [{label}] ({TEXT[label]})\n  {verdict}"
        must = [f"  must be {balls[number].value.tolist()}"]
        must += [f"  got     {got.tolist() if got is not None else answer.reason}"]
    dtype = "np.float32" if examiner.arithmetic.dtype in SHORT else f"np.{examiner.arithmetic.dtype}"
    rows = [f"  {name} = {literal(a, dtype)}" for name, a in question.inputs().items()]
    rows += [f"  {name} = {value!r}" for name, value in attributes_of(question).items()]
    return "\n".join([head, f"  smallest question found: {question}", *rows, *must])


def check_operator_kernel(
    kernel: Kernel,
    operator: str,
    gradient: Kernel | None,
    arrays: str,
    arithmetic: Arithmetic,
    accept: Accept,
    count: int,
    seed: int,
    may_refuse: bool,
) -> ConformanceSummary:
    """Return how many questions on an operator a kernel answered.

    Raise ConformanceError for a wrong answer, or none judged. ParameterError for `count` below 1.

    The parameters are those of `assert_conforms`, `accept` says which attributes and shapes are asked.
    """
    if count < 1:
        raise ParameterError("assert_conforms", f"count must be at least 1; got {count}", rule="P5")
    examiner = KernelExaminer(kernel, gradient, arrays, arithmetic)
    done = ConformanceSummary(operator)
    for i, question in enumerate(draw_cases(operator, count, seed, accept)):
        done.add(_judged_or_raised(examiner, question, may_refuse))
        if gradient is not None and operator in GRADIENTS and question.data in FINITE:
            done.add(_judged_or_raised(examiner, with_gradient(question, i), may_refuse))
    if not done.judged:
        last = examiner.rounded(question)
        verdict = examiner.ask(last)
        raise ConformanceError(last, verdict, f"{done}: nothing was judged; the last verdict is {verdict}")
    return done


def _judged_or_raised(examiner: KernelExaminer, question: OpCase, may_refuse: bool) -> Verdict:
    """Return the verdict on a case; raise ConformanceError with a shrunk case if it is a failure.

    `may_refuse` says whether a refusal is no failure; `examiner` asks the kernel.
    """
    verdict = examiner.ask(question)
    if verdict.kind in ("exact", "rounding", "cannot tell") or (may_refuse and verdict.kind == "refuses"):
        return verdict
    kind = type(examiner.error)

    def is_same(q: OpCase) -> bool:
        return examiner.ask(q).same_sort(verdict) and type(examiner.error) is kind

    small = examiner.rounded(shrink(question, is_same, seconds=10))
    again, answer = examiner.ask(small), examiner.answer(small)
    raise ConformanceError(small, again, _failure_text(small, again, answer, examiner)) from examiner.error
