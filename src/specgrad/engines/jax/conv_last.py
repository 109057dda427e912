"""Convolution on JAX with the channels last, for compiled graphs whose images lie so (`layouts.py`).

XLA on CPU multiplies and adds along the last axis, and its own 2-D convolution turns its operands so. Each function
takes and returns channels first, as every kernel does, and turns at both ends: where two turns meet, XLA drops both.

    one tap      a matrix product of cells by channels
    depthwise    shifted slices, each times its weight: whole vectors of channels
    few cells    im2col with the weight as it lies in memory: to turn it would cost more than to gather the cells
    all others   XLA's convolution

`how` says for each axis by which stride and dilation, and after which padding, windows are read (`AxisStep`).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

from specgrad.window.tap_schedule import AxisStep, Phase, phase, steps

from ...window import Shape, Strided, Window
from .conv import EXACT, MAX_SHIFTED_TERMS, flat_batch
from .mesh import adjoint, replicated_sharding, struct_like
from .pool import rounded_once

Array = jax.Array


def fits(x: Shape, w: Shape, window: Window, groups: int) -> bool:
    """Return whether a convolution of images x, one batch axis, with a weight w is computed here: of one group up to
    rank 2, of one tap, or depthwise.
    """
    if len(x) != window.rank + 2 or 0 in x or 0 in w or not all(isinstance(a, Strided) for a in window.axes):
        return False
    if groups > 1:
        return w[:2] == (groups, 1) and math.prod(w[2:]) <= MAX_SHIFTED_TERMS
    return window.rank <= 2 or set(w[2:]) == {1}


def to_last(x: Array) -> Array:
    """Return (N, C, *spatial) as (N, *spatial, C)."""
    return jnp.moveaxis(x, 1, -1)


def to_first(x: Array) -> Array:
    """Return (N, *spatial, C) as (N, C, *spatial)."""
    return jnp.moveaxis(x, -1, 1)


def _padded(x: Array, how: Sequence[AxisStep]) -> Array:
    """Return x (N, *spatial, C) padded with zeros as each step in `how` says; negative widths remove cells."""
    if all(s.before == s.after == 0 for s in how):
        return x
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((s.before, s.after, 0) for s in how), (0, 0, 0)])


def _read(x: Array, tap: Shape, outs: Shape, how: Sequence[AxisStep]) -> Array:
    """Return (N, *outs, C): what a tap reads of x, which is padded."""
    starts, stops, strides = zip(*(s.slice(t, n) for t, n, s in zip(tap, outs, how, strict=True)), strict=True)
    return lax.slice(x, (0, *starts, 0), (x.shape[0], *stops, x.shape[-1]), (1, *strides, 1))


def in_memory(x: Array) -> Array:
    """Return x with its last axis dense in memory: XLA calls a turn a matter of layout, and reads across the lines."""
    dense: Array = with_layout_constraint(x, Layout(tuple(range(x.ndim))))
    return dense


def _all_taps(kernel: Shape) -> list[Shape]:
    """Return the taps of a kernel in row-major order."""
    return list(itertools.product(*map(range, kernel)))


def _output_sizes(x: Shape, kernel: Shape, how: Sequence[AxisStep]) -> Shape:
    """Return the output sizes for an input of shape x (N, *spatial, C), a kernel and the steps `how` per axis."""
    return tuple(s.out(n, k) for n, k, s in zip(x[1:-1], kernel, how, strict=True))


# --- lowerings ----------------------------------------------------------------------------------------------------


def _pointwise_reads(x: Array, how: Sequence[AxisStep]) -> Array:
    """Return what a kernel of one tap reads of x."""
    return _padded(x, how)[(slice(None), *(slice(None, None, s.stride) for s in how))]


def _pointwise(x: Array, w: Array, how: Sequence[AxisStep]) -> Array:
    """Convolve x with w (O, C, 1, ...): one matrix product."""
    contracted = (((x.ndim - 1,), (1,)), ((), ()))
    return lax.dot_general(_pointwise_reads(x, how), w.reshape(w.shape[:2]), contracted, precision=EXACT)


@rounded_once
def _depthwise(x: Array, w: Array, how: Sequence[AxisStep]) -> Array:
    """Convolve x with w (C, 1, *kernel): every channel with its own kernel."""
    kernel = w.shape[2:]
    outs, x = _output_sizes(x.shape, kernel, how), _padded(x, how)
    weights = in_memory(jnp.moveaxis(w[:, 0], 0, -1))
    return functools.reduce(jnp.add, (_read(x, t, outs, how) * weights[t] for t in _all_taps(kernel)))


def _columns(x: Array, kernel: Shape, how: Sequence[AxisStep]) -> Array:
    """Return (N, *outputs, C * taps): what each output reads of x, in the order of a weight in memory."""
    outs, x = _output_sizes(x.shape, kernel, how), _padded(x, how)
    stacked = jnp.stack([_read(x, t, outs, how) for t in _all_taps(kernel)], axis=-1)
    return stacked.reshape((*stacked.shape[:-2], stacked.shape[-2] * stacked.shape[-1]))


def _by_columns(x: Array, w: Array, how: Sequence[AxisStep]) -> Array:
    """Convolve x with w by one product of what every output reads (im2col) with the weight as it lies in memory."""
    contracted = (((x.ndim - 1,), (1,)), ((), ()))
    rows = w.reshape((w.shape[0], math.prod(w.shape[1:])))
    return lax.dot_general(_columns(x, w.shape[2:], how), rows, contracted, precision=EXACT)


def _names(rank: int) -> tuple[str, str, str]:
    """Return XLA's names of the axes of (N, *spatial, C), (*spatial, I, O) and (N, *spatial, C)."""
    cells = "HW"[2 - rank :]
    return f"N{cells}C", f"{cells}IO", f"N{cells}C"


def _native(x: Array, w: Array, how: Sequence[AxisStep], spacing: Shape | None = None) -> Array:
    """Return XLA's own convolution of x with w (*kernel, I, O); `spacing` dilates x."""
    return lax.conv_general_dilated(
        x,
        w,
        [s.stride for s in how],
        [(s.before, s.after) for s in how],
        spacing,
        [s.dilation for s in how],
        _names(len(how)),
        precision=EXACT,
    )


def _few_cells(cells: int, w: Shape) -> bool:
    """Return whether im2col of so many outputs moves less than turning a weight of shape w would."""
    return FEW_CELLS * cells <= w[0]


FEW_CELLS = 2


def _correlate(x: Array, w: Array, how: Sequence[AxisStep], groups: int) -> Array:
    """Return the correlation of x (N, *spatial, C) with w (O, C/groups, *kernel), channels last."""
    if groups > 1:
        return _depthwise(x, w, how)
    if set(w.shape[2:]) == {1}:
        return _pointwise(x, w, how)
    outs = _output_sizes(x.shape, w.shape[2:], how)
    if _few_cells(x.shape[0] * math.prod(outs), w.shape) or _smaller(x.shape[1:-1], w.shape[2:]):
        return _by_columns(x, w, how)
    return _native(x, jnp.transpose(w, (*range(2, w.ndim), 1, 0)), how)


def _smaller(cells: Shape, kernel: Shape) -> bool:
    """Return whether some axis has fewer cells than the kernel: there XLA leaves its fast path."""
    return any(n < k for n, k in zip(cells, kernel, strict=True))


# --- its adjoints -------------------------------------------------------------------------------------------------


def _transposed(x: Array, w: Array, window: Window, groups: int) -> Array:
    """Return the transposed convolution of x (N, *window.out, C) with w (C, Cout/groups, *kernel), channels last."""
    if groups > 1:
        return _depthwise_phases(x, w, window)
    if set(window.kernel) == {1}:
        product = lax.dot_general(x, w.reshape(w.shape[:2]), (((x.ndim - 1,), (0,)), ((), ())), precision=EXACT)
        read = functools.partial(_pointwise_reads, how=steps(window))
        return adjoint(read, struct_like(x, (x.shape[0], *window.size, w.shape[1])), product)
    cells = x.shape[0] * math.prod(window.out)
    if _few_cells(cells, w.shape) or _smaller(window.size, window.kernel) or _smaller(window.out, window.kernel):
        columns = lax.dot_general(
            x, w.reshape((w.shape[0], math.prod(w.shape[1:]))), (((x.ndim - 1,), (0,)), ((), ())), precision=EXACT
        )
        gather = functools.partial(_columns, kernel=window.kernel, how=steps(window))
        return adjoint(gather, struct_like(x, (x.shape[0], *window.size, w.shape[1])), columns)
    axes = [a for a in window.axes if isinstance(a, Strided)]
    how = [AxisStep(1, a.dilation, *a.spaced()) for a in axes]
    flipped = jnp.flip(jnp.transpose(w, (*range(2, w.ndim), 0, 1)), tuple(range(len(axes))))
    return _native(x, flipped, how, tuple(a.stride for a in axes))


def _depthwise_phases(x: Array, w: Array, window: Window) -> Array:
    """Return the transposed depthwise convolution: per residue of the strides one of stride 1, interleaved."""
    axes = [a for a in window.axes if isinstance(a, Strided)]
    counts, strides = tuple(a.phase_count() for a in axes), window.steps().stride
    parts = [
        _phase_cells(x, w, [phase(a, r) for a, r in zip(axes, residues, strict=True)], counts)
        for residues in itertools.product(*map(range, strides))
    ]
    cells = _interleaved(parts, strides, counts)
    for i, a in enumerate(axes):
        cells = lax.slice_in_dim(cells, *a.cropped(), axis=1 + i)
    return cells


def _phase_cells(x: Array, w: Array, phases: Sequence[Phase | None], counts: Shape) -> Array:
    """Return the cells of one combination of residues, `counts` per axis; zeros if no tap reaches them."""
    reached = [p for p in phases if p is not None]
    if len(reached) < len(phases):
        return jnp.zeros((x.shape[0], *counts, x.shape[-1]), x.dtype)
    for i, part in enumerate(reached):
        w = jnp.take(w, jnp.asarray(part.taps), axis=2 + i)
    return _depthwise(x, w, [p.step for p in reached])


def _interleaved(parts: list[Array], strides: Shape, counts: Shape) -> Array:
    """Return (N, *spatial, C) whose cells s*q + r per axis are the cells q of the part with the residues r."""
    if len(parts) == 1:
        return parts[0]
    n, c, rank = parts[0].shape[0], parts[0].shape[-1], len(strides)
    y = jnp.stack(parts).reshape((*strides, n, *counts, c))
    order = [rank] + [a for i in range(rank) for a in (rank + 1 + i, i)] + [2 * rank + 1]
    return y.transpose(order).reshape((n, *(q * s for q, s in zip(counts, strides, strict=True)), c))


def _weight_gradient(x: Array, gy: Array, kernel: Shape, how: Sequence[AxisStep], groups: int) -> Array:
    """Return the gradient of `_correlate` in its weight, (O, C/groups, *kernel), from x and gy, channels last."""
    if groups > 1:
        return _weight_depthwise(x, gy, kernel, how)
    cells = tuple(range(gy.ndim - 1))
    dot: Callable[[Array], Array] = lambda read: lax.dot_general(
        gy, read, ((cells, cells), ((), ())), precision=EXACT, out_sharding=replicated_sharding(x)
    )
    if set(kernel) == {1}:
        return dot(_pointwise_reads(x, how)).reshape((gy.shape[-1], x.shape[-1], *kernel))
    if _few_cells(math.prod(gy.shape[:-1]), (gy.shape[-1],)) or _smaller(x.shape[1:-1], kernel):
        return dot(_columns(x, kernel, how)).reshape((gy.shape[-1], x.shape[-1], *kernel))
    return _weight_native(x, gy, how)


def _weight_native(x: Array, gy: Array, how: Sequence[AxisStep]) -> Array:
    """Return the weight gradient as a correlation of x with gy, channels as batch, summed over the batch."""
    turned = [AxisStep(s.dilation, s.stride, s.before, s.after) for s in how]
    cells = "HW"[2 - len(how) :]
    return lax.conv_general_dilated(
        x,
        gy,
        [s.stride for s in turned],
        [(s.before, s.after) for s in turned],
        None,
        [s.dilation for s in turned],
        (f"C{cells}N", f"I{cells}O", f"CN{cells}"),
        precision=EXACT,
        out_sharding=replicated_sharding(x),
    )


@rounded_once
def _weight_depthwise(x: Array, gy: Array, kernel: Shape, how: Sequence[AxisStep]) -> Array:
    """Return the gradient in a depthwise weight (C, 1, *kernel), one tap after the other.

    A loop is compiled once, and keeps the products of one tap: benchmarks/grouped_compile_jax.py.
    """
    reads = [[s.slice(t, out) for t in range(k)] for s, k, out in zip(how, kernel, gy.shape[1:-1], strict=True)]
    x, spans = _padded(x, how), [stop - start for (start, stop, _), *_ in reads]  # the same for every tap

    def products(first: Array) -> Array:
        v = lax.dynamic_slice(x, (0, *first, 0), (x.shape[0], *spans, x.shape[-1]))
        v = v[(slice(None), *(slice(None, None, s.stride) for s in how))]
        return jnp.sum(v * gy, axis=tuple(range(gy.ndim - 1)))

    firsts = itertools.product(*([start for start, _, _ in taps] for taps in reads))
    taps = lax.map(products, jnp.asarray(list(firsts)))
    return jnp.moveaxis(taps, 0, -1).reshape((gy.shape[-1], 1, *kernel))


# --- the family ---------------------------------------------------------------------------------------------------


def conv(x: Array, w: Array, *b: Array, window: Window, groups: int) -> Array:
    """Return the convolution of x, any batch axes, with w, plus the bias b per channel if given."""
    y = _correlate(to_last(flat_batch(x, window.rank)), w, steps(window), groups)
    return _with_batch(y, b, x.shape[: x.ndim - window.rank - 1])


def conv_transpose(x: Array, w: Array, *b: Array, window: Window, groups: int) -> Array:
    """Return the transposed convolution of x, any batch axes, with w, plus the bias b per channel if given."""
    y = _transposed(to_last(flat_batch(x, window.rank)), w, window, groups)
    return _with_batch(y, b, x.shape[: x.ndim - window.rank - 1])


def _with_batch(y: Array, b: tuple[Array, ...], lead: Shape) -> Array:
    """Return y (N, *spatial, C), plus b[0] per channel if given, channels first behind the batch axes `lead`."""
    image = to_first(y + b[0] if b else y)
    return image if len(lead) == 1 else image.reshape((*lead, *image.shape[1:]))


def conv_weight(x: Array, gy: Array, *, window: Window, groups: int) -> Array:
    """Return the gradient of conv in its weight, (Cout, C/groups, *kernel), from x and gy, summed over samples."""
    return _weight_gradient(to_last(x), to_last(gy), window.kernel, steps(window), groups)
