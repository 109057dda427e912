"""Run one test case on a runtime or a kernel, judge it, and name the arithmetic if it is another than declared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np

from specgrad.declared_errors import declared
from specgrad.process import Process, ProcessResult
from specgrad.rounding import Arithmetic

from ..cases.generate import draw
from ..cases.op_case import OpCase
from ..runtimes import NotOffered, Runtime
from .arithmetic_classes import reclassify
from .judge import Verdict, judge
from .observation import Observation
from .probe import LayerProbe


def arithmetic_of(runtime: Runtime) -> Arithmetic:
    """Return the float32 arithmetic, by node, with the function errors declared of the runtime: of single layers."""
    return Arithmetic("float32", execution="node", flush=runtime.flush, ulps=declared(runtime.functions))


def fused_arithmetic_of(runtime: Runtime) -> Arithmetic:
    """Return the arithmetic of layers that the runtime may have merged: only the last of them was observed."""
    return replace(arithmetic_of(runtime), execution="fused")


class CaseRunner(ABC):
    """Base class: runs an operator test case on one target (a runtime or a kernel) and judges the result by
    `arithmetic`.
    """

    arithmetic: Arithmetic

    @abstractmethod
    def answer(self, question: OpCase) -> ProcessResult:
        """Return what the target computes for a case; raise NotOffered if it has no such operator."""

    def ask(self, question: OpCase) -> Verdict:
        """Return the verdict on a case, with the arithmetic that explains it."""
        try:
            answer = self.answer(question)
        except NotOffered as reason:
            return Verdict("not offered", detail=str(reason))
        verdict = judge(question, answer, self.arithmetic)
        if verdict.kind != "differs" or answer.outcome != "answers" or self.arithmetic.dtype != "float32":
            return verdict
        observed = Observation(question.meaning(), question.arguments(), answer.arrays, question.answers())
        return reclassify(verdict, observed, self.arithmetic, LayerProbe(question, self.answer, self.arithmetic))


class RuntimeExaminer(CaseRunner):
    """Runs test cases on a runtime in a process of its own."""

    def __init__(self, runtime: Runtime, process: Process) -> None:
        self.runtime, self.process = runtime, process
        self.arithmetic = arithmetic_of(runtime)

    def answer(self, question: OpCase) -> ProcessResult:
        """Run the case's program in the process and return its result."""
        return self.process.run(self.runtime.program(question), question.inputs())


def with_gradient(question: OpCase, seed: int) -> OpCase:
    """Return the case asking for its gradient; the cotangent, drawn by `seed`, is of the same kind of data, but
    finite.
    """
    rng = np.random.default_rng([seed, 1])
    kind = "gaussian" if question.data in ("nan", "-inf", "one-hot") else question.data
    return question.with_cotangent(lambda shape: draw(rng, kind, "g", shape))
