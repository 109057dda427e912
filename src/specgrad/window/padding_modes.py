"""Padding made of the cells themselves: which cell a padded axis reads beyond its ends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import ParameterError, ShapeError

MODES = ("reflect", "edge", "wrap")


def border(mode: str, n: int, lo: int, hi: int) -> NDArray[np.int64]:
    """Return the cell that each of lo + n + hi positions reads, along an axis of n cells.

    ParameterError for another mode, ShapeError for negative widths or no cell.

    reflect   mirrored at the first and the last cell, which are not repeated; as often as the padding is wide
    edge      the first, and the last
    wrap      periodic

    >>> [border(mode, 3, 2, 4).tolist() for mode in MODES]
    [[2, 1, 0, 1, 2, 1, 0, 1, 2], [0, 0, 0, 1, 2, 2, 2, 2, 2], [1, 2, 0, 1, 2, 0, 1, 2, 0]]
    """
    if mode not in MODES:
        raise ParameterError("pad", f"mode must be constant, {', '.join(MODES)}; got {mode!r}", rule="P5")
    if min(lo, hi) < 0 or n < 1:
        raise ShapeError("pad", f"mode {mode} needs widths >= 0 and a cell; got ({lo}, {hi}) and {n} cells", rule="W1")
    position = np.arange(-lo, n + hi)
    if mode == "edge":
        return np.clip(position, 0, n - 1)
    if mode == "wrap":
        return position % n
    period = max(2 * (n - 1), 1)
    folded = position % period
    return np.minimum(folded, period - folded)
