"""Audits and kernel tests judge softmax by the total that its cells share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.check import assert_conforms, audit, audit_recorded
from specgrad.check.kernels.result import ConformanceError

onnx = pytest.importorskip("onnx")
F, N = np.float32, 1024


def onnx_model(shape: tuple[int, ...]) -> Any:
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in "xy"]
    node = onnx.helper.make_node("Softmax", ["x"], ["y"], name="softmax", axis=-1)
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def logits() -> np.ndarray:
    return (np.random.default_rng(0).normal(size=(4, N)) * 4).astype(F)


def exact(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(float) - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def recorded(y: np.ndarray) -> Any:
    return audit_recorded(onnx_model(y.shape), {"x": logits(), "y": y.astype(F)}, unusual="note")


def test_what_rounds_is_rounding_and_says_what_was_left() -> None:
    (layer,) = recorded(exact(logits())).layers
    assert layer.verdict.kind == "rounding"
    assert "one total to a row: sum exp(x - max x) is 1 " in layer.verdict.detail


def test_a_wrong_cell_differs() -> None:
    """5e-6 of a share; each cell by itself may be off by 6e-5."""
    y = exact(logits())
    y[2, int(np.argmax(y[2]))] *= 1 + 5e-6
    (layer,) = recorded(y).layers
    assert layer.verdict.kind == "differs"
    assert "no one total explains row 2: its cells ask for sum exp(x - max x) times at least" in layer.verdict.detail
    assert layer.verdict.index == (2, int(np.argmax(y[2])))


def test_onnxruntime_is_explained() -> None:
    pytest.importorskip("onnxruntime")
    found = audit(onnx_model((4, N)), "onnxruntime", logits())
    assert found.layers[0].verdict.kind == "rounding"


def test_kernels_conform_or_not() -> None:
    def kernel(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(-1, keepdims=True))
        return np.asarray(e / e.sum(-1, keepdims=True))

    x = logits()[:1]
    y = kernel(x)
    assert assert_conforms(kernel, sg.softmax, inputs={"x": (2, N)}).judged
    assert assert_conforms(y, sg.softmax, inputs=(x,)).judged
    wrong = y * np.where(np.arange(N) % 2, F(1.00001), F(1))
    with pytest.raises(ConformanceError, match="no one total"):
        assert_conforms(wrong, sg.softmax, inputs=(x,))
