"""PyTorch's names, argument names and argument order: what stood under `torch.nn.functional` can stand here. A wrong
rank is a ShapeError, an argument that is not honoured is refused.

Thin by intent: every function checks the rank PyTorch would and calls the rank-free operator, where the meaning is.
An argument that we do not honour is refused by name ([P5]). Where our meaning differs from PyTorch's on purpose,
docs/reference/differences.md says so.

>>> import numpy as np
>>> import specgrad.functional as F
>>> F.max_pool2d(np.arange(16.0).reshape(1, 4, 4), 2)
array([[[ 5.,  7.],
        [13., 15.]]])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from . import window
from .call_cache import cached_call
from .errors import ParameterError, ShapeError, UnsupportedError
from .op import Value, by_engine, shape_of
from .ops import activation, avg_pool, composites, contract, conv, elementwise, max_pool, smooth_pool
from .ops.resize import resize
from .scalar import Number

Size = int | Sequence[int]


def _refuse(operator: str, **given: Any) -> None:
    """Raise ParameterError in the name of the operator unless each argument has the one value that is supported:
    name=(given, supported) ([P5]).
    """
    for name, (value, honoured) in given.items():
        if value != honoured:
            raise ParameterError(operator, f"{name}={value!r} is not supported; only {honoured!r}", rule="P5")


def _check_rank(operator: str, x: Value, rank: int) -> None:
    """Raise ShapeError in the name of the operator unless x is one sample or a batch of samples of this rank, as
    PyTorch takes.
    """
    ndim = len(shape_of(x))
    if ndim not in (rank + 1, rank + 2):
        raise ShapeError(operator, f"input must have {rank + 1} or {rank + 2} axes; got shape {shape_of(x)}")


def _tuple(value: Any, rank: int) -> Any:
    """Return a value per axis: a number or a single entry is repeated `rank` times."""
    if type(value) is tuple and len(value) == rank:
        return value
    values = tuple(value) if hasattr(value, "__iter__") else (value,)
    return values * rank if len(values) == 1 else values


def _named(name: str, like: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Return a decorator that gives a generated function its PyTorch name and a docstring that points at
    specgrad.`like`, and caches its calls.
    """

    def rename(fn: Callable[..., Value]) -> Callable[..., Value]:
        fn.__name__ = fn.__qualname__ = name
        fn.__doc__ = f"torch.nn.functional.{name}; see specgrad.{like}."
        return cached_call(fn)

    return rename


# --- convolution ------------------------------------------------------------------------------------------------


def _conv(rank: int) -> Callable[..., Value]:
    """Return torch.nn.functional's convolution of this rank.

    Its calls raise ParameterError for padding that PyTorch does not take.
    """
    name = f"conv{rank}d"

    @_named(name, "conv")
    def fn(
        input: Value,
        weight: Value,
        bias: Value | None = None,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
    ) -> Value:
        _check_rank(name, input, rank)
        if isinstance(padding, str):
            if padding not in ("valid", "same"):
                raise ParameterError(name, f'padding must be numbers, "valid" or "same"; got {padding!r}', rule="P5")
            if padding == "same" and set(_tuple(stride, rank)) != {1}:
                raise ParameterError(name, 'padding="same" needs stride 1', rule="P5")
            pads: Any = "same_upper" if padding == "same" else padding
        else:
            pads = _tuple(padding, rank)
        return conv.conv(
            weight,
            bias,
            input,
            stride=_tuple(stride, rank),
            padding=pads,
            dilation=_tuple(dilation, rank),
            groups=groups,
        )

    return fn


def _conv_transpose(rank: int) -> Callable[..., Value]:
    """Return torch.nn.functional's transposed convolution of this rank.

    Its calls raise ParameterError for what PyTorch does not take.
    """
    name = f"conv_transpose{rank}d"

    @_named(name, "conv_transpose")
    def fn(
        input: Value,
        weight: Value,
        bias: Value | None = None,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        dilation: Size = 1,
    ) -> Value:
        _check_rank(name, input, rank)
        return conv.conv_transpose(
            weight,
            bias,
            input,
            stride=_tuple(stride, rank),
            padding=_tuple(padding, rank),
            output_padding=_tuple(output_padding, rank),
            dilation=_tuple(dilation, rank),
            groups=groups,
        )

    return fn


conv1d, conv2d, conv3d = _conv(1), _conv(2), _conv(3)
conv_transpose1d, conv_transpose2d, conv_transpose3d = _conv_transpose(1), _conv_transpose(2), _conv_transpose(3)


# --- pooling ----------------------------------------------------------------------------------------------------


def _stride(stride: Size | None, rank: int) -> Any:
    """Return a stride for each of `rank` axes; None for None and for an empty one: it is to be the kernel."""
    return None if stride is None or stride == () or stride == [] else _tuple(stride, rank)


def _max_pool(rank: int) -> Callable[..., Value]:
    """Return torch.nn.functional's max_pool of this rank."""
    name = f"max_pool{rank}d"

    @_named(name, "max_pool")
    def fn(
        input: Value,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Value:
        _check_rank(name, input, rank)
        return max_pool.max_pool(
            input,
            _tuple(kernel_size, rank),
            stride=_stride(stride, rank),
            padding=_tuple(padding, rank),
            dilation=_tuple(dilation, rank),
            ceil=ceil_mode,
            return_indices=return_indices,
        )

    return fn


def _avg_pool(rank: int) -> Callable[..., Value]:
    """Return torch.nn.functional's avg_pool of this rank."""
    name = f"avg_pool{rank}d"

    @_named(name, "avg_pool")
    def fn(
        input: Value,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        _check_rank(name, input, rank)
        return avg_pool.avg_pool(
            input,
            _tuple(kernel_size, rank),
            stride=_stride(stride, rank),
            padding=_tuple(padding, rank),
            ceil=ceil_mode,
            count_include_pad=count_include_pad,
            divisor=divisor_override,
        )

    return fn


def _lp_pool(rank: int) -> Callable[..., Value]:
    """Return torch.nn.functional's lp_pool of this rank."""
    name = f"lp_pool{rank}d"

    @_named(name, "lp_pool")
    def fn(
        input: Value, norm_type: Number, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
    ) -> Value:
        _check_rank(name, input, rank)
        return avg_pool.lp_pool(
            input, _tuple(kernel_size, rank), p=norm_type, stride=_stride(stride, rank), ceil=ceil_mode
        )

    return fn


def _smooth_max_pool(rank: int) -> Callable[..., Value]:
    """Return smooth_max_pool of this rank with arguments in the manner of max_pool."""
    name = f"smooth_max_pool{rank}d"

    def fn(input: Value, kernel_size: Size, beta: Number, stride: Size | None = None, padding: Size = 0) -> Value:
        _check_rank(name, input, rank)
        return smooth_pool.smooth_max_pool(
            input, _tuple(kernel_size, rank), beta=beta, stride=_stride(stride, rank), padding=_tuple(padding, rank)
        )

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"specgrad.smooth_max_pool over {rank} axes, in the manner of max_pool{rank}d; PyTorch has none."
    return cached_call(fn)


def _adaptive_avg(rank: int) -> Callable[..., Value]:
    """Return torch.nn.functional's adaptive_avg_pool of this rank."""
    name = f"adaptive_avg_pool{rank}d"

    @_named(name, "adaptive_avg_pool")
    def fn(input: Value, output_size: Any) -> Value:
        _check_rank(name, input, rank)
        return avg_pool.adaptive_avg_pool(input, _tuple(output_size, rank))

    return fn


def _adaptive_max(rank: int) -> Callable[..., Value]:
    """Return torch.nn.functional's adaptive_max_pool of this rank."""
    name = f"adaptive_max_pool{rank}d"

    @_named(name, "adaptive_max_pool")
    def fn(input: Value, output_size: Any, return_indices: bool = False) -> Value:
        _check_rank(name, input, rank)
        return max_pool.adaptive_max_pool(input, _tuple(output_size, rank), return_indices=return_indices)

    return fn


def _max_unpool(rank: int) -> Callable[..., Value]:
    """Return torch.nn.functional's max_unpool of this rank."""
    name = f"max_unpool{rank}d"

    @_named(name, "max_unpool")
    def fn(
        input: Value,
        indices: Value,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        output_size: Sequence[int] | None = None,
    ) -> Value:
        _check_rank(name, input, rank)
        return max_pool.max_unpool(
            input,
            indices,
            _tuple(kernel_size, rank),
            stride=_stride(stride, rank),
            padding=_tuple(padding, rank),
            output=None if output_size is None else tuple(output_size)[-rank:],
        )

    return fn


max_pool1d, max_pool2d, max_pool3d = _max_pool(1), _max_pool(2), _max_pool(3)
smooth_max_pool1d, smooth_max_pool2d, smooth_max_pool3d = (_smooth_max_pool(rank) for rank in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = _avg_pool(1), _avg_pool(2), _avg_pool(3)
lp_pool1d, lp_pool2d, lp_pool3d = _lp_pool(1), _lp_pool(2), _lp_pool(3)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = _adaptive_avg(1), _adaptive_avg(2), _adaptive_avg(3)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = _adaptive_max(1), _adaptive_max(2), _adaptive_max(3)
max_unpool1d, max_unpool2d, max_unpool3d = _max_unpool(1), _max_unpool(2), _max_unpool(3)


# --- activations ------------------------------------------------------------------------------------------------


@cached_call
def relu(input: Value, inplace: bool = False) -> Value:
    """torch.nn.functional.relu of `input`: max(x, 0); inplace=True is refused."""
    _refuse("relu", inplace=(inplace, False))
    return activation.relu(input)


@cached_call
def relu6(input: Value, inplace: bool = False) -> Value:
    """torch.nn.functional.relu6 of `input`: min(max(x, 0), 6); inplace=True is refused."""
    _refuse("relu6", inplace=(inplace, False))
    return activation.relu6(input)


@cached_call
def leaky_relu(input: Value, negative_slope: Number = 0.01, inplace: bool = False) -> Value:
    """torch.nn.functional.leaky_relu of `input`: x, or negative_slope*x below 0; inplace=True is refused."""
    _refuse("leaky_relu", inplace=(inplace, False))
    return activation.leaky_relu(input, negative_slope)


@cached_call
def hardswish(input: Value, inplace: bool = False) -> Value:
    """torch.nn.functional.hardswish of `input`: x*relu6(x + 3)/6; inplace=True is refused."""
    _refuse("hardswish", inplace=(inplace, False))
    return activation.hardswish(input)


@cached_call
def silu(input: Value, inplace: bool = False) -> Value:
    """torch.nn.functional.silu of `input`: x*sigmoid(x); inplace=True is refused."""
    _refuse("silu", inplace=(inplace, False))
    return activation.silu(input)


@cached_call
def gelu(input: Value, approximate: str = "none") -> Value:
    """torch.nn.functional.gelu of `input`; approximate is "none" or "tanh"."""
    return activation.gelu(input, approximate)


@cached_call
def softplus(input: Value, beta: Number = 1, threshold: Number | None = 20) -> Value:
    """torch.nn.functional.softplus of `input` with its switch to x where beta*x > threshold; threshold=None never
    switches.
    """
    if (whole := by_engine("softplus", input, beta, threshold=threshold)) is not None:
        return whole
    y = activation.softplus(input, beta)
    if threshold is None:
        return y
    return elementwise.select(elementwise.greater(elementwise.mul(input, beta), threshold), input, y)


sigmoid, tanh = activation.sigmoid, activation.tanh


@cached_call
def softmax(input: Value, dim: int) -> Value:
    """torch.nn.functional.softmax of `input` along `dim`, which must be said."""
    return composites.softmax(input, dim)


@cached_call
def log_softmax(input: Value, dim: int) -> Value:
    """torch.nn.functional.log_softmax of `input` along `dim`, which must be said."""
    return composites.log_softmax(input, dim)


# --- layers and losses ------------------------------------------------------------------------------------------


@cached_call
def linear(input: Value, weight: Value, bias: Value | None = None) -> Value:
    """torch.nn.functional.linear: input times the transposed weight (out, in), plus bias."""
    return contract.linear(weight, bias, input)


@cached_call
def batch_norm(
    input: Value,
    running_mean: Value,
    running_var: Value,
    weight: Value | None = None,
    bias: Value | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: Number = 1e-5,
) -> Value:
    """torch.nn.functional.batch_norm of `input` by running statistics; momentum has no effect, as in PyTorch, and
    training=True is refused.

    `weight` and `bias` are per channel or None, `eps` is added to the variance.
    """
    if training is not False:
        _refuse("batch_norm", training=(training, False))
    return composites.batch_norm(input, running_mean, running_var, weight, bias, eps=eps)


@cached_call
def layer_norm(
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: Number = 1e-5,
) -> Value:
    """torch.nn.functional.layer_norm of `input` over its last axes normalized_shape; `eps` is added to the variance.

    `weight` and `bias` have that shape or are None.
    """
    return composites.layer_norm(input, normalized_shape, weight, bias, eps=eps)


@cached_call
def group_norm(
    input: Value, num_groups: int, weight: Value | None = None, bias: Value | None = None, eps: Number = 1e-5
) -> Value:
    """torch.nn.functional.group_norm of `input` over num_groups groups of channels; `eps` is added to the variance.

    `weight` and `bias` are per channel or None.
    """
    return composites.group_norm(input, num_groups, weight, bias, eps=eps)


@cached_call
def cross_entropy(
    input: Value,
    target: Value,
    weight: Value | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: Any = "mean",
    label_smoothing: float = 0.0,
) -> Value:
    """torch.nn.functional.cross_entropy of scores `input` with integer classes `target`; a label outside 0..C-1 is
    refused, -100 too.

    Refused: weight, size_average, reduce, ignore_index and label_smoothing other than the defaults. `reduction` is
    "mean", "sum" or "none".
    """
    _refuse(
        "cross_entropy",
        weight=(weight, None),
        size_average=(size_average, None),
        ignore_index=(ignore_index, -100),
        reduce=(reduce, None),
        label_smoothing=(label_smoothing, 0.0),
    )
    return composites.cross_entropy(input, target, reduction=reduction)


@cached_call
def mse_loss(
    input: Value, target: Value, size_average: None = None, reduce: None = None, reduction: Any = "mean"
) -> Value:
    """torch.nn.functional.mse_loss: the squared error of input and target by `reduction`; size_average and reduce are
    refused.
    """
    _refuse("mse_loss", size_average=(size_average, None), reduce=(reduce, None))
    return composites.mse_loss(input, target, reduction=reduction)


# --- layout -----------------------------------------------------------------------------------------------------


PADDING_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@cached_call
def pad(input: Value, pad: Sequence[int], mode: str = "constant", value: Number | None = None) -> Value:
    """torch.nn.functional.pad of `input`, every mode: pairs (lo, hi) from the last axis backwards, of `value`;
    ParameterError otherwise.
    """
    if mode not in PADDING_MODES:
        raise ParameterError("pad", f"mode must be one of {', '.join(PADDING_MODES)}; got {mode!r}", rule="P5")
    if len(pad) % 2 or any(n < 0 for n in pad):
        raise ParameterError("pad", f"pad must be pairs of sizes >= 0; got {tuple(pad)}", rule="P5")
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    return composites.pad(input, pairs[::-1], value=0 if value is None else value, mode=PADDING_MODES[mode])


@cached_call
def interpolate(
    input: Value,
    size: Size | None = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Value:
    """torch.nn.functional.interpolate of `input`: nearest, nearest-exact, linear, bilinear, trilinear; by size or by
    factors.

    ParameterError for other modes, and for neither or both of size and scale_factor. `mode` is one of these,
    `align_corners` puts the first and last cells on each other.
    """
    sizes = shape_of(input)[2:]
    if (size is None) == (scale_factor is None):
        raise ParameterError("interpolate", "give size or scale_factor", rule="P5")
    if mode not in MODES or MODES[mode] not in (0, len(sizes)):
        known = ", ".join(MODES)
        raise ParameterError("interpolate", f"mode={mode!r} of {len(sizes)} axes is not one of {known}", rule="P5")
    if align_corners is not None and mode.startswith("nearest"):
        raise ParameterError("interpolate", f"align_corners has no meaning with mode={mode!r}", rule="P5")
    wanted = None if size is None else window.per_axis("interpolate", "size", _tuple(size, len(sizes)), len(sizes))
    scales = None if size is not None else [_factor(f) for f in _tuple(scale_factor, len(sizes))]
    if scales is not None:
        wanted = tuple(math.floor(float(n) * float(f)) for n, f in zip(sizes, scales, strict=True))  # as PyTorch has it
        if mode == "nearest" and len(sizes) > 1:
            _refuse_two_rules(sizes, wanted, scales)
        if not mode.startswith("nearest"):  # PyTorch copies an axis that keeps its size, whatever its factor
            scales = [Fraction(1) if m == n else f for m, n, f in zip(wanted, sizes, scales, strict=True)]
    factors = scales or [Fraction(m, n) for m, n in zip(wanted or (), sizes, strict=True) if n]
    if mode.startswith("nearest") and len(factors) == len(sizes) and all(f.denominator == 1 for f in factors):
        return composites.upsample_nearest(input, [int(f) for f in factors])
    where, how = {"nearest": ("asymmetric", "floor"), "nearest-exact": ("tf_half_pixel_for_nn", "floor")}.get(
        mode, ("align_corners" if align_corners else "half_pixel", "linear")
    )
    return resize(input, wanted, scales=scales, axes=range(2, 2 + len(sizes)), where=where, how=how)


def _refuse_two_rules(sizes: Sequence[int], wanted: Sequence[int], scales: Sequence[Fraction]) -> None:
    """Raise UnsupportedError for a factor that keeps or doubles the cells where PyTorch reads by size in some layouts
    and not in others.

    `sizes` are the input's, `wanted` the output's, `scales` the factors.
    """
    for n, m, f in zip(sizes, wanted, scales, strict=True):
        if m in (n, 2 * n) and any(o * n // m != min(math.floor(o / f), n - 1) for o in range(m)):
            rules = (
                f"cell o // {m // n} for output o in small and in channels-last images, floor(o/{float(f):g}) in others"
            )
            text = f"scale_factor={float(f):g} makes {m} cells of {n}, where PyTorch reads {rules}"
            raise UnsupportedError("interpolate", f"{text}; give size={m}, or the factor {m // n}")


MODES = {"nearest": 0, "nearest-exact": 0, "linear": 1, "bilinear": 2, "trilinear": 3}


def _factor(f: Any) -> Fraction:
    """Return a scale factor f as a Fraction; raise ParameterError unless it is a positive number."""
    if isinstance(f, bool) or not isinstance(f, int | float | Fraction) or not f > 0 or f == float("inf"):
        raise ParameterError("interpolate", f"scale_factor must be positive numbers; got {f!r}", rule="P5")
    return Fraction(f)
