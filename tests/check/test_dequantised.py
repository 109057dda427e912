"""A sum of dequantised values that the runtime computes from the integers, not from the values that it shows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from specgrad.check import audit, audit_recorded

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("kept_workers")]
SCALES = np.float32(0.017), np.float32(0.031)


def model() -> onnx.ModelProto:
    nodes = []
    for x, q, a, s in (("x", "q1", "a", "s1"), ("y", "q2", "b", "s2")):
        nodes.append(helper.make_node("QuantizeLinear", [x, s, "z"], [q], name=q))
        nodes.append(helper.make_node("DequantizeLinear", [q, s, "z"], [a], name=a))
    nodes.append(helper.make_node("Add", ["a", "b"], ["c"], name="c"))
    stored = {"s1": SCALES[0], "s2": SCALES[1], "z": np.int8(0)}
    graph = helper.make_graph(
        nodes,
        "sum",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 512]) for n in "xy"],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v), k) for k, v in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def values() -> dict[str, np.ndarray]:
    """Dequantised values rounded once, and their sum rounded once from the integers: not the sum of what is shown."""
    rng = np.random.default_rng(0)
    q1, q2 = rng.integers(-127, 128, (2, 2, 512)).astype(np.int8)
    exact1, exact2 = q1 * np.float64(SCALES[0]), q2 * np.float64(SCALES[1])
    a, b = exact1.astype(np.float32), exact2.astype(np.float32)
    c = (exact1 + exact2).astype(np.float32)
    assert (c != a + b).any()
    return {"x": a, "y": b, "q1": q1, "q2": q2, "a": a, "b": b, "c": c}


def test_sums_from_the_integers_are_rounding() -> None:
    assert audit_recorded(model(), values()).verdict == "rounding"


@pytest.mark.parametrize("fault", ["one step more", "another scale", "one cell"])
def test_faults_are_not_explained(fault: str) -> None:
    """Three units in the last place of the summands more; a scale that is off by 2**-20; one cell of another place."""
    recorded = values()
    c, size = recorded["c"], np.abs(recorded["a"]) + np.abs(recorded["b"])
    if fault == "one step more":
        recorded["c"] = c + 4 * np.spacing(size)
    elif fault == "another scale":
        recorded["c"] = recorded["a"] + recorded["b"] * np.float32(1 + 2**-20)
    else:
        c[1, 7] = c[1, 8]
    audited = audit_recorded(model(), recorded)
    assert audited.verdict == "differs"
    assert audited.first_divergent is not None
    assert audited.first_divergent.name == "c"


def test_openvino() -> None:
    pytest.importorskip("openvino")
    rng = np.random.default_rng(0)
    x, y = (2 * rng.normal(size=(2, 2, 512))).astype(np.float32)
    assert audit(model(), "openvino-f32", [x, y]).verdict == "rounding"


# --- zero points ---

ZERO, STEP = np.int8(-100), np.float32(0.0173)


def averaged(zero: np.int8 = ZERO) -> onnx.ModelProto:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["a"], name="a"),
        helper.make_node("GlobalAveragePool", ["a"], ["y"], name="y"),
    ]
    graph = helper.make_graph(
        nodes,
        "mean",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v), k) for k, v in (("s", STEP), ("z", zero))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def averages() -> dict[str, np.ndarray]:
    """Values near 0, so that q*s and z*s nearly cancel; the mean as mean(q)*s - z*s, each step in float32."""
    q = (ZERO + np.random.default_rng(0).integers(0, 2, (1, 64, 8, 8))).astype(np.int8)
    a = (q.astype(np.int32) - int(ZERO)).astype(np.float32) * STEP
    mean = q.astype(np.float32).mean((2, 3), keepdims=True, dtype=np.float32)
    y = mean * STEP - np.float32(ZERO) * STEP
    return {"x": a, "q": q, "a": a, "y": y}


def test_zero_points_may_be_multiplied_out() -> None:
    """As OpenVINO 2026.4.1 does: (q - z)*s as q*s - z*s."""
    audited = audit_recorded(averaged(), averages())
    assert audited.verdict == "rounding", str(audited)
    assert "q*s - z*s" in audited.layers[-1].verdict.detail


@pytest.mark.parametrize("fault", ["lost zero point", "zero point off by one", "scale off by 2**-14"])
def test_faults_of_zero_points_are_not_explained(fault: str) -> None:
    recorded = averages()
    mean = recorded["q"].astype(np.float64).mean((2, 3), keepdims=True)
    z, s = float(ZERO), float(STEP)
    wrong = {
        "lost zero point": mean * s,
        "zero point off by one": (mean - z - 1) * s,
        "scale off by 2**-14": mean * s - z * s * (1 + 2.0**-14),
    }
    recorded["y"] = wrong[fault].astype(np.float32)
    assert audit_recorded(averaged(), recorded).verdict == "differs"


def requantised(scale: np.float32) -> onnx.ModelProto:
    """Two dequantised values, their sum, and the sum quantised again."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["a"], name="a"),
        helper.make_node("Add", ["a", "a"], ["c"], name="c"),
        helper.make_node("QuantizeLinear", ["c", "t", "zero"], ["p"], name="p"),
        helper.make_node("DequantizeLinear", ["p", "t", "zero"], ["y"], name="y"),
    ]
    stored = {"s": STEP, "z": ZERO, "t": scale, "zero": np.int8(0)}
    graph = helper.make_graph(
        nodes,
        "sum",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v), k) for k, v in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize(("step", "verdict"), [(13, "rounding"), (12, "rounding"), (11, "differs"), (14, "differs")])
def test_what_lies_between_two_quantised_values_may_be_merged(step: int, verdict: str) -> None:
    """c is shown as 12.50002 steps; the runtime quantises what it holds inside, q*s - z*s, which may lie below 12.5."""
    q = np.full(4, ZERO + 3, np.int8)
    a = np.full(4, 3, np.float32) * STEP
    c = a + a
    scale = np.float32(float(c[0]) / 12.5 * (1 - 1.5e-6))
    assert float(c[0]) / float(scale) > 12.5
    p = np.full(4, step, np.int8)
    y = p.astype(np.float32) * scale
    audited = audit_recorded(requantised(scale), {"x": a, "q": q, "a": a, "c": c, "p": p, "y": y})
    assert audited.verdict == verdict, str(audited)


def from_bytes(layers: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """An image of bytes, dequantised once, then float layers: no quantised value stands between them."""
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["v0"], name="v0")]
    weights = np.random.default_rng(1).normal(size=(layers, 8, 8, 3, 3)).astype(np.float32) / 8
    stored = {"s": STEP, "z": np.uint8(128)} | {f"w{k}": w for k, w in enumerate(weights)}
    for k in range(layers):
        nodes.append(helper.make_node("Conv", [f"v{k}", f"w{k}"], [f"v{k + 1}"], name=f"v{k + 1}", pads=[1] * 4))
    graph = helper.make_graph(
        nodes,
        "image",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 8, 6, 6])],
        [helper.make_tensor_value_info(f"v{layers}", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v), k) for k, v in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    x = np.random.default_rng(0).integers(0, 256, (1, 8, 6, 6)).astype(np.uint8)
    values = {"x": x, "v0": (x.astype(np.float32) - 128) * STEP}
    for k in range(layers):
        y = torch.nn.functional.conv2d(torch.from_numpy(values[f"v{k}"]), torch.from_numpy(weights[k]), padding=1)
        values[f"v{k + 1}"] = y.numpy()
    return model, values


def test_layers_behind_an_image_of_bytes_are_judged_one_by_one() -> None:
    """A fault of the last layer, far below what the whole way from the image could round to."""
    model, values = from_bytes(6)
    assert audit_recorded(model, values).verdict == "rounding"
    values["v6"] = values["v6"] + np.float32(1e-3) * np.abs(values["v6"]).mean()
    audited = audit_recorded(model, values)
    assert (audited.verdict, audited.first_divergent.name) == ("differs", "v6")
