"""Bound of abs(execution - exact) over a box: how far executions of a network deviate from its exact values.

Linear bounds know one reference value per node (specgrad.bounds.linear.intermediate.forward_pass): the node's
function of the references that it reads, and an error of at most E, which is counted over the whole box. Exact
arithmetic is the case E = 0. So reference and exact value are two networks that are much alike, and their delta goes
from layer to layer: through linear maps, plus anything between -E and E, and through nonlinear nodes
(specgrad.check.comparison.delta_rules). Values that are read are within their deviation of the reference, which
is added at the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from specgrad.bounds import Bounds, crown
from specgrad.graph.builder import GraphBuilder, Var
from specgrad.graph.graph import INPUT, Graph, Node
from specgrad.graph.ir.tree import leaves
from specgrad.op import scope
from specgrad.rounding import Arithmetic
from specgrad.scalar import Array

from .copy_nodes import Constants, copy_node, record_inputs
from .delta_rules import DeltaBuilder, is_nonlinear, slopes, sum_or_none

Deviations = tuple[Array, ...]


def bound_executions(
    graph: Graph, boxes: tuple[Any, ...], arithmetic: Arithmetic, seconds: float | None = None
) -> tuple[Bounds, Any]:
    """Return bounds of every execution of `arithmetic` (by node or fused) over the boxes, and the ForwardPass behind
    them.
    """
    seen: list[Any] = []
    fused = replace(arithmetic, execution="fused")
    return crown(graph, *boxes, arithmetic=fused, on_forward=seen.append, seconds=seconds), seen[0]


def execution_deviation(
    graph: Graph, boxes: tuple[Any, ...], walked: Any, seconds: float | None = None
) -> Deviations | None:
    """Return, per real output and cell, an upper bound of abs(execution - exact) over all inputs in `boxes`.

    Return None if some node has no error bound.

    walked   the network on these boxes, deployed and fused (`bound_executions`)

    >>> import specgrad as sg
    >>> from specgrad.bounds import Box
    >>> graph = sg.trace(lambda x: sg.relu(3 * x), (1,))
    >>> box = (Box([1.0], [1.25]),)
    >>> (most,) = execution_deviation(graph, box, bound_executions(graph, box, Arithmetic())[1])
    >>> bool(3.75 * 2**-24 <= most[0] < 3.76 * 2**-24)
    True
    """
    if walked.unbounded or walked.infeasible:
        return None
    deltas = _delta_graph(graph, walked)
    if deltas is None:
        return None
    made, ends, added = deltas
    outputs = leaves(crown(made, *boxes, *added, deployed=False, seconds=seconds).outputs)
    return tuple(
        np.nextafter(np.maximum(abs(box.low), abs(box.high)) + far, np.inf)
        for box, far in zip(outputs, ends, strict=True)
    )


def _delta_graph(graph: Graph, walked: Any) -> tuple[Graph, list[Array], list[Any]] | None:
    """Return the graph of reference - exact, further deviations of outputs, and boxes of added inputs; or None.

    `walked` is the forward pass of the deployed network over the boxes.
    """
    builder = GraphBuilder(share=True)
    deltas, inputs, constants = DeltaBuilder(builder), record_inputs(builder, graph), Constants()
    values: list[Var] = []
    node_deltas: list[Any] = []
    for i, node in enumerate(graph.nodes):
        values.append(copy_node(builder, constants, graph, i, inputs, values))
        known = i not in walked.layers or node.op is INPUT or _is_exact(walked, i)
        delta = None if known else _node_delta(deltas, graph, i, values, node_deltas, walked)
        if delta is NotImplemented:
            return None
        node_deltas.append(delta)
    outputs, ends = [], []
    for p in graph.real_outputs:
        outputs.append(np.zeros(graph.nodes[p].shape) if node_deltas[p] is None else node_deltas[p])
        ends.append(walked.deviation[p] if p in walked.layers else 2 * walked.balls[p].radius)
    return builder.build(tuple(outputs)), ends, deltas.boxes


def _is_exact(walked: Any, i: int) -> bool:
    """Return whether node i of the forward pass `walked` has no rounding: inputs that are single numbers, moved or
    selected.
    """
    return not walked.layers[i].sources and bool(walked.balls[i].is_exact)


def _node_delta(
    deltas: DeltaBuilder, graph: Graph, i: int, values: Sequence[Var], node_deltas: Sequence[Any], walked: Any
) -> Any:
    """Return the delta of node i (reference - exact); None if it is 0, NotImplemented if unknown.

    `values` and `node_deltas` are the exact values and deltas of earlier nodes, `walked` is the forward pass over the
    boxes.
    """
    node = graph.nodes[i]
    error = walked.state.errors[i][0].numpy()
    if not np.isfinite(error).all():
        return NotImplemented
    with scope("lag"):
        through = _propagated_delta(deltas, graph, node, values, node_deltas, walked)
        if through is NotImplemented:
            return NotImplemented
        added = deltas.unconstrained(-error, error) if error.any() else None
        return sum_or_none([part for part in (through, added) if part is not None])


def _propagated_delta(
    deltas: DeltaBuilder, graph: Graph, node: Node, values: Sequence[Var], node_deltas: Sequence[Any], walked: Any
) -> Any:
    """Return the delta that node's arguments cause; None if it is 0, NotImplemented if unknown.

    `values` and `node_deltas` are the exact values and deltas of earlier nodes, `walked` is the forward pass over the
    boxes.
    """
    reads: list[Any] = [node_deltas[a] if isinstance(a, int) else None for a in node.args]
    moved = {k for k, delta in enumerate(reads) if delta is not None}
    varying = {k for k, a in enumerate(node.args) if isinstance(a, int) and a in walked.layers}
    if any(varying <= set(g) for g in node.op.linear_groups(len(node.args))):
        given = [values[a] if isinstance(a, int) else a.value for a in node.args]
        return node.op.tangent(values[-1], given, reads, node.params) if moved else None
    if not is_nonlinear(node):
        return NotImplemented
    if not moved:
        return None
    ends = walked.interval(node.operands()[0])
    if node.op.curve is None:
        return deltas.through_maximum(node, [0 if delta is None else delta for delta in reads], *ends)
    steepness = slopes(node.op, node.params, *ends)
    return NotImplemented if steepness is None else deltas.through_unary(reads[0], *steepness)
