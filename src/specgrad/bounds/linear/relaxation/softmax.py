"""Softmax as one layer: y_i = 1 / (1 + sum over j != i of exp(x_j - x_i)), whatever x was shifted by before exp.

A graph says it by parts: exp(x - max x), their sum, a quotient. Cell by cell the parts forget that numerator and sum go
up together; of the differences d_j = x_j - x_i, which no shift changes, y is one function with two simple bounds:

    below   exp(d_j) <= its chord, so 1/y <= q(d), linear; and 1/q >= 2/q0 - q/q0**2 for any q0 > 0
    above   log(1/y) is convex: it is at least sum p_j*d_j + H(p) for any shares p (Jensen), so y <= exp(r(d)), linear
            r, and exp lies below its chord

Either line gives way to a flat one where that is nearer at the middle of the box.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specgrad.graph.graph import Graph, Node, broadcast_back
from specgrad.ops.elementwise import DIV, EXP, STOP_GRADIENT, SUB
from specgrad.ops.layout import BROADCAST, RESHAPE, SUM
from specgrad.ops.max_pool import AMAX
from specgrad.rounding import slack_constants
from specgrad.rounding.arithmetic import Arithmetic, growth
from specgrad.rounding.ball import SLACK
from specgrad.scalar import Array

from .bound_layers import BoundRelaxed, Interval
from .formulas import LinearRelaxation, shares

LAYOUT = (RESHAPE, BROADCAST, STOP_GRADIENT)
MAX_EXPONENT = 500.0  # exp of it, times any number of cells, is a float64; beyond, y is at least 0 and that is all


class SoftmaxNodes(NamedTuple):
    """Positions of the nodes of a softmax: its source, exponent, exp, sum, and the layout nodes between them.

    shift   from the maximum that was subtracted to the exponent's second argument; empty: nothing was
    total   from the sum to the divisor
    numerator   the exp
    axis      along which is summed
    """

    source: int
    exponent: int
    numerator: int
    axis: int
    shift: tuple[int, ...]
    total: tuple[int, ...]


def match_softmax(graph: Graph, i: int) -> SoftmaxNodes | None:
    """Return the nodes of the softmax if node i is exp(z) / sum of exp(z) along one axis; else None.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.softmax(sg.relu(x), 0), (3, 2))
    >>> match_softmax(graph, len(graph.nodes) - 1)[:4]
    (1, 6, 7, 0)
    """
    node = graph.nodes[i]
    if node.op is not DIV or not all(isinstance(a, int) for a in node.args):
        return None
    e, divisor = node.operands()
    total = broadcast_back(graph, divisor, SUM, e, LAYOUT)
    if graph.nodes[e].op is not EXP or total is None or len(graph.nodes[total[0]].params["axes"]) != 1:
        return None
    return _softmax_nodes(graph, e, total)


def match_exp_sum(graph: Graph, i: int) -> SoftmaxNodes | None:
    """Return the softmax nodes if node i is a sum of exp(x - max x) along the maximum's axis, hence at least 1; else
    None.
    """
    node = graph.nodes[i]
    if node.op is not SUM or len(node.params["axes"]) != 1 or graph.nodes[node.operands()[0]].op is not EXP:
        return None
    parts = _softmax_nodes(graph, node.operands()[0], (i,))
    return parts if parts.shift else None


def _softmax_nodes(graph: Graph, e: int, total: tuple[int, ...]) -> SoftmaxNodes:
    """Softmax nodes from the position `e` of exp and the nodes of its sum, `total`, of which the first is the sum
    itself.
    """
    (axis,), (z,) = graph.nodes[total[0]].params["axes"], graph.nodes[e].operands()
    shift = match_shift_by_max(graph, z)
    if shift is not None and graph.nodes[shift[0]].params["axes"] == (axis,):
        return SoftmaxNodes(graph.nodes[z].operands()[0], z, e, axis, shift, total)
    return SoftmaxNodes(z, z, e, axis, (), total)


def match_shift_by_max(graph: Graph, i: int) -> tuple[int, ...] | None:
    """Return the nodes from the maximum to the subtrahend if node i is x - max x, which is never positive;
    else None.
    """
    node = graph.nodes[i]
    if node.op is not SUB or not all(isinstance(a, int) for a in node.args):
        return None
    x, subtracted = node.operands()
    return broadcast_back(graph, subtracted, AMAX, x, LAYOUT)


class BoundSoftmax(BoundRelaxed):
    """Softmax as one layer: every cell along the axis is a tap of every cell, so lines have an axis of taps in front.

    `node`, at `position`, is the last one of it; `parts` are all of them.
    """

    def __init__(self, position: int, node: Node, parts: SoftmaxNodes) -> None:
        super().__init__(position, node, (parts.source,))
        self.parts, self.axis = parts, parts.axis

    def read(self, x: Tensor) -> Tensor:
        """Return x (boxes, *shape) as (taps, boxes, *shape): tap j of cell i is x_j."""
        return x.movedim(self.axis + 1, 0).unsqueeze(self.axis + 2).expand(x.shape[self.axis + 1], *x.shape)

    def error_through(self, slope: Tensor, v: Tensor) -> Tensor:
        """Effect on a plane of an error of at most v in the source: abs(slope) times v, summed over the softmax's
        axis.
        """
        return (slope.abs() * self.read(v)).sum(0)

    def relaxation(self, ends: Interval, candidate_taps: Tensor | None = None) -> LinearRelaxation:
        """Return two planes around the softmax on the box `ends`, its source's (lower, upper) bounds; `candidate_taps`
        is not used.
        """
        low, high = ends
        return softmax_relaxation(self.read(low), self.read(high), low, high, self._is_own_tap(low))

    def _is_own_tap(self, x: Tensor) -> Tensor:
        """Bool mask (taps, boxes, *shape): whether a tap is the cell itself."""
        n = x.shape[self.axis + 1]
        view = [n, *(1,) * x.ndim]
        view[self.axis + 2] = n
        return torch.eye(n, dtype=torch.bool).view(view).expand(n, *x.shape)

    def interval(self, ends: Interval) -> Interval:
        """Return (least, greatest) value of the softmax on a box of its source, `ends` being (lower, upper)."""
        low, high = ends
        return softmax_interval(*differences(self.read(low), self.read(high), low, high, self._is_own_tap(low)))

    def source_coefficients(self, positive: Tensor, negative: Tensor, lines: LinearRelaxation) -> Tensor:
        """Coefficients of the source: slopes of `lines` times the node's `positive` and `negative` coefficients, summed
        over outputs of the axis.
        """
        part = positive * lines.lower_slope.unsqueeze(2) + negative * lines.upper_slope.unsqueeze(2)
        return part.sum(self.axis + 3).movedim(0, self.axis + 2)


# --- lines ------------------------------------------------------------------------------------------------------------


def differences(low: Tensor, high: Tensor, own_low: Tensor, own_high: Tensor, own: Tensor) -> Interval:
    """Interval of d_j = x_j - x_i, rounded outward; 0 for the cell itself.

    low and high are bounds of all x_j, taps first; own_low and own_high those of x_i; `own` marks j = i.
    """
    least, most = low - own_high, high - own_low
    step = slack_constants.OUTWARD * torch.maximum(least.abs(), most.abs())
    return torch.where(own, 0.0, least - step), torch.where(own, 0.0, most + step)


def _sum_rounding(taps: int) -> float:
    """Relative bound of our own rounding in sums over `taps` exponentials."""
    return slack_constants.SOFTMAX * (taps + 8)


def softmax_interval(least: Tensor, most: Tensor) -> Interval:
    """Interval of y_i = 1/sum_j exp(d_j): from 1/sum exp(most) to 1/sum exp(least), the bounds of d = x_j - x_i, taps
    first.
    """
    eta = _sum_rounding(len(least))
    low = (1 - eta) / torch.exp(most.clamp(max=MAX_EXPONENT)).sum(0)
    high = (1 + eta) / torch.exp(least.clamp(max=MAX_EXPONENT)).sum(0)
    return torch.where(most.amax(0) > MAX_EXPONENT, 0.0, low), high.clamp(max=1.0)


def softmax_relaxation(low: Tensor, high: Tensor, own_low: Tensor, own_high: Tensor, own: Tensor) -> LinearRelaxation:
    """Return the relaxation of every softmax cell; slopes (taps, ...) include the cell's own.

    low, high           of every tap, (taps, ...)
    own_low, own_high   of the cell itself
    own                 which tap is the cell itself
    """
    least, most = differences(low, high, own_low, own_high, own)
    reach = torch.maximum(low.abs(), high.abs()) + torch.maximum(own_low.abs(), own_high.abs())
    bottom, top = softmax_interval(least, most)
    middle = low / 2 + high / 2
    sides = []
    for side, (slope, offset), even in (
        (-1, _lower_plane(least, most), bottom),
        (1, _upper_plane(middle, least, most), top),
    ):
        slope = torch.where(own, 0.0, slope)  # whose difference is 0
        slope = torch.where(own, -slope.sum(0), slope)
        slack = _sum_rounding(len(low)) * (slope.abs() * reach).sum(0)  # the own slope, and its product with x
        offset = offset + side * slack
        near = side * ((slope * middle).sum(0) + offset - even) < 0
        sides += [torch.where(near, slope, 0.0), torch.where(near, offset, even)]
    return LinearRelaxation(*sides)


def _lower_plane(least: Tensor, most: Tensor) -> tuple[Tensor, Tensor]:
    """Return slopes and offset of a plane below y = 1/q(d), q(d) = sum of exp(d): 2*sqrt(a) - a*Q(d) for some a > 0,
    with Q the sum of chords of exp.

    `least` and `most` are bounds of d, taps first.
    """
    eta, least, most = _sum_rounding(len(least)), least.clamp(max=MAX_EXPONENT), most.clamp(max=MAX_EXPONENT)
    ends, size = (torch.exp(least), torch.exp(most)), torch.maximum(least.abs(), most.abs())
    chord = torch.where(most > least, (ends[1] - ends[0]) / torch.where(most > least, most - least, 1.0), 0.0)
    offset = torch.maximum(ends[0] - chord * least, ends[1] - chord * most)  # exp is convex: any slope will do
    slack = 2 * eta * (ends[1] + chord * size).sum(0)
    total = offset.sum(0) + slack
    q = total + (chord * (least / 2 + most / 2)).sum(0)
    a = 1 / q**2
    down = torch.where(most.amax(0) >= MAX_EXPONENT, -torch.inf, 2 * a.sqrt() * (1 - eta) - a * (total + slack))
    return -a * chord, down


def _upper_plane(middle: Tensor, least: Tensor, most: Tensor) -> tuple[Tensor, Tensor]:
    """Return slopes and offset of a plane above y = 1/sum of exp(d): the chord of exp over the range of r, as k*r(d) +
    c.

    r(d) = h - sum of weights*d; `middle` is the point where weights are taken, `least` and `most` are bounds of d, taps
    first.
    """
    eta, size = _sum_rounding(len(least)), torch.maximum(least.abs(), most.abs())
    weights, entropy, defect = shares(middle, torch.ones_like(middle) > 0, torch.zeros_like(middle[0]), 1.0)
    h = -(entropy - 2 * defect * (entropy + 1)) + defect * size.amax(0)
    slack = eta * (h.abs() + (weights * size).sum(0))
    low, high = h - (weights * most).sum(0) - slack, h - (weights * least).sum(0) + slack
    ends = torch.exp(low), torch.exp(high)
    k = torch.where(high > low, (ends[1] - ends[0]) / torch.where(high > low, high - low, 1.0), 0.0)
    c = torch.maximum(ends[0] - k * low, ends[1] - k * high)
    c = c + eta * (ends[1] + k * (low.abs() + high.abs() + h.abs() + (weights * size).sum(0)))
    return -k * weights, c + k * h


# --- rounding ---------------------------------------------------------------------------------------------------------


def exp_relative_error(arithmetic: Arithmetic, moved: Array, axis: int) -> Array:
    """Return a bound of the relative error of a computed exponential, and so of a sum of them before its own roundings.

    It has size 1 along `axis`, the softmax's.

    moved    how far an exponent may be from the exact one: exp(z + d) = exp(z)*exp(d). The worst of all cells counts.
    """
    units, kind = arithmetic.ulp_bound("exp")
    roundings = units + 1 if kind == "y" else np.inf  # one more for a store
    own = growth(roundings, arithmetic.u) if arithmetic.u else 8 * roundings * slack_constants.U
    worst = np.max(np.broadcast_to(moved, np.shape(moved)), axis=axis, keepdims=True)
    return np.asarray((np.exp(worst) * (1 + own) - 1 + slack_constants.OUTWARD) * slack_constants.SUMS)


def exp_sum_error(arithmetic: Arithmetic, relative: Array, taps: int) -> tuple[Array, float]:
    """Return bounds (relative error, underflow) of the sum of `taps` computed exponentials in any order.

    `relative` is that of one of them.
    """
    u = max(arithmetic.u, slack_constants.U)
    return np.asarray((1 + relative) * (1 + growth(taps + 2, u)) - 1), 4 * (taps + 1) * arithmetic.format.tiny


def quotient_error(arithmetic: Arithmetic, relative: Array, taps: int, largest: Array, least_total: Array) -> Array:
    """Bound of abs(e'/s' - e/S): e' = e*(1 + a), s' = S*(1 + b), two roundings of the quotient and a store.

    Relative to y = e/S that is (1 + a)*(1 + c)/(1 - b) - 1; infinite where that, or a divisor, leaves its range.
    `relative` bounds a, S is a sum of `taps` exponentials and at least `least_total`, and y is at most `largest`.

    >>> error = quotient_error(Arithmetic(execution="node"), np.array([1e-7]), 4, np.array([0.5]), np.array([1.0]))
    >>> bool(0.5e-7 < error < 1e-6)
    True
    """
    form = arithmetic.format
    total, lost = exp_sum_error(arithmetic, relative, taps)
    off = (1 + relative) * (1 + growth(3.0, max(arithmetic.u, slack_constants.U))) / (1 - total) - 1
    error = largest * off + (lost + 4 * form.tiny) / least_total * 2
    known = (total < 0.5) & (1 / least_total <= 2.0**60) & np.isfinite(error)
    return np.where(known, error * SLACK, np.inf)
