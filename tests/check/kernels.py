"""Kernels in plain NumPy, written from the contract without the library, each with faults that can be planted.

`kernel(..., fault="")` is right; a named fault makes one thing wrong. All arithmetic is float32.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

F32 = np.float32


def pairs(padding, fault=""):
    """Padding as (lo, hi) per axis."""
    if fault == "padding ignored":
        return [(0, 0)] * len(padding)
    return [(hi, lo) for lo, hi in padding] if fault == "padding sides swapped" else list(padding)


def count(n, k, s, e, lo, hi, ceil=False, fault=""):
    """How many windows; under ceil the last one must start before the high padding."""
    over = n + lo + hi - e * (k - 1) - 1
    if over < 0 and not ceil:
        raise NotImplementedError("a fault made the window too large")
    if not ceil or fault == "ceil ignored":
        return over // s + 1
    out = -(-over // s) + 1
    return out - 1 if (out - 1) * s >= n + lo and fault != "ceil keeps windows in the padding" else out


def to_bfloat16(x):
    bits = np.ascontiguousarray(x, F32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(F32)


def to_tf32(x):
    mantissa, exponent = np.frexp(np.asarray(x, np.float64))
    return np.ldexp(np.rint(mantissa * 2**11), exponent - 11).astype(F32)


# --- convolution ------------------------------------------------------------------------------------------------


def conv(x, w, b=None, *, stride=1, padding=0, dilation=1, groups=1, fault=""):
    rank, kernel = w.ndim - 2, w.shape[2:]
    stride, dilation = np.broadcast_to(stride, rank), np.broadcast_to(dilation, rank)
    if fault == "dilation ignored" and max(dilation) > 1:
        dilation = np.ones(rank, int)
    if fault == "first stride for every axis":
        stride = np.full(rank, stride[0])
    if fault == "kernel flipped":
        w = w[(slice(None), slice(None)) + (slice(None, None, -1),) * rank]
    if fault == "operands in bfloat16":
        x, w = to_bfloat16(x), to_bfloat16(w)
    if fault == "operands in TF32":
        x, w = to_tf32(x), to_tf32(w)
    pads = pairs(padding, fault)
    if fault == "Winograd F(4x4,3x3)" and kernel == (3, 3) and set(stride) | set(dilation) | {groups} == {1}:
        return add_bias(winograd(np.pad(x, [(0, 0), (0, 0), *pads]), w), b, fault)
    out = [count(*a) for a in zip(x.shape[2:], kernel, stride, dilation, *zip(*pads, strict=True), strict=True)]
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    y = np.zeros((x.shape[0], w.shape[0], *out), F32)
    outs, ins = w.shape[0] // groups, w.shape[1]
    for o in range(w.shape[0]):
        group = o % groups if fault == "groups interleaved" else o // outs
        for c, tap in itertools.product(range(ins), itertools.product(*map(range, kernel))):
            if fault == "last tap dropped" and tap == tuple(k - 1 for k in kernel) and w[0, 0].size > 1:
                continue
            if fault == "last channel dropped" and c == ins - 1 and ins > 1:
                continue
            at = reach(tap, dilation, stride, out)
            y[:, o] += w[(o, c, *tap)] * padded[(slice(None), group * ins + c, *at)]
            if fault == "accumulation in bfloat16":
                y[:, o] = to_bfloat16(y[:, o])
            if fault == "one accumulation in bfloat16" and c == 0 and not any(tap):
                y[:, o] = to_bfloat16(y[:, o])
    if fault == "last row uninitialised":
        y[:, :, -1] = 0.125
    if fault == "relative error of 2**-16":
        y *= F32(1 + 2**-16)
    return add_bias(y, b, fault)


def reach(tap, dilation, stride, out):
    """The cells of the padded input that one tap reads, over all outputs."""
    starts = [e * t for e, t in zip(dilation, tap, strict=True)]
    return tuple(slice(a, a + s * (m - 1) + 1, s) for a, s, m in zip(starts, stride, out, strict=True))


def add_bias(y, b, fault=""):
    if b is None or fault == "bias dropped":
        return y
    per = b.reshape(-1, *(1,) * (y.ndim - 2))
    return y + per + per if fault == "bias added twice" else y + per


B = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
    F32,
)
G = np.array(
    [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]],
    F32,
) / F32(24)
A = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], F32)


def winograd(padded, w):
    """3 x 3 correlation by tiles of 4 x 4 outputs (Lavin and Gray 2016)."""
    n, _, height, width = padded.shape
    rows, cols = height - 2, width - 2
    y = np.zeros((n, w.shape[0], -(-rows // 4) * 4, -(-cols // 4) * 4), F32)
    padded = np.pad(padded, [(0, 0), (0, 0), (0, y.shape[2] + 2 - height), (0, y.shape[3] + 2 - width)])
    u = np.einsum("ai,ocij,bj->ocab", G, w, G).astype(F32)
    for i, j in itertools.product(range(0, y.shape[2], 4), range(0, y.shape[3], 4)):
        v = np.einsum("ai,ncij,bj->ncab", B, padded[:, :, i : i + 6, j : j + 6], B).astype(F32)
        m = np.einsum("ocab,ncab->noab", u, v).astype(F32)
        y[:, :, i : i + 4, j : j + 4] = np.einsum("ai,noij,bj->noab", A, m, A)
    return y[:, :, :rows, :cols]


def conv_transpose(x, w, b=None, *, stride=1, padding=0, dilation=1, groups=1, output_padding=0, fault=""):
    rank, kernel = w.ndim - 2, w.shape[2:]
    stride, dilation = np.broadcast_to(stride, rank), np.broadcast_to(dilation, rank)
    extra = np.broadcast_to(output_padding, rank)
    if fault == "kernel flipped":
        w = w[(slice(None), slice(None)) + (slice(None, None, -1),) * rank]
    pads = pairs(padding, fault)
    if fault == "output_padding on the low side":
        pads = [(lo - p, hi + p) for (lo, hi), p in zip(pads, extra, strict=True)]
    spans = [s * (n - 1) + e * (k - 1) + 1 for n, k, s, e in zip(x.shape[2:], kernel, stride, dilation, strict=True)]
    room = [span + int(p) for span, p in zip(spans, extra, strict=True)]
    low = [max(0, -lo) for lo, _ in pads]
    y = np.zeros((x.shape[0], w.shape[1] * groups, *(r + q for r, q in zip(room, low, strict=True))), F32)
    ins, outs = w.shape[0] // groups, w.shape[1]
    for c, o in itertools.product(range(w.shape[0]), range(outs)):
        group = c % groups if fault == "groups interleaved" else c // ins
        for tap in itertools.product(*map(range, kernel)):
            shift = tap if fault != "dilation ignored" else tuple(t / e for t, e in zip(tap, dilation, strict=True))
            starts = [int(e * t) + q for e, t, q in zip(dilation, shift, low, strict=True)]
            at = tuple(slice(a, a + s * (n - 1) + 1, s) for a, s, n in zip(starts, stride, x.shape[2:], strict=True))
            term = w[(c, o, *tap)] * x[:, c]
            if fault == "overlap overwritten":
                y[(slice(None), group * outs + o, *at)] = term
            else:
                y[(slice(None), group * outs + o, *at)] += term
    crop = tuple(slice(max(lo, 0), r + max(0, -lo) - hi) for (lo, hi), r in zip(pads, room, strict=True))
    return add_bias(y[(slice(None), slice(None), *crop)], b, fault)


# --- pooling ----------------------------------------------------------------------------------------------------


def windows(x, kernel, stride, padding, dilation, ceil, fault):
    """Per output position: the flat input positions inside, and how many cells the padded window has."""
    rank = len(kernel)
    sizes = x.shape[-rank:]
    stride = kernel if fault == "stride is the kernel" else np.broadcast_to(kernel if stride is None else stride, rank)
    dilation = np.broadcast_to(1 if fault == "dilation ignored" else dilation, rank)
    pads = pairs(padding, fault)
    axes = list(zip(sizes, kernel, stride, dilation, *zip(*pads, strict=True), strict=True))
    out = [count(*a, ceil, fault) for a in axes]
    for p in itertools.product(*map(range, out)):
        taps = [[s * o + e * t - lo for t in range(k)] for o, (_, k, s, e, lo, _) in zip(p, axes, strict=True)]
        inside = [[i for i in cells if 0 <= i < n] for cells, n in zip(taps, sizes, strict=True)]
        counted = [sum(-a[4] <= i < a[0] + a[5] for i in cells) for cells, a in zip(taps, axes, strict=True)]
        if not all(inside) and fault != "ceil keeps windows in the padding":
            raise NotImplementedError("a fault made a window empty")
        flat = [int(np.ravel_multi_index(i, sizes)) for i in itertools.product(*inside)]
        yield p, tuple(out), flat, math.prod(counted), all(len(c) == k for c, k in zip(inside, kernel, strict=True))


def pool(x, kernel, stride, padding, dilation, ceil, fault, cell):
    """cell(values of the inside taps, flat positions, padded count, is the window whole) for every window."""
    rank = len(kernel)
    flat = x.reshape(*x.shape[: x.ndim - rank], -1)
    y = None
    for p, out, positions, counted, whole in windows(x, kernel, stride, padding, dilation, ceil, fault):
        if y is None:
            y = np.zeros((*flat.shape[:-1], *out), F32)
        y[(..., *p)] = cell(flat[..., positions], positions, counted, whole)
    if fault == "last row uninitialised":
        y.reshape(-1)[-1] = 0.125
    return y


def max_pool(x, *, kernel, stride=None, padding=0, dilation=1, ceil=False, fault=""):
    def cell(v, positions, counted, whole):
        if not positions:
            return F32(-3.4028235e38)
        if fault == "padding counts as zero" and not whole:
            v = np.concatenate([v, np.zeros_like(v[..., :1])], -1)
        if fault == "NaN dropped":
            v = np.where(np.isnan(v), F32(-np.inf), v)
        if fault == "NaN kept only in the last place":
            v = np.where(np.isnan(v) & (np.arange(v.shape[-1]) < v.shape[-1] - 1), F32(-3.4028235e38), v)
        if fault == "-inf becomes -FLT_MAX":
            v = np.maximum(v, F32(-3.4028235e38))
        if fault == "maximum starts at zero":
            return np.maximum(v.max(-1), 0)
        return v.max(-1)

    return pool(x, kernel, stride, padding, dilation, ceil, fault, cell)


def max_pool_indices(x, *, kernel, stride=None, padding=0, dilation=1, ceil=False, fault=""):
    def winner(v, positions, counted, whole):
        found = v.argmax(-1)
        if fault == "ties to the last":
            found = v.shape[-1] - 1 - v[..., ::-1].argmax(-1)
        return np.array(positions)[found]

    y = max_pool(x, kernel=kernel, stride=stride, padding=padding, dilation=dilation, ceil=ceil, fault=fault)
    i = pool(x, kernel, stride, padding, dilation, ceil, fault, winner).astype(np.int64)
    if fault == "indices counted over channels":
        i = i + np.arange(x.shape[1]).reshape(-1, *(1,) * len(kernel)) * x[0, 0].size
    return y, i


def avg_divisor(fault, counted, inside, kernel, count_include_pad, divisor):
    if divisor is not None and fault != "divisor ignored":
        return divisor
    if fault == "always the kernel":
        return math.prod(kernel)
    if fault == "count_include_pad ignored":
        return counted
    if fault == "padding never counted" or not count_include_pad:
        return inside
    return math.prod(kernel) if fault == "whole kernel under ceil" else counted


def avg_pool(x, *, kernel, stride=None, padding=0, ceil=False, count_include_pad=True, divisor=None, fault=""):
    def cell(v, positions, counted, whole):
        by = avg_divisor(fault, counted, len(positions), kernel, count_include_pad, divisor)
        return v.sum(-1, dtype=F32) / F32(by)

    return pool(x, kernel, stride, padding, 1, ceil, fault, cell)


def lp_pool(x, *, kernel, stride=None, padding=0, dilation=1, ceil=False, p=2, fault=""):
    def cell(v, positions, counted, whole):
        v = v.astype(np.float64) if fault == "no absolute values" else np.abs(v.astype(np.float64))
        power = 2 if fault == "p is always 2" else p
        with np.errstate(invalid="ignore"):
            return ((v**power).sum(-1) ** (1 / power)).astype(F32)

    return pool(x, kernel, stride, padding, dilation, ceil, fault, cell)


def adaptive(x, output, combine, fault):
    rank, sizes = len(output), x.shape[-len(output) :]
    y = np.zeros((*x.shape[: x.ndim - rank], *output), F32)
    for p in itertools.product(*map(range, output)):
        at = []
        for o, n, m in zip(p, sizes, output, strict=True):
            end = (o + 1) * n // m if fault == "cell ends rounded down" else -(-(o + 1) * n // m)
            start = -(-o * n // m) if fault == "cell starts rounded up" else o * n // m
            at.append(slice(start, max(end, start + 1)))
        y[(..., *p)] = combine(x[(..., *at)].reshape(*x.shape[: x.ndim - rank], -1))
    return y


def adaptive_avg_pool(x, *, output, fault=""):
    return adaptive(x, output, lambda v: v.sum(-1, dtype=F32) / F32(v.shape[-1]), fault)


def adaptive_max_pool(x, *, output, fault=""):
    return adaptive(x, output, lambda v: v.max(-1), fault)


def global_max_pool(x, *, rank, fault=""):
    axes = tuple(range(1 if fault == "channels reduced too" else 2, x.ndim))
    y = x.max(axes, keepdims=True)
    return np.maximum(y, 0) if fault == "maximum starts at zero" else y


def global_avg_pool(x, *, rank, fault=""):
    cells = x[0, 0].size
    return x.sum(tuple(range(2, x.ndim)), dtype=F32, keepdims=True) / F32(cells + (fault == "divisor off by one"))


# --- the rest ---------------------------------------------------------------------------------------------------


def relu(x, *, fault=""):
    return np.where(x > 0, x, F32(0)) if fault == "NaN dropped" else np.maximum(x, 0)


def leaky_relu(x, *, slope, fault=""):
    return np.where(x > 0, x, F32(0.01 if fault == "slope is always 0.01" else slope) * x)


def clamp(x, *, low, high, fault=""):
    y = np.minimum(np.maximum(x, F32(low)), F32(high))
    return np.nan_to_num(y, nan=low) if fault == "NaN dropped" else y


def softmax(x, *, axis, fault=""):
    with np.errstate(all="ignore"):
        e = np.exp(x if fault == "no shift by the maximum" else x - x.max(axis, keepdims=True))
        return e / e.sum(-1 if fault == "always the last axis" else axis, keepdims=True, dtype=F32)


def sigmoid(x, *, fault=""):
    with np.errstate(all="ignore"):
        if fault == "fast approximation":
            return (0.5 + 0.5 * np.tanh(x / 2) * (1 + 2e-5)).astype(F32)
        return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(F32)


def batch_norm(x, mean, var, weight, bias, *, eps, fault=""):
    per = (1, -1, *(1,) * (x.ndim - 2))
    spread = var + F32(0 if fault == "eps ignored" else eps)
    scale = weight / (spread if fault == "variance taken for deviation" else np.sqrt(spread))
    return (x - mean.reshape(per)) * scale.reshape(per) + bias.reshape(per)


def upsample_nearest(x, *, factor, fault=""):
    for axis, f in enumerate(factor, start=2):
        where = np.arange(x.shape[axis] * f)
        where = (where + 1) // f if fault == "rounded to the nearest centre" else where // f
        x = np.take(x, np.minimum(where, x.shape[axis] - 1), axis)
    return x


def linear(x, w, b=None, *, fault=""):
    if fault == "operands in bfloat16":
        x, w = to_bfloat16(x), to_bfloat16(w)
    y = np.zeros((x.shape[0], w.shape[0]), F32)
    for i in range(x.shape[1] - (fault == "last term dropped" and x.shape[1] > 1)):
        y += x[:, i : i + 1] * w[:, i]
    return add_bias(y, b, fault)


# --- gradients --------------------------------------------------------------------------------------------------


def max_pool_gradient(g, x, *, kernel, stride=None, padding=0, dilation=1, ceil=False, fault=""):
    rank = len(kernel)
    lead = x.shape[: x.ndim - rank]
    flat, gx = x.reshape(*lead, -1), np.zeros((math.prod(lead), math.prod(x.shape[x.ndim - rank :])), F32)
    for p, _, positions, _, _ in windows(x, kernel, stride, padding, dilation, ceil, fault):
        v = flat[..., positions].reshape(len(gx), -1)
        gy = g[(..., *p)].reshape(-1)
        best = v.argmax(-1) if fault != "ties to the last" else v.shape[-1] - 1 - v[:, ::-1].argmax(-1)
        for row in range(len(gx)):
            ties = np.flatnonzero(v[row] == v[row].max()) if fault == "every tie receives it" else [best[row]]
            for t in ties:
                if fault == "overlapping windows overwrite":
                    gx[row, positions[t]] = gy[row]
                else:
                    gx[row, positions[t]] += gy[row]
    return [gx.reshape(x.shape)]


def avg_pool_gradient(
    g, x, *, kernel, stride=None, padding=0, ceil=False, count_include_pad=True, divisor=None, fault=""
):
    rank = len(kernel)
    gx = np.zeros((*x.shape[: x.ndim - rank], math.prod(x.shape[x.ndim - rank :])), F32)
    for p, _, positions, counted, _ in windows(x, kernel, stride, padding, 1, ceil, fault):
        by = avg_divisor(fault, counted, len(positions), kernel, count_include_pad, divisor)
        for i in positions:
            gx[..., i] += g[(..., *p)] / F32(by)
    return [gx.reshape(x.shape)]


def linear_gradient(g, x, w, b=None, *, fault=""):
    gw = (g[:1].T @ x[:1] if fault == "only the first sample" else g.T @ x).astype(F32)
    gb = g.mean(0) if fault == "mean over the batch" else g.sum(0, dtype=F32)
    return [(g @ w).astype(F32), gw, *([] if b is None else [gb.astype(F32)])]


def relu_gradient(g, x, *, fault=""):
    return [np.where(x >= 0 if fault == "passes at zero" else x > 0, g, F32(0))]


def conv_gradient(g, x, w, b=None, *, stride=1, padding=0, dilation=1, groups=1, fault=""):
    rank, kernel = w.ndim - 2, w.shape[2:]
    stride, dilation = np.broadcast_to(stride, rank), np.broadcast_to(dilation, rank)
    pads = pairs(padding)
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    gp, gw = np.zeros_like(padded), np.zeros_like(w)
    outs, ins = w.shape[0] // groups, w.shape[1]
    for o, c in itertools.product(range(w.shape[0]), range(ins)):
        channel = o // outs * ins + c
        for tap in itertools.product(*map(range, kernel)):
            at = reach(tap, dilation, stride, g.shape[2:])
            gp[(slice(None), channel, *at)] += w[(o, c, *tap)] * g[:, o]
            gw[(o, c, *tap)] = (padded[(slice(None), channel, *at)] * g[:, o]).sum(dtype=F32)
    if fault == "gradient of padded cells leaked":
        gp = np.pad(padded_fold(gp, pads), [(0, 0), (0, 0), *pads])
    if fault == "weight gradient flipped":
        gw = gw[(slice(None), slice(None)) + (slice(None, None, -1),) * rank]
    inner = tuple(slice(lo, lo + n) for (lo, _), n in zip(pads, x.shape[2:], strict=True))
    gb = g.sum((0, *range(2, g.ndim)), dtype=F32)
    if fault == "bias gradient of the last sample":
        gb = g[-1].sum(tuple(range(1, g.ndim - 1)), dtype=F32)
    return [gp[(slice(None), slice(None), *inner)], gw, *([] if b is None else [gb])]


def padded_fold(gp, pads):
    """What falls on padding is added to the nearest cell instead of being lost."""
    for axis, (lo, hi) in enumerate(pads, start=2):
        gp = np.moveaxis(gp, axis, 0).copy()
        inner = gp[lo : len(gp) - hi]
        inner[0] += gp[:lo].sum(0)
        inner[-1] += gp[len(gp) - hi :].sum(0)
        gp = np.moveaxis(inner, 0, axis)
    return gp
