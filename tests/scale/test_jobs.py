"""Shards run once whatever is killed; what is refused; every executor for real."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from specgrad.errors import ParameterError, UnsupportedError
from specgrad.scale import executors, record_store
from specgrad.scale.executors import SPAWN, InlineExecutor
from specgrad.scale.jobs import JobError, crashes, digest, results, run, status

CUBES = "shard_jobs:Cubes"
RUNNER = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from specgrad.scale.jobs import run
if __name__ == "__main__":
    where, options, executor = sys.argv[2:]
    run("shard_jobs:Cubes", json.loads(options), where, executor=executor, workers=2)
"""


def cubes(count: int, without: tuple[int, ...] = ()) -> dict[int, bytes]:
    return {i: b"%d\n" % (i * i * i) for i in range(count) if i not in without}


def digest_of(expected: dict[int, bytes]) -> str:
    text = b"".join(b"%d %d\n%s" % (i, len(data), data) for i, data in sorted(expected.items()))
    return hashlib.sha256(text).hexdigest()


def started(tmp_path: Path, where: Path, options: dict[str, Any], executor: str = "processes") -> subprocess.Popen:
    script = tmp_path / "runner.py"
    script.write_text(RUNNER)
    words = [json.dumps(sys.path), str(where), json.dumps(options), executor]
    return subprocess.Popen([sys.executable, str(script), *words], start_new_session=True, stderr=subprocess.DEVNULL)


def executed(log: Path) -> list[int]:
    return sorted(int(path.name.partition(".")[0]) for path in log.iterdir())


def how_they_crashed(where: Path) -> list[tuple[int, str]]:
    return [(c["shard"], re.sub(r" \(.*py:.*\)$", "", c["how"])) for c in crashes(where)]


# --- each executor ----------------------------------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize("executor", ["loop", "processes"])
def test_every_shard_once(executor: str, tmp_path: Path) -> None:
    log, seen = tmp_path / "log", []
    log.mkdir()
    options = {"count": 12, "log": str(log)}
    state = run(CUBES, options, tmp_path / "job", executor=executor, workers=2, progress=lambda p: seen.append(p.done))
    assert (state.count, state.before, state.run, state.crashed, state.deaths) == (12, 0, 12, 0, 0)
    assert dict(results(tmp_path / "job")) == cubes(12)
    assert digest(tmp_path / "job") == digest_of(cubes(12))
    assert executed(log) == list(range(12))
    assert seen == list(range(1, 13))
    again = run(CUBES, options, tmp_path / "job", executor=executor, workers=2)
    assert (again.before, again.run) == (12, 0)
    assert executed(log) == list(range(12))


def test_an_executor_that_is_given(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        assert run(CUBES, {"count": 9}, tmp_path, executor=pool).run == 9
    assert dict(results(tmp_path)) == cubes(9)


@pytest.mark.parametrize(("name", "index"), [("SLURM_ARRAY_TASK_ID", "1"), ("JOB_COMPLETION_INDEX", "0")])
def test_an_array_does_its_own_share(name: str, index: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv(name, index)
    state = run(CUBES, {"count": 5}, tmp_path, executor="array", workers=2)
    mine = [i for i in range(5) if i % 2 == int(index)]
    assert (state.run, sorted(status(tmp_path).done)) == (len(mine), mine)


def test_an_array_from_one_of_slurm(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "1")
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "2")
    run(CUBES, {"count": 4, "kills": [1]}, tmp_path, executor="array", retries=0)
    assert (sorted(status(tmp_path).done), sorted(status(tmp_path).crashed)) == ([3], [1])


def test_what_is_no_array(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(UnsupportedError, match="SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX; neither is set"):
        run(CUBES, {"count": 5}, tmp_path, executor="array", workers=2)
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "2")
    with pytest.raises(ParameterError, match="element 2 of 2"):
        run(CUBES, {"count": 5}, tmp_path, executor="array", workers=2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kills", [(), pytest.param((5,), marks=pytest.mark.slow)])
@pytest.mark.parametrize("executor", ["dask", pytest.param("ray", marks=pytest.mark.slow)])
def test_clusters(executor: str, kills: tuple[int, ...], tmp_path: Path) -> None:
    """One shard raises; one kills whoever runs it, several workers one after another, and no other is lost."""
    pytest.importorskip("distributed" if executor == "dask" else "ray")
    options = {"count": 24, "kills": kills, "raises": [7]}
    state = run(CUBES, options, tmp_path, executor=executor, workers=2, retries=1)
    assert dict(results(tmp_path)) == cubes(24, without=(*kills, 7))
    death = "KilledWorker" if executor == "dask" else "WorkerCrashedError"
    dead = [(i, f"its workers died ({death}), or it took longer than 3600 s") for i in kills]
    assert how_they_crashed(tmp_path) == [*dead, (7, "ValueError: shard 7 has no cube")]
    assert (state.run, state.crashed) == (23 - len(kills), 1 + len(kills))


# --- deaths -----------------------------------------------------------------------------------------------------------


def test_a_shard_that_kills_is_recorded_and_others_go_on(tmp_path: Path) -> None:
    options = {"count": 10, "kills": [3], "exits": [6], "raises": [8]}
    state = run(CUBES, options, tmp_path, workers=2, retries=0)
    assert dict(results(tmp_path)) == cubes(10, without=(3, 6, 8))
    assert how_they_crashed(tmp_path) == [
        (3, "its process died: SIGKILL"),
        (6, "its process died: exit code 7"),
        (8, "ValueError: shard 8 has no cube"),
    ]
    assert (state.run, state.crashed) == (7, 3)
    assert run(CUBES, options, tmp_path, executor="loop").run == 0  # a record is a record


def test_what_fails_for_a_while_is_done(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    options = {"count": 5, "kills": [1], "raises": [2], "lives": 2, "log": str(log)}
    state = run(CUBES, options, tmp_path / "job", workers=1, retries=2)
    assert (state.run, state.crashed) == (5, 0)
    assert dict(results(tmp_path / "job")) == cubes(5)
    assert [executed(log).count(i) for i in (1, 2)] == [3, 3]


def test_crashed_shards_are_tried_again_where_asked(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    options = {"count": 4, "raises": [2], "lives": 1, "log": str(log)}
    assert run(CUBES, options, tmp_path / "job", executor="loop", retries=0).crashed == 1
    state = run(CUBES, options, tmp_path / "job", executor="loop", retry_crashed=True)
    assert (state.run, state.crashed, status(tmp_path / "job").crashed) == (1, 0, frozenset())
    assert dict(results(tmp_path / "job")) == cubes(4)


def test_a_job_in_which_everything_fails_ends(tmp_path: Path) -> None:
    state = run(CUBES, {"count": 300, "raises": list(range(300))}, tmp_path, executor="loop", retries=0)
    assert (state.run, state.crashed, len(status(tmp_path).crashed)) == (0, 300, 300)


def test_a_given_executor_that_breaks(tmp_path: Path) -> None:
    """It does not say which call broke it: nobody is blamed."""
    broke = pytest.raises(JobError, match=r"the executor broke with \d+ shards left \(BrokenProcessPool: .*run again")
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool, broke:
        run(CUBES, {"count": 20, "kills": [0]}, tmp_path, executor=pool, workers=1, retries=0)
    assert status(tmp_path).crashed == frozenset()
    assert run(CUBES, {"count": 20}, tmp_path, executor="loop").done == 20


@pytest.mark.parametrize("rounds", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_runners_killed_at_random(rounds: int, tmp_path: Path) -> None:
    """kill -9 of the runner, of a worker, or of all; two runners at once; the results are the same bytes."""
    rng, where, count = random.Random(rounds), tmp_path / "job", 40 * rounds
    options = {"count": count, "milliseconds": 20}
    for _ in range(rounds):
        runners = [started(tmp_path, where, options) for _ in range(rng.choice((1, 2)))]
        before = len(os.listdir(where / "results")) if (where / "results").is_dir() else 0
        while all(r.poll() is None for r in runners):
            done = len(os.listdir(where / "results")) if (where / "results").is_dir() else 0
            if done > before + rng.randrange(20):
                break
            time.sleep(0.01)
        for r in runners:  # some with all that they started, some alone: their workers must end by themselves
            with suppress(ProcessLookupError):  # it was done before
                rng.choice((lambda r=r: os.killpg(r.pid, signal.SIGKILL), r.kill))()
            r.wait()
    state = run(CUBES, options, where, executor="loop")
    assert state.before + state.run == count
    assert dict(results(where)) == cubes(count)
    assert digest(where) == digest_of(cubes(count))


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_end_with_their_runner(tmp_path: Path) -> None:
    runner = started(tmp_path, tmp_path / "job", {"count": 2000, "milliseconds": 50})
    while not (tmp_path / "job" / "results").is_dir():
        assert runner.poll() is None
        time.sleep(0.05)
    runner.kill()
    runner.wait()
    for _ in range(400):
        if not alive(runner.pid):
            return
        time.sleep(0.05)
    os.killpg(runner.pid, signal.SIGKILL)
    pytest.fail("workers outlived their runner")


def test_a_script_without_a_guard_blames_no_shard(tmp_path: Path) -> None:
    """Workers import it, and would run it again."""
    script = tmp_path / "runner.py"
    script.write_text(RUNNER.replace('if __name__ == "__main__":', "if True:"))
    words = [json.dumps(sys.path), str(tmp_path / "job"), '{"count": 5}', "processes"]
    done = subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True)
    assert "workers die before they have made the job: exit code 1; a script that runs jobs must" in done.stderr
    assert (status(tmp_path / "job").done, status(tmp_path / "job").crashed) == (frozenset(), frozenset())


# --- what is refused --------------------------------------------------------------------------------------------------


def test_another_job_in_the_same_place(tmp_path: Path) -> None:
    run(CUBES, {"count": 3}, tmp_path, executor="loop")
    with pytest.raises(JobError, match=r"holds another job: identity.salt is 0 there, 1 here. Choose another place"):
        run(CUBES, {"count": 3, "salt": 1}, tmp_path, executor="loop")
    with pytest.raises(JobError, match="count is 3 there, 4 here"):
        run(CUBES, {"count": 4}, tmp_path, executor="loop")
    assert status(tmp_path).about["identity"] == {"power": 3, "salt": 0, "version": 1}


def test_a_place_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"fingerprint": "mine"}')
    with pytest.raises(JobError, match="was not written by this version of specgrad"):
        run(CUBES, {"count": 3}, tmp_path, executor="loop")
    with pytest.raises(JobError, match="holds no job"):
        status(tmp_path / "nothing")


def test_a_worker_that_makes_another_job_does_nothing(tmp_path: Path) -> None:
    """As one with another version of a package would."""
    with pytest.raises(JobError, match="a worker made another job from shard_jobs:Cubes"):
        run(CUBES, {"count": 3, "version": "of the process"}, tmp_path, workers=1)
    assert status(tmp_path).done == frozenset()


def test_a_job_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no such job"):
        run(CUBES, {"count": 3, "no_job": True}, tmp_path)
    for recipe in ("shard_jobs", "__main__:Cubes"):
        with pytest.raises(ParameterError, match="a recipe is 'module:callable'"):
            run(recipe, {}, tmp_path)
    with pytest.raises(ParameterError, match="executor must be one of loop, processes"):
        run(CUBES, {"count": 3}, tmp_path, executor="threads")
    with pytest.raises(ParameterError, match="does not say how many workers it has"):
        run(CUBES, {"count": 3}, tmp_path, executor=InlineExecutor())
    with pytest.raises(ParameterError, match="workers must be at least 1"):
        run(CUBES, {"count": 3}, tmp_path, workers=0)


# --- planted mistakes -------------------------------------------------------------------------------------------------


def test_a_record_that_is_overwritten_would_be_seen(tmp_path: Path, monkeypatch) -> None:
    def overwrite(self: Any, name: str, data: bytes) -> bool:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return True

    monkeypatch.setattr(record_store._Folder, "create", overwrite)
    with pytest.raises(UnsupportedError, match="overwrites what is to be created only if absent"):
        run(CUBES, {"count": 3}, tmp_path, executor="loop")


def test_a_forgotten_record_would_be_seen(tmp_path: Path) -> None:
    """The tests above compare all results with what they must be: one that is missing or wrong is another digest."""
    right = cubes(5)
    assert digest_of(right) != digest_of(cubes(5, without=(4,)))
    assert digest_of(right) != digest_of(right | {3: b"28\n"})
    assert digest_of({1: b"1", 2: b""}) != digest_of({1: b"", 2: b"1"})


def test_ray_ends_no_process_where_its_server_died(monkeypatch) -> None:
    """It would, after a minute and with 1, which is a verdict."""
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "init", lambda **options: None)
    monkeypatch.delenv(executors.RECONNECT_VARIABLE, raising=False)
    executors.ray_init()
    patience = os.environ[executors.RECONNECT_VARIABLE]
    monkeypatch.delenv(executors.RECONNECT_VARIABLE)
    assert int(patience) > 10**5
