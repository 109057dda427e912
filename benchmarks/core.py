"""Time the core: import, tracing, differentiation, the specification of one convolution.

    python benchmarks/core.py | tee benchmarks/core.txt

Each figure is the smallest of several repetitions; graph building does no arithmetic on data.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import specgrad as sg

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))


def smallest(f: Callable[[], Any], repetitions: int = 5) -> float:
    def once() -> float:
        start = time.perf_counter()
        f()
        return time.perf_counter() - start

    return min(once() for _ in range(repetitions))


def import_seconds() -> float:
    """`import specgrad` on top of numpy, in a fresh interpreter."""
    code = "import numpy, time; s = time.perf_counter(); import specgrad; print(time.perf_counter() - s)"
    return min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5))


def chain() -> sg.Graph:
    def net(x: Any) -> Any:
        for _ in range(5_000):
            x = sg.relu(x) * 2
        return sg.sum(x)

    return sg.grad(sg.trace(net, (3,)))


def resnet18() -> sg.Graph:
    import resnet18 as example
    from common import cross_entropy_of

    loss = sg.trace(cross_entropy_of(example.net), example.shapes(), (1, 3, 224, 224), sg.Index((1,)))
    return sg.grad(loss, "params")


def main() -> None:
    draw = np.random.default_rng(0).normal
    x, w = draw(size=(64, 56, 56)), draw(size=(64, 64, 3, 3))
    rows = [
        ("import specgrad, on top of numpy", import_seconds()),
        ("ResNet-18 at 224x224: trace the loss and differentiate", smallest(resnet18)),
        ("chain of 10,000 nodes: trace and differentiate", smallest(chain)),
        (
            "3x3 conv, 64 to 64 channels, 56x56, float64: specification",
            smallest(lambda: sg.conv(w, None, x, padding=1)),
        ),
    ]
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}")
    for name, seconds in rows:
        print(f"{name:60} {seconds:8.3f} s")


if __name__ == "__main__":
    main()
