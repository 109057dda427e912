"""Elementwise operators: one cell in, one cell out. At kinks they follow PyTorch ([K1]).

The Jacobian of such an operator is diagonal, so one rule `slope(x, y, t) = f'(x) * t` serves as tangent and as
cotangent. Masks (`greater`, `equal`, `sign`) have derivative zero; `select` routes by a mask and is linear.
Operators of several arguments broadcast as NumPy does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from .. import scalar
from ..call_cache import cached_call
from ..curve import Curve, always, at_most
from ..errors import ShapeError
from ..facts import DeclaredErrors, Names, SheetText
from ..op import Case, Op, Value, apply, by_engine, composite, is_literal, number_of, register, shape_of
from ..scalar import Array, Number
from ..window import Shape, identical
from ..window.footprint import same_cell
from ..window.receptive_field import CELL, ReceptiveField
from . import sample_inputs as cases
from .layout import axes_of, broadcast_together, fill, no_cotangent, no_tangent, one_reader, sum_

Slope = Callable[..., Value]


def same_shape(name: str) -> Callable[..., Shape]:
    """Return the shape rule of the operator `name`: the common shape of its arguments, else ShapeError; a Python number
    has shape () and fits every other.
    """

    def shape(*shapes: Shape) -> Shape:
        of_arrays = [s for s in shapes if s != ()] or [()]
        if any(s != of_arrays[0] for s in of_arrays):
            raise ShapeError(name, f"shapes must be equal; got {shapes}")
        return of_arrays[0]

    return shape


def cellwise(*shapes: Shape, **_: Any) -> tuple[ReceptiveField, ...]:
    """Return the receptive field of one cell per axis of the largest of `shapes`: an output cell reads the same cell of
    its inputs.
    """
    return (CELL,) * max(map(len, shapes))


def number_cases(count: int, maker: Callable[..., Array] = cases.numbers) -> Callable[[Random], Case]:
    """Return a drawer of random cases for the law tests, with `count` arrays of one shape, each as `maker` (random,
    shape) gives it.
    """

    def case(rng: Random) -> Case:
        shape = cases.lead(rng) + cases.sizes(rng, 1)
        return tuple(maker(rng, shape) for _ in range(count)), {}

    return case


# --- arithmetic -------------------------------------------------------------------------------------------------


def add_tangents(*terms: Value | None) -> Value | None:
    """Return the sum of tangents, the `terms`; None is zero, in and out."""
    total: Value | None = None
    for t in terms:
        total = t if total is None else total if t is None else add(total, t)
    return total


def _times_or_none(d: Value | None, factor: Value) -> Value | None:
    """Return d * factor; None, which is zero, stays None."""
    return None if d is None else mul(d, factor)


def _div_jvp(y: Value, args: Any, dargs: Any) -> Value | None:
    """Return the tangent of y = a / b, da/b - db*y/b, with `args` = a, b and `dargs` = da, db (None: zero)."""
    (_, b), (da, db) = args, dargs
    return add_tangents(None if da is None else div(da, b), None if db is None else neg(div(mul(db, y), b)))


def _quotient_case(rng: Random) -> Case:
    """Return random arguments of div, drawn by `rng` for the law tests; divisors are positive."""
    (x,), _ = number_cases(1)(rng)
    return (x, cases.positive(rng, x.shape)), {}


def binary(name: str, f: Callable[[Any, Any], Any], jvp: Any, vjp: Any, **traits: Any) -> Op:
    """Register and return a binary elementwise operator `name`, y = f(a, b), with derivative rules jvp and vjp.

    `traits` are further fields of `Op`. Its arguments have one shape. ValueError for a name that is taken.
    """
    maker = traits.pop("cases", number_cases(2))
    shape = same_shape(name)
    return register(
        Op(
            name=name,
            shape=lambda a, b: shape(a, b),
            spec=lambda a, b: np.asarray(f(a, b)),
            jvp=jvp,
            vjp=vjp,
            cases=maker,
            receptive_field=cellwise,
            footprint=same_cell,
            readers=one_reader,
            **traits,
        )
    )


ADD = binary(
    "add",
    operator.add,
    lambda y, args, dargs: add_tangents(*dargs),
    lambda gy, y, args: (gy, gy),
    linear="all",
    monotone=(0, 1),
    roundings=lambda *_: 1,
    commutative=True,
    names=Names(onnx="Add"),
)


def _sub_jvp(y: Value, args: Any, dargs: Any) -> Value | None:
    """Return the tangent of a - b, da - db, with `dargs` = da, db (None: zero)."""
    return add_tangents(dargs[0], None if dargs[1] is None else neg(dargs[1]))


def _sub_vjp(gy: Value, y: Value, args: Any) -> tuple[Value, Value]:
    """Return the cotangents of both arguments `args` of sub, gy and -gy, from `gy`, that of its output `y`."""
    return gy, neg(gy)


def _div_vjp(gy: Value, y: Value, args: Any) -> tuple[Value, Value]:
    """Return the cotangents of both arguments of div, `args` = a, b: gy/b and -gy*y/b from `gy`, that of its output
    `y`.
    """
    return div(gy, args[1]), neg(div(mul(gy, y), args[1]))


SUB = binary(
    "sub",
    operator.sub,
    _sub_jvp,
    _sub_vjp,
    linear="all",
    monotone=(0,),
    roundings=lambda *_: 1,
    magnitude=operator.add,
    names=Names(onnx="Sub"),
)
MUL = binary(
    "mul",
    operator.mul,
    lambda y, args, dargs: add_tangents(_times_or_none(dargs[0], args[1]), _times_or_none(dargs[1], args[0])),
    lambda gy, y, args: (mul(gy, args[1]), mul(gy, args[0])),
    linear=((0,), (1,)),
    roundings=lambda *_: 1,
    commutative=True,
    names=Names(onnx="Mul"),
)
DIV = binary(
    "div",
    operator.truediv,
    _div_jvp,
    _div_vjp,
    linear=((0,),),
    roundings=lambda *_: 2,  # a / b, or a * (1 / b)
    divides=True,
    cases=_quotient_case,
    names=Names(onnx="Div"),
)


def broadcast_binary(op: Op, x: Value, y: Value) -> Value:
    """Apply a binary operator after broadcasting as NumPy does; an engine's own operator goes first.

    ShapeError for shapes that do not broadcast.
    """
    if (z := by_engine(op.name, x, y)) is not None:
        return z
    if identical(getattr(x, "shape", ("none",)), getattr(y, "shape", ("no other",))):
        return apply(op, x, y)
    if is_literal(x) and is_literal(y):
        x = np.asarray(x)
    return apply(op, *broadcast_together(op.name, x, y))


def add(x: Value, y: Value) -> Value:
    """x + y, broadcast as NumPy does.

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

    Examples
    --------
    >>> add(np.array([1.0, 2.0]), np.array([[10.0], [20.0]]))
    array([[11., 12.],
           [21., 22.]])
    """
    return broadcast_binary(ADD, x, y)


def sub(x: Value, y: Value) -> Value:
    """x - y, cell by cell, after broadcasting.

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

    Examples
    --------
    >>> sub(np.array([5.0, 2.0]), 1)
    array([4., 1.])
    """
    return broadcast_binary(SUB, x, y)


def mul(x: Value, y: Value) -> Value:
    """x * y, cell by cell, after broadcasting.

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

    Examples
    --------
    >>> mul(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array([3., 8.])
    """
    return broadcast_binary(MUL, x, y)


def div(x: Value, y: Value) -> Value:
    """x / y, cell by cell, after broadcasting.

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
        If a divisor is 0 and the numbers are exact; floats give an infinity or NaN.

    Examples
    --------
    >>> div(np.array([1.0, 2.0]), 4)
    array([0.25, 0.5 ])
    """
    return broadcast_binary(DIV, x, y)


# --- masks and selection ----------------------------------------------------------------------------------------


def _mask(name: str, test: Callable[[Any, Any], Any]) -> Op:
    """Register and return the comparison `name`: 1 where `test` holds, else 0, with derivative zero.

    A comparison with NaN does not hold. ValueError for a name that is taken.
    """

    def spec(a: Array, b: Array) -> Array:
        return np.where(scalar.compare(name, test, a, b), scalar.full((), 1, a), scalar.zeros((), a))

    shape = same_shape(name)
    return register(
        Op(
            name=name,
            shape=lambda a, b: shape(a, b),
            spec=spec,
            jvp=no_tangent,
            vjp=no_cotangent,
            cases=number_cases(2),
            exact=True,
            jumps=True,
            commutative=test is operator.eq,
            receptive_field=cellwise,
            footprint=same_cell,
            readers=one_reader,
        )
    )


GREATER = _mask("greater", operator.gt)
GREATER_EQUAL = _mask("greater_equal", operator.ge)
EQUAL = _mask("equal", operator.eq)


def greater(x: Value, y: Value) -> Value:
    """1 where x > y, else 0.

    Parameters
    ----------
    x : array_like
        Numbers.
    y : array_like
        Numbers; x and y are broadcast to one shape, as in NumPy.

    Returns
    -------
    array
        1 or 0 per cell, of the shape that x and y are broadcast to, in the scalar type of the arguments.

    Raises
    ------
    ShapeError
        If the shapes do not broadcast.
    ScalarError
        If floats and exact numbers are mixed.

    Examples
    --------
    >>> greater(np.array([1.0, 2.0]), 1)
    array([0., 1.])
    """
    return broadcast_binary(GREATER, x, y)


def greater_equal(x: Value, y: Value) -> Value:
    """1 where x >= y, else 0.

    Parameters
    ----------
    x : array_like
        Numbers.
    y : array_like
        Numbers; x and y are broadcast to one shape, as in NumPy.

    Returns
    -------
    array
        1 or 0 per cell, of the shape that x and y are broadcast to, in the scalar type of the arguments.

    Raises
    ------
    ShapeError
        If the shapes do not broadcast.
    ScalarError
        If floats and exact numbers are mixed.

    Examples
    --------
    >>> greater_equal(np.array([1.0, 2.0, 3.0]), 2)
    array([0., 1., 1.])
    """
    return broadcast_binary(GREATER_EQUAL, x, y)


def equal(x: Value, y: Value) -> Value:
    """Return 1 where x == y, else 0, in the arguments' scalar type; +0 equals -0, NaN equals nothing.

    Parameters
    ----------
    x : array_like
        Numbers.
    y : array_like
        Numbers; x and y are broadcast to one shape, as in NumPy.

    Returns
    -------
    array
        1 or 0 per cell, of the shape that x and y are broadcast to, in the scalar type of the arguments.

    Raises
    ------
    ShapeError
        If the shapes do not broadcast.
    ScalarError
        If floats and exact numbers are mixed.

    Examples
    --------
    >>> equal(np.array([1.0, math.nan]), np.array([[1.0], [math.nan]]))
    array([[1., 0.],
           [0., 0.]])
    """
    return broadcast_binary(EQUAL, x, y)


def _select_spec(c: Array, a: Array, b: Array) -> Array:
    """Return select: a where c is not 0, else b, over any scalar type."""
    return np.asarray(np.where(c != 0, a, b))


def _select_jvp(y: Value, args: Any, dargs: Any) -> Value | None:
    """Return the tangent of select(c, a, b): da where c is not 0, else db, with `dargs` = (no tangent of c), da, db
    (None: zero).
    """
    da, db = dargs[1:]
    if da is None and db is None:
        return None
    return apply(SELECT, args[0], 0 if da is None else da, 0 if db is None else db)


def _select_vjp(gy: Value, y: Value, args: Any) -> tuple[None, Value, Value]:
    """Return the cotangents of select(c, a, b), `args`: None for c, gy where a was selected, gy where b was; 0
    elsewhere.
    """
    return None, select(args[0], gy, 0), select(args[0], 0, gy)


def _select_case(rng: Random) -> Case:
    """Return random arguments and parameters of select, drawn by `rng`, for the law tests."""
    (a, b), _ = number_cases(2)(rng)
    return (cases.numbers(rng, a.shape, low=0, denominators=(3,)), a, b), {}


SELECT = register(
    Op(
        name="select",
        shape=lambda c, a, b: same_shape("select")(c, a, b),
        spec=_select_spec,
        jvp=_select_jvp,
        vjp=_select_vjp,
        cases=_select_case,
        linear=((1, 2),),
        monotone=(1, 2),
        exact=True,
        receptive_field=cellwise,
        footprint=same_cell,
        readers=one_reader,
    )
)


@cached_call
def select(c: Value, a: Value, b: Value) -> Value:
    """a where c is not 0, else b; what is not selected is not touched, be it inf or NaN.

    Parameters
    ----------
    c : array_like
        Where it is not 0, a is taken.
    a : array_like
        Numbers; the three shapes are broadcast to one.
    b : array_like
        Numbers that are taken where c is 0.

    Returns
    -------
    array
        Of the shape that c, a and b are broadcast to.

    Raises
    ------
    ShapeError
        If the shapes do not broadcast.
    ScalarError
        If floats and exact numbers are mixed.

    Examples
    --------
    >>> select(np.array([1.0, 0.0]), np.array([5.0, np.nan]), 7)
    array([5., 7.])
    """
    return apply(SELECT, *broadcast_together("select", c, a, b))


# --- one argument -----------------------------------------------------------------------------------------------


def _same_shape_as_x(x: Shape) -> Shape:
    """Return the shape of x: the shape rule of a unary operator without parameters."""
    return x


def unary(name: str, f: Callable[..., Array], slope: Slope, **fields: Any) -> Op:
    """Register and return an operator `name` with y = f(x) and a diagonal Jacobian: slope(x, y, t, **params) is f'(x) *
    t; `fields` are further ones of `Op`.

    ValueError for a name that is taken.
    """
    return register(
        Op(
            name=name,
            shape=fields.pop("shape", _same_shape_as_x),
            spec=f,
            jvp=lambda y, args, dargs, **params: slope(args[0], y, dargs[0], **params),
            vjp=lambda gy, y, args, **params: (slope(args[0], y, gy, **params),),
            cases=fields.pop("cases", number_cases(1)),
            receptive_field=cellwise,
            footprint=same_cell,
            readers=one_reader,
            **fields,
        )
    )


_POSITIVE = number_cases(1, cases.positive)


def _perfect_squares(rng: Random) -> Case:
    """Return squares of random positive numbers, whose roots are rational, drawn by `rng`."""
    (x,), _ = _POSITIVE(rng)
    return (x * x,), {}


def _above_0(xp: Any, low: Any) -> Any:
    """Return low where it is positive, else 0, whose reciprocal is infinite: no bound. `xp` is the array module."""
    return xp.where(low > 0, low, xp.zeros_like(low))


def _neg_slope(x: Value, y: Value, t: Value) -> Value:
    """Return the derivative of -x times t: -t."""
    return neg(t)


def _abs_slope(x: Value, y: Value, t: Value) -> Value:
    """Return the derivative of abs(x) times t: sign(x) * t."""
    return mul(t, sign(x))


NEG = unary(
    "neg",
    lambda x: np.asarray(-x),
    _neg_slope,
    linear="all",
    exact=True,
    names=Names(torch="torch.neg", numpy="negative", aten="neg.default", onnx="Neg", opsets=(6, 13)),
)
EXP = unary(
    "exp",
    lambda x: scalar.apply("exp", x),
    lambda x, y, t: mul(y, t),
    monotone=(0,),
    transcendental=True,
    curve=Curve(
        steepest=lambda xp, low, high, p: 1.001 * xp.exp(high), curvature=lambda xp, low, high, p: 1.001 * xp.exp(high)
    ),
    names=Names(torch="torch.exp", jax="jnp.exp", numpy="exp", aten="exp.default", onnx="Exp", opsets=(6, 13)),
    errors=DeclaredErrors(  # JAX: 1.4 up to 88.3, where float32 ends at 88.72
        "y",
        {"torch": 1.5, "jax": 6.0, "numpy": 4.0, "onnxruntime": 1.5, "openvino-f32": 7.5, "onnx-reference": 4.0}
        | {"iree": 6.0, "tract": 2.0, "mnn": 12.0, "ncnn": 2.0},
        wrong={
            "openvino-f32": "infinite above 88.37",
            "mnn": "exp(87) above 87, and exp(-87) below -87",
            "ncnn": "exp(88.376) above 88.376",
        },
    ),
    sheet=SheetText(
        "exp(X)",
        conditions=(
            (
                "range",
                "in float32 the last argument with a finite value is 88.72283172607422; 88.72283935546875 overflows",
            ),
        ),
    ),
)
LOG = unary(
    "log",
    lambda x: scalar.apply("log", x),
    lambda x, y, t: div(t, x),
    monotone=(0,),
    transcendental=True,
    curve=Curve(
        steepest=lambda xp, low, high, p: 1.001 / _above_0(xp, low),
        curvature=lambda xp, low, high, p: 1.001 / _above_0(xp, low) ** 2,
    ),
    cases=_POSITIVE,
    names=Names(torch="torch.log", jax="jnp.log", numpy="log", aten="log.default", onnx="Log", opsets=(6, 13)),
    errors=DeclaredErrors(
        "y",
        {"torch": 1.5, "jax": 2.5, "numpy": 5.0, "onnxruntime": 4.5, "openvino-f32": 1.5, "onnx-reference": 5.0}
        | {"iree": 1.5, "tract": 1.5, "mnn": 1.5, "ncnn": 1.5},
    ),
    sheet=SheetText("log(X)", conditions=(("domain", "X - E_X > 0; log(0) = -inf and NaN below 0 are no numbers"),)),
)
SQRT = unary(
    "sqrt",
    lambda x: scalar.apply("sqrt", x),
    lambda x, y, t: div(t, mul(2, y)),
    monotone=(0,),
    roundings=lambda *_: 1,
    curve=Curve(
        steepest=lambda xp, low, high, p: 0.5001 / xp.sqrt(_above_0(xp, low)),
        curvature=lambda xp, low, high, p: 0.2501 / _above_0(xp, low) ** 1.5,
    ),
    cases=_perfect_squares,
    names=Names(torch="torch.sqrt", jax="jnp.sqrt", numpy="sqrt", aten="sqrt.default", onnx="Sqrt", opsets=(6, 13)),
    errors=DeclaredErrors(  # PyTorch: MKL's, not the processor's
        "y",
        {"torch": 1.2, "jax": 1.0, "numpy": 1.0, "onnxruntime": 1.0, "openvino-f32": 1.0, "onnx-reference": 1.0}
        | {"iree": 1.0, "tract": 1.0, "mnn": 1.0, "ncnn": 1.0},
    ),
    sheet=SheetText("sqrt(X)", conditions=(("domain", "X - E_X >= 0; NaN below 0"),)),
)


def _sign_spec(x: Array) -> Array:
    """Return the sign of x: 1 above 0, -1 below, 0 at 0, NaN for NaN; over any scalar type."""
    zero, one = scalar.zeros(x.shape, x), scalar.literal(1, x)
    above, below = (scalar.compare("sign", test, x, zero) for test in (operator.gt, operator.lt))
    signs = np.where(above, one, np.where(below, -one, zero))
    return signs if x.dtype == object else np.where(x != x, x, signs)


SIGN = unary(
    "sign",
    _sign_spec,
    lambda x, y, t: None,
    monotone=(0,),
    exact=True,
    jumps=True,
    names=Names(jax="jnp.sign", numpy="sign", aten="sign.default", onnx="Sign", opsets=(9, 13)),
)
ABS = unary(
    "abs",
    lambda x: np.asarray(abs(x)),
    _abs_slope,
    exact=True,
    curve=Curve(steepest=at_most(1.0), kinks=always((0,)), turning=always(0.0)),
    names=Names(torch="torch.abs", jax="jnp.abs", numpy="absolute", aten="abs.default", onnx="Abs", opsets=(6, 13)),
)


@cached_call
def neg(x: Value) -> Value:
    """The negative -x, cell by cell.

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
    >>> neg(np.array([1.0, -2.0]))
    array([-1.,  2.])
    """
    return apply(NEG, x)


@cached_call
def exp(x: Value) -> Value:
    """The exponential e**x, cell by cell.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ScalarError
        For exact numbers, which have no exp; floats and balls have.

    Examples
    --------
    >>> exp(np.array([0.0, 1.0]))
    array([1.        , 2.71828183])
    """
    return apply(EXP, x)


@cached_call
def log(x: Value) -> Value:
    """The natural logarithm; log(0) = -inf, NaN below.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ScalarError
        For exact numbers, which have no log; floats and balls have.

    Examples
    --------
    >>> log(np.array([1.0, math.e, 0.0]))
    array([  0.,   1., -inf])
    """
    return apply(LOG, x)


@cached_call
def sqrt(x: Value) -> Value:
    """The square root, cell by cell; exact for rationals that are squares.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ScalarError
        For a rational that is not a square; floats and balls have every root.

    Examples
    --------
    >>> sqrt(np.array([4.0, 2.0]))
    array([2.        , 1.41421356])
    >>> from specgrad import exact
    >>> sqrt(exact([4]))
    array([Fraction(2, 1)], dtype=object)
    """
    return apply(SQRT, x)


@cached_call
def sign(x: Value) -> Value:
    """-1, 0 or 1; NaN for NaN. The derivative is zero.

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
    >>> sign(np.array([-3.0, 0.0, 2.0]))
    array([-1.,  0.,  1.])
    """
    return apply(SIGN, x)


@cached_call
def abs_(x: Value) -> Value:
    """The absolute value; abs'(0) = 0 ([K1]).

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
    >>> abs_(np.array([-2.0, 0.0, 3.0]))
    array([2., 0., 3.])
    """
    return apply(ABS, x)


# --- powers -----------------------------------------------------------------------------------------------------


def _power_spec(x: Array, *, exponent: Number) -> Array:
    """Return x**exponent, over any scalar type: by products and roots where it is a multiple of 1/2, else by exp and
    log.
    """
    if exponent == int(exponent):
        n = int(exponent)
        return np.asarray(x**n if n >= 0 else scalar.full(x.shape, 1, x) / x**-n)
    if 2 * exponent == int(2 * exponent):
        return _power_spec(scalar.apply("sqrt", x), exponent=int(2 * exponent))
    if x.dtype != object:
        return np.asarray(x ** float(exponent), dtype=x.dtype)
    return scalar.apply("exp", scalar.apply("log", x) * scalar.literal(exponent, x))


def _power_slope(x: Value, y: Value, t: Value, *, exponent: Number) -> Value | None:
    """Return exponent * x**(exponent - 1) * t; None for exponent 0, so that x**-1 is never computed for it."""
    return None if exponent == 0 else mul(mul(t, power(x, exponent - 1)), exponent)


def _power_turning(p: Any) -> float | None:
    """Return 0 for positive even exponents (in parameters p), at which x**exponent turns; else None."""
    e = float(p["exponent"])
    return 0.0 if e > 0 and e % 2 == 0 else None


def _power_curvature(xp: Any, low: Any, high: Any, p: Any) -> Any:
    """Return a bound of the second derivative of x**exponent on low..high; infinite where there is none.

    `xp` is the array module, p holds the exponent.
    """
    e = float(p["exponent"])
    if e in (0, 1):
        return 0.0 * low
    bound = 1.001 * abs(e * (e - 1)) * xp.maximum(abs(low) ** (e - 2), abs(high) ** (e - 2))
    whole = e == int(e) and e >= 2
    return bound if whole else xp.where(low > 0, bound, math.inf)


POWER = unary(
    "power",
    _power_spec,
    _power_slope,
    shape=lambda x, *, exponent: x,
    cases=lambda rng: (_POSITIVE(rng)[0], {"exponent": rng.choice((0, 1, 2, 3, -1, -2))}),
    curve=Curve(curvature=_power_curvature, turning=_power_turning),
    errors=DeclaredErrors(
        "y",
        {"torch": 2.0, "jax": 2.0, "numpy": 2.0, "onnxruntime": 1.5, "openvino-f32": 1.5, "onnx-reference": 2.0}
        | {"tract": 1.5, "mnn": 1.5},
        wrong={
            "iree": "up to 149 units, as exp(e*log(x)) in float32 has",
            "ncnn": "up to 113 units, and x**2 of a negative x is no number",
        },
    ),
)


@cached_call
def power(x: Value, exponent: Number) -> Value:
    """x**exponent for a number exponent; over rationals the exponent must be whole, or x a square for halves.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    exponent : number
        One finite number for all cells; no array.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ShapeError
        For an exponent that is not finite.
    ScalarError
        For a rational whose power is not rational: floats and balls have it.

    Examples
    --------
    >>> power(np.array([2.0, 3.0]), 2)
    array([4., 9.])
    """
    if not math.isfinite(exponent):
        raise ShapeError("power", f"exponent must be finite; got {exponent}")
    return apply(POWER, x, exponent=number_of(exponent))


def _root_slope(x: Value, y: Value, t: Value, *, exponent: Number) -> Value:
    """Return the slope of x**exponent times t, and 0 at 0, where it would be infinite ([K1]).

    Neither mode multiplies 0 by infinity.
    """
    flat = equal(x, 0)
    steep = power(select(flat, 1, x), exponent - 1)
    return mul(select(flat, 0, mul(t, steep)), exponent)


ROOT = unary(
    "root",
    _power_spec,
    _root_slope,
    shape=lambda x, *, exponent: x,
    cases=lambda rng: (_POSITIVE(rng)[0], {"exponent": rng.choice((2, 3))}),  # what rationals can do
    curve=POWER.curve,
)


# --- the larger and the smaller ---------------------------------------------------------------------------------


def _sharing_ties(first: Op) -> Any:
    """Return jvp and vjp of maximum or minimum: at a tie the derivative is shared evenly ([K1]).

    `first` is the comparison after which the first argument is the result.
    """

    def pick(test: Value, tie: Value, a: Value, b: Value) -> Value:
        return select(tie, div(add(a, b), 2), select(test, a, b))

    def jvp(y: Value, args: Any, dargs: Any) -> Value:
        a, b = args
        da, db = (fill(y, 0) if d is None else d for d in dargs)
        return pick(apply(first, a, b), equal(a, b), da, db)

    def vjp(gy: Value, y: Value, args: Any) -> tuple[Value, Value]:
        a, b = args
        test, tie = apply(first, a, b), equal(a, b)
        half = div(gy, 2)
        return select(tie, half, select(test, gy, 0)), select(tie, half, select(test, 0, gy))

    return {"jvp": jvp, "vjp": vjp}


LESS = _mask("less", operator.lt)
MAXIMUM = binary(
    "maximum",
    scalar.maximum,
    **_sharing_ties(GREATER),
    monotone=(0, 1),
    exact=True,
    largest=True,
    commutative=True,
    names=Names(onnx="Max"),
)
MINIMUM = binary(
    "minimum",
    lambda a, b: -scalar.maximum(-a, -b),
    **_sharing_ties(LESS),
    monotone=(0, 1),
    exact=True,
    largest=True,
    commutative=True,
    names=Names(onnx="Min"),
)


def maximum(x: Value, y: Value) -> Value:
    """The larger of x and y, NaN if either is; at a tie both share the derivative evenly ([K1]).

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

    Examples
    --------
    >>> maximum(np.array([1.0, 5.0]), np.array([3.0, math.nan]))
    array([ 3., nan])
    """
    return broadcast_binary(MAXIMUM, x, y)


def minimum(x: Value, y: Value) -> Value:
    """The smaller of x and y, NaN if either is; at a tie both share the derivative evenly ([K1]).

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

    Examples
    --------
    >>> minimum(np.array([1.0, 5.0]), 3)
    array([1., 3.])
    """
    return broadcast_binary(MINIMUM, x, y)


STOP_GRADIENT = register(
    Op(
        name="stop_gradient",
        shape=_same_shape_as_x,
        spec=lambda x: x,
        jvp=no_tangent,
        vjp=no_cotangent,
        cases=number_cases(1),
        monotone=(0,),
        exact=True,
        receptive_field=cellwise,
        footprint=same_cell,
        readers=one_reader,
        names=Names(aten="detach.default", onnx="Identity"),
    )
)


@cached_call
def stop_gradient(x: Value) -> Value:
    """x itself, as a constant to every derivative.

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
    >>> from specgrad import grad, sum, trace
    >>> grad(trace(lambda x: sum(x * stop_gradient(x)), (2,)))(np.array([3.0, 5.0]))
    array([3., 5.])
    """
    return apply(STOP_GRADIENT, x)


@composite
def mean(x: Value, axes: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Value:
    """The mean over axes.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    axes : int or sequence of int, optional
        Axes that are reduced, from 0 or, negative, from the end; all if not given.
    keepdims : bool, default False
        Leave the reduced axes in place, with one cell each.

    Returns
    -------
    array
        Without the axes, or with one cell in each.

    Raises
    ------
    ShapeError
        For axes that do not exist, and where there are no cells ([W1]).

    Examples
    --------
    >>> mean(np.arange(4.0))
    array(1.5)
    """
    shape = shape_of(x)
    count = math.prod(shape[a] for a in axes_of("mean", axes, len(shape)))
    if count == 0:
        raise ShapeError("mean", f"no cells to average; got input shape {shape}", rule="W1")
    return div(sum_(x, axes, keepdims=keepdims), count)
