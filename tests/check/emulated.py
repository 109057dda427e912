"""Ten small networks in plain NumPy, in every class of arithmetic, with faults that can be planted in a layer.

Nothing here is the library's. A layer is a kind, its arrays and its attributes; `run` executes a network layer by layer
in a class of arithmetic and keeps what every layer read and wrote.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "hunt"))
import tiles

F32 = np.float32
POINTS = {
    "winograd-f2": (2, ("0", "1", "-1")),
    "winograd-f4": (4, ("0", "1", "-1", "2", "-2")),
    "winograd-f6": (6, ("0", "1", "-1", "2", "-2", "1/2", "-1/2")),
}
ARITHMETICS = (
    "float32", "tf32", "tf32 cut off", "float16-operands", "bfloat16-operands", "float16", "bfloat16",
    *POINTS, "float16-sums", "bfloat16-sums",
)  # fmt: skip
FAULTS = ("wrong pad", "lost divisor", "lost bias", "wrong dilation", "wrong eps", "some weights", "last row lost")


@dataclass
class Layer:
    kind: str
    arrays: dict = field(default_factory=dict)
    stride: tuple = (1, 1)
    pad: int = 0
    dilation: int = 1
    groups: int = 1
    other: int = -1
    """For add: how many layers ago the second summand was written."""


# --- numbers ----------------------------------------------------------------------------------------------------------


def bfloat16(x):
    bits = np.ascontiguousarray(x, F32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(F32)


def float16(x):
    return np.asarray(x, F32).astype(np.float16).astype(F32)


def tf32(x):
    bits = np.ascontiguousarray(x, F32).view(np.uint32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000).astype(np.uint32).view(F32)


def tf32_cut(x):
    return (np.ascontiguousarray(x, F32).view(np.uint32) & np.uint32(0xFFFFE000)).view(F32)


def same(x):
    return np.asarray(x, F32)


FACTOR = {"tf32": tf32, "tf32 cut off": tf32_cut, "float16-operands": float16, "bfloat16-operands": bfloat16}
FACTOR |= {f"{n}{end}": f for n, f in (("float16", float16), ("bfloat16", bfloat16)) for end in ("", "-sums")}
STORE = {f"{n}{end}": f for n, f in (("float16", float16), ("bfloat16", bfloat16)) for end in ("", "-sums")}
PARTIAL = {"float16-sums": float16, "bfloat16-sums": bfloat16}

# --- layers -----------------------------------------------------------------------------------------------------------


def conv(layer, x, name, fault):
    factor, partial = FACTOR.get(name, same), PARTIAL.get(name, same)
    w, b = factor(layer.arrays["w"]), layer.arrays["b"] * F32(fault != "lost bias")
    if fault == "some weights":
        w = w.copy()
        w.reshape(-1)[::5] = factor(w.reshape(-1)[::5] + F32(0.02))
    dilation = layer.dilation + (fault == "wrong dilation")
    lo = hi = layer.pad + (fault == "wrong dilation") * (w.shape[-1] // 2)
    if fault == "wrong pad":
        lo, hi = lo - 1, hi + 1
    cells = np.pad(factor(x), [(0, 0), (0, 0), (lo, hi), (lo, hi)])
    usual = name in POINTS and w.shape[2:] == (3, 3) and (*layer.stride, dilation) == (1, 1, 1)
    ins, outs = w.shape[1], w.shape[0] // layer.groups
    parts = [(cells[:, g * ins : (g + 1) * ins], w[g * outs : (g + 1) * outs]) for g in range(layer.groups)]
    sums = [tiled(c, v, name) if usual else direct(c, v, layer.stride, dilation, partial) for c, v in parts]
    return partial(np.concatenate(sums, 1) + b[:, None, None])


def tiled(cells, w, name):
    m, texts = POINTS[name]
    points, rng = tuple(map(Fraction, texts)), np.random.default_rng(0)
    return np.stack([tiles.winograd(c, w, ((0, 0), (0, 0)), m, points, (0, 0), rng) for c in cells])


def direct(cells, w, stride, dilation, partial):
    k = w.shape[-1]
    high, wide = ((n - dilation * (k - 1) - 1) // s + 1 for n, s in zip(cells.shape[2:], stride, strict=True))
    y = np.zeros((cells.shape[0], w.shape[0], high, wide), F32)
    for c, i, j in itertools.product(range(w.shape[1]), range(k), range(k)):
        rows = slice(i * dilation, i * dilation + stride[0] * (high - 1) + 1, stride[0])
        columns = slice(j * dilation, j * dilation + stride[1] * (wide - 1) + 1, stride[1])
        y = partial(y + w[:, c, i, j][:, None, None] * cells[:, c : c + 1, rows, columns])
    return y


def linear(layer, x, name, fault):
    factor, partial = FACTOR.get(name, same), PARTIAL.get(name, same)
    w, b = factor(layer.arrays["w"]), layer.arrays["b"] * F32(fault != "lost bias")
    if fault == "some weights":
        w = factor(w + F32(0.02) * (np.arange(w.size).reshape(w.shape) % 5 == 0))
    x, y = factor(x), np.zeros((x.shape[0], w.shape[0]), F32)
    for k in range(w.shape[1]):
        y = partial(y + x[:, k : k + 1] * w[:, k])
    return partial(y + b)


def avg_pool(layer, x, name, fault):
    partial, y = PARTIAL.get(name, same), None
    for i, j in itertools.product(range(2), range(2)):
        cells = x[:, :, i : i + 2 * (x.shape[2] // 2) : 2, j : j + 2 * (x.shape[3] // 2) : 2]
        y = cells if y is None else partial(y + cells)
    return partial(y / F32(1 if fault == "lost divisor" else 3))


def max_pool(layer, x, name, fault):
    n, c, h, w = x.shape
    return x[:, :, : h // 2 * 2, : w // 2 * 2].reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


def batch_norm(layer, x, name, fault):
    a = {k: v[:, None, None] for k, v in layer.arrays.items()}
    root = np.sqrt(a["var"] + F32(1e-3 if fault == "wrong eps" else 1e-5))
    return (x - a["mean"]) / root * a["weight"] + a["bias"]


def relu(layer, x, name, fault):
    return np.maximum(x, 0)


def flatten(layer, x, name, fault):
    return x.reshape(x.shape[0], -1)


KINDS = {f.__name__: f for f in (conv, linear, avg_pool, max_pool, batch_norm, relu, flatten)}


def run(network: list[Layer], x: np.ndarray, name: str, fault: str = "", at: int = -1) -> list[np.ndarray]:
    """What every layer wrote, the input first."""
    store, seen = STORE.get(name, same), [x]
    for i, layer in enumerate(network):
        planted = fault if i == at else ""
        if layer.kind == "add":
            y = seen[-1] + seen[layer.other]
        else:
            y = KINDS[layer.kind](layer, seen[-1], name, planted)
        y = store(y)
        if planted == "last row lost":
            y = y.copy()
            y[..., -1, :] = y[..., -2, :]
        seen.append(y)
    return seen


# --- networks ---------------------------------------------------------------------------------------------------------


def networks(rng: np.random.Generator) -> dict[str, list[Layer]]:
    def c(cin, cout, k=3, stride=(1, 1), pad=None, dilation=1, groups=1):
        w = rng.normal(size=(cout, cin // groups, k, k)) / np.sqrt(cin // groups * k * k)
        if k == 3:
            w[::2, :, 1, :] = 0  # filters of edges: where F(2,3) can be told from direct sums
        b = rng.choice((-1, 1), cout) * rng.uniform(0.2, 0.6, cout)
        pad = dilation * (k // 2) if pad is None else pad
        return Layer("conv", {"w": w.astype(F32), "b": b.astype(F32)}, stride, pad, dilation, groups)

    def n(channels):
        draw = {"mean": rng.normal(size=channels), "var": rng.uniform(0.2, 1.5, channels)}
        draw |= {"weight": rng.uniform(0.5, 1.5, channels), "bias": rng.normal(size=channels)}
        return Layer("batch_norm", {k: v.astype(F32) for k, v in draw.items()})

    def head(cin, cout):
        w, b = rng.normal(size=(cout, cin)) / np.sqrt(cin), rng.uniform(0.2, 0.6, cout)
        return Layer("linear", {"w": w.astype(F32), "b": b.astype(F32)})

    r, a, m, f = Layer("relu"), Layer("avg_pool"), Layer("max_pool"), Layer("flatten")
    return {
        "plain": [c(3, 6), r, c(6, 6), r, c(6, 4)],
        "pooled": [c(3, 6), r, m, c(6, 8), r, a],
        "strided": [c(3, 6, stride=(2, 2)), r, c(6, 6, stride=(1, 2)), r, c(6, 4)],
        "grouped": [c(3, 8), r, c(8, 8, groups=2), r, c(8, 6, groups=2)],
        "depthwise": [c(3, 6), c(6, 6, groups=6), r, c(6, 8, k=1), r],
        "residual": [c(3, 6), r, c(6, 6), r, c(6, 6), Layer("add", other=-3), r],
        "head": [c(3, 4), r, m, c(4, 4), r, m, f, head(36, 10)],
        "normed": [c(3, 6), n(6), r, c(6, 6), n(6), r, a],
        "dilated": [c(3, 6, dilation=2), r, c(6, 6, dilation=1), r, a],
        "valid": [c(3, 6, pad=0), r, c(6, 6, pad=0), a, c(6, 4, k=5)],
    }


def image(rng: np.random.Generator, spiked: bool) -> np.ndarray:
    x = rng.normal(size=(1, 3, 12, 12))
    if spiked:  # what tiles are seen by
        x[0, :, 2, 3] *= 2.0**16
    return x.astype(F32)
