"""A second checker of certificates, begun from docs/reference/certificate.md alone: slow, exact, no line of ours.

    python tests/proof/second_checker.py net.json certificate.json

net.json is the saved graph, with its .safetensors beside it. It answers "valid", with the margins, or why not. All
numbers are fractions; ranges and slopes of its own are rounded outward to some binary places, so that they stay short.
Where the page leaves something open it takes the reading that proves less. Constants that are computed, and numbers of
a program's text that float32 lacks, are refused.
"""

from __future__ import annotations

import itertools
import json
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from second_functions import Curve, curve_error, smooth_error, smooth_planes, smooth_value
from second_network import (
    CHOICE,
    LARGEST,
    ONE,
    TINY,
    ZERO,
    Network,
    RefusedError,
    canonical,
    digest,
    down,
    entries,
    fraction,
    read_arrays,
    require,
    up,
)

# --- errors, ranges, bounds -------------------------------------------------------------------------------------------


Ends = list[tuple[Fraction, Fraction]]
Winners = dict[tuple[int, int], set[int]]  # window of a max_pool: taps that may win, by their place in the kernel
SMOOTH = ("curve", "smooth")
CELLWISE = ("add", "sub", "mul", "div", "neg")


class Part(NamedTuple):
    """What is counted of a part of a region that begins at one place and ends at the node at hand."""

    before: int
    coefficient: int
    ways: int
    inputs: int
    cells: int
    others: int
    nodes: int
    sums: int = 0
    reached: int = 0
    width: int = 1
    aside: int = 0
    aside_cells: int = 0
    aside_numbers: int = 0

    def foreign(self, n: int) -> int:
        more = n * self.width - 1
        return n * self.others + min(more * self.aside, self.aside_cells) + more * self.aside_numbers

    def terms(self, n: int) -> int:
        return min(n * self.inputs, self.cells) + self.foreign(n)

    def moved(self, start: int, ways: int, rest: list[dict[int, Part]]) -> Part:
        """Through a node that rounds nothing, which lays it beside the arguments `rest`."""
        aside, numbers, cells = [0], [0 if parts else 1 for parts in rest], self.aside_cells
        for parts in rest:
            aside += [q.width * q.aside + q.inputs * (s != start) for s, q in parts.items()]
            numbers += [q.others + q.width * q.aside_numbers for q in parts.values()]
            cells += max((q.cells + q.aside_cells for q in parts.values()), default=0)
        width = self.width if self.aside or self.aside_numbers else 1
        numbered = self.aside_numbers + max(numbers, default=0)
        return self._replace(
            ways=ways, width=width, aside=self.aside + max(aside), aside_cells=cells, aside_numbers=numbered
        )


def _besides(parts: dict[int, Part], start: int, n: int) -> tuple[int, int]:
    """What n cells of another argument add to a part: terms from the same place, and from elsewhere."""
    if not parts:
        return 0, n
    return (
        n * parts[start].inputs if start in parts else 0,
        max(p.foreign(n) if s == start else p.terms(n) for s, p in parts.items()),
    )


class Box:
    """A network on the whole box: ranges of references, their errors, and how far values are apart from them."""

    def __init__(
        self, net: Network, box: Ends, arithmetic: Any, tighten: list[int], lines: Any = None, pieces: Any = None
    ) -> None:
        self.net, self.fused, self.lines = net, arithmetic["execution"] == "fused", lines or {}
        self.arithmetic, self.pieces, self.read_apart = arithmetic, pieces or {}, net.read_apart()
        self.curves = {i: Curve(node) for i, node in enumerate(net.nodes) if node.kind == "curve"}
        self.unit = Fraction(1, 2**24 if arithmetic["rounding"] == "nearest" else 2**23)
        count = len(net.nodes)
        self.drawn: dict[Any, Any] = {}
        self.error: list[list[Fraction]] = [[] for _ in range(count)]
        self.apart: list[list[Fraction]] = [[] for _ in range(count)]
        self.off: list[list[Fraction]] = [[] for _ in range(count)]  # what a merged sum reads, from the reference
        self.drift: list[list[Fraction]] = [[] for _ in range(count)]  # what is read after the last stored result
        self.size: list[list[Fraction]] = [[] for _ in range(count)]
        self.wide: list[list[Fraction]] = [[] for _ in range(count)]
        self.met = [0] * count  # R
        self.parts: list[dict[int, Part]] = [{} for _ in range(count)]
        self.ranges: list[Ends] = []
        ranges = self.narrowed(box, [], tighten, None)
        require(ranges is not None, "a range of the whole box is empty")
        self.ranges = ranges or []

    def errors(self, i: int, ranges: list[Ends]) -> None:
        """Of a node whose arguments are done."""
        node, nodes = self.net.nodes[i], self.net.nodes
        if node.kind == "input":
            self.error[i], self.apart[i] = [ZERO] * node.size, [ZERO] * node.size
        elif node.kind in ("relu", "max"):
            read = self.apart[node.argument]
            passed = read if node.kind == "relu" else [max([read[c] for _, c in t], default=ZERO) for t in node.taps]
            lost = [p + CHOICE for p in passed]
            self.error[i], self.apart[i] = ([ZERO] * node.size, lost) if self.fused else (lost, [ZERO] * node.size)
        elif node.kind in SMOOTH:
            self.function_errors(i, ranges)
        elif node.kind == "linear":
            inside = [self.fused and nodes[a].kind == "linear" for a in range(len(nodes))]
            largest = {
                a: [max(abs(lo), abs(hi)) + d for (lo, hi), d in zip(ranges[a], self.apart[a], strict=True)]
                for a in self.read(i)
            }
            for terms, fixed in zip(node.sums, node.constants, strict=True):
                self.size[i].append(
                    abs(fixed) + sum(abs(f) * (self.size[a][c] if inside[a] else largest[a][c]) for a, c, f, _ in terms)
                )
                self.wide[i].append(
                    max(ONE, abs(fixed))
                    + sum(w * (self.wide[a][c] if inside[a] else max(ONE, largest[a][c])) for a, c, _, w in terms)
                )
                self.off[i].append(
                    sum((abs(f) * (self.off[a][c] if inside[a] else self.apart[a][c]) for a, c, f, _ in terms), ZERO)
                )
                self.drift[i].append(
                    sum((abs(f) * (self.drift[a][c] if inside[a] else self.apart[a][c]) for a, c, f, _ in terms), ZERO)
                )
            e = self.rounding(i)
            self.error[i] = [up(v) for v in (self.off[i] if node.stored else [ZERO] * node.size)] if self.fused else e
            if i in self.read_apart:  # each reader may multiply it out, and read other copies
                self.drift[i], self.error[i] = self.off[i], [ZERO] * node.size if self.fused else e
            elif node.stored:  # computed once; a reader that merges it reads other copies
                self.off[i], self.drift[i] = [2 * v for v in self.off[i]], [ZERO] * node.size
            self.apart[i] = (
                [up(a + b) for a, b in zip(e, self.drift[i], strict=True)] if self.fused else [ZERO] * node.size
            )

    def function_errors(self, i: int, ranges: list[Ends]) -> None:
        """Of a function of one cell, or a smooth maximum: what a runtime errs by, and what copies carry through."""
        node = self.net.nodes[i]
        moved = self.apart[node.argument]
        read = [(lo - d, hi + d) for (lo, hi), d in zip(ranges[node.argument], moved, strict=True)]
        errors, carried = [], []
        for c in range(node.size):
            lo, hi = self.image(i, c, read)
            y = max(abs(lo), abs(hi))
            if node.kind == "curve":
                x = max(map(abs, read[c]))
                errors.append(curve_error(node, self.arithmetic, self.unit, x, y))
                carried.append(self.curves[i].steepest(*read[c]) * moved[c])
            else:
                errors.append(smooth_error(node, self.arithmetic, self.unit, c, read, y))
                carried.append(max([moved[k] for _, k in node.taps[c]], default=ZERO))
            require(y + errors[-1] <= LARGEST, f"node {i} may overflow")
        off = [up(a + b) for a, b in zip(errors, carried, strict=True)]
        self.error[i], self.apart[i] = ([ZERO] * node.size, off) if self.fused else (off, [ZERO] * node.size)

    def image(self, i: int, c: int, read: Ends) -> tuple[Fraction, Fraction]:
        """Ends of a function's cell."""
        node = self.net.nodes[i]
        if node.kind == "curve":
            return self.curves[i].image(*read[c])
        beta, ends = Fraction(node.params["beta"]), [read[k] for _, k in node.taps[c]]
        sign, padded = 1 if beta > 0 else -1, self.padded(i, c)
        each = [smooth_value([sign * e[n] for e in ends], padded, abs(beta)) for n in (0, 1)]
        return (each[0][0], each[1][1]) if sign > 0 else (-each[0][1], -each[1][0])

    def padded(self, i: int, c: int) -> int:
        node = self.net.nodes[i]
        return node.all_taps - len(node.taps[c]) if node.params["padded"] == "zero" else 0

    def read(self, i: int) -> set[int]:
        node = self.net.nodes[i]
        return {node.argument} if node.argument >= 0 else {a for terms in node.sums for a, *_ in terms}

    def rounding(self, i: int) -> list[Fraction]:
        """e of every cell."""
        r = self.counted(i)
        require(r * self.unit < 1, "too many roundings")
        gamma, found = r * self.unit / (1 - r * self.unit), []
        for size, wide in zip(self.size[i], self.wide[i], strict=True):
            require(wide * (1 + gamma) <= LARGEST, f"node {i} may overflow")
            found.append(up(gamma * size + 2 * (2 * r + 1) * wide * TINY) if r else ZERO)
        return found

    def counted(self, i: int) -> int:
        """R of a linear node; parts go by where they begin."""
        node, nodes = self.net.nodes[i], self.net.nodes
        given = {
            a: (self.met[a], self.parts[a])
            if self.fused and nodes[a].kind == "linear"
            else (0, {a: Part(0, 0, 1, 1, nodes[a].size, 0, 0)})
            for a in node.reads
        }
        given |= {-1: (0, {})} if node.adds_constants else {}
        own, most = node.own, max((met for met, _ in given.values()), default=0)
        parts: dict[int, Part] = {}
        total = most + own
        for k, (a, (_, mine)) in enumerate(given.items()):
            often = own + 1 if own and k == 0 and node.op not in CELLWISE else 1
            for start, p in mine.items():
                ways = sum(theirs[start].ways for _, theirs in given.values() if start in theirs)
                ways *= node.spread * node.copies
                new = p.moved(start, ways, [theirs for b, (_, theirs) in given.items() if b != a])
                if own:
                    inputs, others = p.inputs * often, p.others * often
                    for b, (_, theirs) in given.items():
                        if b != a:
                            again = own + 1 if node.op not in CELLWISE and list(given).index(b) == 0 else 1
                            shared, rest = _besides(theirs, start, again)
                            inputs, others = inputs + shared, others + rest
                    formed, sums, reached = p.coefficient + node.alone, p.sums * often, p.reached
                    added = own - node.alone
                    if p.nodes or p.ways > 1:
                        formed += min(added, p.ways) if often == 1 else 0
                        sums, reached = (sums, reached) if often == 1 else (sums + added, reached + p.ways)
                    counts = min(inputs, p.cells), p.cells, others, p.nodes + 1, sums, reached
                    new = Part(p.before, formed, ways, *counts, p.width * often, *p[-3:])
                    merges = any(
                        q.nodes
                        for b, (_, t) in given.items()
                        for s, q in t.items()
                        if b != a or (p.aside and s != start)
                    )
                    formed += min(sums, reached)
                    total = max(total, new.before + formed + new.terms(1) if new.nodes > 1 or merges else 0)
                old = parts.get(start)
                parts[start] = new if old is None else Part(*map(max, old, new))
        if own and parts:
            parts[i] = Part(total, 0, 1, 1, node.size, 0, 0)
        require(len(parts) <= 64 and total < 1 << 22, "a region is too long")
        self.met[i], self.parts[i] = total, parts
        return total

    def interval(self, i: int, ranges: list[Ends], winners: Winners) -> Ends:
        node = self.net.nodes[i]
        if node.kind in SMOOTH:
            ends = [self.image(i, c, ranges[node.argument]) for c in range(node.size)]
        elif node.kind == "relu":
            ends = [(max(ZERO, lo), max(ZERO, hi)) for lo, hi in ranges[node.argument]]
        elif node.kind == "max":
            read = ranges[node.argument]
            ends = []
            for n, taps in enumerate(node.taps):
                least = max([read[c][0] for _, c in taps], default=ZERO)
                ends.append((least, max([read[c][1] for _, c in self.contenders(i, n, winners)], default=ZERO)))
        else:
            ends = []
            for terms, fixed in zip(node.sums, node.constants, strict=True):
                both = [sorted((f * ranges[a][c][0], f * ranges[a][c][1])) for a, c, f, _ in terms]
                ends.append((fixed + sum(b[0] for b in both), fixed + sum(b[1] for b in both)))
        return [(down(lo - e), up(hi + e)) for (lo, hi), e in zip(ends, self.error[i], strict=True)]

    def contenders(self, i: int, cell: int, winners: Winners) -> list[tuple[int, int]]:
        """The taps of a window that may be its winner."""
        taps = self.net.nodes[i].taps[cell]
        return [(t, c) for t, c in taps if t in winners[i, cell]] if (i, cell) in winners else taps

    def won(self, i: int, ends: Ends, winners: Winners) -> None:
        """What winners say of node i, which max_pools read."""
        for (pool, cell), _ in winners.items():
            if self.net.nodes[pool].argument == i:
                mine = self.contenders(pool, cell, winners)
                roof = max([ends[c][1] for _, c in mine], default=None)
                floor = max(ends[c][0] for _, c in self.net.nodes[pool].taps[cell])
                for _, c in self.net.nodes[pool].taps[cell] if roof is not None else ():
                    ends[c] = ends[c][0], min(ends[c][1], roof)
                if len(mine) == 1:
                    c = mine[0][1]
                    ends[c] = max(ends[c][0], floor), ends[c][1]

    def narrowed(
        self, box: Ends, cuts: Any, tighten: list[int], root: list[Ends] | None, winners: Winners | None = None
    ) -> list[Ends] | None:
        """Ranges of all nodes on a part of the box, or nothing where one is empty."""
        self.winners = winners = winners or {}
        if any(not self.contenders(i, cell, winners) for i, cell in winners):
            return None
        ranges: list[Ends] = []
        for i, node in enumerate(self.net.nodes):
            if root is None:
                self.errors(i, ranges)
            kept = root is not None and node.kind == "linear"  # linear nodes keep the whole box's range until narrowed
            ends = box if node.kind == "input" else [] if node.kind == "constant" else self.interval(i, ranges, winners)
            if root is not None and kept:
                ends = [*root[i]]
            elif root is not None:
                ends = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(ends, root[i], strict=True)]
            for position, cell, side, point in cuts:
                if position == i:
                    lo, hi = ends[cell]
                    ends[cell] = (max(lo, point), hi) if side > 0 else (lo, min(hi, point))
            ranges.append(ends)
            if any(lo > hi for lo, hi in ends):
                return None
            if i in tighten:
                window = any(n.kind in ("max", *SMOOTH) and n.argument == i for n in self.net.nodes)
                for c, (lo, hi) in enumerate(ends):
                    if window or lo < 0 < hi:
                        least = max(self.lower({i: {c: ONE}}, ZERO, ranges, short=s) for s in (True, False))
                        most = -max(self.lower({i: {c: -ONE}}, ZERO, ranges, short=s) for s in (True, False))
                        ends[c] = max(lo, down(least)), min(hi, up(most))
                        if ends[c][0] > ends[c][1]:
                            return None
            self.won(i, ends, winners)
            if any(lo > hi for lo, hi in ends):
                return None
        return ranges

    def lower(
        self,
        forms: dict[int, dict[int, Fraction]],
        total: Fraction,
        ranges: list[Ends],
        slopes: Any = None,
        short: bool = False,
    ) -> Fraction:
        """A lower bound of total + sum of coefficients times references, from the last node back to the inputs.

        short   to the next relus and max_pools alone, whose ranges are known
        """
        forms = {i: dict(form) for i, form in forms.items()}
        while forms:
            i = max(forms)
            form, node = forms.pop(i), self.net.nodes[i]
            for cell, a in form.items():
                if node.kind == "input" or (short and node.kind != "linear"):
                    total += min(a * ranges[i][cell][0], a * ranges[i][cell][1])
                    continue
                total -= abs(a) * self.error[i][cell]
                if i in self.pieces and not short:
                    continue
                if node.kind == "linear":
                    terms, fixed = [(p, c, f) for p, c, f, _ in node.sums[cell]], node.constants[cell]
                else:
                    line = {"relu": self.relu_line, "max": self.max_line}.get(node.kind, self.function_line)
                    terms, fixed = line(i, cell, a > 0, ranges, slopes)
                total += a * fixed
                for p, c, f in terms:
                    if f:
                        before = forms.setdefault(p, {})
                        before[c] = before.get(c, ZERO) + a * f
            if i in self.pieces and not short:
                total += self.by_pieces(i, form, forms, ranges)
        return total

    def by_pieces(self, i: int, form: dict[int, Fraction], forms: Any, ranges: list[Ends]) -> Fraction:
        """A relu of a convolution, position by position: m.x into the forms, and the constant."""
        position, total = self.net.nodes[i].argument, ZERO
        conv = self.net.nodes[position]
        require(bool(conv.patches), f"relu {i} reads no convolution of at most 6 cells")
        given = self.pieces[i]
        require(given.shape == (len(conv.patches), len(conv.patches[0][0])), f"vectors of relu {i} have another shape")
        (x,) = {a for terms in conv.sums for a, *_ in terms}
        for (cells, weights, mine), vector in zip(conv.patches, given, strict=True):
            m = [Fraction(int(v), 2**20) for v in vector]
            box = [(ZERO, ZERO) if c is None else ranges[x][c] for c in cells]
            each = [(form[c], w, conv.constants[c]) for w, c in zip(weights, mine, strict=True) if form.get(c)]
            total += min(_piece_least(half, each, m) for half in _halves(box))
            total -= sum((abs(form.get(c, ZERO)) * self.error[position][c] for c in mine), ZERO)
            for c, v in zip(cells, m, strict=True):
                if c is not None and v:
                    before = forms.setdefault(x, {})
                    before[c] = before.get(c, ZERO) + v
        return total

    def function_line(self, i: int, cell: int, below: bool, ranges: list[Ends], slopes: Any) -> Any:
        node = self.net.nodes[i]
        x = node.argument
        if node.kind == "curve":
            given = int(self.lines[i][0 if below else 1].flat[cell]) if i in self.lines else None
            key = i, below, given, *ranges[x][cell]
            if key not in self.drawn:
                self.drawn[key] = self.curves[i].line(*ranges[x][cell], -1 if below else 1, given)
            s, c = self.drawn[key]
            return [(x, cell, s)], c
        taps = [c for _, c in node.taps[cell]]
        ends = [ranges[x][c] for c in taps]
        key = i, self.padded(i, cell), *ends
        if key not in self.drawn:
            lows, highs = ([e[n] for e in ends] for n in (0, 1))
            self.drawn[key] = smooth_planes(lows, highs, self.padded(i, cell), Fraction(node.params["beta"]))
        s, c = self.drawn[key][0 if below else 1]
        return [(x, k, v) for k, v in zip(taps, s, strict=True)], c

    def relu_line(self, i: int, cell: int, below: bool, ranges: list[Ends], slopes: Any) -> Any:
        x = self.net.nodes[i].argument
        lo, hi = ranges[x][cell]
        if lo >= 0:
            return [(x, cell, ONE)], ZERO
        if hi <= 0:
            return [], ZERO
        if i in self.lines:
            s = Fraction(int(self.lines[i][0 if below else 1].flat[cell]), 1024)
        elif below:
            s = Fraction(int(slopes[i].flat[cell]), 1024) if slopes and i in slopes else Fraction(int(hi > -lo))
        else:
            s = up(hi / (hi - lo), 40)
        require(s >= 0 and (s <= 1 or not below), f"a slope of relu {i} is no slope of a line")
        return [(x, cell, s)], ZERO if below else max(-s * lo, hi - s * hi)

    def max_line(self, i: int, cell: int, below: bool, ranges: list[Ends], slopes: Any) -> Any:
        node = self.net.nodes[i]
        taps = node.taps[cell]
        if not taps:
            return [], ZERO
        ends = {c: ranges[node.argument][c] for _, c in taps}
        if i in self.lines:
            read = sorted({t for each in node.taps for t, _ in each})  # slopes are of taps that some window reads
            given = self.lines[i][0 if below else 1].reshape(len(read), node.size)[:, cell]
            s = {c: Fraction(int(given[read.index(t)]), 1024) for t, c in taps}
            inside = {read.index(t) for t, _ in taps}
            require(all(v >= 0 for v in s.values()) and len(s) == len(taps), f"a slope of max_pool {i} is negative")
            require(not below or sum(s.values()) == 1, f"lower slopes of max_pool {i} do not sum to 1")
            require(
                all(t in inside or given[t] == 0 or not below for t in range(len(given))),
                f"a slope of padding in max_pool {i}",
            )
        else:
            return self.own_max_line(i, cell, below, ends)
        terms = [(node.argument, c, v) for c, v in s.items()]
        if below:
            return terms, ZERO
        each = [
            max((1 - s[c]) * ends[c][1], (1 - s[c]) * ends[c][0]) - sum(s[d] * ends[d][0] for d in ends if d != c)
            for c in ends
        ]
        return terms, max(each)

    def own_max_line(self, i: int, cell: int, below: bool, ends: dict[int, tuple[Fraction, Fraction]]) -> Any:
        """Below the tap with the largest middle; above T + s*(x_k - l_k)."""
        mine, x = [c for _, c in self.contenders(i, cell, self.winners)], self.net.nodes[i].argument
        if below:
            return [(x, max(mine, key=lambda c: sum(ends[c])), ONE)], ZERO
        k = max(mine, key=lambda c: ends[c][1])
        low, high = ends[k]
        top = max([ends[c][1] for c in mine if c != k] + [ends[c][0] for c in mine])
        s = up((high - top) / (high - low), 40) if high > low else ZERO
        return [(x, k, s)], top - s * low

    def margin(
        self,
        rows: Any,
        limits: Any,
        weights: Any,
        ranges: list[Ends],
        bent: Any = (),
        slopes: Any = None,
        pulls: Any = (),
    ) -> Fraction:
        """A lower bound of w.(rows.y - limits) less multipliers times what is >= 0 on the part."""
        out, total = self.net.output, ZERO
        forms: dict[int, dict[int, Fraction]] = {out: {}}
        for c in range(self.net.nodes[out].size):
            a = Fraction(sum(int(w) * row[c] for w, row in zip(weights, rows, strict=True)))
            forms[out][c], total = a, total - abs(a) * self.apart[out][c]
        total -= sum((int(w) * v for w, v in zip(weights, limits, strict=True)), ZERO)
        for (position, cell, side, point), b in bent:
            form = forms.setdefault(position, {})
            form[cell] = form.get(cell, ZERO) - b * side
            low, high = ranges[position][cell]
            total += b * max(low, point) if side > 0 else -b * min(high, point)
        for (source, winner, loser), b in pulls:
            form = forms.setdefault(source, {})
            form[winner], form[loser] = form.get(winner, ZERO) - b, form.get(loser, ZERO) + b
        return self.lower(forms, total, ranges, slopes)


def _halves(box: Ends) -> Iterable[Ends]:
    return itertools.product(*([(lo, (lo + hi) / 2), ((lo + hi) / 2, hi)] if lo < hi else [(lo, hi)] for lo, hi in box))


def _piece_least(box: Ends, each: Any, m: list[Fraction]) -> Fraction:
    """Of lines of sum a*relu(w.x + b), less m.x, on a box."""
    rest, total = [-v for v in m], ZERO
    for a, w, b in each:
        ends = [sorted((f * lo, f * hi)) for f, (lo, hi) in zip(w, box, strict=True)]
        low, high = (b + sum(e[n] for e in ends) for n in (0, 1))
        if low >= 0 or high <= 0:
            s, k = a if low >= 0 else ZERO, ZERO
        elif a >= 0:
            s, k = a if high > -low else ZERO, ZERO
        else:
            s = down(a * high / (high - low), 64)
            k = min(-s * low, (a - s) * high)
        total += s * b + k
        rest = [r + s * f for r, f in zip(rest, w, strict=True)]
    return total + sum(min(r * lo, r * hi) for r, (lo, hi) in zip(rest, box, strict=True))


# --- certificates -----------------------------------------------------------------------------------------------------


@dataclass
class Leaf:
    box: Ends
    cuts: list[tuple[int, int, int, Fraction]]  # node, cell, side, point
    parts: list[int]  # from the root down
    boxes: list[Ends]  # of these parts
    wins: list[tuple[int, int, int, bool]]  # window of a max_pool, tap, whether it wins

    def winners(self, net: Network) -> Winners:
        """Which taps are left."""
        left: Winners = {}
        for i, cell, tap, is_winner in self.wins:
            mine = left.setdefault((i, cell), {t for t, _ in net.nodes[i].taps[cell]})
            left[i, cell] = mine & {tap} if is_winner else mine - {tap}
        return left

    def losers(self, net: Network) -> list[tuple[int, int, int]]:
        """(what the max_pool reads, cell of the winner, cell of another tap) per cut whose tap wins."""
        found = []
        for i, cell, tap, is_winner in self.wins:
            taps = dict(net.nodes[i].taps[cell])
            found += [(net.nodes[i].argument, taps[tap], c) for t, c in sorted(taps.items()) if is_winner and t != tap]
        return found


def cover(net: Network, box: Ends, nodes: Iterable[int], cells: list[int], points: Any, taps: list[int]) -> list[Leaf]:
    """Leaves of the tree, which hold every execution on the box."""
    stack, leaves, used = [Leaf(box, [], [], [], [])], [], 0
    for part, i in enumerate(nodes):
        require(bool(stack), "parts are left over")
        at = stack.pop()
        at = Leaf(at.box, at.cuts, [*at.parts, part], [*at.boxes, at.box], at.wins)
        if i == -1:
            leaves.append(at)
            continue
        require(0 <= i < len(net.nodes) and used < len(cells), "a cut of no node, or without its cell")
        cell, p, tap, node = cells[used], points[used], taps[used] if taps else -1, net.nodes[i]
        used += 1
        require(
            0 <= cell < node.size and bool(np.isfinite(p)) and node.kind != "constant",
            "a cut of no cell, or at no number",
        )
        point = Fraction(float(p))
        if tap != -1:
            require(node.kind == "max" and p == 0 and tap in dict(node.taps[cell]), "a cut by no tap of a window")
            both = [[*at.wins, (i, cell, tap, is_winner)] for is_winner in (False, True)]
            stack += [Leaf(at.box, at.cuts, at.parts, at.boxes, wins) for wins in both]
        elif node.kind == "input":
            low, high = at.box[cell]
            require(low <= point < high, "a cut of an input outside its part")
            after = Fraction(float(np.nextafter(np.float32(p), np.float32(np.inf))))
            sides = [[*at.box], [*at.box]]
            sides[0][cell], sides[1][cell] = (low, point), (after, high)
            stack += [Leaf(side, at.cuts, at.parts, at.boxes, at.wins) for side in reversed(sides)]
        else:
            both = [[*at.cuts, (i, cell, side, point)] for side in (1, -1)]
            stack += [Leaf(at.box, cuts, at.parts, at.boxes, at.wins) for cuts in both]
    require(not stack and used == len(cells), "parts are missing, or cuts are left over")
    return leaves


class Certificate:
    def __init__(self, net: Network, text: bytes, packed: bytes) -> None:
        self.net, self.arrays = net, read_arrays(packed)
        require(len(text) <= 1 << 24 and text.isascii(), "the text is too long or not ASCII")
        data = json.loads(text)
        require(canonical(data) + b"\n" == text, "the text is not canonical")
        entries(data, "format version network arithmetic cases arrays digest", "the certificate")
        require(data["format"] == "specgrad-certificate" and data["version"] in (2, 4), "another format or version")
        self.version, self.arithmetic = data["version"], data["arithmetic"]
        sealed = data.pop("digest")
        require(
            digest(canonical(data) + b"\n") == sealed or digest(canonical(data)) == sealed,
            "the digest of the text does not fit",
        )
        require(data["arrays"] == digest(packed), "the digest of the arrays does not fit")
        require(data["network"] == net.digest, "it is about another network")
        keys = "dtype operands accumulate execution depth rounding flush"
        entries(self.arithmetic, keys + " functions" * ("functions" in self.arithmetic), "arithmetic")
        self.functions()
        usual = {"dtype": "float32", "operands": None, "accumulate": None, "depth": None, "flush": True}
        require(
            all(self.arithmetic[k] == v and type(self.arithmetic[k]) is type(v) for k, v in usual.items()),
            "another arithmetic",
        )
        require(
            self.arithmetic["execution"] in ("fused", "node") and self.arithmetic["rounding"] in ("nearest", "any"),
            "another arithmetic",
        )
        self.cases, self.roots = data["cases"], {}
        require(isinstance(self.cases, list) and len(self.cases) > 0, "no cases")

    def functions(self) -> None:
        """What is declared, of functions that are computed alone, from one unit on."""
        used = {f for n in self.net.nodes for f in (("exp", "log") if n.kind == "smooth" else (n.op,))}
        for name, (units, kind) in self.arithmetic.get("functions", {}).items():
            require(name in used and kind in ("y", "1", "x", "1+y"), f"functions declare {name} without need")
            require(Fraction(units) >= 1 and str(Fraction(units)) == units, f"{name} has no units")

    def array(self, name: Any, dtype: str, shape: Any = None) -> Any:
        require(isinstance(name, str) and name in self.arrays, f"no array {str(name)[:40]}")
        value = self.arrays[name]
        require(
            value.dtype == np.dtype(dtype) and (shape is None or value.shape == tuple(shape)),
            f"array {name} has another type or shape",
        )
        return value

    def check(self) -> list[list[Fraction]]:
        """The least margin of every alternative of every case; each is above 0."""
        return [self.case(case) for case in self.cases]

    def case(self, case: Any) -> list[Fraction]:
        entries(case, "low high alternatives" + " trees" * (self.version == 4), "a case")
        shape = self.net.nodes[self.net.input].shape
        low, high = (self.array(case[k], "<f4", shape) for k in ("low", "high"))
        require(bool(np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()), "no box")
        box = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(low.flat, high.flat, strict=True)]
        alternatives, margins = case["alternatives"], {}
        require(isinstance(alternatives, list) and len(alternatives) > 0, "no alternatives")
        for k, each in enumerate(alternatives):
            keys = (
                "rows limits tree"
                if self.version == 4 and "tree" in each
                else "rows limits weights slopes tighten pieces"
            )
            entries(each, keys, "an alternative")
            outputs = self.net.nodes[self.net.output].size
            rows = each["rows"]
            require(
                isinstance(rows, list) and len(rows) > 0 and len(rows) == len(each["limits"]), "rows without limits"
            )
            require(
                all(len(r) == outputs and all(type(v) is int and abs(v) <= 2**53 for v in r) for r in rows), "no rows"
            )
            each["limits"] = [fraction(v) for v in each["limits"]]
            if "tree" not in each:
                margins[k] = self.whole(box, each)
        trees = case.get("trees", [])
        for t, tree in enumerate(trees):
            mine = [
                k
                for k, each in enumerate(alternatives)
                if "tree" in each and type(each["tree"]) is int and each["tree"] == t
            ]
            require(len(mine) > 0, "a tree that no alternative has")
            margins.update(zip(mine, self.tree(box, tree, [alternatives[k] for k in mine]), strict=True))
        require(len(margins) == len(alternatives), "an alternative without a proof")
        require(all(m > 0 for m in margins.values()), f"a margin is not positive: {float(min(margins.values()))}")
        return [margins[k] for k in range(len(alternatives))]

    def tightened(self, data: Any) -> list[int]:
        require(
            isinstance(data, list) and all(type(i) is int and 0 <= i < len(self.net.nodes) for i in data),
            "tighten is no list of nodes",
        )
        require(len(set(data)) == len(data) and data == sorted(data), "tighten names a node twice, or in another order")
        require(
            all(self.net.nodes[i].kind not in ("input", "constant") for i in data),
            "tighten names a node that is not computed",
        )
        return data

    def root(self, box: Ends, tighten: list[int]) -> Box:
        key = tuple(box), tuple(tighten)
        if key not in self.roots:
            self.roots[key] = Box(self.net, box, self.arithmetic, tighten)
        return self.roots[key]

    def whole(self, box: Ends, each: Any) -> Fraction:
        weights, lines, pieces = each["weights"], {}, {}
        for key, name in each["pieces"].items():
            require(key.isdecimal() and self.net.nodes[int(key)].kind == "relu", "vectors of no relu")
            pieces[int(key)] = self.array(name, "<i4")
        require(
            len(weights) == len(each["rows"]) and all(type(w) is int and w >= 0 for w in weights) and any(weights),
            "no weights",
        )
        for key, names in each["slopes"].items():
            require(key.isdecimal() and int(key) < len(self.net.nodes), "slopes of no node")
            node = self.net.nodes[int(key)]
            require(
                node.kind in ("relu", "max", "curve") and isinstance(names, list) and len(names) == 2,
                "slopes of no relu, max_pool or curve",
            )
            found = [self.array(name, "<i2") for name in names]
            require(
                all(
                    a.shape[-len(node.shape) :] == node.shape and a.ndim == len(node.shape) + (node.kind == "max")
                    for a in found
                ),
                "slopes of another shape",
            )
            lines[int(key)] = found
        box = Box(self.net, box, self.arithmetic, self.tightened(each["tighten"]), lines, pieces)
        return box.margin(each["rows"], each["limits"], weights, box.ranges)

    def tree(self, box: Ends, tree: Any, alternatives: list[Any]) -> list[Fraction]:
        keys = "nodes cells points weights multipliers changed slopes tighten anew narrow"
        entries(tree, keys + " taps pulls" * ("taps" in tree), "a tree")
        require(type(tree["narrow"]) is int and tree["narrow"] in (0, 1), "narrow is 0 or 1")
        numbers = {
            k: ([] if tree[k] is None else self.array(tree[k], "<i4").ravel().tolist())
            for k in ("nodes", "cells", "multipliers", "changed", "anew")
        }
        points = [] if tree["points"] is None else list(self.array(tree["points"], "<f4").ravel())
        require(len(points) == len(numbers["cells"]), "points and cells differ in number")
        tighten = self.tightened(tree["tighten"])
        taps, pulls = (
            [] if tree.get(k) is None else self.array(tree[k], "<i4").ravel().tolist() for k in ("taps", "pulls")
        )
        require("taps" not in tree or (len(taps) == len(points) and min(taps) >= -1 < max(taps)), "taps of no cuts")
        leaves = cover(self.net, box, numbers["nodes"], numbers["cells"], points, taps)
        require(all(b >= 0 for b in pulls), "a multiplier is negative")
        lost = sum(len(alternatives) * len(leaf.losers(self.net)) for leaf in leaves)
        require(lost == len(pulls), "another number of multipliers of taps")
        rows = sum(len(each["rows"]) for each in alternatives)
        weights = self.array(tree["weights"], "<i4", (len(leaves), rows))
        require(
            sum(len(alternatives) * len(leaf.cuts) for leaf in leaves) == len(numbers["multipliers"]),
            "another number of multipliers",
        )
        require(
            all(b >= 0 for b in numbers["multipliers"]) and bool((weights >= 0).all()),
            "a weight or multiplier is negative",
        )
        changed, slopes = numbers["changed"], {}
        for named in (changed, numbers["anew"]):
            inside = all(0 <= p < len(numbers["nodes"]) for p in named)
            require(named == sorted(set(named)) and inside, "changed or anew names no parts in order")
        for key, name in tree["slopes"].items():
            require(
                key.isdecimal() and int(key) < len(self.net.nodes) and self.net.nodes[int(key)].kind == "relu",
                "slopes of no relu",
            )
            slopes[int(key)] = self.array(
                name, "<i2", (len(changed), len(alternatives), *self.net.nodes[int(key)].shape)
            )
            require(bool(((slopes[int(key)] >= 0) & (slopes[int(key)] <= 1024)).all()), "a slope is not from 0 to 1024")
        margins: list[list[Fraction]] = [[] for _ in alternatives]
        at = past = 0
        for leaf, weight in zip(leaves, weights, strict=True):
            above = [n for n, p in enumerate(leaf.parts) if p in numbers["anew"]]
            root = self.root(box if not above else leaf.boxes[above[-1]], tighten)
            winners, losers = leaf.winners(self.net), leaf.losers(self.net)
            ranges = root.narrowed(leaf.box, leaf.cuts, tighten if tree["narrow"] else [], root.ranges, winners)
            own = [changed.index(p) for p in leaf.parts if p in changed]
            first = 0
            for k, each in enumerate(alternatives):
                bent, used = [], weight[first : first + len(each["rows"])]
                first += len(each["rows"])
                require(bool(used.any()), "weights of a leaf are all 0")
                if numbers["multipliers"]:
                    bent = [
                        (cut, Fraction(b, 2**20))
                        for cut, b in zip(leaf.cuts, numbers["multipliers"][at : at + len(leaf.cuts)], strict=True)
                    ]
                    at += len(leaf.cuts)
                pulled = zip(losers, pulls[past : past + len(losers)], strict=True)
                lose, past = [(k3, Fraction(b, 2**20)) for k3, b in pulled], past + len(losers)
                if ranges is not None:
                    mine = {i: s[own[-1], k] for i, s in slopes.items()} if own else None
                    margins[k].append(
                        root.margin(each["rows"], each["limits"], used.tolist(), ranges, bent, mine, lose)
                    )
        require(bool(margins[0]), "no leaf holds an execution")
        return [min(each) for each in margins]


def checked(net: Network, text: bytes, packed: bytes) -> list[list[Fraction]]:
    """Margins per case and alternative, or RefusedError."""
    try:
        return Certificate(net, text, packed).check()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, struct.error, OverflowError) as error:
        raise RefusedError(f"not a certificate: {type(error).__name__}: {error}") from error


def load(path: Path) -> tuple[bytes, bytes]:
    arrays = path.with_suffix(".safetensors")
    return path.read_bytes(), arrays.read_bytes() if arrays.exists() else b""


if __name__ == "__main__":
    try:
        found = checked(Network(*load(Path(sys.argv[1]))), *load(Path(sys.argv[2])))
        print("valid: margins", [[float(m) for m in case] for case in found])
    except RefusedError as why:
        sys.exit(f"refused: {why}")
