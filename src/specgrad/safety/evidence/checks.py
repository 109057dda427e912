"""The checks of an evidence page, one function each: a question, its verdict, and the answer in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from specgrad.check import audit_recorded, preserve
from specgrad.check.decisions.decision import parse
from specgrad.check.models.recorded import Recorded, recorded_of, refuse_missing, runtime_of, split_points
from specgrad.check.models.recording import ModelRecording
from specgrad.check.tolerances.labelled import labelled_tolerance
from specgrad.deadline import time_limit
from specgrad.declared_errors import declared
from specgrad.errors import ParameterError, SpecgradError, UnsupportedError
from specgrad.graph.graph import Graph
from specgrad.interop.model import Model, open_model, refuse_other_formats
from specgrad.proof.base.deployed_graph import at_the_property, deployed_graph, rounded_constants
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.files.certificate import OutOfTimeError, check_file, network_digest
from specgrad.properties.vnnlib import read
from specgrad.rounding import Arithmetic
from specgrad.scalar import Array, upward

from ..accuracy import accuracy
from ..declared_box import on_box
from ..profile import check_profile
from ..profile.sources import CAVEAT
from .item import NOT_ASKED, Item

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class EvidenceRequest:
    """Input of the evidence checks: the model, the recorded tensors and the options.

    model            an ONNX file: a path, its bytes, a ModelProto
    recorded         values of the target by their names in the file, or a recording
    data             samples whose decisions are asked about
    box              every cell of every input lies between these two
    certificates     pairs of files: a certificate, and the property that it must prove
    of               the target's runtime, whose errors of exp, tanh, ... are taken; None: the largest of any
    decision, axis   how outputs decide, and along which axis, as `preserve` takes them
    accept           classes of arithmetic that may explain a layer beside float32
    seconds          the most that one check may take
    progress         is told how far the checks have come; None: nobody is
    """

    model: Any
    recorded: Recorded
    data: Any = None
    decision: str = "argmax"
    axis: int | None = None
    box: tuple[float, float] | None = None
    certificates: Sequence[tuple[Path, Path]] = ()
    accept: Sequence[str] = ()
    of: str | None = None
    seconds: float = 60.0
    progress: Progress | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        _ = self.given.file  # refused before the work, as what follows
        parse(self.decision)
        recorded_of(self.runtime)

    @property
    def runtime(self) -> str | None:
        """The target's runtime: that of a recording, or `of`."""
        return runtime_of(self.recorded, self.of)

    @property
    def arithmetic(self) -> Arithmetic:
        """The class of executions that tolerances and decisions are about: fused, with the target's functions.

        ParameterError for a runtime that is not known.
        """
        return Arithmetic(ulps=declared(recorded_of(self.runtime).functions))

    @cached_property
    def given(self) -> Model:
        """Return the model, opened once and kept.

        ParameterError if it cannot be read.
        """
        return open_model(self.model, "evidence")

    @property
    def file(self) -> Any:
        """The model as an ONNX ModelProto, with its external data."""
        return self.given.proto

    @cached_property
    def points(self) -> list[dict[str, Array]]:
        """The recorded values by name, one dict per recorded input point.

        ParameterError if a recording has runs of several shapes, or belongs to another model.
        """
        values = {name for node in self.file.graph.node for name in node.output}
        if isinstance(self.recorded, ModelRecording):
            self.recorded.check_model(self.given)
            runs = [run.known for run in self.recorded.runs]
            if len({tuple(run[n].shape for n in self.inputs) for run in runs}) > 1:
                raise ParameterError("recorded", "evidence is about runs with inputs of one shape; these have several")
            return [{n: a for n, a in run.items() if n in values | set(self.inputs)} for run in runs]
        refuse_missing("inputs", self.inputs, self.recorded)
        known = {n: a for n, a in self.recorded.items() if n in values | set(self.inputs)}
        return split_points(known, {i.name: i.dims for i in self.given.inputs})

    @property
    def inputs(self) -> list[str]:
        """Names of the model's inputs, initializers left out."""
        return self.given.names

    @property
    def ends(self) -> list[tuple[str, int]]:
        """Names of the outputs in the file, with their node positions in the graph."""
        names = [end.name for end in self.file.graph.output]
        return list(zip(names, self.graph.output_positions, strict=True))

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs that are real numbers; indices have no distance."""
        return [name for name, p in self.ends if self.graph.nodes[p].kind == "real"]

    @cached_property
    def graph(self) -> Graph:
        """The graph of the file, at the recorded input sizes; SpecgradError if an operator has no meaning here."""
        return self.given.graph(self.sizes)

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the recorded inputs, by name."""
        return {n: np.shape(a) for n, a in self.points[0].items() if n in self.inputs}


def model(request: EvidenceRequest) -> Item:
    """Check that every operator of the file has a meaning here."""
    question = "Which model is this, and does every operator of it have one meaning?"
    try:
        graph = request.graph
    except SpecgradError as error:
        return Item("model", question, "cannot tell", f"Not every operator has one here: {error}", "semantics")
    details: dict[str, Any] = {
        "graph": network_digest(graph),
        "nodes": len(graph.nodes),
        "inputs": {graph.nodes[p].name: list(graph.nodes[p].shape) for p in graph.input_positions},
        "outputs": {name: list(graph.nodes[p].shape) for name, p in request.ends},
    }
    ends = ", ".join(f"{n} {'x'.join(map(str, s)) or 'a number'}" for n, s in details["inputs"].items())
    text = f"{details['nodes']} nodes, all with a meaning in docs/reference/contract.md, at inputs {ends}."
    return Item("model", question, "ok", text, "semantics", None, details)


def profiled(request: EvidenceRequest) -> Item:
    """Check the file against the rules of the ONNX safety profile."""
    question = "Does the file keep the rules of the ONNX safety profile, as its texts stand?"
    result = check_profile(request.given.source, box=request.box)
    counts = Counter(f.severity for f in result.findings)
    rules = {word: sorted({f.rule for f in result.findings if f.severity == word}, key=_rule_number) for word in counts}
    said = [f"{counts[w]} places {w} ({', '.join(rules[w])})" for w in ("broken", "undecided") if counts[w]]
    text = f"{' and '.join(said) or 'No finding, which is not compliance'}. {' '.join(CAVEAT)}"
    return Item("profile", question, result.verdict, text, "semantics", "profile", result.to_json(), {}, result)


def _rule_number(rule: str) -> int:
    """Return the number of a rule: 7 of "S7"."""
    return int(rule[1:])


def layers(request: EvidenceRequest) -> Item:
    """Audit the recorded layers of the target."""
    question = "Is what the target computed, layer by layer, rounding of what the model says?"
    result = audit_recorded(
        request.given,
        request.recorded,
        of=request.of,
        accept=request.accept,
        progress=request.progress,
    )
    said = dict(result.deployment.get("layers", {}))
    return Item(
        "layers", question, result.verdict, f"{result}.", "replication", "audit", result.to_json(), said, result
    )


def outputs(request: EvidenceRequest) -> Item:
    """Compare the recorded outputs with exact values, within the tolerance of the whole model."""
    question = "How far may outputs be from the exact ones, and how far are the target's?"
    stacked = [np.stack([p[n] for p in request.points]) for n in request.inputs]
    options = {"arithmetic": request.arithmetic, "points": True}
    try:
        with time_limit(request.seconds):
            labelled = labelled_tolerance(request.given, stacked, (), options, request.progress)
    except SpecgradError as error:
        return Item("outputs", question, "cannot tell", f"Nothing is known of outputs: {error}", "tolerance")
    sentences, beyond, unusual = [" ".join(x for x in labelled.sentences() if not x.startswith(" "))], False, False
    proven, usual = labelled.proven, labelled.estimated
    pairs = () if proven is None else zip(proven.exact, proven.tolerances, strict=True)
    for k, (name, (exact, distance)) in enumerate(zip(request.outputs, pairs, strict=False)):
        if any(name not in p for p in request.points):
            sentences.append(f"{name} was not recorded.")
            continue
        far = np.abs(np.stack([p[name] for p in request.points]).astype(np.float64) - exact)
        beyond |= bool((~(far <= distance) & np.isfinite(distance)).any())  # an infinite one excludes nothing
        unusual |= usual is not None and not float(far.max(initial=0.0)) <= usual.factor * usual.deviations[k]
        most = upward(float(far.max(initial=0.0)))
        used = _share_used_text(far, distance) if labelled.form == "proven" else ""
        sentences.append(f"The target's {name} is at most {most} from the exact values{used}.")
    verdict: str = "differs" if beyond else "unusual" if unusual else labelled.form
    if proven is None:  # exact outputs are known from the proof alone
        verdict = "cannot tell"
        sentences.append("The target's outputs were compared with nothing.")
    if beyond:
        sentences.append("That is farther than any execution of the class can be.")
    elif unusual:
        sentences.append("That is farther than correct executions usually are (an estimate, not a proof).")
    useful = proven if labelled.form == "proven" else None
    said = useful.deployment if useful is not None else {}
    return Item(
        "outputs", question, verdict, " ".join(sentences), "tolerance", "tolerance", labelled.to_json(), said, labelled
    )


def _share_used_text(far: Array, distance: Array) -> str:
    """Return which share of its tolerance (`distance`) the worst cell's difference (`far`) uses, in words."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share = float(np.nanmax(np.where(far > 0, far / distance, 0.0), initial=0.0))
    return f", at most {upward(share, 3)} of what is allowed in any cell"


def decisions(request: EvidenceRequest) -> Item:
    """Check which decisions on the data no execution of the class can change."""
    question = "Which decisions can no execution of the class change?"
    if request.data is None:
        return Item("decisions", question, NOT_ASKED, "No data were given (--data).", "tolerance")
    options: dict[str, Any] = {"axis": request.axis, "seconds": request.seconds, "progress": request.progress}
    try:
        result = preserve(request.given, request.data, request.decision, arithmetic=request.arithmetic, **options)
    except UnsupportedError as error:
        return Item("decisions", question, "cannot tell", f"Nothing is known of decisions: {error}", "tolerance")
    details, said = result.to_json(), result.deployment
    return Item("decisions", question, result.verdict, f"{result}.", "tolerance", "preserve", details, said, result)


def box(request: EvidenceRequest) -> Item:
    """Bound values and output errors for all inputs in the declared box."""
    question = "For every input in the declared box: can a value overflow, and how far may outputs be from exact ones?"
    if request.box is None:
        return Item("box", question, NOT_ASKED, "No box was declared (--box).", "tolerance")
    where = f"for inputs between {request.box[0]:g} and {request.box[1]:g}"
    try:
        graph, boxes = on_box(request.given, *request.box, request.sizes, "evidence")
        result = accuracy(graph, *boxes, seconds=request.seconds)
    except UnsupportedError as error:
        return Item("box", question, "cannot tell", f"Nothing is known {where}: {error}", "tolerance")
    if result.verdict == "unbounded":
        names = ", ".join([*result.unbounded, *(x.name for x in result.layers if np.isinf(x.total))][:5])
        text = f"An overflow or a division by 0 is not excluded {where}: nothing is proven of {names}."
    else:
        largest = max(result.layers, key=lambda x: max(abs(x.low), abs(x.high)))
        size = upward(max(abs(largest.low), abs(largest.high)), 3)
        text = f"Nothing overflows {where}: no value is larger than {size} (layer {largest.name}). "
        text += " ".join(result.sentences())
    details = result.to_json()
    return Item("box", question, result.verdict, text, "tolerance", "accuracy", details, result.deployment, result)


def certificates(request: EvidenceRequest) -> list[Item]:
    """Check every certificate with the exact checker; one item each."""
    question = "Does the exact checker accept this certificate for this network and this property?"
    if not request.certificates:
        return [Item("certificate", question, NOT_ASKED, "None was given (--certificate, --property).", "tolerance")]
    return [_check_certificate(request, question, *pair) for pair in request.certificates]


def _check_certificate(request: EvidenceRequest, question: str, certificate: Path, statement: Path) -> Item:
    """Check one certificate against the model and its property file `statement`; `question` is the item's."""
    name = f"certificate {certificate.name}"
    try:
        refuse_other_formats(request.given)
        graph = at_the_property(request.graph, read(statement))
        files = {"network": request.given.title, "property": statement.name}
        checked = check_file(certificate, deployed_graph(graph), read(statement), seconds=request.seconds, files=files)
    except UnsupportedError as error:
        return Item(name, question, "cannot tell", f"The certificate was not looked at: {error}", "tolerance")
    except ReplayError as error:
        verdict = "unknown" if isinstance(error, OutOfTimeError) else "refused"
        details = {"verdict": verdict, "reason": str(error)}
        return Item(name, question, verdict, f"{error}.", "tolerance", "check-certificate", details)
    details = checked.to_json(rounded_constants(graph))
    cases = "on its box" if len(checked.cases) == 1 else f"in all of its {len(checked.cases)} cases"
    text = f"Yes: {statement.name} holds {cases}, by a margin of at least {details['margin']:.4g}."
    return Item(name, question, "valid", text, "tolerance", "check-certificate", details, checked.deployment, checked)
