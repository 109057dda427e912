"""Convolution: a trilinear family. With G groups and the window relation i = s*p + e*t - lo,

    conv            y[o,p] = sum_{i,t} w[o,i,t] * x[i, s*p+e*t-lo]  (+ b[o])
    conv_transpose  the same triples read backwards: cells at i gather from every p that reads them
    conv_weight     the gradient of conv in w: sums gy[o,p] * x[i, s*p+e*t-lo] over batch and p

Each is linear in each argument, and the gradient of one in an argument is another: the family is closed.
Cells outside the input count 0 and are never multiplied, so an infinite weight meets no padding. Runtimes do multiply
them (0 times infinity is NaN): `Op.outside` says which factors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np

from .. import scalar, window
from ..call_cache import cached_call
from ..errors import ParameterError, ShapeError
from ..op import Case, Op, Value, apply, register, shape_of
from ..scalar import Array
from ..window import Padding, PerAxis, Shape, Tap, Window, refuse_adaptive
from ..window.axis_maps import transposed, windowed
from ..window.footprint import BoxRule, over_window
from ..window.receptive_field import ReceptiveField
from . import sample_inputs
from .elementwise import add_tangents
from .layout import broadcast, reshape, sum_


def _split_groups(x: Array, groups: int, rank: int) -> Array:
    """Return (*batch, C, *spatial), with `rank` spatial axes, reshaped to (batch, groups, C/groups, *spatial)."""
    channel = x.ndim - rank - 1
    c = x.shape[channel]
    return x.reshape((math.prod(x.shape[:channel]), groups, c // groups, *x.shape[channel + 1 :]))


def _flatten_spatial(x: Array) -> Array:
    """Return (batch, groups, channels, *spatial) reshaped to one spatial axis, for a matrix product."""
    return x.reshape((*x.shape[:3], math.prod(x.shape[3:])))


def _split_weight_groups(w: Array, groups: int) -> Array:
    """Return (A, B, *kernel) reshaped to (groups, A/groups, B, *kernel)."""
    return w.reshape((groups, w.shape[0] // groups, *w.shape[1:]))


def at(w: Array, position: Shape) -> Array:
    """Return the weights of the tap at `position` of the kernel, without the kernel axes, as a view."""
    index: Any = (..., *position)
    return np.asarray(w[index])


def _biased(y: Array, b: Array | None, rank: int) -> Array:
    """Return y, with `rank` spatial axes, plus the bias b per channel; y itself if b is None."""
    return y if b is None else y + b.reshape(b.shape + (1,) * rank)


def _taps(w: Array, groups: int, win: Window) -> Iterator[tuple[Tap, Array]]:
    """Yield every tap of the window `win` with its weights, (groups, A/groups, B)."""
    grouped = _split_weight_groups(w, groups)
    for tap in win.taps():
        yield tap, at(grouped, tap.position)


def _check_b(name: str, channels: int, b: tuple[Shape, ...]) -> None:
    """Raise ShapeError in the name of the operator `name` if the bias b, empty or one shape, does not have one entry
    per channel.
    """
    if b and b[0] != (channels,):
        raise ShapeError(name, f"b must have shape ({channels},); got {b[0]}", rule="C1")


def _check_x(name: str, x: Shape, w: Shape, channels: int, spatial: Shape) -> None:
    """Raise ShapeError in the name of the operator `name` if x does not have these channels and spatial sizes; w is
    quoted.
    """
    rank = len(spatial)
    if len(x) < rank + 1 or x[len(x) - rank :] != spatial:
        raise ShapeError(name, f"x must have a channel axis and spatial sizes {spatial}; got x {x}", rule="C1")
    if x[len(x) - rank - 1] != channels:
        given = x[len(x) - rank - 1]
        raise ShapeError(name, f"w {w} needs {channels} input channels; got {given} in x {x}", rule="C1")


def _check_window(name: str, win: Window) -> None:
    """Raise ParameterError in the name of the operator `name` if the window has adaptive axes, which have no weights of
    their own.
    """
    refuse_adaptive(name, win, "have no weights of their own: i = s*p + e*t - lo is meant")


def _check_w(name: str, w: Shape, win: Window, groups: int, channels: str) -> None:
    """Raise ShapeError in the name of the operator `name` if the weight does not fit the window and the groups;
    `channels` says its channel axes in words.
    """
    _check_window(name, win)
    if len(w) != win.rank + 2 or w[2:] != win.kernel:
        raise ShapeError(name, f"w must be ({channels}, *{win.kernel}); got {w}", rule="C1")
    if groups < 1 or min(w[:2]) < 1 or w[0] % groups:
        raise ShapeError(name, f"groups must divide the channels; got groups={groups}, w {w}", rule="C1")


# --- conv -------------------------------------------------------------------------------------------------------


def _conv_shape(x: Shape, w: Shape, *b: Shape, window: Window, groups: int) -> Shape:
    """Return the output shape of conv for the shapes of x, w and, if given, the bias b.

    ShapeError if they do not fit each other and the window.
    """
    _check_w("conv", w, window, groups, "Cout, Cin/groups")
    _check_x("conv", x, w, w[1] * groups, window.size)
    _check_b("conv", w[0], b)
    return (*x[: len(x) - window.rank - 1], w[0], *window.out)


def _conv_spec(x: Array, w: Array, b: Array | None = None, *, window: Window, groups: int) -> Array:
    """Return conv of x with w plus b: the sum over taps of weights times the cells read, over any scalar type."""
    shape = _conv_shape(x.shape, w.shape, window=window, groups=groups)
    cells = _split_groups(x, groups, window.rank)
    y = scalar.zeros((cells.shape[0], groups, w.shape[0] // groups, *window.out), x)
    for tap, wt in _taps(w, groups, window):
        read = tap.read_inputs(cells)
        tap.add_to_outputs(y, scalar.matmul(wt, _flatten_spatial(read)).reshape(y.shape[:3] + read.shape[3:]))
    return _biased(y.reshape(shape), b, window.rank)


def _bilinear_jvp(op: Op, args: Any, dargs: Any, params: Any) -> Value | None:
    """Return the tangent of conv or conv_transpose, f(dx, w) + f(x, dw, db), from `dargs`, the tangents of `args`; None
    if it is zero.
    """
    x, w, dx, dw = args[0], args[1], dargs[0], dargs[1]
    db = dargs[2] if len(dargs) == 3 else None
    terms = [None if dx is None else apply(op, dx, w, **params)]
    if dw is not None:
        terms.append(apply(op, x, dw, *(() if db is None else (db,)), **params))
    elif db is not None:
        y_shape = op.shape(shape_of(x), shape_of(w), **params)
        terms.append(_spread_bias(db, y_shape, params["window"].rank))
    return add_tangents(*terms)


def _spread_bias(b: Value, shape: Shape, rank: int) -> Value:
    """Return b, a number per channel, broadcast to the output shape, whose last `rank` axes are spatial."""
    return broadcast(reshape(b, shape_of(b) + (1,) * rank), shape)


def _bias_cotangent(gy: Value, rank: int) -> Value:
    """Return the cotangent of the bias: gy summed over all axes but the channels, which stand before `rank` spatial
    ones.
    """
    ndim = len(shape_of(gy))
    return sum_(gy, [a for a in range(ndim) if a != ndim - rank - 1])


def _conv_vjp(gy: Value, y: Value, args: Any, *, window: Window, groups: int) -> tuple[Value, ...]:
    """Return the cotangents of conv's arguments `args` = x, w and perhaps b: conv_transpose(gy, w), conv_weight(x, gy),
    and gy summed over all but channels.
    """
    x, w, *b = args
    params: Any = {"window": window, "groups": groups}
    gx, gw = apply(CONV_TRANSPOSE, gy, w, **params), apply(CONV_WEIGHT, x, gy, **params)
    return (gx, gw, *(_bias_cotangent(gy, window.rank) for _ in b))


def _multiply_adds(x: Shape, w: Shape, *_: Shape, window: Window, groups: int) -> int:
    """Return the multiply-adds of one call; taps that read padding count too."""
    batch = math.prod(x[: len(x) - window.rank - 1])
    return batch * math.prod(w) * math.prod(window.out)


def _channels_case(rng: Random) -> tuple[Window, int, int, int, Shape]:
    """Return (window, groups, input channels, output channels, batch shape), drawn by `rng`."""
    win = sample_inputs.window(rng)
    groups = rng.choice((1, 1, 2, 3))
    batch = sample_inputs.lead(rng) if win.rank < 3 else rng.choice(((), (2,)))
    return win, groups, groups * rng.randint(1, 2), groups * rng.randint(1, 2), batch


def _conv_case(rng: Random) -> Case:
    """Return random arguments and parameters of conv, drawn by `rng`, for the law tests."""
    win, groups, c_in, c_out, batch = _channels_case(rng)
    x = sample_inputs.numbers(rng, (*batch, c_in, *win.size))
    w = sample_inputs.numbers(rng, (c_out, c_in // groups, *win.kernel))
    b = (sample_inputs.numbers(rng, (c_out,)),) if rng.random() < 0.5 else ()
    return (x, w, *b), {"window": win, "groups": groups}


def _roundings(x: Shape, w: Shape, *b: Shape, window: Window, groups: int) -> int:
    """Return N with abs(error) <= gamma_N * magnitude for each output cell of conv: its products, and one for a
    bias b.
    """
    return w[1] * window.taps_count + len(b)


def _window_reach(x: Shape, *_: Shape, window: Window, **__: Any) -> tuple[ReceptiveField | None, ...]:
    """Return the receptive field per spatial axis: which cells of x an output reads."""
    return window.reach()


def _conv_outside(x: Array, w: Array, *_: Array, window: Window, groups: int) -> Array:
    """Return, (Cout, *ones), the sum of the weights w of each output channel of conv (`Op.outside`).

    Where runtimes multiply padding, any weight may meet it. x and w are absolute values, or masks as 0 and 1.
    """
    return np.asarray(w.reshape(len(w), -1).sum(1).reshape((-1,) + (1,) * window.rank))


def _conv_footprint(x: Shape, w: Shape, *b: Shape, window: Window, groups: int) -> BoxRule:
    """Return the rule from boxes of the result of conv to the boxes of x, w and perhaps b that they need."""
    return over_window(windowed, window, w[0], (x, w, *b), {"groups": groups}, zeros=True)


CONV: Op = register(
    Op(
        name="conv",
        shape=_conv_shape,
        spec=_conv_spec,
        jvp=lambda y, args, dargs, **params: _bilinear_jvp(CONV, args, dargs, params),
        vjp=_conv_vjp,
        cases=_conv_case,
        linear=((0, 2), (1, 2)),
        roundings=_roundings,
        outside=_conv_outside,
        kernel=True,
        multiply_adds=_multiply_adds,
        receptive_field=_window_reach,
        footprint=_conv_footprint,
    )
)


# --- conv_transpose ---------------------------------------------------------------------------------------------


def _transpose_shape(x: Shape, w: Shape, *b: Shape, window: Window, groups: int) -> Shape:
    """Return the output shape of conv_transpose for the shapes of x, w and, if given, the bias b.

    ShapeError if they do not fit each other and the window.
    """
    _check_w("conv_transpose", w, window, groups, "Cin, Cout/groups")
    _check_x("conv_transpose", x, w, w[0], window.out)
    _check_b("conv_transpose", w[1] * groups, b)
    return (*x[: len(x) - window.rank - 1], w[1] * groups, *window.size)


def _transpose_spec(x: Array, w: Array, b: Array | None = None, *, window: Window, groups: int) -> Array:
    """Return conv_transpose of x with w plus b: weights times x added where each tap reads, over any scalar type."""
    shape = _transpose_shape(x.shape, w.shape, window=window, groups=groups)
    cells = _split_groups(x, groups, window.rank)
    y = scalar.zeros((cells.shape[0], groups, w.shape[1], *window.size), x)
    for tap, wt in _taps(w, groups, window):
        read = tap.read_outputs(cells)
        given = scalar.matmul(np.swapaxes(wt, 1, 2), _flatten_spatial(read))
        tap.add_to_inputs(y, given.reshape(y.shape[:3] + read.shape[3:]))
    return _biased(y.reshape(shape), b, window.rank)


def _transpose_vjp(gy: Value, y: Value, args: Any, *, window: Window, groups: int) -> tuple[Value, ...]:
    """Return the cotangents of conv_transpose's arguments `args` = x, w and perhaps b: conv(gy, w), conv_weight(gy, x),
    and gy summed over all but channels.
    """
    x, w, *b = args
    params: Any = {"window": window, "groups": groups}
    gx, gw = apply(CONV, gy, w, **params), apply(CONV_WEIGHT, gy, x, **params)
    return (gx, gw, *(_bias_cotangent(gy, window.rank) for _ in b))


def _transpose_case(rng: Random) -> Case:
    """Return random arguments and parameters of conv_transpose, drawn by `rng`, for the law tests."""
    win, groups, c_out, c_in, batch = _channels_case(rng)
    x = sample_inputs.numbers(rng, (*batch, c_in, *win.out))
    w = sample_inputs.numbers(rng, (c_in, c_out // groups, *win.kernel))
    b = (sample_inputs.numbers(rng, (c_out,)),) if rng.random() < 0.5 else ()
    return (x, w, *b), {"window": win, "groups": groups}


def _transpose_roundings(x: Shape, w: Shape, *b: Shape, window: Window, groups: int) -> int:
    """Return N with abs(error) <= gamma_N * magnitude for each output cell of conv_transpose: its products, and one for
    a bias b.
    """
    return w[0] // groups * window.taps_count + len(b)


def _transpose_reach(x: Shape, *_: Shape, window: Window, groups: int) -> tuple[ReceptiveField | None, ...]:
    """Return, per trailing output axis, which cells of the data conv_transpose reads (None: all)."""
    return window.reach_back()


def _transpose_outside(x: Array, w: Array, *_: Array, window: Window, groups: int) -> Array:
    """Return, (Cout, *ones), the sum of the weights w of each output channel of conv_transpose (`Op.outside`).

    Where runtimes multiply the zeros that they stuff between cells, any weight may meet one. x and w are absolute
    values, or masks as 0 and 1.
    """
    channels = np.swapaxes(_split_weight_groups(w, groups), 1, 2)
    return _conv_outside(x, channels.reshape((-1, *channels.shape[2:])), window=window, groups=groups)


def _transpose_footprint(x: Shape, w: Shape, *b: Shape, window: Window, groups: int) -> BoxRule:
    """Return the rule from boxes of the result of conv_transpose to the boxes of x, w and perhaps b that they need."""
    return over_window(transposed, window, w[1] * groups, (x, w, *b), {"groups": groups}, zeros=True)


CONV_TRANSPOSE: Op = register(
    Op(
        name="conv_transpose",
        shape=_transpose_shape,
        spec=_transpose_spec,
        jvp=lambda y, args, dargs, **params: _bilinear_jvp(CONV_TRANSPOSE, args, dargs, params),
        vjp=_transpose_vjp,
        cases=_transpose_case,
        linear=((0, 2), (1, 2)),
        roundings=_transpose_roundings,
        outside=_transpose_outside,
        kernel=True,
        reads="transpose",
        multiply_adds=_multiply_adds,
        receptive_field=_transpose_reach,
        footprint=_transpose_footprint,
    )
)


# --- conv_weight ------------------------------------------------------------------------------------------------


def _weight_shape(x: Shape, gy: Shape, *, window: Window, groups: int) -> Shape:
    """Return the output shape of conv_weight; raise ShapeError for arguments that do not fit."""
    _check_window("conv_weight", window)
    channel = len(x) - window.rank - 1
    if channel < 0 or len(gy) != len(x) or x[:channel] != gy[:channel]:
        raise ShapeError("conv_weight", f"x and gy must have the same batch; got {x} and {gy}", rule="C1")
    if x[channel + 1 :] != window.size or gy[channel + 1 :] != window.out:
        raise ShapeError("conv_weight", f"x {x} and gy {gy} do not fit {window.size} -> {window.out}", rule="C1")
    c_in, c_out = x[channel], gy[channel]
    if groups < 1 or c_in % groups or c_out % groups:
        raise ShapeError("conv_weight", f"groups must divide the channels; got groups={groups}, {x}, {gy}", rule="C1")
    return (c_out, c_in // groups, *window.kernel)


def _weight_spec(x: Array, gy: Array, *, window: Window, groups: int) -> Array:
    """Return conv_weight, the gradient of conv in its weight: per tap, products of x and gy summed over all outputs."""
    shape = _weight_shape(x.shape, gy.shape, window=window, groups=groups)
    cells, cotangents = _split_groups(x, groups, window.rank), _split_groups(gy, groups, window.rank)
    gw = scalar.zeros((groups, shape[0] // groups, *shape[1:]), x)
    if cells.shape[0] == 0:
        return gw.reshape(shape)
    for tap in window.taps():
        outs, ins = _flatten_spatial(tap.read_outputs(cotangents)), _flatten_spatial(tap.read_inputs(cells))
        at(gw, tap.position)[...] = np.sum(scalar.matmul(outs, np.swapaxes(ins, 2, 3)), axis=0)
    return gw.reshape(shape)


def _weight_jvp(y: Value, args: Any, dargs: Any, **params: Any) -> Value | None:
    """Return the tangent of conv_weight(x, gy), `args`: f(dx, gy) + f(x, dgy), with `dargs` = dx, dgy (None: zero)."""
    (x, gy), (dx, dgy) = args, dargs
    return add_tangents(
        None if dx is None else apply(CONV_WEIGHT, dx, gy, **params),
        None if dgy is None else apply(CONV_WEIGHT, x, dgy, **params),
    )


def _weight_vjp(gw: Value, y: Value, args: Any, **params: Any) -> tuple[Value, Value]:
    """Return the cotangents of conv_weight's arguments `args` = x, gy from `gw`, that of its output: conv_transpose(gy,
    gw) and conv(x, gw).
    """
    x, gy = args
    return apply(CONV_TRANSPOSE, gy, gw, **params), apply(CONV, x, gw, **params)


def _weight_case(rng: Random) -> Case:
    """Return random arguments and parameters of conv_weight, drawn by `rng`, for the law tests."""
    win, groups, c_in, c_out, batch = _channels_case(rng)
    x, gy = sample_inputs.numbers(rng, (*batch, c_in, *win.size)), sample_inputs.numbers(rng, (*batch, c_out, *win.out))
    return (x, gy), {"window": win, "groups": groups}


def _weight_roundings(x: Shape, gy: Shape, *, window: Window, groups: int) -> int:
    """Return N with abs(error) <= gamma_N * magnitude for each output cell of conv_weight."""
    return math.prod(x[: len(x) - window.rank - 1]) * math.prod(window.out)


def _weight_outside(x: Array, gy: Array, *, window: Window, groups: int) -> Array:
    """Return, (Cout, *ones), the sum of the cotangents of each output channel: any of them may meet padding."""
    channel = gy.ndim - window.rank - 1
    return np.asarray(np.moveaxis(gy, channel, 0).reshape(gy.shape[channel], -1).sum(1)).reshape(
        (-1,) + (1,) * (window.rank + 1)
    )


CONV_WEIGHT: Op = register(
    Op(
        name="conv_weight",
        shape=_weight_shape,
        spec=_weight_spec,
        jvp=_weight_jvp,
        vjp=_weight_vjp,
        cases=_weight_case,
        linear=((0,), (1,)),
        roundings=_weight_roundings,
        outside=_weight_outside,
        kernel=True,
        reads="tap",
        multiply_adds=lambda x, gy, *, window, groups: (
            math.prod(gy) * x[len(x) - window.rank - 1] // groups * window.taps_count
        ),
    )
)


# --- the public calls -------------------------------------------------------------------------------------------


@window.remembered(1, 2)
def _rank(name: str, w: Shape, x: Shape, groups: int) -> int:
    """Return the number of spatial axes of the convolution `name` of shapes w and x; raise ShapeError or ParameterError
    for invalid ones or groups.
    """
    w, x = tuple(w), tuple(x)
    if len(w) < 3:
        raise ShapeError(name, f"w needs two channel axes and a kernel; got w {w}", rule="C1")
    if isinstance(groups, bool) or not isinstance(groups, int | np.integer):
        raise ParameterError(name, f"groups must be an int; got {groups!r}", rule="P5")
    rank = len(w) - 2
    if len(x) < rank + 1:
        raise ShapeError(name, f"x needs a channel axis and {rank} spatial axes; got x {x}, w {w}", rule="C1")
    return rank


@window.remembered(0, 1)
def conv_window(x: Shape, w: Shape, stride: Any, padding: Any, dilation: Any, groups: int) -> Window:
    """Return the window of conv for these shapes and settings; ShapeError or ParameterError if they do not fit."""
    _rank("conv", w, x, groups)
    return window.strided("conv", x, window.whole(tuple(w[2:])), stride=stride, padding=padding, dilation=dilation)


@window.remembered(0, 1)
def transpose_window(
    x: Shape, w: Shape, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int
) -> Window:
    """Return the window of conv_transpose for these shapes and settings; its `size` is the output's.

    ShapeError or ParameterError if they do not fit.
    """
    rank = _rank("conv_transpose", w, x, groups)
    return window.transposed(
        "conv_transpose",
        x[len(x) - rank :],
        w[2:],
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
    )


@cached_call
def conv(
    w: Value,
    b: Value | None,
    x: Value,
    *,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Value:
    """Convolution of any rank: y[o,p] = b[o] + sum_{i,t} w[o,i,t] * x[i, s*p + e*t - lo].

    Outside x counts 0. Rules: [W1] [W2] [C1]. Derivatives: d = conv(w, 0, dx) + conv(dw, db, x); the cotangent of x is
    conv_transpose, of w conv_weight. PyTorch's conv1d/2d/3d (same values, ranks 1 to 3 only, no asymmetric padding);
    ONNX Conv; lax.conv.

    Parameters
    ----------
    w : array_like, shape (Cout, Cin/groups, *kernel)
        Weights; the kernel's axes are the spatial ones.
    b : array_like, shape (Cout,), or None
        Bias, one number per output channel; None: no bias.
    x : array_like, shape (*batch, Cin, *spatial)
        The data; batch may be no axis or several.
    stride : int or tuple of int, default 1
        Step from a window to the next, per axis.
    padding : int, tuple or str, default 0
        Cells added at the ends of every axis: an int, per axis an int or a (lo, hi) pair, or "valid", "same_upper",
        "same_lower" ([same]).
    dilation : int or tuple of int, default 1
        Step from a tap to the next inside a window, per axis.
    groups : int, default 1
        Groups into which the channels are divided; a group of outputs reads one group of inputs.

    Returns
    -------
    array, shape (*batch, Cout, *out)
        out = floor((n + lo + hi - e*(k-1) - 1) / s) + 1 along an axis, e the dilation.

    Raises
    ------
    ShapeError
        For sizes that are not positive ([W1]), a window that does not fit its padded input ([W2]), and channels that do
        not fit ([C1]).
    ParameterError
        For arguments that are no such numbers or words ([P5]).
    ScalarError
        If floats and exact numbers are mixed.

    Examples
    --------
    >>> conv(np.array([[[1.0, 2.0]]]), None, np.array([[1.0, 10.0, 100.0]]))
    array([[ 21., 210.]])
    """
    win = conv_window(shape_of(x), shape_of(w), stride, padding, dilation, groups)
    if b is None:
        return apply(CONV, x, w, window=win, groups=groups)
    return apply(CONV, x, w, b, window=win, groups=groups)


@cached_call
def conv_transpose(
    w: Value,
    b: Value | None,
    x: Value,
    *,
    stride: PerAxis = 1,
    padding: Padding = 0,
    output_padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Value:
    """The window relation read backwards: y[o,i] = b[o] + sum over p, t with s*p+e*t-lo = i of w[c,o,t] * x[c,p].

    Rules: [W1] [C1] [C2]. Derivatives: bilinear; the cotangent of x is conv, of w conv_weight.

    Parameters
    ----------
    w : array_like, shape (Cin, Cout/groups, *kernel)
        Weights, as in PyTorch.
    b : array_like, shape (Cout,), or None
        Bias, one number per output channel; None: no bias.
    x : array_like, shape (*batch, Cin, *spatial)
        The data; batch may be no axis or several.
    stride : int or tuple of int, default 1
        Step in the result from a cell of x to the next, per axis.
    padding : int, tuple or str, default 0
        Cells removed at the ends of every axis of the result: an int, or per axis an int or a (lo, hi) pair; "valid"
        removes none.
    output_padding : int or tuple of int, default 0
        Cells added at the high end of every axis, fewer than max(stride, dilation).
    dilation : int or tuple of int, default 1
        Step from a tap to the next inside a window, per axis.
    groups : int, default 1
        Groups into which the channels are divided; a group of outputs reads one group of inputs.

    Returns
    -------
    array, shape (*batch, Cout, *out)
        out = (n-1)*s - lo - hi + e*(k-1) + 1 + output_padding along an axis, e the dilation.

    Raises
    ------
    ShapeError
        For sizes that are not positive ([W1]), channels that do not fit ([C1]), a result without cells and an
        output_padding that is too large ([C2]).
    ParameterError
        For arguments that are no such numbers or words ([P5]).
    ScalarError
        If floats and exact numbers are mixed.

    Examples
    --------
    >>> conv_transpose(np.array([[[1.0, 2.0]]]), None, np.array([[1.0, 10.0]]), stride=2)
    array([[ 1.,  2., 10., 20.]])
    """
    win = transpose_window(shape_of(x), shape_of(w), stride, padding, output_padding, dilation, groups)
    args = (x, w) if b is None else (x, w, b)
    return apply(CONV_TRANSPOSE, *args, window=win, groups=groups)
