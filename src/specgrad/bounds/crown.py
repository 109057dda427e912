"""Backward linear bounds (CROWN) that hold for the deployed network.

The graph is walked once. Before a relaxation is made, the box of its input is narrowed by a backward pass of its own
where intervals leave something open; then the objective goes down from the outputs (specgrad.bounds.backward).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ParameterError, ShapeError
from ..graph.graph import Graph
from ..graph.run import bind_inputs
from ..graph.tree import Tree, transform
from ..rounding.arithmetic import Arithmetic
from ..scalar import Array
from . import relax
from .backward import SUMS, U, backward
from .box import Bounds, Box, balls_of, box_like, box_of, example_of, numpy_of
from .forward import Forward, signs_of
from .gaps import find_gaps
from .ibp import box_context
from .layers import Opaque, Taps, rows_dot, tensor
from .patches import patch_narrow
from .slopes import optimised

CHUNK = 1 << 24  # cells of an objective at its widest node that are held at once


def crown(
    graph: Graph,
    box: Tree,
    objective: Any = None,
    *,
    deployed: bool = True,
    arithmetic: Arithmetic | None = None,
    steps: int = 0,
    splits: Mapping[str, Any] | None = None,
) -> Bounds:
    """Bounds of the outputs, or of linear objectives of them, for all inputs in the box, by backward propagation.

    box          a Box, or a tuple with a Box or an array (or a structure of them) per argument of the graph
    objective    rows (S, n) over the outputs, flattened one after the other; None: every output by itself
    deployed     True: for every execution in `arithmetic` (float32 unless given), in any order of summation, as well as
                 for exact arithmetic; False: for exact arithmetic alone
    steps        gradient steps on the slopes of open relus, for the objective; more steps, narrower bounds
    splits       name of a relu, or of its input, -> array of -1, 0, 1: only executions whose inputs of that relu are
                 negative (or 0), any, positive (or 0)

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(x) - x, (1,))
    >>> found = crown(graph, Box([-1.0], [2.0]), deployed=False).outputs
    >>> bool(abs(found.low) < 1e-9), bool(abs(found.high - 1) < 1e-9)
    (True, True)
    """
    args = box if isinstance(box, tuple) else (box,)
    rows = rows_of(graph, objective)
    rules = box_context(graph, deployed, arithmetic, "torch")
    forward = Forward(graph, rules, bind_inputs(graph, balls_of(args)))
    with torch.no_grad():
        walk(forward, split_signs(graph, splits or {}))
        ends = output_ends(forward, rows, steps)
    return _answer(forward, objective is not None, ends, example_of(args))


def real_outputs(graph: Graph) -> list[int]:
    """Positions of the outputs that are numbers, as often as they are outputs; positions of winners have no bounds."""
    return [p for p in graph.output_positions if graph.nodes[p].kind == "real"]


def rows_of(graph: Graph, objective: Any) -> Array:
    outs = sum(math.prod(graph.nodes[p].shape) for p in real_outputs(graph))
    if objective is None:
        return np.eye(outs)
    rows = numpy_of(objective).astype(float)
    if rows.ndim != 2 or rows.shape[1] != outs:
        raise ShapeError("crown", f"objective must be rows (S, {outs}) over the flattened outputs; got {rows.shape}")
    return rows


def split_signs(graph: Graph, splits: Mapping[str, Any]) -> dict[int, Array]:
    """Splits by the position of the node that they hold for: the input of the relu."""
    names = {n.name: i for i, n in enumerate(graph.nodes)}
    found = {}
    for name, given in splits.items():
        if name not in names:
            raise ParameterError("crown", f"splits name {name!r}, which is no layer of the graph", rule="P5")
        node = graph.nodes[names[name]]
        i = node.operands()[0] if node.op.name == "relu" else names[name]
        sign = numpy_of(given)
        if sign.shape != graph.nodes[i].shape:
            raise ShapeError("crown", f"splits of {name} must have shape {graph.nodes[i].shape}; got {sign.shape}")
        found[i] = sign
    return found


def _answer(forward: Forward, given: bool, ends: tuple[Array, Array], example: Any) -> Bounds:
    graph, (low, high) = forward.graph, ends
    boxes = {p: box_of(b) for p, b in enumerate(forward.balls) if graph.nodes[p].kind == "real"}
    layers = {graph.nodes[p].name: box_like(b, example) for p, b in boxes.items()}
    start = 0
    for p in real_outputs(graph) if not given else ():
        stop = start + math.prod(boxes[p].shape)
        boxes[p] = _met(boxes[p], *(e[start:stop].reshape(boxes[p].shape) for e in ends))
        start = stop
    tree = transform(lambda _, p: box_like(boxes[p], example) if p in boxes else None, graph.outputs)
    rows = box_like(Box(np.minimum(low, high), np.maximum(low, high)), example) if given else None
    return Bounds(tree[0] if graph.single else tree, layers, rows, tuple(forward.unbounded), forward.infeasible)


def _met(box: Box, low: Array, high: Array) -> Box:
    """Both boxes hold."""
    low, high = np.maximum(box.low, low), np.minimum(box.high, high)
    return Box(np.minimum(low, high), np.maximum(low, high))


# --- the walk ---------------------------------------------------------------------------------------------------------

SIGN_ALONE = {"relu", "abs", "leaky_relu", "sign"}  # below and above 0 they are linear: only the sign matters
READERS = SIGN_ALONE | relax.CELLS.keys() | {"max_pool", "smooth_max_pool", "amax", "maximum", "minimum", "mul", "div"}
READERS |= {"greater", "greater_equal", "less", "equal", "winner"}


def walk(forward: Forward, splits: Mapping[int, Array]) -> None:
    """Every node in order, with narrower boxes where a relaxation or a choice will read them."""
    readers = readers_of(forward.graph)
    for i in range(len(forward.graph.nodes)):
        forward.visit(i)
        if READERS & readers.get(i, set()) and not forward.unbounded:
            narrow(forward, i, readers[i] & READERS <= SIGN_ALONE)
        layer = forward.layers.get(i)
        if isinstance(layer, Taps) and not forward.unbounded:
            layer.gaps = find_gaps(forward.state, i)
        if i in splits:
            forward.narrow(i, *signs_of(splits, i, forward.balls[i]))


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
    ball = forward.balls[i]
    open_ = (ball.low < 0) & (ball.high > 0) if sign_alone else ball.radius > 0
    if open_.any():
        low, high = ball.low.copy(), ball.high.copy()
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
