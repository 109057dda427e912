"""specgrad tiles: what it prints, how it ends, at sizes that no machine holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import specgrad as sg

pytest.importorskip("typer")
onnx = pytest.importorskip("onnx")
SHAPE = "x=1,3,100000,100000"


@pytest.fixture
def model(folder: Path) -> str:
    """conv 3x3, max pool 2, twice as large again; height and width are open."""
    helper, info = onnx.helper, onnx.helper.make_tensor_value_info
    constants = [("w", np.ones((8, 3, 3, 3), np.float32)), ("scales", np.array([1, 1, 2, 2], np.float32))]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="stem", pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["a"], ["b"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["b", "", "scales"], ["y"], name="up", mode="nearest"),
    ]
    ends = [info("x", 1, [1, 3, "h", "w"])], [info("y", 1, [1, 8, "h2", "w2"])]
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in constants]
    graph = helper.make_graph(nodes, "g", *ends, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), "u.onnx")
    return "u.onnx"


def test_a_plan_at_sizes_that_no_machine_holds(model: str, run) -> None:
    code, out, err = run(f"tiles {model} --shape {SHAPE} --tile 1000")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "ok  u.onnx",
        "x axis 2: 1 before, 1 after, aligned to 2",
        "x axis 3: 1 before, 1 after, aligned to 2",
        "10,000 tiles of 1000x1000 cells of the first output, 9 kinds",
        "2,160,000,000,000 multiply-adds, 1 times those at once",
        out.splitlines()[-1],
    ]
    assert out.splitlines()[-1].endswith(", at once 440 GB")


def test_memory_chooses_the_tile(model: str, run) -> None:
    code, out, _ = run(f"tiles {model} --shape {SHAPE} --memory 1GB --json")
    plan = json.loads(out)["plan"]
    assert code == 0
    assert 0.99e9 < plan["worker_bytes"] <= 1e9
    assert plan["peak_bytes"] < 0.72e9
    less = json.loads(run(f"tiles {model} --shape {SHAPE} --memory 1GB --engine jax --json")[1])["plan"]
    assert less["worker_bytes"] <= 1e9
    assert run(f"tiles {model} --shape {SHAPE} --memory 1GB --engine tpu")[0] == 3
    half = json.loads(run(f"tiles {model} --shape {SHAPE} --memory 1GB --dtype float16 --json")[1])["plan"]
    assert half["size"][0] > 1.3 * plan["size"][0]


def test_layers_that_read_everything_end_with_1(folder: Path, run) -> None:
    def net(x):
        with sg.scope("norm"):
            return sg.group_norm(x, 1)

    sg.save(sg.trace(net, (1, 2, 8, 8)), folder / "norm.json")
    code, out, _ = run("tiles norm.json --tile 4")
    assert code == 1
    assert "norm.group_norm: sum reads all of axis 3 and 4 of 1x1x2x8x8" in out
    data = json.loads(run("tiles norm.json --tile 4 --json")[1])
    assert (data["verdict"], data["plan"]) == ("reads everything", None)
    assert data["reads_everything"][0]["layer"] == "norm.group_norm"
    code, out, _ = run("tiles norm.json --tile 4 --passes")
    assert code == 0
    assert "after 2 passes over the image" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--tile 4,4,4", "one whole number per axis (2, 3) of the output"),
        ("--tile -4", "must be whole numbers with commas between"),
        ("--memory 4XB", "must be a number of bytes, as 800MB or 4GB"),
        ("--memory 1KB", "smallest aligned tile (2, 2) a worker takes"),
        ("--tile 4 --memory 4GB", "give --tile or --memory, not both"),
    ],
)
def test_what_is_wrong_is_said(model: str, run, options: str, words: str) -> None:
    code, _, err = run(f"tiles {model} --shape {SHAPE} {options}")
    assert code == 3
    assert words in err


def test_axes_are_given(folder: Path, run) -> None:
    w = np.ones((2, 3, 3, 3))
    net = sg.channels_last(lambda x: sg.conv(w, None, x, padding=1), rank=2)
    sg.save(sg.trace(net, (1, 12, 10, 3)), folder / "last.json")
    assert run("tiles last.json")[0] == 1
    code, out, _ = run("tiles last.json --axes 1,2")
    assert code == 0
    assert "x axis 1: 1 before, 1 after, aligned to 1" in out


def test_an_open_size_is_asked_for(model: str, run) -> None:
    assert "give --shape x=1,3,SIZE,SIZE" in run(f"tiles {model}")[2]
