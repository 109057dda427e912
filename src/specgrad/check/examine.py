"""Ask one question of one runtime, or of one kernel, and name another arithmetic than the declared one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np

from ..process import Answer, Process
from ..rounding import Arithmetic
from ..ulps import declared
from .classes import renamed
from .generate import draw
from .judge import Verdict, judge
from .probe import Probing
from .question import Question
from .runtimes import NotOffered, Runtime
from .seen import Seen


def arithmetic_of(runtime: Runtime) -> Arithmetic:
    """float32 with the errors of functions declared of the runtime: of one operator, or of one layer that was read."""
    return Arithmetic("float32", execution="node", flush=runtime.flush, ulps=declared(runtime.functions))


def merged_arithmetic_of(runtime: Runtime) -> Arithmetic:
    """The same where only the last of several layers was read: the runtime may have merged them."""
    return replace(arithmetic_of(runtime), execution="fused")


class Examiner(ABC):
    """Whoever answers questions; `ask` gives the verdict."""

    arithmetic: Arithmetic

    @abstractmethod
    def answer(self, question: Question) -> Answer:
        """Raises NotOffered where the question cannot be put."""

    def ask(self, question: Question) -> Verdict:
        try:
            answer = self.answer(question)
        except NotOffered as reason:
            return Verdict("not offered", detail=str(reason))
        verdict = judge(question, answer, self.arithmetic)
        if verdict.kind != "differs" or answer.outcome != "answers" or self.arithmetic.dtype != "float32":
            return verdict
        seen = Seen(question.meaning(), question.arguments(), answer.arrays, question.answers())
        return renamed(verdict, seen, self.arithmetic, Probing(question, self.answer, self.arithmetic))


class RuntimeExaminer(Examiner):
    """A runtime behind a process."""

    def __init__(self, runtime: Runtime, process: Process) -> None:
        self.runtime, self.process = runtime, process
        self.arithmetic = arithmetic_of(runtime)

    def answer(self, question: Question) -> Answer:
        return self.process.run(self.runtime.program(question), question.inputs())


def with_gradient(question: Question, seed: int) -> Question:
    """The gradient of the same question; the cotangent is of the same kind of data, but finite."""
    rng = np.random.default_rng([seed, 1])
    kind = "gaussian" if question.data in ("nan", "-inf", "one-hot") else question.data
    return question.asking_gradient(lambda shape: draw(rng, kind, "g", shape))
