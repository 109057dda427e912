"""What an ONNX file does with its inputs, as far as that says which numbers they take: tables, sounds, shared sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import numpy_helper

from .file import declared_size

MOVES: tuple[str, ...] = (
    "Cast",
    "Identity",
    "Reshape",
    "Unsqueeze",
    "Squeeze",
    "Flatten",
    "Expand",
    "Transpose",
    "Pad",
    "Slice",
)
MOVES += ("Concat", "Tile")
"""Operators whose first results are cells of their first input."""
TABLES: dict[tuple[str, str], dict[int, int]] = {
    ("", "Gather"): {1: 0},
    ("", "RotaryEmbedding"): {3: 1},
    ("com.microsoft", "RotaryEmbedding"): {1: 2},
    ("com.microsoft", "EmbedLayerNormalization"): {0: 2, 1: 4},
}
"""Domain, operator -> {number of the input that holds row numbers: number of the input that is the table}."""
LENGTHS = {("com.microsoft", "GroupQueryAttention"): (5, 6)}
"""Domain, operator -> numbers of the inputs that say how many cells it reads, and must be known."""


@dataclass(frozen=True)
class InputUse:
    """What is known of one input.

    symbols    per axis the file's name of an open size; None where the size is known or has no name
    rows       of the smallest table that its cells are row numbers of; None: it is not seen to index one
    is_sound   whether a convolution over one axis reads it as one channel
    """

    symbols: tuple[str | None, ...] = ()
    rows: int | None = None
    is_sound: bool = False


def input_uses(proto: onnx.ModelProto) -> dict[str, InputUse]:
    """Return what the file does with each input that is no initializer, by name."""
    nodes = list(_all_nodes(proto.graph))
    readers: dict[str, list[tuple[Any, int]]] = {}
    for node in nodes:
        for k, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, k))
    tensors = {t.name: t for graph in _with_subgraphs(proto.graph) for t in graph.initializer}
    tensors |= {n.output[0]: a.t for n in nodes if n.op_type == "Constant" for a in n.attribute if a.name == "value"}
    initial = {t.name for t in proto.graph.initializer}
    return {i.name: _use_of_input(i, readers, tensors) for i in proto.graph.input if i.name not in initial}


def inputs_that_count(proto: onnx.ModelProto) -> set[str]:
    """Return the names of the inputs from whose values, beyond their shapes, a length (LENGTHS) is computed: masks."""
    nodes = list(_all_nodes(proto.graph))
    makers = {name: node for node in nodes for name in node.output}
    names = [
        node.input[k] for node in nodes for k in LENGTHS.get((node.domain, node.op_type), ()) if k < len(node.input)
    ]
    for name in names:  # grows
        node = makers.get(name)
        if node is not None and node.op_type not in ("Shape", "Size"):
            names += [n for n in node.input if n not in names]
    return {i.name for i in proto.graph.input} & set(names)


def _with_subgraphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the graphs inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _with_subgraphs(attribute.g)


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield all nodes of a graph and of the graphs inside them."""
    for each in _with_subgraphs(graph):
        yield from each.node


def _use_of_input(
    info: onnx.ValueInfoProto, readers: Mapping[str, list[tuple[Any, int]]], tensors: Mapping[str, onnx.TensorProto]
) -> InputUse:
    """Return what is done with the input `info`, and with values that are its cells moved.

    `readers` has, by value, the nodes that read it and as which input; `tensors` are the initializers by name.
    """
    rows, is_sound, names = [], False, [info.name]
    for name in names:  # grows
        for node, k in readers.get(name, ()):
            if node.op_type in MOVES and (k == 0 or node.op_type == "Concat"):
                names += [o for o in node.output[:1] if o and o not in names]
            rows += [] if (count := _table_rows(node, k, tensors)) is None else [count]
            kernel = tensors.get(node.input[1]) if node.op_type == "Conv" and k == 0 else None
            is_sound |= kernel is not None and len(kernel.dims) == 3 and kernel.dims[1] == 1
    dims = info.type.tensor_type.shape.dim
    symbols = tuple(d.dim_param or None if declared_size(d) is None else None for d in dims)
    return InputUse(symbols, min(rows, default=None), is_sound)


def _table_rows(node: onnx.NodeProto, k: int, tensors: Mapping[str, onnx.TensorProto]) -> int | None:
    """Return how many rows the table has, among the initializers `tensors`, that input k of a node indexes; None if
    there is none, or it is computed.
    """
    if node.op_type == "OneHot" and k == 0 and node.input[1] in tensors:
        return int(numpy_helper.to_array(tensors[node.input[1]]).ravel()[0])
    table = TABLES.get((node.domain.replace("ai.onnx", ""), node.op_type), {}).get(k)
    if table is None or len(node.input) <= table or node.input[table] not in tensors:
        return None
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    dims = tensors[node.input[table]].dims
    return int(dims[axis]) if -len(dims) <= axis < len(dims) else None
