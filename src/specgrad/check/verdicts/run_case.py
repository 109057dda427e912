"""Ask one question of one runtime, or of one kernel, and name another arithmetic than the declared one."""

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
from .arithmetic_classes import renamed
from .judge import Verdict, judge
from .observation import Observation
from .probe import LayerProbe


def arithmetic_of(runtime: Runtime) -> Arithmetic:
    """float32 with the errors of functions declared of the runtime: of one operator, or of one layer that was read."""
    return Arithmetic("float32", execution="node", flush=runtime.flush, ulps=declared(runtime.functions))


def merged_arithmetic_of(runtime: Runtime) -> Arithmetic:
    """The same where only the last of several layers was read: the runtime may have merged them."""
    return replace(arithmetic_of(runtime), execution="fused")


class CaseRunner(ABC):
    """Whoever answers questions; `ask` gives the verdict."""

    arithmetic: Arithmetic

    @abstractmethod
    def answer(self, question: OpCase) -> ProcessResult:
        """Raises NotOffered where the question cannot be put."""

    def ask(self, question: OpCase) -> Verdict:
        try:
            answer = self.answer(question)
        except NotOffered as reason:
            return Verdict("not offered", detail=str(reason))
        verdict = judge(question, answer, self.arithmetic)
        if verdict.kind != "differs" or answer.outcome != "answers" or self.arithmetic.dtype != "float32":
            return verdict
        seen = Observation(question.meaning(), question.arguments(), answer.arrays, question.answers())
        return renamed(verdict, seen, self.arithmetic, LayerProbe(question, self.answer, self.arithmetic))


class RuntimeExaminer(CaseRunner):
    """A runtime behind a process."""

    def __init__(self, runtime: Runtime, process: Process) -> None:
        self.runtime, self.process = runtime, process
        self.arithmetic = arithmetic_of(runtime)

    def answer(self, question: OpCase) -> ProcessResult:
        return self.process.run(self.runtime.program(question), question.inputs())


def with_gradient(question: OpCase, seed: int) -> OpCase:
    """The gradient of the same question; the cotangent is of the same kind of data, but finite."""
    rng = np.random.default_rng([seed, 1])
    kind = "gaussian" if question.data in ("nan", "-inf", "one-hot") else question.data
    return question.asking_gradient(lambda shape: draw(rng, kind, "g", shape))
