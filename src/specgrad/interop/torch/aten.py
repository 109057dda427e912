"""Converters of PyTorch's operators: one per aten overload. They refuse what they do not honour, and raise ShapeError
where shapes do not fit.

A converter takes by name what it honours of the overload's schema (`self` may be called `input`). What it does not take
must stay at its default, or is refused by name ([P5]); IGNORED_ARGUMENTS have no influence on values.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specgrad.ops import (
    activation,
    composites,
    contract,
    elementwise,
    gather,
    integer_rounding,
    layout,
    max_pool,
)
from specgrad.ops import sorting as order

from ... import functional as F
from ...errors import ParameterError, UnsupportedError
from ...op import REGISTRY, Op, Value, apply, is_literal, shape_of
from ...ops.elementwise import add, div, exp, greater, greater_equal, mul, select, sqrt, sub
from . import indexing, losses, masks, products

Converter = Callable[..., Any]
IGNORED_ARGUMENTS = {"cudnn_enabled", "cudnn_enable", "implicit", "memory_format", "momentum", "non_blocking", "copy"}
IGNORED_ARGUMENTS |= {"device", "pin_memory", "half_to_float"}  # a change of type is refused by the importer


SELU = (1.6732632423543772, 1.0507009873554805, 1)  # alpha, scale and input scale of its elu, as PyTorch writes them


# --- arithmetic -----------------------------------------------------------------------------------------------------


def _scaled_by(x: Value, alpha: Any) -> Value:
    """Return x*alpha, or x itself if alpha is 1."""
    return x if alpha == 1 else x * alpha if is_literal(x) else mul(x, alpha)


def _add(self: Value, other: Value, alpha: Any) -> Value:
    """Convert aten.add: self + alpha*other, cell by cell."""
    return add(self, _scaled_by(other, alpha))


def _sub(self: Value, other: Value, alpha: Any) -> Value:
    """Convert aten.sub: self - alpha*other, cell by cell."""
    return sub(self, _scaled_by(other, alpha))


def _addmm(self: Value, mat1: Value, mat2: Value) -> Value:
    """Convert aten.addmm: self + the matrix product of mat1 and mat2."""
    return add(contract.matmul(mat1, mat2), self)


def _prelu(self: Value, weight: Value) -> Value:
    """Convert aten.prelu: self where it is positive, else times weight, one slope or one per channel (axis 1)."""
    channels = shape_of(weight)[0]
    spread = weight if channels == 1 else layout.reshape(weight, (channels, *(1,) * (len(shape_of(self)) - 2)))
    return select(greater(self, 0), self, mul(self, spread))


def _elu(self: Value, alpha: Any, scale: Any, input_scale: Any) -> Value:
    """Convert aten.elu: scale*x for x > 0, else scale*alpha*(exp(input_scale*x) - 1); the slope at 0 is that of the
    left side.
    """
    left = mul(sub(exp(mul(activation.clamp(self, None, 0), input_scale)), 1), alpha)
    return mul(select(greater(self, 0), self, left), scale)


def _selu(self: Value) -> Value:
    """Convert aten.selu."""
    return _elu(self, *SELU)


def _celu(self: Value, alpha: Any) -> Value:
    """Convert aten.celu: x above 0, alpha*(exp(x/alpha) - 1) below."""
    return _elu(self, alpha, 1, 1 / alpha)


def _hardtanh(self: Value, min_val: Any, max_val: Any) -> Value:
    """Convert aten.hardtanh: a clamp to min_val..max_val whose slope is 0 at both ends."""
    if (min_val, max_val) == (0, 6):
        return activation.relu6(self)
    inside = mul(greater(self, min_val), greater(max_val, self))
    return select(inside, self, activation.clamp(elementwise.stop_gradient(self), min_val, max_val))


def _hardsigmoid(self: Value) -> Value:
    """Convert aten.hardsigmoid: relu6(x + 3) / 6."""
    return div(activation.relu6(add(self, 3)), 6)


def _mish(self: Value) -> Value:
    """Convert aten.mish: x * tanh(softplus(x)), cell by cell."""
    return mul(self, activation.tanh(F.softplus(self)))


# --- layout ---------------------------------------------------------------------------------------------------------


def _axis_number(x: Value, dim: int, extra: int = 0) -> int:
    """Return the axis `dim` of x as a non-negative number; `extra` axes are added to the rank."""
    return dim % (len(shape_of(x)) + extra)


def _transpose(self: Value, dim0: int, dim1: int) -> Value:
    """Convert aten.transpose: axes dim0 and dim1 change places."""
    order = list(range(len(shape_of(self))))
    a, b = _axis_number(self, dim0), _axis_number(self, dim1)
    order[a], order[b] = order[b], order[a]
    return layout.permute(self, order)


def _t(self: Value) -> Value:
    """Convert aten.t: a matrix transposed; a vector or number as it is."""
    return self if len(shape_of(self)) < 2 else _transpose(self, 0, 1)


def _permute(self: Value, dims: Sequence[int]) -> Value:
    """Convert aten.permute: the axes in the order `dims`."""
    return layout.permute(self, [_axis_number(self, d) for d in dims])


def _squeeze(self: Value, dim: Any = None) -> Value:
    """Convert aten.squeeze: axes of one cell left out, of `dim` (an axis, several, or None: all)."""
    shape = shape_of(self)
    dims = range(len(shape)) if dim is None else (dim,) if isinstance(dim, int) else dim
    gone = {_axis_number(self, d) for d in dims}
    return layout.reshape(self, [n for a, n in enumerate(shape) if n != 1 or a not in gone])


def _unsqueeze(self: Value, dim: int) -> Value:
    """Convert aten.unsqueeze: an axis of one cell inserted at `dim`."""
    shape = list(shape_of(self))
    shape.insert(_axis_number(self, dim, 1), 1)
    return layout.reshape(self, shape)


def _expand(self: Value, size: Sequence[int]) -> Value:
    """Convert aten.expand: the value broadcast to `size`; -1 keeps a size."""
    old = shape_of(self)
    padded = (1,) * (len(size) - len(old)) + old
    return layout.broadcast(self, [m if n == -1 else n for n, m in zip(size, padded, strict=True)])


def _slice(self: Value, dim: int, start: int | None, end: int | None, step: int) -> Value:
    """Convert aten.slice: start:end:step along the axis `dim`."""
    return layout.slice_(self, *(None,) * _axis_number(self, dim), slice(start, end, step))


def _select(self: Value, dim: int, index: int) -> Value:
    """Convert aten.select: the cell `index` of the axis `dim`, which is left out."""
    axis = _axis_number(self, dim)
    at = index % shape_of(self)[axis]
    shape = shape_of(self)
    return layout.reshape(_slice(self, axis, at, at + 1, 1), shape[:axis] + shape[axis + 1 :])


def _split_sizes(self: Value, split_sizes: Sequence[int], dim: int) -> tuple[Value, ...]:
    """Convert aten.split_with_sizes: parts of these sizes along the axis `dim`."""
    ends = [sum(split_sizes[: i + 1]) for i in range(len(split_sizes))]
    return tuple(_slice(self, dim, end - n, end, 1) for n, end in zip(split_sizes, ends, strict=True))


def _split(self: Value, split_size: int, dim: int) -> tuple[Value, ...]:
    """Convert aten.split: parts of split_size cells, the last with the rest, along the axis `dim`."""
    n = shape_of(self)[_axis_number(self, dim)]
    return _split_sizes(self, [min(split_size, n - at) for at in range(0, n, split_size)], dim)


def _chunk(self: Value, chunks: int, dim: int) -> tuple[Value, ...]:
    """Convert aten.chunk: at most `chunks` parts of equal size, the last with the rest, along the axis `dim`."""
    return _split(self, math.ceil(shape_of(self)[_axis_number(self, dim)] / chunks), dim)


def _stack(tensors: Sequence[Value], dim: int) -> Value:
    """Convert aten.stack: tensors along a new axis `dim`."""
    return layout.concat([_unsqueeze(x, dim) for x in tensors], _axis_number(tensors[0], dim, 1))


def _cat(tensors: Sequence[Value], dim: int) -> Value:
    """Convert aten.cat: tensors one after the other along the axis `dim`; one of shape (0,) goes with any."""
    held = [x for x in tensors if shape_of(x) != (0,)] or tensors[:1]
    return layout.concat(held, _axis_number(held[0], dim))


def _unbind(self: Value, dim: int) -> tuple[Value, ...]:
    """Convert aten.unbind: every cell of the axis `dim`, which is left out."""
    return tuple(_select(self, dim, i) for i in range(shape_of(self)[_axis_number(self, dim)]))


def _repeat(self: Value, repeats: Sequence[int]) -> Value:
    """Convert aten.repeat: the whole value, repeats[a] times along axis a; new axes come first."""
    x = layout.reshape(self, (1,) * (len(repeats) - len(shape_of(self))) + shape_of(self))
    for axis, n in enumerate(repeats):
        x = layout.concat([x] * n, axis) if n != 1 else x
    return x


def _slice_scatter(self: Value, src: Value, dim: int, start: int | None, end: int | None, step: int) -> Value:
    """Convert aten.slice_scatter: self with `src` in place of start:end along `dim`; ParameterError for another step
    than 1.
    """
    if step != 1:
        raise ParameterError("slice_scatter", f"step={step} is not supported; only 1", rule="P5")
    first, last, _ = slice(start, end).indices(shape_of(self)[_axis_number(self, dim)])
    return _cat([_slice(self, dim, 0, first, 1), src, _slice(self, dim, max(first, last), None, 1)], dim)


def _masked_fill(self: Value, mask: Value, value: Any) -> Value:
    """Convert aten.masked_fill: value where mask holds, else self."""
    return select(mask, value, self)


def _pixel_shuffle(self: Value, upscale_factor: int) -> Value:
    """Convert aten.pixel_shuffle: (..., C*r*r, H, W) to (..., C, H*r, W*r), r being upscale_factor."""
    *lead, c, h, w = shape_of(self)
    r, n = upscale_factor, len(lead)
    parts = layout.reshape(self, (*lead, c // (r * r), r, r, h, w))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return layout.reshape(layout.permute(parts, order), (*lead, c // (r * r), h * r, w * r))


def _pad_converter(mode: str) -> Converter:
    """Return the converter of padding in a mode of specgrad.pad."""
    return lambda self, padding: F.pad(self, padding, mode)


def _embedding(weight: Value, indices: Value, padding_idx: int) -> Value:
    """Convert aten.embedding: the rows of weight at `indices`; the row padding_idx receives no gradient."""
    rows = shape_of(weight)[0]
    if padding_idx >= 0:
        fixed = np.zeros((rows, 1), dtype=np.float32)
        fixed[padding_idx] = 1
        weight = select(fixed, elementwise.stop_gradient(weight), weight)
    return gather.gather(weight, indices, axis=0)


def _gather(self: Value, dim: int, index: Value) -> Value:
    """Convert aten.gather along `dim`: one position per output cell; cells beyond the index's shape are not read."""
    axis, sizes = _axis_number(self, dim), shape_of(index)
    kept = [None if a == axis else slice(0, n) for a, n in enumerate(sizes)]
    return gather.take_along(layout.slice_(self, *kept), index, axis=axis)


def _arg_extreme_converter(find: Converter) -> Converter:
    """Return the converter of argmax or argmin (`find`); over all cells if dim is None."""

    def convert(self: Value, dim: int | None, keepdim: bool) -> Value:
        if dim is not None:
            return find(self, dim, keepdims=keepdim)
        y = find(layout.reshape(self, (math.prod(shape_of(self)),)), 0)
        return layout.reshape(y, (1,) * len(shape_of(self))) if keepdim else y

    return convert


def _extreme_converter(find: Converter) -> Converter:
    """Return the converter of max.dim or min.dim: the value at the first extreme cell, and its index.

    That cell alone receives the gradient.
    """

    def convert(self: Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
        index = find(self, dim, keepdims=True)
        values = gather.take_along(self, index, axis=dim)
        shape = shape_of(values)
        gone = shape if keepdim else (*shape[: _axis_number(self, dim)], *shape[_axis_number(self, dim) + 1 :])
        return layout.reshape(values, gone), layout.reshape(index, gone)

    return convert


def _topk(self: Value, k: int, dim: int, largest: bool) -> tuple[Value, Value]:
    """Convert aten.topk: (values, positions) of the k largest (or smallest) cells along `dim`."""
    return order.topk(self, k, axis=dim, largest=largest)


def _sort(self: Value, dim: int, descending: bool) -> tuple[Value, Value]:
    """Convert aten.sort: (values, positions) of all cells along `dim`, in descending or ascending order."""
    return order.topk(self, shape_of(self)[_axis_number(self, dim)], axis=dim, largest=descending)


def _roll(self: Value, shifts: Sequence[int], dims: Sequence[int]) -> Value:
    """Convert aten.roll: cells moved by `shifts` along `dims`, round the end; along the flattened value without
    `dims`.
    """
    if not dims:
        flat = layout.reshape(self, (math.prod(shape_of(self)),))
        return layout.reshape(gather.roll(flat, shifts[0], axis=0), shape_of(self))
    for shift, dim in zip(shifts, dims, strict=True):
        self = gather.roll(self, shift, axis=dim)
    return self


def _flip(self: Value, dims: Sequence[int]) -> Value:
    """Convert aten.flip: the cells along `dims` in reverse order."""
    for dim in dims:
        n = shape_of(self)[_axis_number(self, dim)]
        self = gather.gather(self, np.arange(n)[::-1].copy(), axis=dim)
    return self


def _fill_converter(value: Any) -> Converter:
    """Return the converter of an operator that fills with the number `value`."""
    return lambda self: layout.fill(self, value)


def _unchanged(self: Value) -> Value:
    """Return the value itself: converter of clone, contiguous, alias."""
    return self


def _dropout(input: Value, p: float, train: bool) -> Value:
    """Convert aten.dropout with rate p in inference: `input` itself; ParameterError if `train`."""
    if train:
        raise ParameterError("dropout", "train=True draws random numbers; call module.eval() first", rule="P5")
    return input


# --- reductions and normalisation -----------------------------------------------------------------------------------


def _reduction_axes(dim: Any) -> Any:
    """Return the axes `dim` of a reduction; None or an empty list means all axes, as in PyTorch."""
    return None if dim is None or dim == [] else dim


def _log_sum_exp(self: Value, dim: Any, keepdim: bool) -> Value:
    """Convert aten.logsumexp over the axes `dim`, shifted by the largest cell; `keepdim` keeps them with size 1."""
    axes = layout.axes_of("logsumexp", _reduction_axes(dim), len(shape_of(self)))
    largest = elementwise.stop_gradient(max_pool.amax(self, axes, keepdims=True))
    y = add(elementwise.log(layout.sum_(exp(sub(self, largest)), axes, keepdims=True)), largest)
    return y if keepdim else layout.reshape(y, [n for a, n in enumerate(shape_of(self)) if a not in axes])


def _instance_norm(
    input: Value, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, eps: float
) -> Value:
    """Convert aten.instance_norm of `input`: by its own statistics, or by running ones; weight and bias per channel.

    ParameterError if running statistics would change; `eps` is added to the variance.
    """
    if not use_input_stats:
        return composites.batch_norm(input, running_mean, running_var, weight, bias, eps=eps)
    if running_mean is not None:
        text = "use_input_stats=True changes the running statistics; call module.eval() first"
        raise ParameterError("instance_norm", text, rule="P5")
    return composites.group_norm(input, shape_of(input)[1], weight, bias, eps=eps)


def _frozen_batch_norm(
    input: Value, weight: Any, bias: Any, running_mean: Any, running_var: Any, eps: float
) -> tuple[Value]:
    """Convert batch normalisation of `input` by running statistics, weight and bias, `eps` added to the variance; a
    tuple of one value.
    """
    return (composites.batch_norm(input, running_mean, running_var, weight, bias, eps=eps),)


def _batch_statistics_norm(input: Value, weight: Any, bias: Any, training: bool, eps: float) -> tuple[Value]:
    """Convert batch normalisation of `input`, (N, C, ...), by the statistics of the batch alone, weight and bias; a
    tuple of one value.

    ParameterError unless `training`: without it there are no statistics.
    """
    if not training:
        raise ParameterError("batch_norm", "training=False without running statistics has no statistics", rule="P5")
    swapped = [1, 0, *range(2, len(shape_of(input)))]
    channels = layout.permute(input, swapped)
    one_item = layout.reshape(channels, (1, *shape_of(channels)))
    y = composites.group_norm(one_item, shape_of(channels)[0], weight, bias, eps=eps)
    return (layout.permute(layout.reshape(y, shape_of(channels)), swapped),)


# --- pooling --------------------------------------------------------------------------------------------------------


def _pool_with_indices(pool: Converter) -> Converter:
    """Return the converter of a max pool, by `pool`, that also returns indices."""

    def convert(self: Value, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Value:
        return pool(self, kernel_size, stride, padding, dilation, ceil_mode, True)

    return convert


def _adaptive_max(rank: int) -> Converter:
    """Return the converter of adaptive_max_pool over `rank` axes, to (maxima, indices): its overload returns both."""
    pool = getattr(F, f"adaptive_max_pool{rank}d")
    return lambda self, output_size: pool(self, output_size, True)


def _max_unpool(rank: int) -> Converter:
    """Return the converter of max_unpool over `rank` axes.

    The schema's output size replaces kernel, stride and padding.
    """
    return lambda self, indices, output_size, stride=None, padding=None: max_pool.max_unpool(
        self, indices, (1,) * rank, output=tuple(output_size)[-rank:]
    )


def _upsample(mode: str) -> Converter:
    """Return the converter of an upsampling in a mode of F.interpolate."""

    def convert(input: Value, output_size: Any, scale_factors: Any) -> Value:
        return F.interpolate(input, output_size, scale_factors, mode)

    def linear(input: Value, output_size: Any, align_corners: bool, scale_factors: Any) -> Value:
        return F.interpolate(input, output_size, scale_factors, mode, align_corners)

    return convert if mode.startswith("nearest") else linear


def _entries_by_rank(name: str, make: Callable[[int], Converter]) -> dict[str, Converter]:
    """Return table entries for one to three spatial axes: `name` with the rank filled in, and make(rank)."""
    return {name.format(rank): make(rank) for rank in (1, 2, 3)}


def _functional(name: str) -> Callable[[int], Converter]:
    """Return a function of the rank: the function of that name in specgrad.functional."""
    return lambda rank: getattr(F, name.format(rank))


# --- the table ------------------------------------------------------------------------------------------------------

COMPARISONS: dict[str, Converter] = {
    f"{name}.{kind}": line
    for kind in ("Scalar", "Tensor")
    for name, line in {
        "gt": lambda self, other: greater(self, other),
        "ge": lambda self, other: greater_equal(self, other),
        "lt": lambda self, other: greater(other, self),
        "le": lambda self, other: greater_equal(other, self),
        "eq": lambda self, other: elementwise.equal(self, other),
        "ne": lambda self, other: elementwise.equal(elementwise.equal(self, other), 0),
    }.items()
}


def named_converters() -> dict[str, Converter]:
    """Return the converters of all registered operators whose records name an overload."""
    return {op.names.aten: _converter_of(op) for op in REGISTRY.values() if op.names.aten}


def _converter_of(op: Op) -> Converter:
    """Return the converter of an operator of one argument: it applies the operator to the value."""
    return lambda self: apply(op, self)


TABLE: dict[str, Converter] = {
    **named_converters(),
    **COMPARISONS,
    # convolution
    **_entries_by_rank("conv{}d.default", _functional("conv{}d")),
    **_entries_by_rank("conv{}d.padding", _functional("conv{}d")),
    "conv_transpose1d.default": F.conv_transpose1d,
    "conv_transpose2d.input": F.conv_transpose2d,
    "conv_transpose3d.input": F.conv_transpose3d,
    # pooling
    **_entries_by_rank("max_pool{}d.default", _functional("max_pool{}d")),
    **_entries_by_rank(
        "max_pool{}d_with_indices.default", lambda rank: _pool_with_indices(_functional("max_pool{}d")(rank))
    ),
    **_entries_by_rank("avg_pool{}d.default", _functional("avg_pool{}d")),
    **_entries_by_rank("adaptive_avg_pool{}d.default", _functional("adaptive_avg_pool{}d")),
    **_entries_by_rank("adaptive_max_pool{}d.default", _adaptive_max),
    "max_unpool2d.default": _max_unpool(2),
    "max_unpool3d.default": _max_unpool(3),
    **_entries_by_rank("upsample_nearest{}d.vec", lambda _: _upsample("nearest")),
    **_entries_by_rank("_upsample_nearest_exact{}d.vec", lambda _: _upsample("nearest-exact")),
    "upsample_linear1d.vec": _upsample("linear"),
    "upsample_bilinear2d.vec": _upsample("bilinear"),
    "upsample_trilinear3d.vec": _upsample("trilinear"),
    # contraction
    "linear.default": F.linear,
    "matmul.default": lambda self, other: contract.matmul(self, other),
    "mm.default": lambda self, mat2: contract.matmul(self, mat2),
    "bmm.default": lambda self, mat2: contract.matmul(self, mat2),
    "addmm.default": _addmm,
    **products.CONVERTERS,
    **losses.CONVERTERS,
    **masks.CONVERTERS,
    # arithmetic
    **{f"{name}.{kind}": line for kind in ("Tensor", "Scalar") for name, line in (("add", _add), ("sub", _sub))},
    **{f"rsub.{kind}": lambda self, other, alpha: _sub(other, self, alpha) for kind in ("Tensor", "Scalar")},
    **{f"mul.{kind}": lambda self, other: mul(self, other) for kind in ("Tensor", "Scalar")},
    **{f"div.{kind}": lambda self, other: div(self, other) for kind in ("Tensor", "Scalar")},
    "rsqrt.default": lambda self: div(1, sqrt(self)),
    "reciprocal.default": lambda self: div(1, self),
    "square.default": lambda self: mul(self, self),
    "trunc.default": integer_rounding.trunc,
    "frac.default": lambda self: integer_rounding.fmod(self, 1),
    **{f"fmod.{kind}": lambda self, other: integer_rounding.fmod(self, other) for kind in ("Tensor", "Scalar")},
    **{f"remainder.{kind}": lambda self, other: integer_rounding.mod(self, other) for kind in ("Tensor", "Scalar")},
    "pow.Tensor_Scalar": lambda self, exponent: elementwise.power(self, exponent),
    "pow.Scalar": lambda self, exponent: composites.exponential(self, exponent),
    "maximum.default": lambda self, other: elementwise.maximum(self, other),
    "minimum.default": lambda self, other: elementwise.minimum(self, other),
    "max.other": lambda self, other: elementwise.maximum(self, other),
    "min.other": lambda self, other: elementwise.minimum(self, other),
    "masked_fill.Scalar": _masked_fill,
    "masked_fill.Tensor": _masked_fill,
    "where.Scalar": lambda condition, self, other: select(condition, self, other),
    "where.ScalarSelf": lambda condition, self, other: select(condition, self, other),
    "where.ScalarOther": lambda condition, self, other: select(condition, self, other),
    "where.self": lambda condition, self, other: select(condition, self, other),
    # activations
    "leaky_relu.default": F.leaky_relu,
    "prelu.default": _prelu,
    "elu.default": _elu,
    "selu.default": _selu,
    "celu.default": _celu,
    "hardtanh.default": _hardtanh,
    "clamp.default": lambda self, min, max: activation.clamp(self, min, max),
    "clamp_min.default": lambda self, min: activation.clamp(self, min),
    "clamp_max.default": lambda self, max: activation.clamp(self, None, max),
    "hardsigmoid.default": _hardsigmoid,
    "mish.default": _mish,
    "gelu.default": F.gelu,
    "softplus.default": F.softplus,
    "softmax.int": F.softmax,
    "_softmax.default": F.softmax,
    "log_softmax.int": F.log_softmax,
    "_log_softmax.default": F.log_softmax,
    # normalisation
    "batch_norm.default": F.batch_norm,
    "_native_batch_norm_legit_no_training.default": _frozen_batch_norm,
    "_native_batch_norm_legit.no_stats": _batch_statistics_norm,
    "layer_norm.default": F.layer_norm,
    "group_norm.default": F.group_norm,
    "instance_norm.default": _instance_norm,
    # reductions
    "mean.default": lambda self: elementwise.mean(self),
    "mean.dim": lambda self, dim, keepdim: elementwise.mean(self, _reduction_axes(dim), keepdims=keepdim),
    "sum.default": lambda self: layout.sum_(self),
    "sum.dim_IntList": lambda self, dim, keepdim: layout.sum_(self, _reduction_axes(dim), keepdims=keepdim),
    "argmax.default": _arg_extreme_converter(order.argmax),
    "argmin.default": _arg_extreme_converter(order.argmin),
    "max.dim": _extreme_converter(order.argmax),
    "min.dim": _extreme_converter(order.argmin),
    "topk.default": _topk,
    "sort.default": _sort,
    "cumprod.default": lambda self, dim: order.cumprod(self, dim),
    "prod.default": lambda self: order.prod(self),
    "prod.dim_int": lambda self, dim, keepdim: order.prod(self, dim, keepdims=keepdim),
    "cumsum.default": lambda self, dim: order.cumsum(self, dim),
    "logsumexp.default": _log_sum_exp,
    "amin.default": lambda self, dim, keepdim: max_pool.amin(self, _reduction_axes(dim), keepdims=keepdim),
    "max.default": lambda self: max_pool.amax(self),
    "min.default": lambda self: max_pool.amin(self),
    "amax.default": lambda self, dim, keepdim: max_pool.amax(self, _reduction_axes(dim), keepdims=keepdim),
    # layout
    "view.default": lambda self, size: layout.reshape(self, size),
    "_unsafe_view.default": lambda self, size: layout.reshape(self, size),
    "reshape.default": lambda self, shape: layout.reshape(self, shape),
    "flatten.using_ints": lambda self, start_dim, end_dim: layout.flatten(self, start_dim, end_dim),
    "permute.default": _permute,
    "transpose.int": _transpose,
    "t.default": _t,
    "squeeze.default": _squeeze,
    "squeeze.dim": _squeeze,
    "squeeze.dims": _squeeze,
    "unsqueeze.default": _unsqueeze,
    "expand.default": _expand,
    "slice.Tensor": _slice,
    "select.int": _select,
    "split.Tensor": _split,
    "split_with_sizes.default": _split_sizes,
    "chunk.default": _chunk,
    "unbind.int": _unbind,
    "slice_scatter.default": _slice_scatter,
    "zero.default": _fill_converter(0),
    "repeat.default": _repeat,
    "cat.default": _cat,
    "stack.default": _stack,
    "pad.default": F.pad,
    "constant_pad_nd.default": F.pad,
    **_entries_by_rank("reflection_pad{}d.default", lambda _: _pad_converter("reflect")),
    **_entries_by_rank("replication_pad{}d.default", lambda _: _pad_converter("replicate")),
    "embedding.default": _embedding,
    "index_select.default": lambda self, dim, index: gather.gather(self, index, axis=dim),
    "index.Tensor": indexing.index,
    "gather.default": _gather,
    "roll.default": _roll,
    "flip.default": _flip,
    "pixel_shuffle.default": _pixel_shuffle,
    "zeros_like.default": _fill_converter(0),
    "ones_like.default": _fill_converter(1),
    "full_like.default": lambda self, fill_value: layout.fill(self, fill_value),
    # no computation
    "clone.default": _unchanged,
    "contiguous.default": _unchanged,
    "alias.default": _unchanged,
    "lift_fresh_copy.default": _unchanged,
    "_to_copy.default": lambda self, dtype: self,  # the importer has one floating type for everything
    "to.dtype": lambda self, dtype: self,
    "detach_.default": elementwise.stop_gradient,
    "dropout.default": _dropout,
    "feature_dropout.default": _dropout,
    "native_dropout.default": _dropout,
    "_assert_tensor_metadata.default": lambda: None,  # a check that PyTorch has already made
}


# --- calling a line -------------------------------------------------------------------------------------------------


def arguments(schema: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return every argument of the schema by name; those left out have the schema's default."""
    named = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
    return {a.name: named.get(a.name, a.default_value if a.has_default_value() else None) for a in schema.arguments}


def converter_for(name: str) -> Converter | None:
    """Return the converter of the overload `name`, from the table or by a record that was registered later; None:
    unknown.
    """
    return TABLE.get(name) or named_converters().get(name)


def call(name: str, schema: Any, args: Sequence[Any], kwargs: dict[str, Any], dtype: Any = None) -> Any:
    """Return the value of one aten call of the overload `name`, whose PyTorch schema is given, in our operators.

    UnsupportedError if it has no converter, ParameterError if an unsupported argument is not at its default. `dtype` is
    the type that all floats of the program have: a `dtype` argument may ask for it.
    """
    converter = converter_for(name)
    if converter is None:
        raise UnsupportedError("from_torch", f"aten.{name} has no line in the table of PyTorch operators")
    parameters = inspect.signature(converter).parameters
    given = arguments(schema, args, kwargs)
    first = next(iter(parameters), None)
    if "self" in given and "self" not in parameters and first is not None:
        given[first] = given.pop("self")  # `input` or `x` in the line
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    for key in given.keys() - parameters.keys() - IGNORED_ARGUMENTS if parameters else ():
        if given[key] != defaults.get(key) and not (key == "dtype" and given[key] == dtype):
            text = f"{key}={given[key]!r} is not supported; only {defaults.get(key)!r}"
            raise ParameterError(f"aten.{name}", text, rule="P5")
    return converter(**{key: value for key, value in given.items() if key in parameters})
