"""How crown walks a graph, and how an objective goes down from its outputs.

The graph is walked once. Before a relaxation is made, the box of its input is narrowed by a backward pass of its own
where intervals leave something open; then the objective goes down from the outputs (specgrad.bounds.linear.backward).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ...graph.graph import Graph, Node
from ...ops.activation import RELU
from ...ops.elementwise import SIGN, cellwise
from ...ops.max_pool import MAX_POOL
from ...rounding.ledger import LINE
from ...scalar import Array
from .backward import SUMS, backward
from .gaps import find_gaps
from .layers import Opaque, Taps, rows_dot, tensor
from .network import Forward, signs_of
from .optimise import optimised
from .patches import patch_narrow
from .winners import narrow_winner

CHUNK = 1 << 24  # cells of an objective at its widest node that are held at once


# --- the walk ---------------------------------------------------------------------------------------------------------


def reads_range(node: Node) -> bool:
    """Whoever is not linear: functions of one cell, maxima, choices, products of cells."""
    op = node.op
    product = op.reach is cellwise and op.linear not in ((), "all") and not op.exact
    return op.curve is not None or op.largest or op.jumps or product


def reads_sign_alone(node: Node) -> bool:
    """Below and above 0 they are linear, or constant: only the sign matters."""
    return node.op is SIGN or (node.op.curve is not None and node.op.curve.sign_alone(node.params))


@torch.no_grad()
def walk(forward: Forward, splits: Mapping[int, Array]) -> None:
    """Every node in order, with narrower boxes where a relaxation or a choice will read them."""
    readers = readers_of(forward.graph)
    for i in range(len(forward.graph.nodes)):
        forward.visit(i)
        if i in readers and not forward.unbounded:
            narrow(forward, i, all(map(reads_sign_alone, readers[i])))
        layer = forward.layers.get(i)
        if isinstance(layer, Taps) and not forward.unbounded:
            layer.gaps = find_gaps(forward.state, layer)
        if forward.graph.nodes[i].op.name == "winner" and not forward.unbounded:
            narrow_winner(forward, i)
        if i in splits:
            forward.narrow(i, *signs_of(splits[i], *forward.ends(i)))


def readers_of(graph: Graph) -> dict[int, list[Node]]:
    """Who reads the range of a node; max_pool reads through a relu."""
    readers: dict[int, list[Node]] = {}
    for node in filter(reads_range, graph.nodes):
        for a in node.operands():
            through = node.op is MAX_POOL and graph.nodes[a].op is RELU
            readers.setdefault(graph.nodes[a].operands()[0] if through else a, []).append(node)
    return readers


def narrow(forward: Forward, i: int, sign_alone: bool) -> None:
    """A backward pass from every cell of node i that intervals leave open."""
    if i not in forward.layers or forward.depth[i] < 2 or isinstance(forward.layers[i], Opaque):
        return
    low, high = forward.ends(i)
    unstable = (low < 0) & (high > 0) if sign_alone else high > low
    if unstable.any():
        if not patch_narrow(forward.state, i, unstable, low, high):
            dense_narrow(forward, i, np.flatnonzero(unstable), low.reshape(-1), high.reshape(-1))
        forward.narrow(i, low, high)


def dense_narrow(forward: Forward, i: int, cells: Array, low: Array, high: Array) -> None:
    """Whole rows, chunk by chunk; low and high are flat and updated in place."""
    shape = forward.graph.nodes[i].shape
    widest = max(math.prod(layer.node.shape) for layer in forward.layers.values())
    step = max(1, CHUNK // (2 * widest))
    for start in range(0, len(cells), step):
        chosen = cells[start : start + step]
        seeds = torch.zeros((1, len(chosen), len(low)), dtype=torch.float64)
        seeds[0, torch.arange(len(chosen)), torch.from_numpy(chosen)] = 1.0
        lower = backward(forward.state, {i: torch.cat([seeds, -seeds], 1).view(1, -1, *shape)})[0].numpy()
        low[chosen] = np.maximum(low[chosen], lower[: len(chosen)])
        high[chosen] = np.minimum(high[chosen], -lower[len(chosen) :])


# --- the objective ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def output_ends(forward: Forward, rows: Array, steps: int = 0) -> tuple[Array, Array]:
    """Low and high of every row."""
    if forward.unbounded or not len(rows):
        nothing = np.full(len(rows), np.inf)
        return -nothing, nothing
    lower = objective_low(forward, tensor(np.concatenate([rows, -rows]))[None], steps).numpy()[0]
    return lower[: len(rows)], -lower[len(rows) :]


def objective_low(forward: Forward, rows: Tensor, steps: int = 0) -> Tensor:
    """Lower bounds (boxes, rows) of rows (boxes, rows, outputs)."""
    fixed, slack = rows.new_zeros(rows.shape[:2]), rows.new_zeros(rows.shape[:2])
    seeds: dict[int, Tensor] = {}
    start = 0
    for p in forward.graph.real_outputs:
        ball = forward.balls[p]
        part = rows[:, :, start : start + ball.value.size]
        start += ball.value.size
        if p in forward.layers:
            slack = slack + forward.slack(p, part)
            seed = part.reshape(*part.shape[:2], *ball.shape)
            seeds[p] = seeds[p] + seed if p in seeds else seed
        else:
            value, radius = tensor(ball.value).reshape(1, -1), tensor(ball.radius).reshape(1, -1)
            fixed = fixed + rows_dot(part, value)
            slack = slack + rows_dot(part.abs(), radius + LINE * (ball.value.size + 4) * value.abs())
    lower = 0 * fixed
    if seeds:
        lower = optimised(forward.state, seeds, steps) if steps else backward(forward.state, seeds)
    return lower + fixed - slack * SUMS - LINE * (lower.abs() + fixed.abs())
