"""Estimates the cost of a campaign from three of its shards, each run once in a separate process, unrecorded."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..executors import WorkerDiedError, WorkerProcess
from .kind import Kind, Progress
from .kinds import job
from .spec import Spec


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of a campaign from the seconds of some shards on one core.

    A shard that crashed is named in `crashed` and does not count. `count` are the campaign's shards, `rows` the result
    rows of those that were run, `seconds` their times by shard.

    >>> e = Estimate(3600, 2.0, {0: 1.0, 1800: 3.0, 3599: 2.0}, {}, 192)
    >>> e.core_hours, e.least, e.most
    (2.0, 1.0, 3.0)
    """

    count: int
    start: float
    """Seconds until a worker begins with its first shard."""
    seconds: dict[int, float]
    crashed: dict[int, str]
    rows: int

    def _core_hours_at(self, seconds: float) -> float:
        """Return the core hours of the whole campaign if every shard took `seconds`."""
        return self.count * seconds / 3600

    @property
    def core_hours(self) -> float:
        """Estimated core hours of all shards, if they take as long as the tried ones on average."""
        return self._core_hours_at(sum(self.seconds.values()) / max(len(self.seconds), 1))

    @property
    def least(self) -> float:
        """Estimated core hours if all shards took as long as the fastest tried one."""
        return self._core_hours_at(min(self.seconds.values(), default=0.0))

    @property
    def most(self) -> float:
        """Estimated core hours if all shards took as long as the slowest tried one."""
        return self._core_hours_at(max(self.seconds.values(), default=0.0))

    def to_json(self, price: float | None = None) -> dict[str, Any]:
        """Return JSON data: shards, those that were tried with their seconds, crashed, rows_per_shard, start_seconds,
        core_hours and cost.

        Hours and cost are least, mean and most; the cost is by `price` per core hour, null without it.
        """
        hours = {"least": self.least, "mean": self.core_hours, "most": self.most}
        return {
            "shards": self.count,
            "tried": [{"shard": i, "seconds": s} for i, s in self.seconds.items()],
            "crashed": [{"shard": i, "how": how} for i, how in self.crashed.items()],
            "rows_per_shard": self.rows / max(len(self.seconds), 1),
            "start_seconds": self.start,
            "core_hours": hours,
            "cost": None if price is None else {k: v * price for k, v in hours.items()},
        }


def estimate(spec: Spec, progress: Progress | None = None) -> Estimate:
    """Run the first, the middle and the last shard of a campaign, without records, and return what all may take.

    `progress` is told (what, done, total).
    """
    recipe = json.dumps(spec.recipe(), sort_keys=True)
    count = spec.job().count
    seconds: dict[int, float] = {}
    crashed: dict[int, str] = {}
    rows, start = 0, 0.0
    tried = sorted({0, count // 2, count - 1})
    with WorkerProcess() as worker:
        for k, i in enumerate(tried):
            if progress is not None:
                progress(f"shard {i}", k, len(tried))
            try:
                began, seconds[i], lines = worker.run(_time_shard, recipe, i)
                start, rows = max(start, began), rows + lines
            except WorkerDiedError as error:
                crashed[i] = f"its process died: {error}"
            except Exception as error:
                crashed[i] = f"{type(error).__name__}: {error}"
    return Estimate(count, start, seconds, crashed, rows)


@lru_cache(maxsize=1)
def _start_kind(recipe: str) -> tuple[Kind, float]:
    """Build and start the campaign in this process, once; return it and the seconds that this took.

    `recipe` is JSON text, the arguments of `job`. CampaignError if there is no such kind.
    """
    began = time.perf_counter()
    made: Mapping[str, Any] = json.loads(recipe)
    kind = job(**made)
    kind.start()
    return kind, time.perf_counter() - began


def _time_shard(recipe: str, shard: int) -> tuple[float, float, int]:
    """Return (seconds to start, seconds of the shard, rows that it gives) for the campaign of `recipe`."""
    kind, start = _start_kind(recipe)
    began = time.perf_counter()
    data = kind.dry_run(shard)
    return start, time.perf_counter() - began, data.count(b"\n")
