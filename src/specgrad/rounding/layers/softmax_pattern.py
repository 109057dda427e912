"""Recognising softmaxes in a graph: exp(x - max x) over its sum along the same axes, of all cells or of those that a
constant mask shows.

What is claimed of a softmax (the error of a share, one total for a row) rests on these conditions, and on no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...graph.graph import CONSTANT, Graph, Node, NumberArg
from ...ops.elementwise import DIV, EXP, MUL, SELECT, STOP_GRADIENT, SUB
from ...ops.layout import BROADCAST, RESHAPE, SUM
from ...ops.max_pool import AMAX
from .normalisation import source_of


@dataclass(frozen=True)
class Softmax:
    """A softmax, by positions.

    x            the scores
    difference   of x less a number of its row
    axes         along which
    seen         of a constant, 1 where a cell counts and 0 where it does not; None: all count
    """

    x: int
    difference: int
    axes: tuple[int, ...]
    seen: int | None = None


def softmax_at(graph: Graph, at: int) -> Softmax | None:
    """Return the softmax whose shares are node `at`: e/sum(e), or e*(1/sum(e)); None for another node.

    >>> import specgrad as sg
    >>> softmax_at(sg.trace(sg.softmax, (2, 8)), 10)
    Softmax(x=0, difference=5, axes=(1,), seen=None)
    """
    node = graph.nodes[at]
    if node.op not in (DIV, MUL) or len(node.operands()) != 2:
        return None
    orders = [node.operands(), node.operands()[::-1]][: 1 if node.op is DIV else 2]
    recognised = (_of_shares(graph, e, other, node.op is MUL) for e, other in orders)
    return next((softmax for softmax in recognised if softmax is not None), None)


def _of_shares(graph: Graph, e: int, other: int, inverse: bool) -> Softmax | None:
    """Return the softmax of exponentials e whose rows' totals, or their inverses, are in every cell of node `other`."""
    total = source_of(graph, other)
    if inverse:
        quotient = graph.nodes[total]
        if quotient.op is not DIV or quotient.args[0] != NumberArg(1):
            return None
        total = source_of(graph, quotient.operands()[0])
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
    return Softmax(x, below, axes, seen)


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
    """Return whether node `at` holds one number along these axes of a shape, and cells of its own along the others."""
    node = graph.nodes[at]
    before = graph.nodes[node.operands()[0]] if node.op is BROADCAST else node
    return before.shape == tuple(1 if a in axes else n for a, n in enumerate(shape))


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
