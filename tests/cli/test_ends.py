"""What ends a command without a verdict never ends it with 0 or 1: signals, exits of others, workers, pipes."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pace import stretched

pytest.importorskip("typer")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
cli = pytest.importorskip("specgrad.cli.main")
outcome = import_module("specgrad.cli.shared.exit_codes")
processes = import_module("specgrad.process.process")
NEW_WORKERS = True  # which end without an answer


class PanicError(BaseException):
    """As Rust's panics come to Python: no Exception."""


ENDS: list[tuple[BaseException, int]] = [
    (SystemExit(0), 4),
    (SystemExit(None), 4),
    (SystemExit(1), 4),
    (SystemExit("a library has had enough"), 4),
    (SystemExit(int(signal.SIGTERM)), 128 + signal.SIGTERM),  # Ray's own words
    (BrokenPipeError(32, "a worker's pipe, not stdout"), 4),
    (asyncio.CancelledError(), 4),
    (GeneratorExit(), 4),
    (PanicError("called `Option::unwrap()` on a `None` value"), 4),
    (processes.WorkerError("gave no answer"), 4),
    (KeyboardInterrupt(), 2),
]


@pytest.mark.quick
@pytest.mark.parametrize("json_too", ["", " --json"])
@pytest.mark.parametrize(("error", "code"), ENDS, ids=lambda end: repr(end))
def test_no_exception_ends_a_command_with_a_verdict(
    error: BaseException, code: int, json_too: str, folder, run, monkeypatch
) -> None:
    def end(*args: Any) -> None:
        raise error

    monkeypatch.setattr("specgrad.graph.command.importable_graph", end)
    found, out, err = run(f"show net.onnx{json_too}")
    assert (found, err.count("\n")) == (code, 1), (out, err)
    said = "error" if code == 4 else "cannot tell"
    assert (json.loads(out)["verdict"] == said) if json_too else out == ""


def test_whatever_ends_a_command_is_neither_yes_nor_no() -> None:
    """All exceptions of Python, whoever raises them."""
    plain = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
    assert len(plain) > 60
    for kind in plain:
        error = kind("", [KeyError()]) if issubclass(kind, BaseExceptionGroup) else kind.__new__(kind)
        assert outcome.ending(error)[0] not in (outcome.YES, outcome.NO), kind


COMMANDS = {
    "audit": "audit net.onnx --runtime onnxruntime",
    "conformance": "conformance --runtime onnxruntime --operator relu --count 8",
    "preserve": "preserve net.onnx ties.npz --runtime onnxruntime",
    "certify": "certify net.onnx broken.vnnlib --seconds 10",
    "profile": "profile clean.onnx --sonnx",
    "evidence": "evidence net.onnx --recorded recorded.npz",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_worker_that_ends_without_an_answer_is_4_with_its_last_words(
    name: str, folder: Path, run, monkeypatch
) -> None:
    """Its exit code is 0. The runtime is correct, and nothing is said of it."""
    (folder / "broken.vnnlib").write_text((folder / "p.vnnlib").read_text().replace("(>= Y_1 3)", "(>= Y_1 0.5)"))
    (folder / "worker.py").write_text("import sys\nprint('cannot read this', file=sys.stderr)")
    monkeypatch.setattr(processes, "WORKER", folder / "worker.py")
    code, out, err = run(COMMANDS[name])
    assert (code, "crashes" in out) == (4, False), (out, err)
    words = ("gave no answer: exit code 0, before it called the runtime", "cannot read this", "report it")
    assert all(text in err for text in words), err


def test_a_campaign_records_such_a_worker_as_its_own_crash(folder: Path, run, monkeypatch) -> None:
    (folder / "worker.py").write_text("")
    monkeypatch.setattr(processes, "WORKER", folder / "worker.py")
    code, out, _ = run("campaign run ask.toml --executor loop --retries 0 --json")
    assert (code, json.loads(out)["verdict"]) == (0, "ok")  # every shard has a record
    assert run("campaign status ask.toml --json")[0] == 2
    assert "WorkerError: specgrad's worker gave no answer" in (folder / "q" / "crashed" / "0").read_text()


BROKEN = [
    ("numpy", "raise ImportError('its libraries\\n are gone')", 4, "cannot start: ImportError: its libraries are gone"),
    ("numpy", "raise SystemExit(0)", 4, "cannot start: SystemExit: 0"),
    ("numpy", "raise KeyboardInterrupt", 2, "stopped"),
    ("typer", "raise ImportError", 3, "the command needs typer, which is installed but does not import"),
]


@pytest.mark.parametrize(("package", "text", "code", "said"), BROKEN)
def test_a_command_that_cannot_be_imported_says_neither_yes_nor_no(
    package: str, text: str, code: int, said: str, tmp_path: Path
) -> None:
    """Python itself would end with 1, or with what a package says."""
    (tmp_path / f"{package}.py").write_text(text)
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from specgrad_command import main; main()"
    done = subprocess.run([sys.executable, "-c", start, "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    assert done.stderr.startswith(f"specgrad: {said}"), done.stderr


@pytest.mark.parametrize("text", [b[1] for b in BROKEN[:2]])
@pytest.mark.parametrize("options", [["-m", "specgrad"], ["-Bm", "specgrad"], ["-mspecgrad"]])
def test_what_python_imports_before_the_command_says_neither_yes_nor_no(
    options: list[str], text: str, tmp_path: Path
) -> None:
    (tmp_path / "numpy.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, *options, "--help"], env={**os.environ, "PYTHONPATH": path}, capture_output=True
    )
    assert (done.returncode, done.stdout) == (4, b""), done.stderr


def test_other_modules_that_import_specgrad_end_as_they_do(tmp_path: Path) -> None:
    """Python sets argv[0] to -m for whatever it imports before the module that it runs."""
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "__init__.py").write_text("import specgrad")
    (tmp_path / "tool" / "__main__.py").write_text("raise SystemExit(7)")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run([sys.executable, "-m", "tool", "-m", "specgrad"], env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 7


# --- signals, to real processes ---------------------------------------------------------------------------------------

SPEC = (
    'kind = "conformance"\nfolder = "{}"\nruntime = "onnxruntime"\noperators = ["relu"]\nseeds = 9999\nquestions = 64'
)
STARTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell that starts tests in the background has them ignore interrupts
os.execv(sys.executable, [sys.executable, "-m", "specgrad", "campaign", "run", *sys.argv[1:]])
"""
UNDER_WAY = {"ray": "raylet", "dask": "spawn_main", "processes": "spawn_main", "loop": "worker.py"}
"""A process that the executor has started once it is at work."""


def started(executor: str, folder: Path) -> subprocess.Popen:
    (folder / f"{executor}.toml").write_text(SPEC.format(executor))
    command = [sys.executable, "-c", STARTED, f"{executor}.toml", "--executor", executor, "--workers", "1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, text=True, start_new_session=True, **pipes)


def begun(runner: Any, words: str) -> bool:
    psutil = pytest.importorskip("psutil")
    end = time.monotonic() + stretched(60)
    while time.monotonic() < end and runner.poll() is None:
        for child in psutil.Process(runner.pid).children(recursive=True):
            try:
                if words in " ".join(child.cmdline()):
                    return True
            except psutil.Error:
                continue
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs signals")
@pytest.mark.parametrize(
    ("name", "executors"),
    [
        ("SIGTERM", ["ray", "loop"]),
        ("SIGINT", ["processes"]),
        pytest.param("SIGTERM", ["dask", "processes"], marks=pytest.mark.slow),
        pytest.param("SIGHUP", ["processes"], marks=pytest.mark.slow),
        pytest.param("SIGINT", ["loop"], marks=pytest.mark.slow),
    ],
)
def test_a_terminated_command_is_never_a_success(name: str, executors: list[str], tmp_path: Path) -> None:
    number = getattr(signal, name)
    for executor in executors:
        pytest.importorskip({"dask": "distributed"}.get(executor, executor)) if executor in ("ray", "dask") else None
    runners = {executor: started(executor, tmp_path) for executor in executors}
    try:
        for executor, runner in runners.items():
            assert begun(runner, UNDER_WAY[executor]), (executor, runner.communicate())
            runner.send_signal(number)
        for executor, runner in runners.items():
            out, err = runner.communicate(timeout=stretched(60))
            code = 128 - runner.returncode if runner.returncode < 0 else runner.returncode  # as shells show it
            assert (executor, code, out) == (executor, 2 if name == "SIGINT" else 128 + number, ""), err
            assert executor != "ray" or err.endswith("specgrad: stopped by SIGTERM\n"), err
    finally:
        for runner in runners.values():
            if runner.poll() is None:
                os.killpg(runner.pid, signal.SIGKILL)
            runner.communicate()


@pytest.mark.skipif(os.name != "posix", reason="needs pipes that break")
@pytest.mark.parametrize(
    ("command", "code"), [("--help", 0), ("explain schema audit", 0), ("show none.onnx --json", 3)]
)
def test_a_reader_who_leaves_changes_no_exit_code(command: str, code: int, folder) -> None:
    text = [sys.executable, "-m", "specgrad", *command.split()]
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(text, stdout=write, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
