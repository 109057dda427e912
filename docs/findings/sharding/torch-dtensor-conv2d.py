"""DTensor's conv2d on an input that is cut along its rows: a part of the output is returned as all of it.

python docs/findings/sharding/torch-dtensor-conv2d.py    # needs torch only; two processes, gloo

Every rank convolves the rows that it has, without those of its neighbour, and the result is marked as replicated:
`full_tensor()` then has half of the rows, other ones on every rank. Nothing is raised. A 1x1 convolution, which
needs no neighbour at all, shows it, and so does its weight gradient. The table below it has other convolutions.
"""

from __future__ import annotations

import os
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

RANKS = 2


def on_one(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    w = w.clone().requires_grad_()
    y = F.conv2d(x, w)
    y.sum().backward()
    return [y.detach(), w.grad]


def on_mesh(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (RANKS,))
    w = distribute_tensor(w.clone(), mesh, [Replicate()]).requires_grad_()
    y = F.conv2d(distribute_tensor(x, mesh, [Shard(2)]), w)
    y.sum().backward()
    return [y.full_tensor().detach(), w.grad.full_tensor()]


CASES = [(1, 1, 0, 2), (3, 1, 1, 2), (3, 1, 1, 3), (3, 1, 0, 2), (2, 2, 0, 2), (3, 2, 1, 2)]
"""Kernel, stride, padding, the axis of the input that is cut; images of 8x8."""


def shapes(kernel: int, stride: int, padding: int, axis: int) -> list[list[int]]:
    """Of one process, of `full_tensor()` on the mesh."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    mesh, x, w = init_device_mesh("cpu", (RANKS,)), torch.ones(1, 1, 8, 8), torch.ones(1, 1, kernel, kernel)
    cut = [distribute_tensor(x, mesh, [Shard(axis)]), distribute_tensor(w, mesh, [Replicate()])]
    results = [F.conv2d(x, w, None, stride, padding), F.conv2d(*cut, None, stride, padding).full_tensor()]
    return [list(y.shape) for y in results]


def pooled() -> list[bool]:
    """Whether pooling of an image that is cut along its rows is right."""
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    x = torch.arange(64.0).reshape(1, 1, 8, 8) % 7
    cut = distribute_tensor(x, init_device_mesh("cpu", (RANKS,)), [Shard(2)])
    pools = [lambda t: F.max_pool2d(t, 3, 1, 1), lambda t: F.avg_pool2d(t, 3, 1, 1)]
    return [torch.equal(pool(cut).full_tensor(), pool(x)) for pool in pools]


def work(rank: int, folder: str, pipe: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(Path(folder) / "s"), RANKS), rank=rank, world_size=RANKS)
    x, w = torch.arange(1.0, 5).reshape(1, 1, 4, 1), torch.tensor(3.0).reshape(1, 1, 1, 1)
    pairs = zip(on_one(x, w), on_mesh(x, w), strict=True)
    report = [[f"{tuple(t.shape)} {t.flatten().tolist()}" for t in pair] for pair in pairs]
    table = [shapes(*case) for case in CASES] + [pooled()]
    if rank == 0:
        pipe.send((report, table))
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=work, args=(rank, folder, there)) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        (output, gradient), (*table, pools) = here.recv()
        for process in ranks:
            process.join()
    print(f"torch {torch.__version__}: conv2d of x (1, 1, 4, 1) = 1, 2, 3, 4, cut along its rows over 2 ranks; w = 3")
    print("output          must be", output[0])
    print("                got    ", output[1])
    print("gradient of w   must be", gradient[0])
    print("                got    ", gradient[1])
    for (kernel, stride, padding, axis), (must, got) in zip(CASES, table, strict=True):
        print(f"kernel {kernel} stride {stride} padding {padding}, axis {axis} cut: must be {must}, got {got}")
    print(f"max_pool2d, avg_pool2d, kernel 3 padding 1, axis 2 cut: right {pools}")


if __name__ == "__main__":
    main()
