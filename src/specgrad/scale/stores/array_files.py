"""The files of an array in a store: which hold a box, whether one was written since, which are missing, whose they are.

A source is known by the generations of its files. A target says in a file of its own, specgrad.job, which job writes
it, and in which generation the files of the sources were when that began.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from ...bounded_files import parse_json
from ...errors import FileError, ParameterError, UnsupportedError
from ...window import Shape
from ...window.footprint import Box, slices
from ..job_status import JobError
from ..store_faults import answer, fault_of
from ..zarr_arrays import Store, one_line

CLAIM = "specgrad.job"
TICK_SECONDS = 0.02  # of the clock that file systems date by: what is written after two of them has another date


def files_of(store: Store, box: Box | None = None) -> list[str]:
    """Return the names of the files that hold the cells of a box, stored or not; all of them without one.

    Of another format than zarr v3, those of all files that are stored. UnsupportedError for an array without files.
    """
    named = _naming(store)
    if named is None:
        names = (name.decode(errors="replace") for name in answer(_files(store).list()))
        return sorted(n for n in names if n != CLAIM and not n.endswith(".__lock"))
    (before, between), box = named, box or tuple((0, n) for n in store.shape)
    ranges = [range(a // n, -(-b // n)) for (a, b), n in zip(box, store.write_chunk, strict=True)]
    return [between.join([*before, *map(str, index)]) for index in product(*ranges)]


def _files(store: Store) -> Any:
    """Return the files of an array, as tensorstore has them; UnsupportedError for an array without files."""
    if store.array.kvstore is None:
        raise UnsupportedError("run", f"{store.name} is a view of other arrays: name the one that is stored")
    return store.array.kvstore


def _naming(store: Store) -> tuple[list[str], str] | None:
    """Return what stands before the numbers in a file's name, and between them; None: not zarr v3, or a view."""
    own = store.array.spec().to_json()["driver"] == "zarr3"
    if not own or (isinstance(store.address, dict) and "transform" in store.address):
        return None
    encoding = json.loads(store.stored_metadata)["chunk_key_encoding"]
    plain = encoding["name"] == "default"
    between = encoding.get("configuration", {}).get("separator", "/" if plain else ".")
    return (["c"] if plain else []), between


def generations(store: Store, files: Iterable[str]) -> dict[str, str]:
    """Return {file: generation}: another text whenever the file was written, "" where there is none.

    Of a local file number, size and dates; elsewhere what the store says, an ETag or a number.
    """
    kvstore = _files(store)
    if kvstore.spec().to_json()["driver"] == "file":
        return {f: generation_of_file(kvstore.path + f) for f in files}
    promises = {f: kvstore.read(f, byte_range=slice(0, 0)) for f in files}
    known = {f: answer(promise) for f, promise in promises.items()}
    return {f: "" if r.state == "missing" else r.stamp.generation.hex() for f, r in known.items()}


def generation_of_file(path: str | Path) -> str:
    """Return number, size and dates of a local file; "" if there is none.

    Its device is left out: another machine may have the same file system under another number.
    """
    try:
        s = os.stat(path)
    except FileNotFoundError:
        return ""
    return f"{s.st_ino}-{s.st_size}-{s.st_mtime_ns}-{s.st_ctime_ns}"


def present_generations(store: Store) -> dict[str, str]:
    """Return the generations of all files of a source, so that each that is written from now on has another."""
    known = generations(store, files_of(store))
    time.sleep(TICK_SECONDS)
    return known


def refuse_changed(store: Store, known: dict[str, str], files: Iterable[str]) -> None:
    """Raise JobError if one of the files of a source is of another generation than that in `known`."""
    now = generations(store, files)
    changed = sorted(f for f in now if now[f] != known.get(f, ""))
    if changed:
        text = f"{store.name} at {store.address} was changed after the job began: {changed[0]}"
        more = f" and {len(changed) - 1} more files" if changed[1:] else ""
        raise JobError(f"{text}{more}. With repair=True, tiles that read other cells than are there are computed again")


def refuse_missing(store: Store) -> None:
    """Raise ParameterError, with the cells of the first, if a chunk of a source is not stored, or an index is torn."""
    lacks = missing_chunk(store)
    if lacks:
        text = f"{store.name} {lacks}; an upload that is not finished?"
        raise ParameterError("run", f"{text} fill_missing=True reads its fill value {store.array.fill_value}")


def missing_chunk(store: Store, part: Box | None = None) -> str:
    """Return in words the first chunk of an array, or of a part of it, that is not stored, with its cells; "" if all
    are.

    ParameterError for an index that is torn.
    """

    def is_stored(box: Box) -> bool:
        try:
            return bool(answer(store.array[slices(box)].storage_statistics(query_fully_stored=True)).fully_stored)
        except ValueError as error:
            if fault_of(error):
                raise
            raise ParameterError("run", f"{store.name} cannot be read: {one_line(error)}") from error

    whole = part or tuple((0, n) for n in store.shape)
    if is_stored(whole):
        return ""
    file = next(b for b in _boxes(whole, store.write_chunk) if not is_stored(b))
    steps = tuple(n or 1 for n in store.array.chunk_layout.read_chunk.shape or ())
    box = next(b for b in _boxes(file, steps) if not is_stored(b))
    where = f"{', '.join(files_of(store, file))}, " if _naming(store) else ""
    return f"lacks a chunk: {where}cells {box}"


def _boxes(box: Box, steps: Shape) -> Iterator[Box]:
    """Yield the parts of a box on a grid of so many cells per axis.

    >>> list(_boxes(((0, 5),), (4,)))
    [((0, 4),), ((4, 5),)]
    """
    axes = [[(i, min(i + n, b)) for i in range(a, b, n)] for (a, b), n in zip(box, steps, strict=True)]
    yield from product(*axes)


# --- whose target it is -----------------------------------------------------------------------------------------------


def claim_of(store: Store) -> dict[str, Any] | None:
    """Return what the file specgrad.job of a target says, {"job": fingerprint, "sources": ...}; None: there is none.

    FileError if it says something else.
    """
    raw = answer(_files(store).read(CLAIM))
    if raw.state == "missing":
        return None
    name = f"{CLAIM} in {store.address}"
    said = parse_json(raw.value, name)
    if not isinstance(said, dict) or set(said) != {"job", "sources"} or not isinstance(said["sources"], dict):
        raise FileError(f"{name} must have a job and sources")
    return said


def refuse_other_job(store: Store, fingerprint: str) -> None:
    """Raise JobError if a target is that of a job with another fingerprint."""
    there = claim_of(store)
    if there is not None and there["job"] != fingerprint:
        text = f"holds tiles of another job ({there['job']!s:.12}; this is {fingerprint[:12]})"
        raise JobError(f"{store.name} at {store.address} {text}: choose another target, or remove that one")


def write_claim(store: Store, about: dict[str, Any]) -> None:
    """Write the file specgrad.job of a target; JobError if it is that of another job."""
    there = answer(_files(store).read(CLAIM)).stamp.generation
    refuse_other_job(store, about["job"])
    if not answer(_files(store).write(CLAIM, json.dumps(about), if_equal=there)).generation:
        refuse_other_job(store, about["job"])  # somebody else was faster
