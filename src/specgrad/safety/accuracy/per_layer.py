"""The sheets of a model: per layer, over a box of inputs, what is propagated, what is introduced, and where the most.

Linear bounds say between which numbers every value of a layer lies, exact or computed
(specgrad.bounds.crown_bounds). Given those, errors go forwards. With E the error of what a node reads, and per node

    linear with constants    propagated: the operator on absolute values, on E
    products                 E of one factor times the largest size of the other, both ways
    a function of one cell   propagated: its steepest slope over the range, times E
    maxima                   propagated: the largest E of the cells that are compared
    quotients                propagated: E_a/b + a*E_b/(b*b), b at its least and a at its largest

    softmax                  by a bound of its own (specgrad.safety.accuracy.softmax)

and introduced is what rounding adds to exact inputs in these ranges. No error exceeds the width of its range, in which
exact and computed values lie. Nodes that are merged (those of one layer; fused, of one region) carry what came in, and
their roundings are counted where the region is left, or looked at.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from specgrad.bounds import Box, crown
from specgrad.bounds.interval_bounds import REAL
from specgrad.check.models.load import graph_in_one_format
from specgrad.check.tolerances.tolerance import words_of
from specgrad.errors import ParameterError, need
from specgrad.graph.drawing.summary import rows
from specgrad.graph.graph import Graph, Node
from specgrad.rounding import Arithmetic
from specgrad.rounding.ball import Ball
from specgrad.rounding.context import exact_error
from specgrad.rounding.linear import rounded
from specgrad.rounding.propagate import node_ball
from specgrad.rounding.slack_constants import RANGE, SLACK
from specgrad.rounding.stated import deployment_of
from specgrad.scalar import Array, upward

from .softmax import match_softmax, quotient_error

WHO = "accuracy"


@dataclass(frozen=True)
class LayerAccuracy:
    """Error bounds of one layer over the whole box; the numbers are those of its worst cell.

    total                   no execution is farther from the exact value in any cell; inf: nothing is proven
    propagated              how much of that the errors of its inputs are
    introduced              the rest: its own arithmetic; fused, that of the region that it stands in, up to here
    worst_index             that cell
    low, high               between which all of its cells lie, exact and computed
    name, operator, shape   of the layer and of its output
    output                  whether it is an output of the model
    """

    name: str
    operator: str
    shape: tuple[int, ...]
    propagated: float
    introduced: float
    total: float
    worst_index: tuple[int, ...]
    low: float
    high: float
    output: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: layer, operator, shape, output, propagated, introduced, total, low, high and worst_index;
        null stands for unbounded.
        """
        numbers = {k: _finite_or_none(getattr(self, k)) for k in ("propagated", "introduced", "total", "low", "high")}
        described = {"layer": self.name, "operator": self.operator, "shape": list(self.shape), "output": self.output}
        return {**described, **numbers, "worst_index": list(self.worst_index)}


def _finite_or_none(x: float) -> float | None:
    """Return x, or None if it is NaN or infinite."""
    return x if np.isfinite(x) else None


@dataclass(frozen=True)
class Accuracy:
    """Proven error bounds of every layer, for all executions of a class and all inputs of a box.

    arithmetic   the class of executions
    unbounded    names of nodes without a bound
    deployment   that class in sentences, by topic; notes what else to know
    layers       the bounds, per layer
    seconds      that it took
    """

    layers: tuple[LayerAccuracy, ...]
    arithmetic: Arithmetic
    unbounded: tuple[str, ...] = ()
    deployment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """Verdict: "unbounded" if some layer has no finite bound, else "bounded"."""
        return "unbounded" if any(np.isinf(layer.total) for layer in self.layers) else "bounded"

    @property
    def outputs(self) -> tuple[LayerAccuracy, ...]:
        """The layers that are outputs of the model."""
        return tuple(layer for layer in self.layers if layer.output)

    def sentences(self) -> list[str]:
        """Return what is proven of the outputs, one sentence each."""
        if self.verdict == "unbounded":
            names = ", ".join(self.unbounded[:3]) or next(x.name for x in self.layers if np.isinf(x.total))
            return [f"unbounded on this box: nothing is proven of {names}"]
        who = f"No execution ({words_of(self.arithmetic)})"
        return [
            f"{who} is farther than {upward(x.total)} from the exact {x.name}, whatever the input in the box."
            for x in self.outputs
        ]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `layers` (a row each), `unbounded` nodes, notes, deployment (the executions meant),
        seconds.
        """
        return {
            "layers": [layer.to_json() for layer in self.layers],
            "unbounded": list(self.unbounded),
            "notes": list(self.notes),
            "deployment": dict(self.deployment),
            "seconds": self.seconds,
        }


def accuracy(
    model: Any,
    *boxes: Box,
    arithmetic: Arithmetic | None = None,
    seconds: float | None = None,
) -> Accuracy:
    """Return propagated, introduced and total error of every layer, for all inputs in the boxes.

    ParameterError for a box that is not finite, an index input, or no real output; refused: a model in several float
    formats.

    model       a Graph, an ONNX file (path, bytes, ModelProto) or a PyTorch module
    boxes       one per input; inputs are numbers of the format, so they have no error of their own
    arithmetic  the executions that are meant; None: float32, fused (docs/reference/executions.md)
    seconds     after which ranges are not narrowed any more: bounds hold, and are wide

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(3 * x), (1,))
    >>> (times, relu) = accuracy(graph, Box([1.0], [1.25])).layers
    >>> bool(3.75 * 2**-24 <= times.introduced < 3.76 * 2**-24), times.propagated
    (True, 0.0)
    >>> bool(times.introduced <= relu.propagated < 3.76 * 2**-24), relu.introduced
    (True, 0.0)
    """
    need("torch", "accuracy needs")
    start, arithmetic = time.monotonic(), arithmetic or Arithmetic()
    arithmetic.check_plain("accuracy")
    middles = [np.asarray(b.low, dtype=np.float32) for b in boxes]
    graph = graph_in_one_format(model, middles, WHO, arithmetic)
    _check_inputs(graph, boxes)
    seen: list[Any] = []
    bounds = crown(graph, *boxes, arithmetic=arithmetic, on_forward=seen.append, seconds=seconds)
    layers = tuple(ErrorPropagation(graph, seen[0]).layers())
    took = time.monotonic() - start
    return Accuracy(layers, arithmetic, bounds.unbounded, deployment_of(arithmetic, graph), (), took)


def _check_inputs(graph: Graph, boxes: Sequence[Box]) -> None:
    """Raise ParameterError if the graph has no real output, an index input, or a box is not finite."""
    if not graph.real_outputs:
        raise ParameterError(WHO, "the model has no output of numbers: positions have no error")
    positions = [graph.nodes[p] for p in graph.input_positions if graph.nodes[p].kind == "index"]
    if positions:
        raise ParameterError(WHO, f"input {positions[0].name} holds positions; give them a value in the model")
    for box in boxes:
        if not (np.isfinite(box.low).all() and np.isfinite(box.high).all()):
            raise ParameterError(WHO, "the ends of a box must be finite", rule="P5")


class ErrorPropagation:
    """Forward pass over a graph with known ranges, those of crown's forward pass `walked`: error bounds per node, each
    an array of the node's shape.

    total    how far any value of a node may be from the exact one
    inside   of linear nodes: the part of it that came into their region, as the rest of the region sees it
    before   as both, had the node's own layer no roundings
    moved    nodes of the graph that hold a far mask, of whose own values the pass says nothing
    """

    def __init__(self, graph: Graph, walked: Any) -> None:
        self.graph, self.walked = graph, walked
        self.total: dict[int, Array] = {}
        self.inside: dict[int, Array] = {}
        self.before: dict[int, Array] = {}
        self.moved = _moved(graph) if walked.graph is not graph else frozenset[int]()
        names = {n.name: i for i, n in enumerate(graph.nodes)}
        self.lost = min((names[name] for name in walked.unbounded), default=len(graph.nodes))
        for i, node in enumerate(graph.nodes):
            if i in walked.layers and walked.layers[i].sources:
                self._propagate_node(i, node)
            elif i in walked.layers:
                self._set_input_error(i)
        for p in graph.real_outputs:
            if p not in self.before:  # one value all over the box, as of a sign: exact and computed lie in its ball
                self.total[p] = np.asarray(walked.balls[p].high - walked.balls[p].low) * SLACK
                self.before[p] = np.zeros(graph.nodes[p].shape)

    def _set_input_error(self, i: int) -> None:
        """Set the error of input node i: 0, or what reading a subnormal number as 0 costs."""
        ball, a = self.walked.balls[i], self.walked.rules.arithmetic
        self.total[i] = np.where(ball.least < a.tiny, np.minimum(ball.size, a.tiny), 0.0) * bool(a.flush)

    def _propagate_node(self, i: int, node: Node) -> None:
        """Set `total`, `before` and what else is kept of node i from the errors of its arguments.

        Infinite from `lost` on, the first node of whose values nothing is known.
        """
        shift = match_softmax(self.graph, i)
        if shift is not None and np.isfinite(self.total[shift[0]]).all():
            self._set_softmax_error(i, *shift)
            return
        if i >= self.lost:
            self.total[i] = self.before[i] = np.full(node.shape, np.inf)
            return
        with np.errstate(all="ignore"):
            widest = np.asarray(self.walked.balls[i].high - self.walked.balls[i].low) * SLACK
            linear = i in self.walked.local_error_balls
            carried = self._carried(i, node, self._read(i, node, self.total, self.inside))
            before = self._carried(i, node, self._read(i, node, *self._errors_without_layer(node)))
            own = self.walked.local_error_balls[i].radius if linear else self._rounding_error(i, node)
            if linear:
                self.inside[i] = carried
            total = np.where(own == 0, carried, (carried + own) * SLACK)
        self.total[i] = np.fmin(np.where(np.isnan(total), np.inf, total), widest)
        self.before[i] = np.fmin(np.where(np.isnan(before), np.inf, before), self.total[i])

    def _set_softmax_error(self, i: int, d: int, axes: tuple[int, ...]) -> None:
        """Set `total` and `before` of node i, a softmax over `axes`, from the error of its shifted argument, node d,
        alone.
        """
        a = self.walked.rules.arithmetic
        self.total[i] = quotient_error(self.total[d], axes, a, rounds=True)
        own_layer = self.graph.nodes[d].group == self.graph.nodes[i].group
        before = self.before[d] if own_layer else self.total[d]
        self.before[i] = np.fmin(quotient_error(before, axes, a, rounds=False), self.total[i])

    def _errors_without_layer(self, node: Node) -> tuple[dict[int, Array], dict[int, Array]]:
        """Return copies of `total` and `inside` (errors by node), as if the nodes of this layer did not round."""
        same = {a: b for a, b in self.before.items() if self.graph.nodes[a].group == node.group}
        return {**self.total, **same}, {**self.inside, **same}

    def _read(self, i: int, node: Node, total: Mapping[int, Array], inside: Mapping[int, Array]) -> list[Array | None]:
        """Return, per argument of node i, the error that it reads: from `inside` within its region, else from `total`;
        None for a number.

        What is inside a region lacks the region's roundings. Only a node that counts them itself may read that, a
        linear one. A function of the same layer reads what the region gives, roundings included.
        """
        reads: list[Array | None] = []
        for a in node.args:
            merged = (
                isinstance(a, int)
                and a in inside
                and i in self.walked.local_error_balls
                and self.walked.same_region(a, i)
            )
            reads.append((inside if merged else total).get(a) if isinstance(a, int) else None)
        return reads

    def _carried(self, i: int, node: Node, reads: Sequence[Array | None]) -> Array:
        """Return a bound, per cell, of the propagated error of node i: what `reads`, errors of its arguments (None:
        none), do.
        """
        if i in self.walked.local_error_balls:
            return np.asarray(self.walked.propagated_deviation(node, reads))
        if _is_quotient(node):
            return self._quotient_error(node, reads)
        from specgrad.bounds.linear.intermediate.deviation import output_deviation  # which needs torch

        apart = {a: r for a, r in zip(node.args, reads, strict=True) if isinstance(a, int) and r is not None}
        return output_deviation(self.walked.rules, node, self.walked.balls, apart, i)

    def _quotient_error(self, node: Node, reads: Sequence[Array | None]) -> Array:
        """Return the propagated error of a/b: (e_a + a*e_b/b)/b, a at its largest and b at its least; `reads` are (e_a,
        e_b).
        """
        first, divisor = node.args
        size = self.walked.balls[first].size if isinstance(first, int) else abs(float(first.value))
        least = self.walked.balls[divisor].least
        e_a, e_b = (0.0 if r is None else r for r in reads)
        return np.asarray(np.broadcast_to(e_a / least + size / least * e_b / least, node.shape)) * SLACK

    def _rounding_error(self, i: int, node: Node) -> Array:
        """Return what rounding adds to exact inputs; inf if no more is known than the range."""
        ball = self.walked.balls[i]
        e = ball.expansion
        if _is_quotient(node) and e is not None:
            nothing = np.zeros(node.shape)
            return rounded(self.walked.rules, nothing, nothing, e.size, e.count, e.most).radius
        if node.op.exact:
            known = {a: self.walked.balls[a] for a in node.operands() if a not in self.walked.layers}
            return exact_error(self.walked.rules, node, ball, known)
        return self._range_widening(i, node)

    def _range_widening(self, i: int, node: Node) -> Array:
        """Return by how much the computed range exceeds the exact one, of the same arguments.

        The box of the node itself may have been narrowed since, and is not used.
        """
        rules, balls, inputs = self.walked.rules, self.walked.balls, self.walked.inputs
        ball = node_ball(self.graph, i, node, balls, inputs, rules)
        real = node_ball(self.graph, i, node, balls, inputs, replace(rules, arithmetic=REAL, undecided=set()))
        wider = np.maximum(np.maximum(ball.high - real.high, real.low - ball.low), 0.0)
        return np.where(np.isfinite(real.radius), wider, np.inf) + RANGE * ball.size

    def layers(self) -> list[LayerAccuracy]:
        """Return the errors of every layer, taken at its last node."""
        operators = {row[0]: row[1] for row in rows(self.graph)[0]}
        last = {node.group: i for i, node in enumerate(self.graph.nodes) if i in self.before}
        ends = set(self.graph.output_positions)
        return [
            self._layer_accuracy(name, i, operators.get(name, self.graph.nodes[i].op.name), i in ends)
            for name, i in last.items()
        ]

    def _layer_accuracy(self, name: str, i: int, operator: str, output: bool) -> LayerAccuracy:
        """Return the errors of the layer `name` at the worst cell of its node i; `output`: it is an output of the
        model.
        """
        total, before, ball = self.total[i], self.before[i], self.walked.balls[i]
        if i in self.moved:
            total, ball = np.full_like(total, np.inf), Ball(ball.value, np.full_like(total, np.inf))
        at = tuple(int(k) for k in np.unravel_index(int(np.argmax(total)), total.shape)) if total.size else ()
        most, share = (float(total[at]), float(before[at])) if total.size else (0.0, 0.0)
        unknown = np.isinf(most)
        ends = (float(ball.low.min(initial=np.inf)), float(ball.high.max(initial=-np.inf)))
        if match_softmax(self.graph, i) is not None:
            ends = max(ends[0], -most), min(ends[1], 1 + most)
        introduced = most if unknown else float(np.nextafter(most - share, np.inf)) if most > share else 0.0
        return LayerAccuracy(name, operator, self.graph.nodes[i].shape, share, introduced, most, at, *ends, output)


def _is_quotient(node: Node) -> bool:
    """Return whether a node divides by a computed value."""
    return node.op.name == "div" and isinstance(node.args[1], int)


def _moved(graph: Graph) -> frozenset[int]:
    """Return the nodes whose own values crown's forward pass does not hold, for it brought far masks near."""
    from specgrad.bounds.near_masks import near_masks  # which needs torch

    return near_masks(graph).moved
