"""Explain an open part: what its bound loses, and at which layer.

A bound of row.y on a box is a chain of steps, layer by layer. At the corner x where the line over the inputs is least,

    row.y(x) - bound = sum over layers of (A.f(x) - (A'.x + c)),

so every layer has its share of what is lost. Nothing here is a proof of anything: it says where to look.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass
from specgrad.bounds.linear.propagation.backward import ObjectiveParts, State, backward
from specgrad.bounds.linear.relaxation.bound_layers import Interval
from specgrad.graph.ir.node import evaluate
from specgrad.proof.base.split_tree import OpenPart

from .search import Boxes

MAX_INPUTS_TO_REBOUND = 16  # inputs, up to which every layer is bounded again on the part


@torch.no_grad()
def explained(boxes: Boxes, part: OpenPart) -> tuple[bool, tuple[str, float] | None]:
    """Return whether the open `part` would be excluded without rounding, by the bounds of `boxes`.

    And (layer, share) of the largest loss there, or None.
    """
    low, high = (torch.tensor([end], dtype=torch.float64) for end in (part.low, part.high))
    if low.shape[1] <= MAX_INPUTS_TO_REBOUND:
        margins, _, _, state, *_ = boxes.bounds(low, high)
    else:
        state = boxes.root.state.with_intervals(_split_intervals(boxes, low, high, part))
        seeds = {boxes.output: boxes.rows.reshape(1, -1, *boxes.shapes[boxes.output])}
        margins = backward(state, seeds) - boxes.targets
    best = margins.new_full((1, boxes.count), -torch.inf).scatter_reduce_(1, boxes.owner[None], margins, "amax")
    mine = torch.where(boxes.owner == int(best[0].argmin()), margins[0], -torch.inf)
    k = int(mine.argmax())
    return losses(boxes.root, state, boxes.rows[k], float(boxes.targets[k]))


def _split_intervals(boxes: Boxes, low: Tensor, high: Tensor, part: OpenPart) -> dict[int, Interval]:
    """Return the intervals of what was split, by node: of inputs the part's box low..high, of other cells by the sides
    of their splits.
    """
    shape = boxes.shapes[boxes.input]
    ends: dict[int, Interval] = {boxes.input: (low.reshape(1, *shape), high.reshape(1, *shape))}
    for cut, side in part.cuts:
        if cut.node == boxes.input or cut.tap is not None:
            continue
        first, last = (end.clone() for end in ends.get(cut.node, boxes.root.state.intervals[cut.node]))
        flat = (last if side == 0 else first).view(-1)
        flat[cut.cell] = flat[cut.cell].clamp(max=cut.at) if side == 0 else flat[cut.cell].clamp(min=cut.at)
        ends[cut.node] = first, last
    return ends


def losses(root: ForwardPass, state: State, row: Tensor, target: float) -> tuple[bool, tuple[str, float] | None]:
    """Whether row.y > target holds on the state's box without rounding; and (layer, share of the gap) of the largest
    loss, or None.

    `root` is the forward pass over the whole box.
    """
    (inside,), (output,) = root.graph.input_positions, root.graph.output_positions
    seeds = {output: row.reshape(1, 1, *root.graph.nodes[output].shape)}
    exact = {i: torch.zeros_like(e) for i, e in state.errors.items()}
    free = replace(state, errors=exact, cached_relaxations={}, chains={}, cached_costs={}, folds={})
    steps: list[tuple[int, Tensor, list[Tensor], Any]] = []

    def told(i: int, part: ObjectiveParts, pulled: list[Tensor], constant: Any, lost: Any) -> None:
        steps.append((i, part.total, pulled, constant - lost))

    bound = float(backward(free, seeds, told)[0, 0])
    slopes = next((a for i, a, _, _ in steps if i == inside), None)
    if slopes is None or not np.isfinite(bound):
        return bound > target, None
    low, high = (end[0] for end in state.intervals[inside])
    corner = torch.where(slopes[0, 0] > 0, low, high)
    values = _node_values(root, inside, corner)
    lost_at: dict[int, float] = {}
    for i, a, pulled, constant in steps:
        sources = () if i == inside else state.layers[i].sources
        known = i in values and all(s in values for s in sources)
        if i != inside and known:
            below = sum(float((p[0, 0] * values[s]).sum()) for s, p in zip(sources, pulled, strict=False))
            lost_at[i] = float((a[0, 0] * values[i]).sum()) - below - float(torch.as_tensor(constant).sum())
    name, most = max(lost_at.items(), key=lambda pair: pair[1], default=(inside, 0.0))
    total = sum(max(loss, 0.0) for loss in lost_at.values())
    shared = (root.graph.nodes[name].name, most / total) if total > 0 else None
    return bound > target, shared


def _node_values(root: ForwardPass, inside: int, corner: Tensor) -> dict[int, Tensor]:
    """Return the value of every node of `root`'s graph at one input, in float64, by position; NaN where a node has no
    number.

    `corner` is that input, of the node at position `inside`.
    """
    numbers = {id(node): i for i, node in enumerate(root.graph.nodes)}
    values: dict[int, Tensor] = {inside: corner}
    given = {inside: corner.numpy().reshape(root.graph.nodes[inside].shape)}

    def seen(node: Any, value: Any) -> None:
        values[numbers[id(node)]] = torch.from_numpy(np.array(value, dtype=float))

    evaluate(root.graph, given, seen)
    return values
