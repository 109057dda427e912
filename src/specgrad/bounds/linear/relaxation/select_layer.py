"""Choose the bound layer of a node: linear by its traits, relaxed where a relaxation is known, opaque otherwise."""

from __future__ import annotations

from typing import Any

from specgrad.graph.graph import Graph, Node, NumberArg
from specgrad.ops.conv import CONV, CONV_TRANSPOSE
from specgrad.ops.elementwise import DIV
from specgrad.ops.max_pool import AMAX, MAX_POOL
from specgrad.ops.smooth_pool import SMOOTH_MAX_POOL
from specgrad.rounding.ball import Ball

from .bound_layers import (
    BoundConv,
    BoundIdentity,
    BoundLayer,
    BoundLinear,
    BoundMaxPool,
    BoundOpaque,
    BoundReduceMax,
    BoundUnary,
    tensor,
)
from .multi_input import BoundBilinear, BoundMaximum, BoundQuotient
from .softmax import BoundSoftmax, match_softmax


def layer_of(graph: Graph, i: int, varying: dict[int, Any], constants: dict[int, Ball]) -> BoundLayer:
    """Return the bound layer of node i, given the varying nodes and the balls of the constant ones.

    A relaxation is that of the reference function at the constants' values; what the format makes of them is an error
    of the layer (specgrad.rounding.context, or the rule of a linear operator). A condition has no such
    error: where rounding leaves it open, nothing but the interval holds.
    """
    node = graph.nodes[i]
    sources = tuple(a for a in node.operands() if a in varying)
    args = [_shape_or_value(graph, a, varying, constants) for a in node.args]
    moving = {k for k, a in enumerate(args) if isinstance(a, tuple)}
    groups = [set(g) for g in node.op.linear_groups(len(args))]
    if node.op.name == "stop_gradient" or (node.op.name == "amax" and not node.params["axes"]):
        return BoundIdentity(i, node, sources, args)
    if node.op.name == "select" and node.args[0] in constants and not constants[node.args[0]].is_exact:
        return BoundOpaque(i, node, sources)
    if node.op in (CONV, CONV_TRANSPOSE) and moving == {0}:
        return BoundConv(i, node, sources, args)
    if any(moving <= g for g in groups):
        return BoundLinear(i, node, sources, args)
    if len(moving) == 2 and all(any(k in g for g in groups) for k in moving):
        return BoundBilinear(i, node, sources, args)
    if node.op.name in ("maximum", "minimum"):
        return BoundMaximum(i, node, sources, args)
    if (parts := match_softmax(graph, i)) is not None and parts.source in varying:
        return BoundSoftmax(i, node, parts)
    if node.op is DIV and 1 in moving and node.args[0] != node.args[1]:
        return BoundQuotient(i, node, sources, args)
    return _relaxed_layer(graph, i, node, sources) if len(sources) == 1 else BoundOpaque(i, node, sources)


def _shape_or_value(graph: Graph, a: Any, varying: dict[int, Any], constants: dict[int, Ball]) -> Any:
    """Return the shape of an argument `a` that is in `varying`, else its value: the middle of its ball in `constants`,
    or a number.
    """
    if isinstance(a, NumberArg):
        return a.value
    return graph.nodes[a].shape if a in varying else tensor(constants[a].value)


def _relaxed_layer(graph: Graph, i: int, node: Node, sources: tuple[int, ...]) -> BoundLayer:
    """Bound layer of node i with one varying source, the first of `sources`: unary, max pool, amax; opaque if no
    relaxation is known.
    """
    if node.op.curve is not None:
        return BoundUnary(i, node, sources)
    if node.op in (
        MAX_POOL,
        SMOOTH_MAX_POOL,
    ):  # by identity: `largest` may stand at a minimum, whose lines are others
        return _max_pool_layer(graph, i, node, sources[0])
    if node.op is AMAX:
        return BoundReduceMax(i, node, sources[0], graph.nodes[sources[0]].shape)
    return BoundOpaque(i, node, sources)


def _max_pool_layer(graph: Graph, i: int, node: Node, source: int) -> BoundMaxPool:
    """Bound layer of a max pool, node i, of node `source`; a relu directly below it is merged into it, as one more tap
    of value 0.
    """
    before = graph.nodes[source]
    fused = node.op.name == "max_pool" and before.op.name == "relu"
    return BoundMaxPool(i, node, before.operands()[0] if fused else source, node.params["window"], fused)
