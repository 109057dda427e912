"""How far a campaign is, from its records alone: nobody who runs it is asked."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import jobs
from ..record_store import Records

RECENT = 1000  # shards that the rate is taken from
PAUSE, SLOW = 10.0, 20.0  # a gap this many seconds longer than so many usual ones is a pause, not work


@dataclass(frozen=True)
class CampaignStatus:
    """Counts of shards, which of them are done, and how fast it went when it was last at work."""

    kind: str
    folder: str
    count: int
    done: frozenset[int]
    crashed: frozenset[int]
    rate: float | None
    """Shards per second."""
    quiet: float | None
    """Seconds since the last shard was done."""

    @property
    def left(self) -> int:
        return self.count - len(self.done) - len(self.crashed)

    @property
    def seconds_left(self) -> float | None:
        return 0.0 if not self.left else self.left / self.rate if self.rate else None

    @property
    def rests(self) -> bool:
        """Whether it is long since the last shard: nobody seems to be at work."""
        return self.quiet is not None and self.quiet > PAUSE + SLOW / (self.rate or 1.0)

    @property
    def verdict(self) -> str:
        return "unfinished" if self.left else "crashed" if self.crashed else "ok"

    def shares(self, cells: int) -> list[tuple[float, bool]]:
        """The shards in their order, in so many cells: the share that is done, and whether one crashed there.

        >>> CampaignStatus("audit", "run", 4, frozenset({0, 1, 2}), frozenset({3}), None, None).shares(2)
        [(1.0, False), (0.5, True)]
        """
        cells = min(cells, self.count)
        ends = [-(-c * self.count // cells) for c in range(cells + 1)]  # shard i lies in cell i * cells // count
        done, crashed = [0] * cells, [False] * cells
        for i in self.done:
            done[i * cells // self.count] += 1
        for i in self.crashed:
            crashed[i * cells // self.count] = True
        return [(done[c] / (ends[c + 1] - ends[c]), crashed[c]) for c in range(cells)]

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "folder": self.folder,
            "shards": self.count,
            "done": len(self.done),
            "crashed": sorted(self.crashed),
            "left": self.left,
            "per_second": self.rate,
            "seconds_left": self.seconds_left,
            "quiet_seconds": self.quiet,
        }


def standing(where: Any) -> CampaignStatus:
    """What lies in a folder or an object store; an error if it is no campaign."""
    records = Records(where)
    there = jobs.status(records)
    times = sorted(records.times("results").values())
    quiet = max(0.0, time.time() - times[-1]) if times else None
    kind = str(there.about["identity"].get("kind", "another job"))
    return CampaignStatus(kind, str(records.where), there.count, there.done, there.crashed, rate_of(times), quiet)


def rate_of(times: Sequence[float]) -> float | None:
    """Shards per second over the last of them, pauses left out.

    >>> rate_of([0.0, 1.0, 2.0, 3.0, 5000.0, 5001.0])
    1.0
    """
    recent = times[-RECENT:]
    gaps = [b - a for a, b in itertools.pairwise(recent)]
    if len(gaps) < 2:
        return None
    most = PAUSE + SLOW * statistics.median(gaps)
    worked = [g for g in gaps if g <= most]
    return len(worked) / sum(worked) if sum(worked) > 0 else None
