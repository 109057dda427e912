"""Rules for propagating bounds patch by patch: which layers allow it, and their window or matrix on one patch.

`state` is what the pass knows of every node (`specgrad.bounds.linear.propagation.backward.State`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from specgrad.op import apply
from specgrad.ops.avg_pool import AVG_POOL
from specgrad.ops.elementwise import cellwise
from specgrad.ops.layout import CONCAT
from specgrad.window import Patch, Strided, Window

from ..relaxation.bound_layers import BoundConv, BoundIdentity, BoundJoint, BoundLayer, BoundMaxPool, BoundOpaque
from ..relaxation.conv_operator import Convolution
from ..relaxation.softmax import BoundSoftmax
from .backward import State

MAX_PHASES_PER_AXIS = 8  # along an axis
MIN_CELLS_FOR_PHASES = (
    64 * 64
)  # cells of an array from which on phases pay: below, whole rows were measured to be twice as fast


def spatial_rank(state: State, i: int) -> int | None:
    """Number of trailing spatial axes of node i, from the first layer with a window at it or below it; None if there is
    none, or no axis before them.

    The way down goes through elementwise layers, and through concats of at least MIN_CELLS_FOR_PHASES cells per
    channel, only.
    """
    seen, waiting = set(), [i]
    while waiting:
        layer = state.layers[waiting.pop()]
        window = layer.node.params.get("window")
        if isinstance(window, Window):
            return window.rank if len(layer.node.shape) > window.rank else None
        joined = layer.node.op is CONCAT and math.prod(layer.node.shape[2:]) >= MIN_CELLS_FOR_PHASES
        if is_elementwise(layer) or joined:
            waiting += [s for s in layer.sources if s not in seen]
            seen |= set(layer.sources)
    return None


def is_elementwise(layer: BoundLayer) -> bool:
    """Return whether every cell of the layer reads only the cell in its own place of its arguments.

    A softmax is named after its division, and reads its axis.
    """
    if isinstance(layer, BoundSoftmax):
        return False
    return layer.node.op.receptive_field is cellwise or isinstance(layer, BoundIdentity)


def is_local(state: State, rank: int, j: int, patch: Patch) -> bool:
    """Return whether layer j, with `rank` spatial axes, can be propagated by patches like `patch`, more cheaply than by
    whole rows.
    """
    layer = state.layers[j]
    shape = layer.node.shape
    if isinstance(layer, BoundJoint) or len(shape) <= rank:
        return False
    if isinstance(layer, BoundOpaque):
        return layer.cellwise
    if math.prod(patch.size) > math.prod(shape[len(shape) - rank :]):
        return False
    if is_windowed(layer):
        first = layer.sources == layer.node.operands()[:1] or isinstance(layer, BoundMaxPool)
        return first and all(isinstance(a, Strided) for a in layer.node.params["window"].axes)
    if math.prod(shape[len(shape) - rank :]) < MIN_CELLS_FOR_PHASES and (
        is_transposed(layer) or layer.node.op is CONCAT
    ):
        return False
    if is_transposed(layer):
        return patch.read_back(layer.node.params["window"]) is not None
    if is_channel_concat(layer, rank):
        return True
    return is_elementwise(layer) and all(state.intervals[s][0].shape[1:] == shape for s in layer.sources)


def is_windowed(layer: BoundLayer) -> bool:
    """Whether the layer is a max pool, a convolution or an average pool."""
    return isinstance(layer, BoundMaxPool) or layer.node.op.name in ("conv", "avg_pool")


def is_transposed(layer: BoundLayer) -> bool:
    """Whether the layer is a transposed convolution."""
    return isinstance(layer, BoundConv) and layer.is_transposed


def is_channel_concat(layer: BoundLayer, rank: int) -> bool:
    """Return whether the layer is a concatenation along the channel axis, the one before the `rank` spatial axes."""
    return layer.node.op is CONCAT and layer.node.params["axis"] == len(layer.node.shape) - rank - 1


def read_below(layer: BoundLayer, patch: Patch) -> Patch:
    """Patch of the source that a patch of a local layer depends on."""
    if is_windowed(layer):
        return read_through(patch, layer.node.params["window"])
    below = patch.read_back(layer.node.params["window"]) if is_transposed(layer) else patch
    assert below is not None  # is_local
    return below


def seed_patches(state: State, rank: int, i: int) -> list[Patch]:
    """One-cell patches of node i to start from, one for every phase of the transposed convolutions below it.

    Below a transposed convolution of stride s the cells that p depends on move with p/s: positions with the same
    remainder p = s*q + r move together, with q. So there is a patch for each r, which moves s times as fast as q.
    """
    speed = 1
    while speed <= MAX_PHASES_PER_AXIS and (blocked := _blocking_stride(state, rank, i, speed)) > 1:
        speed *= blocked
    speed = speed if speed <= MAX_PHASES_PER_AXIS else 1
    phases = itertools.product(range(speed), repeat=rank)
    return [Patch((speed,) * rank, phase, (1,) * rank) for phase in phases]


def _blocking_stride(state: State, rank: int, i: int, speed: int) -> int:
    """Return the stride, on its largest axis, of the transposed convolution at which patches below node i end; else 1.

    They end there mostly because `speed`, by which they move from position to position of node i, is no multiple of the
    stride. It is 1 if they end at another layer, or reach the inputs.
    """
    *_, (j, patch) = _patches_below(state, i, Patch((speed,) * rank, (0,) * rank, (1,) * rank))
    layer = state.layers[j]
    window = layer.node.params.get("window") if patch is None and is_transposed(layer) else None
    return max(a.stride for a in window.axes if isinstance(a, Strided)) if isinstance(window, Window) else 1


def _patches_below(state: State, i: int, seed: Patch) -> Iterator[tuple[int, Patch | None]]:
    """Yield (node, its patch) for everything that the patch `seed` of node i depends on, downwards; a patch of None
    ends the walk.
    """
    patches: dict[int, Patch | None] = {i: seed}
    for j in sorted(state.layers, reverse=True):
        if j not in patches:
            continue
        patch, layer = patches.pop(j), state.layers[j]
        patch = patch if patch is not None and is_local(state, len(seed.size), j, patch) else None
        yield j, patch
        if patch is None:
            return
        below = read_below(layer, patch)
        for s in layer.sources:
            other = patches.get(s, below)
            patches[s] = None if other is None else below.union(other)


def cells_per_row(state: State, i: int, seed: Patch) -> int:
    """Return the largest number of cells that one objective row of node i has at any layer below it.

    `seed` is its patch at node i; where patches end, whole layers count.
    """
    most, rank = 1, len(seed.size)
    for j, patch in _patches_below(state, i, seed):
        if patch is None:
            return max(math.prod(layer.node.shape) for k, layer in state.layers.items() if k <= j)
        most = max(most, state.layers[j].node.shape[-rank - 1] * math.prod(patch.size))
    return most


def read_through(patch: Patch, window: Window) -> Patch:
    """Patch of the input that `patch` of a window operator's output reads; the window must be strided."""
    below = patch.read_through(window)
    assert below is not None  # only strided windows come here
    return below


def per_channel(constant: Tensor, rank: int) -> Tensor:
    """Convert a bias `constant` (1, *lead, channels, *spatial), equal at all positions, to one number per channel,
    (channels, *ones).
    """
    channels, cells = constant.shape[-rank - 1], math.prod(constant.shape[-rank:])
    return constant.reshape(-1, channels, cells)[0, :, 0].reshape(channels, *(1,) * rank)


def average_weights(layer: BoundLayer) -> Tensor:
    """Factor that avg_pool multiplies the sum of each window by, (1, *shape); 0 for an empty window."""
    ones = torch.ones(layer.node.shape[: -layer.node.params["window"].rank] + layer.node.params["window"].size).double()
    mean = apply(AVG_POOL, ones, **layer.node.params)
    count = apply(AVG_POOL, ones, window=layer.node.params["window"], divisor=1)
    return torch.where(count == 0, 0.0, mean / torch.where(count == 0, 1.0, count))[None]


def convolution_on(layer: BoundLayer, window: Window) -> Convolution:
    """The layer's convolution on the window of a patch; of an average, the depthwise convolution with ones that sums
    it.
    """
    if isinstance(layer, BoundConv):
        return layer.with_window(window)
    channels = layer.node.shape[-window.rank - 1]
    return Convolution(torch.ones((channels, 1, *window.kernel), dtype=torch.float64), window, channels)
