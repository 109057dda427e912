"""Positions on JAX: the order of equal cells, zeros and NaNs, and gathers whose positions are known beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import specgrad as sg  # noqa: E402

CELLS = [1.0, -0.0, np.nan, 0.0, np.inf, -np.inf, 0.0, -np.nan, 2.0, 2.0, -0.0, np.inf]


def ranked(row: list[float], largest: bool) -> list[int]:
    """NaN above all numbers, equal cells by position, both zeros equal; by Python's own stable sort."""
    up = 1.0 if not largest else -1.0
    keys = [(up, 0.0) if np.isnan(v) else (0.0, up * v) for v in row]
    return sorted(range(len(row)), key=keys.__getitem__)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("axis", [0, 1])
def test_equal_cells_zeros_and_nans_have_one_order(dtype: str, axis: int) -> None:
    rows = [CELLS, CELLS[::-1]]
    x = jnp.asarray(rows if axis else np.transpose(rows), dtype)
    for k, largest in ((1, True), (5, True), (12, True), (5, False)):
        run = jax.jit(lambda t, k=k, largest=largest: sg.topk(t, k, axis=axis, largest=largest))
        values, index = (np.asarray(v, np.float64) for v in run(x))
        want = np.array([ranked(row, largest)[:k] for row in rows])
        np.testing.assert_array_equal(index if axis else index.T, want)
        np.testing.assert_array_equal(values if axis else values.T, np.take_along_axis(np.array(rows), want, 1))


def test_the_first_and_the_last_of_equal_cells() -> None:
    x = jnp.asarray([[1.0, -0.0, 3.0, 3.0], [-0.0, 0.0, -1.0, -0.0], [np.nan, 9.0, np.inf, 9.0]])
    assert sg.argmax(x, 1).tolist() == [2, 0, 0]
    assert sg.argmax(x, 1, last=True).tolist() == [3, 3, 0]
    assert sg.argmin(x, 1).tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    "positions", [[2, 3, 0, 1], [1, 0, 1, 2, 3, 2], [-1, 0], [3, 3, 3], [0, 2, 0, 2, 0, 2, 0, 2, 1]]
)
def test_known_positions_in_runs_and_others(positions: list[int]) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (2, 4, 3)).astype(np.float32)
    weights = np.arange(1.0, 1 + 6 * len(positions), dtype=np.float32).reshape(2, -1, 3)
    index = np.array(positions)
    run: Any = jax.jit(jax.value_and_grad(lambda t: jnp.sum(sg.gather(t, index, axis=1) * weights)))
    value, slope = run(jnp.asarray(x))
    want = np.zeros_like(x)
    for o, p in enumerate(positions):
        want[:, p] += weights[:, o]
    assert float(value) == float((x[:, index] * weights).sum())
    np.testing.assert_array_equal(slope, want)
    spread = jax.jit(lambda t: sg.scatter(t, index, axis=1, size=4))(jnp.asarray(weights))
    np.testing.assert_array_equal(spread, want)


def test_a_position_outside_is_still_refused() -> None:
    with pytest.raises(sg.errors.ShapeError):
        sg.gather(jnp.zeros((2, 4)), np.array([2, 3, 4]), axis=1)


@pytest.mark.parametrize(
    "around", [lambda t: sg.roll(t, 1, axis=1), lambda t: sg.pad(t, [(0, 0), (2, 2)], mode="wrap")]
)
def test_the_reverse_of_known_runs_sets_no_single_cells(around: Any) -> None:
    program = jax.make_jaxpr(jax.grad(lambda t: jnp.sum(around(t) ** 2)))(jnp.ones((2, 5)))
    assert "scatter" not in str(program)
    assert "gather" not in str(program)


@pytest.mark.parametrize("size", [8, 9, 3, 40])  # 40: more readers of a cell than are collected one by one
@pytest.mark.parametrize("how", ["linear", "floor"])
def test_the_reverse_of_resize_is_its_transposed_matrix(size: int, how: str) -> None:
    gy = np.random.default_rng(1).standard_normal((2, size, 3))
    matrix = sg.resize(np.eye(4), (size,), axes=(0,), how=how)
    _, pullback = jax.vjp(jax.jit(lambda t: sg.resize(t, (size,), axes=(1,), how=how)), jnp.zeros((2, 4, 3)))
    (slope,) = pullback(jnp.asarray(gy, jnp.float32))
    np.testing.assert_allclose(slope, np.einsum("oc,noa->nca", matrix, gy), rtol=1e-5, atol=1e-5)


def test_an_infinite_cotangent_stays_in_its_cells() -> None:
    gy = jnp.asarray([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, np.inf]])
    _, pullback = jax.vjp(lambda t: sg.resize(t, (8,), axes=(1,)), jnp.zeros((1, 4)))
    assert pullback(gy)[0].tolist()[0][:2] == [0.0, 0.0]
