"""A box of inputs on the command line: --box LO,HI."""

from __future__ import annotations

import math

import typer

from specgrad.properties.property import float_above

from .number_option import number_of


def ends_of(text: str) -> tuple[float, float]:
    """Two numbers, read exactly; the nearest floats that enclose them.

    >>> from fractions import Fraction
    >>> ends_of("-1,1/4"), ends_of("0,0.1")[1] >= Fraction(1, 10)
    ((-1.0, 0.25), True)
    """
    low, comma, high = text.rpartition("=")[2].partition(",")
    ends = [number_of("--box", part) for part in (low, high)] if comma else []
    if len(ends) != 2 or ends[0] is None or ends[1] is None or not ends[0] <= ends[1]:
        raise typer.BadParameter(f"--box must be LO,HI with LO <= HI, as 0,1 or -1/2,1/2; got {text[:40]!r}")
    low_end, high_end = 0.0 - float_above(-ends[0]), float_above(ends[1])
    if math.isinf(low_end) or math.isinf(high_end):
        raise typer.BadParameter(f"--box must be two numbers that floats can hold; got {text[:40]!r}")
    return low_end, high_end
