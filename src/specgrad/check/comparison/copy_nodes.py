"""Nodes of one graph recorded in another, as they stand: constants that hold the same are one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specgrad.graph.builder import GraphBuilder, Index, Var
from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from specgrad.graph.ir.tree import leaves, transform
from specgrad.scalar import Array

Constants = dict[Any, Var]


def entered(builder: GraphBuilder, graph: Graph) -> list[Var]:
    """The inputs of a graph, under their names."""
    pairs = zip(graph.names, graph.inputs, strict=True)
    return leaves([builder.input(name, transform(lambda _, p: _example(graph.nodes[p]), tree)) for name, tree in pairs])


def _example(node: Node) -> Any:
    return Index(node.shape) if node.kind == "index" else np.empty(node.shape)


def plain(
    builder: GraphBuilder, constants: Constants, graph: Graph, i: int, inputs: Sequence[Var], values: Sequence[Var]
) -> Var:
    """Node i, where the nodes before it are `values`."""
    node = graph.nodes[i]
    if node.op is INPUT:
        return inputs[graph.input_positions.index(i)]
    if node.op is CONSTANT:
        return _constant(builder, constants, np.asarray(graph.constants[i]), node)
    return record(builder, node, [x.value if isinstance(x, NumberArg) else values[x] for x in node.args])


def record(builder: GraphBuilder, node: Node, args: Sequence[Any]) -> Var:
    """The node on other arguments, under its name."""
    return builder.record(node.op, args, node.params, name=node.name, group=node.group)


def _constant(builder: GraphBuilder, constants: Constants, array: Array, node: Node) -> Var:
    bits = tuple(array.flat) if array.dtype == object else array.tobytes()
    key = node.kind, str(array.dtype), array.shape, node.shape, bits
    if key not in constants:
        whole = np.broadcast_to(array, node.shape)
        constants[key] = builder.constant(whole, node.name, real=node.kind == "real")
    return constants[key]
