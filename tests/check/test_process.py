"""Other people's code in a process of its own: an abort, a hang, a flood of memory is an answer."""

from __future__ import annotations

import numpy as np
import pytest

from specgrad.process import Process


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
        ("def run(): import os; os.abort()", "crashes", "SIGABRT"),
        ("def run(): import os; os._exit(7)", "crashes", "exit code 7"),
        ("def run():\n    import numpy\n    return [numpy.ones(10**9)]", "refuses", "emory"),
        ("def run():\n    while True: pass", "times out", "no answer within 2 s"),
    ],
)
def test_everything_that_can_go_wrong_is_an_outcome(program: str, outcome: str, reason: str) -> None:
    with Process(seconds=2 if outcome == "times out" else 60, megabytes=2048) as process:
        found = process.run(program, {})
        assert (found.outcome, reason in found.reason) == (outcome, True), found
        process.seconds = 60  # a busy machine included
        assert process.run("def run(): return [1]", {}).outcome == "answers"  # and the next question is answered


def test_what_a_program_prints_does_not_disturb_the_answer() -> None:
    with Process() as process:
        found = process.run("def run():\n    import os\n    os.write(1, b'noise')\n    print('x')\n    return [5]", {})
    assert found.arrays[0] == 5


def test_our_own_files_do_not_stand_in_for_modules_of_that_name() -> None:
    """specgrad/check holds an html.py, and the worker is a script beside it."""
    with Process() as process:
        found = process.run("import html\n\ndef run():\n    return [html.escape('<')]", {})
    assert (found.outcome, str(found.arrays[0])) == ("answers", "&lt;")
