"""Our JAX lowerings against bare JAX on CPU: forward, and forward with the gradients of all arguments.

    python benchmarks/jax_ops.py [part of a name ...] | tee benchmarks/jax_ops.txt

Both sides are jitted, run in one process on one thread and in turn, and compute the same results (checked). Each figure
is the smallest CPU time of several repetitions; the ratio is bare JAX over ours. These rows justify the choices in
`specgrad/engines/jax/pool.py` and `conv.py`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import specgrad as sg

Function = Callable[..., jax.Array]


@dataclass
class Row:
    """One comparison: a name, both sides as functions of the same arrays, the shapes, and the ratio we aim at."""

    name: str
    bare: Function
    ours: Function
    shapes: tuple[tuple[int, ...], ...]
    target: float | None = None


# --- what bare JAX offers ---------------------------------------------------------------------------------------


def bare_pool(x: jax.Array, *, join: Any, start: float, k: int, s: int, p: int = 0) -> jax.Array:
    window, stride = (1, 1, k, k), (1, 1, s, s)
    return lax.reduce_window(x, start, join, window, stride, ((0, 0), (0, 0), (p, p), (p, p)))


def bare_conv(x: jax.Array, w: jax.Array, *, stride: int = 1, padding: int = 0, groups: int = 1) -> jax.Array:
    rank = x.ndim - 2
    return lax.conv_general_dilated(x, w, (stride,) * rank, ((padding, padding),) * rank, feature_group_count=groups)


def bare_transpose(x: jax.Array, w: jax.Array, *, stride: int, padding: int) -> jax.Array:
    """The transpose of a convolution as everyone writes it: the input dilated by the stride, the kernel flipped."""
    rank = x.ndim - 2
    flipped = jnp.flip(jnp.swapaxes(w, 0, 1), tuple(range(2, w.ndim)))
    pads = tuple((k - 1 - padding, k - 1 - padding) for k in w.shape[2:])
    return lax.conv_general_dilated(x, flipped, (1,) * rank, pads, lhs_dilation=(stride,) * rank)


def ours_conv(x: jax.Array, w: jax.Array, **how: int) -> jax.Array:
    return sg.conv(w, None, x, **how)


def ours_transpose(x: jax.Array, w: jax.Array, **how: int) -> jax.Array:
    return sg.conv_transpose(w, None, x, **how)


# --- the rows ---------------------------------------------------------------------------------------------------

PLANES = (8, 64, 128, 128)


def max_pool(k: int, s: int, target: float | None, p: int = 0) -> Row:
    bare = partial(bare_pool, join=lax.max, start=-np.inf, k=k, s=s, p=p)
    ours = lambda x: sg.max_pool(x, (k, k), stride=s, padding=p)
    return Row(f"max_pool k{k} s{s}" + (f" p{p}" if p else ""), bare, ours, (PLANES,), target)


def avg_pool(k: int, s: int) -> Row:
    def bare(x: jax.Array) -> jax.Array:
        return bare_pool(x, join=lax.add, start=0.0, k=k, s=s) / (k * k)

    return Row(f"avg_pool k{k} s{s}", bare, lambda x: sg.avg_pool(x, (k, k), stride=s), (PLANES,))


def conv(name: str, x: tuple[int, ...], w: tuple[int, ...], target: float | None = None, **how: int) -> Row:
    return Row(name, partial(bare_conv, **how), partial(ours_conv, **how), (x, w), target)


def transpose(name: str, x: tuple[int, ...], w: tuple[int, ...], target: float | None = None, **how: int) -> Row:
    return Row(name, partial(bare_transpose, **how), partial(ours_transpose, **how), (x, w), target)


ROWS = [
    max_pool(2, 1, 4),
    max_pool(3, 1, 4),
    max_pool(5, 1, 3),
    max_pool(9, 1, 3),
    max_pool(2, 2, 4),
    max_pool(3, 2, None),
    max_pool(3, 2, None, 1),
    max_pool(4, 1, None),
    max_pool(3, 3, None),
    avg_pool(2, 2),
    avg_pool(3, 1),
    avg_pool(9, 1),
    conv("conv 3x3", (8, 64, 32, 32), (64, 64, 3, 3), padding=1),
    conv("conv 3x3 s2", (8, 64, 32, 32), (128, 64, 3, 3), padding=1, stride=2),
    conv("conv 1x1", (8, 64, 56, 56), (256, 64, 1, 1)),
    conv("conv 1x1 s2", (8, 64, 56, 56), (128, 64, 1, 1), stride=2),
    conv("conv 1x1 few cells", (8, 960, 4, 4), (160, 960, 1, 1)),
    conv("depthwise 3x3", (8, 64, 56, 56), (64, 1, 3, 3), 4, padding=1, groups=64),
    conv("depthwise 5x5", (8, 64, 56, 56), (64, 1, 5, 5), 4, padding=2, groups=64),
    conv("groups=32", (4, 128, 28, 28), (128, 4, 3, 3), 15, padding=1, groups=32),
    conv("groups=32 s2", (2, 256, 28, 28), (256, 8, 3, 3), padding=1, stride=2, groups=32),
    conv("groups=32 wide", (2, 512, 14, 14), (512, 16, 3, 3), padding=1, groups=32),
    conv("groups=2", (8, 64, 32, 32), (64, 32, 3, 3), padding=1, groups=2),
    transpose("transposed 4x4 s2", (8, 64, 16, 16), (64, 32, 4, 4), 15, stride=2, padding=1),
    transpose("transposed 4x4 s2 large", (8, 64, 32, 32), (64, 64, 4, 4), 15, stride=2, padding=1),
    transpose("transposed 2x2 s2", (8, 64, 32, 32), (64, 64, 2, 2), 15, stride=2, padding=0),
    transpose("transposed 3x3 s1", (8, 64, 16, 16), (64, 32, 3, 3), stride=1, padding=1),
    conv("input smaller than kernel", (8, 512, 2, 2), (512, 512, 3, 3), 15, padding=1),
    conv("few cells", (8, 256, 4, 4), (512, 256, 3, 3), padding=1, stride=2),
    conv("conv1d k5", (8, 64, 512), (64, 64, 5), padding=2),
    conv("conv3d 3x3x3", (2, 16, 16, 16, 16), (16, 16, 3, 3, 3), padding=1),
    conv("conv4d 3x3x3x3", (1, 8, 8, 8, 8, 8), (8, 8, 3, 3, 3, 3), 15, padding=1),
    conv("conv4d 3x3x3x3 large", (2, 16, 10, 10, 10, 10), (16, 16, 3, 3, 3, 3), 15, padding=1),
]


# --- measuring --------------------------------------------------------------------------------------------------


def with_gradients(f: Function) -> Callable[..., Any]:
    """The value, and the cotangents of all arguments for a cotangent that is not constant."""

    def both(gy: jax.Array, *args: jax.Array) -> Any:
        y, pullback = jax.vjp(f, *args)
        return y, pullback(gy)

    return both


@cache
def one_thread() -> None:
    """Before JAX computes anything: it starts as many threads as the process may use cores, here one.

    Afterwards the process may run on any core again, which changes no CPU time and lets it evade a busy one.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(cores)})
        jax.block_until_ready(jnp.zeros(()) + 1)
        for task in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(task), cores)


SAMPLE = 0.2  # seconds: XLA works in threads of its own, whose CPU time the clock sees some milliseconds late


def smallest(sides: list[tuple[Callable[..., Any], tuple[jax.Array, ...]]], rounds: int = 4) -> list[float]:
    """CPU seconds of each side, in turn; each sample repeats the call until it is long enough to be read."""
    repeats = [1 + int(SAMPLE / max(1e-6, _seconds(f, args, 2))) for f, args in sides]
    best = [float("inf")] * len(sides)
    for _ in range(rounds):
        for i, (f, args) in enumerate(sides):
            best[i] = min(best[i], _seconds(f, args, repeats[i]))
    return best


def _seconds(f: Callable[..., Any], args: tuple[jax.Array, ...], repeats: int) -> float:
    before = time.process_time()
    for _ in range(repeats):
        jax.block_until_ready(f(*args))
    return (time.process_time() - before) / repeats


def check_same(a: Any, b: Any) -> None:
    for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-3, atol=1e-3 * float(jnp.abs(p).max()))


def measure(row: Row) -> tuple[float, float, float, float]:
    """Milliseconds: bare and ours forward, bare and ours with gradients."""
    one_thread()
    keys = jax.random.split(jax.random.key(0), 1 + len(row.shapes))
    args = tuple(jax.random.normal(k, s) for k, s in zip(keys[1:], row.shapes, strict=True))
    gy = jax.random.normal(keys[0], jax.eval_shape(row.bare, *args).shape)
    forward = [(jax.jit(f), args) for f in (row.bare, row.ours)]
    full = [(jax.jit(with_gradients(f)), (gy, *args)) for f in (row.bare, row.ours)]
    for pair in (forward, full):
        check_same(*(f(*given) for f, given in pair))
    a, b, c, d = (1e3 * t for t in smallest(forward) + smallest(full))
    return a, b, c, d


def main(wanted: list[str]) -> None:
    print(f"jax {jax.__version__}, {jax.default_backend()}, float32; one thread, CPU milliseconds, ratio = bare / ours")
    print(f"{'':28}{'forward':^27}{'forward + gradients':^27}{'target':>7}")
    for row in ROWS:
        if wanted and not any(part in row.name for part in wanted):
            continue
        a, b, c, d = measure(row)
        target = "" if row.target is None else f"{row.target:.0f}x" + ("" if c / d >= row.target else " MISSED")
        print(f"{row.name:28}{a:9.2f}{b:9.2f}{a / b:8.1f}x{c:9.2f}{d:9.2f}{c / d:8.1f}x {target:>7}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
