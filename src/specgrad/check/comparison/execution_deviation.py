"""How far executions of a network stray from its exact values, for all inputs of a box.

Linear bounds know one reference value per node (specgrad.bounds.linear.intermediate.forward_pass): the node's
function of the references that it reads, and an error of at most E, which is counted over the whole box. Exact
arithmetic is the case E = 0. So reference and exact value are two networks that are much alike, and what one lags
behind the other goes from layer to layer: through linear maps, plus anything between -E and E, and through what is
bent (specgrad.check.comparison.delta_rules). Values that are read are within their deviation of the reference, which
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

from .copy_nodes import Constants, entered, plain
from .delta_rules import DeltaBuilder, is_bent, slopes, total

Strayed = tuple[Array, ...]


def executed(
    graph: Graph, boxes: tuple[Any, ...], arithmetic: Arithmetic, seconds: float | None = None
) -> tuple[Bounds, Any]:
    """What every execution gives, and the network as it was walked; merged nodes hold what is stored one by one."""
    seen: list[Any] = []
    fused = replace(arithmetic, execution="fused")
    return crown(graph, boxes, arithmetic=fused, on_forward=seen.append, seconds=seconds), seen[0]


def strayed(graph: Graph, boxes: tuple[Any, ...], walked: Any, seconds: float | None = None) -> Strayed | None:
    """Per output of numbers and cell: no execution is farther from the exact value. None: not known.

    walked   the network on these boxes, deployed and fused (`executed`)

    >>> import specgrad as sg
    >>> from specgrad.bounds import Box
    >>> graph = sg.trace(lambda x: sg.relu(3 * x), (1,))
    >>> box = (Box([1.0], [1.25]),)
    >>> (most,) = strayed(graph, box, executed(graph, box, Arithmetic())[1])
    >>> bool(3.75 * 2**-24 <= most[0] < 3.76 * 2**-24)
    True
    """
    if walked.unbounded or walked.infeasible:
        return None
    lags = _lags(graph, walked)
    if lags is None:
        return None
    made, ends, added = lags
    outputs = leaves(crown(made, (*boxes, *added), deployed=False, seconds=seconds).outputs)
    return tuple(
        np.nextafter(np.maximum(abs(box.low), abs(box.high)) + far, np.inf)
        for box, far in zip(outputs, ends, strict=True)
    )


def _lags(graph: Graph, walked: Any) -> tuple[Graph, list[Array], list[Any]] | None:
    """The graph of references less exact values, what outputs deviate besides, and boxes of its other inputs."""
    builder = GraphBuilder(share=True)
    lags, inputs, constants = DeltaBuilder(builder), entered(builder, graph), Constants()
    values: list[Var] = []
    behind: list[Any] = []
    for i, node in enumerate(graph.nodes):
        values.append(plain(builder, constants, graph, i, inputs, values))
        known = i not in walked.layers or node.op is INPUT or _is_exact(walked, i)
        lag = None if known else _behind(lags, graph, i, values, behind, walked)
        if lag is NotImplemented:
            return None
        behind.append(lag)
    outputs, ends = [], []
    for p in graph.real_outputs:
        outputs.append(np.zeros(graph.nodes[p].shape) if behind[p] is None else behind[p])
        ends.append(walked.deviation[p] if p in walked.layers else 2 * walked.balls[p].radius)
    return builder.build(tuple(outputs)), ends, lags.boxes


def _is_exact(walked: Any, i: int) -> bool:
    """Inputs that are single numbers, moved or chosen of."""
    return not walked.layers[i].sources and bool(walked.balls[i].is_exact)


def _behind(lags: DeltaBuilder, graph: Graph, i: int, values: Sequence[Var], behind: Sequence[Any], walked: Any) -> Any:
    """What the reference of node i lags; None: nothing; NotImplemented: not known."""
    node = graph.nodes[i]
    error = walked.state.errors[i][0].numpy()
    if not np.isfinite(error).all():
        return NotImplemented
    with scope("lag"):
        through = _through(lags, graph, node, values, behind, walked)
        if through is NotImplemented:
            return NotImplemented
        added = lags.any(-error, error) if error.any() else None
        return total([part for part in (through, added) if part is not None])


def _through(
    lags: DeltaBuilder, graph: Graph, node: Node, values: Sequence[Var], behind: Sequence[Any], walked: Any
) -> Any:
    reads: list[Any] = [behind[a] if isinstance(a, int) else None for a in node.args]
    moved = {k for k, lag in enumerate(reads) if lag is not None}
    varying = {k for k, a in enumerate(node.args) if isinstance(a, int) and a in walked.layers}
    if any(varying <= set(g) for g in node.op.linear_groups(len(node.args))):
        given = [values[a] if isinstance(a, int) else a.value for a in node.args]
        return node.op.tangent(values[-1], given, reads, node.params) if moved else None
    if not is_bent(node):
        return NotImplemented
    if not moved:
        return None
    ends = walked.interval(node.operands()[0])
    if node.op.curve is None:
        return lags.among(node, [0 if lag is None else lag for lag in reads], *ends)
    steepness = slopes(node.op, node.params, *ends)
    return NotImplemented if steepness is None else lags.steep(reads[0], *steepness)
