"""Audits and kernel tests judge normalisations by the mean and deviation that their cells share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.check import assert_conforms, audit, audit_recorded
from specgrad.check.kernels.result import ConformanceError
from specgrad.errors import ParameterError

onnx = pytest.importorskip("onnx")
EPS, N = 1e-5, 768


def onnx_model(op: str, shape: tuple[int, ...], channels: int, **attributes: Any) -> Any:
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in "xy"]
    numbers = [
        onnx.numpy_helper.from_array(a, n)
        for n, a in (("s", np.ones(channels, np.float32)), ("b", np.zeros(channels, np.float32)))
    ]
    node = onnx.helper.make_node(op, ["x", "s", "b"], ["y"], name="norm", epsilon=EPS, **attributes)
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], numbers)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def rows(k: float) -> np.ndarray:
    return (np.random.default_rng(0).normal(size=(4, N)) + k).astype(np.float32)


def exact(x: np.ndarray, less: int = 0) -> np.ndarray:
    c = x.astype(float) - x.astype(float).mean(-1, keepdims=True)
    return np.asarray(c / np.sqrt((c * c).sum(-1, keepdims=True) / (x.shape[-1] - less) + EPS))


def recorded(y: np.ndarray, k: float, **options: Any) -> Any:
    return audit_recorded(onnx_model("LayerNormalization", (4, N), N), {"x": rows(k), "y": y}, **options)


def by_one_pass(x: np.ndarray) -> np.ndarray:
    m = x.mean(-1, keepdims=True)
    v = (x * x).mean(-1, keepdims=True) - m * m
    return np.asarray((x - m) / np.sqrt(v + np.float32(EPS)))


@pytest.mark.parametrize("k", [0.0, 30.0, 300.0])
def test_what_rounds_is_rounding_and_says_what_was_left(k: float) -> None:
    layer = recorded(exact(rows(k)).astype(np.float32), k, unusual="note").layers[0]
    assert layer.verdict.kind == "rounding"
    assert "two passes, as (x - m)*r*g + b: 1/std is 1 " in layer.verdict.detail


@pytest.mark.parametrize(("k", "by"), [(0.0, 3e-5), (30.0, 3e-5), (300.0, 1e-4)])
def test_a_gain_differs(k: float, by: float) -> None:
    """36 % was called rounding at mean/std 30."""
    found = recorded((exact(rows(k)) * (1 + by)).astype(np.float32), k, unusual="note")
    assert found.verdict in ("differs", "other arithmetic")
    if k == 0:
        (layer,) = found.layers
        assert found.verdict == "differs"
        assert "no one mean and deviation explain group 0 in two passes" in layer.verdict.detail
        assert f"its cells fit 1/std times 1 +{by:.1e} (1 -1.9e-05 to 1 +1.9e-05 allowed)" in layer.verdict.detail


def test_the_divisor_n_less_1_differs() -> None:
    assert recorded(exact(rows(0.0), less=1).astype(np.float32), 0.0).verdict == "differs"


def test_one_pass_is_named_and_may_be_accepted() -> None:
    y = by_one_pass(rows(300.0))
    found = recorded(y, 300.0)
    assert (found.verdict, found.layers[0].verdict.arithmetic) == ("other arithmetic", "one-pass-variance")
    assert "--accept one-pass-variance" in found.layers[0].verdict.detail
    assert recorded(y, 300.0, accept=["one-pass-variance"]).layers[0].verdict.kind == "rounding"
    with pytest.raises(ParameterError, match="one-pass-variance"):
        recorded(y, 300.0, accept=["one-pass"])


def test_several_points_of_one_pass() -> None:
    """A class that is no arithmetic of products was no place in an order of classes."""
    x, y = (np.stack([a, a]) for a in (rows(300.0), by_one_pass(rows(300.0))))
    found = audit_recorded(onnx_model("LayerNormalization", (4, N), N), {"x": x, "y": y})
    assert found.verdict == "other arithmetic"


@pytest.mark.parametrize("op", ["LayerNormalization", "InstanceNormalization", "GroupNormalization"])
@pytest.mark.parametrize("k", [0.0, 30.0])
def test_kernels_of_onnxruntime_are_explained(op: str, k: float) -> None:
    pytest.importorskip("onnxruntime")
    n = 192  # every group of cells is judged alone
    shape = (4, n) if op == "LayerNormalization" else (2, 4, n)
    attributes: dict[str, Any] = {"num_groups": 2} if op == "GroupNormalization" else {}
    x = (np.random.default_rng(1).normal(size=shape) + k).astype(np.float32)
    found = audit(onnx_model(op, shape, n if len(shape) == 2 else 4, **attributes), "onnxruntime", x)
    verdict = found.layers[0].verdict
    assert verdict.kind == "rounding" or verdict.arithmetic == "one-pass-variance"
    assert verdict.kind == "rounding" or op == "GroupNormalization"  # whose text is a function of one pass


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    return sg.layer_norm(x, (64,), g, b, eps=EPS)


def by_numpy(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    m = x.mean(-1, keepdims=True)
    return np.asarray((x - m) / np.sqrt(((x - m) ** 2).mean(-1, keepdims=True) + np.float32(EPS)) * g + b)


SHAPES = {"x": ("N", 64), "g": (64,), "b": (64,)}


def test_kernels_that_conform() -> None:
    assert assert_conforms(by_numpy, layer_norm, inputs=SHAPES).judged


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, g, b: by_numpy(x, g * np.float32(1.00002), b),
        lambda x, g, b: by_numpy(x, g, b) * np.float32(1.00002),
        lambda x, g, b: by_numpy(x, g, b) + np.float32(1e-4) * np.arange(64, dtype=np.float32) / 64,
    ],
)
def test_kernels_that_do_not(wrong: Any) -> None:
    """Wrong by 2e-5 to 1e-4, far from 0: within what each cell by itself may be."""
    x = (np.random.default_rng(2).normal(size=(3, 64)) + 30).astype(np.float32)
    g, b = np.ones(64, np.float32), np.zeros(64, np.float32)
    assert assert_conforms(by_numpy(x, g, b), layer_norm, inputs=(x, g, b)).judged
    with pytest.raises(ConformanceError, match="no one mean and deviation"):
        assert_conforms(wrong(x, g, b), layer_norm, inputs=(x, g, b))
