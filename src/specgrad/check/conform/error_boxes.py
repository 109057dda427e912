"""Which boxes of the arguments decide an operator's value and its rounding error, on a box of the result.

For most operators these are the boxes of its footprint: a radius of the cropped graph is a radius of the whole one
there, since a cell's executions are those of what it reads. Some errors reach further than the value does: a smooth
maximum may be shifted by the maximum of its whole plane, and the coordinates of a resize are rounded where they are
large. Those operators read every axis completely that they do not go along cell by cell.
"""

from __future__ import annotations

from collections.abc import Sequence

from specgrad.graph.graph import Graph, Node
from specgrad.partition.spatial_axes import box_rules
from specgrad.window import Shape
from specgrad.window.axis_maps import GlobalMap, IdentityMap
from specgrad.window.footprint import BoxRule

REACH_FURTHER = ("smooth_max_pool", "resize")
"""Operators with a footprint whose error depends on more cells than their value: tests/check/test_boxes.py finds who
is missing."""


def error_boxes(graph: Graph) -> dict[int, BoxRule]:
    """Return, by position, the rule of every computed node: the boxes that its value and its error depend on.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.smooth_max_pool(x, (2,), beta=1), (3, 9))
    >>> error_boxes(graph)[1].on(((1, 2), (4, 5))).args
    (((1, 2), (0, 9)),)
    """
    rules = box_rules(graph)
    for p, rule in rules.items():
        if graph.nodes[p].op.name in REACH_FURTHER:
            rules[p] = _read_axes_whole(rule, graph.nodes[p], [graph.nodes[a].shape for a in graph.nodes[p].operands()])
    return rules


def _read_axes_whole(rule: BoxRule, node: Node, shapes: Sequence[Shape]) -> BoxRule:
    """Return the rule of a node with arguments of these `shapes`, without parts along axes that it does not go along
    cell by cell.
    """
    axes = [
        axis if isinstance(axis, IdentityMap) else GlobalMap(n) for axis, n in zip(rule.axes, node.shape, strict=True)
    ]
    args = tuple(
        tuple(
            (0, n) if isinstance(j, int) and isinstance(axes[j], GlobalMap) else j for j, n in zip(arg, s, strict=True)
        )
        for arg, s in zip(rule.args, shapes, strict=True)
    )
    return BoxRule(tuple(axes), args, lambda _: node.params)
