"""Formulas that can be printed and evaluated over exact numbers: a page shows what a test computes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

Env = Mapping[str, Any]
PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "**": 4}
SYMBOLS = {"+": " + ", "-": " - ", "*": "\N{MIDDLE DOT}", "/": " / "}


@dataclass(frozen=True, eq=False)
class Expr:
    """A formula `head` of `parts`: a name, a number, a call, or two formulas with a binary operator between them.

    >>> n, x = names("n X")
    >>> bound = growth(n) * (abs(x) + 1)
    >>> print(bound.code, ascii(bound.symbols))
    growth(n)*(abs(X) + 1) '\\u03b3(n)\\xb7(|X| + 1)'
    >>> bound.value({"n": 1, "X": Fraction(-3), "u": Fraction(1, 8)})
    Fraction(1, 2)
    """

    head: str
    parts: tuple[Any, ...]

    def __add__(self, other: Any) -> Expr:
        return Expr("+", (self, as_expr(other)))

    def __radd__(self, other: Any) -> Expr:
        return as_expr(other) + self

    def __sub__(self, other: Any) -> Expr:
        return Expr("-", (self, as_expr(other)))

    def __rsub__(self, other: Any) -> Expr:
        return as_expr(other) - self

    def __mul__(self, other: Any) -> Expr:
        return Expr("*", (self, as_expr(other)))

    def __rmul__(self, other: Any) -> Expr:
        return as_expr(other) * self

    def __truediv__(self, other: Any) -> Expr:
        return Expr("/", (self, as_expr(other)))

    def __rtruediv__(self, other: Any) -> Expr:
        return as_expr(other) / self

    def __pow__(self, other: Any) -> Expr:
        return Expr("**", (self, as_expr(other)))

    def __abs__(self) -> Expr:
        return Expr("call", ("abs", self))

    def __call__(self, *args: Any) -> Expr:
        """Return a call of this name as a function: F(X)."""
        return Expr("call", (self.parts[0], *map(as_expr, args)))

    def value(self, env: Env) -> Any:
        """Return the formula's value over the numbers of `env` (by name): rationals, or arrays of them."""
        if self.head == "number":
            return self.parts[0]
        if self.head == "name":
            return env[self.parts[0]]
        if self.head == "call":
            name, *args = self.parts
            given = [a.value(env) for a in args]
            return env[name](*given) if name in env else FUNCTIONS[name](env, *given)
        a, b = (p.value(env) for p in self.parts)
        return OPERATORS[self.head](a, b)

    @property
    def code(self) -> str:
        """Return the formula as Python text, which `eval` takes."""
        return self._text(code=True)

    @property
    def symbols(self) -> str:
        """The formula in mathematical notation; gamma(n) = (1 + u)**n - 1."""
        return self._text(code=False)

    def _text(self, code: bool) -> str:
        """Return the formula as text: Python (`code`) or mathematical notation."""
        if self.head in ("number", "name"):
            return str(self.parts[0])
        if self.head == "call":
            return self._call_text(code)
        sides = [p._text(code) for p in self.parts]
        here = PRECEDENCE[self.head]
        for i, part in enumerate(self.parts):
            inner = PRECEDENCE.get(part.head, 9)
            if inner < here or (i == 1 and inner == here and self.head in "-/"):
                sides[i] = f"({sides[i]})"
        sign = SYMBOLS.get(self.head, self.head)
        if code:
            sign = f" {self.head} " if here == 1 else self.head
        return sign.join(sides)

    def _call_text(self, code: bool) -> str:
        """Return a function call as text: as Python if `code`, else as it is printed, with bars for abs."""
        name, *args = self.parts
        inside = [a._text(code) for a in args]
        if not code and name == "abs":
            return f"|{inside[0]}|"
        if not code and name == "growth":
            return f"\N{GREEK SMALL LETTER GAMMA}({inside[0]})"
        return f"{name}({', '.join(inside)})"

    def names(self) -> set[str]:
        """Return the names in the formula that are no functions."""
        if self.head == "name":
            return {self.parts[0]}
        return {n for p in self.parts if isinstance(p, Expr) for n in p.names()}


def as_expr(x: Any) -> Expr:
    """Return a formula unchanged, and a number as a formula."""
    return x if isinstance(x, Expr) else Expr("number", (x,))


def names(text: str) -> list[Expr]:
    """Return one name formula per word of `text`."""
    return [Expr("name", (word,)) for word in text.split()]


def _exact_quotient(a: Any, b: Any) -> Any:
    """Return a / b, exactly as a Fraction if a is an int."""
    return Fraction(a) / b if isinstance(a, int) else a / b


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _exact_quotient,
    "**": operator.pow,
}


# --- functions --------------------------------------------------------------------------------------------------------


def growth(n: Any) -> Expr:
    """Return the formula (1 + u)**n - 1: the relative error of n successive roundings."""
    return Expr("call", ("growth", as_expr(n)))


def lost(n: Any) -> Expr:
    """Return the formula (n + 1)*2*t*(1 + u)**n: the underflow error of n operations of one sum and their operands."""
    return Expr("call", ("lost", as_expr(n)))


def maximum(a: Any, b: Any) -> Expr:
    """Return the formula max(a, b) of formulas or numbers a and b."""
    return Expr("call", ("max", as_expr(a), as_expr(b)))


def where_negative(condition: Expr, a: Any, b: Any = 0) -> Expr:
    """Return the formula: a if `condition` is below 0, else b."""
    return Expr("call", ("below_0", condition, as_expr(a), as_expr(b)))


def _evaluate_growth(env: Env, n: Any) -> Any:
    """Return (1 + u)**n - 1 with the u of `env`, exactly."""
    return (1 + env["u"]) ** n - 1


def _evaluate_lost(env: Env, n: Any) -> Any:
    """Evaluate `lost(n)` with the u and t of `env`."""
    return (n + 1) * 2 * env["t"] * (1 + env["u"]) ** n


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "growth": _evaluate_growth,
    "lost": _evaluate_lost,
    "abs": lambda env, x: abs(x),
    "max": lambda env, a, b: np.maximum(a, b),
    "below_0": lambda env, c, a, b: np.where(np.less(c, 0), a, b),
}
"""What every formula may call, with the format's u and t from the surroundings."""
