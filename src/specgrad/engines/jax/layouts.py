"""Which values of a compiled graph lie with the channels last, on a CPU: images between the convolutions that read so.

A convolution gives its images channels last (`conv_last`), and what works on every cell, on every channel or over
whole axes leaves them so; any other operator gets them channels first. Nothing that a graph means changes: `Last` is
how a value lies in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specgrad.graph.graph import Graph, Node, NumberArg
from specgrad.op import Op
from specgrad.ops.avg_pool import AVG_POOL, AVG_SPREAD
from specgrad.ops.conv import CONV, CONV_TRANSPOSE, CONV_WEIGHT
from specgrad.ops.elementwise import cellwise
from specgrad.ops.layout import CONCAT, PAD, SUM
from specgrad.ops.max_pool import MAX_POOL
from specgrad.window import Shape

from ..base import Kernel, number
from . import conv_last, pool
from .conv_last import to_first, to_last
from .custom_rules import linear
from .lowerings import ENGINE

Array = jax.Array
Step = Callable[[list[Any]], Any]


class Last(NamedTuple):
    """A value (N, C, *spatial) that lies as `cells`, (N, *spatial, C)."""

    cells: Array


def first(value: Any) -> Array:
    """Return a value channels first, however it lies."""
    return to_first(value.cells) if isinstance(value, Last) else value


def last(value: Any) -> Array:
    """Return a value channels last, however it lies."""
    return value.cells if isinstance(value, Last) else to_last(value)


CONVOLUTIONS = {
    CONV: linear(CONV.name, conv_last.conv, leading=(0,)),
    CONV_TRANSPOSE: linear(CONV_TRANSPOSE.name, conv_last.conv_transpose, leading=(0,)),
    CONV_WEIGHT: linear(CONV_WEIGHT.name, conv_last.conv_weight, leading=()),
}
POOLS: dict[Op, Kernel] = {MAX_POOL: pool.max_pool, AVG_POOL: pool.avg_pool, AVG_SPREAD: pool.avg_spread}


def turned_steps(graph: Graph, others: Container[int]) -> dict[int, Step]:
    """Return the nodes, by position, that give or take images channels last, as functions from all values so far.

    `others` have steps of their own, which leave what they read as it lies.
    """
    if not pool.on_cpu():
        return {}
    steps: dict[int, Step] = {}
    lies_last: set[int] = set()
    for i, node in enumerate(graph.nodes):
        if i in others:
            lies_last.update([i] if lies_last.intersection(node.operands()) else [])
            continue
        step = _step(node, [graph.nodes[a].shape for a in node.operands()], not lies_last.isdisjoint(node.operands()))
        if step is not None:
            steps[i] = step
            lies_last.update([] if node.op in (CONV_WEIGHT, SUM) else [i])
    return steps


def _step(node: Node, shapes: Sequence[Shape], reads_last: bool) -> Step | None:
    """Return the step of a node whose arguments but numbers have these shapes, and of which one may lie channels last;
    None: channels first.
    """
    op, at = node.op, node.operands()
    if op in CONVOLUTIONS:
        return _convolution(node, shapes)
    if not reads_last:
        return None
    if op.receptive_field is cellwise and all(s == node.shape for s in shapes):
        return _cellwise(node)
    if op is SUM:
        return partial(_sum, at=at[0], axes=node.params["axes"], rank=len(shapes[0]))
    if op is CONCAT:
        axis = _place(node.params["axis"], len(node.shape))
        return lambda values: Last(lax.concatenate([last(values[a]) for a in at], axis))
    if op is PAD:
        widths = turned(node.params["widths"])
        return lambda values: Last(_zero_padded(last(values[at[0]]), widths))
    if op in POOLS and len(node.shape) == node.params["window"].rank + 2:
        compute = partial(POOLS[op], **node.params, behind=1)
        return lambda values: Last(compute(last(values[at[0]])))
    return None


def turned(axes: Sequence[Any]) -> tuple[Any, ...]:
    """Return what belongs to (N, C, *spatial), axis by axis, for (N, *spatial, C)."""
    return (axes[0], *axes[2:], axes[1])


def _place(axis: int, rank: int) -> int:
    """Return where an axis of (N, C, *spatial), `rank` axes, is in (N, *spatial, C)."""
    return turned(range(rank)).index(axis)


def _convolution(node: Node, shapes: Sequence[Shape]) -> Step | None:
    """Return the step of a convolution or of one of its adjoints; None if it is not computed channels last."""
    at, is_weight = node.operands(), node.op is CONV_WEIGHT
    if not conv_last.fits(shapes[0], node.shape if is_weight else shapes[1], **node.params):
        return None
    compute = CONVOLUTIONS[node.op](*shapes, **node.params)
    if is_weight:
        return lambda values: compute(*[first(values[a]) for a in at])
    return lambda values: Last(to_last(compute(*[first(values[a]) for a in at])))


def _cellwise(node: Node) -> Step:
    """Return the step of an operator that works on every cell by itself, by its own kernel."""
    shape_of = [() if isinstance(a, NumberArg) else turned(node.shape) for a in node.args]
    compute = ENGINE.kernel_for(node.op, shape_of, node.params)
    args = [(number(a.value), None) if isinstance(a, NumberArg) else (None, a) for a in node.args]
    return lambda values: Last(compute(*[given if at is None else last(values[at]) for given, at in args]))


def _sum(values: list[Any], *, at: int, axes: Shape, rank: int) -> Array:
    """Return the sum over axes, which are given channels first, as is the result."""
    y = jnp.sum(last(values[at]), axis=tuple(_place(a, rank) for a in axes))
    left = [a for a in turned(range(rank)) if a not in axes]
    return lax.transpose(y, [left.index(a) for a in sorted(left)])


def _zero_padded(x: Array, widths: Sequence[tuple[int, int, int]]) -> Array:
    """Return x padded with zeros, (low, high, gap) per axis."""
    return lax.pad(x, jnp.zeros((), x.dtype), widths)
