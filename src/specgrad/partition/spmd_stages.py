"""SPMD stages: a graph on a mesh of devices, what each device computes, between which exchanges.

A mesh has named axes, each of which cuts one axis of the first data input into `Partition`. Operators relate cells
axis by axis, so what a device owns and reads is the product of what its coordinates say. Nodes between two exchanges
are one stage; devices whose stage has the same shapes and parameters are of one kind, and run the same code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property, lru_cache
from itertools import product
from typing import NamedTuple

from ..errors import UnsupportedError
from ..graph.graph import Graph, NumberArg
from ..window import Shape
from ..window.axis_maps import Interval
from ..window.footprint import Box, Footprint, lengths
from .halo_exchange import AxisExchange
from .partition import Partition

At = tuple[int, ...]  # a device: its coordinates, in the order of `Stages.names`


class Stage(NamedTuple):
    """Nodes that are computed one after the other, on devices that differ along the named axes of the mesh.

    results   those of them that others read, or that are outputs
    names     those axes
    nodes     positions of the nodes, in order
    """

    names: tuple[str, ...]
    nodes: tuple[int, ...]
    results: tuple[int, ...]


class Stages:
    """A graph on a mesh of devices: owners, exchanges and stages.

    splits   axis of the mesh -> (the axis of the first data input that it cuts, how many devices there are)
    axes     per value, which of its axes are cut, and by which axis of the mesh

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.max_pool(sg.relu(x), (3,), padding=1), (4, 1, 12))
    >>> stages = Stages(graph, {"rows": (2, 3), "batch": (0, 2)})
    >>> stages.axes[2], stages.block(2), stages.owned(2, (0, 1)), stages.cut(2, (0, 1)).args
    ({2: 'rows', 0: 'batch'}, (2, 1, 2), ((2, 4), (0, 1), (0, 1)), (((2, 4), (0, 1), (0, 2)),))
    >>> [stage.nodes for stage in stages.stages], stages.cells_moved
    ([(1,), (2,)], 8)
    """

    def __init__(self, graph: Graph, splits: Mapping[str, tuple[int, int]]) -> None:
        self.parts = {n: Partition(graph, axis, count=count, allow_whole=True) for n, (axis, count) in splits.items()}
        self.graph, self.rules = (first := next(iter(self.parts.values()))).graph, first.rules
        self.names = tuple(self.parts)
        self.counts = tuple(parts.count for parts in self.parts.values())
        self.devices: list[At] = list(product(*map(range, self.counts)))
        self._check_supported()
        self.axes = [self._cut_axes(p) for p in range(len(self.graph.nodes))]
        self.cut = lru_cache(maxsize=None)(self._owned_footprint)
        self.exchange = lru_cache(maxsize=None)(self._exchange_of)
        self.reads = lru_cache(maxsize=None)(self._boxes_read)
        self.block = lru_cache(maxsize=None)(self._block_shape)

    def _check_supported(self) -> None:
        """Raise UnsupportedError for layers that read all of a cut axis and are no sum over it."""
        for name, parts in self.parts.items():
            if parts.gathered:
                text = f"{parts.gathered[0]}, which {name} cuts, and is no sum over it; end the graph before it"
                raise UnsupportedError("split", text)
            for p in parts.reduced:
                node = self.graph.nodes[p]
                if node.op.linear != "all":
                    text = f"{node.group}: {node.op.name} goes over an axis that {name} cuts, and is no sum"
                    raise UnsupportedError("split", text)

    def _cut_axes(self, p: int) -> dict[int, str]:
        """Return the cut axes of value p, each with the axis of the mesh that cuts it.

        UnsupportedError if two cut the same one.
        """
        axes: dict[int, str] = {}
        for name, parts in self.parts.items():
            if p in parts.axes:
                axis, node = parts.axes[p], self.graph.nodes[p]
                if axis in axes:
                    text = f"axis {axis} of {node.name} {node.shape} goes along both {axes[axis]} and {name}"
                    raise UnsupportedError("split", text)
                axes[axis] = name
        return axes

    # --- what a device owns, and computes from what -------------------------------------------------------------------

    def interval(self, p: int, axis: int, at: At) -> Interval:
        """Return the cells (first, stop) of an axis of value p that the device at place `at` of the mesh owns."""
        cells, name = self.graph.nodes[p].shape[axis], self.axes[p].get(axis)
        return (0, cells) if name is None else self.parts[name].interval(cells, at[self.names.index(name)])

    def owned(self, p: int, at: At) -> Box:
        """Return the box of value p that the device at place `at` of the mesh owns."""
        return tuple(self.interval(p, axis, at) for axis in range(len(self.graph.nodes[p].shape)))

    def _block_shape(self, p: int) -> Shape:
        """Return the shape that value p has on every device: the longest part along each axis."""
        return tuple(map(max, zip(*(lengths(self.owned(p, at)) for at in self.devices), strict=True)))

    def joined(self, p: int) -> tuple[str, ...]:
        """Return the axes of the mesh over which the results of node p are summed: it sums over what they cut."""
        return tuple(name for name, parts in self.parts.items() if p in parts.reduced)

    def computes(self, p: int, at: At) -> bool:
        """Return whether the device at place `at` of the mesh owns a cell of value p, and cells to sum."""
        boxes = [self.owned(p, at)]
        if self.joined(p):
            boxes += [self.owned(a, at) for a in self.graph.nodes[p].operands()]
        return all(first < stop for box in boxes for first, stop in box)

    def _owned_footprint(self, p: int, at: At) -> Footprint:
        """Return the footprint of node p on what the device `at` owns: zeros beyond the ends, its own cells of what it
        sums over.
        """
        node, rule, joined = self.graph.nodes[p], self.rules[p], self.joined(p)
        cut = rule.on(self.owned(p, at), [axis for axis in rule.open if axis in self.axes[p]])
        if not joined:
            return cut
        args = [
            tuple(self.interval(a, t, at) if self.axes[a].get(t) in joined else i for t, i in enumerate(box))
            if isinstance(a, int)
            else box
            for a, box in zip(node.args, cut.args, strict=True)
        ]
        return cut._replace(args=tuple(args))

    # --- what moves ---------------------------------------------------------------------------------------------------

    def shared(self, p: int, k: int) -> tuple[str, ...]:
        """Return the axes of the mesh along which argument k of node p is one cell, broadcast, that every device which
        computes the node reads; none of a number.
        """
        a = self.graph.nodes[p].args[k]
        if not isinstance(a, int):
            return ()
        cut = {name: axis for axis, name in self.axes[a].items() if name not in self.joined(p)}
        return tuple(name for name, axis in cut.items() if not isinstance(self.rules[p].args[k][axis], int))

    def _boxes_read(self, a: int, name: str) -> list[list[Box]]:
        """Return, per device along the mesh axis `name`, the boxes that it reads of value a, which is cut there."""
        boxes = [
            [self._read_box(p, k, name, d) for p, k in self._nodes_reading(a, name, d)]
            for d in range(self.parts[name].count)
        ]
        return [[box for box in of_one if all(first < stop for first, stop in box)] for of_one in boxes]

    def _nodes_reading(self, a: int, name: str, d: int) -> list[tuple[int, int]]:
        """Return (position, which argument) of the nodes that device d computes from value a along the mesh axis
        `name`.
        """
        parts = self.parts[name]
        readers = [(p, k) for p, k in parts.readers.get(a, ()) if name not in self.shared(p, k)]
        return [(p, k) for p, k in readers if parts.computes(p, d)]

    def _read_box(self, p: int, k: int, name: str, d: int) -> Box:
        """Return what node p reads of argument k, on device d, if only the axis `name` of the mesh cuts."""
        parts, rule = self.parts[name], self.rules[p]
        if p in parts.reduced:
            return parts.argument(p, k, d)
        return rule.on(parts.owned(p, d), [axis for axis in rule.open if axis == parts.axes.get(p)]).args[k]

    def _exchange_of(self, a: int, name: str) -> AxisExchange | None:
        """Return the exchange of value a along the mesh axis `name`; None if every device owns what it reads."""
        parts = self.parts[name]
        if a not in parts.axes:
            return None
        axis = parts.axes[a]
        owned = [parts.interval(self.graph.nodes[a].shape[axis], d) for d in range(parts.count)]
        exchange = AxisExchange(owned, [[box[axis] for box in of_one] for of_one in self.reads(a, name)])
        return exchange if exchange.needed else None

    def read_of(self, a: int, axis: int) -> Interval:
        """Return the cells (first, stop) of an uncut axis of value a that some device reads: others need not be
        sent.
        """
        boxes = [box for name in self.axes[a].values() for of_one in self.reads(a, name) for box in of_one]
        return min(box[axis][0] for box in boxes), max(box[axis][1] for box in boxes)

    def moved(self, a: int) -> int:
        """Return how many cells of value a move between devices; along later axes of the mesh, what earlier ones
        brought moves again.
        """
        total, shape = 0, dict[int, int]()
        for axis, name in sorted(self.axes[a].items(), key=lambda item: self.names.index(item[1])):
            exchange = self.exchange(a, name)
            if exchange is None:
                continue
            if not shape:
                shape = dict(enumerate(self.block(a)))
                spans = {t: self.read_of(a, t) for t in shape if t not in self.axes[a]}
                shape |= {t: stop - first for t, (first, stop) in spans.items()}
            others = math.prod(n for t, n in shape.items() if t != axis)
            total += exchange.cells_moved * others * (len(self.devices) // len(exchange.owned))
            shape[axis] = exchange.length
        return total

    @property
    def cells_moved(self) -> int:
        """Return how many cells move between all devices in one forward run."""
        return sum(self.moved(a) for a in range(len(self.graph.nodes)))

    # --- one after the other ------------------------------------------------------------------------------------------

    def along(self, p: int) -> tuple[str, ...]:
        """Return the axes of the mesh along which what node p reads or computes differs from device to device."""
        args = enumerate(self.graph.nodes[p].args)
        read = [set(self.axes[a].values()) - set(self.shared(p, k)) for k, a in args if not isinstance(a, NumberArg)]
        names = set(self.axes[p].values()).union(*read)
        return tuple(name for name in self.names if name in names)

    @cached_property
    def stages(self) -> list[Stage]:
        """Return all computed nodes in order, as stages. A stage without names is computed by all devices alike."""
        groups: list[tuple[tuple[str, ...], list[int]]] = []
        for p in self.rules:
            names = self.along(p)
            if groups and groups[-1][0] == names and not self._needs_exchange(p, groups[-1][1]):
                groups[-1][1].append(p)
            else:
                groups.append((names, [p]))
        last = {a: p for p in self.rules for a in self.graph.nodes[p].operands()}
        last |= dict.fromkeys(self.graph.output_positions, len(self.graph.nodes))
        return [Stage(names, tuple(ps), tuple(p for p in ps if last.get(p, p) > ps[-1])) for names, ps in groups]

    def _needs_exchange(self, p: int, nodes: list[int]) -> bool:
        """Return whether something must move between the nodes of a stage and node p."""
        args = [(k, a) for k, a in enumerate(self.graph.nodes[p].args) if a in nodes]
        return any(self.joined(a) or self.shared(p, k) or self.exchanged(a) for k, a in args if isinstance(a, int))

    def exchanged(self, a: int) -> bool:
        """Return whether cells of value a move along some axis of the mesh."""
        return any(self.exchange(a, name) for name in self.axes[a].values())

    def number(self, at: At, names: tuple[str, ...]) -> int:
        """Return the number of the device `at` among those that differ along the axes `names` of the mesh."""
        number = 0
        for name, count, k in zip(self.names, self.counts, at, strict=True):
            number = number * count + k if name in names else number
        return number

    def kinds(self, stage: Stage, key: Callable[[At], Hashable]) -> tuple[list[At], list[int]]:
        """Return one device for each value of `key`, and the kind (its number) of every device that differs along the
        axes of a stage.
        """
        firsts: dict[Hashable, At] = {}
        kind: dict[int, int] = {}
        for at in self.devices:
            k = key(at)
            firsts.setdefault(k, at)
            kind[self.number(at, stage.names)] = list(firsts).index(k)
        return list(firsts.values()), [kind[i] for i in range(len(kind))]


def relative_box(box: Box, start: Shape) -> Box:
    """Return a box relative to the cell `start` at which an array begins."""
    return tuple((first - s, stop - s) for (first, stop), s in zip(box, start, strict=True))
