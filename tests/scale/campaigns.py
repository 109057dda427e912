"""Specs, models and kills for the tests of campaigns, and for benchmarks/campaign.py."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from specgrad.scale import jobs
from specgrad.scale.campaign import read_spec

ASKING = """kind = "conformance"
folder = "run"
runtime = "onnxruntime"
operators = ["relu", "max_pool"]
seeds = {seeds}
questions = 8
"""
PROVING = """kind = "certify"
folder = "run"
models = ["*.onnx"]
properties = ["*.vnnlib"]
"""
PROPERTY = """(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= X_1 0.25)) (assert (<= X_1 1)) (assert (>= Y_1 {limit}))"""
RUNNER = """
import json, os, sys, time
sys.path[:0] = json.loads(sys.argv[1])
from specgrad.scale.campaign import conformance, read_spec, run
rows, fault = conformance.ConformanceKind.rows, sys.argv[3]
def planted(self, shard):
    if fault == "abort" and shard == 1:
        os.abort()
    for row in rows(self, shard):
        yield {**row, "ratio": time.time()} if fault == "time" else row
conformance.ConformanceKind.rows = planted  # workers import this file too
if __name__ == "__main__":
    run(read_spec(sys.argv[2]), executor=sys.argv[4], workers=2, retries=1)
"""


def save_net(path: Path, weights: Any, cells: Any = 2, rows: Any = 1) -> None:
    """relu(x @ weights)."""
    helper, info = onnx.helper, onnx.helper.make_tensor_value_info
    w = onnx.numpy_helper.from_array(np.array(weights, np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="h"), helper.make_node("Relu", ["h"], ["y"], name="y")]
    graph = helper.make_graph(nodes, "g", [info("x", 1, [rows, cells])], [info("y", 1, [rows, 2])], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)


def save_pool(path: Path, cells: Any) -> None:
    """A pool that ONNX Runtime pads for the window without its dilation."""
    helper, info = onnx.helper, onnx.helper.make_tensor_value_info
    same = {"kernel_shape": [2], "dilations": [2], "auto_pad": "SAME_LOWER"}
    pool = helper.make_node("MaxPool", ["x"], ["y"], name="pool", **same)
    graph = helper.make_graph([pool], "g", [info("x", 1, [1, 1, cells])], [info("y", 1, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


def written(folder: Path, text: str) -> Path:
    (folder / "spec.toml").write_text(text)
    return folder / "spec.toml"


def proving_spec(folder: Path) -> Path:
    """Two networks and two properties, of which one is broken by the first network."""
    save_net(folder / "a.onnx", [[1, 1], [1, -1]])
    save_net(folder / "b.onnx", [[1, 0.5], [0, 0]])
    (folder / "p.vnnlib").write_text(PROPERTY.format(limit=3))
    (folder / "q.vnnlib").write_text(PROPERTY.format(limit=0.625))
    return written(folder, PROVING)


def rows_of(spec: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for _, data in jobs.results(read_spec(spec).folder) for line in data.splitlines()]


def bare_loop(spec: Path) -> dict[int, bytes]:
    """No executor, no record."""
    kind = read_spec(spec).job()
    try:
        return {i: kind.work(i) for i in range(kind.count)}
    finally:
        kind.close()


def digest_of(results: dict[int, bytes]) -> str:
    return hashlib.sha256(b"".join(b"%d %d\n%s" % (i, len(d), d) for i, d in sorted(results.items()))).hexdigest()


# --- kills ------------------------------------------------------------------------------------------------------------


def started(spec: Path, executor: str = "processes", fault: str = "none") -> subprocess.Popen:
    script = spec.with_name("runner.py")
    script.write_text(RUNNER)
    words = [json.dumps(sys.path), str(spec), fault, executor]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, str(script), *words], start_new_session=True, **quiet)


def finished(folder: Path) -> int:
    return len(os.listdir(folder / "results")) if (folder / "results").is_dir() else 0


def workers_of(runner: int) -> list[Any]:
    """Processes that perform shards: of the pool, of Dask's nannies, of Ray."""
    psutil = pytest.importorskip("psutil")
    words = ("spawn_main", "ray::_call", "ray::IDLE")
    chosen = []
    for process in psutil.Process(runner).children(recursive=True):
        try:
            chosen += [process] if any(w in " ".join(process.cmdline()) for w in words) else []
        except psutil.Error:
            continue
    return chosen


STALLED = 90.0  # seconds without a result


def kill_often(spec: Path, executor: str, kills: int, rng: random.Random) -> int:
    """-9 of the runner with all that it started, of the runner alone, or of a worker; then to the end. How many.

    Ray may hang while it starts beside what is left of a cluster (`RegisterClient` waits for its own raylet, which
    never answers): such a runner is killed as well.
    """
    folder = spec.parent / "run"
    runner, dead = started(spec, executor), 0
    until, moved, before = finished(folder) + rng.randrange(1, 4), time.monotonic(), -1
    while runner.poll() is None:
        time.sleep(0.02)
        done = finished(folder)
        before, moved = done, moved if done == before else time.monotonic()
        if executor == "ray" and time.monotonic() - moved > STALLED:
            os.killpg(runner.pid, signal.SIGKILL)
            runner.wait()
            runner, dead, moved = started(spec, executor), dead + 1, time.monotonic()
        if dead >= kills or done < until:
            continue
        victim = ("group", "runner", "worker")[dead % 3] if executor == "processes" else ("group", "worker")[dead % 2]
        if victim == "worker":
            workers = workers_of(runner.pid)
            if not workers:
                continue
            with suppress(pytest.importorskip("psutil").NoSuchProcess):  # it ended meanwhile
                rng.choice(workers).kill()
        else:
            os.killpg(runner.pid, signal.SIGKILL) if victim == "group" else runner.kill()
            runner.wait()
            runner = started(spec, executor)
        dead, until = dead + 1, finished(folder) + rng.randrange(1, 4)
    assert runner.wait() == 0
    return dead
