"""Judge a softmax by what its cells share: is there one total that explains all cells of a row?

y_i = exp(x_i - M)/T with one T, so with z_i = x_i - M every cell says where log(T) is: at z_i - log(y_i), up to
local_i, what the roundings of this cell can cost. A row is explained if these intervals meet, and meet the
one that sums along any tree allow. What is left of it is the interval of the unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specgrad.graph.graph import Graph
from specgrad.rounding.arithmetic import Arithmetic
from specgrad.rounding.ball import Ball
from specgrad.rounding.layers.softmax import SoftmaxRows, softmax_of, softmax_rows, total_in
from specgrad.scalar import Array

from .judge import Verdict

ONE_TOTAL = "one total"


@dataclass(frozen=True, eq=False)
class SharedTotal:
    """What the rows of a softmax say of their totals.

    rows       the cells, and their places in the result
    explained  per row, whether one total explains it
    low, high  per row, the interval of the total that its cells ask for, as a part of the exact one, less 1; low is
               above high where they contradict each other
    allowed    per row, the most that a kernel's total may be off by; inf where nothing is known
    cells      per row, whether cells that are compared with no others, or whose total is unknown, are right
    """

    rows: SoftmaxRows
    explained: Array
    low: Array
    high: Array
    allowed: Array
    cells: Array

    def __str__(self) -> str:
        if not self.explained.size:
            return ONE_TOTAL
        k = int(np.argmax(np.abs(self.low + self.high)))
        if not np.isfinite(self.allowed[k]):
            return f"{ONE_TOTAL} to a row, of which nothing is known here"
        seen = f"1 {self.low[k]:+.1e} to {self.high[k]:+.1e} of the exact one, +-{self.allowed[k]:.1e} allowed"
        return f"{ONE_TOTAL} to a row: sum exp(x - max x) is {seen}"


def shared_total(graph: Graph, inputs: Sequence[Array], got: Array, arithmetic: Arithmetic) -> SharedTotal | None:
    """Return what a result `got` of a graph at these inputs says of the totals of its rows; None if the graph is no
    softmax, or its cells are not in float32's reach.

    arithmetic   with the declared error of exp

    >>> import specgrad as sg
    >>> x = np.float32(np.random.default_rng(0).normal(size=(2, 64)))
    >>> graph = sg.trace(sg.softmax, (2, 64))
    >>> y = np.float32(graph(x.astype(float)))
    >>> [shared_total(graph, [x], a, Arithmetic()).explained.tolist() for a in (y, y * np.float32(1.0001))]
    [[True, True], [False, False]]
    """
    layer = softmax_of(graph)
    if layer is None or not all(are_float32(a) for a in inputs):
        return None
    rows = softmax_rows(graph, layer, inputs)
    if not rows.x.size or np.isnan(rows.x).any() or np.isposinf(rows.x).any():
        return None
    y, at = np.asarray(got, float).reshape(-1)[rows.places], total_in(rows.x, arithmetic)
    with np.errstate(all="ignore"):
        seen = np.where(at.compared, at.z - np.log(np.maximum(y, 0.0)) - np.log(at.total), np.nan)
        low = np.fmax.reduce(seen - at.local, axis=1)
        high = np.fmin.reduce(seen + at.local, axis=1)
        off = at.off[:, 0]
        open_ = ~np.isfinite(off)
        ends = np.fmax(low, np.log1p(-off)), np.fmin(high, np.log1p(off))
        cells = (np.isfinite(y) & (y >= 0) & (at.compared | (y <= at.most))).all(1)
        fine = ((ends[0] <= ends[1]) & cells) | open_
        left = [np.where(open_, np.inf, np.expm1(e)) for e in (low, high)]
    return SharedTotal(rows, fine, left[0], left[1], off, cells | open_)


def judge_total(
    verdict: Verdict, graph: Graph, inputs: Sequence[Array], got: Array, ball: Ball, arithmetic: Arithmetic
) -> tuple[Verdict, str]:
    """Return the verdict on the result `got` of a softmax, "differs" if some row has no one total, and what is left of
    the unknown in words; anything else keeps its verdict, with "".

    ball   what each cell by itself may be
    """
    totals = shared_total(graph, inputs, got, arithmetic)
    if totals is None or totals.explained.all():
        return verdict, "" if totals is None else str(totals)
    k = int(np.argmin(totals.explained))
    places = totals.rows.places[k]
    with np.errstate(all="ignore"):
        off = np.abs(np.asarray(got, float).reshape(-1)[places] / ball.value.reshape(-1)[places] - 1)
    worst = int(places[int(np.argmax(np.where(np.isfinite(off), off, -1.0)))])
    index = tuple(int(i) for i in np.unravel_index(worst, ball.value.shape))
    text = f"no one total explains row {k}: its cells ask for sum exp(x - max x) times at least 1 {totals.low[k]:+.1e} "
    text += (
        f"and at most 1 {totals.high[k]:+.1e} (+-{totals.allowed[k]:.1e} allowed), each of them up to a few roundings"
    )
    actual, expected, allowed = (float(np.asarray(a).reshape(-1)[worst]) for a in (got, ball.value, ball.radius))
    return replace(
        verdict, kind="differs", ratio=np.inf, fault="value", index=index, detail=text, actual=actual,
        expected=expected, allowed=allowed,
    ), ""  # fmt: skip


def are_float32(a: Array) -> bool:
    """Return whether float32 holds all numbers of an array; infinities are held, NaN is not.

    >>> are_float32(np.array([0.5, -np.inf])), are_float32(np.array([0.1]))
    (True, False)
    """
    with np.errstate(over="ignore"):
        return bool((np.asarray(a, np.float32) == a).all())
