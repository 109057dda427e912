"""Rounding rules of selections: comparisons, select, argmax, and reading or writing at computed positions.

Where the balls are disjoint the choice is the same in every execution. Where they overlap it is undecided: the node is
reported, and the radius covers every outcome.

`context` (specgrad.rounding.context) is what rules read besides their arguments, and add to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..op import Op, Params
from ..ops.max_pool import MAX_POOL
from ..ops.sorting import ranking
from ..scalar import Array
from ..window import Window
from .ball import SLACK, Ball, Candidates, hull, mark_unknown_cells, open_ends, propagate_unknown, unknown
from .context import Context
from .elementwise import monotone_rule
from .linear import linear_rule, make_ball, mark_unknown, reference_error, stored_error, underflow
from .slack_constants import LEAST, OUTWARD, long_slack
from .stores import store_error


def mask_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of greater, greater_equal, less, equal: 0 or 1, undecided where the balls overlap."""
    a, b = args
    value = context.evaluate(op, [a.value, b.value], params)
    (a_low, a_high), (b_low, b_high) = open_ends(a), open_ends(b)
    apart = (a_low > b_high) | (a_high < b_low)
    touching = {"greater": a_high <= b_low, "greater_equal": a_low >= b_high}
    touching |= {"less": a_low >= b_high, "equal": np.zeros((), dtype=bool)}
    fixed = ~unknown(a) if a is b else (a.radius == 0) & (b.radius == 0)  # x == x, the test for NaN
    open_ = np.broadcast_to(~(apart | touching[op.name] | fixed), value.shape)
    context.mark_undecided(open_)
    return _zero_or_one(context, value, open_)


def _zero_or_one(context: Context, value: Array, open_: Array) -> Ball:
    """Return the ball of a comparison: its value, or 0..1 in the cells `open_`."""
    return context.spanned(value, np.where(open_, 0.0, value), np.where(open_, 1.0, value))


def largest_rule(context: Context, x: Ball, axes: tuple[int, ...]) -> Ball:
    """Return the ball of x == amax(x): which cells are the largest along `axes`, 1 or 0, both sides being computed from
    the same x.

    Open cells are marked as undecided in the context.
    """
    value = (x.value == np.max(x.value, axis=axes, keepdims=True)).astype(float)
    possible = x.high >= np.max(x.low, axis=axes, keepdims=True)
    alone = possible.sum(axis=axes, keepdims=True) == 1
    tied = ~np.any(possible & (x.radius > 0), axis=axes, keepdims=True)  # equal numbers, not equal balls
    lost = np.broadcast_to(np.any(unknown(x), axis=axes, keepdims=True), value.shape)  # a NaN equals nothing
    open_ = possible & ~alone & ~tied | lost
    context.mark_undecided(open_)
    return mark_unknown_cells(_zero_or_one(context, value, open_), lost)


def step_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of sign, floor, ceil or round: radius 0 where no jump lies in the argument's ball.

    Elsewhere it reaches from op(low) to op(high), and the cell is reported as undecided.
    """
    (x,) = args
    value = context.evaluate(op, [x.value], params)
    low, high = (context.evaluate(op, [end], params) for end in (x.low, x.high))
    open_ = (low != high) & (x.radius > 0) | unknown(x)
    context.mark_undecided(open_)
    ball = context.spanned(value, np.where(open_, low, value), np.where(open_, high, value))
    return propagate_unknown(mark_unknown(context, ball), args)


def fmod_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of a - b*q, exact; q = trunc(a/b) is one integer if the balls allow no other, else undecided.

    An undecided result lies between 0 and a, on the side of a, and is smaller than the largest b.
    """
    a, b = args
    value = context.evaluate(op, [a.value, b.value], params)
    q, same = _one_quotient(a, b)
    fixed = np.broadcast_to((a.radius == 0) & (b.radius == 0), value.shape)
    open_ = ~(same | fixed)
    context.mark_undecided(open_)
    low, high = np.fmax(-b.size, np.minimum(a.low, 0.0)), np.fmin(b.size, np.maximum(a.high, 0.0))
    ends = _minus_multiple(a, b, q)
    low, high = (
        np.where(fixed, value, np.where(open_, wide, end)) for wide, end in zip((low, high), ends, strict=True)
    )
    lost = unknown(a) | unknown(b) | ((b.least == 0) & (b.radius > 0))  # a divisor that may be 0
    return mark_unknown_cells(
        mark_unknown(context, context.spanned(value, low, high)), np.broadcast_to(lost, value.shape)
    )


def _one_quotient(a: Ball, b: Ball) -> tuple[Array, Array]:
    """Return trunc(a/b), and a mask of where it has one value all over the balls a and b.

    Quotients from 2**50 on count as undecided.
    """
    corners = [p / q for p in (a.low, a.high) for q in (b.low, b.high)]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    step = np.maximum(np.abs(low), np.abs(high)) * OUTWARD + LEAST
    low, high = np.trunc(low - step), np.trunc(high + step)
    same = (low == high) & (b.least > 0) & (np.abs(low) < 2.0**50)
    return np.where(same, low, 0.0), same


def _minus_multiple(a: Ball, b: Ball, q: Array) -> tuple[Array, Array]:
    """Return the ends of a - b*q, moved outward by the rounding of our own two operations."""
    low, high = a.low - np.maximum(b.low * q, b.high * q), a.high - np.minimum(b.low * q, b.high * q)
    slack = 2 * OUTWARD * (a.size + b.size * np.abs(q)) + 2 * LEAST
    return low - slack, high + slack


def select_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of select: the chosen argument's, or one around both if the condition is undecided.

    What is not chosen is not touched, be it unknown.
    """
    c, a, b = args
    value = context.evaluate(op, [c.value, a.value, b.value], params)
    open_ = (c.low <= 0) & (c.high >= 0) & (c.radius > 0) | unknown(c)
    first = c.value != 0
    lost = np.where(open_, unknown(a) | unknown(b), np.where(first, unknown(a), unknown(b)))
    if context.centred:
        low = np.where(open_, np.minimum(a.low, b.low), np.where(first, a.low, b.low))
        high = np.where(open_, np.maximum(a.high, b.high), np.where(first, a.high, b.high))
        ball = mark_unknown(context, context.spanned(value, *np.broadcast_arrays(low, high)))
        return mark_unknown_cells(ball, np.broadcast_to(lost, ball.shape))
    either = np.maximum(np.abs(a.value - value) + a.radius, np.abs(b.value - value) + b.radius) * SLACK
    radius = np.where(open_, either, np.where(first, a.radius, b.radius))
    return make_ball(context, value, np.broadcast_to(radius, value.shape))


def winner_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of an argmax: certain if its lower end beats the upper end of every other tap
    (ties: the first)."""
    (x,), window = args, params["window"]
    index = context.evaluate(op, [x.value], params)
    position = np.arange(math.prod(window.size)).reshape(window.size)
    high, floor = open_ends(x)[1], _lower_of_winner(x, index, window)
    challenged = np.zeros(index.shape, dtype=bool)
    for tap in window.taps():
        top, cell = tap.read_inputs(high), tap.read_inputs(position)
        chosen, least = tap.read_outputs(index), tap.read_outputs(floor)
        other = (cell != chosen) & ((top > least) | ((top == least) & (cell < chosen)))
        tap.write_outputs(challenged, tap.read_outputs(challenged) | other)
    context.mark_undecided(challenged)
    candidates = _possible_winners(high, index, floor, challenged, params) if challenged.any() else None
    return Ball(index, np.where(challenged, np.inf, 0.0), candidates)


def top_value_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of top, the k largest values: monotone in x.

    Unknown where the line of its axis has an unknown cell.
    """
    lost = np.any(unknown(args[0]), axis=params["axis"], keepdims=True)
    return _ball_at_rank(context, monotone_rule(context, op, args, params), lost)


def rank_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of an exact, nondecreasing operator of several cells that is no maximum, such as a median.

    A cell reads its window, if there is one, else everything.
    """
    lost = np.asarray(any(unknown(a).any() for a in args))
    if lost and "window" in params and op.reads == "window" and len(args) == 1:
        marked = context.evaluate(MAX_POOL, [unknown(args[0]).astype(np.float64)], {"window": params["window"]})
        lost = np.asarray(marked > 0)
    return _ball_at_rank(context, monotone_rule(context, op, args, params), lost)


def _ball_at_rank(context: Context, ball: Ball, lost: Array) -> Ball:
    """Return the ball of numbers at a rank, given that of nondecreasing functions and a mask `lost` of cells that read
    an unknown one.

    If subnormal numbers count as zero they are equal to it, and any of them may stand at the rank of another. A cell
    that may be NaN may stand at every rank: runtimes sort it by comparisons that are all false.
    """
    ball, tiny = mark_unknown_cells(ball, np.broadcast_to(lost, ball.shape)), context.arithmetic.tiny
    if not context.arithmetic.flush:
        return ball
    near = np.where(ball.least < tiny, 2 * tiny, 0.0)
    return Ball(ball.value, ball.radius + near)


def top_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of the cell at a rank: certain if its ball is disjoint from those of all other cells.

    Equal numbers without a radius are ordered by position; if one of them has a radius either may come first.
    """
    (x,), axis = args, params["axis"]
    order = ranking(np.flip(x.value, axis) if params["last"] else x.value, axis, params["largest"])
    order = x.shape[axis] - 1 - order if params["last"] else order
    index = np.take(order, np.arange(params["k"]), axis=axis)
    if not x.value.size:
        return Ball(index, np.zeros(index.shape))
    sign = 1.0 if params["largest"] else -1.0
    low, high = (np.moveaxis(np.take_along_axis(end, order, axis), axis, 0) for end in open_ends(x))
    low, high = (low, high) if sign > 0 else (-high, -low)
    inexact, nan = (
        np.moveaxis(np.take_along_axis(m, order, axis), axis, 0) for m in (x.radius != 0, np.isnan(x.value))
    )
    open_ = _may_overtake(low, high, inexact) | _may_overtake(-high[::-1], -low[::-1], inexact[::-1])[::-1]
    open_ |= nan & (nan.sum(0, keepdims=True) > 1)  # which NaN comes first is left open
    challenged = np.moveaxis(open_[: params["k"]], 0, axis)
    context.mark_undecided(challenged)
    return Ball(index, np.where(challenged, np.inf, 0.0))


def _may_overtake(low: Array, high: Array, inexact: Array) -> Array:
    """Return a mask of cells that may come before one ranked before them, along the first axis, the largest first.

    low and high are their ranges, `inexact` marks those with a radius.
    """
    least = np.minimum.accumulate(np.concatenate([np.full_like(low[:1], np.inf), low[:-1]]))
    loose = np.logical_or.accumulate(np.concatenate([np.zeros_like(inexact[:1]), inexact[:-1]]))
    return np.asarray((least < high) | ((least == high) & (loose | inexact)))


def _lower_of_winner(x: Ball, index: Array, window: Window) -> Array:
    """Return a lower bound of the value of each window's winner, at `index`; -inf in a window with an unknown cell,
    where any tap may win.
    """
    floor = _cells_at(x.low, index, window.rank)
    lost = unknown(x)
    for tap in window.taps() if lost.any() else ():
        tap.write_outputs(floor, np.where(tap.read_inputs(lost), -np.inf, tap.read_outputs(floor)))
    return floor


def _cells_at(x: Array, index: Array, rank: int) -> Array:
    """Return the cells of x at flat positions `index` of its last `rank` axes, in the shape of `index`.

    -1 reads cell 0.
    """
    lead = x.shape[: x.ndim - rank]
    flat, where = (
        x.reshape((*lead, math.prod(x.shape[len(lead) :]))),
        index.reshape((*lead, math.prod(index.shape[len(lead) :]))),
    )
    return np.asarray(np.take_along_axis(flat, np.maximum(where, 0), axis=-1).reshape(index.shape))


def _possible_winners(high: Array, index: Array, floor: Array, challenged: Array, params: Params) -> Candidates:
    """Return every tap of the windows marked `challenged` that may be the largest: its upper end, in `high`, reaches
    `floor`.

    `index` are the winners of the middle values.
    """
    window = params["window"]
    position = np.arange(math.prod(window.size)).reshape(window.size)
    slots = np.arange(index.size).reshape(index.shape)
    outs, cells = [], []
    for tap in window.taps():
        possible = tap.read_outputs(challenged) & (tap.read_inputs(high) >= tap.read_outputs(floor))
        outs.append(tap.read_outputs(slots)[possible])
        cells.append(np.broadcast_to(tap.read_inputs(position), possible.shape)[possible])
    return Candidates(np.unravel_index(np.concatenate(outs), index.shape), np.concatenate(cells))


def _plane_numbers(outs: tuple[Array, ...], lead: tuple[int, ...]) -> Array:
    """Return the number of the plane that each undecided output lies in; `outs` are indices per axis, `lead` the
    leading sizes.
    """
    if not lead:
        return np.zeros(outs[0].shape, dtype=np.int64)
    return np.asarray(np.ravel_multi_index(outs[: len(lead)], lead))


def take_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of take: exact, and at an undecided position one that covers every cell that may be read."""
    x, i = args
    ball = linear_rule(context, op, [x, Ball(i.value, np.zeros(i.shape))], params)
    if i.is_exact:
        return ball
    if i.candidates is None:
        return Ball(ball.value, np.where(i.radius > 0, np.inf, ball.radius))
    rank, radius = params["rank"], ball.radius.copy()
    lead, outs, cells = x.shape[: len(x.shape) - rank], i.candidates.outs, i.candidates.cells
    cell = (_plane_numbers(outs, lead), cells)
    plane = (math.prod(lead), math.prod(x.shape[len(lead) :]))
    if context.centred:
        low, high = ball.low.copy(), ball.high.copy()
        np.minimum.at(low, outs, x.low.reshape(plane)[cell])
        np.maximum.at(high, outs, x.high.reshape(plane)[cell])
        return propagate_unknown(mark_unknown(context, context.spanned(ball.value, low, high)), ())
    value, slack = x.value.reshape(plane)[cell], x.radius.reshape(plane)[cell]
    np.maximum.at(radius, outs, (np.abs(value - ball.value[outs]) + slack) * SLACK)
    return Ball(ball.value, radius)


def gather_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of gather: exact, and at an undecided position one that covers every cell along the axis."""
    axis = params["axis"]
    x, i = _entries_read(context, args[0], args[1], axis)
    ball = linear_rule(context, op, [x, Ball(i.value, np.zeros(i.shape))], params)
    if i.is_exact:
        return ball
    behind = (1,) * (len(x.shape) - axis - 1)
    open_ = np.broadcast_to((i.radius > 0).reshape(i.shape + behind), ball.shape)
    low, high = _broadcast_along(x.low.min(axis), i, axis), _broadcast_along(x.high.max(axis), i, axis)
    whole = context.spanned(ball.value, np.where(open_, low, ball.low), np.where(open_, high, ball.high))
    lost = open_ & _broadcast_along(np.asarray(unknown(x).any(axis)), i, axis)
    return mark_unknown_cells(mark_unknown(context, whole), np.broadcast_to(lost, ball.shape))


def _entries_read(context: Context, x: Ball, i: Ball, axis: int) -> tuple[Ball, Ball]:
    """Return a constant without the entries along the axis that exact positions i do not read, and i counted in what is
    left; both as they are where i leaves the axis.

    A table of embeddings is larger than all that a network computes from it.
    """
    if not (context.call.kinds and context.call.kinds[0] == "constant" and i.is_exact and i.value.size):
        return x, i
    if i.value.min() < 0 or i.value.max() >= x.shape[axis]:
        return x, i
    entries, place = np.unique(i.value.astype(np.int64), return_inverse=True)
    kept = Ball(x.value.take(entries, axis), x.radius.take(entries, axis))
    return kept, Ball(place.reshape(i.shape).astype(i.value.dtype), np.zeros(i.shape))


def _broadcast_along(cells: Array, i: Ball, axis: int) -> Array:
    """Return `cells`, what holds for a whole axis, broadcastable at every position of the index i that stands there."""
    return cells.reshape(cells.shape[:axis] + (1,) * len(i.shape) + cells.shape[axis:])


def scatter_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of scatter: that of put, with an undecided position being anywhere."""
    return put_rule(context, op, [args[0], replace(args[1], candidates=None)], params)


def put_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of put: as many roundings as values meet in a cell; each candidate may receive an undecided
    value, or not."""
    gy, i = args
    positions = Ball(i.value, np.zeros(i.shape))
    fixed = _zero_where_open(gy, i.radius > 0) if context.centred and i.candidates is not None else gy
    ball = linear_rule(context, op, [fixed, positions], params, count=0)
    sizes = context.evaluate(op, [gy.size, i.value], params)
    visits = context.evaluate(op, [np.ones(gy.shape), i.value], params)
    radius = ball.radius
    if not i.is_exact:
        if i.candidates is None:
            return Ball(ball.value, np.full(ball.shape, np.inf))
        more, often = (_sum_at_candidates(v, i.candidates, params) for v in (gy.size, np.ones(gy.shape)))
        sizes, visits, radius = sizes + more, visits + often, radius + more
        if context.centred:
            ball = _with_candidates(ball, gy, i.candidates, params)
            radius = ball.radius
    count = np.maximum(visits - 1, 0)
    stores = int(context.arithmetic.stores and bool(count.any()))
    error = stored_error(context.arithmetic, sizes, count, 0) + underflow(context.arithmetic, count, stores)
    error = error + reference_error(sizes, count)
    reach = np.abs(ball.value) + radius + error if context.reach is None else context.reach
    error = np.where(count == 0, 0.0, error + store_error(context.arithmetic, reach, stores))
    radius = (radius + error) * long_slack(visits)  # radii that met in a cell were summed
    return make_ball(context, ball.value, np.where(ball.size + error <= context.arithmetic.largest, radius, np.inf))


def _zero_where_open(gy: Ball, open_: Array) -> Ball:
    """Return the ball with zeros in the cells `open_`."""
    return Ball(np.where(open_, 0.0, gy.value), np.where(open_, 0.0, gy.radius))


def _with_candidates(ball: Ball, gy: Ball, candidates: Candidates, params: Params) -> Ball:
    """Return `ball` after every cell in `candidates` has received something between 0 and the value of gy for it."""
    part = hull(np.minimum(gy.low, 0.0), np.maximum(gy.high, 0.0))
    value, radius = (_sum_at_candidates(v, candidates, params) for v in (part.value, part.radius))
    total = ball.value + value
    return Ball(total, (ball.radius + radius + reference_error(np.abs(total) + radius, len(candidates.cells))) * SLACK)


def _sum_at_candidates(values: Array, candidates: Candidates, params: Params) -> Array:
    """Return an array of params["size"] whose cells hold the sum of all values that may, by `candidates`, go there."""
    size = params["size"]
    lead = values.shape[: values.ndim - len(size)]
    flat = np.zeros((math.prod(lead), math.prod(size)))
    np.add.at(flat, (_plane_numbers(candidates.outs, lead), candidates.cells), values[candidates.outs])
    return flat.reshape(lead + tuple(size))


def position_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of layout and last_writer on positions: exact, or unknown as a whole."""
    value = context.evaluate(op, [a.value for a in args], params)
    open_ = any(not a.is_exact for a in args)
    return Ball(value, np.full(value.shape, np.inf if open_ else 0.0))
