"""specgrad tolerance: what it prints, how it ends, and that what it prints is what Python proves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")

from specgrad.check import tolerance  # noqa: E402
from specgrad.rounding import Arithmetic  # noqa: E402

X = np.float32([[0.3, 0.7]])


@pytest.fixture
def here(folder: Path) -> Path:
    np.save("x.npy", X)
    np.savez("x.npz", x=X)
    np.savez("wrong.npz", y=X)
    np.save("large.npy", np.full((1, 2), 3e38, np.float32))
    np.save("several.npy", np.float32([[0.3, 0.7], [3, 0.1], [-1, 3]]))
    return folder


@pytest.mark.parametrize("given", ["x.npy", "x.npz"])
def test_the_number_is_that_of_python(given: str, here, run) -> None:
    code, out, err = run(f"tolerance net.onnx --input {given} --json")
    data, proven = json.loads(out), tolerance("net.onnx", X)
    assert (code, err, data["verdict"]) == (0, "", "proven")
    assert data["tolerance"] == proven.tolerance > 0
    assert data["outputs"][0]["tolerance"] == proven.tolerances[0].tolist()
    assert data["layers"] == dict(proven.layers)
    assert (data["rtol"], data["atol"]) == (proven.rtol, proven.atol)


def test_the_text_says_what_is_proven(here, run) -> None:
    code, out, _ = run("tolerance net.onnx --input x.npy")
    assert code == 0
    assert out.startswith("proven  tolerance ")
    assert float(out.split()[2]) >= tolerance("net.onnx", X).tolerance  # a printed number is proven too
    (pasted,) = re.findall(r"^    (numpy\.testing\.assert_allclose\(a, b, rtol=\S+, atol=\S+\))  # proven$", out, re.M)
    a = np.maximum(X @ np.float32([[1, 1], [1, -1]]), 0)
    eval(pasted, {"numpy": np, "a": a, "b": a.astype(np.float64)})
    assert "for every execution with" in out


def test_what_overflows_is_unknown_2_and_null(here, run) -> None:
    """Neither proven nor estimated: float64 holds the outputs, float32 does not."""
    code, out, _ = run("tolerance net.onnx --input large.npy --json")
    data = json.loads(out)
    assert (code, data["verdict"], data["tolerance"], data["atol"]) == (2, "unknown", None, None)
    code, out, _ = run("tolerance net.onnx --input large.npy")
    assert code == 2
    assert out.startswith("unknown  net.onnx\nNot proven: nothing is proven of h")


def test_several_points(here, run) -> None:
    data = json.loads(run("tolerance net.onnx --input several.npy --points --json")[1])
    each = [tolerance("net.onnx", x[None]) for x in np.load("several.npy")]
    assert data["points"] == 3
    assert data["tolerance"] == max(t.tolerance for t in each)
    assert data["outputs"][0]["tolerance"] == [t.tolerances[0].tolist() for t in each]
    code, _, err = run("tolerance net.onnx --input several.npy")
    assert code == 3
    assert "--points" in err


def test_a_depth_is_printed_as_the_users_statement(here, run) -> None:
    out = run("tolerance net.onnx --input x.npy --depth 1")[1]
    assert "(float32, fused, sums at most 1 rounding deep)" in out
    assert "note: that no term of a sum meets more than 1 rounding is your statement about the runtime" in out
    assert "a term meets at most 1 rounding per sum" in out


@pytest.mark.parametrize(
    ("options", "arithmetic"),
    [
        ("--execution node", Arithmetic(execution="node")),
        ("--operands tf32", Arithmetic(operands="tf32")),
        ("--operands bfloat16", Arithmetic(operands="bfloat16")),
        ("--dtype float16", Arithmetic("float16")),
        ("--dtype float16 --accumulate float32", Arithmetic("float16", accumulate="float32")),
        ("--dtype float64", Arithmetic("float64")),
        ("--stored h", None),
    ],
)
def test_classes_of_executions(options: str, arithmetic: Arithmetic | None, here, run) -> None:
    data = json.loads(run(f"tolerance net.onnx --input x.npy {options} --json")[1])
    stored = () if arithmetic else ("h",)
    assert data["tolerance"] == tolerance("net.onnx", X, arithmetic=arithmetic, stored=stored).tolerance


def test_arrays_under_other_names_are_refused(here, run) -> None:
    code, _, err = run("tolerance net.onnx --input wrong.npz")
    assert (code, err) == (3, "specgrad: --input: wrong.npz must hold arrays x; it holds y\n")


def test_what_has_no_meaning_is_refused_by_name(here, run) -> None:
    model = onnx.load("net.onnx")
    model.graph.node[1].op_type = "Erf2"
    model.graph.node[1].domain = "mine"
    model.opset_import.append(onnx.helper.make_opsetid("mine", 1))
    onnx.save(model, "unknown.onnx")
    code, _, err = run("tolerance unknown.onnx --input x.npy")
    assert code == 3
    assert "Erf2" in err


def test_numbers_that_nobody_gave_are_named(here, run) -> None:
    assert "note: inputs: normal numbers, 1x2, seed 0" in run("tolerance net.onnx")[1]
    assert "seed 0" in run("tolerance g.json --json")[1]


# --- node tests of onnx -----------------------------------------------------------------------------------------------


def test_node_tests_are_written_cell_by_cell(node_tests, folder: Path, run) -> None:
    code, out, err = run("tolerance node --onnx-node-tests nodes.json --json")
    written, printed = json.loads(Path("nodes.json").read_text()), json.loads(out)
    assert (code, err, printed["verdict"], written["verdict"]) == (1, "", "findings", "findings")
    outputs = {test["name"]: test["outputs"][0] for test in written["tests"]}
    assert (outputs["test_mul"]["state"], outputs["test_hardmax"]["state"]) == ("proven", "not read")
    assert outputs["test_mul"]["exact"] == pytest.approx([0.01, 0.04])
    assert 0 < outputs["test_mul"]["radius"][0] < 1e-9
    assert "exact" not in printed["tests"][0]["outputs"][0]
    assert written["counts"]["all"]["outside"] == 1


def test_node_tests_in_words(node_tests, folder: Path, run) -> None:
    code, out, err = run("tolerance node --onnx-node-tests nodes.json")
    assert (code, err) == (1, "")
    table = out[: out.index("A pair is proven")]
    assert max(map(len, table.splitlines())) <= 80
    assert "test_mul" in out
    assert "not read: 1 tests" in out
    assert run("tolerance node --onnx-node-tests nodes.json")[0] == 1  # our own file is written again
    assert run("tolerance node --onnx-node-tests net.onnx")[0] == 3  # that of others is not
    code, out, _ = run("tolerance node --onnx-node-tests late.json --seconds 0")
    assert (code, Path("late.json").exists()) == (2, False)


def test_a_model_or_node_tests(folder: Path, run) -> None:
    code, _, err = run("tolerance")
    assert (code, "--onnx-node-tests" in err) == (3, True)
    assert run("tolerance net.onnx --onnx-node-tests nodes.json")[0] == 3  # no folder of tests
