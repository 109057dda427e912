"""Faults that layers often have, as graphs of the same shape: what a wide ball must be able to tell from the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..graph.graph import CONSTANT, Graph, Node, NumberArg
from ..scalar import Array
from ..window import Window
from .seen import Seen


def usual_faults(seen: Seen) -> Iterator[tuple[str, list[Array]]]:
    """In words, and what would come out: a bias lost, windows one cell further, another divisor.

    >>> import numpy as np, specgrad as sg
    >>> graph = sg.trace(lambda x: sg.avg_pool(x, (2, 2), padding=((1, 0), (1, 0))), (1, 3, 3))
    >>> [text for text, _ in usual_faults(Seen(graph, [np.ones((1, 3, 3))], [np.ones((1, 2, 2))]))][-1]
    'avg_pool with divisor inside'
    """
    for i, node in enumerate(seen.graph.nodes):
        for text, other in _changed(seen.graph, node):
            nodes = (*seen.graph.nodes[:i], other, *seen.graph.nodes[i + 1 :])
            yield f"{node.op.name} {text}", seen.values(replace(seen.graph, nodes=nodes))


def _changed(graph: Graph, node: Node) -> Iterator[tuple[str, Node]]:
    if node.op.name in ("conv", "conv_transpose") and len(node.args) == 3:
        yield "without its bias", replace(node, args=node.args[:2])
    if node.op.name in ("add", "sub"):
        for k, a in enumerate(node.args):
            if not isinstance(a, NumberArg) and graph.nodes[a].op is CONSTANT:
                args = tuple(NumberArg(0) if j == k else b for j, b in enumerate(node.args))
                yield "without its constant", replace(node, args=args)
    window = node.params.get("window")
    if isinstance(window, Window):
        for moved in window.moved():
            yield "one cell further", replace(node, params={**node.params, "window": moved})
    if node.params.get("divisor") in ("padded", "inside"):
        other = "inside" if node.params["divisor"] == "padded" else "padded"
        yield f"with divisor {other}", replace(node, params={**node.params, "divisor": other})
