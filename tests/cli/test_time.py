"""`--seconds` is the whole command's: a model that is too large ends in time, and says what was left undone."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

pytest.importorskip("typer")
onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

SECONDS = 1.0
HANGS = 60.0  # a limit of a second on a machine that is shared: what is meant is minutes


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """Thirty convolutions on images of 64: the run takes 0.2 s, a proof minutes, an audit many seconds."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("deep")
    nodes, tensors, last = [], [], "x"
    for k in range(30):
        tensors.append(numpy_helper.from_array((rng.normal(size=(32, 32, 3, 3)) / 12).astype(np.float32), f"w{k}"))
        nodes.append(helper.make_node("Conv", [last, f"w{k}"], [f"c{k}"], name=f"conv{k}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [f"r{k}"], name=f"relu{k}"))
        last = f"r{k}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 32, 64, 64]) for n in ("x", last)]
    graph = helper.make_graph(nodes, "deep", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, folder / "deep.onnx")
    nodes += [helper.make_node("GlobalAveragePool", [last], ["p"]), helper.make_node("Flatten", ["p"], ["y"])]
    scores = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32])
    graph = helper.make_graph(nodes, "scores", ends[:1], [scores], tensors)
    pooled = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(pooled, folder / "scores.onnx")
    x = rng.normal(size=(1, 32, 64, 64)).astype(np.float32)
    (y,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    (y_pooled,) = ort.InferenceSession(pooled.SerializeToString()).run(None, {"x": x})
    (folder / "largest").write_text(str(y_pooled.argmax()))
    np.save(folder / "x.npy", x)
    np.savez(folder / "values.npz", x=x, **{last: y})
    return folder


COMMANDS = {
    "audit": ("audit deep.onnx --runtime onnxruntime --input x.npy", {"partly examined", "times out"}),
    "tolerance": ("tolerance deep.onnx --input x.npy", {"estimated", "unknown"}),
    "preserve": ("preserve deep.onnx x.npy --decision mask --runtime none", {"undecided", "not proven"}),
    "certify": ("certify scores.onnx --input x.npy --label LARGEST --eps 1e-6", {"unknown"}),
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
