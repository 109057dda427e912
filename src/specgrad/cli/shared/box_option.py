"""A box of inputs on the command line: --box LO,HI, or --low LO --high HI."""

from __future__ import annotations

import math
from fractions import Fraction

import typer

from specgrad.scalar import float_above, float_below

from .number_option import number_of


def box_limits(text: str) -> tuple[float, float]:
    """Return (low, high) of --box LO,HI as floats that enclose the exact numbers.

    >>> from fractions import Fraction
    >>> box_limits("-1,1/4"), box_limits("0,0.1")[1] >= Fraction(1, 10)
    ((-1.0, 0.25), True)
    """
    low, comma, high = text.rpartition("=")[2].partition(",")
    ends = [number_of("--box", part) for part in (low, high)] if comma else []
    if len(ends) != 2 or ends[0] is None or ends[1] is None or not ends[0] <= ends[1]:
        raise typer.BadParameter(f"--box must be LO,HI with LO <= HI, as 0,1 or -1/2,1/2; got {text[:40]!r}")
    return _enclosing("--box must be two numbers", text, ends[0], ends[1])


def limits_of(box: str | None, low: str | None, high: str | None) -> tuple[float, float] | None:
    """Return (low, high) of --box, or of --low and --high, as floats that enclose them; None without these options.

    >>> limits_of(None, "0", "1/4"), limits_of("0,1", None, None), limits_of(None, None, None)
    ((0.0, 0.25), (0.0, 1.0), None)
    """
    if low is None and high is None:
        return None if box is None else box_limits(box)
    if box is not None:
        raise typer.BadParameter("give --box LO,HI, or --low LO and --high HI")
    ends = number_of("--low", low), number_of("--high", high)
    if ends[0] is None or ends[1] is None:
        raise typer.BadParameter("--low and --high go together: every cell lies between them")
    if ends[0] > ends[1]:
        raise typer.BadParameter(f"--low must not be above --high; got {str(low)[:40]!r} and {str(high)[:40]!r}")
    return _enclosing("--low and --high must be numbers", f"{low},{high}", ends[0], ends[1])


def _enclosing(words: str, text: str, low: Fraction, high: Fraction) -> tuple[float, float]:
    """Return the floats that enclose [low, high]; BadParameter if one is infinite."""
    ends = float_below(low), float_above(high)
    if any(map(math.isinf, ends)):
        raise typer.BadParameter(f"{words} that floats can hold; got {text[:40]!r}")
    return ends
