"""--shape: sizes that a model leaves open, in every command that takes a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import specgrad as sg

onnx = pytest.importorskip("onnx")
pytest.importorskip("specgrad.cli.main")
helper, info = onnx.helper, onnx.helper.make_tensor_value_info


@pytest.fixture
def opened(folder: Path) -> Path:
    """relu(x @ [[1, 1], [1, -1]]) with an open batch; a pool with open sizes; a saved graph with an open batch."""
    w = onnx.numpy_helper.from_array(np.array([[1, 1], [1, -1]], np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="h"), helper.make_node("Relu", ["h"], ["y"], name="y")]
    pool = [helper.make_node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[2, 2], strides=[2, 2])]
    for name, steps, shape, weights in (("batch", nodes, ["N", 2], [w]), ("size", pool, ["N", 1, "H", "W"], [])):
        graph = helper.make_graph(steps, "g", [info("x", 1, shape)], [info("y", 1, None)], weights)
        file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
        onnx.save(file, folder / f"{name}.onnx")
    sg.save(sg.trace(sg.relu, ("N", 2)), folder / "open.json")
    np.save(folder / "three.npy", np.ones((3, 2), np.float32))
    np.savez(folder / "three.npz", x=np.ones((3, 2), np.float32))
    return folder


@pytest.mark.parametrize(
    ("command", "shape"),
    [
        ("show batch.onnx", [1, 2]),
        ("show batch.onnx --shape 4,2", [4, 2]),
        ("show batch.onnx --shape x=4,2", [4, 2]),
        ("show batch.onnx --input three.npy", [3, 2]),
        ("show batch.onnx --input three.npz", [3, 2]),
        ("show size.onnx --shape 1,1,6,9", [1, 1, 3, 4]),
        ("show open.json", [1, 2]),
        ("show open.json --shape x=5,2", [5, 2]),
    ],
)
def test_show_takes_the_shape(opened, run, command: str, shape: list[int]) -> None:
    code, out, _ = run(f"{command} --json")
    assert code == 0
    assert json.loads(out)["layers"][-1]["shape"] == shape


@pytest.mark.parametrize("shape", ["x=1,2", "7,2"])
def test_audit_takes_the_shape(opened, run, shape: str) -> None:
    pytest.importorskip("onnxruntime")
    code, out, _ = run(f"audit batch.onnx --runtime onnxruntime --shape {shape} --json")
    assert code == 0
    assert json.loads(out)["layers"][0]["shape"] == [int(shape.removeprefix("x=")[0]), 2]


def test_explain_takes_the_shape(opened, run) -> None:
    code, out, _ = run("explain size.onnx --output 2,0,1,2 --shape 3,1,5,6 --json")
    assert code == 0
    assert json.loads(out)["shape"] == [3, 1, 2, 3]


def test_certify_and_check_take_open_files(opened, run) -> None:
    """The property has two inputs: a batch of 1. With --shape the batch must fit it."""
    assert run("certify batch.onnx p.vnnlib --certificate proof.json --json")[0] == 0
    assert run("check-certificate proof.json batch.onnx p.vnnlib --json")[0] == 0
    assert run("check-certificate proof.json batch.onnx p.vnnlib --shape 1,2 --json")[0] == 0
    assert run("certify batch.onnx p.vnnlib --shape 1,2 --json")[0] == 0
    assert run("certify net.onnx p.vnnlib --certificate fixed.json --json")[0] == 0
    fixed, proof = (json.loads(Path(f"{name}.json").read_text()) for name in ("fixed", "proof"))
    assert fixed["network"] == proof["network"]  # the digest of a network that is bound is that of a closed one
    code, _, err = run("certify batch.onnx p.vnnlib --shape 3,2")
    assert (code, err.strip()) == (
        3,
        "specgrad: certify: the property has 2 inputs; the network's input has shape (3, 2)",
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("show size.onnx", "leaves axes 2, 3 of input x open; give --shape x=1,1,SIZE,SIZE, or --input"),
        ("certify size.onnx p.vnnlib", "--shape: the model leaves axes 2, 3 of input x open"),
        ("show batch.onnx --shape z=4,2", "--shape: there is no input 'z'; the model takes x"),
        ("show batch.onnx --shape x=4,two", "--shape: must be whole numbers with commas between"),
        ("show batch.onnx --shape x=0,2", "--shape: must be whole numbers with commas between"),
        ("show batch.onnx --shape 4,2 --input three.npy", "input x is to be (4, 2), and three.npy has shape (3, 2)"),
        ("show batch.onnx --shape 4,2 --shape 5,2", "--shape: input x is given twice"),
        ("show batch.onnx --shape 4,3", "input 'x' is declared as (None, 2); input_shapes gives (4, 3)"),
        ("show g.json --shape 4,2", "no size is open, so x cannot be (4, 2)"),
        ("show open.json --shape 4,3", "input x has size 2 in axis 1; got 3"),
        ("audit batch.onnx --recorded x.npz --shape 4,2", "--recorded FILE holds the inputs too"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_refused_in_one_line(opened, run, command: str, message: str) -> None:
    code, _, err = run(command)
    assert code in (2, 3)
    assert message in err
    assert len(err.strip().splitlines()) == 1
