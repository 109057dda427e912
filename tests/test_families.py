"""The competition's scripts, what is recorded of its families, and the page that is made of it."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "benchmarks" / "vnncomp"
needs_bash = pytest.mark.skipif(shutil.which("bash") is None or shutil.which("timeout") is None, reason="needs bash")
PROPERTY = """(declare-const X_0 Real) (declare-const Y_0 Real)
(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= Y_0 LIMIT))"""


def made(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / name))


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "guide" / "families.md").read_text() == made("tools/make_families.py")["document"]()


def test_no_recorded_answer_is_wrong() -> None:
    makes, runs = made("tools/make_families.py"), made("benchmarks/families.py")
    rows = makes["read"](ROOT / "benchmarks" / "families.jsonl")
    assert rows
    assert [r for r in rows if makes["is_wrong"](r)] == [r for r in rows if runs["is_wrong"](r)] == []


@pytest.mark.parametrize("script", ["tools/make_families.py", "benchmarks/families.py"])
@pytest.mark.parametrize(
    ("answer", "check", "others", "wrong"),
    [
        ("unsat", "", "sat sat", True),
        ("unsat", "", "sat unsat", False),  # they contradict each other
        ("unsat", "", "unknown", False),
        ("sat", "correct; ...", "unsat", False),  # it was run, and compared exactly
        ("sat", "no counterexample: ...", "sat", True),
        ("sat", "no check: ...", "sat", True),
        ("timeout", "", "sat", False),
    ],
)
def test_wrong_answers_are_seen(script: str, answer: str, check: str, others: str, wrong: bool) -> None:
    tools = {f"t{i}": [a, 1.0] for i, a in enumerate(others.split())}
    assert made(script)["is_wrong"]({"answer": answer, "check": check, "tools": tools}) == wrong


def test_a_run_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    families = made("benchmarks/families.py")
    names, asked = families["run"].__globals__, []
    several = [families["Instance"]("f", 2026, f"{i}.onnx", "p", None, {}) for i in range(3)]

    def answer(instance: Any, seconds: float) -> dict[str, Any]:
        asked.append((instance.network, seconds))
        if len(asked) == 2:
            raise KeyboardInterrupt
        row = {
            "family": "f",
            "network": instance.network,
            "property": "p",
            "limit": seconds,
            "tools": {},
            "by": "scripts",
        }
        return {**row, "answer": "unsat"}

    monkeypatch.setitem(names, "instances", lambda _: several)
    monkeypatch.setitem(names, "run_one", answer)
    record = tmp_path / "r.jsonl"
    with pytest.raises(KeyboardInterrupt):
        families["run"]([], 5.0, record, False)
    assert families["run"]([], 5.0, record, False)
    assert asked == [("0.onnx", 5.0), ("1.onnx", 5.0), ("1.onnx", 5.0), ("2.onnx", 5.0)]
    assert [json.loads(line)["network"] for line in record.read_text().splitlines()] == ["0.onnx", "1.onnx", "2.onnx"]
    assert families["run"]([], 9.0, record, False)  # with more time all are asked again
    assert [a for a in asked if a[1] == 9.0] == [(f"{i}.onnx", 9.0) for i in range(3)]


def run_instance(folder: Path, command: str, onnx: str = "net.onnx", version: str = "v1") -> tuple[int, str | None]:
    arguments = [version, "test", onnx, "p.vnnlib", "results.txt", "7"]
    environment = {**os.environ, "SPECGRAD": command}
    done = subprocess.run([SCRIPTS / "run_instance.sh", *arguments], cwd=folder, env=environment, capture_output=True)
    results = folder / "results.txt"
    return done.returncode, results.read_text() if results.exists() else None


@needs_bash
@pytest.mark.parametrize(
    ("said", "code", "written"),
    [
        ("unsat", 0, "unsat\n"),
        ("sat\n((X_0 1.0)\n (Y_0 timed-out))", 1, "sat\n((X_0 1.0)\n (Y_0 timed-out))\n"),
        ("unknown", 2, "unknown\n"),
        ("timed-out", 2, "timeout\n"),
        ("", 2, "unknown\n"),
        ("", 3, "error\n"),
        ("", 4, "error\n"),
        ("", 124, "timeout\n"),
    ],
)
def test_results_have_the_words_of_the_competition(tmp_path: Path, said: str, code: int, written: str) -> None:
    solver = tmp_path / "solver.sh"
    (tmp_path / "said").write_text(f"{said}\n" if said else "")
    solver.write_text(f'echo "$@" > asked\ncat said\nexit {code}\n')
    assert run_instance(tmp_path, f"bash {solver}") == (0, written)
    assert (tmp_path / "asked").read_text() == "verify p.vnnlib --network net.onnx --timeout 7\n"
    listed = "[('f', 'a b.onnx'), ('g', 'c.onnx')]"
    assert run_instance(tmp_path, f"bash {solver}", listed) == (0, written)
    assert "--network f=a b.onnx --network g=c.onnx" in (tmp_path / "asked").read_text()
    (tmp_path / "results.txt").unlink()
    assert run_instance(tmp_path, f"bash {solver}", version="v2") == (1, None)


@needs_bash
def test_the_scripts_answer_and_the_checker_agrees(tmp_path: Path) -> None:
    """relu on [0, 1] reaches 1, and not 1.5."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    pytest.importorskip("typer")
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [info("x", 1, [1])], [info("y", 1, [1])]
    )
    opset = [onnx.helper.make_opsetid("", 22)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "net.onnx")
    command = f"{sys.executable} -m specgrad"
    check = [sys.executable, str(SCRIPTS / "check_counterexample.py"), "p.vnnlib", "results.txt", "net.onnx"]
    for limit, answer in (("1.5", "unsat"), ("0.75", "sat")):
        (tmp_path / "p.vnnlib").write_text(PROPERTY.replace("LIMIT", limit))
        code, text = run_instance(tmp_path, command)
        assert (code, (text or "").split("\n")[0]) == (0, answer)
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, text=True).stdout.startswith("correct")
    (tmp_path / "p.vnnlib").write_text(PROPERTY.replace("LIMIT", "1.5"))
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1
    prepared = [SCRIPTS / "prepare_instance.sh", "v1", "test", "net.onnx", "p.vnnlib"]
    assert subprocess.run(prepared, cwd=tmp_path, env={**os.environ, "SPECGRAD": command}).returncode == 0
