"""Seconds and bytes that bounds may take: looked at between chunks of work, and before it."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field

from specgrad.errors import UnsupportedError
from specgrad.graph.graph import CONSTANT, Graph

ARRAYS = 28
"""Float64 arrays that are kept of a node: its ball and expansion, boxes, errors, sizes, lines, charges."""

COPIES = 6
"""Arrays as large as an objective that are alive while it goes through a layer."""


@dataclass(frozen=True)
class ComputeBudget:
    """What is left of both; the clock starts when it is made.

    >>> ComputeBudget(seconds=0.0).is_spent, ComputeBudget().is_spent
    (True, False)
    """

    seconds: float | None = None
    memory: int | None = None
    start: float = field(default_factory=time.monotonic)

    @property
    def is_spent(self) -> bool:
        """Whether time is up: what has not been narrowed keeps its interval."""
        return self.seconds is not None and time.monotonic() - self.start >= self.seconds

    def cells(self, usual: int, graph: Graph) -> int:
        """How many cells of objectives may be held at once, `usual` at most."""
        left = self._allowed - kept(graph)
        return max(1, min(usual, left // (8 * COPIES)))

    @property
    def _allowed(self) -> int:
        return self.memory if self.memory is not None else machine()

    def check(self, graph: Graph) -> None:
        """Refuse what does not fit: what is kept of every node, and two rows at the widest one."""
        widest = max((math.prod(n.shape) for n in graph.nodes), default=1)
        needed = kept(graph) + 8 * COPIES * 2 * widest
        if needed > self._allowed:
            text = f"linear bounds of this graph need {needed / 1e9:.1f} GB; {self._allowed / 1e9:.1f} GB are allowed"
            raise UnsupportedError("crown", text)


def kept(graph: Graph) -> int:
    """Bytes of what is known of all nodes; of a constant, its value and radius."""
    arrays = [(n.shape, 2 if n.op is CONSTANT else ARRAYS) for n in graph.nodes if n.kind == "real"]
    return 8 * sum(count * math.prod(shape) for shape, count in arrays)


def machine() -> int:
    """Bytes of this machine's memory; more than any where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not every system has it
        return 1 << 62
