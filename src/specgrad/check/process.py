"""Another process with a time and a memory limit, so that a runtime's abort is a verdict and not our crash."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from ..scalar import Array
from .worker import read_frame, write_frame

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
        command = [sys.executable, "-P", path, str(self.megabytes * 2**20)]  # -P: our html.py is not everyone's html
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.environment},
        )

    def run(self, program: str, arrays: Mapping[str, Array]) -> Answer:
        """Execute the program's run(**arrays) over there."""
        worker = self._worker if self._worker is not None and self._worker.poll() is None else self._start()
        self._worker = worker
        try:
            write_frame(worker.stdin, {"program:source": np.array(program), **arrays})
        except BrokenPipeError:
            return self._died(worker)
        if not _ready(worker.stdout, self.seconds):
            self.close()
            return Answer("times out", reason=f"no answer within {self.seconds:g} s")
        found = read_frame(worker.stdout)
        if found is None:
            return self._died(worker)
        if "error" in found:
            return Answer("refuses", reason=str(found["error"]))
        return Answer("answers", tuple(found[f"result{i}"] for i in range(len(found))))

    def _died(self, worker: Any) -> Answer:
        code = worker.wait()
        self.close()
        return Answer("crashes", reason=signal.Signals(-code).name if code < 0 else f"exit code {code}")

    def close(self) -> None:
        """End the worker, if there is one."""
        if self._worker is not None:
            self._worker.kill()
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


def _close_quietly(stream: Any) -> None:
    with suppress(BrokenPipeError):  # what was still to be flushed has no reader any more
        stream.close()


def _ready(stream: Any, seconds: float) -> bool:
    """Whether something can be read before the time is over."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([stream], [], [], left)[0]:
            return True
    return False
