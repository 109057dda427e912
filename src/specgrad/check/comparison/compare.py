"""Compare two models: are they one function? If not, how large is the difference, and which layer diverges first?

The same: node for node, or by normal forms over exact numbers (specgrad.equivalence). The same within rounding: of one
structure, and every constant that differs was folded, from numbers that explain it. Different: at an input where the
proven interval of the difference, over real numbers, leaves 0 out; or one lets its callers give more. Whether rounding
of executions could hide a difference, or make one of two spellings of one function, is said beside the verdict and is
never part of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specgrad.bounds import Box
from specgrad.bounds.box import end_of, numpy_of
from specgrad.deadline import time_left, time_limit
from specgrad.equivalence.matching import (
    all_equal,
    constant_pairs,
    first_divergent_layers,
    same_node_for_node,
    weight_difference,
)
from specgrad.equivalence.normal_form import NormalForm, normal_form
from specgrad.equivalence.term_table import TermTable
from specgrad.errors import ParameterError, ShapeError, TimeLimitError
from specgrad.graph.graph import Graph
from specgrad.graph.interface import Interface, interface_differences, interface_of, only_one_takes
from specgrad.graph.ir.node import bind_inputs
from specgrad.graph.ir.tree import leaves
from specgrad.interop.model import Model, open_model
from specgrad.ops.quantize import CAST
from specgrad.rounding import Arithmetic
from specgrad.rounding.stated import deployment_of
from specgrad.scalar import Array, Number

from ..models.drawn_inputs import default_inputs
from ..models.input_box import box_around, box_of
from ..models.load import graph_of
from .block_readings import compare_readings
from .box_difference import bound_difference
from .result import DIFFERS, SAME, UNKNOWN, WITHIN_ROUNDING, Comparison
from .witness import Progress, WitnessSearch

NODE_FOR_NODE = "node for node, weights bit for bit"
REWRITTEN = "by rewriting over exact numbers"
FOLDED = "one structure, and constants as far apart as folding them in float32 explains"


Declared = tuple[Interface | None, Interface | None]


@dataclass(frozen=True, eq=False)
class Forms:
    """The normal forms of two networks, in one table.

    a, b   the form of the first network, and of the second
    """

    table: TermTable
    a: NormalForm
    b: NormalForm


def compare(
    a: Any,
    b: Any,
    *inputs: Any,
    eps: Number | None = None,
    low: Number | None = None,
    high: Number | None = None,
    box: Any = None,
    arithmetic: Arithmetic | None = None,
    exact: bool = False,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Return whether two models are one function over real numbers, or how far apart they are.

    Sameness is proven at the shapes of the inputs, for all real inputs at which both are defined; NaN, infinities and
    the sign of zero are not compared unless the models are the same node for node. Inputs that have a default have it;
    models of which only one lets its callers give such an input differ. Where callers may give other defaults or other
    sizes, what is shown says at which ones the models were looked at, and is no "node for node".

    Parameters
    ----------
    a : Graph, path, bytes, ModelProto or nn.Module
        A Graph, an ONNX file (path, bytes or ModelProto) or a PyTorch module.
    b : Graph, path, bytes, ModelProto or nn.Module
        Another model. Its inputs, and outputs, are matched by their names where both models name them alike, else by
        their order.
    *inputs : array
        One input of the models, in the order of a; if none is given, the middle of the box, or what `default_inputs`
        draws.
    eps : number, optional
        Also bound the difference for all inputs whose cells are this close to those of `inputs`.
    low : number, optional
        Least value of inputs; without eps, all inputs between `low` and `high`.
    high : number, optional
        Largest value of inputs.
    box : Box or tuple, optional
        Bound the difference over it: a Box, or a tuple with a Box or an array per input.
    arithmetic : Arithmetic, optional
        The executions whose rounding the difference is held against; float32, fused, if not given.
    exact : bool, default False
        Search for a difference even where the models are the same within rounding.
    seconds : float, optional
        Of the whole comparison: what is not decided then stays open, and bounds stay wide.
    progress : callable, optional
        Called along the way with (what, done, total).

    Returns
    -------
    Comparison
        Its verdict, and what it rests on; it prints.

    Raises
    ------
    UnsupportedError
        For an arithmetic with tensor cores, dropped casts or saturation.

    Examples
    --------
    >>> import specgrad as sg
    >>> w = np.float32([[1, 2], [3, 4]])
    >>> first = sg.trace(lambda x: sg.relu(sg.linear(w, None, x)) * 2, (1, 2))
    >>> second = sg.trace(lambda x: sg.clamp(sg.matmul(x, w.T.copy()), 0) + sg.relu(sg.linear(w, None, x)), (1, 2))
    >>> print(compare(first, second))
    same: by rewriting over exact numbers
    """
    start, arithmetic = time.monotonic(), arithmetic or Arithmetic()
    arithmetic.check_plain("compare")
    with time_limit(seconds):
        done = compare_readings(
            open_model(a, "compare"),
            open_model(b, "compare"),
            lambda a, b: _compare_models(
                a, b, inputs, (eps, low, high, box), arithmetic, exact, progress or (lambda *_: None)
            ),
        )
    return replace(done, seconds=time.monotonic() - start)


def _compare_models(
    a: Model,
    b: Model,
    inputs: tuple[Any, ...],
    near: tuple[Any, Any, Any, Any],
    arithmetic: Arithmetic,
    exact: bool,
    report: Progress,
) -> Comparison:
    """Return the comparison of models a and b; `near` is (eps, low, high, box) as `compare` takes them, `inputs` too.

    With `exact`, what is the same within rounding alone is searched for a difference; `report` is told the progress.
    ParameterError or ShapeError if the models take different inputs, or the box is not one of them.
    """
    report("reading", 0, 4)
    eps, low, high, box = near
    boxes = None if box is None else box_of(box, eps, low, high)
    about = "the input given" if inputs else None if boxes is None else "the middle of the box"
    inputs = inputs or (() if boxes is None else tuple(_middle_of_box(each) for each in boxes))
    first, second, given, formats, matched = _matched_graphs(a, b, inputs, arithmetic)
    declared = _declared_interface(a, first), _declared_interface(b, second)
    second, named = _match_outputs(declared, second)
    boxes = boxes or box_around(given, eps, low, high)
    shapes = {n.name: n.shape for n in (first.nodes[p] for p in first.input_positions)}
    done = _shape_difference(first, second)
    if done is None:
        run = WitnessSearch(first, second, given, about, arithmetic, report)
        rounds = None if any(formats) else arithmetic
        done = _compare_functions(run, declared, boxes, rounds, exact)
    done = _with_interfaces(done, declared)
    notes = (*done.notes, *matched, *named, *_format_notes(first, second, formats, declared))
    done = replace(done, arithmetic=arithmetic, deployment=deployment_of(arithmetic, first, second))
    return replace(done, shapes=shapes, notes=notes)


def _compare_functions(
    run: WitnessSearch, declared: Declared, boxes: tuple[Any, ...] | None, rounds: Arithmetic | None, exact: bool
) -> Comparison:
    """Return the comparison of two networks of one interface: by structure, at inputs, over the boxes.

    ShapeError for boxes of other shapes than the inputs.

    run      the search for witnesses, with both networks
    declared what both models declare of their interfaces
    boxes    one per input, over which the difference is bounded; None: it is not
    rounds   the class of executions; None: the models compute in several formats, and executions are not compared
    exact    what is the same within rounding alone is searched for a difference
    """
    first, second = run.a, run.b
    run.report("normal forms", 1, 4)
    done, forms = _compare_forms(first, second, declared, boxes is not None)
    if done.verdict == UNKNOWN or (exact and done.verdict == WITHIN_ROUNDING):
        done = run.points(replace(done, verdict=UNKNOWN))
    elif done.method.startswith(REWRITTEN) and rounds is not None:
        done = replace(done, executed=run.executed())
    if boxes is not None and first.real_outputs and forms is not None:
        run.report("the box", 3, 4)
        boxes, same = _check_boxes(first, boxes), done.verdict == SAME
        try:
            far = bound_difference(forms.a, forms.b, forms.table, boxes, rounds, same, _seconds_left)
            done = run.with_box(done, far)
        except TimeLimitError as error:
            done = replace(done, notes=(*done.notes, f"the box: {error}"))
    if done.verdict == DIFFERS:
        layers = None if forms is None else first_divergent_layers(forms.table, forms.a, forms.b)
        done = replace(done, divergent_layers=layers, first_divergent_value=run.by_value(done))
    return done


def _seconds_left() -> float | None:
    """Return how many seconds are left; None without a limit."""
    return None if time_left() == float("inf") else time_left()


def _middle_of_box(box: Any) -> Any:
    """Return the middle of a box in float32; an array unchanged."""
    if not isinstance(box, Box):
        return box
    low, high = end_of(box.low), end_of(box.high)
    return np.clip((low / 2 + high / 2).astype(np.float32), low, high)


def _check_boxes(graph: Graph, boxes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the boxes; raise ShapeError unless there is one per input, of its shape."""
    bind_inputs(graph, tuple(box.low if isinstance(box, Box) else box for box in boxes))
    return boxes


def _matched_graphs(
    a: Model, b: Model, inputs: tuple[Any, ...], arithmetic: Arithmetic
) -> tuple[Graph, Graph, tuple[Array, ...], list[Mapping[str, str]], list[str]]:
    """Return both models as graphs, b's inputs in a's order; the inputs; formats besides float32; what was matched.

    `inputs` are a's, none: drawn ones; `arithmetic` says which formats count as fewer digits.

    ShapeError or ParameterError if b does not take what a takes, or if inputs are structures.
    """
    for model in (a, b):
        if model.kind == "graph" and len(model.inputs) != len(model.names):
            raise ParameterError("compare", "inputs that are structures are not compared; give graphs of arrays")
    given = tuple(map(numpy_of, leaves(a.arrays(inputs, "compare")))) if inputs else default_inputs(a).arrays
    first, fewer = graph_of(a, given, "compare", arithmetic)
    order, matched = _match_inputs(a.names[: len(given)], b.names[: len(given)])
    try:
        second, less = graph_of(b, [given[k] for k in order] if order else given, "compare", arithmetic)
    except (ShapeError, ParameterError) as error:
        fits = isinstance(error, ParameterError) and error.operator != "compare"
        what = "is not read" if fits else "does not take what the first takes"
        raise type(error)("compare", f"the second model {what}: {error}") from error
    if order:
        places = [order.index(k) for k in range(len(given))]
        names, patterns = (tuple(each[j] for j in places) for each in (second.names, second.inputs))
        second = replace(second, names=names, inputs=patterns, open=None)
    return first, second, given, [fewer, less], matched


def _match_inputs(first: Sequence[str], second: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the number of the first model's input that each of the second gets ([]: its own), and notes on it.

    >>> _match_inputs(["x", "y"], ["y", "x"])
    ([1, 0], ['inputs were matched by their names: the second model takes them as y, x'])
    >>> _match_inputs(["x", "y"], ["x", "z"])
    ([], ['inputs were matched by their order: x, y with x, z'])
    """
    if list(first) == list(second):
        return [], []
    if len(set(first)) == len(first) and sorted(first) == sorted(second):
        text = f"inputs were matched by their names: the second model takes them as {', '.join(second)}"
        return [first.index(name) for name in second], [text]
    return [], [f"inputs were matched by their order: {', '.join(first)} with {', '.join(second)}"]


def _match_outputs(declared: Declared, second: Graph) -> tuple[Graph, list[str]]:
    """Return the second network with its outputs in the order of the first model's names, and a note.

    As it is, without a note, unless both models `declared` the same names in another order.
    """
    names = [[str(end.name) for end in each.outputs] for each in declared if each is not None]
    if (
        len(names) < 2
        or names[0] == names[1]
        or sorted(names[0]) != sorted(names[1])
        or len(set(names[0])) < len(names[0])
    ):
        return second, []
    outputs = tuple(second.outputs[names[1].index(name)] for name in names[0])
    text = f"outputs were matched by their names: the second model gives them as {', '.join(names[1])}"
    return replace(second, outputs=outputs, open=None), [text]


def _shape_difference(a: Graph, b: Graph) -> Comparison | None:
    """Return the verdict "differs" if shapes of inputs or outputs differ, "cannot tell" if kinds do; else None."""
    for what, one, two in (
        ("inputs", a.input_positions, b.input_positions),
        ("outputs", a.output_positions, b.output_positions),
    ):
        shapes = [[g.nodes[p].shape for p in each] for g, each in ((a, one), (b, two))]
        if shapes[0] != shapes[1]:
            mine, others = (", ".join(map(str, each)) for each in shapes)
            return Comparison(DIFFERS, f"the {what} are {mine} and {others}")
        kinds = [[g.nodes[p].kind for p in each] for g, each in ((a, one), (b, two))]
        if kinds[0] != kinds[1]:  # of one type they may be, and the functions one
            return Comparison(UNKNOWN, f"integers of the {what} are numbers in one model, and positions in the other")
    return None


def _declared_interface(model: Model, graph: Graph) -> Interface | None:
    """Return the interface that a model declares, open sizes included; None for a PyTorch module."""
    if model.kind == "torch":
        return None
    return interface_of(model.source if model.kind == "graph" else graph)


def _with_interfaces(done: Comparison, declared: Declared) -> Comparison:
    """Return the comparison `done` with differences of the interfaces `declared` (a's, b's).

    An input that only one model takes is "differs".
    """
    first, second = declared
    if first is None or second is None:
        return done
    done = replace(done, interface=interface_differences(first, second))
    more = "; ".join(only_one_takes(first, second))
    if not more or done.verdict == "differs":
        return done
    return replace(done, verdict="differs", method=f"{more}; at the defaults: {done.verdict}, {done.method}")


def _caller_choices(declared: Declared, graph: Graph) -> str:
    """Return in words which defaults and sizes the models leave to their callers, by what they `declared`; "" if none.

    An imported graph is that of its defaults and of its sizes: an operator may have read them as plain numbers.
    """
    known = [each for each in declared if each is not None]
    names = sorted({str(name) for each in known for name in each.defaults})
    is_open = any(isinstance(size, str) for each in known for end in each.inputs for size in end.sizes or ())
    shapes = ", ".join(f"{n.name} {n.shape}" for n in (graph.nodes[p] for p in graph.input_positions))
    said = [f"the default of {', '.join(names)}"] if names else []
    return " and ".join([*said, *([f"the sizes {shapes}"] if is_open else [])])


def _compare_forms(a: Graph, b: Graph, declared: Declared, with_forms: bool) -> tuple[Comparison, Forms | None]:
    """Return the verdict by structure and by normal forms, and these; None: not needed, or out of time.

    `with_forms` asks for normal forms even where the networks are the same node for node.
    """
    one, two = declared
    alike = one is None or two is None or not interface_differences(one, two)
    places = _caller_choices(declared, a)
    at = f", at {places} (others were not looked at)" if places else ""
    if any(getattr(graph, "integer_layers", ()) for graph in (a, b)):
        at += ", as long as no integer leaves its type"
    identical = same_node_for_node(a, b)
    shown = NODE_FOR_NODE if alike and not at else f"the same operators on the same values, weights bit for bit{at}"
    if identical and not with_forms:
        return Comparison(SAME, shown), None
    try:
        table = TermTable()
        forms = Forms(table, normal_form(a, table), normal_form(b, table))
    except TimeLimitError as error:
        return Comparison(*((SAME, shown) if identical else (UNKNOWN, f"{error}"))), None
    if identical:
        return Comparison(SAME, shown), forms
    return compare_terms(forms, at), forms


def compare_terms(forms: Forms, at: str = "") -> Comparison:
    """Return the verdict by normal forms: "same", "same within rounding" or "cannot tell".

    `at` says in words at which choices of the callers.
    """
    if forms.a.outputs == forms.b.outputs:
        return Comparison(SAME, f"{REWRITTEN}{at}")
    pairs = constant_pairs(forms.table, forms.a, forms.b)
    if pairs is None:
        return Comparison(UNKNOWN, "the normal forms differ")
    try:
        weights = weight_difference(pairs, forms.a, forms.b)
        if all_equal(pairs):
            return Comparison(SAME, f"{REWRITTEN}{at}")
    except TimeLimitError as error:
        return Comparison(UNKNOWN, f"the normal forms differ ({error})")
    if _wider_formats(forms.a.graph) | _wider_formats(forms.b.graph):
        weights = replace(weights, within_rounding=False)  # what is computed in float64 is not folded in float32
    if weights.within_rounding:
        return Comparison(WITHIN_ROUNDING, f"{FOLDED}{at}", weights=weights)
    return Comparison(UNKNOWN, "the normal forms differ", weights=weights)


def _format_notes(a: Graph, b: Graph, formats: Sequence[Mapping[str, str]], declared: Declared) -> tuple[str, ...]:
    """Return notes on defaults, by what the models `declared`, and on formats other than float32, if both have not the
    same ones.
    """
    notes = []
    if names := sorted({str(name) for each in declared if each is not None for name in each.defaults}):
        notes.append(f"{', '.join(names)} may be given or left out: what is said holds at the defaults")
    kinds = [{*f.values(), *_wider_formats(g), *_short_casts(g)} for f, g in zip(formats, (a, b), strict=True)]
    if kinds[0] != kinds[1]:
        said = [", ".join(sorted(k)) or "none" for k in kinds]
        notes.append(f"formats other than float32, which are no part of the meaning: {said[0]} and {said[1]}")
    return tuple(notes)


def _wider_formats(graph: Graph) -> set[str]:
    """Return {"float64"} if the graph has such nodes; else an empty set."""
    formats: Mapping[str, str] = getattr(graph, "formats", {})
    return {"float64"} & set(formats.values())


def _short_casts(graph: Graph) -> set[str]:
    """Return the formats, other than float32 and float64, that values of a graph are cast to."""
    return {str(n.params["dtype"]) for n in graph.nodes if n.op is CAST} - {"float32", "float64"}
