"""Hostile ONNX files: each is refused with one clear line, in under a second and 500 MB, or imported. Nothing crashes.

Files are read in another process with a memory limit, so that a crash is a failed test and not the end of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import specgrad as sg
from onnx_cases import network, one
from pace import stretched
from specgrad.interop import from_onnx
from specgrad.interop.model import open_model

HERE = Path(__file__).parent
SECONDS, MEGABYTES = 3.0, 500.0  # a second on a machine that does nothing else; timings below twice that fail nothing


def worker(*arguments: str) -> list[dict[str, Any]]:
    code = f"import sys; sys.path.insert(0, {str(HERE)!r}); import hostile_worker; hostile_worker.main()"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=1800, env=environment
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


# --- files with one evil idea each ------------------------------------------------------------------------------------


def relu(name: str = "x") -> onnx.NodeProto:
    return helper.make_node("Relu", [name], ["y"])


def declared(dims: list[int], **fields: Any) -> onnx.ModelProto:
    """An initializer that declares more than it holds."""
    model = network([relu("w")], {}, ["y"])
    model.graph.initializer.append(TensorProto(name="w", dims=dims, data_type=TensorProto.FLOAT, **fields))
    return model


def tiny_40_gb() -> bytes:
    """A tensor of 40 GB in 82 bytes."""
    model = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 18)])
    model.graph.initializer.append(TensorProto(name="w", dims=[10**10], data_type=1, raw_data=b""))
    model.graph.node.append(helper.make_node("Relu", ["w"], ["y"]))
    model.graph.output.append(onnx.ValueInfoProto(name="y"))
    model.doc_string = " " * (82 - 2 - len(model.SerializeToString()))
    data = model.SerializeToString()
    assert len(data) == 82
    return data


def chain(op: str, count: int, **attributes: Any) -> onnx.ModelProto:
    """A value that meets itself, `count` times."""
    nodes = [helper.make_node(op, [f"v{i}"] * 2, [f"v{i + 1}"], **attributes) for i in range(count)]
    return network(nodes, {"v0": (1, 2)}, [f"v{count}"])


def constant_chain(op: str, count: int, **attributes: Any) -> onnx.ModelProto:
    model = chain(op, count, **attributes)
    del model.graph.input[:]
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 2), np.int64), "v0"))
    return model


def field(number: int, payload: bytes) -> bytes:
    """A message or a string on the wire."""
    size, length = len(payload), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + payload


def with_graph(graph: bytes) -> bytes:
    head = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 18)])
    return head.SerializeToString() + field(7, graph)


def million_nodes() -> bytes:
    """One node's bytes, a million times."""
    return with_graph(field(1, relu().SerializeToString()) * 10**6)


def nested(depth: int) -> bytes:
    """A graph in an attribute of a node of a graph, and so on."""
    graph = b""
    for _ in range(depth):
        graph = field(1, field(2, b"y") + field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph)))
    return with_graph(graph)


PLANE = np.zeros((1, 1, 8), np.float32)
FAR = 2**40
SHAPE = np.array([10**5, 10**5], np.int64)
FILES: dict[str, tuple[Any, str]] = {
    "40_gb_in_82_bytes": (tiny_40_gb(), "from_onnx: with tensor 'w' the weights need 40000000000 bytes"),
    "negative_size": (declared([-5]), "from_onnx: tensor 'w' has a negative size: (-5,)"),
    "lying_tensor": (declared([3], raw_data=b"1234"), "from_onnx: tensor 'w' declares 12 bytes and holds 4"),
    "many_axes": (declared([1] * 1000), "from_onnx: tensor 'w' has 1000 axes; at most 16 are read"),
    "huge_input": (network([relu()], {}, ["y"]), "Relu 'y': input 'x' is not computed before this node"),
    "stride_0_constant": (one("ConstantOfShape", [SHAPE], known=0), "from_onnx: ConstantOfShape 'node' needs 8000000"),
    "stride_0_expand": (one("Expand", [PLANE, np.array([10**5, 10**5, 8])], known=1), "from_onnx: Expand 'node' needs"),
    "kernel": (one("MaxPool", [PLANE], kernel_shape=[FAR]), "MaxPool 'node': MaxPool [W2]: window of 1099511627776"),
    "padded_kernel": (one("MaxPool", [PLANE], kernel_shape=[FAR], pads=[FAR, FAR]), "from_onnx: MaxPool 'node'"),
    "padded_average": (one("AveragePool", [PLANE], kernel_shape=[FAR], pads=[FAR, 0]), "from_onnx: AveragePool 'node'"),
    "stride": (one("MaxPool", [PLANE], kernel_shape=[1], strides=[FAR]), "MaxPool 'node' [W1]: strides=[10995116277"),
    "dilation": (one("MaxPool", [PLANE], kernel_shape=[2], dilations=[FAR]), "MaxPool 'node' [W1]: dilations="),
    "conv_pads": (one("Conv", [PLANE, PLANE], pads=[FAR, FAR]), "from_onnx: Conv 'node' needs"),
    "output_shape": (one("ConvTranspose", [PLANE, PLANE], output_shape=[FAR]), "from_onnx: ConvTranspose 'node' needs"),
    "pad": (one("Pad", [PLANE, np.array([0, 0, FAR, 0, 0, FAR])], known=1), "from_onnx: Pad 'node' needs"),
    "tile": (one("Tile", [PLANE, np.array([1, 1, FAR])], known=1), "from_onnx: Tile 'node' needs 70368744177664 bytes"),
    "range": (one("Range", [np.array(0), np.array(FAR), np.array(1)], known=0), "Range 'node': the range is too long"),
    "upsample": (one("Resize", [PLANE, None, np.float32([1, 1, 2.0**40])], known=1), "from_onnx: Resize 'node' needs"),
    "lrn": (one("LRN", [PLANE], size=FAR), "from_onnx: LRN 'node'"),
    "split": (one("Split", [PLANE], num_outputs=FAR), "Split 'node': 1 cells do not split into 1099511627776 equal"),
    "doubling": (chain("Concat", 60, axis=1), "from_onnx: Concat 'v28' needs 4294967296 bytes; byte_budget=2147483648"),
    "doubling_constants": (constant_chain("Concat", 60, axis=1), "from_onnx: Concat 'v28' needs 4294967296 bytes"),
    "many_constants": (constant_chain("Add", 9000), "imported"),
    "many_layers": (
        network([helper.make_node("Softmax", [f"v{i}"], [f"v{i + 1}"]) for i in range(9000)], {"v0": (2,)}, ["v9000"]),
        "Softmax 'v3000': the graph would have more than 30000 nodes",
    ),
    "many_gathers": (
        network(
            [helper.make_node("Gather", [f"v{i}", "where"], [f"v{i + 1}"]) for i in range(4000)],
            {"v0": (256,)},
            ["v4000"],
            {"where": np.array([1, 0] * 128)},
        ),
        "imported",
    ),
    "cycle": (network([helper.make_node("Add", ["x", "y"], ["y"])], {"x": (1,)}, ["y"]), "Add 'y': input 'y' is not"),
    "long_cycle": (
        network([helper.make_node("Relu", ["b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])], {}, ["b"]),
        "Relu 'a': input 'b' is not computed before this node: the graph is cyclic or cut",
    ),
    "twice": (network([relu(), relu()], {"x": (1,)}, ["y"]), "from_onnx: value 'y' is computed twice"),
    "million_nodes": (million_nodes(), "from_onnx: the file has more than 200,000 entries (nodes, attributes, names)"),
    "deep": (nested(20), "If 'y': 0 inputs and 1 outputs do not fit version"),
    "deeper": (nested(90), "from_onnx: not an ONNX model: the bytes are not this protobuf message"),
    "long_name": (network([helper.make_node("Relu", ["x"], ["y"], name="n\n" * 10**6)], {"x": (1,)}, ["y"]), "Relu 'n"),
    "empty": (b"", "from_onnx: not an ONNX model: there are no bytes"),
    "text": (b"import os\nos.abort()\n", "from_onnx: not an ONNX model: the bytes are not this protobuf message"),
}  # fmt: skip


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("hostile")
    for name, (model, _) in FILES.items():
        model = model[0] if isinstance(model, tuple) else model
        (folder / name).write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return {found["file"]: found for found in worker("files", *(str(folder / name) for name in FILES))}


@pytest.mark.parametrize("name", FILES)
def test_hostile_file(name: str, verdicts: dict[str, dict[str, Any]]) -> None:
    found = verdicts[name]
    assert found["seconds"] < stretched(SECONDS)
    assert found["peak_mb"] < MEGABYTES
    if FILES[name][1] == "imported":
        assert found["verdict"] == "imported"
        return
    assert found["verdict"] == "refused"
    assert found["text"].startswith(FILES[name][1])
    assert "\n" not in found["text"]
    assert "cause" not in found, "refused by the last net only; a rule should say what is wrong"


def test_an_input_over_the_budget_is_refused() -> None:
    model = network([relu()], {"x": (1,)}, ["y"])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 10**10
    with pytest.raises(sg.SpecgradError, match="input 'x' needs 80000000000 bytes; byte_budget=2147483648 allows less"):
        from_onnx(model)
    assert from_onnx(model, byte_budget=10**11).nodes[0].shape == (10**10,)


# --- external data ----------------------------------------------------------------------------------------------------


def external(folder: Path, **entries: str) -> Path:
    """A model whose weight stands in another file."""
    weight = TensorProto(name="w", dims=[4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    model = network([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (4,)}, ["y"])
    model.graph.initializer.append(weight)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """model/weights.bin inside the model's folder; secret.bin beside it; links of both kinds to it."""
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    data = np.arange(8, dtype=np.float32).tobytes()
    for path in (tmp_path / "secret.bin", inside / "weights.bin", inside / "sub" / "weights.bin"):
        path.write_bytes(data)
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    (inside / "linked").symlink_to(tmp_path)
    os.link(tmp_path / "secret.bin", inside / "hard.bin")
    os.mkfifo(inside / "pipe")
    return inside


@pytest.mark.parametrize("location", ["weights.bin", "sub/weights.bin"])
def test_external_data_inside_the_folder_is_read(folder: Path, location: str) -> None:
    graph = from_onnx(external(folder, location=location, offset="16", length="16"))
    assert (graph(np.ones(4)) == [5, 6, 7, 8]).all()


def test_external_data_written_by_onnx_is_read(tmp_path: Path) -> None:
    model, inputs = one(
        "Conv", [np.ones((1, 2, 5), np.float32), np.arange(12, dtype=np.float32).reshape(2, 2, 3)], known=1
    )
    wanted = from_onnx(model)(*inputs)
    path = tmp_path / "net.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size >= 48
    assert (from_onnx(path)(*inputs) == wanted).all()
    assert (from_onnx(str(path))(*inputs) == wanted).all()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "../secret.bin"}, "external data location '../secret.bin' must stay inside the model's folder"),
        ({"location": "sub/../../secret.bin"}, "external data location 'sub/../../secret.bin' must stay inside"),
        ({"location": "./weights.bin"}, "external data location './weights.bin' must stay inside the model's folder"),
        ({"location": "/etc/hostname"}, "external data location '/etc/hostname' must be a relative path"),
        ({"location": "C:\\x"}, "external data location 'C:\\\\\\\\x' must be a relative path"),
        ({"location": "a\0b"}, "external data location 'a\\\\x00b' must be a relative path"),
        ({}, "external data location '' must be a relative path"),
        ({"location": "link.bin"}, "external data location 'link.bin' goes through a symbolic link"),
        ({"location": "linked/secret.bin"}, "external data location 'linked/secret.bin' goes through a symbolic link"),
        ({"location": "hard.bin"}, "external data 'hard.bin' is a hard link to a file with another name"),
        ({"location": "pipe"}, "external data 'pipe' is not a regular file"),
        ({"location": "sub"}, "(external data 'sub' is not a regular|cannot read external data 'sub': Is a directory)"),
        ({"location": "*/_ORT_MEM_ADDR_/*"}, "external data location '.*' may mean a runtime's memory"),
        ({"location": "a" * 300}, "cannot read external data 'a+.*': File name too long"),
        ({"location": "absent.bin"}, "cannot read external data 'absent.bin': No such file or directory"),
        (
            {"location": "weights.bin", "offset": "20"},
            "external data 'weights.bin' has 32 bytes; 20 . 16 are asked for",
        ),
        ({"location": "weights.bin", "offset": "-4"}, "external data offset='-4' is not a size"),
        ({"location": "weights.bin", "length": "8"}, "declares 16 bytes and holds 8"),
        ({"location": "weights.bin", "checksum": "x"}, "external data entry 'checksum' is not honoured"),
    ],
)
def test_external_data_elsewhere_is_refused(folder: Path, entries: dict[str, str], message: str) -> None:
    with pytest.raises(sg.SpecgradError, match=message) as caught:
        from_onnx(external(folder, **entries))
    assert "\n" not in str(caught.value)


def test_a_place_that_is_said_twice_is_refused(folder: Path) -> None:
    """Of two entries of one name we would check one, and a runtime may open the other."""
    path = external(folder, location="weights.bin")
    model = onnx.load(path, load_external_data=False)
    tensor = next(t for t in model.graph.initializer if t.external_data)
    tensor.external_data.insert(0, onnx.StringStringEntryProto(key="location", value="../secret.bin"))
    onnx.save(model, path)
    with pytest.raises(sg.SpecgradError, match="external data has two entries of one name"):
        from_onnx(path)


@pytest.mark.parametrize("part", ["values", "indices"])
def test_a_sparse_tensor_elsewhere_is_refused(folder: Path, part: str) -> None:
    """A runtime reads the attributes of nodes that we do not convert, too."""
    path = external(folder, location="weights.bin")
    model = onnx.load(path, load_external_data=False)
    node = model.graph.node.add(op_type="Constant", output=["sparse"])
    attribute = node.attribute.add(name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR)
    tensor = getattr(attribute.sparse_tensor, part)
    tensor.MergeFrom(onnx.TensorProto(dims=[4], data_type=1, data_location=onnx.TensorProto.EXTERNAL))
    tensor.external_data.add(key="location", value="../secret.bin")
    onnx.save(model, path)
    with pytest.raises(sg.SpecgradError, match="must stay inside the model's folder"):
        _ = open_model(path).proto


def test_external_data_needs_a_path(folder: Path) -> None:
    path = external(folder, location="weights.bin")
    with pytest.raises(sg.SpecgradError, match="give the model as a path"):
        from_onnx(path.read_bytes())


@pytest.mark.parametrize("name", ["pipe", "sub", "absent.onnx"])
def test_the_model_itself_must_be_a_file(folder: Path, name: str) -> None:
    with pytest.raises(sg.SpecgradError, match=r"(is not a regular file|cannot read)"):
        from_onnx(folder / name)


# --- mutants ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


def write_models(folder: Path) -> Path:
    """Real models, small enough that a random byte is often structure: PyTorch's and the package's own."""
    import torch

    from models import SMALL
    from test_onnx_control_flow import ADD_COUNT, loop, scan
    from test_onnx_import import CASES, export
    from test_onnx_plain import by_rate, chain, nested_functions

    made = [loop(3, ADD_COUNT, rows=["s"]), scan(Random(0), 18), by_rate(), nested_functions()]
    for number, model in enumerate([*made, network(chain(5)[::-1], {"v0": (1, 3)}, ["y"])]):
        (folder / f"plain_{number}.onnx").write_bytes(model.SerializeToString())
    for name in SMALL:
        module, x = SMALL[name]()
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data = torch.zeros_like(tensor)
        (folder / f"{name}.onnx").write_bytes(export(module, x, 17))
    shipped = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted(shipped.glob("pytorch-operator/*/model.onnx")):
        (folder / f"{path.parent.name}.onnx").write_bytes(path.read_bytes())
    for number, (op, inputs, given, opsets) in enumerate(CASES):
        model, _ = one(op, inputs, opset=opsets[-1], known=1, **given)
        (folder / f"{op}_{number}.onnx").write_bytes(model.SerializeToString())
    return folder


def check_hunt(found: dict[str, Any], count: int) -> None:
    assert found["bad"] == []
    assert sum(found["verdicts"].values()) == count
    assert found["verdicts"]["imported"] > count / 10, "mutants should not all be refused at the door"
    assert found["verdicts"]["refused"] > count / 4
    assert found["worst"] < stretched(SECONDS)
    assert found["peak_mb"] < MEGABYTES


@pytest.mark.parametrize("count", [2000, pytest.param(10000, marks=pytest.mark.slow)])
def test_thousands_of_mutants(models: Path, count: int) -> None:
    """7 seconds for 10,000; 100,000 others were hunted once with the same result (docs/reference/onnx.md)."""
    check_hunt(worker("mutants", str(models), "0", str(count))[0], count)


@pytest.mark.parametrize("broken", [lambda _: [][1], lambda _: print("x" * 2) or exit(3)])
def test_the_hunt_sees_a_crash(models: Path, monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    import hostile_worker

    monkeypatch.setattr(hostile_worker, "from_onnx", broken)
    found = hostile_worker.hunt(str(models), 0, 5)
    assert found["verdicts"] == {"crashed": 5}
    assert [b["number"] for b in found["bad"]] == list(range(5))
    with pytest.raises(AssertionError):
        check_hunt(found, 5)
