"""Mistakes in our own worker: each ends, hangs or garbles where no program runs, and none says so by its exit code."""

from __future__ import annotations

from pathlib import Path

from specgrad.process import process

BEFORE, AFTER = "before it called the runtime", "after the runtime had returned"
CALLING, RETURNED, ANSWERED = "send(calling)", "send(returned)", "send(encode(*answer))"
HANG, LEAVE = "time.sleep(600)", "os._exit(0)"
PLANTED = {
    "says nothing and exits 0": ("    main()", "    pass", BEFORE, "exit code 0"),
    "says why and exits 1": ("    main()", "    sys.exit('no such luck')", BEFORE, "no such luck"),
    "cannot read the question": ("arrays[1:]", "arrays[9].no", BEFORE, "not a whole frame: IndexError"),
    "aborts before the call": (CALLING, f"os.abort(); {CALLING}", BEFORE, "SIGABRT"),
    "exits before the call": (CALLING, f"{LEAVE}; {CALLING}", BEFORE, "exit code 0"),
    "is killed before the call": (CALLING, f"os.kill(os.getpid(), 9); {CALLING}", BEFORE, "SIGKILL"),
    "hangs before the call": (CALLING, f"{HANG}; {CALLING}", BEFORE, "no answer within"),
    "forgets a word": (CALLING, "", BEFORE, "the answer is not a whole frame"),
    "exits after the call": (RETURNED, f"{RETURNED}; {LEAVE}", AFTER, "exit code 0"),
    "dies of the answer": (ANSWERED, "send(encode(*answer, *answer))", AFTER, "TypeError"),
    "hangs after the call": (ANSWERED, f"{HANG}; {ANSWERED}", AFTER, "no answer within"),
    "cuts the answer": (
        ANSWERED,
        f"answers.write(encode(*answer)[:-1]); answers.flush(); {LEAVE}",
        AFTER,
        "exit code 0",
    ),
    "garbles the answer": (ANSWERED, "answers.write(b'{}' * 99); answers.flush()", AFTER, "not a whole frame"),
}
"""By name: a part of worker.py, what stands there instead, when it shows, and what is said of it."""


def plant(name: str, folder: Path, monkeypatch) -> tuple[str, str]:
    """Every worker that is started from now on makes this mistake; when it shows, and what is said."""
    part, instead, when, words = PLANTED[name]
    text = process.WORKER.read_text()
    assert text.count(part) == 1, part
    (folder / "worker.py").write_text(text.replace(part, instead))
    monkeypatch.setattr(process, "WORKER", folder / "worker.py")
    return when, words
