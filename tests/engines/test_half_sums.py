"""Sums of bfloat16 and float16, forward and backward: within some roundings of the sum of the same numbers in float64.

Adding in bfloat16 itself ends at 256 ones: half of a bias's gradient may be missing, and nothing says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import specgrad as sg

RNG = np.random.default_rng(0)
PLANES, VECTOR = RNG.uniform(0.5, 1.5, (4, 3, 40, 40)), RNG.uniform(0.5, 1.5, 3)

# Each of (planes, vector), which it reads so that hundreds of cotangents meet in one cell.
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "mul per channel": lambda x, v: sg.mul(x, sg.reshape(v, (3, 1, 1))),
    "div per channel": lambda x, v: sg.div(x, sg.reshape(v, (3, 1, 1))),
    "add per channel": lambda x, v: sg.add(x, sg.reshape(v, (3, 1, 1))),
    "batch_norm": lambda x, v: sg.batch_norm(x, v, v, v, v),
    "conv with bias": lambda x, v: sg.conv(sg.broadcast(sg.reshape(v, (3, 1, 1, 1)), (3, 3, 1, 1)), v, x),
    "broadcast": lambda x, v: sg.broadcast(v, (1000, 3)),
    "pad by the edge": lambda x, v: sg.pad(v, ((0, 600),), mode="edge"),
    "resize": lambda x, v: sg.resize(v, (1500,)),
    "sum": lambda x, v: sg.sum(x, axes=(0, 2, 3)),
    "average": lambda x, v: sg.avg_pool(x, (31, 31), stride=1, padding=15),
    "cumsum": lambda x, v: sg.cumsum(sg.reshape(x, (-1,)), 0),
    "maximum": lambda x, v: sg.max_pool(x[:1, :1], (25, 25), stride=1, padding=12),
    "maximum, strided": lambda x, v: sg.max_pool(x[:1, :1], (25, 25), stride=2, padding=12),
    "maximum, three axes": lambda x, v: sg.max_pool(x[:1], (3, 9, 9), stride=1, padding=(1, 4, 4)),
    "adaptive average": lambda x, v: sg.adaptive_avg_pool(sg.reshape(v, (1, 3)), (700,)),
    "adaptive maximum": lambda x, v: sg.adaptive_max_pool(sg.reshape(v, (1, 3)), (700,)),
    "lp_pool": lambda x, v: sg.lp_pool(x[:1, :1], (17, 17), stride=1),
    "edges of planes": lambda x, v: sg.pad(x[:1, :1], ((20, 20), (20, 20)), mode="edge"),
    "resize of planes": lambda x, v: sg.resize(x[:1, :, :10, :10], (160, 160)),
    "resize by a third": lambda x, v: sg.resize(x[:1, :, :10, :10], (150, 200)),
    "upsample": lambda x, v: sg.upsample_nearest(x[:1, :, :10, :10], (20, 20)),
    "gather": lambda x, v: sg.gather(v, np.zeros(700, int), axis=0),
    "gather between axes": lambda x, v: sg.gather(x[:1, :, :4, :4], np.zeros(700, int), axis=1),
    "gather rows": lambda x, v: sg.gather(sg.reshape(v, (3, 1)), np.zeros(700, int), axis=0),
    "global maximum": lambda x, v: sg.global_max_pool(x, rank=2),
    "amax, ties": lambda x, v: sg.amax(sg.broadcast(v, (900, 3)), axes=(1,)),
    "layer_norm": lambda x, v: sg.layer_norm(sg.stop_gradient(x), (40,), *2 * [sg.broadcast(v[:1], (40,))]),
    "group_norm": lambda x, v: sg.group_norm(sg.stop_gradient(x), 3, v, v),
}


def on_jax(call: Callable[[Any, Any], Any], dtype: Any, compiled: bool) -> list[np.ndarray]:
    def both(x: Any, v: Any) -> Any:
        y, back = jax.vjp(call, x, v)
        return (y, *back(jnp.ones_like(y)))

    given = jnp.asarray(PLANES, dtype), jnp.asarray(VECTOR, dtype)
    return [np.asarray(a, np.float64) for a in (jax.jit(both) if compiled else both)(*given)]


def on_torch(call: Callable[[Any, Any], Any]) -> list[np.ndarray]:
    given = [torch.tensor(a).bfloat16().requires_grad_() for a in (PLANES, VECTOR)]
    y = call(*given)
    found = (y, *torch.autograd.grad(y, given, torch.ones_like(y), materialize_grads=True))
    return [a.detach().double().numpy() for a in found]


def graph_on_torch(call: Callable[[Any, Any], Any]) -> list[np.ndarray]:
    x, v = (torch.tensor(a).bfloat16() for a in (PLANES, VECTOR))
    back = sg.vjp(sg.trace(call, PLANES, VECTOR))
    return [a.double().numpy() for a in sg.compile(back, "torch")(x, v, torch.ones_like(call(x, v)))]


@functools.cache
def wanted(call: Callable[[Any, Any], Any]) -> Any:
    x, v = (np.asarray(jnp.asarray(a, jnp.bfloat16), np.float64) for a in (PLANES, VECTOR))
    exact = sg.vjp(sg.trace(call, x, v))
    return exact(x, v, np.ones(exact.nodes[exact.input_positions[-1]].shape))


def worst(call: Callable[[Any, Any], Any], found: list[np.ndarray]) -> float:
    """The largest error relative to the largest number, of values and both cotangents."""
    pairs = zip(found, wanted(call), strict=True)
    return max(float(abs(a - want).max() / (abs(want).max() + 1e-9)) for a, want in pairs)


@pytest.mark.parametrize(
    ("name", "compiled"),
    [pytest.param(name, True, marks=[pytest.mark.slow] if k % 2 else []) for k, name in enumerate(CALLS)]
    + [pytest.param(name, False, marks=[pytest.mark.slow] if k > 1 else []) for k, name in enumerate(CALLS)],
)
def test_sums_on_jax_are_kept_in_float32(name: str, compiled: bool) -> None:
    assert worst(CALLS[name], on_jax(CALLS[name], jnp.bfloat16, compiled)) < 2e-2


@pytest.mark.parametrize("name", list(CALLS))
@pytest.mark.parametrize("run", [on_torch, graph_on_torch])
def test_sums_on_pytorch_are_kept_in_float32(name: str, run: Any) -> None:
    assert worst(CALLS[name], run(CALLS[name])) < 2e-2


def test_the_measure_notices_sums_in_bfloat16() -> None:
    """JAX's own product, and PyTorch's own average: their cotangents are added in bfloat16."""
    product, average = CALLS["mul per channel"], CALLS["average"]
    assert worst(product, on_jax(lambda x, v: x * v.reshape(3, 1, 1), jnp.bfloat16, True)) > 0.3
    assert worst(average, on_torch(lambda x, v: F.avg_pool2d(x, 31, 1, 15))) > 0.3


SMOOTH = lambda x, v: sg.smooth_max_pool(x[:1, :1] / 8, (33, 33), beta=1, stride=1, padding=16)


@pytest.mark.parametrize("run", [on_torch, lambda call: on_jax(call, jnp.bfloat16, True)])
def test_sums_of_smooth_maxima_are_kept_in_float32(run: Any) -> None:
    """A graph's own gradient reads y as it was rounded: exp(x - y) is off by as much as y, about 6 here, was."""
    assert worst(SMOOTH, run(SMOOTH)) < 2e-2
    assert worst(SMOOTH, graph_on_torch(SMOOTH)) < 4e-2


@pytest.mark.parametrize("cells", [0, 3])
def test_positions_outside_are_refused_in_half_types_too(cells: int) -> None:
    with pytest.raises(IndexError):
        sg.gather(torch.zeros(cells).bfloat16().requires_grad_(), torch.full((20,), 7))
