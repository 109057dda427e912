"""A network that jumps has no Lipschitz constant, whatever its derivative says; one that only bends has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.bounds import Box, gradient_box, lipschitz
from specgrad.interop import from_torch
from specgrad.ops.elementwise import equal, greater, greater_equal

Call = Callable[[Any], Any]
BOX = Box([-1.0, -1.0], [1.0, 1.0])
STEPS, SWAP = np.array([0.25, -2.0]), np.array([[0.0, 1.0], [1.0, 0.0]])


def pooled(x: Any, cells: int) -> tuple[Any, Any]:
    return sg.max_pool(sg.reshape(x, (1, 2)), (cells,), return_indices=True)


JUMPING: dict[str, Call] = {
    "sign": lambda x: sg.sum(sg.sign(x)),
    "greater": lambda x: sg.sum(greater(x, 0.5) * 3),
    "equal": lambda x: sg.sum(equal(x, 0.5)),
    "select": lambda x: sg.sum(sg.select(greater(x, 0), x + 1, x)),
    "select by a number": lambda x: sg.sum(sg.select(sg.relu(x), 1.0, 0.0)),
    "thresholded relu": lambda x: sg.sum(sg.select(greater(x, 0.5), x, 0)),
    "select by a neighbour": lambda x: sg.sum(sg.select(greater(sg.linear(SWAP, None, x), 0), x, 0)),
    "position": lambda x: sg.sum(sg.max_unpool(*pooled(x, 2), (2,)) * STEPS),
    "behind a layer": lambda x: sg.sum(sg.relu(sg.linear(np.ones((1, 2)), None, sg.sign(x - 0.5)))),
    "a mask that is read twice": lambda x: sg.sum(sg.select(greater(x, 0), x, 0) + greater(x, 0)),
}


def leaky(x: Any) -> Any:
    return sg.select(greater(0, x), x * STEPS, x)


CONTINUOUS: dict[str, tuple[Call, float]] = {  # the largest slope of a cell, by hand
    "relu": (sg.relu, 1),
    "relu by a select": (lambda x: sg.select(greater_equal(0, x), 0, x), 1),
    "prelu": (leaky, 2),
    "elu": (lambda x: sg.select(greater(x, 0), x, (sg.exp(x) - 1) * 2), 2),
    "two switches": (
        lambda x: sg.select(greater(x, -0.5) * greater(0.25, x), x * 3, sg.clamp(x, -0.5, 0.25) * 3),
        3,
    ),
    "stop_gradient": (lambda x: sg.stop_gradient(x * 3), 3),
    "a position that is not read": (lambda x: sg.reshape(pooled(x, 1)[0], (2,)), 1),
    "a switch outside the box": (lambda x: sg.select(greater(x, 4), x + 1, x), 1),
    "a sign that is known": (lambda x: sg.sign(x + 2) * x, 1),
}


@pytest.mark.parametrize("method", ["crown", "ibp"])
@pytest.mark.parametrize("name", JUMPING)
def test_a_jump_has_no_constant(name: str, method: str) -> None:
    graph = sg.trace(JUMPING[name], (2,))
    assert np.isinf(lipschitz(graph, BOX, method=method)).all()
    (found,) = gradient_box(graph, BOX, cotangent=1.0, method=method)
    assert np.isinf(found.low).all()
    assert np.isinf(found.high).all()


@pytest.mark.parametrize("method", ["crown", "ibp"])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_what_bends_has_one(name: str, method: str) -> None:
    """At least the steepest slope, and not far from it."""
    f, steepest = CONTINUOUS[name]
    found = lipschitz(sg.trace(f, (2,)), BOX, method=method)
    assert found.max() >= steepest
    assert found.max() <= 4 * steepest


@pytest.mark.parametrize(
    "module", [torch.nn.LeakyReLU(0.1), torch.nn.ELU(), torch.nn.Hardtanh(-0.5, 0.5), torch.nn.ReLU6()]
)
def test_imported_activations_do_not_jump(module: torch.nn.Module) -> None:
    graph = from_torch(module.eval(), torch.zeros(2))
    assert np.isfinite(lipschitz(graph, BOX)).all()


def test_a_constant_that_is_given_as_an_array() -> None:
    graph = sg.trace(lambda x, w: sg.select(greater(x, 0), x, x * w), (2,), (2,))
    found = lipschitz(graph, BOX, np.array([0.5, 4.0]))
    assert (found >= [1, 4]).all()
    assert (found <= [2, 6]).all()


@pytest.mark.parametrize(("height", "jumping"), [(0.0, False), (0.5, True)])
def test_a_branch_that_is_an_argument(height: float, jumping: bool) -> None:
    graph = sg.trace(lambda x, w: sg.select(greater(x, 0), x, w), (2,), (2,))
    assert np.isinf(lipschitz(graph, BOX, np.array([0.0, height]))).all() == jumping


def test_one_number_that_decides_for_two_cells() -> None:
    graph = sg.trace(lambda x: sg.select(greater(x, 0), sg.broadcast(x, (2,)), np.array([0.0, 1.0])), ())
    assert np.isinf(lipschitz(graph, Box(-1.0, 1.0))).all()


def test_several_boxes_are_judged_one_by_one() -> None:
    graph = sg.trace(lambda x: sg.sum(sg.sign(x)), (1,))
    found = lipschitz(graph, Box([[-1.0], [1.0]], [[1.0], [2.0]]))
    assert found.tolist() == [np.inf, 0]
    (box,) = gradient_box(graph, Box([[-1.0], [1.0]], [[1.0], [2.0]]), cotangent=1.0)
    assert box.high.tolist() == [[np.inf], [0.0]]
