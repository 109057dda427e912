"""What a worker of plan.run takes, beside what `plan.worker_bytes` promises: real workers, 2-D and 3-D, every engine.

python benchmarks/tile_memory.py            # prints and writes benchmarks/tile_memory.txt; 10 minutes of one thread
python benchmarks/tile_memory.py --only jax # the rows whose name has that word; writes nothing

Each row is a run of its own on executor "processes" with one worker. The worker's memory is its largest resident size
(Linux's VmHWM, of the process itself, with the pages of libraries that it maps), read after every tile. The constant is
that of tiles of next to nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

import specgrad as sg
from specgrad.scale import Plan, tiles

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import unet
from common import each, init, layer

HERE = Path(__file__)
LIMIT = 1.3


class Row(NamedTuple):
    """One run: a network of a width and depth, cells of the image and of a tile along an axis, engine and type."""

    net: str
    width: int
    depth: int
    cells: int
    tile: int
    engine: str = "torch"
    dtype: str = "float32"


ROWS = [
    *(Row("constant", 4, 1, 24, 8, engine) for engine in ("numpy", "torch", "jax")),
    Row("constant", 4, 1, 24, 8, "torch", "float64"),
    Row("unet", 4, 2, 2048, 512),
    Row("unet", 8, 3, 1024, 256),
    Row("unet", 8, 3, 2048, 512),
    Row("unet", 8, 3, 3072, 1024),
    Row("unet", 8, 3, 2400, 1000),
    Row("unet", 32, 3, 768, 256),
    Row("unet", 64, 4, 512, 256),
    Row("unet", 8, 3, 1024, 512, "torch", "float64"),
    Row("unet", 8, 3, 1024, 512, "jax"),
    Row("unet", 16, 3, 1536, 768, "jax"),
    Row("unet", 8, 3, 1024, 512, "numpy"),
    Row("unet", 8, 3, 1024, 512, "numpy", "float64"),
    Row("volume", 16, 2, 128, 64),
    Row("volume", 32, 2, 192, 96),
    Row("volume", 16, 2, 96, 48, "jax"),
    Row("volume", 16, 2, 96, 48, "numpy"),
]


def volume(width: int) -> Any:
    """Shapes of two convolutions of 3x3x3, one at half the size."""
    return {"a": layer(width, 1, 3, 3, 3), "b": layer(width, width, 3, 3, 3), "head": layer(2, width, 1, 1, 1)}


def volume_net(p: Any, x: Any) -> Any:
    x = sg.max_pool(sg.relu(sg.conv(p["a"]["weight"], p["a"]["bias"], x, padding=1)), (2, 2, 2))
    x = sg.relu(sg.conv(p["b"]["weight"], p["b"]["bias"], x, padding=1))
    return sg.conv(p["head"]["weight"], p["head"]["bias"], x)


def network(row: Row) -> tuple[Callable[..., Any], Any, tuple[int, ...]]:
    if row.net == "volume":
        return volume_net, volume(row.width), (1, 1, *(row.cells,) * 3)
    return unet.net, unet.shapes(1, 2, row.width, row.depth), (1, 1, row.cells, row.cells)


def largest(pids: list[int]) -> int:
    """Bytes that the largest of these processes has had in memory at once."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return max((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), default=0)


def run(plan: Plan, params: Any, source: Any, target: Any, engine: str) -> tuple[int, float]:
    """Run a plan on one worker; return the largest number of bytes that it took, and its seconds of CPU."""
    import psutil

    seen, seconds = [0], [0.0]

    def look(_: Any) -> None:
        pids = [p.pid for p in multiprocessing.active_children() if p.pid is not None]
        seen.append(largest(pids))
        seconds.append(max(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids))

    plan.run(params, source, target, engine=engine, workers=1, progress=look)
    return max(seen), max(seconds)


def measured(row: Row) -> dict[str, Any]:
    import zarr

    net, shapes, shape = network(row)
    graph = sg.trace(net, shapes, shape)
    plan = tiles(graph, row.tile, itemsize=np.dtype(row.dtype).itemsize)
    params = each(lambda _, a: np.asarray(a, row.dtype), init(shapes))
    with tempfile.TemporaryDirectory() as folder:
        chunks = (1, 1, *(min(n, 256 if len(shape) == 4 else 64) for n in shape[2:]))
        source = zarr.create_array(f"{folder}/x.zarr", shape=shape, chunks=chunks, dtype=row.dtype)
        rng = np.random.default_rng(0)
        for k in range(0, row.cells, 256):
            source[:, :, k : k + 256] = rng.standard_normal((1, 1, min(256, row.cells - k), *shape[3:])).astype(
                row.dtype
            )
        used, seconds = run(plan, params, f"{folder}/x.zarr", f"{folder}/y.zarr", row.engine)
    return {"promised": plan.worker_bytes(row.engine), "values": plan.peak_bytes, "used": used, "cpu": seconds}


def name_of(row: Row) -> str:
    return f"{row.net} {row.width} wide, {row.depth} deep, tile {row.tile}, {row.engine} {row.dtype}"


def line(row: Row, got: dict[str, Any]) -> str:
    mb = {key: got[key] / 1e6 for key in ("values", "promised", "used")}
    ratio = mb["used"] / mb["promised"]
    return (
        f"{name_of(row):54} values {mb['values']:5.0f} MB, promised {mb['promised']:5.0f}, used {mb['used']:5.0f}: "
        f"{ratio:.2f}{'' if ratio <= LIMIT else ' TOO MUCH'}; {got['cpu']:.0f} s CPU"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--child", type=int)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(measured(ROWS[options.child])))
        return
    text = []
    for k, row in enumerate(ROWS):
        if options.only in name_of(row):
            done = subprocess.run([sys.executable, str(HERE), "--child", str(k)], capture_output=True, text=True)
            text.append(line(row, json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else done.stderr)
            print(text[-1], flush=True)
    if not options.only:
        HERE.with_suffix(".txt").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
