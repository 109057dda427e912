"""specgrad preserve: exit codes, the record and the page that it leaves, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("torch")
pytest.importorskip("onnx")


@pytest.mark.parametrize(
    ("options", "code", "verdict"),
    [
        ("data.npz", 0, "proven"),
        ("data.npz --eps 1", 1, "differs"),
        ("ties.npz", 2, "not proven"),
        ("nan.npz", 2, "not proven"),
        ("data.npz --decision threshold:0.3 --execution node --stored h", 0, "proven"),
        ("data.npz --decision threshold:0.1 --dtype float16 --accumulate float32", 0, "proven"),
    ],
)
def test_the_exit_code_says_the_verdict(options: str, code: int, verdict: str, folder: Path, run) -> None:
    ended, out, err = run(f"preserve net.onnx {options} --runtime none --json")
    data = json.loads(out)
    assert (ended, data["verdict"]) == (code, verdict), err
    assert data["samples"] == len(data["records"]) == data["proven"] + data["not_proven"] + data["differ"]
    assert run(f"preserve net.onnx {options} --runtime none")[1].startswith(verdict)


def test_a_record_and_a_page_are_left(folder: Path, run) -> None:
    command = "preserve net.onnx ties.npz --runtime none --checkpoint r.jsonl --html p.html"
    first = run(command)
    lines = Path("r.jsonl").read_bytes()
    assert first[0] == 2
    assert run(command) == first
    assert Path("r.jsonl").read_bytes() == lines
    assert "Margin over tolerance" in Path("p.html").read_text()
    assert "argmax of net.onnx" in Path("p.html").read_text()
    code, _, err = run(command.replace("ties", "data"))
    assert (code, "another run" in err) == (3, True)
    Path("r.jsonl").write_text("mine\n")
    assert run(command)[0] == 3
    assert Path("r.jsonl").read_text() == "mine\n"


def test_margins_and_executions_are_printed(folder: Path, run) -> None:
    out = run("preserve net.onnx data.npz --eps 1 --runtime none")[1]
    assert "two executions that differ" in out
    assert "torch at an input within eps: decides" in out
    assert "on every input within 1 of the sample" in out
    plain = run("preserve net.onnx data.npz --runtime none")[1]
    assert "nearest of the proven: sample" in plain


def test_arrays_are_found_by_name_or_named(folder: Path, run) -> None:
    np.savez("other.npz", pictures=np.ones((2, 2), np.float32), labels=np.zeros(2))
    code, _, err = run("preserve net.onnx other.npz --runtime none")
    assert (code, "must have arrays x; got pictures, labels" in err) == (3, True)
    assert run("preserve net.onnx other.npz --array pictures --runtime none")[0] in (0, 2)
    np.save("plain.npy", np.ones((2, 2), np.float32))
    assert run("preserve net.onnx plain.npy --runtime none")[0] in (0, 2)
