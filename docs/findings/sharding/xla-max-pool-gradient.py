# Cells of x, no two alike, are split over 2 devices by jax.jit's in_shardings; the gradient must not depend on that.
# jax 0.10.2: differs
import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("rows",))
split = NamedSharding(mesh, PartitionSpec(None, None, "rows"))


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3), (1, 1, 1), [(0, 0), (0, 0), (1, 1)])


x = np.array([2, 4, 3, 6, 5, 0, 1, 7], np.float32).reshape(1, 1, 8)
gy = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 8)
must_be = [0.0] * 8
for o in range(8):  # by the definition: the largest of three cells takes it
    winner = max(range(max(0, o - 1), min(8, o + 2)), key=lambda i: x[0, 0, i])
    must_be[winner] += float(gy[0, 0, o])
gradient = jax.grad(lambda x: jnp.sum(max_pool(x) * gy))
got = jax.jit(gradient, in_shardings=split)(x)
print("must be   ", must_be)
print("one device", jax.jit(gradient)(x).ravel().tolist())
print("2 devices ", np.asarray(got).ravel().tolist())
