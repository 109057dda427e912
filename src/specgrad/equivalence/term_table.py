"""Hash-consed terms of normal forms: two values are the same function if they have the same number.

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
from .constants import Constant, drop_repeats

ONE = np.full((), Fraction(1), dtype=object)


@dataclass(frozen=True, slots=True)
class Atom:
    """An operator applied to values (`args`: their numbers) and to weights (the number of a constant), or an input.

    op, params   name of the operator ("input" for an input), and its parameters, hashable
    shape        of its value
    """

    op: str
    params: tuple[Any, ...]
    args: tuple[int, ...]
    shape: Shape
    weights: int | None = None

    @property
    def ruled(self) -> bool:
        """Whether a rule wrote the atom: an operator that stands as it is has names beside its parameters."""
        return not all(isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in self.params)


@dataclass(frozen=True, slots=True)
class AffineTerm:
    """A value of `shape`: sum of scale * atom + shift; `terms` holds (atom number, number of the scale constant)
    pairs.
    """

    shape: Shape
    terms: tuple[tuple[int, int], ...]
    shift: int | None


class TermTable:
    """Hash-consing table of atoms, values and constants: equal entries get equal numbers."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.values: list[AffineTerm] = []
        self.constants: list[Constant] = []
        self.sliced: dict[Any, int] = {}  # (value, ranges) -> the value that is its slice
        self.structures: Any = None  # `structures.Structures`, once they are asked for
        self._numbers: dict[Any, int] = {}

    def _number(self, kind: str, key: Any, entry: Any, entries: list[Any]) -> int:
        """Return the number of an `entry` among `entries`; append it if its key of this `kind` is new."""
        number = self._numbers.setdefault((kind, key), len(entries))
        if number == len(entries):
            entries.append(entry)
        return number

    def constant(self, constant: Constant) -> int:
        """Return the number of a constant, entering it if it is new.

        Of an equal one that was folded differently, the entry explains no more than both do.
        """
        number = self._number("constant", constant.key(), constant, self.constants)
        self.constants[number] = self.constants[number].folded_either_way(constant)
        return number

    def constant_number(self, array: Array) -> int:
        """Return the number of the constant `array` of exact numbers, stored without repetition."""
        return self.constant(Constant(drop_repeats(array)))

    def atom(self, atom: Atom) -> int:
        """Return the number of an atom, entering it if it is new."""
        return self._number("atom", atom, atom, self.atoms)

    def value(self, value: AffineTerm) -> int:
        """Return the number of a value, entering it if it is new."""
        return self._number("value", value, value, self.values)

    # --- values as rules read and write them --------------------------------------------------------------------------

    def value_of_atom(self, atom: Atom) -> int:
        """Return the number of the value that is one atom, with scale 1 and no shift."""
        one = self.constant_number(ONE.reshape((1,) * len(atom.shape)))
        return self.value(AffineTerm(atom.shape, ((self.atom(atom), one),), None))

    def value_of_constant(self, shape: Shape, array: Array, *, mixed: bool = False) -> int:
        """Return the number of the constant value `array`: exact numbers, or finite floats, that broadcast to
        `shape`.

        `mixed` as of a `Constant`.
        """
        array = drop_repeats(array.reshape((1,) * (len(shape) - array.ndim) + array.shape))
        is_zero = not array.any() if array.dtype.kind == "f" else all(v == 0 for v in array.flat)
        return self.value(AffineTerm(shape, (), None if is_zero else self.constant(Constant(array, mixed=mixed))))

    def numbers_of(self, number: int) -> Array:
        """Return the exact numbers of a constant, given its number."""
        return self.constants[number].numbers()

    def shift_of(self, value: AffineTerm) -> Array:
        """Return the exact shift of a value; a single zero if it has none."""
        if value.shift is None:
            return np.full((1,) * len(value.shape), Fraction(0), dtype=object)
        return self.numbers_of(value.shift)

    def constant_of(self, number: int) -> Array | None:
        """Return the exact numbers of the value `number`, with one cell along axes on which they repeat.

        None if it is not constant. TooManyError for one of too many cells.
        """
        value = self.values[number]
        return None if value.terms else self.shift_of(value)

    def single_atom(self, number: int) -> Atom | None:
        """Return the atom of the value `number` if it is one atom, neither scaled nor shifted; else None."""
        value = self.values[number]
        if len(value.terms) != 1 or value.shift is not None or not self.is_one(value.terms[0][1]):
            return None
        return self.atoms[value.terms[0][0]]

    def is_one(self, scale: int) -> bool:
        """Return whether the constant with the number `scale` is 1 in every cell."""
        array = self.constants[scale].array
        return array.size == 1 and array.flat[0] == 1
