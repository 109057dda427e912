"""Explicit sharding, the default of jax.make_mesh: types carry it, and our rules must hand it on.

The devices must be asked for before JAX starts, so this file runs itself in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specgrad as sg

DEVICES = 4
CASES: dict[str, Callable[[Any, Any], Any]] = {
    "conv": lambda w, x: sg.conv(w, None, x, padding=1),
    "conv stride": lambda w, x: sg.conv(w, None, x, stride=2),
    "conv 1x1": lambda w, x: sg.conv(w[:, :, :1, :1], None, x),
    "conv 1x1, few cells": lambda w, x: sg.conv(w[:, :, :1, :1], None, x[:, :, :2, :2]),
    "conv groups": lambda w, x: sg.conv(w[:, :2], None, x, padding=1, groups=2),
    "conv_transpose": lambda w, x: sg.conv_transpose(w, None, x, stride=2),
    "avg_pool": lambda w, x: sg.avg_pool(x, (3, 3), stride=2, padding=1) * w[0, 0, 0, 0],
    "max_pool": lambda w, x: sg.max_pool(x, (3, 3), stride=1) * w[0, 0, 0, 0],
    "smooth_max_pool": lambda w, x: sg.smooth_max_pool(x, (2, 2), beta=1) * w[0, 0, 0, 0],
}


EAGER = ("conv", "max_pool", "smooth_max_pool")
"""Without jit, which compiles each operation of its own."""


@pytest.fixture(scope="module")
def report() -> dict[str, str]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    run = [sys.executable, __file__]
    done = subprocess.run(run, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, timeout=350)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize(("name", "how"), [*((name, "jit") for name in CASES), *((name, "eager") for name in EAGER)])
def test_gradients_of_a_split_batch(report: dict[str, str], name: str, how: str) -> None:
    assert report[f"{name}, {how}"] == "equal"


def _compare(call: Callable[[Any, Any], Any], jit: bool) -> str:
    """Gradients of the split batch on JAX against those of the whole batch by the specification in NumPy."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    rng = np.random.default_rng(0)
    w, x = (rng.integers(-3, 4, s).astype(np.float32) for s in ((4, 4, 3, 3), (8, 4, 8, 8)))
    gradient = jax.grad(lambda w, x: (call(w, x) ** 2).sum(), (0, 1))
    graph = sg.trace(call, w.astype(np.float64), x.astype(np.float64))
    expected = sg.vjp(graph)(w, x, 2 * graph(w, x))[1:]
    mesh = jax.make_mesh((DEVICES,), ("batch",))
    with jax.set_mesh(mesh):
        split = jax.device_put(x, NamedSharding(mesh, PartitionSpec("batch")))
        whole = jax.device_put(w, NamedSharding(mesh, PartitionSpec()))
        found = (jax.jit(gradient) if jit else gradient)(whole, split)
    assert jax.typeof(found[1]).sharding.spec[0] == "batch"
    same = all(np.allclose(a, b, rtol=1e-5, atol=1e-5) for a, b in zip(found, expected, strict=True))
    return "equal" if same else "different"


if __name__ == "__main__":
    import jax

    jax.config.update("jax_disable_most_optimizations", True)  # each program runs once
    for title, call in CASES.items():
        for mode in ("eager", "jit") if title in EAGER else ("jit",):
            try:
                print(f"{title}, {mode}: {_compare(call, mode == 'jit')}")
            except Exception as error:  # reported by the test
                print(f"{title}, {mode}: {' '.join(str(error).split())}")
