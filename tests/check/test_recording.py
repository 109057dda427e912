"""Recordings: the verdicts of a live audit, and every way in which a folder can lie."""

from __future__ import annotations

import json
import mmap
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantised import data, numpy_runtime
from quantised import model as quantised_model
from specgrad.check import audit, audit_recorded, open_recording, record
from specgrad.check.models import recording as recordings
from specgrad.check.models.recording import RecordingWriter
from specgrad.errors import FileError, ParameterError
from specgrad.interop.model import open_model

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("safetensors")
pytestmark = pytest.mark.usefixtures("kept_workers")
helper, info = onnx.helper, onnx.helper.make_tensor_value_info
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "recording.md"


def network(scale: float = 1.0) -> onnx.ModelProto:
    """tanh(relu(conv(x)) + 1) with an open batch and open sizes."""
    w = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32) * scale
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in (("w", w), ("one", np.float32([1])))]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Add", ["r", "one"], ["a"], name="add"),
        helper.make_node("Tanh", ["a"], ["y"], name="tanh"),
    ]
    graph = helper.make_graph(nodes, "g", [info("x", 1, ["N", 3, "H", "W"])], [info("y", 1, None)], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def point(size: int, seed: int = 0) -> tuple[np.ndarray]:
    return (np.random.default_rng(seed).normal(size=(1, 3, size, size)).astype(np.float32),)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A file, another of the same layers, and a recording of the first at two points, in several shards."""
    folder = tmp_path_factory.mktemp("recording")
    onnx.save(network(), folder / "net.onnx")
    onnx.save(network(0.5), folder / "other.onnx")
    points = [point(8), point(6, 1)]
    done = record(folder / "net.onnx", "onnxruntime", points, folder / "r", about="normal numbers", shard_bytes=2048)
    assert done.verdict == "ok"
    assert len(list((folder / "r").glob("*.safetensors"))) > 2
    return folder


@pytest.fixture
def copy(place: Path, tmp_path: Path) -> Path:
    """A copy of the recording, to be damaged."""
    shutil.copytree(place / "r", tmp_path / "r")
    return tmp_path / "r"


def rows(audited: Any) -> list[Any]:
    return [layer.row() for layer in audited.layers]


# --- what a recording is for ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1])
def test_a_recording_has_the_verdicts_of_a_live_audit(place: Path, tmp_path: Path, number: int) -> None:
    given = [point(8), point(6, 1)][number]
    live = audit(place / "net.onnx", "onnxruntime", given)
    record(place / "net.onnx", "onnxruntime", [given], tmp_path / "one")
    recorded = audit_recorded(place / "net.onnx", open_recording(tmp_path / "one"))
    assert (recorded.verdict, rows(recorded), recorded.whole) == (live.verdict, rows(live), live.whole)
    assert (recorded.versions, recorded.runtime) == (live.versions, "recorded of onnxruntime")
    assert recorded.deployment == live.deployment


def test_points_of_several_shapes_are_one_audit(place: Path) -> None:
    audited = audit_recorded(place / "net.onnx", open_recording(place / "r"))
    assert (audited.verdict, audited.coverage.is_whole) == ("rounding", True)
    assert "inputs: normal numbers" in audited.notes


def test_merged_integer_kernels_are_judged_as_live(tmp_path: Path) -> None:
    """What is seen only where nothing but quantised values is exposed is in the recording too."""
    runtime = numpy_runtime("saturating pairs")
    onnx.save(quantised_model(1, qdq=True), tmp_path / "q.onnx")
    live = audit(tmp_path / "q.onnx", runtime, data(1))
    assert record(tmp_path / "q.onnx", runtime, [(data(1),)], tmp_path / "r").verdict == "ok"
    recording = open_recording(tmp_path / "r")
    recorded = audit_recorded(tmp_path / "q.onnx", recording)
    differs = lambda audited: [x.name for x in audited.layers if x.verdict.kind == "differs"]
    assert differs(recorded) == differs(live) == ["second (merged)"]


def test_a_layer_is_read_without_the_others(copy: Path, place: Path) -> None:
    """Values are mapped, and a shard is looked at when it is needed: a damaged one costs what is in it alone."""
    index = json.loads((copy / "index.json").read_text())
    shards = {(t["run"], t["role"], t["name"]): t["shard"] for t in index["tensors"]}
    assert shards[0, "value", "c"] != shards[1, "value", "c"]
    (copy / shards[1, "value", "c"]).write_bytes(b"")
    run = open_recording(copy).run(0)
    value = run.values("value")["c"]
    base: Any = value
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)
    exact = open_recording(place / "r").run(0).values("value")["c"]
    np.testing.assert_array_equal(value, exact)
    with pytest.raises(ParameterError, match="is not the shard that was recorded"):
        open_recording(copy).run(1).values("value")["c"]


def test_the_index_is_what_the_page_says(place: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.S)[-1])
    index = json.loads((place / "r" / "index.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(index)
    assert set(schema["properties"]) == recordings.KEYS
    assert set(schema["properties"]["tensors"]["items"]["properties"]) == recordings.TENSOR_KEYS
    assert {t["role"] for t in index["tensors"]} == {"input", "output", "value"}


def test_safetensors_itself_reads_the_shards(place: Path) -> None:
    """The package's own reader, which checks the whole file, has the same numbers."""
    from safetensors.numpy import load_file

    recording = open_recording(place / "r")
    for tensor in recording.index["tensors"]:
        theirs = load_file(place / "r" / tensor["shard"])[tensor["key"]]
        np.testing.assert_array_equal(recording.array(tensor), theirs)
        assert recording.array(tensor).dtype == theirs.dtype


def test_every_type_and_empty_arrays_come_back(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r")
    run = writer.add_run("given", (), 3, 7)
    exact = {name: np.arange(6).reshape(2, 3).astype(name) for name in recordings.TYPES.values()}
    exact |= {"empty": np.zeros((0, 4), np.float32), "number": np.float32(2.5).reshape(())}
    for name, array in exact.items():
        writer.add(run, "value", name, array)
    writer.close({"name": "m", "sha256": "0" * 64, "data": {}}, {"name": "nobody", "versions": {}}, ([], []))
    read = open_recording(tmp_path / "r").run(0).values("value")
    assert set(read) == set(exact)
    for name, array in exact.items():
        assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(read[name], array)
    with pytest.raises(ParameterError, match="complex64, which recordings do not hold"):
        writer.add(run, "value", "z", np.zeros(1, np.complex64))


# --- folders that lie -------------------------------------------------------------------------------------------------


def test_another_model_is_refused(place: Path, tmp_path: Path) -> None:
    recording = open_recording(place / "r")
    digest = recording.index["model"]["sha256"]
    with pytest.raises(ParameterError, match=rf"was recorded of net.onnx with SHA-256 {digest}; other.onnx has "):
        audit_recorded(place / "other.onnx", recording)
    assert audit_recorded((place / "net.onnx").read_bytes(), recording).verdict == "rounding"


def test_other_weights_beside_the_file_are_refused(tmp_path: Path) -> None:
    options = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(network(), tmp_path / "net.onnx", **options)
    record(tmp_path / "net.onnx", "onnxruntime", [point(6)], tmp_path / "r")
    recording = open_recording(tmp_path / "r")
    assert list(recording.index["model"]["data"]) == ["w.bin"]
    weights = bytearray((tmp_path / "w.bin").read_bytes())
    weights[3] ^= 1
    (tmp_path / "w.bin").write_bytes(weights)
    with pytest.raises(ParameterError, match=r"other weights: w\.bin of the model has another SHA-256"):
        audit_recorded(tmp_path / "net.onnx", recording)


def shard_damages() -> dict[str, Any]:
    def swapped(shards: list[Path]) -> None:
        one, two = shards[0].read_bytes(), shards[1].read_bytes()
        shards[0].write_bytes(two), shards[1].write_bytes(one)

    def flipped(shards: list[Path]) -> None:
        cells = bytearray(shards[0].read_bytes())
        cells[-1] ^= 1
        shards[0].write_bytes(cells)

    return {
        "swapped": swapped,
        "cut off": lambda shards: shards[0].write_bytes(shards[0].read_bytes()[:-4]),
        "longer": lambda shards: shards[0].write_bytes(shards[0].read_bytes() + b"\0"),
        "a flipped bit": flipped,
        "missing": lambda shards: shards[0].unlink(),
    }


@pytest.mark.parametrize("damage", shard_damages())
def test_a_damaged_shard_is_refused(damage: str, copy: Path, place: Path) -> None:
    shard_damages()[damage](sorted(copy.glob("*.safetensors")))
    with pytest.raises((ParameterError, FileNotFoundError), match=r"is not the shard that was recorded|No such file"):
        audit_recorded(place / "net.onnx", open_recording(copy))


LIES = {
    "another type": (lambda i: i["tensors"][1].update(dtype="int32"), "in the index and float32"),
    "another shape": (lambda i: i["tensors"][1]["shape"].reverse(), "in the index and float32"),
    "another name of a key": (lambda i: i["tensors"][1].update(key="9/value/z"), "holds other tensors"),
    "a tensor left out": (lambda i: i["tensors"].pop(1), "holds other tensors than its index lists"),
    "a tensor twice": (lambda i: i["tensors"].append(i["tensors"][0]), "a tensor is listed twice"),
    "no input": (lambda i: i["tensors"].pop(0), "run 0 lacks the inputs x"),
    "a role of no name": (lambda i: i["tensors"][0].update(role="guess"), "is no tensor"),
    "a run that is not there": (lambda i: i["tensors"][0].update(run=7), "is no tensor"),
    "a negative size": (lambda i: i["tensors"][0].update(shape=[-1]), "is no tensor"),
    "a shard elsewhere": (lambda i: i["shards"].update({"../a.safetensors": {"sha256": "0" * 64}}), "is no shard"),
    "a key that nobody knows": (lambda i: i.update(more=1), "its keys must be"),
    "a later version": (lambda i: i.update(version=2), "is of version 2; this specgrad reads 1"),
    "another format": (lambda i: i.update(format="numbers"), "is not of format specgrad-recording"),
    "no digest": (lambda i: i["model"].update(sha256="beef"), "model must have digests"),
    "no runs": (lambda i: i.update(runs=[]), "runs must be a list of runs"),
    "no name": (lambda i: i["runtime"].pop("name"), "runtime must have a name"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_lies_is_refused(lie: str, copy: Path, place: Path) -> None:
    change, text = LIES[lie]
    index = json.loads((copy / "index.json").read_text())
    change(index)
    (copy / "index.json").write_text(json.dumps(index))
    with pytest.raises(ParameterError, match=re.escape(text)):
        audit_recorded(place / "net.onnx", open_recording(copy))


@pytest.mark.parametrize("text", ["", "[", "[]", "null", '{"format": 1}', "[" * 100_000])
def test_an_index_of_anything_is_refused(copy: Path, text: str) -> None:
    (copy / "index.json").write_text(text)
    with pytest.raises((FileError, ParameterError)):
        open_recording(copy)


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"is no recording: it has no index\.json"):
        open_recording(tmp_path)
    np.save(tmp_path / "x.npy", np.zeros(1))
    with pytest.raises(ParameterError, match=r"a folder of \.npy files is not read; save one \.npz file"):
        open_recording(tmp_path)


def test_the_runtime_is_that_of_the_recording(place: Path, copy: Path) -> None:
    with pytest.raises(ParameterError, match="it was recorded of onnxruntime; --of says iree"):
        audit_recorded(place / "net.onnx", open_recording(copy), of="iree")
    index = json.loads((copy / "index.json").read_text())
    index["runtime"]["name"] = "tensorrt"  # nobody has measured it: the widest errors hold
    (copy / "index.json").write_text(json.dumps(index))
    assert audit_recorded(place / "net.onnx", open_recording(copy)).runtime == "recorded"


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_stop_leaves_the_old_recording(copy: Path, place: Path, monkeypatch) -> None:
    """Stopped before the new index is there; then not stopped: the old shards go."""
    before = {p.name for p in copy.iterdir()}
    whole = recordings.write_whole

    def stopped(path: Path, content: Any) -> None:
        if path.name == "index.json":
            raise KeyboardInterrupt
        whole(path, content)

    monkeypatch.setattr(recordings, "write_whole", stopped)
    with pytest.raises(KeyboardInterrupt):
        record(place / "net.onnx", "onnxruntime", [point(7)], copy)
    assert len(open_recording(copy).runs) == 2
    assert audit_recorded(place / "net.onnx", open_recording(copy)).verdict == "rounding"
    monkeypatch.undo()
    record(place / "net.onnx", "onnxruntime", [point(7)], copy)
    assert [run.values("input")["x"].shape for run in open_recording(copy).runs] == [(1, 3, 7, 7)]
    assert not before & {p.name for p in copy.glob("*.safetensors")}


def test_a_second_writer_is_refused_and_the_first_recording_is_whole(copy: Path, place: Path) -> None:
    """Recorded anew, what both had recorded before was removed by the first, though the second listed it."""
    errors: list[BlockingIOError] = []

    def meanwhile(*_: Any) -> None:
        with pytest.raises(BlockingIOError, match="is being written by another process") as caught:
            record(place / "net.onnx", "onnxruntime", [point(6)], copy)
        errors.append(caught.value)

    record(place / "net.onnx", "onnxruntime", [point(7)], copy, progress=meanwhile)
    assert [e.filename for e in errors] == [str(copy)]
    assert audit_recorded(place / "net.onnx", open_recording(copy)).verdict == "rounding"
    assert record(place / "net.onnx", "onnxruntime", [point(6)], copy).verdict == "ok"


def test_files_of_others_are_left_alone(place: Path, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text('{"mine": 1}')
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="was not written by specgrad"):
        record(place / "net.onnx", "onnxruntime", [point(6)], tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"index.json", "notes.txt"}
    assert record(place / "net.onnx", "onnxruntime", [point(6)], tmp_path, force=True).verdict == "ok"
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_what_cannot_be_recorded(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="runtime torch reads no ONNX files"):
        record(place / "net.onnx", "torch", [point(6)], tmp_path / "r")
    with pytest.raises(ParameterError, match="there is no point"):
        record(place / "net.onnx", "onnxruntime", [], tmp_path / "r")
    refused = record(place / "net.onnx", "onnxruntime", [point(2)], tmp_path / "r")  # smaller than the kernel
    assert (refused.verdict, refused.recording, refused.reason[:7]) == ("refuses", None, "run 0: ")
    assert not (tmp_path / "r" / "index.json").exists()


@pytest.mark.parametrize("role", ["value", "output"])
def test_weights_are_those_of_the_file(tmp_path: Path, role: Any) -> None:
    """A recording has values of other weights, and these weights beside them."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, 9)).astype(np.float32), rng.normal(size=(9, 9)).astype(np.float32)
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (1, 9)) for n in "xy"]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="mm"), helper.make_node("Relu", ["h"], ["y"])]
    stored = onnx.numpy_helper.from_array(w, "w")
    model = helper.make_model(helper.make_graph(nodes, "net", infos[:1], infos[1:], [stored]))
    for kind, read, name in (("rounding", w, "true"), ("differs", w + np.float32(0.5), "other")):
        writer = RecordingWriter(tmp_path / name)
        run = writer.add_run("drawn", [], 0, 0)
        values = {"h": x @ read, "y": np.maximum(x @ read, 0)}
        for each, array in {"w": read, **values}.items():
            writer.add(run, role if each == "w" else "value", each, array)
        writer.add(run, "input", "x", x)
        writer.add(run, "output", "y", values["y"])
        about = recordings.model_digest(open_model(model))
        writer.close(about, {"name": "onnxruntime", "versions": {}}, (["x"], ["y"]))
        done = audit_recorded(model, open_recording(tmp_path / name))
        assert [layer.verdict.kind for layer in done.layers] == [kind, "exact"]
