"""Points that float32 rounds: which input a network reads, and which point of a property it stands for."""

from __future__ import annotations

import itertools
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from specgrad.properties import points
from specgrad.properties.ball import NormBall
from specgrad.properties.points import counterexample_point, decimal_text
from specgrad.properties.property import Alternative, Case, nearest_float32
from specgrad.properties.vnnlib import read_text

ALWAYS = (Alternative(np.zeros((1, 1)), (Fraction(0),)),)
Y = np.zeros(1, np.float32)


def rounded(value: Fraction) -> Fraction:
    """By whole numbers: Python rounds a Fraction to the even one of two."""
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()  # of value, or one more
    exponent = max(-126, exponent - (abs(value) < Fraction(2) ** exponent))
    unit = Fraction(2) ** (exponent - 23)
    return round(value / unit) * unit


def numbers(rng: Random, count: int) -> list[Fraction]:
    """Decimals, float32 numbers, middles between two of them and what is barely beside these, large and tiny."""
    values = []
    for _ in range(count):
        size = Fraction(2) ** rng.choice([-149, -140, -126, -20, -3, 0, 5, 60, 127])
        near = Fraction(float(np.float32(float(size * Fraction(rng.randint(-(10**7), 10**7), 10**7)))))
        beside = Fraction(float(np.nextafter(np.float32(float(near)), np.float32(rng.choice([-np.inf, np.inf])))))
        middle = (near + beside) / 2
        tiny = Fraction(rng.choice([-1, 1]), 10 ** rng.randint(30, 200))
        values.append(rng.choice([near, middle, near + tiny, middle + tiny, Fraction(rng.randint(-999, 999), 1000)]))
    return [v for v in values if abs(v) < Fraction(2) ** 127]


def test_the_nearest_float32_number() -> None:
    values = numbers(Random(1), 2000)
    assert [Fraction(v) for v in nearest_float32(values).tolist()] == list(map(rounded, values))


def test_rounding_twice_is_seen() -> None:
    values = numbers(Random(1), 2000)
    assert [Fraction(float(np.float32(float(v)))) for v in values] != list(map(rounded, values))


def test_decimals_are_the_number_itself() -> None:
    for value in numbers(Random(2), 500):
        assert Fraction(decimal_text(value)) == value
    with pytest.raises(ValueError, match="1/3 has no end in decimals"):
        decimal_text(Fraction(1, 3))


def test_every_input_that_a_box_is_rounded_to_has_a_point_and_no_other() -> None:
    """Boxes of a few units around a float32 number: which inputs are points of it rounded to?"""
    rng = Random(3)
    for _ in range(200):
        at = np.float32(rng.choice([0.1, 1.0, -3.3, 1e-42, 0.0]))
        around = [at]
        for way in (-np.inf, np.inf):
            for _ in range(4):
                around.append(np.nextafter(around[-1] if len(around) % 5 else at, np.float32(way)))
        unit = abs(Fraction(float(np.nextafter(at, np.float32(np.inf)))) - Fraction(float(at)))
        ends = sorted(Fraction(float(at)) + unit * Fraction(rng.randint(-12, 12), 8) for _ in range(2))
        case = Case((ends[0],), (ends[1],), ALWAYS)
        reached = {rounded(ends[0] + (ends[1] - ends[0]) * Fraction(k, 96)) for k in range(97)}
        for x in around:
            point = counterexample_point(case, np.array([x]), Y)
            assert (point is not None) == (Fraction(float(x)) in reached)
            if point is not None:
                assert ends[0] <= point[0] <= ends[1]
                assert rounded(point[0]) == Fraction(float(x))


def test_a_point_that_is_float32_stays_itself() -> None:
    case = Case((Fraction(0),) * 2, (Fraction(1),) * 2, ALWAYS)
    assert counterexample_point(case, np.float32([0.1, 1]), Y) == (Fraction(float(np.float32(0.1))), Fraction(1))
    assert counterexample_point(case, np.float32([0.1, np.nan]), Y) is None


@pytest.mark.parametrize("norm", ["1", "2"])
def test_balls_without_float32_numbers(norm: str) -> None:
    """Around (0.1, 0.3, 0.7), 1e-9 wide: no float32 number is inside, and one point is rounded to each corner near."""
    center = (Fraction("0.1"), Fraction("0.3"), Fraction("0.7"))
    radius = Fraction(1, 10**9)
    box = tuple(c - radius for c in center), tuple(c + radius for c in center)
    case = Case(*box, ALWAYS, NormBall(norm, center, radius))
    near = [np.float32(float(c)) for c in center]
    for x in itertools.product(*((v, np.nextafter(v, np.float32(0)), np.nextafter(v, np.float32(1))) for v in near)):
        point = counterexample_point(case, np.array(x), Y)
        assert (point is not None) == (list(x) == near)
        if point is not None:
            assert case.ball.has(point)
            assert [rounded(p) for p in point] == [Fraction(float(v)) for v in x]


SUM = "(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real)" + "".join(
    f"(assert (>= X_{i} 0.0)) (assert (<= X_{i} 1.0))" for i in range(2)
)


@pytest.mark.parametrize(
    ("asked", "x", "is_one"),
    [
        ("(assert (<= (+ X_0 X_1) 0.3)) (assert (>= (+ X_0 X_1) 0.3))", [0.1, 0.2], True),
        ("(assert (<= (+ X_0 X_1) 0.3)) (assert (>= (+ X_0 X_1) 0.3))", [0.1, 0.2001], False),
        ("(assert (< (+ X_0 X_1) 0.3))", [0.1, 0.2], True),  # float32's 0.1 + 0.2 is more than 0.3
        ("(assert (<= (+ X_0 (* 3.0 X_1)) 0.7)) (assert (>= (+ X_0 (* 3.0 X_1)) 0.7))", [0.1, 0.2], True),
        ("(assert (<= Y_0 (- X_0 0.1)))", [0.1, 0.2], True),
        ("(assert (< Y_0 (- X_0 0.100000005)))", [0.1, 0.2], True),  # moved up by less than half a unit
        ("(assert (<= Y_0 (- X_0 0.100000006)))", [0.1, 0.2], False),
    ],
)
def test_points_on_inequalities(asked: str, x: list[float], is_one: bool) -> None:
    stated = read_text(SUM + asked + ("" if "Y_0" in asked else "(assert (<= Y_0 1.0))"))
    (case,) = stated.cases
    at = np.float32(x)
    values = np.array([0, *at[list(case.named_inputs)]], np.float32)
    point = counterexample_point(case, at, values)
    assert (point is not None) == is_one
    if point is not None:
        assert [rounded(p) for p in point] == [Fraction(float(v)) for v in at]
        known = [Fraction(0), *(point[i] for i in case.named_inputs)]
        (alternative,) = case.alternatives
        for k, (row, limit) in enumerate(zip(alternative.rows.tolist(), alternative.exact, strict=True)):
            total = sum(int(c) * v for c, v in zip(row, known, strict=True))
            assert total < limit or (total == limit and k not in alternative.strict)


def test_a_bound_that_no_decimal_has(monkeypatch: pytest.MonkeyPatch) -> None:
    third = Fraction(1, 3)
    x = np.float32([float(third)])
    assert Fraction(float(x[0])) > third
    (point,) = counterexample_point(Case((Fraction(0),), (third,), ALWAYS), x, Y)
    assert 0 < third - point < Fraction(1, 2**150)
    assert counterexample_point(Case((third,), (third,), ALWAYS), x, Y) is None  # nobody could write it
    monkeypatch.setattr(points, "is_decimal", lambda value: True)
    assert counterexample_point(Case((third,), (third,), ALWAYS), x, Y) == (third,)
