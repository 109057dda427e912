"""A graph on one rank of a group: its own cells of every layer, computed by PyTorch from those that it is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import ParameterError, ScalarError, ShapeError, SpecgradError
from ..graph.graph import CONSTANT, INPUT, NumberArg
from ..graph.ir.tree import transform
from ..op import apply
from ..partition.partition import Partition
from ..partition.spatial_axes import data_positions
from ..window.footprint import Box, inside, lengths, slices
from .tile import bound
from .torch_exchange import Link, add_up, enter, exchange, halo, largest, leave


def link_of(group: Any) -> Link:
    """The group's own view of itself; of a mesh of one dimension, its group's."""
    if not dist.is_initialized():
        raise ParameterError("shard", "needs processes: call torch.distributed.init_process_group first", rule="P5")
    if hasattr(group, "get_group"):
        if group.ndim != 1:
            text = f"needs a mesh of one dimension, such as mesh['rows']; got {group.ndim}"
            raise ParameterError("shard", text, rule="P5")
        group = group.get_group()
    rank = dist.get_rank(group)
    if rank < 0:
        raise ParameterError("shard", "this process is not in the group", rule="P5")
    return Link(group, rank, dist.get_world_size(group))


class Sharded:
    """A graph in parts, called as the graph is: `out[s.box] = s(params, x[s.reads])`. See `specgrad.scale.torch_shard`.

    parts   who owns what, and what moves: `specgrad.scale.Partition`
    """

    def __init__(self, parts: Partition, link: Link) -> None:
        if parts.count != link.count:
            text = f"sizes are for {parts.count} ranks; the group has {link.count}"
            raise ParameterError("shard", text, rule="P5")
        self.parts, self.link = parts, link
        graph = parts.graph
        self._last = {a: p for p, node in enumerate(graph.nodes) for a in node.operands()}
        self._digest = _digest(parts)
        self._compared = False
        self._constants: dict[tuple[int, Any, Any], Tensor] = {}

    @property
    def reads(self) -> Any:
        """Its part of the data; a tuple of indices where there are several data inputs."""
        indices = tuple(slices(self._own(p)) for p in data_positions(self.parts.graph))
        return indices[0] if len(indices) == 1 else indices

    @property
    def box(self) -> Any:
        """Where its results belong, in the structure of the graph's results."""
        graph = self.parts.graph
        indices = transform(lambda _, p: slices(self._own(p)), graph.outputs)
        return indices[0] if graph.single else indices

    def _own(self, p: int) -> Box:
        return self.parts.owned(p, self.link.rank)

    def __call__(self, *args: Any) -> Any:
        graph = self.parts.graph
        positions = [p for p in graph.input_positions if graph.nodes[p].kind == "real"]
        try:
            given = self._bound(args)
            like = self._checked(given)
        except SpecgradError:
            self._agree(_any_tensor(args), None)  # or the others would wait
            raise
        wanted = {p for p in positions if given[p].requires_grad and torch.is_grad_enabled()}
        self._agree(like, [p in wanted for p in positions], self._values(given))
        summed = [k for k, p in enumerate(positions) if p in wanted and p not in self.parts.axes]
        token, *entered = enter(self.link, summed, *(given[p] for p in positions))
        given.update(zip(positions, entered, strict=True))
        return self._left(*_RankRun(self, given, like, wanted, token).results())

    def _left(self, results: dict[int, Tensor], token: Tensor) -> Any:
        """The results in the graph's structure, the chain of exchanges ended."""
        graph = self.parts.graph
        real = [p for p in results if graph.nodes[p].kind == "real"]
        once = [k for k, p in enumerate(real) if p not in self.parts.axes]
        if real:
            left = leave(self.link, once, token, *(results[p] for p in real))
            results.update(zip(real, left, strict=True))
        tree = transform(lambda _, p: results[p], graph.outputs)
        return tree[0] if graph.single else tree

    # --- what is given ------------------------------------------------------------------------------------------------

    def _bound(self, args: Sequence[Any]) -> dict[int, Tensor]:
        graph = self.parts.graph
        if len(args) != len(graph.inputs):
            text = f"takes {len(graph.inputs)} arguments ({', '.join(graph.names)}); got {len(args)}"
            raise ShapeError("shard", text)
        values = {}
        for path, p, value in bound(graph, args):
            if not isinstance(value, Tensor):
                raise ScalarError("shard", f"{path} must be a torch tensor; got {type(value).__name__}")
            if tuple(value.shape) != lengths(self._own(p)):
                part = f"rank {self.link.rank}'s part of {graph.nodes[p].shape}, " if p in self.parts.axes else ""
                raise ShapeError(
                    "shard", f"{path} must have shape {part}{lengths(self._own(p))}; got {tuple(value.shape)}"
                )
            values[p] = value
        return values

    def _checked(self, given: dict[int, Tensor]) -> Tensor:
        """All numbers have one type: a rank without cells of a layer must know which one it is sent."""
        nodes = self.parts.graph.nodes
        like = next(t for p, t in given.items() if p in self.parts.axes and nodes[p].kind == "real")
        for p, t in given.items():
            name, real = nodes[p].name, nodes[p].kind == "real"
            if real and (t.dtype != like.dtype or not t.is_floating_point()):
                text = f"all numbers must be of one floating type; {name} is {t.dtype}, the data {like.dtype}"
                raise ScalarError("shard", text)
            if not real and t.dtype != torch.int64:
                raise ScalarError("shard", f"{name} must be torch.int64; got {t.dtype}")
        if torch.is_autocast_enabled(like.device.type):
            raise ScalarError("shard", "not under autocast: ranks without cells of a layer cannot know its type")
        return like

    def _values(self, given: dict[int, Tensor]) -> int:
        """The arguments that are whole, as one number; in the first call alone, for it reads them all."""
        if self._compared:
            return 0
        sha = hashlib.sha256()
        for p in self.parts.given[1]:
            sha.update(given[p].detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
        return int.from_bytes(sha.digest()[:7])

    def _agree(self, like: Tensor, wanted: list[bool] | None, values: int = 0) -> None:
        """Ranks that would exchange something else would wait for ever, or read wrong cells: all are told before.

        wanted   which inputs have gradients; None: the arguments here are wrong
        """
        words = {
            "was given wrong arguments": int(wanted is None),
            f"has another graph, axis or sizes than rank {self.link.rank}": self._digest,
            f"has another number type than rank {self.link.rank}": _number(str(like.dtype)),
            f"has gradients of other inputs to compute than rank {self.link.rank}": _number(str(wanted)),
            f"has other parameters, or other whole inputs, than rank {self.link.rank}": values,
        }
        mine = torch.tensor(list(words.values()), dtype=torch.int64, device=like.device)
        everyone = torch.stack(self.link.all(mine)).tolist()
        for rank, theirs in enumerate(everyone if wanted is not None else ()):
            for (what, own), other in zip(words.items(), theirs, strict=True):
                if own != other:
                    raise ParameterError("shard", f"rank {rank} {what}", rule="P5")
        self._compared = wanted is not None

    def constant(self, p: int, like: Tensor) -> Tensor:
        """A constant of the graph where the data is, in its number type."""
        key = p, like.device, like.dtype
        if key not in self._constants:
            array = self.parts.graph.constants[p]
            t = torch.as_tensor(array.astype(float if array.dtype == object else array.dtype), device=like.device)
            real = self.parts.graph.nodes[p].kind == "real"
            self._constants[key] = t.to(like.dtype if real else torch.int64)
        return self._constants[key]


def _any_tensor(args: Any) -> Tensor:
    """One of the tensors that were given, however deep: it tells the device."""
    if isinstance(args, Tensor):
        return args
    inner = args.values() if isinstance(args, dict) else args if isinstance(args, tuple | list) else ()
    return next((t for t in map(_any_tensor, inner) if t.numel()), torch.zeros(0))


def _number(text: str) -> int:
    """The same on every machine, in 56 bits."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])


def _digest(parts: Partition) -> int:
    """A graph with the values of its constants, and how it is cut, as one number."""
    graph, how = parts.graph, (parts.axis, parts.cuts, parts.allow_whole)
    nodes = [(n.op.name, n.args, sorted(n.params.items()), n.shape, n.kind) for n in graph.nodes]
    values = [
        (p, a.dtype.str, hashlib.sha256(repr(a.tolist()).encode() if a.dtype == object else a.tobytes()).hexdigest())
        for p, a in graph.constants.items()
    ]
    return _number(repr((nodes, values, graph.inputs, graph.outputs, how)))


class _RankRun:
    """One call on one rank: of every value, the cells that are here and the box that they fill."""

    def __init__(
        self, sharded: Sharded, given: dict[int, Tensor], like: Tensor, wanted: set[int], token: Tensor
    ) -> None:
        self.sharded, self.parts, self.link = sharded, sharded.parts, sharded.link
        self.given, self.like, self.token = given, like, token
        self.wanted = set(wanted)
        self.held: dict[int, tuple[Tensor, Box]] = {}

    def results(self) -> tuple[dict[int, Tensor], Tensor]:
        """The outputs on this rank, and the last token."""
        graph, results = self.parts.graph, dict[int, Tensor]()
        outputs = set(graph.output_positions)
        for p, node in enumerate(graph.nodes):
            if node.kind == "real" and any(a in self.wanted for a in node.operands()):
                self.wanted.add(p)
            value = self._value(p)
            if p in outputs:
                results[p] = value
            self.held[p] = self._exchanged(p, value)
            for a in node.operands():
                if self.sharded._last[a] == p:
                    self.held.pop(a, None)
        return results, self.token

    def _value(self, p: int) -> Tensor:
        node = self.parts.graph.nodes[p]
        if node.op is INPUT:
            return self.given[p]
        if node.op is CONSTANT:
            return self.sharded.constant(p, self.like)
        if p in self.parts.reduced:
            return self._joined(p)
        own = self.parts.owned(p, self.link.rank)
        if not self.parts.computes(p, self.link.rank):
            return self.like.new_zeros(lengths(own), dtype=None if node.kind == "real" else torch.int64)
        cut = self.parts.cut(p, self.link.rank)
        value: Tensor = apply(node.op, *(self._argument(p, k) for k in range(len(node.args))), **cut.params)
        return value if cut.gives == own else value[inside(own, cut.gives)]

    def _argument(self, p: int, k: int) -> Any:
        a = self.parts.graph.nodes[p].args[k]
        if isinstance(a, NumberArg):
            return a.value
        box, (value, here) = self.parts.argument(p, k, self.link.rank), self.held[a]
        if box == here:
            return value
        if not all(first < stop for first, stop in box):
            return value.new_zeros(lengths(box))
        return value[inside(box, here)]

    def _joined(self, p: int) -> Tensor:
        """A sum or a maximum over the cut axis: of the cells of this rank, then of all ranks."""
        node = self.parts.graph.nodes[p]
        own = self._argument(p, 0)
        value: Tensor
        if node.op.name == "sum":
            value, self.token = add_up(apply(node.op, own, **node.params), self.token, self.link)
        else:
            value, self.token = largest(own, self.token, self.link, node.params["axes"], node.params["ties"])
        return value

    def _exchanged(self, p: int, value: Tensor) -> tuple[Tensor, Box]:
        rank, own = self.link.rank, self.parts.owned(p, self.link.rank)
        if p not in self.parts.exchanges:
            return value, own
        window = self.parts.window(p, rank)
        sent = halo(own, window, self.parts.exchanges[p], rank, p in self.wanted)
        y, self.token = exchange(value, self.token, self.link, sent)
        return y, window
