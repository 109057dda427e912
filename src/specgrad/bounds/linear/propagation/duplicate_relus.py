"""Relus that read one number twice, or a number and its negative: the pairs that a maximum of two is written with.

Where z_j = s*z_i but for rounding, s = 1 or -1, relu(z_j) is relu(z_i), or relu(z_i) - z_i, so that an objective

    a_i*relu(z_i) + a_j*relu(z_j) = (a_i + a_j)*relu(z_i) + [s = -1] * (-a_j*z_i)

has one relu left to relax: abs(z) and the sum x = relu(x) - relu(-x) lose nothing to it. Cells are computed apart, so
both have errors of their own: references z_i = w.x + e_i and z_j = s*w.x + e_j with abs(e) <= E give
abs(z_j - s*z_i) <= E_i + E_j, and relu moves by no more than what it reads. With t = w.x itself in the linear term,

    a_j*relu(z_j) >= a_j*relu(-t) - abs(a_j)*E_j >= a_j*(relu(z_i) - t) - abs(a_j)*(E_i + E_j).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from specgrad.rounding.slack_constants import SUMS

from ..relaxation.bound_layers import BoundLayer, BoundLinear, Ends

MOST = 1 << 22  # weights of a layer that is looked through


class DuplicateContext(Protocol):
    """What is asked of a network (specgrad.bounds.linear.propagation.backward.State)."""

    @property
    def layers(self) -> Mapping[int, BoundLayer]: ...

    @property
    def sizes(self) -> Mapping[int, Tensor]: ...

    @property
    def readers(self) -> Mapping[int, int]: ...

    def own(self, i: int) -> float: ...

    def charge(self, i: int) -> Tensor: ...

    def pays_for(self, user: int, source: int) -> bool: ...


class DuplicateRelus(NamedTuple):
    """Cells that are others: cell `gone` reads sign times what cell `kept` reads; flat positions, one per pair."""

    kept: Tensor
    gone: Tensor
    sign: Tensor


def twins_of(state: DuplicateContext, i: int) -> DuplicateRelus | None:
    """Of the cells of a relu; None where there are none, or where what lies below it is no plain matrix."""
    layer = state.layers[i]
    if layer.node.op.name != "relu":
        return None
    lines = _rows(state, layer.sources[0])
    return None if lines is None else _paired(lines)


def _rows(state: DuplicateContext, i: int) -> Tensor | None:
    """Weights and constant of every cell of node i, (cells, inputs + 1), exactly, down to one layer that mixes cells.

    Everything on the way is paid for by node i (State.charge).
    """
    constants: list[Tensor] = []
    while isinstance(layer := state.layers[i], BoundLinear) and len(layer.varying) == 1:
        if layer.constant is not None:
            constants.append(layer.constant.flatten())
        cells, below = layer.node_cells, state.sizes[layer.sources[0]].numel()
        if layer.factors is None:
            if len(constants) > 1 or cells * max(below, cells) > MOST:
                return None
            rows = layer.matrix
            return torch.cat([rows, constants[0][:, None] if constants else torch.zeros_like(rows[:, :1])], 1)
        if layer.factors[0] is not None or not state.pays_for(i, layer.sources[0]):
            return None
        i = layer.sources[0]
    return None


def _paired(rows: Tensor) -> DuplicateRelus | None:
    """Cells by the first one with the same row, or the opposite one.

    >>> _paired(torch.tensor([[1.0, 2.0], [0.0, 0.0], [-1.0, -2.0], [3.0, 2.0], [1.0, 2.0]]))
    DuplicateRelus(kept=tensor([0, 0]), gone=tensor([2, 4]), sign=tensor([-1.,  1.], dtype=torch.float64))
    """
    first: dict[bytes, int] = {}
    pairs: list[tuple[int, int, float]] = []
    for j, row in enumerate((rows.double() + 0.0).numpy()):  # 0.0: no zero with a sign
        for sign in (1.0, -1.0):
            i = first.get((sign * row + 0.0).tobytes())
            if i is not None and row.any():
                pairs.append((i, j, sign))
                break
        else:
            first[row.tobytes()] = j
    if not pairs:
        return None
    kept, gone, signs = (torch.tensor(column) for column in zip(*pairs, strict=True))
    return DuplicateRelus(kept, gone, signs.double())


class DuplicateFold(NamedTuple):
    """How objectives of one relu are taken together.

    apart   per pair: what may lie between z_gone and sign*z_kept
    price   per cell, (1, *shape): what abs(a) costs: being taken for another, and our roundings
    """

    twins: DuplicateRelus
    apart: Tensor
    price: Tensor

    def joined(self, ends: Ends) -> Ends:
        """What is known of a cell is known of its twin: the box of every kept cell, narrowed."""
        low, high = (end.flatten(1) for end in ends)
        kept, gone, sign = self.twins
        first, last = (end[:, gone] * sign for end in (low, high))
        at = kept.expand(len(low), -1)
        low = low.scatter_reduce(1, at, torch.minimum(first, last) - self.apart, "amax")
        high = high.scatter_reduce(1, at, torch.maximum(first, last) + self.apart, "amin")
        low, high = torch.minimum(low, high), torch.maximum(low, high)
        return low.reshape(ends[0].shape), high.reshape(ends[1].shape)

    def folded(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Objectives (boxes, rows, *shape): what is left of them for the relu, and what is linear in its source."""
        kept, gone, sign = self.twins
        flat = a.flatten(2)
        moved = flat[..., gone]
        bent = flat.index_add(2, kept, moved)
        bent[..., gone] = 0.0
        linear = torch.zeros_like(flat).index_add_(2, kept, torch.where(sign < 0, -moved, 0.0))
        return bent.reshape(a.shape), linear.reshape(a.shape)


def fold_of(state: DuplicateContext, i: int, twins: DuplicateRelus) -> DuplicateFold:
    """The source is reached through lines, which pay for `bent` alone; `linear` is of what has no error."""
    kept, gone, _ = twins
    source = state.layers[i].sources[0]
    charge, size = state.charge(source).flatten(), state.sizes[source].flatten()
    own = 4 * (state.own(i) + state.own(source)) * size  # sums of as many terms as there are cells, twice
    apart = (charge[kept] + charge[gone]) * SUMS
    price = torch.zeros_like(charge)
    price[kept] = own[kept]
    price[gone] = apart + own[kept]
    return DuplicateFold(twins, apart, price.reshape(state.sizes[source].shape))


def unread(state: DuplicateContext, i: int, fold: DuplicateFold | None) -> Tensor:
    """Cells of the source of relu i whose box no objective depends on: twins, and those that cancel them.

    relu(z) - relu(-z) = z has no relu left: there the only layer that reads both gives them opposite weights.
    """
    if fold is None:
        return torch.zeros(0, dtype=torch.int64)
    kept, gone, _ = fold.twins
    reading = [layer for layer in state.layers.values() if i in layer.sources]
    layer = reading[0] if len(reading) == 1 and state.readers.get(i) == 1 else None
    if (
        not isinstance(layer, BoundLinear)
        or len(layer.varying) != 1
        or layer.factors is not None
        or layer.node_cells**2 > MOST
    ):
        return gone
    weights = layer.matrix.index_add(1, kept, layer.matrix[:, gone])
    some = torch.unique(kept)
    return torch.cat([gone, some[~weights[:, some].any(0)]])
