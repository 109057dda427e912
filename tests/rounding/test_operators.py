"""Every operator, in every format, on every engine: what is computed, and the exact value, lie in the ball.

Numbers come from the operator's own cases, scaled over the whole range of exponents of the format: subnormal numbers,
numbers that nearly overflow, and both at once. Exact values come from rationals, or from balls of python-flint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from enclosed import check, rounded
from functions import MEASURED
from slices import diagonals
from specgrad.engines.torch.lowerings import ENGINE
from specgrad.op import REGISTRY, Op, apply, run_spec
from specgrad.rounding import FORMATS, ULPS, Arithmetic, local_radius
from specgrad.scalar import Array

OPERATORS = sorted(REGISTRY)
RANGES = ("plain", "plain", "small", "large", "wide")
Call = tuple[Op, list[Array], dict[str, Any]]


def scaled(x: Array, kind: str, rng: Random, dtype: str) -> Array:
    """The numbers of a case, times powers of two that reach the ends of the format."""
    form = FORMATS[dtype]
    if x.dtype != object or kind == "plain":
        return rounded(x.astype(float), dtype) if x.dtype == object else x
    low, high = form.lowest - form.digits, form.highest - 4
    ends = {"small": (low, low + 2 * form.digits), "large": (high - 8, high), "wide": (low, high)}[kind]
    powers = np.array([rng.randint(*ends) for _ in range(x.size)], dtype=int).reshape(x.shape)
    return rounded(np.ldexp(x.astype(float), powers), dtype)


def drawn(op: Op, seed: int, dtype: str) -> Call:
    rng = Random(f"rounding/{op.name}/{seed}")
    args, params = op.cases(rng)
    return op, [scaled(a, RANGES[seed % len(RANGES)], rng, dtype) for a in args], params


# --- who computes -----------------------------------------------------------------------------------------------


def by_numpy(calls: list[Call], dtype: str) -> list[Array]:
    return [run_spec(op, args, params) for op, args, params in calls]


def by_torch(calls: list[Call], dtype: str) -> list[Array]:
    kind = getattr(torch, dtype)
    give = lambda a: torch.tensor(a) if a.dtype.kind == "i" else torch.tensor(a).to(kind)
    found = [ENGINE.run(op, [give(a) for a in args], params) for op, args, params in calls]
    return [(y if y.dtype == torch.int64 else y.double()).numpy() for y in found]


def by_jax(calls: list[Call], dtype: str) -> list[Array]:
    """All calls in one program, since compiling costs more than computing."""
    import jax

    kind = np.dtype(getattr(jax.numpy, dtype))
    given = [[a if a.dtype.kind == "i" else a.astype(kind) for a in args] for _, args, _ in calls]
    program = jax.jit(lambda all_: [apply(op, *args, **p) for (op, _, p), args in zip(calls, all_, strict=True)])
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    options |= {"xla_cpu_use_fusion_emitters": False}
    found = map(np.asarray, program.lower(given).compile(compiler_options=options)(given))
    return [y if y.dtype.kind == "i" else y.astype(np.float64) for y in found]


Side = tuple[Callable[[list[Call], str], list[Array]], Arithmetic, int]
SIDES: dict[str, Side] = {
    "numpy float16": (by_numpy, Arithmetic("float16", ulps=ULPS["numpy"]), 10),
    "numpy float32": (by_numpy, Arithmetic("float32", ulps=ULPS["numpy"]), 10),
    "numpy float64": (by_numpy, Arithmetic("float64", ulps=ULPS["numpy"]), 10),
    "torch float16": (by_torch, Arithmetic("float16", ulps=ULPS["torch"]), 10),
    "torch bfloat16": (by_torch, Arithmetic("bfloat16", ulps=ULPS["torch"], flush=True), 10),
    "torch float32": (by_torch, Arithmetic("float32", ulps=ULPS["torch"]), 10),
    "torch float64": (by_torch, Arithmetic("float64", ulps=ULPS["torch"]), 10),
    "jax float32": (by_jax, Arithmetic("float32", ulps=ULPS["jax"], flush=True), 3),
    "jax bfloat16": (by_jax, Arithmetic("bfloat16", ulps=ULPS["jax"], flush=True), 3),
}


# --- the check --------------------------------------------------------------------------------------------------


def exact_value(call: Call) -> Array:
    """The specification over rationals, or over balls far narrower than any radius."""
    op, args, params = call
    if (
        op.name == "quantize"
    ):  # a scale that underflowed to 0: nothing is claimed there, and rationals cannot divide by it
        args = [args[0], np.where(args[1] == 0, 1, args[1]), args[2]]
    lift = sg.balls if op.transcendental or op.name in ("sqrt", "power", "div") else sg.exact
    return run_spec(op, [a if i in op.index_args else lift(a) for i, a in enumerate(args)], params)


def check_exact(ball: Any, call: Call) -> None:
    try:
        check(ball, exact_value(call), "exact")
    except ZeroDivisionError:  # a remainder by 0, which scaling made of the divisor, has no rational value
        assert call[0].name == "fmod"


def check_side(name: str, side: Side, operators: list[str] = OPERATORS) -> int:
    compute, arithmetic, count = side
    tested = 0
    for operator in operators:
        calls = [drawn(REGISTRY[operator], seed, arithmetic.dtype) for seed in range(count)]
        for seed, (call, got) in enumerate(zip(calls, compute(calls, arithmetic.dtype), strict=True)):
            op, args, params = call
            ball = local_radius(op, *args, arithmetic=arithmetic, **params)
            try:
                tested += check(ball, got, "computed")
                check_exact(ball, call)
            except AssertionError as error:
                error.add_note(f"{name}: {operator}, seed {seed}, {[a.shape for a in args]}, {params}")
                raise
    return tested


@pytest.mark.parametrize(("operator", "name"), diagonals(OPERATORS, SIDES, 3))
def test_every_operator_stays_in_its_ball(name: str, operator: str) -> None:
    """Each operator on three of the nine sides by default: in turn, so that every side has a third of all operators."""
    check_side(name, SIDES[name], [operator])


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", [n for n in SIDES if n.startswith("numpy") or n in ("torch float32", "torch float64")])
def test_hunt(name: str, operator: str) -> None:
    """Not in PyTorch's half precisions: there this finds oneDNN's faults (grouped dilated conv3d), not ours."""
    compute, arithmetic, count = SIDES[name]
    check_side(name, (compute, arithmetic, 40 * count), [operator])


# --- the check can fail -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", sorted(MEASURED.keys() - {"power"}))  # whose drawn exponents are products
def test_a_bound_declared_too_small_is_noticed(function: str) -> None:
    compute, arithmetic, _ = SIDES["torch float32"]
    small = replace(arithmetic, ulps={**arithmetic.ulps, function: (0.01, MEASURED[function].errors.relative_to)})
    with pytest.raises(AssertionError):
        check_side("torch float32", (compute, small, 100), [function])


@pytest.mark.parametrize("operator", ["conv", "sum", "avg_spread", "mul", "div", "contract", "smooth_max_pool"])
def test_a_coarser_arithmetic_is_noticed(operator: str) -> None:
    """bfloat16 results are not float32 rounding."""
    compute = lambda calls, _: by_torch(calls, "bfloat16")
    with pytest.raises(AssertionError):
        check_side("coarse", (compute, Arithmetic("float32"), 100), [operator])
