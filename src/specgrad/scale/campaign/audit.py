"""Campaigns of kind audit: all combinations of models, runtimes and drawn inputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specgrad.check.verdicts.arithmetic_classes import accepted_classes
from specgrad.interop.model import Model, open_model

from ...check import audit, default_inputs
from ...check.runtimes import runtime
from ...errors import MissingPackageError, SpecgradError, need
from ...window import Shape
from .keys import CampaignError, Key
from .kind import Finding, Listed, Progress, Row, digest_of_model, file_name, finite_or_none, one_line

SCRIPT = """# {model} on {runtime}: {detail}
# One layer alone does not show it; the whole model does. Run this from the folder of the spec.
from specgrad.check import audit, default_inputs

inputs = default_inputs({model!r}, {shapes}, seed={seed})
print(audit({model!r}, {runtime!r}, inputs.arrays))
"""


class AuditKind(Listed):
    """Campaign of audits: an item is a model on a runtime with the inputs of one seed; `each` items are a shard.

    CampaignError for a runtime that reads no ONNX file.
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
        seeds = range(o["first_seed"], o["first_seed"] + o["inputs"])
        self.items = [*itertools.product(self.models, o["runtimes"], seeds)]

    def fingerprint_inputs(self) -> dict[str, Any]:
        """Return digests of the models and versions of the runtimes, which decide the results."""
        runtimes = {name: runtime(name).versions() for name in self.options["runtimes"]}
        return {"models": {m: digest_of_model(self.home / m) for m in self.models}, "runtimes": runtimes}

    def rows(self, shard: int) -> Iterator[Row]:
        """Yield the audit of each (model, runtime, seed) of a shard as JSON data."""
        for model, name, seed in self.items_of(shard):
            yield {"model": model, "runtime": name, "seed": seed, **self._audit_row(model, name, seed)}

    def _audit_row(self, model: str, name: str, seed: int) -> Row:
        """Audit one model on the runtime `name`, inputs drawn by `seed`, and return its row; one that cannot be read or
        judged is "cannot tell".
        """
        o = self.options
        try:
            given = open_model(self.file(model), "campaign")
            drawn = default_inputs(given, self._open_input_shapes(model, given), seed=seed)
            limits = {"run_seconds": o["seconds"], "tolerance_seconds": o["tolerance_seconds"]}
            audited = audit(given, name, drawn.arrays, accept=o["accept"], **limits)
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
            "shapes": {n: list(a.shape) for n, a in zip(given.names, drawn.arrays, strict=True)}
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
            script = row["script"] or SCRIPT.format(**row, detail=detail)
            row_data = {k: v for k, v in row.items() if k != "script"}
            findings.append(Finding(what, detail, row_data, times, file_name(words, findings), script))
        return findings
