"""How crown walks a graph, and how an objective goes down from its outputs.

The graph is walked once. Before a relaxation is made, the box of its input is narrowed by a backward pass of its own
where intervals leave something open; then the objective goes down from the outputs (specgrad.bounds.backward).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ..graph.graph import Graph
from ..scalar import Array
from . import relax
from .backward import SUMS, U, backward
from .crown import real_outputs
from .forward import Forward, signs_of
from .gaps import find_gaps
from .layers import Opaque, Taps, rows_dot, tensor
from .patches import patch_narrow
from .slopes import optimised
from .winners import narrow_winner

CHUNK = 1 << 24  # cells of an objective at its widest node that are held at once


# --- the walk ---------------------------------------------------------------------------------------------------------

SIGN_ALONE = {"relu", "abs", "leaky_relu", "sign"}  # below and above 0 they are linear: only the sign matters
READERS = SIGN_ALONE | relax.CELLS.keys() | {"max_pool", "smooth_max_pool", "amax", "maximum", "minimum", "mul", "div"}
READERS |= {"greater", "greater_equal", "less", "equal", "winner"}


@torch.no_grad()
def walk(forward: Forward, splits: Mapping[int, Array]) -> None:
    """Every node in order, with narrower boxes where a relaxation or a choice will read them."""
    readers = readers_of(forward.graph)
    for i in range(len(forward.graph.nodes)):
        forward.visit(i)
        if READERS & readers.get(i, set()) and not forward.unbounded:
            narrow(forward, i, readers[i] & READERS <= SIGN_ALONE)
        layer = forward.layers.get(i)
        if isinstance(layer, Taps) and not forward.unbounded:
            layer.gaps = find_gaps(forward.state, layer)
        if forward.graph.nodes[i].op.name == "winner" and not forward.unbounded:
            narrow_winner(forward, i)
        if i in splits:
            forward.narrow(i, *signs_of(splits[i], *forward.ends(i)))


def readers_of(graph: Graph) -> dict[int, set[str]]:
    """Names of the operators that read a node; max_pool reads through a relu."""
    found: dict[int, set[str]] = {}
    for node in graph.nodes:
        for a in node.operands():
            through = node.op.name == "max_pool" and graph.nodes[a].op.name == "relu"
            found.setdefault(graph.nodes[a].operands()[0] if through else a, set()).add(node.op.name)
    return found


def narrow(forward: Forward, i: int, sign_alone: bool) -> None:
    """A backward pass from every cell of node i that intervals leave open."""
    if i not in forward.layers or forward.depth[i] < 2 or isinstance(forward.layers[i], Opaque):
        return
    low, high = forward.ends(i)
    open_ = (low < 0) & (high > 0) if sign_alone else high > low
    if open_.any():
        if not patch_narrow(forward.state, i, open_, low, high):
            dense_narrow(forward, i, np.flatnonzero(open_), low.reshape(-1), high.reshape(-1))
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
        found = backward(forward.state, {i: torch.cat([seeds, -seeds], 1).view(1, -1, *shape)})[0].numpy()
        low[chosen] = np.maximum(low[chosen], found[: len(chosen)])
        high[chosen] = np.minimum(high[chosen], -found[len(chosen) :])


# --- the objective ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def output_ends(forward: Forward, rows: Array, steps: int = 0) -> tuple[Array, Array]:
    """Low and high of every row."""
    if forward.unbounded or not len(rows):
        nothing = np.full(len(rows), np.inf)
        return -nothing, nothing
    found = objective_low(forward, tensor(np.concatenate([rows, -rows]))[None], steps).numpy()[0]
    return found[: len(rows)], -found[len(rows) :]


def objective_low(forward: Forward, rows: Tensor, steps: int = 0) -> Tensor:
    """Lower bounds (boxes, rows) of rows (boxes, rows, outputs)."""
    fixed, slack = rows.new_zeros(rows.shape[:2]), rows.new_zeros(rows.shape[:2])
    seeds: dict[int, Tensor] = {}
    start = 0
    for p in real_outputs(forward.graph):
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
            slack = slack + rows_dot(part.abs(), radius + 4 * (ball.value.size + 4) * U * value.abs())
    found = 0 * fixed
    if seeds:
        found = optimised(forward.state, seeds, steps) if steps else backward(forward.state, seeds)
    return found + fixed - slack * SUMS - 4 * U * (found.abs() + fixed.abs())
