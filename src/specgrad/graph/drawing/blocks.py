"""A graph as boxes to draw: layers, with cellwise layers folded into the one before, and the values between."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from specgrad.errors import UnsupportedError
from specgrad.window.receptive_field import CELL

from ..ir.node import CONSTANT, INPUT, Node, Program
from .summary import data_inputs, layer_text, open_shapes, receptive_fields

MAX_FOLDED_LAYERS = 3
MAX_BLOCKS = 1500


@dataclass
class Block:
    """One box.

    name       of its layer; of the first, where others are folded in
    texts      what its layers compute
    members    its nodes, by position
    gives      positions that are outputs of the graph
    is_input   whether it is an input of the graph
    """

    name: str
    texts: list[str]
    members: list[int]
    gives: list[int] = field(default_factory=list)
    is_input: bool = False

    @property
    def derivative(self) -> bool:
        """Return whether the box belongs to a derivative, whose layers are named jvp(...) or vjp(...)."""
        return "(" in self.name


@dataclass(frozen=True)
class Net:
    """A value that other boxes read: its `node`, the box `source` that makes it, the boxes `targets` that read it."""

    node: int
    source: int
    targets: tuple[int, ...]


def shape_text(graph: Program, position: int) -> str:
    """Return the shape of the node at `position` as text, with names for symbolic sizes."""
    node = graph.nodes[position]
    return "x".join(map(str, open_shapes(graph).get(node.name, node.shape))) or "scalar"


def blocks_of(graph: Program, *, detail: bool = False) -> tuple[list[Block], list[Net]]:
    """Return boxes in topological order, one per layer or if `detail` per operator, and the values between them.

    UnsupportedError for over MAX_BLOCKS boxes.
    """
    groups = _acyclic(graph, _members(graph, detail))
    if not detail:
        groups = _fold_cellwise(graph, groups)
    groups = _topological_order(graph, groups)
    blocks = [_block(graph, layers, detail) for layers in groups]
    return blocks, _nets(graph, blocks)


def _members(graph: Program, detail: bool) -> dict[int, str]:
    """Return the drawn nodes with the layer of each (`detail`: their own names): those that depend on the data."""
    data = data_inputs(graph)
    if not data:  # a function of structures alone
        data = set(graph.input_positions)
    fields = receptive_fields(graph.nodes, data)
    shown = {i for i, f in enumerate(fields) if f is not None} | data | set(graph.output_positions)
    return {i: graph.nodes[i].name if detail else graph.nodes[i].group for i in sorted(shown)}


Group = list[list[int]]  # the nodes of a box, layer by layer


def _acyclic(graph: Program, layer_of: dict[int, str]) -> list[Group]:
    """Return nodes grouped by layer; a layer that reads its own later results is split, so that boxes form no cycle.

    UnsupportedError for over MAX_BLOCKS boxes.
    """
    groups: list[list[int]] = []
    latest: dict[str, int] = {}
    home: dict[int, int] = {}
    before: list[int] = []  # the groups that a group needs, directly or not, a bit for each
    for i, layer in layer_of.items():
        reads = {home[a] for a in graph.nodes[i].operands() if a in home}
        mine = latest.get(layer)
        if mine is None or any(before[g] >> mine & 1 for g in reads - {mine}):
            mine = latest[layer] = len(groups)
            groups.append([])
            before.append(0)
            if len(groups) > MAX_BLOCKS:
                raise UnsupportedError("draw", f"draws up to {MAX_BLOCKS} boxes, and this graph has more: print it")
        groups[mine].append(i)
        home[i] = mine
        new = 0
        for g in reads - {mine}:
            new |= before[g] | 1 << g
        if new & ~before[mine]:
            before[mine] |= new
            if mine + 1 < len(groups):
                before = [b | new if b >> mine & 1 else b for b in before]
    return [[g] for g in groups]


def _readers(graph: Program, groups: Sequence[Group]) -> tuple[dict[int, int], list[set[int]], list[set[int]]]:
    """Return the box of every node, the boxes that every box reads, and those that read it."""
    home = {i: g for g, layers in enumerate(groups) for layer in layers for i in layer}
    reads: list[set[int]] = [set() for _ in groups]
    read_by: list[set[int]] = [set() for _ in groups]
    for i, g in home.items():
        for source in {home[a] for a in graph.nodes[i].operands() if a in home} - {g}:
            reads[g].add(source)
            read_by[source].add(g)
    return home, reads, read_by


def _is_cellwise(node: Node, nodes: Sequence[Node]) -> bool:
    """Return whether each cell of the node's result reads the same cell of its arguments (in `nodes`), and no other."""
    shapes = (nodes[a].shape if isinstance(a, int) else () for a in node.args)
    reaches = node.op.receptive_field(*shapes, **node.params)
    return len(reaches) == len(node.shape) and all(r == CELL for r in reaches)


def _fold_cellwise(graph: Program, groups: list[Group]) -> list[Group]:
    """Return the groups with cellwise layers over one value merged into the box that makes it.

    Only if no other box of the network reads that value; derivatives may, they read what is inside a box.
    """
    nodes, outputs = graph.nodes, set(graph.output_positions)
    _, reads, read_by = _readers(graph, groups)
    into = list(range(len(groups)))
    merged = [list(g) for g in groups]

    def derived(g: int) -> bool:
        return "(" in nodes[groups[g][0][0]].group

    for g, layers in enumerate(groups):
        if len(reads[g]) != 1 or derived(g):
            continue
        source = next(iter(reads[g]))
        first = nodes[groups[source][0][-1]]
        others = {r for r in read_by[source] if not derived(r)}
        data = [i for i in layers[0] if nodes[i].op not in (INPUT, CONSTANT)]
        cellwise = all(_is_cellwise(nodes[i], nodes) and nodes[i].shape == first.shape for i in data)
        free = first.op is not INPUT and not outputs & set(groups[source][0]) and others == {g}
        target = into[source]
        if cellwise and free and not derived(source) and len(merged[target]) <= MAX_FOLDED_LAYERS:
            into[g] = target
            merged[target] += layers
            merged[g] = []
    return [layers for layers in merged if layers]


def _topological_order(graph: Program, groups: list[Group]) -> list[Group]:
    """Return the groups of nodes in topological order, as far as free as written.

    An input right before its first reader.
    """
    _, reads, read_by = _readers(graph, groups)
    waits = [len(r) for r in reads]

    def turn(g: int) -> tuple[int, bool]:
        own = groups[g][-1][-1]
        alone = not reads[g] and read_by[g]
        return (min(groups[r][-1][-1] for r in read_by[g]), False) if alone else (own, True)

    ready = [(turn(g), g) for g in range(len(groups)) if not waits[g]]
    heapq.heapify(ready)
    order: list[Group] = []
    while ready:
        _, g = heapq.heappop(ready)
        order.append(groups[g])
        for reader in read_by[g]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, (turn(reader), reader))
    return order


def _block(graph: Program, layers: Group, detail: bool) -> Block:
    """Return one box from the nodes of its layers; `detail`: it is one operator, and is named after it."""
    nodes, outputs = graph.nodes, set(graph.output_positions)
    members = [i for layer in layers for i in layer]
    first = nodes[layers[0][-1]]
    texts = [layer_text([nodes[i] for i in layer]) for layer in layers]
    gives = [i for i in members if i in outputs]
    return Block(first.name if detail else first.group, texts, members, gives, first.op is INPUT)


def _nets(graph: Program, blocks: Sequence[Block]) -> list[Net]:
    """Return a Net (value, its box, boxes that read it) for each value that crosses between the boxes `blocks`."""
    home = {i: b for b, block in enumerate(blocks) for i in block.members}
    readers: dict[int, set[int]] = {}
    for i, b in home.items():
        for a in graph.nodes[i].operands():
            if a in home and home[a] != b:
                readers.setdefault(a, set()).add(b)
    return [Net(a, home[a], tuple(sorted(targets))) for a, targets in sorted(readers.items())]
