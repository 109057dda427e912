"""Rounding rules of resizing: coordinates that were computed in floats, and the sums that follow.

A computed coordinate misses the exact one by at most d (specgrad.window.resize.Resized.misses). Read linearly, y is
continuous and piecewise linear in the coordinate, with slopes x[k+1] - x[k]: it moves by at most d times the largest of
those that may be reached, whether or not a border between cells is crossed. Read from one cell, y is that of any cell
that may be reached. One axis comes after the other: the numbers that the second reads lie in the ball of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..op import Op, Params
from ..ops.resize import axes_resized
from ..scalar import Array
from ..window import Resized
from .ball import Ball
from .context import Context
from .linear import count_roundings, make_ball, rounded
from .slack_constants import COORDINATE, SLACK, long_slack


def resize_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of resize or its adjoint: incoming radii, errors of coordinates, and roundings of the sums.

    Infinite where a coordinate may be half a cell off; cells that a rounded coordinate may choose otherwise are marked
    undecided in `context`.
    """
    (x,) = args
    value = context.evaluate(op, [x.value], params)
    part = context.expansion_of(x, 0, context.arithmetic.fused)
    unit = COORDINATE if context.arithmetic.u else 0.0
    spread = "cells" in params
    cells = params["cells"] if spread else [x.shape[a] for a in params["axes"]]
    lines = axes_resized(cells, **{k: v for k, v in params.items() if k != "cells"})
    sizes = np.maximum(x.size, part.size)
    state = _State(x.value, x.radius, part.carried, sizes, context.centred)
    open_ = np.zeros((1,) * value.ndim, dtype=bool)
    for axis, line in reversed(lines) if spread else lines:
        if line.misses(unit).max() >= 0.5:  # a coordinate that may be anywhere
            return make_ball(context, value, np.full(value.shape, np.inf))
        chosen = _spread_axis(state, axis, line, unit) if spread else _read_axis(state, axis, line, unit)
        open_ = open_ | chosen
    context.mark_undecided(open_)
    count = op.roundings(x.shape, **params) if op.roundings is not None else 0
    met = count_roundings(context, op, [part.count], (0,), count, value.size, value.size, weights=max(0, count - 1))
    most = np.asarray(np.max(part.most, initial=1.0) * (count + 1))
    most = most if part.most.ndim == 0 else np.maximum(most, state.size)
    alone = None if part.count.total else state.size
    if not np.isfinite(np.max(x.size, initial=0.0)):  # a product with a matrix, whose zeros meet every cell of the axes
        whole = np.isfinite(x.size).all(axis=tuple(params["axes"]), keepdims=True)
        state.carried = np.where(whole, state.carried, np.inf)
    carried = state.carried * SLACK
    if met.total == 0:
        return make_ball(context, value, carried)
    return rounded(context, value, carried, state.size, met, most, None, alone)


def may_read_nonfinite(x: Array, params: Params) -> Array:
    """Return a mask of outputs for which a runtime may or may not read a NaN or infinity of x, or in another form.

    A cell of weight 0, or that another coordinate would read, may be multiplied or not; x0 + l*(x1 - x0) makes a NaN of
    an infinity, and a weighted sum does not. A NaN that is surely read stays one.
    """
    sure, loose = np.isnan(x), np.isinf(x)
    for axis, line in axes_resized([x.shape[a] for a in params["axes"]], **params):
        first, last, off = line.reached(COORDINATE)
        reach = [np.minimum(first + k, last) for k in range(int((last - first).max(initial=0)) + 1)]
        touched, unclear = (
            np.logical_or.reduce([np.take(m, cells, axis=axis) for cells in [*reach, *line.cells]])
            for m in (sure | loose, loose)
        )
        certain = line.weights > off if line.how == "linear" else (first == last)[None]
        taps = zip(line.cells, certain, strict=True)
        read = [np.take(sure, cells, axis=axis) & _along_axis(c, axis, x.ndim) for cells, c in taps]
        sure = np.logical_or.reduce(read)
        loose = unclear | (touched & ~sure)
    return loose


class _State:
    """The value on its way through the axes: its radius, what it carries, and the sum of the sizes of all taps.

    `value`, `radius`, `carried` and `size` are arrays of one shape; `centred`: they are of boxes, so that neighbours
    differ by up to their sizes.
    """

    def __init__(self, value: Array, radius: Array, carried: Array, size: Array, centred: bool) -> None:
        self.value, self.radius, self.carried, self.size, self.centred = value, radius, carried, size, centred

    def gap(self, axis: int) -> Array:
        """Return an upper bound of abs(x[k+1] - x[k]), neighbours along an axis; over boxes the sum of both sizes."""
        one, two = (slice(None, -1), slice(1, None))
        low, high = ((*[slice(None)] * axis, s) for s in (one, two))
        if self.centred:
            return np.asarray(self.size[low] + self.size[high])
        return np.asarray(np.abs(self.value[high] - self.value[low]) + self.radius[high] + self.radius[low])


def _along_axis(numbers: Array, axis: int, ndim: int) -> Array:
    """Return numbers per cell of an axis, shaped to broadcast along it in arrays of `ndim` axes."""
    return numbers.reshape((len(numbers), *(1,) * (ndim - axis - 1)))


def _sum_over_taps(x: Array, axis: int, line: Resized, weights: Any) -> Array:
    """Return the sum over taps of x along a resized axis `line`, with the given weights, (out,) per tap.

    The axis has its output size then.
    """
    taps = (
        np.take(x, cells, axis=axis) * _along_axis(w, axis, x.ndim)
        for cells, w in zip(line.cells, weights, strict=True)
    )
    return np.asarray(sum(taps))


def _read_axis(state: _State, axis: int, line: Resized, unit: float) -> Array:
    """Resize `state` along one axis, in place; return where the cell that is read is undecided.

    `line` is the resized axis; its coordinates may be off by `unit`, relative to their terms.
    """
    first, last, off = line.reached(unit)
    ndim, ones = state.value.ndim, np.ones_like(line.weights)
    gaps = state.gap(axis)
    steepest = np.zeros((*state.value.shape[:axis], line.out, *state.value.shape[axis + 1 :]))
    for k in range(int((last - first).max(initial=0))):
        there = np.minimum(first + k, max(line.n - 2, 0))
        gap = np.where(_along_axis(first + k < last, axis, ndim), np.take(gaps, there, axis=axis), 0.0)
        steepest = np.maximum(steepest, gap) if line.how == "linear" else steepest + gap
    moved = steepest * _along_axis(off if line.how == "linear" else np.ones(line.out), axis, ndim)
    state.value = _sum_over_taps(state.value, axis, line, line.weights)
    state.radius = (_sum_over_taps(state.radius, axis, line, line.weights) + moved) * SLACK
    state.carried = (_sum_over_taps(state.carried, axis, line, line.weights) + moved) * SLACK
    state.size = (_sum_over_taps(state.size, axis, line, ones) + moved) * SLACK
    return _along_axis(first != last, axis, ndim) if line.how != "linear" else np.zeros((1,) * ndim, dtype=bool)


def _spread_axis(state: _State, axis: int, line: Resized, unit: float) -> Array:
    """Apply the adjoint along one axis to `state`, in place: gy[o] goes to the cells that it may have been read from.

    Each weight is off by what coordinates, in `unit`, may be off. Returns all False: no cell stays undecided. `line` is
    the resized axis.
    """
    first, last, off = line.reached(unit)
    ndim = state.value.ndim
    share = off if line.how == "linear" else (first != last).astype(float)
    at, amounts = list(line.cells), [line.weights[t] for t in range(len(line.cells))]
    shape = (*state.value.shape[:axis], line.n, *state.value.shape[axis + 1 :])

    def spread(x: Array, rows: list[Array], weights: list[Array]) -> Array:
        """Return x added up in the cells `rows`, times the weights."""
        total = np.zeros(shape)
        for cells, w in zip(rows, weights, strict=True):
            np.add.at(np.moveaxis(total, axis, 0), cells, np.moveaxis(x * _along_axis(w, axis, ndim), axis, 0))
        return total

    width = int((last - first).max(initial=0)) + 1
    reach = [np.minimum(first + k, last) for k in range(width)]
    shares = [share * (first + k <= last) for k in range(width)]
    moved = spread(np.maximum(np.abs(state.value) + state.radius, state.size), reach, shares)
    slack = long_slack(2 * line.out)  # of sums over all outputs that read a cell
    state.value, state.radius, state.carried, state.size = (
        spread(state.value, at, amounts),
        (spread(state.radius, at, amounts) + moved) * slack,
        (spread(state.carried, at, amounts) + moved) * slack,
        (spread(state.size, at, amounts) + moved) * slack,
    )
    return np.zeros((1,) * ndim, dtype=bool)
