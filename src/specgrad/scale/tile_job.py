"""The tiles of a plan as a job: each shard reads its window from a store, computes, writes its cells, and is recorded.

Cells first, record last: cells without a record are computed again, with the same bits; a record without cells cannot
be.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import ParameterError, need
from ..partition.spatial_axes import data_positions
from ..scalar import Array
from ..window.footprint import slices
from .plan_file import Blueprint
from .tile import Tile, Values, combine_parts
from .zarr_arrays import Store, cast


class TileRunner:
    """Computes tiles of one plan from NumPy arrays, with the plan's arguments as tensors of its engine.

    `blueprint` has the arguments, the engine and the type that it computes in.
    """

    def __init__(self, plan: Any, blueprint: Blueprint) -> None:
        self.plan, self.engine, self.compute = plan, blueprint.engine, blueprint.compute
        if self.engine != "numpy":
            need(self.engine, f"engine={self.engine!r} needs")
        self.data = data_positions(plan.graph)
        self.arguments = {p: self.tensor(p, a) for p, a in blueprint.arrays_of("argument").items()}
        self.programs = plan.programs.with_known({})
        self.add_known(blueprint.arrays_of("known"))

    def add_known(self, values: dict[int, Array]) -> None:
        """Add values by position that passes have computed.

        ParameterError if JAX would change their floating type.
        """
        self.programs.known.update((p, self._to_engine(a)) for p, a in values.items())

    def tensor(self, p: int, array: Array) -> Any:
        """Return `array`, the data of input p, for the engine: real numbers in the plan's floating type, indices as
        int64.

        ParameterError if JAX would change its floating type.
        """
        real = self.plan.graph.nodes[p].kind == "real"
        return self._to_engine(np.array(array, dtype=self.compute if real else np.int64))

    def _to_engine(self, array: Array) -> Any:
        """Return an array as a tensor of the engine; ParameterError if JAX would change its floating type."""
        if self.engine == "torch":
            import torch

            return torch.from_numpy(np.array(array))
        if self.engine == "jax":
            import jax.numpy as jnp

            tensor = jnp.asarray(array)
            if array.dtype.kind == "f" and tensor.dtype != array.dtype:
                raise ParameterError("run", f"JAX computes {array.dtype} in {tensor.dtype}: enable jax_enable_x64")
            return tensor
        return array

    def run(self, tile: Tile, read: dict[int, Array]) -> Values:
        """Return the outputs of a tile by position, as tensors; `read` are the data on the boxes that it needs."""
        return self._with_runner_programs(tile).run(self._input_values(tile, read))

    def _with_runner_programs(self, tile: Tile) -> Tile:
        """Return the tile with the compiled programs and known values of this runner."""
        return replace(tile, programs=self.programs)

    def _input_values(self, tile: Tile, read: dict[int, Array]) -> Values:
        """Return all inputs of a tile by position: the data just read, and the arguments held."""
        given = {p: self.tensor(p, a) for p, a in read.items()}
        here = {p: v[slices(tile.needed(p))] if p in self.data else v for p, v in self.arguments.items()}
        return {**here, **given}

    def partial_reduction(self, k: int, tile: Tile, read: dict[int, Array]) -> Array | None:
        """Return a tile's part of the sum or maximum of pass k, or None if it has no cells of it; `read` is its data by
        position.
        """
        shares = self._with_runner_programs(tile).partial_reduction(
            self.plan.statistics[k], self._input_values(tile, read)
        )
        return np.asarray(shares[0]) if shares else None

    def combine(self, k: int, parts: Iterable[Array]) -> Array:
        """Return the result of pass k from the tiles' parts, combined in the order of the tiles."""
        return np.asarray(combine_parts(self.plan.graph.nodes[self.plan.statistics[k]].op, map(self._to_engine, parts)))

    @contextmanager
    def deterministic(self) -> Iterator[None]:
        """Compute on one PyTorch thread without gradients inside the block: the same summation order everywhere."""
        if self.engine != "torch":
            yield
            return
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with self.without_gradients():
                yield
        finally:
            torch.set_num_threads(threads)

    def without_gradients(self) -> AbstractContextManager[Any]:
        """Return a context in which PyTorch records no gradients."""
        if self.engine != "torch":
            return nullcontext()
        import torch

        return torch.no_grad()


class TileJob:
    """Job whose shards are the tiles of a plan, or of one of its passes.

    sources     stores by position of their input; targets by position of their output
    rounded     outputs whose type was asked for
    stage       which pass, or None: the tiles themselves
    blueprint   the plan's arguments, engine and type
    """

    def __init__(
        self,
        plan: Any,
        blueprint: Blueprint,
        sources: dict[int, Store],
        targets: dict[int, Store],
        rounded: list[int],
        stage: int | None,
    ) -> None:
        self.sources, self.targets, self.stage, self.rounded = sources, targets, stage, rounded
        self.runner, self.tiles = TileRunner(plan, blueprint), plan if stage is None else plan.passes[stage]
        self.count = len(self.tiles)
        self.identity = {
            "plan": blueprint.identity,
            "sources": {s.name: s.identity for s in sources.values()},
            "targets": {t.name: t.identity for t in targets.values()},
            "rounded": rounded,
            "stage": stage,
        }

    def read(self, tile: Tile) -> dict[int, Array]:
        """Return what a tile needs of every source, by position."""
        promises = {p: s.read(tile.needed(p)) for p, s in self.sources.items() if p in tile.cut.needs}
        return {p: promise.result() for p, promise in promises.items()}

    def compute_tile(self, tile: Tile) -> dict[int, Array]:
        """Return the outputs of a tile by position; nothing is written."""
        read = self.read(tile)
        with self.runner.deterministic():
            return {p: np.asarray(v) for p, v in self.runner.run(tile, read).items()}

    def work(self, i: int) -> bytes:
        """Compute and write tile i, then return its record: boxes and CRC-32 per output.

        Of a pass, return the tile's part as .npy. ParameterError if a target's type would round the results, unless
        that was asked for.
        """
        tile = self.tiles[i]
        if self.stage is not None:
            read = self.read(tile)
            with self.runner.deterministic():
                return to_npy(self.runner.partial_reduction(self.stage, tile, read))
        outputs = {}
        for p, cells in self.compute_tile(tile).items():
            store = self.targets[p]
            cells = cast(cells, store.dtype, p in self.rounded, store.name)
            store.write(tile.boxes[p], cells)
            outputs[store.name] = {"box": tile.boxes[p], "crc32": checksum(cells)}
        return json.dumps({"tile": i, "outputs": outputs}).encode() + b"\n"


def checksum(cells: Array) -> int:
    """Return the CRC-32 of the cells."""
    return zlib.crc32(np.ascontiguousarray(cells).data)


def damaged_outputs(stores: dict[str, Store], outputs: dict[str, dict[str, Any]]) -> list[str]:
    """Return the outputs of a record whose store, of `stores` by name, now holds other cells than were written."""
    boxes = {name: tuple(map(tuple, record["box"])) for name, record in outputs.items()}
    return [name for name, box in boxes.items() if checksum(stores[name].read(box).result()) != outputs[name]["crc32"]]


def to_npy(array: Array | None) -> bytes:
    """Return an array as the bytes of a .npy file; no bytes for None."""
    if array is None:
        return b""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def from_npy(data: bytes) -> Array:
    """Return the array in `data`, the bytes of a .npy file."""
    array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    return array
