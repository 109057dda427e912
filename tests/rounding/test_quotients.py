"""Quotients in float16: divisors multiply each other, never what they divide."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import specgrad as sg
from specgrad.rounding import Arithmetic, radius
from specgrad.scalar import Array

HALF = np.float16
FORMS = {"sums in float32": Arithmetic("float16", accumulate="float32"), "in float16": Arithmetic("float16")}


def kept(x: Array) -> Array:
    """Round to float16."""
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(HALF).astype(float)


def flushed(x: Array) -> Array:
    """Round to float16 without subnormal numbers."""
    y = kept(x)
    return np.where(np.abs(y) < 2.0**-14, 0.0, y)


def ways(x: Array, divisors: list[float], r: Callable[[Array], Array]) -> Iterator[Array]:
    """Yield x over all divisors, rounded by r, in every way: one after the other, by reciprocals, and what is folded
    of either.
    """
    by_one, by_reciprocals, folded, reciprocal = r(x), r(x), np.array(1.0), np.array(1.0)
    with np.errstate(all="ignore"):
        for b in divisors:
            by_one, by_reciprocals = r(by_one / b), r(by_reciprocals * r(1 / b))
            folded, reciprocal = r(folded * b), r(reciprocal * r(1 / b))
        yield from (by_one, by_reciprocals, r(r(x) / folded), r(r(x) * r(1 / folded)), r(r(x) * reciprocal))


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_no_way_of_dividing_leaves_the_radius(seed: int, flush: bool) -> None:
    rng = np.random.default_rng(seed)
    divisors = [float(kept(2.0 ** rng.uniform(-9, 13) * rng.choice([-1, 1]))) for _ in range(1 + seed % 3)]
    x = kept(rng.normal(size=300) * 2.0 ** rng.uniform(-12, 12, 300))

    def divide(value: sg.Value) -> sg.Value:
        for b in divisors:
            value = value / b
        return value

    ball = radius(sg.trace(divide, x.shape), x, arithmetic=Arithmetic("float16", flush=flush)).outputs
    for y in ways(x, divisors, flushed if flush else kept):
        assert (np.isinf(ball.radius) | (np.abs(y - ball.value) <= ball.radius)).all(), divisors


def test_divisors_that_overflow_together_leave_nothing_proven() -> None:
    """300 * 300 is no number of float16: x/300/300 may be 0. By hand."""
    x = np.ones(3)
    twice = radius(sg.trace(lambda x: x / 300 / 300, (3,)), x, arithmetic=FORMS["in float16"]).outputs
    assert np.isinf(twice.radius).all()
    between = radius(sg.trace(lambda x: (x / 300 + 1) * 2 / 300, (3,)), x, arithmetic=FORMS["in float16"]).outputs
    assert np.isinf(between.radius).all()
    once = radius(sg.trace(lambda x: x / 300, (3,)), x, arithmetic=FORMS["in float16"]).outputs
    assert (once.radius < 1e-4).all()


def test_divisors_that_vanish_together_leave_nothing_proven() -> None:
    """2**-8 * 2**-7 is no normal number of float16: what is divided by it may be divided by 0."""
    small = radius(sg.trace(lambda x: x / 2.0**-8 / 2.0**-7, (1,)), np.array([1.0]), arithmetic=FORMS["in float16"])
    assert np.isinf(small.outputs.radius).all()


@pytest.mark.parametrize(
    ("form", "n", "most"), [("sums in float32", 576, 1e-3), ("sums in float32", 4096, 1.5e-3), ("in float16", 576, 0.5)]
)
def test_a_mean_of_many_is_bounded(form: str, n: int, most: float) -> None:
    """A sum below 65504 does not overflow, whatever it is divided by; its radius stands beside sums in any order."""
    rng = np.random.default_rng(n)
    x = kept(rng.normal(size=n))
    ball = radius(sg.trace(sg.mean, (n,)), x, arithmetic=FORMS[form]).outputs
    assert ball.radius < most
    for _ in range(20):
        y = x[rng.permutation(n)]
        total = kept(y.astype(np.float32).sum()) if form == "sums in float32" else np.add.accumulate(y.astype(HALF))[-1]
        assert abs(float(kept(float(total) / n)) - float(ball.value)) <= ball.radius


@pytest.mark.parametrize("execution", ["node", "fused"])
def test_a_norm_of_many_is_bounded(execution: str) -> None:
    """4,096 squares come to 4,096, not to as many times the largest of them; PyTorch's result lies inside."""
    torch = pytest.importorskip("torch")
    x = kept(np.random.default_rng(1).normal(size=(2, 4096)))
    graph = sg.trace(lambda x: sg.layer_norm(x, (4096,)), x.shape)
    ball = radius(graph, x, arithmetic=Arithmetic("float16", accumulate="float32", execution=execution)).outputs
    assert ball.radius.max() < 0.06
    y = torch.nn.functional.layer_norm(torch.from_numpy(x).half(), (4096,)).double().numpy()
    assert (np.abs(y - ball.value) <= ball.radius).all()
