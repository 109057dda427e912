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

from ...graph.graph import CONSTANT, Graph, Node, NumberArg
from ...ops.elementwise import DIV, EXP, MUL, SELECT, STOP_GRADIENT, SUB
from ...ops.layout import BROADCAST, RESHAPE, SUM
from ...ops.max_pool import AMAX
from ...scalar import Array
from ..arithmetic import Arithmetic, growth
from ..ball import SLACK, Ball
from ..context import Context
from ..slack_constants import U, long_slack
from .normalisation import source_of
from .softmax import EXPONENT, exponential_error, lost_below


@dataclass(frozen=True)
class Softmax:
    """A softmax, by positions.

    difference   of x less a number of its row
    axes         along which
    seen         of a constant, 1 where a cell counts and 0 where it does not; None: all count
    """

    difference: int
    axes: tuple[int, ...]
    seen: int | None = None


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

    def result(self, context: Context, graph: Graph, i: int, args: Sequence[Ball], ball: Ball) -> Ball:
        """Return the ball of node i, of its rule; narrowed where it is the quotient of a softmax by node."""
        layer = self.layers.get(i)
        if layer is None:
            return ball
        x = self.scores.pop(layer.difference, None)
        if x is None or not _is_plain(context):
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
    {10: Softmax(difference=5, axes=(1,), seen=None)}
    """
    layers = {}
    for i, node in enumerate(graph.nodes):
        if node.op is DIV and len(node.operands()) == 2:
            layer = _softmax_at(graph, node)
            if layer is not None:
                layers[i] = layer
    return Shares(layers)


def _softmax_at(graph: Graph, node: Node) -> Softmax | None:
    """Return the softmax whose quotient is `node`; None for another quotient."""
    e, other = node.operands()
    total = source_of(graph, other)
    if graph.nodes[total].op is not SUM or graph.nodes[total].operands() != (e,):
        return None
    axes = tuple(graph.nodes[total].params["axes"])
    exponent = _shown_exponent(graph, e)
    if exponent is None or not _is_along(graph, other, graph.nodes[e].shape, axes):
        return None
    below, seen = exponent
    difference = graph.nodes[below]
    if difference.op is not SUB or len(difference.operands()) != 2:
        return None
    x, shift = difference.operands()
    if not _is_along(graph, shift, difference.shape, axes) or not _is_largest(graph, shift, x, axes, seen):
        return None
    return Softmax(below, axes, seen)


def _shown_exponent(graph: Graph, e: int) -> tuple[int, int | None] | None:
    """Return (d, None) if node e is exp(d), (d, s) if it is exp(d*s) where the constant s is 1, and 0 elsewhere."""
    node = graph.nodes[e]
    if node.op is EXP:
        return node.operands()[0], None
    if node.op is not SELECT or node.args[2] != NumberArg(0):
        return None
    seen, at = node.args[:2]
    if not isinstance(seen, int) or not isinstance(at, int) or graph.nodes[at].op is not EXP:
        return None
    product = graph.nodes[graph.nodes[at].operands()[0]]
    if graph.nodes[seen].op is not CONSTANT or product.op is not MUL or product.args[1] != seen:
        return None
    if not np.isin(np.asarray(graph.constants[seen], float), (0, 1)).all():
        return None
    return product.operands()[0], seen


def _is_along(graph: Graph, at: int, shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Return whether node `at` broadcasts one number along these axes of a shape, and has cells of its own along the
    others.
    """
    node = graph.nodes[at]
    kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
    return node.op is BROADCAST and graph.nodes[node.operands()[0]].shape == kept


def _is_largest(graph: Graph, at: int, x: int, axes: tuple[int, ...], seen: int | None) -> bool:
    """Return whether node `at` is the maximum of node x along these axes, or of the cells that `seen` shows, others
    being lowered to the smallest.
    """
    while graph.nodes[at].op in (BROADCAST, STOP_GRADIENT, RESHAPE):
        (at,) = graph.nodes[at].operands()
    top = graph.nodes[at]
    if top.op is not AMAX or tuple(top.params["axes"]) != axes:
        return False
    (of,) = top.operands()
    if seen is None:
        return of == x
    chosen = graph.nodes[of]
    return (
        chosen.op is SELECT and chosen.args[0] == seen and chosen.args[1] == x and _is_smallest(graph, chosen, x, axes)
    )


def _is_smallest(graph: Graph, chosen: Node, x: int, axes: tuple[int, ...]) -> bool:
    """Return whether what a node chooses beside x is the smallest cell of its row of x along `axes`: -max(-x).

    The smallest of other cells may lie above all that count in a row.
    """
    at, times = chosen.args[2], 0
    while isinstance(at, int) and (graph.nodes[at].op in (BROADCAST, RESHAPE) or _negates(graph.nodes[at])):
        if graph.nodes[at].op is BROADCAST and not _is_along(graph, at, graph.nodes[x].shape, axes):
            return False
        times += _negates(graph.nodes[at])
        at = graph.nodes[at].operands()[0]
    if not isinstance(at, int) or graph.nodes[at].op is not AMAX or times % 2 == 0:
        return False
    (of,) = graph.nodes[at].operands()
    along = tuple(graph.nodes[at].params["axes"]) == axes
    return along and _negates(graph.nodes[of]) and graph.nodes[of].operands()[0] == x


def _negates(node: Node) -> bool:
    """Return whether a node multiplies by -1."""
    return node.op is MUL and node.args[1] == NumberArg(-1)
