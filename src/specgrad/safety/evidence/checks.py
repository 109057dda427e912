"""The questions, one function each: what is asked, by which part of the library, and the answer in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from specgrad.bounds.search.network.float32_model import (
    at_the_property,
    deployed_graph,
    refuse_other_formats,
    rounded_constants,
)
from specgrad.check import audit_recorded, preserve, tolerance
from specgrad.check.decisions.decision import parse
from specgrad.check.models.recorded import recorded_of, split_points
from specgrad.check.models.run_onnx import read_with_weights, real_inputs
from specgrad.declared_errors import declared
from specgrad.errors import SpecgradError, UnsupportedError
from specgrad.graph.graph import Graph
from specgrad.interop import from_onnx
from specgrad.interop.onnx import input_dims
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
    """What the applicant gave.

    recorded       values of the target by their names in the file
    data           samples whose decisions are asked about
    box            every cell of every input lies between these two
    certificates   pairs of files: a certificate, and the property that it must prove
    of             the target's runtime, whose errors of exp, tanh, ... are taken; None: the largest of any
    """

    model: Path
    recorded: Mapping[str, Array]
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
        parse(self.decision)  # refused before the work
        recorded_of(self.of)

    @property
    def arithmetic(self) -> Arithmetic:
        """The executions that tolerances and decisions are asked of: fused, with the functions of the target."""
        return Arithmetic(ulps=declared(recorded_of(self.of).functions))

    @cached_property
    def file(self) -> Any:
        """The model as ONNX has it."""
        return read_with_weights(str(self.model))

    @cached_property
    def points(self) -> list[dict[str, Array]]:
        """The recorded values at each point."""
        values = {name for node in self.file.graph.node for name in node.output}
        return split_points(
            {n: a for n, a in self.recorded.items() if n in values | set(self.inputs)}, input_dims(self.file)
        )

    @cached_property
    def inputs(self) -> list[str]:
        return [end.name for end in real_inputs(self.file)]

    @property
    def ends(self) -> list[tuple[str, int]]:
        """The outputs by their names in the file, and where they stand in the graph."""
        names = [end.name for end in self.file.graph.output]
        return list(zip(names, self.graph.output_positions, strict=True))

    @property
    def outputs(self) -> list[str]:
        """Of numbers: positions have no distance."""
        return [name for name, p in self.ends if self.graph.nodes[p].kind == "real"]

    @cached_property
    def graph(self) -> Graph:
        """The file's meaning, at the sizes that were recorded."""
        graph: Graph = from_onnx(str(self.model), input_shapes=self.sizes)
        return graph

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Of the inputs that were recorded."""
        return {n: np.shape(a) for n, a in self.points[0].items() if n in self.inputs}


def model(asked: EvidenceRequest) -> Item:
    question = "Which model is this, and does every operator of it have one meaning?"
    try:
        graph = asked.graph
    except SpecgradError as error:
        return Item("model", question, "cannot tell", f"Not every operator has one here: {error}", "semantics")
    details: dict[str, Any] = {
        "graph": network_digest(graph),
        "nodes": len(graph.nodes),
        "inputs": {graph.nodes[p].name: list(graph.nodes[p].shape) for p in graph.input_positions},
        "outputs": {name: list(graph.nodes[p].shape) for name, p in asked.ends},
    }
    ends = ", ".join(f"{n} {'x'.join(map(str, s)) or 'a number'}" for n, s in details["inputs"].items())
    text = f"{details['nodes']} nodes, all with a meaning in docs/reference/contract.md, at inputs {ends}."
    return Item("model", question, "ok", text, "semantics", None, details)


def profiled(asked: EvidenceRequest) -> Item:
    question = "Does the file keep the rules of the ONNX safety profile, as its texts stand?"
    result = check_profile(str(asked.model), box=asked.box)
    counts = Counter(f.severity for f in result.findings)
    rules = {word: sorted({f.rule for f in result.findings if f.severity == word}, key=_number) for word in counts}
    said = [f"{counts[w]} places {w} ({', '.join(rules[w])})" for w in ("broken", "undecided") if counts[w]]
    text = f"{' and '.join(said) or 'No finding, which is not compliance'}. {' '.join(CAVEAT)}"
    return Item("profile", question, result.verdict, text, "semantics", "profile", result.to_json(), {}, result)


def _number(rule: str) -> int:
    return int(rule[1:])


def layers(asked: EvidenceRequest) -> Item:
    question = "Is what the target computed, layer by layer, rounding of what the model says?"
    result = audit_recorded(str(asked.model), asked.recorded, of=asked.of, accept=asked.accept, progress=asked.progress)
    said = dict(result.deployment.get("layers", {}))
    return Item(
        "layers", question, result.verdict, f"{result}.", "replication", "audit", result.to_json(), said, result
    )


def outputs(asked: EvidenceRequest) -> Item:
    """Of the recorded outputs, at the recorded inputs: against exact values, by the tolerance of the whole model."""
    question = "How far may outputs be from the exact ones, and how far are the target's?"
    stacked = [np.stack([p[n] for p in asked.points]) for n in asked.inputs]
    options: dict[str, Any] = {"seconds": asked.seconds, "progress": asked.progress}
    proven = tolerance(str(asked.model), *stacked, arithmetic=asked.arithmetic, points=True, **options)
    sentences, beyond = [proven.sentences()[0]], False
    for name, exact, distance in zip(asked.outputs, proven.exact, proven.tolerances, strict=True):
        if any(name not in p for p in asked.points):
            sentences.append(f"{name} was not recorded.")
            continue
        got = np.stack([p[name] for p in asked.points]).astype(np.float64)
        far = np.abs(got - exact)
        is_beyond = bool((~(far <= distance)).any())
        beyond |= is_beyond
        with np.errstate(invalid="ignore", divide="ignore"):
            share = float(np.nanmax(np.where(far > 0, far / distance, 0.0), initial=0.0))
        most = upward(float(far.max(initial=0.0)))
        used = f"at most {upward(share, 3)} of what is allowed in any cell"
        sentences.append(f"The target's {name} is at most {most} from the exact values, {used}.")
    verdict = "differs" if beyond else proven.verdict
    if beyond:
        sentences.append("That is farther than any execution of the class can be.")
    details = proven.to_json()
    return Item(
        "outputs", question, verdict, " ".join(sentences), "tolerance", "tolerance", details, proven.deployment, proven
    )


def decisions(asked: EvidenceRequest) -> Item:
    question = "Which decisions can no execution of the class change?"
    if asked.data is None:
        return Item("decisions", question, NOT_ASKED, "No data were given (--data).", "tolerance")
    options: dict[str, Any] = {"axis": asked.axis, "seconds": asked.seconds, "progress": asked.progress}
    result = preserve(str(asked.model), asked.data, asked.decision, arithmetic=asked.arithmetic, **options)
    details, said = result.to_json(), result.deployment
    return Item("decisions", question, result.verdict, f"{result}.", "tolerance", "preserve", details, said, result)


def box(asked: EvidenceRequest) -> Item:
    question = "For every input in the declared box: can a value overflow, and how far may outputs be from exact ones?"
    if asked.box is None:
        return Item("box", question, NOT_ASKED, "No box was declared (--box).", "tolerance")
    where = f"for inputs between {asked.box[0]:g} and {asked.box[1]:g}"
    try:
        graph, boxes = on_box(str(asked.model), *asked.box, asked.sizes, "evidence")
        result = accuracy(graph, *boxes, seconds=asked.seconds)
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


def certificates(asked: EvidenceRequest) -> list[Item]:
    """One item per certificate: the checker's word, and nobody else's."""
    question = "Does the exact checker accept this certificate for this network and this property?"
    if not asked.certificates:
        return [Item("certificate", question, NOT_ASKED, "None was given (--certificate, --property).", "tolerance")]
    return [_certificate(asked, question, *pair) for pair in asked.certificates]


def _certificate(asked: EvidenceRequest, question: str, certificate: Path, statement: Path) -> Item:
    name = f"certificate {certificate.name}"
    try:
        refuse_other_formats(str(asked.model))
        graph = at_the_property(asked.graph, read(statement))
        files = {"network": asked.model.name, "property": statement.name}
        checked = check_file(certificate, deployed_graph(graph), read(statement), seconds=asked.seconds, files=files)
    except ReplayError as error:
        verdict = "unknown" if isinstance(error, OutOfTimeError) else "refused"
        details = {"verdict": verdict, "reason": str(error)}
        return Item(name, question, verdict, f"{error}.", "tolerance", "check-certificate", details)
    details = checked.to_json(rounded_constants(graph))
    cases = "on its box" if len(checked.cases) == 1 else f"in all of its {len(checked.cases)} cases"
    text = f"Yes: {statement.name} holds {cases}, by a margin of at least {details['margin']:.4g}."
    return Item(name, question, "valid", text, "tolerance", "check-certificate", details, checked.deployment, checked)
