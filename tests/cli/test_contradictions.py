"""An engine that computes wrongly, planted: no command takes its word, and each ends with code 4 and a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from specgrad.bounds.search.network.pgd_attack import DeployedNetwork

COMMANDS = [
    "certify net.onnx p.vnnlib --seconds 5",
    "certify net.onnx --input one.npy --label 0 --eps 1/100 --seconds 5",
    "certify net.onnx --input one.npy --label 0 --largest --seconds 5",
    "verify p.vnnlib --network net.onnx --timeout 5",
    "certify net.onnx p.vnnlib --seconds 5 --html new.html --vnncomp new.txt --counterexample new.ce",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_engine_is_our_fault(command: str, folder: Path, run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outputs are larger by 100, and the other way round: the property then looks broken everywhere."""
    np.save("one.npy", np.array([[1, 0.5]], np.float32))
    output = DeployedNetwork._output
    monkeypatch.setattr(DeployedNetwork, "_output", lambda self, x: output(self, x).flip(0) + 100)
    code, out, err = run(f"{command} --json")
    assert (code, json.loads(out)["verdict"]) == (4, "error")
    assert err.startswith("specgrad: torch computes 10")
    assert err.endswith(" is proven of every execution at the same input. One of them is false: a fault of specgrad, "
                        "please report it\n")  # fmt: skip
    assert not [path.name for path in Path().glob("new.*") if path.suffix in (".html", ".txt", ".ce")]


def test_who_was_asked_is_told(folder: Path, run) -> None:
    Path("broken.vnnlib").write_text(Path("p.vnnlib").read_text().replace("(>= Y_1 3)", "(>= Y_1 0.5)"))
    code, out, _ = run("certify net.onnx broken.vnnlib")
    lines = out.splitlines()
    at = lines.index("who was asked there (--json or --vnncomp give the input):")
    assert code == 1
    assert lines[at + 1].startswith("  torch breaks it: ")
    assert lines[at + 2].startswith("  onnxruntime breaks it: ")
    assert lines[at + 3] == "  the exact outputs break it"
    data = json.loads(run("certify net.onnx broken.vnnlib --json")[1])["counterexample"]
    assert [(r["who"], r["outcome"]) for r in data["asked"]] == [("torch", "breaks it"), ("onnxruntime", "breaks it")]
    assert data["exact_outputs_break_it"] is True
    data = json.loads(run("verify broken.vnnlib --network net.onnx --json")[1])
    assert [r["who"] for r in data["asked"]] == ["torch", "onnxruntime"]
