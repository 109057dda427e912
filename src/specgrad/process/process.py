"""Run a program in another process with a time and a memory limit; an abort becomes a result, not our crash.

Whose end it was is decided by where the worker was (worker.py announces it), never by its exit code alone:

    in the program        crashes (a signal of its own fault, an exit), times out: the program's, and an answer
                          a signal that nobody raises by mistake, such as SIGKILL: the machine's, a WorkerError
    before it, after it   whatever happens: ours, a WorkerError

A program that has returned may still spoil its process, by a thread that crashes later, while the next program runs
too: when a worker ends that has run one before, a new worker is asked, and that one's end counts. A program that times
out is not asked again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from ..errors import WorkerError, printable
from ..scalar import Array
from .worker import LIMITS_MEMORY, Frame, encode, read_frame

CANNOT_LIMIT = () if LIMITS_MEMORY else ("memory",)
"""What a worker may use without limit, because this system has no such limit."""
Outcome = Literal["answers", "refuses", "crashes", "times out"]
PROTOCOL_SECONDS = 300.0
"""For what is not the program: the start of a worker, the request's way there and the answer's way back."""
EXIT_SECONDS = 5.0
"""For a worker that writes no more to end: a core may have to be dumped."""
OWN_FAULTS = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP")
"""Signals that a process brings upon itself; any other came from outside."""
WORKER = Path(__file__).with_name("worker.py")
SEARCH_PATHS = ("PYTHONPATH", "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Variables whose relative entries, and empty ones, mean the folder in which a process works."""
AFTER_RETURN = "after the runtime had returned"
MAX_QUOTED_BYTES = 600


class _SilenceError(Exception):
    """Raised when no frame came from the worker. `outcome` is that of the running program; None: it is not the cause.
    `reason` is in words.
    """

    def __init__(self, outcome: Outcome | None, reason: str) -> None:
        self.outcome, self.reason = outcome, reason


@dataclass(frozen=True)
class ProcessResult:
    """Result of one run: `arrays` if the outcome is "answers", otherwise the `reason` why there are none."""

    outcome: Outcome
    arrays: tuple[Array, ...] = ()
    reason: str = ""


class Process:
    """A worker process that runs programs under limits; started when first needed and restarted after it died.

    A run takes at most `seconds`, and the worker `megabytes` of memory; `environment` are further variables of it. It
    works in `folder`, where a model given as bytes has its external data, but looks for no code there; None: in this
    process's.

    >>> with Process() as process:
    ...     process.run("def run(x): return [x + 1]", {"x": np.ones(2)}).arrays
    ...     process.run("import os; os.abort()", {}).outcome
    (array([2., 2.]),)
    'crashes'
    """

    def __init__(
        self,
        *,
        seconds: float = 60,
        megabytes: int = 8192,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ):
        self.seconds, self.megabytes, self.environment, self.folder = seconds, megabytes, environment or {}, folder
        self._worker: Any = None
        self._stderr: Any = None

    def _start(self) -> Any:
        """Close the present worker, if any, and return a new one (a Popen) with the memory limit and a stderr file."""
        self.close()
        tied = threading.current_thread() is threading.main_thread()  # Linux ends a child with its thread, not process
        limits = [str(self.megabytes * 2**20), str(os.getpid()), str(int(tied))]
        self._stderr = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open as long as the worker lives
        return subprocess.Popen(
            [sys.executable, "-P", str(WORKER), *limits],  # -P: our html.py is not everyone's html
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **(_search_paths() if self.folder else {}), **self.environment},
            cwd=self.folder,
            start_new_session=True,  # so that what a runtime starts ends with it
        )

    def run(self, program: str, arrays: Mapping[str, Array], first: Sequence[Array] = ()) -> ProcessResult:
        """Execute the program's run(*first, **arrays) over there; `seconds` are the program's alone.

        A worker that ends, or hangs, for another reason than the program is a WorkerError.
        """
        request = encode({"program": program, "names": list(arrays)}, [*first, *arrays.values()])
        alone, when = not self._reuse_worker(request), "while the runtime ran"
        if alone:
            self._worker = self._start()
            self._protocol_frame("before it called the runtime", "calling", request)
        try:
            self._next_frame(self.seconds, "returned")
            when = AFTER_RETURN
            header, results = self._next_frame(PROTOCOL_SECONDS, None)
        except _SilenceError as silence:
            if not alone:
                self.close()
                return self.run(program, arrays, first)
            if silence.outcome is None or when == AFTER_RETURN:
                raise self._worker_error(when, silence.reason) from None
            self.close()
            return ProcessResult(silence.outcome, reason=silence.reason)
        return (
            ProcessResult("refuses", reason=header["error"])
            if "error" in header
            else ProcessResult("answers", tuple(results))
        )

    def _reuse_worker(self, request: memoryview) -> bool:
        """Return whether the present worker has read this request and begun its program. False: start a new one."""
        if self._worker is None or self._worker.poll() is not None:
            return False
        try:
            self._next_frame(PROTOCOL_SECONDS, "calling", request)
        except _SilenceError:
            return False
        return True

    def _protocol_frame(self, when: str, stage: str, request: memoryview) -> None:
        """Write `request` and read the frame of `stage`, which comes while no program runs.

        Its absence is a WorkerError, never a result. `when` says in the error what was going on.
        """
        try:
            self._next_frame(PROTOCOL_SECONDS, stage, request)
        except _SilenceError as silence:
            raise self._worker_error(when, silence.reason) from None

    def _next_frame(self, seconds: float, stage: str | None, request: bytes | memoryview = b"") -> Frame:
        """Write `request`, then return the next frame.

        _SilenceError if it is missing, not of `stage`, or not there within `seconds`.
        """
        worker = self._worker
        with _killed_after(worker, seconds) as over:
            frame = _exchange(worker, request)
        if over.is_set():  # a frame that came in the same moment is the last one
            raise _SilenceError("times out", f"no answer within {seconds:g} s")
        if frame is None or frame[0].get("now") != stage:
            raise _exit_reason(worker)
        return frame

    def _worker_error(self, when: str, reason: str) -> WorkerError:
        """Kill the worker, close this process, and return the error to raise, with the last lines of its stderr and
        advice.

        `when` it ended, in words; `reason`: how it ended, as "SIGKILL", which is taken for a lack of memory.
        """
        _kill(self._worker)
        self._worker.wait()
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - MAX_QUOTED_BYTES))
        words = printable(" ".join(self._stderr.read().decode(errors="replace").split()))
        self.close()
        advice = "report it, with this line: it is a fault of specgrad"
        if when == AFTER_RETURN and reason in OWN_FAULTS:
            advice += ", or of a runtime that wrote over memory"
        if reason == "SIGKILL":
            advice = "is the machine, or its container, out of memory? Free some, or run less at once"
        text = f"specgrad's worker gave no answer: {reason}, {when}. Nothing follows about the runtime. {advice}"
        return WorkerError(f"{text} (numpy {np.__version__}; its last words: {words or 'none'})")

    def close(self) -> None:
        """End the worker, if there is one, and close its streams."""
        if self._worker is not None:
            _kill(self._worker)
            self._worker.wait()
            for stream in (self._worker.stdin, self._worker.stdout, self._stderr):
                _close_quietly(stream)
            self._worker = None

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _search_paths() -> dict[str, str]:
    """Return the search paths of this process with the folders that they mean here: an empty entry is the present one.

    A worker in a model's folder would otherwise take a numpy.py beside the model for NumPy.
    """
    given = {name: os.environ.get(name, "") for name in SEARCH_PATHS}
    return {n: os.pathsep.join(map(os.path.abspath, paths.split(os.pathsep))) for n, paths in given.items() if paths}


def _kill(worker: Any) -> None:
    """Kill the worker and all processes that it started."""
    if worker.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL) if hasattr(os, "killpg") else worker.kill()


def _close_quietly(stream: Any) -> None:
    """Close a stream; data that its reader no longer takes is dropped."""
    with suppress(BrokenPipeError):  # what was still to be flushed has no reader any more
        stream.close()


def _exchange(worker: Any, request: bytes | memoryview) -> Frame | None:
    """Write `request` (may be empty) and return the next frame; None if the worker ended or sent something else."""
    try:
        worker.stdin.write(request)
        worker.stdin.flush()
        return read_frame(worker.stdout)
    except (OSError, ValueError):  # it no longer reads; it writes what is not a frame
        return None


def _exit_reason(worker: Any) -> _SilenceError:
    """Return how the worker ended: its exit code or signal; if it still runs, that it sent a broken frame."""
    try:
        code = worker.wait(timeout=EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        return _SilenceError("crashes", "the answer is not a whole frame")
    if code >= 0:
        return _SilenceError("crashes", f"exit code {code}")
    name = next((s.name for s in signal.Signals if s == -code), f"signal {-code}")
    return _SilenceError("crashes" if name in OWN_FAULTS else None, name)


@contextmanager
def _killed_after(worker: Any, seconds: float) -> Iterator[threading.Event]:
    """Kill the worker after `seconds`, whatever is being written or read; the yielded event is set if that happened."""
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
        timer.join()  # then it has killed, and says so, or never will
