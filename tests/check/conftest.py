"""The command inside the process of the tests: what only a process of its own shows is tested in tests/cli."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

import pytest


@pytest.fixture
def command(capsys, monkeypatch, tmp_path) -> Callable[..., tuple[int, str, str]]:
    """command("show", "net.onnx") in the test's folder -> exit code, stdout, stderr."""
    pytest.importorskip("typer")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["specgrad", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            import_module("specgrad.cli.main").main()
        return (int(end.value.code or 0), *capsys.readouterr())

    return run
