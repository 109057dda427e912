"""Width and time of certified bounds, beside auto_LiRPA where it can be imported (it is not on PyPI at 0.7.1).

python benchmarks/bounds.py                          # against the figures recorded on a quiet machine
PYTHONPATH=path/to/auto_LiRPA python benchmarks/bounds.py    # against the library itself, taking turns in one process

Ours hold for the deployed float32 network; auto_LiRPA's for real arithmetic, as far as its own float32 goes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from measure import compare
from specgrad.bounds import Box, crown, ibp, lipschitz
from specgrad.graph.graph import Graph
from specgrad.interop import from_torch

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
    width, real = (crown(graph, box, deployed=d).outputs.width.mean() for d in (True, False))
    theirs = other(module, x, eps)
    if theirs is None:
        return Measured(name, recorded[0], width, real, recorded[1], compare(ours, ours, budget=3.0)[1] * 1e3)
    try:
        low, high = theirs()
    except ValueError:  # windows that overlap
        return Measured(name, np.nan, width, real, np.nan, compare(ours, ours, budget=3.0)[1] * 1e3)
    their_time, our_time = compare(theirs, ours, budget=4.0)
    return Measured(name, (high - low).mean().item(), width, real, their_time * 1e3, our_time * 1e3)


def row(m: Measured, demanded: str) -> str:
    slack = f"+{(m.ours / m.real - 1) * 100:.2f} %"
    if np.isnan(m.theirs):
        return f"{m.name:28} {'refused':>9} {m.ours:9.4f} {'':7} {demanded:>8} {slack:>8} {'':8} {m.our_ms:8.1f}"
    return (
        f"{m.name:28} {m.theirs:9.4f} {m.ours:9.4f} {m.ours / m.theirs:6.3f}x {demanded:>8} {slack:>8} "
        f"{m.their_ms:8.1f} {m.our_ms:8.1f} {m.our_ms / m.their_ms:6.2f}x"
    )


def gradients() -> str:
    """A certified Lipschitz constant of conv - max_pool - conv - linear, and the largest gradient that was found."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.Flatten(), nn.Linear(8 * 9, 1))
    x = torch.rand((1, 1, 12, 12), generator=torch.Generator().manual_seed(1))
    graph = from_torch(module.eval(), x)
    lines = []
    for eps in (0.01, 0.05, 0.2):
        box = Box.around(x.numpy(), eps)
        by_crown, by_ibp = (lipschitz(graph, box, method=m)[0, 0] for m in ("crown", "ibp"))
        found = largest_gradient(module, x, eps)
        ratio = by_crown / found
        lines.append(
            f"  eps {eps:4}: certified {by_crown:.4f} (ibp {by_ibp:.4f}), found {found:.4f}, ratio {ratio:.3f}"
        )
    return "\n".join(lines)


def largest_gradient(module: nn.Module, x: torch.Tensor, eps: float, tries: int = 300) -> float:
    """The largest 2-norm of the gradient at random corners and points, then by moving one cell at a time."""
    rng = torch.Generator().manual_seed(0)

    def norm(z: torch.Tensor) -> float:
        z = z.clone().requires_grad_()
        (g,) = torch.autograd.grad(module(z)[0, 0], z)
        return g.norm().item()

    points = [x + eps * (torch.randint(0, 2, x.shape, generator=rng) * 2 - 1) for _ in range(tries)]
    best = max(points, key=norm)
    value = norm(best)
    for cell in range(x.numel()):
        for step in (-eps, eps):
            moved = best.clone()
            moved.view(-1)[cell] = x.view(-1)[cell] + step
            if norm(moved) > value:
                best, value = moved, norm(moved)
    return value


def intervals(graph: Graph, box: Box) -> float:
    return float(ibp(graph, box).outputs.width.mean())


HEAD = """mean width of the outputs, and milliseconds of one thread; ours hold for the deployed float32 network:
`slack` is what rounding adds to the width. Demanded: width (with slack), and time at most 1.00x on the first four.
auto_LiRPA refuses windows that overlap, and is known to misplace the winners of padded ones."""


def main() -> None:
    warnings.simplefilter("ignore")
    beside = other(pooled(8), image(), 0.02) is not None
    print("auto_LiRPA", "0.7.1 in turns with ours:" if beside else "as recorded on a quiet machine:", HEAD)
    print(
        f"\n{'':28} {'theirs':>9} {'ours':>9} {'':7} demanded {'slack':>8} {'theirs ms':>8} {'ours ms':>7} {'time':>7}"
    )
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
    print("\ncertified Lipschitz constant (2-norm) of conv - max_pool - conv - linear on 12x12:")
    print(gradients())


if __name__ == "__main__":
    main()
