"""Campaigns of kind certify: properties of models, boxes around samples, or a VNN-COMP list of both."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from specgrad.check.conform.repro_script import literal

from ...bounded_files import MAX_TEXT_BYTES, as_file_error, fraction, read_bytes, read_npz
from ...errors import MissingPackageError, SpecgradError, need
from ...scalar import Array
from .keys import CampaignError, Key
from .kind import Finding, Listed, Progress, Row, file_name, finite_or_none, one_line

SCRIPT = """# {what}: an input that breaks the property. Run this from the folder of the spec.
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession({model!r}, providers=["CPUExecutionProvider"])
given = session.get_inputs()[0]
x = {x}.reshape([n if isinstance(n, int) else 1 for n in given.shape])
print("gave", {y})
print("gives", session.run(None, {{given.name: x}})[0].ravel().tolist())
"""


class CertifyKind(Listed):
    """Campaign of certifications: an item is one property of one model; `each` items are a shard.

    CampaignError for options that do not go together.
    """

    name = "certify"
    BAD = ("violated",)
    GOOD = ("holds",)
    OPEN = ("unknown", "cannot tell")
    KEYS = {  # noqa: RUF012
        "models": Key("texts", "ONNX files, or patterns: nets/*.onnx; every property is asked of each", None),
        "properties": Key("texts", "VNN-LIB files, or patterns: properties/*.vnnlib", None),
        "samples": Key("text", "in their place: an .npz file with arrays x (a sample per row) and label", None),
        "eps": Key("text", 'with samples: how far every cell may move, "2/255"', None),
        "low": Key("text", "with samples: no cell moves below", None),
        "high": Key("text", "with samples: no cell moves above", None),
        "instances": Key(
            "text", "in place of models and properties: a .csv of model,property,seconds (VNN-COMP)", None
        ),
        "seconds": Key("seconds", "time limit for one property", 60),
        "each": Key("count", "properties per shard", 1),
    }

    def __init__(self, given: Mapping[str, Any], home: str | Path) -> None:
        super().__init__(given, home)
        need("torch", "certify needs")
        need("onnx", "ONNX files need")
        o = self.options
        ways = [way for way in ("properties", "samples", "instances") if o[way] is not None]
        if len(ways) != 1:
            raise CampaignError(f"give one of properties, samples, instances; got {' and '.join(ways) or 'none'}")
        if (o["models"] is None) != (ways == ["instances"]):
            raise CampaignError("models go with properties or samples, and not with instances, which name their own")
        for name in ("eps", "low", "high"):
            if o[name] is not None and ways != ["samples"]:
                raise CampaignError(f"{name} goes with samples; a property has its own bounds")
        self.eps, self.low, self.high = (_fraction_option(name, o[name]) for name in ("eps", "low", "high"))
        if ways == ["samples"] and self.eps is None:
            raise CampaignError('samples need eps: how far every cell may move, "2/255"')
        self.items: list[tuple[str, Any, float]] = [*self._list_items(ways[0])]

    def _list_items(self, way: str) -> Iterator[tuple[str, Any, float]]:
        """Yield the items, (model, property file or number of a sample, seconds); `way` is "instances", "properties" or
        "samples".
        """
        seconds = self.options["seconds"]
        if way == "instances":
            yield from self._vnncomp_instances(self.options["instances"])
            return
        models = self.files(self.options["models"])
        some = self.files(self.options["properties"]) if way == "properties" else range(len(self.samples[0]))
        yield from ((m, s, seconds) for m, s in itertools.product(models, some))

    def _vnncomp_instances(self, name: str) -> Iterator[tuple[str, str, float]]:
        """Yield (model, property, seconds) of every line of the VNN-COMP .csv file `name`.

        CampaignError for one that is none.
        """
        with as_file_error(name, "a .csv file"):
            lines = [*csv.reader(StringIO(read_bytes(self.unchanged(name), MAX_TEXT_BYTES).decode(), newline=""))]
        for number, line in enumerate(lines, 1):
            try:
                model, statement, *rest = (part.strip() for part in line)
                yield (
                    self._relative_to_list(name, model),
                    self._relative_to_list(name, statement),
                    min(self._time_limit(rest), 1e9),
                )
            except ValueError as error:
                if isinstance(error, CampaignError):
                    raise
                text = f"{name}, line {number}: must be model,property or model,property,seconds"
                raise CampaignError(f"{text}; got {','.join(line)!r:.80}") from None

    def _time_limit(self, rest: Sequence[str]) -> float:
        """Return the seconds in `rest`, the third column of a .csv line, or the default; ValueError if not one positive
        number.
        """
        (seconds,) = map(float, rest or [self.options["seconds"]])
        if not seconds > 0:
            raise ValueError(seconds)
        return seconds

    def _relative_to_list(self, instances: str, name: str) -> str:
        """Return the path of the file `name` in the .csv `instances`, from the spec's folder; CampaignError if
        missing.
        """
        path = (Path(instances).parent / name).as_posix()
        self.file(path)
        return path

    @cached_property
    def samples(self) -> tuple[Array, Array]:
        """The samples x (count, ...) in float32 and their integer labels (count,), from the .npz file of the spec.

        FileError unless the file holds the two, x and label, CampaignError unless they are of these types and shapes.
        """
        path = self.unchanged(self.options["samples"])
        x, label = read_npz(path, ("x", "label")).values()
        if x.dtype.name != "float32" or label.dtype.kind not in "iu" or label.shape != x.shape[:1] or x.ndim < 2:
            text = f"x {x.dtype} {x.shape}, label {label.dtype} {label.shape}"
            raise CampaignError(f"{path.name} must hold float32 x and a whole label per sample; got {text}")
        return x, label

    def start(self) -> None:
        """Import `certify`, and PyTorch with it, before the first shard."""
        from ...bounds import certify  # noqa: F401 - and PyTorch with it

    def fingerprint_inputs(self) -> dict[str, Any]:
        """Return PyTorch's version and digests of models, properties and samples, which decide the results."""
        models = sorted({m for m, _, _ in self.items})
        files = sorted({s for _, s, _ in self.items if isinstance(s, str)})
        files += [f for f in (self.options["samples"], self.options["instances"]) if f is not None]
        return {
            "torch": version("torch"),
            "models": {m: self.digest(m) for m in models},
            "files": {f: self.digest(f) for f in files},
        }

    def rows(self, shard: int) -> Iterator[Row]:
        """Yield the verdict on each property of a shard as JSON data."""
        for model, what, seconds in self.items_of(shard):
            named = what if isinstance(what, str) else f"sample {what}"
            yield {"model": model, "property": named, **self._certify_row(model, what, seconds)}

    def _certify_row(self, model: str, what: Any, seconds: float) -> Row:
        """Certify one property of a model and return its row: verdict, reason, margin, counterexample.

        `what` is a property file, or the number of a sample.
        """
        from ...bounds import certify

        empty = dict.fromkeys(("reason", "margin", "x", "y", "asked", "distance"))
        path = str(self.unchanged(model))
        given: dict[str, Any] = {}
        statement: Any = None if isinstance(what, int) else self.unchanged(what)
        if statement is None:
            statement = self.samples[0][what], int(self.samples[1][what]), self.eps
            given = {"low": self.low, "high": self.high}
        try:
            verdict = certify(path, statement, seconds=seconds, **given)
        except MissingPackageError:
            raise
        except SpecgradError as error:
            return {**empty, "verdict": "cannot tell", "reason": one_line(error)}
        margins = [m for case in verdict.margins for m in case]
        row = {**empty, "verdict": verdict.verdict, "reason": verdict.reason or None}
        if verdict.verdict == "holds":
            row["margin"] = finite_or_none(min(margins)) if margins else None
        if verdict.counterexample is not None:
            x, y = verdict.counterexample.x, verdict.counterexample.y
            row |= {"x": [finite_or_none(v) for v in x.ravel()], "y": [finite_or_none(v) for v in y.ravel()]}
            row["asked"] = [f"{run.who} {run.outcome}" for run in verdict.counterexample.runs]
            if isinstance(what, int):
                row["distance"] = float(np.max(np.abs(x.ravel() - self.samples[0][what].ravel())))
        return row

    def group_of(self, row: Row) -> str:
        """Return the model, under which verdicts are counted."""
        return str(row["model"])

    def dedup_key(self, row: Row) -> tuple[Any, ...]:
        """Return one key per model and property file; of samples, per model and pair (label, other class)."""
        if self.options["samples"] is None:
            return row["model"], row["property"]
        label = int(self.samples[1][int(row["property"].rpartition(" ")[2])])
        others = [-np.inf if k == label or v is None else v for k, v in enumerate(row["y"])]
        return row["model"], f"{label} becomes {int(np.argmax(others))}"

    def size_key(self, row: Row) -> tuple[Any, ...]:
        """Return a sort key: counterexamples near their sample first."""
        return row["distance"] or 0.0, row["shard"], row["number"]

    def findings(self, smallest: Sequence[tuple[Row, int]], progress: Progress) -> list[Finding]:
        """Return a finding with a script for each (smallest row, number of rows) of one `dedup_key`."""
        findings: list[Finding] = []
        for row, times in smallest:
            words = [Path(row["model"]).stem, Path(row["property"]).stem]
            x = literal(np.array([np.nan if v is None else v for v in row["x"]], np.float32))
            detail = row["reason"] or (
                f"{self.dedup_key(row)[1]}" if row["distance"] is not None else "an input breaks it"
            )
            row_data = {k: v for k, v in row.items() if k not in ("x", "y")}
            what = f"{row['model']}, {row['property']}"
            script, name = SCRIPT.format(**{**row, "x": x, "what": one_line(what)}), file_name(words, findings)
            findings.append(Finding(what, detail, row_data, times, name, script))
        return findings


def _fraction_option(name: str, text: str | None) -> Fraction | None:
    """Return the text of the option `name` as a Fraction, None if it is absent; CampaignError if it is no number (eps:
    or negative).

    >>> _fraction_option("eps", "2/255")
    Fraction(2, 255)
    """
    try:
        value = None if text is None else fraction(text)
    except ValueError:
        value = None
    if (value is None and text is not None) or (name == "eps" and value is not None and value < 0):
        raise CampaignError(f'{name} must be a number, "0.01" or "2/255"; got {text!r:.80}')
    return value
