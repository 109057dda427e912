"""Interleaved timing of two ways to do the same work, on one thread, in CPU time.

CPU time of one thread is what a shared machine disturbs least; the two sides take turns, and the smallest run of each
counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Work = Callable[[], Any]


@dataclass
class Row:
    """One comparison: seconds of the bare framework and of ours, and what we demand."""

    name: str
    bare: float
    ours: float
    target: str = ""

    @property
    def speedup(self) -> float:
        return self.bare / self.ours


def compare(
    bare: Work, ours: Work, *, budget: float = 1.5, least: int = 5, inner: int | None = None, sample: float = 2e-3
) -> tuple[float, float]:
    """The smallest CPU seconds of each, taking turns until the budget is spent. Short work is repeated to a sample."""
    bare()
    ours()
    inner = inner or max(1, int(sample / max(1e-7, _once(ours, 1))))
    best = [float("inf"), float("inf")]
    spent, turn = 0.0, 0
    gc.collect()
    gc.disable()
    try:
        while turn < least or spent < budget:
            order = (0, 1) if turn % 2 == 0 else (1, 0)
            for side in order:
                seconds = _once((bare, ours)[side], inner)
                best[side] = min(best[side], seconds)
                spent += seconds * inner
            turn += 1
    finally:
        gc.enable()
    return best[0], best[1]


def _once(work: Work, inner: int) -> float:
    start = time.process_time()
    for _ in range(inner):
        work()
    return (time.process_time() - start) / inner


def table(rows: list[Row]) -> str:
    lines = ["| what | bare, ms | ours, ms | speed-up | demanded |", "|---|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r.name} | {r.bare * 1e3:.3g} | {r.ours * 1e3:.3g} | {r.speedup:.2f}x | {r.target} |")
    return "\n".join(lines)
