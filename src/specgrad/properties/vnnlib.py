"""Read a property from a VNN-LIB text, 1.0 or 2.0: inequalities become boxes of inputs and rows over outputs."""

from __future__ import annotations

import gzip
import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..bounded_files import opened
from .boxes import VariableBounds, merge_equal_cells
from .interface import PropertyInterface
from .property import Alternative, Case, Property, PropertyError, refuse_too_many_entries, spacing
from .vnnlib1 import MAX_CHARACTERS, LinearExpression, Parsed, is_2_0, parse

MAX_EXACT_INTEGER = 1 << 53  # whole numbers up to here are float64 numbers
CHUNK_BYTES = 1 << 20
MAX_BOX_BOUNDS = 1 << 22  # of the boxes of all cases: cases x inputs, some 200 bytes each


def read(path: str | Path) -> Property:
    """Return the property that a VNN-LIB file states, plain or .gz.

    Version 2.0 needs the package `vnnlib`: specgrad[vnnlib].

    Parameters
    ----------
    path : str or Path
        A VNN-LIB file, plain or .gz.

    Returns
    -------
    Property
        What the file states.

    Raises
    ------
    PropertyError
        If the text is malformed, or states what is not supported.
    OSError
        If the file cannot be read.
    MissingPackageError
        For version 2.0 without `vnnlib`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "p.vnnlib"
    >>> _ = path.write_text('''(declare-const X_0 Real) (declare-const Y_0 Real)
    ... (assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= Y_0 3))''')
    >>> stated = read(path)
    >>> stated.inputs, stated.outputs, len(stated.cases)
    (1, 1, 1)
    """
    return read_text(text_of(path))


def text_of(path: str | Path) -> str:
    """Return the text of a file, decompressed if its name ends in .gz; PropertyError if it is damaged or no UTF-8.

    OSError passes.
    """
    path = Path(path)
    try:
        with opened(path) as (raw, _), gzip.open(raw) if path.suffix == ".gz" else nullcontext(raw) as file:
            return b"".join(_chunks(file, path.name)).decode("utf-8")
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise PropertyError(f"{path.name} is not readable: {error}") from None


def _chunks(file: Any, name: str) -> Any:
    """Yield the bytes of a file in chunks; raise PropertyError, with its `name`, beyond MAX_CHARACTERS: a .gz must not
    fill memory.
    """
    total = 0
    while chunk := file.read(CHUNK_BYTES):
        total += len(chunk)
        if total > MAX_CHARACTERS:
            raise PropertyError(f"{name} has over {MAX_CHARACTERS} characters")
        yield chunk


def read_text(text: str) -> Property:
    """Return the property that a VNN-LIB text states.

    Parameters
    ----------
    text : str
        The property, in VNN-LIB 1.0 or 2.0.

    Returns
    -------
    Property
        What the text states.

    Raises
    ------
    PropertyError
        If variables are not declared without gaps, or the text is malformed.
    MissingPackageError
        For version 2.0 without `vnnlib`.

    Examples
    --------
    >>> text = "(declare-const X_0 Real) (declare-const Y_0 Real)"
    >>> text += "(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= Y_0 3))"
    >>> read_text(text).cases[0].high
    (Fraction(1, 1),)
    """
    parsed = _parse_2_0(text) if is_2_0(text) else parse(text)
    for name, declared in (("X", parsed.inputs), ("Y", parsed.outputs)):
        gaps = not isinstance(declared, range) and declared != set(range(len(declared)))
        if gaps or not declared:
            raise PropertyError(f"variables {name}_0, {name}_1, ... must be declared without gaps; got {len(declared)}")
    parsed, variables = merge_equal_cells(parsed)
    return _PropertyBuilder(parsed, variables).build()


def _parse_2_0(text: str) -> Parsed:
    """Parse a VNN-LIB 2.0 text, by the package `vnnlib`, which 1.0 does without.

    PropertyError if the text is malformed.
    """
    from .vnnlib2 import parse as parse_2_0

    return parse_2_0(text)


class _PropertyBuilder:
    """Builds a Property: inequalities of one input become bounds of the box; others, and strict ones, rows.

    It builds from the text that was `parsed`, `variables` being the number of the variable of every input cell.
    """

    def __init__(self, parsed: Parsed, variables: tuple[int, ...]) -> None:
        self.parsed, self.variables = parsed, variables
        self.count, self.outputs = max(variables) + 1, len(parsed.outputs)
        atoms = itertools.chain(parsed.common, *parsed.alternatives)
        self.named_inputs = sorted({int(n[2:]) for a in atoms if not _is_box_bound(a) for n in a.terms if n[0] == "X"})
        self.value_index = {f"X_{i}": self.outputs + k for k, i in enumerate(self.named_inputs)}

    def build(self) -> Property:
        """Return the property: one case per distinct box, with the alternatives that share it.

        PropertyError if no case is left.
        """
        common, rows = self._box_and_rows(self.parsed.common, VariableBounds({}, {}), ())
        common.refuse_if_empty(self.variable_name)
        self._refuse_too_many(len(rows))
        boxes: dict[Any, list[list[LinearExpression]]] = {}
        left_out = 0
        for conjunction in self.parsed.alternatives:
            bounds, more = self._box_and_rows(conjunction, common, rows)
            if bounds.empty_variable() is None and _may_hold([*rows, *more]):
                boxes.setdefault(bounds, []).append([*rows, *more])
            else:
                left_out += 1
        if not boxes:
            raise PropertyError("no input and no outputs satisfy what is asserted, so there is nothing to prove")
        cases = tuple(self._case(bounds, alternatives) for bounds, alternatives in boxes.items())
        return Property(self.count, self.outputs + len(self.named_inputs), cases, left_out, self._interface())

    def _interface(self) -> PropertyInterface | None:
        """Return which tensors are declared, the variable of each input cell, and which inputs rows name.

        None if there is at most one tensor on each side, every input cell is its own variable, and no row names inputs.
        """
        inputs, outputs = self.parsed.tensors
        alone = len(inputs) <= 1 and len(outputs) <= 1
        if alone and not self.named_inputs and self.variables == tuple(range(self.count)):
            return None
        return PropertyInterface(self.variables, tuple(self.named_inputs), inputs, outputs, self.parsed.models)

    def variable_name(self, variable: int) -> str:
        """Return the name of a variable as the text writes it: X_3, or image[0,3] with several tensors."""
        cell = self.variables.index(variable)
        inputs = self.parsed.tensors[0]
        if len(inputs) < 2:
            return f"X_{cell}"
        tensor = next(t for t in inputs if (cell := cell - t.cells) < 0)
        index = np.unravel_index(cell + tensor.cells, tensor.shape)
        return f"{tensor.name}[{','.join(map(str, index))}]"

    def _box_and_rows(
        self, atoms: Sequence[LinearExpression], old: VariableBounds, rows: Sequence[LinearExpression]
    ) -> tuple[VariableBounds, list[LinearExpression]]:
        """Return the bounds that a conjunction `atoms` implies beside `old` ones, and its inequalities that must be
        rows.

        `rows` are those of all conjunctions.
        """
        single = [atom for atom in atoms if _is_single_input(atom)]
        more = [atom for atom in atoms if not _is_box_bound(atom)]
        sums = [atom for atom in (*rows, *more) if len(atom.terms) > 1 and all(n[0] == "X" for n in atom.terms)]
        changed = single or any(len(atom.terms) > 1 and all(n[0] == "X" for n in atom.terms) for atom in more)
        return (old.tightened(single).implied(sums) if changed else old), more

    def _refuse_too_many(self, common: int) -> None:
        """Raise PropertyError if rows (`common` ones in each alternative) or boxes would need too much memory, before
        any is made.
        """
        alternatives = self.parsed.alternatives
        refuse_too_many_entries(sum(common + len(c) for c in alternatives), self.outputs + len(self.named_inputs))
        boxes = sum(any(name[0] == "X" for atom in c for name in atom.terms) for c in alternatives)
        if boxes * self.count > MAX_BOX_BOUNDS:
            raise PropertyError(f"{boxes} boxes of {self.count} inputs are over {MAX_BOX_BOUNDS} bounds")

    def _case(self, bounds: VariableBounds, alternatives: Sequence[Sequence[LinearExpression]]) -> Case:
        """Return the case of one box and the alternatives that share it."""
        low, high = bounds.box(self.count, self.variable_name)
        moves = {f"X_{i}": spacing(low[i], high[i]) for i in self.named_inputs}
        each = tuple(self._alternative(atoms, moves) for atoms in alternatives)
        return Case(low, high, each, named_inputs=tuple(self.named_inputs))

    def _alternative(self, atoms: Sequence[LinearExpression], moves: Mapping[str, Fraction]) -> Alternative:
        """Return the rows of a conjunction `atoms`, scaled to integers; true inequalities between numbers need none.

        `moves` are values of variables that are constant.

        PropertyError if these need over 53 bits.
        """
        atoms = [atom for atom in atoms if atom.terms]
        rows, limits, exact = np.zeros((len(atoms), self.outputs + len(self.named_inputs))), [], []
        for k, atom in enumerate(atoms):
            factor = math.lcm(*(c.denominator for c in atom.terms.values()))
            for name, c in atom.terms.items():
                if abs(c * factor) > MAX_EXACT_INTEGER:
                    raise PropertyError(f"the coefficients of an inequality over {name} need over 53 bits")
                rows[k, self.value_index[name] if name[0] == "X" else int(name[2:])] = int(c * factor)
            exact.append(-atom.constant * factor)
            limits.append(exact[-1] + sum(abs(c) * factor * moves.get(name, 0) for name, c in atom.terms.items()))
        strict = frozenset(k for k, atom in enumerate(atoms) if atom.strict)
        return Alternative(rows, tuple(limits), tuple(exact) if exact != limits else None, strict)


def _is_single_input(atom: LinearExpression) -> bool:
    """Return whether the inequality `atom` names one input and nothing else."""
    return len(atom.terms) == 1 and next(iter(atom.terms))[0] == "X"


def _is_box_bound(atom: LinearExpression) -> bool:
    """Return whether the inequality `atom` is a non-strict bound of one input; a strict one must be a row as well."""
    return _is_single_input(atom) and not atom.strict


def _may_hold(atoms: Sequence[LinearExpression]) -> bool:
    """Return whether no inequality of `atoms` between numbers alone is false."""
    return all(atom.terms or (atom.constant < 0 if atom.strict else atom.constant <= 0) for atom in atoms)
