"""One engine against the specification: values and derivatives within proven bounds, the adjoint law.

`Side` is all an engine must offer here: arrays in, arrays out, and its own forward and reverse mode. No tolerance is
chosen here: an operator's result must lie in its ball (specgrad.rounding), a derivative in the ball of the derivative
graph, with the errors of exp, log, ... that benchmarks/ulps.py measured for the engine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any, Protocol

import numpy as np

import specgrad as sg
from specgrad.op import Op, run_spec
from specgrad.ops import sample_inputs as cases
from specgrad.rounding import WORST_ULPS, Arithmetic, Ball, local_radius, radius


class Side(Protocol):
    """`ulps`, if given, is the engine's table of declared errors; otherwise the largest of all engines count."""

    def value(self, op: Op, args: list[np.ndarray], params: dict[str, Any]) -> np.ndarray: ...

    def jvp(self, op: Op, args: list, dargs: list, params: dict[str, Any]) -> np.ndarray: ...

    def vjp(self, op: Op, args: list, gy: np.ndarray, params: dict[str, Any]) -> list[np.ndarray | None]: ...


@dataclass
class Case:
    """A generated case, as floats and as the exact numbers that those floats are."""

    op: Op
    args: list[np.ndarray]
    params: dict[str, Any]

    @staticmethod
    def draw(op: Op, rng: Random, dtype: type) -> Case:
        args, params = op.cases(rng)
        return Case(op, [a.astype(dtype) if a.dtype == object else a for a in args], params)

    @property
    def real(self) -> list[int]:
        return [i for i in range(len(self.args)) if i not in self.op.index_args]

    def lift(self, a: np.ndarray) -> np.ndarray:
        """Exact numbers, or balls where the result is irrational."""
        return sg.balls(a) if self.op.transcendental or self.op.name == "sqrt" else sg.exact(a)

    def lifted(self) -> list[np.ndarray]:
        return [self.lift(a) if i in self.real else a for i, a in enumerate(self.args)]


def middle(v: Any) -> Fraction:
    """The number itself, or the midpoint of a ball, whose radius is negligible against float32."""
    if hasattr(v, "mid"):
        assert v.rad() <= 1e-12 * abs(float(v.mid())) + 1e-14, v
        m, e = v.mid().man_exp()
        return Fraction(int(m)) * Fraction(2) ** int(e)
    return Fraction(v)


def distance(cell: Any, value: float) -> Fraction:
    """abs(cell - value), or for a ball an upper bound of it."""
    if not hasattr(cell, "mid"):
        return abs(Fraction(cell) - Fraction(value))
    mantissa, exponent = abs(cell - sg.balls(value).item()).upper().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def arithmetic_of(side: Side, dtype: np.dtype) -> Arithmetic:
    return Arithmetic(dtype.name, flush=True, ulps=getattr(side, "ulps", WORST_ULPS))


def check_inside(ball: Ball, cells: np.ndarray, what: str) -> None:
    """Every cell, a float or an exact number or a narrow ball, within the radius."""
    assert cells.shape == ball.shape, (what, cells.shape, ball.shape)
    assert np.isfinite(ball.radius).all(), f"{what}: the bound says nothing"
    for cell, value, allowed in zip(cells.flat, ball.value.flat, ball.radius.flat, strict=True):
        error = distance(cell.item() if isinstance(cell, np.generic) else cell, value.item())
        assert error <= Fraction(allowed.item()), (what, cell, float(error), allowed)


def check_value(side: Side, case: Case) -> None:
    """Exact where the operator is exact, otherwise in its ball, as the exact value is."""
    op = case.op
    got = side.value(op, case.args, case.params)
    want = run_spec(op, case.lifted(), case.params)
    assert got.shape == want.shape, (got.shape, want.shape)
    if op.exact:
        assert all(Fraction(g.item()) == middle(w) for g, w in zip(got.flat, want.flat, strict=True))
        return
    ball = local_radius(op, *case.args, arithmetic=arithmetic_of(side, got.dtype), **case.params)
    check_inside(ball, want, "exact")
    check_inside(ball, got, "computed")


def integral(case: Case, rng: Random) -> Case:
    """The case with small integers in every real argument: linear algebra on them is exact in floating point."""
    draw = np.random.default_rng(rng.getrandbits(32))
    args = [draw.integers(-3, 4, a.shape).astype(a.dtype) if i in case.real else a for i, a in enumerate(case.args)]
    return Case(case.op, args, case.params)


INTEGER_EXACT = {
    "conv", "conv_transpose", "conv_weight", "contract", "sum", "add", "sub", "mul", "neg", "abs", "relu", "relu6",
    "clamp", "select", "reshape", "permute", "slice", "pad", "concat", "broadcast", "max_pool", "take", "put",
    "maximum", "minimum", "fill", "stop_gradient", "greater", "greater_equal", "less", "equal", "sign",
}  # fmt: skip


def check_derivatives(side: Side, case: Case, rng: Random) -> None:
    """The engine's own forward and reverse mode against the record's rules: exact on integers, else in their balls."""
    op = case.op
    exactly = op.name in INTEGER_EXACT or (op.name == "amax" and case.params["ties"] == "all")
    if exactly:
        case = integral(case, rng)
    draw = np.random.default_rng(rng.getrandbits(32))
    dtype = case.args[case.real[0]].dtype
    numbers = lambda shape: draw.integers(-3, 4, shape).astype(dtype)
    dargs = [numbers(np.shape(a)) if i in case.real else None for i, a in enumerate(case.args)]
    gy = numbers(op.shape(*(np.shape(a) for a in case.args), **case.params))
    found = [side.jvp(op, case.args, dargs, case.params), *side.vjp(op, case.args, gy, case.params)]
    likes = [gy, *case.args]
    got = [np.zeros(np.shape(like)) if f is None else f for f, like in zip(found, likes, strict=True)]
    if exactly:
        for g, w in zip(got, exact_derivatives(case, dargs, gy), strict=True):
            assert g.shape == w.shape
            assert all(Fraction(p.item()) == middle(q) for p, q in zip(g.flat, w.flat, strict=True)), case.params
        return
    balls = derivative_balls(case, dargs, gy, arithmetic_of(side, dtype))
    for g, ball in zip(got, balls, strict=True):
        if ball is not None:
            check_inside(ball, g, "derivative")
    if rng.random() < SAMPLED:
        for w, ball in zip(exact_derivatives(case, dargs, gy), balls, strict=True):
            if ball is not None:
                check_inside(ball, w, "exact derivative")


SAMPLED = (
    0.1  # of the cases: balls of python-flint are slow, and tests/rounding shows that the ball holds the exact value
)


def exact_derivatives(case: Case, dargs: list, gy: np.ndarray) -> list[np.ndarray]:
    """Tangent and cotangents by the record's rules, over exact numbers or narrow balls; None is zero."""
    lifted = case.lifted()
    y = run_spec(case.op, lifted, case.params)
    dy = case.op.tangent(y, lifted, [None if d is None else case.lift(d) for d in dargs], case.params)
    found = [dy, *case.op.cotangents(case.lift(gy), y, lifted, case.params)]
    likes = [gy, *case.args]
    return [sg.exact(np.zeros(np.shape(a))) if f is None else np.asarray(f) for f, a in zip(found, likes, strict=True)]


def derivative_balls(case: Case, dargs: list, gy: np.ndarray, arithmetic: Arithmetic) -> list[Ball | None]:
    """The balls of the jvp graph's tangent and of the vjp graph's cotangents; None for positions."""
    real = [case.args[i] for i in case.real]

    def call(*values: Any) -> Any:
        given = dict(zip(case.real, values, strict=True))
        return sg.apply(case.op, *(given.get(i, a) for i, a in enumerate(case.args)), **case.params)

    graph = sg.trace(call, *(a.shape for a in real))
    _, tangent = radius(sg.jvp(graph), *real, *(dargs[i] for i in case.real), arithmetic=arithmetic).outputs
    _, *cotangents = radius(sg.vjp(graph), *real, gy, arithmetic=arithmetic).outputs
    found = dict(zip(case.real, cotangents, strict=True))
    return [tangent, *(found.get(i) for i in range(len(case.args)))]


def check_adjoint(side: Side, case: Case, rng: Random) -> None:
    """<gy, jvp(dx)> = <vjp(gy), dx>, bit-exact on integers."""
    if case.op.name not in INTEGER_EXACT:
        return
    case = integral(case, rng)
    draw = np.random.default_rng(rng.getrandbits(32))
    dtype = case.args[case.real[0]].dtype
    y = side.value(case.op, case.args, case.params)
    dargs = [draw.integers(-3, 4, a.shape).astype(dtype) if i in case.real else None for i, a in enumerate(case.args)]
    gy = draw.integers(-3, 4, y.shape).astype(dtype)
    dy = side.jvp(case.op, case.args, dargs, case.params)
    gargs = side.vjp(case.op, case.args, gy, case.params)
    left = float((gy.astype(float) * dy).sum()) if dy is not None else 0.0
    right = sum(float((g.astype(float) * d).sum()) for g, d in zip(gargs, dargs, strict=True) if g is not None)
    assert left == right


SPECIAL = (np.nan, -np.inf, np.inf, 0.0, -0.0, 1.0, 1.0, 2.0)


def check_special(side: Side, op: Op, rng: Random) -> None:
    """NaN, infinities and ties in maxima: equal values; the same winner, or any NaN where a NaN wins."""
    case = Case.draw(op, rng, np.float32)
    x = np.array([rng.choice(SPECIAL) for _ in range(case.args[0].size)], dtype=np.float32).reshape(case.args[0].shape)
    got, want = side.value(op, [x], case.params), run_spec(op, [x], case.params)
    if op.kind != "index":
        np.testing.assert_array_equal(got, want)
        return
    rank = case.params["window"].rank
    flat = x.reshape(*x.shape[: x.ndim - rank], math.prod(x.shape[x.ndim - rank :]))
    for lead in np.ndindex(flat.shape[:-1]):
        mine, theirs = got[lead].ravel(), want[lead].ravel()
        for g, w in zip(mine, theirs, strict=True):
            assert g == w or (g >= 0 and w >= 0 and np.isnan(flat[lead][g]) and np.isnan(flat[lead][w]))


__all__ = ["Case", "Side", "cases", "check_adjoint", "check_derivatives", "check_special", "check_value"]
