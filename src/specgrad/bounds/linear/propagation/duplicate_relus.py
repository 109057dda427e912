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

from ..relaxation.bound_layers import BoundLayer, BoundLinear, Interval

MAX_WEIGHTS = 1 << 22  # weights of a layer that is looked through


class DuplicateContext(Protocol):
    """What finding duplicate relus needs of a network: the part of backward.State that is used here."""

    @property
    def layers(self) -> Mapping[int, BoundLayer]:
        """Bound layers of varying nodes, by position."""

    @property
    def sizes(self) -> Mapping[int, Tensor]:
        """What each layer gives on absolute values, (1, *shape), by position."""

    @property
    def readers(self) -> Mapping[int, int]:
        """How often a node is read, as an operand or an output, by position."""

    def own_rounding(self, i: int) -> float:
        """Bound of the relative error of one of our terms at node i."""

    def rounding_cost(self, i: int) -> Tensor:
        """Rounding cost per unit of abs(coefficient) at node i, (1, *shape)."""

    def absorbs_rounding_of(self, user: int, source: int) -> bool:
        """Whether `user` is an elementwise linear map and the only reader of the linear layer `source`."""


class DuplicateRelus(NamedTuple):
    """Pairs of cells of one relu, as flat positions: cell `gone` reads sign (1 or -1) times what cell `kept` reads."""

    kept: Tensor
    gone: Tensor
    sign: Tensor


def find_duplicates(state: DuplicateContext, i: int) -> DuplicateRelus | None:
    """Find cells of relu i with equal or negated inputs; None if there are none, or its source is not one plain matrix.

    `state` gives the layers.
    """
    layer = state.layers[i]
    if layer.node.op.name != "relu":
        return None
    lines = _affine_rows(state, layer.sources[0])
    return None if lines is None else _match_rows(lines)


def _affine_rows(state: DuplicateContext, i: int) -> Tensor | None:
    """Weights and constant of every cell of node i, (cells, inputs + 1), exact; None unless one matrix layer is below
    it.

    Everything on the way is paid for by node i (State.rounding_cost).
    """
    constants: list[Tensor] = []
    while isinstance(layer := state.layers[i], BoundLinear) and len(layer.varying) == 1:
        if layer.constant is not None:
            constants.append(layer.constant.flatten())
        cells, below = layer.node_cells, state.sizes[layer.sources[0]].numel()
        if layer.factors is None:
            if len(constants) > 1 or cells * max(below, cells) > MAX_WEIGHTS:
                return None
            rows = layer.matrix
            return torch.cat([rows, constants[0][:, None] if constants else torch.zeros_like(rows[:, :1])], 1)
        if layer.factors[0] is not None or not state.absorbs_rounding_of(i, layer.sources[0]):
            return None
        i = layer.sources[0]
    return None


def _match_rows(rows: Tensor) -> DuplicateRelus | None:
    """Pair every row with the first equal or negated row before it; None if no row has one. Zero rows are not paired.

    >>> _match_rows(torch.tensor([[1.0, 2.0], [0.0, 0.0], [-1.0, -2.0], [3.0, 2.0], [1.0, 2.0]]))
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
    """How coefficients of duplicate cells of one relu are merged, and what that costs.

    duplicates      the pairs
    pair_deviation  per pair: bound of abs(z_gone - sign*z_kept)
    fold_cost       loss per unit of abs(a), (1, *shape): replacing a cell by its duplicate, and our own roundings
    """

    duplicates: DuplicateRelus
    pair_deviation: Tensor
    fold_cost: Tensor

    def intersect_duplicates(self, ends: Interval) -> Interval:
        """Return the interval `ends` (low, high) with every kept cell's narrowed by that of its duplicates, widened by
        their deviation.
        """
        low, high = (end.flatten(1) for end in ends)
        kept, gone, sign = self.duplicates
        first, last = (end[:, gone] * sign for end in (low, high))
        at = kept.expand(len(low), -1)
        low = low.scatter_reduce(1, at, torch.minimum(first, last) - self.pair_deviation, "amax")
        high = high.scatter_reduce(1, at, torch.maximum(first, last) + self.pair_deviation, "amin")
        low, high = torch.minimum(low, high), torch.maximum(low, high)
        return low.reshape(ends[0].shape), high.reshape(ends[1].shape)

    def merge_coefficients(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return coefficients `a` (boxes, rows, *shape) split into those of the kept relus and those linear in the
        relu's source.
        """
        kept, gone, sign = self.duplicates
        flat = a.flatten(2)
        moved = flat[..., gone]
        bent = flat.index_add(2, kept, moved)
        bent[..., gone] = 0.0
        linear = torch.zeros_like(flat).index_add_(2, kept, torch.where(sign < 0, -moved, 0.0))
        return bent.reshape(a.shape), linear.reshape(a.shape)


def make_fold(state: DuplicateContext, i: int, twins: DuplicateRelus) -> DuplicateFold:
    """Return the fold of relu i, which replaces its duplicates by the relus that are kept, with what that costs in
    rounding.

    Relaxations hold the error of the source for the relu part only; the linear part is of w.x, which has no error.
    `state` knows the network's rounding costs, `twins` the duplicates of relu i.
    """
    kept, gone, _ = twins
    source = state.layers[i].sources[0]
    charge, size = state.rounding_cost(source).flatten(), state.sizes[source].flatten()
    own = (
        4 * (state.own_rounding(i) + state.own_rounding(source)) * size
    )  # sums of as many terms as there are cells, twice
    apart = (charge[kept] + charge[gone]) * SUMS
    price = torch.zeros_like(charge)
    price[kept] = own[kept]
    price[gone] = apart + own[kept]
    return DuplicateFold(twins, apart, price.reshape(state.sizes[source].shape))


def irrelevant_cells(state: DuplicateContext, i: int, fold: DuplicateFold | None) -> Tensor:
    """Flat cells of relu i's source whose interval affects no bound: duplicates, and kept cells that they cancel.

    relu(z) - relu(-z) = z has no relu left: there the only layer that reads both gives them opposite weights. `state`
    knows who reads relu i; without a fold there are none.
    """
    if fold is None:
        return torch.zeros(0, dtype=torch.int64)
    kept, gone, _ = fold.duplicates
    reading = [layer for layer in state.layers.values() if i in layer.sources]
    layer = reading[0] if len(reading) == 1 and state.readers.get(i) == 1 else None
    if (
        not isinstance(layer, BoundLinear)
        or len(layer.varying) != 1
        or layer.factors is not None
        or layer.node_cells**2 > MAX_WEIGHTS
    ):
        return gone
    weights = layer.matrix.index_add(1, kept, layer.matrix[:, gone])
    some = torch.unique(kept)
    return torch.cat([gone, some[~weights[:, some].any(0)]])
