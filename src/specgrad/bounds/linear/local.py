"""Which layers can be gone through patch by patch, and what they are on one patch."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...op import apply
from ...ops.avg_pool import AVG_POOL
from ...ops.elementwise import cellwise
from ...window import Patch, Shape, Strided, Window
from .backward import State
from .layers import Identity, Joint, Layer, Linear, Opaque, Taps, adjoint


def spatial_rank(state: State, i: int) -> int | None:
    """How many of a node's last axes its windows move over; None if that makes no sense."""
    seen, waiting = set(), [i]
    while waiting:
        layer = state.layers[waiting.pop()]
        window = layer.node.params.get("window")
        if isinstance(window, Window):
            return window.rank if len(layer.node.shape) > window.rank else None
        if is_elementwise(layer):
            waiting += [s for s in layer.sources if s not in seen]
            seen |= set(layer.sources)
    return None


def is_elementwise(layer: Layer) -> bool:
    return layer.node.op.reach is cellwise or isinstance(layer, Identity)


def is_local(state: State, rank: int, j: int, patch: Patch) -> bool:
    """Whether layer j can be gone through patch by patch, and should."""
    layer = state.layers[j]
    shape = layer.node.shape
    if isinstance(layer, Joint) or len(shape) <= rank:
        return False
    if isinstance(layer, Opaque):
        return True
    if math.prod(patch.size) > math.prod(shape[len(shape) - rank :]):
        return False
    if is_windowed(layer):
        first = layer.sources == layer.node.operands()[:1] or isinstance(layer, Taps)
        return first and all(isinstance(a, Strided) for a in layer.node.params["window"].axes)
    return is_elementwise(layer) and all(state.ends[s][0].shape[1:] == shape for s in layer.sources)


def is_windowed(layer: Layer) -> bool:
    return isinstance(layer, Taps) or layer.node.op.name in ("conv", "avg_pool")


def cells_per_row(state: State, rank: int, i: int) -> int:
    """The most cells that one row of node i has on its way down, as patches or densely."""
    patches, most = {i: Patch((1,) * rank, (0,) * rank, (1,) * rank)}, 1
    for j in sorted(state.layers, reverse=True):
        if j not in patches:
            continue
        patch, layer = patches.pop(j), state.layers[j]
        if not is_local(state, rank, j, patch):
            return max(math.prod(layer.node.shape) for k, layer in state.layers.items() if k <= j)
        most = max(most, layer.node.shape[-rank - 1] * math.prod(patch.size))
        below = read_through(patch, layer.node.params["window"]) if is_windowed(layer) else patch
        for s in layer.sources:
            both = below if s not in patches else below.union(patches[s])
            if both is None:
                return max(math.prod(layer.node.shape) for k, layer in state.layers.items() if k <= s)
            patches[s] = both
    return most


def read_through(patch: Patch, window: Window) -> Patch:
    below = patch.read_through(window)
    assert below is not None  # only strided windows come here
    return below


def per_channel(constant: Tensor, rank: int) -> Tensor:
    """A bias (1, *lead, channels, *spatial), the same at every cell, as (channels, *ones)."""
    channels, cells = constant.shape[-rank - 1], math.prod(constant.shape[-rank:])
    return constant.reshape(-1, channels, cells)[0, :, 0].reshape(channels, *(1,) * rank)


def average_weights(layer: Layer) -> Tensor:
    """(1, *shape): what avg_pool multiplies the sum of a window by."""
    ones = torch.ones(layer.node.shape[: -layer.node.params["window"].rank] + layer.node.params["window"].size).double()
    mean = apply(AVG_POOL, ones, **layer.node.params)
    count = apply(AVG_POOL, ones, window=layer.node.params["window"], divisor=1)
    return torch.where(count == 0, 0.0, mean / torch.where(count == 0, 1.0, count))[None]


def patch_matrix(layer: Linear, patch: Patch, below: Patch, channels: int, rank: int) -> Tensor:
    """The cotangent rule on a patch as a matrix (channels*patch, source channels*patch below)."""
    params = {**layer.node.params, "window": patch.window(layer.node.params["window"])}
    if layer.node.op.name == "avg_pool":
        params["divisor"] = 1
    source = layer.args[0]
    lead = (1,) * (len(source) - rank - 1)
    args = [(*lead, source[-rank - 1], *below.size), *layer.args[1:]]
    shape, op = (*lead, channels, *patch.size), layer.node.op
    if math.prod(args[0]) < math.prod(shape):  # fewer columns than rows: the operator itself on the identity
        group = next(g for g in op.linear_groups(len(args)) if 0 in g)
        others = [torch.zeros_like(a) if k in group else a for k, a in enumerate(args) if k]
        columns: Tensor = torch.func.vmap(lambda x: apply(op, x, *others, **params))(_identity(args[0]))
        return columns.reshape(len(columns), -1).T.contiguous()
    pull: Callable[[Tensor], tuple[Tensor, ...]] = adjoint(op, args, params, shape, [0])
    return torch.func.vmap(pull)(_identity(shape))[0].reshape(math.prod(shape), -1)


def _identity(shape: Shape) -> Tensor:
    """(cells, *shape): every cell by itself."""
    cells = math.prod(shape)
    return torch.eye(cells, dtype=torch.float64).reshape(cells, *shape)
