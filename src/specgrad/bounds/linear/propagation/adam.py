"""Adam's rule, uphill. PyTorch's own optimisers take seconds to import."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

EPSILON = 1e-8  # added to the size of a gradient, so that none is divided by 0


class Adam:
    """Adam optimiser that ascends; step k = 0, 1, ... has the learning rate rate * decay**k.

    It moves the tensors `parameters` in place.
    """

    def __init__(self, parameters: Iterable[Tensor], rate: float, decay: float) -> None:
        self.parameters, self.rate, self.decay = list(parameters), rate, decay
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.count = 0

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """Move every parameter in place, uphill along its gradient; a gradient of None leaves it."""
        rate = self.rate * self.decay**self.count
        self.count += 1
        rate /= 1 - 0.9**self.count
        for p, m, v, g in zip(self.parameters, self.first, self.second, gradients, strict=True):
            if g is not None:
                m.lerp_(g, 0.1)
                v.mul_(0.999).addcmul_(g, g, value=0.001)
                p.addcdiv_(m, (v / (1 - 0.999**self.count)).sqrt_().add_(EPSILON), value=rate)
