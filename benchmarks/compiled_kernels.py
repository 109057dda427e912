"""Would a compiled kernel be worth having? A maximum with its winners as bytes, through torch.compile (inductor).

python benchmarks/compiled_kernels.py

Three ways to one max_pool, forward and forward + backward: the bare operator, ours, and plain tensor expressions that
inductor turns into one C++ loop each: maximum, maximum and winning tap (uint8), and the way back by that tap. Values
and gradients are compared bit for bit first (whole gradients, so that sums have no order). Compiling is not timed, but
said: a call of ours has no such wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import specgrad as sg
from measure import Row, compare, table

SHAPES = [(1, 64, 56, 56), (8, 64, 112, 112)]
WINDOWS = [(2, 2, 0), (3, 2, 1), (3, 1, 1)]
Tensor = torch.Tensor


def taps(x: Tensor, k: int, s: int, p: int) -> list[Tensor]:
    """What every tap reads, in row-major order; padded cells are -inf."""
    x = F.pad(x, (p, p, p, p), value=-torch.inf)
    out = [(n - k) // s + 1 for n in x.shape[2:]]
    ends = [s * (m - 1) + 1 for m in out]
    return [x[:, :, a : a + ends[0] : s, b : b + ends[1] : s] for a in range(k) for b in range(k)]


def maximum(x: Tensor, k: int, s: int, p: int) -> Tensor:
    first, *rest = taps(x, k, s, p)
    for v in rest:
        first = torch.where((v > first) | (v != v), v, first)
    return first


def winner(x: Tensor, k: int, s: int, p: int) -> tuple[Tensor, Tensor]:
    """The first of equal taps; of NaNs the last, as the bare operator has it. A padded tap never wins."""
    best, *rest = taps(x, k, s, p)
    where = torch.zeros_like(best, dtype=torch.uint8)
    inside = taps(torch.zeros_like(x[:1, :1]), k, s, p)  # -inf where a tap is none
    seen = inside[0] == 0
    for t, (v, here) in enumerate(zip(rest, inside[1:], strict=True), 1):
        wins = (v > best) | (v != v) | ((here == 0) & ~seen)
        best, where = torch.where(wins, v, best), torch.where(wins, t, where).to(torch.uint8)
        seen = seen | (here == 0)
    return best, where


def back(g: Tensor, where: Tensor, size: tuple[int, int], k: int, s: int, p: int) -> Tensor:
    """Cell s*j + a of an axis is read as tap a + s*q by output j - q: a sum per pair of remainders, interleaved."""
    cells = [-(-(n + 2 * p) // s) for n in size]
    more = [m - n for m, n in zip(cells, g.shape[2:], strict=True)]
    phases = []
    for a in range(s):
        for b in range(s):
            total = g.new_zeros((*g.shape[:2], *cells))
            for i in range(a, k, s):
                for j in range(b, k, s):
                    part = torch.where(where == i * k + j, g, 0)
                    total = total + F.pad(part, (j // s, more[1] - j // s, i // s, more[0] - i // s))
            phases.append(total)
    whole = torch.stack(phases, -1).unflatten(-1, (s, s)).permute(0, 1, 2, 4, 3, 5)
    whole = whole.reshape(*g.shape[:2], s * cells[0], s * cells[1])
    return whole[:, :, p : p + size[0], p : p + size[1]].contiguous()


def compiled(k: int, s: int, p: int) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The maximum, and the maximum on PyTorch's tape."""
    values = torch.compile(lambda x: maximum(x, k, s, p), dynamic=False)
    both = torch.compile(lambda x: winner(x, k, s, p), dynamic=False)
    reverse = torch.compile(lambda g, where, size: back(g, where, size, k, s, p), dynamic=False)

    class Taped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            y, where = both(x)
            ctx.save_for_backward(where)
            ctx.size = tuple(x.shape[2:])
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return reverse(g, *ctx.saved_tensors, ctx.size)

    return values, Taped.apply


def odd(shape: tuple[int, ...]) -> Tensor:
    """Ties, zeros of both signs, infinities."""
    return torch.tensor([-1.0, -0.0, 0.0, 0.5, 2.0, -torch.inf])[torch.randint(0, 6, shape)]


def rows(shape: tuple[int, ...], k: int, s: int, p: int) -> list[Row]:
    start = time.perf_counter()
    values, taped = compiled(k, s, p)
    ways: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
        "bare": (lambda x: F.max_pool2d(x, k, s, p),) * 2,
        "ours": (lambda x: sg.max_pool(x, (k, k), stride=s, padding=p),) * 2,
        "compiled": (values, taped),
    }
    gy = torch.randint(-8, 9, ways["bare"][0](torch.zeros(shape)).shape).float()
    gradient: Callable[..., Any] = lambda f, x: torch.autograd.grad(f(x), x, gy)[0]
    for x in (odd(shape), torch.randn(shape)):
        want = F.max_pool2d(x, k, s, p)
        wanted = gradient(ways["bare"][1], x.clone().requires_grad_())
        for name, (plain, on_tape) in ways.items():
            y, gx = plain(x), gradient(on_tape, x.clone().requires_grad_())
            assert torch.equal(y, want), name
            assert torch.equal(y.signbit(), want.signbit()), name
            assert torch.equal(gx, wanted), name
    wait = time.perf_counter() - start
    what = f"k{k} s{s} p{p} {'x'.join(map(str, shape))}"
    print(f"{what}: {wait:.0f} s until the first results", flush=True)
    leaf = x.clone().requires_grad_()
    made = []
    for name in ("ours", "compiled"):
        plain, on_tape = ways[name]
        once = compare(lambda: ways["bare"][0](x), lambda plain=plain: plain(x), budget=0.4)
        both = compare(
            lambda: gradient(ways["bare"][1], leaf), lambda on_tape=on_tape: gradient(on_tape, leaf), budget=0.6
        )
        made += [Row(f"{name}, {what}, forward", *once), Row(f"{name}, {what}, forward + backward", *both)]
    return made


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for shape in SHAPES:
        for window in WINDOWS:
            print(table(rows(shape, *window)), flush=True)


if __name__ == "__main__":
    main()
