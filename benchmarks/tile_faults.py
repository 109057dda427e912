"""Faults of sources, targets and records on a real run of tiles, one by one, each by its name.

python benchmarks/tile_faults.py                  all rows
python benchmarks/tile_faults.py missing_shard    one row
python benchmarks/tile_faults.py cost             what it costs to compare generations and to take checksums

A scene of 2048 x 2048 bytes in shards of 1024, 64 tiles of 256, PyTorch, two processes. A row is "held" if the run did
not end well, the sentence names what is wrong, and repair gives the bytes of a run on what is there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import specgrad as sg
from specgrad.scale import tiles
from specgrad.scale.jobs import results, status
from specgrad.scale.run_plan import damaged

SIZE, TILE, SHARD = 2048, 256, 1024
SHAPES = {"a": (8, 1, 3, 3), "b": (8, 8, 3, 3), "c": (2, 8, 1, 1)}


def classes(p: Any, x: Any) -> Any:
    y = sg.relu(sg.conv(p["a"], None, sg.mul(x, 1 / 128), padding=1))
    for _ in range(3):
        y = sg.relu(sg.conv(p["b"], None, y, padding=1))
    return sg.argmax(sg.conv(p["c"], None, y), axis=1)


def run(source: Path, target: Path, **options: Any) -> Any:
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    plan = tiles(sg.trace(classes, SHAPES, (1, 1, SIZE, SIZE)), TILE)
    return plan.run(weights, source, target, dtype="uint8", **{"workers": 2, **options})


def make_scene(path: Path, seed: int = 0) -> Path:
    """Write a scene without a checksum over its chunks, as raw bytes."""
    import zarr

    shape, chunks, shards = (1, 1, SIZE, SIZE), (1, 1, 256, 256), (1, 1, SHARD, SHARD)
    array = zarr.create_array(path, shape=shape, chunks=chunks, shards=shards, dtype="uint8", compressors=None)
    array[:] = np.random.default_rng(seed).integers(1, 256, shape, dtype=np.uint8)
    return path


def child(source: Path, target: Path, **options: Any) -> subprocess.Popen[str]:
    """Start a run in a process of its own."""
    words = [sys.executable, __file__, "child", str(source), str(target), json.dumps(options)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code of a run and the last line that it said."""
    out, err = process.communicate()
    return process.returncode, (err.strip().splitlines() or out.strip().splitlines() or [""])[-1]


def wait_for(process: subprocess.Popen[str], target: Path, count: int) -> None:
    """Wait until so many tiles have records, or the run is over."""
    folder = Path(f"{target}.job/results")
    while process.poll() is None and (len(list(folder.glob("[0-9]*"))) if folder.is_dir() else 0) < count:
        time.sleep(0.02)


def invert(source: Path) -> None:
    import zarr

    array = zarr.open_array(source)
    array[:] = 255 - array[:]


def cells(target: Path) -> bytes:
    import zarr

    return bytes(zarr.open_array(target, mode="r")[:].tobytes())


def repaired(source: Path, target: Path, **options: Any) -> bool:
    """Return whether repair leaves nothing damaged, and the cells of a run that nothing happened to."""
    run(source, target, repair=True, **options)
    fresh = target.with_name("fresh.zarr")
    run(source, fresh, **options)
    return damaged(f"{target}.job") == {} and cells(target) == cells(fresh)


# --- rows -------------------------------------------------------------------------------------------------------------


def rewritten_between_kill_and_resume(source: Path, target: Path) -> tuple[int, str, bool]:
    process = child(source, target)
    wait_for(process, target, 20)
    process.kill()
    process.communicate()
    invert(source)
    return *ended(child(source, target)), repaired(source, target)


def rewritten_while_it_runs(source: Path, target: Path) -> tuple[int, str, bool]:
    process = child(source, target)
    wait_for(process, target, 20)
    invert(source)
    return *ended(process), repaired(source, target)


def missing_shard(source: Path, target: Path) -> tuple[int, str, bool]:
    (source / "c/0/0/1/1").unlink()
    return *ended(child(source, target)), repaired(source, target, fill_missing=True)


def flipped_bytes(source: Path, target: Path) -> tuple[int, str, bool]:
    """Between a run and its rerun."""
    run(source, target)
    part = source / "c/0/0/1/1"
    data = bytearray(part.read_bytes())
    data[2000:2040] = bytes(b ^ 0x5A for b in data[2000:2040])
    part.write_bytes(data)
    return *ended(child(source, target)), repaired(source, target)


def another_job_on_the_target(source: Path, target: Path) -> tuple[int, str, bool]:
    run(source, target, folder=f"{target}.one")
    before, other = cells(target), make_scene(source.with_name("other.zarr"), seed=1)
    end = ended(child(other, target, folder=f"{target}.two"))
    return *end, cells(target) == before and run(source, target, folder=f"{target}.one").run == 0


def edited_record(source: Path, target: Path) -> tuple[int, str, bool]:
    """Where the results are read."""
    run(source, target)
    record = Path(f"{target}.job/results/17")
    record.write_bytes(record.read_bytes().replace(b'"tile": 17', b'"tile": 71'))
    try:
        print(sum(1 for _ in results(f"{target}.job")), end="")
    except sg.SpecgradError as error:
        return 1, str(error), set(damaged(f"{target}.job")) == {17} and repaired(source, target)
    return 0, "all were read", False


def deleted_chunk_of_the_target(source: Path, target: Path) -> tuple[int, str, bool]:
    """A plain run looks at names alone; damaged says it, repair computes it."""
    run(source, target)
    (target / "c/0/1/1").unlink()
    said = damaged(f"{target}.job")
    return len(said), str(said), repaired(source, target)


def killed_in_between(source: Path, target: Path) -> tuple[int, str, bool]:
    """Nothing is wrong: three kills, and the bytes are those of a run without one."""
    for count in (10, 25, 45):
        process = child(source, target)
        wait_for(process, target, count)
        process.kill()
        process.communicate()
    run(source, target)
    done = len(status(f"{target}.job").done)
    return done, f"{done} tiles after three kills", repaired(source, target)


ROWS: tuple[Callable[[Path, Path], tuple[int, str, bool]], ...] = (
    rewritten_between_kill_and_resume,
    rewritten_while_it_runs,
    missing_shard,
    flipped_bytes,
    another_job_on_the_target,
    edited_record,
    deleted_chunk_of_the_target,
    killed_in_between,
)


def cost(folder: Path) -> None:
    """Time 64 tiles in this process with and without generations and checksums, five times each, by turns."""
    from unittest.mock import patch

    source, seconds = make_scene(folder / "x.zarr"), dict[bool, list[float]]({True: [], False: []})
    off = patch("specgrad.scale.tile_job.TileJob._refuse_changed"), patch("specgrad.scale.tile_job._record_of")
    for k in range(10):
        target = folder / f"{k}.zarr"
        for patched in off if k % 2 else ():
            patched.start().return_value = {}
        start = time.process_time()
        run(source, target, executor="loop")
        seconds[k % 2 == 0].append(time.process_time() - start)
        for patched in off if k % 2 else ():
            patched.stop()
    on, bare = min(seconds[True]), min(seconds[False])
    print(
        f"64 tiles, CPU seconds of the fastest of five: {on:.3f}, bare {bare:.3f}: {100 * (on / bare - 1):.1f} % more"
    )


def main() -> None:
    if sys.argv[1:2] == ["child"]:
        run(Path(sys.argv[2]), Path(sys.argv[3]), **json.loads(sys.argv[4]))
        return
    held = True
    for row in ROWS:
        if sys.argv[1:] and row.__name__ not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory(dir=os.environ.get("SCRATCH")) as name:
            folder = Path(name)
            code, said, right = row(make_scene(folder / "x.zarr"), folder / "y.zarr")
            ok = bool(code) and right
            held &= ok
            print(
                f"{'held' if ok else 'NOT HELD'}  {row.__name__} ({code}): {said.replace(name, '')[:230]}", flush=True
            )
    if not sys.argv[1:] or "cost" in sys.argv[1:]:
        with tempfile.TemporaryDirectory(dir=os.environ.get("SCRATCH")) as name:
            cost(Path(name))
    sys.exit(not held)


if __name__ == "__main__":
    main()
