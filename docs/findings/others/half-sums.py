# Cotangents of ones meet in one cell. In bfloat16 256 + 1 = 256: whoever adds them in bfloat16 stops there.
import jax
import jax.numpy as jnp
import torch

print(f"jax {jax.__version__}, torch {torch.__version__}")
bias = jnp.zeros((4, 1, 1), jnp.bfloat16)
shifted = lambda b: (jnp.zeros((2, 4, 32, 32), jnp.bfloat16) + b).astype(jnp.float32).sum()
print(f"the gradient of a bias must be 2048, jax gives {float(jax.jit(jax.grad(shifted))(bias)[0, 0, 0]):g}")

x = torch.zeros(1, 1, 65, 65, dtype=torch.bfloat16, requires_grad=True)
y = torch.nn.functional.avg_pool2d(x, 33, 1, 16, divisor_override=1)
(g,) = torch.autograd.grad(y, x, torch.ones_like(y))
print(f"the gradient of a sum of 33x33 cells must be 1089, torch gives {g[0, 0, 32, 32].item():g}")
