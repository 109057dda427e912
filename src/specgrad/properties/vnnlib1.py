"""The text of a VNN-LIB 1.0 property as a disjunction of conjunctions of linear inequalities.

Every parenthesis is reduced to its meaning as soon as it closes, so there is no tree and nothing recurses. What the
subset does not have (negation, products of variables, other sorts) is refused by name.

    statement = (declare-const name Real) | (assert formula)
    formula   = (<= term term) | (>= term term) | (< term term) | (> term term) | (and formula ...) | (or formula ...)
    term      = number | variable | (+ term ...) | (- term ...) | (* term ...)      with at most one variable factor

Outside comments only ASCII counts, and lines end with LF or CR LF: what looks like a digit or a new line is one, and
nothing else is.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from .interface import PropertyTensor
from .property import PropertyError

MOST_CHARACTERS = 1 << 28
MOST_ATOMS = 1 << 22  # of all disjunctive forms of a text, which can be exponentially longer than it
MOST_DIGITS = 1024
MOST_EXPONENT = 400
MOST_BITS = 1 << 14
MOST_DEPTH = 1024
TOKEN = re.compile(r"(?:[ \t\n]|\r\n)+|;[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*|([()])|([!-'*-:<-~]+)")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE]([+-]?[0-9]+))?")
VARIABLE = re.compile(r"[XY]_(0|[1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class LinearExpression:
    """sum of coefficient * variable, plus a constant."""

    terms: dict[str, Fraction]
    constant: Fraction
    strict: bool = False

    def times(self, factor: Fraction) -> LinearExpression:
        return LinearExpression({n: factor * v for n, v in self.terms.items() if factor}, factor * self.constant)


def combine(*parts: tuple[int, LinearExpression]) -> LinearExpression:
    """The sum of factor * term."""
    terms: dict[str, Fraction] = {}
    for factor, part in parts:
        for name, value in part.terms.items():
            terms[name] = terms.get(name, Fraction(0)) + factor * value
    constant = sum((factor * part.constant for factor, part in parts), Fraction(0))
    return LinearExpression({name: value for name, value in terms.items() if value}, constant)


Atom = LinearExpression  # means: this is <= 0, or < 0 where it is strict
Formula = list[tuple[Atom, ...]]  # any of: all of


@dataclass
class Parsed:
    """What a text declares; what it asserts: all of `common`, and any of `alternatives`."""

    inputs: set[int] | range = field(default_factory=set)
    outputs: set[int] | range = field(default_factory=set)
    tensors: tuple[tuple[PropertyTensor, ...], tuple[PropertyTensor, ...]] = ((), ())
    models: Mapping[str, str] = field(default_factory=dict)
    common: tuple[Atom, ...] = ()
    alternatives: Formula = field(default_factory=lambda: [()])
    atoms: int = 0
    """Inequalities of the disjunctive forms so far."""

    def take(self, atoms: int) -> None:
        """Before they are made."""
        self.atoms += atoms
        if self.atoms > MOST_ATOMS:
            raise PropertyError(f"the disjunctive form has over {MOST_ATOMS} inequalities")


def parse(text: str) -> Parsed:
    """The declarations and the disjunctive normal form of a VNN-LIB 1.0 text.

    >>> parsed = parse("(declare-const X_0 Real) (declare-const Y_0 Real) (assert (>= (* 2 X_0) Y_0))")
    >>> parsed.inputs, parsed.common[0].terms
    ({0}, {'Y_0': Fraction(1, 1), 'X_0': Fraction(-2, 1)})
    """
    reader = SExprReader()
    for token, position in tokens(text):
        try:
            reader.take(token)
        except PropertyError as error:
            raise error.at(text.count("\n", 0, position) + 1) from None
    if reader.stack:
        raise PropertyError(f"{len(reader.stack)} parentheses are not closed")
    return reader.finished()


def is_2_0(text: str) -> bool:
    """Whether the first statement is a version, which only 2.0 has.

    >>> is_2_0("; a comment\\n(vnnlib-version <2.0>)"), is_2_0("(declare-const X_0 Real)")
    (True, False)
    """
    first = "".join(token for token, _ in itertools.islice(tokens(text), 4))
    if not first.startswith("(vnnlib-version"):
        return False
    if first != "(vnnlib-version<2.0>)":
        raise PropertyError(f"the version must be (vnnlib-version <2.0>), or none for 1.0; got {first[:40]}")
    return True


def tokens(text: str) -> Iterator[tuple[str, int]]:
    """Parentheses and words, each with its position; spaces and comments are left out."""
    if len(text) > MOST_CHARACTERS:
        raise PropertyError(f"the text has {len(text)} characters; at most {MOST_CHARACTERS} are read")
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            what = f"character U+{ord(text[at]):04X} is not read: only ASCII is, in lines that end with LF or CR LF"
            raise PropertyError(what, text.count("\n", 0, at) + 1)
        if match.lastindex:
            yield match.group(), at
        at = match.end()


class SExprReader:
    """A stack of open lists; closing one replaces it by its meaning in the list around it."""

    def __init__(self) -> None:
        self.stack: list[list[Any]] = []
        self.parsed = Parsed()
        self.asserted: list[Formula] = []

    def take(self, token: str) -> None:
        if token == "(":
            if len(self.stack) == MOST_DEPTH:
                raise PropertyError(f"over {MOST_DEPTH} parentheses are open at once")
            self.stack.append([])
        elif token == ")":
            if not self.stack:
                raise PropertyError("a parenthesis closes that was not opened")
            self._close(self.stack.pop())
        elif not self.stack:
            raise PropertyError(f"{token!r} stands outside any statement")
        else:
            self.stack[-1].append(token)

    def _close(self, items: list[Any]) -> None:
        if not items or not isinstance(items[0], str):
            raise PropertyError(f"({'' if not items else '( ...'}) is not understood: a list must begin with a word")
        word, rest = items[0], items[1:]
        if not self.stack:
            self._statement(word, rest)
        elif word in FORMULAS:
            self.stack[-1].append(FORMULAS[word](word, rest, self.parsed))
        else:
            known = ", ".join(FORMULAS)
            raise PropertyError(f"({word} ...) is not in the subset of VNN-LIB that is read here: {known}")

    def _statement(self, word: str, rest: list[Any]) -> None:
        if word == "declare-const":
            self._declare(rest)
        elif word == "assert":
            if len(rest) != 1:
                raise PropertyError(f"assert takes one formula; got {len(rest)}")
            self.asserted.append(_formula(word, rest[0]))
        else:
            raise PropertyError(f"statement {word!r} is not understood; only declare-const and assert are")

    def _declare(self, rest: list[Any]) -> None:
        if len(rest) != 2 or not all(isinstance(r, str) for r in rest) or not VARIABLE.fullmatch(rest[0]):
            raise PropertyError("a declaration must read (declare-const X_0 Real) or (declare-const Y_0 Real)")
        if rest[1] != "Real":
            raise PropertyError(f"variable {rest[0]} has sort {rest[1]}; only Real is understood")
        known = self.parsed.inputs if rest[0][0] == "X" else self.parsed.outputs
        assert isinstance(known, set)  # a range is declared by 2.0 alone
        if int(rest[0][2:]) in known:
            raise PropertyError(f"variable {rest[0]} is declared twice")
        known.add(int(rest[0][2:]))

    def finished(self) -> Parsed:
        self.parsed.common, several = _shared(self.asserted)
        self.parsed.alternatives = _all_of("assert", several, self.parsed)
        return self.parsed


# --- terms ------------------------------------------------------------------------------------------------------------


def number(token: str) -> Fraction | None:
    """A decimal at its exact value; None if it is no number.

    >>> number("2.5e-1"), number("one")
    (Fraction(1, 4), None)
    """
    match = NUMBER.fullmatch(token)
    if match is None:
        return None
    if len(token) > MOST_DIGITS or abs(int(match.group(3) or 0)) > MOST_EXPONENT:
        raise PropertyError(f"number {token[:24]}... has over {MOST_DIGITS} digits or an exponent over {MOST_EXPONENT}")
    return Fraction(token)


def _term(word: str, item: Any, parsed: Parsed) -> LinearExpression:
    if isinstance(item, LinearExpression):
        return item
    if isinstance(item, list):
        raise PropertyError(f"({word} ...) needs terms; got a formula")
    value = number(item)
    if value is not None:
        return LinearExpression({}, value)
    if not VARIABLE.fullmatch(item):
        raise PropertyError(f"{item!r} is neither a number nor a variable X_i or Y_j")
    if int(item[2:]) not in (parsed.inputs if item[0] == "X" else parsed.outputs):
        raise PropertyError(f"variable {item} is not declared")
    return LinearExpression({item: Fraction(1)}, Fraction(0))


def _sum(word: str, items: list[Any], parsed: Parsed) -> LinearExpression:
    return combine(*((1, term) for term in _terms(word, items, parsed)))


def _difference(word: str, items: list[Any], parsed: Parsed) -> LinearExpression:
    first, *rest = _terms(word, items, parsed)
    return combine((1, first), *((-1, term) for term in rest)) if rest else first.times(Fraction(-1))


def _product(word: str, items: list[Any], parsed: Parsed) -> LinearExpression:
    total = LinearExpression({}, Fraction(1))
    for term in _terms(word, items, parsed):
        if total.terms and term.terms:
            raise PropertyError("a product of two variables is not linear")
        total = term.times(total.constant) if term.terms else total.times(term.constant)
        if any(n.numerator.bit_length() + n.denominator.bit_length() > MOST_BITS for n in _numbers(total)):
            raise PropertyError(f"a product has numbers of over {MOST_BITS} bits")
    return total


def _numbers(term: LinearExpression) -> Iterator[Fraction]:
    return itertools.chain((term.constant,), term.terms.values())


def _terms(word: str, items: list[Any], parsed: Parsed) -> list[LinearExpression]:
    if not items:
        raise PropertyError(f"({word}) has no terms")
    return [_term(word, item, parsed) for item in items]


# --- formulas ---------------------------------------------------------------------------------------------------------


def _at_most(word: str, items: list[Any], parsed: Parsed) -> Formula:
    if len(items) != 2:
        raise PropertyError(f"({word} ...) compares two terms; got {len(items)}")
    left, right = _terms(word, items if word[0] == "<" else items[::-1], parsed)
    return [(replace(combine((1, left), (-1, right)), strict=word in ("<", ">")),)]


def _formula(word: str, item: Any) -> Formula:
    if not isinstance(item, list):
        raise PropertyError(f"({word} ...) needs formulas; got a term")
    return item


def _some(word: str, items: list[Any]) -> list[Any]:
    """An empty (or) is false and an empty (and) is true: nobody means that."""
    if not items:
        raise PropertyError(f"({word}) has no formulas")
    return items


def _any_of(word: str, items: list[Any], parsed: Parsed) -> Formula:
    parsed.take(sum(len(_formula(word, item)) for item in items))
    return [alternative for item in items for alternative in _formula(word, item)]


def _all_of(word: str, items: list[Any], parsed: Parsed) -> Formula:
    """Multiplied out; what has one alternative alone is not multiplied."""
    single, several = _shared([_formula(word, item) for item in items])
    longest = len(single) + sum(max((len(a) for a in f), default=0) for f in several)
    parsed.take(math.prod(len(f) for f in several) * max(longest, 1))
    return [single + tuple(itertools.chain(*choice)) for choice in itertools.product(*several)]


def _shared(formulas: list[Formula]) -> tuple[tuple[Atom, ...], list[Formula]]:
    """What every alternative has, and what is left to choose from."""
    single = tuple(atom for f in formulas if len(f) == 1 for atom in f[0])
    return single, [f for f in formulas if len(f) != 1]


FORMULAS: dict[str, Callable[[str, list[Any], Parsed], Any]] = {
    "<=": _at_most,
    ">=": _at_most,
    "<": _at_most,
    ">": _at_most,
    "and": lambda word, items, parsed: _all_of(word, _some(word, items), parsed),
    "or": lambda word, items, parsed: _any_of(word, _some(word, items), parsed),
    "+": _sum,
    "-": _difference,
    "*": _product,
}
