"""Installs a wheel into empty environments, alone and with each extra alone, and does there what the extra is for.

    python tools/try_wheel.py dist/specgrad-*.whl --python python3.11 --python python3.14 > benchmarks/wheel.txt

Needs a network and Python's own library, nothing else. Each environment is deleted when it was tried; those that
want PyTorch start from a copy of one that has it. Where an extra is missing, the error must name it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

GRAPH = """
import numpy as np, specgrad as sg
graph = sg.trace(lambda p, x: sg.relu(sg.conv(p["w"], None, x, padding=1)), {"w": (1, 1, 3, 3)}, (1, 1, 8, 8))
params, x = {"w": np.ones((1, 1, 3, 3), np.float32)}, np.ones((1, 1, 8, 8), np.float32)
"""
PROOFS = {  # what each extra is for, in a few lines, and what they print
    "": ("import numpy as np, specgrad as sg; print(sg.avg_pool(np.array([1, 2, 4]), (3,)))", "[Fraction(7, 3)]"),
    "save": (
        GRAPH + "sg.save_params(params, 'w.safetensors'); print(sg.load_params('w.safetensors')['w'].sum())",
        "9.0",
    ),
    "balls": ("import specgrad as sg; print(sg.smooth_max_pool(sg.balls([0, 1]), (2,), beta=1))", "1.31326168751822"),
    "torch": (
        GRAPH
        + "on = sg.compile(graph, 'torch', parameters=params); import torch; from specgrad.bounds import certify\n"
        "print(on(torch.from_numpy(x)).sum().item(), certify(sg.trace(sg.relu, (2,)), ([1.0, 0.5], 0, 0.1)).verdict)",
        "484.0 holds",
    ),
    "jax": (
        GRAPH + "on = sg.compile(graph, 'jax'); import jax.numpy as jnp; print(on(params, jnp.asarray(x)).sum())",
        "484.0",
    ),
    "vnnlib": (
        "from specgrad.properties.vnnlib import read_text\n"
        "text = '(vnnlib-version <2.0>) (declare-network N (declare-input X float32 [1])'\n"
        "text += '(declare-output Y float32 [1])) (assert (and (>= X[0] -1.0) (<= X[0] 1.0) (>= Y[0] 2.0)))'\n"
        "print(type(read_text(text)).__name__)",
        "Property",
    ),
    "onnx": (
        GRAPH + "from specgrad.interop import from_onnx, to_onnx\n"
        "model = to_onnx(sg.trace(lambda x: graph(params, x), (1, 1, 8, 8)))\n"
        "open('model.onnx', 'wb').write(model.SerializeToString()); print(from_onnx(model)(x).sum())",
        "484.0",
    ),
    "runtimes": (
        GRAPH + "from specgrad.check import audit\n"
        "print([audit('model.onnx', name, x).verdict for name in ('onnxruntime', 'openvino')])",
        "['exact', 'exact']",
    ),
    "cli": ("import subprocess; subprocess.run(['specgrad', 'show', 'model.onnx'], check=True)", "multiply-adds"),
    "scale": (
        GRAPH + "import contextlib; from specgrad.scale import tiles\n"
        "with contextlib.suppress(ImportError):\n"
        "  import zarr, obstore; zarr.create_array('x.zarr', shape=x.shape, dtype='float32')[:] = x\n"
        "tiles(graph, (4, 4)).run(params, 'x.zarr', 'y.zarr', executor='loop', engine='numpy')\n"
        "print(zarr.open_array('y.zarr')[:].sum())",
        "484.0",
    ),
    "dask": (
        "from specgrad.scale.executors import opened\n"
        "if __name__ == '__main__':\n  with opened('dask', 1) as executor: print(executor.submit(max, 3, 4).result())",
        "4",
    ),
    "ray": (
        "import os; os.environ['RAY_raylet_start_wait_time_s'] = '60'\n"  # a busy machine needs more than its 30
        "from specgrad.scale.executors import opened\n"
        "with opened('ray', 1) as executor: print(executor.submit(max, 3, 4).result())",
        "4",
    ),
    "images": (
        "from pathlib import Path; from PIL import Image; Image.new('L', (4, 4), 255).save('white.png')\n"
        "from specgrad.check.models.input_files import read_media; from specgrad.interop.model import ModelInput\n"
        "print(read_media(Path('white.png'), ModelInput('x', [1, 1, 4, 4], 'float32'), 'unit')[0].sum())",
        "16.0",
    ),
    "examples": ("import jax, matplotlib, optax, safetensors, sklearn, torch, tqdm; print('here')", "here"),
    "docs": ("import furo, myst_nb, sphinx, sphinx_copybutton; print('here')", "here"),
    "dev": ("import hypothesis, jsonschema, moto, mypy, pytest, ruff, xdist; print('here')", "here"),
}
MISSING = r"pip install 'specgrad\[(\w+)\]'"
AUDIT = ["audit", "model.onnx", "--runtime", "onnxruntime"]  # the first command of the README


def run(*command: str | Path, cwd: Path | None = None) -> tuple[int, str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
    if cwd:  # an activated environment
        clean["PATH"] = f"{Path(command[0]).parent}{os.pathsep}{clean['PATH']}"
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout.strip()


def last(text: str) -> str:
    return text.splitlines()[-1] if text else "nothing was printed"


def brought(wheel: Path) -> dict[str, set[str]]:
    """The packages that each extra brings, as the wheel says."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    found: dict[str, set[str]] = {extra: set() for extra in re.findall(r"^Provides-Extra: (\S+)", text, re.MULTILINE)}
    for package, extra in re.findall(r"^Requires-Dist: ([\w-]+).*; extra == '(\S+)'", text, re.MULTILINE):
        found[extra].add(package)
    return found


class Tried:
    """One Python: its environments in a folder that ends with it."""

    def __init__(self, python: str, wheel: Path, torch: str, uv: str, folder: Path) -> None:
        self.python, self.wheel, self.torch, self.uv, self.folder = python, wheel, torch, uv, folder
        self.base, self.scratch, self.model = folder / "torch", folder / "scratch", folder / "model.onnx"
        self.extras = brought(wheel)

    def environment(self, place: Path, with_torch: bool) -> str:
        """Empty, or with PyTorch alone; says what went wrong."""
        if with_torch and not self.uv:  # copied from one that was made before: pip would unpack gigabytes again
            wrong = "" if self.base.exists() else self.environment(self.base, False) or self.pip(self.base, self.torch)
            shutil.copytree(self.base, place, symlinks=True, copy_function=os.link)
            return wrong
        venv = [self.uv, "venv", "-q", "-p", self.python] if self.uv else [self.python, "-m", "venv"]
        code, text = run(*venv, place)
        return last(text) if code else self.pip(place, self.torch) if with_torch else ""

    def pip(self, place: Path, what: str, verb: str = "install") -> str:
        python = place / "bin" / "python"
        pip = [self.uv, "pip", verb, "-q", "-p", python] if self.uv else [python, "-m", "pip", verb, "-q"]
        code, text = run(*pip, *([what] if what else []))
        return f"{verb} {what}: {last(text)}" if code else ""

    def attempt(self, extras: str) -> list[str]:
        """What is wrong with this wheel and these extras; [] if nothing is."""
        place = self.folder / "environment"
        have = set().union(*(self.extras[e] for e in extras.split(",") if e))
        try:
            if wrong := self.environment(place, "torch" in have):
                return [wrong]
            if wrong := self.pip(place, f"{self.wheel}[{extras}]" if extras else str(self.wheel)):
                return [wrong]
            wrong = self.pip(place, "", "check")
            self.scratch.mkdir()
            if self.model.exists():
                shutil.copy(self.model, self.scratch)
            return ([wrong] if wrong else []) + self.used(place / "bin" / "python", extras, have)
        finally:
            if extras == "onnx" and (made := self.scratch / "model.onnx").exists():
                shutil.copy(made, self.model)
            for folder in (place, self.scratch):
                shutil.rmtree(folder, ignore_errors=True)

    def used(self, python: Path, extras: str, have: set[str]) -> list[str]:
        wrong = []
        everything = extras in ("", "all")  # alone, the others must say what is missing
        for extra in PROOFS if everything else extras.split(","):
            if extras == "all" and not self.extras.get(extra, set()) <= have:
                continue
            code, text = run(python, "-c", PROOFS[extra][0], cwd=self.scratch)
            if code and extra == "ray":  # its parts wait for each other for a fixed time, and compile themselves first
                code, text = run(python, "-c", PROOFS[extra][0], cwd=self.scratch)
            if extras or not extra:
                if code or PROOFS[extra][1] not in text:
                    wrong.append(f"{extra or 'core'}: {last(text)}")
            elif extra in ("examples", "docs", "dev", "cli"):
                continue  # packages of others; the command is asked below
            elif not (named := re.search(MISSING, text)) or not self.extras[named[1]] <= self.extras[extra]:
                wrong.append(f"{extra} is missing, and the error is: {last(text)}")
        wanted = "cli" if "typer" not in have else ""
        wrong += self.command(python, ["--help"], wanted)
        return wrong + self.command(python, AUDIT, wanted or ("" if "onnxruntime" in have else "runtimes"))

    def command(self, python: Path, words: list[str], missing: str) -> list[str]:
        code, text = run(python.parent / "specgrad", *words, cwd=self.scratch)
        if missing and code == 3 and f"pip install 'specgrad[{missing}]'" in text:
            return []
        return [] if code == 0 and not missing else [f"specgrad {words[0]}: exit {code}: {last(text)}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument(
        "--python", action="append", help="an interpreter, more than once for several; default: this one"
    )
    parser.add_argument(
        "--extra", action="append", help="only these: onnx, or cli,runtimes, or '' for none; default: each"
    )
    parser.add_argument("--torch", default="torch==2.13.0", help="what to install before an extra that wants PyTorch")
    parser.add_argument(
        "--uv", default="", help="the path of uv, to install with it in place of pip: several times faster"
    )
    given = parser.parse_args()
    wheel, failed = given.wheel.resolve(), 0
    for python in given.python or [sys.executable]:
        _, version = run(python, "-c", "import platform; print(platform.python_version())")
        print(f"{wheel.name} on Python {version}, installed by {'uv' if given.uv else 'pip'}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            tried = Tried(python, wheel, given.torch, given.uv, Path(folder))
            first, last_ones = ["onnx", ""], ["cli,runtimes", "all", "dev"]  # the first leaves its model to the others
            order = [*first, *(e for e in tried.extras if e not in (*first, *last_ones)), *last_ones]
            chosen = (
                order if given.extra is None else list(dict.fromkeys(["onnx", *given.extra]))
            )  # it writes the model
            for extra in chosen:
                start = time.monotonic()
                wrong = tried.attempt(extra)
                failed += bool(wrong)
                print(
                    f"  {extra or 'alone':<20} {time.monotonic() - start:5.0f} s  {'; '.join(wrong) or 'works'}",
                    flush=True,
                )
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
