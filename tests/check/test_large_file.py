"""Models whose weights stand beside the file: large ones stay there, for us and for the runtime."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specgrad.check import audit
from specgrad.check.decisions.runtime_pool import Runtimes
from specgrad.check.decisions.samples import samples_of
from specgrad.errors import ParameterError
from specgrad.interop import from_onnx
from specgrad.interop.model import LARGEST_INSIDE, open_model
from specgrad.interop.onnx.file import ModelError
from specgrad.process import Process
from specgrad.rounding import Arithmetic

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


def test_a_model_is_read_where_its_path_led_when_it_was_opened(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("onnxruntime")
    for folder, factor in (("here", 1.0), ("there", 2.0)):
        (tmp_path / folder).mkdir()
        saved(tmp_path / folder / "model", factor)
    for given in ("model/net.onnx", Path("model/net.onnx")):
        monkeypatch.chdir(tmp_path / "here")
        opened, early = open_model(given), open_model(given)
        assert early.folder == tmp_path / "here" / "model"
        monkeypatch.chdir(tmp_path / "there")
        for model in (opened, early):
            assert audit(model, "onnxruntime", X).verdict == "rounding"
            np.testing.assert_array_equal(model.graph()(X), from_onnx(network())(X))


@pytest.mark.parametrize("name", ["onnxruntime", "openvino-f32", "onnx-reference"])
def test_lengths_that_a_file_leaves_out_are_said_to_runtimes(tmp_path: Path, name: str) -> None:
    pytest.importorskip(name.partition("-")[0])
    path = saved(tmp_path / "model")
    file = onnx.load(path, load_external_data=False)
    for tensor in file.graph.initializer:
        kept = [entry for entry in tensor.external_data if entry.key != "length"]
        del tensor.external_data[:]
        tensor.external_data.extend(kept)
    onnx.save(file, path)
    assert audit(path, name, X).verdict == "rounding"


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


def changing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """The files of a model change before a runtime's first run of it."""
    run = Process.run

    def changed(self: Process, *args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(Process, "run", run)
        change()
        return run(self, *args, **kwargs)

    monkeypatch.setattr(Process, "run", changed)


def other_weights(path: Path) -> None:
    """Weights twice as large in place of those that were read: as many bytes."""
    weights = path.parent / "weights"
    tensor = network(2.0).graph.initializer[0].raw_data
    weights.write_bytes(tensor + weights.read_bytes()[len(tensor) :])


@pytest.mark.parametrize("name", ["weights", "net.onnx"])
def test_an_audit_refuses_a_file_that_changes_meanwhile(tmp_path: Path, monkeypatch, name: str) -> None:
    """It is not the runtime that computes something else."""
    pytest.importorskip("onnxruntime")
    path = saved(tmp_path / "model")
    data = network(2.0).SerializeToString()
    change = {"weights": lambda: other_weights(path), "net.onnx": lambda: path.write_bytes(data)}[name]
    changing(monkeypatch, change)
    with pytest.raises(ParameterError, match=f"{name} was changed"):
        audit(path, "onnxruntime", X)
    assert audit(path, "onnxruntime", X).verdict == "rounding"


def test_no_runtime_is_said_to_compute_what_a_changed_file_says(tmp_path: Path, monkeypatch) -> None:
    """Its outputs would lie outside the proven bounds."""
    pytest.importorskip("onnxruntime")
    path = saved(tmp_path / "model")
    samples = samples_of(path, X, Arithmetic())
    runtimes = Runtimes(("onnxruntime",), samples.graph, samples.source)
    try:
        (plain, *_), *_ = runtimes.run(samples.fed(0)).values()
        np.testing.assert_allclose(plain, from_onnx(network())(X), rtol=1e-4, atol=1e-4)
        other_weights(path)
        assert runtimes.run(samples.fed(0)) == {}
    finally:
        runtimes.close()
