"""The arithmetic of a job that nobody runs on a laptop: 10^12 cells through a U-Net, on 1,000 workers.

python benchmarks/how_far.py           # seconds; prints and writes benchmarks/how_far.txt

Tiles, multiply-adds, cells read, chunks touched and values held are exact: they are those of the plan, which is made
here. Core-hours divide the multiply-adds by a rate that is measured here, on one tile of 1024x1024 and one core.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

import specgrad as sg
from specgrad.scale import Plan, tiles

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import unet
from common import each, init
from pace import slower

torch.set_num_threads(1)
SIDE, CHANNELS, CLASSES = 1_000_000, 3, 2
SHAPES = unet.shapes(CHANNELS, CLASSES, width=16, depth=4)
WORKERS = 1_000


def touched(read: slice, chunk: int) -> int:
    """Chunks that hold a cell of a slice."""
    return (read.stop - 1) // chunk - read.start // chunk + 1


def chunks_read(plan: Plan, chunk: int) -> int:
    """Of all tiles together; chunks are squares that divide a tile."""
    return sum(count * math.prod(touched(r, chunk) for r in t.reads[2:]) for t, count in plan.kinds)


def cells_read(plan: Plan) -> int:
    return sum(count * math.prod(r.stop - r.start for r in t.reads[2:]) for t, count in plan.kinds)


def rate() -> float:
    """Multiply-adds per CPU second of one core, on the tile in the middle of 3072x3072; the best of three."""
    plan = tiles(sg.trace(unet.net, SHAPES, (1, CHANNELS, 3072, 3072)), 1024)
    t, params = plan.at(1, 1), each(lambda _, a: torch.from_numpy(a).float(), init(SHAPES))
    x, seconds = torch.rand(1, CHANNELS, *(r.stop - r.start for r in t.reads[2:])), []
    with torch.no_grad():
        for _ in range(3):
            start = time.process_time()
            t(params, x)
            seconds.append(time.process_time() - start)
    return t.cut.multiply_adds / min(seconds)


def lines() -> Iterator[str]:
    graph = sg.trace(unet.net, SHAPES, (1, CHANNELS, SIDE, SIDE))
    speed = rate()
    yield f"U-Net of width 16, depth 4, {SIDE:,} x {SIDE:,} cells of {CHANNELS} channels, {CLASSES} classes"
    yield f"one core here: {speed / 1e9:.1f} thousand million multiply-adds a second; pace {slower():.1f}"
    for size in (1024, 2048, 4096):
        start = time.process_time()
        plan = tiles(graph, size)
        macs, cells, ready = plan.multiply_adds, SIDE * SIDE, time.process_time() - start
        start, step = time.process_time(), len(plan) // 1000
        for k in range(0, len(plan), step):
            _ = plan[k].reads
        each_tile = (time.process_time() - start) / len(range(0, len(plan), step))
        per_tile = macs / len(plan) / speed
        yield ""
        yield f"tiles of {size}: {len(plan):,}, {plan.peak_bytes / 1e9:.2f} GB at peak, planned in {ready:.2f} s"
        yield f"  {1000 * each_tile:.2f} ms of planning and {per_tile:.0f} s of computing per tile"
        yield f"  multiply-adds {macs:.3g}, {macs / plan.multiply_adds_at_once:.3f} times those at once"
        hours = macs / speed / 3600
        yield f"  {hours:,.0f} core-hours; {hours / WORKERS:.1f} hours on {WORKERS:,} cores"
        yield f"  a worker is done every {per_tile / WORKERS * 1000:.0f} ms: what a scheduler must keep up with"
        written = CLASSES * 4 * cells / 1e12
        yield f"  cells read {cells_read(plan) / cells:.3f} times; {written:.0f} TB of float32 written"
        for chunk in (128, 256, 512):
            count = chunks_read(plan, chunk)
            bytes_read = count * chunk * chunk * CHANNELS
            yield (
                f"  source in chunks of {chunk} (uint8): {count:,} chunks read, {bytes_read / 1e12:.2f} TB "
                f"decoded, {count * chunk * chunk / cells:.2f} times the image"
            )
        yield f"  target: {len(plan):,} shards and {len(plan):,} records written, one of each per tile"


def main() -> None:
    text = []
    for line in lines():
        print(line, flush=True)
        text.append(line)
    Path(__file__).with_suffix(".txt").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
