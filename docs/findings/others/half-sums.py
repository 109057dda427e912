# Cotangents of ones meet in one cell. In bfloat16 256 + 1 = 256: a sum in bfloat16 stops there.
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

x, weight, bias = (torch.ones(*shape, dtype=torch.bfloat16) for shape in ((2048, 96), (96,), (96,)))
y = torch.nn.functional.layer_norm(x, (96,), weight, bias.requires_grad_())
(g,) = torch.autograd.grad(y, bias, torch.ones_like(y))
print(f"the gradient of layer_norm's bias must be 2048, torch gives {g[0].item():g}")

table = torch.zeros(10, 96, dtype=torch.bfloat16, requires_grad=True)
rows = torch.nn.functional.embedding(torch.zeros(2048, dtype=torch.int64), table)
(g,) = torch.autograd.grad(rows, table, torch.ones_like(rows))
print(f"the gradient of a row that 2048 places read must be 2048, torch gives {g[0, 0].item():g}")
