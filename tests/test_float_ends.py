"""Floats beside an exact number: the next ones on either side, whatever its size."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from specgrad.bounds.search.certify import target
from specgrad.scalar import Number, float_above, float_below, nearest_float

LARGEST, LEAST = Fraction(sys.float_info.max), Fraction(5e-324)
TINY, HUGE = Fraction(1, 10**400), Fraction(10) ** 400
EDGES = [
    Fraction(0),
    TINY,
    LEAST,
    LEAST / 2,
    LEAST * 3 / 2,
    1 + TINY,
    1 - TINY,
    Fraction(1, 3),
    LARGEST,
    LARGEST + TINY,
]
EDGES += [LARGEST * 2, HUGE, Fraction(sys.float_info.min) - TINY]


def numbers() -> Iterator[Fraction]:
    rng = random.Random(0)
    for _ in range(2000):
        near = Fraction(rng.uniform(-1, 1)) * Fraction(10) ** rng.randint(-330, 300)
        yield near + Fraction(rng.choice((-1, 0, 1)), 10 ** rng.randint(1, 400))
    for edge in EDGES:
        yield from (edge, -edge)


def test_no_float_lies_between_a_number_and_its_ends() -> None:
    for value in numbers():
        below, above = float_below(value), float_above(value)
        assert below <= value <= above
        assert math.nextafter(below, math.inf) > value > math.nextafter(above, -math.inf)
        assert nearest_float(value) in (below, above) or abs(value) > LARGEST
        assert target(value) == math.nextafter(below, math.inf)  # a bound that reaches it excludes the limit


@pytest.mark.parametrize("value", [0.1, -0.0, math.inf, -math.inf, np.float32(0.1), 3, True])
def test_what_is_a_float_is_both_ends(value: Number) -> None:
    assert math.copysign(1, float_below(value)) == math.copysign(1, value)
    assert float_below(value) == float_above(value) == nearest_float(value) == value


def test_a_large_integer_is_between_two_floats() -> None:
    assert (float_below(2**53 + 1), float_above(2**53 + 1)) == (2.0**53, 2.0**53 + 2)
    assert (float_below(10**400), float_above(-(10**400))) == (sys.float_info.max, -sys.float_info.max)
