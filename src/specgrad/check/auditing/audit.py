"""Audit a whole model on a runtime: find the first layer that rounding does not explain, then judge all together.

Every layer is judged on the runtime's own inputs to it, so that one wrong layer does not blame its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from specgrad import html_page
from specgrad.deadline import check_time, is_over, time_left, time_limit
from specgrad.errors import SpecgradError, TimeLimitError
from specgrad.graph.drawing.summary import multiply_adds
from specgrad.graph.graph import Graph, needed
from specgrad.interop.model import Model, open_model
from specgrad.rounding.stated import deployment_of
from specgrad.scalar import Array

from ..models.model_run import WHOLE_NUMBERS, ModelRun, UnsupportedLayer, check_floats
from ..models.recorded import Recorded, known_faults, recorded_of, run_recorded, runtime_of
from ..models.recording import ModelRecording
from ..models.run_onnx import deploy
from ..runtimes import Runtime
from ..runtimes import runtime as runtime_named
from ..tolerances.allowance import Clock
from ..verdicts.arithmetic_classes import CLASSES, accepted_classes
from ..verdicts.judge import SEVERITY, Kind, Verdict, worst
from ..verdicts.known_effects import describe_formats
from ..verdicts.run_case import arithmetic_of, fused_arithmetic_of
from ..verdicts.usual import RunEstimate
from .attribution import Attribution, attribute
from .blind_spots import BlindSpots, find_blind_spots
from .layer import AuditContext, LayerVerdict, operator_of, reference_backend
from .reproduce import reproduce

Progress = Callable[[str, int, int], None]
OUT_OF_TIME = "out of time: what was not reached is not examined; --seconds gives more"
TOLERANCE_SECONDS, OUTPUTS_ONLY_SECONDS = 10.0, 60.0
MAX_ATTRIBUTION_BYTES = 4e9  # values and weights in float64


@dataclass(frozen=True)
class Audit:
    """The result of an audit: verdicts on the layers in order and on the whole model, and what was compared.

    Attributes
    ----------
    model : str
        Name of the model.
    runtime : str
        Name of the runtime.
    versions : mapping of str to str
        Of the runtime's packages, by name.
    layers : tuple of LayerVerdict
        The verdicts on the layers, in order.
    whole : Verdict
        The verdict on the whole model.
    notes : tuple of str
        What else a reader should know, in sentences.
    export : LayerVerdict or None
        A layer that the exported file no longer computes as the module does.
    script : str
        A minimal reproduction of the first layer, where the runtime fails on that layer alone.
    deployment : mapping of str to mapping
        What a correct execution is: of "layers" that were read one by one, and of the "whole" model, which may merge.
    coverage : Coverage
        How much of the model was judged.
    partial : bool
        Whether layers that were not examined may be left out; else they make the verdict "partly examined".
    unusual : {"open", "note"}
        Whether an unusual layer makes the verdict "unusual", or is a note.
    attribution : Attribution or None
        Which layers explain the difference at the output; None where there is none, or it cannot be followed.
    outputs_only : bool
        Whether inputs and outputs are all that is known: then no layer can be named.
    run : RunEstimate or None
        How far the run as it is was off, beside what is usual: an estimate; None where nothing is estimated.
    left_out : tuple of str
        What was not examined beside layers, in words: the run as it is, points that time did not reach.
    blind_spots : BlindSpots or None
        What could not be seen, where outputs alone were judged and explained; else None.

    Examples
    --------
    >>> import specgrad as sg
    >>> from onnx import TensorProto, helper
    >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2]) for n in "xy")
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="act")], "net", [x], [y])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    >>> inputs, outputs = {"x": np.float32([[-1, 2]])}, {"y": np.float32([[0, 3]])}
    >>> found = sg.check.audit_recorded(model, {**inputs, **outputs})
    >>> found.verdict, found.outputs_only
    ('differs', True)
    """

    model: str
    runtime: str
    versions: Mapping[str, str]
    layers: tuple[LayerVerdict, ...]
    whole: Verdict
    notes: tuple[str, ...] = ()
    export: LayerVerdict | None = field(default=None)
    script: str = ""
    deployment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=lambda: Coverage(0, 0, 0, 0))
    partial: bool = False
    unusual: Literal["open", "note"] = "open"
    attribution: Attribution | None = None
    outputs_only: bool = False
    run: RunEstimate | None = None
    left_out: tuple[str, ...] = ()
    blind_spots: BlindSpots | None = None

    @property
    def first_divergent(self) -> LayerVerdict | None:
        """The first layer that rounding does not explain, or that the export changes; None if there is none."""
        if self.export is not None or self.outputs_only:
            return self.export
        return next((layer for layer in self.layers if _is_bad(layer.verdict.kind)), None)

    @property
    def verdict(self) -> Kind:
        """The verdict of the layers, and of the run as it is where that is proven to be wrong.

        A bound of the whole model that says nothing is no verdict. Layers that were not examined are one: "partly
        examined"; so is a run as it is that neither the bound nor the estimate says anything of.
        """
        layers = [layer.verdict for layer in self.layers] + ([self.export.verdict] if self.export is not None else [])
        if layers and worst(layers).kind == "other arithmetic":
            return "other arithmetic"  # which also explains the whole
        judged = [v for v in layers if v.kind != "not examined"]
        judged += [self.whole] if self.outputs_only or _is_answer(self.whole) else []
        judged += [Verdict("unusual")] if self.run is not None and self.run.is_unusual else []
        if self.unusual == "note":
            judged = [replace(v, kind="rounding") if v.kind == "unusual" else v for v in judged]
        kind = worst(judged).kind if judged else "cannot tell"
        if _is_bad(kind) or kind in ("unusual", "refuses"):
            return kind
        if not self.partial and (self.left_out or not (self.coverage.is_whole or self.outputs_only)):
            return "partly examined"
        return "cannot tell" if kind == "not examined" else kind

    def __str__(self) -> str:
        layer = self.first_divergent
        if layer is None and self.verdict == "unusual":
            layer = next((x for x in self.worst_layers(1) if x.verdict.kind == "unusual"), None)
        if layer is not None:
            return f"{self.verdict}: layer {layer.name} ({layer.operator}): {layer.verdict}"
        seen = "outputs alone" if self.outputs_only else str(self.coverage)
        seen += "".join(f"; not examined: {what}" for what in self.left_out)
        return f"{self.verdict}: {seen}; whole model: {self.whole}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the verdict, and the layers to look at first, as HTML for notebooks."""
        head = ("layer", "operator", "shape", "verdict", "error / bound")
        rows = [
            (x.name, x.operator, "x".join(map(str, x.shape)), x.verdict.kind, f"{x.verdict.ratio:.2g}")
            for x in self.worst_layers(30)
        ]
        said = [f"{self.model} on {self.runtime}: {self}", *self.notes]
        return html_page.fragment(self.verdict, said, head, rows)

    def worst_layers(self, count: int = 10) -> list[LayerVerdict]:
        """Return the `count` layers to look at first: by severity, then by times the usual, then by share of the
        allowance.
        """

        def rank(layer: LayerVerdict) -> tuple[int, float, float]:
            times = 0.0 if layer.usual is None else layer.usual.times
            kind = "cannot tell" if layer.verdict.kind == "not examined" else layer.verdict.kind
            return -SEVERITY.index(kind), -times, -layer.verdict.ratio

        return sorted(self.layers, key=rank)[:count]

    def _difference_entries(self, layer: str) -> dict[str, Any]:
        """Return the entries `difference`, `own_error` and `share` of a layer's row; {} where nothing was attributed to
        it.
        """
        a = self.attribution
        if a is None or layer not in a.shares:
            return {}
        difference, own_error = a.difference[layer].to_json(), a.own_error[layer].to_json()
        return {"difference": difference, "own_error": own_error, "share": a.shares[layer]}

    def to_json(self) -> dict[str, Any]:
        """Return the audit as JSON data: verdict, model, runtime, a row per layer, and what was left out.

        Keys as in the schema of `specgrad audit --json`: also attribution, run, coverage, whole, blind_spots, script
        and deployment; null for what was not asked or found.
        """
        first = self.first_divergent
        return {
            "verdict": self.verdict,
            "model": self.model,
            "runtime": self.runtime,
            "versions": dict(self.versions),
            "first_divergent": None if first is None else first.row(),
            "export": None if self.export is None else self.export.row(),
            "layers": [layer.row() | self._difference_entries(layer.name) for layer in self.layers],
            "attribution": None if self.attribution is None else self.attribution.to_json(),
            "run": None if self.run is None else self.run.to_json(),
            "coverage": self.coverage.to_json(),
            "whole": LayerVerdict("whole model", "", (), self.whole).row(),
            "blind_spots": None if self.blind_spots is None else self.blind_spots.to_json(),
            "notes": [*self.notes, *(f"not examined: {what}" for what in self.left_out)],
            "script": self.script,
            "deployment": {part: dict(said) for part, said in self.deployment.items()},
        }


def _is_answer(whole: Verdict) -> bool:
    """Return whether the verdict `whole` on the whole model says something: a bound that is open or useless does
    not.
    """
    return whole.kind not in ("cannot tell", "not examined")


def _is_bad(kind: Kind) -> bool:
    """Return whether a verdict of this kind is worse than "refuses", by SEVERITY."""
    return SEVERITY.index(kind) > SEVERITY.index("refuses")


def audit(
    model: Any,
    runtime: str | Runtime,
    inputs: Array | Sequence[Array],
    *,
    accept: Sequence[str] = (),
    seconds: float | None = None,
    run_seconds: float = 300,
    partial: bool = False,
    unusual: Literal["open", "note"] = "open",
    tolerance_seconds: float | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Run a model on a runtime and explain every layer's output by rounding, or name the first that is not.

    A layer whose operator has no meaning here is "not examined": its output is taken from the runtime, and every other
    layer is judged. `coverage` says how much that is.

    Parameters
    ----------
    model : path, bytes, ModelProto or nn.Module
        An ONNX file (path, bytes or ModelProto), or a PyTorch module in eval mode.
    runtime : str or Runtime
        One that reads ONNX files (a module is exported with torch.onnx first, and the export is checked too), or
        "torch" for a module as it is.
    inputs : array or sequence of array
        One float32 array, or one per input of the model; of an integer type or bool where an ONNX file declares it, of
        int64 (ids) or bool (masks) for a module.
    accept : sequence of str, default ()
        Classes of arithmetic beside float32 that a layer may be explained by: "tf32", "bfloat16-operands", ... or "any"
        (specgrad.check.verdicts.arithmetic_classes).
    seconds : float, optional
        The time for all of it: layers that were not reached are "not examined". None: no limit.
    run_seconds : float, default 300
        The time for one run of the model.
    partial : bool, default False
        Whether layers may stay unexamined; else the verdict is "partly examined".
    unusual : {"open", "note"}, default "open"
        "open": errors within the proof, and far beyond what float32 usually shows, make the verdict "unusual"; "note":
        they are told, and count as rounding.
    tolerance_seconds : float, optional
        How long the tolerance of the whole model may take, where the forward radius is wide: 10 s.
    progress : callable, optional
        Called along the way with (what, done, total).

    Returns
    -------
    Audit
        A verdict per layer and for the whole model; it prints.

    Raises
    ------
    ParameterError
        For inputs of other types, and whole numbers beyond 2**53.

    Examples
    --------
    >>> from onnx import TensorProto, helper
    >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2]) for n in "xy")
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="act")], "net", [x], [y])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    >>> audit(model, "onnxruntime", np.float32([[-1, 2]]))
    exact: 1 of 1 layers were judged; whole model: exact
    """
    allowed = accepted_classes(accept)
    target = runtime_named(runtime) if isinstance(runtime, str) else runtime
    given = open_model(model, "audit")
    arrays = given.arrays(inputs if isinstance(inputs, list | tuple) else [inputs], "audit")
    check_floats(arrays, WHOLE_NUMBERS)
    with time_limit(seconds):
        deployed = deploy(given, target, arrays, min(run_seconds, time_left()))
        clock = Clock(TOLERANCE_SECONDS if tolerance_seconds is None else tolerance_seconds)
        audited = _audit_run(AuditContext(deployed, target, allowed, clock), progress)
    return replace(audited, partial=partial, unusual=unusual)


def audit_recorded(
    model: Any,
    recorded: Recorded,
    *,
    of: str | None = None,
    accept: Sequence[str] = (),
    partial: bool = False,
    unusual: Literal["open", "note"] = "open",
    tolerance_seconds: float | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Audit tensors that were recorded on another device; no runtime is started.

    Parameters
    ----------
    model : path, bytes, ModelProto or nn.Module
        An ONNX file (path, bytes or ModelProto), or a PyTorch module.
    recorded : mapping of str to array, or ModelRecording
        The values of the model's inputs, and of any other values, by their names in the ONNX file; the more there are,
        the closer a fault is located. Several points (runs) at once: every array has one more axis in front, or a
        larger batch than the 1 that the file says. Inputs and outputs alone will do: they are judged by the tolerance
        of the whole model, and `Audit.blind_spots` says what cannot be seen. Or a recording (`open_recording`), which
        must be of this very model.
    of : str, optional
        The runtime that computed them, "onnxruntime", "iree", ...: exp, tanh and the like then have the errors that are
        declared for it. None: what a recording says, or the largest that was measured of any runtime
        (`specgrad.declared_errors`).
    accept : sequence of str, default ()
        Names of classes of arithmetic that count as rounding.
    partial : bool, default False
        Whether layers may stay unexamined; else the verdict is "partly examined".
    unusual : {"open", "note"}, default "open"
        Whether errors within the proof, yet far beyond the usual, leave the verdict open ("open") or are a note
        ("note").
    tolerance_seconds : float, optional
        How long proven tolerances may take, all points together: 10 s, or 60 s for outputs alone.
    progress : callable, optional
        Called along the way with (what, done, total).

    Returns
    -------
    Audit
        A verdict per layer that was recorded, and for the whole model.

    Raises
    ------
    ParameterError
        For values that are not the model's, and for a class or runtime that is not known.

    Examples
    --------
    >>> from onnx import TensorProto, helper
    >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2]) for n in "xy")
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="act")], "net", [x], [y])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    >>> audit_recorded(model, {"x": np.float32([[-1, 2]]), "y": np.float32([[0, 2]])}).verdict
    'exact'
    """
    allowed = accepted_classes(accept)
    device = recorded_of(runtime_of(recorded, of))
    given = open_model(model, "recorded")
    points = run_recorded(given, recorded)
    points = [replace(d, notes=(*d.notes, *known_faults(device, d.graph))) for d in points]
    alone = all(_only_ends_known(d, given) for d in points)
    if tolerance_seconds is None:
        tolerance_seconds = OUTPUTS_ONLY_SECONDS if alone else TOLERANCE_SECONDS
    clock = Clock(tolerance_seconds)
    judging = [AuditContext(d, device, allowed, clock, alone) for d in points]
    audited = _audit_run(judging[0], progress) if len(points) == 1 else _judge_points(judging, progress)
    versions = recorded.versions if isinstance(recorded, ModelRecording) else audited.versions
    audited = replace(audited, partial=partial, unusual=unusual, versions=versions)
    if alone and not _is_bad(audited.verdict):
        return replace(audited, blind_spots=_blind_spots([judge for judge in judging if judge.expected]))
    return audited


def _only_ends_known(run: ModelRun, model: Model) -> bool:
    """Return whether nothing but the model's own inputs and outputs is known; a part of its graph has further ones."""
    if model.kind == "torch":
        return not run.layers
    ends = {*model.names, *(end.name for end in model.file.graph.output)}
    graph: Any = run.graph  # an imported one
    return run.known.keys() <= {p for name, p in graph.values.items() if name in ends}


def _judge_points(judging: Sequence[AuditContext], progress: Progress | None) -> Audit:
    """Return the merged audit of several points; with outputs only, of as many as the tolerances' time allows.

    `judging` has a context per point; `progress` is told (what, done, total).
    """
    audits: list[Audit] = []
    clock, cost = judging[0].clock, 0.0
    for i, judge in enumerate(judging):
        if judge.outputs_only and i and clock.left < cost:
            break
        if progress is not None:
            progress(f"point {i}", i, len(judging))
        before = clock.left
        audits.append(_audit_run(judge, None))
        cost = before - clock.left
    audited = merge_audits(audits)
    if len(audits) == len(judging):
        return audited
    text = f"{len(audits)} of {len(judging)} points were judged: a tolerance takes {cost:.2g} s"
    others = f"{len(judging) - len(audits)} of {len(judging)} points"
    return replace(audited, notes=(*audited.notes, text), left_out=(*audited.left_out, others))


def merge_audits(audits: Sequence[Audit]) -> Audit:
    """Return the audits of several points as one: of every layer the worst verdict, with its point.

    What was not examined at one point was not examined.
    """
    worst_one = max(audits, key=lambda a: (SEVERITY.index(a.verdict), a.whole.ratio))
    columns = zip(*(a.layers for a in audits), strict=True)
    layers = [_worst_of_points(column) for column in columns]
    _, whole = _worst_with_point([a.whole for a in audits])
    runs = [a.run for a in audits if a.run is not None]
    return replace(
        worst_one,
        layers=tuple(layers),
        whole=whole,
        coverage=min((a.coverage for a in audits), key=lambda c: c.layers),
        run=max(runs, key=lambda run: run.times) if runs else None,
        notes=tuple(dict.fromkeys(note for a in audits for note in a.notes)),
        left_out=tuple(dict.fromkeys(what for a in audits for what in a.left_out)),
    )


def _worst_of_points(column: Sequence[LayerVerdict]) -> LayerVerdict:
    """Return the layer of the point where its verdict is worst; `column` is one layer at every point."""
    i, verdict = _worst_with_point([layer.verdict for layer in column])
    return replace(column[i], verdict=verdict)


def _worst_with_point(verdicts: Sequence[Verdict]) -> tuple[int, Verdict]:
    """Return the worst verdict and its point, which is prefixed to its index; of several classes, the widest.

    "Not examined" is worse than what was explained.
    """
    classes = [c.name for c in CLASSES]

    def rank(v: Verdict) -> tuple[int, int, float]:
        kind = "cannot tell" if v.kind == "not examined" else v.kind
        other = len(classes) if v.arithmetic else -1  # a rewriting, or statistics by one pass
        return SEVERITY.index(kind), classes.index(v.arithmetic) if v.arithmetic in classes else other, v.ratio

    i = max(range(len(verdicts)), key=lambda k: rank(verdicts[k]))
    verdict = verdicts[i]
    index = (i, *verdict.index) if verdict.index else ()
    return i, replace(verdict, index=index, detail=f"{verdict.detail} (point {i})" if verdict.detail else "")


def _blind_spots(points: Sequence[AuditContext]) -> BlindSpots | None:
    """Return what could stay undetected at the outputs of all points; None if some could not be judged."""
    if not points:
        return None
    graph = points[0].deployed.graph
    names = {p: n for n, p in points[0].deployed.layers.items()}
    outputs = [names.get(p) for p in graph.output_positions]
    if any(name not in judge.expected for judge in points for name in outputs):
        return None
    each = [(judge.given, [judge.expected[str(name)] for name in outputs]) for judge in points]
    return find_blind_spots(graph, each, reference_backend(graph))


def _audit_run(judging: AuditContext, progress: Progress | None) -> Audit:
    """Return the audit of the run that `judging` holds: every layer, then the whole model.

    `progress` is told (what, done, total).
    """
    deployed, target = judging.deployed, judging.target
    names = deployed.layers if deployed.answer.outcome == "answers" else {}
    step = progress or (lambda *_: None)
    layers = []
    for i, (name, layer) in enumerate(names.items()):
        step(name, i, len(names))
        layers.append(judging.layer_in_time(name, layer))
    covered = coverage(deployed, [layer.name for layer in layers if layer.verdict.kind != "not examined"])
    left_out = _add_merged(layers, judging)
    bad = next((names.get(layer.name) for layer in layers if _is_bad(layer.verdict.kind)), None)
    used = [x.verdict.arithmetic for x in layers if x.verdict.arithmetic and not _is_bad(x.verdict.kind)]
    with time_limit(judging.clock.left):  # for the bar alone, which shows how long this may take
        step("whole model", len(names), len(names))
    whole = judging.model_verdict_in_time(used, layers)
    is_late = is_over()
    estimated = not (used or is_late or (judging.outputs_only and judging.accept))
    step("whole model: errors that are usual", len(names), len(names))
    run = judging.run_estimate() if estimated else None
    is_judged = run is not None or _is_answer(whole) or judging.outputs_only
    if deployed.answer.outcome == "answers" and not is_judged and judging.has_run_of_its_own:
        left_out.append(f"the run as it is ({'no time was left' if is_late else 'nothing is known of its outputs'})")
    if judging.outputs_only and any(layer.verdict.kind == "not examined" for layer in layers):
        left_out.append("all outputs")
    step("layers that explain the difference", len(names), len(names))
    export, unexported = (None, "") if is_late else _judge_export(deployed, judging.given)
    script = reproduce(deployed, bad, target) if isinstance(bad, int) and target.model and not is_over() else ""
    attribution, late_note = (None, OUT_OF_TIME) if is_late else _attribute_in_time(judging)
    return Audit(
        deployed.title,
        target.name,
        target.versions(),
        tuple(layers),
        whole,
        (*deployed.notes, *filter(None, (unexported, late_note))),
        export,
        script,
        {
            "layers": describe_formats(deployment_of(arithmetic_of(target), deployed.graph), deployed.computed_in),
            "whole": describe_formats(deployment_of(fused_arithmetic_of(target), deployed.graph), deployed.computed_in),
        },
        covered,
        attribution=attribution,
        run=run,
        outputs_only=judging.outputs_only,
        left_out=tuple(left_out),
    )


def _attribute_in_time(judging: AuditContext) -> tuple[Attribution | None, str]:
    """Return what `judging` attributes to layers, and a note if there was no time or memory for it; else ""."""
    needed = 8 * sum(math.prod(node.shape) for node in judging.deployed.graph.nodes)
    if needed > MAX_ATTRIBUTION_BYTES:
        text = f"it would hold {needed / 1e9:.0f} GB, every value and weight in float64"
        return None, f"which layers explain the difference was not asked: {text}"
    try:
        return attribute(judging.deployed, judging.expected, judging.backend, judging.estimate), ""
    except TimeLimitError:
        return None, "out of time: which layers explain the difference was not asked; --seconds gives more"


def _add_merged(layers: list[LayerVerdict], judging: AuditContext) -> list[str]:
    """Append the verdicts of `judging` on merged layers to `layers`; return what the time did not allow, in words."""
    try:
        check_time("audit")
        layers += judging.merged()
    except TimeLimitError:
        return ["layers as they are merged (no time was left)"] if judging.deployed.merged else []
    return []


def _judge_export(deployed: ModelRun, inputs: Sequence[Array]) -> tuple[LayerVerdict | None, str]:
    """Return the first layer that the exported file of a run computes differently from the module, None if there is
    none; and why they cannot be compared, or "".

    `deployed` holds both; `inputs` are the run's. The module is read here, after all layers: its weights are further
    ones.
    """
    if deployed.module is None:
        return None, ""
    from ..verdicts.first_divergence import first_difference

    try:
        module = deployed.module.graph_for(inputs, "audit")
    except SpecgradError as error:
        return None, f"the export was not compared with the module: {error}"
    difference = first_difference(module, deployed.graph, inputs, reference_backend(deployed.graph))
    if difference is None:
        return None, ""
    position, verdict = difference
    node = module.nodes[position]
    return LayerVerdict(node.group, operator_of(module, position), node.shape, verdict), ""


# --- coverage ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coverage:
    """Layers and multiply-adds that were judged, of all; `uncounted` names layers whose multiply-adds are unknown.

    layers, of_layers                 how many layers were judged, and how many there are
    multiply_adds, of_multiply_adds   how many multiply-adds were judged, and how many there are; `uncounted` has none
    """

    layers: int
    of_layers: int
    multiply_adds: int
    of_multiply_adds: int
    uncounted: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether every layer of the model was judged."""
        return self.layers == self.of_layers

    def __str__(self) -> str:
        layers = f"{self.layers} of {self.of_layers} layers were judged"
        if not self.of_multiply_adds:
            return layers
        share = f"{100 * self.multiply_adds / self.of_multiply_adds:.4g} % of {self.of_multiply_adds:,} multiply-adds"
        but = f" (those of {', '.join(self.uncounted)} are not counted)" if self.uncounted else ""
        return f"{layers}, {share}{but}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `layers` that were judged, `of_layers`, `multiply_adds`, `of_multiply_adds`, and
        `uncounted`, layers whose work is not counted.
        """
        names = ("layers", "of_layers", "multiply_adds", "of_multiply_adds")
        return {name: getattr(self, name) for name in names} | {"uncounted": list(self.uncounted)}


def coverage(deployed: ModelRun, judged: Iterable[str]) -> Coverage:
    """Return the coverage of the run `deployed` by the layers named in `judged`; unsupported nodes count as not
    judged.
    """
    graph, names = deployed.graph, set(judged)
    positions = {p for name, p in deployed.layers.items() if name in names and isinstance(p, int)}
    seen = {p for at in positions for p in needed(graph, at, deployed.known) if p == at or p not in deployed.known}
    passed = {name: u for name, u in deployed.layers.items() if isinstance(u, UnsupportedLayer)}
    total = _count_multiply_adds(graph, range(len(graph.nodes))) + sum(u.multiply_adds or 0 for u in passed.values())
    uncounted = tuple(name for name, u in passed.items() if u.multiply_adds is None)
    return Coverage(len(names), len(deployed.layers), _count_multiply_adds(graph, seen), total, uncounted)


def _count_multiply_adds(graph: Graph, positions: Iterable[int]) -> int:
    """Return the multiply-adds of the nodes at these positions."""
    return sum(multiply_adds(graph.nodes[p], graph.nodes) for p in positions)
