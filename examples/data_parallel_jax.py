"""Data parallelism on JAX: the compiled gradient on four devices of one process, and on two processes.

The batch is split along its first axis over a mesh of devices, in two ways. `jit`: the function of the whole batch gets
sharded arrays, and XLA splits the work. `shard_map`: the function of one share runs on every device, and `pmean` takes
the mean. Both must give the gradient of the whole batch on one device within the rounding bound that
data_parallel_torch.py derives, cell by cell.

Leave only the batch to `jit`: along an axis of the image XLA computes wrong gradients (docs/findings/sharding.md); for
that there is sg.compile(graph, "jax", mesh=, split=).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import specgrad as sg
from common import Tree, each
from data_parallel_torch import IMAGES, bound, free_port, loss_graph, problem, report

DEVICES, PROCESSES = 4, 2
WHOLE, SPLIT = PartitionSpec(), PartitionSpec("batch")


@cache
def compiled(images: int) -> Any:
    return sg.compile(loss_graph(images), "jax", "grad", wrt="params")


def single(params: Tree, x: np.ndarray, labels: np.ndarray) -> Tree:
    return each(lambda _, a: np.asarray(a), compiled(len(x))(params, x, labels))


def spread(mesh: Mesh, spec: PartitionSpec, tree: Tree) -> Tree:
    """Arrays placed on a mesh, which may reach over processes: each device asks for the part that it holds."""
    sharding = NamedSharding(mesh, spec)
    return each(lambda _, a: jax.make_array_from_callback(a.shape, sharding, lambda part: a[part]), tree)


def by_jit(mesh: Mesh) -> Any:
    """The function of the whole batch; the result is wanted whole on every device, so XLA adds the shares up."""
    return jax.jit(compiled(IMAGES), out_shardings=NamedSharding(mesh, WHOLE))


def by_shard_map(mesh: Mesh) -> Any:
    """The function of one share on every device, and the mean over devices."""
    share = compiled(IMAGES // mesh.size)

    def mean(params: Tree, x: Any, labels: Any) -> Tree:
        return jax.lax.pmean(share(params, x, labels), "batch")

    return jax.jit(jax.shard_map(mean, mesh=mesh, in_specs=(WHOLE, SPLIT, SPLIT), out_specs=WHOLE))


def parallel() -> dict[str, Tree]:
    """The gradient over all devices of all processes, in both ways."""
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    params, x, labels = problem()
    args = spread(mesh, WHOLE, params), spread(mesh, SPLIT, x), spread(mesh, SPLIT, labels)
    found = {"jit": by_jit(mesh)(*args), "shard_map": by_shard_map(mesh)(*args)}
    return each(lambda _, a: np.asarray(a.addressable_data(0)), found)


def worker(rank: int, port: int, file: Path) -> None:
    """One of the processes; the first one writes down the result."""
    jax.config.update("jax_num_cpu_devices", 1)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", PROCESSES, rank)
    found = parallel()
    if rank == 0:
        sg.save_params(found, file)
    jax.distributed.shutdown()


def across_processes() -> dict[str, Tree]:
    with tempfile.TemporaryDirectory() as folder:
        port, file = str(free_port()), Path(folder) / "gradients.safetensors"
        commands = [[sys.executable, __file__, "--worker", str(rank), port, str(file)] for rank in range(PROCESSES)]
        workers = [subprocess.Popen(command, env=os.environ | {"JAX_PLATFORMS": "cpu"}) for command in commands]
        codes = [w.wait() for w in workers]
        if any(codes):
            raise SystemExit("a process failed")
        return sg.load_params(file)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", nargs=3, metavar=("RANK", "PORT", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.worker:
        rank, port, file = args.worker
        return worker(int(rank), int(port), Path(file))
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    whole, bounds = single(*problem()), bound(single)
    for way, found in parallel().items():
        report(f"{way}, {DEVICES} devices", found, whole, bounds)
    for way, found in across_processes().items():
        report(f"{way}, {PROCESSES} processes", found, whole, bounds)
    return None


if __name__ == "__main__":
    main()
