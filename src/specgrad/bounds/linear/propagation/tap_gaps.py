"""Gaps between the taps of a maximum: how far x_t - x_r can be, where r is the tap with the largest middle.

Neighbouring outputs of a convolution read mostly the same inputs, so their difference varies less than their ranges
say: more windows have one winner for certain, and the others an upper line that follows two taps instead of none.

`state` is what the pass knows of every node (`specgrad.bounds.linear.propagation.backward.State`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from specgrad.rounding.slack_constants import LINE
from specgrad.window import Patch, Strided

from ..relaxation.bound_layers import BoundLinear, BoundMaxPool
from ..relaxation.conv_operator import Convolution
from ..relaxation.formulas import Gaps
from .backward import State
from .patch_rules import cells_per_row, read_through
from .patches import MAX_OBJECTIVE_CELLS, Cone, Objective


def find_gaps(state: State, taps: BoundMaxPool) -> Gaps | None:
    """Return bounds of x_t - x_r inside every window of the max pool `taps` over a convolution; None for any other.

    r is the window's tap with the largest middle.
    """
    source = state.layers[taps.sources[0]]
    if (
        taps.node.op.name == "smooth_max_pool"
        or not isinstance(source, BoundLinear)
        or not _is_pooled_convolution(taps, source)
    ):
        return None
    low, high = (taps.read(end) for end in state.intervals[source.position])
    inside = taps.inside(low)
    reference = torch.where(inside, low / 2 + high / 2, -torch.inf).argmax(0, keepdim=True)
    slack = LINE * (low.abs() + high.abs()).amax(0)
    gap_low, gap_high = low - high.gather(0, reference) - slack, high - low.gather(0, reference) + slack
    open_ = (inside & (gap_high > 0)).sum(0) > 1
    gap_low, gap_high = (g.scatter(0, reference, 0.0) for g in (gap_low, gap_high))
    if bool(open_.any()):
        _narrow_gaps(state, taps, source, reference, open_, gap_low, gap_high)
    return Gaps(reference, gap_low, gap_high)


def _is_pooled_convolution(taps: BoundMaxPool, source: BoundLinear) -> bool:
    """Whether the pool's source is a convolution with constant weights, of equal rank, under strided windows of 2 taps
    or more.
    """
    conv = source.node.op.name == "conv" and source.varying == [0]
    strided = conv and all(isinstance(a, Strided) for a in taps.window.axes)
    return strided and taps.window.rank == source.node.params["window"].rank and taps.window.taps_count > 1


def _narrow_gaps(
    state: State,
    taps: BoundMaxPool,
    source: BoundLinear,
    reference: Tensor,
    open_: Tensor,
    gap_low: Tensor,
    gap_high: Tensor,
) -> None:
    """Tighten gap_low and gap_high in place by backward bounds, at positions where some channel has an undecided
    window.

    Gaps are x_t - x_r, (taps, ...), of the layer `source` that the maximum reads; `reference` is r of each window,
    `open_` marks windows that are not decided.
    """
    rank, shape = taps.window.rank, taps.node.shape
    channels = shape[-rank - 1]
    planes = (-1, channels, *taps.window.out)
    where = np.argwhere(open_.reshape(planes).any(1).numpy())
    views = [t.reshape(len(t), *(open_.reshape(planes).shape)) for t in (reference, gap_low, gap_high)]
    convolutions = dict[tuple[int, Patch], Convolution]()
    rows = 2 * channels * taps.window.taps_count
    step = max(1, MAX_OBJECTIVE_CELLS // (rows * cells_per_row(state, source.position, unit_patch(rank))))
    for start in range(0, 0 if state.budget.is_spent else len(where), step):
        cone = Cone(state, rank, where[start : start + step], convolutions)
        at = (slice(None), cone.positions[:, 0], slice(None), *cone.positions[:, 1:].T)
        both_ends = gaps_at(cone, taps, source, views[0][at][:, 0])
        for view, ends in zip(views[1:], both_ends, strict=True):
            better = torch.maximum if view is views[1] else torch.minimum
            view[at] = better(view[at], ends)
    for t, view in ((gap_low, views[1]), (gap_high, views[2])):
        t.copy_(view.reshape(t.shape))


def unit_patch(rank: int) -> Patch:
    """Return the patch of one cell, over `rank` axes: the position itself."""
    return Patch((1,) * rank, (0,) * rank, (1,) * rank)


def gaps_at(cone: Cone, taps: BoundMaxPool, source: BoundLinear, reference: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper bound of x_t - x_reference, each (positions, taps, channels), for reference taps (positions,
    channels).

    `cone` holds the layers below the pool at some positions, and takes the backward pass; `source` is the convolution
    that the max pool `taps` reads.
    """
    unit = unit_patch(cone.rank)
    patch, local = read_through(unit, taps.window), BoundMaxPool(0, taps.node, 0, unit.window(taps.window), False)
    below = read_through(patch, source.node.params["window"])
    channels = reference.shape[-1]
    matrix = cone.convolution(source.position, patch).matrix
    cells = torch.eye(matrix.shape[0] // channels, dtype=torch.float64)[local.index.flatten()]  # (taps, cells)
    rows = cells - cells[reference].unsqueeze(-2)  # (positions, channels, taps, cells)
    charge = cone.gather(cone.state.rounding_cost(source.position), patch).flatten(2)
    lost = torch.einsum("pcts,pcs->pct", rows.abs(), charge).flatten(1)
    pulled = torch.einsum("pcts,csn->pctn", rows, matrix.reshape(channels, -1, matrix.shape[1])).flatten(1, 2)
    pulled = pulled.reshape(*pulled.shape[:2], -1, *below.size)
    both = torch.cat([pulled, -pulled], 1)
    cone.add_pending(source.sources[0], Objective(below, both, both))
    lower, _ = cone.propagate_in_reverse(torch.cat([lost, lost], 1))
    low, high = (part.reshape(*rows.shape[:3]).transpose(1, 2) for part in lower.chunk(2, 1))
    return low, -high
