"""What each layer costs a bound at a point: the parts sum to the whole, and are what they are by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import specgrad as sg

pytest.importorskip("torch")

from specgrad.bounds import Box, crown
from specgrad.bounds.linear.intermediate.loss_by_layer import losses
from specgrad.bounds.linear.intermediate.tighten import objective_low
from specgrad.bounds.linear.relaxation.bound_layers import tensor
from specgrad.rounding import Arithmetic, radius

U = 2.0**-24


def taken_apart(graph: Any, x: np.ndarray, cell: int, sign: float, arithmetic: Arithmetic) -> tuple[dict, float]:
    """The losses of sign * output cell, and the loss of their lower bound."""
    walked: list[Any] = []
    bounds = crown(graph, Box(x, x), arithmetic=arithmetic, on_forward=walked.append)
    exact = {n: b.value for n, b in radius(graph, x, arithmetic=Arithmetic("real"), keep=True).nodes.items()}
    row = np.zeros(bounds.outputs.low.size)
    row[cell] = sign
    value = sign * exact[graph.nodes[graph.output_positions[0]].name].flat[cell]
    whole = value - float(objective_low(walked[0], tensor(row[None, None]))[0, 0])  # the way back, met with no interval
    return losses(walked[0], graph.output_positions[0], row, exact), whole


@pytest.mark.parametrize("execution", ["node", "fused"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("seed", range(3))
def test_losses_sum_to_the_whole(execution: str, sign: float, seed: int) -> None:
    """Convolutions with a residual sum, a maximum, relus and a smooth function, at points where relus may flip."""
    rng = np.random.default_rng(seed)
    first, second = (rng.normal(0, 0.5, (4, 4, 3, 3)).astype(np.float32) for _ in range(2))
    last = rng.normal(0, 0.3, (3, 4 * 2 * 2)).astype(np.float32)

    def net(x: Any) -> Any:
        y = sg.relu(sg.conv(first, None, x, padding=1))
        y = sg.relu(y + sg.conv(second, None, y, padding=1))
        y = sg.max_pool(sg.tanh(y * 0.25 + 0.5), (3, 3))
        return sg.linear(last, None, sg.reshape(y, (-1,)))

    graph = sg.trace(net, (1, 4, 6, 6))
    x = rng.normal(size=(1, 4, 6, 6)).astype(np.float32)
    parts, whole = taken_apart(graph, x, 1, sign, Arithmetic(execution=execution))
    assert sum(parts.values()) == pytest.approx(whole, rel=1e-6)
    assert min(parts.values()) > -1e-9 * whole


def test_two_matrix_products_by_hand() -> None:
    """By node: n*u*|W1||x| through |W2|, and n*u*|W2||W1 x| at the second."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(6, 5)).astype(np.float32), rng.normal(size=(2, 6)).astype(np.float32)
    graph = sg.trace(lambda x: sg.linear(second, None, sg.linear(first, None, x)), (5,))
    x = rng.normal(size=5).astype(np.float32)
    parts, _ = taken_apart(graph, x, 0, 1.0, Arithmetic(execution="node", flush=False))
    w1, w2, v = np.abs(first).astype(float), np.abs(second).astype(float), np.abs(x).astype(float)
    inner = np.abs(first.astype(float) @ x.astype(float))
    expected = {"linear": 5 * U * (w2 @ (w1 @ v))[0], "linear_2": 6 * U * (w2 @ inner)[0]}
    for name, amount in expected.items():
        assert parts[name] == pytest.approx(amount, rel=1e-3), name
