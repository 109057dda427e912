"""Runs a campaign on an executor, local or on a cluster that is already running."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import need
from .. import jobs
from ..executors import RayExecutor, ray_init
from .keys import CampaignError
from .spec import RECIPE, Spec


def run(
    spec: Spec,
    *,
    executor: str | Executor = "processes",
    workers: int | None = None,
    address: str | None = None,
    retries: int = 2,
    retry_crashed: bool = False,
    repair: bool = False,
    shard_seconds: float | None = None,
    store_seconds: float = jobs.STORE_SECONDS,
    progress: Callable[[jobs.Progress], None] | None = None,
    metrics: str | Path | None = None,
) -> jobs.Progress:
    """Run every shard that has no record yet; see `specgrad.scale.jobs.run`.

    CampaignError for an `address` that nobody answers at, or beside an executor other than dask or ray.

    address   of a Dask scheduler (tcp://...) or a Ray cluster (auto, ray://...) that runs; default: a local one
    executor  where shards run, with workers (how many), retries (of a failed shard), retry_crashed (whether shards
              that were given up are tried), repair (of changed records), shard_seconds (that one may take) and
              store_seconds (that a store may fail): those of `specgrad.scale.jobs.run`
    progress  is told the state after every shard
    metrics   a file of OpenMetrics text, see `specgrad.scale.metrics`
    """
    options: dict[str, Any] = {"retries": retries, "retry_crashed": retry_crashed, "repair": repair}
    options |= {"shard_seconds": shard_seconds, "store_seconds": store_seconds, "metrics": metrics}
    with _executor_at(executor, address) as there:
        return jobs.run(
            RECIPE, spec.recipe(), spec.folder, executor=there, workers=workers, progress=progress, **options
        )


@contextmanager
def _executor_at(executor: str | Executor, address: str | None) -> Iterator[str | Executor]:
    """Yield `executor` unchanged without an address, else one that is connected to the cluster there.

    CampaignError if none answers there, or for another executor than dask or ray.
    """
    if address is None:
        yield executor
    elif executor == "dask":
        need("distributed", "executor='dask' needs")
        from distributed import Client

        make: Any = Client
        try:
            client = make(address, timeout=10)
        except (OSError, ValueError) as error:
            raise CampaignError(f"no Dask scheduler answers at {address}: {error}") from None
        with client:
            yield client.get_executor(pure=False)
    elif executor == "ray":
        need("ray", "executor='ray' needs")
        import ray

        try:
            ray_init(address=address)
        except (ConnectionError, ValueError) as error:
            raise CampaignError(f"no Ray cluster answers at {address}: {error}") from None
        try:
            yield RayExecutor()
        finally:
            ray.shutdown()
    else:
        raise CampaignError(f"an address goes with executor dask or ray; got {executor}")
