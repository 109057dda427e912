"""A property from a VNN-LIB text, 1.0 or 2.0: its inequalities sorted into boxes of inputs and rows over outputs."""

from __future__ import annotations

import gzip
import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from . import vnnlib2
from .boxes import VariableBounds
from .equal_cells import merged
from .interface import PropertyInterface
from .property import Alternative, Case, Property, PropertyError, refuse_wide, spacing
from .vnnlib1 import MOST_CHARACTERS, LinearExpression, Parsed, is_2_0, parse

LARGEST_WHOLE = 1 << 53  # whole numbers up to here are float64 numbers
CHUNK = 1 << 20
MOST_BOUNDS = 1 << 22  # of the boxes of all cases: cases x inputs, some 200 bytes each


def read(path: str | Path) -> Property:
    """A VNN-LIB file, plain or compressed (.gz). Version 2.0 needs the package `vnnlib`: specgrad[vnnlib]."""
    return read_text(text_of(path))


def text_of(path: str | Path) -> str:
    """What a file says, uncompressed."""
    path = Path(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return b"".join(_chunks(file, path.name)).decode("utf-8")
    except (EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise PropertyError(f"{path.name} is not readable: {error}") from None


def _chunks(file: Any, name: str) -> Any:
    """Piece by piece, so that a small compressed file cannot fill the memory."""
    total = 0
    while chunk := file.read(CHUNK):
        total += len(chunk)
        if total > MOST_CHARACTERS:
            raise PropertyError(f"{name} has over {MOST_CHARACTERS} characters")
        yield chunk


def read_text(text: str) -> Property:
    """The property that a VNN-LIB text states, 1.0 or 2.0."""
    parsed = vnnlib2.parse(text) if is_2_0(text) else parse(text)
    for name, declared in (("X", parsed.inputs), ("Y", parsed.outputs)):
        gaps = not isinstance(declared, range) and declared != set(range(len(declared)))
        if gaps or not declared:
            raise PropertyError(f"variables {name}_0, {name}_1, ... must be declared without gaps; got {len(declared)}")
    parsed, variables = merged(parsed)
    return _Sorted(parsed, variables).property()


class _Sorted:
    """Inequalities by what they name: one input alone bounds it, what names no input or more than that is a row."""

    def __init__(self, parsed: Parsed, variables: tuple[int, ...]) -> None:
        self.parsed, self.variables = parsed, variables
        self.count, self.outputs = max(variables) + 1, len(parsed.outputs)
        atoms = itertools.chain(parsed.common, *parsed.alternatives)
        self.seen = sorted({int(n[2:]) for a in atoms if not _bounds_one(a) for n in a.terms if n[0] == "X"})
        self.place = {f"X_{i}": self.outputs + k for k, i in enumerate(self.seen)}

    def property(self) -> Property:
        common, rows = self._bounds(self.parsed.common, VariableBounds({}, {}), ())
        common.refuse_if_empty(self.called)
        self._refuse_too_many(len(rows))
        boxes: dict[Any, list[list[LinearExpression]]] = {}
        left_out = 0
        for conjunction in self.parsed.alternatives:
            bounds, more = self._bounds(conjunction, common, rows)
            if bounds.empty() is None and _possible([*rows, *more]):
                boxes.setdefault(bounds, []).append([*rows, *more])
            else:
                left_out += 1
        if not boxes:
            raise PropertyError("no input and no outputs satisfy what is asserted, so there is nothing to prove")
        cases = tuple(self._case(bounds, alternatives) for bounds, alternatives in boxes.items())
        return Property(self.count, self.outputs + len(self.seen), cases, left_out, self._interface())

    def _interface(self) -> PropertyInterface | None:
        inputs, outputs = self.parsed.tensors
        alone = len(inputs) <= 1 and len(outputs) <= 1
        if alone and not self.seen and self.variables == tuple(range(self.count)):
            return None
        return PropertyInterface(self.variables, tuple(self.seen), inputs, outputs, self.parsed.models)

    def called(self, variable: int) -> str:
        """X_3, or where several tensors are declared image[0,3]."""
        cell = self.variables.index(variable)
        inputs = self.parsed.tensors[0]
        if len(inputs) < 2:
            return f"X_{cell}"
        tensor = next(t for t in inputs if (cell := cell - t.cells) < 0)
        index = np.unravel_index(cell + tensor.cells, tensor.shape)
        return f"{tensor.name}[{','.join(map(str, index))}]"

    def _bounds(
        self, atoms: Sequence[LinearExpression], old: VariableBounds, rows: Sequence[LinearExpression]
    ) -> tuple[VariableBounds, list[LinearExpression]]:
        """The box that a conjunction leaves, and its rows."""
        single = [atom for atom in atoms if _names_one(atom)]
        more = [atom for atom in atoms if not _bounds_one(atom)]
        sums = [atom for atom in (*rows, *more) if len(atom.terms) > 1 and all(n[0] == "X" for n in atom.terms)]
        changed = single or any(len(atom.terms) > 1 and all(n[0] == "X" for n in atom.terms) for atom in more)
        return (old.tightened(single).implied(sums) if changed else old), more

    def _refuse_too_many(self, common: int) -> None:
        """Rows x values and boxes x inputs, before any of them is made: a short text can ask for any number."""
        alternatives = self.parsed.alternatives
        refuse_wide(sum(common + len(c) for c in alternatives), self.outputs + len(self.seen))
        boxes = sum(any(name[0] == "X" for atom in c for name in atom.terms) for c in alternatives)
        if boxes * self.count > MOST_BOUNDS:
            raise PropertyError(f"{boxes} boxes of {self.count} inputs are over {MOST_BOUNDS} bounds")

    def _case(self, bounds: VariableBounds, alternatives: Sequence[Sequence[LinearExpression]]) -> Case:
        low, high = bounds.ends(self.count, self.called)
        moves = {f"X_{i}": spacing(low[i], high[i]) for i in self.seen}
        each = tuple(self._alternative(atoms, moves) for atoms in alternatives)
        return Case(low, high, each, seen=tuple(self.seen))

    def _alternative(self, atoms: Sequence[LinearExpression], moves: Mapping[str, Fraction]) -> Alternative:
        """Its rows; an inequality between numbers alone is true here, and needs none."""
        atoms = [atom for atom in atoms if atom.terms]
        rows, limits, exact = np.zeros((len(atoms), self.outputs + len(self.seen))), [], []
        for k, atom in enumerate(atoms):
            factor = math.lcm(*(c.denominator for c in atom.terms.values()))
            for name, c in atom.terms.items():
                if abs(c * factor) > LARGEST_WHOLE:
                    raise PropertyError(f"the coefficients of an inequality over {name} need over 53 bits")
                rows[k, self.place[name] if name[0] == "X" else int(name[2:])] = int(c * factor)
            exact.append(-atom.constant * factor)
            limits.append(exact[-1] + sum(abs(c) * factor * moves.get(name, 0) for name, c in atom.terms.items()))
        strict = frozenset(k for k, atom in enumerate(atoms) if atom.strict)
        return Alternative(rows, tuple(limits), tuple(exact) if exact != limits else None, strict)


def _names_one(atom: LinearExpression) -> bool:
    """Whether it bounds one input alone."""
    return len(atom.terms) == 1 and next(iter(atom.terms))[0] == "X"


def _bounds_one(atom: LinearExpression) -> bool:
    """Whether it is a bound of one input and nothing else; a box has its ends, so a strict bound is a row as well."""
    return _names_one(atom) and not atom.strict


def _possible(atoms: Sequence[LinearExpression]) -> bool:
    """Whether no inequality between numbers alone is false."""
    return all(atom.terms or (atom.constant < 0 if atom.strict else atom.constant <= 0) for atom in atoms)
