"""Campaigns: the bytes of a bare loop after any kill; what is refused; what is collected; status and estimates."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.check import conformance
from specgrad.errors import SpecgradError
from specgrad.scale import jobs
from specgrad.scale.campaign import KINDS, collect, estimate, read_spec, run, standing
from specgrad.scale.campaign.kind import digest_of_model, line_of
from specgrad.scale.campaign.status import rate_of

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

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
rows, fault = conformance.Conformance.rows, sys.argv[3]
def planted(self, shard):
    if fault == "abort" and shard == 1:
        os.abort()
    for row in rows(self, shard):
        yield {**row, "ratio": time.time()} if fault == "time" else row
conformance.Conformance.rows = planted  # workers import this file too
if __name__ == "__main__":
    run(read_spec(sys.argv[2]), executor=sys.argv[4], workers=2, retries=1)
"""


def save_net(path: Path, weights: Any, cells: Any = 2) -> None:
    """relu(x @ weights)."""
    helper, info = onnx.helper, onnx.helper.make_tensor_value_info
    w = onnx.numpy_helper.from_array(np.array(weights, np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="h"), helper.make_node("Relu", ["h"], ["y"], name="y")]
    graph = helper.make_graph(nodes, "g", [info("x", 1, [1, cells])], [info("y", 1, [1, 2])], [w])
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


@pytest.fixture
def proving(tmp_path: Path) -> Path:
    """Two networks and two properties, of which one is broken by the first network."""
    save_net(tmp_path / "a.onnx", [[1, 1], [1, -1]])
    save_net(tmp_path / "b.onnx", [[1, 0.5], [0, 0]])
    (tmp_path / "p.vnnlib").write_text(PROPERTY.format(limit=3))
    (tmp_path / "q.vnnlib").write_text(PROPERTY.format(limit=0.625))
    return written(tmp_path, PROVING)


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
            rng.choice(workers).kill()
        else:
            os.killpg(runner.pid, signal.SIGKILL) if victim == "group" else runner.kill()
            runner.wait()
            runner = started(spec, executor)
        dead, until = dead + 1, finished(folder) + rng.randrange(1, 4)
    assert runner.wait() == 0
    return dead


@pytest.mark.parametrize(
    ("executor", "kills", "seeds"),
    [
        ("processes", 2, 8),
        pytest.param("processes", 5, 30, marks=pytest.mark.slow),
        pytest.param("dask", 2, 20, marks=pytest.mark.slow),
        pytest.param("ray", 2, 20, marks=pytest.mark.slow),
    ],
)
def test_killed_at_random_gives_the_bytes_of_the_bare_loop(
    executor: str, kills: int, seeds: int, tmp_path: Path
) -> None:
    if executor != "processes":
        pytest.importorskip({"dask": "distributed", "ray": "ray"}[executor])
    spec = written(tmp_path, ASKING.format(seeds=seeds))
    assert kill_often(spec, executor, kills, random.Random(kills)) >= kills
    assert standing(tmp_path / "run").verdict == "ok"
    expected = bare_loop(spec)
    assert dict(jobs.results(tmp_path / "run")) == expected
    assert jobs.digest(tmp_path / "run") == digest_of(expected)


def test_a_poison_shard_is_recorded_and_the_rest_is_done(tmp_path: Path) -> None:
    spec = written(tmp_path, ASKING.format(seeds=2))
    assert started(spec, fault="abort").wait() == 0
    there = standing(tmp_path / "run")
    assert (sorted(there.done), sorted(there.crashed), there.verdict) == ([0, 2, 3], [1], "crashed")
    result = collect(read_spec(spec))
    assert result.crashes == ({"shard": 1, "how": "its process died: SIGABRT", "attempts": 2},)
    assert dict(jobs.results(tmp_path / "run")) == {i: d for i, d in bare_loop(spec).items() if i != 1}


def test_a_time_in_a_row_would_be_seen(tmp_path: Path) -> None:
    """A planted mistake: bytes that two runs do not share."""
    spec = written(tmp_path, ASKING.format(seeds=1))
    assert started(spec, executor="loop", fault="time").wait() == 0
    assert jobs.digest(tmp_path / "run") != digest_of(bare_loop(spec))


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind = 3", "needs the key kind, a text"),
        ('kind = "asks"\nfolder = "x"', "there is no kind 'asks'; kinds are conformance, audit, certify, tiles"),
        ('kind = "audit"', "needs the key folder, a text: where the records lie"),
        ("kind = ", "is no TOML file"),
        (ASKING.format(seeds=1) + "seed = 3", "kind conformance has no key 'seed' (seeds?); it has runtime, operators"),
        (ASKING.format(seeds=0), "seeds must be a whole number from 1; got 0"),
        (ASKING.format(seeds="true"), "seeds must be a whole number from 1; got True"),
        (ASKING.format(seeds=1) + "seconds = inf", "seconds must be a number of seconds above 0; got inf"),
        (ASKING.format(seeds=1) + "gradients = 1", "gradients must be true or false; got 1"),
        (ASKING.format(seeds=1).replace("relu", "max_pool"), "operators must be a list of texts, each once"),
        (ASKING.format(seeds=1).replace("relu", "rellu"), "unknown operator 'rellu'"),
        (ASKING.format(seeds=1).replace("onnxruntime", "onyx"), "unknown runtime 'onyx'"),
        ('kind = "conformance"\nfolder = "x"', "kind conformance needs the key runtime: who is asked"),
        (PROVING.replace("*.onnx", "/a.onnx"), "/a.onnx is absolute; name it from the spec's folder"),
        (PROVING.replace("*.onnx", "nets/*"), "nets/* names no file"),
        (PROVING + 'eps = "1"', "eps goes with samples; a property has its own bounds"),
        (PROVING + 'instances = "i.csv"', "give one of properties, samples, instances; got properties and instances"),
        (PROVING.replace("properties", "samples").replace('["*.vnnlib"]', '"x.npz"'), "samples need eps"),
        (PROVING.replace('properties = ["*.vnnlib"]', 'samples = "x.npz"\neps = "few"'), "eps must be a number"),
        (PROVING.replace('properties = ["*.vnnlib"]', 'samples = "x.npz"\neps = "1"'), "no file x.npz"),
        (PROVING.replace('models = ["*.onnx"]', ""), "models go with properties or samples"),
        ('kind = "audit"\nfolder = "r"\nmodels = ["*.onnx"]\nruntimes = ["jax"]', "runtime jax reads no ONNX file"),
        ('kind = "audit"\nfolder = "r"\nmodels = ["*.onnx"]\nruntimes = ["onnxruntime"]\nshapes = { x = [0] }',
         "shapes must be a table of sizes by input"),
    ],
)  # fmt: skip
def test_specs_are_refused_by_name(text: str, words: str, tmp_path: Path) -> None:
    save_net(tmp_path / "a.onnx", [[1, 1], [1, -1]])
    (tmp_path / "p.vnnlib").write_text(PROPERTY.format(limit=3))
    with pytest.raises(SpecgradError) as caught:
        read_spec(written(tmp_path, text)).job()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_spec_in_the_same_folder(proving: Path) -> None:
    run(read_spec(proving), executor="loop")
    before = jobs.digest(proving.parent / "run")
    for text, words in (
        (PROVING + "seconds = 61", "identity.options.seconds is 60 there, 61 here"),
        (PROVING.replace('["*.vnnlib"]', '["p.vnnlib"]'), "count is 4 there, 2 here"),
    ):
        for use in (lambda spec: run(spec, executor="loop"), collect):
            with pytest.raises(jobs.JobError) as caught:
                use(read_spec(written(proving.parent, text)))
            assert words in str(caught.value)
    assert jobs.digest(proving.parent / "run") == before


@pytest.mark.parametrize("changed", ["a.onnx", "p.vnnlib"])
def test_a_file_that_changed_is_another_campaign(changed: str, proving: Path) -> None:
    run(read_spec(proving), executor="loop")
    path = proving.parent / changed
    if changed == "a.onnx":
        save_net(path, [[1, 1], [1, -2]])
    else:
        path.write_text(PROPERTY.format(limit=4))
    with pytest.raises(jobs.JobError, match=rf"holds another job: identity.\w+.{changed} is"):
        run(read_spec(proving), executor="loop")


def test_weights_beside_a_model_are_part_of_it(tmp_path: Path) -> None:
    save_net(tmp_path / "a.onnx", np.ones((2, 2)))
    model = onnx.load(tmp_path / "a.onnx")
    onnx.save(model, tmp_path / "b.onnx", save_as_external_data=True, location="b.data", size_threshold=0)
    before = digest_of_model(tmp_path / "b.onnx")
    data = bytearray((tmp_path / "b.data").read_bytes())
    data[-1] ^= 1
    (tmp_path / "b.data").write_bytes(data)
    assert digest_of_model(tmp_path / "b.onnx") != before


def test_another_version_is_another_campaign(proving: Path, monkeypatch) -> None:
    run(read_spec(proving), executor="loop")
    monkeypatch.setattr(np, "__version__", "3.0")
    with pytest.raises(jobs.JobError, match=r"identity.versions.numpy is \"2[\d.]+\" there, \"3.0\" here"):
        run(read_spec(proving), executor="loop")


def test_the_folder_may_lie_elsewhere(proving: Path, tmp_path_factory) -> None:
    """Whoever mounts it at another place goes on, and has the same bytes."""
    run(read_spec(proving), executor="loop")
    other = tmp_path_factory.mktemp("mounted") / "there"
    proving.parent.rename(other)
    assert run(read_spec(other / "spec.toml"), executor="loop").before == 4
    assert dict(jobs.results(other / "run")) == bare_loop(other / "spec.toml")


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_properties_times_models(proving: Path) -> None:
    """By hand: on the box, relu(x0 - x1) <= 3/4, and relu(x0 / 2) <= 1/2."""
    run(read_spec(proving), executor="loop")
    verdicts = {(r["model"], r["property"]): r["verdict"] for r in rows_of(proving)}
    right = {("a.onnx", "p.vnnlib"): "holds", ("a.onnx", "q.vnnlib"): "counterexample"}
    assert verdicts == {**right, ("b.onnx", "p.vnnlib"): "holds", ("b.onnx", "q.vnnlib"): "holds"}
    result = collect(read_spec(proving))
    assert (result.verdict, [f.name for f in result.findings]) == ("findings", ["a-q.py"])
    result.write(proving.parent / "cases")
    shown = subprocess.run([sys.executable, "cases/a-q.py"], cwd=proving.parent, capture_output=True, text=True)
    y = json.loads(shown.stdout.splitlines()[1].removeprefix("gives "))
    assert y[1] >= 0.625, shown


def test_samples_and_lists_of_instances(proving: Path) -> None:
    """Around (1, 1/2) outputs are 3/2 and 1/2: they meet at x1 = 0, so 1/4 is safe and 3/4 is not."""
    folder = proving.parent
    np.savez(folder / "data.npz", x=np.array([[1, 0.5], [1, 0.6]], np.float32), label=np.array([0, 0]))
    around = 'kind = "certify"\nfolder = "{}"\nmodels = ["a.onnx"]\nsamples = "data.npz"\neps = "{}"\neach = 2\n'
    verdicts = {}
    for name, eps in (("near", "1/4"), ("far", "3/4")):
        spec = written(folder, around.format(name, eps))
        run(read_spec(spec), executor="loop")
        verdicts[name] = [r["verdict"] for r in rows_of(spec)]
    assert verdicts == {"near": ["holds"] * 2, "far": ["counterexample"] * 2}
    (found,) = collect(read_spec(spec)).findings  # two samples, one pair of classes: the nearer one is kept
    nearest = min(rows_of(spec), key=lambda r: r["distance"])
    assert (found.detail, found.times, found.row["property"]) == ("0 becomes 1", 2, nearest["property"])
    (folder / "i.csv").write_text("a.onnx,p.vnnlib,20\n./b.onnx, q.vnnlib\n")
    spec = written(folder, 'kind = "certify"\nfolder = "list"\ninstances = "i.csv"\n')
    run(read_spec(spec), executor="loop")
    assert [(r["model"], r["verdict"]) for r in rows_of(spec)] == [("a.onnx", "holds"), ("b.onnx", "holds")]
    for line in ("a.onnx", "a.onnx,p.vnnlib,soon", "a.onnx,p.vnnlib,-1", "a.onnx,p.vnnlib,1,2"):
        (folder / "i.csv").write_text(f"a.onnx,p.vnnlib\n{line}\n")
        with pytest.raises(SpecgradError, match=r"i.csv, line 2: must be model,property or model,property,seconds"):
            read_spec(spec).job()


def test_models_times_runtimes(tmp_path: Path) -> None:
    """A wrong layer is a finding; a file of no format, and sizes that nobody gives, are open rows."""
    save_net(tmp_path / "net.onnx", [[1, 1], [1, -1]], "cells")
    save_pool(tmp_path / "pool.onnx", 5)
    save_pool(tmp_path / "long.onnx", 9)
    (tmp_path / "bad.onnx").write_bytes(b"\xff\x00")
    names = '["net.onnx", "pool.onnx", "long.onnx", "bad.onnx"]'
    text = f'kind = "audit"\nfolder = "run"\nmodels = {names}\nruntimes = ["onnxruntime", "onnx-reference"]\n'
    spec = written(tmp_path, text)
    run(read_spec(spec), executor="loop")
    result = collect(read_spec(spec))
    assert result.verdict == "findings"
    verdicts = {(r["model"], r["runtime"]): (r["verdict"], r["reason"]) for r in rows_of(spec)}
    assert verdicts["pool.onnx", "onnxruntime"][0] == verdicts["long.onnx", "onnxruntime"][0] == "differs"
    assert verdicts["pool.onnx", "onnx-reference"][0] == "exact"
    assert verdicts["net.onnx", "onnxruntime"] == (
        "cannot tell",
        "campaign: net.onnx leaves sizes of input x open; give shapes = { x = [...] }",
    )
    assert verdicts["bad.onnx", "onnxruntime"][0] == "cannot tell"
    assert [(f.times, f.row["layer"]) for f in result.findings] == [(2, "pool")]  # one operator, one finding
    closed = written(tmp_path, text.replace('"run"', '"closed"').replace(names, '["net.onnx"]') + "shapes.x = [1, 2]")
    run(read_spec(closed), executor="loop")
    assert {r["verdict"] for r in rows_of(closed)} <= {"exact", "rounding"}
    assert collect(read_spec(closed)).verdict == "ok"


def test_findings_are_those_of_the_command(tmp_path: Path) -> None:
    """`specgrad conformance` with the same operators, seed and count, counted by itself."""
    spec = written(tmp_path, ASKING.format(seeds=1).replace("questions = 8", "questions = 16"))
    run(read_spec(spec), executor="loop")
    result = collect(read_spec(spec))
    single = conformance("onnxruntime", operators=["relu", "max_pool"], count=16)
    assert result.counts == {o: Counter({k: n for k, n in c.items() if n}) for o, c in single.counts.items()}
    assert {f.name for f in result.findings} == set(single.scripts())
    assert sum(f.times for f in result.findings) == single.counts["max_pool"]["differs"]
    result.write(tmp_path / "cases")
    for name in sorted(single.scripts())[:2]:
        shown = subprocess.run([sys.executable, str(tmp_path / "cases" / name)], capture_output=True, text=True).stdout
        must_be, got = (line.split(maxsplit=2)[-1] for line in shown.splitlines())
        assert must_be.removeprefix("be ") != got


def test_a_finding_that_passes_when_asked_again_is_said(tmp_path: Path) -> None:
    """As of a runtime that errs now and then: the row stays, there is no script."""
    spec = written(tmp_path, ASKING.format(seeds=1).replace('"relu", "max_pool"', '"relu"'))
    run(read_spec(spec), executor="loop")
    path = tmp_path / "run" / "results" / "0"
    row = json.loads(path.read_bytes().splitlines()[3])
    row |= {"verdict": "differs", "sort": ["differs", "value", "value", "False", "False"], "complexity": [1, 0, 0, 0]}
    path.write_bytes(line_of({**row, "question": "relu(x)"}))
    (found,) = collect(read_spec(spec)).findings
    assert (found.what, found.name) == ("relu(x)", "")
    assert found.detail.startswith("asked again: ")


@pytest.mark.parametrize("keep", [min, max])
def test_the_smallest_of_each_sort_is_kept(keep: Any, tmp_path: Path, monkeypatch) -> None:
    """Rows by hand; keeping the largest is a planted mistake that this sees."""
    save_net(tmp_path / "net.onnx", [[1, 1], [1, -1]])
    text = 'kind = "audit"\nfolder = "run"\nmodels = ["net.onnx"]\nruntimes = ["onnxruntime"]\ninputs = 4\n'
    spec = written(tmp_path, text)
    run(read_spec(spec), executor="loop")
    lengths = {0: 30, 1: 10, 2: 20, 3: 40}
    for i, length in lengths.items():
        row = json.loads((tmp_path / "run" / "results" / str(i)).read_bytes())
        row |= {"verdict": "differs", "operator": "relu" if i < 3 else "linear", "script": "#" * length}
        (tmp_path / "run" / "results" / str(i)).write_bytes(line_of(row))
    monkeypatch.setattr(sys.modules["specgrad.scale.campaign.collect"], "min", keep, raising=False)
    found = {f.row["operator"]: (f.times, len(f.script)) for f in collect(read_spec(spec)).findings}
    assert (found == {"relu": (3, 10), "linear": (1, 40)}) == (keep is min)


def test_scripts_are_not_written_over_what_others_wrote(proving: Path) -> None:
    run(read_spec(proving), executor="loop")
    result, cases = collect(read_spec(proving)), proving.parent / "cases"
    result.write(cases)
    result.write(cases)
    (cases / "a-q.py").write_text("mine")
    with pytest.raises(FileExistsError):
        result.write(cases)
    result.write(cases, force=True)


# --- places, executors, other readers ---------------------------------------------------------------------------------


def test_records_in_an_object_store(s3: str, tmp_path: Path) -> None:
    """S3 over HTTP (moto), read and written by other processes too."""
    folder = f"{s3}/{tmp_path.name}"
    spec = written(tmp_path, ASKING.format(seeds=1).replace('"run"', f'"{folder}"'))
    assert run(read_spec(spec), workers=1).run == 2
    assert dict(jobs.results(folder)) == bare_loop(spec)
    there = standing(read_spec(spec).folder)
    assert (there.verdict, there.quiet < 600) == ("ok", True)
    assert collect(read_spec(spec)).done == 2
    with pytest.raises(jobs.JobError, match=r"identity.options.questions is 8 there, 9 here"):
        run(read_spec(written(tmp_path, spec.read_text().replace("questions = 8", "questions = 9"))))


def test_two_elements_of_an_array(proving: Path, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "opened", lambda executor, workers: jobs.Loop())
    done = []
    for index in ("0", "1"):
        monkeypatch.setenv("JOB_COMPLETION_INDEX", index)
        done.append(run(read_spec(proving), executor="array", workers=2).run)
    assert done == [2, 2]
    assert dict(jobs.results(proving.parent / "run")) == bare_loop(proving)


def test_rows_are_tables_for_others(proving: Path) -> None:
    """DuckDB and pandas, as the guide shows it."""
    run(read_spec(proving), executor="loop")
    expected = Counter(r["verdict"] for r in rows_of(proving))
    keys = {tuple(r) for r in rows_of(proving)}
    assert len(keys) == 1  # one set of columns
    duckdb = pytest.importorskip("duckdb")
    query = f"select verdict, count(*) from read_json('{proving.parent}/run/results/*') group by verdict"
    assert dict(duckdb.sql(query).fetchall()) == expected
    pandas = pytest.importorskip("pandas")
    table = pandas.concat(pandas.read_json(p, lines=True) for p in (proving.parent / "run" / "results").iterdir())
    assert dict(table.verdict.value_counts()) == expected


# --- tiles ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tiling(tmp_path: Path) -> Path:
    """A saved network on integers, in tiles of 8 x 16; its image lies in a zarr array."""
    pytest.importorskip("tensorstore")
    pytest.importorskip("zarr")
    from store_networks import given, net, stored

    params, x = given(40)
    sg.save(sg.trace(lambda x: net(params, x)[0], (1, 1, "H=40", "W=40")), tmp_path / "net.json")
    stored(tmp_path / "x.zarr", x, (1, 1, 8, 8))
    text = 'kind = "tiles"\nfolder = "run"\nmodel = "net.json"\nsource = "x.zarr"\ntargets = ["y.zarr"]\n'
    return written(tmp_path, text + 'tile = [8, 16]\ncompute = "float32"\nengine = "numpy"\n')


def test_tiles_from_store_to_store(tiling: Path) -> None:
    """Equal to the network on the whole image, over exact numbers."""
    from store_networks import given, net, read

    spec = read_spec(tiling)
    answer = estimate(spec)
    assert (answer.count, len(answer.seconds), answer.crashed) == (15, 3, {})
    assert not (tiling.parent / "y.zarr").exists()
    assert run(spec, executor="loop").run == 15
    params, x = given(40)
    exact = net({name: sg.exact(a) for name, a in params.items()}, sg.exact(x.astype(int)))[0]
    assert np.array_equal(read(tiling.parent / "y.zarr"), exact.astype(float))
    assert run(spec, executor="loop").before == 15
    result = collect(spec)
    assert (result.verdict, result.counts) == ("ok", {"net.json": Counter(written=15)})


def test_a_damaged_tile_is_found(tiling: Path) -> None:
    zarr = pytest.importorskip("zarr")
    run(read_spec(tiling), executor="loop")
    zarr.open_array(str(tiling.parent / "y.zarr"), mode="r+")[0, 1, 20, 20] += 1
    result = collect(read_spec(tiling))
    assert result.verdict == "findings"
    assert [f.what.partition(" of ")[0] for f in result.findings] == ["tile 7"]  # row 2, column 1 of 5 x 3
    assert result.total == Counter(written=14, damaged=1)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("x.zarr", "z.zarr", "no zarr array z.zarr"),
        ("net.json", "none.json", "no file none.json"),
        ('["y.zarr"]', '["y.zarr", "z.zarr"]', "the model has 1 outputs, and targets names 2"),
        ("[8, 16]", "[8, -16]", "tile must be a whole number from 1, or a list of them"),
        ('"float32"', '"int128"', "compute must be one of float32"),
        ('compute = "float32"', "", "say compute='float32' or another"),
        ('"numpy"', '"mxnet"', "engine must be one of torch, jax, numpy"),
    ],
)
def test_tiles_are_refused_by_name(old: str, new: str, words: str, tiling: Path) -> None:
    with pytest.raises(SpecgradError) as caught:
        _ = read_spec(written(tiling.parent, tiling.read_text().replace(old, new))).job().identity
    assert words in str(caught.value)


# --- status and estimates ---------------------------------------------------------------------------------------------


def test_status_comes_from_the_records_alone(proving: Path) -> None:
    run(read_spec(proving), executor="loop")
    folder = proving.parent / "run"
    assert standing(folder).verdict == "ok"
    for name in ("a.onnx", "p.vnnlib"):  # nobody needs them for that
        (proving.parent / name).unlink()
    (folder / "results" / "1").unlink()
    now = time.time()
    for i, ago in ((0, 34.0), (2, 32.0), (3, 30.0)):
        os.utime(folder / "results" / str(i), (now - ago, now - ago))
    there = standing(folder)
    assert (there.verdict, there.left, there.kind) == ("unfinished", 1, "certify")
    assert there.rate == pytest.approx(0.5)
    assert there.seconds_left == pytest.approx(2)
    assert 29 < there.quiet < 60
    assert there.shares(2) == [(0.5, False), (1.0, False)]
    with pytest.raises(SpecgradError, match="holds no job"):
        standing(proving.parent / "nothing")


@pytest.mark.parametrize("cells", [1, 2, 3, 7, 60])
@pytest.mark.parametrize("count", [1, 2, 5, 59, 60, 61, 1000])
def test_the_drawn_shards_are_the_shards(cells: int, count: int, tmp_path: Path) -> None:
    from specgrad.scale.campaign import Standing

    rng = random.Random(count)
    done = frozenset(i for i in range(count) if rng.random() < 0.5)
    shares = Standing("x", "y", count, done, frozenset(), None, None).shares(cells)
    width = min(cells, count)
    parts = [[i for i in range(count) if i * width // count == c] for c in range(width)]
    assert [share for share, _ in shares] == [len(done & {*part}) / len(part) for part in parts]


def test_pauses_are_no_work() -> None:
    times = np.cumsum([*[2.0] * 50, 36000.0, *[2.0] * 50]).tolist()
    assert rate_of(times) == pytest.approx(0.5)
    assert rate_of(times[:2]) is None
    assert rate_of([]) is None


def test_an_estimate_records_nothing(proving: Path) -> None:
    answer = estimate(read_spec(proving))
    assert [*answer.seconds] == [0, 2, 3]
    assert (answer.count, answer.rows, answer.crashed) == (4, 3, {})
    assert answer.core_hours == pytest.approx(4 * sum(answer.seconds.values()) / 3 / 3600)
    assert answer.to_json(2.0)["cost"]["mean"] == pytest.approx(2 * answer.core_hours)
    assert not (proving.parent / "run").exists()


def test_every_kind_says_its_keys() -> None:
    """In one table, each with a sentence and a default that it accepts itself."""
    from specgrad.scale.campaign.keys import KINDS_OF_VALUES, NEEDED

    assert [*KINDS] == ["conformance", "audit", "certify", "tiles"]
    for kind in KINDS.values():
        for key in kind.KEYS.values():
            assert len(key.about) > 5
            plain = key.default is NEEDED or key.default in (None, [], {})
            assert plain or KINDS_OF_VALUES[key.kind][1](key.default)
