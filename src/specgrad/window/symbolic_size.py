"""Symbolic sizes of a graph: integer expressions in named sizes, and the guards on what was decided about them.

A `SymbolicSize` is a polynomial in atoms with integer coefficients; an atom is a named size, a floor division that
does not come out even, or the smaller of two. Equal polynomials are equal sizes. What the polynomials do not decide
(N == 1? N < 4?) is decided by the sizes the trace was made with, and recorded as a `Guard`: the graph means the
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
from .sizes import OPEN_SIZES

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
Sizes = Mapping[str, Any]  # ints, or open sizes of another graph, into which this one is called
Terms = tuple[tuple[tuple["Atom", ...], int], ...]  # product of atoms -> coefficient, sorted


class _Atom:
    """Base class of atoms of an expression; two are equal if they are written alike, by `key`, which
    decides nothing."""

    __slots__ = ()

    @property
    def key(self) -> Any:
        """Return a hashable that is equal for atoms that are written alike."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Atom) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, slots=True, eq=False)
class Symbol(_Atom):
    """A size by its `name`; `hint` is its value while tracing, `default` its value unless another is given; `guards`
    lists what was decided about it.
    """

    name: str
    hint: int
    default: int
    guards: list[Guard] = field(default_factory=list, repr=False)

    @property
    def key(self) -> Any:
        """Return what equal symbols share: the name."""
        return self.name

    def at(self, sizes: Sizes) -> Any:
        """Return the symbol's value in `sizes`, by name."""
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
        """Return what equal quotients share: both parts as they are written."""
        return "//", open_key(self.above), open_key(self.below)

    @property
    def hint(self) -> int:
        """Return the quotient's value at the sizes of the trace."""
        return int(_floor_divide(hint_of(self.above), hint_of(self.below)))

    def at(self, sizes: Sizes) -> Any:
        """Return the quotient's value at the named sizes."""
        return _floor_divide(size_at(self.above, sizes), size_at(self.below, sizes))

    def __str__(self) -> str:
        return f"({self.above})//{self.below}" if isinstance(self.below, int) else f"({self.above})//({self.below})"


@dataclass(frozen=True, slots=True, eq=False)
class Smaller(_Atom):
    """The smaller of two sizes, `one` and `other`, as a factor of terms."""

    one: SymbolicSize | int
    other: SymbolicSize | int

    @property
    def key(self) -> Any:
        """Return what equal minima share: both parts as they are written."""
        return "min", open_key(self.one), open_key(self.other)

    @property
    def hint(self) -> int:
        """Return the minimum's value at the sizes of the trace."""
        return min(hint_of(self.one), hint_of(self.other))

    def at(self, sizes: Sizes) -> Any:
        """Return the minimum's value at the named sizes."""
        return smaller(size_at(self.one, sizes), size_at(self.other, sizes))

    def __str__(self) -> str:
        return f"min({self.one}, {self.other})"


Atom = Symbol | Quotient | Smaller


def open_key(value: Any) -> Any:
    """Return a hashable that stands for a value with symbolic sizes in it, without deciding anything."""
    if isinstance(value, tuple):
        return tuple(open_key(v) for v in value)
    if not isinstance(value, SymbolicSize):
        return value
    return ("size", *((tuple(a.key for a in atoms), c) for atoms, c in value.terms))


def _floor_divide(above: Any, below: Any) -> Any:
    """Return above // below; raise ShapeError for a divisor of 0."""
    if below == 0:
        raise ShapeError("size", f"{above} cannot be divided by a size of 0")
    return above // below


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """A decision of a trace at `where`: `difference` (of two sizes) is 0, or below 0, as `relation` says, if `held`;
    else it is not.
    """

    difference: SymbolicSize
    relation: Literal["==", "<"]
    held: bool
    where: str = ""

    @property
    def key(self) -> Any:
        """Return a hashable that is equal for equal decisions."""
        return open_key(self.difference), self.relation, self.held

    def holds(self, sizes: Sizes) -> bool:
        """Return whether the decision comes out the same at these sizes."""
        difference = self.difference.at(sizes)
        return bool(difference == 0 if self.relation == "==" else difference < 0) == self.held

    def __str__(self) -> str:
        words = {("==", True): "is", ("==", False): "is not", ("<", True): "is less than", ("<", False): "is at least"}
        more = from_terms({atoms: c for atoms, c in self.difference.terms if c > 0})
        less = from_terms({atoms: -c for atoms, c in self.difference.terms if c < 0})
        one, other = (less, more) if isinstance(more, int) and self.relation == "==" else (more, less)
        return f"{one} {words[self.relation, self.held]} {other}{f' ({self.where})' if self.where else ''}"


_GUARD_SINK: ContextVar[list[Guard] | None] = ContextVar("specgrad_guards", default=None)


@contextmanager
def without_guards() -> Iterator[None]:
    """Context manager in which decisions record no guard: shape rules and windows are run again for other sizes."""
    token = _GUARD_SINK.set([])
    try:
        yield
    finally:
        _GUARD_SINK.reset(token)


class SymbolicSize:
    """A size that is an expression in named sizes; made by `symbolic`, by arithmetic, or read from a shape.

    `terms` are (atoms, coefficient) pairs of the polynomial, `hint` is its value at the sizes of the trace.

    >>> n = symbolic("N")
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
        """Return the expression's value at the named sizes."""
        return sum(c * _product(a.at(sizes) for a in atoms) for atoms, c in self.terms)

    @property
    def symbol(self) -> Symbol | None:
        """Return the named size that this is; None if it is an expression."""
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
        for atoms, c in _terms_of(other):
            total[atoms] = total.get(atoms, 0) + c
        return from_terms(total)

    def __mul__(self, other: Any) -> Any:
        if not _is_size(other):
            return self.__index__() * other
        total: dict[tuple[Atom, ...], int] = {}
        for p, c in self.terms:
            for q, d in _terms_of(other):
                atoms = tuple(sorted(p + q, key=str))
                total[atoms] = total.get(atoms, 0) + c * d
        return from_terms(total)

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
        return _compare_sizes(self, other, "==") if _is_size(other) else False

    def __lt__(self, other: Any) -> bool:
        return _compare_sizes(self, other, "<") if _is_size(other) else self.__index__() < other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __gt__(self, other: Any) -> bool:
        return _compare_sizes(-self, -other, "<") if _is_size(other) else self.__index__() > other

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        """Return the number that it is in this trace; a guard then refuses other sizes."""
        _record_guard(self - self.hint, "==")
        return self.hint

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())


OPEN_SIZES.add(SymbolicSize)
HINT = 61  # of a bare name while tracing: a prime, which no size of a network is by accident


def symbolic(text: str, guards: list[Guard] | None = None) -> SymbolicSize:
    """Return the size that "N" or "H=224" names; a bare name defaults to 1.

    ShapeError for other texts. Comparisons of it are noted in `guards`.

    >>> symbolic("H=224").hint
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
    """Return whether shapes `one` and `other` are equal whatever their symbolic sizes are; nothing is decided about
    those.

    >>> n = symbolic("N")
    >>> identical((n, 3), (n, 3)), identical((n, 3), (1, 3))
    (True, False)
    """
    if not (any_open(one) or any_open(other)):
        return one == other
    return len(one) == len(other) and all(_same_size(p, q) for p, q in zip(one, other, strict=True))


def any_open(shape: Sequence[Any]) -> bool:
    """Return whether a shape has a symbolic size."""
    for n in shape:  # noqa: SIM110 - a loop costs a third of a generator, and every call of an operator asks
        if type(n) is SymbolicSize:
            return True
    return False


def _same_size(p: Any, q: Any) -> bool:
    """Return whether sizes p and q are written alike, or are equal numbers."""
    if isinstance(p, SymbolicSize) or isinstance(q, SymbolicSize):
        return (
            isinstance(p, SymbolicSize) and isinstance(q, SymbolicSize) and p.terms == q.terms
        )  # atoms compare as they are written
    return bool(p == q)


def indices(cut: slice, n: Any) -> tuple[Any, Any, Any]:
    """Return cut.indices(n) for symbolic sizes too: a negative end counts from the last cell, wherever that is.

    >>> indices(slice(1, -1), symbolic("N"))
    (1, N - 1, 1)
    """
    if SymbolicSize not in map(type, (cut.start, cut.stop, n)):
        return cut.indices(n)
    step = 1 if cut.step is None else cut.step
    if step < 1:
        return 0, n, step
    ends = (
        _clipped_end(end, n) for end in (0 if cut.start is None else cut.start, n if cut.stop is None else cut.stop)
    )
    return (*ends, step)


def _clipped_end(end: Any, n: Any) -> Any:
    """Return one end of a slice of an axis of n cells, clipped to 0..n; negative ones count from the last."""
    if end < 0:
        return 0 if end + n < 0 else end + n
    return n if end > n else end


@dataclass(frozen=True, eq=False, slots=True)
class Repeated:
    """A constant of a graph with a symbolic shape: a captured array that is broadcast to it."""

    array: Any
    shape: tuple[Any, ...]


def is_one(n: Any) -> bool:
    """Return whether an axis of n cells is repeated by broadcasting; a symbolic size counts as not 1.

    If it turns out to be 1, what it is broadcast to or from leaves its values as they are.
    """
    return not isinstance(n, SymbolicSize) and bool(n == 1)


def smaller(one: Any, other: Any) -> Any:
    """Return min(one, other), without deciding which."""
    if isinstance(one, SymbolicSize) or isinstance(other, SymbolicSize):
        return from_terms({(Smaller(one, other),): 1})
    return min(one, other)


def quotient(above: Any, below: Any) -> Any:
    """Return floor(above / below), term by term where that comes out even; ShapeError by 0.

    >>> n = symbolic("N")
    >>> quotient(n * 4 + 3, 2), quotient(n + 1, 2)
    (2*N + 1, (N + 1)//2)
    """
    if below == 0:  # an open one is guarded not to be
        raise ShapeError("size", f"{above} cannot be divided by a size of 0")
    terms = _terms_of(below)
    if len(terms) != 1:
        return from_terms({(Quotient(above, below),): 1})
    ((divisor, d),) = terms
    even: dict[tuple[Atom, ...], int] = {}
    rest: dict[tuple[Atom, ...], int] = {}
    for atoms, c in _terms_of(above):
        left = _divide_atoms(atoms, divisor)
        if left is not None and c % d == 0:
            even[left] = c // d
        else:
            rest[atoms] = c
    remaining = from_terms(rest)
    if isinstance(remaining, int) and not divisor:
        return from_terms(even) + remaining // d
    return from_terms(even) + (from_terms({(Quotient(remaining, below),): 1}) if rest else 0)


def _divide_atoms(atoms: tuple[Atom, ...], divisor: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
    """Return the atoms without those of the divisor; None if one is missing."""
    left = list(atoms)
    for a in divisor:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


def from_terms(terms: Mapping[tuple[Atom, ...], int]) -> Any:
    """Return a size from its terms; an int if nothing in it is symbolic."""
    kept = {atoms: c for atoms, c in terms.items() if c}
    if not any(kept):
        return kept.get((), 0)
    return SymbolicSize(tuple(sorted(kept.items(), key=lambda term: (not term[0], tuple(map(str, term[0]))))))


def hint_of(size: SymbolicSize | int) -> int:
    """Return the value of a size while tracing."""
    return size.hint if isinstance(size, SymbolicSize) else size


def size_at(size: Any, sizes: Sizes) -> Any:
    """Return the value of a size at these named sizes; anything else is returned as it is."""
    return size.at(sizes) if isinstance(size, SymbolicSize) else size


def symbols_in(value: Any) -> Iterator[Symbol]:
    """Yield every named size in the size `value`, as often as it occurs, those inside divisions too; none for a
    number.
    """
    for atoms, _ in value.terms if isinstance(value, SymbolicSize) else ():
        for a in atoms:
            if isinstance(a, Symbol):
                yield a
            else:
                for part in (a.above, a.below) if isinstance(a, Quotient) else (a.one, a.other):
                    yield from symbols_in(part)


def _product(numbers: Iterator[int]) -> int:
    """Return the product of an iterator's numbers; 1 for none."""
    total = 1
    for n in numbers:
        total *= n
    return total


def _is_size(value: object) -> bool:
    """Return whether value is a symbolic size or an int."""
    return isinstance(value, SymbolicSize | np.integer) or (isinstance(value, int) and not isinstance(value, bool))


def _terms_of(value: Any) -> Terms:
    """Return the terms, (atoms, coefficient), of a size or int `value`."""
    return value.terms if isinstance(value, SymbolicSize) else (((), int(value)),) if value else ()


def _compare_sizes(one: Any, other: Any, relation: Literal["==", "<"]) -> bool:
    """Return one == other, or one < other (`relation`): for all sizes if the polynomials decide it, else for the
    trace's, with a guard.

    A named size is 0 or more.
    """
    difference = one - other
    if isinstance(difference, int):
        return difference == 0 if relation == "==" else difference < 0
    low, high = _range_of_difference(difference)
    if (low is not None and low > 0) or (high is not None and high < 0) or (relation == "<" and low == 0):
        return relation == "<" and low is None
    return _record_guard(difference, relation)


def _range_of_difference(difference: SymbolicSize) -> tuple[int | None, int | None]:
    """Return the least and the largest value of a difference; None where the signs of its terms do not tell."""
    constant = sum(c for atoms, c in difference.terms if not atoms)
    signs = {c > 0 for atoms, c in difference.terms if atoms}
    if not all(isinstance(a, Symbol) for atoms, _ in difference.terms for a in atoms) or len(signs) != 1:
        return None, None
    return (constant, None) if signs == {True} else (None, constant)


def _record_guard(difference: Any, relation: Literal["==", "<"]) -> bool:
    """Return whether `difference` is == or < 0 (`relation`) at the trace's sizes, and record it as a guard."""
    held = bool(difference.hint == 0 if relation == "==" else difference.hint < 0)
    heard = _GUARD_SINK.get()
    heard = next(symbols_in(difference)).guards if heard is None else heard
    heard.append(Guard(difference, relation, held, _caller_position()))
    return held


def _caller_position() -> str:
    """Return file and line of the innermost caller outside this package, as text."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
