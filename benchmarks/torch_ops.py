"""PyTorch: where an algorithm of ours is faster than the bare framework's best single call; all calls: law.py.

python benchmarks/torch_ops.py            # everything, about five minutes
python benchmarks/torch_ops.py --quick    # a few rows
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import specgrad as sg
from measure import Row, compare, table
from specgrad import window
from specgrad.op import REGISTRY, apply

torch.set_num_threads(1)
SHAPE = (8, 64, 128, 128)


def tensor(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_(grad)


def with_backward(f: Callable[[], torch.Tensor], *inputs: torch.Tensor) -> Callable[[], Any]:
    g = torch.randn_like(f().detach())
    return lambda: torch.autograd.grad(f(), inputs, g)


def faster(quick: bool) -> Iterator[Row]:
    """Where PyTorch is weak on the CPU: stride 1, smooth maxima, rank 4."""
    x, xg = tensor(*SHAPE), tensor(*SHAPE, grad=True)
    for k in (3,) if quick else (2, 3, 5, 9, 17, 33):
        yield _forward("max_pool", F.max_pool2d, sg.max_pool, x, k, "15x")
    for k, target in ((3, "1.7x"),) if quick else ((2, "1.5x"), (3, "1.7x"), (5, "3x"), (9, "6x"), (33, "20x")):
        yield _both("max_pool", F.max_pool2d, sg.max_pool, xg, k, target)
    for k, target in ((3, 2),) if quick else ((2, 2), (3, 2), (5, 4), (9, 8), (33, 25)):
        yield _jvp(x, k, target)
    for k in (3,) if quick else (2, 3, 5, 9):
        yield _forward("avg_pool", F.avg_pool2d, sg.avg_pool, x, k, "4x")
        yield _avg_backward(x, k, "4x")
        yield _both("avg_pool", F.avg_pool2d, sg.avg_pool, xg, k, "4x")
    for k, target in ((3, 8),) if quick else ((3, 8), (5, 20)):
        yield _smooth(k, target)
    yield _conv4d()


def _forward(name: str, native: Any, ours: Any, x: torch.Tensor, k: int, target: str) -> Row:
    pair = compare(lambda: native(x, k, 1), lambda: ours(x, (k, k), stride=1), least=3)
    return Row(f"{name} k{k} s1 forward", *pair, target)


def _both(name: str, native: Any, ours: Any, x: torch.Tensor, k: int, target: str) -> Row:
    bare, mine = with_backward(lambda: native(x, k, 1), x), with_backward(lambda: ours(x, (k, k), stride=1), x)
    return Row(f"{name} k{k} s1 forward + backward", *compare(bare, mine, least=3), target)


def _avg_backward(x: torch.Tensor, k: int, target: str) -> Row:
    """The adjoint alone, both sides called directly."""
    win = window.pooling("avg_pool", x.shape, (k, k), rank=None, stride=1, padding=0)
    g = tensor(*SHAPE[:2], *win.out)
    bare = lambda: torch.ops.aten.avg_pool2d_backward(g, x, (k, k), (1, 1), (0, 0), False, True, None)
    ours = lambda: apply(REGISTRY["avg_spread"], g, window=win, divisor="padded")
    return Row(f"avg_pool k{k} s1 backward", *compare(bare, ours, least=3), target)


def _jvp(x: torch.Tensor, k: int, target: float) -> Row:
    """Forward mode: a compiled jvp graph against torch.func.jvp of the native operator."""
    v = torch.randn_like(x)
    graph = sg.trace(lambda t: sg.max_pool(t, (k, k), stride=1), SHAPE)
    compiled = sg.compile(graph, "torch", "jvp")
    bare = lambda: torch.func.jvp(lambda t: F.max_pool2d(t, k, 1), (x,), (v,))
    return Row(f"max_pool k{k} s1 jvp", *compare(bare, lambda: compiled(x, v), least=3), f"{target}x")


def _smooth(k: int, target: float) -> Row:
    x = tensor(2, 16, 96, 96, grad=True)

    def unfolded() -> torch.Tensor:
        return torch.logsumexp(x.unfold(2, k, 1).unfold(3, k, 1) * 3.0, (-1, -2)) / 3.0

    bare = with_backward(unfolded, x)
    ours = with_backward(lambda: sg.smooth_max_pool(x, (k, k), beta=3.0, stride=1), x)
    return Row(
        f"smooth_max_pool k{k} s1 forward + backward, against unfold + logsumexp", *compare(bare, ours), f"{target}x"
    )


def _conv4d() -> Row:
    x, w = tensor(2, 8, 12, 12, 12, 12), tensor(8, 8, 3, 3, 3, 3)

    def unfolded() -> torch.Tensor:
        u = x
        for d in range(2, 6):
            u = u.unfold(d, 3, 1)
        return torch.einsum("ncabdeijkl,ocijkl->noabde", u, w)

    pair = compare(unfolded, lambda: sg.conv(w, None, x), least=3)
    return Row("conv4d 8 to 8 channels, 12^4, k3, against unfold + einsum", *pair, "12x")


def large_windows() -> list[tuple[int, float]]:
    """Nanoseconds per input element for growing windows."""
    x = tensor(4, 16, 256, 256)
    found = []
    for k in (3, 5, 9, 17, 33, 65, 129):
        ours = lambda k=k: sg.max_pool(x, (k, k), stride=1)
        _, seconds = compare(lambda: None, ours, budget=0.5)
        found.append((k, seconds / x.numel() * 1e9))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rows = []
    for row in faster(quick):
        rows.append(row)
        print(f"{row.name}: {row.speedup:.2f}x (demanded {row.target})", flush=True)
    print(table(rows))
    for k, ns in large_windows():
        print(f"max_pool {k}x{k}: {ns:.2f} ns per element")


if __name__ == "__main__":
    main()
