"""Nodes that have no meaning here. What such a node reads becomes an output of the graph, what it gives an input."""

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

from ..file import RANK, ModelError
from .importer import Importer

LISTED = 20  # nodes that an error lists
Declared = Mapping[str, tuple[Shape, int]]  # what is known of a value that we cannot compute: shape and element type


@dataclass(frozen=True)
class UnsupportedNode:
    """A node that was passed over.

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


def pass_over(importer: Importer, node: NodeProto, error: SpecgradError | None, declared: Declared) -> UnsupportedNode:
    """Define what the node gives as inputs of the graph, where shapes are known; the others are missing from now on."""
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
    return "index" if elem_type in (TensorProto.INT32, TensorProto.INT64) else "real"


def _reads(node: NodeProto) -> Iterator[str]:
    """Names that a node and the nodes of its subgraphs read."""
    todo = [node]
    while todo:
        at = todo.pop()
        yield from filter(None, at.input)
        todo += [inner for a in at.attribute for g in (a.g, *a.graphs) for inner in g.node]


def read_outside(importer: Importer, passed: Sequence[UnsupportedNode], taken: Sequence[Var]) -> list[Var]:
    """The variables that unexamined nodes read, in order and once: they stay in the graph as outputs of it."""
    values = (importer.values.get(name) for u in passed for name in u.reads)
    known = {v.id for v in taken}
    return list({v.id: v for v in values if isinstance(v, Var) and v.id not in known}.values())


def refuse(passed: Sequence[UnsupportedNode]) -> None:
    """All nodes at once; one alone by its own error."""
    errors = [u.error for u in passed if u.error is not None]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        listed = "; ".join(str(e) for e in errors[:LISTED])
        more = f"; and {len(errors) - LISTED} more" if len(errors) > LISTED else ""
        error = UnsupportedError("from_onnx", f"{len(errors)} nodes are not supported: {listed}{more}")
        error.add_note("  from_onnx(model, partial=True) passes over them; `specgrad audit` does so by itself")
        raise error


def declared_values(model: Any, inputs: Mapping[str, Sequence[int]]) -> dict[str, tuple[Shape, int]]:
    """Shapes and types of values as the model and ONNX's own shape inference say; values with open sizes are left out.

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
    kind = info.type.tensor_type
    sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
    if not kind.HasField("shape") or min(sizes, default=0) < 0 or len(sizes) > RANK:
        return None
    return tuple(sizes), int(kind.elem_type)


def multiply_adds(node: NodeProto, shapes: Mapping[str, Shape]) -> int | None:
    """Of a convolution or matrix product whose shapes are known; None for other nodes, which nobody counts."""
    known = [shapes.get(name) for name in (*node.input, *node.output[:1])]
    y, w = known[-1] if known else None, known[1] if len(known) > 2 else None
    if y is None or w is None:
        return None
    if node.op_type in ("Conv", "ConvTranspose") and len(w) > 2:
        return math.prod(y if node.op_type == "Conv" else known[0] or ()) * math.prod(w[1:])
    return math.prod(y) * (known[0] or (1,))[-1] if node.op_type == "MatMul" else None
