# Rows of x are split over 8 devices by jax.jit's in_shardings; the gradient of the weights must not depend on that.
# jax 0.10.2: differs
import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("rows",))
whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(None, None, "rows"))


def conv(w, x):
    options = {"window_strides": (3,), "padding": [(5, 6)], "rhs_dilation": (2,)}
    return lax.conv_general_dilated(x, w, dimension_numbers=("NCH", "OIH", "NCH"), **options)


w = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 4)
x = np.arange(1, 25, dtype=np.float32).reshape(1, 1, 24)
gy = np.arange(1, 11, dtype=np.float32).reshape(1, 1, 10)
padded = np.pad(x[0, 0], (5, 6))
must_be = [sum(gy[0, 0, o] * padded[3 * o + 2 * t] for o in range(10)) for t in range(4)]  # by the definition
gradient = jax.grad(lambda w, x: jnp.sum(conv(w, x) * gy))
got = jax.jit(gradient, in_shardings=(whole, split), out_shardings=whole)(w, x)
print("must be   ", [float(v) for v in must_be])
print("one device", jax.jit(gradient)(w, x).ravel().tolist())
print("8 devices ", got.ravel().tolist())
