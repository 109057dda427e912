"""The checker's own count of roundings: per operator, and per fusion region of merged nodes.

Nothing here is shared with specgrad.rounding, which the proofs were found with; a test compares the two.

    by node   every layer's result is rounded to float32 and stored
    fused     nodes that are linear with constants may be merged: any connected part of them is one sum over what the
              part reads. A term then meets F + n roundings in the part: F while one coefficient is formed, in whichever
              order neighbouring nodes are multiplied out (`RegionPart`); n while n terms are multiplied and added
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specgrad.errors import UnsupportedError
from specgrad.graph.graph import Graph, Node, NumberArg

from ..base.executions import no_rule
from ..base.rationals import ReplayError

Shapes = Sequence[tuple[int, ...]]
KERNELS = {"conv", "conv_transpose", "contract"}  # computed once, however many read them


def _contract_roundings(shapes: Shapes, p: Mapping[str, Any]) -> int:
    """Return how many products a contraction of arguments of these shapes, with parameters p, adds up per cell: the
    extents of the letters that the result lacks.
    """
    left, out = p["spec"].replace(" ", "").split("->")
    extents = {c: n for word, s in zip(left.split(","), shapes, strict=True) for c, n in zip(word, s, strict=True)}
    return math.prod(n for c, n in extents.items() if c not in out)


MAX_EXACT_DIVISOR = 256  # whole numbers up to here are never rounded


def _avg_pool_roundings(shapes: Shapes, p: Mapping[str, Any]) -> int:
    """Return the roundings of a mean with parameters p: taps - 1 additions, a division, and the divisor's own rounding.

    A division counts two: it may be a product with a reciprocal, or one per axis. The divisor may be one that float32
    lacks.
    """
    taps = int(math.prod(p["window"].kernel))
    divisor = taps if isinstance(p["divisor"], str) else abs(p["divisor"])
    return taps + (1 if divisor <= MAX_EXACT_DIVISOR and divisor == int(divisor) else 2)


Rule = Callable[[Shapes, Mapping[str, Any]], int]
LAYOUT = ("neg", "reshape", "permute", "slice", "pad", "concat", "broadcast")  # nothing is rounded

ROUNDINGS: dict[str, Rule] = {
    **dict.fromkeys(LAYOUT, lambda s, p: 0),
    **dict.fromkeys(("add", "sub", "mul"), lambda s, p: 1),
    "div": lambda s, p: 2,
    "sum": lambda s, p: max(0, math.prod(s[0][a] for a in p["axes"]) - 1),
    "contract": _contract_roundings,
    "conv": lambda s, p: math.prod(s[1][1:]) + len(s) - 2,
    "conv_transpose": lambda s, p: s[1][0] // p["groups"] * math.prod(s[1][2:]) + len(s) - 2,
    "avg_pool": _avg_pool_roundings,
}
"""Per linear operator: the most roundings that a term meets in its sum, in any order."""

CELLWISE = {"add", "sub", "mul", "div", "neg"}


def roundings(node: Node, shapes: Shapes) -> int:
    """Return the most roundings that one term meets in linear node `node`, in any order of its sum.

    `shapes` are those of its arguments. UnsupportedError for an operator without a rule.
    """
    rule = ROUNDINGS.get(node.op.name)
    if rule is None:
        raise UnsupportedError(node.op.name, no_rule(node))
    return rule(shapes, node.params)


def quotient_roundings(node: Node, own: int) -> int:
    """Return how many of the `own` roundings of a linear node its constants meet by themselves: of a reciprocal and
    of an average's divisor.
    """
    if node.op.name == "avg_pool":
        return own - int(math.prod(node.params["window"].kernel))
    return own - 1 if node.op.name == "div" else 0


def is_linear(node: Node) -> bool:
    """Return whether `node` is a linear operator that certificates have a count for."""
    return node.op.name in ROUNDINGS


def feeds_later_sum(graph: Graph) -> set[int]:
    """Return the positions of nodes whose value enters a later linear sum, directly or through layout."""
    positions: set[int] = set()
    for i in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[i]
        if is_linear(node) and (not is_layout(node) or i in positions):
            positions.update(a for a in node.args if not isinstance(a, NumberArg))
    return positions


def recomputed_per_reader(graph: Graph) -> set[int]:
    """Return the positions of which a cell is read more than once, by a linear node among others: each reader may
    recompute it.

    Included are nodes that only such nodes read, or linear ones with several cells that read one: they carry all of it.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(x)[:1] + x[:1] + x[1:], (2,))
    >>> halves = sg.trace(lambda x: x[:1] + x[1:], (2,))
    >>> recomputed_per_reader(graph), recomputed_per_reader(halves)
    ({0}, set())
    """
    reads: dict[int, list[Any]] = {}
    linear: set[int] = set()
    for node in graph.nodes:
        given = [a for a in node.args if not isinstance(a, NumberArg)]
        for a in given:
            reads.setdefault(a, []).append(node.params["ranges"] if node.op.name == "slice" else None)
        linear |= set(given) if is_linear(node) else set()
    for p in graph.output_positions:
        reads.setdefault(p, []).append(None)
    recomputed: set[int] = set()
    not_carried: set[int] = set()  # by some reader
    for i in reversed(range(len(graph.nodes))):
        if i in linear and (_may_overlap(reads[i]) or i not in not_carried):
            recomputed.add(i)
        if i not in recomputed and not _may_read_cell_twice(graph.nodes[i]):
            not_carried.update(graph.nodes[i].operands())
    return recomputed


def _may_read_cell_twice(node: Node) -> bool:
    """Return whether several cells of linear `node` may read one cell of its argument."""
    return is_linear(node) and fan_out(node, math.prod(node.shape)) > 1


def _may_overlap(reads: Sequence[Any]) -> bool:
    """Return whether two slices of `reads`, None being all, may have a cell in common: no axis separates them."""
    for k, a in enumerate(reads):
        for b in reads[:k]:
            axes = () if a is None or b is None else zip(a, b, strict=True)
            if not any(p[1] <= q[0] or q[1] <= p[0] for p, q in axes):
                return True
    return False


def is_layout(node: Node) -> bool:
    """Return whether `node` only moves or repeats cells or changes their sign, so that nothing is rounded."""
    return node.op.name in LAYOUT


# --- merged nodes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RegionPart:
    """Counts of a part of a fusion region, from one start node to the current node: as one sum, a term meets at most
    before + F + n roundings.

    before        roundings of the start node's own value
    coefficient   roundings of one coefficient at nodes each of whose cells reads one cell of every argument, and of
                  quotients by themselves at every node, the first too
    sums          of the other nodes but the first: cells before them that one cell here reads, in all
    reached       of the same: ways to such cells from one cell of the start, in all; as constants of two neighbours
                  are multiplied out, in any order, F is `coefficient` and the less of both
    ways          at most so many ways lead from one cell of the start to cells here, through all arguments
    inputs        cells of the start that one cell here reads, counted with repetitions
    cells         cells of the start node, in all
    others        terms from elsewhere
    nodes         nodes of the part that round
    width         cells of a concatenation that one cell here reads; of each such cell but one, whose terms are those
                  above, up to `aside` cells from elsewhere (of `aside_cells` in all) and `aside_numbers` numbers
    """

    before: int
    coefficient: int
    ways: int
    inputs: int
    cells: int
    others: int
    nodes: int
    width: int = 1
    aside: int = 0
    aside_cells: int = 0
    aside_numbers: int = 0
    sums: int = 0
    reached: int = 0

    def foreign(self, often: int) -> int:
        """Return how many terms from elsewhere `often` cells here add up."""
        aside = self.width * often - 1
        return often * self.others + min(aside * self.aside, self.aside_cells) + aside * self.aside_numbers

    def terms(self, often: int = 1) -> int:
        """Return n: how many terms `often` cells here add up."""
        return min(often * self.inputs, self.cells) + self.foreign(often)

    @property
    def roundings(self) -> int:
        """Return the roundings that a term meets if the part is computed as one sum."""
        return self.before + self.coefficient + min(self.sums, self.reached) + self.terms()


@dataclass(frozen=True)
class RoundingCount:
    """The most roundings that a term may have met at a node (`total`), and the region parts that end here, by start."""

    total: int
    parts: Mapping[int, RegionPart]

    def besides(self, start: int, often: int) -> tuple[int, int]:
        """Return what `often` cells of another argument with this count add to a part that begins at node `start`: (how
        many cells of `start` they read, how many terms from elsewhere they have).
        """
        if start not in self.parts:
            return 0, max((p.terms(often) for p in self.parts.values()), default=often)
        other = max((p.terms(often) for s, p in self.parts.items() if s != start), default=0)
        return often * self.parts[start].inputs, max(other, self.parts[start].foreign(often))


def region_input(position: int, cells: int) -> RoundingCount:
    """Return the count of the value at `position`, with so many cells, that a region reads from outside: no roundings,
    one part beginning here.
    """
    return RoundingCount(0, {position: RegionPart(0, 0, 1, 1, cells, 0, 0)})


CONSTANT = RoundingCount(0, {})


def fan_out(node: Node, cells: int) -> int:
    """Return the most cells of `node` that read one cell of its argument; `cells` is its number of cells."""
    if node.op.name in CELLWISE or node.op.name == "sum" or (is_layout(node) and node.op.name != "broadcast"):
        return 1
    if node.op.name == "avg_pool":
        return math.prod(min(axis.most_readers, axis.out) for axis in node.params["window"].axes)
    return cells


def cells_per_argument(node: Node, cells: int) -> int:
    """Return `fan_out`, times how often a concatenation has one argument; `cells` is the node's number of cells."""
    copies = max(node.args.count(a) for a in node.args) if node.op.name == "concat" else 1
    return fan_out(node, cells) * copies


def count_after_node(
    args: Mapping[int, RoundingCount],
    own: int,
    cellwise: bool,
    position: int,
    cells: int,
    ways: int = 1 << 40,
    quotients: int = 0,
) -> RoundingCount:
    """Return the count after a linear node with `own` roundings; `args` are the counts of its arguments by position,
    constants included.

    `cells` is the number of its cells, `ways` how many of them may read one cell of an argument (`cells_per_argument`),
    `quotients` those of its roundings that its constants meet by themselves (`quotient_roundings`).
    `cellwise`: each cell reads one cell of every argument. ReplayError if the region is too long.

    >>> conv = count_after_node({0: region_input(0, 64)}, 9, False, 1, 64)
    >>> conv.total, count_after_node({1: conv, 0: region_input(0, 64)}, 1, True, 2, 64).total
    (9, 12)
    """
    parts: dict[int, RegionPart] = {}
    most = max(m.total for m in args.values())
    starts = {start for m in args.values() for start in m.parts}
    reached = {s: ways * sum(m.parts[s].ways for m in args.values() if s in m.parts) for s in starts}
    if own == 0:
        for here, arg_count in args.items():
            for start, p in arg_count.parts.items():
                p = _laid_beside(start, p, [m for there, m in args.items() if there != here])
                _merge_part(parts, start, replace(p, ways=reached[start]))
        return RoundingCount(most, parts)
    whole, often = most + own, {p: 1 if cellwise or k else own + 1 for k, p in enumerate(args)}
    for here, arg_count in args.items():
        for start, p in arg_count.parts.items():
            inputs, others = p.inputs * often[here], p.others * often[here]
            for there in args.keys() - {here}:
                shared, rest = args[there].besides(start, often[there])
                inputs, others = inputs + shared, others + rest
            single, later = often[here] == 1, p.nodes > 0 or p.ways > 1  # copies of a cell are summed by the first node
            part = replace(
                p,
                coefficient=p.coefficient + quotients + (min(own - quotients, p.ways) if later and single else 0),
                sums=p.sums * often[here] + (own - quotients if later and not single else 0),
                reached=p.reached + (p.ways if later and not single else 0),
                ways=reached[start],
                inputs=min(inputs, p.cells),
                others=others,
                nodes=p.nodes + 1,
                width=p.width * often[here],
            )
            others_merge = any(
                q.nodes
                for there, m in args.items()
                for s, q in m.parts.items()
                if there != here or (p.aside and s != start)
            )
            whole = max(whole, part.roundings if part.nodes > 1 or others_merge else 0)
            _merge_part(parts, start, part)
    if parts:
        parts[position] = RegionPart(whole, 0, 1, 1, cells, 0, 0)
    if len(parts) > 64 or whole >= 1 << 22:
        raise ReplayError("a region of merged nodes is too long: nothing is proven of so many roundings")
    return RoundingCount(whole, parts)


def _laid_beside(start: int, p: RegionPart, others: Sequence[RoundingCount]) -> RegionPart:
    """Return the part p, which begins at `start`, in a concatenation with values of the counts `others`."""
    cells, numbers, limit = 0, 0, 0
    for m in others:
        if not m.parts:
            numbers = max(numbers, 1)
        for s, q in m.parts.items():
            cells = max(cells, q.width * q.aside + (0 if s == start else q.inputs))
            numbers = max(numbers, q.others + q.width * q.aside_numbers)
        limit += max((q.cells + q.aside_cells for q in m.parts.values()), default=0)
    width = p.width if p.aside or p.aside_numbers else 1
    return replace(
        p,
        width=width,
        aside=p.aside + cells,
        aside_cells=p.aside_cells + limit,
        aside_numbers=p.aside_numbers + numbers,
    )


def _merge_part(parts: dict[int, RegionPart], start: int, part: RegionPart) -> None:
    """Store a part under its start; two parts of one start become one with the larger of each count."""
    old = parts.get(start)
    if old is not None:
        pairs = zip(vars(old).values(), vars(part).values(), strict=True)
        part = RegionPart(*(max(a, b) for a, b in pairs))
    parts[start] = part
