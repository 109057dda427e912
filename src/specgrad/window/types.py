"""Names of types, and how much may be walked or listed."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError

Shape = tuple[int, ...]


Padding = int | str | tuple[int, ...] | tuple[tuple[int, int], ...]


PerAxis = int | tuple[int, ...]


MOST_TAPS = 10**7  # a kernel of 3162 x 3162; a walk over them takes a minute


MOST_PAIRS = 10**6  # of a tap and a cell, listed for one output: some hundred megabytes


MOST_OUTPUTS = 10**8  # whose taps are counted one by one, and at most MOST_TAPS of them along an axis


def budget(count: int, most: int, what: str, given: Any) -> None:
    """Refuse what would take minutes or gigabytes to visit one by one, before it is visited."""
    if count > most:
        raise ShapeError("window", f"{count:,} {what}; at most {most:,} are walked; got {given}", rule="W1")
