"""Sums of rational multiples of e**q, q rational: a ring in which exp is exact.

By Lindemann-Weierstrass the powers e**q of distinct rationals q are linearly independent over the rationals, so two
such sums are equal exactly when their coefficients are. Enough to check the adjoint law of smooth pooling to the
last digit.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any


class ExpSum:
    def __init__(self, terms: dict[Fraction, Fraction]) -> None:
        self.terms = {q: c for q, c in terms.items() if c}

    @staticmethod
    def of(value: Any) -> ExpSum:
        return value if isinstance(value, ExpSum) else ExpSum({Fraction(0): Fraction(value)})

    def __add__(self, other: Any) -> ExpSum:
        total = dict(self.terms)
        for q, c in ExpSum.of(other).terms.items():
            total[q] = total.get(q, Fraction(0)) + c
        return ExpSum(total)

    __radd__ = __add__

    def __neg__(self) -> ExpSum:
        return self * -1

    def __sub__(self, other: Any) -> ExpSum:
        return self + -ExpSum.of(other)

    def __rsub__(self, other: Any) -> ExpSum:
        return -self + other

    def __mul__(self, other: Any) -> ExpSum:
        total: dict[Fraction, Fraction] = {}
        for p, a in self.terms.items():
            for q, b in ExpSum.of(other).terms.items():
                total[p + q] = total.get(p + q, Fraction(0)) + a * b
        return ExpSum(total)

    __rmul__ = __mul__

    def __truediv__(self, other: int) -> ExpSum:
        return self * Fraction(1, other)

    def __eq__(self, other: object) -> bool:
        return self.terms == ExpSum.of(other).terms

    __hash__ = None  # type: ignore[assignment]

    def exp(self) -> ExpSum:
        if set(self.terms) - {Fraction(0)}:
            raise ArithmeticError("only e to a rational power is in the ring")
        return ExpSum({self.terms.get(Fraction(0), Fraction(0)): Fraction(1)})

    def __repr__(self) -> str:
        return " + ".join(f"{c}*e^{q}" for q, c in self.terms.items()) or "0"
