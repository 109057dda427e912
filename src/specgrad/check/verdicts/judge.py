"""Judge one answer: exact, rounding, or differs; the allowance is a proven radius, not a chosen tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from specgrad.graph.ir.node import bind_inputs
from specgrad.graph.ir.tree import leaves
from specgrad.op import run_spec
from specgrad.ops.activation import CLAMP
from specgrad.ops.conv import CONV_TRANSPOSE
from specgrad.ops.resize import RESIZE, RESIZE_SPREAD
from specgrad.process import ProcessResult
from specgrad.rounding import FORMATS, Arithmetic, Ball, radius
from specgrad.rounding.arithmetic import OPERANDS
from specgrad.rounding.ball import are_equal_integers
from specgrad.rounding.resize import may_read_nonfinite
from specgrad.scalar import Array

from ..cases.op_case import OpCase

Kind = Literal[
    "exact",
    "rounding",
    "unusual",
    "partly examined",
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
    "not offered", "not examined", "exact", "rounding", "cannot tell", "partly examined", "unusual", "refuses",
    "times out", "crashes", "other arithmetic", "differs",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """The verdict on one answer, with its worst cell.

    ratio   the largest error over its allowance (0: exact)
    fault   for "differs": shape, type, nan, infinity, index or value
    index   the worst cell; `actual` and `expected` are its values
    arithmetic    the class that explains it (specgrad.check.verdicts.arithmetic_classes); "": float32, or none
    kind    the verdict in a word
    result  which result the worst cell belongs to; `allowed` is the error that it may have
    detail  what else is to say, in words
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
        """Return whether kind, fault and arithmetic agree: shrinking may replace one by the other."""
        return (self.kind, self.fault, self.arithmetic) == (other.kind, other.fault, other.arithmetic)

    def __str__(self) -> str:
        if self.detail or self.kind not in ("differs", "other arithmetic", "rounding"):
            return f"{self.kind}: {self.detail}" if self.detail else self.kind
        if self.kind == "rounding":
            return f"rounding ({self.ratio:.2g} of the allowance)"
        place = f"{self.result}[{', '.join(map(str, self.index))}]"
        return f"{self.kind}: {place} is {self.actual!r}, must be {self.expected!r} within {self.allowed:.3g}"


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the most severe verdict; among equals, the one with the largest error ratio."""
    return max(verdicts, key=lambda v: (SEVERITY.index(v.kind), v.ratio))


# --- what is allowed --------------------------------------------------------------------------------------------


INFINITY_STAND_IN = 1.0e4  # stands for an infinity where only the width of the allowance is asked
SUMS_OF_PRODUCTS = (
    "add",
    "sub",
    "mul",
    "sum",
    "contract",
    "conv",
    "conv_transpose",
    "conv_weight",
    "put",
    "scatter",
    "cumsum",
)
MOVES_OF_CELLS = (
    "reshape", "permute", "slice", "pad", "concat", "broadcast", "neg", "take", "gather", "fill", "stop_gradient",
)  # fmt: skip
LARGEST_OF_CELLS = ("relu", "maximum", "max_pool", "amax", "abs")


def is_exact_on_integers(graph: Graph, given: Sequence[Array], arithmetic: Arithmetic) -> bool:
    """Return whether every execution gives the exact results of the graph at the inputs `given`, without a rounding.

    So it is where all numbers are integers, which are added, multiplied, moved and compared for the largest alone, and
    where sums of their absolute values are integers that every format involved has: then so is every partial sum, in
    any order.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.sum(x * x), (3,))
    >>> [is_exact_on_integers(graph, [np.array(x)], Arithmetic()) for x in ([1.0, 2, 3], [1.0, 2, 0.5], [1.0, 2, 5000])]
    [True, False, False]
    """
    formats = (arithmetic.dtype, arithmetic.operands, arithmetic.accumulate)
    digits = [24, *({**FORMATS, **OPERANDS}[name].digits for name in formats if name)]
    digits += [] if arithmetic.cores is None else [arithmetic.cores.fraction, arithmetic.cores.digits]
    most = 2.0 ** min(digits)
    sizes: list[Array] = []
    inputs = bind_inputs(graph, tuple(given))
    for i, node in enumerate(graph.nodes):
        args = [np.abs(float(a.value)) if isinstance(a, NumberArg) else sizes[a] for a in node.args]
        if node.op in (INPUT, CONSTANT):
            size = np.asarray(inputs[i] if node.op is INPUT else graph.constants[i])
            size = size if node.kind == "index" else np.abs(size.astype(np.float64))
        elif node.op.name in (*SUMS_OF_PRODUCTS, *MOVES_OF_CELLS, *LARGEST_OF_CELLS) and all(map(_is_whole, args)):
            size = np.abs(_on_sizes(node, args))
        else:
            return False
        if node.kind == "real" and not (_is_whole(size) and np.max(size, initial=0) < most):
            return False
        sizes.append(size)
    return True


def _on_sizes(node: Node, args: Sequence[Any]) -> Array:
    """Return the node's sum of absolute values, for those of its arguments."""
    if node.op.magnitude is not None:
        return np.asarray(node.op.magnitude(*args, **node.params))
    return run_spec(node.op, args, node.params)


def _is_whole(x: Any) -> bool:
    """Return whether every cell of x is a finite whole number."""
    return bool(np.isfinite(x).all() and (np.rint(x) == x).all())


def in_float64(graph: Graph) -> Graph:
    """Return the graph with float64 constants; float32 constants alone would be computed with in float32 by NumPy.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: x * (x.builder.constant(np.float32([0.1])) * 0.1), (1,))
    >>> [bool(g(np.ones(1)) == float(np.float32(0.1)) * 0.1) for g in (graph, in_float64(graph))]
    [False, True]
    """
    wide = {p: a.astype(np.float64) if a.dtype.kind == "f" else a for p, a in graph.constants.items()}
    return replace(graph, constants=wide)


def expected_balls(
    graph: Graph,
    given: Sequence[Array],
    arithmetic: Arithmetic,
    backend: str = "numpy",
    formats: Mapping[str, str] | None = None,
) -> list[Ball]:
    """Return the exact value and the allowance (radius) of every result, one ball each.

    Non-finite inputs: values are those of the specification, radii those for finite numbers in their place. Where those
    give another value, or small numbers that count as zero do, the radius is infinite. `given` are the inputs,
    `arithmetic` the executions; `backend` ("numpy" or "torch") computes; `formats` are of nodes in other formats.
    UnsupportedError where an operator has no radius.
    """
    finite = [replace_nonfinite(a) for a in given]
    report = radius(graph, *finite, arithmetic=arithmetic, backend=backend, formats=formats)
    per_result: list[Ball] = leaves(report.outputs)
    if any((a != f).any() for a, f in zip(given, finite, strict=True)):
        values = leaves(in_float64(graph)(*given))
        open_, ends = _may_read_nonfinite(graph, given), _has_open_end(graph, given)
        others = _values_without_small(graph, given, arithmetic.may_vanish) or values
        triples = zip(per_result, values, others, strict=True)
        per_result = [
            _with_exact_value(ball, v, open_ | _differs(v, other) | (ends & ~np.isfinite(v)))
            for ball, v, other in triples
        ]
    return per_result


def _has_open_end(graph: Graph, given: Sequence[Array]) -> bool:
    """Return whether inputs are infinite, and a clamp has one end alone: by the text of ONNX's Clip the other one is
    the largest number, by its reference there is none.
    """
    ends = [(n.params["low"], n.params["high"]) for n in graph.nodes if n.op is CLAMP]
    return any(None in pair for pair in ends) and any(a.dtype.kind == "f" and np.isinf(a).any() for a in given)


def _values_without_small(graph: Graph, given: Sequence[Array], below: float) -> list[Array] | None:
    """Return the results if inputs and constants of size below `below` count as zero (times an infinity: NaN).

    None: no such.
    """
    wide = in_float64(graph)

    def small(a: Array) -> Array:
        return np.asarray((np.abs(a) < below) & (a != 0) & (a.dtype.kind == "f"))

    def without(a: Array) -> Array:
        return np.where(small(a), np.copysign(0.0, a), a) if small(a).any() else a

    if not any(small(a).any() for a in (*given, *wide.constants.values())):
        return None
    few = replace(wide, constants={p: without(a) for p, a in wide.constants.items()})
    return leaves(few(*map(without, given)))


def _differs(value: Array, other: Array) -> Array:
    """Return the mask of cells that are not finite in one array, and something else in the other."""
    same = (value == other) | (np.isnan(value) & np.isnan(other))
    return np.asarray(~same & ~(np.isfinite(value) & np.isfinite(other)))


def replace_nonfinite(x: Array) -> Array:
    """Return x with 0 for NaN and +-INFINITY_STAND_IN for infinities."""
    if x.dtype.kind != "f":  # float64 does not hold every integer
        return x
    return np.where(np.isnan(x), 0.0, np.where(np.isinf(x), np.copysign(INFINITY_STAND_IN, x), x))


def _with_exact_value(ball: Ball, value: Array, open_: Array) -> Ball:
    """Return the ball with `value` as centre; its radius is infinite in cells that are open or do not hold it."""
    if ball.value.dtype.kind == "i":
        return replace(ball, value=value, radius=np.where(open_, np.inf, ball.radius))
    other = np.isfinite(value) & ~ball.contains(value)
    return replace(ball, value=value, radius=np.where(open_ | other, np.inf, ball.radius))


def _may_read_nonfinite(graph: Graph, given: Sequence[Array]) -> Array:
    """Return the mask of cells that may depend on a NaN or an infinity of the inputs `given` though their definition
    does not: of a resize, of a convolution whose weights meet padding, or all behind one.
    """
    resized = [n for n in graph.nodes if n.op in (RESIZE, RESIZE_SPREAD)]
    alone = sum(n.op not in (INPUT, CONSTANT) for n in graph.nodes) == 1
    if resized:
        single = len(graph.nodes) == 2 and resized[0].op is RESIZE
        return may_read_nonfinite(given[0], resized[0].params) if single else np.array(True)
    known = {**graph.constants, **dict(zip(graph.input_positions, given, strict=True))}
    masks = [_meets_padding(n, known) for n in graph.nodes if n.op.kernel and n.op.outside is not None]
    return masks[0] if alone and masks else np.array(any(m.any() for m in masks))


def _meets_padding(node: Node, known: Mapping[int, Array]) -> Array:
    """Return the mask of channels of a convolution in which a NaN or an infinity of the weights may be multiplied by
    padding, or by a zero between cells: where weights are computed, all. `known` are inputs and constants by position.
    """
    window = node.params["window"]
    if node.op is not CONV_TRANSPOSE and not window.pads_anything:
        return np.array(False)
    factors = [known.get(a) if isinstance(a, int) else np.asarray(a.value) for a in node.args[:2]]
    if factors[1] is None or node.op.outside is None:
        return np.array(True)
    held = [np.zeros(()) if f is None else (~np.isfinite(np.asarray(f, float))).astype(float) for f in factors]
    return np.asarray(node.op.outside(*held, **node.params) > 0)


def allowed_balls(
    graph: Graph,
    given: Sequence[Array],
    arithmetic: Arithmetic,
    backend: str = "numpy",
    formats: Mapping[str, str] | None = None,
) -> list[Ball]:
    """Return one ball per result of a graph that was asked for by itself: those of `expected_balls`, which has the same
    parameters, or of radius 0 if every execution is exact. Open cells stay open: constants that are multiplied
    beforehand may overflow beside a 0.
    """
    balls = expected_balls(graph, given, arithmetic, backend, formats)
    if formats or not is_exact_on_integers(graph, given, arithmetic):
        return balls
    return [replace(ball, radius=np.where(np.isinf(ball.radius), np.inf, 0.0)) for ball in balls]


def expected(question: OpCase, arithmetic: Arithmetic) -> list[Ball]:
    """Return one ball per answer of a test case, for the executions `arithmetic`; radius 0 if every execution is
    exact.
    """
    return allowed_balls(question.meaning(), question.arguments(), arithmetic)[-len(question.answers()) :]


# --- comparing --------------------------------------------------------------------------------------------------


def _first_largest(bad: Array) -> tuple[int, ...]:
    """Return the index of the first largest cell of `bad`."""
    return tuple(int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))


def judge_array(result: str, got: Array, ball: Ball) -> Verdict:
    """Return the verdict on the array `got`, which is called `result`, against one ball; cells of infinite radius are
    not judged.
    """
    if got.shape != ball.value.shape:
        text = f"{result} has shape {got.shape}, must have {ball.value.shape}"
        return Verdict("differs", np.inf, "shape", result, detail=text)
    if got.size == 0:
        return Verdict("exact")
    value, allowed, g = ball.value, ball.radius, got.astype(np.float64)
    known = np.isfinite(allowed)
    for fault, bad in _categorical_faults(got, value).items():
        if (bad & known).any():
            return _with_cell(Verdict("differs", np.inf, fault, result), _first_largest(bad & known), g, ball)
    verdict = _judge_errors(result, g, ball, known)
    return verdict if known.all() or verdict.kind == "differs" else _cannot_tell(verdict, known)


def mismatches(got: Array, ball: Ball) -> Array:
    """Return the mask of cells of `got` that the ball, of the same shape, neither holds nor leaves open."""
    g, known = got.astype(np.float64), np.isfinite(ball.radius)
    bad = ~ball.contains(g) & known
    for fault in _categorical_faults(got, ball.value).values():
        bad |= fault & known
    return np.asarray(bad)


def _categorical_faults(got: Array, value: Array) -> dict[str, Array]:
    """Return {fault: mask} of cells of `got` that no allowance around `value` excuses: wrong index, NaN or infinity."""
    if value.dtype.kind == "i":
        return {"index": ~are_equal_integers(got, value)}
    got = got.astype(np.float64)
    nan = np.isnan(got) != np.isnan(value)
    infinite = ~np.isnan(got) & (np.isinf(got) | np.isinf(value)) & (got != value)
    return {"nan": nan, "infinity": infinite}


def _with_cell(verdict: Verdict, i: tuple[int, ...], got: Array, ball: Ball) -> Verdict:
    """Return the verdict with cell i of `got` and of the ball: its index, values and allowance."""
    return replace(verdict, index=i, actual=float(got[i]), expected=float(ball.value[i]), allowed=float(ball.radius[i]))


def _judge_errors(result: str, got: Array, ball: Ball, known: Array) -> Verdict:
    """Return the verdict on `got`, called `result`, by the largest error over its allowance, the radius of `ball`,
    among the `known` cells.
    """
    with np.errstate(all="ignore"):
        error = np.where(known & np.isfinite(got) & np.isfinite(ball.value), np.abs(got - ball.value), 0.0)
        ratio = np.where(error == 0, 0.0, error / ball.radius)
        if ball.whole:  # a set of whole numbers: one of it, or none
            ratio = np.where(known & ~ball.contains(got), np.maximum(ratio, error + 1), ratio)
    i = _first_largest(ratio)
    kind: Kind = "differs" if ratio[i] > 1 else "rounding" if ratio[i] > 0 else "exact"
    return _with_cell(Verdict(kind, float(ratio[i]), "value" if ratio[i] > 1 else "", result), i, got, ball)


def _cannot_tell(verdict: Verdict, known: Array) -> Verdict:
    """Return `verdict`, that on the `known` cells, as "cannot tell": the other cells have an infinite radius."""
    count = f"{np.count_nonzero(~known)} of {known.size} cells are open"
    others = f"; the others: {verdict.kind}" if known.any() else ""
    text = f"{count}: overflow, or a choice that rounding decides{others}"
    return Verdict("cannot tell", verdict.ratio, detail=text)


def judge(question: OpCase, answer: ProcessResult, arithmetic: Arithmetic) -> Verdict:
    """Return the worst verdict over all results in a runtime's `answer` to one test case, in `arithmetic`.

    An answer without results has its outcome as the verdict.
    """
    if answer.outcome != "answers":
        return Verdict(answer.outcome, detail=answer.reason)
    names, wanted = question.answers(), expected(question, arithmetic)
    if len(answer.arrays) != len(names):
        return Verdict("differs", np.inf, "shape", detail=f"{len(answer.arrays)} results, must be {len(names)}")
    return worst([judge_array(n, a, b) for n, a, b in zip(names, answer.arrays, wanted, strict=True)])
