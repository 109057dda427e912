"""Symbolic sizes, windows over them and guards as JSON data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specgrad.window import Guard, OpenWindow, SymbolicSize, window_over
from specgrad.window.symbolic_size import Atom, Quotient, Symbol, from_terms, quotient, smaller

MAX_NUMBER = 1 << 40  # of a number in an expression
MAX_TERMS = 1000  # terms of an expression


def encode_size(size: SymbolicSize | int) -> Any:
    """Return a size as JSON data: an int, or a sum of products, [coefficient, factors] each.

    >>> from specgrad.window import symbolic
    >>> encode_size(symbolic("N") * 3 + 1)
    {'size': [[3, ['N']], [1, []]]}
    """
    if not isinstance(size, SymbolicSize):
        return size
    return {"size": [[c, [_encode_atom(a) for a in atoms]] for atoms, c in size.terms]}


def _encode_atom(atom: Atom) -> Any:
    """Return one factor as JSON data: a name, {"quotient": [a, b]}, or {"smaller": [a, b]}, a and b as of
    `encode_size`.
    """
    if isinstance(atom, Symbol):
        return atom.name
    if isinstance(atom, Quotient):
        return {"quotient": [encode_size(atom.above), encode_size(atom.below)]}
    return {"smaller": [encode_size(atom.one), encode_size(atom.other)]}


def encode_window(window: OpenWindow) -> Any:
    """Return a window over symbolic sizes as JSON data: the arguments that it was made with."""
    asked = {name: [encode_size(n) for n in value] if name == "output" else value for name, value in window.asked}
    sizes = [encode_size(n) for n in window.sizes]
    return {"asked": [window.made, window.operator, sizes, asked]}


def encode_guard(guard: Guard) -> Any:
    """Return a guard, a decision about open sizes, as JSON data."""
    return [encode_size(guard.difference), guard.relation, guard.held, guard.where]


class SymbolicReader:
    """Decoder of JSON data over the names of `sizes` (name: [hint, default]); raises error(text) where the data are
    invalid.

    `error` is called with a sentence and returns the exception to raise.
    """

    def __init__(self, sizes: dict[str, Any], error: Callable[[str], Exception]) -> None:
        self.error = error
        self.symbols: dict[str, Symbol] = {}
        for name, pair in sizes.items():
            hint, default = pair
            if not name.isidentifier() or not all(type(n) is int and 0 < n <= MAX_NUMBER for n in (hint, default)):
                raise error(f"an open size must have a name and two numbers; got {str({name: pair})[:80]}")
            self.symbols[name] = Symbol(name, hint, default)

    def size(self, data: Any) -> Any:
        """Return the symbolic size, or plain number, that JSON `data` state; raises the reader's `error` if they state
        none.
        """
        if type(data) is int and abs(data) <= MAX_NUMBER:
            return data
        if not isinstance(data, dict) or list(data) != ["size"] or not 0 < len(data["size"]) <= MAX_TERMS:
            raise self.error(f"a size must be a whole number or an expression; got {str(data)[:80]}")
        total: Any = 0
        for c, atoms in data["size"]:
            if type(c) is not int or abs(c) > MAX_NUMBER or len(atoms) > MAX_TERMS:
                raise self.error(f"a coefficient must be a whole number; got {str(c)[:80]}")
            term: Any = c
            for atom in atoms:
                term = term * self._atom(atom)
            total = total + term
        return total

    def _atom(self, data: Any) -> Any:
        """Return the factor that JSON data stand for: a named size, quotient or minimum; `error` if they state none."""
        if isinstance(data, str) and data in self.symbols:
            return from_terms({(self.symbols[data],): 1})
        if isinstance(data, dict) and len(data) == 1:
            ((kind, (one, other)),) = data.items()
            if kind in ("quotient", "smaller"):
                return (quotient if kind == "quotient" else smaller)(self.size(one), self.size(other))
        raise self.error(f"an expression must be made of {', '.join(self.symbols)}; got {str(data)[:80]}")

    def value(self, data: Any, plain: Callable[[Any], Any]) -> Any:
        """Return the parameter of an operator that JSON `data` state; `plain` decodes what has no symbolic size in
        it.
        """
        if isinstance(data, list):
            return tuple(self.value(v, plain) for v in data)
        if isinstance(data, dict) and list(data) == ["size"]:
            return self.size(data)
        if isinstance(data, dict) and list(data) == ["asked"]:
            made_by, operator, sizes, asked = data["asked"]
            options = {str(name): self.value(v, plain) for name, v in asked.items()}
            return window_over(made_by, str(operator), tuple(self.size(n) for n in sizes), options)
        return plain(data)

    def guard(self, data: Any) -> Guard:
        """Return the guard that JSON data [difference, relation, held, where] stand for; raises the reader's `error`
        unless an open size is compared by "==" or "<" and `held` is a bool.
        """
        difference, relation, held, where = data
        size = self.size(difference)
        if not isinstance(size, SymbolicSize) or relation not in ("==", "<") or type(held) is not bool:
            raise self.error(f"a guard must compare an open size; got {str(data)[:80]}")
        return Guard(size, relation, held, str(where)[:200])
