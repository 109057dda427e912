"""Contraction: one bilinear operator, written in index letters, closed under transposition.

    contract "ab,bc->ac":  y[a,c] = sum_b x[a,b] * z[b,c]

Every letter stands in at least two of the three places; so the gradient in x is the contraction "ac,bc->ab".
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np

from .. import scalar
from ..errors import ParameterError, ShapeError
from ..op import Case, Op, Value, apply, composite, register, shape_of
from ..scalar import Array
from ..window import Shape
from ..window.axis_maps import CELL
from ..window.footprint import BoxRule, linked
from . import sample_inputs
from .elementwise import add, add_tangents
from .layout import broadcast, common_shape, reshape

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _parse(spec: str) -> tuple[str, str, str]:
    """Return the letters of x, of z and of the result; raise ParameterError for a malformed spec."""
    ins, arrow, out = spec.partition("->")
    x, comma, z = ins.partition(",")
    letters = x + z + out
    well_formed = arrow and comma and all(c in LETTERS for c in letters)
    if not well_formed or any(len(set(part)) != len(part) for part in (x, z, out)):
        raise ParameterError("contract", f"spec must look like 'ab,bc->ac'; got {spec!r}", rule="P5")
    for c in set(letters):
        if letters.count(c) < 2:
            raise ParameterError("contract", f"letter {c} must stand in two places of {spec!r}", rule="P5")
    return x, z, out


def _extents(x: Shape, z: Shape, spec: str) -> dict[str, int]:
    """Return the size of every letter of the einsum text `spec` for shapes x and z; raise ShapeError if they do not
    fit.
    """
    a, b, _ = _parse(spec)
    if len(a) != len(x) or len(b) != len(z):
        raise ShapeError("contract", f"{spec!r} does not fit shapes {x} and {z}")
    extents: dict[str, int] = {}
    for letter, n in zip(a + b, x + z, strict=True):
        if extents.setdefault(letter, n) != n:
            raise ShapeError("contract", f"{letter} is {extents[letter]} and {n} in {spec!r}; got shapes {x} and {z}")
    return extents


def _shape(x: Shape, z: Shape, *, spec: str) -> Shape:
    """Return the output shape of contract by the einsum text `spec`, for shapes x and z; raise ShapeError if they do
    not fit.
    """
    extents = _extents(x, z, spec)
    return tuple(extents[c] for c in _parse(spec)[2])


def _spec(x: Array, z: Array, *, spec: str) -> Array:
    """Return contract: the einsum `spec` of x and z, over any scalar type."""
    if x.dtype != object:
        return np.asarray(np.einsum(spec, x, z, optimize=True), dtype=np.result_type(x, z))
    if 0 in x.shape + z.shape:
        return scalar.zeros(_shape(x.shape, z.shape, spec=spec), x)
    return _by_matrices(x, z, spec)


def _by_matrices(x: Array, z: Array, spec: str) -> Array:
    """Return the einsum `spec` of x and z as a product of matrices.

    A letter of both factors and of the result numbers matrices, one of both factors alone is summed over, one of a
    factor and the result numbers rows or columns.
    """
    a, b, out = _parse(spec)
    extents = _extents(x.shape, z.shape, spec)
    numbers, rows, columns = ([c for c in out if (c in a, c in b) == m] for m in ((1, 1), (1, 0), (0, 1)))
    summed = [c for c in a if c not in out]

    def stacked(v: Array, letters: str, *parts: list[str]) -> Array:
        """Return v with its axes in the order of the parts, those of each part as one."""
        ordered = v.transpose([letters.index(c) for part in parts for c in part])
        return ordered.reshape([math.prod(extents[c] for c in part) for part in parts])

    y = scalar.matmul(stacked(x, a, numbers, rows, summed), stacked(z, b, numbers, summed, columns))
    made = [*numbers, *rows, *columns]
    return y.reshape([extents[c] for c in made]).transpose([made.index(c) for c in out])


def _jvp(y: Value, args: Any, dargs: Any, *, spec: str) -> Value | None:
    """Return the tangent of the einsum `spec` of `args` = x, z: f(dx, z) + f(x, dz), with `dargs` = dx, dz (None:
    zero).
    """
    (x, z), (dx, dz) = args, dargs
    return add_tangents(
        None if dx is None else apply(CONTRACT, dx, z, spec=spec),
        None if dz is None else apply(CONTRACT, x, dz, spec=spec),
    )


def _vjp(gy: Value, y: Value, args: Any, *, spec: str) -> tuple[Value, Value]:
    """Return the cotangents of x and z = `args` of the einsum `spec`: einsums of `gy`, the output's, with the other
    factor, letters exchanged.
    """
    x, z, out = _parse(spec)
    return (
        apply(CONTRACT, gy, args[1], spec=f"{out},{z}->{x}"),
        apply(CONTRACT, gy, args[0], spec=f"{out},{x}->{z}"),
    )


def _roundings(x: Shape, z: Shape, *, spec: str) -> int:
    """Return N with abs(error) <= gamma_N * magnitude for each cell of the einsum `spec` of shapes x and z: the number
    of products in its sum.
    """
    extents, out = _extents(x, z, spec), _parse(spec)[2]
    return math.prod(n for c, n in extents.items() if c not in out)


def _case(rng: Random) -> Case:
    """Return random arguments and parameters of contract, drawn by `rng`, for the law tests."""
    spec = rng.choice(("ab,bc->ac", "abc,abd->acd", "a,a->", "ab,ab->ab", "a,b->ab", "abc,cd->abd", "ab,ab->b"))
    x, z, _ = _parse(spec)
    extent = {c: rng.choice((1, 2, 3, 0) if rng.random() < 0.2 else (1, 2, 3)) for c in x + z}
    return tuple(sample_inputs.numbers(rng, tuple(extent[c] for c in part)) for part in (x, z)), {"spec": spec}


def _footprint(x: Shape, z: Shape, *, spec: str) -> BoxRule:
    """Return the rule from boxes of the einsum `spec` of shapes x and z to the boxes of both that they need."""
    a, b, out = _parse(spec)
    links = [[out.index(c) if c in out else None for c in part] for part in (a, b)]
    return linked([CELL] * len(out), links, [x, z], {"spec": spec})


CONTRACT = register(
    Op(
        name="contract",
        shape=_shape,
        spec=_spec,
        jvp=_jvp,
        vjp=_vjp,
        cases=_case,
        footprint=_footprint,
        linear=((0,), (1,)),
        roundings=_roundings,
        kernel=True,
        multiply_adds=lambda x, z, *, spec: math.prod(_extents(x, z, spec).values()),
    )
)


def contract(x: Value, z: Value, spec: str) -> Value:
    """A bilinear contraction of two values x and z by the einsum text `spec`, without lone letters.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    z : array_like
        Numbers of any shape.
    spec : str
        Axes by letters, "ab,bc->ac": every letter stands in two of the three parts, or in all.

    Returns
    -------
    array
        Its axes are those after the arrow.

    Raises
    ------
    ShapeError
        If a letter has two sizes.
    ParameterError
        For a text that has not this form, and a letter that stands in one part only ([P5]).
    ScalarError
        If floats and exact numbers are mixed.

    Examples
    --------
    >>> contract(np.ones((2, 3)), np.ones((3, 4)), "ab,bc->ac").shape
    (2, 4)
    """
    return apply(CONTRACT, x, z, spec=spec.replace(" ", ""))


@composite
def matmul(x: Value, z: Value) -> Value:
    """The matrix product x z over the last two axes; leading axes broadcast, vectors as in NumPy.

    Parameters
    ----------
    x : array_like, shape (..., m, k) or (k,)
        Numbers.
    z : array_like, shape (..., k, n) or (k,)
        Numbers.

    Returns
    -------
    array, shape (..., m, n)
        Without m, n where x, z are vectors.

    Raises
    ------
    ShapeError
        If the inner sizes differ, or the leading axes do not broadcast.
    ScalarError
        If floats and exact numbers are mixed.

    Examples
    --------
    >>> matmul(np.ones((5, 2, 3)), np.ones((3, 4))).shape
    (5, 2, 4)
    """
    a, b = shape_of(x), shape_of(z)
    if not a or not b:
        raise ShapeError("matmul", f"needs at least one axis on each side; got shapes {a} and {b}")
    if a[-1] != b[-2 if len(b) > 1 else -1]:
        raise ShapeError("matmul", f"inner sizes differ; got shapes {a} and {b}")
    if len(a) == 1:
        y = matmul(reshape(x, (1, *a)), z)
        return reshape(y, shape_of(y)[: len(b) - 2] + b[-1:] if len(b) > 1 else ())
    if len(b) < 3:
        rows = LETTERS[3 : 2 + len(a)]
        return contract(x, z, f"{rows}b,bc->{rows}c" if len(b) == 2 else f"{rows}b,b->{rows}")
    lead = common_shape("matmul", a[:-2], b[:-2])
    batch = LETTERS[3 : 3 + len(lead)]
    x, z = broadcast(x, lead + a[-2:]), broadcast(z, lead + b[-2:])
    return contract(x, z, f"{batch}ab,{batch}bc->{batch}ac")


@composite
def linear(w: Value, b: Value | None, x: Value) -> Value:
    """A linear layer: y[..., o] = b[o] + sum_i w[o, i] * x[..., i], as in PyTorch.

    Parameters
    ----------
    w : array_like, shape (out, in)
        Weights.
    b : array_like, shape (out,), or None
        Bias; None: no bias.
    x : array_like, shape (..., in)
        Axes before the last one are mapped.

    Returns
    -------
    array, shape (..., out)
        The layer's result.

    Raises
    ------
    ShapeError
        If shapes do not fit ([C1]).
    ScalarError
        If floats and exact numbers are mixed.

    Examples
    --------
    >>> linear(np.array([[1.0, 2.0]]), np.array([10.0]), np.array([3.0, 4.0]))
    array([21.])
    """
    ws, xs = shape_of(w), shape_of(x)
    if len(ws) != 2 or not xs or xs[-1] != ws[1]:
        raise ShapeError("linear", f"w (out, in) must fit x (..., in); got w {ws}, x {xs}", rule="C1")
    if b is not None and shape_of(b) != (ws[0],):
        raise ShapeError("linear", f"b must have shape ({ws[0]},); got {shape_of(b)}", rule="C1")
    rows = LETTERS[3 : 2 + len(xs)]
    y = contract(x, w, f"{rows}b,ab->{rows}a")
    return y if b is None else add(y, b)
