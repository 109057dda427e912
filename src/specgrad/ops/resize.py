"""Resizing by exact coordinates (specgrad.window.resize), linear or to a cell nearby, and its adjoint.

resize          y[o] = sum_t weight(o, t) * x[cell(o, t)] along each axis, one after the other
resize_spread   its adjoint: x[i] = sum of weight(o, t) * gy[o] over cell(o, t) = i

Runtimes compute the coordinates in floats. Weights err by that much, and where src lies next to a border between two
cells a runtime may read either: both are part of the radius (docs/reference/rounding.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

from .. import scalar
from ..call_cache import cached_call
from ..errors import ParameterError, ShapeError
from ..op import Case, Op, Value, apply, register, shape_of
from ..scalar import Array, Number
from ..window import Resized, Shape, identical, resized, whole
from ..window.footprint import BoxRule
from ..window.footprint import resized as resized_boxes
from ..window.resize import NEAREST, WHERE
from . import sample_inputs
from .layout import axes_of

IDENTITY_AT_UNIT_STEP = tuple(
    w for w in WHERE if w != "tf_half_pixel_for_nn"
)  # with as many cells and a step of 1 they change nothing
Axes = list[tuple[int, Resized]]


def axes_resized(cells: Sequence[int], *, axes: Shape, sizes: Shape, steps: Any, where: str, how: str) -> Axes:
    """Return (axis, map from outputs to cells and weights) for each resized axis; raise ShapeError for a misfit.

    `cells`, `sizes`, `steps`: per axis, input cells, output cells, and input cells per output cell; `where` and `how`
    as in `specgrad.window.resize.Resized`.
    """
    if not len(axes) == len(sizes) == len(steps) == len(cells) or list(axes) != sorted(set(axes)):
        raise ShapeError("resize", f"needs a size and a step per axis; got axes={axes}, sizes={sizes}, steps={steps}")
    given = zip(axes, whole(tuple(cells)), whole(tuple(sizes)), steps, strict=True)
    return [(a, resized(n, m, Fraction(s), where, how)) for a, n, m, s in given]


def _with_sizes(shape: Shape, axes: Shape, sizes: Shape) -> Shape:
    """Return `shape` with new sizes on these axes; raise ShapeError if an axis does not exist."""
    if any(not 0 <= a < len(shape) for a in axes):
        raise ShapeError("resize", f"axes {axes} do not exist; got input shape {shape}")
    new = dict(zip(axes, sizes, strict=True))
    return tuple(new.get(a, n) for a, n in enumerate(shape))


def _resize_shape(x: Shape, *, axes: Shape, sizes: Shape, steps: Any, where: str, how: str) -> Shape:
    """Return the output shape of resize: x with `sizes` on `axes`; ShapeError for a misfit.

    steps, where and how only matter for that: see `axes_resized`.
    """
    shape = _with_sizes(x, axes, sizes)
    axes_resized([x[a] for a in axes], axes=axes, sizes=sizes, steps=steps, where=where, how=how)
    return shape


def _spread_shape(gy: Shape, *, cells: Shape, axes: Shape, sizes: Shape, steps: Any, where: str, how: str) -> Shape:
    """Return the output shape of resize_spread; raise ShapeError for arguments that do not fit.

    The result has `cells` on the axes on which gy has `sizes`; steps, where and how only matter for misfits: see
    `axes_resized`.
    """
    axes_resized(cells, axes=axes, sizes=sizes, steps=steps, where=where, how=how)
    if _with_sizes(gy, axes, sizes) != gy:
        raise ShapeError("resize_spread", f"needs {sizes} cells on axes {axes}; got shape {gy}")
    return _with_sizes(gy, axes, cells)


def _weighted(x: Array, axis: int, line: Resized, t: int) -> Array:
    """Return x times the weights of tap t of the resized axis `line`; x has its output's cells along `axis`."""
    if line.how != "linear":
        return x
    shape = (line.out, *(1,) * (x.ndim - axis - 1))
    if x.dtype != object:
        return np.asarray(x * line.weights[t].reshape(shape).astype(x.dtype))
    over, under = (
        np.array([f(w) for w in line.taps[1][t]], dtype=object).reshape(shape) for f in (_numerator, _denominator)
    )
    return np.asarray(x * over / under)


def _numerator(w: Fraction) -> int:
    """Return the numerator of a weight, for exact scalars."""
    return w.numerator


def _denominator(w: Fraction) -> int:
    """Return the denominator of a weight, for exact scalars."""
    return w.denominator


def _resize_spec(x: Array, **params: Any) -> Array:
    """Return resize of x, axis by axis: weighted sums of the one or two cells that every output reads, over any scalar
    type.
    """
    for axis, line in axes_resized([x.shape[a] for a in params["axes"]], **params):
        taps = [_weighted(np.take(x, cells, axis=axis), axis, line, t) for t, cells in enumerate(line.cells)]
        x = taps[0] if len(taps) == 1 else taps[0] + taps[1]
    return x


def _spread_spec(gy: Array, *, cells: Shape, **params: Any) -> Array:
    """Return resize_spread, the adjoint of resize: gy times weights added at the cells read, over any scalar type.

    `cells` is the shape of the resized value.
    """
    for axis, line in reversed(axes_resized(cells, **params)):
        y = scalar.zeros((*gy.shape[:axis], line.n, *gy.shape[axis + 1 :]), gy)
        for t, at in enumerate(line.cells):
            np.add.at(np.moveaxis(y, axis, 0), at, np.moveaxis(_weighted(gy, axis, line, t), axis, 0))
        gy = y
    return gy


def roundings(x: Shape, **params: Any) -> int:
    """Return N with abs(error) <= gamma_N * magnitude for one output cell.

    It counts weights of d axes and their product, a product and a sum per tap of 2**d, or d passes.
    """
    d = len(params["axes"])
    return 0 if params["how"] != "linear" else 2 * d + 2 + 2**d


def _spread_roundings(gy: Shape, *, cells: Shape, **params: Any) -> int:
    """Return N with abs(error) <= gamma_N * magnitude for each output cell of resize_spread."""
    readers = math.prod(max_readers(line) for _, line in axes_resized(cells, **params))
    return readers - 1 if params["how"] != "linear" else readers + 2 * len(params["axes"]) + 2


def max_readers(line: Resized) -> int:
    """Return the largest number of taps of the resized axis `line` that read one cell."""
    return int(np.bincount(line.cells.reshape(-1), minlength=1).max())


def _params(rng: Random, cells: Shape, first: int) -> dict[str, Any]:
    """Return random parameters of resize, drawn by `rng`, for these cells, on axes from `first` on."""
    sizes = tuple(rng.randint(1, 7) for _ in cells)
    given = rng.random() < 0.5
    steps = tuple(
        Fraction(n, m) if given else Fraction(rng.randint(1, 9), 4) for n, m in zip(cells, sizes, strict=True)
    )
    how = rng.choice(("linear", "linear", *NEAREST))
    axes = tuple(range(first, first + len(cells)))
    return {"axes": axes, "sizes": sizes, "steps": steps, "where": rng.choice(WHERE), "how": how}


def _resize_case(rng: Random) -> Case:
    """Return random arguments and parameters of resize, drawn by `rng`, for the law tests."""
    lead, cells = sample_inputs.lead(rng), sample_inputs.sizes(rng, rng.choice((1, 1, 2)))
    return (sample_inputs.numbers(rng, lead + cells),), _params(rng, cells, len(lead))


def _spread_case(rng: Random) -> Case:
    """Return random arguments and parameters of resize_spread, drawn by `rng`, for the law tests."""
    lead, cells = sample_inputs.lead(rng), sample_inputs.sizes(rng, rng.choice((1, 1, 2)))
    params = _params(rng, cells, len(lead))
    return (sample_inputs.numbers(rng, lead + params["sizes"]),), {"cells": cells, **params}


def _resize_footprint(x: Shape, **params: Any) -> BoxRule:
    """Return the rule from boxes of the result of resize to the boxes of its arguments that they need."""
    return resized_boxes(x, axes_resized([x[a] for a in params["axes"]], **params), **params)


RESIZE: Op = register(
    Op(
        name="resize",
        shape=_resize_shape,
        spec=_resize_spec,
        vjp=lambda gy, y, args, **p: (
            apply(RESIZE_SPREAD, gy, cells=tuple(shape_of(args[0])[a] for a in p["axes"]), **p),
        ),
        cases=_resize_case,
        footprint=_resize_footprint,
        linear="all",
        roundings=roundings,
    )
)
RESIZE_SPREAD: Op = register(
    Op(
        name="resize_spread",
        shape=_spread_shape,
        spec=_spread_spec,
        vjp=lambda gy, y, args, *, cells, **p: (apply(RESIZE, gy, **p),),
        cases=_spread_case,
        linear="all",
        roundings=_spread_roundings,
    )
)


@cached_call
def resize(
    x: Value,
    sizes: Sequence[int] | None = None,
    *,
    scales: Sequence[Number] | None = None,
    axes: Sequence[int] | None = None,
    where: str = "half_pixel",
    how: str = "linear",
) -> Value:
    """Axes with another number of cells, between which values are interpolated, or copied from a cell nearby.

    Coordinates are exact rationals; beyond the ends the last cell is read. Runtimes compute coordinates in floats,
    which radii allow for.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    sizes : sequence of int, optional
        Cells of the result per axis; if not given, floor(n*scale).
    scales : sequence of number, optional
        Cells of the result per cell of x, along each axis: the step is 1/scale. Beside `sizes`: these cells, that step.
    axes : sequence of int, optional
        Which axes; the last ones if not given.
    where : str, default "half_pixel"
        The formula of the coordinate (specgrad.window.resize): "half_pixel", "pytorch_half_pixel",
        "half_pixel_symmetric", "asymmetric", "align_corners" or "tf_half_pixel_for_nn".
    how : str, default "linear"
        "linear", or how a coordinate is rounded to a cell: "floor", "ceil", "round_prefer_floor" or
        "round_prefer_ceil".

    Returns
    -------
    array
        Of other sizes along these axes.

    Raises
    ------
    ParameterError
        Without sizes and scales, for as many as there are not axes, for a scale that is not positive, and for other
        words ([P5]).
    ShapeError
        For an axis that is named twice, and for sizes or scales that give no cells ([W1]).

    Examples
    --------
    >>> resize(np.array([0.0, 1.0]), (4,))
    array([0.  , 0.25, 0.75, 1.  ])
    >>> resize(np.array([0.0, 1.0, 2.0]), (2,), how="floor", where="asymmetric")
    array([0., 1.])
    """
    shape = shape_of(x)
    count = len(sizes if sizes is not None else scales or ())
    named = axes_of("resize", range(len(shape) - count, len(shape)) if axes is None else axes, len(shape))
    cells = [shape[a] for a in named] if sizes is None else [whole(shape[a]) for a in named]  # n/m must be a number
    if len(named) != count or (sizes is None and scales is None):
        raise ParameterError("resize", f"needs sizes or scales, one per axis; got {sizes} and {scales}", rule="P5")
    if scales is not None and (len(scales) != count or not all(s > 0 and math.isfinite(s) for s in scales)):
        raise ParameterError("resize", f"scales must be positive, one per axis; got {scales}", rule="P5")
    factors = None if scales is None else [Fraction(s) for s in scales]
    wanted = list(sizes or ())
    if sizes is None:
        wanted = [n * s.numerator // s.denominator for n, s in zip(cells, factors or (), strict=False)]
    steps = (
        [Fraction(n, max(m, 1)) for n, m in zip(cells, wanted, strict=True)]
        if factors is None
        else [1 / s for s in factors]
    )
    changes = [
        k
        for k, (n, m) in enumerate(zip(cells, wanted, strict=True))
        if not identical((n,), (m,)) or steps[k] != 1 or where not in IDENTITY_AT_UNIT_STEP
    ]
    if not changes:
        return x
    picked = {"axes": tuple(named[k] for k in changes), "sizes": tuple(wanted[k] for k in changes)}
    return apply(RESIZE, x, **picked, steps=tuple(steps[k] for k in changes), where=where, how=how)
