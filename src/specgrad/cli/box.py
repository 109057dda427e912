"""A box of inputs on the command line: --box LO,HI."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated

import typer

from ..properties.property import as_float
from .certify import number_of

BoxText = Annotated[
    str | None, typer.Option("--box", help="Every cell of every input lies between these two numbers: 0,1.")
]


def box_of(text: str | None) -> tuple[float, float] | None:
    """Two numbers, read exactly; the nearest floats that enclose them.

    >>> box_of("-1,2/255")
    (-1.0, 0.00784313725490196...)
    """
    if text is None:
        return None
    ends = [number for part in text.split(",") if (number := number_of("--box", part)) is not None]
    if len(ends) != 2 or ends[0] > ends[1]:
        raise typer.BadParameter(f"--box must be two numbers, the smaller first, as in 0,1; got {text[:40]!r}")
    low, high = ends
    return 0.0 - _not_below(-low), _not_below(high)


def _not_below(exact: Fraction) -> float:
    near = as_float(exact)
    return near if not math.isfinite(near) or Fraction(near) >= exact else math.nextafter(near, math.inf)
