"""ONNX nodes without a converter: what they read becomes outputs of the graph, what they give inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import NodeProto, TensorProto

from specgrad.errors import SpecgradError, UnsupportedError
from specgrad.graph.builder import Var
from specgrad.graph.graph import Kind
from specgrad.window import Shape

from ..file import MAX_RANK, ModelError
from .importer import Importer

MAX_LISTED = 20  # nodes that an error lists
Declared = Mapping[str, tuple[Shape, int]]  # what is known of a value that we cannot compute: shape and element type


@dataclass(frozen=True)
class UnsupportedNode:
    """An ONNX node that a partial import skipped.

    layer     its name, or that of its first output
    reason    what would be needed
    reads     the values that it reads, those of its subgraphs included
    gives     the values that it computes
    error     what was raised for it; None where it only reads values of unknown shape
    """

    layer: str
    operator: str
    reason: str
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    error: SpecgradError | None = None


def skip_node(importer: Importer, node: NodeProto, error: SpecgradError | None, declared: Declared) -> UnsupportedNode:
    """Define the node's outputs as inputs of the graph if their shapes are declared; others are missing from now on."""
    for name in filter(None, node.output):
        if name in importer.values:
            raise ModelError(f"value {name!r} is computed twice")
        if name in declared:
            shape, elem_type = declared[name]
            importer.define(name, importer.trace.leaf(name, shape, _kind(elem_type)), elem_type)
        else:
            importer.missing.add(name)
    layer = str(node.name or next(filter(None, node.output), ""))
    reason = "reads a value whose shape is not known"
    if error is not None:
        reason = str(error).removeprefix(str(error.operator)).lstrip(": ")
    gives = tuple(filter(None, node.output))
    return UnsupportedNode(layer, str(node.op_type), reason, tuple(dict.fromkeys(_reads(node))), gives, error)


def _kind(elem_type: int) -> Kind:
    """Return "index" for int32 and int64, else "real"."""
    return "index" if elem_type in (TensorProto.INT32, TensorProto.INT64) else "real"


def _reads(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node and the nodes of its subgraphs read."""
    todo = [node]
    while todo:
        at = todo.pop()
        yield from filter(None, at.input)
        todo += [inner for a in at.attribute for g in (a.g, *a.graphs) for inner in g.node]


def read_outside(importer: Importer, unsupported: Sequence[UnsupportedNode], outputs: Sequence[Var]) -> list[Var]:
    """Return the variables that skipped nodes read, each once, without those in `outputs`."""
    values = (importer.values.get(name) for u in unsupported for name in u.reads)
    known = {v.id for v in outputs}
    return list({v.id: v for v in values if isinstance(v, Var) and v.id not in known}.values())


def raise_unsupported(unsupported: Sequence[UnsupportedNode]) -> None:
    """Raise one error for all skipped nodes; a single one keeps its own error."""
    errors = [u.error for u in unsupported if u.error is not None]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        listed = "; ".join(str(e) for e in errors[:MAX_LISTED])
        more = f"; and {len(errors) - MAX_LISTED} more" if len(errors) > MAX_LISTED else ""
        error = UnsupportedError("from_onnx", f"{len(errors)} nodes are not supported: {listed}{more}")
        error.add_note("  from_onnx(model, partial=True) passes over them; `specgrad audit` does so by itself")
        raise error


def declared_values(model: Any, inputs: Mapping[str, Sequence[int]]) -> dict[str, tuple[Shape, int]]:
    """Return shape and type of values by the model and ONNX's shape inference; open sizes are left out.

    Only for models that a runtime is about to load anyway: the inference is C++ code of the package onnx.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in copy.graph.input:
        if info.name in inputs:
            dims = info.type.tensor_type.shape
            dims.ClearField("dim")
            for size in inputs[info.name]:
                dims.dim.add(dim_value=size)
    with suppress(Exception):  # what it raises is not documented; then only what the file declares is known
        copy = onnx.shape_inference.infer_shapes(copy, data_prop=True)
    infos = [*copy.graph.value_info, *copy.graph.output]
    return {i.name: known for i in infos if (known := _declared(i)) is not None}


def _declared(info: onnx.ValueInfoProto) -> tuple[Shape, int] | None:
    """Return the declared (shape, element type), or None if a size is open."""
    kind = info.type.tensor_type
    sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
    if not kind.HasField("shape") or min(sizes, default=0) < 0 or len(sizes) > MAX_RANK:
        return None
    return tuple(sizes), int(kind.elem_type)


def multiply_adds(node: NodeProto, shapes: Mapping[str, Shape]) -> int | None:
    """Return the multiply-adds of a convolution or matrix product of known shapes; None for other nodes."""
    known = [shapes.get(name) for name in (*node.input, *node.output[:1])]
    y, w = known[-1] if known else None, known[1] if len(known) > 2 else None
    if y is None or w is None:
        return None
    if node.op_type in ("Conv", "ConvTranspose") and len(w) > 2:
        return math.prod(y if node.op_type == "Conv" else known[0] or ()) * math.prod(w[1:])
    return math.prod(y) * (known[0] or (1,))[-1] if node.op_type == "MatMul" else None
