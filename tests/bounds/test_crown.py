"""Backward bounds: exact where relaxations are, narrower than intervals, sound for what is computed."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from random import Random

import numpy as np
import pytest
import torch

import specgrad as sg
from hunt import operator_case
from specgrad.bounds import Box, crown, gradient_box, ibp, lipschitz
from specgrad.bounds.box import balls_of
from specgrad.bounds.interval_bounds import box_context
from specgrad.bounds.linear.intermediate import tighten as walk
from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass
from specgrad.bounds.linear.relaxation.bound_layers import BoundOpaque
from specgrad.engines.torch import ENGINE
from specgrad.graph.ir.node import bind_inputs
from specgrad.op import REGISTRY
from specgrad.ops.max_pool import MAX_POOL


def network(p, x):
    x = sg.max_pool(sg.relu(sg.conv(p["w"], p["b"], x, padding=1)), (2, 2))
    x = sg.avg_pool(sg.relu(sg.conv(p["v"], None, x, padding=1)), (2, 2))
    return sg.linear(p["f"], p["g"], sg.flatten(x, 1))


SHAPES = {"w": (3, 1, 3, 3), "b": (3,), "v": (4, 3, 3, 3), "f": (5, 16), "g": (5,)}


def drawn(seed: int):
    draw = np.random.default_rng(seed).normal
    return {k: (draw(size=s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for k, s in SHAPES.items()}


def samples(box: Box, count: int, seed: int = 0):
    """float32 points of the box, corners among them."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        share = rng.random(box.shape) if k % 2 else rng.integers(0, 2, box.shape)
        x = (box.low + share * (box.high - box.low)).astype(np.float32)
        yield np.clip(x, box.low.astype(np.float32), box.high.astype(np.float32))


def test_two_affine_layers_are_bounded_exactly() -> None:
    """Intervals forget that x meets itself; the backward pass does not: (x + y) - x = y."""
    graph = sg.trace(
        lambda x: sg.linear(np.array([[1.0, -1.0]]), None, sg.linear(np.array([[1.0, 1], [1, 0]]), None, x)), (2,)
    )
    box = Box([0.0, 0.0], [1.0, 2.0])
    assert ibp(graph, box).outputs.width > 3.9
    found = crown(graph, box, deployed=False).outputs
    np.testing.assert_allclose((found.low, found.high), ([0], [2]), atol=1e-12)


def test_relu_network_by_hand() -> None:
    """relu(x) - relu(-x) = x on [-1, 1]: relaxed bounds stay within the hand-computed [-1.5, 1.5]."""
    graph = sg.trace(lambda x: sg.relu(x) - sg.relu(-x), (1,))
    found = crown(graph, Box([-1.0], [1.0]), deployed=False).outputs
    assert -1.5 - 1e-9 <= found.low <= -1
    assert 1 <= found.high <= 1.5 + 1e-9


def test_network_is_sound_and_narrower_than_intervals() -> None:
    p = drawn(0)
    graph = sg.trace(network, SHAPES, (1, 1, 8, 8))
    module = sg.compile(graph, "torch")
    tensors = {k: torch.from_numpy(v) for k, v in p.items()}
    box = Box.around(np.random.default_rng(1).random((1, 1, 8, 8)).astype(np.float32), 0.05)
    deployed, real, wide = crown(graph, p, box), crown(graph, p, box, deployed=False), ibp(graph, p, box)
    assert (deployed.outputs.width < 0.5 * wide.outputs.width).all()
    assert (deployed.outputs.width >= real.outputs.width).all()
    for x in samples(box, 200):
        assert deployed.outputs.contains(module(tensors, torch.from_numpy(x)).numpy()).all()


def test_objective_rows() -> None:
    p = drawn(0)
    graph = sg.trace(network, SHAPES, (1, 1, 8, 8))
    box = Box.around(np.full((1, 1, 8, 8), 0.5), 0.05)
    rows = np.array([[1.0, -1, 0, 0, 0], [0, 0, 2, 0, 0]])
    found, outputs = crown(graph, p, box, objective=rows), crown(graph, p, box).outputs
    assert found.objective.low[0] >= outputs.low[0, 0] - outputs.high[0, 1]
    np.testing.assert_allclose(found.low[1], 2 * outputs.low[0, 2], rtol=1e-9)
    with pytest.raises(sg.ShapeError, match=r"objective must be rows \(S, 5\)"):
        crown(graph, p, box, objective=np.ones((1, 4)))


def test_steps_narrow_and_stay_sound() -> None:
    p = drawn(0)
    graph = sg.trace(network, SHAPES, (1, 1, 8, 8))
    box = Box.around(np.full((1, 1, 8, 8), 0.5), 0.2)
    plain, better = crown(graph, p, box).outputs, crown(graph, p, box, alpha_steps=20).outputs
    assert better.width.sum() < 0.99 * plain.width.sum()
    assert (better.low >= plain.low).all()
    for x in samples(box, 100):
        assert better.contains(graph(p, x)).all()


def test_splits_partition_the_executions() -> None:
    graph = sg.trace(lambda x: sg.relu(x) - sg.relu(-x), (1,))
    box = Box([-1.0], [1.0])
    above = crown(graph, box, splits={"relu": np.array([1])}).outputs
    below = crown(graph, box, splits={"relu": np.array([-1])}).outputs
    assert above.low >= -1e-6
    assert below.high <= 1e-6
    with pytest.raises(sg.ParameterError, match="splits name 'nothing'"):
        crown(graph, box, splits={"nothing": np.array([1])})


@pytest.mark.parametrize(
    "f", [sg.sigmoid, sg.tanh, sg.silu, sg.gelu, sg.relu6, sg.hardswish, sg.softplus, sg.abs, sg.exp, sg.sin, sg.cos]
)
def test_functions_of_one_cell(f) -> None:
    """On a grid, in float64, against the function itself; the widths are those of the function's range, or nearly."""
    graph = sg.trace(lambda x: f(x), (6,))
    low = np.array([-5.0, -3.0, -1.0, -0.1, 0.5, 2.0])
    high = np.array([-4.0, 3.0, 2.0, 0.1, 0.75, 2.0])
    found = crown(graph, Box(low, high), deployed=False).outputs
    values = np.stack([graph(low + s * (high - low)) for s in np.linspace(0, 1, 301)])
    assert (found.low <= values.min(0)).all()
    assert (found.high >= values.max(0)).all()
    assert (found.width <= (values.max(0) - values.min(0)) * 1.001 + 1e-6).all()


def wide_network(p, x):
    """Padding, dilation, groups, overlap, a residual and averages with every divisor, all below a relu."""
    x = sg.conv(p["w"], p["b"], x, padding=((2, 0), (1, 1)), dilation=(2, 1))
    x = sg.max_pool(sg.relu(x), (3, 2), stride=(2, 1), padding=1, ceil=True)
    y = sg.relu(sg.conv(p["v"], None, x, padding=1, groups=2))
    x = sg.batch_norm(x + y, *(p[k] for k in ("mean", "var", "scale", "shift")))
    x = sg.avg_pool(sg.leaky_relu(x, 0.1), (2, 2), stride=1, padding=1, count_include_pad=False)
    x = sg.relu(sg.conv(p["u"], None, sg.avg_pool(x, (2, 2), stride=1, divisor=3)))
    return sg.relu(sg.conv(p["u"], None, x, stride=2))


def test_steps_with_relus_inside_maxima() -> None:
    """max_pool has taken over the only relu, so there are no slopes to move: the bounds are those without steps."""
    w = np.random.default_rng(0).normal(size=(3, 1, 2, 2)).astype(np.float32)
    graph = sg.trace(lambda x: sg.max_pool(sg.relu(sg.conv(w, None, x)), (2, 2)), (1, 1, 5, 5))
    box = Box.around(np.zeros((1, 1, 5, 5)), 0.5)
    plain, moved = crown(graph, box), crown(graph, box, alpha_steps=3)
    np.testing.assert_array_equal((plain.low, plain.high), (moved.low, moved.high))


WIDE = {"w": (4, 2, 3, 3), "b": (4,), "v": (4, 2, 3, 3), "u": (4, 4, 2, 2)} | dict.fromkeys(
    ("mean", "var", "scale", "shift"), (4,)
)


def test_patches_and_rows_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(3).normal
    p = {k: (draw(size=s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for k, s in WIDE.items()}
    p["var"] = np.abs(p["var"]) + 1
    graph = sg.trace(wide_network, WIDE, (2, 2, 11, 9))
    box = Box.around(draw(size=(2, 2, 11, 9)), 0.05)
    monkeypatch.setattr(walk, "open_cells", lambda _, low, high: high > low)  # narrow every cell
    by_patches = crown(graph, p, box, deployed=False)
    monkeypatch.setattr(walk, "narrow_by_patches", lambda *_: False)
    by_rows = crown(graph, p, box, deployed=False)
    for name, found in by_patches.layers.items():
        np.testing.assert_allclose(found.low, by_rows.layers[name].low, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(found.high, by_rows.layers[name].high, atol=1e-9, err_msg=name)


BY_INTERVALS = {"equal", "greater", "greater_equal", "less", "sign", "select", "div", "smooth_pull", "smooth_push"}
BY_INTERVALS |= {"quantize", "floor", "ceil", "round", "fmod", "top", "median_pool", "cumprod"}


@pytest.mark.parametrize("name", sorted(REGISTRY.keys() - BY_INTERVALS))
def test_every_operator_has_linear_bounds(name: str) -> None:
    """Whatever of its arguments varies, alone; those in BY_INTERVALS are documented."""
    for seed in range(0, 40, 2):
        graph, boxes = operator_case(REGISTRY[name], seed)
        if boxes:
            rules = box_context(graph, False, None, "torch")
            balls = balls_of(tuple(boxes), rules.arithmetic)
            forward = ForwardPass(graph, rules, bind_inputs(graph, balls))
            walk.walk(forward, {})
            output = graph.output_positions[0]  # where nothing varies, it is as good as an input
            assert forward.balls[output].is_exact or not isinstance(forward.layers.get(output), BoundOpaque)


def test_a_smallest_cell_has_no_lines_of_a_largest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`largest` may be said of a minimum over windows: crown then knows its interval, and no line of max_pool."""
    window = MAX_POOL.cases(Random(0))[1]["window"]
    smallest = replace(MAX_POOL, name="min_pool", spec=lambda x, *, window: -MAX_POOL.spec(-x, window=window))
    monkeypatch.setitem(REGISTRY, "min_pool", smallest)
    monkeypatch.setitem(ENGINE.table, "min_pool", lambda x, *, window: lambda t: -sg.apply(MAX_POOL, -t, window=window))
    size = window.size
    graph = sg.trace(lambda x: sg.apply(smallest, x * 2.0, window=window), size)
    x = np.random.default_rng(0).normal(size=size)
    bounds = crown(graph, Box(x - 0.25, x + 0.25), deployed=False).outputs
    for shift in (-0.25, 0.0, 0.25):
        y = graph(x + shift)
        assert (bounds.low <= y + 1e-12).all()
        assert (bounds.high >= y - 1e-12).all()


def test_bounds_take_inputs_alike() -> None:
    """One positional argument per argument of the graph; what else there is has a name."""
    for call in (ibp, crown, gradient_box, lipschitz):
        first, second, *others = inspect.signature(call).parameters.values()
        assert (first.name, second.name, second.kind) == ("graph", "boxes", inspect.Parameter.VAR_POSITIONAL)
        assert {p.kind for p in others} == {inspect.Parameter.KEYWORD_ONLY}
    graph, ends = sg.trace(lambda x, y: sg.sum(x * y), (2,), (2,)), (np.ones(2), Box([0.0, 1.0], [1.0, 2.0]))
    for bound in (ibp, crown, lipschitz, partial(gradient_box, cotangent=1.0)):
        assert bound(graph, *ends) is not None
        with pytest.raises(sg.ShapeError, match="takes 2 arguments"):
            bound(graph, ends)
