"""The JAX engine against the specification: values, tangents and cotangents of every operator.

What runs by default: 4 configurations per operator in one scalar type, each compiled by XLA once for all three, with
the adjoint law. The type is float32 where the derivatives of small integers are exact, else float64; float32 values of
the latter get 4 more. What `-m slow` adds: 290 further configurations, 2000 float32 values per operator, and
values in float64.

Compiling costs more than computing here, so cases of one shape share a program, a program holds several cases, and
XLA is told to optimise little. The tests in test_jax_composites.py and in tests/rounding run with JAX's own settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from agreement import INTEGER_EXACT, Case, check_adjoint, check_derivatives, check_value, integral  # noqa: E402
from specgrad.engines.base import Engine, Lowering  # noqa: E402
from specgrad.engines.jax import lowerings as engine  # noqa: E402
from specgrad.op import REGISTRY, Op, run_spec  # noqa: E402
from specgrad.rounding import ULPS  # noqa: E402

NAMES = sorted(REGISTRY)
DIFFERENTIABLE = [n for n in NAMES if REGISTRY[n].kind != "index"]
CASES, MORE = 3, 297  # compiling them takes minutes: the others are a long hunt
TOGETHER = 10  # cases per program; 4 and 30 take longer
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
Given = tuple[list[np.ndarray], list[np.ndarray], np.ndarray]  # arguments, tangents of the real ones, cotangent
Answer = tuple[Any, Any, Sequence[Any]]  # value, tangent, cotangents of the real ones
Program = Callable[[list[Given]], list[Answer]]
COMPILERS = ThreadPoolExecutor(2)  # XLA compiles one program while the next is traced


def dtype_of(name: str) -> type:
    """Where a rule rounds, float64 keeps conventions and rounding apart."""
    return np.float32 if name in INTEGER_EXACT else np.float64


@contextmanager
def scalars_of(dtype: type) -> Iterator[None]:
    with jax.enable_x64(dtype is np.float64):
        yield


# --- many cases as a few programs -------------------------------------------------------------------------------


def all_modes(case: Case, table: Engine) -> Callable[..., Answer]:
    """Value, jax.linearize and its transpose (which is jax.vjp) of one case, as a function of arrays."""

    def compute(args: Sequence[Any], dargs: Sequence[Any], gy: Any) -> Answer:
        def call(*values: Any) -> Any:
            given = dict(zip(case.real, values, strict=True))
            return table.run(case.op, [given.get(i, a) for i, a in enumerate(args)], case.params)

        primals = [args[i] for i in case.real]
        y, linear = jax.linearize(call, *primals)
        return y, linear(*dargs), jax.linear_transpose(linear, *primals)(gy)

    return compute


def only_value(case: Case, table: Engine) -> Callable[..., Answer]:
    return lambda args, dargs, gy: (table.run(case.op, args, case.params), None, [])


def compiled(functions: Sequence[Callable[..., Answer]], given: Sequence[Given]) -> Future[Program]:
    def compute(given: Sequence[Given]) -> list[Answer]:
        with jax.disable_jit():  # while tracing: jitted parts become part of this program, which is quicker to build
            return [f(*one) for f, one in zip(functions, given, strict=True)]

    traced = jax.jit(compute).trace(given)
    with jax.disable_jit():
        lowered = traced.lower()
    return COMPILERS.submit(lowered.compile, compiler_options=QUICK)


def nothing(case: Case) -> Given:
    """Zeros for everything that one case takes."""
    dtype = case.args[case.real[0]].dtype if case.real else np.float32
    shape = case.op.shape(*(a.shape for a in case.args), **case.params)
    args = [np.zeros_like(a) for a in case.args]
    return args, [args[i] for i in case.real], np.zeros(shape, dtype)


def configuration(args: Sequence[np.ndarray], params: dict[str, Any]) -> tuple[Any, ...]:
    return *((a.shape, a.dtype.str) for a in args), *params.items()


class JaxSide:
    """Some cases of one operator, compiled ahead; then any arrays of their shapes."""

    ulps = ULPS["jax"]

    def __init__(self, cases: Sequence[Case], mode: Any = all_modes, table: Engine = engine.ENGINE) -> None:
        distinct = {configuration(c.args, c.params): c for c in cases}
        self.places: dict[tuple[Any, ...], tuple[Future[Program], list[Given], int]] = {}
        keys = list(distinct)
        for start in range(0, len(keys), TOGETHER):
            part = keys[start : start + TOGETHER]
            given = [nothing(distinct[k]) for k in part]
            program = compiled([mode(distinct[k], table) for k in part], given)
            self.places |= {k: (program, given, i) for i, k in enumerate(part)}

    def _run(self, op: Op, args: list, dargs: list | None, gy: np.ndarray | None, params: dict[str, Any]) -> Answer:
        program, given, at = self.places[configuration(args, params)]
        real = [i for i in range(len(args)) if i not in op.index_args]
        tangents = given[at][1] if dargs is None else [dargs[i] for i in real]
        mine = (args, tangents, given[at][2] if gy is None else gy)
        y, dy, gargs = program.result()([*given[:at], mine, *given[at + 1 :]])[at]
        found = dict(zip(real, map(np.asarray, gargs), strict=False))
        return np.asarray(y), np.asarray(dy), [found.get(i) for i in range(len(args))]

    def value(self, op: Op, args: list, params: dict[str, Any]) -> np.ndarray:
        return self._run(op, args, None, None, params)[0]

    def jvp(self, op: Op, args: list, dargs: list, params: dict[str, Any]) -> np.ndarray:
        return self._run(op, args, dargs, None, params)[1]

    def vjp(self, op: Op, args: list, gy: np.ndarray, params: dict[str, Any]) -> list:
        return list(self._run(op, args, None, gy, params)[2])


# --- the checks -------------------------------------------------------------------------------------------------


def random(name: str, label: str, seeds: Iterable[int]) -> list[Random]:
    return [Random(f"{label}/{name}/{seed}") for seed in seeds]


def draw(name: str, rngs: Sequence[Random], dtype: type) -> list[Case]:
    return [Case.draw(REGISTRY[name], rng, dtype) for rng in rngs]


def check_values(name: str, label: str, count: int, dtype: type, table: Engine = engine.ENGINE) -> None:
    with scalars_of(dtype):
        cases = draw(name, random(name, label, range(count)), dtype)
        side = JaxSide(cases, only_value, table)
        for case in cases:
            check_value(side, case)


def check_integers(side: JaxSide, case: Case, rng: Random) -> None:
    """Small integers are computed without rounding."""
    if case.op.name in INTEGER_EXACT:
        case = integral(case, rng)
        got, want = side.value(case.op, case.args, case.params), run_spec(case.op, case.lifted(), case.params)
        assert all(Fraction(g.item()) == w for g, w in zip(got.flat, want.flat, strict=True))


def check_everything(name: str, label: str, seeds: Iterable[int], table: Engine = engine.ENGINE) -> None:
    with scalars_of(dtype_of(name)):
        rngs = random(name, label, seeds)
        cases = draw(name, rngs, dtype_of(name))
        side = JaxSide(cases, all_modes, table)
        for seed, case, rng in zip(seeds, cases, rngs, strict=True):
            try:
                check_value(side, case)
                check_integers(side, case, rng)
                check_derivatives(side, case, rng)
                check_adjoint(side, case, rng)
            except Exception as error:
                error.add_note(f"{name}, seed {seed}, {[a.shape for a in case.args]}, {case.params}")
                raise


def test_the_table_covers_the_registry() -> None:
    assert sorted(engine.TABLE) == NAMES


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_values_and_derivatives(name: str) -> None:
    """Exact where the arithmetic is, else within the bounds of agreement.py; the adjoint law to the last bit."""
    check_everything(name, "all", range(CASES))


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_more_values_and_derivatives(name: str) -> None:
    check_everything(name, "more", range(MORE))


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(DIFFERENTIABLE)))
def test_positions(name: str) -> None:
    check_values(name, "value", CASES, np.float32)


@pytest.mark.parametrize("name", [n for n in DIFFERENTIABLE if dtype_of(n) is np.float64])
def test_values_in_single_precision(name: str) -> None:
    check_values(name, "value", CASES, np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_values_hunt(name: str) -> None:
    check_values(name, "hunt", 2000, np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NAMES if dtype_of(n) is np.float32])
def test_values_in_double_precision(name: str) -> None:
    check_values(name, "double", 100, np.float64)


# --- a broken line is refused -----------------------------------------------------------------------------------


def flipped_conv(*_: Any, **params: Any) -> Any:
    return lambda x, w, *b: engine.jax_conv.conv(x, w[..., ::-1], *b, **params)


def padding_wins(*shapes: Any, **params: Any) -> Any:
    plan = engine.TABLE["max_pool"](*shapes, **params)
    return lambda x: jnp.maximum(plan(x), 0)


def leaking_gradient(*shapes: Any, **params: Any) -> Any:
    plan = engine.TABLE["max_pool"](*shapes, **params)
    return lambda x: plan(x) + (x - jax.lax.stop_gradient(x)).sum()


def doubled_cotangent(*shapes: Any, **params: Any) -> Any:
    """Right values, and a tangent and a cotangent that are wrong."""
    plan = engine.TABLE["conv"](*shapes, **params)
    return lambda x, *others: plan(2 * x - jax.lax.stop_gradient(x), *others)


BROKEN: dict[str, tuple[str, Lowering]] = {
    "a kernel read backwards": ("conv", flipped_conv),
    "padding that wins": ("max_pool", padding_wins),
    "gradient leaks to every cell": ("max_pool", leaking_gradient),
    "gradient of the input doubled": ("conv", doubled_cotangent),
    "relu'(0) = 1": ("relu", lambda *_: lambda x: jnp.where(x >= 0, x, 0)),
    "ties go to the first": ("maximum", lambda *_: lambda a, b: jnp.where(a >= b, a, b)),
    "operands rounded to bfloat16": (
        "contract",
        lambda *_, spec: lambda x, z: jnp.einsum(spec, x.astype(jnp.bfloat16).astype(x.dtype), z),
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_line_is_refused(fault: str) -> None:
    name, line = BROKEN[fault]
    broken = engine.JaxEngine("broken", jax.Array, {**engine.TABLE, name: line})
    two = lambda start: check_everything(name, "broken", range(start, start + 2), broken)
    with pytest.raises(AssertionError):
        any(map(two, range(0, 40, 2)))  # no further than the first that is noticed
