"""Exact tiles of a U-Net beside one run over the whole image: values, classes, CPU, multiply-adds, memory, planning.

python benchmarks/tiles.py            # prints and writes benchmarks/tiles.txt; some minutes of one thread
python benchmarks/tiles.py --quick    # at 512x512, writes nothing

Every run has a process of its own: its memory is the largest resident size (Linux's VmHWM) less that before the run.
Multiply-adds are counted by PyTorch on tensors without data; planning includes building and lowering the graphs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

import specgrad as sg
from specgrad.scale import Plan, tiles

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import unet
from common import each, init
from pace import slower

torch.set_num_threads(1)
SHAPES = unet.shapes(channels=1, classes=2, width=8, depth=3)
HERE = Path(__file__)


def graph_of(size: int) -> sg.Graph:
    return sg.trace(unet.net, SHAPES, (1, 1, size, size))


def given(kind: str, size: int) -> tuple[Any, torch.Tensor]:
    """Weights and an image; integers have few weights that are not 0, so that every partial sum is exact in float64."""
    rng = np.random.default_rng(0)
    if kind == "float32":
        params: Any = each(lambda _, a: a.astype(np.float32), init(SHAPES))
        x = rng.standard_normal((1, 1, size, size)).astype(np.float32)
    else:
        params = each(lambda _, s: (rng.integers(-1, 2, s) * (rng.random(s) < 0.3)).astype(np.float64), SHAPES)
        x = rng.integers(-3, 4, (1, 1, size, size)).astype(np.float64)
    return sg.tree.transform(lambda _, a: torch.from_numpy(a), params), torch.from_numpy(x)


def resident(word: str) -> float:
    """Megabytes of this process: VmRSS now, VmHWM at most since it was last forgotten."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(word))
    return int(line.split()[1]) / 1000


def forget_the_most() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def child(kind: str, size: int, tile: int, file: str) -> dict[str, float]:
    """One run; tile 0: over the whole."""
    graph = graph_of(size)
    params, x = given(kind, size)
    warm = torch.nn.functional.conv2d(x[..., :8, :8], params["down"][0][0]["weight"])  # the engine's own start
    del warm
    forget_the_most()
    before, start, planning = resident("VmRSS"), time.process_time(), 0.0
    with torch.no_grad():
        if not tile:
            y = sg.compile(graph, "torch")(params, x)
        else:
            plan, y = tiles(graph, tile), torch.empty(1, 2, size, size, dtype=x.dtype)
            planning = time.process_time() - start
            for k in range(len(plan)):
                begin = time.process_time()
                t = plan[k]
                reads, box = t.reads, t.box
                plan.programs.of(t.cut, "torch", None)
                planning += time.process_time() - begin
                y[box] = t(params, x[reads])
    seconds = time.process_time() - start
    used = resident("VmHWM") - before
    np.save(file, y.numpy())
    return {"cpu": seconds, "planning": planning, "mb": used, "largest": float(y.abs().max())}


def run(kind: str, size: int, tile: int, folder: str) -> tuple[dict[str, float], np.ndarray]:
    file = f"{folder}/{tile}.npy"
    command = [sys.executable, str(HERE), "--child", kind, str(size), str(tile), file]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1]), np.load(file)


def counted(plan: Plan) -> int:
    """Multiply-adds as PyTorch counts them, on tensors without data."""
    params = each(lambda _, s: torch.empty(s, device="meta"), SHAPES)
    x = torch.empty(plan.graph.nodes[plan.graph.input_positions[-1]].shape, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for t in plan:
            t(params, x[t.reads])
    return int(counter.get_total_flops()) // 2


def lines(size: int, tile_sizes: tuple[int, ...]) -> Any:
    graph = graph_of(size)
    for kind in ("integers", "float32"):
        with tempfile.TemporaryDirectory() as folder:
            base, one = run(kind, size, 0, folder)
            cost = f"{base['cpu']:.1f} s CPU, {base['mb']:.0f} MB"
            yield f"{kind}, {size}x{size}: at once {cost}, largest value {base['largest']:.3g}"
            for tile in tile_sizes:
                r, y = run(kind, size, tile, folder)
                plan = tiles(graph, tile, itemsize=8 if kind == "integers" else 4)
                same, off = 100 * float(np.mean(y == one)), float(np.abs(y - one).max() / np.abs(one).max())
                classes = int(np.sum(y.argmax(1) != one.argmax(1)))
                yield (
                    f"  tile {tile:4d}: equal bits {same:.4f} %, largest difference {off:.2g} of the largest value, "
                    f"{classes} classes changed"
                )
                once, macs = plan.multiply_adds_at_once, plan.multiply_adds
                yield (
                    f"     CPU {r['cpu'] / base['cpu']:.2f}x, planning {100 * r['planning'] / r['cpu']:.1f} %, "
                    f"memory {r['mb']:.0f} MB = {r['mb'] / base['mb']:.2f}x "
                    f"(predicted values {plan.peak_bytes / 1e6:.0f} MB of {plan.peak_bytes_at_once / 1e6:.0f}), "
                    f"multiply-adds {macs / once:.4f}x, predicted {macs:,}, run {counted(plan):,}, "
                    f"{len(plan.kinds)} graphs for {len(plan)} tiles"
                )


def planning() -> Any:
    """A slide of 10^10 cells: no array of that size is ever made."""
    start = time.process_time()
    graph = sg.trace(unet.net, unet.shapes(3, 2, 16, 4), (1, 3, 100_000, 100_000))
    plan = tiles(graph, 1024)
    ready = time.process_time() - start
    start, count = time.process_time(), 100
    for k in range(0, len(plan), len(plan) // count):
        _ = plan[k].reads
    each_tile = (time.process_time() - start) / count
    start = time.process_time()
    costs = plan.to_json()
    yield f"100,000x100,000, U-Net of width 16, depth 4, {plan}"
    yield (
        f"  trace and halo {ready:.2f} s, {1000 * each_tile:.1f} ms per tile, costs of all {costs['tiles']:,} tiles in "
        f"{time.process_time() - start:.2f} s: multiply-adds {plan.multiply_adds / plan.multiply_adds_at_once:.3f}x, "
        f"{plan.peak_bytes / 1e6:.0f} MB at peak"
    )
    start = time.process_time()
    large = tiles(graph, memory=4 * 10**9)
    yield f"  memory=4 GB: tiles of {'x'.join(map(str, large.size))} in {time.process_time() - start:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs=4)
    options = parser.parse_args()
    if options.child:
        kind, size, tile, file = options.child
        print(json.dumps(child(kind, int(size), int(tile), file)))
        return
    size, tile_sizes = (512, (128, 200)) if options.quick else (2048, (256, 512, 1000))
    text = [
        f"U-Net of width 8, depth 3, one thread, torch {torch.__version__}; pace {slower():.1f} (1: an idle machine)"
    ]
    for line in (*lines(size, tile_sizes), *planning()):
        print(line, flush=True)
        text.append(line)
    if not options.quick:
        HERE.with_suffix(".txt").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
