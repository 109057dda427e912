"""Test helper for authors of kernels: a plain function against an operator of the contract, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from specgrad.errors import ParameterError, need
from specgrad.process import ProcessResult
from specgrad.rounding import FORMATS, Arithmetic, Format
from specgrad.rounding.formats.number_format import FLOAT8
from specgrad.scalar import Array

from ..cases.generate import FINITE, draw_cases
from ..cases.op_case import OpCase, check_operator
from ..cases.shrink import shrink
from ..cases.signature import Where, case_filter, normalise_attributes
from ..runtimes import NotOffered
from ..verdicts.judge import Verdict, expected
from ..verdicts.run_case import CaseRunner, with_gradient
from .broken_rule import TEXT, rule
from .conformance import GRADIENTS
from .repro_script import literal

SHORT = ("bfloat16", *FLOAT8)  # types that NumPy has not
Kernel = Callable[..., Any]
Give = Callable[[Array, str], Any]  # an array of numbers of that format, as the kernel takes them


def _as_numpy_type(a: Array, dtype: str) -> Any:
    """Return the array a in the type `dtype`; raise ParameterError for types that NumPy lacks."""
    if dtype in SHORT:
        raise ParameterError("arrays", f'NumPy has no {dtype}; give arrays="torch", "jax" or "ml_dtypes"', rule="P5")
    return a.astype(dtype)


def _as_ml_dtypes(a: Array, dtype: str) -> Any:
    """Return the array a in the type `dtype` of NumPy, or else of ml_dtypes."""
    need("ml_dtypes", "NumPy arrays of bfloat16 or float8 need")
    import ml_dtypes

    return a.astype(getattr(ml_dtypes, dtype) if dtype in SHORT else dtype)


def _as_torch_tensor(a: Array, dtype: str) -> Any:
    """Return an array as a PyTorch tensor of type `dtype`."""
    need("torch", "tensors of PyTorch need")
    import torch

    return torch.from_numpy(a.copy()).to(getattr(torch, dtype))


def _as_jax_array(a: Array, dtype: str) -> Any:
    """Return an array as a JAX array of type `dtype`."""
    need("jax", "arrays of JAX need")
    import jax.numpy as jnp

    return jnp.asarray(a).astype(dtype)


ARRAYS: dict[str, Give] = {
    "numpy": _as_numpy_type,
    "ml_dtypes": _as_ml_dtypes,
    "torch": _as_torch_tensor,
    "jax": _as_jax_array,
}


def _to_numpy(result: Any) -> Array:
    """Return a kernel's result as a NumPy array; bfloat16 and float8 become float32, which holds them."""
    if str(getattr(result, "dtype", "")).endswith(SHORT):
        result = result.float() if hasattr(result, "float") else result.astype("float32")
    return np.asarray(result.detach() if hasattr(result, "detach") else result)


class ConformanceError(AssertionError):
    """The kernel's answer is not explained by rounding; the text has the smallest case and the expected value."""

    def __init__(self, question: OpCase, verdict: Verdict, text: str) -> None:
        self.question, self.verdict = question, verdict
        super().__init__(text)


@dataclass(frozen=True)
class ConformanceSummary:
    """How many cases of `operator` were run, `counts` per verdict; `answered` are those that the kernel did not refuse.

    >>> ConformanceSummary("relu", Counter(exact=300, refuses=100))
    relu: 300 of 400 questions answered (300 exact, 100 refused)
    """

    operator: str
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def asked(self) -> int:
        """The number of cases that were run."""
        return self.counts.total()

    @property
    def answered(self) -> int:
        """The number of cases that the kernel did not refuse."""
        return self.asked - self.counts["refuses"]

    def __repr__(self) -> str:
        words = {"refuses": "refused"}
        parts = ", ".join(f"{count} {words.get(kind, kind)}" for kind, count in self.counts.most_common())
        return f"{self.operator}: {self.answered} of {self.asked} questions answered ({parts})"


class KernelExaminer(CaseRunner):
    """Runs test cases on a kernel in this process; NotImplementedError and NotOffered count as refusals."""

    def __init__(self, kernel: Kernel, gradient: Kernel | None, arrays: str, arithmetic: Arithmetic) -> None:
        if arrays not in ARRAYS:
            raise ParameterError("arrays", f"must be one of {', '.join(ARRAYS)}; got {arrays!r}", rule="P5")
        self.kernel, self.gradient, self.give, self.arithmetic = kernel, gradient, ARRAYS[arrays], arithmetic
        self.error: Exception | None = None
        """What the kernel raised at its last question."""

    def ask(self, question: OpCase) -> Verdict:
        """Return the verdict on a case whose data are rounded to the kernel's format."""
        return super().ask(self.rounded(question))

    def rounded(self, question: OpCase) -> OpCase:
        """Return the case in numbers of the kernel's own format, so that it gets exactly what is judged."""
        form = FORMATS[self.arithmetic.dtype]
        arrays = {name: _to_format(a, form) for name, a in question.arrays.items()}
        g = None if question.gradient is None else _to_format(question.gradient, form)
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
            return ProcessResult("answers", tuple(_to_numpy(r) for r in results))
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


def _to_format(x: Array, form: Format) -> Array:
    """Return x rounded to a format, ties to even; numbers outside its range are first scaled near its ends.

    An infinity is NaN in a format that has none.
    """
    digits, lowest = form.digits, form.lowest
    if digits >= 24 and lowest <= -126:
        return x
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        exponent = np.frexp(wide)[1]
        top, bottom = int(np.log2(form.largest)) - 4, lowest - digits + 2
        wide = np.ldexp(wide, np.where(exponent > top, top - exponent, 0))
        wide = np.ldexp(wide, np.where(exponent < bottom, bottom - exponent, 0))
        step = np.maximum(np.frexp(wide)[1] - digits, lowest - digits + 1)
        near = np.ldexp(np.rint(np.ldexp(wide, -step)), step)
    return np.where(np.isfinite(x), near, np.nan if form.finite else x).astype(np.float32)


def _failure_text(question: OpCase, verdict: Verdict, answer: ProcessResult, examiner: KernelExaminer) -> str:
    """Return the error text: what went wrong, on which case, and what must come out.

    `answer` is what the kernel gave.
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
    dtype = f"np.{examiner.arithmetic.dtype}"
    dtype = "np.float32" if examiner.arithmetic.dtype in SHORT else dtype
    rows = [f"  {name} = {literal(a, dtype)}" for name, a in question.inputs().items()]
    rows += [f"  {name} = {value!r}" for name, value in attributes_of(question).items()]
    return "\n".join([head, f"  smallest question found: {question}", *rows, *must])


def assert_conforms(
    kernel: Kernel,
    operator: str,
    *,
    gradient: Kernel | None = None,
    arrays: str = "numpy",
    arithmetic: Arithmetic | None = None,
    ranks: Collection[int] | None = None,
    where: Where | None = None,
    count: int = 400,
    seed: int = 0,
    may_refuse: bool = True,
) -> ConformanceSummary:
    """Raise ConformanceError (an AssertionError) unless every answer of `kernel` is exact or explained by rounding.

    kernel(*arrays, **attributes) is called with the arrays of the operator in order (x, w, b ...; b is left out in some
    questions) and with all its attributes by name, one number per axis. `print(kernel_signature("conv"))` lists them.
    gradient(g, *arrays, **attributes) gives the cotangents of all arrays. `count` questions are asked, another `seed`
    asks others.

    arrays      "numpy", "ml_dtypes", "torch" or "jax"; they are of the dtype of `arithmetic`, float32 unless another is
                given
    ranks       how many spatial axes to ask: ranks=(2,) for a kernel of images alone
    where       attributes to ask: {"dilation": 1, "groups": 1}, or a function of the attributes
    may_refuse  whether the kernel may raise NotImplementedError for what it does not offer; at least one question must
                be answered. The result says how many were.

    >>> assert_conforms(lambda x: np.maximum(x, 0), "relu")
    relu: 400 of 400 questions answered (400 exact)
    >>> assert_conforms(lambda x: np.where(x > 0, x, 0), "relu")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    specgrad.check.conform.kernel.ConformanceError: relu: differs, rule [P1] (NaN propagates)
    ...
    """
    if count < 1:
        raise ParameterError("assert_conforms", f"count must be at least 1; got {count}", rule="P5")
    accept = case_filter(check_operator(operator), ranks, where)
    examiner = KernelExaminer(kernel, gradient, arrays, arithmetic or Arithmetic("float32"))
    done = ConformanceSummary(operator)
    for i, question in enumerate(draw_cases(operator, count, seed, accept)):
        done.counts[_judge_or_raise(examiner, question, may_refuse)] += 1
        if gradient is not None and operator in GRADIENTS and question.data in FINITE:
            done.counts[_judge_or_raise(examiner, with_gradient(question, i), may_refuse)] += 1
    if not done.counts["exact"] + done.counts["rounding"]:
        last = examiner.rounded(question)
        verdict = examiner.ask(last)
        raise ConformanceError(last, verdict, f"{done}: nothing was judged; the last verdict is {verdict}")
    return done


def _judge_or_raise(examiner: KernelExaminer, question: OpCase, may_refuse: bool) -> str:
    """Return the kind of the verdict on a case; raise ConformanceError with a shrunk case if it is a failure.

    `may_refuse` says whether a refusal is no failure.
    """
    verdict = examiner.ask(question)
    if verdict.kind in ("exact", "rounding", "cannot tell") or (may_refuse and verdict.kind == "refuses"):
        return verdict.kind
    kind = type(examiner.error)

    def is_same(q: OpCase) -> bool:
        return examiner.ask(q).same_sort(verdict) and type(examiner.error) is kind

    small = examiner.rounded(shrink(question, is_same, seconds=10))
    again, answer = examiner.ask(small), examiner.answer(small)
    raise ConformanceError(small, again, _failure_text(small, again, answer, examiner)) from examiner.error
