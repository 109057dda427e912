"""Several boxes at once: every Box of a call has one more axis in front than the graph's input, and so has the answer.

The boxes are bounded one after the other: each has relaxations and open cells of its own, and most of the time goes
into products that are as large as a cache likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..graph.graph import Graph
from ..graph.tree import Tree, leaves, match, transform
from .box import Bounds, Box, box_like, numpy_of


def separate(graph: Graph, args: tuple[Tree, ...]) -> list[tuple[Tree, ...]] | None:
    """The arguments of every single box; None where a single box is given. Arrays belong to all of them.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(x), (2,))
    >>> [box.low for (box,) in separate(graph, (Box([[0.0, 1.0], [2.0, 3.0]], [[4.0, 4.0], [4.0, 4.0]]),))]
    [array([0., 1.]), array([2., 3.])]
    """
    counts = _counts(graph, args) if len(args) == len(graph.inputs) else set()
    if counts <= {None}:
        return None
    if len(counts) > 1:
        raise ShapeError("bounds", "either every Box or none has an axis of boxes in front, of one length")
    (count,) = counts
    return [tuple(_taken(arg, k) for arg in args) for k in range(count or 0)]


def _taken(tree: Tree, k: int) -> Tree:
    """Box number k at every leaf that is a Box."""
    return transform(lambda _, leaf: Box(leaf.low[k], leaf.high[k]) if isinstance(leaf, Box) else leaf, tree)


def _counts(graph: Graph, args: tuple[Tree, ...]) -> set[int | None]:
    """How many boxes each Box holds; None: it is one, or fits the graph in no way."""
    found = set()
    for name, pattern, arg in zip(graph.names, graph.inputs, args, strict=True):
        for _, position, leaf in match(pattern, arg, name):
            if isinstance(leaf, Box):
                shape = graph.nodes[position].shape
                found.add(leaf.shape[0] if leaf.shape[1:] == shape and len(leaf.shape) > len(shape) else None)
    return found


def together(found: Sequence[Bounds]) -> Bounds:
    """The bounds of single boxes as one, with the boxes along the first axis."""
    first = found[0]
    outputs = _stacked([b.outputs for b in found])
    layers = {name: stack([b.layers[name] for b in found]) for name in first.layers}
    rows = None if first.objective is None else stack([b.objective for b in found if b.objective is not None])
    unbounded = tuple(dict.fromkeys(name for b in found for name in b.unbounded))
    infeasible, roundings = all(b.infeasible for b in found), max(b.roundings for b in found)
    return Bounds(outputs, layers, rows, unbounded, infeasible, roundings, first.deployment)


def _stacked(trees: Sequence[Tree]) -> Tree:
    each = [leaves(tree) for tree in trees]
    columns = iter([None if column[0] is None else stack(column) for column in zip(*each, strict=True)])
    return transform(lambda *_: next(columns), trees[0])


def stack(boxes: Sequence[Box]) -> Box:
    """One array of the kind that the boxes have."""
    low, high = (np.stack([numpy_of(getattr(b, end)) for b in boxes]) for end in ("low", "high"))
    return box_like(Box(low, high), boxes[0].low)


def rows_of_each(objective: Any, count: int) -> list[Any]:
    """Rows (S, n) for all boxes, or rows (boxes, S, n) of their own."""
    if objective is None or numpy_of(objective).ndim < 3:
        return [objective] * count
    if len(objective) != count:
        raise ShapeError("crown", f"objective must have rows (S, n), or (boxes, S, n) of {count}; got {len(objective)}")
    return list(objective)
