"""What a GPU has recorded, judged by the command: the arithmetic is named, and accepted where the user says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")


def tf32(x: np.ndarray) -> np.ndarray:
    """11 digits, the rest cut off."""
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    cells, n = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), x.shape[-1]
    patches = [cells[:, :, i : i + n, j : j + n] for i in range(3) for j in range(3)]
    return np.einsum("ock,knchw->nohw", w.reshape(*w.shape[:2], 9), np.stack(patches)).astype(np.float32)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Two convolutions in TF32 with a relu between them; the model as net.onnx."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    w = {name: rng.normal(size=(4, c, 3, 3)).astype(np.float32) / 6 for name, c in (("w1", 3), ("w2", 4))}
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w1"], ["a"], "conv1", pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Relu", ["a"], ["r"], "relu"),
        onnx.helper.make_node("Conv", ["r", "w2"], ["y"], "conv2", pads=[1, 1, 1, 1]),
    ]
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, channels, 8, 8])
        for name, channels in (("x", 3), ("y", 4))
    ]
    constants = [onnx.numpy_helper.from_array(a, name) for name, a in w.items()]
    graph = onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9), "net.onnx")
    x = rng.normal(size=(1, 3, 8, 8)).astype(np.float32)
    a = conv(tf32(x), tf32(w["w1"]))
    r = np.maximum(a, 0)
    return {"x": x, "a": a, "r": r, "y": conv(tf32(r), tf32(w["w2"]))}


def test_a_recording_is_explained_and_accepted(recorded: dict[str, np.ndarray], run) -> None:
    np.savez("seen.npz", **recorded)
    code, out, _ = run("audit net.onnx --recorded seen.npz --json")
    layers = {row["layer"]: row for row in json.loads(out)["layers"]}
    assert code == 1
    assert [layers[n]["arithmetic"] for n in ("conv1", "relu", "conv2")] == ["tf32", "float32", "tf32"]
    assert "data cut off, weights cut off" in layers["conv1"]["detail"]
    assert "--accept tf32 would allow it" in layers["conv1"]["detail"]
    for accept, wanted in {"tf32": 0, "any": 0, "bfloat16 --accept winograd-f4": 1, "tf23": 3}.items():
        assert run(f"audit net.onnx --recorded seen.npz --accept {accept}")[0] == wanted, accept


def test_layers_that_nobody_saw_are_explained_with_the_last(recorded: dict[str, np.ndarray], run) -> None:
    """What enters the second convolution is known up to rounding, and so is its short form."""
    np.savez("seen.npz", x=recorded["x"], y=recorded["y"])
    code, out, _ = run("audit net.onnx --recorded seen.npz --accept tf32 --json")
    assert (code, [row["arithmetic"] for row in json.loads(out)["layers"]]) == (0, ["tf32"])


def test_a_fault_is_not_accepted(recorded: dict[str, np.ndarray], run) -> None:
    """A padding on the wrong side, in TF32 too."""
    np.savez("seen.npz", **recorded | {"y": np.roll(recorded["y"], 1, -1)})
    code, out, _ = run("audit net.onnx --recorded seen.npz --accept any --json")
    data = json.loads(out)
    assert (code, data["verdict"], data["first_divergent"]["layer"], data["first_divergent"]["arithmetic"]) == (
        1,
        "differs",
        "conv2",
        None,
    )
