"""Other people's code in a process of its own: an abort, a hang, a flood of memory is an answer."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from pace import stretched
from planted_workers import PLANTED, plant
from specgrad.process import Process, WorkerError
from specgrad.process import process as processes

MUTE = "class Mute(Exception):\n    def __str__(self): raise SystemExit(0)\n"


def test_arrays_come_back_as_they_are() -> None:
    given = {"x": np.array([np.nan, -np.inf, 2.0**-149], np.float32), "i": np.arange(3)}
    with Process() as process:
        found = process.run("def run(x, i): return [i, x]", given)
    assert found.outcome == "answers"
    assert found.arrays[0].dtype == np.int64
    np.testing.assert_array_equal(found.arrays[1].view(np.int32), given["x"].view(np.int32))


@pytest.mark.parametrize(
    ("program", "outcome", "reason"),
    [
        ("def run(): raise ValueError('no such\\nthing')", "refuses", "ValueError: no such thing"),
        ("def run(: pass", "refuses", "SyntaxError"),
        ("def run(): import sys; sys.exit(3)", "refuses", "SystemExit: 3"),
        (f"{MUTE}def run(): raise Mute", "refuses", "Mute: its text raises SystemExit"),
        ("def run(): import os; os.abort()", "crashes", "SIGABRT"),
        ("def run(): import os; os._exit(7)", "crashes", "exit code 7"),
        ("def run(): import os; os._exit(0)", "crashes", "exit code 0"),
        ("def run(): import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashes", "SIGSEGV"),
        ("import os; os.abort()\ndef run(): pass", "crashes", "SIGABRT"),
        ("def run(): return [object()]", "refuses", "no array of numbers"),
        ("def run():\n    import numpy\n    return [numpy.ones(10**9)]", "refuses", "emory"),
        ("def run():\n    while True: pass", "times out", "no answer within 1 s"),
    ],
)
def test_everything_that_can_go_wrong_is_an_outcome(program: str, outcome: str, reason: str) -> None:
    with Process(seconds=1 if outcome == "times out" else 60, megabytes=2048) as process:
        found = process.run(program, {})
        assert (found.outcome, reason in found.reason) == (outcome, True), found
        process.seconds = 60  # a busy machine included
        assert process.run("def run(): return [1]", {}).outcome == "answers"  # and the next question is answered


def test_what_a_program_prints_does_not_disturb_the_answer() -> None:
    with Process() as process:
        found = process.run("def run():\n    import os\n    os.write(1, b'noise')\n    print('x')\n    return [5]", {})
    assert found.arrays[0] == 5


SPOILT = {
    "closes its streams": "os.closerange(0, 3)",
    "takes its input away": "sys.stdin = None",
    "a thread that exits later": "threading.Thread(target=lambda: (time.sleep(0.02), os._exit(0))).start()",
    "a thread that crashes later": "threading.Thread(target=lambda: (time.sleep(0.02), os.abort())).start()",
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_a_program_leaves_behind_is_no_fault_of_ours(name: str) -> None:
    """It has answered; the next question, however soon it comes, is another worker's."""
    with Process() as process:
        text = f"import os, sys, threading, time\ndef run():\n    {SPOILT[name]}\n    return [5]"
        assert process.run(text, {}).arrays[0] == 5
        for k in range(3):
            assert process.run("def run(k): return [k]", {"k": np.array(k)}).arrays[0] == k


@pytest.mark.parametrize("left", ["os.abort()", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_crash_that_an_earlier_program_left_is_not_blamed_on_the_one_that_runs(left: str) -> None:
    """The worker ends while the second program sleeps; asked alone, it answers. One that crashes alone has crashed."""
    with Process() as process:
        later = f"threading.Thread(target=lambda: (time.sleep(0.1), {left})).start()"
        process.run(f"import os, threading, time\ndef run():\n    {later}\n    return [5]", {})
        assert process.run("import time\ndef run():\n    time.sleep(0.5)\n    return [7]", {}).arrays[0] == 7
        assert process.run("import os\ndef run(): os.abort()", {}).outcome == "crashes"


def test_a_time_that_an_earlier_program_took_is_not_blamed_on_the_one_that_runs() -> None:
    """A thread that keeps the interpreter; asked alone, the second program answers at once."""
    with Process(seconds=stretched(3)) as process:
        busy = "sys.setswitchinterval(1000); threading.Thread(target=spin, daemon=True).start()"
        spin = "def spin():\n    time.sleep(0.2)\n    while True: pass"
        process.run(f"import sys, threading, time\n{spin}\ndef run():\n    {busy}\n    return [5]", {})
        assert process.run("import time\ndef run():\n    time.sleep(0.5)\n    return [7]", {}).arrays[0] == 7
        assert process.run("def run():\n    while True: pass", {}).outcome == "times out"


def test_a_program_has_no_part_in_the_questions() -> None:
    """What it reads from its standard input is nothing, at once; the next question is there for the worker."""
    with Process(seconds=stretched(5)) as process:
        found = process.run("import os, sys\ndef run(): return [len(os.read(0, 1) + sys.stdin.buffer.read())]", {})
        assert (found.outcome, *found.arrays) == ("answers", 0)
        assert process.run("def run(k): return [k]", {"k": np.array(3)}).arrays[0] == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_no_part_in_the_answers() -> None:
    with Process() as process:
        assert process.run("import os\ndef run(): return [os.fork() * 0 + 5]", {}).arrays[0] == 5
        child = "if os.fork() == 0: time.sleep(0.05); return [6]"
        assert process.run(f"import os, time\ndef run():\n    {child}\n    return [5]", {}).arrays[0] == 5
        for k in range(3):
            assert (
                process.run("import time\ndef run(k): time.sleep(0.05); return [k]", {"k": np.array(k)}).arrays[0] == k
            )
        found = process.run("import os, time\ndef run():\n    os.fork() or time.sleep(600)\n    os.abort()", {})
    assert (found.outcome, found.reason) == ("crashes", "SIGABRT")  # though the child holds what it inherited


def test_an_answer_in_the_moment_of_the_time_limit_is_too_late(monkeypatch) -> None:
    """The worker is killed then, which the machine is not to blame for."""
    whole = processes._exchange

    def late(worker, question):
        frame = whole(worker, question)
        if frame[0].get("now") == "returned":
            worker.wait()
        return frame

    monkeypatch.setattr(processes, "_exchange", late)
    with Process(seconds=stretched(1)) as process:
        assert process.run("def run(): return [5]", {}).outcome == "times out"


def test_our_own_files_do_not_stand_in_for_modules_of_that_name() -> None:
    """specgrad/check holds an html.py, and the worker is a script beside it."""
    with Process() as process:
        found = process.run("import html\n\ndef run():\n    return [html.escape('<')]", {})
    assert (found.outcome, str(found.arrays[0])) == ("answers", "&lt;")


# --- a worker that ends without an answer is our fault, whatever its exit code ----------------------------------------


@pytest.mark.parametrize("name", PLANTED)
def test_an_end_outside_the_program_is_ours(name: str, tmp_path: Path, monkeypatch) -> None:
    """No outcome, which would be a statement about the program."""
    if "hang" in name:
        monkeypatch.setattr(processes, "PROTOCOL_SECONDS", stretched(2))
    monkeypatch.setattr(processes, "EXIT_SECONDS", stretched(0.5))
    when, words = plant(name, tmp_path, monkeypatch)
    with Process() as process, pytest.raises(WorkerError) as found:
        process.run("def run(): return [1]", {})
    assert all(text in str(found.value) for text in (when, words, np.__version__)), found.value


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGHUP"])
def test_a_kill_from_outside_while_the_program_runs_is_not_the_programs(name: str) -> None:
    """As the kernel does where memory runs out."""
    kill = f"os.kill(os.getpid(), signal.{name})"
    program = f"import os, signal, sys\ndef run():\n    print('so far', file=sys.stderr, flush=True)\n    {kill}"
    with Process() as process:
        with pytest.raises(WorkerError) as found:
            process.run(program, {})
        assert process.run("def run(): return [5]", {}).arrays[0] == 5
    assert f"{name}, while the runtime ran. Nothing follows about the runtime." in str(found.value)
    assert "so far" in str(found.value)
    assert ("memory" in str(found.value)) == (name == "SIGKILL")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_last_words_are_those_of_the_last_question() -> None:
    """One worker answers both questions; what it said at the first, and more of it, is not quoted for the second."""
    says = "import os, signal, sys\ndef run():\n    print({!r}, file=sys.stderr, flush=True)\n    {}"
    with Process() as process:
        assert process.run(says.format("long before " * 9, "return [os.getpid()]"), {}).outcome == "answers"
        with pytest.raises(WorkerError) as found:
            process.run(says.format("just now", "os.kill(os.getpid(), signal.SIGKILL)"), {})
    assert str(found.value).endswith("its last words: just now)")


def test_the_time_is_the_programs_alone() -> None:
    """Where the limit is nothing at all, what it ends is still the program."""
    with Process(seconds=0) as process:
        found = process.run("import time\ndef run(): time.sleep(600)", {})
    assert (found.outcome, found.reason) == ("times out", "no answer within 0 s")


def test_questions_are_written_without_words_that_numpy_learnt_late() -> None:
    """np.savez has no allow_pickle before NumPy 2.2: it stored an array of that name, and no worker could read it."""
    assert "savez" not in processes.WORKER.read_text()
