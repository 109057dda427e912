"""One rank's part of a network split over processes: its own cells of every layer, computed by PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...errors import ParameterError, ScalarError, ShapeError, SpecgradError
from ...graph.graph import CONSTANT, INPUT, NumberArg
from ...graph.ir.tree import transform
from ...op import apply
from ...partition.partition import Partition
from ...partition.spatial_axes import data_positions
from ...window.footprint import Box, inside, lengths, slices
from ..tile import bind_args
from .torch_exchange import (
    Link,
    all_reduce_max,
    all_reduce_sum,
    exchange,
    halo_of_rank,
    replicate_inputs,
    replicate_outputs,
)


def link_of(group: Any) -> Link:
    """Return this process's view of a process group or one-dimensional DeviceMesh, to which it must belong.

    ParameterError for a mesh of several dimensions, without process groups, and outside the group.
    """
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
    """A graph split over ranks, called like the graph: `out[s.box] = s(params, x[s.reads])`; made by `shard`.

    ParameterError if the parts are not as many as the group has ranks.

    parts   who owns what, and what moves: `specgrad.scale.Partition`
    link    how ranks exchange
    """

    def __init__(self, parts: Partition, link: Link) -> None:
        if parts.count != link.count:
            text = f"sizes are for {parts.count} ranks; the group has {link.count}"
            raise ParameterError("shard", text, rule="P5")
        self.parts, self.link = parts, link
        graph = parts.graph
        self._last_use = {a: p for p, node in enumerate(graph.nodes) for a in node.operands()}
        self._digest = _partition_hash(parts)
        self._values_compared = False
        self._constants: dict[tuple[int, Any, Any], Tensor] = {}

    @property
    def reads(self) -> Any:
        """Index of the cells of the data that this rank owns, without halo; a tuple of indices for several inputs."""
        indices = tuple(slices(self._owned_box(p)) for p in data_positions(self.parts.graph))
        return indices[0] if len(indices) == 1 else indices

    @property
    def box(self) -> Any:
        """Index of this rank's results in the whole outputs, in the structure of the graph's results."""
        graph = self.parts.graph
        indices = transform(lambda _, p: slices(self._owned_box(p)), graph.outputs)
        return indices[0] if graph.single else indices

    def _owned_box(self, p: int) -> Box:
        """Return the box of node p that this rank owns."""
        return self.parts.owned(p, self.link.rank)

    def __call__(self, *args: Any) -> Any:
        """Return this rank's part of the outputs; all ranks must call it with tensors of the same types."""
        graph = self.parts.graph
        positions = [p for p in graph.input_positions if graph.nodes[p].kind == "real"]
        try:
            tensors = self._bind_args(args)
            like = self._check_types(tensors)
        except SpecgradError:
            self._check_agreement(_any_tensor(args), None)  # or the others would wait
            raise
        needs_grad = {p for p in positions if tensors[p].requires_grad and torch.is_grad_enabled()}
        self._check_agreement(like, [p in needs_grad for p in positions], self._hash_whole_arguments(tensors))
        summed = [k for k, p in enumerate(positions) if p in needs_grad and p not in self.parts.axes]
        token, *entered = replicate_inputs(self.link, summed, *(tensors[p] for p in positions))
        tensors.update(zip(positions, entered, strict=True))
        return self._finish_results(*_RankRun(self, tensors, like, needs_grad, token).results())

    def _finish_results(self, results: dict[int, Tensor], token: Tensor) -> Any:
        """Return the results in the graph's structure, with the last token of the exchanges attached to them.

        `results` are by position; the real ones are replaced there.
        """
        graph = self.parts.graph
        real = [p for p in results if graph.nodes[p].kind == "real"]
        once = [k for k, p in enumerate(real) if p not in self.parts.axes]
        if real:
            finished = replicate_outputs(self.link, once, token, *(results[p] for p in real))
            results.update(zip(real, finished, strict=True))
        tree = transform(lambda _, p: results[p], graph.outputs)
        return tree[0] if graph.single else tree

    # --- what is given ------------------------------------------------------------------------------------------------

    def _bind_args(self, args: Sequence[Any]) -> dict[int, Tensor]:
        """Return the arguments by position in the graph.

        ShapeError for another number of them, or a shape that is not the part that this rank owns; ScalarError if one
        is no tensor.
        """
        graph = self.parts.graph
        if len(args) != len(graph.inputs):
            text = f"takes {len(graph.inputs)} arguments ({', '.join(graph.names)}); got {len(args)}"
            raise ShapeError("shard", text)
        values = {}
        for path, p, value in bind_args(graph, args):
            if not isinstance(value, Tensor):
                raise ScalarError("shard", f"{path} must be a torch tensor; got {type(value).__name__}")
            if tuple(value.shape) != lengths(self._owned_box(p)):
                part = f"rank {self.link.rank}'s part of {graph.nodes[p].shape}, " if p in self.parts.axes else ""
                raise ShapeError(
                    "shard", f"{path} must have shape {part}{lengths(self._owned_box(p))}; got {tuple(value.shape)}"
                )
            values[p] = value
        return values

    def _check_types(self, tensors: dict[int, Tensor]) -> Tensor:
        """Return a data tensor; ScalarError unless all real arguments have its floating type, and indices are int64."""
        nodes = self.parts.graph.nodes
        like = next(t for p, t in tensors.items() if p in self.parts.axes and nodes[p].kind == "real")
        for p, t in tensors.items():
            name, real = nodes[p].name, nodes[p].kind == "real"
            if real and (t.dtype != like.dtype or not t.is_floating_point()):
                text = f"all numbers must be of one floating type; {name} is {t.dtype}, the data {like.dtype}"
                raise ScalarError("shard", text)
            if not real and t.dtype != torch.int64:
                raise ScalarError("shard", f"{name} must be torch.int64; got {t.dtype}")
        if torch.is_autocast_enabled(like.device.type):
            raise ScalarError("shard", "not under autocast: ranks without cells of a layer cannot know its type")
        return like

    def _hash_whole_arguments(self, tensors: dict[int, Tensor]) -> int:
        """Return a 56-bit hash of those of `tensors` that all ranks have whole; 0 after the first call."""
        if self._values_compared:
            return 0
        sha = hashlib.sha256()
        for p in self.parts.given[1]:
            sha.update(tensors[p].detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
        return int.from_bytes(sha.digest()[:7])

    def _check_agreement(self, like: Tensor, needs_grad: list[bool] | None, values: int = 0) -> None:
        """Raise ParameterError if ranks differ in graph, types, gradients or whole arguments: they would deadlock.

        ParameterError on a mismatch, not a deadlock.

        needs_grad   which inputs have gradients; None: the arguments here are wrong
        like         a tensor of this rank's number type; values a digest of its whole arguments
        """
        words = {
            "was given wrong arguments": int(needs_grad is None),
            f"has another graph, axis or sizes than rank {self.link.rank}": self._digest,
            f"has another number type than rank {self.link.rank}": _stable_hash(str(like.dtype)),
            f"has gradients of other inputs to compute than rank {self.link.rank}": _stable_hash(str(needs_grad)),
            f"has other parameters, or other whole inputs, than rank {self.link.rank}": values,
        }
        mine = torch.tensor(list(words.values()), dtype=torch.int64, device=like.device)
        everyone = torch.stack(self.link.all_gather(mine)).tolist()
        for rank, theirs in enumerate(everyone if needs_grad is not None else ()):
            for (what, own), other in zip(words.items(), theirs, strict=True):
                if own != other:
                    raise ParameterError("shard", f"rank {rank} {what}", rule="P5")
        self._values_compared = needs_grad is not None

    def constant(self, p: int, like: Tensor) -> Tensor:
        """Return constant p of the graph as a tensor on the device and in the number type of `like`; cached."""
        key = p, like.device, like.dtype
        if key not in self._constants:
            array = self.parts.graph.constants[p]
            t = torch.as_tensor(array.astype(float if array.dtype == object else array.dtype), device=like.device)
            real = self.parts.graph.nodes[p].kind == "real"
            self._constants[key] = t.to(like.dtype if real else torch.int64)
        return self._constants[key]


def _any_tensor(args: Any) -> Tensor:
    """Return some non-empty tensor of nested arguments (it tells the device), or an empty one on the CPU."""
    if isinstance(args, Tensor):
        return args
    inner = args.values() if isinstance(args, dict) else args if isinstance(args, tuple | list) else ()
    return next((t for t in map(_any_tensor, inner) if t.numel()), torch.zeros(0))


def _stable_hash(text: str) -> int:
    """Return a 56-bit hash of `text` that is equal on all machines (SHA-256, first 7 bytes)."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])


def _partition_hash(parts: Partition) -> int:
    """Return a 56-bit hash of a graph, its constants and its partition."""
    graph, how = parts.graph, (parts.axis, parts.cuts, parts.allow_whole)
    nodes = [(n.op.name, n.args, sorted(n.params.items()), n.shape, n.kind) for n in graph.nodes]
    values = [
        (p, a.dtype.str, hashlib.sha256(repr(a.tolist()).encode() if a.dtype == object else a.tobytes()).hexdigest())
        for p, a in graph.constants.items()
    ]
    return _stable_hash(repr((nodes, values, graph.inputs, graph.outputs, how)))


class _RankRun:
    """One call on one rank: for every live value, the cells that are here and the box that they fill.

    tensors      inputs by position: of data the part on this rank
    like         a data tensor, whose type and device constants get
    needs_grad   nodes of which a gradient will be asked
    token        orders the exchanges
    """

    def __init__(
        self, sharded: Sharded, tensors: dict[int, Tensor], like: Tensor, needs_grad: set[int], token: Tensor
    ) -> None:
        self.sharded, self.parts, self.link = sharded, sharded.parts, sharded.link
        self.tensors, self.like, self.token = tensors, like, token
        self.needs_grad = set(needs_grad)
        self.cells: dict[int, tuple[Tensor, Box]] = {}

    def results(self) -> tuple[dict[int, Tensor], Tensor]:
        """Compute all nodes in order; return the outputs of this rank by position, and the last token."""
        graph, results = self.parts.graph, dict[int, Tensor]()
        outputs = set(graph.output_positions)
        for p, node in enumerate(graph.nodes):
            if node.kind == "real" and any(a in self.needs_grad for a in node.operands()):
                self.needs_grad.add(p)
            value = self._node_value(p)
            if p in outputs:
                results[p] = value
            self.cells[p] = self._with_halo(p, value)
            for a in node.operands():
                if self.sharded._last_use[a] == p:
                    self.cells.pop(a, None)
        return results, self.token

    def _node_value(self, p: int) -> Tensor:
        """Return this rank's own cells of node p; zeros that nobody reads if the rank has none to compute."""
        node = self.parts.graph.nodes[p]
        if node.op is INPUT:
            return self.tensors[p]
        if node.op is CONSTANT:
            return self.sharded.constant(p, self.like)
        if p in self.parts.reduced:
            return self._reduced_over_ranks(p)
        own = self.parts.owned(p, self.link.rank)
        if not self.parts.computes(p, self.link.rank):
            return self.like.new_zeros(lengths(own), dtype=None if node.kind == "real" else torch.int64)
        cut = self.parts.cut(p, self.link.rank)
        value: Tensor = apply(node.op, *(self._node_argument(p, k) for k in range(len(node.args))), **cut.params)
        return value if cut.gives == own else value[inside(own, cut.gives)]

    def _node_argument(self, p: int, k: int) -> Any:
        """Return argument k of node p on this rank: a number, or the cells that the node reads."""
        a = self.parts.graph.nodes[p].args[k]
        if isinstance(a, NumberArg):
            return a.value
        box, (value, here) = self.parts.argument(p, k, self.link.rank), self.cells[a]
        if box == here:
            return value
        if not all(first < stop for first, stop in box):
            return value.new_zeros(lengths(box))
        return value[inside(box, here)]

    def _reduced_over_ranks(self, p: int) -> Tensor:
        """Return node p, a sum or maximum over the split axis: of this rank's cells, then over all ranks.

        All ranks must call it, in one order; `token` is replaced by that of the exchange.
        """
        node = self.parts.graph.nodes[p]
        own = self._node_argument(p, 0)
        value: Tensor
        if node.op.name == "sum":
            value, self.token = all_reduce_sum(apply(node.op, own, **node.params), self.token, self.link)
        else:
            value, self.token = all_reduce_max(own, self.token, self.link, node.params["axes"], node.params["ties"])
        return value

    def _with_halo(self, p: int, value: Tensor) -> tuple[Tensor, Box]:
        """Return the value of node p with the cells that readers need of other ranks, and the box it fills.

        All ranks must call it, in one order; `token` is replaced by that of the exchange.
        """
        rank, own = self.link.rank, self.parts.owned(p, self.link.rank)
        if p not in self.parts.exchanges:
            return value, own
        window = self.parts.window(p, rank)
        sent = halo_of_rank(own, window, self.parts.exchanges[p], rank, p in self.needs_grad)
        y, self.token = exchange(value, self.token, self.link, sent)
        return y, window
