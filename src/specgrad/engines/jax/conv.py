"""Convolution on JAX: the trilinear family over one function, `correlate`, with the lowerings that XLA's CPU lacks.

    conv            a correlation
    conv_transpose  for every residue of the stride a correlation of stride 1 with some of the taps; then interleaved
    conv_weight     a correlation that sums over the batch, or one matrix product per tap

XLA on CPU is quick for 2-D convolutions with one group and no dilation of the input, and slow by one or two orders
of magnitude elsewhere. `FASTER` lists what is rewritten there; on other devices XLA's own operator is used.

`how` says for each axis by which stride and dilation, and after which padding, windows are read (`AxisStep`).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from specgrad.window.tap_schedule import AxisStep, Phase, phase, steps

from ...window import Shape, Strided, Window
from .mesh import adjoint, is_split, replicated_sharding, struct_like
from .pool import on_cpu, pad_axis, rounded_once

Array = jax.Array
EXACT = lax.Precision.HIGHEST  # no TF32 or bfloat16 operands behind the caller's back


def _padded(x: Array, how: Sequence[AxisStep]) -> Array:
    """Return x with its last axes padded before and after, each as its step in `how` says."""
    for i, step in enumerate(how):
        x = pad_axis(x, i - len(how), step.before, step.after)
    return x


def _materialised(x: Array, how: Sequence[AxisStep]) -> Array:
    """Return x with the padding of `how`, in memory: XLA would recompute both in every slice that reads them."""
    written: Array = lax.optimization_barrier(_padded(x, how))
    return written


def _unpadded(how: Sequence[AxisStep]) -> list[AxisStep]:
    """Return the steps `how` with padding 0, for an array that is padded already."""
    return [AxisStep(s.stride, s.dilation, 0, 0) for s in how]


def _output_sizes(x: Shape, kernel: Shape, how: Sequence[AxisStep]) -> Shape:
    """Return the output sizes for an input of shape x, whose last axes are spatial, a kernel and the steps `how` per
    axis.
    """
    return tuple(s.out(n, k) for n, k, s in zip(x[len(x) - len(how) :], kernel, how, strict=True))


def _taps(x: Array, kernel: Shape, how: Sequence[AxisStep]) -> list[tuple[Shape, Array]]:
    """Return every tap of the kernel with what all outputs read of x with it; `how` has stride, dilation and padding
    per axis.
    """
    outs = _output_sizes(x.shape, kernel, how)
    x = _padded(x, how)
    lead = x.ndim - len(how)

    def read(t: Shape) -> Array:
        slices = [s.slice(p, n) for p, n, s in zip(t, outs, how, strict=True)]
        starts, stops, strides = zip(*slices, strict=True)
        return lax.slice(x, (*(0,) * lead, *starts), (*x.shape[:lead], *stops), (*(1,) * lead, *strides))

    return [(t, read(t)) for t in itertools.product(*(range(k) for k in kernel))]


def _xla_convolution(
    x: Array, w: Array, how: Sequence[AxisStep], groups: int, spacing: Shape | None = None, out_sharding: Any = None
) -> Array:
    """Return XLA's own convolution of x with w; `spacing` dilates x, `how` has stride, dilation and padding per axis.

    `out_sharding` is the sharding of the result, None: XLA's choice.
    """
    return lax.conv_general_dilated(
        x,
        w,
        window_strides=[s.stride for s in how],
        padding=[(s.before, s.after) for s in how],
        lhs_dilation=spacing,
        rhs_dilation=[s.dilation for s in how],
        feature_group_count=groups,
        precision=EXACT,
        **({} if out_sharding is None else {"out_sharding": out_sharding}),
    )


@rounded_once
def _by_shifted_slices(x: Array, w: Array, how: Sequence[AxisStep], groups: int) -> Array:
    """Convolve x with w by a sum of shifted slices, each times its weight: for few inputs per output.

    `how` has stride, dilation and padding per axis.
    """
    n, each, rank = x.shape[0], w.shape[1], len(how)
    x, how = _materialised(x, how), _unpadded(how)
    weights = w.reshape((groups, w.shape[0] // groups, *w.shape[1:], *(1,) * rank))

    def term(v: Array, t: Shape, i: int) -> Array:
        read = v.reshape((n, groups, each, *v.shape[2:]))[:, :, i]
        return read[:, :, None] * weights[(slice(None), slice(None), i, *t)]

    terms = [term(v, t, i) for t, v in _taps(x, w.shape[2:], how) for i in range(each)]
    y = functools.reduce(jnp.add, terms)
    return y.reshape((n, w.shape[0], *y.shape[3:]))


def _per_group(x: Array, w: Array, how: Sequence[AxisStep], groups: int) -> Array:
    """Convolve each group of x with its part of w separately, and concatenate; `how` has stride, dilation and padding
    per axis.
    """
    parts = zip(jnp.split(x, groups, axis=1), jnp.split(w, groups, axis=0), strict=True)
    return jnp.concatenate([correlate(a, b, how, 1) for a, b in parts], axis=1)


def _grouped_columns(x: Array, kernel: Shape, how: Sequence[AxisStep], groups: int) -> Array:
    """Return (N, groups, channels of a group * taps, outputs): what each group reads, axis after axis.

    XLA compiles a row of 3 taps and a column of 3 in less time than 9 at once: benchmarks/grouped_compile_jax.py.
    """
    n, c = x.shape[:2]
    x = _materialised(x, how)
    for i, (k, step) in enumerate(zip(kernel, _unpadded(how), strict=True)):
        at = 2 + 2 * i  # behind the taps and the outputs of the axes before
        out = step.out(x.shape[at], k)
        x = jnp.stack([lax.slice_in_dim(x, *step.slice(t, out), axis=at) for t in range(k)], axis=2 + i)
    return x.reshape((n, groups, c // groups * math.prod(kernel), math.prod(x.shape[2 + len(kernel) :])))


@rounded_once
def _by_grouped_matmul(x: Array, w: Array, how: Sequence[AxisStep], groups: int) -> Array:
    """Convolve x with w by one matrix product per sample and group, all of them one operation of XLA.

    `how` has stride, dilation and padding per axis.
    """
    if is_split(x):  # whose type does not follow these reshapes
        return _per_group(x, w, how, groups)
    outs, n = _output_sizes(x.shape, w.shape[2:], how), x.shape[0]
    shape = (n, groups, w.shape[0] // groups, math.prod(w.shape[1:]))
    weights = jnp.broadcast_to(w.reshape(shape[1:]), shape)
    y = jnp.matmul(weights, _grouped_columns(x, w.shape[2:], how, groups), precision=EXACT)
    return y.reshape((n, w.shape[0], *outs))


def _pointwise_reads(x: Array, how: Sequence[AxisStep]) -> Array:
    """Return (N, C, outputs): what a kernel of one tap reads of x with the padding and strides of `how`."""
    x = _padded(x, how)[(..., *(slice(None, None, s.stride) for s in how))]
    return x.reshape((*x.shape[:2], math.prod(x.shape[2:])))


def _pointwise(x: Array, w: Array, how: Sequence[AxisStep], groups: int) -> Array:
    """Convolve x with w, a kernel of one tap: a matrix product; `how` has stride and padding per axis.

    Per sample, the weight repeated over the batch; or one product for the batch, whose result is turned. The weight is
    repeated where it is much smaller than the result that it spares to turn.
    """
    outs, n = _output_sizes(x.shape, w.shape[2:], how), x.shape[0]
    x, weight = _pointwise_reads(x, how), w.reshape(w.shape[:2])
    if (n == 1 or POINTWISE_REPEAT_FACTOR * w.shape[1] <= math.prod(outs)) and not is_split(x):
        y = jnp.matmul(jnp.broadcast_to(weight, (n, *weight.shape)), x, precision=EXACT)
    else:
        y = jnp.swapaxes(lax.dot_general(weight, x, (((1,), (1,)), ((), ())), precision=EXACT), 0, 1)
    return y.reshape((n, w.shape[0], *outs))


def _weight_pointwise(x: Array, gy: Array, kernel: Shape, how: Sequence[AxisStep]) -> Array:
    """Return the weight gradient for one tap: a product of gy and what is read of x, summed over samples and cells.

    The order of that sum is left to XLA. `how` is the step per axis.
    """
    cotangents = gy.reshape((*gy.shape[:2], math.prod(gy.shape[2:])))
    cells = (((0, 2), (0, 2)), ((), ()))
    gw = lax.dot_general(
        cotangents, _pointwise_reads(x, how), cells, precision=EXACT, out_sharding=replicated_sharding(x)
    )
    return gw.reshape((gy.shape[1], x.shape[1], *kernel))


def _column_matrix(x: Array, kernel: Shape, how: Sequence[AxisStep]) -> Array:
    """Return (N * outputs, C * taps): what each output reads of x, in the order of a weight in memory.

    `how` has stride, dilation and padding per axis.
    """
    stacked = jnp.stack([v for _, v in _taps(x, kernel, how)], axis=2)
    n, c, taps, *outs = stacked.shape
    rows = stacked.reshape((n, c * taps, math.prod(outs))).transpose((0, 2, 1))
    return rows.reshape((n * math.prod(outs), c * taps))


def _cells_as_rows(y: Array) -> Array:
    """Return (N, C, *cells) reshaped to (N * cells, C)."""
    n, c, *cells = y.shape
    return y.reshape((n, c, math.prod(cells))).transpose((0, 2, 1)).reshape((n * math.prod(cells), c))


def _by_columns(x: Array, w: Array, how: Sequence[AxisStep], groups: int) -> Array:
    """Convolve by one product of the matrix of all taps of x (im2col) with the weight w as it lies in memory.

    `how` has stride, dilation and padding per axis; there is one group.
    """
    outs = _output_sizes(x.shape, w.shape[2:], how)
    columns, weights = _column_matrix(x, w.shape[2:], how), w.reshape((w.shape[0], math.prod(w.shape[1:])))
    y = lax.dot_general(columns, weights, (((1,), (1,)), ((), ())), precision=EXACT)
    return (
        y.reshape((x.shape[0], math.prod(outs), w.shape[0]))
        .transpose((0, 2, 1))
        .reshape((x.shape[0], w.shape[0], *outs))
    )


def _fold_first_axis(x: Array, kernel: int, first: AxisStep, rank: int) -> Array:
    """Return x (N, C, *spatial), `rank` spatial axes, without the first of them: outputs join the batch, taps the
    channels.

    That axis is read by `kernel` taps with the step `first`.
    """
    still = [AxisStep(1, 1, 0, 0)] * (rank - 1)
    taps = _taps(x, (kernel,) + (1,) * (rank - 1), [first, *still])
    planes = jnp.moveaxis(jnp.concatenate([v for _, v in taps], axis=1), 2, 1)
    return planes.reshape((planes.shape[0] * planes.shape[1], *planes.shape[2:]))


def _by_lower_rank(x: Array, w: Array, how: Sequence[AxisStep], groups: int) -> Array:
    """Convolve x with w of rank d as rank d-1, down to the 2-D convolutions that XLA knows well.

    `how` has stride, dilation and padding per axis.
    """
    planes = _fold_first_axis(x, w.shape[2], how[0], len(how))
    weights = jnp.moveaxis(w, 2, 1).reshape((w.shape[0], planes.shape[1], *w.shape[3:]))
    y = correlate(planes, weights, how[1:], 1)
    return jnp.moveaxis(y.reshape((x.shape[0], y.shape[0] // x.shape[0], *y.shape[1:])), 1, 2)


POINTWISE_REPEAT_FACTOR = 4  # times: benchmarks/jax_ops.py, rows conv 1x1
MAX_SHIFTED_TERMS = 81  # of a sum of shifted slices: each costs XLA 6 ms to compile
MAX_FILTERS_PER_GROUP_SHIFTED = (
    4  # filters of a group: what more of them read is better gathered once, for a matrix product,
)
MIN_LONG_ROW_CELLS = (
    32  # except in long rows, of which few are at the processor at a time: columns would go to memory and back
)
MAX_SEPARATE_GROUPS = 4  # groups that are convolutions of their own: each of them costs XLA 0.2 s to compile


def _shifted_is_faster(w: Shape, groups: int, how: Sequence[AxisStep], row: int) -> bool:
    """Return whether a sum of shifted slices is fastest: few inputs per output, few sharing outputs or long rows.

    `w` is the weight's shape, `how` has the strides, `row` is the number of cells of an input row.

    Slices with gaps, which XLA reads cell by cell, only if no product could share them. Measured in
    benchmarks/grouped_compile_jax.py.
    """
    few = w[0] // groups <= MAX_FILTERS_PER_GROUP_SHIFTED or row >= MIN_LONG_ROW_CELLS
    dense = all(s.stride == 1 for s in how[-1:])
    return groups > 1 and math.prod(w[1:]) <= MAX_SHIFTED_TERMS and few and (dense or w[1] == 1)


def _columns_are_faster(x: Shape, w: Shape, outs: Shape) -> bool:
    """Return whether im2col is fastest: where outputs are at most half as many as filters, so that moving the weight
    costs most.

    Also where XLA leaves its fast path: the input has fewer cells than the kernel along some axis. x and w are shapes,
    `outs` is the spatial shape of the output.
    """
    return 2 * x[0] * math.prod(outs) <= w[0] or any(n < k for n, k in zip(x[2:], w[2:], strict=True))


Lowering = Callable[[Array, Array, Sequence[AxisStep], int], Array]

# What beats XLA's CPU convolution, first match first; each line is measured in benchmarks/jax_ops.py under its name.
FASTER: tuple[tuple[str, Callable[[Shape, Shape, int, Sequence[AxisStep]], bool], Lowering], ...] = (
    ("depthwise, groups=32", lambda x, w, groups, how: _shifted_is_faster(w, groups, how, x[-1]), _by_shifted_slices),
    ("groups=2", lambda x, w, groups, how: 1 < groups <= MAX_SEPARATE_GROUPS, _per_group),
    ("groups=32 wide", lambda x, w, groups, how: groups > 1, _by_grouped_matmul),
    ("1x1", lambda x, w, groups, how: set(w[2:]) == {1}, _pointwise),
    (
        "few cells, input smaller than kernel",
        lambda x, w, groups, how: _columns_are_faster(x, w, _output_sizes(x, w[2:], how)),
        _by_columns,
    ),
    ("conv3d and above", lambda x, w, groups, how: len(w) > 4, _by_lower_rank),
)


def correlate(x: Array, w: Array, how: Sequence[AxisStep], groups: int) -> Array:
    """Return sum over i, t of w[o,i,t] * x[n,i,s*p+e*t-lo], for x (N, C, *spatial), w (O, C/groups, *kernel).

    `how` has the stride s, dilation e and padding lo per axis; on the CPU by the first of FASTER that fits.
    """
    if 0 in x.shape:
        return jnp.zeros((x.shape[0], w.shape[0], *_output_sizes(x.shape, w.shape[2:], how)), x.dtype)
    faster = (lowering for _, fits, lowering in FASTER if fits(x.shape, w.shape, groups, how))
    return (next(faster, _xla_convolution) if on_cpu() else _xla_convolution)(x, w, how, groups)


# --- the family -------------------------------------------------------------------------------------------------


def flat_batch(x: Array, rank: int) -> Array:
    """Return (*batch, C, *spatial), with `rank` spatial axes, reshaped to one batch axis."""
    channel = x.ndim - rank - 1
    return x.reshape((math.prod(x.shape[:channel]), *x.shape[channel:]))


def _add_bias(y: Array, b: tuple[Array, ...], rank: int) -> Array:
    """Return y, with `rank` spatial axes, plus b[0], the bias per channel; y itself if b is empty."""
    return y + b[0].reshape(b[0].shape + (1,) * rank) if b else y


def conv(x: Array, w: Array, *b: Array, window: Window, groups: int) -> Array:
    """Return the convolution of x, any batch axes, with w, plus the bias b per channel if given."""
    y = correlate(flat_batch(x, window.rank), w, steps(window), groups)
    return _add_bias(y.reshape((*x.shape[: x.ndim - window.rank - 1], *y.shape[1:])), b, window.rank)


def conv_transpose(x: Array, w: Array, *b: Array, window: Window, groups: int) -> Array:
    """Return the transposed convolution of x, any batch axes, with w, plus the bias b per channel if given."""
    lead = x.shape[: x.ndim - window.rank - 1]
    flat = flat_batch(x, window.rank)
    y = _transposed(flat, w, window, groups)
    return _add_bias(y.reshape((*lead, *y.shape[1:])), b, window.rank)


def _transposed(x: Array, w: Array, window: Window, groups: int) -> Array:
    """Return the transposed convolution of x, (N, C, *window.out), with w, (C, Cout/groups, *kernel), by the fastest
    way.

    It is (N, Cout, *window.size).
    """
    single = set(window.kernel) == {1}
    if (
        on_cpu()
        and 0 not in x.shape
        and groups == 1
        and not single
        and _columns_back_are_faster(x.shape, w.shape, window)
    ):
        return _transpose_by_columns(x, w, window)
    slow = on_cpu() and (groups > 1 or window.rank > 2 or single)
    return (_transpose_by_phases if 0 in x.shape or slow else _transpose_by_dilation)(
        x, _swap_channels(w, groups), window, groups
    )


def _columns_back_are_faster(x: Shape, w: Shape, window: Window) -> bool:
    """Return whether `_transpose_by_columns` is fastest, by the size of the convolution that it is adjoint to.

    Also where XLA leaves its fast path: x has fewer cells than the kernel along some axis.
    """
    return _columns_are_faster((x[0], w[1], *window.size), w, window.out) or any(
        n < k for n, k in zip(x[2:], w[2:], strict=True)
    )


def _transpose_by_columns(x: Array, w: Array, window: Window) -> Array:
    """Return the adjoint of `_by_columns`: one matrix product, then columns are added where they came from."""
    columns = jnp.matmul(_cells_as_rows(x), w.reshape((w.shape[0], math.prod(w.shape[1:]))), precision=EXACT)
    gather = functools.partial(_column_matrix, kernel=window.kernel, how=steps(window))
    return adjoint(gather, struct_like(x, (x.shape[0], w.shape[1], *window.size)), columns)


def _transpose_by_dilation(x: Array, w: Array, window: Window, groups: int) -> Array:
    """Return the transposed convolution as a correlation of dilated x with the flipped kernel."""
    axes = [a for a in window.axes if isinstance(a, Strided)]
    how = [AxisStep(1, a.dilation, *a.spaced()) for a in axes]
    return _xla_convolution(x, jnp.flip(w, tuple(range(2, w.ndim))), how, groups, tuple(a.stride for a in axes))


def _swap_channels(w: Array, groups: int) -> Array:
    """Return a weight (Cin, Cout/groups, *kernel) reshaped to (Cout, Cin/groups, *kernel)."""
    grouped = w.reshape((groups, w.shape[0] // groups, *w.shape[1:]))
    return jnp.swapaxes(grouped, 1, 2).reshape((groups * w.shape[1], w.shape[0] // groups, *w.shape[2:]))


def _transpose_by_phases(x: Array, w: Array, window: Window, groups: int) -> Array:
    """Return the transposed convolution of x, (N, C, *window.out), by a correlation of stride 1 per residue,
    interleaved.

    w is (Cout, C/groups, *kernel): its channels are swapped already.
    """
    axes = [a for a in window.axes if isinstance(a, Strided)]
    counts = tuple(a.phase_count() for a in axes)
    strides = window.steps().stride
    parts = []
    for residues in itertools.product(*(range(s) for s in strides)):
        phases = [phase(a, r) for a, r in zip(axes, residues, strict=True)]
        parts.append(_phase_cells(x, w, phases, counts, groups))
    cells = _interleaved(parts, strides, counts)
    for i, a in enumerate(axes):
        cells = lax.slice_in_dim(cells, *a.cropped(), axis=2 + i)
    return cells


def _phase_cells(x: Array, w: Array, phases: Sequence[Phase | None], counts: Shape, groups: int) -> Array:
    """Return the output cells of one combination of residues, `counts` per axis; zeros if no tap reaches them.

    `phases` say per axis which taps reach them, None: no tap.
    """
    reached = [p for p in phases if p is not None]
    if len(reached) < len(phases):
        return jnp.zeros((x.shape[0], w.shape[0], *counts), x.dtype)
    for i, part in enumerate(reached):
        w = _flipped_taps(w, part.taps, 2 + i)
    return correlate(x, w, [p.step for p in reached], groups)


def _flipped_taps(w: Array, taps: list[int], at: int) -> Array:
    """Return the evenly spaced `taps` of kernel axis `at` of w, last first."""
    step = taps[-2] - taps[-1] if len(taps) > 1 else 1
    return jnp.flip(lax.slice_in_dim(w, taps[-1], taps[0] + 1, step, axis=at), at)


def _interleaved(parts: list[Array], strides: Shape, counts: Shape) -> Array:
    """Return an array (N, C, *spatial) whose cells s*q + r, per axis, come from the cell q of the part with the
    residues r.

    `parts` are (N, C, *counts), in row-major order of their residues; `strides` are s per axis.
    """
    if len(parts) == 1:
        return parts[0]
    n, c, rank = *parts[0].shape[:2], len(strides)
    y = jnp.stack(parts).reshape((*strides, n, c, *counts))
    order = [rank, rank + 1] + [a for i in range(rank) for a in (rank + 2 + i, i)]
    return y.transpose(order).reshape((n, c, *(q * s for q, s in zip(counts, strides, strict=True))))


def conv_weight(x: Array, gy: Array, *, window: Window, groups: int) -> Array:
    """Return the gradient of conv in its weight, (Cout, C/groups, *kernel), from x and gy, any batch axes, which are
    summed.
    """
    x, gy = flat_batch(x, window.rank), flat_batch(gy, window.rank)
    if 0 in x.shape or 0 in gy.shape:
        return jnp.zeros((gy.shape[1], x.shape[1] // groups, *window.kernel), x.dtype)
    return _weight_gradient(x, gy, window.kernel, steps(window), groups)


def _weight_gradient(x: Array, gy: Array, kernel: Shape, how: Sequence[AxisStep], groups: int) -> Array:
    """Return the gradient of a convolution in its weight from x and gy, of one batch axis each, by the fastest way.

    `how` has the step per axis.
    """
    each = x.shape[1] // groups
    if on_cpu() and _shifted_is_faster((gy.shape[1], each, *kernel), groups, how, x.shape[-1]):
        return _weight_shifted(x, gy, kernel, how, groups)
    if on_cpu() and groups > MAX_SEPARATE_GROUPS and not is_split(x):
        return _weight_batched(x, gy, kernel, how, groups)
    if groups > 1:
        parts = zip(jnp.split(x, groups, axis=1), jnp.split(gy, groups, axis=1), strict=True)
        return jnp.concatenate([_weight_gradient(a, g, kernel, how, 1) for a, g in parts])
    if on_cpu() and set(kernel) == {1}:
        return _weight_pointwise(x, gy, kernel, how)
    if on_cpu() and _columns_are_faster(x.shape, (gy.shape[1], x.shape[1], *kernel), gy.shape[2:]):
        return _weight_columns(x, gy, kernel, how)
    return _weight_folded(x, gy, kernel, how) if on_cpu() and len(kernel) > 2 else _weight_native(x, gy, how)


def _weight_native(x: Array, gy: Array, how: Sequence[AxisStep]) -> Array:
    """Return the weight gradient as a correlation of x with gy, channels as batch, summed over the batch; `how` is the
    forward step per axis.
    """
    turned = [AxisStep(s.dilation, s.stride, s.before, s.after) for s in how]
    swapped = jnp.swapaxes(x, 0, 1), jnp.swapaxes(gy, 0, 1)
    return jnp.swapaxes(_xla_convolution(*swapped, turned, 1, out_sharding=replicated_sharding(x)), 0, 1)


@rounded_once
def _weight_shifted(x: Array, gy: Array, kernel: Shape, how: Sequence[AxisStep], groups: int) -> Array:
    """Return the weight gradient by a sum of products of x and gy per tap, one tap after the other; `how` is the step
    per axis.

    A loop is compiled once, and keeps the products of one tap: benchmarks/grouped_compile_jax.py.
    """
    n, each = x.shape[0], x.shape[1] // groups
    reads = [[s.slice(t, out) for t in range(k)] for s, k, out in zip(how, kernel, gy.shape[2:], strict=True)]
    x, spans = _materialised(x, how), [stop - start for (start, stop, _), *_ in reads]  # the same for every tap
    grouped = gy.reshape((n, groups, gy.shape[1] // groups, 1, *gy.shape[2:]))
    rows = (0, *range(4, grouped.ndim - 1))  # rows first: XLA adds up a row of its own one cell after the other

    def products(first: Array) -> Array:
        v = lax.dynamic_slice(x, (0, 0, *first), (*x.shape[:2], *spans))
        v = v[(..., *(slice(None, None, s.stride) for s in how))]
        return jnp.sum(v.reshape((n, groups, 1, each, *v.shape[2:])) * grouped, axis=rows).sum(-1)

    firsts = itertools.product(*([start for start, _, _ in taps] for taps in reads))
    taps = lax.map(products, jnp.asarray(list(firsts)))
    return jnp.moveaxis(taps, 0, -1).reshape((gy.shape[1], each, *kernel))


@rounded_once
def _weight_batched(x: Array, gy: Array, kernel: Shape, how: Sequence[AxisStep], groups: int) -> Array:
    """Return the weight gradient by one matrix product of gy and x per sample and group; `how` is the step per axis."""
    n, each = x.shape[0], x.shape[1] // groups
    rows = gy.reshape((n, groups, gy.shape[1] // groups, math.prod(gy.shape[2:])))
    gw = jnp.einsum("ngoc,ngtc->ngot", rows, _grouped_columns(x, kernel, how, groups), precision=EXACT)
    return jnp.sum(gw, axis=0).reshape((gy.shape[1], each, *kernel))


def _weight_columns(x: Array, gy: Array, kernel: Shape, how: Sequence[AxisStep]) -> Array:
    """Return the weight gradient by one matrix product: gy against the columns (im2col) of x; `how` is the step per
    axis.
    """
    columns = _column_matrix(x, kernel, how)
    gw = lax.dot_general(_cells_as_rows(gy), columns, (((0,), (0,)), ((), ())), precision=EXACT)
    return gw.reshape((gy.shape[1], x.shape[1], *kernel))


def _weight_folded(x: Array, gy: Array, kernel: Shape, how: Sequence[AxisStep]) -> Array:
    """Return the weight gradient at rank d-1: outputs of the first axis join the batch, its taps the channels."""
    planes = _fold_first_axis(x, kernel[0], how[0], len(how))
    cotangents = jnp.moveaxis(gy, 2, 1).reshape((planes.shape[0], gy.shape[1], *gy.shape[3:]))
    gw = _weight_gradient(planes, cotangents, kernel[1:], how[1:], 1)
    return jnp.moveaxis(gw.reshape((gw.shape[0], kernel[0], x.shape[1], *kernel[1:])), 1, 2)
