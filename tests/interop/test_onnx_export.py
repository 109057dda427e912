"""to_onnx: valid models that mean the same, read back and run by ONNX Runtime."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import specgrad as sg
from models import SMALL
from onnx_cases import runtime
from slices import counts
from specgrad.interop import from_onnx, from_torch, to_onnx
from specgrad.interop.onnx.write.writer import EMITTERS
from specgrad.rounding import radius

UNWRITTEN = {"resize_spread", "last_writer", "median_index", "smooth_pull", "smooth_push"}
UNWRITTEN.add("cumprod")  # ONNX has CumProd from opset 26 on
UNREAD = {"winner", "take", "put", "scatter"}  # positions: written for derivatives, not read back


def written(graph: sg.Graph, **given: Any) -> onnx.ModelProto:
    model = to_onnx(graph, **given)
    onnx.checker.check_model(model, full_check=True)
    return model


def exactly(graph: sg.Graph) -> sg.Graph:
    """The same graph with its float constants as exact numbers."""
    constants = {p: sg.exact(a) if a.dtype.kind == "f" else a for p, a in graph.constants.items()}
    return replace(graph, constants=constants)


def case_of(op: sg.Op, rng: random.Random) -> tuple[sg.Graph, list[Any]]:
    """A registered operator on one of its own random cases; ONNX Runtime has no pools of rank 4."""
    while True:
        args, params = op.cases(rng)
        if getattr(params.get("window"), "rank", 0) <= 3:
            break
    arrays = [np.asarray(a) for a in args]
    examples = [sg.Index(a.shape) if a.dtype.kind == "i" else a.shape for a in arrays]
    return sg.trace(lambda *xs: sg.apply(op, *xs, **params), *examples), arrays


def narrow(a: np.ndarray) -> np.ndarray:
    return a if a.dtype.kind == "i" else a.astype(np.float32)


@pytest.mark.parametrize("runs", counts(8, 100))
@pytest.mark.parametrize("name", sorted(sg.REGISTRY))
def test_every_operator(name: str, runs: int) -> None:
    """Read back: equal over exact numbers. Run by ONNX Runtime: within the proven radius of the exact value."""
    op, rng, count = sg.REGISTRY[name], random.Random(name), 0
    for _ in range(runs):
        graph, arrays = case_of(op, rng)
        try:
            model = written(graph)
        except sg.UnsupportedError:
            continue
        count += 1
        if name not in UNREAD:
            back = from_onnx(model)
            if op.exact:
                floats = [a if a.dtype.kind == "i" else a.astype(float) for a in arrays]
                assert (back(*floats) == graph(*floats)).all()
            elif not op.transcendental and name != "power":
                assert (exactly(back)(*arrays) == graph(*arrays)).all()
        inputs = [narrow(a) for a in arrays]
        check_runtime(graph, graph if name in UNREAD else back, model, inputs)
    assert (count == 0) == (name in UNWRITTEN)
    assert count in (0, runs) or name in ("winner", "avg_spread", "resize", "top", "top_index", "cast")


def check_runtime(graph: sg.Graph, executed: sg.Graph, model: onnx.ModelProto, inputs: list[np.ndarray]) -> None:
    """Within the radius of the steps that the model takes."""
    (found,) = runtime(model, inputs)
    ball = radius(executed, *inputs).outputs
    wanted = np.asarray(graph(*(i.astype(np.float64) if i.dtype.kind == "f" else i for i in inputs)))
    assert found.shape == wanted.shape
    finite = np.isfinite(wanted)
    slack = 1e-12 * np.abs(wanted, where=finite, out=np.zeros(wanted.shape))  # of the float64 reference itself
    assert (np.abs(found - wanted)[finite] <= (ball.radius + slack)[finite]).all()
    assert (found[~finite] == wanted[~finite]).all() or np.isnan(wanted[~finite]).any()


def test_the_table_is_the_registry() -> None:
    assert EMITTERS.keys() | UNWRITTEN == set(sg.REGISTRY)


# --- what ONNX has no single word for ------------------------------------------------------------------------------


X = np.random.default_rng(1).integers(-50, 50, (2, 3, 7, 10)).astype(np.float32)
POOLS: dict[str, Callable[[Any], Any]] = {
    "adaptive_avg": lambda x: sg.adaptive_avg_pool(x, (3, 4)),
    "adaptive_max": lambda x: sg.adaptive_max_pool(x, (3, 4)),
    "one_axis_divides": lambda x: sg.adaptive_avg_pool(x, (3, 5)),
    "more_cells_than_input": lambda x: sg.adaptive_avg_pool(x, (9, 3)),
    "divisor": lambda x: sg.avg_pool(x, (2, 3), divisor=5, padding=1),
    "inside": lambda x: sg.avg_pool(x, (2, 3), padding=(1, 2), stride=2, count_include_pad=False),
    "ceil_counts_the_padded_extent": lambda x: sg.avg_pool(x, (3, 3), stride=2, padding=1, ceil=True),
    "ceil_inside": lambda x: sg.avg_pool(x, (3, 3), stride=3, ceil=True, count_include_pad=False),
    "ceil_max": lambda x: sg.max_pool(x, (3, 3), stride=3, ceil=True),
    "wide_padding": lambda x: sg.max_pool(x, (2, 2), padding=3, stride=1),
    "wide_average": lambda x: sg.avg_pool(x, (2, 2), padding=3, stride=1, count_include_pad=False),
    "lp": lambda x: sg.lp_pool(sg.abs(x), (2, 2), p=1, ceil=True, stride=3),
    "dilated": lambda x: sg.max_pool(x, (2, 3), dilation=2, padding=(0, 1)),
    "global": lambda x: sg.global_avg_pool(x, rank=2),
    "unbatched": lambda x: sg.max_pool(sg.reshape(x, (6, 70)), (3,), stride=2),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools(name: str) -> None:
    """Exact over integers where nothing is divided; the division itself is correctly rounded."""
    graph = sg.trace(POOLS[name], X.shape)
    model = written(graph)
    wanted = graph(X.astype(int))
    if name == "wide_padding":  # cells of -inf are no rationals
        assert (from_onnx(model)(X) == wanted).all()
    else:
        assert (exactly(from_onnx(model))(X.astype(int)) == wanted).all()
    (found,) = runtime(model, [X])
    assert np.abs(found - wanted.astype(float)).max() <= 3 * 2.0**-24 * np.abs(wanted.astype(float)).max()


@pytest.mark.parametrize(("p", "beta"), [(2, 1.0), (3, -4.0)])
def test_norms_and_smooth_maxima(p: int, beta: float) -> None:
    """Far beyond what exp can hold: each window is shifted by its own maximum."""
    for fn in (
        lambda x: sg.lp_pool(sg.abs(x), (2, 2), p=p, padding=1),
        lambda x: sg.smooth_max_pool(x, (2, 3), beta=beta, padding=1, stride=2),
        lambda x: sg.smooth_max_pool(x, (2, 2), beta=beta, padding=2, stride=2, padded="ignore"),
    ):
        graph = sg.trace(fn, X.shape)
        model = written(graph)
        back = from_onnx(model)
        wanted = graph(X.astype(float) * 20)
        np.testing.assert_allclose(back(X.astype(float) * 20), wanted, rtol=1e-6)
        np.testing.assert_allclose(runtime(model, [X * 20])[0], wanted, rtol=2e-6)


def test_cells_are_not_mixed_with_their_neighbours() -> None:
    """A matrix product would spread NaN and inf over every cell (0 * inf); slices do not."""
    x = np.array([[[1.0, np.inf, 3.0, 4.0, np.nan]]], np.float32)
    graph = sg.trace(lambda x: sg.adaptive_avg_pool(x, (3,)), x.shape)
    (found,) = runtime(written(graph), [x])
    assert np.array_equal(found, [[[np.inf, np.inf, np.nan]]], equal_nan=True)
    assert np.array_equal(from_onnx(written(graph))(x), found, equal_nan=True)


# --- whole networks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n == "mobilenetv2" else []) for n in SMALL]
)
def test_networks(name: str) -> None:
    module, x = SMALL[name]()
    graph = from_torch(module, x)
    model = written(graph)
    back = from_onnx(model)
    assert (back(x.numpy()) == graph(x.numpy())).all()
    assert {n.name for n in model.graph.node} >= {n.name for n in graph.nodes if n.op.name == "conv"}
    assert back.trainable >= graph.trainable
    ball = radius(back, x.numpy(), backend="torch").outputs
    assert (np.abs(runtime(model, [x.numpy()])[0] - ball.value) <= ball.radius).all()


def test_an_exported_divisor_survives() -> None:
    """AvgPool2d(2, divisor_override=3): torch.onnx drops the divisor, we do not."""
    module, x = nn.AvgPool2d(2, divisor_override=3), torch.ones(1, 1, 4, 4)
    (found,) = runtime(written(from_torch(module, x)), [x.numpy()])
    assert (found == np.float32(4) / np.float32(3)).all()


def test_a_derivative_graph() -> None:
    """The gradient of a loss: conv_weight, transposed convolutions, winners, put."""

    def loss(w: Any, x: Any) -> Any:
        y = sg.max_pool(sg.relu(sg.conv(w, None, x, padding=1)), (2, 2))
        return sg.sum(sg.avg_pool(y * y, (2, 2), stride=1))

    gradient = sg.grad(sg.trace(loss, (2, 1, 3, 3), (2, 1, 6, 6)), "w")
    rng = np.random.default_rng(0)
    w, x = rng.integers(-3, 4, (2, 1, 3, 3)), rng.integers(-3, 4, (2, 1, 6, 6))
    wanted = gradient(w, x).astype(float)
    assert np.abs(wanted).max() > 100
    model = written(gradient)
    (found,) = runtime(model, [w.astype(np.float32), x.astype(np.float32)])
    assert (found == wanted).all(), "quarters of small integers are exact"


def test_structured_inputs_and_repeated_outputs() -> None:
    def net(p: Any, x: Any) -> Any:
        y = sg.linear(p["w"], p["b"], x)
        return y, x, y

    graph = sg.trace(net, {"w": (2, 3), "b": (2,)}, (1, 3))
    model = written(graph)
    assert [i.name for i in model.graph.input] == ["p.w", "p.b", "x"]
    w, b, x = (np.arange(n, dtype=np.float32) for n in (6, 2, 3))
    first, second, third = runtime(model, [w.reshape(2, 3), b, x.reshape(1, 3)])
    assert (first == third).all()
    assert (second == x).all()


def test_double_precision_keeps_every_digit() -> None:
    w = np.array([[[1 / 3, 1 / 7]]])
    graph = sg.trace(lambda x: sg.leaky_relu(sg.conv(w, None, x), 0.1), (1, 1, 4))
    model = written(graph, dtype=np.float64)
    x = np.array([[[1.0, -2.0, 3.0, -4.0]]])
    assert (from_onnx(model)(x) == graph(x)).all()
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.DOUBLE


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: to_onnx(sg.trace(sg.relu, (2,)), dtype=int),
            "to_onnx [P5]: dtype must be float16, float32 or float64",
        ),
        (
            lambda: to_onnx(sg.trace(sg.relu, (2,)), dtype=None),  # which NumPy takes for float64
            "to_onnx [P5]: dtype must be float16, float32 or float64; got None",
        ),
        (lambda: to_onnx(sg.trace(lambda x: x * np.array([0.1]), (1,))), "to_onnx [P5]: constant constant has numbers"),
        (
            lambda: to_onnx(sg.trace(lambda x, i: sg.max_unpool(x, i, (2,)), (2,), sg.Index((2,)))),
            "to_onnx: layer max_unpool.last_writer: last_writer has no counterpart in ONNX that we write",
        ),
        (
            lambda: to_onnx(sg.vjp(sg.trace(lambda x: sg.smooth_max_pool(x, (2,), beta=1), (4,)))),
            "to_onnx: layer vjp(smooth_max_pool): smooth_push has no counterpart in ONNX that we write",
        ),
    ],
)
def test_refused_by_name(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(sg.SpecgradError) as caught:
        call()
    assert str(caught.value).startswith(message)
