"""Compositions of registered operators: padding modes, folds, softmax, normalisation, losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from ..errors import ParameterError, ShapeError
from ..op import Value, apply, composite, shape_of
from ..scalar import Number
from ..window import border, int_of, kernel_of
from .avg_pool import spatial_axes
from .elementwise import add, div, exp, log, mean, mul, neg, select, sqrt, stop_gradient, sub
from .gather import gather
from .layout import PAD, axis_of, broadcast, concat, fill, keep_axes, permute, reshape, slice_, sum_
from .max_pool import amax, take


@composite
def pad(x: Value, widths: Sequence[tuple[int, int]], *, value: Number = 0, mode: str = "constant") -> Value:
    """(lo, hi) cells around the last len(widths) axes: of `value`, or of x itself.

    mode "constant" fills with `value`; "reflect" mirrors at the first and last cell, "edge" repeats them, "wrap" goes
    on at the other end (PyTorch: reflect, replicate, circular); one axis after the other, and as often as the padding
    is wide.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    widths : sequence of (int, int)
        Cells to add before and after, a pair for each of the last axes.
    value : number, default 0
        What is filled in, in mode "constant".
    mode : str, default "constant"
        "constant", "reflect", "edge" or "wrap".

    Returns
    -------
    array
        Every such axis is lo + hi cells longer.

    Raises
    ------
    ShapeError
        For more widths than axes, and negative ones.
    ParameterError
        For another mode ([P5]).

    Examples
    --------
    >>> pad(np.ones(2), [(1, 2)])
    array([0., 1., 1., 0., 0.])
    >>> pad(np.array([1.0, 2.0, 3.0]), [(2, 1)], mode="reflect")
    array([3., 2., 1., 2., 3., 2.])
    """
    ndim = len(shape_of(x))
    if len(widths) > ndim:
        raise ShapeError("pad", f"{len(widths)} widths for {ndim} axes")
    pairs = [(0, 0)] * (ndim - len(widths)) + [
        (int_of("pad", "every width", lo), int_of("pad", "every width", hi)) for lo, hi in widths
    ]
    if mode != "constant":
        return _pad_from_x(x, pairs, mode, value)
    triples = tuple((lo, hi, 0) for lo, hi in pairs)
    y = apply(PAD, x, widths=triples)
    if value == 0:
        return y
    return select(apply(PAD, fill(x, 1), widths=triples), y, value)


def _pad_from_x(x: Value, pairs: Sequence[tuple[int, int]], mode: str, value: Number) -> Value:
    """Return x padded by `pairs` (lo, hi) with cells of its own, axis by axis; `mode` is "reflect", "edge" or "wrap".

    ParameterError for a `value` other than 0.
    """
    if value != 0:
        raise ParameterError("pad", f"value={value} has no meaning with mode={mode!r}", rule="P5")
    for axis, (lo, hi) in enumerate(pairs):
        if lo or hi:
            x = gather(x, border(mode, shape_of(x)[axis], lo, hi), axis=axis)
    return x


@composite
def upsample_nearest(x: Value, factor: int | Sequence[int], *, rank: int | None = None) -> Value:
    """Repeat every cell `factor` times along the last axes: y[p] = x[floor(p / factor)].

    Parameters
    ----------
    x : array_like, shape (..., *spatial)
        Axes before the spatial ones are mapped.
    factor : int or sequence of int
        Copies of every cell per spatial axis, the last ones of x. An int needs `rank`.
    rank : int, optional
        Number of spatial axes, where the factor is one int for all of them.

    Returns
    -------
    array, shape (..., n*factor)
        Every spatial axis is `factor` times as long.

    Raises
    ------
    ShapeError
        If factors are below 1, or more than x has axes ([W1]).
    ParameterError
        For an int factor without `rank` ([P5]).

    Examples
    --------
    >>> upsample_nearest(np.array([1.0, 2.0]), (2,))
    array([1., 1., 2., 2.])
    """
    factors = kernel_of("upsample_nearest", factor if isinstance(factor, int) else tuple(factor), rank)
    shape = shape_of(x)
    if len(factors) > len(shape) or min(factors) < 1:
        raise ShapeError("upsample_nearest", f"factors {factors} do not fit; got input shape {shape}", rule="W1")
    lead, sizes = shape[: len(shape) - len(factors)], shape[len(shape) - len(factors) :]
    spread = lead + tuple(m for n in sizes for m in (n, 1))
    repeated = lead + tuple(m for n, f in zip(sizes, factors, strict=True) for m in (n, f))
    return reshape(
        broadcast(reshape(x, spread), repeated), lead + tuple(n * f for n, f in zip(sizes, factors, strict=True))
    )


# --- folds over whole axes --------------------------------------------------------------------------------------


@composite
def fold(f: Callable[[Value, Value], Value], init: Value, x: Value, *, rank: int) -> Value:
    """f(.. f(f(init, x_0), x_1) .., x_n) over the cells of the last `rank` axes, in row-major order.

    A graph records f once per cell; derivatives are those of its operators.

    Parameters
    ----------
    f : callable
        A function of (so far, cell) that is made of operators; both have the leading shape, and so must its result.
    init : number or array_like
        The first `so far`: a number, or a value of the leading shape.
    x : array_like, shape (*lead, *spatial)
        The cells.
    rank : int
        Number of axes that are folded.

    Returns
    -------
    array, shape (*lead)
        The last result of f.

    Raises
    ------
    ShapeError
        If a result of f has another shape.

    Examples
    --------
    >>> fold(lambda so_far, cell: so_far * 10 + cell, 0, np.array([[1.0, 2.0], [3.0, 4.0]]), rank=1)
    array([12., 34.])
    """
    shape = shape_of(x)
    axes = spatial_axes("fold", shape, rank)
    lead = shape[: axes[0]]
    count = math.prod(shape[axes[0] :])
    cells, so_far = reshape(x, (*lead, count)), init
    for k in range(count):
        cell = slice_(cells, *[None] * len(lead), slice(k, k + 1))
        so_far = f(so_far, reshape(cell, lead))
        if shape_of(so_far) != lead:
            raise ShapeError("fold", f"f must give the leading shape {lead}; got {shape_of(so_far)} at cell {k}")
    return so_far


@composite
def global_pool(reduce: Callable[[Value], Value], x: Value, *, rank: int, keepdims: bool = True) -> Value:
    """reduce(image) for every image, the last `rank` axes: (C, *spatial) to (C, 1, ..) or, keepdims=False, to (C).

    A graph records `reduce` once per image.

    Parameters
    ----------
    reduce : callable
        A function from (*spatial) to () that is made of operators.
    x : array_like, shape (..., *spatial)
        The last `rank` axes are reduced.
    rank : int
        Number of spatial axes.
    keepdims : bool, default True
        Leave the spatial axes in place, with one cell each.

    Returns
    -------
    array, shape (..., 1, 1) or (...)
        One number per image and channel.

    Raises
    ------
    ShapeError
        If reduce gives another shape.

    Examples
    --------
    >>> global_pool(lambda image: image[0, 0] * image[1, 1], np.arange(8.0).reshape(2, 2, 2), rank=2, keepdims=False)
    array([ 0., 28.])
    """
    shape = shape_of(x)
    axes = spatial_axes("global_pool", shape, rank)
    lead, images = shape[: axes[0]], []
    for k in np.ndindex(lead):
        image = slice_(x, *(slice(i, i + 1) for i in k))
        value = reduce(reshape(image, shape[axes[0] :]))
        if shape_of(value) != ():
            raise ShapeError("global_pool", f"reduce must give one number; got shape {shape_of(value)}")
        images.append(reshape(value, (1,)))
    y = reshape(concat(images, 0), lead) if images else sum_(x, axes)  # [P4]
    return keep_axes(y, shape, axes) if keepdims else y


# --- softmax ----------------------------------------------------------------------------------------------------


@composite
def log_softmax(x: Value, axis: int = -1) -> Value:
    """x - log(sum exp(x)) along an axis, shifted by the maximum so that nothing overflows.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    axis : int, default -1
        The axis; negative ones count from the end.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ShapeError
        For an axis that does not exist or has no cells ([W1]).
    ScalarError
        For exact numbers, which have no exp; floats and balls have.

    Examples
    --------
    >>> log_softmax(np.array([0.0, 0.0]))
    array([-0.69314718, -0.69314718])
    """
    shifted = sub(x, stop_gradient(amax(x, axis, keepdims=True)))
    return sub(shifted, log(sum_(exp(shifted), axis, keepdims=True)))


@composite
def softmax(x: Value, axis: int = -1) -> Value:
    """exp(x) / sum exp(x) along an axis, shifted by the maximum; a cell of -inf has no share ([M1]).

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    axis : int, default -1
        The axis; negative ones count from the end.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ShapeError
        For an axis that does not exist or has no cells ([W1]).
    ScalarError
        For exact numbers, which have no exp; floats and balls have.

    Examples
    --------
    >>> softmax(np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    """
    e = exp(sub(x, stop_gradient(amax(x, axis, keepdims=True))))
    return div(e, sum_(e, axis, keepdims=True))


def exponential(base: Number, x: Value) -> Value:
    """base**x for a positive number base other than 1, as exp(x * log(base)): its rounding is part of the radius.

    ParameterError for another base: powers of 1 and 0 are no exponentials, and those of a negative number none at all
    but at whole x.

    >>> exponential(2, np.array([3.0, -1.0])).round(12)
    array([8. , 0.5])
    """
    if not 0 < base < math.inf or base == 1:
        raise ParameterError("power", f"the base {base} must be a positive number other than 1", rule="P5")
    return exp(mul(x, log(fill(x, base))))


# --- normalisation ----------------------------------------------------------------------------------------------


def _per_channel(v: Value, rank: int) -> Value:
    """Return v, a vector of one number per channel, reshaped to broadcast before `rank` axes."""
    return reshape(v, shape_of(v) + (1,) * rank)


@composite
def batch_norm(
    x: Value,
    mean_: Value,
    var: Value,
    weight: Value | None = None,
    bias: Value | None = None,
    *,
    eps: Number = 1e-5,
    channel: int = 1,
) -> Value:
    """Batch normalisation in inference form: (x - mean) / sqrt(var + eps) * weight + bias, per channel.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    mean_ : array_like, shape (C,)
        Mean of every channel.
    var : array_like, shape (C,)
        Variance of every channel.
    weight : array_like, optional
        Factor, one number per channel; 1 if not given.
    bias : array_like, optional
        Summand, one number per channel; 0 if not given.
    eps : number, default 1e-05
        Added to the variance under the root.
    channel : int, default 1
        The axis of channels.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ShapeError
        Unless the others have one number per channel ([C1]).

    Examples
    --------
    >>> batch_norm(np.ones((1, 1, 2)), np.array([1.0]), np.array([4.0]), eps=0.0)
    array([[[0., 0.]]])
    """
    shape = shape_of(x)
    rank = len(shape) - 1 - axis_of("batch_norm", channel, len(shape))
    wanted = (shape[channel],)
    for name, v in (("mean", mean_), ("var", var), ("weight", weight), ("bias", bias)):
        if shape_of(v) != wanted and (v is not None or name in ("mean", "var")):
            given = None if v is None else shape_of(v)
            raise ShapeError("batch_norm", f"{name} must have shape ({wanted[0]},); got {given}", rule="C1")
    scale = div(1 if weight is None else weight, sqrt(add(var, eps)))
    y = mul(sub(x, _per_channel(mean_, rank)), _per_channel(scale, rank))
    return y if bias is None else add(y, _per_channel(bias, rank))


def _normalise(x: Value, axes: Sequence[int], eps: Number) -> Value:
    """Return (x - mean) / sqrt(var + eps), mean and variance (over n, not n - 1) being those over `axes`."""
    centred = sub(x, mean(x, axes, keepdims=True))
    var = mean(mul(centred, centred), axes, keepdims=True)
    return div(centred, sqrt(add(var, eps)))


@composite
def layer_norm(
    x: Value, shape: Sequence[int], weight: Value | None = None, bias: Value | None = None, *, eps: Number = 1e-5
) -> Value:
    """(x - mean) / sqrt(var + eps) over the last axes, which must have `shape`; then * weight + bias.

    Parameters
    ----------
    x : array_like, shape (..., *shape)
        Numbers.
    shape : sequence of int
        Sizes of the last axes, over which mean and variance are taken.
    weight : array_like, optional
        Factors, of that shape; 1 if not given.
    bias : array_like, optional
        Summands, of that shape; 0 if not given.
    eps : number, default 1e-05
        Added to the variance under the root.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ShapeError
        If the last axes have other sizes, and if weight or bias do not broadcast to them.

    Examples
    --------
    >>> layer_norm(np.array([[1.0, 3.0], [5.0, 9.0]]), (2,), eps=0)
    array([[-1.,  1.],
           [-1.,  1.]])
    """
    tail, xs = tuple(shape), shape_of(x)
    if not tail or xs[max(0, len(xs) - len(tail)) :] != tail:
        raise ShapeError("layer_norm", f"the last axes must be {tail}; got input shape {xs}")
    y = _normalise(x, range(len(xs) - len(tail), len(xs)), eps)
    y = y if weight is None else mul(y, weight)
    return y if bias is None else add(y, bias)


@composite
def group_norm(
    x: Value, groups: int, weight: Value | None = None, bias: Value | None = None, *, eps: Number = 1e-5
) -> Value:
    """(x - mean) / sqrt(var + eps) over each group of channels of (N, C, ...); then per channel * weight + bias.

    Parameters
    ----------
    x : array_like, shape (N, C, ...)
        Numbers.
    groups : int
        Number of groups of channels.
    weight : array_like, optional
        Factor, one number per channel; 1 if not given.
    bias : array_like, optional
        Summand, one number per channel; 0 if not given.
    eps : number, default 1e-05
        Added to the variance under the root.

    Returns
    -------
    array
        Of the shape of x.

    Raises
    ------
    ShapeError
        Unless groups divide the channels, and if weight or bias do not broadcast to one number per channel.

    Examples
    --------
    >>> group_norm(np.array([[[1.0, 3.0], [5.0, 9.0]]]), 2, eps=0)
    array([[[-1.,  1.],
            [-1.,  1.]]])
    """
    xs = shape_of(x)
    if len(xs) < 2 or groups < 1 or xs[1] % groups:
        raise ShapeError("group_norm", f"groups must divide the channels; got groups={groups}, input shape {xs}")
    grouped = reshape(x, (xs[0], groups, xs[1] // groups, *xs[2:]))
    y = reshape(_normalise(grouped, range(2, len(xs) + 1), eps), xs)
    rank = len(xs) - 2
    y = y if weight is None else mul(y, _per_channel(weight, rank))
    return y if bias is None else add(y, _per_channel(bias, rank))


# --- losses -----------------------------------------------------------------------------------------------------

Reduction = Literal["mean", "sum", "none"]


def _reduce(operator: str, x: Value, reduction: Reduction) -> Value:
    """Return the mean or the sum of x, or x itself, by `reduction` ("mean", "sum", "none"); raise ParameterError for
    another word.
    """
    if reduction == "none":
        return x
    if reduction not in ("mean", "sum"):
        raise ParameterError(operator, f'reduction must be "mean", "sum" or "none"; got {reduction!r}', rule="P5")
    return mean(x) if reduction == "mean" else sum_(x)


@composite
def cross_entropy(x: Value, labels: Value, *, reduction: Reduction = "mean") -> Value:
    """-log_softmax(x)[label] with classes on axis 1 (axis 0 for one sample); labels are integer classes.

    Inside jax.jit, where nothing can be refused, the loss of a label outside 0..C-1 is NaN.

    Parameters
    ----------
    x : array_like, shape (C,), (N, C) or (N, C, *spatial)
        Scores of the classes (logits).
    labels : array_like of int, shape (), (N,) or (N, *spatial)
        The class of every sample, 0..C-1.
    reduction : {"mean", "sum", "none"}, default "mean"
        "mean" over all cells, "sum", or "none" for one loss per cell.

    Returns
    -------
    array
        One number, or with "none" of the shape of the labels.

    Raises
    ------
    ShapeError
        For shapes that do not fit, and a label outside 0..C-1.
    ParameterError
        For another word in `reduction` ([P5]).
    ScalarError
        For exact numbers, which have no exp; floats and balls have.

    Examples
    --------
    >>> cross_entropy(np.zeros((1, 4)), np.array([2]))
    array(1.38629436)
    """
    xs, ls = shape_of(x), shape_of(labels)
    axis = 0 if len(xs) == 1 else 1
    if not xs or ls != xs[:axis] + xs[axis + 1 :]:
        raise ShapeError("cross_entropy", f"labels must be x without its class axis; got x {xs}, labels {ls}")
    if getattr(labels, "kind", "index") != "index":
        raise ShapeError("cross_entropy", "labels must be integers: trace them from an integer array or Index(shape)")
    last = [a for a in range(len(xs)) if a != axis] + [axis]
    scores = permute(log_softmax(x, axis), last)
    picked = take(scores, reshape(labels, (*ls, 1)), rank=1, empty=False)
    return _reduce("cross_entropy", neg(reshape(picked, ls)), reduction)


@composite
def mse_loss(x: Value, target: Value, *, reduction: Reduction = "mean") -> Value:
    """The squared error (x - target)**2: its mean, its sum, or one per cell.

    Parameters
    ----------
    x : array_like
        Numbers of any shape.
    target : array_like
        Of the shape of x.
    reduction : {"mean", "sum", "none"}, default "mean"
        "mean" over all cells, "sum", or "none" for one loss per cell.

    Returns
    -------
    array
        One number, or with "none" of the shape of x.

    Raises
    ------
    ShapeError
        If the shapes differ.
    ParameterError
        For another word in `reduction` ([P5]).

    Examples
    --------
    >>> mse_loss(np.array([1.0, 3.0]), np.array([0.0, 0.0]))
    array(5.)
    """
    if shape_of(x) != shape_of(target):
        raise ShapeError("mse_loss", f"shapes must be equal; got {shape_of(x)} and {shape_of(target)}")
    d = sub(x, target)
    return _reduce("mse_loss", mul(d, d), reduction)
