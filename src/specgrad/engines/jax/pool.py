"""Windows on JAX arrays: maxima, winners, sums and smooth maxima, one axis at a time.

A window is the product of its axes, so every reduction over it runs axis by axis, the last axis first. Picking the
first winner along the last axis, then along the one before, and so on, is picking the first in row-major order.

An axis reads an array through `WindowAxis`: tap t of all outputs is one slice of the padded array (of one of its
`stride` phases, so that the transpose writes whole phases and interleaves them). Padded cells are known at trace
time and never win, not even against -inf ([P2]); a NaN beats every number ([P1]).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from specgrad.window.tap_schedule import folded, residues, step

from ...scalar import Number
from ...window import Adaptive, Axis, Shape, Strided, Window
from .mesh import adjoint, struct_like

Array = jax.Array
Route = Callable[[Array], Array]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
MAX_SPLIT_STRIDE = 64  # phases that are made whether a tap reads them or not


def on_cpu() -> bool:
    """Return whether JAX's default backend is the CPU, for which the tables of fast lowerings are measured."""
    return jax.default_backend() == "cpu"


def pad_axis(x: Array, at: int, lo: int, hi: int, value: float = 0.0, gap: int = 0) -> Array:
    """Return x with axis `at` padded with `value`: lo cells before, hi behind, and `gap` cells between neighbours.

    Negative widths remove cells.
    """
    if lo == hi == gap == 0:
        return x
    widths = [(0, 0, 0)] * x.ndim
    widths[at] = (lo, hi, gap)
    return lax.pad(x, jnp.asarray(value, x.dtype), widths)


def mask_along(mask: Mask, at: int) -> Array:
    """Return a mask of the (negative) axis `at` in the shape that broadcasts along it."""
    return jnp.asarray(mask.reshape(mask.shape + (1,) * (-1 - at)))


# --- one axis of a window ---------------------------------------------------------------------------------------


class WindowAxis:
    """One axis of a window, reading arrays along their (negative) axis `at`."""

    def __init__(self, axis: Axis, at: int) -> None:
        if isinstance(axis, Strided) and axis.out == 1:
            # a step that is never taken may be of any length; a window longer than its cells still ends somewhere
            axis = replace(axis, stride=1, hi=max(axis.hi, axis.pads[1]))
        self.axis, self.at = axis, at
        self.taps = range(axis.kernel)

    def read(self, x: Array, fill: float) -> list[Array]:
        """Return what every tap reads, for all outputs at once, `fill` outside; transposes better.

        ShapeError for so many taps that it would take minutes.
        """
        Window((self.axis,)).check_walk()
        if isinstance(self.axis, Adaptive):
            return [self._gather_tap(x, t, fill) for t in self.taps]
        phases, out = self._phases(x, self.axis, fill), self.axis.out
        return [lax.slice_in_dim(phases[r], q, q + out, axis=self.at) for q, r in residues(self.axis)]

    def read_strided(self, x: Array, fill: float) -> list[Array]:
        """Return what every tap reads of x by strided slices, padded with `fill`: ten times faster at stride 2, but
        slow to transpose.

        ShapeError for so many taps that it would take minutes.
        """
        Window((self.axis,)).check_walk()
        if isinstance(self.axis, Adaptive):
            return self.read(x, fill)
        x = pad_axis(x, self.at, *self.axis.pads, fill)
        slices = (step(self.axis).slice(t, self.axis.out) for t in self.taps)
        return [lax.slice_in_dim(x, *part, axis=self.at) for part in slices]

    def _phases(self, x: Array, axis: Strided, fill: float) -> dict[int, Array]:
        """Return x, padded with `fill`, split by residue modulo the stride, for the residues that some tap has."""
        x = pad_axis(x, self.at, *axis.pads, fill)
        at = self.at % x.ndim
        if axis.stride == 1:
            return {0: x}
        more, rows = folded(axis, x.shape[at])
        x = pad_axis(x, at, 0, more, fill)
        x = x.reshape((*x.shape[:at], rows, axis.stride, *x.shape[at + 1 :]))
        if self.at == -1 or axis.stride & 1 or axis.stride > MAX_SPLIT_STRIDE:
            read = {r for _, r in residues(axis)}
            return {r: lax.index_in_dim(x, r, at + 1, keepdims=False) for r in read}
        # the transpose of a split puts rows side by side; benchmarks/jax_ops.py, row max_pool k2 s2
        return {r: lax.squeeze(part, [at + 1]) for r, part in enumerate(lax.split(x, [1] * x.shape[at + 1], at + 1))}

    def _gather_tap(self, x: Array, t: int, fill: float) -> Array:
        """Return what tap t of an adaptive axis reads, `fill` outside: a gather with constant positions."""
        assert isinstance(self.axis, Adaptive)
        cells = [min(self.axis.start(o) + t, self.axis.size - 1) for o in range(self.axis.out)]
        v = jnp.take(x, np.array(cells), axis=self.at, mode="clip")
        return jnp.where(mask_along(self.inside(t), self.at), v, jnp.asarray(fill, v.dtype))

    def inside(self, t: int) -> Mask:
        """Return the mask of outputs whose tap t lies inside the input."""
        mask = np.zeros(self.axis.out, dtype=bool)
        mask[self.axis.tap(t)[0]] = True
        return mask


def reduction_axes(window: Window, behind: int = 0) -> list[WindowAxis]:
    """Return the axes of a window in the order in which they are reduced: the last one first.

    `behind` is 1 for arrays with the channels last, here and below.
    """
    return [WindowAxis(axis, i - window.rank - behind) for i, axis in reversed(list(enumerate(window.axes)))]


def nonempty(window: Window) -> Mask:
    """Return the mask of outputs that read at least one cell."""
    return np.asarray(window.inside() > 0)


def _before_channels(cells: Any, behind: int) -> Any:
    """Return an array over the cells of a window, or over windows, so that it broadcasts with `behind` more axes."""
    return cells.reshape(cells.shape + (1,) * behind)


def zero_if_empty(y: Array, window: Window, value: int = 0, behind: int = 0) -> Array:
    """Return y with `value` for the windows that read no cell."""
    if not window.has_empty:
        return y
    return jnp.where(_before_channels(nonempty(window), behind), y, jnp.asarray(value, y.dtype))


def rounded_once(f: Callable[..., Array]) -> Callable[..., Array]:
    """Return f with shorter floats (bfloat16) computed in float32 and rounded at the end.

    f takes arrays first. The transpose that JAX makes of it works in float32 too.
    """

    @functools.wraps(f)
    def run(x: Array, *args: Any, **params: Any) -> Array:
        if x.dtype.itemsize >= 4 or not jnp.issubdtype(x.dtype, jnp.floating):
            return f(x, *args, **params)
        wide = [a.astype(jnp.float32) if isinstance(a, jax.Array) and a.dtype == x.dtype else a for a in args]
        return f(x.astype(jnp.float32), *wide, **params).astype(x.dtype)

    return run


# --- who wins ---------------------------------------------------------------------------------------------------


def _beats(b: Array, a: Array) -> Array:
    """Return whether b > a, or b is NaN and a is not ([P1])."""
    return (a == a) & ~(b <= a)


def _wins(b: Array, a: Array, b_inside: Mask, a_inside: Mask, at: int) -> Array:
    """Return whether b replaces a, which comes first; masks say along axis `at` which taps are inside.

    A padded tap never does, and any inside tap replaces a padded one.
    """
    wins = _beats(b, a)
    if not b_inside.all():
        wins &= mask_along(b_inside, at)
    return wins if a_inside.all() else wins | mask_along(b_inside & ~a_inside, at)


def _max_by_taps(line: WindowAxis, x: Array) -> tuple[Array, Route]:
    """Return the maximum of x along the axis of `line`, tap after tap, and its route: v -> v at the first winner."""
    first, *others = line.read_strided(x, -math.inf)
    best, seen = first, line.inside(0)
    offset = jnp.zeros(best.shape, jnp.int8 if line.axis.kernel <= 127 else jnp.int32)
    for t, v in enumerate(others, 1):
        here = line.inside(t)
        wins = _wins(v, best, here, seen, line.at)
        best, offset, seen = jnp.where(wins, v, best), jnp.where(wins, t, offset).astype(offset.dtype), seen | here

    def route(v: Array) -> Array:
        zero = jnp.zeros((), v.dtype)
        kept = [jnp.where(offset == t, tap, zero) for t, tap in enumerate(line.read(v, 0))]
        return functools.reduce(jnp.add, kept)

    return best, route


def _max_by_doubling(line: WindowAxis, x: Array) -> tuple[Array, Route]:
    """Return the maximum of x along the strided axis of `line` in log2(k) steps, and its route: v -> v at the first
    winner.

    Each step joins windows of w cells that start w apart; its mask tells which half won.
    """
    axis, at = line.axis, line.at
    assert isinstance(axis, Strided)
    best = pad_axis(x, at, *axis.pads, -math.inf)
    seen = np.zeros(best.shape[at], dtype=bool)
    seen[axis.interior] = True
    steps: list[tuple[int, Array]] = []
    for d in axis.doubling():
        a, b = _shifted_pair(best, d, at)
        wins = _wins(b, a, seen[d:], seen[:-d], at)
        best, seen = jnp.where(wins, b, a), seen[d:] | seen[:-d]
        steps.append((d, wins))

    def route(v: Array) -> Array:
        v = pad_axis(v, at, *axis.pads)
        for d, wins in steps:
            a, b = _shifted_pair(v, d, at)
            v = jnp.where(wins, b, a)
        return _every_stride(v, axis.stride, at)

    return _every_stride(best, axis.stride, at), route


def _shifted_pair(x: Array, shift: int, at: int) -> tuple[Array, Array]:
    """Return x without its last `shift` cells and x without its first, along axis `at`."""
    n = x.shape[at]
    return lax.slice_in_dim(x, 0, n - shift, axis=at), lax.slice_in_dim(x, shift, n, axis=at)


def _every_stride(x: Array, stride: int, at: int) -> Array:
    """Return every `stride`-th cell of x along axis `at`."""
    return lax.slice_in_dim(x, 0, None, stride, axis=at)


# benchmarks/jax_ops.py, rows max_pool: doubling wins at stride 1 from k = 4, taps below and at strides 2 and 3.
# `few_jumps` (large kernels, small strides) is an operation count, not measured.
def _axis_max_with_route(line: WindowAxis, x: Array) -> tuple[Array, Route]:
    """Return the maximum of x along the axis of `line` and its route (v -> v at the first winner), by taps or by
    doubling, whichever is faster.
    """
    axis = line.axis
    if isinstance(axis, Adaptive) or axis.kernel <= 3:
        return _max_by_taps(line, x)
    few_jumps = 2 * len(axis.doubling()) < axis.kernel / axis.stride
    return (_max_by_doubling if axis.stride == 1 or few_jumps else _max_by_taps)(line, x)


class MaxRoute(NamedTuple):
    """The maxima of a window (`value`), and the linear map (`route`) from v to v at the first winner, 0 for an empty
    window.
    """

    value: Array
    route: Route


def routed_max(x: Array, window: Window, behind: int = 0) -> MaxRoute:
    """Return the maximum with its route, whose transpose needs no scatter: it is made of slices and selections."""
    routes = []
    y = x
    for line in reduction_axes(window, behind):
        y, route = _axis_max_with_route(line, y)
        routes.append(route)

    def along_all(v: Array) -> Array:
        return zero_if_empty(functools.reduce(lambda u, route: route(u), routes, v), window, 0, behind)

    return MaxRoute(_positive_zero(zero_if_empty(y, window, 0, behind)), along_all)


def winner_of(route: Route, shape: Shape, window: Window, behind: int = 0) -> Array:
    """Return the flat position of every winner, -1 for an empty window: the route applied to the positions.

    `shape` is that of the input.
    """
    cells = np.arange(math.prod(window.size), dtype=np.int32).reshape(window.size)
    return zero_if_empty(route(jnp.broadcast_to(_before_channels(cells, behind), shape)), window, -1, behind)


@functools.partial(jax.jit, static_argnames="window")
def winner(x: Array, window: Window) -> Array:
    """Return the flat position of the first largest cell of every window, -1 for an empty window."""
    return winner_of(routed_max(x, window).route, x.shape, window)


# --- the maximum alone ------------------------------------------------------------------------------------------


def _reduce_window(x: Array, start: float, join: Any, axes: Sequence[tuple[int, Strided]]) -> Array:
    """Return lax.reduce_window of x by `join` from `start` over some (negative) axes; cells that no window reads are
    removed first.
    """
    size, stride, dilation, padding = [1] * x.ndim, [1] * x.ndim, [1] * x.ndim, [(0, 0)] * x.ndim
    for at, axis in axes:
        lo, hi = axis.pads
        if -hi >= axis.stride:  # fewer outputs than would fit
            x = pad_axis(x, at, 0, hi)
        size[at], stride[at], dilation[at], padding[at] = axis.kernel, axis.stride, axis.dilation, (lo, max(hi, 0))
    first = jnp.asarray(start, x.dtype)
    y: Array = lax.reduce_window(x, first, join, size, stride, padding, window_dilation=dilation)
    return y


def _needs_padded_copy(axis: Strided) -> bool:
    """Return whether XLA would materialise the padding of this axis for strided slices, which costs more than the
    maximum.
    """
    return axis.stride > 1 and max(axis.pads) > 0


def _max_along(line: WindowAxis, x: Array) -> Array:
    """Return the maximum of x over the windows along the axis of `line`: slices for small kernels, reduce_window for
    others.

    Measured in benchmarks/jax_ops.py, rows max_pool.
    """
    axis = line.axis
    if isinstance(axis, Adaptive) or (axis.kernel <= (3 if axis.stride == 1 else 5) and not _needs_padded_copy(axis)):
        return functools.reduce(jnp.maximum, line.read_strided(x, -math.inf))
    return _reduce_window(x, -math.inf, lax.max, [(line.at, axis)])


def _positive_zero(y: Array) -> Array:
    """Return y with -0 as +0: lax.max and the tournament choose differently, and values must not show which ran."""
    return jnp.where(y == 0, jnp.zeros((), y.dtype), y)


def window_max(x: Array, window: Window, behind: int = 0) -> Array:
    """Return the maximum of every window, 0 for an empty one, without a derivative rule."""
    return _positive_zero(_window_max(x, window, behind))


def _window_max(x: Array, window: Window, behind: int) -> Array:
    """Return the maximum of every window; the sign of a zero is unspecified."""
    strided = [(i - window.rank - behind, a) for i, a in enumerate(window.axes) if isinstance(a, Strided)]
    if len(strided) == window.rank and not on_cpu():
        return zero_if_empty(_reduce_window(x, -math.inf, lax.max, strided), window, 0, behind)
    rows_first = reversed(reduction_axes(window, behind))  # which come in whole cache lines; a maximum needs no order
    return zero_if_empty(functools.reduce(lambda y, line: _max_along(line, y), rows_first, x), window, 0, behind)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _max_pool(x: Array, window: Window, behind: int = 0) -> Array:
    """Return the maximum of every window; its derivative of either mode is the route of the first winner."""
    return window_max(x, window, behind)


@_max_pool.defjvp
def _max_pool_jvp(window: Window, behind: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """Return the maxima of the windows of primals[0], and the tangents at their first winners."""
    y, route = routed_max(primals[0], window, behind)
    return y, route(tangents[0])


max_pool = jax.jit(_max_pool, static_argnames=("window", "behind"))


# --- sums -------------------------------------------------------------------------------------------------------


def _sum_taps(line: WindowAxis, x: Array) -> Array:
    """Return the sum of x over the windows along the axis of `line`, tap by tap, in a form that transposes well."""
    return functools.reduce(jnp.add, line.read(x, 0))


def _sum_along(line: WindowAxis, x: Array) -> Array:
    """Return the sum of x over the windows along the axis of `line`: slices for small kernels, reduce_window for
    others.

    Measured in benchmarks/jax_ops.py, rows avg_pool.
    """
    axis = line.axis
    if isinstance(axis, Adaptive) or (axis.kernel <= 5 and not _needs_padded_copy(axis)):
        return functools.reduce(jnp.add, line.read_strided(x, 0))
    return _reduce_window(x, 0.0, lax.add, [(line.at, axis)])


def window_sum(x: Array, window: Window, behind: int = 0) -> Array:
    """Return the sum of every window; a padded tap counts 0."""
    strided = [(i - window.rank - behind, a) for i, a in enumerate(window.axes) if isinstance(a, Strided)]
    if len(strided) == window.rank and not on_cpu():
        return _reduce_window(x, 0.0, lax.add, strided)
    return functools.reduce(lambda y, line: _sum_along(line, y), reduction_axes(window, behind), x)


def _spread_along(line: WindowAxis, gy: Array) -> Array:
    """Return the adjoint of the sum over the windows along the axis of `line`, applied to gy.

    By transposed slices, or for many taps by window sums of gy spaced out.
    """
    axis = line.axis
    shape = list(gy.shape)
    shape[line.at] = axis.size
    if isinstance(axis, Adaptive) or axis.kernel / axis.stride <= 5:
        return adjoint(functools.partial(_sum_taps, line), struct_like(gy, tuple(shape)), gy)
    spaced = pad_axis(gy, line.at, *axis.spaced(), gap=axis.gap)
    back = Strided(axis.size + axis.span - 1, axis.kernel, 1, axis.dilation, 0, 0, axis.size)
    return _reduce_window(spaced, 0.0, lax.add, [(line.at, back)])


def window_spread(gy: Array, window: Window, behind: int = 0) -> Array:
    """Return the adjoint of `window_sum`: for every cell the sum of gy over the windows that read it."""
    return functools.reduce(lambda g, line: _spread_along(line, g), reversed(reduction_axes(window, behind)), gy)


Divisor = str | Number


def _divide(x: Array, window: Window, divisor: Divisor, behind: int) -> Array:
    """Return x, one cell per window, over `divisor` ("padded", "inside" or a number), 0 where nothing counts ([A1])."""
    if divisor not in ("padded", "inside"):
        return x / jnp.asarray(float(divisor), x.dtype)
    counted = window.counted() if divisor == "padded" else window.inside()
    counts = _before_channels(counted.astype(np.float64), behind)
    quotient = x / jnp.asarray(np.maximum(counts, 1), x.dtype)
    return quotient if counts.all() else jnp.where(counts == 0, jnp.zeros((), x.dtype), quotient)


@rounded_once
def avg_pool(x: Array, window: Window, divisor: Divisor, behind: int = 0) -> Array:
    """Return the average of x over every window: its sum over the divisor that `divisor` says."""
    return _divide(window_sum(x, window, behind), window, divisor, behind)


@rounded_once
def avg_spread(gy: Array, window: Window, divisor: Divisor, behind: int = 0) -> Array:
    """Return the adjoint of avg_pool: gy, divided by `divisor` (a number, "padded" or "inside"), added to every cell of
    its window.
    """
    return window_spread(_divide(gy, window, divisor, behind), window, behind)


# --- smooth maxima ----------------------------------------------------------------------------------------------
#
# sum_t exp(beta*x_t) over a window of several axes, without overflow and without a copy per tap: along the last axis
# keep the largest x (m) and s = sum exp(beta*(x - m)); along the next axis join the pairs (m, s) in the same way. No
# exponent is positive, and k + k exponentials per output do the work of k*k. For beta < 0 everything is mirrored.


def _negate_if(x: Array, beta: Number) -> Array:
    """Return x, or -x if beta is negative."""
    return x if beta > 0 else -x


def _absolute_beta(beta: Number, x: Array) -> Array:
    """Return abs(beta) in the type of x."""
    return jnp.asarray(abs(float(beta)), x.dtype)


def _finite_or_zero(m: Array) -> Array:
    """Return m with 0 in place of infinities and NaN."""
    return jnp.where(jnp.isfinite(m), m, jnp.zeros((), m.dtype))


def _weighted_sum_along(
    line: WindowAxis, b: Array, m: Array, s: Array | None, pivot: Array | None, fill: tuple[float, float]
) -> tuple[Array, Array]:
    """Return the largest m and sum_t s_t * exp(b*(m_t - pivot)) along the axis of `line`.

    The pivot is the largest m unless given; s is 1 if None; `fill` is m and s of a padded tap.
    """
    ms = line.read(m, fill[0])
    largest = functools.reduce(jnp.maximum, ms) if pivot is None else pivot
    shift = _finite_or_zero(largest) if pivot is None else pivot
    terms = [jnp.exp((v - shift) * b) for v in ms]
    if s is not None:
        terms = [e * v for e, v in zip(terms, line.read(s, fill[1]), strict=True)]
    return largest, functools.reduce(jnp.add, terms)


def smooth_max(x: Array, window: Window, beta: Number, padded: str) -> Array:
    """Return log(sum exp(beta*x)) / beta of every window; a padded tap is 0 (padded="zero"), or left out ("ignore")."""
    b, m = _absolute_beta(beta, x), _negate_if(x, beta)
    s: Array | None = None
    count = 1.0  # taps behind one cell so far: what a padded cell stands for
    for line in reduction_axes(window):
        m, s = _weighted_sum_along(line, b, m, s, None, (0.0 if padded == "zero" else -math.inf, count))
        count *= line.axis.kernel
    assert s is not None, "a window has an axis"
    y = _negate_if(_finite_or_zero(m) + jnp.log(s) / b, beta)
    return zero_if_empty(y, window) if padded == "ignore" else y


def smooth_pull(x: Array, y: Array, v: Array, window: Window, beta: Number) -> Array:
    """Return sum_t exp(beta*(x_t - y)) * v_t of every window.

    Axis by axis around the largest x, the last step around y. `v` has the shape of x, y is the smooth maximum.
    """
    b, m, y = _absolute_beta(beta, x), _negate_if(x, beta), _negate_if(y, beta)
    *inner, outer = reduction_axes(window)
    for line in inner:
        m, v = _weighted_sum_along(line, b, m, v, None, (-math.inf, 0.0))
    return _weighted_sum_along(outer, b, m, v, y, (-math.inf, 0.0))[1]


def smooth_push(x: Array, y: Array, g: Array, window: Window, beta: Number) -> Array:
    """Return the adjoint of `smooth_pull` in v at g; weights exp(beta*(x_t - y)) are recomputed, so nothing is kept per
    tap.
    """
    return adjoint(lambda v: smooth_pull(x, y, v, window, beta), struct_like(g, x.shape), g)
