"""How crown walks a graph, and how an objective goes down from its outputs.

The graph is walked once. Before a relaxation is made, the box of its input is narrowed by a backward pass of its own
where intervals leave something open, in the cells that a tighter interval would help; then the objective goes down from
the outputs (specgrad.bounds.linear.propagation.backward).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from specgrad.deadline import check_time
from specgrad.graph.graph import INPUT, Graph, Node
from specgrad.op import apply
from specgrad.ops.activation import RELU
from specgrad.ops.contract import CONTRACT
from specgrad.ops.elementwise import SIGN, cellwise
from specgrad.ops.integer_rounding import CEIL, FLOOR, ROUND
from specgrad.ops.max_pool import MAX_POOL
from specgrad.rounding.slack_constants import LINE
from specgrad.scalar import Array

from ..propagation.backward import SUMS, State, backward, backward_two_sided, lower_and_upper
from ..propagation.optimise_alpha import optimise_alpha
from ..propagation.patches import narrow_by_patches
from ..propagation.tap_gaps import find_gaps
from ..relaxation.bound_layers import BoundMaxPool, BoundOpaque, rows_dot, tensor
from .argmax_candidates import narrow_winner
from .forward_pass import ForwardPass, apply_signs

MAX_OBJECTIVE_CELLS = (
    1 << 20
)  # cells of an objective at its widest node that are held at once: 8 MB, which the heap hands out again
SHORT_PASS_DEPTHS = (2, 5)  # relaxations that a short pass goes through
WIDE_SHARE = 0.05  # of twice its middle: such a box is narrowed by the shortest pass too, for the layers above
MIN_CLOSED_SHARE = 0.25  # the share of cells that a short pass closed the last time, for the next to be made


# --- the walk ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def walk(
    forward: ForwardPass, splits: Mapping[int, Array], known: Mapping[int, tuple[Array, Array]] | None = None
) -> None:
    """Visit every node in order; tighten intervals where a relaxation or a selection will read them.

    TimeLimitError when the command's time is over.

    known   ends of nodes that are known to hold
    splits  signs of relus' inputs that are assumed, by node: 1, -1, or 0
    """
    readers = range_readers(forward.graph)
    for i in range(len(forward.graph.nodes)):
        check_time("bounds")
        forward.visit(i)
        if known and i in known and i in forward.layers:
            forward.narrow(i, *_intersection(forward.interval(i), known[i]))
        if i in readers and not forward.unbounded:
            narrow(forward, i, readers[i])
        layer = forward.layers.get(i)
        if isinstance(layer, BoundMaxPool) and not forward.unbounded:
            layer.gaps = find_gaps(forward.state, layer)
        if forward.graph.nodes[i].op.name == "winner" and not forward.unbounded:
            narrow_winner(forward, i)
        if i in splits:
            forward.narrow(i, *apply_signs(splits[i], *forward.interval(i)))


def _intersection(own: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the intersection of two intervals `own` and `other`, each (low, high), cell by cell; an empty one has low
    > high.
    """
    return np.maximum(own[0], other[0]), np.minimum(own[1], other[1])


def narrow(forward: ForwardPass, i: int, readers: Sequence[Node]) -> None:
    """Tighten the interval of node i by backward passes from every cell that its readers leave open.

    Most cells of a narrow box are closed by a pass that goes down a few layers only and takes the boxes there for
    granted; what is still open goes further down.
    """
    exact = (
        1 if forward.input_ball is None else 0
    )  # layers that intervals of a box are exact for: of a ball they are not
    if i not in forward.layers or forward.depth[i] <= exact or isinstance(forward.layers[i], BoundOpaque):
        return
    low, high = forward.interval(i)
    cells = open_cells(readers, low, high)
    if not cells.any():
        return
    for rung in SHORT_PASS_DEPTHS if all(node.op.curve is not None for node in readers) else ():
        stops = forward.truncation_nodes(i, rung)
        before = int(cells.sum())
        if stops and before and forward.closed_share.get(rung, 1.0) >= MIN_CLOSED_SHARE:
            wide = high - low > WIDE_SHARE * np.abs(high + low) if rung == SHORT_PASS_DEPTHS[0] else cells
            narrow_cells(forward.short.truncated_at(stops), i, cells | wide, low, high)
            cells &= open_cells(readers, low, high)
            forward.closed_share[rung] = 1 - int(cells.sum()) / before
    narrow_cells(forward.fast, i, cells, low, high)
    forward.narrow(i, low, high)


def narrow_cells(state: State, i: int, cells: Array, low: Array, high: Array) -> None:
    """Narrow low and high of node i (*shape) in place where the mask `cells` is true, by patches or else by dense
    rows.
    """
    if not cells.any():
        return
    if not narrow_by_patches(state, i, cells, low, high):
        dense_narrow(state, i, np.flatnonzero(cells), low.reshape(-1), high.reshape(-1))


def dense_narrow(state: State, i: int, cells: Array, low: Array, high: Array) -> None:
    """Narrow low and high of node i, flat, in place at `cells`, flat numbers, by dense backward passes in chunks while
    the budget lasts.
    """
    shape = state.layers[i].node.shape
    widest = max(math.prod(layer.node.shape) for layer in state.layers.values())
    step = max(1, MAX_OBJECTIVE_CELLS // (2 * widest))
    for start in range(0, len(cells), step):
        if state.budget.is_spent:
            return
        chosen = cells[start : start + step]
        seeds = torch.zeros((1, len(chosen), len(low)), dtype=torch.float64)
        seeds[0, torch.arange(len(chosen)), torch.from_numpy(chosen)] = 1.0
        lower, upper = lower_and_upper(
            state, seeds, lambda rows: backward_two_sided(state, {i: rows.view(1, -1, *shape)})
        )
        low[chosen] = np.maximum(low[chosen], lower[0].numpy())
        high[chosen] = np.minimum(high[chosen], upper[0].numpy())


# --- the objective ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def output_bounds(forward: ForwardPass, rows: Array | None = None, steps: int = 0) -> tuple[Array, Array]:
    """(lower, upper) of every row over the outputs, or of every output cell; by intervals once the time is over.

    `steps` are Adam steps on the slopes of each row.
    """
    cells = sum(forward.balls[p].value.size for p in forward.graph.real_outputs)
    count = cells if rows is None else len(rows)
    if forward.unbounded:
        return np.full(count, -np.inf), np.full(count, np.inf)
    low, high = bounds_from_intervals(forward, rows)
    widest = max([1, cells, *(math.prod(layer.node.shape) for layer in forward.layers.values())])
    step = count if steps else max(1, forward.budget.cells(MAX_OBJECTIVE_CELLS, forward.graph) // (2 * widest))
    for start in range(0, count, max(1, step)):
        if start and forward.budget.is_spent:
            break
        chunk = slice(start, min(start + step, count))
        some = np.eye(chunk.stop - start, cells, start) if rows is None else rows[chunk]
        both = tensor(np.concatenate([some, -some]))[None]
        lower, negative = objective_low(forward, both, steps).numpy()[0].reshape(2, -1)
        low[chunk], high[chunk] = np.fmax(low[chunk], lower), np.fmin(high[chunk], -negative)
    return low, high


def bounds_from_intervals(forward: ForwardPass, rows: Array | None = None) -> tuple[Array, Array]:
    """Return (lower, upper) of `rows` (rows, outputs) times the real outputs, or of every output, by the outputs' balls
    alone.
    """
    balls = [forward.balls[p] for p in forward.graph.real_outputs]
    value, radius = (np.concatenate([[], *(getattr(b, part).ravel() for b in balls)]) for part in ("value", "radius"))
    middle, size = value, radius + LINE * (value.size + 4) * np.abs(value)
    if rows is not None:
        middle, size = rows @ value, np.abs(rows) @ size
    return middle - size * SUMS, middle + size * SUMS


def objective_low(forward: ForwardPass, rows: Tensor, steps: int = 0) -> Tensor:
    """Return lower bounds (boxes, rows) of rows (boxes, rows, outputs) times the real outputs.

    `steps` > 0 optimises relu slopes.
    """
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
        lower = optimise_alpha(forward.state, seeds, steps) if steps else backward(forward.state, seeds)
    return lower + fixed - slack * SUMS - LINE * (lower.abs() + fixed.abs())


# --- who reads an interval --------------------------------------------------------------------------------------------

MAX_LINEAR_BULGE = 2.0**-9  # a function that bends less than this share of the box's width is as good as a line


def range_readers(graph: Graph) -> dict[int, list[Node]]:
    """Return, by position, which nodes need the interval of a node for their relaxation; a node that none needs is no
    key.

    Linear layers need none. A max_pool of a relu needs that of the relu's input, not that of the relu.
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
    """Return the bool mask of cells, with intervals low..high, whose tighter interval would improve some reader's
    relaxation.
    """
    return np.asarray(np.any([_improvable_cells(node, low, high) for node in readers], axis=0))


def _improvable_cells(node: Node, low: Array, high: Array) -> Array:
    """Return the bool mask of cells, with intervals low..high, whose tighter interval would improve the relaxation of
    `node`.

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
    """Return the bool mask of cells, with intervals low..high, that may win a window of max_pool which another cell may
    win too.

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
