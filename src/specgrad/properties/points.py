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

SURE_SHARE = Fraction(63, 128)  # of the gap to the next float32 number: that far beside x, everything is rounded to x
DENOMINATOR = 2**160  # of a point, where a bound is no decimal number
MOVE_ROUNDS = 3

Cells = list[Fraction]


def counterexample_point(case: Case, x: Array, y: Array) -> tuple[Fraction, ...] | None:
    """Return a point of `case` that rounds to x and violates it with outputs y; None if none was found.

    >>> tenth = Fraction(1, 10)
    >>> case = Case((tenth,), (tenth,), (Alternative(np.ones((1, 1)), (Fraction(1),)),))
    >>> x = np.float32([0.1])
    >>> counterexample_point(case, x, x), counterexample_point(case, np.nextafter(x, np.float32(0)), x)
    ((Fraction(1, 10),), None)
    """
    values = np.ravel(x).tolist()
    if not all(map(math.isfinite, values)) or not (case.named_inputs or case.contains(y)):
        return None
    cells = list(map(Fraction, values))
    points = _nearest_point(case, cells, x)
    for alternative in case.alternatives if case.named_inputs else ():
        points = _move_onto_inequalities(case, alternative, y, points, x)
        if _is_valid_point(case, points, x) and alternative.contains(np.array(case.values(y, points), dtype=object)):
            return tuple(points)
    return tuple(points) if not case.named_inputs and _is_valid_point(case, points, x) else None


def _nearest_point(case: Case, cells: Cells, x: Array) -> Cells:
    """Return the box's point nearest to `cells`; if outside the ball, one near its centre that rounds to x."""
    points = [min(max(v, low), high) for v, low, high in zip(cells, case.low, case.high, strict=True)]
    if case.ball is not None and not case.ball.has(points):
        points = [
            min(max(c, *low), *high) for c, low, high in zip(case.ball.center, *_preimage_bounds(case, x), strict=True)
        ]
    return [
        p if is_decimal(p) else _decimal_beside(p, *ends) for p, *ends in zip(points, case.low, case.high, strict=True)
    ]


def _preimage_bounds(case: Case, x: Array) -> tuple[list[tuple[Fraction, Fraction]], list[tuple[Fraction, Fraction]]]:
    """Return, per cell, pairs (bound of what surely rounds to x, bound of the box): all lower, then all upper."""
    flat = np.ravel(x).astype(np.float32)
    below, above = (np.nextafter(flat, np.float32(way)).tolist() for way in (-np.inf, np.inf))
    lows, highs = [], []
    for v, b, a, low, high in zip(flat.tolist(), below, above, case.low, case.high, strict=True):
        at = Fraction(v)
        lows.append((at - (at - Fraction(b)) * SURE_SHARE if math.isfinite(b) else at, low))
        highs.append((at + (Fraction(a) - at) * SURE_SHARE if math.isfinite(a) else at, high))
    return lows, highs


def _move_onto_inequalities(case: Case, alternative: Alternative, y: Array, points: Cells, x: Array) -> Cells:
    """Return `points` moved, while they still round to x, until they satisfy the rows of the alternative that name
    inputs, as far as MOVE_ROUNDS rounds get; y are the outputs.
    """
    lows, highs = _preimage_bounds(case, x)
    low, high = [max(pair) for pair in lows], [min(pair) for pair in highs]
    points = list(points)
    limits = alternative.limits if alternative.exact is None else alternative.exact
    first = alternative.rows.shape[1] - len(case.named_inputs)
    for k in [*range(len(limits))] * MOVE_ROUNDS:
        row, strict = alternative.rows[k], k in alternative.strict
        named = [(i, Fraction(float(c))) for i, c in zip(case.named_inputs, row[first:], strict=True) if c]
        excess = alternative.total(row, case.values(y, points)) - limits[k] if named else Fraction(-1)
        for i, c in sorted(named, key=lambda pair: not is_decimal(1 / pair[1])):
            if excess < 0 or (excess == 0 and not strict):
                break
            end = low[i] if c > 0 else high[i]
            to = min(max(points[i] - excess / c, low[i]), high[i])
            to = (to + end) / 2 if strict else to
            if not is_decimal(to):  # a little beyond; what is too much, another cell gives back
                to = min(max(Fraction(math.floor(to * DENOMINATOR) + (c < 0), DENOMINATOR), low[i]), high[i])
            if (to - points[i]) * c < 0:
                points[i], excess = to, excess + (to - points[i]) * c
    return points


def _is_valid_point(case: Case, points: Cells, x: Array) -> bool:
    """Return whether the exact point lies in the case's set, rounds to x, and has finitely many decimals."""
    return all(map(is_decimal, points)) and case.has(points) and bool((nearest_float32(points) == np.ravel(x)).all())


def is_decimal(value: Fraction) -> bool:
    """Return whether the number `value` has finitely many decimal digits.

    >>> is_decimal(Fraction(3, 40)), is_decimal(Fraction(1, 3))
    (True, False)
    """
    rest = value.denominator >> _trailing_zero_bits(value.denominator)
    while rest % 5 == 0:
        rest //= 5
    return rest == 1


def _trailing_zero_bits(number: int) -> int:
    """Return the exponent of the largest power of two that divides a positive number."""
    return (number & -number).bit_length() - 1


def _decimal_beside(point: Fraction, low: Fraction, high: Fraction) -> Fraction:
    """Return a decimal number next to `point` within low..high, else `point`; it may lie outside the ball."""
    ends = Fraction(math.ceil(point * DENOMINATOR), DENOMINATOR), Fraction(math.floor(point * DENOMINATOR), DENOMINATOR)
    return next((v for v in ends if low <= v <= high), point)


def decimal_text(value: Fraction) -> str:
    """Return all decimal digits of `value`: they read back as exactly this number; ValueError if they have no end.

    >>> decimal_text(Fraction(1, 10)), decimal_text(Fraction(-3)), decimal_text(Fraction(float(np.float32(0.1))))
    ('0.1', '-3.0', '0.100000001490116119384765625')
    >>> Fraction(decimal_text(Fraction(1, 2**30))) * 2**30, decimal_text(Fraction(1, 2**30))
    (Fraction(1, 1), '9.31322574615478515625e-10')
    """
    if not is_decimal(value):
        raise ValueError(f"{value} has no end in decimals")
    twos = _trailing_zero_bits(value.denominator)
    fives = round(math.log(value.denominator >> twos, 5)) if value.denominator >> twos > 1 else 0
    places = max(twos, fives)
    digits = str(abs(value.numerator) * 10**places // value.denominator)
    sign = "-" if value < 0 else ""
    if places > len(digits) + 5:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}e-{places - len(digits) + 1:02d}"
    digits = digits.rjust(places + 1, "0")
    return f"{sign}{digits[: len(digits) - places]}.{digits[len(digits) - places :] or '0'}"


def count_rounded_cells(points: Sequence[Fraction], x: Array) -> int:
    """Return how many cells of the point are not exactly the float32 numbers x."""
    return sum(p != Fraction(v) for p, v in zip(points, np.ravel(x).tolist(), strict=True))
