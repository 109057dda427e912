"""Exchanges between ranks as PyTorch autograd functions, on torch.distributed: any backend, any device.

Ranks must exchange in one order, or they wait for each other without end. Forwards that is the order of the graph.
Backwards autograd goes its own way, and another way on a rank where a value has no cells; so every exchange hands a
token on to the next, and on the way back each waits for the one after it. `ReplicatedInputs` begins the chain and
`ReplicatedOutputs` ends it: whatever a rank differentiates, and in whatever it asks for gradients, all exchanges are
on its way, in one order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...errors import ParameterError
from ...partition.partition import Move, overlap
from ...window import Shape
from ...window.footprint import Box, inside, lengths


@dataclass(frozen=True, slots=True)
class Link:
    """A process group as one of its ranks sees it: the group, this rank, the `count` of ranks."""

    group: Any
    rank: int
    count: int

    def all_reduce_sum(self, t: Tensor) -> Tensor:
        """Return the sum of `t` over all ranks, equal on each."""
        total = t.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=self.group)
        return total

    def all_gather(self, t: Tensor) -> list[Tensor]:
        """Return the tensor `t` of every rank, in the order of ranks."""
        parts = [torch.empty_like(t, memory_format=torch.contiguous_format) for _ in range(self.count)]
        dist.all_gather(parts, t.contiguous(), group=self.group)
        return parts

    def send_and_receive(self, out: dict[int, list[Tensor]], into: dict[int, list[Tensor]]) -> None:
        """Send one message to every rank in `out` and fill the tensors of `into` with one from each of its ranks."""
        sent = {peer: torch.cat([t.reshape(-1) for t in ts]) for peer, ts in sorted(out.items())}
        received = {peer: ts[0].new_empty(sum(t.numel() for t in ts)) for peer, ts in sorted(into.items())}
        steps = [dist.P2POp(dist.isend, t, group=self.group, group_peer=peer) for peer, t in sent.items()]
        steps += [dist.P2POp(dist.irecv, t, group=self.group, group_peer=peer) for peer, t in received.items()]
        for work in dist.batch_isend_irecv(steps) if steps else ():
            work.wait()
        for peer, flat in received.items():
            for t, cells in zip(into[peer], flat.split([t.numel() for t in into[peer]]), strict=True):
                t.copy_(cells.view(t.shape))


@dataclass(frozen=True, slots=True)
class RankHalo:
    """What one rank sends and receives (`takes`) of one value, by peer: it owns the cells `own`, and needs `window`.
    Gradients flow back if `differentiated`.
    """

    own: Box
    window: Box
    sends: tuple[tuple[int, Box], ...]
    takes: tuple[tuple[int, Box], ...]
    differentiated: bool

    @property
    def own_overlap(self) -> Box | None:
        """Box of the rank's own cells inside the window; None if there are none."""
        return overlap(self.own, self.window)

    @property
    def is_covered(self) -> bool:
        """Whether every cell of the window is owned or received; cells that are not are read by nobody, and 0."""
        boxes = [box for _, box in self.takes] + ([] if self.own_overlap is None else [self.own_overlap])
        return sum(math.prod(lengths(box)) for box in boxes) == math.prod(lengths(self.window))


def halo_of_rank(own: Box, window: Box, moves: Sequence[Move], rank: int, differentiated: bool) -> RankHalo:
    """Return the part of `moves` that one rank, with cells `own`, sends and receives to have `window`;
    `differentiated`: whether gradients flow back.
    """
    sends = tuple((m.target, m.box) for m in moves if m.source == rank)
    takes = tuple((m.source, m.box) for m in moves if m.target == rank)
    return RankHalo(own, window, sends, takes, differentiated)


def _views_by_peer(t: Tensor, origin: Box, pieces: Sequence[tuple[int, Box]]) -> dict[int, list[Tensor]]:
    """Return, per peer, views of the cells of `t` (which fills `origin`) in `pieces`, (peer, box): what goes to it or
    comes from it.
    """
    views: dict[int, list[Tensor]] = {}
    for peer, box in pieces:
        views.setdefault(peer, []).append(t[inside(box, origin)])
    return views


class HaloExchange(torch.autograd.Function):
    """Autograd function: own cells -> the window with cells of other ranks; backward adds cotangents at the owner."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, link: Link, halo: RankHalo) -> Any:
        """Return this rank's window of a value, its own cells and those of others, and the token that orders exchanges.

        `ctx` keeps link and halo for the way back.
        """
        ctx.link, ctx.halo = link, halo
        y = x.new_empty(lengths(halo.window)) if halo.is_covered else x.new_zeros(lengths(halo.window))
        if halo.own_overlap is not None:
            y[inside(halo.own_overlap, halo.window)] = x[inside(halo.own_overlap, halo.own)]
        link.send_and_receive(_views_by_peer(x, halo.own, halo.sends), _views_by_peer(y, halo.window, halo.takes))
        return y, token.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor, token: Tensor) -> Any:
        """Return the cotangent of this rank's own cells: what it and others read of them, summed.

        The token's own cotangent passes through. `ctx` holds what forward kept.
        """
        link, halo = ctx.link, ctx.halo
        if not halo.differentiated:
            return None, token, None, None
        gx = gy.new_empty(lengths(halo.own)) if halo.own_overlap == halo.own else gy.new_zeros(lengths(halo.own))
        if halo.own_overlap is not None:
            gx[inside(halo.own_overlap, halo.own)] = gy[inside(halo.own_overlap, halo.window)]
        more = {
            peer: [torch.empty_like(t) for t in ts] for peer, ts in _views_by_peer(gx, halo.own, halo.sends).items()
        }
        link.send_and_receive(_views_by_peer(gy, halo.window, halo.takes), more)
        for peer, views in sorted(_views_by_peer(gx, halo.own, halo.sends).items()):
            for view, g in zip(views, more[peer], strict=True):
                view += g
        return gx, token, None, None


class AllReduceSum(torch.autograd.Function):
    """Autograd function: sum over all ranks; backward sums the cotangents of all ranks, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, link: Link) -> Any:
        """Return the sum of x over all ranks, and the token that orders exchanges.

        `ctx` keeps the link for the way back.
        """
        ctx.link = link
        return link.all_reduce_sum(x), token.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor, token: Tensor) -> Any:
        """Return the sum of the cotangents gy over all ranks, and the token's own; `ctx` holds what forward kept."""
        return ctx.link.all_reduce_sum(gy), token, None


class AllReduceMax(torch.autograd.Function):
    """Autograd function: maximum over `axes` and all ranks, NaN if a cell is.

    All ranks' maximisers receive the cotangent, or share it if ties are "split".
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, link: Link, axes: Shape, ties: str) -> Any:
        """Return the maximum of x over `axes` and all ranks, and the token that orders exchanges.

        `ctx` keeps the winners, link, axes and `ties`, which says whether winners share the derivative.
        """
        cells = all(x.shape[a] for a in axes)
        own = x.amax(axes, keepdim=True) if cells else x.sum(axes, keepdim=True).fill_(-torch.inf)
        y = reduce(torch.maximum, link.all_gather(own))
        ctx.link, ctx.axes, ctx.ties = link, axes, ties
        ctx.save_for_backward((x == y) | x.isnan())
        return y.squeeze(axes), token.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor, token: Tensor) -> Any:
        """Return the cotangent of x: that of the maximum at every winner, divided by their number if ties are "split".

        The token's own cotangent passes through. `ctx` holds what forward kept.
        """
        (wins,) = ctx.saved_tensors
        g = ctx.link.all_reduce_sum(gy)
        if ctx.ties == "split":
            g = g / ctx.link.all_reduce_sum(wins.sum(ctx.axes))
        for axis in sorted(ctx.axes):
            g = g.unsqueeze(axis)
        return torch.where(wins, g, 0), token, None, None, None


class ReplicatedInputs(torch.autograd.Function):
    """Autograd function that begins the chain of exchanges: returns the first token and the arguments.

    Backward, cotangents of the arguments in `summed`, which all ranks have whole, are summed over the ranks.
    """

    @staticmethod
    def forward(ctx: Any, link: Link, summed: Sequence[int], *args: Tensor) -> Any:
        """Return a token and the arguments unchanged; those numbered in `summed` are whole on every rank.

        `ctx` keeps both for the way back.
        """
        ctx.link, ctx.summed = link, summed
        return args[0].new_zeros(()), *(a.view_as(a) for a in args)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, *gs: Tensor) -> Any:
        """Return the cotangents `gs`, those of whole arguments summed over ranks; `ctx` holds what forward kept."""
        totals = list(gs)
        if ctx.summed:
            flat = ctx.link.all_reduce_sum(torch.cat([gs[k].reshape(-1) for k in ctx.summed]))
            parts = flat.split([gs[k].numel() for k in ctx.summed])
            for k, part in zip(ctx.summed, parts, strict=True):
                totals[k] = part.view(gs[k].shape)
        return None, None, *totals


class ReplicatedOutputs(torch.autograd.Function):
    """Autograd function that ends the chain of exchanges and returns the results.

    Results in `once` are whole on all ranks: only rank 0's cotangent counts, which must be equal on all.
    """

    @staticmethod
    def forward(ctx: Any, link: Link, once: Sequence[int], token: Tensor, *results: Tensor) -> Any:
        """Return the results unchanged; those numbered in `once` are whole on every rank and count once.

        The `token` ends here; `ctx` keeps the rest for the way back.
        """
        ctx.link, ctx.once = link, once
        return tuple(r.view_as(r) for r in results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gs: Tensor) -> Any:
        """Return a gradient per argument of forward: those of the results are `gs`; of whole results zeros on all ranks
        but the first.

        ParameterError if ranks were given different `gs` for whole results. `ctx` holds what forward kept.
        """
        if ctx.once:
            _check_equal_on_ranks(ctx.link, torch.cat([gs[k].reshape(-1) for k in ctx.once]))
        away = set(ctx.once) if ctx.link.rank else set()
        return None, None, gs[0].new_zeros(()), *(torch.zeros_like(g) if k in away else g for k, g in enumerate(gs))


def _check_equal_on_ranks(link: Link, g: Tensor) -> None:
    """Raise ParameterError if ranks have different cotangents g of results that all of them have whole."""
    first, *others = link.all_gather(g)
    if not all(torch.allclose(first, other, rtol=1e-3, atol=0, equal_nan=True) for other in others):
        text = "ranks have other gradients of a result that is whole on all of them, and counts once"
        raise ParameterError("shard", f"{text}; a loss that mixes it with parts belongs into the graph", rule="P5")


replicate_inputs: Callable[..., Any] = ReplicatedInputs.apply
exchange: Callable[..., Any] = HaloExchange.apply
all_reduce_sum: Callable[..., Any] = AllReduceSum.apply
all_reduce_max: Callable[..., Any] = AllReduceMax.apply
replicate_outputs: Callable[..., Any] = ReplicatedOutputs.apply
