"""The JAX engine: the table of lowerings, one per operator.

Linear and structural lowerings rely on JAX's own differentiation, which for a linear map can only be that map; so does
gelu, smooth everywhere, for XLA takes one exp for its slope and its value then. The others carry the rules of their
records (`ours`, `linear`), or rules of their own that say the same in fewer steps (div, amax); max_pool carries the
route of its first winner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from specgrad.errors import ShapeError
from specgrad.op import Op, Params
from specgrad.ops.resize import axes_resized
from specgrad.ops.sorting import running_sum, tap_cells
from specgrad.scalar import Number
from specgrad.window import Resized, Shape, Window

from ..base import Engine, Kernel, Lowering, function_named, named_lowerings
from . import conv as jax_conv
from . import pool as jax_pool
from .custom_rules import LinearPlaceholder, as_arrays, linear, ours
from .pool import rounded_once
from .reductions import largest

Array = jax.Array


def _plain_lowering(function: Callable[..., Array]) -> Lowering:
    """Return a lowering to function(*arrays, **params) of JAX, whose derivative is JAX's own."""
    return lambda *_, **params: partial(function, **params) if params else function


# --- elementwise ------------------------------------------------------------------------------------------------


def _lower_rounded_once(function: Callable[..., Array]) -> Lowering:
    """Return a lowering that computes shorter floats in float32: for sums and functions with summing transposes.

    XLA adds bfloat16 in bfloat16, where 256 + 1 = 256.
    """
    return _plain_lowering(rounded_once(function))


def _comparison(test: Callable[[Any, Any], Array]) -> Lowering:
    """Return a lowering of the comparison `test` whose result is 0 or 1 in the type of its arguments."""
    return _plain_lowering(lambda a, b: test(a, b).astype(jnp.result_type(a, b)))


def _select(c: Array, a: Any, b: Any) -> Array:
    """Return a where c is not 0, else b."""
    return jnp.where(c != 0, a, b).astype(jnp.result_type(c, a, b))


def _power(x: Array, *, exponent: Number) -> Array:
    """Return x**exponent, integer and half-integer exponents by products and square roots."""
    if exponent == int(exponent):
        return lax.integer_pow(x, int(exponent))
    if 2 * exponent == int(2 * exponent):
        return lax.integer_pow(jnp.sqrt(x), int(2 * exponent))
    return jnp.power(x, float(exponent))


def _clamp(x: Array, *, low: Number | None, high: Number | None) -> Array:
    """Return min(max(x, low), high); an end that is None does not limit."""
    y = x if low is None else jnp.maximum(x, float(low))
    return y if high is None else jnp.minimum(y, float(high))


@rounded_once
def _sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)) without positive exponents: no overflow, and the lower tail keeps its digits."""
    e = jnp.exp(-jnp.abs(x))
    return jnp.where(x >= 0, 1, e) / (1 + e)


@rounded_once
def _softplus(x: Array, *, beta: Number) -> Array:
    """Return log(1 + exp(beta*x)) / beta as max(x, 0) + log1p(exp(-abs(beta*x))) / beta.

    max(z, 0) / beta is written max(x, 0): XLA multiplies by 1/beta, and flushes that of a large beta to 0.
    """
    return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x * float(beta)))) / float(beta)


@jax.custom_jvp
def quotient(a: Array, b: Array) -> Array:
    """Return a / b, broadcast as NumPy does, with a tangent that divides once."""
    return jnp.divide(a, b)


def _quotient_jvp(args: Sequence[Array], dargs: Sequence[Any]) -> tuple[Array, Array]:
    """Return y = a / b of `args` and its tangent (da - db*y) / b, `dargs` being (da, db)."""
    y, (da, db) = quotient(*args), dargs
    rise = da if isinstance(db, SymbolicZero) else -db * y if isinstance(da, SymbolicZero) else da - db * y
    if isinstance(rise, SymbolicZero):
        return y, jnp.zeros_like(y)
    return y, jnp.broadcast_to(quotient(rise, args[1]), y.shape)


quotient.defjvp(_quotient_jvp, symbolic_zeros=True)


def _quantize(x: Array, s: Array, z: Array, *, low: int | None, high: int | None) -> Array:
    """Return clamp(round(x / s) + z, low, high); None means no limit."""
    q = jnp.round(jnp.divide(x, s)) + z
    q = q if low is None else jnp.maximum(q, low)
    return q if high is None else jnp.minimum(q, high)


@rounded_once
def _normal_pdf(x: Array) -> Array:
    """Return the density of the standard normal distribution at each cell of x."""
    return jnp.exp(-(x * x) / 2) / math.sqrt(2 * math.pi)


@rounded_once
def _normal_cdf(x: Array) -> Array:
    """Return the standard normal distribution function by erfc: its lower tail is not a difference."""
    return lax.erfc(-x / math.sqrt(2)) / 2


# --- positions --------------------------------------------------------------------------------------------------


def _as_planes(x: Array, rank: int) -> Array:
    """Return x reshaped to (planes, cells): the last `rank` axes as one, all others as another."""
    lead = x.shape[: x.ndim - rank]
    return x.reshape((math.prod(lead), math.prod(x.shape[x.ndim - rank :])))


def _readable_positions(name: str, where: Array, cells: int, empty: bool) -> tuple[Array, Any]:
    """Return the positions `where` brought inside 0..cells-1 and a factor: 1, or NaN where one is outside under jit.

    -1 is allowed if `empty`. Raise ShapeError in the name of the operator `name` for a known position outside.
    """
    low = -1 if empty else 0
    if not isinstance(where, jax.core.Tracer) and where.size:
        known = np.asarray(where)  # inside jit, JAX's own minimum of a constant would be traced
        least, most = int(known.min()), int(known.max())
        if least < low or most >= cells:
            raise ShapeError(name, f"indices must lie in {low}..{cells - 1}; got {least}..{most}")
        return jnp.maximum(where, 0) if empty else where, 1
    outside = (where < low) | (where >= cells)
    return jnp.clip(where, 0, cells - 1), jnp.where(outside, math.nan, 1)


def _take(x: Array, i: Array, *, rank: int, empty: bool) -> Array:
    """Return the cells of x at flat positions i of its last `rank` axes, in the shape of i; -1 gives 0 if `empty`.

    ShapeError for a known position outside.
    """
    cells, where = _as_planes(x, rank), _as_planes(i, rank)
    if not cells.shape[1]:
        return jnp.zeros(i.shape, x.dtype)
    at, factor = _readable_positions("take", where, cells.shape[1], empty)
    y = (jnp.take_along_axis(cells, at, axis=1) * factor).astype(x.dtype)
    return (jnp.where(where == -1, jnp.zeros((), x.dtype), y) if empty else y).reshape(i.shape)


def _row_numbers(where: Array) -> Array:
    """Return the row number of every cell of the matrix of positions `where`."""
    return lax.broadcasted_iota(where.dtype, where.shape, 0)


def _minus_one_outside(where: Array, cells: int) -> Array:
    """Return the positions `where` with -1 replaced by `cells`, which is outside; JAX would count -1 from the end."""
    return jnp.where(where < 0, cells, where)


def _put(gy: Array, i: Array, *, size: Shape, empty: bool) -> Array:
    """Scatter-add gy at flat positions i into zeros of `size`, the adjoint of `_take`; -1 is dropped if `empty`.

    ShapeError for a known position outside.
    """
    values, where, cells = _as_planes(gy, len(size)), _as_planes(i, len(size)), math.prod(size)
    at, factor = _readable_positions("put", where, cells, empty)
    at, values = jnp.where(where == -1, cells, at) if empty else at, (values * factor).astype(gy.dtype)
    flat = jnp.zeros((where.shape[0], cells), gy.dtype).at[_row_numbers(where), at].add(values, mode="drop")
    return flat.reshape((*gy.shape[: gy.ndim - len(size)], *size))


MAX_RUNS = 6  # slices instead of a gather: benchmarks/law.py, rows roll and pad reflect


def _contiguous_runs(i: Array, cells: int) -> list[tuple[int, int]] | None:
    """Return known positions `i` on an axis of `cells` as (first, count) of runs of neighbours; None if traced, outside
    or more than MAX_RUNS.
    """
    if isinstance(i, jax.core.Tracer) or i.ndim != 1 or not i.size:
        return None
    at = np.asarray(i)
    at = np.where(at < 0, at + cells, at)
    starts = [0, *(np.flatnonzero(np.diff(at) != 1) + 1).tolist(), len(at)]
    if len(starts) - 1 > MAX_RUNS or at.min() < 0 or at.max() >= cells:
        return None
    return [(int(at[a]), b - a) for a, b in pairwise(starts)]


def _gather(x: Array, i: Array, *, axis: int) -> Any:
    """Gather x along `axis` by an index i of any shape; negative positions count from the end.

    ShapeError for a known position outside.
    """
    if not x.shape[axis]:
        return jnp.zeros(x.shape[:axis] + i.shape + x.shape[axis + 1 :], x.dtype)
    runs = _contiguous_runs(i, x.shape[axis])
    if runs is not None:  # whose transpose is a sum of padded slices, where that of a gather sets single cells
        return lax.concatenate([lax.slice_in_dim(x, p, p + count, axis=axis) for p, count in runs], axis)
    at, factor = _readable_positions("gather", _from_axis_start(i, x.shape[axis]), x.shape[axis], False)
    return (jnp.take(x, at, axis=axis) * _with_trailing_axes(factor, x.ndim - axis - 1)).astype(x.dtype)


def _scatter(gy: Array, i: Array, *, axis: int, size: int) -> Array:
    """Return gy scatter-added along `axis` at index i into `size` cells, the adjoint of `_gather`.

    ShapeError for a known position outside.
    """
    runs = _contiguous_runs(i, size)
    if runs is not None:
        parts = jnp.split(gy, np.cumsum([count for _, count in runs])[:-1], axis=axis)
        placed = zip(parts, runs, strict=True)
        return reduce(jnp.add, [jax_pool.pad_axis(v, axis, p, size - p - count) for v, (p, count) in placed])
    at, factor = _readable_positions("scatter", _from_axis_start(i, size), size, False)
    lead, tail = gy.shape[:axis], gy.shape[axis + i.ndim :]
    values = (gy * _with_trailing_axes(factor, len(tail))).astype(gy.dtype).reshape((*lead, i.size, *tail))
    return jnp.zeros((*lead, size, *tail), gy.dtype).at[(*[slice(None)] * axis, at.reshape(-1))].add(values)


def _from_axis_start(i: Array, cells: int) -> Array:
    """Return positions i, negative ones from the end, counted from the start of an axis of `cells` cells."""
    return jnp.where(i < 0, i + cells, i)


def _with_trailing_axes(factor: Any, axes: int) -> Any:
    """Return a factor per position with `axes` axes of size 1 behind it; the number 1 unchanged."""
    return factor if isinstance(factor, int) else factor.reshape(factor.shape + (1,) * axes)


def _resize_taps(x: Array, axis: int, line: Resized) -> list[tuple[Any, Any]]:
    """Return, for each tap of the resized axis `line`, the cells read of x along `axis` and their weights."""
    if line.how != "linear":
        return [(line.cells[0], 1)]
    shape = (line.out, *(1,) * (x.ndim - axis - 1))
    return [(i, jnp.asarray(w, x.dtype).reshape(shape)) for i, w in zip(line.cells, line.weights, strict=True)]


def _resize(x: Array, **params: Any) -> Array:
    """Return x resized by the parameters of the operator resize, one axis after the other."""
    for axis, line in axes_resized([x.shape[a] for a in params["axes"]], **params):
        first, *others = (jnp.take(x, i, axis=axis) * w for i, w in _resize_taps(x, axis, line))
        x = first + others[0] if others else first
    return x


MAX_READERS_GATHERED = 8  # of one cell: takes instead of scatters; benchmarks/law.py, row resize


def _reader_table(line: Resized) -> tuple[Any, Any, Any]:
    """Return three arrays (rounds, cells) of the resized axis `line`: an output that reads the cell, its weight, and
    whether there is one.
    """
    linear_taps = line.how == "linear"
    cells = np.concatenate(line.cells if linear_taps else line.cells[:1])
    weights = np.concatenate(line.weights) if linear_taps else np.ones(line.out)
    order, counts = np.argsort(cells, kind="stable"), np.bincount(cells, minlength=line.n)
    rounds = np.arange(len(cells)) - np.repeat(np.cumsum(counts) - counts, counts)
    outs, shares, there = (np.zeros((counts.max(), line.n), t) for t in (np.int32, np.float64, np.bool_))
    at = rounds, cells[order]
    outs[at], shares[at], there[at] = order % line.out, weights[order], True
    return outs, shares, there


def _spread_axis(gy: Array, axis: int, line: Resized) -> Array:
    """Return the adjoint of resizing along `axis`, by `line`, applied to gy: each cell gathers from its readers, or
    outputs scatter.

    Cells gather if each has at most MAX_READERS_GATHERED readers.
    """
    readers = _reader_table(line)
    if len(readers[0]) <= MAX_READERS_GATHERED:
        beside = (line.n, *(1,) * (gy.ndim - axis - 1))
        terms = [
            jnp.where(there.reshape(beside), jnp.take(gy, i, axis=axis) * jnp.asarray(w.reshape(beside), gy.dtype), 0)
            for i, w, there in zip(*readers, strict=True)
        ]
        return reduce(jnp.add, terms)
    y = jnp.zeros((*gy.shape[:axis], line.n, *gy.shape[axis + 1 :]), gy.dtype)
    for i, w in _resize_taps(gy, axis, line):
        y = y.at[(*[slice(None)] * axis, i)].add(gy * w)
    return y


def _resize_spread(gy: Array, *, cells: Shape, **params: Any) -> Array:
    """Return the adjoint of `_resize` for inputs of `cells` cells, one axis after the other."""
    for axis, line in reversed(axes_resized(cells, **params)):
        gy = _spread_axis(gy, axis, line)
    return gy


def _sorted_positions(x: Array, axis: int, k: int, largest: bool) -> Array:
    """Return positions of the first k cells in order along `axis`, ties by position; NaN is the largest.

    JAX's own search for the largest takes a fiftieth of a sort. Its order is that of bits, in which -0 is less than 0
    and NaNs differ: both are made one first.
    """
    if not largest:
        return lax.slice_in_dim(jnp.lexsort((x, jnp.isnan(x)), axis=axis), 0, k, axis=axis)
    if k == 1:
        return jnp.argmax(x, axis=axis, keepdims=True)
    one_zero = jnp.where(x == 0, jnp.zeros((), x.dtype), x)
    one_nan = jnp.where(jnp.isnan(x), jnp.asarray(math.nan, x.dtype), one_zero)
    return jnp.moveaxis(lax.top_k(jnp.moveaxis(one_nan, axis, -1), k)[1], -1, axis)


def _top_index(x: Array, *, axis: int, k: int, largest: bool, last: bool) -> Array:
    """Return positions of the k largest (or smallest) cells along `axis`; of equal ones the first, or the last."""
    order = _sorted_positions(lax.stop_gradient(jnp.flip(x, axis) if last else x), axis, k, largest)
    return x.shape[axis] - 1 - order if last else order


def _top(x: Array, *, axis: int, k: int, largest: bool) -> Array:
    """Return the k largest (or smallest) cells along `axis`, sorted."""
    return jnp.take_along_axis(x, _top_index(x, axis=axis, k=k, largest=largest, last=False), axis=axis)


def _median_index(x: Array, *, window: Window) -> Array:
    """Return the first tap of every window that equals its median, as a flat position, -1 for none."""
    cells, rank = tap_cells(window)
    at, middle = (jnp.asarray(a.reshape(len(cells) if a is cells else 1, -1), jnp.int32) for a in (cells, rank))
    flat = lax.stop_gradient(_as_planes(x, window.rank))
    values = jnp.where(at < 0, jnp.asarray(math.inf, x.dtype), jnp.take(flat, jnp.maximum(at, 0), axis=1))
    median = jnp.take_along_axis(jnp.sort(values, axis=1), middle[None], axis=1)
    lost = jnp.isnan(values)
    hit = (at >= 0) & jnp.where(lost.any(axis=1, keepdims=True), lost, values == median)
    first = jnp.argmax(hit, axis=1, keepdims=True)
    return jnp.take_along_axis(at[None], first, axis=1).reshape(x.shape[: x.ndim - window.rank] + window.out)


def _median_pool(x: Array, *, window: Window) -> Array:
    """Return the median cell of each window of x: the cells at median_index."""
    return _take(x, _median_index(x, window=window), rank=window.rank, empty=window.has_empty)


def _cumsum(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Any:
    """Return the cumulative sum of x along `axis`, without the cell itself if `exclusive`, from the end if
    `reverse`.
    """
    add = partial(jnp.cumsum, dtype=x.dtype)
    return running_sum(x, axis, exclusive, reverse, add, jnp.flip, jnp.concatenate, jnp.zeros_like)


def _cumprod(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Any:
    """Return the product of the cells of x so far along `axis`, from the end if `reverse`, without its own cell if
    `exclusive`.
    """
    multiply = partial(jnp.cumprod, dtype=x.dtype)
    return running_sum(x, axis, exclusive, reverse, multiply, jnp.flip, jnp.concatenate, jnp.ones_like)


def _last_writer(i: Array, *, rank: int, cells: int) -> Array:
    """Return positions `i` in planes of `cells`, the last `rank` axes, with all but the last of equal ones replaced by
    -1.

    ShapeError for a known position outside.
    """
    where = _as_planes(i, rank)
    _readable_positions("last_writer", where, cells, True)
    position = lax.broadcasted_iota(where.dtype, where.shape, 1)
    target = _minus_one_outside(where, cells)
    last = jnp.full((where.shape[0], cells + 1), -1, where.dtype).at[_row_numbers(where), target].max(position)
    keeps = (where >= 0) & (jnp.take_along_axis(last, target, axis=1) == position)
    return jnp.where(keeps, where, -1).reshape(i.shape)


def _contract(x: Array, z: Array, *, spec: str) -> Array:
    """Return the einsum `spec` of two arrays x and z in full precision."""
    return jnp.einsum(spec, x, z, precision=lax.Precision.HIGHEST)


def _pad(x: Array, *, widths: Sequence[tuple[int, int, int]]) -> Array:
    """Return x with `widths`, (low, high, gap) zeros per axis: before, behind and between cells; negative ones remove
    cells.
    """
    return lax.pad(x, jnp.zeros((), x.dtype), widths)


def _smooth_max_pool(x: Shape, **params: Any) -> Kernel:
    """Return the kernel of smooth_max_pool, rounded outside of its derivatives: exp(beta*(x - y)) needs the unrounded
    y.
    """
    return rounded_once(ours("smooth_max_pool", jax_pool.smooth_max)(x, **params))


# --- the table --------------------------------------------------------------------------------------------------


def _lower_named(op: Op) -> Lowering | None:
    """Return the lowering to JAX's own function with the record's rules; None without a name, or with parameters."""
    plain = op.names.jax and not op.param_names
    return ours(op.name, function_named(op.names.jax, jax=jax, jnp=jnp)) if plain else None


TABLE: dict[str, Lowering] = {
    **named_lowerings(_lower_named),
    # layout
    "fill": _plain_lowering(lambda x, *, value: jnp.full_like(x, float(value))),
    "reshape": _plain_lowering(lambda x, *, shape: lax.reshape(x, shape)),
    "permute": _plain_lowering(lambda x, *, order: lax.transpose(x, order)),
    "slice": _plain_lowering(lambda x, *, ranges: lax.slice(x, *zip(*ranges, strict=True)) if ranges else x),
    "pad": _plain_lowering(_pad),
    "concat": _plain_lowering(lambda *xs, axis: lax.concatenate(xs, axis)),
    "broadcast": _lower_rounded_once(lambda x, *, shape: jnp.broadcast_to(x, shape)),
    "sum": _plain_lowering(lambda x, *, axes: jnp.sum(x, axis=axes)),
    # arithmetic
    "add": _plain_lowering(jnp.add),
    "sub": _plain_lowering(jnp.subtract),
    "mul": _plain_lowering(jnp.multiply),
    "div": _plain_lowering(lambda a, b: quotient(*as_arrays((a, b)))),
    "neg": _plain_lowering(jnp.negative),
    "greater": _comparison(jnp.greater),
    "greater_equal": _comparison(jnp.greater_equal),
    "less": _comparison(jnp.less),
    "equal": _comparison(jnp.equal),
    "select": _plain_lowering(_select),
    "maximum": ours("maximum", jnp.maximum),
    "minimum": ours("minimum", jnp.minimum),
    "stop_gradient": _plain_lowering(lax.stop_gradient),
    "quantize": ours("quantize", _quantize),
    "cast": _plain_lowering(lambda x, *, dtype: x),
    "fmod": ours("fmod", jnp.fmod),
    "power": ours("power", _power),
    "root": ours("root", _power),
    # activations
    "relu": ours("relu", lambda x: jnp.maximum(x, 0)),
    "leaky_relu": ours("leaky_relu", lambda x, *, slope: jnp.where(x > 0, x, x * float(slope))),
    "relu6": ours("relu6", lambda x: jnp.minimum(jnp.maximum(x, 0), 6)),
    "clamp": ours("clamp", _clamp),
    "hardswish": ours("hardswish", lambda x: x * jnp.minimum(jnp.maximum(x + 3, 0), 6) / 6),
    "sigmoid": ours("sigmoid", _sigmoid),
    "silu": ours("silu", rounded_once(lambda x: x * _sigmoid(x))),
    "softplus": ours("softplus", _softplus),
    "normal_pdf": ours("normal_pdf", _normal_pdf),
    "normal_cdf": ours("normal_cdf", _normal_cdf),
    "gelu": _plain_lowering(rounded_once(lambda x: x * _normal_cdf(x))),
    # contraction and convolution
    "contract": _plain_lowering(_contract),
    "conv": linear("conv", jax_conv.conv, leading=(0,)),
    "conv_transpose": linear("conv_transpose", jax_conv.conv_transpose, leading=(0,)),
    "conv_weight": linear("conv_weight", jax_conv.conv_weight, leading=()),
    # pooling
    "avg_pool": linear("avg_pool", jax_pool.avg_pool, leading=(0,)),
    "avg_spread": linear("avg_spread", jax_pool.avg_spread, leading=(0,)),
    "max_pool": lambda x, *, window: partial(jax_pool.max_pool, window=window),
    "winner": lambda x, *, window: partial(jax_pool.winner, window=window),
    "take": _lower_rounded_once(_take),
    "put": _lower_rounded_once(_put),
    "last_writer": _plain_lowering(_last_writer),
    "median_pool": ours("median_pool", _median_pool),
    "median_index": _plain_lowering(_median_index),
    "top": ours("top", _top),
    "top_index": _plain_lowering(_top_index),
    "cumsum": _lower_rounded_once(_cumsum),
    "cumprod": _lower_rounded_once(_cumprod),
    "resize": linear("resize", rounded_once(_resize), leading=()),
    "resize_spread": linear("resize_spread", rounded_once(_resize_spread), leading=()),
    "gather": _lower_rounded_once(_gather),
    "scatter": _lower_rounded_once(_scatter),
    "amax": _plain_lowering(largest),
    "smooth_max_pool": _smooth_max_pool,
    "smooth_pull": linear("smooth_pull", jax_pool.smooth_pull, leading=(0, 1, 2)),
    "smooth_push": linear("smooth_push", jax_pool.smooth_push, leading=(0, 1, 2)),
}


class JaxEngine(Engine):
    """The JAX engine, which passes placeholders of unknown linear arguments through."""

    def run(self, op: Op, args: Sequence[Any], params: Params) -> Any:
        """Apply an operator to JAX arrays; a tracer of linear placeholders is handed to their own rule."""
        if any(type(a) is LinearPlaceholder for a in args):
            return LinearPlaceholder.__specgrad_apply__(op, args, params)
        return super().run(op, args, params)


INTEGERS = frozenset(np.dtype(t) for t in ("bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64))))
NOT_NUMBERS = INTEGERS | {np.dtype("complex64"), np.dtype("complex128")}


def _compile_time_array(i: np.ndarray[Any, Any], x: Array) -> Array:
    """Return known positions i as an array that stays a constant inside jit."""
    with jax.ensure_compile_time_eval():
        return jnp.asarray(i)


ENGINE = JaxEngine("jax", jax.Array, TABLE, NOT_NUMBERS, _compile_time_array, _lower_named)
run = ENGINE.run
