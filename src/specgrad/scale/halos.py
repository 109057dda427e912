"""How far a network looks beyond a tile, and where tiles may begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..graph.graph import Graph
from ..partition.spatial_axes import GlobalRead, SpatialAxes, data_positions

FAR = 1 << 40  # longer than any image: both ends of a tile are apart


@dataclass(frozen=True, slots=True)
class AxisHalo:
    """An axis of a data input: the cells before and after a tile that its outputs need, and where tiles may begin.

    Tiles that begin and end at multiples of `align` need this halo and no more, and are all alike.

    Attributes
    ----------
    input : str
        Name of the data input.
    axis : int
        The axis of it.
    before : int
        Cells before a tile that its outputs need.
    after : int
        Cells after it.
    align : int
        Tiles begin and end at multiples of so many cells.

    Examples
    --------
    >>> print(AxisHalo("x", 2, before=4, after=3, align=2))
    x axis 2: 4 before, 3 after, aligned to 2
    """

    input: str
    axis: int
    before: int
    after: int
    align: int

    @property
    def crop(self) -> tuple[int, int]:
        """The halo (before, after) in multiples of `align`: who runs the network itself on a crop must begin it
        there.
        """
        return -(-self.before // self.align) * self.align, -(-self.after // self.align) * self.align

    def __str__(self) -> str:
        return f"{self.input} axis {self.axis}: {self.before} before, {self.after} after, aligned to {self.align}"


@dataclass(frozen=True, slots=True)
class Halo:
    """The halo of a graph along every spatial axis, and the layers that read everything.

    Attributes
    ----------
    axes : tuple of AxisHalo
        The halo of every spatial axis of the data.
    whole : tuple of GlobalRead
        Layers that read everything: beyond any halo.

    Examples
    --------
    >>> import specgrad as sg
    >>> found = halo(sg.trace(lambda x: sg.max_pool(x, (3,), stride=1, padding=1), (1, 1, 9)))
    >>> found.axes[0].before, found.whole
    (1, ())
    """

    axes: tuple[AxisHalo, ...]
    whole: tuple[GlobalRead, ...]

    def __str__(self) -> str:
        return "\n".join([*map(str, self.axes), *map(str, self.whole)])

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `halo`, the fields of each axis, and `reads_everything`, the layers that do."""
        axes = [{**asdict(a), "crop": list(a.crop)} for a in self.axes]
        return {"halo": axes, "reads_everything": [asdict(w) for w in self.whole]}


def halo(graph: Graph, axes: Sequence[int] | None = None) -> Halo:
    """Return the halo before and after a tile along every spatial axis, alignment, and the layers that read everything.

    For a tile of the outputs that begins and ends at multiples of `align` (counted in cells of the input), the outputs
    inside depend on the tile's cells and on `before` and `after` more; which is exact, not an estimate: tests/scale
    holds it against changes of single cells and against crops. Layers in `whole` are left out of the halo: what comes
    behind them depends on every cell.

    Parameters
    ----------
    graph : Graph
        The network.
    axes : sequence of int, optional
        Spatial axes of the first data input; those after the second (the last, where it has fewer) if not given.

    Returns
    -------
    Halo
        It prints, an axis per line.

    Examples
    --------
    >>> import specgrad as sg
    >>> w = np.ones((1, 1, 5, 5))
    >>> net = lambda x: sg.upsample_nearest(sg.max_pool(sg.conv(w, None, x, padding=2), (2, 2)), (2, 2))
    >>> print(halo(sg.trace(net, (1, 1, 64, 64))))
    x axis 2: 2 before, 2 after, aligned to 2
    x axis 3: 2 before, 2 after, aligned to 2
    >>> print(halo(sg.trace(lambda x: x - sg.global_avg_pool(x, rank=1), (1, 1, 64))))
    x axis 2: 0 before, 0 after, aligned to 1
    global_avg_pool: sum reads all of axis 2 of 1x1x64
    """
    return halo_of(SpatialAxes(graph.at(), axes))


def halo_of(lines: SpatialAxes) -> Halo:
    """Return the halo of every spatial axis of the data inputs, from `lines`, a graph's axes as they were analysed."""
    graph = lines.graph
    ends = {}
    for p in graph.output_positions:
        for axis, (line, cells) in lines.of(p).items():
            ends[p, axis] = 0, int(_far_length(lines, line) / cells)
    spans, axes = lines.spans(ends), []
    for p in data_positions(graph):
        for axis, (line, cells) in lines.of(p).items():
            if (p, axis) in spans:
                (first, stop), far = spans[p, axis], int(_far_length(lines, line) / cells)
                align = int(lines.steps[line] / cells)
                axes.append(AxisHalo(graph.nodes[p].name, axis, -first, stop - far, align))
    return Halo(tuple(axes), lines.whole)


def _far_length(lines: SpatialAxes, line: int) -> int:
    """Return the length, in units of spatial axis `line`, of a tile so long that its two ends cannot meet."""
    return lines.steps[line] * FAR
