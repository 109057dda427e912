"""Exact tiles: a plan of ordinary graphs, one for every kind of tile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple, Unpack

import numpy as np

from ..errors import ParameterError, UnsupportedError
from ..graph.graph import Graph
from ..graph.ir.node import bind_inputs
from ..graph.ir.tree import Tree, leaves, transform
from ..partition.cropped_graph import CroppedGraph, crop_to_boxes
from ..partition.spatial_axes import SpatialAxes, data_positions
from ..window import Shape
from ..window.axis_maps import Interval
from ..window.footprint import Box, slices, whole
from .dask_arrays import dask_outputs
from .halos import Halo, halo_of
from .jobs import Progress
from .run_plan import Options, run
from .tile import COMBINE, Programs, Tile, add_at, combine_parts, real_arguments, seeds_of, zeros_like
from .worker_memory import WORKER_BYTES, tile_cells, worker_bytes


def tiles(
    graph: Graph,
    size: int | Sequence[int] | None = None,
    *,
    memory: int | None = None,
    itemsize: int = 4,
    engine: str = "torch",
    axes: Sequence[int] | None = None,
    passes: bool = False,
    allow_whole: bool = False,
) -> Plan:
    """Return a plan of exact tiles of a graph's outputs: `for t in plan: out[t.box] = t(x[t.reads])`.

    Every tile is the graph itself on the cells that it needs, padded only at the true border: values are those of one
    run over the whole, bit for bit where its arithmetic is exact, and in floats as far as an engine's kernels sum in
    the same order at both sizes.

    Parameters
    ----------
    graph : Graph
        The network.
    size : int or sequence of int, optional
        Cells of the first output per tile and spatial axis; one number for all of them.
    memory : int, optional
        In place of `size`: the bytes that a worker of `plan.run` may take: the largest square tile that fits, aligned.
        An estimate, `plan.worker_bytes`.
    itemsize : int, default 4
        Bytes of a cell, for `memory` and for `plan.peak_bytes`.
    engine : str, default "torch"
        That of the workers, for `memory`: "torch", "jax" or "numpy".
    axes : sequence of int, optional
        Spatial axes of the first data input; default: those after the second. (1, 2) for images in NHWC.
    passes : bool, default False
        Layers that read everything are refused by name; with True, sums and maxima over the image (instance and group
        normalisation, global averages) are computed in passes before: `plan.measure(x)`.
    allow_whole : bool, default False
        With True, tiles behind such layers read everything, and are exact all the same.

    Returns
    -------
    Plan
        Its tiles are made when they are asked for.

    Raises
    ------
    ParameterError
        Unless one of `size` and `memory` is given and fits ([P5]).
    UnsupportedError
        For layers that read everything, unless `passes` or `allow_whole`.

    Examples
    --------
    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.max_pool(x, (3,), stride=1, padding=1), (1, 10))
    >>> plan, x = tiles(graph, 4), np.arange(10.0).reshape(1, 10) % 4
    >>> out = np.empty((1, 10))
    >>> for t in plan:
    ...     out[t.box] = t(x[t.reads])
    >>> bool(np.array_equal(out, graph(x))), plan
    (True, Plan(3 tiles of 4 cells, x axis 1: 1 before, 1 after, aligned to 1))
    """
    lines = SpatialAxes(graph.at(), axes)
    statistics = statistics_of(lines) if passes else []
    if lines.whole and not allow_whole and not passes:
        text = "no tile alone has that; end the graph before it, or give passes=True or allow_whole=True"
        raise UnsupportedError("tiles", f"{_describe_global_reads(lines)}: {text}")
    if (size is None) == (memory is None):
        raise ParameterError("tiles", f"give size= or memory=; got size={size}, memory={memory}", rule="P5")
    if size is not None:
        return Plan(lines, size, itemsize, statistics)
    assert memory is not None
    return _largest_fitting_plan(lines, memory, itemsize, engine, statistics)


def _largest_fitting_plan(lines: SpatialAxes, memory: int, itemsize: int, engine: str, statistics: list[int]) -> Plan:
    """Return the plan with the largest tile, a multiple of the alignment on every axis, whose workers on an engine fit
    `memory` bytes.

    ParameterError if none does. `lines` are the graph's spatial axes, `itemsize` is bytes per number, `statistics`
    nodes that are reduced in passes.
    """
    one = Plan(lines, 1, itemsize, statistics)
    counts = [-(-n // a) for n, a in zip(one.cells, one.align, strict=True)]

    def at(k: int) -> Plan:
        """Return the plan whose tiles are k alignment steps long on every axis, at most the output."""
        size = [min(k * a, n) for a, n in zip(one.align, one.cells, strict=True)]
        return Plan(lines, size, itemsize, statistics)

    low, high = 0, max(counts)
    if at(high).worker_bytes(engine) <= memory:  # one tile: it alone is padded alike at both ends
        return at(high)
    while low < high:  # the largest k that fits, or 0
        middle = (low + high + 1) // 2
        low, high = (middle, high) if at(middle).middle_bytes(engine) <= memory else (low, middle - 1)
    while low and at(low).worker_bytes(engine) > memory:  # of all kinds, which is rarely more
        low -= 1
    if low == 0:
        least = f"{at(1).worker_bytes(engine):,} bytes, {WORKER_BYTES[engine]:,} of them before its first tile"
        text = f"with the smallest aligned tile {at(1).size} a worker takes {least}; memory={memory:,} is less"
        raise ParameterError("tiles", text, rule="P5")
    return at(low)


def statistics_of(lines: SpatialAxes) -> list[int]:
    """Return the positions of the nodes that read everything along the axes `lines`, in order.

    UnsupportedError unless each is a sum or maximum over all spatial axes.
    """
    for p, axes in lines.ends.items():
        node = lines.graph.nodes[p]
        shape = lines.graph.nodes[node.operands()[0]].shape
        of = {axis for axis in lines.of(node.operands()[0]) if shape[axis] > 1}
        if node.op.name not in COMBINE or axes != of:
            text = f"{node.group}: {node.op.name} reads everything, and is no sum or maximum over it: no pass has it"
            raise UnsupportedError("tiles", text)
    return sorted(lines.ends)


def _describe_global_reads(lines: SpatialAxes) -> str:
    """Return the first three layers that read everything along `lines`, and how many more there are, as text."""
    more = f"; and {len(lines.whole) - 3} more layers" if len(lines.whole) > 3 else ""
    return "; ".join(map(str, lines.whole[:3])) + more


class TilePeriod(NamedTuple):
    """Repetition of tiles along one axis of `tiles` tiles: from `low` to `stop` - 1, tiles `period` apart are alike;
    others are unique.

    >>> [TilePeriod(1, 6, 2, 7).representative(k) for k in range(7)], TilePeriod(1, 6, 2, 7).kinds()
    ([0, 1, 2, 1, 2, 1, 6], {0: 1, 6: 1, 1: 3, 2: 2})
    """

    low: int
    stop: int
    period: int
    tiles: int

    def representative(self, k: int) -> int:
        """Return the number of the first tile that is like tile k."""
        return self.low + (k - self.low) % self.period if self.low <= k < self.stop else k

    def kinds(self) -> dict[int, int]:
        """Return, for each representative tile, how many tiles it stands for."""
        alone = dict.fromkeys([*range(self.low), *range(self.stop, self.tiles)], 1)
        some = range(self.low, min(self.low + self.period, self.stop))
        return alone | {k: len(range(k, self.stop, self.period)) for k in some}


class Plan:
    """A plan of exact tiles, each made when it is asked for: `len(plan)`, `plan[5]`, `for t in plan`.

    `tiles` makes plans.

    Parameters
    ----------
    lines : SpatialAxes
        The spatial axes of the graph, along which it can be cut.
    size : int or sequence of int
        Cells of the first output per tile, on the axes that are cut.
    itemsize : int
        Bytes of a number, for estimates of memory.
    statistics : sequence of int, default ()
        Nodes that read everything, each computed by a pass before.
    outputs : sequence of int, optional
        Nodes that tiles give; the graph's outputs if not given.

    Attributes
    ----------
    halo : Halo
        What a tile needs around it, see `specgrad.scale.halos`.

    Raises
    ------
    UnsupportedError
        For a value that goes along one axis of the image twice, and a graph whose outputs do not go along it.
    ParameterError
        For sizes that do not fit ([P5]).

    Examples
    --------
    >>> import specgrad as sg
    >>> plan = tiles(sg.trace(lambda x: sg.max_pool(x, (3,), stride=1, padding=1), (1, 10)), 4)
    >>> len(plan), plan[1].box, plan[1].reads
    (3, (slice(0, 1, None), slice(4, 8, None)), (slice(0, 1, None), slice(3, 9, None)))
    """

    def __init__(
        self,
        lines: SpatialAxes,
        size: int | Sequence[int],
        itemsize: int,
        statistics: Sequence[int] = (),
        outputs: Sequence[int] | None = None,
    ) -> None:
        self.lines, self.graph, self.itemsize, self.statistics = lines, lines.graph, itemsize, list(statistics)
        self.rules = {p: rule for p, rule in lines.rules.items() if p not in self.statistics}
        self.halo: Halo = halo_of(lines)
        self.is_pass = outputs is not None
        self.outputs = list(dict.fromkeys(self.graph.output_positions if outputs is None else outputs))
        base = self._base_node()
        self.axes, self.places = list(lines.of(base)), list(lines.of(base).values())
        shape = self.graph.nodes[base].shape
        self.cells = tuple(shape[a] for a in self.axes)
        self.size = _tile_sizes(size, self.axes, self.cells, shape)
        along = {place.line for p in self.outputs for place in lines.of(p).values()}  # others are not cut
        numbers = zip(self.cells, self.size, self.places, strict=True)
        self.counts = tuple(-(-n // s) if place.line in along else 1 for n, s, place in numbers)
        for p in (base, *self.outputs):
            self._check_distinct_axes(p)
        self.programs = Programs(self.graph)
        self._cuts: dict[tuple[int, ...], CroppedGraph] = {}

    def _check_distinct_axes(self, p: int) -> None:
        """Raise UnsupportedError if two axes of node p go along one spatial axis: its boxes would be diagonal."""
        along = [place.line for place in self.lines.of(p).values()]
        if len(set(along)) < len(along):
            node = self.graph.nodes[p]
            raise UnsupportedError("tiles", f"{node.name} {node.shape} goes along one axis of the image twice")

    def _base_node(self) -> int:
        """Return the node whose axes are tiled: the first output, or the argument of the first pass.

        UnsupportedError if neither has such axes.
        """
        arguments = [self.graph.nodes[p].operands()[0] for p in self.statistics]
        for p in (self.graph.output_positions[0], *arguments):
            if self.lines.of(p) and math.prod(self.graph.nodes[p].shape):
                return p
        shape = self.graph.nodes[self.graph.output_positions[0]].shape
        raise UnsupportedError(
            "tiles", f"no axis of the output {shape} goes along the image; {_describe_global_reads(self.lines)}"
        )

    @cached_property
    def passes(self) -> list[Plan]:
        """Return the plans that must run before this one, one per sum or maximum over everything: tiles of its
        argument.

        [] for such a plan itself.
        """
        if self.is_pass:
            return []
        arguments = [self.graph.nodes[p].operands()[0] for p in self.statistics]
        plans = [Plan(self.lines, self.size, self.itemsize, self.statistics, [a]) for a in arguments]
        for plan in plans:
            plan.programs = self.programs
        return plans

    def measure(self, *args: Any) -> Plan:
        """Return this plan for one image, its sums and maxima over everything computed in one pass over all tiles each.

        A sum is added up tile by tile, a maximum compared: the same numbers in another order, hence exact where sums
        are. Normalisation over an image takes two passes, its mean and its variance. ShapeError for arguments that do
        not fit.

        >>> import specgrad as sg
        >>> x = np.arange(8.0).reshape(1, 1, 8)
        >>> plan = tiles(sg.trace(lambda x: x - sg.global_avg_pool(x, rank=1), x.shape), 3, passes=True)
        >>> [float(v) for t in plan.measure(x) for v in t(x[t.reads])[0, 0]]
        [-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5]
        """
        given, data, known = bind_inputs(self.graph, args), set(data_positions(self.graph)), dict[int, Any]()
        programs = self.programs.with_known(known)
        for p, before in zip(self.statistics, self.passes, strict=True):
            parts = []
            for t in before:
                values = {q: v[slices(t.needed(q))] if q in data else v for q, v in given.items()}
                parts += replace(t, programs=programs).partial_reduction(p, values)
            known[p] = combine_parts(self.graph.nodes[p].op, parts)
        measured = copy(self)
        measured.programs = programs
        return measured

    def __len__(self) -> int:
        return math.prod(self.counts)

    def __iter__(self) -> Iterator[Tile]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, k: int) -> Tile:
        if not -len(self) <= k < len(self):
            raise IndexError(f"there are {len(self)} tiles; got {k}")
        return self.at(*map(int, np.unravel_index(k % len(self), self.counts)))

    def at(self, *where: int) -> Tile:
        """Return the tile with the numbers `where` along the tiled axes. Cut graphs are cached by kind of tile."""
        boxes = {p: self._output_box(p, where) for p in self.outputs}
        if self.lines.whole and not self.statistics:  # what lies behind reads everything: no two tiles are alike
            cut = self.cut(*where)
            return Tile(boxes, cut, {p: cut.needs[p] for p in cut.leaves}, self.programs)
        kind = tuple(period.representative(k) for period, k in zip(self._tile_periods, where, strict=True))
        if kind not in self._cuts:
            self._cuts[kind] = self.cut(*kind)
        cut, tiles_on = self._cuts[kind], [k - representative for k, representative in zip(where, kind, strict=True)]
        return Tile(boxes, cut, {p: self._shifted_box(p, cut.needs[p], tiles_on) for p in cut.leaves}, self.programs)

    def cut(self, *where: int) -> CroppedGraph:
        """Return the graph cropped to the tile with the numbers `where`, computed without the cache of alike tiles."""
        boxes = {p: self._output_box(p, where) for p in self.outputs}
        present = {p: box for p, box in boxes.items() if all(a < b for a, b in box)}
        return crop_to_boxes(self.graph, self.rules, present)

    def _shifted_box(self, p: int, box: Box, tiles_on: Sequence[int]) -> Box:
        """Return `box`, of input p, moved by `tiles_on` tiles along each tiled axis, in the input's own cells."""
        shifted = list(box)
        for axis, place in self.lines.of(p).items():
            for mine, size, count in zip(self.places, self.size, tiles_on, strict=True):
                if mine.line == place.line:
                    on = int(count * size * mine.cells / place.cells)
                    shifted[axis] = box[axis][0] + on, box[axis][1] + on
        return tuple(shifted)

    def _output_box(self, p: int, where: Sequence[int]) -> Box:
        """Return the box of output p in the tile with the numbers `where`.

        An output without a tiled axis belongs to the first tile, and is empty in others.
        """
        shape, of = self.graph.nodes[p].shape, self.lines.of(p)
        box, missing = list(whole(shape)), set(range(len(where)))
        for axis, place in of.items():
            for d, mine in enumerate(self.places):
                if mine.line == place.line:
                    box[axis] = self._tile_interval(d, where[d], mine.cells / place.cells, shape[axis])
                    missing.discard(d)
        return tuple(box) if all(where[d] == 0 for d in missing) else tuple((0, 0) for _ in box)

    def _tile_interval(self, d: int, k: int, scale: Fraction, cells: int) -> Interval:
        """Return (first, stop) of tile k along tiled axis d of an output with so many cells.

        The axis has `scale` cells per cell of the first output; the last tile takes the rest.
        """
        first, stop = (min(math.floor(i * self.size[d] * scale), cells) for i in (k, k + 1))
        return first, cells if k == self.counts[d] - 1 else stop

    def boxes_along_axes(self, p: int) -> list[Box]:
        """Return boxes of output p in which every position occurs at which some tile begins."""
        numbers = [
            tuple(k if e == d else 0 for e in range(len(self.axes)))
            for d, n in enumerate(self.counts)
            for k in range(n)
        ]
        return [box for box in (self._output_box(p, where) for where in numbers) if all(a < b for a, b in box)]

    @property
    def align(self) -> Shape:
        """Alignment per tiled axis, in cells of the first output: tiles that begin at multiples of it are alike."""
        return tuple(int(self.lines.steps[place.line] / place.cells) for place in self.places)

    # --- what it costs ------------------------------------------------------------------------------------------------

    @cached_property
    def _tile_periods(self) -> list[TilePeriod]:
        """Per axis, the repetition of the tiles whose inputs are not clipped at an end."""
        periods = []
        for d, count in enumerate(self.counts):
            low = next((k for k in range(count) if self._is_unclipped(d, k)), count)
            stop = next((k + 1 for k in range(count - 1, low, -1) if self._is_unclipped(d, k)), min(low + 1, count))
            periods.append(TilePeriod(low, stop, self.align[d] // math.gcd(self.size[d], self.align[d]), count))
        return periods

    def _is_unclipped(self, d: int, k: int) -> bool:
        """Return whether neither the outputs of tile k nor the inputs they need are clipped along axis d."""
        line, ends, nodes = self.places[d].line, {}, self.graph.nodes
        along = [any(place.line == line for place in self.lines.of(p).values()) for p in self.outputs]
        if k == 0 and not all(along):  # it alone has those outputs
            return False
        for p in self.outputs:
            for axis, place in self.lines.of(p).items():
                if place.line == line:
                    scale = self.size[d] * self.places[d].cells / place.cells
                    first, stop = math.floor(k * scale), math.floor((k + 1) * scale)
                    if stop > nodes[p].shape[axis]:
                        return False
                    if first < stop:
                        ends[p, axis] = first, stop
        spans = self.lines.spans(ends).items()
        return k < self.counts[d] - 1 and all(a >= 0 and b <= nodes[p].shape[j] for (p, j), (a, b) in spans)

    @cached_property
    def kinds(self) -> list[tuple[Tile, int]]:
        """One tile of every kind, with the number of tiles of that kind."""
        per_axis = [period.kinds().items() for period in self._tile_periods]
        return [(self.at(*(k for k, _ in ks)), math.prod(n for _, n in ks)) for ks in product(*per_axis)]

    @cached_property
    def multiply_adds(self) -> int:
        """Exact number of multiply-adds of all tiles and passes together."""
        own = sum(count * tile.cut.multiply_adds for tile, count in self.kinds)
        return own + sum(plan.multiply_adds for plan in self.passes)

    @property
    def multiply_adds_at_once(self) -> int:
        """Number of multiply-adds of one run over the whole image, without tiles."""
        return self._untiled.multiply_adds

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of parameters and constants, which all tiles share."""
        data = set(data_positions(self.graph))
        given = {*self.graph.input_positions, *self.graph.constants} - data
        return self.itemsize * sum(math.prod(self.graph.nodes[p].shape) for p in given)

    @property
    def peak_bytes(self) -> int:
        """Largest number of bytes that weights and values of one tile take at once, without an engine's workspace."""
        own = self.weight_bytes + self.itemsize * max(tile.cut.peak_cells for tile, _ in self.kinds)
        return max([own, *(plan.peak_bytes for plan in self.passes)])

    def worker_bytes(self, engine: str = "torch") -> int:
        """Return what a worker of `plan.run` on an engine takes at most, in bytes: itself, weights, values and kernels.

        An estimate, within 1.3 of what real workers took (`benchmarks/tile_memory.py`). ParameterError for another
        engine.
        """
        own = max(self._worker_bytes_on(tile, engine) for tile, _ in self.kinds)
        return max([own, *(plan.worker_bytes(engine) for plan in self.passes)])

    def middle_bytes(self, engine: str) -> int:
        """Return `worker_bytes` of the tile in the middle alone."""
        own = self._worker_bytes_on(self.at(*((n - 1) // 2 for n in self.counts)), engine)
        return max([own, *(plan.middle_bytes(engine) for plan in self.passes)])

    def _worker_bytes_on(self, tile: Tile, engine: str) -> int:
        """Return what a worker takes for one tile; ParameterError for an unknown engine."""
        cells = tile_cells(tile.cut, engine, self.itemsize)
        return worker_bytes(engine, self.weight_bytes, self.itemsize * cells)

    @property
    def peak_bytes_at_once(self) -> int:
        """Bytes that weights and values of one run over the whole image take at once, without tiles."""
        return self.weight_bytes + self.itemsize * self._untiled.peak_cells

    @cached_property
    def _untiled(self) -> CroppedGraph:
        """Return the graph cropped to the whole of its outputs: one tile."""
        boxes = {p: whole(self.graph.nodes[p].shape) for p in self.outputs}
        return crop_to_boxes(self.graph, self.lines.rules, boxes)

    def to_json(self, engine: str = "torch") -> dict[str, Any]:
        """Return what `specgrad tiles` prints, as JSON data: size, tiles, kinds, passes; multiply_adds and peak_bytes,
        and both of one run `_at_once`; worker_bytes on an engine.
        """
        return {
            "size": list(self.size),
            "tiles": len(self),
            "kinds": len(self.kinds),
            "passes": len(self.passes),
            "multiply_adds": self.multiply_adds,
            "multiply_adds_at_once": self.multiply_adds_at_once,
            "peak_bytes": self.peak_bytes,
            "peak_bytes_at_once": self.peak_bytes_at_once,
            "worker_bytes": self.worker_bytes(engine),
        }

    # --- from store to store ------------------------------------------------------------------------------------------

    def run(self, *args: Any, **options: Unpack[Options]) -> Progress:
        """Run all tiles from store to store, on any executor, resumable after any kill: run(*arguments, *targets).

        Called as the graph is, with addresses for data (zarr v3: a path, a URL, a spec of tensorstore) and weights as
        they are, then one address per output. A target that is not there is made, its shards the tiles. Every tile that
        was written has a record beside the target, and is not computed again: after a kill, call it once more. Options:
        `specgrad.scale.run_plan.Options`. UnsupportedError for passes in an array job.

            plan.run(params, "slide.zarr", "classes.zarr", executor="processes", workers=8)
        """
        return run(self, args, options)

    def dask(self, *args: Any, engine: str = "torch", compute: Any = None) -> Any:
        """Return the outputs as lazy dask arrays, one block per tile.

        Arguments are those of the graph; data are arrays or addresses. `engine` computes in the number type `compute`,
        None: that of weights or data. ShapeError for another number of arguments, UnsupportedError if `Plan.measure` is
        needed before.
        """
        return dask_outputs(self, args, engine, compute)

    # --- derivatives --------------------------------------------------------------------------------------------------

    def vjp(self, *args: Any) -> tuple[Tree, ...]:
        """Return the cotangents of the real arguments, tile by tile: vjp(*arguments, *cotangents of the outputs).

        A loss over the whole has the gradient gy in the outputs; this is its gradient in parameters and data. Those of
        parameters are summed over tiles, those of data where tiles overlap. The arguments are whole, as for the graph;
        `Tile.vjp` is for data that is read in parts. UnsupportedError for a plan with passes.

        >>> import specgrad as sg
        >>> graph = sg.trace(lambda p, x: sg.conv(p["w"], None, x), {"w": (1, 1, 3)}, (1, 1, 9))
        >>> p, x, gy = {"w": np.ones((1, 1, 3))}, np.arange(9.0).reshape(1, 1, 9), np.ones((1, 1, 7))
        >>> gp, gx = tiles(graph, 3).vjp(p, x, gy)
        >>> gp["w"], gx[0, 0]
        (array([[[21., 28., 35.]]]), array([1., 2., 3., 3., 3., 3., 3., 2., 1.]))
        """
        graph, count = self.graph, len(self.graph.inputs)
        if self.statistics:
            raise UnsupportedError("tiles", f"no gradients through passes: {_describe_global_reads(self.lines)}")
        given, data = bind_inputs(graph, args[:count]), set(data_positions(graph))
        seeds = seeds_of(graph, args[count:], {p: graph.nodes[p].shape for p in self.outputs})
        totals = {p: zeros_like(given[p]) for tree in real_arguments(graph) for p in leaves(tree)}
        for t in self:
            values = {p: v[slices(t.needed(p))] if p in data else v for p, v in given.items()}
            local = t.cotangents(values, {p: g[slices(t.boxes[p])] for p, g in seeds.items()})
            for p in totals.keys() & local.keys():
                totals[p] = add_at(totals[p], t.needed(p), local[p])
        return tuple(transform(lambda _, p: totals[p], tree) for tree in real_arguments(graph))

    def __repr__(self) -> str:
        size, halo = "x".join(map(str, self.size)), "; ".join(map(str, self.halo.axes))
        layers = [self.graph.nodes[p].group for p in self.statistics]
        after = f", after {len(layers)} passes: {', '.join(dict.fromkeys(layers))}" if layers else ""
        return f"Plan({len(self):,} tiles of {size} cells, {halo}{after})"


def _tile_sizes(size: int | Sequence[int], axes: list[int], cells: Shape, shape: Shape) -> Shape:
    """Return the tile size per tiled axis, at most the output's; ParameterError if `size` does not fit the axes.

    `cells` are the output's along `axes`, `shape` is all of it.
    """
    sizes = (size,) * len(axes) if isinstance(size, int) else tuple(size)
    if len(sizes) != len(axes) or any(not isinstance(n, int) or n < 1 for n in sizes):
        text = f"size must be one whole number per axis {tuple(axes)} of the output {shape}; got {size!r}"
        raise ParameterError("tiles", text, rule="P5")
    return tuple(min(n, most) for n, most in zip(sizes, cells, strict=True))
