"""A property from a VNN-LIB text, 1.0 or 2.0: its inequalities sorted into boxes of inputs and rows over outputs."""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from . import vnnlib2
from .property import Alternative, Case, Property, PropertyError, as_float, refuse_wide
from .vnnlib1 import MOST_CHARACTERS, Linear, Parsed, is_2_0, parse

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
    common, outputs = _bounds(parsed.common, _Bounds({}, {}))
    common.refuse_if_empty()
    _refuse_too_many(parsed, len(outputs))
    boxes: dict[Any, list[Alternative]] = {}
    left_out = 0
    for conjunction in parsed.alternatives:
        bounds, more = _bounds(conjunction, common)
        if bounds.empty() is None and _possible([*outputs, *more]):
            boxes.setdefault(bounds, []).append(_alternative([*outputs, *more], len(parsed.outputs)))
        else:
            left_out += 1
    if not boxes:
        raise PropertyError("no input and no outputs satisfy what is asserted, so there is nothing to prove")
    cases = tuple(b.case(len(parsed.inputs), alternatives) for b, alternatives in boxes.items())
    return Property(len(parsed.inputs), len(parsed.outputs), cases, left_out)


def _refuse_too_many(parsed: Parsed, common: int) -> None:
    """Inequalities x outputs and boxes x inputs, before any of them is made: a short text can ask for any number."""
    atoms = sum(common + len(conjunction) for conjunction in parsed.alternatives)
    refuse_wide(atoms, len(parsed.outputs))
    boxes = sum(any(name[0] == "X" for atom in c for name in atom.terms) for c in parsed.alternatives)
    if boxes * len(parsed.inputs) > MOST_BOUNDS:
        raise PropertyError(f"{boxes} boxes of {len(parsed.inputs)} inputs are over {MOST_BOUNDS} bounds")


def _possible(atoms: Sequence[Linear]) -> bool:
    """Whether no inequality between numbers alone is false."""
    return all(atom.terms or atom.constant <= 0 for atom in atoms)


@dataclass(frozen=True, eq=False)  # equal if the same object: alternatives that add no bound share one
class _Bounds:
    low: dict[int, Fraction]
    high: dict[int, Fraction]

    def tightened(self, atoms: Sequence[Linear]) -> _Bounds:
        """c*X + k <= 0 bounds X from above if c is positive, else from below."""
        low, high = dict(self.low), dict(self.high)
        for atom in atoms:
            ((name, slope),) = atom.terms.items()
            i, bound = int(name[2:]), -atom.constant / slope
            if slope > 0:
                high[i] = min(high.get(i, bound), bound)
            else:
                low[i] = max(low.get(i, bound), bound)
        return _Bounds(low, high)

    def empty(self) -> int | None:
        """An input whose bounds leave nothing."""
        both = self.low.keys() & self.high.keys()
        return next((i for i in sorted(both) if self.low[i] > self.high[i]), None)

    def refuse_if_empty(self) -> None:
        i = self.empty()
        if i is not None:
            low, high = as_float(self.low[i]), as_float(self.high[i])
            raise PropertyError(f"input X_{i} has lower bound {low} above upper bound {high}")

    def case(self, count: int, alternatives: Sequence[Alternative]) -> Case:
        for i in range(count):
            if i not in self.low or i not in self.high:
                raise PropertyError(f"input X_{i} has no {'upper' if i in self.low else 'lower'} bound")
        low, high = ([ends[i] for i in range(count)] for ends in (self.low, self.high))
        return Case(tuple(low), tuple(high), tuple(alternatives))


def _bounds(atoms: Sequence[Linear], common: _Bounds) -> tuple[_Bounds, list[Linear]]:
    """The bounds that a conjunction puts on inputs, and its inequalities over outputs."""
    inputs = [atom for atom in atoms if any(name[0] == "X" for name in atom.terms)]
    for atom in inputs:
        if len(atom.terms) > 1:
            names = ", ".join(list(atom.terms)[:4])
            raise PropertyError(f"an inequality over inputs must bound one of them alone; this one has {names}")
    outputs = [atom for atom in atoms if not any(name[0] == "X" for name in atom.terms)]
    return (common.tightened(inputs) if inputs else common), outputs


def _alternative(atoms: Sequence[Linear], outputs: int) -> Alternative:
    """Its rows; an inequality between numbers alone is true here, and needs none."""
    atoms = [atom for atom in atoms if atom.terms]
    rows, limits = np.zeros((len(atoms), outputs)), []
    for k, atom in enumerate(atoms):
        factor = math.lcm(*(c.denominator for c in atom.terms.values()))
        for name, c in atom.terms.items():
            if abs(c * factor) > LARGEST_WHOLE:
                raise PropertyError(f"the coefficients of an inequality over {name} need over 53 bits")
            rows[k, int(name[2:])] = int(c * factor)
        limits.append(-atom.constant * factor)
    return Alternative(rows, tuple(limits))
