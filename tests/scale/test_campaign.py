"""Campaigns: the bytes of a bare loop after any kill; what is refused; places and executors; status and estimates."""

from __future__ import annotations

import dataclasses
import os
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
from campaigns import (  # noqa: E402
    ASKING,
    PROPERTY,
    PROVING,
    bare_loop,
    digest_of,
    kill_often,
    rows_of,
    save_net,
    started,
    written,
)
from specgrad.errors import SpecgradError  # noqa: E402
from specgrad.scale import jobs  # noqa: E402
from specgrad.scale.campaign import KINDS, CampaignStatus, collect, estimate, read_spec, run, standing  # noqa: E402
from specgrad.scale.campaign import kind as kind_module  # noqa: E402
from specgrad.scale.campaign.kind import digest_of_model  # noqa: E402
from specgrad.scale.campaign.spec import RECIPE  # noqa: E402
from specgrad.scale.campaign.status import rate_of  # noqa: E402

# --- kills ------------------------------------------------------------------------------------------------------------


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
        ("kind = ", "is no TOML"),
        (ASKING.format(seeds=1) + "seed = 3", "kind conformance has no key 'seed' (seeds?); it has runtime, operators"),
        (ASKING.format(seeds=0), "seeds must be a whole number from 1; got 0"),
        (ASKING.format(seeds="true"), "seeds must be a whole number from 1; got True"),
        (ASKING.format(seeds=1) + "seconds = inf", "holds a float that is not read: inf"),
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


def in_a_worker(spec: Path) -> jobs.Job:
    """The campaign as a worker makes it: it knows the identity in the records, and has read no model."""
    asked = read_spec(spec)
    kind = asked.job()
    kind.expect(jobs.described(asked.folder)["identity"])
    return kind


def test_a_worker_hashes_the_models_that_it_reads(proving: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, and no other; the runner hashed all of them."""
    hashed: list[str] = []
    monkeypatch.setattr(kind_module, "digest_of_model", lambda path: hashed.append(path.name) or digest_of_model(path))
    asked = read_spec(proving)
    run(asked, executor="loop")
    assert sorted(hashed) == ["a.onnx", "b.onnx", "p.vnnlib", "q.vnnlib"]
    hashed.clear()
    kind = in_a_worker(proving)
    assert jobs.describe(kind, RECIPE, {})["fingerprint"] == jobs.status(asked.folder).about["fingerprint"]
    assert hashed == []
    for _ in range(2):
        assert b"a.onnx" in kind.work(0) + kind.work(1)
    assert hashed == ["a.onnx", "p.vnnlib", "q.vnnlib"]


@pytest.mark.parametrize("changed", ["a.onnx", "p.vnnlib"])
def test_a_worker_refuses_a_file_that_is_not_the_runners(changed: str, proving: Path) -> None:
    """Before it reads any, and between two readings; and it goes on refusing."""
    run(read_spec(proving), executor="loop")
    early, late = in_a_worker(proving), in_a_worker(proving)
    late.work(0)
    data = bytearray((proving.parent / changed).read_bytes())
    data[-2] ^= 1
    (proving.parent / changed).write_bytes(data)
    for kind in (early, late):
        for _ in range(2):
            with pytest.raises(
                jobs.JobError, match=rf"{changed} is another file here than where the campaign was started"
            ):
                kind.work(0)
    assert b"b.onnx" in early.work(3)


def test_weights_beside_a_model_are_compared_too(proving: Path) -> None:
    model = onnx.load(proving.parent / "a.onnx")
    beside = {"save_as_external_data": True, "location": "a.data", "size_threshold": 0}
    onnx.save(model, proving.parent / "a.onnx", **beside)
    run(read_spec(proving), executor="loop")
    kind = in_a_worker(proving)
    kind.work(0)
    data = bytearray((proving.parent / "a.data").read_bytes())
    data[-1] ^= 1
    (proving.parent / "a.data").write_bytes(data)
    with pytest.raises(jobs.JobError, match=r"a\.onnx is another file"):
        kind.work(0)


def test_another_file_in_a_worker_ends_the_run(proving: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no fault of the shard: nothing is recorded as crashed."""
    asked = read_spec(proving)
    monkeypatch.setattr(kind_module.Listed, "digest", lambda self, name: "0" * 64)
    with pytest.raises(jobs.JobError, match=r"a\.onnx is another file"):
        run(asked, executor="loop")
    assert (standing(asked.folder).done, standing(asked.folder).crashed) == (frozenset(), frozenset())


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


# --- places, executors, other readers ---------------------------------------------------------------------------------


def test_records_in_an_object_store(s3: str, tmp_path: Path) -> None:
    """S3 over HTTP (moto), read and written by other processes too."""
    folder = f"{s3}/{tmp_path.name}"
    spec = written(tmp_path, ASKING.format(seeds=1).replace('"run"', f'"{folder}"'))
    assert run(read_spec(spec), workers=1).run == 2
    assert dict(jobs.results(folder)) == bare_loop(spec)
    there = standing(read_spec(spec).folder)
    assert (there.verdict, there.idle_seconds < 600) == ("ok", True)
    assert collect(read_spec(spec)).done == 2
    with pytest.raises(jobs.JobError, match=r"identity.options.questions is 8 there, 9 here"):
        run(read_spec(written(tmp_path, spec.read_text().replace("questions = 8", "questions = 9"))))


@pytest.mark.slow
def test_a_cluster_that_runs(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    spec = read_spec(written(tmp_path, ASKING.format(seeds=2)))
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        assert run(spec, executor="dask", address=cluster.scheduler_address).run == 4
    assert dict(jobs.results(spec.folder)) == bare_loop(tmp_path / "spec.toml")
    with pytest.raises(SpecgradError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        run(spec, executor="dask", address="tcp://127.0.0.1:9")
    with pytest.raises(SpecgradError, match="an address goes with executor dask or ray"):
        run(spec, executor="loop", address="tcp://127.0.0.1:9")


def test_two_elements_of_an_array(proving: Path, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "opened", lambda *_: jobs.InlineExecutor())
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
    rows = f"read_json('{proving.parent}/run/results/*') where verdict is not null"
    query = f"select verdict, count(*) from {rows} group by verdict"
    assert dict(duckdb.sql(query).fetchall()) == expected
    pandas = pytest.importorskip("pandas")
    table = pandas.concat(pandas.read_json(p, lines=True)[1:] for p in (proving.parent / "run" / "results").iterdir())
    assert dict(table.verdict.value_counts()) == expected


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
    assert 29 < there.idle_seconds < 60
    assert not there.is_idle  # 10 s and 20 usual gaps
    assert dataclasses.replace(there, idle_seconds=51.0).is_idle
    assert there.done_by_segment(2) == [(0.5, False), (1.0, False)]
    with pytest.raises(SpecgradError, match="holds no job"):
        standing(proving.parent / "nothing")


@pytest.mark.parametrize("cells", [1, 2, 3, 7, 60])
@pytest.mark.parametrize("count", [1, 2, 5, 59, 60, 61, 1000])
def test_the_drawn_shards_are_the_shards(cells: int, count: int, tmp_path: Path) -> None:
    rng = random.Random(count)
    done = frozenset(i for i in range(count) if rng.random() < 0.5)
    shares = CampaignStatus("x", "y", count, done, frozenset(), None, None).done_by_segment(cells)
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
    from specgrad.scale.campaign.keys import REQUIRED, VALUE_TYPES

    assert [*KINDS] == ["conformance", "audit", "certify", "tiles", "preserve"]
    for kind in KINDS.values():
        for key in kind.KEYS.values():
            assert len(key.about) > 5
            plain = key.default is REQUIRED or key.default in (None, [], {})
            assert plain or VALUE_TYPES[key.kind][1](key.default)
