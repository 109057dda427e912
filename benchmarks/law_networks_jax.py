"""Whole networks against plain JAX, in both layouts: seconds, and the bytes that XLA plans for.

    python benchmarks/law_networks_jax.py [--only PART] [--again]     one thread, CPU time, interleaved

Every network is written once, against the few layers of `Layers`, and built three times: in plain jax with the channels
first, in plain jax with the channels last (weights HWIO, as its users write them), and in specgrad, whose graph is
compiled for both layouts (`sg.channels_last`). Forward alone, and a step: the loss and the gradients of all parameters.
One JSON per line goes to benchmarks/results/law_networks_jax.jsonl; rows that are there are not measured again.

Memory is what XLA says of each program: arguments, results and the largest set of temporaries alive at once.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import specgrad as sg
from jax_layers import NETWORKS, Bare, Ours, Shapes
from jax_ops import one_thread

STORE = Path(__file__).parent / "results" / "law_networks_jax.jsonl"
BUDGET = 1.5  # CPU seconds for the samples of one row
Row = dict[str, Any]


def bare_program(name: str, direction: str, last: bool) -> Any:
    rank, net = NETWORKS[name].rank, NETWORKS[name].net
    run = lambda params, x: net(Bare(params, rank, last), x)
    if direction == "forward":
        return jax.jit(run)
    return jax.jit(jax.value_and_grad(lambda p, x: jnp.mean(run(p, x) ** 2)))


def our_program(name: str, direction: str, last: bool, shapes: list[Any], x: tuple[int, ...]) -> Any:
    rank, net = NETWORKS[name].rank, NETWORKS[name].net
    run = lambda params, x: net(Ours(params, rank), x)
    if last:
        run, x = sg.channels_last(run, rank=rank), (x[0], *x[2:], x[1])
    if direction == "forward":
        return sg.compile(sg.trace(run, shapes, x), "jax")
    loss = sg.trace(lambda p, t: sg.mean(run(p, t) ** 2), shapes, x)
    return sg.compile(sg.grad(loss, 0, value=True), "jax")


def megabytes(compiled: Any) -> float:
    m = compiled.memory_analysis()
    return float(m.temp_size_in_bytes + m.output_size_in_bytes + m.argument_size_in_bytes) / 1e6


def values(name: str, shape: tuple[int, ...]) -> tuple[list[Any], list[np.ndarray], np.ndarray]:
    """Shapes and values of the parameters, channels first, and the image."""
    net = NETWORKS[name]
    record = Shapes(net.rank)
    net.net(record, shape)
    rng = np.random.default_rng(0)
    params = [record.initial(rng, s) for s in record.shapes]
    return record.shapes, params, rng.standard_normal(shape).astype(np.float32)


def turned(a: np.ndarray, rank: int) -> np.ndarray:
    """OIHW as HWIO."""
    return np.moveaxis(a, (0, 1), (-1, -2)) if a.ndim == rank + 2 else a


def interleaved(sides: list[Callable[[], Any]]) -> list[float]:
    """The smallest CPU seconds of each, in turn; see `jax_ops.smallest` for why samples are long."""
    once = [_seconds(side, 1) for side in sides]
    repeats = [1 + int(0.1 / max(1e-6, t)) for t in once]
    best, spent, turns = [float("inf")] * len(sides), 0.0, 0
    while turns < 3 or (spent < BUDGET and turns < 12):
        for i, side in enumerate(sides):
            seconds = _seconds(side, repeats[i])
            best[i], spent = min(best[i], seconds), spent + seconds * repeats[i]
        turns += 1
    return best


def _seconds(work: Callable[[], Any], repeats: int) -> float:
    before = time.process_time()
    for _ in range(repeats):
        jax.block_until_ready(work())
    return (time.process_time() - before) / repeats


def measure(name: str, shape: tuple[int, ...], direction: str) -> Iterator[Row]:
    """Four programs: both sides in both layouts; values compared before any time is taken."""
    rank = NETWORKS[name].rank
    shapes, params, image = values(name, shape)
    first, kernels = [jnp.asarray(p) for p in params], [jnp.asarray(turned(p, rank)) for p in params]
    images = {False: jnp.asarray(image), True: jnp.asarray(np.moveaxis(image, 1, -1))}
    programs: dict[tuple[str, bool], tuple[Any, Any, float]] = {}
    for last in (False, True):
        for side in ("bare", "ours"):
            given = (kernels if last and side == "bare" else first), images[last]
            make = bare_program(name, direction, last) if side == "bare" else None
            make = make or our_program(name, direction, last, shapes, shape)
            start = time.process_time()
            compiled = make.lower(*given).compile()
            programs[side, last] = partial(compiled, *given), megabytes(compiled), time.process_time() - start
    want = np.asarray(jax.tree.leaves(programs["bare", False][0]())[0])
    for (_, last), (run, _, _) in programs.items():
        got = np.asarray(jax.tree.leaves(run())[0])
        got = np.moveaxis(got, -1, 1) if last and got.ndim == rank + 2 else got
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 * float(np.abs(want).max()))
    times = dict(zip(programs, interleaved([run for run, _, _ in programs.values()]), strict=True))
    for last in (False, True):
        (_, bare_mb, bare_compile), (_, ours_mb, ours_compile) = programs["bare", last], programs["ours", last]
        yield {
            "engine": "jax",
            "network": name,
            "size": "x".join(map(str, shape)),
            "mode": "compiled",
            "direction": direction,
            "layout": "NHWC" if last else "NCHW",
            "bare": times["bare", last],
            "ours": times["ours", last],
            "bare_mb": bare_mb,
            "ours_mb": ours_mb,
            "bare_compile": bare_compile,
            "ours_compile": ours_compile,
        }


def text(row: Row) -> str:
    speed, memory = row["bare"] / row["ours"], row["ours_mb"] / row["bare_mb"]
    what = f"{row['network']:14}{row['size']:>16} {row['direction']:8}{row['layout']}"
    times = f"{1e3 * row['bare']:9.2f}{1e3 * row['ours']:9.2f} ms{speed:7.2f}x"
    mb = f"{row['bare_mb']:9.1f}{row['ours_mb']:9.1f} MB{memory:6.2f}x"
    return f"{what}{times}{mb}   compile {row['bare_compile']:.1f} {row['ours_compile']:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of 'network size direction'")
    parser.add_argument("--again", action="store_true", help="measure rows that are stored, too")
    options = parser.parse_args()
    one_thread()
    stored = [json.loads(line) for line in STORE.read_text().splitlines()] if STORE.exists() else []
    key = lambda row: (row["network"], row["size"], row["direction"])
    for name, net in NETWORKS.items():
        for shape in net.shapes:
            for direction in ("forward", "step"):
                wanted = (name, "x".join(map(str, shape)), direction)
                if options.only not in " ".join(wanted):
                    continue
                if not options.again and any(key(row) == wanted for row in stored):
                    continue
                stored = [row for row in stored if key(row) != wanted]
                for row in measure(name, shape, direction):
                    stored.append(row)
                    print(text(row), flush=True)
                STORE.write_text("".join(json.dumps(row) + "\n" for row in stored))
                jax.clear_caches()


if __name__ == "__main__":
    sys.exit(main())
