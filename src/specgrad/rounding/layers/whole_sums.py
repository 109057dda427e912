"""A sum of more cells than memory holds: its argument is computed block by block, and each block is added up at once.

The rule of a sum is linear in what it reads of its argument: the value, what is carried in, the sizes of its terms,
what they are at least. So sums of blocks stand for the cells. Roundings are counted by the shapes of the whole graph,
of one sum in any order, wherever a block ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...deadline import check_time
from ...errors import UnsupportedError
from ...graph.graph import Graph, Node
from ...ops.layout import SUM
from ...scalar import Array
from ..arithmetic import Arithmetic
from ..ball import Ball, Expansion
from ..context import Context
from ..linear import linear_rule
from ..propagate import graph_context, node_ball, node_context, whole_call
from .shares import shares_of
from .statistics import Statistics, statistics_of


@dataclass(frozen=True, eq=False)
class GraphBlock:
    """Part of a graph, on part of the cells of its nodes.

    nodes    computed nodes by position, as they are there
    leaves   the arrays of inputs and constants that they read, by position
    """

    nodes: Mapping[int, Node]
    leaves: Mapping[int, Any]


@dataclass(frozen=True, eq=False)
class AddedUp:
    """A block after its cells were added up along the axes of a sum, which stay with length 1.

    value       of the argument
    expansion   the argument as an expression of its region
    low         what the terms are at least; None where they may be negative
    """

    value: Array
    expansion: Expansion
    low: Array | None


@dataclass(frozen=True, eq=False)
class KnownSum:
    """What is known of a sum.

    ball   its ball
    low    what it is at least; None where its terms may be negative
    """

    ball: Ball
    low: Array | None

    def at(self, positions: Sequence[Array]) -> KnownSum:
        """Return what is known at all combinations of these positions, one list per axis."""
        shape, ball, e = self.ball.shape, self.ball, self.ball.expansion

        def take(x: Any) -> Array:
            return np.asarray(x if np.ndim(x) == 0 else np.broadcast_to(x, shape)[np.ix_(*positions)])

        if shape == tuple(len(p) for p in positions):
            return self
        if e is not None:
            before = take(e.stores.before)
            e = replace(
                e,
                carried=take(e.carried),
                size=take(e.size),
                least_size=take(e.least_size),
                most=take(e.most),
                stores=replace(e.stores, before=before if before.ndim else float(before)),
                divided=None if e.divided is None else take(e.divided),
            )
        ends = None if ball.ends is None else (take(ball.ends[0]), take(ball.ends[1]))
        few = replace(ball, value=take(ball.value), radius=take(ball.radius), expansion=e, ends=ends)
        return KnownSum(few, None if self.low is None else take(self.low))


def blocks_context(graph: Graph, arithmetic: Arithmetic, backend: str) -> Context:
    """Return the context in which blocks of a graph are computed."""
    return replace(graph_context(graph, arithmetic, backend), blocks=True)


def _with_groups(graph: Graph, context: Context) -> tuple[Context, Statistics]:
    """Return the context for another block, of whose statistics nothing is known yet, and these."""
    statistics = statistics_of(graph)
    return replace(context, groups=(statistics, shares_of(graph))), statistics


def can_be_added_up(graph: Graph, at: int) -> bool:
    """Return whether the node is a sum that `add_up_blocks` takes: not one of which single terms say more, as
    of the mean and of the squares of a normalisation.
    """
    statistics = statistics_of(graph)
    return graph.nodes[at].op is SUM and at not in statistics.sums and at not in statistics.means


def ball_behind_sums(
    graph: Graph, block: GraphBlock, context: Context, known: Mapping[int, KnownSum], wanted: int
) -> Ball:
    """Return the ball of the node `wanted` of a graph on a block, given sums that are `known`."""
    fresh, statistics = _with_groups(graph, context)
    statistics.lows.update((p, s.low) for p, s in known.items() if s.low is not None)
    return _ball_on_block(graph, block, fresh, {p: s.ball for p, s in known.items()}, wanted)


def _ball_on_block(graph: Graph, block: GraphBlock, context: Context, known: Mapping[int, Ball], wanted: int) -> Ball:
    """Return the ball of the node `wanted` of a graph on a block, given some that are `known`, by position."""
    last = {a: p for p in sorted(block.nodes) for a in block.nodes[p].operands()}
    balls = dict(known)
    for p in sorted({*block.nodes, *block.leaves}):
        if p in block.leaves:
            balls[p] = context.stored(block.leaves[p], index=graph.nodes[p].kind == "index")
            continue
        node = block.nodes[p]
        balls[p] = node_ball(graph, p, node, balls, {}, context)
        for a in node.operands():
            if last[a] == p and a != wanted:
                balls.pop(a, None)
    return balls[wanted]


def add_up_blocks(graph: Graph, at: int, axis: int, blocks: Iterable[GraphBlock], context: Context) -> KnownSum:
    """Return what is known of node `at`, a sum, whose argument comes in `blocks` along one of its axes.

    UnsupportedError where the terms of one block have met other roundings than those of another.
    """
    node = graph.nodes[at]
    (source,) = node.operands()
    parts = []
    for block in blocks:
        check_time("rounding")
        fresh, statistics = _with_groups(graph, context)
        ball = _ball_on_block(graph, block, fresh, {}, source)
        with np.errstate(all="ignore"):
            parts.append(_added_up(graph, at, ball, fresh, statistics))
    return _sum_of_parts(graph, at, axis, parts, context)


def _added_up(graph: Graph, at: int, ball: Ball, context: Context, statistics: Statistics) -> AddedUp:
    """Return the argument of the sum `at`, on a block, after its cells were added up."""
    node = graph.nodes[at]
    _call_whole(graph, at, context)
    region = context.arithmetic.fused and context.call.linear_group(node.op, 1) is not None
    part = context.expansion_of(ball, 0, region)
    axes = tuple(node.params["axes"])

    def add(x: Array) -> Array:
        return np.asarray(np.broadcast_to(x, ball.shape).sum(axes, keepdims=True))

    expansion = replace(
        part,
        carried=add(part.carried),
        size=add(part.size),
        least_size=add(part.least_size),
        most=part.most if part.most.ndim == 0 else add(part.most),
        stores=replace(part.stores, before=float(np.max(part.stores.before))),
        divided=None if part.divided is None else np.max(part.divided, initial=1.0),
    )
    low = statistics.low_of_terms(context, node, ball)
    return AddedUp(add(ball.value), expansion, None if low is None else add(low))


def _sum_of_parts(graph: Graph, at: int, axis: int, parts: list[AddedUp], context: Context) -> KnownSum:
    """Return what is known of the sum `at`, whose argument was added up block by block along `axis`.

    UnsupportedError where blocks are known in different ways.
    """
    node = graph.nodes[at]
    _call_whole(graph, at, context)
    each = [p.expansion for p in parts]
    met = {(e.count, e.stores.terms, e.stores.value, e.stores.reads, e.stores.common) for e in each}
    if len(met) > 1:
        raise UnsupportedError(node.name, "its terms have not met the same roundings in all blocks")
    apart = any(e.most.ndim for e in each)  # bounds of single cells: one for all cells of a block would be no sum
    if apart and not all(e.most.ndim for e in each):
        raise UnsupportedError(node.name, "its terms are bounded one by one in some blocks, and together in others")

    def join(arrays: list[Array]) -> Array:
        return np.concatenate(arrays, axis)

    expansion = replace(
        each[0],
        carried=join([e.carried for e in each]),
        size=join([e.size for e in each]),
        least_size=join([e.least_size for e in each]),
        most=join([e.most for e in each]) if apart else np.max([e.most for e in each]),
        stores=replace(each[0].stores, before=max(float(np.max(e.stores.before)) for e in each)),
        divided=None if any(e.divided is None for e in each) else np.max([e.divided for e in each]),
    )
    value = join([p.value for p in parts])
    with np.errstate(all="ignore"):
        ball = linear_rule(context, node.op, [Ball(value, expansion.carried)], node.params, parts=[expansion])
    lows = [p.low for p in parts if p.low is not None]
    if len(lows) < len(parts):
        return KnownSum(ball, None)
    _, statistics = _with_groups(graph, context)
    ball = statistics.ball_of_sum(context, node, at, ball, join(lows).sum(tuple(node.params["axes"])))
    return KnownSum(ball, statistics.lows[at])


def _call_whole(graph: Graph, at: int, context: Context) -> None:
    """Set the context's call to the sum `at`, whole."""
    context.call = replace(node_context(graph, at, context.constants), whole=whole_call(graph, at))
