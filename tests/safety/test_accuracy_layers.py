"""Layers of several nodes behind a product, on ONNX Runtime: a function in a region must read the region's roundings.

Once they were lost: of HardSigmoid(c*x) no execution was "farther than 0", and ONNX Runtime was.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")

from onnx import parser  # noqa: E402

from specgrad.bounds import Box  # noqa: E402
from specgrad.interop import from_onnx  # noqa: E402
from specgrad.rounding import Arithmetic  # noqa: E402
from specgrad.safety.accuracy import SHEETS, accuracy, errors, per_layer  # noqa: E402

CONSTANTS = "<float[3] c = {3.0, -2.7, 1.3}, float[3] s = {1.5, 0.7, -1.1}, float[3] b = {0.1, 0.2, 0.3}>"
LAYERS = {
    "HardSigmoid": "HardSigmoid(a)",
    "HardSwish": "HardSwish(a)",
    "Erf": "Erf(a)",
    "Celu": "Celu(a)",
    "Elu": "Elu(a)",
    "Selu": "Selu(a)",
    "Softsign": "Softsign(a)",
    "Softplus": "Softplus(a)",
    "Sigmoid": "Sigmoid(a)",
    "LogSoftmax": "LogSoftmax<axis = 0>(a)",
    "Softmax": "Softmax<axis = 0>(a)",
    "LayerNormalization": "LayerNormalization<axis = 0>(a, s, b)",
    "ReduceL2": "ReduceL2<keepdims = 1>(a)",
    "ReduceLogSumExp": "ReduceLogSumExp<keepdims = 1>(a)",
    "ReduceMean": "ReduceMean<keepdims = 1>(a)",
    "PRelu": "PRelu(a, b)",
}
BOXES = [(0.3, 0.4), (0.3, 0.30001), (-0.5, 1.0)]


def file_of(call: str) -> bytes:
    size = 1 if "keepdims" in call else 3
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[{size}] y) {CONSTANTS} '
    return bytes(parser.parse_model(text + f"{{ a = Mul(x, c) y = {call} }}").SerializeToString())


def farthest(data: bytes, low: float, high: float, times: int = 100) -> float:
    """ONNX Runtime's largest error in the box; the exact values are those of float64, which are off by 1e-15."""
    graph, session = from_onnx(data), ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    rng, most = np.random.default_rng(1), 0.0
    ends = np.nextafter(np.float32(low), np.float32(2)), np.nextafter(np.float32(high), np.float32(-2))
    for _ in range(times):
        x = np.clip(rng.uniform(low, high, 3).astype(np.float32), *ends)
        y = session.run(None, {"x": x})[0]
        most = max(most, float(np.abs(y - graph(x.astype(float))).max()))
    return most


def claimed(data: bytes, low: float, high: float, execution: str) -> float:
    proven = accuracy(data, Box(np.full(3, low), np.full(3, high)), arithmetic=Arithmetic(execution=execution))
    (layer,) = proven.outputs
    return layer.total


@pytest.mark.parametrize("name", LAYERS)
def test_onnx_runtime_stays_within(name: str) -> None:
    data = file_of(LAYERS[name])
    for low, high in BOXES:
        far = farthest(data, low, high)
        for execution in ("node", "fused"):
            assert far <= claimed(data, low, high, execution) + 1e-14, (low, high, execution)


def test_roundings_that_nobody_counts_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that was there: a function of the same layer reads what came into its region, and no roundings."""

    def lost(self: Any, i: int, node: Any, total: Any, inside: Any) -> list[Any]:
        merged = [isinstance(a, int) and a in inside and self.walked.same_region(a, i) for a in node.args]
        return [
            (inside if m else total).get(a) if isinstance(a, int) else None
            for a, m in zip(node.args, merged, strict=True)
        ]

    monkeypatch.setattr(per_layer.ErrorPropagation, "_read", lost)
    data = file_of(LAYERS["HardSigmoid"])
    assert farthest(data, 0.3, 0.4) > claimed(data, 0.3, 0.4, "fused")


@pytest.mark.parametrize("call", ["Round(a)", "Sign(a)", "ThresholdedRelu<alpha = 9.0>(a)"])
def test_an_output_of_one_value_is_an_output(call: str) -> None:
    """On this box the rounded number, the sign and the 0 are the same everywhere."""
    data = file_of(call)
    proven = accuracy(data, Box(np.full(3, 0.31), np.full(3, 0.32)))
    assert [layer.name for layer in proven.outputs] == ["y"]
    assert len(proven.sentences()) == 1


FORMAT = {"u": Fraction(1, 2**24), "t": Fraction(1, 2**126), "largest": Fraction(2 - 2**-23) * 2**127}


def test_a_large_integer_is_rounded_before_it_is_scaled() -> None:
    q, s = 33554898, np.float32(1.004310131072998)
    text = '<ir_version: 10, opset_import: ["": 21]> g (int32[1] x, float s) => (float[1] y) '
    text += "{ y = DequantizeLinear(x, s) }"
    session = ort.InferenceSession(parser.parse_model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    y = float(session.run(None, {"x": np.array([q], np.int32), "s": np.array(s)})[0][0])
    exact = q * Fraction(float(s))
    bounds = {
        n: errors(SHEETS["DequantizeLinear"], {"S": Fraction(float(s)), "E_S": 0, "Q": q, "n": n, "Y": exact, **FORMAT})
        for n in (1, 2)
    }
    far = abs(Fraction(y) - exact)
    assert bounds[1].total < far <= bounds[2].total


def test_a_scale_whose_reciprocal_is_subnormal() -> None:
    """x times a reciprocal that is flushed is 0, and the quotient is 3/2."""
    x, s = (Fraction(float(np.float32(v))) for v in (3e38, 2e38))
    env: dict[str, Any] = {"X": x, "S": s, "E_X": Fraction(0), "E_S": Fraction(0), "Z": Fraction(0), **FORMAT}
    for step in SHEETS["QuantizeLinear"].steps[:3]:
        env |= {} if step.formula is None else {step.name: step.formula.value(env)}
    assert env["E_V"] >= env["V"] > 1
