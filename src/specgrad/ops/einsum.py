"""Sums of products in index letters, with any equation of one or two values, as contractions and sums.

A letter that stands in one value alone and not in the result is summed inside the one contraction: so every order of
its additions and products is an order of one sum, and the radius of that sum holds for all of them.
"""

from __future__ import annotations

import string

from ..errors import ParameterError, ShapeError
from ..op import Value, composite, shape_of
from .contract import LETTERS, contract
from .layout import broadcast, permute, reshape, slice_, sum_


def _parse(equation: str, count: int) -> tuple[list[str], str]:
    """Return the letters of every value and of the result of an equation of `count` values.

    ParameterError for an ellipsis, other characters, or another number of values.

    Without an arrow the result has the letters that stand once, in alphabetical order.
    """
    text = equation.replace(" ", "")
    left, arrow, out = text.partition("->")
    terms = left.split(",")
    if not all(c in string.ascii_letters for c in left.replace(",", "") + out) or len(terms) != count:
        text = f"the equation must name letters for {count} values; got {equation!r}"
        raise ParameterError("einsum", text, rule="P5")
    if not arrow:
        out = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    if len(set(out)) != len(out) or not set(out) <= set(left):
        text = f"every letter of the result must stand once in it and in some value; got {equation!r}"
        raise ParameterError("einsum", text, rule="P5")
    return terms, out


def _name_ellipsis(equation: str, values: tuple[Value, ...]) -> tuple[str, tuple[Value, ...]]:
    """Return the equation with letters for the axes of an ellipsis, and the values without those that are stretched.

    As in NumPy the axes stand for each other from the last one on; one of size 1 beside a longer one is left out of its
    value. Without an arrow they come first in the result. ParameterError for dots that are no ellipsis, ShapeError for
    fewer axes than letters.
    """
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    wrong = any(t.replace("...", "", 1).count(".") for t in (*terms, out)) or len(terms) != len(values)
    if wrong or (arrow and "..." not in out):
        text = "an ellipsis is three dots, once in a term, and stands in the result; got {!r}"
        raise ParameterError("einsum", text.format(equation), rule="P5")
    if not arrow:
        letters = left.replace(".", "").replace(",", "")
        out = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    pairs = list(zip(terms, values, strict=True))
    counts = [len(shape_of(x)) - len(t.replace("...", "")) if "..." in t else 0 for t, x in pairs]
    if min(counts) < 0:
        raise ShapeError("einsum", f"{equation!r} has more letters than {[shape_of(x) for x in values]} have axes")
    fresh = [c for c in string.ascii_letters if c not in left + out]
    if max(counts) > len(fresh):
        raise ParameterError("einsum", f"no letters are left for the axes of the ellipsis of {equation!r}", rule="P5")
    names = "".join(fresh[: max(counts)])
    named, kept, longest = [], [], dict.fromkeys(names, 1)
    for term, x, count in zip(terms, values, counts, strict=True):
        at = term.find("...")
        for letter, n in zip(names[len(names) - count :], shape_of(x)[at : at + count] if count else (), strict=True):
            longest[letter] = n if longest[letter] == 1 else longest[letter]
    for term, x, count in zip(terms, values, counts, strict=True):
        full = term.replace("...", names[len(names) - count :])
        gone = [a for a, c in enumerate(full) if c in longest and shape_of(x)[a] == 1 != longest[c]]
        named.append("".join(c for a, c in enumerate(full) if a not in gone))
        kept.append(reshape(x, [n for a, n in enumerate(shape_of(x)) if a not in gone]) if gone else x)
    return f"{','.join(named)}->{out.replace('...', names)}", tuple(kept)


def _check_sizes(equation: str, terms: list[str], values: tuple[Value, ...]) -> dict[str, int]:
    """Return the size of every letter of the equation's `terms` for these values; raise ShapeError for unequal sizes (a
    size of 1 is not stretched).
    """
    sizes: dict[str, int] = {}
    for term, x in zip(terms, values, strict=True):
        if len(term) != len(shape_of(x)):
            raise ShapeError("einsum", f"{term!r} of {equation!r} does not fit shape {shape_of(x)}")
        for letter, n in zip(term, shape_of(x), strict=True):
            if sizes.setdefault(letter, n) != n:
                raise ShapeError("einsum", f"letter {letter} of {equation!r} is {sizes[letter]} and {n}")
    return sizes


def _diagonal(x: Value, term: str) -> tuple[Value, str]:
    """Return x[..i..i..], whose letters are `term`, as x[..i] with its letters: every (n+1)-th cell of the two axes as
    one.
    """
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            a = term.index(letter)
            b = term.index(letter, a + 1)
            rest = [k for k in range(len(term)) if k not in (a, b)]
            n = shape_of(x)[a]
            lead = tuple(shape_of(x)[k] for k in rest)
            flat = reshape(permute(x, [*rest, a, b]), (*lead, n * n))
            x = slice_(flat, *[None] * len(lead), slice(0, None, n + 1))
            term = "".join(term[k] for k in rest) + letter
    return x, term


def _add_letters(x: Value, term: str, letters: str, sizes: dict[str, int]) -> tuple[Value, str]:
    """Return x, whose letters are `term`, broadcast along further letters in front, and its letters; `sizes` are by
    letter.
    """
    x = reshape(x, (1,) * len(letters) + shape_of(x))
    return broadcast(x, [sizes[c] for c in letters + term]), letters + term


@composite
def einsum(equation: str, *values: Value) -> Value:
    """The sum of products that an equation of index letters names: "ij,jk->ik", "bhc,bwc->bhw", "ii->i", "ij->".

    One or two values; of three or more the order of the products is a choice that changes roundings, and is refused,
    as are sizes of 1 that would be stretched, but for those of an ellipsis: "...ij,...jk->...ik". Without an arrow the
    result has the axes of the ellipsis, then the letters that stand once, in alphabetical order.

    >>> import numpy as np
    >>> einsum("ij,kj->ki", np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]]))
    array([[11.],
           [17.]])
    >>> einsum("ii", np.array([[1.0, 2.0], [3.0, 4.0]]))
    array(5.)
    """
    if not 1 <= len(values) <= 2:
        text = f"one or two values; of {len(values)} the order of the products is open; write it as several"
        raise ParameterError("einsum", text, rule="P5")
    if "." in equation:
        equation, values = _name_ellipsis(equation, values)
    terms, out = _parse(equation, len(values))
    sizes = _check_sizes(equation, terms, values)
    parts = [_diagonal(x, term) for x, term in zip(values, terms, strict=True)]
    if len(parts) == 1:
        ((x, term),) = parts
        x = sum_(x, [a for a, c in enumerate(term) if c not in out])
        kept = [c for c in term if c in out]
        return permute(x, [kept.index(c) for c in out])
    (x, a), (z, b) = parts
    alone = ["".join(c for c in s if c not in t + out) for s, t in ((a, b), (b, a))]
    x, a = _add_letters(x, a, alone[1], sizes)
    z, b = _add_letters(z, b, alone[0], sizes)
    return contract(x, z, _in_contract_letters(f"{a},{b}->{out}"))


def _in_contract_letters(equation: str) -> str:
    """Return the equation in the lowercase letters that contractions take.

    ParameterError if it has too many.
    """
    letters = dict.fromkeys(c for c in equation if c not in ",->")
    if len(letters) > len(LETTERS):
        raise ParameterError("einsum", f"{len(letters)} letters are too many; at most {len(LETTERS)}", rule="P5")
    return equation.translate(str.maketrans("".join(letters), LETTERS[: len(letters)]))
