"""A softmax's mask that shuts cells out by the lowest number, or -inf, as one whose sums float64 holds: -1024.

Linear bounds compute in float64, where the lowest float32 plus a score has lost the score, and -inf has no middle. Let
every score of a row that adds or chooses a mask lie within REACH of 0 in every execution, and let the row have a cell
that is not shut out. Then the mask's size says nothing, as long as it is at most NEAR:

    original  the sum is below FAR + REACH whatever is rounded, or -inf, never the row's maximum, and the exponential of
              its difference from that is at most t, the smallest normal number, in every execution
    here      the same with NEAR + REACH - (-REACH) = -768: exactly exp(-768) < 2**-1074 at most, and what is claimed of
              a computed exponential is that it is within t of that

So an execution of the original is one of what is bounded here, and exact shares are closer than float64 can tell
(specgrad.rounding.slack_constants.UNDERFLOW). That scores lie within REACH is looked at when they are bounded: those of
the first softmax rest on no mask, those of the second on the first alone, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..graph.graph import CONSTANT, Graph, NumberArg, section
from ..ops.elementwise import ADD, SELECT, SUB
from ..ops.layout import BROADCAST, RESHAPE
from ..scalar import Array
from .box import Box
from .linear.relaxation.softmax import match_softmax

FAR, NEAR, REACH = -1e4, -1024.0, 128.0


@dataclass(frozen=True, eq=False)
class NearMasks:
    """A graph with near masks in place of far ones.

    shut    per masked node, by position: which of its cells are shut out
    moved   positions of nodes whose own values differ from the original's, below NEAR + 2*REACH
    """

    graph: Graph
    shut: dict[int, Array]
    moved: frozenset[int]

    def low_of(self, box: Box) -> Array:
        """Return the lower end of a node that is `moved`, in the original graph."""
        return np.where(box.high < NEAR + 3 * REACH, -np.inf, box.low)

    def hold(self, forward: Any) -> bool:
        """Return whether all masked scores lie within reach in `forward`, a pass through `graph` (ForwardPass)."""
        for i, shut in self.shut.items():
            ball = forward.balls[i]
            with np.errstate(invalid="ignore"):
                near = np.maximum(np.abs(ball.low - NEAR * shut), np.abs(ball.high - NEAR * shut)) <= REACH
            if not near.all():
                return False
        return True


def near_masks(graph: Graph) -> NearMasks:
    """Return the graph with its far masks brought near; those of a softmax alone, in rows that are not shut out as a
    whole.

    >>> import specgrad as sg
    >>> mask = np.where(np.tri(3, dtype=bool), 0, -np.inf)
    >>> near = near_masks(sg.trace(lambda x: sg.softmax(x + mask, -1), (3, 3)))
    >>> [a.tolist() for a in near.graph.constants.values()]
    [[[0.0, -1024.0, -1024.0], [0.0, 0.0, -1024.0], [0.0, 0.0, 0.0]]]
    """
    axes = _axes_of_scores(graph)
    nodes, constants, shut = list(graph.nodes), dict(graph.constants), {}
    for i in axes:
        node = graph.nodes[i]
        if node.op is SELECT and (c := _laid_constant(graph, node.args[0])) is not None:
            kept = _laid_out(graph, c, node.args[0]) != 0
            for k, hidden in ((2, ~kept), (1, kept)):
                far = node.args[k]
                if isinstance(far, NumberArg) and far.value <= FAR and not hidden.all(axes[i]).any():
                    args = (*node.args[:k], NumberArg(NEAR), *node.args[k + 1 :])
                    nodes[i], shut[i] = replace(node, args=args), hidden
    for c, sums in _added_masks(graph).items():
        value, hidden = graph.constants[c], {i: _laid_out(graph, c, a) <= FAR for i, a in sums.items()}
        if set(sums) <= set(axes) and not any(h.all(axes[i]).any() for i, h in hidden.items()):
            constants[c] = np.where(value <= FAR, NEAR, value)
            shut |= hidden
    moved = {c for c, a in constants.items() if a is not graph.constants[c]} | set(shut)
    for i, node in enumerate(graph.nodes):
        if (node.op in (BROADCAST, RESHAPE) and node.operands()[0] in moved) or (
            node.op is SUB and node.args[0] in shut
        ):
            moved.add(i)
    return NearMasks(replace(graph, nodes=tuple(nodes), constants=constants), shut, frozenset(moved))


def _laid_constant(graph: Graph, a: int | NumberArg) -> int | None:
    """Return the constant that node `a` is, or lays out; None for another argument."""
    while isinstance(a, int) and graph.nodes[a].op in (BROADCAST, RESHAPE):
        (a,) = graph.nodes[a].operands()
    return a if isinstance(a, int) and graph.nodes[a].op is CONSTANT else None


def _laid_out(graph: Graph, c: int, a: Any) -> Array:
    """Return constant c as node `a` lays it out."""
    value = np.asarray(graph.constants[c], float)
    return value if a == c else np.asarray(section(graph, a, {c})[0](value))


def _axes_of_scores(graph: Graph) -> dict[int, tuple[int, ...]]:
    """Return {position: axis} of nodes that a softmax reads, as what is shifted by its own maximum, and nobody else;
    nor does anybody else read the difference.
    """
    readers: dict[int, set[int]] = {}
    for i, node in enumerate(graph.nodes):
        for a in node.operands():
            readers.setdefault(a, set()).add(i)
    axes: dict[int, tuple[int, ...]] = {}
    for i in range(len(graph.nodes)):
        parts = match_softmax(graph, i)
        if parts is None or not parts.shift or parts.source in graph.output_positions:
            continue
        if readers[parts.exponent] != {parts.numerator} or parts.exponent in graph.output_positions:
            continue
        if readers[parts.source] == {parts.exponent, parts.shift[0]}:
            axes[parts.source] = (parts.axis,)
    return axes


def _added_masks(graph: Graph) -> dict[int, dict[int, int]]:
    """Return {constant with far cells: {sum: the summand that it is laid out to}}, of those that are only added."""
    far = [
        i for i, a in graph.constants.items() if graph.nodes[i].kind == "real" and (np.asarray(a, float) <= FAR).any()
    ]
    sums: dict[int, dict[int, int]] = {c: {} for c in far}
    for i, node in enumerate(graph.nodes):
        for a in node.operands():
            c = _laid_constant(graph, a)
            if c in sums and node.op is ADD and node.args.count(a) == 1:
                sums[c][i] = a
            elif c in sums and node.op not in (BROADCAST, RESHAPE):
                del sums[c]
    return {
        c: added for c, added in sums.items() if c not in map(partial(_laid_constant, graph), graph.output_positions)
    }
