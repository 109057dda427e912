"""Records with digests: one that was changed, moved, cut off or is of another job is refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shard_jobs import Cubes
from specgrad.scale.job_status import JobError
from specgrad.scale.jobs import crashes, digest, results, run, status
from specgrad.scale.record_store import Records

CUBES = "shard_jobs:Cubes"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    run(CUBES, {"count": 6, "raises": [5]}, tmp_path / "job", executor="loop", retries=0)
    return tmp_path / "job"


@pytest.mark.parametrize("change", ["flip", "cut", "moved", "of another job", "empty", "rewritten", "without a digest"])
def test_a_record_that_is_not_what_was_written(change: str, job: Path, tmp_path: Path) -> None:
    path = job / "results/3"
    whole = path.read_bytes()
    head, _, data = whole.partition(b"\n")
    assert data == b"27\n"
    if change == "of another job":
        run(CUBES, {"count": 6, "salt": 1}, tmp_path / "other", executor="loop")
        other = (tmp_path / "other/results/3").read_bytes()
        assert other.partition(b"\n")[2] == data
    put = {
        "flip": lambda: head + b"\n" + bytes([data[0] ^ 1]) + data[1:],
        "cut": lambda: whole[:-1],
        "moved": (job / "results/2").read_bytes,
        "of another job": lambda: other,
        "empty": bytes,
        "rewritten": lambda: head + b"\n28\n",
        "without a digest": lambda: data,
    }
    path.write_bytes(put[change]())
    with pytest.raises(JobError, match=r"the record results/3 of .*job was changed"):
        list(results(job))
    with pytest.raises(JobError, match="the record results/3 of"):
        digest(job)
    state = run(CUBES, {"count": 6}, job, executor="loop", repair=True)
    assert (state.before, state.run, status(job).left) == (4, 2, 0)  # the one that raised, too
    assert dict(results(job)) == {i: b"%d\n" % i**3 for i in range(6)}
    (aside,) = Records(job).names("aside/results")
    assert aside.startswith("3-")


def test_results_without_their_header(job: Path) -> None:
    """Those of another job counted as done: 0 shards run, exit code 0."""
    (job / "job.json").unlink()
    for options in ({"count": 6, "salt": 1}, {"count": 7}):
        for repair in (False, True):
            with pytest.raises(JobError, match=r"has no job\.json, and results/0 there is not of this job"):
                run(CUBES, options, job, executor="loop", repair=repair)
    assert not (job / "job.json").exists()
    assert run(CUBES, {"count": 6}, job, executor="loop").before == 5


def test_a_crash_that_was_edited(job: Path) -> None:
    path = job / "crashed/5"
    path.write_bytes(path.read_bytes().replace(b"no cube", b"no tube"))
    with pytest.raises(JobError, match="the record crashed/5 of"):
        list(crashes(job))


def test_a_header_that_was_edited(job: Path) -> None:
    path = job / "job.json"
    text = json.loads(path.read_text())
    for key, value in (("count", 5), ("options", {}), ("fingerprint", "0" * 64), ("digest", None)):
        path.write_text(json.dumps({**text, key: value}))
        for ask in (status, digest, lambda f: list(results(f))):
            with pytest.raises(JobError, match=r"job.json in .* was changed: choose another place"):
                ask(job)
    path.write_text(json.dumps(text))  # other spaces are no change
    assert status(job).count == 6


def test_records_of_an_earlier_version(job: Path) -> None:
    path = job / "job.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 1}))
    for ask in (status, digest, lambda f: run(CUBES, {"count": 6}, f, executor="loop")):
        with pytest.raises(JobError, match="not written by this version of specgrad; an earlier one wrote records"):
            ask(job)


def test_a_record_that_is_gone_is_computed_again(job: Path) -> None:
    """Nothing else can be known of it: a record that is not there is a shard that is not done."""
    (job / "results/3").unlink()
    assert status(job).left == 1
    run(CUBES, {"count": 6}, job, executor="loop")
    assert dict(results(job))[3] == b"27\n"


def test_an_error_of_the_whole_job_is_no_crash_of_a_shard(tmp_path: Path, monkeypatch: Any) -> None:
    def fail(self: Any, i: int) -> bytes:
        raise JobError("the source was changed")

    monkeypatch.setattr(Cubes, "work", fail)
    with pytest.raises(JobError, match="the source was changed"):
        run(CUBES, {"count": 3}, tmp_path, executor="loop")
    assert status(tmp_path).crashed == frozenset()
