"""A trained U-Net over a scene of 16,384 x 16,384 cells, from zarr to zarr, while its processes are killed (-9).

python benchmarks/scene.py                # prints and writes benchmarks/scene.txt; four runs of minutes of CPU each
python benchmarks/scene.py --size 2048    # in tiles of 512, writes nothing

The scene (bright disks on a noisy ground, uint8) and the network (width 4, depth 2) are made here. One run is left
alone; beside it, through processes, Dask and Ray, five kills at random moments each: of the parent, a worker, or all.
A parent that was killed is started again. Every file of classes must equal that of the run that was left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

import specgrad as sg
from specgrad.scale import Plan, tiles
from specgrad.scale.run_plan import damaged

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import unet
from common import each, init
from pace import slower

HERE = Path(__file__)
SHAPES = unet.shapes(channels=1, classes=2, width=4, depth=2)
TILE = 512 if "2048" in sys.argv else 1024  # children are told the size
KILLS = 5
EXECUTORS = ("processes", "dask", "ray")


# --- scene and network ------------------------------------------------------------------------------------------------


def part(i: int, j: int, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """A square of the scene, by its numbers alone: brightness, and 1 where there is a disk."""
    rng = np.random.default_rng((i, j))
    y, x = np.mgrid[0:cells, 0:cells].astype(np.float32)
    inside = np.zeros((cells, cells), bool)
    for a, b, r in zip(*rng.uniform(0, cells, (2, cells // 24)), rng.uniform(4, 20, cells // 24), strict=True):
        inside |= (y - a) ** 2 + (x - b) ** 2 < r * r
    ground = 90 + 25 * np.sin(x / 37) * np.cos(y / 23) + rng.normal(0, 22, inside.shape)
    return np.clip(ground + 50 * inside, 0, 255).astype(np.uint8), inside.astype(np.int64)


def make_scene(path: str, size: int) -> None:
    import zarr

    array = zarr.create_array(
        path, shape=(1, 1, size, size), chunks=(1, 1, 256, 256), shards=(1, 1, TILE, TILE), dtype="uint8"
    )
    for i in range(size // 512):
        rows = [part(i, j, 512)[0] for j in range(size // 512)]
        array[0, 0, 512 * i : 512 * i + 512] = np.concatenate(rows, axis=1)


def train(steps: int = 150) -> Any:
    """Adam on crops of 128 x 128 from squares that no scene has."""
    rare = torch.tensor([1.0, 4.0])  # disks are a small part of a scene
    graph = sg.trace(unet.net, SHAPES, (8, 1, 128, 128))
    net, rng = sg.compile(graph, "torch"), np.random.default_rng(0)
    params = sg.tree.transform(lambda _, a: torch.from_numpy(a.astype(np.float32)).requires_grad_(), init(SHAPES))
    optimizer = torch.optim.Adam([p for _, p in sg.tree.walk(params)], lr=0.01)
    squares = [part(10_000 + k, 0, 256) for k in range(12)]
    for _ in range(steps):
        chosen = [(squares[rng.integers(12)], *rng.integers(0, 129, 2)) for _ in range(8)]
        x = np.stack([image[a : a + 128, b : b + 128] for (image, _), a, b in chosen])[:, None].astype(np.float32)
        labels = np.stack([truth[a : a + 128, b : b + 128] for (_, truth), a, b in chosen])
        loss = torch.nn.functional.cross_entropy(net(params, torch.from_numpy(x / 128)), torch.from_numpy(labels), rare)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return each(lambda _, p: p.detach().numpy(), params)


def classes(params: Any, x: Any) -> Any:
    """1 where the second of two numbers is larger: an argmax, cheaper."""
    y = unet.net(params, sg.mul(x, 1 / 128))
    return sg.greater(y[:, 1], y[:, 0])


def plan_of(size: int) -> Plan:
    return tiles(sg.trace(classes, SHAPES, (1, 1, size, size)), TILE)


# --- runs -------------------------------------------------------------------------------------------------------------


def weights(folder: Path) -> Any:
    named = sg.load_params(folder / "w.safetensors")
    flat = dict(sg.tree.walk(named))
    return each(lambda path, _: flat[path], SHAPES)


def child(folder: Path, name: str, size: int, executor: str) -> None:
    """One run, or one more: in a process of its own, so that it can be killed."""
    where = str(folder / "x.zarr"), str(folder / f"{name}.zarr")
    state = plan_of(size).run(weights(folder), *where, executor=executor, workers=2, dtype="uint8", retries=5)
    own, workers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = own.ru_utime + own.ru_stime + workers.ru_utime + workers.ru_stime
    print(json.dumps({"run": state.run, "deaths": state.deaths, "cpu": cpu}))


def started(folder: Path, name: str, size: int, executor: str) -> subprocess.Popen[str]:
    words = [sys.executable, str(HERE), "--child", str(folder), name, str(size), executor]
    return subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def done(folder: Path, name: str) -> int:
    place = folder / f"{name}.zarr.job" / "results"
    return sum(n.isdigit() for n in os.listdir(place)) if place.is_dir() else 0


def family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def is_worker(process: psutil.Process, executor: str) -> bool:
    try:
        words = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return "ray::" in words if executor == "ray" else "spawn_main" in words


def kill(process: Any) -> None:
    with suppress(psutil.Error, ProcessLookupError):
        process.send_signal(signal.SIGKILL)


def disturbed(folder: Path, size: int, executor: str, seed: int) -> dict[str, Any]:
    """A run to its end, with five kills on the way."""
    rng, count = random.Random(seed), (size // TILE) ** 2
    moments = sorted(rng.sample(range(1, max(count - 2, KILLS + 2)), KILLS))
    kinds = rng.sample(["parent", "parent", "worker", "worker", "all"], KILLS)
    start, log, outlived = time.time(), [], 0
    runner = started(folder, executor, size, executor)
    for moment, how in zip(moments, kinds, strict=True):
        while done(folder, executor) < moment and runner.poll() is None:
            time.sleep(0.1)
        time.sleep(rng.uniform(0, 1))
        if runner.poll() is not None:
            break
        processes = family(runner.pid)
        workers = [p for p in processes if is_worker(p, executor)]
        for process in {"parent": [], "worker": workers[:1], "all": processes}[how]:
            kill(process)
        log.append(f"{how} at {done(folder, executor)}")
        if how == "worker":
            continue
        runner.kill()
        runner.communicate()
        _, alive = psutil.wait_procs(processes, timeout=20)
        outlived += len(alive)
        for process in alive:
            kill(process)
        runner = started(folder, executor, size, executor)
    output, _ = runner.communicate()
    last = json.loads(output.splitlines()[-1]) if output else {"deaths": -1}
    return {"kills": log, "outlived": outlived, "seconds": time.time() - start, "code": runner.returncode, **last}


def bytes_of(folder: Path, name: str) -> tuple[int, str]:
    """How many files of classes there are, and a digest of their names and bytes."""
    sha, files = hashlib.sha256(), sorted(p for p in (folder / f"{name}.zarr" / "c").rglob("*") if p.is_file())
    files = [p for p in files if not p.name.endswith(".__lock")]
    for path in files:
        sha.update(str(path.relative_to(folder / f"{name}.zarr")).encode() + hashlib.sha256(path.read_bytes()).digest())
    return len(files), sha.hexdigest()[:16]


def shares(folder: Path, size: int) -> str:
    """Of the CPU of one process: in the compiled graphs, and in everything else; on 16 tiles after the first."""
    from specgrad.scale.tile import Programs

    spent, right = {"graphs": 0.0}, Programs.program

    def timed(self: Any, *args: Any) -> Any:
        program = right(self, *args)

        def call(*given: Any) -> Any:
            start = time.process_time()
            result = program(*given)
            spent["graphs"] += time.process_time() - start
            return result

        return call

    Programs.program = timed  # type: ignore[method-assign]
    plan, params, begun = plan_of(size), weights(folder), 0.0

    class EnoughError(Exception):
        pass

    def progress(state: Any) -> None:
        nonlocal begun
        if state.run == 1:
            begun, spent["graphs"] = time.process_time(), 0.0
        elif state.run == min(17, state.count):
            spent["all"] = time.process_time() - begun
            raise EnoughError

    where = str(folder / "x.zarr"), str(folder / "shares.zarr")
    with suppress(EnoughError):
        plan.run(params, *where, executor="loop", dtype="uint8", progress=progress)
    Programs.program = right  # type: ignore[method-assign]
    rest = 100 * (1 - spent["graphs"] / spent["all"])
    return (
        f"planning, reading, writing, records and casts: {rest:.1f} % of CPU ({spent['all']:.1f} s on tiles of {TILE})"
    )


def lines(folder: Path, size: int) -> Iterator[str]:
    torch.set_num_threads(1)
    start = time.process_time()
    sg.save_params(train(), folder / "w.safetensors")
    trained = time.process_time() - start
    start = time.process_time()
    if not (folder / "x.zarr").exists():
        make_scene(str(folder / "x.zarr"), size)
    made = time.process_time() - start
    yield f"trained in {trained:.0f} s CPU, scene of {size}x{size} uint8 made or found in {made:.0f} s CPU"
    with ThreadPoolExecutor(4) as pool:  # all at once: each waits for its own processes
        alone = pool.submit(undisturbed, folder, size)
        runs = {e: pool.submit(disturbed, folder, size, e, seed) for seed, e in enumerate(EXECUTORS)}
        count, digest, text = alone.result()
        yield text
        for executor, run in runs.items():
            r, same = run.result(), bytes_of(folder, executor) == (count, digest)
            bad = len(damaged(folder / f"{executor}.zarr.job"))
            yield (
                f"{executor}: killed {', '.join(r['kills'])} of {(size // TILE) ** 2} tiles; {r['seconds']:.0f} s; "
                f"last runner ended with {r['code']}, saw {r['deaths']} shards whose worker died; "
                f"processes that outlived their parent: {r['outlived']}; "
                f"files equal byte for byte: {same}; records without their cells: {bad}"
            )
    yield shares(folder, size)


def undisturbed(folder: Path, size: int) -> tuple[int, str, str]:
    import zarr

    start = time.time()
    state = json.loads(started(folder, "quiet", size, "processes").communicate()[0].splitlines()[-1])
    count, digest = bytes_of(folder, "quiet")
    got = zarr.open_array(str(folder / "quiet.zarr"), mode="r")[0, :1024, :1024]
    truth = np.block([[part(i, j, 512)[1] for j in range(2)] for i in range(2)])
    right, disks = 100 * float(np.mean(got == truth)), 100 * float(truth.mean())
    if right <= 100 - disks:
        raise SystemExit(f"the network has learnt nothing: {right:.1f} % right, {disks:.1f} % are disks")
    text = f"undisturbed, 2 processes: {state['run']} tiles, {state['cpu']:.0f} s CPU, {time.time() - start:.0f} s; "
    text += f"{count} files, digest {digest}; {right:.2f} % of the first 1024x1024 right, where {disks:.1f} % are disks"
    return count, digest, text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=16_384, help="2048 is a quick look, and writes nothing")
    parser.add_argument(
        "--folder", type=Path, help="a folder that has or gets the scene and everything that is written"
    )
    parser.add_argument("--child", nargs=4)
    options = parser.parse_args()
    if options.child:
        folder, name, size, executor = options.child
        child(Path(folder), name, int(size), executor)
        return
    size = options.size
    text = [f"U-Net of width 4, depth 2, torch {torch.__version__}; pace {slower():.1f} (1: an idle machine)"]
    print(text[0], flush=True)
    with tempfile.TemporaryDirectory(prefix="specgrad-scene-") as folder:
        for line in lines(options.folder or Path(folder), size):
            print(line, flush=True)
            text.append(line)
    if size == 16_384:
        HERE.with_suffix(".txt").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
