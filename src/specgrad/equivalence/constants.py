"""Constants of a normal form: exact arrays, as small as their repetition allows, equal when their numbers are.

Weights are kept as a product of an array as it was given and exact factors that repeat along most axes, so that folding
a batch normalisation into eleven million weights multiplies none of them; small ones are multiplied out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import ScalarError
from ..scalar import Array, exact
from ..window import Shape
from .surd import Surd, interval, square_root

CELLS = 2**17  # of an array that is computed with exactly
FLOATS = ("float16", "float32", "float64")  # whose numbers float64 holds; of long doubles and integers it may lack some


class TooManyError(ScalarError):
    """An exact array would be too large: the rule that asked for it is not applied."""


@dataclass(frozen=True, eq=False)
class Constant:
    """array * factors: floats or exact numbers, times exact numbers that broadcast to them (None: ones)."""

    array: Array
    factors: Array | None = None

    @property
    def shape(self) -> Shape:
        return tuple(self.array.shape)

    def numbers(self) -> Array:
        """All of them as exact numbers."""
        if self.array.size > CELLS:
            raise TooManyError("constant", f"{self.array.size} cells are more than {CELLS}")
        cells = exact_numbers(self.array)
        return cells if self.factors is None else np.asarray(cells * self.factors, dtype=object)

    def times(self, factors: Array) -> Constant:
        """The product with exact numbers that broadcast to it."""
        whole = smallest(factors if self.factors is None else np.asarray(self.factors * factors, dtype=object))
        if all(v == 1 for v in whole.flat):
            return Constant(self.array)
        product = Constant(self.array, whole)
        if self.array.size <= CELLS:
            return Constant(product.numbers())
        return _exact_product(self.array, whole) or product

    def moved(self, move: Callable[[Array], Array]) -> Constant:
        """The same cells elsewhere: `move` on the array and on the factors, spread out where they repeat."""
        factors = None if self.factors is None else move(np.broadcast_to(self.factors, self.shape))
        return Constant(move(self.array), None if factors is None else smallest(factors))

    def key(self) -> Any:
        """Equal for equal numbers; different keys do not say that the numbers differ."""
        return _cells_key(self.array), None if self.factors is None else _cells_key(self.factors)

    def ends(self) -> tuple[Array, Array]:
        """Floats below and above every number."""
        held = self.array.dtype.name in FLOATS
        low, high = (self.array.astype(float),) * 2 if held else interval(exact_numbers(self.array))
        if self.factors is None:
            return low, high
        first, last = interval(self.factors)
        products = [a * b for a in (low, high) for b in (first, last)]
        below, above = np.minimum.reduce(products), np.maximum.reduce(products)
        return np.nextafter(below, -np.inf), np.nextafter(above, np.inf)


def _cells_key(array: Array) -> Any:
    """The shape, and numbers that float64 holds by their bits, -0 as 0; all others one by one, or as they are."""
    if array.dtype == object:
        as_floats = [_as_float(v) for v in array.flat]
        if None in as_floats:
            return array.shape, tuple(array.flat)
        array = np.array(as_floats, dtype=float).reshape(array.shape)
    wide = np.promote_types(array.dtype, np.int64 if array.dtype.kind in "iu" else np.float64)  # loses no digit
    if array.dtype == np.uint64:
        wide = array.dtype  # NumPy would go on in float64
    return array.shape, wide.str, (array.astype(wide) + wide.type(0)).tobytes()


def _as_float(x: Any) -> float | None:
    """The float that equals an exact number, if there is one."""
    if isinstance(x, Surd):
        return None
    try:
        near = float(x)
    except OverflowError:
        return None
    return near if math.isfinite(near) and Fraction(near) == x else None


def _exact_product(array: Array, factors: Array) -> Constant | None:
    """The product in float64 where that is exact: both factors split in halves (Dekker), and no rest remains."""
    near = [_as_float(v) for v in factors.flat]
    if None in near or array.dtype.name not in FLOATS:
        return None
    a, b = array.astype(float), np.array(near, dtype=float).reshape(factors.shape)
    with np.errstate(all="ignore"):
        product = a * b
        size = abs(product)
        if not np.all((product == 0) & ((a == 0) | (b == 0)) | (size > 1e-200) & (size < 1e200)):
            return None
        if max(abs(a).max(initial=0), abs(b).max(initial=0)) > 1e100:
            return None
        (ah, al), (bh, bl) = _halves(a), _halves(b)
        rest = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    return Constant(product) if not rest.any() else None


def _halves(x: Array) -> tuple[Array, Array]:
    scaled = 134217729.0 * x  # 2**27 + 1
    high = scaled - (scaled - x)
    return high, x - high


def smallest(array: Array) -> Array:
    """The array with one cell along every axis on which all its cells are equal.

    >>> smallest(np.array([[1, 2], [1, 2]])).shape
    (1, 2)
    """
    for axis, n in enumerate(array.shape):
        if n > 1:
            first = array[(slice(None),) * axis + (slice(0, 1),)]
            if _all_equal(array, first):
                array = first
    return array


def _all_equal(array: Array, first: Array) -> bool:
    if array.dtype != object:
        return bool((array == first).all())
    whole = np.broadcast_to(first, array.shape)
    return all(p == q for p, q in zip(array.flat, whole.flat, strict=True))


def exact_cells(array: Array) -> Array:
    """An array of a graph as exact numbers, each repetition once; NaN and infinities have none."""
    array = smallest(np.asarray(array))
    if array.size > CELLS:
        raise TooManyError("constant", f"{array.size} cells are more than {CELLS}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ScalarError("constant", "infinities and NaN are no exact numbers")
    return exact_numbers(array)


def exact_numbers(array: Array) -> Array:
    return exact(array) if array.dtype != object else _only_exact(array)


def _only_exact(array: Array) -> Array:
    """Fractions and surds as they are, whole numbers and floats as Fractions; a ball, or anything else, is refused."""
    made = np.empty(array.shape, dtype=object)
    for place, v in np.ndenumerate(array):
        if not isinstance(v, int | float | Fraction | Surd) or isinstance(v, bool):
            raise ScalarError("constant", f"{type(v).__name__} is no exact number")
        if isinstance(v, float) and not math.isfinite(v):
            raise ScalarError("constant", "infinities and NaN are no exact numbers")
        made[place] = v if isinstance(v, Surd) else Fraction(v)
    return made


def root_cells(cells: Array) -> Array:
    """The square roots, exactly."""
    roots = np.empty(cells.shape, dtype=object)
    for place, v in np.ndenumerate(cells):
        roots[place] = square_root(v)
    return roots
