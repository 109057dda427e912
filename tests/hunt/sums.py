"""Ways to add up: every order and grouping that a runtime may choose, each with the roundings that a term meets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from floats import Machine, two_product


class Met(NamedTuple):
    """The most roundings that a term has met: in its part, and since its region began."""

    part: int = 0
    all: int = 0

    def times(self, other: Met) -> Met:
        """Of a product: both factors' roundings."""
        return Met(self.part + other.part, self.all + other.all)

    def rounded(self) -> Met:
        return Met(self.part + 1, self.all + 1)


def most(mets: Iterable[Met]) -> Met:
    parts, alls = zip(*mets, strict=True)
    return Met(max(parts), max(alls))


class Summand(NamedTuple):
    """A value, or a product a*b that is not rounded yet, with the roundings behind it."""

    a: float
    b: float | None
    met: Met = Met()

    @property
    def size(self) -> float:
        """Its value, roughly: to sort by."""
        return self.a if self.b is None else self.a * self.b


Found = tuple[float, Met]


def product(unit: Machine, s: Summand) -> Found:
    return (s.a, s.met) if s.b is None else (unit.mul(s.a, s.b), s.met.rounded())


def plus(unit: Machine, x: Found, y: Found) -> Found:
    return unit.add(x[0], y[0]), most((x[1], y[1])).rounded()


def chain(unit: Machine, items: list[Summand], rng: Random, fused: float) -> Found:
    """One after the other; a product enters by FMA with probability `fused`."""
    total = product(unit, items[0])
    for s in items[1:]:
        if s.b is not None and rng.random() < fused:
            total = unit.fma(s.a, s.b, total[0]), most((total[1], s.met)).rounded()
        else:
            total = plus(unit, total, product(unit, s))
    return total


def pairs(unit: Machine, items: list[Summand], rng: Random, fused: float) -> Found:
    """Neighbours, then pairs of neighbours, ...: the flattest tree."""
    found = [product(unit, s) for s in items]
    while len(found) > 1:
        found = [plus(unit, *found[k : k + 2]) if k + 1 < len(found) else found[k] for k in range(0, len(found), 2)]
    return found[0]


def any_tree(unit: Machine, items: list[Summand], rng: Random, fused: float) -> Found:
    """Two random values at a time."""
    found = [product(unit, s) for s in items]
    while len(found) > 1:
        a = found.pop(rng.randrange(len(found)))
        k = rng.randrange(len(found))
        found[k] = plus(unit, a, found[k])
    return found[0]


def lanes(unit: Machine, items: list[Summand], rng: Random, fused: float) -> Found:
    """Several chains side by side, or one per block, and the sum of these."""
    width = rng.randint(2, 8)
    block = -(-len(items) // width)
    split = [items[k::width] for k in range(width)] if rng.random() < 0.5 else None
    split = split or [items[k : k + block] for k in range(0, len(items), block)]
    parts = [Summand(v, None, met) for v, met in (chain(unit, part, rng, fused) for part in split if part)]
    return rng.choice((chain, pairs))(unit, parts, rng, fused)


def pushed(unit: Machine, items: list[Summand], rng: Random, fused: float, push: float) -> Found:
    """One after the other, always the one of the next few, with or without FMA, whose rounding goes furthest a way."""
    total, rest = product(unit, items[0]), items[1:]
    while rest:
        ways = []
        for k, s in enumerate(rest[:4]):
            ways.append((k, plus(unit, total, product(unit, s))))
            if s.b is not None and fused:
                ways.append((k, (unit.fma(s.a, s.b, total[0]), most((total[1], s.met)).rounded())))
        k, total = max(ways, key=lambda w: (w[1][0] - total[0] - rest[w[0]].size) * push)
        rest.pop(k)
    return total


def widely(unit: Machine, items: list[Summand], rng: Random, fused: float) -> Found:
    """In float64, rounded once at the end."""
    total = sum(s.size for s in items)
    return unit.store(total), most(s.met for s in items).rounded()


def exactly(unit: Machine, items: list[Summand], rng: Random, fused: float) -> Found:
    """Without error, rounded once at the end."""
    parts = [x for s in items for x in ((s.a,) if s.b is None else two_product(s.a, s.b))]
    if not all(map(math.isfinite, parts)):
        return widely(unit, items, rng, fused)
    return unit.store(math.fsum(parts)), most(s.met for s in items).rounded()


ORDERS: list[Callable[[list[Summand], Random], list[Summand]]] = [
    lambda items, rng: items,
    lambda items, rng: items[::-1],
    lambda items, rng: rng.sample(items, len(items)),
    lambda items, rng: rng.sample(items, len(items)),
    lambda items, rng: sorted(items, key=lambda s: -abs(s.size)),  # small ones are lost one by one
    lambda items, rng: sorted(items, key=lambda s: abs(s.size)),
    lambda items, rng: sorted(items, key=lambda s: -s.size),  # w + 1 - w
    lambda items, rng: sorted(items, key=lambda s: s.size),
]
TREES = [chain, chain, chain, any_tree, pairs, lanes, widely, exactly]


def add_up(unit: Machine, items: list[Summand], rng: Random, limit: float = math.inf, push: float = 0) -> Found:
    """In some order, by some tree in which no term meets more than `limit` roundings; pushed up or down."""
    if not items:
        return 0.0, Met()
    if len(items) == 1:
        return product(unit, items[0])
    fused = rng.choice((0.0, 0.5, 1.0))
    if push and len(items) > 2 and rng.random() < 0.7:
        found = pushed(unit, list(rng.choice(ORDERS)(items, rng)), rng, fused, push)
        if found[1].part <= limit:
            return found
    for tree in (rng.choice(TREES), pairs):
        found = tree(unit, rng.choice(ORDERS)(items, rng), rng, fused)
        if found[1].part <= limit:
            return found
    return exactly(unit, items, rng, fused)
