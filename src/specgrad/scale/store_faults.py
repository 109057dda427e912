"""Faults of a store (full, gone, throttled, slow): told from faults of a shard, waited out, and named at the end."""

from __future__ import annotations

import errno
import logging
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import WorkerError

LOG = logging.getLogger("specgrad.scale")
"""Its warnings come out on stderr, unless a program configures logging otherwise."""
MAX_DELAY_SECONDS = 30.0
NAMES = """EACCES EAGAIN EBUSY ECONNABORTED ECONNREFUSED ECONNRESET EDQUOT EHOSTDOWN EHOSTUNREACH EIO EMFILE ENETDOWN
    ENETRESET ENETUNREACH ENFILE ENOLINK ENOSPC ENOTCONN EPERM EPIPE EREMOTEIO EROFS ESTALE ETIMEDOUT"""
ERRNOS = frozenset(getattr(errno, name) for name in NAMES.split() if hasattr(errno, name))
STATUS = re.compile(
    r"(UNAVAILABLE|RESOURCE_EXHAUSTED|DEADLINE_EXCEEDED|ABORTED|CANCELLED|UNAUTHENTICATED|PERMISSION_DENIED): "
)
"""How tensorstore begins the text of an error that says nothing about the data."""
CLASSES = frozenset({"GenericError", "JoinError", "PermissionDeniedError", "UnauthenticatedError"})
"""The same of obstore: classes of its errors."""

ANSWER_SECONDS = 300.0  # for one request to a store of arrays, at most

_answer_seconds = ANSWER_SECONDS


class StoreError(WorkerError):
    """Raised if a store of records, sources or targets fails: what it said, in one line. No shard caused it."""


def fault_of(error: BaseException | None) -> str | None:
    """Return the fault of a store that an error, or a cause of it, tells of, in one line; None if it tells of none.

    >>> fault_of(OSError(errno.ENOSPC, "No space left on device"))
    'OSError: [Errno 28] No space left on device'
    >>> fault_of(ValueError("UNAVAILABLE: the bucket does not answer")), fault_of(ValueError("NOT_FOUND: a chunk"))
    ('ValueError: UNAVAILABLE: the bucket does not answer', None)
    """
    while error is not None:
        if isinstance(error, StoreError):
            return str(error)
        if _is_fault(error):
            return " ".join(f"{type(error).__name__}: {error}".split())[:400]
        error = error.__cause__
    return None


def _is_fault(error: BaseException) -> bool:
    """Return whether an error, without its causes, tells of a fault of a store."""
    if isinstance(error, OSError):
        return error.errno in ERRNOS or isinstance(error, ConnectionError)
    if type(error).__module__.partition(".")[0] == "obstore":
        return type(error).__name__ in CLASSES
    return isinstance(error, ValueError) and STATUS.match(str(error)) is not None


@contextmanager
def faults_named() -> Iterator[None]:
    """Raise a fault of a store inside the block as StoreError, which any process understands; others stay."""
    try:
        yield
    except Exception as error:
        text = fault_of(error)
        if text is None:
            raise
        raise StoreError(text) from None


def limit_answers(seconds: float) -> None:
    """Let `answer` in this process wait at most so long; a worker sets it to half of a shard's time."""
    global _answer_seconds
    _answer_seconds = seconds


def answer(future: Any) -> Any:
    """Return the result of a future of tensorstore; StoreError if the store is too slow for it."""
    try:
        return future.result(timeout=_answer_seconds)
    except TimeoutError:
        raise StoreError(f"a store gave no answer within {_answer_seconds:g} s") from None


class Backoff:
    """Waits between attempts while a store fails: from one second up, with jitter, as long as `seconds` allow.

    >>> backoff = Backoff(600)
    >>> backoff.seconds_left
    0.0
    >>> backoff.fail(StoreError("full"))
    >>> 0 < backoff.seconds_left <= 1
    True
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._since: float | None = None
        self._delay, self._until = 1.0, 0.0

    @property
    def seconds_left(self) -> float:
        """Seconds until the store may be asked again."""
        return max(0.0, self._until - time.monotonic())

    def succeed(self) -> None:
        """Note that the store answered: the next fault is the first one again."""
        self._since, self._delay = None, 1.0

    def fail(self, error: StoreError) -> None:
        """Note a fault, say so in the log, and wait longer; raise it if faults alone came for `seconds`."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= self.seconds:
            raise StoreError(f"{error} (for {now - self._since:.0f} s; run again when it is well, it goes on)")
        if now >= self._until:  # not once for every worker that met the same fault
            self._until = now + self._delay * random.uniform(0.5, 1.0)
            LOG.warning("the store fails, next attempt in %.1f s: %s", self._until - now, error)
            self._delay = min(2 * self._delay, MAX_DELAY_SECONDS)
