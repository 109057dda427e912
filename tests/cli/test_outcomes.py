"""How every command ends: the exit code, one line on stderr, strict JSON under --json."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
cli = pytest.importorskip("specgrad.cli.main")

PROPERTY = """(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= X_1 0.25)) (assert (<= X_1 1)) (assert (<= Y_0 Y_1))"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """relu(x @ [[1, 1], [1, -1]]), a property that holds, and files of no format."""
    helper, info = onnx.helper, onnx.helper.make_tensor_value_info
    w = onnx.numpy_helper.from_array(np.array([[1, 1], [1, -1]], np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="h"), helper.make_node("Relu", ["h"], ["y"], name="y")]
    ends = [info("x", 1, [1, 2])], [info("y", 1, [1, 2])]
    file = helper.make_model(
        helper.make_graph(nodes, "g", *ends, [w]), opset_imports=[helper.make_opsetid("", 22)], ir_version=10
    )
    onnx.save(file, tmp_path / "net.onnx")
    (tmp_path / "p.vnnlib").write_text(PROPERTY)
    for name in ("bad.onnx", "bad.json", "bad.npy", "bad.vnnlib"):
        (tmp_path / name).write_bytes(b"\xff\x00(no format has this")
    (tmp_path / "c.json").write_text("{}")
    (tmp_path / "c.safetensors").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def run(command: str, capsys, monkeypatch) -> tuple[int, str, str]:
    """In this process, as `specgrad COMMAND`; under --json the output must be one strict object with a verdict."""
    monkeypatch.setattr(sys, "argv", ["specgrad", *command.split()])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    if "--json" in command.split():
        assert isinstance(json.loads(out, parse_constant=refuse_constant)["verdict"], str)
    return int(end.value.code or 0), out, err


GOOD = {
    "show": "show net.onnx",
    "audit": "audit net.onnx --runtime onnxruntime",
    "conformance": "conformance --runtime onnxruntime --operator relu --count 8",
    "explain": "explain net.onnx --output 0,0",
    "runtimes": "runtimes",
    "certify": "certify net.onnx p.vnnlib --seconds 10",
    "check-certificate": "check-certificate c.json net.onnx p.vnnlib",
}
WRONG_FILES = {
    "show": ("show {}.onnx", "show {}.json", "show net.onnx --input {}.npy"),
    "audit": ("audit {}.onnx --runtime onnxruntime", "audit net.onnx --runtime onnxruntime --input {}.npy"),
    "explain": ("explain {}.onnx --output 0,0", "explain {}.json --output 0"),
    "certify": (
        "certify {}.onnx p.vnnlib",
        "certify {}.json p.vnnlib",
        "certify net.onnx {}.vnnlib",
        "certify net.onnx --input {}.npy --label 0 --eps 0.1",
    ),
    "check-certificate": ("check-certificate c.json {}.onnx p.vnnlib", "check-certificate c.json net.onnx {}.vnnlib"),
}
FILES = [command.format(name) for row in WRONG_FILES.values() for command in row for name in ("bad", "none")]
USAGE = [f"{command} --colour red" for command in GOOD.values()] + ["shwo", "audit net.onnx"]
USAGE += ["check-certificate none.json net.onnx p.vnnlib"]
TIME_OUTS = ["audit net.onnx --runtime onnxruntime --seconds 0", "certify net.onnx p.vnnlib --seconds 0"]
INSIDE: dict[str, tuple[Any, str]] = {
    "show": (cli, "as_graph"),
    "audit": (cli, "run_audit"),
    "conformance": (cli, "run_conformance"),
    "explain": (cli, "run_explain"),
    "runtimes": (cli, "finish"),
    "certify": (import_module("specgrad.bounds.certify"), "certify"),
    "check-certificate": (import_module("specgrad.bounds.certificate"), "check_file"),
}


def one_line(err: str) -> bool:
    return err.startswith("specgrad: ") and err.count("\n") == 1 and err.endswith("\n")


@pytest.mark.parametrize("json_too", ["", " --json"])
@pytest.mark.parametrize("command", FILES + USAGE)
def test_usage_and_unreadable_files_are_3(command: str, json_too: str, folder, capsys, monkeypatch) -> None:
    code, out, err = run(command + json_too, capsys, monkeypatch)
    assert (code, one_line(err)) == (3, True), (out, err)
    assert not json_too or json.loads(out)["verdict"] == "error"


@pytest.mark.parametrize("json_too", ["", " --json"])
@pytest.mark.parametrize("command", TIME_OUTS)
def test_a_time_out_is_2(command: str, json_too: str, folder, capsys, monkeypatch) -> None:
    assert run(command + json_too, capsys, monkeypatch)[0] == 2


@pytest.mark.parametrize("json_too", ["", " --json"])
@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(("error", "code", "verdict"), [(RuntimeError("lost\n\x1b[2J"), 4, "error"),
                                                        (KeyboardInterrupt(), 2, "cannot tell")])  # fmt: skip
def test_a_crash_inside_is_4_and_an_interrupt_is_2(
    name: str, error: BaseException, code: int, verdict: str, json_too: str, folder, capsys, monkeypatch
) -> None:
    def fail(*args: Any, **named: Any) -> None:
        raise error

    monkeypatch.setattr(*INSIDE[name], fail)
    found, out, err = run(GOOD[name] + json_too, capsys, monkeypatch)
    assert (found, one_line(err), "\x1b" in err) == (code, True, False), (out, err)
    assert not json_too or json.loads(out)["verdict"] == verdict


def test_debug_shows_the_traceback_wherever_it_stands(folder, capsys, monkeypatch) -> None:
    monkeypatch.setattr(cli, "as_graph", lambda *_: 1 // 0)
    for command in ("--debug show net.onnx", "show net.onnx --debug"):
        code, _, err = run(command, capsys, monkeypatch)
        assert code == 4
        assert "Traceback" in err
        assert err.splitlines()[-1].startswith("specgrad: unexpected ZeroDivisionError")
    assert "Traceback" not in run("show net.onnx", capsys, monkeypatch)[2]


@pytest.mark.parametrize("json_too", ["", " --json"])
@pytest.mark.parametrize("name", [n for n in GOOD if n != "check-certificate"])
def test_what_is_right_is_0_and_strict_json(name: str, json_too: str, folder, capsys, monkeypatch) -> None:
    code, out, err = run(GOOD[name] + json_too, capsys, monkeypatch)
    assert code == 0, (out, err)


@pytest.mark.parametrize("json_too", ["", " --json"])
def test_audit_of_a_wrong_exact_operator_is_a_verdict(json_too: str, folder, capsys, monkeypatch) -> None:
    """A maximum allows no error at all, so a wrong one uses infinitely much of it; ONNX Runtime drops NaN there."""
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2])
    ends = [info("x", 1, [1, 1, 4])], [info("y", 1, None)]
    opset = [onnx.helper.make_opsetid("", 22)]
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph([node], "g", *ends), opset_imports=opset, ir_version=10), "m.onnx"
    )
    np.save("x.npy", np.array([[[1, np.nan, 3, 2]]], np.float32))
    command = f"audit m.onnx --runtime onnxruntime --input x.npy{json_too}"
    code, out, err = run(command, capsys, monkeypatch)
    assert code == 1, err
    assert "differs" in out
    bar = cli.screen.bar
    assert bar(np.inf) == bar(2.0) == bar(1.0) == "█" * 12
