"""Files that nobody vouches for: regular files alone, with sizes, depths and numbers bounded before they are used.

SECURITY.md lists the limits, which are the constants here. What is not as it should be is a FileError; OSError passes,
as for a file that is not there. Certificates are read by `specgrad.proof.files`, which believes nothing of this.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from .errors import FileError, SpecgradError

MAX_FILE_BYTES = 1 << 40  # of any file: /proc/kcore says that it has 1 << 47
MAX_TEXT_BYTES = 1 << 28  # of JSON and TOML
MAX_DEPTH = 100  # of lists and objects in each other
MAX_DIGITS = 300  # of a whole number, of a fraction, and of their exponents
MOST: int = 10**MAX_DIGITS
MAX_INFLATED_BYTES = 1 << 29  # of all arrays of a compressed .npz file
MAX_NPY_HEADER_CHARS = 10_000
MAX_HEADER_BYTES = 100_000_000  # of safetensors, as that package has it
MAX_RANK = 32
CHUNK_BYTES = 1 << 24
NUMBERS = "biufcUSV"  # kinds of NumPy's types that are neither objects nor times
TYPES = {
    "BOOL": "bool",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    **{f"{sign}{bits}": f"{word}int{bits}" for sign, word in (("I", ""), ("U", "u")) for bits in (8, 16, 32, 64)},
}
"""safetensors' names of types -> NumPy's."""
Array = NDArray[Any]
Buffer = bytes | bytearray | mmap.mmap


@contextmanager
def as_file_error(name: str | Path, what: str) -> Iterator[None]:
    """Turn any exception about the bytes of the file `name`, which should be `what`, into a FileError.

    FileError, ImportError and an OSError that names a file pass.
    """
    try:
        yield
    except (FileError, ImportError):
        raise
    except OSError as error:
        if error.filename is None:  # a place that the bytes name, and not the file
            raise FileError(f"{name} is not {what}: {error}") from error
        raise
    except SpecgradError as error:
        raise FileError(str(error)) from error
    except (Exception, MemoryError) as error:
        raise FileError(f"{name} is not {what}: {type(error).__name__}: {str(error)[:200]}") from error


# --- bytes ------------------------------------------------------------------------------------------------------------


@contextmanager
def opened(path: str | Path, most: int = MAX_FILE_BYTES) -> Iterator[tuple[BinaryIO, int]]:
    """Yield a file that is open to read, and its size; FileError if it is a pipe or a device, or has over `most` bytes.

    Nobody reads beyond its size: files of /proc that never end say that they have none.
    """
    if "\0" in str(path):  # of which Python says a ValueError
        raise FileError(f"no file is called {str(path)!r}")
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{path} is not a regular file")
        if status.st_size > most:
            raise FileError(f"{path} has {status.st_size} bytes; at most {most} are read")
        yield file, status.st_size


def _open_at_once(path: str, flags: int) -> int:
    """Open a file with these flags of os.open without waiting, even if it is a named pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_bytes(path: str | Path, most: int = MAX_FILE_BYTES) -> bytearray:
    """Return the bytes of a regular file of at most `most`; FileError otherwise."""
    with opened(path, most) as (file, size), as_file_error(path, "a file that memory holds"):
        return _take(file, size)


def _take(file: Any, size: int) -> bytearray:
    """Return `size` bytes of a file, fewer at its end; what is not there is never allocated."""
    data = bytearray()
    while chunk := file.read(min(CHUNK_BYTES, size - len(data))):
        data += chunk
    return data


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a regular file, which is never in memory at once; FileError for any other."""
    whole = hashlib.sha256()
    with opened(path) as (file, size):
        while chunk := file.read(min(CHUNK_BYTES, size)):
            whole.update(chunk)
            size -= len(chunk)
    return whole.hexdigest()


# --- JSON and TOML ----------------------------------------------------------------------------------------------------


def read_json(path: str | Path, depth: int = MAX_DEPTH) -> Any:
    """Return the data of a JSON file, nested up to `depth`; FileError otherwise."""
    return parse_json(read_bytes(path, MAX_TEXT_BYTES), path, depth)


def parse_json(text: bytes | bytearray | str, name: str | Path, depth: int = MAX_DEPTH) -> Any:
    """Return the data of a JSON text, which errors call `name`, nested up to `depth`.

    FileError for repeated keys, NaN, infinities, numbers that float64 does not hold, and halves of characters.

    >>> parse_json('{"a": [1, 2.5]}', "a.json")
    {'a': [1, 2.5]}
    >>> parse_json('{"a": 1, "a": 2}', "a.json")
    Traceback (most recent call last):
    specgrad.errors.FileError: load: a.json: a key stands twice in one object; got ['a', 'a']
    """
    read = partial(json.loads, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    return _parse(lambda: read(text), "JSON", text, name, depth)


def parse_toml(text: bytes | bytearray, name: str | Path) -> Any:
    """Return the table of a TOML text, which errors call `name`; FileError as for JSON, and for dates."""
    return _parse(lambda: tomllib.loads(text.decode()), "TOML", text, name, MAX_DEPTH)


def _parse(parse: Callable[[], Any], what: str, text: bytes | bytearray | str, name: str | Path, depth: int) -> Any:
    """Return what `parse` makes of a text called `name`, if it is bounded and nested up to `depth`; FileError if it is
    not `what`.
    """
    if len(text) > MAX_TEXT_BYTES:
        raise FileError(f"{name} has over {MAX_TEXT_BYTES} bytes")
    try:
        data = parse()
    except RecursionError:
        raise FileError(f"{name} is no {what} that is read here: it is nested too deeply") from None
    except ValueError as error:
        raise FileError(f"{name} is no {what}: {error}") from None
    _refuse_unbounded(data, name, depth)
    return data


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the JSON object of these pairs; raise ValueError for a repeated key."""
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError(f"a key stands twice in one object; got {str([key for key, _ in pairs])[:80]}")
    return entries


def _no_constant(text: str) -> Any:
    """Raise ValueError for `text`, NaN or Infinity, which is no JSON number."""
    raise ValueError(f"{text} is no JSON number")


def _refuse_unbounded(data: Any, name: str | Path, depth: int) -> None:
    """Raise FileError, which calls the data `name`, if they are nested beyond `depth`, or hold a value that is not
    bounded.
    """
    level = [data]
    for _ in range(depth + 1):
        level = [*chain.from_iterable(_inside(value, name) for value in level)]
        if not level:
            return
    raise FileError(f"{name} is nested too deeply: over {depth} lists and objects in each other")


def _inside(value: Any, name: str | Path) -> Iterable[Any]:
    """Return what a list or an object holds, () for a value that is neither; FileError, which calls the data `name`, if
    it is not bounded.
    """
    if isinstance(value, dict):
        return (*value, *value.values())
    if isinstance(value, list):
        return value
    if not _is_bounded(value):
        raise FileError(f"{name} holds a {type(value).__name__} that is not read: {_start_of(value)}")
    return ()


def _is_bounded(value: Any) -> bool:
    """Return whether a value is a number of at most MAX_DIGITS, a text that UTF-8 can write, true, false or null."""
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)
    if isinstance(value, int):
        return -MOST < value < MOST
    return value is None or (isinstance(value, float) and math.isfinite(value))


def _start_of(value: Any) -> str:
    """Return the first characters of a value; Python writes no integer of many digits."""
    return f"over {MAX_DIGITS} digits" if isinstance(value, int) else ascii(value)[:40]


def fraction(text: str) -> Fraction:
    """Return the number that a text states, "0.01" or "2/255"; FileError beyond MAX_DIGITS characters, or an exponent
    of that size.

    >>> fraction("2/255"), fraction("1e-3")
    (Fraction(2, 255), Fraction(1, 1000))
    """
    _, _, exponent = text.lower().partition("e")
    try:
        if len(text) <= MAX_DIGITS and abs(int(exponent or 0)) <= MAX_DIGITS:
            return Fraction(text)
    except (ValueError, ZeroDivisionError):
        pass
    raise FileError(f"{text[:40]!r} is no number of at most {MAX_DIGITS} digits and such an exponent")


# --- arrays of NumPy --------------------------------------------------------------------------------------------------


def read_npy(path: str | Path) -> Array:
    """Return the array of an .npy file; FileError if it is none, or holds other bytes than its header claims."""
    with opened(path) as (file, size), as_file_error(path, "an .npy file"):
        return npy_of(file, size, path)


def map_npy(path: str | Path) -> Array:
    """Return the array of an .npy file, mapped: nothing is read before its cells are; FileError as `read_npy`."""
    with opened(path) as (file, size), as_file_error(path, "an .npy file"):
        shape, fortran, dtype = _checked_header(file, size, path)
        return np.memmap(file, dtype, "r", file.tell(), shape, "F" if fortran else "C")


def npy_of(file: Any, size: int, name: str | Path) -> Array:
    """Return the array of an open .npy file of `size` bytes, which errors call `name`; FileError as `read_npy`."""
    shape, fortran, dtype = _checked_header(file, size, name)
    cells = np.frombuffer(_take(file, math.prod(shape) * dtype.itemsize), dtype)
    return cells.reshape(shape[::-1]).T if fortran else cells.reshape(shape)


def _checked_header(file: Any, size: int, name: str | Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return what `_npy_header` does of a file of `size` bytes, called `name` in errors; FileError unless it has those
    cells behind it, and they are numbers.
    """
    shape, fortran, dtype = _npy_header(file)
    count = math.prod(shape)
    if dtype.kind not in NUMBERS or dtype.names or not dtype.itemsize or len(shape) > MAX_RANK:
        raise FileError(f"{name} holds {dtype} of rank {len(shape)}, which is not read")
    if min(shape, default=0) < 0 or count * dtype.itemsize != size - file.tell():
        claimed = f"its header claims {dtype} of shape {shape}"
        raise FileError(f"{name} holds {size - file.tell()} bytes of cells; {claimed}"[:300])
    return shape, fortran, dtype


def _npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return (shape, whether columns come first, type) of an open .npy file; ValueError if it has no such header."""
    major = np.lib.format.read_magic(file)[0]
    readers = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    if major not in readers:
        raise ValueError(f"version {major} is not read")
    return readers[major](file, max_header_size=MAX_NPY_HEADER_CHARS)


def read_npz(path: str | Path, names: Iterable[str] | None = None) -> dict[str, Array]:
    """Return the arrays of an .npz file by name: those of `names`, or all.

    FileError if it is none, lacks one of them, or would take more than MAX_INFLATED_BYTES and more than itself.
    """
    with opened(path) as (file, size), as_file_error(path, "an .npz file"), ZipFile(file) as archive:
        entries = _entries(archive.infolist(), max(size, MAX_INFLATED_BYTES), path)
        missing = [name for name in names or () if name not in entries]
        if missing:
            raise FileError(f"{path} has no array {missing[0]!r}; it has {', '.join(entries) or 'none'}")
        return {name: _array_of(archive, entries[name], path) for name in names or entries}


def _entries(listed: list[ZipInfo], most: int, path: str | Path) -> dict[str, ZipInfo]:
    """Return the entries of the archive at `path`, as they are `listed`, by the names of their arrays.

    FileError if they say that they take over `most` bytes, have a name twice, or are packed in another way.
    """
    needed = sum(entry.file_size for entry in listed)
    if needed > most:
        raise FileError(
            f"{path} inflates to {needed} bytes; at most {most} are read: save it with np.savez, uncompressed"
        )
    entries = {entry.filename.removesuffix(".npy"): entry for entry in listed}
    if len(entries) != len(listed) or any(entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for entry in listed):
        raise FileError(f"{path} is no .npz file as NumPy writes it")
    return entries


def _array_of(archive: ZipFile, entry: ZipInfo, path: str | Path) -> Array:
    """Return the array of an entry of the archive at `path`, which gives no more bytes than its directory says."""
    with archive.open(entry) as file:
        return npy_of(file, entry.file_size, f"{path}: {entry.filename}")


# --- safetensors ------------------------------------------------------------------------------------------------------


def read_arrays(path: str | Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays of a safetensors file by name, and the texts in its header; FileError if it is none."""
    return arrays_of(read_bytes(path), path)


def map_arrays(path: str | Path) -> dict[str, Array]:
    """Return the arrays of a safetensors file by name, mapped: nothing is read before its cells are; FileError if it is
    none.
    """
    with opened(path) as (file, size), as_file_error(path, "a safetensors file"):
        return arrays_of(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"", path)[0]


def arrays_of(data: Buffer, name: str | Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays in the bytes of a safetensors file, which errors call `name`, and the texts in its header.

    FileError unless they fill the bytes one behind the other.
    """
    header = safetensors_header(data, len(data), name)
    texts = header.pop("__metadata__", {})
    at = start = 8 + int.from_bytes(data[:8], "little")
    arrays = {}
    with as_file_error(name, "a safetensors file"):
        for key, (low, high), dtype, shape in sorted(map(_described, header.items()), key=lambda item: item[1]):
            if start + low != at or high > len(data) - start or high - low != math.prod(shape) * dtype.itemsize:
                raise FileError(f"{name}: {key} does not lie where the header says")
            cells = np.frombuffer(data, dtype, math.prod(shape), at).reshape(shape)
            arrays[key] = cells if cells.flags.aligned else cells.copy()
            at = start + high
        if at != len(data) or not isinstance(texts, dict) or not all(isinstance(t, str) for t in texts.values()):
            raise FileError(f"{name} has bytes left over, or other than texts in its header")
    return arrays, texts


def safetensors_header(data: Buffer, size: int, name: str | Path) -> dict[str, Any]:
    """Return the header of a safetensors file of `size` bytes that begins with `data`; FileError, which calls it
    `name`, if it has none.
    """
    length = int.from_bytes(data[:8], "little")
    if not 2 <= length <= min(size - 8, MAX_HEADER_BYTES):
        raise FileError(f"{name} is not a safetensors file: its header has {length} bytes, the file {size}")
    header = parse_json(bytes(data[8 : 8 + length]), name)
    if not isinstance(header, dict):
        raise FileError(f"{name} is not a safetensors file: its header is no object")
    return header


def _described(item: tuple[str, Any]) -> tuple[str, tuple[int, int], np.dtype[Any], tuple[int, ...]]:
    """Return (name, offsets, type, shape) of an entry of a header; ValueError if it is none."""
    name, entry = item
    if not isinstance(entry, Mapping) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} must have dtype, shape and data_offsets")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not (_are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2 and len(shape) <= MAX_RANK):
        raise ValueError(f"{name} must have a shape and two offsets")
    if entry["dtype"] not in TYPES:
        raise ValueError(f"{name} must be of {', '.join(TYPES)}")
    return name, (offsets[0], offsets[1]), np.dtype(TYPES[entry["dtype"]]).newbyteorder("<"), tuple(shape)


def _are_sizes(data: Any) -> bool:
    """Return whether `data` is a list of integers from 0 to MAX_FILE_BYTES."""
    return isinstance(data, list) and all(type(n) is int and 0 <= n <= MAX_FILE_BYTES for n in data)
