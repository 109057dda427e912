"""Judge one layer's output against its meaning on the inputs that the runtime itself fed it; and the whole model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np

from specgrad.deadline import check_time
from specgrad.errors import SpecgradError, TimeLimitError
from specgrad.graph.drawing.summary import layer_text, multiply_adds
from specgrad.graph.graph import CONSTANT, INPUT, Graph, section
from specgrad.rounding import FORMATS, Ball
from specgrad.rounding.usual_error import UsualError, usual_error
from specgrad.scalar import Array
from specgrad.window import Shape

from ..models.model_run import ModelRun, UnsupportedLayer
from ..runtimes import Runtime
from ..tolerances.allowance import SMALLEST_FLOAT32, Clock
from ..verdicts.arithmetic_classes import (
    BY_NAME,
    FLOAT32,
    class_of,
    model_arithmetic,
    reclassify,
    reclassify_as_rewritten,
)
from ..verdicts.judge import Verdict, expected_balls, judge_array, worst
from ..verdicts.known_effects import (
    HALVES,
    MULTIPLIED_OUT,
    explain_by_known_effects,
    from_integers_alone,
    multiplied_out,
    without_dequantised,
)
from ..verdicts.observation import Observation
from ..verdicts.rewritten_formulas import without_choices, without_formula_interiors
from ..verdicts.rounded_weights import weights_rounded_to
from ..verdicts.run_case import arithmetic_of, fused_arithmetic_of
from ..verdicts.shared_unknowns import ONE_PASS, judge_one_pass, judge_shared
from ..verdicts.usual import ESTIMATED, RunEstimate, Usual, compare_run, usual_of
from .merged_layers import MergedLayersJudge
from .reproduce import probe_of

WIDE_SHARE = 1e-3  # of a layer's values: an allowance beyond that is said in the layer's line


@dataclass(frozen=True)
class LayerVerdict:
    """One layer of the user's model, with the verdict on its output.

    Attributes
    ----------
    name : str
        Its name in the user's model.
    operator : str
        The layer's operator.
    shape : tuple of int
        Of its output.
    verdict : Verdict
        The verdict on its output.
    dtype : str
        The format that the model says: "float16", "int8", ...
    usual : Usual or None
        How its errors compare with what is usual, an estimate; None where nothing is estimated.
    allowed_share : float or None
        The largest allowance over the layer's largest value; None where no allowance is known.

    Examples
    --------
    >>> layer = LayerVerdict("act", "relu", (1, 2), Verdict("exact"))
    >>> layer.name, layer.verdict.kind
    ('act', 'exact')
    """

    name: str
    operator: str
    shape: Shape
    verdict: Verdict
    dtype: str = FLOAT32
    usual: Usual | None = None
    allowed_share: float | None = None

    @property
    def is_one_rounding(self) -> bool:
        """Whether the bound at the worst cell is that of one rounding: a share near 1 is then as it should be."""
        v, form = self.verdict, FORMATS.get(self.dtype)
        unit = 0.0 if form is None else 2.0**-form.digits
        return v.kind == "rounding" and 0 < v.allowed <= abs(v.expected) * unit * (1 + 1e-3)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know beside the verdict: that the allowance is wide, or one rounding."""
        if self.is_one_rounding:
            return ("one rounding",)
        share = self.allowed_share
        if share is None or share <= WIDE_SHARE or self.verdict.kind not in ("rounding", "unusual"):
            return ()
        return (f"what is allowed is {share:.2g} of the values",)

    def row(self) -> dict[str, Any]:
        """Return the layer as a row of tables and of --json: layer, operator, shape, dtype, verdict, ratio, detail,
        arithmetic, usual, allowed_share.

        Of a verdict at a cell also worst_index, actual, expected and allowed.
        """
        v = self.verdict
        row: dict[str, Any] = {
            "layer": self.name,
            "operator": self.operator,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "verdict": v.kind,
        }
        row |= {"ratio": v.ratio if np.isfinite(v.ratio) else None, "detail": str(v)}
        row |= {"arithmetic": class_of(v, self.dtype)}
        row |= {"usual": None if self.usual is None else self.usual.to_json(), "allowed_share": self.allowed_share}
        if v.index:
            row |= {"worst_index": list(v.index), "actual": v.actual, "expected": v.expected, "allowed": v.allowed}
        return row


def operator_of(graph: Graph, position: int) -> str:
    """Return the operator of the node at `position`, or the composition of operators that this node completes, as
    text.
    """
    group = graph.nodes[position].group
    return layer_text([n for n in graph.nodes[: position + 1] if n.group == group and n.op not in (INPUT, CONSTANT)])


MAX_NUMPY_WORK = (
    10**7
)  # cells and multiply-adds: up to there NumPy is as quick, and PyTorch takes two seconds to import


def reference_backend(graph: Graph) -> str:
    """Return "torch" for the float64 reference of a large model if it is installed; else "numpy".

    >>> import specgrad as sg
    >>> reference_backend(sg.trace(sg.relu, (1, 8)))
    'numpy'
    """
    work = sum(multiply_adds(n, graph.nodes) + math.prod(n.shape) for n in graph.nodes)
    return "torch" if work > MAX_NUMPY_WORK and find_spec("torch") else "numpy"


@dataclass(frozen=True)
class AuditContext:
    """What one audit judges: a model run, its runtime, and what may explain differences.

    accept     classes of arithmetic that may explain a layer beside float32
    clock      how long tolerances may take
    outputs_only  no values but inputs and outputs are known
    expected   name of a layer -> the ball that it was held against; filled on the way
    shared     name of a normalisation -> the class that explains it, with what is left of its unknowns; filled on the
               way
    deployed   the model run; `target` is the runtime that computed it
    """

    deployed: ModelRun
    target: Runtime
    accept: Collection[str]
    clock: Clock
    outputs_only: bool = False
    expected: dict[str, Ball] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)

    @cached_property
    def backend(self) -> str:
        """The backend of the float64 reference, "torch" or "numpy"."""
        return reference_backend(self.deployed.graph)

    @cached_property
    def estimate(self) -> UsualError | None:
        """The usual errors of the whole model on these inputs, an estimate; None where none is known."""
        graph = self.deployed.graph
        if any(p not in self.deployed.known for p in graph.input_positions):
            return None
        try:
            return usual_error(graph, self.given, self.backend, self.deployed.computed_in)
        except SpecgradError:
            return None

    @property
    def has_run_of_its_own(self) -> bool:
        """Return whether the run with nothing exposed gave other outputs than the run whose layers were judged."""
        graph, known = self.deployed.graph, self.deployed.known
        pairs = list(zip(graph.output_positions, self.deployed.answer.arrays, strict=False))
        shown = [p in known and np.array_equal(known[p], a, equal_nan=a.dtype.kind == "f") for p, a in pairs]
        return len(shown) < len(graph.output_positions) or not all(shown)

    def run_estimate(self) -> RunEstimate | None:
        """Return how far the outputs of the run with nothing exposed were off, beside what is usual; None where nothing
        is estimated.
        """
        answer = self.deployed.answer
        if self.estimate is None or answer.outcome != "answers" or self._passes_over_layers():
            return None
        if len(_format_variants(self.deployed)) > 1:  # zero points may be multiplied out: other roundings
            return None
        return compare_run(answer.arrays, self.estimate)

    def _passes_over_layers(self) -> bool:
        """Whether the model has layers without a meaning here: then its exact outputs are not known."""
        return any(isinstance(layer, UnsupportedLayer) for layer in self.deployed.layers.values())

    def layer_in_time(self, name: str, layer: int | UnsupportedLayer) -> LayerVerdict:
        """Return the verdict on the layer of this name; "not examined" if the time is over.

        `layer` is its position in the graph, or what is not supported.
        """
        try:
            check_time("audit")
            return self.layer(name, layer)
        except TimeLimitError:
            late = Verdict("not examined", detail="out of time")
            if isinstance(layer, UnsupportedLayer):
                return LayerVerdict(name, layer.operator, layer.shape, late)
            graph = self.deployed.graph
            return LayerVerdict(name, self._operator(name, layer), graph.nodes[layer].shape, late)

    def model_verdict_in_time(self, classes: Collection[str], layers: Sequence[LayerVerdict]) -> Verdict:
        """Return the verdict on the whole model; "not examined" if the time is over. Arguments as `model_verdict`.

        classes   those that were seen in layers and accepted
        layers    verdicts on single layers
        """
        try:
            check_time("audit")
            return self.model_verdict(classes, layers)
        except TimeLimitError:
            return Verdict("not examined", detail="out of time")

    def layer(self, name: str, layer: int | UnsupportedLayer) -> LayerVerdict:
        """Return the verdict on the layer of this name, given by its position in the graph or as unsupported.

        "not examined" where it is unsupported, or values that it reads are not known.
        """
        if isinstance(layer, UnsupportedLayer):
            return LayerVerdict(name, layer.operator, layer.shape, Verdict("not examined", detail=layer.reason))
        graph, known = self.deployed.graph, self.deployed.known
        part, inputs = section(graph, layer, known)
        node, operator = graph.nodes[layer], self._operator(name, layer)
        unknown = [graph.nodes[p].name for p in inputs if p not in known]
        if unknown:
            verdict = Verdict("not examined", detail=f"depends on {', '.join(unknown)}, whose values are not known")
            return LayerVerdict(name, operator, node.shape, verdict)
        formats = self.deployed.computed_in
        usual = None
        if is_one_layer(part) or any(n.name in formats for n in part.nodes):
            verdict = self._judge_layer(name, layer, part, inputs)
        else:
            verdict = self._judge_merged(name, layer, part, inputs)
        if verdict.kind == "differs" and verdict.fault in ("value", "infinity", "nan"):
            verdict = self._judge_rewritten(verdict, name, layer)
        plain = verdict.kind == "rounding" and not verdict.arithmetic and not verdict.detail
        if plain and is_one_layer(part):  # what was explained in another way is not rounding of this layer alone
            verdict, usual = self._with_usual(verdict, name, layer, part, inputs)
        if verdict.kind == "rounding" and not verdict.detail and name in self.shared:
            verdict = replace(verdict, detail=f"{verdict.ratio:.2g} of the allowance; {self.shared[name]}")
        form = formats.get(node.name)
        dtype = form if form in HALVES else known[layer].dtype.name
        return LayerVerdict(name, operator, node.shape, verdict, dtype, usual, self._allowed_share(name))

    def _operator(self, name: str, position: int) -> str:
        """Return the operator of the layer of this name, whose value stands at `position`."""
        return self.deployed.passing.get(name) or operator_of(self.deployed.graph, position)

    def _with_usual(
        self, verdict: Verdict, name: str, position: int, part: Graph, inputs: Sequence[int]
    ) -> tuple[Verdict, Usual | None]:
        """Return "unusual" for errors far beyond what is usual, else the verdict; and how they compare, if known.

        `part` computes the layer `name`, at `position`, from the nodes `inputs`.
        """
        deployed = self.deployed
        if any(n.name in deployed.computed_in for n in part.nodes) or name not in self.expected:
            return verdict, None
        known = np.isfinite(self.expected[name].radius)
        observed = part, _as_numbers(deployed.graph, inputs, deployed.known), deployed.known[position], known
        usual = usual_of(*observed, self.backend)
        if usual is None or not usual.reasons:
            return verdict, usual
        form = weights_rounded_to(*observed, self.backend)
        named = f"; usual if weights were rounded to {form}" if form else ""
        return replace(verdict, kind="unusual", detail=f"{'; '.join(usual.reasons)}{named} ({ESTIMATED})"), usual

    def _allowed_share(self, name: str) -> float | None:
        """Return the largest allowance of the layer of this name over its largest value; None where it is not known."""
        ball = self.expected.get(name)
        if ball is None or ball.value.dtype.kind != "f" or not ball.value.size:
            return None
        share = float(np.max(ball.radius)) / max(float(np.abs(ball.value).max()), SMALLEST_FLOAT32)
        return share if np.isfinite(share) else None

    def _judge_layer(self, name: str, position: int, part: Graph, inputs: Sequence[int]) -> Verdict:
        """Return the verdict on a single layer, or on layers in other formats than float32.

        `part` computes the layer `name`, at `position`, from the nodes `inputs`. Its ball is stored in `expected`.
        """
        deployed, graph, known = self.deployed, self.deployed.graph, self.deployed.known
        given = _as_numbers(graph, inputs, known)
        arithmetic = arithmetic_of(self.target) if is_one_layer(part) else fused_arithmetic_of(self.target)
        (ball,) = expected_balls(part, given, arithmetic, self.backend, deployed.computed_in)
        self.expected[name] = replace(ball, expansion=None)
        verdict = judge_array(name, known[position], ball)
        if (verdict.kind, verdict.fault) == ("differs", "value"):
            verdict = self._judge_from_integers(name, position, inputs) or verdict
        look = (part, given, known[position], arithmetic, self.backend)
        verdict = explain_by_known_effects(verdict, *look, graph, inputs, deployed.computed_in)
        if any(n.name in deployed.computed_in for n in part.nodes):
            return verdict
        verdict = self._judge_shared(verdict, name, part, given, known[position], ball)
        if verdict.kind == "differs":
            observed = Observation(part, given, [known[position]], [name], self.backend)
            verdict = reclassify(verdict, observed, arithmetic, probe_of(deployed, position, self.target), self.accept)
        return verdict

    def _judge_shared(
        self, verdict: Verdict, name: str, part: Graph, given: Sequence[Array], got: Array, ball: Ball
    ) -> Verdict:
        """Return the verdict on a layer, "differs" where it is a normalisation of which no one mean and deviation
        explain a group; or what a variance by one pass makes of it.

        `part` computes the layer `name` from the values `given`; `got` came out, and `ball` is what each cell by itself
        may be.
        """
        verdict, words = judge_shared(verdict, part, given, got, ball, arithmetic_of(self.target))
        if words:
            self.shared[name] = words
        return judge_one_pass(verdict, part, given, got, ONE_PASS in self.accept)

    def _judge_merged(self, name: str, position: int, part: Graph, inputs: Sequence[int]) -> Verdict:
        """Return the verdict on several layers of which only the last was observed.

        `part` computes them, up to the layer `name` at `position`, from the nodes `inputs`. Its ball is stored in
        `expected`.
        """
        graph, known = self.deployed.graph, self.deployed.known
        observed = Observation(part, _as_numbers(graph, inputs, known), [known[position]], [name], self.backend)
        judge = MergedLayersJudge(
            fused_arithmetic_of(self.target), self.clock, self.accept, outputs_only=self.outputs_only
        )
        verdict, allowed = judge.judge(observed, probe_of(self.deployed, position, self.target))
        self.expected[name] = replace(allowed.balls[0], expansion=None)
        return self._judge_shared(verdict, name, part, observed.inputs, known[position], allowed.balls[0])

    def _judge_from_integers(self, name: str, position: int, inputs: Sequence[int]) -> Verdict | None:
        """Return the verdict if the runtime recomputes dequantised inputs from integers; None if unexplained.

        The layer `name` stands at `position` and reads the nodes `inputs`.
        """
        graph, known = self.deployed.graph, self.deployed.known
        starts = without_dequantised(graph, inputs, known), from_integers_alone(graph, position, known)
        for start, (formats, words) in itertools.product(filter(None, starts), _format_variants(self.deployed)):
            part, sources = section(graph, position, start)
            given = _as_numbers(graph, sources, start)
            (ball,) = expected_balls(part, given, fused_arithmetic_of(self.target), self.backend, formats)
            verdict = judge_array(name, known[position], ball)
            if verdict.kind in ("exact", "rounding"):
                return replace(verdict, detail=words)
        return None

    def _judge_rewritten(self, verdict: Verdict, name: str, position: int) -> Verdict:
        """Return the verdict on the layer `name` at `position` if the runtime rewrote a formula or moved a constant;
        else unchanged.
        """
        graph, known = self.deployed.graph, self.deployed.known
        arithmetic = fused_arithmetic_of(self.target)
        formula, from_x = without_formula_interiors(graph, position, known)
        for start in (known, without_choices(graph, position, known), from_x):
            part, sources = section(graph, position, start)
            if not all(p in start for p in sources):
                continue
            observed = Observation(part, _as_numbers(graph, sources, start), [known[position]], [name], self.backend)
            if start is from_x and formula:
                (ball,) = expected_balls(part, observed.inputs, arithmetic, self.backend, self.deployed.computed_in)
                plain = judge_array(name, known[position], ball)
                plain = self._judge_shared(plain, name, part, observed.inputs, known[position], ball)
                if plain.kind in ("exact", "rounding"):
                    return replace(plain, detail=f"from the inputs of {formula}")
            named = reclassify_as_rewritten(verdict, observed, arithmetic, self.accept)
            if named is not verdict:
                return named
        return verdict

    def merged(self) -> list[LayerVerdict]:
        """Return the verdict on each quantised value, from the run that exposed nothing but quantised values."""
        deployed = self.deployed
        inputs = {p: deployed.known[p] for p in deployed.graph.input_positions if p in deployed.known}
        known = {**inputs, **dict(deployed.merged.values())}
        apart = replace(self, deployed=replace(deployed, known=known), expected={})
        layers = []
        for name, (position, _) in deployed.merged.items():
            if _has_arithmetic_before(section(deployed.graph, position, known)[0]):
                group = deployed.graph.nodes[position].group
                layers.append(replace(apart.layer(name, position), name=f"{group} (merged)"))
        return layers

    @property
    def given(self) -> list[Array]:
        """The inputs as they were fed, numbers in float64."""
        positions = [p for p in self.deployed.graph.input_positions if p in self.deployed.known]
        return _as_numbers(self.deployed.graph, positions, self.deployed.known)

    def model_verdict(self, classes: Collection[str], layers: Sequence[LayerVerdict]) -> Verdict:
        """Return the verdict on the outputs of the whole model, nothing exposed.

        classes   those that were seen in layers and accepted: the allowance is that of the widest
        layers    what was judged before: all there is to say, where outputs alone are known
        """
        deployed = self.deployed
        if self.outputs_only and self._is_judged(layers):
            return worst([layer.verdict for layer in layers])
        if deployed.answer.outcome != "answers":
            return Verdict(deployed.answer.outcome, detail=deployed.answer.reason)
        if self._passes_over_layers():
            return Verdict("not examined", detail="what unexamined layers compute is not known")
        if len(deployed.answer.arrays) < len(deployed.graph.output_positions):
            return Verdict("not examined", detail="not all outputs were recorded")
        arithmetic = model_arithmetic(fused_arithmetic_of(self.target), classes)
        if arithmetic is None:
            named = " and ".join(sorted(set(classes)))
            return Verdict("not examined", detail=f"for {named} no radius through all layers is known")
        halves = [form for form in HALVES if form in deployed.computed_in.values()]
        words = [BY_NAME[c].text for c in sorted(set(classes))] or [*halves, FLOAT32]
        said = " and ".join(words) + ", each where the graph has it," * bool(halves)
        names = [f"output {i}" for i in range(len(deployed.answer.arrays))]
        observed = Observation(deployed.graph, self.given, deployed.answer.arrays, names, self.backend)
        for formats, _ in _format_variants(deployed):
            verdict, _ = MergedLayersJudge(arithmetic, self.clock, None, formats, self.outputs_only, said).judge(
                observed
            )
            if verdict.kind != "differs":
                break
        if verdict.kind == "differs" and verdict.fault in ("value", "infinity", "nan"):
            verdict = reclassify_as_rewritten(verdict, observed, arithmetic, self.accept)
        return verdict

    def _is_judged(self, layers: Sequence[LayerVerdict]) -> bool:
        """Return whether every output is among the layers, and was judged from the inputs alone."""
        graph, known = self.deployed.graph, self.deployed.known
        judged = {self.deployed.layers.get(layer.name) for layer in layers}
        sources = {i for p in graph.output_positions for i in section(graph, p, known)[1]}
        return set(graph.output_positions) <= judged and sources <= set(graph.input_positions)


def _as_numbers(graph: Graph, positions: Sequence[int], known: Mapping[int, Array]) -> list[Array]:
    """Return what the runtime showed (`known`, by position) at these positions, in float64; indices stay integers."""
    return [known[p] if graph.nodes[p].kind == "index" else known[p].astype(np.float64) for p in positions]


def _format_variants(deployed: ModelRun) -> list[tuple[Mapping[str, str], str]]:
    """Return (formats of nodes, words) for each way in which the run `deployed` may compute merged dequantised values.

    The words are "" for the first, the way that the model says.
    """
    ways: list[tuple[Mapping[str, str], str]] = [(deployed.computed_in, "")]
    other = multiplied_out(deployed.graph, deployed.computed_in)
    return ways if other == deployed.computed_in else [*ways, (other, MULTIPLIED_OUT)]


def _has_arithmetic_before(part: Graph) -> bool:
    """Return whether layers of the graph `part` before its last one round; moving data says nothing new."""
    last = part.nodes[part.output_positions[0]].group
    return any(n.op not in (INPUT, CONSTANT) and not n.op.exact and n.group != last for n in part.nodes)


def is_one_layer(part: Graph) -> bool:
    """Return whether all computing nodes of the graph `part` belong to one layer."""
    return len({n.group for n in part.nodes if n.op not in (INPUT, CONSTANT)}) <= 1
