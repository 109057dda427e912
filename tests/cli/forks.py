"""Programs in real processes that need not import NumPy, PyTorch and ONNX again: forked from one that has.

Exit codes, signals, streams and what is left on the disk are those of a process. Nothing of specgrad is loaded before
the fork, so a command that forgets an import fails here as it does in a shell.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

COMMAND = "import runpy; runpy.run_module('specgrad', run_name='__main__', alter_sys=True)"
"""`python -m specgrad`, in a program."""

SERVER = """
import gc, importlib, json, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.collect()
gc.freeze()  # a child that ends need not look at all of this again
assert not any(name.partition(".")[0] == "specgrad" for name in sys.modules)
while line := sys.stdin.readline():
    asked = json.loads(line)
    if child := os.fork():
        print(os.waitpid(child, 0)[1], flush=True)
        continue
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in ((1, asked["out"]), (2, asked["err"])):
        os.dup2(os.open(path, os.O_WRONLY), number)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path.insert(0, asked["cwd"])
    sys.argv = ["-c", *asked["args"]]
    break
else:
    os._exit(0)
exec(asked["text"], {"__name__": "__main__"})
"""


class Forks:
    """The server, and its children one at a time. Python takes its time to end where PyTorch is loaded."""

    def __init__(self, *more: str) -> None:
        names = ("numpy", "typer.main", "rich.console", "rich.table", "onnx.helper", *more)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.server = subprocess.Popen([sys.executable, "-P", "-c", SERVER, *names], text=True, **pipes)

    def close(self) -> None:
        self.server.communicate()

    def python(
        self, text: str, *args: str, out: str = "", environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`python -c text args` in this folder; stdout goes to the file `out` if one is given."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(out or f"{folder}/out"), Path(f"{folder}/err")]
            for path in paths:
                path.touch()
            asked = {"text": text, "args": args, "out": str(paths[0]), "err": str(paths[1]), "cwd": os.getcwd()}
            self.server.stdin.write(json.dumps({**asked, "environment": environment or dict(os.environ)}) + "\n")
            self.server.stdin.flush()
            code = os.waitstatus_to_exitcode(int(self.server.stdout.readline()))
            return subprocess.CompletedProcess(args, code, "" if out else paths[0].read_text(), paths[1].read_text())

    def specgrad(self, *args: str, **named: Any) -> subprocess.CompletedProcess[str]:
        """`python -m specgrad args` in this folder."""
        return self.python(COMMAND, *args, **named)
