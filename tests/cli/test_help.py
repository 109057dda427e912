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
TOP = ("audit", "conformance", "compare", "tolerance", "preserve", "certify", "check-certificate", "verify", "profile")
TOP += ("evidence", "tiles", "campaign", "show", "explain")
NAMES = (
    *(name for name in TOP if name != "campaign"),
    "audit record",
    "conformance runtimes",
    "conformance vectors",
    "tolerance accuracy",
)
NAMES += ("verify supports", "show window", "explain schema")
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

    from specgrad.cli.main import GROUPS

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
    assert {(name.rpartition(" ")[2], home) for name, home in named} == brought


def test_fourteen_commands_stand_at_the_top(run) -> None:
    from specgrad.cli.main import _command

    assert set(_command().list_commands(None)) == set(TOP)
    assert len(TOP) <= 14
    out = run("--help")[1]
    assert all(f"\n  {name} " in out for name in TOP)
    assert not any(
        f"\n  {word} " in out for word in ("runtimes", "vectors", "accuracy", "supports", "window", "schema")
    )
    for name in NAMES[len(TOP) - 1 :]:
        if name.startswith("campaign"):
            continue
        above, word = name.split()
        assert f"Below it: specgrad {name} --help" in run(f"{above} --help")[1]
        assert run(f"{name} --help")[1].startswith(f"Usage: specgrad {name} [OPTIONS]")
        code, _, err = run(f"{word} --help")
        if word == "supports":  # so VNN-LIB's tools ask
            assert code == 0
        else:
            assert (code, err.count("\n"), f"it is specgrad {name}" in err) == (3, 1, True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    command = tmp_path / "specgrad"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m specgrad "$@"\n')
    command.chmod(0o755)
    text = """set -e
eval "$(specgrad --show-completion bash)"
COMP_WORDS=(specgrad check-c); COMP_CWORD=1; _specgrad_completion specgrad; echo "${COMPREPLY[@]}"
COMP_WORDS=(specgrad audit --run); COMP_CWORD=2; _specgrad_completion specgrad; echo "${COMPREPLY[@]}"
COMP_WORDS=(specgrad show wi); COMP_CWORD=2; _specgrad_completion specgrad; echo "${COMPREPLY[@]}"
COMP_WORDS=(specgrad conformance r); COMP_CWORD=2; _specgrad_completion specgrad; echo "${COMPREPLY[@]}"
COMP_WORDS=(specgrad audit --runtime openv); COMP_CWORD=3; _specgrad_completion specgrad; echo "${COMPREPLY[@]}"
"""
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", text], env=environment, capture_output=True, text=True, timeout=180)
    assert (done.stdout, done.stderr) == (
        "check-certificate\n--runtime --run-seconds\nwindow\nruntimes\nopenvino openvino-f32\n",
        "",
    )
