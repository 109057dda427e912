# Written by specgrad, which may overwrite or remove this file.
# gradient of max_pool(x(1, 1, 2), kernel=(2,), stride=(1,), padding=((0, 0),))
# jax 0.10.2: differs: gradient of x[0, 0, 0] is 0.0, must be 1.0 within 0
import os
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import numpy as np
from numpy import inf, nan  # noqa: F401
import jax
import jax.numpy as jnp
from jax import lax

def f(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2), (1, 1, 1), ((0, 0), (0, 0), (0, 0)))

def run(x, g):
    from jax.sharding import NamedSharding, PartitionSpec
    mesh = jax.make_mesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.device_put(x, NamedSharding(mesh, PartitionSpec(None, None, "a")))
    pull = jax.jit(lambda x, g: jax.vjp(f, x)[1](g))
    return [np.asarray(t) for t in pull(x, jnp.asarray(g))]

x = np.array([0, 0], np.float32).reshape(1, 1, 2)
g = np.array([1], np.float32).reshape(1, 1, 1)
must_be = np.array([1, 0], float).reshape(1, 1, 2)
got = run(x, g)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
