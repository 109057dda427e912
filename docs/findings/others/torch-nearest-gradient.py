# 29 cells, scale_factor=2.005: 58 outputs. Output 2 reads cell floor(2/2.005) = 0; its gradient goes to cell 2 // 2.
import torch

cells = torch.arange(29.0)[None, None].requires_grad_()
y = torch.nn.functional.interpolate(cells, scale_factor=2.005, mode="nearest")
(gradient,) = torch.autograd.grad(y[0, 0, 2], cells)
print("torch", torch.__version__)
print(f"output 2 of {y.shape[-1]} reads cell {int(y[0, 0, 2])}")
print(f"its gradient must go to cell {int(y[0, 0, 2])}, goes to cell {int(gradient.argmax())}")
