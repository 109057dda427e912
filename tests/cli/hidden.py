"""A Python in which one optional package is not installed: neither imports nor the packages' own records find it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SITE = """
import importlib.metadata, os, sys
HIDDEN = os.environ["SPECGRAD_HIDDEN"].split(",")

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Hiding, sys.meta_path)
found = importlib.metadata.Distribution.from_name.__func__

def from_name(cls, name):
    if {"python-flint": "flint"}.get(name, name) in HIDDEN:
        raise importlib.metadata.PackageNotFoundError(name)
    return found(cls, name)

importlib.metadata.Distribution.from_name = classmethod(from_name)
"""
EACH = """
import shlex, sys, traceback  # one process for all: PyTorch is imported once
for text in sys.stdin.read().splitlines():
    sys.argv = ["specgrad", *shlex.split(text)]
    code = "none"
    try:
        from specgrad.cli.main import main
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    print("=====", code, file=sys.stderr, flush=True)
"""
"""Commands, one per line of stdin."""


def python_without(package: str, code: str, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """A program in a process that lacks the package, and so do the processes that it starts."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(SITE)
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "SPECGRAD_HIDDEN": package}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, input=given, cwd=folder, capture_output=True, text=True, timeout=300, env=environment
    )


def run_without(package: str, commands: list[str], folder: Path, after: str = "") -> tuple[list[tuple[str, str]], str]:
    """(exit code, stderr) of each command, one after the other, then a program; what all of it printed."""
    done = python_without(package, EACH + after, folder, "\n".join(commands))
    parts = done.stderr.split("===== ")
    codes = [part.partition("\n") for part in parts[1:]]
    said = [parts[0], *(rest for _, _, rest in codes[:-1])]
    assert codes[-1][2] == ""
    return [(code, text) for (code, _, _), text in zip(codes, said, strict=True)], done.stdout
