"""gather, scatter, the borders of paddings, roll: against NumPy, PyTorch and ONNX Runtime; what is refused, by name."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import specgrad as sg
from specgrad import functional as F
from specgrad.bounds import Box, crown, ibp
from specgrad.interop import from_onnx, from_torch, to_onnx
from specgrad.rounding import Arithmetic, local_radius, radius
from specgrad.window import border

X = np.arange(24.0).reshape(2, 3, 4)


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_is_numpys_take(axis: int, shape: tuple[int, ...]) -> None:
    i = np.random.default_rng(0).integers(-2, 2, shape)
    wanted = np.take(X, i, axis=axis)
    for x in (X, torch.from_numpy(X)):
        index = i if isinstance(x, np.ndarray) else torch.from_numpy(i)
        assert np.array_equal(sg.gather(x, index, axis=axis), wanted)
    assert np.array_equal(sg.gather(sg.exact(X), i, axis=axis), wanted)


def test_of_one_axis_to_a_number() -> None:
    graph = sg.trace(lambda x, i: sg.gather(x, i), (3,), sg.Index(()))
    gradient = sg.grad(graph, 0)
    assert graph(np.array([1.0, 2.0, 3.0]), np.array(-1)) == 3.0
    assert gradient(np.array([1.0, 2.0, 3.0]), np.array(-1)).tolist() == [0, 0, 1]


def test_scatter_adds_what_meets() -> None:
    gy, i = sg.exact(np.arange(6).reshape(2, 3)), np.array([1, 1, -3])
    assert sg.scatter(gy, i, axis=1, size=3).tolist() == [[2, 1, 0], [5, 7, 0]]
    assert sg.scatter(gy[:, :0], i[:0], axis=1, size=2).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: sg.gather(X, np.array([2]), axis=0), "gather: indices must lie in -2..1; got 2..2"),
        (lambda: sg.gather(X, np.array([-3, 0]), axis=0), "gather: indices must lie in -2..1; got -3..0"),
        (lambda: sg.gather(X, np.array([2**62]), axis=2), f"gather: indices must lie in -4..3; got {2**62}..{2**62}"),
        (lambda: sg.gather(X, np.array([0.0])), "gather: indices must be integers; got dtype float64"),
        (lambda: sg.gather(np.zeros((0, 2)), np.array([0])), "gather: indices must lie in -0..-1; got 0..0"),
        (lambda: sg.gather(np.array(1.0), np.array([0])), "gather: axis 0 does not exist; the value has 0 axes"),
        (lambda: sg.scatter(X, np.array([0, 5]), size=5), "scatter: indices must lie in -5..4; got 0..5"),
        (lambda: sg.scatter(X, np.array([0]), size=5), "scatter: values of shape (2, 3, 4) do not have the indices'"),
        (lambda: sg.take_along(X, -np.ones((2, 1, 4), int), axis=1), "take: indices must lie in 0..2; got -1..-1"),
        (lambda: sg.pad(X, [(1, 1)], mode="mirror"), "pad [P5]: mode must be constant, reflect, edge, wrap; got"),
        (lambda: sg.pad(X, [(1, 1)], mode="wrap", value=2), "pad [P5]: value=2 has no meaning with mode='wrap'"),
        (lambda: sg.pad(X, [(-1, 1)], mode="edge"), "pad [W1]: mode edge needs widths >= 0 and a cell; got (-1, 1)"),
        (lambda: sg.pad(X[:, :, :0], [(1, 1)], mode="edge"), "pad [W1]: mode edge needs widths >= 0 and a cell"),
        (lambda: F.pad(X, [1, 1], mode="edge"), "pad [P5]: mode must be one of constant, reflect, replicate, circular"),
    ],
)
def test_refused_by_name(call: Any, text: str) -> None:
    with pytest.raises(sg.SpecgradError) as caught:
        call()
    assert str(caught.value).startswith(text)


def test_torch_refuses_what_lies_outside() -> None:
    with pytest.raises((IndexError, RuntimeError)):
        sg.gather(torch.from_numpy(X), torch.tensor([2]), axis=0)


def test_jax_refuses_what_lies_outside_and_answers_nan_inside_jit() -> None:
    jax = pytest.importorskip("jax")
    x, i = jax.numpy.ones((3, 2)), jax.numpy.array([0, 3])
    with pytest.raises(sg.ShapeError, match="gather: indices must lie in"):
        sg.gather(x, i, axis=0)
    found = np.asarray(jax.jit(lambda x, i: sg.gather(x, i, axis=0))(x, i))
    assert found[0].tolist() == [1, 1]
    assert np.isnan(found[1]).all()


# --- paddings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_borders_are_numpys(mode: str, n: int) -> None:
    for lo in range(9):
        for hi in range(9):
            assert border(mode, n, lo, hi).tolist() == np.pad(np.arange(n), (lo, hi), mode=mode).tolist()


NAMES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", NAMES)
@pytest.mark.parametrize("engine", ["numpy", "torch", "jax"])
def test_padding_modes_on_every_engine(mode: str, engine: str) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 3))
    wanted = torch.nn.functional.pad(torch.from_numpy(x), (2, 1, 3, 0), mode=mode).numpy()
    given = {"numpy": lambda: x, "torch": lambda: torch.from_numpy(x), "jax": lambda: jax_array(x)}[engine]()
    assert np.array_equal(np.asarray(F.pad(given, (2, 1, 3, 0), mode=mode)), wanted.astype(np.asarray(given).dtype))


def jax_array(x: np.ndarray) -> Any:
    return pytest.importorskip("jax").numpy.asarray(x)


@pytest.mark.parametrize("mode", NAMES)
def test_convolutions_with_padding_modes_come_in(mode: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode=mode).double().eval()
    x = torch.randn(1, 2, 5, 4, dtype=torch.float64)
    graph = from_torch(net, x)
    np.testing.assert_allclose(graph(x.numpy()), net(x).detach().numpy(), rtol=1e-12)
    back = from_onnx(to_onnx(graph, dtype=np.float64))
    assert np.array_equal(back(x.numpy()), graph(x.numpy()))


# --- models -----------------------------------------------------------------------------------------------------------


class Tokens(torch.nn.Module):
    def __init__(self, padding: int | None) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(7, 3, padding_idx=padding)

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        return self.table(i).sum(1)


@pytest.mark.parametrize("padding", [None, 2])
def test_an_embedding_of_an_input(padding: int | None) -> None:
    """Values and the gradient of the table; the row padding_idx receives none."""
    net, i = Tokens(padding).double().eval(), torch.tensor([[0, 2, 2, 6], [5, 2, 1, 0]])
    torch.nn.init.normal_(net.table.weight)
    graph = from_torch(net, i)
    np.testing.assert_allclose(graph(i.numpy()), net(i).detach().numpy(), rtol=1e-14)
    net(i).square().sum().backward()

    def loss(w: Any) -> Any:
        rows = w if padding is None else sg.select(np.eye(7)[:, [padding]], sg.stop_gradient(w), w)
        y = sg.sum(sg.gather(rows, i.numpy()), 1)
        return sg.sum(y * y)

    found = sg.grad(sg.trace(loss, (7, 3)))(net.table.weight.detach().numpy())
    np.testing.assert_allclose(found, net.table.weight.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("dtype", [TensorProto.INT64, TensorProto.INT32])
def test_onnx_gather_at_an_input(dtype: int) -> None:
    import onnxruntime

    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Cast", ["i"], ["j"], to=TensorProto.INT64)] if dtype == TensorProto.INT32 else []
    nodes.append(helper.make_node("Gather", ["x", "j" if nodes else "i"], ["y"], axis=1))
    graph = helper.make_graph(nodes, "g", [info("x", 1, (2, 3, 4)), info("i", dtype, (2, 2))], [info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    index = np.array([[2, 0], [-1, 1]], helper.tensor_dtype_to_np_dtype(dtype))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": X.astype(np.float32), "i": index})
    assert np.array_equal(from_onnx(onnx.load_from_string(model.SerializeToString()))(X, index), wanted)


# --- rounding and bounds ----------------------------------------------------------------------------------------------


def test_an_open_position_may_be_any_cell() -> None:
    """Where the largest of two nearly equal cells stands is open; what is read there is either of two numbers."""

    def net(x: Any) -> Any:
        _, i = sg.max_pool(x * 1, (2,), return_indices=True)
        return sg.gather(np.array([5.0, -3.0]), sg.reshape(i, (1,)))

    graph = sg.trace(net, (1, 2))
    found = ibp(graph, Box([[0.0, 0.0]], [[1.0, 1.0]])).outputs
    assert found.low <= -3
    assert found.high >= 5
    decided = ibp(graph, Box([[2.0, 0.0]], [[3.0, 1.0]])).outputs
    assert (decided.low, decided.high) == (5, 5)


def test_linear_bounds_pass_through() -> None:
    """y0 - y0 read twice from one cell is 0, which intervals cannot see."""
    graph = sg.trace(lambda x: sg.sum(sg.gather(x, np.array([1, 1])) * np.array([1.0, -1.0])), (2,))
    box = Box([0.0, 0.0], [1.0, 1.0])
    assert abs(crown(graph, box, deployed=False).outputs.high) < 1e-9
    assert ibp(graph, box, deployed=False).outputs.high >= 1


def test_scattered_sums_are_counted_by_who_meets() -> None:
    gy = np.ones(1000, np.float32) * np.float32(0.1)
    once = local_radius("scatter", gy, np.arange(1000), axis=0, size=1000, arithmetic=Arithmetic())
    assert once.is_exact
    met = local_radius("scatter", gy, np.zeros(1000, int), axis=0, size=1000, arithmetic=Arithmetic())
    exact = sum((Fraction(v.item()) for v in gy), Fraction(0))
    assert abs(Fraction(np.add.reduce(gy[::-1]).item()) - exact) <= Fraction(met.radius[0].item())
    assert abs(Fraction(np.cumsum(gy)[-1].item()) - exact) <= Fraction(met.radius[0].item())
    assert not met.radius[1:].any()


def test_rolling() -> None:
    for shift in (-7, -1, 0, 2, 5):
        assert np.array_equal(sg.roll(X, shift, axis=1), np.roll(X, shift, 1))
    assert sg.roll(X[:, :0], 3, axis=1).shape == (2, 0, 4)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_numbers_beyond_all_others_are_gathered_too(backend: str) -> None:
    """Where partial results may be large they are followed cell by cell, and positions are no such results."""
    scale = np.float32([1e20, 1, 1])
    graph = sg.trace(lambda x: sg.gather(x * scale, np.array([1, 0]), axis=0), (3,))
    ball = radius(graph, np.array([1e10, 2.0, 3.0]), backend=backend).outputs
    exact = [2.0, 1e10 * float(np.float32(1e20))]
    assert ball.value.tolist() == exact
    assert (ball.radius <= 2.0**-23 * np.array(exact)).all()
