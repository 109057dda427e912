"""Receptive fields and halos: composition of `Reach`, the image of the window relation.

A `Reach(step, first, last)` says that output o depends on inputs step*o + first .. step*o + last.
"""

from __future__ import annotations

import math
from fractions import Fraction

from .window import Reach

CELL = Reach(1, 0, 0)


def backwards(r: Reach) -> Reach:
    """The relation read backwards: input i is read by the outputs o with step*o+first <= i <= step*o+last.

    >>> backwards(Reach(2, -1, 1))
    Reach(step=Fraction(1, 2), first=Fraction(-1, 2), last=Fraction(1, 2))
    """
    step = Fraction(r.step)
    return Reach(1 / step, -r.last / step, -r.first / step)


def through(outer: Reach, inner: Reach) -> Reach:
    """What the output depends on, when it reads `outer` of something that itself depends on `inner`.

    >>> through(Reach(2, 0, 2), Reach(1, -1, 1))  # a strided window of 3 over a window of 3
    Reach(step=2, first=-1, last=3)
    """
    return Reach(outer.step * inner.step, inner.step * outer.first + inner.first, inner.step * outer.last + inner.last)


def union(a: Reach | None, b: Reach | None) -> Reach | None:
    """Both; None (everything) where they move at different steps."""
    if a is None or b is None or a.step != b.step:
        return None
    return Reach(a.step, min(a.first, b.first), max(a.last, b.last))


def width(r: Reach) -> int:
    """How many cells an output can depend on along the axis.

    >>> width(Reach(2, -1, 3))
    5
    """
    cells: int = math.floor(r.last - r.first) + 1
    return cells
