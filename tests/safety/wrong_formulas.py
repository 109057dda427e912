"""Accuracy formulas as the texts of the safety profile print them, and one case each that breaks it.

The texts are those named in docs/sonnx.md, which has a script per formula. A case holds what happens, exactly or to 60
digits, what the text allows, and what the sheet of ours is given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

from sheet_cases import FORMAT, cellwise

U = FORMAT["u"]
EXP, ROOT = cellwise(mpmath.exp), cellwise(mpmath.sqrt)
SIGMOID = cellwise(lambda x: 1 / (1 + mpmath.exp(-x)))
F32 = np.float32


def matmul_introduced(n: int, largest_a: Fraction, largest_b: Fraction) -> Fraction:
    """matmul_acc.md: (1 + u^2) where (1 + u)^2 is meant."""
    return ((1 + U * U) * (((1 + U) ** n - 1) / U) - n) * largest_a * largest_b


def div_propagated(a: Fraction, b: Fraction, e_a: Fraction, e_b: Fraction) -> Fraction:
    """div_acc.md: B^2 where B belongs."""
    return abs(e_a / (b * b * (b + e_b))) + abs(a * e_b / (b * (b + e_b)))


def div_integer_introduced() -> Fraction:
    """div_acc.md: integers, "< 0.5"."""
    return Fraction(1, 2)


def tanh_simplified(x: Fraction) -> Fraction:
    """tanh_acc.md, after the general formula, exp within 4u: 1/(1 + 2*exp(2x)) for 1/(1 + exp(2x))."""
    z = EXP(np.array([2 * x], dtype=object))[0]
    inner = (2 + 8 * (1 + U) * z - 2 * z * z) / ((1 + z) * (1 - U) - 4 * U * (1 + U) * z)
    return U / (1 + 2 * z) * (inner * (1 + U) + 1 - z)


def exp_propagated(x: Fraction, e_x: Fraction) -> Fraction:
    """exp_acc.md: the first order as an inequality."""
    return EXP(np.array([x], dtype=object))[0] * abs(e_x)


def sigmoid_propagated(x: Fraction, e_x: Fraction) -> Fraction:
    """sigmoid_acc.md: the first order as an inequality."""
    y = SIGMOID(np.array([x], dtype=object))[0]
    return y * (1 - y) * abs(e_x)


def sqrt_propagated(x: Fraction, e_x: Fraction) -> Fraction:
    """sqrt_acc.md: the first order as an inequality."""
    return abs(e_x) / (2 * ROOT(np.array([x], dtype=object))[0])


def leakyrelu_introduced() -> Fraction:
    """leakyrelu.md: "no error"."""
    return Fraction(0)


@dataclass(frozen=True)
class Broken:
    """happens: the error of a case; allowed: by the text; env: the same case for the sheet, None: it has no formula."""

    operator: str
    happens: Fraction
    allowed: Fraction
    env: dict[str, Any] | None = field(default=None)


def one(x: Fraction | int) -> np.ndarray:
    return np.array([Fraction(x)], dtype=object)


def broken() -> dict[str, Broken]:
    """By the formula's name."""
    a = 1 + Fraction(1, 2**23)
    product = Fraction(float(F32(float(a)) * F32(float(a))))
    matmul = {"A": one(a), "B": one(a), "E_A": one(0), "E_B": one(0), "K": 1, "F": lambda x, y: x * y, "Y": one(a * a)}
    tenth, three, two = Fraction(1, 10), Fraction(3), Fraction(2)
    div = {"A": one(3), "B": one(2), "E_A": one(tenth), "E_B": one(0), "Y": one(Fraction(3, 2))}
    slope, x = Fraction(float(F32(0.3))), Fraction(float(F32(-1 / 3)))
    rounded = Fraction(float(F32(0.3) * F32(-1 / 3)))
    leaky = {"X": one(x), "E_X": one(0), "LOW": one(slope * x), "HIGH": one(slope * x), "Y": one(slope * x)}
    moved = lambda f, at, to: abs(f(one(to))[0] - f(one(at))[0])
    function = lambda f, at, far: {"X": one(at), "E_X": one(abs(far)), "F": f, "Y": f(one(at)), "e": Fraction(8)}
    return {
        "matmul_introduced": Broken("MatMul", abs(product - a * a), matmul_introduced(1, a, a), matmul),
        "div_propagated": Broken(
            "Div", (three + tenth) / two - three / two, div_propagated(three, two, tenth, Fraction(0)), div
        ),
        "div_integer_introduced": Broken("Div", abs(Fraction(7, 4) - 7 // 4), div_integer_introduced()),
        "tanh_simplified": Broken("Tanh", tanh_error(), tanh_simplified(-Fraction(1, 10**6))),
        "exp_propagated": Broken(
            "Exp", moved(EXP, 0, 1), exp_propagated(Fraction(0), Fraction(1)), function(EXP, 0, 1)
        ),
        "sigmoid_propagated": Broken(
            "Sigmoid", moved(SIGMOID, 2, 0), sigmoid_propagated(two, -two), function(SIGMOID, 2, -2)
        ),
        "sqrt_propagated": Broken(
            "Sqrt",
            moved(ROOT, 1, Fraction(1, 4)),
            sqrt_propagated(Fraction(1), -Fraction(3, 4)),
            function(ROOT, 1, Fraction(3, 4)),
        ),
        "leakyrelu_introduced": Broken("LeakyRelu", abs(rounded - slope * x), leakyrelu_introduced(), leaky),
    }


def tanh_error() -> Fraction:
    """The page's algorithm near 0, (1 - z)/(1 + z) with an exp that is 4u too large: no operation but exp errs."""
    x = -Fraction(1, 10**6)
    z = EXP(one(2 * x))[0]
    computed = z * (1 + 4 * U)
    return abs((1 - computed) / (1 + computed) - (1 - z) / (1 + z))
