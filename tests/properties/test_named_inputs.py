"""Inequalities that name inputs, beside one another and beside outputs: boxes, rows and who is a counterexample."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from formulas import Tree, value, written
from specgrad.properties import boxes
from specgrad.properties.interface import PropertyInterface, PropertyTensor
from specgrad.properties.property import Property, PropertyError, spacing
from specgrad.properties.vnnlib import read_text

NAMES = ("X_0", "X_1", "Y_0", "Y_1")
HEAD = "".join(f"(declare-const {n} Real)" for n in NAMES)
BOX = "(assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= X_1 0)) (assert (<= X_1 0.7))\n"
NUMBERS = ["2", "-0.5", "0.1", "1"]


def random_formula(rng: Random, depth: int) -> Tree:
    if depth and rng.random() < 0.6:
        return (rng.choice(["and", "or"]), *(random_formula(rng, depth - 1) for _ in range(2)))
    sides = [rng.choice([*NAMES, rng.choice(NUMBERS), ("+", *rng.choices(NAMES, k=2)), ("-", *rng.choices(NAMES, k=2)),
                         ("*", rng.choice(NUMBERS), rng.choice(NAMES))]) for _ in range(2)]  # fmt: skip
    return (rng.choice(["<=", ">=", "<", ">"]), *sides)


def is_true(tree: Tree, point: dict[str, Fraction]) -> bool:
    """By the text alone."""
    if tree[0] in ("and", "or"):
        return (all if tree[0] == "and" else any)(is_true(t, point) for t in tree[1:])
    a, b = (_value(t, point) for t in tree[1:])
    return {"<=": a <= b, ">=": a >= b, "<": a < b, ">": a > b}[tree[0]]


def _value(tree: Any, point: dict[str, Fraction]) -> Fraction:
    if isinstance(tree, str):
        return point[tree] if tree in point else Fraction(tree)
    return value((tree[0], *(str(_value(t, point)) for t in tree[1:])), [])


def stated(text: str) -> Property | None:
    """None where nothing satisfies what is asserted, which is refused."""
    try:
        return read_text(text)
    except PropertyError as error:
        if "nothing to prove" not in str(error) and "above upper bound" not in str(error):
            raise
        return None


def breaks(found: Property, x: list[float], y: list[float]) -> bool:
    """Whether a point is a counterexample, as an attack decides it."""
    interface = found.interface
    variables = tuple(range(2)) if interface is None else interface.variables
    seen = () if interface is None else interface.named_inputs
    free = np.zeros(found.inputs)
    free[list(variables)] = x
    if [free[v] for v in variables] != x:  # cells that are one variable have one value
        return False
    values = np.array([*y, *(free[v] for v in seen)])
    return any(case.has(free) and case.contains(values) for case in found.cases)


def test_random_formulas() -> None:
    rng, outcomes = Random(3), []
    for _ in range(300):
        tree = random_formula(rng, 2)
        text = HEAD + BOX + f"(assert {written(tree)})"
        found = stated(text)
        for _ in range(6):
            at = [rng.choice([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0]) for _ in NAMES]
            point = {n: Fraction(v) for n, v in zip(NAMES, at, strict=True)}
            expected = abs(at[0]) <= 1 and 0 <= at[1] <= 0.5 and is_true(tree, point)
            assert (found is not None and breaks(found, at[:2], at[2:])) == expected, (text, at)
            outcomes.append(expected)
    assert 0.1 < np.mean(outcomes) < 0.6


def test_a_proof_covers_what_rounding_makes_of_the_inputs() -> None:
    """A real input that satisfies the rows, rounded up or down cell by cell, satisfies those of the proof."""
    rng, missed = Random(4), 0
    for _ in range(200):
        c, k = [rng.randint(-5, 5) or 1 for _ in range(2)], Fraction(rng.randint(-9, 9), 7)
        text = f"(assert (<= (+ (* {c[0]} X_0) (* {c[1]} X_1)) {float(k)})) (assert (<= Y_0 0))"
        found = stated(HEAD + BOX + text)
        if found is None:
            continue
        (alternative,) = found.cases[0].alternatives
        row, wide = alternative.rows[0, 2:], alternative.limits[0]
        exact = (alternative.exact or alternative.limits)[0]
        x0 = Fraction(rng.randint(-999, 999), 1000)
        x1 = (exact - int(row[0]) * x0) / int(row[1])  # on the border itself
        if not 0 <= x1 <= Fraction(7, 10):
            continue
        for sign in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
            total = sum(int(r) * _rounded(v, s) for r, v, s in zip(row, (x0, x1), sign, strict=True))
            assert total <= wide
            missed += total > exact  # the planted mistake: a proof of the exact limits would not cover it
    assert missed > 20


def _rounded(v: Fraction, direction: int) -> Fraction:
    near = np.float32(float(v))
    if (Fraction(float(near)) - v) * direction < 0:
        near = np.nextafter(near, np.float32(direction * np.inf))
    return Fraction(float(near))


def test_spacing_is_the_gap_of_float32() -> None:
    rng = np.random.default_rng(0)
    for v in [*rng.normal(size=200).astype(np.float32) * 10.0 ** rng.integers(-44, 30, 200), np.float32(1), 2.0**-130]:
        exact = Fraction(float(np.float32(v)))
        assert spacing(exact, exact) == 0
        gap = Fraction(float(np.spacing(np.abs(np.float32(v)))))
        assert spacing(Fraction(0) if exact > 0 else exact, abs(exact)) == gap


# --- boxes ------------------------------------------------------------------------------------------------------------


def test_bounds_that_sums_imply() -> None:
    sums = "(assert (<= (+ X_0 (* 2 X_1)) 4)) (assert (>= X_0 0)) (assert (>= X_1 X_0)) (assert (>= Y_0 0))"
    (case,) = read_text(HEAD + sums).cases
    assert (case.low, case.high[1]) == ((0, 0), 2)
    assert Fraction(4, 3) <= case.high[0] <= 2  # 4/3 is the smallest; sums one by one give 2
    assert not case.alternatives[0].contains(np.array([1.0, 0.0, 1.5, 1.0]))


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize(
    "bound", [Fraction(1, 3**200), Fraction(-1, 3**200), Fraction(7**200, 3**200)], ids=["small", "negative", "large"]
)
def test_a_long_bound_is_shortened_outward(bound: Fraction, above: bool) -> None:
    short = boxes._shorten_outward(bound, above)
    assert short > bound if above else short < bound
    assert abs(short - bound) <= abs(bound) / 2 ** (boxes.DERIVED_BOUND_BITS - 2)


def test_boxes_hold_every_point_of_their_sums() -> None:
    rng = Random(5)
    for _ in range(100):
        sums = [([rng.randint(-3, 3) or 1, rng.randint(-3, 3) or 1], rng.randint(-2, 4)) for _ in range(2)]
        text = HEAD + BOX + "(assert (<= Y_0 0))"
        text += "".join(f"(assert (<= (+ (* {c[0]} X_0) (* {c[1]} X_1)) {k}))" for c, k in sums)
        found = stated(text)
        for _ in range(30):
            x = [Fraction(rng.randint(-16, 16), 16), Fraction(rng.randint(0, 11), 16)]
            if all(c[0] * x[0] + c[1] * x[1] <= k for c, k in sums):
                assert found is not None
                (case,) = found.cases
                assert all(a <= v <= b for a, v, b in zip(case.low, x, case.high, strict=True))


def test_unbounded_inputs_are_refused_by_name() -> None:
    with pytest.raises(PropertyError, match="input X_0 has no lower bound"):
        read_text(HEAD + "(assert (<= (+ X_0 X_1) 1)) (assert (>= X_1 0)) (assert (>= Y_0 0))")
    with pytest.raises(PropertyError, match=r"input X_0 has lower bound 2\.0 above upper bound 1\.0"):
        read_text(HEAD + "(assert (<= X_1 X_0)) (assert (<= X_0 1)) (assert (>= X_1 2)) (assert (>= X_0 0))")


# --- equal cells and several tensors ----------------------------------------------------------------------------------

TWO = """(vnnlib-version <2.0>)
(declare-network f (declare-input A float32 [1, 2]) (declare-input B float32 []) (declare-output P float32 [2]))
(declare-network g (equal-to f)
  (declare-input C float32 [1, 2]) (declare-input D float32 []) (declare-output Q float32 [2]))
(assert (and (>= A[0,0] 0.0) (<= A[0,0] 1.0) (>= A[0,1] 0.0) (<= A[0,1] 1.0) (>= B 0.0) (<= B 1.0)))
(assert (and (== C[0,0] A[0,0]) (== B D) (>= C[0,1] A[0,1]) (<= C[0,1] 2.0)))
"""


def test_two_networks() -> None:
    pytest.importorskip("vnnlib")
    found = read_text(TWO + "(assert (> P[1] (+ Q[0] (* 2.0 B))))")
    assert found.interface == PropertyInterface(
        variables=(0, 1, 2, 0, 3, 2),
        named_inputs=(1, 2, 3),
        inputs=(
            PropertyTensor("A", (1, 2), "f"),
            PropertyTensor("B", (), "f"),
            PropertyTensor("C", (1, 2), "g"),
            PropertyTensor("D", (), "g"),
        ),
        outputs=(PropertyTensor("P", (2,), "f"), PropertyTensor("Q", (2,), "g")),
        models={"g": "f"},
    )
    (case,) = found.cases
    assert (case.low, case.high) == ((0, 0, 0, 0), (1, 1, 1, 2))
    (alternative,) = case.alternatives
    assert alternative.rows.tolist() == [[0, 0, 0, 0, 1, 0, -1], [0, -1, 1, 0, 0, 2, 0]]
    assert (alternative.exact, alternative.strict) == ((0, 0), frozenset({1}))
    gap = Fraction(1, 2**23)
    assert alternative.limits == (gap + 2 * gap, 2 * gap)  # cells up to 1 and up to 2
    named = found.interface.named(np.arange(4.0), np.arange(4.0) + 10)
    assert {n: a.tolist() for n, a in named.items()} == {
        "A": [[0, 1]], "B": 2, "P": [10, 11], "C": [[0, 3]], "D": 2, "Q": [12, 13],
    }  # fmt: skip
    assert list(named) == ["A", "B", "P", "C", "D", "Q"]


def test_names_in_errors_are_those_of_the_tensors() -> None:
    pytest.importorskip("vnnlib")
    with pytest.raises(PropertyError, match=r"input C\[0,1\] has no upper bound"):
        read_text(TWO.replace("(<= C[0,1] 2.0)", "(>= C[0,1] 0.0)") + "(assert (> P[1] Q[0]))")


def test_not_equal_is_two_alternatives() -> None:
    pytest.importorskip("vnnlib")
    head = "(vnnlib-version <2.0>)(declare-network f (declare-input X real [1]) (declare-output Y real [1]))"
    found = read_text(head + "(assert (and (>= X[0] 0.0) (<= X[0] 1.0) (!= Y[0] 0.5)))")
    assert [any(c.contains(np.array([v])) for c in found.cases) for v in (0.25, 0.5, 0.75)] == [True, False, True]
