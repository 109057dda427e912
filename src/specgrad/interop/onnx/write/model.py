"""Exports a graph to an ONNX model: one pass over its nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from ....errors import ParameterError, UnsupportedError
from ....graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from ....scalar import Array
from . import operators, windows
from .writer import EMITTERS, TYPES, Writer, emit_named

TABLES = (operators, windows)  # each fills its part of EMITTERS
OPSET, IR_VERSION = 22, 10
MAX_PROTOBUF_BYTES = 2**31 - 2**20  # bytes that one protobuf message may have


def export_graph(graph: Graph, dtype: Any) -> onnx.ModelProto:
    """Return the graph as an ONNX model whose numbers have type `dtype`; UnsupportedError for what cannot be written.

    ParameterError unless `dtype` is float16, float32 or float64.
    """
    number_type = None if dtype is None else np.dtype(dtype)  # NumPy takes None for float64
    if number_type not in TYPES or number_type.kind != "f":
        raise ParameterError("to_onnx", f"dtype must be float16, float32 or float64; got {number_type}", rule="P5")
    writer = Writer(graph, number_type)
    values: list[str] = []
    for position, node in enumerate(graph.nodes):
        values.append(_write_node(writer, position, node, values))
    outputs = [_output(writer, p, values) for p in graph.output_positions]
    inputs = [_value_info(writer, graph.nodes[p], values[p]) for p in graph.input_positions]
    size = sum(len(t.raw_data) for t in writer.constants)
    if size > MAX_PROTOBUF_BYTES:
        raise UnsupportedError("to_onnx", f"{size} bytes of constants do not fit one ONNX file")
    proto = helper.make_graph(writer.nodes, "specgrad", inputs, outputs, writer.constants)
    return helper.make_model(
        proto, producer_name="specgrad", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )


def _write_node(w: Writer, position: int, node: Node, values: list[str]) -> str:
    """Write the graph's node at `position`, and return the name of its value; `values` are those of earlier nodes.

    UnsupportedError for what ONNX lacks.
    """
    if node.op is INPUT:
        return node.name
    if node.op is CONSTANT:
        return w.store(_constant_array(w, node, w.graph.constants[position]), node.name)
    line = EMITTERS.get(node.op.name) or emit_named(node.op)
    if line is None:
        return w.refuse(node, "has no counterpart in ONNX that we write")
    w.layer = node.name
    args = [w.number(a.value) if isinstance(a, NumberArg) else values[a] for a in node.args]
    shapes = [() if isinstance(a, NumberArg) else w.graph.nodes[a].shape for a in node.args]
    return w.finish(line(w, node, args, shapes), node.name)


def _constant_array(w: Writer, node: Node, array: Array) -> Array:
    """Return the constant `array` of a node in the model's float type; ParameterError if that changes a number.

    Positions become int64.
    """
    if node.kind == "index":
        return array.astype(np.int64)
    stored = array.astype(w.dtype)
    if not _equal(stored, array):
        text = f"constant {node.name} has numbers that {w.dtype} cannot hold; give dtype=float64, or round it yourself"
        raise ParameterError("to_onnx", text, rule="P5")
    return stored


def _equal(stored: Array, array: Array) -> bool:
    """Return whether the numbers `stored` equal the exact ones, `array`; NaN equals NaN."""
    if array.dtype != object:
        return bool(np.array_equal(stored, array, equal_nan=True))
    return all(float(s) == v for s, v in zip(stored.flat, array.flat, strict=True))


def _value_info(w: Writer, node: Node, name: str) -> onnx.ValueInfoProto:
    """Return the ONNX declaration of the value `name` of a node: type and shape."""
    return helper.make_tensor_value_info(name, TensorProto.INT64 if node.kind == "index" else w.elem_type, node.shape)


def _output(w: Writer, position: int, values: list[str]) -> onnx.ValueInfoProto:
    """Return the ONNX declaration of the output at `position`.

    An Identity is added if no node computes it, or its name is used twice. `values` are the names of all nodes' values.
    An Identity is written in a layer of the output's name (`w.layer`).
    """
    name = values[position]
    if (
        not any(name in n.output for n in w.nodes)
        or values.count(name) > 1
        or w.graph.output_positions.count(position) > 1
    ):
        w.layer = name
        name = w.emit("Identity", name)
    return _value_info(w, w.graph.nodes[position], name)
