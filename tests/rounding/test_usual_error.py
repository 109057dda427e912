"""Usual errors, held against executions by engines, against exact sums in random orders, and against chosen cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

import specgrad as sg
from specgrad.deadline import time_limit
from specgrad.errors import TimeLimitError, UnsupportedError
from specgrad.rounding.usual_error import usual_error

U = 2.0**-24


def sequential(x: np.ndarray, order: np.ndarray) -> float:
    """A float32 sum of products in one order."""
    total = np.float32(0)
    for term in x[order]:
        total = np.float32(total + term)
    return float(total)


@pytest.mark.parametrize("count", [9, 64, 576])
@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_sums_in_random_orders_have_the_estimated_deviation(count: int, mean: float) -> None:
    """Over many sums the root mean square of error over deviation is near 1: neither far above nor far below."""
    rng = np.random.default_rng(count)
    x = rng.normal(mean, 1, size=(200, count)).astype(np.float32)
    graph = sg.trace(lambda x: sg.sum(x, (1,)), x.shape)
    usual = usual_error(graph, [x])
    exact = np.array([math.fsum(row) for row in x.astype(float)])
    got = np.array([sequential(row, rng.permutation(count)) for row in x])
    assert np.allclose(usual.values[0], exact, rtol=1e-12)
    z = (got - exact) / usual.deviations[0]
    assert 0.2 < np.sqrt(np.mean(z**2)) < 1.5
    assert np.abs(z).max() < 6


def test_variances_add_through_layers() -> None:
    """sqrt(w^2 * v + own) of a chain of two products, by hand."""
    graph = sg.trace(lambda x: (x * 3.0) * 5.0, (1,))
    (deviation,) = usual_error(graph, [np.array([1.0])]).deviations
    assert deviation[0] == pytest.approx(U / math.sqrt(3) * math.sqrt((3 * 5) ** 2 + 15**2), rel=1e-9)


def test_the_slope_of_a_function_carries_what_came_in() -> None:
    graph = sg.trace(lambda x: sg.exp(x * 1.0), (1,))
    (deviation,) = usual_error(graph, [np.array([2.0])]).deviations
    y = math.exp(2)
    assert deviation[0] == pytest.approx(math.sqrt((y * 2 * U) ** 2 / 3 + (2 * U * y) ** 2 / 3), rel=1e-9)


def test_backends_agree() -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    w, b = rng.normal(size=(4, 3, 3, 3)), rng.normal(size=4)
    graph = sg.trace(lambda x: sg.max_pool(sg.relu(sg.conv(w, b, x, padding=1)), (2, 2)), (1, 3, 8, 8))
    x = rng.normal(size=(1, 3, 8, 8))
    by_numpy, by_torch = (usual_error(graph, [x], backend) for backend in ("numpy", "torch"))
    np.testing.assert_allclose(by_numpy.deviations[0], by_torch.deviations[0], rtol=1e-9)


def test_what_the_format_does_not_hold_is_not_estimated() -> None:
    graph = sg.trace(lambda x: x * 4.0, (2,))
    (deviation,) = usual_error(graph, [np.array([3e38, 1.0])]).deviations
    assert np.isinf(deviation[0])
    assert np.isfinite(deviation[1])


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_what_a_mask_shuts_out_has_no_error(backend: str) -> None:
    """It was inf*u, and 0*inf made all cells of a row NaN. An infinity of an overflow is not estimated still."""
    if backend == "torch":
        pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    mask = np.where(np.arange(8) < 5, 0.0, -np.inf).astype(np.float32)
    graph = sg.trace(lambda x: sg.softmax((x * 3.0 + mask).reshape((2, 2, 8))), (4, 8))
    open_row = usual_error(sg.trace(lambda x: sg.softmax(x * 3.0), (4, 5)), [x[:, :5]], backend).deviations[0]
    deviations = usual_error(graph, [x], backend).deviations[0].reshape(4, 8)
    assert (deviations[:, :5] < 1.5 * open_row).all()  # adding 0 counts as one rounding more
    assert (deviations[:, :5] > 0.99 * open_row).all()
    assert (deviations[:, 5:] < 1e-30).all()
    over = usual_error(sg.trace(lambda x: x * 3e38 * 1e300 + mask, (4, 8)), [x * 1e10], backend).deviations[0]
    assert np.isinf(over[:, :5]).all()


def test_nearly_equal_terms_are_unsure() -> None:
    """Their roundings have one sign and add up: 1,000 times 0.1 is off by 1,000 roundings, not by sqrt(1,000)."""
    x = np.full((1, 1000), 0.1, np.float32)
    usual = usual_error(sg.trace(lambda x: sg.sum(x, (1,)), x.shape), [x])
    assert usual.unsure[0].all()
    error = sequential(x[0], np.arange(1000)) - math.fsum(x[0].astype(float))
    assert abs(error) < 4 * usual.deviations[0][0]


def test_a_step_far_away_is_exact_and_a_near_one_is_not() -> None:
    graph = sg.trace(lambda x: sg.round(x * 1.0), (2,))
    (deviation,) = usual_error(graph, [np.array([0.2, 0.5])]).deviations
    assert deviation[0] == 0
    assert 0.3 < deviation[1] <= 1


def test_steps_of_another_kind_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="fmod"):
        usual_error(sg.trace(lambda x: sg.fmod(x * 1.5, 2.0), (2,)), [np.ones(2)])


def test_halves_round_once_and_sum_in_float32() -> None:
    w = np.ones((1, 16)) / 3
    graph = sg.trace(lambda x: sg.linear(w, None, x), (1, 16))
    x = np.linspace(1, 2, 16)[None]
    half, single = (usual_error(graph, [x], dtype=d).deviations[0][0, 0] for d in ("float16", "float32"))
    y = float((x @ w.T)[0, 0])
    assert half == pytest.approx(2.0**-11 * y / math.sqrt(3), rel=0.01)
    assert single < half / 500


def test_time_is_kept() -> None:
    with time_limit(0), pytest.raises(TimeLimitError):
        usual_error(sg.trace(sg.exp, (2,)), [np.ones(2)])


def picked(gap: float) -> tuple[sg.Graph, np.ndarray]:
    """The larger of two products, and what stands at its position: a choice that rounding decides if they are near."""
    w = np.array([[1.0, 0.0], [0.0, 1.0]])
    table = np.array([0.0, 100.0])

    def choose(x):
        return sg.gather(x.builder.constant(table), sg.argmax(sg.linear(w, None, x), -1), axis=0)

    return sg.trace(choose, (1, 2)), np.array([[1.0, 1.0 + gap]])


def test_positions_that_rounding_decides_have_no_usual_error() -> None:
    graph, x = picked(1e-9)
    with pytest.raises(UnsupportedError, match="rounding may decide"):
        usual_error(graph, [x])
    graph, x = picked(0.5)
    assert usual_error(graph, [x]).deviations[0].max() == 0
