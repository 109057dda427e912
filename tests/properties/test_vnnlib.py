"""Properties: what a VNN-LIB text means, exactly, and what is refused."""

from __future__ import annotations

import gzip
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest

from competition import SHARED, needs_shared
from formulas import cases_of, formula, true, written
from specgrad import ParameterError
from specgrad.properties.property import Case, PropertyError, robustness
from specgrad.properties.vnnlib import read, read_text

pytestmark = pytest.mark.quick  # of `pytest -m quick`, under a minute in all

HEAD = "(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)\n"
BOX = "(assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= X_1 0)) (assert (<= X_1 2e-1))\n"


def test_a_property_in_full() -> None:
    text = HEAD + BOX + "; a comment (\n(assert (or (and (<= Y_0 0.5) (>= Y_1 Y_0)) (<= (+ Y_0 (* -2.5 Y_1) 1) 0)))"
    found = read_text(text)
    (case,) = found.cases
    assert (found.inputs, found.outputs) == (2, 2)
    assert case.low == (-1, 0)
    assert case.high == (1, Fraction(1, 5))
    assert [(a.rows.tolist(), a.limits) for a in case.alternatives] == [
        ([[1, 0], [1, -1]], (Fraction(1, 2), 0)),
        ([[2, -5]], (-2,)),
    ]


def test_boxes_may_stand_inside_alternatives() -> None:
    text = HEAD + BOX + "(assert (or (and (<= X_0 0) (<= Y_0 0)) (and (>= X_0 0.5) (<= Y_1 0))))"
    cases = read_text(text).cases
    assert [(c.low[0], c.high[0], c.alternatives[0].rows.tolist()) for c in cases] == [
        (-1, 0, [[1, 0]]),
        (Fraction(1, 2), 1, [[0, 1]]),
    ]


# --- random formulas, against an evaluation that follows the text ----------------------------------------------------


def test_random_formulas_mean_what_they_say() -> None:
    rng, outcomes = Random(0), []
    for _ in range(400):
        tree = formula(rng, 3)
        cases = cases_of(HEAD + BOX + f"(assert {written(tree)})")
        for _ in range(5):
            y = [rng.choice([-1.0, -0.5, 0.0, 0.1, 0.25, 3.0]) for _ in range(2)]
            outcomes.append(true(tree, [Fraction(v) for v in y]))
            assert any(c.contains(np.array(y)) for c in cases) == outcomes[-1], (written(tree), y)
    assert 0.2 < np.mean(outcomes) < 0.8


def test_nan_is_no_counterexample() -> None:
    (case,) = read_text(HEAD + BOX + "(assert (<= Y_0 Y_1))").cases
    assert not case.contains(np.array([np.nan, 0.0]))


# --- boxes in float32 -------------------------------------------------------------------------------------------------


def test_float32_boxes_round_out_and_in() -> None:
    rng = np.random.default_rng(0)
    values = [Fraction(int(n), 10**9) for n in rng.integers(-(10**9), 10**9, 200)]
    values += [
        Fraction(float(np.float32(v))) + d * Fraction(1, 10**30) for v in rng.normal(size=50) for d in (-1, 0, 1)
    ]
    case = Case(tuple(values), tuple(values), ())
    for exact, low, high, least, most in zip(values, *case.outer(), *case.nearest, strict=True):
        for end in (low, high, least, most):
            assert end == np.float32(end)
        below, above = np.float32(low), np.float32(high)
        assert Fraction(float(below)) <= exact <= Fraction(float(above))
        assert above in (below, np.nextafter(below, np.float32(np.inf)))
        assert least == most  # a box of one number: what it is rounded to
        assert abs(Fraction(least) - exact) == min(abs(Fraction(end) - exact) for end in (low, high))


def test_robustness() -> None:
    found = robustness(np.float32([0.5, 0.9]), 2, Fraction(2, 10), 3, low=0, high=1)
    (case,) = found.cases
    assert case.low == (Fraction(3, 10), Fraction(float(np.float32(0.9))) - Fraction(1, 5))
    assert case.high == (Fraction(7, 10), 1)
    for y, broken in (([0, 1, 2], False), ([0, 2, 2], True), ([3, 1, 2], True)):
        assert case.contains(np.float32(y)) == broken
    with pytest.raises(PropertyError, match=r"label must be one of 0\.\.2; got 3"):
        robustness([0.0], 3, 0.1, 3)
    with pytest.raises(PropertyError, match="outside low"):
        robustness([3.0], 0, 0.1, 3, high=1)
    with pytest.raises(PropertyError, match="the only output is always the largest"):
        robustness([3.0], 0, 0.1, 1)
    for x, eps in (
        ([np.nan], 0.1),
        ([np.inf], 0.1),
        ([0.0], np.nan),
        ([0.0], np.inf),
    ):
        with pytest.raises(ParameterError, match="must be one finite number"):
            robustness(x, 0, eps, 3)
    for below in (-1, -(Fraction(10) ** 400)):
        with pytest.raises(PropertyError, match="eps must not be negative"):
            robustness([0.0], 0, below, 3)
    for limit in (np.zeros(2), [0, 0], np.nan, np.inf, "a"):
        with pytest.raises(ParameterError, match="low must be one finite number"):
            robustness([0.0], 0, 0.1, 3, low=limit)


def test_numbers_of_a_question_are_taken_exactly() -> None:
    """A third is no float; a limit may be any one number, and an infinite one is none."""
    third, tenth = Fraction(1, 3), Fraction(1, 10)
    case = robustness([third], 0, "0.1", 2, low=-np.inf, high=np.float32(0.5)).cases[0]
    assert (case.low, case.high) == ((third - tenth,), (third + tenth,))
    assert robustness([third], 0, 1, 2, high=np.float32(0.5)).cases[0].high == (Fraction(1, 2),)


def test_an_input_is_in_the_box_or_not() -> None:
    """0.1 lies between two float32 numbers: neither is in 0.1..0.1, both are in the box that a proof covers."""
    tenth = Fraction(1, 10)
    case = Case((tenth, Fraction(0)), (tenth, Fraction(1)), ())
    above = np.float32(0.1)
    for end in (above, np.nextafter(above, np.float32(0))):
        assert not case.has(np.float32([end, 0.5]))
        assert end in (np.float32(case.outer()[0][0]), np.float32(case.outer()[1][0]))
    wider = Case((tenth, Fraction(0)), (Fraction(float(above)), Fraction(1)), ())
    assert wider.has(np.float32([above, 1.0]))
    assert not wider.has(np.float32([above, np.nextafter(np.float32(1), np.float32(2))]))
    assert not wider.has(np.float32([above, np.nan]))


# --- what is true or false whatever the network does ------------------------------------------------------------------


def test_inequalities_between_numbers() -> None:
    first = HEAD + BOX + "(assert (or (and (<= Y_0 0) (<= 1 0)) (and (<= Y_1 0) (>= 1 (* 0 Y_0)))))"
    found = read_text(first)
    assert [a.rows.tolist() for a in found.cases[0].alternatives] == [[[0, 1]]]
    assert found.left_out == 1
    (case,) = read_text(HEAD + BOX + "(assert (<= 0 1))").cases
    assert case.alternatives[0].rows.shape == (0, 2)  # no constraint on outputs: every input is a counterexample
    assert case.contains(np.float32([3, 4]))
    assert read_text(HEAD + BOX).cases[0].alternatives[0].rows.shape == (0, 2)


def test_boxes_without_inputs_are_left_out_but_never_alone() -> None:
    both = "(and (<= X_0 0) (>= X_0 0.5) (<= Y_0 0))"
    found = read_text(HEAD + BOX + f"(assert (or {both} (<= Y_1 0)))")
    assert (len(found.cases), found.left_out) == (1, 1)
    assert found.cases[0].low == (-1, 0)
    for text in (f"(assert (or {both} (and (<= 1 0) (<= Y_0 0))))", "(assert (<= 1 0))"):
        with pytest.raises(PropertyError, match="so there is nothing to prove"):
            read_text(HEAD + BOX + text)


DIGITS = ["\u0661", "\uff11", "\u0967", "\U0001d7cf"]  # 1 in Arabic, full width, Devanagari, bold


@pytest.mark.parametrize("digit", DIGITS)
def test_other_digits_are_no_digits(digit: str) -> None:
    """Y_1<digit> was read as Y_11, beside which the name Y_11 stood for another variable."""
    head = "".join(f"(declare-const {v} Real)" for v in ("X_0", *(f"Y_{i}" for i in range(12))))
    head += "(assert (<= X_0 1)) (assert (>= X_0 0))\n"
    for text in (f"(assert (<= Y_1{digit} 0))", f"(assert (<= Y_0 {digit}))", f"(assert (<= Y_0 1e{digit}))"):
        with pytest.raises(PropertyError, match=rf"line 2: character U\+{ord(digit):04X} is not read"):
            read_text(head + text)


@pytest.mark.parametrize("end", ["\r", "\v", "\f", "\x85", "\u2028", "\u2029", "\x1c"])
def test_lines_end_in_one_way(end: str) -> None:
    """What looks like a new line must not hide an alternative in a comment."""
    with pytest.raises(PropertyError, match=r"character U\+.* is not read"):
        read_text(HEAD + BOX + f"(assert (or (<= Y_0 0) ; note{end} (<= Y_1 0)\n))")
    assert len(read_text(HEAD + BOX + "(assert (or (<= Y_0 0) ; \u00e9\r\n (<= Y_1 0)\n))").cases[0].alternatives) == 2


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(assert (= Y_0 Y_1))", "line 3: (= ...) is not in the subset of VNN-LIB that is read here: <=, >=, <, >"),
        ("(assert (not (<= Y_0 Y_1)))", "(not ...) is not in the subset"),
        ("(assert (<= (* Y_0 Y_1) 0))", "a product of two variables is not linear"),
        ("(assert (<= Y_2 0))", "variable Y_2 is not declared"),
        ("(assert (<= Z 0))", "'Z' is neither a number nor a variable X_i or Y_j"),
        ("(assert (<= Y_0 0)", "1 parentheses are not closed"),
        ("(assert (<= Y_0 0)))", "a parenthesis closes that was not opened"),
        ("(assert (<= Y_0))", "(<= ...) compares two terms; got 1"),
        ("(assert Y_0)", "(assert ...) needs formulas; got a term"),
        ("(assert (+ Y_0 1))", "(assert ...) needs formulas; got a term"),
        ("(assert (<= (<= Y_0 0) 0))", "(<= ...) needs terms; got a formula"),
        ("(assert (<= Y_0 0) (<= Y_0 0))", "assert takes one formula; got 2"),
        ("(assert (<= (+) 0))", "(+) has no terms"),
        ("(assert (or))", "(or) has no formulas"),
        ("(assert (and (<= Y_0 0) (and)))", "(and) has no formulas"),
        ("(assert (>= X_0 1e400))", "input X_0 has lower bound inf above upper bound 1.0"),
        ("(assert ((<= Y_0 0)))", "a list must begin with a word"),
        ("(check-sat)", "statement 'check-sat' is not understood; only declare-const and assert are"),
        ("(declare-const Y_0 Real)", "variable Y_0 is declared twice"),
        ("(declare-const Y_7 Int)", "variable Y_7 has sort Int; only Real is understood"),
        ("(declare-const Y_7 Real)", "variables Y_0, Y_1, ... must be declared without gaps; got 3"),
        ("(declare-fun Y_7 () Real)", "() is not understood: a list must begin with a word"),
        ("(assert (>= X_1 3))", "input X_1 has lower bound 3.0 above upper bound 0.2"),
        ("(assert (<= Y_0 1e999999999))", "has over 1024 digits or an exponent over 400"),
        ("(assert (<= (* 1e17 (+ Y_0 (* 0.1 Y_1))) 0))", "of an inequality over Y_0 need over 53 bits"),
        ("(assert (<= (*" + " 1e399" * 99 + ") Y_0))", "a product has numbers of over 16384 bits"),
        ("hello", "'hello' stands outside any statement"),
        ("(" * 5000, "over 1024 parentheses are open at once"),
        ("(assert (and" + " (or (<= Y_0 0) (<= Y_1 0))" * 40 + "))", "form has over 4194304 inequalities"),
    ],
)  # fmt: skip
def test_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(PropertyError) as caught:
        read_text(HEAD + BOX + text)
    assert message in str(caught.value)


def test_missing_bounds_are_named() -> None:
    with pytest.raises(PropertyError, match="input X_1 has no upper bound"):
        read_text(HEAD + "(assert (>= X_1 0)) (assert (<= X_0 0)) (assert (>= X_0 0)) (assert (<= Y_0 0))")


# --- files ------------------------------------------------------------------------------------------------------------


def test_compressed_files(tmp_path: Path) -> None:
    text = HEAD + BOX + "(assert (<= Y_0 Y_1))"
    (tmp_path / "p.vnnlib").write_text(text)
    (tmp_path / "p.vnnlib.gz").write_bytes(gzip.compress(text.encode()))
    assert read(tmp_path / "p.vnnlib").cases[0].high == read(tmp_path / "p.vnnlib.gz").cases[0].high
    (tmp_path / "cut.gz").write_bytes(gzip.compress(text.encode())[:-12])
    with pytest.raises(PropertyError, match=r"cut\.gz is not readable"):
        read(tmp_path / "cut.gz")
    (tmp_path / "plain.gz").write_text(text)
    with pytest.raises(PropertyError, match=r"plain\.gz is not readable"):
        read(tmp_path / "plain.gz")


@needs_shared
def test_competition_files() -> None:
    for name, inputs in (("verivital/specs/maxpool_specs/prop_0_0.004.vnnlib", 784), ("oval21/vnnlib", 3072)):
        path = SHARED / name
        found = read(sorted(path.iterdir())[0] if path.is_dir() else path)
        assert (found.inputs, found.outputs, len(found.cases)) == (inputs, 10, 1)
        assert len(found.cases[0].alternatives) == 9
