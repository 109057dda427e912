"""`--seconds` is the whole command's: a model that is too large ends in time, and says what was left undone."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

SECONDS = 1.0
HANGS = 60.0  # a limit of a second on a machine that is shared: what is meant is minutes


def layers(channels: int, size: int, last: list[Any], outputs: list[int]) -> onnx.ModelProto:
    """Thirty convolutions on an image, and what comes behind them."""
    rng, nodes, tensors, x = np.random.default_rng(0), [], [], "x"
    for k in range(30):
        w = rng.normal(size=(channels, channels, 3, 3)) / (1.5 * np.sqrt(2 * channels))
        tensors.append(numpy_helper.from_array(w.astype(np.float32), f"w{k}"))
        nodes.append(helper.make_node("Conv", [x, f"w{k}"], [f"c{k}"], name=f"conv{k}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [f"r{k}"], name=f"relu{k}"))
        x = f"r{k}"
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size]),
        helper.make_tensor_value_info("y" if last else x, TensorProto.FLOAT, outputs),
    ]
    graph = helper.make_graph([*nodes, *last], "deep", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def run_at(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """On images of 64 the run takes 0.2 s, a proof minutes, an audit many seconds; a proof on 32 more than one."""
    rng, folder = np.random.default_rng(1), tmp_path_factory.mktemp("deep")
    model = layers(32, 64, [], [1, 32, 64, 64])
    onnx.save(model, folder / "deep.onnx")
    x = rng.normal(size=(1, 32, 64, 64)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.savez(folder / "values.npz", x=x, r29=run_at(model, x))
    pooled = [helper.make_node("GlobalAveragePool", ["r29"], ["p"]), helper.make_node("Flatten", ["p"], ["y"])]
    scores = layers(16, 32, pooled, [1, 16])
    onnx.save(scores, folder / "scores.onnx")
    x = rng.normal(size=(1, 16, 32, 32)).astype(np.float32)
    np.save(folder / "small.npy", x)
    (folder / "largest").write_text(str(run_at(scores, x).argmax()))
    return folder


COMMANDS = {
    "audit": ("audit deep.onnx --runtime onnxruntime --input x.npy", {"partly examined", "times out"}),
    "tolerance": ("tolerance deep.onnx --input x.npy", {"estimated", "unknown"}),
    "preserve": ("preserve deep.onnx x.npy --decision mask --runtime none", {"undecided", "not proven"}),
    "certify": ("certify scores.onnx --input small.npy --label LARGEST --eps 1e-6", {"unknown"}),
    "evidence": ("evidence deep.onnx --recorded values.npz", {"cannot tell", "findings"}),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_in_time(name: str, deep, monkeypatch, run) -> None:
    monkeypatch.chdir(deep)
    words, verdicts = COMMANDS[name]
    words = words.replace("LARGEST", (deep / "largest").read_text())
    start = time.monotonic()
    code, out, err = run(f"{words} --seconds {SECONDS} --json")
    assert time.monotonic() - start < HANGS
    said = json.loads(out)
    assert said["verdict"] in verdicts, err
    assert code == (0 if said["verdict"] == "estimated" else 1 if said["verdict"] == "findings" else 2)
    assert "time" in out, "what was left undone is said"
