"""The state of a campaign, read from its records alone; running workers are not asked."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import jobs
from ..record_store import Records

RATE_SHARDS = 1000  # shards that the rate is taken from
PAUSE_SECONDS, PAUSE_GAPS = 10.0, 20.0  # a gap this many seconds longer than so many usual ones is a pause, not work


@dataclass(frozen=True)
class CampaignStatus:
    """State of a campaign of a `kind` in a `folder`: how many shards (`count`), which are done or crashed, and the rate
    when it last ran.
    """

    kind: str
    folder: str
    count: int
    done: frozenset[int]
    crashed: frozenset[int]
    rate: float | None
    """Shards per second."""
    idle_seconds: float | None
    """Seconds since the last shard was done."""

    @property
    def left(self) -> int:
        """Number of shards that are neither done nor crashed."""
        return self.count - len(self.done) - len(self.crashed)

    @property
    def seconds_left(self) -> float | None:
        """Expected seconds until all shards are done; None: not known."""
        return 0.0 if not self.left else self.left / self.rate if self.rate else None

    @property
    def is_idle(self) -> bool:
        """Whether the last shard was done so long ago that nobody seems to be working."""
        return self.idle_seconds is not None and self.idle_seconds > PAUSE_SECONDS + PAUSE_GAPS / (self.rate or 1.0)

    @property
    def verdict(self) -> str:
        """Verdict: "unfinished", "crashed" (some shard did), or "ok"."""
        return "unfinished" if self.left else "crashed" if self.crashed else "ok"

    def done_by_segment(self, cells: int) -> list[tuple[float, bool]]:
        """Return, for `cells` equal segments of the shards in order: the share that is done, and whether one crashed.

        >>> CampaignStatus("audit", "run", 4, frozenset({0, 1, 2}), frozenset({3}), None, None).done_by_segment(2)
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
        """Return JSON data: kind, folder, shards, done, crashed (their numbers), left, per_second, seconds_left, and
        quiet_seconds, those since the last was done.
        """
        return {
            "kind": self.kind,
            "folder": self.folder,
            "shards": self.count,
            "done": len(self.done),
            "crashed": sorted(self.crashed),
            "left": self.left,
            "per_second": self.rate,
            "seconds_left": self.seconds_left,
            "quiet_seconds": self.idle_seconds,
        }


def standing(where: Any) -> CampaignStatus:
    """Return the state of the campaign in `where`, a folder or object store; JobError if it holds none."""
    records = Records(where)
    there = jobs.status(records)
    times = sorted(records.times("results").values())
    idle_seconds = max(0.0, time.time() - times[-1]) if times else None
    kind = str(there.about["identity"].get("kind", "another job"))
    return CampaignStatus(
        kind, str(records.where), there.count, there.done, there.crashed, rate_of(times), idle_seconds
    )


def rate_of(times: Sequence[float]) -> float | None:
    """Return shards per second over the last RATE_SHARDS, without pauses, from sorted times; None if there are too few.

    >>> rate_of([0.0, 1.0, 2.0, 3.0, 5000.0, 5001.0])
    1.0
    """
    recent = times[-RATE_SHARDS:]
    gaps = [b - a for a, b in itertools.pairwise(recent)]
    if len(gaps) < 2:
        return None
    longest_gap = PAUSE_SECONDS + PAUSE_GAPS * statistics.median(gaps)
    worked = [g for g in gaps if g <= longest_gap]
    return len(worked) / sum(worked) if sum(worked) > 0 else None
