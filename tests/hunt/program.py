"""A graph as an optimiser sees it: what each cell is, who reads what, and which nodes to merge, keep or copy.

A node that is linear with constants is `inline` (multiplied out into whoever reads it), computed `once`, or computed in
`copies` that readers choose from; others are computed once or in copies. Convolutions and matrix products are computed
once, or multiplied out into sums of which each is computed once. In the model "node" every layer's result is stored,
once, and only nodes of one layer are merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random

from specgrad.graph.graph import CONSTANT, INPUT, Graph
from terms import ONCE, Cell, Term, formulas, varies

MOST_TERMS = 20_000  # of one part, all cells together


class Program:
    """A graph with what its cells are, and who reads what.

    fixed    names of inputs that a runtime knows beforehand: weights
    """

    def __init__(self, graph: Graph, fixed: Sequence[str] = ()) -> None:
        self.graph = graph
        known = {p for p in graph.input_positions if graph.nodes[p].name in fixed}
        self.varying = varies(graph, known)
        self.formulas = formulas(graph, self.varying)
        self.readers: list[list[int]] = [[] for _ in graph.nodes]
        for i, node in enumerate(graph.nodes):
            for a in node.operands():
                self.readers[a].append(i)
        divisors = {f.of.node for cells in self.formulas.values() for terms in cells for t in terms for f in t.factors
                    if f.divides and isinstance(f.of, Cell)}  # fmt: skip
        self.values = divisors | set(graph.output_positions)  # what must exist as a value
        self.values |= {a for i, n in enumerate(graph.nodes) if i not in self.formulas for a in n.operands()}
        self.statistics = set(_subtracted_from_squares(graph))

    def inlinable(self, i: int, model: str) -> bool:
        group = self.graph.nodes[i].group
        same_layer = all(self.graph.nodes[r].group == group for r in self.readers[i])
        free = model == "fused" or (same_layer and i not in self.statistics)
        return i in self.formulas and i not in self.values and free


def _subtracted_from_squares(graph: Graph) -> Iterator[int]:
    """What is broadcast and subtracted from cells that are squared: by node, one number for all of them."""
    for node in graph.nodes:
        if node.op.name == "mul" and len(node.operands()) == 2 and len(set(node.operands())) == 1:
            below = graph.nodes[node.operands()[0]]
            if below.op.name == "sub" and len(below.operands()) == 2:
                last = below.operands()[1]
                yield from (last, *(graph.nodes[last].operands() if graph.nodes[last].op.name == "broadcast" else ()))


def draw_modes(program: Program, model: str, rng: Random, shares: Sequence[float] = (0.0, 0.5, 1.0)) -> list[str]:
    """inline, once or copies, per node; shares are those of nodes that are inline, and in copies, where they may be."""
    graph = program.graph
    inline, copies = rng.choice(shares), rng.choice(shares) if model == "fused" else 0.0
    modes = ["once"] * len(graph.nodes)
    for i in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[i]
        if node.op in (INPUT, CONSTANT):
            continue
        repeated = node.op.name not in ONCE or is_multiplied_out(program, modes, i)
        if program.inlinable(i, model) and repeated and rng.random() < inline:
            modes[i] = "inline"
        elif node.op.name not in ONCE and rng.random() < (copies if i not in graph.output_positions else copies / 2):
            modes[i] = "copies"
    return _small_enough(program, modes)


def is_multiplied_out(program: Program, modes: list[str], i: int) -> bool:
    """Whether every sum that a node would be multiplied out into is computed once; there may be several of them."""
    return all(
        modes[r] == "once" or (modes[r] == "inline" and is_multiplied_out(program, modes, r))
        for r in program.readers[i]
    )


def has_one_use(program: Program, modes: list[str], i: int) -> bool:
    """Whether a node has one reader, which is computed once: then it need not be stored."""
    while len(program.readers[i]) == 1:
        (i,) = program.readers[i]
        if modes[i] != "inline":
            return modes[i] == "once"
    return False


def _small_enough(program: Program, modes: list[str]) -> list[str]:
    """Compute what would be multiplied out into too many terms."""
    sizes: dict[Cell, int] = {}
    for i, cells in program.formulas.items():
        while True:
            own = [_terms_of(terms, modes, sizes) for terms in cells]
            inner = [a for a in program.graph.nodes[i].operands() if modes[a] == "inline"]
            if sum(own) <= MOST_TERMS or not inner:
                break
            for a in inner:
                modes[a] = "once"
        sizes |= {Cell(i, p): n for p, n in enumerate(own)}
    return modes


def _terms_of(terms: Sequence[Term], modes: list[str], sizes: dict[Cell, int]) -> int:
    return sum(
        math.prod(sizes[f.of] for f in t.factors if isinstance(f.of, Cell) and modes[f.of.node] == "inline")
        for t in terms
    )
