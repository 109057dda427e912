"""Files of the command: checked before the work, whole or not at all, never over what somebody else wrote."""

from __future__ import annotations

import errno
import os
import signal
from importlib import import_module
from pathlib import Path

import pytest

from forks import COMMAND
from specgrad.atomic_files import write_whole
from specgrad.check.conform.repro_script import MARK

pytest.importorskip("specgrad.cli.main")
CONFORM = import_module("specgrad.check.conform.command")
CERTIFY = "certify net.onnx p.vnnlib --seconds 10"
AUDIT = "audit net.onnx --runtime onnxruntime"
CONFORMANCE = "conformance --runtime onnxruntime --operator relu --count 8"
PAGES = "conformance runtimes --only onnxruntime --count 8"
SHOW = "show net.onnx"
PROFILE = "profile clean.onnx"
OUTPUTS = [
    (AUDIT, "--html"),
    (SHOW, "--svg"),
    (CERTIFY, "--html"),
    (PROFILE, "--html"),
    (CONFORMANCE, "--html"),
    (CERTIFY, "--vnncomp"),
    (CERTIFY, "--certificate"),
]
FOLDERS = [(CONFORMANCE, "--scripts"), (PAGES, "--write")]


@pytest.fixture
def quick(monkeypatch):
    """Conformance of one operator that ONNX Runtime gets wrong."""
    whole = CONFORM.run_conformance
    monkeypatch.setattr(
        CONFORM, "run_conformance", lambda name, **k: whole(name, operators=["global_max_pool"], count=16)
    )


@pytest.fixture(scope="module")
def said() -> dict[str, tuple[int, str, str]]:
    """What commands end with and say where nothing hinders them."""
    return {}


@pytest.fixture
def quietly(said, folder, quick, run):
    """A command that writes no file, run once for all tests."""
    return lambda command: said.get(command) or said.setdefault(command, run(command))


def temporary(where: Path) -> list[str]:
    return [p.name for p in where.rglob("*.tmp")]


def test_runtimes_write_removes_only_what_it_wrote(folder, quick, run, monkeypatch) -> None:
    scripts = folder / "out" / "runtimes"
    scripts.mkdir(parents=True)
    (scripts / "mine.py").write_text("print('years of work')\n")
    (scripts / "old.py").write_text(f"# of an earlier run\n{MARK}\n")
    assert run(f"{PAGES} --write out")[0] == 0
    assert {p.name for p in scripts.iterdir()} == {"mine.py", "onnxruntime-global_max_pool-P1.py"}
    assert MARK in (scripts / "onnxruntime-global_max_pool-P1.py").read_text()
    assert run(f"{PAGES} --write out")[0] == 0  # its own page and scripts it may overwrite


def test_runtimes_write_removes_nothing_if_the_page_cannot_be_written(folder, quick, run, monkeypatch) -> None:
    scripts = folder / "out" / "runtimes"
    scripts.mkdir(parents=True)
    (scripts / "old.py").write_text(MARK)
    foreign = scripts / "onnxruntime-global_max_pool-P1.py"
    foreign.write_text("mine")
    code, out, err = run(f"{PAGES} --write out")
    assert (code, err.count("\n"), "was not written by specgrad" in err) == (0, 1, True)
    assert "onnxruntime" in out
    assert foreign.read_text() == "mine"
    assert {p.name for p in scripts.iterdir()} == {"old.py", foreign.name}
    assert run(f"{PAGES} --write out --force")[0] == 0
    assert {p.name for p in scripts.iterdir()} == {foreign.name}
    (folder / "out" / "runtimes.md").write_text("my own notes")
    assert run(f"{PAGES} --write out")[0] == 3


@pytest.mark.parametrize(("command", "option"), OUTPUTS)
def test_foreign_files_and_missing_folders_are_refused_before_the_work(
    command: str,
    option: str,
    folder,
    run,
    monkeypatch,
) -> None:
    (folder / "mine.json").write_text('{"format": "specgrad"}')
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with monkeypatch.context() as patched:
        for room in ("graph", "check.auditing", "bounds.search"):
            patched.setattr(f"specgrad.{room}.command.named_model", lambda name: pytest.fail("the work began"))
        patched.setattr(CONFORM, "run_conformance", lambda *a, **k: pytest.fail("the work began"))
        patched.setattr("specgrad.safety.profile.check_profile", lambda *a, **k: pytest.fail("the work began"))
        for path in ("mine.json", "nowhere/out.json", "."):
            code, _, err = run(f"{command} {option} {path}")
            assert (code, err.count("\n")) == (3, 1), err
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert run(f"{command} {option} mine.json --force")[0] == 0
    assert (folder / "mine.json").read_bytes() != before["mine.json"]
    assert run(f"{command} {option} mine.json")[0] == 0  # now it is ours
    assert temporary(folder) == []


def test_a_certificate_does_not_replace_the_weights_of_a_saved_graph(folder, run, monkeypatch) -> None:
    (folder / "net.safetensors").write_bytes(b"weights")
    assert run(f"{CERTIFY} --certificate net.json")[0] == 3
    assert (folder / "net.safetensors").read_bytes() == b"weights"


SLOW = pytest.mark.slow
ERRORS = [(errno.ENOSPC, ""), (errno.EROFS, " --json")]
LATER = [(errno.ENOSPC, " --json"), (errno.EROFS, ""), (errno.EACCES, ""), (errno.EACCES, " --json")]


@pytest.mark.parametrize(("number", "json_too"), [*ERRORS, *(pytest.param(*case, marks=SLOW) for case in LATER)])
@pytest.mark.parametrize(("command", "option"), [*OUTPUTS, *FOLDERS])
def test_a_full_disk_or_a_read_only_folder_costs_the_file_and_not_the_verdict(
    command: str,
    option: str,
    number: int,
    json_too: str,
    folder,
    quietly,
    run,
    monkeypatch,
) -> None:
    def fail(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    said = quietly(command + json_too)
    monkeypatch.setattr("specgrad.atomic_files.os.fsync", fail)
    code, out, err = run(f"{command} {option} out.json{json_too}")
    assert (code, out.split()[:3]) == (said[0], said[1].split()[:3])
    assert (err.count("\n"), os.strerror(number) in err) == (1, True), err
    assert temporary(folder) == []


NOT_EVEN_ROOT = Path("/sys/kernel")


@pytest.mark.parametrize("json_too", ["", pytest.param(" --json", marks=SLOW)])
@pytest.mark.parametrize(("command", "option"), [*OUTPUTS, *FOLDERS])
def test_a_file_that_may_not_grow_costs_the_file_and_not_the_verdict(
    command: str, option: str, json_too: str, folder, quietly, run
) -> None:
    """The system itself refuses: no file of this process may grow."""
    resource = pytest.importorskip("resource")
    said = quietly(command + json_too)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most[1]))
    try:
        code, out, err = run(f"{command} {option} out.json{json_too}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert (code, out.split()[:3]) == (said[0], said[1].split()[:3])
    assert (err.count("\n"), os.strerror(errno.EFBIG) in err) == (1, True), err
    assert {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


@pytest.mark.skipif(not NOT_EVEN_ROOT.is_dir(), reason="needs a folder where nobody may write")
@pytest.mark.parametrize("json_too", [pytest.param("", marks=SLOW), " --json"])
@pytest.mark.parametrize(("command", "option"), [*OUTPUTS, *FOLDERS])
def test_a_folder_where_nobody_may_write_costs_the_file_and_not_the_verdict(
    command: str, option: str, json_too: str, folder, quietly, run
) -> None:
    said = quietly(command + json_too)
    code, out, err = run(f"{command} {option} {NOT_EVEN_ROOT / 'out.json'}{json_too}")
    assert (code, out.split()[:3]) == (said[0], said[1].split()[:3])
    assert (err.count("\n"), err.startswith("specgrad: could not write ")) == (1, True), err


KILLED = f"""import os, signal, sys
real, left = os.replace, int(sys.argv.pop(1))
def replace(*args):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*args)
os.replace = replace
{COMMAND}
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        (f"{AUDIT} --html out.json", "rounding"),
        ("conformance --runtime onnxruntime --operator global_max_pool --count 16 --scripts cases", "differs"),
        (f"{CERTIFY} --vnncomp out.json", "holds"),
    ],
)
def test_killed_while_it_writes_it_has_said_its_verdict(command: str, verdict: str, folder, torch_forks) -> None:
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    done = torch_forks.python(KILLED, "1", *command.split())
    assert (done.returncode, done.stdout.split()[0]) == (-signal.SIGKILL, verdict)
    left = {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert all(".specgrad-" in name and name.endswith(".tmp") for name in left.keys() - before)
    assert {name: left[name] for name in before} == before


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("renamed", [1, 2, 3])
def test_a_certificate_outlives_one_that_was_killed(renamed: int, folder, run, torch_forks) -> None:
    """Data, text, data: the old certificate is about a smaller box than the new one."""
    other = "certify net.onnx smaller.vnnlib --seconds 10 --certificate own.json"
    (folder / "smaller.vnnlib").write_text((folder / "p.vnnlib").read_text().replace("(<= X_0 1)", "(<= X_0 0.5)"))
    assert run(other)[0] == 0
    command = f"{CERTIFY} --certificate own.json"
    done = torch_forks.python(KILLED, str(renamed), *command.split())
    assert done.returncode == -signal.SIGKILL
    now = "p.vnnlib" if renamed == 3 else "smaller.vnnlib"
    assert run(f"check-certificate own.json net.onnx {now}")[0] == 0
    assert run(command)[0] == 0
    assert run("check-certificate own.json net.onnx p.vnnlib")[0] == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_device_that_is_full_costs_the_file_and_not_the_verdict(folder, run, monkeypatch) -> None:
    code, out, err = run(f"{CERTIFY} --vnncomp /dev/full")
    assert (code, err) == (0, "specgrad: could not write /dev/full: No space left on device\n")
    assert out.startswith("holds")


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "old")
    monkeypatch.setattr("specgrad.atomic_files.os.replace", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.txt", "old")]
