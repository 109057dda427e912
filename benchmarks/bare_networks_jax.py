"""ResNet-18 in bare JAX, beside the same network as a compiled graph: value and gradients of all parameters.

python benchmarks/bare_networks_jax.py      one thread, CPU time
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import specgrad as sg

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import common
import resnet18
from jax_ops import one_thread, smallest

Tree = Any


def conv_bn(conv: Tree, bn: Tree, x: jax.Array, stride: int = 1) -> jax.Array:
    w = conv["weight"]
    pad = w.shape[-1] // 2
    x = lax.conv_general_dilated(x, w, (stride, stride), ((pad, pad), (pad, pad)))
    scale = bn["weight"] / jnp.sqrt(bn["running_var"] + 1e-5)
    per_channel = lambda v: v[:, None, None]
    return (x - per_channel(bn["running_mean"])) * per_channel(scale) + per_channel(bn["bias"])


def block(p: Tree, x: jax.Array) -> jax.Array:
    stride = 2 if "downsample" in p else 1
    y = conv_bn(p["conv2"], p["bn2"], jax.nn.relu(conv_bn(p["conv1"], p["bn1"], x, stride)))
    return jax.nn.relu(y + (conv_bn(*p["downsample"], x, stride) if "downsample" in p else x))


def bare_resnet18(p: Tree, x: jax.Array) -> jax.Array:
    x = jax.nn.relu(conv_bn(p["conv1"], p["bn1"], x, 2))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1)))
    for stage in resnet18.STAGES:
        for part in p[stage]:
            x = block(part, x)
    return jnp.mean(x, (2, 3)) @ p["fc"]["weight"].T + p["fc"]["bias"]


def steps(shape: tuple[int, ...] = (8, 3, 64, 64)) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """One training step's value and gradients, jitted, by both."""
    one_thread()
    shapes = resnet18.shapes()
    params = common.each(lambda _, a: jnp.asarray(a, jnp.float32), common.init(shapes))
    x = jax.random.normal(jax.random.key(0), shape)
    loss = lambda p, t: jnp.mean(bare_resnet18(p, t) ** 2)
    bare = jax.jit(jax.value_and_grad(loss))
    graph = sg.trace(lambda p, t: sg.mean(resnet18.net(p, t) ** 2), shapes, shape)
    ours = sg.compile(sg.grad(graph, 0, value=True), "jax")
    np.testing.assert_allclose(bare(params, x)[0], ours(params, x)[0], rtol=1e-3)
    run = lambda f: lambda: jax.block_until_ready(f(params, x))
    return f"ResNet-18 {'x'.join(map(str, shape))} step", run(bare), run(ours)


if __name__ == "__main__":
    name, *sides = steps()
    bare, ours = smallest([(side, ()) for side in sides])
    print(f"{name}: bare {1e3 * bare:.1f} ms, ours {1e3 * ours:.1f} ms, {bare / ours:.2f}x")
