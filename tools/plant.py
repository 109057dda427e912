"""Plant one-line mistakes in a copy of the package, one by one, and say which of the default tests catches each.

python tools/plant.py                  all of tests/meta/mistakes.toml, a table at the end
python tools/plant.py --only rounding  those whose text or file holds the word
python tools/plant.py --whole          every default test, where the tests named first catch nothing

Exit code 1 if a mistake is not caught. The tests are those of the copy, as the working folder has them.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[1]
IMPORTED = "numpy", "torch", "torch.export", "torch.func", "onnx", "jax"  # the package itself is the copy's
COPIED = "src", "tests", "docs", "tools", "verified", "benchmarks", "examples", ".ci", ".github"


@dataclass(frozen=True)
class Mistake:
    """Text `old` of a module below src/specgrad becomes `new`; `tests` are where it is looked for first."""

    what: str
    file: str
    old: str
    new: str
    tests: str


def mistakes() -> list[Mistake]:
    """Every mistake of tests/meta/mistakes.toml; ValueError where its text does not stand in the file exactly once."""
    found = tomllib.loads((ROOT / "tests" / "meta" / "mistakes.toml").read_text(encoding="utf-8"))["mistake"]
    each = [Mistake(**entry) for entry in found]
    for mistake in each:
        count = (ROOT / "src" / "specgrad" / mistake.file).read_text(encoding="utf-8").count(mistake.old)
        if count != 1 or mistake.old == mistake.new:
            raise ValueError(f"{mistake.file} holds {mistake.old!r} {count} times; it must stand there once")
    return each


def copy_project(folder: Path) -> None:
    """The files that tests read, in another folder."""
    for name in COPIED:
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, folder)


def first_failure(folder: Path, tests: list[str]) -> str:
    """The first test that fails in the copy; "" if none does. A fork runs them: torch and JAX are imported once."""
    output = folder / "pytest.txt"
    child = os.fork()
    if not child:
        _run_tests(folder, tests, output)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = output.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if code not in (0, 1, 2) or (code and not lines):
        raise RuntimeError(f"pytest ended with {code}\n{said[-1600:]}")
    return lines[-1].partition(" ")[2].partition(" - ")[0] if lines else ""


def _run_tests(folder: Path, tests: list[str], output: Path) -> NoReturn:
    """Run the tests of the copy and end this process."""
    code = 3
    try:
        with output.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(folder)
        sys.path.insert(0, str(folder / "src"))
        os.environ["PYTHONPATH"] = str(folder / "src")
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def caught_by(folder: Path, mistake: Mistake, tests: list[str]) -> str:
    """The first test that fails with the mistake planted and passes without it; "" if none fails."""
    path = folder / "src" / "specgrad" / mistake.file
    right = path.read_text(encoding="utf-8")
    path.write_text(right.replace(mistake.old, mistake.new), encoding="utf-8")
    try:
        test = first_failure(folder, tests)
    finally:
        path.write_text(right, encoding="utf-8")
    if test and first_failure(folder, [test]):
        raise RuntimeError(f"{test} fails without a mistake too")
    return test


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="those whose text or file holds this word")
    parser.add_argument("--whole", action="store_true", help="every default test where the named ones catch nothing")
    given = parser.parse_args()
    chosen = [m for m in mistakes() if given.only in m.what or given.only in m.file]
    missed = 0
    os.environ["OMP_NUM_THREADS"] = "1"
    for module in IMPORTED:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_project(folder)
        for mistake in chosen:
            start = time.monotonic()
            test = caught_by(folder, mistake, mistake.tests.split())
            if not test and given.whole:
                test = caught_by(folder, mistake, ["tests"])
            missed += not test
            print(f"{mistake.what:<95} {test or 'NOT CAUGHT'}  ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} mistakes caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
