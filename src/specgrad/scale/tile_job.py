"""The tiles of a plan as a job: a shard reads its window from a store, computes, writes its cells, then has a record.

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
from .tile import Tile, Values, joined
from .zarr_arrays import Store, cast


class TileRunner:
    """A plan with its arguments, as an engine's tensors: computes tiles from NumPy arrays to NumPy arrays."""

    def __init__(self, plan: Any, blueprint: Blueprint) -> None:
        self.plan, self.engine, self.compute = plan, blueprint.engine, blueprint.compute
        if self.engine != "numpy":
            need(self.engine, f"engine={self.engine!r} needs")
        self.data = data_positions(plan.graph)
        self.arguments = {p: self.tensor(p, a) for p, a in blueprint.of("argument").items()}
        self.programs = plan.programs.knowing({})
        self.know(blueprint.of("known"))

    def know(self, values: dict[int, Array]) -> None:
        """What passes have computed, by position."""
        self.programs.known.update((p, self._moved(a)) for p, a in values.items())

    def tensor(self, p: int, array: Array) -> Any:
        """What the engine is given for an input: real numbers in the type of the plan, indices as int64."""
        real = self.plan.graph.nodes[p].kind == "real"
        return self._moved(np.array(array, dtype=self.compute if real else np.int64))

    def _moved(self, array: Array) -> Any:
        if self.engine == "torch":
            import torch

            return torch.from_numpy(np.array(array))
        if self.engine == "jax":
            import jax.numpy as jnp

            moved = jnp.asarray(array)
            if array.dtype.kind == "f" and moved.dtype != array.dtype:
                raise ParameterError("run", f"JAX computes {array.dtype} in {moved.dtype}: enable jax_enable_x64")
            return moved
        return array

    def run(self, tile: Tile, read: dict[int, Array]) -> Values:
        """The outputs of a tile by position, on tensors; `read` are data on what it needs."""
        return self._here(tile).run(self._values(tile, read))

    def _here(self, tile: Tile) -> Tile:
        return replace(tile, programs=self.programs)

    def _values(self, tile: Tile, read: dict[int, Array]) -> Values:
        given = {p: self.tensor(p, a) for p, a in read.items()}
        here = {p: v[slices(tile.needed(p))] if p in self.data else v for p, v in self.arguments.items()}
        return {**here, **given}

    def part(self, k: int, tile: Tile, read: dict[int, Array]) -> Array | None:
        """A tile's share of what pass k computes; None: it has none."""
        shares = self._here(tile).share(self.plan.statistics[k], self._values(tile, read))
        return np.asarray(shares[0]) if shares else None

    def joined(self, k: int, parts: Iterable[Array]) -> Array:
        """What pass k computes, its parts taken in the order of the tiles."""
        return np.asarray(joined(self.plan.graph.nodes[self.plan.statistics[k]].op, map(self._moved, parts)))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """On one thread: the same sums in the same order everywhere."""
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
        if self.engine != "torch":
            return nullcontext()
        import torch

        return torch.no_grad()


class TileJob:
    """Shards are the tiles of a plan, or of one of its passes.

    sources   stores by position of their input; targets by position of their output
    rounded   outputs whose type was asked for
    stage     which pass, or None: the tiles themselves
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
        self.shop, self.tiles = TileRunner(plan, blueprint), plan if stage is None else plan.passes[stage]
        self.count = len(self.tiles)
        self.identity = {
            "plan": blueprint.identity,
            "sources": {s.name: s.identity for s in sources.values()},
            "targets": {t.name: t.identity for t in targets.values()},
            "rounded": rounded,
            "stage": stage,
        }

    def read(self, tile: Tile) -> dict[int, Array]:
        """What a tile needs of every source."""
        promises = {p: s.read(tile.needed(p)) for p, s in self.sources.items() if p in tile.cut.needs}
        return {p: promise.result() for p, promise in promises.items()}

    def computed(self, tile: Tile) -> dict[int, Array]:
        """Its outputs; nothing is written."""
        read = self.read(tile)
        with self.shop.alone():
            return {p: np.asarray(v) for p, v in self.shop.run(tile, read).items()}

    def work(self, i: int) -> bytes:
        tile = self.tiles[i]
        if self.stage is not None:
            read = self.read(tile)
            with self.shop.alone():
                return packed(self.shop.part(self.stage, tile, read))
        outputs = {}
        for p, cells in self.computed(tile).items():
            store = self.targets[p]
            cells = cast(cells, store.dtype, p in self.rounded, store.name)
            store.write(tile.boxes[p], cells)
            outputs[store.name] = {"box": tile.boxes[p], "crc32": checksum(cells)}
        return json.dumps({"tile": i, "outputs": outputs}).encode() + b"\n"


def checksum(cells: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(cells).data)


def changed(stores: dict[str, Store], outputs: dict[str, dict[str, Any]]) -> list[str]:
    """Outputs of a record whose store holds other cells than were written."""
    boxes = {name: tuple(map(tuple, record["box"])) for name, record in outputs.items()}
    return [name for name, box in boxes.items() if checksum(stores[name].read(box).result()) != outputs[name]["crc32"]]


def packed(array: Array | None) -> bytes:
    """An array as the bytes of a .npy file; none as no bytes."""
    if array is None:
        return b""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def unpacked(data: bytes) -> Array:
    array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    return array
