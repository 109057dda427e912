"""How far toward ResNet-18 at 224x224 a proven tolerance goes: width by width, in any order and by depth, one thread.

python benchmarks/toward.py                     # all rows; writes benchmarks/toward.txt
python benchmarks/toward.py 16 64 20            # one row: width, size of the image, "any" order or a depth

Weights are random (He), batch-norms calibrated on noise, ten outputs, each node stored ("by node"). A depth states that
no term of a sum meets more roundings than that. Beside half the width of the proven bounds: the largest output, and the
share of relus that some execution may decide otherwise, on average and of the last.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from deep import KERNELS, resnet
from specgrad.bounds import Bounds, Box, crown
from specgrad.graph.graph import Graph
from specgrad.interop import from_torch
from specgrad.ops.activation import RELU
from specgrad.rounding import Arithmetic

torch.set_num_threads(1)
PAGE = Path(__file__).with_suffix(".txt")
LADDER = ((8, 32), (12, 48), (16, 64))
ORDERS = ("any", "64", "20")
HEAD = f"{'width':>5} {'size':>5} {'order':>6} {'tolerance':>10} {'output':>8} {'open':>8} {'last':>8} {'CPU':>7}"


def calibrated(width: int, size: int) -> tuple[nn.Module, Tensor]:
    """Batch-norms with the statistics of noise, so that values are of a trained network's size."""
    torch.manual_seed(0)
    network = resnet(7, 2, width, size)
    for part in network.modules():
        if isinstance(part, KERNELS):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    with torch.no_grad():
        for _ in range(20):
            network.train()(torch.randn(4, 3, size, size))
    return network.eval(), torch.randn(1, 3, size, size)


def open_shares(graph: Graph, found: Bounds) -> list[float]:
    """Of every relu, the share of cells whose input may have either sign."""
    reads = [graph.nodes[n.operands()[0]].name for n in graph.nodes if n.op is RELU]
    return [float(np.mean((found.layers[r].low < 0) & (found.layers[r].high > 0))) for r in reads]


def row(width: int, size: int, order: str) -> str:
    network, x = calibrated(width, size)
    graph, point = from_torch(network, x), x.double().numpy()
    start = time.process_time()
    arithmetic = Arithmetic(execution="node", depth=None if order == "any" else int(order))
    found = crown(graph, Box(point, point), arithmetic=arithmetic)
    seconds = time.process_time() - start
    half = float(np.max(found.outputs.high - found.outputs.low)) / 2
    largest = float(np.max(np.abs(found.outputs.high + found.outputs.low))) / 2
    shares = open_shares(graph, found)
    middle = f"{half:10.3g} {largest:8.3g} {np.mean(shares):8.2%} {shares[-1]:8.2%}"
    return f"{width:5} {size:5} {order:>6} {middle} {seconds:5.0f} s"


def main() -> None:
    if len(sys.argv) == 4:
        print(row(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
        return
    lines = [HEAD]
    print(HEAD, flush=True)
    for width, size in LADDER:
        for order in ORDERS:  # each in a process of its own: one network's memory is not another's
            command = [sys.executable, __file__, str(width), str(size), order]
            run = subprocess.run(command, capture_output=True, text=True, check=True)
            lines.append(run.stdout.rstrip().splitlines()[-1])
            print(lines[-1], flush=True)
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
