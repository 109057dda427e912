"""Better slopes (alpha) by gradient steps: an unstable relu's lower line may have any slope from 0 to 1, in each row.

The bound holds whatever the slopes are, so the best one seen is kept, and nothing needs to converge.

`state` is what the pass knows of every node (`specgrad.bounds.linear.propagation.backward.State`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..relaxation.bound_layers import BoundUnary
from .adam import Adam
from .backward import State, backward

RATE, DECAY = 0.2, 0.95


def unstable_relus(state: State) -> list[int]:
    """Return the positions of relus with a cell whose input may be negative and positive by the state's intervals."""
    positions = []
    for i, layer in state.layers.items():
        if isinstance(layer, BoundUnary) and layer.node.op.name == "relu":
            low, high = state.intervals[layer.sources[0]]
            if bool(((low < 0) & (high > 0)).any()):
                positions.append(i)
    return positions


def optimise_alpha(state: State, seeds: dict[int, Tensor], steps: int) -> Tensor:
    """Return lower bounds (1, rows) of the sum of seed.value over nodes; `seeds` are {node: (1, rows, *shape)}.

    Lower slopes of unstable relus are optimised per row in `steps` Adam steps.
    """
    rows = {i: a.transpose(0, 1) for i, a in seeds.items()}  # a box per row, so that each has its slopes
    count = len(next(iter(rows.values())))
    start = {i: state.relaxation(i).lower_slope for i in unstable_relus(state)}
    slopes = {i: s.expand(count, *s.shape[1:]).clone().requires_grad_() for i, s in start.items()}
    best = backward(state, seeds).transpose(0, 1)
    if not slopes:
        return best.transpose(0, 1)
    adam = Adam(slopes.values(), RATE, DECAY)
    for _ in range(steps):
        with torch.enable_grad():
            lower = backward(state.with_intervals({}, slopes), rows)
            best = torch.maximum(best, lower.detach())
            if not lower.requires_grad:  # every unstable relu stands in a max_pool's lines
                break
            gradients = torch.autograd.grad(lower.sum(), adam.parameters, allow_unused=True)
        adam.step(gradients)
        for s in slopes.values():
            s.data.clamp_(0, 1)
    last = backward(state.with_intervals({}, {i: s.detach() for i, s in slopes.items()}), rows)
    return torch.maximum(best, last).transpose(0, 1)
