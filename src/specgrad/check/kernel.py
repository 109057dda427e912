"""For authors of kernels: a plain function against an operator of the contract, as one line in a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..rounding import Arithmetic
from ..scalar import Array
from .conformance import GRADIENTS
from .examine import Examiner, with_gradient
from .generate import FINITE, questions
from .judge import Verdict, expected
from .process import Answer
from .question import Question, check_operator
from .rules import TEXT, rule
from .script import literal
from .shrink import shrink

Kernel = Callable[..., Any]
ARRAYS: dict[str, Callable[[Array], Any]] = {"numpy": lambda a: a}


def _torch(a: Array) -> Any:
    import torch

    return torch.from_numpy(a.copy())


def _jax(a: Array) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(a)


ARRAYS |= {"torch": _torch, "jax": _jax}


class ConformanceError(AssertionError):
    """The kernel's answer is not explained by rounding: the smallest question found, and what must come out."""

    def __init__(self, question: Question, verdict: Verdict, text: str) -> None:
        self.question, self.verdict = question, verdict
        super().__init__(text)


class KernelExaminer(Examiner):
    """Calls the kernel in this process. NotImplementedError means that it refuses the attributes."""

    def __init__(self, kernel: Kernel, gradient: Kernel | None, arrays: str, arithmetic: Arithmetic) -> None:
        self.kernel, self.gradient, self.arrays, self.arithmetic = kernel, gradient, arrays, arithmetic

    def answer(self, question: Question) -> Answer:
        convert = ARRAYS[self.arrays]
        args = [convert(a.copy()) for a in question.arrays.values()]
        function = self.kernel
        if question.gradient is not None:
            function, args = self.gradient or self.kernel, [convert(question.gradient.copy()), *args]
        try:
            with np.errstate(all="ignore"):  # the data hold NaN and infinities on purpose
                found = function(*args, **question.attributes)
        except NotImplementedError as error:
            return Answer("refuses", reason=str(error))
        except Exception as error:
            return Answer("crashes", reason=f"{type(error).__name__}: {error}")
        results = found if isinstance(found, tuple | list) else [found]
        return Answer("answers", tuple(np.asarray(r) for r in results))


def _message(operator: str, question: Question, verdict: Verdict, answer: Answer, arithmetic: Arithmetic) -> str:
    label = rule(question, verdict)
    balls = expected(question, arithmetic)
    number = question.answers().index(verdict.result) if verdict.result in question.answers() else 0
    rows = [f"  {name} = {literal(a)}" for name, a in question.inputs().items()]
    got = answer.arrays[number] if number < len(answer.arrays) else None
    return "\n".join(
        [
            f"{operator}: {verdict.kind}, rule [{label}] ({TEXT[label]})",
            f"  {verdict}",
            f"  smallest question found: {question}",
            *rows,
            f"  must be {balls[number].value.tolist()}",
            f"  got     {got.tolist() if got is not None else answer.reason}",
        ]
    )


def assert_conforms(
    kernel: Kernel,
    operator: str,
    *,
    gradient: Kernel | None = None,
    arrays: str = "numpy",
    arithmetic: Arithmetic | None = None,
    count: int = 400,
    seed: int = 0,
    may_refuse: bool = True,
) -> None:
    """Raise ConformanceError (an AssertionError) unless every answer of `kernel` is exact or explained by rounding.

    kernel(*arrays, **attributes) is called with the arrays of the operator in order (x, w, b ...) and its attributes
    by name; gradient(g, *arrays, **attributes) gives the cotangents of all arrays. `arrays`: "numpy", "torch", "jax".
    A kernel raises NotImplementedError for what it does not offer (not if may_refuse=False).

    >>> assert_conforms(lambda x: np.maximum(x, 0), "relu")
    >>> assert_conforms(lambda x: np.where(x > 0, x, 0), "relu")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    specgrad.check.kernel.ConformanceError: relu: differs, rule [P1] (NaN propagates)
    ...
    """
    check_operator(operator)
    examiner = KernelExaminer(kernel, gradient, arrays, arithmetic or Arithmetic("float32"))
    for i, question in enumerate(questions(operator, count, seed)):
        _examine(examiner, question, may_refuse)
        if gradient is not None and operator in GRADIENTS and question.data in FINITE:
            _examine(examiner, with_gradient(question, i), may_refuse)


def _examine(examiner: KernelExaminer, question: Question, may_refuse: bool) -> None:
    verdict = examiner.ask(question)
    allowed: Sequence[str] = ("exact", "rounding", "cannot tell", *(("refuses",) if may_refuse else ()))
    if verdict.kind in allowed:
        return

    small = shrink(question, lambda q: examiner.ask(q).same_sort(verdict), seconds=10)
    again = examiner.ask(small)
    text = _message(question.operator, small, again, examiner.answer(small), examiner.arithmetic)
    raise ConformanceError(small, again, text)
