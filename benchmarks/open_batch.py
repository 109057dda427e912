"""One graph for every batch against graphs of one batch each: seconds of a call, and of the first one at a new batch.

python benchmarks/open_batch.py > benchmarks/open_batch.txt

One thread, CPU time; the two sides take turns, the smallest run of each counts. "First call" is the whole first call at
a batch that the module has not met, and beside it the calls that follow.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch

import specgrad as sg
from measure import Row, compare, table

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import common
import lenet
import resnet18

BATCHES = (1, 8, 16)
NETWORKS: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "LeNet 28x28": (lenet.net, lenet.shapes(), (1, 28, 28)),
    "ResNet-18 64x64": (resnet18.net, resnet18.shapes(), (3, 64, 64)),
}


def both(name: str) -> tuple[Any, Any]:
    """The module for every batch, and a maker of modules for one; all own their parameters."""
    net, shapes, sizes = NETWORKS[name]
    params = common.each(lambda _, a: torch.tensor(a, dtype=torch.float32), common.init(shapes))
    made = lambda batch: sg.compile(sg.trace(net, shapes, (batch, *sizes)), "torch", parameters=params)
    return made("n=2"), made


def without_gradient(f: Any, x: torch.Tensor) -> Any:
    def run() -> Any:
        with torch.no_grad():
            return f(x)

    return run


def rows(name: str) -> tuple[list[Row], list[str]]:
    every, made = both(name)
    measured, first = [], []
    for batch in BATCHES:
        x, fixed = torch.randn(batch, *NETWORKS[name][2]), made(batch)
        ours = without_gradient(every, x)
        start = time.process_time()
        y = ours()
        once = time.process_time() - start
        torch.testing.assert_close(y, without_gradient(fixed, x)(), rtol=0, atol=0)
        bare, open_ = compare(without_gradient(fixed, x), ours)
        measured.append(Row(f"{name}, batch {batch}, forward", bare, open_, "0.95x"))
        first.append(f"{name}, batch {batch}: first call {once * 1e3:.1f} ms, then {open_ * 1e3:.2f} ms")
        step = lambda f, x=x: lambda: torch.autograd.grad(f(x).square().mean(), list(f.parameters()), allow_unused=True)
        measured.append(Row(f"{name}, batch {batch}, forward + backward", *compare(step(fixed), step(every)), "0.95x"))
    return measured, first


def main() -> None:
    torch.set_num_threads(1)
    measured, first = zip(*map(rows, NETWORKS), strict=True)
    print('"Bare" is the graph traced at that batch, "ours" the one graph for every batch: the same operators run,')
    print("so what lies above 1 is the noise of a shared machine.\n")
    print(table([row for part in measured for row in part]))
    print("\n" + "\n".join(line for part in first for line in part))


if __name__ == "__main__":
    main()
