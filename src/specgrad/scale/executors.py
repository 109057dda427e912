"""Engines that exist, each behind `concurrent.futures.Executor`, and a process of its own for a suspect."""

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
from ..process.worker import end_with

DEATHS = frozenset({"KilledWorker", "WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError"})
"""Errors of Dask and Ray that say: not the work failed, its worker died."""
PERIOD, SILENCE = 5.0, 60.0  # seconds between two looks at Ray's machines, and until no answer is one
PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"  # of Ray, in the environment
SPAWN = multiprocessing.get_context("spawn")  # a fork would copy the locks of PyTorch's and JAX's threads


class WorkerDiedError(BrokenExecutor):
    """A process ended without an answer; its text says how."""


def is_death(error: BaseException) -> bool:
    return isinstance(error, BrokenExecutor) or type(error).__name__ in DEATHS


class InlineExecutor(Executor):
    """No worker at all: `submit` runs the work here and now."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **options))
        except Exception as error:
            future.set_exception(error)
        return future


def processes(workers: int) -> Executor:
    """Processes that end with this one, however it ends."""
    tied = threading.current_thread() is threading.main_thread()
    return ProcessPoolExecutor(workers, SPAWN, end_with, (os.getpid(), tied))


@contextmanager
def dask(workers: int) -> Iterator[Executor]:
    """A local cluster; for one that runs, give `Client(...).get_executor()` itself."""
    need("distributed", "executor='dask' needs")
    from distributed import Client, LocalCluster

    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client.get_executor(pure=False)


class RayExecutor(Executor):
    """Ray's tasks as futures. A worker that dies is an error of its task, and of no other.

    Ray waits for ever for tasks of a machine whose raylet was killed; where no machine is left, they are broken here.
    """

    def __init__(self) -> None:
        need("ray", "executor='ray' needs")
        import ray

        self.remote = ray.remote(max_retries=0)(_call)
        self._max_workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._flying: set[Future[Any]] = set()
        self._nodes: Callable[[], list[dict[str, Any]]] = ray.nodes
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = self.remote.remote(work, args, options).future()
        self._flying.add(future)
        future.add_done_callback(self._flying.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(PERIOD):
            if not self._is_alive():
                for future in tuple(self._flying):
                    with suppress(InvalidStateError):  # answered just now
                        future.set_exception(WorkerDiedError("Ray has no machine left, or does not answer"))

    def _is_alive(self) -> bool:
        """Whether Ray knows of a machine that is alive. It waits for ever for its own server, too."""
        said: SimpleQueue[bool] = SimpleQueue()

        def ask() -> None:
            with suppress(Exception):  # it was shut down meanwhile
                said.put(any(node["Alive"] for node in self._nodes()))

        threading.Thread(target=ask, daemon=True).start()
        try:
            return said.get(timeout=SILENCE)
        except Empty:
            return False


def ray_init(**options: Any) -> None:
    """Start or join a cluster, quietly. Ray would end this process with 1, which is "no", if its server died."""
    import ray

    os.environ.setdefault(PATIENCE, str(10**6))
    ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)


def _call(work: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return work(*args, **options)


@contextmanager
def ray(workers: int) -> Iterator[Executor]:
    """The cluster that `ray.init` has joined; a local one, if none."""
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


MAKERS: dict[str, Callable[[int], AbstractContextManager[Executor]]] = {
    "loop": lambda _: InlineExecutor(),
    "processes": processes,
    "array": processes,  # the workers of one element
    "dask": dask,
    "ray": ray,
}


def opened(executor: str | Executor, workers: int) -> AbstractContextManager[Executor]:
    """An executor by name, ended with the block; one that is given is left as it is."""
    if isinstance(executor, Executor):
        return nullcontext(executor)
    if executor not in MAKERS:
        text = f"executor must be one of {', '.join(MAKERS)}, or a concurrent.futures.Executor; got {executor!r}"
        raise ParameterError("run", text)
    return MAKERS[executor](workers)


def size_of(executor: Executor) -> int | None:
    """How many shards an executor runs at once; None: it does not say."""
    client = getattr(executor, "_client", None)  # Dask's
    if client is not None:
        return max(1, sum(map(int, client.nthreads().values())))
    size: int | None = getattr(executor, "_max_workers", None)
    return size


# --- one process, one shard at a time ---------------------------------------------------------------------------------


class IsolatedWorker:
    """A process of its own, started when first needed and again after a death: whoever runs there dies of itself."""

    def __init__(self) -> None:
        self._process: Any = None
        self._line: Any = None

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """What the work returns or raises; WorkerDiedError: signal or exit code."""
        if self._process is None:
            self._line, theirs = SPAWN.Pipe()
            self._process = SPAWN.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
            self._process.start()
            theirs.close()
        try:
            self._line.send((work, args))
            result, error = self._line.recv()
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


def _serve(line: Any, parent: int) -> None:
    end_with(parent, False)
    while True:
        try:
            work, args = line.recv()
        except EOFError:
            return
        answer: tuple[Any, Exception | None]
        try:
            answer = work(*args), None
        except Exception as error:
            answer = None, error
        line.send(answer)
