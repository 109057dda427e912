"""Numbers in a call: the format rounds what it does not hold, in operators that are exact otherwise too."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from enclosed import check, rounded
from specgrad.bounds import Box, crown, ibp
from specgrad.op import REGISTRY, apply
from specgrad.ops.activation import normal_pdf
from specgrad.ops.elementwise import equal, greater, greater_equal
from specgrad.rounding import FORMATS, ULPS, Arithmetic, Ball, local_radius, radius

Call = Callable[[Any, float], Any]


def less(x: Any, y: Any) -> Any:
    return apply(REGISTRY["less"], x, y)


CALLS: dict[str, Call] = {
    "maximum": sg.maximum,
    "minimum": lambda x, k: sg.minimum(k, x),
    "greater": greater,
    "greater_equal": lambda x, k: greater_equal(k, x),
    "less": less,
    "equal": equal,
    "clamp from": lambda x, k: sg.clamp(x, k),
    "clamp to": lambda x, k: sg.clamp(x, None, k),
    "clamp": lambda x, k: sg.clamp(x, -abs(k), abs(k)),
    "leaky_relu": sg.leaky_relu,
    "select": lambda x, k: sg.select(greater(x, 1), k, x),
    "fill": sg.fill,
    "add": sg.add,
    "mul": sg.mul,
    "div": sg.div,
}
BENT: dict[str, Call] = {
    "softplus": lambda x, k: sg.softplus(x, abs(k)),
    "exp": lambda x, k: sg.exp(x),
    "log": lambda x, k: sg.log(sg.abs(x)),
    "sqrt": lambda x, k: sg.sqrt(sg.abs(x)),
    "tanh": lambda x, k: sg.tanh(x),
    "sin": lambda x, k: sg.sin(x),
    "cos": lambda x, k: sg.cos(x),
    "sigmoid": lambda x, k: sg.sigmoid(x),
    "silu": lambda x, k: sg.silu(x),
    "gelu": lambda x, k: sg.gelu(x),
    "hardswish": lambda x, k: sg.hardswish(x),
    "relu6": lambda x, k: sg.relu6(x),
    "abs": lambda x, k: sg.abs(x),
    "power": lambda x, k: sg.power(x, 3),
}
NUMBERS = (0.1, 0.7, 0.01, 1 / 3, -0.3, 1e-3, 2.5, 3.0)
STORES = {  # what PyTorch computes in on the CPU: narrow formats in float32, and one store
    "float32": Arithmetic("float32", ulps=ULPS["torch"]),
    "float16": Arithmetic("float16", accumulate="float32", ulps=ULPS["torch"]),
    "bfloat16": Arithmetic("bfloat16", accumulate="float32", ulps=ULPS["torch"]),
}


def drawn(rng: Random, k: float, dtype: str) -> np.ndarray:
    """Plain, tiny and large numbers of the format, and those next to k."""
    form = FORMATS[dtype]
    plain = [rng.gauss(0, 2) for _ in range(8)]
    wide = [rng.gauss(0, 1) * 2.0 ** rng.randint(form.lowest - 4, form.highest - 3) for _ in range(8)]
    near = [k * (1 + d * form.u) for d in (-4, -2, -1, 0, 1, 2, 4)]
    return rounded(np.array([*plain, *wide, *near, form.largest, -form.largest, form.tiny]), dtype)


def escapes(name: str, call: Call, dtype: str, arithmetic: Arithmetic, seeds: range, exact: bool) -> list[str]:
    found = []
    for seed in seeds:
        rng = Random(f"constants/{name}/{dtype}/{seed}")
        k = NUMBERS[seed % len(NUMBERS)]
        x = drawn(rng, k, dtype)
        graph = sg.trace(lambda x, k=k: call(x, k), x.shape)
        ball = radius(graph, x.astype(float), arithmetic=arithmetic).outputs
        computed = graph(torch.tensor(x).to(getattr(torch, dtype))).double().numpy()
        values = {"computed": computed} | ({"exact": graph(sg.exact(x))} if exact else {})
        for what, cells in values.items():
            try:
                check(ball, cells, what)
            except AssertionError as error:
                found.append(f"{name} {dtype} k={k} seed {seed}: {error}")
    return found


@pytest.mark.parametrize("dtype", STORES)
@pytest.mark.parametrize("name", CALLS)
def test_numbers_that_the_format_lacks(name: str, dtype: str) -> None:
    assert not escapes(name, CALLS[name], dtype, STORES[dtype], range(16), exact=True)


@pytest.mark.parametrize("dtype", STORES)
@pytest.mark.parametrize("name", BENT)
def test_a_result_is_stored_once_more(name: str, dtype: str) -> None:
    assert not escapes(name, BENT[name], dtype, STORES[dtype], range(16), exact=False)


@pytest.mark.parametrize("name", ["leaky_relu", "clamp to", "maximum", "fill"])
def test_an_arithmetic_without_the_store_is_noticed(name: str) -> None:
    """bfloat16 results are not those of float32."""
    assert escapes(name, CALLS[name], "bfloat16", Arithmetic("float32", ulps=ULPS["torch"]), range(16), exact=False)


def test_leaky_relu_counts_its_store() -> None:
    """Half a step of bfloat16, which float32 products do not have."""
    x = np.array([-1.0078125])
    ball = radius(sg.trace(lambda x: sg.leaky_relu(x, 0.25), (1,)), x, arithmetic=STORES["bfloat16"]).outputs
    assert ball.radius >= 2.0**-9 * 0.25
    assert ball.radius <= 2.0**-7 * 0.25


@pytest.mark.parametrize("dtype", STORES)
def test_a_quotient_by_a_stored_reciprocal(dtype: str) -> None:
    """x * (1/k), the reciprocal folded into a constant of the format, the product computed in float32 or wider."""
    kind, rng = getattr(torch, dtype), np.random.default_rng(0)
    x = rounded(rng.normal(size=2000), dtype)
    for k in NUMBERS:
        divisor = torch.tensor(k, dtype=torch.float64).to(kind).double()
        ball = radius(sg.trace(lambda x, k=k: x / k, x.shape), x.astype(float), arithmetic=STORES[dtype]).outputs
        product = torch.tensor(x).double() * (1 / divisor).to(kind).double()
        assert ball.contains(product.to(kind).double().numpy()).all()


NONE = {"float32": 1e39, "float16": 1e5, "bfloat16": 1e39}  # a number that rounds to none of the format
OVER = {
    "smooth_max_pool": lambda x, k: sg.smooth_max_pool(x, (2,), beta=k),
    "its derivative": lambda x, k: sg.vjp(sg.trace(lambda v: sg.smooth_max_pool(v, (2,), beta=k), (2,)))(x, x[:1])[1],
    "softplus": sg.softplus,
}


@pytest.mark.parametrize("dtype", NONE)
@pytest.mark.parametrize("name", OVER)
def test_nothing_is_known_of_a_parameter_that_overflows(name: str, dtype: str) -> None:
    """beta*x is an ordinary number, and every engine has NaN."""
    for beta in (NONE[dtype], FORMATS[dtype].smallest / 8):
        graph = sg.trace(lambda x, beta=beta: OVER[name](x, beta), (2,))
        with np.errstate(all="ignore"):
            ball = radius(graph, np.float64([0, 2.0**-10]), arithmetic=Arithmetic(dtype)).outputs
        assert np.isinf(ball.radius).all()


@pytest.mark.parametrize("dtype", NONE)
@pytest.mark.parametrize("name", ["smooth_max_pool", "softplus"])
def test_nothing_is_known_of_a_quotient_whose_reciprocal_may_be_flushed(name: str, dtype: str) -> None:
    """(beta*y) * (1/beta) is 0 where 1/beta is subnormal and counts as 0; of a normal 1/beta it is y."""
    most = 1 / FORMATS[dtype].tiny
    for beta, known in ((most, True), (most * 1.5, False)):
        graph = sg.trace(lambda x, beta=beta: OVER[name](x, beta), (2,))
        x = np.float64([0.25, 0.5])
        ball, box = radius(graph, x, arithmetic=Arithmetic(dtype)).outputs, Box(x, x)
        assert np.isfinite(ball.radius).all() == known
        bounds = [ibp(graph, box, arithmetic=Arithmetic(dtype)), crown(graph, box, arithmetic=Arithmetic(dtype))]
        assert [bool(np.isfinite(b.outputs.high).all()) for b in bounds] == [known, known]


def test_zero_times_a_reciprocal_that_overflows_is_no_number() -> None:
    """float16 has no 1/6e-8, and has 1/3e-5; JAX multiplies, and has NaN."""
    for divisor, known in ((6e-8, False), (3e-5, True)):
        for call in (lambda x, k=divisor: x / k, lambda x, k=divisor: sg.quantize(x, k, 3)):
            ball = radius(sg.trace(call, (1,)), np.zeros(1), arithmetic=Arithmetic("float16")).outputs
            assert np.isfinite(ball.radius).all() == known


FARTHEST: dict[str, tuple[Any, list[float], list[float]]] = {
    "smooth_max_pool": (lambda x: sg.smooth_max_pool(x, (2,), beta=1.2e-38), [3e38, -3e38], [1.6e38, -1.6e38]),
    "its derivative": (
        lambda x: sg.vjp(sg.trace(lambda v: sg.smooth_max_pool(v, (2,), beta=-1e-37), (2,)))(x, x[:1])[1],
        [3.4e38, -1e37],
        [1.6e38, -1e37],
    ),
    "gelu": (sg.gelu, [2e38, 1.0], [1.6e38, 1.0]),
}


@pytest.mark.parametrize("name", FARTHEST)
def test_nothing_is_known_of_a_partial_result_that_overflows(name: str) -> None:
    """x - m before beta*(x - m), x*(1 + erf) before its half: PyTorch has another number, or infinity."""
    call, far, near = FARTHEST[name]
    graph = sg.trace(call, (2,))
    assert np.isinf(radius(graph, np.float32(far)).outputs.radius).any()
    ball = radius(graph, np.float32(near)).outputs
    assert np.isfinite(ball.radius).all()
    assert ball.contains(call(torch.tensor(np.float32(near))).double().numpy()).all()


@pytest.mark.parametrize("beta", [1e38, 3e38])
def test_softplus_of_a_large_beta_on_jax(beta: float) -> None:
    """XLA multiplies by 1/beta, which it flushes to 0."""
    jnp = pytest.importorskip("jax.numpy")
    got = sg.softplus(jnp.asarray([-1.0, 0.25, 0.5], dtype="float32"), beta)
    assert np.asarray(got).tolist() == [0.0, 0.25, 0.5]


def test_a_slope_next_to_1_is_rounded() -> None:
    """float64 lacks 1 + 2**-60 too; rounded up it is 1 + 2**-23."""
    graph = sg.trace(lambda x: sg.leaky_relu(x, 1 + Fraction(1, 2**60)), (1,))
    ball = radius(graph, np.float32([-1]), arithmetic=Arithmetic(rounding="any")).outputs
    assert ball.contains(np.float32([-1 - 2.0**-23])).all()
    assert radius(graph, np.float32([-1])).outputs.radius > 0  # the exact value is not -1


@pytest.mark.parametrize("exponent", [2**24 + 1, Fraction(2**60 + 1, 2**59)])
def test_an_exponent_that_is_rounded_may_be_odd_or_not(exponent: Any) -> None:
    """NumPy in float32 has 2**24, so that (-1)**(2**24 + 1) is 1."""
    graph = sg.trace(lambda x: sg.power(x, exponent), (2,))
    ball = radius(graph, np.float32([-1, 1.0000001]), arithmetic=Arithmetic(rounding="any")).outputs
    assert np.isinf(ball.radius[0])
    assert np.isfinite(ball.radius[1])


def test_a_fraction_is_stored_too() -> None:
    """1/3 is no number of any format, nor of the float64 that computes the value."""
    for arithmetic in (Arithmetic("real"), Arithmetic("float32")):
        graph = sg.trace(lambda x: sg.clamp(x, None, Fraction(1, 3)), (1,))
        ball = radius(graph, np.ones(1), arithmetic=arithmetic).outputs
        assert abs(Fraction(ball.value.item()) - Fraction(1, 3)) <= Fraction(ball.radius.item())
        assert ball.radius <= 1e-7


# --- nothing is known after an overflow -------------------------------------------------------------------------------

AFTER: dict[str, Callable[[Any], Any]] = {
    "tanh": sg.tanh,
    "sin": sg.sin,
    "sigmoid": sg.sigmoid,
    "clamp": lambda x: sg.clamp(x, -1, 1),
    "relu6": sg.relu6,
    "minimum": lambda x: sg.minimum(sg.maximum(x, 0), 1),
    "abs": sg.abs,
    "sign": sg.sign,
    "normal_pdf": normal_pdf,
    "reciprocal": lambda x: sg.div(1.0, x),
    "zero": lambda x: sg.div(0.0, x),
    "power": lambda x: sg.power(x, 0),
    "leaky_relu": lambda x: sg.leaky_relu(x, 0.1),
    "select": lambda x: sg.select(greater(x, 0), 0.0, x),
    "hardswish": sg.hardswish,
}


BY_NODE = Arithmetic(execution="node")


def after_overflow(call: Callable[[Any], Any], **options: Any) -> Ball:
    """x*3e38*3e38 may be inf, and inf - inf NaN, in the first cell alone: by node, for fused 3e38*3e38 is inf."""
    graph = sg.trace(lambda x: call(sg.mul(sg.mul(x, 3e38), 3e38)), (2,))
    return radius(graph, np.array([1.0, 0.0]), arithmetic=BY_NODE, **options).outputs


@pytest.mark.parametrize("name", AFTER)
def test_nothing_is_known_after_an_overflow(name: str) -> None:
    ball = after_overflow(AFTER[name])
    assert np.isinf(ball.radius[0])
    with np.errstate(invalid="ignore"):  # 1/0 in the other cell
        assert (ball.low[0], ball.high[0]) == (-np.inf, np.inf)


@pytest.mark.parametrize("name", sorted(AFTER.keys() - {"reciprocal", "zero"}))
def test_the_other_cells_stay_known(name: str) -> None:
    assert np.isfinite(after_overflow(AFTER[name]).radius[1])


@pytest.mark.parametrize("call", [lambda x: greater(x, 0), lambda x: equal(x, x), lambda x: less(0, x)])
def test_a_comparison_with_nothing_known_is_0_or_1(call: Callable[[Any], Any]) -> None:
    ball = after_overflow(call)
    assert ball.contains([0, 0])[0]
    assert ball.contains([1, 0])[0]
    assert not ball.contains([3, 0])[0]


def test_what_is_not_chosen_is_not_touched() -> None:
    ball = after_overflow(lambda x: sg.select(np.array([0.0, 0.0]), x, 7.0))
    assert ball.radius.tolist() == [0, 0]


def test_any_tap_may_win_beside_an_unknown_one() -> None:
    graph = sg.trace(lambda x: sg.max_pool(x * 1e30 * 1e30, (2,), return_indices=True)[1], (1, 1, 4))
    found = radius(graph, np.array([[[1.0, 0.0, 1e-30, 0.0]]]), arithmetic=BY_NODE).outputs
    assert np.isinf(found.radius).tolist() == [[[True, False]]]
    assert set(found.candidates.cells.tolist()) == {0, 1}


@pytest.mark.parametrize("beta", [2.0, -2.0])
def test_a_smooth_maximum_shifts_by_its_whole_plane(beta: float) -> None:
    """One unknown cell leaves its plane unknown, in values and in derivatives; the other plane is known."""
    x = np.zeros((1, 2, 4))
    x[0, 0, 3] = 1.0
    pool = lambda x: sg.smooth_max_pool(x * 3e38 * 3e38, (2,), beta=beta)
    graph = sg.trace(pool, x.shape)
    assert np.isinf(radius(graph, x, arithmetic=BY_NODE).outputs.radius).tolist() == [[[True, True], [False, False]]]
    assert np.isinf(radius(sg.vjp(graph), x, np.ones((1, 2, 2))).outputs[1].radius[0, 0]).all()


# --- partial results -------------------------------------------------------------------------------------------------

HALF = np.float16
WAYS: dict[str, list[Callable[[np.ndarray], np.ndarray]]] = {  # every operation rounds to float16
    "hardswish": [
        lambda x: x * np.clip(x + HALF(3), HALF(0), HALF(6)) / HALF(6),
        lambda x: x * (np.clip(x + HALF(3), HALF(0), HALF(6)) / HALF(6)),
        lambda x: x * (np.clip(x + HALF(3), HALF(0), HALF(6)) * HALF(1 / 6)),
    ],
    "silu": [lambda x: x / (HALF(1) + np.exp(-x)), lambda x: x * (HALF(1) / (HALF(1) + np.exp(-x)))],
    "softplus": [lambda x: np.maximum(x, HALF(0)) + np.log(HALF(1) + np.exp(-np.abs(x)))],
    "leaky_relu": [lambda x: np.where(x > 0, x, x * HALF(0.01))],
    "normal_pdf": [lambda x: np.exp(-(x * x) / HALF(2)) / HALF(np.sqrt(2 * np.pi))],
}
PARAMS: dict[str, dict[str, float]] = {"softplus": {"beta": 1}, "leaky_relu": {"slope": 0.01}}


@pytest.mark.parametrize("name", WAYS)
def test_every_partial_result_of_float16_fits_or_nothing_is_claimed(name: str) -> None:
    """All finite float16 numbers, by formulas that round at every step."""
    x = np.arange(2**16, dtype=np.uint16).view(HALF)
    x = x[np.isfinite(x)]
    ball = local_radius(name, x.astype(float), arithmetic=Arithmetic("float16"), **PARAMS.get(name, {}))
    for way in WAYS[name]:
        with np.errstate(all="ignore"):
            y = way(x)
        assert y.dtype == HALF
        assert ball.contains(y).all(), x[~ball.contains(y)][:5]
    assert np.isfinite(ball.radius).mean() > 0.8
