"""Record nodes of one graph in another under construction; constants of equal content become one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specgrad.graph.builder import GraphBuilder, Index, Var
from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from specgrad.graph.ir.tree import leaves, transform
from specgrad.scalar import Array

Constants = dict[Any, Var]


def record_inputs(builder: GraphBuilder, graph: Graph) -> list[Var]:
    """Record the inputs of a graph in the builder under their names, and return their variables in order."""
    pairs = zip(graph.names, graph.inputs, strict=True)
    return leaves(
        [builder.input(name, transform(lambda _, p: example_of(graph.nodes[p]), tree)) for name, tree in pairs]
    )


def example_of(node: Node) -> Any:
    """Return an array or an index of the shape and kind of an input, for tracing."""
    return Index(node.shape) if node.kind == "index" else np.empty(node.shape)


def copy_node(
    builder: GraphBuilder, constants: Constants, graph: Graph, i: int, inputs: Sequence[Var], values: Sequence[Var]
) -> Var:
    """Return node i of `graph` recorded in the builder.

    `values` are its copies of the nodes before it, `inputs` those of the graph's inputs. Constants of equal content are
    recorded once, by `constants`, which is extended.
    """
    node = graph.nodes[i]
    if node.op is INPUT:
        return inputs[graph.input_positions.index(i)]
    if node.op is CONSTANT:
        return _record_constant(builder, constants, np.asarray(graph.constants[i]), node)
    return record_node(builder, node, [x.value if isinstance(x, NumberArg) else values[x] for x in node.args])


def record_node(builder: GraphBuilder, node: Node, args: Sequence[Any]) -> Var:
    """Return `node` recorded in the builder on the arguments `args`, under its own name."""
    return builder.record(node.op, args, node.params, name=node.name, group=node.group)


def _record_constant(builder: GraphBuilder, constants: Constants, array: Array, node: Node) -> Var:
    """Return the variable of a constant `array`, recorded with the name of `node`.

    Equal content is recorded once, by `constants`.
    """
    bits = tuple(array.flat) if array.dtype == object else array.tobytes()
    key = node.kind, str(array.dtype), array.shape, node.shape, bits
    if key not in constants:
        whole = np.broadcast_to(array, node.shape)
        constants[key] = builder.constant(whole, node.name, real=node.kind == "real")
    return constants[key]
