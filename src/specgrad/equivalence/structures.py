"""Structures of terms: what is left of them without their constants, whatever order a network computes in."""

from __future__ import annotations

from typing import Any

from .linear_combinations import is_commutative
from .term_table import Atom, TermTable


class Structures:
    """Terms of `table` without their constants: equal for networks of one structure, whatever their weights are, and in
    whatever order they compute.
    """

    def __init__(self, table: TermTable) -> None:
        self._table = table
        self._numbers: dict[Any, int] = {}
        self._atoms: list[int] = []

    def of_atom(self, number: int) -> int:
        """Return the structure number of an atom; a new structure gets the next number."""
        table = self._table
        while len(self._atoms) <= number:  # what an atom is applied to was written before it
            atom = table.atoms[len(self._atoms)]
            weights = None if atom.weights is None else table.constants[atom.weights].shape
            args = tuple(self.of_value(a) for a in self.ordered_args(atom))
            key = (atom.op, atom.params, args, atom.shape, weights)
            self._atoms.append(self._numbers.setdefault(key, len(self._numbers)))
        return self._atoms[number]

    def of_value(self, number: int) -> int:
        """Return the structure number of a value; a new structure gets the next number.

        Only its atoms count, not shifts and scales.
        """
        value = self._table.values[number]
        key = ("value", value.shape, tuple(sorted(self.of_atom(a) for a, _ in value.terms)))
        return self._numbers.setdefault(key, len(self._numbers))

    def ordered_args(self, atom: Atom) -> tuple[int, ...]:
        """Return the value numbers of an atom's arguments; those of a commutative operator by their structures."""
        return tuple(sorted(atom.args, key=self.of_value)) if is_commutative(atom.op) else atom.args


def structures_of(table: TermTable) -> Structures:
    """Return the structures of a table, the same ones each time."""
    if table.structures is None:
        table.structures = Structures(table)
    known: Structures = table.structures
    return known
