"""Quantisation: reals to the integers of a narrow type and back, and the store of a value in a float format.

An integer of a model is a real number of the graph that happens to be whole; only `quantize` makes whole numbers of
others. That sums of such numbers are exact is a fact about arithmetic (specgrad.rounding.quantised), not about meaning.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from .. import scalar
from ..call_cache import cached_call
from ..errors import ParameterError
from ..op import Case, Op, Value, apply, by_engine, composite, register, shape_of
from ..scalar import Array
from ..window import Shape
from ..window.footprint import same_cell
from . import sample_inputs
from .elementwise import cellwise, greater, mul, same_shape, select, sub
from .layout import axis_of, broadcast_together, one_reader, reshape

FLOAT_FORMATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")


# --- to integers ------------------------------------------------------------------------------------------------


def _quantize_shape(x: Shape, scale: Shape, zero: Shape, *, low: int | None, high: int | None) -> Shape:
    """Return the output shape of quantize; raise ParameterError if low exceeds high, and ShapeError unless x, scale and
    zero have one shape; () fits any.
    """
    if low is not None and high is not None and low > high:
        raise ParameterError("quantize", f"low must not exceed high; got low={low}, high={high}", rule="P5")
    return same_shape("quantize")(x, scale, zero)


def _quantize_spec(x: Array, scale: Array, zero: Array, *, low: int | None, high: int | None) -> Array:
    """Return round(x/scale) + zero, ties to even, clamped to low..high (None: no limit)."""
    q = np.asarray(scalar.apply("round", np.asarray(x / scale)) + zero)
    q = q if low is None else scalar.maximum(q, scalar.full((), low, q))
    return q if high is None else np.asarray(-scalar.maximum(-q, scalar.full((), -high, q)))


def _quantize_case(rng: Random) -> Case:
    """Return random arguments and parameters of quantize, drawn by `rng`, for the law tests."""
    shape = sample_inputs.lead(rng) + sample_inputs.sizes(rng, 1)
    scale = sample_inputs.numbers(rng, shape, low=1, denominators=(1, 2, 4))
    zero = sample_inputs.numbers(rng, shape, denominators=(1,))
    low, high = rng.choice(((None, None), (-2, 3), (0, 5), (None, 1)))
    return (sample_inputs.numbers(rng, shape, denominators=(1, 2, 4)), scale, zero), {"low": low, "high": high}


def _not_saturated(args: Any, t: Value, low: int | None, high: int | None) -> Value:
    """Return t where round(x/scale) + zero lies in low..high (ends included, [K1]), else 0; `args` are x, scale and
    zero.
    """
    if low is None and high is None:
        return t
    q = apply(QUANTIZE, *args, low=None, high=None)
    t = t if low is None else select(greater(low, q), 0, t)
    return t if high is None else select(greater(q, high), 0, t)


def _quantize_jvp(y: Value, args: Any, dargs: Any, *, low: int | None, high: int | None) -> Value | None:
    """Return the tangent of quantize from `dargs`: that of the zero point where nothing is saturated.

    Zero in x and scale. None if it is zero. `low` and `high` are where it saturates.
    """
    return None if dargs[2] is None else _not_saturated(args, dargs[2], low, high)


def _quantize_vjp(gy: Value, y: Value, args: Any, *, low: int | None, high: int | None) -> tuple[Value | None, ...]:
    """Return the cotangents of quantize(x, scale, zero), `args`: None for x and scale; for zero `gy`, the output's,
    where nothing is saturated.
    """
    return None, None, _not_saturated(args, gy, low, high)


QUANTIZE = register(
    Op(
        name="quantize",
        shape=_quantize_shape,
        spec=_quantize_spec,
        jvp=_quantize_jvp,
        vjp=_quantize_vjp,
        cases=_quantize_case,
        jumps=True,
        receptive_field=cellwise,
        footprint=same_cell,
        readers=one_reader,
    )
)


def _shaped_along(name: str, x: Value, parameter: Value, axis: int | None) -> Value:
    """Return `parameter`, of one number per entry of `axis`, in the shape that broadcasts with x; others unchanged.

    `name` is the operator in errors.
    """
    shape, given = shape_of(x), shape_of(parameter)
    if axis is None or len(given) != 1:
        return parameter
    after = len(shape) - 1 - axis_of(name, axis, len(shape))
    return reshape(parameter, given + (1,) * after)


@cached_call
def quantize(
    x: Value,
    scale: Value,
    zero_point: Value = 0,
    *,
    low: int | None = -128,
    high: int | None = 127,
    axis: int | None = None,
) -> Value:
    """saturate(round(x/scale) + zero_point): ties to even, then the zero point, then low..high, as ONNX says.

    The derivative is zero in x and scale; in the zero point it is 1 where nothing is saturated ([K1]).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    scale : array_like
        Positive step between neighbouring integers: one number, or one per entry of `axis`.
    zero_point : array_like, default 0
        The integer that stands for 0: one number, or one per entry of `axis`.
    low : int or None, default -128
        The least result; no limit if None.
    high : int or None, default 127
        The largest result; no limit if None.
    axis : int, optional
        The axis of x along which scale and zero point differ; None: they are broadcast.

    Returns
    -------
    array
        Integers, in the scalar type of x, of its shape.

    Raises
    ------
    ShapeError
        For shapes that do not broadcast, and an axis that does not exist.

    Examples
    --------
    >>> quantize(np.array([0.25, 0.75, 1.25, 99.0]), 0.5, 1, low=0, high=100)
    array([  1.,   3.,   3., 100.])
    """
    how = {"zero_point": zero_point, "low": low, "high": high}
    if axis is None and (y := by_engine("quantize", x, scale, **how)) is not None:
        return y
    given = (_shaped_along("quantize", x, p, axis) for p in (scale, zero_point))
    return apply(QUANTIZE, *broadcast_together("quantize", x, *given), low=low, high=high)


@composite
def dequantize(q: Value, scale: Value, zero_point: Value = 0, *, axis: int | None = None) -> Value:
    """The numbers that integers stand for: (q - zero_point) * scale.

    Parameters
    ----------
    q : array_like
        Integers, as `quantize` gives them.
    scale : array_like
        Positive step between neighbouring integers: one number, or one per entry of `axis`.
    zero_point : array_like, default 0
        The integer that stands for 0: one number, or one per entry of `axis`.
    axis : int, optional
        The axis of q along which scale and zero point differ; None: they are broadcast.

    Returns
    -------
    array
        Of the shape of q, where the others are broadcast to it.

    Raises
    ------
    ShapeError
        For shapes that do not broadcast, and an axis that does not exist.

    Examples
    --------
    >>> dequantize(np.array([1.0, 3.0]), 0.5, 1)
    array([0., 1.])
    """
    return mul(sub(q, _shaped_along("dequantize", q, zero_point, axis)), _shaped_along("dequantize", q, scale, axis))


# --- to a float format ------------------------------------------------------------------------------------------


def _cast_shape(x: Shape, *, dtype: str) -> Shape:
    """Return the output shape of cast; raise ParameterError for arguments that do not fit."""
    if dtype not in FLOAT_FORMATS:
        raise ParameterError("cast", f"dtype must be one of {', '.join(FLOAT_FORMATS)}; got {dtype!r}", rule="P5")
    return x


def _cast_case(rng: Random) -> Case:
    """Return random arguments and parameters of cast, drawn by `rng`, for the law tests."""
    shape = sample_inputs.lead(rng) + sample_inputs.sizes(rng, 1)
    return (sample_inputs.numbers(rng, shape),), {"dtype": rng.choice(FLOAT_FORMATS)}


CAST = register(
    Op(
        name="cast",
        shape=_cast_shape,
        spec=lambda x, *, dtype: x,
        vjp=lambda gy, y, args, *, dtype: (gy,),
        cases=_cast_case,
        linear="all",
        monotone=(0,),
        roundings=lambda x, *, dtype: 1,
        receptive_field=cellwise,
        footprint=same_cell,
        readers=one_reader,
    )
)


def cast(x: Value, dtype: str) -> Value:
    """x stored in a float format: x itself in meaning, as every stored value is; in arithmetic one rounding to `dtype`.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    dtype : str
        "float16", "bfloat16", "float32", "float64", "float8_e4m3fn" or "float8_e5m2".

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ParameterError
        For another format ([P5]).

    Examples
    --------
    >>> cast(np.array([0.1]), "float16")
    array([0.1])
    """
    return apply(CAST, x, dtype=dtype)
