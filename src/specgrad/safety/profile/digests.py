"""The side file: SHA-256 of the model's bytes and of every tensor's, so that the file need not vouch for itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from ...errors import ParameterError, SpecgradError
from ...interop.onnx.file import BYTE_BUDGET, DTYPES, ByteBudget, tensor, type_name

FORMAT = "specgrad/digests/1"
SUFFIX = ".digests.json"
MOST = 1 << 26  # bytes of a side file


def side_of(path: Path) -> Path:
    """The side file of a model, unless another is named."""
    return path.with_name(path.name + SUFFIX)


def tensors(model: onnx.ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Every tensor of a file by a name: initializers, and those in attributes of the main graph's nodes."""
    for proto in model.graph.initializer:
        yield str(proto.name), proto
    for index, node in enumerate(model.graph.node):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield f"node {index}: {attribute.name}", attribute.t


def tensor_digest(proto: TensorProto, folder: Path | None, budget: ByteBudget) -> str:
    """Of type, sizes and cells (little endian, the first axis slowest), however the file stores them.

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
    """What stands in the side file of a model with these bytes."""
    budget = ByteBudget(BYTE_BUDGET)
    each = {name: tensor_digest(proto, folder, budget) for name, proto in tensors(model)}
    return {"format": FORMAT, "file": hashlib.sha256(data).hexdigest(), "tensors": each}


def read_digests(path: Path) -> dict[str, Any]:
    """A side file; a ParameterError if it is none."""
    try:
        if path.stat().st_size > MOST:
            raise ParameterError("digests", f"{path} has more than {MOST} bytes")
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ParameterError("digests", f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        content = None
    if not is_digests(content):
        raise ParameterError("digests", f"{path} is no side file of digests ({FORMAT})")
    return dict(content)


def is_digests(content: Any) -> bool:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return False
    each = content.get("tensors")
    texts = [content.get("file"), *(each.values() if isinstance(each, dict) else [None])]
    return all(isinstance(t, str) for t in texts)


def is_side_file(data: bytes) -> bool:
    """Whether a file with these bytes is one of ours."""
    try:
        return is_digests(json.loads(data))
    except (ValueError, RecursionError):
        return False


def differences(
    wanted: Mapping[str, Any], model: onnx.ModelProto, folder: Path | None, path: Path | None
) -> Iterator[tuple[str, str]]:
    """Where the model is not the one of the side file: the name of a tensor, or "" for the file, and what differs."""
    data = path.read_bytes() if path is not None else model.SerializeToString()
    if hashlib.sha256(data).hexdigest() != wanted["file"]:
        yield "", "the SHA-256 of the file is not the one of the side file"
    budget, seen = ByteBudget(BYTE_BUDGET), set()
    for name, proto in tensors(model):
        seen.add(name)
        try:
            digest = tensor_digest(proto, folder, budget)
        except SpecgradError:
            continue  # S20 speaks of it
        if name not in wanted["tensors"]:
            yield name, "the side file has no digest of this tensor"
        elif digest != wanted["tensors"][name]:
            yield name, "the SHA-256 of the tensor is not the one of the side file"
    for name in sorted(set(wanted["tensors"]) - seen):
        yield name, "the side file has a digest of this tensor, which is not in the model"
