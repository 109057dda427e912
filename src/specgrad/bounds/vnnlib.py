"""Properties of a network: which inputs, and what their outputs must never be.

A property is stated by its counterexamples, as VNN-LIB does: it holds if no input of a case's box has outputs that
satisfy all inequalities of one of its alternatives. Numbers are rationals, exactly as written.

A box is written in decimals; what a user feeds is float32. Which inputs are meant:

    a proof          covers every float32 number of the smallest float32 box that holds the box: `Case.outer`. So it
                     covers what any input of the box becomes when it is rounded to float32, in whatever direction.
    a counterexample is a float32 input that lies in the box itself, compared exactly: `Case.inner`, `Case.has`.
                     A cell such as 0.1..0.1 holds no float32 number, so such a box has no counterexample to show.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..scalar import Array
from . import vnnlib2
from .vnnlib_parse import MOST_CHARACTERS, Linear, Parsed, PropertyError, is_2_0, parse

LARGEST_FLOAT32 = ((1 << 24) - 1) << 104
LARGEST_WHOLE = 1 << 53  # whole numbers up to here are float64 numbers
CHUNK = 1 << 20
MOST_ENTRIES = 1 << 25  # of the rows of all alternatives: inequalities x outputs, 8 bytes each
MOST_BOUNDS = 1 << 22  # of the boxes of all cases: cases x inputs, some 200 bytes each


@dataclass(frozen=True, eq=False)
class Alternative:
    """A region of outputs: rows @ y <= limits. The rows hold whole numbers, the limits are rationals."""

    rows: Array
    limits: tuple[Fraction, ...]

    def contains(self, y: Array) -> bool:
        """Whether these outputs, taken at their exact values, lie in the region."""
        if not np.isfinite(y).all():
            return False
        exact = [Fraction(float(v)) for v in np.ravel(y)]
        sums = (sum((int(c) * exact[j] for j, c in enumerate(row) if c), Fraction(0)) for row in self.rows)
        return all(total <= limit for total, limit in zip(sums, self.limits, strict=True))


@dataclass(frozen=True, eq=False)
class Case:
    """One box of inputs, flat, as rationals; a counterexample's outputs lie in one of the alternatives."""

    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]
    alternatives: tuple[Alternative, ...]

    def outer(self) -> tuple[Array, Array]:
        """The smallest float32 box, in float64, that holds every input and every input rounded to float32."""
        return _float32(self.low, -1), _float32(self.high, 1)

    def inner(self) -> tuple[Array, Array]:
        """The least and the largest float32 number of every cell; the first above the second where it holds none."""
        return _float32(self.low, 1), _float32(self.high, -1)

    def without_float32(self) -> list[int]:
        """The cells that hold no float32 number.

        >>> Case((Fraction(1, 10), Fraction(0)), (Fraction(1, 10), Fraction(1)), ()).without_float32()
        [0]
        """
        low, high = self.inner()
        return [int(i) for i in np.flatnonzero(low > high)]

    def has(self, x: Array) -> bool:
        """Whether an input lies in the box, compared exactly."""
        cells = np.ravel(x).tolist()
        ends = zip(self.low, cells, self.high, strict=True)
        return bool(np.isfinite(x).all()) and all(low <= Fraction(v) <= high for low, v, high in ends)

    def contains(self, y: Array) -> bool:
        """Whether these outputs belong to a counterexample."""
        return any(a.contains(y) for a in self.alternatives)


@dataclass(frozen=True, eq=False)
class Property:
    """Cases that share nothing but the network: any counterexample of any case breaks the property.

    >>> text = "(declare-const X_0 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
    >>> text += "(assert (>= X_0 0)) (assert (<= X_0 0.5)) (assert (<= Y_0 (+ Y_1 0.25)))"
    >>> found = read_text(text)
    >>> found.cases[0].high, found.cases[0].alternatives[0].rows, found.cases[0].alternatives[0].limits
    ((Fraction(1, 2),), array([[ 1., -1.]]), (Fraction(1, 4),))
    """

    inputs: int
    outputs: int
    cases: tuple[Case, ...]
    left_out: int = 0
    """Conjunctions of a text that no input or no output can satisfy, such as X_0 <= 0 and X_0 >= 1."""


# --- reading ----------------------------------------------------------------------------------------------------------


def read(path: str | Path) -> Property:
    """A VNN-LIB file, plain or compressed (.gz). Version 2.0 needs the package `vnnlib`: specgrad[vnnlib]."""
    path = Path(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            raw = b"".join(_chunks(file, path.name))
        return read_text(raw.decode("utf-8"))
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
    cases = tuple(b.case(len(parsed.inputs), found) for b, found in boxes.items())
    return Property(len(parsed.inputs), len(parsed.outputs), cases, left_out)


def _refuse_too_many(parsed: Parsed, common: int) -> None:
    """Inequalities x outputs and boxes x inputs, before any of them is made: a short text can ask for any number."""
    atoms = sum(common + len(conjunction) for conjunction in parsed.alternatives)
    _refuse_wide(atoms, len(parsed.outputs))
    boxes = sum(any(name[0] == "X" for atom in c for name in atom.terms) for c in parsed.alternatives)
    if boxes * len(parsed.inputs) > MOST_BOUNDS:
        raise PropertyError(f"{boxes} boxes of {len(parsed.inputs)} inputs are over {MOST_BOUNDS} bounds")


def _refuse_wide(atoms: int, outputs: int) -> None:
    if atoms * outputs > MOST_ENTRIES:
        raise PropertyError(f"{atoms} inequalities over {outputs} outputs have over {MOST_ENTRIES} coefficients")


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


# --- the common case --------------------------------------------------------------------------------------------------


def robustness(
    x: Any, label: int, eps: Fraction | float, outputs: int, *, low: Any = None, high: Any = None
) -> Property:
    """No input within eps of x, cell by cell, has an output as large as the label's. low, high: limits of any input.

    >>> found = robustness([0.5, 1.0], 1, Fraction(1, 4), 3, high=1)
    >>> found.cases[0].high
    (Fraction(3, 4), Fraction(1, 1))
    >>> len(found.cases[0].alternatives)
    2
    """
    if (
        not np.isfinite(np.asarray(x, dtype=float)).all()
        or not (isinstance(eps, Fraction) or math.isfinite(eps))
        or eps < 0
    ):
        raise PropertyError(f"x must be finite and eps finite and not negative; got eps={eps}")
    cells = [Fraction(float(v)) for v in np.ravel(np.asarray(x))]
    radius = Fraction(eps)
    if type(label) is not int or not 0 <= label < outputs:
        raise PropertyError(f"label must be one of 0..{outputs - 1}; got {label}")
    if outputs == 1:
        raise PropertyError("the only output is always the largest, so there is nothing to prove")
    lowest = [c - radius if low is None else max(c - radius, Fraction(low)) for c in cells]
    highest = [c + radius if high is None else min(c + radius, Fraction(high)) for c in cells]
    if any(a > b for a, b in zip(lowest, highest, strict=True)):
        raise PropertyError("x lies outside low..high by more than eps")
    _refuse_wide(outputs - 1, outputs)
    others = [j for j in range(outputs) if j != label]
    rows = np.zeros((len(others), 1, outputs))
    for k, j in enumerate(others):
        rows[k, 0, label], rows[k, 0, j] = 1, -1
    alternatives = tuple(Alternative(row, (Fraction(0),)) for row in rows)
    return Property(len(cells), outputs, (Case(tuple(lowest), tuple(highest), alternatives),))


def as_float(value: Fraction) -> float:
    """The nearest float64 number, which may be infinite."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _float32(values: Sequence[Fraction], direction: int) -> Array:
    """The nearest float32 numbers not above (-1) or not below (1) the values, in float64."""
    if any(abs(v) > LARGEST_FLOAT32 for v in values):
        raise PropertyError("an input bound is no float32 number: it is too large")
    wide = np.array([v.numerator / v.denominator for v in values])
    near = wide.astype(np.float32)
    beyond = near.astype(float)
    wrong = (beyond - wide) * direction < 0
    for i in map(int, np.flatnonzero(beyond == wide)):  # rounding to float64 hides which side the rational is on
        p, q = float(wide[i]).as_integer_ratio()
        wrong[i] = (p * values[i].denominator - q * values[i].numerator) * direction < 0
    return np.where(wrong, np.nextafter(near, np.float32(direction * np.inf)), near).astype(float)
