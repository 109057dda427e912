"""A whole model on a runtime: the first layer that rounding does not explain, then the end-to-end radius.

Every layer is judged on the runtime's own inputs to it, so that one wrong layer does not blame its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import ParameterError
from ..graph.graph import CONSTANT, INPUT, Graph
from ..graph.show import layer_text
from ..rounding import FORMATS, Arithmetic
from ..scalar import Array
from ..window import Shape
from .deploy import Deployed, deploy
from .examine import arithmetic_of, merged_arithmetic_of
from .judge import SEVERITY, Kind, Verdict, balls, compare, worst
from .reproduce import reproduce
from .runtimes import Runtime, runtime
from .section import section

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Layer:
    """One layer by its own name in the user's model, with the verdict on its output."""

    name: str
    operator: str
    shape: Shape
    verdict: Verdict

    def row(self) -> dict[str, Any]:
        """For tables and --json."""
        v = self.verdict
        found: dict[str, Any] = {
            "layer": self.name,
            "operator": self.operator,
            "shape": list(self.shape),
            "verdict": v.kind,
        }
        found |= {"ratio": v.ratio if np.isfinite(v.ratio) else None, "detail": str(v)}
        if v.where:
            found |= {"worst": list(v.where), "got": v.got, "must_be": v.wanted, "allowed": v.allowed}
        return found


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
        return worst([*layers, self.whole]).kind

    def __str__(self) -> str:
        if self.first is not None:
            return f"{self.verdict}: layer {self.first.name} ({self.first.operator}): {self.first.verdict}"
        return f"{self.verdict}: {len(self.layers)} layers; whole model: {self.whole}"

    def to_json(self) -> dict[str, Any]:
        first = self.first
        return {
            "verdict": self.verdict,
            "model": self.model,
            "runtime": self.runtime,
            "versions": dict(self.versions),
            "first": None if first is None else first.row(),
            "export": None if self.export is None else self.export.row(),
            "layers": [layer.row() for layer in self.layers],
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


def _judge_layer(deployed: Deployed, name: str, position: int, backend: str, found: Runtime) -> Layer:
    """The layer's output against its meaning on the values that the runtime itself fed it."""
    graph, known = deployed.graph, deployed.known
    part, inputs = section(graph, position, known)
    given = _as_float64([known[p] for p in inputs])
    arithmetic = arithmetic_of(found) if _is_one_layer(part) else merged_arithmetic_of(found)
    (ball,) = balls(part, given, arithmetic, backend)
    verdict = compare(name, known[position], ball)
    if (verdict.kind, verdict.fault) == ("differs", "value") and _is_bfloat16(part, given, known[position], backend):
        verdict = replace(verdict, kind="other arithmetic", detail="looks like bfloat16")
    return Layer(name, _operator(graph, position), graph.nodes[position].shape, verdict)


def _is_one_layer(part: Graph) -> bool:
    """Whether the values read are those of neighbouring layers, and nothing between them is left out."""
    return len({n.group for n in part.nodes if n.op not in (INPUT, CONSTANT)}) <= 1


def _is_bfloat16(part: Graph, given: Sequence[Array], output: Array, backend: str) -> bool:
    """Every number is a bfloat16, and within the bound of that arithmetic: no fault of a formula looks like that."""
    if output.size < 16 or not FORMATS["bfloat16"].holds(output.astype(np.float64)).all():
        return False
    (ball,) = balls(part, given, Arithmetic("bfloat16", accumulate="float32", flush=True), backend)
    return compare("", output, ball).kind in ("exact", "rounding")


def _judge_whole(deployed: Deployed, inputs: Sequence[Array], backend: str, found: Runtime) -> Verdict:
    """The outputs of the model as it is, nothing exposed, against the radius through all layers."""
    if deployed.answer.outcome != "answers":
        return Verdict(deployed.answer.outcome, detail=deployed.answer.reason)
    wanted = balls(deployed.graph, _as_float64(inputs), merged_arithmetic_of(found), backend)
    return worst(
        [compare(f"output {i}", a, b) for i, (a, b) in enumerate(zip(deployed.answer.arrays, wanted, strict=True))]
    )


def _backend() -> str:
    """The float64 reference by PyTorch where it is installed: real sizes need its speed."""
    from importlib.util import find_spec

    return "torch" if find_spec("torch") else "numpy"


def audit(
    model: Any,
    name: str | Runtime,
    inputs: Array | Sequence[Array],
    *,
    seconds: float = 300,
    progress: Progress | None = None,
) -> Audit:
    """Run a model on a runtime and explain every layer's output by rounding, or name the first that is not.

    model    an ONNX file (path, bytes or ModelProto), or a PyTorch module in eval mode
    name     a runtime that reads ONNX files (a module is exported with torch.onnx first, and the export is checked
             too), or "torch" for a module as it is
    inputs   one float32 array, or one per input of the model
    """
    found = runtime(name) if isinstance(name, str) else name
    arrays = [np.asarray(a) for a in (inputs if isinstance(inputs, list | tuple) else [inputs])]
    for a in arrays:
        if a.dtype != np.float32:
            raise ParameterError("audit", f"inputs must be float32; got {a.dtype}", rule="P5")
    deployed = deploy(model, found, arrays, seconds)
    layers = []
    names = deployed.layers if deployed.answer.outcome == "answers" else {}
    for i, (layer, position) in enumerate(names.items()):
        if progress is not None:
            progress(layer, i, len(names))
        layers.append(_judge_layer(deployed, layer, position, _backend(), found))
    whole = _judge_whole(deployed, arrays, _backend(), found)
    export = _judge_export(deployed, arrays)
    bad = next((layer.name for layer in layers if _is_bad(layer.verdict.kind)), None)
    script = reproduce(deployed, names[bad], found) if bad is not None and found.model else ""
    said = {"layers": arithmetic_of(found).deployment, "whole": merged_arithmetic_of(found).deployment}
    title, versions = deployed.title, found.versions()
    return Audit(title, found.name, versions, tuple(layers), whole, deployed.notes, export, script, said)


def _judge_export(deployed: Deployed, inputs: Sequence[Array]) -> Layer | None:
    """Where the exported file stops meaning what the module means."""
    if deployed.module is None:
        return None
    from .export import first_difference

    found = first_difference(deployed.module, deployed.graph, _as_float64(inputs), _backend())
    if found is None:
        return None
    position, verdict = found
    node = deployed.module.nodes[position]
    return Layer(node.group, _operator(deployed.module, position), node.shape, verdict)
