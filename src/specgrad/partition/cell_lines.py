"""Axes of an output along which a graph goes cell by cell: any selection of positions there can be computed alone.

A batch axis is one, and so are the rows and the columns of a matrix product. A window's axis is none: its positions
have neighbours. An axis that some layer reads completely is none either.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..graph.graph import Graph
from ..window.axis_maps import IdentityMap, Padded, Relation, Sliced, Transposed, Windowed
from ..window.footprint import BoxRule

CellLine = dict[int, int | None]
"""Per node, by position, its axis that goes along the axis of the output; None: it has none, and is read wholly."""


def cell_line(graph: Graph, rules: Mapping[int, BoxRule], output: int, axis: int) -> CellLine | None:
    """Return the line of an axis of the node `output`: the axis of each node before it that goes along it cell by cell.

    None if some node goes along it in another way, or reads one value along it and across it too.
    rules   the box rule of every computed node, by position

    >>> import specgrad as sg
    >>> from specgrad.partition.spatial_axes import box_rules
    >>> graph = sg.trace(lambda x, w: sg.softmax(sg.contract(x, w, "ab,bc->ac"), 1), (3, 4), (4, 5))
    >>> end = graph.output_positions[0]
    >>> line = cell_line(graph, box_rules(graph), end, 0)
    >>> [line[p] for p in graph.input_positions], cell_line(graph, box_rules(graph), end, 1)
    ([0, None], None)
    """
    line: CellLine = {output: axis}
    for p in range(output, -1, -1):
        if p not in line or p not in rules:
            continue
        along, rule = line[p], rules[p]
        if along is not None and not _is_identity(rule.axes[along], graph.nodes[p].shape[along]):
            return None
        for a, links in zip(graph.nodes[p].args, rule.args, strict=True):
            if not isinstance(a, int):
                continue
            axes = [k for k, link in enumerate(links) if isinstance(link, int) and link == along]
            there = axes[0] if axes else None
            if len(axes) > 1 or line.setdefault(a, there) != there:
                return None
    return line


def _is_identity(relation: Relation, cells: int) -> bool:
    """Return whether each of the `cells` outputs of an axis reads the cell at its own position and no other."""
    match relation:
        case Sliced(start, step):
            return start == 0 and step == 1
        case Padded(size, lo, gap):
            return lo == gap == 0 and size == cells
        case Windowed(axis) | Transposed(axis):
            return axis.kernel == axis.stride == 1 and axis.lo == axis.hi == 0 and axis.size == axis.out
    return isinstance(relation, IdentityMap)
