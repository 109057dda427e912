"""Seconds and bytes that bounds may take: looked at between chunks of work, and before it."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field

from specgrad.errors import UnsupportedError
from specgrad.graph.graph import CONSTANT, Graph

ARRAYS_PER_NODE = 28
"""Float64 arrays that are kept of a node: its ball and expansion, boxes, errors, sizes, lines, charges."""

ARRAYS_PER_OBJECTIVE = 6
"""Arrays as large as an objective that are alive while it goes through a layer."""


@dataclass(frozen=True)
class ComputeBudget:
    """Limits of time and memory for linear bounds: `seconds` since `start`, a time of time.monotonic, and bytes of
    `memory`; None means no limit.

    >>> ComputeBudget(seconds=0.0).is_spent, ComputeBudget().is_spent
    (True, False)
    """

    seconds: float | None = None
    memory: int | None = None
    start: float = field(default_factory=time.monotonic)

    @property
    def is_spent(self) -> bool:
        """Whether the seconds are over: nodes that were not tightened then keep their intervals."""
        return self.seconds is not None and time.monotonic() - self.start >= self.seconds

    def cells(self, usual: int, graph: Graph) -> int:
        """Cells of objectives that may be held at once beside the graph's own arrays: at least 1, at most `usual`."""
        left = self._allowed - bytes_of_nodes(graph)
        return max(1, min(usual, left // (8 * ARRAYS_PER_OBJECTIVE)))

    @property
    def _allowed(self) -> int:
        """Bytes that may be used: `memory`, or those of the machine."""
        return self.memory if self.memory is not None else machine_memory_bytes()

    def check(self, graph: Graph) -> None:
        """Raise UnsupportedError if the arrays of all nodes and two objectives at the widest node do not fit into
        memory.
        """
        widest = max((math.prod(n.shape) for n in graph.nodes), default=1)
        needed = bytes_of_nodes(graph) + 8 * ARRAYS_PER_OBJECTIVE * 2 * widest
        if needed > self._allowed:
            text = f"linear bounds of this graph need {needed / 1e9:.1f} GB; {self._allowed / 1e9:.1f} GB are allowed"
            raise UnsupportedError("crown", text)


def bytes_of_nodes(graph: Graph) -> int:
    """Bytes of the arrays that bounds hold for all nodes; of a constant, its value and radius."""
    arrays = [(n.shape, 2 if n.op is CONSTANT else ARRAYS_PER_NODE) for n in graph.nodes if n.kind == "real"]
    return 8 * sum(count * math.prod(shape) for shape, count in arrays)


def machine_memory_bytes() -> int:
    """Bytes of this machine's memory; 2**62 if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not every system has it
        return 1 << 62
