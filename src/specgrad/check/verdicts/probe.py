"""Probe a runtime with chosen data, to see whether it really uses a class of arithmetic that allows much.

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
from .judge import expected_balls, judge_array
from .observation import Observation

SPIKE_FACTOR = 2.0**24
MAX_EXACT_SUM = 128  # every integer up to twice that is a number of every format, in whichever order it is summed
MAX_OPERAND_ERROR = 2.0**-8  # no operand format errs by more than that of the sizes that a cell reads


@dataclass(eq=False)
class LayerProbe:
    """Runs variations of one test case, to confirm or refute a class of arithmetic.

    layer_output   what the layer gave inside its model: alone it must give the same, or it proves nothing of the model
    question       the case; ask runs one, answers keeps what was asked
    """

    question: OpCase
    ask: Callable[[OpCase], ProcessResult]
    arithmetic: Arithmetic
    layer_output: Array | None = None
    answers: dict[str, tuple[OpCase, ProcessResult]] = field(default_factory=dict)

    def __call__(self, way: ArithmeticVariant) -> str | None:
        """Return "" if the class, in its variant `way`, is confirmed by asking the runtime, or why it is not.

        None if the layer is too small to tell.
        """
        if self.layer_output is not None and not self._agrees_with_layer(self.layer_output):
            return "the layer alone gives other numbers"
        asked, answer = self._ask_once("integers", small_integers)
        if not self._is_right_on_integers(way, asked, answer):
            return "wrong on small integers"
        if isinstance(way, ReducedSums):
            return ""
        asked, answer = self._ask_once("spikes", with_spikes)
        apart = ~_reads_spike(asked)
        if not apart.any():
            return None
        return (
            "" if self._spreads_like_tiles(way, asked, answer, apart) else "a large cell is felt only where it is read"
        )

    def _agrees_with_layer(self, layer_output: Array) -> bool:
        """Return whether the layer alone gives the output of the model, up to float32 rounding."""
        asked, answer = self._ask_once("itself", lambda question: question)
        observed = _observe(asked, answer)
        if observed is None:
            return False
        (ball,) = expected_balls(observed.graph, observed.inputs, self.arithmetic)
        return bool((np.abs(observed.outputs[0] - layer_output.astype(np.float64)) <= ball.radius).all())

    def _ask_once(self, kind: str, change: Callable[[OpCase], OpCase]) -> tuple[OpCase, ProcessResult]:
        """Return the case as `change` changes it and the target's answer, cached by `kind`."""
        if kind not in self.answers:
            asked = change(self.question)
            self.answers[kind] = asked, self.ask(asked)
        return self.answers[kind]

    def _is_right_on_integers(self, way: ArithmeticVariant, asked: OpCase, answer: ProcessResult) -> bool:
        """Return whether the answer to the case `asked` is right: to the last bit in half sums, by < 1/2 in tiles of
        `way`.
        """
        observed = _observe(asked, answer)
        if observed is None:
            return False
        if isinstance(way, ReducedSums):
            return all(np.array_equal(a, v) for a, v in zip(observed.outputs, observed.values(), strict=True))
        wanted = next(class_balls(way, observed, self.arithmetic))
        return all(
            (b.radius < 0.5).all() and b.contains(a).all() for a, b in zip(observed.outputs, wanted, strict=True)
        )

    def _spreads_like_tiles(self, way: ArithmeticVariant, asked: OpCase, answer: ProcessResult, apart: Array) -> bool:
        """Return whether outputs that do not read the large cell, marked by `apart`, have errors that only tiles of
        Winograd's algorithm, as in `way`, explain.

        `asked` is the case with spikes, `answer` what the target made of it.
        """
        observed = _observe(asked, answer)
        if observed is None:
            return False
        (ball,) = next(class_balls(way, observed, self.arithmetic))
        (got,), (size,) = observed.outputs, _absolute_sums(asked)
        error = np.abs(got - ball.value)
        return judge_array("y", got, ball).kind == "rounding" and bool((error > MAX_OPERAND_ERROR * size)[apart].any())


def _observe(asked: OpCase, answer: ProcessResult) -> Observation | None:
    """Return the answer to the case `asked` as an observation; None if it is no answer or has other shapes."""
    observed = Observation(asked.meaning(), asked.arguments(), answer.arrays, asked.answers())
    if answer.outcome != "answers" or [a.shape for a in answer.arrays] != [v.shape for v in observed.values()]:
        return None
    return observed


def _absolute_sums(question: OpCase) -> list[Array]:
    """Return, per result and cell of the case, the sum of the absolute values of its terms."""
    size = Observation(
        question.meaning(), [np.abs(a) for a in question.arguments()], [np.empty(0)] * len(question.answers())
    )
    return size.values()


def small_integers(question: OpCase) -> OpCase:
    """Return the case with -1, 0, 1 in every array, few enough that all sums are small; no 0 in a bias."""
    rng, density = np.random.default_rng(0), 1.0
    while True:
        arrays = {k: _integers(rng, a.shape, density if k != "b" else 1.0) for k, a in question.arrays.items()}
        asked = replace(question, arrays=arrays)
        if question.gradient is not None:
            asked = replace(asked, gradient=_integers(rng, question.gradient.shape, density))
        if density < 2.0**-10 or all(np.max(s, initial=0) <= MAX_EXACT_SUM for s in _absolute_sums(asked)):
            return asked
        density *= 0.75


def _integers(rng: np.random.Generator, shape: tuple[int, ...], density: float) -> Array:
    """Return a float32 array of this shape, drawn by `rng`: each cell is -1 or 1 with probability `density` in all,
    else 0.
    """
    drawn: Array = rng.choice((-1.0, 1.0), shape) * (rng.random(shape) < density)
    return drawn.astype(np.float32)


def with_spikes(question: OpCase) -> OpCase:
    """Return the case with normal data, one large cell per plane, and weights in the kernel's corners alone."""
    rng = np.random.default_rng(0)
    arrays = {k: rng.normal(size=a.shape).astype(np.float32) for k, a in question.arrays.items()}
    arrays["w"][..., 1, :] = arrays["w"][..., :, 1] = 0
    _spike_cells(arrays["x"])[...] *= np.float32(SPIKE_FACTOR)
    return replace(question, arrays=arrays)


def _spike_cells(x: Array) -> Array:
    """Return the large cell of every plane, as a view."""
    planes: Array = x.reshape(*x.shape[:2], -1)
    return planes[..., planes.shape[-1] // 3]


def _reads_spike(asked: OpCase) -> Array:
    """Return the mask of outputs of the case that multiply its large cell by a weight that is not 0."""
    arrays = {"x": np.zeros_like(asked.arrays["x"]), "w": (asked.arrays["w"] != 0).astype(np.float32)}
    _spike_cells(arrays["x"])[...] = 1
    felt = replace(asked, arrays=arrays)
    return Observation(felt.meaning(), felt.arguments(), [np.empty(0)]).values()[0] > 0
