"""Cubic resizing, as a product with a matrix of weights along each axis.

At coordinate s cell i has the weight K(abs(s - i)), K being Keys' piecewise cubic with coefficient a:

    K(u) = (a + 2)*u^3 - (a + 3)*u^2 + 1  up to 1,  a*u^3 - 5*a*u^2 + 8*a*u - 4*a  up to 2,  0 beyond.

Coordinates and weights are computed in the graph, from whole numbers, as runtimes do in floats: so their errors are
part of the radius. K(u) is P(min(u, 2)) + D(min(u, 1)), with P its second piece and D the first less the second, which
is 0 at 1: nothing is chosen. Cells that surely have no weight are left out.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ....graph.builder import Var
from ....op import Value
from ....ops.activation import clamp
from ....ops.einsum import einsum
from ....ops.elementwise import abs_, add, div, mul, sub
from ....ops.layout import slice_, sum_
from ....scalar import Array
from ....window import resized
from .node import OnnxNode

COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
REACH = Fraction(9, 4)  # cells further away have no weight, however a coordinate is rounded


def cubic_resize(
    c: OnnxNode, axes: Sequence[int], scales: Sequence[Fraction], sizes: Sequence[int], where: str, exclude: bool
) -> Value:
    """Resize axes to `sizes`, with coordinates by `where` (one of COORDINATES) and the node's cubic_coeff_a.

    ModelError for weights beyond the budget.

    scales    output cells per input cell
    exclude   cells outside have no weight, and the others are divided by their sum; else the end cells stand for them
    """
    a, x = c.floating("cubic_coeff_a", -0.75), c.real(0)
    letters = string.ascii_lowercase[: len(x.shape)]
    for axis, scale, out in zip(axes, scales, sizes, strict=True):
        n = x.shape[axis]
        if scale == 1 and out == n and axis < len(x.shape) - 2:
            continue  # of the last two axes runtimes compute weights even then, and K(1) is no 0 in floats
        c.importer.budget.check_value(c.title, out * (n + 4))
        weights = _cubic_weights(
            c, _coordinates(c, n, out, scale, where), _weighted_cells(n, out, scale, where, exclude), a
        )
        weights = div(weights, sum_(weights, 1, keepdims=True)) if exclude else weights
        ends = np.eye(n, dtype=np.float32)[np.clip(np.arange(-2, n + 2), 0, n - 1)]
        weights = slice_(weights, None, slice(2, n + 2)) if exclude else einsum("oe,ei->oi", weights, ends)
        x = einsum(f"{letters},z{letters[axis]}->{letters.replace(letters[axis], 'z')}", x, weights)
    return x


def _graph_constant(c: OnnxNode, numbers: Any) -> Var:
    """Return whole numbers, or a scale of the file, as a constant of the graph."""
    return c.importer.trace.constant(np.asarray(numbers, np.float32), f"{c.name}.coordinates")


def _coordinates(c: OnnxNode, n: int, out: int, scale: Fraction, where: str) -> Value:
    """Return the coordinate of every output cell, (out,), by as many operations as runtimes take.

    The axis of `n` cells is resized to `out`, `scale` output cells per input cell; `where` names the formula, one of
    COORDINATES; others than "align_corners", "pytorch_half_pixel" and "asymmetric" are half_pixel.
    """
    cells = np.arange(out)
    if where == "align_corners":
        return div(mul(_graph_constant(c, cells), n - 1), _graph_constant(c, max(out - 1, 1)))
    if where == "pytorch_half_pixel" and out == 1:
        return mul(_graph_constant(c, cells), 0)
    exact = Fraction(float(np.float32(float(scale)))) == scale
    ratio = (
        _graph_constant(c, float(scale))
        if exact
        else div(_graph_constant(c, scale.numerator), _graph_constant(c, scale.denominator))
    )
    step = div(1, ratio)
    if where == "asymmetric":
        return mul(_graph_constant(c, cells), step)
    return sub(mul(_graph_constant(c, cells + 0.5), step), 0.5)


def _weighted_cells(n: int, out: int, scale: Fraction, where: str, exclude: bool) -> Array:
    """Return a float32 array (out, n + 4): 1 where a cell from -2 to n + 1 may have a weight for an output, else 0.

    `scale`, `where` and `exclude` are those of `cubic_resize`.
    """
    line = resized(n, out, 1 / scale, where, "linear")
    sources = [line.source(o) for o in range(out)]
    near = [[abs(s - i) < REACH and (not exclude or 0 <= i < n) for i in range(-2, n + 2)] for s in sources]
    return np.array(near, dtype=np.float32)


def _cubic_weights(c: OnnxNode, s: Value, near: Array, a: float) -> Value:
    """Return the cubic kernel K(abs(s - i)) with coefficient `a`, for coordinates s and cells i from -2 on, (out,
    cells); 0 where `near` is 0.
    """
    i = _graph_constant(c, np.arange(-2, near.shape[1] - 2))
    u = abs_(sub(s.reshape((near.shape[0], 1)), i))
    far, close = clamp(u, None, 2), clamp(u, None, 1)
    second = sub(mul(add(mul(sub(mul(far, a), 5 * a), far), 8 * a), far), 4 * a)
    first = add(mul(sub(mul(add(mul(close, 2), 4 * a - 3), close), 8 * a), close), 1 + 4 * a)
    return mul(add(second, first), near)
