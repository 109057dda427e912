"""Rounding of choices: comparisons, select, the winner of a maximum, and reading or writing along it.

Where the balls are apart the choice is the same in every execution. Where they overlap it is left open: the node is
reported as undecided, and the radius covers every outcome.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..op import Op, Params
from ..scalar import Array
from ..window import Window
from .ball import SLACK, Ball, Candidates, hull
from .context import Context
from .linear import finished, linear_rule, reference_error, settled, stored_error, underflow
from .poison import lose, open_ends, poisoned, unknown


def mask_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """greater, greater_equal, less, equal: 0 or 1, and 0 or 1 where the balls overlap."""
    a, b = args
    value = run.evaluate(op, [a.value, b.value], params)
    (a_low, a_high), (b_low, b_high) = open_ends(a), open_ends(b)
    apart = (a_low > b_high) | (a_high < b_low)
    touching = {"greater": a_high <= b_low, "greater_equal": a_low >= b_high}
    touching |= {"less": a_low >= b_high, "equal": np.zeros((), dtype=bool)}
    fixed = ~unknown(a) if a is b else (a.radius == 0) & (b.radius == 0)  # x == x, the test for NaN
    open_ = np.broadcast_to(~(apart | touching[op.name] | fixed), value.shape)
    run.leave_open(open_)
    return _zero_or_one(run, value, open_)


def _zero_or_one(run: Context, value: Array, open_: Array) -> Ball:
    return run.spanned(value, np.where(open_, 0.0, value), np.where(open_, 1.0, value))


def largest_rule(run: Context, x: Ball, axes: tuple[int, ...]) -> Ball:
    """x == amax(x): which cells are the largest, when both sides come from the same x."""
    value = (x.value == np.max(x.value, axis=axes, keepdims=True)).astype(float)
    possible = x.high >= np.max(x.low, axis=axes, keepdims=True)
    alone = possible.sum(axis=axes, keepdims=True) == 1
    tied = ~np.any(possible & (x.radius > 0), axis=axes, keepdims=True)  # equal numbers, not equal balls
    lost = np.broadcast_to(np.any(unknown(x), axis=axes, keepdims=True), value.shape)  # a NaN equals nothing
    open_ = possible & ~alone & ~tied | lost
    run.leave_open(open_)
    return lose(_zero_or_one(run, value, open_), lost)


def sign_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    (x,) = args
    value = run.evaluate(op, [x.value], params)
    open_ = (x.low <= 0) & (x.high >= 0) & (x.radius > 0) | unknown(x)
    run.leave_open(open_)
    ball = run.spanned(value, np.where(open_, np.sign(x.low), value), np.where(open_, np.sign(x.high), value))
    return poisoned(ball, args)


def select_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """The chosen one's ball; both, where the condition is open. What is not chosen is not touched, be it unknown."""
    c, a, b = args
    value = run.evaluate(op, [c.value, a.value, b.value], params)
    open_ = (c.low <= 0) & (c.high >= 0) & (c.radius > 0) | unknown(c)
    first = c.value != 0
    lost = np.where(open_, unknown(a) | unknown(b), np.where(first, unknown(a), unknown(b)))
    if run.centred:
        low = np.where(open_, np.minimum(a.low, b.low), np.where(first, a.low, b.low))
        high = np.where(open_, np.maximum(a.high, b.high), np.where(first, a.high, b.high))
        ball = settled(run, run.spanned(value, *np.broadcast_arrays(low, high)))
        return lose(ball, np.broadcast_to(lost, ball.shape))
    either = np.maximum(np.abs(a.value - value) + a.radius, np.abs(b.value - value) + b.radius) * SLACK
    radius = np.where(open_, either, np.where(first, a.radius, b.radius))
    return finished(run, value, np.broadcast_to(radius, value.shape))


def winner_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """The winner stands where its lower end beats the upper end of every other tap (ties go to the first)."""
    (x,), window = args, params["window"]
    index = run.evaluate(op, [x.value], params)
    position = np.arange(math.prod(window.size)).reshape(window.size)
    high, floor = open_ends(x)[1], _floor(x, index, window)
    challenged = np.zeros(index.shape, dtype=bool)
    for tap in window.taps():
        here, top, cell = (..., *tap.outs), high[(..., *tap.ins)], position[tap.ins]
        first = cell < index[here]
        challenged[here] |= (cell != index[here]) & ((top > floor[here]) | ((top == floor[here]) & first))
    run.leave_open(challenged)
    found = _candidates(high, index, floor, challenged, params) if challenged.any() else None
    return Ball(index, np.where(challenged, np.inf, 0.0), found)


def _floor(x: Ball, index: Array, window: Window) -> Array:
    """What the winner is at least; nothing in a window with an unknown cell, where any tap may win."""
    floor = _read(x.low, index, window.rank)
    lost = unknown(x)
    for tap in window.taps() if lost.any() else ():
        here = floor[(..., *tap.outs)]
        floor[(..., *tap.outs)] = np.where(lost[(..., *tap.ins)], -np.inf, here)
    return floor


def _read(x: Array, index: Array, rank: int) -> Array:
    lead = x.shape[: x.ndim - rank]
    flat, where = (
        x.reshape((*lead, math.prod(x.shape[len(lead) :]))),
        index.reshape((*lead, math.prod(index.shape[len(lead) :]))),
    )
    return np.asarray(np.take_along_axis(flat, np.maximum(where, 0), axis=-1).reshape(index.shape))


def _candidates(high: Array, index: Array, floor: Array, challenged: Array, params: Params) -> Candidates:
    """Every tap of an open window that may be its largest."""
    window = params["window"]
    position = np.arange(math.prod(window.size)).reshape(window.size)
    slots = np.arange(index.size).reshape(index.shape)
    outs, cells = [], []
    for tap in window.taps():
        here = (..., *tap.outs)
        possible = challenged[here] & (high[(..., *tap.ins)] >= floor[here])
        outs.append(slots[here][possible])
        cells.append(np.broadcast_to(position[tap.ins], possible.shape)[possible])
    return Candidates(np.unravel_index(np.concatenate(outs), index.shape), np.concatenate(cells))


def _planes(outs: tuple[Array, ...], lead: tuple[int, ...]) -> Array:
    """The number of the plane that each open output lies in."""
    if not lead:
        return np.zeros(outs[0].shape, dtype=np.int64)
    return np.asarray(np.ravel_multi_index(outs[: len(lead)], lead))


def take_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Reading is exact; at an open position the ball covers every cell that may be read."""
    x, i = args
    ball = linear_rule(run, op, [x, Ball(i.value, np.zeros(i.shape))], params)
    if i.is_exact:
        return ball
    if i.candidates is None:
        return Ball(ball.value, np.where(i.radius > 0, np.inf, ball.radius))
    rank, radius = params["rank"], ball.radius.copy()
    lead, outs, cells = x.shape[: len(x.shape) - rank], i.candidates.outs, i.candidates.cells
    cell = (_planes(outs, lead), cells)
    plane = (math.prod(lead), math.prod(x.shape[len(lead) :]))
    if run.centred:
        low, high = ball.low.copy(), ball.high.copy()
        np.minimum.at(low, outs, x.low.reshape(plane)[cell])
        np.maximum.at(high, outs, x.high.reshape(plane)[cell])
        return poisoned(settled(run, run.spanned(ball.value, low, high)), ())
    value, slack = x.value.reshape(plane)[cell], x.radius.reshape(plane)[cell]
    np.maximum.at(radius, outs, (np.abs(value - ball.value[outs]) + slack) * SLACK)
    return Ball(ball.value, radius)


def put_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """As many roundings as values meet in a cell; an open value may be added, or not, at each candidate."""
    gy, i = args
    positions = Ball(i.value, np.zeros(i.shape))
    fixed = _without(gy, i.radius > 0) if run.centred and i.candidates is not None else gy
    ball = linear_rule(run, op, [fixed, positions], params, count=0)
    sizes = run.evaluate(op, [gy.size, i.value], params)
    visits = run.evaluate(op, [np.ones(gy.shape), i.value], params)
    radius = ball.radius
    if not i.is_exact:
        if i.candidates is None:
            return Ball(ball.value, np.full(ball.shape, np.inf))
        more, often = (_scattered(v, i.candidates, params) for v in (gy.size, np.ones(gy.shape)))
        sizes, visits, radius = sizes + more, visits + often, radius + more
        if run.centred:
            ball = _with_candidates(ball, gy, i.candidates, params)
            radius = ball.radius
    count = np.maximum(visits - 1, 0)
    stores = int(run.arithmetic.inner is not run.arithmetic.format and bool(count.any()))
    error = stored_error(run.arithmetic, sizes, count, stores) + underflow(run.arithmetic, count, stores)
    error = np.where(count == 0, 0.0, error + reference_error(sizes, count))
    radius = (radius + error) * SLACK
    return finished(run, ball.value, np.where(ball.size + error <= run.arithmetic.largest, radius, np.inf))


def _without(gy: Ball, open_: Array) -> Ball:
    return Ball(np.where(open_, 0.0, gy.value), np.where(open_, 0.0, gy.radius))


def _with_candidates(ball: Ball, gy: Ball, found: Candidates, params: Params) -> Ball:
    """Every candidate receives something between 0 and the value."""
    part = hull(np.minimum(gy.low, 0.0), np.maximum(gy.high, 0.0))
    value, radius = (_scattered(v, found, params) for v in (part.value, part.radius))
    total = ball.value + value
    return Ball(total, (ball.radius + radius + reference_error(np.abs(total) + radius, len(found.cells))) * SLACK)


def _scattered(values: Array, found: Candidates, params: Params) -> Array:
    size = params["size"]
    lead = values.shape[: values.ndim - len(size)]
    flat = np.zeros((math.prod(lead), math.prod(size)))
    np.add.at(flat, (_planes(found.outs, lead), found.cells), values[found.outs])
    return flat.reshape(lead + tuple(size))


def position_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Layout and last_writer on positions: the same on all of them, or open as a whole."""
    value = run.evaluate(op, [a.value for a in args], params)
    open_ = any(not a.is_exact for a in args)
    return Ball(value, np.full(value.shape, np.inf if open_ else 0.0))
