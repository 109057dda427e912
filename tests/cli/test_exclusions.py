"""Every command that states something of executions names what is excluded of this network, in text and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from specgrad.cli.main import app

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

NET = """<ir_version: 8, opset_import: ["" : 18]> g (float[1,3] x) => (float[1,3] y) <float tenth={0.1}>
{ r=Relu(x) m=Mul(r,tenth) y=Sigmoid(m) }"""
OTHER = NET.replace("0.1", "0.10000001")
EXCLUDED = "executions that move a constant factor through r, or take another number for it, are excluded"
PROPERTY = "".join(f"(declare-const X_{k} Real)\n(assert (>= X_{k} 0.25))\n(assert (<= X_{k} 0.5))\n" for k in range(3))
PROPERTY += "".join(f"(declare-const Y_{k} Real)\n" for k in range(3)) + "(assert (>= Y_0 2.0))\n"
CASES = {
    "audit": ["net.onnx", "--runtime", "onnxruntime"],
    "certify": ["net.onnx", "p.vnnlib"],
    "tolerance": ["net.onnx", "--input", "x.npy"],
    "preserve": ["net.onnx", "data.npy"],
    "tolerance accuracy": ["net.onnx", "--box", "0,1"],
    "compare": ["net.onnx", "other.onnx", "--input", "x.npy", "--eps", "0.125"],
    "evidence": ["net.onnx", "--recorded", "seen.npz", "--box", "0,1"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import onnxruntime

    folder = tmp_path_factory.mktemp("excluded")
    for name, text in (("net", NET), ("other", OTHER)):
        onnx.save(onnx.parser.parse_model(text), folder / f"{name}.onnx")
    (folder / "p.vnnlib").write_text(PROPERTY)
    x = np.float32([[0.25, 1.5, -3]])
    np.save(folder / "x.npy", x)
    np.save(folder / "data.npy", x)
    (y,) = onnxruntime.InferenceSession(str(folder / "net.onnx")).run(None, {"x": x})
    np.savez(folder / "seen.npz", x=x, y=y)
    return folder


def said(data: Any) -> list[dict[str, str]]:
    """All `deployment` of a command's JSON that say what an execution is."""
    if isinstance(data, list):
        return [each for entry in data for each in said(entry)]
    if not isinstance(data, dict):
        return []
    own = [data] if "rewriting" in data else []
    return own + [each for entry in data.values() for each in said(entry)]


@pytest.mark.parametrize("command", CASES)
def test_commands_name_what_is_excluded(command: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    result = CliRunner().invoke(app, [*command.split(), *CASES[command], "--json"])
    assert result.exit_code in (0, 1), result.output
    found = said(json.loads(result.stdout))
    assert found
    assert {each.get("choices") for each in found} == {EXCLUDED}
    assert all("sigmoid is off by at most" in each["functions"] for each in found)
    shown = " ".join(CliRunner().invoke(app, [*command.split(), *CASES[command]]).stdout.split())
    assert ("but " + EXCLUDED).lower() in shown.lower() or command == "audit"
    assert EXCLUDED in shown or command == "audit"


def test_pages_name_it_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    for command, option, page in (
        ("certify", "--html", "c.html"),
        ("preserve", "--html", "p.html"),
        ("evidence", "--html", "e.html"),
    ):
        CliRunner().invoke(app, [*command.split(), *CASES[command], option, page])
        assert EXCLUDED in (place / page).read_text()
    assert f"But {EXCLUDED}." in (place / "c.html").read_text()
