"""What a command costs before it answers: modules that are loaded, and the processor's seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest

START = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from specgrad_command import main
sys.argv = ["specgrad", *{!r}]
main()
"""
SECONDS = 0.2


def started(*words: str, **options: Any) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """The command in a process of its own, and the modules that it has loaded."""
    done = subprocess.run([sys.executable, "-c", START.format(words)], capture_output=True, text=True, **options)
    return done, set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("words", [["--version"], ["--debug", "--version"]])
def test_the_version_is_said_without_the_package(words: list[str]) -> None:
    done, modules = started(*words)
    assert (done.returncode, done.stdout) == (0, f"{version('specgrad')}\n")
    assert modules & {"numpy", "specgrad", "typer"} == set()


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs what a process has used")
def test_the_version_costs_a_fifth_of_a_second() -> None:
    """The processor's, of the cheapest of three: what else runs here is no fault of ours."""
    seconds = []
    for _ in range(3):
        start = "from specgrad_command import main; import sys; sys.argv[1:] = ['--version']; main()"
        with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.DEVNULL) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        seconds.append(used.ru_utime + used.ru_stime)
    assert min(seconds) <= SECONDS


@pytest.mark.skipif(os.name != "posix", reason="needs pipes that break, and streams that are closed")
@pytest.mark.parametrize(("stdout", "code"), [("unread", 0), ("closed", 0), ("/dev/full", 4)])
def test_a_version_that_nobody_reads(stdout: str, code: int) -> None:
    """As every other command: tests/cli/test_ends.py."""
    command = [sys.executable, "-c", "from specgrad_command import main; main()", "--version"]
    if stdout == "closed":
        assert subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command]).returncode == code
        return
    read, write = os.pipe()
    os.close(read)
    if stdout != "unread":
        if not os.path.exists(stdout):
            pytest.skip(f"needs {stdout}")
        os.dup2(os.open(stdout, os.O_WRONLY), write)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


def test_what_follows_the_version_is_still_examined() -> None:
    pytest.importorskip("typer")
    for words, code in ((["--version", "show"], 0), (["--version", "--bogus"], 3)):
        done, modules = started(*words)
        assert done.returncode == code, done.stderr
        assert "typer" in modules
