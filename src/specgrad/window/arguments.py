"""From a caller's arguments to a window: words for padding, one number for all axes, sizes that must fit."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any, cast

import numpy as np

from ..errors import ParameterError, ShapeError
from .axis import Adaptive, Strided, strided_axis
from .sizes import OPEN_SIZES, Padding, PerAxis, Shape, remembered, whole
from .symbolic_size import Sizes, any_open
from .symbolic_window import OpenWindow, strided_out, transposed_size
from .window import Window

# --- from what a user writes to a Window ------------------------------------------------------------------------


def per_axis(operator: str, name: str, value: PerAxis, rank: int) -> Shape:
    """Return one int per axis from the argument `name`, an int for all `rank` axes, or a tuple of as many.

    ShapeError for another length, ParameterError for what are no ints.

    >>> per_axis("conv", "stride", 2, 3)
    (2, 2, 2)
    """
    values = _as_ints(operator, name, (value,) * rank if _is_int(value) else value)
    if len(values) != rank:
        raise ShapeError(operator, f"{name}={value} has {len(values)} entries for {rank} spatial axes")
    return values


def int_of(operator_: str, name: str, value: Any) -> int:
    """Return `value`, an int or what stands for one (NumPy's, an engine's symbolic size); ParameterError for bools and
    floats.

    `operator_` and `name`, the argument's, are for the error.
    """
    if type(value) is int:
        return value
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise ParameterError(operator_, f"{name} must be an int; got {value!r}", rule="P5")
    return operator.index(value)


def size_of(operator_: str, value: Any) -> int:
    """Return `value`, a size that the caller wrote: an int as by `int_of`, or a symbolic one as it is; `operator_` is
    for errors.

    ParameterError for what is neither.
    """
    return value if type(value) in OPEN_SIZES else int_of(operator_, "every size", value)


def _is_int(value: Any) -> bool:
    """Return whether value is an int of Python or NumPy, and no bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _as_ints(operator: str, name: str, value: Any) -> Shape:
    """Return `value` as a tuple of ints, else raise ParameterError; `name` is the argument's."""
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__") or not all(_is_int(v) for v in value):
        raise ParameterError(operator, f"{name} must be an int or one int per axis; got {value!r}", rule="P5")
    return tuple(int(v) for v in value)


def kernel_of(operator: str, kernel: PerAxis, rank: int | None) -> Shape:
    """Return the kernel as a tuple; its length is the rank, and an int needs `rank=`.

    ParameterError without it, ShapeError for an empty kernel or a rank below 1.
    """
    if _is_int(kernel) and rank is None:
        raise ParameterError(operator, f"an int kernel needs rank=; got kernel={kernel}", rule="P5")
    if rank is not None and (not _is_int(rank) or rank < 1):
        raise ShapeError(operator, f"rank must be at least 1; got rank={rank}", rule="W1")
    values = per_axis(operator, "kernel", kernel, rank) if rank is not None else _as_ints(operator, "kernel", kernel)
    if not values:
        raise ShapeError(operator, "needs at least one spatial axis; got an empty kernel", rule="W1")
    return values


def _pairs(operator: str, padding: Any, rank: int) -> tuple[tuple[int, int], ...]:
    """Return padding as one (lo, hi) pair for each of `rank` axes.

    ShapeError for another number of entries than axes, ParameterError for others.
    """
    if _is_int(padding):
        padding = (padding,) * rank
    given: Any = padding if hasattr(padding, "__iter__") else (None,) * rank
    pairs = tuple((p, p) if _is_int(p) else tuple(p) if hasattr(p, "__iter__") else p for p in given)
    if len(pairs) != rank:
        raise ShapeError(operator, f"padding={padding} has {len(pairs)} entries for {rank} spatial axes")
    for p in pairs:
        if not (isinstance(p, tuple) and len(p) == 2 and all(_is_int(v) for v in p)):
            raise ParameterError(
                operator, f"padding must be an int, an int or a (lo, hi) pair per axis; got {padding!r}", rule="P5"
            )
    return tuple((int(lo), int(hi)) for lo, hi in pairs)


def same_total(n: int, k: int, s: int, e: int) -> int:
    """Return how many cells ceil(n/s) windows reach beyond n cells; negative if the stride leaves cells behind the
    last.

    Kernel k, stride s, dilation e.
    """
    return (-(-n // s) - 1) * s + e * (k - 1) + 1 - n


def _same_padding(n: int, k: int, s: int, e: int, upper: bool) -> tuple[int, int]:
    """[same] Return the padding (lo, hi) for out = ceil(n/s); the odd cell goes high (upper) or low.

    n, k, s, e: cells, kernel, stride and dilation of the axis.
    """
    total = max(0, same_total(n, k, s, e))
    small, large = total // 2, total - total // 2
    return (small, large) if upper else (large, small)


def resolve_padding(
    operator: str, padding: Padding, sizes: Shape, kernel: Shape, stride: Shape, dilation: Shape
) -> tuple[tuple[int, int], ...]:
    """Return one (lo, hi) pair per axis from an int, ints, pairs, "valid", "same_upper" or "same_lower".

    ParameterError for another word. `sizes` are the spatial sizes of the input.
    """
    if not isinstance(padding, str):
        return _pairs(operator, padding, len(sizes))
    if padding == "valid":
        return ((0, 0),) * len(sizes)
    if padding not in ("same_upper", "same_lower"):
        raise ParameterError(
            operator, f'padding must be "valid", "same_upper" or "same_lower"; got {padding!r}', rule="P5"
        )
    upper = padding == "same_upper"
    return tuple(_same_padding(*a, upper) for a in zip(sizes, kernel, stride, dilation, strict=True))


@lru_cache(maxsize=4096)
def _check_positive(operator: str, sizes: Shape, padding: Any, shown: str, **values: Shape) -> None:
    """[W1] Raise ShapeError for sizes below 1 and negative padding, before anything is computed.

    `values` are kernel, stride and dilation by name; `shown` ends the error with what was given.
    """
    for name, value in values.items():
        if min(value) < 1:
            raise ShapeError(operator, f"{name} must be at least 1; got {name}={value}, {shown}", rule="W1")
    if any(min(p) < 0 for p in padding):
        raise ShapeError(operator, f"padding must not be negative; got padding={padding}, {shown}", rule="W1")
    if min(sizes) < 1:
        raise ShapeError(operator, f"spatial axis {sizes.index(0)} is empty; got {shown}", rule="W1")


def _check_fit(
    operator: str, sizes: Shape, kernel: Shape, overhang: Shape, dilation: Shape, padding: Any, shown: str
) -> None:
    """[W2] Raise ShapeError if a window is larger than its padded input; under `ceil` it may hang over by stride-1
    cells.

    `sizes` are the input's, `overhang` is that allowance per axis; `shown` ends the error with what was given.
    """
    for axis, (n, k, over, e, (lo, hi)) in enumerate(zip(sizes, kernel, overhang, dilation, padding, strict=True)):
        span = e * (k - 1) + 1
        if span > n + lo + hi + over:
            raise ShapeError(
                operator,
                f"window of {span} cells does not fit {n} + {lo} + {hi} input cells on axis {axis}; "
                f"got kernel={kernel}, {shown}",
                rule="W2",
            )


def strided(
    operator: str,
    shape: Shape,
    kernel: Shape,
    *,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil: bool = False,
) -> Window:
    """Return the window over the last axes of `shape`; its rank is the kernel's length.

    `ceil` rounds output sizes up.

    >>> strided("max_pool", (4, 9, 5), (3, 7))
    Traceback (most recent call last):
    specgrad.errors.ShapeError: max_pool [W2]: window of 7 cells does not fit 5 + 0 + 0 input cells on axis 1; got kernel=(3, 7), input shape (4, 9, 5)
    """  # noqa: E501 - the message is one line
    return _cached_strided(operator, shape, kernel, stride, padding, dilation, ceil)


@remembered(1)
def _cached_strided(
    operator: str, shape: Shape, kernel: Shape, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Window:
    """Return the window of `strided`, cached by its arguments.

    ShapeError if the shape has fewer axes than the kernel. `ceil` rounds output sizes up.
    """
    rank, shape = len(kernel), tuple(shape)
    if len(shape) < rank:
        raise ShapeError(operator, f"kernel={kernel} needs {rank} spatial axes; got input shape {shape}", rule="W1")
    strides = per_axis(operator, "stride", stride, rank)
    dilations = per_axis(operator, "dilation", dilation, rank)
    if any_open(shape[len(shape) - rank :]):
        return _open_strided(operator, shape[len(shape) - rank :], kernel, strides, padding, dilations, bool(ceil))
    sizes = whole(shape[len(shape) - rank :])
    shown = f"input shape {shape}"
    _check_positive(operator, sizes, (), shown, kernel=kernel, stride=strides, dilation=dilations)
    pads = resolve_padding(operator, padding, sizes, kernel, strides, dilations)
    _check_positive(operator, sizes, pads, shown)
    overhang = tuple(s - 1 if ceil else 0 for s in strides)
    _check_fit(operator, sizes, kernel, overhang, dilations, pads, shown)
    return Window(
        tuple(
            strided_axis(n, k, s, e, lo, hi, bool(ceil))
            for n, k, s, e, (lo, hi) in zip(sizes, kernel, strides, dilations, pads, strict=True)
        )
    )


def _open_strided(
    operator: str, sizes: Shape, kernel: Shape, stride: Shape, padding: Any, dilation: Shape, ceil: bool
) -> Window:
    """Return a window over symbolic sizes that stores its arguments; errors that do not depend on sizes are raised now.

    `ceil` rounds output sizes up.
    """
    pads = padding if isinstance(padding, str) else _pairs(operator, padding, len(sizes))
    resolve_padding(operator, pads, (1,) * len(sizes), kernel, stride, dilation)  # refuses unknown words
    asked = {"kernel": kernel, "stride": stride, "padding": pads, "dilation": dilation, "ceil": ceil}
    axes = enumerate(zip(sizes, kernel, stride, dilation, strict=True))
    out = tuple(strided_out(n, k, s, e, pads, axis, ceil) for axis, (n, k, s, e) in axes)
    return as_window(OpenWindow("strided", operator, sizes, tuple(asked.items()), sizes, out))


def pooling(
    operator: str,
    shape: Shape,
    kernel: PerAxis,
    *,
    rank: int | None,
    stride: PerAxis | None,
    padding: Padding,
    dilation: PerAxis = 1,
    ceil: bool = False,
) -> Window:
    """Return the window of a pooling call: stride defaults to the kernel, an int kernel needs its rank.

    It lies over the last axes of `shape`. `ceil` rounds output sizes up. ShapeError for what does not fit,
    ParameterError for an int kernel without rank.
    """
    return _cached_pooling(operator, shape, kernel, rank, stride, padding, dilation, ceil)


@remembered(1)
def _cached_pooling(
    operator: str, shape: Shape, kernel: Any, rank: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Window:
    """Return the window of `pooling`, cached by its arguments.

    `ceil` rounds output sizes up.
    """
    sizes = kernel_of(operator, kernel, rank)
    step = sizes if stride is None else stride
    return strided(operator, shape, sizes, stride=step, padding=padding, dilation=dilation, ceil=ceil)


def refuse_adaptive(operator: str, window: Window | OpenWindow, why: str) -> None:
    """Raise ParameterError if an axis has adaptive cells: a tap beyond a shorter cell does not exist, and is no
    padding.

    `why` ends the sentence "adaptive cells ...".
    """
    open_cells = isinstance(window, OpenWindow) and window.made == "adaptive"
    if open_cells or any(isinstance(a, Adaptive) for a in getattr(window, "axes", ())):
        raise ParameterError(operator, f"adaptive cells {why}; got window {window}", rule="P5")


def mapped(operator: str, shape: Shape, spatial: Shape) -> Shape:
    """Return the leading axes of `shape`, whose last axes must have the sizes `spatial`; else raise ShapeError
    ([P4]).
    """
    lead = shape[: max(0, len(shape) - len(spatial))]
    if shape != lead + spatial:
        raise ShapeError(operator, f"spatial sizes must be {spatial}; got shape {shape}", rule="W1")
    return lead


@remembered(1, 2)
def adaptive(operator: str, shape: Shape, output: Shape) -> Window:
    """Return the window of `output` adaptive cells over the last axes; axes that divide evenly are strided ones.

    ShapeError if there are fewer axes, or empty ones.

    >>> adaptive("adaptive_avg_pool", (7,), (3,)).inside()
    array([3, 3, 3], dtype=object)
    >>> str(adaptive("adaptive_avg_pool", (6,), (3,)))
    'k2 s2'
    """
    rank = len(output)
    if len(shape) < rank:
        raise ShapeError(operator, f"output={output} needs {rank} spatial axes; got input shape {shape}", rule="W1")
    if any_open(tail := tuple(shape[len(shape) - rank :])):
        return as_window(OpenWindow("adaptive", operator, tail, (("output", tuple(output)),), tail, tuple(output)))
    sizes = whole(tuple(shape[len(shape) - rank :]))
    if min(output) < 1 or min(sizes) < 1:
        raise ShapeError(operator, f"sizes must be positive; got output={output}, input shape {shape}", rule="W1")
    return Window(
        tuple(
            Strided(n, n // m, n // m, 1, 0, 0, m) if n % m == 0 else Adaptive(n, m)
            for n, m in zip(sizes, output, strict=True)
        )
    )


def transposed(
    operator: str,
    sizes: Shape,
    kernel: Shape,
    *,
    stride: PerAxis,
    padding: Padding,
    output_padding: PerAxis,
    dilation: PerAxis,
) -> Window:
    """Return the window of conv_transpose: `sizes` are the window's outputs, the result its inputs.

    size = (n-1)*s - lo - hi + e*(k-1) + 1 + output_padding, and [C2] size >= 1, output_padding < max(s, e).
    ParameterError for padding by another word than "valid", ShapeError for output_padding that is too large.
    """
    if any_open(sizes):
        return _open_transposed(operator, tuple(sizes), whole(tuple(kernel)), stride, padding, output_padding, dilation)
    return _cached_transposed(operator, sizes, kernel, stride, padding, output_padding, dilation)


def _open_transposed(
    operator: str, sizes: Shape, kernel: Shape, stride: Any, padding: Any, output_padding: Any, dilation: Any
) -> Window:
    """Return a transposed window over symbolic sizes, which stores its arguments.

    ParameterError for padding by another word than "valid".
    """
    rank = len(kernel)
    strides = per_axis(operator, "stride", stride, rank)
    dilations = per_axis(operator, "dilation", dilation, rank)
    extra = per_axis(operator, "output_padding", output_padding, rank)
    if isinstance(padding, str) and padding != "valid":
        raise ParameterError(operator, f"padding={padding!r} is not defined here; give numbers", rule="P5")
    pads = resolve_padding(operator, padding, (1,) * rank, kernel, strides, dilations)
    asked = {"kernel": kernel, "stride": strides, "padding": pads, "output_padding": extra, "dilation": dilations}
    axes = zip(sizes, kernel, strides, dilations, pads, extra, strict=True)
    size = tuple(transposed_size(*axis) for axis in axes)
    return as_window(OpenWindow("transposed", operator, sizes, tuple(asked.items()), size, sizes))


def as_window(window: OpenWindow) -> Window:
    """Return a window over symbolic sizes, typed as a Window: while tracing, shape rules only read its sizes."""
    return cast(Window, window)


def window_at(window: OpenWindow, sizes: Sizes) -> Window:
    """Return the window at these sizes: its call is repeated, with all its rules.

    ParameterError and ShapeError as the call itself raises them.
    """
    return window_over(window.made, window.operator, *window.request(sizes))


def window_over(made: str, operator: str, sizes: Shape, asked: dict[str, Any]) -> Window:
    """Return the window that the call named `made` gives over these sizes, symbolic or not, with the arguments `asked`.

    `made` is "strided", "transposed" or "adaptive"; ParameterError for another. It takes `kernel` out of `asked`.
    """
    if made == "adaptive":
        return adaptive(operator, sizes, asked["output"])
    if made not in ("strided", "transposed"):
        raise ParameterError(operator, f"there is no window made by {made!r:.40}", rule="P5")
    kernel = asked.pop("kernel")
    return (strided if made == "strided" else transposed)(operator, sizes, kernel, **asked)


@remembered()
def _cached_transposed(
    operator: str, sizes: Shape, kernel: Shape, stride: Any, padding: Any, output_padding: Any, dilation: Any
) -> Window:
    """Return the window of `transposed` over sizes that are numbers, cached by its arguments.

    ParameterError for padding by another word than "valid", ShapeError for output_padding that is too large or a result
    of no cells.
    """
    rank, sizes, kernel = len(kernel), tuple(sizes), tuple(kernel)
    strides = per_axis(operator, "stride", stride, rank)
    dilations = per_axis(operator, "dilation", dilation, rank)
    extra = per_axis(operator, "output_padding", output_padding, rank)
    if isinstance(padding, str) and padding != "valid":
        raise ParameterError(operator, f"padding={padding!r} is not defined here; give numbers", rule="P5")
    pads = resolve_padding(operator, padding, sizes, kernel, strides, dilations)
    shown = f"input sizes {sizes}"
    _check_positive(operator, sizes, pads, shown, kernel=kernel, stride=strides, dilation=dilations)
    axes = []
    for n, k, s, e, (lo, hi), more in zip(sizes, kernel, strides, dilations, pads, extra, strict=True):
        size = (n - 1) * s - lo - hi + e * (k - 1) + 1 + more
        if not 0 <= more < max(s, e):
            text = f"output_padding must be below max(stride, dilation); got output_padding={extra}, "
            raise ShapeError(operator, text + f"stride={strides}, dilation={dilations}", rule="C2")
        if size < 1:
            text = f"output size would be {size}; got kernel={kernel}, stride={strides}, padding={pads}, {shown}"
            raise ShapeError(operator, text, rule="C2")
        axes.append(Strided(size, k, s, e, lo, hi, n))
    return Window(tuple(axes))


def transposed_padding(
    sizes: Shape,
    kernel: Shape,
    output: Shape,
    *,
    stride: Shape,
    output_padding: Shape,
    dilation: Shape,
    upper: bool,
) -> tuple[tuple[tuple[int, int], ...], Shape]:
    """Return the padding with which conv_transpose of `sizes` cells gives `output` cells, as ONNX's output_shape asks;
    and the cells it lacks.

    The total is split evenly, an odd cell going high (upper) or low. Where even no padding reaches `output`, the cells
    that are lacking stand at the high end.

    >>> transposed_padding((3,), (3,), (6,), stride=(2,), output_padding=(0,), dilation=(1,), upper=False)
    (((1, 0),), (0,))
    >>> transposed_padding((3,), (3,), (9,), stride=(2,), output_padding=(0,), dilation=(1,), upper=False)
    (((0, 0),), (2,))
    """
    pairs, lacking = [], []
    for n, k, s, e, more, m in zip(sizes, kernel, stride, dilation, output_padding, output, strict=True):
        total = (n - 1) * s + e * (k - 1) + 1 + more - m
        small, large = max(total, 0) // 2, max(total, 0) - max(total, 0) // 2
        pairs.append((small, large) if upper else (large, small))
        lacking.append(max(-total, 0))
    return tuple(pairs), tuple(lacking)
