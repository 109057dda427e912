"""How crown walks a graph, and how an objective goes down from its outputs.

The graph is walked once. Before a relaxation is made, the box of its input is narrowed by a backward pass of its own
where intervals leave something open; then the objective goes down from the outputs
(specgrad.bounds.linear.propagation.backward).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from specgrad.graph.graph import Node
from specgrad.rounding.slack_constants import LINE
from specgrad.scalar import Array

from ..propagation.backward import SUMS, State, backward, both_ends, swept
from ..propagation.optimise_alpha import optimised
from ..propagation.patches import patch_narrow
from ..propagation.tap_gaps import find_gaps
from ..relaxation.bound_layers import BoundMaxPool, BoundOpaque, rows_dot, tensor
from .argmax_candidates import narrow_winner
from .bound_users import open_cells, readers_of
from .forward_pass import ForwardPass, signs_of

CHUNK = 1 << 20  # cells of an objective at its widest node that are held at once: 8 MB, which the heap hands out again
RUNGS = (2, 5)  # relaxations that a short pass goes through
WIDE = 0.05  # of twice its middle: such a box is narrowed by the shortest pass too, for the layers above
WORTHWHILE = 0.25  # the share of cells that a short pass closed the last time, for the next to be made


# --- the walk ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def walk(
    forward: ForwardPass, splits: Mapping[int, Array], known: Mapping[int, tuple[Array, Array]] | None = None
) -> None:
    """Every node in order, with narrower boxes where a relaxation or a choice will read them.

    known   ends of nodes that are known to hold
    """
    readers = readers_of(forward.graph)
    for i in range(len(forward.graph.nodes)):
        forward.visit(i)
        if known and i in known and i in forward.layers:
            forward.narrow(i, *_met(forward.ends(i), known[i]))
        if i in readers and not forward.unbounded:
            narrow(forward, i, readers[i])
        layer = forward.layers.get(i)
        if isinstance(layer, BoundMaxPool) and not forward.unbounded:
            layer.gaps = find_gaps(forward.state, layer)
        if forward.graph.nodes[i].op.name == "winner" and not forward.unbounded:
            narrow_winner(forward, i)
        if i in splits:
            forward.narrow(i, *signs_of(splits[i], *forward.ends(i)))


def _met(own: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    return np.maximum(own[0], other[0]), np.minimum(own[1], other[1])


def narrow(forward: ForwardPass, i: int, readers: Sequence[Node]) -> None:
    """A backward pass from every cell of node i that intervals leave open.

    Most cells of a narrow box are closed by a pass that goes down a few layers only and takes the boxes there for
    granted; what is still open goes further down.
    """
    exact = 1 if forward.within is None else 0  # layers that intervals of a box are exact for: of a ball they are not
    if i not in forward.layers or forward.depth[i] <= exact or isinstance(forward.layers[i], BoundOpaque):
        return
    low, high = forward.ends(i)
    cells = open_cells(readers, low, high)
    if not cells.any():
        return
    for rung in RUNGS if all(node.op.curve is not None for node in readers) else ():
        stops = forward.stops(i, rung)
        before = int(cells.sum())
        if stops and before and forward.closed.get(rung, 1.0) >= WORTHWHILE:
            wide = high - low > WIDE * np.abs(high + low) if rung == RUNGS[0] else cells
            narrow_cells(forward.short.stopped(stops), i, cells | wide, low, high)
            cells &= open_cells(readers, low, high)
            forward.closed[rung] = 1 - int(cells.sum()) / before
    narrow_cells(forward.fast, i, cells, low, high)
    forward.narrow(i, low, high)


def narrow_cells(state: State, i: int, cells: Array, low: Array, high: Array) -> None:
    """Narrow low and high of node i at the cells that are chosen, in place."""
    if not cells.any():
        return
    if not patch_narrow(state, i, cells, low, high):
        dense_narrow(state, i, np.flatnonzero(cells), low.reshape(-1), high.reshape(-1))


def dense_narrow(state: State, i: int, cells: Array, low: Array, high: Array) -> None:
    """Whole rows, chunk by chunk; low and high are flat and updated in place."""
    shape = state.layers[i].node.shape
    widest = max(math.prod(layer.node.shape) for layer in state.layers.values())
    step = max(1, CHUNK // (2 * widest))
    for start in range(0, len(cells), step):
        if state.budget.is_spent:
            return
        chosen = cells[start : start + step]
        seeds = torch.zeros((1, len(chosen), len(low)), dtype=torch.float64)
        seeds[0, torch.arange(len(chosen)), torch.from_numpy(chosen)] = 1.0
        lower, upper = both_ends(state, seeds, lambda rows: swept(state, {i: rows.view(1, -1, *shape)}))
        low[chosen] = np.maximum(low[chosen], lower[0].numpy())
        high[chosen] = np.minimum(high[chosen], upper[0].numpy())


# --- the objective ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def output_ends(forward: ForwardPass, rows: Array | None = None, steps: int = 0) -> tuple[Array, Array]:
    """Low and high of every row, or of every cell of the outputs; what time leaves is by the outputs' intervals."""
    cells = sum(forward.balls[p].value.size for p in forward.graph.real_outputs)
    count = cells if rows is None else len(rows)
    low, high = np.full(count, -np.inf), np.full(count, np.inf)
    if forward.unbounded:
        return low, high
    widest = max([1, cells, *(math.prod(layer.node.shape) for layer in forward.layers.values())])
    step = count if steps else max(1, forward.budget.cells(CHUNK, forward.graph) // (2 * widest))
    for start in range(0, count, max(1, step)):
        chunk = slice(start, min(start + step, count))
        some = np.eye(chunk.stop - start, cells, start) if rows is None else rows[chunk]
        low[chunk], high[chunk] = by_intervals(forward, some)
        if start and forward.budget.is_spent:
            continue
        both = tensor(np.concatenate([some, -some]))[None]
        lower, negative = objective_low(forward, both, steps).numpy()[0].reshape(2, -1)
        low[chunk], high[chunk] = np.fmax(low[chunk], lower), np.fmin(high[chunk], -negative)
    return low, high


def by_intervals(forward: ForwardPass, rows: Array) -> tuple[Array, Array]:
    """The rows over the balls of the outputs, one after the other."""
    balls = [forward.balls[p] for p in forward.graph.real_outputs]
    value, radius = (np.concatenate([getattr(b, part).ravel() for b in balls]) for part in ("value", "radius"))
    middle, size = rows @ value, np.abs(rows) @ (radius + LINE * (value.size + 4) * np.abs(value)) * SUMS
    return middle - size, middle + size


def objective_low(forward: ForwardPass, rows: Tensor, steps: int = 0) -> Tensor:
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
