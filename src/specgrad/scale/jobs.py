"""Runs the numbered shards of a job on any executor, resumable after any kill, with one result per shard.

A job is numbered shards, and `work(i)`: a pure function from the number to bytes, the same on every worker. What
is known of it lies in records (`record_store.py`), created whole and once:

    job.json       what the job is; written first. Another job in the same place is refused
    results/17     a digest and the bytes of shard 17; a shard with a result is never run again
    crashed/17     how shard 17 failed every time that it was tried: it killed its process, or raised an error
    aside/...      results that `repair` found to be no longer so, and had computed again

A worker makes the job again from a recipe, `"module:callable"` with JSON options: nothing is pickled. It refuses to
work if what it made is another job (another version of a package, a changed file).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import socket
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol

from ..errors import ParameterError, UnsupportedError, WorkerError
from ..process.time_limit import ended_after
from .executors import (
    START_SECONDS,
    Care,
    InlineExecutor,
    ShardError,
    is_death,
    is_engine_loss,
    opened,
    retries_itself,
    size_of,
)
from .job_status import JobError, bind, crashes, described, digest, results, short, status, unsound, write_record
from .metrics import MetricsFile
from .record_store import Records
from .store_faults import ANSWER_SECONDS, LOG, Backoff, StoreError, fault_of, faults_named, limit_answers
from .worker_memory import return_freed_blocks

__all__ = ["Job", "JobError", "Progress", "crashes", "described", "digest", "make", "results", "run", "status"]
SHARD_SECONDS = 3600.0  # a shard may take, unless a run says otherwise
STORE_SECONDS = 600.0  # a store may fail
GRACE_SECONDS = 60.0  # more than a shard's time, and a worker is taken for lost
NOTICE_SECONDS = 60.0  # of silence, and a line says so
PENDING_PER_WORKER = 2  # shards per worker that are under way or wait
MAX_NAMED = 10  # shards in a line that says for what a run waits
PENDING_OF_ENGINES = 1000  # the same in all of those that schedule and retry by themselves, and may grow


class Job(Protocol):
    """Protocol of a job: numbered shards whose results depend on nothing but `identity` and the number.

    count      shards are called 0 ... count - 1; `close()`, if there is one, ends what they started in this process;
               `begin(fingerprint, repair, look, started)` is called by the runner before the first, and calls
               `repair`, if it is not None (started: some have results already); `changes(data)` says what a result
               describes that is no longer so, "": nothing;
               `expect(identity)` is told in a worker what the runner's identity is
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


@dataclass(frozen=True)
class Order:
    """What a worker is told of a job: the `address` of its records, its recipe, options (JSON) and fingerprint.

    `seconds` are what a shard may take, `runner` is the process that waits, which no shard may end.
    """

    address: str
    recipe: str
    options: str
    fingerprint: str
    seconds: float
    runner: str


def this_process() -> str:
    """Return a name of this process that no other one has, on any machine."""
    return f"{socket.gethostname()} {os.getpid()}"


@lru_cache(maxsize=2)
def _cached_job(address: str, recipe: str, options: str, fingerprint: str) -> Job:
    """Build the job of a recipe ("module:callable") and options (JSON text) once per process; JobError if its
    fingerprint is not the runner's.

    A job that has `expect` is told the identity in the records at `address`. If that is not the runner's, the
    fingerprints differ.
    """
    return_freed_blocks()
    given = json.loads(options)
    job = make(recipe, given)
    if hasattr(job, "expect"):
        job.expect(described(address)["identity"])
    if describe(job, recipe, given)["fingerprint"] != fingerprint:
        text = f"a worker made another job from {recipe} {short(given)}"
        raise JobError(f"{text}: a file or a version is not the same there as where the job was started")
    return job


def prepare(order: Order) -> None:
    """Build the job of an order in this worker before its first shard.

    JobError if its fingerprint is not the runner's, StoreError if a store fails.
    """
    with faults_named():
        _cached_job(order.address, order.recipe, order.options, order.fingerprint)


class Done(NamedTuple):
    """What a worker says of a shard that it did: the bytes of its result (`result_bytes`), and its `seconds`."""

    result_bytes: int = 0
    seconds: float = 0.0


def perform(order: Order, i: int) -> Done:
    """Run shard i of an order's job, and record its result, unless it has one; return what that took.

    This process ends if that takes longer than `order.seconds`. JobError if the job's fingerprint is not the runner's,
    ShardError if the shard raises an error, StoreError if a store fails.
    """
    with faults_named():
        records = Records(order.address)
        if records.has(f"results/{i}"):
            return Done()
        job = _cached_job(order.address, order.recipe, order.options, order.fingerprint)
        limit_answers(min(order.seconds / 2, ANSWER_SECONDS))
        with nullcontext() if this_process() == order.runner else ended_after(order.seconds):
            return _perform_shard(records, job, order.fingerprint, i)


def _perform_shard(records: Records, job: Job, fingerprint: str, i: int) -> Done:
    """Run shard i of `job`, which has this fingerprint, record its result in `records`, and return what that took.

    ShardError if it raises an error, StoreError if a store fails, JobError if it says that the job cannot go on.
    """
    began = time.monotonic()
    with faults_named():
        try:
            data = job.work(i)
        except JobError:  # not of this shard alone
            raise
        except (Exception, SystemExit) as error:
            if fault_of(error) is not None:
                raise
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{os.path.basename(last.filename)}:{last.lineno}"
            raise ShardError(f"{type(error).__name__}: {error} ({place})") from None
        write_record(records, f"results/{i}", data, fingerprint)
    return Done(len(data), time.monotonic() - began)


# --- what runs them ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Progress:
    """Counts of a run: shards in all, done before it, run by it, `retried` and crashed; deaths of workers;
    `result_bytes` of what is recorded, `shard_seconds` that workers took; times in seconds.

    Dask and Ray tell of a death only after the last retry.

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
    retried: int = 0
    result_bytes: int = 0
    shard_seconds: float = 0.0
    first: float = 0.0
    now: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of the run until it was last at work."""
        return max(0.0, self.now - self.started)

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
    repair: bool = False,
    shard_seconds: float | None = None,
    store_seconds: float = STORE_SECONDS,
    progress: Callable[[Progress], None] | None = None,
    metrics: str | Path | None = None,
) -> Progress:
    """Perform every shard that has no record yet.

    recipe, options of `make`: a "module:callable" and its arguments, JSON data.

    where           folder or address of the records (`Records`); all workers must reach it
    executor        "processes" (default), "loop" (here, one by one), "dask" and "ray" (local clusters), "array" (this
                    element's share: SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX of `workers` elements), or any
                    concurrent.futures.Executor, such as Dask's Client.get_executor()
    workers         how many; default: as many as a given executor says that it has, else the cores that this process
                    may use
    retries         how often a shard is tried again, after an error or the death of its worker: by Dask and Ray
                    themselves, else when all others have been tried. Then it has a record in crashed/, the run goes on,
                    and it is not tried again; `retry_crashed` does
    repair          first read every result: one that was changed, or describes what is no longer so, is set aside and
                    computed again, and so are crashed ones. While nobody else runs the job
    shard_seconds   how long a shard may take (default: an hour): its worker then ends itself, and the shard is tried
                    again. Where nobody answers for so long and a minute (ten at the start), shards under way are given
                    out again, and after `retries` such times the run ends. "loop" has nobody to end and refuses it,
                    threads of a given executor go on
    store_seconds   how long a store may fail (full, gone, slow) before its error ends the run
    progress        called after every shard
    metrics         a file that is rewritten, whole, every second in which shards end: `specgrad.scale.metrics`

    Errors while a job is made end the run: run it again, it goes on where it was. JobError if the records are of
    another job, or a given executor breaks; StoreError after `store_seconds`; WorkerError if nobody answers.
    """
    if executor == "loop" and shard_seconds is not None:
        raise ParameterError("run", "executor='loop' has no worker to end: shard_seconds needs another one")
    seconds = SHARD_SECONDS if shard_seconds is None else shard_seconds
    if not (seconds > 0 and store_seconds >= 0 and retries >= 0):
        raise ParameterError("run", "shard_seconds must be positive, store_seconds and retries not negative")
    records, text = Records(where), json.dumps(dict(options), sort_keys=True, allow_nan=False)
    job = make(recipe, json.loads(text))
    about = describe(job, recipe, json.loads(text))
    first = bind(records, about)
    mend = partial(_set_unsound_aside, records, job) if repair else None
    if hasattr(job, "begin"):
        job.begin(about["fingerprint"], mend, executor != "array", bool(records.names("results")))
    elif mend:
        mend()
    count, is_own = _workers_and_share(executor, workers)
    there = status(records)
    skipped = there.done if retry_crashed or repair else there.done | there.crashed
    todo = [i for i in range(job.count) if i not in skipped and is_own(i)]
    if not first and todo:  # perhaps beside another runner: begin elsewhere
        start = int.from_bytes(os.urandom(4)) % len(todo)
        todo = todo[start:] + todo[:start]
    state = Progress(job.count, len(there.done), time.monotonic(), crashed=len(there.crashed - set(todo)))
    order = Order("", recipe, text, about["fingerprint"], seconds, this_process())
    file = MetricsFile(metrics, str(records.where))
    file.write(state)

    def report(state: Progress) -> None:
        file.write(state, now=False)
        if progress is not None:
            progress(state)

    runner = _Runner(records, job, order, retries, store_seconds, state, report)
    LOG.info("%d shards to run of %d, on %s", len(todo), job.count, executor)
    try:
        if todo:
            runner.run_all(todo, executor, count)
    finally:
        getattr(job, "close", lambda: None)()
        state.now = time.monotonic()
        file.write(state)
    LOG.info("%d run in %.1f s, %d tried again, %d crashed", state.run, state.seconds, state.retried, state.crashed)
    return state


def _set_unsound_aside(records: Records, job: Job) -> None:
    """Set aside the results in `records` that were changed, or describe what is no longer so, as `job` says."""
    for i in unsound(records, getattr(job, "changes", lambda _: "")):
        records.set_aside(f"results/{i}")


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


class _EngineLostError(Exception):
    """Raised inside a run if nobody runs the workers any more: how that showed."""


class _Runner:
    """Runs the missing shards of one job: submits them, retries failures, waits for stores, records crashes.

    order          that of its workers, without the address of the records
    retries        how often a shard is tried again, and given out again where nobody answers
    store_seconds  how long a store may fail
    state          counts, which are kept up to date
    progress       is told them; None: nobody is
    """

    def __init__(
        self,
        records: Records,
        job: Job,
        order: Order,
        retries: int,
        store_seconds: float,
        state: Progress,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.records, self.job, self.order, self.retries = records, job, order, retries
        self.state, self.progress, self.backoff = state, progress or (lambda _: None), Backoff(store_seconds)
        self.failures: Counter[int] = Counter()
        self.left: dict[int, None] = {}
        self.lease = self.patience = self.notice = math.inf
        self.usual_silence, self.silences = 0.0, 0

    def run_all(self, todo: Iterable[int], executor: str | Executor, workers: int) -> None:
        """Run the shards in `todo` on so many workers; a cluster of ours that is lost is started again.

        JobError if an Executor that was given is lost, or another one again and again.
        """
        self.left = dict.fromkeys(todo)
        for attempt in itertools.count(1):
            with self._opened(executor, workers) as pool:
                how = self._run_on(pool, workers)
            if not self.left:
                return
            text = f"the executor broke with {len(self.left)} shards left ({how})"
            if isinstance(executor, Executor) or attempt > self.retries:
                raise JobError(f"{text}; run again with a new one")
            LOG.warning("%s; it is started again", text)

    def _opened(self, executor: str | Executor, workers: int) -> AbstractContextManager[Executor]:
        """Return the executor as a context manager, told what to do about calls that fail."""
        if executor == "loop":
            return opened(executor, workers, Care())
        self.order = replace(self.order, address=self.records.address)
        self.lease = self.order.seconds + GRACE_SECONDS
        self.notice, self.patience = (
            NOTICE_SECONDS,
            max(self.lease, START_SECONDS),
        )  # until somebody answers: workers take time to start
        return opened(executor, workers, Care(self.retries, self.lease, partial(prepare, self.order)))

    def _run_on(self, pool: Executor, workers: int) -> str:
        """Run all shards that are left on `pool` until they are done, or it is lost; return how it was lost, or ""."""
        self.pool, self.is_engine = pool, retries_itself(pool)
        self.queue, self.pending = deque(self.left), dict[Future[Done], int]()
        self.answers, self.heard = SimpleQueue[tuple[int, Future[Done]]](), time.monotonic()
        inline = isinstance(pool, InlineExecutor)
        most = 1 if inline else PENDING_OF_ENGINES if self.is_engine else PENDING_PER_WORKER * workers
        try:
            while self.left:
                self._submit_more(most)
                try:
                    self._handle(*self.answers.get(timeout=self._seconds_to_wait()))
                except Empty:
                    self._handle_silence()
        except _EngineLostError as lost:
            return str(lost)
        finally:
            for future in self.pending:
                future.cancel()
        return ""

    def _submit_more(self, most: int) -> None:
        """Submit shards of the queue until `most` are under way, unless the store is to be left alone for a while."""
        while self.queue and len(self.pending) < most and not self.backoff.seconds_left:
            i = self.queue.popleft()
            if i not in self.left:
                continue
            self.heard = self.heard if self.pending else time.monotonic()
            try:
                future = self._submit_shard(i)
            except (BrokenExecutor, RuntimeError) as error:
                raise _EngineLostError(f"{type(error).__name__}: {error}") from None
            self.pending[future] = i
            future.add_done_callback(partial(self._put_answer, i))

    def _put_answer(self, i: int, future: Future[Done]) -> None:
        """Queue the finished future of shard i for `_handle`."""
        self.answers.put((i, future))

    def _submit_shard(self, i: int) -> Future[Done]:
        """Submit shard i to the pool; inline, the job of this process is used."""
        if isinstance(self.pool, InlineExecutor):
            return self.pool.submit(_perform_shard, self.records, self.job, self.order.fingerprint, i)
        return self.pool.submit(perform, self.order, i)

    def _seconds_to_wait(self) -> float | None:
        """Return until when nothing is to be done unless an answer comes; None: without a limit."""
        until = self.heard + min(self.notice, self.patience) - time.monotonic() if self.pending else math.inf
        least = min(
            max(until, 0.0), self.backoff.seconds_left if self.queue and self.backoff.seconds_left else math.inf
        )
        return None if math.isinf(least) else least

    def _handle_silence(self) -> None:
        """Say for what the run waits; if that takes too long, give it out again, and in the end raise WorkerError."""
        silent = time.monotonic() - self.heard
        if not self.pending or silent < min(self.notice, self.patience):
            return
        waits = sorted(set(self.pending.values()))
        text = f"no answer for {silent:.0f} s; waiting for shard {', '.join(map(str, waits[:MAX_NAMED]))}"
        text += f" and {len(waits) - MAX_NAMED} more" if len(waits) > MAX_NAMED else ""
        if silent < self.patience:
            LOG.warning(text)
            self.notice = 2 * silent
            return
        self.silences += 1
        if self.silences > self.retries:
            raise WorkerError(f"{text}: nobody does it. Run again, it goes on; shard_seconds gives a shard more time")
        LOG.warning("%s; given to others", text)
        self.queue.extendleft(reversed(waits))  # the first answer counts: a record is created once
        self.pending, self.heard = {}, time.monotonic()

    def _handle(self, i: int, future: Future[Done]) -> None:
        """Count shard i as done, queue it again, or record that it crashed, as its finished future says."""
        now, was_pending = time.monotonic(), self.pending.pop(future, None) is not None
        self.usual_silence, self.heard, self.silences = max(self.usual_silence, now - self.heard), now, 0
        self.notice, self.patience = max(NOTICE_SECONDS, 2 * self.usual_silence), self.lease
        error = CancelledError() if future.cancelled() else future.exception()
        error = getattr(error, "cause", None) or error  # Ray's errors wrap what was raised
        if error is None:
            self.backoff.succeed()
            self._count_done(i, future.result())
        elif i not in self.left or not was_pending:
            return
        elif is_engine_loss(error):
            raise _EngineLostError(f"{type(error).__name__}: {error}".strip(": "))
        elif isinstance(error, StoreError):
            self.queue.append(i)
            self.backoff.fail(error)
        elif isinstance(error, ShardError) or is_death(error):
            self._handle_failure(i, error)
        else:
            raise error

    def _handle_failure(self, i: int, error: BaseException) -> None:
        """Queue shard i again after an error or a death, or record a crash after the last retry."""
        self.state.deaths += is_death(error)
        self.failures[i] += 1
        if not self.is_engine and self.failures[i] <= self.retries:
            self.state.retried += 1
            LOG.info("shard %d is tried again: %s", i, self._how(error), extra={"shard": i})
            self.queue.append(i)  # when all others have been tried: what was in its way may have passed
            return
        if is_death(error) and self.is_engine and not self.state.run:
            self._check_start()
        self._record_crash(i, self._how(error))

    def _how(self, error: BaseException) -> str:
        """Return in words how a shard failed in its last attempt."""
        if isinstance(error, ShardError):
            return str(error)
        too_long = f"took longer than {self.order.seconds:g} s"
        if self.is_engine:
            return f"its workers died ({type(error).__name__}), or it {too_long}"
        return f"it {too_long}" if str(error) == "SIGALRM" else f"its process died: {error}"

    def _check_start(self) -> None:
        """Raise JobError if a worker of Dask or Ray dies even before it has a shard: then no shard caused it."""
        try:
            self.pool.submit(prepare, self.order).result(self.patience)
        except Exception as error:
            if is_death(error):
                raise JobError(f"workers die before they have made the job: {type(error).__name__}") from None

    def _count_done(self, i: int, done: Done) -> None:
        """Count shard i as done, once, with what its worker said, and report the progress."""
        if i in self.left:
            del self.left[i]
            self.state.run += 1
            self.state.result_bytes += done.result_bytes
            self.state.shard_seconds += done.seconds
            LOG.debug("shard %d is done in %.3f s", i, done.seconds, extra={"shard": i})
            self._report_progress()
            if self.state.run == 1:
                self.state.first = self.state.now

    def _report_progress(self) -> None:
        """Set the time of `state` and call the progress callback."""
        self.state.now = time.monotonic()
        self.progress(self.state)

    def _record_crash(self, i: int, how: str) -> None:
        """Record that shard i crashed and `how`, as soon as the store can, and report it."""
        record = {"shard": i, "how": how, "attempts": 1 + self.retries}
        while True:
            try:
                with faults_named():
                    data = json.dumps(record).encode() + b"\n"
                    write_record(self.records, f"crashed/{i}", data, self.order.fingerprint)
                break
            except StoreError as error:
                self.backoff.fail(error)
                time.sleep(self.backoff.seconds_left)
        LOG.info("shard %d is given up: %s", i, how, extra={"shard": i})
        del self.left[i]
        self.state.crashed += 1
        self._report_progress()
