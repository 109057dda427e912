"""check-certificate --proven: both checkers speak, or a plain word where the proven one is not installed."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("flint")
pytest.importorskip("torch")
pytest.importorskip("onnx")

from specgrad.proof.extracted import run_checker

NEAR = "--input one.npy --label 0 --eps 1/100"


@pytest.fixture
def certified(folder: Path, run) -> str:
    np.save("one.npy", np.array([[1, 0.5]], np.float32))
    assert run(f"certify net.onnx {NEAR} --certificate new.json")[0] == 0
    return f"check-certificate new.json net.onnx {NEAR} --proven"


def said(path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in the checker's place."""
    program = path / "checker"
    program.write_text(f"#!/bin/sh\ncat > /dev/null\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv(run_checker.VARIABLE, str(program))


def test_an_absent_program_is_named(certified: str, run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_checker.VARIABLE, "/no/such/program")
    code, _, err = run(certified)
    assert (code, "make -C verified" in err) == (3, True)


@pytest.mark.parametrize(("script", "code"), [("echo yes", 0), ("echo no", 1), ("exit 2", 4), ("kill -9 $$", 4)])
def test_its_answer_decides(certified: str, run, script: str, code: int, monkeypatch, folder: Path) -> None:
    said(folder, script, monkeypatch)
    ended, out, _ = run(f"{certified} --json")
    assert ended == code
    data = json.loads(out)
    if code == 0:
        digest = sha256(Path("checker").read_bytes()).hexdigest()
        built = False if run_checker.BUILT.is_file() else None
        named = {"path": str(folder / "checker"), "sha256": digest, "is_built": built, "compiled": True}
        assert data["program"] == named
        assert data["checkers"][0] == "specgrad's replay, in Python"
        assert data["checkers"][1].startswith(f"the program {folder / 'checker'}, which {run_checker.VARIABLE} names")
    else:
        assert "the proven checker" in data["reason"]


@pytest.mark.parametrize(
    ("built", "words"),
    [
        (None, "is not known: no "),
        ("#!/bin/sh\necho no\n", "It is not the one that make -C verified has built here, the checker extracted"),
        ("", "accepted by the checker extracted from its proof in Coq"),
    ],
)
def test_it_is_told_which_program_answers(certified: str, run, built, words, monkeypatch, folder: Path) -> None:
    """Another program under the variable, where none was built, where another one was, and where it is the same."""
    said(folder, "echo yes", monkeypatch)
    monkeypatch.setattr(run_checker, "BUILT", folder / "built")
    if built is not None:
        (folder / "built").write_text(built or (folder / "checker").read_text())
    code, out, _ = run(certified)
    told = " ".join(out.split())
    assert (code, words in told) == (0, True)
    assert f"(SHA-256 {sha256((folder / 'checker').read_bytes()).hexdigest()})" in told


def test_a_program_that_changes_while_it_answers_is_refused(certified: str, run, monkeypatch, folder: Path) -> None:
    said(folder, 'echo yes; echo "# another" >> "$0"', monkeypatch)
    code, out, _ = run(certified)
    assert (code, "was changed while it answered" in out) == (1, True)


def test_out_of_time_is_no_verdict(certified: str, run, monkeypatch, folder: Path) -> None:
    said(folder, "sleep 30", monkeypatch)
    code, out, _ = run(f"{certified} --seconds 1")
    assert (code, "did not end within 1 s" in out) == (2, True)


@pytest.mark.skipif(not run_checker.BUILT.is_file(), reason="verified/bin/check is not built (make -C verified)")
def test_the_program_accepts(certified: str, run) -> None:
    code, out, _ = run(certified)
    assert (code, "accepted by the checker extracted from its proof" in out) == (0, True)
    assert sha256(run_checker.BUILT.read_bytes()).hexdigest() in "".join(out.split())
