"""assert_conforms on large arrays: a sample of the cells is judged, faults in edges and shares are found, no array is
copied whole.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.check import ConformanceError, assert_conforms
from specgrad.check.kernels.arrays import MANY_CELLS
from specgrad.rounding import Arithmetic

RNG = np.random.default_rng(38)
X, W = RNG.normal(size=(2500, 90)).astype(np.float32), RNG.normal(size=(90, 2000)).astype(np.float32)
PAIR = {"x": X, "w": W}
FEWER = {"x": X[:530], "w": W}  # still sampled, and quicker where all cells are judged
LONG = RNG.normal(size=(3000, 1500)).astype(np.float32)


def product(x: Any, w: Any) -> Any:
    return x @ w


def test_a_sample_is_judged_and_said() -> None:
    done = assert_conforms(product, sg.matmul, inputs=PAIR, layouts="strided")
    assert (done.asked, done.judged) == (1, 1)
    assert "drawn independently" in repr(done)
    assert "of 5,000,000 cells judged" in repr(done)
    (sample,) = done.samples
    assert sample.draws >= 30
    assert done.missed(0.05) == pytest.approx(0.95**sample.draws)
    assert 0 < done.missed(0.05) < 0.25


def test_all_cells_on_demand_and_where_there_are_few() -> None:
    done = assert_conforms(product, sg.matmul, inputs=FEWER, cells=None)
    assert (done.samples, done.missed(0.5)) == ([], 0.0)
    assert assert_conforms(product, sg.matmul, inputs={"x": X[:9], "w": W}).samples == []


def wrong_at(*where: Any) -> Any:
    def kernel(x: Any, w: Any) -> Any:
        y = x @ w
        y[where] += 1
        return y

    return kernel


@pytest.mark.parametrize(
    "where",
    [
        (0, 0),
        (-1, -1),
        (0, -1),
        (slice(2496, None),),
        (slice(None), 128),
        (slice(16, 32), slice(16, 32)),
        (slice(900, 1300),),
    ],
)
def test_faults_at_corners_tiles_and_in_shares_are_found(where: Any) -> None:
    with pytest.raises(ConformanceError, match="no arithmetic that we know") as caught:
        assert_conforms(wrong_at(*where), sg.matmul, inputs=PAIR)
    text = str(caught.value)
    assert "that were judged, of 5,000,000" in text
    verdict = caught.value.verdict
    assert wrong_at(*where)(X, W)[verdict.index] == verdict.actual
    assert verdict.expected == pytest.approx(
        float(X[verdict.index[0]].astype(float) @ W[:, verdict.index[1]]), rel=1e-12
    )
    assert f"y[{verdict.index[0]}, {verdict.index[1]}]" in text


def test_a_cell_between_may_be_missed_and_another_seed_finds_other_cells() -> None:
    """What a sample can miss, it does; with all cells judged it is found."""
    hidden = wrong_at(377, 777)
    assert_conforms(hidden, sg.matmul, inputs=FEWER)
    with pytest.raises(ConformanceError):
        assert_conforms(hidden, sg.matmul, inputs=FEWER, cells=None)
    judge = lambda seed: assert_conforms(product, sg.matmul, inputs=FEWER, layouts="contiguous", seed=seed)
    assert len({judge(seed).samples[0].seen for seed in range(3)}) > 1


def test_other_arithmetics_are_named() -> None:
    half = lambda x, w: x.astype(np.float16).astype(np.float32) @ w.astype(np.float16).astype(np.float32)
    with pytest.raises(ConformanceError, match="explained by"):
        assert_conforms(half, sg.matmul, inputs=FEWER)
    narrow = Arithmetic("float16", accumulate="float32")
    x, w = FEWER["x"].astype(np.float16), np.abs(W).astype(np.float16)

    def in_halves(x: Any, w: Any) -> Any:
        y = np.zeros((x.shape[0], w.shape[1]), np.float16)
        for k in range(x.shape[1]):
            y += x[:, k : k + 1] * w[k]
        return y

    with pytest.raises(ConformanceError, match="explained by sums in float16, not by sums in float32"):
        assert_conforms(in_halves, sg.matmul, inputs={"x": np.abs(x), "w": w}, arithmetic=narrow)


def test_a_kernel_that_writes_into_a_large_input_is_found() -> None:
    def careless(x: Any) -> Any:
        x[1234, 567] += 1
        return x * 2

    assert LONG.size > MANY_CELLS
    with pytest.raises(ConformanceError, match="writes into its input x"):
        assert_conforms(careless, lambda x: x + x, inputs=LONG.copy())


def test_recorded_results_and_gradients_of_large_arrays() -> None:
    done = assert_conforms(np.tanh(LONG), sg.tanh, inputs=LONG)
    assert done.samples[0].cells == LONG.size
    right = lambda g, x: (g * (x > 0),)
    gradient = assert_conforms(lambda x: np.maximum(x, 0), sg.relu, inputs=LONG, gradient=right)
    assert [s.name for s in gradient.samples] == ["y", "gradient of x"]
    with pytest.raises(ConformanceError, match="gradient of x"):
        assert_conforms(lambda x: np.maximum(x, 0), sg.relu, inputs=LONG, gradient=lambda g, x: (g * (x > -1),))


def test_tensors_and_truth_values() -> None:
    torch = pytest.importorskip("torch")
    x, keep = torch.from_numpy(LONG), torch.from_numpy(LONG > 0.3)
    done = assert_conforms(lambda x, k: x * k, lambda x, k: x * k, inputs={"x": x, "k": keep})
    assert done.samples
    with pytest.raises(ConformanceError, match="must be of float32"):
        assert_conforms(lambda x, k: (x * k).double(), lambda x, k: x * k, inputs={"x": x, "k": keep})


def test_nothing_large_is_copied() -> None:
    """A check needs a small part of the memory of its arrays, which are 16 times as large here as what is judged."""
    x = np.broadcast_to(LONG[:1], (1, 1500)).repeat(8000, 0)
    y = np.maximum(x, 0)
    tracemalloc.start()
    assert_conforms(y, sg.relu, inputs=x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * x.nbytes
