"""Subgraphs: the part of a graph from known values to one node."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from ..op import Op
from .graph import CONSTANT, INPUT, Graph, Node, NumberArg


def needed(graph: Graph, position: int, known: Collection[int]) -> list[int]:
    """Return the positions between the known ones and `position`, both included, in order."""
    positions, stack = {position}, [position]
    while stack:
        at = stack.pop()
        if at != position and at in known:
            continue
        for a in graph.nodes[at].operands():
            if a not in positions:
                positions.add(a)
                stack.append(a)
    return sorted(positions)


def section(graph: Graph, position: int, known: Collection[int]) -> tuple[Graph, list[int]]:
    """Return the graph that computes one node from the nearest known nodes, and the positions of those, its inputs.

    >>> import specgrad as sg
    >>> g = sg.trace(lambda x: sg.relu(sg.neg(sg.exp(x))), (2,))
    >>> part, inputs = section(g, 3, {0, 1})
    >>> inputs, [n.op.name for n in part.nodes]
    ([1], ['input', 'neg', 'relu'])
    """
    positions = needed(graph, position, known)
    place = {old: new for new, old in enumerate(positions)}
    inputs = [p for p in positions if graph.nodes[p].op is INPUT or (p in known and p != position)]
    nodes = tuple(_renumbered(graph.nodes[p], place, p in inputs) for p in positions)
    constants = {place[p]: graph.constants[p] for p in positions if p not in inputs and graph.nodes[p].op is CONSTANT}
    names = tuple(nodes[place[p]].name for p in inputs)
    where = tuple(place[p] for p in inputs)
    return Graph(nodes, names, where, (place[position],), True, constants), inputs


def _renumbered(node: Node, place: dict[int, int], is_input: bool) -> Node:
    """Return a node with arguments at their new positions, or as an input of the subgraph."""
    if is_input:
        return Node(INPUT, (), {}, node.shape, node.kind, node.name, node.name)
    return replace(node, args=tuple(a if isinstance(a, NumberArg) else place[a] for a in node.args))


def broadcast_back(graph: Graph, end: int, op: Op, source: int, layout: Collection[Op]) -> tuple[int, ...] | None:
    """Return the nodes from a reduction `op` of `source` to `end`, if they broadcast it along the reduced axes.

    None if they do not. It is tried: distinct numbers in the place of the results must stand where they were reduced.
    """
    chain = [end]
    while graph.nodes[chain[-1]].op in layout:
        chain += graph.nodes[chain[-1]].operands()
    at = graph.nodes[chain[-1]]
    if at.op is not op or at.operands() != (source,):
        return None
    shape = graph.nodes[source].shape
    number = np.arange(float(np.prod(at.shape))).reshape(at.shape)
    laid = number if len(chain) == 1 else np.asarray(section(graph, end, {chain[-1]})[0](number))
    kept = tuple(1 if a in at.params["axes"] else n for a, n in enumerate(shape))
    same = laid.shape == shape and (laid == np.broadcast_to(number.reshape(kept), shape)).all()
    return tuple(reversed(chain)) if same else None
