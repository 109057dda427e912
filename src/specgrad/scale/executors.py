"""Executors of shards (inline, processes, Dask, Ray) behind `concurrent.futures.Executor`, and an isolated worker."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, InvalidStateError, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from ..errors import ParameterError, need
from ..process.worker import end_with_parent

WORKER_DEATH_ERRORS = frozenset(
    {"KilledWorker", "WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError"}
)
"""Errors of Dask and Ray that say: not the work failed, its worker died."""
POLL_SECONDS, NO_ANSWER_SECONDS = 5.0, 60.0  # seconds between two looks at Ray's machines, and until no answer is one
RECONNECT_VARIABLE = "RAY_gcs_rpc_server_reconnect_timeout_s"  # of Ray, in the environment
SPAWN = multiprocessing.get_context("spawn")  # a fork would copy the locks of PyTorch's and JAX's threads


class WorkerDiedError(BrokenExecutor):
    """Raised when a process ended without an answer; the text is its signal or exit code."""


def is_death(error: BaseException) -> bool:
    """Return whether an error says that the worker died, rather than that its work raised."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ in WORKER_DEATH_ERRORS


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


def processes(workers: int) -> Executor:
    """Return a pool of `workers` spawned processes that end when this process ends."""
    tied = threading.current_thread() is threading.main_thread()
    return ProcessPoolExecutor(workers, SPAWN, end_with_parent, (os.getpid(), tied))


@contextmanager
def dask(workers: int) -> Iterator[Executor]:
    """Yield the executor of a local Dask cluster of `workers` processes, ended with the block.

    MissingPackageError without dask.
    """
    need("distributed", "executor='dask' needs")
    from distributed import Client, LocalCluster

    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client.get_executor(pure=False)


class RayExecutor(Executor):
    """Executor that runs Ray tasks as futures; if a worker dies, only the future of its task fails.

    Ray waits for ever for tasks of a machine whose raylet was killed; where no machine is left, they are broken here.
    """

    def __init__(self) -> None:
        need("ray", "executor='ray' needs")
        import ray

        self.remote = ray.remote(max_retries=0)(_call_work)
        self._max_workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._pending: set[Future[Any]] = set()
        self._nodes: Callable[[], list[dict[str, Any]]] = ray.nodes
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Call work(*args, **options) on the cluster; return a future, which fails if the cluster dies."""
        future: Future[Any] = self.remote.remote(work, args, options).future()
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop watching the cluster; calls under way are neither waited for nor cancelled, whatever `wait` and
        `cancel_futures` say.
        """
        self._stopped.set()

    def _watch(self) -> None:
        """Until shutdown, poll Ray; if it has no live machine, fail all pending futures with WorkerDiedError."""
        while not self._stopped.wait(POLL_SECONDS):
            if not self._is_cluster_alive():
                for future in tuple(self._pending):
                    with suppress(InvalidStateError):  # answered just now
                        future.set_exception(WorkerDiedError("Ray has no machine left, or does not answer"))

    def _is_cluster_alive(self) -> bool:
        """Return whether Ray reports a live machine within NO_ANSWER_SECONDS; Ray itself would wait for ever."""
        alive: SimpleQueue[bool] = SimpleQueue()

        def ask() -> None:
            with suppress(Exception):  # it was shut down meanwhile
                alive.put(any(node["Alive"] for node in self._nodes()))

        threading.Thread(target=ask, daemon=True).start()
        try:
            return alive.get(timeout=NO_ANSWER_SECONDS)
        except Empty:
            return False


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
def ray(workers: int) -> Iterator[Executor]:
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
        with RayExecutor() as executor:
            yield executor
    finally:
        if ours:
            ray.shutdown()


EXECUTORS: dict[str, Callable[[int], AbstractContextManager[Executor]]] = {
    "loop": lambda _: InlineExecutor(),
    "processes": processes,
    "array": processes,  # the workers of one element
    "dask": dask,
    "ray": ray,
}


def opened(executor: str | Executor, workers: int) -> AbstractContextManager[Executor]:
    """Return the executor of this name with so many workers as a context manager; an Executor itself is returned
    unchanged and left open.

    ParameterError for an unknown name.
    """
    if isinstance(executor, Executor):
        return nullcontext(executor)
    if executor not in EXECUTORS:
        text = f"executor must be one of {', '.join(EXECUTORS)}, or a concurrent.futures.Executor; got {executor!r}"
        raise ParameterError("run", text)
    return EXECUTORS[executor](workers)


def size_of(executor: Executor) -> int | None:
    """Return how many shards an executor runs at once, or None if it does not tell."""
    client = getattr(executor, "_client", None)  # Dask's
    if client is not None:
        return max(1, sum(map(int, client.nthreads().values())))
    size: int | None = getattr(executor, "_max_workers", None)
    return size


# --- one process, one shard at a time ---------------------------------------------------------------------------------


class IsolatedWorker:
    """A separate process that runs one call at a time; started when needed, and restarted after it died."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Any = None

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Return what `work(*args)` returns there, or raise what it raises; WorkerDiedError if the process died.

        The process is started at the first call, and at the first one after its death.
        """
        if self._process is None:
            self._pipe, theirs = SPAWN.Pipe()
            self._process = SPAWN.Process(target=_serve_calls, args=(theirs, os.getpid()), daemon=True)
            self._process.start()
            theirs.close()
        try:
            self._pipe.send((work, args))
            result, error = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            code, self._process = self._process.exitcode, None
            raise WorkerDiedError(signal.Signals(-code).name if code < 0 else f"exit code {code}") from None
        if error is not None:
            raise error
        return result

    def __enter__(self) -> IsolatedWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()


def _serve_calls(pipe: Any, parent: int) -> None:
    """Answer calls (work, args) from the pipe with (result, error), until it closes; ends with the parent process."""
    end_with_parent(parent, False)
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
