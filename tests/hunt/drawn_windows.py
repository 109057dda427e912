"""Windows of every kind, for all hunters: drawn in one place, which also says of which kinds they are.

Each axis is drawn for itself: uneven adaptive cells (to fewer cells and to more than there are), taps apart, a last
window under `ceil`, windows that overlap, that leave gaps, that read padding, and, where asked for, padding alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from random import Random
from typing import Any

import specgrad as sg
from specgrad.ops.avg_pool import AVG_POOL
from specgrad.ops.max_pool import MAX_POOL
from specgrad.window import Adaptive, Strided, Window
from specgrad.window.axis import strided_axis

KINDS = frozenset({"adaptive", "ceil", "dilated", "gaps", "overlapping", "padded"})
"""What every hunter of windows must have drawn; `empty` where windows may read nothing, and every rank up to 3."""


def axis(rng: Random, n: int, *, empty: bool = False, adaptive: bool = True) -> Strided | Adaptive:
    """One axis of n cells."""
    kind = rng.choice(("adaptive",) * 2 * adaptive + ("ceil", "dilated", "gaps", "overlapping", "padded"))
    if kind == "adaptive":
        uneven = [out for out in range(2, n + 3) if n % out]
        return Adaptive(n, n - 1 if n - 1 in uneven and rng.random() < 0.5 else rng.choice(uneven))  # all as long
    for _ in range(50):
        k, e = (rng.randint(2, 3), 2) if kind == "dilated" else (rng.randint(1, 3), 1)
        s = rng.randint(k + 1, k + 2) if kind == "gaps" else rng.randint(1, 3) if kind == "ceil" else 1
        lo, hi = (rng.choice((0, 1, k)) if kind in ("padded", "dilated") else 0 for _ in range(2))
        if e * (k - 1) + 1 > n + lo + hi:
            continue
        one = strided_axis(n, k, s, e, lo, hi, kind == "ceil")
        if (empty or not one.has_empty) and (kind == "padded" or kind in _words(one)):
            return one
    return strided_axis(n, 1, 1, 1, 0, 0, False)


def window(rng: Random, size: tuple[int, ...], *, empty: bool = False, adaptive: bool = True) -> Window:
    return Window(tuple(axis(rng, n, empty=empty, adaptive=adaptive) for n in size))


def sizes(rng: Random, rank: int | None = None) -> tuple[int, ...]:
    """Of 1 to 3 axes, few cells in all; odd ones and equal ones among them."""
    rank = rank or rng.choice((1, 1, 2, 2, 3))
    return tuple(rng.randint(*{1: (3, 6), 2: (2, 4), 3: (2, 3)}[rank]) for _ in range(rank))


def under_axes(rng: Random, *, empty: bool = False, alike: bool = False) -> tuple[tuple[int, ...], Window]:
    """A window, and axes before it: one sample of some channels, or as many cells as there are outputs.

    Every fourth (alike: each) is uneven and has as many taps in all its windows, under axes that are its outputs:
    there, axes that were exchanged have the shapes that they should have.
    """
    if alike or rng.random() < 0.25:
        drawn = Window(tuple(Adaptive(n, n - 1) for n in rng.choice(((3,), (4,), (5,), (3, 3), (3, 4)))))
        return drawn.out, drawn
    drawn = window(rng, sizes(rng), empty=empty)
    few = math.prod((*drawn.out, *drawn.size)) <= 60
    return drawn.out if few and rng.random() < 0.5 else (1, rng.choice((1, 2, *drawn.out[:1]))), drawn


def pooled(rng: Random, x: Any, rank: int, *, largest: bool | None = None, empty: bool = False) -> Any:
    """A maximum or an average over the last axes."""
    return over(rng, x, window(rng, x.shape[len(x.shape) - rank :], empty=empty), largest)


def over(rng: Random, x: Any, drawn: Window, largest: bool | None = None) -> Any:
    """A maximum or an average over a window."""
    if largest or (largest is None and rng.random() < 0.5):
        return sg.apply(MAX_POOL, x, window=drawn)
    divisor = rng.choice((3, -2) if drawn.has_empty else ("padded", "inside", "inside", 3))
    return sg.apply(AVG_POOL, x, window=drawn, divisor=divisor)


def _words(one: Strided | Adaptive) -> set[str]:
    if isinstance(one, Adaptive):
        return {"adaptive"}
    words = {"dilated"} if one.dilation > 1 and one.kernel > 1 else set()
    words |= {"ceil"} if one.out > one.floor_out else set()
    words |= {"overlapping"} if one.overlap > 1 else set()
    words |= {"gaps"} if one.stride > one.span else set()
    words |= {"padded"} if max(one.pads) > 0 else set()
    return words | ({"empty"} if one.has_empty else set())


def kinds(graphs: Iterable[sg.Graph], operators: tuple[str, ...] = ("max_pool", "avg_pool")) -> set[str]:
    """The kinds of the windows of some networks, and their ranks."""
    nodes = itertools.chain.from_iterable(graph.nodes for graph in graphs)
    drawn = [n.params["window"] for n in nodes if n.op.name in operators]
    return {f"rank {w.rank}" for w in drawn} | {word for w in drawn for one in w.axes for word in _words(one)}


RANKS = frozenset({"rank 1", "rank 2", "rank 3"})
