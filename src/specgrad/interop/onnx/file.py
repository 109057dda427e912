"""Reads the bytes of an untrusted ONNX model.

Nothing here allocates what a file merely declares: entries are counted on the wire before protobuf builds an object
for each, sizes are Python integers compared with a byte budget and with the bytes that are there, and external data
is opened only inside the model's own folder, never through a link.

`what` names, in errors, the part of the file that is read.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from ...bounded_files import file_digest, read_bytes
from ...errors import FileError, SpecgradError
from ...scalar import Array
from ...window import Shape

MAX_ENTRIES = 200_000  # fields of all messages of a file; ResNet-152 has about 20,000
MAX_NODES = 10_000
MAX_RANK = 16
BYTE_BUDGET = 2**31

DTYPES: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype("<f4"),
    TensorProto.DOUBLE: np.dtype("<f8"),
    TensorProto.FLOAT16: np.dtype("<f2"),
    TensorProto.BFLOAT16: np.dtype("<u2"),  # the upper half of a float32
    TensorProto.INT8: np.dtype("i1"),
    TensorProto.INT16: np.dtype("<i2"),
    TensorProto.INT32: np.dtype("<i4"),
    TensorProto.INT64: np.dtype("<i8"),
    TensorProto.UINT8: np.dtype("u1"),
    TensorProto.UINT16: np.dtype("<u2"),
    TensorProto.UINT32: np.dtype("<u4"),
    TensorProto.UINT64: np.dtype("<u8"),
    TensorProto.BOOL: np.dtype("?"),
}
FLOATS: dict[int, int] = {
    TensorProto.BFLOAT16: 8,
    TensorProto.FLOAT16: 11,
    TensorProto.FLOAT: 24,
    TensorProto.DOUBLE: 53,
}
"""Floating types, with the bits of their significand."""

_DATA_FIELDS: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}  # every other type stands in int32_data


class ModelError(SpecgradError, ValueError):
    """Raised for a model that is malformed, larger than its budget, or that reaches outside its folder.

    `text` says what is wrong; `operator` and `rule` as in `SpecgradError`.
    """

    def __init__(self, text: str, operator: str = "from_onnx", rule: str | None = None) -> None:
        super().__init__(operator, one_line(text), rule=rule)


def one_line(text: str) -> str:
    """Return a text in one line of at most 400 characters."""
    words = " ".join(text.split())
    return words if len(words) <= 400 else f"{words[:397]}..."


def shown(name: Any) -> str:
    """Return the repr of a name from a file, cut to 100 characters."""
    text = repr(name)
    return text if len(text) <= 100 else f"{text[:97]}...'"


def type_name(elem_type: int) -> str:
    """Return the name of the ONNX element type of number `elem_type`, or "type N" if it is unknown."""
    try:
        return str(TensorProto.DataType.Name(elem_type))
    except ValueError:
        return f"type {elem_type}"


# --- the file ---------------------------------------------------------------------------------------------------


def read_model(source: Any, byte_budget: int) -> tuple[onnx.ModelProto, Path | None]:
    """Return the model of `source`, a path, bytes or a ModelProto, and the folder in which its external data must lie
    (None: there is none).

    ModelError for anything else, and for files of more than `byte_budget` bytes.
    """
    if isinstance(source, onnx.ModelProto):
        return source, None
    if isinstance(source, bytes | bytearray | memoryview):
        return parse(bytes(source)), None
    if not isinstance(source, str | os.PathLike):
        raise ModelError(f"model must be a path, bytes or a ModelProto; got {type(source).__name__}")
    path = Path(source)
    return parse(_read_file(path, byte_budget)), path.parent


def _read_file(path: Path, byte_budget: int) -> bytes:
    """Return the bytes of a regular file of at most `byte_budget` bytes; ModelError otherwise."""
    try:
        return bytes(read_bytes(path, byte_budget))
    except FileError as error:
        raise ModelError(str(error)) from error
    except OSError as error:
        raise ModelError(f"cannot read {shown(str(path))}: {error.strerror}") from error


def parse(data: bytes) -> onnx.ModelProto:
    """Parse `data` as the protobuf message of a model, after its entries have been counted; ModelError if the bytes are
    none.
    """
    if not data:  # which protobuf takes for a model without inputs
        raise ModelError("not an ONNX model: there are no bytes")
    count_entries(data)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
        return model
    except DecodeError as error:
        raise ModelError("not an ONNX model: the bytes are not this protobuf message") from error


@cache
def _message_fields(descriptor: Any) -> dict[int, Any]:
    """Return the fields of a message type (its `descriptor`) that are messages themselves: number -> message type."""
    return {f.number: f.message_type for f in descriptor.fields if f.message_type is not None}


def count_entries(data: bytes, limit: int = MAX_ENTRIES) -> int:
    """Return the number of fields of all messages in `data`, a file's bytes; ModelError above `limit`, before anything
    is built.
    """
    count, todo = 0, [(0, len(data), onnx.ModelProto.DESCRIPTOR)]
    try:
        while todo:
            at, end, descriptor = todo.pop()
            messages = _message_fields(descriptor)
            while at < end:
                count += 1
                if count > limit:
                    raise ModelError(f"the file has more than {limit:,} entries (nodes, attributes, names)")
                key = data[at]
                key, at = (key, at + 1) if key < 128 else _read_varint(data, at)
                start, at = _field_extent(data, at, key & 7)
                if key >> 3 in messages and start < at:
                    todo.append((start, min(at, end), messages[key >> 3]))
    except IndexError:
        raise ModelError("not an ONNX model: the bytes end within a field") from None
    return count


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode the protobuf varint that begins at `at` in `data`; return (value, position behind it).

    ModelError if it has more than 64 bits.
    """
    value = shift = 0
    while data[at] >= 128:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise ModelError("not an ONNX model: a number has more than 64 bits")
    return value | data[at] << shift, at + 1


def _field_extent(data: bytes, at: int, wire: int) -> tuple[int, int]:
    """Return (start, end) of the content of the field at `at` in `data`, which is empty unless the wire type has a
    length.

    ModelError for an unknown wire type.
    """
    if wire == 2:
        length = data[at]
        length, at = (length, at + 1) if length < 128 else _read_varint(data, at)
        return at, at + length
    if wire == 0:
        at = _read_varint(data, at)[1]
    elif wire in (1, 5):
        at += 8 if wire == 1 else 4
    else:
        raise ModelError("not an ONNX model: a field has an unknown wire type")
    return at, at


# --- tensors ----------------------------------------------------------------------------------------------------


def extent(shape: Shape) -> int:
    """Return the number of cells of a shape, with empty axes counted as one, as NumPy counts before it allocates."""
    return math.prod(n for n in shape if n)


class ByteBudget:
    """Limit of the bytes that the values of a model may need; its methods raise ModelError beyond it.

    What was taken, `spent`, is counted in Python integers, which do not overflow.

    total     bytes that all values together may need
    largest   bytes of one value that a graph records; None: as `total`
    """

    def __init__(self, total: int, largest: int | None = None) -> None:
        self.total, self.largest = total, total if largest is None else largest
        self.spent = 0

    def check_value(self, what: str, cells: int) -> None:
        """Raise ModelError, with the name `what`, if a recorded value of so many cells, which takes no memory yet, is
        too large.
        """
        if cells * 8 > self.largest:
            name = "byte_budget" if self.largest == self.total else "largest_value"
            raise ModelError(f"{what} needs {cells * 8} bytes; {name}={self.largest} allows less")

    def check(self, what: str, cells: int, itemsize: int = 8) -> None:
        """Raise ModelError, with the name `what`, if one value of so many cells, each of `itemsize` bytes, does not fit
        the whole budget.
        """
        if cells * itemsize > self.total:
            raise ModelError(f"{what} needs {cells * itemsize} bytes; byte_budget={self.total} allows less")

    def spend(self, what: str, size: int) -> None:
        """Add `size` bytes of data `what` that stay in memory; ModelError, with that name, if the sum exceeds the
        budget.
        """
        self.spent += size
        if self.spent > self.total:
            raise ModelError(f"with {what} the weights need {self.spent} bytes; byte_budget={self.total} allows less")


def declared_size(dim: Any) -> int | None:
    """Return the size that the protobuf dimension `dim` declares; None for an open one, which exporters also write as a
    negative number.
    """
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def check_shape(what: str, dims: Any) -> Shape:
    """Return the sizes `dims` as a tuple; ModelError, which calls it `what`, if one is negative or there are too
    many.
    """
    if len(dims) > MAX_RANK:
        raise ModelError(f"{what} has {len(dims)} axes; at most {MAX_RANK} are read")
    shape = tuple(int(n) for n in dims)
    if any(n < 0 for n in shape):
        raise ModelError(f"{what} has a negative size: {shape}")
    return shape


def tensor(proto: TensorProto, folder: Path | None, budget: ByteBudget, name: str | None = None) -> Array:
    """Return the array of a TensorProto, read from `folder` if it is external; bfloat16 becomes float32 of equal value.

    `name` replaces its own in errors.

    ModelError for other element types, segments, and data that do not fit; their size is charged to `budget`.
    """
    what = f"tensor {shown(name if name is not None else proto.name)}"
    dtype = DTYPES.get(proto.data_type)
    if dtype is None:
        raise ModelError(f"{what} has element type {type_name(proto.data_type)}, which is not read")
    if proto.HasField("segment"):
        raise ModelError(f"{what} is a segment of another; segments are not read")
    shape = check_shape(what, proto.dims)
    size = math.prod(shape) * dtype.itemsize
    budget.spend(what, size)
    if proto.data_location == TensorProto.EXTERNAL:
        with _external_part(proto, what, folder, size) as file:
            flat = np.frombuffer(file.read(size), dtype=dtype)
    elif proto.HasField("raw_data"):
        raw = proto.raw_data  # one copy: protobuf makes one per access
        _check_length(what, size, len(raw), "bytes")
        flat = np.frombuffer(raw, dtype=dtype)
    else:
        flat = _from_typed_field(proto, what, math.prod(shape), dtype)
    if proto.data_type == TensorProto.BFLOAT16:
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    return flat.reshape(shape)


def _check_length(what: str, declared: int, held: int, unit: str) -> None:
    """Raise ModelError, with the name `what`, if the declared length, in a `unit` such as bytes, is not the one
    held.
    """
    if declared != held:
        raise ModelError(f"{what} declares {declared} {unit} and holds {held}")


def _from_typed_field(proto: TensorProto, what: str, cells: int, dtype: np.dtype[Any]) -> Array:
    """Return the numbers of a tensor's typed data field, flat, in `dtype`; half floats stand there as their bits.

    ModelError, with `what` as the tensor's name, unless there are as many as `cells` and all fit the type.
    """
    values = getattr(proto, _DATA_FIELDS.get(proto.data_type, "int32_data"))
    _check_length(what, cells, len(values), "numbers")
    numbers = np.array(values, dtype=dtype if dtype.kind == "f" and dtype.itemsize > 2 else None)
    if dtype == np.dtype("<f2"):
        return _cast_exactly(what, numbers, np.dtype("<u2")).view(dtype)
    return numbers if numbers.dtype == dtype else _cast_exactly(what, numbers, dtype)


def _cast_exactly(what: str, numbers: Array, dtype: np.dtype[Any]) -> Array:
    """Return the numbers in `dtype`; ModelError, which names the tensor `what`, if one changes."""
    fitted = numbers.astype(dtype)
    if not np.array_equal(fitted.astype(object), numbers.astype(object)):
        raise ModelError(f"{what} holds numbers outside its element type {dtype}")
    return fitted


# --- external data ----------------------------------------------------------------------------------------------


def with_external_data(
    model: onnx.ModelProto, folder: Path | None, byte_budget: int = BYTE_BUDGET, largest: int | None = None
) -> onnx.ModelProto:
    """Return the model with its external data, read from `folder`, inside, so that its bytes are all that a runtime
    needs; tensors of more than `largest` bytes stay outside (None: none does).

    ModelError for types that are not read, and beyond `byte_budget` bytes.
    """
    if all(t.data_location != TensorProto.EXTERNAL for t in _tensors(model.graph)):
        return model
    whole, budget = onnx.ModelProto(), ByteBudget(byte_budget)
    whole.CopyFrom(model)
    for proto in _tensors(whole.graph):
        if proto.data_location == TensorProto.EXTERNAL:
            what, dtype = f"tensor {shown(proto.name)}", DTYPES.get(proto.data_type)
            if dtype is None:
                raise ModelError(f"{what} has element type {type_name(proto.data_type)}, which is not read")
            size = math.prod(check_shape(what, proto.dims)) * dtype.itemsize
            budget.spend(what, size)
            with _external_part(proto, what, folder, size) as file:  # its place is checked, wherever it stays
                if largest is not None and size > largest:
                    _say_length(proto, size)
                    continue
                proto.raw_data = file.read(size)
            proto.ClearField("data_location")
            proto.ClearField("external_data")
    return whole


def _say_length(proto: TensorProto, size: int) -> None:
    """Write the length of external data, `size`, where a file leaves it out: OpenVINO reads none then."""
    if all(entry.key != "length" for entry in proto.external_data):
        proto.external_data.add(key="length", value=str(size))


def external_files(model: onnx.ModelProto) -> set[str]:
    """Return the names of the files that hold data of the model's tensors, as the model gives them."""
    external = (t for t in _tensors(model.graph) if t.data_location == TensorProto.EXTERNAL)
    return {entry.value for t in external for entry in t.external_data if entry.key == "location"}


def file_states(source: Any, model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Return place, size and times of a model's file and of those that hold data of its tensors, by name.

    () of one that is missing; nothing of a `source` that is no path.
    """
    if not isinstance(source, str | os.PathLike):
        return {}
    path = Path(source)
    return {name: _file_state(path.parent / name) for name in (path.name, *sorted(external_files(model)))}


def _file_state(path: Path) -> tuple[int, ...]:
    """Return what changes with a file's bytes; () if it is missing."""
    try:
        s = os.stat(path)
    except (OSError, ValueError):
        return ()
    return s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def names_beside(path: Path) -> list[str]:
    """Return the names of the files that hold data of a model's tensors; none if the model cannot be read."""
    try:
        return sorted(external_files(read_model(path, BYTE_BUDGET)[0]))
    except ModelError:
        return []


def digests_beside(path: Path) -> dict[str, str]:
    """Return the SHA-256 of the files that hold data of a model's tensors, by name; none if the model cannot be read.

    Of a file that is missing, or outside the model's folder, it says that alone.
    """
    return {name: _digest_beside(path.parent, name) for name in names_beside(path)}


def _digest_beside(folder: Path, name: str) -> str:
    """Return the SHA-256 of the file `name` of a model's folder, or what keeps it from being read."""
    try:
        return file_digest(_safe_path("a tensor", folder, name))
    except (ModelError, FileError, OSError) as error:
        return f"is not read: {type(error).__name__}"


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Yield the tensors of a graph: initializers, attributes of nodes, and those of subgraphs; of sparse ones, the
    numbers and their places.
    """
    yield from graph.initializer
    for attribute in (a for node in graph.node for a in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)


@contextmanager
def _external_part(proto: TensorProto, what: str, folder: Path | None, size: int) -> Iterator[BinaryIO]:
    """Open a tensor's data in another file of the model's folder, where it begins; ModelError unless there are `size`
    bytes.

    `what` names the tensor in errors.
    """
    if folder is None:
        raise ModelError(f"{what} is external data; give the model as a path, so that its folder is known")
    entries = {e.key: e.value for e in proto.external_data}
    if len(entries) < len(proto.external_data):  # a runtime may take the other one
        raise ModelError(f"{what}: external data has two entries of one name")
    unknown = entries.keys() - {"location", "offset", "length"}
    if unknown:
        raise ModelError(f"{what}: external data entry {shown(min(unknown))} is not honoured", rule="P5")
    offset = _size_entry(what, entries, "offset", 0)
    _check_length(what, size, _size_entry(what, entries, "length", size), "bytes")
    with _open_part(what, _safe_path(what, folder, entries.get("location", "")), offset, size) as file:
        yield file


def _size_entry(what: str, entries: dict[str, str], key: str, default: int) -> int:
    """Return the entry `key` of external data's `entries` as an integer, `default` if there is none; ModelError if it
    is no size.

    `what` names the tensor in errors.
    """
    text = entries.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"{what}: external data {key}={shown(text)} is not a size")
    return int(text)


def _safe_path(what: str, folder: Path, location: str) -> Path:
    """Return the path `location` below the model's folder; ModelError, which names the tensor `what`, if it is
    absolute, leaves the folder, has a link, or may be no path to a runtime.
    """
    parts = location.split("/")
    if parts[0] == "*":  # ONNX Runtime and OpenVINO read */_ORT_MEM_ADDR_/* from their own memory, at the offset
        raise ModelError(f"{what}: external data location {shown(location)} may mean a runtime's memory")
    if not location or "\0" in location or "\\" in location or os.path.isabs(location) or ":" in parts[0]:
        raise ModelError(f"{what}: external data location {shown(location)} must be a relative path")
    if any(part in ("", ".", "..") for part in parts):
        raise ModelError(f"{what}: external data location {shown(location)} must stay inside the model's folder")
    path = folder
    for part in parts:
        path = path / part
        if os.path.islink(path):  # False of names that are too long, which cannot be opened either
            raise ModelError(f"{what}: external data location {shown(location)} goes through a symbolic link")
    return path


@contextmanager
def _open_part(what: str, path: Path, offset: int, size: int) -> Iterator[BinaryIO]:
    """Open a regular file that is no link at `offset`, where it has `size` bytes; ModelError, which names the tensor
    `what`, otherwise.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(path, "rb", opener=lambda p, _: os.open(p, flags)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ModelError(f"{what}: external data {shown(path.name)} is not a regular file")
            if status.st_nlink > 1:
                raise ModelError(f"{what}: external data {shown(path.name)} is a hard link to a file with another name")
            if offset + size > status.st_size:
                text = f"{shown(path.name)} has {status.st_size} bytes; {offset} + {size} are asked for"
                raise ModelError(f"{what}: external data {text}")
            file.seek(offset)
            yield file
    except OSError as error:
        raise ModelError(f"{what}: cannot read external data {shown(path.name)}: {error.strerror}") from error
