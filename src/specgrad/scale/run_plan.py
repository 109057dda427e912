"""Runs the tiles of a plan from store to store, as a job whose records lie beside the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import chain
from typing import Any, TypedDict

import numpy as np

from ..errors import ParameterError, ShapeError, UnsupportedError
from ..graph.ir.tree import match
from .job_status import JobError, bind, unsound, write_record
from .jobs import Progress, crashes, describe, results, status
from .jobs import run as run_job
from .plan_file import arguments_of, blueprint_of, compute_dtype
from .record_store import Records
from .stores.array_files import refuse_other_job
from .tile_job import TileJob, changes, from_npy, to_npy
from .torch_devices import cuda_names
from .zarr_arrays import Store, cast, is_address, open_source, open_target

RECIPE = "specgrad.scale.worker_entry:tile_job"

RUN_OPTIONS: tuple[str, ...] = ("executor", "workers", "retries", "retry_crashed", "shard_seconds", "store_seconds")
RUN_OPTIONS += ("progress", "metrics")


class Options(TypedDict, total=False):
    """Keyword options of `Plan.run`.

    executor        "processes" (default), "loop", "dask", "ray", "array", or a concurrent.futures.Executor; workers,
                    retries, retry_crashed, shard_seconds, store_seconds, progress and metrics (a file; of the pass that
                    runs): see `specgrad.scale.jobs.run`
    engine          "torch" (default, on one thread per worker), "jax", or "numpy": the specification
    device          of engine "torch": "cpu" (default), or "cuda": a process per device. Never run on CUDA by us
    compute         the type of floats that the engine is given; default: that of the weights, else of the source. A
                    source that does not fit it exactly is refused unless it is given
    dtype           of a target that is made, one for all or one per output; default: `compute`, int64 for indices. If
                    given, floats are rounded to it; a cell that is no number of an integer type is an error
    folder          where the records lie: a folder or an address; default: the first target's address and ".job"
    fill_missing    take the fill value for chunks that a source lacks, which are else refused
    repair          compute again what `damaged` names: tiles whose record, source or target was changed since, and
                    crashed ones. While nobody else runs the job
    """

    executor: str | Executor
    workers: int | None
    retries: int
    retry_crashed: bool
    shard_seconds: float | None
    store_seconds: float
    progress: Callable[[Progress], None] | None
    metrics: Any
    engine: str
    device: str
    compute: Any
    dtype: Any
    folder: Any
    fill_missing: bool
    repair: bool


def run(plan: Any, args: Sequence[Any], options: Options) -> Progress:
    """Run all passes and tiles of a plan on its sources, into its targets; see `Plan.run`.

    UnsupportedError for passes in an array job.
    """
    engine, executor = options.get("engine", "torch"), options.get("executor", "processes")
    given, addresses = _split_args_and_targets(plan, args)
    arguments = arguments_of(given)
    sources = {p: open_source(name, where, plan.graph.nodes[p].shape) for p, (name, where) in addresses.items()}
    real = {s.name: s.dtype for p, s in sources.items() if plan.graph.nodes[p].kind == "real"}
    compute = compute_dtype(arguments, real, options.get("compute"))
    blueprint = blueprint_of(plan, arguments, engine, compute, options.get("device", "cpu"))
    targets, rounded = targets_of(plan, args[len(plan.graph.inputs) :], compute, options.get("dtype"))
    records = Records(options.get("folder") or _default_folder(next(iter(targets.values()))))
    stores = [[[p, s.name, s.address] for p, s in group.items()] for group in (sources, targets)]
    recipe: dict[str, Any] = {"folder": records.address, "sources": stores[0], "targets": stores[1]}
    recipe["rounded"] = rounded
    final = TileJob(plan, blueprint, sources, targets, rounded, None)
    passes = range(0 if blueprint.arrays_of("known") else len(plan.statistics))
    if passes and executor == "array":
        text = "every pass needs all tiles of the one before, which no element of an array has: call plan.measure first"
        raise UnsupportedError("run", text)
    about = describe(final, RECIPE, recipe | {"stage": None})
    for store in targets.values() if not records.has("job.json") else ():
        refuse_other_job(store, about["fingerprint"])
    bind(records, about)  # before anything is written there
    repair = options.get("repair", False)
    mend = partial(_set_damaged_aside, records, plan.statistics) if repair else None
    started = any(Records(place).names("results") for place in (records, *_passes_of(records, plan.statistics)))
    final.claim(about["fingerprint"], mend, options.get("fill_missing", False), executor != "array", started)
    blueprint.write(records, about["fingerprint"])
    how: dict[str, Any] = {key: value for key, value in options.items() if key in RUN_OPTIONS}
    how["retry_crashed"] = repair or options.get("retry_crashed", False)
    if blueprint.device == "cuda" and executor == "processes":
        how["workers"] = how.get("workers") or len(cuda_names())
    for k in passes:
        place = _passes_of(records, plan.statistics)[k]
        _raise_if_crashed(run_job(RECIPE, recipe | {"stage": k}, place, **how), place)
        arrays = (data.partition(b"\n")[2] for _, data in results(place))
        parts = [from_npy(array) for array in arrays if array]
        known = to_npy(final.runner.combine(k, parts))
        write_record(records, f"known/{plan.statistics[k]}", known, about["fingerprint"])
    return _raise_if_crashed(run_job(RECIPE, recipe | {"stage": None}, records.address, **how), records.address)


def _split_args_and_targets(plan: Any, args: Sequence[Any]) -> tuple[dict[int, Any], dict[int, tuple[str, Any]]]:
    """Return two tables by node position: arguments that are arrays, and (name, address) of those in a store.

    `args` are those of a run: the graph's arguments, then a target per output, which are counted and left out.
    ShapeError for another number of them, and for an array of another shape. `plan` is a Plan.
    """
    graph, count = plan.graph, len(plan.graph.inputs)
    if len(args) != count + len(graph.outputs):
        text = f"takes {count} arguments ({', '.join(graph.names)}), then {len(graph.outputs)} targets"
        raise ShapeError("run", f"{text}; got {len(args)} in all")
    return split_args(plan, args[:count])


def split_args(plan: Any, args: Sequence[Any]) -> tuple[dict[int, Any], dict[int, tuple[str, Any]]]:
    """Return the arguments `args` of a plan's graph by position: arrays, and (name, address) of those in a store.

    ShapeError for an array of another shape.
    """
    graph, given, addresses = plan.graph, dict[int, Any](), dict[int, tuple[str, Any]]()
    for name, pattern, arg in zip(graph.names, graph.inputs, args, strict=True):
        for path, p, value in match(pattern, arg, name):
            if is_address(value):
                addresses[p] = path, value
            elif tuple(np.shape(value)) != graph.nodes[p].shape:
                raise ShapeError("run", f"{path} must have shape {graph.nodes[p].shape}; got {tuple(np.shape(value))}")
            else:
                given[p] = value
    return given, addresses


def targets_of(
    plan: Any, args: Sequence[Any], compute: np.dtype[Any], requested: Any
) -> tuple[dict[int, Store], list[int]]:
    """Open or create the target stores `args` of a plan's outputs, in the type `requested` (None: `compute`, that of
    the engine).

    ParameterError for a target that is none, is given twice, or holds another type than asked for.

    Return them by output position, and the outputs that may be rounded (dtype given).
    """
    graph, stores, rounded = plan.graph, dict[int, Store](), list[int]()
    pairs = zip(graph.outputs, args, strict=True)
    leaves = list(chain.from_iterable(match(tree, arg, f"target {k}") for k, (tree, arg) in enumerate(pairs)))
    types = (
        [requested] * len(leaves)
        if requested is None or isinstance(requested, str | type | np.dtype)
        else list(requested)
    )
    if len(types) != len(leaves):
        raise ParameterError(
            "run", f"dtype must be one type, or one for each of {len(leaves)} outputs; got {requested!r}"
        )
    for (path, p, where), given in zip(leaves, types, strict=True):
        node = graph.nodes[p]
        if p in stores or not is_address(where):
            text = (
                "is an output that another target has"
                if p in stores
                else f"must be an address; got {type(where).__name__}"
            )
            raise ParameterError("run", f"{path} {text}")
        dtype = np.dtype(given if given is not None else compute if node.kind == "real" else np.int64)
        stores[p] = open_target(node.name, where, plan.boxes_along_axes(p), node.shape, dtype)
        if given is not None and stores[p].dtype != dtype:
            raise ParameterError("run", f"{path} holds {stores[p].dtype}; dtype={str(dtype)!r} was asked for")
        cast(np.zeros(0, dtype), stores[p].dtype, False, node.name)  # refused here, and not tile by tile
        rounded += [] if given is None else [p]
    return stores, rounded


def _default_folder(store: Store) -> str:
    """Return the folder of the records beside a target: its address with ".job" appended.

    ParameterError for a target that is a spec.
    """
    if isinstance(store.address, str):
        return f"{store.address}.job"
    raise ParameterError("run", "a target that is a spec has no folder beside it: give folder=")


def _passes_of(records: Records, statistics: Sequence[int]) -> list[str]:
    """Return the places of the records of all passes of a run, one for each node of `statistics`."""
    return [f"{records.address}/pass-{k}" for k in range(len(statistics))]


def _raise_if_crashed(state: Progress, where: Any) -> Progress:
    """Return `state` if no tile crashed; JobError otherwise, with the first crash recorded in `where`."""
    if state.crashed:
        first = next(crashes(where))
        text = f"{state.crashed} of {state.count} tiles have no result: tile {first['shard']}: {first['how']}"
        raise JobError(f"{text}. Run again with retry_crashed=True when the cause is gone")
    return state


def damaged(folder: Any) -> dict[int, str]:
    """Return {tile: why} for the records in `folder`, those of a run or of one of its passes, that are no longer so.

    Those are records that were changed, and tiles whose target holds other cells than were written, or whose source
    holds other cells than were read. Everything is read again. JobError if no job is there.
    """
    given = status(folder).about["options"]
    sources, targets = ([Store(name, where) for _, name, where in given[group]] for group in ("sources", "targets"))
    return unsound(folder, lambda data: changes(sources, targets, data))


def _set_damaged_aside(records: Records, statistics: Sequence[int]) -> None:
    """Set aside what `damaged` names in the records of a run, and all that was computed from a pass that has some.

    `statistics` are the nodes that the passes compute.
    """
    stale = False
    for place, p in zip(map(Records, _passes_of(records, statistics)), statistics, strict=True):
        if place.has("job.json"):
            stale = _set_shards_aside(place, stale) or stale
        if stale:
            records.set_aside(f"known/{p}")
    _set_shards_aside(records, stale)


def _set_shards_aside(records: Records, every: bool) -> bool:
    """Set aside the damaged results of a job, or `every` one; return whether there were any."""
    shards = status(records).done if every else damaged(records)
    for i in shards:
        records.set_aside(f"results/{i}")
    return bool(shards)
