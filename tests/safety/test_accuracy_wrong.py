"""Formulas that the safety profile's texts print are broken by a case each; the sheet holds for the same case."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("mpmath")

from sheet_cases import FORMAT
from specgrad.safety.accuracy import SHEETS, errors
from wrong_formulas import broken, div_propagated, matmul_introduced

CASES = broken()


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_broken_and_the_sheet_is_not(name: str) -> None:
    case = CASES[name]
    assert case.happens > case.allowed
    if case.env is not None:
        sheet = errors(SHEETS[case.operator], {**FORMAT, **case.env})
        assert case.happens <= sheet.total[0]


def test_by_how_much() -> None:
    """The figures of docs/sonnx.md."""
    matmul, div = CASES["matmul_introduced"], CASES["div_propagated"]
    assert matmul.happens / matmul.allowed == pytest.approx(4, rel=1e-5)
    assert (div.happens, div.allowed) == (pytest.approx(0.05), pytest.approx(0.0125))
    assert float(CASES["exp_propagated"].happens) == pytest.approx(1.71828, rel=1e-5)
    assert float(CASES["sigmoid_propagated"].happens) == pytest.approx(0.3808, rel=1e-3)
    tanh = CASES["tanh_simplified"]
    assert [round(float(x / FORMAT["u"]), 2) for x in (tanh.happens, tanh.allowed)] == [2.0, 1.33]


def test_the_sheet_of_tanh_asks_for_more_than_that_algorithm_gives() -> None:
    """Its scale is the result: near 0 an algorithm with an absolute error of 2u is none that promises e units of it."""
    assert SHEETS["Tanh"].steps[3].words.endswith("the result")
    assert CASES["tanh_simplified"].happens > 8 * FORMAT["u"] * 10**-6


def test_what_is_meant_would_hold() -> None:
    """(1 + u)^2 for (1 + u^2), and B for B^2: the same cases."""
    u, a = FORMAT["u"], 1 + 2 * FORMAT["u"]
    right = ((1 + u) ** 2 * (((1 + u) - 1) / u) - 1) * a * a
    assert CASES["matmul_introduced"].happens <= right
    assert matmul_introduced(1, a, a) < right
    assert div_propagated(1, 1, 1, 0) == 1  # with B = 1 it is right: the fault shows elsewhere


def test_the_last_finite_arguments_of_exp() -> None:
    """exp.md names 88.72283935546875 (float32) and 11.09375 (float16) as the last with a finite value."""
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(np.float32(88.72283935546875)))
        assert np.isinf(np.exp(np.float16(11.09375)))
    assert np.isfinite(np.exp(np.float32(88.72283172607422)))
