"""Checks a model against all rules: the findings, what was not checked, and the verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...interop.onnx import MALFORMED
from ...process import Process
from . import file_rules, graph_rules, operator_rules, range_rules, type_rules, window_rules
from .digests import read_digests, side_of
from .model_view import ModelView
from .rule import RULES, Finding, NotCheckedError, Rule
from .sources import CAVEAT

TABLES = (
    file_rules,
    graph_rules,
    operator_rules,
    range_rules,
    type_rules,
    window_rules,
)  # each fills RULES
WORDS = {
    "broken": "the model breaks a rule of the texts",
    "undecided": "the texts, or we, cannot decide",
    "not checked": "nothing was looked at",
    "no finding": "no place was found that breaks a rule, which is not compliance",
}


def in_order() -> list[Rule]:
    """Return all rules, S1 to S31."""
    return sorted(RULES.values(), key=lambda r: int(r.id[1:]))


@dataclass(frozen=True)
class Profile:
    """Result of checking one model against the profile.

    verdict     "broken": a rule is; "undecided": only places that the texts do not decide; "no finding"
    unchecked   rules that were not looked at, with the reason
    notes       what else a reader should know
    digest      SHA-256 of the file
    versions    of packages that were used
    box         declared ranges of inputs, None without
    findings    places that break a rule, or may
    """

    model: str
    digest: str
    findings: tuple[Finding, ...]
    unchecked: Mapping[str, str]
    notes: tuple[str, ...]
    versions: Mapping[str, str]
    box: tuple[float, float] | None = None

    @property
    def verdict(self) -> str:
        """Verdict of the model: "broken", "undecided" or "no finding"."""
        severities = {f.severity for f in self.findings}
        return "broken" if "broken" in severities else "undecided" if severities else "no finding"

    def of(self, rule: Rule) -> list[Finding]:
        """Return the findings of one rule."""
        return [f for f in self.findings if f.rule == rule.id]

    def status(self, rule: Rule) -> str:
        """Return the status of one rule: "broken", "undecided", "not checked" or "no finding"."""
        severities = {f.severity for f in self.of(rule)}
        if severities:
            return "broken" if "broken" in severities else "undecided"
        return "not checked" if rule.id in self.unchecked else "no finding"

    def to_json(self) -> dict[str, Any]:
        """Return JSON data without the verdict: profile, caveat, model, digest, box, every rule with its status,
        findings, notes, versions, and normalised (null here).
        """
        rules = [
            {
                "rule": r.id,
                "level": r.level,
                "tag": r.tag,
                "source": r.source,
                "version": r.version,
                "says": r.sentence,
                "status": self.status(r),
                "findings": len(self.of(r)),
                "reason": self.unchecked.get(r.id),
            }
            for r in in_order()
        ]
        return {
            "profile": "SONNX",
            "caveat": list(CAVEAT),
            "model": self.model,
            "digest": self.digest,
            "box": None if self.box is None else list(self.box),
            "rules": rules,
            "findings": [f.to_json() for f in self.findings],
            "notes": list(self.notes),
            "versions": dict(self.versions),
            "normalised": None,
        }


def check_profile(
    model: Any,
    *,
    digests: str | Path | Mapping[str, Any] | None = None,
    box: tuple[float, float] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    process: Process | None = None,
) -> Profile:
    """Check an ONNX model against the rules S1 to S31 of the safety profile SONNX.

    ParameterError for a file of digests that is none.

    model     a path, the bytes of a file, or a ModelProto; read as if an enemy had written it, and what ONNX's own code
              says of it is asked in another process
    digests   a side file (`--normalise` writes one); default: the one beside the model, MODEL.digests.json, if any
    box       every cell of every input lies between these two: then S26 is looked at
    shapes    sizes of inputs that the file leaves open
    process   runs ONNX's own code, within its limits; None: a new one, with 120 seconds

    >>> from onnx import TensorProto, helper
    >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, 1, 1]) for n in "xy")
    >>> pads = {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]}
    >>> pool = helper.make_node("MaxPool", ["x"], ["y"], name="pool", **pads)
    >>> profile = check_profile(helper.make_model(helper.make_graph([pool], "net", [x], [y])))
    >>> profile.verdict, [f.what for f in profile.findings if f.rule == "S29"]
    ('broken', ['the window at (0, 0) reads no cell of the input (1, 1, 1, 1)'])
    """
    path = Path(model) if isinstance(model, str | Path) else None
    if digests is None and path is not None and side_of(path).is_file():
        digests = side_of(path)
    side = read_digests(Path(digests)) if isinstance(digests, str | Path) else digests
    with nullcontext(process) if process is not None else Process(seconds=120) as runner:
        view = ModelView(model, shapes=shapes, digests=side, box=box, process=runner)
    findings: list[Finding] = []
    unchecked: dict[str, str] = {}
    for rule in in_order():
        try:
            findings += rule.findings(view)
        except NotCheckedError as reason:
            unchecked[rule.id] = str(reason)
        except MALFORMED as error:  # the last net under files that no rule has met
            findings.append(rule.failed_check(f"could not be looked at: {type(error).__name__}: {error}"))
    data = path.read_bytes() if path is not None else view.model.SerializeToString()
    name = path.name if path is not None else "model"
    versions = {p: version(p) for p in ("specgrad", "onnx")}
    return Profile(
        name, hashlib.sha256(data).hexdigest(), tuple(findings), unchecked, _reader_notes(view), versions, box
    )


def _reader_notes(view: ModelView) -> tuple[str, ...]:
    """Return notes for the reader: unknown nodes, expanded functions, shapes from ONNX's inference alone."""
    notes = [] if view.refusal is None else [f"shapes are those of ONNX's inference alone: {view.refusal}"]
    if view.unsupported:
        notes.append(
            f"{len(view.unsupported)} nodes have no meaning here; what they give has the shapes of ONNX's inference"
        )
    if view.onnx_result.expanded is not None:
        notes.append("the file's functions are expanded: nodes are counted in the expanded graph")
    return tuple(notes)
