"""Workers that stop or never end, stores that fail, engines that are silent: named, waited out, blamed on no shard."""

from __future__ import annotations

import errno
import logging
import time
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from specgrad.cli.shared.exit_codes import ending
from specgrad.errors import ParameterError, WorkerError
from specgrad.scale import jobs
from specgrad.scale.executors import InlineExecutor
from specgrad.scale.jobs import results, run, status
from specgrad.scale.record_store import Records
from specgrad.scale.store_faults import Backoff, StoreError, fault_of
from test_jobs import CUBES, cubes, how_they_crashed


@pytest.fixture
def log(tmp_path: Path) -> str:
    (tmp_path / "log").mkdir()
    return str(tmp_path / "log")


class Deaf(InlineExecutor):
    """Loses the first calls that it is given: their futures never end."""

    _max_workers = 2

    def __init__(self, losses: int) -> None:
        self.losses = losses

    def submit(self, work: Any, /, *args: Any, **options: Any) -> Future[Any]:
        self.losses -= 1
        return Future() if self.losses >= 0 else super().submit(work, *args, **options)


class Threads(Executor):
    """As `Deaf`, and no InlineExecutor, which would be given one call at a time."""

    _max_workers = 2

    def __init__(self, losses: int) -> None:
        self.deaf = Deaf(losses)

    def submit(self, work: Any, /, *args: Any, **options: Any) -> Future[Any]:
        return self.deaf.submit(work, *args, **options)


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_shard_past_its_time_ends_and_others_go_on(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "GRACE_SECONDS", 20.0)
    state = run(CUBES, {"count": 6, "spins": [2]}, tmp_path, workers=2, retries=1, shard_seconds=1)
    assert (state.run, state.crashed, state.deaths) == (5, 1, 2)
    assert how_they_crashed(tmp_path) == [(2, "it took longer than 1 s")]
    assert dict(results(tmp_path)) == cubes(6, without=(2,))


def test_a_stopped_worker_is_given_up_after_its_time_and_the_grace(tmp_path: Path, log: str, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "GRACE_SECONDS", 8.0)
    start = time.monotonic()
    options = {"count": 6, "stops": [2], "lives": 1, "log": log}
    state = run(CUBES, options, tmp_path / "job", workers=2, shard_seconds=2)
    assert (state.run, state.crashed, state.deaths) == (6, 0, 1)
    assert 10 <= time.monotonic() - start < 50


def test_a_loop_has_no_worker_to_end(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="shard_seconds needs another one"):
        run(CUBES, {"count": 3}, tmp_path, executor="loop", shard_seconds=5)
    with pytest.raises(ParameterError, match="shard_seconds must be positive"):
        run(CUBES, {"count": 3}, tmp_path, shard_seconds=0)


def test_what_nobody_answers_is_given_to_others(tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(jobs, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(jobs, "START_SECONDS", 0.5)
    monkeypatch.setattr(jobs, "NOTICE_SECONDS", 0.1)
    state = run(CUBES, {"count": 9}, tmp_path, executor=Threads(2), shard_seconds=0.2)
    assert (state.run, state.crashed, dict(results(tmp_path))) == (9, 0, cubes(9))
    assert "waiting for shard 0, 1" in caplog.text
    assert "given to others" in caplog.text


def test_a_run_that_nobody_answers_ends_and_says_for_what_it_waited(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(jobs, "START_SECONDS", 0.2)
    with pytest.raises(WorkerError, match=r"waiting for shard 0, 1, 2, 3: nobody does it. Run again"):
        run(CUBES, {"count": 9}, tmp_path, executor=Threads(10**6), shard_seconds=0.1, retries=1)
    assert (status(tmp_path).done, status(tmp_path).crashed) == (frozenset(), frozenset())


@pytest.mark.parametrize("error", [WorkerError("nobody answers"), StoreError("full")])
def test_a_fault_of_the_machine_ends_a_command_with_4(error: Exception) -> None:
    assert ending(error)[0] == 4


# --- stores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["loop", "processes"])
def test_a_full_disk_is_waited_out(executor: str, tmp_path: Path, log: str, caplog) -> None:
    options = {"count": 5, "full": [3], "lives": 2, "log": log}
    state = run(CUBES, options, tmp_path / "job", executor=executor, workers=1, retries=0)
    assert (state.run, state.crashed, dict(results(tmp_path / "job"))) == (5, 0, cubes(5))
    said = [r.getMessage() for r in caplog.records if (r.name, r.levelno) == ("specgrad.scale", logging.WARNING)]
    assert len(said) == 2
    assert all("the store fails, next attempt in" in text and "No space left on device" in text for text in said)


def test_a_full_disk_ends_the_run_and_a_plain_rerun_finishes(tmp_path: Path, log: str) -> None:
    options = {"count": 5, "full": [0, 1, 2, 3, 4], "lives": 1, "log": log}
    for _ in range(5):
        with pytest.raises(StoreError, match=r"No space left on device .*run again when it is well"):
            run(CUBES, options, tmp_path / "job", executor="loop", retries=0, store_seconds=0)
    assert status(tmp_path / "job").crashed == frozenset()
    assert run(CUBES, options, tmp_path / "job", executor="loop").done == 5
    assert dict(results(tmp_path / "job")) == cubes(5)


def test_records_that_cannot_be_written_are_no_crash(tmp_path: Path, monkeypatch) -> None:
    create, faults = Records.create, [errno.ENOSPC, errno.EIO]

    def sometimes(self: Records, name: str, data: bytes) -> bool:
        if name in ("results/1", "crashed/2") and faults:
            raise OSError(faults.pop(), "the disk fails")
        return create(self, name, data)

    monkeypatch.setattr(Records, "create", sometimes)
    state = run(CUBES, {"count": 3, "raises": [2]}, tmp_path, executor="loop", retries=0)
    assert (state.run, state.crashed, faults) == (2, 1, [])


@pytest.mark.filterwarnings("ignore")
def test_an_object_store_that_is_gone_is_a_fault(s3: str, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Exception, match="S3") as error:
        Records(f"{s3}/gone").get("results/1")
    assert "GenericError" in (fault_of(error.value) or "")
    wrapped = RuntimeError("the job says otherwise")
    wrapped.__cause__ = error.value
    assert fault_of(wrapped) == fault_of(error.value)


@pytest.mark.parametrize(
    "error", [ValueError("NOT_FOUND: a chunk"), FileNotFoundError(2, "gone"), TimeoutError(), None]
)
def test_what_is_no_fault_of_a_store(error: BaseException | None) -> None:
    assert fault_of(error) is None


def test_a_store_that_fails_is_asked_less_and_less(monkeypatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    backoff, waits = Backoff(500), []
    while clock[0] < 500:
        backoff.fail(StoreError("full"))
        backoff.fail(StoreError("full"))  # another worker met the same fault
        waits.append(backoff.seconds_left)
        clock[0] += waits[-1]
    with pytest.raises(StoreError, match=r"full \(for 5\d\d s; run again"):
        backoff.fail(StoreError("full"))
    assert all(most / 2 <= wait <= most for wait, most in zip(waits, [1, 2, 4, 8, 16, *[30] * 99], strict=False))
    backoff.succeed()
    backoff.fail(StoreError("full"))
    assert backoff.seconds_left <= 1
