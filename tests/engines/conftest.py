"""Balls far narrower than any rounding bound, and programs of XLA that are built quickly, for these tests alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import flint
import pytest


@pytest.fixture(autouse=True)
def _narrow_balls() -> Iterator[None]:
    with flint.ctx.workprec(128):
        yield


@pytest.fixture(scope="module", autouse=True)
def _little_optimised(request: pytest.FixtureRequest) -> Iterator[None]:
    """XLA compiles most programs here for one run: LLVM optimises them only where a file says `OPTIMISED = True`."""
    if "jax" not in sys.modules:
        yield
        return
    jax, little = sys.modules["jax"], not getattr(request.module, "OPTIMISED", False)
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", little)
    if not little:
        jax.clear_caches()  # what another file has compiled
    yield
    jax.config.update("jax_disable_most_optimizations", before)
