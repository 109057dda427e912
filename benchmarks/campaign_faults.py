"""Faults of workers, engines and stores under a run of shards or tiles: what each costs, and that bytes stay equal.

python benchmarks/campaign_faults.py                # prints and writes benchmarks/campaign_faults.txt; half an hour
python benchmarks/campaign_faults.py death stop     # those parts alone, in place of theirs in the file
                                                    # parts: death, tiles, stop, late, raylet, s3, full, bad

Every run has a process of its own; faults come from here: SIGKILL and SIGSTOP of workers, of Ray's raylet and of moto's
server, and a disk (tmpfs, mounted: needs root) that is full. Shards that only sleep show what is lost by waiting; on
two cores twelve workers have nothing else to share. Grace is 10 s here instead of 60.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent
ROOT = HERE.parent
GRACE = 10.0
WORDS = {"processes": "spawn_main", "dask": "spawn_main", "ray": "ray::_call"}
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "scale")]


class Sleeps:
    """Shards that sleep; some raise an error, some kill their process, one computes for ever in native code."""

    def __init__(self, count: int, seconds: float, raises: int = 0, kills: int = 0, spins: int = -1) -> None:
        self.count, self.seconds, self.identity = count, seconds, {"power": 3}
        self.raises, self.kills, self.spins = raises, kills, spins

    def work(self, i: int) -> bytes:
        time.sleep(self.seconds)
        if self.kills and i % self.kills == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if i == self.spins:
            sum(range(10**12))
        if self.raises and i % self.raises == 0:
            raise ValueError(f"shard {i} has no cube")
        return b"%d\n" % i**3


def child(where: str, options: dict[str, Any], how: dict[str, Any]) -> None:
    """Run shards, or with a "target" tiles, and print the counts."""
    from specgrad.scale import jobs

    jobs.GRACE_SECONDS = GRACE
    if "target" in options:
        state = plan_of().run(
            options["source"], options["target"], dtype="float32", engine="numpy", folder=where, **how
        )
    else:
        state = jobs.run("campaign_faults:Sleeps", options, where, **how)
    print(json.dumps({"run": state.run, "crashed": state.crashed, "deaths": state.deaths}))


def plan_of() -> Any:
    """64 tiles of two convolutions, computed exactly in numpy."""
    import numpy as np

    import specgrad as sg
    from specgrad.scale import tiles

    kernel = np.ones((1, 1, 3, 3)) / 8
    graph = sg.trace(lambda x: sg.conv(kernel, None, sg.conv(kernel, None, x, padding=1), padding=1), (1, 1, 512, 512))
    return tiles(graph, 64)


class Run:
    """A run in a process of its own."""

    def __init__(self, where: Path | str, options: dict[str, Any], **how: Any) -> None:
        self.where, self.start = where, time.monotonic()
        paths = os.pathsep.join([str(HERE), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, str(HERE / "campaign_faults.py"), "--child"]
        command += [str(where), json.dumps(options), json.dumps(how)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        self.process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, **pipes)

    def wait_for(self, count: int) -> None:
        """Until so many results are there."""
        folder = Path(self.where) / "results"
        while self.process.poll() is None and not (folder.is_dir() and len(os.listdir(folder)) >= count):
            time.sleep(0.05)

    def workers(self, word: str) -> list[psutil.Process]:
        chosen = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                chosen += [process] if word in " ".join(process.cmdline()) else []
            except psutil.Error:
                continue
        return chosen

    def busy_worker(self, executor: str) -> psutil.Process:
        """One that performs shards: Dask's nannies and trackers of resources have no thread of them."""
        return max(self.workers(WORDS[executor]), key=lambda p: p.memory_info().rss)

    def end(self) -> tuple[float, int, dict[str, Any], str]:
        """Seconds in all, exit code, counts, and the last line of stderr."""
        out, err = self.process.communicate(timeout=900)
        counts = json.loads(out.splitlines()[-1]) if out.strip() else {}
        said = [line for line in err.strip().splitlines() if line.strip()] or [""]
        line = re.sub(r'"/[^"]*/', '"', said[-1])  # no folders of this machine
        return time.monotonic() - self.start, self.process.returncode, counts, line[:160]


def span(where: Path) -> float:
    """Seconds from the first result to the last."""
    times = [p.stat().st_mtime for p in (where / "results").iterdir() if p.name.isdecimal()]
    return max(times) - min(times)


def digest(where: Path) -> str:
    from specgrad.scale.jobs import digest as digest_of

    return digest_of(where)[:16]


def equal(mine: str, right: str) -> str:
    return "bytes equal" if mine == right else "BYTES DIFFER"


def death(folder: Path) -> Iterator[str]:
    """One of twelve workers killed in the middle of 240 shards of 1 s, beside a run that is left alone."""
    options = {"count": 240, "seconds": 1.0}
    for executor in ("processes", "dask", "ray"):
        spans, digests, ends = [], [], []
        for kills in (False, True):
            where = folder / f"death-{executor}-{kills}"
            run = Run(where, options, executor=executor, workers=12)
            run.wait_for(120)
            if kills:
                run.busy_worker(executor).kill()
            _, code, counts, said = run.end()
            spans.append(span(where))
            digests.append(digest(where))
            ends.append(f"exit {code}, {counts or said}")
        text = (
            f"{spans[0]:.1f} s alone, {spans[1]:.1f} s with one of 12 workers killed: {spans[1] / spans[0]:.2f} times"
        )
        yield f"  {executor:9}: {text}; {' and '.join(ends)}; {equal(*digests)}"


def tile_run(folder: Path, name: str, **how: Any) -> Run:
    options = {"source": str(folder / "scene.zarr"), "target": str(folder / f"{name}.zarr")}
    return Run(folder / f"{name}.job", options, **how)


def make_scene(folder: Path) -> None:
    import numpy as np
    import zarr

    if not (folder / "scene.zarr").exists():
        scene = zarr.create_array(folder / "scene.zarr", shape=(1, 1, 512, 512), chunks=(1, 1, 64, 64), dtype="float64")
        scene[:] = np.random.default_rng(0).integers(0, 255, (1, 1, 512, 512))


def cells(path: Path) -> str:
    import hashlib

    import zarr

    return hashlib.sha256(zarr.open_array(path)[:].tobytes()).hexdigest()[:16]


def right_cells(folder: Path) -> str:
    """Of a loop that is left alone."""
    make_scene(folder)
    if not (folder / "loop.zarr").exists():
        _, code, _, said = tile_run(folder, "loop", executor="loop").end()
        assert code == 0, said
    return cells(folder / "loop.zarr")


def tiles(folder: Path) -> Iterator[str]:
    """Real tiles from zarr to zarr, a worker of four killed."""
    right, spans = right_cells(folder), []
    for kills in (False, True):
        run = tile_run(folder, f"killed-{kills}", executor="processes", workers=4)
        run.wait_for(20)
        if kills:
            run.busy_worker("processes").kill()
        seconds, code, counts, said = run.end()
        spans.append(seconds)
    text = f"{spans[0]:.1f} s alone, {spans[1]:.1f} s with one of 4 workers killed: {spans[1] / spans[0]:.2f} times"
    mine = cells(folder / "killed-True.zarr")
    yield f"  processes: 64 tiles, {text}; exit {code}, {counts or said}; {equal(mine, right)}"


def stop(folder: Path) -> Iterator[str]:
    """SIGSTOP of one of four workers; a shard may take 10 s, and 10 s of grace."""
    for executor in ("processes", "dask", "ray"):
        where = folder / f"stop-{executor}"
        run = Run(where, {"count": 60, "seconds": 0.5}, executor=executor, workers=4, shard_seconds=10)
        run.wait_for(20)
        run.busy_worker(executor).suspend()
        stopped = time.monotonic()
        _, code, counts, said = run.end()
        text = f"one of 4 workers stopped: ends {time.monotonic() - stopped:.1f} s later (limit and grace: 20 s)"
        yield f"  {executor:9}: {text}; exit {code}, {counts or said}"


def late(folder: Path) -> Iterator[str]:
    """A shard that never ends and holds its interpreter; shards may take 5 s, and one retry."""
    from specgrad.scale.jobs import crashes

    for executor in ("processes", "dask", "ray"):
        where = folder / f"late-{executor}"
        how = {"executor": executor, "workers": 2, "shard_seconds": 5, "retries": 1}
        seconds, code, counts, said = Run(where, {"count": 24, "seconds": 0.2, "spins": 7}, **how).end()
        recorded = "; ".join(f"shard {c['shard']}: {c['how']}" for c in crashes(where))
        yield f"  {executor:9}: exit {code} after {seconds:.0f} s, {counts or said}; {recorded}"


def raylet(folder: Path) -> Iterator[str]:
    """Ray's only machine lost."""
    where = folder / "raylet"
    run = Run(where, {"count": 60, "seconds": 0.5}, executor="ray", workers=4)
    run.wait_for(20)
    [process.kill() for process in run.workers("raylet/raylet") if "raylet/raylet" in process.cmdline()[0]]
    lost = time.monotonic()
    _, code, counts, said = run.end()
    text = f"raylet killed: started again, all done {time.monotonic() - lost:.1f} s later"
    yield f"  ray      : {text}; exit {code}, {counts}; said: {said}"


def s3(folder: Path) -> Iterator[str]:
    """moto's server silent for a while, and gone."""
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", "5977"], stderr=subprocess.DEVNULL)
    settings = {"AWS_ENDPOINT_URL": "http://127.0.0.1:5977", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    os.environ.update(settings | {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests"})
    try:
        import obstore
        from obstore.store import from_url

        make_bucket()
        store = from_url("s3://shards")

        def results(name: str) -> int:
            return sum(len(page) for page in obstore.list(store, prefix=f"{name}/results"))

        for name, fault in (("silent", signal.SIGSTOP), ("gone", signal.SIGKILL)):
            options = {"count": 120, "seconds": 0.5}
            run = Run(
                f"s3://shards/{name}",
                options,
                executor="processes",
                workers=4,
                store_seconds=30 + 60 * (name == "silent"),
            )
            while results(name) < 20:
                time.sleep(0.5)
            server.send_signal(fault)
            began = time.monotonic()
            if name == "silent":
                time.sleep(20)
                server.send_signal(signal.SIGCONT)
            _, code, counts, said = run.end()
            what = "silent for 20 s" if name == "silent" else "killed, store_seconds=30"
            yield f"  {what}: ends {time.monotonic() - began:.1f} s later; exit {code}, {counts}; said: {said}"
    finally:
        server.kill()


def make_bucket() -> None:
    import urllib.request

    for _ in range(600):
        try:
            urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:5977/shards", method="PUT")).close()
            return
        except OSError:
            time.sleep(0.2)


def full(folder: Path) -> Iterator[str]:
    """Tiles into a disk of 400 kB; after making room a plain rerun."""
    right = right_cells(folder)
    small = folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(small)], check=True)
    try:
        options = {"source": str(folder / "scene.zarr"), "target": str(small / "y.zarr")}
        first = Run(folder / "full.job", options, executor="processes", workers=2, store_seconds=8).end()
        there = [len(os.listdir(p)) if (p := folder / "full.job" / n).is_dir() else 0 for n in ("results", "crashed")]
        text = f"exit {first[1]} after {first[0]:.1f} s, {there[0]} of 64 tiles recorded, {there[1]} crashed"
        yield f"  full     : {text}; said: {first[3]}"
        subprocess.run(["mount", "-o", "remount,size=100m", str(small)], check=True)
        again = Run(folder / "full.job", options, executor="processes", workers=2).end()
        same = equal(cells(small / "y.zarr"), right)
        yield f"  with room: a plain rerun: exit {again[1]}, {again[2] or again[3]}; {same}"
    finally:
        subprocess.run(["umount", str(small)])


def bad(folder: Path) -> Iterator[str]:
    """2 % of 20,000 shards raise, twenty kill their process; one invocation."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        where = Path(memory) / "bad"
        options = {"count": 20_000, "seconds": 0.0, "raises": 50, "kills": 1000}
        seconds, code, counts, said = Run(where, options, executor="processes", workers=2, retries=1).end()
        there = [len(os.listdir(where / n)) for n in ("results", "crashed")]
    text = f"records: {there[0]} results, {there[1]} crashed; {seconds:.0f} s"
    yield f"  processes: exit {code}, {counts or said}; {text}"


PARTS: dict[str, Callable[[Path], Iterator[str]]] = {
    "death": death,
    "tiles": tiles,
    "stop": stop,
    "late": late,
    "raylet": raylet,
    "s3": s3,
    "full": full,
    "bad": bad,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", nargs=3)
    parser.add_argument("parts", nargs="*")
    given = parser.parse_args()
    if given.child:
        where, options, how = given.child
        child(where, json.loads(options), json.loads(how))
        return
    file = HERE / "campaign_faults.txt"
    known: dict[str, list[str]] = {}
    for line in file.read_text().splitlines() if file.is_file() else ():
        known.setdefault(line.partition(":")[0], []) if line[:1] != " " else None
        known[list(known)[-1]].append(line)
    with tempfile.TemporaryDirectory() as folder:
        for name in given.parts or PARTS:
            part = PARTS[name]
            known[name] = [
                f"{name}: {(part.__doc__ or '').strip()} Load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores."
            ]
            print(known[name][0], flush=True)
            for line in part(Path(folder)):
                known[name].append(line)
                print(line, flush=True)
            file.write_text("\n".join(line for n in PARTS for line in known.get(n, ())) + "\n")


if __name__ == "__main__":
    main()
