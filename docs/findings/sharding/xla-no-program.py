# A network of ours that jax.jit's in_shardings splits over 8 devices: XLA makes a program that its own check refuses.
# jax 0.10.2: INTERNAL, hlo verifier
import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import specgrad as sg

mesh = Mesh(np.array(jax.devices()), ("rows",))
whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(None, None, "rows"))
shapes = ((2, 2, 3, 4), (2, 2, 3, 1))


def net(w, x):
    y = sg.avg_pool(x, (3, 3), stride=(2, 1), padding=((0, 1), (1, 2)), count_include_pad=False)
    y = sg.conv_transpose(w[0], None, y, stride=(1, 3), padding=((0, 0), (0, 1)))
    y = sg.avg_pool(y * 1, (1, 1), stride=2)
    return sg.conv_transpose(w[1], None, y, stride=2, dilation=(1, 2))


f = sg.compile(sg.trace(net, shapes, (1, 2, 40, 9)), "jax")
w, x = tuple(np.ones(s, np.float32) for s in shapes), np.ones((1, 2, 40, 9), np.float32)
gradient = jax.grad(lambda w, x: jnp.sum(f(w, x)), (0, 1))
print("one device:", [g.shape for g in jax.tree.leaves(jax.jit(gradient)(w, x))])
try:
    jax.jit(gradient, in_shardings=(whole, split), out_shardings=(whole, split))(w, x)
    print("8 devices: a program")
except Exception as error:
    print("8 devices:", str(error).split(":  ")[0].split(", actual")[0])
