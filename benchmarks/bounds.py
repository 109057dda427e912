"""Width and time of certified bounds, beside auto_LiRPA where it can be imported (it is not on PyPI at 0.7.1).

python benchmarks/bounds.py                          # against the figures recorded on a quiet machine
PYTHONPATH=path/to/auto_LiRPA python benchmarks/bounds.py    # against the library itself, taking turns in one process

Ours hold for the deployed float32 network; auto_LiRPA's for real arithmetic, as far as its own float32 goes.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from measure import compare
from specgrad.bounds import Box, crown
from specgrad.interop import from_torch
from specgrad.rounding import Arithmetic

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import lipschitz
from common import init

torch.set_num_threads(1)
RECORDED = {(8, 0.02): (0.0812, 69), (8, 0.1): (1.775, 87), (16, 0.02): (0.0826, 136), (16, 0.1): (2.150, 242)}


class Measured(NamedTuple):
    """One network on one box: mean widths of the outputs, and milliseconds."""

    name: str
    theirs: float
    ours: float
    real: float
    their_ms: float
    our_ms: float
    by_node: float


def pooled(channels: int) -> nn.Module:
    torch.manual_seed(0)
    c = channels
    return nn.Sequential(
        nn.Conv2d(1, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(2 * c * 49, 10),
    )  # fmt: skip


def plain(channels: int) -> nn.Module:
    """Strides instead of pooling."""
    torch.manual_seed(0)
    c = channels
    return nn.Sequential(
        nn.Conv2d(1, c, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(c, 2 * c, 4, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(2 * c * 49, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


def padded(channels: int) -> nn.Module:
    """Windows that hang over the padding on both sides, and two maxima."""
    torch.manual_seed(0)
    c = channels
    return nn.Sequential(
        nn.Conv2d(1, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, padding=1), nn.Conv2d(c, 2 * c, 3, padding=1),
        nn.ReLU(), nn.MaxPool2d(2, padding=1), nn.Flatten(), nn.Linear(2 * c * 64, 10),
    )  # fmt: skip


def overlapping(channels: int) -> nn.Module:
    """Windows that overlap and hang over the padding."""
    torch.manual_seed(0)
    c = channels
    return nn.Sequential(
        nn.Conv2d(1, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1), nn.Conv2d(c, 2 * c, 3, padding=1),
        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2 * c * 49, 10),
    )  # fmt: skip


def image(count: int = 1) -> torch.Tensor:
    return torch.rand((count, 1, 28, 28), generator=torch.Generator().manual_seed(1))


def other(module: nn.Module, x: torch.Tensor, eps: float) -> Callable[[], Any] | None:
    """auto_LiRPA's backward bounds on the same box, set up beforehand; None where it is not installed."""
    try:
        from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm
    except ImportError:
        return None
    bounded = BoundedModule(module, x, bound_opts={"conv_mode": "patches"}, verbose=False)
    box = BoundedTensor(x, PerturbationLpNorm(norm=np.inf, eps=eps))

    def run() -> Any:
        with torch.no_grad():
            return bounded.compute_bounds(x=(box,), method="backward")

    return run


def measured(
    name: str, module: nn.Module, eps: float, recorded: tuple[float, float] = (np.nan, np.nan), boxes: int = 1
) -> Measured:
    x = image(boxes)
    graph, box = from_torch(module.eval(), x[:1]), Box.around(x.unsqueeze(1).numpy(), eps)
    ours = lambda: crown(graph, box)
    models = ({}, {"deployed": False}, {"arithmetic": Arithmetic(execution="node")})
    width, real, by_node = (crown(graph, box, **m).outputs.width.mean() for m in models)
    theirs = other(module, x, eps)
    if theirs is None:
        return Measured(name, recorded[0], width, real, recorded[1], compare(ours, ours, budget=3.0)[1] * 1e3, by_node)
    try:
        low, high = theirs()
    except ValueError:  # windows that overlap
        return Measured(name, np.nan, width, real, np.nan, compare(ours, ours, budget=3.0)[1] * 1e3, by_node)
    their_time, our_time = compare(theirs, ours, budget=4.0)
    return Measured(name, (high - low).mean().item(), width, real, their_time * 1e3, our_time * 1e3, by_node)


def row(m: Measured, demanded: str) -> str:
    slack, node = (f"+{(w / m.real - 1) * 100:.2f} %" for w in (m.ours, m.by_node))
    if np.isnan(m.theirs):
        widths = f"{'refused':>9} {m.ours:9.4f} {'':8} {'':8}"
        return f"{m.name:34} {widths} {demanded:>8} {slack:>8} {node:>8} {'':8} {m.our_ms:8.1f}"
    widths = f"{m.theirs:9.4f} {m.ours:9.4f} {m.ours / m.theirs:7.4f}x {m.by_node / m.theirs:7.4f}x"
    times = f"{m.their_ms:8.1f} {m.our_ms:8.1f} {m.our_ms / m.their_ms:6.2f}x"
    return f"{m.name:34} {widths} {demanded:>8} {slack:>8} {node:>8} {times}"


HEAD = """: mean width of the outputs, and milliseconds of one thread.
Ours hold for the deployed float32 network, fused, and in second columns by node (docs/reference/executions.md): `slack`
is what rounding adds to the width. Demanded: width (with slack) at most as below, and time at most 1.00x on the first
four; they are one image, as recorded elsewhere, `8 boxes` are that and seven others.
auto_LiRPA refuses windows that overlap.
"""


def main() -> None:
    warnings.simplefilter("ignore")
    beside = other(pooled(8), image(), 0.02) is not None
    print("auto_LiRPA ", "0.7.1 in turns with ours" if beside else "as recorded on a quiet machine", HEAD, sep="")
    widths = f"{'theirs':>9} {'ours':>9} {'fused':>8} {'by node':>8}"
    print(f"{'':34} {widths} demanded {'slack':>8} {'by node':>8} {'theirs, ms':>10} {'ours':>6} {'time':>7}")
    for channels, eps in RECORDED:
        found = measured(f"max 2, avg 2: {channels} {eps}", pooled(channels), eps, RECORDED[channels, eps])
        print(row(found, "0.75x"))
    others = (
        ("max 2 padded, max 2 padded:", padded, "0.75x"), ("max 3/2 padded, max 2:", overlapping, ""),
        ("no pooling:", plain, "1.01x"),
    )  # fmt: skip
    if beside:
        print(row(measured("max 2, avg 2: 8 0.02, 8 boxes", pooled(8), 0.02, boxes=8), "0.75x"))
    for name, make, demanded in others:
        for eps in (0.02, 0.1) if beside else ():
            print(row(measured(f"{name} 8 {eps}", make(8), eps), demanded))
    print("\ncertified Lipschitz constant (2-norm) of conv - max_pool - conv - linear (examples/lipschitz.py):")
    print(lipschitz.table(init(lipschitz.shapes()), np.random.default_rng(1).random((1, *lipschitz.SIZE))))


if __name__ == "__main__":
    main()
