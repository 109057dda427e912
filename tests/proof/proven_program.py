"""Tests of the proven checker ask its program, where that is built, and plant mistakes in it, where that compiles."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from specgrad.proof.extracted import run_checker

PROGRAM = Path(__file__).parents[2] / "verified" / "programs" / "check"
try:
    run_checker.program()
    built = True
except run_checker.NoCheckerError:
    built = False
needed = pytest.mark.skipif(not built, reason="verified/bin/check is not built (make -C verified)")
compiled = pytest.mark.skipif(
    not built or not shutil.which("ocamlfind") or not (PROGRAM / "extracted.ml").exists(),
    reason="the extracted program is not here, or no compiler for it",
)


def planted(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The extracted program with a mistake takes the place of the program."""
    for name in ("big.ml", "extracted.mli", "main.ml"):
        shutil.copy(PROGRAM / name, folder)
    text = (PROGRAM / "extracted.ml").read_text()
    assert text.count(right) == 1, "the program has changed: plant the mistake elsewhere"
    (folder / "extracted.ml").write_text(text.replace(right, wrong))
    command = "ocamlfind ocamlopt -w -a -package zarith -linkpkg big.ml extracted.mli extracted.ml main.ml -o check"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    monkeypatch.setenv(run_checker.VARIABLE, str(folder / "check"))
