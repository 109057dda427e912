"""The outputs of a plan as lazy dask arrays: one block per tile, each reading its own window."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError, UnsupportedError, need
from ..graph.ir.tree import transform
from ..partition.spatial_axes import data_positions
from ..scalar import Array
from ..window.footprint import Box, lengths, slices
from .jobs import make
from .plan_file import Blueprint, arguments_of, blueprint_of, compute_dtype
from .run_plan import split_args
from .tile_job import TileRunner
from .zarr_arrays import Store, address_of, always_fits

_runners: dict[str, TileRunner] = {}
_runner_lock = threading.Lock()


def dask_outputs(plan: Any, args: Sequence[Any], engine: str, compute: Any) -> Any:
    """Return the outputs of a plan as lazy dask arrays in the structure of the graph's; see `Plan.dask`.

    ShapeError for another number of arguments, UnsupportedError if `Plan.measure` is needed before. `engine` computes
    tiles in the number type `compute`.
    """
    need("dask", "plan.dask needs")
    import dask.array as da
    from dask.delayed import delayed

    graph = plan.graph
    if len(args) != len(graph.inputs):
        raise ShapeError("dask", f"takes {len(graph.inputs)} arguments ({', '.join(graph.names)}); got {len(args)}")
    if plan.statistics and not plan.programs.known:
        raise UnsupportedError("dask", "layers read everything: call plan.measure with the same arguments first")
    given, addresses = split_args(plan, args)
    data = set(data_positions(graph))
    blocks: dict[int, Any] = {p: da.asarray(given.pop(p)) for p in sorted(data & given.keys())}
    for p, (name, where) in addresses.items():
        store = Store(name, address_of(where))
        blocks[p] = da.from_array(
            _StoreView(name, store), chunks=store.write_chunk, name=f"{name}-{store.identity['metadata']}"
        )
    arguments = arguments_of(given)
    real = {graph.nodes[p].name: a.dtype for p, a in blocks.items() if graph.nodes[p].kind == "real"}
    blueprint = blueprint_of(plan, arguments, engine, compute_dtype(arguments, real, compute))
    shared, computed = delayed(blueprint, traverse=False), delayed(_compute_tile)
    parts: dict[int, dict[Box, Any]] = {p: {} for p in plan.outputs}
    for k, tile in enumerate(plan):
        read = {p: delayed(blocks[p][slices(tile.needed(p))]) for p in blocks if p in tile.cut.needs}
        results = computed(shared, k, read)
        for p in tile.cut.boxes:
            dtype = blueprint.compute if graph.nodes[p].kind == "real" else np.dtype(np.int64)
            parts[p][tile.boxes[p]] = da.from_delayed(results[p], lengths(tile.boxes[p]), dtype)
    arrays = {p: da.block(_nested_blocks(cells)) for p, cells in parts.items()}
    tree = transform(lambda _, p: arrays[p], graph.outputs)
    return tree[0] if graph.single else tree


class _StoreView:
    """A store, called `name`, as an array that dask can slice; the store is opened again in the process that reads."""

    def __init__(self, name: str, store: Store) -> None:
        self.name, self.address = name, store.address
        self.shape, self.dtype, self.ndim = store.shape, store.dtype, len(store.shape)

    def __getitem__(self, index: Any) -> Array:
        cells: Array = Store(self.name, self.address).array[index].read(order="C").result()
        return cells


def _nested_blocks(cells: dict[Box, Any]) -> Any:
    """Return the blocks, `cells` by box, as nested lists for `da.block`, ordered by where their boxes begin on each
    axis.
    """
    first = next(iter(cells))
    starts = [sorted({box[axis][0] for box in cells}) for axis in range(len(first))]
    grid = np.empty([len(s) for s in starts], dtype=object)
    for box, array in cells.items():
        grid[tuple(s.index(a) for s, (a, _) in zip(starts, box, strict=True))] = array
    return grid.tolist()


def _compute_tile(blueprint: Blueprint, k: int, read: dict[int, Array]) -> dict[int, Array]:
    """Return the outputs of tile k by position, from the data that it reads.

    The plan of the `blueprint` is built once per worker process. ParameterError if the declared type would round the
    results.
    """
    key = json.dumps(blueprint.identity, sort_keys=True)
    with _runner_lock:  # dask's threads ask for it all at once
        runner = _runners.get(key)
        if runner is None:
            plan: Any = make("specgrad.scale.worker_entry:plan_of", {"blueprint": blueprint})
            runner = TileRunner(plan, blueprint)
            _runners.clear()  # of the plan before
            _runners[key] = runner
    with runner.without_gradients():
        dtype, nodes = runner.compute, runner.plan.graph.nodes
        values = runner.run(runner.plan[k], read)
        kinds = {p: dtype if nodes[p].kind == "real" else np.dtype(np.int64) for p in values}
        return {p: _cast_to_declared(runner.array(v), kinds[p], nodes[p].name) for p, v in values.items()}


def _cast_to_declared(cells: Array, dtype: np.dtype[Any], name: str) -> Array:
    """Return the cells of the output `name` in the type that dask was told in advance; ParameterError if that would
    round them.
    """
    if not always_fits(cells.dtype, dtype):
        raise ParameterError("dask", f"{name} is computed in {cells.dtype}: give compute={str(cells.dtype)!r}")
    return cells.astype(dtype, copy=False)
