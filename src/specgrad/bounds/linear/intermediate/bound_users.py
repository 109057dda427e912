"""Users of a node's interval, and the cells of it that a tighter interval would help."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from specgrad.graph.graph import INPUT, Graph, Node
from specgrad.op import apply
from specgrad.ops.activation import RELU
from specgrad.ops.contract import CONTRACT
from specgrad.ops.elementwise import SIGN, cellwise
from specgrad.ops.integer_rounding import CEIL, FLOOR, ROUND
from specgrad.ops.max_pool import MAX_POOL
from specgrad.scalar import Array

from ..relaxation.bound_layers import BoundMaxPool, tensor

MAX_LINEAR_BULGE = 2.0**-9  # a function that bends less than this share of the box's width is as good as a line


def range_readers(graph: Graph) -> dict[int, list[Node]]:
    """Nodes that use the interval of each node, by its position; max_pool reads through a relu, linear layers read
    none.
    """
    readers: dict[int, list[Node]] = {}
    varying: set[int] = set()
    for i, node in enumerate(graph.nodes):
        moving = {k for k, a in enumerate(node.args) if isinstance(a, int) and a in varying}
        if moving or node.op is INPUT:
            varying.add(i)
        if not reads_range(node) or any(moving <= set(g) for g in node.op.linear_groups(len(node.args))):
            continue
        for a in node.operands():
            through = node.op is MAX_POOL and graph.nodes[a].op is RELU
            readers.setdefault(graph.nodes[a].operands()[0] if through else a, []).append(node)
    return readers


def reads_range(node: Node) -> bool:
    """Return whether the relaxation of `node` needs bounds of its inputs: unary functions, maxima, selections,
    products.
    """
    op = node.op
    product = (op.receptive_field is cellwise or op is CONTRACT) and op.linear not in ((), "all") and not op.exact
    return op.curve is not None or op.largest or op.jumps or product


def open_cells(readers: Sequence[Node], low: Array, high: Array) -> Array:
    """Bool mask of the cells whose tighter interval would improve some reader's relaxation."""
    return np.asarray(np.any([_open_for(node, low, high) for node in readers], axis=0))


def _open_for(node: Node, low: Array, high: Array) -> Array:
    """Bool mask of the cells whose tighter interval would improve the relaxation of `node`.

    That is where a kink or a jump lies inside, the function bends noticeably, or a maximum has several possible
    winners; for other operators, every cell that varies.
    """
    curve = node.op.curve
    if node.op is MAX_POOL:
        return contenders(node, low, high)
    if node.op in (FLOOR, CEIL, ROUND):
        return np.asarray(apply(node.op, high) > apply(node.op, low))
    if curve is None and node.op is not SIGN:
        return np.asarray(high > low)
    kinks = (0,) if curve is None else curve.kinks(node.params)
    inside = np.any([(low < float(k)) & (high > float(k)) for k in kinks], axis=0) if kinks else low > high
    if curve is None or curve.pieces(node.params) is not None:
        return np.asarray(inside)
    assert curve.curvature is not None  # what `pieces` looks at
    with np.errstate(all="ignore"):
        bulge = curve.curvature(np, low, high, node.params) * (high - low) ** 2 / 8
        return np.asarray(inside | ~(bulge <= MAX_LINEAR_BULGE * (high - low)))


def contenders(node: Node, low: Array, high: Array) -> Array:
    """Bool mask of cells that may win a window of max_pool which another cell may win too.

    >>> import specgrad as sg
    >>> pool = sg.trace(lambda x: sg.max_pool(x, (2,), stride=2), (1, 4)).nodes[-1]
    >>> contenders(pool, np.array([[0.0, 3.0, 0.0, 1.0]]), np.array([[2.0, 4.0, 2.0, 3.0]])).tolist()
    [[False, False, True, True]]
    """
    taps, cells = BoundMaxPool(0, node, 0, node.params["window"], False), math.prod(node.params["window"].size)
    lows, highs = (taps.read(tensor(end).reshape(-1, *taps.window.size)) for end in (low, high))
    inside = taps.inside(lows)
    lows = torch.where(inside, lows, -torch.inf)
    best, at = lows.max(0, keepdim=True)
    others = best.expand_as(lows).scatter(0, at, lows.scatter(0, at, -torch.inf).amax(0, keepdim=True))
    wins = inside & (highs > others)
    open_ = (wins & (wins.sum(0) > 1)).movedim(0, 1).flatten(1).double()  # (planes, taps*out)
    total = open_.new_zeros((len(open_), cells + 1)).index_add_(1, taps.index.flatten(), open_)
    return np.asarray(total[:, :cells].numpy().reshape(low.shape) > 0)
