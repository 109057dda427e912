"""Ask a runtime again, to see whether a class of arithmetic that allows much is what it really does.

On integers a fault shows as a whole number, so a class whose radius is below 1/2 there hides none. Winograd's tiles
show themselves by a large cell that reaches outputs which do not read it, or multiply it by 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from specgrad.process import ProcessResult
from specgrad.rounding import Arithmetic
from specgrad.rounding.arithmetic_variants import ReducedSums
from specgrad.rounding.context import ArithmeticVariant
from specgrad.scalar import Array

from ..cases.op_case import OpCase
from .arithmetic_classes import class_balls
from .judge import balls, compare
from .observation import Observation

SPIKE = 2.0**24
SMALLEST_SUMS = 128  # every integer up to twice that is a number of every format, in whichever order it is summed
ITS_OWN = 2.0**-8  # no operand format errs by more than that of the sizes that a cell reads


@dataclass(eq=False)
class LayerProbe:
    """A question that was asked, and somebody who answers others.

    met   what a model's layer has answered: the layer alone must say the same, or it speaks for another
    """

    question: OpCase
    ask: Callable[[OpCase], ProcessResult]
    arithmetic: Arithmetic
    met: Array | None = None
    answers: dict[str, tuple[OpCase, ProcessResult]] = field(default_factory=dict)

    def __call__(self, way: ArithmeticVariant) -> str | None:
        """ "" if the class has shown itself, or why it has not; None where the layer is too small to tell."""
        if self.met is not None and not self._says_the_same(self.met):
            return "the layer alone gives other numbers"
        asked, answer = self._asked("integers", small_integers)
        if not self._is_whole(way, asked, answer):
            return "wrong on small integers"
        if isinstance(way, ReducedSums):
            return ""
        asked, answer = self._asked("spikes", spiked)
        apart = ~_feels_spike(asked)
        if not apart.any():
            return None
        return "" if self._reaches(way, asked, answer, apart) else "a large cell is felt only where it is read"

    def _says_the_same(self, met: Array) -> bool:
        """Within what float32 allows: sums may be split among threads."""
        asked, answer = self._asked("itself", lambda question: question)
        seen = _seen(asked, answer)
        if seen is None:
            return False
        (ball,) = balls(seen.graph, seen.given, self.arithmetic)
        return bool((np.abs(seen.got[0] - met.astype(np.float64)) <= ball.radius).all())

    def _asked(self, kind: str, change: Callable[[OpCase], OpCase]) -> tuple[OpCase, ProcessResult]:
        if kind not in self.answers:
            asked = change(self.question)
            self.answers[kind] = asked, self.ask(asked)
        return self.answers[kind]

    def _is_whole(self, way: ArithmeticVariant, asked: OpCase, answer: ProcessResult) -> bool:
        """Right to the last bit in half sums, which are exact here; in tiles within a radius below 1/2."""
        seen = _seen(asked, answer)
        if seen is None:
            return False
        if isinstance(way, ReducedSums):
            return all(np.array_equal(a, v) for a, v in zip(seen.got, seen.values(), strict=True))
        wanted = next(class_balls(way, seen, self.arithmetic))
        return all((b.radius < 0.5).all() and b.contains(a).all() for a, b in zip(seen.got, wanted, strict=True))

    def _reaches(self, way: ArithmeticVariant, asked: OpCase, answer: ProcessResult, apart: Array) -> bool:
        """Within the ball; and where the large cell is not read the error is not one of what is read."""
        seen = _seen(asked, answer)
        if seen is None:
            return False
        (ball,) = next(class_balls(way, seen, self.arithmetic))
        (got,), (size,) = seen.got, _sizes(asked)
        error = np.abs(got - ball.value)
        return compare("y", got, ball).kind == "rounding" and bool((error > ITS_OWN * size)[apart].any())


def _seen(asked: OpCase, answer: ProcessResult) -> Observation | None:
    seen = Observation(asked.meaning(), asked.arguments(), answer.arrays, asked.answers())
    if answer.outcome != "answers" or [a.shape for a in answer.arrays] != [v.shape for v in seen.values()]:
        return None
    return seen


def _sizes(question: OpCase) -> list[Array]:
    """The sum of the absolute values of each cell's own terms."""
    size = Observation(
        question.meaning(), [np.abs(a) for a in question.arguments()], [np.empty(0)] * len(question.answers())
    )
    return size.values()


def small_integers(question: OpCase) -> OpCase:
    """Few enough -1, 0, 1 in every array that all sums are small; no 0 in a bias."""
    rng, density = np.random.default_rng(0), 1.0
    while True:
        arrays = {k: _integers(rng, a.shape, density if k != "b" else 1.0) for k, a in question.arrays.items()}
        asked = replace(question, arrays=arrays)
        if question.gradient is not None:
            asked = replace(asked, gradient=_integers(rng, question.gradient.shape, density))
        if density < 2.0**-10 or all(np.max(s, initial=0) <= SMALLEST_SUMS for s in _sizes(asked)):
            return asked
        density *= 0.75


def _integers(rng: np.random.Generator, shape: tuple[int, ...], density: float) -> Array:
    drawn: Array = rng.choice((-1.0, 1.0), shape) * (rng.random(shape) < density)
    return drawn.astype(np.float32)


def spiked(question: OpCase) -> OpCase:
    """Gaussian, one large cell per plane, and weights in the corners of the kernel alone: most cells do not feel it."""
    rng = np.random.default_rng(0)
    arrays = {k: rng.normal(size=a.shape).astype(np.float32) for k, a in question.arrays.items()}
    arrays["w"][..., 1, :] = arrays["w"][..., :, 1] = 0
    _large(arrays["x"])[...] *= np.float32(SPIKE)
    return replace(question, arrays=arrays)


def _large(x: Array) -> Array:
    """The large cell of every plane, as a view."""
    planes: Array = x.reshape(*x.shape[:2], -1)
    return planes[..., planes.shape[-1] // 3]


def _feels_spike(asked: OpCase) -> Array:
    """Which outputs multiply the large cell by a weight that is not 0."""
    arrays = {"x": np.zeros_like(asked.arrays["x"]), "w": (asked.arrays["w"] != 0).astype(np.float32)}
    _large(arrays["x"])[...] = 1
    felt = replace(asked, arrays=arrays)
    return Observation(felt.meaning(), felt.arguments(), [np.empty(0)]).values()[0] > 0
