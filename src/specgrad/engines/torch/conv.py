"""Convolution on PyTorch: its own operators for ranks 1 to 3, and higher ranks folded down to them.

Folding one axis away: the positions of its outputs join the batch and its taps join the channels, so a convolution of
rank d is one convolution of rank d-1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ...window import Shape, Window
from ..base import Kernel
from .log_step_pool import accumulate, pad_or_crop

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def split_first_axis(win: Window) -> tuple[Window, Window]:
    """Return the window of the first axis and that of the others."""
    return Window(win.axes[:1]), Window(win.axes[1:])


def one_batch_axis(x: Tensor, rank: int) -> Tensor:
    """Return (*batch, C, *spatial), with `rank` spatial axes, reshaped to (N, C, *spatial)."""
    return x.reshape((math.prod(x.shape[: x.ndim - rank - 1]), *x.shape[x.ndim - rank - 1 :]))


def native_conv(win: Window, groups: int) -> Kernel | None:
    """Return PyTorch's own convolution as a function (x, w, b); None if it does not take this window as it is."""
    native = win.steps()
    if win.rank > 3 or native.padding is None or native.ceil:
        return None
    nd, stride, padding, dilation = CONV[win.rank], native.stride, native.padding, native.dilation
    return lambda x, w, b=None: nd(x, w, b, stride, padding, dilation, groups)


def conv(x: Tensor, w: Tensor, b: Tensor | None, win: Window, groups: int) -> Tensor:
    """Return the convolution of x, (N, C, *spatial), with w and the bias b (or None), for any rank and padding of the
    window `win`.
    """
    if win.rank > 3:
        return _folded_conv(x, w, b, win, groups)
    native = win.steps()
    if native.padding is not None and not native.ceil:
        return CONV[win.rank](x, w, b, native.stride, native.padding, native.dilation, groups)
    return CONV[win.rank](pad_or_crop(x, win.pads), w, b, native.stride, 0, native.dilation, groups)


def _folded_conv(x: Tensor, w: Tensor, b: Tensor | None, win: Window, groups: int) -> Tensor:
    """Return a convolution by the window `win` as one of rank-1: outputs of the first axis join the batch, its taps the
    channels.

    b is the bias or None.
    """
    first, rest = split_first_axis(win)
    n, c = x.shape[:2]
    (k,), (out,) = first.kernel, first.out
    padded = pad_or_crop(x, (*first.pads, *((0, 0),) * rest.rank)).movedim(2, 1)  # (N, size, C, *rest)
    read = (tap.slices()[1][0] for tap in first.unpadded().taps())
    reads = torch.stack([padded[:, cells] for cells in read], 3)  # (N, out, C, k, *rest)
    folded = reads.reshape(n * out, c * k, *rest.size)
    y = conv(folded, w.reshape(w.shape[0], w.shape[1] * k, *rest.kernel), b, rest, groups)
    return y.view(n, out, *y.shape[1:]).movedim(1, 2)


def native_transpose(win: Window, groups: int) -> Kernel | None:
    """Return PyTorch's own transposed convolution by the window `win` as a function (x, w, b); None for unequal
    paddings.
    """
    extra = win.output_padding()
    if win.rank > 3 or extra is None:
        return None
    nd, padding, (stride, dilation, _, _) = CONV_TRANSPOSE[win.rank], win.low_padding(), win.steps()
    return lambda x, w, b=None: nd(x, w, b, stride, padding, extra, groups, dilation)


def conv_transpose(x: Tensor, w: Tensor, b: Tensor | None, win: Window, groups: int) -> Tensor:
    """Return the transposed convolution of x, (N, C, *win.out), with w and the bias b (or None), of sizes win.size."""
    if win.rank > 3:
        return _folded_transpose(x, w, b, win, groups)
    direct = native_transpose(win, groups)
    if direct is not None:
        y: Tensor = direct(x, w, b)
        return y
    native = win.steps()
    full: Tensor = CONV_TRANSPOSE[win.rank](x, w, None, native.stride, 0, 0, groups, native.dilation)
    y = pad_or_crop(full, win.crops)
    return y if b is None else y + b.view(-1, *(1,) * win.rank)


def _folded_transpose(x: Tensor, w: Tensor, b: Tensor | None, win: Window, groups: int) -> Tensor:
    """Return a transposed convolution by the window `win` as a sum over taps of the first axis of ones of rank-1.

    b is the bias or None.
    """
    first, rest = split_first_axis(win)
    n, (out,) = x.shape[0], first.out
    folded = x.movedim(2, 1).reshape(n * out, x.shape[1], *rest.out)
    y = x.new_zeros((n, *first.size, w.shape[1] * groups, *rest.size))
    for tap in first.taps():
        part = conv_transpose(folded, w[:, :, tap.position[0]], None, rest, groups)
        (outs,), (ins,) = tap.slices()
        part = part.view(n, out, *part.shape[1:])[:, outs]
        y = accumulate(y, (ins, *(slice(0, m) for m in y.shape[2:])), part)
    y = y.movedim(1, 2)
    return y if b is None else y + b.view(-1, *(1,) * win.rank)


def conv_weight(x: Tensor, gy: Tensor, win: Window, groups: int) -> Tensor:
    """Return the gradient of conv by the window `win` in its weight, (Cout, C/groups, *kernel); x, gy have one batch
    axis.
    """
    shape = (gy.shape[1], x.shape[1] // groups, *win.kernel)
    if win.rank > 3:
        return _folded_weight(x, gy, win, groups, shape)
    native = win.steps()
    pads = native.padding
    if pads is None or native.ceil:
        x, pads = pad_or_crop(x, win.pads), (0,) * win.rank
    weight = x.new_empty(1).expand(shape)
    nothing, wanted = (0,) * win.rank, (False, True, False)
    backward = torch.ops.aten.convolution_backward
    gw: Tensor
    _, gw, _ = backward(gy, x, weight, None, native.stride, pads, native.dilation, False, nothing, groups, wanted)
    return gw


def _folded_weight(x: Tensor, gy: Tensor, win: Window, groups: int, shape: Shape) -> Tensor:
    """Return the weight gradient, of `shape`, as one gradient of a convolution over the remaining axes per tap of the
    window's first axis.
    """
    first, rest = split_first_axis(win)
    parts = [x.new_zeros((*shape[:2], *rest.kernel))] * first.kernel[0]
    for tap in first.taps():
        (outs,), (ins,) = tap.slices()
        xs, gs = x.movedim(2, 1)[:, ins], gy.movedim(2, 1)[:, outs]
        xs, gs = (t.reshape(-1, *t.shape[2:]) for t in (xs, gs))
        parts[tap.position[0]] = conv_weight(xs, gs, rest, groups)
    return torch.stack(parts, 2)


# --- the lines ------------------------------------------------------------------------------------------------------


def lower_conv(x: Shape, w: Shape, *b: Shape, window: Window, groups: int) -> Kernel:
    """Return the kernel of conv for shapes x, w and perhaps b: PyTorch's own operator, or one for any rank, padding and
    batch axes.
    """
    native = native_conv(window, groups)
    if native is not None and len(x) == window.rank + 2:
        return native
    return _one_batch_axis(conv, x, window, groups)


def lower_conv_transpose(x: Shape, w: Shape, *b: Shape, window: Window, groups: int) -> Kernel:
    """Return the kernel of conv_transpose for shapes x, w and perhaps b: PyTorch's own operator, or one for any rank,
    padding and batch axes.
    """
    native = native_transpose(window, groups)
    if native is not None and len(x) == window.rank + 2:
        return native
    return _one_batch_axis(conv_transpose, x, window, groups)


def _one_batch_axis(convolve: Callable[..., Tensor], x: Shape, window: Window, groups: int) -> Kernel:
    """Return a kernel for any batch axes from `convolve`, which takes (N, C, *spatial)."""
    rank = window.rank
    if len(x) == rank + 2:
        return lambda t, v, u=None: convolve(t, v, u, window, groups)
    lead = x[: len(x) - rank - 1]

    def compute(t: Tensor, v: Tensor, u: Tensor | None = None) -> Tensor:
        y = convolve(one_batch_axis(t, rank), v, u, window, groups)
        return y.view(lead + y.shape[1:])

    return compute


def lower_conv_weight(x: Shape, gy: Shape, *, window: Window, groups: int) -> Kernel:
    """Return the kernel of conv_weight, the gradient of conv in its weight."""

    def compute(t: Tensor, g: Tensor) -> Tensor:
        if t.dtype != g.dtype:  # under autocast: the product has no cast of its own
            t, g = (v.to(torch.promote_types(t.dtype, g.dtype)) for v in (t, g))
        return conv_weight(one_batch_axis(t, window.rank), one_batch_axis(g, window.rank), window, groups)

    return compute


def lower_contract(x: Shape, z: Shape, *, spec: str) -> Kernel:
    """Return the kernel of the contraction `spec` (einsum text) for shapes x and z: F.linear where it is one, else
    torch.einsum.
    """
    ins, _, out = spec.partition("->")
    a, _, b = ins.partition(",")
    if len(b) == 2 and b[1] == a[-1] and out == a[:-1] + b[0]:
        return F.linear
    return lambda t, u: torch.einsum(spec, t, u)
