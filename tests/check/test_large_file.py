"""Models whose weights stand beside the file: large ones stay there, for us and for the runtime."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from specgrad.check import audit
from specgrad.check.decisions.runtime_pool import Runtimes
from specgrad.interop import from_onnx
from specgrad.interop.model import LARGEST_INSIDE, open_model
from specgrad.interop.onnx.file import ModelError
from specgrad.process import Process

onnx = pytest.importorskip("onnx")
helper, info = onnx.helper, onnx.helper.make_tensor_value_info
SIDE = 160
assert SIDE * SIDE * 4 > LARGEST_INSIDE


def network(factor: float = 1.0) -> onnx.ModelProto:
    """relu(x @ large) in another shape, which stands among the weights too."""
    large = np.random.default_rng(0).normal(size=(SIDE, SIDE)).astype(np.float32) * np.float32(factor)
    tensors = [
        onnx.numpy_helper.from_array(a, n) for n, a in (("large", large), ("shape", np.array([4, SIDE // 4], np.int64)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "large"], ["m"], name="product"),
        helper.make_node("Relu", ["m"], ["r"], name="relu"),
        helper.make_node("Reshape", ["r", "shape"], ["y"], name="shape"),
    ]
    graph = helper.make_graph(nodes, "g", [info("x", 1, [1, SIDE])], [info("y", 1, [4, SIDE // 4])], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def saved(folder: Path, factor: float = 1.0) -> Path:
    """The network with all of its tensors in the file `weights` beside it."""
    folder.mkdir()
    onnx.save(network(factor), folder / "net.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    return folder / "net.onnx"


X = np.random.default_rng(1).normal(size=(1, SIDE)).astype(np.float32)


@pytest.mark.parametrize("name", ["onnxruntime", "openvino-f32", "onnx-reference"])
def test_a_runtime_finds_the_tensors_that_stay_outside(tmp_path: Path, monkeypatch, name: str) -> None:
    pytest.importorskip(name.partition("-")[0])
    path = saved(tmp_path / "model")
    inside = audit(network(), name, X)
    assert open_model(path).folder == path.parent
    assert len(open_model(path).proto.SerializeToString()) < LARGEST_INSIDE < len(network().SerializeToString())
    monkeypatch.chdir(tmp_path)
    for given in (path, Path("model/net.onnx"), "model/net.onnx"):
        outside = audit(given, name, X)
        assert [layer.verdict for layer in outside.layers] == [layer.verdict for layer in inside.layers]
        assert outside.verdict == "rounding"


@pytest.mark.parametrize("name", ["onnxruntime", "openvino-f32"])
def test_decisions_are_asked_of_runtimes_that_find_them_too(tmp_path: Path, name: str) -> None:
    pytest.importorskip(name.partition("-")[0])
    path = saved(tmp_path / "model")
    pool = Runtimes([name], from_onnx(path), path)
    answers = pool.run([X])
    pool.close()
    assert answers
    for (y,) in answers.values():
        np.testing.assert_allclose(y, from_onnx(network())(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fault", ["link", "short", "pipe", "gone"])
def test_no_runtime_is_asked_for_data_that_we_would_not_read(tmp_path: Path, fault: str) -> None:
    pytest.importorskip("onnxruntime")
    path = saved(tmp_path / "model")
    weights = path.parent / "weights"
    if fault == "short":
        os.truncate(weights, 1000)
    else:
        weights.rename(tmp_path / "elsewhere")
    if fault == "link":
        weights.symlink_to(tmp_path / "elsewhere")
    if fault == "pipe":
        os.mkfifo(weights)
    with pytest.raises(ModelError, match="external data"):
        audit(path, "onnxruntime", X)


def test_no_code_is_run_that_lies_beside_a_model(tmp_path: Path, monkeypatch) -> None:
    """An empty entry of a search path, which PYTHONPATH=/a: has, is the folder in which a process works."""
    (tmp_path / "numpy.py").write_text("raise SystemExit(3)")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text("ONE = 1.0")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", os.pathsep + os.environ.get("PYTHONPATH", ""))
    program = "import mine, os\ndef run(x): return [x + mine.ONE, x + len(os.listdir())]"
    with Process(folder=tmp_path) as process:
        answer = process.run(program, {"x": np.ones(1)})
    assert [a.tolist() for a in answer.arrays] == [[2.0], [3.0]]


def test_a_large_module_is_exported_with_its_weights_beside_it(monkeypatch) -> None:
    """Buffers count as parameters do."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    from specgrad.check.models import run_torch

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.from_numpy(np.random.default_rng(0).normal(size=(SIDE, SIDE))).float())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x @ self.weight)

    monkeypatch.setattr(run_torch, "LARGEST_FILE", SIDE * SIDE)
    with run_torch.exported(Scaled(), [X]) as path:
        assert open_model(path).folder == path.parent
    assert audit(Scaled(), "onnxruntime", X).verdict == "rounding"
