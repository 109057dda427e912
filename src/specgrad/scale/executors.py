"""Executors of shards (inline, processes, Dask, Ray) behind `concurrent.futures.Executor`.

Dask and Ray retry, count deaths and lose machines as they do; the processes here name the call that each death ended.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any

from ..errors import ParameterError, need
from ..process.worker import end_with_parent
from .job_status import JobError

WORKER_DEATH_ERRORS = frozenset({"KilledWorker", "WorkerCrashedError", "NodeDiedError", "OutOfMemoryError"})
"""Errors of Dask and Ray that say: not the work failed, its worker died, as often as their own retries allow."""
ENGINE_LOSS_ERRORS = frozenset({"LocalRayletDiedError", "RaySystemError", "CommClosedError"})
"""Errors that say: the process that runs the workers is gone, or does not answer."""
START_ATTEMPTS, START_SECONDS = 3, 600.0  # of a process that dies before it has begun, and until it has
END_SECONDS = 10  # for a process that was killed
RECONNECT_VARIABLE = "RAY_gcs_rpc_server_reconnect_timeout_s"  # of Ray, in the environment
SPAWN = multiprocessing.get_context("spawn")  # a fork would copy the locks of PyTorch's and JAX's threads

_starting = (
    threading.Lock()
)  # to start a process collects those that ended: not while another thread asks for their code


class WorkerDiedError(RuntimeError):
    """Raised when a process ended without an answer; the text is its signal or exit code."""


class ShardError(RuntimeError):
    """Raised in a worker if a shard raises an error, of which this is the text; Dask and Ray try again."""


def is_death(error: BaseException) -> bool:
    """Return whether an error says that the worker died, rather than that its work raised."""
    return isinstance(error, WorkerDiedError) or type(error).__name__ in WORKER_DEATH_ERRORS


def is_engine_loss(error: BaseException) -> bool:
    """Return whether an error says that the executor as a whole is lost."""
    return isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ in ENGINE_LOSS_ERRORS


@dataclass(frozen=True)
class Care:
    """What an executor is told of its calls.

    retries   how often Dask and Ray try a call again
    seconds   how long a worker may be silent in a call: the time of a shard, and some grace
    first     what a new process calls before anything else, if that is not None
    """

    retries: int = 0
    seconds: float | None = None
    first: Callable[[], Any] | None = None


DEFAULT_CARE = Care()


class InlineExecutor(Executor):
    """Executor without workers: `submit` runs the work at once in this process."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Call work(*args, **options) here and now; return a finished future with its result or error."""
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **options))
        except Exception as error:
            future.set_exception(error)
        return future


class WorkerProcess:
    """A separate process that runs one call at a time; started when needed, and again after it died."""

    def __init__(self, care: Care = DEFAULT_CARE) -> None:
        self._care, self._is_closed = care, False
        self._process: Any = None
        self._pipe: Any = None

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Return what `work(*args)` returns there, or raise what it raises; WorkerDiedError if the process died.

        A process that is silent for too long is killed. JobError if new ones die before they can begin.
        """
        if self._process is None:
            self._start()
        return self._ask(self._care.seconds, work, *args)

    def _start(self) -> None:
        """Start the process and let it make its first call; JobError if it dies in that, again and again."""
        how = ""
        for _ in range(START_ATTEMPTS):
            self._pipe, theirs = SPAWN.Pipe()
            process = SPAWN.Process(target=_serve_calls, args=(theirs, os.getpid()), daemon=True)
            with _starting:
                process.start()
            self._process = process
            theirs.close()
            if self._is_closed:
                self._kill()
                raise WorkerDiedError("closed")
            if self._care.first is None:
                return
            try:
                self._ask(START_SECONDS, self._care.first)
                return
            except WorkerDiedError as error:
                how = str(error)
        text = 'a script that runs jobs must do so under `if __name__ == "__main__":`, since workers import it too'
        raise JobError(f"workers die before they have made the job: {how}; {text}")

    def _ask(self, seconds: float | None, work: Callable[..., Any], *args: Any) -> Any:
        """Return the answer of the process to one call, or raise its error; WorkerDiedError if there is none
        within so many seconds (None: without a limit).
        """
        try:
            self._pipe.send((work, args))
            if not self._pipe.poll(seconds):
                self._kill()
                raise WorkerDiedError(f"no answer within {seconds:g} s")
            result, error = self._pipe.recv()
        except (EOFError, OSError):
            raise WorkerDiedError(self._end()) from None
        if error is not None:
            raise error
        return result

    def _end(self) -> str:
        """Wait for the process, which ends or has ended, and return its signal or exit code as text."""
        process, self._process = self._process, None
        if not wait([process.sentinel], END_SECONDS):  # the system cannot end it: it is left behind
            process.kill()
            return "it does not end"
        with _starting:
            process.join(END_SECONDS)
        code = process.exitcode
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._end()

    def close(self) -> None:
        """Kill the process, also in the midst of a call of another thread, and any that is started later."""
        self._is_closed = True
        if (process := self._process) is not None:
            process.kill()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._process is not None:
            self._end()


def _serve_calls(pipe: Any, parent: int) -> None:
    """Answer calls (work, args) from the pipe with (result, error), until it closes; ends with the thread that
    started it.
    """
    end_with_parent(parent, True)
    while True:
        try:
            work, args = pipe.recv()
        except EOFError:
            return
        answer: tuple[Any, Exception | None]
        try:
            answer = work(*args), None
        except Exception as error:
            answer = None, error
        pipe.send(answer)


class ProcessExecutor(ThreadPoolExecutor):
    """Executor of so many processes, each behind a thread: a death ends the one call that it ran, and nothing else."""

    def __init__(self, workers: int, care: Care) -> None:
        super().__init__(workers)
        self._care, self._local, self._processes = care, threading.local(), list[WorkerProcess]()

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Call work(*args) in the next process that is free; return a future, which fails if that process dies."""
        return super().submit(self._call, work, *args, **options)

    def _call(self, work: Callable[..., Any], *args: Any) -> Any:
        """Return work(*args) from the process of this thread."""
        if not hasattr(self._local, "process"):
            self._local.process = WorkerProcess(self._care)
            self._processes.append(self._local.process)
        return self._local.process.run(work, *args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes, whatever they do; `wait` until they have ended, and calls that have not begun are
        cancelled whatever `cancel_futures` says.
        """
        super().shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.close()
        super().shutdown(wait=wait)
        for process in self._processes if wait else ():
            process.__exit__(None, None, None)


@contextmanager
def dask(workers: int, care: Care) -> Iterator[Executor]:
    """Yield the executor of a local Dask cluster of `workers` processes, ended with the block.

    A worker has one call at a time, so that a death is blamed on that one. MissingPackageError without dask.
    """
    need("distributed", "executor='dask' needs")
    import dask
    from distributed import Client, LocalCluster

    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    settings: dict[str, Any] = {"allowed-failures": care.retries, "worker-saturation": 1.0}
    settings |= {"worker-ttl": f"{care.seconds} s"} if care.seconds else {}
    with (
        dask.config.set({f"distributed.scheduler.{key}": value for key, value in settings.items()}),
        LocalCluster(**options) as cluster,
        Client(cluster) as client,
    ):
        yield dask_executor(client, care)


def dask_executor(client: Any, care: Care) -> Executor:
    """Return the executor of a Dask client, with Dask's own retries."""
    executor: Executor = client.get_executor(pure=False, retries=care.retries)
    return executor


class RayExecutor(Executor):
    """Executor that runs Ray tasks as futures, with Ray's own retries after errors, deaths and lost machines."""

    def __init__(self, care: Care = DEFAULT_CARE) -> None:
        need("ray", "executor='ray' needs")
        import ray

        self._task = ray.remote(max_retries=care.retries, retry_exceptions=[ShardError])(_call_work)
        self._max_workers = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Call work(*args, **options) on the cluster; return a future."""
        future: Future[Any] = self._task.remote(work, args, options).future()
        return future


def ray_init(**options: Any) -> None:
    """Start or join a Ray cluster, with options of ray.init, without log output, and without Ray ending this process if
    its server dies.
    """
    import ray

    os.environ.setdefault(RECONNECT_VARIABLE, str(10**6))
    ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)


def _call_work(work: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return work(*args, **options): a Ray worker runs this."""
    return work(*args, **options)


@contextmanager
def ray(workers: int, care: Care) -> Iterator[Executor]:
    """Yield an executor on the cluster that `ray.init` has joined, or on a local one of so many workers that ends with
    the block.

    MissingPackageError without ray.
    """
    need("ray", "executor='ray' needs")
    import ray

    ours = not ray.is_initialized()
    if ours:
        path = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}  # workers import what we can
        ray_init(runtime_env=path, num_cpus=workers, include_dashboard=False)
    try:
        yield RayExecutor(care)
    finally:
        if ours:
            ray.shutdown()


EXECUTORS: dict[str, Callable[[int, Care], AbstractContextManager[Executor]]] = {
    "loop": lambda *_: InlineExecutor(),
    "processes": ProcessExecutor,
    "array": ProcessExecutor,  # the workers of one element
    "dask": dask,
    "ray": ray,
}


def opened(executor: str | Executor, workers: int, care: Care) -> AbstractContextManager[Executor]:
    """Return the executor of this name with so many workers as a context manager; an Executor itself is left open.

    Those of Dask and Ray are made again on the same cluster, with `care`. ParameterError for an unknown name.
    """
    if isinstance(executor, RayExecutor):
        return nullcontext(RayExecutor(care))
    if isinstance(executor, Executor):
        client = getattr(executor, "_client", None)  # Dask's
        return nullcontext(executor if client is None else dask_executor(client, care))
    if executor not in EXECUTORS:
        text = f"executor must be one of {', '.join(EXECUTORS)}, or a concurrent.futures.Executor; got {executor!r}"
        raise ParameterError("run", text)
    return EXECUTORS[executor](workers, care)


def retries_itself(executor: Executor) -> bool:
    """Return whether an executor tries failed calls again by itself: Dask's and Ray's do."""
    return isinstance(executor, RayExecutor) or hasattr(executor, "_client")


def size_of(executor: Executor) -> int | None:
    """Return how many shards an executor runs at once, or None if it does not tell."""
    client = getattr(executor, "_client", None)  # Dask's
    if client is not None:
        return max(1, sum(map(int, client.nthreads().values())))
    size: int | None = getattr(executor, "_max_workers", None)
    return size
