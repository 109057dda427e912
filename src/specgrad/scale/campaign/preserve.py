"""Campaigns of kind preserve: which decisions of a model on a dataset can no correct runtime change?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from specgrad.interop.model import Model, open_model

from ...check.decisions.decision import parse
from ...errors import need
from ...rounding import Arithmetic
from .datasets import Dataset, changes_of, digest_of_samples, open_dataset
from .keys import CampaignError, Key
from .kind import Finding, Kind, Progress, Row
from .sample_summary import SampleSummary


class PreserveKind(Kind):
    """Campaign over a dataset: a shard is a range of samples, and its one row the summary of their verdicts.

    CampaignError for a decision that there is not, FileError for a dataset that is damaged.
    """

    name = "preserve"
    BAD = ("differs",)
    GOOD = ("proven",)
    OPEN = ("not proven",)
    KEYS = {  # noqa: RUF012
        "model": Key("text", "an ONNX file, or a saved graph (.json), of one input with an axis of samples"),
        "data": Key(
            "text", "samples: a folder of .npy files, or of .tar files (WebDataset), one such, or a zarr array"
        ),
        "decision": Key("text", "argmax, top-5, threshold:0.5, mask (per pixel) or mask:0.5", "argmax"),
        "execution": Key("text", "fused, or node: every result is stored", "fused"),
        "samples": Key("count", "how many of them, from the first; all by default", None),
        "each": Key("count", "samples per shard", 1024),
        "worst": Key("count", "how many of the worst samples a shard keeps, and the report", 20),
        "seconds": Key("seconds", "time limit for one sample that is judged alone", 60),
    }

    def __init__(self, given: Mapping[str, Any], home: str | Path) -> None:
        super().__init__(given, home)
        need("torch", "preserve needs")
        o = self.options
        self.file(o["model"])
        parse(o["decision"])
        if o["execution"] not in ("fused", "node"):
            raise CampaignError(f"execution must be fused or node; got {o['execution']!r:.40}")
        self.data: Dataset = open_dataset(o["data"], self.home)
        self.samples = min(self.data.count, o["samples"] or self.data.count)
        if not self.samples:
            raise CampaignError(f"{o['data']} holds no sample")

    @property
    def count(self) -> int:
        """Return the number of shards, of `each` samples, the last with the rest."""
        return -(-self.samples // int(self.options["each"]))

    @cached_property
    def model(self) -> Model:
        """The model, read once; JobError unless it is the file that the runner saw."""
        return open_model(self.unchanged(self.options["model"]), "campaign")

    def fingerprint_inputs(self) -> dict[str, Any]:
        """Return PyTorch's version, the model's digest, and names, sizes and shapes of the data."""
        models = {self.options["model"]: self.digest(self.options["model"])}
        return {"torch": version("torch"), "models": models, "data": self.data.identity}

    def rows(self, shard: int) -> Iterator[Row]:
        """Yield one row: the range of a shard, a digest of its samples, and the summary of their verdicts."""
        from ...check import preserve

        o = self.options
        first = shard * o["each"]
        samples = self.data.read(first, min(first + o["each"], self.samples))
        options: dict[str, Any] = {"arithmetic": Arithmetic(execution=o["execution"]), "seconds": o["seconds"]}
        result = preserve(self.model, samples, o["decision"], runtimes=(), **options)
        summary = self.summary()
        for s in result.samples:
            told = {k: v for k, v in s.to_json().items() if k not in ("seconds", "verdict")}
            summary.add(s.verdict, s.ratio, {**told, "number": first + s.number})
        read = {"first": first, "samples": len(samples), "digest": digest_of_samples(samples)}
        yield {"verdict": result.verdict, "data": read, **summary.to_json()}

    def changes(self, data: bytes) -> str:
        """Return which samples of a result are no longer those that were read; "" for none."""
        return changes_of(self.data, data)

    def counts_of(self, row: Row) -> Mapping[str, int]:
        """Return how many samples have which verdict."""
        return dict(row["verdicts"])

    def summary(self) -> SampleSummary:
        """Return the summary of no sample, to which those of all shards are added."""
        return SampleSummary(self.options["worst"])

    def group_of(self, row: Row) -> str:
        """Return the model, under which all samples are counted."""
        return str(self.options["model"])

    def dedup_key(self, row: Row) -> tuple[Any, ...]:
        """Return one key for all: of the shards with samples that differ the first is reported."""
        return ("differs",)

    def size_key(self, row: Row) -> tuple[Any, ...]:
        """Return a sort key: the number of the shard."""
        return (row["shard"],)

    def findings(self, smallest: Sequence[tuple[Row, int]], progress: Progress) -> list[Finding]:
        """Return a finding without a script: a sample on which two executions decide differently."""
        findings = []
        for row, times in smallest:
            sample = next(s for s in row["worst"] if s["verdict"] == "differs")
            who = " and ".join(f"{run['name']} decides {run['decision']}" for run in sample["executions"])
            findings.append(Finding(f"{self.options['model']}, sample {sample['number']}", who, row, times))
        return findings
