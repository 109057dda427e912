"""A whole model on a runtime: the first layer that rounding does not explain, then the end-to-end radius.

Every layer is judged on the runtime's own inputs to it, so that one wrong layer does not blame its neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..graph.graph import CONSTANT, INPUT, Graph
from ..graph.show import layer_text
from ..rounding import Ball
from ..scalar import Array
from ..window import Shape
from .again import HALVES, explained, said_of
from .attribution import Attribution, attribute
from .classes import FLOAT32, accepted, class_of, renamed, whole_arithmetic
from .coverage import Coverage, coverage
from .deploy import deploy
from .deployed import Deployed, Unexamined
from .dequantised import MULTIPLIED_OUT, from_integers_alone, multiplied_out, without_dequantised
from .examine import arithmetic_of, merged_arithmetic_of
from .inputs import check_floats
from .judge import SEVERITY, Kind, Verdict, balls, compare, worst
from .recorded import RECORDED, run_recorded
from .reproduce import prober, reproduce
from .runtimes import Runtime, runtime
from .section import section
from .seen import Seen

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Layer:
    """One layer by its own name in the user's model, with the verdict on its output."""

    name: str
    operator: str
    shape: Shape
    verdict: Verdict
    dtype: str = FLOAT32
    """The format that the model says: "float16", "int8", ..."""

    def row(self) -> dict[str, Any]:
        """For tables and --json."""
        v = self.verdict
        row: dict[str, Any] = {
            "layer": self.name,
            "operator": self.operator,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "verdict": v.kind,
        }
        row |= {"ratio": v.ratio if np.isfinite(v.ratio) else None, "detail": str(v)}
        row |= {"class": class_of(v, self.dtype)}
        if v.where:
            row |= {"worst": list(v.where), "got": v.got, "must_be": v.wanted, "allowed": v.allowed}
        return row


@dataclass(frozen=True)
class Audit:
    """The layers in order, the model as a whole, and what was compared."""

    model: str
    runtime: str
    versions: Mapping[str, str]
    layers: tuple[Layer, ...]
    whole: Verdict
    notes: tuple[str, ...] = ()
    export: Layer | None = field(default=None)
    """A layer that the exported file no longer computes as the module does."""
    script: str = ""
    """A minimal reproduction of the first layer, where the runtime fails on that layer alone."""
    deployment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What a correct execution is: of "layers" that were read one by one, and of the "whole" model, which may merge."""
    coverage: Coverage = field(default_factory=lambda: Coverage(0, 0, 0, 0))
    """How much of the model was judged."""
    demand_whole: bool = False
    """Whether a layer that was not examined makes the verdict "cannot tell"."""
    attribution: Attribution | None = None
    """Which layers explain the difference at the output; None where there is none, or it cannot be followed."""

    @property
    def first(self) -> Layer | None:
        """The layer to look at."""
        if self.export is not None:
            return self.export
        return next((layer for layer in self.layers if _is_bad(layer.verdict.kind)), None)

    @property
    def verdict(self) -> Kind:
        layers = [layer.verdict for layer in self.layers] + ([self.export.verdict] if self.export is not None else [])
        if layers and worst(layers).kind == "other arithmetic":
            return "other arithmetic"  # which also explains the whole
        kind = worst([*layers, self.whole]).kind
        incomplete = self.demand_whole and not self.coverage.is_whole and not _is_bad(kind)
        return "cannot tell" if incomplete or kind == "not examined" else kind

    def __str__(self) -> str:
        if self.first is not None:
            return f"{self.verdict}: layer {self.first.name} ({self.first.operator}): {self.first.verdict}"
        return f"{self.verdict}: {self.coverage}; whole model: {self.whole}"

    def _differences(self, layer: str) -> dict[str, Any]:
        """What a layer's row says of differences."""
        a = self.attribution
        if a is None or layer not in a.shares:
            return {}
        return {"difference": a.seen[layer].to_json(), "own": a.own[layer].to_json(), "share": a.shares[layer]}

    def to_json(self) -> dict[str, Any]:
        first = self.first
        return {
            "verdict": self.verdict,
            "model": self.model,
            "runtime": self.runtime,
            "versions": dict(self.versions),
            "first": None if first is None else first.row(),
            "export": None if self.export is None else self.export.row(),
            "layers": [layer.row() | self._differences(layer.name) for layer in self.layers],
            "attribution": None if self.attribution is None else self.attribution.to_json(),
            "coverage": self.coverage.to_json(),
            "whole": Layer("whole model", "", (), self.whole).row(),
            "notes": list(self.notes),
            "script": self.script,
            "deployment": {part: dict(said) for part, said in self.deployment.items()},
        }


def _is_bad(kind: Kind) -> bool:
    return SEVERITY.index(kind) > SEVERITY.index("refuses")


def _operator(graph: Graph, position: int) -> str:
    """The operator, or the composition that this node closes."""
    group = graph.nodes[position].group
    return layer_text([n for n in graph.nodes[: position + 1] if n.group == group and n.op not in (INPUT, CONSTANT)])


def _as_float64(values: Sequence[Array]) -> list[Array]:
    return [np.asarray(v, np.float64) if v.dtype.kind == "f" else v for v in values]


def _as_numbers(graph: Graph, positions: Sequence[int], known: Mapping[int, Array]) -> list[Array]:
    """What the runtime showed, as float64; integers of a quantised model are numbers, positions are not."""
    return [known[p] if graph.nodes[p].kind == "index" else known[p].astype(np.float64) for p in positions]


def _judge_layer(
    deployed: Deployed,
    name: str,
    position: int,
    target: Runtime,
    expected: dict[str, Ball],
    accept: Collection[str] = (),
) -> Layer:
    """The layer's output against its meaning on the values that the runtime itself fed it."""
    backend = _backend()
    graph, known = deployed.graph, deployed.known
    part, inputs = section(graph, position, known)
    unknown = [graph.nodes[p].name for p in inputs if p not in known]
    if unknown:
        verdict = Verdict("not examined", detail=f"depends on {', '.join(unknown)}, whose values are not known")
        return Layer(name, _operator(graph, position), graph.nodes[position].shape, verdict)
    given = _as_numbers(graph, inputs, known)
    arithmetic = arithmetic_of(target) if _is_one_layer(part) else merged_arithmetic_of(target)
    (ball,) = balls(part, given, arithmetic, backend, deployed.computed_in)
    expected[name] = replace(ball, expansion=None)
    verdict = compare(name, known[position], ball)
    if (verdict.kind, verdict.fault) == ("differs", "value"):
        verdict = _from_integers(deployed, name, position, inputs, target) or verdict
    look = (part, given, known[position], arithmetic, backend)
    verdict = explained(verdict, *look, graph, inputs, deployed.computed_in)
    if verdict.kind == "differs" and not any(n.name in deployed.computed_in for n in part.nodes):
        seen = Seen(part, given, [known[position]], [name], backend)
        verdict = renamed(verdict, seen, arithmetic, prober(deployed, position, target), accept)
    node = graph.nodes[position]
    form = deployed.computed_in.get(node.name)
    dtype = form if form in HALVES else known[position].dtype.name
    return Layer(name, _operator(graph, position), node.shape, verdict, dtype)


def _ways(deployed: Deployed) -> list[tuple[Mapping[str, str], str]]:
    """The formats that nodes are computed in, and how merged dequantised values may go besides, in words."""
    ways: list[tuple[Mapping[str, str], str]] = [(deployed.computed_in, "")]
    other = multiplied_out(deployed.graph, deployed.computed_in)
    return ways if other == deployed.computed_in else [*ways, (other, MULTIPLIED_OUT)]


def _from_integers(
    deployed: Deployed, name: str, position: int, inputs: Sequence[int], target: Runtime
) -> Verdict | None:
    """The verdict on a layer whose dequantised inputs the runtime computes again; None where that explains nothing."""
    graph = deployed.graph
    starts = without_dequantised(graph, inputs, deployed.known), from_integers_alone(graph, position, deployed.known)
    for known, (formats, words) in itertools.product(filter(None, starts), _ways(deployed)):
        part, sources = section(graph, position, known)
        (ball,) = balls(part, _as_numbers(graph, sources, known), merged_arithmetic_of(target), _backend(), formats)
        verdict = compare(name, deployed.known[position], ball)
        if verdict.kind in ("exact", "rounding"):
            return replace(verdict, detail=words)
    return None


def _judge_merged(deployed: Deployed, target: Runtime) -> list[Layer]:
    """Each quantised value from the quantised values before it, in the run that exposed nothing else."""
    inputs = {p: deployed.known[p] for p in deployed.graph.input_positions if p in deployed.known}
    apart = replace(deployed, known={**inputs, **dict(deployed.merged.values())})
    layers = []
    for name, (position, _) in deployed.merged.items():
        if _has_arithmetic_before(section(deployed.graph, position, apart.known)[0]):
            layer = _judge_layer(apart, name, position, target, {})
            layers.append(replace(layer, name=f"{deployed.graph.nodes[position].group} (merged)"))
    return layers


def _has_arithmetic_before(part: Graph) -> bool:
    """Whether layers before the last one round: what is merely moved says nothing new."""
    last = part.nodes[part.output_positions[0]].group
    return any(n.op not in (INPUT, CONSTANT) and not n.op.exact and n.group != last for n in part.nodes)


def _is_one_layer(part: Graph) -> bool:
    """Whether the values read are those of neighbouring layers, and nothing between them is left out."""
    return len({n.group for n in part.nodes if n.op not in (INPUT, CONSTANT)}) <= 1


def _judge_whole(
    deployed: Deployed, inputs: Sequence[Array], target: Runtime, classes: Collection[str] = ()
) -> Verdict:
    """The outputs of the model as it is, nothing exposed, against the radius through all layers.

    classes   those that were seen in layers and accepted: the radius is that of the widest
    """
    if deployed.answer.outcome != "answers":
        return Verdict(deployed.answer.outcome, detail=deployed.answer.reason)
    if any(isinstance(layer, Unexamined) for layer in deployed.layers.values()):
        return Verdict("not examined", detail="what unexamined layers compute is not known")
    if len(deployed.answer.arrays) < len(deployed.graph.output_positions):
        return Verdict("not examined", detail="not all outputs were recorded")
    arithmetic = whole_arithmetic(merged_arithmetic_of(target), classes)
    if arithmetic is None:
        named = " and ".join(sorted(set(classes)))
        return Verdict("not examined", detail=f"for {named} no radius through all layers is known")
    for formats, _ in _ways(deployed):
        wanted = balls(deployed.graph, _as_float64(inputs), arithmetic, _backend(), formats)
        pairs = enumerate(zip(deployed.answer.arrays, wanted, strict=True))
        verdict = worst([compare(f"output {i}", a, b) for i, (a, b) in pairs])
        if verdict.kind != "differs":
            break
    if verdict.kind == "rounding" and not any(_is_useful(ball) for ball in wanted):
        text = "within its proven radius, but that is larger than the values: the layers say more"
        return Verdict("rounding", verdict.ratio, detail=text)
    return verdict


def _is_useful(ball: Ball) -> bool:
    """Whether a radius says anything: it is smaller than the largest value."""
    return bool(np.median(ball.radius) < np.abs(ball.value).max(initial=0.0)) if ball.value.size else True


def _backend() -> str:
    """The float64 reference by PyTorch where it is installed: real sizes need its speed."""
    from importlib.util import find_spec

    return "torch" if find_spec("torch") else "numpy"


def audit(
    model: Any,
    name: str | Runtime,
    inputs: Array | Sequence[Array],
    *,
    accept: Sequence[str] = (),
    seconds: float = 300,
    whole: bool = False,
    progress: Progress | None = None,
) -> Audit:
    """Run a model on a runtime and explain every layer's output by rounding, or name the first that is not.

    A layer whose operator has no meaning here is "not examined": its output is taken from the runtime, and every other
    layer is judged. `coverage` says how much that is.

    model    an ONNX file (path, bytes or ModelProto), or a PyTorch module in eval mode
    name     a runtime that reads ONNX files (a module is exported with torch.onnx first, and the export is checked
             too), or "torch" for a module as it is
    inputs   one float32 array, or one per input of the model
    accept   classes of arithmetic beside float32 that a layer may be explained by: "tf32", "bfloat16-operands", ... or
             "any" (specgrad.check.classes)
    whole    whether a layer that was not examined makes the verdict "cannot tell"
    """
    allowed = accepted(accept)
    target = runtime(name) if isinstance(name, str) else name
    arrays = [np.asarray(a) for a in (inputs if isinstance(inputs, list | tuple) else [inputs])]
    check_floats(arrays)
    deployed = deploy(model, target, arrays, seconds)
    given = [deployed.known[p] for p in deployed.graph.input_positions if p in deployed.known]  # as they were fed
    return _judged(deployed, target, given, allowed, whole, progress)


def audit_recorded(
    model: Any,
    recorded: Mapping[str, Array],
    *,
    accept: Sequence[str] = (),
    whole: bool = False,
    progress: Progress | None = None,
) -> Audit:
    """As `audit`, for what any other device has computed.

    recorded   the values of the model's inputs, and of any other values, by their names in the ONNX file; the more
               there are, the closer a fault is located
    """
    allowed = accepted(accept)
    deployed = run_recorded(model, recorded)
    inputs = [deployed.known[p] for p in deployed.graph.input_positions if p in deployed.known]
    return _judged(deployed, RECORDED, inputs, allowed, whole, progress)


def _judged(
    deployed: Deployed,
    target: Runtime,
    inputs: Sequence[Array],
    accept: Collection[str],
    whole: bool,
    progress: Progress | None,
) -> Audit:
    layers = []
    expected: dict[str, Ball] = {}
    names = deployed.layers if deployed.answer.outcome == "answers" else {}
    for i, (name, layer) in enumerate(names.items()):
        if progress is not None:
            progress(name, i, len(names))
        layers.append(_examined(deployed, name, layer, target, expected, accept))
    covered = coverage(deployed, [layer.name for layer in layers if layer.verdict.kind != "not examined"])
    layers += _judge_merged(deployed, target)
    bad = next((names.get(layer.name) for layer in layers if _is_bad(layer.verdict.kind)), None)
    used = [x.verdict.arithmetic for x in layers if x.verdict.arithmetic and not _is_bad(x.verdict.kind)]
    return Audit(
        deployed.title,
        target.name,
        target.versions(),
        tuple(layers),
        _judge_whole(deployed, inputs, target, used),
        deployed.notes,
        _judge_export(deployed, inputs),
        reproduce(deployed, bad, target) if isinstance(bad, int) and target.model else "",
        {
            "layers": said_of(arithmetic_of(target).deployment, deployed.computed_in),
            "whole": said_of(merged_arithmetic_of(target).deployment, deployed.computed_in),
        },
        covered,
        whole,
        attribute(deployed, expected, _backend()),
    )


def _examined(
    deployed: Deployed,
    name: str,
    layer: int | Unexamined,
    target: Runtime,
    expected: dict[str, Ball],
    accept: Collection[str],
) -> Layer:
    if isinstance(layer, Unexamined):
        return Layer(name, layer.operator, layer.shape, Verdict("not examined", detail=layer.reason))
    return _judge_layer(deployed, name, layer, target, expected, accept)


def _judge_export(deployed: Deployed, inputs: Sequence[Array]) -> Layer | None:
    """Where the exported file stops meaning what the module means."""
    if deployed.module is None:
        return None
    from .export import first_difference

    difference = first_difference(deployed.module, deployed.graph, _as_float64(inputs), _backend())
    if difference is None:
        return None
    position, verdict = difference
    node = deployed.module.nodes[position]
    return Layer(node.group, _operator(deployed.module, position), node.shape, verdict)
