"""Unknown cells: after a possible overflow nothing is known, since inf - inf and 0*inf are NaN, which passes every
bound.

A cell whose radius is infinite may be anything, NaN included. So may every cell computed from it, tanh and clamp not
excepted: the ranges of functions hold for numbers. Only what is no number stays known: a comparison gives 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..scalar import Array
from .ball import Ball


def unknown(ball: Ball) -> Array:
    """Return a mask of cells about which nothing is proven; undecided positions are not among them."""
    return np.isinf(ball.radius) if ball.value.dtype.kind == "f" else np.zeros(ball.shape, dtype=bool)


def propagate_unknown(ball: Ball, args: Sequence[Ball]) -> Ball:
    """Return the ball of a function of cells, unknown and without ends where an argument is unknown."""
    lost = unknown(ball)
    for a in args:
        if a.shape in ((), ball.shape):
            lost = lost | unknown(a)
    return mark_unknown_cells(ball, lost)


def mark_unknown_cells(ball: Ball, lost: Array) -> Ball:
    """Return the ball with radius inf and no ends in the cells `lost`."""
    if not lost.any():
        return ball
    ends = ball.ends and (np.where(lost, -np.inf, ball.ends[0]), np.where(lost, np.inf, ball.ends[1]))
    return replace(ball, radius=np.where(lost, np.inf, ball.radius), ends=ends)


def open_ends(ball: Ball) -> tuple[Array, Array]:
    """Return (low, high), infinite in unknown cells."""
    lost = unknown(ball)
    return np.where(lost, -np.inf, ball.low), np.where(lost, np.inf, ball.high)
