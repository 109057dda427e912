"""Fold constants of any size as arrays: what only moves, chooses or compares cells, and sums that float32 holds.

Exact numbers cost microseconds each, so those above MAX_EXACT_CELLS stay floats. What is folded here is the exact
result: of operators that round nothing, on float64; of sums and differences of which float32 holds every cell, so that
a float32 program that folds them has the same numbers, and no rounding is to be counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..ops.elementwise import ADD, SUB
from ..scalar import Array
from ..window import Shape
from .constants import WITHIN_FLOAT64, Constant, float_if_equal
from .folded import folded
from .term_table import TermTable

MOVING = ("put",)  # beside operators that are `exact`


def known_constant(table: TermTable, number: int) -> Constant | None:
    """Return the value `number` as a constant of floats or integers that nobody has folded, of its full shape.

    None for a value that is not constant, for factors beside it, roundings, and numbers that float64 does not hold.
    """
    value = table.values[number]
    if not value.terms and value.shift is None:
        return Constant(np.broadcast_to(np.zeros((), np.float32), value.shape))
    kept = _index_constant(table, number) if value.terms else value.shift
    if kept is None:
        return None
    constant = table.constants[kept]
    array = _as_floats(constant.array) if constant.array.dtype == object else constant.array
    if array is None or constant.factors is not None or constant.roundings:
        return None
    if array.dtype.kind == "f" and array.dtype.name not in WITHIN_FLOAT64:
        return None
    return Constant(np.broadcast_to(array, value.shape), mixed=constant.mixed)


def _index_constant(table: TermTable, number: int) -> int | None:
    """Return the number of the constant that an atom of positions is; None for other atoms."""
    atom = table.single_atom(number)
    return atom.weights if atom is not None and atom.op == "index constant" and not atom.args else None


def _as_floats(cells: Array) -> Array | None:
    """Return exact numbers as float64; None where one is folded or is none."""
    floats = [float_if_equal(v) if folded(v).roundings == 0 else None for v in cells.flat]
    return None if None in floats else np.array(floats, dtype=float).reshape(cells.shape)


def fold_arrays(op: Any, params: dict[str, Any], constants: Sequence[Constant], shape: Shape) -> Constant | None:
    """Return the operator `op` with `params` on constants without factors, cell by cell exact; None where it is not.

    `shape` is that of the result.
    """
    given = [c.array for c in constants]
    wide = [a.astype(float) if a.dtype.kind == "f" else a for a in given]
    if any(a.dtype.kind not in "fi" or (a.dtype.kind == "f" and not np.isfinite(a).all()) for a in wide):
        return None
    if not _moves_alone(op, params, wide):
        return None
    if op.exact or op.name in MOVING:
        cells = np.asarray(op.spec(*wide, **params))
    elif op in (ADD, SUB) and all(a.dtype.kind == "f" for a in wide):
        total = _exact_sum(wide[0], wide[1] if op is ADD else -wide[1])
        if total is None:
            return None
        cells = total
    else:
        return None
    if cells.dtype.kind not in "fi" or cells.shape != shape:
        return None
    narrow = cells.astype(np.float32) if cells.dtype.kind == "f" else cells
    if cells.dtype.kind == "f" and all(a.dtype == np.float32 for a in given if a.dtype.kind == "f"):
        cells = narrow if np.array_equal(narrow, cells) else cells
    return Constant(cells, mixed=any(c.mixed for c in constants))


def _moves_alone(op: Any, params: dict[str, Any], wide: Sequence[Array]) -> bool:
    """Return whether an operator neither adds cells, put in one place, nor writes a number that is no float."""
    if any(isinstance(v, int | Fraction) and float_if_equal(v) is None for v in params.values()):
        return False
    return op.name not in MOVING or bool((op.spec(np.ones_like(wide[0]), *wide[1:], **params) <= 1).all())


def _exact_sum(a: Array, b: Array) -> Array | None:
    """Return a + b in float64 if float32 holds every cell of it; else None."""
    cells = a + b
    other = cells - a  # TwoSum: what is left of a and of b
    if ((a - (cells - other)) + (b - other)).any():
        return None
    with np.errstate(over="ignore"):
        return cells if np.array_equal(cells.astype(np.float32), cells) else None
