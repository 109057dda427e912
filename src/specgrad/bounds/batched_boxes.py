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
from ..graph.ir.node import check_argument_count
from ..graph.ir.symbolic import shapes_of
from ..graph.ir.tree import Tree, leaves, match, transform
from .box import Bounds, Box, box_like, numpy_of


def split_boxes(graph: Graph, args: tuple[Tree, ...]) -> list[tuple[Tree, ...]] | None:
    """Return the arguments of every single box; None if a single box is given. Arrays are shared by all.

    ShapeError unless every Box or none has an axis of boxes, of one length.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(x), (2,))
    >>> [box.low for (box,) in split_boxes(graph, (Box([[0.0, 1.0], [2.0, 3.0]], [[4.0, 4.0], [4.0, 4.0]]),))]
    [array([0., 1.]), array([2., 3.])]
    """
    counts = _box_counts(graph, args) if len(args) == len(graph.inputs) else set()
    if counts <= {None}:
        return None
    if len(counts) > 1:
        raise ShapeError("bounds", "either every Box or none has an axis of boxes in front, of one length")
    (count,) = counts
    return [tuple(_box_number(arg, k) for arg in args) for k in range(count or 0)]


def fitted(graph: Graph, args: tuple[Tree, ...]) -> Graph:
    """Return the graph at the sizes of the boxes and arrays, without the leading axis of boxes.

    ShapeError for another number of arguments than the graph takes.
    """
    check_argument_count(graph, args)
    if graph.open is None:
        return graph
    program = graph.open.program
    ranks = shapes_of(program, tuple(program.inputs), lambda p: program.nodes[p].shape)
    given = shapes_of(program, args)
    return graph.fitted_to({path: s[1:] if len(s) == len(ranks[path]) + 1 else s for path, s in given.items()})


def _box_number(tree: Tree, k: int) -> Tree:
    """Return the arguments with every Box replaced by its box number k."""
    return transform(lambda _, leaf: Box(leaf.low[k], leaf.high[k]) if isinstance(leaf, Box) else leaf, tree)


def _box_counts(graph: Graph, args: tuple[Tree, ...]) -> set[int | None]:
    """Return the numbers of boxes that the Box arguments hold; None for a single one, or one of a wrong shape.

    ShapeError for arguments of another structure than the graph's.
    """
    counts = set()
    for name, pattern, arg in zip(graph.names, graph.inputs, args, strict=True):
        for _, position, leaf in match(pattern, arg, name):
            if isinstance(leaf, Box):
                shape = graph.nodes[position].shape
                counts.add(leaf.shape[0] if leaf.shape[1:] == shape and len(leaf.shape) > len(shape) else None)
    return counts


def stack_bounds(bounds: Sequence[Bounds]) -> Bounds:
    """Stack the bounds of single boxes along a new first axis."""
    first = bounds[0]
    outputs = _stack_trees([b.outputs for b in bounds])
    layers = {name: stack([b.layers[name] for b in bounds]) for name in first.layers}
    rows = None if first.objective is None else stack([b.objective for b in bounds if b.objective is not None])
    unbounded = tuple(dict.fromkeys(name for b in bounds for name in b.unbounded))
    infeasible, roundings = all(b.infeasible for b in bounds), max(b.roundings for b in bounds)
    return Bounds(outputs, layers, rows, unbounded, infeasible, roundings, first.deployment)


def _stack_trees(trees: Sequence[Tree]) -> Tree:
    """Stack the arrays of equal `trees`, leaf by leaf, along a new first axis; a leaf that is None stays None."""
    each = [leaves(tree) for tree in trees]
    columns = iter([None if column[0] is None else stack(column) for column in zip(*each, strict=True)])
    return transform(lambda *_: next(columns), trees[0])


def stack(boxes: Sequence[Box]) -> Box:
    """Stack boxes along a new first axis, in their kind of array."""
    low, high = (np.stack([numpy_of(getattr(b, end)) for b in boxes]) for end in ("low", "high"))
    return box_like(Box(low, high), boxes[0].low)


def rows_of_each(objective: Any, count: int) -> list[Any]:
    """Return the objective of every box: rows (S, n) shared by all, or rows (boxes, S, n) of their own; ShapeError if
    those are not `count`.
    """
    if objective is None or numpy_of(objective).ndim < 3:
        return [objective] * count
    if len(objective) != count:
        raise ShapeError("crown", f"objective must have rows (S, n), or (boxes, S, n) of {count}; got {len(objective)}")
    return list(objective)
