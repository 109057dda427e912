"""Find the first layer that an exported file computes differently from its module.

The file's own meaning takes the place of a runtime: each layer of the module is evaluated on the file's values, and
must find its result, up to rounding, among them. Layers that the exporter folded into others are passed over.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg, section
from specgrad.graph.ir.node import bind_inputs
from specgrad.rounding import Arithmetic, Ball
from specgrad.rounding.context import Evaluate, evaluator
from specgrad.scalar import Array
from specgrad.window import Shape

from .judge import Verdict, expected_balls, judge_array, worst

AGREES = ("exact", "rounding")
LIKELY_SHARE = 1 / 32  # of a layer's largest value: no cell of bfloat16 is off by more, by a rounding or by a few


def _is_computed(node: Node) -> bool:
    """Return whether a node computes numbers: neither an input nor a constant nor an index."""
    return node.kind == "real" and node.op is not INPUT and node.op is not CONSTANT


def _values_by_shape(
    graph: Graph, inputs: Sequence[Array], compute: Evaluate
) -> tuple[dict[Shape, deque[Array]], list[Array]]:
    """Return every computed value of the graph at `inputs`, by shape, and its outputs, by `compute` in float64.

    ShapeError for inputs that do not fit the graph.
    """
    by_shape: dict[Shape, deque[Array]] = defaultdict(deque)
    outputs: dict[int, Array] = {}
    for p, value in _values_from(graph, bind_inputs(graph, tuple(inputs)), compute):
        if _is_computed(graph.nodes[p]):
            by_shape[value.shape].append(value)
        if p in graph.output_positions:
            outputs[p] = value
    return by_shape, [outputs[p] for p in graph.output_positions]


def _allowance_ball(module: Graph, position: int, known: dict[int, Array], backend: str) -> Ball:
    """Return the exact value and float32 allowance of the module's node at `position`, computed from `known` values by
    `backend`.
    """
    part, inputs = section(module, position, known)
    (ball,) = expected_balls(part, [known[p] for p in inputs], Arithmetic("float32"), backend)
    return ball


def _layer_values(graph: Graph) -> list[int]:
    """Return the positions of the numbers that layers pass on: read by another layer, or an output; in order."""
    read = {a for node in graph.nodes for a in node.operands() if graph.nodes[a].group != node.group}
    computed = (p for p in sorted(read | set(graph.output_positions)) if _is_computed(graph.nodes[p]))
    return [*computed]


def _dependents(graph: Graph, position: int) -> set[int]:
    """Return the positions of all nodes that depend on the one at `position`, itself included."""
    positions = {position}
    for i, node in enumerate(graph.nodes):
        if any(a in positions for a in node.operands()):
            positions.add(i)
    return positions


def first_difference(module: Graph, file: Graph, inputs: Sequence[Array], backend: str) -> tuple[int, Verdict] | None:
    """Return (position, verdict) of the module's first layer whose value, and all that depend on it, the file lacks.

    None if the outputs agree. `inputs` are one array per input of both; `backend` ("numpy" or "torch") computes values
    and radii.
    """
    compute = evaluator(backend)
    values, outputs = _values_by_shape(file, inputs, compute)
    known = dict(zip(module.input_positions, inputs, strict=True))
    layers, matched = _layer_values(module), set[int]()
    for p, value in _values_from(module, known, compute):
        candidates = values[value.shape] if p in layers else deque[Array]()
        k = _find(candidates, value, partial(_allowance_ball, module, p, known, backend))
        if k is not None:
            known[p] = candidates[k]
            matched.add(p)
            candidates.rotate(-k)  # the next layer's value is near: not all of a deep network are asked for each
    for p in {*module.output_positions} - {*module.input_positions}:  # an output is judged by what it is computed from
        known.pop(p, None)
    verdicts = [
        judge_array(f"output {i}", value, _allowance_ball(module, p, known, backend))
        for i, (p, value) in enumerate(zip(module.output_positions, outputs, strict=True))
    ]
    if worst(verdicts).kind in AGREES:
        return None
    missing = next((p for p in layers if not _dependents(module, p) & matched), [*module.output_positions, *layers][-1])
    return missing, worst(verdicts)


def _find(candidates: Sequence[Array], value: Array, allowance: Callable[[], Ball]) -> int | None:
    """Return the first of `candidates` that is `value` itself, or that lies in the ball `allowance()` around it.

    The ball is asked for if some candidate is near. None: there is no such candidate.
    """
    near = [k for k, v in enumerate(candidates) if _may_be_rounding_of(value, v)]
    equal = next((k for k in near if np.array_equal(candidates[k], value)), None)
    if equal is not None or not near:
        return equal
    ball = allowance()
    return next((k for k in near if judge_array("", candidates[k], ball).kind in AGREES), None)


def _values_from(graph: Graph, known: Mapping[int, Array], compute: Evaluate) -> Iterator[tuple[int, Array]]:
    """Yield (position, value) of every node, in order, by `compute` in float64.

    What is `known` of a node by then, inputs included, takes the place of its value in all that read it. Values are
    released after their last use.
    """
    last_use = {a: i for i, node in enumerate(graph.nodes) for a in node.operands()}
    values: dict[int, Array] = {}
    for i, node in enumerate(graph.nodes):
        if node.op is INPUT or node.op is CONSTANT:
            value = np.asarray(known[i] if node.op is INPUT else graph.constants[i])
            value = value if node.kind == "index" else value.astype(np.float64, copy=False)
        else:
            args = [np.asarray(float(a.value)) if isinstance(a, NumberArg) else values[a] for a in node.args]
            value = compute(node.op, args, node.params)
        yield i, value
        values[i] = known.get(i, value) if _is_computed(node) else value
        for a in {*node.operands()}:
            if last_use[a] == i:
                del values[a]


def _may_be_rounding_of(value: Array, other: Array) -> bool:
    """Return False where `other`, of the same shape, is off by more than LIKELY_SHARE at the largest cell of `value`:
    an allowance as wide as that would say little of the layer.
    """
    if not value.size:
        return True
    k = np.argmax(np.abs(value))
    return not abs(other.flat[k] - value.flat[k]) > abs(value.flat[k]) * LIKELY_SHARE  # NaN: to be judged
