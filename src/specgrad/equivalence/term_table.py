"""The terms of a normal form, each written once: two values are the same function when they are the same number.

    value   sum of scale * atom, plus a shift: scales and shifts are exact constants that repeat along axes
    atom    an input, or an operator applied to values and constants

One table holds the terms of both networks. What is in it twice has one number, so equality of functions that the rules
have brought into the same form is equality of two integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..scalar import Array
from ..window import Shape
from .constants import Constant, smallest

ONE = np.full((), Fraction(1), dtype=object)


@dataclass(frozen=True, slots=True)
class Atom:
    """An operator applied to values (their numbers) and, last, to weights (the number of a constant)."""

    op: str
    params: tuple[Any, ...]
    args: tuple[int, ...]
    shape: Shape
    weights: int | None = None


@dataclass(frozen=True, slots=True)
class AffineTerm:
    """sum of scale * atom + shift; a scale or a shift is the number of a constant of the value's rank."""

    shape: Shape
    terms: tuple[tuple[int, int], ...]
    shift: int | None


class TermTable:
    """Terms by number, and numbers by term."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.values: list[AffineTerm] = []
        self.constants: list[Constant] = []
        self._numbers: dict[Any, int] = {}

    def _number(self, kind: str, key: Any, entry: Any, entries: list[Any]) -> int:
        number = self._numbers.setdefault((kind, key), len(entries))
        if number == len(entries):
            entries.append(entry)
        return number

    def constant(self, constant: Constant) -> int:
        return self._number("constant", constant.key(), constant, self.constants)

    def cells(self, array: Array) -> int:
        """Exact numbers, each repetition once."""
        return self.constant(Constant(smallest(array)))

    def atom(self, atom: Atom) -> int:
        return self._number("atom", atom, atom, self.atoms)

    def value(self, value: AffineTerm) -> int:
        return self._number("value", value, value, self.values)

    # --- values as rules read and write them --------------------------------------------------------------------------

    def of_atom(self, atom: Atom) -> int:
        """The value that is one atom."""
        one = self.cells(ONE.reshape((1,) * len(atom.shape)))
        return self.value(AffineTerm(atom.shape, ((self.atom(atom), one),), None))

    def of_cells(self, shape: Shape, array: Array) -> int:
        """The value that is a constant: exact numbers, or finite floats, that broadcast to the shape."""
        array = smallest(array.reshape((1,) * (len(shape) - array.ndim) + array.shape))
        is_zero = not array.any() if array.dtype.kind == "f" else all(v == 0 for v in array.flat)
        return self.value(AffineTerm(shape, (), None if is_zero else self.cells(array)))

    def scale(self, number: int) -> Array:
        """The exact numbers of a constant that scales or shifts."""
        return self.constants[number].numbers()

    def shift_of(self, value: AffineTerm) -> Array:
        """The exact shift of a value, zeros of one cell where it has none."""
        if value.shift is None:
            return np.full((1,) * len(value.shape), Fraction(0), dtype=object)
        return self.scale(value.shift)

    def constant_of(self, number: int) -> Array | None:
        """The exact numbers of a value that is constant; None for others."""
        value = self.values[number]
        return None if value.terms else self.shift_of(value)

    def alone(self, number: int) -> Atom | None:
        """The atom of a value that is one atom, neither scaled nor shifted."""
        value = self.values[number]
        if len(value.terms) != 1 or value.shift is not None or not self.is_one(value.terms[0][1]):
            return None
        return self.atoms[value.terms[0][0]]

    def is_one(self, scale: int) -> bool:
        array = self.constants[scale].array
        return array.size == 1 and array.flat[0] == 1
