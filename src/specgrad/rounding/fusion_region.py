"""Counts the roundings that a term of a fusion region can meet, whichever way a runtime merges the region's nodes.

A region is a connected set of nodes that are linear with constants. Each of its cells is a formal sum of monomials, a
product of constants times at most one value from outside. A runtime may compute node by node, or take any connected
part of the region as one sum over what that part reads. Then a monomial meets, in that part,

    F   roundings while one coefficient is formed from the constants, neighbouring nodes being multiplied out two at a
        time, in any order. Where cells between two nodes are summed over, a coefficient has as many products as there
        are such cells on its way: no more than one output cell reads, nor than ways lead there from one input cell.
        A node each of whose cells reads one adds its own roundings, and every node those of its quotients
    n   roundings while n terms, inputs and additive constants, are multiplied and added

and before the part whatever it met in the parts below. R, the largest such total, is `RoundingCount.total`. A
`RegionPart` is a set of values at which such a part may begin.

Where arguments are laid side by side, each cell has the terms of one of them; what reads several cells adds terms of
all of them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

MAX_FRONTS = 12  # a longer list is shortened; that it never counts less later is not shown (TRUST.md)


@dataclass(frozen=True, slots=True)
class RegionPart:
    """Counts of a part of the region that begins at node `key` and ends at the current node.

    before   roundings that a term may have met until it begins
    folded   roundings of one coefficient of the part at nodes each of whose cells reads one cell (the constants of the
             first node are coefficients, unless copies of a cell of `key` stand before it), and of quotients by
             themselves, the first node's too
    reads    of all other nodes but the first: cells before them that one cell of the node at hand reads, added up
    reached  of the same: ways to these cells from one cell of `key`, added up; where a depth is stated, that many
    spread   cells of the node at hand that read one cell of `key`, through all of its arguments together
    inputs   cells of `key` that one cell of the node at hand reads; of all `cells` that there are
    others   terms that come from elsewhere: additive constants, the rest of the region
    nodes    behind `key`, up to the current one
    reach    cells of a concatenation that one cell of the current node reads, where cells beside hold terms from
             elsewhere: so many `beside` per cell, of `beside_cells` that there are, and `constants_beside` per cell
    """

    key: int
    before: int
    inputs: int
    cells: int
    folded: int = 0
    reads: int = 0
    reached: int = 0
    spread: int = 1
    others: int = 0
    nodes: int = 0
    reach: int = 1
    beside: int = 0
    beside_cells: int = 0
    constants_beside: int = 0

    @property
    def terms(self) -> int:
        """Return n: how many terms one cell of the current node adds up."""
        return self.terms_of(1)

    def terms_of(self, often: int) -> int:
        """Return how many terms so many cells of the current node add up together."""
        return min(self.inputs * often, self.cells) + self.others_of(often)

    def others_of(self, often: int) -> int:
        """Return how many of these come from elsewhere."""
        more = self.reach * often - 1
        return self.others * often + min(more * self.beside, self.beside_cells) + more * self.constants_beside

    def total(self, depth: int | None) -> int:
        """Return the roundings of a term if the part is one sum whose tree is no deeper than `depth` (None: any)."""
        formed = self.folded + min(self.reads, self.reached)
        return self.before + formed + (self.terms if depth is None else min(self.terms, depth))

    def after(
        self,
        own: int,
        alone: int,
        often: int,
        node: RegionNode,
        inputs: int,
        others: int,
        deep: int | None,
        spread: int,
    ) -> RegionPart:
        """Return the part with one more node, which reads `often` cells of the node before.

        own              its roundings, but for those of constants
        alone            roundings of its constants by themselves: of quotients, of factors that are computed
        inputs, others   what other arguments of the node add
        spread           cells of other arguments that read one cell of `key`
        deep             the most roundings of a sum whose tree is no deeper than is stated (None: any); those of
                         additive constants are as deep
        """
        ways = self.spread if deep is None else deep
        copied = self.spread > 1 or (deep is not None and self.constants_beside > 0)  # summed by the first node, too
        mixes, formed = often > 1, self.nodes > 0 or copied
        return replace(
            self,
            inputs=min(self.inputs * often + inputs, self.cells),
            folded=self.folded + alone + (min(own, ways) if formed and not mixes else 0),
            reads=self.reads * often + (own if formed and mixes else 0),
            reached=self.reached + (ways if formed and mixes else 0),
            spread=(self.spread + spread) * node.spread,
            others=self.others * often + others,
            nodes=self.nodes + 1,
            reach=self.reach * often,
        )

    def joined(self, others: Sequence[RoundingCount]) -> RegionPart:
        """Return the part after its values were laid beside those of `others`, whose terms other cells hold."""
        each = [(f, f.key != self.key) for p in others for f in p.fronts]
        inputs = max((f.inputs * apart + f.reach * f.beside for f, apart in each), default=0)
        cells = sum(max((f.cells + f.beside_cells for f in p.fronts), default=0) for p in others)
        constants = [f.others + f.reach * f.constants_beside for f, _ in each] + [1 for p in others if not p.fronts]
        return replace(
            self,
            reach=self.reach if self.beside or self.constants_beside else 1,
            beside=self.beside + inputs,
            beside_cells=self.beside_cells + cells,
            constants_beside=self.constants_beside + max(constants, default=0),
        )


@dataclass(frozen=True, slots=True)
class RoundingCount:
    """Roundings that a term may have met: `total` in accumulators, `stores` in the format, `operands` of factors.

    cores     sums by tensor cores that stand in the region, at least as many as a term meets
    fronts    the region's parts that end here
    ordered   roundings node by node with sums of any depth: of our own float64 run, whose sums have no stated depth
    """

    total: int = 0
    stores: int = 0
    operands: int = 0
    fronts: tuple[RegionPart, ...] = ()
    ordered: int = 0
    cores: int = 0

    @property
    def longest(self) -> int:
        """Return the roundings in any order: of our own numbers, and of the operations of one sum, whatever
        its depth."""
        return max(self.total, self.ordered)

    def terms_of(self, often: int) -> int:
        """Return the most terms that so many cells have, whichever part of the region is taken as one sum."""
        return max((f.terms_of(often) for f in self.fronts), default=often)

    def spread_from(self, key: int) -> int:
        """Return how many cells read one cell of `key`; where fronts may have been merged, of any front."""
        same = [f.spread for f in self.fronts if f.key == key]
        return max(same or [f.spread for f in self.fronts if len(self.fronts) >= MAX_FRONTS], default=0)

    def beside(self, key: int, often: int) -> tuple[int, int]:
        """Return (inputs, other terms) that this argument, read `often`, adds to a part that begins at `key` elsewhere.

        Here the part may begin at `key` too, or at any other front: the larger of both.
        """
        same = [f for f in self.fronts if f.key == key]
        if not same:
            return 0, self.terms_of(often)
        other = max((f.terms_of(often) for f in self.fronts if f.key != key), default=0)
        return max(f.inputs for f in same) * often, max(other, *(f.others_of(often) for f in same))


@dataclass(frozen=True, slots=True)
class RegionNode:
    """One node as counted: its position, its cells, how many cells each reads, roundings to the format and of operands.

    spread    cells that read one cell of an argument
    besides   roundings of its own that are those of no sum: of quotients, of weights that are computed
    quotients roundings of its own that constants meet by themselves: of a reciprocal and a divisor
    weights   the most of its own that weights meet while they are computed; the others may be as many
    key       its position in the graph
    stores    roundings of results to the format in which values are stored
    operands  roundings of its factors
    cores     1 for a sum by tensor cores
    """

    key: int
    cells: int
    reads: int = 1
    spread: int = 1
    stores: int = 0
    operands: int = 0
    besides: int = 0
    cores: int = 0
    quotients: int = 0
    weights: int = 0

    def capped_roundings(self, own: int, depth: int | None) -> int:
        """Return its own roundings, at most depth + besides if the tree of its sum is no deeper than `depth`."""
        return own if depth is None else min(own, depth + self.besides)


def region_input(key: int, cells: int) -> RoundingCount:
    """Return the count of a value of so many cells that a region reads from outside; `key` tells it from others."""
    return RoundingCount(fronts=(RegionPart(key, 0, 1, cells),))


def count_after_node(
    parts: Sequence[RoundingCount], own: int, extra: int = 0, *, node: RegionNode, depth: int | None
) -> RoundingCount:
    """Return the count after a node with `own` roundings, linear in all of `parts` together; its factors have met
    `extra`.

    A part without fronts is a constant: one term. A cell reads `node.reads` cells of the first part and one of each
    other: a sum of two values, a convolution and its bias. A value that is read twice is one part, whose cells a
    concatenation has twice.

    >>> x = region_input(0, 64)
    >>> conv = count_after_node([x], 9, node=RegionNode(1, 64, reads=9), depth=None)
    >>> conv.total, count_after_node([conv, x], 1, node=RegionNode(2, 64), depth=None).total
    (9, 11)
    """
    given, parts = parts, list({id(p): p for p in parts}.values())
    total, stores, operands, ordered = _largest_counts(parts)
    cores = sum(p.cores for p in parts) + node.cores
    if own == 0:
        added = 0 if depth is None else min(len(given) - 1, depth)  # coefficients of values side by side
        fronts = [
            replace(
                f.joined([q for q in parts if q is not p]),
                folded=f.folded + added,
                spread=sum(q.spread_from(f.key) for q in given) * node.spread,
            )
            for p in parts
            for f in p.fronts
        ]
        return _limit_fronts(RoundingCount(total, stores, operands, tuple(fronts), ordered, cores))
    capped, fronts = node.capped_roundings(own, depth), []
    steps, sums = capped + extra, capped - node.quotients
    deep = None if depth is None else depth + node.besides - node.quotients
    often = [node.reads] + [1] * (len(parts) - 1)
    for k, part in enumerate(parts):
        for f in part.fronts:
            rest = [p.beside(f.key, n) for i, (p, n) in enumerate(zip(parts, often, strict=True)) if i != k]
            spread = sum(p.spread_from(f.key) for p in parts if p is not part)
            counts = sum(n for n, _ in rest), sum(n for _, n in rest), deep, spread
            fronts.append(f.after(sums, node.quotients + node.weights + extra, often[k], node, *counts))
    several = [
        any(g.nodes for p in parts for g in p.fronts if p is not part or (f.beside and g.key != f.key))
        for part in parts
        for f in part.fronts
    ]
    copied = depth is not None  # a sum of copies is as deep as any
    merges = [f for f, others in zip(fronts, several, strict=True) if f.nodes > 1 or others or (copied and f.reads)]
    total = max([total + steps, *(f.total(depth) for f in merges)])  # a node by itself has its own count
    if fronts:
        fronts.append(RegionPart(node.key, total, 1, node.cells))
    ordered += own + extra
    more = stores + node.stores, operands + node.operands
    return _limit_fronts(RoundingCount(total, *more, tuple(fronts), ordered, cores))


def count_of_product(parts: Sequence[RoundingCount], own: int, *, node: RegionNode, depth: int | None) -> RoundingCount:
    """Return the count of a product of several parts of one layer that is not multiplied out: the sum of theirs.

    `own` are the node's roundings; no sum has terms that meet more than `depth` of them (None: any number).
    """
    total = sum(p.total for p in parts) + node.capped_roundings(own, depth)
    counts = sum(p.stores for p in parts) + node.stores, sum(p.operands for p in parts) + node.operands
    ordered, cores = sum(p.ordered for p in parts) + own, sum(p.cores for p in parts) + node.cores
    return RoundingCount(total, *counts, (RegionPart(node.key, total, 1, node.cells),), ordered, cores)


def _largest_counts(parts: Sequence[RoundingCount]) -> tuple[int, int, int, int]:
    """Return the largest total, stores, operands and ordered of any part."""
    each = [(p.total, p.stores, p.operands, p.ordered) for p in parts]
    a, b, c, d = (max(column) for column in zip(*each, strict=True))
    return a, b, c, d


def _limit_fronts(count: RoundingCount) -> RoundingCount:
    """Return the count with at most MAX_FRONTS fronts: those of one key are merged, then the oldest two until few
    enough are left.
    """
    by_key: dict[int, RegionPart] = {}
    for f in count.fronts:
        by_key[f.key] = _larger_of_both(by_key[f.key], f) if f.key in by_key else f
    fronts = list(by_key.values())
    while len(fronts) > MAX_FRONTS:
        fronts[:2] = [_larger_of_both(fronts[0], fronts[1])]
    return replace(count, fronts=tuple(fronts))


def _larger_of_both(a: RegionPart, b: RegionPart) -> RegionPart:
    """Return a part whose every count is the larger of those of parts a and b, under the key of b."""
    larger = {f.name: max(getattr(a, f.name), getattr(b, f.name)) for f in fields(RegionPart)}
    return RegionPart(**{**larger, "key": b.key})
