"""Types of shapes and padding, and limits on how much is walked or listed."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError

Shape = tuple[int, ...]


Padding = int | str | tuple[int, ...] | tuple[tuple[int, int], ...]


PerAxis = int | tuple[int, ...]


MAX_TAPS = 10**7  # a kernel of 3162 x 3162; a walk over them takes a minute


MAX_PAIRS = 10**6  # of a tap and a cell, listed for one output: some hundred megabytes


MAX_OUTPUTS = 10**8  # whose taps are counted one by one, and at most MAX_TAPS of them along an axis


def budget(count: int, most: int, what: str, given: Any) -> None:
    """Raise ShapeError if `count` is above `most`: it would take minutes or gigabytes to visit one by one.

    `what` is counted, `given` what was asked for: both stand in the error.
    """
    if count > most:
        raise ShapeError("window", f"{count:,} {what}; at most {most:,} are walked; got {given}", rule="W1")
