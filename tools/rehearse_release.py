"""A release without publishing: build, check, index, empty environments, first commands, a list of what is inside.

    python tools/rehearse_release.py > benchmarks/release.txt
    python tools/rehearse_release.py --with pip,uvx

What is committed is cloned. Tools come from .github/release-tools.txt, with hashes, as in release.yml. sdist and wheel
are built twice, from the same commit, and must be the same bytes. They become a simple index, a folder; from it alone
specgrad is installed, everything else from the usual index. Each way of installing does the first commands on a model
that it makes. Seconds are of the clock. Needs a network; nothing is uploaded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / ".github" / "release-tools.txt"
WHAT = "specgrad[cli,runtimes]"
MODEL = """
import numpy as np, onnx
from onnx import helper, numpy_helper
info = lambda n, s: helper.make_tensor_value_info(n, 1, s)
w = numpy_helper.from_array(np.float32([[1, 2], [3, -1]]), "w")
nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
graph = helper.make_graph(nodes, "g", [info("x", [1, 2])], [info("y", [1, 2])], [w])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), "model.onnx")
"""
FIRST = (
    ("--version",),
    ("show", "model.onnx"),
    ("audit", "model.onnx", "--runtime", "onnxruntime"),
)
"""Commands of an hour's beginning, without PyTorch."""


class Rehearsal:
    """The steps, in a folder that ends with them; `failed` counts those that went wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.failed = folder, 0
        self.clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
        self.clean |= {"UV_CACHE_DIR": str(folder / "uv"), "PIPX_HOME": str(folder / "pipx"), "NO_COLOR": "1"}

    def step(self, name: str, *command: str | Path, cwd: Path | None = None, **env: str) -> str:
        """Run a command; print a line with its seconds and what it said last, or why it failed."""
        start = time.monotonic()
        done = subprocess.run(
            [str(c) for c in command], cwd=cwd or self.folder, env=self.clean | env, capture_output=True, text=True
        )
        text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout if done.returncode == 0 else done.stdout + done.stderr).strip()
        self.failed += done.returncode != 0
        said = (text.splitlines() or [""])[-1 if done.returncode else 0].replace(str(self.folder), ".")
        code = "" if done.returncode == 0 else f"exit {done.returncode}: "
        print(f"  {name:<44}{time.monotonic() - start:>6.1f} s  {code}{said[:120]}", flush=True)
        return text

    def environment(self, name: str) -> Path:
        """The Python of an empty environment."""
        venv.create(self.folder / name, with_pip=True)
        return self.folder / name / "bin" / "python"

    def build(self) -> list[Path]:
        """sdist and wheel, built twice; the files."""
        python = self.environment("tools")
        self.step("tools, with hashes", python, "-m", "pip", "install", "-q", "--require-hashes", "-r", TOOLS)
        self.step("clone", "git", "clone", "-q", ROOT, "source")
        source = self.folder / "source"
        epoch = subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=source, text=True).strip()
        digests = []
        for out in ("dist", "again"):
            build = (python, "-m", "build", "--no-isolation", "--outdir", self.folder / out)
            self.step(f"build: {out}", *build, cwd=source, SOURCE_DATE_EPOCH=epoch)
            files = sorted((self.folder / out).iterdir())
            digests.append({f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files})
        same = digests[0] == digests[1] and len(digests[0]) == 2
        self.failed += not same
        print(f"  {'twice the same bytes' if same else 'TWO BUILDS DIFFER'}")
        files = sorted((self.folder / "dist").iterdir())
        for file in files:
            print(f"    {file.name}  {file.stat().st_size:,} bytes")
        self.step("twine check --strict", python, "-m", "twine", "check", "--strict", *files)
        return files

    def index(self, files: Sequence[Path]) -> str:
        """A simple index of the files (PEP 503), with hashes; its address."""
        home = self.folder / "simple" / "specgrad"
        home.mkdir(parents=True)
        links = [
            f'<a href="{f.as_uri()}#sha256={hashlib.sha256(f.read_bytes()).hexdigest()}">{f.name}</a>' for f in files
        ]
        (home / "index.html").write_text("<!DOCTYPE html>\n" + "\n".join(links))
        return home.parent.as_uri()

    def parts_list(self, python: Path) -> None:
        """A CycloneDX list of what an environment holds: valid, and specgrad with its version is there."""
        out = self.folder / "sbom.json"
        cyclonedx = self.folder / "tools" / "bin" / "cyclonedx-py"
        self.step(
            "SBOM (CycloneDX)", cyclonedx, "environment", python, "--output-reproducible", "-o", out, "--validate"
        )
        parts = json.loads(out.read_text())["components"] if out.exists() else []
        ours = [p["version"] for p in parts if p["name"] == "specgrad"]
        self.failed += len(ours) != 1
        print(f"    {len(parts)} components, specgrad {', '.join(ours) or 'MISSING'}")

    def commands(self, head: Sequence[str | Path], index: str, **env: str) -> None:
        """The first commands, each as `head` and its words."""
        for words in FIRST:
            self.step(f"  specgrad {' '.join(words)}"[:43], *head, *words, PIP_EXTRA_INDEX_URL=index, **env)


def by_pip(r: Rehearsal, index: str) -> None:
    """`pip install` from the index in an empty environment; then from the sdist; the model is made here."""
    python = r.environment("pip-wheel")
    install = ("-m", "pip", "install", "-q", "--extra-index-url", index)
    r.step(f"pip install '{WHAT}'", python, *install, WHAT)
    r.step("pip check", python, "-m", "pip", "check")
    r.step("make a model", python, "-c", MODEL)
    r.commands([python.parent / "specgrad"], index)
    r.parts_list(python)
    python = r.environment("pip-sdist")
    r.step("pip install --no-binary specgrad", python, *install, "--no-binary", "specgrad", "specgrad")
    r.step("import specgrad", python, "-c", "import specgrad as sg; print(sg.avg_pool([1, 2, 4], (3,)))")


def by_pipx(r: Rehearsal, index: str) -> None:
    """`pipx run --spec`."""
    python = r.environment("with-pipx")
    r.step("pip install pipx", python, "-m", "pip", "install", "-q", "pipx")
    r.commands([python.parent / "pipx", "run", "--spec", WHAT, "specgrad"], index)


def by_uvx(r: Rehearsal, index: str) -> None:
    """`uvx --from`, and a lock file with hashes, installed from."""
    python = r.environment("with-uv")
    r.step("pip install uv", python, "-m", "pip", "install", "-q", "uv")
    uv, asked = python.parent / "uv", r.folder / "asked.in"
    r.commands([python.parent / "uvx", "--index", index, "--from", WHAT, "specgrad"], index)
    asked.write_text(f"{WHAT}\n")
    lock = r.folder / "lock.txt"
    r.step("uv pip compile --generate-hashes", uv, "pip", "compile", "-q", "--generate-hashes", "--index", index,
           asked, "-o", lock)  # fmt: skip
    r.step("uv venv", uv, "venv", "-q", r.folder / "locked")
    r.step("uv pip install --require-hashes", uv, "pip", "install", "-q", "--require-hashes", "--index", index,
           "-p", r.folder / "locked", "-r", lock)  # fmt: skip
    r.commands([r.folder / "locked" / "bin" / "specgrad"], index)


WAYS = {"pip": by_pip, "pipx": by_pipx, "uvx": by_uvx}


def main() -> int:
    """Rehearse; return 1 if a step failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with", dest="ways", default=",".join(WAYS), help="ways to install; pip makes the model")
    ways = parser.parse_args().ways.split(",")
    with tempfile.TemporaryDirectory() as folder:
        rehearsal = Rehearsal(Path(folder))
        print(f"Python {sys.version.split()[0]}\nbuild")
        index = rehearsal.index(rehearsal.build())
        for way in ways:
            print(way)
            WAYS[way](rehearsal, index)
    print(f"{rehearsal.failed or 'no'} step failed; nothing was published")
    return min(rehearsal.failed, 1)


if __name__ == "__main__":
    sys.exit(main())
