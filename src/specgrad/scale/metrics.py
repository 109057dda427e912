"""The metrics of a run in a file of OpenMetrics text, for a collector that reads files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

SECONDS_BETWEEN = 1.0  # two files
METRICS = (
    ("specgrad_shards", "gauge", "Shards of the job.", "count"),
    ("specgrad_shards_done", "gauge", "Shards that have a result, of this run or before.", "done"),
    ("specgrad_shards_failed", "gauge", "Shards that were given up, by this run or before.", "crashed"),
    ("specgrad_shards_run", "counter", "Shards done by this run.", "run"),
    ("specgrad_shards_retried", "counter", "Failures after which this run tried a shard again.", "retried"),
    ("specgrad_worker_deaths", "counter", "Workers that died.", "deaths"),
    ("specgrad_shard_seconds", "counter", "Seconds that workers took for shards of this run.", "shard_seconds"),
    ("specgrad_result_bytes", "counter", "Bytes of the results of this run, as recorded.", "result_bytes"),
    ("specgrad_run_seconds", "gauge", "Seconds since this run began.", "seconds"),
)
"""Name, type, help and the property of `Progress`; what Dask and Ray try again themselves, nobody here counts."""


def metrics_text(state: Any, job: str) -> str:
    """Return the metrics of a run's `state`, a `Progress`, as OpenMetrics text, labelled with the place of the `job`.

    >>> from specgrad.scale.jobs import Progress
    >>> text = metrics_text(Progress(count=3, before=1, started=0.0, run=1), "/data/run")
    >>> text.splitlines()[5]
    'specgrad_shards_done{job="/data/run"} 2'
    """
    label = job.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    lines = []
    for name, kind, about, attribute in METRICS:
        sample = f"{name}_total" if kind == "counter" else name
        lines += [f"# TYPE {name} {kind}", f"# HELP {name} {about}"]
        lines.append(f'{sample}{{job="{label}"}} {getattr(state, attribute):.12g}')
    return "\n".join([*lines, "# EOF", ""])


class MetricsFile:
    """The file at `path`, with the metrics of a run over the records at `job`: there whole or not at all.

    None as a path: there is no file.
    """

    def __init__(self, path: str | Path | None, job: str) -> None:
        self.path, self.job, self.next = None if path is None else Path(path), job, 0.0

    def write(self, state: Any, now: bool = True) -> None:
        """Write the file, at once or (`now` False) unless one was written a second ago."""
        if self.path is None or (not now and time.monotonic() < self.next):
            return
        self.next = time.monotonic() + SECONDS_BETWEEN
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        beside.write_text(metrics_text(state, self.job), encoding="utf-8")
        os.replace(beside, self.path)
