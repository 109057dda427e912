"""Scalars: what an array cell may be, and the few functions a specification needs from it.

A specification is written once and runs over

- float16, float32, float64: NumPy arrays of floats, IEEE arithmetic;
- exact rationals: object arrays of `fractions.Fraction`. Integers are exact numbers too and become Fractions;
- rigorous balls: object arrays of python-flint `arb`, which enclose exp, log and their friends;
- dual numbers: object arrays of `Dual`, over any of the above;
- any other type that offers + - * / and >.

Rationals have no exp and no log, and say so. Exact numbers never meet floats silently: mixing them is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ScalarError, need

Array = NDArray[Any]
Number = int | float | Fraction


class Dual:
    """`value + tangent * epsilon` with `epsilon**2 = 0`: arithmetic that carries a derivative along.

    Nests (a Dual of Duals carries second derivatives) and works over every scalar of this module.

    Parameters
    ----------
    value : number
        Of any scalar type: a Fraction, a float, a ball, another Dual.
    tangent : number
        The derivative that is carried along, of the same type.

    Raises
    ------
    ScalarError
        By a function that the values have not: exact rationals have no exp.

    Examples
    --------
    >>> x = Dual(Fraction(3), Fraction(1))
    >>> x * x + 1 / x
    Dual(Fraction(28, 3), Fraction(53, 9))
    """

    __slots__ = ("tangent", "value")

    def __init__(self, value: Any, tangent: Any) -> None:
        self.value = value
        self.tangent = tangent

    def __repr__(self) -> str:
        return f"Dual({self.value!r}, {self.tangent!r})"

    @staticmethod
    def _split(other: Any) -> tuple[Any, Any]:
        """Return value and tangent of a number `other`; the tangent of a plain number is 0."""
        return (other.value, other.tangent) if isinstance(other, Dual) else (other, 0)

    def __add__(self, other: Any) -> Dual:
        v, t = self._split(other)
        return Dual(self.value + v, self.tangent + t)

    def __sub__(self, other: Any) -> Dual:
        v, t = self._split(other)
        return Dual(self.value - v, self.tangent - t)

    def __mul__(self, other: Any) -> Dual:
        v, t = self._split(other)
        return Dual(self.value * v, self.tangent * v + self.value * t)

    def __truediv__(self, other: Any) -> Dual:
        v, t = self._split(other)
        q = self.value / v
        return Dual(q, (self.tangent - q * t) / v)

    def __rsub__(self, other: Any) -> Dual:
        return Dual(other - self.value, -self.tangent)

    def __rtruediv__(self, other: Any) -> Dual:
        return Dual(other + self.value * 0, self.tangent * 0) / self

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.tangent)

    def __abs__(self) -> Dual:
        return -self if self.value < 0 else self

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > self._split(other)[0])

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= self._split(other)[0])

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < self._split(other)[0])

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= self._split(other)[0])

    def __eq__(self, other: object) -> bool:
        return bool(self.value == self._split(other)[0])

    __hash__ = None  # type: ignore[assignment]

    def __pow__(self, n: int) -> Dual:
        return Dual(self.value**n, self.value ** (n - 1) * n * self.tangent)

    def _chain(self, value: Any, slope: Any) -> Dual:
        """Return Dual(value, slope * tangent): the chain rule."""
        return Dual(value, slope * self.tangent)

    def exp(self) -> Dual:
        """Return e**x with the tangent exp(x)*dx."""
        y = call("exp", self.value)
        return self._chain(y, y)

    def log(self) -> Dual:
        """Return the natural logarithm with the tangent dx/x."""
        return self._chain(call("log", self.value), 1 / self.value)

    def sqrt(self) -> Dual:
        """Return the square root with the tangent dx/(2*sqrt(x))."""
        y = call("sqrt", self.value)
        return self._chain(y, 1 / (2 * y))

    def tanh(self) -> Dual:
        """Return the hyperbolic tangent with the tangent (1 - y*y)*dx."""
        y = call("tanh", self.value)
        return self._chain(y, 1 - y * y)

    def sin(self) -> Dual:
        """Return the sine with the tangent cos(x)*dx."""
        return self._chain(call("sin", self.value), call("cos", self.value))

    def cos(self) -> Dual:
        """Return the cosine with the tangent -sin(x)*dx."""
        return self._chain(call("cos", self.value), -call("sin", self.value))

    def atan(self) -> Dual:
        """Return the arc tangent with the tangent dx/(x*x + 1)."""
        return self._chain(call("atan", self.value), 1 / (self.value * self.value + 1))

    def asinh(self) -> Dual:
        """Return the inverse hyperbolic sine with the tangent dx/sqrt(x*x + 1)."""
        return self._chain(call("asinh", self.value), 1 / call("sqrt", self.value * self.value + 1))

    def floor(self) -> Dual:
        """Return the next integer below, with the tangent 0."""
        return self._chain(call("floor", self.value), 0)

    def ceil(self) -> Dual:
        """Return the next integer above, with the tangent 0."""
        return self._chain(call("ceil", self.value), 0)

    def round(self) -> Dual:
        """Return the nearest integer, ties to even, with the tangent 0."""
        return self._chain(call("round", self.value), 0)

    def erf(self) -> Dual:
        """Return the error function with the tangent 2*exp(-x*x)/sqrt(pi)*dx."""
        slope = call("exp", -(self.value * self.value)) * 2 / call("sqrt", pi_like(self.value))
        return self._chain(call("erf", self.value), slope)


def pi_like(value: Any) -> Any:
    """Return pi in the arithmetic of `value`: a ball for balls, a float for floats; raise ScalarError for Fractions."""
    if isinstance(value, Dual):
        return pi_like(value.value)
    if isinstance(value, Fraction):
        raise ScalarError("pi", "is not rational; use floats or balls (specgrad.balls)")
    return type(value).pi() if hasattr(type(value), "pi") else math.pi


def _rational_sqrt(x: Fraction) -> Fraction:
    """Return the rational square root; raise ScalarError if there is none."""
    if x >= 0:
        n, d = math.isqrt(x.numerator), math.isqrt(x.denominator)
        if n * n == x.numerator and d * d == x.denominator:
            return Fraction(n, d)
    raise ScalarError("sqrt", f"{x} has no rational square root; use floats or balls (specgrad.balls)")


STEPS: dict[str, Callable[[Any], int]] = {"floor": math.floor, "ceil": math.ceil, "round": round}
FLOAT_STEPS = {"floor": np.floor, "ceil": np.ceil, "round": np.rint}  # of infinities, NaN and -0.0 too


def _nearest(x: Any) -> Any:
    """Return a ball rounded to the nearest integer, ties to even; the union of both where x may be a tie."""
    half = x * 0 + 1
    up, down = (x + half / 2).floor(), (x - half / 2).ceil()
    if x.rad() == 0 and up != down:
        return up if (up / 2).floor() * 2 == up else down
    return up.union(down)


def call(name: str, x: Any) -> Any:
    """Return exp, log, sqrt, tanh, sin, cos, atan, asinh, erf, floor, ceil or round of one scalar, named by `name`.

    A float's is a float, by `math`; a rational's is exact, or a ScalarError; another number has a method of that name.

    >>> call("round", 2.5), call("floor", -0.5)
    (2.0, -1.0)
    >>> call("sqrt", Fraction(9, 4))
    Fraction(3, 2)
    >>> call("exp", Fraction(1))
    Traceback (most recent call last):
    specgrad.errors.ScalarError: exp: exact rationals have no exp; use floats or balls (specgrad.balls)
    """
    if isinstance(x, Fraction | int):
        if name in STEPS:
            return Fraction(STEPS[name](x))
        if name == "sqrt":
            return _rational_sqrt(Fraction(x))
        raise ScalarError(name, f"exact rationals have no {name}; use floats or balls (specgrad.balls)")
    if isinstance(x, float):
        return float(FLOAT_STEPS[name](x)) if name in STEPS else getattr(math, name)(x)
    if name == "round" and hasattr(x, "union"):
        return _nearest(x)
    return getattr(x, name)()


_erf_floats = np.frompyfunc(math.erf, 1, 1)


def apply(name: str, x: Array) -> Array:
    """Return the function `name`, one that `call` knows, of every cell of an array.

    Cells of arrays of objects go through `call`.
    """
    x = np.asarray(x)  # arithmetic on an object array of rank 0 gives its bare cell
    if x.dtype == object:
        return _objects([call(name, v) for v in x.flat], x.shape)
    with np.errstate(all="ignore"):  # inf and NaN are values of the contract ([P1], [P2]), not accidents
        if name == "erf":
            return np.asarray(_erf_floats(x), dtype=x.dtype)
        return np.asarray(getattr(np, "rint" if name == "round" else name)(x))


def _objects(values: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """Return an object array of these values, in row-major order, in this shape."""
    out = np.empty(len(values), dtype=object)
    for i, v in enumerate(values):  # a plain assignment would unpack cells that look like sequences
        out[i] = v
    return out.reshape(shape)


def exact(x: Any) -> Array:
    """Return the numbers as exact rationals; every finite float is one.

    Parameters
    ----------
    x : array_like
        Finite numbers: floats, integers, fractions.

    Returns
    -------
    array of Fraction
        Of the shape of x.

    Raises
    ------
    ValueError
        For NaN, and texts that are no number.
    OverflowError
        For infinities.

    Examples
    --------
    >>> exact([0.5, 2])
    array([Fraction(1, 2), Fraction(2, 1)], dtype=object)
    """
    a = np.asarray(x)
    return _objects([_rational(v) for v in a.flat], a.shape)


def _rational(v: Any) -> Fraction:
    """Return a number v, long doubles included, as an exact Fraction."""
    v = v.item() if isinstance(v, np.generic) else v
    return Fraction(*v.as_integer_ratio()) if isinstance(v, np.longdouble) else Fraction(v)


MAX_DENOMINATOR_BITS = 1 << 14  # of denominators without common factors the least common multiple grows with the cells


def over_one_denominator(x: Array) -> tuple[Array, int] | None:
    """Return rationals as Python integers, and the denominator that all are over; None for other scalars, and if it is
    long.

    Sums of products of integers are some 30 times faster than those of fractions, which reduce each.

    >>> over_one_denominator(exact([0.5, 3]) / 3)
    (array([1, 6], dtype=object), 6)
    """
    cells = x.ravel().tolist()
    if any(type(v) is not Fraction for v in cells):
        return None
    denominator = math.lcm(*{v.denominator for v in cells})
    if denominator.bit_length() > MAX_DENOMINATOR_BITS:
        return None
    return _objects([v.numerator * (denominator // v.denominator) for v in cells], x.shape), denominator


FLINT_PRODUCTS_PER_CELL = 8  # of integer matrices, from which on it pays to give them to FLINT


def matmul(a: Array, b: Array) -> Array:
    """Return a @ b, over any scalar type; large matrices of integers are multiplied by python-flint, if it is there."""
    few = a.size * b.shape[-1] < FLINT_PRODUCTS_PER_CELL * (a.size + b.size)
    if a.dtype != object or few or (matrix := _integer_matrix()) is None:
        return np.asarray(a @ b)
    if any(type(v) is not int for x in (a, b) for v in x.flat):
        return np.asarray(a @ b)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = (np.broadcast_to(x, lead + x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (a, b))
    cells: list[int] = []
    for p, q in zip(left, right, strict=True):
        cells += map(int, (matrix(*p.shape, p.ravel().tolist()) * matrix(*q.shape, q.ravel().tolist())).entries())
    return _objects(cells, (*lead, a.shape[-2], b.shape[-1]))


@cache
def _integer_matrix() -> Any:
    """Return python-flint's matrix of integers; None where it is not installed."""
    try:
        from flint import fmpz_mat
    except ImportError:
        return None
    return fmpz_mat


def fractions(x: Array, denominator: int) -> Array:
    """Return integers over a denominator as exact rationals."""
    return _objects([Fraction(v, denominator) for v in x.flat], x.shape)


def balls(x: Any) -> Array:
    """Return the numbers as python-flint balls, whose arithmetic encloses the real result.

    Parameters
    ----------
    x : array_like
        Finite numbers: floats, integers, fractions.

    Returns
    -------
    array of arb
        Balls of radius 0 where the number has so few digits, of the shape of x.

    Raises
    ------
    MissingPackageError
        If python-flint is not installed: `pip install 'specgrad[balls]'`.
    ValueError
        For NaN.
    OverflowError
        For infinities.

    Examples
    --------
    >>> from specgrad import exp
    >>> (y,) = exp(balls([1]))
    >>> round(float(y), 6), float(y.rad()) < 1e-14
    (2.718282, True)
    """
    need("flint", "balls need")
    from flint import arb, fmpq

    def ball(v: Any) -> Any:
        q = _rational(v)
        return arb(fmpq(q.numerator, q.denominator))

    a = np.asarray(x)
    return _objects([ball(v) for v in a.flat], a.shape)


def as_array(operator: str, x: Any) -> Array:
    """Return floats unchanged and integers of any width as exact numbers; raise ScalarError for other types."""
    a = np.asarray(x)
    if a.dtype.kind == "f":
        return a
    if a.dtype.kind in "iub":
        return exact(a)
    if a.dtype != object:
        raise ScalarError(operator, f"cannot compute with dtype {a.dtype}; give floats or exact numbers")
    if any(type(v) is int for v in a.flat):
        return _objects([Fraction(v) if type(v) is int else v for v in a.flat], a.shape)
    return a


def check_same_kind(operator: str, arrays: Sequence[Array], given: Sequence[np.dtype[Any]]) -> None:
    """Raise ScalarError, in the name of the operator, if `arrays` mix floats and exact numbers: the result would look
    exact and not be.

    `given` are the dtypes that the caller gave, for the error.
    """
    if len({a.dtype == object for a in arrays}) > 1:
        kinds = ", ".join("exact" if d.kind == "O" else f"{d} (exact)" if d.kind in "iub" else str(d) for d in given)
        text = f"cannot mix exact numbers and floats; got {kinds}; use specgrad.exact on the floats, or astype(float)"
        raise ScalarError(operator, text)


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Return an array of this shape of zeros of the scalar type of `like`."""
    return full(shape, 0, like)


def full(shape: tuple[int, ...], value: Number, like: Array) -> Array:
    """Return an array of this shape whose cells are `value` in the scalar type of `like`."""
    out = np.empty(shape, dtype=like.dtype)
    out[...] = literal(value, like)
    return out


def as_float(value: Number) -> float:
    """Return the float nearest to `value`; raise ScalarError for a number beyond all floats.

    >>> as_float(Fraction(1, 4))
    0.25
    """
    try:
        return float(value)
    except OverflowError:
        raise ScalarError("literal", f"a number of {value.bit_length()} bits is no float" if isinstance(value, int)
                          else "a fraction beyond all floats is no float") from None  # fmt: skip


def literal(value: Number, like: Array) -> Any:
    """Return the Python number `value` in the scalar type of `like`, exactly wherever that type can hold it."""
    if like.dtype != object:
        return like.dtype.type(as_float(value))
    q = Fraction(value)
    zero = like.flat[0] * 0 if like.size else Fraction(0)
    return zero + q.numerator if q.denominator == 1 else (zero + q.numerator) / q.denominator


def divide(x: Array, counts: Array) -> Array:
    """Return x / counts, 0 where the count is 0; counts are exact integers."""
    safe = np.where(counts == 0, 1, counts)
    quotient = x / (safe if x.dtype == object else safe.astype(x.dtype))
    return np.where(counts == 0, zeros((), x), quotient)


def _compare_balls(operator: str, test: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    """Return test(a, b) for two scalars; raise ScalarError for balls that overlap."""
    if not (a > b) and not (a <= b):
        raise ScalarError(operator, f"cannot decide which of {a} and {b} is larger; the balls overlap")
    return bool(test(a, b))


def compare(operator: str, test: Callable[[Any, Any], Any], a: Array, b: Array) -> NDArray[np.bool_]:
    """Return test(a, b) of every cell; raise ScalarError for balls that overlap."""
    if a.dtype != object:
        return np.asarray(test(a, b), dtype=bool)
    a, b = np.broadcast_arrays(a, b)
    cells = [_compare_balls(operator, test, p, q) for p, q in zip(a.flat, b.flat, strict=True)]
    return np.array(cells, dtype=bool).reshape(a.shape)


def maximum(a: Array, b: Array) -> Array:
    """Return the larger of every two cells of a and b, NaN if one is; for overlapping balls the enclosure of the
    larger.
    """
    a, b = np.broadcast_arrays(a, b)
    if a.dtype != object:
        return np.asarray(np.maximum(a, b))

    def larger(p: Any, q: Any) -> Any:
        if hasattr(p, "max") and not (p > q) and not (p <= q):
            return p.max(q)
        return q if q > p else p

    return _objects([larger(p, q) for p, q in zip(a.flat, b.flat, strict=True)], a.shape)


# --- floats beside a number -------------------------------------------------------------------------------------------


def nearest_float(value: Number) -> float:
    """Return the float nearest to `value`, an infinity for a number beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def float_below(value: Number) -> float:
    """Return the largest float that is not above `value`; -inf below all floats.

    >>> float_below(Fraction(1, 10)) < Fraction(1, 10) < float_above(Fraction(1, 10))
    True
    >>> float_below(Fraction(1, 4)), float_below(10**400), float_above(10**400)
    (0.25, 1.7976931348623157e+308, inf)
    """
    near = nearest_float(value)
    return near if near <= value else math.nextafter(near, -math.inf)


def float_above(value: Number) -> float:
    """Return the least float that is not below `value`; inf above all floats."""
    near = nearest_float(value)
    return near if near >= value else math.nextafter(near, math.inf)


# --- bounds in few digits ---------------------------------------------------------------------------------------------


def short(x: float, digits: int = 3) -> float:
    """Return the smallest decimal of `digits` significant digits that is not below x.

    >>> short(0.0123400001), short(2.0)
    (0.0124, 2.0)
    """
    nearest = float(f"{x:.{digits - 1}e}")
    above = Context(prec=digits, rounding=ROUND_CEILING)
    return nearest if nearest >= x or not np.isfinite(x) else float(above.create_decimal(Decimal(x)))


def upward(x: float, digits: int = 4) -> str:
    """Return x as text, rounded up to few digits, so that a printed bound is proven too; -x gives one from below.

    >>> upward(0.12341), upward(2.0), -float(upward(-0.12349))
    ('0.1235', '2', 0.1234)
    """
    return f"{short(x, digits):g}"


def widths(low: Array, high: Array) -> Array:
    """Return upper bounds of high - low: the next float64 where it is not exact, infinite for infinite ends."""
    with np.errstate(invalid="ignore", over="ignore"):
        width = high - low
        exact = (width + low == high) & (high - width == low)
        upper = np.where(exact, width, np.nextafter(width, np.inf))
    return np.where(np.isfinite(upper), upper, np.inf)
