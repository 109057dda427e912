"""Sizes that a graph leaves open: whole-number expressions in named sizes, and what was decided about them.

A `SymbolicSize` is a polynomial in atoms with whole coefficients; an atom is a named size, a floor division that
does not come out even, or the smaller of two. Equal polynomials are equal sizes. What the polynomials do not decide
(N == 1? N < 4?) is decided by the sizes the trace was made with, and written down as a `Guard`: the graph means the
same function at other sizes only as long as every guard comes out as it did. A size that is taken as a plain number
(a range, an array of NumPy) is guarded to be that number.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..errors import ShapeError
from .cache import OPEN_SIZES

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
Sizes = Mapping[str, Any]  # ints, or open sizes of another graph, into which this one is called
Terms = tuple[tuple[tuple["Atom", ...], int], ...]  # product of atoms -> coefficient, sorted


class _Atom:
    """What an expression is made of. Two are the same if they are written the same: by `key`, which decides nothing."""

    __slots__ = ()

    @property
    def key(self) -> Any:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Atom) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, slots=True, eq=False)
class Symbol(_Atom):
    """A size with a name. `hint` is what it counts as while tracing, `default` what it is unless said otherwise."""

    name: str
    hint: int
    default: int
    guards: list[Guard] = field(default_factory=list, repr=False)

    @property
    def key(self) -> Any:
        return self.name

    def at(self, sizes: Sizes) -> Any:
        return sizes[self.name]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Quotient(_Atom):
    """floor(above / below), where that is no polynomial."""

    above: SymbolicSize | int
    below: SymbolicSize | int

    @property
    def key(self) -> Any:
        return "//", open_key(self.above), open_key(self.below)

    @property
    def hint(self) -> int:
        return int(_floor(hint_of(self.above), hint_of(self.below)))

    def at(self, sizes: Sizes) -> Any:
        return _floor(size_at(self.above, sizes), size_at(self.below, sizes))

    def __str__(self) -> str:
        return f"({self.above})//{self.below}" if isinstance(self.below, int) else f"({self.above})//({self.below})"


@dataclass(frozen=True, slots=True, eq=False)
class Smaller(_Atom):
    """The smaller of two sizes."""

    one: SymbolicSize | int
    other: SymbolicSize | int

    @property
    def key(self) -> Any:
        return "min", open_key(self.one), open_key(self.other)

    @property
    def hint(self) -> int:
        return min(hint_of(self.one), hint_of(self.other))

    def at(self, sizes: Sizes) -> Any:
        return smaller(size_at(self.one, sizes), size_at(self.other, sizes))

    def __str__(self) -> str:
        return f"min({self.one}, {self.other})"


Atom = Symbol | Quotient | Smaller


def open_key(value: Any) -> Any:
    """What can be hashed and compared in place of a value with open sizes in it, without deciding anything."""
    if isinstance(value, tuple):
        return tuple(open_key(v) for v in value)
    if not isinstance(value, SymbolicSize):
        return value
    return ("size", *((tuple(a.key for a in atoms), c) for atoms, c in value.terms))


def _floor(above: Any, below: Any) -> Any:
    if below == 0:
        raise ShapeError("size", f"{above} cannot be divided by a size of 0")
    return above // below


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """`difference` (of two sizes) is 0, or below 0: so it was, or was not, when the graph was traced."""

    difference: SymbolicSize
    relation: Literal["==", "<"]
    held: bool
    where: str = ""

    @property
    def key(self) -> Any:
        return open_key(self.difference), self.relation, self.held

    def holds(self, sizes: Sizes) -> bool:
        difference = self.difference.at(sizes)
        return bool(difference == 0 if self.relation == "==" else difference < 0) == self.held

    def __str__(self) -> str:
        words = {("==", True): "is", ("==", False): "is not", ("<", True): "is less than", ("<", False): "is at least"}
        more = made({atoms: c for atoms, c in self.difference.terms if c > 0})
        less = made({atoms: -c for atoms, c in self.difference.terms if c < 0})
        one, other = (less, more) if isinstance(more, int) and self.relation == "==" else (more, less)
        return f"{one} {words[self.relation, self.held]} {other}{f' ({self.where})' if self.where else ''}"


_LISTENING: ContextVar[list[Guard] | None] = ContextVar("specgrad_guards", default=None)


@contextmanager
def asked_again() -> Iterator[None]:
    """What is decided inside is decided anew for other sizes (shape rules, windows): no guard is needed."""
    token = _LISTENING.set([])
    try:
        yield
    finally:
        _LISTENING.reset(token)


class SymbolicSize:
    """A size that is open; made by `opened`, by arithmetic, or read from a shape.

    >>> n = opened("N")
    >>> n * 3 + n, (n * 6) // n, (2 * n + 4) // 2
    (4*N, 6, N + 2)
    """

    __slots__ = ("hint", "terms")

    terms: Terms
    hint: int

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.hint = sum(c * _product(a.hint for a in atoms) for atoms, c in terms)

    def at(self, sizes: Sizes) -> Any:
        return sum(c * _product(a.at(sizes) for a in atoms) for atoms, c in self.terms)

    @property
    def symbol(self) -> Symbol | None:
        """The named size that this is; None if it is an expression."""
        ((atoms, c), *rest) = self.terms
        return atoms[0] if c == 1 and not rest and len(atoms) == 1 and isinstance(atoms[0], Symbol) else None

    def __repr__(self) -> str:
        words = ["*".join(([str(c)] if c != 1 or not atoms else []) + list(map(str, atoms))) for atoms, c in self.terms]
        return " + ".join(words).replace("+ -", "- ")

    def __reduce__(self) -> tuple[Any, ...]:
        return SymbolicSize, (self.terms,)

    # --- arithmetic -----------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if not _is_size(other):
            return self.__index__() + other
        total = dict(self.terms)
        for atoms, c in _terms(other):
            total[atoms] = total.get(atoms, 0) + c
        return made(total)

    def __mul__(self, other: Any) -> Any:
        if not _is_size(other):
            return self.__index__() * other
        total: dict[tuple[Atom, ...], int] = {}
        for p, c in self.terms:
            for q, d in _terms(other):
                atoms = tuple(sorted(p + q, key=str))
                total[atoms] = total.get(atoms, 0) + c * d
        return made(total)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __floordiv__(self, other: Any) -> Any:
        return quotient(self, other) if _is_size(other) else self.__index__() // other

    def __rfloordiv__(self, other: Any) -> Any:
        return quotient(other, self) if _is_size(other) else other // self.__index__()

    def __mod__(self, other: Any) -> Any:
        return self - (self // other) * other if _is_size(other) else self.__index__() % other

    def __rmod__(self, other: Any) -> Any:
        return other - (other // self) * self if _is_size(other) else other % self.__index__()

    def __truediv__(self, other: Any) -> Any:
        return self.__index__() / (other.__index__() if isinstance(other, SymbolicSize) else other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.__index__()

    # --- what must be decided ---------------------------------------------------------------------------------------

    __hash__ = None  # type: ignore[assignment]  # what was found in a cache would not be asked, and not be guarded

    def __eq__(self, other: object) -> bool:
        return _decided(self, other, "==") if _is_size(other) else False

    def __lt__(self, other: Any) -> bool:
        return _decided(self, other, "<") if _is_size(other) else self.__index__() < other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __gt__(self, other: Any) -> bool:
        return _decided(-self, -other, "<") if _is_size(other) else self.__index__() > other

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        """The number that it is here; other sizes are then refused."""
        _guarded(self - self.hint, "==")
        return self.hint

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())


OPEN_SIZES.add(SymbolicSize)
HINT = 61  # of a bare name while tracing: a prime, which no size of a network is by accident


def opened(text: str, guards: list[Guard] | None = None) -> SymbolicSize:
    """The size that "N" or "H=224" names; a bare name counts as 1 where nothing else is said.

    >>> opened("H=224").hint
    224
    """
    name, equals, default = text.partition("=")
    if not name.isidentifier() or (equals and not (default.isascii() and default.isdigit() and int(default) > 0)):
        text = f"an open size is a name, or a name and a number such as H=224; got {text!r:.80}"
        raise ShapeError("input", text, rule="P5")
    number = int(default) if equals else 1
    symbol = Symbol(name, number if equals else HINT, number, [] if guards is None else guards)
    return SymbolicSize((((symbol,), 1),))


def identical(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two shapes are the same, whatever their open sizes are: nothing is decided about those.

    >>> n = opened("N")
    >>> identical((n, 3), (n, 3)), identical((n, 3), (1, 3))
    (True, False)
    """
    if not (any_open(one) or any_open(other)):
        return one == other
    return len(one) == len(other) and all(_identical(p, q) for p, q in zip(one, other, strict=True))


def any_open(shape: Sequence[Any]) -> bool:
    for n in shape:  # noqa: SIM110 - a loop costs a third of a generator, and every call of an operator asks
        if type(n) is SymbolicSize:
            return True
    return False


def _identical(p: Any, q: Any) -> bool:
    if isinstance(p, SymbolicSize) or isinstance(q, SymbolicSize):
        return (
            isinstance(p, SymbolicSize) and isinstance(q, SymbolicSize) and p.terms == q.terms
        )  # atoms compare as they are written
    return bool(p == q)


def indices(cut: slice, n: Any) -> tuple[Any, Any, Any]:
    """slice.indices, for open sizes too: an end that counts from the last cell counts from wherever that is.

    >>> indices(slice(1, -1), opened("N"))
    (1, N - 1, 1)
    """
    if SymbolicSize not in map(type, (cut.start, cut.stop, n)):
        return cut.indices(n)
    step = 1 if cut.step is None else cut.step
    if step < 1:
        return 0, n, step
    ends = (_end(end, n) for end in (0 if cut.start is None else cut.start, n if cut.stop is None else cut.stop))
    return (*ends, step)


def _end(end: Any, n: Any) -> Any:
    if end < 0:
        return 0 if end + n < 0 else end + n
    return n if end > n else end


@dataclass(frozen=True, eq=False, slots=True)
class Repeated:
    """An array that a trace has captured, broadcast to an open shape: a constant of the graph with that shape."""

    array: Any
    shape: tuple[Any, ...]


def is_one(n: Any) -> bool:
    """Whether an axis repeats where shapes are broadcast. An open one does not; where it turns out to be 1, what it is
    broadcast to or from leaves its values as they are."""
    return not isinstance(n, SymbolicSize) and bool(n == 1)


def smaller(one: Any, other: Any) -> Any:
    """min, without deciding which."""
    if isinstance(one, SymbolicSize) or isinstance(other, SymbolicSize):
        return made({(Smaller(one, other),): 1})
    return min(one, other)


def quotient(above: Any, below: Any) -> Any:
    """floor(above / below), term by term where that comes out even.

    >>> n = opened("N")
    >>> quotient(n * 4 + 3, 2), quotient(n + 1, 2)
    (2*N + 1, (N + 1)//2)
    """
    if below == 0:  # an open one is guarded not to be
        raise ShapeError("size", f"{above} cannot be divided by a size of 0")
    terms = _terms(below)
    if len(terms) != 1:
        return made({(Quotient(above, below),): 1})
    ((divisor, d),) = terms
    even: dict[tuple[Atom, ...], int] = {}
    rest: dict[tuple[Atom, ...], int] = {}
    for atoms, c in _terms(above):
        left = _without(atoms, divisor)
        if left is not None and c % d == 0:
            even[left] = c // d
        else:
            rest[atoms] = c
    remaining = made(rest)
    if isinstance(remaining, int) and not divisor:
        return made(even) + remaining // d
    return made(even) + (made({(Quotient(remaining, below),): 1}) if rest else 0)


def _without(atoms: tuple[Atom, ...], divisor: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
    left = list(atoms)
    for a in divisor:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


def made(terms: Mapping[tuple[Atom, ...], int]) -> Any:
    """A size from its terms; an int where nothing in it is open."""
    kept = {atoms: c for atoms, c in terms.items() if c}
    if not any(kept):
        return kept.get((), 0)
    return SymbolicSize(tuple(sorted(kept.items(), key=lambda term: (not term[0], tuple(map(str, term[0]))))))


def hint_of(size: SymbolicSize | int) -> int:
    return size.hint if isinstance(size, SymbolicSize) else size


def size_at(size: Any, sizes: Sizes) -> Any:
    """The number that a size is where its names have these values; what is no open size is left as it is."""
    return size.at(sizes) if isinstance(size, SymbolicSize) else size


def symbols_in(value: Any) -> Iterator[Symbol]:
    """Every named size in a size."""
    for atoms, _ in value.terms if isinstance(value, SymbolicSize) else ():
        for a in atoms:
            if isinstance(a, Symbol):
                yield a
            else:
                for part in (a.above, a.below) if isinstance(a, Quotient) else (a.one, a.other):
                    yield from symbols_in(part)


def _product(numbers: Iterator[int]) -> int:
    total = 1
    for n in numbers:
        total *= n
    return total


def _is_size(value: object) -> bool:
    return isinstance(value, SymbolicSize | np.integer) or (isinstance(value, int) and not isinstance(value, bool))


def _terms(value: Any) -> Terms:
    return value.terms if isinstance(value, SymbolicSize) else (((), int(value)),) if value else ()


def _decided(one: Any, other: Any, relation: Literal["==", "<"]) -> bool:
    """one == other, or one < other: for all sizes if the polynomials say so, else for those of the trace, and guarded.

    A named size is 0 or more.
    """
    difference = one - other
    if isinstance(difference, int):
        return difference == 0 if relation == "==" else difference < 0
    low, high = _range(difference)
    if (low is not None and low > 0) or (high is not None and high < 0) or (relation == "<" and low == 0):
        return relation == "<" and low is None
    return _guarded(difference, relation)


def _range(difference: SymbolicSize) -> tuple[int | None, int | None]:
    """The least and the largest value, where the signs of the terms tell."""
    constant = sum(c for atoms, c in difference.terms if not atoms)
    signs = {c > 0 for atoms, c in difference.terms if atoms}
    if not all(isinstance(a, Symbol) for atoms, _ in difference.terms for a in atoms) or len(signs) != 1:
        return None, None
    return (constant, None) if signs == {True} else (None, constant)


def _guarded(difference: Any, relation: Literal["==", "<"]) -> bool:
    held = bool(difference.hint == 0 if relation == "==" else difference.hint < 0)
    heard = _LISTENING.get()
    heard = next(symbols_in(difference)).guards if heard is None else heard
    heard.append(Guard(difference, relation, held, _where()))
    return held


def _where() -> str:
    """File and line of the innermost call outside this package."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
