"""Follows each tutorial by its text alone: an empty environment, the one install that the page names, its blocks.

    python tools/follow_tutorials.py > benchmarks/tutorials.txt
    python tools/follow_tutorials.py docs/tutorials/kernel.md --python python3.14

The checkout is this one, cloned into the folder. Needs a network for pip. Seconds are of the clock; beside them stands
how busy the machine was (tests/pace.py: 1 is an idle core of the machine that limits were set on).
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
READER = """
import ast, re, subprocess, sys
names = {"__name__": "__main__"}
for block in re.findall(r"```\\{code-cell\\}\\n(?::tags:[^\\n]*\\n)?(.*?)```", open(sys.argv[1]).read(), re.DOTALL):
    if block.startswith("!"):
        subprocess.run(block[1:], shell=True, check=True)
        continue
    tree = ast.parse(block)
    shown = [ast.Interactive([tree.body.pop()])] if isinstance(tree.body[-1], ast.Expr) else []
    exec(compile(tree, "block", "exec"), names)
    for line in shown:  # as the prompt shows it
        exec(compile(line, "block", "single"), names)
"""


def named_install(page: str) -> str:
    """The one `pip install` of the page, before its first heading.

    >>> named_install("# A\\nYou need `pip install './specgrad[torch]'`.\\n## B\\n`pip install c`")
    "pip install './specgrad[torch]'"
    """
    (command,) = re.findall(r"`(pip install [^`]+)`", page.partition("\n## ")[0])
    return str(command)


def follow(page: Path, python: str) -> tuple[float, float]:
    """Seconds of the install, and of the blocks."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        subprocess.run(["git", "clone", "-q", ROOT, "specgrad"], cwd=folder, check=True)
        subprocess.run([python, "-m", "venv", environment], check=True)
        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
        clean["PATH"] = f"{environment / 'bin'}{os.pathsep}{clean['PATH']}"
        start = time.monotonic()
        install = named_install(page.read_text())
        subprocess.run(f"{install} -q", shell=True, cwd=folder, env=clean, check=True, stderr=sys.stderr)
        installed = time.monotonic()
        subprocess.run(
            ["python", "-W", "ignore", "-c", READER, page], cwd=folder, env=clean, check=True, stdout=sys.stderr
        )
        return installed - start, time.monotonic() - installed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, default=sorted((ROOT / "docs" / "tutorials").glob("*.md")))
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    slower = runpy.run_path(str(ROOT / "tests" / "pace.py"))["slower"]
    print(f"{'tutorial':<16} {'install':>8} {'blocks':>8} {'pace':>5}   what it installs")
    for page in given.pages:
        before = slower()
        install, blocks = follow(page.resolve(), given.python)
        pace = (before + slower()) / 2
        print(
            f"{page.stem:<16} {install:>6.0f} s {blocks:>6.0f} s {pace:>5.1f}   {named_install(page.read_text())}",
            flush=True,
        )


if __name__ == "__main__":
    main()
