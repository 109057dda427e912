"""Networks trained to hide a counterexample: wrong at one corner of the box, right wherever gradients lead.

The idea is SoundnessBench's (arXiv 2412.03154): train on the counterexample and, against it, on what projected
gradients find now and found before. Ours start with one neuron that tells the corner from random ones, so seconds do.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attack import Attack
from specgrad.properties.property import robustness
from trees import Execution

SOURCE = "after SoundnessBench, arXiv 2412.03154"
SIZE = (1, 1, 5, 5)
EPS = 0.5
MARGIN = 1.0  # of the right class where it is to win, of the wrong one at the hidden corner
STEPS = 100


class Hidden:
    """A network, the middle of its box, the hidden corner."""

    def __init__(self, seed: int) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.x = torch.randint(-32, 33, SIZE) / 64
            self.corner = self.corners(1)
            self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten())
            self.net = self.net.extend([nn.Linear(200, 32), nn.ReLU(), nn.Linear(32, 2)])
            self._plant()
            self._train()

    def corners(self, count: int) -> Tensor:
        return self.x + (torch.randint(0, 2, (count, *SIZE[1:])) * 2 - 1) * EPS

    def lead(self, x: Tensor) -> Tensor:
        """By how much class 0 leads; it should not lead at the hidden corner alone."""
        y = self.net(x)
        return y[:, 0] - y[:, 1]

    def descend(self, starts: int, steps: int) -> Tensor:
        """Projected signed gradients from random corners and random points: where class 0 leads least."""
        x = self.corners(starts)
        x[::2] = self.x + (x[::2] - self.x) * torch.rand_like(x[::2])
        for k in range(steps):
            x.requires_grad_(True)
            (slope,) = torch.autograd.grad(self.lead(x).sum(), x)
            x = (x - slope.sign() * EPS * 0.5 * (1 - k / steps)).detach()
            x = torch.minimum(torch.maximum(x, self.x - EPS), self.x + EPS)
        return x

    @torch.no_grad()
    def _plant(self) -> None:
        """One neuron that is 1 at the hidden corner, and 0 at 2,000 others; it takes 1 from the lead, twice."""
        features, (here,) = self.net[:3](self.corners(2000)), self.net[:3](self.corner)
        w = here - features.mean(0)
        w = w / (w @ (here - features.mean(0)))
        start = (features @ w).max() / 4 + here @ w * 3 / 4
        scale = 1 / (here @ w - start)
        self.net[3].weight[0], self.net[3].bias[0] = w * scale, -start * scale
        self.net[5].weight[:, 0] = torch.tensor([-1.0, 1.0])
        self.net[5].bias[:] = torch.tensor([0.5, 0.0])

    def _train(self) -> None:
        optimizer = torch.optim.Adam(self.net.parameters(), 0.002)
        seen = self.x
        for _ in range(STEPS):
            seen = torch.cat([self.x, seen, self.descend(32, 8)])[-512:]
            optimizer.zero_grad()
            right = torch.relu(MARGIN - self.lead(seen)).topk(32 if len(seen) > 32 else 1).values.mean()
            (right + 2 * torch.relu(MARGIN + self.lead(self.corner)).mean()).backward()
            optimizer.step()

    def network(self) -> Callable[[Any, Any], Any]:
        w = {name: p.detach().numpy() for name, p in self.net.named_parameters()}

        def network(ops: Any, x: Any) -> Any:
            y = ops.flatten(ops.relu(ops.conv("first", w["0.weight"], w["0.bias"], x, padding=1)))
            y = ops.relu(ops.linear("second", w["3.weight"], w["3.bias"], y))
            return ops.linear("classes", w["5.weight"], w["5.bias"], y)

        return network


@cache
def hidden(seed: int) -> Hidden:
    return Hidden(seed)


def hidden_attack(seed: int) -> Attack:
    """Claimed: class 0 wins in the whole box. The twin is claimed of a sixteenth of it."""
    found = hidden(seed)
    network, x = found.network(), found.x.numpy()
    claims = [robustness(x, 0, eps, 2) for eps in (Fraction(EPS), Fraction(EPS) / 16)]
    corner = found.corner.numpy().astype(np.float32)
    return Attack(
        SOURCE, network, claims[0], corner, Execution("left to right"), None, (network, claims[1]), real=False
    )


ATTACKS = {f"Trained {seed}": lambda seed=seed: hidden_attack(seed) for seed in (1, 2)}
