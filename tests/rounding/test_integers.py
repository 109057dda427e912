"""Quantised cells: every execution of the scale arithmetic lies in its set, the set is nearly always one number, and
sums of integers are exact or not claimed. Executions are NumPy's float32, exact values are fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import specgrad as sg
from specgrad.rounding import Arithmetic, local_radius, radius

F = np.float32
NODE = Arithmetic(execution="node", flush=False)


def saturated(v: np.ndarray, zero: int, low: int = 0, high: int = 255) -> np.ndarray:
    return np.clip(np.rint(v).astype(np.float64) + zero, low, high)


def half_even(x: Fraction) -> int:
    """Written out, not Python's round."""
    below = x.numerator // x.denominator
    rest = x - below
    up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1)
    return below + up


def draws(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers near ties as well as anywhere."""
    rng = np.random.default_rng(seed)
    scale = F(10.0 ** rng.uniform(-4, 1, count))
    x = F((rng.integers(-300, 300, count) + rng.choice([0.5, rng.random(count)[0]], count)) * scale)
    return x, scale


@pytest.mark.parametrize("seed", range(3))
def test_quotients_and_products_with_reciprocals_stay_in_the_set(seed: int) -> None:
    x, scale = draws(20_000, seed)
    ball = local_radius("quantize", x, scale, np.full(x.shape, F(7)), low=0, high=255, arithmetic=NODE)
    for computed in (x / scale, x * (F(1) / scale)):
        assert ball.contains(saturated(computed, 7)).all()
    exact = [
        min(max(half_even(Fraction(float(p)) / Fraction(float(s))) + 7, 0), 255) for p, s in zip(x, scale, strict=True)
    ]
    assert ball.contains(np.array(exact)).all()
    assert (ball.high - ball.low <= 1).all()


def test_a_set_is_nearly_always_one_number() -> None:
    rng = np.random.default_rng(0)
    x = F(rng.normal(size=100_000) * 40)
    ball = local_radius(
        "quantize", x, np.full(x.shape, F(0.37)), np.zeros(x.shape), low=-128, high=127, arithmetic=NODE
    )
    assert np.count_nonzero(ball.low != ball.high) < 10


def requantised(total, xs, ws, ys):
    """QLinearConv's last step, as the importer writes it."""
    return sg.quantize(sg.mul(sg.mul(sg.cast(total, "float32"), xs), ws), ys, 3, low=0, high=255)


@pytest.mark.parametrize("seed", range(3))
def test_the_multiplier_may_be_formed_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    total = rng.integers(-(2**28), 2**28, 20_000).astype(np.float64)
    xs, ws = F(rng.uniform(1e-3, 1e-1)), F(rng.uniform(1e-4, 1e-2))
    ys = F(float(xs) * float(ws) * 2**28 / 300)
    graph = sg.trace(lambda t: requantised(t, float(xs), float(ws), float(ys)), total.shape)
    ball = radius(graph, total, arithmetic=NODE, formats={graph.names[0]: "int32"}).outputs
    a = total.astype(F)  # rounded: sums above 2**24 are
    for computed in (
        a * (xs * ws / ys),
        a * xs * ws / ys,
        a * (xs * (ws * (F(1) / ys))),
        (a / ys) * (xs * ws),
        a * F(np.float64(xs) * np.float64(ws) / np.float64(ys)),
    ):
        assert ball.contains(saturated(computed, 3)).all()
    assert np.count_nonzero(ball.low != ball.high) < 40


def test_a_tie_that_arithmetic_cannot_move_goes_to_even() -> None:
    x, quarter = F([0.125, 0.375, 0.625, -0.125]), np.full(4, F(0.25))
    ball = local_radius("quantize", x, quarter, np.zeros(4), low=-128, high=127, arithmetic=NODE)
    assert ball.radius.tolist() == [0, 0, 0, 0]
    assert ball.value.tolist() == [0, 2, 2, 0]
    assert not ball.contains([1, 1, 3, -1]).any()  # half away from zero, or down
    graph = sg.trace(lambda t: requantised(t, 0.5, 0.25, 0.25), (3,))
    ball = radius(graph, np.array([1.0, 3.0, 5.0]), arithmetic=NODE).outputs
    assert ball.low.tolist() == ball.high.tolist() == [3, 5, 5]


def test_many_powers_of_two_may_be_multiplied_first_and_underflow() -> None:
    """x * (2**-40)**4 is normal at 2**100; the product of the four factors is 0 in float32."""

    def shifted(x, count):
        for _ in range(count):
            x = sg.mul(x, 2.0**-40)
        return x

    x = np.array([2.0**100])
    few, many = (radius(sg.trace(lambda v, n=n: shifted(v, n), (1,)), x).outputs for n in (3, 4))
    assert few.is_exact
    assert many.contains([0.0]).all()
    halves = Arithmetic("float16", accumulate="float32")
    graph = sg.trace(lambda v: sg.mul(sg.mul(v, 2.0**-10), 2.0**-10), (1,))  # 2**-20 is 0 where float16 is flushed
    assert not radius(graph, np.array([2.0**15]), arithmetic=halves).outputs.is_exact
    quotient = radius(sg.trace(lambda v: sg.quantize(shifted(v, 3), 2.0**-40), (1,)), np.array([2.0**100])).outputs
    assert not quotient.is_exact


def test_a_number_between_two_members_of_a_set_is_none() -> None:
    x = F(2.5) * F(0.3)
    ball = local_radius("quantize", np.array([x]), F([0.3]), np.zeros(1), low=0, high=9, arithmetic=NODE)
    assert (ball.low, ball.high) == (2, 3)
    assert [bool(ball.contains([v])[0]) for v in (1, 2, 2.5, 3, 4)] == [False, True, False, True, False]


def test_sums_of_integers_are_exact_and_no_claim_is_made_beyond_int32() -> None:
    graph = sg.trace(lambda w, x: sg.conv(w, None, x), (1, 1, 3), (1, 8))
    inside = {n.name: "int32" for n in graph.nodes}
    w, x = np.array([[[127.0, -128.0, 3.0]]]), np.arange(8.0).reshape(1, 8) * 40_000
    ball = radius(graph, w, x, formats=inside).outputs
    assert (ball.is_exact, ball.whole) == (True, True)
    assert radius(graph, w, x).outputs.radius.all()  # in float32 they are rounded
    assert np.isinf(radius(graph, w, x * 1000, formats=inside).outputs.radius).all()


@pytest.mark.parametrize("fn", [lambda x: sg.add(x, 0.5), sg.sigmoid, lambda x: sg.quantize(x, 3.0)])
def test_what_is_no_sum_of_integers_is_not_claimed_in_their_format(fn) -> None:
    graph = sg.trace(fn, (3,))
    ball = radius(graph, np.array([1.0, 2.0, 3.0]), formats={n.name: "int32" for n in graph.nodes}).outputs
    assert np.isinf(ball.radius).all()


def test_half_results_are_rounded_to_half_and_their_sums_are_not() -> None:
    graph = sg.trace(lambda w, x: sg.conv(w, None, x), (1, 1, 512), (1, 512))
    w, x = np.full((1, 1, 512), 3 / 256), np.ones((1, 512))
    halves = radius(graph, F(w), x, formats={n.name: "float16" for n in graph.nodes}).outputs
    assert 2.0**-11 * 6 <= halves.radius <= 2.0**-10 * 6
    assert radius(graph, F(w), x, arithmetic=Arithmetic("float16")).outputs.radius > 100 * halves.radius


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_cast_rounds_once_and_keeps_what_the_format_holds(dtype: str) -> None:
    import ml_dtypes

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = F(np.random.default_rng(0).normal(size=1000))
    ball = local_radius("cast", x, dtype=dtype, arithmetic=NODE)
    assert ball.contains(x.astype(kind).astype(float)).all()
    coarser = x.astype(ml_dtypes.float8_e4m3fn).astype(float)
    assert not ball.contains(coarser).all()
    held = x.astype(kind).astype(F)
    assert local_radius("cast", held, dtype=dtype, arithmetic=NODE).is_exact


@pytest.mark.parametrize(
    ("what", "fn", "inside", "outside"),
    [
        ("int8", lambda x: -x, 127, -128),
        ("int8", abs, -127, -128),
        ("uint8", lambda x: -x, 0, 1),
        ("int16", lambda x: sg.maximum(x, 2**15 - 1), 3, None),
        ("int16", lambda x: sg.maximum(x, 2**15), None, 3),
        ("int32", lambda x: -x, 1 - 2**31, -(2**31)),
    ],
)
def test_what_rounds_nothing_may_leave_its_type(what, fn, inside, outside) -> None:
    """NumPy's int8 has -(-128) = -128."""
    graph = sg.trace(fn, (1,))
    for x, known in ((inside, True), (outside, False)):
        if x is not None:
            ball = radius(
                graph,
                np.array([float(x)]),
                arithmetic=NODE,
                formats=dict.fromkeys(graph.names, what) | {n.name: what for n in graph.nodes if n.args},
            ).outputs
            assert (ball.radius == 0).all() == known
            assert np.isfinite(ball.radius).all() == known
