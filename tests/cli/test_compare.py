"""specgrad compare: what it prints, how it ends, and that what it prints is what Python proves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.check import compare

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
pytest.importorskip("typer")

W = np.array([[1, 1], [1, -1]], np.float32)


@pytest.fixture
def files(folder: Path) -> Path:
    """net.onnx (relu(x @ W)) in other words, with another weight, and with another output."""
    sg.save(sg.trace(lambda x: sg.maximum(sg.linear(2 * W.T.copy(), None, x) / 2, 0), (1, 2)), folder / "words.json")
    other = W.copy()
    other[1, 1] = -1.5
    sg.save(sg.trace(lambda x: sg.relu(sg.matmul(x, other)), (1, 2)), folder / "other.json")
    sg.save(sg.trace(lambda x: sg.relu(sg.matmul(x, W))[:, :1], (1, 2)), folder / "fewer.json")
    np.save(folder / "one.npy", np.array([[3, 1]], np.float32))
    return folder


@pytest.mark.quick
def test_the_same_function_is_0(files: Path, run: Any) -> None:
    code, out, err = run("compare net.onnx words.json --input one.npy")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == ["same  net.onnx  words.json", "by rewriting over exact numbers"]
    assert "over real numbers, for inputs x 1x2" in out
    assert run("compare net.onnx net.onnx")[1].splitlines()[1] == "node for node, weights bit for bit"


def test_another_function_is_1_with_an_input_and_a_layer(files: Path, run: Any) -> None:
    code, out, _ = run("compare net.onnx other.json --input one.npy --eps 1/4 --json")
    data = json.loads(out)
    assert (code, data["verdict"], data["witness"]) == (1, "differs", [[[3.0, 1.0]]])
    (point,) = data["points"]
    assert (point["index"], point["value"], point["within_rounding"]) == ([0, 1], 2.0, False)
    assert 0.4999 < point["lower"] <= 0.5 <= point["upper"] < 0.5001  # relu(3 - 1) and relu(3 - 1.5)
    box = data["box"]
    assert box["witness_difference"] <= 0.625 <= box["max_difference"] < 0.6251  # half of x1, which is at most 5/4
    assert box["witness_difference"] > 0.6249
    assert box["max_difference"] < box["max_execution_difference"] < box["max_difference"] + 1e-5
    assert (data["divergent_layers"][0], data["first_divergent_value"], data["max_difference"]) == (
        "h",
        "h",
        box["max_difference"],
    )
    assert data["deployment"]
    assert data["weights"]["max_difference"] == pytest.approx(0.5)
    text = run("compare net.onnx other.json --input one.npy")[1]
    assert "beyond rounding of float32" in text
    assert "they part, in form, at h and" in text


def test_a_box_in_words(files: Path, run: Any) -> None:
    """Exact outputs and executions are two claims, and the class of the second is named."""
    code, out, _ = run("compare net.onnx other.json --input one.npy --eps 1/4 --low 0 --high 3 --execution node")
    assert code == 1
    assert "in the box: exact outputs are at most 0.625" in out
    assert "in the box: executions (float32, by node) of both are at most 0.625" in out
    assert "for every execution with" in out
    code, out, _ = run("compare net.onnx words.json --low 0 --high 1 --json")
    data = json.loads(out)
    assert (code, data["box"]["max_difference"], data["box"]["how"]) == (0, 0.0, "one function")
    assert 0 < data["box"]["max_execution_difference"] < 1e-5
    assert run("compare net.onnx words.json --low 0")[0] == 3


def test_other_outputs_are_1(files: Path, run: Any) -> None:
    code, out, _ = run("compare net.onnx fewer.json --json")
    assert (code, json.loads(out)["method"]) == (1, "the outputs are (1, 2) and (1, 1)")


def test_what_nobody_shows_is_2(files: Path, run: Any) -> None:
    sg.save(sg.trace(sg.abs, (1, 2)), files / "abs.json")
    sg.save(sg.trace(lambda x: sg.relu(x) + sg.relu(-x), (1, 2)), files / "relus.json")
    code, out, _ = run("compare abs.json relus.json --json")
    data = json.loads(out)
    assert (code, data["verdict"], data["max_difference"], data["witness"]) == (2, "cannot tell", 0.0, None)


def test_a_saved_graph_with_open_sizes_is_compared_as_python_compares_it(folder: Path, run: Any) -> None:
    """What it leaves to its callers is said: the command hands on the graph that was saved, not one at these sizes."""
    graphs = [sg.trace(f, ("N", 2)) for f in (sg.relu, lambda x: sg.maximum(x, 0))]
    for graph, name in zip(graphs, ("first.json", "second.json"), strict=True):
        sg.save(graph, folder / name)
    x = np.array([[3, 1]], np.float32)
    np.save(folder / "one.npy", x)
    printed = json.loads(run("compare first.json second.json --input one.npy --json")[1])
    proven = compare(*graphs, x)
    assert (printed["verdict"], printed["method"]) == (proven.verdict, proven.method)
    assert "the sizes x (1, 2)" in proven.method


def test_of_a_module_no_interface_is_compared(folder: Path, run: Any) -> None:
    """A module does not say what its inputs are called."""
    (folder / "nets_to_compare.py").write_text("import torch\ndef make():\n    return torch.nn.ReLU()\n")
    sg.save(sg.trace(lambda image: sg.relu(image), ("N", 2)), folder / "graph.json")
    np.save(folder / "one.npy", np.array([[3, 1]], np.float32))
    code, out, err = run("compare nets_to_compare:make graph.json --input one.npy --json")
    data = json.loads(out)
    assert (code, data["verdict"], data["interface"]) == (0, "same", []), err
