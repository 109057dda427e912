"""Another process with a time and a memory limit, so that a runtime's abort is a verdict and not our crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from ..scalar import Array
from .worker import LIMITS_MEMORY, Frame, encode, read_frame

CANNOT_LIMIT = () if LIMITS_MEMORY else ("memory",)
"""What a worker may use without limit, because this system has no such limit."""
Outcome = Literal["answers", "refuses", "crashes", "times out"]


@dataclass(frozen=True)
class Answer:
    """What came back: arrays, or the reason why none did."""

    outcome: Outcome
    arrays: tuple[Array, ...] = ()
    reason: str = ""


class Process:
    """One worker, started when first needed and again after it died.

    >>> with Process() as process:
    ...     process.run("def run(x): return [x + 1]", {"x": np.ones(2)}).arrays
    ...     process.run("import os; os.abort()", {}).outcome
    (array([2., 2.]),)
    'crashes'
    """

    def __init__(self, *, seconds: float = 60, megabytes: int = 8192, environment: Mapping[str, str] | None = None):
        self.seconds, self.megabytes, self.environment = seconds, megabytes, environment or {}
        self._worker: Any = None

    def _start(self) -> Any:
        path = str(Path(__file__).with_name("worker.py"))
        tied = threading.current_thread() is threading.main_thread()  # Linux ends a child with its thread, not process
        limits = [str(self.megabytes * 2**20), str(os.getpid()), str(int(tied))]
        return subprocess.Popen(
            [sys.executable, "-P", path, *limits],  # -P: our html.py is not everyone's html
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.environment},
            start_new_session=True,  # so that what a runtime starts ends with it
        )

    def run(self, program: str, arrays: Mapping[str, Array], first: Sequence[Array] = ()) -> Answer:
        """Execute the program's run(*first, **arrays) over there; the time covers question and answer."""
        worker = self._worker if self._worker is not None and self._worker.poll() is None else self._start()
        self._worker = worker
        data = encode({"program": program, "names": list(arrays)}, [*first, *arrays.values()])
        with _limited(worker, self.seconds) as over:
            reply = _exchange(worker, data)
        if reply is None and over.is_set():
            self.close()
            return Answer("times out", reason=f"no answer within {self.seconds:g} s")
        if reply is None:
            return self._died(worker)
        header, results = reply
        return Answer("refuses", reason=header["error"]) if "error" in header else Answer("answers", tuple(results))

    def _died(self, worker: Any) -> Answer:
        """Its code, if it ended by itself; one that lives on has sent something else than an answer."""
        try:
            code = worker.wait(timeout=5)
            reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            reason = "the answer is not a whole frame"
        self.close()
        return Answer("crashes", reason=reason)

    def close(self) -> None:
        """End the worker, if there is one."""
        if self._worker is not None:
            _kill(self._worker)
            self._worker.wait()
            for stream in (self._worker.stdin, self._worker.stdout):
                _close_quietly(stream)
            self._worker = None

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _kill(worker: Any) -> None:
    """The worker and what it started."""
    if worker.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL) if hasattr(os, "killpg") else worker.kill()


def _close_quietly(stream: Any) -> None:
    with suppress(BrokenPipeError):  # what was still to be flushed has no reader any more
        stream.close()


def _exchange(worker: Any, data: bytes) -> Frame | None:
    """Question and answer; None if the worker ended before the answer did."""
    try:
        worker.stdin.write(data)
        worker.stdin.flush()
    except OSError:  # it no longer reads
        return None
    return read_frame(worker.stdout)


@contextmanager
def _limited(worker: Any, seconds: float) -> Iterator[threading.Event]:
    """Kill the worker when the time is over, whatever is being written or read; the event says that it was."""
    over = threading.Event()

    def end() -> None:
        over.set()
        _kill(worker)

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), end)
    timer.daemon = True
    timer.start()
    try:
        yield over
    finally:
        timer.cancel()
