"""The tiles of a plan as a job: each shard reads its window from a store, computes, writes its cells, and is recorded.

Cells first, record last: cells without a record are computed again, with the same bits; a record without cells cannot
be.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ..bounded_files import npy_of
from ..errors import ParameterError, need
from ..partition.spatial_axes import data_positions
from ..scalar import Array
from ..window.footprint import Box, slices
from .job_status import JobError
from .plan_file import Blueprint
from .store_faults import answer, fault_of
from .stores.array_files import (
    claim_of,
    files_of,
    present_generations,
    refuse_changed,
    refuse_missing,
    refuse_other_job,
    write_claim,
)
from .tile import Programs, Tile, Values, combine_parts
from .torch_devices import device_here, same_bits, to_array, to_device
from .zarr_arrays import Store, cast


class TileRunner:
    """Computes tiles of one plan from NumPy arrays, with the plan's arguments as tensors of its engine.

    `blueprint` has the arguments, the engine, the type that it computes in, and the device, which is not touched before
    the first tile: who only starts workers takes none from them.
    """

    def __init__(self, plan: Any, blueprint: Blueprint) -> None:
        self.plan, self.engine, self.compute = plan, blueprint.engine, blueprint.compute
        if self.engine != "numpy":
            need(self.engine, f"engine={self.engine!r} needs")
        if self.engine == "jax":
            self._to_engine(np.zeros(0, self.compute))  # refused here, and not tile by tile
        self.data, self.device = data_positions(plan.graph), blueprint.device
        self.given, self.known = blueprint.arrays_of("argument"), blueprint.arrays_of("known")

    @cached_property
    def arguments(self) -> Values:
        """The plan's arguments by position, as tensors."""
        return {p: self.tensor(p, a) for p, a in self.given.items()}

    @cached_property
    def programs(self) -> Programs:
        """The plan's compiled programs, with what passes have computed as tensors."""
        programs: Programs = self.plan.programs.with_known({p: self._to_engine(a) for p, a in self.known.items()})
        return programs

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
            return to_device(array, device_here(self.device))
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
        return self.array(shares[0]) if shares else None

    def combine(self, k: int, parts: Iterable[Array]) -> Array:
        """Return the result of pass k from the tiles' parts, combined in the order of the tiles."""
        return self.array(combine_parts(self.plan.graph.nodes[self.plan.statistics[k]].op, map(self._to_engine, parts)))

    def array(self, value: Any) -> Array:
        """Return a tensor of the engine as an array."""
        return to_array(value) if self.engine == "torch" else np.asarray(value)

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
            with self.without_gradients(), same_bits(self.device):
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

    A tile that reads a file of another generation than that in which the job began is a JobError: no target has cells
    of two.

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

    def claim(
        self, fingerprint: str, repair: Callable[[], None] | None, fill_missing: bool, look: bool, started: bool
    ) -> None:
        """Write into the targets that they are those of the job with this fingerprint, and of which generation the
        sources are.

        JobError for targets of another job, for sources that were changed since it began, and for targets that no
        longer say whose they are though tiles are done: then `repair`, if it is given, sets aside what is no longer so.
        ParameterError for sources that lack a chunk.

        fill_missing   a chunk that a source lacks is its fill value
        look           look at all files now, and not only at those of a tile when it is read
        started        tiles had records before this was called: a target that says nothing was made again since
        """
        said, sources = [claim_of(target) for target in self.targets.values()], self.sources.values()
        for target, known_here in zip(self.targets.values(), said, strict=True):
            if started and known_here is None and not repair:
                text = (
                    f"{target.name} at {target.address} does not say whose it is, though tiles are done: another array?"
                )
                raise JobError(f"{text} With repair=True, tiles whose cells are not there are computed again")
        begun = said[0]
        if begun is None or repair:
            for source in () if fill_missing else sources:
                refuse_missing(source)
            known = {s.name: present_generations(s) for s in sources}
            if repair:
                repair()  # before the new generations stand: who is killed here begins again
            for target in self.targets.values():
                write_claim(target, {"job": fingerprint, "sources": known})
        elif look:
            for source in sources:
                refuse_changed(source, begun["sources"][source.name], files_of(source))
        for target, known_here in zip(self.targets.values(), said, strict=True):
            refuse_other_job(target, fingerprint)
            if begun is not None and known_here is None and not repair:  # who began was killed before it came to this
                write_claim(target, begun)

    @property
    def _first_target(self) -> Store:
        """The target that says what the sources were."""
        return next(iter(self.targets.values()))

    @cached_property
    def _begun(self) -> dict[str, dict[str, str]]:
        """Generations of the files of each source when the job began; none for a tile that is only computed.

        JobError if the target says nothing of it.
        """
        claim = claim_of(self._first_target) if self.targets else {"sources": {}}
        if claim is None:
            raise JobError(f"{self._first_target.address} no longer says which job's it is: run the job again")
        return dict(claim["sources"])

    def _refuse_changed(self, tile: Tile) -> None:
        """Raise JobError if a file that a tile reads is of another generation than when the job began."""
        for p in self.sources.keys() & tile.cut.needs.keys():
            store = self.sources[p]
            if store.name in self._begun:
                refuse_changed(store, self._begun[store.name], files_of(store, tile.needed(p)))

    def read(self, tile: Tile) -> dict[int, Array]:
        """Return what a tile needs of every source, by position.

        JobError if a source was changed since the job began, before or while it was read.
        """
        self._refuse_changed(tile)
        promises = {p: s.read(tile.needed(p)) for p, s in self.sources.items() if p in tile.cut.needs}
        try:
            return {p: answer(promise) for p, promise in promises.items()}
        finally:
            self._refuse_changed(tile)

    def compute_tile(self, tile: Tile, read: dict[int, Array]) -> dict[int, Array]:
        """Return the outputs of a tile by position from what it has `read`; nothing is written."""
        with self.runner.deterministic():
            return {p: self.runner.array(v) for p, v in self.runner.run(tile, read).items()}

    def work(self, i: int) -> bytes:
        """Compute and write tile i, then return its record: boxes and CRC-32 of what was read, and per output.

        Of a pass, the tile's part as .npy follows. ParameterError if a target's type would round the results, unless
        that was asked for.
        """
        tile = self.tiles[i]
        read = self.read(tile)
        record = {"tile": i, "read": {self.sources[p].name: _record_of(tile.needed(p), a) for p, a in read.items()}}
        if self.stage is not None:
            with self.runner.deterministic():
                return _line(record) + to_npy(self.runner.partial_reduction(self.stage, tile, read))
        outputs = {}
        for p, cells in self.compute_tile(tile, read).items():
            store = self.targets[p]
            cells = cast(cells, store.dtype, p in self.rounded, store.name)
            store.write(tile.boxes[p], cells)
            outputs[store.name] = _record_of(tile.boxes[p], cells)
        return _line(record | {"outputs": outputs})

    def changes(self, data: bytes) -> str:
        """Return what a record, `data`, says of sources and targets that is no longer so; "" for nothing."""
        return changes(self.sources.values(), self.targets.values(), data)


def _record_of(box: Box, cells: Array) -> dict[str, Any]:
    """Return a box and the CRC-32 of its cells."""
    return {"box": box, "crc32": zlib.crc32(np.ascontiguousarray(cells).data)}


def _line(record: dict[str, Any]) -> bytes:
    """Return a record as one line of JSON."""
    return json.dumps(record).encode() + b"\n"


def changes(sources: Iterable[Store], targets: Iterable[Store], data: bytes) -> str:
    """Return what `data`, the record of a tile, says of its sources and targets that is no longer so; "": nothing."""
    record, said = json.loads(data.partition(b"\n")[0]), []
    for stores, key, what in ((sources, "read", "read"), (targets, "outputs", "written")):
        for store in stores:
            there = record.get(key, {}).get(store.name)
            if there is not None and not _is_there(store, there):
                said.append(f"{store.name} holds other cells than were {what}")
    return "; ".join(said)


def _is_there(store: Store, record: dict[str, Any]) -> bool:
    """Return whether a store holds the cells that were recorded; False if they cannot be read."""
    try:
        cells = answer(store.read(tuple(map(tuple, record["box"]))))
    except ValueError as error:
        if fault_of(error):
            raise
        return False
    return bool(_record_of((), cells)["crc32"] == record["crc32"])


def to_npy(array: Array | None) -> bytes:
    """Return an array as the bytes of a .npy file; no bytes for None."""
    if array is None:
        return b""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def from_npy(data: bytes) -> Array:
    """Return the array in `data`, the bytes of a .npy file; FileError if it is none."""
    return npy_of(io.BytesIO(data), len(data), "a record")
