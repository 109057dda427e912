"""What each rewrite of a graph earns on whole networks: a program without it over one with all of them.

python benchmarks/rewrites.py                                    PyTorch, the smallest size of each network
python benchmarks/rewrites.py --only mobilenet_v2 --budget 60    some networks, more CPU seconds for each

One thread, CPU time, all programs in turn, the smallest of each; "none" is a second program with all rewrites, so it
says how much of the rest is chance. Networks and steps are those of law_networks.py. A rewrite that earns less than 5 %
on every network is to be deleted.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import specgrad as sg
from law_networks import NETWORKS, _gradient_graph, _graph, build
from specgrad.engines.torch import fx_graph as lowering
from specgrad.engines.torch import rewrites
from specgrad.interop import to_torch


@contextlib.contextmanager
def _less(table: dict[str, Any], name: str) -> Iterator[None]:
    kept = dict(table)
    del table[name]
    try:
        yield
    finally:
        table.update(kept)


@contextlib.contextmanager
def _chains() -> Iterator[None]:
    """Reshapes as they come."""
    before, lowering.before_reshapes = lowering.before_reshapes, lambda graph, i: graph.nodes[i].operands()[0]
    try:
        yield
    finally:
        lowering.before_reshapes = before


WITHOUT: dict[str, Callable[[], Any]] = {
    **{name: partial(_less, rewrites.REWRITES, name) for name in rewrites.REWRITES},
    **{f"cotangents of {name}": partial(_less, rewrites.ACTIVATIONS, name) for name in rewrites.ACTIVATIONS},
    "chains of reshapes": _chains,
    "none": contextlib.nullcontext,
}


def _targets(module: Any) -> list[str]:
    return [str(getattr(n.target, "__name__", n.target)) for n in getattr(module, "graph_module", module).graph.nodes]


def programs(network: str, size: str, direction: str) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """All rewrites, and each left out where that changes the program; the arguments of all."""
    bare, x = build(network, size, "contiguous")
    if direction == "forward":
        make, args = (lambda: to_torch(_graph(network, size)).float()), (x,)
    else:
        make = lambda: sg.compile(_gradient_graph(network, size), "torch").float()
        args = (x, *(p.detach() for p in bare.parameters()))
    made = {"all": make()}
    for name, off in WITHOUT.items():
        with off():
            module = make()
        if name == "none" or _targets(module) != _targets(made["all"]):
            made[name] = module
    return made, args


def seconds(made: dict[str, Any], args: tuple[Any, ...], budget: float) -> dict[str, float]:
    best, spent, turn = dict.fromkeys(made, float("inf")), 0.0, 0
    with torch.no_grad():
        for module in made.values():
            module(*args)
        gc.collect()
        gc.disable()
        while turn < 5 or spent < budget:
            for name in list(made)[:: -1 if turn % 2 else 1]:
                start = time.process_time()
                made[name](*args)
                took = time.process_time() - start
                best[name], spent = min(best[name], took), spent + took
            turn += 1
        gc.enable()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--budget", type=float, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for network in options.only:
        size = NETWORKS[network][2][0]
        for direction in ("step", "forward"):
            best = seconds(*programs(network, size, direction), options.budget)
            earns = ", ".join(f"{name} {best[name] / best['all'] - 1:+.1%}" for name in best if name != "all")
            print(f"{network} {size} {direction}, {best['all'] * 1e3:.2f} ms: {earns}", flush=True)


if __name__ == "__main__":
    main()
