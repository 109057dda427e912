"""A training step of a U-Net whose rows are cut over gloo processes, beside one process: bytes, memory, CPU, numbers.

python benchmarks/sharding_torch.py            # prints and writes benchmarks/sharding_torch.txt; some minutes
python benchmarks/sharding_torch.py --quick    # at 128x128 on 2 processes, writes nothing

Bytes are counted where they are sent. Memory is the largest resident size of a process (Linux's VmHWM) less that before
the first step. Processes share the cores of this machine: CPU seconds are of one rank, and say nothing about a cluster.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import specgrad as sg
from specgrad.scale import Partition, shard

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "scale"))
sys.path.insert(0, str(Path(__file__).parent))

import unet
from common import each, init
from pace import slower
from ranks import on_ranks
from tiles import forget_the_most, resident

SHAPES = unet.shapes(channels=1, classes=2, width=8, depth=3)


def loss(p: Any, x: Any, labels: Any) -> Any:
    return sg.cross_entropy(unet.net(p, x), labels)


def graph_of(size: int) -> sg.Graph:
    return sg.trace(loss, SHAPES, (1, 1, size, size), sg.Index((1, size, size)))


def given(size: int) -> tuple[Any, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    params = each(lambda _, a: torch.from_numpy(a.astype(np.float32)).requires_grad_(), init(SHAPES))
    x = torch.from_numpy(rng.standard_normal((1, 1, size, size)).astype(np.float32))
    return params, x, torch.from_numpy(rng.integers(0, 2, (1, size, size)))


def measured(run: Any, params: Any, *data: torch.Tensor) -> dict[str, Any]:
    """Two steps: memory of the first, which begins with nothing, CPU of the second, which has warmed up."""
    leaves: list[torch.Tensor] = []
    each(lambda _, t: leaves.append(t), params)
    forget_the_most()
    before = resident("VmRSS")
    torch.autograd.grad(run(params, *data), leaves)
    mb, start = resident("VmHWM") - before, time.process_time()
    value = run(params, *data)
    gradients = torch.autograd.grad(value, leaves)
    cpu = time.process_time() - start
    flat = torch.cat([g.flatten() for g in gradients]).numpy()
    return {"loss": float(value.detach()), "gradient": flat, "cpu": cpu, "mb": mb}


def alone(rank: int, count: int, size: int) -> dict[str, Any]:
    return measured(sg.compile(graph_of(size), "torch"), *given(size))


def in_parts(rank: int, count: int, size: int) -> dict[str, Any]:
    start = time.process_time()
    s = shard(graph_of(size))
    moved = s.parts.cells_moved
    planning = time.process_time() - start
    params, *data = given(size)
    own = [t[index].clone() for t, index in zip(data, s.reads, strict=True)]
    del data
    sent: list[list[int]] = []
    right = dist.batch_isend_irecv

    def counted(steps: Any) -> Any:
        sent.append([step.tensor.nbytes for step in steps if step.op is dist.isend])
        return right(steps)

    dist.batch_isend_irecv = counted
    result = measured(s, params, *own)
    result["bytes"] = sum(map(sum, sent)) // 2  # of the two steps
    result["messages"] = sum(map(len, sent)) // 2
    return result | {"moved": moved, "planning": planning}


def lines(size: int, counts: tuple[int, ...]) -> Iterator[str]:
    (one,) = on_ranks(1, alone, size)
    yield f"one process, {size}x{size}: loss {one['loss']:.6f}, CPU {one['cpu']:.2f} s, memory {one['mb']:.0f} MB"
    graph = graph_of(size)
    for count in counts:
        ranks = on_ranks(count, in_parts, size)
        parts = Partition(graph, 2, count=count)
        data, values = parts.given[0], [p for p in parts.axes if graph.nodes[p].op.name != "input"]
        first = sum(m.cells for p in data for m in parts.moves(p))  # the image's gradient is not asked for
        least = 4 * (2 * parts.cells_moved - first)
        everything = 4 * sum(int(np.prod(graph.nodes[p].shape)) for p in values if p in parts.exchanges) * (count - 1)
        sent = sum(r["bytes"] for r in ranks)
        off = max(float(abs(r["gradient"] - one["gradient"]).max()) for r in ranks) / float(abs(one["gradient"]).max())
        same = all(np.array_equal(r["gradient"], ranks[0]["gradient"]) for r in ranks)
        yield (
            f"{count} processes: sent {sent:,} bytes, computed minimum {least:,}; forward alone, gathering what is "
            f"exchanged whole would send {everything:,}; {sum(r['messages'] for r in ranks)} messages"
        )
        cpu, mb, planning = (max(r[what] for r in ranks) for what in ("cpu", "mb", "planning"))
        yield (
            f"  at most, of a rank: CPU {cpu:.2f} s, memory {mb:.0f} MB = {mb / one['mb']:.2f}x; "
            f"planning {planning:.2f} s CPU, once"
        )
        yield (
            f"  loss off by {max(abs(r['loss'] - one['loss']) for r in ranks):.1e}, gradients by {off:.1e} of the "
            f"largest (float32, other orders of summation); {'the same' if same else 'NOT the same'} on all ranks"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    head = (
        f"U-Net of width 8, depth 3, float32, torch {torch.__version__}, gloo; pace {slower():.1f} (1: an idle machine)"
    )
    text = [head]
    print(head, flush=True)
    for line in lines(128, (2,)) if quick else lines(512, (2, 4)):
        print(line, flush=True)
        text.append(line)
    if not quick:
        Path(__file__).with_suffix(".txt").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
