"""Averages over windows, and their adjoint.

    avg_pool    y[p] = (sum of the taps inside the input) / divisor[p]
    avg_spread  its adjoint: every cell receives gy[p] / divisor[p] from each window that reads it

The divisor of an output position is "padded" (the taps inside the padded extent, [A1]), "inside" (the taps inside
the input) or a number. A window with nothing to count gives 0.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any, Literal

import numpy as np

from .. import scalar, window
from ..call_cache import cached_call
from ..errors import ParameterError, ShapeError
from ..op import Case, Op, Value, apply, composite, is_literal, number_of, register, shape_of
from ..scalar import Array, Number
from ..window import Padding, PerAxis, Shape, Window, mapped
from ..window.footprint import pooled
from . import sample_inputs
from .elementwise import ROOT, mean, power

Divisor = Literal["padded", "inside"] | Number


def _lead(name: str, x: Shape, spatial: Shape, divisor: Divisor) -> Shape:
    """Return the sizes of x in front of its last axes, which must have the sizes `spatial`.

    In the name of the operator `name`, ShapeError if they have not, ParameterError for an invalid divisor.
    """
    if divisor not in ("padded", "inside") and (not is_literal(divisor) or divisor == 0):
        raise ParameterError(name, f'divisor must be "padded", "inside" or a number; got {divisor!r}', rule="P5")
    return mapped(name, x, spatial)


def _divide(x: Array, win: Window, divisor: Divisor) -> Array:
    """Return x, one cell per window, over its divisor ("padded", "inside" or a number), 0 where nothing counts."""
    if divisor == "padded":
        return scalar.divide(x, win.counted())
    if divisor == "inside":
        return scalar.divide(x, win.inside())
    return np.asarray(x / scalar.literal(divisor, x))


def _avg_spec(x: Array, *, window: Window, divisor: Divisor) -> Array:
    """Return avg_pool: the sum of x over every window, divided as `divisor` says, over any scalar type."""
    y = scalar.zeros(x.shape[: x.ndim - window.rank] + window.out, x)
    for tap in window.taps():
        tap.add_to_outputs(y, tap.read_inputs(x))
    return _divide(y, window, divisor)


def _spread_spec(gy: Array, *, window: Window, divisor: Divisor) -> Array:
    """Return avg_spread, the adjoint of avg_pool: every cell of gy, divided as `divisor` says, added to all cells of
    its window.
    """
    share = _divide(gy, window, divisor)
    gx = scalar.zeros(gy.shape[: gy.ndim - window.rank] + window.size, gy)
    for tap in window.taps():
        tap.add_to_inputs(gx, tap.read_outputs(share))
    return gx


def _case(rng: Random, transpose: bool) -> Case:
    """Return random arguments and parameters of avg_pool, or of its adjoint (`transpose`), drawn by `rng`, for the law
    tests.
    """
    win = sample_inputs.window(rng, ceil=True, any_axis=True)
    x = sample_inputs.numbers(rng, sample_inputs.lead(rng) + (win.out if transpose else win.size))
    return (x,), {"window": win, "divisor": rng.choice(("padded", "inside", 3, -2))}


MAX_EXACT_INTEGER = 256  # every format holds the whole numbers up to here; bfloat16 has 8 bits


def divisions(window: Window, divisor: Divisor) -> int:
    """Return how many roundings the division takes: 1, or 2 if the divisor itself may be rounded."""
    k: Any = window.taps_count if isinstance(divisor, str) else abs(divisor)
    return 1 if k <= MAX_EXACT_INTEGER and k == int(k) else 2


def _outside(x: Array, *, window: Window, divisor: Any) -> Array:
    """Return the sum of every plane: where an average is a matrix product, cells that it does not read meet zeros.

    `divisor` is not used.
    """
    return np.asarray(x.sum(tuple(range(x.ndim - window.rank, x.ndim)), keepdims=True))


AVG_POOL: Op = register(
    Op(
        name="avg_pool",
        shape=lambda x, *, window, divisor: _lead("avg_pool", x, window.size, divisor) + window.out,
        spec=_avg_spec,
        vjp=lambda gy, y, args, **params: (apply(AVG_SPREAD, gy, **params),),
        cases=lambda rng: _case(rng, transpose=False),
        linear="all",
        divides=True,
        readers=lambda x, *, window, divisor: window.covers,
        roundings=lambda x, *, window, divisor: window.taps_count + divisions(window, divisor),
        magnitude=lambda x, *, window, divisor: abs(_avg_spec(x, window=window, divisor=divisor)),
        outside=_outside,
        receptive_field=lambda x, *, window, divisor: window.reach(),
        footprint=pooled,
    )
)

AVG_SPREAD: Op = register(
    Op(
        name="avg_spread",
        shape=lambda gy, *, window, divisor: _lead("avg_spread", gy, window.out, divisor) + window.size,
        spec=_spread_spec,
        vjp=lambda gy, y, args, **params: (apply(AVG_POOL, gy, **params),),
        cases=lambda rng: _case(rng, transpose=True),
        linear="all",
        divides=True,
        reads="transpose",
        roundings=lambda x, *, window, divisor: window.covers + divisions(window, divisor),
        magnitude=lambda x, *, window, divisor: abs(_spread_spec(x, window=window, divisor=divisor)),
        outside=_outside,
    )
)


@cached_call
def avg_pool(
    x: Value,
    kernel: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor: Number | None = None,
    rank: int | None = None,
) -> Value:
    """The mean over windows of the last axes: y[p] = sum_t x[s*p + t - lo] / divisor.

    A padded tap counts 0 in the sum. The divisor is the window clipped to the padded extent ([A1]: the whole kernel,
    except under `ceil`). Rules: [W1] [W2] [W3] [A1] [P3]. Linear: the tangent goes through the same map, the cotangent
    is spread evenly over the window. PyTorch's avg_pool1d/2d/3d, without its limit on padding.

    Parameters
    ----------
    x : array_like, shape (..., *spatial)
        Axes before the spatial ones are mapped.
    kernel : int or tuple of int
        Cells of a window per spatial axis; the spatial axes are the last ones of x. An int needs `rank`.
    stride : int or tuple of int, optional
        Step from a window to the next, per axis. By default windows do not overlap: the step is the kernel.
    padding : int, tuple or str, default 0
        Cells added at the ends of every axis: an int, per axis an int or a (lo, hi) pair, or "valid", "same_upper",
        "same_lower" ([same]).
    ceil : bool, default False
        Round the number of windows up; the last one may hang over the end ([W3]).
    count_include_pad : bool, default True
        Count padded taps in the divisor; False: only taps inside the input, and 0 where there are none.
    divisor : number, optional
        Divide every window by this number, which is not 0.
    rank : int, optional
        Number of spatial axes, where the kernel is one int for all of them.

    Returns
    -------
    array, shape (..., *windows)
        One cell per window.

    Raises
    ------
    ShapeError
        For sizes that are not positive ([W1]), and for a window that does not fit its padded input ([W2]).
    ParameterError
        For a divisor of 0, an int kernel without `rank`, and arguments that are no such numbers or words ([P5]).

    Examples
    --------
    >>> avg_pool(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), (2,), ceil=True)
    array([1.5, 3.5, 5. ])
    """
    win = window.pooling("avg_pool", shape_of(x), kernel, rank=rank, stride=stride, padding=padding, ceil=ceil)
    divisor = number_of(divisor)
    if divisor is not None and (not is_literal(divisor) or divisor == 0):
        raise ParameterError("avg_pool", f"divisor must be a number other than 0; got {divisor!r}", rule="P5")
    rule = divisor if divisor is not None else "padded" if count_include_pad else "inside"
    return apply(AVG_POOL, x, window=win, divisor=rule)


def adaptive_output(name: str, x: Shape, output: Any, rank: int | None) -> Shape:
    """Return the output size per axis from the argument `output` of the operator `name`; None keeps an axis as it is,
    as in PyTorch.

    ShapeError for another number of sizes, or sizes below 1; ParameterError for what are no ints.
    """
    if not hasattr(output, "__iter__") or None not in output:
        return window.kernel_of(name, output, rank)
    given = window.kernel_of(name, tuple(1 if m is None else m for m in output), rank)
    sizes = x[len(x) - len(output) :]
    sizes = tuple(sizes) if window.any_open(sizes) else window.whole(tuple(sizes))
    return tuple(n if m is None else k for n, m, k in zip(sizes, output, given, strict=True))


@cached_call
def adaptive_avg_pool(x: Value, output: PerAxis, *, rank: int | None = None) -> Value:
    """The mean over `output` cells: cell o is [floor(o*n/out), ceil((o+1)*n/out)) per axis.

    Where out divides n this is avg_pool; sizes need not divide, and out may exceed n. PyTorch's adaptive_avg_pool.

    Parameters
    ----------
    x : array_like, shape (..., *spatial)
        Axes before the spatial ones are mapped.
    output : int or tuple of int
        Cells of the result per spatial axis, the last ones of x. An int needs `rank`.
    rank : int, optional
        Number of spatial axes, where `output` is one int for all of them.

    Returns
    -------
    array, shape (..., *output)
        One mean per cell.

    Raises
    ------
    ShapeError
        For empty axes, and for more entries than x has axes ([W1]).
    ParameterError
        For an int `output` without `rank` ([P5]).

    Examples
    --------
    >>> adaptive_avg_pool(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), (2,))
    array([2., 4.])
    """
    sizes = adaptive_output("adaptive_avg_pool", shape_of(x), output, rank)
    win = window.adaptive("adaptive_avg_pool", shape_of(x), sizes)
    return apply(AVG_POOL, x, window=win, divisor="inside")


def spatial_axes(name: str, x: Shape, rank: int) -> Shape:
    """Return the last `rank` axes; raise ShapeError in the name of the operator `name` if one is empty or does not
    exist.
    """
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank <= len(x):
        raise ShapeError(name, f"rank must lie in 1..{len(x)}; got rank={rank}, input shape {x}", rule="W1")
    axes = tuple(range(len(x) - rank, len(x)))
    if 0 in x[len(x) - rank :]:
        raise ShapeError(name, f"a spatial axis is empty; got input shape {x}", rule="W1")
    return axes


@composite
def global_avg_pool(x: Value, *, rank: int, keepdims: bool = True) -> Value:
    """The mean over the last `rank` axes: (C, *spatial) to (C, 1, ..) or, with keepdims=False, to (C).

    Parameters
    ----------
    x : array_like, shape (..., *spatial)
        The last `rank` axes are reduced.
    rank : int
        Number of spatial axes.
    keepdims : bool, default True
        Leave the spatial axes in place, with one cell each.

    Returns
    -------
    array, shape (..., 1, 1) or (...)
        One mean per image and channel.

    Raises
    ------
    ShapeError
        For fewer axes than `rank`, and without cells ([W1]).

    Examples
    --------
    >>> global_avg_pool(np.ones((3, 2, 2)), rank=2).shape
    (3, 1, 1)
    """
    return mean(x, spatial_axes("global_avg_pool", shape_of(x), rank), keepdims=keepdims)


@composite
def lp_pool(
    x: Value,
    kernel: PerAxis,
    *,
    p: Number = 2,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil: bool = False,
    rank: int | None = None,
) -> Value:
    """(sum of x**p over the window) ** (1/p); a padded tap counts 0.

    PyTorch's lp_pool1d/2d/3d for whole windows. Under `ceil` PyTorch multiplies the mean of the clipped window by the
    whole kernel; we sum what is there. ONNX defines it on absolute values: write lp_pool(specgrad.abs(x), ...). For p >
    1 the derivative of an all-zero window, and of one without a tap inside, is 0 ([K1]): its cotangent as in PyTorch,
    its tangent too (PyTorch: NaN).

    Parameters
    ----------
    x : array_like, shape (..., *spatial)
        Axes before the spatial ones are mapped.
    kernel : int or tuple of int
        Cells of a window per spatial axis; the spatial axes are the last ones of x. An int needs `rank`.
    p : number, default 2
        The exponent, above 0.
    stride : int or tuple of int, optional
        Step from a window to the next, per axis. By default windows do not overlap: the step is the kernel.
    padding : int, tuple or str, default 0
        Cells added at the ends of every axis: an int, per axis an int or a (lo, hi) pair, or "valid", "same_upper",
        "same_lower" ([same]).
    dilation : int or tuple of int, default 1
        Step from a tap to the next inside a window, per axis.
    ceil : bool, default False
        Round the number of windows up; the last one may hang over the end ([W3]).
    rank : int, optional
        Number of spatial axes, where the kernel is one int for all of them.

    Returns
    -------
    array, shape (..., *windows)
        One cell per window, out = floor((n + lo + hi - e*(k-1) - 1) / s) + 1 along an axis; e is the dilation.

    Raises
    ------
    ShapeError
        For sizes that are not positive ([W1]), and for a window that does not fit its padded input ([W2]).
    ParameterError
        Unless p > 0, and for arguments as in `avg_pool` ([P5]).
    ScalarError
        For exact numbers whose root is not rational.

    Examples
    --------
    >>> lp_pool(np.array([3.0, 4.0, 6.0, 8.0]), (2,))
    array([ 5., 10.])
    """
    p = number_of(p)
    if not is_literal(p) or not p > 0:
        raise ParameterError("lp_pool", f"p must be a positive number; got p={p!r}", rule="P5")
    win = window.pooling(
        "lp_pool", shape_of(x), kernel, rank=rank, stride=stride, padding=padding, dilation=dilation, ceil=ceil
    )
    total = apply(AVG_POOL, power(x, p), window=win, divisor=1)
    return total if p == 1 else apply(ROOT, total, exponent=1 / p if isinstance(p, float) else Fraction(1) / p)
