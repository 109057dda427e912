"""The expected outputs of a case: exact results rounded once, and a radius for every correct execution.

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
from .round_once import PRECISIONS, form_of, interval_of, nearest, nearest_if_unique, undecided_error

NO_FLUSH = Arithmetic(execution="node", flush=False)
"""The class of executions that radii hold for: subnormal numbers are kept, as IEEE 754 demands. Formats other than
float32 are those of the types of a case."""
INFINITY_STAND_IN = 1.0e4  # stands for an infinity where a result that does not depend on it is asked
OVERFLOW_FACTOR = Fraction(3, 2)  # times the largest number: beyond, every execution of one operation overflows
SLACK = 1 + 2.0**-40
SINGLE_OPERATIONS = ("Add", "Sub", "Mul")  # one operation, in this format or a wider one
IEEE = (*SINGLE_OPERATIONS, "Div", "Sqrt", "Exp", "Log", "Pow")
"""Operators of one cell whose results at NaN, infinities and poles IEEE 754 states (9.2.1 of functions)."""
EMPTY = "a window that reads only padding: the contract's value is 0, runtimes differ, the profile refuses the case"
OVERFLOW = "overflow, or a choice that rounding decides: nothing is claimed"
IMPLEMENTATION = "ONNX leaves NaN to the implementation here"


@dataclass(frozen=True, eq=False)
class ExpectedOutput:
    """Expected output: the value rounded once, a radius per cell (inf: open, see `why`), exact values as text."""

    value: Array
    radius: Array
    exact: tuple[str | None, ...]
    why: str = ""

    @property
    def open(self) -> int:
        """Number of cells about which nothing is claimed."""
        return int(np.isinf(self.radius).sum())


def answers(case: VectorCase, arithmetic: Arithmetic = NO_FLUSH) -> dict[str, ExpectedOutput]:
    """Return the expected value and radius of every output of the case, by name, for the executions `arithmetic`.

    UnsupportedError where an operator has no radius or no exact result.
    """
    graph = from_onnx(model(case))
    given = [_as_float64(case.fed[name], graph, p) for name, p in zip(graph.names, graph.input_positions, strict=True)]
    finite = [a if a.dtype.kind != "f" else _replace_nonfinite(a) for a in given]
    report = radius(graph, *finite, arithmetic=arithmetic, formats=graph.formats)
    reals = exact_results(graph, finite)
    with np.errstate(all="ignore"):
        computed = in_float64(graph)(*given)
    results = computed if isinstance(computed, tuple) else (computed,)
    per_output = {}
    for (name, dtype), ball, real, ieee in zip(
        case.outputs.items(), leaves(report.outputs), reals, results, strict=True
    ):
        per_output[name] = _expected_output(case, graph, given, dtype, ball, real, np.asarray(ieee))
    return per_output


def _as_float64(a: Array, graph: Graph, position: int) -> Array:
    """Return the array `a`, for the graph's input at `position`, as float64; indices stay integers."""
    return a if graph.nodes[position].kind == "index" else a.astype(np.float64)


def _replace_nonfinite(a: Array) -> Array:
    """Return the array a with NaN as 0 and infinities as large numbers."""
    return np.nan_to_num(a, nan=0.0, posinf=INFINITY_STAND_IN, neginf=-INFINITY_STAND_IN)


# --- exact results ----------------------------------------------------------------------------------------------


def exact_results(graph: Graph, given: Sequence[Array]) -> list[Any]:
    """Return, per output for the inputs `given`, an array of Fractions, or a _BallResults if some result is irrational.

    >>> import specgrad as sg
    >>> (y,) = exact_results(sg.trace(lambda x: x / 3, (1,)), [np.array([0.5])])
    >>> y
    array([Fraction(1, 6)], dtype=object)
    """
    try:
        return _run_over(graph, given, exact)
    except (ScalarError, ZeroDivisionError):
        need("flint", "results that are not rational need")
    count = len(graph.output_positions)
    return [_BallResults(graph, given, i) for i in range(count)]


@dataclass(frozen=True)
class _BallResults:
    """Results of one output of a graph, for the inputs `given`, as balls, computed at any precision."""

    graph: Graph
    given: Sequence[Array]
    output: int

    def at(self, bits: int) -> Array:
        """Return the output as an array of balls, computed with `bits` bits."""
        import flint

        with flint.ctx.workprec(bits):
            return np.asarray(_run_over(self.graph, self.given, balls)[self.output])


def _run_over(graph: Graph, given: Sequence[Array], scalars: Any) -> list[Any]:
    """Run the graph on `given` over other scalars and return its outputs, as a list even of one; indices stay integers.

    scalars   a function, such as `exact` or `balls`, that converts an array: each input and constant of real numbers
    """
    real = {p: graph.nodes[p].kind == "real" for p in (*graph.constants, *graph.input_positions)}
    wide = replace(graph, constants={p: scalars(a) if real[p] else a for p, a in graph.constants.items()})
    args = [scalars(a) if real[p] else a for p, a in zip(graph.input_positions, given, strict=True)]
    results = wide(*args)
    return list(results) if isinstance(results, tuple) else [results]


def _round_cells(
    operator: str, real: Any, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> tuple[Array, list[str | None]]:
    """Return every cell of the exact results `real` rounded once to `dtype` (NaN if undefined), in `shape`, and each
    exact value as text, None if it is long.

    ScalarError if the precision does not decide a rounding.
    """
    if not isinstance(real, _BallResults):
        cells = [Fraction(v) for v in np.asarray(real, dtype=object).flat]
        if dtype.kind != "f":
            return np.array([float(v) for v in cells]).reshape(shape), [_short_text(v) for v in cells]
        form = form_of(dtype)
        return np.array([nearest(v, form) for v in cells]).reshape(shape), [_short_text(v) for v in cells]
    form = form_of(dtype)
    for bits in PRECISIONS:
        between = [interval_of(v) for v in np.asarray(real.at(bits), dtype=object).flat]
        nearby = [math.nan if e is None else nearest_if_unique(*e, form) for e in between]
        if None not in nearby:
            texts = [_short_text(e[0]) if e is not None and e[0] == e[1] else None for e in between]
            return np.array(nearby, dtype=np.float64).reshape(shape), texts
    raise undecided_error(operator)


def _short_text(q: Fraction) -> str | None:
    """Return a fraction as text, or None if it has more than 40 characters."""
    text = str(q)
    return text if len(text) <= 40 else None


# --- with what is not finite ------------------------------------------------------------------------------------


def _expected_output(
    case: VectorCase, graph: Graph, given: Sequence[Array], dtype: np.dtype[Any], ball: Ball, real: Any, ieee: Array
) -> ExpectedOutput:
    """Combine exact results, IEEE 754 results beside NaN and infinities, and radii into one expected output of a case,
    of type `dtype`.

    `given` are its inputs, `real` the exact results, `ball` their radii, `ieee` what float arithmetic gives.
    UnsupportedError if what infinities give is not known.
    """
    shape = ball.value.shape
    if ball.value.dtype.kind == "i":  # positions
        return ExpectedOutput(
            np.asarray(ball.value, dtype), ball.radius, tuple(str(int(v)) for v in ball.value.flat), OVERFLOW
        )
    ieee = ieee.astype(np.float64).reshape(shape)
    value, texts = _round_cells(case.operator, real, dtype, shape)
    special = any(not np.isfinite(a).all() for a in given if a.dtype.kind == "f")
    allowed, why = np.asarray(ball.radius, np.float64).copy(), OVERFLOW
    from_ieee = np.isnan(value) | (
        _reads_nonfinite(given, shape) if case.operator in IEEE else special & ~np.isfinite(ieee)
    )
    if special and not _matches_ieee(value, ieee, from_ieee, dtype):
        raise UnsupportedError(case.operator, f"what infinities give in {case.note or 'this case'} is not known")
    value = np.where(from_ieee, ieee, value)
    allowed = np.where(from_ieee, np.where(_may_read_nonfinite(graph, given, shape), np.inf, 0.0), allowed)
    if dtype.kind != "f" and special:  # QuantizeLinear: infinities saturate, NaN are anybody's
        x = np.broadcast_to(given[0], shape)
        value, from_ieee = np.where(np.isinf(x), ieee, value), from_ieee | np.isinf(x)
        allowed, why = np.where(np.isnan(x), np.inf, np.where(np.isinf(x), 0.0, allowed)), IMPLEMENTATION
    if case.operator in IEEE:
        allowed = _radius_at_overflow(case.operator, real, value, allowed, dtype)
    empty = _empty_windows(graph, shape)
    if empty.any():
        allowed, why = np.where(empty, np.inf, allowed), EMPTY
    value = np.where((value == 0) & (ieee == 0), ieee, value)  # the sign of a zero
    stored = np.where(np.isnan(value), 0.0, value).astype(dtype) if dtype.kind != "f" else value.astype(dtype)
    rounding = np.where(np.isfinite(value), np.abs(ball.value - np.where(np.isfinite(value), value, 0.0)), 0.0)
    allowed = np.where(from_ieee | (rounding == 0), allowed, (allowed + rounding) * SLACK)
    allowed = np.where(np.isinf(value) & ~from_ieee & (allowed != 0), np.inf, allowed)
    texts = [_value_text(v) if t else s for v, t, s in zip(value.flat, from_ieee.flat, texts, strict=True)]
    return ExpectedOutput(stored, allowed, tuple(texts), why if np.isinf(allowed).any() else "")


def _value_text(v: float) -> str:
    """Return the float v as exact text; "nan", "inf" or "-inf" if it is not finite."""
    return _short_text(Fraction(v)) or "" if math.isfinite(v) else str(v)


def _reads_nonfinite(given: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Return the mask, of a shape, of cells of an elementwise result that read a NaN or an infinity of the inputs
    `given`.
    """
    masks = [np.broadcast_to(~np.isfinite(a), shape) for a in given if a.dtype.kind == "f"]
    return np.asarray(np.logical_or.reduce(masks))


def _matches_ieee(value: Array, ieee: Array, from_ieee: Array, dtype: np.dtype[Any]) -> bool:
    """Return whether finite results `value` are near `ieee`, what float64 gives; cells in `from_ieee` are taken from
    there anyway.
    """
    if dtype.kind != "f":
        return True
    with np.errstate(all="ignore"):
        near = np.abs(value - ieee) <= 16 * form_of(dtype).u * np.abs(ieee) + form_of(dtype).tiny
    return bool((near | from_ieee | ~np.isfinite(value)).all())


def _may_read_nonfinite(graph: Graph, given: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Return the mask, of a shape, of cells of a resize that may or may not read a NaN or an infinity of `given`."""
    resized = [n for n in graph.nodes if n.op is RESIZE]
    return np.broadcast_to(may_read_nonfinite(given[0], resized[0].params) if resized else np.array(False), shape)


def _radius_at_overflow(operator: str, real: Any, value: Array, allowed: Array, dtype: np.dtype[Any]) -> Array:
    """Return the radii of one operation near overflow: 0 where it is surely infinite, else unchanged.

    A sum, difference or product of two numbers that does not exceed the largest is rounded, and finite. `real` are the
    exact results, `value` the rounded ones, `allowed` their radii.
    """
    largest = Fraction(form_of(dtype).largest)
    if isinstance(real, _BallResults):
        known = [interval_of(v) for v in np.asarray(real.at(PRECISIONS[0]), dtype=object).flat]
    else:
        known = [(Fraction(v), Fraction(v)) for v in np.asarray(real, dtype=object).flat]
    far = [e is not None and min(abs(e[0]), abs(e[1])) >= OVERFLOW_FACTOR * largest for e in known]
    allowed = np.where(np.array(far, bool).reshape(value.shape) & np.isinf(value), 0.0, allowed)
    if operator not in SINGLE_OPERATIONS:
        return allowed
    fits = np.array([e is not None and max(abs(e[0]), abs(e[1])) <= largest for e in known], bool).reshape(value.shape)
    once = 2 * form_of(dtype).u * np.abs(np.where(fits, value, 0.0))
    return np.where(np.isinf(allowed) & fits, once, allowed)


def _empty_windows(graph: Graph, shape: tuple[int, ...]) -> Array:
    """Return a mask of the cells of the graph's max pool that have no tap inside the input.

    All False, of `shape`, without one.
    """
    for node in graph.nodes:
        if node.op is MAX_POOL:
            inside = np.ones(graph.nodes[node.operands()[0]].shape)
            return np.asarray(apply(AVG_POOL, inside, window=node.params["window"], divisor=1) == 0)
    return np.zeros(shape, bool)
