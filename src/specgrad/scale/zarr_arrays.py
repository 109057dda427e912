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
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError, UnsupportedError, need
from ..scalar import Array
from ..window import Shape
from ..window.footprint import Box, slices
from .record_store import URL

Address = str | dict[str, Any]
LARGEST_CHUNK = 256  # cells per axis of what is compressed and read as one, inside a shard
ONE_THREAD = {"data_copy_concurrency": {"limit": 1}, "file_io_concurrency": {"limit": 1}}


def is_address(value: Any) -> bool:
    return isinstance(value, str | Path | dict)


def address_of(where: str | Path | dict[str, Any]) -> Address:
    """An address that means the same in another process: paths are absolute."""
    if isinstance(where, dict):
        return dict(json.loads(json.dumps(where)))
    text = str(where).rstrip("/")
    return text if URL.match(text) else os.path.abspath(text)


def _spec(address: Address) -> dict[str, Any]:
    if isinstance(address, dict):
        return {"driver": "zarr3", **address}
    kvstore = {"driver": "file", "path": f"{address}/"} if address.startswith("/") else f"{address}/"
    return {"driver": "zarr3", "kvstore": kvstore}


class Store:
    """An array that is there. What it knows of itself is part of a job's identity.

    shape, dtype   of the array
    whole          what one write must fill: a shard, or a chunk where there are none
    """

    def __init__(self, name: str, address: Address, create: dict[str, Any] | None = None) -> None:
        need("tensorstore", "arrays in stores need")
        import tensorstore

        self.name, self.address, self.api = name, address, tensorstore
        spec = _spec(address)
        spec["context"] = {**ONE_THREAD, **spec.get("context", {})}
        try:
            self.array = tensorstore.open(spec if create is None else spec | create, create=create is not None).result()
        except ValueError as error:
            text = f"{name}: {_last_line(error)}"
            raise FileNotFoundError(text) if "NOT_FOUND" in str(error) else ParameterError("run", text) from error
        self.shape: Shape = tuple(self.array.shape)
        self.dtype: np.dtype[Any] = self.array.dtype.numpy_dtype
        if any(self.array.domain.origin) or self.dtype.kind not in "biuf":
            text = f"{name} holds {self.array.dtype.name} from {self.array.domain.origin}; needs numbers from 0 on"
            raise UnsupportedError("run", text)

    @property
    def whole(self) -> Shape:
        return tuple(n or 1 for n in self.array.chunk_layout.write_chunk.shape or ())

    @property
    def identity(self) -> dict[str, Any]:
        """Where it lies and how; a digest of its metadata, in which a target that we made has a number of its own."""
        about = {"shape": list(self.shape), "type": str(self.dtype), "whole": list(self.whole)}
        schema = json.dumps(self.array.schema.to_json(), sort_keys=True)
        digest = hashlib.sha256(f"{schema} {self._attributes()}".encode()).hexdigest()[:16]
        return {"address": self.address, "metadata": digest, **about}

    def _attributes(self) -> str:
        """The zarr metadata as they are written."""
        raw = self.array.kvstore.read("zarr.json").result().value if self.array.kvstore is not None else b""
        return raw.decode(errors="replace")

    def read(self, box: Box) -> Any:
        """A promise of the cells of a box: `.result()`."""
        return self.array[slices(box)].read(order="C")

    def write(self, box: Box, cells: Array) -> None:
        """All cells of whole shards, at once: each file is there as a whole or not at all."""
        transaction = self.api.Transaction()
        self.array.with_transaction(transaction)[slices(box)].write(cells).result()
        transaction.commit_async().result()


def _last_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def source(name: str, where: Any, shape: Shape) -> Store:
    """An array to read, of the size that the graph was traced at."""
    store = Store(name, address_of(where))
    if store.shape != shape:
        raise ShapeError("run", f"{name} has shape {store.shape}; the graph takes {shape}: use graph.at({name}=...)")
    return store


def target(name: str, where: Any, boxes: Sequence[Box], shape: Shape, dtype: np.dtype[Any]) -> Store:
    """An array to write, made if it is not there: tiles are its shards.

    boxes   those of all tiles along each axis; every one must be whole chunks
    """
    address = address_of(where)
    steps = tuple(reduce(math.gcd, (box[axis][0] for box in boxes), 0) or n for axis, n in enumerate(shape))
    try:
        store = Store(name, address)
    except FileNotFoundError:
        try:
            store = Store(name, address, _metadata(shape, steps, dtype))
        except ParameterError as error:
            if "ALREADY_EXISTS" not in str(error):
                raise
            store = Store(name, address)  # somebody else was faster
    if store.shape != shape:
        raise ShapeError("run", f"{name} has shape {store.shape}; the graph gives {shape}")
    for axis, (step, chunk, n) in enumerate(zip(steps, store.whole, shape, strict=True)):
        if step % chunk and step < n:
            text = f"{name} has shards of {chunk} cells along axis {axis}; tiles begin at multiples of {step}"
            raise ShapeError("run", f"{text}: choose tiles that are made of whole shards")
    return store


def _metadata(shape: Shape, shard: Shape, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Shards of compressed chunks; no chunk is longer than `LARGEST_CHUNK` along an axis that is cut."""
    chunk = [n if n == size else _divisor(n) for n, size in zip(shard, shape, strict=True)]
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


def _divisor(n: int) -> int:
    """The largest divisor up to LARGEST_CHUNK.

    >>> _divisor(1024), _divisor(300), _divisor(257)
    (256, 150, 1)
    """
    return max(d for d in range(1, min(n, LARGEST_CHUNK) + 1) if n % d == 0)


# --- types ------------------------------------------------------------------------------------------------------------


def cast(cells: Array, dtype: np.dtype[Any], asked: bool, name: str) -> Array:
    """Cells in the type of their store: where that keeps every number, or where it was asked for.

    A narrower float that was asked for rounds to nearest. An integer type must hold every cell exactly all the same.

    >>> cast(np.array([1.0, 2.0]), np.dtype("uint8"), True, "y")
    array([1, 2], dtype=uint8)
    >>> cast(np.array([1.5]), np.dtype("uint8"), True, "y")
    Traceback (most recent call last):
    specgrad.errors.ParameterError: run: y has 1.5, which is no uint8
    """
    if cells.dtype == dtype or always_fits(cells.dtype, dtype):
        return cells.astype(dtype, copy=False)
    if not asked:
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
        fits = whole.astype(cells.dtype) == cells  # not by its limits: 2**63 is the nearest float64 to int64's largest
    if not fits.all():
        raise ParameterError("run", f"{name} has {cells[~fits].flat[0]}, which is no {dtype}")
    return whole


def always_fits(cells: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """As NumPy says, but for 64-bit integers, of which float64 does not hold all."""
    large = cells.kind in "iu" and cells.itemsize == 8 and dtype.kind == "f"
    return np.can_cast(cells, dtype, "safe") and not large
