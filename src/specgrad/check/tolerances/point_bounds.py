"""Bounds of a graph's outputs at one input: of every execution, and of the exact value.

Linear bounds at a single point (specgrad.bounds.crown_bounds), with everything that rounding can add, give ends low
and high: every execution of the class lies between them, and so does the exact value e. The same bounds with no
rounding but that of our own float64 are far narrower: e lies in [near, far]. So, with any v in [near, far],

    distance = max(high - near, far - low)  >=  abs(y - e), abs(y - v)      for every execution y
    between  = high - low                   >=  abs(y - y')                 for any two of them
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specgrad.bounds import Bounds, Box, crown
from specgrad.bounds.box import box_of
from specgrad.errors import ContradictionError
from specgrad.graph.drawing.summary import multiply_adds
from specgrad.graph.graph import CONSTANT, INPUT, Graph
from specgrad.graph.ir.node import bind_inputs
from specgrad.graph.ir.tree import leaves, transform
from specgrad.rounding import Arithmetic, RadiusReport, radius
from specgrad.scalar import Array

REAL = Arithmetic("real", execution="node")
NARROW_SHARE = 2.0**-10  # how well the exact value is to be known, as a share of what is allowed
MAX_EXACT_INTEGER = 2.0**53
BACKWARD_RATE = 1e10  # cells times work below them, per second: more than the 7e9 of the quickest network measured
UNBOUNDED = np.array(np.inf)


@dataclass(frozen=True, eq=False)
class OutputBounds:
    """Lower and upper bounds of every cell, one array per real output.

    low and high have the outputs' shapes.
    """

    low: list[Array]
    high: list[Array]

    def intersect(self, other: OutputBounds) -> OutputBounds:
        """Return the intersection with `other`, bounds that hold as well; NaN counts as unknown."""
        low = [np.fmax(a, b) for a, b in zip(self.low, other.low, strict=True)]
        return OutputBounds(low, [np.fmin(a, b) for a, b in zip(self.high, other.high, strict=True)])

    def is_much_narrower(self, beside: OutputBounds) -> bool:
        """Return whether every cell is at most NARROW_SHARE as wide as in `beside`."""
        pairs = zip(_output_widths(self), _output_widths(beside), strict=True)
        return all((own <= NARROW_SHARE * wide).all() for own, wide in pairs)


def _output_widths(ends: OutputBounds) -> list[Array]:
    """Return high - low of every output, rounded up."""
    return [upper_difference(high, low) for low, high in zip(ends.low, ends.high, strict=True)]


@dataclass(frozen=True, eq=False)
class Point:
    """What is proven at one input, where every execution y and the exact value e lie in low..high.

    values      per output of numbers: a float64 v next to e
    distance    per output and cell: an upper bound of abs(y - e) and abs(y - v)
    between     per output and cell: an upper bound of abs(y - y') for two executions
    layers      how much each layer contributes to the largest distance; they sum to it
    unbounded   names of layers about which nothing is proven
    note        why nothing was carried backwards, where that would take too long; else ""
    """

    values: tuple[Array, ...]
    distance: tuple[Array, ...]
    between: tuple[Array, ...]
    layers: Mapping[str, float]
    unbounded: tuple[str, ...]
    note: str = ""

    @property
    def largest(self) -> float:
        """The largest distance over all outputs and cells."""
        return max(float(d.max(initial=0.0)) for d in self.distance)


def bound_point(
    graph: Graph,
    inputs: tuple[Any, ...],
    arithmetic: Arithmetic,
    stored: Collection[str] = (),
    formats: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> Point:
    """Return what is proven of the outputs at one input; the graph must have a real output.

    UnsupportedError where an operator has no radius.

    arithmetic   the executions
    formats   nodes that are computed in another format: only radii know them, so nothing is carried backwards
    seconds   after which nothing more is carried backwards; nothing is at all where that would take longer
    stored    names of nodes whose results the runtime is known to store
    """
    deadline = time.monotonic() + (np.inf if seconds is None else seconds)
    report = radius(graph, *inputs, arithmetic=arithmetic, backend="torch", stored=stored, formats=formats)
    forward, within = None, None
    ends, unbounded = _forward_bounds(report), report.unbounded
    late = "" if formats else out_of_reach(graph, deadline - time.monotonic())
    is_in_reach = not (formats or late)
    if is_in_reach:
        back, bounds, forward = _backward_bounds(graph, inputs, deadline, arithmetic=arithmetic, stored=stored)
        ends, unbounded = ends.intersect(back), bounds.unbounded
        within = {name: box for name, box in bounds.layers.items() if name not in unbounded}
    names = [graph.nodes[i].name for i in forward.layers] if forward is not None else []
    report = radius(graph, *inputs, arithmetic=REAL, backend="torch", keep=names)
    exact = _forward_bounds(report)
    if is_in_reach and not exact.is_much_narrower(ends) and time.monotonic() < deadline:
        exact = exact.intersect(_backward_bounds(graph, inputs, deadline, deployed=False, interm_bounds=within)[0])
    measured = map(_distances, ends.low, ends.high, exact.low, exact.high)
    values, distance, between = zip(*measured, strict=True)
    point = Point(
        values, distance, between, {}, unbounded, f"bounds were carried forwards alone: {late}" if late else ""
    )
    if forward is None or forward.unbounded or not 0 < point.largest < np.inf:
        return point
    inside = {name: ball.value for name, ball in report.nodes.items()}
    return replace(point, layers=_contributions(forward, point, ends, inside))


def out_of_reach(graph: Graph, seconds: float) -> str:
    """Return why going backwards through `graph` is not begun, if that may take more than `seconds`; else ""."""
    if seconds <= 0:
        return "no time is left to go backwards"
    needed = backward_seconds(graph)
    return f"going backwards takes {needed:.1g} s or more (estimated)" if needed > seconds else ""


def backward_seconds(graph: Graph) -> float:
    """Return the seconds that going backwards takes at least, from the graph's sizes alone: an estimate, for one core.

    From every cell whose interval a later node reads, a pass goes down through all that lies below. How wide forward
    bounds are says nothing: they may be 1e21 times the outputs where going backwards proves a thousandth in a second.

    >>> import specgrad as sg
    >>> backward_seconds(sg.trace(lambda x: sg.relu(sg.relu(x) * 2), (1000,))) < 1e-3
    True
    """
    from specgrad.bounds.linear.intermediate.tighten import range_readers

    readers = range_readers(graph)
    below, work = 0, 0
    for i, node in enumerate(graph.nodes):
        if node.op in (INPUT, CONSTANT):
            continue
        below += multiply_adds(node, graph.nodes) + math.prod(node.shape)
        work += math.prod(node.shape) * below if i in readers else 0
    return work / BACKWARD_RATE


def spread_of(values: Array) -> float:
    """Return how much the finite cells of an output, `values`, differ: the largest less the smallest.

    If they are all alike it is their absolute value; 0.0 without a finite cell.
    """
    finite = values[np.isfinite(values)]
    return float(np.ptp(finite) or np.abs(finite).max()) if finite.size else 0.0


def _backward_bounds(
    graph: Graph, inputs: tuple[Any, ...], deadline: float, **options: Any
) -> tuple[OutputBounds, Bounds, Any]:
    """Return backward bounds of every output, intersected with forward ones; the crown result; its forward pass.

    `options` are of crown, which is cut short at the `deadline` (time.monotonic; inf: none). `inputs` are one point.
    """
    from specgrad.bounds.linear.intermediate.tighten import output_bounds

    sizes = [math.prod(graph.nodes[p].shape) for p in graph.real_outputs]
    walked: list[Any] = []
    options["seconds"] = None if math.isinf(deadline) else max(0.0, deadline - time.monotonic())
    bounds = crown(
        graph,
        *_degenerate_boxes(graph, inputs),
        objective=np.zeros((0, sum(sizes))),
        on_forward=walked.append,
        **options,
    )
    low, high = output_bounds(walked[0])
    shapes = [graph.nodes[p].shape for p in graph.real_outputs]
    parts = [np.split(end, np.cumsum(sizes)[:-1]) for end in (low, high)]
    ends = OutputBounds(*([a.reshape(s) for a, s in zip(part, shapes, strict=True)] for part in parts))
    names = [graph.nodes[p].name for p in graph.real_outputs]
    known = [
        Box(-UNBOUNDED, UNBOUNDED) if n in bounds.unbounded else bounds.layers[n] for n in names
    ]  # of those nothing is proven
    return ends.intersect(_from_boxes(known)), bounds, walked[0]


def _degenerate_boxes(graph: Graph, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return real inputs as boxes of one point; indices, and numbers that float64 does not hold, as arrays.

    ShapeError for inputs that do not fit the graph.
    """

    def box(_: str, position: int) -> Any:
        given = arrays[position]
        value = given.astype(np.float64)
        held = given.dtype.kind == "f" or (
            given.dtype.kind in "iu" and np.abs(value).max(initial=0) < MAX_EXACT_INTEGER
        )
        return Box(value, value) if graph.nodes[position].kind == "real" and held else given

    arrays = bind_inputs(graph, inputs)
    return tuple(transform(box, tree) for tree in graph.inputs)


def _forward_bounds(report: RadiusReport) -> OutputBounds:
    """Return the bounds of the real outputs from forward radii."""
    with np.errstate(invalid="ignore"):  # an infinite value with an infinite radius
        return _from_boxes([box_of(ball) for ball in leaves(report.outputs) if ball.value.dtype.kind == "f"])


def _from_boxes(boxes: list[Box]) -> OutputBounds:
    """Return boxes, one per real output, as output bounds."""
    return OutputBounds([box.low for box in boxes], [box.high for box in boxes])


def _distances(low: Array, high: Array, near: Array, far: Array) -> tuple[Array, Array, Array]:
    """Return (value next to the exact one, distance, largest difference of two executions), rounded outward.

    Executions lie in low..high, the exact value there and in near..far; ContradictionError if nothing does.
    """
    near, far = np.fmax(near, low), np.fmin(far, high)  # the exact value is between all of them
    if (near > far).any():  # no `assert`: a contradiction is a fault of ours, and must not come out as a small distance
        raise ContradictionError("bounds of one value exclude each other")
    with np.errstate(invalid="ignore", over="ignore"):
        value = np.where(near == far, near, near / 2 + far / 2)
        distance = np.maximum(upper_difference(high, np.fmin(near, value)), upper_difference(np.fmax(far, value), low))
        return value, distance, np.minimum(upper_difference(high, low), 2 * distance)


def upper_difference(a: Array, b: Array) -> Array:
    """Return a - b rounded up, at least 0; 0 where both are equal, infinities included; inf where unknown."""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.nextafter(a - b, np.inf)
    return np.where(a == b, 0.0, np.where(np.isnan(apart), np.inf, np.maximum(apart, 0.0)))


def _contributions(forward: Any, point: Point, ends: OutputBounds, values: Mapping[str, Array]) -> dict[str, float]:
    """Return {layer: its share of the largest distance}, the largest first; they sum to `point.largest`.

    `forward` is the pass at the point, `ends` bounds of its outputs, `values` those of layers, by name.

    The bound was intersected with others, and the exact value is known as float64 has it: so they are shares.
    """
    from specgrad.bounds.linear.intermediate.loss_by_layer import losses

    k = int(np.argmax([d.max(initial=0.0) for d in point.distance]))
    cell = int(np.argmax(point.distance[k]))
    above = ends.high[k].flat[cell] - point.values[k].flat[cell] >= point.values[k].flat[cell] - ends.low[k].flat[cell]
    row = np.zeros(point.distance[k].size)
    row[cell] = -1.0 if above else 1.0
    lost = losses(forward, forward.graph.real_outputs[k], row, values)
    taken = {name: max(amount, 0.0) for name, amount in lost.items()}
    whole = sum(taken.values())
    order = sorted(taken, key=lambda name: -taken[name])
    return {name: point.largest * taken[name] / whole for name in order} if whole else {}
