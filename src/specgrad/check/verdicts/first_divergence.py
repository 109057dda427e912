"""Does an exported file still mean what the module means, and if not, from which layer on?

The file's own meaning takes the place of a runtime: each layer of the module is evaluated on the file's values, and
must find its result, up to rounding, among them. Layers that the exporter folded into others are passed over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node
from specgrad.graph.ir.interpreter import bind_inputs, evaluate
from specgrad.graph.subgraph import section
from specgrad.rounding import Arithmetic, Ball
from specgrad.scalar import Array
from specgrad.window import Shape

from .judge import Verdict, balls, compare, worst

FINE = ("exact", "rounding")


def _is_computed(node: Node) -> bool:
    return node.kind == "real" and node.op is not INPUT and node.op is not CONSTANT


def _values(graph: Graph, inputs: Sequence[Array]) -> tuple[dict[Shape, list[Array]], list[Array]]:
    """Every value of the file's meaning in float64, by shape, and its outputs."""
    by_shape: dict[Shape, list[Array]] = defaultdict(list)
    outputs = evaluate(graph, bind_inputs(graph, tuple(inputs)), lambda node, value: by_shape[node.shape].append(value))
    return by_shape, [outputs[p] for p in graph.output_positions]


def _ball(module: Graph, position: int, known: dict[int, Array], backend: str) -> Ball:
    part, inputs = section(module, position, known)
    (ball,) = balls(part, [known[p] for p in inputs], Arithmetic("float32"), backend)
    return ball


def _depends_on(graph: Graph, position: int) -> set[int]:
    """All nodes that need this one, itself included."""
    positions = {position}
    for i, node in enumerate(graph.nodes):
        if any(a in positions for a in node.operands()):
            positions.add(i)
    return positions


def first_difference(module: Graph, file: Graph, inputs: Sequence[Array], backend: str) -> tuple[int, Verdict] | None:
    """The first layer that the file computes nowhere, nor anything that depends on it; None if the outputs agree."""
    values, outputs = _values(file, inputs)
    known = dict(zip(module.input_positions, inputs, strict=True))
    matched = set()
    layers = [p for p, node in enumerate(module.nodes) if _is_computed(node)]
    for p in layers:
        ball = _ball(module, p, known, backend)
        same = (v for v in values[module.nodes[p].shape] if compare("", v, ball).kind in FINE)
        match = next(same, None)
        if match is not None:
            known[p] = match
            matched.add(p)
    wanted = {p: known.pop(p, None) for p in module.output_positions}
    verdicts = [
        compare(f"output {i}", value, _ball(module, p, known, backend))
        for i, (p, value) in enumerate(zip(wanted, outputs, strict=True))
    ]
    if worst(verdicts).kind in FINE:
        return None
    missing = next((p for p in layers if not _depends_on(module, p) & matched), layers[-1])
    return missing, worst(verdicts)
