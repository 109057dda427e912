"""Runs the numbered shards of a job on any executor, resumable after any kill, with one result per shard.

A job is numbered shards, and `work(i)`: a pure function from the number to bytes, the same whoever computes them. What
is known of it lies in records (`record_store.py`), created whole and once:

    job.json       what the job is; written first. Another job in the same place is refused
    results/17     the bytes of shard 17; a shard with a result is never run again
    crashed/17     how shard 17 failed every time that it was tried: it killed its process, or raised an error

A worker makes the job again from a recipe, `"module:callable"` with JSON options: nothing is pickled. It refuses to
work if what it made is another job (another version of a package, a changed file).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

from ..errors import ParameterError, UnsupportedError
from .executors import InlineExecutor, IsolatedWorker, WorkerDiedError, is_death, opened, size_of
from .job_status import JobError, bind, crashes, digest, results, short, status
from .record_store import Records

__all__ = ["Job", "JobError", "Progress", "crashes", "digest", "make", "results", "run", "status"]
SHARDS_PER_WORKER = 2  # shards per worker that are under way or wait: few are suspects after a death
MAX_CRASHED_SHARDS = 100


class Job(Protocol):
    """Protocol of a job: numbered shards whose results depend on nothing but `identity` and the number.

    count      shards are called 0 ... count - 1; `close()`, if there is one, ends what they started in this process
    identity   JSON data of everything that decides the results: what is asked, digests of files, versions
    """

    @property
    def count(self) -> int:
        """Number of shards, which are called 0 ... count - 1."""

    @property
    def identity(self) -> dict[str, Any]:
        """JSON data of everything that decides the results."""

    def work(self, i: int) -> bytes:
        """Return the result of shard i: the same bytes whenever and wherever it is computed."""


def make(recipe: str, options: Mapping[str, Any]) -> Job:
    """Return the job of a recipe "module:callable", called with `options`.

    ParameterError if it is not of that form, or in __main__.

    >>> make("fractions:Fraction", {"numerator": 3})
    Fraction(3, 1)
    """
    module, _, name = recipe.partition(":")
    if not name or module == "__main__":
        text = f"a recipe is 'module:callable', of a module that workers can import; got {recipe!r}"
        raise ParameterError("run", text)
    job: Job = getattr(import_module(module), name)(**options)
    return job


def describe(job: Job, recipe: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of job.json: fingerprint, options, recipe, count and identity.

    The fingerprint covers recipe, count and identity, not the options, which may name other paths.
    """
    about = {"recipe": recipe, "count": job.count, "identity": job.identity}
    text = json.dumps(about, sort_keys=True, allow_nan=False)
    return {"fingerprint": hashlib.sha256(text.encode()).hexdigest(), "options": dict(options), **json.loads(text)}


# --- what runs in a worker --------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _cached_job(recipe: str, options: str, fingerprint: str) -> Job:
    """Build the job of a recipe ("module:callable") and options (JSON text) once per process; JobError if its
    fingerprint is not the runner's.
    """
    given = json.loads(options)
    job = make(recipe, given)
    if describe(job, recipe, given)["fingerprint"] != fingerprint:
        text = f"a worker made another job from {recipe} {short(given)}"
        raise JobError(f"{text}: a file or a version is not the same there as where the job was started")
    return job


def prepare(recipe: str, options: str, fingerprint: str) -> None:
    """Build the job of a recipe and options in this worker before its first shard; JobError if its fingerprint is not
    the runner's.
    """
    _cached_job(recipe, options, fingerprint)


def perform(address: str, recipe: str, options: str, fingerprint: str, i: int) -> str | None:
    """Run shard i of the job of a recipe and options unless `address` has its result; return None, or the text of the
    error that it raised.

    JobError if the job's fingerprint is not the runner's.
    """
    records = Records(address)
    return (
        None if records.has(f"results/{i}") else _perform_shard(records, _cached_job(recipe, options, fingerprint), i)
    )


def _perform_shard(records: Records, job: Job, i: int) -> str | None:
    """Run shard i of `job` and record its result in `records`; return None, or the text of the error that it raised."""
    try:
        data = job.work(i)
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({os.path.basename(last.filename)}:{last.lineno})"
    records.create(f"results/{i}", data)
    return None


# --- what runs them ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Progress:
    """Counts of a run: shards in all, done before it, run by it and crashed; deaths of workers; times in seconds.

    >>> p = Progress(count=100, before=40, started=0.0)
    >>> p.run, p.first, p.now = 11, 2.0, 7.0
    >>> p.done, p.rate, p.seconds_left
    (51, 2.0, 24.5)
    """

    count: int
    before: int
    started: float
    run: int = 0
    crashed: int = 0
    deaths: int = 0
    first: float = 0.0
    now: float = 0.0

    @property
    def done(self) -> int:
        """Number of shards that have a result."""
        return self.before + self.run

    @property
    def rate(self) -> float | None:
        """Shards per second since the first was done (workers take time to start); None: not known yet."""
        return (self.run - 1) / (self.now - self.first) if self.run > 1 and self.now > self.first else None

    @property
    def seconds_left(self) -> float | None:
        """Expected seconds until all shards are done; None: not known yet."""
        return None if not self.rate else (self.count - self.done - self.crashed) / self.rate


def run(
    recipe: str,
    options: Mapping[str, Any],
    where: Any,
    *,
    executor: str | Executor = "processes",
    workers: int | None = None,
    retries: int = 2,
    retry_crashed: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Progress:
    """Perform every shard that has no record yet.

    recipe, options of `make`: a "module:callable" and its arguments, JSON data.

    where           folder or address of the records (`Records`); all workers must reach it
    executor        "processes" (default), "loop" (here, one by one), "dask" and "ray" (local clusters), "array" (this
                    element's share: SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX of `workers` elements), or any
                    concurrent.futures.Executor, such as Dask's Client.get_executor()
    workers         how many; default: as many as a given executor says that it has, else the cores that this process
                    may use. Twice as many shards are under way at any time
    retries         how often a shard is tried again: after an error at the end of the run, after the death of its
                    worker alone, in a process of its own on this machine. Then it has a record in crashed/, the run
                    goes on, and it is not tried again; `retry_crashed` does
    progress        called after every shard

    Errors while a job is made, and those of the records (a full disk), end the run: run it again, it goes on where it
    was. So does the hundredth crash of a run. JobError if the records are of another job, or too many shards crash.
    """
    records, text = Records(where), json.dumps(dict(options), sort_keys=True, allow_nan=False)
    job = make(recipe, json.loads(text))
    about = describe(job, recipe, json.loads(text))
    first = bind(records, about)
    count, is_own = _workers_and_share(executor, workers)
    there = status(records)
    skipped = there.done if retry_crashed else there.done | there.crashed
    todo = [i for i in range(job.count) if i not in skipped and is_own(i)]
    if not first and todo:  # perhaps beside another runner: begin elsewhere
        start = int.from_bytes(os.urandom(4)) % len(todo)
        todo = todo[start:] + todo[:start]
    state = Progress(job.count, len(there.done), time.monotonic(), crashed=len(there.crashed - set(todo)))
    runner = _Runner(records, job, (recipe, text, about["fingerprint"]), retries, state, progress)
    try:
        if todo:
            runner.run_all(deque(todo), executor, count)
    finally:
        getattr(job, "close", lambda: None)()
    return state


def _workers_and_share(executor: str | Executor, workers: int | None) -> tuple[int, Callable[[int], bool]]:
    """Return the number of workers, and a predicate that says whether shard i belongs to this run.

    ParameterError for workers or an element out of range, UnsupportedError outside an array job.

    With executor "array" those of this element do, else all.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers is not None and workers < 1:
        raise ParameterError("run", f"workers must be at least 1; got {workers}")
    if isinstance(executor, Executor) and workers is None:
        workers = size_of(executor)
        if workers is None:
            raise ParameterError("run", "this executor does not say how many workers it has: give workers=")
    if executor != "array":
        return workers or cores, lambda _: True
    names = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX")
    index = next((int(os.environ[n]) for n in names if n in os.environ), None)
    if index is None:
        raise UnsupportedError("run", f"executor='array' reads {' or '.join(names)}; neither is set")
    index -= int(os.environ.get("SLURM_ARRAY_TASK_MIN", 0))
    elements = workers or int(os.environ.get("SLURM_ARRAY_TASK_COUNT", 0))
    if not 0 <= index < elements:
        text = f"executor='array' needs workers=, the number of elements; this is element {index} of {elements}"
        raise ParameterError("run", text)
    return 1, lambda i: i % elements == index


class _Runner:
    """Runs the missing shards of one job: submits them, retries failures, isolates suspects, records crashes.

    job_args   recipe, options and fingerprint, of which a worker makes the job
    retries    how often a shard is tried again
    state      counts, which are kept up to date
    progress   is told them; None: nobody is

    JobError after too many crashes.
    """

    def __init__(
        self,
        records: Records,
        job: Job,
        job_args: tuple[str, str, str],
        retries: int,
        state: Progress,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.records, self.job, self.job_args, self.retries = records, job, job_args, retries
        self.state, self.progress = state, progress or (lambda _: None)
        self.failures: dict[int, int] = {}
        self.crashes = 0

    def run_all(self, todo: deque[int], executor: str | Executor, workers: int) -> None:
        """Run the shards in `todo` on so many workers, with a new pool after each that breaks; suspects of a death run
        isolated.

        JobError if an Executor that was given breaks.
        """
        with IsolatedWorker() as worker:
            while todo:
                with opened(executor, workers) as pool:
                    suspects = self._submit_until_broken(
                        pool, todo, 1 if isinstance(pool, InlineExecutor) else SHARDS_PER_WORKER * workers
                    )
                for i in suspects:
                    self._run_isolated(worker, i)
                if todo and isinstance(executor, Executor):
                    raise JobError(f"the executor broke with {len(todo)} shards left; run again with a new one")

    def _submit_until_broken(self, pool: Executor, todo: deque[int], max_pending: int) -> list[int]:
        """Submit the shards in `todo`, at most `max_pending` at a time, until all are done or the pool breaks; return
        those whose worker died.

        Errors while a job is made are raised.
        """
        pending: dict[Future[str | None], int] = {}
        suspects: list[int] = []
        broken = False
        while (todo and not broken) or pending:
            while todo and not broken and len(pending) < max_pending:
                try:
                    pending[self._submit_shard(pool, todo[0])] = todo[0]
                    todo.popleft()
                except BrokenExecutor:
                    broken = True
            for future in sorted(wait(pending, return_when=FIRST_COMPLETED).done, key=pending.__getitem__):
                i, error = pending.pop(future), future.exception()
                if error is None:
                    self._handle_answer(todo, i, future.result())
                elif is_death(error):
                    self.state.deaths += not broken
                    broken |= isinstance(error, BrokenExecutor)
                    suspects.append(i)
                else:
                    for other in pending:
                        other.cancel()
                    raise error
        return suspects

    def _submit_shard(self, pool: Executor, i: int) -> Future[str | None]:
        """Submit shard i to the pool; inline, the job of this process is used."""
        if isinstance(pool, InlineExecutor):
            return pool.submit(_perform_shard, self.records, self.job, i)
        return pool.submit(perform, self.records.address, *self.job_args, i)

    def _build_job_there(self, worker: IsolatedWorker) -> None:
        """Build the job in the isolated worker; JobError if the process dies even before it has a shard."""
        how = ""
        for _ in range(1 + self.retries):
            try:
                worker.run(prepare, *self.job_args)
                return
            except WorkerDiedError as error:
                how = str(error)
        text = 'a script that runs jobs must do so under `if __name__ == "__main__":`, since workers import it too'
        raise JobError(f"workers die before they have made the job: {how}; {text}")

    def _run_isolated(self, worker: IsolatedWorker, i: int) -> None:
        """Run shard i in the process of `worker`, with retries; count it as done, or record a crash if none
        succeeds.
        """
        how = ""
        for _ in range(1 + self.retries):
            self._build_job_there(worker)
            try:
                answer = worker.run(perform, self.records.address, *self.job_args, i)
            except WorkerDiedError as error:
                self.state.deaths += 1
                how = f"its process died: {error}"
                continue
            if answer is None:
                return self._count_done()
            how = answer
        return self._record_crash(i, how)

    def _handle_answer(self, todo: deque[int], i: int, answer: str | None) -> None:
        """Count shard i as done, queue it in `todo` again after an error, or record a crash after the last retry.

        `answer` is the error's text, or None.
        """
        if answer is None:
            self._count_done()
            return
        self.failures[i] = self.failures.get(i, 0) + 1
        if self.failures[i] <= self.retries:
            todo.append(i)  # when all others have been tried: what was in its way may have passed
        else:
            self._record_crash(i, answer)

    def _count_done(self) -> None:
        """Count one shard as done and report the progress."""
        self.state.run += 1
        self._report_progress()
        if self.state.run == 1:
            self.state.first = self.state.now

    def _report_progress(self) -> None:
        """Set the time of `state` and call the progress callback."""
        self.state.now = time.monotonic()
        self.progress(self.state)

    def _record_crash(self, i: int, how: str) -> None:
        """Record that shard i crashed and `how`, and report it; JobError after MAX_CRASHED_SHARDS of them."""
        record = {"shard": i, "how": how, "attempts": 1 + self.retries}
        self.records.create(f"crashed/{i}", json.dumps(record).encode() + b"\n")
        self.state.crashed += 1
        self._report_progress()
        self.crashes += 1
        if self.crashes >= MAX_CRASHED_SHARDS:
            raise JobError(f"{self.crashes} shards crashed, the last one, {i}: {how}")
