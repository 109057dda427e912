"""The side file of a model: SHA-256 of its bytes and of every tensor, so that the file need not vouch for itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from ...bounded_files import parse_json, read_bytes, read_json
from ...errors import FileError, SpecgradError
from ...interop.onnx.file import BYTE_BUDGET, DTYPES, ByteBudget, tensor, type_name

FORMAT = "specgrad/digests/1"
SUFFIX = ".digests.json"


def side_of(path: Path) -> Path:
    """Return the default path of a model's side file."""
    return path.with_name(path.name + SUFFIX)


def tensors(model: onnx.ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Yield (name, tensor) of every initializer and of every tensor attribute of the nodes in the model's main
    graph.
    """
    for proto in model.graph.initializer:
        yield str(proto.name), proto
    for index, node in enumerate(model.graph.node):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield f"node {index}: {attribute.name}", attribute.t


def tensor_digest(proto: TensorProto, folder: Path | None, budget: ByteBudget) -> str:
    """Return the SHA-256 of type, shape and cells (little endian, row-major), however the file stores them.

    A tensor of a type without a NumPy form is hashed as it is serialized. `folder` has the files of tensors outside the
    model; `budget` limits the bytes that are read. ModelError for segments, and data that do not fit.

    >>> a = onnx.helper.make_tensor("a", TensorProto.FLOAT, [2], [1.0, 2.0])
    >>> b = onnx.numpy_helper.from_array(np.float32([1, 2]), "b")
    >>> tensor_digest(a, None, ByteBudget(99)) == tensor_digest(b, None, ByteBudget(99))
    True
    """
    if proto.data_type in DTYPES:
        cells = np.ascontiguousarray(tensor(proto, folder, budget)).tobytes()
    else:
        cells = proto.SerializeToString(deterministic=True)
    head = f"{type_name(proto.data_type)} {'x'.join(map(str, proto.dims))}\n"
    return hashlib.sha256(head.encode() + cells).hexdigest()


def digests_of(model: onnx.ModelProto, folder: Path | None, data: bytes) -> dict[str, Any]:
    """Return the content of the side file of a model with the bytes `data`; `folder` holds its external tensors."""
    budget = ByteBudget(BYTE_BUDGET)
    each = {name: tensor_digest(proto, folder, budget) for name, proto in tensors(model)}
    return {"format": FORMAT, "file": hashlib.sha256(data).hexdigest(), "tensors": each}


def read_digests(path: Path) -> dict[str, Any]:
    """Return the content of the side file at `path`; FileError if it is none."""
    content = read_json(path)
    if not is_digests(content):
        raise FileError(f"{path} is no side file of digests ({FORMAT})")
    return dict(content)


def is_digests(content: Any) -> bool:
    """Return whether `content`, parsed JSON, has the form of a side file."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return False
    each = content.get("tensors")
    texts = [content.get("file"), *(each.values() if isinstance(each, dict) else [None])]
    return all(isinstance(t, str) for t in texts)


def is_side_file(data: bytes) -> bool:
    """Return whether a file with the bytes `data` is a side file."""
    try:
        return is_digests(parse_json(data, "it"))
    except FileError:
        return False


def differences(
    expected: Mapping[str, Any], model: onnx.ModelProto, folder: Path | None, path: Path | None
) -> Iterator[tuple[str, str]]:
    """Yield (tensor name, difference) between a model and its side file; the name is "" for the file itself.

    `expected` is the side file's content, `folder` holds external tensors, `path` is the file (None: the model is
    serialised).
    """
    data = bytes(read_bytes(path)) if path is not None else model.SerializeToString()
    if hashlib.sha256(data).hexdigest() != expected["file"]:
        yield "", "the SHA-256 of the file is not the one of the side file"
    budget, present = ByteBudget(BYTE_BUDGET), set()
    for name, proto in tensors(model):
        present.add(name)
        try:
            digest = tensor_digest(proto, folder, budget)
        except SpecgradError:
            continue  # S20 reports it
        if name not in expected["tensors"]:
            yield name, "the side file has no digest of this tensor"
        elif digest != expected["tensors"][name]:
            yield name, "the SHA-256 of the tensor is not the one of the side file"
    for name in sorted(set(expected["tensors"]) - present):
        yield name, "the side file has a digest of this tensor, which is not in the model"
