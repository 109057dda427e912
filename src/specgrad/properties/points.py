"""Points of a property, and the float32 numbers that a network reads in their place.

A network that is given a real input reads the nearest float32 number, of two the even one. So an input x of float32
numbers belongs to a counterexample if some point of the property's set, compared exactly, is rounded to x, and if the
outputs at x, with the point in place of inputs that inequalities name, lie in one of the alternatives:

    x itself, where it lies in the set; else its nearest point of the box, for example 0.1 for 0.100000001490...;
    of a ball, the nearest to its centre that is still rounded to x; of inequalities, one that is moved onto them

A proof is about every float32 number of `Case.outer`, which holds all of these x: what holds has no such point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ..scalar import Array
from .property import Alternative, Case, nearest_float32

OWN = Fraction(63, 128)  # of the gap to the next float32 number: that far beside x, everything is rounded to x
PLACES = 2**160  # of a point, where a bound is no decimal number
ROUNDS = 3

Cells = list[Fraction]


def point_of(case: Case, x: Array, y: Array) -> tuple[Fraction, ...] | None:
    """A point of the set that is rounded to x and that outputs y make a counterexample; None: none was seen.

    >>> tenth = Fraction(1, 10)
    >>> case = Case((tenth,), (tenth,), (Alternative(np.ones((1, 1)), (Fraction(1),)),))
    >>> x = np.float32([0.1])
    >>> point_of(case, x, x), point_of(case, np.nextafter(x, np.float32(0)), x)
    ((Fraction(1, 10),), None)
    """
    values = np.ravel(x).tolist()
    if not all(map(math.isfinite, values)) or not (case.seen or case.contains(y)):
        return None
    cells = list(map(Fraction, values))
    points = _near(case, cells, x)
    for alternative in case.alternatives if case.seen else ():
        points = _moved(case, alternative, y, points, x)
        if _is_there(case, points, x) and alternative.contains(np.array(case.values(y, points), dtype=object)):
            return tuple(points)
    return tuple(points) if not case.seen and _is_there(case, points, x) else None


def _near(case: Case, cells: Cells, x: Array) -> Cells:
    """The nearest point of the box, and where that is not in the ball, the point of `_own` nearest to its centre."""
    points = [min(max(v, low), high) for v, low, high in zip(cells, case.low, case.high, strict=True)]
    if case.ball is not None and not case.ball.has(points):
        points = [min(max(c, *low), *high) for c, low, high in zip(case.ball.center, *_own(case, x), strict=True)]
    return [p if is_decimal(p) else _inward(p, *ends) for p, *ends in zip(points, case.low, case.high, strict=True)]


def _own(case: Case, x: Array) -> tuple[list[tuple[Fraction, Fraction]], list[tuple[Fraction, Fraction]]]:
    """Per cell: ends of the box, and ends of what is rounded to x for sure."""
    flat = np.ravel(x).astype(np.float32)
    below, above = (np.nextafter(flat, np.float32(way)).tolist() for way in (-np.inf, np.inf))
    lows, highs = [], []
    for v, b, a, low, high in zip(flat.tolist(), below, above, case.low, case.high, strict=True):
        at = Fraction(v)
        lows.append((at - (at - Fraction(b)) * OWN if math.isfinite(b) else at, low))
        highs.append((at + (Fraction(a) - at) * OWN if math.isfinite(a) else at, high))
    return lows, highs


def _moved(case: Case, alternative: Alternative, y: Array, points: Cells, x: Array) -> Cells:
    """Points moved, as far as they are still rounded to x, onto inequalities that name inputs and are not satisfied."""
    lows, highs = _own(case, x)
    low, high = [max(pair) for pair in lows], [min(pair) for pair in highs]
    points = list(points)
    limits = alternative.limits if alternative.exact is None else alternative.exact
    first = alternative.rows.shape[1] - len(case.seen)
    for k in [*range(len(limits))] * ROUNDS:
        row, strict = alternative.rows[k], k in alternative.strict
        named = [(i, Fraction(float(c))) for i, c in zip(case.seen, row[first:], strict=True) if c]
        excess = alternative.total(row, case.values(y, points)) - limits[k] if named else Fraction(-1)
        for i, c in sorted(named, key=lambda pair: not is_decimal(1 / pair[1])):
            if excess < 0 or (excess == 0 and not strict):
                break
            end = low[i] if c > 0 else high[i]
            to = min(max(points[i] - excess / c, low[i]), high[i])
            to = (to + end) / 2 if strict else to
            if not is_decimal(to):  # a little beyond; what is too much, another cell gives back
                to = min(max(Fraction(math.floor(to * PLACES) + (c < 0), PLACES), low[i]), high[i])
            if (to - points[i]) * c < 0:
                points[i], excess = to, excess + (to - points[i]) * c
    return points


def _is_there(case: Case, points: Cells, x: Array) -> bool:
    """Whether they lie in the set, are rounded to x, and can be written."""
    return all(map(is_decimal, points)) and case.has(points) and bool((nearest_float32(points) == np.ravel(x)).all())


def is_decimal(value: Fraction) -> bool:
    """Whether it has an end when it is written in decimals.

    >>> is_decimal(Fraction(3, 40)), is_decimal(Fraction(1, 3))
    (True, False)
    """
    rest = value.denominator >> _twos(value.denominator)
    while rest % 5 == 0:
        rest //= 5
    return rest == 1


def _twos(number: int) -> int:
    return (number & -number).bit_length() - 1


def _inward(point: Fraction, low: Fraction, high: Fraction) -> Fraction:
    """A decimal number beside it; whether that still lies in the set is asked later."""
    ends = Fraction(math.ceil(point * PLACES), PLACES), Fraction(math.floor(point * PLACES), PLACES)
    return next((v for v in ends if low <= v <= high), point)


def decimal_text(value: Fraction) -> str:
    """All its digits: who reads them has the number itself.

    >>> decimal_text(Fraction(1, 10)), decimal_text(Fraction(-3)), decimal_text(Fraction(float(np.float32(0.1))))
    ('0.1', '-3.0', '0.100000001490116119384765625')
    >>> Fraction(decimal_text(Fraction(1, 2**30))) * 2**30, decimal_text(Fraction(1, 2**30))
    (Fraction(1, 1), '9.31322574615478515625e-10')
    """
    if not is_decimal(value):
        raise ValueError(f"{value} has no end in decimals")
    twos = _twos(value.denominator)
    fives = round(math.log(value.denominator >> twos, 5)) if value.denominator >> twos > 1 else 0
    places = max(twos, fives)
    digits = str(abs(value.numerator) * 10**places // value.denominator)
    sign = "-" if value < 0 else ""
    if places > len(digits) + 5:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}e-{places - len(digits) + 1:02d}"
    digits = digits.rjust(places + 1, "0")
    return f"{sign}{digits[: len(digits) - places]}.{digits[len(digits) - places :] or '0'}"


def rounded_cells(points: Sequence[Fraction], x: Array) -> int:
    """How many cells of a point are no float32 numbers."""
    return sum(p != Fraction(v) for p, v in zip(points, np.ravel(x).tolist(), strict=True))
