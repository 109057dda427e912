"""Deviation of a node's values that are recomputed from deviating arguments.

abs(f(x + d) - f(x)) for any x and x + d of the ranges and abs(d) <= apart: at most the steepest slope of f there times
`apart`, and never more than the range of the result is wide. A staircase (floor, ceil, round) has at most
floor(apart) + 1 steps on the way if x and x + d are not the same, and sign has two; a subnormal number that some reader
counts as zero is one step of them.

`context` (specgrad.rounding.context) is what rules read besides their arguments, and add to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from specgrad.graph.graph import Node
from specgrad.ops.elementwise import SIGN
from specgrad.ops.integer_rounding import CEIL, FLOOR, ROUND
from specgrad.ops.max_pool import MAX_POOL
from specgrad.rounding.ball import SLACK, Ball
from specgrad.rounding.context import Context
from specgrad.scalar import Array


def output_deviation(context: Context, node: Node, balls: Sequence[Ball], apart: Mapping[int, Array], i: int) -> Array:
    """Bound per cell of abs(f(x') - f(x)) at node i, given deviations `apart` of its arguments by position.

    `balls` are the ranges of all nodes. It is never more than the width of node i's range.
    """
    widest = np.where(np.isfinite(balls[i].high - balls[i].low), balls[i].high - balls[i].low, np.inf)
    reads = [apart.get(a, np.zeros(balls[a].shape)) for a in node.operands()]
    with np.errstate(all="ignore"):
        by_slope = _deviation_by_slope(context, node, balls, reads)
    return np.asarray(widest if by_slope is None else np.fmin(np.broadcast_to(by_slope, node.shape), widest)) * SLACK


def _deviation_by_slope(context: Context, node: Node, balls: Sequence[Ball], reads: Sequence[Array]) -> Array | None:
    """Deviation of the result by the function's largest slope; None if it has no known one.

    `reads` are the deviations of the node's arguments, in order; `balls` the ranges of all nodes.
    """
    op = node.op
    if op in (FLOOR, CEIL, ROUND, SIGN):
        return _deviation_by_steps(context, node, balls[node.operands()[0]], reads[0])
    steepest = op.curve.steepest if op.curve is not None else None
    if not any(r.any() for r in reads) and (steepest is not None or op.largest):
        return np.zeros(node.shape)
    if steepest is not None:
        x = balls[node.operands()[0]]
        return np.asarray(steepest(np, x.low, x.high, node.params) * reads[0] * SLACK)
    if "window" in node.params and op.largest:
        return context.evaluate(MAX_POOL, [reads[0]], {"window": node.params["window"]})
    if "axes" in node.params and op.largest:
        return np.asarray(np.max(reads[0], axis=node.params["axes"], keepdims=True)).reshape(node.shape)
    if op.largest:
        return np.asarray(reduce(np.maximum, reads))
    if op.name == "select" and isinstance(node.args[0], int) and len(reads) == len(node.args):
        chosen = balls[node.args[0]]
        decided = np.where(chosen.value != 0, reads[1], reads[2])
        return np.where(chosen.radius == 0, decided, np.inf)
    return None


def _deviation_by_steps(context: Context, node: Node, x: Ball, apart: Array) -> Array:
    """Deviation of a step function: the number of steps between two values of its argument, which are `apart` so far;
    with `context`'s arithmetic, subnormal arguments may be flushed to 0 first.
    """
    tiny = context.arithmetic.tiny if context.arithmetic.flush else 0.0
    below, above = (x.low < 0) & (x.high > -tiny), (x.high > 0) & (x.low < tiny)
    flushed = {FLOOR: below, CEIL: above, SIGN: below | above}.get(node.op, False)
    steps = 2.0 if node.op is SIGN else np.floor((apart + tiny) * SLACK) + 1
    return np.where(apart > 0, steps, np.where(flushed, 1.0, 0.0))
