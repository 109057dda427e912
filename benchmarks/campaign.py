"""What campaigns cost beside their work: throughput against a bare loop, CPU per shard, ms per question; and kills.

python benchmarks/campaign.py                # prints and writes benchmarks/campaign.txt; ten minutes
python benchmarks/campaign.py throughput     # that part of it alone: throughput, empty, questions, kills
python benchmarks/campaign.py --quick        # fewer shards, writes nothing

Throughput: every shard notes when it began and when it ended, by the clock of the machine. What a worker spends between
its shards is what a bare loop would not; both are measured in the same seconds, so that a machine which is slow now and
fast then makes no difference. CPU per shard is that of the whole family of processes (psutil) on empty shards, between
the first tenth and the last one, so that starting workers is not counted. Every run has a process of its own. Records
on a disk are synced before their shard counts, which takes the disk's time; "in memory" they lie in /dev/shm.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "scale"))

import psutil

from pace import slower

HERE = Path(__file__).parent
OPERATORS = ["conv", "conv_transpose", "max_pool", "avg_pool", "linear", "relu", "gelu", "softmax"]


class Spin:
    """Shards of so many turns of a loop, and nothing else; they say who began and ended when."""

    def __init__(self, count: int, turns: int) -> None:
        self.count, self.turns, self.identity = count, turns, {"turns": turns}

    def work(self, i: int) -> bytes:
        total, start = 0, time.monotonic()
        for k in range(self.turns):
            total += k
        return json.dumps({"shard": i, "who": os.getpid(), "start": start, "end": time.monotonic()}).encode() + b"\n"


def busy_share(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Of the time between a worker's first shard and its last, what it worked; and the median shard in seconds."""
    busy = span = 0.0
    for who in {row["who"] for row in rows}:
        own = [row for row in rows if row["who"] == who]
        busy += sum(row["end"] - row["start"] for row in own)
        span += max(row["end"] for row in own) - min(row["start"] for row in own)
    return busy / span, statistics.median(row["end"] - row["start"] for row in rows)


def family_seconds() -> float:
    """CPU of this process and all that it started and that still runs."""
    me, total = psutil.Process(), 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def measured(executor: str, count: int, turns: int, workers: int) -> dict[str, float]:
    """CPU per shard, and the busy share of workers; "bare" is a loop with no record at all."""
    marks: list[tuple[int, float]] = []
    first = max(1, count // 10)

    def mark(done: int) -> None:
        if not turns and done in (first, count):  # looking at all processes takes time, which shards must not pay
            marks.append((done, family_seconds()))

    if executor == "bare":
        job = Spin(count, turns)
        lines = [job.work(i) for i in range(count)]
    else:
        from specgrad.scale.jobs import results, run

        place = "/dev/shm" if executor.endswith("in memory") else None
        executor = executor.removesuffix(" in memory")
        with tempfile.TemporaryDirectory(dir=place) as folder:
            options = {"count": count, "turns": turns}
            run("campaign:Spin", options, folder, executor=executor, workers=workers, progress=lambda p: mark(p.done))
            lines = [data for _, data in results(folder)]
    share, shard = busy_share([json.loads(line) for line in lines])
    (a, cpu), (b, end) = marks if marks else [(0, 0.0), (1, 0.0)]
    return {"cpu": 1000 * (end - cpu) / (b - a), "share": share, "shard": 1000 * shard, "start": cpu}


def apart(*words: object) -> dict[str, float]:
    """The same in a process of its own, one thread per process."""
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    command = [sys.executable, str(HERE / "campaign.py"), "--one", *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def synced() -> float:
    """Seconds by the clock for one record, between shards of work."""
    from specgrad.scale.record_store import Records

    times = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(20):
            Spin(1, 300_000).work(0)
            start = time.monotonic()
            Records(folder).create(f"results/{i}", b"x" * 100)
            times.append(time.monotonic() - start)
    return statistics.median(times)


def throughput(turns: int, count: int, rounds: int) -> list[str]:
    """One worker and two against the bare loop, in turns."""
    ways = [("bare", 1), ("loop", 1), ("processes", 1), ("processes", 2)]
    ways += [("loop in memory", 1), ("processes in memory", 1), ("processes in memory", 2)]
    runs: dict[tuple[str, int], list[dict[str, float]]] = {way: [] for way in ways}
    paces = []
    for _ in range(rounds):
        for executor, workers in ways:
            paces.append(slower())
            runs[executor, workers].append(apart(executor, count, turns, workers))
    shard = statistics.median(r["shard"] for each in runs.values() for r in each)
    pace = f"pace {min(paces):.1f} to {max(paces):.1f} (1: an idle machine)"
    record = f"a synced record {1000 * synced():.1f} ms"
    lines = [f"throughput: {count} shards of {shard:.0f} ms by the clock a run, {record}; {pace}"]
    for (executor, workers), each in runs.items():
        shares = sorted(100 * r["share"] for r in each)
        ends = f"{shares[0]:.2f} to {shares[-1]:.2f} in {_runs(shares)}"
        lines.append(f"  {executor:19} x{workers}: {statistics.median(shares):.2f} % of the bare loop ({ends})")
    return lines


def _runs(shares: list[float]) -> str:
    return "one run" if len(shares) == 1 else f"{len(shares)} runs"


def per_shard(count: int) -> list[str]:
    """Empty shards: what is left is ours."""
    lines = [f"empty: shards without work, {count} a run, two workers; pace {slower():.1f}"]
    for executor in ("loop", "processes", "ray", "dask"):
        pace, r = slower(), apart(executor, count, 0, 2)
        pace = (pace + slower()) / 2
        text = f"{r['cpu']:.2f} ms CPU per shard, {r['cpu'] / pace:.2f} at pace 1"
        lines.append(f"  {executor:9}: {text}; {r['start']:.1f} s CPU before the first tenth was done; pace {pace:.1f}")
    return lines


def questions(runtime: str, each: int) -> dict[str, float]:
    """CPU per question, runtime included, its start not."""
    from specgrad.scale.campaign.kinds import job

    kind: Any = job("conformance", {"runtime": runtime, "operators": OPERATORS, "questions": each}, ".")
    kind.start()
    cpu, rows = family_seconds(), 0
    for i in range(kind.count):
        rows += kind.work(i).count(b"\n")
    spent = family_seconds() - cpu
    kind.close()
    return {"ms": 1000 * spent / rows, "rows": rows}


def per_question(each: int) -> list[str]:
    lines = [f"questions: conformance ({', '.join(OPERATORS)}), CPU with the runtime's process"]
    for runtime in ("onnxruntime", "torch", "openvino", "jax"):
        pace, r = slower(), apart("questions", runtime, each)
        pace = (pace + slower()) / 2
        text = (
            f"{r['ms']:.1f} ms per question, {r['ms'] / pace:.1f} at pace 1; {r['rows']:.0f} questions, pace {pace:.1f}"
        )
        lines.append(f"  {runtime:12}: {text}")
    return lines


def kills(executor: str, count: int, seeds: int) -> list[str]:
    """The digest after random kills beside that of the bare loop."""
    from campaigns import ASKING, bare_loop, digest_of, kill_often, written
    from specgrad.scale import jobs

    with tempfile.TemporaryDirectory() as folder:
        spec = written(Path(folder), ASKING.format(seeds=seeds))
        start = time.monotonic()
        dead = kill_often(spec, executor, count, random.Random(count))
        seconds, mine = time.monotonic() - start, jobs.digest(Path(folder) / "run")
        right = digest_of(bare_loop(spec))
    words = "the same as" if mine == right else "NOT THAT OF"
    text = f"{dead} kills -9, {2 * seeds} shards, digest {mine[:16]} {words} the bare loop's {right[:16]}"
    return [f"  {executor:9}: {text}; {seconds:.0f} s"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs="*")
    parser.add_argument("parts", nargs="*")
    given = parser.parse_args()
    if given.one:
        name, *rest = given.one
        print(json.dumps(questions(rest[0], int(rest[1])) if name == "questions" else measured(name, *map(int, rest))))
        return
    small = given.quick
    start = time.process_time()
    Spin(1, 10**6).work(0)
    turns = int(10**6 * 0.1 / (time.process_time() - start))
    parts = {
        "throughput": lambda: throughput(turns, 30, 1 if small else 2),
        "empty": lambda: per_shard(100 if small else 400),
        "questions": lambda: per_question(8 if small else 16),
        "kills": lambda: all_kills(small),
    }
    for name in given.parts or parts:
        lines = parts[name]()
        print("\n".join(lines), flush=True)
        if not small:
            write(name, lines)


def all_kills(small: bool) -> list[str]:
    lines = ["kills: runner, workers or both at random"]
    for executor, count, seeds in (("processes", 5, 30), ("ray", 2, 20), ("dask", 2, 20))[: 1 if small else 3]:
        lines += kills(executor, count, seeds)
    return lines


def write(name: str, lines: list[str]) -> None:
    """In place of that part in campaign.txt; every part begins with its name."""
    file = HERE / "campaign.txt"
    known: dict[str, list[str]] = {}
    for line in file.read_text().splitlines() if file.is_file() else ():
        known.setdefault(line.partition(":")[0], []) if line[:1] != " " else None
        known[list(known)[-1]].append(line)
    file.write_text("\n".join(line for part in (known | {name: lines}).values() for line in part) + "\n")


if __name__ == "__main__":
    main()
