"""Backward bounds of many cells of one layer by the patches that they depend on, instead of whole rows.

All channels at one position p of a layer depend on one patch of every layer below: speed*p + start and on, as far as
the windows between them reach (window.Patch). So positions stand where boxes stand in a dense pass, rows are channels,
and a layer's shape is its patch. What differs from position to position (lines, errors, boxes) is gathered, 0 outside
the array; what does not (a convolution) is one matrix: the operator's own cotangent rule on the identity. Where a layer
is no window, or patches are as large as the array, the rest goes down as dense rows.

`state` is what the pass knows of every node (`specgrad.bounds.linear.propagation.backward.State`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from specgrad.scalar import Array
from specgrad.window import Patch, Shape

from ..relaxation.bound_layers import (
    BoundConv,
    BoundLinear,
    BoundMaxPool,
    BoundOpaque,
    Centre,
    Interval,
    bound_over_interval,
    positive_negative,
    rows_dot,
)
from ..relaxation.conv_operator import BYTES_PER_SECOND, MATMUL_FLOPS, MAX_MATRIX_ENTRIES, Convolution
from ..relaxation.formulas import LinearRelaxation
from .backward import Chain, State, backward_two_sided, lower_and_upper, propagate_in_reverse, widen_by_loss
from .patch_rules import (
    average_weights,
    cells_per_row,
    convolution_on,
    is_channel_concat,
    is_local,
    is_transposed,
    is_windowed,
    per_channel,
    read_below,
    read_through,
    seed_patches,
    spatial_rank,
)

MAX_OBJECTIVE_CELLS = 1 << 21  # cells of an objective that are held at once: 16 MB
MAX_POOL_MEMORY_PASSES = 8  # how often a cell below a maximum is read or written on the way through it
CACHE_CELLS = 1 << 17  # cells that a cache holds: 1 MB


@dataclass(eq=False)
class Objective:
    """Coefficients `a` over the patches of one node, (positions or 1, rows, channels, *patch).

    unabsorbed   the part of `a` whose rounding errors are still to be charged; None: none of it
    """

    patch: Patch
    a: Tensor
    unabsorbed: Tensor | None  # the part whose errors have not been paid by lines


@dataclass(eq=False)
class Cone:
    """The layers below one node, as patches that move with its positions; holds the state of one backward pass.

    positions      (count, 1 + rank): number of the leading axes' cell, and the spatial position
    convolutions   by node and patch; equal at all positions, so they are shared between cones
    pending        objectives that have not been propagated, by node
    dense          objectives that go on as whole rows, by node
    below_dense    nodes that one of those depends on: they are bounded as whole rows too
    indices        cached flat cells of patches
    """

    state: State
    rank: int
    positions: Array
    convolutions: dict[tuple[int, Patch], Convolution]
    pending: dict[int, list[Objective]] = field(default_factory=dict)
    dense: dict[int, list[tuple[Patch, Tensor]]] = field(default_factory=dict)
    below_dense: set[int] = field(default_factory=set)
    indices: dict[tuple[Patch, Shape, int], Tensor] = field(default_factory=dict)

    # --- patches of a node's tensors --------------------------------------------------------------------------------

    def gather(self, v: Tensor, patch: Patch) -> Tensor:
        """Return an array v (1, *lead, channels, *spatial) gathered at the patches: (positions, channels, *patch), 0
        outside the array.
        """
        return self._gather_stacked(v, patch)[0]

    def _gather_stacked(self, v: Tensor, patch: Patch) -> Tensor:
        """Return arrays v (k, *lead, channels, *spatial) gathered at the patches: (k, positions, channels, *patch), 0
        outside the array.
        """
        spatial, channels = tuple(v.shape[v.ndim - self.rank :]), v.shape[v.ndim - self.rank - 1]
        planes = v.reshape(len(v), -1, channels, math.prod(spatial)).movedim(2, 1)
        index = self._flat_cells(patch, spatial, planes.shape[2])
        flat = torch.nn.functional.pad(planes.reshape(len(v) * channels, -1), (0, 1))
        return flat[:, index].reshape(len(v), channels, *index.shape).movedim(2, 1).contiguous()

    def _flat_cells(self, patch: Patch, spatial: Shape, planes: int) -> Tensor:
        """Flat cells of the patches over all planes, (positions, *patch); one past the last cell for those outside.

        `spatial` is the shape of one plane, `planes` their number (leading axes); results are cached.
        """
        key = patch, spatial, planes
        if key not in self.indices:
            cells = math.prod(spatial)
            within = patch.cells(self.positions[:, 1:], spatial)
            plane = self.positions[:, 0].reshape(-1, *(1,) * self.rank)
            self.indices[key] = torch.from_numpy(np.where(within == cells, planes * cells, within + cells * plane))
        return self.indices[key]

    def relaxation(self, i: int, patch: Patch) -> LinearRelaxation:
        """Relaxation of node i gathered at the patches; slopes of a max pool have the axis of taps in front."""
        lines = self.state.relaxation(i)
        if not isinstance(self.state.layers[i], BoundMaxPool):
            return LinearRelaxation(*self._gather_stacked(torch.cat(lines), patch))
        down, up = (self._gather_stacked(s.squeeze(1), patch) for s in (lines.lower_slope, lines.upper_slope))
        return LinearRelaxation(down, self.gather(lines.lower, patch), up, self.gather(lines.upper, patch))

    # --- down -------------------------------------------------------------------------------------------------------

    def run(self, i: int, rows: Tensor, patch: Patch) -> Interval:
        """(lower, upper) (positions, rows) of rows (positions or 1, rows, channels) of node i, at one cell per
        position.

        Upper ones hold between parallel lines alone.
        """
        seed = rows.reshape(*rows.shape, *patch.size)
        self.pending[i] = [Objective(patch, seed, seed)]
        return self.propagate_in_reverse(torch.zeros((1, rows.shape[1]), dtype=torch.float64))

    def propagate_in_reverse(self, lost: Tensor) -> Interval:
        """Return sound (lower, upper), each (positions, rows), of the sum of all pending objectives, and use them up.

        lost   (1, rows): rounding errors so far; both ends move outward by them and by those of this pass
        """
        total, lost = propagate_in_reverse(
            self.state.layers, self.pending, self._propagate_layer, torch.zeros_like(lost), lost
        )
        rows = lost.shape[1]
        low, high = (end.expand(len(self.positions), rows) for end in widen_by_loss(self.state, total, lost))
        if not self.dense:
            return low, high
        lower, upper = self._dense_rest(rows)
        return low + lower, high + upper

    def _merge_objectives(self, j: int, parts: list[Objective]) -> Objective | None:
        """Merge `parts`, the objectives of node j, on one common patch; None if no patch fits, and the node goes on as
        dense rows.

        What a dense node depends on goes on as dense rows with it: a relu that its body and its shortcut read is then
        relaxed once, for the sum of both, and what cancels is not lost.
        """
        patch: Patch | None = None if j in self.below_dense else parts[0].patch
        for part in parts[1:]:
            patch = patch and patch.union(part.patch)
        if patch is None or not is_local(self.state, self.rank, j, patch):
            self.dense.setdefault(j, []).extend((part.patch, part.a) for part in parts)
            self.below_dense |= self.state.sources_below(j)
            return None
        placed = [
            (
                _pad_to_patch(p.a, p.patch, patch),
                p.unabsorbed if p.unabsorbed is None else _pad_to_patch(p.unabsorbed, p.patch, patch),
            )
            for p in parts
        ]
        loose = [b for _, b in placed if b is not None]
        return Objective(patch, _sum_tensors([a for a, _ in placed]), _sum_tensors(loose) if loose else None)

    def _propagate_layer(self, j: int, parts: list[Objective]) -> tuple[Tensor | float, Tensor | float]:
        """Propagate the objectives `parts` of layer j, merged, through it; return its constant and loss.

        The objectives of its sources are added to `pending`.
        """
        objective = self._merge_objectives(j, parts)
        if objective is None:
            return 0.0, 0.0
        layer, patch, a = self.state.layers[j], objective.patch, objective.a
        chain = self.state.chain(j)
        if chain is not None and not self.pending.keys() & set(chain.inner):
            return self._through_chain(j, chain, objective)
        if isinstance(layer, BoundMaxPool):
            return self.state.fold_gap_into_constant(*self._through_max_pool(j, layer, patch, a))
        if isinstance(layer, BoundLinear):
            return self._through_linear(j, layer, objective)
        back = layer.bound_backward(a, PatchView(self, patch))
        constant, lost = self.state.fold_gap_into_constant(back.constant, back.lost)
        if isinstance(layer, BoundOpaque):
            return constant, lost + rows_dot(
                a.abs(), self.gather(self.state.own_rounding(j) * self.state.size(j), patch)
            )
        self.add_pending(layer.sources[0], Objective(patch, back.coefficients[0], None))
        return constant, lost

    def _through_max_pool(self, j: int, layer: BoundMaxPool, patch: Patch, a: Tensor) -> tuple[Tensor, Tensor]:
        """Propagate coefficients `a` over `patch` through max pool j, whose sources get pending objectives.

        Returns (constant, lost), each (positions, rows).
        """
        lines, below = self.relaxation(j, patch), read_through(patch, layer.window)
        local = BoundMaxPool(j, layer.node, layer.sources[0], patch.window(layer.window), layer.with_zero)
        source = self.state.layers[layer.sources[0]]
        alone = all(k < source.position for k in self.pending) and is_local(
            self.state, self.rank, source.position, below
        )
        if (
            alone
            and isinstance(source, BoundConv)
            and not source.is_transposed
            and self._is_composition_faster(local, source, below, a)
        ):
            return self._through_max_pool_and_conv(local, lines, source, below, a)
        self.add_pending(
            source.position, Objective(below, local.source_coefficients(*positive_negative(a), lines), None)
        )
        return bound_over_interval(a, lines.lower, lines.upper)

    def _is_composition_faster(self, taps: BoundMaxPool, source: BoundConv, patch: Patch, a: Tensor) -> bool:
        """Whether one matrix for a max pool `taps` and the convolution `source` below it is estimated to be faster than
        two steps.

        `a` are the coefficients at the pool, `patch` the cells of the convolution that they read.
        """
        through = self.convolution(source.position, patch)
        read, cells, rows = through.outputs * math.prod(patch.size), math.prod(a.shape[2:]), a.shape[1]
        below = through.inputs * math.prod(through.window.size)
        composed = 4 * cells * below * (1 + taps.window.taps_count / rows) / MATMUL_FLOPS
        way = through.way(self.state.fast and source.uses_float32)
        return (
            read * below <= MAX_MATRIX_ENTRIES
            and composed < through.seconds(way) + 8 * MAX_POOL_MEMORY_PASSES * read / BYTES_PER_SECOND
        )

    def _through_max_pool_and_conv(
        self, taps: BoundMaxPool, lines: LinearRelaxation, source: BoundLinear, patch: Patch, a: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Propagate coefficients `a` over `patch` through a max pool and the convolution `source` below it at once;
        returns (constant, lost).

        The objective of `source` alone would have as many cells as the maximum has taps; the `lines`, composed with the
        convolution's matrix, are no larger than what comes out. Taps outside the array have slope 0.
        """
        below = read_through(patch, source.node.params["window"])
        matrix = self.convolution(source.position, patch).matrix
        rows = matrix.reshape(a.shape[2], -1, matrix.shape[1])[:, taps.index.flatten(1)]
        rows = rows.movedim(1, 2).flatten(0, 1)  # (channels*out, taps, cells below)
        down, low, up, high = lines
        if source.constant is not None:
            bias = per_channel(source.constant, self.rank)
            low, high = (torch.addcmul(end, s.sum(0), bias) for end, s in ((low, down), (high, up)))
        halves = [(a, down)] if self.state.parallel else list(zip(positive_negative(a), (down, up), strict=True))
        pulled = _sum_tensors([_composed_adjoint(part.flatten(2), slope.flatten(2), rows) for part, slope in halves])
        out = pulled.reshape(*pulled.shape[:2], -1, *below.size)
        self.add_pending(source.sources[0], Objective(below, out, out))
        return bound_over_interval(a, low, high)

    def add_pending(self, source: int, objective: Objective) -> None:
        """Add an objective of node `source` to those that are still to be propagated."""
        self.pending.setdefault(source, []).append(objective)

    def _through_linear(
        self, j: int, layer: BoundLinear, objective: Objective
    ) -> tuple[Tensor | float, Tensor | float]:
        """Propagate an objective through linear layer j, whose sources get pending objectives.

        Returns (constant, lost), each (positions, rows) or 0: what its constant adds, and what its rounding costs.
        """
        state, patch, a = self.state, objective.patch, objective.a
        lost: Tensor | float = 0.0
        if objective.unabsorbed is not None:
            lost = rows_dot(objective.unabsorbed.abs(), self.gather(state.rounding_cost(j), patch))
        constant = 0.0 if layer.constant is None else rows_dot(a, self.gather(layer.constant, patch))
        centre = state.centre(j)
        for source, (below, pulled) in zip(layer.sources, self._source_patches(j, layer, patch, a), strict=True):
            if centre is not None:
                middle, image, reach = (self.gather(v, q) for v, q in zip(centre, (below, patch, patch), strict=True))
                constant = constant + Centre(middle, image, reach).part(a, pulled)
            paid = self.state.absorbed_by(source, j) == "absorbed"
            self.add_pending(source, Objective(below, pulled, None if paid else pulled))
        return constant, lost

    def _through_chain(self, j: int, chain: Chain, objective: Objective) -> tuple[Tensor | float, Tensor | float]:
        """Propagate node j's objective through a merged run of elementwise maps that begins there: the objective below
        is queued at the run's source.

        Returns (constant, lost), each (positions, rows) or 0: what the maps add, and what the roundings of node j cost.
        """
        patch, a, loose = objective.patch, objective.a, objective.unabsorbed
        lost = 0.0 if loose is None else rows_dot(loose.abs(), self.gather(self.state.rounding_cost(j), patch))
        constant = 0.0 if chain.constant is None else rows_dot(a, self.gather(chain.constant, patch))
        below = times(
            a, self._validity_factor(j, patch) if chain.factor is None else self._gather_factors(chain.factor, patch)
        )
        self.add_pending(chain.source, Objective(patch, below, None if chain.absorbed_as == "absorbed" else below))
        return constant, lost

    def _source_patches(self, j: int, layer: BoundLinear, patch: Patch, a: Tensor) -> list[tuple[Patch, Tensor]]:
        """Return patch and coefficients for every source of linear layer j, given coefficients `a` over its own
        `patch`.
        """
        if is_channel_concat(layer, self.rank):
            inside = times(a, self._validity_factor(j, patch))
            return [(patch, part) for part in _split_channels(layer, inside, self.rank)]
        if not is_windowed(layer) and not is_transposed(layer):
            each = layer.factors or [None] * len(layer.sources)
            return [
                (patch, times(a, self._validity_factor(j, patch) if f is None else self._gather_factors(f, patch)))
                for f in each
            ]
        below, scaled, through = (
            read_below(layer, patch),
            times(a, self._validity_factor(j, patch)),
            self.convolution(j, patch),
        )
        rows = scaled.flatten(0, 1)
        if isinstance(layer, BoundConv):
            moved = layer.map_objectives(through, rows, self.state.fast)
        else:  # the sums of an average
            moved = through.adjoint(rows, single=False)
        return [(below, moved.reshape(*scaled.shape[:2], -1, *below.size))]

    def convolution(self, j: int, patch: Patch) -> Convolution:
        """The convolution of layer j on a patch, or the window sums of an average; cached."""
        if (j, patch) not in self.convolutions:
            layer = self.state.layers[j]
            over = patch.back_window if is_transposed(layer) else patch.window
            self.convolutions[j, patch] = convolution_on(layer, over(layer.node.params["window"]))
        return self.convolutions[j, patch]

    def _gather_factors(self, d: Tensor, patch: Patch) -> Tensor:
        """Return the factors d (1, *shape) of an elementwise map gathered at the patches, (positions, 1, channels,
        *patch); one number if all are equal.
        """
        return _scalar_if_uniform(self.gather(d, patch).unsqueeze(1))

    def _validity_factor(self, j: int, patch: Patch) -> Tensor | None:
        """Factor at node j's patches: 1 at cells of the array, 0 outside, of an average its weight per window.

        None where all are 1.
        """
        layer = self.state.layers[j]
        scale = torch.ones((1, *layer.node.shape), dtype=torch.float64)
        if layer.node.op.name == "avg_pool":
            scale = average_weights(layer)
        inside = _scalar_if_uniform(self.gather(scale, patch).unsqueeze(1))
        return None if inside.numel() == 1 and bool(inside == 1) else inside

    # --- the rest, as whole rows ------------------------------------------------------------------------------------

    def _dense_rest(self, rows: int) -> Interval:
        """(lower, upper) (positions, rows) of the objectives that go on as whole rows."""
        seeds = {
            j: _sum_tensors([self._scatter_to_rows(j, p, a, rows) for p, a in parts]) for j, parts in self.dense.items()
        }
        low, high = (end.reshape(len(self.positions), rows) for end in backward_two_sided(self.state, seeds))
        return low, high

    def _scatter_to_rows(self, j: int, patch: Patch, a: Tensor, rows: int) -> Tensor:
        """Return coefficients `a` of node j over `patch` as whole rows (1, positions*rows, *shape), `rows` per
        position.
        """
        shape = self.state.layers[j].node.shape
        spatial = shape[len(shape) - self.rank :]
        planes, channels, cells = math.prod(shape[: -self.rank - 1]), shape[-self.rank - 1], math.prod(spatial)
        index = self._flat_cells(patch, spatial, planes).reshape(len(self.positions), 1, 1, -1)
        wide = a.expand(len(self.positions), *a.shape[1:]).flatten(3)
        total = wide.new_zeros((len(self.positions), rows, channels, planes * cells + 1))
        total.scatter_add_(3, index.expand(wide.shape), wide)
        whole = total[..., :-1].reshape(len(self.positions), rows, channels, planes, cells).transpose(2, 3)
        return whole.reshape(1, -1, *shape)


@dataclass(eq=False)
class PatchView:
    """BoundContext of the nodes of a cone, gathered at one patch: what a layer's bound_backward may ask for."""

    cone: Cone
    patch: Patch

    @property
    def fast(self) -> bool:
        """Whether objectives may go through convolutions in float32, as the cone's state says."""
        return self.cone.state.fast

    def centre(self, i: int) -> Centre | None:
        """Return None: convolutions go another way here (Cone._through_linear)."""
        return None

    def interval(self, i: int) -> Interval:
        """Return (lower, upper) bounds of node i at the patches, each (positions, channels, *patch); 0 outside the
        array.
        """
        low, high = (self.cone.gather(end, self.patch) for end in self.cone.state.intervals[i])
        return low, high

    def relaxation(self, i: int) -> LinearRelaxation:
        """Return node i's two lines at the patches."""
        return self.cone.relaxation(i, self.patch)

    @property
    def candidate_taps(self) -> Mapping[int, Tensor]:
        """Taps of split maxima that may still win, by node: always {}, since patches are bounded before any split."""
        return {}


def _composed_adjoint(a: Tensor, slope: Tensor, rows: Tensor) -> Tensor:
    """Return (positions, rows, n): sum_k a[p, r, k] * sum_t slope[t, p, k] * rows[k, t, n], in chunks that fit a cache.

    `a` has one position or all.
    """
    weights, products = slope.permute(2, 1, 0), []
    step = max(1, CACHE_CELLS // (rows.shape[0] * rows.shape[2]))
    for start in range(0, slope.shape[1], step):
        lines = torch.bmm(weights[:, start : start + step], rows)  # (k, positions, n)
        if len(a) == 1:
            flat = a[0] @ lines.flatten(1)
            products.append(flat.reshape(len(flat), -1, rows.shape[2]).movedim(1, 0))
        else:
            products.append(a[start : start + step] @ lines.movedim(1, 0))
    return torch.cat(products)


def _split_channels(layer: BoundLinear, a: Tensor, rank: int) -> list[Tensor]:
    """Return coefficients `a` of `layer`, a concatenation of channels, split into those of its varying arguments.

    The channels are axis 2 of `a`; `rank` counts the spatial axes behind them.
    """
    sizes = [(a if isinstance(a, tuple) else tuple(a.shape))[-rank - 1] for a in layer.args]
    return [part for k, part in enumerate(a.split(sizes, 2)) if k in layer.varying]


def times(a: Tensor, factor: Tensor | None) -> Tensor:
    """Product of `a` and an optional factor, None standing for 1."""
    return a if factor is None else a * factor


def _scalar_if_uniform(v: Tensor) -> Tensor:
    """Return a tensor v of equal numbers as one number (1,), so that rows equal at all positions stay one; else v
    unchanged.
    """
    first = v.flatten()[:1]
    return first if bool((v == first).all()) else v


def _sum_tensors(parts: list[Tensor]) -> Tensor:
    """Sum of a nonempty list of tensors, `parts`."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _pad_to_patch(a: Tensor, patch: Patch, within: Patch) -> Tensor:
    """Return coefficients `a` over `patch` padded with zeros to the larger patch `within`."""
    pads = [n for pair in reversed(patch.margins(within)) for n in pair]
    return torch.nn.functional.pad(a, pads) if any(pads) else a


# --- narrowing a layer ----------------------------------------------------------------------------------------------


def narrow_by_patches(state: State, i: int, open_: Array, low: Array, high: Array) -> bool:
    """Narrow low and high of node i in place where the mask `open_` is true.

    Return False if patches do not fit this layer.
    """
    rank = spatial_rank(state, i)
    shape = state.layers[i].node.shape
    if rank is None or len(shape) <= rank:
        return False
    channels, spatial = shape[-rank - 1], shape[len(shape) - rank :]
    planes = (-1, channels, *spatial)
    open_, low, high = (v.reshape(planes) for v in (open_, low, high))
    for seed in seed_patches(state, rank, i):
        # every speed-th plane of cells, from the seed's start on: views, which are narrowed in place
        phase = (slice(None), slice(None), *(slice(r, None, s) for r, s in zip(seed.start, seed.speed, strict=True)))
        _narrow_phase(state, i, seed, *(v[phase] for v in (open_, low, high)))
    return True


def _narrow_phase(state: State, i: int, seed: Patch, open_: Array, low: Array, high: Array) -> None:
    """Narrow low and high of node i in place at the cells that `open_` marks, of one phase (every speed-th cell of each
    axis).

    Arrays are (planes, channels, *positions); `seed` is the patch of one cell; positions are bounded in chunks while
    the budget lasts.
    """
    positions = np.argwhere(open_.any(1))
    convolutions: dict[tuple[int, Patch], Convolution] = {}
    counts = open_[(positions[:, 0], slice(None), *positions[:, 1:].T)].sum(1)
    order = np.argsort(-counts, kind="stable")  # positions with as many open channels together
    positions, counts = positions[order], counts[order]
    per_row, start = cells_per_row(state, i, seed), 0
    while start < len(positions) and not state.budget.is_spent:
        step = max(1, MAX_OBJECTIVE_CELLS // (2 * int(counts[start]) * per_row))
        cone = Cone(state, len(seed.size), positions[start : start + step], convolutions)
        _narrow_chunk(cone, i, seed, open_, low, high)
        start += step


def _narrow_chunk(cone: Cone, i: int, seed: Patch, open_: Array, low: Array, high: Array) -> None:
    """Narrow low and high of node i in place at the positions of one cone, for channels that `open_` marks; `seed` is
    the patch of one cell.
    """
    chosen = _channels_to_bound(open_[(cone.positions[:, 0], slice(None), *cone.positions[:, 1:].T)])
    rows = torch.nn.functional.one_hot(torch.from_numpy(chosen), open_.shape[1]).double()
    lower, upper = lower_and_upper(cone.state, rows, lambda both: cone.run(i, both, seed))
    at = (cone.positions[:, :1], chosen, *(cone.positions[:, 1:].T[..., None]))
    low[at] = np.maximum(low[at], lower.numpy())
    high[at] = np.minimum(high[at], upper.numpy())


def _channels_to_bound(open_: Array) -> Array:
    """Return the channels to bound, (positions or 1, rows): all that `open_` (positions, channels) marks, and perhaps
    more.

    Rows that are the same at every position are kept once on their way through convolutions, so that a few too many are
    cheaper than rows of each position's own.
    """
    everywhere = np.flatnonzero(open_.any(0))
    most = int(open_.sum(1).max())
    return everywhere[None] if len(everywhere) <= 1.25 * most else np.argsort(~open_, axis=1, kind="stable")[:, :most]
