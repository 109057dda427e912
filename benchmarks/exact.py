"""Exact arithmetic: multiply-adds a second of convolutions and products of rationals, one thread, CPU seconds.

python benchmarks/exact.py

Numbers are float32 numbers drawn from N(0, 1), as rationals. "fractions" is the specification on Python's Fraction,
"integers" the same over one denominator by NumPy, "flint" with python-flint's matrices of integers; the last is what a
call takes where python-flint is installed. Conversions there and back are counted. The fastest of three.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np

import specgrad as sg
from specgrad.scalar import Array

NEVER = 1 << 60


def exact(*shape: int) -> Array:
    return sg.exact(np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32))


def conv(channels: int, size: int) -> tuple[Callable[[], Any], int]:
    x, w = exact(1, channels, size, size), exact(channels, channels, 3, 3)
    return lambda: sg.conv(w, None, x, padding=1), channels * channels * 9 * size * size


def linear(rows: int, inputs: int, outputs: int) -> tuple[Callable[[], Any], int]:
    x, w = exact(rows, inputs), exact(outputs, inputs)
    return lambda: sg.linear(w, None, x), rows * inputs * outputs


CASES = {
    "conv 3x3, 16 channels, 14x14": conv(16, 14),
    "conv 3x3, 64 channels, 14x14": conv(64, 14),
    "conv 3x3, 1 channel, 32x32": conv(1, 32),
    "product 60x100x60": linear(60, 100, 60),
    "product 1x4096x256": linear(1, 4096, 256),
}


def rate(call: Callable[[], Any], products: int, times: int = 3) -> float:
    """Millions of multiply-adds a second, of the fastest of so many calls."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return products / min(seconds) / 1e6


def main() -> None:
    print(f"{'million multiply-adds a second':32} {'fractions':>10} {'integers':>10} {'flint':>10} {'gain':>7}")
    for name, (call, products) in CASES.items():
        with patch("specgrad.op._by_integers", lambda *_: None):
            before = rate(call, products, 1)
        with patch("specgrad.scalar.FLINT_PRODUCTS_PER_CELL", NEVER):
            integers = rate(call, products)
        flint = rate(call, products)
        print(f"{name:32} {before:10.2f} {integers:10.2f} {flint:10.2f} {flint / before:6.0f}x", flush=True)


if __name__ == "__main__":
    main()
