"""Strided pools on PyTorch against the bare operator: bit-equal values, then CPU time.

python benchmarks/pools_torch.py            # 8x64x112x112
python benchmarks/pools_torch.py --grid     # where our way is chosen, and what it is worth there
python benchmarks/pools_torch.py --zeros    # what it costs to see that no cell is -0: the first zero of a window wins
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import specgrad as sg
from measure import Row, compare, table
from specgrad.engines.torch import log_step_pool, strided_pool

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
BARE: dict[str, Callable[..., Any]] = {"max_pool": F.max_pool2d, "avg_pool": F.avg_pool2d}


def pair(name: str, x: torch.Tensor, k: int, s: int, p: int, back: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    bare = lambda t: BARE[name](t, k, s, p)
    ours = lambda t: getattr(sg, name)(t, (k, k), stride=s, padding=p)
    x = x.detach().requires_grad_(back)
    gy = torch.randn_like(bare(x))
    works = [(lambda f=f: torch.autograd.grad(f(x), x, gy)[0]) if back else (lambda f=f: f(x)) for f in (bare, ours)]
    values = [f(x).detach() for f in (bare, ours)]
    assert values[0].stride() == values[1].stride(), "the layout is lost"
    assert torch.equal(*values) if name == "max_pool" else torch.allclose(*values, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(works[0](), works[1](), rtol=1e-5, atol=1e-5)
    return works[0], works[1]


def rows(shapes: list[tuple[int, ...]], windows: list[tuple[int, int, int]], budget: float) -> Iterator[Row]:
    for shape in shapes:
        for name in BARE:
            for k, s, p in windows:
                for layout, kind in LAYOUTS.items():
                    x = torch.randn(shape).contiguous(memory_format=kind)
                    for back in (False, True):
                        what = f"{name} k{k} s{s} p{p} {'x'.join(map(str, shape))} {layout}, forward"
                        what += " + backward" * back
                        demanded = {(2, 2, 0): ("6x", "1.5x"), (3, 2, 1): ("2.5x", "1.2x")}.get((k, s, p), ("", ""))
                        asked = demanded[back] if name == "max_pool" and layout == "contiguous" else "0.95x"
                        yield Row(what, *compare(*pair(name, x, k, s, p, back), budget=budget), asked)


def zeros() -> Iterator[Row]:
    """max_pool at 8x64x112x112, forward: bare against ours, and against ours that takes it that no cell is -0."""
    x, sees = torch.randn(8, 64, 112, 112), log_step_pool.has_negative_zero
    for k, s, p in ((3, 1, 1), (3, 1, 0), (2, 2, 0)):
        bare, ours = pair("max_pool", x, k, s, p, False)
        for what, looks in (("", sees), (", without the look", lambda x: False)):
            log_step_pool.has_negative_zero = strided_pool.has_negative_zero = looks
            yield Row(f"max_pool k{k} s{s} p{p}{what}", *compare(bare, ours, budget=2.0), "")
    log_step_pool.has_negative_zero = strided_pool.has_negative_zero = sees


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--zeros", action="store_true")
    torch.set_num_threads(1)
    asked = parser.parse_args()
    if asked.zeros:
        measured = zeros()
    elif asked.grid:
        shapes = [(1, 4, 8, 8), (1, 16, 32, 32), (2, 32, 32, 32), (1, 64, 56, 56), (1, 3, 224, 224)]
        measured = rows(shapes, [(2, 2, 0), (3, 2, 1), (5, 2, 2), (7, 7, 0), (3, 1, 1)], 0.05)
    else:
        measured = rows([(8, 64, 112, 112)], [(2, 2, 0), (3, 2, 1)], 0.7)
    print(table([]))
    for row in measured:
        print(table([row]).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
