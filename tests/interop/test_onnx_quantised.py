"""Quantised operators of ONNX and com.microsoft against ONNX Runtime: every cell in its set, and the sets are small."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import specgrad as sg
from specgrad.check.verdicts.judge import judge_array
from specgrad.interop import from_onnx
from specgrad.rounding import Arithmetic, radius

U8, S8 = np.uint8, np.int8
DRAW = np.random.default_rng(0)


def q(*shape: int, dtype: Any = U8) -> np.ndarray:
    return DRAW.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)


def s(value: float, *shape: int) -> np.ndarray:
    """A scale, or several."""
    return (np.full(shape, value) * DRAW.uniform(0.5, 1.5, shape)).astype(np.float32)


def z(value: int, dtype: Any = U8) -> np.ndarray:
    return np.asarray(value, dtype)


X, Y = q(1, 3, 8, 9), q(1, 3, 8, 9)
CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "QLinearMatMul": (
        "QLinearMatMul",
        [q(4, 7), s(0.02), z(100), q(7, 5, dtype=S8), s(0.03), z(3, S8), s(0.5), z(120)],
        {},
    ),
    "QLinearMatMul per column": (
        "QLinearMatMul",
        [q(4, 7), s(0.02), z(100), q(7, 5, dtype=S8), s(0.03, 5), np.zeros(5, S8), s(0.5), z(120)],
        {},
    ),
    "MatMulInteger": ("MatMulInteger", [q(4, 7), q(7, 5, dtype=S8), z(100), z(-3, S8)], {}),
    "QLinearConv 1-D": (
        "QLinearConv",
        [q(2, 4, 11), s(0.02), z(7), q(6, 2, 3, dtype=S8), s(0.01, 6), np.zeros(6, S8), s(0.4), z(128)],
        {"group": 2, "strides": [2], "pads": [1, 2]},
    ),
    "QuantizeLinear per axis": (
        "QuantizeLinear",
        [np.float32(DRAW.normal(size=(2, 3, 5))), s(0.02, 3), q(3)],
        {"axis": 1},
    ),
    "QuantizeLinear 16 bits": ("QuantizeLinear", [np.float32(DRAW.normal(size=50)), s(0.001), z(-5, np.int16)], {}),
    "DequantizeLinear per axis": ("DequantizeLinear", [q(2, 3, 5), s(0.02, 3), q(3)], {"axis": 1}),
    "DequantizeLinear of int32": (
        "DequantizeLinear",
        [np.array([2**24 + 1, 2**24 + 3, 2**31 - 1, 1 - 2**31, 7], np.int32), s(0.02)],
        {},
    ),
    "DequantizeLinear of int32, a power of two": (
        "DequantizeLinear",
        [np.array([2**24 + 1, 2**25 + 3, 2**31 - 1, 7], np.int32), np.float32([0.5])],
        {},
    ),
    "DynamicQuantizeLinear": ("DynamicQuantizeLinear", [np.float32(DRAW.normal(size=(3, 40)))], {}),
    "QLinearAdd": ("QLinearAdd", [X, s(0.02), z(100), Y, s(0.05), z(7), s(0.06), z(131)], {}),
    "QLinearAdd, one cell": ("QLinearAdd", [X, s(0.02), z(100), q(1), s(0.05), z(7), s(0.06), z(131)], {}),
    "QLinearMul": ("QLinearMul", [X, s(0.02), z(100), Y, s(0.05), z(7), s(0.06), z(131)], {}),
    "QLinearConcat": ("QLinearConcat", [s(0.05), z(99), X, s(0.02), z(100), Y, s(0.05), z(7)], {"axis": 1}),
    "QLinearAveragePool": (
        "QLinearAveragePool",
        [X, s(0.02), z(100), s(0.015), z(90)],
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1},
    ),
    "QLinearGlobalAveragePool": ("QLinearGlobalAveragePool", [X, s(0.02), z(100), s(0.004), z(90)], {}),
    "QLinearSigmoid": ("QLinearSigmoid", [X, s(0.02), z(100), s(0.004), z(0)], {}),
    "QLinearLeakyRelu": ("QLinearLeakyRelu", [X, s(0.02), z(100), s(0.02), z(60)], {"alpha": 0.1}),
    "QGemm": (
        "QGemm",
        [
            q(4, 7),
            s(0.02),
            z(9),
            q(5, 7, dtype=S8),
            s(0.01, 5),
            np.zeros(5, S8),
            np.arange(5, dtype=np.int32),
            s(0.4),
            z(3),
        ],
        {"transB": 1},
    ),
    "QGemm to floats": ("QGemm", [q(4, 7), s(0.02), z(9), q(7, 5, dtype=S8), s(0.01), z(2, S8)], {}),
}
CONTRIBUTED = ("QGemm", "QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearAveragePool", "QLinearGlobalAveragePool")
DOMAIN = dict.fromkeys((*CONTRIBUTED, "QLinearSigmoid", "QLinearLeakyRelu"), "com.microsoft")


def model(name: str, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The first tensor is the input, everything else stands in the file."""
    names = [f"i{k}" for k in range(len(inputs))]
    fed = next(k for k, a in enumerate(inputs) if a.ndim)
    outputs = ["y", "scale", "zero"] if name == "DynamicQuantizeLinear" else ["y"]
    kind = helper.np_dtype_to_tensor_dtype(inputs[fed].dtype)
    graph = helper.make_graph(
        [helper.make_node(name, names, outputs, domain=DOMAIN.get(name, ""), **attributes)],
        "one",
        [helper.make_tensor_value_info(names[fed], kind, inputs[fed].shape)],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(a, n) for k, (a, n) in enumerate(zip(inputs, names, strict=True)) if k != fed],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), names[fed], inputs[fed]


@pytest.mark.parametrize("case", CASES)
def test_onnx_runtime_stays_in_the_sets(case: str) -> None:
    file, name, x = model(*CASES[case])
    graph = from_onnx(file)
    session = onnxruntime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    arithmetic = Arithmetic(execution="node", flush=False)
    outputs = radius(graph, x.astype(float), arithmetic=arithmetic, formats=graph.formats).outputs
    for got, ball in zip(
        session.run(None, {name: x}), outputs if isinstance(outputs, tuple) else [outputs], strict=True
    ):
        verdict = judge_array("y", got, ball)
        assert verdict.kind in ("exact", "rounding"), str(verdict)
        assert np.count_nonzero(ball.low != ball.high) <= (0.03 * got.size if ball.whole else got.size)
        if got.dtype != np.float32:
            assert not ball.contains(got.astype(float) + 0.25).any()
            assert not ball.contains(got.astype(float) + 2).any()


REFUSED = {
    "a scale per axis that does not fit": (
        ("QuantizeLinear", [np.zeros((2, 3), np.float32), s(0.1, 4)], {"axis": 1}),
        "input 1 of shape (4,) must be one number or 3, one per entry of axis 1",
    ),
    "blocks": (("DequantizeLinear", [q(4, 4), s(0.1, 2, 4)], {"block_size": 2}), "block_size=2 is not supported"),
    "channels last": (
        ("QLinearGlobalAveragePool", [X, s(0.02), z(1), s(0.1), z(1)], {"channels_last": 1}),
        "channels_last=1 is not supported",
    ),
    "inputs": (("QLinearAdd", [X, s(0.02)], {}), "2 inputs and 1 outputs do not fit the operator"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case: str) -> None:
    given, message = REFUSED[case]
    with pytest.raises(sg.SpecgradError) as caught:
        from_onnx(model(*given)[0])
    assert message in str(caught.value)
