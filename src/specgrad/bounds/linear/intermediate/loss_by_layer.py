"""Attribute the looseness of a lower bound at a single point to layers.

The way back hands a.y >= sum of a_s.x_s + c - paid from a node y to its sources x. With the exact values v in place of
all of them, what is lost there is a.v - sum of a_s.v_s - c + paid: nothing, but for rounding and for what a relaxation
leaves open. Going down, everything else cancels: the losses of all nodes sum to row.v - (the lower bound of row).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from specgrad.scalar import Array

from ..propagation.backward import ObjectiveParts, backward
from ..relaxation.bound_layers import BoundLinear, BoundOpaque, BoundRelaxed, positive_negative, rows_dot, tensor
from .forward_pass import ForwardPass


@torch.no_grad()
def losses(forward: ForwardPass, position: int, row: Array, values: Mapping[str, Array]) -> dict[str, float]:
    """Return, by layer name, how much it takes from the lower bound of row.y, y being the node at `position`.

    values   exact values by the names of the nodes, as well as float64 has them

    Roundings of a linear layer that enter a relaxation's lines are counted at the linear layer. Fused, a value that is
    recomputed for every reader is off by its deviation, which the next convolution or matrix product carries.
    """
    state, graph = forward.state, forward.graph
    if position not in state.layers:
        return {}
    exact = {i: tensor(values[graph.nodes[i].name])[None] for i in state.layers}
    seed = tensor(row).reshape(1, 1, *graph.nodes[position].shape)
    lost = {position: forward.slack(position, tensor(row).reshape(1, 1, -1)).reshape(())}

    def move(payer: int, j: int, amount: Any) -> None:
        """Move an amount of loss from the node that was charged to node j that caused it."""
        _add_loss(lost, payer, -amount)
        _add_loss(lost, j, amount)

    def told(i: int, part: ObjectiveParts, pulled: list[Tensor], constant: Any, paid: Any) -> None:
        layer, a = state.layers[i], part.total
        sources = () if isinstance(layer, BoundOpaque) else layer.sources
        handed = sum((rows_dot(b, exact[s]) for s, b in zip(sources, pulled, strict=True)), start=constant)
        _add_loss(lost, i, rows_dot(a, exact[i]) - handed + paid)
        if isinstance(layer, BoundRelaxed) and isinstance(state.layers[layer.sources[0]], BoundLinear):
            lines, (positive, negative) = state.relaxation(i), positive_negative(a)
            for j, charge in state.rounding_cost_by_node(layer.sources[0]).items():
                down, up = (layer.error_through(s, charge) for s in (lines.lower_slope, lines.upper_slope))
                move(i, j, rows_dot(positive, down) - rows_dot(negative, up))
        elif part.unabsorbed is not None:
            for j, charge in state.rounding_cost_by_node(i).items():
                move(i, j, rows_dot(part.unabsorbed.abs(), charge) if j != i else 0.0)

    backward(state, {position: seed}, told)
    layers: dict[str, float] = {}
    for i in sorted(lost):
        name = graph.nodes[i].group
        layers[name] = layers.get(name, 0.0) + float(lost[i])
    return layers


def _add_loss(lost: dict[int, Tensor], i: int, amount: Any) -> None:
    """Add `amount` to lost[i], the loss that is counted at node i; a first one is entered."""
    part = torch.as_tensor(amount, dtype=torch.float64).reshape(())
    lost[i] = lost[i] + part if i in lost else part
