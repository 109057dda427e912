"""The command as a user types it: exit codes, --json, errors in one line, reports that stand alone."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

from specgrad.cli.shared.options import box_limits  # noqa: E402


def specgrad(*args: str, folder: Path) -> tuple[int, str, str]:
    """A process that shares nothing with this one."""
    done = subprocess.run([sys.executable, "-m", "specgrad", *args], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A convolution, a maximum and an average over 1 x 1 x 6 x 6."""
    helper, folder = onnx.helper, tmp_path_factory.mktemp("cli")
    w = np.random.default_rng(0).normal(size=(2, 1, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["m"], name="second", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("AveragePool", ["m"], ["y"], name="third", kernel_shape=[2, 2], pads=[1, 0, 0, 0]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [info("x", onnx.TensorProto.FLOAT, [1, 1, 6, 6])],
        [info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.save(model, folder / "net.onnx")
    np.save(folder / "x.npy", np.ones((1, 1, 6, 6), np.float32))
    x = np.random.default_rng(1).normal(size=(1, 1, 6, 6)).astype(np.float32)
    x[0, 0, 3, 3] = np.nan
    np.save(folder / "nan.npy", x)
    return folder


@pytest.fixture
def folder(place: Path, monkeypatch) -> Path:
    monkeypatch.chdir(place)
    return place


def test_show(folder: Path, run) -> None:
    code, out, _ = specgrad("show", "net.onnx", "--json", folder=folder)
    data = json.loads(out)
    assert code == 0
    assert data["verdict"] == "ok"
    assert [(row["name"], row["shape"]) for row in data["layers"][1:3]] == [
        ("first", [1, 2, 6, 6]),
        ("second", [1, 2, 3, 3]),
    ]
    assert data["layers"][1]["multiply-adds"] == 2 * 36 * 9
    assert "second" in run("show net.onnx")[1]


def test_audit_is_ok(folder: Path, run) -> None:
    command = "audit net.onnx --runtime onnxruntime --input x.npy"
    code, out, _ = run(f"{command} --json")
    data = json.loads(out)
    assert code == 0
    assert data["verdict"] in ("exact", "rounding")
    assert [row["layer"] for row in data["layers"]] == ["first", "second", "third"]
    assert "whole model" in run(command)[1]


def test_audit_differs_and_its_report_stands_alone(folder: Path, run) -> None:
    """ONNX Runtime drops NaN in maxima."""
    code, out, _ = run("audit net.onnx --runtime onnxruntime --input nan.npy --html report.html --json")
    data = json.loads(out)
    assert code == 1
    assert data["verdict"] == "differs"
    assert data["first_divergent"]["layer"] == "second"
    assert "must be" in data["script"]
    page = (folder / "report.html").read_text()
    assert page.index("differs") < page.index("second")
    assert "<svg" in page
    assert not re.search(r"(src|href)=(?!\"#layer-)|https?://|<script", page)


def test_conformance_writes_scripts_that_run(folder: Path, run) -> None:
    command = "conformance --runtime onnxruntime --operator global_max_pool --scripts cases --count 16 --json"
    code, out, _ = run(command)
    assert code == 1
    assert json.loads(out)["findings"][0]["rule"] == "P1"
    (script,) = (folder / "cases").glob("*.py")
    shown = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    assert "must be" in shown


def test_conformance_is_ok(folder: Path, run) -> None:
    code, out, _ = run("conformance --runtime onnxruntime --operator linear --count 16 --html c.html")
    assert code == 0
    assert "linear" in out
    assert "None." in (folder / "c.html").read_text()


def test_explain(folder: Path, run) -> None:
    code, out, _ = run("explain net.onnx --output 0,1,0,0 --json")
    data = json.loads(out)
    assert code == 0
    assert data["divisor"].startswith("2 ")  # count_include_pad=0: two of the four cells are padding
    assert [t["reads"] for t in data["taps"]] == [None, None, [0, 0], [0, 1]]
    assert data["inputs"]["x"][2:] == [[0, 2], [0, 4]]  # two maxima of 2 x 2 over windows of 3 x 3
    assert "padding" in run("explain net.onnx --layer first --output 0,0,0,0")[1]


def test_runtimes_lists_what_is_installed(folder: Path, run) -> None:
    code, out, _ = run("conformance runtimes --json")
    assert code == 0
    assert json.loads(out)["runtimes"]["onnxruntime"]["onnxruntime"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("audit net.onnx", "give one of --runtime NAME, --recorded FILE, --outputs FILE"),
        ("audit none.onnx --runtime onnxruntime", "no file none.onnx"),
        ("audit net.onnx --runtime caffe", "unknown runtime 'caffe'"),
        ("audit net.onnx --runtime jax", "runtime jax runs no whole models"),
        ("audit net.onnx --runtime onnxruntime --input net.onnx", "is not an .npy file"),
        ("explain net.onnx --output 0,0", "output (0, 0) is no cell of third"),
        ("explain net.onnx --output 0,x", "--output must be whole numbers"),
        ("explain net.onnx --output 0 --layer fourth", "no layer 'fourth'; the layers are"),
        ("conformance --runtime torch --operator convolve", "unknown operator 'convolve'"),
        ("shwo", "No such command 'shwo'"),
    ],
)
def test_usage_errors_are_one_clear_line(folder: Path, run, command: str, words: str) -> None:
    code, out, err = run(command)
    assert code == 3, (out, err)
    assert words in err
    assert "Traceback" not in err


def test_every_command_has_help_with_an_example(folder: Path, run) -> None:
    for name in (
        "show",
        "audit",
        "conformance",
        "explain",
        "conformance runtimes",
        "certify",
        "check-certificate",
        "tolerance",
        "compare",
        "tiles",
        "show window",
        "profile",
        "tolerance accuracy",
        "conformance vectors",
    ):
        code, out, _ = run(f"{name} --help")
        assert code == 0
        assert f"Example: specgrad {name}" in out
        assert "--json" in out


def test_a_missing_package_is_named(folder: Path) -> None:
    text = "import sys; sys.modules['flint'] = None; from specgrad.cli.main import main; main()"
    command = [sys.executable, "-c", text, "check-certificate", "x.json", "net.onnx"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr == "specgrad: certificates need python-flint: pip install 'specgrad[balls]'\n"


@pytest.mark.parametrize("size", [*(f"0.{k}" for k in range(1, 10)), "1/3", "2/3", "1e-400", "16777217.1"])
def test_a_box_is_not_narrower_than_what_is_typed(size: str) -> None:
    """And no wider than to the next float: -0.3 and 0.3, of which the nearest floats lie inside, among others."""
    low, high = box_limits(f"-{size},{size}")
    assert low == -high
    assert Fraction(math.nextafter(high, 0)) < Fraction(size) <= Fraction(high)
