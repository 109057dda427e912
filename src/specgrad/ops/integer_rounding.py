"""Integer rounding (floor, ceil, round, trunc) and remainders (fmod, mod).

All of them jump; between the jumps floor, ceil and round are constant, and a remainder moves with its dividend. Over
rationals they are exact, and so they are in floats: a float has an exact floor, and fmod of two floats is a float.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from .. import scalar
from ..call_cache import cached_call
from ..facts import Names
from ..op import Case, Op, Value, apply, composite, is_literal
from ..scalar import Array
from . import sample_inputs
from .elementwise import (
    add,
    binary,
    broadcast_binary,
    div,
    equal,
    greater,
    mul,
    neg,
    number_cases,
    select,
    sign,
    sub,
    unary,
)


def _staircase(name: str, numpy: str = "") -> Op:
    """Register and return the monotone step function `name` (in NumPy: `numpy`).

    Its derivative is zero, at the jumps too ([K1]).
    """
    return unary(
        name,
        lambda x: scalar.apply(name, x),
        lambda x, y, t: None,
        monotone=(0,),
        exact=True,
        jumps=True,
        names=Names(
            torch=f"torch.{name}", jax=f"jnp.{name}", numpy=numpy or name, aten=f"{name}.default", onnx=name.title()
        ),
    )


FLOOR = _staircase("floor")
CEIL = _staircase("ceil")
ROUND = _staircase("round", numpy="rint")


@cached_call
def floor(x: Value) -> Value:
    """The largest whole number that is not above x; NaN and infinities stay. The derivative is zero ([K1]).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Examples
    --------
    >>> floor(np.array([-0.5, 1.0, 1.5]))
    array([-1.,  1.,  1.])
    """
    return apply(FLOOR, x)


@cached_call
def ceil(x: Value) -> Value:
    """The smallest whole number that is not below x; NaN and infinities stay. The derivative is zero ([K1]).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Examples
    --------
    >>> ceil(np.array([-1.5, 1.0, 0.5]))
    array([-1.,  1.,  1.])
    """
    return apply(CEIL, x)


@cached_call
def round_(x: Value) -> Value:
    """The nearest whole number, the even one of two; NaN and infinities stay. The derivative is zero ([K1]).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Examples
    --------
    >>> round_(np.array([0.5, 1.5, 2.5, -0.7]))
    array([ 0.,  2.,  2., -1.])
    """
    return apply(ROUND, x)


@composite
def trunc(x: Value) -> Value:
    """x without its fraction: floor above 0, ceil below. The derivative is zero ([K1]).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Examples
    --------
    >>> trunc(np.array([-1.5, 1.5]))
    array([-1.,  1.])
    """
    return select(greater(x, 0), floor(x), ceil(x))


# --- remainders -------------------------------------------------------------------------------------------------


def _fmod_spec(a: Array, b: Array) -> Array:
    """Return a - b*trunc(a/b); floats by C's fmod, which is exact."""
    if a.dtype != object:
        return np.asarray(np.fmod(a, b))
    a, b = np.broadcast_arrays(a, b)
    quotient = a / b
    down, up = (scalar.apply(name, quotient) for name in ("floor", "ceil"))
    positive = scalar.compare("fmod", lambda p, q: p > q, quotient, scalar.zeros((), quotient))
    return np.asarray(a - b * np.where(positive, down, up))


def _quotient(y: Value, a: Value, b: Value) -> Value:
    """Return trunc(a/b), a whole number, from y = a - b*trunc(a/b)."""
    return round_(div(sub(a, y), b))


def _fmod_jvp(y: Value, args: Any, dargs: Any) -> Value:
    """Return the tangent of fmod at `args` = a, b: da - q*db of `dargs`, where q = trunc(a/b) is constant between the
    jumps.
    """
    (a, b), (da, db) = args, dargs
    moved = None if db is None else neg(mul(db, _quotient(y, a, b)))
    return da if moved is None else moved if da is None else add(da, moved)


def _fmod_case(rng: Random) -> Case:
    """Return random arguments of fmod, drawn by `rng` for the law tests; divisors are not 0."""
    (a,), _ = number_cases(1)(rng)
    return (a, sample_inputs.positive(rng, a.shape) * rng.choice((1, -1))), {}


FMOD = binary(
    "fmod",
    _fmod_spec,
    _fmod_jvp,
    lambda gy, y, args: (gy, neg(mul(gy, _quotient(y, *args)))),
    cases=_fmod_case,
    exact=True,
    jumps=True,
)


def fmod(x: Value, y: Value) -> Value:
    """x - y*trunc(x/y), with the sign of x: C's fmod, torch.fmod, ONNX Mod with fmod=1. NaN where y is 0.

    In floats it is exact, however large x/y is. The derivative is 1 in x and -trunc(x/y) in y, at the jumps too.

    Parameters
    ----------
    x : array_like
        Numbers.
    y : array_like
        Numbers; x and y are broadcast to one shape, as in NumPy.

    Returns
    -------
    array
        Of the shape that x and y are broadcast to.

    Raises
    ------
    ShapeError
        If the shapes do not broadcast.
    ScalarError
        If floats and exact numbers are mixed.
    ZeroDivisionError
        If y is 0 and the numbers are exact.

    Examples
    --------
    >>> fmod(np.array([5.5, -5.5]), 2)
    array([ 1.5, -1.5])
    """
    return broadcast_binary(FMOD, x, y)


@composite
def mod(x: Value, y: Value) -> Value:
    """x - y*floor(x/y), with the sign of y: Python's %, numpy.mod, torch.remainder. NaN where y is 0.

    It is fmod(x, y), and y more where the signs differ; that sum is rounded in floats.

    Parameters
    ----------
    x : array_like
        Numbers.
    y : array_like
        Numbers; x and y are broadcast to one shape, as in NumPy.

    Returns
    -------
    array
        Of the shape that x and y are broadcast to.

    Raises
    ------
    ShapeError
        If the shapes do not broadcast.
    ScalarError
        If floats and exact numbers are mixed.
    ZeroDivisionError
        If y is 0 and the numbers are exact.

    Examples
    --------
    >>> mod(np.array([5.5, -5.5]), 2)
    array([1.5, 0.5])
    """
    r = fmod(x, y)
    if is_literal(y):
        return select(greater(0, r) if y > 0 else greater(r, 0), add(r, y), r)
    return select(equal(add(sign(r), sign(y)), 0), add(r, y), r)
