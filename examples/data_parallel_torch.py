"""Data parallelism on PyTorch: the compiled loss under DistributedDataParallel, in two processes.

Each process takes half of a batch of N images; DDP averages their gradients. The result must be the gradient of the
whole batch in one process, up to rounding, and this file says how much rounding that is. A cell of a gradient is a sum
of n products, over the images and, in a convolution, over the positions: cell = sum_k a_k b_k. For every cell

    |parallel - single| <= 2 gamma_n sum_k |a_k b_k| + 2 mean_i |g_i - t_i|         gamma_n = n u / (1 - n u), u = 2^-24

with g_i the gradient of image i alone on the engine in float32, and t_i the same by the specification in float64. Why:

- n products added in whatever order are off by at most gamma_n times the sum of their absolute values: each passes
  through at most n roundings. N and the number of processes are powers of two, so taking means rounds nothing. Twice,
  for the two orders. The sum of |a_k b_k| is the operator that adds, run on absolute values; n is it run on ones.
- The factors a_k, b_k carry rounding of their own from the layers before. We measure what they do to the gradient of
  each image alone, and assume that inside a batch, in either run, they do no more than the mean of that. Twice, for
  the two runs. This is the one assumption.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import specgrad as sg
from common import Tree, cross_entropy_of, each, flat, init
from lenet import net, shapes
from specgrad.op import apply

IMAGES, PROCESSES = 16, 2
Gradient = Callable[[Tree, np.ndarray, np.ndarray], Tree]


# --- the problem and its bound ----------------------------------------------------------------------------------


@cache
def loss_graph(images: int) -> sg.Graph:
    return sg.trace(cross_entropy_of(net), shapes(), (images, 1, 32, 32), sg.Index((images,)))


def problem() -> tuple[Tree, np.ndarray, np.ndarray]:
    """Parameters, images and labels: the same in every process."""
    rng = np.random.default_rng(1)
    params = each(lambda _, a: a.astype(np.float32), init(shapes()))
    return params, rng.standard_normal((IMAGES, 1, 32, 32)).astype(np.float32), rng.integers(0, 10, IMAGES)


def double(tree: Tree) -> Tree:
    return each(lambda _, a: a.astype(np.float64) if a.dtype == np.float32 else a, tree)


def adder(graph: sg.Graph, position: int) -> Any:
    """The node that adds up the gradient at this output: what stands there, or behind reshapes."""
    node = graph.nodes[position]
    while node.op.name == "reshape":
        node = graph.nodes[node.args[0]]
    if node.op.name not in ("conv_weight", "contract", "sum"):
        raise NotImplementedError(f"{node.name}: {node.op.name} is no sum of products")
    return node


def summation() -> dict[str, np.ndarray]:
    """gamma_n sum_k |a_k b_k| for every cell."""
    graph = sg.grad(loss_graph(IMAGES), "params")
    nodes = {path: adder(graph, position) for path, position in flat(graph.outputs[0]).items()}
    factors = replace(graph, outputs=({path: node.args for path, node in nodes.items()},))(*double(problem()))

    def cells(path: str, shape: tuple[int, ...]) -> np.ndarray:
        op, params = nodes[path].op, nodes[path].params
        size = apply(op, *(abs(a) for a in factors[path]), **params)
        nu = apply(op, *(np.ones_like(a) for a in factors[path]), **params) * 2.0**-24
        return (nu / (1 - nu) * size).reshape(shape)

    return flat(each(cells, shapes()))


def bound(engine: Gradient) -> dict[str, np.ndarray]:
    """The bound above for every cell; `engine` gives the gradient of one image on the engine."""
    params, x, labels = problem()
    truth = sg.grad(loss_graph(1), "params")
    total = summation()
    for i in range(IMAGES):
        image = params, x[i : i + 1], labels[i : i + 1]
        g, t = flat(engine(*image)), flat(truth(*double(image)))
        total = {path: total[path] + abs(g[path] - t[path]) / IMAGES for path in total}
    return {path: 2 * b for path, b in total.items()}


def report(what: str, found: Tree, single: Tree, bounds: dict[str, np.ndarray]) -> None:
    """Per run one line: the largest difference, and the cell nearest to its bound. Fails if a cell exceeds its own."""
    g, s = flat(double(found)), flat(double(single))
    difference = {path: abs(g[path] - s[path]) for path in bounds}
    # where the bound is 0 the smallest positive number stands for it, so that 0 uses nothing and all else too much
    used = {path: difference[path] / np.maximum(b, np.finfo(float).tiny) for path, b in bounds.items()}
    path = max(used, key=lambda p: used[p].max())
    cell = used[path].argmax()
    print(
        f"{what}: largest difference {max(d.max() for d in difference.values()):.3e}; nearest to its bound is", end=" "
    )
    print(f"a cell of {path}: difference {difference[path].flat[cell]:.3e}, bound {bounds[path].flat[cell]:.3e}")
    if used[path].max() > 1:
        raise SystemExit(f"{what}: the gradients differ by more than rounding")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return int(s.getsockname()[1])


# --- PyTorch ----------------------------------------------------------------------------------------------------


def gradient(params: Tree, x: np.ndarray, labels: np.ndarray, parallel: bool = False) -> Tree:
    """One backward pass through the compiled loss, which owns the parameters; under DDP if `parallel`."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    module = sg.compile(loss_graph(len(x)), "torch", parameters=params)
    model = DistributedDataParallel(module) if parallel else module
    model(torch.from_numpy(x), torch.from_numpy(labels)).backward()
    found = dict(zip(flat(params), module.parameters(), strict=True))
    return each(lambda path, _: found[path].grad.numpy(), shapes())


def worker(rank: int, port: int, file: str) -> None:
    """One process: its share of the batch; the first one writes down what DDP made of all shares."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://localhost:{port}", rank=rank, world_size=PROCESSES)
    params, x, labels = problem()
    share = slice(rank * IMAGES // PROCESSES, (rank + 1) * IMAGES // PROCESSES)
    found = gradient(params, x[share], labels[share], parallel=True)
    if rank == 0:
        sg.save_params(found, file)
    dist.destroy_process_group()


def main() -> None:
    import torch
    import torch.multiprocessing as mp

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "gradient.safetensors")
        mp.spawn(worker, (free_port(), file), nprocs=PROCESSES)
        found = sg.load_params(file)
    report(f"DistributedDataParallel, {PROCESSES} processes", found, gradient(*problem()), bound(gradient))


if __name__ == "__main__":
    main()
