"""Workers end with their parent, however it ends; nothing is left running and nothing half-written."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import specgrad as sg
from pace import stretched
from specgrad.process import Process
from specgrad.process.worker import encode, read_frame

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
SLEEP = "def run(**named):\n    import time\n    time.sleep(600)"
AROUND = "--input x.npy --label 0 --eps 1 --seconds 300"  # neither proven nor broken within that time
COMMANDS = {
    "audit": "audit net.onnx --runtime onnx-reference --input x.npy --html out.html",
    "conformance": "conformance --runtime onnx-reference --count 4096 --html out.html --scripts cases",
    "certify": f"certify net.onnx {AROUND} --vnncomp out.txt --certificate c.json",
}


@pytest.fixture(scope="module")
def hard() -> bytes:
    """A network whose robustness is neither proven nor broken in minutes, as an ONNX file."""
    pytest.importorskip("onnx")
    from specgrad.interop import to_onnx

    rng = np.random.default_rng(0)
    weights = [(rng.normal(size=(8, 8, 3, 3)) / 6).astype(np.float32) for _ in range(6)]
    last, bias = (rng.normal(size=(3, 512)) / 16).astype(np.float32), np.array([50, 0, 0], np.float32)

    def net(x):
        for w in weights:
            x = sg.relu(sg.conv(w, None, x, padding=1))
        return sg.linear(last, bias, sg.flatten(x, 1))

    return to_onnx(sg.trace(net, (1, 8, 8, 8))).SerializeToString()


def descendants(pid: int) -> set[int]:
    """Children of children too, from /proc."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, todo = set(), [pid]
    while todo:
        at = todo.pop()
        todo += [child for child, parent in parents.items() if parent == at and child not in found]
        found |= {child for child, parent in parents.items() if parent == at}
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def has_loaded(pid: int, library: str) -> bool:
    try:
        return library in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def wait_until(condition, seconds: float = 120) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.05)
    return bool(condition())


@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("thread", [False, True])
def test_a_busy_worker_ends_with_its_parent(number: int, thread: bool, tmp_path) -> None:
    ask = f"def ask(): Process().run({SLEEP!r}, {{}})"
    call = "t = threading.Thread(target=ask)\nt.start()\nt.join()" if thread else "ask()"
    text = "\n".join(["import threading", "from specgrad.process import Process", ask, call])
    parent = subprocess.Popen([sys.executable, "-c", text], cwd=tmp_path)
    try:
        assert wait_until(lambda: descendants(parent.pid))
        workers = descendants(parent.pid)
        time.sleep(1)  # it is past its start, and busy
    finally:
        parent.send_signal(number)
        parent.wait()
    assert wait_until(lambda: not any(map(alive, workers)))


INTERRUPTIBLE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell that starts tests in the background has them ignore interrupts
os.execv(sys.executable, [sys.executable, "-m", "specgrad", *sys.argv[1:]])
"""


KILLS = [("audit", signal.SIGKILL), ("conformance", signal.SIGTERM), ("certify", signal.SIGINT)]
OTHERS = [(name, n) for name in COMMANDS for _, n in KILLS if (name, n) not in KILLS]


@linux
@pytest.mark.parametrize(
    ("name", "number"), [*KILLS, *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS)]
)
def test_a_command_that_is_killed_leaves_nothing_behind(name: str, number: int, hard: bytes, tmp_path) -> None:
    pytest.importorskip("typer")
    (tmp_path / "net.onnx").write_bytes(hard)
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8, 8), np.float32))
    before = {p.name for p in tmp_path.iterdir()}
    command = [sys.executable, "-c", INTERRUPTIBLE, *COMMANDS[name].split()]
    parent = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    busy = (lambda: has_loaded(parent.pid, "libtorch_cpu")) if name == "certify" else lambda: descendants(parent.pid)
    assert wait_until(lambda: busy() or parent.poll() is not None)
    workers = descendants(parent.pid)
    assert parent.poll() is None, "it ended too soon to be killed"
    parent.send_signal(number)
    code = parent.wait(timeout=120)
    assert code == (2 if number == signal.SIGINT else -number)
    assert wait_until(lambda: not any(map(alive, workers)))
    assert {p.name for p in tmp_path.iterdir()} == before


@linux
def test_what_a_program_starts_ends_with_the_time() -> None:
    """A forked child holds the pipe open: reading must not wait for it."""
    program = "def run():\n    import os, time\n    os.fork()\n    time.sleep(600)"
    began = time.monotonic()
    with Process(seconds=2) as process:
        assert process.run(program, {}).outcome == "times out"
    assert time.monotonic() - began < stretched(20)


def test_the_deadline_covers_the_whole_answer() -> None:
    """Half an answer, then silence: seen as ready, and never whole."""
    half = "import os, time\ndef run():\n    os.write(FD, b'\\x10' + b'\\0' * 7 + b'half')\n    time.sleep(600)"
    with Process(seconds=3) as process:
        found = process.run(half.replace("FD", "max(int(f) for f in os.listdir('/proc/self/fd')[:-1])"), {})
    assert found.outcome == "times out", found


@pytest.mark.parametrize("cut", [4, 8, 9, 60, -208, -81, -80, -1])  # -208: between two arrays
def test_a_truncated_frame_is_no_frame(cut: int, tmp_path) -> None:
    data = encode({"names": []}, [np.arange(10)])
    (tmp_path / "whole").write_bytes(data)
    (tmp_path / "cut").write_bytes(data[:cut])
    with (tmp_path / "whole").open("rb") as whole, (tmp_path / "cut").open("rb") as part:
        found = read_frame(whole)
        assert found is not None
        assert found[1][0].tolist() == list(range(10))
        assert read_frame(whole) is None  # the end
        with pytest.raises(ValueError, match="not a whole frame"):
            read_frame(part)


@pytest.mark.parametrize("noise", [b"\xff" * 8, b"\x04" + b"\0" * 7 + b"noPK", b"\0" * 8])
def test_what_is_not_a_frame_is_no_frame(noise: bytes, tmp_path) -> None:
    (tmp_path / "noise").write_bytes(noise)
    with (tmp_path / "noise").open("rb") as file, pytest.raises(ValueError, match="not a whole frame"):
        read_frame(file)


def test_a_worker_started_in_a_thread_outlives_the_thread() -> None:
    with Process() as process:
        thread = threading.Thread(target=lambda: process.run("def run(): return [1]", {}))
        thread.start()
        thread.join()
        first = process._worker.pid
        assert process.run("def run(): return [2]", {}).arrays[0] == 2
        assert process._worker.pid == first


def test_without_the_module_resource_the_command_runs_and_says_so(tmp_path) -> None:
    pytest.importorskip("typer")
    pytest.importorskip("onnxruntime")
    text = "import sys; sys.modules['resource'] = None; from specgrad.cli.main import main; main()"
    arguments = ["conformance", "--runtime", "onnxruntime", "--operator", "relu", "--count", "8"]
    done = subprocess.run([sys.executable, "-c", text, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "specgrad: note: this system cannot limit the memory of a runtime\n")
