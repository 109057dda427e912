"""R against every order in which a runtime may multiply out the constants of merged nodes, counted one by one.

Of a part, the values inside are taken out one after the other, in any order: whoever reads one reads what it reads, by
products of constants, which are added up. That is every way to multiply neighbouring matrices, from the input on, from
the output back, and from the middle. Values have several sizes, so that a sum may be much longer than those around it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest

from specgrad.proof.exact.rounding_counts import count_after_node as checker_count_after_node
from specgrad.proof.exact.rounding_counts import region_input as checker_region_input
from specgrad.rounding import fusion_region
from specgrad.rounding.fusion_region import RegionNode, RoundingCount, count_after_node, region_input


@dataclass(frozen=True)
class Step:
    """A node: patterns (cells, cells of the argument) of what it reads; own roundings, 0 for layout; `unit`: by 1."""

    args: tuple[int, ...]
    maps: tuple[np.ndarray, ...]
    own: int
    cellwise: bool
    spread: int
    unit: bool

    @property
    def cells(self) -> int:
        return len(self.maps[0])


def chain(rng: Random, length: int) -> list[Step]:
    """Nodes after an input of 1 to 6 cells: matrices, averages, copies of a cell, products, sums of two values, values
    side by side, the same one among them twice.
    """
    sizes, steps = [rng.choice((1, 2, 4, 6))], []
    for i in range(1, length + 1):
        kind = rng.choice(("matrix", "matrix", "pool", "copy", "mul", "add", "beside"))
        first = rng.randrange(i) if rng.random() < 0.3 else i - 1
        alike = [k for k in range(i) if sizes[k] == sizes[first] and k != first]
        n = sizes[first]
        if kind == "add" and alike:
            one = np.eye(n, dtype=bool)
            steps.append(Step((first, rng.choice(alike)), (one, one), 1, True, 1, True))
        elif kind == "beside" and n <= 4:
            args = [first, rng.choice((first, rng.randrange(i))), *[first] * rng.randrange(2)]
            total = sum(sizes[a] for a in args)
            if total > 8:
                args, total = [first], n
            starts = np.cumsum([0, *(sizes[a] for a in args)])
            maps = tuple(np.eye(total, sizes[a], -int(at), dtype=bool) for a, at in zip(args, starts, strict=False))
            steps.append(Step(tuple(args), maps, 0, True, 1, True))
        elif kind == "pool" and n > 1 and (n % 2 == 0 or n % 3 == 0):
            part = rng.choice([k for k in (2, 3) if n % k == 0])
            steps.append(Step((first,), (np.repeat(np.eye(n // part, dtype=bool), part, 1),), part, False, 1, False))
        elif kind == "copy":
            m = rng.choice((2, 4, 6))
            steps.append(Step((first,), (np.arange(n)[None].repeat(m, 0) == rng.randrange(n),), 0, True, m, True))
        elif kind == "matrix":
            m = rng.choice((1, 2, 4, 6))
            steps.append(Step((first,), (np.ones((m, n), bool),), n, False, m, False))
        else:
            steps.append(Step((first,), (np.eye(n, dtype=bool),), 1, True, 1, False))
        sizes.append(steps[-1].cells)
    return steps


def by_rounding(first: int, steps: list[Step]) -> list[RoundingCount]:
    counts = [region_input(0, first)]
    for i, s in enumerate(steps, 1):
        node = RegionNode(i, s.cells, 1 if s.cellwise else s.own + 1, s.spread)
        counts.append(count_after_node([counts[a] for a in s.args], s.own, node=node, depth=None))
    return counts


def counted(first: int, steps: list[Step]) -> int:
    """R of the last node, by both counts."""
    ours, checkers = by_rounding(first, steps), [checker_region_input(0, first)]
    for i, s in enumerate(steps, 1):
        args = {a: checkers[a] for a in s.args}
        copies = max(map(s.args.count, s.args)) if s.own == 0 else 1
        checkers.append(checker_count_after_node(args, s.own, s.cellwise, i, s.cells, s.spread * copies))
    pairs = [(a.total, b.total) for a, b in zip(ours, checkers, strict=True)]
    twice = any(
        len(s.args) > len(set(s.args)) for s in steps if s.own == 0
    )  # all arguments count as often for checkers
    assert all(a == b or (a < b and twice) for a, b in pairs)
    return ours[-1].total


Edge = tuple[np.ndarray, np.ndarray]  # roundings of every coefficient, -1 for none; the whole ones, 0 for others


def times(outer: Edge, inner: Edge) -> Edge:
    """Coefficients through one value: a rounding per product, unless a factor is 1, and per addition. Small whole
    numbers, sums and products of ones, are exact.
    """
    (a, one), (b, other) = (x[:, :, None] for x in outer), (x[None] for x in inner)
    both, whole = (a >= 0) & (b >= 0), one * other
    each = np.where(both, a + b + ((one != 1) & (other != 1) & (whole == 0)), -1)
    ways, exact = both.sum(1), ((whole > 0) | ~both).all(1)
    counts = np.where(exact, 0, each.max(1) + ways - 1)
    return np.where(ways > 0, counts, -1), np.where(exact, (whole * both).sum(1), 0)


def plus(x: Edge | None, y: Edge) -> Edge:
    if x is None:
        return y
    both, exact = (x[0] >= 0) & (y[0] >= 0), (x[1] > 0) & (y[1] > 0)
    counts = np.where(both & ~exact, np.maximum(x[0], y[0]) + 1, np.maximum(x[0], y[0]))
    return counts, np.where(both & ~exact, 0, x[1] + y[1])


def worst_of_part(steps: list[Step], end: int, kept: frozenset[int], met: dict[int, int]) -> int:
    """The most roundings of a term of node `end` as one sum over kept values, in any order of multiplying out."""
    inside, sources, waiting = set[int](), set[int](), [end]
    while waiting:
        args = set(steps[waiting.pop() - 1].args)
        new = {a for a in args if a not in kept and a != 0} - inside
        inside, sources = inside | new, sources | (args - inside - new)
        waiting += new
    sources -= inside
    if not any(steps[k - 1].own for k in inside):
        return max(met[k] for k in sources) + steps[end - 1].own
    worst = 0
    for order in itertools.permutations(sorted(inside)):
        edges: dict[tuple[int, int], Edge] = {}
        for k in (*inside, end):
            s = steps[k - 1]
            for a, pattern in zip(s.args, s.maps, strict=True):
                edges[k, a] = plus(edges.get((k, a)), (np.where(pattern, 0, -1), (pattern & s.unit).astype(int)))
        for k in order:
            readers, read = ([e for e in edges if e[side] == k] for side in (1, 0))
            for (r, _), (_, a) in itertools.product(readers, read):
                edges[r, a] = plus(edges.get((r, a)), times(edges[r, k], edges[k, a]))
            for e in (*readers, *read):
                del edges[e]
        terms = sum((c >= 0).sum(1) for c, _ in edges.values())
        for (_, a), (c, one) in edges.items():
            each = np.where(c >= 0, met[a] + c + (one != 1) + terms[:, None] - 1, 0)
            worst = max(worst, int(each.max()))
    return worst


def most(steps: list[Step]) -> int:
    """The most roundings of a term of the last node, over all ways of merging and all orders of multiplying out."""
    last, worst = len(steps), 0
    rounding = [k for k in range(1, last) if steps[k - 1].own]
    for count in range(len(rounding) + 1):
        for kept in map(frozenset, itertools.combinations(rounding, count)):
            met = {0: 0}
            for end in (*sorted(kept), last):
                met[end] = worst_of_part(steps, end, kept, met)
            worst = max(worst, met[last])
    return worst


def left_over(seed: int) -> int:
    """R of a drawn region less the most that a term of it meets."""
    rng = Random(f"orders/{seed}")
    steps = chain(rng, rng.randint(2, 5))
    while steps and steps[-1].own == 0:
        steps.pop()
    return counted(steps[0].maps[0].shape[1], steps) - most(steps) if steps else 0


def test_no_order_of_multiplying_out_meets_more() -> None:
    found = [left_over(seed) for seed in range(150)]
    assert min(found) >= 0
    assert found.count(0) > len(found) / 5


@pytest.mark.slow
def test_no_order_of_many_meets_more() -> None:
    assert min(map(left_over, range(150, 10_000))) >= 0


def test_from_the_input_on_alone_is_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first cell added to all, averaged and multiplied: the rule as it was followed it node by node."""
    first, one = np.zeros((6, 6), bool), np.eye(6, dtype=bool)
    first[:, 0] = True
    steps = [
        Step((0,), (first,), 0, True, 6, True),
        Step((1, 0), (one, one), 1, True, 1, True),
        Step((2,), (np.repeat(np.eye(2, dtype=bool), 3, 1),), 3, False, 1, False),
        Step((3,), (np.ones((1, 2), bool),), 2, False, 1, False),
    ]
    assert counted(6, steps) >= most(steps) == 13

    def forward(self: Any, own: int, *counts: Any) -> Any:
        folded = self.folded + (min(own, self.spread + 2) if self.nodes else 0)
        return fusion_region.replace(after(self, own, *counts), folded=folded, reads=0, reached=0)

    after = fusion_region.RegionPart.after
    monkeypatch.setattr(fusion_region.RegionPart, "after", forward)
    assert by_rounding(6, steps)[-1].total == 11
