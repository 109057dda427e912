"""Campaigns of kind audit: all combinations of models, runtimes and inputs, drawn ones or samples of a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specgrad.check.verdicts.arithmetic_classes import accepted_classes
from specgrad.interop.model import Model, open_model

from ...check import audit, default_inputs
from ...check.runtimes import runtime
from ...errors import MissingPackageError, SpecgradError, need
from ...scalar import Array
from ...window import Shape
from .datasets import Dataset, changes_of, digest_of_samples, open_dataset
from .keys import CampaignError, Key
from .kind import Finding, Listed, Progress, Row, file_name, finite_or_none, one_line

SCRIPT = """# {what}: {detail}
# One layer alone does not show it; the whole model does. Run this from the folder of the spec.
{inputs}
print(audit({model!r}, {runtime!r}, inputs))
"""
DRAWN = """from specgrad.check import audit, default_inputs

inputs = default_inputs({model!r}, {shapes}, seed={seed}).arrays"""
READ = """from pathlib import Path

from specgrad.check import audit
from specgrad.scale.campaign.datasets import open_dataset

inputs = [open_dataset({data!r}, Path()).read({first}, {stop})]"""


class AuditKind(Listed):
    """Campaign of audits: an item is a model on a runtime with the inputs of one seed, or with a range of samples of a
    dataset; `each` items are a shard.

    CampaignError for a runtime that reads no ONNX file, FileError for a dataset that is damaged.
    """

    name = "audit"
    BAD = ("differs", "other arithmetic", "crashes")
    GOOD = ("exact", "rounding")
    OPEN = ("cannot tell", "partly examined", "unusual", "refuses", "times out", "not offered", "not examined")
    KEYS = {  # noqa: RUF012
        "models": Key("texts", "ONNX files, or patterns: models/*.onnx"),
        "runtimes": Key("texts", "who runs them: onnxruntime, openvino, ..."),
        "inputs": Key("count", "inputs per model: drawn by a seed each, as specgrad audit draws them", 1),
        "first_seed": Key("seed", "the first seed", 0),
        "data": Key("text", "in their place, for models of one input: samples, as kind preserve reads them", None),
        "samples": Key("count", "with data: how many of them, from the first; all by default", None),
        "batch": Key("count", "with data: samples per audit", 1),
        "shapes": Key("shapes", "sizes of inputs that models leave open, where others than the default are wanted", {}),
        "accept": Key("texts", "other arithmetics that may explain a layer: tf32, ..., any", []),
        "seconds": Key("seconds", "time limit for one run of a model", 300),
        "tolerance_seconds": Key("seconds", "time for the tolerance of a whole model", 10),
        "each": Key("count", "audits per shard", 1),
    }

    def __init__(self, given: Mapping[str, Any], home: str | Path) -> None:
        super().__init__(given, home)
        need("onnx", "ONNX files need")
        o = self.options
        self.models = self.files(o["models"])
        for name in o["runtimes"]:
            if not runtime(name).model:
                raise CampaignError(f"runtime {name} reads no ONNX file")
        accepted_classes(o["accept"])
        drawing, reading = ({"inputs", "first_seed", "shapes"} & {*given}, {"samples", "batch"} & {*given})
        if wrong := drawing if o["data"] is not None else reading:
            raise CampaignError(f"{min(wrong)} goes {'without' if o['data'] is not None else 'with'} the key data")
        self.data: Dataset | None = None if o["data"] is None else open_dataset(o["data"], self.home)
        self.items = [*itertools.product(self.models, o["runtimes"], self._inputs())]

    def _inputs(self) -> list[int] | list[range]:
        """Return the seeds of the inputs, or the ranges of samples; CampaignError for a dataset without samples."""
        o = self.options
        if self.data is None:
            return [*range(o["first_seed"], o["first_seed"] + o["inputs"])]
        samples = min(self.data.count, o["samples"] or self.data.count)
        if not samples:
            raise CampaignError(f"{o['data']} holds no sample")
        return [range(k, min(k + o["batch"], samples)) for k in range(0, samples, o["batch"])]

    def fingerprint_inputs(self) -> dict[str, Any]:
        """Return digests of the models, versions of the runtimes, and names, sizes and shapes of the data."""
        runtimes = {name: runtime(name).versions() for name in self.options["runtimes"]}
        data = {} if self.data is None else {"data": self.data.identity}
        return {"models": {m: self.digest(m) for m in self.models}, "runtimes": runtimes, **data}

    def rows(self, shard: int) -> Iterator[Row]:
        """Yield the audit of each (model, runtime, seed or samples) of a shard as JSON data."""
        for model, name, chosen in self.items_of(shard):
            told: Row = {"model": model, "runtime": name, "seed": None, "data": None}
            if self.data is None:
                told["seed"] = chosen
                inputs = lambda given: self._drawn(model, given, chosen)  # noqa: B023 - called below
            else:
                x = self.data.read(chosen.start, chosen.stop)
                told["data"] = {"first": chosen.start, "samples": len(x), "digest": digest_of_samples(x)}
                inputs = lambda _: [x]  # noqa: B023
            yield {**told, **self._audit_row(model, name, inputs)}

    def changes(self, data: bytes) -> str:
        """Return which samples of a result are no longer those that were read; "" for none."""
        return "" if self.data is None else changes_of(self.data, data)

    def _drawn(self, name: str, model: Model, seed: int) -> Sequence[Array]:
        """Return the inputs that `seed` draws for a model, `name` in the spec."""
        return default_inputs(model, self._open_input_shapes(name, model), seed=seed).arrays

    def _audit_row(self, model: str, name: str, inputs: Callable[[Model], Sequence[Array]]) -> Row:
        """Audit one model on the runtime `name` and the inputs that `inputs` gives for it, and return its row; one that
        cannot be read or judged is "cannot tell".
        """
        o, path = self.options, self.unchanged(model)
        try:
            given = open_model(path, "campaign")
            arrays = inputs(given)
            limits = {"run_seconds": o["seconds"], "tolerance_seconds": o["tolerance_seconds"]}
            audited = audit(given, name, arrays, accept=o["accept"], **limits)
        except MissingPackageError:
            raise
        except SpecgradError as error:
            empty = dict.fromkeys(("layer", "operator", "class", "ratio", "layers", "judged", "shapes", "script"))
            return {"verdict": "cannot tell", "reason": one_line(error), **empty}
        first = audited.first_divergent
        return {
            "verdict": audited.verdict,
            "reason": None if first is None else one_line(first.verdict),
            "layer": None if first is None else first.name,
            "operator": None if first is None else first.operator,
            "class": None if first is None else first.row()["arithmetic"],
            "ratio": finite_or_none(audited.whole.ratio),
            "layers": audited.coverage.of_layers,
            "judged": audited.coverage.layers,
            "shapes": {n: list(a.shape) for n, a in zip(given.names, arrays, strict=True)}
            if first is not None
            else None,
            "script": audited.script or None,
        }

    def _open_input_shapes(self, name: str, model: Model) -> dict[str, Shape]:
        """Return the sizes that the spec gives for inputs that the model leaves open; CampaignError for sizes that
        contradict it.

        `name` is the model's in the spec.
        """
        shapes: dict[str, Shape] = {}
        for i in model.inputs:
            given = self.options["shapes"].get(i.name)
            if given is None or (i.dims is not None and None not in i.dims[1:]):
                continue
            if i.dims is not None and (
                len(i.dims) != len(given) or any(d not in (None, g) for d, g in zip(i.dims, given, strict=False))
            ):
                raise CampaignError(f"{name} declares {i.dims} for input {i.name}, and the spec says {given}")
            shapes[i.name] = tuple(given)
        return shapes

    def group_of(self, row: Row) -> str:
        """Return "model on runtime", under which verdicts are counted."""
        return f"{row['model']} on {row['runtime']}"

    def dedup_key(self, row: Row) -> tuple[Any, ...]:
        """Return (runtime, verdict, operator or model, class): of bad rows with one key the smallest is reported."""
        return row["runtime"], row["verdict"], row["operator"] or row["model"], row["class"] or ""

    def size_key(self, row: Row) -> tuple[Any, ...]:
        """Return a sort key: rows with a short script first, then models of few layers."""
        return len(row["script"] or "") or 1 << 40, row["layers"] or 0, row["shard"], row["number"]

    def findings(self, smallest: Sequence[tuple[Row, int]], progress: Progress) -> list[Finding]:
        """Return a finding with a script for each (smallest row, number of rows) of one `dedup_key`."""
        findings: list[Finding] = []
        for row, times in smallest:
            words = [row["runtime"], row["verdict"], row["operator"] or "model", Path(row["model"]).stem]
            what, detail = f"{row['model']} on {row['runtime']}", row["reason"] or row["verdict"]
            script = row["script"] or SCRIPT.format(
                **row, what=one_line(what), detail=one_line(detail), inputs=self._inputs_in_script(row)
            )
            row_data = {k: v for k, v in row.items() if k != "script"}
            findings.append(Finding(what, detail, row_data, times, file_name(words, findings), script))
        return findings

    def _inputs_in_script(self, row: Row) -> str:
        """Return the lines of a script that make the inputs of a row."""
        if row["data"] is None:
            return DRAWN.format(**row)
        first = row["data"]["first"]
        return READ.format(data=self.options["data"], first=first, stop=first + row["data"]["samples"])
