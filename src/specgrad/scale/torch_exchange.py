"""What parts exchange on PyTorch, as functions on its tape. Only torch.distributed: any backend, any device.

Ranks must exchange in one order, or they wait for each other for ever. Forwards that is the order of the graph.
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

from ..errors import ParameterError
from ..partition.partition import Move, overlap
from ..window import Shape
from ..window.footprint import Box, inside, lengths


@dataclass(frozen=True, slots=True)
class Link:
    """A group of processes, seen from one of them."""

    group: Any
    rank: int
    count: int

    def add(self, t: Tensor) -> Tensor:
        """The sum over all ranks, the same on each."""
        total = t.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=self.group)
        return total

    def all(self, t: Tensor) -> list[Tensor]:
        """What every rank has."""
        parts = [torch.empty_like(t, memory_format=torch.contiguous_format) for _ in range(self.count)]
        dist.all_gather(parts, t.contiguous(), group=self.group)
        return parts

    def swap(self, out: dict[int, list[Tensor]], into: dict[int, list[Tensor]]) -> None:
        """One message to every rank in `out`, one from every rank in `into`, whose tensors are filled."""
        sent = {peer: torch.cat([t.reshape(-1) for t in ts]) for peer, ts in sorted(out.items())}
        got = {peer: ts[0].new_empty(sum(t.numel() for t in ts)) for peer, ts in sorted(into.items())}
        steps = [dist.P2POp(dist.isend, t, group=self.group, group_peer=peer) for peer, t in sent.items()]
        steps += [dist.P2POp(dist.irecv, t, group=self.group, group_peer=peer) for peer, t in got.items()]
        for work in dist.batch_isend_irecv(steps) if steps else ():
            work.wait()
        for peer, flat in got.items():
            for t, cells in zip(into[peer], flat.split([t.numel() for t in into[peer]]), strict=True):
                t.copy_(cells.view(t.shape))


@dataclass(frozen=True, slots=True)
class RankHalo:
    """What one rank sends and takes of one value: it has the cells `own`, and gets `window`."""

    own: Box
    window: Box
    sends: tuple[tuple[int, Box], ...]
    takes: tuple[tuple[int, Box], ...]
    differentiated: bool

    @property
    def kept(self) -> Box | None:
        """Its own cells in the window."""
        return overlap(self.own, self.window)

    @property
    def full(self) -> bool:
        """Whether every cell of the window comes from somewhere; else some are read by nobody, and 0."""
        boxes = [box for _, box in self.takes] + ([] if self.kept is None else [self.kept])
        return sum(math.prod(lengths(box)) for box in boxes) == math.prod(lengths(self.window))


def halo(own: Box, window: Box, moves: Sequence[Move], rank: int, differentiated: bool) -> RankHalo:
    sends = tuple((m.target, m.box) for m in moves if m.source == rank)
    takes = tuple((m.source, m.box) for m in moves if m.target == rank)
    return RankHalo(own, window, sends, takes, differentiated)


def _by_peer(t: Tensor, origin: Box, pieces: Sequence[tuple[int, Box]]) -> dict[int, list[Tensor]]:
    """Views of the cells that go to, or come from, every peer."""
    views: dict[int, list[Tensor]] = {}
    for peer, box in pieces:
        views.setdefault(peer, []).append(t[inside(box, origin)])
    return views


class HaloExchange(torch.autograd.Function):
    """Cells that a rank owns -> the window that it reads; cotangents go back to the owner, and are added there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, link: Link, halo: RankHalo) -> Any:
        ctx.link, ctx.halo = link, halo
        y = x.new_empty(lengths(halo.window)) if halo.full else x.new_zeros(lengths(halo.window))
        if halo.kept is not None:
            y[inside(halo.kept, halo.window)] = x[inside(halo.kept, halo.own)]
        link.swap(_by_peer(x, halo.own, halo.sends), _by_peer(y, halo.window, halo.takes))
        return y, token.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor, token: Tensor) -> Any:
        link, halo = ctx.link, ctx.halo
        if not halo.differentiated:
            return None, token, None, None
        gx = gy.new_empty(lengths(halo.own)) if halo.kept == halo.own else gy.new_zeros(lengths(halo.own))
        if halo.kept is not None:
            gx[inside(halo.kept, halo.own)] = gy[inside(halo.kept, halo.window)]
        more = {peer: [torch.empty_like(t) for t in ts] for peer, ts in _by_peer(gx, halo.own, halo.sends).items()}
        link.swap(_by_peer(gy, halo.window, halo.takes), more)
        for peer, views in sorted(_by_peer(gx, halo.own, halo.sends).items()):
            for view, g in zip(views, more[peer], strict=True):
                view += g
        return gx, token, None, None


class AllReduceSum(torch.autograd.Function):
    """The sum of what every rank has; each rank's cotangent is for the same sum, so they are added too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, link: Link) -> Any:
        ctx.link = link
        return link.add(x), token.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor, token: Tensor) -> Any:
        return ctx.link.add(gy), token, None


class AllReduceMax(torch.autograd.Function):
    """The maximum over axes of the cells of all ranks, NaN if one is; ties, over all ranks, as amax has them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, link: Link, axes: Shape, ties: str) -> Any:
        cells = all(x.shape[a] for a in axes)
        own = x.amax(axes, keepdim=True) if cells else x.sum(axes, keepdim=True).fill_(-torch.inf)
        y = reduce(torch.maximum, link.all(own))
        ctx.link, ctx.axes, ctx.ties = link, axes, ties
        ctx.save_for_backward((x == y) | x.isnan())
        return y.squeeze(axes), token.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor, token: Tensor) -> Any:
        (wins,) = ctx.saved_tensors
        g = ctx.link.add(gy)
        if ctx.ties == "split":
            g = g / ctx.link.add(wins.sum(ctx.axes))
        for axis in sorted(ctx.axes):
            g = g.unsqueeze(axis)
        return torch.where(wins, g, 0), token, None, None, None


class ReplicatedInputs(torch.autograd.Function):
    """The arguments, and the first token. Cotangents of those in `summed`, which all ranks have, are added up."""

    @staticmethod
    def forward(ctx: Any, link: Link, summed: Sequence[int], *args: Tensor) -> Any:
        ctx.link, ctx.summed = link, summed
        return args[0].new_zeros(()), *(a.view_as(a) for a in args)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, *gs: Tensor) -> Any:
        totals = list(gs)
        if ctx.summed:
            flat = ctx.link.add(torch.cat([gs[k].reshape(-1) for k in ctx.summed]))
            parts = flat.split([gs[k].numel() for k in ctx.summed])
            for k, part in zip(ctx.summed, parts, strict=True):
                totals[k] = part.view(gs[k].shape)
        return None, None, *totals


class ReplicatedOutputs(torch.autograd.Function):
    """The results. Those in `once`, which all ranks have, have one cotangent: the first rank's, the same on all."""

    @staticmethod
    def forward(ctx: Any, link: Link, once: Sequence[int], token: Tensor, *results: Tensor) -> Any:
        ctx.link, ctx.once = link, once
        return tuple(r.view_as(r) for r in results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gs: Tensor) -> Any:
        if ctx.once:
            _same_everywhere(ctx.link, torch.cat([gs[k].reshape(-1) for k in ctx.once]))
        away = set(ctx.once) if ctx.link.rank else set()
        return None, None, gs[0].new_zeros(()), *(torch.zeros_like(g) if k in away else g for k, g in enumerate(gs))


def _same_everywhere(link: Link, g: Tensor) -> None:
    """Ranks whose losses differ in a whole result have mixed it with their parts: whose cotangent counts is unclear."""
    first, *others = link.all(g)
    if not all(torch.allclose(first, other, rtol=1e-3, atol=0, equal_nan=True) for other in others):
        text = "ranks have other gradients of a result that is whole on all of them, and counts once"
        raise ParameterError("shard", f"{text}; a loss that mixes it with parts belongs into the graph", rule="P5")


enter: Callable[..., Any] = ReplicatedInputs.apply
exchange: Callable[..., Any] = HaloExchange.apply
add_up: Callable[..., Any] = AllReduceSum.apply
largest: Callable[..., Any] = AllReduceMax.apply
leave: Callable[..., Any] = ReplicatedOutputs.apply
