"""A decision as comparisons: they all hold exactly where the decision is the same, ties by index, thresholds twice."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from specgrad import ParameterError
from specgrad.check.decisions.decision import Comparisons, Decision, parse
from specgrad.check.decisions.margins import row_bounds

NAMES = ("argmax", "top-1", "top-2", "threshold:1", "mask", "mask:1/2")


def by_hand(name: str, y: np.ndarray) -> list:
    """What is decided, by loops over Python numbers."""
    kind, _, number = name.partition(":")
    level = Fraction(number or 0)
    if kind == "threshold" or (kind == "mask" and y.shape[1] == 1):
        return [int(Fraction(float(v)) > level) for v in y.ravel()]
    decided = []
    for place in itertools.product(*(range(n) for n in (y.shape[0], *y.shape[2:]))):
        scores = [float(y[(place[0], c, *place[1:])]) for c in range(y.shape[1])]
        ranked = sorted(range(len(scores)), key=lambda c: (-scores[c], c))
        decided.append(sorted(ranked[: int(kind[4:])]) if kind.startswith("top") else ranked[0])
    return decided


@pytest.mark.parametrize("shape", [(1, 4), (1, 3, 2), (1, 1, 2, 2)])
@pytest.mark.parametrize("name", NAMES)
def test_comparisons_say_the_same_as_the_decision(name: str, shape: tuple[int, ...]) -> None:
    """600 pairs of outputs full of ties: every comparison holds if and only if both decide the same."""
    rng, decision = np.random.default_rng(0), parse(name)
    if name.startswith(("top", "argmax")) and shape[1] <= decision.count:
        return
    same = 0
    for _ in range(600):
        first, second = (rng.integers(0, 3, shape).astype(float) for _ in range(2))
        equal = by_hand(name, first) == by_hand(name, second)
        asked = decision.comparisons(first)
        rows = asked.rows(first.size) @ second.ravel()
        assert bool(asked.hold(rows).all()) == equal, (first, second)
        assert decision.of(first).tolist() == by_hand(name, first)
        same += equal
    assert 0 < same < 600


def test_places_name_the_decisions_that_turn() -> None:
    y = np.array([[[3.0, 0.0], [0.0, 3.0]]])
    asked = Decision("argmax").comparisons(y)
    other = np.array([[[3.0, 4.0], [0.0, 3.0]]])
    kept = asked.hold(asked.rows(4) @ other.ravel())
    assert set(asked.place[~kept].tolist()) == {1}


@pytest.mark.parametrize("level", ["0.1", "1/3", "1e-40", "16777217"])
def test_a_threshold_is_held_as_it_is_and_as_the_format_has_it(level: str) -> None:
    """A program may compare with the number or with its float32: nothing between both is proven."""
    exact, stored = Fraction(level), Fraction(float(np.float32(float(Fraction(level)))))
    decision = parse(f"threshold:{level}")
    low, high = sorted((exact, stored))
    for y in (np.float64(stored), float(low), float(high), float(low) * (1 - 1e-12), float(high) * (1 + 1e-12)):
        asked = decision.comparisons(np.array([y]))
        kept = bool(asked.hold(asked.rows(1) @ np.array([y]))[0])
        value = Fraction(float(y))
        assert kept == ((value > exact) == (value > stored)), (value, exact, stored)


@pytest.mark.parametrize(
    "name", ["top-0", "top-x", "threshold", "threshold:", "threshold:nan", "mask:1e999", "argmax:1"]
)
def test_unknown_decisions_are_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="unknown decision"):
        parse(name)


def test_all_of_them_is_no_decision() -> None:
    with pytest.raises(ParameterError, match="nothing is decided"):
        parse("top-3").comparisons(np.zeros((1, 3)))
    for name, shape in (("argmax", (1, 1)), ("threshold:0", (1, 0)), ("mask", (0, 3, 2)), ("argmax", (0, 4))):
        with pytest.raises(ParameterError, match="nothing is decided"):
            parse(name).comparisons(np.zeros(shape))


def test_the_axis_of_classes_may_be_another() -> None:
    """Channels last, and an axis that is not there."""
    y = np.random.default_rng(0).integers(0, 3, (1, 2, 2, 4)).astype(float)
    for name in ("argmax", "top-2", "mask"):
        last = replace(parse(name), axis=-1)
        assert last.of(y).tolist() == by_hand(name, np.moveaxis(y, -1, 1))
        cells = last.comparisons(y)
        assert cells.hold(cells.rows(y.size) @ y.ravel()).all()
    with pytest.raises(ParameterError, match="no axis 7"):
        replace(parse("argmax"), axis=7).of(y)


def test_bounds_of_a_difference_are_rounded_outward() -> None:
    one = Comparisons(np.array([0]), np.array([1]), np.ones(1), np.array([True]), np.array([0]))
    tiny = 2.0**-60
    low, high = row_bounds(one, np.array([1.0, -tiny]), np.array([1.0, tiny]))
    assert Fraction(low[0]) <= 1 - Fraction(tiny)
    assert Fraction(high[0]) >= 1 + Fraction(tiny)
