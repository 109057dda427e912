"""What each rank does in the tests of sharding: a network on its part of the data, with all gradients."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

import specgrad as sg
from specgrad.graph.graph import CONSTANT, INPUT
from specgrad.scale import shard
from specgrad.scale.sharding import sharded_graph, torch_exchange
from tiled_networks import network

RANKS = 4


class Case(NamedTuple):
    graph: sg.Graph
    axis: int
    sizes: list[int]
    weights: dict[str, Tensor]
    x: Tensor
    cotangents: list[Tensor]


def listed(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def lifted(graph: sg.Graph) -> tuple[sg.Graph, dict[str, Tensor]]:
    """Constants as parameters, so that they have gradients too."""
    nodes = tuple(replace(n, op=INPUT) if n.op is CONSTANT else n for n in graph.nodes)
    names = {f"c{p}": p for p in graph.constants}
    free = sg.Graph(nodes, (*graph.names, "w"), (*graph.inputs, names), graph.outputs, graph.single, {})
    return free, {k: torch.tensor(graph.constants[p].astype(float)) for k, p in names.items()}


def case(seed: int) -> Case:
    """Parts of random sizes, empty ones too. Averages divide by 1 to 4 per axis: 12s keep their cotangents whole."""
    rng = Random(seed)
    graph, weights = lifted(network(rng))
    shape = graph.nodes[graph.input_positions[0]].shape
    axis = rng.randrange(2, len(shape))
    ends = sorted(rng.randint(0, shape[axis]) for _ in range(RANKS - 1))
    if rng.random() < 0.5:
        ends = [shape[axis] * d // RANKS for d in range(1, RANKS)]
    sizes = [b - a for a, b in pairwise([0, *ends, shape[axis]])]
    twelves = 12.0 ** ((len(shape) - 2) * sum(n.op.name == "avg_pool" for n in graph.nodes))

    def numbers(shape: tuple[int, ...], most: int) -> Tensor:
        flat = [rng.randint(-most, most) for _ in range(math.prod(shape))]
        return torch.tensor(flat, dtype=torch.float64).reshape(shape)

    x = numbers(shape, 3)
    return Case(
        graph, axis, sizes, weights, x, [numbers(graph.nodes[p].shape, 1) * twelves for p in graph.output_positions]
    )


class Part(NamedTuple):
    """What one rank has at the end: outputs and gradients of its data with their boxes, gradients of all weights."""

    outputs: list[Tensor]
    boxes: list[Any]
    gx: Tensor
    reads: Any
    gw: dict[str, Tensor]
    sent: int
    order: list[list[tuple[int, int]]]


class Post:
    """Every message of this rank, seen where it is sent."""

    def __init__(self) -> None:
        self.bytes, self.order = 0, list[tuple[int, int]]()
        right, swap = dist.batch_isend_irecv, torch_exchange.Link.send_and_receive

        def counted(steps: Any) -> Any:
            self.bytes += sum(s.tensor.nbytes for s in steps if s.op is dist.isend)
            return right(steps)

        def noted(link: torch_exchange.Link, out: Any, into: Any) -> None:
            cells = [sum(t.numel() for ts in pieces.values() for t in ts) for pieces in (out, into)]
            self.order.append((cells[0], cells[1]))
            swap(link, out, into)

        dist.batch_isend_irecv, torch_exchange.Link.send_and_receive = counted, noted  # type: ignore[assignment,method-assign]
        self.restore = lambda: (
            setattr(dist, "batch_isend_irecv", right),
            setattr(torch_exchange.Link, "send_and_receive", swap),
        )


def run_case(seed: int, group: Any) -> Part | str:
    c = case(seed)
    try:
        s = shard(c.graph, group, c.axis, sizes=c.sizes)
    except sg.UnsupportedError as error:
        return str(error)
    post = Post()
    x = c.x[s.reads].clone().requires_grad_()
    w = {k: t.clone().requires_grad_() for k, t in c.weights.items()}
    outputs, boxes = listed(s(x, w)), [s.box] if c.graph.single else list(s.box)
    forward, post.order = post.order, []
    sum((y * g[box]).sum() for y, g, box in zip(outputs, c.cotangents, boxes, strict=True)).backward()
    post.restore()
    grads = {k: t.grad if t.grad is not None else torch.zeros_like(t) for k, t in w.items()}
    gx = x.grad if x.grad is not None else torch.zeros_like(x)
    return Part([y.detach() for y in outputs], boxes, gx, s.reads, grads, post.bytes, [forward, post.order])


def run_cases(rank: int, count: int, seeds: list[int], mistake: str | None = None) -> list[Part | str]:
    group = None
    if mistake is not None:
        MISTAKES[mistake]()
    if mistake == "no_token":
        group = dist.new_group(timeout=timedelta(seconds=5))  # who waits for ever need not wait long
    return [run_case(seed, group) for seed in seeds]


# --- planted mistakes -------------------------------------------------------------------------------------------------


def short_halo() -> None:
    """The last cell of what is sent is not there."""
    right = torch_exchange.Link.send_and_receive

    def wrong(link: torch_exchange.Link, out: Any, into: Any) -> None:
        right(link, out, into)
        for pieces in into.values():
            pieces[-1][(-1,) * pieces[-1].ndim] = 0

    torch_exchange.Link.send_and_receive = wrong  # type: ignore[method-assign]


def not_summed() -> None:
    torch_exchange.Link.all_reduce_sum = lambda self, t: t.clone()  # type: ignore[method-assign]


def no_token() -> None:
    """Exchanges that do not wait for each other."""
    right = sharded_graph.exchange

    def wrong(x: Tensor, token: Tensor, *rest: Any) -> Any:
        return right(x, token.detach(), *rest)[0], token

    sharded_graph.exchange = wrong


def sent_back_to_nobody() -> None:
    """A rank keeps the cotangents of cells that it was sent."""
    right = torch_exchange.halo_of_rank
    sharded_graph.halo_of_rank = lambda *args: right(*args[:-1], False)


MISTAKES = {f.__name__: f for f in (short_halo, not_summed, no_token, sent_back_to_nobody)}


# --- a U-Net on two samples x two halves of the rows ------------------------------------------------------------------


def unet(p: Any, x: Any, target: Any) -> Any:
    """Two levels, a transposed convolution up, a skip; the loss is in the graph: half of all squared differences."""
    y = sg.relu(sg.conv(p["a"], p["bias"], x, padding=1))
    z = sg.relu(sg.conv(p["b"], None, sg.max_pool(y, (2, 2)), padding=1))
    up = sg.conv_transpose(p["up"], None, z, stride=2, padding=((1, 1), (1, 1)), output_padding=(1, 1))
    d = sg.conv(p["head"], None, sg.concat([y, up], 1), padding=1) - target
    return sg.sum(d * d) / 2


SHAPES = {"a": (4, 1, 3, 3), "bias": (4,), "b": (4, 4, 3, 3), "up": (4, 4, 3, 3), "head": (1, 8, 3, 3)}
RATE = 2.0**-12


class Unet(torch.nn.Module):
    """The loss of a batch, by whoever computes the graph."""

    def __init__(self, run: Any, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.run, self.weights = run, torch.nn.ParameterDict({k: t.clone() for k, t in weights.items()})

    def forward(self, *data: Tensor) -> Tensor:
        loss: Tensor = self.run(dict(self.weights.items()), *data)
        return loss


def training() -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Weights, four images of 14 rows, what they should become."""
    rng = Random(5)
    draw = lambda *s: torch.tensor([rng.randint(-1, 1) for _ in range(math.prod(s))], dtype=torch.float64).reshape(s)
    return {name: draw(*s) for name, s in SHAPES.items()}, draw(4, 1, 14, 10), draw(4, 1, 14, 10)


def trained(module: torch.nn.Module, *data: Tensor) -> float:
    """The loss of one step; after two, weights have more digits than float64."""
    loss = module(*data)
    loss.backward()
    with torch.no_grad():
        for t in module.parameters():
            t -= RATE * t.grad
    return float(loss.detach())


def train_on_mesh(rank: int, count: int) -> Any:
    """DistributedDataParallel over samples, our parts over rows."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "rows"))
    weights, x, target = training()
    graph = sg.trace(unet, SHAPES, (2, 1, 14, 10), (2, 1, 14, 10))
    s = shard(graph, mesh["rows"], 2)
    module = torch.nn.parallel.DistributedDataParallel(Unet(s, weights), process_group=mesh["data"].get_group())
    half = slice(2 * mesh.get_local_rank("data"), 2 * mesh.get_local_rank("data") + 2)
    loss = trained(module, *(t[half][index] for t, index in zip((x, target), s.reads, strict=True)))
    return {k: t.detach() for k, t in module.module.weights.items()}, loss


# --- single cases -----------------------------------------------------------------------------------------------------


def statistics(x: Any) -> Any:
    """Sums and maxima over the image, and what reads them: with ties, which rows of several ranks share."""
    centred = x - sg.mean(x, (2, 3), keepdims=True)
    shifted = x - sg.amax(x, (2, 3), keepdims=True)
    largest = sg.broadcast(sg.amax(x, (2, 3), keepdims=True, ties="all"), (1, 2, 8, 4))
    return centred * largest, shifted, sg.sum(x * x), sg.group_norm(x, 1)


def run_statistics(rank: int, count: int, x: Tensor, cotangents: list[Tensor]) -> Any:
    s = shard(sg.trace(statistics, tuple(x.shape)), None, 2, sizes=[0, 5, 1, 2])
    part = x[s.reads].clone().requires_grad_()
    outputs = s(part)
    pairs = zip(outputs, cotangents, s.box, strict=True)
    sum((y * g[box]).sum() for y, g, box in pairs).backward()
    return [y.detach() for y in outputs], part.grad, s.reads, list(s.box)


def labelled(dtype: torch.dtype) -> Any:
    s = shard(segmentation())
    x, labels = (torch.zeros(1, 2, 9, 5)[s.reads[0]], torch.zeros(1, 9, 5, dtype=dtype)[s.reads[1]])
    return s({"w": torch.ones(3, 2, 3, 3)}, x, labels)


def scaled(by: float) -> sg.Graph:
    return sg.trace(lambda x: x * np.full((8, 1), by), (1, 1, 8, 8))


def run_refusals(rank: int, count: int) -> list[str]:
    """On every rank, what each wrong call says; none waits for ever."""
    graph = sg.trace(lambda p, x: sg.conv(p["w"], None, x, padding=1), {"w": (1, 1, 3, 3)}, (1, 1, 8, 8))
    other = sg.trace(lambda p, x: sg.conv(p["w"], None, x, padding=2), {"w": (1, 1, 5, 5)}, (1, 1, 8, 8))
    w, x = {"w": torch.ones(1, 1, 3, 3)}, torch.ones(1, 1, 2, 8)
    mine = rank == 1
    calls: list[Any] = [
        lambda: shard(graph)(w, torch.ones(1, 1, 3, 8) if mine else x),
        lambda: shard(graph)({"w": w["w"].double()} if mine else w, x),
        lambda: shard(graph)({"w": w["w"].double()}, x.double()) if mine else shard(graph)(w, x),
        lambda: shard(other)({"w": torch.ones(1, 1, 5, 5)}, x) if mine else shard(graph)(w, x),
        lambda: shard(graph)(w, x.clone().requires_grad_() if mine else x),
        lambda: shard(graph)(w),
        lambda: shard(graph)(w, x.numpy()),
        lambda: shard(graph, sizes=[4, 4]),
        lambda: shard(graph)(w, x).shape,
        lambda: labelled(torch.int32),
        lambda: shard(graph)({"w": w["w"] * 2} if mine else w, x),
        lambda: shard(scaled(2.0 if mine else 3.0))(x),
    ]
    said = []
    for call in calls:
        try:
            said.append(str(call()))
        except sg.SpecgradError as error:
            said.append(str(error))
    with torch.autocast("cpu"):
        try:
            shard(graph)(w, x)
        except sg.SpecgradError as error:
            said.append(str(error))
    return said


def run_labels(rank: int, count: int, x: Tensor, w: Tensor, labels: Tensor) -> Any:
    """A mean loss of every pixel, in the graph; integers go along the rows too. Only gradients of w are asked for."""
    s = shard(segmentation(), None, 2)
    weights = w.clone().requires_grad_()
    loss = s({"w": weights}, *(t[index] for t, index in zip((x, labels), s.reads, strict=True)))
    (g,) = torch.autograd.grad(loss, [weights])
    return loss.detach(), g


def segmentation() -> sg.Graph:
    def net(p: Any, x: Any, labels: Any) -> Any:
        return sg.cross_entropy(sg.conv(p["w"], None, x, padding=1), labels)

    return sg.trace(net, {"w": (3, 2, 3, 3)}, (1, 2, 9, 5), sg.Index((1, 9, 5)))


def gathering(p: Any, x: Any, scale: Any) -> Any:
    """A running sum over the rows, which reads everything, between convolutions; a second input that is whole."""
    y = sg.cumsum(sg.conv(p["w"], None, x, padding=1), 2)
    return sg.conv(p["v"], None, y, padding=1) * sg.broadcast(scale, (1, 2, 9, 5)), y


GATHERING = {"w": (2, 1, 3, 3), "v": (2, 2, 3, 3)}, (1, 1, 9, 5), (1, 2, 1, 1)


def run_gathering(rank: int, count: int, weights: dict[str, Tensor], x: Tensor, scale: Tensor) -> Any:
    """With all gradients, with those of the data alone, and without any; in a group of two of four ranks."""
    group = dist.new_group([1, 3], timeout=timedelta(seconds=120))  # not half an hour: then a hang has no words
    try:
        return None if rank not in (1, 3) else gathered_in(group, weights, x, scale)
    finally:
        dist.barrier()  # who is not in the group stays until the others are done


def gathered_in(group: Any, weights: dict[str, Tensor], x: Tensor, scale: Tensor) -> Any:
    """What a rank of the group has of outputs and gradients."""
    s = shard(sg.trace(gathering, *GATHERING), group, 2, sizes=[2, 7], allow_whole=True)
    given = [{k: t.clone().requires_grad_() for k, t in weights.items()}]
    given += [x[s.reads[0]].clone().requires_grad_(), scale.clone().requires_grad_()]
    inputs = [*given[0].values(), *given[1:]]
    outputs = s(*given)
    total = sum((y * y).sum() for y in outputs)
    grads = torch.autograd.grad(total, inputs, retain_graph=True)
    (alone,) = torch.autograd.grad(total, [given[1]])
    with torch.no_grad():
        plain = s(*given)
    return [y.detach() for y in outputs], s.box, grads, alone, plain, s.reads[0]


def run_mixed(rank: int, count: int) -> str:
    """A whole result times what each rank has alone: no rank knows the gradient."""
    x = torch.arange(16.0).reshape(1, 1, 8, 2)
    s = shard(sg.trace(lambda x: (x * 2, sg.sum(x)), (1, 1, 8, 2)), None, 2)
    y, total = s(x[s.reads].clone().requires_grad_())
    (y.sum() + total).backward(retain_graph=True)
    try:
        (y.sum() * total).backward()
    except sg.ParameterError as error:
        return str(error)
    return "not refused"
