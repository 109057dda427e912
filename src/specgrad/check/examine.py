"""Ask one question of one runtime, or of one kernel, and recognise arithmetic other than the declared one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..rounding import ANY, Arithmetic
from ..scalar import Array
from .generate import draw
from .judge import MULTIPLY_ADD, Verdict, expected, judge
from .process import Answer, Process
from .question import Question
from .runtimes import NotOffered, Runtime


def arithmetic_of(runtime: Runtime) -> Arithmetic:
    """float32 with the accuracy that the runtime's record declares: of one operator, or of one layer that was read."""
    return Arithmetic("float32", execution="node", flush=runtime.flush, ulps={**ANY, **(runtime.ulps or {})})


def merged_arithmetic_of(runtime: Runtime) -> Arithmetic:
    """The same where only the last of several layers was read: the runtime may have merged them."""
    return replace(arithmetic_of(runtime), execution="fused")


def _kept_bits(x: Array, bits: int) -> Array:
    """x rounded to `bits` significant bits, ties to even."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    rounded: Array = np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits).astype(np.float32)
    return rounded


Probe = Callable[[Question], Question]
Test = Callable[[Question, Answer, Arithmetic], bool]
OPERANDS = {"bfloat16": 8, "TF32 or float16": 11}  # significant bits


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
        if (verdict.kind, verdict.fault) != ("differs", "value"):
            return verdict
        name = self._other_arithmetic(question, answer)
        return replace(verdict, kind="other arithmetic", detail=f"looks like {name}") if name else verdict

    def _other_arithmetic(self, question: Question, answer: Answer) -> str:
        """The formula is right on small integers, and the error is that of a known cheaper arithmetic."""
        if question.operator not in MULTIPLY_ADD:
            return ""
        answers: dict[Probe, tuple[Question, Answer]] = {_itself: (question, answer)}
        for name, demands in ARITHMETICS.items():
            if all(self._passes(question, probe, test, answers) for probe, test in demands):
                return name
        return ""

    def _passes(
        self, question: Question, probe: Probe, test: Test, known: dict[Probe, tuple[Question, Answer]]
    ) -> bool:
        if probe not in known:
            asked = probe(question)
            known[probe] = asked, self.answer(asked)
        asked, answer = known[probe]
        shapes = [a.shape for a in answer.arrays], [b.shape for b in expected(asked, self.arithmetic)]
        return answer.outcome == "answers" and shapes[0] == shapes[1] and test(asked, answer, self.arithmetic)


def _itself(question: Question) -> Question:
    return question


def _small_integers(question: Question) -> Question:
    """-1, 0, 1 in every array: what survives a cheaper arithmetic, and what a wrong formula does not survive."""
    rng = np.random.default_rng(0)
    arrays = {k: rng.integers(-1, 2, a.shape).astype(np.float32) for k, a in question.arrays.items()}
    asked = replace(question, arrays=arrays)
    if question.gradient is None:
        return asked
    return replace(asked, gradient=rng.integers(-1, 2, question.gradient.shape).astype(np.float32))


def _spiked(question: Question) -> Question:
    """One large cell per plane: what does not read it must not feel it."""
    rng = np.random.default_rng(0)
    arrays = {k: rng.normal(size=a.shape).astype(np.float32) for k, a in question.arrays.items()}
    x = arrays["x"].reshape(*arrays["x"].shape[:2], -1)
    x[..., 0] *= np.float32(2.0**20)
    return replace(question, arrays={**arrays, "x": x.reshape(arrays["x"].shape)})


def _errors(question: Question, answer: Answer, arithmetic: Arithmetic) -> Array:
    balls = expected(question, arithmetic)
    return np.concatenate([np.ravel(np.abs(a - b.value)) for a, b in zip(answer.arrays, balls, strict=True)])


def _exact_while_small(question: Question, answer: Answer, arithmetic: Arithmetic) -> bool:
    """bfloat16 holds integers up to 256, so sums below that must be right; larger ones nearly so."""
    sizes, errors = _sizes(question, arithmetic), _errors(question, answer, arithmetic)
    return bool((errors <= np.where(sizes <= 128, 0.0, 0.01 * sizes)).all())


def _sizes(question: Question, arithmetic: Arithmetic) -> Array:
    """The sum of the absolute values of each cell's own terms."""
    positive = replace(question, arrays={k: np.abs(a) for k, a in question.arrays.items()})
    return np.concatenate([np.ravel(np.abs(b.value)) for b in expected(positive, arithmetic)])


def _nearly_right(question: Question, answer: Answer, arithmetic: Arithmetic) -> bool:
    return bool((_errors(question, answer, arithmetic) <= 1e-3).all())


def _operands(bits: int) -> Test:
    """The answer is within the float32 bound of the question with shorter operands."""

    def test(question: Question, answer: Answer, arithmetic: Arithmetic) -> bool:
        factors = {k: a if k == "b" else _kept_bits(a, bits) for k, a in question.arrays.items()}
        short = replace(question, arrays=factors)
        if question.gradient is not None:
            short = replace(short, gradient=_kept_bits(question.gradient, bits))
        return judge(short, answer, arithmetic).kind in ("exact", "rounding")

    return test


def _accumulated(dtype: str) -> Test:
    """The answer is within the bound of that format, and outside that of float32."""

    def test(question: Question, answer: Answer, arithmetic: Arithmetic) -> bool:
        coarse = replace(arithmetic, dtype=dtype, accumulate=dtype)
        verdict = _judge_plain(question, answer, coarse)
        return verdict.kind in ("exact", "rounding")

    return test


def _judge_plain(question: Question, answer: Answer, arithmetic: Arithmetic) -> Verdict:
    """As judge, without the demand that small integers be exact."""
    nudged = {k: a * np.float32(1 + 2**-20) for k, a in question.arrays.items()}
    return judge(replace(question, arrays=nudged), answer, arithmetic)


def _winograd(question: Question, answer: Answer, arithmetic: Arithmetic) -> bool:
    """Errors of the size of the largest operands nearby, where the cell's own operands are small."""
    x, w = question.arrays["x"], question.arrays["w"]
    largest = 9 * w.shape[1] * float(np.abs(x).max()) * float(np.abs(w).max())
    errors = _errors(question, answer, arithmetic)
    not_its_own = (errors > 2.0**-12 * _sizes(question, arithmetic)).any()
    return bool(not_its_own and errors.max() <= 64 * arithmetic.u * largest)


def _is_usual_conv(question: Question, answer: Answer, arithmetic: Arithmetic) -> bool:
    """What Winograd's algorithm can compute."""
    a = question.attributes
    plain = question.operator == "conv" and question.gradient is None and question.arrays["w"].shape[2:] == (3, 3)
    return plain and a["stride"] == a["dilation"] == (1, 1)


# Per name: right on small integers, and what explains the error.
ARITHMETICS: dict[str, tuple[tuple[Probe, Test], ...]] = {
    **{
        f"{name} operands": ((_small_integers, _exact_while_small), (_itself, _operands(bits)))
        for name, bits in OPERANDS.items()
    },
    "Winograd": ((_itself, _is_usual_conv), (_small_integers, _nearly_right), (_spiked, _winograd)),
    "bfloat16 accumulation": ((_small_integers, _exact_while_small), (_itself, _accumulated("bfloat16"))),
}


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
