"""certify and check-certificate as commands: what "valid" says, and how each ends."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import specgrad as sg

pytest.importorskip("typer")
pytest.importorskip("flint")
pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

NEAR = "--input one.npy --label 0"


@pytest.fixture
def place(folder: Path) -> Path:
    np.save("one.npy", np.array([[1, 0.5]], np.float32))
    return folder


def test_valid_says_what_was_proven(place: Path, run) -> None:
    assert run(f"certify net.onnx {NEAR} --eps 1/4 --certificate new.json")[0] == 0
    code, out, _ = run(f"check-certificate new.json net.onnx {NEAR} --eps 1/4")
    assert (code, out.splitlines()[0].split()[0]) == (0, "valid")
    digest = json.loads((place / "new.json").read_text())["network"]
    for words in (
        f"network: net.onnx, digest {digest}",
        "property: within 1/4 of one.npy, cell by cell, output 0 stays the largest",
        "X_0 from 0.75 to 1.25, X_1 from 0.25 to 0.75",
        "Y_0 - Y_1 <= 0 never happens",
        "for every execution with",
        "format: float32",
    ):
        assert words in out, words


def test_no_certificate_is_2_though_it_holds(place: Path, run) -> None:
    code, out, _ = run(f"certify net.onnx {NEAR} --eps 1/4 --operands tf32 --certificate new.json --json")
    data = json.loads(out)
    assert (code, data["verdict"], data["certificate"]["file"]) == (2, "holds", None)
    assert "operands must be None in a certificate; got 'tf32'" in data["certificate"]["reason"]
    assert not (place / "new.json").exists()
    assert run(f"certify net.onnx {NEAR} --eps 1/4 --operands tf32")[0] == 0


def test_no_certificate_of_what_is_unknown_or_broken(place: Path, run) -> None:
    code, out, _ = run("certify net.onnx hard.vnnlib --seconds 0 --certificate new.json")
    assert (code, "no certificate: only what holds has one" in out) == (2, True)
    assert run(f"certify net.onnx {NEAR} --eps 3/4 --certificate new.json")[0] == 1


def test_arrays_that_are_not_there_are_3(place: Path, run) -> None:
    assert run(f"certify net.onnx {NEAR} --eps 1/4 --certificate new.json")[0] == 0
    (place / "new.safetensors").unlink()
    code, _, err = run(f"check-certificate new.json net.onnx {NEAR} --eps 1/4")
    assert (code, err) == (3, "specgrad: new.safetensors: No such file or directory\n")


def test_an_open_batch_is_one(place: Path, run) -> None:
    model = onnx.load("net.onnx")
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    onnx.save(model, "open.onnx")
    assert run(f"certify open.onnx {NEAR} --eps 1/4 --certificate new.json")[0] == 0
    assert run(f"check-certificate new.json open.onnx {NEAR} --eps 1/4")[0] == 0
    assert run("certify open.onnx p.vnnlib")[0] == 0
    code, out, _ = run(f"certify open.onnx {NEAR} --eps 3/4 --json")
    assert (code, "onnxruntime" in json.loads(out)["counterexample"]["confirmed"]) == (1, True)


def test_the_largest_eps(place: Path, run) -> None:
    """y_0 - y_1 = 2 * x_1 while x_0 > x_1: broken from 1/2 on."""
    code, out, _ = run(f"certify net.onnx {NEAR} --largest --seconds 20 --certificate new.json --json")
    data = json.loads(out)
    assert (code, data["verdict"], data["certificate"]["file"]) == (0, "holds", "new.json")
    assert 0.3 < data["proven"] < 0.5 <= data["violated"] < 0.51
    assert data["gap"] == pytest.approx(data["violated"] - data["proven"])
    y = data["counterexample"]["y"]
    assert y[1] >= y[0]
    assert run(f"check-certificate new.json net.onnx {NEAR} --eps {data['proven']}")[0] == 0
    assert run(f"check-certificate new.json net.onnx {NEAR} --eps {data['violated']}")[0] == 1
    out = run(f"certify net.onnx {NEAR} --largest")[1]
    assert all(words in out for words in ("proven eps: 0.49", "violated eps: 0.50", "gap: 0.0"))


@pytest.mark.parametrize("norm", ["1", "2"])
def test_the_largest_eps_of_a_ball(place: Path, run, norm: str) -> None:
    """The distance is 1/2 in every norm, straight along X_1."""
    code, out, _ = run(f"certify net.onnx {NEAR} --largest --norm {norm} --seconds 20 --json")
    data = json.loads(out)
    assert code == 0
    assert 0.49 < data["proven"] < 0.5 <= data["violated"] < 0.51


def test_several_inputs_one_file_each(place: Path, run) -> None:
    """y = (x + z, x - z) around x = 1, z = 1/2: z may move by 1/2."""
    sg.save(sg.trace(lambda x, z: sg.concat([x + z, x - z], 0), (1,), (1,)), "two.json")
    np.save("z.npy", np.float32([0.5]))
    np.save("one_cell.npy", np.float32([1.0]))
    around = "certify two.json --input one_cell.npy --input z.npy --label 0"
    assert run(f"{around} --eps 0.49")[0] == 0
    assert run(f"{around} --eps 0.51")[0] == 1
    data = json.loads(run(f"{around} --largest --norm 2 --seconds 20 --json")[1])
    assert 0.49 < data["proven"] < 0.5 <= data["violated"] < 0.51
    code, _, err = run(f"{around} --input z.npy --eps 0.49")
    assert (code, "x must hold arrays x, z" in err) == (3, True)


@pytest.mark.parametrize("rest", ["p.vnnlib --largest", f"{NEAR} --largest --vnncomp out.txt", "--largest --label 0"])
def test_largest_needs_an_input_and_a_label(place: Path, run, rest: str) -> None:
    assert run(f"certify net.onnx {rest}")[0] == 3


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
def test_the_norm_of_eps(place: Path, run, norm: str) -> None:
    """Y_0 - Y_1 = 2*X_1 around (1, 1/2): the distance is 1/2 in every norm."""
    assert run(f"certify net.onnx {NEAR} --norm {norm} --eps 0.49")[0] == 0
    assert run(f"certify net.onnx {NEAR} --norm {norm} --eps 0.51")[0] == 1


@pytest.mark.parametrize(
    "rest", ["--norm 3", "--norm 2 --largest --certificate new.json", "--norm 1 --certificate new.json"]
)
def test_what_knows_boxes_alone_says_so(place: Path, run, rest: str) -> None:
    code, _, err = run(f"certify net.onnx {NEAR} --eps 0.25 {rest}")
    assert (code, "--norm" in err) == (3, True)


def test_functions_better_than_measured_are_assumed_or_refused(place: Path, run) -> None:
    """A certificate that declares tanh off by 2 units, of which 11 were measured."""
    from specgrad.bounds import prove
    from specgrad.rounding import Arithmetic

    graph = sg.trace(lambda x: sg.tanh(sg.linear(np.float32([[1, 1], [1, -1]]), None, x)), (1, 2))
    sg.save(graph, place / "curved.json")
    asked = (np.load("one.npy"), 0, 0.25)
    prove(graph, asked, arithmetic=Arithmetic(ulps={"tanh": 2.0})).save(place / "better.json")
    command = f"check-certificate better.json curved.json {NEAR} --eps 1/4"
    code, out, _ = run(command)
    assert (code, "tanh is declared off by at most 2 u of the result, and was measured with 11 u" in out) == (1, True)
    assert "--assume-functions" in out
    code, out, _ = run(f"{command} --assume-functions")
    assert (code, "a computed tanh is off by at most 2 u of the result" in out) == (0, True)
    code, out, _ = run(f"{command} --assume-functions --json")
    assert (code, json.loads(out)["arithmetic"]["functions"]) == (0, {"tanh": ["2", "y"]})


def test_unknown_says_what_may_hold(place: Path, run) -> None:
    """At the border: x_1 down to 0 gives two equal outputs, and rounding decides."""
    code, out, _ = run(f"certify net.onnx {NEAR} --eps 4999999/10000000 --seconds 1 --json")
    data = json.loads(out)
    assert (code, data["verdict"]) == (2, "unknown")
    assert data["reason"].endswith("a smaller --eps may hold; --largest searches the largest one that does")


def test_networks_of_a_query_belong_to_verify(place: Path, run) -> None:
    code, _, err = run("certify p.vnnlib --network N=net.onnx")
    assert (code, "certify takes one network, before the property" in err, "specgrad verify" in err) == (3, True, True)
