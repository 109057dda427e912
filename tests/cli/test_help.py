"""What the command says of itself: version, help that is not cut, completion in a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import specgrad as sg

pytest.importorskip("typer")
NAMES = ("show", "audit", "conformance", "runtimes", "explain", "certify", "check-certificate", "verify", "supports")
NAMES += ("tolerance", "preserve", "compare", "tiles", "window", "profile", "accuracy", "vectors", "evidence")
NAMES += ("campaign estimate", "campaign run", "campaign status", "campaign collect")


def test_the_version_is_that_of_the_package(run) -> None:
    assert sg.__version__ == version("specgrad")
    assert run("--version") == (0, f"{version('specgrad')}\n", "")  # alone, as VNN-LIB asks solvers to say it
    assert run("--name") == (0, "specgrad\n", "")


@pytest.mark.parametrize("columns", [40, 80])
def test_no_help_is_cut(run, monkeypatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = run("--help")
    assert code == 0
    assert "..." not in out.replace("[ARGS]...", "")
    for name in NAMES:
        example = [line for line in run(f"{name} --help")[1].splitlines() if "Example: " in line]
        assert [line.strip().startswith(f"Example: specgrad {name}") for line in example] == [True]
    assert "--html report.html" in next(x for x in run("audit --help")[1].splitlines() if "Example" in x)


def test_every_command_is_in_a_group(run) -> None:
    from importlib import import_module

    from specgrad.cli.commands import GROUPS

    out = run("--help")[1]
    assert all(f"\n{title}\n" in out for title in GROUPS)
    named = {(name, home) for homes in GROUPS.values() for name, home in homes.items()}
    brought = set()
    for home in {home for _, home in named}:
        commands = import_module(f"specgrad.{home}").commands
        if home == "scale.campaign.command":
            brought.add(("campaign", home))
        else:
            brought |= {(c.name or c.callback.__name__, home) for c in commands.registered_commands}
    assert named == brought


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    command = tmp_path / "specgrad"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m specgrad "$@"\n')
    command.chmod(0o755)
    text = """set -e
eval "$(specgrad --show-completion bash)"
COMP_WORDS=(specgrad check-c); COMP_CWORD=1; _specgrad_completion specgrad; echo "${COMPREPLY[@]}"
COMP_WORDS=(specgrad audit --run); COMP_CWORD=2; _specgrad_completion specgrad; echo "${COMPREPLY[@]}"
COMP_WORDS=(specgrad audit --runtime openv); COMP_CWORD=3; _specgrad_completion specgrad; echo "${COMPREPLY[@]}"
"""
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", text], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("check-certificate\n--runtime\nopenvino openvino-f32\n", "")
