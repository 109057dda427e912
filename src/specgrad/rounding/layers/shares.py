"""Rounding rule of a softmax as a whole: what moves all cells of a row alike does not move its shares.

Operator by operator, exp(x - max x)/total charges the error of x four times: in the difference and in the maximum, for
numerator and total. By node each score, each exponential and the maximum is one number, so with e_i computed in
[low_i, high_i] up to one factor for the row

    low_i/(low_i + sum_{j != i} high_j) <= e_i/sum_j e_j <= high_i/(high_i + sum_{j != i} low_j),

which lies in [0, 1] however wide the scores are. docs/reference/rounding.md, "Shares", has the rest.

`context` (specgrad.rounding.context) is what rules read besides their arguments, and add to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...graph.graph import Graph, Node
from ...ops.elementwise import DIV
from ...scalar import Array
from ..arithmetic import Arithmetic, growth
from ..ball import SLACK, Ball
from ..context import Context
from ..slack_constants import U, long_slack
from .softmax import EXPONENT, exponential_error, lost_below
from .softmax_pattern import Softmax, softmax_at


@dataclass(eq=False)
class Shares:
    """The softmaxes of a graph, and the scores that they are of, which one walk fills.

    layers   the softmaxes, by the positions of their quotients
    scores   balls, by the positions of the differences that read them
    """

    layers: Mapping[int, Softmax]
    scores: dict[int, Ball] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.differences = {layer.difference for layer in self.layers.values()}

    def arguments(self, context: Context, i: int, node: Node, args: list[Ball]) -> list[Ball]:
        """Return the balls `args` of node i, unchanged; the scores among them are kept."""
        if i in self.differences:
            self.scores[i] = args[0]
        return args

    def result(self, context: Context, graph: Graph, i: int, node: Node, args: Sequence[Ball], ball: Ball) -> Ball:
        """Return the ball of node i, of its rule; narrowed where it is the quotient of a softmax by node."""
        layer = self.layers.get(i)
        if layer is None:
            return ball
        x = self.scores.pop(layer.difference, None)
        if x is None or not _is_plain(context) or (context.blocks and layer.seen is not None):
            return ball
        seen = None if layer.seen is None else np.asarray(graph.constants[layer.seen]) != 0
        low, high = share_ends(x, layer.axes, seen, context.arithmetic)
        with np.errstate(all="ignore"):
            radius = np.maximum(high - ball.value, ball.value - low) * SLACK + 4 * U * np.abs(ball.value)
            better = radius < ball.radius
        if not better.any():
            return ball
        return replace(ball, radius=np.where(better, radius, ball.radius), expansion=None)


def _is_plain(context: Context) -> bool:
    """Return whether values are stored once each, in one format, by sums of that format."""
    a = context.arithmetic
    mixed = a.stores or a.operands is not None or a.cores or a.casts != "stored" or context.formats or context.way
    return not (a.fused or mixed or context.centred)


def share_ends(x: Ball, axes: Sequence[int], seen: Array | None, arithmetic: Arithmetic) -> tuple[Array, Array]:
    """Return the least and the largest share that a softmax may compute of each cell; NaN where nothing is known.

    x           the scores: each is one number in its ball
    axes        along which shares are
    seen        which cells count; None: all
    arithmetic  its format and its declared error of exp are meant; totals are along any tree
    """
    axes, form = tuple(axes), arithmetic.inner
    u, tiny = form.u, form.tiny
    n = int(np.prod([x.shape[a] for a in axes]))
    with np.errstate(all="ignore"):
        shut = np.isneginf(x.value) & (x.radius == 0)
        shut = shut if seen is None else shut | ~seen
        value = np.where(shut, -np.inf, x.value)
        z = np.where(shut, -np.inf, value - value.max(axes, keepdims=True))
        apart = np.where(shut, 0.0, x.radius)
        may_be_largest = value + apart * SLACK >= (value - apart * SLACK).max(axes, keepdims=True)
        most = np.where(may_be_largest, apart, 0.0).max(axes, keepdims=True)
        far = z + (apart + most) * SLACK < lost_below(tiny)
        near = np.where(far, 0.0, np.abs(z) + apart + most)
        own = 16 * U * (1 + near)
        moved = (apart + growth(EXPONENT, u) * near + exponential_error(arithmetic) + own) * SLACK
        lost = tiny * np.exp(most * SLACK)
        high = np.where(shut, 0.0, np.where(far, 2 * lost, np.exp(z + moved) + 2 * lost)) * SLACK
        low = np.where(shut | far, 0.0, np.maximum(np.exp(z - moved) - lost, 0.0)) / SLACK
        total_high, total_low = high.sum(axes, keepdims=True), low.sum(axes, keepdims=True)
        slack = 4 * (n + 8) * U
        others_high = (total_high - high + slack * total_high) * SLACK
        others_low = np.maximum(total_low - low - slack * total_low, 0.0) / SLACK
        added, twice = growth(n + 2, u), (1 + u) ** 2 * long_slack(n)
        least = low / ((low + others_high) * (1 + added) + 4 * n * lost) / twice * (1 - u) - 2 * tiny
        largest = high / ((high + others_low) * (1 - added)) * twice + 2 * tiny
        known = np.isfinite(most) & np.isfinite(largest) & (added < 1)
    return np.where(known, np.maximum(least, 0.0), np.nan), np.where(known, np.where(shut, 0.0, largest), np.nan)


def shares_of(graph: Graph) -> Shares:
    """Return the softmaxes of a graph: quotients of exp(x - max x), or of its cells that a constant mask shows, by
    their sums.

    >>> import specgrad as sg
    >>> shares_of(sg.trace(sg.softmax, (2, 8))).layers
    {10: Softmax(x=0, difference=5, axes=(1,), seen=None)}
    """
    softmaxes = {i: softmax_at(graph, i) for i, node in enumerate(graph.nodes) if node.op is DIV}
    return Shares({i: layer for i, layer in softmaxes.items() if layer is not None})
