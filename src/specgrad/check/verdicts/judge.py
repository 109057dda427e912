"""The verdict on one answer: exact, rounding, or differs; the allowance is a proven radius, never a tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves
from specgrad.ops.resize import RESIZE, RESIZE_SPREAD
from specgrad.process import ProcessResult
from specgrad.rounding import FORMATS, Arithmetic, Ball, radius
from specgrad.rounding.arithmetic import OPERANDS
from specgrad.rounding.resize import may_read_nonfinite
from specgrad.scalar import Array

from ..cases.op_case import OpCase

Kind = Literal[
    "exact",
    "rounding",
    "other arithmetic",
    "differs",
    "refuses",
    "crashes",
    "times out",
    "cannot tell",
    "not offered",
    "not examined",
]
SEVERITY: tuple[Kind, ...] = (
    "not offered", "not examined", "exact", "rounding", "cannot tell", "refuses", "times out", "crashes",
    "other arithmetic", "differs",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What is known of one answer.

    ratio   the largest error over its allowance (0: exact)
    fault   for "differs": shape, type, nan, infinity, index or value
    index   the worst cell; `actual` and `expected` are its values
    arithmetic    the class that explains it (specgrad.check.verdicts.arithmetic_classes); "": float32, or none
    """

    kind: Kind
    ratio: float = 0.0
    fault: str = ""
    result: str = ""
    index: tuple[int, ...] = ()
    actual: float = 0.0
    expected: float = 0.0
    allowed: float = 0.0
    detail: str = ""
    arithmetic: str = ""

    def same_sort(self, other: Verdict) -> bool:
        """Whether shrinking may go from one to the other."""
        return (self.kind, self.fault, self.arithmetic) == (other.kind, other.fault, other.arithmetic)

    def __str__(self) -> str:
        if self.detail or self.kind not in ("differs", "other arithmetic", "rounding"):
            return f"{self.kind}: {self.detail}" if self.detail else self.kind
        if self.kind == "rounding":
            return f"rounding ({self.ratio:.2g} of the allowance)"
        place = f"{self.result}[{', '.join(map(str, self.index))}]"
        return f"{self.kind}: {place} is {self.actual!r}, must be {self.expected!r} within {self.allowed:.3g}"


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The one to report."""
    return max(verdicts, key=lambda v: (SEVERITY.index(v.kind), v.ratio))


# --- what is allowed --------------------------------------------------------------------------------------------


MULTIPLY_ADD = ("conv", "conv_transpose", "linear", "add", "mul")
FAR = 1.0e4  # stands for an infinity where only the width of the allowance is asked


def _is_exact_in(question: OpCase, arithmetic: Arithmetic) -> bool:
    """Integers whose every partial sum, in any order, is a number of every format: right to the last bit, or wrong."""
    arrays = question.arguments()
    if question.operator not in MULTIPLY_ADD or any((a != np.rint(a)).any() or np.isinf(a).any() for a in arrays):
        return False
    largest = question.meaning()(*(np.abs(a) for a in arrays))
    formats = (arithmetic.dtype, arithmetic.operands, arithmetic.accumulate)
    most = 2 ** min([24, *({**FORMATS, **OPERANDS}[name].digits for name in formats if name)])
    return all(np.max(y, initial=0) < most for y in (largest if isinstance(largest, tuple) else [largest]))


def in_float64(graph: Graph) -> Graph:
    """The same graph with wide constants: what NumPy computes of float32 constants alone would be rounded to float32.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: x * (x.builder.constant(np.float32([0.1])) * 0.1), (1,))
    >>> [bool(g(np.ones(1)) == float(np.float32(0.1)) * 0.1) for g in (graph, in_float64(graph))]
    [False, True]
    """
    wide = {p: a.astype(np.float64) if a.dtype.kind == "f" else a for p, a in graph.constants.items()}
    return replace(graph, constants=wide)


def balls(
    graph: Graph,
    given: Sequence[Array],
    arithmetic: Arithmetic,
    backend: str = "numpy",
    formats: Mapping[str, str] | None = None,
) -> list[Ball]:
    """Value and allowance of every result. NaN and infinities take their value from the specification alone.

    The allowance is that of numbers in their place. Where those give another number, it says nothing of this one.
    """
    finite = [stand_ins(a) for a in given]
    report = radius(graph, *finite, arithmetic=arithmetic, backend=backend, formats=formats)
    per_result: list[Ball] = leaves(report.outputs)
    if any((a != f).any() for a, f in zip(given, finite, strict=True)):
        values = in_float64(graph)(*given)
        values = values if isinstance(values, tuple) else (values,)
        open_ = _loosely_read(graph, given)
        per_result = [_of_true_inputs(ball, v, open_) for ball, v in zip(per_result, values, strict=True)]
    return per_result


def stand_ins(x: Array) -> Array:
    """Numbers in place of NaN and infinities."""
    return np.where(np.isnan(x), 0.0, np.where(np.isinf(x), np.copysign(FAR, x), x))


def _of_true_inputs(ball: Ball, value: Array, open_: Array) -> Ball:
    """The ball of the stand-ins where it holds the value too; the value itself where that is no number."""
    if ball.value.dtype.kind == "i":
        return replace(ball, value=value, radius=np.where(open_, np.inf, ball.radius))
    other = np.isfinite(value) & ~ball.contains(value)
    return replace(ball, value=value, radius=np.where(open_ | other, np.inf, ball.radius))


def _loosely_read(graph: Graph, given: Sequence[Array]) -> Array:
    """Cells that may have met a NaN or an infinity or not: of resizing, or anywhere behind it."""
    resized = [n for n in graph.nodes if n.op in (RESIZE, RESIZE_SPREAD)]
    if not resized:
        return np.array(False)
    alone = len(graph.nodes) == 2 and resized[0].op is RESIZE
    return may_read_nonfinite(given[0], resized[0].params) if alone else np.array(True)


def expected(question: OpCase, arithmetic: Arithmetic) -> list[Ball]:
    """The meaning of a question: one ball per answer."""
    per_answer = balls(question.meaning(), question.arguments(), arithmetic)[-len(question.answers()) :]
    if _is_exact_in(question, arithmetic):
        per_answer = [replace(ball, radius=np.zeros(ball.value.shape)) for ball in per_answer]
    return per_answer


# --- comparing --------------------------------------------------------------------------------------------------


def _cell(bad: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))


def compare(result: str, got: Array, ball: Ball) -> Verdict:
    """One array against one ball. Open cells, whose radius is infinite, excuse themselves and no other cell."""
    if got.shape != ball.value.shape:
        text = f"{result} has shape {got.shape}, must have {ball.value.shape}"
        return Verdict("differs", np.inf, "shape", result, detail=text)
    if got.size == 0:
        return Verdict("exact")
    value, allowed, g = ball.value, ball.radius, got.astype(np.float64)
    known = np.isfinite(allowed)
    for fault, bad in _faults(g, value).items():
        if (bad & known).any():
            return _at(Verdict("differs", np.inf, fault, result), _cell(bad & known), g, ball)
    verdict = _by_size(result, g, ball, known)
    return verdict if known.all() or verdict.kind == "differs" else _open(verdict, known)


def _faults(got: Array, value: Array) -> dict[str, Array]:
    """Cells that no allowance excuses."""
    if value.dtype.kind == "i":
        return {"index": got != value}
    nan = np.isnan(got) != np.isnan(value)
    infinite = ~np.isnan(got) & (np.isinf(got) | np.isinf(value)) & (got != value)
    return {"nan": nan, "infinity": infinite}


def _at(verdict: Verdict, i: tuple[int, ...], got: Array, ball: Ball) -> Verdict:
    return replace(verdict, index=i, actual=float(got[i]), expected=float(ball.value[i]), allowed=float(ball.radius[i]))


def _by_size(result: str, got: Array, ball: Ball, known: Array) -> Verdict:
    """The largest error over its allowance, among the known cells."""
    with np.errstate(all="ignore"):
        error = np.where(known & np.isfinite(got) & np.isfinite(ball.value), np.abs(got - ball.value), 0.0)
        ratio = np.where(error == 0, 0.0, error / ball.radius)
        if ball.whole:  # a set of whole numbers: one of it, or none
            ratio = np.where(known & ~ball.contains(got), np.maximum(ratio, error + 1), ratio)
    i = _cell(ratio)
    kind: Kind = "differs" if ratio[i] > 1 else "rounding" if ratio[i] > 0 else "exact"
    return _at(Verdict(kind, float(ratio[i]), "value" if ratio[i] > 1 else "", result), i, got, ball)


def _open(verdict: Verdict, known: Array) -> Verdict:
    """The verdict on the known cells is "exact" or "rounding"; of the others nothing is known."""
    count = f"{np.count_nonzero(~known)} of {known.size} cells are open"
    others = f"; the others: {verdict.kind}" if known.any() else ""
    text = f"{count}: overflow, or a choice that rounding decides{others}"
    return Verdict("cannot tell", verdict.ratio, detail=text)


def judge(question: OpCase, answer: ProcessResult, arithmetic: Arithmetic) -> Verdict:
    """The worst over all results of one answer."""
    if answer.outcome != "answers":
        return Verdict(answer.outcome, detail=answer.reason)
    names, wanted = question.answers(), expected(question, arithmetic)
    if len(answer.arrays) != len(names):
        return Verdict("differs", np.inf, "shape", detail=f"{len(answer.arrays)} results, must be {len(names)}")
    return worst([compare(n, a, b) for n, a, b in zip(names, answer.arrays, wanted, strict=True)])
