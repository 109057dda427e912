"""Formulas that can be printed and evaluated: what a page shows is what a test computes, over exact numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

Env = Mapping[str, Any]
BINDS = {"+": 1, "-": 1, "*": 2, "/": 2, "**": 4}
SHOWN = {"+": " + ", "-": " - ", "*": "\N{MIDDLE DOT}", "/": " / "}


@dataclass(frozen=True, eq=False)
class Expr:
    """A name, a number, a call, or two expressions with a sign between.

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
        """A name as a function: F(X)."""
        return Expr("call", (self.parts[0], *map(as_expr, args)))

    def value(self, env: Env) -> Any:
        """Over whatever numbers `env` holds: rationals, or arrays of them."""
        if self.head == "number":
            return self.parts[0]
        if self.head == "name":
            return env[self.parts[0]]
        if self.head == "call":
            name, *args = self.parts
            given = [a.value(env) for a in args]
            return env[name](*given) if name in env else FUNCTIONS[name](env, *given)
        a, b = (p.value(env) for p in self.parts)
        return SIGNS[self.head](a, b)

    @property
    def code(self) -> str:
        """As Python."""
        return self._text(code=True)

    @property
    def symbols(self) -> str:
        """As people write it; gamma(n) = (1 + u)**n - 1."""
        return self._text(code=False)

    def _text(self, code: bool) -> str:
        if self.head in ("number", "name"):
            return str(self.parts[0])
        if self.head == "call":
            return self._call(code)
        sides = [p._text(code) for p in self.parts]
        here = BINDS[self.head]
        for i, part in enumerate(self.parts):
            inner = BINDS.get(part.head, 9)
            if inner < here or (i == 1 and inner == here and self.head in "-/"):
                sides[i] = f"({sides[i]})"
        sign = SHOWN.get(self.head, self.head)
        if code:
            sign = f" {self.head} " if here == 1 else self.head
        return sign.join(sides)

    def _call(self, code: bool) -> str:
        name, *args = self.parts
        inside = [a._text(code) for a in args]
        if not code and name == "abs":
            return f"|{inside[0]}|"
        if not code and name == "growth":
            return f"\N{GREEK SMALL LETTER GAMMA}({inside[0]})"
        return f"{name}({', '.join(inside)})"

    def names(self) -> set[str]:
        """Of everything in it that is no function."""
        if self.head == "name":
            return {self.parts[0]}
        return {n for p in self.parts if isinstance(p, Expr) for n in p.names()}


def as_expr(x: Any) -> Expr:
    return x if isinstance(x, Expr) else Expr("number", (x,))


def names(text: str) -> list[Expr]:
    return [Expr("name", (word,)) for word in text.split()]


def _divide(a: Any, b: Any) -> Any:
    """Of whole numbers too, exactly."""
    return Fraction(a) / b if isinstance(a, int) else a / b


SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "**": operator.pow,
}


# --- functions --------------------------------------------------------------------------------------------------------


def growth(n: Any) -> Expr:
    """(1 + u)**n - 1: n roundings in a row."""
    return Expr("call", ("growth", as_expr(n)))


def lost(n: Any) -> Expr:
    """(n + 1)*2*t*(1 + u)**n: what n operations of one sum, and their operands, lose below the normal numbers."""
    return Expr("call", ("lost", as_expr(n)))


def larger(a: Any, b: Any) -> Expr:
    return Expr("call", ("max", as_expr(a), as_expr(b)))


def where(condition: Expr, a: Any, b: Any = 0) -> Expr:
    """a where the condition, an expression, is below 0; else b."""
    return Expr("call", ("below_0", condition, as_expr(a), as_expr(b)))


def _growth(env: Env, n: Any) -> Any:
    return (1 + env["u"]) ** n - 1


def _lost(env: Env, n: Any) -> Any:
    return (n + 1) * 2 * env["t"] * (1 + env["u"]) ** n


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "growth": _growth,
    "lost": _lost,
    "abs": lambda env, x: abs(x),
    "max": lambda env, a, b: np.maximum(a, b),
    "below_0": lambda env, c, a, b: np.where(np.less(c, 0), a, b),
}
"""What every formula may call, with the format's u and t from the surroundings."""
