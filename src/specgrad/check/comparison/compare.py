"""Compare two models: are they one function? If not, how large is the difference, and which layer diverges first?

The same: node for node, or by normal forms over exact numbers (specgrad.equivalence). Different: at an input where
the proven interval of the difference, over real numbers, leaves 0 out; or one lets its callers give more. Whether
rounding could hide a difference, or make one of two spellings of one function, is said beside the verdict and is
never part of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from specgrad.bounds import Box
from specgrad.bounds.box import end_of, numpy_of
from specgrad.equivalence.matching import Weights, first_divergent_layers, largest_weight_difference, same_node_for_node
from specgrad.equivalence.normal_form import NormalForm, normal_form
from specgrad.equivalence.term_table import TermTable
from specgrad.errors import ParameterError, ShapeError, SpecgradError
from specgrad.execution_text import but
from specgrad.graph.graph import Graph
from specgrad.graph.interface import Interface, interface_differences, interface_of, only_one_takes
from specgrad.graph.ir.node import bind_inputs
from specgrad.graph.ir.tree import leaves
from specgrad.interop.model import Model, open_model
from specgrad.rounding import Arithmetic
from specgrad.rounding.stated import deployment_of
from specgrad.scalar import Array, Number

from ..models.drawn_inputs import default_inputs
from ..models.emulate import MAX_MULTIPLY_ADDS, Executor, multiply_adds
from ..models.input_box import box_around, box_of
from ..models.load import graph_of
from ..tolerances.tolerance import tolerance, words_of
from ..verdicts.first_divergence import first_difference
from .box_difference import BoxDifference, bound_difference
from .difference_bounds import DifferenceBounds, difference_at

Progress = Callable[[str, int, int], None]
MAX_LISTED_CELLS = 100_000  # cells of an input that are listed
NODE_FOR_NODE = "node for node, weights bit for bit"
REWRITTEN = "by rewriting over exact numbers"
INPUT_SCALES = (1.0, 16.0, 1 / 16)  # normal numbers times these are tried where the inputs given show nothing


@dataclass(frozen=True, eq=False)
class PointDifference:
    """The difference at one input and output cell: between `lower` and `upper`; the first network has `value`.

    within_rounding  whether float32 executions of both could give equal outputs: their tolerances meet everywhere
                     (None: not known). It does not say that the functions are the same
    allowed          the sum of both tolerances at that cell
    """

    inputs: tuple[Array, ...]
    about: str
    lower: float
    upper: float
    output: int
    index: tuple[int, ...]
    value: float
    how: str
    within_rounding: bool | None = None
    allowed: float = math.nan

    def to_json(self) -> dict[str, Any]:
        names = ("about", "lower", "upper", "output", "index", "value", "how", "within_rounding")
        return {
            **{name: getattr(self, name) for name in names},
            "allowed": None if math.isnan(self.allowed) else self.allowed,
        }


@dataclass(frozen=True)
class ExecutedApart:
    """Executions of two equal functions that differ by more than one of the two may be off from exact values.

    values      what an execution of the first model gives at an output cell, and one of the second
    tolerances  no execution of the first, of the second, is farther from the exact value there
    """

    about: str
    output: int
    index: tuple[int, ...]
    values: tuple[float, float]
    tolerances: tuple[float, float]

    def sentence(self, words: str) -> str:
        """Return the difference as a sentence; `words` names the class of executions."""
        (a, b), (p, q) = self.values, self.tolerances
        place = f"output {self.output}[{', '.join(map(str, self.index))}]"
        ran = f"at {self.about} an execution of the first has {a:.6g} as {place}, one of the second {b:.6g}"
        return f"not alike as programs ({words}): {ran}; they may be off by {p:.2g} and {q:.2g} there"

    def to_json(self) -> dict[str, Any]:
        values, tolerances = ([x if math.isfinite(x) else None for x in xs] for xs in (self.values, self.tolerances))
        where = {"about": self.about, "output": self.output, "index": self.index}
        return {**where, "values": values, "tolerances": tolerances}


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of `compare`: what is proven of two models.

    verdict    "same": one function over real numbers, at these shapes; "differs": shown at an input, or the models take
               or give different things; "cannot tell": neither was shown
    method     how: "node for node" or "by rewriting over exact numbers"; of a difference, in words
    interface  what the models declare differently: names, element types, open sizes, inputs with a default. Where there
               is anything they are not the same node for node
    executed   where the same function was shown by rewriting: executions that are farther apart than the tolerance of
               one of the two models; None: none were seen, or none were looked for
    weights    where the structures agree: the constants that differ the most; None: they do not agree
    points     the inputs that were looked at
    box        where asked for: how far apart on the whole box, exact outputs and executions of `arithmetic`
    divergent_layers       the first layers, of both, that compute what the other model computes nowhere
    first_divergent_value  the first layer of the first model whose values, up to float32, the other model has
                           nowhere; None: every layer's values are there, or nothing was looked at
    """

    verdict: str
    method: str
    interface: tuple[str, ...] = ()
    executed: ExecutedApart | None = None
    weights: Weights | None = None
    points: tuple[PointDifference, ...] = ()
    box: BoxDifference | None = None
    divergent_layers: tuple[str, str] | None = None
    first_divergent_value: str | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    deployment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def witness(self) -> PointDifference | None:
        """The input that shows the difference."""
        return next((p for p in self.points if p.lower > 0), None)

    @property
    def max_difference(self) -> float | None:
        """The proven largest distance: over the box, else at the inputs given; None: none is proven."""
        ends = [self.box.max_difference] if self.box is not None else [p.upper for p in self.points]
        return max(ends) if ends and math.isfinite(max(ends)) else None

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> list[str]:
        """Return the comparison as lines of text."""
        lines = [f"{self.verdict}: {self.method}", *(f"interface: {text}" for text in self.interface)]
        if self.executed is not None:
            lines.append(self.executed.sentence(words_of(self.arithmetic)))
        if self.weights is not None and self.verdict != "same":
            w = self.weights
            size = f"{w.max_difference:.3g} ({w.relative:.2g} of the largest there)"
            lines.append(f"same structure; weights differ by at most {size}, the most in {w.layers[0] or 'a constant'}")
        for p in self.points:
            place = f"[{', '.join(map(str, p.index))}]"
            lines.append(f"{p.about}: output {p.output}{place} is {p.value:.6g}, apart by {_between(p)} ({p.how})")
            if p.within_rounding is not None:
                lines.append(f"  {_rounding(p)}")
        if self.box is not None:
            lines += self.box.sentences(words_of(self.arithmetic), but(self.deployment))
        if self.divergent_layers is not None and any(self.divergent_layers):
            lines.append(
                f"they part, in form, at {self.divergent_layers[0] or '-'} and {self.divergent_layers[1] or '-'}"
            )
        if self.verdict == "differs" and self.points:
            lines.append(f"they part, in value up to float32, at {self.first_divergent_value or 'no layer'}")
        return lines

    def to_json(self) -> dict[str, Any]:
        weights: dict[str, Any] | None = None
        if self.weights is not None:
            weights = {"max_difference": self.weights.max_difference, "largest": self.weights.largest}
            weights |= {"layers": list(self.weights.layers)}
        witness = self.witness
        small = witness is not None and sum(x.size for x in witness.inputs) <= MAX_LISTED_CELLS
        return {
            "method": self.method,
            "interface": list(self.interface),
            "executed": None if self.executed is None else self.executed.to_json(),
            "weights": weights,
            "points": [p.to_json() for p in self.points],
            "max_difference": self.max_difference,
            "box": None if self.box is None else self.box.to_json(),
            "divergent_layers": None if self.divergent_layers is None else list(self.divergent_layers),
            "first_divergent_value": self.first_divergent_value,
            "inputs": {name: list(shape) for name, shape in self.shapes.items()},
            "witness": [x.tolist() for x in witness.inputs] if witness is not None and small else None,
            "deployment": dict(self.deployment),
            "notes": list(self.notes),
            "seconds": self.seconds,
        }


def _between(p: PointDifference) -> str:
    """Return the bound of the difference as text."""
    return f"{p.upper:.3g} at most" if p.lower == 0 else f"{p.lower:.6g} at least"


def _rounding(p: PointDifference) -> str:
    """Return whether rounding could explain the difference, as text."""
    if p.within_rounding:
        return f"within rounding of float32 ({p.allowed:.2g} there): outputs alone cannot tell them apart"
    return f"beyond rounding of float32 ({p.allowed:.2g} there)"


def compare(
    a: Any,
    b: Any,
    *inputs: Any,
    eps: Number | None = None,
    low: Number | None = None,
    high: Number | None = None,
    box: Any = None,
    arithmetic: Arithmetic | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Return whether two models are one function over real numbers, or how far apart they are.

    a, b        Graphs, ONNX files (paths, bytes, ModelProtos) or PyTorch modules
    inputs      one input of the models, in the order of a; none: the middle of the box, or what `default_inputs` draws.
                Inputs of b are matched by their names where both models name them alike, else by their order
    eps         also bound the difference for all inputs whose cells are this close to those of `inputs`,
    low, high   and no less, no more than these; without eps: for all inputs between them
    box         the same for a Box, or a tuple with a Box or an array per input
    arithmetic  the executions whose rounding the difference is held against; None: float32, fused
    seconds     after which no further input is tried, no tolerance is computed, and bounds stay wide

    Sameness is proven at the shapes of the inputs, for all real inputs at which both are defined; NaN, infinities and
    the sign of zero are not compared unless the models are the same node for node. Inputs that have a default have it;
    models of which only one lets its callers give such an input differ. Where callers may give other defaults or other
    sizes, what is shown says at which ones the models were looked at, and is no "node for node".

    >>> import specgrad as sg
    >>> w = np.float32([[1, 2], [3, 4]])
    >>> first = sg.trace(lambda x: sg.relu(sg.linear(w, None, x)) * 2, (1, 2))
    >>> second = sg.trace(lambda x: sg.clamp(sg.matmul(x, w.T.copy()), 0) + sg.relu(sg.linear(w, None, x)), (1, 2))
    >>> print(compare(first, second))
    same: by rewriting over exact numbers
    """
    start, arithmetic = time.monotonic(), arithmetic or Arithmetic()
    report = progress or (lambda *_: None)
    report("reading", 0, 4)
    boxes = None if box is None else box_of(box, eps, low, high)
    about = "the input given" if inputs else None if boxes is None else "the middle of the box"
    inputs = inputs or (() if boxes is None else tuple(_middle(each) for each in boxes))
    a, b = open_model(a, "compare"), open_model(b, "compare")
    first, second, given, formats, matched = _graphs(a, b, inputs, arithmetic)
    declared = _declared(a, first), _declared(b, second)
    boxes = boxes or box_around(given, eps, low, high)
    shapes = {n.name: n.shape for n in (first.nodes[p] for p in first.input_positions)}
    done = _shape_difference(first, second)
    if done is None:
        report("normal forms", 1, 4)
        done, table, form, other = _compare_forms(first, second, declared)
        run = _WitnessSearch(first, second, given, about, arithmetic, start, seconds, report)
        if done.verdict != "same":
            done = run.points(done)
        elif done.method.startswith(REWRITTEN) and not any(formats):
            done = replace(done, executed=run.executed())
        if boxes is not None and first.real_outputs:
            report("the box", 3, 4)
            rounds = None if any(formats) else arithmetic
            far = bound_difference(
                form, other, table, _check_boxes(first, boxes), rounds, done.verdict == "same", run.remaining_seconds
            )
            done = run.with_box(done, far)
        if done.verdict == "differs":
            done = replace(
                done,
                divergent_layers=first_divergent_layers(table, form, other),
                first_divergent_value=run.by_value(done),
            )
    done = _with_interfaces(done, declared)
    notes = (*done.notes, *matched, *_notes(first, second, formats, declared))
    done = replace(done, arithmetic=arithmetic, deployment=deployment_of(arithmetic, first, second))
    return replace(done, shapes=shapes, notes=notes, seconds=time.monotonic() - start)


def _middle(box: Any) -> Any:
    """Return the middle of a box in float32; an array unchanged."""
    if not isinstance(box, Box):
        return box
    low, high = end_of(box.low), end_of(box.high)
    return np.clip((low / 2 + high / 2).astype(np.float32), low, high)


def _check_boxes(graph: Graph, boxes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the boxes; raise an error unless there is one per input, of its shape."""
    bind_inputs(graph, tuple(box.low if isinstance(box, Box) else box for box in boxes))
    return boxes


def _graphs(
    a: Model, b: Model, inputs: tuple[Any, ...], arithmetic: Arithmetic
) -> tuple[Graph, Graph, tuple[Array, ...], list[Mapping[str, str]], list[str]]:
    """Return both models as graphs, b's inputs in a's order; the inputs; formats besides float32; what was matched.

    ShapeError or ParameterError if b does not take what a takes, or if inputs are structures.
    """
    for model in (a, b):
        if model.kind == "graph" and len(model.inputs) != len(model.names):
            raise ParameterError("compare", "inputs that are structures are not compared; give graphs of arrays")
    given = tuple(map(numpy_of, leaves(a.arrays(inputs, "compare")))) if inputs else default_inputs(a).arrays
    first, fewer = graph_of(a, given, "compare", arithmetic)
    order, matched = _matched(a.names[: len(given)], b.names[: len(given)])
    try:
        second, less = graph_of(b, [given[k] for k in order] if order else given, "compare", arithmetic)
    except (ShapeError, ParameterError) as error:
        raise type(error)("compare", f"the second model does not take what the first takes: {error}") from error
    if order:
        places = [order.index(k) for k in range(len(given))]
        names, patterns = (tuple(each[j] for j in places) for each in (second.names, second.inputs))
        second = replace(second, names=names, inputs=patterns, open=None)
    return first, second, given, [fewer, less], matched


def _matched(first: Sequence[str], second: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the number of the first model's input that each of the second gets ([]: its own), and notes on it.

    >>> _matched(["x", "y"], ["y", "x"])
    ([1, 0], ['inputs were matched by their names: the second model takes them as y, x'])
    >>> _matched(["x", "y"], ["x", "z"])
    ([], ['inputs were matched by their order: x, y with x, z'])
    """
    if list(first) == list(second):
        return [], []
    if len(set(first)) == len(first) and sorted(first) == sorted(second):
        text = f"inputs were matched by their names: the second model takes them as {', '.join(second)}"
        return [first.index(name) for name in second], [text]
    return [], [f"inputs were matched by their order: {', '.join(first)} with {', '.join(second)}"]


def _shape_difference(a: Graph, b: Graph) -> Comparison | None:
    """Return the verdict "differs" if shapes or kinds of inputs or outputs differ; else None."""
    for what, one, two in (
        ("inputs", a.input_positions, b.input_positions),
        ("outputs", a.output_positions, b.output_positions),
    ):
        ends = [[(g.nodes[p].shape, g.nodes[p].kind) for p in each] for g, each in ((a, one), (b, two))]
        if ends[0] != ends[1]:
            mine, others = (", ".join(str(shape) for shape, _ in each) for each in ends)
            return Comparison("differs", f"the {what} are {mine} and {others}")
    return None


Declared = tuple[Interface | None, Interface | None]


def _declared(model: Model, graph: Graph) -> Interface | None:
    """Return the interface that a model declares, open sizes included; None for a PyTorch module."""
    if model.kind == "torch":
        return None
    return interface_of(model.source if model.kind == "graph" else graph)


def _with_interfaces(done: Comparison, declared: Declared) -> Comparison:
    """Return the comparison with differences of the interfaces; an input that only one model takes is "differs"."""
    first, second = declared
    if first is None or second is None:
        return done
    done = replace(done, interface=interface_differences(first, second))
    more = "; ".join(only_one_takes(first, second))
    if not more or done.verdict == "differs":
        return done
    return replace(done, verdict="differs", method=f"{more}; at the defaults: {done.verdict}, {done.method}")


def _caller_choices(declared: Declared, graph: Graph) -> str:
    """Return which defaults and sizes the models leave to their callers, as compared; "" if none.

    An imported graph is that of its defaults and of its sizes: an operator may have read them as plain numbers.
    """
    known = [each for each in declared if each is not None]
    names = sorted({str(name) for each in known for name in each.defaults})
    is_open = any(isinstance(size, str) for each in known for end in each.inputs for size in end.sizes or ())
    shapes = ", ".join(f"{n.name} {n.shape}" for n in (graph.nodes[p] for p in graph.input_positions))
    said = [f"the default of {', '.join(names)}"] if names else []
    return " and ".join([*said, *([f"the sizes {shapes}"] if is_open else [])])


def _compare_forms(a: Graph, b: Graph, declared: Declared) -> tuple[Comparison, TermTable, NormalForm, NormalForm]:
    """Return the verdict by structure and by normal forms, with the table and both normal forms."""
    table = TermTable()
    form, other = normal_form(a, table), normal_form(b, table)
    one, two = declared
    alike = one is None or two is None or not interface_differences(one, two)
    places = _caller_choices(declared, a)
    at = f", at {places} (others were not looked at)" if places else ""
    if same_node_for_node(a, b):
        shown = NODE_FOR_NODE if alike and not at else f"the same operators on the same values, weights bit for bit{at}"
        return Comparison("same", shown), table, form, other
    if form.outputs == other.outputs:
        return Comparison("same", f"{REWRITTEN}{at}"), table, form, other
    return (
        Comparison("cannot tell", "the normal forms differ", weights=largest_weight_difference(table, form, other)),
        table,
        form,
        other,
    )


def _notes(a: Graph, b: Graph, formats: Sequence[Mapping[str, str]], declared: Declared) -> tuple[str, ...]:
    """Return notes on defaults, and on formats other than float32."""
    notes = []
    if names := sorted({str(name) for each in declared if each is not None for name in each.defaults}):
        notes.append(f"{', '.join(names)} may be given or left out: what is said holds at the defaults")
    kinds = [{*f.values(), *_wider_formats(g)} for f, g in zip(formats, (a, b), strict=True)]
    if kinds[0] != kinds[1]:
        said = [", ".join(sorted(k)) or "none" for k in kinds]
        notes.append(f"formats other than float32, which are no part of the meaning: {said[0]} and {said[1]}")
    return tuple(notes)


def _wider_formats(graph: Graph) -> set[str]:
    """Return {"float64"} if the graph has such nodes; else an empty set."""
    formats: Mapping[str, str] = getattr(graph, "formats", {})
    return {"float64"} & set(formats.values())


@dataclass(frozen=True, eq=False)
class _WitnessSearch:
    """Searches an input at which two networks differ."""

    a: Graph
    b: Graph
    given: tuple[Array, ...]
    about: str | None  # which input was given; None: none
    arithmetic: Arithmetic
    start: float
    seconds: float | None
    report: Progress

    def is_late(self) -> bool:
        """Return whether the time is over."""
        return self.seconds is not None and time.monotonic() - self.start > self.seconds

    def remaining_seconds(self) -> float | None:
        """Return how many seconds remain; None without a limit."""
        return None if self.seconds is None else max(0.0, self.seconds - (time.monotonic() - self.start))

    def points(self, so_far: Comparison) -> Comparison:
        """Return the comparison with the inputs that were tried, and "differs" if one shows a difference."""
        points: list[PointDifference] = []
        if not self.a.real_outputs:
            return replace(so_far, method="the normal forms differ, and no output holds numbers")
        for about, inputs in self._candidate_inputs():
            self.report(f"at {about}", 2, 4)
            try:
                apart = difference_at(self.a, self.b, inputs)
            except SpecgradError as error:
                return replace(so_far, points=tuple(points), notes=(f"nothing was evaluated: {error}",))
            points.append(self._point(about, inputs, apart))
            if points[-1].lower > 0:
                text = "their outputs differ over real numbers, shown at an input"
                return replace(so_far, verdict="differs", method=text, points=tuple(points))
            if self.is_late():
                break
        text = "the normal forms differ, and no input that was tried shows a difference"
        return replace(so_far, method=text, points=tuple(points))

    def with_box(self, so_far: Comparison, far: BoxDifference) -> Comparison:
        """Return the comparison with the box; an input of the box may show a difference."""
        if so_far.verdict != "cannot tell" or not far.witness_difference:
            return replace(so_far, box=far)
        point = self._point("an input of the box", far.inputs, difference_at(self.a, self.b, far.inputs))
        text = "their outputs differ over real numbers, shown at an input"
        return replace(so_far, verdict="differs", method=text, points=(*so_far.points, point), box=far)

    def _candidate_inputs(self) -> list[tuple[str, tuple[Array, ...]]]:
        """Return (words, inputs) to try: those given, then normal numbers of several sizes."""
        tried = [] if self.about is None else [(self.about, self.given)]
        rng = np.random.default_rng(0)
        for size in INPUT_SCALES:
            drawn = tuple(
                x if x.dtype.kind in "iu" else (size * rng.normal(size=x.shape)).astype(np.float32) for x in self.given
            )
            tried.append((f"normal numbers{f' times {size:g}' if size != 1 else ''}", drawn))
        return tried

    def _point(self, about: str, inputs: tuple[Array, ...], apart: DifferenceBounds) -> PointDifference:
        """Return the difference at one input, and whether rounding could explain it.

        `about` says in words which input it is; `apart` bounds the difference of the outputs there.
        """
        k, place = apart.farthest
        least, most = (float(e[k][place]) for e in (apart.least, apart.most))
        value = float(apart.values[k][place]) if apart.values else math.nan
        point = PointDifference(inputs, about, least, max(most, apart.largest), k, place, value, apart.how)
        if self.is_late():
            return point
        try:
            both = [
                tolerance(g, *inputs, arithmetic=self.arithmetic, seconds=self.remaining_seconds())
                for g in (self.a, self.b)
            ]
        except SpecgradError:
            return point
        allowed = [p + q for p, q in zip(both[0].tolerances, both[1].tolerances, strict=True)]
        within = all(bool((m <= x).all()) for m, x in zip(apart.most, allowed, strict=True))
        beyond = any(bool((m > x).any()) for m, x in zip(apart.least, allowed, strict=True))
        return replace(point, within_rounding=within if within or beyond else None, allowed=float(allowed[k][place]))

    def executed(self) -> ExecutedApart | None:
        """Return executions at the given input that differ by more than one of the tolerances; or None."""
        if self.arithmetic.dtype not in ("float32", "float64") or not self.a.real_outputs or self.is_late():
            return None
        if multiply_adds(self.a) + multiply_adds(self.b) > MAX_MULTIPLY_ADDS:
            return None
        about, drawn = self._candidate_inputs()[0]
        inputs = tuple(x if x.dtype.kind in "iu" else x.astype(self.arithmetic.dtype) for x in drawn)
        try:
            values = [self._execute(g, inputs) for g in (self.a, self.b)]
            if all(np.array_equal(p, q) for p, q in zip(*values, strict=True)):
                return None
            both = [
                tolerance(g, *inputs, arithmetic=self.arithmetic, seconds=self.remaining_seconds())
                for g in (self.a, self.b)
            ]
        except SpecgradError:
            return None
        return _largest_beyond_tolerance(about, values, [t.tolerances for t in both])

    def _execute(self, graph: Graph, inputs: tuple[Array, ...]) -> list[Array]:
        """Return the real outputs of an emulated execution."""
        outputs = Executor(graph, self.arithmetic).run(inputs, {})
        return [y for p, y in zip(graph.output_positions, outputs, strict=True) if p in graph.real_outputs]

    def by_value(self, done: Comparison) -> str | None:
        """Return the first layer whose values the other network has nowhere; None if there is none."""
        witness = done.witness
        if witness is None or self.is_late():
            return None
        try:
            parted = first_difference(self.a, self.b, witness.inputs, "torch")
        except SpecgradError:
            return None
        return None if parted is None else self.a.nodes[parted[0]].group


def _largest_beyond_tolerance(
    about: str, values: Sequence[Sequence[Array]], tolerances: Sequence[Sequence[Array]]
) -> ExecutedApart | None:
    """Return the cell of the largest difference of executions among those above a tolerance; or None.

    values, tolerances   of both networks, per output
    about                which input they were run on, in words
    """
    cells = []
    for k, (p, q, r, s) in enumerate(zip(*values, *tolerances, strict=True)):
        with np.errstate(invalid="ignore"):
            gap = np.where(p == q, 0.0, np.nan_to_num(abs(p - q), nan=np.inf, posinf=np.inf))
        beyond = np.where(gap > np.minimum(r, s), gap, -1.0)
        if beyond.max(initial=-1.0) > 0:
            place = tuple(int(i) for i in np.unravel_index(int(np.argmax(beyond)), beyond.shape))
            both = ((float(x[place]), float(y[place])) for x, y in ((p, q), (r, s)))
            cells.append((float(beyond[place]), ExecutedApart(about, k, place, *both)))
    return max(cells, key=lambda pair: pair[0])[1] if cells else None
