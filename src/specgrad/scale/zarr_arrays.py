"""Arrays in stores: zarr v3 through tensorstore, read in windows and written in whole shards.

An address is a path, a URL that tensorstore knows (file://, s3://, gs://), or a spec of tensorstore as a dict, which
may name another driver. No two tiles write into one file: a tile is made of whole write chunks (shards, where there are
any). A chunk's existence is no record that it was computed: chunks of nothing but fill values are not stored.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np

from ..bounded_files import MAX_INFLATED_BYTES
from ..errors import FileError, ParameterError, ShapeError, UnsupportedError, need
from ..scalar import Array
from ..window import Shape
from ..window.footprint import Box, slices
from .record_store import URL
from .store_faults import answer, fault_of

Address = str | dict[str, Any]
MAX_CHUNK_CELLS = 256  # cells per axis of what is compressed and read as one, inside a shard
ONE_THREAD = {"data_copy_concurrency": {"limit": 1}, "file_io_concurrency": {"limit": 1}}
FEW_RETRIES = {
    "max_retries": 3,
    "initial_delay": "500ms",
    "max_delay": "4s",
}  # the runner of shards waits longer, and says so
CONTEXT = {**ONE_THREAD, "s3_request_retries": FEW_RETRIES, "gcs_request_retries": FEW_RETRIES}


def is_address(value: Any) -> bool:
    """Return whether a value names a store: a text, a path or a tensorstore spec."""
    return isinstance(value, str | Path | dict)


def address_of(where: str | Path | dict[str, Any]) -> Address:
    """Return an address of `where` that is valid in any process: paths become absolute."""
    if isinstance(where, dict):
        return dict(json.loads(json.dumps(where)))
    text = str(where).rstrip("/")
    return text if URL.match(text) else os.path.abspath(text)


def _tensorstore_spec(address: Address) -> dict[str, Any]:
    """Return the tensorstore spec of an address; zarr v3 unless it names another driver."""
    if isinstance(address, dict):
        return {"driver": "zarr3", **address}
    kvstore = {"driver": "file", "path": f"{address}/"} if address.startswith("/") else f"{address}/"
    return {"driver": "zarr3", "kvstore": kvstore}


@dataclass(frozen=True)
class LateCells:
    """Cells of the array `name` that are being read, as tensorstore's `promise` of them."""

    name: str
    promise: Any

    def result(self, timeout: float | None = None) -> Array:
        """Wait for the cells, at most `timeout` seconds; FileError if what is stored is damaged.

        A fault of the store stays the error that it is.
        """
        try:
            return np.asarray(self.promise.result(timeout=timeout))
        except ValueError as error:
            if fault_of(error) is not None:
                raise
            raise FileError(f"{self.name}: {one_line(error)}") from error


class Store:
    """An array in a store, called `name` in errors, at an `address`, made by `create` if there is none, read and
    written in boxes.

    FileNotFoundError if there is none and `create` is None; ParameterError if it cannot be opened, UnsupportedError
    unless it holds numbers from index 0 on, FileError for chunks that memory may not hold.

    shape, dtype   of the array
    whole          what one write must fill: a shard, or a chunk where there are none
    """

    def __init__(self, name: str, address: Address, create: dict[str, Any] | None = None) -> None:
        need("tensorstore", "arrays in stores need")
        import tensorstore

        self.name, self.address, self.api = name, address, tensorstore
        spec = _tensorstore_spec(address)
        spec["context"] = {**CONTEXT, **spec.get("context", {})}
        try:
            self.array = tensorstore.open(spec if create is None else spec | create, create=create is not None).result()
        except ValueError as error:
            text = f"{name}: {one_line(error)}"
            raise FileNotFoundError(text) if "NOT_FOUND" in str(error) else ParameterError("run", text) from error
        self.shape: Shape = tuple(self.array.shape)
        self.dtype: np.dtype[Any] = self.array.dtype.numpy_dtype
        if any(self.array.domain.origin) or self.dtype.kind not in "biuf":
            text = f"{name} holds {self.array.dtype.name} from {self.array.domain.origin}; needs numbers from 0 on"
            raise UnsupportedError("run", text)
        chunk = math.prod(n or 1 for n in self.array.chunk_layout.read_chunk.shape or ()) * self.dtype.itemsize
        if chunk > MAX_INFLATED_BYTES:
            raise FileError(f"{name} has chunks of {chunk} bytes; at most {MAX_INFLATED_BYTES} are read")

    @property
    def write_chunk(self) -> Shape:
        """Cells per axis that one write must fill: a shard, or a chunk if there are no shards."""
        return tuple(n or 1 for n in self.array.chunk_layout.write_chunk.shape or ())

    @property
    def identity(self) -> dict[str, Any]:
        """JSON data that identifies the array in a job: address, shape, type, shards and a digest of its metadata."""
        about = {"shape": list(self.shape), "type": str(self.dtype), "whole": list(self.write_chunk)}
        schema = json.dumps(self.array.schema.to_json(), sort_keys=True)
        digest = hashlib.sha256(f"{schema} {self.stored_metadata}".encode()).hexdigest()[:16]
        return {"address": self.address, "metadata": digest, **about}

    @cached_property
    def stored_metadata(self) -> str:
        """Text of zarr.json as it is stored; "" for a driver without it."""
        raw = self.array.kvstore.read("zarr.json").result().value if self.array.kvstore is not None else b""
        return raw.decode(errors="replace")

    def read(self, box: Box) -> Any:
        """Return the cells of a box as they come: `.result()`."""
        return LateCells(self.name, self.array[slices(box)].read(order="C"))

    def write(self, box: Box, cells: Array) -> None:
        """Write `cells` to the box of the array in one transaction; a file of whole shards appears complete or not at
        all.
        """
        transaction = self.api.Transaction()
        self.array.with_transaction(transaction)[slices(box)].write(cells).result()
        answer(transaction.commit_async())


def one_line(error: BaseException) -> str:
    """Return the text of an error in one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]


def open_source(name: str, where: Any, shape: Shape) -> Store:
    """Open the array at the address `where` to read; ShapeError, with its `name`, if it has not the shape that the
    graph was traced at.
    """
    store = Store(name, address_of(where))
    if store.shape != shape:
        raise ShapeError("run", f"{name} has shape {store.shape}; the graph takes {shape}: use graph.at({name}=...)")
    return store


def open_target(name: str, where: Any, boxes: Sequence[Box], shape: Shape, dtype: np.dtype[Any]) -> Store:
    """Open the array at the address `where` to write, or create it with one shard per tile.

    ShapeError, with its `name`, if it has another shape, or tiles are not made of whole shards.

    boxes   those of all tiles; each must begin at whole shards
    shape, dtype   of an array that is created; one that exists must have this shape, and may have another type
    """
    address = address_of(where)
    steps = tuple(reduce(math.gcd, (box[axis][0] for box in boxes), 0) or n for axis, n in enumerate(shape))
    try:
        store = Store(name, address)
    except FileNotFoundError:
        try:
            store = Store(name, address, _zarr_metadata(shape, steps, dtype))
        except ParameterError as error:
            if "ALREADY_EXISTS" not in str(error):
                raise
            store = Store(name, address)  # somebody else was faster
    if store.shape != shape:
        raise ShapeError("run", f"{name} has shape {store.shape}; the graph gives {shape}")
    for axis, (step, chunk, n) in enumerate(zip(steps, store.write_chunk, shape, strict=True)):
        if step % chunk and step < n:
            text = f"{name} has shards of {chunk} cells along axis {axis}; tiles begin at multiples of {step}"
            raise ShapeError("run", f"{text}: choose tiles that are made of whole shards")
    return store


def _zarr_metadata(shape: Shape, shard: Shape, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the zarr metadata of a new array of this shape and type, filled with 0.

    One shard per tile, of compressed chunks up to MAX_CHUNK_CELLS an axis.
    """
    chunk = [n if n == size else _chunk_divisor(n) for n, size in zip(shard, shape, strict=True)]
    inner = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd", "configuration": {"level": 1}}]
    sharding = {"chunk_shape": chunk, "codecs": inner}
    metadata = {
        "shape": list(shape),
        "data_type": str(dtype),
        "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(shard)}},
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "attributes": {"specgrad": {"made": secrets.token_hex(8)}},  # one made later in its place is another one
    }
    return {"metadata": metadata}


def _chunk_divisor(n: int) -> int:
    """Return the largest divisor of n up to MAX_CHUNK_CELLS.

    >>> _chunk_divisor(1024), _chunk_divisor(300), _chunk_divisor(257)
    (256, 150, 1)
    """
    return max(d for d in range(1, min(n, MAX_CHUNK_CELLS) + 1) if n % d == 0)


# --- types ------------------------------------------------------------------------------------------------------------


def cast(cells: Array, dtype: np.dtype[Any], may_round: bool, name: str) -> Array:
    """Return the cells of the output `name` in the type of their store: if that keeps every number, or if `may_round`.

    ParameterError otherwise.

    A narrower float that was asked for rounds to nearest. An integer type must hold every cell exactly all the same.

    >>> cast(np.array([1.0, 2.0]), np.dtype("uint8"), True, "y")
    array([1, 2], dtype=uint8)
    >>> cast(np.array([1.5]), np.dtype("uint8"), True, "y")
    Traceback (most recent call last):
    specgrad.errors.ParameterError: run: y has 1.5, which is no uint8
    >>> cast(np.array([-1]), np.dtype("uint64"), True, "y")
    Traceback (most recent call last):
    specgrad.errors.ParameterError: run: y has -1, which is no uint64
    """
    if cells.dtype == dtype or always_fits(cells.dtype, dtype):
        return cells.astype(dtype, copy=False)
    if not may_round:
        raise ParameterError(
            "run", f"{name} is {cells.dtype} and its store {dtype}: give dtype={str(dtype)!r} to round"
        )
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return cells.astype(dtype)
    if dtype.kind == "b":
        raise ParameterError("run", f"{name} is {cells.dtype}; a store of truth values cannot hold it")
    with np.errstate(invalid="ignore"):
        whole = cells.astype(dtype)
        # not by its limits: 2**63 is the nearest float64 to int64's largest; and a sign that is lost comes back
        fits = (whole.astype(cells.dtype) == cells) & ((whole < 0) == (cells < 0))
    if not fits.all():
        raise ParameterError("run", f"{name} has {cells[~fits].flat[0]}, which is no {dtype}")
    return whole


def always_fits(cells: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether every value of type `cells` is exact in `dtype`; unlike NumPy, not 64-bit integers in floats."""
    large = cells.kind in "iu" and cells.itemsize == 8 and dtype.kind == "f"
    return np.can_cast(cells, dtype, "safe") and not large
