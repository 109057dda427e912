"""Writes convolutions and pools as ONNX nodes.

Padding is always explicit and ends where the last window ends, so neither auto_pad nor ceil_mode is used: runtimes
disagree about both. What one ONNX operator cannot say is written with several that can, exactly: other divisors as a
convolution with ones and a division, cells of different lengths as one slice each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....graph.graph import Node
from ....ops.sorting import tap_cells
from ....window import Adaptive, Shape, Window
from .writer import Writer, emits

MAX_TAPS = 1024  # slices of one smooth maximum


def _steps(window: Window) -> dict[str, list[int]]:
    """Return strides and dilations as ONNX attributes."""
    strides, dilations, *_ = window.steps()
    return {"strides": list(strides), "dilations": list(dilations)}


def _window_attributes(window: Window, pads: Any = None) -> dict[str, Any]:
    """Return the window as ONNX attributes; `pads` default to those that end at the last window."""
    pairs = window.pads if pads is None else pads
    listed = [lo for lo, _ in pairs] + [hi for _, hi in pairs]
    return {"kernel_shape": list(window.kernel), "pads": listed, **_steps(window)}


def _crop_to_windows(w: Writer, x: str, window: Window, value: float = 0) -> tuple[str, Any]:
    """Return the input x without cells behind the last window, and the padding that remains to be written.

    Where the last window ends before the input begins, the padding, of `value`, is written first: nothing else would be
    left.
    """
    pads, rank = window.pads, window.rank + 2
    if window.ends_inside:
        x = w.pad(x, [(0, min(hi, 0)) for _, hi in pads], rank)
        return x, tuple((lo, max(hi, 0)) for lo, hi in pads)
    x = w.pad(x, [(lo, 0) for lo, _ in pads], rank, value)
    return w.pad(x, [(0, hi) for _, hi in pads], rank, value), ((0, 0),) * window.rank


# --- convolution ------------------------------------------------------------------------------------------------


def _merge_batch(w: Writer, x: str, shape: Shape, rank: int) -> str:
    """Reshape the value x, of this shape, to (batch, C, *spatial) with `rank` spatial axes.

    Return the name of the result.
    """
    return w.reshape(x, shape, (math.prod(shape[: len(shape) - rank - 1]), *shape[len(shape) - rank - 1 :]))


@emits("conv")
def _conv(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `conv` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    window: Window = node.params["window"]
    x = _merge_batch(w, args[0], shapes[0], window.rank)
    x, pads = _crop_to_windows(w, x, window)
    y = w.emit("Conv", x, *args[1:], group=node.params["groups"], **_window_attributes(window, pads))
    batch = math.prod(shapes[0][: len(shapes[0]) - window.rank - 1])
    return w.reshape(y, (batch, *node.shape[len(node.shape) - window.rank - 1 :]), node.shape)


def _transposed_conv(
    w: Writer, x: str, shape: Shape, kernel: str, window: Window, bias: list[str], **given: Any
) -> str:
    """Write a transposed convolution of x with `kernel` to `shape`; cells that no window reaches hold the bias.

    `given` are further attributes. Returns the name of the result.
    """
    lacking = [(0, max(-hi, 0)) for _, hi in window.pads]
    if any(n <= lo for n, (lo, _) in zip(window.unpadded().size, window.pads, strict=True)):
        y = w.emit("Expand", w.number(0), w.ints(shape))  # the padding cuts everything off
    elif not any(map(any, lacking)):
        pads = [(lo, max(hi, 0)) for lo, hi in window.pads]
        return w.emit("ConvTranspose", x, kernel, *bias, **given, **_window_attributes(window, pads))
    else:
        pads = [(lo, max(hi, 0)) for lo, hi in window.pads]
        y = w.emit("ConvTranspose", x, kernel, **given, **_window_attributes(window, pads))
        y = w.pad(y, lacking, window.rank + 2)
    if not bias:
        return y
    return w.emit("Add", y, w.emit("Reshape", bias[0], w.ints([shape[1], *[1] * window.rank])))


@emits("conv_transpose")
def _conv_transpose(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `conv_transpose` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    window: Window = node.params["window"]
    x = _merge_batch(w, args[0], shapes[0], window.rank)
    batch = math.prod(shapes[0][: len(shapes[0]) - window.rank - 1])
    shape = (batch, *node.shape[len(node.shape) - window.rank - 1 :])
    y = _transposed_conv(w, x, shape, args[1], window, args[2:], group=node.params["groups"])
    return w.reshape(y, shape, node.shape)


@emits("conv_weight")
def _conv_weight(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `conv_weight` of the values `args`, of these shapes, as ONNX nodes; return the name of the result.

    A convolution whose batch is the channels and whose kernel is the cotangent: stride and dilation swap.
    """
    window, groups = node.params["window"], node.params["groups"]
    rank = window.rank
    if 0 in shapes[0]:
        return w.emit("Expand", w.number(0), w.ints(node.shape))  # a sum over no samples
    x, gy = (_merge_batch(w, a, s, rank) for a, s in zip(args, shapes, strict=True))
    order = [1, 0, *range(2, rank + 2)]
    x, pads = _crop_to_windows(w, x, window)
    x, gy = (w.emit("Transpose", v, perm=order) for v in (x, gy))
    steps = _steps(window)
    given = {"strides": steps["dilations"], "dilations": steps["strides"], "kernel_shape": list(window.out)}
    given["pads"] = [lo for lo, _ in pads] + [hi for _, hi in pads]
    c_in, c_out = (s[len(s) - rank - 1] // groups for s in shapes)
    parts = []
    for g in range(groups):
        xs = x if groups == 1 else w.slice(x, 0, g * c_in, (g + 1) * c_in)
        gs = gy if groups == 1 else w.slice(gy, 0, g * c_out, (g + 1) * c_out)
        parts.append(w.emit("Transpose", w.emit("Conv", xs, gs, **given), perm=order))
    return w.concat(parts, 0)


# --- cells of different lengths -----------------------------------------------------------------------------------


def _reduce_adaptive(w: Writer, x: str, window: Window, reduce: str) -> tuple[str, Window]:
    """Reduce every adaptive axis of the value x by the operator `reduce`, one slice per cell; return the name and the
    window that remains.
    """
    axes: list[Any] = []
    for number, axis in enumerate(window.axes):
        if not isinstance(axis, Adaptive):
            axes.append(axis)
            continue
        where = 2 + number
        parts = [w.slice(x, where, axis.start(o), axis.end(o)) for o in range(axis.out)]
        x = w.concat([w.emit(reduce, p, w.ints([where]), keepdims=1) for p in parts], where)
        axes.append(Window.single(axis.out))
    return x, Window(tuple(axes))


def _is_identity(window: Window) -> bool:
    """Return whether every output of a window reads the input cell at its own place: the window copies its input."""
    return set(window.kernel) == {1} and window.size == window.out and not window.pads_anything


# --- averages ---------------------------------------------------------------------------------------------------


def _divisor_array(window: Window, divisor: Any) -> np.ndarray | None:
    """Return the divisor of every output (at least 1), or None if it is one number."""
    if divisor not in ("padded", "inside"):
        return None
    counts = window.counted() if divisor == "padded" else window.inside()
    return np.asarray(np.maximum(counts.astype(float), 1))


def _is_native_average(window: Window, divisor: Any) -> bool:
    """Return whether ONNX's AveragePool computes averages over this window with exactly this divisor."""
    if any(isinstance(a, Adaptive) for a in window.axes) or min(map(min, window.pads)) < 0:
        return False
    wide = any(p >= k for pair, k in zip(window.pads, window.kernel, strict=True) for p in pair)
    if divisor == "inside":
        return not wide and not window.has_empty
    return not wide and divisor == "padded" and bool((window.counted() == window.taps_count).all())


def _write_window_sums(w: Writer, x: str, window: Window) -> str:
    """Write the sums over the windows of the value x, (N, 1, *spatial), and return the name of the result."""
    x, rest = _reduce_adaptive(w, x, window, "ReduceSum")
    if _is_identity(rest):
        return x
    x, pads = _crop_to_windows(w, x, rest)
    ones = w.array(np.ones((1, 1, *rest.kernel)))
    return w.emit("Conv", x, ones, **_window_attributes(rest, pads))


@emits("avg_pool")
def _avg_pool(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `avg_pool` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    window, divisor = node.params["window"], node.params["divisor"]
    x, shape = w.planes(args[0], shapes[0], window.rank)
    if _is_native_average(window, divisor):
        y = w.emit("AveragePool", x, count_include_pad=int(divisor == "padded"), **_window_attributes(window))
    else:
        counts = _divisor_array(window, divisor)
        y = _write_window_sums(w, x, window)
        if counts is None:
            y = y if divisor == 1 else w.emit("Div", y, w.number(divisor))
        else:
            y = w.emit("Div", y, w.array(counts if len(set(counts.flat)) > 1 else counts.flat[0]))
    return w.reshape(y, shape[:2] + window.out, node.shape)


@emits("avg_spread")
def _avg_spread(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `avg_spread` of the values `args`, of these shapes, as ONNX nodes: the adjoint: divide, then a transposed
    convolution with ones.

    UnsupportedError: cells of different lengths. Returns the name of the result.
    """
    window, divisor = node.params["window"], node.params["divisor"]
    if any(isinstance(a, Adaptive) for a in window.axes):
        return w.refuse(node, "over cells of different lengths is not written")
    x, shape = w.planes(args[0], shapes[0], window.rank)
    counts = _divisor_array(window, divisor)
    x = w.emit("Div", x, w.number(divisor) if counts is None else w.array(counts))
    ones = w.array(np.ones((1, 1, *window.kernel)))
    y = _transposed_conv(w, x, shape[:2] + window.size, ones, window, [])
    return w.reshape(y, shape[:2] + window.size, node.shape)


# --- maxima -----------------------------------------------------------------------------------------------------


def _empty_mask(w: Writer, window: Window) -> str:
    """Store the mask of windows with no tap inside, which give 0, and return its name."""
    return w.store(np.asarray(window.inside() == 0, dtype=bool))


@emits("max_pool")
def _max_pool(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `max_pool` of the values `args`, of these shapes, as ONNX nodes; return the name of the result.

    MaxPool; padding as wide as the kernel, which runtimes refuse, is written as cells of -inf.
    """
    window = node.params["window"]
    x, shape = w.planes(args[0], shapes[0], window.rank)
    x, rest = _reduce_adaptive(w, x, window, "ReduceMax")
    if not _is_identity(rest):
        x, pads = _crop_to_windows(w, x, rest, -math.inf)
        if any(p >= k for pair, k in zip(pads, rest.kernel, strict=True) for p in pair):
            x = w.pad(x, pads, rest.rank + 2, -math.inf)
            pads = ((0, 0),) * rest.rank
        x = w.emit("MaxPool", x, **_window_attributes(rest, pads))
    if window.has_empty:
        x = w.emit("Where", _empty_mask(w, window), w.number(0), x)
    return w.reshape(x, shape[:2] + window.out, node.shape)


@emits("winner")
def _winner(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `winner` of the values `args`, of these shapes, as ONNX nodes; return the name of the result.

    MaxPool's Indices count the planes too; the cells of the planes before are taken off again. UnsupportedError:
    windows that are not strided, with padding below the kernel and a cell each.
    """
    window = node.params["window"]
    pads = window.pads
    wide = any(not 0 <= p < k for pair, k in zip(pads, window.kernel, strict=True) for p in pair)
    if wide or window.has_empty or any(isinstance(a, Adaptive) for a in window.axes):
        return w.refuse(node, "is written only for strided windows with padding below the kernel")
    x, shape = w.planes(args[0], shapes[0], window.rank)
    _, indices = w.emit_many("MaxPool", [x], 2, _window_attributes(window))
    before = np.arange(shape[0], dtype=np.int64) * math.prod(window.size)
    y = w.emit("Sub", indices, w.store(before.reshape(-1, *[1] * (window.rank + 1))))
    return w.reshape(y, shape[:2] + window.out, node.shape)


@emits("smooth_max_pool")
def _smooth_max_pool(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `smooth_max_pool` of the values `args`, of these shapes, as ONNX nodes; return the name of the result.

    log(sum exp(beta*x)) / beta with one slice per tap, stacked: ReduceLogSumExp shifts by each window's maximum.
    UnsupportedError: more than MAX_TAPS taps, and windows that are not strided.
    """
    window, beta, padded = (node.params[k] for k in ("window", "beta", "padded"))
    if window.taps_count > MAX_TAPS or any(isinstance(a, Adaptive) for a in window.axes):
        return w.refuse(node, f"is written for strided windows of at most {MAX_TAPS} taps")
    x, shape = w.planes(args[0], shapes[0], window.rank)
    x = w.emit("Mul", x, w.number(beta))
    x = w.pad(x, window.pads, window.rank + 2, 0 if padded == "zero" else -math.inf)
    taps = []
    for tap in window.unpadded().taps():
        starts, stops, steps = zip(*((s.start, s.stop, s.step) for s in tap.slices()[1]), strict=True)
        axes = range(2, window.rank + 2)
        taps.append(w.emit("Slice", x, *map(w.ints, (starts, stops, axes, steps))))
    y = w.emit("ReduceLogSumExp", w.concat(taps, 1), w.ints([1]), keepdims=1)
    y = w.emit("Div", y, w.number(beta))
    if padded == "ignore" and window.has_empty:
        y = w.emit("Where", _empty_mask(w, window), w.number(0), y)
    return w.reshape(y, shape[:2] + window.out, node.shape)


@emits("median_pool")
def _median_pool(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `median_pool` of the values `args`, of these shapes, as ONNX nodes; return the name of the result.

    TopK of the taps, which Gather puts side by side; padded taps are +inf, behind every rank that is read.
    UnsupportedError: more than MAX_TAPS taps.
    """
    window = node.params["window"]
    if window.taps_count > MAX_TAPS:
        return w.refuse(node, f"is written for windows of at most {MAX_TAPS} taps")
    cells, ranks = tap_cells(window)
    cells, ranks, most = cells.reshape(len(cells), -1), ranks.reshape(1, 1, -1), int(ranks.max(initial=0))
    planes = math.prod(shapes[0][: len(shapes[0]) - window.rank])
    x = w.reshape(args[0], shapes[0], (planes, math.prod(window.size)))
    y = w.emit("Gather", x, w.store(np.maximum(cells, 0)), axis=1)
    if (cells < 0).any():
        y = w.emit("Where", w.store(cells < 0), w.number(math.inf), y)
    y = w.emit_many("TopK", [y, w.ints([most + 1])], 2, {"axis": 1, "largest": 0, "sorted": 1})[0]
    if (ranks == most).all():
        y = w.slice(y, 1, most, most + 1)
    else:
        where = w.emit("Expand", w.store(ranks), w.ints((planes, 1, ranks.size)))
        y = w.emit("GatherElements", y, where, axis=1)
    if window.has_empty:
        y = w.emit("Where", w.store(np.asarray((cells < 0).all(axis=0))), w.number(0), y)
    return w.reshape(y, (planes, 1, ranks.size), node.shape)
