"""Plant common faults of layers in a graph: what a wide ball must be able to distinguish from the truth."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from specgrad.graph.graph import CONSTANT, Graph, Node, NumberArg
from specgrad.scalar import Array, Number
from specgrad.window import Window

from .observation import Observation

LARGEST_EPS = 0.01  # a smaller number in a sum is there so that nothing is divided by zero


def faulty_outputs(observed: Observation) -> Iterator[tuple[str, list[Array]]]:
    """Yield each fault of `faulty_graphs` in words, with the results that it would give.

    >>> import numpy as np, specgrad as sg
    >>> graph = sg.trace(lambda x: sg.avg_pool(x, (2, 2), padding=((1, 0), (1, 0))), (1, 3, 3))
    >>> [text for text, _ in faulty_outputs(Observation(graph, [np.ones((1, 3, 3))], [np.ones((1, 2, 2))]))][-1]
    'avg_pool with divisor inside'
    """
    for text, graph in faulty_graphs(observed.graph):
        yield text, observed.values(graph)


def faulty_graphs(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """Yield (layer and fault in words, the graph with that fault planted).

    A bias or another constant term is lost, an eps is ten times as large, windows lie one cell further,
    an average has another divisor.
    """
    fixed = _constant_nodes(graph)
    for i, node in enumerate(graph.nodes):
        for text, other in _faulty_nodes(node, fixed):
            nodes = (*graph.nodes[:i], other, *graph.nodes[i + 1 :])
            yield f"{node.group} {text}", replace(graph, nodes=nodes)


def _constant_nodes(graph: Graph) -> frozenset[int]:
    """Return the positions of nodes that are computed from constants alone."""
    fixed: set[int] = set()
    for i, node in enumerate(graph.nodes):
        operands = node.operands()
        if node.op is CONSTANT or (operands and all(a in fixed for a in operands)):
            fixed.add(i)
    return frozenset(fixed)


def _faulty_nodes(node: Node, fixed: Collection[int]) -> Iterator[tuple[str, Node]]:
    """Yield (fault in words, the node with that fault); `fixed` are the positions of constants."""
    if node.op.name in ("conv", "conv_transpose") and len(node.args) == 3:
        yield "without its bias", replace(node, args=node.args[:2])
    if node.op.name in ("add", "sub"):
        for k, a in enumerate(node.args):
            if a in fixed and not all(b in fixed for b in node.operands()):
                yield "without its constant", _with_number(node, k, 0)
            if isinstance(a, NumberArg) and 0 < a.value < LARGEST_EPS:
                yield "with ten times its eps", _with_number(node, k, 10 * a.value)
    window = node.params.get("window")
    if isinstance(window, Window):
        for moved in window.moved():
            yield "one cell further", replace(node, params={**node.params, "window": moved})
    if node.params.get("divisor") in ("padded", "inside"):
        other = "inside" if node.params["divisor"] == "padded" else "padded"
        yield f"with divisor {other}", replace(node, params={**node.params, "divisor": other})


def _with_number(node: Node, place: int, number: Number) -> Node:
    """Return the node with `number` in place of its argument `place`."""
    return replace(node, args=(*node.args[:place], NumberArg(number), *node.args[place + 1 :]))
