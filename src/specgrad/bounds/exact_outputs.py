"""Exact outputs of a graph at one input, enclosed: the specification over balls, which hold every real result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..graph.graph import CONSTANT, INPUT, Graph, Node
from ..graph.ir.tree import leaves, transform
from ..scalar import Array, balls

WORK = 2**20  # multiply-adds and cells over balls
BITS = 200  # of a ball


def work(graph: Graph) -> int:
    """Return the number of multiply-adds, plus that of cells, of all computed nodes of the graph."""
    total = 0
    for node in graph.nodes:
        if node.op not in (INPUT, CONSTANT):
            shapes = [graph.nodes[p].shape if isinstance(p, int) else () for p in node.args]
            total += node.op.multiply_adds(*shapes, **node.params) + int(np.prod(node.shape, dtype=object))
    return total


def ball_outputs(graph: Graph, inputs: tuple[Array, ...]) -> list[Any]:
    """Return the real outputs at `inputs` (one array per input, in order) as object arrays of balls.

    Their precision is the one that python-flint is set to.
    """
    nodes = graph.nodes
    lifted = replace(graph, constants={p: _to_balls(nodes[p], x) for p, x in graph.constants.items()})
    given = (_to_balls(nodes[p], x) for p, x in zip(graph.input_positions, inputs, strict=True))
    outputs = lifted(*(transform(lambda *_: next(given), tree) for tree in graph.inputs))
    whole = leaves((outputs,) if graph.single else outputs)
    return [
        np.asarray(y, dtype=object)
        for y, p in zip(whole, graph.output_positions, strict=True)
        if graph.nodes[p].kind == "real"
    ]


def _to_balls(node: Node, x: Array) -> Array:
    """Convert the real numbers of a node to balls, whole ones too; positions stay."""
    return x if node.kind == "index" else balls(x)


def outward(numbers: list[Any], shape: tuple[int, ...], side: float) -> Array:
    """Convert `numbers`, ends of balls, to floats of this shape, rounded towards `side`, -inf or inf; an exact 0 stays
    0.
    """
    near = np.array([float(v) for v in numbers], dtype=float).reshape(shape)
    zero = np.array([v == 0 for v in numbers], dtype=bool).reshape(shape)
    return np.where(zero, 0.0, np.nextafter(near, side))
