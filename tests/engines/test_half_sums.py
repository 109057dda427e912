"""Sums of bfloat16 and float16, forward and backward: within some roundings of the sum of the same numbers in float64.

Adding in bfloat16 itself ends at 256 ones: half of a bias's gradient may be missing, and nothing says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specgrad as sg

RNG = np.random.default_rng(0)
PLANES, VECTOR = RNG.uniform(0.5, 1.5, (4, 3, 40, 40)), RNG.uniform(0.5, 1.5, 3)

# Each of (planes, vector), which it reads so that hundreds of cotangents meet in one cell.
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "mul per channel": lambda x, v: sg.mul(x, sg.reshape(v, (3, 1, 1))),
    "add per channel": lambda x, v: sg.add(x, sg.reshape(v, (3, 1, 1))),
    "batch_norm": lambda x, v: sg.batch_norm(x, v, v, v, v),
    "conv with bias": lambda x, v: sg.conv(sg.broadcast(sg.reshape(v, (3, 1, 1, 1)), (3, 3, 1, 1)), v, x),
    "broadcast": lambda x, v: sg.broadcast(v, (1000, 3)),
    "pad by the edge": lambda x, v: sg.pad(v, ((0, 600),), mode="edge"),
    "resize": lambda x, v: sg.resize(v, (1500,)),
    "sum": lambda x, v: sg.sum(x, axes=(0, 2, 3)),
    "average": lambda x, v: sg.avg_pool(x, (31, 31), stride=1, padding=15),
    "cumsum": lambda x, v: sg.cumsum(sg.reshape(x, (-1,)), 0),
}


def on_jax(call: Callable[[Any, Any], Any], dtype: Any, compiled: bool) -> list[np.ndarray]:
    def both(x: Any, v: Any) -> Any:
        y, back = jax.vjp(call, x, v)
        return (y, *back(jnp.ones_like(y)))

    given = jnp.asarray(PLANES, dtype), jnp.asarray(VECTOR, dtype)
    return [np.asarray(a, np.float64) for a in (jax.jit(both) if compiled else both)(*given)]


def worst(call: Callable[[Any, Any], Any], dtype: Any, compiled: bool) -> float:
    """The largest error relative to the largest number, of values and both cotangents."""
    x, v = (np.asarray(jnp.asarray(a, dtype), np.float64) for a in (PLANES, VECTOR))
    exact = sg.vjp(sg.trace(call, x, v))
    wanted = exact(x, v, np.ones(exact.nodes[exact.input_positions[-1]].shape))
    return max(
        float(abs(found - want).max() / (abs(want).max() + 1e-9))
        for found, want in zip(on_jax(call, dtype, compiled), wanted, strict=True)
    )


@pytest.mark.parametrize("name", list(CALLS))
@pytest.mark.parametrize("compiled", [False, True])
def test_sums_on_jax_are_kept_in_float32(name: str, compiled: bool) -> None:
    assert worst(CALLS[name], jnp.bfloat16, compiled) < 2e-2


def test_the_measure_notices_sums_in_bfloat16() -> None:
    """JAX's own product: its cotangent of the vector is added in bfloat16."""
    plain = lambda x, v: x * v.reshape(3, 1, 1) if isinstance(x, jax.Array) else CALLS["mul per channel"](x, v)
    assert worst(plain, jnp.bfloat16, compiled=True) > 0.3
