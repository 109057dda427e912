"""Rounding rules of statistics: a number m that is subtracted from all cells of a group, and the sum of the squares.

A normalisation computes c = x - m with one m for a group, v = sum(c^2)/n, and c/sqrt(v + eps). Three facts narrow what
its operators say one by one ("Statistics", docs/reference/rounding.md):

    squares     are products of two computed values: nothing is multiplied out across them, and none is negative.
                A sum of terms that are not negative keeps at least (1-u)^R of itself, so v + eps stays above 0
    one m       by node, m is one number for its group. With c_i + a_i - d computed for c_i, d the same for all cells,
                    sum (c_i + a_i - d)^2 = sum c_i^2 + 2 sum c_i a_i - 2 d sum c_i + sum (a_i - d)^2
                and sum c_i is 0 where m is the mean: what m is off by enters squared
    the mean    is off by at most sum_k ((1+u)^(D_k + 2) - 1) * abs(x)_(k) / n, D = n-1, n-1, n-2, ..., 1, whichever
                tree adds it up: half of what n roundings of every term would be

Where layers are fused a mean may be recomputed for every reader: then only the first holds.

`context` (specgrad.rounding.context) is what rules read besides their arguments, and add to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...graph.graph import Graph, Node, NumberArg
from ...ops.elementwise import ADD, DIV, MUL, POWER, SQRT, SUB
from ...ops.layout import BROADCAST, RESHAPE, SUM
from ...scalar import Array
from ..arithmetic import REFERENCE, Arithmetic, growth
from ..ball import SLACK, Ball, Expansion, unknown
from ..context import Context, at_least_1
from ..fusion_region import region_input
from ..linear import least_share, underflow_loss
from ..slack_constants import U, long_slack

GOES_ON = (SUM, RESHAPE, BROADCAST, ADD, MUL, DIV, SQRT)
"""What is not negative where all that it reads is not."""
DIVISIONS = 2  # roundings of a division by n: of its reciprocal, and of the product


@dataclass(frozen=True)
class Centred:
    """A sum of squares of differences x - m, by positions.

    square       of the square
    difference   of x - m
    shift        of m, broadcast
    power        whether squares are computed as powers
    """

    square: int
    difference: int
    shift: int
    power: bool = False


@dataclass(frozen=True)
class Mean:
    """A sum that becomes a mean: the position of its broadcast, and its divisor.

    divisor   what the sum is divided by
    """

    broadcast: int
    divisor: float


@dataclass(eq=False)
class Statistics:
    """The statistics of a graph, and what one walk through it has found of them so far.

    sums     position of a sum of squares -> what it sums
    means    position of a sum -> the mean that it becomes, of those that are subtracted
    shifts   per position of a subtracted number the radius with which it was read; filled on the way
    errors   per position of a broadcast mean what it is off by, by sorted depths; filled on the way
    balls    of the differences as squares read them, by position; filled on the way
    lows     per position of a sum of terms that are not negative: what its exact value, of the numbers that it reads
             as they were computed, is at least; filled on the way
    least_sums   what sums of squares of differences from one number are at least; filled on the way
    """

    sums: Mapping[int, Centred]
    means: Mapping[int, Mean]
    shifts: dict[int, Array] = field(default_factory=dict)
    errors: dict[int, Array] = field(default_factory=dict)
    balls: dict[int, Ball] = field(default_factory=dict)
    lows: dict[int, Array] = field(default_factory=dict)
    least_sums: dict[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.squares = {s.square: s for s in self.sums.values()}
        self.differences = {s.difference: s for s in self.sums.values()}

    def arguments(self, context: Context, i: int, node: Node, args: list[Ball]) -> list[Ball]:
        """Return the balls `args` of node i as its rule shall read them."""
        with np.errstate(all="ignore"):
            return self._arguments(context, i, node, args)

    def _arguments(self, context: Context, i: int, node: Node, args: list[Ball]) -> list[Ball]:
        """Return the balls `args` of node i as its rule shall read them."""
        by_node = not context.arithmetic.fused
        if i in self.squares:
            self.balls[self.squares[i].difference] = args[0]
            return [replace(args[0], expansion=None)] * len(args)
        if i in self.differences and by_node:  # m is a number, and is not multiplied out
            self.shifts[self.differences[i].shift] = args[1].radius
            return [args[0], replace(args[1], expansion=None)]
        if i in self.sums and by_node and context.way is None and not context.formats:
            return [self._squares_of_one_shift(context, i, node, args[0])]
        return args

    def result(self, context: Context, graph: Graph, i: int, node: Node, args: Sequence[Ball], ball: Ball) -> Ball:
        """Return the ball of node i, of its rule, narrowed by what is known here; `args` are those that were read."""
        if i in self.means and not context.arithmetic.fused:
            self._note_mean(context, self.means[i], node, args[0])
        if i in self.errors and not context.arithmetic.fused:
            error = np.broadcast_to(self.errors.pop(i), ball.shape)
            ball = replace(ball, radius=np.fmin(ball.radius, error), expansion=None)
        with np.errstate(all="ignore"):
            low = self._least(context, graph, i, node, args)
            return ball if low is None else self._not_negative(context, node, i, ball, low)

    def _note_mean(self, context: Context, mean: Mean, node: Node, x: Ball) -> None:
        """Note what the mean of x, which `node` sums, is off by along any tree, where sums are plain ones."""
        arithmetic = context.arithmetic
        plain = not (arithmetic.stores or arithmetic.depth or context.formats or arithmetic.casts == "dropped")
        part = context.expansion_of(x, 0, False)
        if plain and part.count.total == 0 and abs(mean.divisor) >= 1:
            axes, count = tuple(node.params["axes"]), _cells(x.shape, node.params["axes"])
            grown = growth(count + DIVISIONS, arithmetic.inner.u)
            size = part.size.sum(axes, keepdims=True)
            tree = tree_error(part.size, axes, DIVISIONS, arithmetic.inner.u)
            total = tree + growth(count + DIVISIONS, REFERENCE.u) * size + part.carried.sum(axes, keepdims=True)
            error = (total / abs(mean.divisor) + (3 * count + 8) * _loss(arithmetic) * (1 + grown)) * long_slack(count)
            known = np.isfinite(error) & (size * (1 + grown) * long_slack(count) <= arithmetic.largest)
            self.errors[mean.broadcast] = np.where(known, error, np.inf)

    def _squares_of_one_shift(self, context: Context, i: int, node: Node, square: Ball) -> Ball:
        """Return the ball of the squares as their sum, node i, may read it: what it is off by, added up over a group,
        bounds what the sum is off by, but a single square may be off by more.
        """
        at, axes = self.sums[i], tuple(node.params["axes"])
        c, shift = self.balls[at.difference], self.shifts[at.shift]
        count = _cells(c.shape, axes)
        apart = np.maximum(c.radius - shift, 0.0) * SLACK  # a_i
        size = np.abs(c.value)
        off = np.abs(c.value.sum(axes, keepdims=True)) + 2 * count * U * size.sum(axes, keepdims=True)
        first = 2 * size * apart + 2 * shift * off / count
        self.least_sums[i] = (c.value**2).sum(axes) / long_slack(count) - first.sum(axes) * long_slack(count)
        moved = np.where(np.isfinite(c.radius), (first + (apart + shift) ** 2) * long_slack(count), np.inf)
        e = square.expansion
        if e is None and not at.power:
            return square
        if e is None:
            e = _read_anew(context, square)
            grown = growth(_power_units(context.arithmetic), context.arithmetic.u)
            moved = moved + grown * c.size**2 * SLACK + 2 * context.arithmetic.tiny
        return replace(square, expansion=replace(e, group=context.call.group, carried=moved, size=c.size**2 * SLACK))

    def _least(self, context: Context, graph: Graph, i: int, node: Node, args: Sequence[Ball]) -> Array | None:
        """Return what node i is at least, exactly, of the numbers that it, or its region, reads as they were computed;
        None if it is no sum of terms that are not negative.
        """
        if is_square(graph, i):
            merged = context.expansion_of(args[0], 0, False).count.total > 0
            return None if merged else np.asarray(args[0].least ** 2 / SLACK)
        if node.op not in GOES_ON or not any(isinstance(a, int) and a in self.lows for a in node.args):
            return None
        lows: list[Array] = []
        for k, (a, ball) in enumerate(zip(node.args, args, strict=True)):
            if isinstance(a, int) and a in self.lows and (k == 0 or node.op is ADD):
                lows.append(self._read_low(context, node, ball, k))
            elif not context.call.is_given(k) or np.any(ball.low < 0) or (node.op is DIV and k == 0):
                return None
            else:
                lows.append(ball.high if node.op is DIV else ball.low)
        count = 1 if node.op is not SUM else _cells(args[0].shape, node.params["axes"])
        with np.errstate(all="ignore"):
            low = context.evaluate(node.op, lows, node.params) / long_slack(count)
            low = np.fmax(low, self.least_sums.pop(i, -np.inf))
        return np.asarray(np.fmax(low, 0.0))

    def low_of_terms(self, context: Context, node: Node, ball: Ball) -> Array | None:
        """Return what the terms of a sum, cells of `ball`, are at least; None if they may be negative."""
        if context.call.sources[0] not in self.lows:
            return None
        return np.broadcast_to(self._read_low(context, node, ball), ball.shape)

    def ball_of_sum(self, context: Context, node: Node, i: int, ball: Ball, low: Array) -> Ball:
        """Return the ball of node i, a sum whose terms add up to `low` at least, with the least number that any
        execution gives.
        """
        shape = context.call.whole.shapes[0] if context.call.whole else ball.shape
        with np.errstate(all="ignore"):
            low = np.fmax(low / long_slack(_cells(shape, node.params["axes"])), 0.0)
            return self._not_negative(context, node, i, ball, low)

    def _read_low(self, context: Context, node: Node, ball: Ball, k: int = 0) -> Array:
        """Return what argument k of a node is at least: exactly where it is multiplied out, else as it was computed."""
        group = context.call.linear_group(node.op, len(node.args))
        part = context.expansion_of(ball, k, context.arithmetic.fused and group is not None)
        exact = part is ball.expansion and node.op is not SQRT
        return self.lows[context.call.sources[k]] if exact else np.fmax(ball.low, 0.0)

    def _not_negative(self, context: Context, node: Node, i: int, ball: Ball, low: Array) -> Ball:
        """Return the ball of node i with the least number that any execution gives, `low` being the exact one."""
        arithmetic, e = context.arithmetic, ball.expansion
        if e is not None:
            lost = underflow_loss(arithmetic, e.count, e.most, None) * long_slack(e.count.longest)
            least = low * least_share(arithmetic, e.count) / SLACK - lost
        elif node.op in (SQRT, POWER):
            units = _power_units(arithmetic) if node.op is POWER else arithmetic.ulp_bound("sqrt")[0] + 1
            least = low * (1 - growth(units, arithmetic.u)) / SLACK - 2 * arithmetic.tiny
        else:  # layout
            least = low - arithmetic.tiny
        least, open_ = np.broadcast_to(np.fmax(least, 0.0), ball.shape), unknown(ball)
        self.lows[i] = np.where(open_, 0.0, low if e is not None else least)
        return replace(
            ball, ends=(np.where(open_, -np.inf, np.fmax(ball.low, least)), np.where(open_, np.inf, ball.high))
        )


def statistics_of(graph: Graph) -> Statistics:
    """Return the statistics of a graph: sums of squares of differences from one number per group, and means that are
    subtracted.

    >>> import specgrad as sg
    >>> found = statistics_of(sg.trace(lambda x: sg.layer_norm(x, (8,)), (2, 8)))
    >>> found.sums, found.means
    ({7: Centred(square=6, difference=5, shift=4, power=False)}, {1: Mean(broadcast=4, divisor=8.0)})
    """
    sums = {}
    for i, node in enumerate(graph.nodes):
        if node.op is SUM and is_square(graph, node.operands()[0]):
            (square,) = node.operands()
            difference = graph.nodes[square].operands()[0]
            below = graph.nodes[difference]
            if below.op is SUB and len(below.operands()) == 2 and _is_shared(graph, below.args[1], node.params["axes"]):
                sums[i] = Centred(square, difference, below.operands()[1], graph.nodes[square].op is POWER)
    means = dict(filter(None, (mean_at(graph, s.shift) for s in sums.values())))
    return Statistics(sums, means)


def is_square(graph: Graph, i: int) -> bool:
    """Return whether node i is the square of a node."""
    node = graph.nodes[i]
    if node.op is POWER:
        return bool(node.params["exponent"] == 2)
    return node.op is MUL and isinstance(node.args[0], int) and node.args[0] == node.args[1]


def _is_shared(graph: Graph, shift: int | NumberArg, axes: Sequence[int]) -> bool:
    """Return whether the node `shift` holds one number along these axes."""
    node = graph.nodes[shift] if isinstance(shift, int) else None
    if node is None or node.op is not BROADCAST:
        return False
    (source,) = node.operands()
    shape = graph.nodes[source].shape
    return len(shape) == len(node.shape) and all(shape[a] == 1 for a in axes)


def mean_at(graph: Graph, broadcast: int) -> tuple[int, Mean] | None:
    """Return (position of its sum, the mean) of a mean that is broadcast along the axes that it was taken of; None for
    any other number.
    """
    (at,), divisor = graph.nodes[broadcast].operands(), 0.0
    kept = graph.nodes[at].shape
    while graph.nodes[at].op is RESHAPE or (graph.nodes[at].op is DIV and not divisor):
        node = graph.nodes[at]
        if node.op is DIV:
            if not isinstance(node.args[1], NumberArg) or not isinstance(node.args[0], int):
                return None
            divisor = float(node.args[1].value)
        at = node.operands()[0]
    total = graph.nodes[at]
    if total.op is not SUM or not divisor:
        return None
    shape = graph.nodes[total.operands()[0]].shape
    summed = tuple(1 if a in total.params["axes"] else n for a, n in enumerate(shape))
    return (at, Mean(broadcast, divisor)) if summed == kept and shape == graph.nodes[broadcast].shape else None


def tree_error(size: Array, axes: Sequence[int], besides: int, u: float) -> Array:
    """Return the most that a sum along `axes` of terms of these sizes is off by, along any tree of additions, where
    each term meets so many roundings `besides`; summed axes stay with size 1.

    >>> terms = np.ones((1, 100))
    >>> bool(0.5 < tree_error(terms, (1,), 0, 2.0**-24).item() / (100 * 100 * 2.0**-24) < 0.52)
    True
    """
    kept = [a for a in range(size.ndim) if a not in axes]
    shape = tuple(1 if a in axes else n for a, n in enumerate(size.shape))
    flat = size.transpose(*kept, *axes).reshape(math.prod(size.shape[a] for a in kept), -1)
    n = flat.shape[1]
    depths = np.concatenate([np.arange(1, n), [n - 1]]) if n > 1 else np.zeros(n)
    grown = growth(np.sort(depths) + besides, u)
    return np.asarray((np.sort(flat, axis=1) * grown).sum(1).reshape(shape) * long_slack(n))


def _cells(shape: Sequence[int], axes: Sequence[int]) -> int:
    """Return how many cells a group along these axes has."""
    return math.prod(shape[a] for a in axes)


def _power_units(arithmetic: Arithmetic) -> float:
    """Return the units of u that a square may be off by which is computed as a power, see `power_rule`."""
    return max(arithmetic.ulp_bound("power")[0], 4.0)


def _loss(arithmetic: Arithmetic) -> float:
    """Return the most that one operation, or one operand, loses to underflow."""
    return arithmetic.inner.tiny if arithmetic.flush else (1 + arithmetic.inner.directed) * arithmetic.inner.smallest


def _read_anew(context: Context, ball: Ball) -> Expansion:
    """Return the expansion of a value that a region reads from outside."""
    count = region_input(context.call.sources[0], context.call.cells_read(0, ball))
    size = ball.size
    most = at_least_1(size, context.arithmetic.format.largest)
    return Expansion(context.call.group, ball.radius, size, np.abs(ball.value), most, count)
