"""A time limit for everything that runs inside a `with` block; long loops look at it between their steps.

A command's `--seconds` is such a limit, and it holds however deep the work is. Nothing is interrupted in the middle:
a caller that can give a smaller answer catches `TimeLimitError`, and says what was left undone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .errors import TimeLimitError

_END: ContextVar[float] = ContextVar("specgrad_deadline", default=float("inf"))


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Limit what runs inside to so many seconds of the clock; None: no limit of its own. The nearest limit holds.

    >>> with time_limit(0):
    ...     check_time("the search")
    Traceback (most recent call last):
    specgrad.errors.TimeLimitError: the search: out of time
    """
    token = _END.set(_END.get() if seconds is None else min(_END.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _END.reset(token)


def time_left() -> float:
    """Return the seconds that are left, at least 0; inf without a limit."""
    return max(_END.get() - time.monotonic(), 0.0)


def is_over() -> bool:
    """Return whether the time is over."""
    return time.monotonic() >= _END.get()


def check_time(what: str) -> None:
    """Raise TimeLimitError if the time is over; `what` says in the error what was at work."""
    if is_over():
        raise TimeLimitError(what, "out of time")
