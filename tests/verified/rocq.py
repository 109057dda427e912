"""Coq and the programs of verified/, where they are installed."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERIFIED = ROOT / "verified"
NEEDS = {
    "coqc": "coq",
    "coq_makefile": "coq",
    "make": "make",
    "ocamlfind": "ocaml-findlib libzarith-ocaml-dev ocaml-nox",
}


@cache
def missing() -> str:
    """Which packages Coq's programs would need."""
    return " ".join(dict.fromkeys(package for name, package in NEEDS.items() if shutil.which(name) is None))


def make(*words: str) -> None:
    """One process after the other: tests run side by side, and build in one folder."""
    if missing():
        pytest.skip(f"theorems need Coq: apt-get install {missing()}")
    with open(Path(tempfile.gettempdir()) / "specgrad-verified.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(["make", "-C", str(VERIFIED), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@cache
def built(program: str) -> Path:
    """The program, made once: make looks at every theorem."""
    make(f"bin/{program}")
    return VERIFIED / "bin" / program


def ask(program: str, lines: list[str]) -> list[str]:
    """The program's answers, one line each."""
    given = "".join(f"{line}\n" for line in lines)
    done = subprocess.run([built(program)], input=given, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
