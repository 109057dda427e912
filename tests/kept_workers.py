"""Workers that outlive a `with Process()`, so that tests that audit do not load a runtime each.

A worker answers any number of questions, as in one call of `conformance`; here the next test asks on. One that died,
hung or was left by an error is not kept. What only a new process shows (tests/check/test_process.py, test_orphans.py)
is tested without this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from specgrad.process import Process

IDLE: dict[tuple[Any, ...], Process] = {}
"""By what a worker was started with."""


def _kind(process: Process) -> tuple[Any, ...]:
    return process.megabytes, str(process.folder), *sorted(process.environment.items())


def _enter(self: Process) -> Process:
    kept = IDLE.pop(_kind(self), None)
    if kept is not None:
        self._worker, self._stderr = kept._worker, kept._stderr
    return self


def _exit(self: Process, kind: Any, error: Any, trace: Any) -> None:
    if kind is not None or self._worker is None or self._worker.poll() is not None or _kind(self) in IDLE:
        self.close()
        return
    kept = IDLE[_kind(self)] = Process(megabytes=self.megabytes, environment=self.environment, folder=self.folder)
    kept._worker, kept._stderr, self._worker = self._worker, self._stderr, None


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """While it lasts, every `with Process()` takes an idle worker and leaves its own behind."""
    with pytest.MonkeyPatch.context() as m:
        m.setattr(Process, "__enter__", _enter)
        m.setattr(Process, "__exit__", _exit)
        yield


def end_all() -> None:
    while IDLE:
        IDLE.popitem()[1].close()
