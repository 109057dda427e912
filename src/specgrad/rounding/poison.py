"""After a possible overflow nothing is known: inf - inf and 0*inf are NaN, and a NaN passes every bound.

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
    """The cells about which nothing is proven; positions that are open are not among them."""
    return np.isinf(ball.radius) if ball.value.dtype.kind == "f" else np.zeros(ball.shape, dtype=bool)


def poisoned(ball: Ball, args: Sequence[Ball]) -> Ball:
    """The result of a function of cells where an argument is unknown: unknown, with no ends."""
    lost = unknown(ball)
    for a in args:
        if a.shape in ((), ball.shape):
            lost = lost | unknown(a)
    return lose(ball, lost)


def lose(ball: Ball, lost: Array) -> Ball:
    """The same ball with nothing known of the cells `lost`."""
    if not lost.any():
        return ball
    ends = ball.ends and (np.where(lost, -np.inf, ball.ends[0]), np.where(lost, np.inf, ball.ends[1]))
    return replace(ball, radius=np.where(lost, np.inf, ball.radius), ends=ends)


def open_ends(ball: Ball) -> tuple[Array, Array]:
    """Low and high, infinite where nothing is known."""
    lost = unknown(ball)
    return np.where(lost, -np.inf, ball.low), np.where(lost, np.inf, ball.high)
