"""Collects the results of a campaign: counts of verdicts, and one finding with a script per deduplication key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specgrad.check.conform.repro_script import write_scripts

from ...bounded_files import parse_json
from ...errors import SpecgradError
from .. import job_status, jobs
from .keys import CampaignError
from .kind import Finding, Kind, Progress, Row
from .sample_summary import SampleSummary
from .spec import RECIPE, Spec

MAX_SCRIPTS = 10_000


@dataclass(frozen=True)
class Collected:
    """Results of a campaign of a kind: counts of verdicts by group (operator or model), findings, and the state of its
    shards.

    done      how many shards have a record
    crashes   what is recorded of those that ended their process
    summary   of all samples, where rows are those of many; None for other kinds
    """

    kind: Kind
    shards: int
    done: int
    crashes: tuple[dict[str, Any], ...]
    counts: dict[str, Counter[str]]
    findings: tuple[Finding, ...]
    summary: SampleSummary | None = None

    @property
    def total(self) -> Counter[str]:
        """Counts of verdicts over all groups."""
        return sum(self.counts.values(), Counter())

    @property
    def verdict(self) -> str:
        """Verdict: "findings", "unfinished", "crashed", "cannot tell" (open verdicts, or no good one), or "ok"."""
        total = self.total
        if any(total[kind] for kind in self.kind.BAD):
            return "findings"
        if self.done + len(self.crashes) < self.shards:
            return "unfinished"
        if self.crashes:
            return "crashed"
        complete = not any(total[kind] for kind in self.kind.OPEN) and any(total[kind] for kind in self.kind.GOOD)
        return "ok" if complete else "cannot tell"

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: kind, shards, done, crashed (numbers), rows, `counts` of verdicts by group, findings, and
        the summary of samples, null for kinds without one.
        """
        return {
            "kind": self.kind.name,
            "shards": self.shards,
            "done": self.done,
            "crashed": [*self.crashes],
            "rows": self.total.total(),
            "counts": {group: dict(counts) for group, counts in sorted(self.counts.items())},
            "findings": [f.to_json() for f in self.findings],
            "summary": None if self.summary is None else self.summary.report(),
        }

    def write(self, folder: Path, *, force: bool = False) -> None:
        """Write one script per finding into a folder; files that somebody else wrote are not overwritten, unless
        `force`.

        Those are a FileExistsError.
        """
        write_scripts({f.name: f.script for f in self.findings if f.script}, folder, force=force)


def rows(where: Any) -> Iterator[Row]:
    """Yield every row of every result at `where`, in the order of the shards; CampaignError for a result that is no
    JSON lines.
    """
    for shard, data in jobs.results(where):
        for number, line in enumerate(data.splitlines()):
            row = parse_json(line, f"results/{shard} in {where}")
            if not isinstance(row, dict) or (row.get("shard"), row.get("number")) != (shard, number):
                raise CampaignError(f"results/{shard} in {where}: line {number + 1} is no row of this shard")
            yield row


@contextmanager
def _as_written(name: str) -> Iterator[None]:
    """Raise CampaignError for what a kind of campaign does not find in its rows, which it takes as it wrote them."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, SpecgradError):
            raise
        raise CampaignError(f"{name} holds no row of this campaign: {type(error).__name__}: {error}") from error


def collect(spec: Spec, progress: Progress | None = None) -> Collected:
    """Return the results that a campaign has so far.

    Findings of conformance are shrunk, which needs the runtime installed. `progress` is told (what, done, total).
    JobError for records of another spec.
    """
    kind, step = spec.job(), progress or (lambda *_: None)
    there = jobs.status(spec.folder)
    job_status.refuse_other(there.about, jobs.describe(kind, RECIPE, spec.recipe()), spec.folder)
    counts: dict[str, Counter[str]] = {}
    smallest: dict[tuple[Any, ...], tuple[Row, int]] = {}
    shard, summary = -1, kind.summary()
    for row in rows(spec.folder):
        if row["shard"] != shard:
            shard = row["shard"]
            step("reading", shard, there.count)
        with _as_written(f"results/{shard} in {spec.folder}"):
            row = kind.recheck_row(row)
            counts.setdefault(kind.group_of(row), Counter()).update(kind.counts_of(row))
            if summary is not None:
                summary.merge(row)
            if row["verdict"] in kind.BAD:
                key = kind.dedup_key(row)
                known, times = smallest.get(key, (row, 0))
                smallest[key] = min(known, row, key=kind.size_key), times + 1
    try:
        with _as_written(f"a result in {spec.folder}"):
            findings = kind.findings([*smallest.values()][:MAX_SCRIPTS], step)
    finally:
        kind.close()
    crashes = tuple(jobs.crashes(spec.folder))
    return Collected(kind, there.count, len(there.done), crashes, counts, tuple(findings), summary)
