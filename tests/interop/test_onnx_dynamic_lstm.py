"""DynamicQuantizeLSTM of com.microsoft against ONNX Runtime, over drawn attributes; and planted faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnx_cases import info, runtime
from specgrad import SpecgradError
from specgrad.interop import from_onnx
from specgrad.interop.onnx.read import quantized
from specgrad.rounding import Arithmetic, radius

ORDER = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
ORDER += ("W_scale", "W_zero_point", "R_scale", "R_zero_point")


def drawn(seed: int, batch: int = 1, **changed: Any) -> tuple[onnx.ModelProto, np.ndarray]:
    """A model of one node, and its input; weights in int8 or uint8, with one scale or one per column."""
    rng = np.random.default_rng(seed)
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    d, steps, inputs, hidden = 1 + (direction == "bidirectional"), *(int(n) for n in rng.integers(1, 6, size=3))
    kind, each = rng.choice(["int8", "uint8"]), (d, 4 * hidden) if rng.random() < 0.5 else (d,)
    x = (rng.normal(size=(steps, batch, inputs)) * 2).astype(np.float32)
    small = lambda *shape: rng.normal(size=shape).astype(np.float32)
    values = {"W": (d, inputs, 4 * hidden), "R": (d, hidden, 4 * hidden)}
    stored: dict[str, Any] = {n: rng.integers(*ends(kind), size=s).astype(kind) for n, s in values.items()}
    for name in values:
        stored[f"{name}_scale"] = rng.uniform(0.003, 0.01, size=each).astype(np.float32)
        stored[f"{name}_zero_point"] = np.full(each, 0 if kind == "int8" else 128).astype(kind)
    optional = {
        "B": (d, 8 * hidden),
        "initial_h": (d, batch, hidden),
        "initial_c": (d, batch, hidden),
        "P": (d, 3 * hidden),
    }
    stored |= {name: small(*shape) for name, shape in optional.items() if rng.random() < 0.6}
    given: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    given |= {"clip": 1.5} if rng.random() < 0.2 else {}
    stored |= changed
    node = helper.make_node(
        "DynamicQuantizeLSTM", [n if n in stored or n == "X" else "" for n in ORDER], ["Y", "Y_h", "Y_c"],
        name="layer", domain="com.microsoft", **given,
    )  # fmt: skip
    tensors = [numpy_helper.from_array(v, k) for k, v in stored.items()]
    graph = helper.make_graph(
        [node], "one", [info("X", x.shape)], [info(o, None) for o in ("Y", "Y_h", "Y_c")], tensors
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), x


def ends(kind: str) -> tuple[int, int]:
    limits = np.iinfo(kind)
    return int(limits.min), int(limits.max) + 1


def check(seed: int) -> float:
    """The largest radius; ONNX Runtime lies in it."""
    model, x = drawn(seed)
    graph = from_onnx(model)
    arithmetic = Arithmetic(execution="node", flush=False)
    balls = radius(graph, x.astype(float), arithmetic=arithmetic, formats=graph.formats).outputs
    for actual, ball in zip(runtime(model, [x]), balls, strict=True):
        assert ball.contains(actual.astype(float)).all(), (seed, np.abs(actual - ball.value).max())
        assert np.abs(actual - ball.value).max() < 0.02, seed
    return max(float(ball.radius.max()) for ball in balls)


def test_onnxruntime_lies_in_the_radius() -> None:
    """Where the range of a state is not known to the last digit, a number of it may be quantised either way."""
    radii = [check(seed) for seed in range(6)]
    assert np.median(radii) < 0.5, radii


@pytest.mark.slow
def test_onnxruntime_lies_in_the_radius_in_many_cases() -> None:
    for seed in range(6, 300):
        check(seed)


@pytest.mark.parametrize("fault", ["a zero point forgotten", "one range for all steps"])
def test_faults_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_range = quantized._quantize_by_range
    wrong = {
        "a zero point forgotten": lambda x: (*by_range(x)[:2], by_range(x)[2] * 0),
        "one range for all steps": lambda x: by_range(x * 0.5),
    }[fault]
    monkeypatch.setattr(quantized, "_quantize_by_range", wrong)
    model, x = drawn(3)
    graph = from_onnx(model)
    found = graph(x.astype(float))
    assert max(np.abs(a - b).max() for a, b in zip(runtime(model, [x]), found, strict=True)) > 0.02


def test_what_threads_decide_is_refused() -> None:
    """Several sequences are quantised together, or in parts."""
    with pytest.raises(SpecgradError, match="DynamicQuantizeLSTM 'layer': several sequences, and sequence_lens"):
        from_onnx(drawn(0, batch=2)[0])
    with pytest.raises(SpecgradError, match="several sequences, and sequence_lens, are not supported"):
        from_onnx(drawn(0, sequence_lens=np.array([1], np.int32))[0])
