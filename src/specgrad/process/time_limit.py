"""Ends this process when a call takes too long, whatever runs: Python, or native code that holds every lock."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LIMITS_TIME = hasattr(signal, "setitimer")  # not on Windows
_lock = threading.Lock()
_ends: dict[int, float] = {}


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """End this process by SIGALRM if the block takes longer than so many seconds; each thread may have a block.

    The system ends it: nobody can miss that, and nothing is cleaned up.
    """
    me = threading.get_ident()
    with _lock:
        _ends[me] = time.monotonic() + seconds
        _set_timer()
    try:
        yield
    finally:
        with _lock:
            del _ends[me]
            _set_timer()


def _set_timer() -> None:
    """Set the timer of this process to the earliest end; without one, off."""
    if LIMITS_TIME:
        signal.setitimer(signal.ITIMER_REAL, max(min(_ends.values()) - time.monotonic(), 1e-3) if _ends else 0)
