"""int8 models: what a correct runtime may compute, planted mistakes, and what ONNX Runtime's quantisation writes."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime import quantization

from quantised import DATA, Calibration, data, float_model, model, numpy_runtime
from specgrad.bounds import Box, ibp
from specgrad.check import audit
from specgrad.check.runtimes import RUNTIMES
from specgrad.interop import from_onnx

pytestmark = pytest.mark.usefixtures("kept_workers")
MISTAKES = {
    "half away from zero": "first",
    "lost zero point": "conv",
    "wrong bound": "first",
    "shifted scales": "conv",
    "saturating pairs": "conv",
}


@pytest.mark.parametrize("exact_scales", [False, True])
def test_a_correct_runtime_is_right(exact_scales: bool) -> None:
    for seed in range(3):
        found = audit(model(seed, exact_scales=exact_scales), numpy_runtime(), data(seed, ties=exact_scales))
        assert found.verdict in ("exact", "rounding"), str(found)
        assert [layer.verdict.kind for layer in found.layers[:2]] == ["exact", "exact"]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found_in_its_layer(mistake: str) -> None:
    ties = mistake == "half away from zero"
    found = audit(model(0, exact_scales=ties), numpy_runtime(mistake), data(0, ties=ties) * (1 if ties else 3))
    assert found.verdict == "differs"
    assert found.first_divergent.name == MISTAKES[mistake]


def test_what_a_merged_kernel_does_is_judged_and_named() -> None:
    """Layer by layer this runtime is right; the kernel that it merges three of them into saturates."""
    right = audit(model(1, qdq=True), numpy_runtime(), data(1))
    assert right.verdict == "rounding"
    assert {layer.name for layer in right.layers if layer.name.endswith("(merged)")} == {"second (merged)"}
    found = audit(model(1, qdq=True), numpy_runtime("saturating pairs"), data(1))
    assert [layer.name for layer in found.layers if layer.verdict.kind == "differs"] == ["second (merged)"]
    assert "16-bit saturation of pairwise products" in str(found.first_divergent.verdict)


def test_whole_numbers_are_handed_on_as_they_are() -> None:
    """What excuses dequantised values does not excuse a sum that is off by one."""
    file = model(2, integer=True, channels=(64, 8))
    found = audit(file, numpy_runtime("one more"), data(2, 64))
    assert (found.verdict, found.first_divergent.name) == ("differs", "conv")


@pytest.mark.parametrize("integer", [False, True])
def test_saturating_pairs_are_named(integer: bool) -> None:
    """And only they: the same faults by another cause have no such explanation."""
    found = audit(model(1, integer=integer), numpy_runtime("saturating pairs"), data(1))
    assert "16-bit saturation of pairwise products" in str(found.first_divergent.verdict)
    other = audit(model(1, integer=integer), numpy_runtime("lost zero point"), data(1))
    assert other.first_divergent.name == "conv"
    assert "16-bit" not in str(other.first_divergent.verdict)


@pytest.mark.parametrize("name", ["dilated 5x3, uneven pads", "1-D"])
def test_generated_layers_on_onnx_runtime(name: str) -> None:
    """A slice of benchmarks/quantised.py: 75,000 cells as sums, requantised and merged."""
    bench = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "quantised.py"))
    tally = bench["Tally"]()
    for seed, kind in enumerate(bench["DATA"]):
        for types in bench["PAIRS"]:
            bench["layer"](tally, name, types, kind, seed)
    assert tally.alarms == []
    assert tally.open["sums"] == 0
    assert min(tally.cells.values()) > 7_000


# --- what ONNX Runtime's quantisation writes ----------------------------------------------------------------------

PLAIN = replace(
    RUNTIMES["onnxruntime"],
    name="onnxruntime without optimisation",
    model="""import onnxruntime

def run(model, /, **inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.tobytes(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)
""",
)
UNSIGNED, SIGNED = quantization.QuantType.QUInt8, quantization.QuantType.QInt8
TYPES = {"u8s8": (UNSIGNED, SIGNED), "s8s8": (SIGNED, SIGNED), "u8u8": (UNSIGNED, UNSIGNED)}


def quantised(folder: Path, form: str, types: str = "u8s8", **options: Any) -> onnx.ModelProto:
    source, target = str(folder / "float.onnx"), str(folder / "quantised.onnx")
    onnx.save(float_model(), source)
    activations, weights = TYPES[types]
    if form == "dynamic":
        quantization.quantize_dynamic(source, target, weight_type=weights)
    else:
        kind = quantization.QuantFormat[form]
        given = {"activation_type": activations, "weight_type": weights, **options}
        quantization.quantize_static(source, target, Calibration(), quant_format=kind, **given)
    return onnx.load(target)


CASES = [
    (f, t, r, c) for f in ("QDQ", "QOperator") for t in TYPES for r, c in ((False, False), (False, True), (True, True))
]


@pytest.mark.parametrize(("form", "types", "reduce_range", "per_channel"), CASES)
def test_static_quantisation(tmp_path: Path, form: str, types: str, reduce_range: bool, per_channel: bool) -> None:
    """Layer by layer, in the merged integer kernels, and as a whole."""
    file = quantised(tmp_path, form, types, reduce_range=reduce_range, per_channel=per_channel)
    found = audit(file, "onnxruntime", DATA)
    assert found.verdict == "rounding", str(found)
    kinds = {layer.name: layer.verdict.kind for layer in found.layers}
    merged = {kind for name, kind in kinds.items() if name.endswith("(merged)")}
    assert merged <= {"exact", "rounding"}
    assert ("exact" in merged) == (form == "QDQ")
    whole_numbers = {kinds[n.name] for n in file.graph.node if n.op_type == "QLinearConv"}
    assert whole_numbers == ({"exact"} if form == "QOperator" else set())


@pytest.mark.parametrize("types", ["u8s8", "u8u8"])
def test_dynamic_quantisation(tmp_path: Path, types: str) -> None:
    file = quantised(tmp_path, "dynamic", types)
    found = audit(file, "onnxruntime", DATA)
    assert found.verdict == "rounding", str(found)
    sums = {n.name for n in file.graph.node if n.op_type in ("ConvInteger", "MatMulInteger")}
    assert {layer.verdict.kind for layer in found.layers if layer.name in sums} == {"exact"}
    assert sums


@pytest.mark.parametrize("form", ["QDQ", "QOperator", "dynamic"])
def test_without_optimisation(tmp_path: Path, form: str) -> None:
    assert audit(quantised(tmp_path, form), PLAIN, DATA).verdict == "rounding"


def test_other_runtimes(tmp_path: Path) -> None:
    """They take QDQ and dynamic models; QLinearConv they refuse."""
    for name, form, verdict in (
        ("openvino-f32", "dynamic", "rounding"),
        ("onnx-reference", "dynamic", "rounding"),
        ("openvino-f32", "QOperator", "refuses"),
    ):
        assert audit(quantised(tmp_path, form), name, DATA).verdict == verdict


def between_quantised_values(bias: float) -> onnx.ModelProto:
    """A 1x1 convolution with a float32 bias; at 0 its value is the bias, in units of 1/128."""
    numbers = {"xs": np.float32(2**-5), "w": np.int8([[[[64]]]]), "ws": np.float32(2**-6), "ys": np.float32(2**-7)}
    numbers |= {"z": np.int8(0), "b": np.float32([bias])}
    nodes = [
        helper.make_node(op, given, [made], name=made)
        for op, given, made in (
            ("QuantizeLinear", ["x", "xs", "z"], "q"),
            ("DequantizeLinear", ["q", "xs", "z"], "d"),
            ("DequantizeLinear", ["w", "ws", "z"], "v"),
            ("Conv", ["d", "v", "b"], "conv"),
            ("QuantizeLinear", ["conv", "ys", "z"], "e"),
            ("DequantizeLinear", ["e", "ys", "z"], "y"),
        )
    ]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 1, 1, 1)) for name in "xy"]
    stored = [numpy_helper.from_array(np.asarray(v), name) for name, v in numbers.items()]
    graph = helper.make_graph(nodes, "quantised", ends[:1], ends[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_bias_that_a_runtime_quantises_is_found() -> None:
    """ONNX Runtime rounds 32.51 to a multiple of 1/16, 32.5, which is then stored as 32; the exact value is 33."""
    x = np.zeros((1, 1, 1, 1), np.float32)
    file = between_quantised_values(32.51 / 128)
    box = ibp(from_onnx(file), Box(x, x)).outputs
    assert 32.9 / 128 < box.low.item() <= 33 / 128 <= box.high.item()
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    kept = onnxruntime.InferenceSession(file.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert kept.run(None, {"x": x})[0].item() == 33 / 128
    found = audit(file, "onnxruntime", [x])
    assert (found.verdict, found.first_divergent.name) == ("differs", "conv")
    assert audit(between_quantised_values(32.5 / 128), "onnxruntime", [x]).verdict in ("exact", "rounding")
