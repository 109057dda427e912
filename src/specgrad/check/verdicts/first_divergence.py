"""Find the first layer that an exported file computes differently from its module.

The file's own meaning takes the place of a runtime: each layer of the module is evaluated on the file's values, and
must find its result, up to rounding, among them. Layers that the exporter folded into others are passed over.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, section
from specgrad.graph.ir.node import bind_inputs, evaluate
from specgrad.rounding import Arithmetic, Ball
from specgrad.scalar import Array
from specgrad.window import Shape

from .judge import Verdict, expected_balls, judge_array, worst

AGREES = ("exact", "rounding")


def _is_computed(node: Node) -> bool:
    """Return whether a node computes numbers: neither an input nor a constant nor an index."""
    return node.kind == "real" and node.op is not INPUT and node.op is not CONSTANT


def _values_by_shape(graph: Graph, inputs: Sequence[Array]) -> tuple[dict[Shape, deque[Array]], list[Array]]:
    """Return every computed value of the graph at `inputs`, by shape, and its outputs; nothing is converted.

    ShapeError for inputs that do not fit the graph.
    """
    by_shape: dict[Shape, deque[Array]] = defaultdict(deque)
    outputs = evaluate(graph, bind_inputs(graph, tuple(inputs)), lambda node, value: by_shape[node.shape].append(value))
    return by_shape, [outputs[p] for p in graph.output_positions]


def _allowance_ball(module: Graph, position: int, known: dict[int, Array], backend: str) -> Ball:
    """Return the exact value and float32 allowance of the module's node at `position`, computed from `known` values by
    `backend`.
    """
    part, inputs = section(module, position, known)
    (ball,) = expected_balls(part, [known[p] for p in inputs], Arithmetic("float32"), backend)
    return ball


def _dependents(graph: Graph, position: int) -> set[int]:
    """Return the positions of all nodes that depend on the one at `position`, itself included."""
    positions = {position}
    for i, node in enumerate(graph.nodes):
        if any(a in positions for a in node.operands()):
            positions.add(i)
    return positions


def first_difference(module: Graph, file: Graph, inputs: Sequence[Array], backend: str) -> tuple[int, Verdict] | None:
    """Return (position, verdict) of the module's first layer whose value, and all that depend on it, the file lacks.

    None if the outputs agree. `inputs` are one array per input of both; `backend` ("numpy" or "torch") computes radii.
    """
    values, outputs = _values_by_shape(file, inputs)
    known = dict(zip(module.input_positions, inputs, strict=True))
    matched = set()
    layers = [p for p, node in enumerate(module.nodes) if _is_computed(node)]
    for p in layers:
        ball = _allowance_ball(module, p, known, backend)
        candidates = values[module.nodes[p].shape]
        k = next((k for k, v in enumerate(candidates) if judge_array("", v, ball).kind in AGREES), None)
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
