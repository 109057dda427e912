"""What grouped convolutions cost XLA to compile: ours against plain JAX, forward and with gradients.

    python benchmarks/grouped_compile_jax.py > benchmarks/grouped_compile_jax.txt

CPU seconds of lowering and compiling, from empty caches, in turn; the least of three. The limit is twice plain JAX's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import specgrad as sg
from jax_ops import one_thread

LIMIT, TURNS = 2.0, 3
# (channels, groups, stride): kernels 3x3 over 14x14 cells
CASES = ((64, 2, 1), (64, 32, 1), (64, 32, 2), (256, 32, 1), (256, 32, 2), (256, 256, 1))


def bare(groups: int, stride: int) -> Callable[..., Any]:
    pads = ((1, 1), (1, 1))
    return lambda x, w: lax.conv_general_dilated(x, w, (stride, stride), pads, feature_group_count=groups)


def ours(groups: int, stride: int) -> Callable[..., Any]:
    return lambda x, w: sg.conv(w, None, x, stride=stride, padding=1, groups=groups)


def seconds(f: Callable[..., Any], args: tuple[jax.Array, jax.Array], step: bool) -> float:
    jax.clear_caches()
    run = jax.grad(lambda x, w: jnp.sum(f(x, w) ** 2), (0, 1)) if step else f
    before = time.process_time()
    jax.jit(run).lower(*args).compile()
    return time.process_time() - before


def main() -> int:
    one_thread()
    print(f"{'channels':>8}{'groups':>8}{'stride':>8}  direction{'bare s':>10}{'ours s':>10}{'ratio':>8}")
    slow = 0
    for channels, groups, stride in CASES:
        args = jnp.ones((8, channels, 14, 14)), jnp.ones((channels, channels // groups, 3, 3))
        for step in (False, True):
            turns = [[seconds(make(groups, stride), args, step) for make in (bare, ours)] for _ in range(TURNS)]
            theirs, own = (min(side) for side in zip(*turns, strict=True))
            slow += own > LIMIT * theirs
            way = "step" if step else "forward"
            print(f"{channels:8}{groups:8}{stride:8}  {way:9}{theirs:10.3f}{own:10.3f}{own / theirs:8.2f}", flush=True)
    print(f"{slow} of {2 * len(CASES)} rows over {LIMIT}")
    return int(slow > 0)


if __name__ == "__main__":
    sys.exit(main())
