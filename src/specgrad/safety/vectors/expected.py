"""What a case must give: the exact result rounded once, and how far from it any correct execution may be.

The graph of the case is run over rationals; where a result is not rational over rigorous balls, with as many bits as
its rounding takes. NaN, infinities and divisions by zero are those of IEEE 754, which the specification follows in
float64. A radius comes from `specgrad.rounding.radius`; it is infinite where nothing is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.check.verdicts.judge import in_float64
from specgrad.errors import ScalarError, UnsupportedError, need
from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves
from specgrad.interop.onnx import from_onnx
from specgrad.op import apply
from specgrad.ops.avg_pool import AVG_POOL
from specgrad.ops.max_pool import MAX_POOL
from specgrad.ops.resize import RESIZE
from specgrad.rounding import Arithmetic, Ball, radius
from specgrad.rounding.resize import may_read_nonfinite
from specgrad.scalar import Array, balls, exact

from .case import VectorCase
from .model import model
from .round_once import PRECISIONS, ends, form_of, nearest, nearest_of, undecided

KEPT = Arithmetic(execution="node", flush=False)
"""The class of executions that radii hold for: subnormal numbers are kept, as IEEE 754 demands. Formats other than
float32 are those of the types of a case."""
FAR = 1.0e4  # stands for an infinity where a result that does not depend on it is asked
SURELY = Fraction(3, 2)  # times the largest number: beyond, every execution of one operation overflows
SLACK = 1 + 2.0**-40
ONCE = ("Add", "Sub", "Mul")  # one operation, in this format or a wider one
IEEE = (*ONCE, "Div", "Sqrt", "Exp", "Log", "Pow")
"""Operators of one cell whose results at NaN, infinities and poles IEEE 754 states (9.2.1 of functions)."""
EMPTY = "a window that reads only padding: the contract's value is 0, runtimes differ, the profile refuses the case"
OVERFLOW = "overflow, or a choice that rounding decides: nothing is claimed"
IMPLEMENTATION = "ONNX leaves NaN to the implementation here"


@dataclass(frozen=True, eq=False)
class ExpectedOutput:
    """One output: rounded once, in its type; the radius per cell (infinite: open, and `why`); exact cells as text."""

    value: Array
    radius: Array
    exact: tuple[str | None, ...]
    why: str = ""

    @property
    def open(self) -> int:
        return int(np.isinf(self.radius).sum())


def answers(case: VectorCase, arithmetic: Arithmetic = KEPT) -> dict[str, ExpectedOutput]:
    """The answer of every output."""
    graph = from_onnx(model(case))
    given = [_number(case.fed[name], graph, p) for name, p in zip(graph.names, graph.input_positions, strict=True)]
    finite = [a if a.dtype.kind != "f" else _finite(a) for a in given]
    report = radius(graph, *finite, arithmetic=arithmetic, formats=graph.formats)
    reals = exact_results(graph, finite)
    with np.errstate(all="ignore"):
        seen = in_float64(graph)(*given)
    results = seen if isinstance(seen, tuple) else (seen,)
    per_output = {}
    for (name, dtype), ball, real, ieee in zip(
        case.outputs.items(), leaves(report.outputs), reals, results, strict=True
    ):
        per_output[name] = _answer(case, graph, given, dtype, ball, real, np.asarray(ieee))
    return per_output


def _number(a: Array, graph: Graph, position: int) -> Array:
    return a if graph.nodes[position].kind == "index" else a.astype(np.float64)


def _finite(a: Array) -> Array:
    return np.nan_to_num(a, nan=0.0, posinf=FAR, neginf=-FAR)


# --- exact results ----------------------------------------------------------------------------------------------


def exact_results(graph: Graph, given: Sequence[Array]) -> list[Any]:
    """Per output an array of Fractions; or a function from a precision to an array of balls.

    >>> import specgrad as sg
    >>> (y,) = exact_results(sg.trace(lambda x: x / 3, (1,)), [np.array([0.5])])
    >>> y
    array([Fraction(1, 6)], dtype=object)
    """
    try:
        return _run(graph, given, exact)
    except (ScalarError, ZeroDivisionError):
        need("flint", "results that are not rational need")
    count = len(graph.output_positions)
    return [_Balls(graph, given, i) for i in range(count)]


@dataclass(frozen=True)
class _Balls:
    """Results as balls, as narrow as asked."""

    graph: Graph
    given: Sequence[Array]
    output: int

    def at(self, bits: int) -> Array:
        import flint

        with flint.ctx.workprec(bits):
            return np.asarray(_run(self.graph, self.given, balls)[self.output])


def _run(graph: Graph, given: Sequence[Array], scalars: Any) -> list[Any]:
    """The graph over other scalars; positions stay what they are."""
    real = {p: graph.nodes[p].kind == "real" for p in (*graph.constants, *graph.input_positions)}
    wide = replace(graph, constants={p: scalars(a) if real[p] else a for p, a in graph.constants.items()})
    args = [scalars(a) if real[p] else a for p, a in zip(graph.input_positions, given, strict=True)]
    results = wide(*args)
    return list(results) if isinstance(results, tuple) else [results]


def _rounded(operator: str, real: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[Array, list[str | None]]:
    """Every cell rounded once, NaN where the exact result is none; and as a text where it is a short ratio."""
    if not isinstance(real, _Balls):
        cells = [Fraction(v) for v in np.asarray(real, dtype=object).flat]
        if dtype.kind != "f":
            return np.array([float(v) for v in cells]).reshape(shape), [_text(v) for v in cells]
        form = form_of(dtype)
        return np.array([nearest(v, form) for v in cells]).reshape(shape), [_text(v) for v in cells]
    form = form_of(dtype)
    for bits in PRECISIONS:
        between = [ends(v) for v in np.asarray(real.at(bits), dtype=object).flat]
        nearby = [math.nan if e is None else nearest_of(*e, form) for e in between]
        if None not in nearby:
            texts = [_text(e[0]) if e is not None and e[0] == e[1] else None for e in between]
            return np.array(nearby, dtype=np.float64).reshape(shape), texts
    raise undecided(operator)


def _text(q: Fraction) -> str | None:
    text = str(q)
    return text if len(text) <= 40 else None


# --- with what is not finite ------------------------------------------------------------------------------------


def _answer(
    case: VectorCase, graph: Graph, given: Sequence[Array], dtype: np.dtype[Any], ball: Ball, real: Any, ieee: Array
) -> ExpectedOutput:
    shape = ball.value.shape
    if ball.value.dtype.kind == "i":  # positions
        return ExpectedOutput(
            np.asarray(ball.value, dtype), ball.radius, tuple(str(int(v)) for v in ball.value.flat), OVERFLOW
        )
    ieee = ieee.astype(np.float64).reshape(shape)
    value, texts = _rounded(case.operator, real, dtype, shape)
    special = any(not np.isfinite(a).all() for a in given if a.dtype.kind == "f")
    allowed, why = np.asarray(ball.radius, np.float64).copy(), OVERFLOW
    taken = np.isnan(value) | (_touched(given, shape) if case.operator in IEEE else special & ~np.isfinite(ieee))
    if special and not _agree(value, ieee, taken, dtype):
        raise UnsupportedError(case.operator, f"what infinities give in {case.note or 'this case'} is not known")
    value = np.where(taken, ieee, value)
    allowed = np.where(taken, np.where(_loose(graph, given, shape), np.inf, 0.0), allowed)
    if dtype.kind != "f" and special:  # QuantizeLinear: infinities saturate, NaN are anybody's
        x = np.broadcast_to(given[0], shape)
        value, taken = np.where(np.isinf(x), ieee, value), taken | np.isinf(x)
        allowed, why = np.where(np.isnan(x), np.inf, np.where(np.isinf(x), 0.0, allowed)), IMPLEMENTATION
    if case.operator in IEEE:
        allowed = _overflown(case.operator, real, value, allowed, dtype)
    empty = _empty_windows(graph, shape)
    if empty.any():
        allowed, why = np.where(empty, np.inf, allowed), EMPTY
    value = np.where((value == 0) & (ieee == 0), ieee, value)  # the sign of a zero
    stored = np.where(np.isnan(value), 0.0, value).astype(dtype) if dtype.kind != "f" else value.astype(dtype)
    apart = np.where(np.isfinite(value), np.abs(ball.value - np.where(np.isfinite(value), value, 0.0)), 0.0)
    allowed = np.where(taken | (apart == 0), allowed, (allowed + apart) * SLACK)
    allowed = np.where(np.isinf(value) & ~taken & (allowed != 0), np.inf, allowed)
    texts = [_spelled(v) if t else s for v, t, s in zip(value.flat, taken.flat, texts, strict=True)]
    return ExpectedOutput(stored, allowed, tuple(texts), why if np.isinf(allowed).any() else "")


def _spelled(v: float) -> str:
    return _text(Fraction(v)) or "" if math.isfinite(v) else str(v)


def _touched(given: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Cells of an operator of one cell that read a NaN or an infinity."""
    masks = [np.broadcast_to(~np.isfinite(a), shape) for a in given if a.dtype.kind == "f"]
    return np.asarray(np.logical_or.reduce(masks))


def _agree(value: Array, ieee: Array, taken: Array, dtype: np.dtype[Any]) -> bool:
    """Whether finite results are those that the specification gives beside infinities."""
    if dtype.kind != "f":
        return True
    with np.errstate(all="ignore"):
        near = np.abs(value - ieee) <= 16 * form_of(dtype).u * np.abs(ieee) + form_of(dtype).tiny
    return bool((near | taken | ~np.isfinite(value)).all())


def _loose(graph: Graph, given: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Cells of resizing that may have met a NaN or an infinity, or not."""
    resized = [n for n in graph.nodes if n.op is RESIZE]
    return np.broadcast_to(may_read_nonfinite(given[0], resized[0].params) if resized else np.array(False), shape)


def _overflown(operator: str, real: Any, value: Array, allowed: Array, dtype: np.dtype[Any]) -> Array:
    """One operation far beyond the largest number is infinite in every execution; nearer to it nothing is claimed.

    A sum, difference or product of two numbers that does not exceed the largest is rounded, and finite.
    """
    largest = Fraction(form_of(dtype).largest)
    if isinstance(real, _Balls):
        known = [ends(v) for v in np.asarray(real.at(PRECISIONS[0]), dtype=object).flat]
    else:
        known = [(Fraction(v), Fraction(v)) for v in np.asarray(real, dtype=object).flat]
    far = [e is not None and min(abs(e[0]), abs(e[1])) >= SURELY * largest for e in known]
    allowed = np.where(np.array(far, bool).reshape(value.shape) & np.isinf(value), 0.0, allowed)
    if operator not in ONCE:
        return allowed
    fits = np.array([e is not None and max(abs(e[0]), abs(e[1])) <= largest for e in known], bool).reshape(value.shape)
    once = 2 * form_of(dtype).u * np.abs(np.where(fits, value, 0.0))
    return np.where(np.isinf(allowed) & fits, once, allowed)


def _empty_windows(graph: Graph, shape: tuple[int, ...]) -> Array:
    """Cells whose window has no tap inside the input."""
    for node in graph.nodes:
        if node.op is MAX_POOL:
            inside = np.ones(graph.nodes[node.operands()[0]].shape)
            return np.asarray(apply(AVG_POOL, inside, window=node.params["window"], divisor=1) == 0)
    return np.zeros(shape, bool)
