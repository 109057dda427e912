"""The text of a VNN-LIB 1.0 property as a disjunction of conjunctions of linear inequalities. PropertyError, with the
line, for what is malformed.

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

MAX_CHARACTERS = 1 << 28
MAX_ATOMS = 1 << 22  # of all disjunctive forms of a text, which can be exponentially longer than it
MAX_DIGITS = 1024
MAX_EXPONENT = 400
MAX_PRODUCT_BITS = 1 << 14
MAX_DEPTH = 1024
TOKEN = re.compile(r"(?:[ \t\n]|\r\n)+|;[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*|([()])|([!-'*-:<-~]+)")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE]([+-]?[0-9]+))?")
VARIABLE = re.compile(r"[XY]_(0|[1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class LinearExpression:
    """A sum of coefficient * variable (`terms`, by name), plus a constant; as an inequality <= 0, or < 0 if
    `strict`.
    """

    terms: dict[str, Fraction]
    constant: Fraction
    strict: bool = False

    def times(self, factor: Fraction) -> LinearExpression:
        """Return the expression multiplied by `factor`."""
        return LinearExpression({n: factor * v for n, v in self.terms.items() if factor}, factor * self.constant)


def combine(*parts: tuple[int, LinearExpression]) -> LinearExpression:
    """Return the sum of factor * expression over `parts`."""
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
    """What a text declares, and what it asserts: all of `common`, and any of `alternatives`.

    inputs, outputs   numbers of the declared variables X_i and Y_i
    tensors           declared input tensors and output tensors (VNN-LIB 2.0; none in 1.0)
    models            network -> the network that it is declared to be equal to (VNN-LIB 2.0)
    common            inequalities that all alternatives share
    alternatives      disjunctive normal form: any of them, all inequalities of it
    atoms             how many inequalities the disjunctive forms have so far
    """

    inputs: set[int] | range = field(default_factory=set)
    outputs: set[int] | range = field(default_factory=set)
    tensors: tuple[tuple[PropertyTensor, ...], tuple[PropertyTensor, ...]] = ((), ())
    models: Mapping[str, str] = field(default_factory=dict)
    common: tuple[Atom, ...] = ()
    alternatives: Formula = field(default_factory=lambda: [()])
    atoms: int = 0

    def count_atoms(self, atoms: int) -> None:
        """Count `atoms` more inequalities before they are made; raise PropertyError above MAX_ATOMS."""
        self.atoms += atoms
        if self.atoms > MAX_ATOMS:
            raise PropertyError(f"the disjunctive form has over {MAX_ATOMS} inequalities")


def parse(text: str) -> Parsed:
    """Return the declarations and the disjunctive normal form of a VNN-LIB 1.0 text.

    PropertyError, with the line, for what is not understood.

    >>> parsed = parse("(declare-const X_0 Real) (declare-const Y_0 Real) (assert (>= (* 2 X_0) Y_0))")
    >>> parsed.inputs, parsed.common[0].terms
    ({0}, {'Y_0': Fraction(1, 1), 'X_0': Fraction(-2, 1)})
    """
    reader = SExprReader()
    for token, position in tokens(text):
        try:
            reader.feed(token)
        except PropertyError as error:
            raise error.at(text.count("\n", 0, position) + 1) from None
    if reader.stack:
        raise PropertyError(f"{len(reader.stack)} parentheses are not closed")
    return reader.result()


def is_2_0(text: str) -> bool:
    """Return whether the first statement of a text is a version, which only 2.0 has; PropertyError for another one.

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
    """Yield parentheses and words, each with its position in the text; spaces and comments are left out.

    PropertyError for other characters, and for very many.
    """
    if len(text) > MAX_CHARACTERS:
        raise PropertyError(f"the text has {len(text)} characters; at most {MAX_CHARACTERS} are read")
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
    """S-expression parser: a stack of open lists; closing one replaces it by its meaning in the list around it."""

    def __init__(self) -> None:
        self.stack: list[list[Any]] = []
        self.parsed = Parsed()
        self.asserted: list[Formula] = []

    def feed(self, token: str) -> None:
        """Read one token, "(", ")" or a word; PropertyError if it does not belong there."""
        if token == "(":
            if len(self.stack) == MAX_DEPTH:
                raise PropertyError(f"over {MAX_DEPTH} parentheses are open at once")
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
        """Replace a closed list by its meaning: a statement at the top level, else a term or formula.

        PropertyError if its `items` have none.
        """
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
        """Carry out the statement `word`, a `declare-const` or an `assert`, with the arguments `rest`; PropertyError
        for others.
        """
        if word == "declare-const":
            self._declare(rest)
        elif word == "assert":
            if len(rest) != 1:
                raise PropertyError(f"assert takes one formula; got {len(rest)}")
            self.asserted.append(_formula(word, rest[0]))
        else:
            raise PropertyError(f"statement {word!r} is not understood; only declare-const and assert are")

    def _declare(self, rest: list[Any]) -> None:
        """Declare the variable of (declare-const X_0 Real), `rest` being what follows its first word.

        PropertyError if it is not of that form, or declared before.
        """
        if len(rest) != 2 or not all(isinstance(r, str) for r in rest) or not VARIABLE.fullmatch(rest[0]):
            raise PropertyError("a declaration must read (declare-const X_0 Real) or (declare-const Y_0 Real)")
        if rest[1] != "Real":
            raise PropertyError(f"variable {rest[0]} has sort {rest[1]}; only Real is understood")
        known = self.parsed.inputs if rest[0][0] == "X" else self.parsed.outputs
        assert isinstance(known, set)  # a range is declared by 2.0 alone
        if int(rest[0][2:]) in known:
            raise PropertyError(f"variable {rest[0]} is declared twice")
        known.add(int(rest[0][2:]))

    def result(self) -> Parsed:
        """Return `parsed`, everything read so far, after entering all assertions in disjunctive normal form."""
        self.parsed.common, several = _split_common(self.asserted)
        self.parsed.alternatives = _all_of("assert", several, self.parsed)
        return self.parsed


# --- terms ------------------------------------------------------------------------------------------------------------


def parse_number(token: str) -> Fraction | None:
    """Return a decimal at its exact value; None if the token is no number.

    PropertyError if it has too many digits.

    >>> parse_number("2.5e-1"), parse_number("one")
    (Fraction(1, 4), None)
    """
    match = NUMBER.fullmatch(token)
    if match is None:
        return None
    if len(token) > MAX_DIGITS or abs(int(match.group(3) or 0)) > MAX_EXPONENT:
        raise PropertyError(f"number {token[:24]}... has over {MAX_DIGITS} digits or an exponent over {MAX_EXPONENT}")
    return Fraction(token)


def _term(word: str, item: Any, parsed: Parsed) -> LinearExpression:
    """Return an operand `item` as a linear expression: a nested term, a number or a declared variable.

    PropertyError if it is none of them; `word` is the operator that reads it, for that error.
    """
    if isinstance(item, LinearExpression):
        return item
    if isinstance(item, list):
        raise PropertyError(f"({word} ...) needs terms; got a formula")
    value = parse_number(item)
    if value is not None:
        return LinearExpression({}, value)
    if not VARIABLE.fullmatch(item):
        raise PropertyError(f"{item!r} is neither a number nor a variable X_i or Y_j")
    if int(item[2:]) not in (parsed.inputs if item[0] == "X" else parsed.outputs):
        raise PropertyError(f"variable {item} is not declared")
    return LinearExpression({item: Fraction(1)}, Fraction(0))


def _sum(word: str, items: list[Any], parsed: Parsed) -> LinearExpression:
    """Return the sum of the operands `items`; `word` is the operator, for errors."""
    return combine(*((1, term) for term in _terms(word, items, parsed)))


def _difference(word: str, items: list[Any], parsed: Parsed) -> LinearExpression:
    """Return the first of the operands `items` minus all others; of one, its negation; `word` is the operator, for
    errors.
    """
    first, *rest = _terms(word, items, parsed)
    return combine((1, first), *((-1, term) for term in rest)) if rest else first.times(Fraction(-1))


def _product(word: str, items: list[Any], parsed: Parsed) -> LinearExpression:
    """Return the product of the operands `items`; raise PropertyError if more than one is not constant.

    `word` is the operator, for errors.
    """
    total = LinearExpression({}, Fraction(1))
    for term in _terms(word, items, parsed):
        if total.terms and term.terms:
            raise PropertyError("a product of two variables is not linear")
        total = term.times(total.constant) if term.terms else total.times(term.constant)
        if any(n.numerator.bit_length() + n.denominator.bit_length() > MAX_PRODUCT_BITS for n in _numbers(total)):
            raise PropertyError(f"a product has numbers of over {MAX_PRODUCT_BITS} bits")
    return total


def _numbers(term: LinearExpression) -> Iterator[Fraction]:
    """Yield the constant and all coefficients of a linear expression, `term`."""
    return itertools.chain((term.constant,), term.terms.values())


def _terms(word: str, items: list[Any], parsed: Parsed) -> list[LinearExpression]:
    """Return all operands `items` of `word` as linear expressions; raise PropertyError if there are none."""
    if not items:
        raise PropertyError(f"({word}) has no terms")
    return [_term(word, item, parsed) for item in items]


# --- formulas ---------------------------------------------------------------------------------------------------------


def _at_most(word: str, items: list[Any], parsed: Parsed) -> Formula:
    """Return the comparison `word` of two terms, `items`, as one inequality, left - right <= 0 (strict for < and >).

    PropertyError if there are not two.
    """
    if len(items) != 2:
        raise PropertyError(f"({word} ...) compares two terms; got {len(items)}")
    left, right = _terms(word, items if word[0] == "<" else items[::-1], parsed)
    return [(replace(combine((1, left), (-1, right)), strict=word in ("<", ">")),)]


def _formula(word: str, item: Any) -> Formula:
    """Return `item`, an operand of `word`, if it is a formula; raise PropertyError if it is a term."""
    if not isinstance(item, list):
        raise PropertyError(f"({word} ...) needs formulas; got a term")
    return item


def _refuse_empty(word: str, items: list[Any]) -> list[Any]:
    """Return `items`, the operands of `word`; raise PropertyError if there are none: (or) would be false and (and)
    true.
    """
    if not items:
        raise PropertyError(f"({word}) has no formulas")
    return items


def _any_of(word: str, items: list[Any], parsed: Parsed) -> Formula:
    """Return the disjunction of the formulas `items`: all their alternatives; `word` is the operator, for errors."""
    parsed.count_atoms(sum(len(_formula(word, item)) for item in items))
    return [alternative for item in items for alternative in _formula(word, item)]


def _all_of(word: str, items: list[Any], parsed: Parsed) -> Formula:
    """Return the conjunction of the formulas `items`, multiplied out to alternatives; `word` is the operator, for
    errors.
    """
    single, several = _split_common([_formula(word, item) for item in items])
    longest = len(single) + sum(max((len(a) for a in f), default=0) for f in several)
    parsed.count_atoms(math.prod(len(f) for f in several) * max(longest, 1))
    return [single + tuple(itertools.chain(*choice)) for choice in itertools.product(*several)]


def _split_common(formulas: list[Formula]) -> tuple[tuple[Atom, ...], list[Formula]]:
    """Return the inequalities of all formulas with one alternative, and the formulas that have several or none."""
    single = tuple(atom for f in formulas if len(f) == 1 for atom in f[0])
    return single, [f for f in formulas if len(f) != 1]


FORMULAS: dict[str, Callable[[str, list[Any], Parsed], Any]] = {
    "<=": _at_most,
    ">=": _at_most,
    "<": _at_most,
    ">": _at_most,
    "and": lambda word, items, parsed: _all_of(word, _refuse_empty(word, items), parsed),
    "or": lambda word, items, parsed: _any_of(word, _refuse_empty(word, items), parsed),
    "+": _sum,
    "-": _difference,
    "*": _product,
}
