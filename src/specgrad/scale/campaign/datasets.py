"""Datasets, read range by range: samples in .npy files, in a zarr array, or in the tar shards of a WebDataset.

    images/          a folder of .npy files, in the order of their names; the first axis of each counts its samples
    images.npy       one such file
    images.zarr      a zarr v3 array, whose first axis counts the samples; also s3://...
    shards/          a folder of .tar files as WebDataset has them: a sample per key, its one array in a member KEY.npy
    shards-00.tar    one of them

Regular files alone, uncompressed archives alone; sizes are checked before anything is allocated. Labels and pictures
beside the arrays of a WebDataset are not read; an archive without arrays is refused, and says what it holds.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from ...bounded_files import as_file_error, map_npy, npy_of, opened
from ...errors import FileError
from ...scalar import Array
from ...window.footprint import Box
from ..record_store import URL
from ..stores.array_files import generation_of_file, missing_chunk
from ..zarr_arrays import Store, address_of
from .keys import CampaignError

MAX_SAMPLE_BYTES = 1 << 28  # of one member of an archive


class Dataset(Protocol):
    """Protocol of a dataset: how many samples, what identifies it, and the samples of a range."""

    @property
    def count(self) -> int:
        """Return the number of samples."""

    @property
    def identity(self) -> dict[str, Any]:
        """Return JSON data that tells this dataset from others: names, sizes and shapes, but no cells."""

    def read(self, first: int, stop: int) -> Array:
        """Return samples first ... stop - 1, along the first axis."""


class Parts:
    """Samples in several files, one behind the other; `part` makes of each what has a length and gives its samples by a
    slice.

    FileError unless all have samples of one shape and type, and for a file that was changed since it was opened.
    """

    def __init__(self, paths: Sequence[Path], part: Callable[[Path], Any]) -> None:
        self.paths, self.names = paths, [p.name for p in paths]
        self.known = [generation_of_file(p) for p in paths]
        self.parts = [part(p) for p in paths]
        parts = self.parts
        if not all(part.shape for part in parts):
            raise FileError("a file of a dataset holds one number, and no axis of samples")
        self.ends = [*accumulate(len(part) for part in parts)]
        kinds = {(part.shape[1:], part.dtype.name) for part in parts}
        if len(kinds) != 1:
            text = "; ".join(f"{dtype} {shape}" for shape, dtype in sorted(kinds, key=str))
            raise FileError(f"all files of a dataset must have samples of one shape and type; got {text[:300]}")

    @property
    def count(self) -> int:
        """Return the number of samples of all parts."""
        return self.ends[-1]

    @property
    def identity(self) -> dict[str, Any]:
        """Return the files' names, where each ends, and the type and shape of a sample."""
        first = self.parts[0]
        files = dict(zip(self.names, self.ends, strict=True))
        return {"files": files, "type": first.dtype.name, "shape": list(first.shape[1:])}

    def read(self, first: int, stop: int) -> Array:
        """Return samples first ... stop - 1, from as many parts as they lie in.

        FileError if one of these was changed: of a file that was cut off the rest of a page reads as zeros.
        """
        some, used, at = [], [], first
        while at < stop:
            k = bisect_right(self.ends, at)
            begin = self.ends[k - 1] if k else 0
            end = min(stop, self.ends[k])
            some.append(np.asarray(self.parts[k][at - begin : end - begin]))
            used.append(k)
            at = end
        samples = np.concatenate(some)  # a copy: what is mapped is read here
        for k in used:
            if generation_of_file(self.paths[k]) != self.known[k]:
                raise FileError(f"{self.paths[k]} was changed since it was opened")
        return samples


class TarShard:
    """The samples of one tar file: members KEY.npy, in their order; found by one pass over the headers.

    FileError for an archive that is compressed, without such members, or with several of one key, and for arrays that
    differ from the first in shape or type.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with opened(path) as (file, size), as_file_error(path, "a tar file, uncompressed"):
            with tarfile.open(fileobj=file, mode="r:") as archive:
                members = [*archive]
            if not zeros_alone(file, archive.offset):
                raise FileError(
                    f"{path} is cut off or damaged after {len(members)} members, or has others behind its end"
                )
            arrays = [m for m in members if m.name.endswith(".npy") and not m.isdir()]
            if any(not m.isreg() or m.issparse() for m in arrays):
                raise FileError(f"{path} has an array that is a link, or sparse")
            self.places = [(m.offset_data, m.size) for m in arrays]
            if any(n > MAX_SAMPLE_BYTES or at + n > size for at, n in self.places):
                raise FileError(f"{path} has a member of over {MAX_SAMPLE_BYTES} bytes, or beyond its end")
        if not self.places:
            kinds = sorted({Path(m.name).suffix for m in members})
            raise FileError(f"{path} has no member KEY.npy; it has {', '.join(kinds)[:100] or 'none'}")
        twice = [key for key, n in Counter(key_of(m.name) for m in arrays).items() if n > 1]
        if twice:
            raise FileError(f"{path} has several arrays of sample {twice[0]:.100}, and a sample is one")
        (one,) = self._arrays(slice(1))
        self.shape, self.dtype = (len(self.places), *one.shape), one.dtype

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, where: slice) -> Array:
        samples = self._arrays(where)
        if any((x.shape, x.dtype.name) != (self.shape[1:], self.dtype.name) for x in samples):
            raise FileError(f"{self.path} has samples of several shapes or types")
        return np.stack(samples)

    def _arrays(self, where: slice) -> list[Array]:
        """Return the arrays of some members; FileError for what is none."""
        samples = []
        with opened(self.path) as (file, _), as_file_error(self.path, "a tar file of arrays"):
            for at, size in self.places[where]:
                file.seek(at)
                samples.append(npy_of(BytesIO(file.read(size)), size, self.path))
        return samples


def zeros_alone(file: BinaryIO, at: int) -> bool:
    """Return whether a block of zeros lies at this place of a file, an archive's end, and nothing else behind it."""
    file.seek(at)
    block = file.read(tarfile.BLOCKSIZE)
    rest = iter(lambda: file.read(1 << 20), b"")
    return len(block) == tarfile.BLOCKSIZE and not block.strip(b"\0") and not any(more.strip(b"\0") for more in rest)


def key_of(member: str) -> str:
    """Return the key of a member of a WebDataset: its path up to the first dot of its name.

    >>> key_of("a.b/0007.depth.npy")
    'a.b/0007'
    """
    folder, slash, name = member.rpartition("/")
    return folder + slash + name.partition(".")[0]


class ZarrSamples:
    """The samples of a zarr array, along its first axis; FileError for an array without axes, or that lacks a chunk."""

    def __init__(self, address: str) -> None:
        self.store, self.address = Store("data", address_of(address)), address
        if not self.store.shape:
            raise FileError(f"{address} has no axis of samples")
        self._refuse_missing(None)

    def _refuse_missing(self, part: Box | None) -> None:
        """Raise FileError if a chunk of the array, or of a part of it, is not stored."""
        if lacks := missing_chunk(self.store, part):
            text = f"{lacks}; write_empty_chunks=True of zarr stores those of fill values, too"
            raise FileError(f"{self.address} {text}")

    @property
    def count(self) -> int:
        """Return the length of the first axis."""
        return self.store.shape[0]

    @property
    def identity(self) -> dict[str, Any]:
        """Return the array's shape, type and a digest of its metadata; not its address."""
        return {k: v for k, v in self.store.identity.items() if k != "address"}

    def read(self, first: int, stop: int) -> Array:
        """Return samples first ... stop - 1."""
        box = ((first, stop), *((0, n) for n in self.store.shape[1:]))
        samples = np.asarray(self.store.read(box).result())
        self._refuse_missing(box)  # it may have gone since the array was opened, and was read as fill values then
        return samples


def open_dataset(name: str, home: Path) -> Dataset:
    """Return the dataset `name`, a path from the folder `home` or the address of a zarr array.

    CampaignError if there is none of the kinds above, or two; FileError for one that is damaged.
    """
    path = home / name
    if URL.match(name) or (path / "zarr.json").is_file():
        return ZarrSamples(name if URL.match(name) else str(path))
    files = sorted(p for p in (path.iterdir() if path.is_dir() else [path]) if p.is_file())
    kinds = {suffix: [p for p in files if p.suffix == suffix] for suffix in (".npy", ".tar")}
    if all(kinds.values()):
        raise CampaignError(f"{name} in {home} has .npy files and .tar files: which of them are the dataset?")
    makers: tuple[tuple[str, Callable[[Path], Any]], ...] = ((".npy", map_npy), (".tar", TarShard))
    for suffix, part in makers:
        if kinds[suffix]:
            return Parts(kinds[suffix], part)
    raise CampaignError(f"{name} in {home} is no dataset: a folder of .npy or .tar files, one of them, or a zarr array")


def changes_of(data: Dataset, result: bytes) -> str:
    """Return which samples that the rows of a `result` tell of are others than were read for it; "": none."""
    for line in result.splitlines():
        read = json.loads(line)["data"]
        if read is None:
            continue
        first, stop = read["first"], read["first"] + read["samples"]
        try:
            there = digest_of_samples(data.read(first, stop))
        except FileError as error:
            return f"samples {first} to {stop - 1} cannot be read: {error}"
        if there != read["digest"]:
            return f"samples {first} to {stop - 1} are others than were read"
    return ""


def digest_of_samples(samples: Array) -> str:
    """Return the SHA-256 of samples: type, shape and cells."""
    whole = hashlib.sha256(f"{samples.dtype.str} {samples.shape}".encode())
    whole.update(np.ascontiguousarray(samples).tobytes())
    return whole.hexdigest()
