"""How fast is this machine now? A limit in seconds means the seconds of an idle machine, and is stretched by that.

Shared machines run a third or a fifth as fast for minutes at a time. A limit that such a minute breaks says nothing
about the code, and one wide enough for the worst minute says nothing on a good one.
"""

import time

IDLE = 0.055  # CPU seconds of the loop below on an idle core of the machine that the limits were set on


ENDS = float("inf")
"""Seconds for work that ends by itself: what it finds then depends on no machine. pytest ends what does not end."""


def slower() -> float:
    """At least 1: CPU seconds here over those on an idle machine."""
    start, total = time.process_time(), 0
    for i in range(10**6):
        total += i
    return max(1.0, (time.process_time() - start) / IDLE)


def stretched(limit: float, before: float = 1.0) -> float:
    """The limit by the slower of two moments: `before`, what `slower()` said when the work began, and now."""
    return limit * max(before, slower())
