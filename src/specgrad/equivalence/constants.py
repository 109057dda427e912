"""Constants of a normal form: exact arrays, stored without repetition, with equal keys for equal numbers.

Weights are kept as a product of an array as it was given and exact factors that repeat along most axes, so that folding
a batch normalisation into eleven million weights multiplies none of them; small ones are multiplied out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import ScalarError
from ..scalar import Array, exact
from ..window import Shape
from .folded import Folded, folded, folded_either_way, is_power_of_2, plain, unexplained
from .surd import Surd, interval

MAX_EXACT_CELLS = 2**14  # of an array that is computed with exactly
MAX_MULTIPLIED_CELLS = 2**8  # of weights that are multiplied out
SAME_SIZE = 1e-6  # relatively: sizes are floats
FLOAT32_UNDERFLOW = 2.0**-150  # half of the smallest number above 0
WITHIN_FLOAT64 = ("float16", "float32", "float64")  # long doubles and integers may not be


class TooManyError(ScalarError):
    """An exact array would have too many cells: the rule that needs it is not applied."""


@dataclass(frozen=True, eq=False)
class Constant:
    """An exact array, array * factors: floats or exact numbers, times exact numbers that broadcast (None: ones).

    roundings   how often a float32 program would have rounded floats of `array` that are products of what was given
    mixed       the number stands in several places, folded differently: how often is not known. Exact numbers say it
                themselves, cell by cell
    """

    array: Array
    factors: Array | None = None
    roundings: int = 0
    mixed: bool = False

    @property
    def shape(self) -> Shape:
        """Return the shape of the array, which the factors broadcast to."""
        return tuple(self.array.shape)

    def numbers(self) -> Array:
        """Return all cells as an object array of exact numbers, those of mixed ones `unexplained`.

        TooManyError above MAX_EXACT_CELLS.
        """
        if self.array.size > MAX_EXACT_CELLS:
            raise TooManyError("constant", f"{self.array.size} cells are more than {MAX_EXACT_CELLS}")
        cells = exact_numbers(self.array)
        cells = cells if self.factors is None else np.asarray(cells * self.factors, dtype=object)
        return np.asarray(np.frompyfunc(unexplained, 1, 1)(cells), dtype=object) if self.mixed else cells

    def times(self, factors: Array) -> Constant:
        """Return the product with `factors`, exact numbers that broadcast to it."""
        whole = drop_repeats(factors if self.factors is None else np.asarray(self.factors * factors, dtype=object))
        if all(v == 1 for v in whole.flat):
            return replace(self, factors=None)
        product = replace(self, factors=whole)
        if self.array.size <= min(MAX_MULTIPLIED_CELLS, MAX_EXACT_CELLS):
            return Constant(product.numbers(), mixed=self.mixed)
        _, most, least = product.foldings()
        if product.floats is None or most.max(initial=0) > least.min(initial=most.max(initial=0)):
            return product  # its cells were rounded in several ways
        return Constant(product.floats, None, int(most.max(initial=0)), self.mixed)

    @cached_property
    def floats(self) -> Array | None:
        """The cells as float64 if there are factors and no cell is rounded; else None."""
        return None if self.factors is None else _exact_product(self.array, self.factors)

    def rearranged(self, move: Callable[[Array], Array]) -> Constant:
        """Return the constant after `move`, a permutation of cells, applied to the array and to the factors."""
        factors = None if self.factors is None else move(np.broadcast_to(self.factors, self.shape))
        return replace(self, array=move(self.array), factors=None if factors is None else drop_repeats(factors))

    def sliced(self, ranges: tuple[tuple[int, int, int], ...]) -> Constant:
        """Return the constant sliced by `ranges` (start, stop, step per axis); axes of one cell, which may stand for
        more, stay.
        """

        def cut(array: Array) -> Array:
            return array[tuple(slice(None) if n == 1 else slice(*r) for n, r in zip(array.shape, ranges, strict=True))]

        factors = None if self.factors is None else drop_repeats(cut(self.factors))
        return replace(self, array=cut(self.array), factors=factors)

    def key(self) -> Any:
        """Return a hashable key: equal keys mean equal numbers; different keys prove nothing."""
        if self.factors is None or self.floats is not None:
            return _cells_key(self.array if self.floats is None else self.floats), None
        return _cells_key(self.array), _cells_key(self.factors)

    @cached_property
    def float_bounds(self) -> tuple[Array, Array]:
        """Float64 arrays (low, high) that enclose every cell; what is not finite is its own bound."""
        if self.array.dtype.kind == "f" and not np.isfinite(self.array).all():
            return self.array.astype(float), self.array.astype(float)
        if self.floats is not None:
            return self.floats, self.floats
        held = self.array.dtype.name in WITHIN_FLOAT64
        low, high = (self.array.astype(float),) * 2 if held else interval(plain_numbers(self.array))
        if self.factors is None:
            return low, high
        first, last = interval(plain_numbers(self.factors))
        products = [a * b for a in (low, high) for b in (first, last)]
        below, above = np.minimum.reduce(products), np.maximum.reduce(products)
        return np.nextafter(below, -np.inf), np.nextafter(above, np.inf)

    def underflow_unit(self) -> Array:
        """Return how far a float32 program that made `array` rounds cells below 2**-126, times the factors.

        0 for other formats, and for exact numbers.
        """
        unit = np.asarray(FLOAT32_UNDERFLOW if self.array.dtype == np.float32 else 0.0)
        return unit if self.factors is None else unit * _foldings_of_cells(self.factors)[0]

    def folded_either_way(self, other: Constant) -> Constant:
        """Return the constant as folded in its way or in that of `other`, of equal value: mixed, if the ways differ and
        its cells are many.
        """
        if self.mixed or other is self:
            return self
        kept, ways = self.foldings(), other.foldings()
        alike = all(np.array_equal(p, q) for p, q in zip(kept[1:], ways[1:], strict=True))
        if alike and not other.mixed and np.allclose(kept[0], ways[0], rtol=SAME_SIZE, atol=0):
            return self
        is_small = self.array.size <= min(MAX_MULTIPLIED_CELLS, MAX_EXACT_CELLS)
        if other.mixed or self.shape != other.shape or not is_small:
            return replace(self, mixed=True)
        return Constant(np.asarray(np.frompyfunc(folded_either_way, 2, 1)(self.numbers(), other.numbers())))

    def foldings(self) -> tuple[Array, Array, Array]:
        """Return (size, roundings at most, at least) per cell, of a float32 program that folds the constant (see
        `Folded`).

        Numbers as they were given have 0 roundings.
        """
        size, most, least = _foldings_of_cells(self.array)
        most, least = most + self.roundings, least + self.roundings
        if self.factors is None:
            return size, most, least
        more, *added = _foldings_of_cells(self.factors)
        once = np.reshape([not is_power_of_2(plain(v)) for v in self.factors.flat], self.factors.shape)
        with np.errstate(over="ignore", invalid="ignore"):  # a product with others than powers of 2 is rounded
            return size * more, once + most + added[0], once + least + added[1]


def _foldings_of_cells(array: Array) -> tuple[Array, Array, Array]:
    """Return (size, roundings at most, at least) of an array of floats or exact numbers."""
    if array.dtype != object:
        return abs(array.astype(float)), np.zeros(array.shape, int), np.zeros(array.shape, int)
    cells = [folded(v) for v in array.flat]
    size = np.array([v.size for v in cells], dtype=float).reshape(array.shape)
    most, least = (np.array([getattr(v, k) for v in cells], dtype=int) for k in ("roundings", "least"))
    return size, most.reshape(array.shape), least.reshape(array.shape)


def _cells_key(array: Array) -> Any:
    """Return a hashable key of an array, its shape first: numbers that float64 holds by their bits, -0 as 0; others one
    by one, or as they are.
    """
    if array.dtype == object:
        as_floats = [float_if_equal(v) for v in array.flat]
        if None in as_floats:
            return array.shape, tuple(array.flat)
        array = np.array(as_floats, dtype=float).reshape(array.shape)
    wide = np.promote_types(array.dtype, np.int64 if array.dtype.kind in "iu" else np.float64)  # loses no digit
    if array.dtype == np.uint64:
        wide = array.dtype  # NumPy would go on in float64
    return array.shape, wide.str, (array.astype(wide) + wide.type(0)).tobytes()


def float_if_equal(x: Any) -> float | None:
    """Return the float that equals an exact number; None if there is none."""
    x = plain(x)
    if isinstance(x, Surd):
        return None
    x = Fraction(x)
    if x.denominator & (x.denominator - 1):  # no power of 2: quotients of floats seldom are one
        return None
    try:
        near = x.numerator / x.denominator
    except OverflowError:
        return None
    return near if math.isfinite(near) and near.as_integer_ratio() == (x.numerator, x.denominator) else None


def _exact_product(array: Array, factors: Array) -> Array | None:
    """Return array * factors in float64 if no cell is rounded (Dekker's product); else None."""
    near = [float_if_equal(v) for v in factors.flat]
    if None in near or array.dtype.name not in WITHIN_FLOAT64:
        return None
    a, b = array.astype(float), np.array(near, dtype=float).reshape(factors.shape)
    with np.errstate(all="ignore"):
        product = a * b
        size = abs(product)
        if not np.all((product == 0) & ((a == 0) | (b == 0)) | (size > 1e-200) & (size < 1e200)):
            return None
        if max(abs(a).max(initial=0), abs(b).max(initial=0)) > 1e100:
            return None
        (ah, al), (bh, bl) = _dekker_split(a), _dekker_split(b)
        rest = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    return product if not rest.any() else None


def _dekker_split(x: Array) -> tuple[Array, Array]:
    """Return (high, low) with x = high + low, each of 26 bits or less, so that products are exact."""
    scaled = 134217729.0 * x  # 2**27 + 1
    high = scaled - (scaled - x)
    return high, x - high


def drop_repeats(array: Array) -> Array:
    """Return the array with one cell along every axis on which all its cells are equal.

    >>> drop_repeats(np.array([[1, 2], [1, 2]])).shape
    (1, 2)
    """
    for axis, n in enumerate(array.shape):
        if n > 1:
            first = array[(slice(None),) * axis + (slice(0, 1),)]
            if _all_equal(array, first):
                array = first
    return array


def _all_equal(array: Array, first: Array) -> bool:
    """Return whether every cell of `array` equals that of `first`, broadcast along its axes of one cell."""
    if array.dtype != object:
        return bool((array == first).all())
    whole = np.broadcast_to(first, array.shape)
    return all(p == q for p, q in zip(array.flat, whole.flat, strict=True))


def exact_constant(array: Array) -> Array:
    """Return an array as exact numbers, every axis of equal cells cut to length 1, so that it broadcasts back.

    NaN and infinities are a ScalarError, more than MAX_EXACT_CELLS cells a TooManyError.
    """
    array = drop_repeats(np.asarray(array))
    if array.size > MAX_EXACT_CELLS:
        raise TooManyError("constant", f"{array.size} cells are more than {MAX_EXACT_CELLS}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ScalarError("constant", "infinities and NaN are no exact numbers")
    return exact_numbers(array)


def exact_numbers(array: Array) -> Array:
    """Return an object array of exact numbers with the record of their folding, cell by cell.

    ScalarError for cells that are no numbers, NaN or infinite.
    """
    cells = np.empty(array.shape, dtype=object)
    if array.dtype.name in WITHIN_FLOAT64 and np.isfinite(array).all():
        for place, near in np.ndenumerate(array.astype(float)):
            cells[place] = Folded(Fraction(float(near)), abs(float(near)))
        return cells
    for place, v in np.ndenumerate(array if array.dtype == object else exact(array)):
        cells[place] = v if isinstance(v, Folded) else folded(_checked_number(v))
    return cells


def plain_numbers(array: Array) -> Array:
    """Return an object array of Fractions and Surds, cell by cell."""
    if array.dtype != object:
        return exact(array)
    cells = np.empty(array.shape, dtype=object)
    for place, v in np.ndenumerate(array):
        cells[place] = plain(v)
    return cells


def _checked_number(v: Any) -> Any:
    """Return v, an exact number or a finite float; raise ScalarError for anything else."""
    if not isinstance(v, int | float | Fraction | Surd) or isinstance(v, bool):
        raise ScalarError("constant", f"{type(v).__name__} is no exact number")
    if isinstance(v, float) and not math.isfinite(v):
        raise ScalarError("constant", "infinities and NaN are no exact numbers")
    return v


def holds(dtype: str, constant: Constant) -> bool:
    """Return whether every number of a constant is one of the float format `dtype`; False if that is not known.

    >>> [holds(name, Constant(np.float32([0.5, 0.1]))) for name in ("float16", "bfloat16", "float32", "float8_e5m2")]
    [False, False, True, False]
    """
    low, high = constant.float_bounds
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            kept = np.asarray((low.astype(np.float32).view(np.uint32) & 0xFFFF) == 0) & (low.astype(np.float32) == low)
        elif dtype in WITHIN_FLOAT64:
            kept = np.asarray(low.astype(dtype) == low)
        else:
            return False
    return bool((kept & (low == high)).all())


def square_roots(cells: Array) -> Array:
    """Return the exact square root of every cell."""
    roots = np.empty(cells.shape, dtype=object)
    for place, v in np.ndenumerate(cells):
        roots[place] = folded(v).sqrt()
    return roots
