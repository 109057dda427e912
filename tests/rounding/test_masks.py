"""Softmax with masks: what is shut out has no share, nothing overflows, and the total's error counts once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.graph.ir.tree import leaves
from specgrad.ops.attention import attention
from specgrad.rounding import Arithmetic, Ball, local_radius, radius

U, TINY = 2.0**-24, 2.0**-126
CAUSAL = np.tri(16, dtype=bool)
LOWEST = {
    "-inf": -np.inf, "the lowest number": np.finfo(np.float32).min, "-1e9": np.float32(-1e9), "-1e4": np.float32(-1e4)
}  # fmt: skip


def added(low: Any) -> np.ndarray:
    return np.where(CAUSAL, 0.0, low).astype(np.float32)


def masked_ball(x: np.ndarray, mask: np.ndarray, execution: str) -> Ball:
    graph = sg.trace(lambda x: sg.softmax(x * 0.125 + x.builder.constant(mask)), x.shape)
    ball: Ball = radius(graph, x, arithmetic=Arithmetic(execution=execution)).outputs
    return ball


@pytest.mark.parametrize("execution", ["node", "fused"])
def test_the_error_of_the_total_counts_once(execution: str) -> None:
    """n roundings of the sum, 12 units of exp twice and the exponents': 2,069 u before, when it counted twice."""
    x = np.random.default_rng(0).normal(size=(2, 1024)).astype(np.float32)
    ball = radius(sg.trace(sg.softmax, x.shape), x, arithmetic=Arithmetic(execution=execution)).outputs
    share = np.max(ball.radius / ball.value) / U
    assert 1023 < share < 1070


@pytest.mark.parametrize("execution", ["node", "fused"])
@pytest.mark.parametrize("name", list(LOWEST))
def test_a_shut_cell_has_no_share(name: str, execution: str) -> None:
    """[M1]: a few roundings of the others, no open cell; the exact value from NumPy's float64."""
    x = np.random.default_rng(1).normal(size=(16, 16)).astype(np.float32) * 3
    ball = masked_ball(x, added(LOWEST[name]), execution)
    e = np.where(CAUSAL, np.exp(x.astype(float) / 8), 0.0)
    assert ball.contains(e / e.sum(-1, keepdims=True)).all()
    assert np.max(ball.radius[CAUSAL] / ball.value[CAUSAL]) < 80 * U
    assert np.max(ball.radius[~CAUSAL]) <= (0 if name == "-inf" else 16 * TINY)


def test_the_lowest_number_as_a_mask_of_each_format() -> None:
    for dtype, lowest in {
        "float16": -65504.0,
        "float32": -3.4028234663852886e38,
        "float64": -1.7976931348623157e308,
    }.items():
        for sign in (1.0, -1.0):
            ball = local_radius(
                "add", np.array([3.0, -3.0]) * sign, np.array([lowest] * 2), arithmetic=Arithmetic(dtype)
            )
            assert np.isfinite(ball.radius).all(), dtype
            assert ball.contains(np.array([lowest] * 2)).all(), dtype


def test_what_may_overflow_is_open() -> None:
    """Half a step of float16's largest number is 16: -65504 - 16 is -inf, and to nearest, ties to even."""
    lowest, x = np.full(3, -65504.0), np.array([-15.0, -16.0, 3.0])
    with np.errstate(over="ignore"):
        assert np.isinf(np.float16(x) + np.float16(lowest)).tolist() == [False, True, False]
    ball = local_radius("add", x, lowest, arithmetic=Arithmetic("float16"))
    assert np.isinf(ball.radius).tolist() == [True, True, False]
    either = local_radius("add", x, lowest, arithmetic=Arithmetic("float16", rounding="any"))
    assert np.isinf(either.radius).all()


@pytest.mark.parametrize(
    "meant",
    [
        Arithmetic("float8_e4m3fn", accumulate="float32"),
        Arithmetic("float8_e4m3fn"),
        Arithmetic("float16", overflow="saturate"),
        Arithmetic("float8_e5m2", accumulate="float32", overflow="saturate"),
    ],
)
def test_where_no_infinity_can_be_stored_a_mask_of_it_is_open(meant: Arithmetic) -> None:
    """float8_e4m3fn has none, and makes NaN of it (ml_dtypes); a saturating store makes the largest number."""
    ball = local_radius("add", np.array([0.0, 1.0]), np.array([-np.inf, -np.inf]), arithmetic=meant)
    assert np.isinf(ball.radius).all()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert np.isnan(np.array(-np.inf).astype(ml_dtypes.float8_e4m3fn))


def test_two_infinities_are_not_swallowed() -> None:
    inf = np.array([np.inf, -np.inf])
    assert np.isinf(local_radius("add", inf, -inf).radius).all()
    assert (local_radius("add", inf, inf).radius == 0).all()
    assert np.isinf(local_radius("add", inf, np.array([-3e38, 3e38])).radius).all()  # with more of them it may be NaN


@pytest.mark.parametrize("execution", ["node", "fused"])
def test_of_a_row_with_no_cell_nothing_is_claimed(execution: str) -> None:
    """[M1]: other rows are judged."""
    x = np.zeros((2, 4), np.float32)
    mask = np.float32([[0, 0, -np.inf, 0], [-np.inf] * 4])
    ball = masked_ball(x, mask, execution)
    assert np.isinf(ball.radius).tolist() == [[False] * 4, [True] * 4]


@pytest.mark.parametrize("mask", [CAUSAL, added(-np.inf), added(LOWEST["the lowest number"])])
def test_attention_under_a_mask_has_a_radius_and_so_have_its_derivatives(mask: np.ndarray) -> None:
    """Against PyTorch's own kernel and its gradients, which are executions."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    q, k, v = (rng.normal(size=(16, 8)).astype(np.float32) for _ in range(3))
    graph = sg.trace(lambda q, k, v: attention(q, k, v, mask), *(3 * [(16, 8)]))
    tensors = [torch.tensor(a, requires_grad=True) for a in (q, k, v)]
    y = torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=torch.tensor(mask))
    ball = radius(graph, q, k, v).outputs
    assert ball.contains(y.detach().numpy()).all()
    assert np.max(ball.radius) < 1e-4
    y.sum().backward()
    balls = leaves(radius(sg.vjp(graph), q, k, v, np.ones((16, 8), np.float32)).outputs)[-3:]
    for found, tensor in zip(balls, tensors, strict=True):
        assert np.isfinite(found.radius).all()
        assert found.contains(tensor.grad.numpy()).all()
