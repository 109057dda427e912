"""Files and functions of specgrad that a command executes, modules that it loads, and switches between rooms.

python tools/walk.py audit model.onnx      any command line of specgrad, each file with its functions in order
python tools/walk.py max_pool              one call of sg.max_pool, and its gradient, on PyTorch: the first
python tools/walk.py max_pool again        the second
python tools/walk.py                       five walks on a small network: the table of benchmarks/walks.txt

A room is a folder of src/specgrad, named by its first level. A switch is a call, or a return, into another room.
What worker processes execute is not counted, nor what a module executes when it is loaded.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "specgrad"
EACH = (
    "audit net.onnx --runtime onnxruntime",
    "certify net.onnx net.vnnlib --certificate proof.json",
    "check-certificate proof.json net.onnx net.vnnlib",
    "max_pool",
    "max_pool again",
)


class Walk:
    """What was executed: files in order with their functions, and how often the room changed."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, None]] = {}
        self.switches: Counter[tuple[str, str]] = Counter()
        self.known: dict[CodeType, tuple[str, str] | None] = {}
        self.room = threading.local()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        if frame.f_code.co_name == "<module>":
            self.room.loading = getattr(self.room, "loading", 0) + (1 if event == "call" else -1)
        if getattr(self.room, "loading", 0) or (place := self._place(frame)) is None:
            return
        if event == "call":
            self.files.setdefault(place[0], {})[place[1]] = None
        else:  # the nearest function of ours goes on
            outer = frame.f_back
            while outer is not None and self._place(outer) is None:
                outer = outer.f_back
            place = place if outer is None else self._place(outer) or place
        before, self.room.now = getattr(self.room, "now", ""), room_of(place[0])
        if before and before != self.room.now:
            self.switches[before, self.room.now] += 1

    def _place(self, frame: FrameType) -> tuple[str, str] | None:
        if frame.f_code not in self.known:
            self.known[frame.f_code] = place_of(frame.f_code)
        return self.known[frame.f_code]


def place_of(code: CodeType) -> tuple[str, str] | None:
    """(file below src/specgrad, function) of a code object; None of others', and of modules and classes as such."""
    path = Path(code.co_filename.partition(" for ")[0])  # a wrapper made for one function is of its maker's file
    if not code.co_flags & inspect.CO_OPTIMIZED or not path.is_relative_to(PACKAGE):
        return None
    return path.relative_to(PACKAGE).as_posix(), code.co_qualname


def room_of(file: str) -> str:
    """The first folder of a file below src/specgrad; "" becomes "top"."""
    return file.partition("/")[0] if "/" in file else "top"


def loaded() -> int:
    return sum(name == "specgrad" or name.startswith("specgrad.") for name in sys.modules)


def walked(arguments: list[str]) -> Walk:
    """Execute one command line of specgrad, or one call of sg.max_pool, in this process."""
    walk = Walk()
    if arguments[:1] == ["max_pool"]:
        import torch

        import specgrad as sg

        x = torch.arange(64.0).reshape(1, 1, 8, 8).requires_grad_()
        run = lambda: sg.max_pool(x, (3, 3), stride=2, padding=1).sum().backward()
        if arguments[1:] == ["again"]:
            run()
    else:
        from specgrad.cli.main import main as run

        sys.argv = ["specgrad", *arguments]
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        run()
    except SystemExit as end:
        if end.code not in (0, 1, None):
            raise RuntimeError(f"specgrad {' '.join(arguments)} ended with code {end.code}") from None
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return walk


def summary(walk: Walk) -> str:
    functions = sum(map(len, walk.files.values()))
    return (
        f"{len(walk.files):>5} files {functions:>6} functions {loaded():>6} modules {walk.switches.total():>9} switches"
    )


def each_file(walk: Walk) -> str:
    lines = []
    for room in dict.fromkeys(map(room_of, walk.files)):
        files = [f for f in walk.files if room_of(f) == room]
        lines.append(f"{room}: {len(files)} files")
        lines += [f"  {file:<40} {', '.join(walk.files[file])[:400]}" for file in files]
    between = ", ".join(f"{a} -> {b} {n}" for (a, b), n in walk.switches.most_common(12))
    return "\n".join([*lines, f"most switches: {between}"])


def table() -> str:
    """The walks, each in a process of its own; a small network that is made here."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        _make_network(Path(folder))
        for line in EACH:
            run = subprocess.run(
                [sys.executable, __file__, "--short", *line.split()],
                cwd=folder, capture_output=True, text=True, check=True,
                env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
            )  # fmt: skip
            lines.append(f"{line if line in EACH[3:] else line.split()[0]:<18}{run.stdout.splitlines()[-1]}")
    return "\n".join(lines)


def _make_network(folder: Path) -> None:
    """conv, relu, max_pool, linear with a seed, and a property that holds."""
    import numpy as np

    import specgrad as sg
    from specgrad.interop import to_onnx

    rng = np.random.default_rng(0)
    w, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 1, 3, 3), (2, 8)))

    def network(x: Any) -> Any:
        return sg.linear(v, None, sg.reshape(sg.max_pool(sg.relu(sg.conv(w, None, x)), (2, 2)), (1, 8)))

    (folder / "net.onnx").write_bytes(to_onnx(sg.trace(network, (1, 1, 6, 6))).SerializeToString())
    names = [f"X_{i}" for i in range(36)]
    text = [f"(declare-const {n} Real)" for n in (*names, "Y_0", "Y_1")]
    text += [f"(assert (>= {n} 0.0)) (assert (<= {n} 0.01))" for n in names] + ["(assert (>= Y_0 100.0))"]
    (folder / "net.vnnlib").write_text("\n".join(text))


def main() -> int:
    arguments = sys.argv[1:]
    if arguments in (["--help"], ["-h"]):
        print(__doc__)
    elif not arguments:
        print(table())
    elif arguments[0] == "--short":
        with contextlib.redirect_stdout(io.StringIO()):
            walk = walked(arguments[1:])
        print(summary(walk))
    else:
        walk = walked(arguments)
        print(each_file(walk), summary(walk), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
