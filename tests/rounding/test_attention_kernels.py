"""Kernels that fuse attention stay in the radius of the composition, which is narrow: PyTorch's and ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.graph.graph import Graph
from specgrad.ops.attention import attention
from specgrad.rounding import Arithmetic, Ball, radius

F = np.float32
NODE = Arithmetic(execution="node")
L, S, E = 12, 20, 16
SEEN = np.tri(L, S, S - L, dtype=bool)
ADDED: dict[str, float] = {"-inf": -np.inf, "the lowest number": float(np.finfo(F).min), "-1e9": -1e9}


def draw(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(F) for shape in shapes]


def ball_of(graph: Graph, given: list[np.ndarray], arithmetic: Arithmetic = NODE) -> Ball:
    ball: Ball = radius(graph, *given, arithmetic=arithmetic).outputs
    return ball


def holds(graph: Graph, given: list[np.ndarray], y: Any) -> None:
    """By node and fused: narrow, and the kernel's result inside; of a fault of a few times that no cell is."""
    for arithmetic, most in ((NODE, 4e-5), (Arithmetic(), 2e-4)):
        ball = ball_of(graph, given, arithmetic)
        assert np.max(ball.radius) < most
        assert ball.contains(np.asarray(y)).all()
        assert not ball.contains(np.asarray(y) + 2 * most).any()


def masks() -> dict[str, Any]:
    added = {name: np.where(SEEN, 0, low).astype(F) for name, low in ADDED.items()}
    return {"none": None, "booleans": SEEN, **added}


# --- PyTorch ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(masks()))
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
def test_pytorch(name: str, heads: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    q, k, v = given = draw(0, (1, heads[0], L, E), (1, heads[1], S, E), (1, heads[1], S, E))
    mask = masks()[name]
    graph = sg.trace(lambda q, k, v: attention(q, k, v, mask, grouped=True), *(a.shape for a in given))
    of_torch = None if mask is None else torch.tensor(mask)
    tensors = (torch.tensor(a) for a in (q, k, v))
    y = torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=of_torch, enable_gqa=True)
    holds(graph, given, y)


def test_pytorch_in_blocks_of_keys() -> None:
    """More keys than one block of its flash kernel: exponentials are rescaled when a maximum rises."""
    torch = pytest.importorskip("torch")
    given = draw(1, (1, 2, 64, 16), (1, 2, 1536, 16), (1, 2, 1536, 16))
    given[1][:, :, -64:] *= 4
    graph = sg.trace(attention, *(a.shape for a in given))
    y = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, given))
    ball = ball_of(graph, given)
    assert np.max(ball.radius) < 1e-3
    assert ball.contains(np.asarray(y)).all()


def test_grouped_heads_are_read_from_pytorch() -> None:
    torch = pytest.importorskip("torch")
    from specgrad.check import audit
    from specgrad.interop import from_torch

    class Grouped(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    given = draw(2, (1, 4, L, E), (1, 2, L, E), (1, 2, L, E))
    tensors = [torch.tensor(a) for a in given]
    graph = from_torch(Grouped(), *tensors)
    exact = torch.nn.functional.scaled_dot_product_attention(
        *(t.double() for t in tensors), is_causal=True, enable_gqa=True
    )
    np.testing.assert_allclose(graph(*(a.astype(float) for a in given)), exact.numpy(), rtol=1e-12, atol=1e-13)
    assert audit(Grouped(), "torch", given).verdict == "rounding"


@pytest.mark.parametrize("shapes", [((4, L, E), (3, S, E)), ((L, E), (S, E))])
def test_heads_that_do_not_fit_are_refused(shapes: tuple[tuple[int, ...], ...]) -> None:
    q, k = draw(3, *shapes)
    with pytest.raises(sg.SpecgradError, match="no multiple"):
        attention(q, k, k, grouped=True)


# --- ONNX Runtime -----------------------------------------------------------------------------------------------------


def on_onnxruntime(op: str, given: dict[str, np.ndarray], **attributes: Any) -> tuple[Any, np.ndarray]:
    """The file of one node, and what ONNX Runtime computes."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    kinds = {k: onnx.helper.np_dtype_to_tensor_dtype(a.dtype) for k, a in given.items()}
    ends = [onnx.helper.make_tensor_value_info(k, kinds[k], a.shape) for k, a in given.items() if k]
    node = onnx.helper.make_node(op, list(given), ["y"], name="layer", **attributes)
    out = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = onnx.helper.make_graph([node], "g", ends, out)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return model, np.asarray(session.run(None, {k: a for k, a in given.items() if k})[0])


ATTENTIONS: dict[str, tuple[tuple[int, int], str, dict[str, Any]]] = {
    "plain": ((4, 4), "", {}),
    "causal": ((4, 4), "", {"is_causal": 1}),
    "scaled": ((4, 4), "", {"scale": 0.125}),
    "capped": ((4, 4), "", {"softcap": 2.0}),
    "grouped": ((4, 2), "", {}),
    "one head of keys": ((4, 1), "", {"is_causal": 1}),
    "booleans": ((4, 4), "booleans", {}),
    "-inf": ((4, 2), "-inf", {}),
    "the lowest number": ((4, 4), "the lowest number", {}),
}


@pytest.mark.parametrize("name", list(ATTENTIONS))
def test_onnxruntime(name: str) -> None:
    from specgrad.interop import from_onnx

    (heads, mask, attributes) = ATTENTIONS[name]
    q, k, v = draw(4, (1, heads[0], L, E), (1, heads[1], S, E), (1, heads[1], S, E))
    given = {"q": q, "k": k, "v": v} | ({"mask": masks()[mask]} if mask else {})
    model, y = on_onnxruntime("Attention", given, **attributes)
    graph = from_onnx(model)
    holds(graph, list(given.values()), y)


# --- compositions -----------------------------------------------------------------------------------------------------


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary positions by halves, from tables (L, E/2)."""
    a, b = x[..., : E // 2], x[..., E // 2 :]
    return sg.concat([a * cos - b * sin, b * cos + a * sin], axis=-1)


def tables() -> tuple[np.ndarray, np.ndarray]:
    angle = np.arange(L)[:, None] * 10000.0 ** (-np.arange(0, E, 2) / E)
    return np.cos(angle).astype(F), np.sin(angle).astype(F)


def test_rotary_tables() -> None:
    """4 u of its two products: from tables that are given."""
    (x,) = draw(5, (1, 4, L, E))
    cos, sin = tables()
    given = {"x": x, "cos": cos[None], "sin": sin[None]}
    _, y = on_onnxruntime("RotaryEmbedding", given)
    graph = sg.trace(rotated, x.shape, cos.shape, sin.shape)
    ball = ball_of(graph, [x, cos, sin])
    assert ball.contains(y).all()
    both = np.abs(x * np.concatenate([cos, cos], 1)) + np.abs(np.roll(x, E // 2, 3) * np.concatenate([sin, sin], 1))
    assert (ball.radius < 4 * 2.0**-24 * both + 1e-30).all()


Gate = Callable[[Any, Any, Any, Any], Any]


def test_a_gated_mlp() -> None:
    torch = pytest.importorskip("torch")
    given = draw(6, (3, E), (2 * E, E), (2 * E, E), (E, 2 * E))

    def of(lib: Any) -> Gate:
        silu = torch.nn.functional.silu if lib is torch else sg.silu
        linear = torch.nn.functional.linear if lib is torch else (lambda x, w: sg.linear(w, None, x))
        return lambda x, gate, up, down: linear(silu(linear(x, gate)) * linear(x, up), down)

    y = of(torch)(*map(torch.tensor, given))
    ball = ball_of(sg.trace(of(sg), *(a.shape for a in given)), given, Arithmetic())
    assert ball.contains(np.asarray(y)).all()
    assert np.max(ball.radius) < 3e-5 * float(np.abs(ball.value).max())
